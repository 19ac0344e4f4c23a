// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A process whose queues refuse to be preempted again and again: what it costs others, and what becomes of it, whatever it opens.
 *
 * Needs the device model, whose control port makes queues refuse, and rkfd's debugfs. Refusals within four times the
 * time-out of preemptions are one occasion, so that a short one (preempt_timeout_ms) makes for a short test.
 */
#include "kfd.h"
#include "model.h"
#include "native.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
/* Of the offender. Those of both processes find slots. */
enum { QUEUES = 21 };
/* More than the model's table of queues takes. */
enum { REPLY = 1 << 20 };

/* A number behind a word in the scheduler's file of debugfs. */
static unsigned long counter(const char *name)
{
	unsigned long value = 0;
	bool found = false;
	char line[256];
	glob_t paths;
	FILE *f;

	if (glob("/sys/kernel/debug/rkfd/*/sched", 0, NULL, &paths) || paths.gl_pathc != 1)
		LACKING("not one file sched in debugfs");
	f = fopen(paths.gl_pathv[0], "re");
	globfree(&paths);
	if (!f)
		LACKING("the counters cannot be read");
	while (!found && fgets(line, sizeof(line), f))
		found = !strncmp(line, name, strlen(name)) && sscanf(line + strlen(name), " %lu", &value) == 1;
	fclose(f);
	if (!found)
		FAIL("there is no counter %s", name);
	return value;
}

struct side {
	struct gpu gpu;
	struct queue q[QUEUES];
	struct bo out;
	uint32_t exception; /* Event. */
	uint32_t count;
};

static void begin(struct side *s)
{
	struct event ev;

	need_vm(&s->gpu, 0);
	need_bo(&s->gpu, &s->out, FLAGS_GTT, PAGE);
	CHECK_OK(event_create(&s->gpu, KFD_IOC_EVENT_HW_EXCEPTION, true, 0, &ev));
	s->exception = ev.id;
	s->count = 0;
	need_queue(&s->gpu, &s->q[0], COMPUTE);
}

/* A further queue. Its packets run no waves, so that it needs no save area of its own. */
static int join(struct side *s, struct queue *q)
{
	memset(q, 0, sizeof(*q));
	need_bo(&s->gpu, &q->ring, FLAGS_USERPTR, PAGE);
	need_bo(&s->gpu, &q->pointers, FLAGS_GTT, PAGE);
	q->wptr = bo64(&q->pointers, 8);
	q->rptr = bo64(&q->pointers, 16);
	q->args = s->q[0].args;
	q->args.ring_base_address = q->ring.va;
	q->args.write_pointer_address = q->pointers.va + 8;
	q->args.read_pointer_address = q->pointers.va + 16;
	return queue_create(&s->gpu, q);
}

static void works(struct side *s, struct queue *q)
{
	struct packets p = { .n = 0 };

	pm4_write(&p, s->out.va, ++s->count);
	submit(q, &p);
	await32(bo32(&s->out, 0), s->count, "work");
}

/* One more queue that works: all others have to be taken off the hardware for it. */
static void disturb(struct side *s)
{
	struct queue q;

	need_queue(&s->gpu, &q, COMPUTE);
	works(s, &q);
	drop_queue(&s->gpu, &q);
}

static bool told(struct side *s, uint32_t ms)
{
	struct kfd_event_data data = { .event_id = s->exception };
	struct waited w;
	int err;

	do {
		err = event_wait_data(&s->gpu, &data, 1, true, ms, &w);
	} while (err == EINTR);
	CHECK_OK(err);
	return w.result == KFD_IOC_WAIT_RESULT_COMPLETE;
}

/* Has the model do something to the queue with `doorbell`. */
static void fault(const char *kind, unsigned long doorbell, const char *more)
{
	char request[160];

	snprintf(request, sizeof(request), "{\"cmd\":\"fault\",\"kind\":\"%s\",\"doorbell\":%lu%s}", kind, doorbell, more);
	ask_model(request);
}

#define NATIVE_AT 0x10000000ul

/* A child of the offender begins with a clean record. */
static void begin_anew(void *unused)
{
	static struct nfile file;
	static struct nqueue q;

	(void)unused;
	need_file(&file);
	need_nqueue(&file, &q, DRM_RKFD_QUEUE_PM4, NATIVE_AT);
	drop_nqueue(&file, &q);
}

/* The offender is not let in by the render node, where it was nobody until now, by any of its queue types. */
static void try_render_node(void)
{
	static const uint32_t types[] = { DRM_RKFD_QUEUE_PM4, DRM_RKFD_QUEUE_AQL, DRM_RKFD_QUEUE_SDMA };

	for (unsigned int i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct nfile file;
		struct nqueue q;

		need_file(&file);
		nqueue_prepare(&file, &q, types[i], NATIVE_AT);
		CHECK_ERR(nqueue_create(&file, &q), EPERM);
		close_file(&file);
	}
	CHECK_EQ(in_child(begin_anew, NULL), 0);
}

/* The offender: makes a queue for each byte that it reads, then says for each whether it still gets new ones. */
static void offend(int hear, int tell)
{
	static struct side me;
	struct queue extra;
	char byte;
	int err = 0;

	close_model();
	for (int i = 0; i < QUEUES; i++) {
		CHECK_EQ(read(hear, &byte, 1), 1);
		if (i == 0)
			begin(&me);
		else
			CHECK_OK(join(&me, &me.q[i]));
		works(&me, &me.q[i]);
		CHECK_EQ(write(tell, "x", 1), 1);
	}
	while (!err) {
		CHECK_EQ(read(hear, &byte, 1), 1);
		/* Of the queue that was reset. */
		CHECK(told(&me, WAIT_MS));
		err = join(&me, &extra);
		if (!err)
			CHECK_OK(queue_destroy(&me.gpu, extra.args.queue_id));
		drop_bo(&me.gpu, &extra.ring);
		drop_bo(&me.gpu, &extra.pointers);
		CHECK_EQ(write(tell, err ? "n" : "y", 1), 1);
	}
	CHECK_EQ(err, EPERM);
	try_render_node();
	/* All of its queues are off for good, the one that never refused, too; what is left is to destroy them. */
	CHECK_ERR(queue_update(&me.gpu, &me.q[QUEUES - 1], 100, 7), EACCES);
	for (int i = 0; i < QUEUES; i++)
		CHECK_OK(queue_destroy(&me.gpu, me.q[i].args.queue_id));
	_exit(0);
}

CASE_LIMIT(barred, "a process whose queues refuse on two occasions gets no more, by whatever file; others lose nothing", 240)
{
	unsigned long doorbells[QUEUES], mine, refusals, queue_resets, early_resets, resets, timeouts;
	static char before[REPLY];
	static struct side me;
	int to[2], from[2], status, refused = 0;
	char answer = 'y';
	pid_t child;

	need_model();
	refusals = counter("refusals");
	queue_resets = counter("queue_resets");
	early_resets = counter("early_resets");
	resets = counter("resets");
	timeouts = counter("timeouts");
	snprintf(before, sizeof(before), "%s", ask_model("{\"cmd\":\"queues\"}"));
	begin(&me);
	works(&me, &me.q[0]);
	mine = new_doorbell(before, ask_model("{\"cmd\":\"queues\"}"));
	CHECK_EQ(pipe(to), 0);
	CHECK_EQ(pipe(from), 0);
	child = fork();
	if (child == 0) {
		close(to[1]);
		close(from[0]);
		offend(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	for (int i = 0; i < QUEUES; i++) {
		snprintf(before, sizeof(before), "%s", ask_model("{\"cmd\":\"queues\"}"));
		CHECK_EQ(write(to[1], "x", 1), 1);
		if (read(from[0], &answer, 1) != 1)
			child_gave_up(child);
		doorbells[i] = new_doorbell(before, ask_model("{\"cmd\":\"queues\"}"));
	}

	/* A save that takes long is no refusal. */
	fault("slow-preempt", mine, ",\"ms\":50");
	disturb(&me);
	ask_model("{\"cmd\":\"clear-faults\"}");
	CHECK_EQ(counter("refusals"), refusals);

	for (answer = 'y'; answer == 'y'; refused++) {
		/* The last one never refuses. */
		CHECK(refused < QUEUES - 1);
		fault("ignore-preempt", doorbells[refused], "");
		disturb(&me);
		CHECK_EQ(counter("queue_resets"), queue_resets + refused + 1);
		CHECK_EQ(write(to[1], "x", 1), 1);
		if (read(from[0], &answer, 1) != 1)
			child_gave_up(child);
	}
	tap_note("barred after %d refusals, %lu of them ended early", refused, counter("early_resets") - early_resets);
	CHECK(refused > 1);
	CHECK(counter("early_resets") > early_resets);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);

	/* Others did not notice, and a process of theirs that saves slowly is none that refuses. */
	works(&me, &me.q[0]);
	CHECK(!told(&me, 0));
	refusals = counter("refusals");
	fault("slow-preempt", mine, ",\"ms\":50");
	disturb(&me);
	ask_model("{\"cmd\":\"clear-faults\"}");
	CHECK_EQ(counter("refusals"), refusals);
	/* Each preemption that others waited for was confirmed, and none took a reset of the engines. */
	CHECK_EQ(counter("timeouts"), timeouts);
	CHECK_EQ(counter("resets"), resets);
	drop_queue(&me.gpu, &me.q[0]);
	drop_bo(&me.gpu, &me.out);
}
