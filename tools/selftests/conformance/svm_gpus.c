// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SVM: memory of a program moves between the VRAM of its GPUs by attributes and by accesses: each byte, where it is, and what is told.
 */
#include "svm_moves/moves.h"
#include "smi.h"

#include <stdio.h>

#define MOVES (KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_MIGRATE_START) | KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_MIGRATE_END))

static void open_both(struct agent both[2])
{
	agent_open(&both[0], 0);
	agent_open_with(&both[1], 1, &both[0]);
	need_moves(&both[0]);
	need_moves(&both[1]);
}

/* XNACK is of the process: on where all its GPUs have it. */
static bool repeats(struct agent both[2])
{
	int err = set_xnack(&both[0].gpu, true);

	if (err == EPERM && (both[0].gpu.gfx != 90010 || both[1].gpu.gfx != 90010))
		return false;
	CHECK_OK(err);
	return true;
}

struct with_both {
	void (*run)(struct agent both[2], bool xnack);
	bool xnack;
};

static void run_with_both(void *context)
{
	const struct with_both *with = context;
	struct agent both[2];

	open_both(both);
	if (with->xnack && !repeats(both))
		_exit(TAP_STATUS_SKIP);
	for (unsigned int i = 0; i < 2; i++)
		agent_start(&both[i]);
	with->run(both, with->xnack);
	for (unsigned int i = 0; i < 2; i++)
		agent_stop(&both[i]);
}

/* Without XNACK, and with it where both have it, each in a process of its own. */
static void by_both(void (*run)(struct agent both[2], bool xnack))
{
	struct with_both with = { run, false };
	int status;

	need_rkfd();
	status = in_child(run_with_both, &with);
	if (status == TAP_STATUS_SKIP)
		SKIP("needs two GPUs to which memory moves");
	CHECK_EQ(status, 0);
	with.xnack = true;
	status = in_child(run_with_both, &with);
	if (status != TAP_STATUS_SKIP)
		CHECK_EQ(status, 0);
}

/* Two GPUs that repeat accesses, with their queues; else the case is skipped. */
static void begin_both(struct agent both[2])
{
	need_rkfd();
	open_both(both);
	if (!repeats(both))
		SKIP("a GPU has no XNACK");
	for (unsigned int i = 0; i < 2; i++)
		agent_start(&both[i]);
}

static int access_by(const struct agent *a, const void *p, unsigned int pages, uint32_t how)
{
	return svm_set(&a->gpu, p, pages * PAGE, how, a->gpu.id);
}

static uint64_t sum(const struct agent both[2], const char *name)
{
	return agent_count(&both[0], name) + agent_count(&both[1], name);
}

static void from_one_to_the_other(struct agent both[2], bool xnack)
{
	enum { N = 600 };
	uint8_t *p = patterned(N, 1);

	(void)xnack;
	for (unsigned int turn = 0; turn < 4; turn++) {
		struct agent *to = &both[turn % 2], *from = &both[!(turn % 2)];
		uint64_t in = agent_count(to, "moved_in"), out = agent_count(from, "moved_out");

		tap_note("turn %u", turn);
		CHECK_OK(access_by(from, p, N, NO_ACCESS));
		CHECK_EQ(device_pages(p, N), turn ? N : 0);
		for (uint64_t end = now_ms() + WAIT_MS; agent_count(to, "moved_in") - in < N * PAGE;) {
			if (now_ms() > end)
				FAIL("%llu of %lu bytes have moved", (unsigned long long)agent_count(to, "moved_in") - in, N * PAGE);
			CHECK_OK(prefetch(to, p, N, to->gpu.id));
		}
		CHECK_EQ(agent_count(to, "moved_in") - in, N * PAGE);
		CHECK_EQ(agent_count(from, "moved_out") - out, turn ? N * PAGE : 0);
		CHECK_EQ(svm_get(&to->gpu, p, N * PAGE, PREFETCH), to->gpu.id);
		CHECK_OK(access_by(to, p, N, IN_PLACE));
		agent_has_added(to, p, 0, N, 1, 3, turn);
		agent_adds(to, p, N, 3, 1);
		CHECK_EQ(device_pages(p, N), N);
		CHECK_EQ(agent_has(to, "vram"), N * PAGE);
		CHECK_EQ(agent_has(from, "vram"), 0);
	}
	has_added(p, 0, N, 1, 3, 4);
}

CASE_LIMIT(moves_over, "PREFETCH_LOC: from the VRAM of one GPU to that of the other and back", 240)
{
	by_both(from_one_to_the_other);
}

static void turned(struct agent both[2], bool xnack)
{
	static const uint32_t kinds[] = { NO_ACCESS, ACCESS, IN_PLACE };
	enum { N = 90 };

	for (unsigned int i = 0; i < 3; i++) {
		bool moves = kinds[i] == NO_ACCESS || (xnack && kinds[i] == ACCESS);
		uint8_t *p = patterned(N, i);
		uint64_t in = agent_count(&both[0], "moved_in");

		tap_note("access %u", kinds[i]);
		CHECK_OK(access_by(&both[0], p, N, IN_PLACE));
		CHECK_OK(access_by(&both[1], p, N, kinds[i]));
		if (moves)
			all_in(&both[0], p, N);
		else
			CHECK_OK(prefetch(&both[0], p, N, both[0].gpu.id));
		CHECK_EQ(device_pages(p, N), moves ? N : 0);
		CHECK_EQ(agent_count(&both[0], "moved_in") - in, moves ? N * PAGE : 0);
		CHECK_EQ(svm_get(&both[0].gpu, p, N * PAGE, PREFETCH), both[0].gpu.id);
		agent_has_pattern(&both[0], p, 0, N, i);
		agent_adds(&both[0], p, N, 2, 5);
		CHECK_EQ(device_pages(p, N), moves ? N : 0);
		if (kinds[i] != NO_ACCESS)
			agent_has_added(&both[1], p, 0, N, i, 2, 5);
		has_added(p, 0, N, i, 2, 5);
	}
}

CASE_LIMIT(to_the_system, "PREFETCH_LOC: to a GPU it is one to the system where another GPU's access forbids it", 120)
{
	by_both(turned);
}

static void by_parts(struct agent both[2], bool xnack)
{
	enum { N = 96, PART = N / 3 };
	uint8_t *p = patterned(N, 4);

	(void)xnack;
	CHECK_OK(access_by(&both[0], p, N, IN_PLACE));
	CHECK_OK(access_by(&both[1], p, N, NO_ACCESS));
	CHECK_OK(access_by(&both[1], p + PART * PAGE, PART, IN_PLACE));
	some_in(&both[0], p, N, 2 * PART);
	CHECK_EQ(device_pages(p + PART * PAGE, PART), 0);
	agent_has_pattern(&both[0], p, 0, N, 4);
	agent_has_pattern(&both[1], p + PART * PAGE, PART, PART, 4);
	agent_adds(&both[1], p + PART * PAGE, PART, 1, 1);
	agent_adds(&both[0], p, N, 1, 1);
	CHECK_EQ(device_pages(p, N), 2 * PART);
	has_added(p, 0, PART, 4, 1, 1);
	has_added(p + PART * PAGE, PART, PART, 4, 1, 2);
	has_added(p + 2 * PART * PAGE, 2 * PART, PART, 4, 1, 1);
}

CASE_LIMIT(parts, "PREFETCH_LOC: what another GPU has in place stays in the system, part by part", 120)
{
	by_both(by_parts);
}

static void from_both(struct agent both[2], bool xnack)
{
	enum { N = 100 };
	uint8_t *p = patterned(N, 5);
	uint64_t out;

	if (xnack)
		for (unsigned int i = 0; i < 2; i++)
			CHECK_OK(access_by(&both[i], p, N, NO_ACCESS));
	all_in(&both[0], p, N / 2);
	all_in(&both[1], p + N / 2 * PAGE, N / 2);
	CHECK_EQ(svm_get(&both[0].gpu, p, N * PAGE, PREFETCH), UNDEFINED);
	out = sum(both, "moved_out");
	all_out(&both[0], p, N);
	CHECK_EQ(sum(both, "moved_out") - out, N * PAGE);
	has_pattern(p, 0, N, 5);
	/* From both to one. */
	all_in(&both[0], p, N / 2);
	all_in(&both[1], p + N / 2 * PAGE, N / 2);
	out = agent_count(&both[0], "moved_out");
	for (uint64_t end = now_ms() + WAIT_MS; agent_count(&both[0], "moved_out") - out < N / 2 * PAGE;) {
		if (now_ms() > end)
			FAIL("%llu bytes have moved", (unsigned long long)agent_count(&both[0], "moved_out") - out);
		CHECK_OK(prefetch(&both[1], p, N, both[1].gpu.id));
	}
	all_in(&both[1], p, N);
	CHECK_OK(access_by(&both[1], p, N, IN_PLACE));
	agent_has_pattern(&both[1], p, 0, N, 5);
	CHECK_EQ(agent_has(&both[1], "vram"), N * PAGE);
	has_pattern(p, 0, N, 5);
}

CASE_LIMIT(gathered, "PREFETCH_LOC: memory in the VRAM of both comes to the system, or to one of them", 120)
{
	by_both(from_both);
}

CASE(unbound, "PREFETCH_LOC: to a GPU without ACQUIRE_VM nothing moves, which is no error")
{
	enum { N = 32 };
	uint8_t *p = patterned(N, 6);
	uint32_t ids[MAX_GPUS];
	struct agent a;

	need_rkfd();
	agent_open(&a, 0);
	need_moves(&a);
	if (gpu_ids(a.gpu.fd, ids, MAX_GPUS) < 2)
		SKIP("needs two GPUs");
	CHECK_NE(ids[1], a.gpu.id);
	CHECK_OK(prefetch(&a, p, N, ids[1]));
	CHECK_EQ(device_pages(p, N), 0);
	CHECK_EQ(svm_get(&a.gpu, p, N * PAGE, PREFETCH), ids[1]);
	all_in(&a, p, N);
	CHECK_OK(prefetch(&a, p, N, 0));
	has_pattern(p, 0, N, 6);
}

/* A GPU accesses all of it until it has all of it in its VRAM. */
static void takes(struct agent *to, uint8_t *p, unsigned int pages, uint32_t seed, uint64_t added)
{
	uint64_t end = now_ms() + WAIT_MS;

	for (;;) {
		agent_has_added(to, p, 0, pages, seed, 3, added);
		if (device_pages(p, pages) == pages && agent_has(to, "vram") == pages * PAGE)
			return;
		if (now_ms() > end)
			FAIL("%u pages are in VRAM, %llu of them there", device_pages(p, pages),
			     (unsigned long long)agent_has(to, "vram") / PAGE);
		/* Accessed anew, what some waits for has ended, or what was held is free. */
		CHECK_EQ(mprotect(p, pages * PAGE, PROT_READ), 0);
		CHECK_EQ(mprotect(p, pages * PAGE, PROT_READ | PROT_WRITE), 0);
		usleep(20000);
	}
}

CASE_LIMIT(follows, "SVM with XNACK: memory follows the accesses of both GPUs; who has it in place uses it in the system", 240)
{
	uint8_t *p = patterned(PAGES, 7);
	struct agent both[2];

	begin_both(both);
	for (unsigned int turn = 0; turn < 4; turn++) {
		struct agent *to = &both[turn % 2], *other = &both[!(turn % 2)];

		tap_note("turn %u", turn);
		/* Later than what counts as a bounce. */
		usleep(200000);
		takes(to, p, PAGES, 7, turn);
		agent_adds(to, p, PAGES, 3, 1);
		CHECK_EQ(device_pages(p, PAGES), PAGES);
		CHECK_EQ(agent_has(other, "vram"), 0);
	}
	CHECK_OK(access_by(&both[0], p, PAGES, IN_PLACE));
	agent_adds(&both[0], p, PAGES, 3, 1);
	CHECK_EQ(device_pages(p, PAGES), 0);
	CHECK_EQ(agent_has(&both[0], "vram"), 0);
	/* Of a place that is another GPU's only its access counts. */
	CHECK_OK(svm_set(&both[0].gpu, p, HUGE, PREFERRED, both[1].gpu.id));
	agent_adds(&both[0], p, PAGES, 3, 1);
	CHECK_EQ(device_pages(p, PAGES), 0);
	usleep(200000);
	takes(&both[1], p, PAGES, 7, 6);
	CHECK_OK(access_by(&both[0], p, PAGES, ACCESS));
	usleep(200000);
	takes(&both[0], p, PAGES, 7, 6);
	/* The system is preferred: in place for both. */
	CHECK_OK(svm_set(&both[0].gpu, p, HUGE, PREFERRED, 0));
	agent_adds(&both[1], p, PAGES, 3, 1);
	agent_adds(&both[0], p, PAGES, 3, 1);
	CHECK_EQ(device_pages(p, PAGES), 0);
	has_added(p, 0, PAGES, 7, 3, 8);
	for (unsigned int i = 0; i < 2; i++)
		agent_stop(&both[i]);
}

CASE_LIMIT(in_turn, "SVM with XNACK: both use one page in turn: sums are right, and what moves too often ends in the system, in place for both", 240)
{
	enum { HOT = 1, FURTHER = 40 };
	uint64_t before, bounced, held, in, rounds = 0, end;
	uint8_t *p = patterned(PAGES, 8);
	struct agent both[2];

	begin_both(both);
	CHECK_OK(svm_set(&both[0].gpu, p, HUGE, GRANULARITY, 4));
	before = sum(both, "moved_in_by_access");
	bounced = sum(both, "bounced");
	held = sum(both, "held_back");
	end = now_ms() + 3 * WAIT_MS;
	do {
		if (now_ms() > end)
			FAIL("nothing bounced in %llu rounds", (unsigned long long)rounds);
		for (unsigned int i = 0; i < 2; i++)
			agent_adds(&both[i], p, 1, HOT, 1);
		rounds++;
	} while (sum(both, "bounced") < bounced + 2 || sum(both, "held_back") == held);
	in = sum(both, "moved_in_by_access") - before;
	CHECK_OP(in, <=, 2 * rounds * KIB64_PAGES * PAGE);
	CHECK_OP((sum(both, "bounced") - bounced) * PAGE, <=, in);
	/* From here on a handful at most, unless the machine has been so slow that turns are no bounces. */
	do {
		if (now_ms() > end)
			FAIL("%llu bytes move in %u rounds", (unsigned long long)in, FURTHER);
		in = sum(both, "moved_in_by_access");
		for (unsigned int i = 0; i < 2 * FURTHER; i++)
			agent_adds(&both[i % 2], p, 1, HOT, 1);
		rounds += FURTHER;
		in = sum(both, "moved_in_by_access") - in;
	} while (in > 10 * KIB64_PAGES * PAGE);
	has_added(p, 0, 1, 8, HOT, 2 * rounds);
	has_pattern(p + PAGE, 1, PAGES - 1, 8);
	for (unsigned int i = 0; i < 2; i++)
		agent_stop(&both[i]);
}

/* The next pair of a file, of all of it. */
static struct smi_move next_pair(int fd, const void *p, unsigned int pages, uint32_t from, uint32_t to, unsigned int trigger)
{
	struct smi_move begin = smi_next_move(fd), end = smi_next_move(fd);

	CHECK_EQ(begin.event, KFD_SMI_EVENT_MIGRATE_START);
	CHECK_EQ(end.event, KFD_SMI_EVENT_MIGRATE_END);
	CHECK_EQ(begin.start, (uintptr_t)p / PAGE);
	CHECK_EQ(begin.size, pages);
	CHECK_EQ(begin.from, from);
	CHECK_EQ(begin.to, to);
	CHECK_EQ(begin.trigger, trigger);
	CHECK_EQ(end.start, begin.start);
	CHECK_EQ(end.size, begin.size);
	CHECK_EQ(end.from, from);
	CHECK_EQ(end.to, to);
	CHECK_EQ(end.trigger, trigger);
	CHECK_EQ(end.error, 0);
	CHECK_OP(end.ns, >=, begin.ns);
	return end;
}

static void told(struct agent both[2], bool xnack)
{
	enum { N = 64 };
	const uint32_t first = both[0].gpu.id, second = both[1].gpu.id;
	uint8_t *p = patterned(N, 9);
	struct smi_move out, in;
	int fds[2];

	if (xnack)
		for (unsigned int i = 0; i < 2; i++)
			CHECK_OK(access_by(&both[i], p, N, NO_ACCESS));
	all_in(&both[0], p, N);
	for (unsigned int i = 0; i < 2; i++)
		fds[i] = need_smi(&both[i].gpu, MOVES);
	/* From one to the other: each GPU's file has its half. */
	CHECK_OK(prefetch(&both[1], p, N, second));
	out = next_pair(fds[0], p, N, first, 0, KFD_MIGRATE_TRIGGER_PREFETCH);
	in = next_pair(fds[1], p, N, 0, second, KFD_MIGRATE_TRIGGER_PREFETCH);
	CHECK_OP(in.ns, >=, out.ns);
	smi_check_empty(fds[0]);
	smi_check_empty(fds[1]);
	all_in(&both[1], p, N);
	while (smi_is_readable(fds[1]))
		smi_next_move(fds[1]);
	/* Turned to the system: where it is tells of it. */
	CHECK_OK(access_by(&both[1], p, N, IN_PLACE));
	CHECK_OK(prefetch(&both[0], p, N, first));
	next_pair(fds[1], p, N, second, 0, KFD_MIGRATE_TRIGGER_PREFETCH);
	smi_check_empty(fds[0]);
	all_out(&both[0], p, N);
	while (smi_is_readable(fds[1]))
		smi_next_move(fds[1]);
	/* There already. */
	CHECK_OK(prefetch(&both[0], p, N, first));
	smi_check_empty(fds[0]);
	smi_check_empty(fds[1]);
	CHECK_EQ(device_pages(p, N), 0);
	has_pattern(p, 0, N, 9);
}

CASE_LIMIT(events, "SMI_EVENTS: a prefetch from one GPU to the other is told on the files of both", 120)
{
	by_both(told);
}

CASE_LIMIT(foreign_access, "SMI_EVENTS with XNACK: an access of the other GPU brings memory out, which is told as a touch", 120)
{
	enum { N = 64 };
	uint8_t *p = patterned(N, 10);
	struct agent both[2];
	uint64_t out = 0;
	int fds[2];

	begin_both(both);
	for (unsigned int i = 0; i < 2; i++)
		CHECK_OK(access_by(&both[i], p, N, i ? NO_ACCESS : IN_PLACE));
	all_in(&both[0], p, N);
	for (unsigned int i = 0; i < 2; i++)
		fds[i] = need_smi(&both[i].gpu, MOVES);
	CHECK_OK(access_by(&both[1], p, N, IN_PLACE));
	CHECK_EQ(device_pages(p, N), N);
	agent_has_pattern(&both[1], p, 0, N, 10);
	CHECK_EQ(device_pages(p, N), 0);
	smi_check_empty(fds[1]);
	while (smi_is_readable(fds[0])) {
		struct smi_move move = smi_next_move(fds[0]);

		CHECK_EQ(move.from, both[0].gpu.id);
		CHECK_EQ(move.to, 0);
		CHECK_EQ(move.trigger, KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU);
		CHECK_EQ(move.error, 0);
		if (move.event == KFD_SMI_EVENT_MIGRATE_START)
			out += move.size;
	}
	CHECK_OP(out, >=, N);
	agent_adds(&both[0], p, N, 1, 1);
	agent_adds(&both[1], p, N, 1, 1);
	has_added(p, 0, N, 10, 1, 2);
	for (unsigned int i = 0; i < 2; i++)
		agent_stop(&both[i]);
}
