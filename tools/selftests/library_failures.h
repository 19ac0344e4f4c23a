/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the cases share whose queues stop: how they learn of it. */
#ifndef LIBRARY_FAILURES_H
#define LIBRARY_FAILURES_H

#include "library.h"

static inline struct rkfd_queue_error_info awaited(struct rkfd_queue *q)
{
	struct rkfd_queue_error_info e;

	memset(&e, 0xa5, sizeof(e));
	e.size = sizeof(e);
	OK(rkfd_queue_error_wait(q, PATIENCE_MS, &e));
	CHECK_EQ(e.size, sizeof(e));
	return e;
}

struct told {
	pthread_mutex_t lock;
	struct rkfd_event *event;
	struct rkfd_queue_error_info last;
	pthread_t thread;
	unsigned int times;
};

static inline void tell(void *data, const struct rkfd_queue_error_info *error)
{
	struct told *told = data;

	pthread_mutex_lock(&told->lock);
	told->last = *error;
	told->thread = pthread_self();
	told->times++;
	pthread_mutex_unlock(&told->lock);
	OK(rkfd_event_set(told->event));
}

/* Sleeps until the callback was called; what it was told. */
static inline struct rkfd_queue_error_info last_of(struct told *told, unsigned int times)
{
	struct rkfd_queue_error_info last;

	OK(rkfd_event_wait(told->event, PATIENCE_MS));
	pthread_mutex_lock(&told->lock);
	last = told->last;
	if (times)
		CHECK_EQ(told->times, times);
	CHECK(!pthread_equal(told->thread, pthread_self()));
	pthread_mutex_unlock(&told->lock);
	return last;
}

#endif
