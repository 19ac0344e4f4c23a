// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The limits that the driver's parameters set: exactly as many as they say, the next one is ENOSPC, and what is given
 * back makes room. The environment tells what they are: LIMIT_QUEUES and LIMIT_PROCESSES of a GPU, LIMIT_OWN of one
 * process; each process limit is below that of the GPU, and two processes together are above it.
 */
#include "kfd.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE

static unsigned int limit(const char *name)
{
	const char *text = getenv(name);

	if (!text)
		SKIP("%s does not say the limit", name);
	return (unsigned int)atoi(text);
}

struct process {
	struct gpu gpu;
	struct queue q;
	uint32_t ids[64];
	unsigned int n;
};

static void begin(struct process *me)
{
	need_vm(&me->gpu, 0);
	queue_prepare(&me->gpu, &me->q, COMPUTE, 0x1000);
	me->n = 0;
}

/* A further queue over the same buffers. */
static int create(struct process *me)
{
	struct kfd_ioctl_create_queue_args args = me->q.args;
	int err = kfd_call(me->gpu.fd, AMDKFD_IOC_CREATE_QUEUE, &args);

	if (!err)
		me->ids[me->n++] = args.queue_id;
	return err;
}

static void need_queues(struct process *me, unsigned int n)
{
	while (me->n < n)
		CHECK_OK(create(me));
}

/* A child that has `n` queues, until it is killed. */
static pid_t hold(unsigned int n)
{
	int ready[2];
	char byte;
	pid_t pid;

	CHECK(!pipe(ready));
	pid = fork();
	CHECK_NE(pid, -1);
	if (pid == 0) {
		struct process me;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		begin(&me);
		need_queues(&me, n);
		CHECK_EQ(write(ready[1], "x", 1), 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		child_gave_up(pid);
	close(ready[0]);
	return pid;
}

static void let_go(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status));
}

/* What an ended process had is given back by a worker. */
static void await_room(struct process *me)
{
	uint64_t end = now_ms() + tap_ms(30000);
	int err;

	while ((err = create(me)) == ENOSPC && now_ms() < end)
		usleep(10000);
	CHECK_OK(err);
}

CASE(own, "a process gets as many queues as one may have; one that is destroyed makes room")
{
	unsigned int own = limit("LIMIT_OWN");
	struct process me;

	begin(&me);
	need_queues(&me, own);
	CHECK_ERR(create(&me), ENOSPC);
	CHECK_OK(queue_destroy(&me.gpu, me.ids[0]));
	CHECK_OK(create(&me));
	CHECK_EQ(me.ids[own], me.ids[0]);
	CHECK_ERR(create(&me), ENOSPC);
}

CASE(stopped, "a queue that is stopped counts like one that runs")
{
	unsigned int own = limit("LIMIT_OWN");
	struct process me;

	begin(&me);
	me.q.args.queue_percentage = 0;
	need_queues(&me, own);
	CHECK_ERR(create(&me), ENOSPC);
}

CASE(all, "processes together get as many queues as the GPU has; one that ends makes room")
{
	unsigned int own = limit("LIMIT_OWN"), queues = limit("LIMIT_QUEUES");
	struct process me;
	pid_t other;

	CHECK_OP(own, <, queues);
	CHECK_OP(2 * own, >, queues);
	other = hold(own);
	begin(&me);
	need_queues(&me, queues - own);
	CHECK_ERR(create(&me), ENOSPC);
	let_go(other);
	await_room(&me);
	need_queues(&me, own);
	CHECK_ERR(create(&me), ENOSPC);
}

CASE(processes, "as many processes have queues as the GPU takes; one that ends makes room")
{
	unsigned int processes = limit("LIMIT_PROCESSES");
	struct process me;
	pid_t others[8];

	CHECK_OP(processes, <=, 8);
	for (unsigned int i = 0; i < processes; i++)
		others[i] = hold(1);
	begin(&me);
	CHECK_ERR(create(&me), ENOSPC);
	let_go(others[0]);
	await_room(&me);
	for (unsigned int i = 1; i < processes; i++)
		let_go(others[i]);
}

CASE(works, "queues at the limit execute packets")
{
	struct packets p = { .n = 0 };
	struct process me;
	struct bo out;

	begin(&me);
	CHECK_OK(queue_create(&me.gpu, &me.q));
	me.n = 1;
	need_queues(&me, limit("LIMIT_OWN"));
	CHECK_ERR(create(&me), ENOSPC);
	need_bo(&me.gpu, &out, FLAGS_GTT, PAGE);
	pm4_write(&p, out.va, 0x11417);
	submit(&me.q, &p);
	await32(bo32(&out, 0), 0x11417, "a packet");
}
