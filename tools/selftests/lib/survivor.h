/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Processes that end in the middle of something, and the one beside them who must not notice.
 */
#ifndef SURVIVOR_H
#define SURVIVOR_H

#include "kfd.h"

/* A process with a queue on the first GPU, which works before, meanwhile and after. */
struct survivor {
	struct gpu gpu;
	struct queue q;
	struct bo bo;
	uint32_t count;
	uint64_t memory;
};

void survivor_begin(struct survivor *s);
/* One more packet has its effect. */
void survivor_works(struct survivor *s);
/* … and the memory that the others had comes back. */
void survivor_end(struct survivor *s);

/*
 * Beside a survivor, kills children one after the other: each a step of `us` microseconds later after it said that it
 * is ready than the one before.
 */
void killed_beside_survivor(void (*act)(int ready), unsigned int times, unsigned int us);

/* Makes a PM4 queue stand in a packet for ever: the memory, at `va` for the GPU, never becomes what it waits for. */
void stand_still(struct queue *q, uint64_t va, volatile uint32_t *cpu);

#endif
