// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * PM4 packets at work in one queue: what each writes, and in which order.
 */
#include "pm4_queue.h"

static void write_lands(uint32_t kind)
{
	begin(kind);
	pm4_write(&f.p, f.out.va + 0x124, 0x600df00d);
	go();
	await32(bo32(&f.out, 0x124), 0x600df00d, "WRITE_DATA");
	/* Nothing beside it. */
	CHECK_EQ(*bo32(&f.out, 0x120), 0);
	CHECK_EQ(*bo32(&f.out, 0x128), 0);
	end();
}

CASE(write_gtt, "WRITE_DATA lands in GTT") { write_lands(FLAGS_GTT); }
CASE(write_vram, "WRITE_DATA lands in VRAM") { write_lands(FLAGS_VRAM); }
CASE(write_userptr, "WRITE_DATA lands in user memory") { write_lands(FLAGS_USERPTR); }

CASE(write_many, "WRITE_DATA of 200 dwords across a page boundary")
{
	begin(FLAGS_USERPTR);
	pm4_header(&f.p, 0x37, 203);
	put(&f.p, 5 << 8 | 1 << 20);
	put64(&f.p, f.out.va + PAGE - 400);
	for (uint32_t i = 0; i < 200; i++)
		put(&f.p, 0x1000 + i);
	go();
	await32(bo32(&f.out, PAGE - 400 + 199 * 4), 0x1000 + 199, "the last dword");
	for (uint32_t i = 0; i < 200; i++)
		CHECK_EQ(*bo32(&f.out, PAGE - 400 + 4 * i), 0x1000 + i);
	CHECK_EQ(*bo32(&f.out, PAGE + 400), 0);
	end();
}

CASE(order, "packets take effect in order")
{
	begin(FLAGS_GTT);
	for (uint32_t i = 1; i <= 100; i++)
		pm4_write(&f.p, f.out.va, i);
	pm4_copy(&f.p, 1, f.out.va, f.out.va + 64, false);
	pm4_write(&f.p, f.out.va + 128, 1);
	go();
	await32(bo32(&f.out, 128), 1, "the last packet");
	CHECK_EQ(*bo32(&f.out, 0), 100);
	CHECK_EQ(*bo32(&f.out, 64), 100);
	end();
}

CASE(nop, "NOP skips its payload, whatever that looks like")
{
	begin(FLAGS_GTT);
	pm4_header(&f.p, 0x10, 5);
	/* A packet that must not run. */
	pm4_write(&f.p, f.out.va, 0xbad);
	pm4_nop(&f.p, 1);
	put(&f.p, 0xffff1000); /* The NOP of one dword. */
	pm4_write(&f.p, f.out.va + 4, 0x11);
	go();
	await32(bo32(&f.out, 4), 0x11, "the packet after the NOPs");
	CHECK_EQ(*bo32(&f.out, 0), 0);
	end();
}

CASE(separate_doorbells, "100 submissions, each with a doorbell of its own")
{
	begin(FLAGS_GTT);
	for (uint32_t i = 1; i <= 100; i++) {
		pm4_write(&f.p, f.out.va + 4 * (i % 7), i);
		go();
		await32(bo32(&f.out, 4 * (i % 7)), i, "the packet");
	}
	end();
}

CASE(wrap, "the ring wraps, packets straddling its end, 5000 packets long")
{
	begin(FLAGS_GTT);
	/* Packets of 5 dwords in a ring of 1024: every alignment of the end occurs. */
	for (uint32_t i = 1; i <= 5000; i++) {
		pm4_write(&f.p, f.out.va, i);
		if (i % 100 == 0) {
			go();
			await_drained(&f.q);
			await32(bo32(&f.out, 0), i, "the last packet of a batch");
		}
	}
	CHECK_EQ(f.q.written, 25000);
	end();
}

CASE(read_pointer, "the read pointer wraps with the ring and ends where the write pointer is")
{
	begin(FLAGS_GTT);
	for (int round = 0; round < 5; round++) {
		pm4_nop(&f.p, 299);
		go();
		await_drained(&f.q);
		CHECK_EQ(*(volatile uint32_t *)f.q.rptr, 300 * (round + 1) % 1024);
	}
	end();
}

CASE(release_32, "RELEASE_MEM writes 32 bits and nothing beside them")
{
	begin(FLAGS_GTT);
	*bo64(&f.out, 0) = ~0ull;
	pm4_release(&f.p, f.out.va, 1, 0x1122334455667788, 0, 0);
	go();
	await32(bo32(&f.out, 0), 0x55667788, "RELEASE_MEM");
	CHECK_EQ(*bo32(&f.out, 4), 0xffffffff);
	end();
}

CASE(release_64, "RELEASE_MEM writes 64 bits")
{
	begin(FLAGS_VRAM);
	pm4_release(&f.p, f.out.va + 8, 2, 0x1122334455667788, 0, 0);
	go();
	await64(bo64(&f.out, 8), 0x1122334455667788, "RELEASE_MEM");
	end();
}

CASE(release_clock, "RELEASE_MEM writes the clock that GET_CLOCK_COUNTERS reads")
{
	struct kfd_ioctl_get_clock_counters_args before = { 0 }, after = { 0 };

	begin(FLAGS_GTT);
	before.gpu_id = after.gpu_id = f.gpu.id;
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_GET_CLOCK_COUNTERS, &before));
	pm4_release(&f.p, f.out.va, 3, 0, 0, 0);
	pm4_release(&f.p, f.out.va + 8, 3, 0, 0, 0);
	pm4_write(&f.p, f.out.va + 64, 1);
	go();
	await32(bo32(&f.out, 64), 1, "the packet after the clocks");
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_GET_CLOCK_COUNTERS, &after));
	CHECK_OP(*bo64(&f.out, 0), >=, before.gpu_clock_counter);
	CHECK_OP(*bo64(&f.out, 8), >=, *bo64(&f.out, 0));
	CHECK_OP(*bo64(&f.out, 8), <=, after.gpu_clock_counter);
	end();
}

CASE(release_after_writes, "RELEASE_MEM comes after every write before it")
{
	begin(FLAGS_GTT);
	for (uint32_t i = 0; i < 64; i++)
		pm4_write(&f.p, f.out.va + 4 * i, i + 1);
	pm4_release(&f.p, f.out.va + 1024, 2, 7, 0, 0);
	go();
	await64(bo64(&f.out, 1024), 7, "RELEASE_MEM");
	for (uint32_t i = 0; i < 64; i++)
		CHECK_EQ(*bo32(&f.out, 4 * i), i + 1);
	end();
}

CASE(indirect, "INDIRECT_BUFFER runs packets elsewhere and comes back")
{
	struct packets ib = { .n = 0 };

	begin(FLAGS_GTT);
	pm4_write(&ib, f.out.va, 0x1b);
	pm4_write(&ib, f.out.va + 4, 0x2b);
	for (unsigned int i = 0; i < ib.n; i++)
		*bo32(&f.out, 2 * PAGE + 4 * i) = ib.dw[i];
	pm4_ib(&f.p, f.out.va + 2 * PAGE, ib.n);
	pm4_write(&f.p, f.out.va + 8, 0x3b);
	go();
	await32(bo32(&f.out, 8), 0x3b, "the packet behind the buffer");
	CHECK_EQ(*bo32(&f.out, 0), 0x1b);
	CHECK_EQ(*bo32(&f.out, 4), 0x2b);
	end();
}

CASE(indirect_long, "INDIRECT_BUFFER of 3000 dwords, across pages")
{
	struct packets ib = { .n = 0 };

	begin(FLAGS_USERPTR);
	for (uint32_t i = 0; i < 600; i++)
		pm4_write(&ib, f.out.va + 8 * PAGE + 4 * i, ~i);
	for (unsigned int i = 0; i < ib.n; i++)
		*bo32(&f.out, 2 * PAGE + 4 * i) = ib.dw[i];
	pm4_ib(&f.p, f.out.va + 2 * PAGE, ib.n);
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet behind the buffer");
	for (uint32_t i = 0; i < 600; i++)
		CHECK_EQ(*bo32(&f.out, 8 * PAGE + 4 * i), ~i);
	end();
}

CASE(wait_memory, "WAIT_REG_MEM holds the queue until the CPU writes what it waits for")
{
	begin(FLAGS_GTT);
	pm4_write(&f.p, f.out.va + 4, 1);
	pm4_wait(&f.p, EQUAL, f.out.va, 42, 0xff);
	pm4_write(&f.p, f.out.va + 8, 2);
	go();
	await32(bo32(&f.out, 4), 1, "the packet before the wait");
	*bo32(&f.out, 0) = 41;
	CHECK_EQ(*bo32(&f.out, 8), 0);
	/* The mask makes this one equal. */
	*bo32(&f.out, 0) = 0xabcd002a;
	await32(bo32(&f.out, 8), 2, "the packet after the wait");
	end();
}

CASE(wait_functions, "WAIT_REG_MEM: equal, not equal, at least")
{
	begin(FLAGS_GTT);
	*bo32(&f.out, 0) = 10;
	pm4_wait(&f.p, EQUAL, f.out.va, 10, 0xffffffff);
	pm4_wait(&f.p, NOT_EQUAL, f.out.va, 11, 0xffffffff);
	pm4_wait(&f.p, GREATER_EQUAL, f.out.va, 10, 0xffffffff);
	pm4_wait(&f.p, GREATER_EQUAL, f.out.va, 9, 0xffffffff);
	pm4_write(&f.p, f.out.va + 8, 2);
	go();
	await32(bo32(&f.out, 8), 2, "the packet after the waits");
	end();
}

CASE(copy_data, "COPY_DATA: memory, immediate and clock, 32 and 64 bits")
{
	begin(FLAGS_GTT);
	*bo64(&f.out, 0) = 0x0102030405060708;
	*bo64(&f.out, 64) = *bo64(&f.out, 72) = *bo64(&f.out, 80) = ~0ull;
	pm4_copy(&f.p, 1, f.out.va, f.out.va + 64, false);
	pm4_copy(&f.p, 1, f.out.va, f.out.va + 72, true);
	pm4_copy(&f.p, 5, 0xa1b2c3d4e5f60718, f.out.va + 80, true);
	pm4_copy(&f.p, 9, 0, f.out.va + 88, true);
	pm4_write(&f.p, f.out.va + 128, 1);
	go();
	await32(bo32(&f.out, 128), 1, "the last packet");
	CHECK_EQ(*bo64(&f.out, 64), 0xffffffff05060708);
	CHECK_EQ(*bo64(&f.out, 72), 0x0102030405060708);
	CHECK_EQ(*bo64(&f.out, 80), 0xa1b2c3d4e5f60718);
	CHECK_NE(*bo64(&f.out, 88), 0);
	end();
}

CASE(atomic_add, "ATOMIC_MEM: 64-bit add, also of a negative number")
{
	begin(FLAGS_GTT);
	*bo64(&f.out, 0) = 0xffffffff;
	*bo64(&f.out, 8) = 5;
	pm4_atomic(&f.p, 47, f.out.va, 1);
	pm4_atomic(&f.p, 47, f.out.va + 8, ~0ull);
	pm4_write(&f.p, f.out.va + 64, 1);
	go();
	await32(bo32(&f.out, 64), 1, "the last packet");
	await64(bo64(&f.out, 0), 0x100000000, "the carry");
	await64(bo64(&f.out, 8), 4, "the decrement");
	end();
}

CASE(dma_data, "DMA_DATA copies bytes at odd addresses, across pages")
{
	begin(FLAGS_GTT);
	for (uint32_t i = 0; i < 6000; i++)
		*((volatile uint8_t *)f.out.va + i) = i * 7;
	pm4_dma(&f.p, f.out.va + 1, f.out.va + 8 * PAGE + 3, 5001);
	pm4_write(&f.p, f.out.va + 6 * PAGE, 1);
	go();
	await32(bo32(&f.out, 6 * PAGE), 1, "the packet after the copy");
	for (uint32_t i = 0; i < 5001; i++)
		CHECK_EQ(*((volatile uint8_t *)f.out.va + 8 * PAGE + 3 + i), (uint8_t)((i + 1) * 7));
	CHECK_EQ(*((volatile uint8_t *)f.out.va + 8 * PAGE + 2), 0);
	CHECK_EQ(*((volatile uint8_t *)f.out.va + 8 * PAGE + 3 + 5001), 0);
	end();
}

CASE(cache_packets, "ACQUIRE_MEM and EVENT_WRITE have no visible effect and let the queue go on")
{
	begin(FLAGS_GTT);
	pm4_acquire(&f.p);
	pm4_partial_flush(&f.p);
	pm4_write(&f.p, f.out.va, 1);
	go();
	await32(bo32(&f.out, 0), 1, "the packet after them");
	end();
}

CASE(vram_to_system, "one queue moves data between VRAM, GTT and user memory")
{
	struct bo gtt, user;

	begin(FLAGS_VRAM);
	need_bo(&f.gpu, &gtt, FLAGS_GTT, PAGE);
	need_bo(&f.gpu, &user, FLAGS_USERPTR, PAGE);
	for (uint32_t i = 0; i < PAGE; i += 4)
		*bo32(&gtt, i) = i ^ 0x5a5a0000;
	pm4_dma(&f.p, gtt.va, f.out.va, PAGE);
	pm4_dma(&f.p, f.out.va, user.va, PAGE);
	pm4_write(&f.p, f.out.va + PAGE, 1);
	go();
	await32(bo32(&f.out, PAGE), 1, "the packet after the copies");
	for (uint32_t i = 0; i < PAGE; i += 4)
		CHECK_EQ(*bo32(&user, i), i ^ 0x5a5a0000);
	end();
}
