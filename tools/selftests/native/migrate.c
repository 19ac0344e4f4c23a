// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of mirrors moves to VRAM and back: the same bytes for the CPU and for the GPU at each moment, and figures that say
 * where they are.
 */
#include "migrate.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGES 600u

/* Bytes in VRAM as the driver tells, once the GPU has accessed all pages, are those that the process's page table tells. */
static void counts_agree(struct engine *e, uint32_t id, const uint8_t *p, unsigned int pages, unsigned int in_vram)
{
	struct drm_rkfd_mirror_query info;

	CHECK_EQ(device_pages(p, pages), in_vram);
	info = mirror_query(&e->file, id);
	CHECK_EQ(info.vram_bytes, in_vram * PAGE);
	CHECK_OP(info.vram_bytes, <=, info.bytes);
}

/* Nothing of it is elsewhere than it should be. */
static void is_there(struct engine *e, uint32_t id, uint64_t va, unsigned int pages, uint32_t place)
{
	struct drm_rkfd_mirror_migrate args;

	CHECK_OK(mirror_migrate(&e->file, id, va, pages * PAGE, place, 0, &args));
	CHECK_EQ(args.moved, 0);
	CHECK_EQ(args.stayed, 0);
}

static void there_and_back_by(uint32_t filling)
{
	static const uint64_t places[] = { AT, AT + PAGE, AT + HUGE - 3 * PAGE };

	for (unsigned int i = 0; i < 3; i++) {
		const uint64_t at = places[i];
		uint8_t *p = need_aligned(PAGES * PAGE);
		struct engine e;
		uint32_t id = moving_begin(&e, p, at, PAGES * PAGE, filling);

		pattern(p, 0, PAGES, i);
		CHECK_EQ(move_all(&e.file, id, at, PAGES * PAGE, IN_VRAM, 0), PAGES * PAGE);
		/* The GPU uses it there, to read and to write. */
		gpu_has_pattern(&e, at, 0, PAGES, i);
		counts_agree(&e, id, p, PAGES, PAGES);
		gpu_adds(&e, at, PAGES, 1, 5);
		counts_agree(&e, id, p, PAGES, PAGES);
		is_there(&e, id, at, PAGES, IN_VRAM);
		/* The CPU brings it out. */
		has_added(p, 0, PAGES, i, 1, 5);
		CHECK_EQ(device_pages(p, PAGES), 0);
		gpu_adds(&e, at, PAGES, 1, -5);
		counts_agree(&e, id, p, PAGES, 0);
		gpu_has_pattern(&e, at, 0, PAGES, i);
		has_pattern(p, 0, PAGES, i);
		/* In once more, and out by the call. */
		CHECK_EQ(move_all(&e.file, id, at, PAGES * PAGE, IN_VRAM, 0), PAGES * PAGE);
		gpu_adds(&e, at, PAGES, 511, 7);
		CHECK_EQ(move_all(&e.file, id, at, PAGES * PAGE, IN_SYSTEM, 0), PAGES * PAGE);
		CHECK_EQ(device_pages(p, PAGES), 0);
		has_added(p, 0, PAGES, i, 511, 7);
		is_there(&e, id, at, PAGES, IN_SYSTEM);
		CHECK_OK(mirror_destroy(&e.file, id));
		engine_end(&e);
	}
}

CASE_LIMIT(there_and_back, "in, the GPU adds, the CPU reads; in again, and out by the call: each byte, and where it is", 240)
{
	in_both_ways(there_and_back_by);
}

static void some_pages_by(uint32_t filling)
{
	uint8_t *p = need_aligned(1100 * PAGE);
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 1100 * PAGE, filling);

	pattern(p, 0, 1100, 7);
	/* Across a granule's end, and not at a multiple of anything. */
	CHECK_EQ(move_all(&e.file, id, AT + 301 * PAGE, 500 * PAGE, IN_VRAM, 0), 500 * PAGE);
	CHECK_EQ(device_pages(p, 301), 0);
	CHECK_EQ(device_pages(p + 301 * PAGE, 500), 500);
	CHECK_EQ(device_pages(p + 801 * PAGE, 299), 0);
	gpu_has_pattern(&e, AT, 0, 1100, 7);
	counts_agree(&e, id, p, 1100, 500);
	/* More of the same granules, which have room left for these. */
	CHECK_EQ(move_all(&e.file, id, AT + 200 * PAGE, 800 * PAGE, IN_VRAM, 0), 300 * PAGE);
	gpu_has_pattern(&e, AT, 0, 1100, 7);
	counts_agree(&e, id, p, 1100, 800);
	/* A part comes out; what is beside it stays in. */
	CHECK_EQ(move_all(&e.file, id, AT + 450 * PAGE, 100 * PAGE, IN_SYSTEM, 0), 100 * PAGE);
	CHECK_EQ(device_pages(p + 450 * PAGE, 100), 0);
	gpu_has_pattern(&e, AT, 0, 1100, 7);
	counts_agree(&e, id, p, 1100, 700);
	/* Where a page was, it may be again. */
	CHECK_EQ(move_all(&e.file, id, AT, 1100 * PAGE, IN_VRAM, 0), 400 * PAGE);
	gpu_has_pattern(&e, AT, 0, 1100, 7);
	counts_agree(&e, id, p, 1100, 1100);
	has_pattern(p, 0, 1100, 7);
	CHECK_EQ(device_pages(p, 1100), 0);
	engine_end(&e);
}

CASE_LIMIT(some_pages, "parts of a mirror move, in and out, across granules: each page is where it was sent", 240)
{
	in_both_ways(some_pages_by);
}

static void large_by(uint32_t filling)
{
	uint8_t *p = need_aligned(2 * HUGE);
	const unsigned int pages = 2 * HUGE / PAGE;
	struct engine e;
	uint32_t id;

	madvise(p, 2 * HUGE, MADV_HUGEPAGE);
	pattern(p, 0, pages, 1);
	for (uint64_t end = now_ms() + WAIT_MS; madvise(p, 2 * HUGE, MADV_COLLAPSE); usleep(10000))
		if ((errno != EAGAIN && errno != ENOMEM && errno != EBUSY) || now_ms() > end)
			SKIP("no large pages here");
	id = moving_begin(&e, p, AT, 2 * HUGE, filling);
	gpu_has_pattern(&e, AT, 0, pages, 1);
	/* A part of one, then all. */
	CHECK_EQ(move_all(&e.file, id, AT + 100 * PAGE, 500 * PAGE, IN_VRAM, 0), 500 * PAGE);
	gpu_has_pattern(&e, AT, 0, pages, 1);
	counts_agree(&e, id, p, pages, 500);
	CHECK_EQ(move_all(&e.file, id, AT, 2 * HUGE, IN_VRAM, 0), 2 * HUGE - 500 * PAGE);
	gpu_adds(&e, AT, pages, 2, 2);
	counts_agree(&e, id, p, pages, pages);
	has_added(p, 0, pages, 1, 2, 2);
	CHECK_EQ(device_pages(p, pages), 0);
	/* It may be large again. */
	pattern(p, 0, pages, 2);
	madvise(p, 2 * HUGE, MADV_COLLAPSE);
	CHECK_EQ(move_all(&e.file, id, AT, 2 * HUGE, IN_VRAM, 0), 2 * HUGE);
	gpu_has_pattern(&e, AT, 0, pages, 2);
	has_pattern(p, 0, pages, 2);
	engine_end(&e);
}

CASE_LIMIT(large, "large pages of the program move, as a whole and in part", 120)
{
	in_both_ways(large_by);
}

static void in_turn_by(uint32_t filling)
{
	uint8_t *p = need_memory(64 * PAGE);
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 64 * PAGE, filling);

	for (uint32_t round = 1; round <= 20; round++) {
		uint64_t at = (round * 37 % 64) * PAGE;

		fill(p, 64, round << 16);
		CHECK_EQ(move_all(&e.file, id, AT, 64 * PAGE, IN_VRAM, 0), 64 * PAGE);
		CHECK_EQ(gpu_read(&e, AT + at), (round << 16) + at / PAGE);
		gpu_write(&e, AT + at + 4, 0xc00 + round);
		CHECK_EQ(*word(p, at + 4), 0xc00 + round);
		*word(p, at + 8) = 0xd00 + round;
		CHECK_EQ(gpu_read(&e, AT + at + 8), 0xd00 + round);
		gpu_write(&e, AT + at + 12, 0xe00 + round);
		CHECK_EQ(*word(p, at + 12), 0xe00 + round);
		gpu_sees(&e, AT, 64, round << 16);
	}
	engine_end(&e);
}

CASE_LIMIT(in_turn, "CPU and GPU write the same pages in turn, which come and go: what one wrote the other reads next", 120)
{
	in_both_ways(in_turn_by);
}

static void accessed_by(uint32_t filling)
{
	uint8_t *p = need_memory(16 * PAGE), *copy = need_memory(PAGE);
	struct iovec held = { p + 5 * PAGE, PAGE };
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 16 * PAGE, filling);
	int fds[2];

	CHECK_EQ(pipe(fds), 0);
	pattern(p, 0, 16, 3);
	CHECK_EQ(move_all(&e.file, id, AT, 16 * PAGE, IN_VRAM, 0), 16 * PAGE);
	gpu_adds(&e, AT, 16, 2, 9);
	/* The kernel reads for the program, and writes. */
	CHECK_EQ(write(fds[1], p + PAGE, PAGE), PAGE);
	CHECK_EQ(read(fds[0], copy, PAGE), PAGE);
	has_added(copy, 1, 1, 3, 2, 9);
	move_all(&e.file, id, AT, 16 * PAGE, IN_VRAM, 0);
	CHECK_EQ(device_pages(p, 16), 16);
	CHECK_EQ(write(fds[1], copy, PAGE), PAGE);
	CHECK_EQ(read(fds[0], p + 2 * PAGE, PAGE), PAGE);
	gpu_adds(&e, AT, 16, 2, -9);
	has_pattern(p, 0, 2, 3);
	has_pattern(p + 2 * PAGE, 1, 1, 3);
	has_pattern(p + 3 * PAGE, 3, 13, 3);
	/* A pipe holds a page of the program itself: that one comes out, and stays while it is held. */
	pattern(p, 0, 16, 4);
	move_all(&e.file, id, AT, 16 * PAGE, IN_VRAM, 0);
	CHECK_EQ(device_pages(p, 16), 16);
	CHECK_EQ(vmsplice(fds[1], &held, 1, 0), PAGE);
	CHECK_EQ(device_pages(p + 5 * PAGE, 1), 0);
	must_stay(&e.file, id, AT + 5 * PAGE, PAGE, 0, PAGE);
	CHECK_EQ(device_pages(p + 5 * PAGE, 1), 0);
	gpu_has_pattern(&e, AT, 0, 16, 4);
	CHECK_EQ(read(fds[0], copy, PAGE), PAGE);
	has_pattern(copy, 5, 1, 4);
	move_all(&e.file, id, AT, 16 * PAGE, IN_VRAM, 0);
	CHECK_EQ(device_pages(p, 16), 16);
	gpu_has_pattern(&e, AT, 0, 16, 4);
	has_pattern(p, 0, 16, 4);
	engine_end(&e);
}

CASE(accessed, "the kernel reads, writes and holds pages for the program: they come out for that, and stay while they are held")
{
	in_both_ways(accessed_by);
}

static void changed_by(uint32_t filling)
{
	uint8_t *p = need_memory(512 * PAGE), *away = need_memory(50 * PAGE);
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 512 * PAGE, filling);

	for (uint32_t round = 1; round <= 3; round++) {
		pattern(p, 0, 512, round);
		CHECK_EQ(move_all(&e.file, id, AT, 512 * PAGE, IN_VRAM, 0), 512 * PAGE);
		gpu_has_pattern(&e, AT, 0, 512, round);
		/* Discarded: zeroes, for both. */
		CHECK_EQ(madvise(p + 10 * PAGE, 30 * PAGE, MADV_DONTNEED), 0);
		gpu_has_zeroes(&e, AT + 10 * PAGE, 30);
		has_zeroes(p + 10 * PAGE, 30);
		/* Moved by the program: there it is, and something else is where it was. */
		CHECK(mremap(p + 100 * PAGE, 50 * PAGE, 50 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
		CHECK(need_memory_at(p + 100 * PAGE, 50 * PAGE, MAP_FIXED) == p + 100 * PAGE);
		CHECK_OK(mirror_populate(&e.file, id, AT + 100 * PAGE, 50 * PAGE));
		gpu_has_zeroes(&e, AT + 100 * PAGE, 50);
		has_zeroes(p + 100 * PAGE, 50);
		has_pattern(away, 100, 50, round);
		/* Unmapped. */
		CHECK_EQ(munmap(p + 300 * PAGE, 100 * PAGE), 0);
		CHECK(need_memory_at(p + 300 * PAGE, 100 * PAGE, MAP_FIXED) == p + 300 * PAGE);
		CHECK_OK(mirror_populate(&e.file, id, AT + 300 * PAGE, 100 * PAGE));
		gpu_has_zeroes(&e, AT + 300 * PAGE, 100);
		has_zeroes(p + 300 * PAGE, 100);
		/* Taken away from the program, and given back. */
		CHECK_EQ(mprotect(p + 200 * PAGE, 20 * PAGE, PROT_NONE), 0);
		CHECK_EQ(mprotect(p + 200 * PAGE, 20 * PAGE, PROT_READ | PROT_WRITE), 0);
		CHECK_OK(mirror_populate(&e.file, id, AT + 200 * PAGE, 20 * PAGE));
		gpu_has_pattern(&e, AT + 150 * PAGE, 150, 150, round);
		/* All else is as it was. */
		has_pattern(p, 0, 10, round);
		has_pattern(p + 40 * PAGE, 40, 60, round);
		has_pattern(p + 150 * PAGE, 150, 150, round);
		has_pattern(p + 400 * PAGE, 400, 112, round);
	}
	engine_end(&e);
}

CASE_LIMIT(changed, "memory in VRAM is discarded, moved, unmapped and protected by the program: both see what is there then", 120)
{
	in_both_ways(changed_by);
}

static void read_only_by(uint32_t filling)
{
	uint8_t *p = need_memory(4 * PAGE);
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 4 * PAGE, filling | RO);

	pattern(p, 0, 4, 5);
	CHECK_EQ(move_all(&e.file, id, AT, 4 * PAGE, IN_VRAM, 0), 4 * PAGE);
	gpu_has_pattern(&e, AT, 0, 4, 5);
	counts_agree(&e, id, p, 4, 4);
	must_fault(&e, AT + PAGE, true, DRM_RKFD_FAULT_WRITE | DRM_RKFD_FAULT_PRESENT);
	has_pattern(p, 0, 4, 5);
	engine_leave(&e);
	/* What the program itself may only read moves as well. */
	CHECK_EQ(mprotect(p, 4 * PAGE, PROT_READ), 0);
	id = moving_begin(&e, p, AT, 4 * PAGE, filling);
	CHECK_EQ(move_all(&e.file, id, AT, 4 * PAGE, IN_VRAM, 0), 4 * PAGE);
	gpu_has_pattern(&e, AT, 0, 4, 5);
	counts_agree(&e, id, p, 4, 4);
	/* A write by the program is its right again then, and the GPU's. */
	CHECK_EQ(mprotect(p, 4 * PAGE, PROT_READ | PROT_WRITE), 0);
	gpu_adds(&e, AT + PAGE, 1, 0, 3);
	has_added(p + PAGE, 1, 1, 5, 0, 3);
	*word(p, 8) = 0x77;
	CHECK_EQ(gpu_read(&e, AT + 8), 0x77);
	has_pattern(p + 2 * PAGE, 2, 2, 5);
	CHECK_EQ(mprotect(p, 4 * PAGE, PROT_READ), 0);
	CHECK_EQ(gpu_read(&e, AT + 8), 0x77);
	must_fault(&e, AT, true, DRM_RKFD_FAULT_WRITE | DRM_RKFD_FAULT_PRESENT);
	CHECK_EQ(*word(p, 8), 0x77);
	engine_leave(&e);
}

CASE(read_only, "memory that the GPU, or the program, may only read moves, and nobody writes it in VRAM either")
{
	in_both_ways(read_only_by);
}

static void holes_by(uint32_t filling)
{
	uint8_t *p = need_aligned(512 * PAGE);
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 512 * PAGE, filling);
	struct drm_rkfd_mirror_migrate args;

	dirty_vram(&e);
	/* New memory, of which pages 0 to 99 are the zero page, and one is the program's own. */
	CHECK(need_memory_at(p, 512 * PAGE, MAP_FIXED) == p);
	madvise(p, 512 * PAGE, MADV_NOHUGEPAGE);
	has_zeroes(p, 100);
	pattern(p + 200 * PAGE, 200, 1, 9);
	if (filling == FAULT) {
		/* Nobody else looks there. Without FILL only that one moves. */
		CHECK_EQ(move_all(&e.file, id, AT, 512 * PAGE, IN_VRAM, 0), PAGE);
		CHECK_EQ(device_pages(p, 512), 1);
		CHECK_OK(mirror_migrate(&e.file, id, AT, 512 * PAGE, IN_VRAM, FILL, &args));
		CHECK_EQ(args.moved, 511 * PAGE);
		CHECK_EQ(args.stayed, 0);
	} else {
		move_all(&e.file, id, AT, 512 * PAGE, IN_VRAM, FILL);
	}
	CHECK_EQ(device_pages(p, 512), 512);
	gpu_has_zeroes(&e, AT, 200);
	gpu_has_pattern(&e, AT + 200 * PAGE, 200, 1, 9);
	gpu_has_zeroes(&e, AT + 201 * PAGE, 311);
	counts_agree(&e, id, p, 512, 512);
	/* Again, where the program's own bytes were in VRAM before. */
	for (uint32_t round = 1; round <= 3; round++) {
		pattern(p, 0, 512, round);
		CHECK_EQ(move_all(&e.file, id, AT, 512 * PAGE, IN_VRAM, 0), 512 * PAGE);
		gpu_adds(&e, AT, 512, 3, round);
		CHECK_EQ(madvise(p + 64 * PAGE, 256 * PAGE, MADV_DONTNEED), 0);
		move_all(&e.file, id, AT, 512 * PAGE, IN_VRAM, FILL);
		CHECK_EQ(device_pages(p, 512), 512);
		gpu_has_zeroes(&e, AT + 64 * PAGE, 256);
		/* What was written into a hole is there. */
		gpu_adds(&e, AT + 64 * PAGE, 256, 4, round);
		for (unsigned int i = 64; i < 320; i++) {
			CHECK_EQ(((volatile uint64_t *)(p + i * PAGE))[4], round);
			((volatile uint64_t *)(p + i * PAGE))[4] = 0;
		}
		has_zeroes(p + 64 * PAGE, 256);
		has_added(p, 0, 64, round, 3, round);
		has_added(p + 320 * PAGE, 320, 192, round, 3, round);
	}
	engine_end(&e);
}

CASE_LIMIT(holes, "holes and zero pages stay what they are, or become zeroes in VRAM where that is asked for, however dirty it was", 240)
{
	in_both_ways(holes_by);
}

/* A file of pages in the page cache. */
static int need_memfd(unsigned int pages)
{
	int fd = memfd_create("migrate", MFD_CLOEXEC);

	CHECK_OP(fd, >=, 0);
	CHECK_EQ(ftruncate(fd, pages * PAGE), 0);
	return fd;
}

static void *need_map(int fd, unsigned int pages, int flags)
{
	void *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void others_stay_by(uint32_t filling)
{
	enum { N = 16 };
	uint8_t *kinds[4];
	struct engine e;

	kinds[0] = need_map(need_memfd(N), N, MAP_SHARED);
	kinds[1] = need_map(-1, N, MAP_SHARED | MAP_ANONYMOUS);
	kinds[2] = need_map(need_memfd(N), N, MAP_PRIVATE);
	kinds[3] = need_memory(N * PAGE);
	CHECK_EQ(mlock(kinds[3], N * PAGE), 0);
	for (unsigned int kind = 0; kind < 4; kind++) {
		uint8_t *p = kinds[kind];
		uint32_t id = moving_begin(&e, p, AT, N * PAGE, filling);

		pattern(p, 0, N, kind);
		gpu_has_pattern(&e, AT, 0, N, kind);
		must_stay(&e.file, id, AT, N * PAGE, 0, N * PAGE);
		must_stay(&e.file, id, AT, N * PAGE, FILL, N * PAGE);
		CHECK_EQ(device_pages(p, N), 0);
		gpu_adds(&e, AT, N, 9, 4);
		counts_agree(&e, id, p, N, 0);
		has_added(p, 0, N, kind, 9, 4);
		engine_end(&e);
	}
}

CASE(others_stay, "shared memory, files, and what is locked stay where they are, which is told, and both go on using them")
{
	in_both_ways(others_stay_by);
}

static void mixed_by(uint32_t filling)
{
	/* 0 to 9 the program's own, 10 to 19 shared, 20 to 29 nothing, 30 to 39 its own and out of its reach, 40 to 49 its own. */
	uint8_t *p = need_memory(50 * PAGE);
	struct drm_rkfd_mirror_migrate args;
	struct engine e;
	uint32_t id;
	int err;

	CHECK(mmap(p + 10 * PAGE, 10 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, need_memfd(10), 0) == p + 10 * PAGE);
	pattern(p, 0, 20, 6);
	pattern(p + 30 * PAGE, 30, 20, 6);
	CHECK_EQ(munmap(p + 20 * PAGE, 10 * PAGE), 0);
	CHECK_EQ(mprotect(p + 30 * PAGE, 10 * PAGE, PROT_NONE), 0);
	id = moving_begin(&e, p, AT, 50 * PAGE, filling);
	do
		err = mirror_migrate(&e.file, id, AT, 50 * PAGE, IN_VRAM, 0, &args);
	while (err == EAGAIN);
	CHECK_OK(err);
	CHECK_EQ(device_pages(p, 10), 10);
	CHECK_EQ(device_pages(p + 10 * PAGE, 10), 0);
	/* What the program cannot reach is as if it were not there. */
	CHECK_EQ(device_pages(p + 30 * PAGE, 10), 0);
	CHECK_EQ(device_pages(p + 40 * PAGE, 10), 10);
	CHECK_EQ(args.moved, 20 * PAGE);
	CHECK_EQ(args.stayed, 10 * PAGE);
	gpu_has_pattern(&e, AT, 0, 20, 6);
	gpu_has_pattern(&e, AT + 40 * PAGE, 40, 10, 6);
	/* Nothing but holes is no error. */
	CHECK_OK(mirror_migrate(&e.file, id, AT + 22 * PAGE, 5 * PAGE, IN_VRAM, FILL, &args));
	CHECK_EQ(args.moved + args.stayed, 0);
	CHECK_EQ(mprotect(p + 30 * PAGE, 10 * PAGE, PROT_READ | PROT_WRITE), 0);
	has_pattern(p, 0, 20, 6);
	has_pattern(p + 30 * PAGE, 30, 20, 6);
	engine_end(&e);
}

CASE(mixed, "a range with memory of several kinds, and with holes: each page moves or stays by what it is")
{
	in_both_ways(mixed_by);
}

static void twice_by(uint32_t filling)
{
	uint8_t *p = need_memory(300 * PAGE);
	struct engine e, other;
	uint32_t id = moving_begin(&e, p, AT, 300 * PAGE, filling);
	uint32_t second = moving_begin(&other, p, AT + 5 * HUGE + PAGE, 300 * PAGE, filling);
	uint32_t third = need_mirror(&e.file, p, AT + 20 * HUGE, 300 * PAGE, filling);

	pattern(p, 0, 300, 1);
	gpu_has_pattern(&e, AT, 0, 300, 1);
	gpu_has_pattern(&other, AT + 5 * HUGE + PAGE, 0, 300, 1);
	CHECK_EQ(move_all(&e.file, id, AT, 300 * PAGE, IN_VRAM, 0), 300 * PAGE);
	/* One page of VRAM, whoever looks. */
	gpu_adds(&e, AT, 300, 0, 1);
	gpu_adds(&other, AT + 5 * HUGE + PAGE, 300, 0, 1);
	gpu_adds(&e, AT + 20 * HUGE, 300, 0, 1);
	counts_agree(&e, id, p, 300, 300);
	counts_agree(&other, second, p, 300, 300);
	counts_agree(&e, third, p, 300, 300);
	/* … and whoever moves it. */
	CHECK_EQ(move_all(&other.file, second, AT + 5 * HUGE + PAGE, 300 * PAGE, IN_SYSTEM, 0), 300 * PAGE);
	gpu_adds(&e, AT, 300, 0, 1);
	has_added(p, 0, 300, 1, 0, 4);
	/* The one that moved it ends, and its file: what is in VRAM stays there. */
	CHECK_EQ(move_all(&e.file, id, AT, 300 * PAGE, IN_VRAM, 0), 300 * PAGE);
	CHECK_OK(mirror_destroy(&e.file, id));
	CHECK_OK(mirror_destroy(&e.file, third));
	engine_end(&e);
	gpu_adds(&other, AT + 5 * HUGE + PAGE, 300, 0, 1);
	counts_agree(&other, second, p, 300, 300);
	CHECK_OK(mirror_destroy(&other.file, second));
	engine_end(&other);
	CHECK_EQ(device_pages(p, 300), 300);
	has_added(p, 0, 300, 1, 0, 5);
}

CASE_LIMIT(twice, "memory of several mirrors and files: one of them moves it, all see it there; it is the program's when they have ended", 120)
{
	in_both_ways(twice_by);
}

static void beside_a_range_by(uint32_t filling)
{
	uint8_t *p = need_memory(64 * PAGE);
	struct drm_rkfd_bind_op op = {
		.op = DRM_RKFD_BIND_MAP_USER,
		.flags = DRM_RKFD_BIND_WRITE,
		.address = AT + 4 * HUGE,
		.length = 64 * PAGE,
		.offset = (uintptr_t)p,
	};
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 64 * PAGE, filling);

	pattern(p, 0, 64, 2);
	CHECK_EQ(move_all(&e.file, id, AT, 64 * PAGE, IN_VRAM, 0), 64 * PAGE);
	gpu_adds(&e, AT, 64, 5, 1);
	/* Such a range wants system memory. */
	CHECK_OK(bind_list(&e.file, &op, 1, NULL));
	gpu_adds(&e, op.address, 64, 5, 1);
	gpu_adds(&e, AT, 64, 5, 1);
	has_added(p, 0, 64, 2, 5, 3);
	/* And gets it back when it is taken away. */
	CHECK_OK(mirror_migrate(&e.file, id, AT, 64 * PAGE, IN_VRAM, 0, NULL));
	gpu_adds(&e, op.address, 64, 5, 1);
	gpu_adds(&e, AT, 64, 5, 1);
	has_added(p, 0, 64, 2, 5, 5);
	CHECK_OK(unbind_one(&e.file, op.address, op.length));
	engine_end(&e);
}

CASE(beside_a_range, "memory that BIND shows as well: the two ways of the GPU to it see the same, wherever it is sent")
{
	in_both_ways(beside_a_range_by);
}
