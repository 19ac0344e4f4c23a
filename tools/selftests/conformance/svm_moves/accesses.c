// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SVM: what an access of the GPU moves to VRAM where accesses are repeated, by the attributes of the memory; and that nothing moves by
 * accesses where they are not.
 */
#include "moves.h"
#include "smi.h"

#define BIT(event) KFD_SMI_EVENT_MASK_FROM_INDEX(event)

/*
 * The GPU accesses a page, after which `count` pages from `first` on are in VRAM: again for those that somebody had in hand for a
 * moment, which a change of the mapping has it access anew.
 */
static void moves(struct agent *a, uint8_t *p, unsigned int page, unsigned int first, unsigned int count)
{
	uint64_t end = now_ms() + WAIT_MS;

	agent_reads(a, p + page * PAGE);
	while (device_pages(p + first * PAGE, count) < count) {
		if (now_ms() > end)
			FAIL("%u of %u pages do not move", count - device_pages(p + first * PAGE, count), count);
		CHECK_EQ(mprotect(p + first * PAGE, count * PAGE, PROT_READ), 0);
		CHECK_EQ(mprotect(p + first * PAGE, count * PAGE, PROT_READ | PROT_WRITE), 0);
		for (unsigned int i = first; i < first + count; i++)
			if (!device_pages(p + i * PAGE, 1)) {
				agent_reads(a, p + i * PAGE);
				break;
			}
	}
}

static int prefer(const struct agent *a, const void *p, unsigned int pages, uint32_t location)
{
	return svm_set(&a->gpu, p, pages * PAGE, PREFERRED, location);
}

CASE_LIMIT(table, "SVM with XNACK: PREFERRED_LOC and how the GPU may access memory decide whether an access moves it to VRAM", 240)
{
	struct agent a;

	need_rkfd();
	begin_repeated(&a);
	const struct {
		uint32_t preferred, access;
		bool here;
	} cells[] = {
		{ a.gpu.id, ACCESS, true },   { a.gpu.id, IN_PLACE, true },   { 0, ACCESS, false },
		{ 0, IN_PLACE, false },	      { UNDEFINED, ACCESS, true },    { UNDEFINED, IN_PLACE, false },
	};
	for (unsigned int i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
		uint8_t *p = patterned(PAGES, i);
		uint64_t before = agent_count(&a, "moved_in_by_access"), in = agent_count(&a, "moved_in");
		struct attr list[] = { { PREFERRED, cells[i].preferred }, { cells[i].access, a.gpu.id } };
		uint64_t moved = cells[i].here ? HUGE : 0;

		tap_note("preferred %x, access %u", cells[i].preferred, cells[i].access);
		CHECK_OK(svm_call(&a.gpu, SET, p, HUGE, list, 2));
		CHECK_EQ(device_pages(p, PAGES), 0);
		if (cells[i].here)
			moves(&a, p, 77, 0, PAGES);
		agent_has_pattern(&a, p, 0, PAGES, i);
		agent_adds(&a, p, PAGES, 3, 7);
		CHECK_EQ(device_pages(p, PAGES), cells[i].here ? PAGES : 0);
		CHECK_EQ(agent_count(&a, "moved_in_by_access") - before, moved);
		CHECK_EQ(agent_count(&a, "moved_in") - in, moved);
		CHECK_EQ(agent_has(&a, "vram"), moved);
		CHECK_EQ(svm_get(&a.gpu, p, HUGE, PREFERRED), cells[i].preferred);
		CHECK_EQ(svm_get(&a.gpu, p, HUGE, PREFETCH), UNDEFINED);
		has_added(p, 0, PAGES, i, 3, 7);
		CHECK_EQ(device_pages(p, PAGES), 0);
	}
	agent_stop(&a);
}

CASE_LIMIT(stays_there, "SVM with XNACK: what is in VRAM is used there whatever place is preferred, and no attribute but PREFETCH_LOC brings it back", 120)
{
	uint8_t *p = patterned(PAGES, 1);
	struct agent a;

	need_rkfd();
	begin_repeated(&a);
	CHECK_OK(prefer(&a, p, PAGES, a.gpu.id));
	moves(&a, p, 5, 0, PAGES);
	for (unsigned int i = 0; i < 3; i++) {
		CHECK_OK(i == 0 ? prefer(&a, p, PAGES, 0) :
			 i == 1 ? svm_set(&a.gpu, p, HUGE, IN_PLACE, a.gpu.id) :
				  prefer(&a, p, PAGES, UNDEFINED));
		CHECK_EQ(device_pages(p, PAGES), PAGES);
		/* Accessed anew: what the GPU has is taken away. */
		CHECK_OK(svm_set(&a.gpu, p, HUGE, NO_ACCESS, a.gpu.id));
		CHECK_OK(svm_set(&a.gpu, p, HUGE, i ? IN_PLACE : ACCESS, a.gpu.id));
		agent_adds(&a, p, PAGES, 1, 1);
		CHECK_EQ(device_pages(p, PAGES), PAGES);
	}
	all_out(&a, p, PAGES);
	has_added(p, 0, PAGES, 1, 1, 3);
	agent_has_added(&a, p, 0, PAGES, 1, 1, 3);
	CHECK_EQ(device_pages(p, PAGES), 0);
	agent_stop(&a);
}

CASE_LIMIT(plain_memory, "SVM with XNACK: memory without attributes moves by accesses, but not heap and stack, unless attributes say so", 120)
{
	volatile uint64_t stack[2 * PAGE / 8];
	uint8_t *p = patterned(PAGES, 2), *heap;
	struct agent a;

	need_rkfd();
	begin_repeated(&a);
	moves(&a, p, 9, 0, PAGES);
	agent_adds(&a, p, PAGES, 1, 1);
	CHECK_EQ(device_pages(p, PAGES), PAGES);
	has_added(p, 0, PAGES, 2, 1, 1);

	heap = sbrk(3 * HUGE);
	CHECK(heap != (void *)-1);
	heap = (uint8_t *)(((uintptr_t)heap + HUGE - 1) & ~(HUGE - 1));
	CHECK_EQ(madvise(heap, HUGE, MADV_NOHUGEPAGE), 0);
	pattern(heap, 0, PAGES, 3);
	agent_has_pattern(&a, heap, 0, PAGES, 3);
	agent_adds(&a, heap, PAGES, 1, 1);
	CHECK_EQ(device_pages(heap, PAGES), 0);
	has_added(heap, 0, PAGES, 3, 1, 1);
	CHECK_OK(prefer(&a, heap, PAGES, a.gpu.id));
	moves(&a, heap, 9, 0, PAGES);
	agent_adds(&a, heap, PAGES, 1, 1);
	CHECK_EQ(device_pages(heap, PAGES), PAGES);
	has_added(heap, 0, PAGES, 3, 1, 2);

	for (unsigned int i = 0; i < sizeof(stack) / sizeof(stack[0]); i++)
		stack[i] = i * 3;
	for (unsigned int i = 0; i < sizeof(stack) / sizeof(stack[0]); i += 100)
		CHECK_EQ(agent_reads(&a, &stack[i]), i * 3);
	agent_writes(&a, &stack[11], 0x4321);
	CHECK_EQ(device_pages((void *)((uintptr_t)stack & ~(PAGE - 1)), 2), 0);
	CHECK_EQ(stack[11], 0x4321);
	agent_stop(&a);
}

CASE_LIMIT(blocks, "SVM with XNACK: an access moves the aligned block of GRANULARITY pages that has its page, 16 to 512, and no more", 300)
{
	static const uint32_t granularities[] = { 0, 3, 4, 5, 6, 7, 8, 9, 12, 0x3f };
	const unsigned int page = 301;
	struct agent a;

	need_rkfd();
	begin_repeated(&a);
	for (unsigned int i = 0; i < sizeof(granularities) / sizeof(granularities[0]); i++) {
		const uint32_t granularity = granularities[i];
		const unsigned int count = granularity <= 4 ? 16 : granularity >= 9 ? 512 : 1u << granularity;
		const unsigned int first = page / count * count;
		uint8_t *p = patterned(2 * PAGES, i);
		uint64_t before;

		tap_note("granularity %u", granularity);
		CHECK_OK(svm_set(&a.gpu, p, 2 * HUGE, GRANULARITY, granularity));
		CHECK_EQ(svm_get(&a.gpu, p, 2 * HUGE, GRANULARITY), granularity);
		before = agent_count(&a, "moved_in_by_access");
		moves(&a, p, page, first, count);
		CHECK_EQ(device_pages(p, 2 * PAGES), count);
		CHECK_EQ(agent_count(&a, "moved_in_by_access") - before, count * PAGE);
		agent_has_pattern(&a, p + first * PAGE, first, count, i);
		agent_adds(&a, p + first * PAGE, count, 3, 9);
		CHECK_EQ(device_pages(p, 2 * PAGES), count);
		/* What lies in the system beside it was not shown, so each access moves its block. */
		agent_has_pattern(&a, p + HUGE, PAGES, PAGES, i);
		CHECK_OP(device_pages(p + HUGE, PAGES), >, PAGES / 2);
		has_added(p + first * PAGE, first, count, i, 3, 9);
		has_pattern(p, 0, first, i);
		has_pattern(p + (first + count) * PAGE, first + count, 2 * PAGES - first - count, i);
	}
	agent_stop(&a);
}

CASE_LIMIT(cut, "SVM with XNACK: a block is cut to where place and granularity are the same, and to the mapping", 120)
{
	uint8_t *p = patterned(2 * PAGES, 5);
	struct agent a;

	need_rkfd();
	begin_repeated(&a);
	CHECK_OK(prefer(&a, p, 2 * PAGES, 0));
	/* Preferred there, and nothing beside it. */
	CHECK_OK(prefer(&a, p + 100 * PAGE, 4, a.gpu.id));
	moves(&a, p, 102, 100, 4);
	agent_has_pattern(&a, p, 0, 150, 5);
	CHECK_EQ(device_pages(p, 2 * PAGES), 4);
	/* Of another granularity than what is around. */
	CHECK_OK(prefer(&a, p + 192 * PAGE, 64, a.gpu.id));
	CHECK_OK(svm_set(&a.gpu, p + 200 * PAGE, 8 * PAGE, GRANULARITY, 5));
	moves(&a, p, 203, 200, 8);
	CHECK_EQ(device_pages(p + 192 * PAGE, 64), 8);
	/* A mapping of its own by other rights. */
	CHECK_OK(prefer(&a, p + 320 * PAGE, 64, a.gpu.id));
	CHECK_EQ(mprotect(p + 330 * PAGE, 8 * PAGE, PROT_READ), 0);
	agent_reads(&a, p + 333 * PAGE);
	for (uint64_t end = now_ms() + WAIT_MS; device_pages(p + 330 * PAGE, 8) < 8;) {
		if (now_ms() > end)
			FAIL("%u of 8 pages for reading move", device_pages(p + 330 * PAGE, 8));
		CHECK_OK(prefer(&a, p + 330 * PAGE, 8, 0));
		CHECK_OK(prefer(&a, p + 330 * PAGE, 8, a.gpu.id));
		for (unsigned int i = 330; i < 338; i++)
			agent_reads(&a, p + i * PAGE);
	}
	CHECK_EQ(device_pages(p + 320 * PAGE, 64), 8);
	agent_has_pattern(&a, p, 0, 2 * PAGES, 5);
	CHECK_EQ(mprotect(p + 330 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE), 0);
	has_pattern(p, 0, 2 * PAGES, 5);
	agent_stop(&a);
}

CASE_LIMIT(changes, "SVM with XNACK: a change of place or access moves nothing, and has the next access moved; the same again changes nothing", 240)
{
	uint8_t *p = patterned(PAGES, 6);
	struct agent a;
	int fd;

	need_rkfd();
	begin_repeated(&a);
	/* Each way in which it comes to be wanted there. */
	for (unsigned int way = 0; way < 3; way++) {
		tap_note("way %u", way);
		if (way == 0)
			CHECK_OK(prefer(&a, p, PAGES, 0));
		else
			CHECK_OK(prefer(&a, p, PAGES, UNDEFINED));
		CHECK_OK(svm_set(&a.gpu, p, HUGE, way == 0 ? ACCESS : IN_PLACE, a.gpu.id));
		agent_has_added(&a, p, 0, PAGES, 6, 2, way);
		CHECK_EQ(device_pages(p, PAGES), 0);
		fd = need_smi(&a.gpu, BIT(KFD_SMI_EVENT_PAGE_FAULT_START));
		CHECK_OK(svm_set(&a.gpu, p, HUGE, way == 0 ? ACCESS : IN_PLACE, a.gpu.id));
		CHECK_OK(prefer(&a, p, PAGES, way == 0 ? 0 : UNDEFINED));
		agent_has_added(&a, p, 0, PAGES, 6, 2, way);
		smi_check_empty(fd);
		if (way == 1)
			CHECK_OK(svm_set(&a.gpu, p, HUGE, ACCESS, a.gpu.id));
		else
			CHECK_OK(prefer(&a, p, PAGES, a.gpu.id));
		CHECK_EQ(device_pages(p, PAGES), 0);
		moves(&a, p, 200, 0, PAGES);
		CHECK(smi_is_readable(fd));
		close(fd);
		agent_adds(&a, p, PAGES, 2, 1);
		CHECK_EQ(device_pages(p, PAGES), PAGES);
		/* Longer than what counts as a bounce. */
		usleep(200000);
		has_added(p, 0, PAGES, 6, 2, way + 1);
	}
	/* Out of reach, and back. */
	CHECK_OK(svm_set(&a.gpu, p, HUGE, NO_ACCESS, a.gpu.id));
	CHECK_EQ(device_pages(p, PAGES), 0);
	CHECK_OK(svm_set(&a.gpu, p, HUGE, ACCESS, a.gpu.id));
	CHECK_EQ(device_pages(p, PAGES), 0);
	moves(&a, p, 3, 0, PAGES);
	has_added(p, 0, PAGES, 6, 2, 3);
	agent_stop(&a);
}

CASE_LIMIT(always_mapped, "SVM with XNACK: what is always mapped moves by no access, but by a prefetch", 120)
{
	uint8_t *p = patterned(PAGES, 7);
	struct agent a;

	need_rkfd();
	begin_repeated(&a);
	CHECK_OK(svm_set(&a.gpu, p, HUGE, SET_FLAGS, KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED));
	CHECK_OK(prefer(&a, p, PAGES, a.gpu.id));
	CHECK_OK(svm_set(&a.gpu, p, HUGE, ACCESS, a.gpu.id));
	agent_has_pattern(&a, p, 0, PAGES, 7);
	agent_adds(&a, p, PAGES, 4, 1);
	CHECK_EQ(device_pages(p, PAGES), 0);
	all_in(&a, p, PAGES);
	agent_adds(&a, p, PAGES, 4, 1);
	CHECK_EQ(device_pages(p, PAGES), PAGES);
	has_added(p, 0, PAGES, 7, 4, 2);
	agent_adds(&a, p, PAGES, 4, 1);
	CHECK_EQ(device_pages(p, PAGES), 0);
	has_added(p, 0, PAGES, 7, 4, 3);
	agent_stop(&a);
}

CASE_LIMIT(near_by, "SVM with XNACK: what has no memory becomes zeroes in VRAM near the access alone, whether it reads or writes", 120)
{
	const unsigned int pages[] = { 100, 300 };
	uint64_t holes;
	struct agent a;
	uint8_t *p;

	need_rkfd();
	begin_repeated(&a);
	make_vram_dirty(&a);
	p = untouched(2 * HUGE);
	CHECK_OK(prefer(&a, p, 2 * PAGES, a.gpu.id));
	holes = agent_count(&a, "holes");
	CHECK_EQ(agent_reads(&a, p + pages[0] * PAGE), 0);
	agent_writes(&a, p + HUGE + pages[1] * PAGE, 0x1234);
	for (unsigned int granule = 0; granule < 2; granule++) {
		uint8_t *at = p + granule * HUGE;

		CHECK_EQ(device_pages(at + pages[granule] / 16 * 16 * PAGE, 16), 16);
		/* None in the system, and not all of it. */
		CHECK_EQ(present_pages(at, PAGES), device_pages(at, PAGES));
		CHECK_OP(device_pages(at, PAGES), <, PAGES);
	}
	CHECK_EQ(agent_count(&a, "holes") - holes, device_pages(p, 2 * PAGES) * PAGE);
	agent_has_zeroes(&a, p, PAGES + pages[1]);
	CHECK_EQ(agent_reads(&a, p + HUGE + pages[1] * PAGE), 0x1234);
	agent_has_zeroes(&a, p + HUGE + (pages[1] + 1) * PAGE, PAGES - pages[1] - 1);
	CHECK_EQ(*(volatile uint32_t *)(p + HUGE + pages[1] * PAGE), 0x1234);
	*(volatile uint32_t *)(p + HUGE + pages[1] * PAGE) = 0;
	has_zeroes(p, 2 * PAGES);
	agent_stop(&a);
}

CASE(files, "SVM with XNACK: files, shared memory and what is locked are used in place, though the GPU is preferred")
{
	enum { N = 32 };
	uint8_t *kinds[4];
	uint64_t before;
	struct agent a;

	need_rkfd();
	begin_repeated(&a);
	kinds[0] = need_file_map(N, NULL, MAP_SHARED);
	kinds[1] = mmap(NULL, N * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(kinds[1] != MAP_FAILED);
	kinds[2] = need_file_map(N, NULL, MAP_PRIVATE);
	kinds[3] = untouched(N * PAGE);
	CHECK_EQ(mlock(kinds[3], N * PAGE), 0);
	before = agent_count(&a, "moved_in_by_access");
	for (unsigned int kind = 0; kind < 4; kind++) {
		uint8_t *p = kinds[kind];

		pattern(p, 0, N, kind);
		CHECK_OK(prefer(&a, p, N, a.gpu.id));
		agent_has_pattern(&a, p, 0, N, kind);
		agent_adds(&a, p, N, 9, 4);
		CHECK_EQ(device_pages(p, N), 0);
		has_added(p, 0, N, kind, 9, 4);
	}
	CHECK_EQ(agent_count(&a, "moved_in_by_access"), before);
	agent_stop(&a);
}

CASE_LIMIT(shown, "SVM with XNACK: what a prefetch has moved is shown, so that no access to it is reported", 120)
{
	uint8_t *p = patterned(2 * PAGES, 8);
	uint64_t end;
	struct agent a;
	int fd;

	need_rkfd();
	begin_repeated(&a);
	agent_has_pattern(&a, p, 0, 2 * PAGES, 8);
	end = now_ms() + WAIT_MS;
	/* All by one call. */
	do {
		if (now_ms() > end)
			FAIL("%u of %u pages do not move", 2 * PAGES - device_pages(p, 2 * PAGES), 2 * PAGES);
		all_out(&a, p, 2 * PAGES);
		CHECK_OK(prefetch(&a, p, 2 * PAGES, a.gpu.id));
	} while (device_pages(p, 2 * PAGES) < 2 * PAGES);
	fd = need_smi(&a.gpu, BIT(KFD_SMI_EVENT_PAGE_FAULT_START) | BIT(KFD_SMI_EVENT_PAGE_FAULT_END));
	agent_has_pattern(&a, p, 0, 2 * PAGES, 8);
	agent_adds(&a, p, 2 * PAGES, 0, 1);
	smi_check_empty(fd);
	CHECK_EQ(device_pages(p, 2 * PAGES), 2 * PAGES);
	close(fd);
	has_added(p, 0, 2 * PAGES, 8, 0, 1);
	agent_stop(&a);
}

CASE_LIMIT(in_turn, "SVM with XNACK: CPU and GPU use a page in turn: sums are right, and what moves too often stays in the system for both", 240)
{
	enum { HOT = 40, FURTHER = 40 };
	uint8_t *p = patterned(PAGES, 9);
	volatile uint64_t *hot = (uint64_t *)(p + HOT * PAGE) + 1;
	uint64_t bounced, held, in, before, rounds = 0, end;
	struct agent a;

	need_rkfd();
	begin_repeated(&a);
	CHECK_OK(svm_set(&a.gpu, p, HUGE, GRANULARITY, 4));
	bounced = agent_count(&a, "bounced");
	held = agent_count(&a, "held_back");
	before = agent_count(&a, "moved_in_by_access");
	end = now_ms() + 3 * WAIT_MS;
	do {
		if (now_ms() > end)
			FAIL("nothing bounced in %llu rounds", (unsigned long long)rounds);
		agent_adds(&a, p + HOT * PAGE, 1, 1, 1);
		*hot += 1;
		rounds++;
	} while (agent_count(&a, "bounced") == bounced || agent_count(&a, "held_back") == held);
	in = agent_count(&a, "moved_in_by_access") - before;
	CHECK_OP(in, <=, rounds * KIB64_PAGES * PAGE);
	CHECK_OP((agent_count(&a, "bounced") - bounced) * PAGE, <=, in);
	/* From here on hardly anything moves, unless the machine has been so slow that turns are no bounces. */
	do {
		if (now_ms() > end)
			FAIL("%llu bytes move in %u rounds", (unsigned long long)in, FURTHER);
		in = agent_count(&a, "moved_in_by_access");
		for (unsigned int i = 0; i < FURTHER; i++) {
			agent_adds(&a, p + HOT * PAGE, 1, 1, 1);
			*hot += 1;
		}
		rounds += FURTHER;
		in = agent_count(&a, "moved_in_by_access") - in;
	} while (in > 10 * KIB64_PAGES * PAGE);
	has_added(p + HOT * PAGE, HOT, 1, 9, 1, 2 * rounds);
	has_pattern(p, 0, HOT, 9);
	has_pattern(p + (HOT + 1) * PAGE, HOT + 1, PAGES - HOT - 1, 9);
	agent_stop(&a);
}

CASE_LIMIT(not_repeated, "SVM without XNACK: PREFERRED_LOC and access move nothing, neither at once nor by accesses", 120)
{
	static const uint32_t kinds[] = { ACCESS, IN_PLACE };
	uint8_t *p = patterned(PAGES, 10);
	struct agent a;

	agent_open(&a, 0);
	need_moves(&a);
	agent_start(&a);
	for (unsigned int i = 0; i < 2; i++) {
		CHECK_OK(svm_set(&a.gpu, p, HUGE, kinds[i], a.gpu.id));
		CHECK_OK(prefer(&a, p, PAGES, a.gpu.id));
		CHECK_EQ(device_pages(p, PAGES), 0);
		agent_adds(&a, p, PAGES, 1, 1);
		CHECK_EQ(device_pages(p, PAGES), 0);
		agent_has_added(&a, p, 0, PAGES, 10, 1, i + 1);
		has_added(p, 0, PAGES, 10, 1, i + 1);
		/* Nor out. */
		all_in(&a, p, PAGES);
		CHECK_OK(prefer(&a, p, PAGES, 0));
		CHECK_EQ(device_pages(p, PAGES), PAGES);
		agent_has_added(&a, p, 0, PAGES, 10, 1, i + 1);
		CHECK_EQ(device_pages(p, PAGES), PAGES);
		all_out(&a, p, PAGES);
	}
	CHECK_EQ(svm_get(&a.gpu, p, HUGE, PREFERRED), 0);
	agent_stop(&a);
}
