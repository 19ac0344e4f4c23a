/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What tests of mirrors need: a file with a queue that reads and writes what is mirrored, and memory to mirror.
 *
 * Functions that make one call return 0 or its errno. Others end the case when they fail.
 */
#ifndef MIRROR_H
#define MIRROR_H

#include "native.h"

#define HUGE (2ul << 20)
/* Where the cases mirror; queues lie elsewhere. */
#define AT 0x100000000ul
#define QUEUE_AT 0x10000000ul
#define OUT_AT 0x20000000ul
#define RO DRM_RKFD_MIRROR_READ_ONLY
#define POPULATED DRM_RKFD_MIRROR_POPULATED
#define FAULT DRM_RKFD_MIRROR_FAULT

/* A file with an SDMA queue, a buffer for what that reads, and an event for accesses that are refused. */
struct engine {
	struct nfile file;
	struct nqueue q;
	struct nbo out;
	uint32_t fence;
	int fault;
};

/* Without the queue, which comes with engine_start(). */
void engine_open(struct engine *e);
/* … of a file that is open. */
void engine_prepare(struct engine *e);
void engine_start(struct engine *e, uint64_t queue_at);
void engine_begin(struct engine *e);
/* No access was refused meanwhile. */
void engine_end(struct engine *e);
/* Closes the file with its queue, whatever that does. */
void engine_leave(struct engine *e);
/* Waits until the queue has done it. */
void engine_run(struct engine *e, struct packets *p);

volatile uint32_t *out32(const struct engine *e, uint64_t offset);
uint32_t gpu_read(struct engine *e, uint64_t va);
void gpu_write(struct engine *e, uint64_t va, uint32_t value);
/* Every page at once: its number is where fill() has put it. */
void gpu_sees(struct engine *e, uint64_t va, unsigned int pages, uint32_t seed);

/* How many accesses were refused since the last call; the first of them. */
uint32_t new_faults(const struct engine *e, struct drm_rkfd_fault *first);
/* Waits until an access is refused; returns the record of the first. */
struct drm_rkfd_fault await_fault(const struct engine *e);
/* The queue is lost with this. */
void must_fault(struct engine *e, uint64_t va, bool write, uint32_t access);

/* POPULATED, unless the flags say when it is filled. */
int mirror_create(const struct nfile *file, void *cpu, uint64_t va, uint64_t length, uint32_t flags,
		  struct drm_rkfd_mirror_create *args);
uint32_t need_mirror(const struct nfile *file, void *cpu, uint64_t va, uint64_t length, uint32_t flags);
int mirror_destroy(const struct nfile *file, uint32_t id);
int mirror_populate(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length);
struct drm_rkfd_mirror_query mirror_query(const struct nfile *file, uint32_t id);

uint8_t *need_memory_at(void *at, uint64_t size, int flags);
uint8_t *need_memory(uint64_t size);
/* On a multiple of 2 MiB, which other things may follow. */
uint8_t *need_aligned(uint64_t size);
volatile uint32_t *word(uint8_t *p, uint64_t offset);
/* Puts `seed` and its number into each page. */
void fill(uint8_t *p, unsigned int pages, uint32_t seed);

#endif
