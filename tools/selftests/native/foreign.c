// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The native interface and buffers of another driver: handles of them, ranges that show them, and their end.
 */
#include "native.h"
#include "udmabuf.h"

#include <drm/drm.h>
#include <sys/stat.h>

#define AT 0x100000000ul
#define QUEUE_AT 0x10000000ul
#define OUT_AT 0x20000000ul
#define PAGES 67u

/* A file with an SDMA queue, and a dma-buf of pages of a memfd in another order. */
struct bench {
	struct nfile file;
	struct nqueue q;
	struct nbo out;
	uint32_t fence;
	struct udmabuf u;
	uint32_t order[PAGES];
	uint32_t handle;
};

static int fd_to_handle(const struct nfile *file, int fd, uint32_t *handle)
{
	struct drm_prime_handle args = { .fd = fd };
	int err = native(file->fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &args);

	*handle = args.handle;
	return err;
}

static void begin(struct bench *b)
{
	need_file(&b->file);
	need_nqueue(&b->file, &b->q, DRM_RKFD_QUEUE_SDMA, QUEUE_AT);
	need_nbo(&b->file, &b->out, SYSTEM, 16 * PAGE);
	CHECK_OK(bind_one(&b->file, OUT_AT, b->out.size, b->out.handle, 0));
	b->fence = 0;
	for (uint32_t i = 0; i < PAGES; i++)
		b->order[i] = (i * 29 + 11) % PAGES;
	need_udmabuf(&b->u, PAGES, b->order, PAGES);
	CHECK_OK(fd_to_handle(&b->file, b->u.fd, &b->handle));
}

static void run(struct bench *b, struct packets *p)
{
	sdma_fence(p, OUT_AT + PAGE - 4, ++b->fence);
	nsubmit(&b->q, p);
	await32((volatile uint32_t *)(b->out.cpu + PAGE - 4), b->fence, "the fence");
}

static uint32_t gpu_read(struct bench *b, uint64_t va)
{
	struct packets p = { .n = 0 };

	sdma_copy(&p, va, OUT_AT, 4);
	run(b, &p);
	return *(volatile uint32_t *)b->out.cpu;
}

static void gpu_write(struct bench *b, uint64_t va, uint32_t value)
{
	struct packets p = { .n = 0 };

	sdma_write(&p, va, &value, 1);
	run(b, &p);
}

/* Address `va` shows page `page` of the dma-buf. */
static void check_page(struct bench *b, uint64_t va, uint32_t page, uint32_t value)
{
	volatile uint32_t *cpu = udmabuf32(&b->u, b->order[page] * PAGE + 8);

	gpu_write(b, va + 8, value);
	CHECK_EQ(*cpu, value);
	*cpu = ~value;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	CHECK_EQ(gpu_read(b, va + 8), ~value);
}

/* Nobody has the pages any more once file and descriptor are closed. */
static void check_given_back(struct bench *b)
{
	CHECK_EQ(munmap(b->u.cpu, b->u.size), 0);
	CHECK_EQ(close(b->u.fd), 0);
	await_unshared(b->u.memfd);
}

CASE(shown, "a handle of another driver's buffer: any of its pages are shown at any address, and both sides see them")
{
	struct drm_rkfd_bind_op ops[2];
	struct bench b;

	begin(&b);
	ops[0] = map_op(AT, PAGES * PAGE, b.handle, 0);
	ops[1] = map_op(AT + (8ul << 20), 3 * PAGE, b.handle, 31 * PAGE);
	CHECK_OK(bind_list(&b.file, ops, 2, NULL));
	for (uint32_t i = 0; i < PAGES; i++)
		check_page(&b, AT + i * PAGE, i, 0x1000 + i);
	for (uint32_t i = 0; i < 3; i++)
		check_page(&b, ops[1].address + i * PAGE, 31 + i, 0x2000 + i);
	/* A hole in the middle leaves the rest. */
	CHECK_OK(unbind_one(&b.file, AT + 2 * PAGE, 5 * PAGE));
	check_page(&b, AT + PAGE, 1, 0x3001);
	check_page(&b, AT + 7 * PAGE, 7, 0x3007);
	CHECK_ERR(bind_one(&b.file, AT, PAGE, b.handle, PAGES * PAGE), EINVAL);
	CHECK_OK(unbind_one(&b.file, AT, 16ul << 20));
	CHECK_OK(nbo_close(&b.file, b.handle));
	check_given_back(&b);
	drop_nqueue(&b.file, &b.q);
	close_file(&b.file);
}

static uint64_t inode(int fd)
{
	struct stat st;

	CHECK_EQ(fstat(fd, &st), 0);
	return st.st_ino;
}

CASE(handle, "the handle is one, is system memory, is shared as the dma-buf that it came from, and is not for mmap: EPERM")
{
	struct drm_prime_handle back;
	struct drm_rkfd_bo_info info;
	struct bench b;
	uint32_t again;

	begin(&b);
	CHECK_OK(fd_to_handle(&b.file, b.u.fd, &again));
	CHECK_EQ(again, b.handle);
	CHECK_OK(nbo_info(&b.file, b.handle, &info));
	CHECK_EQ(info.size, PAGES * PAGE);
	CHECK_EQ(info.heap, SYSTEM);
	CHECK_EQ(info.flags, 0);
	CHECK_EQ(info.ranges, 0);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, b.file.fd, (off_t)info.mmap_offset) == MAP_FAILED);
	CHECK_EQ(errno, EPERM);
	back = (struct drm_prime_handle){ .handle = b.handle, .flags = DRM_CLOEXEC | DRM_RDWR, .fd = -1 };
	CHECK_OK(native(b.file.fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &back));
	CHECK_EQ(inode(back.fd), inode(b.u.fd));
	CHECK_EQ(close(back.fd), 0);
	CHECK_ERR(fd_to_handle(&b.file, b.u.memfd, &again), EINVAL);
	CHECK_ERR(fd_to_handle(&b.file, b.file.fd, &again), EINVAL);
	CHECK_ERR(fd_to_handle(&b.file, 0x7fff, &again), EBADF);
	/* Without its handle it is given back. */
	CHECK_OK(nbo_close(&b.file, b.handle));
	CHECK_ERR(nbo_info(&b.file, b.handle, &info), ENOENT);
	check_given_back(&b);
	close_file(&b.file);
}

CASE(outlives, "what is shown outlives its handle and its descriptor; a file that is closed gives all back")
{
	struct nfile other;
	struct bench b;
	uint32_t handle;
	int watch;

	begin(&b);
	watch = dup(b.u.memfd);
	CHECK(watch >= 0);
	/* Another file has a handle of its own, and shows it, too. */
	need_file(&other);
	CHECK_OK(fd_to_handle(&other, b.u.fd, &handle));
	CHECK_OK(bind_one(&other, AT, PAGES * PAGE, handle, 0));
	CHECK_OK(bind_one(&b.file, AT, PAGES * PAGE, b.handle, 0));
	CHECK_OK(nbo_close(&b.file, b.handle));
	CHECK_EQ(close(b.u.fd), 0);
	check_page(&b, AT + 5 * PAGE, 5, 0x4000);
	CHECK_EQ(munmap(b.u.cpu, b.u.size), 0);
	CHECK_EQ(close(b.u.memfd), 0);
	gpu_write(&b, AT + 9 * PAGE, 0x4001);
	CHECK_EQ(gpu_read(&b, AT + 9 * PAGE), 0x4001);
	close_file(&b.file);
	CHECK(is_shared(watch));
	/* The queue's doorbells keep nothing of the address space, but the file open. */
	CHECK_EQ(munmap(b.q.doorbells, b.file.device.doorbell_bytes), 0);
	CHECK_EQ(munmap(b.q.memory.cpu, b.q.memory.size), 0);
	CHECK_EQ(munmap(b.out.cpu, b.out.size), 0);
	close_file(&other);
	await_unshared(watch);
}
