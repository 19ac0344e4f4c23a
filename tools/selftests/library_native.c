// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: address spaces by a render node alone.
 */
#include "library.h"

#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define AT 0x100000000ul
#define QUEUE_AT 0x200000000ul

CASE(native_space, "two address spaces of one program: each has what it bound at the same address, and an event of its own")
{
	static const uint32_t kinds[2] = { RKFD_QUEUE_PM4, RKFD_QUEUE_SDMA };
	struct rkfd_space *spaces[2];
	struct rkfd_space_queue *queues[2];
	struct rkfd_space_event *events[2];
	struct rkfd_bo *bos[2];
	int counters[2];

	for (unsigned int i = 0; i < 2; i++) {
		struct packets p = { .n = 0 };
		uint32_t value = 0x11 * (i + 1);

		spaces[i] = need_space();
		bos[i] = need_bo(spaces[i], i ? RKFD_HEAP_SYSTEM : RKFD_HEAP_VRAM, 2 * PAGE);
		/* The second page of the two. */
		bind_at(spaces[i], AT, bos[i], PAGE);
		OK(rkfd_space_queue_new(spaces[i], kinds[i], QUEUE_AT, &queues[i]));
		counters[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		CHECK(counters[i] >= 0);
		OK(rkfd_space_event_new(spaces[i], counters[i], &events[i]));
		CHECK_NE(rkfd_space_event_slot(events[i]), 0);
		if (kinds[i] == RKFD_QUEUE_SDMA) {
			sdma_write(&p, AT + 4, &value, 1);
			sdma_trap(&p, rkfd_space_event_slot(events[i]));
		} else {
			pm4_write(&p, AT + 4, value);
		}
		OK(rkfd_space_queue_submit(queues[i], p.dw, p.n));
	}
	for (unsigned int i = 0; i < 2; i++) {
		OK(rkfd_space_wait(spaces[i], bos[i], PAGE + 4, 0x11 * (i + 1), PATIENCE_MS));
		CHECK_EQ(bo_word(bos[i], 4), 0);
		FAILS(rkfd_space_wait(spaces[i], bos[i], PAGE, 1, SHORT_MS), ETIMEDOUT, "a dword");
		FAILS(rkfd_space_wait(spaces[i], bos[i], 2 * PAGE, 1, 0), ERANGE, "");
	}
	/* The trap came in the one space; the counter of the other does not know it. */
	{
		struct pollfd p = { .fd = counters[1], .events = POLLIN };

		CHECK_EQ(poll(&p, 1, (int)PATIENCE_MS), 1);
		p.fd = counters[0];
		CHECK_EQ(poll(&p, 1, 0), 0);
	}
	for (unsigned int i = 0; i < 2; i++) {
		rkfd_space_event_free(events[i]);
		rkfd_space_queue_free(queues[i]);
		rkfd_bo_free(bos[i]);
		rkfd_space_close(spaces[i]);
		close(counters[i]);
	}
}

CASE(native_info, "an address space tells of its GPU, as /dev/kfd does")
{
	struct rkfd_space *space = need_space();
	struct rkfd_space_info info = { .size = sizeof(info) };
	struct rkfd_gpu_info known = { .size = sizeof(known) };
	struct rkfd_bo *bo = need_bo(space, RKFD_HEAP_SYSTEM, PAGE);
	struct rkfd_bind_list *list;

	need_vm();
	OK(rkfd_gpu_describe(gpu, &known));
	OK(rkfd_space_describe(space, &info));
	CHECK_EQ(info.size, sizeof(info));
	CHECK_OP(info.version, >=, 1);
	CHECK_EQ(info.gfx_target_version, known.gfx_target_version);
	CHECK_EQ(info.device, known.device);
	CHECK_EQ(info.compute_units, known.simd_count / known.simd_per_cu);
	CHECK_EQ(info.wavefront_size, 64);
	CHECK_OP(info.sdma_engines, >=, known.sdma_engines);
	CHECK_NE(info.max_queues, 0);
	CHECK_EQ(info.page_sizes & (1 << 12 | 1 << 21), 1 << 12 | 1 << 21);
	/* The first and the last page there is, and nothing beside them. */
	bind_at(space, info.va_base, bo, 0);
	bind_at(space, info.va_limit + 1 - PAGE, bo, 0);
	OK(rkfd_bind_list_new(space, &list));
	OK(rkfd_bind_list_map(list, info.va_base - PAGE, bo, 0, PAGE, RKFD_RANGE_READ));
	FAILS(rkfd_space_bind(space, list), EINVAL, "BIND");
	rkfd_bind_list_free(list);
	OK(rkfd_bind_list_new(space, &list));
	OK(rkfd_bind_list_map(list, info.va_limit + 1, bo, 0, PAGE, RKFD_RANGE_READ));
	FAILS(rkfd_space_bind(space, list), EINVAL, "BIND");
	rkfd_bind_list_free(list);
	/* The first version of the header has less. */
	info.size = 56;
	info.features = 0xa5;
	OK(rkfd_space_describe(space, &info));
	CHECK_EQ(info.size, 56);
	CHECK_EQ(info.features, 0xa5);
	info.size = 48;
	FAILS(rkfd_space_describe(space, &info), EINVAL, "sizeof(struct rkfd_space_info)");
	info.size = sizeof(info);
	FAILS(rkfd_space_describe(NULL, &info), EINVAL, "space is NULL");
	rkfd_bo_free(bo);
	rkfd_space_close(space);
}

CASE(native_refused, "the native interface: what is refused says why, and has changed nothing")
{
	struct rkfd_space *a = need_space(), *b = need_space();
	struct rkfd_bo *bo = need_bo(a, RKFD_HEAP_SYSTEM, 2 * PAGE), *other;
	struct rkfd_space_queue *q;
	struct rkfd_space_event *e;
	struct rkfd_bind_list *list;
	int pipes[2];

	FAILS(rkfd_bo_new(a, 2, PAGE, &other), EINVAL, "No heap: 2");
	CHECK(!other);
	FAILS(rkfd_space_queue_new(a, RKFD_QUEUE_AQL, QUEUE_AT, &q), EINVAL, "No kind of queue");
	CHECK(!q);
	FAILS(rkfd_space_queue_new(a, RKFD_QUEUE_SDMA, QUEUE_AT + 1, &q), EINVAL, "BIND");
	OK(rkfd_bind_list_new(b, &list));
	FAILS(rkfd_bind_list_map(list, AT, bo, 0, PAGE, RKFD_RANGE_READ), EINVAL, "another address space");
	FAILS(rkfd_space_bind(a, list), EINVAL, "another address space");
	rkfd_bind_list_free(list);
	OK(rkfd_bind_list_new(a, &list));
	FAILS(rkfd_space_bind(a, list), EINVAL, "BIND");
	FAILS(rkfd_bind_list_map(list, AT, bo, 0, PAGE, 3), EINVAL, "No rights: 3");
	OK(rkfd_bind_list_map(list, AT, bo, 0, 2 * PAGE, RKFD_RANGE_EXECUTE));
	OK(rkfd_bind_list_unmap(list, AT + PAGE, PAGE));
	FAILS(rkfd_space_bind(a, list), EINVAL, "BIND");
	rkfd_bind_list_free(list);
	FAILS(rkfd_space_event_new(a, -1, &e), EBADF, "No descriptor");
	CHECK_EQ(pipe(pipes), 0);
	FAILS(rkfd_space_event_new(a, pipes[0], &e), EINVAL, "EVENT_CREATE");
	CHECK(!e);
	rkfd_bo_free(bo);
	rkfd_space_close(a);
	rkfd_space_close(b);
}

CASE(native_fault, "an access to what is not bound is a fault of its address space alone")
{
	struct rkfd_space *a = need_space(), *b = need_space();
	struct rkfd_fault_info fault = { .size = sizeof(fault) };
	struct rkfd_space_queue *q;
	struct packets p = { .n = 0 };

	FAILS(rkfd_space_fault(a, &fault), EAGAIN, "No access");
	OK(rkfd_space_queue_new(a, RKFD_QUEUE_PM4, QUEUE_AT, &q));
	pm4_write(&p, AT + 8, 1);
	OK(rkfd_space_queue_submit(q, p.dw, p.n));
	fault = await_fault(a);
	CHECK_EQ(fault.size, sizeof(fault));
	CHECK_EQ(fault.address, AT);
	CHECK_EQ(fault.access, RKFD_FAULT_WRITE);
	CHECK_NE(fault.time, 0);
	FAILS(rkfd_space_fault(b, &fault), EAGAIN, "No access");
	rkfd_space_queue_free(q);
	rkfd_space_close(a);
	rkfd_space_close(b);
}

/* Addresses of each thread's own, and those in the list of both: one to map and one to unmap for each turn. */
#define OWN(number) ((number) * 0x10000000ul)
#define LISTED_AT 0x300000000ul
#define NOT_LISTED_AT 0x400000000ul
#define TURNS 4

static struct {
	struct rkfd_space *space;
	struct rkfd_space_queue *q;
	struct rkfd_bind_list *list;
	struct rkfd_bo *bo;
} both;

static void live(unsigned int number)
{
	struct rkfd_bind_list *nothing;

	for (unsigned int turn = 0; turn < TURNS; turn++) {
		struct rkfd_bo *own = need_bo(both.space, turn % 2 ? RKFD_HEAP_SYSTEM : RKFD_HEAP_VRAM, PAGE);
		struct rkfd_fault_info fault = { .size = sizeof(fault) };
		struct rkfd_space_info info = { .size = sizeof(info) };
		const uint32_t value = 0x100 * (number + 1) + turn;
		const uint64_t at = AT + OWN(number), listed = (2 * turn + number) * PAGE;
		struct packets mine = { .n = 0 }, ours = { .n = 0 };
		int counter = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		struct pollfd p = { .fd = counter, .events = POLLIN };
		struct rkfd_space_queue *q;
		struct rkfd_space_event *e;

		CHECK(counter >= 0);
		OK(rkfd_space_describe(both.space, &info));
		CHECK_NE(info.gfx_target_version, 0);
		/* One more address space, for a moment. */
		rkfd_space_close(need_space());
		/* In the place of the one before. */
		bind_at(both.space, at, own, 0);
		OK(rkfd_space_queue_new(both.space, RKFD_QUEUE_SDMA, QUEUE_AT + OWN(number), &q));
		OK(rkfd_space_event_new(both.space, counter, &e));
		sdma_write(&mine, at + 4, &value, 1);
		sdma_trap(&mine, rkfd_space_event_slot(e));
		OK(rkfd_space_queue_submit(q, mine.dw, mine.n));
		pm4_write(&ours, at + 8, value);
		OK(rkfd_space_queue_submit(both.q, ours.dw, ours.n));
		OK(rkfd_space_wait(both.space, own, 4, value, PATIENCE_MS));
		OK(rkfd_space_wait(both.space, own, 8, value, PATIENCE_MS));
		CHECK_EQ(poll(&p, 1, (int)PATIENCE_MS), 1);
		OK(rkfd_bind_list_map(both.list, LISTED_AT + listed, both.bo, listed, PAGE, RKFD_RANGE_WRITE));
		OK(rkfd_bind_list_unmap(both.list, NOT_LISTED_AT + listed, PAGE));
		FAILS(rkfd_space_fault(both.space, &fault), EAGAIN, "No access");
		rkfd_space_event_free(e);
		rkfd_space_queue_free(q);
		rkfd_bo_free(own);
		close(counter);
	}
	OK(rkfd_bind_list_new(both.space, &nothing));
	OK(rkfd_bind_list_unmap(nothing, AT + OWN(number), PAGE));
	OK(rkfd_space_bind(both.space, nothing));
	rkfd_bind_list_free(nothing);
}

static void bind_both(unsigned int number)
{
	OK(rkfd_space_bind(both.space, both.list));
}

CASE(native_threads, "two threads live in one address space: memory, queues and events of their own, a queue and a list of both")
{
	struct packets p = { .n = 0 };

	both.space = need_space();
	both.bo = need_bo(both.space, RKFD_HEAP_SYSTEM, 2 * TURNS * PAGE);
	OK(rkfd_bind_list_new(both.space, &both.list));
	OK(rkfd_space_queue_new(both.space, RKFD_QUEUE_PM4, QUEUE_AT + OWN(2), &both.q));
	in_two(live);
	/* What both have put into it is in it. */
	in_two(bind_both);
	for (unsigned int n = 0; n < 2 * TURNS; n++)
		pm4_write(&p, LISTED_AT + n * PAGE, 0x1000 + n);
	OK(rkfd_space_queue_submit(both.q, p.dw, p.n));
	for (unsigned int n = 0; n < 2 * TURNS; n++)
		OK(rkfd_space_wait(both.space, both.bo, n * PAGE, 0x1000 + n, PATIENCE_MS));
	rkfd_space_queue_free(both.q);
	rkfd_bind_list_free(both.list);
	rkfd_bo_free(both.bo);
	rkfd_space_close(both.space);
}
