/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What tests of migration need: mirrors whose memory moves to VRAM and back.
 *
 * Functions that make one call return 0 or its errno. Others end the case when they fail.
 */
#ifndef MIGRATE_H
#define MIGRATE_H

#include "mirror.h"
#include "pages.h"

#define NOW DRM_RKFD_MIGRATE_NOW
#define KEEP DRM_RKFD_MIGRATE_KEEP
#define FILL DRM_RKFD_MIGRATE_FILL
#define IN_VRAM DRM_RKFD_PLACE_VRAM
#define IN_SYSTEM DRM_RKFD_PLACE_SYSTEM

/* Runs a case for mirrors that are filled at once, and for those that accesses fill where the GPU repeats these. */
void in_both_ways(void (*run)(uint32_t filling));

/* Whether the driver moves memory of mirrors at all; else the case ends as lacking. */
void need_migration(const struct nfile *file);

/* An engine with a mirror of `cpu` at `va`, and its queue. */
uint32_t moving_begin(struct engine *e, void *cpu, uint64_t va, uint64_t length, uint32_t flags);

/* NOW, with further flags; what the call tells goes to `args`, which may be NULL. */
int mirror_migrate(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length, uint32_t place, uint32_t flags,
		   struct drm_rkfd_mirror_migrate *args);
/*
 * Moves all of it: again for pages that somebody had in hand for a moment, as the kernel's lists of new pages do. Returns
 * how many bytes were moved, after which none are elsewhere.
 */
uint64_t move_all(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length, uint32_t place, uint32_t flags);
/* None of it moves, and all that is there, `bytes`, is told to have stayed. */
void must_stay(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length, uint32_t flags, uint64_t bytes);

/* As pages.h has it, as the GPU sees it. */
void gpu_has_pattern(struct engine *e, uint64_t va, unsigned int first, unsigned int pages, uint32_t seed);
void gpu_has_zeroes(struct engine *e, uint64_t va, unsigned int pages);

/* Has the GPU add to one word of each page, atomically. */
void gpu_adds(struct engine *e, uint64_t va, unsigned int pages, unsigned int word, uint64_t value);

/* Bytes of VRAM in use, when what earlier processes had, which workers may hold for a while, has come back. */
uint64_t settled_vram(const struct nfile *file);
/* Waits until no more than that is in use. */
void await_vram(const struct nfile *file, uint64_t most);

/* Fills what is free of VRAM with noise, and gives it back. */
void dirty_vram(struct engine *e);

#endif
