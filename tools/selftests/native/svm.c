// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of a program that a GPU has by a mirror of the native interface and by attributes of /dev/kfd at once: each way moves it, and
 * the other one sees it where it is.
 */
#include "agent.h"
#include "migrate.h"
#include "smi.h"

#include <sys/mman.h>
#include <unistd.h>

#define N 96u
#define MOVES (KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_MIGRATE_START) | KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_MIGRATE_END))

static uint8_t *need_pattern(uint32_t seed)
{
	uint8_t *p = need_aligned(N * PAGE);

	CHECK_EQ(madvise(p, N * PAGE, MADV_NOHUGEPAGE), 0);
	pattern(p, 0, N, seed);
	return p;
}

static void prefetch_all(const struct agent *a, uint8_t *p, uint32_t location)
{
	uint64_t end = now_ms() + WAIT_MS;
	unsigned int wanted = location ? N : 0;

	for (;;) {
		CHECK_OK(svm_set(&a->gpu, p, N * PAGE, PREFETCH, location));
		if (device_pages(p, N) == wanted)
			return;
		if (now_ms() > end)
			FAIL("%u pages of %u are in VRAM", device_pages(p, N), N);
		usleep(1000);
	}
}

CASE_LIMIT(both_ways, "by a mirror and by attributes: each moves the memory, and both GPUs' address spaces see it where it is", 120)
{
	uint8_t *p = need_pattern(1);
	struct engine e;
	struct agent a;
	uint32_t id = moving_begin(&e, p, AT, N * PAGE, POPULATED);

	agent_open(&a, 0);
	agent_start(&a);
	CHECK_OK(svm_set(&a.gpu, p, N * PAGE, IN_PLACE, a.gpu.id));
	/* In by attributes. */
	prefetch_all(&a, p, a.gpu.id);
	gpu_has_pattern(&e, AT, 0, N, 1);
	gpu_adds(&e, AT, N, 1, 1);
	agent_adds(&a, p, N, 1, 1);
	CHECK_EQ(device_pages(p, N), N);
	CHECK_EQ(mirror_query(&e.file, id).vram_bytes, N * PAGE);
	/* Out by the mirror, which changes no attribute. */
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_SYSTEM, 0), N * PAGE);
	CHECK_EQ(device_pages(p, N), 0);
	CHECK_EQ(svm_get(&a.gpu, p, N * PAGE, PREFETCH), a.gpu.id);
	agent_has_added(&a, p, 0, N, 1, 1, 2);
	agent_adds(&a, p, N, 1, 1);
	gpu_adds(&e, AT, N, 1, 1);
	CHECK_EQ(device_pages(p, N), 0);
	/* In by the mirror, out by attributes. */
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
	agent_adds(&a, p, N, 1, 1);
	CHECK_EQ(device_pages(p, N), N);
	prefetch_all(&a, p, 0);
	gpu_adds(&e, AT, N, 1, 1);
	has_added(p, 0, N, 1, 1, 6);
	CHECK_EQ(mirror_query(&e.file, id).vram_bytes, 0);
	/* The mirror ends with the memory in VRAM, which the attributes go on showing. */
	prefetch_all(&a, p, a.gpu.id);
	engine_end(&e);
	agent_adds(&a, p, N, 1, 1);
	CHECK_EQ(device_pages(p, N), N);
	agent_stop(&a);
	has_added(p, 0, N, 1, 1, 7);
}

CASE(told, "SMI_EVENTS: a mirror's own moves are told to nobody, the touch that brings its memory back is")
{
	uint8_t *p = need_pattern(2);
	uint64_t out = 0;
	struct engine e;
	struct agent a;
	uint32_t id = moving_begin(&e, p, AT, N * PAGE, POPULATED);
	int fd;

	agent_open(&a, 0);
	fd = need_smi(&a.gpu, MOVES);
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_SYSTEM, 0), N * PAGE);
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
	smi_check_empty(fd);
	has_pattern(p, 0, N, 2);
	while (smi_is_readable(fd)) {
		struct smi_move move = smi_next_move(fd);

		CHECK_EQ(move.from, a.gpu.id);
		CHECK_EQ(move.to, 0);
		CHECK_EQ(move.trigger, KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU);
		if (move.event == KFD_SMI_EVENT_MIGRATE_END) {
			CHECK_EQ(move.error, 0);
			continue;
		}
		CHECK_EQ(move.prefetch, UNDEFINED);
		CHECK_EQ(move.preferred, UNDEFINED);
		out += move.size;
	}
	CHECK_OP(out, >=, N);
	engine_end(&e);
}
