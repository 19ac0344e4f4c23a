// SPDX-License-Identifier: GPL-2.0 OR MIT
// 10: two GPUs. The graph of 8, A and B on the one GPU, C and D on the other, ordered by signals alone.
#include "tutorial.h"

#define ITEMS 256u
#define BYTES (ITEMS * sizeof(uint32_t))

enum { A, B, C, D, NODES };

static struct rkfd_signals *done;
static struct rkfd_buffer *kernargs;

static void put(struct rkfd_queue *queue, struct rkfd_kernel *kernel, int node, const void *const *arguments, int count)
{
	const struct rkfd_dispatch dispatch = {
		.size = sizeof(dispatch), .grid = { ITEMS }, .group = { ITEMS },
		.arguments = arguments, .argument_count = count,
		.kernarg = (char *)rkfd_buffer_cpu(kernargs) + 512 * node,
		.completion = rkfd_signals_address(done, node),
	};

	OK(rkfd_kernel_launch(queue, kernel, &dispatch, NULL));
}

int main(int argc, char **argv)
{
	static const uint32_t zero = 0, one = 1, two = 2, three = 3, five = 5;
	struct rkfd_kernel *scale[2], *join;
	uint64_t at[NODES + 1], s[NODES];
	struct rkfd_queue *queue[2];
	struct rkfd_buffer *data;
	struct rkfd_vm *vm[2];
	uint32_t *values;

	for (int n = 0; n < 2; n++) {
		struct rkfd_gpu_info info = { .size = sizeof(info) };
		struct rkfd_gpu *gpu;

		OK(rkfd_gpu_open(n, &gpu));
		OK(rkfd_gpu_describe(gpu, &info));
		OK(rkfd_vm_open(gpu, &vm[n]));
		OK(rkfd_queue_new(vm[n], RKFD_QUEUE_AQL, NULL, &queue[n]));
		OK(rkfd_kernel_new(load(vm[n], argc > 1 ? argv[1] : NULL), "scale", &scale[n]));
		printf("GPU %d: %s\n", n, gfx(info.gfx_target_version));
	}
	OK(rkfd_kernel_new(load(vm[1], argv[1]), "join", &join));
	OK(rkfd_signals_new(vm[0], NODES, &done));
	OK(rkfd_buffer_new(vm[0], RKFD_BUFFER_GTT, NODES * 512, &kernargs));
	OK(rkfd_buffer_new(vm[0], RKFD_BUFFER_GTT, (NODES + 1) * BYTES, &data));
	OK(rkfd_signals_share(done, vm[1]));
	OK(rkfd_buffer_share(kernargs, vm[1]));
	OK(rkfd_buffer_share(data, vm[1]));
	for (int n = 0; n <= NODES; n++)
		at[n] = rkfd_buffer_gpu(data) + n * BYTES;
	for (int n = 0; n < NODES; n++) {
		s[n] = rkfd_signals_address(done, n);
		OK(rkfd_signals_store(done, n, 1));
	}
	values = rkfd_buffer_cpu(data);
	for (uint32_t i = 0; i < ITEMS; i++)
		values[NODES * ITEMS + i] = i;

	OK(rkfd_aql_barrier(queue[1], &s[A], 1, 0, NULL));
	put(queue[1], scale[1], C, (const void *[]){ &at[C], &at[A], &five, &zero }, 4);
	OK(rkfd_aql_barrier(queue[1], (const uint64_t[]){ s[B], s[C] }, 2, 0, NULL));
	put(queue[1], join, D, (const void *[]){ &at[D], &at[B], &at[C] }, 3);
	OK(rkfd_queue_commit(queue[1]));
	put(queue[0], scale[0], A, (const void *[]){ &at[A], &at[NODES], &three, &zero }, 4);
	put(queue[0], scale[0], B, (const void *[]){ &at[B], &at[A], &two, &one }, 4);
	OK(rkfd_queue_commit(queue[0]));
	OK(rkfd_signals_wait_below(done, D, 1, LIMIT_MS, NULL));

	for (uint32_t i = 0; i < ITEMS; i++)
		CHECK(values[D * ITEMS + i] == (2 * 3 * i + 1) * 1000 + 5 * 3 * i);
	printf("%u values correct, the last one is %u\n", ITEMS, values[D * ITEMS + ITEMS - 1]);
	return 0;
}
