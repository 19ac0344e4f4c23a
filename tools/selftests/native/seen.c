// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Mirrors that others look at. Each byte on standard input has one thing done, and `done` printed; at its end all ends.
 *
 *	u  the last two pages of the first mirror are unmapped
 *	p  the first page of it is protected
 *	d  the third one is discarded
 *	a  the GPU reads all pages of the mirror that accesses fill
 *	w  … and of all of the large one
 */
#include "mirror.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGES 24u
#define LARGE_AT (AT + (1ul << 30))
#define FAULT_AT (AT + (2ul << 30))

static void say(const char *what, const void *memory)
{
	tap_note("%s %#" PRIxPTR, what, (uintptr_t)memory);
	fflush(stdout);
}

CASE_LIMIT(seen, "mirrors are there until standard input ends", 300)
{
	struct drm_rkfd_mirror_create args;
	uint8_t *small = need_memory(PAGES * PAGE), *filled = need_memory(PAGES * PAGE);
	uint8_t *large = need_aligned(2 * HUGE);
	struct engine e;
	char byte;
	int err;

	fill(small, PAGES, 0x100);
	fill(filled, PAGES, 0x200);
	madvise(large, 2 * HUGE, MADV_HUGEPAGE);
	fill(large, 2 * HUGE / PAGE, 0x300);
	/* EAGAIN: just now there is no large page, or somebody holds one of the small ones for a moment. */
	for (uint64_t end = now_ms() + WAIT_MS; madvise(large, 2 * HUGE, MADV_COLLAPSE); usleep(10000)) {
		if ((errno != EAGAIN && errno != ENOMEM && errno != EBUSY) || now_ms() > end)
			SKIP("no large pages here");
	}
	engine_open(&e);
	/* Before the first queue, where the GPU has it. */
	err = mirror_create(&e.file, filled, FAULT_AT, PAGES * PAGE, FAULT, &args);
	if (err != EOPNOTSUPP) {
		CHECK_OK(err);
		say("filled", filled);
	}
	engine_start(&e, QUEUE_AT);
	need_mirror(&e.file, small, AT, PAGES * PAGE, RO);
	say("small", small);
	need_mirror(&e.file, large, LARGE_AT, 2 * HUGE, DRM_RKFD_MIRROR_EXECUTE);
	say("large", large);
	say("ready", NULL);
	while (read(STDIN_FILENO, &byte, 1) == 1) {
		switch (byte) {
		case 'u':
			CHECK_EQ(munmap(small + (PAGES - 2) * PAGE, 2 * PAGE), 0);
			break;
		case 'p':
			CHECK_EQ(mprotect(small, PAGE, PROT_NONE), 0);
			break;
		case 'd':
			CHECK_EQ(madvise(small + 2 * PAGE, PAGE, MADV_DONTNEED), 0);
			break;
		case 'a':
			gpu_sees(&e, FAULT_AT, PAGES, 0x200);
			break;
		case 'w':
			gpu_sees(&e, LARGE_AT, 2 * HUGE / PAGE, 0x300);
			break;
		default:
			continue;
		}
		say("done", NULL);
	}
	engine_end(&e);
}
