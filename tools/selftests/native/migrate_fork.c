// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory in VRAM that processes share after fork: what the CPU or the GPU of one writes is that one's alone, and the pages
 * live for as long as one of them does.
 */
#include "migrate.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 96u

/* A child, and the two ends of what it is told by and answers with. */
struct child {
	pid_t pid;
	int to, from;
};

/* In a child: waits until the parent wants it to go on. */
static void await_word(int from)
{
	char byte;

	CHECK_EQ(read(from, &byte, 1), 1);
}

static void say_word(int to)
{
	CHECK_EQ(write(to, "x", 1), 1);
}

static struct child begin_child(void (*run)(int from, int to))
{
	int down[2], up[2];
	struct child c;

	CHECK_EQ(pipe2(down, O_CLOEXEC), 0);
	CHECK_EQ(pipe2(up, O_CLOEXEC), 0);
	fflush(stdout);
	c.pid = fork();
	CHECK_OP(c.pid, !=, -1);
	if (c.pid == 0) {
		close(down[1]);
		close(up[0]);
		run(down[0], up[1]);
		fflush(stdout);
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	c.to = down[1];
	c.from = up[0];
	return c;
}

/* It ends well. */
static void end_child(struct child *c)
{
	int status;

	CHECK_EQ(waitpid(c->pid, &status, 0), c->pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	close(c->to);
	close(c->from);
}

static uint8_t *p;
static uint32_t way;

/* Everything is what it was when it was forked, and what it writes is seen by nobody else. */
static void compare_and_write(int from, int to)
{
	/* One part before the parent writes, the other afterwards. */
	has_pattern(p, 0, N / 4, 1);
	for (unsigned int i = 0; i < N / 2; i += 3)
		*word(p, i * PAGE + 100) = 0xc4;
	say_word(to);
	await_word(from);
	for (unsigned int i = 0; i < N / 2; i += 3)
		CHECK_EQ(*word(p, i * PAGE + 100), 0xc4);
	has_pattern(p + N / 2 * PAGE, N / 2, N / 2, 1);
	memset(p, 0xc5, N * PAGE);
}

static void both_write_by(uint32_t filling)
{
	struct engine e;
	uint32_t id;

	p = need_memory(N * PAGE);
	id = moving_begin(&e, p, AT, N * PAGE, filling);
	for (unsigned int round = 0; round < 3; round++) {
		struct child c;

		pattern(p, 0, N, 1);
		CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
		gpu_has_pattern(&e, AT, 0, N, 1);
		c = begin_child(compare_and_write);
		await_word(c.from);
		/* The child's writes are not here, in VRAM or elsewhere. */
		gpu_has_pattern(&e, AT, 0, N / 2, 1);
		/* The GPU's write of a shared page, and the CPU's. */
		gpu_adds(&e, AT, N, 1, 7);
		for (unsigned int i = 0; i < N; i += 5)
			*(volatile uint64_t *)(p + i * PAGE + 16) += 0;
		say_word(c.to);
		end_child(&c);
		has_added(p, 0, N, 1, 1, 7);
		gpu_adds(&e, AT, N, 1, -7);
		gpu_has_pattern(&e, AT, 0, N, 1);
		has_pattern(p, 0, N, 1);
	}
	engine_end(&e);
}

CASE_LIMIT(both_write, "fork of memory in VRAM: CPU and GPU of the parent, and the child, write, and each sees its own alone", 120)
{
	in_both_ways(both_write_by);
}

/* A child with a file and a GPU of its own. */
static void own_gpu(int from, int to)
{
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT + HUGE, N * PAGE, way);

	gpu_has_pattern(&e, AT + HUGE, 0, N, 1);
	gpu_adds(&e, AT + HUGE, N / 2, 2, 9);
	say_word(to);
	await_word(from);
	has_added(p, 0, N / 2, 1, 2, 9);
	has_pattern(p + N / 2 * PAGE, N / 2, N / 2, 1);
	/* It moves what is its own. */
	move_all(&e.file, id, AT + HUGE, N * PAGE, IN_SYSTEM, 0);
	CHECK_EQ(device_pages(p, N), 0);
	move_all(&e.file, id, AT + HUGE, N * PAGE, IN_VRAM, 0);
	CHECK_EQ(device_pages(p, N), N);
	gpu_adds(&e, AT + HUGE, N / 2, 2, -9);
	gpu_has_pattern(&e, AT + HUGE, 0, N, 1);
	has_pattern(p, 0, N, 1);
	engine_end(&e);
}

static void two_gpus_by(uint32_t filling)
{
	struct engine e;
	struct child c;
	uint32_t id;

	p = need_memory(N * PAGE);
	way = filling;
	id = moving_begin(&e, p, AT, N * PAGE, filling);
	pattern(p, 0, N, 1);
	CHECK_EQ(move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0), N * PAGE);
	c = begin_child(own_gpu);
	await_word(c.from);
	/* The child's GPU has written what was one page of both. */
	gpu_has_pattern(&e, AT, 0, N, 1);
	gpu_adds(&e, AT, N, 3, 4);
	say_word(c.to);
	end_child(&c);
	has_added(p, 0, N, 1, 3, 4);
	engine_end(&e);
}

CASE_LIMIT(two_spaces, "parent and child use the GPU by files of their own, and both write the pages in VRAM that they share", 120)
{
	in_both_ways(two_gpus_by);
}

/* Compares when its parent, and the file, have ended; the last one of all. */
static void outlive(int from, int to)
{
	char byte;

	(void)to;
	/* The end of the one who was to say something. */
	CHECK_EQ(read(from, &byte, 1), 0);
	has_added(p, 0, N, 1, 1, 5);
	memset(p, 0x11, N * PAGE);
}

/* Has memory in VRAM, a child, and one of that; ends before both of them. */
static int results;

static void grandchild(int from, int to)
{
	outlive(from, to);
	CHECK_EQ(write(results, "g", 1), 1);
}

static void middle(int from, int to)
{
	struct child c = begin_child(grandchild);

	(void)c;
	outlive(from, to);
	CHECK_EQ(write(results, "m", 1), 1);
	/* Its end is that of what the grandchild waits for. */
}

static void first_to_end(void *unused)
{
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, N * PAGE, way);
	struct child c;

	(void)unused;
	pattern(p, 0, N, 1);
	move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0);
	gpu_adds(&e, AT, N, 1, 5);
	CHECK_EQ(device_pages(p, N), N);
	c = begin_child(middle);
	(void)c;
	/* With a file, a mirror and a queue that nobody takes away before. */
}

static void parent_ends_by(uint32_t filling)
{
	struct nfile file;
	uint64_t before;
	int line[2];
	char two[2];

	p = need_memory(N * PAGE);
	way = filling;
	CHECK_EQ(pipe(line), 0);
	results = line[1];
	need_file(&file);
	before = settled_vram(&file);
	CHECK_EQ(in_child(first_to_end, NULL), 0);
	close(line[1]);
	CHECK_EQ(read(line[0], two, 1), 1);
	CHECK_EQ(two[0], 'm');
	CHECK_EQ(read(line[0], two + 1, 1), 1);
	CHECK_EQ(two[1], 'g');
	/* No process is left, and so is no VRAM. */
	await_vram(&file, before);
	close(line[0]);
	close_file(&file);
}

CASE_LIMIT(parent_ends, "who moved it ends first, with its file; its child and grandchild have each byte, and VRAM is free afterwards", 120)
{
	in_both_ways(parent_ends_by);
}

static void have_in_vram(int ready)
{
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, N * PAGE, way);

	pattern(p, 0, N, 1);
	move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0);
	CHECK_EQ(device_pages(p, N), N);
	say_ready(ready);
	pause();
}

static void killed_by(uint32_t filling)
{
	struct nfile file;
	uint64_t before;

	p = need_memory(N * PAGE);
	way = filling;
	need_file(&file);
	need_migration(&file);
	before = settled_vram(&file);
	kill_child(start_child(have_in_vram));
	await_vram(&file, before);
	close_file(&file);
}

CASE(killed, "a program is killed with memory in VRAM: nothing is left of it")
{
	in_both_ways(killed_by);
}

static void run_another(int from, int to)
{
	(void)from;
	(void)to;
	has_pattern(p, 0, 1, 1);
	execl("/bin/true", "true", NULL);
	_exit(1);
}

static void executed_by(uint32_t filling)
{
	struct engine e;
	struct child c;
	uint32_t id;

	p = need_memory(N * PAGE);
	id = moving_begin(&e, p, AT, N * PAGE, filling);
	pattern(p, 0, N, 1);
	move_all(&e.file, id, AT, N * PAGE, IN_VRAM, 0);
	c = begin_child(run_another);
	end_child(&c);
	gpu_has_pattern(&e, AT, 0, N, 1);
	gpu_adds(&e, AT, N, 0, 1);
	has_added(p, 0, N, 1, 0, 1);
	engine_end(&e);
}

CASE(executed, "a child that has memory in VRAM becomes another program: its parent's memory is as it was")
{
	in_both_ways(executed_by);
}

static struct {
	struct nfile *file;
	uint32_t id;
	atomic_bool stop;
	uint64_t moved;
} mover;

static void *move_on(void *unused)
{
	(void)unused;
	while (!mover.stop) {
		struct drm_rkfd_mirror_migrate args;
		uint32_t place = mover.moved / PAGE % 2 ? IN_SYSTEM : IN_VRAM;

		for (int i = 0; i < 2; i++, place = place == IN_VRAM ? IN_SYSTEM : IN_VRAM) {
			int err = mirror_migrate(mover.file, mover.id, AT, N * PAGE, place, 0, &args);

			CHECK(!err || err == EAGAIN);
			mover.moved += args.moved;
		}
	}
	return NULL;
}

static void compare_once(int from, int to)
{
	(void)from;
	(void)to;
	has_pattern(p, 0, N, 1);
	memset(p, 0xee, N * PAGE);
}

static void while_moving_by(uint32_t filling)
{
	struct child children[20];
	struct engine e;
	pthread_t thread;

	p = need_memory(N * PAGE);
	mover.id = moving_begin(&e, p, AT, N * PAGE, filling);
	mover.file = &e.file;
	mover.stop = false;
	mover.moved = 0;
	pattern(p, 0, N, 1);
	CHECK_EQ(pthread_create(&thread, NULL, move_on, NULL), 0);
	for (unsigned int i = 0; i < 20; i++) {
		children[i] = begin_child(compare_once);
		gpu_adds(&e, AT, N, 1, 1);
		gpu_adds(&e, AT, N, 1, -1);
		if (i % 4 == 3)
			for (unsigned int j = i - 3; j <= i; j++)
				end_child(&children[j]);
	}
	mover.stop = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_OP(mover.moved, >, 0);
	has_pattern(p, 0, N, 1);
	gpu_has_pattern(&e, AT, 0, N, 1);
	engine_end(&e);
}

CASE_LIMIT(while_moving, "forks at any moment of moves in and out: each child has what was there", 240)
{
	in_both_ways(while_moving_by);
}
