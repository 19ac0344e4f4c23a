// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Queues through libhsakmt: every type created, fed, changed and destroyed, with its effects in memory compared. */
#include "thunk.h"

CASE(pm4_queue, "PM4 queue: packets write memory")
{
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue q;

	need_gpu();
	out = host_memory(PAGE);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	for (uint32_t i = 1; i <= 500; i++) {
		pm4_write(&k, (uintptr_t)out, i);
		submit(&q, &k);
		await(out, i, "the packet");
	}
	drop_queue(&q);
	release((void *)out, PAGE);
}

CASE(pm4_event, "PM4 queue: a packet raises the event that the program sleeps on")
{
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue q;
	HsaEvent *e;

	need_gpu();
	out = host_memory(PAGE);
	e = need_event(false);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	for (uint32_t i = 1; i <= 20; i++) {
		pm4_write(&k, (uintptr_t)out, i);
		pm4_release(&k, e->EventData.HWData2, 1, e->EventId, 2, e->EventId);
		submit(&q, &k);
		HSA_OK(hsaKmtWaitOnEvent(e, PATIENCE_MS));
		CHECK_EQ(*out, i);
	}
	drop_queue(&q);
	HSA_OK(hsaKmtDestroyEvent(e));
}

CASE_LIMIT(pm4_update, "PM4 queue: disabled by percentage and by a null ring, enabled again", 120)
{
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue q, other;

	need_gpu();
	out = host_memory(PAGE);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	need_queue(&other, HSA_QUEUE_COMPUTE);
	for (int how = 0; how < 2; how++) {
		if (how)
			HSA_OK(hsaKmtUpdateQueue(q.r.QueueId, 100, HSA_QUEUE_PRIORITY_NORMAL, NULL, 0, NULL));
		else
			HSA_OK(hsaKmtUpdateQueue(q.r.QueueId, 0, HSA_QUEUE_PRIORITY_NORMAL, q.ring, q.bytes, NULL));
		pm4_write(&k, (uintptr_t)out, how + 1);
		submit(&q, &k);
		/* The other queue's work shows that the GPU had its chance. */
		for (uint32_t i = 1; i <= 20; i++) {
			pm4_write(&k, (uintptr_t)out + 64, how << 8 | i);
			submit(&other, &k);
			await(out + 16, how << 8 | i, "the other queue");
		}
		CHECK_EQ(*out, how);
		HSA_OK(hsaKmtUpdateQueue(q.r.QueueId, 100, HSA_QUEUE_PRIORITY_MAXIMUM, q.ring, q.bytes, NULL));
		await(out, how + 1, "the disabled queue's packet");
	}
	drop_queue(&q);
	drop_queue(&other);
}

CASE(pm4_cu_mask, "PM4 queue: a CU mask is taken, a bad one refused")
{
	HSAuint32 mask[4] = { ~0u, ~0u, ~0u, ~0u };
	struct queue q;

	need_gpu();
	need_queue(&q, HSA_QUEUE_COMPUTE);
	HSA_OK(hsaKmtSetQueueCUMask(q.r.QueueId, 128, mask));
	CHECK_NE(hsaKmtSetQueueCUMask(q.r.QueueId, 31, mask), HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtSetQueueCUMask(q.r.QueueId, 0, mask), HSAKMT_STATUS_SUCCESS);
	drop_queue(&q);
}

CASE_LIMIT(pm4_many, "PM4 queues: 8 at once, each does its work", 120)
{
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue q[8];

	need_gpu();
	out = host_memory(PAGE);
	for (int i = 0; i < 8; i++)
		need_queue(&q[i], HSA_QUEUE_COMPUTE);
	for (uint32_t round = 1; round <= 5; round++) {
		for (int i = 0; i < 8; i++) {
			pm4_write(&k, (uintptr_t)(out + 16 * i), round << 8 | i);
			submit(&q[i], &k);
		}
		for (int i = 0; i < 8; i++)
			await(out + 16 * i, round << 8 | i, "a queue's write");
	}
	for (int i = 0; i < 8; i++)
		drop_queue(&q[i]);
}

CASE(sdma_queue, "SDMA queue: copy, fill, fence, and a trap that wakes")
{
	struct packets k = { .n = 0 };
	uint32_t *vram, *host;
	struct queue q;
	HsaEvent *e;

	need_gpu();
	host = host_memory(8 * PAGE);
	vram = gpu_memory(8 * PAGE, false);
	e = need_event(false);
	need_queue(&q, HSA_QUEUE_SDMA);
	for (uint32_t i = 0; i < PAGE; i++)
		host[i] = i ^ 0xa5a50000;
	sdma_copy(&k, (uintptr_t)host, (uintptr_t)vram, 4 * PAGE);
	sdma_fill(&k, (uintptr_t)vram, 0x5a5a5a5a, 64);
	sdma_copy(&k, (uintptr_t)vram, (uintptr_t)host + 4 * PAGE, 4 * PAGE);
	sdma_fence(&k, e->EventData.HWData2, e->EventId);
	sdma_trap(&k, e->EventId);
	submit(&q, &k);
	HSA_OK(hsaKmtWaitOnEvent(e, PATIENCE_MS));
	for (uint32_t i = 0; i < PAGE; i++)
		CHECK_EQ(((volatile uint32_t *)host)[PAGE + i], i < 16 ? 0x5a5a5a5a : (i ^ 0xa5a50000));
	drop_queue(&q);
	HSA_OK(hsaKmtDestroyEvent(e));
	release(vram, 8 * PAGE);
}

CASE(aql_queue, "AQL queue: created with the runtime's pointers, a barrier packet decrements its signal")
{
	volatile int64_t *signal;
	HsaQueueResource r = { 0 };
	struct backoff wait = { 0 };
	uint64_t *pointers;
	uint16_t *ring;
	uint64_t end;

	need_gpu();
	ring = host_memory(PAGE);
	pointers = host_memory(PAGE);
	signal = host_memory(PAGE);
	for (int i = 0; i < 64; i++)
		ring[i * 32] = 1; /* INVALID */
	signal[0] = 1; /* A user signal … */
	signal[1] = 5; /* … and its value. */
	/* Where amd_queue_t has its write and read index. */
	r.Queue_write_ptr_aql = (HSAuint64 *)((char *)pointers + 0x38);
	r.Queue_read_ptr_aql = (HSAuint64 *)((char *)pointers + 0x80);
	HSA_OK(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE_AQL, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, PAGE, NULL, &r));
	for (uint64_t i = 0; i < 5; i++) {
		uint16_t *packet = ring + 32 * i;

		memset(packet + 1, 0, 62);
		*(uint64_t *)(packet + 28) = (uintptr_t)signal;
		__atomic_store_n(r.Queue_write_ptr_aql, i + 1, __ATOMIC_RELEASE);
		__atomic_store_n(packet, 3 | 1 << 8 | 2 << 9 | 2 << 11, __ATOMIC_RELEASE);
		*(volatile HSAuint64 *)r.Queue_DoorBell_aql = i;
	}
	end = now_ms() + PATIENCE_MS;
	while (__atomic_load_n(&signal[1], __ATOMIC_ACQUIRE)) {
		if (now_ms() > end)
			FAIL("the signal is at %lld", (long long)signal[1]);
		back_off(&wait);
	}
	HSA_OK(hsaKmtDestroyQueue(r.QueueId));
	release(ring, PAGE);
}

CASE(queue_errors, "queues: bad ring sizes, percentages, nodes and queues are refused")
{
	HsaQueueResource r = { 0 };
	HsaQueueInfo info;
	void *ring;

	need_gpu();
	ring = host_memory(2 * PAGE);
	CHECK_NE(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE, 101, HSA_QUEUE_PRIORITY_NORMAL, ring, 2 * PAGE, NULL, &r),
		 HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, 0x1800, NULL, &r),
		 HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, PAGE, NULL, &r),
		 HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtCreateQueue(machine.NumNodes, HSA_QUEUE_COMPUTE, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, 2 * PAGE,
				   NULL, &r),
		 HSAKMT_STATUS_SUCCESS);
	/* To the library an id is an address of its own; this is the only one that it can tell to be none. */
	CHECK_NE(hsaKmtUpdateQueue(0, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, 2 * PAGE, NULL), HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtGetQueueInfo(0, &info), HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtDestroyQueue(0), HSAKMT_STATUS_SUCCESS);
	/* A refusal leaves nothing behind that would keep the right one from working. */
	HSA_OK(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, 2 * PAGE, NULL, &r));
	/* Nor do refused changes change it. */
	CHECK_NE(hsaKmtUpdateQueue(r.QueueId, 101, HSA_QUEUE_PRIORITY_NORMAL, ring, 2 * PAGE, NULL),
		 HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtUpdateQueue(r.QueueId, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, 0x1800, NULL), HSAKMT_STATUS_SUCCESS);
	HSA_OK(hsaKmtDestroyQueue(r.QueueId));
}

/* An AQL queue as the runtime makes one, and a signal that its packets decrement. */
struct aql {
	HsaQueueResource r;
	uint16_t *ring;
	volatile int64_t *signal;
	uint64_t written;
};

static void need_aql(struct aql *q)
{
	char *pointers;

	*q = (struct aql){ .ring = host_memory(PAGE), .signal = host_memory(PAGE) };
	pointers = host_memory(PAGE);
	for (int i = 0; i < 64; i++)
		q->ring[i * 32] = 1; /* INVALID */
	q->signal[0] = 1; /* A user signal. */
	/* Where amd_queue_t has its write and read index. */
	q->r.Queue_write_ptr_aql = (HSAuint64 *)(pointers + 0x38);
	q->r.Queue_read_ptr_aql = (HSAuint64 *)(pointers + 0x80);
	HSA_OK(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE_AQL, 100, HSA_QUEUE_PRIORITY_NORMAL, q->ring, PAGE, NULL,
				 &q->r));
}

/* A packet whose dwords 1 to 15 are given; the header makes it valid. */
static void put_aql(struct aql *q, const uint32_t *body, uint16_t type, uint16_t second)
{
	uint32_t *packet = (uint32_t *)q->ring + 16 * (q->written % 64);

	memcpy(packet + 1, body, 60);
	*(uint64_t *)(packet + 14) = (uintptr_t)q->signal;
	q->written++;
	__atomic_store_n(q->r.Queue_write_ptr_aql, q->written, __ATOMIC_RELEASE);
	__atomic_store_n(packet, (uint32_t)second << 16 | type | 1 << 8 | 2 << 9 | 2 << 11, __ATOMIC_RELEASE);
	*(volatile HSAuint64 *)q->r.Queue_DoorBell_aql = q->written - 1;
}

/* A PM4 buffer as a vendor packet: writes `value` to `out`. */
static void put_write(struct aql *q, uint32_t *code, volatile uint32_t *out, uint32_t value)
{
	struct packets p = { .n = 0 }, jump = { .n = 0 };
	uint32_t body[15] = { 0 };

	pm4_write(&p, (uintptr_t)out, value);
	memcpy(code, p.dw, 4 * p.n);
	pm4_ib(&jump, (uintptr_t)code, p.n);
	memcpy(body, jump.dw, 16);
	body[4] = 10;
	put_aql(q, body, 0, 1);
}

static void await_value(volatile int64_t *value, int64_t wanted)
{
	uint64_t end = now_ms() + PATIENCE_MS;
	struct backoff wait = { 0 };

	while (__atomic_load_n(value, __ATOMIC_ACQUIRE) != wanted) {
		if (now_ms() > end)
			FAIL("the signal is at %lld, not %lld", (long long)*value, (long long)wanted);
		back_off(&wait);
	}
}

CASE_LIMIT(aql_life, "AQL queue: writes memory, stops, takes a CU mask and a priority, goes on, is destroyed", 120)
{
	HSAuint32 mask[4] = { 0x0000ffff, ~0u, ~0u, ~0u };
	volatile uint32_t *out;
	struct packets k = { .n = 0 };
	uint32_t *code;
	struct queue other;
	struct aql q;

	need_gpu();
	out = host_memory(PAGE);
	code = host_memory(PAGE);
	need_aql(&q);
	need_queue(&other, HSA_QUEUE_COMPUTE);
	q.signal[1] = 100;
	for (uint32_t i = 1; i <= 10; i++) {
		put_write(&q, code, out, i);
		await_value(&q.signal[1], 100 - i);
		CHECK_EQ(*out, i);
	}
	HSA_OK(hsaKmtUpdateQueue(q.r.QueueId, 0, HSA_QUEUE_PRIORITY_NORMAL, q.ring, PAGE, NULL));
	put_write(&q, code, out, 11);
	/* The other queue's work shows that the GPU had its chance. */
	for (uint32_t i = 1; i <= 20; i++) {
		pm4_write(&k, (uintptr_t)(out + 16), i);
		submit(&other, &k);
		await(out + 16, i, "the other queue");
	}
	CHECK_EQ(*out, 10);
	CHECK_EQ(q.signal[1], 90);
	HSA_OK(hsaKmtSetQueueCUMask(q.r.QueueId, 128, mask));
	CHECK_NE(hsaKmtSetQueueCUMask(q.r.QueueId, 33, mask), HSAKMT_STATUS_SUCCESS);
	HSA_OK(hsaKmtUpdateQueue(q.r.QueueId, 100, HSA_QUEUE_PRIORITY_MAXIMUM, q.ring, PAGE, NULL));
	await_value(&q.signal[1], 89);
	CHECK_EQ(*out, 11);
	/* Through the ring's end. */
	for (uint32_t i = 12; i <= 80; i++) {
		put_write(&q, code, out, i);
		await_value(&q.signal[1], 100 - (int64_t)i);
		CHECK_EQ(*out, i);
	}
	HSA_OK(hsaKmtDestroyQueue(q.r.QueueId));
	drop_queue(&other);
}

CASE_LIMIT(sdma_life, "SDMA queue: copies, stops, goes on, is destroyed; the next one works", 120)
{
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue both[2];

	need_gpu();
	out = host_memory(PAGE);
	for (int round = 0; round < 3; round++) {
		struct queue *q = &both[0], *other = &both[1];

		need_queues(both, 2, HSA_QUEUE_SDMA);
		out[0] = 0x1000 + round;
		sdma_copy(&k, (uintptr_t)out, (uintptr_t)(out + 32), 64);
		sdma_fence(&k, (uintptr_t)(out + 1), 0x2000 + round);
		submit(q, &k);
		await(out + 1, 0x2000 + round, "the fence");
		CHECK_EQ(out[32], 0x1000 + round);
		HSA_OK(hsaKmtUpdateQueue(q->r.QueueId, 0, HSA_QUEUE_PRIORITY_NORMAL, q->ring, q->bytes, NULL));
		sdma_fence(&k, (uintptr_t)(out + 1), 0x3000 + round);
		submit(q, &k);
		for (uint32_t i = 1; i <= 20; i++) {
			sdma_fence(&k, (uintptr_t)(out + 2), round << 8 | i);
			submit(other, &k);
			await(out + 2, round << 8 | i, "the other queue");
		}
		CHECK_EQ(out[1], 0x2000 + round);
		HSA_OK(hsaKmtUpdateQueue(q->r.QueueId, 100, HSA_QUEUE_PRIORITY_NORMAL, q->ring, q->bytes, NULL));
		await(out + 1, 0x3000 + round, "the stopped queue's fence");
		drop_queue(q);
		drop_queue(other);
	}
}

CASE(cu_mask_of_sdma, "SDMA queue: a CU mask has no meaning and does not stop it")
{
	HSAuint32 mask[4] = { ~0u, ~0u, ~0u, ~0u };
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue q;

	need_gpu();
	out = host_memory(PAGE);
	need_queue(&q, HSA_QUEUE_SDMA);
	HSA_OK(hsaKmtSetQueueCUMask(q.r.QueueId, 128, mask));
	sdma_fence(&k, (uintptr_t)out, 7);
	submit(&q, &k);
	await(out, 7, "the fence");
	drop_queue(&q);
}
