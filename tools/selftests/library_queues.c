// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: every queue type runs packets whose effects are checked.
 */
#include "library.h"

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
	info = info_of(q);
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
	/* It opens at 0 alone: below is as closed as above. */
	OK(rkfd_signals_store(s, 0, -1));
	FAILS(rkfd_signals_wait_below(s, 2, 3, SHORT_MS, &value), ETIMEDOUT, "a signal");
	CHECK_EQ(signal_value(s, 2), 3);
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

/* amd_queue_t and amd_signal_t, as amd_hsa_queue.h and amd_hsa_signal.h of ROCr lay them out. */
struct amd_queue {
	uint32_t type, features;
	uint64_t base_address, doorbell_signal;
	uint32_t size, reserved;
	uint64_t id;
	uint32_t caps, reserved1[3];
	volatile uint64_t write_dispatch_id;
	uint32_t group_aperture_hi, private_aperture_hi, max_cu_id, max_wave_id;
	uint32_t legacy[4], reserved2[8];
	volatile uint64_t read_dispatch_id;
	uint32_t read_dispatch_id_offset, compute_tmpring_size, scratch_resource[4];
	uint64_t scratch_location, scratch_bytes;
	uint32_t scratch_lane_bytes, properties, reserved3[2];
	uint64_t inactive_signal;
};

struct amd_signal {
	int64_t kind;
	volatile uint64_t value;
	uint64_t mailbox;
	uint32_t event_id;
};

_Static_assert(offsetof(struct amd_queue, write_dispatch_id) == 0x38, "amd_queue_t");
_Static_assert(offsetof(struct amd_queue, read_dispatch_id) == 0x80, "amd_queue_t");
_Static_assert(offsetof(struct amd_queue, inactive_signal) == 0xc0, "amd_queue_t");

CASE(object, "AQL: what amd_queue_t says is what the library says, from the first packet to the one that stops the queue")
{
	enum { DISPATCH = 2, SIGNAL_USER = 1, SIGNAL_DOORBELL = -1, POINTERS_64 = 1 << 1 };
	struct rkfd_queue_error_info e = { .size = sizeof(e) };
	uint64_t addresses[2] = { 0 };

	need_vm();
	CHECK_EQ(info_of(queue(RKFD_QUEUE_PM4)).object, 0);
	CHECK_EQ(info_of(queue(RKFD_QUEUE_SDMA)).object, 0);
	for (unsigned int i = 0; i < 2; i++) {
		struct rkfd_queue_options options = ordinary();
		const struct amd_signal *bell, *inactive;
		const struct amd_queue *object;
		struct rkfd_queue_info info;
		struct rkfd_queue *q;

		options.ring_bytes = i ? 65536 : 4096;
		OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, &options, &q));
		info = info_of(q);
		addresses[i] = info.object;
		CHECK(info.object && info.object % 64 == 0);
		object = (const struct amd_queue *)(uintptr_t)info.object;
		/* Several producers, dispatches of kernels. */
		CHECK_EQ(object->type, 0);
		CHECK_EQ(object->features, 1);
		CHECK_EQ(object->base_address, info.ring);
		CHECK_EQ(object->size, info.ring_bytes / 64);
		CHECK_EQ(object->size, i ? 1024 : 64);
		CHECK_EQ(object->id, info.queue_id);
		CHECK_EQ((uintptr_t)&object->write_dispatch_id, info.write_pointer);
		CHECK_EQ((uintptr_t)&object->read_dispatch_id, info.read_pointer);
		CHECK_EQ(object->read_dispatch_id_offset, info.read_pointer - info.object);
		CHECK(object->properties & POINTERS_64);
		CHECK(object->group_aperture_hi && object->private_aperture_hi);
		CHECK_NE(object->group_aperture_hi, object->private_aperture_hi);
		CHECK_EQ(object->write_dispatch_id, 0);
		CHECK_EQ(object->read_dispatch_id, 0);
		CHECK(object->doorbell_signal && object->doorbell_signal % 64 == 0);
		bell = (const struct amd_signal *)(uintptr_t)object->doorbell_signal;
		CHECK_EQ(bell->kind, SIGNAL_DOORBELL);
		CHECK_EQ(bell->value, info.doorbell);
		CHECK(object->inactive_signal && object->inactive_signal % 64 == 0);
		CHECK_NE(object->inactive_signal, object->doorbell_signal);
		inactive = (const struct amd_signal *)(uintptr_t)object->inactive_signal;
		CHECK_EQ(inactive->kind, SIGNAL_USER);
		CHECK_NE(inactive->mailbox, 0);
		CHECK_NE(inactive->event_id, 0);
		for (unsigned int n = 1; n <= 5; n++) {
			OK(rkfd_aql_barrier(q, NULL, 0, 0, NULL));
			OK(rkfd_queue_commit(q));
			CHECK_EQ(object->write_dispatch_id, n);
			CHECK_EQ(object->write_dispatch_id, info_of(q).written);
		}
		OK(rkfd_queue_wait(q, PATIENCE_MS));
		CHECK_EQ(object->read_dispatch_id, 5);
		CHECK_EQ(info_of(q).read, 5);
		CHECK_EQ(inactive->value, 0);
		/* Without a code object. */
		OK(rkfd_aql_emit(q, (uint32_t[16]){ 1 << 16, 1 | 1 << 16, 1, 1, 1, 1 }, DISPATCH, NULL));
		OK(rkfd_queue_commit(q));
		OK(rkfd_queue_error_wait(q, PATIENCE_MS, &e));
		CHECK_EQ(e.reason, RKFD_REASON_CODE_OBJECT);
		CHECK_EQ(inactive->value, 0x8);
		CHECK_EQ(inactive->value, e.code);
		CHECK_EQ(object->write_dispatch_id, 6);
		CHECK_EQ(object->read_dispatch_id, 5);
		/* Neither goes before the other is made. */
		if (i) {
			CHECK_NE(addresses[0], addresses[1]);
			OK(rkfd_queue_free(q));
		}
	}
}

CASE(stopped, "a stopped queue fills up, waits run out, and it goes on where it was")
{
	struct rkfd_queue_options options = ordinary();
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
	info = info_of(q);
	CHECK_EQ(info.written, 8 + 5 * n);
	CHECK_EQ(info.read, info.written);
	OK(rkfd_pm4_raise(q, e));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
	CHECK_EQ(dword(b, 0), 5);
}

CASE(cu_mask, "a CU mask is taken, and the queue works on; what is no mask is refused")
{
	const uint32_t mask[4] = { 0x55555555, 0xffffffff, 1, 0 };
	struct rkfd_queue *q, *sdma;
	struct rkfd_buffer *b;
	struct rkfd_event *e;

	need_vm();
	q = queue(RKFD_QUEUE_PM4);
	sdma = queue(RKFD_QUEUE_SDMA);
	b = memory(RKFD_BUFFER_GTT, PAGE);
	e = event();
	OK(rkfd_queue_set_cu_mask(q, mask, 4));
	write_by(q, e, rkfd_buffer_gpu(b), 1);
	OK(rkfd_queue_set_cu_mask(q, mask, 1));
	write_by(q, e, rkfd_buffer_gpu(b), 2);
	CHECK_EQ(dword(b, 0), 2);
	FAILS(rkfd_queue_set_cu_mask(q, mask, 0), EINVAL, "0 elements");
	FAILS(rkfd_queue_set_cu_mask(q, NULL, 1), EINVAL, "mask is NULL");
	FAILS(rkfd_queue_set_cu_mask(NULL, mask, 1), EINVAL, "queue is NULL");
	FAILS(rkfd_queue_set_cu_mask(sdma, mask, 1), EINVAL, "no compute units");
}
