/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A child of fork, which shares the caller's memory as it was then, and looks at it when it is asked.
 */
#ifndef SHARER_H
#define SHARER_H

#include <sys/types.h>

struct sharer {
	/* 0: there is none. */
	pid_t pid;
	int to, from;
};

/* Begins it; `look` is what it does in each turn. */
void sharer_begin(struct sharer *s, void (*look)(void));

/* Returns when it has looked. */
void sharer_look(const struct sharer *s);

/* Has it end, if there is one, and well. */
void sharer_end(struct sharer *s);

#endif
