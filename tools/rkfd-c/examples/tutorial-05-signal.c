// SPDX-License-Identifier: GPL-2.0 OR MIT
// 5: a signal. The first AQL packets do nothing but wait for a signal and complete another one.
#include "tutorial.h"

#include <unistd.h>

enum { GATE, DONE, SIGNALS };

/* Type BARRIER_AND (3), barrier bit (8), acquire (9) and release (11) of the system (2). */
#define HEADER (3 | 1 << 8 | 2 << 9 | 2 << 11)

/* Named as hsa_barrier_and_packet_t of hsa.h. */
struct barrier_and_packet {
	uint16_t header, reserved0;
	uint32_t reserved1;
	uint64_t dep_signal[5], reserved2, completion_signal;
};

int main(void)
{
	struct barrier_and_packet packet = { 0 };
	struct rkfd_signals *signals;
	struct rkfd_queue *queue;
	struct rkfd_event *event;
	struct rkfd_gpu *gpu;
	struct rkfd_vm *vm;
	int64_t value;

	OK(rkfd_gpu_open(0, &gpu));
	OK(rkfd_vm_open(gpu, &vm));
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, NULL, &queue));
	OK(rkfd_signals_new(vm, SIGNALS, &signals));

	/* Polled: nothing but loads of memory. */
	OK(rkfd_signals_store(signals, DONE, 1));
	packet.completion_signal = rkfd_signals_address(signals, DONE);
	OK(rkfd_aql_emit(queue, (const uint32_t *)&packet, HEADER, NULL));
	OK(rkfd_queue_commit(queue));
	for (unsigned int ms = 0; !rkfd_signals_load(signals, DONE, &value) && value > 0; ms++) {
		CHECK(ms < LIMIT_MS);
		usleep(1000);
	}
	printf("polled: the signal is %ld\n", value);
	CHECK(value == 0);

	/* Asleep: the completion raises an event. Before, the packet waits for the program. */
	OK(rkfd_event_new(vm, 1, &event));
	OK(rkfd_signals_attach(signals, DONE, event));
	OK(rkfd_signals_store(signals, GATE, 1));
	OK(rkfd_signals_store(signals, DONE, 1));
	packet.dep_signal[0] = rkfd_signals_address(signals, GATE);
	OK(rkfd_aql_emit(queue, (const uint32_t *)&packet, HEADER, NULL));
	OK(rkfd_queue_commit(queue));
	OK(rkfd_signals_load(signals, DONE, &value));
	printf("the gate is shut: the signal is %ld\n", value);
	CHECK(value == 1);
	OK(rkfd_signals_store(signals, GATE, 0));
	OK(rkfd_event_wait(event, LIMIT_MS));
	OK(rkfd_signals_load(signals, DONE, &value));
	printf("asleep until the event: the signal is %ld\n", value);
	CHECK(value == 0);

	OK(rkfd_queue_free(queue));
	rkfd_event_free(event);
	rkfd_signals_free(signals);
	rkfd_vm_close(vm);
	rkfd_gpu_close(gpu);
	return 0;
}
