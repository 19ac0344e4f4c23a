// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of the process on the GPU under load: many buffers, queues, threads and processes change it at the same time.
 */
#include "userptr.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* More than the kernel's checker of DMA mappings takes for one place, unless it is told that all are coherent. */
#define OTHERS 12

CASE(many_buffers, "13 buffers of the same memory: through each the GPU reads and writes it")
{
	struct bo first, others[OTHERS];

	begin(2 * PAGE);
	first = f.user;
	for (unsigned int i = 0; i < OTHERS; i++) {
		uint64_t va = need_address(2 * PAGE, PAGE);

		CHECK_OK(wrap_at(&f, &others[i], va, (void *)first.va, 2 * PAGE));
		CHECK_OK(bo_map(&f.gpu, &others[i]));
	}
	for (unsigned int i = 0; i < OTHERS; i++) {
		uint64_t at = i % 2 ? PAGE : 0x80;

		*bo32(&first, at) = 0x1000 + i;
		f.user.va = others[i].va;
		CHECK_EQ(gpu_reads(&f, at), 0x1000 + i);
		gpu_writes(&f, at, 0x2000 + i);
		CHECK_EQ(*bo32(&first, at), 0x2000 + i);
	}
	/* All of them follow a change. */
	CHECK_EQ(madvise((void *)first.va, first.size, MADV_DONTNEED), 0);
	for (unsigned int i = 0; i < OTHERS; i++) {
		f.user.va = others[i].va;
		*bo32(&first, 0) = 0x3000 + i;
		CHECK_EQ(gpu_reads(&f, 0), 0x3000 + i);
	}
	f.user = first;
	for (unsigned int i = 0; i < OTHERS; i++) {
		CHECK_OK(bo_unmap(&f.gpu, &others[i]));
		CHECK_OK(bo_free(&f.gpu, &others[i]));
	}
	check_shared(&f, 0x40, 0x55);
}

CASE(ring, "the memory of the ring changes: packets written afterwards run")
{
	begin(PAGE);
	for (uint32_t i = 1; i <= 20; i++) {
		pm4_write(&f.p, f.out.va + 8, i);
		run(&f);
		CHECK_EQ(*bo32(&f.out, 8), i);
		await_drained(&f.q);
		CHECK_EQ(madvise((void *)f.q.ring.va, f.q.ring.size, MADV_DONTNEED), 0);
	}
}

CASE(queue_meanwhile, "queues made and destroyed while memory changes")
{
	struct queue more;

	begin(2 * PAGE);
	for (uint32_t i = 1; i <= 10; i++) {
		CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
		need_queue(&f.gpu, &more, COMPUTE);
		pm4_write(&f.p, f.user.va + 4, i);
		submit(&more, &f.p);
		f.p.n = 0;
		await32(bo32(&f.user, 4), i, "the new queue's packet");
		CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
		drop_queue(&f.gpu, &more);
		check_shared(&f, 0, i);
	}
}

struct churn {
	volatile bool stop;
	char *at;
	uint64_t size;
};

static void *churn(void *context)
{
	struct churn *c = context;

	while (!c->stop) {
		if (madvise(c->at, c->size, MADV_DONTNEED))
			return (void *)1;
		*(volatile char *)c->at = 1;
	}
	return NULL;
}

CASE_LIMIT(thread, "another thread changes memory all the time: queues go on, and other memory is right", 120)
{
	struct churn c = { .size = 8 * PAGE };
	struct bo churned;
	pthread_t thread;
	void *failed;

	begin(4 * PAGE);
	c.at = memory(c.size, PROT_READ | PROT_WRITE);
	CHECK_OK(bo_wrap(&f.gpu, &churned, FLAGS_USERPTR, c.at, c.size));
	CHECK_OK(bo_map(&f.gpu, &churned));
	CHECK_EQ(pthread_create(&thread, NULL, churn, &c), 0);
	for (uint32_t i = 1; i <= 20; i++) {
		check_shared(&f, 4 * i, i);
		usleep(1000);
	}
	c.stop = true;
	CHECK_EQ(pthread_join(thread, &failed), 0);
	CHECK(!failed);
	CHECK_OK(bo_unmap(&f.gpu, &churned));
	CHECK_OK(bo_free(&f.gpu, &churned));
	check_shared(&f, 0, 0x99);
}

static void *drop_always(void *context)
{
	struct churn *c = context;

	while (!c->stop)
		if (madvise(c->at, c->size, MADV_DONTNEED))
			return (void *)1;
	return NULL;
}

CASE_LIMIT(alloc_changing, "ALLOC of memory that another thread changes all the time works, or is EAGAIN: never EBUSY", 120)
{
	struct churn c = { .size = 16 * MIB };
	pthread_t thread;
	void *failed;

	begin(PAGE);
	c.at = memory(c.size, PROT_READ | PROT_WRITE);
	CHECK_EQ(pthread_create(&thread, NULL, drop_always, &c), 0);
	for (int i = 0; i < 3; i++) {
		struct bo changing;
		int err = bo_wrap(&f.gpu, &changing, FLAGS_USERPTR, c.at, c.size);

		if (err)
			CHECK_ERR(err, EAGAIN);
		else
			CHECK_OK(bo_free(&f.gpu, &changing));
	}
	c.stop = true;
	CHECK_EQ(pthread_join(thread, &failed), 0);
	CHECK(!failed);
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR, c.at, c.size));
	CHECK_OK(bo_map(&f.gpu, &f.user));
	check_shared(&f, 0x40, 0x11);
}

static void rounds(struct fixture *x, uint32_t n)
{
	for (uint32_t i = 1; i <= n; i++) {
		check_shared(x, 4 * (i % 1000), i * 3);
		if (madvise((void *)x->user.va, x->user.size, MADV_DONTNEED))
			FAIL("madvise: %s", strerror(errno));
		CHECK_EQ(gpu_reads(x, 4 * (i % 1000)), 0);
	}
}

CASE_LIMIT(processes, "8 processes change their memory at the same time", 240)
{
	pid_t pids[8];
	int status;

	for (unsigned int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			begin(4 * PAGE);
			rounds(&f, 8);
			_exit(0);
		}
	}
	for (unsigned int i = 0; i < 8; i++) {
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK_EQ(status, 0);
	}
}

CASE_LIMIT(killed, "processes killed while their memory changes: others work on", 240)
{
	begin(4 * PAGE);
	for (unsigned int i = 0; i < 8; i++) {
		int pipefd[2], status;
		char byte;
		pid_t pid;

		CHECK_EQ(pipe(pipefd), 0);
		pid = fork();
		if (pid == 0) {
			struct fixture *own = calloc(1, sizeof(*own));

			begin_in(own, 4 * PAGE);
			rounds(own, 1);
			if (write(pipefd[1], "x", 1) != 1)
				_exit(1);
			rounds(own, 1000000);
			_exit(0);
		}
		close(pipefd[1]);
		if (read(pipefd[0], &byte, 1) != 1)
			child_gave_up(pid);
		close(pipefd[0]);
		usleep(500 * i);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status));
		CHECK_EQ(WTERMSIG(status), SIGKILL);
		check_shared(&f, 0, i);
	}
}
