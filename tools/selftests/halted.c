// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A queue that halted at a bad packet, among more queues than the hardware has slots: the others take their turns, the
 * bad packet is reported once and not at each turn, and the watchdog reports who waits, not who halted.
 *
 * Needs rkfd's debugfs, and its watchdog at a few seconds (watchdog_ms).
 */
#include "kfd.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
/* More than there are slots for compute queues. */
enum { QUEUES = 40 };
/* Where the waiting queue is held, behind the words of the others. */
enum { GATE = 4 * QUEUES };

struct crowd {
	struct gpu gpu;
	struct queue q[QUEUES];
	struct bo out;
	uint32_t round;
};

/* A number behind a word in a file of the GPU's directory in debugfs. */
static unsigned long counter(const char *file, const char *name)
{
	unsigned long value = 0;
	char pattern[128], line[256];
	bool found = false;
	glob_t paths;
	FILE *f;

	snprintf(pattern, sizeof(pattern), "/sys/kernel/debug/rkfd/*/%s", file);
	if (glob(pattern, 0, NULL, &paths) || paths.gl_pathc != 1)
		LACKING("%s: not one file", pattern);
	f = fopen(paths.gl_pathv[0], "re");
	globfree(&paths);
	if (!f)
		LACKING("%s cannot be read", pattern);
	while (!found && fgets(line, sizeof(line), f))
		found = !strncmp(line, name, strlen(name)) && sscanf(line + strlen(name), " %lu", &value) == 1;
	fclose(f);
	if (!found)
		FAIL("%s has no %s", pattern, name);
	return value;
}

/* A further queue. Its packets run no waves, so that it needs no save area and no buffer of its own beside the ring. */
static void join(struct crowd *c, struct queue *q)
{
	const struct queue *first = &c->q[0];

	memset(q, 0, sizeof(*q));
	need_bo(&c->gpu, &q->ring, FLAGS_USERPTR, PAGE);
	need_bo(&c->gpu, &q->pointers, FLAGS_GTT, PAGE);
	q->wptr = bo64(&q->pointers, 8);
	q->rptr = bo64(&q->pointers, 16);
	q->args = first->args;
	q->args.ring_base_address = q->ring.va;
	q->args.write_pointer_address = q->pointers.va + 8;
	q->args.read_pointer_address = q->pointers.va + 16;
	CHECK_OK(queue_create(&c->gpu, q));
}

static void gather(struct crowd *c)
{
	need_vm(&c->gpu, 0);
	need_bo(&c->gpu, &c->out, FLAGS_GTT, PAGE);
	need_queue(&c->gpu, &c->q[0], COMPUTE);
	for (int i = 1; i < QUEUES; i++)
		join(c, &c->q[i]);
	c->round = 0;
}

/* Each queue from `first` on does something, which takes a turn of all of them. */
static void go_round(struct crowd *c, int first)
{
	c->round++;
	for (int i = first; i < QUEUES; i++) {
		struct packets p = { .n = 0 };

		pm4_write(&p, c->out.va + 4 * i, c->round);
		submit(&c->q[i], &p);
	}
	for (int i = first; i < QUEUES; i++)
		await32(bo32(&c->out, 4 * i), c->round, "a queue beside the one that halted");
}

/* Halts the first queue. */
static void halt(struct crowd *c)
{
	unsigned long before = counter("ih", "bad_opcode");
	struct packets p = { .n = 0 };
	uint64_t end = now_ms() + WAIT_MS;

	pm4_header(&p, 0xff, 1);
	put(&p, 0);
	pm4_write(&p, c->out.va, 0xbad);
	submit(&c->q[0], &p);
	while (counter("ih", "bad_opcode") == before) {
		if (now_ms() > end)
			FAIL("a bad packet was not reported");
		usleep(1000);
	}
}

static void part(struct crowd *c)
{
	for (int i = 1; i < QUEUES; i++) {
		CHECK_OK(queue_destroy(&c->gpu, c->q[i].args.queue_id));
		drop_bo(&c->gpu, &c->q[i].ring);
		drop_bo(&c->gpu, &c->q[i].pointers);
	}
	drop_queue(&c->gpu, &c->q[0]);
	drop_bo(&c->gpu, &c->out);
}

static struct crowd crowd;

CASE_LIMIT(bad_once, "a queue that halted at a bad packet is not run into it at each turn, and the others go on", 120)
{
	struct crowd *c = &crowd;
	uint64_t end = now_ms() + WAIT_MS;
	unsigned long before, turns;

	gather(c);
	go_round(c, 0);
	halt(c);
	/* The driver takes it off beside the turns. From then on there is not one more. */
	do {
		if (now_ms() > end)
			FAIL("there is always another bad packet: %lu", counter("ih", "bad_opcode"));
		before = counter("ih", "bad_opcode");
		turns = counter("ih", "interrupts");
		for (int i = 0; i < 20; i++)
			go_round(c, 1);
		tap_note("20 rounds: bad packets %lu, then %lu; interrupts %lu, then %lu", before, counter("ih", "bad_opcode"),
			 turns, counter("ih", "interrupts"));
	} while (counter("ih", "bad_opcode") != before);
	CHECK_EQ(*bo32(&c->out, 0), 1);
	part(c);
}

/* Lines of the kernel log, from now on, in which the watchdog names a queue of this process. */
struct log {
	int fd;
	unsigned int lines;
	bool waiting; /* One of them has the write pointer that is looked for. */
};

static void read_log(struct log *log, uint64_t wptr)
{
	char record[2048], mine[32], pointer[48];
	ssize_t n;

	snprintf(mine, sizeof(mine), " of pid %d ", getpid());
	snprintf(pointer, sizeof(pointer), "write pointer %#llx", (unsigned long long)wptr);
	for (;;) {
		n = read(log->fd, record, sizeof(record) - 1);
		if (n < 0 && errno == EPIPE)
			continue;
		if (n <= 0)
			return;
		record[n] = '\0';
		if (!strstr(record, "makes no progress") || !strstr(record, mine))
			continue;
		log->lines++;
		if (strstr(record, pointer))
			log->waiting = true;
	}
}

CASE_LIMIT(not_stuck, "the watchdog reports a queue that waits, and not the one that halted before", 240)
{
	struct log log = { .fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC) };
	struct crowd *c = &crowd;
	struct packets p = { .n = 0 };
	unsigned long before;
	uint64_t end;

	if (log.fd < 0)
		LACKING("/dev/kmsg: %s", strerror(errno));
	CHECK(lseek(log.fd, 0, SEEK_END) >= 0);
	gather(c);
	go_round(c, 0);
	before = counter("sched", "stuck");
	halt(c);
	go_round(c, 1);
	/* From here on the second queue waits; it has done so for less long than the first one has halted. */
	pm4_wait(&p, EQUAL, c->out.va + GATE, 1, ~0u);
	submit(&c->q[1], &p);
	end = now_ms() + WAIT_MS;
	while (!log.waiting) {
		if (now_ms() > end)
			FAIL("the queue that waits was not reported; %u others were", log.lines);
		go_round(c, 2);
		read_log(&log, c->q[1].written);
	}
	CHECK_EQ(log.lines, 1);
	CHECK_EQ(counter("sched", "stuck"), before + 1);
	*bo32(&c->out, GATE) = 1;
	go_round(c, 1);
	part(c);
}
