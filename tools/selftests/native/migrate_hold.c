// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory in VRAM while something happens to the GPU. Each byte on standard input has one thing done, and `done` printed; at
 * its end all ends.
 *
 *	i  all memory moves in
 *	o  … and out
 *	w  the GPU adds to a word of each page
 *	g  the GPU reads each page: `gpu right N`
 *	c  the CPU reads each page: `cpu right N wrong N refused N`
 *	d  `device N`: pages that are in VRAM
 *	f  a child shares the memory from here on
 *	C  … and reads it: `child right N wrong N refused N`
 *	m  a thread moves memory in and out, whatever the calls answer
 *	M  … and ends: `moves N`
 *	l  the file is left as it is, with its mirror and its queue
 *	n  … and a new one opened, with a mirror and a queue
 */
#include "migrate.h"
#include "sharer.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define N 700u

static struct engine e;
static uint8_t *p;
static uint32_t id;
static uint64_t added;
static sigjmp_buf escape;
static bool is_open;

static void on_bus_error(int number)
{
	siglongjmp(escape, number);
}

/* Filled by accesses where the GPU repeats them: otherwise pages that a child shares come out to be copied. */
static void open_it(void)
{
	struct drm_rkfd_mirror_create args;
	int err;

	engine_open(&e);
	need_migration(&e.file);
	err = mirror_create(&e.file, p, AT, N * PAGE, FAULT, &args);
	if (err == EOPNOTSUPP)
		err = mirror_create(&e.file, p, AT, N * PAGE, POPULATED, &args);
	CHECK_OK(err);
	id = args.id;
	engine_start(&e, QUEUE_AT);
	is_open = true;
}

static void close_it(void)
{
	if (is_open)
		engine_leave(&e);
	is_open = false;
}

/* Reads all, page by page. A page is refused as a whole. */
static void read_all(const char *who)
{
	/* Not on the stack: they change between the two returns. */
	static unsigned int page, bad, right, wrong, refused;

	right = wrong = refused = 0;
	for (page = 0; page < N; page++) {
		volatile uint64_t *words = (volatile uint64_t *)(p + page * PAGE);

		bad = 0;
		if (sigsetjmp(escape, 1)) {
			refused++;
			continue;
		}
		for (unsigned int i = 0; i < PAGE / 8; i++)
			bad += words[i] != page * 1000ul + i + (i == 7 ? added : 0);
		if (bad)
			wrong++;
		else
			right++;
	}
	tap_note("%s right %u wrong %u refused %u", who, right, wrong, refused);
}

static struct sharer child;

static void child_reads(void)
{
	read_all("child");
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
		struct drm_rkfd_mirror_migrate args;

		/* The GPU may be asleep, or gone. */
		if (mirror_migrate(&e.file, id, AT, N * PAGE, IN_VRAM, 0, &args))
			usleep(1000);
		mover.moves += args.moved / PAGE;
		mirror_migrate(&e.file, id, AT, N * PAGE, IN_SYSTEM, 0, &args);
		mover.moves += args.moved / PAGE;
	}
	return NULL;
}

static void gpu_reads(void)
{
	const volatile uint64_t *seen = (const volatile uint64_t *)(e.out.cpu + PAGE);

	for (unsigned int page = 0; page < N; page++) {
		struct packets packets = { .n = 0 };

		sdma_copy(&packets, AT + page * PAGE, OUT_AT + PAGE, PAGE);
		engine_run(&e, &packets);
		for (unsigned int i = 0; i < PAGE / 8; i++)
			CHECK_EQ(seen[i], page * 1000ul + i + (i == 7 ? added : 0));
	}
	tap_note("gpu right %u", N);
}

static void act(char what)
{
	switch (what) {
	case 'i':
		move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0);
		CHECK_EQ(device_pages(p, N), N);
		break;
	case 'o':
		move_all(&e.file, id, AT, N * PAGE, IN_SYSTEM, 0);
		break;
	case 'w':
		gpu_adds(&e, AT, N, 7, 3);
		added += 3;
		break;
	case 'g':
		gpu_reads();
		break;
	case 'c':
		read_all("cpu");
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
	case 'l':
		close_it();
		break;
	case 'n':
		close_it();
		open_it();
		break;
	default:
		return;
	}
	tap_note("done");
}

CASE_LIMIT(hold, "memory in VRAM is held until standard input ends", 600)
{
	struct sigaction action = { .sa_handler = on_bus_error, .sa_flags = SA_NODEFER };
	char what;

	p = need_memory(N * PAGE);
	for (unsigned int page = 0; page < N; page++)
		for (unsigned int i = 0; i < PAGE / 8; i++)
			((volatile uint64_t *)(p + page * PAGE))[i] = page * 1000ul + i;
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
	open_it();
	tap_note("ready");
	while (read(STDIN_FILENO, &what, 1) == 1)
		act(what);
	sharer_end(&child);
	close_it();
}
