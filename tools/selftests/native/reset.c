// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The native interface while the engines are reset: a scheduler that is dead is found by whoever wants something of it, and
 * everybody's queues and doorbells go on.
 */
#include "native.h"
#include "model.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define AT 0x100000000ul
#define QUEUE_AT 0x10000000ul

struct fixture {
	struct nfile file;
	struct nqueue q;
	struct nbo out;
	atomic_bool end;
	uint32_t rung;
};

static void begin(struct fixture *f, uint32_t type)
{
	need_file(&f->file);
	need_nqueue(&f->file, &f->q, type, QUEUE_AT);
	need_nbo(&f->file, &f->out, SYSTEM, PAGE);
	CHECK_OK(bind_one(&f->file, AT, f->out.size, f->out.handle, 0));
}

static void work(struct fixture *f, uint32_t value)
{
	struct packets p = { .n = 0 };

	if (f->q.args.type == DRM_RKFD_QUEUE_SDMA)
		sdma_write(&p, AT, &value, 1);
	else
		pm4_write(&p, AT, value);
	nsubmit(&f->q, &p);
	await32((volatile uint32_t *)f->out.cpu, value, "what a queue writes");
}

static int event_of(const struct nfile *file, uint32_t condition)
{
	struct drm_rkfd_event_create args = { .eventfd = eventfd(0, EFD_CLOEXEC), .condition = condition };

	CHECK_OK(native(file->fd, DRM_IOCTL_RKFD_EVENT_CREATE, &args));
	return args.eventfd;
}

static bool is_signalled(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Rings all the time, so that the mapping of the doorbells goes from under it. */
static void *ring_on(void *context)
{
	struct fixture *f = context;

	while (!f->end)
		work(f, ++f->rung);
	return NULL;
}

CASE_LIMIT(doorbells, "doorbells that are rung while the engines are reset: the thread waits, the work is done, no event tells", 240)
{
	static struct fixture idle, busy, other;
	pthread_t thread;
	uint32_t before;
	int lost, failed;

	need_model();
	begin(&idle, DRM_RKFD_QUEUE_SDMA);
	begin(&busy, DRM_RKFD_QUEUE_PM4);
	lost = event_of(&idle.file, DRM_RKFD_EVENT_RESET);
	failed = event_of(&idle.file, DRM_RKFD_EVENT_QUEUE);
	work(&idle, 1);
	CHECK_EQ(pthread_create(&thread, NULL, ring_on, &busy), 0);
	ask_model("{\"cmd\":\"fault\",\"kind\":\"hang-hws\"}");
	/* A queue that nothing maps any more: whoever makes it finds the dead scheduler. */
	begin(&other, DRM_RKFD_QUEUE_PM4);
	work(&other, 3);
	/* All others go on, by the mappings that they had. */
	work(&idle, 2);
	before = __atomic_load_n(&busy.rung, __ATOMIC_ACQUIRE);
	work(&other, 4);
	while (__atomic_load_n(&busy.rung, __ATOMIC_ACQUIRE) == before)
		usleep(1000);
	busy.end = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(!is_signalled(lost));
	CHECK(!is_signalled(failed));
	drop_nqueue(&idle.file, &idle.q);
	drop_nqueue(&busy.file, &busy.q);
	drop_nqueue(&other.file, &other.q);
}
