// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: compiled code on the GPU. The kernels are those of kernels/, compiled beside this program.
 */
#include "library_code.h"

static void need_program(void)
{
	need_code("hip.co");
}

CASE(program_info, "a program tells of its kernels, their arguments and its variables")
{
	struct rkfd_kernel_info info = { .size = sizeof(info) };
	struct rkfd_argument_info argument = { .size = sizeof(argument) };
	struct rkfd_kernel *none, *k;
	uint64_t address = 0, bytes = 0;
	unsigned int count = 0;
	bool found = false;

	need_program();
	for (const char *name; (name = rkfd_program_kernel(program, count)); count++)
		found |= !strcmp(name, "step");
	CHECK_OP(count, >=, 15);
	CHECK(found);
	k = kernel("step");
	OK(rkfd_kernel_describe(k, &info));
	CHECK_EQ(info.version, 5);
	CHECK_EQ(info.arguments, 3);
	CHECK_EQ(info.wavefront_size, 64);
	CHECK_EQ(info.max_group, 256);
	CHECK_OP(info.kernarg_bytes, >=, 16);
	CHECK_OP(info.kernarg_align, >=, 16);
	CHECK_EQ(info.private_bytes, 0);
	CHECK_OP(info.vgprs, >, 0);
	CHECK(info.object % 64 == 0 && info.object);
	OK(rkfd_kernel_argument(k, 0, &argument));
	CHECK_EQ(argument.kind, RKFD_ARGUMENT_ADDRESS);
	CHECK_EQ(argument.bytes, 8);
	OK(rkfd_kernel_argument(k, 2, &argument));
	CHECK_EQ(argument.kind, RKFD_ARGUMENT_VALUE);
	CHECK_EQ(argument.offset, 12);
	CHECK_EQ(argument.bytes, 4);
	FAILS(rkfd_kernel_argument(k, 3, &argument), ERANGE, "there are 3");
	OK(rkfd_program_symbol(program, "answer", &address, &bytes));
	CHECK_EQ(bytes, 4);
	CHECK_NE(address, 0);
	OK(rkfd_program_symbol(program, "answer", NULL, NULL));
	FAILS(rkfd_program_symbol(program, "question", &address, NULL), ENOENT, "question");
	FAILS(rkfd_kernel_new(program, "stop", &none), ENOENT, "step");
	CHECK(!none);
	/* The kernel keeps the program. */
	rkfd_program_free(program);
	OK(rkfd_kernel_describe(k, &info));
	rkfd_kernel_free(k);
}

CASE(bad_programs, "what is no program for the GPU is refused, and says why")
{
	struct rkfd_program *none = (void *)1;
	uint64_t bytes;
	char *image;

	need_vm();
	image = code("hip.co", &bytes);
	FAILS(rkfd_program_load(vm, "#!/bin/sh\n", 10, &none), ENOEXEC, "Not a code object");
	CHECK(!none);
	FAILS(rkfd_program_load(vm, image, bytes / 2, &none), ENOEXEC, "the file is cut off");
	FAILS(rkfd_program_load(vm, image, 0, &none), EINVAL, "0 elements");
	FAILS(rkfd_program_load(vm, NULL, 10, &none), EINVAL, "image is NULL");
	FAILS(rkfd_program_load(NULL, image, bytes, &none), EINVAL, "vm is NULL");
	FAILS(rkfd_program_load(vm, image, bytes, NULL), EINVAL, "program is NULL");
	/* The machine in e_flags. */
	image[48] = image[48] == 0x2f ? 0x3f : 0x2f;
	FAILS(rkfd_program_load(vm, image, bytes, &none), EOPNOTSUPP, "Compiled for");
	CHECK(!none);
}

CASE(bad_launches, "launches that cannot be are refused before anything of them is in the queue")
{
	struct rkfd_dispatch dispatch = { .size = sizeof(dispatch), .grid = { 64 }, .group = { 64 } };
	struct rkfd_buffer *arguments, *data;
	uint32_t count = 64, round = 1;
	struct rkfd_kernel *k;
	struct rkfd_queue *q;
	uint64_t address;

	need_program();
	k = kernel("step");
	q = queue(RKFD_QUEUE_AQL);
	arguments = memory(RKFD_BUFFER_GTT, PAGE);
	data = memory(RKFD_BUFFER_GTT, PAGE);
	address = rkfd_buffer_gpu(data);
	dispatch.arguments = (const void *[]){ &address, &count, &round };
	dispatch.argument_count = 3;
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "kernarg is NULL");
	dispatch.kernarg = (char *)rkfd_buffer_cpu(arguments) + 8;
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "not on 16 bytes");
	dispatch.kernarg = rkfd_buffer_cpu(arguments);
	dispatch.argument_count = 2;
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "2 arguments where the kernel has 3");
	dispatch.argument_count = 3;
	dispatch.group[0] = 257;
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "257 where 256");
	dispatch.group[0] = 1 << 16;
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "65536 work-items");
	dispatch.group[0] = 64;
	dispatch.group_bytes = 65537;
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "65537 where 65536");
	dispatch.group_bytes = 0;
	dispatch.release = 3;
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "No scope: 3");
	dispatch.release = 0;
	dispatch.flags = 2;
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "No flags");
	dispatch.flags = 0;
	dispatch.completion = 8;
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "completion signal");
	dispatch.completion = 0;
	dispatch.arguments = (const void *[]){ &address, NULL, &round };
	FAILS(rkfd_kernel_launch(q, k, &dispatch, NULL), EINVAL, "An argument is NULL");
	FAILS(rkfd_kernel_launch(queue(RKFD_QUEUE_PM4), k, &dispatch, NULL), EINVAL, "AQL");
	FAILS(rkfd_queue_provide_scratch(q, 1 << 20), EINVAL, "private memory");
	FAILS(rkfd_queue_provide_scratch(queue(RKFD_QUEUE_PM4), 16), EINVAL, "AQL");
	OK(rkfd_queue_provide_scratch(q, 0));
	CHECK_EQ(info_of(q).written, 0);
}

/* A launch of `kernel` on as many work-items, whose end the signal tells. */
static void launch(struct rkfd_queue *q, struct rkfd_kernel *k, uint32_t items, const void *const *arguments,
		   uint32_t count, void *kernarg, uint64_t completion)
{
	struct rkfd_dispatch dispatch = {
		.size = sizeof(dispatch),
		.grid = { items },
		.group = { 64 },
		.arguments = arguments,
		.argument_count = count,
		.kernarg = kernarg,
		.completion = completion,
	};

	OK(rkfd_kernel_launch(q, k, &dispatch, NULL));
}

CASE(launches, "launches run in order, one after the other, with the arguments that they were given")
{
	const uint32_t items = 1000, rounds = 5;
	struct rkfd_buffer *arguments, *data;
	struct rkfd_signals *done;
	struct rkfd_kernel *k;
	struct rkfd_queue *q;
	uint32_t wanted = 0;
	uint64_t address;

	need_program();
	k = kernel("step");
	q = queue(RKFD_QUEUE_AQL);
	done = signals(1);
	arguments = memory(RKFD_BUFFER_GTT, PAGE);
	data = memory(RKFD_BUFFER_GTT, PAGE);
	address = rkfd_buffer_gpu(data);
	for (uint32_t round = 0; round < rounds; round++) {
		const void *values[] = { &address, &items, &round };

		launch(q, k, items, values, 3, (char *)rkfd_buffer_cpu(arguments) + 512 * round,
		       round + 1 == rounds ? rkfd_signals_address(done, 0) : 0);
		wanted = wanted * 3 + round;
	}
	OK(rkfd_queue_commit(q));
	OK(rkfd_signals_wait_below(done, 0, 1, PATIENCE_MS, NULL));
	for (uint32_t i = 0; i < items; i++)
		CHECK_EQ(dword(data, i), wanted);
	CHECK_EQ(dword(data, items), 0);
}

CASE(scratch_grows, "a launch that needs private memory gets it, while the queue has other work")
{
	const uint32_t items = 128, depth = 3;
	struct rkfd_buffer *arguments, *data;
	struct rkfd_signals *done;
	struct rkfd_queue *q;
	uint32_t first[128];
	uint64_t address;

	need_program();
	q = queue(RKFD_QUEUE_AQL);
	done = signals(1);
	arguments = memory(RKFD_BUFFER_GTT, PAGE);
	data = memory(RKFD_BUFFER_GTT, PAGE);
	address = rkfd_buffer_gpu(data);
	for (unsigned int round = 0; round < 2; round++) {
		const void *values[] = { &address, &depth };

		OK(rkfd_aql_barrier(q, NULL, 0, 0, NULL));
		OK(rkfd_signals_store(done, 0, 1));
		launch(q, kernel("recursion"), items, values, 2, (char *)rkfd_buffer_cpu(arguments) + 512 * round,
		       rkfd_signals_address(done, 0));
		OK(rkfd_queue_commit(q));
		OK(rkfd_signals_wait_below(done, 0, 1, PATIENCE_MS, NULL));
		/* The same again, with memory that was grown once more meanwhile. */
		if (!round) {
			memcpy(first, rkfd_buffer_cpu(data), sizeof(first));
			memset(rkfd_buffer_cpu(data), 0, sizeof(first));
			OK(rkfd_queue_provide_scratch(q, 40000));
		}
	}
	CHECK(first[1] && first[1] != first[2]);
	CHECK(!memcmp(first, rkfd_buffer_cpu(data), sizeof(first)));
}

/* What two threads use at once. */
static struct {
	const void *image;
	uint64_t bytes;
	struct rkfd_kernel *step;
	struct rkfd_queue *q;
} both;

static void launch_too(unsigned int number)
{
	struct rkfd_buffer *arguments = memory(RKFD_BUFFER_GTT, PAGE), *data = memory(RKFD_BUFFER_GTT, PAGE);
	struct rkfd_argument_info argument = { .size = sizeof(argument) };
	struct rkfd_kernel_info info = { .size = sizeof(info) };
	const uint64_t address = rkfd_buffer_gpu(data);
	const uint32_t items = 256, rounds = 4;
	struct rkfd_signals *done = signals(1);
	uint32_t wanted = 0;

	for (uint32_t round = 0; round < rounds; round++) {
		const void *values[] = { &address, &items, &round };
		struct rkfd_program *again;
		struct rkfd_kernel *own;
		uint64_t answer = 0;

		OK(rkfd_program_load(vm, both.image, both.bytes, &again));
		CHECK_EQ(strcmp(rkfd_program_kernel(again, round), rkfd_program_kernel(program, round)), 0);
		OK(rkfd_program_symbol(program, "answer", &answer, NULL));
		CHECK_NE(answer, 0);
		OK(rkfd_kernel_new(round % 2 ? again : program, "step", &own));
		rkfd_program_free(again);
		OK(rkfd_kernel_describe(both.step, &info));
		CHECK_EQ(info.arguments, 3);
		OK(rkfd_kernel_argument(both.step, 2, &argument));
		CHECK_EQ(argument.offset, 12);
		OK(rkfd_signals_store(done, 0, 2));
		launch(both.q, own, items, values, 3, rkfd_buffer_cpu(arguments), rkfd_signals_address(done, 0));
		/* More than there is, while the other launches. */
		OK(rkfd_queue_provide_scratch(both.q, 16 * (2 * round + number + 1)));
		wanted = wanted * 3 + round;
		launch(both.q, both.step, items, values, 3, (char *)rkfd_buffer_cpu(arguments) + 512,
		       rkfd_signals_address(done, 0));
		wanted = wanted * 3 + round;
		OK(rkfd_queue_commit(both.q));
		OK(rkfd_signals_wait_below(done, 0, 1, PATIENCE_MS, NULL));
		for (uint32_t i = 0; i < items; i++)
			CHECK_EQ(dword(data, i), wanted);
		rkfd_kernel_free(own);
	}
	rkfd_signals_free(done);
	rkfd_buffer_free(data);
	rkfd_buffer_free(arguments);
}

CASE(launched_by_two, "two threads load programs and launch kernels at once, with a queue, a program and a kernel of both")
{
	need_program();
	both.image = code("hip.co", &both.bytes);
	both.step = kernel("step");
	both.q = queue(RKFD_QUEUE_AQL);
	in_two(launch_too);
	rkfd_kernel_free(both.step);
	rkfd_program_free(program);
	OK(rkfd_queue_free(both.q));
}

/* A kernel in memory of the program's own: its descriptor in one page, its code in the next. */
static void copy_kernel(struct rkfd_buffer *to, struct rkfd_kernel *k)
{
	enum { ENTRY = 16, DESCRIPTOR_BYTES = 64, CODE_BYTES = 128 };
	struct rkfd_kernel_info info = { .size = sizeof(info) };
	const char *from;
	char *at = rkfd_buffer_cpu(to);
	int64_t entry;

	OK(rkfd_kernel_describe(k, &info));
	from = (const char *)(uintptr_t)info.object;
	memcpy(at, from, DESCRIPTOR_BYTES);
	/* Where the code is, counted from the descriptor. */
	memcpy(&entry, from + ENTRY, sizeof(entry));
	memcpy(at + PAGE, from + entry, CODE_BYTES);
	entry = PAGE;
	memcpy(at + ENTRY, &entry, sizeof(entry));
}

/* A kernel that adds 64 pairs, from memory of that kind that the GPU may execute, and from such that it may not. */
static void execute(uint32_t kind)
{
	enum { ITEMS = 64, DISPATCH = 2 | 1 << 8 | 2 << 9 | 2 << 11 };
	struct rkfd_exception_info info = { .size = sizeof(info) };
	struct rkfd_buffer *data, *arguments, *page;
	struct rkfd_signals *done;
	struct rkfd_event *fault;
	struct rkfd_kernel *k;
	float *numbers;

	need_code("assembly.co");
	k = kernel("vadd_by_hand");
	data = memory(RKFD_BUFFER_GTT, PAGE);
	arguments = memory(RKFD_BUFFER_GTT, PAGE);
	page = memory(RKFD_BUFFER_MMIO_REMAP, RKFD_MMIO_REMAP_BYTES);
	done = signals(1);
	OK(rkfd_exception_new(vm, RKFD_EXCEPTION_MEMORY, &fault));
	numbers = rkfd_buffer_cpu(data);
	for (unsigned int i = 0; i < ITEMS; i++) {
		numbers[i] = i;
		numbers[ITEMS + i] = 0.5;
	}
	for (unsigned int i = 0; i < 3; i++)
		((uint64_t *)rkfd_buffer_cpu(arguments))[i] = rkfd_buffer_gpu(data) + 4 * ITEMS * i;
	for (uint32_t flag = 0; flag <= RKFD_BUFFER_NO_EXECUTE; flag += RKFD_BUFFER_NO_EXECUTE) {
		struct rkfd_buffer_options o = { .size = sizeof(o) };
		struct rkfd_queue *q = queue(RKFD_QUEUE_AQL);
		uint32_t packet[16] = { 1 << 16, ITEMS | 1 << 16, 1, ITEMS, 1, 1 };
		struct rkfd_buffer *own;
		uint64_t address;

		OK(rkfd_buffer_defaults(kind, 2 * PAGE, &o));
		o.flags |= flag;
		OK(rkfd_buffer_create(vm, &o, &own));
		copy_kernel(own, k);
		/* What the CPU stored to VRAM. */
		*(volatile uint32_t *)rkfd_buffer_cpu(page) = 1;
		address = rkfd_buffer_gpu(own);
		memcpy(packet + 8, &address, 8);
		address = rkfd_buffer_gpu(arguments);
		memcpy(packet + 10, &address, 8);
		address = rkfd_signals_address(done, 0);
		memcpy(packet + 14, &address, 8);
		OK(rkfd_signals_store(done, 0, 1));
		memset(numbers + 2 * ITEMS, 0, 4 * ITEMS);
		OK(rkfd_aql_emit(q, packet, DISPATCH, NULL));
		OK(rkfd_queue_commit(q));
		if (!flag) {
			OK(rkfd_signals_wait_below(done, 0, 1, PATIENCE_MS, NULL));
			for (unsigned int i = 0; i < ITEMS; i++)
				CHECK(numbers[2 * ITEMS + i] == i + 0.5f);
			CHECK_ERR(-rkfd_exception_wait(fault, 0, &info), ETIMEDOUT);
			OK(rkfd_queue_free(q));
			continue;
		}
		OK(rkfd_exception_wait(fault, PATIENCE_MS, &info));
		CHECK_EQ(info.no_execute, 1);
		CHECK_EQ(info.not_present, 0);
		CHECK_EQ(info.read_only, 0);
		CHECK_EQ(info.address, rkfd_buffer_gpu(own) + PAGE);
		CHECK_EQ(signal_value(done, 0), 1);
		for (unsigned int i = 0; i < ITEMS; i++)
			CHECK(numbers[2 * ITEMS + i] == 0);
	}
}

CASE(no_execute_vram, "VRAM: a kernel runs, and where NO_EXECUTE is set the GPU refuses it and says why") { execute(RKFD_BUFFER_VRAM); }
CASE(no_execute_gtt, "GTT: a kernel runs, and where NO_EXECUTE is set the GPU refuses it and says why") { execute(RKFD_BUFFER_GTT); }
CASE(no_execute_userptr, "memory of the process: a kernel runs, and where NO_EXECUTE is set the GPU refuses it and says why")
{
	execute(RKFD_BUFFER_USERPTR);
}
