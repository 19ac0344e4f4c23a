/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Files of SMI_EVENTS, and their lines.
 */
#ifndef SMI_H
#define SMI_H

#include "kfd.h"

/* SMI_EVENTS for the GPU with `id`. Returns 0 or an errno. */
int smi_open(const struct gpu *gpu, uint32_t id, int *fd);

/* A file that reports `events`. Skips the case where there is none. */
int need_smi(const struct gpu *gpu, uint64_t events);

/* Reads a line, for which it waits; returns it with its line feed. */
const char *smi_next_line(int fd);

/* Whether something waits to be read. */
bool smi_is_readable(int fd);

/* Nothing waits to be read. */
void smi_check_empty(int fd);

void smi_check_text(const char *found, const char *wanted);

/* Reads the line of an event of this process that has a time; returns what follows the process. */
const char *smi_timed(const char *line, unsigned int event, uint64_t *ns);

/* A line about memory that moves: that it begins to, or that it has. */
struct smi_move {
	unsigned int event;
	uint64_t ns;
	uint64_t start, size; /* Pages. */
	uint32_t from, to; /* GPU ids, or 0. */
	uint32_t prefetch, preferred; /* Of a begin: locations. */
	unsigned int trigger;
	int error; /* Of an end. */
};

/* Reads such a line of this process, for which it waits. What it says is all that there is, to the last byte. */
struct smi_move smi_next_move(int fd);

/*
 * Reads all that waits to be read, of which each begin has its end after it. Returns how many pairs there are, of which the first
 * `most` begins go to `begins` and ends to `ends`.
 */
unsigned int smi_moves(int fd, struct smi_move *begins, struct smi_move *ends, unsigned int most);

/* Nanoseconds since the machine was started, as lines have them. */
uint64_t boot_ns(void);

#endif
