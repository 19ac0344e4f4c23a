// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The user library from C: mirrors, memory of the program at GPU addresses of an address space.
 */
#include "library_mirror.h"

CASE(mirror_both, "a mirror: packets of both kinds and the program see what the other stores, at addresses that differ")
{
	static const uint64_t places[] = { AT, AT + 48 * PAGE };
	static const uint64_t leaves[] = { HUGE, 16 * PAGE };
	char *memory = aligned(300);
	struct rkfd_space_queue *pm4;
	struct rkfd_mirror *m = NULL;
	struct engine e;

	open_engine(&e);
	start_engine(&e);
	OK(rkfd_space_queue_new(e.space, RKFD_QUEUE_PM4, PM4_AT, &pm4));
	for (uint32_t i = 0; i < 2; i++) {
		const uint64_t to = places[i], last = 300 * PAGE - 4;
		struct packets p = { .n = 0 };
		struct rkfd_mirror_info info;

		/* The second is where the first was, among others: it is free. */
		rkfd_mirror_free(m);
		fill(memory, 300, 0x1000 * (i + 1));
		m = need_mirror(e.space, range(memory, 300, to));
		gpu_sees(&e, to, 300, 0x1000 * (i + 1));
		*word(memory, last) = 0xc0de + i;
		CHECK_EQ(gpu_read(&e, to + last), 0xc0de + i);
		gpu_write(&e, to + last, 0xabc + i);
		CHECK_EQ(*word(memory, last), 0xabc + i);
		*word(memory, 8) = 0x88 + i;
		pm4_write(&p, to + 12, 0x99 + i);
		pm4_copy(&p, 1, to + 8, OUT_AT + 8, false);
		OK(rkfd_space_queue_submit(pm4, p.dw, p.n));
		OK(rkfd_space_wait(e.space, e.out, 8, 0x88 + i, PATIENCE_MS));
		CHECK_EQ(*word(memory, 12), 0x99 + i);
		info = about(m);
		CHECK_EQ(info.rights, RKFD_RANGE_WRITE);
		CHECK_EQ(info.filling, RKFD_FILLING_AT_ONCE);
		CHECK_EQ(info.flags, 0);
		CHECK_EQ(info.memory, (uintptr_t)memory);
		CHECK_EQ(info.address, to);
		CHECK_EQ(info.bytes, 300 * PAGE);
		CHECK_EQ(info.leaf, leaves[i]);
		CHECK_EQ(info.shown, 300 * PAGE);
		CHECK_EQ(info.shown_huge, 0);
		CHECK_EQ(info.faults, 0);
	}
	no_fault(e.space);
	rkfd_space_queue_free(pm4);
	leave_engine(&e);
	/* It keeps its address space. */
	CHECK_EQ(about(m).shown, 300 * PAGE);
	rkfd_mirror_free(m);
}

CASE(mirror_huge, "a mirror: what the program has in large pages is told, and the program's loss of one")
{
	char *memory = aligned(2 * HUGE / PAGE);
	struct rkfd_mirror *m;
	struct engine e;

	madvise(memory, 2 * HUGE, MADV_HUGEPAGE);
	fill(memory, 2 * HUGE / PAGE, 0x2000);
	/* MADV_COLLAPSE, of Linux 6.1. */
	if (madvise(memory, 2 * HUGE, 25))
		SKIP("no large pages here");
	open_engine(&e);
	start_engine(&e);
	m = need_mirror(e.space, range(memory, 2 * HUGE / PAGE, AT));
	CHECK_EQ(about(m).shown_huge, 2 * HUGE);
	CHECK_EQ(mprotect(memory + 5 * PAGE, PAGE, PROT_READ), 0);
	gpu_sees(&e, AT, 2 * HUGE / PAGE, 0x2000);
	CHECK_EQ(about(m).shown_huge, HUGE);
	CHECK_EQ(about(m).shown, 2 * HUGE);
	no_fault(e.space);
	rkfd_mirror_free(m);
	leave_engine(&e);
}

CASE(mirror_changed, "a mirror: munmap takes memory from the GPU, and what is mapped there afterwards is shown when that is asked for")
{
	char *memory = pages(600);
	struct rkfd_mirror *m;
	struct engine e;

	open_engine(&e);
	start_engine(&e);
	m = need_mirror(e.space, range(memory, 600, AT + PAGE));
	for (uint32_t round = 1; round <= 5; round++) {
		fill(memory, 600, round << 16);
		gpu_sees(&e, AT + PAGE, 600, round << 16);
		CHECK_EQ(munmap(memory + 200 * PAGE, 100 * PAGE), 0);
		CHECK_OP(about(m).shown, <=, 500 * PAGE);
		FAILS(rkfd_mirror_populate(m, AT + PAGE, 600 * PAGE), EFAULT, "MIRROR_POPULATE");
		CHECK_EQ(gpu_read(&e, AT + 200 * PAGE), (round << 16) + 199);
		CHECK_EQ(gpu_read(&e, AT + 301 * PAGE), (round << 16) + 300);
		map_again(memory + 200 * PAGE, 100);
		OK(rkfd_mirror_populate(m, AT + PAGE, 600 * PAGE));
		CHECK_EQ(about(m).shown, 600 * PAGE);
		CHECK_EQ(gpu_read(&e, AT + 201 * PAGE), 0);
		gpu_write(&e, AT + 202 * PAGE, round);
		CHECK_EQ(*word(memory, 201 * PAGE), round);
	}
	CHECK_OP(about(m).changes, >=, 5);
	CHECK_EQ(munmap(memory + 200 * PAGE, 100 * PAGE), 0);
	must_fault(&e, AT + 201 * PAGE, RKFD_FAULT_WRITE);
	rkfd_mirror_free(m);
	leave_engine(&e);
}

CASE(mirror_rights, "a mirror for reading, and one for instructions: the GPU reads and does not write, the program does")
{
	static const uint32_t rights[] = { RKFD_RANGE_READ, RKFD_RANGE_EXECUTE };

	for (uint32_t i = 0; i < 2; i++) {
		char *memory = pages(2);
		struct rkfd_mirror_options o = range(memory, 2, AT + 3 * PAGE);
		struct rkfd_mirror *m;
		struct engine e;

		open_engine(&e);
		start_engine(&e);
		fill(memory, 2, 0x50);
		o.rights = rights[i];
		m = need_mirror(e.space, o);
		CHECK_EQ(about(m).rights, rights[i]);
		gpu_sees(&e, AT + 3 * PAGE, 2, 0x50);
		*word(memory, PAGE) = 0x60;
		CHECK_EQ(gpu_read(&e, AT + 4 * PAGE), 0x60);
		must_fault(&e, AT + 4 * PAGE, RKFD_FAULT_WRITE | RKFD_FAULT_PRESENT);
		CHECK_EQ(*word(memory, PAGE), 0x60);
		rkfd_mirror_free(m);
		leave_engine(&e);
	}
}

CASE(mirror_freed, "when a mirror is freed, the GPU does not reach the memory by it, and does by another")
{
	char *memory = pages(2);
	struct rkfd_mirror *m, *other;
	struct engine e;

	open_engine(&e);
	start_engine(&e);
	fill(memory, 2, 0x50);
	m = need_mirror(e.space, range(memory, 2, AT));
	other = need_mirror(e.space, range(memory, 2, AT + OWN(1)));
	gpu_write(&e, AT, 0x51);
	CHECK_EQ(gpu_read(&e, AT + OWN(1)), 0x51);
	rkfd_mirror_free(m);
	CHECK_EQ(gpu_read(&e, AT + OWN(1)), 0x51);
	must_fault(&e, AT, RKFD_FAULT_WRITE);
	CHECK_EQ(*word(memory, 0), 0x51);
	rkfd_mirror_free(other);
	leave_engine(&e);
}

CASE(mirror_on_access, "a mirror that accesses fill: nothing before them, no call for what comes later, and a call for what is to be there")
{
	char *memory = pages(600);
	struct rkfd_mirror_info info, before;
	struct rkfd_mirror *m;
	struct engine e;

	open_engine(&e);
	m = need_repeats(e.space, range(memory, 600, AT + PAGE));
	start_engine(&e);
	fill(memory, 600, 0x1000);
	info = about(m);
	CHECK_EQ(info.filling, RKFD_FILLING_ON_ACCESS);
	CHECK_EQ(info.shown, 0);
	CHECK_EQ(info.faults, 0);
	gpu_sees(&e, AT + PAGE, 600, 0x1000);
	info = about(m);
	CHECK_EQ(info.shown, 600 * PAGE);
	CHECK_NE(info.faults, 0);
	for (uint32_t round = 1; round <= 5; round++) {
		CHECK_EQ(munmap(memory + 200 * PAGE, 100 * PAGE), 0);
		map_again(memory + 200 * PAGE, 100);
		CHECK_EQ(gpu_read(&e, AT + 201 * PAGE), 0);
		gpu_write(&e, AT + 202 * PAGE, round);
		CHECK_EQ(*word(memory, 201 * PAGE), round);
		CHECK_EQ(gpu_read(&e, AT + 200 * PAGE), 0x1000 + 199);
	}
	CHECK_OP(about(m).changes, >=, 5);
	CHECK_EQ(munmap(memory + 200 * PAGE, 100 * PAGE), 0);
	FAILS(rkfd_mirror_populate(m, AT + 201 * PAGE, 100 * PAGE), EFAULT, "MIRROR_POPULATE");
	map_again(memory + 200 * PAGE, 100);
	OK(rkfd_mirror_populate(m, AT + 201 * PAGE, 100 * PAGE));
	before = about(m);
	for (uint32_t i = 0; i < 100; i += 33) {
		gpu_write(&e, AT + (201 + i) * PAGE, i + 1);
		CHECK_EQ(*word(memory, (200 + i) * PAGE), i + 1);
	}
	/* Nothing was looked for, if the kernel has not moved it meanwhile. */
	info = about(m);
	CHECK(info.faults == before.faults || info.changes != before.changes);
	CHECK_EQ(munmap(memory + 200 * PAGE, 100 * PAGE), 0);
	must_fault(&e, AT + 201 * PAGE, RKFD_FAULT_WRITE);
	rkfd_mirror_free(m);
	leave_engine(&e);
}

static volatile uint32_t global = 0x1234;

CASE(mirror_whole, "a mirror of all memory: any pointer is good, what is allocated later included; what is bound has its address")
{
	volatile uint32_t stack = 0x77;
	struct rkfd_mirror_info info;
	struct rkfd_mirror *m;
	volatile uint32_t *heap;
	struct rkfd_bo *bo;
	struct rkfd_bind_list *list;
	struct engine e;
	uint64_t at;
	char *later;

	open_engine(&e);
	m = need_repeats(e.space, all_memory());
	start_engine(&e);
	info = about(m);
	CHECK_EQ(info.flags, RKFD_MIRROR_WHOLE);
	CHECK_EQ(info.filling, RKFD_FILLING_ON_ACCESS);
	CHECK_EQ(info.rights, RKFD_RANGE_WRITE);
	CHECK_EQ(info.address, info.memory);
	CHECK_OP(info.memory, <=, PAGE * 16);
	CHECK_OP(info.memory + info.bytes, >, (uintptr_t)&stack);
	CHECK_EQ(info.leaf, HUGE);
	CHECK_EQ(info.shown, 0);
	CHECK_EQ(gpu_read(&e, (uintptr_t)&stack), 0x77);
	gpu_write(&e, (uintptr_t)&stack, 0x78);
	CHECK_EQ(stack, 0x78);
	CHECK_EQ(gpu_read(&e, (uintptr_t)&global), 0x1234);
	gpu_write(&e, (uintptr_t)&global, 0x1235);
	CHECK_EQ(global, 0x1235);
	heap = calloc(1000, sizeof(*heap));
	CHECK(heap);
	gpu_write(&e, (uintptr_t)&heap[500], 0xabc);
	CHECK_EQ(heap[500], 0xabc);
	later = pages(600);
	at = (uintptr_t)later;
	fill(later, 600, 0x3000);
	gpu_sees(&e, at, 600, 0x3000);
	gpu_write(&e, at + 599 * PAGE + 8, 0x88);
	CHECK_EQ(*word(later, 599 * PAGE + 8), 0x88);
	CHECK_EQ(munmap(later, 600 * PAGE), 0);
	map_again(later, 600);
	CHECK_EQ(gpu_read(&e, at + 300 * PAGE), 0);
	fill(later, 600, 0x4000);
	OK(rkfd_mirror_populate(m, at, 600 * PAGE));
	CHECK_OP(about(m).shown, >=, 600 * PAGE);
	/* A buffer in the midst of it. */
	bo = need_bo(e.space, RKFD_HEAP_VRAM, PAGE);
	*(volatile uint32_t *)rkfd_bo_cpu(bo) = 0xb0;
	bind_at(e.space, at + 3 * PAGE, bo, 0);
	CHECK_EQ(gpu_read(&e, at + 2 * PAGE), 0x4002);
	CHECK_EQ(gpu_read(&e, at + 3 * PAGE), 0xb0);
	CHECK_EQ(gpu_read(&e, at + 4 * PAGE), 0x4004);
	gpu_write(&e, at + 3 * PAGE + 4, 0xb1);
	CHECK_EQ(bo_word(bo, 4), 0xb1);
	CHECK_EQ(*word(later, 3 * PAGE + 4), 0);
	OK(rkfd_bind_list_new(e.space, &list));
	OK(rkfd_bind_list_unmap(list, at + 3 * PAGE, PAGE));
	OK(rkfd_space_bind(e.space, list));
	rkfd_bind_list_free(list);
	gpu_sees(&e, at, 600, 0x4000);
	CHECK_EQ(munmap(later + 5 * PAGE, PAGE), 0);
	must_fault(&e, at + 5 * PAGE, RKFD_FAULT_WRITE);
	CHECK_EQ(*word(later, 6 * PAGE), 0x4006);
	rkfd_bo_free(bo);
	rkfd_mirror_free(m);
	leave_engine(&e);
}

CASE(mirror_migrate, "a mirror whose memory moves to VRAM and back: packets and the program see the same, and it is told how much is where")
{
	char *memory = aligned(600);
	uint64_t moved = 1, stayed = 1;
	struct rkfd_migrate_options o;
	struct rkfd_mirror *m;
	struct engine e;

	open_engine(&e);
	start_engine(&e);
	m = need_mirror(e.space, range(memory, 600, AT));
	fill(memory, 600, 0x1000);
	CHECK_EQ(about(m).shown_vram, 0);
	CHECK_EQ(migrate_all(m, AT + 50 * PAGE, 500, RKFD_PLACE_VRAM), 500 * PAGE);
	gpu_sees(&e, AT, 600, 0x1000);
	CHECK_EQ(about(m).shown_vram, 500 * PAGE);
	/* It is there. */
	OK(migrate(m, AT + 50 * PAGE, 500, RKFD_PLACE_VRAM, &moved, &stayed));
	CHECK_EQ(moved, 0);
	CHECK_EQ(stayed, 0);
	gpu_write(&e, AT + 60 * PAGE, 0xabc);
	CHECK_EQ(*word(memory, 60 * PAGE), 0xabc);
	*word(memory, 60 * PAGE) = 0x1000 + 60;
	gpu_sees(&e, AT, 600, 0x1000);
	CHECK_OP(about(m).shown_vram, <, 500 * PAGE);
	migrate_all(m, AT, 600, RKFD_PLACE_SYSTEM);
	gpu_sees(&e, AT, 600, 0x1000);
	CHECK_EQ(about(m).shown_vram, 0);
	/* What has no memory yet gets some there. */
	map_again(memory, 600);
	o = (struct rkfd_migrate_options){
		.size = sizeof(o), .flags = RKFD_MIGRATE_NOW | RKFD_MIGRATE_FILL, .address = AT, .bytes = 600 * PAGE,
		.place = RKFD_PLACE_VRAM,
	};
	/* Up to 64 KiB come back with a page that the mirror looks for at the same moment. */
	do
		OK(rkfd_mirror_migrate(m, &o, NULL, &stayed));
	while (stayed || about(m).shown_vram < 600 * PAGE);
	gpu_sees(&e, AT + 3 * PAGE, 1, 0);
	gpu_write(&e, AT + 4 * PAGE, 0x44);
	CHECK_EQ(about(m).shown_vram, 600 * PAGE);
	CHECK_EQ(*word(memory, 4 * PAGE), 0x44);
	CHECK_EQ(*word(memory, 5 * PAGE), 0);
	no_fault(e.space);
	rkfd_mirror_free(m);
	leave_engine(&e);
}

#define TURNS 6
/* Pages of each thread in the mirror of both, and in one of its own. */
#define PART 40u

static struct {
	struct rkfd_space *space;
	struct rkfd_space_queue *q;
	struct rkfd_mirror *m;
	char *memory;
	uint32_t filling;
} both;

/* By the queue of both, whose packets come in any order but within a call: a word of the thread's own tells the end. */
static void run_both(struct packets *p, unsigned int number, struct rkfd_bo *out, uint32_t fence)
{
	sdma_fence(p, OUT_AT + OWN(number) + PAGE - 4, fence);
	OK(rkfd_space_queue_submit(both.q, p->dw, p->n));
	OK(rkfd_space_wait(both.space, out, PAGE - 4, fence, PATIENCE_MS));
}

static void live(unsigned int number)
{
	struct rkfd_bo *out = need_bo(both.space, RKFD_HEAP_SYSTEM, PAGE);
	char *mine = both.memory + number * PART * PAGE;
	const uint64_t mine_at = AT + number * PART * PAGE, out_at = OUT_AT + OWN(number);
	struct rkfd_bind_list *nothing;
	uint64_t changes = 0;

	bind_at(both.space, out_at, out, 0);
	for (uint32_t turn = 1; turn <= TURNS; turn++) {
		/* Each at another place, and where the one before was. */
		const uint64_t at = AT + OWN(number + 1) + turn * PAGE;
		const uint32_t value = 0x100 * (number + 1) + turn;
		char *own = pages(PART);
		struct rkfd_mirror_options o = range(own, PART, at);
		struct rkfd_mirror_info info = { .size = sizeof(info) };
		struct packets p = { .n = 0 };
		struct rkfd_mirror *m;

		o.filling = both.filling;
		*word(own, 0) = value;
		OK(rkfd_mirror_new(both.space, &o, &m));
		/* From one mirror into the other, and back into what is mapped in its place. */
		sdma_copy(&p, at, mine_at + turn * PAGE, 4);
		run_both(&p, number, out, 2 * turn);
		CHECK_EQ(*word(mine, turn * PAGE), value);
		map_again(mine, PART);
		OK(rkfd_mirror_populate(both.m, mine_at, PART * PAGE));
		*word(mine, turn * PAGE + 4) = ~value;
		map_again(own, PART);
		OK(rkfd_mirror_populate(m, at, PART * PAGE));
		*(volatile uint32_t *)rkfd_bo_cpu(out) = 0xdeadbeef;
		p.n = 0;
		sdma_copy(&p, mine_at + turn * PAGE, at + 8, 8);
		sdma_copy(&p, at, out_at, 4);
		run_both(&p, number, out, 2 * turn + 1);
		CHECK_EQ(*word(own, 8), 0);
		CHECK_EQ(*word(own, 12), ~value);
		CHECK_EQ(bo_word(out, 0), 0);
		/* Both in one part of VRAM, and each in one of its own; who is there first makes no difference. */
		OK(migrate(both.m, mine_at, PART, RKFD_PLACE_VRAM, NULL, NULL));
		OK(migrate(m, at, PART, turn % 2 ? RKFD_PLACE_VRAM : RKFD_PLACE_SYSTEM, NULL, NULL));
		p.n = 0;
		sdma_copy(&p, at + 8, mine_at + turn * PAGE + 16, 8);
		run_both(&p, number, out, 0x100 + turn);
		CHECK_EQ(*word(mine, turn * PAGE + 4), ~value);
		CHECK_EQ(*word(mine, turn * PAGE + 16), 0);
		CHECK_EQ(*word(mine, turn * PAGE + 20), ~value);
		CHECK_EQ(*word(own, 12), ~value);
		CHECK_EQ(about(m).address, at);
		OK(rkfd_mirror_describe(both.m, &info));
		CHECK_OP(info.changes, >, changes);
		changes = info.changes;
		rkfd_mirror_free(m);
		CHECK_EQ(munmap(own, PART * PAGE), 0);
	}
	no_fault(both.space);
	OK(rkfd_bind_list_new(both.space, &nothing));
	OK(rkfd_bind_list_unmap(nothing, out_at, PAGE));
	OK(rkfd_space_bind(both.space, nothing));
	rkfd_bind_list_free(nothing);
	rkfd_bo_free(out);
}

CASE(mirror_threads, "two threads with mirrors of their own and of both, in one address space, whose memory both replace while packets use it")
{
	static const uint32_t fillings[] = { RKFD_FILLING_AT_ONCE, RKFD_FILLING_ON_ACCESS };

	for (unsigned int i = 0; i < 2; i++) {
		struct rkfd_mirror_options o;
		int rc;

		both.memory = pages(2 * PART);
		both.space = need_space();
		both.filling = fillings[i];
		o = range(both.memory, 2 * PART, AT);
		o.filling = both.filling;
		rc = rkfd_mirror_new(both.space, &o, &both.m);
		if (both.filling == RKFD_FILLING_ON_ACCESS && rc == -EOPNOTSUPP) {
			rkfd_space_close(both.space);
			break;
		}
		OK(rc);
		OK(rkfd_space_queue_new(both.space, RKFD_QUEUE_SDMA, QUEUE_AT, &both.q));
		in_two(live);
		rkfd_space_queue_free(both.q);
		rkfd_mirror_free(both.m);
		rkfd_space_close(both.space);
	}
}
