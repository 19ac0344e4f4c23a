/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What tests of the native interface (rkfd_drm.h) need: open files, buffers, ranges, queues.
 *
 * Functions that make one call return 0 or its errno. Functions named need_… end the case when they fail.
 */
#ifndef NATIVE_H
#define NATIVE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rkfd_drm.h"

#include "kfd.h"
#include "pm4.h"
#include "tap.h"

#define VRAM DRM_RKFD_HEAP_VRAM
#define SYSTEM DRM_RKFD_HEAP_SYSTEM
#define RW DRM_RKFD_BIND_WRITE
#define RWX (DRM_RKFD_BIND_WRITE | DRM_RKFD_BIND_EXECUTE)

/* An open render node. */
struct nfile {
	int fd;
	struct drm_rkfd_device device;
};

/* A buffer with its CPU mapping. */
struct nbo {
	uint32_t handle;
	uint64_t size;
	uint64_t mmap_offset;
	uint8_t *cpu;
};

struct nqueue {
	struct drm_rkfd_queue_create args;
	struct nbo memory; /* Ring, pointers, end-of-pipe buffer, save area. */
	uint64_t va;
	void *doorbells;
	volatile uint64_t *doorbell, *rptr, *wptr;
	uint32_t *ring;
	uint64_t written;
};

/* The call itself: 0 or errno, never repeated. */
int native(int fd, unsigned long request, void *args);

/* Opens the first render node that has the native interface, once more with each call. */
void need_file(struct nfile *file);
/* Whether there is one: not while a GPU is being bound anew. */
bool has_node(void);
void close_file(struct nfile *file);

int nbo_create(const struct nfile *file, struct nbo *bo, uint32_t heap, uint64_t size, uint32_t flags);
/* … with a CPU mapping. */
void need_nbo(const struct nfile *file, struct nbo *bo, uint32_t heap, uint64_t size);
int nbo_close(const struct nfile *file, uint32_t handle);
void drop_nbo(const struct nfile *file, struct nbo *bo);
int nbo_info(const struct nfile *file, uint32_t handle, struct drm_rkfd_bo_info *info);
uint64_t ranges_of(const struct nfile *file, const struct nbo *bo);

/* One list; `failed` may be NULL. */
int bind_list(const struct nfile *file, const struct drm_rkfd_bind_op *ops, uint32_t count, uint32_t *failed);
struct drm_rkfd_bind_op map_op(uint64_t va, uint64_t length, uint32_t handle, uint64_t offset);
struct drm_rkfd_bind_op unmap_op(uint64_t va, uint64_t length);
int bind_one(const struct nfile *file, uint64_t va, uint64_t length, uint32_t handle, uint64_t offset);
int unbind_one(const struct nfile *file, uint64_t va, uint64_t length);

/* Makes the memory of a queue and binds it at `va` (16 MiB are enough); fills in the arguments. */
void nqueue_prepare(const struct nfile *file, struct nqueue *q, uint32_t type, uint64_t va);
int nqueue_create(const struct nfile *file, struct nqueue *q);
void need_nqueue(const struct nfile *file, struct nqueue *q, uint32_t type, uint64_t va);
int nqueue_destroy(const struct nfile *file, uint32_t id);
void drop_nqueue(const struct nfile *file, struct nqueue *q);
void nsubmit(struct nqueue *q, const struct packets *p);
/* A barrier packet whose completion signal, of 64 bytes, is at GPU address `completion`. */
void nsubmit_barrier(struct nqueue *q, uint64_t completion);

/* Bytes of a heap that are in use. */
uint64_t heap_used(const struct nfile *file, uint32_t heap);
/* … that buffers can have in all. */
uint64_t heap_total(const struct nfile *file, uint32_t heap);

#endif
