// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * CPU mappings of buffers through the render node: how far, how long, and for whom.
 */
#include "kfd.h"

#include <drm/drm.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void child_tries_offset(void *context)
{
	const struct bo *foreign = context;
	struct gpu gpu;
	void *p;

	need_vm(&gpu, 0);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, gpu.drm, foreign->mmap_offset);
	/* The offset may be free here, or a buffer of this process: anything but the other's memory. */
	CHECK(p == MAP_FAILED);
	CHECK(errno == EACCES || errno == EINVAL);
}

CASE(foreign_offset, "another process's mmap offset is refused by the render node")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	CHECK_EQ(in_child(child_tries_offset, &bo), 0);
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

/* The first handle that a file gives out. */
#define FIRST_HANDLE 1

static int close_handle(const struct gpu *gpu, uint32_t handle)
{
	struct drm_gem_close args = { .handle = handle };

	return kfd_call(gpu->drm, DRM_IOCTL_GEM_CLOSE, &args);
}

/* A render node whose first buffer is its first handle; amdkfd keeps its handles in a file of its own. */
static void need_handles(struct gpu *gpu)
{
	need_vm(gpu, 0);
	if (!is_rkfd())
		SKIP("buffers of /dev/kfd have no handle in the render node's file");
	CHECK_EQ(close_handle(gpu, FIRST_HANDLE), EINVAL);
}

CASE(handle_closed, "closing a buffer's GEM handle ends the right to map it, and nothing else")
{
	struct gpu gpu;
	struct bo bo;

	need_handles(&gpu);
	need_bo(&gpu, &bo, FLAGS_VRAM, PAGE);
	*bo32(&bo, 0) = 0x77665544;
	CHECK_OK(close_handle(&gpu, FIRST_HANDLE));
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, gpu.drm, bo.mmap_offset) == MAP_FAILED);
	CHECK_EQ(errno, EACCES);
	CHECK_EQ(*bo32(&bo, 0), 0x77665544);
	CHECK_EQ(close_handle(&gpu, FIRST_HANDLE), EINVAL);
	CHECK_OK(bo_unmap(&gpu, &bo));
	CHECK_OK(bo_map(&gpu, &bo));
	drop_bo(&gpu, &bo);
}

CASE(handle_ends, "freeing a buffer closes its GEM handle")
{
	struct gpu gpu;
	struct bo bo;

	need_handles(&gpu);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	drop_bo(&gpu, &bo);
	CHECK_EQ(close_handle(&gpu, FIRST_HANDLE), EINVAL);
}

CASE(handle_reused, "freeing a buffer whose GEM handle was closed leaves the buffer that has the number since")
{
	struct bo first, second;
	struct gpu gpu;
	void *p;

	need_handles(&gpu);
	need_bo(&gpu, &first, FLAGS_GTT, PAGE);
	CHECK_OK(close_handle(&gpu, FIRST_HANDLE));
	need_bo(&gpu, &second, FLAGS_GTT, PAGE);
	*bo32(&second, 0) = 0x01020304;
	drop_bo(&gpu, &first);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, gpu.drm, second.mmap_offset);
	CHECK(p != MAP_FAILED);
	CHECK_EQ(*(volatile uint32_t *)p, 0x01020304);
	CHECK_OK(close_handle(&gpu, FIRST_HANDLE));
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
