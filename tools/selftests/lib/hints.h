/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What tests of hints need (MIRROR_MIGRATE, KEEP): the call, and what the driver lists and counts. Needs root.
 */
#ifndef HINTS_H
#define HINTS_H

#include "migrate.h"

#define KIB64 (64ul << 10)
#define NOWHERE DRM_RKFD_PLACE_POLICY
#define STAY DRM_RKFD_PLACE_STAY

/* A range that the driver lists. */
struct hint {
	uint64_t first, last;
	char place[8];
	/* Of VRAM, else empty. */
	char reach[8];
};

/* Whether the driver takes hints at all, and whether accesses move by them; else the case ends as lacking. */
void need_hints(const struct nfile *file);
void need_moves_by_access(const struct nfile *file);

/* An engine with a mirror of `cpu` at `va` that accesses fill, where these move memory, and its queue. */
uint32_t hinted_begin(struct engine *e, void *cpu, uint64_t va, uint64_t length);

/* KEEP alone. It never tells anything moved. */
int mirror_hint(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length, uint32_t place,
		uint32_t granularity);

/* The number behind `count NAME` of the GPU's figures. */
uint64_t mirror_count(const struct nfile *file, const char *name);

/* The numbers behind a word in the lines of all mirrors that this process has on the GPU, added up. */
uint64_t mirrors_have(const struct nfile *file, const char *word);

/*
 * What is listed of a mirror of this process, at most `most`. Returns how many there are in all, which the line of the mirror
 * and MIRROR_QUERY tell as well.
 */
unsigned int listed_hints(const struct nfile *file, uint32_t id, struct hint *hints, unsigned int most);

/* The list is that, in the form "FIRST+COUNT:PLACE[:REACH] …", in pages from `va` on. */
void hints_are(const struct nfile *file, uint32_t id, uint64_t va, const char *wanted);

#endif
