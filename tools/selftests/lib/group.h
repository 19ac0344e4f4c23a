/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Memory control groups, in the cgroup2 mount at /sys/fs/cgroup. Needs root.
 */
#ifndef GROUP_H
#define GROUP_H

#include <stdint.h>

struct group {
	char path[128];
};

/* Makes an empty group, of which there may be several. Skips the case where there is no memory controller. */
void need_group(struct group *group);

/* Removes it; nobody is in it any more. */
void drop_group(struct group *group);

/* The caller belongs to it from here on, and what it allocates is charged to it. */
void group_join(const struct group *group);

void group_set(const struct group *group, const char *file, uint64_t number);

/* The number in a file of the group, behind `key` and a blank where there is one. */
uint64_t group_number(const struct group *group, const char *file, const char *key);

/* Bytes that are charged. */
uint64_t group_charge(const struct group *group);

/* What is charged settles at `most` or below. */
void await_charge(const struct group *group, uint64_t most);

/* Processors give back what they have charged in reserve. Sets memory.max. */
void settle_charge(const struct group *group);

#endif
