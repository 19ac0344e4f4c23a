/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What cases about memory that moves by attributes begin with: memory, a GPU, and moves until all is where it should be.
 */
#ifndef MOVES_H
#define MOVES_H

#include "agent.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2ul << 20)
/* Pages of a granule. */
#define PAGES ((unsigned int)(HUGE / PAGE))
#define KIB64_PAGES 16u

/* In small pages, from a multiple of 2 MiB on, with nothing in it. */
static inline uint8_t *untouched(uint64_t size)
{
	uint8_t *p = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	p = (uint8_t *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
	CHECK_EQ(madvise(p, size, MADV_NOHUGEPAGE), 0);
	return p;
}

static inline uint8_t *patterned(unsigned int pages, uint32_t seed)
{
	uint8_t *p = untouched(pages * PAGE);

	pattern(p, 0, pages, seed);
	return p;
}

static inline int prefetch(const struct agent *a, const void *p, unsigned int pages, uint32_t location)
{
	return svm_set(&a->gpu, p, pages * PAGE, PREFETCH, location);
}

/*
 * Prefetches to the GPU until so many pages of the range are in its VRAM, and no more: again for pages that somebody had in hand for
 * a moment, as the kernel's lists of new pages do.
 */
static inline void some_in(const struct agent *a, const void *p, unsigned int pages, unsigned int wanted)
{
	uint64_t end = now_ms() + WAIT_MS;
	unsigned int there;

	for (;;) {
		CHECK_OK(prefetch(a, p, pages, a->gpu.id));
		there = device_pages(p, pages);
		CHECK_OP(there, <=, wanted);
		if (there == wanted)
			return;
		if (now_ms() > end)
			FAIL("%u of %u pages do not move", wanted - there, wanted);
		usleep(1000);
	}
}

static inline void all_in(const struct agent *a, const void *p, unsigned int pages)
{
	some_in(a, p, pages, pages);
}

/* … and to the system. */
static inline void all_out(const struct agent *a, const void *p, unsigned int pages)
{
	uint64_t end = now_ms() + WAIT_MS;

	for (;;) {
		CHECK_OK(prefetch(a, p, pages, 0));
		if (!device_pages(p, pages))
			return;
		if (now_ms() > end)
			FAIL("%u of %u pages do not come back", device_pages(p, pages), pages);
		usleep(1000);
	}
}

/* The GPU may use it where it is: accesses move nothing. */
static inline void allow(const struct agent *a, const void *p, unsigned int pages)
{
	CHECK_OK(svm_set(&a->gpu, p, pages * PAGE, IN_PLACE, a->gpu.id));
}

/* A file of pages in the page cache. */
static inline void *need_file_map(unsigned int pages, void *at, int flags)
{
	int fd = memfd_create("svm", MFD_CLOEXEC);
	void *p;

	CHECK_OP(fd, >=, 0);
	CHECK_EQ(ftruncate(fd, pages * PAGE), 0);
	p = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(p != MAP_FAILED);
	close(fd);
	return p;
}

/* Fills most of what is free of VRAM with noise, and gives it back. */
static inline void make_vram_dirty(struct agent *a)
{
	enum { MOST = 64 };
	const uint64_t size = 8 * HUGE;
	struct bo bos[MOST];
	unsigned int n = 0;

	while (n < MOST && available(&a->gpu) > 2 * size) {
		struct packets p = { .n = 0 };

		need_bo(&a->gpu, &bos[n], FLAGS_VRAM_PRIVATE, size);
		for (uint64_t at = 0; at < size; at += HUGE)
			sdma_fill(&p, bos[n].va + at, 0xdeadbeef, HUGE);
		agent_run(a, &p);
		n++;
	}
	CHECK_OP(n, >, 0);
	while (n--)
		drop_bo(&a->gpu, &bos[n]);
}

/* How much moves at once, and what is counted, is the driver's own. */
static inline void need_rkfd(void)
{
	if (!is_rkfd())
		SKIP("amdkfd moves whole ranges, and counts other things");
}

struct in_mode {
	void (*run)(struct agent *a, bool xnack);
	bool xnack;
};

/* In a child, which ends as skipped where the GPU cannot repeat accesses. */
static inline void run_in_mode(void *context)
{
	const struct in_mode *mode = context;
	struct agent a;
	int err;

	agent_open(&a, 0);
	need_moves(&a);
	err = set_xnack(&a.gpu, mode->xnack);
	if (mode->xnack && err == EPERM && a.gpu.gfx != 90010)
		_exit(TAP_STATUS_SKIP);
	CHECK_OK(err);
	agent_start(&a);
	mode->run(&a, mode->xnack);
	agent_stop(&a);
}

/* Runs a case without XNACK, and with it where the GPU has it, each time in a process of its own. */
static inline void in_both_modes(void (*run)(struct agent *a, bool xnack))
{
	struct in_mode mode = { run, false };
	int status = in_child(run_in_mode, &mode);

	if (status == TAP_STATUS_SKIP)
		SKIP("the driver moves no memory");
	CHECK_EQ(status, 0);
	mode.xnack = true;
	status = in_child(run_in_mode, &mode);
	if (status != TAP_STATUS_SKIP)
		CHECK_EQ(status, 0);
}

/* A GPU that repeats accesses, with XNACK on and its queue; else the case is skipped. */
static inline void begin_repeated(struct agent *a)
{
	int err;

	agent_open(a, 0);
	need_moves(a);
	err = set_xnack(&a->gpu, true);
	if (err == EPERM && a->gpu.gfx != 90010)
		SKIP("the GPU has no XNACK");
	CHECK_OK(err);
	agent_start(a);
}

#endif
