/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What a case about one PM4 queue at work begins with: the queue, memory that its packets write, and packets.
 */
#ifndef PM4_QUEUE_H
#define PM4_QUEUE_H

#include "kfd.h"

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE

struct fixture {
	struct gpu gpu;
	struct queue q;
	struct bo out;
	struct packets p;
};

/* A case is a process, so one is enough. */
static struct fixture f;

static inline void begin(uint32_t kind)
{
	need_vm(&f.gpu, 0);
	need_queue(&f.gpu, &f.q, COMPUTE);
	need_bo(&f.gpu, &f.out, kind, 16 * PAGE);
	f.p.n = 0;
}

/* Submits what was written into `f.p`. */
static inline void go(void)
{
	submit(&f.q, &f.p);
	f.p.n = 0;
}

static inline void end(void)
{
	await_drained(&f.q);
	drop_queue(&f.gpu, &f.q);
	drop_bo(&f.gpu, &f.out);
}

#endif
