// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Accesses of the GPU move memory to VRAM where a hint says so: which bytes, and which not.
 */
#include "hints.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES (HUGE / PAGE)

/* Memory of `granules` times 2 MiB, in small pages, each with the pattern. */
static uint8_t *need_pattern(unsigned int granules, uint32_t seed)
{
	uint8_t *p = need_aligned(granules * HUGE);

	CHECK_EQ(madvise(p, granules * HUGE, MADV_NOHUGEPAGE), 0);
	pattern(p, 0, granules * PAGES, seed);
	return p;
}

static bool is_device(const uint8_t *p, unsigned int page)
{
	return device_pages(p + page * PAGE, 1);
}

/*
 * The GPU accesses a page, and all of `count` pages from `first` on are in VRAM, page by page where somebody had some in hand for a
 * moment: for these the hint is given again, so that they are accessed anew.
 */
static void moves(struct engine *e, uint32_t id, uint8_t *p, unsigned int page, unsigned int first, unsigned int count,
		  uint32_t granularity)
{
	uint64_t end = now_ms() + WAIT_MS;

	gpu_read(e, AT + page * PAGE);
	while (device_pages(p + first * PAGE, count) < count) {
		if (now_ms() > end)
			FAIL("%u of %u pages do not move", count - device_pages(p + first * PAGE, count), count);
		CHECK_OK(mirror_hint(&e->file, id, AT + first * PAGE, count * PAGE, IN_VRAM, granularity));
		for (unsigned int i = first; i < first + count; i++)
			if (!is_device(p, i)) {
				gpu_read(e, AT + i * PAGE);
				break;
			}
	}
}

CASE_LIMIT(blocks, "an access moves the aligned block of the hint's size that has the page, and no more", 240)
{
	const unsigned int page = 301;

	for (uint32_t granularity = 16; granularity <= 21; granularity++) {
		const unsigned int count = (1u << granularity) / PAGE, first = page / count * count;
		uint8_t *p = need_pattern(2, granularity);
		struct engine e;
		uint32_t id = hinted_begin(&e, p, AT, 2 * HUGE);
		uint64_t before = mirror_count(&e.file, "moved_in_by_access"), in = mirror_count(&e.file, "moved_in");

		CHECK_OK(mirror_hint(&e.file, id, AT, 2 * HUGE, IN_VRAM, granularity));
		CHECK_EQ(device_pages(p, 2 * PAGES), 0);
		moves(&e, id, p, page, first, count, granularity);
		CHECK_EQ(device_pages(p, 2 * PAGES), count);
		CHECK_EQ(mirror_count(&e.file, "moved_in_by_access") - before, count * PAGE);
		CHECK_EQ(mirror_count(&e.file, "moved_in") - in, count * PAGE);
		/* The GPU uses it there; a page that is there moves nothing. */
		gpu_has_pattern(&e, AT + first * PAGE, first, count, granularity);
		gpu_adds(&e, AT + first * PAGE, count, 3, 9);
		CHECK_EQ(device_pages(p, 2 * PAGES), count);
		CHECK_EQ(mirror_query(&e.file, id).vram_bytes, count * PAGE);
		/* What is in the system was not shown beside it, so each access moves its block. */
		gpu_has_pattern(&e, AT + PAGES * PAGE, PAGES, PAGES, granularity);
		CHECK_OP(device_pages(p + HUGE, PAGES), >, PAGES / 2);
		has_added(p + first * PAGE, first, count, granularity, 3, 9);
		has_pattern(p, 0, first, granularity);
		has_pattern(p + (first + count) * PAGE, first + count, 2 * PAGES - first - count, granularity);
		CHECK_EQ(device_pages(p, 2 * PAGES), 0);
		engine_end(&e);
	}
}

CASE_LIMIT(cut, "the block is cut to the hint, to the mapping and to the mirror", 120)
{
	uint8_t *p = need_pattern(2, 5);
	struct engine e;
	/* The mirror begins at page 3, and ends within the second granule. */
	uint32_t id = hinted_begin(&e, p + 3 * PAGE, AT + 3 * PAGE, 600 * PAGE);

	CHECK_OK(mirror_hint(&e.file, id, AT + 100 * PAGE, 4 * PAGE, IN_VRAM, 21));
	moves(&e, id, p, 102, 100, 4, 21);
	CHECK_EQ(device_pages(p, 2 * PAGES), 4);
	/* Beside the hint an access moves nothing. */
	gpu_has_pattern(&e, AT + 3 * PAGE, 3, 97, 5);
	gpu_has_pattern(&e, AT + 104 * PAGE, 104, 20, 5);
	CHECK_EQ(device_pages(p, 2 * PAGES), 4);
	/* A mapping of its own, by other rights. */
	CHECK_EQ(mprotect(p + 200 * PAGE, 8 * PAGE, PROT_READ), 0);
	CHECK_OK(mirror_hint(&e.file, id, AT + 192 * PAGE, 32 * PAGE, IN_VRAM, 21));
	moves(&e, id, p, 203, 200, 8, 21);
	CHECK_EQ(device_pages(p + 192 * PAGE, 32), 8);
	/* The last one of the mirror. */
	CHECK_OK(mirror_hint(&e.file, id, AT + HUGE, 91 * PAGE, IN_VRAM, 21));
	moves(&e, id, p, 602, 512, 91, 21);
	CHECK_EQ(device_pages(p + 512 * PAGE, PAGES), 91);
	CHECK_EQ(mprotect(p + 200 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE), 0);
	has_pattern(p, 0, 2 * PAGES, 5);
	engine_end(&e);
}

CASE_LIMIT(chosen, "without a size the driver chooses from 64 KiB to 2 MiB, and more with each access", 120)
{
	uint8_t *p = need_pattern(1, 6);
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, HUGE);
	uint64_t end = now_ms() + WAIT_MS;

	CHECK_OK(mirror_hint(&e.file, id, AT, HUGE, IN_VRAM, 0));
	for (unsigned int first = 0; first < PAGES; first++)
		gpu_read(&e, AT + first * PAGE);
	while (device_pages(p, PAGES) < PAGES) {
		if (now_ms() > end)
			FAIL("%lu pages do not move", PAGES - device_pages(p, PAGES));
		CHECK_OK(mirror_hint(&e.file, id, AT, HUGE, IN_VRAM, 0));
		gpu_has_pattern(&e, AT, 0, PAGES, 6);
	}
	gpu_has_pattern(&e, AT, 0, PAGES, 6);
	CHECK_EQ(mirror_query(&e.file, id).vram_bytes, HUGE);
	has_pattern(p, 0, PAGES, 6);
	engine_end(&e);
}

CASE_LIMIT(holes, "pages without memory become zeroes in VRAM near the access alone, whether it reads or writes", 120)
{
	uint8_t *p = need_aligned(2 * HUGE);
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, 2 * HUGE);
	uint64_t holes;

	dirty_vram(&e);
	CHECK(need_memory_at(p, 2 * HUGE, MAP_FIXED) == p);
	CHECK_EQ(madvise(p, 2 * HUGE, MADV_NOHUGEPAGE), 0);
	holes = mirror_count(&e.file, "holes");
	CHECK_OK(mirror_hint(&e.file, id, AT, 2 * HUGE, IN_VRAM, 21));
	CHECK_EQ(gpu_read(&e, AT + 100 * PAGE), 0);
	gpu_write(&e, AT + HUGE + 300 * PAGE, 0x1234);
	for (unsigned int granule = 0; granule < 2; granule++) {
		unsigned int page = granule ? 300 : 100;
		uint8_t *at = p + granule * HUGE;

		CHECK(is_device(at, page));
		CHECK_EQ(device_pages(at + page / 16 * 16 * PAGE, 16), 16);
		/* None in the system, and not all of it. */
		CHECK_EQ(present_pages(at, PAGES), device_pages(at, PAGES));
		CHECK_OP(device_pages(at, PAGES), <, PAGES);
	}
	CHECK_EQ(mirror_count(&e.file, "holes") - holes, device_pages(p, 2 * PAGES) * PAGE);
	gpu_has_zeroes(&e, AT, PAGES + 300);
	CHECK_EQ(gpu_read(&e, AT + HUGE + 300 * PAGE), 0x1234);
	gpu_has_zeroes(&e, AT + HUGE + 301 * PAGE, PAGES - 301);
	CHECK_EQ(*word(p, HUGE + 300 * PAGE), 0x1234);
	*word(p, HUGE + 300 * PAGE) = 0;
	has_zeroes(p, 2 * PAGES);
	engine_end(&e);
}

CASE_LIMIT(other_places, "without a hint, and with any other, accesses move nothing in; what is in VRAM is used there", 120)
{
	static const uint32_t places[] = { NOWHERE, IN_SYSTEM, STAY };
	uint8_t *p = need_pattern(1, 7);
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, HUGE);
	uint64_t before = mirror_count(&e.file, "moved_in_by_access");

	gpu_has_pattern(&e, AT, 0, PAGES, 7);
	CHECK_EQ(device_pages(p, PAGES), 0);
	for (unsigned int i = 0; i < 3; i++) {
		uint64_t shown;

		CHECK_EQ(move_all(&e.file, id, AT, HUGE / 2, IN_VRAM, 0), HUGE / 2);
		gpu_has_pattern(&e, AT, 0, PAGES, 7);
		shown = mirror_query(&e.file, id).bytes;
		CHECK_EQ(shown, HUGE);
		CHECK_OK(mirror_hint(&e.file, id, AT, HUGE, places[i], 0));
		/* It takes nothing away. */
		CHECK_EQ(mirror_query(&e.file, id).bytes, shown);
		CHECK_EQ(device_pages(p, PAGES), PAGES / 2);
		/* Unmapped for the GPU by a change of the program's, and accessed anew. */
		CHECK_EQ(mprotect(p, HUGE, PROT_READ), 0);
		CHECK_EQ(mprotect(p, HUGE, PROT_READ | PROT_WRITE), 0);
		gpu_has_pattern(&e, AT, 0, PAGES, 7);
		CHECK_EQ(device_pages(p, PAGES), PAGES / 2);
		CHECK_EQ(mirror_query(&e.file, id).vram_bytes, HUGE / 2);
		has_pattern(p, 0, PAGES, 7);
		gpu_has_pattern(&e, AT, 0, PAGES, 7);
		CHECK_EQ(device_pages(p, PAGES), 0);
	}
	CHECK_EQ(mirror_count(&e.file, "moved_in_by_access"), before);
	engine_end(&e);
}

static void *need_map(int fd, unsigned int pages, int flags)
{
	void *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static int need_memfd(unsigned int pages)
{
	int fd = memfd_create("hints", MFD_CLOEXEC);

	CHECK_OP(fd, >=, 0);
	CHECK_EQ(ftruncate(fd, pages * PAGE), 0);
	return fd;
}

CASE_LIMIT(others_stay, "shared memory, files and what is locked stay where they are, and accesses go on in place", 120)
{
	enum { N = 32 };
	uint8_t *kinds[4];
	struct engine e;

	kinds[0] = need_map(need_memfd(N), N, MAP_SHARED);
	kinds[1] = need_map(-1, N, MAP_SHARED | MAP_ANONYMOUS);
	kinds[2] = need_map(need_memfd(N), N, MAP_PRIVATE);
	kinds[3] = need_memory(N * PAGE);
	CHECK_EQ(mlock(kinds[3], N * PAGE), 0);
	for (unsigned int kind = 0; kind < 4; kind++) {
		uint8_t *p = kinds[kind];
		uint32_t id = hinted_begin(&e, p, AT, N * PAGE);
		uint64_t before = mirror_count(&e.file, "moved_in_by_access");

		pattern(p, 0, N, kind);
		CHECK_OK(mirror_hint(&e.file, id, AT, N * PAGE, IN_VRAM, 0));
		gpu_has_pattern(&e, AT, 0, N, kind);
		gpu_adds(&e, AT, N, 9, 4);
		CHECK_EQ(device_pages(p, N), 0);
		CHECK_EQ(mirror_query(&e.file, id).vram_bytes, 0);
		CHECK_EQ(mirror_query(&e.file, id).bytes, N * PAGE);
		CHECK_EQ(mirror_count(&e.file, "moved_in_by_access"), before);
		CHECK_EQ(new_faults(&e, NULL), 0);
		has_added(p, 0, N, kind, 9, 4);
		engine_end(&e);
	}
}

CASE_LIMIT(taken_away, "KEEP to VRAM takes away what is shown from the system; POPULATE shows it, and moves nothing", 120)
{
	uint8_t *p = need_pattern(2, 8);
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, 2 * HUGE);

	gpu_has_pattern(&e, AT, 0, 2 * PAGES, 8);
	CHECK_EQ(mirror_query(&e.file, id).bytes, 2 * HUGE);
	CHECK_OK(mirror_hint(&e.file, id, AT, KIB64, IN_VRAM, 16));
	/* With the rest of the granule, and without the other one. */
	CHECK_EQ(mirror_query(&e.file, id).bytes, HUGE);
	CHECK_EQ(device_pages(p, 2 * PAGES), 0);
	CHECK_OK(mirror_populate(&e.file, id, AT, 2 * HUGE));
	CHECK_EQ(mirror_query(&e.file, id).bytes, 2 * HUGE);
	gpu_has_pattern(&e, AT, 0, 2 * PAGES, 8);
	CHECK_EQ(device_pages(p, 2 * PAGES), 0);
	CHECK_OK(mirror_hint(&e.file, id, AT, KIB64, IN_VRAM, 16));
	moves(&e, id, p, 1, 0, 16, 16);
	CHECK_EQ(device_pages(p, 2 * PAGES), 16);
	/* A granule of which all that is shown is in VRAM keeps its entries. */
	CHECK_EQ(move_all(&e.file, id, AT + HUGE, HUGE, IN_VRAM, 0), HUGE);
	gpu_has_pattern(&e, AT + HUGE, PAGES, PAGES, 8);
	CHECK_OK(mirror_hint(&e.file, id, AT + HUGE, HUGE, IN_VRAM, 0));
	CHECK_OP(mirror_query(&e.file, id).vram_bytes, >=, HUGE);
	has_pattern(p, 0, 2 * PAGES, 8);
	engine_end(&e);
}

CASE_LIMIT(of_one_mirror, "the hint is of one mirror: by another one of the same memory accesses move nothing", 120)
{
	uint8_t *p = need_pattern(1, 9);
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, HUGE);

	need_mirror(&e.file, p, AT + 8 * HUGE, HUGE, FAULT);
	CHECK_OK(mirror_hint(&e.file, id, AT, HUGE, IN_VRAM, 21));
	gpu_has_pattern(&e, AT + 8 * HUGE, 0, PAGES, 9);
	CHECK_EQ(device_pages(p, PAGES), 0);
	moves(&e, id, p, 5, 0, PAGES, 21);
	/* It sees it in VRAM, too. */
	gpu_has_pattern(&e, AT + 8 * HUGE, 0, PAGES, 9);
	CHECK_EQ(device_pages(p, PAGES), PAGES);
	/* Memory that is mapped later is under the hint. */
	CHECK(need_memory_at(p, HUGE, MAP_FIXED) == p);
	CHECK_EQ(madvise(p, HUGE, MADV_NOHUGEPAGE), 0);
	pattern(p, 0, PAGES, 10);
	moves(&e, id, p, 7, 0, PAGES, 21);
	gpu_has_pattern(&e, AT, 0, PAGES, 10);
	has_pattern(p, 0, PAGES, 10);
	/* And no more when the mirror has ended. */
	CHECK_OK(mirror_destroy(&e.file, id));
	gpu_has_pattern(&e, AT + 8 * HUGE, 0, PAGES, 10);
	CHECK_EQ(device_pages(p, PAGES), 0);
	engine_end(&e);
}

CASE_LIMIT(again, "what the CPU brought out long after it moved in moves again at the next access, and has not bounced", 120)
{
	uint8_t *p = need_pattern(1, 3);
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, HUGE);
	uint64_t bounced = mirror_count(&e.file, "bounced"), held = mirror_count(&e.file, "held_back");

	CHECK_OK(mirror_hint(&e.file, id, AT, HUGE, IN_VRAM, 16));
	for (uint32_t round = 1; round <= 4; round++) {
		gpu_adds(&e, AT + 32 * PAGE, 1, 1, 1);
		if (!is_device(p, 32))
			moves(&e, id, p, 32, 32, 16, 16);
		/* Longer than what has just moved may not come out. */
		usleep(200000);
		(void)*word(p, 32 * PAGE);
		CHECK(!is_device(p, 32));
	}
	CHECK_EQ(mirror_count(&e.file, "bounced"), bounced);
	CHECK_EQ(mirror_count(&e.file, "held_back"), held);
	has_added(p + 32 * PAGE, 32, 1, 3, 1, 4);
	engine_end(&e);
}

CASE_LIMIT(bounces, "what CPU and GPU use in turn ends in the system, in place for both, and no more moves; KEEP ends that", 240)
{
	uint8_t *p = need_pattern(1, 4);
	struct engine e;
	uint32_t id = hinted_begin(&e, p, AT, HUGE);
	uint64_t bounced = mirror_count(&e.file, "bounced"), held = mirror_count(&e.file, "held_back");
	uint64_t end = now_ms() + 3 * WAIT_MS, in;
	volatile uint64_t *added = (volatile uint64_t *)p + 1;
	uint64_t first = *added, rounds = 0;

	CHECK_OK(mirror_hint(&e.file, id, AT, HUGE, IN_VRAM, 16));
	/* A slow machine needs a few attempts at one that is fast enough. */
	while (mirror_count(&e.file, "bounced") == bounced || mirror_count(&e.file, "held_back") == held) {
		if (now_ms() > end)
			FAIL("nothing bounced in %llu rounds", (unsigned long long)rounds);
		gpu_adds(&e, AT, 1, 1, 1);
		rounds++;
		CHECK_EQ(*added, first + rounds);
	}
	/* The access that fell into the wait has shown it where it is. */
	in = mirror_count(&e.file, "moved_in_by_access");
	for (unsigned int i = 0; i < 20; i++) {
		gpu_adds(&e, AT, 1, 1, 1);
		rounds++;
		CHECK_EQ(*added, first + rounds);
	}
	CHECK_EQ(mirror_count(&e.file, "moved_in_by_access"), in);
	CHECK_EQ(device_pages(p, PAGES), 0);
	CHECK_OK(mirror_hint(&e.file, id, AT, HUGE, IN_VRAM, 16));
	moves(&e, id, p, 0, 0, 16, 16);
	CHECK_OP(mirror_count(&e.file, "moved_in_by_access"), >, in);
	gpu_adds(&e, AT, 1, 1, 1);
	has_added(p, 0, 1, 4, 1, rounds + 1);
	has_pattern(p + PAGE, 1, PAGES - 1, 4);
	engine_end(&e);
}
