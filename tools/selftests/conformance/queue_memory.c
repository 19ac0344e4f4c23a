// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory while a queue works: the GPU's view of it. (memory.c has the CPU's.)
 */
#include "pm4_queue.h"

#include <sys/mman.h>

CASE(map_while_running, "buffers mapped and unmapped while a queue works do not disturb it")
{
	struct bo bo;

	begin(FLAGS_GTT);
	for (uint32_t i = 1; i <= 30; i++) {
		need_bo(&f.gpu, &bo, i % 2 ? FLAGS_GTT : FLAGS_VRAM, 3 * PAGE);
		pm4_write(&f.p, bo.va + 2 * PAGE, i);
		pm4_write(&f.p, f.out.va, i);
		go();
		await32(bo32(&f.out, 0), i, "the work");
		CHECK_EQ(*bo32(&bo, 2 * PAGE), i);
		drop_bo(&f.gpu, &bo);
	}
	end();
}

CASE(remapped_elsewhere, "memory mapped anew at an address in use before: the GPU sees the new one")
{
	struct bo a;

	begin(FLAGS_GTT);
	for (uint32_t i = 1; i <= 10; i++) {
		struct kfd_ioctl_alloc_memory_of_gpu_args args = {
			.va_addr = 0x600000000000,
			.size = PAGE,
			.gpu_id = f.gpu.id,
			.flags = i % 2 ? FLAGS_GTT : FLAGS_VRAM,
		};
		volatile uint32_t *cpu;

		CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args));
		a = (struct bo){ .handle = args.handle };
		CHECK_OK(bo_map(&f.gpu, &a));
		cpu = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, f.gpu.drm, args.mmap_offset);
		CHECK(cpu != MAP_FAILED);
		pm4_write(&f.p, args.va_addr + 8, i);
		pm4_write(&f.p, f.out.va, i);
		go();
		await32(bo32(&f.out, 0), i, "the work");
		CHECK_EQ(cpu[2], i);
		munmap((void *)cpu, PAGE);
		CHECK_OK(bo_unmap(&f.gpu, &a));
		CHECK_OK(bo_free(&f.gpu, &a));
	}
	end();
}

CASE(large_pages, "a 4 MiB buffer in large pages: first, last and middle dwords")
{
	struct bo big;

	begin(FLAGS_GTT);
	need_bo(&f.gpu, &big, FLAGS_VRAM, 4 << 20);
	for (uint64_t at = 0; at < 4 << 20; at += (2 << 20) - 4)
		pm4_write(&f.p, big.va + at, at + 1);
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the last packet");
	for (uint64_t at = 0; at < 4 << 20; at += (2 << 20) - 4)
		CHECK_EQ(*bo32(&big, at), at + 1);
	drop_bo(&f.gpu, &big);
	end();
}

CASE(ring_in_vram, "a ring in VRAM")
{
	need_vm(&f.gpu, 0);
	queue_prepare(&f.gpu, &f.q, COMPUTE, 0x1000);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, PAGE);
	drop_bo(&f.gpu, &f.q.ring);
	need_bo(&f.gpu, &f.q.ring, FLAGS_VRAM, 0x1000);
	f.q.args.ring_base_address = f.q.ring.va;
	CHECK_OK(queue_create(&f.gpu, &f.q));
	for (uint32_t i = 1; i <= 300; i++) {
		pm4_write(&f.p, f.out.va, i);
		go();
		await32(bo32(&f.out, 0), i, "the packet");
	}
	end();
}
