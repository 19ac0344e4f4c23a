// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SVM: PREFETCH_LOC moves memory to VRAM and back: each byte, for CPU and GPU, and where it is.
 *
 * So that nothing else moves it, the GPU has ACCESS_IN_PLACE. Moves by accesses, the ends of programs and memory, SMI events and want
 * of VRAM are in svm_moves/.
 */
#include "svm_moves/moves.h"

#include <pthread.h>

static void there_and_back(struct agent *a, bool xnack)
{
	enum { N = 700, FIRST = 5 };
	uint8_t *p = patterned(FIRST + N + 5, 1) + FIRST * PAGE;
	uint64_t in = 0, out = 0, by_fault = 0;

	(void)xnack;
	allow(a, p, N);
	if (is_rkfd()) {
		in = agent_count(a, "moved_in");
		out = agent_count(a, "moved_out");
	}
	all_in(a, p, N);
	CHECK_EQ(svm_get(&a->gpu, p, N * PAGE, PREFETCH), a->gpu.id);
	agent_has_pattern(a, p, FIRST, N, 1);
	agent_adds(a, p, N, 3, 9);
	CHECK_EQ(device_pages(p, N), N);
	/* Nothing beside it. */
	CHECK_EQ(device_pages(p - FIRST * PAGE, FIRST), 0);
	CHECK_EQ(device_pages(p + N * PAGE, 5), 0);
	if (is_rkfd()) {
		CHECK_EQ(agent_has(a, "vram"), N * PAGE);
		CHECK_EQ(agent_has(a, "hints"), 0);
		CHECK_EQ(agent_count(a, "moved_in") - in, N * PAGE);
		CHECK_EQ(agent_count(a, "moved_out"), out);
	}
	all_out(a, p, N);
	CHECK_EQ(svm_get(&a->gpu, p, N * PAGE, PREFETCH), 0);
	if (is_rkfd())
		CHECK_EQ(agent_count(a, "moved_out") - out, N * PAGE);
	has_added(p, FIRST, N, 1, 3, 9);
	agent_adds(a, p, N, 3, 1);
	agent_has_added(a, p, FIRST, N, 1, 3, 10);
	CHECK_EQ(device_pages(p, N), 0);
	all_in(a, p, N);
	/* The CPU brings back what is around the page that it touches, and then the rest. */
	if (is_rkfd())
		by_fault = agent_count(a, "moved_out_by_fault");
	page_has(p + 100 * PAGE, "CPU", FIRST + 100, 1, 3, 10);
	CHECK_EQ(device_pages(p + 100 * PAGE, 1), 0);
	if (is_rkfd()) {
		CHECK_OP(device_pages(p, N), >=, N - KIB64_PAGES);
		CHECK_EQ(agent_count(a, "moved_out_by_fault") - by_fault, (N - device_pages(p, N)) * PAGE);
	}
	CHECK_EQ(svm_get(&a->gpu, p, N * PAGE, PREFETCH), a->gpu.id);
	agent_adds(a, p, N, 3, 5);
	CHECK_EQ(device_pages(p + 100 * PAGE, 1), 0);
	has_added(p, FIRST, N, 1, 3, 15);
	CHECK_EQ(device_pages(p, N), 0);
	/* The value is set already. */
	all_in(a, p, N);
	agent_has_added(a, p, FIRST, N, 1, 3, 15);
	CHECK_EQ(device_pages(p, N), N);
	has_added(p, FIRST, N, 1, 3, 15);
}

CASE_LIMIT(round_trip, "PREFETCH_LOC: to the GPU, where that works on it, to 0, and back by the CPU: each byte, each page's place, each figure", 240)
{
	in_both_modes(there_and_back);
}

static void without_access(struct agent *a, bool xnack)
{
	enum { N = 100 };
	uint8_t *p = patterned(N, 2);

	/* The default of XNACK is access. */
	if (xnack)
		CHECK_OK(svm_set(&a->gpu, p, N * PAGE, NO_ACCESS, a->gpu.id));
	all_in(a, p, N);
	CHECK_EQ(svm_access(&a->gpu, p, N * PAGE), NO_ACCESS);
	/* To allow it moves nothing. */
	allow(a, p, N);
	CHECK_EQ(device_pages(p, N), N);
	agent_has_pattern(a, p, 0, N, 2);
	agent_adds(a, p, N, 0, 4);
	CHECK_EQ(device_pages(p, N), N);
	/* To take it away does not either. */
	CHECK_OK(svm_set(&a->gpu, p, N * PAGE, NO_ACCESS, a->gpu.id));
	CHECK_EQ(device_pages(p, N), N);
	has_added(p, 0, N, 2, 0, 4);
}

CASE_LIMIT(unreached, "PREFETCH_LOC: to a GPU without access memory moves all the same, which that sees when it is allowed to", 120)
{
	in_both_modes(without_access);
}

static void by_lists(struct agent *a, bool xnack)
{
	enum { N = 64 };
	struct attr list[4] = { { PREFETCH, a->gpu.id }, { IN_PLACE, a->gpu.id } };
	uint8_t *p;

	(void)xnack;
	/* Wherever it stands. */
	for (unsigned int i = 0; i < 2; i++) {
		struct attr first = list[0];

		p = patterned(N, i);
		CHECK_OK(svm_call(&a->gpu, SET, p, N * PAGE, list, 2));
		CHECK_OP(device_pages(p, N), >, 0);
		all_in(a, p, N);
		agent_has_pattern(a, p, 0, N, i);
		CHECK_EQ(device_pages(p, N), N);
		has_pattern(p, 0, N, i);
		list[0] = list[1];
		list[1] = first;
	}
	/* The last one of several counts. */
	p = patterned(N, 2);
	list[0] = (struct attr){ PREFETCH, a->gpu.id };
	list[1] = (struct attr){ GRANULARITY, 3 };
	list[2] = (struct attr){ PREFETCH, 0 };
	CHECK_OK(svm_call(&a->gpu, SET, p, N * PAGE, list, 3));
	CHECK_EQ(device_pages(p, N), 0);
	CHECK_EQ(svm_get(&a->gpu, p, N * PAGE, PREFETCH), 0);
	list[0] = (struct attr){ PREFETCH, 0 };
	list[2] = (struct attr){ PREFETCH, a->gpu.id };
	CHECK_OK(svm_call(&a->gpu, SET, p, N * PAGE, list, 3));
	CHECK_OP(device_pages(p, N), >, 0);
	CHECK_EQ(svm_get(&a->gpu, p, N * PAGE, PREFETCH), a->gpu.id);
	CHECK_EQ(svm_get(&a->gpu, p, N * PAGE, GRANULARITY), 3);
	has_pattern(p, 0, N, 2);
}

CASE(lists, "PREFETCH_LOC: within a list it does the same wherever it stands, and the last one counts")
{
	in_both_modes(by_lists);
}

CASE(refused, "PREFETCH_LOC: each errno for its cause, and nothing is set or has moved")
{
	enum { N = 8 };
	struct attr list[2];
	struct bo wrapped;
	struct agent a;
	uint8_t *p, *q;

	agent_open(&a, 0);
	need_moves(&a);
	p = patterned(N, 1);
	CHECK_ERR(prefetch(&a, p, N, UNDEFINED), EINVAL);
	CHECK_ERR(prefetch(&a, p, N, a.gpu.id ^ 0x5555), EINVAL);
	/* Beside one that is right. */
	const struct attr wrong[] = {
		{ PREFETCH, UNDEFINED },     { PREFETCH, a.gpu.id ^ 0x5555 }, { PREFERRED, a.gpu.id ^ 0x5555 },
		{ ACCESS, a.gpu.id ^ 0x5555 }, { 8, 0 },
	};
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		for (unsigned int at = 0; at < 2; at++) {
			list[at] = wrong[i];
			list[!at] = (struct attr){ PREFETCH, a.gpu.id };
			CHECK_ERR(svm_call(&a.gpu, SET, p, N * PAGE, list, 2), EINVAL);
		}
	CHECK_ERR(svm_set(&a.gpu, p + 8, PAGE, PREFETCH, a.gpu.id), EINVAL);
	CHECK_ERR(svm_set(&a.gpu, p, PAGE + 8, PREFETCH, a.gpu.id), EINVAL);
	CHECK_ERR(svm_set(&a.gpu, p, 0, PREFETCH, a.gpu.id), EINVAL);
	CHECK_ERR(svm_set(&a.gpu, NULL, PAGE, PREFETCH, a.gpu.id), EINVAL);
	CHECK_ERR(svm_set(&a.gpu, (void *)-PAGE, 2 * PAGE, PREFETCH, a.gpu.id), EOVERFLOW);
	CHECK_EQ(svm_get(&a.gpu, p, N * PAGE, PREFETCH), UNDEFINED);
	CHECK_EQ(device_pages(p, N), 0);
	/* With a hole at its end. */
	CHECK_EQ(munmap(p + (N - 1) * PAGE, PAGE), 0);
	CHECK_ERR(prefetch(&a, p, N, a.gpu.id), EFAULT);
	CHECK_ERR(prefetch(&a, p, N, 0), EFAULT);
	CHECK_EQ(device_pages(p, N - 1), 0);
	CHECK_EQ(svm_get(&a.gpu, p, (N - 1) * PAGE, PREFETCH), UNDEFINED);
	has_pattern(p, 0, N - 1, 1);
	/* Over a buffer. */
	q = patterned(N, 2);
	CHECK_OK(bo_wrap(&a.gpu, &wrapped, FLAGS_USERPTR, q + 2 * PAGE, PAGE));
	CHECK_OK(bo_map(&a.gpu, &wrapped));
	CHECK_ERR(prefetch(&a, q, N, a.gpu.id), EADDRINUSE);
	CHECK_EQ(device_pages(q, N), 0);
	CHECK_OK(bo_unmap(&a.gpu, &wrapped));
	CHECK_OK(bo_free(&a.gpu, &wrapped));
	all_in(&a, q, N);
	has_pattern(q, 0, N, 2);
}

CASE(early, "PREFETCH_LOC: before ACQUIRE_VM is EINVAL")
{
	struct gpu gpu;
	uint8_t *p = patterned(4, 1);
	int err;

	need_gpu(&gpu, 0);
	err = svm_set(&gpu, p, 4 * PAGE, PREFETCH, gpu.id);
	if (err == EPERM)
		SKIP("the driver has no SVM");
	CHECK_ERR(err, EINVAL);
	CHECK_EQ(device_pages(p, 4), 0);
}

static void others(struct agent *a, bool xnack)
{
	enum { N = 16 };
	uint8_t *kinds[4];

	(void)xnack;
	kinds[0] = need_file_map(N, NULL, MAP_SHARED);
	kinds[1] = mmap(NULL, N * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(kinds[1] != MAP_FAILED);
	kinds[2] = need_file_map(N, NULL, MAP_PRIVATE);
	kinds[3] = untouched(N * PAGE);
	CHECK_EQ(mlock(kinds[3], N * PAGE), 0);
	for (unsigned int kind = 0; kind < 4; kind++) {
		uint8_t *p = kinds[kind];

		pattern(p, 0, N, kind);
		allow(a, p, N);
		CHECK_OK(prefetch(a, p, N, a->gpu.id));
		CHECK_EQ(device_pages(p, N), 0);
		CHECK_EQ(svm_get(&a->gpu, p, N * PAGE, PREFETCH), a->gpu.id);
		agent_has_pattern(a, p, 0, N, kind);
		agent_adds(a, p, N, 9, 4);
		has_added(p, 0, N, kind, 9, 4);
		CHECK_OK(prefetch(a, p, N, 0));
		agent_has_added(a, p, 0, N, kind, 9, 4);
	}
}

CASE(others_stay, "PREFETCH_LOC: files, shared memory and what is locked stay, without an error")
{
	need_rkfd();
	in_both_modes(others);
}

static void over_mappings(struct agent *a, bool xnack)
{
	/* 0 to 9 its own, 10 to 19 a file, 20 to 29 its own for reading, 30 to 39 locked, 40 to 49 its own. */
	uint8_t *p = untouched(50 * PAGE);

	(void)xnack;
	CHECK(need_file_map(10, p + 10 * PAGE, MAP_SHARED | MAP_FIXED) == p + 10 * PAGE);
	CHECK_EQ(mlock(p + 30 * PAGE, 10 * PAGE), 0);
	pattern(p, 0, 50, 6);
	CHECK_EQ(mprotect(p + 20 * PAGE, 10 * PAGE, PROT_READ), 0);
	allow(a, p, 50);
	some_in(a, p, 50, 30);
	CHECK_EQ(device_pages(p, 10), 10);
	CHECK_EQ(device_pages(p + 10 * PAGE, 10), 0);
	CHECK_EQ(device_pages(p + 20 * PAGE, 10), 10);
	CHECK_EQ(device_pages(p + 30 * PAGE, 10), 0);
	CHECK_EQ(device_pages(p + 40 * PAGE, 10), 10);
	agent_has_pattern(a, p, 0, 50, 6);
	agent_adds(a, p, 20, 1, 2);
	agent_adds(a, p + 30 * PAGE, 20, 1, 2);
	CHECK_EQ(device_pages(p, 50), 30);
	all_out(a, p, 50);
	has_added(p, 0, 20, 6, 1, 2);
	has_pattern(p + 20 * PAGE, 20, 10, 6);
	has_added(p + 30 * PAGE, 30, 20, 6, 1, 2);
	/* Again, and back by the CPU, which writes what it may. */
	some_in(a, p, 50, 30);
	CHECK_EQ(mprotect(p + 20 * PAGE, 10 * PAGE, PROT_READ | PROT_WRITE), 0);
	pattern(p, 0, 50, 7);
	agent_has_pattern(a, p, 0, 50, 7);
}

CASE(mappings, "PREFETCH_LOC: a range over mappings of several kinds moves where it can")
{
	need_rkfd();
	in_both_modes(over_mappings);
}

static void over_holes(struct agent *a, bool xnack)
{
	enum { WRITTEN = 20, AT_PAGE = 100, READ_PAGE = 300 };
	const unsigned int all = 2 * PAGES, behind = AT_PAGE + WRITTEN;
	uint8_t *p, *q;
	uint64_t holes = 0;

	(void)xnack;
	make_vram_dirty(a);
	p = untouched(2 * HUGE);
	pattern(p + AT_PAGE * PAGE, AT_PAGE, WRITTEN, 3);
	/* The page of zeroes that all share. */
	CHECK_EQ(*(volatile uint32_t *)(p + READ_PAGE * PAGE), 0);
	if (is_rkfd())
		holes = agent_count(a, "holes");
	/* Before the GPU has it: without XNACK that gives it memory in the system. */
	all_in(a, p, all);
	if (is_rkfd()) {
		CHECK_OP(agent_count(a, "holes") - holes, <=, (all - WRITTEN) * PAGE);
		CHECK_OP(agent_count(a, "holes") - holes, >=, (all - WRITTEN - 1) * PAGE);
	}
	allow(a, p, all);
	CHECK_EQ(device_pages(p, all), all);
	agent_has_zeroes(a, p, AT_PAGE);
	agent_has_pattern(a, p + AT_PAGE * PAGE, AT_PAGE, WRITTEN, 3);
	agent_has_zeroes(a, p + behind * PAGE, all - behind);
	agent_writes(a, p + READ_PAGE * PAGE, 0x1234);
	CHECK_EQ(device_pages(p, all), all);
	CHECK_EQ(*(volatile uint32_t *)(p + READ_PAGE * PAGE), 0x1234);
	*(volatile uint32_t *)(p + READ_PAGE * PAGE) = 0;
	has_zeroes(p, AT_PAGE);
	has_pattern(p + AT_PAGE * PAGE, AT_PAGE, WRITTEN, 3);
	has_zeroes(p + behind * PAGE, all - behind);

	/* On the way out they are nothing. */
	q = untouched(HUGE);
	pattern(q, 0, 10, 4);
	CHECK_OK(prefetch(a, q, PAGES, 0));
	CHECK_EQ(present_pages(q, PAGES), 10);
	all_in(a, q, 10);
	all_out(a, q, PAGES);
	CHECK_EQ(present_pages(q, PAGES), 10);
	has_pattern(q, 0, 10, 4);
}

CASE_LIMIT(holes, "PREFETCH_LOC: what has no memory, or was only read, becomes zeroes in VRAM however dirty that was; to 0 it stays nothing", 240)
{
	in_both_modes(over_holes);
}

static void large(struct agent *a, bool xnack)
{
	uint8_t *p = untouched(3 * HUGE);

	(void)xnack;
	CHECK_EQ(madvise(p, 3 * HUGE, MADV_HUGEPAGE), 0);
	pattern(p, 0, 3 * PAGES, 5);
	allow(a, p, 3 * PAGES);
	/* All of one and a part of the next. */
	all_in(a, p, PAGES + 40);
	CHECK_EQ(device_pages(p + (PAGES + 40) * PAGE, 2 * PAGES - 40), 0);
	agent_has_pattern(a, p, 0, 3 * PAGES, 5);
	all_in(a, p, 3 * PAGES);
	agent_adds(a, p, 3 * PAGES, 7, 1);
	CHECK_EQ(device_pages(p, 3 * PAGES), 3 * PAGES);
	all_out(a, p + 10 * PAGE, PAGES);
	CHECK_EQ(device_pages(p, 3 * PAGES), 2 * PAGES);
	agent_adds(a, p, 3 * PAGES, 7, 1);
	has_added(p, 0, 3 * PAGES, 5, 7, 2);
}

CASE_LIMIT(large_pages, "PREFETCH_LOC: large pages of the program move, as a whole and in part", 240)
{
	need_rkfd();
	in_both_modes(large);
}

static void by_parts(struct agent *a, bool xnack)
{
	enum { STEP = 17, N = 5 };
	const unsigned int all = 2 * PAGES, parts = all / STEP;
	uint8_t *p = patterned(all, 8);

	(void)xnack;
	allow(a, p, all);
	for (unsigned int i = 0; i < parts; i++)
		all_in(a, p + i * STEP * PAGE, N);
	for (unsigned int i = 0; i < parts; i++) {
		CHECK_EQ(device_pages(p + i * STEP * PAGE, N), N);
		CHECK_EQ(device_pages(p + (i * STEP + N) * PAGE, STEP - N), 0);
	}
	CHECK_EQ(svm_get(&a->gpu, p, all * PAGE, PREFETCH), UNDEFINED);
	CHECK_EQ(svm_get(&a->gpu, p, N * PAGE, PREFETCH), a->gpu.id);
	CHECK_EQ(svm_get(&a->gpu, p + N * PAGE, (STEP - N) * PAGE, PREFETCH), UNDEFINED);
	agent_has_pattern(a, p, 0, all, 8);
	agent_adds(a, p, all, 2, 1);
	CHECK_EQ(device_pages(p, all), parts * N);
	/* Ranges are split and joined by what moves nothing. */
	CHECK_OK(svm_set(&a->gpu, p + 3 * PAGE, 333 * PAGE, GRANULARITY, 2));
	CHECK_OK(svm_set(&a->gpu, p + 100 * PAGE, 100 * PAGE, SET_FLAGS, KFD_IOCTL_SVM_FLAG_GPU_EXEC));
	CHECK_OK(svm_set(&a->gpu, p, all * PAGE, CLR_FLAGS, KFD_IOCTL_SVM_FLAG_GPU_EXEC));
	CHECK_OK(svm_set(&a->gpu, p, all * PAGE, GRANULARITY, 9));
	agent_adds(a, p, all, 2, 1);
	CHECK_EQ(device_pages(p, all), parts * N);
	/* Pieces 12 to 41. */
	all_out(a, p + 200 * PAGE, 506);
	CHECK_EQ(device_pages(p, 200), 12 * N);
	CHECK_EQ(device_pages(p + 706 * PAGE, all - 706), (parts - 42) * N);
	agent_adds(a, p, all, 2, 1);
	all_in(a, p, all);
	CHECK_EQ(svm_get(&a->gpu, p, all * PAGE, PREFETCH), a->gpu.id);
	agent_adds(a, p, all, 2, 1);
	CHECK_EQ(device_pages(p, all), all);
	has_added(p, 0, all, 8, 2, 4);
}

CASE_LIMIT(parts, "PREFETCH_LOC: parts move, in and out, across granules: each page is where it was sent, and attributes tell", 240)
{
	need_rkfd();
	in_both_modes(by_parts);
}

/* What is in VRAM, and what the GPU may not do with it. */
struct right {
	bool xnack;
	uint32_t type, value;
	bool write;
};

static void is_refused(void *context)
{
	enum { N = 32 };
	const struct right *right = context;
	uint8_t *p = patterned(N, 9);
	struct agent a;
	int err;

	agent_open(&a, 0);
	need_moves(&a);
	err = set_xnack(&a.gpu, right->xnack);
	if (right->xnack && err == EPERM && a.gpu.gfx != 90010)
		return;
	CHECK_OK(err);
	agent_start(&a);
	allow(&a, p, N);
	all_in(&a, p, N);
	agent_has_pattern(&a, p, 0, N, 9);
	CHECK_OK(svm_set(&a.gpu, p + 7 * PAGE, PAGE, right->type, right->value ? right->value : a.gpu.id));
	agent_has_pattern(&a, p, 0, 7, 9);
	agent_has_pattern(&a, p + 8 * PAGE, 8, N - 8, 9);
	if (right->write)
		agent_has_pattern(&a, p + 7 * PAGE, 7, 1, 9);
	CHECK_EQ(device_pages(p, N), N);
	agent_is_refused(&a, p + 7 * PAGE, right->write);
	has_pattern(p, 0, N, 9);
}

CASE_LIMIT(rights, "SVM: in VRAM memory has the rights that its attributes say", 120)
{
	for (unsigned int xnack = 0; xnack < 2; xnack++) {
		struct right none = { xnack, NO_ACCESS, 0, false };
		struct right reading = { xnack, SET_FLAGS, KFD_IOCTL_SVM_FLAG_GPU_RO, true };
		int status = in_child(is_refused, &none);

		if (status == TAP_STATUS_SKIP)
			SKIP("the driver moves no memory");
		CHECK_EQ(status, 0);
		CHECK_EQ(in_child(is_refused, &reading), 0);
	}
}

struct mover {
	const struct agent *a;
	uint8_t *p;
	unsigned int pages;
	volatile bool stop;
	uint64_t in;
};

static void *move_on(void *context)
{
	struct mover *m = context;

	for (unsigned int round = 0; !m->stop; round++) {
		/* Other parts each time. */
		unsigned int first = round % 5 * 31, count = m->pages - 2 * first;

		CHECK_OK(prefetch(m->a, m->p + first * PAGE, count, m->a->gpu.id));
		m->in += device_pages(m->p + first * PAGE, count);
		CHECK_OK(prefetch(m->a, m->p + first * PAGE, count - round % 3, 0));
	}
	return NULL;
}

static void while_it_works(struct agent *a, bool xnack)
{
	enum { N = 400 };
	uint8_t *p = patterned(N, 10);
	struct mover m = { .a = a, .p = p, .pages = N };
	pthread_t thread;

	(void)xnack;
	allow(a, p, N);
	CHECK_EQ(pthread_create(&thread, NULL, move_on, &m), 0);
	for (unsigned int round = 0; round < 40; round++) {
		agent_adds(a, p, N, 5, 1);
		for (unsigned int page = round % 7; page < N; page += 41)
			__atomic_fetch_add((uint64_t *)(p + page * PAGE) + 6, 1, __ATOMIC_SEQ_CST);
		for (unsigned int page = round % 7; page < N; page += 41)
			__atomic_fetch_sub((uint64_t *)(p + page * PAGE) + 6, 1, __ATOMIC_SEQ_CST);
	}
	m.stop = true;
	join_in_time(thread, "the thread that prefetches");
	CHECK_OP(m.in, >, 0);
	agent_has_added(a, p, 0, N, 10, 5, 40);
	has_added(p, 0, N, 10, 5, 40);
}

CASE_LIMIT(under_load, "PREFETCH_LOC: in and out without end while GPU and CPU add to the same pages: nothing is lost", 300)
{
	in_both_modes(while_it_works);
}

CASE_LIMIT(save_area, "SVM: the save area of a queue moves to VRAM as the thunk asks for, and the queue works while the CPU brings back parts of it", 120)
{
	struct packets k = { .n = 0 };
	unsigned int pages;
	struct agent a;
	uint8_t *p;

	need_rkfd();
	agent_open(&a, 0);
	need_moves(&a);
	queue_prepare(&a.gpu, &a.q, KFD_IOC_QUEUE_TYPE_COMPUTE, PAGE);
	/* The memory of the program takes the place of the buffer. */
	pages = page_align(a.q.save.size) / PAGE;
	drop_bo(&a.gpu, &a.q.save);
	p = untouched(pages * PAGE);
	*(volatile uint32_t *)(p + 16) = a.gpu.cwsr_size;
	*(volatile uint32_t *)(p + 20) = a.gpu.save_total - a.gpu.cwsr_size;
	struct attr list[] = {
		{ PREFETCH, a.gpu.id }, { PREFERRED, 0 },	{ CLR_FLAGS, 0xffffffae },
		{ SET_FLAGS, 0x51 },	{ ACCESS, a.gpu.id },	{ GRANULARITY, 0xff },
	};
	CHECK_OK(svm_call(&a.gpu, SET, p, pages * PAGE, list, 6));
	CHECK_OP(device_pages(p, pages), >=, PAGES);
	a.q.args.ctx_save_restore_address = (uintptr_t)p;
	CHECK_OK(queue_create(&a.gpu, &a.q));
	need_bo(&a.gpu, &a.out, FLAGS_GTT, PAGE);
	for (uint32_t round = 1; round <= 10; round++) {
		uint8_t *touched = p + (round * 7 % PAGES) * PAGE;

		/* The queue leaves the hardware and comes back. */
		CHECK_OK(queue_update(&a.gpu, &a.q, 0, 7));
		CHECK_OK(queue_update(&a.gpu, &a.q, 100, 7));
		k.n = 0;
		pm4_write(&k, a.out.va, round);
		submit(&a.q, &k);
		await32(bo32(&a.out, 0), round, "the packet");
		*(volatile uint32_t *)(touched + 64) += 0;
		CHECK_EQ(device_pages(touched, 1), 0);
		if (round == 5)
			CHECK_OK(prefetch(&a, p, pages, a.gpu.id));
	}
	CHECK_EQ(*(volatile uint32_t *)(p + 16), a.gpu.cwsr_size);
	agent_stop(&a);
	CHECK_EQ(munmap(p, pages * PAGE), 0);
}
