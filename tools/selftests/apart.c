// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A queue that refuses to leave the hardware takes the scheduler's time-out to be got rid of. Whom that keeps waiting:
 * the call that wants it gone, and nobody else.
 *
 * Needs the device model, whose control port makes a queue refuse, and debugfs, which tells whether the scheduler has
 * given up on the queue yet.
 */
#include "kfd.h"
#include "model.h"

#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
/* An address that nothing is mapped at. */
#define NOWHERE 0x123456789000ull

/* Queues that the scheduler has given up on, since the module was loaded. */
static unsigned long refusals(void)
{
	char line[128];
	unsigned long n;
	glob_t found;
	FILE *f;

	if (glob("/sys/kernel/debug/rkfd/*/sched", 0, NULL, &found))
		SKIP("debugfs does not show the scheduler");
	CHECK_EQ(found.gl_pathc, 1);
	f = fopen(found.gl_pathv[0], "re");
	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "refusals %lu", &n) == 1) {
			fclose(f);
			globfree(&found);
			return n;
		}
	}
	FAIL("debugfs counts no refusals");
}

static void refuse(unsigned long doorbell)
{
	char request[128];

	snprintf(request, sizeof(request), "{\"cmd\":\"fault\",\"kind\":\"ignore-preempt\",\"doorbell\":%lu}", doorbell);
	ask_model(request);
}

static void write_word(struct queue *q, uint64_t to, uint32_t value)
{
	struct packets p = { .n = 0 };

	pm4_write(&p, to, value);
	submit(q, &p);
}

struct leaving {
	struct gpu *gpu;
	struct queue *q;
	uint32_t percentage;
	int err;
	bool update;
	volatile bool begun, over;
};

static void *leave(void *context)
{
	struct leaving *l = context;

	l->begun = true;
	l->err = l->update ? queue_update(l->gpu, l->q, 50, 7) : queue_destroy(l->gpu, l->q->args.queue_id);
	l->over = true;
	return NULL;
}

/* Other calls of the process while one waits for a queue of its to leave. */
static void others_go_on(bool update)
{
	static char before[1 << 20];
	struct leaving l = { .update = update };
	struct queue stubborn, other;
	struct bo bo, more;
	struct event ev;
	unsigned long given_up;
	pthread_t thread;
	struct gpu gpu;

	need_model();
	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	need_event(&gpu, false, &ev);
	snprintf(before, sizeof(before), "%s", ask_model("{\"cmd\":\"queues\"}"));
	need_queue(&gpu, &stubborn, COMPUTE);
	write_word(&stubborn, bo.va, 1);
	await32(bo32(&bo, 0), 1, "the queue's work");
	given_up = refusals();
	refuse(new_doorbell(before, ask_model("{\"cmd\":\"queues\"}")));
	l.gpu = &gpu;
	l.q = &stubborn;
	CHECK_EQ(pthread_create(&thread, NULL, leave, &l), 0);
	while (!l.begun)
		usleep(1000);
	/* Until it sits in the call; were it not yet, all the following would prove less, and fail never. */
	usleep(100000);
	need_bo(&gpu, &more, FLAGS_GTT, 16 * PAGE);
	drop_bo(&gpu, &more);
	need_bo(&gpu, &more, FLAGS_USERPTR, 4 * PAGE);
	CHECK_OK(event_set(&gpu, ev.id));
	need_queue(&gpu, &other, COMPUTE);
	/* All of that while the queue was there. */
	CHECK(!l.over);
	CHECK_EQ(refusals(), given_up);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_OK(l.err);
	/* It was given up on, and does not run again. */
	if (update)
		CHECK_ERR(queue_update(&gpu, &stubborn, 100, 7), EACCES);
	CHECK_EQ(refusals(), given_up + 1);
	write_word(&other, bo.va + 8, 2);
	await32(bo32(&bo, 8), 2, "the new queue's work");
	ask_model("{\"cmd\":\"clear-faults\"}");
	drop_bo(&gpu, &more);
}

CASE_LIMIT(destroy_apart, "DESTROY_QUEUE of a queue that refuses to leave: other calls of the process go on", 120)
{
	others_go_on(false);
}

CASE_LIMIT(update_apart, "UPDATE_QUEUE of a queue that refuses to leave: other calls of the process go on", 120)
{
	others_go_on(true);
}

static void tell(int fd)
{
	CHECK_EQ(write(fd, "x", 1), 1);
}

static bool hear(int fd)
{
	char byte;

	return read(fd, &byte, 1) == 1;
}

/* A process with a queue that refuses to leave and one that goes astray. */
static void go_astray(int tells, int hears)
{
	struct kfd_event_data data = { 0 };
	struct queue stubborn, other;
	struct event fault;
	struct gpu gpu;
	struct waited w;
	struct bo bo;
	int err;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &fault));
	need_queue(&gpu, &stubborn, COMPUTE);
	write_word(&stubborn, bo.va, 1);
	await32(bo32(&bo, 0), 1, "the first queue's work");
	tell(tells);
	if (!hear(hears))
		_exit(1);
	need_queue(&gpu, &other, COMPUTE);
	write_word(&other, bo.va + 8, 1);
	await32(bo32(&bo, 8), 1, "the second queue's work");
	tell(tells);
	if (!hear(hears))
		_exit(1);
	write_word(&other, NOWHERE, 1);
	data.event_id = fault.id;
	do {
		err = event_wait_data(&gpu, &data, 1, true, WAIT_MS, &w);
	} while (err == EINTR);
	CHECK_OK(err);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data.memory_exception_data.va, NOWHERE & ~(PAGE - 1));
	tell(tells);
	pause();
}

/*
 * One process goes astray while its other queue refuses to leave. Whether it was told, and another process had an event of
 * its own, while that queue was still there.
 */
static bool others_are_told(void)
{
	static char before[1 << 20];
	int from[2], to[2], status;
	struct packets p = { .n = 0 };
	unsigned long given_up, doorbell;
	bool there = true;
	struct waited w;
	struct event ev;
	struct queue q;
	struct gpu gpu;
	struct bo bo;
	pid_t pid;

	need_model();
	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	need_event(&gpu, true, &ev);
	need_queue(&gpu, &q, COMPUTE);
	write_word(&q, bo.va, 1);
	await32(bo32(&bo, 0), 1, "work before");
	snprintf(before, sizeof(before), "%s", ask_model("{\"cmd\":\"queues\"}"));
	CHECK_EQ(pipe(from), 0);
	CHECK_EQ(pipe(to), 0);
	pid = fork();
	if (pid == 0) {
		close_model();
		close(from[0]);
		close(to[1]);
		go_astray(from[1], to[0]);
		_exit(0);
	}
	close(from[1]);
	close(to[0]);
	if (!hear(from[0]))
		child_gave_up(pid);
	doorbell = new_doorbell(before, ask_model("{\"cmd\":\"queues\"}"));
	tell(to[1]);
	if (!hear(from[0]))
		child_gave_up(pid);
	given_up = refusals();
	refuse(doorbell);
	tell(to[1]);
	/* It knows of its fault … */
	if (!hear(from[0]))
		child_gave_up(pid);
	there &= refusals() == given_up;
	/* … and interrupts reach this process, while its queue is still there. */
	pm4_release(&p, ev.slot_va, 2, ev.id, 2, ev.id);
	submit(&q, &p);
	CHECK_OK(event_wait(&gpu, &ev.id, 1, true, WAIT_MS, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	there &= refusals() == given_up;
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, SIGKILL);
	ask_model("{\"cmd\":\"clear-faults\"}");
	write_word(&q, bo.va, 2);
	await32(bo32(&bo, 0), 2, "work afterwards");
	close(from[0]);
	close(to[1]);
	drop_queue(&gpu, &q);
	CHECK_OK(event_destroy(&gpu, ev.id));
	drop_bo(&gpu, &bo);
	return there;
}

/* The queue has two seconds, and a busy machine may be slower than that: one attempt of several is enough. */
CASE_LIMIT(fault_apart, "a fault of a process whose queue refuses to leave: it is told, and others have their events, at once", 240)
{
	for (int i = 0; i < 5; i++) {
		if (others_are_told())
			return;
		tap_note("the queue was gone before everybody was told");
	}
	FAIL("others are told when the queue is gone, each time");
}

int main(int argc, char **argv)
{
	return tap_main(argc, argv);
}
