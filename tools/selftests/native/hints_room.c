// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What VRAM accesses take for moves: what nobody uses, and within the limit of the group that gave the hint.
 *
 * Needs little VRAM, which is filled.
 */
#include "hints.h"
#include "limited.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES (HUGE / PAGE)

static uint8_t *need_pattern(unsigned int granules, uint32_t seed)
{
	uint8_t *p = need_aligned(granules * HUGE);

	CHECK_EQ(madvise(p, granules * HUGE, MADV_NOHUGEPAGE), 0);
	pattern(p, 0, granules * PAGES, seed);
	return p;
}

/* How many granules have something in VRAM. */
static unsigned int granules_there(const uint8_t *p, unsigned int granules)
{
	unsigned int there = 0;

	for (unsigned int i = 0; i < granules; i++)
		there += device_pages(p + i * HUGE, PAGES) > 0;
	return there;
}

CASE_LIMIT(no_room, "where VRAM is full accesses go on in place, nobody's buffers leave it, and KEEP tries again", 240)
{
	enum { MOST = 256 };
	static struct nbo bos[MOST];
	struct drm_rkfd_bo_info info;
	uint8_t *p = need_pattern(2, 1);
	unsigned int count = 0;
	uint64_t before, in;
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, 2 * HUGE);

	if (heap_total(&e.file, VRAM) > (256ul << 20))
		SKIP("so much VRAM is not filled here");
	settled_vram(&e.file);
	while (count < MOST && !nbo_create(&e.file, &bos[count], VRAM, HUGE, 0))
		count++;
	CHECK_OP(count, >, 8);
	CHECK_OP(count, <, MOST);
	before = mirror_count(&e.file, "no_room");
	in = mirror_count(&e.file, "moved_in_by_access");
	CHECK_OK(mirror_hint(&e.file, id, AT, 2 * HUGE, IN_VRAM, 0));
	gpu_has_pattern(&e, AT, 0, 2 * PAGES, 1);
	gpu_adds(&e, AT, 2 * PAGES, 1, 1);
	CHECK_EQ(device_pages(p, 2 * PAGES), 0);
	CHECK_EQ(mirror_count(&e.file, "moved_in_by_access"), in);
	CHECK_OP(mirror_count(&e.file, "no_room"), >, before);
	for (unsigned int i = 0; i < count; i++) {
		CHECK_OK(nbo_info(&e.file, bos[i].handle, &info));
		CHECK_EQ(info.heap, VRAM);
		CHECK_OK(nbo_close(&e.file, bos[i].handle));
	}
	settled_vram(&e.file);
	/* What is shown is not looked at again by itself. */
	gpu_adds(&e, AT, 2 * PAGES, 1, 1);
	CHECK_EQ(device_pages(p, 2 * PAGES), 0);
	CHECK_OK(mirror_hint(&e.file, id, AT, 2 * HUGE, IN_VRAM, 0));
	gpu_adds(&e, AT, 2 * PAGES, 1, 1);
	CHECK_EQ(granules_there(p, 2), 2);
	has_added(p, 0, 2 * PAGES, 1, 1, 3);
	engine_end(&e);
}

CASE_LIMIT(credit, "KEEP charges what its accesses will take, as far as the limit goes; what finds none is used in place", 240)
{
	uint8_t *p = need_pattern(8, 2);
	struct limited l;
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, 8 * HUGE);
	uint64_t before;

	need_limited(&l, e.file.fd);
	/* A caller of the root is charged nothing ahead, and its rooms not to this group. */
	CHECK_OK(mirror_hint(&e.file, id, AT, 8 * HUGE, IN_VRAM, 21));
	CHECK_EQ(vram_charged(&l), 0);
	CHECK_OK(mirror_hint(&e.file, id, AT, 8 * HUGE, NOWHERE, 0));
	group_join(&l.group);
	set_limit(&l, 3 * HUGE);
	CHECK_OK(mirror_hint(&e.file, id, AT, 8 * HUGE, STAY, 0));
	CHECK_EQ(vram_charged(&l), 0);
	/* Two granules, though it is three pages. */
	CHECK_OK(mirror_hint(&e.file, id, AT + HUGE - PAGE, 3 * PAGE, IN_VRAM, 0));
	CHECK_EQ(vram_charged(&l), 2 * HUGE);
	CHECK_OK(mirror_hint(&e.file, id, AT, 8 * HUGE, IN_VRAM, 21));
	CHECK_EQ(vram_charged(&l), 3 * HUGE);
	before = mirror_count(&e.file, "no_room");
	gpu_has_pattern(&e, AT, 0, 8 * PAGES, 2);
	CHECK_EQ(granules_there(p, 8), 3);
	CHECK_OP(mirror_count(&e.file, "no_room"), >, before);
	CHECK_EQ(vram_charged(&l), 3 * HUGE);
	/* More credit comes by the next KEEP alone. */
	set_limit(&l, 5 * HUGE);
	gpu_has_pattern(&e, AT, 0, 8 * PAGES, 2);
	CHECK_EQ(granules_there(p, 8), 3);
	CHECK_OK(mirror_hint(&e.file, id, AT, 8 * HUGE, IN_VRAM, 21));
	CHECK_EQ(vram_charged(&l), 5 * HUGE);
	gpu_has_pattern(&e, AT, 0, 8 * PAGES, 2);
	CHECK_EQ(granules_there(p, 8), 5);
	/* Hints that are gone leave what rooms have. */
	CHECK_OK(mirror_hint(&e.file, id, AT, 8 * HUGE, NOWHERE, 0));
	CHECK_EQ(vram_charged(&l), 5 * HUGE);
	has_pattern(p, 0, 8 * PAGES, 2);
	await_vram_charged(&l, 0);
	engine_end(&e);
	leave_limited(&l);
}

CASE_LIMIT(given_back, "unused credit goes back with the hints, with the mirror and with the file, before the call returns", 120)
{
	uint8_t *p = need_pattern(4, 3);
	struct limited l;
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, 4 * HUGE);

	need_limited(&l, e.file.fd);
	group_join(&l.group);
	CHECK_OK(mirror_hint(&e.file, id, AT, 4 * HUGE, IN_VRAM, 0));
	CHECK_EQ(vram_charged(&l), 4 * HUGE);
	CHECK_OK(mirror_hint(&e.file, id, AT, 4 * HUGE, IN_VRAM, 16));
	CHECK_EQ(vram_charged(&l), 4 * HUGE);
	CHECK_OK(mirror_hint(&e.file, id, AT, HUGE, IN_SYSTEM, 0));
	CHECK_EQ(vram_charged(&l), 3 * HUGE);
	CHECK_OK(mirror_hint(&e.file, id, AT + HUGE, HUGE + PAGE, NOWHERE, 0));
	CHECK_EQ(vram_charged(&l), 2 * HUGE);
	/* A room that ends gives its own back to the credit while the hint wants that. */
	gpu_has_pattern(&e, AT + 3 * HUGE, 3 * PAGES, PAGES, 3);
	CHECK_EQ(granules_there(p, 4), 1);
	CHECK_EQ(vram_charged(&l), 2 * HUGE);
	has_pattern(p + 3 * HUGE, 3 * PAGES, PAGES, 3);
	settled_vram(&e.file);
	CHECK_EQ(vram_charged(&l), 2 * HUGE);
	CHECK_OK(mirror_destroy(&e.file, id));
	CHECK_EQ(vram_charged(&l), 0);
	id = need_mirror(&e.file, p, AT, 4 * HUGE, FAULT);
	CHECK_OK(mirror_hint(&e.file, id, AT, 4 * HUGE, IN_VRAM, 0));
	CHECK_EQ(vram_charged(&l), 4 * HUGE);
	engine_end(&e);
	await_vram_charged(&l, 0);
	has_pattern(p, 0, 4 * PAGES, 3);
	leave_limited(&l);
}

CASE_LIMIT(gives_way, "unused credit gives way to the group's buffers and moves by call, and only KEEP takes it again", 120)
{
	uint8_t *p = need_pattern(8, 4);
	struct limited l;
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, 8 * HUGE);
	struct nbo bo;

	need_limited(&l, e.file.fd);
	group_join(&l.group);
	set_limit(&l, 4 * HUGE);
	CHECK_OK(mirror_hint(&e.file, id, AT, 4 * HUGE, IN_VRAM, 21));
	CHECK_EQ(vram_charged(&l), 4 * HUGE);
	CHECK_OK(nbo_create(&e.file, &bo, VRAM, 2 * HUGE, 0));
	CHECK_OP(vram_charged(&l), >=, 2 * HUGE);
	CHECK_OP(vram_charged(&l), <=, 4 * HUGE);
	CHECK_OK(nbo_close(&e.file, bo.handle));
	/* How much of it gives way is not promised. */
	for (uint64_t end = now_ms() + WAIT_MS; vram_charged(&l) > 2 * HUGE && now_ms() < end;)
		usleep(10000);
	CHECK_OP(vram_charged(&l), <=, 2 * HUGE);
	CHECK_OK(mirror_hint(&e.file, id, AT, 4 * HUGE, IN_VRAM, 21));
	CHECK_EQ(vram_charged(&l), 4 * HUGE);
	/* A move by call of what has no hint. */
	CHECK_EQ(move_all(&e.file, id, AT + 4 * HUGE, 3 * HUGE, IN_VRAM, 0), 3 * HUGE);
	CHECK_OP(vram_charged(&l), <=, 4 * HUGE);
	CHECK_EQ(granules_there(p, 8), 3);
	gpu_has_pattern(&e, AT, 0, 8 * PAGES, 4);
	CHECK_OP(granules_there(p, 4), <=, 1);
	has_pattern(p, 0, 8 * PAGES, 4);
	CHECK_OK(mirror_destroy(&e.file, id));
	await_vram_charged(&l, 0);
	engine_end(&e);
	leave_limited(&l);
}
