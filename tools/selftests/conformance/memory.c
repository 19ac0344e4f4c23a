// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ALLOC, FREE, MAP, UNMAP and AVAILABLE_MEMORY, as the CPU sees them. (queue_memory.c has the GPU's view.)
 */
#include "kfd.h"

#include <string.h>
#include <sys/mman.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
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
	CHECK_NE(bo.handle & 0xffffffff, 0);
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
	if (err == ENOMEM)
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
	args = good(&gpu, FLAGS_GTT, PAGE);
	args.va_addr = a.va + PAGE;
	CHECK_OK(alloc_args(&gpu, &args));
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

static void child_tries_offset(void *context)
{
	const struct foreign *foreign = context;
	struct gpu gpu;
	void *p;

	need_vm(&gpu, 0);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, gpu.drm, foreign->bo.mmap_offset);
	/* The offset may be free here, or a buffer of this process: anything but the other's memory. */
	CHECK(p == MAP_FAILED);
	CHECK(errno == EACCES || errno == EINVAL);
}

CASE(foreign_offset, "another process's mmap offset is refused by the render node")
{
	struct foreign foreign;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_bo(&gpu, &foreign.bo, FLAGS_GTT, PAGE);
	foreign.gpu_id = gpu.id;
	CHECK_EQ(in_child(child_tries_offset, &foreign), 0);
}

CASE(mmap_too_long, "mmap beyond the end of a buffer is EINVAL")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	CHECK(mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, gpu.drm, bo.mmap_offset) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
}

CASE(mmap_after_free, "mmap of a freed buffer's offset fails; a mapping made before stays readable")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_GTT, PAGE));
	*bo32(&bo, 0) = 0x5a5a5a5a;
	CHECK_OK(bo_free(&gpu, &bo));
	CHECK_EQ(*bo32(&bo, 0), 0x5a5a5a5a);
	munmap((void *)bo.va, bo.size);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, gpu.drm, bo.mmap_offset) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
}

CASE(mmap_twice, "two mappings of one buffer show the same memory")
{
	volatile uint32_t *other;
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_VRAM, 2 * PAGE);
	other = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, gpu.drm, bo.mmap_offset);
	CHECK(other != MAP_FAILED);
	*bo32(&bo, PAGE) = 0x11223344;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	CHECK_EQ(other[PAGE / 4], 0x11223344);
}

static void peek(uint32_t flags)
{
	struct gpu gpu;
	struct bo bo;
	int status;
	pid_t pid;
	long word;

	/* The tracee is the child that owns the memory; the case traces it. */
	int ready[2];

	CHECK_EQ(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		need_vm(&gpu, 0);
		need_bo(&gpu, &bo, flags, PAGE);
		*bo64(&bo, 8) = 0x0123456789abcdefull;
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		if (write(ready[1], &bo.va, sizeof(bo.va)) != sizeof(bo.va))
			_exit(1);
		raise(SIGSTOP);
		_exit(*bo64(&bo, 16) == 0xfedcba9876543210ull ? 0 : 2);
	}
	close(ready[1]);
	if (read(ready[0], &bo.va, sizeof(bo.va)) != sizeof(bo.va))
		child_gave_up(pid);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSTOPPED(status));
	errno = 0;
	word = ptrace(PTRACE_PEEKDATA, pid, (void *)(bo.va + 8), 0);
	CHECK_EQ(errno, 0);
	CHECK_EQ(word, 0x0123456789abcdef);
	CHECK_EQ(ptrace(PTRACE_POKEDATA, pid, (void *)(bo.va + 16), 0xfedcba9876543210ul), 0);
	ptrace(PTRACE_CONT, pid, 0, 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}

CASE(ptrace_gtt, "a debugger reads and writes GTT memory") { peek(FLAGS_GTT); }
CASE(ptrace_vram, "a debugger reads and writes VRAM") { peek(FLAGS_VRAM); }

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
