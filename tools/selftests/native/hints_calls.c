// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * MIRROR_MIGRATE with KEEP as a call: each errno for its cause, which ranges are noted, and how many there can be.
 *
 * On a GPU that repeats no accesses hints are noted as well.
 */
#include "hints.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST DRM_RKFD_MIRROR_MAX_HINTS

static uint32_t begin(struct nfile *file, uint8_t *p, uint64_t length)
{
	need_file(file);
	need_hints(file);
	return need_mirror(file, p, AT, length, POPULATED);
}

/* Place 1 is there where memory moves to VRAM at all. */
static bool has_vram(const struct nfile *file)
{
	return file->device.features & DRM_RKFD_FEATURE_MIGRATION;
}

CASE(refused, "each errno for its cause, in their order, and nothing is noted")
{
	struct drm_rkfd_mirror_migrate args, good;
	uint8_t *p = need_memory(4 * PAGE);
	struct nfile file;
	uint32_t id = begin(&file, p, 4 * PAGE);

	good = (struct drm_rkfd_mirror_migrate){
		.id = id, .flags = KEEP, .gpu_address = AT, .length = 4 * PAGE, .place = IN_SYSTEM,
	};
#define REFUSED(err, ...)                                                                \
	do {                                                                             \
		args = good;                                                             \
		__VA_ARGS__;                                                             \
		CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_MIGRATE, &args), err);   \
		CHECK_EQ(mirror_query(&file, id).hints, 0);                              \
	} while (0)
	REFUSED(EINVAL, args.flags = KEEP | 8);
	REFUSED(EINVAL, args.flags = KEEP | FILL);
	REFUSED(EINVAL, args.flags = KEEP | FILL; args.place = IN_VRAM);
	REFUSED(EINVAL, args.flags = KEEP | NOW; args.place = NOWHERE);
	REFUSED(EINVAL, args.flags = KEEP | NOW; args.place = STAY);
	REFUSED(EINVAL, args.flags = KEEP | NOW | FILL; args.place = IN_SYSTEM);
	REFUSED(EINVAL, args.place = 4);
	/* Whatever the place is, though only VRAM has a use for it. */
	for (uint32_t place = NOWHERE; place <= STAY; place++) {
		REFUSED(EINVAL, args.place = place; args.granularity = 1);
		REFUSED(EINVAL, args.place = place; args.granularity = 15);
		REFUSED(EINVAL, args.place = place; args.granularity = 22);
		REFUSED(EINVAL, args.place = place; args.granularity = 1u << 31);
	}
	REFUSED(EINVAL, args.moved = 1);
	REFUSED(EINVAL, args.stayed = 1);
	REFUSED(EINVAL, args.length = 0);
	REFUSED(EINVAL, args.length = PAGE + 8);
	REFUSED(EINVAL, args.gpu_address = AT + 8);
	REFUSED(EINVAL, args.gpu_address = AT - PAGE);
	REFUSED(EINVAL, args.gpu_address = AT + PAGE);
	REFUSED(EINVAL, args.length = 5 * PAGE);
	REFUSED(EINVAL, args.length = -PAGE);
	REFUSED(EINVAL, args.gpu_address = -PAGE; args.length = 2 * PAGE);
	REFUSED(ENOENT, args.id = id + 1);
	REFUSED(ENOENT, args.id = 0);
	/* Fields before the mirror, the mirror before its range. */
	REFUSED(EINVAL, args.id = id + 1; args.place = 4);
	REFUSED(ENOENT, args.id = id + 1; args.length = 5 * PAGE);
	if (!has_vram(&file)) {
		REFUSED(EOPNOTSUPP, args.place = IN_VRAM);
		REFUSED(EINVAL, args.place = IN_VRAM; args.length = 5 * PAGE);
	}
#undef REFUSED
	CHECK_OK(mirror_destroy(&file, id));
	CHECK_ERR(mirror_hint(&file, id, AT, 4 * PAGE, STAY, 0), ENOENT);
	close_file(&file);
}

static struct nfile shared;
static uint32_t shared_id;

static void hint_in_child(void *wrong)
{
	_exit(mirror_hint(&shared, wrong ? shared_id + 1 : shared_id, AT, 4 * PAGE, STAY, 0));
}

CASE(other_process, "a child of fork notes nothing: EXDEV, also for a mirror that there is not; hints stay the parent's")
{
	uint8_t *p = need_memory(4 * PAGE);

	shared_id = begin(&shared, p, 4 * PAGE);
	CHECK_OK(mirror_hint(&shared, shared_id, AT, PAGE, IN_SYSTEM, 0));
	CHECK_EQ(in_child(hint_in_child, NULL), EXDEV);
	CHECK_EQ(in_child(hint_in_child, p), EXDEV);
	hints_are(&shared, shared_id, AT, "0+1:system");
	close_file(&shared);
}

CASE(older, "the form of MIRROR_QUERY of 72 bytes tells all but hints")
{
	uint8_t *p = need_memory(4 * PAGE);
	struct {
		struct drm_rkfd_mirror_query query;
		uint64_t guard;
	} old = { .guard = 0x5a5a };
	struct nfile file;
	uint32_t id = begin(&file, p, 4 * PAGE);
	/* The size of the argument is a part of the number of the call. */
	const unsigned long request = (DRM_IOCTL_RKFD_MIRROR_QUERY & ~(0x3ffful << 16)) | 72ul << 16;

	CHECK_OK(mirror_hint(&file, id, AT, PAGE, STAY, 0));
	old.query = (struct drm_rkfd_mirror_query){ .id = id, .hints = 0x77 };
	CHECK_OK(native(file.fd, request, &old.query));
	CHECK_EQ(old.query.hints, 0x77);
	CHECK_EQ(old.guard, 0x5a5a);
	CHECK_EQ(old.query.length, 4 * PAGE);
	CHECK_EQ(mirror_query(&file, id).hints, 1);
	close_file(&file);
}

CASE(ranges, "what is noted replaces what was there: ranges are cut, split and joined, whatever the order is")
{
	uint8_t *p = need_memory(64 * PAGE);
	struct nfile file;
	uint32_t id = begin(&file, p, 64 * PAGE);
#define HINT(first, count, place, granularity)                                                     \
	CHECK_OK(mirror_hint(&file, id, AT + (first) * PAGE, (count) * PAGE, place, granularity))
#define ARE(text) hints_are(&file, id, AT, text)

	ARE("");
	HINT(0, 64, NOWHERE, 0);
	ARE("");
	HINT(10, 10, IN_SYSTEM, 0);
	ARE("10+10:system");
	/* In two. */
	HINT(14, 2, STAY, 0);
	ARE("10+4:system 14+2:stay 16+4:system");
	/* And one again. */
	HINT(14, 2, IN_SYSTEM, 0);
	ARE("10+10:system");
	HINT(14, 2, NOWHERE, 0);
	ARE("10+4:system 16+4:system");
	HINT(13, 4, STAY, 0);
	ARE("10+3:system 13+4:stay 17+3:system");
	/* Neighbours that touch, from below and from above. */
	HINT(8, 2, IN_SYSTEM, 0);
	HINT(20, 44, IN_SYSTEM, 0);
	ARE("8+5:system 13+4:stay 17+47:system");
	HINT(0, 14, STAY, 0);
	ARE("0+17:stay 17+47:system");
	HINT(17, 47, STAY, 0);
	ARE("0+64:stay");
	/* A granularity is taken, and not kept but for VRAM. */
	HINT(3, 1, STAY, 16);
	ARE("0+64:stay");
	HINT(3, 1, IN_SYSTEM, 21);
	HINT(4, 1, IN_SYSTEM, 0);
	ARE("0+3:stay 3+2:system 5+59:stay");
	HINT(0, 64, NOWHERE, 18);
	ARE("");
	if (has_vram(&file)) {
		static const char *const names[] = { "64K", "128K", "256K", "512K", "1M", "2M" };
		char wanted[64];

		for (uint32_t granularity = 16; granularity <= 21; granularity++) {
			HINT(0, 8, IN_VRAM, granularity);
			snprintf(wanted, sizeof(wanted), "0+8:vram:%s", names[granularity - 16]);
			ARE(wanted);
		}
		HINT(8, 8, IN_VRAM, 0);
		ARE("0+8:vram:2M 8+8:vram:auto");
		HINT(0, 9, IN_VRAM, 0);
		ARE("0+16:vram:auto");
		HINT(4, 4, IN_VRAM, 16);
		HINT(8, 1, IN_SYSTEM, 0);
		ARE("0+4:vram:auto 4+4:vram:64K 8+1:system 9+7:vram:auto");
		HINT(4, 5, IN_VRAM, 0);
		ARE("0+16:vram:auto");
	}
#undef HINT
#undef ARE
	CHECK_OK(mirror_destroy(&file, id));
	/* The next one has none. */
	id = need_mirror(&file, p, AT, 64 * PAGE, POPULATED);
	CHECK_EQ(mirror_query(&file, id).hints, 0);
	close_file(&file);
}

/* Every second page has a place, beginning with `first`. */
static void note_alternate(const struct nfile *file, uint32_t id, unsigned int first, unsigned int count, uint32_t place)
{
	for (unsigned int i = 0; i < count; i++)
		CHECK_OK(mirror_hint(file, id, AT + (first + 2 * i) * PAGE, PAGE, place, 0));
}

CASE_LIMIT(bound, "4096 ranges and no more: ENOSPC by the result of a call, which then has changed nothing", 120)
{
	const uint64_t length = (2 * MOST + 8) * PAGE;
	uint8_t *p = need_memory(length);
	struct drm_rkfd_mirror_migrate args;
	struct hint first[4];
	struct nfile file;
	uint32_t id = begin(&file, p, length);
#define HINT(at, count, place) mirror_hint(&file, id, AT + (at) * PAGE, (count) * PAGE, place, 0)
#define COUNT() mirror_query(&file, id).hints

	note_alternate(&file, id, 0, MOST, STAY);
	CHECK_EQ(COUNT(), MOST);
	/* What is listed, and what is left out, are all. */
	CHECK_EQ(listed_hints(&file, id, first, 4), MOST);
	CHECK_EQ(first[3].first, AT + 6 * PAGE);
	CHECK_EQ(first[3].last, AT + 7 * PAGE - 1);
	CHECK(!strcmp(first[3].place, "stay"));
	/* One more; one that cuts another in two would be two more, and there is none to cut yet. */
	CHECK_ERR(HINT(2 * MOST, 1, STAY), ENOSPC);
	CHECK_ERR(HINT(1, 1, IN_SYSTEM), ENOSPC);
	CHECK_EQ(COUNT(), MOST);
	/* With NOW nothing moves, or is tried. */
	args = (struct drm_rkfd_mirror_migrate){
		.id = id, .flags = KEEP | NOW, .gpu_address = AT + PAGE, .length = PAGE, .place = IN_SYSTEM,
	};
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_MIGRATE, &args), ENOSPC);
	CHECK_EQ(args.moved + args.stayed, 0);
	CHECK_EQ(COUNT(), MOST);
	/* Another place for one range, the same once more, and two that become one: not more. */
	CHECK_OK(HINT(0, 1, IN_SYSTEM));
	CHECK_OK(HINT(0, 1, IN_SYSTEM));
	CHECK_EQ(COUNT(), MOST);
	CHECK_OK(HINT(3, 1, STAY));
	CHECK_EQ(COUNT(), MOST - 1);
	/* Of 2+3 the middle: one becomes three. */
	CHECK_ERR(HINT(3, 1, IN_SYSTEM), ENOSPC);
	CHECK_EQ(COUNT(), MOST - 1);
	CHECK_OK(HINT(3, 1, NOWHERE));
	CHECK_EQ(COUNT(), MOST);
	CHECK_OK(HINT(2, 1, NOWHERE));
	CHECK_EQ(COUNT(), MOST - 1);
	CHECK_OK(HINT(2 * MOST, 1, STAY));
	CHECK_EQ(COUNT(), MOST);
	/* A hole in a range at the bound: taking away adds one. */
	CHECK_OK(HINT(4, 3, STAY));
	CHECK_EQ(COUNT(), MOST - 1);
	CHECK_OK(HINT(2, 1, STAY));
	CHECK_EQ(COUNT(), MOST);
	CHECK_ERR(HINT(5, 1, NOWHERE), ENOSPC);
	CHECK_EQ(COUNT(), MOST);
	/* All of it by one, and by none. */
	CHECK_OK(HINT(0, length / PAGE, IN_SYSTEM));
	CHECK_EQ(COUNT(), 1);
	note_alternate(&file, id, 1, MOST / 2 - 1, STAY);
	CHECK_EQ(COUNT(), MOST - 1);
	/* Within a range it would be two more. */
	CHECK_ERR(HINT(2 * MOST, 1, STAY), ENOSPC);
	CHECK_EQ(COUNT(), MOST - 1);
	/* At its end one more. */
	CHECK_OK(HINT(length / PAGE - 1, 1, STAY));
	CHECK_EQ(COUNT(), MOST);
	CHECK_OK(HINT(0, length / PAGE, NOWHERE));
	CHECK_EQ(COUNT(), 0);
	CHECK_EQ(listed_hints(&file, id, first, 4), 0);
#undef HINT
#undef COUNT
	close_file(&file);
}

CASE(of_addresses, "hints are of addresses of one mirror: memory may be unmapped, mapped and moved, and others have their own")
{
	uint8_t *p = need_memory(16 * PAGE);
	struct drm_rkfd_mirror_create args;
	struct nfile file, other;
	uint32_t id = begin(&file, p, 16 * PAGE), second, third, as_first, as_second;

	CHECK_OK(mirror_hint(&file, id, AT, 8 * PAGE, STAY, 0));
	second = need_mirror(&file, p, AT + HUGE, 16 * PAGE, POPULATED);
	CHECK_OK(mirror_hint(&file, second, AT + HUGE + PAGE, 2 * PAGE, IN_SYSTEM, 0));
	need_file(&other);
	/* Numbers count in each file, and the list has no files: the other one's mirror gets a number that this one has not. */
	as_first = need_mirror(&other, p, AT + HUGE, 16 * PAGE, POPULATED);
	as_second = need_mirror(&other, p, AT + 2 * HUGE, 16 * PAGE, POPULATED);
	third = need_mirror(&other, p, AT, 16 * PAGE, POPULATED);
	CHECK(third != id && third != second);
	CHECK_OK(mirror_destroy(&other, as_first));
	CHECK_OK(mirror_destroy(&other, as_second));
	CHECK_EQ(mirror_query(&other, third).hints, 0);
	CHECK_EQ(munmap(p, 4 * PAGE), 0);
	CHECK(need_memory_at(p, 2 * PAGE, MAP_FIXED) == p);
	CHECK(mremap(p + 6 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 3 * PAGE) == p + 3 * PAGE);
	hints_are(&file, id, AT, "0+8:stay");
	hints_are(&file, second, AT + HUGE, "1+2:system");
	/* Where nothing is mapped. */
	CHECK_OK(mirror_hint(&file, id, AT + 2 * PAGE, PAGE, IN_SYSTEM, 0));
	hints_are(&file, id, AT, "0+2:stay 2+1:system 3+5:stay");
	CHECK_OK(mirror_destroy(&file, id));
	hints_are(&file, second, AT + HUGE, "1+2:system");
	CHECK_OK(mirror_create(&file, p, AT, 16 * PAGE, POPULATED | RO, &args));
	CHECK_EQ(mirror_query(&file, args.id).hints, 0);
	close_file(&other);
	close_file(&file);
}

CASE(with_now, "KEEP with NOW notes the place and moves what can move; alone it moves nothing")
{
	uint8_t *p = need_memory(16 * PAGE);
	struct drm_rkfd_mirror_migrate args;
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 16 * PAGE, POPULATED);

	need_hints(&e.file);
	pattern(p, 0, 16, 1);
	CHECK_EQ(move_all(&e.file, id, AT, 8 * PAGE, IN_VRAM, KEEP), 8 * PAGE);
	CHECK_EQ(device_pages(p, 16), 8);
	hints_are(&e.file, id, AT, "0+8:vram:auto");
	/* Alone it moves nothing, in or out. */
	CHECK_OK(mirror_hint(&e.file, id, AT, 4 * PAGE, IN_SYSTEM, 0));
	CHECK_OK(mirror_hint(&e.file, id, AT + 8 * PAGE, 8 * PAGE, IN_VRAM, 16));
	CHECK_EQ(device_pages(p, 16), 8);
	CHECK_EQ(move_all(&e.file, id, AT, 8 * PAGE, IN_SYSTEM, KEEP), 8 * PAGE);
	CHECK_EQ(device_pages(p, 16), 0);
	hints_are(&e.file, id, AT, "0+8:system 8+8:vram:64K");
	/* What cannot move is no error; hints do not ask. */
	CHECK_EQ(mlock(p, 8 * PAGE), 0);
	do
		args = (struct drm_rkfd_mirror_migrate){
			.id = id, .flags = KEEP | NOW | FILL, .gpu_address = AT, .length = 8 * PAGE,
			.place = IN_VRAM, .granularity = 21,
		};
	while (native(e.file.fd, DRM_IOCTL_RKFD_MIRROR_MIGRATE, &args) == EAGAIN);
	CHECK_EQ(args.moved, 0);
	CHECK_EQ(args.stayed, 8 * PAGE);
	hints_are(&e.file, id, AT, "0+8:vram:2M 8+8:vram:64K");
	/* A mirror that is filled at once has no accesses that are repeated. */
	gpu_has_pattern(&e, AT, 0, 16, 1);
	CHECK_EQ(device_pages(p, 16), 0);
	has_pattern(p, 0, 16, 1);
	engine_end(&e);
}
