// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * AVAILABLE_MEMORY: what takes VRAM, and when it comes back.
 */
#include "kfd.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#define MIB (1ull << 20)

/* A CPU mapping keeps a buffer's memory alive, so it has to go as well. */
static void discard(const struct gpu *gpu, struct bo *bo)
{
	CHECK_OK(bo_free(gpu, bo));
	CHECK_EQ(munmap((void *)bo->va, bo->size), 0);
}

CASE(available_value, "AVAILABLE_MEMORY: a multiple of 2 MiB, not more than the VRAM")
{
	struct gpu gpu;
	uint64_t n;

	need_vm(&gpu, 0);
	n = available(&gpu);
	CHECK_OP(n, >, 0);
	CHECK_EQ(n % (2 * MIB), 0);
	if (gpu.vram)
		CHECK_OP(n, <=, gpu.vram);
}

CASE(available_follows, "AVAILABLE_MEMORY: shrinks by an allocation in 2 MiB steps and grows back")
{
	struct gpu gpu;
	uint64_t before;
	struct bo a, b;

	need_vm(&gpu, 0);
	before = available_settled(&gpu);
	CHECK_OK(bo_alloc(&gpu, &a, FLAGS_VRAM, 16 * MIB));
	CHECK_EQ(available(&gpu), before - 16 * MIB);
	CHECK_OK(bo_alloc(&gpu, &b, FLAGS_VRAM, PAGE));
	CHECK_EQ(available(&gpu), before - 18 * MIB);
	discard(&gpu, &b);
	CHECK_EQ(available(&gpu), before - 16 * MIB);
	discard(&gpu, &a);
	CHECK_EQ(available(&gpu), before);
}

CASE(mapping_keeps_memory, "AVAILABLE_MEMORY: a freed buffer's memory is taken as long as the CPU maps it")
{
	struct gpu gpu;
	uint64_t before;
	struct bo bo;

	need_vm(&gpu, 0);
	before = available_settled(&gpu);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_VRAM, 4 * MIB));
	CHECK_OK(bo_free(&gpu, &bo));
	CHECK_EQ(available(&gpu), before - 4 * MIB);
	CHECK_EQ(munmap((void *)bo.va, bo.size), 0);
	CHECK_EQ(available(&gpu), before);
}

CASE(available_unmoved, "AVAILABLE_MEMORY: is not moved by system memory")
{
	struct gpu gpu;
	uint64_t before;
	struct bo bo;

	need_vm(&gpu, 0);
	before = available_settled(&gpu);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_GTT, 16 * MIB));
	CHECK_EQ(available(&gpu), before);
	discard(&gpu, &bo);
}

static void child_takes_vram(void *unused)
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_VRAM, 32 * MIB);
}

CASE(available_after_exit, "AVAILABLE_MEMORY: what a process leaves behind comes back")
{
	struct gpu gpu;
	uint64_t before;

	need_vm(&gpu, 0);
	before = available_settled(&gpu);
	CHECK_EQ(in_child(child_takes_vram, NULL), 0);
	/* The memory goes with the last reference, which a worker may hold a little longer. */
	await_available(&gpu, before);
}

CASE(available_small, "AVAILABLE_MEMORY: 600 buffers of a page do not use up the VRAM")
{
	struct gpu gpu;
	struct bo bo[600];

	need_vm(&gpu, 0);
	for (int i = 0; i < 600; i++)
		CHECK_OK(bo_alloc(&gpu, &bo[i], FLAGS_VRAM_PRIVATE, PAGE));
	for (int i = 0; i < 600; i++)
		CHECK_OK(bo_free(&gpu, &bo[i]));
}

CASE(registered_often, "userptr: the same memory registered until it would be more than the machine has is charged once")
{
	const uint64_t size = 64 * MIB;
	unsigned int count, n;
	struct sysinfo info;
	struct bo *bos;
	struct gpu gpu;
	void *at;

	if (!is_rkfd())
		SKIP("other drivers charge each registration");
	need_vm(&gpu, 0);
	CHECK_EQ(sysinfo(&info), 0);
	count = (uint64_t)info.totalram * info.mem_unit / size + 2;
	bos = calloc(count, sizeof(*bos));
	CHECK(bos);
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	for (n = 0; n < count; n++)
		CHECK_OK(bo_wrap(&gpu, &bos[n], FLAGS_USERPTR, at, size));
	CHECK_OK(bo_map(&gpu, &bos[0]));
	CHECK_OK(bo_unmap(&gpu, &bos[0]));
	while (n)
		CHECK_OK(bo_free(&gpu, &bos[--n]));
}

CASE(available_bad_gpu, "AVAILABLE_MEMORY: an unknown GPU is EINVAL")
{
	struct kfd_ioctl_get_available_memory_args args = { .gpu_id = 0x5555aaaa };
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_AVAILABLE_MEMORY, &args), EINVAL);
}

CASE_LIMIT(vram_exhaustion, "VRAM: taken in pieces to the end is ENOMEM, given back it is all there", 120)
{
	struct bo *bos;
	struct gpu gpu;
	uint64_t before, piece;
	unsigned int n = 0, most;
	int err;

	need_vm(&gpu, 0);
	before = available_settled(&gpu);
	piece = before / 16 & ~(2 * MIB - 1);
	if (!piece)
		SKIP("too little VRAM to take in pieces");
	most = before / piece + 1;
	bos = calloc(most, sizeof(*bos));
	CHECK(bos);
	while (n < most && !(err = bo_alloc(&gpu, &bos[n], FLAGS_VRAM_PRIVATE, piece)))
		n++;
	CHECK_ERR(err, ENOMEM);
	CHECK_OP(n, >=, 14);
	while (n)
		discard(&gpu, &bos[--n]);
	CHECK_EQ(available(&gpu), before);
}
