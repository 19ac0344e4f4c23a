// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Queues: making them, feeding them, waiting for them. */
#include "backoff.h"
#include "kfd.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Where the pointers lie in their page: as in the thunk's queue structure and, for AQL, in amd_queue_t. */
static void pointer_offsets(uint32_t type, uint64_t *wptr, uint64_t *rptr)
{
	*wptr = type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL ? 0x38 : 8;
	*rptr = type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL ? 0x80 : 16;
}

static void prepare_save_area(const struct gpu *gpu, struct queue *q, uint32_t flags)
{
	need_bo(gpu, &q->save, flags, gpu->save_total);
	*bo32(&q->save, 16) = gpu->cwsr_size;
	*bo32(&q->save, 20) = gpu->save_total - gpu->cwsr_size;
	q->args.ctx_save_restore_address = q->save.va;
}

void queue_prepare(const struct gpu *gpu, struct queue *q, uint32_t type, uint32_t ring_bytes)
{
	bool compute = type == KFD_IOC_QUEUE_TYPE_COMPUTE || type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL;
	uint64_t wptr, rptr;

	memset(q, 0, sizeof(*q));
	need_bo(gpu, &q->ring, FLAGS_USERPTR, ring_bytes);
	need_bo(gpu, &q->pointers, FLAGS_GTT, PAGE);
	pointer_offsets(type, &wptr, &rptr);
	q->wptr = bo64(&q->pointers, wptr);
	q->rptr = bo64(&q->pointers, rptr);
	q->args = (struct kfd_ioctl_create_queue_args){
		.ring_base_address = q->ring.va,
		.write_pointer_address = q->pointers.va + wptr,
		.read_pointer_address = q->pointers.va + rptr,
		.ring_size = ring_bytes,
		.gpu_id = gpu->id,
		.queue_type = type,
		.queue_percentage = 100,
		.queue_priority = 7,
	};
	if (type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)
		for (uint64_t at = 0; at < ring_bytes; at += 64)
			*bo32(&q->ring, at) = 1; /* INVALID */
	if (compute) {
		if (!gpu->save_total)
			SKIP("the size of the save area is not known for this GPU");
		need_bo(gpu, &q->eop, FLAGS_VRAM_PRIVATE, PAGE);
		/* In VRAM it is one piece; as user memory, thousands of pages that the kernel finds, maps and gives back. */
		prepare_save_area(gpu, q, FLAGS_VRAM);
		q->args.eop_buffer_address = q->eop.va;
		q->args.eop_buffer_size = PAGE;
		q->args.ctx_save_restore_size = gpu->cwsr_size;
		q->args.ctl_stack_size = gpu->ctl_stack_size;
	}
}

void save_in_user_memory(const struct gpu *gpu, struct queue *q)
{
	drop_bo(gpu, &q->save);
	prepare_save_area(gpu, q, FLAGS_USERPTR);
}

bool takes_turns(void)
{
	const char *policy = getenv("KFD_SCHED_POLICY");

	return !policy || !strcmp(policy, "0");
}

bool scheduled_by_driver(void)
{
	const char *policy = getenv("KFD_SCHED_POLICY");

	return policy && !strcmp(policy, "2");
}

uint32_t sdma_numbers(const struct gpu *gpu)
{
	uint64_t linked = 0;

	/* Whether the topology counts those that serve links, too, is the driver's choice. */
	if (gpu->gfx == 90010)
		return 5;
	topology_value(gpu->id, "properties", "num_sdma_xgmi_engines", &linked);
	return gpu->sdma_engines ? gpu->sdma_engines + (uint32_t)linked : 0;
}

int queue_create(const struct gpu *gpu, struct queue *q)
{
	uint64_t offset;
	int err = kfd_call(gpu->fd, AMDKFD_IOC_CREATE_QUEUE, &q->args);

	if (err)
		return err;
	offset = q->args.doorbell_offset;
	q->slice = mmap(NULL, DOORBELL_SLICE, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd,
			(off_t)(offset & ~(DOORBELL_SLICE - 1)));
	if (q->slice == MAP_FAILED)
		FAIL("mmap of the doorbells at %#llx: %s", (unsigned long long)offset, strerror(errno));
	q->doorbell = (volatile uint64_t *)((char *)q->slice + (offset & (DOORBELL_SLICE - 1)));
	return 0;
}

void need_queue(const struct gpu *gpu, struct queue *q, uint32_t type)
{
	queue_prepare(gpu, q, type, type == KFD_IOC_QUEUE_TYPE_SDMA ? 0x10000 : 0x1000);
	CHECK_OK(queue_create(gpu, q));
}

void await_queue(const struct gpu *gpu, struct queue *q, uint32_t type)
{
	uint64_t end = now_ms() + WAIT_MS;
	int err;

	queue_prepare(gpu, q, type, type == KFD_IOC_QUEUE_TYPE_SDMA ? 0x10000 : 0x1000);
	while ((err = queue_create(gpu, q)) == ENOSPC && !takes_turns() && now_ms() < end)
		usleep(10000);
	CHECK_EQ(err, 0);
}

int queue_destroy(const struct gpu *gpu, uint32_t id)
{
	struct kfd_ioctl_destroy_queue_args args = { .queue_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_DESTROY_QUEUE, &args);
}

int queue_update(const struct gpu *gpu, const struct queue *q, uint32_t percentage, uint32_t priority)
{
	struct kfd_ioctl_update_queue_args args = {
		.ring_base_address = q->args.ring_base_address,
		.queue_id = q->args.queue_id,
		.ring_size = q->args.ring_size,
		.queue_percentage = percentage,
		.queue_priority = priority,
	};

	return kfd_call(gpu->fd, AMDKFD_IOC_UPDATE_QUEUE, &args);
}

void drop_queue(const struct gpu *gpu, struct queue *q)
{
	CHECK_OK(queue_destroy(gpu, q->args.queue_id));
	munmap(q->slice, DOORBELL_SLICE);
	drop_bo(gpu, &q->ring);
	drop_bo(gpu, &q->pointers);
	if (q->eop.va)
		drop_bo(gpu, &q->eop);
	if (q->save.va)
		drop_bo(gpu, &q->save);
}

static bool is_sdma(const struct queue *q)
{
	return q->args.queue_type == KFD_IOC_QUEUE_TYPE_SDMA ||
	       q->args.queue_type == KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID;
}

void ring_doorbell(const struct queue *q, uint64_t value)
{
	/* Packets and pointer first, also out of write-combined memory. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#ifdef __x86_64__
	__builtin_ia32_sfence();
#endif
	*q->doorbell = value;
}

/*
 * What a queue has not executed is never overwritten. The read pointer of PM4 wraps with the ring, that of SDMA does
 * not; the difference, taken within the ring, is the same for both.
 */
static void await_room(const struct queue *q, uint64_t units)
{
	uint64_t ring = is_sdma(q) ? q->args.ring_size : q->args.ring_size / 4;
	uint64_t end = now_ms() + WAIT_MS, used;
	struct backoff wait = { 0 };

	if (units >= ring)
		FAIL("%llu units do not fit into a ring of %llu", (unsigned long long)units, (unsigned long long)ring);
	for (;;) {
		uint64_t rptr = is_sdma(q) ? __atomic_load_n(q->rptr, __ATOMIC_ACQUIRE) :
					     __atomic_load_n((volatile uint32_t *)q->rptr, __ATOMIC_ACQUIRE);

		used = (q->written - rptr) & (ring - 1);
		if (used + units < ring)
			return;
		if (now_ms() > end)
			FAIL("waited %u ms for room for %llu units: read pointer %#llx, written %#llx", WAIT_MS,
			     (unsigned long long)units, (unsigned long long)rptr, (unsigned long long)q->written);
		back_off(&wait);
	}
}

void submit(struct queue *q, const struct packets *p)
{
	uint64_t unit = is_sdma(q) ? 1 : 4;
	uint64_t ring = q->args.ring_size / 4;
	uint64_t at = q->written * unit / 4;

	await_room(q, p->n * 4 / unit);
	for (unsigned int i = 0; i < p->n; i++)
		*bo32(&q->ring, (at + i) % ring * 4) = p->dw[i];
	q->written += p->n * 4 / unit;
	__atomic_store_n(q->wptr, q->written, __ATOMIC_RELEASE);
	ring_doorbell(q, q->written);
}

void await_drained(const struct queue *q)
{
	if (q->args.queue_type == KFD_IOC_QUEUE_TYPE_COMPUTE)
		await32((volatile uint32_t *)q->rptr, q->written % (q->args.ring_size / 4), "read pointer");
	else
		await64(q->rptr, q->written, "read pointer");
}
