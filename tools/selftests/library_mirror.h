/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the cases of mirrors through the user library share. */
#ifndef LIBRARY_MIRROR_H
#define LIBRARY_MIRROR_H

#include "library.h"

#define HUGE (2ul << 20)
/* Where the cases mirror. Two mirrors of one space, or those of two threads, lie OWN(1) apart. */
#define AT 0x100000000ul
#define OWN(number) ((number) * 0x10000000ul)
#define QUEUE_AT 0x200000000ul
#define PM4_AT 0x210000000ul
#define OUT_AT 0x220000000ul

/* An address space with a copy engine, and a page for what that reads. */
struct engine {
	struct rkfd_space *space;
	struct rkfd_space_queue *q;
	struct rkfd_bo *out;
	uint32_t fence;
};

/* Without the queue: accesses are repeated only where that is chosen before. */
static inline void open_engine(struct engine *e)
{
	*e = (struct engine){ .space = need_space() };
	e->out = need_bo(e->space, RKFD_HEAP_SYSTEM, PAGE);
	bind_at(e->space, OUT_AT, e->out, 0);
}

static inline void start_engine(struct engine *e)
{
	OK(rkfd_space_queue_new(e->space, RKFD_QUEUE_SDMA, QUEUE_AT, &e->q));
}

static inline void no_fault(const struct rkfd_space *space)
{
	struct rkfd_fault_info fault = { .size = sizeof(fault) };

	FAILS(rkfd_space_fault(space, &fault), EAGAIN, "No access");
}

static inline void leave_engine(struct engine *e)
{
	rkfd_space_queue_free(e->q);
	rkfd_bo_free(e->out);
	rkfd_space_close(e->space);
}

static inline void run(struct engine *e, struct packets *p)
{
	sdma_fence(p, OUT_AT + PAGE - 4, ++e->fence);
	OK(rkfd_space_queue_submit(e->q, p->dw, p->n));
	OK(rkfd_space_wait(e->space, e->out, PAGE - 4, e->fence, PATIENCE_MS));
}

static inline uint32_t gpu_read(struct engine *e, uint64_t address)
{
	struct packets p = { .n = 0 };

	*(volatile uint32_t *)rkfd_bo_cpu(e->out) = 0xdeadbeef;
	sdma_copy(&p, address, OUT_AT, 4);
	run(e, &p);
	return bo_word(e->out, 0);
}

static inline void gpu_write(struct engine *e, uint64_t address, uint32_t value)
{
	struct packets p = { .n = 0 };

	sdma_write(&p, address, &value, 1);
	run(e, &p);
}

static inline volatile uint32_t *word(char *memory, uint64_t offset)
{
	return (volatile uint32_t *)(memory + offset);
}

/* The first dword of each page is its number. */
static inline void fill(char *memory, unsigned int count, uint32_t seed)
{
	for (unsigned int i = 0; i < count; i++)
		*word(memory, i * PAGE) = seed + i;
}

static inline void gpu_sees(struct engine *e, uint64_t address, unsigned int count, uint32_t seed)
{
	for (unsigned int first = 0; first < count; first += 256) {
		unsigned int some = count - first < 256 ? count - first : 256;
		struct packets p = { .n = 0 };

		for (unsigned int i = 0; i < some; i++)
			sdma_copy(&p, address + (first + i) * PAGE, OUT_AT + 4 * i, 4);
		run(e, &p);
		for (unsigned int i = 0; i < some; i++)
			CHECK_EQ(bo_word(e->out, 4 * i), seed + first + i);
	}
}

/* A write, where `access` says so, else a read, is refused as the first one, and the memory is as before. */
static inline void must_fault(struct engine *e, uint64_t address, uint32_t access)
{
	const uint32_t value = 0xbad;
	struct rkfd_fault_info fault;
	struct packets p = { .n = 0 };

	no_fault(e->space);
	if (access & RKFD_FAULT_WRITE)
		sdma_write(&p, address, &value, 1);
	else
		sdma_copy(&p, address, OUT_AT, 4);
	OK(rkfd_space_queue_submit(e->q, p.dw, p.n));
	fault = await_fault(e->space);
	CHECK_EQ(fault.address, address & ~(PAGE - 1));
	CHECK_EQ(fault.access, access);
}

/* Memory at a multiple of a large page. */
static inline char *aligned(unsigned int count)
{
	char *memory = pages(count + HUGE / PAGE);

	return (char *)(((uintptr_t)memory + HUGE - 1) & ~(HUGE - 1));
}

/* What the program had there is gone, and something new is there. */
static inline void map_again(char *at, unsigned int count)
{
	CHECK(mmap(at, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
}

static inline struct rkfd_mirror_options range(char *memory, unsigned int count, uint64_t address)
{
	return (struct rkfd_mirror_options){
		.size = sizeof(struct rkfd_mirror_options),
		.rights = RKFD_RANGE_WRITE,
		.memory = memory,
		.bytes = count * PAGE,
		.address = address,
	};
}

static inline struct rkfd_mirror_options all_memory(void)
{
	struct rkfd_mirror_options o = range(NULL, 0, 0);

	o.filling = RKFD_FILLING_ON_ACCESS;
	o.flags = RKFD_MIRROR_WHOLE;
	return o;
}

static inline struct rkfd_mirror *need_mirror(const struct rkfd_space *space, struct rkfd_mirror_options o)
{
	struct rkfd_mirror *m;

	OK(rkfd_mirror_new(space, &o, &m));
	CHECK(m);
	return m;
}

/* One that accesses fill; the GPU says whether it can. */
static inline struct rkfd_mirror *need_repeats(const struct rkfd_space *space, struct rkfd_mirror_options o)
{
	struct rkfd_mirror *m;
	int rc;

	o.filling = RKFD_FILLING_ON_ACCESS;
	rc = rkfd_mirror_new(space, &o, &m);
	if (rc == -EOPNOTSUPP)
		SKIP("the GPU repeats no accesses of one address space alone");
	OK(rc);
	return m;
}

static inline struct rkfd_mirror_info about(const struct rkfd_mirror *m)
{
	struct rkfd_mirror_info info;

	memset(&info, 0xa5, sizeof(info));
	info.size = sizeof(info);
	OK(rkfd_mirror_describe(m, &info));
	CHECK_EQ(info.size, sizeof(info));
	return info;
}

/* Moves memory of a mirror now; `moved` and `stayed` may be NULL. */
static inline int migrate(const struct rkfd_mirror *m, uint64_t address, unsigned int count, uint32_t place,
			  uint64_t *moved, uint64_t *stayed)
{
	struct rkfd_migrate_options o = {
		.size = sizeof(o),
		.flags = RKFD_MIGRATE_NOW,
		.address = address,
		.bytes = count * PAGE,
		.place = place,
	};

	return rkfd_mirror_migrate(m, &o, moved, stayed);
}

/* … all of it, also what somebody has in hand for a moment; returns the bytes that moved. */
static inline uint64_t migrate_all(const struct rkfd_mirror *m, uint64_t address, unsigned int count, uint32_t place)
{
	uint64_t all = 0, moved, stayed = 1;

	for (unsigned int tries = 0; stayed && tries < 5000; tries++) {
		OK(migrate(m, address, count, place, &moved, &stayed));
		all += moved;
		if (stayed)
			usleep(1000);
	}
	CHECK_EQ(stayed, 0);
	return all;
}

#endif
