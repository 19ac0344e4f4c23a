// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory that was offered to the kernel (MADV_FREE) moves to VRAM, where the GPU writes it, and back: reclaim keeps what was
 * written, and takes what lies beside it and was not.
 *
 * Needs root, and the memory controller of a cgroup2 mount at /sys/fs/cgroup.
 */
#include "group.h"
#include "migrate.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define N 32u

static struct group group;

/* Has the group's memory reclaimed as far as it goes. */
static void reclaim(void)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/memory.reclaim", group.path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		FAIL("%s: %s", path, strerror(errno));
	/* Less than that is there to be reclaimed: EAGAIN. */
	if (write(fd, "64M", 3) < 0)
		CHECK_ERR(errno, EAGAIN);
	close(fd);
}

/*
 * The first half is what the GPU writes in VRAM; when the second one is gone, reclaim has looked at the first, too. By a mirror that
 * the GPU may write through pages of system memory count as written, so there is such a one only while they are in VRAM.
 */
static void kept_by(uint32_t filling, void (*bring_out)(struct engine *e, uint32_t id, uint8_t *p))
{
	uint8_t *p = need_memory(2 * N * PAGE), *witness = p + N * PAGE;
	struct engine e;
	uint32_t id;

	madvise(p, 2 * N * PAGE, MADV_NOHUGEPAGE);
	id = moving_begin(&e, p, AT, N * PAGE, filling | RO);
	for (uint32_t round = 1; round <= 3; round++) {
		uint64_t end = now_ms() + WAIT_MS;
		uint32_t writes;

		pattern(p, 0, 2 * N, round);
		gpu_has_pattern(&e, AT, 0, N, round);
		CHECK_EQ(madvise(p, 2 * N * PAGE, MADV_FREE), 0);
		CHECK_EQ(present_pages(p, 2 * N), 2 * N);
		CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
		CHECK_EQ(device_pages(p, N), N);
		writes = need_mirror(&e.file, p, AT + HUGE, N * PAGE, filling);
		gpu_adds(&e, AT + HUGE, N, 1, round);
		CHECK_EQ(device_pages(p, N), N);
		CHECK_OK(mirror_destroy(&e.file, writes));
		bring_out(&e, id, p);
		CHECK_EQ(device_pages(p, N), 0);
		do {
			if (now_ms() > end)
				FAIL("%u pages that nobody uses are not reclaimed", present_pages(witness, N));
			reclaim();
		} while (present_pages(witness, N));
		/* The old content with what the GPU added. */
		CHECK_EQ(gpu_read(&e, AT + 8), (uint32_t)((volatile uint64_t *)p)[1]);
		has_added(p, 0, N, round, 1, round);
	}
	engine_end(&e);
	CHECK_EQ(munmap(p, 2 * N * PAGE), 0);
}

static void by_call(struct engine *e, uint32_t id, uint8_t *p)
{
	(void)p;
	CHECK_EQ(move_all(&e->file, id, AT, N * PAGE, IN_SYSTEM, 0), N * PAGE);
}

static void by_reading(struct engine *e, uint32_t id, uint8_t *p)
{
	(void)e;
	(void)id;
	for (unsigned int i = 0; i < N; i++)
		(void)*word(p, i * PAGE);
}

static void kept_after_call(uint32_t filling)
{
	kept_by(filling, by_call);
}

static void kept_after_fault(uint32_t filling)
{
	kept_by(filling, by_reading);
}

/* Pages on their way to the lists of reclaim wait on the CPU that sent them, which must be the one that reclaims. */
static void begin(void)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	CHECK_EQ(sched_setaffinity(0, sizeof(here), &here), 0);
	need_group(&group);
	group_join(&group);
}

static void end(void)
{
	FILE *f = fopen("/sys/fs/cgroup/cgroup.procs", "we");

	CHECK(f);
	CHECK(fputs("0", f) >= 0 && !fclose(f));
	drop_group(&group);
}

CASE_LIMIT(by_the_call, "MADV_FREE, in, the GPU writes, out by the call: reclaim keeps it", 120)
{
	begin();
	in_both_ways(kept_after_call);
	end();
}

CASE_LIMIT(by_the_cpu, "MADV_FREE, in, the GPU writes, out by a read of the CPU: reclaim keeps it", 120)
{
	begin();
	in_both_ways(kept_after_fault);
	end();
}

static void unwritten_by(uint32_t filling)
{
	uint8_t *p = need_memory(N * PAGE);
	struct engine e;
	uint32_t id;

	madvise(p, N * PAGE, MADV_NOHUGEPAGE);
	id = moving_begin(&e, p, AT, N * PAGE, filling | RO);
	pattern(p, 0, N, 4);
	CHECK_EQ(madvise(p, N * PAGE, MADV_FREE), 0);
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
	gpu_has_pattern(&e, AT, 0, N, 4);
	reclaim();
	/* Reclaim does not look there. */
	CHECK_EQ(device_pages(p, N), N);
	gpu_has_pattern(&e, AT, 0, N, 4);
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_SYSTEM, 0), N * PAGE);
	reclaim();
	/* Nobody has written since it was offered: each page is what it was, or gone as a whole. */
	for (unsigned int i = 0; i < N; i++) {
		if (*word(p, i * PAGE))
			has_pattern(p + i * PAGE, i, 1, 4);
		else
			has_zeroes(p + i * PAGE, 1);
	}
	engine_end(&e);
}

CASE(unwritten, "MADV_FREE, in and out without a write: each page is what it was, or zeroes, and neither in part")
{
	begin();
	in_both_ways(unwritten_by);
	end();
}
