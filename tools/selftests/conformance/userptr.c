// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of the process on the GPU, while the process changes what is there: the GPU sees what the CPU
 * sees, and never what the process has given up.
 */
#include "userptr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

CASE(dontneed, "MADV_DONTNEED: the GPU sees the zeroes, then what the CPU writes, and the CPU what the GPU writes")
{
	begin(4 * PAGE);
	check_shared(&f, 0x40, 0x11);
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	CHECK_EQ(gpu_reads(&f, 0x40), 0);
	check_shared(&f, 0x40, 0x22);
}

CASE(dontneed_untouched, "MADV_DONTNEED, and the GPU is the first to touch the memory again")
{
	begin(4 * PAGE);
	check_shared(&f, PAGE, 0x11);
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	gpu_writes(&f, PAGE + 4, 0x33);
	CHECK_EQ(*bo32(&f.user, PAGE + 4), 0x33);
	CHECK_EQ(*bo32(&f.user, PAGE), 0);
}

CASE(dontneed_100, "100 times MADV_DONTNEED")
{
	begin(2 * PAGE);
	for (uint32_t i = 1; i <= 100; i++) {
		CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
		check_shared(&f, PAGE - 4, i);
		check_shared(&f, PAGE, ~i);
	}
}

CASE(replaced, "mmap over the memory: the GPU sees the new memory")
{
	begin(4 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK(mmap((void *)f.user.va, f.user.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == (void *)f.user.va);
	check_shared(&f, 0, 0x22);
	check_shared(&f, 3 * PAGE, 0x33);
}

CASE(middle_of_large, "one page in the middle of 4 MiB changes: all others keep their content")
{
	const uint64_t size = 4 * MIB, hole = 2 * MIB + 5 * PAGE;

	begin(size);
	for (uint64_t at = 0; at < size; at += PAGE)
		*bo32(&f.user, at) = 0x1000 + at / PAGE;
	CHECK_EQ(gpu_reads(&f, hole), 0x1000 + hole / PAGE);
	CHECK_EQ(madvise((void *)(f.user.va + hole), PAGE, MADV_DONTNEED), 0);
	*bo32(&f.user, hole + 4) = 0x77;
	for (uint64_t at = 0; at < size; at += 37 * PAGE)
		CHECK_EQ(gpu_reads(&f, at), 0x1000 + at / PAGE);
	CHECK_EQ(gpu_reads(&f, hole), 0);
	CHECK_EQ(gpu_reads(&f, hole + 4), 0x77);
	CHECK_EQ(gpu_reads(&f, hole - PAGE), 0x1000 + hole / PAGE - 1);
	CHECK_EQ(gpu_reads(&f, hole + PAGE), 0x1000 + hole / PAGE + 1);
}

/* Changes of some pages of this much are to leave the others alone. */
#define LARGE (8 * MIB)

static void number_pages(void)
{
	for (uint64_t at = 0; at < f.user.size; at += PAGE)
		*bo32(&f.user, at) = 0x1000 + at / PAGE;
}

/* Pages here and there have their numbers, and both sides see both's writes, but in [from, to). */
static void check_numbers(uint64_t from, uint64_t to)
{
	for (uint64_t at = 0; at < f.user.size; at += 127 * PAGE) {
		if (at >= from && at < to)
			continue;
		CHECK_EQ(gpu_reads(&f, at), 0x1000 + at / PAGE);
		gpu_writes(&f, at + 8, 0x2000 + at / PAGE);
		CHECK_EQ(*bo32(&f.user, at + 8), 0x2000 + at / PAGE);
	}
}

CASE(hole_in_large, "munmap of one page of 8 MiB: what is further than 2 MiB from it stays shared, and the page faults")
{
	const uint64_t hole = 3 * MIB + 5 * PAGE;

	if (!is_rkfd())
		SKIP("other drivers take all of the buffer from the GPU");
	begin(LARGE);
	number_pages();
	CHECK_EQ(gpu_reads(&f, hole), 0x1000 + hole / PAGE);
	CHECK_EQ(munmap((void *)(f.user.va + hole), PAGE), 0);
	check_numbers(hole - 2 * MIB, hole + 2 * MIB);
	check_faults(&f, f.user.va + hole);
}

CASE(protected_part, "mprotect of one page of 8 MiB: what is further than 2 MiB from it stays shared, and all is when it may be written again")
{
	const uint64_t part = 3 * MIB + 5 * PAGE;
	void *at;

	if (!is_rkfd())
		SKIP("other drivers take all of the buffer from the GPU");
	begin(LARGE);
	number_pages();
	at = (void *)(f.user.va + part);
	CHECK_EQ(mprotect(at, PAGE, PROT_READ), 0);
	check_numbers(part - 2 * MIB, part + 2 * MIB);
	CHECK_EQ(mprotect(at, PAGE, PROT_READ | PROT_WRITE), 0);
	check_numbers(0, 0);
	check_shared(&f, part, 0x33);
}

CASE(moved_into_part, "mremap of one page into the middle of 8 MiB: the GPU sees that page, and all others keep their content")
{
	const uint64_t part = 5 * MIB + 7 * PAGE;
	uint32_t *from;

	begin(LARGE);
	number_pages();
	CHECK_EQ(gpu_reads(&f, part), 0x1000 + part / PAGE);
	from = memory(PAGE, PROT_READ | PROT_WRITE);
	from[0] = 0xabc;
	CHECK(mremap(from, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(f.user.va + part)) ==
	      (void *)(f.user.va + part));
	CHECK_EQ(gpu_reads(&f, part), 0xabc);
	check_shared(&f, part + 4, 0x44);
	check_numbers(part, part + PAGE);
}

CASE(forked_large, "fork with 8 MiB: parent and GPU share all pages as before, also where the parent writes first")
{
	int to_child[2], status;
	char byte = 'x';
	pid_t pid;

	begin(LARGE);
	number_pages();
	check_numbers(0, 0);
	CHECK_EQ(pipe(to_child), 0);
	pid = fork();
	if (pid == 0) {
		close(to_child[1]);
		/* What the GPU and the parent write meanwhile is not here. */
		if (read(to_child[0], &byte, 1) != 1)
			_exit(1);
		_exit(*bo32(&f.user, 4 * MIB) != 0x1000 + 4 * MIB / PAGE || *bo32(&f.user, 6 * MIB + 16) != 0);
	}
	*bo32(&f.user, 4 * MIB) = 0x66;
	CHECK_EQ(gpu_reads(&f, 4 * MIB), 0x66);
	gpu_writes(&f, 6 * MIB + 16, 0x77);
	CHECK_EQ(*bo32(&f.user, 6 * MIB + 16), 0x77);
	check_numbers(4 * MIB, 4 * MIB + PAGE);
	CHECK_EQ(write(to_child[1], &byte, 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	check_shared(&f, 4 * MIB, 0x88);
}

CASE(large_page_split, "one page of a large page of the process changes: all others keep their content, on both sides")
{
	const uint64_t hole = 2 * MIB + 9 * PAGE;
	uint8_t *at;

	begin(PAGE);
	at = memory(LARGE + 2 * MIB, PROT_READ | PROT_WRITE);
	at += -(uintptr_t)at % (2 * MIB);
	/* Where the kernel has none, these are small pages, which have to do as well. */
	madvise(at, LARGE, MADV_HUGEPAGE);
	memset(at, 0, LARGE);
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR, at, LARGE));
	CHECK_OK(bo_map(&f.gpu, &f.user));
	number_pages();
	check_numbers(0, 0);
	CHECK_EQ(madvise(at + hole, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(gpu_reads(&f, hole), 0);
	check_shared(&f, hole, 0x55);
	CHECK_EQ(gpu_reads(&f, hole - PAGE), 0x1000 + hole / PAGE - 1);
	CHECK_EQ(gpu_reads(&f, hole + PAGE), 0x1000 + hole / PAGE + 1);
	check_numbers(hole, hole + PAGE);
}

CASE(unmapped_access, "munmap: the queue works on, and an access to what is gone faults")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_EQ(munmap((void *)f.user.va, f.user.size), 0);
	pm4_write(&f.p, f.out.va + 8, 0x44);
	run(&f);
	CHECK_EQ(*bo32(&f.out, 8), 0x44);
	check_faults(&f, f.user.va + PAGE + 0x10);
}

CASE(unmapped_active, "munmap while a queue waits in a packet: the packet goes on, and the memory is not reached")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	pm4_write(&f.p, f.out.va + 24, 3);
	pm4_wait(&f.p, EQUAL, f.out.va + 16, 1, 0xffffffff);
	pm4_write(&f.p, f.out.va + 20, 2);
	submit(&f.q, &f.p);
	f.p.n = 0;
	await32(bo32(&f.out, 24), 3, "the packet before the wait");
	CHECK_EQ(munmap((void *)f.user.va, f.user.size), 0);
	*bo32(&f.out, 16) = 1;
	await32(bo32(&f.out, 20), 2, "the packet after the wait");
	check_faults(&f, f.user.va);
}

CASE(unmapped_part, "munmap of one page takes that page from the GPU")
{
	begin(4 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_EQ(munmap((void *)(f.user.va + PAGE), PAGE), 0);
	check_faults(&f, f.user.va + PAGE);
}

CASE(unmapped_free, "munmap, then UNMAP and FREE of the buffer")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_EQ(munmap((void *)f.user.va, f.user.size), 0);
	CHECK_OK(bo_unmap(&f.gpu, &f.user));
	CHECK_OK(bo_free(&f.gpu, &f.user));
	pm4_write(&f.p, f.out.va + 8, 0x44);
	run(&f);
	CHECK_EQ(*bo32(&f.out, 8), 0x44);
}

CASE(unmapped_again, "munmap, new memory in the same place and a new buffer of it")
{
	struct bo again;
	void *at;

	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	at = (void *)f.user.va;
	CHECK_EQ(munmap(at, f.user.size), 0);
	CHECK_OK(bo_unmap(&f.gpu, &f.user));
	CHECK_OK(bo_free(&f.gpu, &f.user));
	CHECK(mmap(at, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	CHECK_OK(bo_wrap(&f.gpu, &again, FLAGS_USERPTR, at, 2 * PAGE));
	CHECK_OK(bo_map(&f.gpu, &again));
	f.user = again;
	check_shared(&f, PAGE, 0x22);
}

CASE(moved_away, "mremap: what has moved away faults at its old address")
{
	void *to;

	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	to = mremap((void *)f.user.va, f.user.size, f.user.size, MREMAP_MAYMOVE | MREMAP_FIXED,
		    (void *)need_address(f.user.size, PAGE));
	CHECK(to != MAP_FAILED);
	CHECK_EQ(*(volatile uint32_t *)to, ~0x11u);
	check_faults(&f, f.user.va);
}

CASE(moved_in, "mremap: what is moved into the place is what the GPU sees")
{
	uint32_t *from;

	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	from = memory(2 * PAGE, PROT_READ | PROT_WRITE);
	from[0] = 0xabc;
	CHECK(mremap(from, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)f.user.va) ==
	      (void *)f.user.va);
	CHECK_EQ(gpu_reads(&f, 0), 0xabc);
	check_shared(&f, PAGE, 0x22);
}

CASE(protected, "mprotect to read-only and back")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_EQ(mprotect((void *)f.user.va, f.user.size, PROT_READ), 0);
	CHECK_EQ(*bo32(&f.user, 0), ~0x11u);
	CHECK_EQ(mprotect((void *)f.user.va, f.user.size, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(gpu_reads(&f, 0), ~0x11u);
	check_shared(&f, 0, 0x22);
}

static uint32_t *memory_read_only(void)
{
	uint32_t *p = memory(PAGE, PROT_READ | PROT_WRITE);

	p[3] = 0x99;
	CHECK_EQ(mprotect(p, PAGE, PROT_READ), 0);
	return p;
}

CASE(read_only, "ALLOC: memory that the process may not write, for a GPU that may, is EPERM")
{
	struct bo refused;

	begin(PAGE);
	CHECK_ERR(bo_wrap(&f.gpu, &refused, FLAGS_USERPTR, memory_read_only(), PAGE), EPERM);
	check_shared(&f, 0, 0x11);
}

CASE(read_only_both, "ALLOC: memory that the process may not write, for a GPU that only reads, works")
{
	uint32_t *p;

	if (!is_rkfd())
		SKIP("other drivers want every buffer's memory writable");
	begin(PAGE);
	p = memory_read_only();
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR & ~WRITABLE, p, PAGE));
	CHECK_OK(bo_map(&f.gpu, &f.user));
	CHECK_EQ(gpu_reads(&f, 12), 0x99);
}

CASE(zero_page, "a buffer that the GPU only reads, of memory never touched: the GPU sees the first write of the CPU")
{
	begin(PAGE);
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR & ~WRITABLE, memory(PAGE, PROT_READ | PROT_WRITE), PAGE));
	CHECK_OK(bo_map(&f.gpu, &f.user));
	CHECK_EQ(gpu_reads(&f, 0), 0);
	*bo32(&f.user, 0) = 0x1234;
	CHECK_EQ(gpu_reads(&f, 0), 0x1234);
}

CASE(forked, "fork: parent and GPU share memory as before, the child has a copy of its own")
{
	int to_child[2], to_parent[2], status;
	char byte = 'x';
	pid_t pid;

	begin(4 * PAGE);
	check_shared(&f, 0, 0x11);
	*bo32(&f.user, 4) = 0x5a;
	CHECK_EQ(pipe(to_child), 0);
	CHECK_EQ(pipe(to_parent), 0);
	pid = fork();
	if (pid == 0) {
		close(to_child[1]);
		*bo32(&f.user, PAGE) = 0xc1;
		if (write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1)
			_exit(1);
		/* What the GPU and the parent wrote meanwhile is not here, what was before is. */
		_exit(*bo32(&f.user, 0) != ~0x11u || *bo32(&f.user, 4) != 0x5a || *bo32(&f.user, 8) != 0 ||
		      *bo32(&f.user, PAGE) != 0xc1);
	}
	CHECK_EQ(read(to_parent[0], &byte, 1), 1);
	CHECK_EQ(gpu_reads(&f, PAGE), 0);
	gpu_writes(&f, 8, 0x66);
	CHECK_EQ(*bo32(&f.user, 8), 0x66);
	check_shared(&f, 0, 0x22);
	check_shared(&f, PAGE, 0x33);
	CHECK_EQ(write(to_child[1], &byte, 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	check_shared(&f, 0, 0x44);
}

CASE(shared_file, "a shared file: the GPU sees what others write, and a fault where the file was cut")
{
	volatile uint32_t *other;
	void *at;
	int fd;

	begin(PAGE);
	fd = memfd_create("shared", 0);
	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, 2 * PAGE), 0);
	at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	other = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED && (void *)other != MAP_FAILED);
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR, at, 2 * PAGE));
	CHECK_OK(bo_map(&f.gpu, &f.user));
	other[1] = 0x777;
	CHECK_EQ(gpu_reads(&f, 4), 0x777);
	gpu_writes(&f, 8, 0x888);
	CHECK_EQ(other[2], 0x888);
	CHECK_EQ(ftruncate(fd, 0), 0);
	check_faults(&f, f.user.va + PAGE);
}

CASE(before_map, "memory that changes between ALLOC and MAP")
{
	begin(PAGE);
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR, memory(2 * PAGE, PROT_READ | PROT_WRITE), 2 * PAGE));
	*bo32(&f.user, 0) = 1;
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	*bo32(&f.user, 0) = 2;
	CHECK_OK(bo_map(&f.gpu, &f.user));
	CHECK_EQ(gpu_reads(&f, 0), 2);
	check_shared(&f, PAGE, 3);
}

/* An event that the kernel has counted since it was started. */
static uint64_t events(const char *name)
{
	FILE *table = fopen("/proc/vmstat", "r");
	unsigned long count;
	char key[64];
	bool found = false;

	CHECK(table != NULL);
	while (!found && fscanf(table, "%63s %lu", key, &count) == 2)
		found = !strcmp(key, name);
	fclose(table);
	CHECK(found);
	return count;
}

CASE(large_once, "memory that nobody has touched comes with a page fault for each large page, not for each 4 KiB of it")
{
	const uint64_t large = 2 * MIB, size = 16 * large;
	uint64_t at, faults, pages;
	struct bo user;

	begin(PAGE);
	if (!is_rkfd())
		SKIP("how memory is faulted in is the driver's choice");
	at = ((uintptr_t)memory(size + large, PROT_READ | PROT_WRITE) + large - 1) & ~(large - 1);
	if (madvise((void *)at, size, MADV_HUGEPAGE))
		SKIP("the kernel has no large pages");
	faults = events("pgfault");
	pages = events("thp_fault_alloc");
	CHECK_OK(bo_wrap(&f.gpu, &user, FLAGS_USERPTR, (void *)at, size));
	CHECK_OK(bo_map(&f.gpu, &user));
	if (events("thp_fault_alloc") - pages < size / large)
		SKIP("not enough large pages are free");
	/* Other programs have some. */
	CHECK(events("pgfault") - faults < size / PAGE / 4);
}

CASE(after_unmap, "memory that changes between UNMAP and the next MAP")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_OK(bo_unmap(&f.gpu, &f.user));
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	*bo32(&f.user, 0) = 0x55;
	CHECK_OK(bo_map(&f.gpu, &f.user));
	CHECK_EQ(gpu_reads(&f, 0), 0x55);
}

CASE(two_buffers, "two buffers of the same memory follow it together")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = { 0 };
	struct fixture other;

	begin(2 * PAGE);
	args = (struct kfd_ioctl_alloc_memory_of_gpu_args){
		.va_addr = need_address(2 * PAGE, PAGE),
		.mmap_offset = f.user.va,
		.size = 2 * PAGE,
		.gpu_id = f.gpu.id,
		.flags = FLAGS_USERPTR,
	};
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args));
	other = f;
	other.user = (struct bo){ .handle = args.handle, .va = args.va_addr, .size = args.size };
	CHECK_OK(bo_map(&f.gpu, &other.user));
	for (uint32_t i = 1; i <= 20; i++) {
		CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
		pm4_write(&f.p, f.user.va + 4 * i, i);
		pm4_write(&f.p, other.user.va + PAGE + 4 * i, ~i);
		run(&f);
		CHECK_EQ(*bo32(&f.user, 4 * i), i);
		CHECK_EQ(*bo32(&f.user, PAGE + 4 * i), ~i);
	}
}
