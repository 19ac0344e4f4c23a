// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * More VRAM in use than there is: processes that each fit, and together do not. Each byte is compared, as the CPU sees
 * it through its mapping and as the GPU copies it, whether the buffer is in VRAM at that moment or was evicted.
 */
#include "group.h"
#include "kfd.h"
#include "smi.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SDMA KFD_IOC_QUEUE_TYPE_SDMA

/* Together they want three times what there is. */
enum { PROCESSES = 8, TIMES = 3, ROUNDS = 3 };
/* Of several jobs of the driver's copy engine, and no power of two. */
#define CHUNK (6ul << 20)
#define WORDS (CHUNK / 8)
/* More than the driver looks at in one go. */
#define SMALL 4200
/* What one SDMA packet copies on every GPU. */
#define PACKET (2ul << 20)

static struct {
	pthread_barrier_t all;
	uint64_t bytes; /* Taken by all together. */
} *shared;

static struct {
	unsigned int number;
	struct gpu gpu;
	struct queue q;
	struct bo source, copy, fence;
	uint32_t fences;
	struct bo *chunks;
	unsigned int *rounds; /* What each holds. */
	unsigned int count;
} me;

static uint64_t share;

/* No two words of any process, chunk and round are the same. */
static uint64_t word(unsigned int chunk, unsigned int round, uint64_t at)
{
	uint64_t key = (uint64_t)me.number << 56 | (uint64_t)round << 48 | (uint64_t)chunk << 32 | at;

	return key * 0x9e3779b97f4a7c15ul;
}

static void fill(const struct bo *bo, unsigned int chunk, unsigned int round)
{
	volatile uint64_t *words = bo64(bo, 0);

	for (uint64_t at = 0; at < WORDS; at++)
		words[at] = word(chunk, round, at);
}

static void compare(const struct bo *bo, unsigned int chunk, unsigned int round, const char *who)
{
	volatile uint64_t *words = bo64(bo, 0);

	for (uint64_t at = 0; at < WORDS; at++) {
		uint64_t seen = words[at];

		if (seen != word(chunk, round, at))
			FAIL("process %u, chunk %u, round %u, word %#lx: the %s sees %#lx, not %#lx", me.number, chunk,
			     round, at, who, seen, word(chunk, round, at));
	}
}

/* The GPU copies a chunk. */
static void gpu_copy(const struct bo *from, const struct bo *to)
{
	struct packets p = { .n = 0 };

	for (uint64_t at = 0; at < CHUNK; at += PACKET)
		sdma_copy(&p, from->va + at, to->va + at, PACKET);
	sdma_fence(&p, me.fence.va, ++me.fences);
	submit(&me.q, &p);
	await32(bo32(&me.fence, 0), me.fences, "the fence of a copy");
}

/* Memory that others had is clear. */
static void need_chunk(unsigned int i)
{
	struct bo *bo = &me.chunks[i];

	need_bo(&me.gpu, bo, FLAGS_VRAM, CHUNK);
	for (uint64_t at = 0; at < WORDS; at++)
		CHECK_EQ(bo64(bo, 0)[at], 0);
	memset((void *)me.copy.va, 0x5a, CHUNK);
	gpu_copy(bo, &me.copy);
	for (uint64_t at = 0; at < WORDS; at++)
		CHECK_EQ(bo64(&me.copy, 0)[at], 0);
	me.rounds[i] = 0;
	fill(bo, i, 0);
}

/* What a chunk holds is what was put there last, and then something new, by the GPU or by the CPU. */
static void turn(unsigned int i, bool by_gpu)
{
	struct bo *bo = &me.chunks[i];

	memset((void *)me.copy.va, 0x5a, CHUNK);
	gpu_copy(bo, &me.copy);
	compare(&me.copy, i, me.rounds[i], "GPU");
	compare(bo, i, me.rounds[i], "CPU");
	me.rounds[i]++;
	if (by_gpu) {
		fill(&me.source, i, me.rounds[i]);
		gpu_copy(&me.source, bo);
	} else {
		fill(bo, i, me.rounds[i]);
	}
}

static void meet(void)
{
	int result = pthread_barrier_wait(&shared->all);

	CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* A queue, and memory to work on `bytes` of VRAM. */
static void begin(uint64_t bytes)
{
	await_queue(&me.gpu, &me.q, SDMA);
	need_bo(&me.gpu, &me.source, FLAGS_GTT, CHUNK);
	need_bo(&me.gpu, &me.copy, FLAGS_GTT, CHUNK);
	need_bo(&me.gpu, &me.fence, FLAGS_GTT, PAGE);
	me.count = bytes / CHUNK;
	me.chunks = calloc(me.count, sizeof(*me.chunks));
	me.rounds = calloc(me.count, sizeof(*me.rounds));
	CHECK(me.count > 1 && me.chunks && me.rounds);
}

static void child(void)
{
	need_vm(&me.gpu, 0);
	begin(share);
	meet();
	for (unsigned int i = 0; i < me.count; i++) {
		need_chunk(i);
		__atomic_add_fetch(&shared->bytes, CHUNK, __ATOMIC_RELAXED);
	}
	meet();
	for (unsigned int round = 0; round < ROUNDS; round++) {
		/* A new one wants room, so that somebody else is evicted while all are at work. */
		unsigned int victim = (me.number + round) % me.count;

		for (unsigned int i = 0; i < me.count; i++)
			turn(i, (i + round) % 2);
		drop_bo(&me.gpu, &me.chunks[victim]);
		need_chunk(victim);
	}
	for (unsigned int i = 0; i < me.count; i++)
		turn(i, true);
	/* What is evicted at the end goes, too. */
	meet();
	if (me.number % 2)
		_exit(0);
	for (unsigned int i = 0; i < me.count; i++)
		drop_bo(&me.gpu, &me.chunks[i]);
	drop_queue(&me.gpu, &me.q);
	_exit(0);
}

static void run_all(void)
{
	pid_t pids[PROCESSES];
	int failed = 0;

	for (unsigned int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i] == 0) {
			me.number = i;
			child();
		}
	}
	for (unsigned int left = PROCESSES; left; left--) {
		int status;
		pid_t pid = wait(&status);

		CHECK(pid > 0);
		for (unsigned int i = 0; i < PROCESSES; i++)
			if (pids[i] == pid)
				pids[i] = 0;
		if (status == 0 || failed)
			continue;
		failed = status;
		/* The others wait for it. */
		for (unsigned int i = 0; i < PROCESSES; i++)
			if (pids[i])
				kill(pids[i], SIGKILL);
	}
	CHECK_EQ(failed, 0);
}

CASE_LIMIT(processes_that_do_not_fit_together, "eight processes use three times the VRAM, and each byte is right", 240)
{
	pthread_barrierattr_t attr;
	uint64_t vram;
	struct gpu gpu;

	need_vm(&gpu, 0);
	vram = available_settled(&gpu);
	share = vram * TIMES / PROCESSES / CHUNK * CHUNK + CHUNK;
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	CHECK_EQ(pthread_barrierattr_init(&attr), 0);
	CHECK_EQ(pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
	CHECK_EQ(pthread_barrier_init(&shared->all, &attr, PROCESSES), 0);
	run_all();
	/* Otherwise nobody had to be evicted. */
	CHECK_OP(shared->bytes, >=, TIMES * vram);
	await_available(&gpu, vram);
}

CASE(one_process_gets_what_there_is, "one process alone gets no more VRAM than there is")
{
	struct gpu gpu;
	uint64_t vram, had = 0;
	struct bo bo;
	int err;

	need_vm(&gpu, 0);
	vram = available_settled(&gpu);
	while ((err = bo_alloc(&gpu, &bo, FLAGS_VRAM, CHUNK)) == 0) {
		had += CHUNK;
		CHECK_OP(had, <=, vram);
	}
	CHECK_EQ(err, ENOMEM);
	CHECK_OP(had + CHUNK, >, vram - (2ul << 20));
}

/* Has `bytes` of VRAM until `end` is closed; says so to `ready`. Belongs to `group`, if there is one. */
static void hold(const struct group *group, uint64_t bytes, int ready, int end)
{
	struct gpu gpu;
	struct bo bo;
	char byte;

	if (group)
		group_join(group);
	need_vm(&gpu, 0);
	for (uint64_t left = bytes; left >= CHUNK; left -= CHUNK)
		CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_VRAM, CHUNK));
	CHECK_EQ(write(ready, "", 1), 1);
	CHECK_EQ(read(end, &byte, 1), 0);
	_exit(0);
}

CASE_LIMIT(many_of_its_own, "a process with thousands of older buffers gets the room of others", 120)
{
	int ready[2], end[2], err;
	uint64_t half, had = 0;
	struct gpu gpu;
	struct bo bo;
	char byte;
	pid_t pid;

	need_vm(&gpu, 0);
	/* What is reported as available counts each buffer in units of 2 MiB. */
	half = (available_settled(&gpu) - SMALL * PAGE) / 2;
	for (unsigned int i = 0; i < SMALL; i++)
		CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_VRAM, PAGE));
	CHECK_EQ(pipe(ready), 0);
	CHECK_EQ(pipe(end), 0);
	pid = fork();
	CHECK_OP(pid, >=, 0);
	if (pid == 0) {
		close(end[1]);
		hold(NULL, half, ready[1], end[0]);
	}
	close(ready[1]);
	close(end[0]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	while ((err = bo_alloc(&gpu, &bo, FLAGS_VRAM, CHUNK)) == 0)
		had += CHUNK;
	CHECK_EQ(err, ENOMEM);
	CHECK_OP(had, >, half + 2 * CHUNK);
	close(end[1]);
	CHECK_EQ(waitpid(pid, &err, 0), pid);
	CHECK_EQ(err, 0);
}

/* Takes as much VRAM as it gets, as a member of a group of its own; says how much, and waits. */
static void take_others(const struct group *group, int ready, int end)
{
	uint64_t had = 0;
	struct gpu gpu;
	struct bo bo;
	char byte;
	int err;

	group_join(group);
	need_vm(&gpu, 0);
	while ((err = bo_alloc(&gpu, &bo, FLAGS_VRAM, CHUNK)) == 0)
		had += CHUNK;
	CHECK_EQ(err, ENOMEM);
	CHECK_EQ(write(ready, &had, sizeof(had)), (ssize_t)sizeof(had));
	CHECK_EQ(read(end, &byte, 1), 0);
	_exit(0);
}

/*
 * One process has half of the VRAM, another one takes what it gets, each in a group of its own. The first one's group may
 * have `limit` bytes more than it has then, if that is not 0. Returns what was evicted.
 */
static uint64_t evict_group(struct gpu *gpu, struct group *owner, struct group *taker, uint64_t limit)
{
	int ready[2], end[2], status;
	uint64_t rest, had, before, half;
	pid_t pids[2];
	char byte;

	half = available_settled(gpu) / 2;
	need_group(owner);
	need_group(taker);
	CHECK_EQ(pipe(ready), 0);
	CHECK_EQ(pipe(end), 0);
	pids[0] = fork();
	CHECK_OP(pids[0], >=, 0);
	if (pids[0] == 0) {
		close(end[1]);
		hold(owner, half, ready[1], end[0]);
	}
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	rest = available(gpu);
	before = group_charge(owner);
	group_set(owner, "memory.max", (limit ? before + limit : 1ul << 40) & ~(PAGE - 1));
	pids[1] = fork();
	CHECK_OP(pids[1], >=, 0);
	if (pids[1] == 0) {
		close(end[1]);
		take_others(taker, ready[1], end[0]);
	}
	close(ready[1]);
	close(end[0]);
	CHECK_EQ(read(ready[0], &had, sizeof(had)), (ssize_t)sizeof(had));
	tap_note("%llu MiB evicted, %lld MiB charged to their owner, %llu MiB to who took the room",
		 (unsigned long long)(had - rest) >> 20, (long long)(group_charge(owner) - before) >> 20,
		 (unsigned long long)group_charge(taker) >> 20);
	CHECK_OP(had, >, rest);
	/* Pages of whole chunks; not one of them is the other group's. */
	CHECK_OP(group_charge(owner) + CHUNK, >, before + had - rest);
	CHECK_OP(group_charge(taker), <, CHUNK);
	CHECK_EQ(group_number(owner, "memory.events", "oom_kill"), 0);
	close(end[1]);
	for (unsigned int i = 0; i < 2; i++) {
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK_EQ(status, 0);
	}
	drop_group(owner);
	drop_group(taker);
	return had - rest;
}

CASE_LIMIT(owner_pays, "evicted memory is charged to its owner's control group, and stays in VRAM at the limit of that", 120)
{
	struct group owner, taker;
	uint64_t all, some;
	struct gpu gpu;

	need_vm(&gpu, 0);
	all = evict_group(&gpu, &owner, &taker, 0);
	some = evict_group(&gpu, &owner, &taker, all / 2);
	CHECK_OP(some, <=, all / 2 + CHUNK);
}

/* Takes as much VRAM as it gets, and ends. */
static void take_all(void *unused)
{
	uint64_t vram, had = 0;
	struct gpu gpu;
	struct bo bo;
	int err;

	need_vm(&gpu, 0);
	vram = available(&gpu);
	while ((err = bo_alloc(&gpu, &bo, FLAGS_VRAM, CHUNK)) == 0)
		had += CHUNK;
	CHECK_EQ(err, ENOMEM);
	/* Others had to make room. */
	CHECK_OP(had, >, vram + CHUNK);
}

/* Reads that the queues of this process were stopped for others, and that they run again. */
static void check_evicted(int fd, uint64_t *last)
{
	char wanted[32];
	uint64_t ns;

	snprintf(wanted, sizeof(wanted), "%x %d", me.gpu.id, KFD_QUEUE_EVICTION_TRIGGER_TTM);
	smi_check_text(smi_timed(smi_next_line(fd), KFD_SMI_EVENT_QUEUE_EVICTION, &ns), wanted);
	CHECK_OP(ns, >=, *last);
	*last = ns;
	snprintf(wanted, sizeof(wanted), "%x 0", me.gpu.id);
	smi_check_text(smi_timed(smi_next_line(fd), KFD_SMI_EVENT_QUEUE_RESTORE, &ns), wanted);
	CHECK_OP(ns, >=, *last);
	*last = ns;
}

CASE_LIMIT(reported, "SMI_EVENTS says that queues stop for the reason TTM when memory moves, and run again", 120)
{
	const uint64_t events = KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_QUEUE_EVICTION) |
				KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_QUEUE_RESTORE);
	uint64_t last;
	int fd;

	need_vm(&me.gpu, 0);
	begin(available_settled(&me.gpu) / 2);
	for (unsigned int i = 0; i < me.count; i++)
		need_chunk(i);
	fd = need_smi(&me.gpu, events);
	smi_check_empty(fd);
	last = boot_ns();
	CHECK_EQ(in_child(take_all, NULL), 0);
	check_evicted(fd, &last);
	for (unsigned int i = 0; i < me.count; i++)
		turn(i, true);
	/* Each buffer that moved later did so with the queues off, too, and so it did when it came back. */
	while (smi_is_readable(fd))
		check_evicted(fd, &last);
	CHECK_OP(boot_ns(), >=, last);
}

int main(int argc, char **argv)
{
	return tap_main(argc, argv);
}
