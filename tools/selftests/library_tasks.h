/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the cases of tasks through the user library share. */
#ifndef LIBRARY_TASKS_H
#define LIBRARY_TASKS_H

#include "library_code.h"

/* Functions, by the numbers that kernels/tasks.hip has for the first three. */
enum { NOTE = 1, MIX, TWICE, WORK, REFUSE, INSTEAD, AGAIN, HOLD, ASK, NO_SUCH = 99 };

/* Looks of kernels for what is going to be there. */
#define TRIES (1u << 30)
#define ITEMS 64u

static inline uint64_t mix(uint64_t a, uint64_t b)
{
	return (a * 31 + b + 1) * 0x9e3779b97f4a7c15;
}

/* What the functions get. */
struct world {
	struct rkfd_workers *w;
	/* Functions that hold their workers, and whether they may go on. */
	unsigned int held, open;
	/* Notes of producer and number: how often each came. */
	unsigned int notes[256][8];
	/* What came with a wrong check, or is out of range. */
	unsigned int wrong;
};

/* One task, of words. */
static inline struct rkfd_task task(uint32_t function, const uint64_t *words, unsigned int count)
{
	return (struct rkfd_task){
		.size = sizeof(struct rkfd_task),
		.function = function,
		.bytes = 8 * count,
		.arguments = words,
	};
}
#define TASK(function, ...) \
	task(function, (uint64_t[]){ __VA_ARGS__ }, sizeof((uint64_t[]){ __VA_ARGS__ }) / 8)

static inline uint64_t submit_task(struct rkfd_workers *w, struct rkfd_task t)
{
	uint64_t future = 0;

	OK(rkfd_workers_submit(w, &t, PATIENCE_MS, &future));
	CHECK_NE(future, 0);
	return future;
}

static inline uint64_t value_of(struct rkfd_workers *w, uint64_t future)
{
	uint64_t value = 0;

	OK(rkfd_workers_wait(w, future, PATIENCE_MS, &value));
	return value;
}

static inline int work(void *data, const struct rkfd_call *call, uint64_t *value)
{
	const uint64_t *words = call->arguments;
	struct world *world = data;

	CHECK_EQ(call->size, sizeof(*call));
	CHECK((uintptr_t)words % 8 == 0);
	switch (call->function) {
	case NOTE:
		if (words[0] >= 256 || words[1] >= 8 || words[2] != mix(words[0], words[1]))
			__atomic_fetch_add(&world->wrong, 1, __ATOMIC_RELAXED);
		else
			__atomic_fetch_add(&world->notes[words[0]][words[1]], 1, __ATOMIC_RELAXED);
		return RKFD_OUTCOME_DONE;
	case MIX:
		*value = mix(words[0], words[1]);
		return RKFD_OUTCOME_DONE;
	case TWICE:
		*value = 2 * call->input;
		return RKFD_OUTCOME_DONE;
	case WORK: {
		/* Of what it is told, so that a test knows that it was told everything. */
		uint64_t sum = call->bytes + 1000 * call->area + 1000000ul * call->source;

		CHECK_EQ(call->input, 0);
		for (unsigned int i = 0; i < call->bytes; i++)
			sum += (uint64_t)((const uint8_t *)words)[i] << 32;
		*value = sum;
		return RKFD_OUTCOME_DONE;
	}
	case REFUSE:
		*value = words[1];
		return words[0];
	case INSTEAD:
	case AGAIN: {
		const uint64_t next[] = { 5, 6 };
		struct rkfd_task t = task(call->function == AGAIN ? AGAIN : MIX, next, 2);

		OK(rkfd_task_then(&t));
		return RKFD_OUTCOME_THEN;
	}
	case HOLD:
		__atomic_fetch_add(&world->held, 1, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&world->open, __ATOMIC_ACQUIRE))
			usleep(100);
		*value = words[0];
		return RKFD_OUTCOME_DONE;
	case ASK: {
		/* Hands a task over, and waits for it: there is another worker. */
		uint64_t future = submit_task(world->w, TASK(MIX, words[0], 1));

		FAILS(rkfd_workers_stop(world->w, RKFD_STOP_AT_ONCE, 0, NULL), EDEADLK, "does not wait");
		*value = value_of(world->w, future);
		return RKFD_OUTCOME_DONE;
	}
	}
	FAIL("function %u", call->function);
}

static inline void add_function(struct rkfd_functions *f, uint32_t number, uint32_t least, uint32_t most, struct world *world)
{
	OK(rkfd_functions_add(f, number, least, most, work, world));
}

static inline struct rkfd_functions *functions(struct world *world)
{
	struct rkfd_functions *f;

	OK(rkfd_functions_new(&f));
	CHECK(f);
	add_function(f, NOTE, 24, 24, world);
	add_function(f, MIX, 16, 16, world);
	add_function(f, TWICE, 0, 64, world);
	add_function(f, WORK, 0, 4064, world);
	add_function(f, REFUSE, 16, 16, world);
	add_function(f, INSTEAD, 0, 0, world);
	add_function(f, AGAIN, 0, 16, world);
	add_function(f, HOLD, 8, 8, world);
	add_function(f, ASK, 8, 8, world);
	return f;
}

static inline struct rkfd_workers_options usual(void)
{
	struct rkfd_workers_options o = { .size = sizeof(o) };

	OK(rkfd_workers_defaults(&o));
	CHECK_EQ(o.size, sizeof(o));
	CHECK_EQ(o.workers, 2);
	return o;
}

/* For one GPU, or the program alone. */
static inline struct rkfd_workers *start(struct world *world, struct rkfd_workers_options o, const struct rkfd_host *host)
{
	struct rkfd_functions *f = functions(world);

	if (host)
		OK(rkfd_functions_add_host(f, host));
	OK(rkfd_workers_new(f, &o, &world->w));
	CHECK(world->w);
	/* They have what was in it. */
	rkfd_functions_free(f);
	return world->w;
}

static inline void end(struct rkfd_workers *w)
{
	uint64_t left = ~0ul;

	OK(rkfd_workers_stop(w, RKFD_STOP_DRAINED, PATIENCE_MS, &left));
	CHECK_EQ(left, 0);
	OK(rkfd_workers_free(w));
}

static inline struct rkfd_area_info area(const struct rkfd_workers *w, uint32_t number)
{
	struct rkfd_area_info info;

	memset(&info, 0xa5, sizeof(info));
	info.size = sizeof(info);
	OK(rkfd_workers_area(w, number, &info));
	CHECK_EQ(info.size, sizeof(info));
	return info;
}

/* The task of a future fails for a reason, and the text says why. */
#define FAILS_WITH(w, future, wanted, text)                                        \
	do {                                                                       \
		uint64_t reason_ = 0;                                              \
		FAILS(rkfd_workers_wait(w, future, PATIENCE_MS, &reason_), EIO, text); \
		CHECK_EQ(reason_, wanted);                                         \
	} while (0)

/* Until as many functions hold their workers. */
static inline void await_held(struct world *world, unsigned int count)
{
	for (unsigned int looks = 0; __atomic_load_n(&world->held, __ATOMIC_ACQUIRE) < count; looks++) {
		CHECK_OP(looks, <, 10 * PATIENCE_MS);
		usleep(100);
	}
}

static inline void let_go(struct world *world)
{
	__atomic_store_n(&world->open, 1, __ATOMIC_RELEASE);
}

/* A queue for kernels, with memory for their arguments and for what they leave. */
struct launcher {
	struct rkfd_queue *q;
	struct rkfd_buffer *kernarg, *out;
	struct rkfd_signals *done;
};

static inline void open_launcher(struct launcher *l)
{
	l->q = queue(RKFD_QUEUE_AQL);
	l->kernarg = memory(RKFD_BUFFER_GTT, PAGE);
	l->out = memory(RKFD_BUFFER_GTT, 4 * PAGE);
	l->done = signals(1);
}

static inline void close_launcher(struct launcher *l)
{
	OK(rkfd_queue_free(l->q));
	rkfd_signals_free(l->done);
	rkfd_buffer_free(l->out);
	rkfd_buffer_free(l->kernarg);
}

/* Starts a kernel of ITEMS work-items, which leaves nothing yet. */
static inline void begin_kernel(struct launcher *l, struct rkfd_kernel *k, const void *const *arguments, uint32_t count)
{
	struct rkfd_dispatch dispatch = {
		.size = sizeof(dispatch),
		.grid = { ITEMS },
		.group = { 64 },
		.arguments = arguments,
		.argument_count = count,
		.kernarg = rkfd_buffer_cpu(l->kernarg),
		.completion = rkfd_signals_address(l->done, 0),
	};

	memset(rkfd_buffer_cpu(l->out), 0xee, 4 * PAGE);
	OK(rkfd_signals_store(l->done, 0, 1));
	OK(rkfd_kernel_launch(l->q, k, &dispatch, NULL));
	OK(rkfd_queue_commit(l->q));
}

static inline void await_kernel(struct launcher *l)
{
	OK(rkfd_signals_wait_below(l->done, 0, 1, PATIENCE_MS, NULL));
}

/* Word of what the kernel has left. */
static inline uint64_t left_at(struct launcher *l, unsigned int index)
{
	return ((const volatile uint64_t *)rkfd_buffer_cpu(l->out))[index];
}

/* Runs a kernel of that name; the arguments are pointers to their values. */
#define RUN(l, name, ...)                                                          \
	do {                                                                       \
		struct rkfd_kernel *k_ = kernel(name);                             \
		const void *arguments_[] = { __VA_ARGS__ };                        \
		begin_kernel(l, k_, arguments_, sizeof(arguments_) / sizeof(arguments_[0])); \
		await_kernel(l);                                                   \
		rkfd_kernel_free(k_);                                              \
	} while (0)

#endif
