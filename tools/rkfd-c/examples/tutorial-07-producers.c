// SPDX-License-Identifier: GPL-2.0 OR MIT
// 7: producers. Four threads put packets into one ring, without a lock.
#include "tutorial.h"

#include <pthread.h>

/* Type KERNEL_DISPATCH (2), acquire (9) and release (11) of the system (2); no barrier bit, so kernels may overlap. */
#define HEADER (2 | 2 << 9 | 2 << 11)
#define PRODUCERS 4u
#define LAUNCHES 32u
#define KERNARG 512u

static struct rkfd_queue *queue;

static void *produce(void *packet)
{
	for (unsigned int n = 0; n < LAUNCHES; n++) {
		uint64_t index;
		char *place;

		OK(rkfd_aql_reserve(queue, 1, LIMIT_MS, &index));
		place = rkfd_aql_place(queue, index);
		CHECK(place);
		memcpy(place + 2, (char *)packet + 2, 62);	/* all but the header */
		OK(rkfd_aql_publish(queue, index, HEADER));
		OK(rkfd_queue_commit(queue));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct rkfd_kernel_info info = { .size = sizeof(info) };
	struct rkfd_queue_info ring = { .size = sizeof(ring) };
	struct dispatch_packet packets[PRODUCERS];
	struct rkfd_buffer *counts, *kernargs;
	struct rkfd_program *program;
	pthread_t threads[PRODUCERS];
	struct rkfd_kernel *kernel;
	struct rkfd_signals *done;
	struct rkfd_gpu *gpu;
	struct rkfd_vm *vm;

	OK(rkfd_gpu_open(0, &gpu));
	OK(rkfd_vm_open(gpu, &vm));
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, NULL, &queue));
	OK(rkfd_queue_describe(queue, &ring));
	OK(rkfd_signals_new(vm, PRODUCERS, &done));
	program = load(vm, argc > 1 ? argv[1] : NULL);
	OK(rkfd_kernel_new(program, "tally", &kernel));
	OK(rkfd_kernel_describe(kernel, &info));
	CHECK(info.kernarg_bytes <= KERNARG && !info.private_bytes);
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, 4096, &counts));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, PRODUCERS * KERNARG, &kernargs));
	for (uint32_t p = 0; p < PRODUCERS; p++) {
		struct { uint64_t counts; uint32_t producer; } arguments = { rkfd_buffer_gpu(counts), p };

		memcpy((char *)rkfd_buffer_cpu(kernargs) + p * KERNARG, &arguments, sizeof(arguments));
		packets[p] = (struct dispatch_packet){
			.setup = 1, .workgroup_size_x = 1, .workgroup_size_y = 1, .workgroup_size_z = 1,
			.grid_size_x = 1, .grid_size_y = 1, .grid_size_z = 1, .kernel_object = info.object,
			.kernarg_address = rkfd_buffer_gpu(kernargs) + p * KERNARG,
			.completion_signal = rkfd_signals_address(done, p),
		};
		OK(rkfd_signals_store(done, p, LAUNCHES));
	}
	for (uint32_t p = 0; p < PRODUCERS; p++)
		CHECK(!pthread_create(&threads[p], NULL, produce, &packets[p]));
	for (uint32_t p = 0; p < PRODUCERS; p++) {
		CHECK(!pthread_join(threads[p], NULL));
		OK(rkfd_signals_wait_below(done, p, 1, LIMIT_MS, NULL));
		CHECK(((uint32_t *)rkfd_buffer_cpu(counts))[p] == LAUNCHES);
	}
	printf("%u threads, %u launches each, one ring of %lu places: each launch ran once\n", PRODUCERS, LAUNCHES,
	       ring.ring_bytes / 64);
	OK(rkfd_queue_free(queue));
	return 0;
}
