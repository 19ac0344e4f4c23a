// SPDX-License-Identifier: GPL-2.0 OR MIT
// Work from a kernel, in C: each work-item has the CPU add two numbers. The argument is the file that tasks.hip was compiled to.
#include "tutorial.h"

static int add(void *data, const struct rkfd_call *call, uint64_t *value)
{
	const uint64_t *words = call->arguments;

	*value = words[0] + words[1];
	return RKFD_OUTCOME_DONE;
}

int main(int argc, char **argv)
{
	struct rkfd_workers_options options = { .size = sizeof(options) };
	struct rkfd_area_info area = { .size = sizeof(area) };
	struct rkfd_dispatch dispatch = { .size = sizeof(dispatch), .grid = { 64 }, .group = { 64 } };
	const uint64_t numbers[] = { 40, 2 };
	struct rkfd_task task = {
		.size = sizeof(task), .function = 1, .arguments = numbers, .bytes = sizeof(numbers)
	};
	struct rkfd_functions *functions;
	struct rkfd_workers *workers;
	struct rkfd_program *program;
	struct rkfd_buffer *memory;
	struct rkfd_kernel *kernel;
	struct rkfd_signals *done;
	struct rkfd_queue *queue;
	struct rkfd_gpu *gpu;
	struct rkfd_vm *vm;
	uint64_t tasks, out, future, sum, left;

	CHECK(argc == 2);
	OK(rkfd_gpu_open(0, &gpu));
	OK(rkfd_vm_open(gpu, &vm));

	/* Workers for the GPU and for the program itself. */
	OK(rkfd_functions_new(&functions));
	OK(rkfd_functions_add(functions, 1, 16, 16, add, NULL));	/* number 1, 16 bytes of arguments */
	OK(rkfd_workers_defaults(&options));
	options.gpus = (const struct rkfd_vm *[]){ vm };
	options.gpu_count = 1;
	OK(rkfd_workers_new(functions, &options, &workers));

	/* A task of the program's. */
	OK(rkfd_workers_submit(workers, &task, LIMIT_MS, &future));
	OK(rkfd_workers_wait(workers, future, LIMIT_MS, &sum));
	printf("the program asked for %lu\n", (unsigned long)sum);

	/* 64 of a kernel's, which gets the address of its GPU's area. */
	program = load(vm, argv[1]);
	OK(rkfd_kernel_new(program, "sums", &kernel));
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, NULL, &queue));
	OK(rkfd_signals_new(vm, 1, &done));
	OK(rkfd_signals_store(done, 0, 1));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, 8192, &memory));
	tasks = rkfd_workers_address(workers, 0);
	out = rkfd_buffer_gpu(memory);
	dispatch.arguments = (const void *[]){ &tasks, &out };
	dispatch.argument_count = 2;
	dispatch.kernarg = (char *)rkfd_buffer_cpu(memory) + 4096;
	dispatch.completion = rkfd_signals_address(done, 0);
	OK(rkfd_kernel_launch(queue, kernel, &dispatch, NULL));
	OK(rkfd_queue_commit(queue));
	OK(rkfd_signals_wait_below(done, 0, 1, LIMIT_MS, NULL));
	for (uint64_t i = 0; i < 64; i++)
		CHECK(((uint64_t *)rkfd_buffer_cpu(memory))[i] == i + 2);
	OK(rkfd_workers_area(workers, 0, &area));
	printf("the kernel asked for 2 to 65, by %lu tasks\n", (unsigned long)area.done);

	/* The workers end first, and then their memory goes. */
	OK(rkfd_workers_stop(workers, RKFD_STOP_DRAINED, LIMIT_MS, &left));
	OK(rkfd_workers_free(workers));
	printf("%lu tasks are left\n", (unsigned long)left);
	rkfd_functions_free(functions);
	return 0;
}
