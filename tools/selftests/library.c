// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C, by its header alone: every queue type runs packets whose effects are checked, and
 * every kind of error has its errno and its text.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rkfd.h>

#include "pm4.h"
#include "tap.h"

#define PAGE 4096ul
/* How long work may take that is going to be done, and how long to wait for what never is. */
#define PATIENCE_MS tap_ms(30000)
#define SHORT_MS 20

#define OK(call)                                                                   \
	do {                                                                       \
		int rc_ = (call);                                                  \
		if (rc_)                                                           \
			FAIL("%s: %s: %s", #call, tap_errno(-rc_), rkfd_last_error()); \
	} while (0)

/* The call fails with this errno, and its text says so much. */
#define FAILS(call, err, text)                                                     \
	do {                                                                       \
		CHECK_ERR(-(call), err);                                           \
		if (!strstr(rkfd_last_error(), text))                              \
			FAIL("%s: \"%s\" lacks \"%s\"", #call, rkfd_last_error(), text); \
	} while (0)

static struct rkfd_gpu *gpu;
static struct rkfd_vm *vm;

static void need_vm(void)
{
	uint32_t count = 0;
	int rc = rkfd_gpu_count(&count);

	if (rc == -ENODEV || (!rc && !count))
		LACKING("no GPU: %s", rkfd_last_error());
	OK(rc);
	OK(rkfd_gpu_open(0, &gpu));
	OK(rkfd_vm_open(gpu, &vm));
}

static struct rkfd_buffer *memory(uint32_t kind, uint64_t size)
{
	struct rkfd_buffer *b;

	OK(rkfd_buffer_new(vm, kind, size, &b));
	CHECK(b);
	CHECK_OP(rkfd_buffer_size(b), >=, size);
	CHECK_NE(rkfd_buffer_gpu(b), 0);
	return b;
}

static struct rkfd_queue *queue(uint32_t kind)
{
	struct rkfd_queue *q;

	OK(rkfd_queue_new(vm, kind, NULL, &q));
	CHECK(q);
	return q;
}

static struct rkfd_event *event(void)
{
	struct rkfd_event *e;

	OK(rkfd_event_new(vm, 1, &e));
	CHECK_NE(rkfd_event_id(e), 0);
	CHECK_NE(rkfd_event_slot(e), 0);
	return e;
}

static uint32_t dword(struct rkfd_buffer *b, unsigned int index)
{
	return __atomic_load_n((uint32_t *)rkfd_buffer_cpu(b) + index, __ATOMIC_ACQUIRE);
}

CASE(info, "a GPU describes itself")
{
	struct rkfd_gpu_info info;
	uint64_t available;

	memset(&info, 0xa5, sizeof(info));
	need_vm();
	OK(rkfd_gpu_describe(gpu, &info));
	CHECK_NE(info.gpu_id, 0);
	CHECK_EQ(info.gfx_target_version / 10000, 9);
	CHECK_EQ(info.vendor, 0x1002);
	CHECK_NE(info.device, 0);
	CHECK_EQ(info.kfd_major, 1);
	CHECK_NE(info.simd_count, 0);
	CHECK_NE(info.simd_per_cu, 0);
	CHECK_NE(info.sdma_engines, 0);
	CHECK_OP(info.va_base, <, info.va_limit);
	CHECK_EQ(strnlen(info.pci, sizeof(info.pci)), strlen("0000:00:00.0"));
	CHECK_OP(strnlen(info.name, sizeof(info.name)), <, sizeof(info.name));
	OK(rkfd_vm_available(vm, &available));
	CHECK_NE(available, 0);
	CHECK_OP(available, <=, info.vram_bytes);
}

CASE(vm_again, "the address space is one, however often it is opened")
{
	struct rkfd_buffer *before, *after;
	struct rkfd_vm *second;

	need_vm();
	before = memory(RKFD_BUFFER_GTT, PAGE);
	OK(rkfd_vm_open(gpu, &second));
	rkfd_vm_close(vm);
	rkfd_vm_close(second);
	rkfd_gpu_close(gpu);
	need_vm();
	after = memory(RKFD_BUFFER_GTT, PAGE);
	CHECK_NE(rkfd_buffer_gpu(before), rkfd_buffer_gpu(after));
	rkfd_buffer_free(before);
	rkfd_buffer_free(after);
}

CASE(pm4, "PM4: writes memory and raises an event that the program sleeps on")
{
	static const uint32_t values[] = { 0x11111111, 0x22222222, 0x33333333 };
	struct rkfd_buffer *b;
	struct rkfd_queue *q;
	struct rkfd_event *e;

	need_vm();
	b = memory(RKFD_BUFFER_GTT, PAGE);
	q = queue(RKFD_QUEUE_PM4);
	e = event();
	OK(rkfd_pm4_write(q, rkfd_buffer_gpu(b) + 4, values, 3));
	OK(rkfd_pm4_release(q, rkfd_buffer_gpu(b) + 64, 0x0123456789abcdef));
	OK(rkfd_pm4_raise(q, e));
	/* Nothing happens before the doorbell. */
	FAILS(rkfd_event_wait(e, SHORT_MS), ETIMEDOUT, "for event");
	CHECK_EQ(dword(b, 1), 0);
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	CHECK_EQ(dword(b, 0), 0);
	for (unsigned int i = 0; i < 3; i++)
		CHECK_EQ(dword(b, 1 + i), values[i]);
	CHECK_EQ(dword(b, 4), 0);
	CHECK_EQ(dword(b, 16), 0x89abcdef);
	CHECK_EQ(dword(b, 17), 0x01234567);
	/* The event reset itself. */
	CHECK_ERR(-rkfd_event_wait(e, SHORT_MS), ETIMEDOUT);
	rkfd_event_free(e);
	rkfd_queue_free(q);
	rkfd_buffer_free(b);
}

CASE(pm4_run, "PM4: runs a buffer of packets, and packets of the program's own")
{
	struct packets inner = { .n = 0 }, own = { .n = 0 };
	struct rkfd_buffer *b, *ib;
	struct rkfd_queue *q;
	struct rkfd_event *e;

	need_vm();
	b = memory(RKFD_BUFFER_VRAM, PAGE);
	ib = memory(RKFD_BUFFER_GTT, PAGE);
	q = queue(RKFD_QUEUE_PM4);
	e = event();
	memset(rkfd_buffer_cpu(b), 0, PAGE);
	pm4_write(&inner, rkfd_buffer_gpu(b), 0xcafe);
	memcpy(rkfd_buffer_cpu(ib), inner.dw, 4 * inner.n);
	pm4_write(&own, rkfd_buffer_gpu(b) + 4, 0xbeef);
	OK(rkfd_pm4_run(q, rkfd_buffer_gpu(ib), inner.n));
	OK(rkfd_pm4_acquire(q));
	OK(rkfd_queue_emit(q, own.dw, own.n));
	OK(rkfd_pm4_raise(q, e));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	CHECK_EQ(dword(b, 0), 0xcafe);
	CHECK_EQ(dword(b, 1), 0xbeef);
}

CASE(wrap, "PM4: a small ring wraps many times, and reserving waits for room")
{
	struct rkfd_queue_info info;
	struct rkfd_buffer *b;
	struct rkfd_queue *q;
	const unsigned int batches = 64, packets = 20;

	need_vm();
	b = memory(RKFD_BUFFER_GTT, PAGE);
	q = queue(RKFD_QUEUE_PM4);
	for (uint32_t batch = 0; batch < batches; batch++) {
		OK(rkfd_queue_reserve(q, packets * 5, PATIENCE_MS));
		for (uint32_t n = 0; n < packets; n++) {
			uint32_t value = batch * packets + n + 1;

			OK(rkfd_pm4_write(q, rkfd_buffer_gpu(b) + 4 * n, &value, 1));
		}
		OK(rkfd_queue_commit(q));
	}
	OK(rkfd_queue_wait(q, PATIENCE_MS));
	OK(rkfd_queue_describe(q, &info));
	CHECK_EQ(info.kind, RKFD_QUEUE_PM4);
	CHECK_EQ(info.ring_bytes, 4096);
	CHECK_EQ(info.written, batches * packets * 5);
	CHECK_EQ(info.read, info.written % 1024);
	CHECK_EQ(info.room, 1023);
	/* Read is not done: the last of the packets is. */
	{
		struct rkfd_event *e = event();

		OK(rkfd_pm4_raise(q, e));
		OK(rkfd_queue_commit(q));
		OK(rkfd_event_wait(e, PATIENCE_MS));
	}
	for (uint32_t n = 0; n < packets; n++)
		CHECK_EQ(dword(b, n), (batches - 1) * packets + n + 1);
}

static void copy(uint32_t from_kind, uint32_t to_kind)
{
	const unsigned int words = 3 * PAGE / 4;
	struct rkfd_buffer *from = memory(from_kind, 3 * PAGE), *to = memory(to_kind, 3 * PAGE);
	struct rkfd_queue *q = queue(RKFD_QUEUE_SDMA);
	struct rkfd_event *e = event();
	uint32_t *p = rkfd_buffer_cpu(from);

	memset(rkfd_buffer_cpu(to), 0xee, 3 * PAGE);
	for (unsigned int i = 0; i < words; i++)
		p[i] = i * 2654435761u;
	/* All but the first and the last dword. */
	OK(rkfd_sdma_copy(q, rkfd_buffer_gpu(to) + 4, rkfd_buffer_gpu(from) + 4, 3 * PAGE - 8));
	OK(rkfd_sdma_raise(q, e));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	CHECK_EQ(dword(to, 0), 0xeeeeeeee);
	for (unsigned int i = 1; i < words - 1; i++)
		CHECK_EQ(dword(to, i), i * 2654435761u);
	CHECK_EQ(dword(to, words - 1), 0xeeeeeeee);
	rkfd_queue_free(q);
	rkfd_event_free(e);
	rkfd_buffer_free(from);
	rkfd_buffer_free(to);
}

CASE(sdma, "SDMA: copies between VRAM, system memory and the process's own")
{
	need_vm();
	copy(RKFD_BUFFER_GTT, RKFD_BUFFER_VRAM);
	copy(RKFD_BUFFER_VRAM, RKFD_BUFFER_USERPTR);
	copy(RKFD_BUFFER_USERPTR, RKFD_BUFFER_GTT);
}

CASE(sdma_long, "SDMA: a fill and a copy beyond one packet, through private VRAM")
{
	const uint64_t size = 10ul << 20;
	struct rkfd_buffer *hidden, *to;
	struct rkfd_queue *q;
	struct rkfd_event *e;

	need_vm();
	hidden = memory(RKFD_BUFFER_VRAM_PRIVATE, size);
	to = memory(RKFD_BUFFER_GTT, size + PAGE);
	CHECK(!rkfd_buffer_cpu(hidden));
	q = queue(RKFD_QUEUE_SDMA);
	e = event();
	OK(rkfd_sdma_fill(q, rkfd_buffer_gpu(hidden), 0x5a5a1234, size));
	OK(rkfd_sdma_copy(q, rkfd_buffer_gpu(to), rkfd_buffer_gpu(hidden), size));
	OK(rkfd_sdma_fence(q, rkfd_buffer_gpu(to) + size, 77));
	OK(rkfd_sdma_raise(q, e));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	for (uint64_t i = 0; i < size / 4; i++)
		if (dword(to, i) != 0x5a5a1234)
			FAIL("dword %lu is %#x", i, dword(to, i));
	CHECK_EQ(dword(to, size / 4), 77);
	CHECK_EQ(dword(to, size / 4 + 1), 0);
}

CASE(aql, "AQL: barrier packets wait for signals and decrement signals")
{
	struct rkfd_signals *s;
	struct rkfd_queue *q;
	uint64_t gate, index = 99;
	int64_t value = 99;

	need_vm();
	OK(rkfd_signals_new(vm, 3, &s));
	q = queue(RKFD_QUEUE_AQL);
	gate = rkfd_signals_address(s, 0);
	CHECK_EQ(gate % 64, 0);
	for (uint32_t i = 0; i < 3; i++)
		OK(rkfd_signals_store(s, i, 1 + i));
	OK(rkfd_aql_barrier(q, NULL, 0, rkfd_signals_address(s, 1), &index));
	CHECK_EQ(index, 0);
	OK(rkfd_aql_barrier(q, &gate, 1, rkfd_signals_address(s, 2), &index));
	CHECK_EQ(index, 1);
	OK(rkfd_queue_commit(q));
	OK(rkfd_signals_wait_below(s, 1, 2, PATIENCE_MS, &value));
	CHECK_EQ(value, 1);
	/* The gate is closed. */
	FAILS(rkfd_signals_wait_below(s, 2, 3, SHORT_MS, &value), ETIMEDOUT, "a signal");
	OK(rkfd_signals_store(s, 0, 0));
	OK(rkfd_signals_wait_below(s, 2, 3, PATIENCE_MS, NULL));
	OK(rkfd_signals_load(s, 2, &value));
	CHECK_EQ(value, 2);
	OK(rkfd_queue_wait(q, PATIENCE_MS));
	rkfd_queue_free(q);
	rkfd_signals_free(s);
}

CASE(aql_event, "AQL: a PM4 buffer writes memory, its signal raises an event")
{
	struct packets p = { .n = 0 };
	struct rkfd_buffer *b, *ib;
	struct rkfd_signals *s;
	struct rkfd_queue *q;
	struct rkfd_event *e;
	int64_t value = 99;

	need_vm();
	b = memory(RKFD_BUFFER_GTT, PAGE);
	ib = memory(RKFD_BUFFER_GTT, PAGE);
	q = queue(RKFD_QUEUE_AQL);
	e = event();
	OK(rkfd_signals_new(vm, 1, &s));
	OK(rkfd_signals_store(s, 0, 1));
	OK(rkfd_signals_attach(s, 0, e));
	pm4_write(&p, rkfd_buffer_gpu(b), 4711);
	memcpy(rkfd_buffer_cpu(ib), p.dw, 4 * p.n);
	OK(rkfd_aql_pm4(q, rkfd_buffer_gpu(ib), p.n, rkfd_signals_address(s, 0), NULL));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	OK(rkfd_signals_load(s, 0, &value));
	CHECK_EQ(value, 0);
	CHECK_EQ(dword(b, 0), 4711);
}

CASE(stopped, "a stopped queue fills up, waits run out, and it goes on where it was")
{
	struct rkfd_queue_options options = rkfd_queue_defaults();
	struct rkfd_queue_info info;
	struct rkfd_buffer *b;
	struct rkfd_queue *q;
	struct rkfd_event *e;
	uint32_t value = 5;
	unsigned int n = 0;
	int rc;

	need_vm();
	b = memory(RKFD_BUFFER_GTT, PAGE);
	e = event();
	options.percentage = 0;
	OK(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &options, &q));
	OK(rkfd_pm4_raise(q, e));
	while (!(rc = rkfd_pm4_write(q, rkfd_buffer_gpu(b), &value, 1)))
		CHECK_OP(++n, <, 1024);
	FAILS(rc, EAGAIN, "The ring is full: 5 units wanted");
	CHECK_EQ(n, (1023 - 8) / 5);
	FAILS(rkfd_queue_reserve(q, 1000, SHORT_MS), EBUSY, "not committed");
	FAILS(rkfd_queue_wait(q, SHORT_MS), EBUSY, "not committed");
	OK(rkfd_queue_commit(q));
	FAILS(rkfd_queue_reserve(q, 1000, SHORT_MS), ETIMEDOUT, "room in the ring");
	FAILS(rkfd_queue_wait(q, SHORT_MS), ETIMEDOUT, "the queue to drain");
	FAILS(rkfd_event_wait(e, SHORT_MS), ETIMEDOUT, "for event");
	CHECK_EQ(dword(b, 0), 0);
	OK(rkfd_queue_update(q, 100, 7));
	OK(rkfd_queue_reserve(q, 1000, PATIENCE_MS));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	OK(rkfd_queue_wait(q, PATIENCE_MS));
	OK(rkfd_queue_describe(q, &info));
	CHECK_EQ(info.written, 8 + 5 * n);
	CHECK_EQ(info.read, info.written);
	OK(rkfd_pm4_raise(q, e));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	CHECK_EQ(dword(b, 0), 5);
}

CASE(event_cpu, "an event is raised and taken back from the CPU")
{
	struct rkfd_event *e;

	need_vm();
	OK(rkfd_event_new(vm, 0, &e));
	FAILS(rkfd_event_wait(e, 0), ETIMEDOUT, "0 ms");
	OK(rkfd_event_set(e));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	OK(rkfd_event_reset(e));
	CHECK_ERR(-rkfd_event_wait(e, SHORT_MS), ETIMEDOUT);
}

CASE(null, "NULL is refused where a handle or a result belongs, and may be given back")
{
	struct rkfd_queue *q = (void *)1;
	struct rkfd_buffer *b = (void *)1;

	FAILS(rkfd_gpu_count(NULL), EINVAL, "count is NULL");
	FAILS(rkfd_gpu_open(0, NULL), EINVAL, "gpu is NULL");
	FAILS(rkfd_vm_open(NULL, &vm), EINVAL, "gpu is NULL");
	CHECK(!vm);
	FAILS(rkfd_buffer_new(NULL, RKFD_BUFFER_GTT, PAGE, &b), EINVAL, "vm is NULL");
	CHECK(!b);
	FAILS(rkfd_queue_new(NULL, RKFD_QUEUE_PM4, NULL, &q), EINVAL, "vm is NULL");
	CHECK(!q);
	FAILS(rkfd_queue_commit(NULL), EINVAL, "queue is NULL");
	FAILS(rkfd_queue_emit(NULL, NULL, 1), EINVAL, "queue is NULL");
	FAILS(rkfd_pm4_raise(NULL, NULL), EINVAL, "event is NULL");
	FAILS(rkfd_event_wait(NULL, 1), EINVAL, "event is NULL");
	FAILS(rkfd_signals_load(NULL, 0, NULL), EINVAL, "signals is NULL");
	CHECK(!rkfd_buffer_cpu(NULL));
	CHECK_EQ(rkfd_buffer_gpu(NULL), 0);
	CHECK_EQ(rkfd_signals_address(NULL, 0), 0);
	rkfd_gpu_close(NULL);
	rkfd_vm_close(NULL);
	rkfd_buffer_free(NULL);
	rkfd_queue_free(NULL);
	rkfd_event_free(NULL);
	rkfd_signals_free(NULL);
}

CASE(bad, "what cannot be is refused, with a text, and changes nothing")
{
	struct rkfd_queue_options options = rkfd_queue_defaults();
	struct rkfd_queue *pm4, *sdma, *aql, *q;
	struct rkfd_queue_info info;
	struct rkfd_signals *s;
	struct rkfd_buffer *b;
	uint32_t count, value = 0;
	uint64_t odd[1] = { 8 };
	int64_t seen;

	need_vm();
	OK(rkfd_gpu_count(&count));
	{
		struct rkfd_gpu *none = (void *)1;

		FAILS(rkfd_gpu_open(count, &none), ENODEV, "No GPU");
		CHECK(!none);
	}
	FAILS(rkfd_buffer_new(vm, 4, PAGE, &b), EINVAL, "No kind of buffer: 4");
	FAILS(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, 0, &b), EINVAL, "empty");
	FAILS(rkfd_buffer_new(vm, RKFD_BUFFER_GTT, UINT64_MAX, &b), EINVAL, "beyond the address space");
	CHECK_NE(rkfd_buffer_new(vm, RKFD_BUFFER_VRAM, 1ul << 46, &b), 0);
	CHECK(!b);
	FAILS(rkfd_queue_new(vm, 3, NULL, &q), EINVAL, "No kind of queue: 3");
	options.ring_bytes = 5000;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &options, &q), EINVAL, "power of two");
	options.ring_bytes = 1ul << 32;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &options, &q), EINVAL, "beyond 4 GiB");
	options = rkfd_queue_defaults();
	options.percentage = 101;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &options, &q), EINVAL, "CREATE_QUEUE");
	options = rkfd_queue_defaults();
	options.engine = 0;
	FAILS(rkfd_queue_new(vm, RKFD_QUEUE_AQL, &options, &q), EINVAL, "engine");
	CHECK(!q);

	b = memory(RKFD_BUFFER_GTT, PAGE);
	pm4 = queue(RKFD_QUEUE_PM4);
	sdma = queue(RKFD_QUEUE_SDMA);
	aql = queue(RKFD_QUEUE_AQL);
	FAILS(rkfd_queue_reserve(pm4, 1024, SHORT_MS), EINVAL, "never has room");
	FAILS(rkfd_queue_reserve(aql, UINT32_MAX, SHORT_MS), EINVAL, "64 at most");
	FAILS(rkfd_queue_emit(pm4, &value, 0), EINVAL, "0 elements");
	FAILS(rkfd_queue_emit(pm4, NULL, 1), EINVAL, "dwords is NULL");
	FAILS(rkfd_queue_emit(pm4, &value, UINT32_MAX), EINVAL, "elements");
	FAILS(rkfd_queue_emit(aql, &value, 1), EINVAL, "64 bytes");
	FAILS(rkfd_aql_emit(pm4, (uint32_t[16]){ 0 }, 0, NULL), EINVAL, "AQL");
	FAILS(rkfd_sdma_copy(pm4, rkfd_buffer_gpu(b), rkfd_buffer_gpu(b), 4), EINVAL,
	      "A packet for an SDMA queue on a PM4 queue");
	FAILS(rkfd_pm4_acquire(sdma), EINVAL, "A packet for a PM4 queue on an SDMA queue");
	FAILS(rkfd_pm4_write(pm4, rkfd_buffer_gpu(b) + 2, &value, 1), EINVAL, "multiple of 4");
	FAILS(rkfd_pm4_write(pm4, 1ul << 48, &value, 1), EINVAL, "48 bits");
	FAILS(rkfd_sdma_copy(sdma, 0, 0, 0), EINVAL, "0 bytes");
	FAILS(rkfd_sdma_copy(sdma, 0, 0, UINT64_MAX), EINVAL, "more packets than the ring holds");
	FAILS(rkfd_sdma_copy(sdma, 0, UINT64_MAX, 4), EINVAL, "beyond the address space");
	FAILS(rkfd_sdma_fill(sdma, rkfd_buffer_gpu(b), 0, 6), EINVAL, "multiple of 4");
	FAILS(rkfd_aql_barrier(aql, odd, 1, 0, NULL), EINVAL, "multiple of 64");
	FAILS(rkfd_aql_barrier(aql, odd, 6, 0, NULL), EINVAL, "6 dependencies");
	FAILS(rkfd_aql_barrier(aql, NULL, 1, 0, NULL), EINVAL, "dependencies is NULL");
	FAILS(rkfd_queue_update(pm4, 101, 7), EINVAL, "UPDATE_QUEUE");
	FAILS(rkfd_signals_new(vm, 0, &s), EINVAL, "No signals");
	OK(rkfd_signals_new(vm, 2, &s));
	FAILS(rkfd_signals_load(s, 2, &seen), ERANGE, "does not fit");
	CHECK_EQ(rkfd_signals_address(s, 2), 0);

	for (unsigned int i = 0; i < 3; i++) {
		OK(rkfd_queue_describe((struct rkfd_queue *[]){ pm4, sdma, aql }[i], &info));
		CHECK_EQ(info.written, 0);
		CHECK_EQ(info.read, 0);
	}
}

int main(int argc, char **argv)
{
	return tap_main(argc, argv);
}
