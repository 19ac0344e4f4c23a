// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Mirrors of memory that the program changes: both sides see the same, and the GPU may what the program may.
 */
#include "mirror.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

CASE(protect, "mprotect: the GPU may what the program may, and again what it may again")
{
	struct engine e;
	uint8_t *p = need_memory(1024 * PAGE);

	engine_begin(&e);
	fill(p, 1024, 0x3000);
	need_mirror(&e.file, p, AT, 1024 * PAGE, 0);
	CHECK_EQ(mprotect(p, 600 * PAGE, PROT_READ), 0);
	gpu_sees(&e, AT, 1024, 0x3000);
	CHECK_EQ(mprotect(p, 600 * PAGE, PROT_NONE), 0);
	CHECK_EQ(gpu_read(&e, AT + 600 * PAGE), 0x3000 + 600);
	CHECK_EQ(mprotect(p, 600 * PAGE, PROT_READ | PROT_WRITE), 0);
	gpu_write(&e, AT + 599 * PAGE, 0x1234);
	CHECK_EQ(*word(p, 599 * PAGE), 0x1234);
	*word(p, 599 * PAGE) = 0x3000 + 599;
	gpu_sees(&e, AT, 1024, 0x3000);
	CHECK_EQ(mprotect(p, 600 * PAGE, PROT_READ), 0);
	must_fault(&e, AT + 10 * PAGE, true, DRM_RKFD_FAULT_WRITE | DRM_RKFD_FAULT_PRESENT);
	CHECK_EQ(*word(p, 10 * PAGE), 0x3000 + 10);
}

CASE(protected, "mprotect(PROT_NONE): the GPU cannot read what the program cannot")
{
	struct engine e;
	uint8_t *p = need_memory(4 * PAGE);

	engine_begin(&e);
	fill(p, 4, 0x50);
	need_mirror(&e.file, p, AT, 4 * PAGE, 0);
	CHECK_EQ(mprotect(p + PAGE, PAGE, PROT_NONE), 0);
	CHECK_EQ(gpu_read(&e, AT + 2 * PAGE), 0x52);
	must_fault(&e, AT + PAGE, false, 0);
}

CASE(replaced, "munmap, and other memory at the same addresses: the GPU sees that, never what was there")
{
	struct engine e;
	uint8_t *p = need_memory(1100 * PAGE);
	uint32_t id;

	engine_begin(&e);
	id = need_mirror(&e.file, p, AT, 1100 * PAGE, 0);
	for (unsigned int round = 1; round <= 20; round++) {
		fill(p, 1100, round << 16);
		gpu_sees(&e, AT, 1100, round << 16);
		CHECK_EQ(munmap(p + 300 * PAGE, 500 * PAGE), 0);
		CHECK_ERR(mirror_populate(&e.file, id, AT, 1100 * PAGE), EFAULT);
		CHECK_EQ(gpu_read(&e, AT + 299 * PAGE), (round << 16) + 299);
		CHECK_EQ(gpu_read(&e, AT + 800 * PAGE), (round << 16) + 800);
		CHECK(need_memory_at(p + 300 * PAGE, 500 * PAGE, MAP_FIXED) == p + 300 * PAGE);
		CHECK_OK(mirror_populate(&e.file, id, AT, 1100 * PAGE));
		CHECK_EQ(gpu_read(&e, AT + 300 * PAGE), 0);
	}
	CHECK(mirror_query(&e.file, id).changes >= 20);
	engine_end(&e);
}

CASE(unmapped, "munmap: the GPU cannot reach what is gone")
{
	struct engine e;
	uint8_t *p = need_memory(4 * PAGE);

	engine_begin(&e);
	fill(p, 4, 0x50);
	need_mirror(&e.file, p, AT, 4 * PAGE, 0);
	CHECK_EQ(munmap(p + PAGE, PAGE), 0);
	CHECK_EQ(gpu_read(&e, AT + 2 * PAGE), 0x52);
	must_fault(&e, AT + PAGE, true, DRM_RKFD_FAULT_WRITE);
}

CASE(discarded, "MADV_DONTNEED: the GPU sees zeroes, then what comes")
{
	struct engine e;
	uint8_t *p = need_memory(1024 * PAGE);

	engine_begin(&e);
	need_mirror(&e.file, p, AT, 1024 * PAGE, 0);
	for (unsigned int round = 1; round <= 20; round++) {
		fill(p, 1024, round << 16);
		gpu_write(&e, AT + 7 * PAGE + 4, round);
		gpu_sees(&e, AT, 1024, round << 16);
		CHECK_EQ(*word(p, 7 * PAGE + 4), round);
		CHECK_EQ(madvise(p + 5 * PAGE, 600 * PAGE, MADV_DONTNEED), 0);
		CHECK_EQ(gpu_read(&e, AT + 5 * PAGE), 0);
		CHECK_EQ(gpu_read(&e, AT + 7 * PAGE + 4), 0);
		CHECK_EQ(gpu_read(&e, AT + 4 * PAGE), (round << 16) + 4);
		CHECK_EQ(*word(p, 100 * PAGE), 0);
	}
	engine_end(&e);
}

/* Pages of the range that are in memory. */
static unsigned int resident(uint8_t *p, unsigned int pages)
{
	unsigned char present[64];
	unsigned int n = 0;

	CHECK(pages <= sizeof(present));
	CHECK_EQ(mincore(p, pages * PAGE, present), 0);
	for (unsigned int i = 0; i < pages; i++)
		n += present[i] & 1;
	return n;
}

CASE(reclaimed, "MADV_FREE, then the GPU writes: reclaim keeps what it wrote, and takes the pages beside it that look alike")
{
	enum { PAGES = 16 };
	struct engine e;
	/* The second half is what no GPU uses: when that is gone, reclaim has looked at the first, too. */
	uint8_t *p = need_memory(2 * PAGES * PAGE), *witness = p + PAGES * PAGE;
	cpu_set_t here;

	/* Pages on their way to the lists of reclaim wait on the CPU that sent them, which must be the one that reclaims. */
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	CHECK_EQ(sched_setaffinity(0, sizeof(here), &here), 0);
	madvise(p, 2 * PAGES * PAGE, MADV_NOHUGEPAGE);
	engine_begin(&e);
	fill(p, 2 * PAGES, 0x1000);
	need_mirror(&e.file, p, AT, PAGES * PAGE, 0);
	for (unsigned int round = 1; round <= 4; round++) {
		uint64_t end = now_ms() + WAIT_MS;

		fill(p, 2 * PAGES, round << 16);
		CHECK_EQ(madvise(p, 2 * PAGES * PAGE, MADV_FREE), 0);
		for (unsigned int i = 0; i < PAGES; i++)
			gpu_write(&e, AT + i * PAGE + 4 * i, (round << 8) + i);
		CHECK_EQ(resident(witness, PAGES), PAGES);
		do {
			if (now_ms() > end)
				FAIL("%u pages that nobody uses are not reclaimed", resident(witness, PAGES));
			CHECK_EQ(madvise(p, 2 * PAGES * PAGE, MADV_PAGEOUT), 0);
		} while (resident(witness, PAGES));
		for (unsigned int i = 0; i < PAGES; i++) {
			CHECK_EQ(*word(p, i * PAGE + 4 * i), (round << 8) + i);
			CHECK_EQ(gpu_read(&e, AT + i * PAGE + 4 * i), (round << 8) + i);
		}
	}
	engine_end(&e);
}

CASE(forked, "fork: what the GPU or the CPU writes afterwards is the parent's alone, and both see it")
{
	struct engine e;
	uint8_t *p = need_memory(64 * PAGE);

	engine_begin(&e);
	need_mirror(&e.file, p, AT, 64 * PAGE, 0);
	for (unsigned int round = 1; round <= 10; round++) {
		int go[2], status;
		pid_t child;

		fill(p, 64, round << 16);
		CHECK_EQ(pipe(go), 0);
		child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			char byte;

			close(go[1]);
			/* Until the parent has written. */
			if (read(go[0], &byte, 1) != 0)
				_exit(1);
			for (unsigned int i = 0; i < 64; i++)
				if (*word(p, i * PAGE) != (round << 16) + i)
					_exit(2);
			_exit(0);
		}
		close(go[0]);
		gpu_write(&e, AT + 3 * PAGE, 0x333);
		CHECK_EQ(*word(p, 3 * PAGE), 0x333);
		*word(p, 4 * PAGE) = 0x444;
		CHECK_EQ(gpu_read(&e, AT + 4 * PAGE), 0x444);
		gpu_write(&e, AT + 4 * PAGE, 0x445);
		CHECK_EQ(*word(p, 4 * PAGE), 0x445);
		CHECK_EQ(gpu_read(&e, AT + 5 * PAGE), (round << 16) + 5);
		close(go[1]);
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
	}
	engine_end(&e);
}

CASE(moved, "mremap: what moves into the range is seen, what moves out of it is not")
{
	struct engine e;
	uint8_t *p = need_memory(600 * PAGE), *other = need_memory(600 * PAGE), *away = need_memory(600 * PAGE);
	uint32_t id;

	engine_begin(&e);
	fill(p, 600, 0x1000);
	fill(other, 600, 0x8000);
	id = need_mirror(&e.file, p, AT, 600 * PAGE, 0);
	gpu_sees(&e, AT, 600, 0x1000);
	CHECK(mremap(p, 600 * PAGE, 600 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
	CHECK_ERR(mirror_populate(&e.file, id, AT, PAGE), EFAULT);
	CHECK(mremap(other, 600 * PAGE, 600 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
	CHECK_OK(mirror_populate(&e.file, id, AT, 600 * PAGE));
	gpu_sees(&e, AT, 600, 0x8000);
	gpu_write(&e, AT, 0x5);
	CHECK_EQ(*word(p, 0), 0x5);
	CHECK_EQ(*word(away, 0), 0x1000);
	engine_end(&e);
}

CASE(shared, "shared memory: the GPU writes what every mapping shows; a hole that is punched reads as zeroes")
{
	struct engine e;
	uint8_t *p, *twin;
	int fd = memfd_create("mirror", 0);

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, 64 * PAGE), 0);
	p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	twin = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && twin != MAP_FAILED);
	engine_begin(&e);
	fill(twin, 64, 0x9000);
	need_mirror(&e.file, p, AT, 64 * PAGE, 0);
	gpu_sees(&e, AT, 64, 0x9000);
	gpu_write(&e, AT + 9 * PAGE, 0x99);
	CHECK_EQ(*word(twin, 9 * PAGE), 0x99);
	CHECK_EQ(madvise(twin + 9 * PAGE, PAGE, MADV_REMOVE), 0);
	CHECK_EQ(gpu_read(&e, AT + 9 * PAGE), 0);
	gpu_write(&e, AT + 9 * PAGE, 0x9a);
	CHECK_EQ(*word(twin, 9 * PAGE), 0x9a);
	engine_end(&e);
}

CASE(short_file, "a file that is shorter than its mapping is seen as far as it goes, and what it grows by when that is asked for")
{
	struct engine e;
	uint8_t *p, *all;
	uint32_t id;
	int fd = memfd_create("mirror", 0);

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, 600 * PAGE), 0);
	p = mmap(NULL, 1000 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	all = mmap(NULL, 1000 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && all != MAP_FAILED);
	fill(all, 600, 0x6000);
	engine_begin(&e);
	id = need_mirror(&e.file, p, AT + 5 * PAGE, 1000 * PAGE, 0);
	CHECK_EQ(mirror_query(&e.file, id).bytes, 600 * PAGE);
	gpu_sees(&e, AT + 5 * PAGE, 600, 0x6000);
	CHECK_ERR(mirror_populate(&e.file, id, AT + 5 * PAGE, 601 * PAGE), EFAULT);
	CHECK_EQ(ftruncate(fd, 700 * PAGE), 0);
	fill(all, 700, 0x6000);
	CHECK_OK(mirror_populate(&e.file, id, AT + 5 * PAGE, 700 * PAGE));
	gpu_sees(&e, AT + 5 * PAGE, 700, 0x6000);
	CHECK_EQ(ftruncate(fd, 10 * PAGE), 0);
	gpu_sees(&e, AT + 5 * PAGE, 10, 0x6000);
	must_fault(&e, AT + 15 * PAGE, false, 0);
}
