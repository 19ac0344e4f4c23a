// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: tasks of kernels. These are kernels/tasks.hip, compiled beside this program.
 */
#include "library_tasks.h"

#include <fcntl.h>

/* Workers for the one GPU. */
static struct rkfd_workers *serve(struct world *world, struct rkfd_workers_options o, const struct rkfd_host *host)
{
	o.gpus = (const struct rkfd_vm *[]){ vm };
	o.gpu_count = 1;
	return start(world, o, host);
}

/* How many of two workers sleep, and how often they were woken. */
static unsigned int asleep(struct rkfd_workers *w, uint64_t *wakes)
{
	unsigned int count = 0;

	*wakes = 0;
	for (uint32_t i = 0; i < 2; i++) {
		struct rkfd_worker_info worker = { .size = sizeof(worker) };

		OK(rkfd_workers_worker(w, i, &worker));
		count += worker.sleeps > worker.wakes + worker.looks;
		*wakes += worker.wakes;
	}
	return count;
}

CASE(kernel_tasks, "tasks of kernels run once each; waves get values, of functions that follow, too, and wake workers that sleep")
{
	static struct world world;
	const uint32_t tries = TRIES, count = 8, rounds = 3, steps = 10;
	const uint64_t first = 32;
	struct rkfd_gpu_info gpu_info = { .size = sizeof(gpu_info) };
	struct rkfd_area_info info, own;
	uint64_t tasks, out, woken;
	unsigned int attempts = 0;
	struct rkfd_workers *w;
	struct launcher l;

	need_code("tasks.co");
	OK(rkfd_gpu_describe(gpu, &gpu_info));
	open_launcher(&l);
	w = serve(&world, usual(), NULL);
	tasks = rkfd_workers_address(w, 0);
	out = rkfd_buffer_gpu(l.out);
	CHECK_NE(tasks, 0);
	CHECK_EQ(rkfd_workers_address(w, 1), 0);
	RUN(&l, "notes", &tasks, &first, &count, &tries, &out);
	for (unsigned int i = 0; i < ITEMS; i++)
		CHECK_EQ(dword(l.out, i), count);
	RUN(&l, "ask", &tasks, &rounds, &tries, &out);
	for (unsigned int i = 0; i < ITEMS; i++) {
		uint64_t sum = 0;

		for (unsigned int n = 0; n < rounds; n++)
			sum = sum * 31 + mix(i, n);
		CHECK_EQ(left_at(&l, 2 * i), sum);
		CHECK_EQ(left_at(&l, 2 * i + 1), 0);
	}
	/* Both sleep: a task wakes one. It is tried again where one has woken by itself in that moment. */
	do {
		uint64_t wakes;

		CHECK_OP(attempts++, <, 5);
		for (unsigned int looks = 0; asleep(w, &wakes) < 2; looks++) {
			CHECK_OP(looks, <, PATIENCE_MS);
			usleep(1000);
		}
		RUN(&l, "go_on", &tasks, &steps, &tries, &out);
		for (unsigned int i = 0; i < ITEMS; i++) {
			uint64_t work = i;

			for (unsigned int n = 0; n < steps; n++)
				work = mix(work, n);
			CHECK_EQ(left_at(&l, 3 * i), work);
			CHECK_EQ(left_at(&l, 3 * i + 1), 2 * mix(i, 7));
			CHECK_EQ(left_at(&l, 3 * i + 2), 0);
		}
		asleep(w, &woken);
		woken -= wakes;
	} while (!woken);
	OK(rkfd_workers_stop(w, RKFD_STOP_DRAINED, PATIENCE_MS, NULL));
	for (unsigned int i = 0; i < 256; i++)
		for (unsigned int n = 0; n < count; n++)
			CHECK_EQ(world.notes[i][n], i >= first && i < first + ITEMS);
	CHECK_EQ(world.wrong, 0);
	info = area(w, 0);
	CHECK_EQ(info.gpu_id, gpu_info.gpu_id);
	CHECK_EQ(info.address, tasks);
	CHECK_EQ(info.taken_high, ITEMS * (count / 2 + rounds));
	CHECK_EQ(info.taken_low, ITEMS * (count / 2 + attempts));
	CHECK_EQ(info.done, ITEMS * (count + rounds + attempts));
	CHECK_EQ(info.failed + info.rejected + info.corrupt + info.late, 0);
	CHECK_EQ(info.refused + info.futures_in_use + info.ready, 0);
	own = area(w, 1);
	CHECK_EQ(own.gpu_id, 0);
	CHECK_EQ(own.taken_high + own.taken_low + own.done, 0);
	/* No more. */
	RUN(&l, "ask", &tasks, &rounds, &tries, &out);
	for (unsigned int i = 0; i < ITEMS; i++)
		CHECK_EQ(left_at(&l, 2 * i + 1), 4);
	OK(rkfd_workers_free(w));
	close_launcher(&l);
}

CASE(kernel_full, "kernels are told that rings are full while functions hold the workers; what was taken runs once")
{
	static struct world world;
	const uint32_t few = 3, count = 8;
	const uint64_t first = 0;
	struct rkfd_workers_options o = usual();
	uint64_t tasks, out, handed = 0, notes = 0;
	struct rkfd_workers *w;
	struct launcher l;

	need_code("tasks.co");
	open_launcher(&l);
	o.lanes = 1;
	o.depth = 4;
	o.segment = 64;
	o.futures = 0;
	o.workers = 1;
	w = serve(&world, o, NULL);
	tasks = rkfd_workers_address(w, 0);
	out = rkfd_buffer_gpu(l.out);
	/* By a task of the program's own. */
	OK(rkfd_workers_drop(w, submit_task(w, TASK(HOLD, 1))));
	await_held(&world, 1);
	RUN(&l, "notes", &tasks, &first, &count, &few, &out);
	for (unsigned int i = 0; i < ITEMS; i++)
		handed += dword(l.out, i);
	/* Two rings of four. */
	CHECK_EQ(handed, 8);
	CHECK_EQ(area(w, 0).ready, 8);
	CHECK_EQ(area(w, 0).refused, ITEMS);
	CHECK_EQ(area(w, 0).lanes, 1);
	CHECK_EQ(area(w, 0).futures, 0);
	CHECK_EQ(world.wrong + area(w, 0).done, 0);
	let_go(&world);
	end(w);
	for (unsigned int i = 0; i < ITEMS; i++)
		for (unsigned int n = 0; n < count; n++) {
			CHECK_EQ(world.notes[i][n], n < dword(l.out, i));
			notes += world.notes[i][n];
		}
	CHECK_EQ(notes, 8);
	close_launcher(&l);
}

CASE(kernel_stopped, "kernels that wait for tasks which workers leave are told so, and end")
{
	static struct world world;
	const uint32_t tries = TRIES, rounds = 1;
	struct rkfd_workers_options o = usual();
	uint64_t tasks, out, left = 0;
	struct rkfd_workers *w;
	struct rkfd_kernel *k;
	struct launcher l;

	need_code("tasks.co");
	k = kernel("ask");
	open_launcher(&l);
	o.workers = 1;
	w = serve(&world, o, NULL);
	tasks = rkfd_workers_address(w, 0);
	out = rkfd_buffer_gpu(l.out);
	OK(rkfd_workers_drop(w, submit_task(w, TASK(HOLD, 1))));
	await_held(&world, 1);
	begin_kernel(&l, k, (const void *[]){ &tasks, &rounds, &tries, &out }, 4);
	for (unsigned int looks = 0; area(w, 0).ready < ITEMS; looks++) {
		CHECK_OP(looks, <, PATIENCE_MS);
		usleep(1000);
	}
	FAILS(rkfd_workers_stop(w, RKFD_STOP_AT_ONCE, 0, &left), ETIMEDOUT, "for the workers to end");
	CHECK_EQ(left, ITEMS + 1);
	let_go(&world);
	OK(rkfd_workers_stop(w, RKFD_STOP_AT_ONCE, PATIENCE_MS, &left));
	CHECK_EQ(left, ITEMS);
	await_kernel(&l);
	for (unsigned int i = 0; i < ITEMS; i++) {
		CHECK_EQ(left_at(&l, 2 * i), 0);
		CHECK_EQ(left_at(&l, 2 * i + 1), 4);
	}
	CHECK_EQ(area(w, 0).taken_high + area(w, 0).taken_low, 0);
	CHECK_EQ(area(w, 1).done, 1);
	OK(rkfd_workers_free(w));
	rkfd_kernel_free(k);
	close_launcher(&l);
}

CASE(kernel_wrong, "what kernels should not hand over fails for its reason, is counted, and stops nobody")
{
	static struct world world;
	const uint32_t tries = TRIES, rounds = 2;
	struct rkfd_area_info info;
	struct rkfd_workers *w;
	uint64_t tasks, out;
	struct launcher l;

	need_code("tasks.co");
	open_launcher(&l);
	w = serve(&world, usual(), NULL);
	tasks = rkfd_workers_address(w, 0);
	out = rkfd_buffer_gpu(l.out);
	{
		struct rkfd_kernel *k = kernel("wrong");
		struct rkfd_dispatch dispatch = {
			.size = sizeof(dispatch),
			.grid = { 1 },
			.group = { 1 },
			.arguments = (const void *[]){ &tasks, &tries, &out },
			.argument_count = 3,
			.kernarg = rkfd_buffer_cpu(l.kernarg),
			.completion = rkfd_signals_address(l.done, 0),
		};

		OK(rkfd_kernel_launch(l.q, k, &dispatch, NULL));
		OK(rkfd_queue_commit(l.q));
		await_kernel(&l);
		rkfd_kernel_free(k);
	}
	/* Handed over, failed, and why. */
	CHECK_EQ(left_at(&l, 0), 0);
	CHECK_EQ(left_at(&l, 1), 5);
	CHECK_EQ(left_at(&l, 2), RKFD_TASK_REASON_FUNCTION);
	CHECK_EQ(left_at(&l, 3), 0);
	CHECK_EQ(left_at(&l, 4), 5);
	CHECK_EQ(left_at(&l, 5), RKFD_TASK_REASON_BYTES);
	/* Too long. */
	CHECK_EQ((uint32_t)left_at(&l, 6), 3);
	RUN(&l, "ask", &tasks, &rounds, &tries, &out);
	for (unsigned int i = 0; i < ITEMS; i++) {
		CHECK_EQ(left_at(&l, 2 * i), mix(i, 0) * 31 + mix(i, 1));
		CHECK_EQ(left_at(&l, 2 * i + 1), 0);
	}
	OK(rkfd_workers_stop(w, RKFD_STOP_DRAINED, PATIENCE_MS, NULL));
	info = area(w, 0);
	CHECK_EQ(info.rejected, 3);
	CHECK_EQ(info.failed, 3);
	CHECK_EQ(info.late, 1);
	CHECK_EQ(info.corrupt, 1);
	CHECK_EQ(info.futures_in_use, 0);
	OK(rkfd_workers_free(w));
	close_launcher(&l);
}

/* What kernels print. */
static struct {
	unsigned int lines, wrong, seen[ITEMS];
} printed;

static void keep(void *data, const char *text, uint64_t bytes)
{
	unsigned int group, item;
	char wanted[64];

	CHECK(data == &printed);
	CHECK_EQ(strlen(text), bytes);
	/* From one worker at a time, so this needs no atomics. */
	printed.lines++;
	if (sscanf(text, "group %u, work-item %u:", &group, &item) != 2 || group || item >= ITEMS) {
		printed.wrong++;
		return;
	}
	snprintf(wanted, sizeof(wanted), "group 0, work-item %2u: %-4s %.2f\n", item, item % 2 ? "odd" : "even", 0.25 * item);
	printed.wrong += strcmp(text, wanted) != 0;
	printed.seen[item]++;
}

CASE(kernel_prints, "kernels print by the service, in the words of printf; without it the calls fail")
{
	static struct world world, silent;
	const uint32_t tries = TRIES;
	struct rkfd_host *host;
	struct rkfd_workers *w;
	uint64_t tasks, out;
	struct launcher l;

	need_code("tasks.co");
	open_launcher(&l);
	out = rkfd_buffer_gpu(l.out);
	OK(rkfd_host_new(keep, &printed, &host));
	w = serve(&world, usual(), host);
	tasks = rkfd_workers_address(w, 0);
	/* The texts lie in the program, which was not offered yet. */
	RUN(&l, "print", &tasks, &tries, &out);
	for (unsigned int looks = 0; area(w, 0).failed < ITEMS; looks++) {
		CHECK_OP(looks, <, PATIENCE_MS);
		usleep(1000);
	}
	CHECK_EQ(printed.lines, 0);
	CHECK_EQ(area(w, 0).rejected, 0);
	OK(rkfd_host_offer_program(host, program));
	RUN(&l, "print", &tasks, &tries, &out);
	for (unsigned int i = 0; i < ITEMS; i++)
		CHECK_EQ(left_at(&l, i) & 0xffffffff, 0);
	/* Those who have it keep it. */
	rkfd_host_free(host);
	end(w);
	CHECK_EQ(printed.lines, ITEMS);
	CHECK_EQ(printed.wrong, 0);
	for (unsigned int i = 0; i < ITEMS; i++)
		CHECK_EQ(printed.seen[i], 1);
	w = serve(&silent, usual(), NULL);
	tasks = rkfd_workers_address(w, 0);
	RUN(&l, "print", &tasks, &tries, &out);
	OK(rkfd_workers_stop(w, RKFD_STOP_DRAINED, PATIENCE_MS, NULL));
	CHECK_EQ(area(w, 0).rejected, ITEMS);
	CHECK_EQ(area(w, 0).failed, ITEMS);
	OK(rkfd_workers_free(w));
	CHECK_EQ(printed.lines, ITEMS);
	close_launcher(&l);
}

#define PIECE 100u
/* The last piece is shorter. */
#define FILE_BYTES (ITEMS * PIECE - 33)

static uint8_t byte_of(unsigned int at)
{
	return mix(at, 9) >> 56;
}

CASE(kernel_reads, "kernels read files into memory of both kinds; what was not offered they do not reach")
{
	static struct world world;
	static const uint32_t kinds[] = { RKFD_BUFFER_GTT, RKFD_BUFFER_VRAM };
	const uint64_t piece = PIECE, own = RKFD_TASK_REASON_OWN;
	uint64_t tasks, out, to, file = 7, none = 5;
	struct rkfd_buffer *hidden;
	const uint32_t tries = TRIES;
	uint8_t bytes[FILE_BYTES];
	struct rkfd_workers *w;
	struct rkfd_host *host;
	struct launcher l;
	FILE *made;

	need_code("tasks.co");
	open_launcher(&l);
	out = rkfd_buffer_gpu(l.out);
	made = tmpfile();
	CHECK(made);
	for (unsigned int i = 0; i < FILE_BYTES; i++)
		bytes[i] = byte_of(i);
	CHECK_EQ(fwrite(bytes, 1, FILE_BYTES, made), FILE_BYTES);
	CHECK_EQ(fflush(made), 0);
	OK(rkfd_host_new(keep, &printed, &host));
	OK(rkfd_host_offer_file(host, fileno(made), &file));
	CHECK_EQ(file, 0);
	/* It is the service's own. */
	fclose(made);
	w = serve(&world, usual(), host);
	tasks = rkfd_workers_address(w, 0);
	for (unsigned int kind = 0; kind < 2; kind++) {
		struct rkfd_buffer *b = memory(kinds[kind], 2 * PAGE);

		OK(rkfd_host_offer(host, vm, b));
		to = rkfd_buffer_gpu(b);
		RUN(&l, "read", &tasks, &file, &to, &piece, &tries, &out);
		for (unsigned int i = 0; i < ITEMS; i++) {
			uint64_t sum = 0, got = i + 1 < ITEMS ? PIECE : PIECE - 33;

			for (unsigned int n = 0; n < got; n++)
				sum = sum * 31 + byte_of(i * PIECE + n);
			CHECK_EQ(left_at(&l, 3 * i) & 0xffffffff, 0);
			CHECK_EQ(left_at(&l, 3 * i + 1), got);
			CHECK_EQ(left_at(&l, 3 * i + 2), sum);
		}
		/* The service has it still: nobody else gets the memory. */
		rkfd_buffer_free(b);
		RUN(&l, "read", &tasks, &file, &to, &piece, &tries, &out);
		CHECK_EQ(left_at(&l, 1), PIECE);
	}
	hidden = memory(RKFD_BUFFER_GTT, 2 * PAGE);
	memset(rkfd_buffer_cpu(hidden), 0x5a, 2 * PAGE);
	for (unsigned int wrong = 0; wrong < 2; wrong++) {
		uint64_t at = wrong ? to : rkfd_buffer_gpu(hidden);

		RUN(&l, "read", &tasks, wrong ? &none : &file, &at, &piece, &tries, &out);
		for (unsigned int i = 0; i < ITEMS; i++) {
			CHECK_EQ(left_at(&l, 3 * i) & 0xffffffff, 5);
			CHECK_EQ(left_at(&l, 3 * i + 1), own + wrong);
		}
	}
	for (unsigned int i = 0; i < 2 * PAGE / 4; i++)
		CHECK_EQ(dword(hidden, i), 0x5a5a5a5a);
	end(w);
	rkfd_host_free(host);
	close_launcher(&l);
}

CASE(kernel_allocates, "kernels allocate from the heap that they were given, and give back")
{
	static struct world world;
	const uint32_t tries = TRIES;
	uint64_t tasks, out, bytes = 0;
	struct rkfd_buffer *heap;
	struct rkfd_workers *w;
	struct rkfd_host *host;
	struct launcher l;

	need_code("tasks.co");
	open_launcher(&l);
	out = rkfd_buffer_gpu(l.out);
	heap = memory(RKFD_BUFFER_GTT, 64 * PAGE);
	OK(rkfd_host_new(keep, &printed, &host));
	w = serve(&world, usual(), host);
	tasks = rkfd_workers_address(w, 0);
	/* No heap yet. */
	RUN(&l, "allocate", &tasks, &tries, &out);
	for (unsigned int i = 0; i < ITEMS; i++)
		CHECK_EQ(left_at(&l, 2 * i) & 0xffffffff, 5);
	OK(rkfd_host_set_heap(host, vm, heap));
	RUN(&l, "allocate", &tasks, &tries, &out);
	for (unsigned int i = 0; i < ITEMS; i++) {
		const uint64_t at = left_at(&l, 2 * i + 1), base = rkfd_buffer_gpu(heap);
		const volatile uint64_t *there = (const volatile uint64_t *)(uintptr_t)at;

		CHECK_EQ(left_at(&l, 2 * i) & 0xffffffff, 0);
		CHECK_OP(at, >=, base);
		CHECK_OP(at + 64 + 8 * i, <=, base + 64 * PAGE);
		/* An odd one has given it back, and another may have it. */
		if (i % 2)
			continue;
		for (unsigned int n = 0; n < 8 + i; n++)
			CHECK_EQ(there[n], mix(i, n));
		bytes += 64 + 8 * i;
	}
	CHECK_OP(rkfd_host_allocated(host), >=, bytes);
	CHECK_OP(rkfd_host_allocated(host), <, 2 * bytes);
	end(w);
	rkfd_host_free(host);
	rkfd_buffer_free(heap);
	close_launcher(&l);
}

CASE(kernel_two_gpus, "the workers of one program serve two GPUs, each by an area of its own")
{
	static struct world world;
	struct rkfd_vm *second = need_second(), *vms[] = { vm, second };
	const uint32_t tries = TRIES, rounds = 2, count = 8;
	struct rkfd_workers_options o = usual();
	struct rkfd_workers *w;
	uint64_t bytes;

	o.gpus = (const struct rkfd_vm *const *)vms;
	o.gpu_count = 2;
	w = start(&world, o, NULL);
	CHECK_NE(rkfd_workers_address(w, 0), rkfd_workers_address(w, 1));
	CHECK_EQ(rkfd_workers_address(w, 2), 0);
	CHECK_NE(area(w, 0).gpu_id, area(w, 1).gpu_id);
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t tasks = rkfd_workers_address(w, i), first = i * ITEMS, out;
		struct launcher l;
		void *image;

		vm = vms[i];
		image = code("tasks.co", &bytes);
		OK(rkfd_program_load(vm, image, bytes, &program));
		free(image);
		open_launcher(&l);
		out = rkfd_buffer_gpu(l.out);
		RUN(&l, "notes", &tasks, &first, &count, &tries, &out);
		RUN(&l, "ask", &tasks, &rounds, &tries, &out);
		for (unsigned int n = 0; n < ITEMS; n++) {
			CHECK_EQ(left_at(&l, 2 * n), mix(n, 0) * 31 + mix(n, 1));
			CHECK_EQ(left_at(&l, 2 * n + 1), 0);
		}
		close_launcher(&l);
		rkfd_program_free(program);
	}
	OK(rkfd_workers_stop(w, RKFD_STOP_DRAINED, PATIENCE_MS, NULL));
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(area(w, i).done, ITEMS * (rounds + count));
	CHECK_EQ(area(w, 2).done, 0);
	for (unsigned int i = 0; i < 2 * ITEMS; i++)
		for (unsigned int n = 0; n < count; n++)
			CHECK_EQ(world.notes[i][n], 1);
	OK(rkfd_workers_free(w));
}
