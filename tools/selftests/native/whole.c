// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A mirror of all memory: the GPU uses the program's own pointers, whatever they point to and whenever that came, while buffers have
 * what they are bound at.
 */
#include "mirror.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WHOLE DRM_RKFD_MIRROR_WHOLE
#define PRESENT DRM_RKFD_FAULT_PRESENT
#define WRITE DRM_RKFD_FAULT_WRITE

static volatile uint32_t initialised = 0x1234;
static volatile uint32_t zeroed;
static const volatile uint32_t constant = 0x4321;

static int whole_create(const struct nfile *file, uint32_t flags, struct drm_rkfd_mirror_create *args)
{
	*args = (struct drm_rkfd_mirror_create){ .flags = WHOLE | flags };
	return native(file->fd, DRM_IOCTL_RKFD_MIRROR_CREATE, args);
}

/* A file with a mirror of all memory, and a queue. */
static uint32_t begin(struct engine *e, uint32_t flags)
{
	struct drm_rkfd_mirror_create args;
	int err;

	engine_open(e);
	err = whole_create(&e->file, FAULT | flags, &args);
	if (err == EOPNOTSUPP)
		SKIP("the GPU repeats no accesses of one address space alone");
	CHECK_OK(err);
	engine_start(e, QUEUE_AT);
	return args.id;
}

static uint64_t at(const volatile void *p)
{
	return (uintptr_t)p;
}

CASE(arguments, "there is one, filled by accesses alone, and it has all addresses")
{
	struct drm_rkfd_mirror_create args;
	struct drm_rkfd_mirror_query info;
	uint8_t *p = need_memory(4 * PAGE);
	struct engine e;
	uint32_t id;
	int err;

	engine_open(&e);
	CHECK_ERR(whole_create(&e.file, 0, &args), EINVAL);
	CHECK_ERR(whole_create(&e.file, POPULATED, &args), EINVAL);
	CHECK_ERR(whole_create(&e.file, POPULATED | FAULT, &args), EINVAL);
	for (unsigned int i = 0; i < 3; i++) {
		args = (struct drm_rkfd_mirror_create){
			.address = i == 0 ? PAGE * 16 : 0,
			.gpu_address = i == 1 ? PAGE * 16 : 0,
			.length = i == 2 ? PAGE : 0,
			.flags = WHOLE | FAULT,
		};
		CHECK_ERR(native(e.file.fd, DRM_IOCTL_RKFD_MIRROR_CREATE, &args), EINVAL);
	}
	err = mirror_create(&e.file, p, AT, 4 * PAGE, FAULT, &args);
	if (err == EOPNOTSUPP) {
		CHECK_ERR(whole_create(&e.file, FAULT, &args), EOPNOTSUPP);
		SKIP("the GPU repeats no accesses of one address space alone");
	}
	CHECK_OK(err);
	id = args.id;
	/* Not beside another. */
	CHECK_ERR(whole_create(&e.file, FAULT, &args), EADDRINUSE);
	CHECK_OK(mirror_destroy(&e.file, id));
	CHECK_OK(whole_create(&e.file, FAULT | RO, &args));
	CHECK_EQ(args.leaf, HUGE);
	info = mirror_query(&e.file, args.id);
	CHECK_EQ(info.flags, WHOLE | FAULT | RO);
	CHECK_EQ(info.address, e.file.device.va_start);
	CHECK_EQ(info.gpu_address, info.address);
	CHECK_EQ(info.address + info.length, (1ul << 47) - PAGE);
	CHECK_EQ(info.bytes, 0);
	CHECK_ERR(whole_create(&e.file, FAULT, &args), EADDRINUSE);
	CHECK_ERR(mirror_create(&e.file, p, AT, 4 * PAGE, POPULATED, &args), EADDRINUSE);
	CHECK_OK(mirror_destroy(&e.file, info.id));
	CHECK_OK(mirror_create(&e.file, p, AT, 4 * PAGE, POPULATED, &args));
	CHECK_OK(mirror_destroy(&e.file, args.id));
	close(e.fault);
	drop_nbo(&e.file, &e.out);
	close_file(&e.file);
}

CASE(pointers, "stack, globals, heap, private, shared and file memory: each at its own address")
{
	volatile uint32_t stack = 0x77;
	uint32_t *heap = calloc(1000, sizeof(*heap));
	uint8_t *private, *shared, *file;
	struct engine e;
	int fd = memfd_create("whole", 0);
	uint32_t content = 0;

	CHECK(heap != NULL);
	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, 2 * PAGE), 0);
	begin(&e, 0);
	CHECK_EQ(gpu_read(&e, at(&stack)), 0x77);
	gpu_write(&e, at(&stack), 0x78);
	CHECK_EQ(stack, 0x78);
	CHECK_EQ(gpu_read(&e, at(&initialised)), 0x1234);
	gpu_write(&e, at(&initialised), 0x1235);
	CHECK_EQ(initialised, 0x1235);
	gpu_write(&e, at(&zeroed), 0x99);
	CHECK_EQ(zeroed, 0x99);
	CHECK_EQ(gpu_read(&e, at(&constant)), 0x4321);
	gpu_write(&e, at(heap + 500), 0xabc);
	CHECK_EQ(*(volatile uint32_t *)(heap + 500), 0xabc);
	/* All of these came after the mirror. */
	private = need_memory(4 * PAGE);
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	file = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
	CHECK(file != MAP_FAILED);
	fill(private, 4, 0x500);
	gpu_sees(&e, at(private), 4, 0x500);
	gpu_write(&e, at(shared + 8), 0x11);
	CHECK_EQ(*word(shared, 8), 0x11);
	gpu_write(&e, at(file + PAGE + 16), 0x22);
	CHECK_EQ(*word(file, PAGE + 16), 0x22);
	CHECK_EQ(pread(fd, &content, 4, PAGE + 16), 4);
	CHECK_EQ(content, 0x22);
	engine_end(&e);
	free(heap);
	close(fd);
}

CASE(later, "memory comes and goes at the same address, without a call")
{
	uint8_t *p = need_memory(600 * PAGE);
	struct engine e;
	uint32_t id = begin(&e, 0);

	for (uint32_t round = 1; round <= 20; round++) {
		CHECK_EQ(munmap(p, 600 * PAGE), 0);
		CHECK(need_memory_at(p, 600 * PAGE, MAP_FIXED) == p);
		CHECK_EQ(gpu_read(&e, at(p + 300 * PAGE)), 0);
		gpu_write(&e, at(p + 301 * PAGE), round);
		CHECK_EQ(*word(p, 301 * PAGE), round);
		fill(p, 600, round << 16);
		gpu_sees(&e, at(p), 600, round << 16);
	}
	CHECK(mirror_query(&e.file, id).changes >= 19);
	engine_end(&e);
}

CASE(refused, "an access to nothing, to what is gone, or against the rights of the program is an error of this file alone")
{
	struct engine good;

	begin(&good, 0);
	for (unsigned int i = 0; i < 5; i++) {
		uint8_t *p = need_memory(8 * PAGE);
		struct engine e;

		begin(&e, i == 4 ? RO : 0);
		fill(p, 8, 0x40);
		CHECK_EQ(gpu_read(&e, at(p)), 0x40);
		switch (i) {
		case 0:
			CHECK_EQ(munmap(p + PAGE, PAGE), 0);
			must_fault(&e, at(p + PAGE), false, 0);
			break;
		case 1:
			CHECK_EQ(mprotect(p + PAGE, PAGE, PROT_NONE), 0);
			must_fault(&e, at(p + PAGE), true, WRITE);
			break;
		case 2:
			CHECK_EQ(mprotect(p, 8 * PAGE, PROT_READ), 0);
			CHECK_EQ(gpu_read(&e, at(p + PAGE)), 0x41);
			must_fault(&e, at(p + PAGE), true, WRITE | PRESENT);
			break;
		case 3:
			/* Registers of the device, which the CPU has mapped here. */
			must_fault(&e, at(e.q.doorbells), false, 0);
			break;
		case 4:
			must_fault(&e, at(p), true, WRITE | PRESENT);
			break;
		}
		/* Nobody else notices. */
		if (i != 2) {
			gpu_write(&good, at(p + 7 * PAGE + 8), 0x60 + i);
			CHECK_EQ(*word(p, 7 * PAGE + 8), 0x60 + i);
		}
		CHECK_EQ(new_faults(&e, NULL), 0);
		engine_leave(&e);
		CHECK_EQ(munmap(p, 8 * PAGE), 0);
	}
	engine_end(&good);
}

CASE(buffers, "a buffer that is bound has the address, in the midst of small and large pages; where it goes the memory is back")
{
	uint8_t *p = need_aligned(2 * HUGE);
	struct nbo bo;
	struct engine e;

	madvise(p, 2 * HUGE, MADV_HUGEPAGE);
	begin(&e, 0);
	need_nbo(&e.file, &bo, VRAM, 4 * PAGE);
	for (unsigned int i = 0; i < 4; i++)
		*word(bo.cpu, i * PAGE) = 0xb0 + i;
	for (unsigned int round = 0; round < 10; round++) {
		uint64_t first = 100 + 37 * round;

		fill(p, 1024, 0x3000);
		gpu_sees(&e, at(p), 1024, 0x3000);
		CHECK_OK(bind_one(&e.file, at(p + first * PAGE), 4 * PAGE, bo.handle, 0));
		gpu_sees(&e, at(p + first * PAGE), 4, 0xb0);
		gpu_sees(&e, at(p), first, 0x3000);
		gpu_sees(&e, at(p + (first + 4) * PAGE), 1024 - first - 4, 0x3000 + first + 4);
		/* The memory changes below the buffer and beside it. */
		CHECK_EQ(madvise(p + (first - 1) * PAGE, 3 * PAGE, MADV_DONTNEED), 0);
		CHECK_EQ(gpu_read(&e, at(p + (first - 1) * PAGE)), 0);
		gpu_sees(&e, at(p + first * PAGE), 4, 0xb0);
		gpu_write(&e, at(p + (first + 1) * PAGE) + 8, round);
		CHECK_EQ(*word(bo.cpu, PAGE + 8), round);
		CHECK_EQ(*word(p, (first + 1) * PAGE + 8), 0);
		CHECK_OK(unbind_one(&e.file, at(p + first * PAGE), 4 * PAGE));
		CHECK_EQ(gpu_read(&e, at(p + (first + 1) * PAGE)), 0);
		CHECK_EQ(gpu_read(&e, at(p + (first + 3) * PAGE)), 0x3000 + first + 3);
	}
	drop_nbo(&e.file, &bo);
	engine_end(&e);
}

CASE(against_a_buffer, "an access that the entries of a buffer do not allow is an error, although the program could")
{
	uint8_t *p = need_memory(4 * PAGE);
	struct drm_rkfd_bind_op op;
	struct nbo bo;
	struct engine e;

	begin(&e, 0);
	need_nbo(&e.file, &bo, SYSTEM, PAGE);
	fill(p, 4, 0x70);
	*word(bo.cpu, 0) = 0x7b;
	gpu_sees(&e, at(p), 4, 0x70);
	op = map_op(at(p + PAGE), PAGE, bo.handle, 0);
	op.flags = 0;
	CHECK_OK(bind_list(&e.file, &op, 1, NULL));
	CHECK_EQ(gpu_read(&e, at(p + PAGE)), 0x7b);
	must_fault(&e, at(p + PAGE), true, WRITE | PRESENT);
	CHECK_EQ(*word(p, PAGE), 0x71);
	CHECK_EQ(*word(bo.cpu, 0), 0x7b);
	CHECK_EQ(munmap(bo.cpu, bo.size), 0);
	engine_leave(&e);
}

CASE(of_the_opener, "a child has no share in it: the memory is that of who opened the file")
{
	uint8_t *p = need_memory(4 * PAGE);
	struct engine e;
	int status;
	pid_t child;

	fill(p, 4, 0x10);
	begin(&e, 0);
	CHECK_EQ(gpu_read(&e, at(p)), 0x10);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct drm_rkfd_mirror_create args;

		*word(p, 0) = 0xbad;
		_exit(whole_create(&e.file, FAULT, &args) == EXDEV ? 0 : 1);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	CHECK_EQ(gpu_read(&e, at(p)), 0x10);
	gpu_write(&e, at(p), 0x20);
	CHECK_EQ(*word(p, 0), 0x20);
	engine_end(&e);
}
