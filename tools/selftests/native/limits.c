// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The native interface: how much there can be of everything, and what the other interface keeps.
 */
#include "native.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define QUEUE_AT 0x10000000ul
/* More files than a GPU has pages of doorbells for. */
#define FILES 900

static int create(const struct nfile *file, const struct drm_rkfd_queue_create *wanted, uint32_t *id)
{
	struct drm_rkfd_queue_create args = *wanted;
	int err = native(file->fd, DRM_IOCTL_RKFD_QUEUE_CREATE, &args);

	*id = args.id;
	return err;
}

/* A queue that does not run, in memory that nothing but its range keeps. */
static struct drm_rkfd_queue_create need_idle(const struct nfile *file)
{
	struct nbo bo;

	CHECK_OK(nbo_create(file, &bo, SYSTEM, 2 * PAGE, DRM_RKFD_BO_UNCACHED));
	CHECK_OK(bind_one(file, QUEUE_AT, bo.size, bo.handle, 0));
	CHECK_OK(nbo_close(file, bo.handle));
	return (struct drm_rkfd_queue_create){
		.type = DRM_RKFD_QUEUE_SDMA,
		.ring = QUEUE_AT,
		.ring_size = PAGE,
		.write_pointer = QUEUE_AT + PAGE + 8,
		.read_pointer = QUEUE_AT + PAGE + 16,
		.engine = DRM_RKFD_ENGINE_ANY,
		.priority = 7,
	};
}

CASE_LIMIT(most_queues, "QUEUE_CREATE: ENOSPC when the file has max_queues; one that is destroyed makes room", 120)
{
	struct nfile file;
	struct nqueue q;
	uint32_t id, first = 0;

	need_file(&file);
	nqueue_prepare(&file, &q, DRM_RKFD_QUEUE_PM4, QUEUE_AT);
	q.args.percentage = 0;
	CHECK(file.device.max_queues >= 100);
	for (uint32_t i = 0; i < file.device.max_queues; i++) {
		CHECK_OK(create(&file, &q.args, &id));
		if (!i)
			first = id;
	}
	CHECK_ERR(create(&file, &q.args, &id), ENOSPC);
	CHECK_OK(nqueue_destroy(&file, first));
	CHECK_OK(create(&file, &q.args, &id));
	CHECK_EQ(id, first);
	CHECK_ERR(create(&file, &q.args, &id), ENOSPC);
	close_file(&file);
}

CASE(most_sdma_queues, "QUEUE_CREATE: ENOMEM when no SDMA queue is left; one that is destroyed makes room, in any file")
{
	struct nfile file, other;
	struct drm_rkfd_queue_create args, others;
	uint32_t id, last = 0, count = 0, most;
	int err;

	need_file(&file);
	need_file(&other);
	args = need_idle(&file);
	others = need_idle(&other);
	most = file.device.sdma_general * file.device.sdma_queues;
	while (!(err = create(&file, &args, &id))) {
		last = id;
		CHECK_OP(++count, <=, most);
	}
	CHECK_ERR(err, ENOMEM);
	CHECK_OP(count, >, 0);
	CHECK_ERR(create(&other, &others, &id), ENOMEM);
	CHECK_OK(nqueue_destroy(&file, last));
	CHECK_OK(create(&other, &others, &id));
	close_file(&file);
	close_file(&other);
}

CASE_LIMIT(most_files, "QUEUE_CREATE: EUSERS when other files have all doorbells; one that is closed makes room", 240)
{
	static struct nfile files[FILES];
	struct drm_rkfd_queue_create args;
	uint64_t end;
	uint32_t id, count;
	int err = 0;

	for (count = 0; err != EUSERS; count++) {
		if (count == FILES)
			SKIP("%u files have doorbells", FILES);
		need_file(&files[count]);
		args = need_idle(&files[count]);
		err = create(&files[count], &args, &id);
		/* The SDMA queues are fewer than the doorbells: a file for which none is left has its doorbells all the same. */
		if (err != ENOMEM && err != EUSERS)
			CHECK_OK(err);
	}
	CHECK_OP(count, >, 8);
	/* The first one has a queue, too. It leaves the hardware first. */
	close_file(&files[0]);
	end = now_ms() + WAIT_MS;
	while ((err = create(&files[count - 1], &args, &id)) == EUSERS && now_ms() < end)
		usleep(1000);
	CHECK_OK(err);
	for (uint32_t i = 1; i < count; i++)
		close_file(&files[i]);
}

CASE(kfd_has_it, "every call that changes an address space is EBUSY where /dev/kfd has it")
{
	struct drm_rkfd_queue_create queue = {
		.type = DRM_RKFD_QUEUE_SDMA,
		.ring = QUEUE_AT,
		.ring_size = PAGE,
		.write_pointer = QUEUE_AT + PAGE + 8,
		.read_pointer = QUEUE_AT + PAGE + 16,
		.engine = DRM_RKFD_ENGINE_ANY,
	};
	struct drm_rkfd_event_create event = { .eventfd = eventfd(0, EFD_CLOEXEC) };
	uint64_t word = 0;
	struct drm_rkfd_wait_op op = { .address = (uintptr_t)&word, .mask = ~0ull, .size = 8 };
	struct drm_rkfd_wait wait = { .ops = (uintptr_t)&op, .count = 1, .stride = sizeof(op) };
	struct drm_rkfd_fault record;
	struct drm_rkfd_faults faults = { .records = (uintptr_t)&record, .count = 1, .stride = sizeof(record) };
	struct nfile file;
	struct gpu gpu;
	struct nbo bo;

	need_gpu(&gpu, 0);
	need_file(&file);
	CHECK_OK(acquire_vm(&gpu, file.fd));
	CHECK_ERR(unbind_one(&file, QUEUE_AT, PAGE), EBUSY);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_QUEUE_CREATE, &queue), EBUSY);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_EVENT_CREATE, &event), EBUSY);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_WAIT, &wait), EBUSY);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_FAULTS, &faults), EBUSY);
	/* What changes none of it works. */
	CHECK_OK(nbo_create(&file, &bo, VRAM, PAGE, 0));
	CHECK_EQ(ranges_of(&file, &bo), 0);
}
