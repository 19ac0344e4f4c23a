// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SVM: what SMI_EVENTS says of memory that moves: each line with its fields, and in which order they come.
 */
#include "moves.h"
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(event) KFD_SMI_EVENT_MASK_FROM_INDEX(event)
#define MOVES (BIT(KFD_SMI_EVENT_MIGRATE_START) | BIT(KFD_SMI_EVENT_MIGRATE_END))
#define MOST 64

static uint64_t page_of(const void *p)
{
	return (uintptr_t)p / PAGE;
}

/* A pair, and nothing else. */
static void one_pair(int fd, const void *p, unsigned int pages, uint32_t from, uint32_t to, unsigned int trigger)
{
	struct smi_move begin, end;
	unsigned int pairs = smi_moves(fd, &begin, &end, 1);

	if (pairs != 1)
		FAIL("%u pairs for %u pages %x->%x, trigger %u", pairs, pages, from, to, trigger);
	CHECK_EQ(begin.start, page_of(p));
	CHECK_EQ(begin.size, pages);
	CHECK_EQ(begin.from, from);
	CHECK_EQ(begin.to, to);
	CHECK_EQ(begin.trigger, trigger);
	CHECK_EQ(end.error, 0);
	CHECK_OP(boot_ns(), >=, end.ns);
}

/* Has brought all of it in by as many calls as it takes, which are told. */
static unsigned int told_in(const struct agent *a, int fd, const void *p, unsigned int pages)
{
	uint64_t end = now_ms() + WAIT_MS;
	unsigned int calls = 0;

	do {
		uint64_t before = boot_ns();
		struct smi_move begin, last;

		if (now_ms() > end)
			FAIL("%u of %u pages do not move", pages - device_pages(p, pages), pages);
		CHECK_OK(prefetch(a, p, pages, a->gpu.id));
		CHECK_EQ(smi_moves(fd, &begin, &last, 1), 1);
		CHECK_EQ(begin.start, page_of(p));
		CHECK_EQ(begin.size, pages);
		CHECK_EQ(begin.from, 0);
		CHECK_EQ(begin.to, a->gpu.id);
		CHECK_EQ(begin.prefetch, a->gpu.id);
		CHECK_EQ(begin.trigger, KFD_MIGRATE_TRIGGER_PREFETCH);
		CHECK_EQ(last.error, 0);
		CHECK_OP(begin.ns, >=, before);
		calls++;
	} while (device_pages(p, pages) < pages);
	return calls;
}

static void prefetches_told(struct agent *a, bool xnack)
{
	enum { N = 100 };
	uint8_t *p = patterned(N, 1);
	struct smi_move begin, end;
	int fd, deaf;

	(void)xnack;
	allow(a, p, N);
	fd = need_smi(&a->gpu, MOVES);
	deaf = need_smi(&a->gpu, ~MOVES);
	/* Nothing is anywhere else. */
	CHECK_OK(prefetch(a, p, N, 0));
	smi_check_empty(fd);
	told_in(a, fd, p, N);
	CHECK_OK(prefetch(a, p, N, a->gpu.id));
	smi_check_empty(fd);
	CHECK_OK(svm_set(&a->gpu, p, N * PAGE, PREFERRED, 0));
	smi_check_empty(fd);
	CHECK_OK(prefetch(a, p, N, 0));
	CHECK_EQ(smi_moves(fd, &begin, &end, 1), 1);
	CHECK_EQ(begin.start, page_of(p));
	CHECK_EQ(begin.size, N);
	CHECK_EQ(begin.from, a->gpu.id);
	CHECK_EQ(begin.to, 0);
	CHECK_EQ(begin.prefetch, 0);
	CHECK_EQ(begin.preferred, 0);
	CHECK_EQ(begin.trigger, KFD_MIGRATE_TRIGGER_PREFETCH);
	CHECK_EQ(end.error, 0);
	all_out(a, p, N);
	while (smi_moves(fd, &begin, &end, 1))
		;
	has_pattern(p, 0, N, 1);
	/* What is preferred is told as it is. */
	CHECK_OK(svm_set(&a->gpu, p, N * PAGE, PREFERRED, a->gpu.id));
	CHECK_OK(prefetch(a, p, N, a->gpu.id));
	CHECK_EQ(smi_moves(fd, &begin, &end, 1), 1);
	CHECK_EQ(begin.preferred, a->gpu.id);
	all_out(a, p, N);
	CHECK_OK(svm_set(&a->gpu, p, N * PAGE, PREFERRED, UNDEFINED));
	CHECK_OP(smi_moves(fd, &begin, &end, 1), >=, 1);
	CHECK_OK(prefetch(a, p, N, a->gpu.id));
	CHECK_EQ(smi_moves(fd, &begin, &end, 1), 1);
	CHECK_EQ(begin.preferred, UNDEFINED);
	/* A mask without them. */
	while (smi_is_readable(deaf)) {
		unsigned int event;

		CHECK_EQ(sscanf(smi_next_line(deaf), "%x", &event), 1);
		CHECK_NE(event, KFD_SMI_EVENT_MIGRATE_START);
		CHECK_NE(event, KFD_SMI_EVENT_MIGRATE_END);
	}
	has_pattern(p, 0, N, 1);
}

CASE_LIMIT(prefetches, "SMI_EVENTS: a prefetch that moves something is a pair of lines, one that does not is none", 120)
{
	need_rkfd();
	in_both_modes(prefetches_told);
}

static void pieces_told(struct agent *a, bool xnack)
{
	/* 0 to 9, 20 to 29 and 40 to 49 its own, which for 20 to 29 are for reading; a file, and what is locked, between them. */
	uint8_t *p = untouched(50 * PAGE);
	struct smi_move begins[MOST], ends[MOST];
	unsigned int pairs, seen = 0;
	int fd;

	(void)xnack;
	CHECK(need_file_map(10, p + 10 * PAGE, MAP_SHARED | MAP_FIXED) == p + 10 * PAGE);
	CHECK_EQ(mlock(p + 30 * PAGE, 10 * PAGE), 0);
	pattern(p, 0, 50, 2);
	CHECK_EQ(mprotect(p + 20 * PAGE, 10 * PAGE, PROT_READ), 0);
	fd = need_smi(&a->gpu, MOVES);
	/* Two parts of the last mapping. */
	CHECK_OK(svm_set(&a->gpu, p + 40 * PAGE, 4 * PAGE, GRANULARITY, 5));
	smi_check_empty(fd);
	CHECK_OK(prefetch(a, p, 50, a->gpu.id));
	pairs = smi_moves(fd, begins, ends, MOST);
	CHECK_EQ(pairs, 4);
	for (unsigned int i = 0; i < pairs; i++) {
		static const unsigned int first[] = { 0, 20, 40, 44 }, count[] = { 10, 10, 4, 6 };

		CHECK_EQ(begins[i].trigger, KFD_MIGRATE_TRIGGER_PREFETCH);
		CHECK_EQ(begins[i].from, 0);
		CHECK_EQ(begins[i].to, a->gpu.id);
		CHECK_EQ(begins[i].preferred, UNDEFINED);
		for (unsigned int part = 0; part < 4; part++)
			if (begins[i].start == page_of(p) + first[part]) {
				CHECK_EQ(begins[i].size, count[part]);
				seen |= 1 << part;
			}
	}
	CHECK_EQ(seen, 15);
	some_in(a, p, 50, 30);
	while (smi_is_readable(fd))
		smi_next_move(fd);
	/* Of what cannot move nothing is told. */
	CHECK_OK(prefetch(a, p + 10 * PAGE, 10, a->gpu.id));
	CHECK_OK(prefetch(a, p + 30 * PAGE, 10, a->gpu.id));
	CHECK_OK(prefetch(a, p + 10 * PAGE, 10, 0));
	smi_check_empty(fd);
	CHECK_EQ(munmap(p + 20 * PAGE, 10 * PAGE), 0);
	smi_check_empty(fd);
	has_pattern(p, 0, 20, 2);
	has_pattern(p + 30 * PAGE, 30, 20, 2);
}

CASE(pieces, "SMI_EVENTS: a prefetch over several mappings and parts is a pair for each that moves")
{
	need_rkfd();
	in_both_modes(pieces_told);
}

static void holes_told(struct agent *a, bool xnack)
{
	enum { N = 64 };
	uint8_t *p = untouched(N * PAGE);
	int fd;

	(void)xnack;
	fd = need_smi(&a->gpu, MOVES);
	CHECK_OK(prefetch(a, p, N, 0));
	smi_check_empty(fd);
	CHECK_OK(prefetch(a, p, N, a->gpu.id));
	one_pair(fd, p, N, 0, a->gpu.id, KFD_MIGRATE_TRIGGER_PREFETCH);
	CHECK_EQ(device_pages(p, N), N);
	CHECK_EQ(madvise(p, N * PAGE, MADV_DONTNEED), 0);
	smi_check_empty(fd);
	CHECK_OK(prefetch(a, p, N, 0));
	smi_check_empty(fd);
	has_zeroes(p, N);
}

CASE(holes_of_prefetches, "SMI_EVENTS: holes that become memory in VRAM are told, holes on the way out are not")
{
	need_rkfd();
	in_both_modes(holes_told);
}

static void touches_told(struct agent *a, bool xnack)
{
	enum { N = 256, TOUCHED = 100 };
	uint8_t *p = patterned(N, 3);
	struct smi_move begins[MOST], ends[MOST];
	unsigned int pairs, came;
	uint64_t told = 0;
	int fd;

	(void)xnack;
	allow(a, p, N);
	CHECK_OK(svm_set(&a->gpu, p, N * PAGE, PREFERRED, 0));
	all_in(a, p, N);
	fd = need_smi(&a->gpu, MOVES);
	/* Where pages are is asked without a touch. */
	CHECK_EQ(device_pages(p, N), N);
	smi_check_empty(fd);
	page_has(p + TOUCHED * PAGE, "CPU", TOUCHED, 3, 0, 0);
	pairs = smi_moves(fd, begins, ends, 1);
	CHECK_EQ(pairs, 1);
	CHECK_EQ(begins[0].from, a->gpu.id);
	CHECK_EQ(begins[0].to, 0);
	CHECK_EQ(begins[0].prefetch, a->gpu.id);
	CHECK_EQ(begins[0].preferred, 0);
	CHECK_EQ(begins[0].trigger, KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU);
	CHECK_EQ(ends[0].error, 0);
	CHECK_OP(begins[0].size, <=, KIB64_PAGES);
	CHECK_OP(begins[0].start, <=, page_of(p) + TOUCHED);
	CHECK_OP(begins[0].start + begins[0].size, >, page_of(p) + TOUCHED);
	came = N - device_pages(p, N);
	CHECK_OP(came, >, 0);
	CHECK_OP(came, <=, begins[0].size);
	/* What is in the system is touched without a line. */
	page_has(p + TOUCHED * PAGE, "CPU", TOUCHED, 3, 0, 0);
	smi_check_empty(fd);
	/* The rest: all that has come is in some line. */
	has_pattern(p, 0, N, 3);
	pairs = smi_moves(fd, begins, ends, MOST);
	CHECK_OP(pairs, >, 0);
	CHECK_OP(pairs, <=, MOST);
	for (unsigned int i = 0; i < pairs; i++) {
		CHECK_EQ(begins[i].trigger, KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU);
		CHECK_EQ(begins[i].from, a->gpu.id);
		CHECK_EQ(begins[i].to, 0);
		CHECK_EQ(ends[i].error, 0);
		CHECK_OP(begins[i].start, >=, page_of(p));
		CHECK_OP(begins[i].start + begins[i].size, <=, page_of(p) + N);
		told += begins[i].size;
	}
	CHECK_OP(told, >=, N - came);
	CHECK_EQ(device_pages(p, N), 0);
}

CASE(touches, "SMI_EVENTS: a touch of the CPU is a pair about up to 64 KiB around it")
{
	need_rkfd();
	in_both_modes(touches_told);
}

static void children_told(struct agent *a, bool xnack)
{
	enum { N = 32 };
	uint8_t *p = patterned(N, 4);
	int fd, status;
	pid_t child;

	(void)xnack;
	/* Without access: what the GPU may write would be copied for it when it is shared. */
	CHECK_OK(svm_set(&a->gpu, p, N * PAGE, NO_ACCESS, a->gpu.id));
	all_in(a, p, N);
	fd = need_smi(&a->gpu, MOVES);
	child = fork();
	CHECK_OP(child, >=, 0);
	if (!child) {
		has_pattern(p, 0, N, 4);
		pattern(p, 0, N, 5);
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	smi_check_empty(fd);
	/* Whether the child has brought out what is the parent's, too, is not promised. */
	has_pattern(p, 0, N, 4);
	while (smi_is_readable(fd))
		smi_next_move(fd);
	all_in(a, p, N);
	while (smi_is_readable(fd))
		CHECK_NE(smi_next_move(fd).trigger, KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU);
	has_pattern(p, 0, N, 4);
	CHECK_EQ(smi_next_move(fd).trigger, KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU);
}

CASE(children, "SMI_EVENTS: a child that touches what it shares in VRAM is told to nobody, its parent is")
{
	need_rkfd();
	in_both_modes(children_told);
}

/* A line of any event, of this process: what follows the time and the process. */
struct line {
	unsigned int event;
	char rest[96];
};

static struct line next_line(int fd)
{
	const char *text = smi_next_line(fd);
	struct line line;
	uint64_t ns;

	CHECK_EQ(sscanf(text, "%x ", &line.event), 1);
	snprintf(line.rest, sizeof(line.rest), "%s", smi_timed(text, line.event, &ns));
	return line;
}

static void is_line(const struct line *line, unsigned int event, const char *rest)
{
	if (line->event != event || strcmp(line->rest, rest))
		FAIL("\"%x … %s\" instead of \"%x … %s\"", line->event, line->rest, event, rest);
}

CASE_LIMIT(accesses, "SMI_EVENTS with XNACK: an access that moves its block: 7, 5, perhaps b, 6, and 8 with M", 120)
{
	enum { PAGE_AT = 203, FIRST = 192, COUNT = 32 };
	const uint64_t events = MOVES | BIT(KFD_SMI_EVENT_PAGE_FAULT_START) | BIT(KFD_SMI_EVENT_PAGE_FAULT_END) |
				BIT(KFD_SMI_EVENT_UNMAP_FROM_GPU);
	char wanted[96];
	struct agent a;
	struct line line;
	int fd;

	need_rkfd();
	begin_repeated(&a);
	for (unsigned int round = 0; round < 4; round++) {
		bool writes = round & 1, shown = round & 2;
		uint8_t *p = patterned(PAGES, round);
		unsigned long at = page_of(p);
		uint32_t seen = 0;

		tap_note("round %u", round);
		CHECK_OK(svm_set(&a.gpu, p, HUGE, GRANULARITY, 5));
		/* Something of the granule is shown, or nothing. */
		CHECK_OK(svm_set(&a.gpu, p, 64 * PAGE, PREFERRED, 0));
		fd = need_smi(&a.gpu, events);
		if (shown) {
			agent_reads(&a, p + 10 * PAGE);
			while (next_line(fd).event != KFD_SMI_EVENT_PAGE_FAULT_END)
				;
		}
		if (writes)
			agent_writes(&a, p + PAGE_AT * PAGE, 0x77);
		else
			seen = agent_reads(&a, p + PAGE_AT * PAGE);
		line = next_line(fd);
		snprintf(wanted, sizeof(wanted), "@%lx(%x) %c", at + PAGE_AT, a.gpu.id, writes ? 'W' : 'R');
		is_line(&line, KFD_SMI_EVENT_PAGE_FAULT_START, wanted);
		line = next_line(fd);
		snprintf(wanted, sizeof(wanted), "@%lx(%x) 0->%x %x:%x 1", at + FIRST, COUNT, a.gpu.id, UNDEFINED, UNDEFINED);
		is_line(&line, KFD_SMI_EVENT_MIGRATE_START, wanted);
		line = next_line(fd);
		if (line.event == KFD_SMI_EVENT_UNMAP_FROM_GPU) {
			unsigned long first, size;
			unsigned int node, trigger;

			CHECK(shown);
			CHECK_EQ(sscanf(line.rest, "@%lx(%lx) %x %u", &first, &size, &node, &trigger), 4);
			CHECK_OP(first, <=, at + FIRST);
			CHECK_OP(first + size, >=, at + FIRST + COUNT);
			CHECK_EQ(node, a.gpu.id);
			CHECK_EQ(trigger, KFD_SVM_UNMAP_TRIGGER_MMU_NOTIFY_MIGRATE);
			line = next_line(fd);
		}
		snprintf(wanted, sizeof(wanted), "@%lx(%x) 0->%x 1 0", at + FIRST, COUNT, a.gpu.id);
		is_line(&line, KFD_SMI_EVENT_MIGRATE_END, wanted);
		line = next_line(fd);
		CHECK_OP(device_pages(p, PAGES), <=, COUNT);
		snprintf(wanted, sizeof(wanted), "@%lx(%x) M", at + PAGE_AT, a.gpu.id);
		is_line(&line, KFD_SMI_EVENT_PAGE_FAULT_END, wanted);
		close(fd);
		if (writes) {
			CHECK_EQ(*(volatile uint32_t *)(p + PAGE_AT * PAGE), 0x77);
			pattern(p + PAGE_AT * PAGE, PAGE_AT, 1, round);
		} else {
			CHECK_EQ(*(volatile uint32_t *)(p + PAGE_AT * PAGE), seen);
		}
		has_pattern(p, 0, PAGES, round);
	}
	agent_stop(&a);
}

CASE(in_place, "SMI_EVENTS with XNACK: an access that moves nothing: 7, and 8 with U")
{
	const uint64_t events = MOVES | BIT(KFD_SMI_EVENT_PAGE_FAULT_START) | BIT(KFD_SMI_EVENT_PAGE_FAULT_END);
	char wanted[96];
	struct agent a;
	struct line line;
	int fd;

	need_rkfd();
	begin_repeated(&a);
	for (unsigned int way = 0; way < 3; way++) {
		uint8_t *p = way ? patterned(4, way) : need_file_map(4, NULL, MAP_SHARED);
		unsigned long at = page_of(p);

		tap_note("way %u", way);
		pattern(p, 0, 4, way);
		if (way == 1)
			CHECK_OK(svm_set(&a.gpu, p, 4 * PAGE, PREFERRED, 0));
		if (way == 2)
			CHECK_OK(svm_set(&a.gpu, p, 4 * PAGE, IN_PLACE, a.gpu.id));
		fd = need_smi(&a.gpu, events);
		agent_adds(&a, p + PAGE, 1, 1, 1);
		line = next_line(fd);
		snprintf(wanted, sizeof(wanted), "@%lx(%x) W", at + 1, a.gpu.id);
		is_line(&line, KFD_SMI_EVENT_PAGE_FAULT_START, wanted);
		line = next_line(fd);
		snprintf(wanted, sizeof(wanted), "@%lx(%x) U", at + 1, a.gpu.id);
		is_line(&line, KFD_SMI_EVENT_PAGE_FAULT_END, wanted);
		smi_check_empty(fd);
		close(fd);
		CHECK_EQ(device_pages(p, 4), 0);
		has_added(p + PAGE, 1, 1, way, 1, 1);
	}
	agent_stop(&a);
}

/* Only unmappings between the two lines of a move. */
static unsigned int unmapped_within(int fd, unsigned int trigger, uint64_t *pages, const struct agent *a)
{
	struct line line = next_line(fd);
	unsigned int pieces = 0;

	*pages = 0;
	CHECK_EQ(line.event, KFD_SMI_EVENT_MIGRATE_START);
	CHECK_EQ(strtoul(strrchr(line.rest, ' ') + 1, NULL, 10), trigger);
	while ((line = next_line(fd)).event == KFD_SMI_EVENT_UNMAP_FROM_GPU) {
		unsigned long first, size;
		unsigned int node, why;

		CHECK_EQ(sscanf(line.rest, "@%lx(%lx) %x %u", &first, &size, &node, &why), 4);
		CHECK_EQ(node, a->gpu.id);
		CHECK_EQ(why, KFD_SVM_UNMAP_TRIGGER_MMU_NOTIFY_MIGRATE);
		*pages += size;
		pieces++;
	}
	CHECK_EQ(line.event, KFD_SMI_EVENT_MIGRATE_END);
	return pieces;
}

static void unmappings_told(struct agent *a, bool xnack)
{
	enum { N = 64 };
	const uint64_t events = MOVES | BIT(KFD_SMI_EVENT_UNMAP_FROM_GPU);
	uint8_t *p = patterned(N, 6);
	uint64_t pages;
	int fd;

	(void)xnack;
	allow(a, p, N);
	/* It is shown, in the system, and then in VRAM. */
	all_in(a, p, N);
	all_out(a, p, N);
	agent_has_pattern(a, p, 0, N, 6);
	fd = need_smi(&a->gpu, events);
	CHECK_OK(prefetch(a, p, N, a->gpu.id));
	CHECK_OP(unmapped_within(fd, KFD_MIGRATE_TRIGGER_PREFETCH, &pages, a), >=, 1);
	CHECK_OP(pages, >=, N);
	close(fd);
	all_in(a, p, N);
	agent_has_pattern(a, p, 0, N, 6);
	fd = need_smi(&a->gpu, events);
	CHECK_OK(prefetch(a, p, N, 0));
	CHECK_OP(unmapped_within(fd, KFD_MIGRATE_TRIGGER_PREFETCH, &pages, a), >=, 1);
	CHECK_OP(pages, >=, N);
	close(fd);
	all_in(a, p, N);
	agent_has_pattern(a, p, 0, N, 6);
	fd = need_smi(&a->gpu, events);
	page_has(p + 20 * PAGE, "CPU", 20, 6, 0, 0);
	CHECK_OP(unmapped_within(fd, KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU, &pages, a), >=, 1);
	CHECK_OP(pages, >, 0);
	close(fd);
	has_pattern(p, 0, N, 6);
}

CASE(unmappings, "SMI_EVENTS: what is shown and moves is unmapped by trigger 1, between the lines of the move")
{
	need_rkfd();
	in_both_modes(unmappings_told);
}

CASE(queues, "SMI_EVENTS without XNACK: a prefetch takes the queues off by trigger 0, and they run again")
{
	enum { N = 64 };
	const uint64_t events = BIT(KFD_SMI_EVENT_QUEUE_EVICTION) | BIT(KFD_SMI_EVENT_QUEUE_RESTORE);
	uint8_t *p = patterned(N, 7);
	char wanted[32];
	struct line line;
	struct agent a;
	int fd;

	agent_open(&a, 0);
	need_moves(&a);
	need_rkfd();
	agent_start(&a);
	allow(&a, p, N);
	agent_has_pattern(&a, p, 0, N, 7);
	fd = need_smi(&a.gpu, events);
	CHECK_OK(prefetch(&a, p, N, a.gpu.id));
	line = next_line(fd);
	snprintf(wanted, sizeof(wanted), "%x %d", a.gpu.id, KFD_QUEUE_EVICTION_TRIGGER_SVM);
	is_line(&line, KFD_SMI_EVENT_QUEUE_EVICTION, wanted);
	do {
		line = next_line(fd);
		CHECK_EQ(line.event, KFD_SMI_EVENT_QUEUE_RESTORE);
		snprintf(wanted, sizeof(wanted), "%x R", a.gpu.id);
	} while (!strcmp(line.rest, wanted));
	snprintf(wanted, sizeof(wanted), "%x 0", a.gpu.id);
	is_line(&line, KFD_SMI_EVENT_QUEUE_RESTORE, wanted);
	agent_has_pattern(&a, p, 0, N, 7);
	close(fd);
	has_pattern(p, 0, N, 7);
	agent_stop(&a);
}
