/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which functions of the user library the two threads of in_two() call at once. Included behind rkfd.h: called.h, which
 * called.sh makes of that, has a macro in the place of each function. Without RKFD_RECORD nothing is noted.
 */
#ifndef LIBRARY_CALLED_H
#define LIBRARY_CALLED_H

#ifdef RKFD_RECORD
#include "called.h"

/* The thread's bit; 0 for one that is none of the two. */
extern __thread unsigned int called_by;
/* Those of the threads that have called a function since called_begin(). */
extern unsigned int called_now[CALLED_FUNCTIONS];

/* Relaxed, so that the sanitizer takes it for no order between the two threads. */
static inline void called(enum called function)
{
	if (called_by)
		__atomic_fetch_or(&called_now[function], called_by, __ATOMIC_RELAXED);
}

/* Thread `number`, 0 or 1, is the caller. */
static inline void called_as(unsigned int number)
{
	called_by = 1u << number;
}

/* Before the two begin. */
void called_begin(void);
/* When they have ended: keeps which functions both have called. */
void called_end(void);
#else
static inline void called_as(unsigned int number) { (void)number; }
static inline void called_begin(void) { }
static inline void called_end(void) { }
#endif

#endif
