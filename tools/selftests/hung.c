// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Queues that hang for good: who learns of it, and what becomes of a process that is killed, ends or destroys
 * its queue while the hardware does not let go; what the GPU still reaches of its memory then.
 *
 * Needs the device model, whose control port makes a queue hang.
 */
#include "kfd.h"
#include "model.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
/* The scheduler waits nine seconds for a queue before it resets it. */
#define PATIENCE_MS tap_ms(60000)

struct side {
	struct gpu gpu;
	struct queue q;
	struct bo bo;
	uint32_t count;
	uint32_t exception; /* Event. */
	int tell, hear; /* Of a child: to and from its parent. */
};

/* A descriptor of the render node that somebody else keeps, too; -1 for one's own. */
static int lent_render = -1;

static void begin(struct side *s)
{
	struct event ev;

	if (lent_render < 0) {
		need_vm(&s->gpu, 0);
	} else {
		need_gpu(&s->gpu, 0);
		s->gpu.drm = lent_render;
		CHECK_OK(acquire_vm(&s->gpu, lent_render));
	}
	/* As much memory of the process as it has under the thunk: the GPU has to lose all of it. */
	queue_prepare(&s->gpu, &s->q, COMPUTE, 0x1000);
	save_in_user_memory(&s->gpu, &s->q);
	CHECK_OK(queue_create(&s->gpu, &s->q));
	need_bo(&s->gpu, &s->bo, FLAGS_GTT, PAGE);
	CHECK_OK(event_create(&s->gpu, KFD_IOC_EVENT_HW_EXCEPTION, false, 0, &ev));
	s->exception = ev.id;
	s->count = 0;
}

static void start_work(struct side *s)
{
	struct packets p = { .n = 0 };

	pm4_write(&p, s->bo.va, ++s->count);
	submit(&s->q, &p);
}

static void works(struct side *s)
{
	start_work(s);
	await32(bo32(&s->bo, 0), s->count, "work");
}

/* One more queue that works: the others have to be taken off the hardware for it. */
static void disturb(struct side *s)
{
	struct packets p = { .n = 0 };
	struct queue q;

	need_queue(&s->gpu, &q, COMPUTE);
	pm4_write(&p, s->bo.va + 64, 0xd157);
	submit(&q, &p);
	await32(bo32(&s->bo, 64), 0xd157, "a new queue's work");
	drop_queue(&s->gpu, &q);
}

static uint32_t wait_exception(struct side *s, uint32_t ms, struct kfd_hsa_hw_exception_data *told)
{
	struct kfd_event_data data = { .event_id = s->exception };
	struct waited w;
	int err;

	do {
		err = event_wait_data(&s->gpu, &data, 1, true, ms, &w);
	} while (err == EINTR);
	CHECK_OK(err);
	*told = data.hw_exception_data;
	return w.result;
}

/* A child whose queue hangs, and the pipes to talk to it. */
struct guilty {
	pid_t pid;
	int from, to;
};

static void tell(int fd)
{
	CHECK_EQ(write(fd, "x", 1), 1);
}

static bool hear(int fd)
{
	char byte;

	return read(fd, &byte, 1) == 1;
}

/* Starts a process whose queue works, makes the queue hang as `fault` says, and gives it work. */
static void hang(struct guilty *g, const char *fault, void (*then)(struct side *))
{
	static char before[1 << 20];
	char request[128];
	int from[2], to[2];

	snprintf(before, sizeof(before), "%s", ask_model("{\"cmd\":\"queues\"}"));
	CHECK_EQ(pipe(from), 0);
	CHECK_EQ(pipe(to), 0);
	g->pid = fork();
	if (g->pid == 0) {
		struct side me;

		close_model();
		close(from[0]);
		close(to[1]);
		begin(&me);
		me.tell = from[1];
		me.hear = to[0];
		works(&me);
		tell(from[1]);
		if (!hear(to[0]))
			_exit(1);
		start_work(&me);
		tell(from[1]);
		if (then)
			then(&me);
		else
			pause();
		_exit(0);
	}
	close(from[1]);
	close(to[0]);
	g->from = from[0];
	g->to = to[1];
	if (!hear(g->from))
		child_gave_up(g->pid);
	snprintf(request, sizeof(request), "{\"cmd\":\"fault\",\"kind\":\"%s\",\"doorbell\":%lu}", fault,
		 new_doorbell(before, ask_model("{\"cmd\":\"queues\"}")));
	ask_model(request);
	tell(g->to);
	if (!hear(g->from))
		child_gave_up(g->pid);
}

static void gone(struct guilty *g, int expected)
{
	int status;

	CHECK_EQ(waitpid(g->pid, &status, 0), g->pid);
	CHECK_EQ(status, expected);
	ask_model("{\"cmd\":\"clear-faults\"}");
}

static void fresh_process(void *unused)
{
	struct side me;

	begin(&me);
	works(&me);
}

static void killed(const char *fault)
{
	struct kfd_hsa_hw_exception_data told;
	struct side innocent;
	struct guilty g;

	need_model();
	begin(&innocent);
	works(&innocent);
	hang(&g, fault, NULL);
	CHECK_EQ(kill(g.pid, SIGKILL), 0);
	gone(&g, SIGKILL);
	works(&innocent);
	CHECK_EQ(wait_exception(&innocent, 0, &told), KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_EQ(in_child(fresh_process, NULL), 0);
	works(&innocent);
}

CASE_LIMIT(killed_stuck, "kill -9 of a process whose queue makes no progress", 120) { killed("hang-queue"); }
CASE_LIMIT(killed_refusing, "kill -9 of a process whose queue refuses preemption", 120) { killed("ignore-preempt"); }

static void exits(struct side *me)
{
	_exit(0);
}

static void execs(struct side *me)
{
	/* The old address space, queue and all, goes in the middle of this. */
	execl("/bin/true", "true", (char *)NULL);
	_exit(1);
}

static void ends(void (*how)(struct side *))
{
	struct kfd_hsa_hw_exception_data told;
	struct side innocent;
	struct guilty g;

	need_model();
	begin(&innocent);
	works(&innocent);
	hang(&g, "ignore-preempt", how);
	gone(&g, 0);
	works(&innocent);
	CHECK_EQ(wait_exception(&innocent, 0, &told), KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_EQ(in_child(fresh_process, NULL), 0);
	works(&innocent);
}

CASE_LIMIT(exits_refusing, "exit of a process whose queue refuses preemption", 120) { ends(exits); }
CASE_LIMIT(execs_refusing, "exec of a process whose queue refuses preemption", 120) { ends(execs); }

static void destroys(struct side *me)
{
	int err = queue_destroy(&me->gpu, me->q.args.queue_id);

	if (err)
		FAIL("DESTROY_QUEUE: %s", strerror(err));
	/* The new queue may get the doorbell, by which the model knows whom to hang. */
	tell(me->tell);
	if (!hear(me->hear))
		_exit(1);
	need_queue(&me->gpu, &me->q, COMPUTE);
	works(me);
}

static void destroyed(const char *fault)
{
	struct side innocent;
	struct guilty g;

	need_model();
	begin(&innocent);
	works(&innocent);
	hang(&g, fault, destroys);
	if (!hear(g.from))
		child_gave_up(g.pid);
	ask_model("{\"cmd\":\"clear-faults\"}");
	tell(g.to);
	gone(&g, 0);
	works(&innocent);
}

CASE_LIMIT(destroyed_stuck, "DESTROY_QUEUE of a queue that makes no progress; a new one works", 120)
{
	destroyed("hang-queue");
}

CASE_LIMIT(destroyed_refusing, "DESTROY_QUEUE of a queue that refuses preemption; a new one works", 120)
{
	destroyed("ignore-preempt");
}

static void is_told(struct side *me)
{
	static const uint32_t units = 0xffffffff;
	struct kfd_ioctl_set_cu_mask_args mask = {
		.queue_id = me->q.args.queue_id,
		.num_cu_mask = 32,
		.cu_mask_ptr = (uintptr_t)&units,
	};
	struct kfd_hsa_hw_exception_data told;

	/* Nobody else's doing takes it off the hardware then. */
	if (scheduled_by_driver())
		CHECK_OK(queue_update(&me->gpu, &me->q, 100, 8));
	CHECK_EQ(wait_exception(me, PATIENCE_MS, &told), KFD_IOC_WAIT_RESULT_COMPLETE);
	/* One engine, because it hung; memory is as it was. */
	CHECK_EQ(told.gpu_id, me->gpu.id);
	CHECK_EQ(told.reset_type, 1);
	CHECK_EQ(told.reset_cause, 0);
	CHECK_EQ(told.memory_lost, 0);
	/* Its work before the hang is still there. */
	CHECK_EQ(*bo32(&me->bo, 0), 1);
	/* The queue takes no changes that would never come into force, and goes when it is told to. */
	CHECK_ERR(queue_update(&me->gpu, &me->q, 100, 7), EACCES);
	CHECK_ERR(queue_update(&me->gpu, &me->q, 0, 7), EACCES);
	CHECK_ERR(kfd_call(me->gpu.fd, AMDKFD_IOC_SET_CU_MASK, &mask), EACCES);
	CHECK_OK(queue_destroy(&me->gpu, me->q.args.queue_id));
}

CASE_LIMIT(told, "a queue that refuses preemption is reset: its process hears what happened, the other one nothing", 120)
{
	struct kfd_hsa_hw_exception_data told;
	struct side innocent;
	struct guilty g;

	need_model();
	begin(&innocent);
	works(&innocent);
	hang(&g, "ignore-preempt", is_told);
	disturb(&innocent);
	gone(&g, 0);
	works(&innocent);
	CHECK_EQ(wait_exception(&innocent, 0, &told), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

static void works_for_ever(int ready)
{
	struct side me;

	begin(&me);
	works(&me);
	say_ready(ready);
	for (;;)
		works(&me);
}

static void create_late(int ready)
{
	struct side me;

	begin(&me);
	say_ready(ready);
	/* Waits until the scheduler is back: somebody has to find out that it is dead. */
	disturb(&me);
	_exit(0);
}

CASE_LIMIT(killed_in_reset, "kill -9 of six processes, one after the other, while a dead scheduler is found and the engines are reset", 240)
{
	struct kfd_hsa_hw_exception_data told;
	struct side innocent;
	pid_t pids[6], late;
	uint64_t memory;
	int status;

	need_model();
	if (scheduled_by_driver())
		SKIP("no firmware schedules that could die");
	begin(&innocent);
	works(&innocent);
	memory = available_settled(&innocent.gpu);
	for (int i = 0; i < 6; i++)
		pids[i] = start_child(works_for_ever);
	late = start_child(create_late);
	ask_model("{\"cmd\":\"fault\",\"kind\":\"hang-hws\"}");
	/* One at once, the others until after the time that the scheduler is given; each ends when it can. */
	for (int i = 0; i < 6; i++) {
		CHECK_EQ(kill(pids[i], SIGKILL), 0);
		usleep(i * 700000);
	}
	for (int i = 0; i < 6; i++) {
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK_EQ(status, SIGKILL);
	}
	CHECK_EQ(waitpid(late, &status, 0), late);
	CHECK_EQ(status, 0);
	works(&innocent);
	CHECK_EQ(wait_exception(&innocent, 0, &told), KFD_IOC_WAIT_RESULT_TIMEOUT);
	await_available(&innocent.gpu, memory);
	disturb(&innocent);
	CHECK_EQ(in_child(fresh_process, NULL), 0);
	works(&innocent);
	ask_model("{\"cmd\":\"clear-faults\"}");
}

/* How many mappings of memory of processes the GPU has, and in how many the page table names pages, says debugfs. */
static void count_user_mappings(unsigned int *mapped, unsigned int *reached)
{
	static struct { uint64_t first, last; } user[256];
	char line[256];
	glob_t found;
	FILE *vms;

	if (glob("/sys/kernel/debug/rkfd/*/vms", 0, NULL, &found))
		SKIP("debugfs does not show the address spaces");
	CHECK_EQ(found.gl_pathc, 1);
	vms = fopen(found.gl_pathv[0], "re");
	CHECK(vms);
	*mapped = *reached = 0;
	while (fgets(line, sizeof(line), vms)) {
		unsigned long long first, last;

		if (sscanf(line, "%llx-%llx", &first, &last) != 2)
			continue;
		if (strstr(line, " Userptr")) {
			CHECK_OP(*mapped, <, 256);
			user[*mapped].first = first;
			user[(*mapped)++].last = last;
		} else if (strstr(line, " -> ")) {
			for (unsigned int i = 0; i < *mapped; i++)
				*reached += first <= user[i].last && last >= user[i].first;
		}
	}
	fclose(vms);
	globfree(&found);
}

static void memory_withdrawn(void)
{
	unsigned int mapped, reached;
	struct gpu gpu;
	struct guilty g;
	int status;

	need_model();
	need_gpu(&gpu, 0);
	lent_render = need_render(&gpu);
	hang(&g, "ignore-reset", NULL);
	count_user_mappings(&mapped, &reached);
	CHECK_OP(mapped, >=, 2);
	CHECK_OP(reached, >=, mapped);
	CHECK_EQ(kill(g.pid, SIGKILL), 0);
	CHECK_EQ(waitpid(g.pid, &status, 0), g.pid);
	CHECK_EQ(status, SIGKILL);
	count_user_mappings(&mapped, &reached);
	/* What the queue uses stays listed, or there was nothing to see here. */
	CHECK_OP(mapped, >=, 1);
	CHECK_EQ(reached, 0);
}

static void memory_unconfirmed(void)
{
	struct gpu gpu;
	struct guilty g;
	int status;

	need_model();
	need_gpu(&gpu, 0);
	hang(&g, "ignore-reset", NULL);
	ask_model("{\"cmd\":\"fault\",\"kind\":\"deaf-tlb\"}");
	CHECK(masters_the_bus());
	CHECK_EQ(kill(g.pid, SIGKILL), 0);
	CHECK_EQ(waitpid(g.pid, &status, 0), g.pid);
	CHECK_EQ(status, SIGKILL);
	/* By now its pages are somebody else's. */
	CHECK(!masters_the_bus());
	ask_model("{\"cmd\":\"clear-faults\"}");
}

int main(int argc, char **argv)
{
	static struct tap_case unconfirmed = {
		"kill -9 where the queue never stops and the GPU confirms no flush: it loses bus mastering before the memory goes",
		memory_unconfirmed, 240, NULL,
	};
	static struct tap_case withdrawn = {
		"kill -9 where the queue never stops: the GPU loses the process's memory, whoever keeps the address space",
		memory_withdrawn, 240, NULL,
	};

	/* It breaks the GPU, and needs a module that does not mend it. */
	if (getenv("HUNG_NO_RECOVERY"))
		tap_register(getenv("HUNG_DEAF_TLB") ? &unconfirmed : &withdrawn);
	return tap_main(argc, argv);
}
