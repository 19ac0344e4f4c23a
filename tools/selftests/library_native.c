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
#define FIRST_MINOR 128
#define MINORS 16

static struct rkfd_space *need_space(void)
{
	struct rkfd_space *space;

	for (unsigned int minor = FIRST_MINOR; minor < FIRST_MINOR + MINORS; minor++) {
		char path[64];

		snprintf(path, sizeof(path), "/dev/dri/renderD%u", minor);
		if (!rkfd_space_open(path, &space))
			return space;
		CHECK(!space);
	}
	LACKING("no render node with the native interface: %s", rkfd_last_error());
}

static struct rkfd_bo *need_bo(struct rkfd_space *space, uint32_t heap, uint64_t bytes)
{
	struct rkfd_bo *bo;

	OK(rkfd_bo_new(space, heap, bytes, &bo));
	CHECK_EQ(rkfd_bo_size(bo), bytes);
	CHECK(rkfd_bo_cpu(bo));
	return bo;
}

static void bind_at(struct rkfd_space *space, uint64_t address, struct rkfd_bo *bo, uint64_t offset)
{
	struct rkfd_bind_list *list;

	OK(rkfd_bind_list_new(space, &list));
	OK(rkfd_bind_list_map(list, address, bo, offset, PAGE, RKFD_RANGE_WRITE));
	OK(rkfd_space_bind(space, list));
	rkfd_bind_list_free(list);
}

static uint32_t word(struct rkfd_bo *bo, uint64_t offset)
{
	return __atomic_load_n((uint32_t *)((char *)rkfd_bo_cpu(bo) + offset), __ATOMIC_ACQUIRE);
}

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
		CHECK_EQ(word(bos[i], 4), 0);
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
	unsigned int looks = 0;
	int rc;

	FAILS(rkfd_space_fault(a, &fault), EAGAIN, "No access");
	OK(rkfd_space_queue_new(a, RKFD_QUEUE_PM4, QUEUE_AT, &q));
	pm4_write(&p, AT + 8, 1);
	OK(rkfd_space_queue_submit(q, p.dw, p.n));
	while ((rc = rkfd_space_fault(a, &fault)) == -EAGAIN) {
		CHECK_OP(looks++, <, PATIENCE_MS);
		usleep(1000);
	}
	OK(rc);
	CHECK_EQ(fault.size, sizeof(fault));
	CHECK_EQ(fault.address, AT);
	CHECK_EQ(fault.access, RKFD_FAULT_WRITE);
	CHECK_NE(fault.time, 0);
	FAILS(rkfd_space_fault(b, &fault), EAGAIN, "No access");
	rkfd_space_queue_free(q);
	rkfd_space_close(a);
	rkfd_space_close(b);
}
