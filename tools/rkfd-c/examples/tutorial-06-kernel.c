// SPDX-License-Identifier: GPL-2.0 OR MIT
// 6: a kernel. Its dispatch packet, field by field.
#include "tutorial.h"

/* Type KERNEL_DISPATCH (2), barrier bit (8), acquire (9) and release (11) of the system (2). */
#define HEADER (2 | 1 << 8 | 2 << 9 | 2 << 11)
#define N 1000u

/* What the source names, each value on its own alignment. */
struct arguments {
	uint32_t n;
	float a;
	uint64_t x, y;
};

int main(int argc, char **argv)
{
	struct rkfd_kernel_info info = { .size = sizeof(info) };
	struct rkfd_buffer *xs, *ys, *kernarg;
	struct rkfd_program *program;
	struct rkfd_signals *done;
	struct rkfd_kernel *kernel;
	struct rkfd_queue *queue;
	struct rkfd_gpu *gpu;
	struct rkfd_vm *vm;
	float *x, *y;

	OK(rkfd_gpu_open(0, &gpu));
	OK(rkfd_vm_open(gpu, &vm));
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, NULL, &queue));
	OK(rkfd_signals_new(vm, 1, &done));
	program = load(vm, argc > 1 ? argv[1] : NULL);
	OK(rkfd_kernel_new(program, "saxpy", &kernel));
	OK(rkfd_kernel_describe(kernel, &info));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, N * sizeof(*x), &xs));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, N * sizeof(*y), &ys));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, info.kernarg_bytes, &kernarg));
	x = rkfd_buffer_cpu(xs);
	y = rkfd_buffer_cpu(ys);
	for (uint32_t i = 0; i < N; i++) {
		x[i] = i;
		y[i] = N - i;
	}
	*(struct arguments *)rkfd_buffer_cpu(kernarg) = (struct arguments){
		.n = N, .a = 2.5f, .x = rkfd_buffer_gpu(xs), .y = rkfd_buffer_gpu(ys),
	};

	const struct dispatch_packet packet = {
		.setup = 1,				/* dimensions of the grid */
		.workgroup_size_x = 256, .workgroup_size_y = 1, .workgroup_size_z = 1,
		.grid_size_x = 1024, .grid_size_y = 1, .grid_size_z = 1,
		.private_segment_size = info.private_bytes,
		.group_segment_size = info.group_bytes,
		.kernel_object = info.object,
		.kernarg_address = rkfd_buffer_gpu(kernarg),
		.completion_signal = rkfd_signals_address(done, 0),
	};
	OK(rkfd_signals_store(done, 0, 1));
	OK(rkfd_aql_emit(queue, (const uint32_t *)&packet, HEADER, NULL));
	OK(rkfd_queue_commit(queue));
	OK(rkfd_signals_wait_below(done, 0, 1, LIMIT_MS, NULL));

	for (uint32_t i = 0; i < N; i++)
		CHECK(y[i] == 2.5f * i + (N - i));
	printf("saxpy: %u values correct, the last one is %g\n", N, y[N - 1]);
	OK(rkfd_queue_free(queue));
	return 0;
}
