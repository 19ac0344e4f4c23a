// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory that attributes of /dev/kfd have moved to VRAM, while something happens to the GPU. Each byte on standard input has one
 * thing done, and `done` printed; at its end all ends.
 *
 *	i  all memory moves in
 *	o  … and out
 *	t  … is told to move in, whatever becomes of that: `told ERRNO`
 *	w  the GPU adds to a word of each page
 *	g  the GPU reads each page: `gpu right N`
 *	c  the CPU reads each page: `cpu right N`
 *	d  `device N`: pages that are in VRAM
 *	f  a child shares the memory from here on
 *	C  … and reads it: `child right N`
 *	m  a thread moves memory in and out, whatever the calls answer
 *	M  … and ends: `moves N`
 */
#include "agent.h"
#include "sharer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define N 700u
#define WORD 7

static struct agent a;
static uint8_t *p;
static uint64_t added;

static int prefetch(uint32_t location)
{
	return svm_set(&a.gpu, p, N * PAGE, PREFETCH, location);
}

/* Until all is there: again for pages that somebody had in hand for a moment. */
static void move_all(uint32_t location)
{
	uint64_t end = now_ms() + WAIT_MS;
	unsigned int wanted = location ? N : 0;

	for (;;) {
		CHECK_OK(prefetch(location));
		if (device_pages(p, N) == wanted)
			return;
		if (now_ms() > end)
			FAIL("%u pages of %u are in VRAM", device_pages(p, N), N);
		usleep(1000);
	}
}

static struct sharer child;

/* What was added later is not in its copy. */
static void child_reads(void)
{
	has_added(p, 0, N, 1, WORD, added);
	tap_note("child right %u", N);
}

static struct {
	pthread_t thread;
	atomic_bool stop;
	unsigned int moves;
} mover;

static void *move_on(void *unused)
{
	(void)unused;
	while (!mover.stop) {
		/* The GPU may be asleep, or gone. */
		if (prefetch(a.gpu.id))
			usleep(1000);
		mover.moves += device_pages(p, N);
		prefetch(0);
	}
	return NULL;
}

static void act(char what)
{
	switch (what) {
	case 'i':
		move_all(a.gpu.id);
		break;
	case 'o':
		move_all(0);
		break;
	case 't':
		tap_note("told %d", prefetch(a.gpu.id));
		break;
	case 'w':
		agent_adds(&a, p, N, WORD, 3);
		added += 3;
		break;
	case 'g':
		agent_has_added(&a, p, 0, N, 1, WORD, added);
		tap_note("gpu right %u", N);
		break;
	case 'c':
		has_added(p, 0, N, 1, WORD, added);
		tap_note("cpu right %u", N);
		break;
	case 'd':
		tap_note("device %u", device_pages(p, N));
		break;
	case 'f':
		sharer_begin(&child, child_reads);
		break;
	case 'C':
		sharer_look(&child);
		break;
	case 'm':
		mover.stop = false;
		CHECK_EQ(pthread_create(&mover.thread, NULL, move_on, NULL), 0);
		break;
	case 'M':
		mover.stop = true;
		CHECK_EQ(pthread_join(mover.thread, NULL), 0);
		tap_note("moves %u", mover.moves);
		break;
	default:
		return;
	}
	tap_note("done");
}

CASE_LIMIT(hold, "memory in VRAM is held until standard input ends", 600)
{
	char what;

	p = mmap(NULL, N * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	pattern(p, 0, N, 1);
	agent_open(&a, 0);
	need_moves(&a);
	agent_start(&a);
	/* Accesses move nothing, in any mode. */
	CHECK_OK(svm_set(&a.gpu, p, N * PAGE, IN_PLACE, a.gpu.id));
	tap_note("ready");
	while (read(STDIN_FILENO, &what, 1) == 1)
		act(what);
	sharer_end(&child);
}
