/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the cases through the user library share. Each file has its own copy of the state; a case is one process. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rkfd.h>

#include "library_called.h"
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

/* An address space of the first GPU, by its render node. */
static inline struct rkfd_space *need_space(void)
{
	struct rkfd_space *space;

	for (unsigned int minor = 128; minor < 144; minor++) {
		char path[64];

		snprintf(path, sizeof(path), "/dev/dri/renderD%u", minor);
		if (!rkfd_space_open(path, &space))
			return space;
		CHECK(!space);
	}
	LACKING("no render node with the native interface: %s", rkfd_last_error());
}

static inline struct rkfd_bo *need_bo(struct rkfd_space *space, uint32_t heap, uint64_t bytes)
{
	struct rkfd_bo *bo;

	OK(rkfd_bo_new(space, heap, bytes, &bo));
	CHECK_EQ(rkfd_bo_size(bo), bytes);
	CHECK(rkfd_bo_cpu(bo));
	return bo;
}

/* One page. */
static inline void bind_at(struct rkfd_space *space, uint64_t address, struct rkfd_bo *bo, uint64_t offset)
{
	struct rkfd_bind_list *list;

	OK(rkfd_bind_list_new(space, &list));
	OK(rkfd_bind_list_map(list, address, bo, offset, PAGE, RKFD_RANGE_WRITE));
	OK(rkfd_space_bind(space, list));
	rkfd_bind_list_free(list);
}

static inline uint32_t bo_word(struct rkfd_bo *bo, uint64_t offset)
{
	return __atomic_load_n((uint32_t *)((char *)rkfd_bo_cpu(bo) + offset), __ATOMIC_ACQUIRE);
}

/* The access of the address space that was refused, or will be soon. */
static inline struct rkfd_fault_info await_fault(struct rkfd_space *space)
{
	struct rkfd_fault_info fault = { .size = sizeof(fault) };
	unsigned int looks = 0;
	int rc;

	while ((rc = rkfd_space_fault(space, &fault)) == -EAGAIN) {
		CHECK_OP(looks++, <, PATIENCE_MS);
		usleep(1000);
	}
	OK(rc);
	return fault;
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
	called_as(t->number);
	t->work(t->number);
	return NULL;
}

/* Two threads, 0 and 1, do the same at once, and have done it. */
static inline void in_two(void (*work)(unsigned int number))
{
	struct in_two two[2];
	pthread_barrier_t begin;

	CHECK_EQ(pthread_barrier_init(&begin, NULL, 2), 0);
	called_begin();
	for (unsigned int i = 0; i < 2; i++) {
		two[i] = (struct in_two){ .begin = &begin, .work = work, .number = i };
		CHECK_EQ(pthread_create(&two[i].thread, NULL, in_two_run, &two[i]), 0);
	}
	for (unsigned int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(two[i].thread, NULL), 0);
	called_end();
	CHECK_EQ(pthread_barrier_destroy(&begin), 0);
}

#endif
