/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Waiting for memory that the GPU writes without an interrupt. Who has waited for longer than a packet takes sleeps
 * between two looks, so that the processors are left to what is waited for.
 */
#ifndef BACKOFF_H
#define BACKOFF_H

#include <sched.h>
#include <unistd.h>

/* How often somebody has looked in vain; starts at 0. */
struct backoff {
	unsigned int looks;
};

static inline void back_off(struct backoff *b)
{
	if (b->looks < 16)
		sched_yield();
	else
		usleep(b->looks < 64 ? 100 : 1000);
	b->looks += b->looks < 64;
}

#endif
