// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ALLOC and FREE, as the CPU sees them. (memory_map.c has MAP and UNMAP, queue_memory.c the GPU's view.)
 */
#include "kfd.h"
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)

static int alloc_args(const struct gpu *gpu, struct kfd_ioctl_alloc_memory_of_gpu_args *args)
{
	return kfd_call(gpu->fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, args);
}

/* A call that is right in every respect; tests spoil one. */
static struct kfd_ioctl_alloc_memory_of_gpu_args good(const struct gpu *gpu, uint32_t flags, uint64_t size)
{
	return (struct kfd_ioctl_alloc_memory_of_gpu_args){
		.va_addr = need_address(size ? size : PAGE, PAGE),
		.size = size,
		.gpu_id = gpu->id,
		.flags = flags,
	};
}

static void pattern_holds(const struct bo *bo)
{
	for (uint64_t at = 0; at < bo->size; at += 8)
		*bo64(bo, at) = at * 0x9e3779b97f4a7c15ull + 1;
	for (uint64_t at = 0; at < bo->size; at += 8)
		CHECK_EQ(*bo64(bo, at), at * 0x9e3779b97f4a7c15ull + 1);
}

static void is_zero(const struct bo *bo)
{
	for (uint64_t at = 0; at < bo->size; at += 8)
		CHECK_EQ(*bo64(bo, at), 0);
}

static void life(uint32_t flags, uint64_t size)
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, flags, size);
	CHECK_EQ(bo.handle >> 32, gpu.id);
	is_zero(&bo);
	pattern_holds(&bo);
	drop_bo(&gpu, &bo);
}

CASE(gtt_page, "GTT: one page is zeroed, keeps what the CPU writes, is freed") { life(FLAGS_GTT, PAGE); }
CASE(gtt_large, "GTT: 4 MiB and a page") { life(FLAGS_GTT, 4 * MIB + PAGE); }
CASE(vram_page, "VRAM: one page is zeroed, keeps what the CPU writes, is freed") { life(FLAGS_VRAM, PAGE); }
CASE(vram_large, "VRAM: 4 MiB and a page") { life(FLAGS_VRAM, 4 * MIB + PAGE); }
CASE(userptr_page, "userptr: one page") { life(FLAGS_USERPTR, PAGE); }
CASE(userptr_large, "userptr: 4 MiB and a page") { life(FLAGS_USERPTR, 4 * MIB + PAGE); }

CASE(vram_rezeroed, "VRAM: memory freed by one buffer is zero in the next")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	for (int i = 0; i < 4; i++) {
		need_bo(&gpu, &bo, FLAGS_VRAM, MIB);
		is_zero(&bo);
		memset((void *)bo.va, 0xa5, bo.size);
		drop_bo(&gpu, &bo);
	}
}

static unsigned long hdp_flushes(void)
{
	const char *key = "\"hdp_flushes\":";
	const char *count = strstr(ask_model("{\"cmd\":\"stats\"}"), key);

	CHECK(count);
	return strtoul(count + strlen(key), NULL, 10);
}

CASE(vram_zeroes_pushed, "VRAM: the zeroes of a new buffer have left the host data path when ALLOC returns")
{
	struct gpu gpu;
	struct bo bo;

	if (!is_rkfd())
		SKIP("amdgpu clears buffers by SDMA, past the host data path");
	need_model();
	need_vm(&gpu, 0);
	for (int i = 0; i < 3; i++) {
		unsigned long before = hdp_flushes();

		/* Nothing is mapped for the GPU yet, so no page table asks for the flush. */
		CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_VRAM, PAGE));
		CHECK_OP(hdp_flushes(), >, before);
		CHECK_OK(bo_free(&gpu, &bo));
	}
}

CASE(unmap_pushed, "what UNMAP takes out of the page tables has left the host data path when it returns")
{
	struct gpu gpu;
	struct bo bo;

	if (!is_rkfd())
		SKIP("amdgpu may write page tables by SDMA, past the host data path");
	need_model();
	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	for (int i = 0; i < 3; i++) {
		unsigned long before = hdp_flushes();

		/* No queue runs, so nothing else asks for the flush. */
		CHECK_OK(bo_unmap(&gpu, &bo));
		CHECK_OP(hdp_flushes(), >, before);
		CHECK_OK(bo_map(&gpu, &bo));
	}
	drop_bo(&gpu, &bo);
}

/* A line of the render node's fdinfo, in bytes. */
static uint64_t fdinfo(const struct gpu *gpu, const char *key)
{
	char path[64], line[256], unit[8] = "";
	unsigned long long value = 0;
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", gpu->drm);
	file = fopen(path, "r");
	CHECK(file);
	while (!found && fgets(line, sizeof(line), file))
		found = !strncmp(line, key, strlen(key)) && line[strlen(key)] == ':' &&
			sscanf(line + strlen(key) + 1, "%llu %7s", &value, unit) >= 1;
	fclose(file);
	CHECK(found);
	return value << (!strcmp(unit, "KiB") ? 10 : !strcmp(unit, "MiB") ? 20 : 0);
}

CASE(fdinfo_regions, "fdinfo of the render node: what its buffers take of VRAM and of system memory, and what is shared")
{
	static const char *const keys[] = { "drm-total-vram", "drm-resident-vram", "drm-shared-vram",
					    "drm-total-gtt", "drm-resident-gtt", "drm-shared-gtt" };
	static const uint64_t alone[] = { 3 * MIB, 3 * MIB, 0, 5 * PAGE, 5 * PAGE, 0 };
	static const uint64_t shared[] = { 3 * MIB, 3 * MIB, 3 * MIB, 5 * PAGE, 5 * PAGE, 0 };
	struct kfd_ioctl_export_dmabuf_args args = { 0 };
	uint64_t before[6];
	struct bo vram, gtt;
	struct gpu gpu;

	if (!is_rkfd())
		SKIP("other drivers count page tables, too");
	need_vm(&gpu, 0);
	for (int i = 0; i < 6; i++)
		before[i] = fdinfo(&gpu, keys[i]);
	need_bo(&gpu, &vram, FLAGS_VRAM, 3 * MIB);
	need_bo(&gpu, &gtt, FLAGS_GTT, 5 * PAGE);
	for (int i = 0; i < 6; i++)
		CHECK_EQ(fdinfo(&gpu, keys[i]) - before[i], alone[i]);
	args.handle = vram.handle;
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_EXPORT_DMABUF, &args));
	for (int i = 0; i < 6; i++)
		CHECK_EQ(fdinfo(&gpu, keys[i]) - before[i], shared[i]);
	close((int)args.dmabuf_fd);
	drop_bo(&gpu, &gtt);
	drop_bo(&gpu, &vram);
	for (int i = 0; i < 6; i++)
		CHECK_EQ(fdinfo(&gpu, keys[i]), before[i]);
}

CASE(vram_private, "VRAM without host access: its mapping with PROT_NONE succeeds")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_VRAM_PRIVATE, 64 * PAGE);
	drop_bo(&gpu, &bo);
}

CASE(many_handles, "256 buffers have distinct handles, and freed ones can be had again")
{
	static struct bo bos[256];
	struct gpu gpu;

	need_vm(&gpu, 0);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 256; i++) {
			need_bo(&gpu, &bos[i], FLAGS_GTT, PAGE);
			*bo32(&bos[i], 0) = i;
			for (int j = 0; j < i; j++)
				CHECK_NE(bos[i].handle, bos[j].handle);
		}
		for (int i = 0; i < 256; i++) {
			CHECK_EQ(*bo32(&bos[i], 0), i);
			drop_bo(&gpu, &bos[i]);
		}
	}
}

CASE(left_behind, "buffers, mapped and not, are left to the end of the process")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, MIB);
	need_bo(&gpu, &bo, FLAGS_VRAM, MIB);
	need_bo(&gpu, &bo, FLAGS_USERPTR, MIB);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_VRAM, MIB));
}

CASE(alloc_zero, "ALLOC: size 0 is EINVAL")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_GTT, 0);
	CHECK_ERR(alloc_args(&gpu, &args), EINVAL);
}

CASE(alloc_bad_gpu, "ALLOC: an unknown GPU is EINVAL")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_GTT, PAGE);
	args.gpu_id ^= 0x5555;
	CHECK_ERR(alloc_args(&gpu, &args), EINVAL);
}

CASE(alloc_unbound, "ALLOC: before ACQUIRE_VM is ENODEV")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	need_gpu(&gpu, 0);
	args = good(&gpu, FLAGS_GTT, PAGE);
	CHECK_ERR(alloc_args(&gpu, &args), ENODEV);
}

CASE(alloc_no_type, "ALLOC: no memory type is EINVAL")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	need_vm(&gpu, 0);
	args = good(&gpu, COMMON, PAGE);
	CHECK_ERR(alloc_args(&gpu, &args), EINVAL);
}

CASE(alloc_doorbell_size, "ALLOC: a doorbell buffer of another size than the slice is EINVAL")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_DOORBELL, PAGE);
	CHECK_ERR(alloc_args(&gpu, &args), EINVAL);
	args = good(&gpu, FLAGS_DOORBELL, 2 * DOORBELL_SLICE);
	CHECK_ERR(alloc_args(&gpu, &args), EINVAL);
}

CASE(alloc_mmio_size, "ALLOC: a register page of another size than a page is EINVAL")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_MMIO, 2 * PAGE);
	CHECK_ERR(alloc_args(&gpu, &args), EINVAL);
}

CASE(alloc_userptr_zero, "ALLOC: a userptr without CPU address is EINVAL")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_USERPTR, PAGE);
	args.mmap_offset = 0;
	CHECK_ERR(alloc_args(&gpu, &args), EINVAL);
}

CASE(alloc_userptr_unmapped, "ALLOC: a userptr over a hole in the address space is EFAULT")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_USERPTR, PAGE);
	munmap((void *)args.va_addr, PAGE);
	args.mmap_offset = args.va_addr;
	CHECK_ERR(alloc_args(&gpu, &args), EFAULT);
}

CASE(alloc_vram_oversize, "ALLOC: more VRAM than there is is ENOMEM, and the rest still works")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_VRAM_PRIVATE, 1ull << 44);
	CHECK_ERR(alloc_args(&gpu, &args), ENOMEM);
	need_bo(&gpu, &bo, FLAGS_VRAM, PAGE);
	drop_bo(&gpu, &bo);
}

CASE(alloc_gtt_oversize, "ALLOC: more system memory than there is is ENOMEM")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_GTT, 1ull << 44);
	CHECK_ERR(alloc_args(&gpu, &args), ENOMEM);
}

CASE(alloc_vram_no_va, "ALLOC: VRAM without an address is memory only")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct kfd_ioctl_free_memory_of_gpu_args release = { 0 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_VRAM, 2 * MIB);
	args.va_addr = 0;
	CHECK_OK(alloc_args(&gpu, &args));
	CHECK_NE(args.handle, 0);
	release.handle = args.handle;
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_FREE_MEMORY_OF_GPU, &release));
}

CASE(doorbell_buffer, "ALLOC: the doorbell slice is a buffer of 8 KiB that maps on the GPU")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_DOORBELL, DOORBELL_SLICE));
	CHECK_OK(bo_map(&gpu, &bo));
	drop_bo(&gpu, &bo);
}

CASE(mmio_page, "ALLOC: the register page is mapped through /dev/kfd")
{
	volatile uint32_t *regs;
	struct gpu gpu;
	struct bo bo;
	int err;

	need_vm(&gpu, 0);
	err = bo_alloc(&gpu, &bo, FLAGS_MMIO, PAGE);
	if (err == ENOMEM && !is_rkfd())
		SKIP("this GPU has no remapped register page");
	CHECK_OK(err);
	CHECK_EQ(bo.mmap_offset, (uint64_t)gpu.id << 46);
	regs = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, gpu.fd, (off_t)bo.mmap_offset);
	CHECK(regs != MAP_FAILED);
	/* HDP flush: a write of any value is enough, and it must not kill. */
	regs[0] = 1;
	CHECK_OK(bo_map(&gpu, &bo));
	CHECK_EQ(munmap((void *)regs, PAGE), 0);
	drop_bo(&gpu, &bo);
}

CASE(free_twice, "FREE: twice is EINVAL")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_GTT, PAGE));
	CHECK_OK(bo_free(&gpu, &bo));
	CHECK_ERR(bo_free(&gpu, &bo), EINVAL);
}

CASE(free_bad_handle, "FREE: handles that never were are EINVAL")
{
	struct bo bo = { 0 };
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(bo_free(&gpu, &bo), EINVAL);
	bo.handle = (uint64_t)gpu.id << 32 | 0x7fffffff;
	CHECK_ERR(bo_free(&gpu, &bo), EINVAL);
	bo.handle = (uint64_t)(gpu.id ^ 0x5555) << 32 | 1;
	CHECK_ERR(bo_free(&gpu, &bo), EINVAL);
	bo.handle = ~0ull;
	CHECK_ERR(bo_free(&gpu, &bo), EINVAL);
}

CASE(free_mapped, "FREE: of a buffer that is mapped is EBUSY, and it stays usable")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	CHECK_ERR(bo_free(&gpu, &bo), EBUSY);
	pattern_holds(&bo);
	drop_bo(&gpu, &bo);
}

CASE(alloc_doubled, "ALLOC: memory that is mapped twice in a row, as older hardware has it, is EINVAL")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;

	if (!is_rkfd())
		SKIP("other drivers make it of half the size");
	need_vm(&gpu, 0);
	args = good(&gpu, FLAGS_GTT | KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM, 2 * PAGE);
	CHECK_ERR(alloc_args(&gpu, &args), EINVAL);
}
