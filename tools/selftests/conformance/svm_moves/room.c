// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SVM: memory moves to VRAM as far as there is room: of what is free, of what others give up for it, and of what the control group may
 * have. Needs little VRAM, which is filled; the last cases root, and the dmem controller of a cgroup2 mount at /sys/fs/cgroup.
 */
#include "limited.h"
#include "moves.h"
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOVES (KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_MIGRATE_START) | KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_MIGRATE_END))
#define OURS (16 * HUGE)
#define OUR_PAGES ((unsigned int)(OURS / PAGE))

static void need_little_vram(const struct gpu *gpu)
{
	if (!gpu->vram || gpu->vram > (256ul << 20))
		SKIP("so much VRAM is not filled here");
}

static void more_than_there_is(struct agent *a, bool xnack)
{
	uint64_t size = (available_settled(&a->gpu) + 8 * HUGE) & ~(HUGE - 1);
	unsigned int all = size / PAGE, there;
	struct smi_move begin, end;
	uint8_t *p = untouched(size), *q;
	int fd;

	(void)xnack;
	need_little_vram(&a->gpu);
	mark_pages(p, all, 1);
	allow(a, p, all);
	fd = need_smi(&a->gpu, MOVES);
	CHECK_OK(prefetch(a, p, all, a->gpu.id));
	CHECK_EQ(smi_moves(fd, &begin, &end, 1), 1);
	CHECK_EQ(begin.size, all);
	CHECK(end.error == 0 || end.error == -ENOMEM);
	there = device_pages(p, all);
	CHECK_OP(there, >, OUR_PAGES / 2);
	CHECK_OP(there, <, all);
	agent_sees(a, p, all, 1);
	/* What has moved in does not leave for what follows. */
	q = patterned(4 * PAGES, 2);
	allow(a, q, 4 * PAGES);
	CHECK_OK(prefetch(a, q, 4 * PAGES, a->gpu.id));
	CHECK_OP(device_pages(p, all), >=, there);
	agent_has_pattern(a, q, 0, 4 * PAGES, 2);
	CHECK_EQ(svm_get(&a->gpu, q, 4 * HUGE, PREFETCH), a->gpu.id);
	/* Room that is made is used. */
	all_out(a, p, OUR_PAGES);
	for (uint64_t until = now_ms() + WAIT_MS; device_pages(q, 4 * PAGES) < 4 * PAGES;) {
		if (now_ms() > until)
			FAIL("%u of %u pages do not move", 4 * PAGES - device_pages(q, 4 * PAGES), 4 * PAGES);
		CHECK_OK(prefetch(a, q, 4 * PAGES, a->gpu.id));
		usleep(1000);
	}
	agent_has_pattern(a, q, 0, 4 * PAGES, 2);
	agent_sees(a, p, all, 1);
	has_pattern(q, 0, 4 * PAGES, 2);
	has_marks(p, all, 1);
	CHECK_EQ(munmap(p, size), 0);
	CHECK_EQ(munmap(q, 4 * HUGE), 0);
}

CASE_LIMIT(too_much, "PREFETCH_LOC: want of room is no error: what fits moves, what is there stays there, each byte is right", 300)
{
	need_rkfd();
	in_both_modes(more_than_there_is);
}

/* A process that has all VRAM, waits for a word, and compares what it has. */
static int to_other[2], from_other[2];
static bool has_memory;

static void other_begins(void)
{
	char byte;

	CHECK_EQ(write(from_other[1], "x", 1), 1);
	CHECK_EQ(read(to_other[0], &byte, 1), 1);
}

static void other_has_buffers(struct agent *a)
{
	enum { MOST = 256 };
	static struct bo bos[MOST];
	unsigned int n = 0;

	while (n < MOST && available(&a->gpu) >= 4 * HUGE && !bo_alloc(&a->gpu, &bos[n], FLAGS_VRAM, 2 * HUGE)) {
		for (uint64_t at = 0; at < 2 * HUGE; at += PAGE)
			*bo32(&bos[n], at) = n << 16 | at / PAGE;
		n++;
	}
	CHECK_OP(n, >, 8);
	CHECK_OP(n, <, MOST);
	other_begins();
	for (unsigned int i = 0; i < n; i++)
		for (uint64_t at = 0; at < 2 * HUGE; at += PAGE)
			CHECK_EQ(*bo32(&bos[i], at), i << 16 | at / PAGE);
}

static void other_has_memory(struct agent *a)
{
	uint64_t size = available_settled(&a->gpu) & ~(HUGE - 1);
	unsigned int all = size / PAGE;
	uint8_t *p = untouched(size);

	mark_pages(p, all, 7);
	allow(a, p, all);
	CHECK_OK(prefetch(a, p, all, a->gpu.id));
	CHECK_OP(device_pages(p, all), >, OUR_PAGES);
	other_begins();
	agent_sees(a, p, all, 7);
	has_marks(p, all, 7);
}

static void be_the_other(void)
{
	struct agent a;

	agent_open(&a, 0);
	if (has_memory) {
		agent_start(&a);
		other_has_memory(&a);
	} else {
		/* Without a queue, which would have them brought back. */
		other_has_buffers(&a);
	}
	_exit(0);
}

static void takes_it_from_another(bool memory)
{
	uint8_t *p = patterned(OUR_PAGES, 3);
	struct agent a;
	int status;
	pid_t other;
	char byte;

	/* The other one is to have none of it. */
	CHECK_EQ(madvise(p, OURS, MADV_DONTFORK), 0);
	has_memory = memory;
	CHECK_EQ(pipe(to_other), 0);
	CHECK_EQ(pipe(from_other), 0);
	fflush(stdout);
	other = fork();
	CHECK_OP(other, >=, 0);
	if (!other)
		be_the_other();
	close(from_other[1]);
	if (read(from_other[0], &byte, 1) != 1)
		child_gave_up(other);
	agent_open(&a, 0);
	need_moves(&a);
	agent_start(&a);
	allow(&a, p, OUR_PAGES);
	/* What has just come in is left alone for a moment, so that it takes several attempts perhaps. */
	all_in(&a, p, OUR_PAGES);
	agent_has_pattern(&a, p, 0, OUR_PAGES, 3);
	agent_adds(&a, p, OUR_PAGES, 1, 1);
	CHECK_EQ(device_pages(p, OUR_PAGES), OUR_PAGES);
	CHECK_EQ(write(to_other[1], "x", 1), 1);
	CHECK_EQ(waitpid(other, &status, 0), other);
	CHECK_EQ(status, 0);
	has_added(p, 0, OUR_PAGES, 3, 1, 1);
	agent_stop(&a);
}

CASE_LIMIT(buffers_of_another, "PREFETCH_LOC: another program's buffers make room, and have what they had", 240)
{
	struct gpu gpu;

	need_rkfd();
	need_gpu(&gpu, 0);
	need_little_vram(&gpu);
	takes_it_from_another(false);
}

CASE_LIMIT(memory_of_another, "PREFETCH_LOC: another program's memory makes room, and has what it had", 240)
{
	struct gpu gpu;

	need_rkfd();
	need_gpu(&gpu, 0);
	need_little_vram(&gpu);
	takes_it_from_another(true);
}

/* How many granules have something in VRAM. */
static unsigned int granules_there(const uint8_t *p, unsigned int granules)
{
	unsigned int there = 0;

	for (unsigned int i = 0; i < granules; i++)
		there += device_pages(p + i * HUGE, PAGES) > 0;
	return there;
}

static void within_the_limit(struct agent *a, bool xnack)
{
	const unsigned int all = 8 * PAGES;
	uint8_t *p = patterned(all, 4);
	struct limited l;

	(void)xnack;
	allow(a, p, all);
	need_limited(&l, a->gpu.drm);
	group_join(&l.group);
	CHECK_EQ(vram_charged(&l), 0);
	set_limit(&l, 3 * HUGE);
	some_in(a, p, all, 3 * PAGES);
	CHECK_EQ(vram_charged(&l), 3 * HUGE);
	agent_has_pattern(a, p, 0, all, 4);
	set_limit(&l, 5 * HUGE);
	some_in(a, p, all, 5 * PAGES);
	CHECK_EQ(vram_charged(&l), 5 * HUGE);
	agent_adds(a, p, all, 1, 1);
	all_out(a, p, all);
	await_vram_charged(&l, 0);
	has_added(p, 0, all, 4, 1, 1);
	leave_limited(&l);
}

CASE_LIMIT(limit, "PREFETCH_LOC: the caller's group is charged, and its limit is no error: what fits moves", 240)
{
	need_rkfd();
	in_both_modes(within_the_limit);
}

CASE_LIMIT(credit, "SVM with XNACK: attributes charge what accesses will take, as far as the limit goes; what finds none is used in place", 240)
{
	const unsigned int all = 8 * PAGES;
	uint8_t *p = patterned(all, 5);
	struct limited l;
	struct agent a;
	uint64_t before;

	need_rkfd();
	begin_repeated(&a);
	CHECK_OK(svm_set(&a.gpu, p, 8 * HUGE, PREFERRED, 0));
	need_limited(&l, a.gpu.drm);
	group_join(&l.group);
	set_limit(&l, 3 * HUGE);
	CHECK_OK(svm_set(&a.gpu, p, 8 * HUGE, GRANULARITY, 9));
	CHECK_EQ(vram_charged(&l), 0);
	/* Two granules, though it is three pages. */
	CHECK_OK(svm_set(&a.gpu, p + HUGE - PAGE, 3 * PAGE, PREFERRED, a.gpu.id));
	CHECK_EQ(vram_charged(&l), 2 * HUGE);
	CHECK_OK(svm_set(&a.gpu, p, 8 * HUGE, PREFERRED, a.gpu.id));
	CHECK_EQ(vram_charged(&l), 3 * HUGE);
	before = agent_count(&a, "no_room");
	agent_has_pattern(&a, p, 0, all, 5);
	CHECK_EQ(granules_there(p, 8), 3);
	CHECK_OP(agent_count(&a, "no_room"), >, before);
	CHECK_EQ(vram_charged(&l), 3 * HUGE);
	/* More by a later SET_ATTR, whose accesses find none of it shown. */
	set_limit(&l, 5 * HUGE);
	CHECK_OK(svm_set(&a.gpu, p, 8 * HUGE, PREFERRED, 0));
	CHECK_OK(svm_set(&a.gpu, p, 8 * HUGE, PREFERRED, a.gpu.id));
	CHECK_EQ(vram_charged(&l), 5 * HUGE);
	agent_has_pattern(&a, p, 0, all, 5);
	CHECK_EQ(granules_there(p, 8), 5);
	/* What is not wanted any more goes back, what rooms have with them. */
	CHECK_OK(svm_set(&a.gpu, p, 8 * HUGE, PREFERRED, 0));
	CHECK_EQ(vram_charged(&l), 5 * HUGE);
	has_pattern(p, 0, all, 5);
	await_vram_charged(&l, 0);
	CHECK_OK(svm_set(&a.gpu, p, 2 * HUGE, PREFERRED, a.gpu.id));
	CHECK_EQ(vram_charged(&l), 2 * HUGE);
	CHECK_OK(svm_set(&a.gpu, p, 2 * HUGE, PREFERRED, 0));
	CHECK_EQ(vram_charged(&l), 0);
	agent_stop(&a);
	leave_limited(&l);
}

CASE_LIMIT(no_room, "SVM with XNACK: where VRAM is full accesses go on in place, and nobody's buffers leave it", 240)
{
	enum { MOST = 256 };
	static struct bo bos[MOST];
	uint8_t *p = patterned(2 * PAGES, 6);
	unsigned int n = 0;
	uint64_t before, in;
	struct agent a;

	need_rkfd();
	begin_repeated(&a);
	need_little_vram(&a.gpu);
	while (n < MOST && available(&a.gpu) >= HUGE && !bo_alloc(&a.gpu, &bos[n], FLAGS_VRAM, HUGE)) {
		*bo32(&bos[n], 0) = n;
		n++;
	}
	CHECK_OP(n, >, 8);
	CHECK_OP(n, <, MOST);
	before = agent_count(&a, "no_room");
	in = agent_count(&a, "moved_in_by_access");
	agent_has_pattern(&a, p, 0, 2 * PAGES, 6);
	agent_adds(&a, p, 2 * PAGES, 1, 1);
	CHECK_EQ(device_pages(p, 2 * PAGES), 0);
	CHECK_EQ(agent_count(&a, "moved_in_by_access"), in);
	CHECK_OP(agent_count(&a, "no_room"), >, before);
	for (unsigned int i = 0; i < n; i++) {
		CHECK_EQ(*bo32(&bos[i], 0), i);
		CHECK_OK(bo_free(&a.gpu, &bos[i]));
		CHECK_EQ(munmap((void *)bos[i].va, HUGE), 0);
	}
	has_added(p, 0, 2 * PAGES, 6, 1, 1);
	agent_stop(&a);
}
