// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: two threads at once, with handles of their own and of both. The native interface and programs
 * have such cases in files of their own.
 */
#include "library.h"

/* What two threads use at once. */
static struct {
	struct rkfd_queue *pm4, *sdma, *aql;
	struct rkfd_buffer *b;
	struct rkfd_event *kept;
	struct rkfd_signals *counted;
	struct rkfd_vm *second;
} both;

/* Handles of the GPU and its address space. */
static void open_again(void)
{
	struct rkfd_gpu_info info = { .size = sizeof(info) };
	uint64_t available = 0;
	struct rkfd_gpu *again;
	struct rkfd_vm *same;
	uint32_t count = 0;

	CHECK_EQ(rkfd_version(), RKFD_VERSION_MAJOR << 16 | RKFD_VERSION_MINOR);
	CHECK_NE(rkfd_version_text()[0], 0);
	OK(rkfd_gpu_count(&count));
	CHECK_NE(count, 0);
	OK(rkfd_gpu_open(0, &again));
	OK(rkfd_gpu_describe(again, &info));
	CHECK_NE(info.gpu_id, 0);
	OK(rkfd_vm_open(again, &same));
	rkfd_gpu_close(again);
	OK(rkfd_vm_available(same, &available));
	CHECK_NE(available, 0);
	rkfd_vm_close(same);
}

static void everything(unsigned int number)
{
	static const uint32_t mask = 0xffffffff;
	/* 64 dwords for each of the two. */
	const uint64_t to = rkfd_buffer_gpu(both.b) + 256 * number;
	const unsigned int at = 64 * number;

	for (uint32_t round = 0; round < 4; round++) {
		struct rkfd_exception_info exception = { .size = sizeof(exception) };
		struct rkfd_queue_error_info error = { .size = sizeof(error) };
		struct rkfd_queue_options options = ordinary();
		struct packets inner = { .n = 0 }, own = { .n = 0 };
		struct rkfd_buffer *ib = memory(RKFD_BUFFER_GTT, PAGE);
		const uint32_t value = 0x1000 * (number + 1) + round;
		struct rkfd_signals *s = signals(1);
		const struct rkfd_event *events[2];
		struct rkfd_event *e = event(), *stays, *fault;
		struct rkfd_queue *q;

		open_again();
		OK(rkfd_event_new(vm, 0, &stays));
		events[0] = e;
		events[1] = stays;
		pm4_write(&inner, to, value);
		memcpy(rkfd_buffer_cpu(ib), inner.dw, 4 * inner.n);
		pm4_write(&own, to + 4, value);
		OK(rkfd_queue_set_cu_mask(both.pm4, &mask, 1));
		OK(rkfd_queue_update(both.pm4, 100, 7));
		OK(rkfd_queue_reserve(both.pm4, 64, PATIENCE_MS));
		OK(rkfd_pm4_acquire(both.pm4));
		OK(rkfd_pm4_run(both.pm4, rkfd_buffer_gpu(ib), inner.n));
		OK(rkfd_queue_emit(both.pm4, own.dw, own.n));
		OK(rkfd_queue_emit_within(both.pm4, own.dw, own.n, PATIENCE_MS));
		OK(rkfd_pm4_write(both.pm4, to + 56, &value, 1));
		OK(rkfd_pm4_release(both.pm4, to + 8, value));
		OK(rkfd_pm4_raise(both.pm4, e));
		OK(rkfd_queue_commit(both.pm4));
		OK(rkfd_event_set(stays));
		OK(rkfd_events_wait(events, 2, 1, PATIENCE_MS));
		OK(rkfd_event_reset(stays));
		CHECK_ERR(-rkfd_events_wait(events, 2, 0, 0), ETIMEDOUT);
		for (unsigned int i = 0; i < 3; i++)
			CHECK_EQ(dword(both.b, at + i), value);
		CHECK_EQ(dword(both.b, at + 14), value);
		OK(rkfd_queue_wait(both.pm4, PATIENCE_MS));
		CHECK_EQ(info_of(both.pm4).kind, RKFD_QUEUE_PM4);
		OK(rkfd_sdma_fill(both.sdma, to + 16, value, 16));
		OK(rkfd_sdma_copy(both.sdma, to + 32, to + 16, 16));
		OK(rkfd_sdma_fence(both.sdma, to + 48, value));
		OK(rkfd_sdma_raise(both.sdma, e));
		OK(rkfd_queue_commit(both.sdma));
		OK(rkfd_event_wait(e, PATIENCE_MS));
		for (unsigned int i = 4; i < 13; i++)
			CHECK_EQ(dword(both.b, at + i), value);
		inner.n = 0;
		pm4_write(&inner, to + 64, value);
		memcpy(rkfd_buffer_cpu(ib), inner.dw, 4 * inner.n);
		OK(rkfd_signals_attach(s, 0, e));
		OK(rkfd_aql_pm4(both.aql, rkfd_buffer_gpu(ib), inner.n, rkfd_signals_address(s, 0), NULL));
		OK(rkfd_queue_commit(both.aql));
		/* The event comes last: then the GPU is done with the signal. */
		OK(rkfd_event_wait(e, PATIENCE_MS));
		CHECK_EQ(signal_value(s, 0), 0);
		CHECK_EQ(dword(both.b, at + 16), value);
		/* Of both, and each may find it either way. */
		OK(rkfd_event_set(both.kept));
		OK(rkfd_event_reset(both.kept));
		OK(rkfd_exception_new(vm, RKFD_EXCEPTION_MEMORY, &fault));
		CHECK_ERR(-rkfd_exception_wait(fault, 0, &exception), ETIMEDOUT);
		OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, &options, &q));
		FAILS(rkfd_queue_error(q, &error), EAGAIN, "did not stop");
		OK(rkfd_queue_free(q));
		rkfd_event_free(fault);
		rkfd_event_free(stays);
		rkfd_event_free(e);
		rkfd_signals_free(s);
		rkfd_buffer_free(ib);
	}
}

CASE(everything_twice, "two threads do everything at once, with handles of their own and of both")
{
	need_vm();
	both.pm4 = queue(RKFD_QUEUE_PM4);
	both.sdma = queue(RKFD_QUEUE_SDMA);
	both.aql = queue(RKFD_QUEUE_AQL);
	both.b = memory(RKFD_BUFFER_GTT, PAGE);
	OK(rkfd_event_new(vm, 0, &both.kept));
	in_two(everything);
}

enum { ROUNDS = 20, BARRIER = 3 | 1 << 8 };

/* Writes a barrier that completes the signal. Atomic stores, since the other thread wrote there a lap ago. */
static void in_place(uint64_t index, uint64_t signal)
{
	uint64_t *place = rkfd_aql_place(both.aql, index);

	CHECK(place);
	for (unsigned int i = 1; i < 7; i++)
		__atomic_store_n(place + i, 0, __ATOMIC_RELAXED);
	__atomic_store_n(place + 7, signal, __ATOMIC_RELAXED);
	OK(rkfd_aql_publish(both.aql, index, BARRIER));
}

static void put_packets(unsigned int number)
{
	const uint64_t signal = rkfd_signals_address(both.counted, 0);
	uint32_t packet[16] = { 0 };

	memcpy(packet + 14, &signal, sizeof(signal));
	for (unsigned int round = 0; round < ROUNDS; round++) {
		uint64_t first;

		OK(rkfd_aql_barrier(both.aql, NULL, 0, signal, NULL));
		OK(rkfd_aql_emit(both.aql, packet, BARRIER, NULL));
		OK(rkfd_aql_emit_within(both.aql, packet, BARRIER, PATIENCE_MS, NULL));
		OK(rkfd_aql_reserve(both.aql, 2, PATIENCE_MS, &first));
		/* The one in the order of the places, the other against it. */
		in_place(first + number, signal);
		in_place(first + !number, signal);
		OK(rkfd_queue_commit(both.aql));
		if (round % 4 == 3)
			OK(rkfd_queue_wait(both.aql, PATIENCE_MS));
	}
}

CASE(packets_of_threads, "two threads put packets into one AQL ring at once, in every way there is: each runs once")
{
	const unsigned int packets = 2 * ROUNDS * 5;

	need_vm();
	both.aql = queue(RKFD_QUEUE_AQL);
	both.counted = signals(1);
	OK(rkfd_signals_store(both.counted, 0, packets));
	in_two(put_packets);
	OK(rkfd_queue_wait(both.aql, PATIENCE_MS));
	OK(rkfd_signals_wait_below(both.counted, 0, 1, PATIENCE_MS, NULL));
	CHECK_EQ(signal_value(both.counted, 0), 0);
	CHECK_EQ(info_of(both.aql).read, packets);
}

static void copy(uint64_t to, uint64_t from, struct rkfd_event *e)
{
	OK(rkfd_sdma_copy(both.sdma, to, from, PAGE));
	OK(rkfd_sdma_raise(both.sdma, e));
	OK(rkfd_queue_commit(both.sdma));
	OK(rkfd_event_wait(e, PATIENCE_MS));
}

static void use_memory(unsigned int number)
{
	static const uint32_t kinds[] = {
		RKFD_BUFFER_VRAM, RKFD_BUFFER_VRAM_PRIVATE, RKFD_BUFFER_GTT, RKFD_BUFFER_USERPTR
	};
	struct rkfd_event *e = event();

	for (uint32_t round = 0; round < 8; round++) {
		struct rkfd_buffer_options o = { .size = sizeof(o) };
		const uint32_t value = 0x100 * (number + 1) + round;
		uint32_t *own = (uint32_t *)pages(1);
		struct rkfd_signals *s = signals(1);
		struct rkfd_buffer *b, *wrapped;

		/* Different kinds at the same time, and each of them by each thread. */
		OK(rkfd_buffer_defaults(kinds[(round + number) % 4], 2 * PAGE, &o));
		OK(rkfd_buffer_create(vm, &o, &b));
		OK(rkfd_buffer_wrap(vm, own, PAGE, &wrapped));
		OK(rkfd_buffer_share(wrapped, both.second));
		OK(rkfd_buffer_share(both.b, both.second));
		OK(rkfd_signals_share(s, both.second));
		OK(rkfd_sdma_fill(both.sdma, rkfd_buffer_gpu(b) + PAGE, value, PAGE));
		copy(rkfd_buffer_gpu(wrapped), rkfd_buffer_gpu(b) + PAGE, e);
		copy(rkfd_buffer_gpu(both.b) + number * PAGE, rkfd_buffer_gpu(wrapped), e);
		for (unsigned int i = 0; i < PAGE / 4; i++) {
			CHECK_EQ(own[i], value);
			CHECK_EQ(dword(both.b, number * PAGE / 4 + i), value);
		}
		CHECK_EQ(rkfd_buffer_size(both.b), 2 * PAGE);
		rkfd_signals_free(s);
		rkfd_buffer_free(wrapped);
		rkfd_buffer_free(b);
		CHECK_EQ(munmap(own, PAGE), 0);
	}
	rkfd_event_free(e);
}

CASE(memory_of_threads, "two threads make, wrap, share, fill, copy and free memory at once, and share one buffer")
{
	both.second = need_second();
	both.b = memory(RKFD_BUFFER_GTT, 2 * PAGE);
	both.sdma = queue(RKFD_QUEUE_SDMA);
	in_two(use_memory);
	rkfd_buffer_free(both.b);
}
