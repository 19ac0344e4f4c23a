// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Interrupt rings that overflow: who sleeps on an event whose interrupt was lost is woken nevertheless.
 *
 * Needs the device model: its control port makes message-signalled interrupts vanish. The driver then reads the ring
 * only when its watchdog looks, and another process's interrupts fill the ring before that.
 */
#include "debugfs.h"
#include "kfd.h"
#include "model.h"

#include <string.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
/* More than the 8192 vectors of a ring of 256 KiB. */
#define STORM 12288u
#define PACKET_BYTES 32u
/* Overflows to be lived through, and attempts at them. */
#define OVERFLOWS 5
#define ROUNDS 60

/* A process that raises STORM interrupts for each byte that it is sent, and sends it back when they are raised. */
static void storms(int hear, int tell)
{
	struct packets one = { .n = 0 }, p = { .n = 0 };
	struct bo ib, out;
	struct event event;
	struct queue q;
	struct gpu gpu;
	uint32_t round = 0;
	char byte;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	need_event(&gpu, true, &event);
	need_bo(&gpu, &ib, FLAGS_GTT, STORM * PACKET_BYTES);
	need_bo(&gpu, &out, FLAGS_GTT, PAGE);
	pm4_release(&one, event.slot_va, 2, event.id, 2, event.id);
	CHECK_EQ(one.n * 4, PACKET_BYTES);
	for (unsigned int i = 0; i < STORM; i++)
		memcpy((void *)bo32(&ib, i * PACKET_BYTES), one.dw, PACKET_BYTES);
	while (read(hear, &byte, 1) == 1) {
		p.n = 0;
		pm4_ib(&p, ib.va, STORM * PACKET_BYTES / 4);
		pm4_write(&p, out.va, ++round);
		submit(&q, &p);
		await32(bo32(&out, 0), round, "the last interrupt of a storm");
		CHECK_EQ(write(tell, &byte, 1), 1);
	}
}

CASE_LIMIT(sleeper, "a ring overflows: who sleeps on an event whose interrupt was lost is woken", 200)
{
	int there[2], back[2];
	unsigned int lived = 0;
	struct packets p;
	struct event event;
	struct queue q;
	struct gpu gpu;
	struct bo out;
	char byte = 0;
	pid_t child;

	need_model();
	CHECK_EQ(pipe(there), 0);
	CHECK_EQ(pipe(back), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(there[1]);
		storms(there[0], back[1]);
		_exit(0);
	}
	close(back[1]);
	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	need_event(&gpu, true, &event);
	need_bo(&gpu, &out, FLAGS_GTT, PAGE);
	ask_model("{\"cmd\":\"fault\",\"kind\":\"drop-msi\"}");
	for (uint32_t round = 1; lived < OVERFLOWS; round++) {
		unsigned long before = ih_counter("overflow");
		struct waited w;

		if (round > ROUNDS)
			FAIL("the ring overflowed in %u of %u rounds", lived, ROUNDS);
		p.n = 0;
		pm4_release(&p, event.slot_va, 2, event.id, 2, event.id);
		pm4_write(&p, out.va, round);
		submit(&q, &p);
		await32(bo32(&out, 0), round, "the packet behind the interrupt");
		CHECK_EQ(write(there[1], &byte, 1), 1);
		if (read(back[0], &byte, 1) != 1)
			child_gave_up(child);
		CHECK_OK(event_wait(&gpu, &event.id, 1, true, tap_ms(20000), &w));
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
		/* Each signal is there once. */
		CHECK_EQ(event_poll(&gpu, event.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
		lived += ih_counter("overflow") != before;
	}
	ask_model("{\"cmd\":\"clear-faults\"}");
	close(there[1]);
}
