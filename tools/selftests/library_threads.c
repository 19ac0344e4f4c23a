// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: several threads on one queue, and how waiters wait.
 */
#include "library.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BARRIER = 3 | 1 << 8, THREADS = 4 };

static struct rkfd_signals *counted;
static struct rkfd_queue *shared;

struct producer {
	pthread_t thread;
	unsigned int number, packets;
	/* Taken from the end in any order: the last is valid first. */
	bool backwards;
	uint64_t *indices;
};

/* Writes a barrier that completes the signal. Atomic stores, since others wrote there a lap ago. */
static void in_place(uint64_t index)
{
	uint64_t *place = rkfd_aql_place(shared, index);

	CHECK(place);
	for (unsigned int i = 1; i < 7; i++)
		__atomic_store_n(place + i, 0, __ATOMIC_RELAXED);
	__atomic_store_n(place + 7, rkfd_signals_address(counted, 0), __ATOMIC_RELAXED);
	OK(rkfd_aql_publish(shared, index, BARRIER));
}

static void *produce(void *data)
{
	struct producer *p = data;

	for (unsigned int n = 0; n < p->packets;) {
		unsigned int batch = 1 + (n + p->number) % 5;
		uint64_t first;

		if (batch > p->packets - n)
			batch = p->packets - n;
		if (batch == 1) {
			OK(rkfd_aql_barrier(shared, NULL, 0, rkfd_signals_address(counted, 0), &first));
		} else {
			OK(rkfd_aql_reserve(shared, batch, PATIENCE_MS, &first));
			for (unsigned int i = 0; i < batch; i++)
				in_place(p->backwards ? first + batch - 1 - i : first + i);
		}
		OK(rkfd_queue_commit(shared));
		for (unsigned int i = 0; i < batch; i++)
			p->indices[n++] = first + i;
	}
	return NULL;
}

CASE(producers, "four threads fill one ring many times over: each packet runs once, each place is had by one")
{
	const unsigned int each = 500;
	struct producer p[THREADS];
	struct rkfd_queue_info info;
	bool *seen;

	need_vm();
	shared = queue(RKFD_QUEUE_AQL);
	counted = signals(1);
	OK(rkfd_signals_store(counted, 0, THREADS * each));
	for (unsigned int i = 0; i < THREADS; i++) {
		p[i] = (struct producer){
			.number = i,
			.packets = each,
			.backwards = i % 2,
			.indices = calloc(each, sizeof(uint64_t)),
		};
		CHECK_EQ(pthread_create(&p[i].thread, NULL, produce, &p[i]), 0);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(p[i].thread, NULL), 0);
	OK(rkfd_queue_wait(shared, PATIENCE_MS));
	OK(rkfd_signals_wait_below(counted, 0, 1, PATIENCE_MS, NULL));
	CHECK_EQ(signal_value(counted, 0), 0);
	seen = calloc(THREADS * each, sizeof(bool));
	for (unsigned int i = 0; i < THREADS; i++)
		for (unsigned int n = 0; n < each; n++) {
			CHECK_OP(p[i].indices[n], <, THREADS * each);
			CHECK(!seen[p[i].indices[n]]);
			seen[p[i].indices[n]] = true;
		}
	info = info_of(shared);
	CHECK_EQ(info.written, THREADS * each);
	CHECK_EQ(info.read, THREADS * each);
	CHECK_EQ(info.room, 64);
	OK(rkfd_queue_free(shared));
}

/* A thread that takes a place, and publishes its packet when it is told to. */
struct slow {
	pthread_t thread;
	pthread_barrier_t taken, go_on;
	uint64_t place;
};

static void meet(pthread_barrier_t *barrier)
{
	int rc = pthread_barrier_wait(barrier);

	CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void *take_slowly(void *data)
{
	struct slow *slow = data;

	OK(rkfd_aql_reserve(shared, 1, PATIENCE_MS, &slow->place));
	meet(&slow->taken);
	meet(&slow->go_on);
	in_place(slow->place);
	OK(rkfd_queue_commit(shared));
	return NULL;
}

CASE(open_packet, "a packet that another thread has not finished disturbs nobody: no EBUSY, and room behind it")
{
	struct slow slow;
	uint64_t second;

	need_vm();
	shared = queue(RKFD_QUEUE_AQL);
	counted = signals(1);
	OK(rkfd_signals_store(counted, 0, 3));
	OK(rkfd_aql_barrier(shared, NULL, 0, rkfd_signals_address(counted, 0), NULL));
	CHECK_EQ(pthread_barrier_init(&slow.taken, NULL, 2), 0);
	CHECK_EQ(pthread_barrier_init(&slow.go_on, NULL, 2), 0);
	CHECK_EQ(pthread_create(&slow.thread, NULL, take_slowly, &slow), 0);
	meet(&slow.taken);
	OK(rkfd_aql_reserve(shared, 1, 0, &second));
	CHECK_EQ(second, slow.place + 1);
	in_place(second);
	OK(rkfd_queue_commit(shared));
	OK(rkfd_signals_wait_below(counted, 0, 3, PATIENCE_MS, NULL));
	OK(rkfd_queue_reserve(shared, 16, PATIENCE_MS));
	/* The second is valid, so there is something to wait for, which the open one holds up. */
	FAILS(rkfd_queue_wait(shared, SHORT_MS), ETIMEDOUT, "the queue to drain");
	CHECK_EQ(signal_value(counted, 0), 2);
	meet(&slow.go_on);
	OK(rkfd_signals_wait_below(counted, 0, 1, PATIENCE_MS, NULL));
	CHECK_EQ(pthread_join(slow.thread, NULL), 0);
	OK(rkfd_queue_wait(shared, PATIENCE_MS));
	CHECK_EQ(signal_value(counted, 0), 0);
}

/* Which packet two threads publish at the same moment, plus 1. */
static uint64_t both;

static void *publish_too(void *data)
{
	uint64_t index = *(uint64_t *)data;

	while (__atomic_load_n(&both, __ATOMIC_ACQUIRE) != index + 1)
		;
	return (void *)(intptr_t)rkfd_aql_publish(shared, index, BARRIER);
}

CASE(published_twice, "a packet is published once: a second time is EINVAL, at once, beside the first, and when it was read")
{
	const unsigned int packets = 200;
	uint64_t index;

	need_vm();
	shared = queue(RKFD_QUEUE_AQL);
	counted = signals(1);
	OK(rkfd_signals_store(counted, 0, packets));
	for (unsigned int n = 0; n < packets; n++) {
		pthread_t thread;
		void *other;
		uint64_t *place;
		int mine;

		OK(rkfd_aql_reserve(shared, 1, PATIENCE_MS, &index));
		CHECK_EQ(index, n);
		place = rkfd_aql_place(shared, index);
		CHECK(place);
		for (unsigned int i = 1; i < 7; i++)
			__atomic_store_n(place + i, 0, __ATOMIC_RELAXED);
		__atomic_store_n(place + 7, rkfd_signals_address(counted, 0), __ATOMIC_RELAXED);
		CHECK_EQ(pthread_create(&thread, NULL, publish_too, &index), 0);
		__atomic_store_n(&both, index + 1, __ATOMIC_RELEASE);
		mine = rkfd_aql_publish(shared, index, BARRIER);
		CHECK_EQ(pthread_join(thread, &other), 0);
		CHECK((mine == 0 && (intptr_t)other == -EINVAL) || (mine == -EINVAL && !other));
		CHECK(!rkfd_aql_place(shared, index));
		FAILS(rkfd_aql_publish(shared, index, BARRIER), EINVAL, "a packet that is open");
		OK(rkfd_queue_commit(shared));
		OK(rkfd_signals_wait_below(counted, 0, packets - n, PATIENCE_MS, NULL));
		/* The GPU is done with it, and may not have said yet that it has read it. */
		FAILS(rkfd_aql_publish(shared, index, BARRIER), EINVAL, "a packet that is open");
		CHECK(!rkfd_aql_place(shared, index));
	}
	OK(rkfd_queue_wait(shared, PATIENCE_MS));
	CHECK_EQ(signal_value(counted, 0), 0);
	CHECK_EQ(info_of(shared).read, packets);
}

static void *uncommitted(void *data)
{
	uint32_t value = 7;

	OK(rkfd_pm4_write(shared, rkfd_buffer_gpu(data), &value, 1));
	return NULL;
}

CASE(others_uncommitted, "PM4: what another thread did not commit is no EBUSY; what this one did not is")
{
	struct rkfd_buffer *b;
	uint32_t value = 8;
	pthread_t thread;

	need_vm();
	shared = queue(RKFD_QUEUE_PM4);
	b = memory(RKFD_BUFFER_GTT, PAGE);
	CHECK_EQ(pthread_create(&thread, NULL, uncommitted, b), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	/* Nothing was committed: there is nothing to wait for. */
	OK(rkfd_queue_wait(shared, SHORT_MS));
	FAILS(rkfd_queue_reserve(shared, 1023, SHORT_MS), ETIMEDOUT, "room in the ring");
	OK(rkfd_pm4_write(shared, rkfd_buffer_gpu(b) + 4, &value, 1));
	FAILS(rkfd_queue_wait(shared, SHORT_MS), EBUSY, "of this thread");
	FAILS(rkfd_queue_reserve(shared, 1023, SHORT_MS), EBUSY, "of this thread");
	OK(rkfd_queue_commit(shared));
	OK(rkfd_queue_wait(shared, PATIENCE_MS));
	OK(rkfd_queue_reserve(shared, 1023, PATIENCE_MS));
	write_by(shared, event(), rkfd_buffer_gpu(b) + 8, 9);
	CHECK_EQ(dword(b, 0), 7);
	CHECK_EQ(dword(b, 1), 8);
}

/* As many dwords of packets that do nothing. */
static struct packets nothing(uint32_t kind, unsigned int dwords)
{
	struct packets p = { .n = 0 };

	if (kind == RKFD_QUEUE_PM4)
		pm4_nop(&p, dwords - 1);
	while (p.n < dwords)
		put(&p, 0);
	return p;
}

enum { MUCH = 900, LITTLE = 5, TINY = 2 };

static void *emit_much(void *data)
{
	const struct packets p = nothing(*(const uint32_t *)data, MUCH);

	OK(rkfd_queue_emit_within(shared, p.dw, p.n, PATIENCE_MS));
	OK(rkfd_queue_commit(shared));
	return NULL;
}

CASE(much_and_little, "PM4 and SDMA: who waits for much room has it before others who come later and want little")
{
	static const uint32_t kinds[] = { RKFD_QUEUE_PM4, RKFD_QUEUE_SDMA };
	struct rkfd_queue_options options = ordinary();

	need_vm();
	options.percentage = 0;
	options.ring_bytes = PAGE;
	for (unsigned int k = 0; k < 2; k++) {
		const struct packets little = nothing(kinds[k], LITTLE), tiny = nothing(kinds[k], TINY);
		const uint64_t unit = kinds[k] == RKFD_QUEUE_SDMA ? 4 : 1;
		struct rkfd_queue_info info;
		pthread_t thread;
		int rc;

		OK(rkfd_queue_new(vm, kinds[k], &options, &shared));
		while (!(rc = rkfd_queue_emit(shared, little.dw, little.n)))
			;
		CHECK_ERR(-rc, EAGAIN);
		info = info_of(shared);
		CHECK_OP(info.room, >=, TINY * unit);
		CHECK_OP(info.room, <, LITTLE * unit);
		FAILS(rkfd_queue_emit_within(shared, little.dw, little.n, SHORT_MS), ETIMEDOUT, "room in the ring");
		/* It stands in nobody's way any more. */
		CHECK_EQ(info_of(shared).room, info.room);
		CHECK_EQ(info_of(shared).written, info.written);
		FAILS(rkfd_queue_emit_within(shared, little.dw, 1024, PATIENCE_MS), EINVAL, "More dwords");
		CHECK_EQ(pthread_create(&thread, NULL, emit_much, (void *)&kinds[k]), 0);
		/* Until it waits: then there is no room for others. */
		while (info_of(shared).room)
			usleep(1000);
		FAILS(rkfd_queue_emit(shared, tiny.dw, tiny.n), EAGAIN, "0 free");
		FAILS(rkfd_queue_reserve(shared, TINY, SHORT_MS), ETIMEDOUT, "room in the ring");
		CHECK_EQ(info_of(shared).written, info.written);
		OK(rkfd_queue_update(shared, 100, 7));
		while ((rc = rkfd_queue_emit(shared, tiny.dw, tiny.n)) == -EAGAIN)
			sched_yield();
		CHECK_ERR(-rc, 0);
		CHECK_EQ(info_of(shared).written, info.written + (MUCH + TINY) * unit);
		OK(rkfd_queue_commit(shared));
		CHECK_EQ(pthread_join(thread, NULL), 0);
		OK(rkfd_queue_wait(shared, PATIENCE_MS));
		OK(rkfd_queue_free(shared));
	}
	shared = queue(RKFD_QUEUE_AQL);
	FAILS(rkfd_queue_emit_within(shared, nothing(RKFD_QUEUE_PM4, 16).dw, 16, SHORT_MS), EINVAL, "64 bytes");
}

static void *later(void *data)
{
	(void)data;
	OK(rkfd_queue_update(shared, 100, 7));
	return NULL;
}

CASE(full_ring, "AQL: a full ring is waited for, up to a limit; places given up stop nobody")
{
	struct rkfd_queue_options options = ordinary();
	const unsigned int packets = 64;
	pthread_t thread;
	uint64_t index;

	need_vm();
	options.percentage = 0;
	options.full_limit_ms = SHORT_MS;
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, &options, &shared));
	counted = signals(1);
	OK(rkfd_signals_store(counted, 0, packets + 3));
	for (unsigned int i = 0; i < packets; i++)
		OK(rkfd_aql_barrier(shared, NULL, 0, rkfd_signals_address(counted, 0), NULL));
	OK(rkfd_queue_commit(shared));
	FAILS(rkfd_aql_barrier(shared, NULL, 0, 0, &index), ETIMEDOUT, "room in the ring");
	FAILS(rkfd_aql_emit_within(shared, (uint32_t[16]){ 0 }, BARRIER, 0, &index), ETIMEDOUT, "room in the ring");
	FAILS(rkfd_aql_reserve(shared, 30, SHORT_MS, &index), ETIMEDOUT, "room in the ring");
	FAILS(rkfd_queue_reserve(shared, 16, SHORT_MS), ETIMEDOUT, "room in the ring");
	CHECK_EQ(info_of(shared).room, 0);
	CHECK_EQ(pthread_create(&thread, NULL, later, NULL), 0);
	/* Waits behind the 32 places that were given up. */
	OK(rkfd_aql_reserve(shared, 3, PATIENCE_MS, &index));
	CHECK_EQ(index, packets + 32);
	for (unsigned int i = 0; i < 3; i++)
		in_place(index + i);
	OK(rkfd_queue_commit(shared));
	OK(rkfd_signals_wait_below(counted, 0, 1, PATIENCE_MS, NULL));
	OK(rkfd_queue_wait(shared, PATIENCE_MS));
	CHECK_EQ(signal_value(counted, 0), 0);
	CHECK_EQ(info_of(shared).read, packets + 35);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* How often the calling thread gave the CPU away of its own accord. */
static long sleeps(void)
{
	struct rusage usage;

	CHECK_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
	return usage.ru_nvcsw;
}

CASE(waiters_sleep, "who waits for long sleeps, for as long as it can where an event will wake it")
{
	const unsigned int wait_ms = 500;
	struct rkfd_queue_options options = ordinary();
	struct rkfd_signals *s;
	struct rkfd_event *e;
	struct rkfd_queue *q;
	uint32_t value = 1;
	long before, slept;

	need_vm();
	s = signals(2);
	e = event();
	options.percentage = 0;
	OK(rkfd_queue_new(vm, RKFD_QUEUE_PM4, &options, &q));
	OK(rkfd_pm4_write(q, rkfd_buffer_gpu(memory(RKFD_BUFFER_GTT, PAGE)), &value, 1));
	OK(rkfd_queue_commit(q));
	/* A machine that stands still leaves a waiter no time to sleep in: one wait of several is enough. */
	slept = 0;
	for (int i = 0; i < 5 && slept < 5; i++) {
		before = sleeps();
		FAILS(rkfd_queue_wait(q, wait_ms), ETIMEDOUT, "drain");
		slept = sleeps() - before;
	}
	CHECK_OP(slept, >=, 5);
	slept = 0;
	for (int i = 0; i < 5 && slept < 5; i++) {
		before = sleeps();
		FAILS(rkfd_signals_wait_below(s, 0, 1, wait_ms, NULL), ETIMEDOUT, "a signal");
		slept = sleeps() - before;
	}
	CHECK_OP(slept, >=, 5);
	OK(rkfd_signals_attach(s, 1, e));
	before = sleeps();
	FAILS(rkfd_signals_wait_below(s, 1, 1, wait_ms, NULL), ETIMEDOUT, "a signal");
	/* Sleeps of 1 ms at most would be hundreds. */
	CHECK_OP(sleeps() - before, <=, 60);
}

struct waiter {
	pthread_t thread;
	int64_t bound, seen;
};

static void *wait_below(void *data)
{
	struct waiter *w = data;

	OK(rkfd_signals_wait_below(counted, 0, w->bound, PATIENCE_MS, &w->seen));
	return NULL;
}

CASE(woken, "many sleepers on one signal: the GPU's and the CPU's stores wake each whose bound they reach")
{
	struct waiter w[8];

	need_vm();
	shared = queue(RKFD_QUEUE_AQL);
	counted = signals(1);
	OK(rkfd_signals_attach(counted, 0, event()));
	OK(rkfd_signals_store(counted, 0, 8));
	for (int i = 0; i < 8; i++) {
		w[i].bound = 1 + i;
		CHECK_EQ(pthread_create(&w[i].thread, NULL, wait_below, &w[i]), 0);
	}
	for (int value = 7; value >= 0; value--) {
		if (value % 2) {
			OK(rkfd_aql_barrier(shared, NULL, 0, rkfd_signals_address(counted, 0), NULL));
			OK(rkfd_queue_commit(shared));
		} else {
			OK(rkfd_signals_store(counted, 0, value));
		}
		CHECK_EQ(pthread_join(w[value].thread, NULL), 0);
		CHECK_EQ(w[value].seen, value);
	}
}

/* How often another thread of this process did that. */
static long sleeps_of(pid_t thread)
{
	char path[64], line[128];
	long n = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
	file = fopen(path, "r");
	CHECK(file);
	while (n < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "voluntary_ctxt_switches: %ld", &n);
	fclose(file);
	CHECK(n >= 0);
	return n;
}

struct long_waiter {
	pthread_t thread;
	pid_t number;
	long slept_before;
	int result;
};

static void *wait_for_long(void *data)
{
	struct long_waiter *w = data;

	w->slept_before = sleeps();
	__atomic_store_n(&w->number, gettid(), __ATOMIC_RELEASE);
	w->result = rkfd_queue_wait(shared, PATIENCE_MS);
	return NULL;
}

/* A packet, and the doorbell. */
static void put_one(uint32_t kind, uint64_t address, uint32_t value)
{
	if (kind == RKFD_QUEUE_PM4)
		OK(rkfd_pm4_write(shared, address, &value, 1));
	else if (kind == RKFD_QUEUE_SDMA)
		OK(rkfd_sdma_fence(shared, address, value));
	else
		OK(rkfd_aql_barrier(shared, NULL, 0, rkfd_signals_address(counted, 0), NULL));
	OK(rkfd_queue_commit(shared));
}

CASE(starves_nobody, "threads that wait for a queue for long keep nobody from emitting: they hold nothing meanwhile")
{
	static const uint32_t kinds[] = { RKFD_QUEUE_PM4, RKFD_QUEUE_AQL, RKFD_QUEUE_SDMA };
	struct rkfd_queue_options options = ordinary();
	const uint32_t packets = 100;
	struct rkfd_buffer *b;
	struct rkfd_event *e;

	need_vm();
	b = memory(RKFD_BUFFER_GTT, PAGE);
	e = event();
	counted = signals(1);
	options.percentage = 0;
	options.ring_bytes = 8192;
	for (unsigned int k = 0; k < 3; k++) {
		struct long_waiter w[8] = { 0 };

		/* It stands still, so that there is something to wait for until it does not. */
		OK(rkfd_queue_new(vm, kinds[k], &options, &shared));
		OK(rkfd_signals_store(counted, 0, packets + 1));
		put_one(kinds[k], rkfd_buffer_gpu(b), 0xffff);
		for (unsigned int i = 0; i < 8; i++)
			CHECK_EQ(pthread_create(&w[i].thread, NULL, wait_for_long, &w[i]), 0);
		/* Each is asleep in its wait, or was. */
		for (unsigned int i = 0; i < 8; i++)
			while (!__atomic_load_n(&w[i].number, __ATOMIC_ACQUIRE) ||
			       sleeps_of(w[i].number) == w[i].slept_before)
				usleep(1000);
		for (uint32_t n = 1; n <= packets; n++)
			put_one(kinds[k], rkfd_buffer_gpu(b), n);
		CHECK_EQ(info_of(shared).read, 0);
		OK(rkfd_queue_update(shared, 100, 7));
		for (unsigned int i = 0; i < 8; i++) {
			CHECK_EQ(pthread_join(w[i].thread, NULL), 0);
			CHECK_ERR(-w[i].result, 0);
		}
		if (kinds[k] == RKFD_QUEUE_AQL) {
			OK(rkfd_signals_wait_below(counted, 0, 1, PATIENCE_MS, NULL));
		} else {
			OK(kinds[k] == RKFD_QUEUE_PM4 ? rkfd_pm4_raise(shared, e) : rkfd_sdma_raise(shared, e));
			OK(rkfd_queue_commit(shared));
			OK(rkfd_event_wait(e, PATIENCE_MS));
			CHECK_EQ(dword(b, 0), packets);
		}
		OK(rkfd_queue_free(shared));
	}
}
