// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Mirrors: memory of the program at GPU addresses, and that both sides see the same whatever becomes of it.
 */
#include "mirror.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

CASE(both_see, "CPU and GPU see the same memory, wherever the GPU has it")
{
	static const uint64_t places[] = { AT, AT + PAGE, AT + HUGE - 3 * PAGE };
	struct engine e;

	engine_begin(&e);
	for (unsigned int i = 0; i < 3; i++) {
		struct drm_rkfd_mirror_query info;
		uint8_t *p = need_memory(1500 * PAGE);
		uint32_t id;

		fill(p, 1500, 0x1000);
		id = need_mirror(&e.file, p, places[i], 1500 * PAGE, 0);
		gpu_sees(&e, places[i], 1500, 0x1000);
		*word(p, 700 * PAGE) = 0xc0de;
		CHECK_EQ(gpu_read(&e, places[i] + 700 * PAGE), 0xc0de);
		gpu_write(&e, places[i] + 701 * PAGE + 8, 0xabc);
		CHECK_EQ(*word(p, 701 * PAGE + 8), 0xabc);
		info = mirror_query(&e.file, id);
		CHECK_EQ(info.address, (uintptr_t)p);
		CHECK_EQ(info.gpu_address, places[i]);
		CHECK_EQ(info.length, 1500 * PAGE);
		CHECK_EQ(info.flags, POPULATED);
		CHECK_EQ(info.bytes, 1500 * PAGE);
		CHECK_OK(mirror_destroy(&e.file, id));
		munmap(p, 1500 * PAGE);
	}
	engine_end(&e);
}

CASE(refused, "MIRROR_CREATE: each errno for its cause")
{
	struct drm_rkfd_mirror_create args, good;
	struct nfile file;
	uint8_t *p = need_memory(4 * PAGE);

	need_file(&file);
	good = (struct drm_rkfd_mirror_create){
		.address = (uintptr_t)p, .gpu_address = AT, .length = 4 * PAGE, .flags = POPULATED
	};
#define REFUSED(err, ...)                                                                           \
	do {                                                                                       \
		args = good;                                                                       \
		__VA_ARGS__;                                                                       \
		CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_CREATE, &args), err);              \
	} while (0)
	REFUSED(EINVAL, args.flags |= 16);
	REFUSED(EINVAL, args.id = 1);
	REFUSED(EINVAL, args.leaf = 1);
	REFUSED(EINVAL, args.flags = 0);
	REFUSED(EINVAL, args.length = 0);
	REFUSED(EINVAL, args.length = PAGE + 1);
	REFUSED(EINVAL, args.address += 8);
	REFUSED(EINVAL, args.gpu_address += 8);
	REFUSED(EOVERFLOW, args.address = ~0xffful);
	REFUSED(EOVERFLOW, args.gpu_address = ~0xffful; args.length = 2 * PAGE);
	REFUSED(EOVERFLOW, args.length = ~0xffful);
	REFUSED(EFAULT, args.address = 1ul << 63);
	REFUSED(EFAULT, args.address = 0xffff800000000000ul);
	REFUSED(EINVAL, args.gpu_address = file.device.va_start - PAGE);
	REFUSED(EINVAL, args.gpu_address = file.device.va_end - 3 * PAGE);
	REFUSED(EINVAL, args.gpu_address = 1ul << 48);
#undef REFUSED
	CHECK_OK(native(file.fd, DRM_IOCTL_RKFD_MIRROR_CREATE, &good));
	CHECK_ERR(mirror_destroy(&file, good.id + 1), ENOENT);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_DESTROY, &(struct drm_rkfd_mirror_destroy){ good.id, 1 }), EINVAL);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_QUERY, &(struct drm_rkfd_mirror_query){ .id = 0 }), ENOENT);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_MIRROR_POPULATE,
			 &(struct drm_rkfd_mirror_populate){ good.id, 1, AT, PAGE }), EINVAL);
	CHECK_ERR(mirror_populate(&file, good.id + 1, AT, PAGE), ENOENT);
	CHECK_ERR(mirror_populate(&file, good.id, AT, 0), EINVAL);
	CHECK_ERR(mirror_populate(&file, good.id, AT + 8, PAGE), EINVAL);
	CHECK_ERR(mirror_populate(&file, good.id, AT - PAGE, PAGE), EINVAL);
	CHECK_ERR(mirror_populate(&file, good.id, AT + 3 * PAGE, 2 * PAGE), EINVAL);
	CHECK_OK(mirror_populate(&file, good.id, AT, 4 * PAGE));
	munmap(p + PAGE, PAGE);
	CHECK_ERR(mirror_populate(&file, good.id, AT, 4 * PAGE), EFAULT);
	CHECK_OK(mirror_populate(&file, good.id, AT + 2 * PAGE, 2 * PAGE));
	CHECK_OK(mirror_destroy(&file, good.id));
	CHECK_ERR(mirror_destroy(&file, good.id), ENOENT);
	close_file(&file);
}

CASE(exclusive, "mirrors and buffers share no GPU addresses; what ended leaves them free")
{
	struct drm_rkfd_mirror_create args;
	struct nfile file;
	struct nbo bo;
	uint8_t *p = need_memory(8 * PAGE);
	uint32_t id;

	need_file(&file);
	need_nbo(&file, &bo, VRAM, 4 * PAGE);
	CHECK_OK(bind_one(&file, AT, 4 * PAGE, bo.handle, 0));
	CHECK_ERR(mirror_create(&file, p, AT + 3 * PAGE, 4 * PAGE, 0, &args), EADDRINUSE);
	CHECK_ERR(mirror_create(&file, p, AT - 3 * PAGE, 4 * PAGE, 0, &args), EADDRINUSE);
	id = need_mirror(&file, p, AT + 4 * PAGE, 4 * PAGE, 0);
	CHECK_ERR(mirror_create(&file, p, AT + 4 * PAGE, PAGE, 0, &args), EADDRINUSE);
	CHECK_ERR(mirror_create(&file, p, AT + 7 * PAGE, 2 * PAGE, 0, &args), EADDRINUSE);
	CHECK_ERR(bind_one(&file, AT + 7 * PAGE, PAGE, bo.handle, 0), EADDRINUSE);
	CHECK_ERR(bind_one(&file, AT + PAGE, 4 * PAGE, bo.handle, 0), EADDRINUSE);
	CHECK_ERR(unbind_one(&file, AT, 1ul << 30), EADDRINUSE);
	/* The same memory twice is fine. */
	CHECK_OK(mirror_create(&file, p, AT + 8 * PAGE, 8 * PAGE, 0, &args));
	CHECK_OK(mirror_destroy(&file, args.id));
	CHECK_OK(mirror_destroy(&file, id));
	CHECK_OK(bind_one(&file, AT + 4 * PAGE, 4 * PAGE, bo.handle, 0));
	CHECK_OK(unbind_one(&file, AT, 1ul << 30));
	drop_nbo(&file, &bo);
	close_file(&file);
}

CASE(large, "a large page of the program is one of the GPU, where both addresses allow it")
{
	struct drm_rkfd_mirror_create args;
	struct engine e;
	uint8_t *p = need_aligned(2 * HUGE);

	engine_begin(&e);
	madvise(p, 2 * HUGE, MADV_HUGEPAGE);
	fill(p, 1024, 0x2000);
	if (madvise(p, 2 * HUGE, MADV_COLLAPSE))
		SKIP("no large pages here");
	CHECK_OK(mirror_create(&e.file, p, AT, 2 * HUGE, 0, &args));
	CHECK_EQ(args.leaf, HUGE);
	CHECK_EQ(mirror_query(&e.file, args.id).bytes, 2 * HUGE);
	CHECK_EQ(mirror_query(&e.file, args.id).huge_bytes, 2 * HUGE);
	gpu_sees(&e, AT, 1024, 0x2000);
	/* One page of it differs: the rest is found again, too. */
	CHECK_EQ(mprotect(p + 5 * PAGE, PAGE, PROT_READ), 0);
	gpu_sees(&e, AT, 1024, 0x2000);
	CHECK_EQ(mirror_query(&e.file, args.id).huge_bytes, HUGE);
	CHECK_EQ(mirror_query(&e.file, args.id).bytes, 2 * HUGE);
	gpu_write(&e, AT + 6 * PAGE, 0x77);
	CHECK_EQ(*word(p, 6 * PAGE), 0x77);
	CHECK_EQ(*word(p, 5 * PAGE), 0x2005);
	CHECK_OK(mirror_destroy(&e.file, args.id));
	CHECK_OK(mirror_create(&e.file, p, AT + 16 * PAGE, 2 * HUGE, 0, &args));
	CHECK_EQ(args.leaf, 16 * PAGE);
	CHECK_EQ(mirror_query(&e.file, args.id).huge_bytes, 0);
	CHECK_EQ(gpu_read(&e, AT + 16 * PAGE + HUGE), 0x2000 + 512);
	CHECK_OK(mirror_destroy(&e.file, args.id));
	engine_end(&e);
}

CASE(untouched, "memory that nobody has touched reads as zeroes, and what the GPU writes there stays")
{
	struct engine e;
	uint8_t *p = need_memory(64 * PAGE);

	engine_begin(&e);
	/* One page is the zero page by now. */
	CHECK_EQ(*word(p, 3 * PAGE), 0);
	need_mirror(&e.file, p, AT, 64 * PAGE, 0);
	for (unsigned int i = 0; i < 64; i += 3) {
		CHECK_EQ(gpu_read(&e, AT + i * PAGE), 0);
		gpu_write(&e, AT + i * PAGE, 0x100 + i);
	}
	for (unsigned int i = 0; i < 64; i++)
		CHECK_EQ(*word(p, i * PAGE), i % 3 ? 0 : 0x100 + i);
	engine_end(&e);
}

CASE(read_only, "what is mirrored for reading cannot be written by the GPU, and the program's copy stays shared")
{
	struct drm_rkfd_mirror_create args;
	struct engine e;
	uint8_t *p = need_memory(4 * PAGE);

	engine_begin(&e);
	fill(p, 4, 0x50);
	CHECK_OK(mirror_create(&e.file, p, AT, 4 * PAGE, RO, &args));
	CHECK_EQ(mirror_query(&e.file, args.id).flags, RO | POPULATED);
	gpu_sees(&e, AT, 4, 0x50);
	*word(p, 0) = 0x51;
	CHECK_EQ(gpu_read(&e, AT), 0x51);
	must_fault(&e, AT + PAGE, true, DRM_RKFD_FAULT_WRITE | DRM_RKFD_FAULT_PRESENT);
	CHECK_EQ(*word(p, PAGE), 0x51);
}

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

CASE(guests, "two opens by one program: each has memory of its own at the same GPU addresses, and the same at others")
{
	struct engine a, b;
	uint8_t *p = need_memory(4 * PAGE), *q = need_memory(4 * PAGE), *both = need_memory(4 * PAGE);

	engine_begin(&a);
	engine_begin(&b);
	fill(p, 4, 0xa0);
	fill(q, 4, 0xb0);
	need_mirror(&a.file, p, AT, 4 * PAGE, 0);
	need_mirror(&b.file, q, AT, 4 * PAGE, 0);
	need_mirror(&a.file, both, AT + HUGE, 4 * PAGE, 0);
	need_mirror(&b.file, both, AT + 7 * HUGE, 4 * PAGE, 0);
	gpu_sees(&a, AT, 4, 0xa0);
	gpu_sees(&b, AT, 4, 0xb0);
	gpu_write(&a, AT + HUGE + 8, 0x5a);
	CHECK_EQ(gpu_read(&b, AT + 7 * HUGE + 8), 0x5a);
	CHECK_EQ(madvise(both, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(gpu_read(&a, AT + HUGE + 8), 0);
	CHECK_EQ(gpu_read(&b, AT + 7 * HUGE + 8), 0);
	engine_end(&a);
	gpu_sees(&b, AT, 4, 0xb0);
	engine_end(&b);
}

CASE(holes, "a range with holes shows what there is, and an access to a hole is told")
{
	struct engine e;
	uint8_t *p = mmap(NULL, 1ul << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint32_t id;

	CHECK(p != MAP_FAILED);
	CHECK_EQ(mprotect(p + (1ul << 35), 2 * PAGE, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(mprotect(p + (1ul << 30), PAGE, PROT_READ | PROT_WRITE), 0);
	fill(p + (1ul << 35), 2, 0x60);
	fill(p + (1ul << 30), 1, 0x70);
	engine_begin(&e);
	id = need_mirror(&e.file, p, 1ul << 40, 1ul << 36, 0);
	CHECK_EQ(mirror_query(&e.file, id).bytes, 3 * PAGE);
	gpu_sees(&e, (1ul << 40) + (1ul << 35), 2, 0x60);
	gpu_sees(&e, (1ul << 40) + (1ul << 30), 1, 0x70);
	must_fault(&e, (1ul << 40) + (1ul << 35) + 2 * PAGE, false, 0);
}

CASE(ended, "when a mirror ends, the GPU does not reach its memory any more")
{
	struct engine e;
	uint8_t *p = need_memory(4 * PAGE);
	uint32_t id;

	engine_begin(&e);
	fill(p, 4, 0x50);
	id = need_mirror(&e.file, p, AT, 4 * PAGE, 0);
	gpu_sees(&e, AT, 4, 0x50);
	CHECK_OK(mirror_destroy(&e.file, id));
	must_fault(&e, AT + PAGE, true, DRM_RKFD_FAULT_WRITE);
	CHECK_EQ(*word(p, PAGE), 0x51);
}

CASE(foreign, "a file shows memory of its opener: who got the descriptor sees it, adds nothing, and sees it end with its program")
{
	struct drm_rkfd_mirror_create args;
	struct nfile file = { 0 };
	uint8_t *p = need_memory(4 * PAGE);
	uint32_t id = 1;
	int pair[2], status;
	pid_t child;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char byte;

		need_file(&file);
		CHECK_EQ(need_mirror(&file, p, AT, 4 * PAGE, 0), 1);
		send_fd(pair[1], file.fd);
		close(pair[0]);
		if (read(pair[1], &byte, 1) != 1)
			_exit(1);
		_exit(0);
	}
	close(pair[1]);
	file.fd = receive_fd(pair[0]);
	CHECK_EQ(mirror_query(&file, id).bytes, 4 * PAGE);
	CHECK_ERR(mirror_create(&file, p, AT + HUGE, 4 * PAGE, 0, &args), EXDEV);
	CHECK_EQ(write(pair[0], "", 1), 1);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	CHECK_EQ(mirror_query(&file, id).bytes, 0);
	CHECK_ERR(mirror_populate(&file, id, AT, PAGE), ESRCH);
	CHECK_OK(mirror_destroy(&file, id));
	close(file.fd);
}

struct changer {
	uint8_t *p;
	_Atomic bool stop;
	unsigned int rounds;
};

/* What keeps the content, whatever the GPU does meanwhile. */
static void *change(void *arg)
{
	struct changer *c = arg;

	while (!c->stop) {
		int status;
		pid_t child;

		mprotect(c->p, 700 * PAGE, PROT_READ);
		mprotect(c->p, 700 * PAGE, PROT_READ | PROT_WRITE);
		madvise(c->p, 1024 * PAGE, MADV_COLD);
		madvise(c->p, 1024 * PAGE, MADV_COLLAPSE);
		child = fork();
		if (child == 0)
			_exit(0);
		if (child > 0)
			waitpid(child, &status, 0);
		c->rounds++;
		usleep(20000);
	}
	return NULL;
}

CASE_LIMIT(under_load, "the GPU reads and writes while the memory moves, splits and is shared: no byte is lost, no access refused", 120)
{
	struct changer c = { .p = need_aligned(1024 * PAGE) };
	struct engine e;
	pthread_t thread;
	uint32_t id;

	engine_begin(&e);
	fill(c.p, 1024, 0x4000);
	id = need_mirror(&e.file, c.p, AT, 1024 * PAGE, 0);
	CHECK_EQ(pthread_create(&thread, NULL, change, &c), 0);
	for (uint32_t round = 1; round <= 60 || c.rounds < 20; round++) {
		struct packets p = { .n = 0 };
		uint32_t at = round * 37 % 1000;

		/* Beyond what becomes read-only for a moment. */
		sdma_write(&p, AT + (700 + round % 300) * PAGE + 8, &round, 1);
		for (unsigned int i = 0; i < 24; i++)
			sdma_copy(&p, AT + (at + i) * PAGE, OUT_AT + 4 * i, 4);
		engine_run(&e, &p);
		for (unsigned int i = 0; i < 24; i++)
			CHECK_EQ(*out32(&e, 4 * i), 0x4000 + at + i);
		CHECK_EQ(*word(c.p, (700 + round % 300) * PAGE + 8), round);
	}
	c.stop = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(mirror_query(&e.file, id).changes > 0);
	gpu_sees(&e, AT, 1024, 0x4000);
	engine_end(&e);
}
