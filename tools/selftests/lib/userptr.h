/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* A queue, and memory of the process that the GPU sees. Each file has its own copy of the state; a case is one process. */
#ifndef USERPTR_H
#define USERPTR_H

#include "kfd.h"

#include <sys/mman.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
#define MIB (1ul << 20)

struct fixture {
	struct gpu gpu;
	struct queue q;
	struct bo user; /* The memory under test. */
	struct bo out; /* GTT, where the GPU tells what it sees. */
	struct packets p;
	uint32_t ticket;
};

static struct fixture f;

static inline void *memory(uint64_t size, int prot)
{
	void *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* Makes a buffer of memory that is there already, at GPU address `va`. */
static inline int wrap_at(struct fixture *x, struct bo *bo, uint64_t va, void *at, uint64_t size)
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = {
		.va_addr = va,
		.mmap_offset = (uintptr_t)at,
		.size = size,
		.gpu_id = x->gpu.id,
		.flags = FLAGS_USERPTR,
	};
	int err = kfd_call(x->gpu.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args);

	*bo = (struct bo){ .handle = args.handle, .va = va, .size = size, .flags = FLAGS_USERPTR };
	return err;
}

static inline void begin_in(struct fixture *x, uint64_t size)
{
	need_vm(&x->gpu, 0);
	need_queue(&x->gpu, &x->q, COMPUTE);
	need_bo(&x->gpu, &x->out, FLAGS_GTT, 2 * PAGE);
	CHECK_OK(bo_wrap(&x->gpu, &x->user, FLAGS_USERPTR, memory(size, PROT_READ | PROT_WRITE), size));
	CHECK_OK(bo_map(&x->gpu, &x->user));
	x->p.n = 0;
	x->ticket = 0;
}

static inline void begin(uint64_t size)
{
	begin_in(&f, size);
}

/* Submits, and waits until all of it is done. */
static inline void run(struct fixture *x)
{
	pm4_write(&x->p, x->out.va + PAGE, ++x->ticket);
	submit(&x->q, &x->p);
	x->p.n = 0;
	await32(bo32(&x->out, PAGE), x->ticket, "the last packet");
}

/* What the GPU reads at byte `offset`. */
static inline uint32_t gpu_reads(struct fixture *x, uint64_t offset)
{
	*bo32(&x->out, 0) = 0xdddddddd;
	pm4_copy(&x->p, 1, x->user.va + offset, x->out.va, false);
	run(x);
	return *bo32(&x->out, 0);
}

static inline void gpu_writes(struct fixture *x, uint64_t offset, uint32_t value)
{
	pm4_write(&x->p, x->user.va + offset, value);
	run(x);
}

/* Both see both's writes. */
static inline void check_shared(struct fixture *x, uint64_t offset, uint32_t seed)
{
	*bo32(&x->user, offset) = seed;
	CHECK_EQ(gpu_reads(x, offset), seed);
	gpu_writes(x, offset, ~seed);
	CHECK_EQ(*bo32(&x->user, offset), ~seed);
}

/* An access of the GPU at `va` faults. */
static inline void check_faults(struct fixture *x, uint64_t va)
{
	struct kfd_event_data data = { 0 };
	struct event fault;
	struct waited w;
	int err;

	CHECK_OK(event_create(&x->gpu, KFD_IOC_EVENT_MEMORY, false, 0, &fault));
	pm4_write(&x->p, va, 0xbad);
	submit(&x->q, &x->p);
	data.event_id = fault.id;
	do {
		err = event_wait_data(&x->gpu, &data, 1, true, tap_ms(30000), &w);
	} while (err == EINTR);
	CHECK_OK(err);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data.memory_exception_data.gpu_id, x->gpu.id);
	CHECK_EQ(data.memory_exception_data.va, va & ~(PAGE - 1));
}

#endif
