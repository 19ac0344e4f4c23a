// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Several processes, and several GPUs: isolation, sudden death, fork.
 */
#include "survivor.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE

/* An address that both processes use for memory of their own. */
#define COMMON_VA 0x600000000000ull

struct private {
	struct gpu gpu;
	struct queue q;
	struct bo bo;
	volatile uint32_t *cpu;
};

/* GPU memory at the common address, in this process alone. */
static void settle(struct private *me, int index)
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = { .va_addr = COMMON_VA, .size = PAGE, .flags = FLAGS_GTT };

	need_vm(&me->gpu, index);
	args.gpu_id = me->gpu.id;
	CHECK_OK(kfd_call(me->gpu.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args));
	me->bo = (struct bo){ .handle = args.handle };
	CHECK_OK(bo_map(&me->gpu, &me->bo));
	me->cpu = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, me->gpu.drm, args.mmap_offset);
	CHECK(me->cpu != MAP_FAILED);
	await_queue(&me->gpu, &me->q, COMPUTE);
}

static void await_peer(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		FAIL("the other process ended early");
}

CASE(same_address, "two processes use one GPU address for memory of their own, at the same time")
{
	struct private me;
	struct packets p = { .n = 0 };
	int to_child[2], to_parent[2], status;
	pid_t pid;

	CHECK_EQ(pipe(to_child), 0);
	CHECK_EQ(pipe(to_parent), 0);
	pid = fork();
	settle(&me, 0);
	if (pid == 0) {
		close(to_child[1]);
		say_ready(to_parent[1]);
		await_peer(to_child[0]);
		for (uint32_t i = 1; i <= 50; i++) {
			p.n = 0;
			pm4_write(&p, COMMON_VA, 0xc0000000 | i);
			submit(&me.q, &p);
			await32(me.cpu, 0xc0000000 | i, "the child's write");
		}
		CHECK_EQ(me.cpu[1], 0);
		_exit(0);
	}
	close(to_parent[1]);
	await_peer(to_parent[0]);
	say_ready(to_child[1]);
	for (uint32_t i = 1; i <= 50; i++) {
		p.n = 0;
		pm4_write(&p, COMMON_VA, 0xa0000000 | i);
		submit(&me.q, &p);
		await32(me.cpu, 0xa0000000 | i, "the parent's write");
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	CHECK_EQ(me.cpu[0], 0xa0000000 | 50);
}

static void child_writes_parents_address(void *address)
{
	struct kfd_event_data data = { 0 };
	struct packets p = { .n = 0 };
	struct event memory;
	struct waited w;
	struct queue q;
	struct gpu gpu;
	int err;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &memory));
	pm4_write(&p, *(uint64_t *)address, 0xbad);
	submit(&q, &p);
	data.event_id = memory.id;
	do {
		err = event_wait_data(&gpu, &data, 1, true, tap_ms(30000), &w);
	} while (err == EINTR);
	CHECK_OK(err);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data.memory_exception_data.va, *(uint64_t *)address & ~(PAGE - 1));
}

CASE(no_reach, "a process's packet does not reach another's memory; it faults, and the other works on")
{
	struct packets p = { .n = 0 };
	struct gpu gpu;
	struct queue q;
	struct bo bo;
	uint64_t address;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	*bo32(&bo, 16) = 0x5afe;
	address = bo.va + 16;
	CHECK_EQ(in_child(child_writes_parents_address, &address), 0);
	CHECK_EQ(*bo32(&bo, 16), 0x5afe);
	pm4_write(&p, bo.va, 1);
	submit(&q, &p);
	await32(bo32(&bo, 0), 1, "this process's own work");
}

/* Children that die in the middle of something. */

static void die_idle(int ready)
{
	struct private me;

	settle(&me, 0);
	say_ready(ready);
	for (;;)
		pause();
}

static void die_waiting(int ready)
{
	struct private me;

	settle(&me, 0);
	stand_still(&me.q, COMMON_VA, me.cpu);
	say_ready(ready);
	for (;;)
		pause();
}

static void die_busy(int ready)
{
	struct packets p = { .n = 0 };
	struct private me;

	settle(&me, 0);
	for (int i = 0; i < 200; i++)
		pm4_write(&p, COMMON_VA, i);
	submit(&me.q, &p);
	say_ready(ready);
	for (;;)
		pause();
}

CASE(killed_idle, "kill -9 of a process with an idle queue; another works on")
{
	killed_beside_survivor(die_idle, 4, 0);
}

CASE(killed_waiting, "kill -9 while a queue waits in WAIT_REG_MEM; another works on")
{
	killed_beside_survivor(die_waiting, 4, 0);
}

CASE(killed_busy, "kill -9 while a queue is busy; another works on")
{
	killed_beside_survivor(die_busy, 4, 0);
}

static void child_works(void *unused)
{
	struct packets p = { .n = 0 };
	struct gpu gpu;
	struct queue q;
	struct bo bo;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	pm4_write(&p, bo.va, 0xc41d);
	submit(&q, &p);
	await32(bo32(&bo, 0), 0xc41d, "the child's work");
}

enum { OPENERS = 8 };

struct opener {
	pthread_barrier_t *start;
	int fd;
};

static void *open_at_once(void *context)
{
	struct opener *o = context;

	pthread_barrier_wait(o->start);
	o->fd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
	return NULL;
}

static void opens_at_once(void *unused)
{
	struct opener o[OPENERS];
	pthread_t threads[OPENERS];
	pthread_barrier_t start;
	struct event events[OPENERS];

	CHECK_EQ(pthread_barrier_init(&start, NULL, OPENERS), 0);
	for (int i = 0; i < OPENERS; i++) {
		o[i].start = &start;
		CHECK_EQ(pthread_create(&threads[i], NULL, open_at_once, &o[i]), 0);
	}
	for (int i = 0; i < OPENERS; i++) {
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
		CHECK_OP(o[i].fd, >=, 0);
	}
	/* Ids are those of one process, and each is known to every other descriptor. */
	for (int i = 0; i < OPENERS; i++) {
		struct gpu gpu = { .fd = o[i].fd };

		CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_HW_EXCEPTION, false, 0, &events[i]));
		for (int j = 0; j < i; j++)
			CHECK_NE(events[i].id, events[j].id);
	}
	for (int i = 0; i < OPENERS; i++) {
		struct gpu gpu = { .fd = o[(i + 1) % OPENERS].fd };

		CHECK_OK(event_destroy(&gpu, events[i].id));
		close(o[i].fd);
		o[i].fd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
	}
}

CASE_LIMIT(opened_at_once, "threads of one process open the device for the first time at once: they share one process", 120)
{
	struct gpu gpu;

	need_gpu(&gpu, 0);
	for (int i = 0; i < 50; i++)
		CHECK_EQ(in_child(opens_at_once, NULL), 0);
}

CASE(fork_leaves_queues, "a child of fork gets none of the queues; it makes its own, and the parent's works on")
{
	struct packets p = { .n = 0 };
	struct gpu gpu;
	struct queue q;
	struct bo bo;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	for (uint32_t i = 1; i <= 3; i++) {
		CHECK_EQ(in_child(child_works, NULL), 0);
		p.n = 0;
		pm4_write(&p, bo.va, i);
		submit(&q, &p);
		await32(bo32(&bo, 0), i, "the parent's work after fork");
	}
	drop_queue(&gpu, &q);
	drop_bo(&gpu, &bo);
}

CASE_LIMIT(sixteen, "16 processes at once, more than there are VMIDs", 180)
{
	enum { CHILDREN = 16 };
	pid_t pids[CHILDREN];

	for (int i = 0; i < CHILDREN; i++) {
		fflush(stdout);
		pids[i] = fork();
		if (pids[i] == 0) {
			struct packets p = { .n = 0 };
			struct private me;

			settle(&me, 0);
			for (uint32_t n = 1; n <= 20; n++) {
				p.n = 0;
				pm4_write(&p, COMMON_VA, i << 16 | n);
				submit(&me.q, &p);
				await32(me.cpu, i << 16 | n, "one process's work");
			}
			_exit(0);
		}
	}
	for (int i = 0; i < CHILDREN; i++) {
		int status;

		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
	}
}

/* Two GPUs */

static void need_both(struct gpu gpu[2], struct bo *shared)
{
	uint32_t ids[2];
	struct kfd_ioctl_map_memory_to_gpu_args map = { .n_devices = 2 };

	need_vm(&gpu[0], 0);
	need_vm_of(&gpu[1], 1, gpu[0].fd);
	CHECK_OK(bo_alloc(&gpu[0], shared, FLAGS_GTT, PAGE));
	ids[0] = gpu[0].id;
	ids[1] = gpu[1].id;
	map.handle = shared->handle;
	map.device_ids_array_ptr = (uintptr_t)ids;
	CHECK_OK(kfd_call(gpu[0].fd, AMDKFD_IOC_MAP_MEMORY_TO_GPU, &map));
	CHECK_EQ(map.n_success, 2);
}

CASE(both_gpus, "one process, a queue on each of two GPUs, one buffer that both write")
{
	struct gpu gpu[2];
	struct queue q[2];
	struct bo shared;

	need_both(gpu, &shared);
	for (int i = 0; i < 2; i++)
		need_queue(&gpu[i], &q[i], COMPUTE);
	CHECK_NE(q[0].args.queue_id, q[1].args.queue_id);
	for (uint32_t round = 1; round <= 10; round++) {
		for (int i = 0; i < 2; i++) {
			struct packets p = { .n = 0 };

			pm4_write(&p, shared.va + 64 * i, round << 8 | i);
			submit(&q[i], &p);
		}
		for (int i = 0; i < 2; i++)
			await32(bo32(&shared, 64 * i), round << 8 | i, "a GPU's write");
	}
	for (int i = 0; i < 2; i++)
		drop_queue(&gpu[i], &q[i]);
}

/* A file that reports when queues leave a GPU because something else needs what they use, and when they are back. */
static int need_evictions(const struct gpu *gpu)
{
	struct kfd_ioctl_smi_events_args args = { .gpuid = gpu->id };
	uint64_t events = KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_QUEUE_EVICTION) |
			  KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_QUEUE_RESTORE);

	CHECK_OK(kfd_call(gpu->fd, AMDKFD_IOC_SMI_EVENTS, &args));
	CHECK_EQ(write(args.anon_fd, &events, sizeof(events)), sizeof(events));
	return args.anon_fd;
}

CASE(other_gpu_goes_on, "memory of the process that changes evicts the queues on the GPU that maps it, not those on another one")
{
	char text[1024] = "", evicted[8], restored[8];
	struct gpu gpu[2];
	struct queue q[2];
	struct bo shared, user;
	struct packets p = { .n = 0 };
	size_t n = 0;
	int fd[2];

	if (!is_rkfd())
		SKIP("amdkfd evicts the queues on all GPUs");
	need_both(gpu, &shared);
	for (int i = 0; i < 2; i++) {
		need_queue(&gpu[i], &q[i], COMPUTE);
		fd[i] = need_evictions(&gpu[i]);
	}
	CHECK_OK(bo_wrap(&gpu[0], &user, FLAGS_USERPTR,
			 mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), PAGE));
	CHECK_OK(bo_map(&gpu[0], &user));
	pm4_write(&p, user.va, 7);
	submit(&q[0], &p);
	await32(bo32(&user, 0), 7, "what the GPU writes into memory of the process");
	CHECK_EQ(madvise((void *)user.va, PAGE, MADV_DONTNEED), 0);
	snprintf(evicted, sizeof(evicted), "%x ", KFD_SMI_EVENT_QUEUE_EVICTION);
	snprintf(restored, sizeof(restored), "\n%x ", KFD_SMI_EVENT_QUEUE_RESTORE);
	/* Off, and on again. */
	while (!strstr(text, restored)) {
		struct pollfd wait = { .fd = fd[0], .events = POLLIN };
		ssize_t more;

		CHECK_EQ(poll(&wait, 1, tap_ms(30000)), 1);
		more = read(fd[0], text + n, sizeof(text) - 1 - n);
		CHECK_OP(more, >, 0);
		n += more;
	}
	CHECK_EQ(strncmp(text, evicted, strlen(evicted)), 0);
	/* The other GPU has reported nothing, and works. */
	{
		struct pollfd nothing = { .fd = fd[1], .events = POLLIN };

		CHECK_EQ(poll(&nothing, 1, 0), 0);
	}
	p.n = 0;
	pm4_write(&p, shared.va, 9);
	submit(&q[1], &p);
	await32(bo32(&shared, 0), 9, "the other GPU's write");
	/* Fresh memory, that the GPU reaches. */
	CHECK_EQ(*bo32(&user, 0), 0);
	p.n = 0;
	pm4_write(&p, user.va + 4, 8);
	submit(&q[0], &p);
	await32(bo32(&user, 4), 8, "what the GPU writes into the new page");
}

CASE(gpus_meet, "queues of two GPUs wait for each other through memory")
{
	struct gpu gpu[2];
	struct queue q[2];
	struct packets p[2] = { { .n = 0 }, { .n = 0 } };
	struct bo shared;

	need_both(gpu, &shared);
	for (uint32_t i = 1; i <= 10; i++) {
		pm4_wait(&p[0], EQUAL, shared.va + 64, i - 1, 0xffffffff);
		pm4_write(&p[0], shared.va, i);
		pm4_wait(&p[1], EQUAL, shared.va, i, 0xffffffff);
		pm4_write(&p[1], shared.va + 64, i);
	}
	for (int i = 1; i >= 0; i--) {
		need_queue(&gpu[i], &q[i], COMPUTE);
		submit(&q[i], &p[i]);
	}
	await32(bo32(&shared, 64), 10, "the tenth meeting");
}

CASE(gpu_of_handle, "a handle of one GPU is unknown to another")
{
	struct gpu first, second;
	struct bo bo, other;

	need_vm(&first, 0);
	need_vm_of(&second, 1, first.fd);
	need_bo(&first, &bo, FLAGS_GTT, PAGE);
	other = bo;
	other.handle = (uint64_t)second.id << 32 | (bo.handle & 0xffffffff);
	CHECK_ERR(bo_free(&second, &other), EINVAL);
	CHECK_ERR(bo_map(&second, &other), ENOMEM);
	drop_bo(&first, &bo);
}

CASE(queue_wrong_gpu, "a queue whose ring is mapped on the other GPU only is EINVAL")
{
	struct gpu first, second;
	struct queue q;

	need_vm(&first, 0);
	need_vm_of(&second, 1, first.fd);
	queue_prepare(&first, &q, COMPUTE, 0x1000);
	q.args.gpu_id = second.id;
	CHECK_ERR(queue_create(&second, &q), EINVAL);
	q.args.gpu_id = first.id;
	CHECK_OK(queue_create(&first, &q));
	drop_queue(&first, &q);
}
