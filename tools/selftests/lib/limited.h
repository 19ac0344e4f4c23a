/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Control groups with a limit of VRAM (dmem), in the cgroup2 mount at /sys/fs/cgroup. Needs root.
 */
#ifndef LIMITED_H
#define LIMITED_H

#include "group.h"

struct limited {
	struct group group;
	/* The name that the dmem controller has for the GPU's VRAM. */
	char region[128];
};

/* A group without a limit yet, which is not joined, for the VRAM of the GPU that a descriptor of its render node is of. */
void need_limited(struct limited *l, int render);

/* What it may have from here on; UINT64_MAX: all. */
void set_limit(const struct limited *l, uint64_t bytes);

/* Bytes of VRAM that are charged. */
uint64_t vram_charged(const struct limited *l);

/* What is charged settles at that. */
void await_vram_charged(const struct limited *l, uint64_t bytes);

/* The caller leaves it, and it goes. */
void leave_limited(struct limited *l);

#endif
