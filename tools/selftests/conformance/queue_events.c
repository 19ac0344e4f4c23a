// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Events that a PM4 queue raises: by its packets, and by its faults.
 */
#include "model.h"
#include "pm4_queue.h"

#include <stdio.h>
#include <unistd.h>

CASE(event_wakes, "RELEASE_MEM with interrupt wakes the sleeper; its slot is idle again")
{
	struct event ev;
	struct waited w;

	begin(FLAGS_GTT);
	need_event(&f.gpu, true, &ev);
	for (int i = 0; i < 20; i++) {
		pm4_write(&f.p, f.out.va, i + 1);
		pm4_release(&f.p, ev.slot_va, 1, ev.id, 2, ev.id);
		go();
		CHECK_OK(event_wait(&f.gpu, &ev.id, 1, true, tap_ms(30000), &w));
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
		CHECK_EQ(*bo32(&f.out, 0), i + 1);
		CHECK_EQ(*(volatile uint64_t *)ev.slot_va, ~0ull);
	}
	end();
}

CASE(event_64bit_slot, "RELEASE_MEM of 64 bits to the slot wakes as well")
{
	struct event ev;
	struct waited w;

	begin(FLAGS_GTT);
	need_event(&f.gpu, true, &ev);
	pm4_release(&f.p, ev.slot_va, 2, ev.id, 2, ev.id);
	go();
	CHECK_OK(event_wait(&f.gpu, &ev.id, 1, true, tap_ms(30000), &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	end();
}

CASE(event_right_one, "a packet's interrupt signals its event and no other")
{
	struct event ev[8];
	struct waited w;

	begin(FLAGS_GTT);
	for (int i = 0; i < 8; i++)
		need_event(&f.gpu, true, &ev[i]);
	for (int i = 7; i >= 0; i--) {
		pm4_release(&f.p, ev[i].slot_va, 1, ev[i].id, 2, ev[i].id);
		go();
		CHECK_OK(event_wait(&f.gpu, &ev[i].id, 1, true, tap_ms(30000), &w));
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
		for (int j = 0; j < 8; j++) {
			CHECK_OK(event_wait(&f.gpu, &ev[j].id, 1, true, 0, &w));
			CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_TIMEOUT);
		}
	}
	end();
}

CASE(event_all_of_many, "64 events raised by one submission, waited for all at once")
{
	struct event ev[64];
	uint32_t ids[64];
	struct waited w;

	begin(FLAGS_GTT);
	for (int i = 0; i < 64; i++) {
		need_event(&f.gpu, true, &ev[i]);
		ids[i] = ev[i].id;
		pm4_release(&f.p, ev[i].slot_va, 1, ev[i].id, 2, ev[i].id);
	}
	go();
	CHECK_OK(event_wait(&f.gpu, ids, 64, true, tap_ms(30000), &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	end();
}

CASE(event_age_by_packet, "a packet's signal raises the event's age by one")
{
	struct kfd_event_data data = { 0 };
	struct event ev;
	struct waited w;

	begin(FLAGS_GTT);
	need_event(&f.gpu, true, &ev);
	data.event_id = ev.id;
	data.signal_event_data.last_event_age = 1;
	for (uint64_t age = 2; age < 6; age++) {
		int err;

		pm4_release(&f.p, ev.slot_va, 1, ev.id, 2, ev.id);
		go();
		do {
			err = event_wait_data(&f.gpu, &data, 1, true, tap_ms(30000), &w);
		} while (err == EINTR);
		CHECK_OK(err);
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
		CHECK_EQ(data.signal_event_data.last_event_age, age);
	}
	end();
}

CASE(event_unknown_id, "an interrupt with the id of no event disturbs nobody")
{
	struct event ev;
	struct waited w;

	begin(FLAGS_GTT);
	need_event(&f.gpu, true, &ev);
	pm4_release(&f.p, f.out.va, 1, 4000, 2, 4000);
	pm4_release(&f.p, f.out.va + 8, 1, 1, 0, 0);
	go();
	await32(bo32(&f.out, 8), 1, "the packet after it");
	/* The next real signal arrives, and it is the first one. */
	CHECK_OK(event_wait(&f.gpu, &ev.id, 1, true, 0, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_TIMEOUT);
	pm4_release(&f.p, ev.slot_va, 1, ev.id, 2, ev.id);
	go();
	CHECK_OK(event_wait(&f.gpu, &ev.id, 1, true, tap_ms(30000), &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	end();
}

/* Writes to an address where nothing is, and waits for the memory event that this signals. */
static uint64_t fault(struct kfd_event_data *data)
{
	struct event memory;
	struct waited w;
	uint64_t hole;
	int err;

	CHECK_OK(event_create(&f.gpu, KFD_IOC_EVENT_MEMORY, false, 0, &memory));
	hole = need_address(PAGE, PAGE);
	pm4_write(&f.p, hole + 0x128, 1);
	go();
	data->event_id = memory.id;
	do {
		err = event_wait_data(&f.gpu, data, 1, true, tap_ms(30000), &w);
	} while (err == EINTR);
	CHECK_OK(err);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	return hole;
}

CASE(fault_event, "a write to an unmapped address signals the memory event with page and GPU")
{
	struct kfd_event_data data = { 0 };
	uint64_t hole;

	begin(FLAGS_GTT);
	hole = fault(&data);
	CHECK_EQ(data.memory_exception_data.gpu_id, f.gpu.id);
	CHECK_EQ(data.memory_exception_data.va, hole);
	CHECK_EQ(data.memory_exception_data.failure.NotPresent, 1);
	CHECK_EQ(data.memory_exception_data.failure.imprecise, 0);
	CHECK_EQ(data.memory_exception_data.ErrorType, KFD_MEM_ERR_NO_RAS);
}

CASE(fault_stops, "a write to an unmapped address takes the queues of the process off the hardware")
{
	static char before[1 << 20];
	struct kfd_event_data data = { 0 };
	unsigned long doorbell;
	uint64_t limit;

	need_model();
	snprintf(before, sizeof(before), "%s", ask_model("{\"cmd\":\"queues\"}"));
	begin(FLAGS_GTT);
	pm4_write(&f.p, f.out.va, 0x600d);
	go();
	await32(bo32(&f.out, 0), 0x600d, "work");
	doorbell = new_doorbell(before, ask_model("{\"cmd\":\"queues\"}"));
	fault(&data);
	for (limit = now_ms() + WAIT_MS; has_doorbell(ask_model("{\"cmd\":\"queues\"}"), doorbell);) {
		if (now_ms() > limit)
			FAIL("the queue is still on the hardware");
		usleep(1000);
	}
}
