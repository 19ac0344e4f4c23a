// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "hints.h"
#include "migrate.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(struct drm_rkfd_mirror_migrate) == 48, "mirror_migrate");

/* Pages that a batch of the GPU copies behind the first page of what it reads into, which has the fence. */
#define COPIED 14u
/* What one SDMA packet fills on every GPU. */
#define FILLED (2ul << 20)

void in_both_ways(void (*run)(uint32_t filling))
{
	uint8_t *p = need_memory(PAGE);
	struct drm_rkfd_mirror_create args;
	struct nfile file;
	int err;

	need_file(&file);
	err = mirror_create(&file, p, AT, PAGE, FAULT, &args);
	close_file(&file);
	CHECK_EQ(munmap(p, PAGE), 0);
	run(POPULATED);
	if (err == EOPNOTSUPP)
		return;
	CHECK_OK(err);
	run(FAULT);
}

void need_migration(const struct nfile *file)
{
	if (file->device.version < 5 || !(file->device.features & DRM_RKFD_FEATURE_MIGRATION))
		LACKING("memory of mirrors does not move");
}

uint32_t moving_begin(struct engine *e, void *cpu, uint64_t va, uint64_t length, uint32_t flags)
{
	uint32_t id;

	engine_open(e);
	need_migration(&e->file);
	/* Before the queue, whose accesses are to be repeated perhaps. */
	id = need_mirror(&e->file, cpu, va, length, flags);
	engine_start(e, QUEUE_AT);
	return id;
}

int mirror_migrate(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length, uint32_t place, uint32_t flags,
		   struct drm_rkfd_mirror_migrate *args)
{
	struct drm_rkfd_mirror_migrate own;

	if (!args)
		args = &own;
	*args = (struct drm_rkfd_mirror_migrate){
		.id = id,
		.flags = NOW | flags,
		.gpu_address = va,
		.length = length,
		.place = place,
	};
	return native(file->fd, DRM_IOCTL_RKFD_MIRROR_MIGRATE, args);
}

uint64_t move_all(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length, uint32_t place, uint32_t flags)
{
	uint64_t end = now_ms() + WAIT_MS, moved = 0;
	struct drm_rkfd_mirror_migrate args;
	int err;

	for (;;) {
		err = mirror_migrate(file, id, va, length, place, flags, &args);
		moved += args.moved;
		if (err != EAGAIN) {
			CHECK_OK(err);
			CHECK_EQ(args.moved % PAGE, 0);
			CHECK_EQ(args.stayed % PAGE, 0);
			CHECK_OP(args.moved + args.stayed, <=, length);
			if (!args.stayed)
				return moved;
		}
		if (now_ms() > end)
			FAIL("%llu of %llu bytes do not move", (unsigned long long)args.stayed,
			     (unsigned long long)length);
		usleep(1000);
	}
}

void must_stay(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length, uint32_t flags, uint64_t bytes)
{
	struct drm_rkfd_mirror_migrate args;
	uint64_t before;
	int err;

	do {
		before = mirror_count(file, "stayed");
		err = mirror_migrate(file, id, va, length, IN_VRAM, flags, &args);
	} while (err == EAGAIN);
	CHECK_OK(err);
	CHECK_EQ(args.moved, 0);
	CHECK_EQ(args.stayed, bytes);
	CHECK_EQ(mirror_count(file, "stayed"), before + bytes);
}

/* Has the GPU copy pages to behind the first of what it reads into. */
static const uint8_t *copied(struct engine *e, uint64_t va, unsigned int pages)
{
	struct packets p = { .n = 0 };

	memset(e->out.cpu + PAGE, 0x5a, pages * PAGE);
	/* The GPU's stores come after these. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (unsigned int i = 0; i < pages; i++)
		sdma_copy(&p, va + i * PAGE, OUT_AT + (1 + i) * PAGE, PAGE);
	engine_run(e, &p);
	return e->out.cpu + PAGE;
}

void gpu_has_pattern(struct engine *e, uint64_t va, unsigned int first, unsigned int pages, uint32_t seed)
{
	for (unsigned int done = 0; done < pages; done += COPIED) {
		unsigned int count = pages - done < COPIED ? pages - done : COPIED;
		const uint8_t *seen = copied(e, va + done * PAGE, count);

		for (unsigned int i = 0; i < count; i++)
			page_has(seen + i * PAGE, "GPU", first + done + i, seed, 0, 0);
	}
}

void gpu_has_zeroes(struct engine *e, uint64_t va, unsigned int pages)
{
	for (unsigned int first = 0; first < pages; first += COPIED) {
		unsigned int count = pages - first < COPIED ? pages - first : COPIED;
		const uint8_t *seen = copied(e, va + first * PAGE, count);

		for (unsigned int i = 0; i < count; i++)
			page_is_zero(seen + i * PAGE, "GPU", first + i);
	}
}

void gpu_adds(struct engine *e, uint64_t va, unsigned int pages, unsigned int word, uint64_t value)
{
	for (unsigned int first = 0; first < pages; first += 400) {
		unsigned int count = pages - first < 400 ? pages - first : 400;
		struct packets p = { .n = 0 };

		for (unsigned int i = 0; i < count; i++)
			sdma_atomic(&p, 47, va + (first + i) * PAGE + 8 * word, value);
		engine_run(e, &p);
	}
}

uint64_t settled_vram(const struct nfile *file)
{
	uint64_t used = heap_used(file, VRAM);

	for (unsigned int still = 0; still < 10; still++) {
		uint64_t now;

		usleep(20000);
		now = heap_used(file, VRAM);
		if (now != used)
			still = 0;
		used = now;
	}
	return used;
}

void await_vram(const struct nfile *file, uint64_t most)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (heap_used(file, VRAM) > most && now_ms() < end)
		usleep(10000);
	CHECK_OP(heap_used(file, VRAM), <=, most);
}

void dirty_vram(struct engine *e)
{
	/* Where the cases have nothing. */
	const uint64_t at = AT + (1ul << 36), size = 8 * FILLED;
	struct nbo bos[64];
	unsigned int n = 0;
	uint64_t used = heap_used(&e->file, VRAM), total = heap_total(&e->file, VRAM);

	/* Not all of it, so that nobody is driven out. */
	for (; n < 64 && used + 2 * size <= total; used += size, n++) {
		struct packets p = { .n = 0 };

		CHECK_OK(nbo_create(&e->file, &bos[n], VRAM, size, 0));
		CHECK_OK(bind_one(&e->file, at + n * size, size, bos[n].handle, 0));
		for (uint64_t part = 0; part < size; part += FILLED)
			sdma_fill(&p, at + n * size + part, 0xdeadbeef, FILLED);
		engine_run(e, &p);
	}
	CHECK_OP(n, >, 0);
	CHECK_OK(unbind_one(&e->file, at, n * size));
	while (n--)
		CHECK_OK(nbo_close(&e->file, bos[n].handle));
}
