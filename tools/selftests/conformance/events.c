// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Events signalled by the CPU: ids, limits, auto-reset, ages, waiting, life time.
 */
#include "kfd.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UNKNOWN 4095u

static uint32_t poll_one(const struct gpu *gpu, uint32_t id)
{
	struct waited w;

	CHECK_OK(event_wait(gpu, &id, 1, true, 0, &w));
	return w.result;
}

CASE(create_values, "CREATE_EVENT: a signal event's id, slot and trigger agree and are not 0")
{
	struct kfd_ioctl_create_event_args args = { .event_type = KFD_IOC_EVENT_SIGNAL };
	struct event first;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &first);
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_CREATE_EVENT, &args));
	CHECK_NE(args.event_id, 0);
	CHECK_NE(args.event_id, first.id);
	CHECK_OP(args.event_id, <, KFD_SIGNAL_EVENT_LIMIT);
	CHECK_EQ(args.event_slot_index, args.event_id);
	CHECK_EQ(args.event_trigger_data, args.event_id);
	CHECK_EQ(args.event_page_offset, 2ull << 62);
}

CASE(create_slot_idle, "CREATE_EVENT: the slots of a new page are all ones")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	CHECK_EQ(*(volatile uint64_t *)ev.slot_va, ~0ull);
}

CASE(create_lowest, "CREATE_EVENT: the lowest free id is reused")
{
	struct event a, b, c, again;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &a);
	need_event(&gpu, false, &b);
	need_event(&gpu, false, &c);
	CHECK_EQ(b.id, a.id + 1);
	CHECK_EQ(c.id, b.id + 1);
	CHECK_OK(event_destroy(&gpu, b.id));
	need_event(&gpu, false, &again);
	CHECK_EQ(again.id, b.id);
}

CASE(reused_is_fresh, "CREATE_EVENT: a reused id is not signalled and its slot is idle")
{
	struct event a, b;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &a);
	CHECK_OK(event_set(&gpu, a.id));
	*(volatile uint64_t *)a.slot_va = a.id;
	CHECK_OK(event_destroy(&gpu, a.id));
	need_event(&gpu, false, &b);
	CHECK_EQ(b.id, a.id);
	CHECK_EQ(*(volatile uint64_t *)b.slot_va, ~0ull);
	CHECK_EQ(poll_one(&gpu, b.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

CASE(create_other_types, "CREATE_EVENT: memory and hardware events have ids above 0x40000000 and need no page")
{
	struct event memory, hardware;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &memory));
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_HW_EXCEPTION, false, 0, &hardware));
	CHECK_OP(memory.id, >=, 0x40000000);
	CHECK_OP(hardware.id, >=, 0x40000000);
	CHECK_NE(memory.id, hardware.id);
	CHECK_EQ(poll_one(&gpu, memory.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_EQ(poll_one(&gpu, hardware.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

CASE(create_no_page, "CREATE_EVENT: a signal event before there is a page is ENOMEM")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, 0, &ev), ENOMEM);
}

CASE(page_twice, "CREATE_EVENT: a second page is EINVAL")
{
	struct event ev;
	struct gpu gpu;
	struct bo other;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	need_bo(&gpu, &other, FLAGS_GTT, EVENT_PAGE_BYTES);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, other.handle, &ev), EINVAL);
	drop_bo(&gpu, &other);
}

CASE(page_bad_handle, "CREATE_EVENT: a page handle that does not exist is EINVAL")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, (uint64_t)gpu.id << 32 | 0x7fffffff, &ev), EINVAL);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, (uint64_t)(gpu.id ^ 0x5555) << 32 | 1, &ev), EINVAL);
}

CASE(page_wrong_kind, "CREATE_EVENT: a page in user memory is EINVAL")
{
	struct event ev;
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_USERPTR, EVENT_PAGE_BYTES);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, bo.handle, &ev), EINVAL);
	drop_bo(&gpu, &bo);
}

CASE(page_too_small, "CREATE_EVENT: a page of less than 32 KiB is refused, a good one after it is not")
{
	struct event ev;
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, EVENT_PAGE_BYTES / 2);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, bo.handle, &ev), EINVAL);
	need_event(&gpu, false, &ev);
	drop_bo(&gpu, &bo);
}

CASE(page_not_freed, "FREE: of the event page is EPERM")
{
	struct event ev;
	struct gpu gpu;
	struct bo page;

	need_vm(&gpu, 0);
	need_bo(&gpu, &page, FLAGS_GTT, EVENT_PAGE_BYTES);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, page.handle, &ev));
	CHECK_ERR(bo_free(&gpu, &page), EPERM);
	CHECK_OK(event_destroy(&gpu, ev.id));
	CHECK_ERR(bo_free(&gpu, &page), EPERM);
}

CASE_LIMIT(limit, "CREATE_EVENT: 4095 signal events and one more is ENOSPC; a destroyed one makes room", 120)
{
	struct event ev, last;
	struct gpu gpu;
	int err = 0;
	unsigned int n = 1;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	while (n < 5000 && !(err = event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, 0, &last)))
		n++;
	CHECK_EQ(n, KFD_SIGNAL_EVENT_LIMIT - 1);
	CHECK_ERR(err, ENOSPC);
	CHECK_OK(event_destroy(&gpu, ev.id));
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, 0, &last));
	CHECK_EQ(last.id, ev.id);
}

CASE(unknown_ids, "SET, RESET, DESTROY and WAIT of an unknown id are EINVAL")
{
	struct event ev;
	struct waited w;
	struct gpu gpu;
	uint32_t ids[] = { UNKNOWN, 0, 0x40000000, 0xffffffff };

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	for (unsigned int i = 0; i < 4; i++) {
		CHECK_ERR(event_set(&gpu, ids[i]), EINVAL);
		CHECK_ERR(event_reset(&gpu, ids[i]), EINVAL);
		CHECK_ERR(event_destroy(&gpu, ids[i]), EINVAL);
		CHECK_ERR(event_wait(&gpu, &ids[i], 1, true, 0, &w), EINVAL);
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_FAIL);
	}
}

CASE(destroy_twice, "DESTROY_EVENT: twice is EINVAL")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	CHECK_OK(event_destroy(&gpu, ev.id));
	CHECK_ERR(event_destroy(&gpu, ev.id), EINVAL);
}

CASE(set_other_types, "SET and RESET of a memory event are EINVAL")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &ev));
	CHECK_ERR(event_set(&gpu, ev.id), EINVAL);
	CHECK_ERR(event_reset(&gpu, ev.id), EINVAL);
	CHECK_OK(event_destroy(&gpu, ev.id));
}

CASE(manual_reset, "a manual event stays signalled until RESET")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	CHECK_EQ(poll_one(&gpu, ev.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_OK(event_set(&gpu, ev.id));
	for (int i = 0; i < 3; i++)
		CHECK_EQ(poll_one(&gpu, ev.id), KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_OK(event_reset(&gpu, ev.id));
	CHECK_EQ(poll_one(&gpu, ev.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

CASE(auto_reset, "an auto-reset event satisfies one wait")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ev);
	CHECK_OK(event_set(&gpu, ev.id));
	CHECK_OK(event_set(&gpu, ev.id));
	CHECK_EQ(poll_one(&gpu, ev.id), KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(poll_one(&gpu, ev.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

CASE(auto_reset_consumed, "an auto-reset event that was signalled is consumed even if the wait times out on another")
{
	struct event ready, never;
	struct waited w;
	struct gpu gpu;
	uint32_t ids[2];

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ready);
	need_event(&gpu, true, &never);
	ids[0] = ready.id;
	ids[1] = never.id;
	CHECK_OK(event_set(&gpu, ready.id));
	CHECK_OK(event_wait(&gpu, ids, 2, true, 10, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_EQ(poll_one(&gpu, ready.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

CASE(any_of, "WAIT for any: one signalled of three is enough, wherever it stands")
{
	struct event ev[3];
	struct waited w;
	struct gpu gpu;
	uint32_t ids[3];

	need_vm(&gpu, 0);
	for (int i = 0; i < 3; i++) {
		need_event(&gpu, false, &ev[i]);
		ids[i] = ev[i].id;
	}
	CHECK_OK(event_wait(&gpu, ids, 3, false, 0, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_TIMEOUT);
	for (int i = 0; i < 3; i++) {
		CHECK_OK(event_set(&gpu, ids[i]));
		CHECK_OK(event_wait(&gpu, ids, 3, false, 0, &w));
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
		CHECK_OK(event_reset(&gpu, ids[i]));
	}
}

CASE(all_of, "WAIT for all: only when every one is signalled")
{
	struct event ev[3];
	struct waited w;
	struct gpu gpu;
	uint32_t ids[3];

	need_vm(&gpu, 0);
	for (int i = 0; i < 3; i++) {
		need_event(&gpu, false, &ev[i]);
		ids[i] = ev[i].id;
	}
	for (int i = 0; i < 3; i++) {
		CHECK_OK(event_wait(&gpu, ids, 3, true, 0, &w));
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_TIMEOUT);
		CHECK_OK(event_set(&gpu, ids[i]));
	}
	CHECK_OK(event_wait(&gpu, ids, 3, true, 0, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
}

CASE(wait_none_all, "WAIT for all of nothing is complete at once")
{
	struct waited w;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(event_wait(&gpu, NULL, 0, true, 1000, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
}

CASE(wait_none_any, "WAIT for any of nothing is complete at once")
{
	struct waited w;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(event_wait(&gpu, NULL, 0, false, 1000, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
}

CASE(wait_too_many, "WAIT: more than 4096 events is ENOMEM")
{
	struct kfd_event_data *data = calloc(4097, sizeof(*data));
	struct waited w;
	struct gpu gpu;

	CHECK(data);
	need_vm(&gpu, 0);
	CHECK_ERR(event_wait_data(&gpu, data, 4097, true, 0, &w), ENOMEM);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_FAIL);
}

CASE(wait_bad_pointer, "WAIT: an unreadable list is EFAULT")
{
	struct waited w;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(event_wait_data(&gpu, (void *)8, 1, true, 0, &w), EFAULT);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_FAIL);
}

CASE(wait_partly_unknown, "WAIT: one unknown event among known ones is EINVAL")
{
	struct event ev;
	struct waited w;
	struct gpu gpu;
	uint32_t ids[2];

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	ids[0] = ev.id;
	ids[1] = UNKNOWN;
	CHECK_ERR(event_wait(&gpu, ids, 2, false, 1000, &w), EINVAL);
}

CASE(wait_same_twice, "WAIT: one event listed twice")
{
	struct event ev;
	struct waited w;
	struct gpu gpu;
	uint32_t ids[2];

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	ids[0] = ids[1] = ev.id;
	CHECK_OK(event_set(&gpu, ev.id));
	CHECK_OK(event_wait(&gpu, ids, 2, true, 0, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
}

CASE(wait_times_out, "WAIT: a bounded wait for nothing ends with TIMEOUT")
{
	struct event ev;
	struct waited w;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	CHECK_OK(event_wait(&gpu, &ev.id, 1, true, 50, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_TIMEOUT);
}

struct sleeper {
	const struct gpu *gpu;
	uint32_t id;
	uint32_t ms;
	int err;
	struct waited w;
	pid_t tid;
	volatile int started;
};

static void *sleep_on(void *arg)
{
	struct sleeper *s = arg;

	s->tid = gettid();
	__atomic_store_n(&s->started, 1, __ATOMIC_RELEASE);
	s->err = event_wait(s->gpu, &s->id, 1, true, s->ms, &s->w);
	return NULL;
}

/* Waits until the thread sleeps in the kernel, as its state says. */
static void until_asleep(struct sleeper *s)
{
	char path[64], line[256];
	uint64_t end = now_ms() + tap_ms(30000);

	while (!__atomic_load_n(&s->started, __ATOMIC_ACQUIRE))
		sched_yield();
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", s->tid);
	while (now_ms() < end) {
		FILE *f = fopen(path, "re");
		char *state;
		bool asleep = false;

		CHECK(f);
		if (fgets(line, sizeof(line), f) && (state = strrchr(line, ')')))
			asleep = state[2] == 'S';
		fclose(f);
		if (asleep)
			return;
		sched_yield();
	}
	FAIL("the thread does not sleep");
}

static void start(struct sleeper *s, pthread_t *thread, const struct gpu *gpu, uint32_t id, uint32_t ms)
{
	*s = (struct sleeper){ .gpu = gpu, .id = id, .ms = ms };
	CHECK_EQ(pthread_create(thread, NULL, sleep_on, s), 0);
	until_asleep(s);
}

static void wakes(bool auto_reset, uint32_t ms)
{
	struct sleeper s;
	struct event ev;
	struct gpu gpu;
	pthread_t t;

	need_vm(&gpu, 0);
	need_event(&gpu, auto_reset, &ev);
	start(&s, &t, &gpu, ev.id, ms);
	CHECK_OK(event_set(&gpu, ev.id));
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK_OK(s.err);
	CHECK_EQ(s.w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	/* A sleeper takes an auto-reset signal with it; a manual one stays. */
	CHECK_EQ(poll_one(&gpu, ev.id),
		 auto_reset ? KFD_IOC_WAIT_RESULT_TIMEOUT : KFD_IOC_WAIT_RESULT_COMPLETE);
}

CASE(wake_manual, "SET wakes a sleeper; a manual event stays signalled") { wakes(false, tap_ms(30000)); }
CASE(wake_auto, "SET wakes a sleeper; an auto-reset event is used up by it") { wakes(true, tap_ms(30000)); }
CASE(wake_infinite, "SET wakes a sleeper without time limit") { wakes(true, 0xffffffff); }
CASE(wake_largest, "SET wakes a sleeper with the largest finite limit") { wakes(true, 0xfffffffe); }

CASE(wake_all_sleepers, "SET wakes every sleeper of an auto-reset event")
{
	struct sleeper s[4];
	pthread_t t[4];
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ev);
	for (int i = 0; i < 4; i++)
		start(&s[i], &t[i], &gpu, ev.id, tap_ms(30000));
	CHECK_OK(event_set(&gpu, ev.id));
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(pthread_join(t[i], NULL), 0);
		CHECK_OK(s[i].err);
		CHECK_EQ(s[i].w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	}
}

CASE(destroy_wakes, "DESTROY_EVENT wakes a sleeper with EIO and result FAIL")
{
	struct sleeper s;
	struct event ev;
	struct gpu gpu;
	pthread_t t;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	start(&s, &t, &gpu, ev.id, tap_ms(30000));
	CHECK_OK(event_destroy(&gpu, ev.id));
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK_ERR(s.err, EIO);
	CHECK_EQ(s.w.result, KFD_IOC_WAIT_RESULT_FAIL);
}

static int wait_age(const struct gpu *gpu, uint32_t id, uint64_t *age, uint32_t ms, uint32_t *result)
{
	struct kfd_event_data data = { .event_id = id };
	struct waited w;
	int err;

	data.signal_event_data.last_event_age = *age;
	err = event_wait_data(gpu, &data, 1, true, ms, &w);
	*age = data.signal_event_data.last_event_age;
	*result = w.result;
	return err;
}

CASE(age_steps, "event age: starts at 1 and goes up by one per signal")
{
	struct event ev;
	struct gpu gpu;
	uint64_t age = 1;
	uint32_t result;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ev);
	for (uint64_t step = 1; step < 5; step++) {
		CHECK_OK(event_set(&gpu, ev.id));
		CHECK_OK(wait_age(&gpu, ev.id, &age, 1000, &result));
		CHECK_EQ(result, KFD_IOC_WAIT_RESULT_COMPLETE);
		CHECK_EQ(age, step + 1);
	}
}

CASE(age_missed, "event age: an older age means a signal was missed, and the wait is over at once")
{
	struct event ev;
	struct gpu gpu;
	uint64_t age = 1;
	uint32_t result;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ev);
	CHECK_OK(event_set(&gpu, ev.id));
	/* Someone else takes the signal. */
	CHECK_EQ(poll_one(&gpu, ev.id), KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_OK(wait_age(&gpu, ev.id, &age, 0, &result));
	CHECK_EQ(result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(age, 2);
	CHECK_OK(wait_age(&gpu, ev.id, &age, 0, &result));
	CHECK_EQ(result, KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_EQ(age, 2);
}

CASE(age_zero, "event age 0: waits for the next signal and stays 0")
{
	struct event ev;
	struct gpu gpu;
	uint64_t age = 0;
	uint32_t result;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ev);
	CHECK_OK(event_set(&gpu, ev.id));
	CHECK_EQ(poll_one(&gpu, ev.id), KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_OK(wait_age(&gpu, ev.id, &age, 0, &result));
	CHECK_EQ(result, KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_OK(event_set(&gpu, ev.id));
	CHECK_OK(wait_age(&gpu, ev.id, &age, 0, &result));
	CHECK_EQ(result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(age, 0);
}

CASE(payload_untouched, "WAIT: the entry of an event that did not fire is not written")
{
	struct event memory, signal_event;
	struct kfd_event_data data[2];
	struct waited w;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &signal_event);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &memory));
	memset(data, 0, sizeof(data));
	data[0].event_id = memory.id;
	data[0].memory_exception_data.va = 0xa5a5a5a5a5a5a5a5;
	data[1].event_id = signal_event.id;
	CHECK_OK(event_set(&gpu, signal_event.id));
	CHECK_OK(event_wait_data(&gpu, data, 2, false, 0, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data[0].memory_exception_data.va, 0xa5a5a5a5a5a5a5a5);
	CHECK_EQ(data[0].memory_exception_data.gpu_id, 0);
}

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
	handled++;
}

struct interrupted {
	const struct gpu *gpu;
	uint32_t id;
	struct waited w;
	int err;
	pid_t tid;
	volatile int started;
};

static void *wait_once(void *arg)
{
	struct interrupted *s = arg;
	struct kfd_event_data data = { .event_id = s->id };

	s->tid = gettid();
	__atomic_store_n(&s->started, 1, __ATOMIC_RELEASE);
	s->err = event_wait_data(s->gpu, &data, 1, true, tap_ms(30000), &s->w);
	return NULL;
}

static void interrupt_sleeper(int flags, struct interrupted *s, bool set_after)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	struct sleeper alias;
	pthread_t t;

	CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK_EQ(pthread_create(&t, NULL, wait_once, s), 0);
	while (!__atomic_load_n(&s->started, __ATOMIC_ACQUIRE))
		sched_yield();
	alias = (struct sleeper){ .tid = s->tid, .started = 1 };
	until_asleep(&alias);
	CHECK_EQ(pthread_kill(t, SIGUSR1), 0);
	while (!handled)
		sched_yield();
	if (set_after) {
		until_asleep(&alias);
		CHECK_OK(event_set(s->gpu, s->id));
	}
	CHECK_EQ(pthread_join(t, NULL), 0);
}

CASE(interrupted, "WAIT: a signal handler without SA_RESTART ends it with EINTR and the time that remains")
{
	struct interrupted s = { 0 };
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ev);
	s.gpu = &gpu;
	s.id = ev.id;
	interrupt_sleeper(0, &s, false);
	CHECK_ERR(s.err, EINTR);
	CHECK_EQ(s.w.result, KFD_IOC_WAIT_RESULT_FAIL);
	CHECK_OP(s.w.timeout_left, >, 0);
	CHECK_OP(s.w.timeout_left, <=, tap_ms(30000));
}

CASE(restarted, "WAIT: with SA_RESTART it goes on after the handler, and the signal still wakes it")
{
	struct interrupted s = { 0 };
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ev);
	s.gpu = &gpu;
	s.id = ev.id;
	interrupt_sleeper(SA_RESTART, &s, true);
	CHECK_OK(s.err);
	CHECK_EQ(s.w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
}

/* Sends a signal to a thread once it sleeps. */
static void *interrupt(void *arg)
{
	struct sleeper *s = arg;

	until_asleep(s);
	CHECK_EQ(tgkill(getpid(), s->tid, SIGUSR1), 0);
	return NULL;
}

CASE(interrupted_returns_signal, "WAIT: an interrupted wait gives back the auto-reset signal that it had taken")
{
	struct sigaction action = { .sa_handler = on_signal };
	struct kfd_event_data data[2];
	struct event taken, never;
	struct waited w;
	struct gpu gpu;
	struct sleeper self = { .tid = gettid() };
	pthread_t t;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &taken);
	need_event(&gpu, true, &never);
	CHECK_OK(event_set(&gpu, taken.id));
	CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK_EQ(pthread_create(&t, NULL, interrupt, &self), 0);
	memset(data, 0, sizeof(data));
	data[0].event_id = taken.id;
	data[1].event_id = never.id;
	/* The next sleep of this thread is that of the call. */
	__atomic_store_n(&self.started, 1, __ATOMIC_RELEASE);
	CHECK_ERR(event_wait_data(&gpu, data, 2, true, tap_ms(30000), &w), EINTR);
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK_EQ(handled, 1);
	CHECK_EQ(poll_one(&gpu, taken.id), KFD_IOC_WAIT_RESULT_COMPLETE);
}

CASE(killed_sleeper, "a process killed in its sleep goes away")
{
	struct sleeper s;
	int status, ready[2];
	char byte;
	pid_t pid;

	CHECK_EQ(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		struct event ev;
		struct gpu gpu;
		pthread_t t;

		need_vm(&gpu, 0);
		need_event(&gpu, false, &ev);
		start(&s, &t, &gpu, ev.id, 0xffffffff);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		pthread_join(t, NULL);
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		child_gave_up(pid);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void child_tries_event(void *id)
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	/* The parent's event is number two and more; here only one exists. */
	CHECK_ERR(event_set(&gpu, *(uint32_t *)id), EINVAL);
	CHECK_ERR(event_destroy(&gpu, *(uint32_t *)id), EINVAL);
}

CASE(foreign_event, "another process's event is unknown here")
{
	struct event ev[3];
	struct gpu gpu;

	need_vm(&gpu, 0);
	for (int i = 0; i < 3; i++)
		need_event(&gpu, false, &ev[i]);
	CHECK_EQ(in_child(child_tries_event, &ev[2].id), 0);
	CHECK_EQ(poll_one(&gpu, ev[2].id), KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_OK(event_destroy(&gpu, ev[2].id));
}
