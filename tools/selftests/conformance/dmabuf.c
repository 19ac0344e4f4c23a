// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Buffers of this driver that are shared by descriptors: export, import, what a dma-buf tells of itself, CPU mappings of
 * it, and the same through handles of the render node.
 */
#include "pm4_queue.h"

#include <drm/drm.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Not a power of two, and larger than a page of the GPU's tables. */
#define BYTES (2 * (2ul << 20) + 3 * PAGE)
#define LAST (BYTES - 4)

static int export_bo(const struct gpu *gpu, uint64_t handle, int *fd)
{
	struct kfd_ioctl_export_dmabuf_args args = { .handle = handle, .flags = O_CLOEXEC, .dmabuf_fd = ~0u };
	int err = kfd_call(gpu->fd, AMDKFD_IOC_EXPORT_DMABUF, &args);

	*fd = args.dmabuf_fd;
	return err;
}

static int need_export(const struct gpu *gpu, uint64_t handle)
{
	int fd, err = export_bo(gpu, handle, &fd);

	if (err == EOPNOTSUPP)
		SKIP("no dma-buf export here");
	CHECK_OK(err);
	CHECK_OP(fd, >=, 0);
	return fd;
}

static int import_fd(const struct gpu *gpu, int fd, uint64_t va, uint64_t *handle)
{
	struct kfd_ioctl_import_dmabuf_args args = { .va_addr = va, .gpu_id = gpu->id, .dmabuf_fd = fd };
	int err = kfd_call(gpu->fd, AMDKFD_IOC_IMPORT_DMABUF, &args);

	*handle = args.handle;
	return err;
}

/* Imports at an address of its own, and maps on the GPU. */
static void need_import(const struct gpu *gpu, int fd, uint64_t size, struct bo *bo)
{
	*bo = (struct bo){ .va = need_address(size, 2ul << 20), .size = size };
	CHECK_OK(import_fd(gpu, fd, bo->va, &bo->handle));
	CHECK_OK(bo_map(gpu, bo));
}

static uint64_t inode(int fd)
{
	struct stat st;

	CHECK_EQ(fstat(fd, &st), 0);
	return st.st_ino;
}

static volatile uint32_t *map_fd(int fd, int prot)
{
	void *p = mmap(NULL, BYTES, prot, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		FAIL("mmap of a dma-buf: %s", strerror(errno));
	return p;
}

/* What the GPU reads at an address. */
static uint32_t gpu_reads(uint64_t va)
{
	static uint32_t round;
	uint64_t done = f.out.va + 8;

	pm4_copy(&f.p, 1, va, f.out.va, false);
	pm4_write(&f.p, done, ++round);
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

/* Two addresses of the GPU, and one of the CPU, show the same memory. */
static void check_same(const struct bo *a, const struct bo *b, volatile uint32_t *cpu, uint32_t seed)
{
	static const uint64_t offsets[] = { 0, PAGE - 4, 2ul << 20, LAST };

	for (unsigned int i = 0; i < 4; i++) {
		uint64_t at = offsets[i];

		gpu_writes(a->va + at, seed + i);
		CHECK_EQ(gpu_reads(b->va + at), seed + i);
		CHECK_EQ(cpu[at / 4], seed + i);
		cpu[at / 4] = ~(seed + i);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		CHECK_EQ(gpu_reads(a->va + at), ~(seed + i));
		gpu_writes(b->va + at, seed - i);
		CHECK_EQ(gpu_reads(a->va + at), seed - i);
	}
}

static void share(uint32_t flags)
{
	struct bo bo, twin;
	int fd;

	begin(FLAGS_GTT);
	need_bo(&f.gpu, &bo, flags, BYTES);
	fd = need_export(&f.gpu, bo.handle);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(lseek(fd, 0, SEEK_END), BYTES);
	need_import(&f.gpu, fd, BYTES, &twin);
	CHECK_NE(twin.handle, bo.handle);
	CHECK_EQ(twin.handle >> 32, f.gpu.id);
	check_same(&bo, &twin, map_fd(fd, PROT_READ | PROT_WRITE), 0x1000);
	/* The one goes, the other stays. */
	drop_bo(&f.gpu, &bo);
	close(fd);
	gpu_writes(twin.va + LAST, 0xabcd);
	CHECK_EQ(gpu_reads(twin.va + LAST), 0xabcd);
	CHECK_ERR(bo_free(&f.gpu, &twin), EBUSY);
	drop_bo(&f.gpu, &twin);
	end();
}

CASE(share_system, "system memory: an import shows what the exported buffer has, to GPU and CPU, and outlives it")
{
	share(FLAGS_GTT);
}

CASE(share_vram, "VRAM: an import shows what the exported buffer has, to GPU and CPU, and outlives it")
{
	share(FLAGS_VRAM);
}

static int passed;
static uint32_t seed;

/* Shares nothing with its parent but the descriptor. */
static void use_in_child(void *unused)
{
	volatile uint32_t *cpu = map_fd(passed, PROT_READ | PROT_WRITE);
	struct bo bo, again;
	int fd;

	begin(FLAGS_GTT);
	CHECK_EQ(cpu[LAST / 4], seed);
	need_import(&f.gpu, passed, BYTES, &bo);
	need_import(&f.gpu, passed, BYTES, &again);
	CHECK_EQ(gpu_reads(bo.va + LAST), seed);
	check_same(&bo, &again, cpu, 0x2000);
	/* An import is exported as what it is. */
	fd = need_export(&f.gpu, bo.handle);
	CHECK_EQ(inode(fd), inode(passed));
	CHECK_OK(bo_unmap(&f.gpu, &bo));
	CHECK_OK(bo_free(&f.gpu, &bo));
	gpu_writes(again.va + LAST, ~seed);
	/* Ends with everything in use. */
}

static void to_process(uint32_t flags)
{
	struct bo bo;

	need_vm(&f.gpu, 0);
	need_bo(&f.gpu, &bo, flags, BYTES);
	passed = need_export(&f.gpu, bo.handle);
	seed = 0x5eed0000 + flags;
	*bo32(&bo, LAST) = seed;
	CHECK_EQ(in_child(use_in_child, NULL), 0);
	CHECK_EQ(*bo32(&bo, LAST), ~seed);
	drop_bo(&f.gpu, &bo);
}

CASE(process_system, "system memory by descriptor in another process, which ends with it in use")
{
	to_process(FLAGS_GTT);
}

CASE(process_vram, "VRAM by descriptor in another process, which ends with it in use")
{
	to_process(FLAGS_VRAM);
}

CASE(vram_kept, "VRAM stays charged as long as a descriptor or a mapping of it is there, and no longer")
{
	uint64_t before, size = 64ul << 20;
	struct gpu gpu;
	struct bo bo;
	void *p;
	int fd;

	need_vm(&gpu, 0);
	before = available_settled(&gpu);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_VRAM, size));
	fd = need_export(&gpu, bo.handle);
	munmap((void *)bo.va, size);
	CHECK_OK(bo_free(&gpu, &bo));
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	((volatile uint32_t *)p)[1] = 0x12345678;
	CHECK_OP(available(&gpu), <=, before - size);
	close(fd);
	CHECK_EQ(((volatile uint32_t *)p)[1], 0x12345678);
	CHECK_OP(available(&gpu), <=, before - size);
	munmap(p, size);
	await_available(&gpu, before);
}

static int info(const struct gpu *gpu, int fd, struct kfd_ioctl_get_dmabuf_info_args *args)
{
	*args = (struct kfd_ioctl_get_dmabuf_info_args){ .dmabuf_fd = fd, .metadata_size = 64, .flags = 0x5555 };
	return kfd_call(gpu->fd, AMDKFD_IOC_GET_DMABUF_INFO, args);
}

static void check_info(const struct gpu *gpu, uint32_t flags, uint32_t expected)
{
	struct kfd_ioctl_get_dmabuf_info_args args;
	struct bo bo;
	int fd;

	/* In amdgpu the flag is a hint, which it drops until the buffer has to be where the CPU sees it. */
	if (!is_rkfd())
		expected &= ~(uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC;
	need_bo(gpu, &bo, flags, BYTES);
	fd = need_export(gpu, bo.handle);
	CHECK_OK(info(gpu, fd, &args));
	CHECK_EQ(args.size, BYTES);
	CHECK_EQ(args.gpu_id, gpu->id);
	CHECK_EQ(args.metadata_size, 0);
	CHECK_EQ(args.flags, expected);
	close(fd);
	drop_bo(gpu, &bo);
}

CASE(info_works, "GET_DMABUF_INFO tells size, GPU and kind of memory, without metadata")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	check_info(&gpu, FLAGS_GTT, KFD_IOC_ALLOC_MEM_FLAGS_GTT);
	check_info(&gpu, FLAGS_VRAM_PRIVATE, KFD_IOC_ALLOC_MEM_FLAGS_VRAM);
	check_info(&gpu, FLAGS_VRAM, KFD_IOC_ALLOC_MEM_FLAGS_VRAM | KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC);
}

CASE(refused, "EXPORT_DMABUF of memory of the process, of doorbells and of registers is EPERM")
{
	struct gpu gpu;
	struct bo bo;
	int fd;

	need_vm(&gpu, 0);
	if (!is_rkfd())
		SKIP("amdkfd shares doorbells and registers");
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	close(need_export(&gpu, bo.handle));
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_USERPTR, PAGE));
	CHECK_ERR(export_bo(&gpu, bo.handle, &fd), EPERM);
	CHECK_EQ(fd, -1);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_DOORBELL, DOORBELL_SLICE));
	CHECK_ERR(export_bo(&gpu, bo.handle, &fd), EPERM);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_MMIO, PAGE));
	CHECK_ERR(export_bo(&gpu, bo.handle, &fd), EPERM);
}

CASE(too_many_files, "EXPORT_DMABUF without a free descriptor is EMFILE, and the buffer is as before")
{
	struct rlimit limit, none;
	struct gpu gpu;
	struct bo bo;
	int fd;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	close(need_export(&gpu, bo.handle));
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = limit.rlim_max };
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK_ERR(export_bo(&gpu, bo.handle, &fd), EMFILE);
	CHECK_EQ(fd, -1);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	close(need_export(&gpu, bo.handle));
	drop_bo(&gpu, &bo);
}

/* Handles of the render node. */

static int handle_to_fd(int drm, uint32_t handle, uint32_t flags, int *fd)
{
	struct drm_prime_handle args = { .handle = handle, .flags = flags, .fd = -1 };
	int err = kfd_call(drm, DRM_IOCTL_PRIME_HANDLE_TO_FD, &args);

	*fd = args.fd;
	return err;
}

static int fd_to_handle(int drm, int fd, uint32_t *handle)
{
	struct drm_prime_handle args = { .fd = fd };
	int err = kfd_call(drm, DRM_IOCTL_PRIME_FD_TO_HANDLE, &args);

	*handle = args.handle;
	return err;
}

static int close_handle(int drm, uint32_t handle)
{
	struct drm_gem_close args = { .handle = handle };

	return kfd_call(drm, DRM_IOCTL_GEM_CLOSE, &args);
}

/* The first handle that a file gives out. */
#define FIRST_HANDLE 1

static void need_handles(struct gpu *gpu)
{
	need_vm(gpu, 0);
	if (!is_rkfd())
		SKIP("buffers of /dev/kfd have no handle in the render node's file");
}

CASE(prime_export, "PRIME export of a buffer's handle is what EXPORT_DMABUF gives; of no handle ENOENT")
{
	struct gpu gpu;
	struct bo bo;
	int fd, other;

	need_handles(&gpu);
	need_bo(&gpu, &bo, FLAGS_VRAM, BYTES);
	CHECK_EQ(handle_to_fd(gpu.drm, FIRST_HANDLE + 1, DRM_CLOEXEC, &fd), ENOENT);
	CHECK_EQ(fd, -1);
	CHECK_EQ(handle_to_fd(gpu.drm, FIRST_HANDLE, DRM_CLOEXEC | DRM_RDWR, &fd), 0);
	other = need_export(&gpu, bo.handle);
	CHECK_EQ(inode(fd), inode(other));
	*bo32(&bo, LAST) = 0x31415926;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	CHECK_EQ(map_fd(fd, PROT_READ)[LAST / 4], 0x31415926);
	drop_bo(&gpu, &bo);
}

CASE(prime_userptr, "PRIME export of memory of the process is EPERM")
{
	struct gpu gpu;
	struct bo bo;
	int fd;

	need_handles(&gpu);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_USERPTR, PAGE));
	CHECK_EQ(handle_to_fd(gpu.drm, FIRST_HANDLE, DRM_CLOEXEC, &fd), EPERM);
	CHECK_EQ(fd, -1);
}

CASE(prime_import, "PRIME import gives another file of the node a handle, and with it the right to map; twice the same")
{
	uint32_t handle, again;
	struct gpu gpu;
	struct bo bo;
	int fd, drm;
	void *p;

	need_handles(&gpu);
	need_bo(&gpu, &bo, FLAGS_VRAM, BYTES);
	fd = need_export(&gpu, bo.handle);
	drm = need_render(&gpu);
	CHECK(mmap(NULL, BYTES, PROT_READ, MAP_SHARED, drm, bo.mmap_offset) == MAP_FAILED);
	CHECK_EQ(errno, EACCES);
	CHECK_EQ(fd_to_handle(drm, fd, &handle), 0);
	CHECK_EQ(fd_to_handle(drm, fd, &again), 0);
	CHECK_EQ(handle, again);
	close(fd);
	drop_bo(&gpu, &bo);
	p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, drm, bo.mmap_offset);
	CHECK(p != MAP_FAILED);
	*(volatile uint32_t *)(p + LAST) = 0x27182818;
	/* A buffer of a handle alone can be shared, too. */
	CHECK_EQ(handle_to_fd(drm, handle, DRM_CLOEXEC | DRM_RDWR, &fd), 0);
	CHECK_EQ(close_handle(drm, handle), 0);
	CHECK(mmap(NULL, BYTES, PROT_READ, MAP_SHARED, drm, bo.mmap_offset) == MAP_FAILED);
	CHECK_EQ(map_fd(fd, PROT_READ)[LAST / 4], 0x27182818);
	/* In the file that it came from it is a buffer like any. */
	CHECK_EQ(fd_to_handle(gpu.drm, fd, &handle), 0);
	CHECK_EQ(close_handle(gpu.drm, handle), 0);
	CHECK_EQ(fd_to_handle(gpu.drm, gpu.fd, &handle), EINVAL);
}

CASE(handle_gone, "EXPORT_DMABUF of a buffer whose handle user space closed is EINVAL, also where another has the number")
{
	struct bo bo, other;
	struct gpu gpu;
	int fd;

	need_handles(&gpu);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	CHECK_EQ(close_handle(gpu.drm, FIRST_HANDLE), 0);
	CHECK_ERR(export_bo(&gpu, bo.handle, &fd), EINVAL);
	need_bo(&gpu, &other, FLAGS_GTT, PAGE);
	CHECK_ERR(export_bo(&gpu, bo.handle, &fd), EINVAL);
	CHECK_EQ(fd, -1);
	close(need_export(&gpu, other.handle));
	drop_bo(&gpu, &bo);
	drop_bo(&gpu, &other);
}

CASE(read_only, "a dma-buf of a buffer that the GPU may not write can be mapped to be read only")
{
	struct gpu gpu;
	struct bo bo;
	int fd;

	need_vm(&gpu, 0);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_GTT & ~WRITABLE, BYTES));
	*bo32(&bo, LAST) = 0x99;
	fd = need_export(&gpu, bo.handle);
	CHECK_EQ(map_fd(fd, PROT_READ)[LAST / 4], 0x99);
	CHECK(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK_EQ(errno, EACCES);
	CHECK(mmap(NULL, BYTES + PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, BYTES) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
}

/* Two GPUs. */

CASE(other_gpu, "system memory of one GPU is imported on another, VRAM is EINVAL there")
{
	struct kfd_ioctl_get_dmabuf_info_args args;
	struct bo bo, twin, vram;
	uint32_t ids[MAX_GPUS];
	struct gpu other;
	uint64_t handle;
	int fd;

	if (gpu_ids(need_kfd(), ids, MAX_GPUS) < 2)
		SKIP("one GPU");
	/* The queue is on the first one. */
	begin(FLAGS_GTT);
	need_vm_of(&other, 1, f.gpu.fd);
	need_bo(&other, &bo, FLAGS_GTT, BYTES);
	fd = need_export(&other, bo.handle);
	CHECK_OK(info(&other, fd, &args));
	CHECK_EQ(args.gpu_id, other.id);
	need_import(&f.gpu, fd, BYTES, &twin);
	CHECK_EQ(twin.handle >> 32, f.gpu.id);
	*bo32(&bo, LAST) = 0x77;
	CHECK_EQ(gpu_reads(twin.va + LAST), 0x77);
	gpu_writes(twin.va + LAST, 0x78);
	CHECK_EQ(*bo32(&bo, LAST), 0x78);
	CHECK_OK(bo_alloc(&other, &vram, FLAGS_VRAM, PAGE));
	fd = need_export(&other, vram.handle);
	CHECK_ERR(import_fd(&f.gpu, fd, need_address(PAGE, PAGE), &handle), EINVAL);
	CHECK_OK(import_fd(&other, fd, need_address(PAGE, PAGE), &handle));
	/* An open descriptor outlives them all. */
	drop_bo(&other, &bo);
	CHECK_EQ(gpu_reads(twin.va + LAST), 0x78);
	drop_bo(&f.gpu, &twin);
	end();
}
