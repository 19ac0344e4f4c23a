// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The engine that copies between system memory and VRAM hangs in the midst of it: whichever way memory was to go, each byte is
 * right, and what an engine may still write is nobody's.
 *
 * Needs the device model, whose control port makes the driver's own ring hang: MIGRATE_DOORBELL is the ring's. What leads out
 * of that, a reset of the engines or a new start of the driver, is up to the caller; a case leaves the fault on.
 */
#include "hints.h"
#include "migrate.h"
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 256u

/* A queue for PM4 packets: the copy engines may have come to a halt. */
static struct engine e;
static uint8_t *p;
static uint32_t id;

static void begin(void)
{
	p = need_memory(N * PAGE);
	need_model();
	engine_open(&e);
	need_migration(&e.file);
	pattern(p, 0, N, 1);
	id = need_mirror(&e.file, p, AT, N * PAGE, POPULATED);
	need_nqueue(&e.file, &e.q, DRM_RKFD_QUEUE_PM4, QUEUE_AT);
}

static void run(struct packets *packets)
{
	pm4_release(packets, OUT_AT + PAGE - 4, 1, ++e.fence, 0, 0);
	nsubmit(&e.q, packets);
	await32(out32(&e, PAGE - 4), e.fence, "the end of PM4 packets");
}

/* Adds to a word of each page. */
static void adds(unsigned int word, uint64_t value)
{
	struct packets packets = { .n = 0 };

	pm4_acquire(&packets);
	for (unsigned int i = 0; i < N; i++)
		pm4_atomic(&packets, 47, AT + i * PAGE + 8 * word, value);
	run(&packets);
}

/* The GPU reads a word of each page. */
static void sees(unsigned int word)
{
	const volatile uint64_t *seen = (const volatile uint64_t *)(e.out.cpu + PAGE);
	struct packets packets = { .n = 0 };
	uint64_t first[N];

	pm4_acquire(&packets);
	for (unsigned int i = 0; i < N; i++)
		pm4_copy(&packets, 1, AT + i * PAGE + 8 * word, OUT_AT + PAGE + 8 * i, true);
	run(&packets);
	for (unsigned int i = 0; i < N; i++)
		first[i] = seen[i];
	for (unsigned int i = 0; i < N; i++)
		CHECK_EQ(first[i], ((volatile uint64_t *)(p + i * PAGE))[word]);
}

static void hang(const char *kind)
{
	const char *doorbell = getenv("MIGRATE_DOORBELL");
	char request[160];

	CHECK(doorbell);
	snprintf(request, sizeof(request), "{\"cmd\":\"fault\",\"kind\":\"%s\",\"doorbell\":%lu}", kind,
		 strtoul(doorbell, NULL, 0));
	ask_model(request);
}

static void end(void)
{
	CHECK_EQ(new_faults(&e, NULL), 0);
	drop_nqueue(&e.file, &e.q);
	close_file(&e.file);
}

static void in_and_out(bool by_cpu)
{
	uint64_t copied;

	begin();
	copied = mirror_count(&e.file, "copied_by_cpu");
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
	CHECK_EQ(mirror_count(&e.file, "copied_by_cpu") - copied, by_cpu ? N * PAGE : 0);
	adds(1, 2);
	CHECK_EQ(device_pages(p, N), N);
	has_added(p, 0, N, 1, 1, 2);
	sees(1);
	end();
}

CASE_LIMIT(healthy, "healthy: in and out by the engine", 120)
{
	in_and_out(false);
}

CASE_LIMIT(without, "without: in and out by the CPU", 120)
{
	in_and_out(true);
}

CASE_LIMIT(in_hangs, "in, hang: the CPU copies in place of the engine", 240)
{
	uint64_t by_cpu;

	begin();
	by_cpu = mirror_count(&e.file, "copied_by_cpu");
	hang("hang-queue");
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
	CHECK_OP(mirror_count(&e.file, "copied_by_cpu"), >=, by_cpu + N * PAGE);
	CHECK_EQ(device_pages(p, N), N);
	adds(3, 1);
	CHECK_EQ(device_pages(p, N), N);
	has_added(p, 0, N, 1, 3, 1);
	CHECK_EQ(device_pages(p, N), 0);
	sees(3);
	end();
}

CASE_LIMIT(out_hangs, "out, hang: the CPU copies in place of the engine", 240)
{
	begin();
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
	adds(4, 1);
	CHECK_EQ(device_pages(p, N), N);
	hang("hang-queue");
	/* By the call, and by the CPU's own accesses. */
	CHECK_EQ(move_all(&e.file, id, AT, N / 2 * PAGE, IN_SYSTEM, 0), N / 2 * PAGE);
	CHECK_EQ(device_pages(p, N), N / 2);
	has_added(p, 0, N, 1, 4, 1);
	CHECK_EQ(device_pages(p, N), 0);
	sees(4);
	end();
}

CASE_LIMIT(in_stuck, "in, stuck: what the engine may still write is kept, and the memory stays", 240)
{
	struct drm_rkfd_mirror_migrate args;
	uint64_t before, kept;
	int err;

	begin();
	before = settled_vram(&e.file);
	kept = mirror_count(&e.file, "kept");
	hang("ignore-preempt");
	err = mirror_migrate(&e.file, id, AT, N * PAGE, IN_VRAM, 0, &args);
	CHECK_ERR(err, ETIMEDOUT);
	CHECK_EQ(args.moved, 0);
	CHECK_EQ(device_pages(p, N), 0);
	has_pattern(p, 0, N, 1);
	/* The room of what the engine may still write is taken, also when the one who wanted it has ended. */
	CHECK_OP(heap_used(&e.file, VRAM), >=, before + N * PAGE);
	/* It was clearing the room. */
	CHECK_EQ(mirror_count(&e.file, "kept"), kept + HUGE);
	engine_leave(&e);
	need_file(&e.file);
	CHECK_OP(settled_vram(&e.file), >=, before);
	has_pattern(p, 0, N, 1);
	close_file(&e.file);
}

CASE_LIMIT(out_stuck, "out, stuck: the bytes come without the engine", 240)
{
	struct drm_rkfd_mirror_migrate args;
	uint64_t kept;

	begin();
	kept = mirror_count(&e.file, "kept");
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
	adds(5, 1);
	CHECK_EQ(device_pages(p, N), N);
	hang("ignore-preempt");
	/* What it was to write is nobody's, and the pages are where they were. */
	CHECK_ERR(mirror_migrate(&e.file, id, AT, N * PAGE, IN_SYSTEM, 0, &args), ETIMEDOUT);
	CHECK_EQ(args.moved, 0);
	CHECK_EQ(mirror_count(&e.file, "kept"), kept + N * PAGE);
	CHECK_EQ(device_pages(p, N), N);
	has_added(p, 0, N, 1, 5, 1);
	CHECK_EQ(device_pages(p, N), 0);
	pattern(p, 0, N, 2);
	/* Nothing of the old copy comes later. */
	has_pattern(p, 0, N, 2);
	sees(5);
	engine_leave(&e);
	has_pattern(p, 0, N, 2);
}
