// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Buffers of another driver: memory that udmabuf shares is imported, and the GPU and the CPU see what the other writes.
 */
#include "pm4_queue.h"
#include "udmabuf.h"

#include <sys/stat.h>

/* More than 2 MiB, and no power of two. */
#define PAGES 515u
#define LAST (PAGES * PAGE - 4)
/* A prime number of pages, and a step from page to page that meets all of them. */
#define SCATTERED 601u
#define STEP 77u
/* What one submission has packets for. */
#define BATCH 32u

static int import_on(const struct gpu *gpu, int fd, uint64_t va, uint64_t *handle)
{
	struct kfd_ioctl_import_dmabuf_args args = { .va_addr = va, .gpu_id = gpu->id, .dmabuf_fd = (uint32_t)fd };
	int err = kfd_call(gpu->fd, AMDKFD_IOC_IMPORT_DMABUF, &args);

	*handle = args.handle;
	return err;
}

/* At an address of its own, not mapped yet. */
static void need_import(const struct gpu *gpu, int fd, uint64_t size, struct bo *bo)
{
	*bo = (struct bo){ .va = need_address(size, 2ul << 20), .size = size };
	CHECK_OK(import_on(gpu, fd, bo->va, &bo->handle));
	CHECK_EQ(bo->handle >> 32, gpu->id);
}

static uint32_t gpu_reads(uint64_t va)
{
	static uint32_t round;

	pm4_copy(&f.p, 1, va, f.out.va, false);
	pm4_write(&f.p, f.out.va + 8, ++round);
	go();
	await32(bo32(&f.out, 8), round, "a word that the GPU copies");
	return *bo32(&f.out, 0);
}

static void gpu_writes(uint64_t va, uint32_t value)
{
	static uint32_t round = 0x10000;

	pm4_write(&f.p, va, value);
	pm4_write(&f.p, f.out.va + 12, ++round);
	go();
	await32(bo32(&f.out, 12), round, "a word that the GPU writes");
}

/* The GPU at `va` and the CPU at `offset` of the memfd have the same word. */
static void check_word(const struct udmabuf *u, uint64_t va, uint64_t offset, uint32_t value)
{
	gpu_writes(va, value);
	CHECK_EQ(*udmabuf32(u, offset), value);
	*udmabuf32(u, offset) = ~value;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	CHECK_EQ(gpu_reads(va), ~value);
}

CASE(both_see, "imported memory of another driver: the GPU sees what the CPU writes, and the CPU what the GPU writes")
{
	static const uint64_t offsets[] = { 0, PAGE - 4, 17 * PAGE, 2ul << 20, LAST };
	struct udmabuf u;
	struct bo bo;

	begin(FLAGS_GTT);
	need_udmabuf(&u, PAGES, NULL, 0);
	*udmabuf32(&u, LAST - 4) = 0xfeed;
	need_import(&f.gpu, u.fd, u.size, &bo);
	CHECK_OK(bo_map(&f.gpu, &bo));
	CHECK_EQ(gpu_reads(bo.va + LAST - 4), 0xfeed);
	for (uint32_t i = 0; i < 5; i++)
		check_word(&u, bo.va + offsets[i], offsets[i], 0x1000 + i);
	drop_bo(&f.gpu, &bo);
	end();
}

CASE(scattered, "pages that lie anywhere in memory, one by one, are at the GPU in the order of the dma-buf")
{
	uint32_t order[SCATTERED];
	struct udmabuf u;
	struct bo bo;

	begin(FLAGS_GTT);
	for (uint32_t i = 0; i < SCATTERED; i++)
		order[i] = (i * STEP + 5) % SCATTERED;
	need_udmabuf(&u, SCATTERED, order, SCATTERED);
	need_import(&f.gpu, u.fd, u.size, &bo);
	CHECK_OK(bo_map(&f.gpu, &bo));
	/* Each page by itself: what the CPU wrote into page order[i] of the memfd is in page i of the dma-buf. */
	for (uint32_t i = 0; i < SCATTERED; i++)
		*udmabuf32(&u, order[i] * PAGE + 4 * i % PAGE) = 0xc0000 + i;
	for (uint32_t first = 0; first < SCATTERED; first += BATCH) {
		uint32_t end = first + BATCH < SCATTERED ? first + BATCH : SCATTERED;

		for (uint32_t i = first; i < end; i++) {
			uint64_t va = bo.va + i * PAGE + 4 * i % PAGE;

			pm4_copy(&f.p, 1, va, f.out.va + PAGE + 4 * i, false);
			pm4_write(&f.p, va, 0xd0000 + i);
		}
		pm4_write(&f.p, f.out.va, end);
		go();
		await32(bo32(&f.out, 0), end, "the end of a batch");
	}
	for (uint32_t i = 0; i < SCATTERED; i++) {
		CHECK_EQ(*bo32(&f.out, PAGE + 4 * i), 0xc0000 + i);
		CHECK_EQ(*udmabuf32(&u, order[i] * PAGE + 4 * i % PAGE), 0xd0000 + i);
	}
	drop_bo(&f.gpu, &bo);
	end();
}

CASE(page_twice, "a page that a dma-buf has twice is one page, and pages that it has not are untouched")
{
	static const uint32_t order[] = { 2, 0, 2, 3 };
	struct udmabuf u;
	struct bo bo;

	begin(FLAGS_GTT);
	need_udmabuf(&u, 5, order, 4);
	for (uint32_t i = 0; i < 5; i++)
		*udmabuf32(&u, i * PAGE) = 0xa0 + i;
	need_import(&f.gpu, u.fd, 4 * PAGE, &bo);
	CHECK_OK(bo_map(&f.gpu, &bo));
	gpu_writes(bo.va, 0x1234);
	CHECK_EQ(gpu_reads(bo.va + 2 * PAGE), 0x1234);
	gpu_writes(bo.va + PAGE, 0x1235);
	gpu_writes(bo.va + 3 * PAGE, 0x1236);
	CHECK_EQ(*udmabuf32(&u, 0), 0x1235);
	CHECK_EQ(*udmabuf32(&u, PAGE), 0xa1);
	CHECK_EQ(*udmabuf32(&u, 2 * PAGE), 0x1234);
	CHECK_EQ(*udmabuf32(&u, 3 * PAGE), 0x1236);
	CHECK_EQ(*udmabuf32(&u, 4 * PAGE), 0xa4);
	drop_bo(&f.gpu, &bo);
	end();
}

CASE(two_imports, "two imports of one dma-buf are two buffers with the same memory; each goes by itself")
{
	struct bo one, two;
	struct udmabuf u;

	begin(FLAGS_GTT);
	need_udmabuf(&u, PAGES, NULL, 0);
	need_import(&f.gpu, u.fd, u.size, &one);
	need_import(&f.gpu, u.fd, u.size, &two);
	CHECK_NE(one.handle, two.handle);
	CHECK_OK(bo_map(&f.gpu, &one));
	CHECK_OK(bo_map(&f.gpu, &two));
	gpu_writes(one.va + LAST, 0x51);
	CHECK_EQ(gpu_reads(two.va + LAST), 0x51);
	drop_bo(&f.gpu, &one);
	check_word(&u, two.va + LAST, LAST, 0x52);
	drop_bo(&f.gpu, &two);
	end();
}

enum step {
	CLOSE_BUFFER,
	CLOSE_MEMORY,
	UNMAP,
	FREE,
	STEPS,
};

/* Gives everything up in one order, and demands the pages back in the end. */
static void give_up(const enum step steps[STEPS])
{
	bool mapped = true, visible = true;
	struct udmabuf u;
	struct bo bo;
	int watch;

	need_udmabuf(&u, PAGES, NULL, 0);
	watch = dup(u.memfd);
	CHECK(watch >= 0);
	need_import(&f.gpu, u.fd, u.size, &bo);
	CHECK_OK(bo_map(&f.gpu, &bo));
	for (uint32_t i = 0; i < STEPS; i++) {
		switch (steps[i]) {
		case CLOSE_BUFFER:
			CHECK_EQ(close(u.fd), 0);
			break;
		case CLOSE_MEMORY:
			CHECK_EQ(close(u.memfd), 0);
			CHECK_EQ(munmap(u.cpu, u.size), 0);
			visible = false;
			break;
		case UNMAP:
			CHECK_OK(bo_unmap(&f.gpu, &bo));
			mapped = false;
			break;
		default:
			CHECK_OK(bo_free(&f.gpu, &bo));
			break;
		}
		if (mapped) {
			gpu_writes(bo.va + LAST, 0x600 + i);
			if (visible)
				CHECK_EQ(*udmabuf32(&u, LAST), 0x600 + i);
			else
				CHECK_EQ(gpu_reads(bo.va + LAST), 0x600 + i);
		}
		/* A mapping of the CPU would keep it from being sealed, too. */
		if (i < STEPS - 1 && !visible)
			CHECK(is_shared(watch));
	}
	await_unshared(watch);
	close(watch);
	munmap((void *)bo.va, bo.size);
}

CASE(every_order, "in whatever order buffer, mapping, handle and memory are given up: used until then, given back in the end")
{
	unsigned int orders = 0;

	begin(FLAGS_GTT);
	for (unsigned int code = 0; code < 256; code++) {
		enum step steps[STEPS];
		unsigned int seen = 0, place[STEPS];

		for (unsigned int i = 0; i < STEPS; i++) {
			steps[i] = code >> 2 * i & 3;
			place[steps[i]] = i;
			seen |= 1u << steps[i];
		}
		/* Each once, and a buffer that is mapped is not freed. */
		if (seen != 15 || place[FREE] < place[UNMAP])
			continue;
		give_up(steps);
		orders++;
	}
	CHECK_EQ(orders, 12);
	end();
}

static struct udmabuf passed;

static void end_in_use(void *unused)
{
	struct bo one, two;

	begin(FLAGS_GTT);
	need_import(&f.gpu, passed.fd, passed.size, &one);
	need_import(&f.gpu, passed.fd, passed.size, &two);
	CHECK_OK(bo_map(&f.gpu, &one));
	CHECK_OK(bo_map(&f.gpu, &two));
	gpu_writes(one.va, 0x7001);
	/* Writes go on while the process ends. */
	for (uint32_t i = 0; i < BATCH; i++)
		pm4_write(&f.p, two.va + LAST, 0x7100 + i);
	go();
}

CASE(process_ends, "a process that ends with everything in use leaves the memory to its owner, and gives it back")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_udmabuf(&passed, PAGES, NULL, 0);
	for (unsigned int i = 0; i < 3; i++) {
		*udmabuf32(&passed, 0) = 0;
		CHECK_EQ(in_child(end_in_use, NULL), 0);
		CHECK_EQ(*udmabuf32(&passed, 0), 0x7001);
	}
	CHECK_EQ(munmap(passed.cpu, passed.size), 0);
	CHECK(is_shared(passed.memfd));
	CHECK_EQ(close(passed.fd), 0);
	await_unshared(passed.memfd);
}

static uint64_t inode(int fd)
{
	struct stat st;

	CHECK_EQ(fstat(fd, &st), 0);
	return st.st_ino;
}

CASE(exported_again, "EXPORT_DMABUF of an import gives the dma-buf that it came from, also when no other descriptor is left")
{
	struct kfd_ioctl_export_dmabuf_args args = { .flags = O_CLOEXEC };
	struct udmabuf u;
	uint64_t wanted;
	struct bo bo;

	begin(FLAGS_GTT);
	need_udmabuf(&u, PAGES, NULL, 0);
	need_import(&f.gpu, u.fd, u.size, &bo);
	CHECK_OK(bo_map(&f.gpu, &bo));
	wanted = inode(u.fd);
	CHECK_EQ(close(u.fd), 0);
	args.handle = bo.handle;
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_EXPORT_DMABUF, &args));
	CHECK_EQ(inode((int)args.dmabuf_fd), wanted);
	drop_bo(&f.gpu, &bo);
	need_import(&f.gpu, (int)args.dmabuf_fd, u.size, &bo);
	CHECK_OK(bo_map(&f.gpu, &bo));
	check_word(&u, bo.va + LAST, LAST, 0x81);
	drop_bo(&f.gpu, &bo);
	end();
}

CASE(refused, "errors: no file EBADF, no dma-buf or unknown GPU EINVAL, no address space ENODEV; in use EBUSY; no info EINVAL")
{
	struct kfd_ioctl_get_dmabuf_info_args about = { 0 };
	struct gpu gpu, unknown, unbound;
	uint64_t handle, va;
	struct udmabuf u;
	struct bo bo, at_same;

	need_gpu(&unbound, 0);
	need_udmabuf(&u, PAGES, NULL, 0);
	if (is_rkfd())
		CHECK_ERR(import_on(&unbound, u.fd, need_address(u.size, PAGE), &handle), ENODEV);
	need_vm(&gpu, 0);
	va = need_address(u.size, PAGE);
	unknown = gpu;
	unknown.id ^= 0x5555;
	CHECK_ERR(import_on(&unknown, u.fd, va, &handle), EINVAL);
	CHECK_ERR(import_on(&gpu, 0x7fff, va, &handle), EBADF);
	CHECK_ERR(import_on(&gpu, u.memfd, va, &handle), EINVAL);
	about.dmabuf_fd = (uint32_t)u.fd;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_GET_DMABUF_INFO, &about), EINVAL);
	/* None of these has kept anything. */
	need_import(&gpu, u.fd, u.size, &bo);
	CHECK_OK(bo_map(&gpu, &bo));
	CHECK_OK(bo_map(&gpu, &bo));
	CHECK_ERR(bo_free(&gpu, &bo), EBUSY);
	at_same = (struct bo){ .va = bo.va + PAGE, .size = u.size };
	CHECK_OK(import_on(&gpu, u.fd, at_same.va, &at_same.handle));
	CHECK_ERR(bo_map(&gpu, &at_same), EINVAL);
	CHECK_OK(bo_free(&gpu, &at_same));
	CHECK_ERR(bo_free(&gpu, &at_same), EINVAL);
	drop_bo(&gpu, &bo);
	CHECK_ERR(bo_map(&gpu, &bo), ENOMEM);
	CHECK_EQ(munmap(u.cpu, u.size), 0);
	CHECK_EQ(close(u.fd), 0);
	await_unshared(u.memfd);
}

/* Two GPUs. */

static struct fixture second;

static void begin_two(void)
{
	uint32_t ids[MAX_GPUS];

	if (gpu_ids(need_kfd(), ids, MAX_GPUS) < 2)
		SKIP("one GPU");
	begin(FLAGS_GTT);
	need_vm_of(&second.gpu, 1, f.gpu.fd);
	need_queue(&second.gpu, &second.q, COMPUTE);
	need_bo(&second.gpu, &second.out, FLAGS_GTT, 16 * PAGE);
}

/* Work goes to the other GPU from here on. */
static void switch_gpu(void)
{
	struct fixture other = second;

	second = f;
	f = other;
}

static void end_two(void)
{
	end();
	switch_gpu();
	end();
}

CASE(gpus_share, "two GPUs import one dma-buf: each sees what the other writes, and goes by itself")
{
	struct udmabuf u;
	struct bo one, two;

	begin_two();
	need_udmabuf(&u, PAGES, NULL, 0);
	need_import(&f.gpu, u.fd, u.size, &one);
	need_import(&second.gpu, u.fd, u.size, &two);
	CHECK_OK(bo_map(&f.gpu, &one));
	CHECK_OK(bo_map(&second.gpu, &two));
	gpu_writes(one.va + LAST, 0x91);
	switch_gpu();
	CHECK_EQ(gpu_reads(two.va + LAST), 0x91);
	check_word(&u, two.va, 0, 0x92);
	gpu_writes(two.va + LAST, 0x93);
	drop_bo(&f.gpu, &two);
	switch_gpu();
	CHECK_EQ(gpu_reads(one.va + LAST), 0x93);
	drop_bo(&f.gpu, &one);
	CHECK_EQ(munmap(u.cpu, u.size), 0);
	CHECK_EQ(close(u.fd), 0);
	await_unshared(u.memfd);
	end_two();
}

CASE(other_gpu, "an import is mapped on another GPU than it was made for, too, and given back when the last one has left it")
{
	struct udmabuf u;
	struct bo bo;

	if (!is_rkfd())
		SKIP("amdgpu wants GPUs that see memory at the same addresses");
	begin_two();
	need_udmabuf(&u, PAGES, NULL, 0);
	need_import(&f.gpu, u.fd, u.size, &bo);
	/* First on the one that it was not made for. */
	CHECK_OK(bo_map(&second.gpu, &bo));
	switch_gpu();
	check_word(&u, bo.va + LAST, LAST, 0xa1);
	switch_gpu();
	CHECK_OK(bo_map(&f.gpu, &bo));
	check_word(&u, bo.va + LAST, LAST, 0xa2);
	CHECK_OK(bo_unmap(&f.gpu, &bo));
	CHECK_ERR(bo_free(&f.gpu, &bo), EBUSY);
	switch_gpu();
	check_word(&u, bo.va + PAGE, PAGE, 0xa3);
	switch_gpu();
	CHECK_OK(bo_unmap(&second.gpu, &bo));
	CHECK_OK(bo_free(&f.gpu, &bo));
	CHECK_EQ(munmap(u.cpu, u.size), 0);
	CHECK_EQ(close(u.fd), 0);
	await_unshared(u.memfd);
	end_two();
}
