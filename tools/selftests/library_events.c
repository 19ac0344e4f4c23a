// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: events and exceptions, of one GPU and of two.
 */
#include "library.h"

#include <sys/wait.h>
#include <unistd.h>

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

CASE(events, "waiting for several events: any, all, and what is left of them")
{
	const struct rkfd_event *both[2], *with_null[2];
	struct rkfd_event *kept, *taken;
	struct rkfd_queue *q;

	need_vm();
	q = queue(RKFD_QUEUE_PM4);
	taken = event();
	OK(rkfd_event_new(vm, 0, &kept));
	both[0] = taken;
	both[1] = kept;
	FAILS(rkfd_events_wait(both, 2, 0, SHORT_MS), ETIMEDOUT, "for 2 events");
	OK(rkfd_pm4_raise(q, kept));
	OK(rkfd_queue_commit(q));
	OK(rkfd_events_wait(both, 2, 0, PATIENCE_MS));
	CHECK_ERR(-rkfd_events_wait(both, 2, 1, SHORT_MS), ETIMEDOUT);
	OK(rkfd_pm4_raise(q, taken));
	OK(rkfd_queue_commit(q));
	OK(rkfd_events_wait(both, 2, 1, PATIENCE_MS));
	/* The one reset itself, the other did not. */
	CHECK_ERR(-rkfd_event_wait(taken, 0), ETIMEDOUT);
	OK(rkfd_event_wait(kept, 0));
	OK(rkfd_event_reset(kept));
	CHECK_ERR(-rkfd_events_wait(both, 2, 0, 0), ETIMEDOUT);
	with_null[0] = taken;
	with_null[1] = NULL;
	FAILS(rkfd_events_wait(with_null, 2, 0, 0), EINVAL, "One of the events is NULL");
	FAILS(rkfd_events_wait(both, 0, 0, 0), EINVAL, "0 elements");
	FAILS(rkfd_events_wait(NULL, 1, 0, 0), EINVAL, "events is NULL");
}

CASE(exceptions, "a queue that faults: its program, asleep for work or an exception, learns where")
{
	const struct rkfd_event *work_or_fault[2];
	struct rkfd_event *work, *fault, *hardware;
	struct rkfd_exception_info info;
	struct rkfd_gpu_info about;
	struct rkfd_queue *q;
	uint32_t value = 1;
	char *hole;

	memset(&info, 0xa5, sizeof(info));
	info.size = sizeof(info);
	about.size = sizeof(about);
	need_vm();
	OK(rkfd_gpu_describe(gpu, &about));
	q = queue(RKFD_QUEUE_PM4);
	work = event();
	OK(rkfd_exception_new(vm, RKFD_EXCEPTION_MEMORY, &fault));
	OK(rkfd_exception_new(vm, RKFD_EXCEPTION_HARDWARE, &hardware));
	CHECK_NE(rkfd_event_id(fault), 0);
	CHECK_EQ(rkfd_event_slot(fault), 0);
	work_or_fault[0] = work;
	work_or_fault[1] = fault;
	FAILS(rkfd_exception_wait(fault, SHORT_MS, &info), ETIMEDOUT, "for an exception");
	/* The CPU has the page, the GPU has not. */
	hole = pages(1);
	OK(rkfd_pm4_write(q, (uintptr_t)hole + 64, &value, 1));
	OK(rkfd_queue_commit(q));
	OK(rkfd_events_wait(work_or_fault, 2, 0, PATIENCE_MS));
	OK(rkfd_exception_wait(fault, 0, &info));
	CHECK_EQ(info.kind, RKFD_EXCEPTION_MEMORY);
	CHECK_EQ(info.gpu_id, about.gpu_id);
	CHECK_EQ(info.address, (uintptr_t)hole);
	CHECK_EQ(info.not_present, 1);
	CHECK_EQ(info.imprecise, 0);
	CHECK_EQ(info.cause, 0);
	CHECK_EQ(info.memory_lost, 0);
	CHECK_EQ(*(volatile uint32_t *)(hole + 64), 0);
	FAILS(rkfd_exception_wait(hardware, 0, &info), ETIMEDOUT, "for an exception");
	FAILS(rkfd_exception_wait(work, 0, &info), EINVAL, "not one of an exception");
	FAILS(rkfd_exception_wait(fault, 0, NULL), EINVAL, "rkfd_exception_info is NULL");
	FAILS(rkfd_exception_new(vm, 2, &work), EINVAL, "No kind of exception: 2");
	FAILS(rkfd_event_set(fault), EINVAL, "Only the driver");
	FAILS(rkfd_event_reset(fault), EINVAL, "Only the driver");
	FAILS(rkfd_pm4_raise(q, fault), EINVAL, "Only the driver");
	rkfd_event_free(fault);
	rkfd_event_free(hardware);
}

CASE(second_gpus_events, "events on two GPUs: each raises its own and the other's, and one wait takes both")
{
	struct rkfd_vm *second = need_second();
	struct rkfd_queue *one = queue(RKFD_QUEUE_PM4), *two;
	struct rkfd_event *first = event(), *other;
	const struct rkfd_event *both[2];

	OK(rkfd_queue_new(second, RKFD_QUEUE_PM4, NULL, &two));
	OK(rkfd_event_new(second, 1, &other));
	CHECK_NE(rkfd_event_id(first), rkfd_event_id(other));
	both[0] = first;
	both[1] = other;
	for (unsigned int i = 0; i < 4; i++) {
		OK(rkfd_pm4_raise(one, both[i % 2]));
		OK(rkfd_pm4_raise(two, both[1 - i % 2]));
		OK(rkfd_queue_commit(one));
		OK(rkfd_queue_commit(two));
		OK(rkfd_events_wait(both, 2, 1, PATIENCE_MS));
		CHECK_ERR(-rkfd_events_wait(both, 2, 0, 0), ETIMEDOUT);
	}
}

CASE(second_gpu_first, "the first event of a process is one of the second GPU")
{
	struct rkfd_vm *second = need_second();
	struct rkfd_queue *q = queue(RKFD_QUEUE_PM4);
	struct rkfd_event *other;

	OK(rkfd_event_new(second, 1, &other));
	OK(rkfd_pm4_raise(q, event()));
	OK(rkfd_pm4_raise(q, other));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(other, PATIENCE_MS));
}

CASE(forked, "a child of fork has events of its own, and its parent keeps its own")
{
	struct rkfd_event *e;
	struct rkfd_queue *q;
	int status;
	pid_t pid;

	need_vm();
	e = event();
	q = queue(RKFD_QUEUE_PM4);
	pid = fork();
	CHECK_OP(pid, >=, 0);
	if (pid == 0) {
		need_vm();
		e = event();
		q = queue(RKFD_QUEUE_PM4);
		OK(rkfd_pm4_raise(q, e));
		OK(rkfd_queue_commit(q));
		OK(rkfd_event_wait(e, PATIENCE_MS));
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_ERR(-rkfd_event_wait(e, 0), ETIMEDOUT);
	OK(rkfd_pm4_raise(q, e));
	OK(rkfd_queue_commit(q));
	OK(rkfd_event_wait(e, PATIENCE_MS));
}
