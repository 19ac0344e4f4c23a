// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * One process hosts many guests, each with an open render node of its own. Their CPU addresses or their GPU addresses are
 * equal; what one of them does, and what becomes of it, reaches exactly that one.
 */
#include "backoff.h"
#include "mirror.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUESTS = 32, PAGES = 16, PROCESSES = 6 };

#define WRITE DRM_RKFD_FAULT_WRITE
#define PRESENT DRM_RKFD_FAULT_PRESENT
/* Where the memory of a guest begins for itself. */
#define GUEST_MEMORY 0x100000ul
/* Where its fence is, in the buffer for what it reads. */
#define FENCE (PAGE - 4)

struct guest {
	/* With a queue for PM4 packets: there are fewer of SDMA than guests. */
	struct engine e;
	uint8_t *p;
	uint64_t at;
	uint32_t id;
};

/* FAULT where the GPU repeats accesses of one file alone. */
static uint32_t filling(void)
{
	struct drm_rkfd_mirror_create args;
	struct nfile file;
	uint8_t *p = need_memory(PAGE);
	int err;

	need_file(&file);
	err = mirror_create(&file, p, AT, PAGE, FAULT, &args);
	if (err != EOPNOTSUPP)
		CHECK_OK(err);
	close_file(&file);
	munmap(p, PAGE);
	return err ? POPULATED : FAULT;
}

static void guest_begin(struct guest *g, uint8_t *p, uint64_t at, uint32_t flags)
{
	g->p = p;
	g->at = at;
	engine_open(&g->e);
	g->id = need_mirror(&g->e.file, p, at, PAGES * PAGE, flags);
	need_nqueue(&g->e.file, &g->e.q, DRM_RKFD_QUEUE_PM4, QUEUE_AT);
}

/* Has the GPU do it, and then store the fence. */
static void guest_submit(struct guest *g, struct packets *p)
{
	pm4_release(p, OUT_AT + FENCE, 1, ++g->e.fence, 0, 0);
	nsubmit(&g->e.q, p);
}

static void guest_wait(struct guest *g)
{
	await32(out32(&g->e, FENCE), g->e.fence, "the fence of a guest");
}

static void submit_write(struct guest *g, uint64_t va, uint32_t value)
{
	struct packets p = { .n = 0 };

	pm4_write(&p, va, value);
	guest_submit(g, &p);
}

static void submit_read(struct guest *g, uint64_t va)
{
	struct packets p = { .n = 0 };

	*out32(&g->e, 0) = 0xdeadbeef;
	pm4_acquire(&p);
	pm4_dma(&p, va, OUT_AT, 4);
	guest_submit(g, &p);
}

/* All guests but `but`: they write, at once, each its own value, and it arrives where it should. */
static void all_write(struct guest *g, unsigned int guests, uint64_t offset, uint32_t value, uint64_t but)
{
	for (unsigned int i = 0; i < guests; i++)
		if (!(but >> i & 1))
			submit_write(&g[i], g[i].at + offset, value + i);
	for (unsigned int i = 0; i < guests; i++)
		if (!(but >> i & 1)) {
			guest_wait(&g[i]);
			CHECK_EQ(*word(g[i].p, offset), value + i);
		}
}

static void all_read(struct guest *g, uint64_t offset, uint32_t value, uint32_t step, uint64_t but)
{
	for (unsigned int i = 0; i < GUESTS; i++)
		if (!(but >> i & 1))
			submit_read(&g[i], g[i].at + offset);
	for (unsigned int i = 0; i < GUESTS; i++)
		if (!(but >> i & 1)) {
			guest_wait(&g[i]);
			CHECK_EQ(*out32(&g[i].e, 0), value + i * step);
		}
}

/* Nobody's access was refused but theirs, and their files are closed; the others end as they should. */
static void all_end(struct guest *g, uint64_t but)
{
	for (unsigned int i = 0; i < GUESTS; i++)
		if (but >> i & 1)
			engine_leave(&g[i].e);
		else
			engine_end(&g[i].e);
}

CASE_LIMIT(same_gpu_addresses, "guests at the same GPU addresses: each reads, writes and adds in its own memory", 120)
{
	static struct guest g[GUESTS];
	uint32_t flags = filling();

	for (unsigned int i = 0; i < GUESTS; i++) {
		guest_begin(&g[i], need_memory(PAGES * PAGE), AT, flags);
		fill(g[i].p, PAGES, i << 16);
	}
	/* Memory that nobody had touched when the mirrors were made. */
	all_read(g, 5 * PAGE, 5, 1 << 16, 0);
	for (unsigned int i = 0; i < GUESTS; i++) {
		struct packets p = { .n = 0 };

		pm4_write(&p, AT + 8, 0x1000 + i);
		pm4_atomic(&p, 47, AT + PAGE + 8, i + 1);
		pm4_atomic(&p, 47, AT + PAGE + 8, i + 1);
		guest_submit(&g[i], &p);
	}
	for (unsigned int i = 0; i < GUESTS; i++) {
		guest_wait(&g[i]);
		CHECK_EQ(*word(g[i].p, 8), 0x1000 + i);
		CHECK_EQ(*word(g[i].p, PAGE + 8), 2 * (i + 1));
		/* Nothing else has changed. */
		for (unsigned int page = 0; page < PAGES; page++)
			CHECK_EQ(*word(g[i].p, page * PAGE), (i << 16) + page);
		CHECK_EQ(mirror_query(&g[i].e.file, g[i].id).bytes, PAGES * PAGE);
		if (flags == FAULT)
			CHECK(mirror_query(&g[i].e.file, g[i].id).faults > 0);
	}
	all_end(g, 0);
}

CASE_LIMIT(same_memory, "guests have the same memory at addresses of their own: what one writes all see, and what the program discards all lose", 120)
{
	static struct guest g[GUESTS];
	uint8_t *p = need_memory(PAGES * PAGE);
	uint32_t flags = filling();

	fill(p, PAGES, 0x700);
	for (unsigned int i = 0; i < GUESTS; i++)
		guest_begin(&g[i], p, AT + i * (HUGE + PAGE), flags | (i % 2 ? RO : 0));
	all_read(g, 3 * PAGE, 0x703, 0, 0);
	for (unsigned int writer = 0; writer < GUESTS; writer += 14) {
		submit_write(&g[writer], g[writer].at + 3 * PAGE, 0x90 + writer);
		guest_wait(&g[writer]);
		CHECK_EQ(*word(p, 3 * PAGE), 0x90 + writer);
		all_read(g, 3 * PAGE, 0x90 + writer, 0, 0);
	}
	CHECK_EQ(madvise(p + 3 * PAGE, PAGE, MADV_DONTNEED), 0);
	all_read(g, 3 * PAGE, 0, 0, 0);
	*word(p, 3 * PAGE) = 0xc0de;
	all_read(g, 3 * PAGE, 0xc0de, 0, 0);
	all_read(g, 4 * PAGE, 0x704, 0, 0);
	all_end(g, 0);
}

CASE_LIMIT(guest_memory, "each guest has a part of a file as its memory, from the same address on; the program takes some of it back from one", 120)
{
	static struct guest g[GUESTS];
	int fd = memfd_create("guests", MFD_CLOEXEC);
	uint32_t flags = filling();
	uint8_t *p;

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, GUESTS * PAGES * PAGE), 0);
	p = mmap(NULL, GUESTS * PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	fill(p, GUESTS * PAGES, 0x10000);
	for (unsigned int i = 0; i < GUESTS; i++)
		guest_begin(&g[i], p + i * PAGES * PAGE, GUEST_MEMORY, flags);
	all_read(g, 2 * PAGE, 0x10002, PAGES, 0);
	all_write(g, GUESTS, 2 * PAGE, 0x500, 0);
	CHECK_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (7 * PAGES + 1) * PAGE, 4 * PAGE), 0);
	submit_read(&g[7], GUEST_MEMORY + 2 * PAGE);
	guest_wait(&g[7]);
	CHECK_EQ(*out32(&g[7].e, 0), 0);
	all_read(g, 2 * PAGE, 0x500, 1, 1 << 7);
	/* It has all of its memory again, with nothing in it. */
	all_write(g, GUESTS, 3 * PAGE, 0x600, 0);
	for (unsigned int i = 0; i < GUESTS; i++)
		CHECK_EQ(*word(g[i].p, 2 * PAGE), i == 7 ? 0 : 0x500 + i);
	all_end(g, 0);
}

CASE_LIMIT(errors, "one guest accesses what it has not, one writes what it may only read: these two stop, thirty go on", 120)
{
	static const unsigned int outside = 3, against = 9;
	const uint64_t both = 1ul << outside | 1ul << against;
	static struct guest g[GUESTS];
	uint32_t flags = filling();
	struct drm_rkfd_fault fault;

	for (unsigned int i = 0; i < GUESTS; i++) {
		guest_begin(&g[i], need_memory(PAGES * PAGE), AT, flags | (i == against ? RO : 0));
		fill(g[i].p, PAGES, i << 16);
	}
	all_read(g, 0, 0, 1 << 16, 0);
	submit_write(&g[outside], AT + PAGES * PAGE, 0xbad);
	submit_write(&g[against], AT + 4, 0xbad);
	all_write(g, GUESTS, 8, 0x100, both);
	fault = await_fault(&g[outside].e);
	CHECK_EQ(fault.address, AT + PAGES * PAGE);
	CHECK_EQ(fault.access, WRITE);
	fault = await_fault(&g[against].e);
	CHECK_EQ(fault.address, AT);
	CHECK_EQ(fault.access, WRITE | PRESENT);
	CHECK_EQ(*word(g[against].p, 4), 0);
	all_write(g, GUESTS, 12, 0x200, both);
	for (unsigned int i = 0; i < GUESTS; i++) {
		CHECK_EQ(new_faults(&g[i].e, NULL), 0);
		CHECK_EQ(*word(g[i].p, 8), both >> i & 1 ? 0 : 0x100 + i);
	}
	all_end(g, both);
}

CASE_LIMIT(closed, "guests are closed in the middle of their work, and others come in their place: the rest goes on", 120)
{
	static struct guest g[GUESTS];
	uint32_t flags = filling();

	for (unsigned int i = 0; i < GUESTS; i++)
		guest_begin(&g[i], need_memory(PAGES * PAGE), AT, flags);
	for (unsigned int round = 1; round <= 3; round++) {
		for (unsigned int i = 0; i < GUESTS; i++)
			submit_write(&g[i], AT + (round + i % 8) * PAGE, round << 8 | i);
		for (unsigned int i = round; i < GUESTS; i += 11) {
			uint8_t *p = g[i].p;

			engine_leave(&g[i].e);
			guest_begin(&g[i], p, AT, flags);
			submit_write(&g[i], AT + (round + i % 8) * PAGE, round << 8 | i);
		}
		for (unsigned int i = 0; i < GUESTS; i++) {
			guest_wait(&g[i]);
			CHECK_EQ(*word(g[i].p, (round + i % 8) * PAGE), round << 8 | i);
		}
	}
	all_end(g, 0);
}

/* What is in use of both heaps. */
static uint64_t used(const struct nfile *file)
{
	return heap_used(file, VRAM) + heap_used(file, SYSTEM);
}

CASE_LIMIT(killed, "the program is killed while all of its guests work: nothing is left, and there is room for as many", 120)
{
	static struct guest g[GUESTS];
	uint64_t before, end;
	struct backoff wait = { 0 };
	uint32_t flags = filling();
	struct nfile file;
	int ready[2], status;
	pid_t child;
	char byte;

	need_file(&file);
	before = used(&file);
	CHECK_EQ(pipe(ready), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		for (unsigned int i = 0; i < GUESTS; i++)
			guest_begin(&g[i], need_memory(PAGES * PAGE), AT, flags);
		for (unsigned int round = 0; ; round++) {
			for (unsigned int i = 0; i < GUESTS; i++) {
				/* Pages that come and go. */
				CHECK_EQ(madvise(g[i].p, PAGES * PAGE, MADV_DONTNEED), 0);
				submit_write(&g[i], AT + round % PAGES * PAGE, round);
			}
			if (round == 1 && write(ready[1], "", 1) != 1)
				_exit(1);
			for (unsigned int i = 0; i < GUESTS; i++)
				guest_wait(&g[i]);
		}
	}
	close(ready[1]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFSIGNALED(status));
	for (end = now_ms() + WAIT_MS; used(&file) != before; back_off(&wait))
		CHECK_OP(now_ms(), <, end);
	close_file(&file);
	for (unsigned int i = 0; i < GUESTS; i++)
		guest_begin(&g[i], need_memory(PAGES * PAGE), AT, flags);
	all_write(g, GUESTS, PAGE, 0x300, 0);
	all_end(g, 0);
}

/* A guest with a process of its own: shows its memory in a file, hands that over, and tells what it has when it is asked. */
static void be_guest(int proxy, uint8_t *p, uint32_t flags)
{
	struct nfile file;
	uint32_t value;
	char byte;

	need_file(&file);
	need_mirror(&file, p, AT, PAGES * PAGE, flags);
	send_fd(proxy, file.fd);
	close(file.fd);
	while (read(proxy, &byte, 1) == 1) {
		value = *word(p, 8);
		CHECK_EQ(write(proxy, &value, sizeof(value)), sizeof(value));
	}
}

static uint32_t ask(int guest)
{
	uint32_t value = 0;

	CHECK_EQ(write(guest, "", 1), 1);
	CHECK_EQ(read(guest, &value, sizeof(value)), sizeof(value));
	return value;
}

CASE_LIMIT(processes, "guests with processes of their own hand their files over: packets reach the memory of each, until its process has ended", 120)
{
	static struct guest g[PROCESSES];
	uint8_t *p = need_memory(PAGES * PAGE);
	uint32_t flags = filling();
	int guest[PROCESSES], pair[2], status;
	pid_t child[PROCESSES];
	struct drm_rkfd_fault fault;
	struct nfile own;

	/* The same memory for all, before it becomes each process' own. */
	fill(p, PAGES, 0x40);
	need_file(&own);
	for (unsigned int i = 0; i < PROCESSES; i++) {
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		child[i] = fork();
		CHECK(child[i] >= 0);
		if (child[i] == 0) {
			/* So that each learns of the end of the program. */
			for (unsigned int k = 0; k < i; k++)
				close(guest[k]);
			close(pair[0]);
			be_guest(pair[1], p, flags);
			_exit(0);
		}
		close(pair[1]);
		guest[i] = pair[0];
		g[i].at = AT;
		g[i].e.file = (struct nfile){ receive_fd(guest[i]), own.device };
		engine_prepare(&g[i].e);
		need_nqueue(&g[i].e.file, &g[i].e.q, DRM_RKFD_QUEUE_PM4, QUEUE_AT);
	}
	for (unsigned int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < PROCESSES; i++)
			submit_write(&g[i], AT + 8, 0x900 + 16 * round + i);
		for (unsigned int i = 0; i < PROCESSES; i++) {
			guest_wait(&g[i]);
			CHECK_EQ(ask(guest[i]), 0x900 + 16 * round + i);
		}
	}
	/* What the program has at these addresses is none of it. */
	CHECK_EQ(*word(p, 8), 0);
	close(guest[2]);
	CHECK_EQ(waitpid(child[2], &status, 0), child[2]);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	submit_write(&g[2], AT + 8, 0xbad);
	fault = await_fault(&g[2].e);
	CHECK_EQ(fault.address, AT);
	CHECK_EQ(fault.access, WRITE);
	for (unsigned int i = 0; i < PROCESSES; i++) {
		if (i == 2) {
			engine_leave(&g[i].e);
			continue;
		}
		submit_write(&g[i], AT + 8, 0xa00 + i);
		guest_wait(&g[i]);
		CHECK_EQ(ask(guest[i]), 0xa00 + i);
		engine_end(&g[i].e);
		close(guest[i]);
		CHECK_EQ(waitpid(child[i], &status, 0), child[i]);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
	}
	close_file(&own);
}
