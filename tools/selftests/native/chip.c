// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A process whose copy takes a reset of the chip, because nothing less ends a copy engine of this GPU: what it gets when the
 * GPU is back, and what others do.
 *
 * Needs the device model of such a GPU, whose control port makes queues refuse.
 */
#include "native.h"
#include "model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define AT 0x100000000ul
#define QUEUE_AT 0x10000000ul
#define OTHER_QUEUE_AT 0x20000000ul
/* More than the model's table of queues takes. */
enum { REPLY = 1 << 20 };

struct user {
	struct nfile file;
	struct nbo out;
};

static void begin(struct user *u)
{
	need_file(&u->file);
	need_nbo(&u->file, &u->out, SYSTEM, PAGE);
	CHECK_OK(bind_one(&u->file, AT, u->out.size, u->out.handle, 0));
}

static void works(struct user *u, struct nqueue *q, uint32_t value)
{
	struct packets p = { .n = 0 };

	if (q->args.type == DRM_RKFD_QUEUE_SDMA)
		sdma_write(&p, AT, &value, 1);
	else
		pm4_write(&p, AT, value);
	nsubmit(q, &p);
	await32((volatile uint32_t *)u->out.cpu, value, "what a queue writes");
}

static bool is_gone(const struct nfile *file)
{
	struct drm_rkfd_device device;
	struct drm_rkfd_query query = { .what = DRM_RKFD_QUERY_DEVICE, .data = (uintptr_t)&device, .size = sizeof(device) };

	return native(file->fd, DRM_IOCTL_RKFD_QUERY, &query) == ENODEV;
}

/* Another process makes a queue for copies. */
static void copies(void *unused)
{
	static struct user u;
	static struct nqueue q;

	(void)unused;
	close_model();
	begin(&u);
	need_nqueue(&u.file, &q, DRM_RKFD_QUEUE_SDMA, QUEUE_AT);
	works(&u, &q, 7);
	drop_nqueue(&u.file, &q);
}

CASE_LIMIT(refused, "a process whose copy took a reset of the chip gets no SDMA queue on the GPU that is back; others do", 240)
{
	static char before[REPLY];
	static struct user u, back;
	static struct nqueue q, again, compute;
	struct drm_rkfd_queue_update stop = { .flags = DRM_RKFD_UPDATE_PERCENTAGE };
	char request[160];
	uint32_t left = WAIT_MS;

	need_model();
	begin(&u);
	snprintf(before, sizeof(before), "%s", ask_model("{\"cmd\":\"queues\"}"));
	need_nqueue(&u.file, &q, DRM_RKFD_QUEUE_SDMA, QUEUE_AT);
	works(&u, &q, 1);
	snprintf(request, sizeof(request), "{\"cmd\":\"fault\",\"kind\":\"ignore-preempt\",\"doorbell\":%lu}",
		 new_doorbell(before, ask_model("{\"cmd\":\"queues\"}")));
	ask_model(request);
	/* It has to leave the hardware and does not; what the call answers depends on how far the reset is. */
	stop.id = q.args.id;
	native(u.file.fd, DRM_IOCTL_RKFD_QUEUE_UPDATE, &stop);
	while (!is_gone(&u.file)) {
		CHECK(left);
		left--;
		usleep(1000);
	}
	/* Not before: the queue is off the hardware, and the model is asked by nobody else. */
	ask_model("{\"cmd\":\"clear-faults\"}");
	while (!has_node()) {
		CHECK(left);
		left--;
		usleep(1000);
	}

	begin(&back);
	nqueue_prepare(&back.file, &again, DRM_RKFD_QUEUE_SDMA, QUEUE_AT);
	CHECK_ERR(nqueue_create(&back.file, &again), EPERM);
	/* By another open file, too. */
	close_file(&u.file);
	need_file(&u.file);
	nqueue_prepare(&u.file, &q, DRM_RKFD_QUEUE_SDMA, QUEUE_AT);
	CHECK_ERR(nqueue_create(&u.file, &q), EPERM);
	/* Where a queue can be reset alone, it is free to make some. */
	need_nqueue(&back.file, &compute, DRM_RKFD_QUEUE_PM4, OTHER_QUEUE_AT);
	works(&back, &compute, 2);
	CHECK_EQ(in_child(copies, NULL), 0);
	drop_nqueue(&back.file, &compute);
	CHECK_ERR(nqueue_create(&back.file, &again), EPERM);
}
