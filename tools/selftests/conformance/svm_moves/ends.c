// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SVM: what becomes of memory in VRAM when the program forks, ends, or changes its mappings; and that VRAM is free afterwards.
 */
#include "moves.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void forked(struct agent *a, bool xnack)
{
	enum { N = 96 };
	uint8_t *p = patterned(N, 1);
	int go_on[2], written[2], status;
	char byte;
	pid_t child;

	(void)xnack;
	allow(a, p, N);
	for (unsigned int round = 0; round < 3; round++) {
		all_in(a, p, N);
		CHECK_EQ(pipe(go_on), 0);
		CHECK_EQ(pipe(written), 0);
		fflush(stdout);
		child = fork();
		CHECK_OP(child, >=, 0);
		if (!child) {
			/* One part before the parent writes, the other afterwards. */
			has_pattern(p, 0, N / 4, 1);
			for (unsigned int i = 0; i < N / 2; i += 3)
				*(volatile uint32_t *)(p + i * PAGE + 100) = 0xc4;
			CHECK_EQ(write(written[1], "x", 1), 1);
			CHECK_EQ(read(go_on[0], &byte, 1), 1);
			for (unsigned int i = 0; i < N / 2; i += 3)
				CHECK_EQ(*(volatile uint32_t *)(p + i * PAGE + 100), 0xc4);
			has_pattern(p + N / 2 * PAGE, N / 2, N / 2, 1);
			memset(p, 0xc5, N * PAGE);
			fflush(stdout);
			_exit(0);
		}
		CHECK_EQ(read(written[0], &byte, 1), 1);
		agent_has_pattern(a, p, 0, N, 1);
		/* What is shared the GPU writes for the parent alone. */
		agent_adds(a, p, N, 1, 7);
		for (unsigned int i = 0; i < N; i += 5)
			*(volatile uint64_t *)(p + i * PAGE + 16) += 0;
		/* Also when it moves meanwhile. */
		CHECK_OK(prefetch(a, p, N, a->gpu.id));
		agent_has_added(a, p, 0, N, 1, 1, 7);
		CHECK_EQ(write(go_on[1], "x", 1), 1);
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK_EQ(status, 0);
		agent_adds(a, p, N, 1, -7);
		agent_has_pattern(a, p, 0, N, 1);
		has_pattern(p, 0, N, 1);
		close(go_on[0]);
		close(go_on[1]);
		close(written[0]);
		close(written[1]);
	}
}

CASE_LIMIT(both_write, "fork of memory that a prefetch has moved: CPU and GPU of the parent, and the child, write, and each sees its own alone", 240)
{
	need_rkfd();
	in_both_modes(forked);
}

/* What a process leaves behind: how it ends, and its child, which reads what it has. */
enum ending { EXITS, KILLED, EXECUTES };
#define LEFT 300u

static int from_child[2], to_child[2];
static enum ending ending;
static bool with_xnack;

static void leaves(void *unused)
{
	uint8_t *p = patterned(LEFT, 2);
	struct agent a;
	pid_t child;
	char byte;
	int err;

	(void)unused;
	agent_open(&a, 0);
	need_moves(&a);
	err = set_xnack(&a.gpu, with_xnack);
	if (with_xnack && err == EPERM && a.gpu.gfx != 90010)
		_exit(TAP_STATUS_SKIP);
	CHECK_OK(err);
	agent_start(&a);
	allow(&a, p, LEFT);
	all_in(&a, p, LEFT);
	agent_adds(&a, p, LEFT, 2, 1);
	/* What the GPU may write would be copied for it when it is shared. */
	CHECK_OK(svm_set(&a.gpu, p, LEFT * PAGE, NO_ACCESS, a.gpu.id));
	CHECK_EQ(device_pages(p, LEFT), LEFT);
	fflush(stdout);
	child = fork();
	CHECK_OP(child, >=, 0);
	if (!child) {
		/* Until its parent has ended. */
		CHECK_EQ(read(to_child[0], &byte, 1), 1);
		has_added(p, 0, LEFT, 2, 2, 1);
		CHECK_EQ(write(from_child[1], "x", 1), 1);
		_exit(0);
	}
	if (ending == KILLED)
		raise(SIGKILL);
	if (ending == EXECUTES)
		execl("/bin/true", "true", NULL);
	_exit(0);
}

CASE_LIMIT(parent_ends, "a program ends with memory in VRAM, in each way: its child has each byte, and VRAM is free afterwards", 240)
{
	struct gpu gpu;
	uint64_t before;

	if (!is_rkfd())
		SKIP("amdkfd brings nothing back for a child whose parent has ended");
	/* Without ACQUIRE_VM the file keeps nothing. */
	need_gpu(&gpu, 0);
	before = available_settled(&gpu);
	for (unsigned int xnack = 0; xnack < 2; xnack++)
		for (ending = EXITS; ending <= EXECUTES; ending++) {
			int status;
			char byte;

			with_xnack = xnack;
			CHECK_EQ(pipe(from_child), 0);
			CHECK_EQ(pipe(to_child), 0);
			status = in_child(leaves, NULL);
			if (status == TAP_STATUS_SKIP) {
				if (!xnack)
					SKIP("the driver moves no memory");
				return;
			}
			CHECK_EQ(status, ending == KILLED ? -SIGKILL : 0);
			CHECK_EQ(write(to_child[1], "x", 1), 1);
			/* If the child fails the pipe ends. */
			close(from_child[1]);
			CHECK_EQ(read(from_child[0], &byte, 1), 1);
			close(from_child[0]);
			close(to_child[0]);
			close(to_child[1]);
			await_available(&gpu, before);
		}
}

struct moving {
	struct agent a;
	uint8_t *p;
};

static void *moves_on(void *context)
{
	struct moving *m = context;

	for (;;) {
		prefetch(&m->a, m->p, LEFT, m->a.gpu.id);
		prefetch(&m->a, m->p, LEFT, 0);
	}
	return NULL;
}

/* Moves memory in and out, works on it and touches it, until it is killed. */
static void moves_until_killed(int ready)
{
	static struct moving m;
	pthread_t thread;
	int err;

	m.p = patterned(LEFT, 3);
	agent_open(&m.a, 0);
	need_moves(&m.a);
	err = set_xnack(&m.a.gpu, with_xnack);
	if (with_xnack && err == EPERM && m.a.gpu.gfx != 90010)
		_exit(TAP_STATUS_SKIP);
	CHECK_OK(err);
	agent_start(&m.a);
	allow(&m.a, m.p, LEFT);
	CHECK_EQ(pthread_create(&thread, NULL, moves_on, &m), 0);
	agent_adds(&m.a, m.p, LEFT, 1, 1);
	say_ready(ready);
	for (;;) {
		agent_adds(&m.a, m.p, LEFT, 1, 1);
		CHECK_NE(*(volatile uint64_t *)(m.p + 7 * PAGE), 0);
	}
}

static void works_alone(void *unused)
{
	uint8_t *p = patterned(LEFT, 4);
	struct agent a;

	(void)unused;
	agent_open(&a, 0);
	agent_start(&a);
	allow(&a, p, LEFT);
	all_in(&a, p, LEFT);
	agent_adds(&a, p, LEFT, 1, 1);
	agent_stop(&a);
	has_added(p, 0, LEFT, 4, 1, 1);
}

CASE_LIMIT(killed, "a program is killed at any moment of its moves: VRAM is free afterwards, and the GPU serves others", 240)
{
	struct gpu gpu;
	uint64_t before;

	need_rkfd();
	need_gpu(&gpu, 0);
	before = available_settled(&gpu);
	for (unsigned int round = 0; round < 8; round++) {
		pid_t child;

		/* Where there is no XNACK only the first half. */
		with_xnack = round >= 4;
		if (with_xnack && gpu.gfx != 90010)
			break;
		child = start_child(moves_until_killed);
		usleep(round % 4 * 37000);
		kill_child(child);
		await_available(&gpu, before);
		CHECK_EQ(in_child(works_alone, NULL), 0);
		await_available(&gpu, before);
	}
}

static void mappings_change(struct agent *a, bool xnack)
{
	const unsigned int all = 2 * PAGES;
	uint8_t *p = patterned(all, 5), *q;
	uint64_t before;

	(void)xnack;
	before = available_settled(&a->gpu);
	allow(a, p, all);
	all_in(a, p, all);
	CHECK_OP(available(&a->gpu), <=, before - 2 * HUGE);
	/* Discarded. */
	CHECK_EQ(madvise(p + 10 * PAGE, 10 * PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(device_pages(p, all), all - 10);
	agent_has_zeroes(a, p + 10 * PAGE, 10);
	has_zeroes(p + 10 * PAGE, 10);
	pattern(p + 10 * PAGE, 10, 10, 5);
	/* Half of a granule is unmapped, and something else mapped there, without attributes. */
	CHECK_EQ(munmap(p + 100 * PAGE, 200 * PAGE), 0);
	CHECK_EQ(device_pages(p + 100 * PAGE, 200), 0);
	CHECK(mmap(p + 100 * PAGE, 200 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      p + 100 * PAGE);
	CHECK_EQ(svm_get(&a->gpu, p + 100 * PAGE, 200 * PAGE, PREFETCH), UNDEFINED);
	CHECK_EQ(svm_get(&a->gpu, p, 100 * PAGE, PREFETCH), a->gpu.id);
	has_zeroes(p + 100 * PAGE, 200);
	agent_has_pattern(a, p, 0, 100, 5);
	agent_has_pattern(a, p + 300 * PAGE, 300, all - 300, 5);
	/* The room is used for it again, and shows nothing of before. */
	allow(a, p + 100 * PAGE, 200);
	CHECK_EQ(madvise(p + 100 * PAGE, 200 * PAGE, MADV_NOHUGEPAGE), 0);
	all_in(a, p + 100 * PAGE, 200);
	agent_has_zeroes(a, p + 100 * PAGE, 200);
	/* Read-only, and back. */
	CHECK_EQ(mprotect(p, 50 * PAGE, PROT_READ), 0);
	agent_has_pattern(a, p, 0, 50, 5);
	CHECK_EQ(mprotect(p, 50 * PAGE, PROT_READ | PROT_WRITE), 0);
	agent_adds(a, p, 50, 2, 1);
	/* Moved to other addresses: the bytes go along, attributes do not. */
	q = mmap(NULL, 100 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(q != MAP_FAILED);
	CHECK(mremap(p + 600 * PAGE, 100 * PAGE, 100 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	CHECK_EQ(svm_get(&a->gpu, q, 100 * PAGE, PREFETCH), UNDEFINED);
	CHECK_OP(device_pages(q, 100), >, 0);
	allow(a, q, 100);
	agent_has_pattern(a, q, 600, 100, 5);
	agent_adds(a, q, 100, 1, 3);
	has_added(q, 600, 100, 5, 1, 3);
	all_in(a, q, 100);
	agent_has_added(a, q, 600, 100, 5, 1, 3);
	has_added(p, 0, 50, 5, 2, 1);
	has_pattern(p + 50 * PAGE, 50, 50, 5);
	has_pattern(p + 300 * PAGE, 300, 300, 5);
	has_pattern(p + 700 * PAGE, 700, all - 700, 5);
	has_added(q, 600, 100, 5, 1, 3);
	/* VRAM is given back with the last page. */
	all_in(a, p, 100);
	CHECK_EQ(munmap(p, 600 * PAGE), 0);
	CHECK_EQ(munmap(p + 700 * PAGE, (all - 700) * PAGE), 0);
	CHECK_EQ(munmap(q, 100 * PAGE), 0);
	await_available(&a->gpu, before);
}

CASE_LIMIT(changed, "memory in VRAM is discarded, unmapped in part, protected and moved by the program: both see what is there then", 240)
{
	need_rkfd();
	in_both_modes(mappings_change);
}

static void kernel_accesses(struct agent *a, bool xnack)
{
	enum { N = 64 };
	uint8_t *p = patterned(N, 7), copy[PAGE];
	int ends[2], zero = open("/dev/zero", O_RDONLY | O_CLOEXEC), memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);

	(void)xnack;
	CHECK_OP(zero, >=, 0);
	CHECK_OP(memory, >=, 0);
	CHECK_EQ(pipe(ends), 0);
	allow(a, p, N);
	all_in(a, p, N);
	/* It reads for write(), and for a debugger. */
	CHECK_EQ(write(ends[1], p + 3 * PAGE, PAGE), PAGE);
	CHECK_EQ(read(ends[0], copy, PAGE), PAGE);
	page_has(copy, "kernel", 3, 7, 0, 0);
	CHECK_EQ(pread(memory, copy, PAGE, (uintptr_t)p + 11 * PAGE), PAGE);
	page_has(copy, "kernel", 11, 7, 0, 0);
	all_in(a, p, N);
	/* It writes for read(). */
	CHECK_EQ(read(zero, p + 20 * PAGE, 2 * PAGE), 2 * PAGE);
	CHECK_EQ(device_pages(p + 20 * PAGE, 2), 0);
	agent_has_zeroes(a, p + 20 * PAGE, 2);
	agent_has_pattern(a, p, 0, 20, 7);
	agent_has_pattern(a, p + 22 * PAGE, 22, N - 22, 7);
	/* A lock brings it out, and keeps it there. */
	CHECK_EQ(mlock(p, N * PAGE), 0);
	CHECK_EQ(device_pages(p, N), 0);
	CHECK_OK(prefetch(a, p, N, a->gpu.id));
	CHECK_EQ(device_pages(p, N), 0);
	CHECK_EQ(munlock(p, N * PAGE), 0);
	all_in(a, p, N);
	has_pattern(p, 0, 20, 7);
	has_zeroes(p + 20 * PAGE, 2);
	has_pattern(p + 22 * PAGE, 22, N - 22, 7);
}

CASE_LIMIT(by_the_kernel, "memory in VRAM comes out for what the kernel reads and writes for the program, and for a lock", 120)
{
	need_rkfd();
	in_both_modes(kernel_accesses);
}

CASE_LIMIT(modes, "XNACK is turned on and off with memory in VRAM: each byte is what it was", 120)
{
	enum { N = 200 };
	uint8_t *p = patterned(N, 6);
	struct agent a;
	int err;

	agent_open(&a, 0);
	need_moves(&a);
	allow(&a, p, N);
	all_in(&a, p, N);
	err = set_xnack(&a.gpu, true);
	if (err == EPERM && a.gpu.gfx != 90010)
		SKIP("the GPU has no XNACK");
	CHECK_OK(err);
	CHECK_EQ(svm_get(&a.gpu, p, N * PAGE, PREFETCH), a.gpu.id);
	agent_start(&a);
	agent_has_pattern(&a, p, 0, N, 6);
	agent_adds(&a, p, N, 3, 1);
	agent_stop(&a);
	all_in(&a, p, N);
	CHECK_OK(set_xnack(&a.gpu, false));
	agent_start(&a);
	agent_has_added(&a, p, 0, N, 6, 3, 1);
	agent_adds(&a, p, N, 3, 1);
	agent_stop(&a);
	has_added(p, 0, N, 6, 3, 2);
}
