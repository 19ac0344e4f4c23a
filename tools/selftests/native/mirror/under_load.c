// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Mirrors of memory that changes while the GPU is at work on it.
 */
#include "mirror.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

struct changer {
	uint8_t *p;
	_Atomic bool stop;
	unsigned int rounds;
};

/* What keeps the content, whatever the GPU does meanwhile. */
static void *change(void *arg)
{
	struct changer *c = arg;

	while (!c->stop) {
		int status;
		pid_t child;

		mprotect(c->p, 700 * PAGE, PROT_READ);
		mprotect(c->p, 700 * PAGE, PROT_READ | PROT_WRITE);
		madvise(c->p, 1024 * PAGE, MADV_COLD);
		madvise(c->p, 1024 * PAGE, MADV_COLLAPSE);
		child = fork();
		if (child == 0)
			_exit(0);
		if (child > 0)
			waitpid(child, &status, 0);
		c->rounds++;
		usleep(20000);
	}
	return NULL;
}

CASE_LIMIT(under_load, "the GPU reads and writes while the memory moves, splits and is shared: no byte is lost, no access refused", 120)
{
	struct changer c = { .p = need_aligned(1024 * PAGE) };
	struct engine e;
	pthread_t thread;
	uint32_t id;

	engine_begin(&e);
	fill(c.p, 1024, 0x4000);
	id = need_mirror(&e.file, c.p, AT, 1024 * PAGE, 0);
	CHECK_EQ(pthread_create(&thread, NULL, change, &c), 0);
	for (uint32_t round = 1; round <= 60 || c.rounds < 20; round++) {
		struct packets p = { .n = 0 };
		uint32_t at = round * 37 % 1000;

		/* Beyond what becomes read-only for a moment. */
		sdma_write(&p, AT + (700 + round % 300) * PAGE + 8, &round, 1);
		for (unsigned int i = 0; i < 24; i++)
			sdma_copy(&p, AT + (at + i) * PAGE, OUT_AT + 4 * i, 4);
		engine_run(&e, &p);
		for (unsigned int i = 0; i < 24; i++)
			CHECK_EQ(*out32(&e, 4 * i), 0x4000 + at + i);
		CHECK_EQ(*word(c.p, (700 + round % 300) * PAGE + 8), round);
	}
	c.stop = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(mirror_query(&e.file, id).changes > 0);
	gpu_sees(&e, AT, 1024, 0x4000);
	engine_end(&e);
}
