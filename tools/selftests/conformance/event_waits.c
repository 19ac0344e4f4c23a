// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Waiting for events that the CPU signals: any and all, time limits, ages, sleepers, signal handlers.
 */
#include "kfd.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNKNOWN 4095u

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

CASE(wait_unwritable, "WAIT: a list that can be read but not written is EFAULT where an entry is to be filled")
{
	struct kfd_event_data *data;
	struct waited w;
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	CHECK_OK(event_set(&gpu, ev.id));
	data = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(data != MAP_FAILED);
	data->event_id = ev.id;
	/* Whoever tells an age is told the new one. */
	data->signal_event_data.last_event_age = 1;
	CHECK_EQ(mprotect(data, PAGE, PROT_READ), 0);
	CHECK_ERR(event_wait_data(&gpu, data, 1, true, 0, &w), EFAULT);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_FAIL);
	CHECK_EQ(mprotect(data, PAGE, PROT_READ | PROT_WRITE), 0);
	CHECK_OK(event_wait_data(&gpu, data, 1, true, 0, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data->signal_event_data.last_event_age, 2);
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
	uint64_t start;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	start = now_ms();
	CHECK_OK(event_wait(&gpu, &ev.id, 1, true, 50, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_TIMEOUT);
	/* now_ms() drops fractions. */
	CHECK_OP(now_ms() - start, >=, 49);
}

struct sleeper {
	const struct gpu *gpu;
	uint32_t id;
	uint32_t ms;
	int err;
	struct waited w;
	volatile pid_t tid;
};

static void *sleep_on(void *arg)
{
	struct sleeper *s = arg;

	__atomic_store_n(&s->tid, gettid(), __ATOMIC_RELEASE);
	s->err = event_wait(s->gpu, &s->id, 1, true, s->ms, &s->w);
	return NULL;
}

static void start(struct sleeper *s, pthread_t *thread, const struct gpu *gpu, uint32_t id, uint32_t ms)
{
	*s = (struct sleeper){ .gpu = gpu, .id = id, .ms = ms };
	CHECK_EQ(pthread_create(thread, NULL, sleep_on, s), 0);
	await_sleep(&s->tid);
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
	CHECK_EQ(event_poll(&gpu, ev.id),
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
	CHECK_EQ(event_poll(&gpu, ev.id), KFD_IOC_WAIT_RESULT_COMPLETE);
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
	CHECK_EQ(event_poll(&gpu, ev.id), KFD_IOC_WAIT_RESULT_COMPLETE);
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
	volatile pid_t tid;
};

static void *wait_once(void *arg)
{
	struct interrupted *s = arg;
	struct kfd_event_data data = { .event_id = s->id };

	__atomic_store_n(&s->tid, gettid(), __ATOMIC_RELEASE);
	s->err = event_wait_data(s->gpu, &data, 1, true, tap_ms(30000), &s->w);
	return NULL;
}

static void interrupt_sleeper(int flags, struct interrupted *s, bool set_after)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	pthread_t t;

	CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK_EQ(pthread_create(&t, NULL, wait_once, s), 0);
	await_sleep(&s->tid);
	CHECK_EQ(pthread_kill(t, SIGUSR1), 0);
	while (!handled)
		sched_yield();
	if (set_after) {
		await_sleep(&s->tid);
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
	const volatile pid_t *tid = arg;

	await_sleep(tid);
	CHECK_EQ(tgkill(getpid(), *tid, SIGUSR1), 0);
	return NULL;
}

CASE(interrupted_returns_signal, "WAIT: an interrupted wait gives back the auto-reset signal that it had taken")
{
	struct sigaction action = { .sa_handler = on_signal };
	struct kfd_event_data data[2];
	struct event taken, never;
	struct waited w;
	struct gpu gpu;
	volatile pid_t self = 0;
	pthread_t t;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &taken);
	need_event(&gpu, true, &never);
	CHECK_OK(event_set(&gpu, taken.id));
	CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK_EQ(pthread_create(&t, NULL, interrupt, (void *)&self), 0);
	memset(data, 0, sizeof(data));
	data[0].event_id = taken.id;
	data[1].event_id = never.id;
	/* The next sleep of this thread is that of the call. */
	__atomic_store_n(&self, gettid(), __ATOMIC_RELEASE);
	CHECK_ERR(event_wait_data(&gpu, data, 2, true, tap_ms(30000), &w), EINTR);
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK_EQ(handled, 1);
	CHECK_EQ(event_poll(&gpu, taken.id), KFD_IOC_WAIT_RESULT_COMPLETE);
}

static void sleep_until_killed(int ready)
{
	struct sleeper s;
	struct event ev;
	struct gpu gpu;
	pthread_t t;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	start(&s, &t, &gpu, ev.id, 0xffffffff);
	say_ready(ready);
	pthread_join(t, NULL);
}

CASE(killed_sleeper, "a process killed in its sleep goes away")
{
	kill_child(start_child(sleep_until_killed));
}
