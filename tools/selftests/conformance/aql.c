// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * AQL queues at work: barrier packets, signals, and slots that are reserved before they are valid.
 */
#include "backoff.h"
#include "kfd.h"

#include <string.h>

#define AQL KFD_IOC_QUEUE_TYPE_COMPUTE_AQL

enum { INVALID = 1, AND = 3, OR = 5 };

/* amd_signal_t: 64 bytes. */
struct signal {
	int64_t kind;
	int64_t value;
	uint64_t mailbox;
	uint32_t event_id;
	uint32_t reserved;
	uint64_t start, end;
	uint64_t queue;
	uint32_t more[2];
};

struct barrier {
	uint16_t header, reserved0;
	uint32_t reserved1;
	uint64_t dep[5];
	uint64_t reserved2;
	uint64_t completion;
};

struct fixture {
	struct gpu gpu;
	struct queue q;
	struct bo signals;
};

static struct fixture f;

static volatile struct signal *signal_of(unsigned int n)
{
	return (volatile struct signal *)(f.signals.va + 64 * n);
}

static uint64_t address_of(unsigned int n)
{
	return f.signals.va + 64 * n;
}

static void begin(void)
{
	need_vm(&f.gpu, 0);
	need_queue(&f.gpu, &f.q, AQL);
	need_bo(&f.gpu, &f.signals, FLAGS_GTT, PAGE);
	for (unsigned int i = 0; i < 64; i++) {
		signal_of(i)->kind = 1;
		signal_of(i)->value = 1;
	}
}

static void end(void)
{
	await64(f.q.rptr, f.q.written, "read_dispatch_id");
	drop_queue(&f.gpu, &f.q);
	drop_bo(&f.gpu, &f.signals);
}

static volatile struct barrier *slot(uint64_t index)
{
	return (volatile struct barrier *)(f.q.ring.va + 64 * (index % (f.q.args.ring_size / 64)));
}

/* Takes a slot: the packet is there but for its header. */
static uint64_t reserve(const uint64_t *deps, unsigned int n, uint64_t completion)
{
	uint64_t index = f.q.written++;
	volatile struct barrier *b = slot(index);

	CHECK_EQ(b->header & 0xff, INVALID);
	for (unsigned int i = 0; i < 5; i++)
		b->dep[i] = i < n ? deps[i] : 0;
	b->completion = completion;
	b->reserved1 = 0;
	b->reserved2 = 0;
	__atomic_store_n(f.q.wptr, f.q.written, __ATOMIC_RELEASE);
	return index;
}

/* Barrier bit, acquire and release at system scope. */
static void publish(uint64_t index, unsigned int type)
{
	__atomic_store_n(&slot(index)->header, type | 1 << 8 | 2 << 9 | 2 << 11, __ATOMIC_RELEASE);
	ring_doorbell(&f.q, index);
}

static void barrier(unsigned int type, const uint64_t *deps, unsigned int n, uint64_t completion)
{
	publish(reserve(deps, n, completion), type);
}

static void await_signal(unsigned int n, int64_t value)
{
	await64((volatile uint64_t *)&signal_of(n)->value, value, "a signal's value");
}

/*
 * Shows that the GPU had its chance: a second queue of this process, created after the packets that must wait were
 * published, executes many packets. A queue that is not blocked would have executed its few in the meantime.
 */
static void let_others_run(void)
{
	volatile int64_t *value;
	struct queue other;
	struct bo done;

	need_queue(&f.gpu, &other, AQL);
	need_bo(&f.gpu, &done, FLAGS_GTT, PAGE);
	value = (volatile int64_t *)(done.va + 8);
	*(volatile int64_t *)done.va = 1;
	for (uint64_t round = 0; round < 20; round++) {
		volatile struct barrier *b = (volatile struct barrier *)(other.ring.va + 64 * round);

		*value = 1;
		for (int i = 0; i < 5; i++)
			b->dep[i] = 0;
		b->reserved1 = 0;
		b->reserved2 = 0;
		b->completion = done.va;
		other.written = round + 1;
		__atomic_store_n(other.wptr, other.written, __ATOMIC_RELEASE);
		__atomic_store_n(&b->header, AND | 1 << 8, __ATOMIC_RELEASE);
		ring_doorbell(&other, round);
		await64((volatile uint64_t *)value, 0, "the other queue's signal");
	}
	drop_queue(&f.gpu, &other);
	drop_bo(&f.gpu, &done);
}

CASE(completes, "a barrier without dependencies decrements its completion signal")
{
	begin();
	barrier(AND, NULL, 0, address_of(0));
	await_signal(0, 0);
	CHECK_EQ(signal_of(1)->value, 1);
	end();
}

CASE(decrements, "a completion signal counts down by one per packet")
{
	begin();
	signal_of(0)->value = 100;
	for (int i = 0; i < 50; i++)
		barrier(i % 2 ? AND : OR, NULL, 0, address_of(0));
	await_signal(0, 50);
	end();
}

CASE(consumed, "consumed slots are INVALID again and the read index counts them")
{
	begin();
	for (int i = 0; i < 10; i++)
		barrier(AND, NULL, 0, 0);
	await64(f.q.rptr, 10, "read_dispatch_id");
	for (int i = 0; i < 10; i++)
		CHECK_EQ(slot(i)->header & 0xff, INVALID);
	end();
}

CASE(and_waits, "barrier-AND waits for all of its dependencies")
{
	uint64_t deps[3];

	begin();
	for (int i = 0; i < 3; i++)
		deps[i] = address_of(i + 1);
	barrier(AND, deps, 3, address_of(0));
	signal_of(1)->value = 0;
	signal_of(3)->value = 0;
	let_others_run();
	CHECK_EQ(signal_of(0)->value, 1);
	signal_of(2)->value = 0;
	await_signal(0, 0);
	end();
}

CASE(or_waits, "barrier-OR waits for any of its dependencies")
{
	uint64_t deps[3];

	begin();
	for (int i = 0; i < 3; i++)
		deps[i] = address_of(i + 1);
	barrier(OR, deps, 3, address_of(0));
	let_others_run();
	CHECK_EQ(signal_of(0)->value, 1);
	signal_of(2)->value = 0;
	await_signal(0, 0);
	CHECK_EQ(signal_of(1)->value, 1);
	CHECK_EQ(signal_of(3)->value, 1);
	end();
}

CASE(chain, "packets that depend on each other's signals run in turn")
{
	begin();
	for (unsigned int i = 0; i < 30; i++) {
		uint64_t dep = address_of(i);

		barrier(AND, &dep, 1, address_of(i + 1));
	}
	let_others_run();
	CHECK_EQ(signal_of(1)->value, 1);
	CHECK_EQ(signal_of(30)->value, 1);
	signal_of(0)->value = 0;
	for (unsigned int i = 1; i <= 30; i++)
		await_signal(i, 0);
	end();
}

CASE(invalid_slot, "a slot that is reserved but not valid stops the queue until its header comes")
{
	uint64_t first, second;

	begin();
	barrier(AND, NULL, 0, address_of(0));
	await_signal(0, 0);
	first = reserve(NULL, 0, address_of(1));
	second = reserve(NULL, 0, address_of(2));
	/* The later packet is published first, as two producers may. */
	publish(second, AND);
	let_others_run();
	CHECK_EQ(signal_of(2)->value, 1);
	CHECK_EQ(signal_of(1)->value, 1);
	publish(first, AND);
	await_signal(1, 0);
	await_signal(2, 0);
	end();
}

CASE(wrap, "1000 packets through a ring of 64")
{
	begin();
	signal_of(0)->value = 1000;
	for (int i = 0; i < 1000; i++) {
		uint64_t end_at = now_ms() + tap_ms(30000);
		struct backoff wait = { 0 };

		while (f.q.written - *f.q.rptr >= 64) {
			if (now_ms() > end_at)
				FAIL("the ring stays full at %llu", (unsigned long long)f.q.written);
			back_off(&wait);
		}
		barrier(AND, NULL, 0, address_of(0));
	}
	await_signal(0, 0);
	end();
}

CASE(one_doorbell_for_many, "one doorbell for many packets: the newest index is enough")
{
	uint64_t index[20];

	begin();
	signal_of(0)->value = 20;
	for (int i = 0; i < 20; i++)
		index[i] = reserve(NULL, 0, address_of(0));
	for (int i = 0; i < 20; i++)
		__atomic_store_n(&slot(index[i])->header, AND | 1 << 8, __ATOMIC_RELEASE);
	ring_doorbell(&f.q, index[19]);
	await_signal(0, 0);
	end();
}

CASE(event, "a completion signal with a mailbox wakes the sleeper on its event")
{
	struct event ev;
	struct waited w;

	begin();
	need_event(&f.gpu, true, &ev);
	for (int i = 0; i < 10; i++) {
		signal_of(0)->value = 1;
		signal_of(0)->mailbox = ev.slot_va;
		signal_of(0)->event_id = ev.id;
		barrier(AND, NULL, 0, address_of(0));
		CHECK_OK(event_wait(&f.gpu, &ev.id, 1, true, tap_ms(30000), &w));
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
		/* The value changes before the interrupt. */
		CHECK_EQ(signal_of(0)->value, 0);
	}
	end();
}

CASE(across_queues, "a packet of one queue waits for a signal that another queue's packet completes")
{
	volatile struct barrier *b;
	struct queue other;
	uint64_t dep;

	begin();
	need_queue(&f.gpu, &other, AQL);
	dep = address_of(1);
	barrier(AND, &dep, 1, address_of(0));
	b = (volatile struct barrier *)other.ring.va;
	for (int i = 0; i < 5; i++)
		b->dep[i] = 0;
	b->completion = address_of(1);
	other.written = 1;
	__atomic_store_n(other.wptr, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&b->header, AND | 1 << 8, __ATOMIC_RELEASE);
	ring_doorbell(&other, 0);
	await_signal(1, 0);
	await_signal(0, 0);
	drop_queue(&f.gpu, &other);
	end();
}

CASE(vendor_pm4, "a vendor packet runs a PM4 buffer and then completes its signal")
{
	struct packets p = { .n = 0 }, jump = { .n = 0 };
	volatile uint32_t *dw;
	struct bo ib;
	uint64_t index;

	begin();
	need_bo(&f.gpu, &ib, FLAGS_GTT, 2 * PAGE);
	pm4_write(&p, ib.va + PAGE, 0x600d);
	pm4_acquire(&p);
	for (unsigned int i = 0; i < p.n; i++)
		*bo32(&ib, 4 * i) = p.dw[i];
	pm4_ib(&jump, ib.va, p.n);
	CHECK_EQ(jump.n, 4);
	index = reserve(NULL, 0, address_of(0));
	dw = (volatile uint32_t *)slot(index);
	for (int i = 0; i < 4; i++)
		dw[1 + i] = jump.dw[i];
	dw[5] = 10;
	for (int i = 6; i < 14; i++)
		dw[i] = 0;
	/* Format 1 (PM4 buffer) above the header of type 0. */
	__atomic_store_n(&dw[0], 1u << 16 | 1 << 8 | 2 << 9 | 2 << 11, __ATOMIC_RELEASE);
	ring_doorbell(&f.q, index);
	await_signal(0, 0);
	CHECK_EQ(*bo32(&ib, PAGE), 0x600d);
	end();
	drop_bo(&f.gpu, &ib);
}

CASE(paused, "an AQL queue at 0 % does not execute; at 100 % it goes on")
{
	begin();
	CHECK_OK(queue_update(&f.gpu, &f.q, 0, 7));
	barrier(AND, NULL, 0, address_of(0));
	let_others_run();
	CHECK_EQ(signal_of(0)->value, 1);
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	await_signal(0, 0);
	end();
}
