// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Several PM4 queues, queues that stand still, and doorbells: who runs when, and who is not disturbed.
 */
#include "pm4_queue.h"

#include <sys/mman.h>

CASE(two_queues_meet, "two queues wait for each other in turn")
{
	struct queue other;
	struct packets p = { .n = 0 };

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	for (uint32_t i = 1; i <= 10; i++) {
		pm4_wait(&f.p, EQUAL, f.out.va + 64, i - 1, 0xffffffff);
		pm4_write(&f.p, f.out.va, i);
		pm4_wait(&p, EQUAL, f.out.va, i, 0xffffffff);
		pm4_write(&p, f.out.va + 64, i);
	}
	submit(&other, &p);
	go();
	await32(bo32(&f.out, 64), 10, "the tenth meeting");
	drop_queue(&f.gpu, &other);
	end();
}

CASE_LIMIT(more_than_slots, "48 queues at once, more than the hardware has slots, each does its work", 180)
{
	static struct queue q[48];
	/* One of the 24 slots is the case's own queue's. */
	int n = takes_turns() ? 48 : 23;
	struct packets p;

	begin(FLAGS_GTT);
	for (int i = 0; i < 48; i++) {
		/* The save area is large: queues share one, since nothing is ever saved in it here. */
		q[i] = f.q;
		need_bo(&f.gpu, &q[i].ring, FLAGS_GTT, 0x1000);
		need_bo(&f.gpu, &q[i].pointers, FLAGS_GTT, PAGE);
		q[i].wptr = bo64(&q[i].pointers, 8);
		q[i].rptr = bo64(&q[i].pointers, 16);
		q[i].args.ring_base_address = q[i].ring.va;
		q[i].args.write_pointer_address = q[i].pointers.va + 8;
		q[i].args.read_pointer_address = q[i].pointers.va + 16;
		if (i == n) {
			CHECK_ERR(queue_create(&f.gpu, &q[i]), ENOSPC);
			break;
		}
		CHECK_OK(queue_create(&f.gpu, &q[i]));
		CHECK_EQ(q[i].args.queue_id, i + 1);
	}
	for (uint32_t round = 1; round <= 3; round++) {
		for (int i = 0; i < n; i++) {
			p.n = 0;
			pm4_write(&p, f.out.va + 4 * i, round << 16 | i);
			submit(&q[i], &p);
		}
		for (int i = 0; i < n; i++)
			await32(bo32(&f.out, 4 * i), round << 16 | i, "a queue's write");
	}
	for (int i = 0; i < n; i++)
		CHECK_OK(queue_destroy(&f.gpu, q[i].args.queue_id));
	end();
}

CASE(paused, "a queue at 0 % does not execute; at 100 % it goes on where it was")
{
	struct queue other;
	struct packets p = { .n = 0 };

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	CHECK_OK(queue_update(&f.gpu, &f.q, 0, 7));
	pm4_write(&f.p, f.out.va, 1);
	go();
	/* The other queue's work shows that the GPU had its chance. */
	for (uint32_t i = 1; i <= 50; i++) {
		p.n = 0;
		pm4_write(&p, f.out.va + 64, i);
		submit(&other, &p);
		await32(bo32(&f.out, 64), i, "the other queue");
	}
	CHECK_EQ(*bo32(&f.out, 0), 0);
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	await32(bo32(&f.out, 0), 1, "the paused packet");
	drop_queue(&f.gpu, &other);
	end();
}

CASE(paused_by_no_ring, "a queue without a ring does not execute; with it again it goes on")
{
	struct kfd_ioctl_update_queue_args args = { .queue_percentage = 100, .queue_priority = 7 };

	begin(FLAGS_GTT);
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet before");
	args.queue_id = f.q.args.queue_id;
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_UPDATE_QUEUE, &args));
	pm4_write(&f.p, f.out.va, 2);
	go();
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	await32(bo32(&f.out, 0), 2, "the packet after");
	end();
}

CASE(created_paused, "a queue created at 0 % starts with an update")
{
	need_vm(&f.gpu, 0);
	queue_prepare(&f.gpu, &f.q, COMPUTE, 0x1000);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, PAGE);
	f.q.args.queue_percentage = 0;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	pm4_write(&f.p, f.out.va, 1);
	go();
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	await32(bo32(&f.out, 0), 1, "the packet");
	end();
}

CASE(updates_keep_work, "work survives 30 updates of its queue and of another while it runs")
{
	struct queue other;
	uint32_t n = 0;

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	for (int i = 0; i < 30; i++) {
		for (int k = 0; k < 8; k++)
			pm4_atomic(&f.p, 47, f.out.va, 1), n++;
		go();
		CHECK_OK(queue_update(&f.gpu, i % 2 ? &f.q : &other, 100, i % 16));
	}
	await64(bo64(&f.out, 0), n, "every increment, once");
	drop_queue(&f.gpu, &other);
	end();
}

CASE(destroy_waiting, "DESTROY_QUEUE of a queue that waits in WAIT_REG_MEM; another goes on")
{
	struct queue other;
	struct packets p = { .n = 0 };

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	pm4_write(&f.p, f.out.va + 8, 1);
	pm4_wait(&f.p, EQUAL, f.out.va, 42, 0xffffffff);
	pm4_write(&f.p, f.out.va + 4, 1);
	go();
	await32(bo32(&f.out, 8), 1, "the packet before the wait");
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
	pm4_write(&p, f.out.va + 64, 7);
	submit(&other, &p);
	await32(bo32(&f.out, 64), 7, "the other queue");
	*bo32(&f.out, 0) = 42;
	p.n = 0;
	pm4_write(&p, f.out.va + 64, 8);
	submit(&other, &p);
	await32(bo32(&f.out, 64), 8, "the other queue");
	CHECK_EQ(*bo32(&f.out, 4), 0);
	drop_queue(&f.gpu, &other);
}

/* What is stored in a doorbell without a queue: more than the next queue will have written for a while. */
#define STALE 0x3c0

static volatile uint64_t *need_slice(const struct gpu *gpu)
{
	void *slice = mmap(NULL, DOORBELL_SLICE, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd,
			   (off_t)(3ull << 62 | (uint64_t)gpu->id << 46));

	CHECK(slice != MAP_FAILED);
	return slice;
}

/* A few packets of the queue have their effect, and the GPU reads not one dword more. */
static void runs_only_its_own(struct queue *q, uint32_t value)
{
	struct packets p = { .n = 0 };

	CHECK_EQ(*(volatile uint32_t *)q->rptr, 0);
	for (uint32_t i = 1; i <= value; i++) {
		if (q->args.queue_type == COMPUTE)
			pm4_write(&p, f.out.va, value << 8 | i);
		else
			sdma_fence(&p, f.out.va, value << 8 | i);
	}
	submit(q, &p);
	await32(bo32(&f.out, 0), value << 8 | value, "the queue's work");
	await_drained(q);
}

static void recycled(uint32_t type)
{
	volatile uint64_t *slice;

	need_vm(&f.gpu, 0);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, PAGE);
	slice = need_slice(&f.gpu);
	need_queue(&f.gpu, &f.q, type);
	for (uint32_t i = 1; i <= 20; i++) {
		uint64_t offset = f.q.args.doorbell_offset;

		runs_only_its_own(&f.q, i);
		drop_queue(&f.gpu, &f.q);
		slice[(offset & (DOORBELL_SLICE - 1)) / 8] = STALE;
		need_queue(&f.gpu, &f.q, type);
		CHECK_EQ(f.q.args.doorbell_offset, offset);
	}
	runs_only_its_own(&f.q, 21);
	drop_queue(&f.gpu, &f.q);
	drop_bo(&f.gpu, &f.out);
}

CASE(recycled_doorbell, "a doorbell that is stored to between two queues: the new one starts empty and does its own work")
{
	recycled(COMPUTE);
}

CASE(recycled_sdma_doorbell, "… that of an SDMA queue")
{
	recycled(KFD_IOC_QUEUE_TYPE_SDMA);
}

static void leaves_doorbells(void *unused)
{
	volatile uint64_t *slice;
	uint64_t own;

	need_vm(&f.gpu, 0);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, PAGE);
	slice = need_slice(&f.gpu);
	need_queue(&f.gpu, &f.q, COMPUTE);
	own = (f.q.args.doorbell_offset & (DOORBELL_SLICE - 1)) / 8;
	/* Whose slice this was left something in all of these; nothing of it is ours. */
	runs_only_its_own(&f.q, 3);
	drop_queue(&f.gpu, &f.q);
	for (unsigned int i = 0; i < 0x100; i++)
		slice[i] = STALE;
	slice[own] = STALE;
}

CASE(inherited_slice, "processes that come one after the other, each leaving values in the doorbells for the next")
{
	for (int i = 0; i < 10; i++)
		CHECK_EQ(in_child(leaves_doorbells, NULL), 0);
}

/* Doorbells that mean nothing */

CASE(stray_doorbell, "a doorbell of no queue is harmless")
{
	begin(FLAGS_GTT);
	for (unsigned int i = 0; i < 0x100; i++)
		if ((volatile uint64_t *)f.q.slice + i != f.q.doorbell)
			((volatile uint64_t *)f.q.slice)[i] = 64;
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet after them");
	end();
}

CASE(repeated_doorbell, "the same doorbell value again executes nothing twice")
{
	begin(FLAGS_GTT);
	for (int i = 0; i < 10; i++) {
		pm4_atomic(&f.p, 47, f.out.va, 1);
		go();
		ring_doorbell(&f.q, f.q.written);
		ring_doorbell(&f.q, f.q.written);
	}
	await64(bo64(&f.out, 0), 10, "every increment");
	await_drained(&f.q);
	CHECK_EQ(*bo64(&f.out, 0), 10);
	end();
}

CASE(doorbell_bo_and_mmap, "the slice as a GPU-mapped buffer and as a mapping together, as the thunk has it")
{
	struct bo slice;

	begin(FLAGS_GTT);
	CHECK_OK(bo_alloc(&f.gpu, &slice, FLAGS_DOORBELL, DOORBELL_SLICE));
	CHECK(mmap((void *)slice.va, DOORBELL_SLICE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f.gpu.fd,
		   (off_t)(f.q.args.doorbell_offset & ~(DOORBELL_SLICE - 1))) != MAP_FAILED);
	CHECK_OK(bo_map(&f.gpu, &slice));
	f.q.doorbell = (volatile uint64_t *)(slice.va + (f.q.args.doorbell_offset & (DOORBELL_SLICE - 1)));
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet");
	end();
	drop_bo(&f.gpu, &slice);
}

CASE(gpu_rings, "one queue rings another's doorbell through the GPU's mapping of the slice")
{
	struct queue other;
	struct packets p = { .n = 0 };
	struct bo slice;

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	CHECK_OK(bo_alloc(&f.gpu, &slice, FLAGS_DOORBELL, DOORBELL_SLICE));
	CHECK_OK(bo_map(&f.gpu, &slice));
	/* The other queue's packet and pointer are there; only its doorbell is missing. */
	pm4_write(&p, f.out.va, 0x77);
	for (unsigned int i = 0; i < p.n; i++)
		*bo32(&other.ring, 4 * i) = p.dw[i];
	other.written = p.n;
	__atomic_store_n(other.wptr, other.written, __ATOMIC_RELEASE);
	pm4_release(&f.p, slice.va + (other.args.doorbell_offset & (DOORBELL_SLICE - 1)), 2, other.written, 0, 0);
	go();
	await32(bo32(&f.out, 0), 0x77, "the packet behind the doorbell");
	drop_queue(&f.gpu, &other);
	end();
	drop_bo(&f.gpu, &slice);
}

/* More than the kernel's checker of DMA mappings takes for one place, if each had a mapping of its own. */
#define SLICES 12

CASE(gpu_rings_many, "12 buffers of one doorbell slice: through each of them a queue rings another's doorbell")
{
	struct bo slices[SLICES];
	struct queue other;
	uint64_t offset;

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	offset = other.args.doorbell_offset & (DOORBELL_SLICE - 1);
	for (unsigned int i = 0; i < SLICES; i++) {
		CHECK_OK(bo_alloc(&f.gpu, &slices[i], FLAGS_DOORBELL, DOORBELL_SLICE));
		CHECK_OK(bo_map(&f.gpu, &slices[i]));
	}
	for (unsigned int i = 0; i < SLICES; i++) {
		struct packets p = { .n = 0 };

		pm4_write(&p, f.out.va, 0x100 + i);
		for (unsigned int k = 0; k < p.n; k++)
			*bo32(&other.ring, 4 * (other.written + k)) = p.dw[k];
		other.written += p.n;
		__atomic_store_n(other.wptr, other.written, __ATOMIC_RELEASE);
		pm4_release(&f.p, slices[i].va + offset, 2, other.written, 0, 0);
		go();
		await32(bo32(&f.out, 0), 0x100 + i, "the packet behind the doorbell");
	}
	/* The last buffer works as long as it is there. */
	for (unsigned int i = 0; i + 1 < SLICES; i++)
		drop_bo(&f.gpu, &slices[i]);
	pm4_release(&f.p, slices[SLICES - 1].va + offset, 2, other.written, 0, 0);
	pm4_write(&f.p, f.out.va, 0x200);
	go();
	await32(bo32(&f.out, 0), 0x200, "the packet after the doorbell");
	drop_queue(&f.gpu, &other);
	end();
	drop_bo(&f.gpu, &slices[SLICES - 1]);
}
