// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What is done to a live queue: UPDATE_QUEUE, CU mask, wave state, GWS.
 */
#include "kfd.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
#define SDMA KFD_IOC_QUEUE_TYPE_SDMA
/* An address that no user may name. */
#define KERNEL_ADDRESS 0xffff800000001000ull

struct fixture {
	struct gpu gpu;
	struct queue q;
};

static void live_of(struct fixture *f, uint32_t type)
{
	need_vm(&f->gpu, 0);
	queue_prepare(&f->gpu, &f->q, type, 0x1000);
	CHECK_OK(queue_create(&f->gpu, &f->q));
}

/* UPDATE_QUEUE */

static void live(struct fixture *f)
{
	live_of(f, COMPUTE);
}

CASE(update_bounds, "UPDATE_QUEUE: percentages 0 to 100 and priorities 0 to 15 are accepted")
{
	struct fixture f;

	live(&f);
	CHECK_OK(queue_update(&f.gpu, &f.q, 0, 0));
	CHECK_OK(queue_update(&f.gpu, &f.q, 50, 15));
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	drop_queue(&f.gpu, &f.q);
}

CASE(update_bad_values, "UPDATE_QUEUE: percentage 101, priority 16, ring size 0x1800 are EINVAL")
{
	struct fixture f;

	live(&f);
	CHECK_ERR(queue_update(&f.gpu, &f.q, 101, 7), EINVAL);
	CHECK_ERR(queue_update(&f.gpu, &f.q, 100, 16), EINVAL);
	f.q.args.ring_size = 0x1800;
	CHECK_ERR(queue_update(&f.gpu, &f.q, 100, 7), EINVAL);
}

CASE(update_unknown, "UPDATE_QUEUE: an unknown queue is EFAULT")
{
	struct fixture f;

	live(&f);
	f.q.args.queue_id = 77;
	CHECK_ERR(queue_update(&f.gpu, &f.q, 100, 7), EFAULT);
}

CASE(update_bad_ring, "UPDATE_QUEUE: a ring at a kernel address, unmapped, or of another size is EFAULT")
{
	uint64_t ring;
	struct fixture f;

	live(&f);
	ring = f.q.args.ring_base_address;
	f.q.args.ring_base_address = KERNEL_ADDRESS;
	CHECK_ERR(queue_update(&f.gpu, &f.q, 100, 7), EFAULT);
	f.q.args.ring_base_address = need_address(PAGE, PAGE);
	CHECK_ERR(queue_update(&f.gpu, &f.q, 100, 7), EFAULT);
	f.q.args.ring_base_address = ring;
	f.q.args.ring_size = 0x2000;
	CHECK_ERR(queue_update(&f.gpu, &f.q, 100, 7), EFAULT);
	f.q.args.ring_size = 0x1000;
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	drop_queue(&f.gpu, &f.q);
}

CASE(update_ring_moves, "UPDATE_QUEUE: a new ring is held and the old one let go")
{
	struct fixture f;
	struct bo other;

	live(&f);
	need_bo(&f.gpu, &other, FLAGS_GTT, 0x1000);
	f.q.args.ring_base_address = other.va;
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	CHECK_ERR(bo_unmap(&f.gpu, &other), EBUSY);
	CHECK_OK(bo_unmap(&f.gpu, &f.q.ring));
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
	drop_bo(&f.gpu, &other);
}

CASE(update_disable, "UPDATE_QUEUE: no ring disables, the ring again enables")
{
	struct kfd_ioctl_update_queue_args args = { .queue_percentage = 100, .queue_priority = 7 };
	struct fixture f;

	live(&f);
	args.queue_id = f.q.args.queue_id;
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_UPDATE_QUEUE, &args));
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	drop_queue(&f.gpu, &f.q);
}

/* SET_CU_MASK */

static int cu_mask(const struct fixture *f, uint32_t id, uint32_t bits, const void *mask)
{
	struct kfd_ioctl_set_cu_mask_args args = {
		.queue_id = id,
		.num_cu_mask = bits,
		.cu_mask_ptr = (uintptr_t)mask,
	};

	return kfd_call(f->gpu.fd, AMDKFD_IOC_SET_CU_MASK, &args);
}

CASE(cu_mask_ok, "SET_CU_MASK: 32 to 1024 bits are accepted, more are clipped")
{
	static uint32_t mask[64];
	struct fixture f;

	memset(mask, 0xff, sizeof(mask));
	live(&f);
	CHECK_OK(cu_mask(&f, 0, 32, mask));
	CHECK_OK(cu_mask(&f, 0, 128, mask));
	CHECK_OK(cu_mask(&f, 0, 1024, mask));
	CHECK_OK(cu_mask(&f, 0, 2048, mask));
	drop_queue(&f.gpu, &f.q);
}

/* How many compute units the descriptor of this process's only queue names, by the driver's file in debugfs. */
static unsigned int units_in_descriptor(void)
{
	char own[64], line[256];
	unsigned int units = 0;
	bool mine = false;
	glob_t found;
	FILE *mqds;

	if (glob("/sys/kernel/debug/rkfd/*/mqds", 0, NULL, &found))
		SKIP("debugfs does not show the descriptors");
	CHECK_EQ(found.gl_pathc, 1);
	mqds = fopen(found.gl_pathv[0], "re");
	CHECK(mqds);
	snprintf(own, sizeof(own), " pid %d page table", getpid());
	while (fgets(line, sizeof(line), mqds)) {
		unsigned int word;

		if (!strncmp(line, "pasid ", 6))
			mine = strstr(line, own);
		else if (mine && sscanf(line, " COMPUTE_STATIC_THREAD_MGMT_SE%*u %x", &word) == 1)
			units += __builtin_popcount(word);
	}
	fclose(mqds);
	globfree(&found);
	return units;
}

CASE(cu_mask_kept, "SET_CU_MASK: the queue's descriptor has each unit of the mask and no other, the last one too")
{
	uint32_t mask[2] = { 0xffffffff, 0xffffffff };
	struct fixture f;

	live(&f);
	CHECK_OK(cu_mask(&f, 0, 32, mask));
	CHECK_EQ(units_in_descriptor(), 32);
	mask[0] = 0x80000001;
	CHECK_OK(cu_mask(&f, 0, 32, mask));
	CHECK_EQ(units_in_descriptor(), 2);
	drop_queue(&f.gpu, &f.q);
}

CASE(cu_mask_bad_count, "SET_CU_MASK: 0 bits, and a count that is no multiple of 32, are EINVAL")
{
	uint32_t mask[2] = { 0xffffffff, 0xffffffff };
	struct fixture f;

	live(&f);
	CHECK_ERR(cu_mask(&f, 0, 0, mask), EINVAL);
	CHECK_ERR(cu_mask(&f, 0, 33, mask), EINVAL);
	CHECK_ERR(cu_mask(&f, 0, 31, mask), EINVAL);
}

CASE(cu_mask_bad_queue, "SET_CU_MASK: an unknown queue is EFAULT")
{
	uint32_t mask = 0xffffffff;
	struct fixture f;

	live(&f);
	CHECK_ERR(cu_mask(&f, 77, 32, &mask), EFAULT);
}

CASE(cu_mask_bad_pointer, "SET_CU_MASK: an unreadable mask is EFAULT")
{
	struct fixture f;

	live(&f);
	CHECK_ERR(cu_mask(&f, 0, 32, (void *)8), EFAULT);
}

/* Changes of a queue that stands inside an indirect buffer */

/* Where the words are that such a case looks at; the buffer itself is in the second page. */
enum {
	ENTERED = 0, /* The queue is in the buffer. */
	GATE = 4, /* It waits there until this is 1. */
	COUNT = 8, /* 64 bits; what precedes the wait adds 1, what follows it 0x100, the ring behind it 0x10000. */
	FIRST = 16, /* Stored right behind the wait, */
	COPY = 20, /* copied by the next packet, */
	LAST = 24, /* and the last store of the buffer, */
	SEEN_LAST = 28, /* which the ring copies, */
	SEEN_GATE = 32, /* as the gate. */
	BEHIND = 36, /* The first store of the ring behind the buffer, */
	FENCE = 40, /* and its fence. */
};

struct inside {
	struct fixture f;
	struct bo out;
};

/* Submits what waits inside an indirect buffer and is over with FENCE, and returns when the queue is in there. */
static void go_inside(struct inside *in)
{
	struct packets ring = { .n = 0 }, ib = { .n = 0 };
	uint64_t at;

	if (!is_rkfd())
		SKIP("amdkfd's update of a queue inside an indirect buffer takes the rest of the buffer from it, on the model");
	need_vm(&in->f.gpu, 0);
	need_queue(&in->f.gpu, &in->f.q, COMPUTE);
	need_bo(&in->f.gpu, &in->out, FLAGS_GTT, 2 * PAGE);
	at = in->out.va;
	pm4_atomic(&ib, 47, at + COUNT, 1);
	pm4_write(&ib, at + ENTERED, 1);
	pm4_wait(&ib, EQUAL, at + GATE, 1, ~0u);
	pm4_write(&ib, at + FIRST, 0x1b);
	pm4_copy(&ib, 1, at + FIRST, at + COPY, false);
	pm4_atomic(&ib, 47, at + COUNT, 0x100);
	pm4_write(&ib, at + LAST, 0x2b);
	for (unsigned int i = 0; i < ib.n; i++)
		*bo32(&in->out, PAGE + 4 * i) = ib.dw[i];
	pm4_ib(&ring, at + PAGE, ib.n);
	pm4_copy(&ring, 1, at + LAST, at + SEEN_LAST, false);
	pm4_copy(&ring, 1, at + GATE, at + SEEN_GATE, false);
	pm4_atomic(&ring, 47, at + COUNT, 0x10000);
	pm4_write(&ring, at + BEHIND, 0x3b);
	pm4_release(&ring, at + FENCE, 1, 0x4b, 0, 0);
	submit(&in->f.q, &ring);
	await32(bo32(&in->out, ENTERED), 1, "the queue in its indirect buffer");
}

/* Opens the gate: everything behind it runs, once, in order. */
static void go_on(struct inside *in)
{
	CHECK_EQ(*bo32(&in->out, FENCE), 0);
	__atomic_store_n(bo32(&in->out, GATE), 1, __ATOMIC_RELEASE);
	await32(bo32(&in->out, FENCE), 0x4b, "the fence behind the indirect buffer");
	CHECK_EQ(*bo32(&in->out, SEEN_GATE), 1);
	CHECK_EQ(*bo32(&in->out, FIRST), 0x1b);
	CHECK_EQ(*bo32(&in->out, COPY), 0x1b);
	CHECK_EQ(*bo32(&in->out, LAST), 0x2b);
	CHECK_EQ(*bo32(&in->out, SEEN_LAST), 0x2b);
	CHECK_EQ(*bo32(&in->out, BEHIND), 0x3b);
	CHECK_EQ(*bo64(&in->out, COUNT), 0x10101);
	await_drained(&in->f.q);
	drop_queue(&in->f.gpu, &in->f.q);
	drop_bo(&in->f.gpu, &in->out);
}

CASE(inside_percentage, "UPDATE_QUEUE: another percentage leaves a queue in its indirect buffer")
{
	struct inside in;

	go_inside(&in);
	CHECK_OK(queue_update(&in.f.gpu, &in.f.q, 50, 7));
	CHECK_OK(queue_update(&in.f.gpu, &in.f.q, 100, 7));
	go_on(&in);
}

CASE(inside_priority, "UPDATE_QUEUE: another priority leaves a queue in its indirect buffer")
{
	struct inside in;

	go_inside(&in);
	CHECK_OK(queue_update(&in.f.gpu, &in.f.q, 100, 15));
	CHECK_OK(queue_update(&in.f.gpu, &in.f.q, 100, 0));
	go_on(&in);
}

CASE(inside_stopped, "UPDATE_QUEUE: a queue that is disabled inside an indirect buffer goes on there when it is enabled")
{
	struct inside in;

	go_inside(&in);
	CHECK_OK(queue_update(&in.f.gpu, &in.f.q, 0, 7));
	CHECK_OK(queue_update(&in.f.gpu, &in.f.q, 100, 7));
	go_on(&in);
}

CASE(inside_cu_mask, "SET_CU_MASK: another mask leaves a queue in its indirect buffer")
{
	static const uint32_t mask[4] = { 0xff, 0xff, 0xff, 0xff };
	struct inside in;

	go_inside(&in);
	CHECK_OK(cu_mask(&in.f, in.f.q.args.queue_id, 128, mask));
	go_on(&in);
}

CASE(inside_gws, "ALLOC_QUEUE_GWS: a queue that gets it and gives it back stays in its indirect buffer")
{
	struct kfd_ioctl_alloc_queue_gws_args args = { .num_gws = 64 };
	struct inside in;
	uint64_t units;

	go_inside(&in);
	if (!topology_value(in.f.gpu.id, "properties", "num_gws", &units) || !units)
		SKIP("this GPU has no GWS");
	args.queue_id = in.f.q.args.queue_id;
	CHECK_OK(kfd_call(in.f.gpu.fd, AMDKFD_IOC_ALLOC_QUEUE_GWS, &args));
	args.num_gws = 0;
	CHECK_OK(kfd_call(in.f.gpu.fd, AMDKFD_IOC_ALLOC_QUEUE_GWS, &args));
	go_on(&in);
}

CASE(inside_moved, "UPDATE_QUEUE: a queue whose ring is moved inside an indirect buffer goes on there, then in the new ring")
{
	struct inside in;
	struct bo other;

	go_inside(&in);
	need_bo(&in.f.gpu, &other, FLAGS_GTT, 0x1000);
	for (uint64_t i = 0; i < 0x1000; i += 4)
		*bo32(&other, i) = *bo32(&in.f.q.ring, i);
	in.f.q.args.ring_base_address = other.va;
	CHECK_OK(queue_update(&in.f.gpu, &in.f.q, 100, 7));
	drop_bo(&in.f.gpu, &in.f.q.ring);
	in.f.q.ring = other;
	go_on(&in);
}

/* GET_QUEUE_WAVE_STATE */

static int wave_state(const struct fixture *f, uint32_t id, struct kfd_ioctl_get_queue_wave_state_args *args)
{
	args->queue_id = id;
	args->ctl_stack_address = f->q.save.va;
	return kfd_call(f->gpu.fd, AMDKFD_IOC_GET_QUEUE_WAVE_STATE, args);
}

CASE(wave_state_active, "GET_QUEUE_WAVE_STATE: of an active queue is EINVAL")
{
	struct kfd_ioctl_get_queue_wave_state_args args = { 0 };
	struct fixture f;

	live(&f);
	CHECK_ERR(wave_state(&f, 0, &args), EINVAL);
}

CASE(wave_state_unknown, "GET_QUEUE_WAVE_STATE: of an unknown queue is EFAULT")
{
	struct kfd_ioctl_get_queue_wave_state_args args = { 0 };
	struct fixture f;

	live(&f);
	CHECK_ERR(wave_state(&f, 77, &args), EFAULT);
}

CASE(wave_state_sdma, "GET_QUEUE_WAVE_STATE: of an SDMA queue is EINVAL")
{
	struct kfd_ioctl_get_queue_wave_state_args args = { 0 };
	struct fixture f;

	live_of(&f, SDMA);
	CHECK_OK(queue_update(&f.gpu, &f.q, 0, 7));
	CHECK_ERR(wave_state(&f, 0, &args), EINVAL);
}

static void show_wave_state(struct fixture *f)
{
	struct kfd_ioctl_get_queue_wave_state_args args = { .ctl_stack_used_size = ~0u, .save_area_used_size = ~0u };
	int err;

	CHECK_OK(queue_create(&f->gpu, &f->q));
	CHECK_OK(queue_update(&f->gpu, &f->q, 0, 7));
	err = wave_state(f, 0, &args);
	/* What upstream answers where waves cannot be saved. */
	if (err == EINVAL && !is_rkfd())
		SKIP("no saved waves are shown here");
	CHECK_OK(err);
	CHECK_OP(args.ctl_stack_used_size, <=, f->gpu.ctl_stack_size);
	CHECK_OP(args.save_area_used_size, <=, f->gpu.cwsr_size);
	/* The header says the same, and where. */
	CHECK_EQ(*bo32(&f->q.save, 4), args.ctl_stack_used_size);
	CHECK_EQ(*bo32(&f->q.save, 12), args.save_area_used_size);
	CHECK_OP(*bo32(&f->q.save, 0) + *bo32(&f->q.save, 4), <=, f->gpu.ctl_stack_size);
	CHECK_OP(*bo32(&f->q.save, 8), <=, f->gpu.cwsr_size);
	/* What user space put into the rest of the header stays. */
	CHECK_EQ(*bo32(&f->q.save, 16), f->gpu.cwsr_size);
	CHECK_OK(queue_update(&f->gpu, &f->q, 100, 7));
	drop_queue(&f->gpu, &f->q);
}

CASE(wave_state_inactive, "GET_QUEUE_WAVE_STATE: of an inactive queue fills the header, sizes within the area")
{
	struct fixture f;

	need_vm(&f.gpu, 0);
	queue_prepare(&f.gpu, &f.q, COMPUTE, 0x1000);
	show_wave_state(&f);
}

CASE(wave_state_in_user_memory, "GET_QUEUE_WAVE_STATE: the same of a save area in user memory")
{
	struct fixture f;

	need_vm(&f.gpu, 0);
	queue_prepare(&f.gpu, &f.q, COMPUTE, 0x1000);
	save_in_user_memory(&f.gpu, &f.q);
	show_wave_state(&f);
}

CASE(wave_state_pointer, "GET_QUEUE_WAVE_STATE: an area that cannot be written is EFAULT")
{
	struct kfd_ioctl_get_queue_wave_state_args args = { 0 };
	struct fixture f;
	int err;

	live(&f);
	CHECK_OK(queue_update(&f.gpu, &f.q, 0, 7));
	args.queue_id = 0;
	args.ctl_stack_address = need_address(PAGE, PAGE);
	err = kfd_call(f.gpu.fd, AMDKFD_IOC_GET_QUEUE_WAVE_STATE, &args);
	if (err == EINVAL && !is_rkfd())
		SKIP("no saved waves are shown here");
	CHECK_ERR(err, EFAULT);
	drop_queue(&f.gpu, &f.q);
}

/* ALLOC_QUEUE_GWS */

static int gws(const struct fixture *f, uint32_t id, uint32_t units)
{
	struct kfd_ioctl_alloc_queue_gws_args args = { .queue_id = id, .num_gws = units, .first_gws = ~0u };
	int err = kfd_call(f->gpu.fd, AMDKFD_IOC_ALLOC_QUEUE_GWS, &args);

	if (!err)
		CHECK_EQ(args.first_gws, 0);
	return err;
}

/* What the topology says; false if it says nothing. */
static bool units_of(const struct fixture *f, uint64_t *units)
{
	return topology_value(f->gpu.id, "properties", "num_gws", units);
}

static void need_gws(const struct fixture *f)
{
	uint64_t units;

	if (!units_of(f, &units) || !units)
		SKIP("this GPU has no GWS");
}

CASE(gws_unknown, "ALLOC_QUEUE_GWS: an unknown queue is EINVAL")
{
	struct fixture f;

	live(&f);
	CHECK_ERR(gws(&f, 77, 1), EINVAL);
	CHECK_ERR(gws(&f, 77, 0), EINVAL);
}

CASE(gws_present, "ALLOC_QUEUE_GWS: granted exactly where the topology has num_gws, else ENODEV")
{
	struct fixture f;
	uint64_t units;

	live(&f);
	if (!units_of(&f, &units))
		SKIP("the topology does not tell");
	CHECK_ERR(gws(&f, f.q.args.queue_id, 1), units ? 0 : ENODEV);
	drop_queue(&f.gpu, &f.q);
}

CASE(gws_once, "ALLOC_QUEUE_GWS: one queue of a process has it (EBUSY), also for the one that does")
{
	struct kfd_ioctl_create_queue_args other;
	struct fixture f;

	live(&f);
	need_gws(&f);
	other = f.q.args;
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_CREATE_QUEUE, &other));
	CHECK_OK(gws(&f, f.q.args.queue_id, 64));
	CHECK_ERR(gws(&f, other.queue_id, 64), EBUSY);
	CHECK_ERR(gws(&f, f.q.args.queue_id, 64), EBUSY);
	CHECK_OK(gws(&f, f.q.args.queue_id, 0));
	CHECK_OK(gws(&f, other.queue_id, 64));
	CHECK_OK(queue_destroy(&f.gpu, other.queue_id));
	drop_queue(&f.gpu, &f.q);
}

CASE(gws_back, "ALLOC_QUEUE_GWS: what was never given cannot be given back (EINVAL)")
{
	struct fixture f;

	live(&f);
	need_gws(&f);
	CHECK_ERR(gws(&f, f.q.args.queue_id, 0), EINVAL);
	CHECK_OK(gws(&f, f.q.args.queue_id, 1));
	CHECK_OK(gws(&f, f.q.args.queue_id, 0));
	CHECK_ERR(gws(&f, f.q.args.queue_id, 0), EINVAL);
	drop_queue(&f.gpu, &f.q);
}

CASE(gws_destroyed, "ALLOC_QUEUE_GWS: a queue that is destroyed gives it back")
{
	struct kfd_ioctl_create_queue_args other;
	struct fixture f;

	live(&f);
	need_gws(&f);
	for (int i = 0; i < 3; i++) {
		other = f.q.args;
		CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_CREATE_QUEUE, &other));
		CHECK_OK(gws(&f, other.queue_id, 64));
		CHECK_OK(queue_destroy(&f.gpu, other.queue_id));
	}
	CHECK_OK(gws(&f, f.q.args.queue_id, 64));
	drop_queue(&f.gpu, &f.q);
}

CASE(gws_works, "ALLOC_QUEUE_GWS: a queue with it executes packets, beside one without")
{
	struct packets p = { .n = 0 };
	struct fixture f, other;
	struct bo out;

	live(&f);
	need_gws(&f);
	other.gpu = f.gpu;
	need_queue(&f.gpu, &other.q, COMPUTE);
	need_bo(&f.gpu, &out, FLAGS_GTT, PAGE);
	CHECK_OK(gws(&f, f.q.args.queue_id, 64));
	for (uint32_t i = 1; i <= 5; i++) {
		p.n = 0;
		pm4_write(&p, out.va, i);
		submit(&f.q, &p);
		p.n = 0;
		pm4_write(&p, out.va + 4, i << 8);
		submit(&other.q, &p);
		await32(bo32(&out, 0), i, "the queue with GWS");
		await32(bo32(&out, 4), i << 8, "the queue without");
	}
	drop_queue(&f.gpu, &other.q);
	drop_queue(&f.gpu, &f.q);
	drop_bo(&f.gpu, &out);
}

CASE(gws_sdma, "ALLOC_QUEUE_GWS: for an SDMA queue is EINVAL")
{
	struct fixture f;

	if (!is_rkfd())
		SKIP("other drivers give it to a queue that cannot use it");
	live_of(&f, SDMA);
	need_gws(&f);
	CHECK_ERR(gws(&f, f.q.args.queue_id, 64), EINVAL);
	drop_queue(&f.gpu, &f.q);
}
