// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * MAP and UNMAP, as the CPU sees them. (queue_memory.c has the GPU's view.)
 */
#include "kfd.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

CASE(map_twice, "MAP: of a mapped buffer succeeds and one UNMAP undoes it")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	CHECK_OK(bo_map(&gpu, &bo));
	CHECK_OK(bo_unmap(&gpu, &bo));
	CHECK_ERR(bo_unmap(&gpu, &bo), EINVAL);
	CHECK_OK(bo_free(&gpu, &bo));
}

CASE(map_again, "MAP: after UNMAP works, repeatedly")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_VRAM, 3 * PAGE));
	for (int i = 0; i < 20; i++) {
		CHECK_OK(bo_map(&gpu, &bo));
		CHECK_OK(bo_unmap(&gpu, &bo));
	}
	CHECK_OK(bo_free(&gpu, &bo));
}

CASE(unmap_unmapped, "UNMAP: of a buffer that is not mapped is EINVAL")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_GTT, PAGE));
	CHECK_ERR(bo_unmap(&gpu, &bo), EINVAL);
	CHECK_OK(bo_free(&gpu, &bo));
}

static int map_args(const struct gpu *gpu, unsigned long command, uint64_t handle, const void *ids, uint32_t n,
		    uint32_t *done)
{
	struct kfd_ioctl_map_memory_to_gpu_args args = {
		.handle = handle,
		.device_ids_array_ptr = (uintptr_t)ids,
		.n_devices = n,
		.n_success = *done,
	};
	int err = kfd_call(gpu->fd, command, &args);

	*done = args.n_success;
	return err;
}

static void both(void (*test)(const struct gpu *, unsigned long, struct bo *), bool mapped)
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_GTT, PAGE));
	if (mapped)
		CHECK_OK(bo_map(&gpu, &bo));
	test(&gpu, mapped ? AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU : AMDKFD_IOC_MAP_MEMORY_TO_GPU, &bo);
}

static void no_gpus(const struct gpu *gpu, unsigned long command, struct bo *bo)
{
	uint32_t done = 0;

	CHECK_ERR(map_args(gpu, command, bo->handle, &gpu->id, 0, &done), EINVAL);
}

CASE(map_none, "MAP: for no GPU is EINVAL") { both(no_gpus, false); }
CASE(unmap_none, "UNMAP: from no GPU is EINVAL") { both(no_gpus, true); }

static void too_much_done(const struct gpu *gpu, unsigned long command, struct bo *bo)
{
	uint32_t done = 2;

	CHECK_ERR(map_args(gpu, command, bo->handle, &gpu->id, 1, &done), EINVAL);
}

CASE(map_done_beyond, "MAP: n_success beyond n is EINVAL") { both(too_much_done, false); }
CASE(unmap_done_beyond, "UNMAP: n_success beyond n is EINVAL") { both(too_much_done, true); }

static void unreadable_ids(const struct gpu *gpu, unsigned long command, struct bo *bo)
{
	uint32_t done = 0;

	CHECK_ERR(map_args(gpu, command, bo->handle, (void *)8, 1, &done), EFAULT);
}

CASE(map_bad_ids, "MAP: an unreadable list is EFAULT") { both(unreadable_ids, false); }
CASE(unmap_bad_ids, "UNMAP: an unreadable list is EFAULT") { both(unreadable_ids, true); }

static void unknown_handle(const struct gpu *gpu, unsigned long command, struct bo *bo)
{
	uint32_t done = 0;

	CHECK_ERR(map_args(gpu, command, (uint64_t)gpu->id << 32 | 0x7fffffff, &gpu->id, 1, &done), ENOMEM);
	CHECK_ERR(map_args(gpu, command, (uint64_t)(gpu->id ^ 0x5555) << 32 | 1, &gpu->id, 1, &done), EINVAL);
}

CASE(map_bad_handle, "MAP: an unknown handle is ENOMEM, one of an unknown GPU EINVAL") { both(unknown_handle, false); }
CASE(unmap_bad_handle, "UNMAP: an unknown handle is ENOMEM, one of an unknown GPU EINVAL") { both(unknown_handle, true); }

static void unknown_second(const struct gpu *gpu, unsigned long command, struct bo *bo)
{
	uint32_t ids[2] = { gpu->id, gpu->id ^ 0x5555 }, done = 0;

	CHECK_ERR(map_args(gpu, command, bo->handle, ids, 2, &done), EINVAL);
	/* How far it got comes back with the error, so that a caller can go on from there. */
	CHECK_EQ(done, 1);
}

CASE(map_partial, "MAP: an unknown GPU in second place is EINVAL with n_success 1") { both(unknown_second, false); }
CASE(unmap_partial, "UNMAP: an unknown GPU in second place is EINVAL with n_success 1") { both(unknown_second, true); }

CASE(map_resumed, "MAP: what n_success counts is skipped, even an unknown GPU's id is")
{
	struct gpu gpu;
	struct bo bo;
	uint32_t done = 1;

	need_vm(&gpu, 0);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_GTT, PAGE));
	CHECK_OK(map_args(&gpu, AMDKFD_IOC_MAP_MEMORY_TO_GPU, bo.handle, &gpu.id, 1, &done));
	CHECK_EQ(done, 1);
	/* Nothing was mapped by it. */
	CHECK_ERR(bo_unmap(&gpu, &bo), EINVAL);
}

CASE(map_both_gpus, "MAP: one buffer of each kind on two GPUs at once")
{
	static const uint32_t kinds[] = { FLAGS_GTT, FLAGS_USERPTR };
	struct gpu first, second;

	need_vm(&first, 0);
	need_vm_of(&second, 1, first.fd);
	for (unsigned int i = 0; i < 2; i++) {
		uint32_t ids[2] = { first.id, second.id }, done = 0;
		struct bo bo;

		CHECK_OK(bo_alloc(&first, &bo, kinds[i], 4 * PAGE));
		CHECK_OK(map_args(&first, AMDKFD_IOC_MAP_MEMORY_TO_GPU, bo.handle, ids, 2, &done));
		CHECK_EQ(done, 2);
		CHECK_ERR(bo_free(&first, &bo), EBUSY);
		done = 0;
		CHECK_OK(map_args(&first, AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, bo.handle, ids, 2, &done));
		CHECK_EQ(done, 2);
		CHECK_OK(bo_free(&first, &bo));
	}
}

CASE(map_overlap, "MAP: two buffers at one GPU address do not both map")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args;
	struct gpu gpu;
	struct bo a, b = { 0 };

	need_vm(&gpu, 0);
	need_bo(&gpu, &a, FLAGS_GTT, 2 * PAGE);
	args = (struct kfd_ioctl_alloc_memory_of_gpu_args){
		.va_addr = a.va + PAGE,
		.size = PAGE,
		.gpu_id = gpu.id,
		.flags = FLAGS_GTT,
	};
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args));
	b.handle = args.handle;
	CHECK_ERR(bo_map(&gpu, &b), EINVAL);
	CHECK_OK(bo_free(&gpu, &b));
	drop_bo(&gpu, &a);
}

/* What a handle of another process does here: nothing. */
struct foreign {
	struct bo bo;
	uint32_t gpu_id;
};

static void child_tries_handle(void *context)
{
	const struct foreign *foreign = context;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_EQ(gpu.id, foreign->gpu_id);
	CHECK_ERR(bo_map(&gpu, &foreign->bo), ENOMEM);
	CHECK_ERR(bo_unmap(&gpu, &foreign->bo), ENOMEM);
	CHECK_ERR(bo_free(&gpu, &foreign->bo), EINVAL);
}

CASE(foreign_handle, "another process's handle is unknown here: MAP and UNMAP ENOMEM, FREE EINVAL")
{
	struct foreign foreign;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_bo(&gpu, &foreign.bo, FLAGS_GTT, PAGE);
	foreign.gpu_id = gpu.id;
	*bo32(&foreign.bo, 0) = 0x12345678;
	CHECK_EQ(in_child(child_tries_handle, &foreign), 0);
	CHECK_EQ(*bo32(&foreign.bo, 0), 0x12345678);
	drop_bo(&gpu, &foreign.bo);
}

CASE(map_unbound, "MAP: on a GPU of which the process has no address space is ENODEV, and tells how far it got")
{
	struct gpu first, second;
	uint32_t ids[2];
	struct kfd_ioctl_map_memory_to_gpu_args args = { .device_ids_array_ptr = (uintptr_t)ids, .n_devices = 2 };
	struct bo bo;

	need_vm(&first, 0);
	need_gpu(&second, 1);
	CHECK_OK(bo_alloc(&first, &bo, FLAGS_GTT, PAGE));
	ids[0] = first.id;
	ids[1] = second.id;
	args.handle = bo.handle;
	CHECK_ERR(kfd_call(first.fd, AMDKFD_IOC_MAP_MEMORY_TO_GPU, &args), ENODEV);
	CHECK_EQ(args.n_success, 1);
	drop_bo(&first, &bo);
}

CASE(map_vram_elsewhere, "MAP: VRAM of one GPU on another is EINVAL")
{
	struct gpu first, second;
	struct bo bo;

	if (!is_rkfd())
		SKIP("other drivers may map it");
	need_vm(&first, 0);
	need_vm_of(&second, 1, first.fd);
	CHECK_OK(bo_alloc(&first, &bo, FLAGS_VRAM, PAGE));
	CHECK_ERR(bo_map(&second, &bo), EINVAL);
	CHECK_OK(bo_map(&first, &bo));
	drop_bo(&first, &bo);
}

/* Finds out what the page tables let the GPU do at an address, as the driver's files in debugfs have it: "rwx", "r--". */
static void access_at(uint64_t va, char access[4])
{
	static const char *const kinds[] = { " rwx ", " rw- ", " r-x ", " r-- " };
	char line[256];
	glob_t found;

	if (glob("/sys/kernel/debug/rkfd/*/vms", 0, NULL, &found))
		SKIP("debugfs does not show the address spaces");
	for (size_t i = 0; i < found.gl_pathc; i++) {
		FILE *vms = fopen(found.gl_pathv[i], "re");

		CHECK(vms);
		while (fgets(line, sizeof(line), vms)) {
			unsigned long long first, last;

			if (!strstr(line, " -> ") || sscanf(line, "%llx-%llx", &first, &last) != 2 || va < first || va > last)
				continue;
			for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
				if (!strstr(line, kinds[k]))
					continue;
				memcpy(access, kinds[k] + 1, 3);
				access[3] = '\0';
				fclose(vms);
				globfree(&found);
				return;
			}
		}
		fclose(vms);
	}
	FAIL("no address space has %#llx", (unsigned long long)va);
}

CASE(access_flags, "MAP: the GPU may do with a buffer what its flags say")
{
	static const struct {
		uint32_t flags;
		const char *access;
	} kinds[] = {
		{ 0, "r--" },
		{ WRITABLE, "rw-" },
		{ KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE, "r-x" },
		{ WRITABLE | KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE, "rwx" },
	};
	char access[4];
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		need_bo(&gpu, &bo, KFD_IOC_ALLOC_MEM_FLAGS_GTT | kinds[i].flags, PAGE);
		access_at(bo.va, access);
		if (strcmp(access, kinds[i].access))
			FAIL("flags %#x: %s, not %s", kinds[i].flags, access, kinds[i].access);
		drop_bo(&gpu, &bo);
	}
}
