// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of the process that the GPU wrote, when the kernel takes memory back: what looks unchanged to the CPU's page
 * tables is not discarded.
 *
 * Beside the memory that the GPU uses lies as much that differs only in that no GPU uses it. Reclaim is over when all
 * of that is gone, so that a case in which nothing was reclaimed does not pass.
 */
#include "pm4_queue.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 64
#define HALF (PAGES * PAGE)

static char *memory;
static struct bo user;

/* Two halves of memory; the GPU may use the first. */
static void begin_with(int sharing)
{
	cpu_set_t here;

	if (!is_rkfd())
		SKIP("amdkfd does not mark pages dirty that the GPU may write: reclaim discards what it wrote");
	/* Pages on their way to the lists of reclaim wait on the CPU that sent them, which must be the one that reclaims. */
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	CHECK_EQ(sched_setaffinity(0, sizeof(here), &here), 0);
	begin(FLAGS_GTT);
	memory = mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
}

static void give_gpu(void)
{
	CHECK_OK(bo_wrap(&f.gpu, &user, FLAGS_USERPTR, memory, HALF));
	CHECK_OK(bo_map(&f.gpu, &user));
}

/* One word of each page, another place in each. */
static uint64_t word_of(unsigned int page)
{
	return page * PAGE + 4 * page;
}

static void gpu_writes(uint32_t seed)
{
	for (unsigned int i = 0; i < PAGES; i++)
		pm4_write(&f.p, user.va + word_of(i), seed + i);
	pm4_write(&f.p, f.out.va, seed);
	go();
	await32(bo32(&f.out, 0), seed, "the GPU's writes");
}

/* Pages of `at` that are in memory. */
static unsigned int resident(char *at)
{
	unsigned char present[PAGES];
	unsigned int n = 0;

	CHECK_EQ(mincore(at, HALF, present), 0);
	for (unsigned int i = 0; i < PAGES; i++)
		n += present[i] & 1;
	return n;
}

static void reclaim(void)
{
	uint64_t end = now_ms() + WAIT_MS;

	CHECK_EQ(resident(memory + HALF), PAGES);
	do {
		if (now_ms() > end)
			FAIL("%u pages that nobody uses are not reclaimed", resident(memory + HALF));
		CHECK_EQ(madvise(memory, 2 * HALF, MADV_PAGEOUT), 0);
	} while (resident(memory + HALF));
}

static void check_written(uint32_t seed)
{
	for (unsigned int i = 0; i < PAGES; i++)
		CHECK_EQ(*bo32(&user, word_of(i)), seed + i);
}

CASE(freed, "MADV_FREE, then the GPU writes: the pages keep what it wrote")
{
	begin_with(MAP_PRIVATE);
	for (uint32_t round = 1; round <= 10; round++) {
		memset(memory, 0x11, 2 * HALF);
		if (round == 1)
			give_gpu();
		CHECK_EQ(madvise(memory, 2 * HALF, MADV_FREE), 0);
		gpu_writes(round << 8);
		reclaim();
		check_written(round << 8);
	}
}

CASE(shared, "shared memory that was only read before the GPU writes it: the pages keep what it wrote")
{
	unsigned int sum = 0;

	begin_with(MAP_SHARED);
	for (unsigned int i = 0; i < 2 * PAGES; i++)
		sum += *(volatile char *)(memory + i * PAGE);
	CHECK_EQ(sum, 0);
	give_gpu();
	gpu_writes(0x700);
	reclaim();
	check_written(0x700);
	gpu_writes(0x800);
	check_written(0x800);
}
