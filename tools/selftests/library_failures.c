// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: packets that cannot run, and queues that cannot be destroyed.
 */
#include "library_failures.h"

#include <fcntl.h>
#include <linux/kfd_ioctl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* Headers of packets: type, barrier bit. */
enum { VENDOR = 0, DISPATCH = 2, BARRIER = 3 | 1 << 8, AGENT_DISPATCH = 4 };

/* A dispatch of one work-group of one work-item, without a code object. */
static const uint32_t dispatch[16] = { 1 << 16, 1 | 1 << 16, 1, 1, 1, 1 };

static uint64_t emit(struct rkfd_queue *q, const uint32_t packet[16], uint16_t header)
{
	uint64_t index;

	OK(rkfd_aql_emit(q, packet, header, &index));
	OK(rkfd_queue_commit(q));
	return index;
}

CASE(bad_packets, "each packet that cannot run stops its queue, with a reason that says why")
{
	uint32_t no_dimensions[16] = { 0, 1 | 1 << 16, 1, 1, 1, 1 };
	uint32_t large_group[16] = { 2 << 16, 1024 | 2 << 16, 1, 1024, 2, 1 };
	uint32_t group_memory[16] = { 1 << 16, 1 | 1 << 16, 1, 1, 1, 1, 0, 1 << 20 };
	uint32_t unknown_vendor[16] = { 77u << 16 };
	const struct {
		const uint32_t *packet;
		uint16_t header;
		uint32_t reason;
		uint64_t code;
	} bad[] = {
		{ no_dimensions, DISPATCH, RKFD_REASON_DIMENSION, 0x2 },
		{ group_memory, DISPATCH, RKFD_REASON_GROUP_MEMORY, 0x4 },
		{ dispatch, DISPATCH, RKFD_REASON_CODE_OBJECT, 0x8 },
		{ dispatch, AGENT_DISPATCH, RKFD_REASON_PACKET_FORMAT, 0x20 },
		{ large_group, DISPATCH, RKFD_REASON_WORKGROUP_SIZE, 0x40 },
		{ unknown_vendor, VENDOR, RKFD_REASON_VENDOR_PACKET, 0x100 },
	};

	need_vm();
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct rkfd_queue *q = queue(RKFD_QUEUE_AQL);
		struct rkfd_queue_error_info e = { .size = sizeof(e) };

		FAILS(rkfd_queue_error(q, &e), EAGAIN, "did not stop");
		FAILS(rkfd_queue_error_wait(q, SHORT_MS, &e), ETIMEDOUT, "a queue to fail");
		/* A good one first: the index tells which it was. */
		OK(rkfd_aql_barrier(q, NULL, 0, 0, NULL));
		CHECK_EQ(emit(q, bad[i].packet, bad[i].header), 1);
		e = awaited(q);
		CHECK_EQ(e.reason, bad[i].reason);
		CHECK_EQ(e.reasons, 1ull << bad[i].reason);
		CHECK_EQ(e.code, bad[i].code);
		CHECK_EQ(e.packet, 1);
		CHECK_EQ(e.exceptions, 0);
		memset((char *)&e + 4, 0, sizeof(e) - 4);
		OK(rkfd_queue_error(q, &e));
		CHECK_EQ(e.reason, bad[i].reason);
		/* Who waits learns it at once. */
		FAILS(rkfd_queue_wait(q, PATIENCE_MS), EIO, rkfd_reason_text(e.reason));
		OK(rkfd_queue_free(q));
	}
	CHECK_EQ(strcmp(rkfd_reason_text(99), ""), 0);
}

CASE(exceptions_too, "the driver's exceptions of a queue, once the runtime is enabled, which is once")
{
	struct told told = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct rkfd_queue_error_info e;
	struct rkfd_queue *q;

	need_vm();
	OK(rkfd_vm_enable_runtime(vm));
	FAILS(rkfd_vm_enable_runtime(vm), EBUSY, "RUNTIME_ENABLE");
	q = queue(RKFD_QUEUE_AQL);
	told.event = event();
	OK(rkfd_queue_on_error(q, tell, &told));
	emit(q, dispatch, DISPATCH);
	/* The packet processor's code comes first, the driver's word a moment later: then there is another call. */
	do
		e = last_of(&told, 0);
	while (!e.exceptions);
	CHECK_EQ(e.exceptions, KFD_EC_MASK(EC_QUEUE_PACKET_DISPATCH_CODE_INVALID));
	CHECK_EQ(e.code, 0x8);
	CHECK_EQ(e.reason, RKFD_REASON_CODE_OBJECT);
	CHECK_EQ(e.reasons, 1 << RKFD_REASON_CODE_OBJECT);
	OK(rkfd_queue_free(q));
}

CASE(runtime_too_late, "the runtime is enabled before the first queue, or not at all")
{
	struct rkfd_queue *q;

	need_vm();
	q = queue(RKFD_QUEUE_SDMA);
	FAILS(rkfd_vm_enable_runtime(vm), EEXIST, "RUNTIME_ENABLE");
	OK(rkfd_queue_free(q));
	OK(rkfd_vm_enable_runtime(vm));
}

CASE(callback, "a callback learns of a stop, and so does one that comes later or takes another's place")
{
	struct told told = { .lock = PTHREAD_MUTEX_INITIALIZER }, other = told, unused = told;
	struct rkfd_queue_error_info e;
	struct rkfd_queue *q;
	uint64_t index;

	need_vm();
	told.event = event();
	other.event = event();
	unused.event = event();
	q = queue(RKFD_QUEUE_AQL);
	OK(rkfd_queue_on_error(q, tell, &unused));
	/* Another takes its place. */
	OK(rkfd_queue_on_error(q, tell, &told));
	OK(rkfd_aql_barrier(q, NULL, 0, 0, NULL));
	index = emit(q, dispatch, DISPATCH);
	e = last_of(&told, 1);
	CHECK_EQ(index, 1);
	CHECK_EQ(e.reason, RKFD_REASON_CODE_OBJECT);
	CHECK_EQ(e.packet, index);
	OK(rkfd_queue_on_error(q, NULL, NULL));
	/* The queue still stands there. */
	OK(rkfd_queue_on_error(q, tell, &other));
	e = last_of(&other, 1);
	CHECK_EQ(e.packet, index);
	OK(rkfd_queue_free(q));
	CHECK_EQ(unused.times, 0);
	CHECK_EQ(told.times, 1);
	CHECK_EQ(other.times, 1);
}

CASE(waiters_learn, "whoever waits for a queue that stops learns of it, in a full ring as well")
{
	struct rkfd_queue *q, *pm4;
	uint32_t word[16] = { 0 };
	uint64_t first;

	need_vm();
	q = queue(RKFD_QUEUE_AQL);
	pm4 = queue(RKFD_QUEUE_PM4);
	emit(q, dispatch, DISPATCH);
	for (unsigned int i = 1; i < 64; i++)
		OK(rkfd_aql_barrier(q, NULL, 0, 0, NULL));
	OK(rkfd_queue_commit(q));
	FAILS(rkfd_aql_reserve(q, 1, PATIENCE_MS, &first), EIO, "stopped at packet 0");
	FAILS(rkfd_aql_emit(q, word, BARRIER, NULL), EIO, "bad code object");
	FAILS(rkfd_queue_reserve(q, 16, PATIENCE_MS), EIO, "stopped at packet 0");
	FAILS(rkfd_queue_wait(q, PATIENCE_MS), EIO, "stopped at packet 0");
	FAILS(rkfd_queue_error(pm4, &(struct rkfd_queue_error_info){ .size = sizeof(struct rkfd_queue_error_info) }), EINVAL,
	      "A packet for an AQL queue on a PM4 queue");
	FAILS(rkfd_queue_on_error(pm4, tell, NULL), EINVAL, "AQL");
	FAILS(rkfd_queue_error(q, NULL), EINVAL, "rkfd_queue_error_info is NULL");
	OK(rkfd_queue_free(q));
}

/* What two threads use at once. */
static struct {
	struct rkfd_queue *q;
	struct told told[2];
	unsigned int enabled;
} both;

/* One of the two does it. */
static void enable(unsigned int number)
{
	int rc = rkfd_vm_enable_runtime(vm);

	if (rc)
		CHECK_ERR(-rc, EBUSY);
	else
		__atomic_fetch_add(&both.enabled, 1, __ATOMIC_RELAXED);
}

/* Each takes the other's callback away, and nothing has stopped yet. */
static void watch(unsigned int number)
{
	struct rkfd_queue_error_info e = { .size = sizeof(e) };

	for (unsigned int i = 0; i < 8; i++)
		OK(rkfd_queue_on_error(both.q, tell, &both.told[number]));
	FAILS(rkfd_queue_error_wait(both.q, SHORT_MS, &e), ETIMEDOUT, "a queue to fail");
	FAILS(rkfd_queue_error(both.q, &e), EAGAIN, "did not stop");
}

/* Each emits what the queue stops at, the later one behind the other's. */
static void stop(unsigned int number)
{
	struct rkfd_queue_error_info e;

	emit(both.q, dispatch, DISPATCH);
	e = awaited(both.q);
	CHECK_EQ(e.packet, 0);
	CHECK_EQ(e.reason, RKFD_REASON_CODE_OBJECT);
	FAILS(rkfd_queue_wait(both.q, PATIENCE_MS), EIO, rkfd_reason_text(e.reason));
	OK(rkfd_queue_on_error(both.q, tell, &both.told[number]));
}

CASE(watched_by_two, "two threads watch one queue, have it stop and learn of it, all at once; one of them enables the runtime")
{
	need_vm();
	in_two(enable);
	CHECK_EQ(both.enabled, 1);
	both.q = queue(RKFD_QUEUE_AQL);
	for (unsigned int i = 0; i < 2; i++) {
		CHECK_EQ(pthread_mutex_init(&both.told[i].lock, NULL), 0);
		both.told[i].event = event();
	}
	in_two(watch);
	CHECK_EQ(both.told[0].times + both.told[1].times, 0);
	in_two(stop);
	/* Each had a callback at the stopped queue, unless the other took its place before it was called. */
	OK(rkfd_events_wait((const struct rkfd_event *[]){ both.told[0].event, both.told[1].event }, 2, 0, PATIENCE_MS));
	OK(rkfd_queue_on_error(both.q, NULL, NULL));
	for (unsigned int i = 0; i < 2; i++)
		if (both.told[i].times)
			CHECK_EQ(both.told[i].last.packet, 0);
	CHECK_OP(both.told[0].times + both.told[1].times, >=, 1);
	OK(rkfd_queue_free(both.q));
}

/* Which descriptors are /dev/kfd, and a copy of one. */
static struct {
	int fds[8], copy;
	unsigned int n;
} kfd;

/*
 * Another file takes the place of /dev/kfd, or that comes back: in between each call fails and the kernel has done
 * nothing, which is what a GPU that does not let a queue go is to a program.
 */
static void kernel_answers(bool yes)
{
	int other = open("/dev/null", O_RDWR);

	CHECK_OP(other, >=, 0);
	for (int fd = 0; fd < 64 && !yes; fd++) {
		char path[32], target[32] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) < 0 || strcmp(target, "/dev/kfd"))
			continue;
		CHECK_OP(kfd.n, <, 8);
		kfd.fds[kfd.n++] = fd;
	}
	CHECK_NE(kfd.n, 0);
	if (!yes)
		kfd.copy = dup(kfd.fds[0]);
	for (unsigned int i = 0; i < kfd.n; i++)
		CHECK_EQ(dup2(yes ? kfd.copy : other, kfd.fds[i]), kfd.fds[i]);
	if (yes) {
		close(kfd.copy);
		kfd.n = 0;
	}
	close(other);
}

CASE(not_destroyed, "a queue that cannot be destroyed keeps its memory and works on, until it can be")
{
	static const uint32_t kinds[] = { RKFD_QUEUE_PM4, RKFD_QUEUE_AQL, RKFD_QUEUE_SDMA };
	struct rkfd_queue_info info;
	struct rkfd_signals *s;
	struct rkfd_buffer *b;
	struct rkfd_event *e;

	need_vm();
	b = memory(RKFD_BUFFER_GTT, PAGE);
	e = event();
	s = signals(1);
	for (unsigned int i = 0; i < 3; i++) {
		struct rkfd_queue *q = queue(kinds[i]);
		uint32_t value = 0x100 + i;

		kernel_answers(false);
		FAILS(rkfd_queue_free(q), ENOTTY, "DESTROY_QUEUE");
		FAILS(rkfd_queue_free(q), ENOTTY, "DESTROY_QUEUE");
		kernel_answers(true);
		/* Ring and pointers are there, for the GPU and for this process. */
		info = info_of(q);
		CHECK_EQ(*(volatile uint64_t *)(uintptr_t)info.write_pointer, 0);
		CHECK_EQ(*(volatile uint32_t *)(uintptr_t)info.ring, kinds[i] == RKFD_QUEUE_AQL ? 1 : 0);
		switch (kinds[i]) {
		case RKFD_QUEUE_PM4:
			write_by(q, e, rkfd_buffer_gpu(b), value);
			CHECK_EQ(dword(b, 0), value);
			break;
		case RKFD_QUEUE_AQL:
			OK(rkfd_aql_barrier(q, NULL, 0, rkfd_signals_address(s, 0), NULL));
			OK(rkfd_queue_commit(q));
			OK(rkfd_signals_wait_below(s, 0, 1, PATIENCE_MS, NULL));
			break;
		default:
			OK(rkfd_sdma_fence(q, rkfd_buffer_gpu(b), value));
			OK(rkfd_sdma_raise(q, e));
			OK(rkfd_queue_commit(q));
			OK(rkfd_event_wait(e, PATIENCE_MS));
			CHECK_EQ(dword(b, 0), value);
		}
		OK(rkfd_queue_free(q));
	}
}
