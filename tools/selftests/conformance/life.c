// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * How processes end, whatever they are doing: killed in the middle of calls, by executing another program,
 * with every thread asleep. Others work on, and everything comes back. And what happens when there are more
 * processes than a GPU has doorbells for.
 */
#include "survivor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
#define AQL KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
#define SDMA KFD_IOC_QUEUE_TYPE_SDMA
#define MIB (1ul << 20)

static void create_and_destroy(int fd)
{
	static const uint32_t types[] = { COMPUTE, AQL, SDMA };
	struct gpu gpu;
	struct queue q[3];

	need_vm(&gpu, 0);
	for (int i = 0; i < 3; i++)
		queue_prepare(&gpu, &q[i], types[i], 0x1000);
	for (unsigned int n = 0;; n++) {
		for (int i = 0; i < 3; i++)
			CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_CREATE_QUEUE, &q[i].args));
		for (int i = 0; i < 3; i++)
			CHECK_OK(queue_destroy(&gpu, q[i].args.queue_id));
		if (n == 0)
			say_ready(fd);
	}
}

CASE_LIMIT(killed_creating, "kill -9 in the middle of creating and destroying queues of each type", 120)
{
	killed_beside_survivor(create_and_destroy, 12, 700);
}

static void update_always(int fd)
{
	struct gpu gpu;
	struct queue q;
	struct bo bo;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	stand_still(&q, bo.va, bo32(&bo, 0));
	for (unsigned int n = 0;; n++) {
		CHECK_OK(queue_update(&gpu, &q, n % 2 ? 100 : 0, n % 16));
		if (n == 2)
			say_ready(fd);
	}
}

CASE_LIMIT(killed_updating, "kill -9 in the middle of stopping and starting a queue that waits in a packet", 120)
{
	killed_beside_survivor(update_always, 8, 700);
}

static void map_always(int fd)
{
	struct gpu gpu;
	struct bo bo[3];

	need_vm(&gpu, 0);
	for (unsigned int n = 0;; n++) {
		need_bo(&gpu, &bo[0], FLAGS_VRAM, 4 * MIB);
		need_bo(&gpu, &bo[1], FLAGS_GTT, MIB);
		need_bo(&gpu, &bo[2], FLAGS_USERPTR, MIB);
		for (int i = 0; i < 3; i++)
			drop_bo(&gpu, &bo[i]);
		if (n == 0)
			say_ready(fd);
	}
}

CASE_LIMIT(killed_mapping, "kill -9 in the middle of allocating and mapping memory of each kind", 120)
{
	killed_beside_survivor(map_always, 8, 900);
}

struct sleeper {
	const struct gpu *gpu;
	uint32_t event;
};

static void *sleep_for_ever(void *context)
{
	struct sleeper *s = context;
	struct waited w;

	for (;;)
		event_wait(s->gpu, &s->event, 1, true, 0xffffffff, &w);
	return NULL;
}

static void everything_at_once(int fd)
{
	struct sleeper s[4];
	struct event ev;
	struct gpu gpu;
	struct queue q, spare;
	struct bo bo;
	pthread_t t;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	stand_still(&q, bo.va, bo32(&bo, 0));
	for (int i = 0; i < 4; i++) {
		need_event(&gpu, true, &ev);
		s[i] = (struct sleeper){ &gpu, ev.id };
		CHECK_EQ(pthread_create(&t, NULL, sleep_for_ever, &s[i]), 0);
	}
	queue_prepare(&gpu, &spare, COMPUTE, 0x1000);
	for (unsigned int n = 0;; n++) {
		CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_CREATE_QUEUE, &spare.args));
		CHECK_OK(queue_destroy(&gpu, spare.args.queue_id));
		if (n == 0)
			say_ready(fd);
	}
}

CASE_LIMIT(killed_threads, "kill -9 with threads in WAIT_EVENTS, a queue that waits in a packet, and calls under way", 120)
{
	killed_beside_survivor(everything_at_once, 6, 1100);
}

static void exec_with_queue(int fd)
{
	struct gpu gpu;
	struct queue q;
	struct bo bo;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &bo, FLAGS_VRAM, 8 * MIB);
	stand_still(&q, bo.va, bo32(&bo, 0));
	/* The new program says that it is there, and sleeps. */
	dup2(fd, STDOUT_FILENO);
	execl("/bin/sh", "sh", "-c", "echo; exec sleep 1000", (char *)NULL);
	_exit(1);
}

CASE_LIMIT(exec_busy, "exec with a queue that waits in a packet: queue and memory are gone when the new program runs", 60)
{
	struct survivor s;
	pid_t pid;

	survivor_begin(&s);
	pid = start_child(exec_with_queue);
	/* While the new program is still there. */
	survivor_end(&s);
	kill_child(pid);
}

/* What the program is run with after exec: descriptor, GPU, and who keeps the old address space. */
static const char after_exec[] = "--after-exec";

static void check_foreign(const struct gpu *gpu)
{
	struct kfd_ioctl_get_version_args version = { 0, 0 };
	struct kfd_ioctl_alloc_memory_of_gpu_args memory = {
		.size = PAGE,
		.gpu_id = gpu->id,
		.flags = FLAGS_USERPTR,
	};
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	memory.va_addr = memory.mmap_offset = (uintptr_t)at;
	CHECK_ERR(kfd_call(gpu->fd, AMDKFD_IOC_GET_VERSION, &version), EBADF);
	CHECK_ERR(kfd_call(gpu->fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &memory), EBADF);
	CHECK(mmap(NULL, DOORBELL_SLICE, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd,
		   (off_t)(3ull << 62 | (uint64_t)gpu->id << 46)) == MAP_FAILED);
	CHECK_ERR(errno, EBADF);
	munmap(at, PAGE);
}

static int go_on_after_exec(char **argv)
{
	struct gpu gpu = { .fd = atoi(argv[2]), .id = strtoul(argv[3], NULL, 10) }, own;
	pid_t keeper = atoi(argv[4]);
	int status;

	check_foreign(&gpu);
	need_vm(&own, 0);
	check_foreign(&gpu);
	CHECK_EQ(kill(keeper, SIGKILL), 0);
	CHECK_EQ(waitpid(keeper, &status, 0), keeper);
	CHECK(WIFSIGNALED(status));
	/* The old address space is gone. */
	check_foreign(&gpu);
	return 0;
}

int main(int argc, char **argv)
{
	return argc == 5 && !strcmp(argv[1], after_exec) ? go_on_after_exec(argv) : tap_main(argc, argv);
}

static int keep_memory(void *unused)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
	return 0;
}

CASE(exec_kept, "exec while a CLONE_VM child keeps the old address space: an inherited descriptor is EBADF, a new one works")
{
	static char stack[16384] __attribute__((aligned(16)));
	char fd[16], id[16], keeper[16];
	struct gpu gpu;
	struct queue q;
	pid_t pid;

	if (!is_rkfd())
		SKIP("other drivers know the thread group, not what it executes");
	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	CHECK_EQ(fcntl(gpu.fd, F_SETFD, 0), 0);
	pid = clone(keep_memory, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	CHECK_OP(pid, >, 0);
	snprintf(fd, sizeof(fd), "%d", gpu.fd);
	snprintf(id, sizeof(id), "%u", gpu.id);
	snprintf(keeper, sizeof(keeper), "%d", pid);
	execl("/proc/self/exe", "life", after_exec, fd, id, keeper, (char *)NULL);
	FAIL("exec: %s", strerror(errno));
}

static void exits_with_everything(void *unused)
{
	struct gpu gpu;
	struct queue q[3];
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_VRAM, 8 * MIB);
	for (int i = 0; i < 3; i++) {
		need_queue(&gpu, &q[i], COMPUTE);
		stand_still(&q[i], bo.va, bo32(&bo, 0));
	}
}

CASE(exit_busy, "exit with three queues that wait in a packet")
{
	struct survivor s;

	survivor_begin(&s);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(in_child(exits_with_everything, NULL), 0);
		survivor_works(&s);
	}
	survivor_end(&s);
}

static void forked_child(void *context)
{
	struct queue *q = context;
	struct kfd_ioctl_get_version_args version = { 0, 0 };
	struct gpu gpu;
	struct queue own;

	/* A process of its own: no queue, and the first id is free. */
	need_vm(&gpu, 0);
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_GET_VERSION, &version));
	CHECK_ERR(queue_destroy(&gpu, q->args.queue_id), EINVAL);
	CHECK_ERR(queue_update(&gpu, q, 100, 7), EFAULT);
	need_queue(&gpu, &own, COMPUTE);
	CHECK_EQ(own.args.queue_id, 0);
	CHECK_OK(queue_destroy(&gpu, 0));
}

CASE(fork_no_queues, "a forked child has none of its parent's queues, and ids of its own")
{
	struct survivor s;

	survivor_begin(&s);
	CHECK_EQ(s.q.args.queue_id, 0);
	CHECK_EQ(in_child(forked_child, &s.q), 0);
	survivor_end(&s);
}

/* What the driver says when other processes have all doorbells. */
static int no_doorbells(void)
{
	return is_rkfd() ? EUSERS : ENOMEM;
}

/* Takes the doorbells, tells how that went, and keeps them until `hold` ends. */
static void take_doorbells(int tell, int hold)
{
	struct kfd_ioctl_create_queue_args again;
	struct bo doorbells;
	struct gpu gpu;
	struct queue q;
	int32_t err = 0;
	void *slice;
	char byte;

	need_vm(&gpu, 0);
	slice = mmap(NULL, DOORBELL_SLICE, PROT_READ | PROT_WRITE, MAP_SHARED, gpu.fd,
		     (off_t)(3ull << 62 | (uint64_t)gpu.id << 46));
	if (slice == MAP_FAILED) {
		err = errno;
		queue_prepare(&gpu, &q, COMPUTE, 0x1000);
		again = q.args;
		CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_CREATE_QUEUE, &again), err);
		CHECK_ERR(bo_alloc(&gpu, &doorbells, FLAGS_DOORBELL, DOORBELL_SLICE), err);
	}
	if (write(tell, &err, sizeof(err)) != sizeof(err))
		_exit(1);
	if (read(hold, &byte, 1) < 0)
		_exit(1);
	_exit(0);
}

static pid_t another(int *hold, int32_t *err)
{
	int tell[2];
	pid_t pid;

	CHECK_EQ(pipe(tell), 0);
	pid = fork();
	CHECK_OP(pid, >=, 0);
	if (pid == 0) {
		close(tell[0]);
		close(hold[1]);
		take_doorbells(tell[1], hold[0]);
	}
	close(tell[1]);
	if (read(tell[0], err, sizeof(*err)) != sizeof(*err))
		child_gave_up(pid);
	close(tell[0]);
	return pid;
}

CASE_LIMIT(doorbells_exhausted, "more processes than doorbell slices: an errno of its own for mmap, queue and buffer; one that ends makes room", 240)
{
	static pid_t pids[1024];
	unsigned int n = 0;
	int hold[2], status;
	int32_t err = 0;

	CHECK_EQ(pipe(hold), 0);
	while (n < 1000 && !err)
		pids[n++] = another(hold, &err);
	if (!err)
		SKIP("the GPU has doorbells for 1000 processes");
	CHECK_EQ(err, no_doorbells());
	CHECK_OP(n, >, 100);
	CHECK_EQ(kill(pids[3], SIGKILL), 0);
	CHECK_EQ(waitpid(pids[3], &status, 0), pids[3]);
	pids[3] = another(hold, &err);
	CHECK_EQ(err, 0);
	close(hold[1]);
	for (unsigned int i = 0; i < n; i++) {
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK_EQ(status, 0);
	}
}
