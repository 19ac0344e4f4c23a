// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: producers of one AQL ring hold nothing that others wait for. A thread puts a packet into a ring,
 * and another process stops it at each instruction on the way, wherever that is; each time this thread puts a packet into
 * the same ring, from the reservation to the doorbell. A lock that the first one held would end that.
 *
 * An instruction counts once: where the producer begins anew because another one was faster (a comparison and exchange that
 * failed), it is let through, since a turn of the other each time would have it try for ever.
 */
#include "library.h"

#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

/* More packets than a packet takes instructions, so that none of them waits for room; and far more steps than that. */
enum { BARRIER = 3 | 1 << 8, PACKETS = 16384, STEPS = 1 << 20, ALL = 1 << 30 };

/* How far the producer is that is stopped. */
enum { SPINS, RESERVES, WRITES, PUBLISHES, COMMITS, DONE };

/* What the process sees that stops it. */
static struct stage {
	pid_t producer;
	int go, phase;
	uint64_t place;
	unsigned int steps;
	/* Where it was when the other one got no further. */
	int stuck;
} *stage;

static struct rkfd_queue *shared;
static struct rkfd_signals *counted;

static void enter(int phase)
{
	__atomic_store_n(&stage->phase, phase, __ATOMIC_SEQ_CST);
}

static uint64_t put_one(bool slowly)
{
	uint64_t index, *place;

	if (slowly)
		enter(RESERVES);
	OK(rkfd_aql_reserve(shared, 1, PATIENCE_MS, &index));
	if (slowly) {
		stage->place = index;
		enter(WRITES);
	}
	place = rkfd_aql_place(shared, index);
	CHECK(place);
	for (unsigned int i = 1; i < 7; i++)
		__atomic_store_n(place + i, 0, __ATOMIC_RELAXED);
	__atomic_store_n(place + 7, rkfd_signals_address(counted, 0), __ATOMIC_RELAXED);
	if (slowly)
		enter(PUBLISHES);
	OK(rkfd_aql_publish(shared, index, BARRIER));
	if (slowly)
		enter(COMMITS);
	OK(rkfd_queue_commit(shared));
	if (slowly)
		enter(DONE);
	return index;
}

static void *produce(void *unused)
{
	/* What the linker does at the first call of a function is done before. */
	put_one(false);
	__atomic_store_n(&stage->producer, gettid(), __ATOMIC_RELEASE);
	while (!__atomic_load_n(&stage->go, __ATOMIC_ACQUIRE))
		;
	put_one(true);
	return NULL;
}

/* How the process ends that stops it. */
enum { WELL, NOT_TRACED, NOT_STEPPED, NO_TURN };

/* Whether it is the first time that the thread is at an instruction, or -1. */
static int is_first_time(pid_t tid)
{
	static uint64_t seen[4 * PACKETS];
	struct user_regs_struct regs;
	unsigned int at;

	if (ptrace(PTRACE_GETREGS, tid, NULL, &regs))
		return -1;
	for (at = regs.rip % (4 * PACKETS); seen[at] && seen[at] != regs.rip; at = (at + 1) % (4 * PACKETS))
		;
	if (seen[at])
		return 0;
	seen[at] = regs.rip;
	return 1;
}

/* At each instruction of the producer, which is traced, the other thread has a turn. */
static int step_through(pid_t tid, int to, int from)
{
	struct pollfd turn = { .fd = from, .events = POLLIN };

	for (unsigned int steps = 0; __atomic_load_n(&stage->phase, __ATOMIC_SEQ_CST) != DONE; steps++) {
		int first, status;
		char byte;

		if (steps == STEPS || stage->steps == PACKETS / 2)
			return NOT_STEPPED;
		if (ptrace(PTRACE_SINGLESTEP, tid, NULL, NULL) || waitpid(tid, &status, __WALL) != tid ||
		    !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
			return NOT_STEPPED;
		first = is_first_time(tid);
		if (first < 0)
			return NOT_STEPPED;
		if (stage->phase == SPINS || !first)
			continue;
		stage->steps++;
		if (write(to, "x", 1) != 1 || poll(&turn, 1, (int)PATIENCE_MS) != 1 || read(from, &byte, 1) != 1) {
			stage->stuck = stage->phase;
			return NO_TURN;
		}
	}
	return WELL;
}

static int stop_everywhere(int to, int from)
{
	const pid_t tid = stage->producer;
	int status, result;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) || ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) ||
	    waitpid(tid, &status, __WALL) != tid)
		return NOT_TRACED;
	__atomic_store_n(&stage->go, 1, __ATOMIC_RELEASE);
	result = step_through(tid, to, from);
	/* Otherwise it would go on with a trap at its next instruction. */
	ptrace(PTRACE_DETACH, tid, NULL, NULL);
	return result;
}

/* A packet behind all others, while the producer is stopped in `phase`. Returns whether the place that it has is open. */
static bool take_turn(int phase)
{
	const uint64_t index = put_one(false);
	const bool is_behind = phase >= WRITES && index > stage->place;
	static bool waited;

	/* Once: the GPU does what is before the open place, and stops there. */
	if (phase == WRITES && !waited) {
		waited = true;
		OK(rkfd_signals_wait_below(counted, 0, ALL - (int64_t)stage->place + 1, PATIENCE_MS, NULL));
		FAILS(rkfd_queue_wait(shared, SHORT_MS), ETIMEDOUT, "the queue to drain");
	}
	/* Its header is not stored before it publishes. */
	if (phase == WRITES)
		CHECK_EQ(signal_value(counted, 0), ALL - (int64_t)stage->place);
	return is_behind && phase < COMMITS;
}

CASE_LIMIT(stopped_anywhere, "a producer that is stopped at whichever instruction keeps no other from reserving, writing and publishing", 180)
{
	struct rkfd_queue_options options = ordinary();
	unsigned int turns = 0, behind = 0;
	int to[2], from[2], status;
	pthread_t producer;
	char byte;
	pid_t pid;

	/* It may have given up. */
	signal(SIGPIPE, SIG_IGN);
	need_vm();
	options.ring_bytes = 64 * PACKETS;
	OK(rkfd_queue_new(vm, RKFD_QUEUE_AQL, &options, &shared));
	counted = signals(1);
	OK(rkfd_signals_store(counted, 0, ALL));
	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(stage != MAP_FAILED);
	CHECK_EQ(pipe(to), 0);
	CHECK_EQ(pipe(from), 0);
	CHECK_EQ(pthread_create(&producer, NULL, produce, NULL), 0);
	while (!__atomic_load_n(&stage->producer, __ATOMIC_ACQUIRE))
		usleep(1000);
	pid = fork();
	CHECK_OP(pid + 1, >, 0);
	if (!pid) {
		close(to[0]);
		close(from[1]);
		_exit(stop_everywhere(to[1], from[0]));
	}
	close(to[1]);
	close(from[0]);
	/* Until that process ends, which lets the producer run on. */
	while (read(to[0], &byte, 1) == 1) {
		behind += take_turn(__atomic_load_n(&stage->phase, __ATOMIC_SEQ_CST));
		turns++;
		if (write(from[1], "x", 1) != 1)
			break;
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_TURN)
		FAIL("it waits for one that is stopped at its instruction %u, in phase %d", stage->steps, stage->stuck);
	if (WEXITSTATUS(status) == NOT_TRACED)
		LACKING("a process may not trace another one");
	CHECK_EQ(WEXITSTATUS(status), WELL);
	CHECK_EQ(pthread_join(producer, NULL), 0);
	/* It was stopped all the way, much of that with a place that it had not published. */
	CHECK_EQ(turns, stage->steps);
	CHECK_OP(turns, >=, 200);
	CHECK_OP(behind, >=, 50);
	tap_note("stopped at %u instructions, at %u of them with a place of its own", turns, behind);
	OK(rkfd_queue_wait(shared, PATIENCE_MS));
	OK(rkfd_signals_wait_below(counted, 0, ALL - (int64_t)turns - 1, PATIENCE_MS, NULL));
	CHECK_EQ(signal_value(counted, 0), ALL - (int64_t)turns - 2);
	CHECK_EQ(info_of(shared).read, turns + 2);
}
