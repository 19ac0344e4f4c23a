// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * An address space that others look at: known memory at known addresses, with what the GPU wrote, and a queue on the
 * hardware, until a byte comes on standard input, or its end.
 */
#include "native.h"

#include <stdio.h>
#include <unistd.h>

#define AT 0x100000000ul
#define QUEUE_AT 0x10000000ul
#define HUGE_SIZE 0x200000ul
/* Far enough for a table of its own at each level but the root's. */
#define SMALL_AT (AT + (1ul << 30))
#define READ_AT (AT + (2ul << 30))

CASE_LIMIT(hold, "memory and a queue are there until a byte comes on standard input", 300)
{
	static struct packets p;
	struct drm_rkfd_bind_op op;
	struct nbo huge, small, read_only;
	struct nfile file;
	struct nqueue q;
	char byte;

	need_file(&file);
	need_nqueue(&file, &q, DRM_RKFD_QUEUE_PM4, QUEUE_AT);
	need_nbo(&file, &huge, VRAM, HUGE_SIZE);
	CHECK_OK(bind_one(&file, AT, HUGE_SIZE, huge.handle, 0));
	need_nbo(&file, &small, VRAM, 2 * PAGE);
	CHECK_OK(bind_one(&file, SMALL_AT, PAGE, small.handle, PAGE));
	need_nbo(&file, &read_only, SYSTEM, PAGE);
	op = map_op(READ_AT, PAGE, read_only.handle, 0);
	op.flags = 0;
	CHECK_OK(bind_list(&file, &op, 1, NULL));
	pm4_write(&p, AT + PAGE, 0x600d0001);
	pm4_write(&p, SMALL_AT + 8, 0x600d0002);
	nsubmit(&q, &p);
	await32((uint32_t *)(huge.cpu + PAGE), 0x600d0001, "the first packet");
	await32((uint32_t *)(small.cpu + PAGE + 8), 0x600d0002, "the second one");
	tap_note("ready");
	fflush(stdout);
	CHECK(read(STDIN_FILENO, &byte, 1) >= 0);
}
