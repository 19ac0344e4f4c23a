// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The native interface: memory of the caller that the GPU uses in place, and what becomes of it when the caller changes it.
 */
#include "debugfs.h"
#include "native.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2ul << 20)
#define AT 0x100000000ul
#define QUEUE_AT 0x10000000ul
#define OUT_AT 0x20000000ul
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

/* A file with an SDMA queue that reads and writes what is bound. */
struct engine {
	struct nfile file;
	struct nqueue q;
	struct nbo out;
	uint32_t fence;
};

static void begin(struct engine *e)
{
	need_file(&e->file);
	need_nqueue(&e->file, &e->q, DRM_RKFD_QUEUE_SDMA, QUEUE_AT);
	need_nbo(&e->file, &e->out, SYSTEM, PAGE);
	CHECK_OK(bind_one(&e->file, OUT_AT, e->out.size, e->out.handle, 0));
	e->fence = 0;
}

static void end(struct engine *e)
{
	drop_nqueue(&e->file, &e->q);
	CHECK_OK(unbind_one(&e->file, OUT_AT, e->out.size));
	drop_nbo(&e->file, &e->out);
	close_file(&e->file);
}

static void run(struct engine *e, struct packets *p)
{
	sdma_fence(p, OUT_AT + PAGE - 4, ++e->fence);
	nsubmit(&e->q, p);
	await32((volatile uint32_t *)(e->out.cpu + PAGE - 4), e->fence, "the fence");
}

static uint32_t gpu_read(struct engine *e, uint64_t va)
{
	struct packets p = { .n = 0 };

	sdma_copy(&p, va, OUT_AT, 4);
	run(e, &p);
	return *(volatile uint32_t *)e->out.cpu;
}

static void gpu_write(struct engine *e, uint64_t va, uint32_t value)
{
	struct packets p = { .n = 0 };

	sdma_write(&p, va, &value, 1);
	run(e, &p);
}

static struct drm_rkfd_bind_op user_op(uint64_t va, uint64_t length, const void *memory, uint32_t flags)
{
	return (struct drm_rkfd_bind_op){
		.op = DRM_RKFD_BIND_MAP_USER,
		.flags = flags,
		.address = va,
		.length = length,
		.offset = (uintptr_t)memory,
	};
}

static int bind_user(const struct nfile *file, uint64_t va, uint64_t length, const void *memory, uint32_t flags)
{
	struct drm_rkfd_bind_op op = user_op(va, length, memory, flags);
	uint32_t failed;

	return bind_list(file, &op, 1, &failed);
}

static volatile uint32_t *word(char *memory, uint64_t page)
{
	return (volatile uint32_t *)(memory + page * PAGE);
}

static char *need_memory(uint64_t length)
{
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, PRIVATE, -1, 0);

	CHECK(memory != MAP_FAILED);
	for (uint64_t page = 0; page < length / PAGE; page++)
		*word(memory, page) = 0x1000 + (uint32_t)page;
	return memory;
}

CASE(both_ways, "memory of the caller at two addresses: what the CPU writes the GPU reads in each, and the other way round")
{
	struct engine e;
	char *memory;

	begin(&e);
	memory = need_memory(8 * PAGE);
	CHECK_OK(bind_user(&e.file, AT, 8 * PAGE, memory, DRM_RKFD_BIND_WRITE));
	/* Any part of it, elsewhere, by an operation of its own. */
	CHECK_OK(bind_user(&e.file, AT + HUGE, 2 * PAGE, memory + 3 * PAGE, 0));
	CHECK_EQ(gpu_read(&e, AT + 5 * PAGE), 0x1005);
	CHECK_EQ(gpu_read(&e, AT + HUGE + PAGE), 0x1004);
	gpu_write(&e, AT + 4 * PAGE, 0xabcd);
	CHECK_EQ(*word(memory, 4), 0xabcd);
	CHECK_EQ(gpu_read(&e, AT + HUGE + PAGE), 0xabcd);
	*word(memory, 3) = 0xc0de;
	CHECK_EQ(gpu_read(&e, AT + HUGE), 0xc0de);
	CHECK_OK(unbind_one(&e.file, AT, HUGE + 2 * PAGE));
	CHECK_EQ(munmap(memory, 8 * PAGE), 0);
	end(&e);
}

CASE(replaced_memory, "new memory at an address of the caller's: the GPU uses it as soon as the call has returned")
{
	struct engine e;
	char *memory;

	begin(&e);
	memory = need_memory(4 * PAGE);
	CHECK_OK(bind_user(&e.file, AT, 4 * PAGE, memory, DRM_RKFD_BIND_WRITE));
	for (uint32_t round = 0; round < 20; round++) {
		CHECK(mmap(memory + PAGE, PAGE, PROT_READ | PROT_WRITE, PRIVATE | MAP_FIXED, -1, 0) != MAP_FAILED);
		*word(memory, 1) = 0x2000 + round;
		CHECK_EQ(gpu_read(&e, AT + PAGE), 0x2000 + round);
		gpu_write(&e, AT + PAGE, 0x3000 + round);
		CHECK_EQ(*word(memory, 1), 0x3000 + round);
	}
	CHECK_EQ(gpu_read(&e, AT), 0x1000);
	CHECK_EQ(gpu_read(&e, AT + 3 * PAGE), 0x1003);
	end(&e);
}

CASE(one_page_of_many, "one page of 64 MiB changes, ten times: entries of less than the whole are written again, and all contents are right")
{
	enum { ROUNDS = 10 };
	const uint64_t pages = (64ul << 20) / PAGE, page = pages / 2 + 5;
	unsigned long before, written;
	struct engine e;
	char *memory;

	begin(&e);
	memory = need_memory(pages * PAGE);
	CHECK_OK(bind_user(&e.file, AT, pages * PAGE, memory, DRM_RKFD_BIND_WRITE));
	CHECK_EQ(gpu_read(&e, AT + page * PAGE), 0x1000 + page);
	before = userptr_counter("rewritten");
	for (uint32_t round = 0; round < ROUNDS; round++) {
		CHECK_EQ(madvise(memory + page * PAGE, PAGE, MADV_DONTNEED), 0);
		CHECK_EQ(gpu_read(&e, AT + page * PAGE), 0);
		gpu_write(&e, AT + page * PAGE, 0x9000 + round);
		CHECK_EQ(*word(memory, page), 0x9000 + round);
	}
	written = userptr_counter("rewritten") - before;
	tap_note("%lu pages in %d rounds", written, ROUNDS);
	/* Each time those that are found together, and what the memory manager did elsewhere meanwhile. */
	CHECK_OP(written, >=, ROUNDS);
	CHECK_OP(written, <, pages);
	for (uint64_t other = 0; other < pages; other += 509)
		CHECK_EQ(gpu_read(&e, AT + other * PAGE), 0x1000 + other);
	CHECK_EQ(gpu_read(&e, AT + (page - 1) * PAGE), 0x1000 + page - 1);
	CHECK_EQ(gpu_read(&e, AT + (page + 1) * PAGE), 0x1000 + page + 1);
	CHECK_OK(unbind_one(&e.file, AT, pages * PAGE));
	CHECK_EQ(munmap(memory, pages * PAGE), 0);
	end(&e);
}

static void nothing(void *context)
{
	(void)context;
}

CASE(forked, "after fork the caller's writes and those of the GPU stay in the same pages")
{
	struct engine e;
	char *memory;

	begin(&e);
	memory = need_memory(2 * PAGE);
	CHECK_OK(bind_user(&e.file, AT, 2 * PAGE, memory, DRM_RKFD_BIND_WRITE));
	for (uint32_t round = 0; round < 5; round++) {
		CHECK_EQ(in_child(nothing, NULL), 0);
		*word(memory, 0) = 0x4000 + round;
		CHECK_EQ(gpu_read(&e, AT), 0x4000 + round);
		gpu_write(&e, AT + PAGE, 0x5000 + round);
		CHECK_EQ(*word(memory, 1), 0x5000 + round);
	}
	end(&e);
}

CASE(cut, "a range of the caller's memory that is cut by a buffer: both parts follow changes, the buffer stays")
{
	struct engine e;
	struct nbo bo;
	char *memory;

	begin(&e);
	memory = need_memory(16 * PAGE);
	need_nbo(&e.file, &bo, VRAM, 2 * PAGE);
	*(volatile uint32_t *)bo.cpu = 0x77;
	CHECK_OK(bind_user(&e.file, AT, 16 * PAGE, memory, DRM_RKFD_BIND_WRITE));
	CHECK_OK(bind_one(&e.file, AT + 6 * PAGE, bo.size, bo.handle, 0));
	CHECK_EQ(gpu_read(&e, AT + 5 * PAGE), 0x1005);
	CHECK_EQ(gpu_read(&e, AT + 6 * PAGE), 0x77);
	CHECK_EQ(gpu_read(&e, AT + 8 * PAGE), 0x1008);
	/* All of it is new; what it lies behind the buffer of is not seen. */
	CHECK(mmap(memory, 16 * PAGE, PROT_READ | PROT_WRITE, PRIVATE | MAP_FIXED, -1, 0) != MAP_FAILED);
	for (uint32_t page = 0; page < 16; page++)
		*word(memory, page) = 0x6000 + page;
	CHECK_EQ(gpu_read(&e, AT), 0x6000);
	CHECK_EQ(gpu_read(&e, AT + 5 * PAGE), 0x6005);
	CHECK_EQ(gpu_read(&e, AT + 6 * PAGE), 0x77);
	CHECK_EQ(gpu_read(&e, AT + 8 * PAGE), 0x6008);
	CHECK_EQ(gpu_read(&e, AT + 15 * PAGE), 0x600f);
	CHECK_OK(unbind_one(&e.file, AT, 16 * PAGE));
	drop_nbo(&e.file, &bo);
	end(&e);
}

static int mirror_at(const struct nfile *file, uint64_t va, uint64_t length, const void *memory, uint32_t *id)
{
	struct drm_rkfd_mirror_create args = {
		.address = (uintptr_t)memory,
		.gpu_address = va,
		.length = length,
		.flags = DRM_RKFD_MIRROR_POPULATED,
	};
	int err = native(file->fd, DRM_IOCTL_RKFD_MIRROR_CREATE, &args);

	*id = args.id;
	return err;
}

CASE(beside_a_mirror, "a range and a mirror of the same memory: their addresses exclude each other, and both follow each change")
{
	struct drm_rkfd_mirror_destroy gone = { 0 };
	struct engine e;
	uint32_t none;
	char *memory;

	begin(&e);
	memory = need_memory(4 * PAGE);
	CHECK_OK(mirror_at(&e.file, AT, 4 * PAGE, memory, &gone.id));
	CHECK_ERR(bind_user(&e.file, AT + 3 * PAGE, 2 * PAGE, memory, 0), EADDRINUSE);
	CHECK_OK(bind_user(&e.file, AT + HUGE, 4 * PAGE, memory, DRM_RKFD_BIND_WRITE));
	CHECK_ERR(mirror_at(&e.file, AT + HUGE + 3 * PAGE, 2 * PAGE, memory, &none), EADDRINUSE);
	for (uint32_t round = 0; round < 10; round++) {
		CHECK(mmap(memory + PAGE, PAGE, PROT_READ | PROT_WRITE, PRIVATE | MAP_FIXED, -1, 0) != MAP_FAILED);
		*word(memory, 1) = 0x7000 + round;
		CHECK_EQ(gpu_read(&e, AT + PAGE), 0x7000 + round);
		CHECK_EQ(gpu_read(&e, AT + HUGE + PAGE), 0x7000 + round);
		/* One page, whichever way the GPU reaches it. */
		gpu_write(&e, AT + HUGE + PAGE, 0x8000 + round);
		CHECK_EQ(gpu_read(&e, AT + PAGE), 0x8000 + round);
		CHECK_EQ(*word(memory, 1), 0x8000 + round);
	}
	CHECK_EQ(gpu_read(&e, AT + 3 * PAGE), 0x1003);
	CHECK_OK(native(e.file.fd, DRM_IOCTL_RKFD_MIRROR_DESTROY, &gone));
	CHECK_EQ(gpu_read(&e, AT + HUGE + 3 * PAGE), 0x1003);
	CHECK_OK(bind_user(&e.file, AT + 3 * PAGE, 2 * PAGE, memory, 0));
	CHECK_EQ(gpu_read(&e, AT + 3 * PAGE), 0x1000);
	end(&e);
}

static struct nfile shared;

/* Binds memory of the child, which ends with it; the errno is its exit status. */
static void bind_of_child(void *context)
{
	char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, PRIVATE, -1, 0);

	(void)context;
	if (memory == MAP_FAILED)
		_exit(ENOMEM);
	*word(memory, 0) = 5;
	_exit(bind_user(&shared, AT, PAGE, memory, DRM_RKFD_BIND_WRITE));
}

CASE(other_process, "a file has memory of one process: EXDEV for another, also after the first has ended, whose range shows nothing then")
{
	struct engine e;
	char *memory;

	begin(&e);
	shared = e.file;
	CHECK_EQ(in_child(bind_of_child, NULL), 0);
	/* The queue goes on. */
	gpu_write(&e, OUT_AT + 64, 9);
	CHECK_EQ(*(volatile uint32_t *)(e.out.cpu + 64), 9);
	memory = need_memory(PAGE);
	CHECK_ERR(bind_user(&e.file, AT + HUGE, PAGE, memory, 0), EXDEV);
	CHECK_OK(unbind_one(&e.file, AT, PAGE));
	end(&e);
	begin(&e);
	shared = e.file;
	CHECK_OK(bind_user(&e.file, AT + HUGE, PAGE, memory, 0));
	CHECK_EQ(in_child(bind_of_child, NULL), EXDEV);
	CHECK_EQ(gpu_read(&e, AT + HUGE), 0x1000);
	end(&e);
}

CASE(refused, "BIND of the caller's memory: each errno for its cause, and the list changes nothing")
{
	struct drm_rkfd_bind_op ops[2], op;
	struct engine e;
	uint32_t failed;
	char *memory, *hole, *readable;

	begin(&e);
	memory = need_memory(4 * PAGE);
	hole = mmap(NULL, PAGE, PROT_NONE, PRIVATE, -1, 0);
	readable = mmap(NULL, PAGE, PROT_READ, PRIVATE, -1, 0);
	CHECK(hole != MAP_FAILED && readable != MAP_FAILED);
	CHECK_ERR(bind_user(&e.file, AT, PAGE, memory + 8, 0), EINVAL);
	CHECK_ERR(bind_user(&e.file, AT, PAGE, NULL, 0), EINVAL);
	CHECK_ERR(bind_user(&e.file, AT + 8, PAGE, memory, 0), EINVAL);
	CHECK_ERR(bind_user(&e.file, AT, PAGE + 8, memory, 0), EINVAL);
	CHECK_ERR(bind_user(&e.file, AT, PAGE, memory, 4), EINVAL);
	op = user_op(AT, PAGE, memory, 0);
	op.handle = 1;
	CHECK_ERR(bind_list(&e.file, &op, 1, &failed), EINVAL);
	CHECK_EQ(failed, 0);
	CHECK_ERR(bind_user(&e.file, AT, PAGE, readable, DRM_RKFD_BIND_WRITE), EPERM);
	CHECK_OK(bind_user(&e.file, AT, PAGE, readable, 0));
	CHECK_EQ(gpu_read(&e, AT), 0);
	ops[0] = user_op(AT, PAGE, memory, 0);
	ops[1] = user_op(AT + PAGE, PAGE, (void *)0xffff800000000000ul, 0);
	CHECK_ERR(bind_list(&e.file, ops, 2, &failed), EFAULT);
	CHECK_EQ(failed, 1);
	CHECK_EQ(munmap(hole, PAGE), 0);
	ops[1] = user_op(AT + PAGE, PAGE, hole, 0);
	CHECK_ERR(bind_list(&e.file, ops, 2, &failed), EFAULT);
	CHECK_EQ(failed, 1);
	/* What was there still is. */
	CHECK_EQ(gpu_read(&e, AT), 0);
	end(&e);
}

CASE_LIMIT(many, "thousands of pieces of the caller's memory in one list, and all of them follow a change", 240)
{
	enum { PIECES = 2048 };
	static struct drm_rkfd_bind_op ops[PIECES];
	struct engine e;
	uint32_t failed;
	char *memory;

	begin(&e);
	memory = need_memory(PIECES * PAGE);
	/* In reverse, so that no two make one run. */
	for (uint32_t i = 0; i < PIECES; i++)
		ops[i] = user_op(AT + i * PAGE, PAGE, memory + (PIECES - 1 - i) * PAGE, 0);
	CHECK_OK(bind_list(&e.file, ops, PIECES, &failed));
	for (uint32_t i = 0; i < PIECES; i += 97)
		CHECK_EQ(gpu_read(&e, AT + i * PAGE), 0x1000 + PIECES - 1 - i);
	CHECK(mmap(memory, PIECES * PAGE, PROT_READ | PROT_WRITE, PRIVATE | MAP_FIXED, -1, 0) != MAP_FAILED);
	for (uint32_t page = 0; page < PIECES; page++)
		*word(memory, page) = 0x10000 + page;
	for (uint32_t i = 0; i < PIECES; i += 97)
		CHECK_EQ(gpu_read(&e, AT + i * PAGE), 0x10000 + PIECES - 1 - i);
	CHECK_OK(unbind_one(&e.file, AT, PIECES * PAGE));
	end(&e);
}
