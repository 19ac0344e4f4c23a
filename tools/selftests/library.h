/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the cases through the user library share. Each file has its own copy of the state; a case is one process. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rkfd.h>

#include "pm4.h"
#include "tap.h"

#define PAGE 4096ul
/* How long work may take that is going to be done, and how long to wait for what never is. */
#define PATIENCE_MS tap_ms(30000)
#define SHORT_MS 20

#define OK(call)                                                                   \
	do {                                                                       \
		int rc_ = (call);                                                  \
		if (rc_)                                                           \
			FAIL("%s: %s: %s", #call, tap_errno(-rc_), rkfd_last_error()); \
	} while (0)

/* The call fails with this errno, and its text says so much. */
#define FAILS(call, err, text)                                                     \
	do {                                                                       \
		CHECK_ERR(-(call), err);                                           \
		if (!strstr(rkfd_last_error(), text))                              \
			FAIL("%s: \"%s\" lacks \"%s\"", #call, rkfd_last_error(), text); \
	} while (0)

static struct rkfd_gpu *gpu;
static struct rkfd_vm *vm;

static inline void need_vm(void)
{
	uint32_t count = 0;
	int rc = rkfd_gpu_count(&count);

	if (rc == -ENODEV || (!rc && !count))
		LACKING("no GPU: %s", rkfd_last_error());
	OK(rc);
	OK(rkfd_gpu_open(0, &gpu));
	OK(rkfd_vm_open(gpu, &vm));
}

/* The second GPU's address space. */
static inline struct rkfd_vm *need_second(void)
{
	struct rkfd_vm *second;
	struct rkfd_gpu *other;
	uint32_t count;

	need_vm();
	OK(rkfd_gpu_count(&count));
	if (count < 2)
		SKIP("needs two GPUs");
	OK(rkfd_gpu_open(1, &other));
	OK(rkfd_vm_open(other, &second));
	rkfd_gpu_close(other);
	return second;
}

static inline struct rkfd_buffer *memory(uint32_t kind, uint64_t size)
{
	struct rkfd_buffer *b;

	OK(rkfd_buffer_new(vm, kind, size, &b));
	CHECK(b);
	CHECK_OP(rkfd_buffer_size(b), >=, size);
	CHECK_NE(rkfd_buffer_gpu(b), 0);
	return b;
}

static inline struct rkfd_queue *queue(uint32_t kind)
{
	struct rkfd_queue *q;

	OK(rkfd_queue_new(vm, kind, NULL, &q));
	CHECK(q);
	return q;
}

static inline struct rkfd_event *event(void)
{
	struct rkfd_event *e;

	OK(rkfd_event_new(vm, 1, &e));
	CHECK_NE(rkfd_event_id(e), 0);
	CHECK_NE(rkfd_event_slot(e), 0);
	return e;
}

static inline struct rkfd_queue_options ordinary(void)
{
	struct rkfd_queue_options o = { .size = sizeof(o) };

	OK(rkfd_queue_defaults(&o));
	return o;
}

static inline struct rkfd_queue_info info_of(const struct rkfd_queue *q)
{
	struct rkfd_queue_info info = { .size = sizeof(info) };

	OK(rkfd_queue_describe(q, &info));
	CHECK_EQ(info.size, sizeof(info));
	return info;
}

/* The signals, all with value 1. */
static inline struct rkfd_signals *signals(uint32_t count)
{
	struct rkfd_signals *s;

	OK(rkfd_signals_new(vm, count, &s));
	for (uint32_t i = 0; i < count; i++)
		OK(rkfd_signals_store(s, i, 1));
	return s;
}

static inline int64_t signal_value(const struct rkfd_signals *s, uint32_t index)
{
	int64_t value;

	OK(rkfd_signals_load(s, index, &value));
	return value;
}

static inline uint32_t dword(struct rkfd_buffer *b, unsigned int index)
{
	return __atomic_load_n((uint32_t *)rkfd_buffer_cpu(b) + index, __ATOMIC_ACQUIRE);
}

/* Memory of the program's own. */
static inline char *pages(unsigned int n)
{
	char *p = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* A queue writes a dword, and its program sees that it is done. */
static inline void write_by(struct rkfd_queue *q, struct rkfd_event *e, uint64_t address, uint32_t value)
{
	OK(rkfd_pm4_write(q, address, &value, 1));
	OK(rkfd_pm4_raise(q, e));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
}

/* What a thread of in_two() does. */
struct in_two {
	pthread_t thread;
	pthread_barrier_t *begin;
	void (*work)(unsigned int number);
	unsigned int number;
};

static inline void *in_two_run(void *data)
{
	struct in_two *t = data;
	int rc = pthread_barrier_wait(t->begin);

	CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
	t->work(t->number);
	return NULL;
}

/* Two threads, 0 and 1, do the same at once, and have done it. */
static inline void in_two(void (*work)(unsigned int number))
{
	struct in_two two[2];
	pthread_barrier_t begin;

	CHECK_EQ(pthread_barrier_init(&begin, NULL, 2), 0);
	for (unsigned int i = 0; i < 2; i++) {
		two[i] = (struct in_two){ .begin = &begin, .work = work, .number = i };
		CHECK_EQ(pthread_create(&two[i].thread, NULL, in_two_run, &two[i]), 0);
	}
	for (unsigned int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(two[i].thread, NULL), 0);
	CHECK_EQ(pthread_barrier_destroy(&begin), 0);
}

#endif
