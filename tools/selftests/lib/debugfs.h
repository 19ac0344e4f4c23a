/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the driver shows in the debugfs mount at /sys/kernel/debug. Needs root.
 */
#ifndef DEBUGFS_H
#define DEBUGFS_H

/* A number of the first GPU's file `ih`, which says what the interrupt thread has seen, by name. */
unsigned long ih_counter(const char *name);

/* … of its file `sched`, which says what the scheduler has done. */
unsigned long sched_counter(const char *name);

/* … of its file `userptr`, which says what changes of pages of processes have cost. */
unsigned long userptr_counter(const char *name);

/* GPU address of the descriptor of the only queue that there is, by the first GPU's file `mqds`. */
unsigned long only_mqd(void);

/* How many units the driver has written to one of its rings, by the ring's name in the file `rings`. */
unsigned long ring_written(const char *name);

#endif
