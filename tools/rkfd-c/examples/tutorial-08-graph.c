// SPDX-License-Identifier: GPL-2.0 OR MIT
// 8: a graph. A, then B and C, then D, on two queues of one GPU, ordered by barrier packets.
#include "tutorial.h"

#define ITEMS 256u
#define BYTES (ITEMS * sizeof(uint32_t))

enum { A, B, C, D, NODES };

static struct rkfd_signals *done;
static struct rkfd_buffer *kernargs;

/* Puts a node into a queue: a kernel of three or four arguments that completes the signal of the node. */
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
	struct rkfd_kernel *scale, *join;
	struct rkfd_queue *left, *right;
	struct rkfd_program *program;
	struct rkfd_buffer *data;
	uint64_t at[NODES + 1], s[NODES];
	struct rkfd_gpu *gpu;
	struct rkfd_vm *vm;
	uint32_t *values;

	OK(rkfd_gpu_open(0, &gpu));
	OK(rkfd_vm_open(gpu, &vm));
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, NULL, &left));
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, NULL, &right));
	OK(rkfd_signals_new(vm, NODES, &done));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, NODES * 512, &kernargs));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, (NODES + 1) * BYTES, &data));
	program = load(vm, argc > 1 ? argv[1] : NULL);
	OK(rkfd_kernel_new(program, "scale", &scale));
	OK(rkfd_kernel_new(program, "join", &join));
	for (int n = 0; n <= NODES; n++)
		at[n] = rkfd_buffer_gpu(data) + n * BYTES;
	for (int n = 0; n < NODES; n++) {
		s[n] = rkfd_signals_address(done, n);
		OK(rkfd_signals_store(done, n, 1));
	}
	values = rkfd_buffer_cpu(data);
	for (uint32_t i = 0; i < ITEMS; i++)
		values[NODES * ITEMS + i] = i;

	/* The right half first: it is there before what it waits for. */
	OK(rkfd_aql_barrier(right, &s[A], 1, 0, NULL));
	put(right, scale, C, (const void *[]){ &at[C], &at[A], &five, &zero }, 4);
	OK(rkfd_aql_barrier(right, (const uint64_t[]){ s[B], s[C] }, 2, 0, NULL));
	put(right, join, D, (const void *[]){ &at[D], &at[B], &at[C] }, 3);
	OK(rkfd_queue_commit(right));
	put(left, scale, A, (const void *[]){ &at[A], &at[NODES], &three, &zero }, 4);
	put(left, scale, B, (const void *[]){ &at[B], &at[A], &two, &one }, 4);
	OK(rkfd_queue_commit(left));
	OK(rkfd_signals_wait_below(done, D, 1, LIMIT_MS, NULL));

	for (uint32_t i = 0; i < ITEMS; i++)
		CHECK(values[D * ITEMS + i] == (2 * 3 * i + 1) * 1000 + 5 * 3 * i);
	printf("A, then B and C, then D: %u values correct, the last one is %u\n", ITEMS, values[D * ITEMS + ITEMS - 1]);
	OK(rkfd_queue_free(right));
	OK(rkfd_queue_free(left));
	return 0;
}
