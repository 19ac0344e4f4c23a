// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * PM4 compute queues at work: what packets write, in which order, and what raises events.
 */
#include "kfd.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE

enum { EQUAL = 3, NOT_EQUAL = 4, GREATER_EQUAL = 5 };

struct fixture {
	struct gpu gpu;
	struct queue q;
	struct bo out;
	struct packets p;
};

static struct fixture f;

static void begin(uint32_t kind)
{
	need_vm(&f.gpu, 0);
	need_queue(&f.gpu, &f.q, COMPUTE);
	need_bo(&f.gpu, &f.out, kind, 16 * PAGE);
	f.p.n = 0;
}

static void go(void)
{
	submit(&f.q, &f.p);
	f.p.n = 0;
}

static void end(void)
{
	await_drained(&f.q);
	drop_queue(&f.gpu, &f.q);
	drop_bo(&f.gpu, &f.out);
}

static void write_lands(uint32_t kind)
{
	begin(kind);
	pm4_write(&f.p, f.out.va + 0x124, 0x600df00d);
	go();
	await32(bo32(&f.out, 0x124), 0x600df00d, "WRITE_DATA");
	/* Nothing beside it. */
	CHECK_EQ(*bo32(&f.out, 0x120), 0);
	CHECK_EQ(*bo32(&f.out, 0x128), 0);
	end();
}

CASE(write_gtt, "WRITE_DATA lands in GTT") { write_lands(FLAGS_GTT); }
CASE(write_vram, "WRITE_DATA lands in VRAM") { write_lands(FLAGS_VRAM); }
CASE(write_userptr, "WRITE_DATA lands in user memory") { write_lands(FLAGS_USERPTR); }

CASE(write_many, "WRITE_DATA of 200 dwords across a page boundary")
{
	begin(FLAGS_USERPTR);
	pm4_header(&f.p, 0x37, 203);
	put(&f.p, 5 << 8 | 1 << 20);
	put64(&f.p, f.out.va + PAGE - 400);
	for (uint32_t i = 0; i < 200; i++)
		put(&f.p, 0x1000 + i);
	go();
	await32(bo32(&f.out, PAGE - 400 + 199 * 4), 0x1000 + 199, "the last dword");
	for (uint32_t i = 0; i < 200; i++)
		CHECK_EQ(*bo32(&f.out, PAGE - 400 + 4 * i), 0x1000 + i);
	CHECK_EQ(*bo32(&f.out, PAGE + 400), 0);
	end();
}

CASE(order, "packets take effect in order")
{
	begin(FLAGS_GTT);
	for (uint32_t i = 1; i <= 100; i++)
		pm4_write(&f.p, f.out.va, i);
	pm4_copy(&f.p, 1, f.out.va, f.out.va + 64, false);
	pm4_write(&f.p, f.out.va + 128, 1);
	go();
	await32(bo32(&f.out, 128), 1, "the last packet");
	CHECK_EQ(*bo32(&f.out, 0), 100);
	CHECK_EQ(*bo32(&f.out, 64), 100);
	end();
}

CASE(nop, "NOP skips its payload, whatever that looks like")
{
	begin(FLAGS_GTT);
	pm4_header(&f.p, 0x10, 5);
	/* A packet that must not run. */
	pm4_write(&f.p, f.out.va, 0xbad);
	pm4_nop(&f.p, 1);
	put(&f.p, 0xffff1000); /* The NOP of one dword. */
	pm4_write(&f.p, f.out.va + 4, 0x11);
	go();
	await32(bo32(&f.out, 4), 0x11, "the packet after the NOPs");
	CHECK_EQ(*bo32(&f.out, 0), 0);
	end();
}

CASE(separate_doorbells, "100 submissions, each with a doorbell of its own")
{
	begin(FLAGS_GTT);
	for (uint32_t i = 1; i <= 100; i++) {
		pm4_write(&f.p, f.out.va + 4 * (i % 7), i);
		go();
		await32(bo32(&f.out, 4 * (i % 7)), i, "the packet");
	}
	end();
}

CASE(wrap, "the ring wraps, packets straddling its end, 5000 packets long")
{
	begin(FLAGS_GTT);
	/* Packets of 5 dwords in a ring of 1024: every alignment of the end occurs. */
	for (uint32_t i = 1; i <= 5000; i++) {
		pm4_write(&f.p, f.out.va, i);
		if (i % 100 == 0) {
			go();
			await_drained(&f.q);
			await32(bo32(&f.out, 0), i, "the last packet of a batch");
		}
	}
	CHECK_EQ(f.q.written, 25000);
	end();
}

CASE(read_pointer, "the read pointer wraps with the ring and ends where the write pointer is")
{
	begin(FLAGS_GTT);
	for (int round = 0; round < 5; round++) {
		pm4_nop(&f.p, 299);
		go();
		await_drained(&f.q);
		CHECK_EQ(*(volatile uint32_t *)f.q.rptr, 300 * (round + 1) % 1024);
	}
	end();
}

CASE(release_32, "RELEASE_MEM writes 32 bits and nothing beside them")
{
	begin(FLAGS_GTT);
	*bo64(&f.out, 0) = ~0ull;
	pm4_release(&f.p, f.out.va, 1, 0x1122334455667788, 0, 0);
	go();
	await32(bo32(&f.out, 0), 0x55667788, "RELEASE_MEM");
	CHECK_EQ(*bo32(&f.out, 4), 0xffffffff);
	end();
}

CASE(release_64, "RELEASE_MEM writes 64 bits")
{
	begin(FLAGS_VRAM);
	pm4_release(&f.p, f.out.va + 8, 2, 0x1122334455667788, 0, 0);
	go();
	await64(bo64(&f.out, 8), 0x1122334455667788, "RELEASE_MEM");
	end();
}

CASE(release_clock, "RELEASE_MEM writes the clock that GET_CLOCK_COUNTERS reads")
{
	struct kfd_ioctl_get_clock_counters_args before = { 0 }, after = { 0 };

	begin(FLAGS_GTT);
	before.gpu_id = after.gpu_id = f.gpu.id;
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_GET_CLOCK_COUNTERS, &before));
	pm4_release(&f.p, f.out.va, 3, 0, 0, 0);
	pm4_release(&f.p, f.out.va + 8, 3, 0, 0, 0);
	pm4_write(&f.p, f.out.va + 64, 1);
	go();
	await32(bo32(&f.out, 64), 1, "the packet after the clocks");
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_GET_CLOCK_COUNTERS, &after));
	CHECK_OP(*bo64(&f.out, 0), >=, before.gpu_clock_counter);
	CHECK_OP(*bo64(&f.out, 8), >=, *bo64(&f.out, 0));
	CHECK_OP(*bo64(&f.out, 8), <=, after.gpu_clock_counter);
	end();
}

CASE(release_after_writes, "RELEASE_MEM comes after every write before it")
{
	begin(FLAGS_GTT);
	for (uint32_t i = 0; i < 64; i++)
		pm4_write(&f.p, f.out.va + 4 * i, i + 1);
	pm4_release(&f.p, f.out.va + 1024, 2, 7, 0, 0);
	go();
	await64(bo64(&f.out, 1024), 7, "RELEASE_MEM");
	for (uint32_t i = 0; i < 64; i++)
		CHECK_EQ(*bo32(&f.out, 4 * i), i + 1);
	end();
}

CASE(indirect, "INDIRECT_BUFFER runs packets elsewhere and comes back")
{
	struct packets ib = { .n = 0 };

	begin(FLAGS_GTT);
	pm4_write(&ib, f.out.va, 0x1b);
	pm4_write(&ib, f.out.va + 4, 0x2b);
	for (unsigned int i = 0; i < ib.n; i++)
		*bo32(&f.out, 2 * PAGE + 4 * i) = ib.dw[i];
	pm4_ib(&f.p, f.out.va + 2 * PAGE, ib.n);
	pm4_write(&f.p, f.out.va + 8, 0x3b);
	go();
	await32(bo32(&f.out, 8), 0x3b, "the packet behind the buffer");
	CHECK_EQ(*bo32(&f.out, 0), 0x1b);
	CHECK_EQ(*bo32(&f.out, 4), 0x2b);
	end();
}

CASE(indirect_long, "INDIRECT_BUFFER of 3000 dwords, across pages")
{
	struct packets ib = { .n = 0 };

	begin(FLAGS_USERPTR);
	for (uint32_t i = 0; i < 600; i++)
		pm4_write(&ib, f.out.va + 8 * PAGE + 4 * i, ~i);
	for (unsigned int i = 0; i < ib.n; i++)
		*bo32(&f.out, 2 * PAGE + 4 * i) = ib.dw[i];
	pm4_ib(&f.p, f.out.va + 2 * PAGE, ib.n);
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet behind the buffer");
	for (uint32_t i = 0; i < 600; i++)
		CHECK_EQ(*bo32(&f.out, 8 * PAGE + 4 * i), ~i);
	end();
}

CASE(wait_memory, "WAIT_REG_MEM holds the queue until the CPU writes what it waits for")
{
	begin(FLAGS_GTT);
	pm4_write(&f.p, f.out.va + 4, 1);
	pm4_wait(&f.p, EQUAL, f.out.va, 42, 0xff);
	pm4_write(&f.p, f.out.va + 8, 2);
	go();
	await32(bo32(&f.out, 4), 1, "the packet before the wait");
	*bo32(&f.out, 0) = 41;
	CHECK_EQ(*bo32(&f.out, 8), 0);
	/* The mask makes this one equal. */
	*bo32(&f.out, 0) = 0xabcd002a;
	await32(bo32(&f.out, 8), 2, "the packet after the wait");
	end();
}

CASE(wait_functions, "WAIT_REG_MEM: equal, not equal, at least")
{
	begin(FLAGS_GTT);
	*bo32(&f.out, 0) = 10;
	pm4_wait(&f.p, EQUAL, f.out.va, 10, 0xffffffff);
	pm4_wait(&f.p, NOT_EQUAL, f.out.va, 11, 0xffffffff);
	pm4_wait(&f.p, GREATER_EQUAL, f.out.va, 10, 0xffffffff);
	pm4_wait(&f.p, GREATER_EQUAL, f.out.va, 9, 0xffffffff);
	pm4_write(&f.p, f.out.va + 8, 2);
	go();
	await32(bo32(&f.out, 8), 2, "the packet after the waits");
	end();
}

CASE(copy_data, "COPY_DATA: memory, immediate and clock, 32 and 64 bits")
{
	begin(FLAGS_GTT);
	*bo64(&f.out, 0) = 0x0102030405060708;
	*bo64(&f.out, 64) = *bo64(&f.out, 72) = *bo64(&f.out, 80) = ~0ull;
	pm4_copy(&f.p, 1, f.out.va, f.out.va + 64, false);
	pm4_copy(&f.p, 1, f.out.va, f.out.va + 72, true);
	pm4_copy(&f.p, 5, 0xa1b2c3d4e5f60718, f.out.va + 80, true);
	pm4_copy(&f.p, 9, 0, f.out.va + 88, true);
	pm4_write(&f.p, f.out.va + 128, 1);
	go();
	await32(bo32(&f.out, 128), 1, "the last packet");
	CHECK_EQ(*bo64(&f.out, 64), 0xffffffff05060708);
	CHECK_EQ(*bo64(&f.out, 72), 0x0102030405060708);
	CHECK_EQ(*bo64(&f.out, 80), 0xa1b2c3d4e5f60718);
	CHECK_NE(*bo64(&f.out, 88), 0);
	end();
}

CASE(atomic_add, "ATOMIC_MEM: 64-bit add, also of a negative number")
{
	begin(FLAGS_GTT);
	*bo64(&f.out, 0) = 0xffffffff;
	*bo64(&f.out, 8) = 5;
	pm4_atomic(&f.p, 47, f.out.va, 1);
	pm4_atomic(&f.p, 47, f.out.va + 8, ~0ull);
	pm4_write(&f.p, f.out.va + 64, 1);
	go();
	await32(bo32(&f.out, 64), 1, "the last packet");
	await64(bo64(&f.out, 0), 0x100000000, "the carry");
	await64(bo64(&f.out, 8), 4, "the decrement");
	end();
}

CASE(dma_data, "DMA_DATA copies bytes at odd addresses, across pages")
{
	begin(FLAGS_GTT);
	for (uint32_t i = 0; i < 6000; i++)
		*((volatile uint8_t *)f.out.va + i) = i * 7;
	pm4_dma(&f.p, f.out.va + 1, f.out.va + 8 * PAGE + 3, 5001);
	pm4_write(&f.p, f.out.va + 6 * PAGE, 1);
	go();
	await32(bo32(&f.out, 6 * PAGE), 1, "the packet after the copy");
	for (uint32_t i = 0; i < 5001; i++)
		CHECK_EQ(*((volatile uint8_t *)f.out.va + 8 * PAGE + 3 + i), (uint8_t)((i + 1) * 7));
	CHECK_EQ(*((volatile uint8_t *)f.out.va + 8 * PAGE + 2), 0);
	CHECK_EQ(*((volatile uint8_t *)f.out.va + 8 * PAGE + 3 + 5001), 0);
	end();
}

CASE(cache_packets, "ACQUIRE_MEM and EVENT_WRITE have no visible effect and let the queue go on")
{
	begin(FLAGS_GTT);
	pm4_acquire(&f.p);
	pm4_partial_flush(&f.p);
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet after them");
	end();
}

CASE(vram_to_system, "one queue moves data between VRAM, GTT and user memory")
{
	struct bo gtt, user;

	begin(FLAGS_VRAM);
	need_bo(&f.gpu, &gtt, FLAGS_GTT, PAGE);
	need_bo(&f.gpu, &user, FLAGS_USERPTR, PAGE);
	for (uint32_t i = 0; i < PAGE; i += 4)
		*bo32(&gtt, i) = i ^ 0x5a5a0000;
	pm4_dma(&f.p, gtt.va, f.out.va, PAGE);
	pm4_dma(&f.p, f.out.va, user.va, PAGE);
	pm4_write(&f.p, f.out.va + PAGE, 1);
	go();
	await32(bo32(&f.out, PAGE), 1, "the packet after the copies");
	for (uint32_t i = 0; i < PAGE; i += 4)
		CHECK_EQ(*bo32(&user, i), i ^ 0x5a5a0000);
	end();
}

/* Events raised by packets */

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

/* Several queues */

CASE(two_queues_meet, "two queues wait for each other in turn")
{
	struct queue other;
	struct packets p = { .n = 0 };

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	for (uint32_t i = 1; i <= 10; i++) {
		pm4_wait(&f.p, EQUAL, f.out.va + 64, i - 1, 0xffffffff);
		pm4_write(&f.p, f.out.va, i);
		pm4_wait(&p, EQUAL, f.out.va, i, 0xffffffff);
		pm4_write(&p, f.out.va + 64, i);
	}
	submit(&other, &p);
	go();
	await32(bo32(&f.out, 64), 10, "the tenth meeting");
	drop_queue(&f.gpu, &other);
	end();
}

CASE_LIMIT(more_than_slots, "48 queues at once, more than the hardware has slots, each does its work", 180)
{
	static struct queue q[48];
	/* One of the 24 slots is the case's own queue's. */
	int n = takes_turns() ? 48 : 23;
	struct packets p;

	begin(FLAGS_GTT);
	for (int i = 0; i < 48; i++) {
		/* The save area is large: queues share one, since nothing is ever saved in it here. */
		q[i] = f.q;
		need_bo(&f.gpu, &q[i].ring, FLAGS_GTT, 0x1000);
		need_bo(&f.gpu, &q[i].pointers, FLAGS_GTT, PAGE);
		q[i].wptr = bo64(&q[i].pointers, 8);
		q[i].rptr = bo64(&q[i].pointers, 16);
		q[i].args.ring_base_address = q[i].ring.va;
		q[i].args.write_pointer_address = q[i].pointers.va + 8;
		q[i].args.read_pointer_address = q[i].pointers.va + 16;
		if (i == n) {
			CHECK_ERR(queue_create(&f.gpu, &q[i]), ENOSPC);
			break;
		}
		CHECK_OK(queue_create(&f.gpu, &q[i]));
		CHECK_EQ(q[i].args.queue_id, i + 1);
	}
	for (uint32_t round = 1; round <= 3; round++) {
		for (int i = 0; i < n; i++) {
			p.n = 0;
			pm4_write(&p, f.out.va + 4 * i, round << 16 | i);
			submit(&q[i], &p);
		}
		for (int i = 0; i < n; i++)
			await32(bo32(&f.out, 4 * i), round << 16 | i, "a queue's write");
	}
	for (int i = 0; i < n; i++)
		CHECK_OK(queue_destroy(&f.gpu, q[i].args.queue_id));
	end();
}

CASE(paused, "a queue at 0 % does not execute; at 100 % it goes on where it was")
{
	struct queue other;
	struct packets p = { .n = 0 };

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	CHECK_OK(queue_update(&f.gpu, &f.q, 0, 7));
	pm4_write(&f.p, f.out.va, 1);
	go();
	/* The other queue's work shows that the GPU had its chance. */
	for (uint32_t i = 1; i <= 50; i++) {
		p.n = 0;
		pm4_write(&p, f.out.va + 64, i);
		submit(&other, &p);
		await32(bo32(&f.out, 64), i, "the other queue");
	}
	CHECK_EQ(*bo32(&f.out, 0), 0);
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	await32(bo32(&f.out, 0), 1, "the paused packet");
	drop_queue(&f.gpu, &other);
	end();
}

CASE(paused_by_no_ring, "a queue without a ring does not execute; with it again it goes on")
{
	struct kfd_ioctl_update_queue_args args = { .queue_percentage = 100, .queue_priority = 7 };

	begin(FLAGS_GTT);
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet before");
	args.queue_id = f.q.args.queue_id;
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_UPDATE_QUEUE, &args));
	pm4_write(&f.p, f.out.va, 2);
	go();
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	await32(bo32(&f.out, 0), 2, "the packet after");
	end();
}

CASE(created_paused, "a queue created at 0 % starts with an update")
{
	need_vm(&f.gpu, 0);
	queue_prepare(&f.gpu, &f.q, COMPUTE, 0x1000);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, PAGE);
	f.q.args.queue_percentage = 0;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	pm4_write(&f.p, f.out.va, 1);
	go();
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	await32(bo32(&f.out, 0), 1, "the packet");
	end();
}

CASE(updates_keep_work, "work survives 30 updates of its queue and of another while it runs")
{
	struct queue other;
	uint32_t n = 0;

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	for (int i = 0; i < 30; i++) {
		for (int k = 0; k < 8; k++)
			pm4_atomic(&f.p, 47, f.out.va, 1), n++;
		go();
		CHECK_OK(queue_update(&f.gpu, i % 2 ? &f.q : &other, 100, i % 16));
	}
	await64(bo64(&f.out, 0), n, "every increment, once");
	drop_queue(&f.gpu, &other);
	end();
}

CASE(destroy_waiting, "DESTROY_QUEUE of a queue that waits in WAIT_REG_MEM; another goes on")
{
	struct queue other;
	struct packets p = { .n = 0 };

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	pm4_wait(&f.p, EQUAL, f.out.va, 42, 0xffffffff);
	pm4_write(&f.p, f.out.va + 4, 1);
	go();
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
	pm4_write(&p, f.out.va + 64, 7);
	submit(&other, &p);
	await32(bo32(&f.out, 64), 7, "the other queue");
	*bo32(&f.out, 0) = 42;
	p.n = 0;
	pm4_write(&p, f.out.va + 64, 8);
	submit(&other, &p);
	await32(bo32(&f.out, 64), 8, "the other queue");
	CHECK_EQ(*bo32(&f.out, 4), 0);
	drop_queue(&f.gpu, &other);
}

CASE(recycled_doorbell, "a new queue on a recycled doorbell starts empty and does its own work")
{
	begin(FLAGS_GTT);
	for (uint32_t i = 1; i <= 20; i++) {
		uint64_t offset = f.q.args.doorbell_offset;

		for (uint32_t k = 0; k < i; k++)
			pm4_write(&f.p, f.out.va, i);
		go();
		await32(bo32(&f.out, 0), i, "the queue's work");
		drop_queue(&f.gpu, &f.q);
		need_queue(&f.gpu, &f.q, COMPUTE);
		CHECK_EQ(f.q.args.doorbell_offset, offset);
		CHECK_EQ(*(volatile uint32_t *)f.q.rptr, 0);
	}
	end();
}

/* Doorbells that mean nothing */

CASE(stray_doorbell, "a doorbell of no queue is harmless")
{
	begin(FLAGS_GTT);
	for (unsigned int i = 0; i < 0x100; i++)
		if ((volatile uint64_t *)f.q.slice + i != f.q.doorbell)
			((volatile uint64_t *)f.q.slice)[i] = 64;
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet after them");
	end();
}

CASE(repeated_doorbell, "the same doorbell value again executes nothing twice")
{
	begin(FLAGS_GTT);
	for (int i = 0; i < 10; i++) {
		pm4_atomic(&f.p, 47, f.out.va, 1);
		go();
		ring_doorbell(&f.q, f.q.written);
		ring_doorbell(&f.q, f.q.written);
	}
	await64(bo64(&f.out, 0), 10, "every increment");
	await_drained(&f.q);
	CHECK_EQ(*bo64(&f.out, 0), 10);
	end();
}

CASE(doorbell_bo_and_mmap, "the slice as a GPU-mapped buffer and as a mapping together, as the thunk has it")
{
	struct bo slice;

	begin(FLAGS_GTT);
	CHECK_OK(bo_alloc(&f.gpu, &slice, FLAGS_DOORBELL, DOORBELL_SLICE));
	CHECK(mmap((void *)slice.va, DOORBELL_SLICE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f.gpu.fd,
		   (off_t)(f.q.args.doorbell_offset & ~(DOORBELL_SLICE - 1))) != MAP_FAILED);
	CHECK_OK(bo_map(&f.gpu, &slice));
	f.q.doorbell = (volatile uint64_t *)(slice.va + (f.q.args.doorbell_offset & (DOORBELL_SLICE - 1)));
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet");
	end();
	drop_bo(&f.gpu, &slice);
}

CASE(gpu_rings, "one queue rings another's doorbell through the GPU's mapping of the slice")
{
	struct queue other;
	struct packets p = { .n = 0 };
	struct bo slice;

	begin(FLAGS_GTT);
	need_queue(&f.gpu, &other, COMPUTE);
	CHECK_OK(bo_alloc(&f.gpu, &slice, FLAGS_DOORBELL, DOORBELL_SLICE));
	CHECK_OK(bo_map(&f.gpu, &slice));
	/* The other queue's packet and pointer are there; only its doorbell is missing. */
	pm4_write(&p, f.out.va, 0x77);
	for (unsigned int i = 0; i < p.n; i++)
		*bo32(&other.ring, 4 * i) = p.dw[i];
	other.written = p.n;
	__atomic_store_n(other.wptr, other.written, __ATOMIC_RELEASE);
	pm4_release(&f.p, slice.va + (other.args.doorbell_offset & (DOORBELL_SLICE - 1)), 2, other.written, 0, 0);
	go();
	await32(bo32(&f.out, 0), 0x77, "the packet behind the doorbell");
	drop_queue(&f.gpu, &other);
	end();
	drop_bo(&f.gpu, &slice);
}

/* Memory while queues run */

CASE(map_while_running, "buffers mapped and unmapped while a queue works do not disturb it")
{
	struct bo bo;

	begin(FLAGS_GTT);
	for (uint32_t i = 1; i <= 30; i++) {
		need_bo(&f.gpu, &bo, i % 2 ? FLAGS_GTT : FLAGS_VRAM, 3 * PAGE);
		pm4_write(&f.p, bo.va + 2 * PAGE, i);
		pm4_write(&f.p, f.out.va, i);
		go();
		await32(bo32(&f.out, 0), i, "the work");
		CHECK_EQ(*bo32(&bo, 2 * PAGE), i);
		drop_bo(&f.gpu, &bo);
	}
	end();
}

CASE(remapped_elsewhere, "memory mapped anew at an address in use before: the GPU sees the new one")
{
	struct bo a;

	begin(FLAGS_GTT);
	for (uint32_t i = 1; i <= 10; i++) {
		struct kfd_ioctl_alloc_memory_of_gpu_args args = {
			.va_addr = 0x600000000000,
			.size = PAGE,
			.gpu_id = f.gpu.id,
			.flags = i % 2 ? FLAGS_GTT : FLAGS_VRAM,
		};
		volatile uint32_t *cpu;

		CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args));
		a = (struct bo){ .handle = args.handle };
		CHECK_OK(bo_map(&f.gpu, &a));
		cpu = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, f.gpu.drm, args.mmap_offset);
		CHECK(cpu != MAP_FAILED);
		pm4_write(&f.p, args.va_addr + 8, i);
		pm4_write(&f.p, f.out.va, i);
		go();
		await32(bo32(&f.out, 0), i, "the work");
		CHECK_EQ(cpu[2], i);
		munmap((void *)cpu, PAGE);
		CHECK_OK(bo_unmap(&f.gpu, &a));
		CHECK_OK(bo_free(&f.gpu, &a));
	}
	end();
}

CASE(large_pages, "a 4 MiB buffer in large pages: first, last and middle dwords")
{
	struct bo big;

	begin(FLAGS_GTT);
	need_bo(&f.gpu, &big, FLAGS_VRAM, 4 << 20);
	for (uint64_t at = 0; at < 4 << 20; at += (2 << 20) - 4)
		pm4_write(&f.p, big.va + at, at + 1);
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the last packet");
	for (uint64_t at = 0; at < 4 << 20; at += (2 << 20) - 4)
		CHECK_EQ(*bo32(&big, at), at + 1);
	drop_bo(&f.gpu, &big);
	end();
}

CASE(ring_in_vram, "a ring in VRAM")
{
	need_vm(&f.gpu, 0);
	queue_prepare(&f.gpu, &f.q, COMPUTE, 0x1000);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, PAGE);
	drop_bo(&f.gpu, &f.q.ring);
	need_bo(&f.gpu, &f.q.ring, FLAGS_VRAM, 0x1000);
	f.q.args.ring_base_address = f.q.ring.va;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	for (uint32_t i = 1; i <= 300; i++) {
		pm4_write(&f.p, f.out.va, i);
		go();
		await32(bo32(&f.out, 0), i, "the packet");
	}
	end();
}

CASE(fault_event, "a write to an unmapped address signals the memory event with page and GPU")
{
	struct kfd_event_data data = { 0 };
	struct event memory;
	struct waited w;
	uint64_t hole;
	int err;

	begin(FLAGS_GTT);
	CHECK_OK(event_create(&f.gpu, KFD_IOC_EVENT_MEMORY, false, 0, &memory));
	hole = need_address(PAGE, PAGE);
	pm4_write(&f.p, hole + 0x128, 1);
	go();
	data.event_id = memory.id;
	do {
		err = event_wait_data(&f.gpu, &data, 1, true, tap_ms(30000), &w);
	} while (err == EINTR);
	CHECK_OK(err);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data.memory_exception_data.gpu_id, f.gpu.id);
	CHECK_EQ(data.memory_exception_data.va, hole);
	CHECK_EQ(data.memory_exception_data.failure.NotPresent, 1);
	CHECK_EQ(data.memory_exception_data.failure.imprecise, 0);
	CHECK_EQ(data.memory_exception_data.ErrorType, KFD_MEM_ERR_NO_RAS);
}

