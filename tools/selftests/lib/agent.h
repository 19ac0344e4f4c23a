/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A GPU that reads and writes a program's memory at the program's own addresses, by an SDMA queue of /dev/kfd: it has no save area,
 * so nearly all VRAM is free for what moves there.
 *
 * Functions end the case when they fail.
 */
#ifndef AGENT_H
#define AGENT_H

#include "attributes.h"
#include "pages.h"

struct agent {
	struct gpu gpu;
	struct queue q;
	struct bo out; /* What it tells; the fence is at the end of the first page. */
	uint32_t fence;
};

/* GPU number `index`, bound, with SVM; without its queue. */
void agent_open(struct agent *a, int index);
/* … over the /dev/kfd of another, for the same process. */
void agent_open_with(struct agent *a, int index, const struct agent *other);
/* Its queue. XNACK can be set before only. */
void agent_start(struct agent *a);
/* Has done all; without its queue. */
void agent_stop(struct agent *a);

/* Submits, and waits until all of it is done. */
void agent_run(struct agent *a, struct packets *p);
uint32_t agent_reads(struct agent *a, const volatile void *at);
void agent_writes(struct agent *a, volatile void *at, uint32_t value);
/* Adds to one word of 64 bits of each page, atomically. */
void agent_adds(struct agent *a, uint8_t *at, unsigned int pages, unsigned int word, uint64_t value);
/* As pages.h has it, as the GPU sees it. */
void agent_has_added(struct agent *a, const uint8_t *at, unsigned int first, unsigned int pages, uint32_t seed,
		     unsigned int word, uint64_t value);
void agent_has_pattern(struct agent *a, const uint8_t *at, unsigned int first, unsigned int pages, uint32_t seed);
void agent_has_zeroes(struct agent *a, const uint8_t *at, unsigned int pages);

/* The first word of 32 bits of each page is `seed` and its number, as mark_pages() puts it there, as the GPU sees it. */
void agent_sees(struct agent *a, const uint8_t *at, unsigned int pages, uint32_t seed);
void mark_pages(uint8_t *at, unsigned int pages, uint32_t seed);
/* … as the CPU sees it. */
void has_marks(const uint8_t *at, unsigned int pages, uint32_t seed);

/* An access that is refused: a memory exception with that address. The queue is lost with it. */
void agent_is_refused(struct agent *a, volatile void *at, bool write);

/* Ends the case as lacking where memory does not move to the GPU's VRAM at all. */
void need_moves(const struct agent *a);

/* Of the GPU's file `mirrors` in debugfs, which rkfd has: the number behind `count NAME`. Needs root. */
uint64_t agent_count(const struct agent *a, const char *name);
/* … the number behind a word in the line of this process. */
uint64_t agent_has(const struct agent *a, const char *word);

#endif
