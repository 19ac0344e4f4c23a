// SPDX-License-Identifier: GPL-2.0 OR MIT
// 9: errors. A launch that the library refuses, a packet that the GPU does, and a kernel that reads what is not mapped.
#include "tutorial.h"

#include <errno.h>

/* Type AGENT_DISPATCH: work for who serves a queue in software, which no GPU does. */
#define AGENT_DISPATCH 4

int main(int argc, char **argv)
{
	struct rkfd_exception_info exception = { .size = sizeof(exception) };
	struct rkfd_queue_error_info error = { .size = sizeof(error) };
	struct rkfd_dispatch dispatch = { .size = sizeof(dispatch) };
	struct rkfd_buffer *out, *kernarg, *gone;
	const uint32_t packet[16] = { 0 };
	struct rkfd_program *program;
	struct rkfd_kernel *peek;
	struct rkfd_event *fault;
	struct rkfd_queue *queue;
	uint64_t to, from;
	struct rkfd_gpu *gpu;
	struct rkfd_vm *vm;

	OK(rkfd_gpu_open(0, &gpu));
	OK(rkfd_vm_open(gpu, &vm));
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, NULL, &queue));
	program = load(vm, argc > 1 ? argv[1] : NULL);
	OK(rkfd_kernel_new(program, "peek", &peek));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, 4096, &out));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, 4096, &kernarg));
	OK(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, 4096, &gone));
	to = rkfd_buffer_gpu(out);
	from = rkfd_buffer_gpu(gone) + 0x123 * 4;

	/* What the library can see is refused before anything is in the ring. */
	dispatch.kernarg = rkfd_buffer_cpu(kernarg);
	dispatch.arguments = (const void *[]){ &to, &from };
	dispatch.argument_count = 1;
	CHECK(rkfd_kernel_launch(queue, peek, &dispatch, NULL) == -EINVAL);
	printf("refused: %s\n", rkfd_last_error());

	/* What the packet processor does not run stops the queue for good. */
	OK(rkfd_aql_emit(queue, packet, AGENT_DISPATCH, NULL));
	OK(rkfd_queue_commit(queue));
	OK(rkfd_queue_error_wait(queue, LIMIT_MS, &error));
	printf("stopped at packet %lu: %s\n", error.packet, rkfd_reason_text(error.reason));
	CHECK(error.reason == RKFD_REASON_PACKET_FORMAT && error.packet == 0);
	CHECK(rkfd_queue_wait(queue, LIMIT_MS) == -EIO);
	OK(rkfd_queue_free(queue));

	/* A kernel that leaves the address space: the GPU tells the page, by an event. */
	OK(rkfd_exception_new(vm, RKFD_EXCEPTION_MEMORY, &fault));
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, NULL, &queue));
	rkfd_buffer_free(gone);
	dispatch.argument_count = 2;
	OK(rkfd_kernel_launch(queue, peek, &dispatch, NULL));
	OK(rkfd_queue_commit(queue));
	OK(rkfd_exception_wait(fault, LIMIT_MS, &exception));
	printf("fault at %#lx: %s\n", exception.address, exception.not_present ? "no page is there" : "not permitted");
	CHECK(exception.not_present && exception.address == (from & ~0xffful));
	OK(rkfd_queue_free(queue));
	return 0;
}
