// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: tasks, functions, services and workers that cannot be, and who passes which structures.
 */
#include "library_tasks.h"

static int nothing(void *data, const struct rkfd_call *call, uint64_t *value)
{
	return RKFD_OUTCOME_DONE;
}

static void print(void *data, const char *text, uint64_t bytes)
{
	FAIL("nothing is printed: %s", text);
}

CASE(functions_refused, "functions of tasks: what is refused has its errno, says why, and is not added")
{
	static struct world world;
	struct rkfd_functions *f = NULL;
	struct rkfd_workers *w = NULL;
	struct rkfd_host *host = NULL;

	OK(rkfd_host_new(print, NULL, &host));
	FAILS(rkfd_functions_new(NULL), EINVAL, "functions is NULL");
	OK(rkfd_functions_new(&f));
	FAILS(rkfd_functions_add(NULL, 1, 0, 8, nothing, NULL), EINVAL, "functions is NULL");
	FAILS(rkfd_functions_add(f, 0, 0, 8, nothing, NULL), EINVAL, "No function has number 0");
	FAILS(rkfd_functions_add(f, 1, 0, 8, NULL, NULL), EINVAL, "callback is NULL");
	FAILS(rkfd_functions_add(f, 1, 9, 8, nothing, NULL), EINVAL, "9 to 8 bytes");
	FAILS(rkfd_functions_add(f, 1, 0, 4065, nothing, NULL), EINVAL, "up to 4064");
	OK(rkfd_functions_add(f, 1, 0, 4064, nothing, NULL));
	FAILS(rkfd_functions_add(f, 1, 8, 8, work, &world), EEXIST, "a function 0x1 already");
	FAILS(rkfd_functions_add_host(NULL, host), EINVAL, "functions is NULL");
	FAILS(rkfd_functions_add_host(f, NULL), EINVAL, "host is NULL");
	OK(rkfd_functions_add_host(f, host));
	FAILS(rkfd_functions_add_host(f, host), EEXIST, "a service already");
	FAILS(rkfd_functions_add(f, 0xff03, 0, 8, nothing, NULL), EEXIST, "a function 0xff03 already");
	OK(rkfd_workers_new(f, NULL, &w));
	/* It was not added: the one before still takes no bytes at all, and ends with 0. */
	CHECK_EQ(value_of(w, submit_task(w, task(1, NULL, 0))), 0);
	/* Workers do not have what is added later. */
	OK(rkfd_functions_add(f, 2, 0, 8, nothing, NULL));
	FAILS_WITH(w, submit_task(w, task(2, NULL, 0)), RKFD_TASK_REASON_FUNCTION, "no function has its number");
	end(w);
	rkfd_functions_free(f);
	OK(rkfd_functions_new(&f));
	OK(rkfd_functions_add(f, 0xff01, 0, 8, nothing, NULL));
	FAILS(rkfd_functions_add_host(f, host), EEXIST, "a function 0xff01 already");
	rkfd_functions_free(f);
	rkfd_functions_free(NULL);
	rkfd_host_free(host);
}

/* rkfd_workers_new() fails so with what the statements make of the usual options, and gives no handle. */
#define REFUSED(err, text, ...)                                                    \
	do {                                                                       \
		struct rkfd_workers *none_ = (void *)1;                            \
		struct rkfd_workers_options o = usual();                           \
		__VA_ARGS__;                                                       \
		FAILS(rkfd_workers_new(f, &o, &none_), err, text);                 \
		CHECK(!none_);                                                     \
	} while (0)

CASE(workers_refused, "workers that cannot be started: each with its errno, and nothing is left of them")
{
	static struct world world;
	struct rkfd_functions *f = functions(&world);
	struct rkfd_workers *w = (void *)1;
	const struct rkfd_vm *missing[] = { NULL };
	char path[64];

	REFUSED(EINVAL, "No flags of workers: 0x2", o.flags = 2);
	REFUSED(EINVAL, "1 to 256", o.workers = 0);
	REFUSED(EINVAL, "1 to 256", o.workers = 257);
	REFUSED(EINVAL, "Lanes are", o.lanes = 0);
	REFUSED(EINVAL, "Lanes are", o.own_lanes = 3);
	REFUSED(EINVAL, "Lanes are", o.own_lanes = 128);
	REFUSED(EINVAL, "The depth of a ring", o.depth = 1);
	REFUSED(EINVAL, "The depth of a ring", o.own_depth = 1u << 17);
	REFUSED(EINVAL, "A slot's bytes", o.segment = 0);
	REFUSED(EINVAL, "A slot's bytes", o.own_segment = 96);
	REFUSED(EINVAL, "Futures are", o.futures = 3);
	REFUSED(EINVAL, "Futures are", o.own_futures = 1u << 21);
	REFUSED(EINVAL, "gpus is NULL", o.gpu_count = 1);
	REFUSED(EINVAL, "One of the GPUs is NULL", o.gpus = missing; o.gpu_count = 1);
	REFUSED(ENOENT, "/nowhere", o.statistics = "/nowhere/at/all");
	FAILS(rkfd_workers_new(NULL, NULL, &w), EINVAL, "functions is NULL");
	CHECK(!w);
	FAILS(rkfd_workers_new(f, NULL, NULL), EINVAL, "workers is NULL");
	FAILS(rkfd_workers_defaults(NULL), EINVAL, "rkfd_workers_options is NULL");
	OK(rkfd_workers_free(NULL));
	/* Counters are in a file until the end. */
	snprintf(path, sizeof(path), "/tmp/rkfd-counters-%d", getpid());
	{
		struct rkfd_workers_options o = usual();

		o.statistics = path;
		w = start(&world, o, NULL);
	}
	CHECK_EQ(access(path, R_OK), 0);
	end(w);
	CHECK_EQ(access(path, F_OK), -1);
	rkfd_functions_free(f);
}

CASE(tasks_refused, "tasks and futures that cannot be: each with its errno, and the workers go on")
{
	static struct world world;
	static const uint8_t long_bytes[4065];
	struct rkfd_workers *w = start(&world, usual(), NULL);
	struct rkfd_area_info info = { .size = sizeof(info) };
	struct rkfd_worker_info worker = { .size = sizeof(worker) };
	struct rkfd_task t = TASK(MIX, 1, 2), fine = t;
	uint64_t future = 7, value = 7;

	FAILS(rkfd_workers_submit(NULL, &t, 0, &future), EINVAL, "workers is NULL");
	FAILS(rkfd_workers_submit(w, NULL, 0, &future), EINVAL, "rkfd_task is NULL");
	CHECK_EQ(future, 0);
	t.function = 0;
	FAILS(rkfd_workers_submit(w, &t, 0, &future), EINVAL, "No function has number 0");
	t = fine;
	t.flags = 6;
	FAILS(rkfd_workers_submit(w, &t, 0, &future), EINVAL, "No flags of a task: 0x6");
	t = fine;
	t.arguments = NULL;
	FAILS(rkfd_workers_submit(w, &t, 0, &future), EINVAL, "arguments is NULL");
	t.arguments = long_bytes;
	t.bytes = 225;
	FAILS(rkfd_workers_submit(w, &t, PATIENCE_MS, &future), EMSGSIZE, "than a slot has");
	t.bytes = 4065;
	FAILS(rkfd_workers_submit(w, &t, PATIENCE_MS, &future), EMSGSIZE, "more than 4064");
	FAILS(rkfd_task_then(&fine), EPERM, "Not in a function of tasks");
	FAILS(rkfd_task_then(NULL), EINVAL, "rkfd_task is NULL");
	t = fine;
	t.flags = RKFD_TASK_URGENT;
	FAILS(rkfd_task_then(&t), EINVAL, "priority of the one before");
	t = fine;
	t.function = WORK;
	t.arguments = long_bytes;
	t.bytes = 224;
	CHECK_EQ(value_of(w, submit_task(w, t)), 224);
	future = submit_task(w, fine);
	CHECK_EQ(value_of(w, future), mix(1, 2));
	FAILS(rkfd_workers_wait(w, future, 0, &value), EINVAL, "Not a future");
	FAILS(rkfd_workers_wait(w, 0, 0, &value), EINVAL, "Not a future");
	FAILS(rkfd_workers_wait(w, ~0ul, 0, &value), EINVAL, "Not a future");
	FAILS(rkfd_workers_wait(NULL, future, 0, &value), EINVAL, "workers is NULL");
	CHECK_EQ(value, 7);
	FAILS(rkfd_workers_drop(w, 0), EINVAL, "Not a future");
	FAILS(rkfd_workers_drop(NULL, future), EINVAL, "workers is NULL");
	FAILS(rkfd_workers_stop(NULL, RKFD_STOP_DRAINED, 0, &value), EINVAL, "workers is NULL");
	FAILS(rkfd_workers_stop(w, 2, 0, &value), EINVAL, "No way to stop workers: 2");
	FAILS(rkfd_workers_forget_unwritten(w, 0, &value), ERANGE, "there are 0");
	FAILS(rkfd_workers_forget_unwritten(NULL, 0, &value), EINVAL, "workers is NULL");
	FAILS(rkfd_workers_area(w, 1, &info), ERANGE, "No area 1: there are 1");
	FAILS(rkfd_workers_area(NULL, 0, &info), EINVAL, "workers is NULL");
	FAILS(rkfd_workers_area(w, 0, NULL), EINVAL, "rkfd_area_info is NULL");
	FAILS(rkfd_workers_worker(w, 2, &worker), ERANGE, "No worker 2: there are 2");
	FAILS(rkfd_workers_worker(NULL, 0, &worker), EINVAL, "workers is NULL");
	FAILS(rkfd_workers_worker(w, 0, NULL), EINVAL, "rkfd_worker_info is NULL");
	CHECK_EQ(value, 7);
	CHECK_EQ(rkfd_workers_address(NULL, 0), 0);
	CHECK_EQ(rkfd_workers_address(w, 0), 0);
	CHECK_EQ(area(w, 0).done, 2);
	end(w);
}

CASE(service_refused, "services for kernels: what is refused has its errno")
{
	struct rkfd_host *host = (void *)1;
	uint64_t bytes, number = 7;
	struct rkfd_buffer *b, *hidden;
	void *image;

	need_vm();
	b = memory(RKFD_BUFFER_GTT, PAGE);
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_VRAM_PRIVATE, PAGE, &hidden));
	FAILS(rkfd_host_new(NULL, NULL, &host), EINVAL, "print is NULL");
	CHECK(!host);
	FAILS(rkfd_host_new(print, NULL, NULL), EINVAL, "host is NULL");
	OK(rkfd_host_new(print, NULL, &host));
	FAILS(rkfd_host_offer(NULL, vm, b), EINVAL, "host is NULL");
	FAILS(rkfd_host_offer(host, NULL, b), EINVAL, "vm is NULL");
	FAILS(rkfd_host_offer(host, vm, NULL), EINVAL, "buffer is NULL");
	FAILS(rkfd_host_offer(host, vm, hidden), EINVAL, "the CPU does not reach");
	FAILS(rkfd_host_set_heap(NULL, vm, b), EINVAL, "host is NULL");
	FAILS(rkfd_host_set_heap(host, NULL, b), EINVAL, "vm is NULL");
	FAILS(rkfd_host_set_heap(host, vm, NULL), EINVAL, "buffer is NULL");
	FAILS(rkfd_host_set_heap(host, vm, hidden), EINVAL, "the CPU does not reach");
	FAILS(rkfd_host_offer_file(NULL, STDIN_FILENO, &number), EINVAL, "host is NULL");
	FAILS(rkfd_host_offer_file(host, STDIN_FILENO, NULL), EINVAL, "number is NULL");
	FAILS(rkfd_host_offer_file(host, -1, &number), EBADF, "No descriptor");
	FAILS(rkfd_host_offer_file(host, 1 << 20, &number), EBADF, "The file");
	CHECK_EQ(number, 7);
	FAILS(rkfd_host_offer_program(host, NULL), EINVAL, "program is NULL");
	CHECK_EQ(rkfd_host_allocated(NULL), 0);
	OK(rkfd_host_set_heap(host, vm, b));
	CHECK_EQ(rkfd_host_allocated(host), 0);
	image = code("tasks.co", &bytes);
	OK(rkfd_program_load(vm, image, bytes, &program));
	free(image);
	FAILS(rkfd_host_offer_program(NULL, program), EINVAL, "host is NULL");
	OK(rkfd_host_offer_program(host, program));
	rkfd_program_free(program);
	rkfd_buffer_free(b);
	rkfd_buffer_free(hidden);
	rkfd_host_free(host);
	rkfd_host_free(NULL);
}

CASE(tasks_sizes, "structures of tasks: callers of an older and of a newer header than the library")
{
	static struct world world;
	struct {
		struct rkfd_workers_options now;
		uint32_t later[2];
	} options = { .later = { 0 } };
	struct {
		struct rkfd_task now;
		uint32_t later[2];
	} newer = { .later = { 0 } };
	struct {
		struct rkfd_area_info now;
		uint32_t later[2];
	} told;
	struct rkfd_functions *f = functions(&world);
	struct rkfd_worker_info worker = { .size = 68 };
	struct rkfd_workers *w;
	uint64_t future;

	/* Of the first version: nobody has less. */
	CHECK_OP(sizeof(options.now), >=, 64);
	CHECK_OP(sizeof(newer.now), >=, 32);
	CHECK_OP(sizeof(told.now), >=, 120);
	CHECK_OP(sizeof(worker), >=, 72);
	CHECK_OP(sizeof(struct rkfd_call), >=, 40);
	options.now = usual();
	options.now.size = sizeof(options);
	options.later[1] = 7;
	FAILS(rkfd_workers_new(f, &options.now, &w), E2BIG, "does not know");
	options.later[1] = 0;
	options.now.size = 60;
	FAILS(rkfd_workers_new(f, &options.now, &w), EINVAL, "sizeof(struct rkfd_workers_options)");
	options.now.size = sizeof(options);
	OK(rkfd_workers_new(f, &options.now, &w));
	newer.now = TASK(MIX, 3, 4);
	newer.now.size = sizeof(newer);
	OK(rkfd_workers_submit(w, &newer.now, 0, &future));
	CHECK_EQ(value_of(w, future), mix(3, 4));
	newer.later[0] = 1;
	FAILS(rkfd_workers_submit(w, &newer.now, 0, &future), E2BIG, "does not know");
	newer.now.size = 28;
	FAILS(rkfd_workers_submit(w, &newer.now, 0, &future), EINVAL, "sizeof(struct rkfd_task)");
	memset(&told, 0xa5, sizeof(told));
	told.now.size = sizeof(told);
	OK(rkfd_workers_area(w, 0, &told.now));
	CHECK_EQ(told.now.size, sizeof(told));
	CHECK_EQ(told.now.done, 1);
	CHECK_EQ(told.later[0] + told.later[1], 0);
	memset(&told, 0xa5, sizeof(told));
	told.now.size = 120;
	OK(rkfd_workers_area(w, 0, &told.now));
	CHECK_EQ(told.now.done, 1);
	CHECK_EQ(*(uint32_t *)((char *)&told + 120), 0xa5a5a5a5);
	told.now.size = 116;
	told.now.done = 99;
	FAILS(rkfd_workers_area(w, 0, &told.now), EINVAL, "sizeof(struct rkfd_area_info)");
	CHECK_EQ(told.now.done, 99);
	FAILS(rkfd_workers_worker(w, 0, &worker), EINVAL, "sizeof(struct rkfd_worker_info)");
	end(w);
	rkfd_functions_free(f);
}
