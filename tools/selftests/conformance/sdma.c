// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SDMA queues at work.
 */
#include "kfd.h"

#include <string.h>

#define SDMA KFD_IOC_QUEUE_TYPE_SDMA

struct fixture {
	struct gpu gpu;
	struct queue q;
	struct bo a, b;
	struct packets p;
};

static struct fixture f;

static void begin(uint32_t kind_a, uint32_t kind_b, uint64_t size)
{
	need_vm(&f.gpu, 0);
	need_queue(&f.gpu, &f.q, SDMA);
	need_bo(&f.gpu, &f.a, kind_a, size);
	need_bo(&f.gpu, &f.b, kind_b, size);
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
	drop_bo(&f.gpu, &f.a);
	drop_bo(&f.gpu, &f.b);
}

static void await_fence(uint32_t value)
{
	await32(bo32(&f.b, f.b.size - 4), value, "the fence");
}

static void fence(uint32_t value)
{
	sdma_fence(&f.p, f.b.va + f.b.size - 4, value);
}

CASE(write, "WRITE_LINEAR stores its dwords and nothing beside them")
{
	uint32_t data[40];

	begin(FLAGS_GTT, FLAGS_GTT, 2 * PAGE);
	for (int i = 0; i < 40; i++)
		data[i] = 0x100 + i;
	sdma_write(&f.p, f.a.va + PAGE - 80, data, 40);
	fence(1);
	go();
	await_fence(1);
	for (int i = 0; i < 40; i++)
		CHECK_EQ(*bo32(&f.a, PAGE - 80 + 4 * i), 0x100 + i);
	CHECK_EQ(*bo32(&f.a, PAGE - 84), 0);
	CHECK_EQ(*bo32(&f.a, PAGE + 80), 0);
	end();
}

static void copies(uint32_t from, uint32_t to, uint32_t bytes)
{
	begin(from, to, (bytes + 2 * PAGE) & ~(PAGE - 1));
	for (uint32_t i = 0; i < bytes / 4; i++)
		*bo32(&f.a, 4 * i) = i * 0x9e3779b9;
	sdma_copy(&f.p, f.a.va, f.b.va, bytes);
	fence(1);
	go();
	await_fence(1);
	for (uint32_t i = 0; i < bytes / 4; i++)
		CHECK_EQ(*bo32(&f.b, 4 * i), i * 0x9e3779b9);
	CHECK_EQ(*bo32(&f.b, bytes), 0);
	end();
}

CASE(copy_gtt_vram, "COPY_LINEAR from GTT to VRAM, 64 KiB") { copies(FLAGS_GTT, FLAGS_VRAM, 0x10000); }
CASE(copy_vram_gtt, "COPY_LINEAR from VRAM to GTT, 64 KiB") { copies(FLAGS_VRAM, FLAGS_GTT, 0x10000); }
CASE(copy_user_vram, "COPY_LINEAR from user memory to VRAM, 64 KiB") { copies(FLAGS_USERPTR, FLAGS_VRAM, 0x10000); }
CASE(copy_large, "COPY_LINEAR of 4 MiB, the largest that every version takes") { copies(FLAGS_GTT, FLAGS_VRAM, 4 << 20); }

CASE(copy_odd, "COPY_LINEAR of odd lengths at odd addresses touches exactly its bytes")
{
	volatile uint8_t *a, *b;

	begin(FLAGS_GTT, FLAGS_GTT, 4 * PAGE);
	a = (volatile uint8_t *)f.a.va;
	b = (volatile uint8_t *)f.b.va;
	for (uint32_t i = 0; i < 3 * PAGE; i++)
		a[i] = i * 11 + 1;
	for (uint32_t length = 1; length < 20; length++) {
		memset((void *)f.b.va, 0, 64);
		sdma_copy(&f.p, f.a.va + length, f.b.va + 3, length);
		fence(length);
		go();
		await_fence(length);
		CHECK_EQ(b[2], 0);
		for (uint32_t i = 0; i < length; i++)
			CHECK_EQ(b[3 + i], a[length + i]);
		CHECK_EQ(b[3 + length], 0);
	}
	end();
}

CASE(fill, "CONST_FILL stores a dword over and over, and stops where it should")
{
	begin(FLAGS_VRAM, FLAGS_GTT, 4 * PAGE);
	sdma_fill(&f.p, f.a.va + 16, 0xa5c3f00d, 2 * PAGE);
	fence(1);
	go();
	await_fence(1);
	CHECK_EQ(*bo32(&f.a, 12), 0);
	for (uint32_t at = 16; at < 16 + 2 * PAGE; at += 4)
		CHECK_EQ(*bo32(&f.a, at), 0xa5c3f00d);
	CHECK_EQ(*bo32(&f.a, 16 + 2 * PAGE), 0);
	end();
}

CASE(fill_dword, "CONST_FILL of one dword")
{
	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	sdma_fill(&f.p, f.a.va + 8, 0x12345678, 4);
	fence(1);
	go();
	await_fence(1);
	CHECK_EQ(*bo32(&f.a, 4), 0);
	CHECK_EQ(*bo32(&f.a, 8), 0x12345678);
	CHECK_EQ(*bo32(&f.a, 12), 0);
	end();
}

CASE(atomic, "ATOMIC adds 64 bits, up and down")
{
	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	*bo64(&f.a, 0) = 0xffffffff;
	*bo64(&f.a, 8) = 1;
	sdma_atomic(&f.p, 47, f.a.va, 2);
	sdma_atomic(&f.p, 47, f.a.va + 8, ~0ull);
	fence(1);
	go();
	await_fence(1);
	CHECK_EQ(*bo64(&f.a, 0), 0x100000001);
	CHECK_EQ(*bo64(&f.a, 8), 0);
	end();
}

CASE(timestamp, "TIMESTAMP stores the clock that GET_CLOCK_COUNTERS reads")
{
	struct kfd_ioctl_get_clock_counters_args before = { 0 }, after = { 0 };

	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	before.gpu_id = after.gpu_id = f.gpu.id;
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_GET_CLOCK_COUNTERS, &before));
	sdma_timestamp(&f.p, f.a.va + 32);
	fence(1);
	go();
	await_fence(1);
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_GET_CLOCK_COUNTERS, &after));
	CHECK_OP(*bo64(&f.a, 32), >=, before.gpu_clock_counter);
	CHECK_OP(*bo64(&f.a, 32), <=, after.gpu_clock_counter);
	end();
}

CASE(poll, "POLL_REGMEM holds the queue until the CPU writes what it waits for")
{
	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	sdma_fence(&f.p, f.a.va + 64, 1);
	sdma_poll(&f.p, EQUAL, f.a.va, 5, 0xff);
	fence(2);
	go();
	await32(bo32(&f.a, 64), 1, "the packet before the poll");
	CHECK_EQ(*bo32(&f.b, PAGE - 4), 0);
	*bo32(&f.a, 0) = 0xff00 | 5;
	await_fence(2);
	end();
}

CASE(nop, "NOP skips its dwords")
{
	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	sdma_nop(&f.p, 0);
	sdma_nop(&f.p, 13);
	fence(1);
	go();
	await_fence(1);
	end();
}

CASE(order, "packets of one queue take effect in order")
{
	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	for (uint32_t i = 1; i <= 50; i++) {
		sdma_write(&f.p, f.a.va, &i, 1);
		sdma_copy(&f.p, f.a.va, f.a.va + 8 * i, 4);
	}
	fence(1);
	go();
	await_fence(1);
	for (uint32_t i = 1; i <= 50; i++)
		CHECK_EQ(*bo32(&f.a, 8 * i), i);
	end();
}

CASE(wrap, "the ring wraps: 8000 fences through 64 KiB")
{
	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	for (uint32_t i = 1; i <= 8000; i++) {
		/* NOPs of another length than a fence, so that packets straddle the end. */
		fence(i);
		if (i % 3 == 0)
			sdma_nop(&f.p, 2);
		if (i % 200 == 0) {
			go();
			await_fence(i);
		}
	}
	CHECK_OP(f.q.written, >, 2 * 0x10000);
	end();
}

CASE(event, "FENCE to the slot and TRAP wake the sleeper")
{
	struct event ev;
	struct waited w;

	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	need_event(&f.gpu, true, &ev);
	for (int i = 0; i < 10; i++) {
		sdma_fence(&f.p, ev.slot_va, ev.id);
		sdma_trap(&f.p, ev.id);
		go();
		CHECK_OK(event_wait(&f.gpu, &ev.id, 1, true, tap_ms(30000), &w));
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	}
	end();
}

CASE(each_engine, "a queue on each engine by its id does its work")
{
	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	if (!sdma_numbers(&f.gpu))
		SKIP("the topology does not tell the number of SDMA engines");
	for (uint32_t e = 0; e < sdma_numbers(&f.gpu); e++) {
		struct packets p = { .n = 0 };
		struct queue q;

		queue_prepare(&f.gpu, &q, SDMA, 0x1000);
		q.args.queue_type = KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID;
		q.args.sdma_engine_id = e;
		CHECK_OK(queue_create(&f.gpu, &q));
		sdma_fence(&p, f.a.va + 4 * e, e + 1);
		submit(&q, &p);
		await32(bo32(&f.a, 4 * e), e + 1, "an engine's fence");
		drop_queue(&f.gpu, &q);
	}
	end();
}

CASE(all_slots, "as many SDMA queues as there are slots, all at work")
{
	static struct queue q[64];
	unsigned int slots;

	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	slots = f.gpu.sdma_engines * f.gpu.sdma_queues_per_engine;
	if (!slots || slots > 64)
		SKIP("the topology does not tell a number of SDMA queues that fits");
	/* One is there already. */
	for (unsigned int i = 1; i < slots; i++) {
		queue_prepare(&f.gpu, &q[i], SDMA, 0x1000);
		CHECK_OK(queue_create(&f.gpu, &q[i]));
	}
	for (unsigned int i = 1; i < slots; i++) {
		struct packets p = { .n = 0 };

		sdma_fence(&p, f.a.va + 4 * i, 0x50 + i);
		submit(&q[i], &p);
	}
	for (unsigned int i = 1; i < slots; i++)
		await32(bo32(&f.a, 4 * i), 0x50 + i, "a queue's fence");
	for (unsigned int i = 1; i < slots; i++)
		drop_queue(&f.gpu, &q[i]);
	end();
}

CASE(paused, "an SDMA queue at 0 % does not execute; at 100 % it goes on")
{
	struct packets p = { .n = 0 };
	struct queue other;

	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	need_queue(&f.gpu, &other, SDMA);
	CHECK_OK(queue_update(&f.gpu, &f.q, 0, 7));
	fence(1);
	go();
	for (uint32_t i = 1; i <= 50; i++) {
		p.n = 0;
		sdma_fence(&p, f.a.va, i);
		submit(&other, &p);
		await32(bo32(&f.a, 0), i, "the other queue");
	}
	CHECK_EQ(*bo32(&f.b, PAGE - 4), 0);
	CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	await_fence(1);
	drop_queue(&f.gpu, &other);
	end();
}

CASE(with_compute, "an SDMA queue and a compute queue wait for each other in turn")
{
	struct packets p = { .n = 0 };
	struct queue compute;

	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	need_queue(&f.gpu, &compute, KFD_IOC_QUEUE_TYPE_COMPUTE);
	for (uint32_t i = 1; i <= 10; i++) {
		sdma_poll(&f.p, EQUAL, f.a.va + 64, i - 1, 0xffffffff);
		sdma_fence(&f.p, f.a.va, i);
		pm4_wait(&p, EQUAL, f.a.va, i, 0xffffffff);
		pm4_write(&p, f.a.va + 64, i);
	}
	submit(&compute, &p);
	go();
	await32(bo32(&f.a, 64), 10, "the tenth meeting");
	drop_queue(&f.gpu, &compute);
	end();
}

CASE(destroy_polling, "DESTROY_QUEUE of a queue that polls; another goes on")
{
	struct packets p = { .n = 0 };
	struct queue other;

	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	need_queue(&f.gpu, &other, SDMA);
	sdma_fence(&f.p, f.a.va + 32, 1);
	sdma_poll(&f.p, EQUAL, f.a.va, 5, 0xff);
	fence(1);
	go();
	await32(bo32(&f.a, 32), 1, "the packet before the poll");
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
	*bo32(&f.a, 0) = 5;
	sdma_fence(&p, f.a.va + 64, 9);
	submit(&other, &p);
	await32(bo32(&f.a, 64), 9, "the other queue");
	CHECK_EQ(*bo32(&f.b, PAGE - 4), 0);
	drop_queue(&f.gpu, &other);
}

/* Waits for the memory fault of this process at `va`. */
static void await_fault(struct gpu *gpu, const struct event *memory, uint64_t va)
{
	struct kfd_event_data data = { .event_id = memory->id };
	struct waited w;
	int err;

	do {
		err = event_wait_data(gpu, &data, 1, true, tap_ms(30000), &w);
	} while (err == EINTR);
	CHECK_OK(err);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data.memory_exception_data.gpu_id, gpu->id);
	CHECK_EQ(data.memory_exception_data.va, va);
}

CASE(fault, "a copy from an unmapped address signals the memory event")
{
	struct event memory;
	uint64_t hole;

	begin(FLAGS_GTT, FLAGS_GTT, PAGE);
	CHECK_OK(event_create(&f.gpu, KFD_IOC_EVENT_MEMORY, false, 0, &memory));
	hole = need_address(PAGE, PAGE);
	sdma_copy(&f.p, hole, f.b.va, 64);
	go();
	await_fault(&f.gpu, &memory, hole);
}

/* A copy that faults. */
struct stray_copy {
	uint32_t engine;
	bool writes;
};

/* A fault stops all queues of its process, so each has one of its own. */
static void child_strays(void *context)
{
	const struct stray_copy *copy = context;
	struct packets p = { .n = 0 };
	struct event memory;
	struct gpu gpu;
	struct queue q;
	struct bo bo;
	uint64_t hole;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &memory));
	queue_prepare(&gpu, &q, SDMA, 0x1000);
	q.args.queue_type = KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID;
	q.args.sdma_engine_id = copy->engine;
	CHECK_OK(queue_create(&gpu, &q));
	hole = need_address(PAGE, PAGE);
	if (copy->writes)
		sdma_copy(&p, bo.va, hole, 64);
	else
		sdma_copy(&p, hole, bo.va, 64);
	submit(&q, &p);
	await_fault(&gpu, &memory, hole);
}

CASE(each_engine_faults, "a copy from an unmapped address on each engine, and one to such an address, signal the memory event")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	if (!sdma_numbers(&gpu))
		SKIP("the topology does not tell the number of SDMA engines");
	for (uint32_t e = 0; e < sdma_numbers(&gpu); e++) {
		struct stray_copy from = { .engine = e };

		CHECK_EQ(in_child(child_strays, &from), 0);
	}
	CHECK_EQ(in_child(child_strays, &(struct stray_copy){ .engine = 0, .writes = true }), 0);
}
