// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Two GPUs have the same memory through mirrors with hints, and both want it in their VRAM.
 */
#include "hints.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES (HUGE / PAGE)
/* Of the page that both use all the time. */
#define HOT 1

/* The next file of a GPU from `minor` on that accesses move memory of; the minor after it. */
static unsigned int need_mover(struct nfile *file, unsigned int minor)
{
	for (; minor < 128 + 16; minor++) {
		struct drm_rkfd_query query = {
			.what = DRM_RKFD_QUERY_DEVICE, .data = (uintptr_t)&file->device, .size = sizeof(file->device),
		};
		char path[64];

		snprintf(path, sizeof(path), "/dev/dri/renderD%u", minor);
		file->fd = open(path, O_RDWR | O_CLOEXEC);
		if (file->fd < 0)
			continue;
		if (!native(file->fd, DRM_IOCTL_RKFD_QUERY, &query) &&
		    file->device.features & DRM_RKFD_FEATURE_MOVES_BY_ACCESS)
			return minor + 1;
		close(file->fd);
	}
	LACKING("no two GPUs whose accesses move memory");
}

struct side {
	struct engine e;
	uint32_t id;
};

static void begin(struct side sides[2], uint8_t *p)
{
	unsigned int minor = 128;

	for (unsigned int i = 0; i < 2; i++) {
		minor = need_mover(&sides[i].e.file, minor);
		engine_prepare(&sides[i].e);
		sides[i].id = need_mirror(&sides[i].e.file, p, AT, HUGE, FAULT);
		engine_start(&sides[i].e, QUEUE_AT);
	}
}

static uint8_t *need_pattern(uint32_t seed)
{
	uint8_t *p = need_aligned(HUGE);

	CHECK_EQ(madvise(p, HUGE, MADV_NOHUGEPAGE), 0);
	pattern(p, 0, PAGES, seed);
	return p;
}

static uint64_t sum(const struct side sides[2], const char *name)
{
	return mirror_count(&sides[0].e.file, name) + mirror_count(&sides[1].e.file, name);
}

CASE_LIMIT(follows, "memory in the VRAM of one GPU moves to that of the other at its access, or is used in place where that has no hint", 240)
{
	uint8_t *p = need_pattern(1);
	struct side sides[2];

	begin(sides, p);
	/* The one without a hint brings it out, and uses it in the system. */
	CHECK_EQ(move_all(&sides[0].e.file, sides[0].id, AT, HUGE, IN_VRAM, 0), HUGE);
	gpu_has_pattern(&sides[1].e, AT, 0, PAGES, 1);
	CHECK_EQ(mirror_query(&sides[1].e.file, sides[1].id).vram_bytes, 0);
	CHECK_EQ(device_pages(p, PAGES), 0);
	CHECK_OK(mirror_hint(&sides[1].e.file, sides[1].id, AT, HUGE, IN_VRAM, 21));
	/* Each turn later than what counts as a bounce. */
	for (unsigned int turn = 0; turn < 4; turn++) {
		struct side *s = &sides[(turn + 1) % 2], *other = &sides[turn % 2];
		uint64_t end = now_ms() + WAIT_MS;

		CHECK_OK(mirror_hint(&s->e.file, s->id, AT, HUGE, IN_VRAM, 21));
		do {
			gpu_adds(&s->e, AT, PAGES, 3, 0);
			if (now_ms() > end)
				FAIL("turn %u: %u pages are where they should be", turn,
				     (unsigned int)(mirror_query(&s->e.file, s->id).vram_bytes / PAGE));
			if (mirror_query(&s->e.file, s->id).vram_bytes == HUGE)
				break;
			CHECK_OK(mirror_hint(&s->e.file, s->id, AT, HUGE, IN_VRAM, 21));
		} while (true);
		CHECK_EQ(device_pages(p, PAGES), PAGES);
		CHECK_EQ(mirror_query(&other->e.file, other->id).vram_bytes, 0);
		gpu_adds(&s->e, AT, PAGES, 3, 1);
		usleep(200000);
	}
	has_added(p, 0, PAGES, 1, 3, 4);
	engine_end(&sides[0].e);
	engine_end(&sides[1].e);
}

CASE_LIMIT(in_turn, "both use one page in turn: sums are right, and what moves too often ends in the system, in place for both", 240)
{
	uint8_t *p = need_pattern(2);
	struct side sides[2];
	uint64_t before, bounced, held, in, rounds = 0, end;
	const unsigned int further = 40;

	begin(sides, p);
	for (unsigned int i = 0; i < 2; i++)
		CHECK_OK(mirror_hint(&sides[i].e.file, sides[i].id, AT, HUGE, IN_VRAM, 16));
	before = sum(sides, "moved_in_by_access");
	bounced = sum(sides, "bounced");
	held = sum(sides, "held_back");
	end = now_ms() + 3 * WAIT_MS;
	/* Until it has been so quick that both wait; a slow machine needs a few attempts. */
	do {
		if (now_ms() > end)
			FAIL("nothing bounced in %llu rounds", (unsigned long long)rounds);
		for (unsigned int i = 0; i < 2; i++)
			gpu_adds(&sides[i].e, AT, 1, HOT, 1);
		rounds++;
	} while (sum(sides, "bounced") < bounced + 2 || sum(sides, "held_back") == held);
	/* Moves were no more than accesses, and bounces no more than moves. */
	in = sum(sides, "moved_in_by_access") - before;
	CHECK_OP(in, <=, 2 * rounds * KIB64);
	CHECK_OP((sum(sides, "bounced") - bounced) * PAGE, <=, in);
	/* From here on a handful at most, unless the machine has been so slow that turns are no bounces. */
	do {
		if (now_ms() > end)
			FAIL("%llu bytes move in %u rounds", (unsigned long long)in, further);
		in = sum(sides, "moved_in_by_access");
		for (unsigned int i = 0; i < 2 * further; i++)
			gpu_adds(&sides[i % 2].e, AT, 1, HOT, 1);
		rounds += further;
		in = sum(sides, "moved_in_by_access") - in;
	} while (in > 10 * KIB64);
	has_added(p, 0, 1, 2, HOT, 2 * rounds);
	has_pattern(p + PAGE, 1, PAGES - 1, 2);
	CHECK_EQ(device_pages(p, PAGES), 0);
	engine_end(&sides[0].e);
	engine_end(&sides[1].e);
}
