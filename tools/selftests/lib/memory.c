// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Buffers, address space and how much VRAM there is. */
#include "kfd.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t available(const struct gpu *gpu)
{
	struct kfd_ioctl_get_available_memory_args args = { .gpu_id = gpu->id };

	CHECK_OK(kfd_call(gpu->fd, AMDKFD_IOC_AVAILABLE_MEMORY, &args));
	return args.available;
}

/* It is settled when this many looks, 5 ms apart, see the same. Looks and not time: a machine may stand still. */
#define SETTLED_LOOKS 40

uint64_t available_settled(const struct gpu *gpu)
{
	uint64_t end = now_ms() + WAIT_MS, since = now_ms(), seen = available(gpu);

	for (unsigned int same = 0; same < SETTLED_LOOKS || now_ms() < since + tap_ms(200); same++) {
		uint64_t now = available(gpu);

		if (now != seen) {
			seen = now;
			since = now_ms();
			same = 0;
		}
		if (now_ms() > end)
			FAIL("other processes allocate VRAM meanwhile");
		usleep(5000);
	}
	return seen;
}

void await_available(const struct gpu *gpu, uint64_t bytes)
{
	uint64_t end = now_ms() + WAIT_MS, now;

	while ((now = available(gpu)) < bytes) {
		if (now_ms() > end)
			FAIL("%llu bytes of VRAM are missing", (unsigned long long)(bytes - now));
		usleep(1000);
	}
}

uint64_t need_address(uint64_t size, uint64_t align)
{
	uint64_t whole = size + align;
	char *p = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t start, at;

	if (p == MAP_FAILED)
		FAIL("cannot reserve %#llx bytes: %s", (unsigned long long)whole, strerror(errno));
	start = (uintptr_t)p;
	at = (start + align - 1) & ~(align - 1);
	if (at > start)
		munmap(p, at - start);
	if (start + whole > at + size)
		munmap((void *)(at + size), start + whole - at - size);
	return at;
}

int bo_alloc(const struct gpu *gpu, struct bo *bo, uint32_t flags, uint64_t size)
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = { .size = size, .gpu_id = gpu->id, .flags = flags };
	int prot = PROT_READ | PROT_WRITE, err;

	*bo = (struct bo){ .size = size, .flags = flags };
	if (flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR) {
		void *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return errno;
		madvise(p, size, MADV_DONTFORK);
		bo->va = (uintptr_t)p;
		args.mmap_offset = bo->va;
	} else {
		bo->va = need_address(page_align(size), size >= 2 << 20 ? 2 << 20 : PAGE);
	}
	args.va_addr = bo->va;
	err = kfd_call(gpu->fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args);
	if (err) {
		munmap((void *)bo->va, size);
		return err;
	}
	bo->handle = args.handle;
	bo->mmap_offset = args.mmap_offset;
	if (flags & (KFD_IOC_ALLOC_MEM_FLAGS_GTT | KFD_IOC_ALLOC_MEM_FLAGS_VRAM)) {
		if (flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM && !(flags & KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC))
			prot = PROT_NONE;
		if (mmap((void *)bo->va, size, prot, MAP_SHARED | MAP_FIXED, gpu->drm, bo->mmap_offset) ==
		    MAP_FAILED)
			FAIL("mmap of a buffer (flags %#x, %#llx bytes): %s", flags, (unsigned long long)size,
			     strerror(errno));
		madvise((void *)bo->va, size, MADV_DONTFORK);
	}
	return 0;
}

int bo_wrap(const struct gpu *gpu, struct bo *bo, uint32_t flags, void *at, uint64_t size)
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = {
		.va_addr = (uintptr_t)at,
		.mmap_offset = (uintptr_t)at,
		.size = size,
		.gpu_id = gpu->id,
		.flags = flags,
	};
	int err = kfd_call(gpu->fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args);

	*bo = (struct bo){ .handle = args.handle, .va = (uintptr_t)at, .size = size, .flags = flags };
	return err;
}

int bo_map(const struct gpu *gpu, const struct bo *bo)
{
	uint32_t id = gpu->id;
	struct kfd_ioctl_map_memory_to_gpu_args args = {
		.handle = bo->handle,
		.device_ids_array_ptr = (uintptr_t)&id,
		.n_devices = 1,
	};
	int err = kfd_call(gpu->fd, AMDKFD_IOC_MAP_MEMORY_TO_GPU, &args);

	if (!err)
		CHECK_EQ(args.n_success, 1);
	return err;
}

int bo_unmap(const struct gpu *gpu, const struct bo *bo)
{
	uint32_t id = gpu->id;
	struct kfd_ioctl_unmap_memory_from_gpu_args args = {
		.handle = bo->handle,
		.device_ids_array_ptr = (uintptr_t)&id,
		.n_devices = 1,
	};
	int err = kfd_call(gpu->fd, AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, &args);

	if (!err)
		CHECK_EQ(args.n_success, 1);
	return err;
}

int bo_free(const struct gpu *gpu, const struct bo *bo)
{
	struct kfd_ioctl_free_memory_of_gpu_args args = { .handle = bo->handle };

	return kfd_call(gpu->fd, AMDKFD_IOC_FREE_MEMORY_OF_GPU, &args);
}

void need_bo(const struct gpu *gpu, struct bo *bo, uint32_t flags, uint64_t size)
{
	CHECK_OK(bo_alloc(gpu, bo, flags, size));
	CHECK_OK(bo_map(gpu, bo));
}

void drop_bo(const struct gpu *gpu, struct bo *bo)
{
	CHECK_OK(bo_unmap(gpu, bo));
	CHECK_OK(bo_free(gpu, bo));
	munmap((void *)bo->va, bo->size);
	bo->va = 0;
}
