// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * VRAM is full of memory that programs have moved there: buffers and memory of others take its place, what was used longest
 * ago first, and each byte stays what it is, for CPU and GPU.
 *
 * Needs little VRAM, which is filled.
 */
#include "migrate.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Made first, so that it is the oldest. */
#define OLD (8 * HUGE)
#define OLD_PAGES (OLD / PAGE)
/* What each page of the rest has, with its number added. */
#define REST 0x40000u
/* Longer than what has just come is left alone. */
#define SETTLE_US 200000

static struct engine e;
/* The old memory, and all that else fits. */
static uint8_t *old, *rest;
static uint32_t old_id, rest_id;
static uint64_t rest_size;
static unsigned int rest_pages, rest_there;

static uint8_t *need_apart(uint64_t size)
{
	uint8_t *p = need_aligned(size);

	/* The others here are children, which are to have none of it. */
	CHECK_EQ(madvise(p, size, MADV_DONTFORK), 0);
	CHECK_EQ(madvise(p, size, MADV_NOHUGEPAGE), 0);
	return p;
}

static void open_it(void)
{
	engine_open(&e);
	need_migration(&e.file);
	if (heap_total(&e.file, VRAM) > (256ul << 20))
		SKIP("so much VRAM is not filled here");
	settled_vram(&e.file);
}

static void move_old(uint32_t filling)
{
	old = need_apart(OLD);
	pattern(old, 0, OLD_PAGES, 1);
	old_id = need_mirror(&e.file, old, AT, OLD, filling);
	CHECK_EQ(move_all(&e.file, old_id, AT, OLD, IN_VRAM, 0), OLD);
	usleep(SETTLE_US);
}

/* Moves in what fits. */
static void move_rest(uint32_t filling)
{
	struct drm_rkfd_mirror_migrate args;
	int err;

	rest_size = (heap_total(&e.file, VRAM) + 2 * HUGE) & ~(HUGE - 1);
	rest_pages = rest_size / PAGE;
	rest = need_apart(rest_size);
	fill(rest, rest_pages, REST);
	rest_id = need_mirror(&e.file, rest, AT + OLD, rest_size, filling);
	engine_start(&e, QUEUE_AT);
	do
		err = mirror_migrate(&e.file, rest_id, AT + OLD, rest_size, IN_VRAM, 0, &args);
	while (err == EAGAIN);
	CHECK_ERR(err, ENOMEM);
	rest_there = device_pages(rest, rest_pages);
	CHECK_OP(rest_there, >=, OLD_PAGES);
	usleep(SETTLE_US);
}

static void begin(uint32_t filling)
{
	open_it();
	move_old(filling);
	move_rest(filling);
	CHECK_EQ(device_pages(old, OLD_PAGES), OLD_PAGES);
}

/* All is what it was, wherever it is; the CPU last, for it brings all back. */
static void end(void)
{
	gpu_has_pattern(&e, AT, 0, OLD_PAGES, 1);
	gpu_sees(&e, AT + OLD, rest_pages, REST);
	has_pattern(old, 0, OLD_PAGES, 1);
	for (unsigned int i = 0; i < rest_pages; i++)
		CHECK_EQ(*word(rest, i * PAGE), REST + i);
	CHECK_EQ(new_faults(&e, NULL), 0);
	engine_end(&e);
	CHECK_EQ(munmap(old, OLD), 0);
	CHECK_EQ(munmap(rest, rest_size), 0);
}

static void have_buffer(struct nfile *file)
{
	struct nbo bo;

	need_nbo(file, &bo, VRAM, OLD);
	for (uint64_t at = 0; at < OLD; at += 8)
		CHECK_EQ(*(volatile uint64_t *)(bo.cpu + at), 0);
	memset(bo.cpu, 0xa5, OLD);
	for (uint64_t at = 0; at < OLD; at += 8)
		CHECK_EQ(*(volatile uint64_t *)(bo.cpu + at), 0xa5a5a5a5a5a5a5a5ul);
	drop_nbo(file, &bo);
}

static void buffer_of_another(void *unused)
{
	struct nfile file;

	(void)unused;
	need_file(&file);
	have_buffer(&file);
	close_file(&file);
}

static void buffer_by(uint32_t filling)
{
	begin(filling);
	CHECK_EQ(in_child(buffer_of_another, NULL), 0);
	/* What was free may have been a part of it. */
	CHECK_OP(device_pages(old, OLD_PAGES), <=, 2 * HUGE / PAGE);
	CHECK_EQ(device_pages(rest, rest_pages), rest_there);
	end();
}

CASE_LIMIT(buffer, "another program's buffer takes the place of memory, of what was moved longest ago alone", 240)
{
	in_both_ways(buffer_by);
}

static void memory_of_another(void *unused)
{
	struct engine other;
	uint8_t *p = need_aligned(OLD);
	uint32_t id;

	(void)unused;
	CHECK_EQ(madvise(p, OLD, MADV_NOHUGEPAGE), 0);
	engine_open(&other);
	pattern(p, 0, OLD_PAGES, 3);
	id = need_mirror(&other.file, p, AT, OLD, POPULATED);
	engine_start(&other, QUEUE_AT);
	CHECK_EQ(move_all(&other.file, id, AT, OLD, IN_VRAM, 0), OLD);
	CHECK_EQ(device_pages(p, OLD_PAGES), OLD_PAGES);
	gpu_has_pattern(&other, AT, 0, OLD_PAGES, 3);
	gpu_adds(&other, AT, OLD_PAGES, 5, 7);
	has_added(p, 0, OLD_PAGES, 3, 5, 7);
	engine_end(&other);
}

static void memory_by(uint32_t filling)
{
	begin(filling);
	CHECK_EQ(in_child(memory_of_another, NULL), 0);
	CHECK_OP(device_pages(old, OLD_PAGES), <=, 2 * HUGE / PAGE);
	/* The other's queue has memory in VRAM, too. */
	CHECK_OP(device_pages(rest, rest_pages) + OLD_PAGES, >=, rest_there);
	end();
}

CASE_LIMIT(memory, "another program's memory does, too, when it moves in", 240)
{
	in_both_ways(memory_by);
}

CASE_LIMIT(own, "own memory makes room for an own buffer, and not for own memory that is to move in", 240)
{
	struct drm_rkfd_mirror_migrate args;
	unsigned int there;
	int err;

	begin(POPULATED);
	there = device_pages(rest, rest_pages);
	do
		err = mirror_migrate(&e.file, rest_id, AT + OLD, rest_size, IN_VRAM, 0, &args);
	while (err == EAGAIN);
	CHECK_ERR(err, ENOMEM);
	CHECK_EQ(args.moved, 0);
	CHECK_EQ(device_pages(old, OLD_PAGES), OLD_PAGES);
	CHECK_EQ(device_pages(rest, rest_pages), there);
	have_buffer(&e.file);
	CHECK_OP(device_pages(old, OLD_PAGES), <=, 2 * HUGE / PAGE);
	CHECK_EQ(device_pages(rest, rest_pages), there);
	end();
}

CASE_LIMIT(by_age, "a buffer that is older than the memory leaves before it, with what it holds", 240)
{
	struct drm_rkfd_bo_info info;
	struct nbo bo;

	open_it();
	need_nbo(&e.file, &bo, VRAM, OLD);
	memset(bo.cpu, 0x5a, OLD);
	usleep(SETTLE_US);
	old = need_apart(OLD);
	pattern(old, 0, OLD_PAGES, 1);
	old_id = need_mirror(&e.file, old, AT, OLD, POPULATED);
	move_rest(POPULATED);
	CHECK_EQ(in_child(buffer_of_another, NULL), 0);
	CHECK_EQ(device_pages(rest, rest_pages), rest_there);
	CHECK_OK(nbo_info(&e.file, bo.handle, &info));
	CHECK_EQ(info.heap, SYSTEM);
	for (uint64_t at = 0; at < OLD; at += 8)
		CHECK_EQ(*(volatile uint64_t *)(bo.cpu + at), 0x5a5a5a5a5a5a5a5aul);
	drop_nbo(&e.file, &bo);
	end();
}
