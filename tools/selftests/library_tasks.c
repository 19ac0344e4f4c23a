// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: tasks of the program's own, which need no GPU, and two threads that use everything of tasks at
 * once. Tasks of kernels are in a file of their own.
 */
#include "library_tasks.h"

#include <fcntl.h>

CASE(tasks_outcomes, "tasks end with a value, by a function that follows, by another in their place, or for a reason")
{
	static struct world world;
	static const uint8_t odd[] = { 1, 2, 3, 250, 7 };
	struct rkfd_workers *w = start(&world, usual(), NULL);
	struct rkfd_task t = TASK(MIX, 3, 4), other = task(INSTEAD, NULL, 0), told = task(WORK, NULL, 0);
	const uint64_t own = RKFD_TASK_REASON_OWN;
	struct rkfd_area_info info;
	uint64_t runs = 0;

	CHECK_EQ(value_of(w, submit_task(w, t)), mix(3, 4));
	t.flags = RKFD_TASK_URGENT;
	CHECK_EQ(value_of(w, submit_task(w, t)), mix(3, 4));
	t.then = TWICE;
	CHECK_EQ(value_of(w, submit_task(w, t)), 2 * mix(3, 4));
	CHECK_EQ(value_of(w, submit_task(w, other)), mix(5, 6));
	other.then = TWICE;
	CHECK_EQ(value_of(w, submit_task(w, other)), 2 * mix(5, 6));
	/* Any number of bytes; where the task comes from, and who says so. */
	told.arguments = odd;
	told.bytes = sizeof(odd);
	told.source = 9;
	CHECK_EQ(value_of(w, submit_task(w, told)), (263ul << 32) + 9000000 + 5);
	told.bytes = 0;
	CHECK_EQ(value_of(w, submit_task(w, told)), 9000000);
	/* A function that hands a task over, and waits. */
	CHECK_EQ(value_of(w, submit_task(w, TASK(ASK, 77))), mix(77, 1));
	FAILS_WITH(w, submit_task(w, TASK(NO_SUCH, 1)), RKFD_TASK_REASON_FUNCTION, "no function has its number (1)");
	FAILS_WITH(w, submit_task(w, TASK(MIX, 1)), RKFD_TASK_REASON_BYTES, "so many bytes (2)");
	FAILS_WITH(w, submit_task(w, TASK(MIX, 1, 2, 3)), RKFD_TASK_REASON_BYTES, "so many bytes (2)");
	FAILS_WITH(w, submit_task(w, TASK(REFUSE, RKFD_OUTCOME_FAILED, 7)), own + 7, "of the function (263)");
	/* Any other number says the same; without a task, nothing takes the place. */
	FAILS_WITH(w, submit_task(w, TASK(REFUSE, 1234, 8)), own + 8, "of the function (264)");
	FAILS_WITH(w, submit_task(w, TASK(REFUSE, RKFD_OUTCOME_THEN, 0)), RKFD_TASK_REASON_THEN, "does not exist");
	FAILS_WITH(w, submit_task(w, task(AGAIN, NULL, 0)), RKFD_TASK_REASON_THEN, "too many followed");
	t = TASK(MIX, 1, 2);
	t.then = NO_SUCH;
	FAILS_WITH(w, submit_task(w, t), RKFD_TASK_REASON_THEN, "does not exist");
	/* What follows a task that fails does not run. */
	t = TASK(REFUSE, RKFD_OUTCOME_FAILED, 9);
	t.then = TWICE;
	FAILS_WITH(w, submit_task(w, t), own + 9, "(265)");
	info = area(w, 0);
	CHECK_EQ(info.gpu_id, 0);
	CHECK_EQ(info.address, 0);
	CHECK_EQ(info.taken_high, 2);
	CHECK_EQ(info.taken_low, 16);
	CHECK_EQ(info.done, 9);
	CHECK_EQ(info.failed, 9);
	CHECK_EQ(info.rejected, 5);
	CHECK_EQ(info.futures_in_use + info.corrupt + info.late + info.refused + info.ready, 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct rkfd_worker_info worker = { .size = sizeof(worker) };

		OK(rkfd_workers_worker(w, i, &worker));
		CHECK_EQ(worker.deaths + worker.lost + worker.recovered, 0);
		runs += worker.runs;
	}
	/* Those with a value: 1, 1, 2, 2, 3, 1, 1, 2; then 3 of REFUSE, 65 of AGAIN, one in front of what does not exist, and REFUSE. */
	CHECK_EQ(runs, 13 + 3 + 65 + 1 + 1);
	end(w);
}

CASE(tasks_full, "a ring that is full says so, or is waited for, and loses nothing; functions that hold all workers hold no others up")
{
	static struct world world;
	struct rkfd_workers_options o = usual();
	struct rkfd_workers *w;
	uint64_t futures[10], none = 7;
	struct rkfd_task t = TASK(HOLD, 100);
	unsigned int n = 0;

	o.own_lanes = 1;
	o.own_depth = 4;
	o.own_segment = 64;
	o.own_futures = 16;
	o.flags = RKFD_WORKERS_ANYWHERE;
	w = start(&world, o, NULL);
	for (; n < 2; n++)
		futures[n] = submit_task(w, TASK(HOLD, n));
	await_held(&world, 2);
	for (; n < 6; n++)
		futures[n] = submit_task(w, TASK(HOLD, n));
	FAILS(rkfd_workers_submit(w, &t, 0, &none), EAGAIN, "The ring is full");
	CHECK_EQ(none, 0);
	none = 7;
	FAILS(rkfd_workers_submit(w, &t, SHORT_MS, &none), ETIMEDOUT, "for room in a ring");
	CHECK_EQ(none, 0);
	FAILS(rkfd_workers_submit(w, &t, 0, NULL), EAGAIN, "The ring is full");
	/* The other priority has a ring of its own. */
	for (; n < 10; n++) {
		struct rkfd_task urgent = TASK(HOLD, n);

		urgent.flags = RKFD_TASK_URGENT;
		futures[n] = submit_task(w, urgent);
	}
	CHECK_EQ(area(w, 0).ready, 8);
	CHECK_EQ(area(w, 0).futures_in_use, 10);
	FAILS(rkfd_workers_wait(w, futures[0], 0, NULL), ETIMEDOUT, "Waited 0 ms for the end");
	FAILS(rkfd_workers_wait(w, futures[9], SHORT_MS, NULL), ETIMEDOUT, "for the end of a task");
	let_go(&world);
	/* There is room when some have run. */
	none = submit_task(w, t);
	for (n = 0; n < 10; n++)
		CHECK_EQ(value_of(w, futures[n]), n);
	CHECK_EQ(value_of(w, none), 100);
	CHECK_EQ(world.held, 11);
	CHECK_EQ(area(w, 0).futures_in_use, 0);
	end(w);
}

CASE(tasks_futures, "all futures in use are told; one that is dropped is had again, and its task runs")
{
	static struct world world;
	struct rkfd_workers_options o = usual();
	struct rkfd_workers *w;
	uint64_t futures[2], none = 7;
	struct rkfd_task t = TASK(NOTE, 1, 1, mix(1, 1));

	o.own_futures = 2;
	w = start(&world, o, NULL);
	for (unsigned int n = 0; n < 2; n++)
		futures[n] = submit_task(w, TASK(HOLD, n));
	await_held(&world, 2);
	FAILS(rkfd_workers_submit(w, &t, 0, &none), EAGAIN, "All futures are in use");
	FAILS(rkfd_workers_submit(w, &t, SHORT_MS, &none), ETIMEDOUT, "for a future");
	CHECK_EQ(none, 0);
	/* Without one there is room enough. */
	OK(rkfd_workers_submit(w, &t, 0, NULL));
	OK(rkfd_workers_drop(w, futures[0]));
	FAILS(rkfd_workers_wait(w, futures[0], 0, NULL), EINVAL, "Not a future");
	FAILS(rkfd_workers_drop(w, futures[0]), EINVAL, "Not a future");
	/* It is the worker's until the task has ended. */
	FAILS(rkfd_workers_submit(w, &t, 0, &none), EAGAIN, "All futures are in use");
	let_go(&world);
	none = submit_task(w, t);
	CHECK_EQ(value_of(w, none), 0);
	CHECK_EQ(value_of(w, futures[1]), 1);
	end(w);
	CHECK_EQ(world.notes[1][1], 2);
	CHECK_EQ(world.wrong, 0);
}

static uint64_t awaited;

static void *await_left(void *data)
{
	uint64_t value = 7;

	FAILS(rkfd_workers_wait(data, awaited, PATIENCE_MS, &value), ECANCELED, "ended without the task");
	CHECK_EQ(value, 7);
	return NULL;
}

CASE(tasks_stopped, "workers that are stopped at once leave tasks and say how many; who waits for one learns of it")
{
	static struct world world;
	struct rkfd_workers_options o = usual();
	struct rkfd_task t = TASK(MIX, 1, 2);
	uint64_t futures[5], left = 0;
	struct rkfd_workers *w;
	pthread_t waiter;

	o.workers = 1;
	w = start(&world, o, NULL);
	futures[0] = submit_task(w, TASK(HOLD, 41));
	await_held(&world, 1);
	for (unsigned int n = 1; n < 5; n++)
		futures[n] = submit_task(w, TASK(NOTE, n, 0, mix(n, 0)));
	FAILS(rkfd_workers_free(w), EBUSY, "not stopped");
	FAILS(rkfd_workers_stop(w, RKFD_STOP_DRAINED, SHORT_MS, &left), ETIMEDOUT, "for the workers to end");
	CHECK_EQ(left, 5);
	FAILS(rkfd_workers_free(w), EBUSY, "not stopped");
	FAILS(rkfd_workers_submit(w, &t, PATIENCE_MS, NULL), ESHUTDOWN, "no new tasks");
	FAILS(rkfd_workers_stop(w, RKFD_STOP_AT_ONCE, 0, NULL), ETIMEDOUT, "for the workers to end");
	awaited = futures[4];
	CHECK_EQ(pthread_create(&waiter, NULL, await_left, w), 0);
	usleep(1000 * SHORT_MS);
	let_go(&world);
	OK(rkfd_workers_stop(w, RKFD_STOP_AT_ONCE, PATIENCE_MS, &left));
	CHECK_EQ(left, 4);
	CHECK_EQ(pthread_join(waiter, NULL), 0);
	CHECK_EQ(value_of(w, futures[0]), 41);
	for (unsigned int n = 1; n < 4; n++)
		FAILS(rkfd_workers_wait(w, futures[n], PATIENCE_MS, NULL), ECANCELED, "ended without the task");
	CHECK_EQ(area(w, 0).ready, 4);
	CHECK_EQ(area(w, 0).done, 1);
	CHECK_EQ(area(w, 0).futures_in_use, 0);
	/* As often as one likes. */
	OK(rkfd_workers_stop(w, RKFD_STOP_DRAINED, 0, &left));
	CHECK_EQ(left, 4);
	OK(rkfd_workers_free(w));
	for (unsigned int n = 1; n < 5; n++)
		CHECK_EQ(world.notes[n][0], 0);
}

CASE(tasks_drained, "workers that are to drain run all that is there before they end")
{
	static struct world world;
	struct rkfd_workers *w = start(&world, usual(), NULL);

	for (unsigned int n = 0; n < 256; n++)
		for (unsigned int i = 0; i < 2; i++) {
			struct rkfd_task t = TASK(NOTE, n, i, mix(n, i));

			t.flags = i ? RKFD_TASK_URGENT : 0;
			OK(rkfd_workers_submit(w, &t, PATIENCE_MS, NULL));
		}
	end(w);
	for (unsigned int n = 0; n < 256; n++) {
		CHECK_EQ(world.notes[n][0], 1);
		CHECK_EQ(world.notes[n][1], 1);
	}
	CHECK_EQ(world.wrong, 0);
}

/* What two threads use at once. */
static struct {
	struct rkfd_workers *w;
	struct rkfd_functions *f;
	struct rkfd_host *host;
	struct rkfd_buffer *b;
	struct world world;
	pthread_barrier_t meet;
} both;

enum { MEET = 50, ROUNDS = 8 };

/* On both workers at once. */
static int meet(void *data, const struct rkfd_call *call, uint64_t *value)
{
	const uint64_t words[] = { 7, 8 };
	struct rkfd_task t = task(MIX, words, 2);
	int rc = pthread_barrier_wait(&both.meet);

	CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
	called_as(call->worker);
	OK(rkfd_task_then(&t));
	return RKFD_OUTCOME_THEN;
}

static void quiet(void *data, const char *text, uint64_t bytes)
{
	FAIL("no kernel prints: %s", text);
}

static void use_tasks(unsigned int number)
{
	for (unsigned int round = 0; round < ROUNDS; round++) {
		struct rkfd_worker_info worker = { .size = sizeof(worker) };
		struct rkfd_task t = TASK(MIX, number, round);
		struct world *world = calloc(1, sizeof(*world));
		struct rkfd_workers_options o = usual();
		uint64_t future, kept, file, count = 7;
		struct rkfd_buffer *heap = memory(RKFD_BUFFER_GTT, PAGE);
		int self = open("/proc/self/exe", O_RDONLY);
		struct rkfd_functions *own;
		struct rkfd_workers *w;
		struct rkfd_host *host;

		/* Of the thread's own, with the service of both, and the other way round. */
		OK(rkfd_host_new(quiet, NULL, &host));
		OK(rkfd_host_offer(host, vm, both.b));
		OK(rkfd_host_offer(both.host, vm, heap));
		OK(rkfd_host_set_heap(host, vm, heap));
		CHECK_OP(self, >=, 0);
		OK(rkfd_host_offer_file(both.host, self, &file));
		CHECK_OP(file, <, 2 * ROUNDS);
		CHECK_EQ(close(self), 0);
		CHECK_EQ(rkfd_host_allocated(both.host), 0);
		if (program)
			OK(rkfd_host_offer_program(both.host, program));
		own = functions(world);
		OK(rkfd_functions_add_host(own, number == round % 2 ? both.host : host));
		add_function(both.f, 100 + 2 * round + number, 0, 8, world);
		rkfd_host_free(host);
		o.gpus = (const struct rkfd_vm *[]){ vm };
		o.gpu_count = 1;
		OK(rkfd_workers_new(own, &o, &w));
		rkfd_functions_free(own);
		rkfd_buffer_free(heap);
		CHECK_NE(rkfd_workers_address(w, 0), 0);
		CHECK_NE(rkfd_workers_address(w, 0), rkfd_workers_address(both.w, 0));
		OK(rkfd_workers_forget_unwritten(w, 0, &count));
		CHECK_EQ(count, 0);
		CHECK_EQ(value_of(w, submit_task(w, t)), mix(number, round));
		/* Of both. */
		future = submit_task(both.w, t);
		OK(rkfd_workers_drop(both.w, submit_task(both.w, TASK(NOTE, number, round, mix(number, round)))));
		/* The last: when it has ended, the other thread has handed all of its round over, too. */
		kept = submit_task(both.w, task(MEET, NULL, 0));
		CHECK_EQ(value_of(both.w, future), mix(number, round));
		CHECK_EQ(value_of(both.w, kept), mix(7, 8));
		CHECK_EQ(area(both.w, 1).failed, 0);
		OK(rkfd_workers_worker(both.w, number, &worker));
		end(w);
		free(world);
	}
	OK(rkfd_workers_stop(both.w, RKFD_STOP_DRAINED, PATIENCE_MS, NULL));
}

CASE(tasks_threads, "two threads use workers, tables and services of their own and of both at once")
{
	struct rkfd_workers_options o;

	if (getenv("RKFD_KERNELS"))
		need_code("tasks.co");
	else
		need_vm();
	o = usual();
	o.gpus = (const struct rkfd_vm *[]){ vm };
	o.gpu_count = 1;
	CHECK_EQ(pthread_barrier_init(&both.meet, NULL, 2), 0);
	both.b = memory(RKFD_BUFFER_GTT, PAGE);
	OK(rkfd_host_new(quiet, NULL, &both.host));
	both.f = functions(&both.world);
	OK(rkfd_functions_add(both.f, MEET, 0, 0, meet, NULL));
	OK(rkfd_workers_new(both.f, &o, &both.w));
	in_two(use_tasks);
	OK(rkfd_workers_free(both.w));
	rkfd_functions_free(both.f);
	rkfd_host_free(both.host);
	rkfd_buffer_free(both.b);
	for (unsigned int number = 0; number < 2; number++)
		for (unsigned int round = 0; round < ROUNDS; round++)
			CHECK_EQ(both.world.notes[number][round], 1);
}
