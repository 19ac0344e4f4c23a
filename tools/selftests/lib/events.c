// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "kfd.h"

#include <stdlib.h>
#include <unistd.h>

int event_create(const struct gpu *gpu, uint32_t type, bool auto_reset, uint64_t page, struct event *ev)
{
	struct kfd_ioctl_create_event_args args = {
		.event_page_offset = page,
		.event_type = type,
		.auto_reset = auto_reset,
	};
	int err = kfd_call(gpu->fd, AMDKFD_IOC_CREATE_EVENT, &args);

	if (!err)
		*ev = (struct event){ .id = args.event_id, .slot = args.event_slot_index };
	return err;
}

void need_event(const struct gpu *gpu, bool auto_reset, struct event *ev)
{
	/* One slot page per process; a case is a process. */
	static struct bo page;
	static pid_t owner;
	bool fresh = owner != getpid();

	if (fresh) {
		need_bo(gpu, &page, FLAGS_GTT, EVENT_PAGE_BYTES);
		owner = getpid();
	}
	CHECK_OK(event_create(gpu, KFD_IOC_EVENT_SIGNAL, auto_reset, fresh ? page.handle : 0, ev));
	ev->slot_va = page.va + 8ull * ev->slot;
}

int event_set(const struct gpu *gpu, uint32_t id)
{
	struct kfd_ioctl_set_event_args args = { .event_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_SET_EVENT, &args);
}

int event_reset(const struct gpu *gpu, uint32_t id)
{
	struct kfd_ioctl_reset_event_args args = { .event_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_RESET_EVENT, &args);
}

int event_destroy(const struct gpu *gpu, uint32_t id)
{
	struct kfd_ioctl_destroy_event_args args = { .event_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_DESTROY_EVENT, &args);
}

int event_wait_data(const struct gpu *gpu, struct kfd_event_data *data, uint32_t n, bool all, uint32_t ms,
		    struct waited *out)
{
	struct kfd_ioctl_wait_events_args args = {
		.events_ptr = (uintptr_t)data,
		.num_events = n,
		.wait_for_all = all,
		.timeout = ms,
		.wait_result = 0xffffffff,
	};
	int err = kfd_call(gpu->fd, AMDKFD_IOC_WAIT_EVENTS, &args);

	*out = (struct waited){ .result = args.wait_result, .timeout_left = args.timeout };
	return err;
}

int event_wait(const struct gpu *gpu, const uint32_t *ids, uint32_t n, bool all, uint32_t ms, struct waited *out)
{
	struct kfd_event_data *data = calloc(n ? n : 1, sizeof(*data));
	int err;

	if (!data)
		FAIL("out of memory");
	for (uint32_t i = 0; i < n; i++)
		data[i].event_id = ids[i];
	do {
		err = event_wait_data(gpu, data, n, all, ms, out);
		ms = out->timeout_left;
	} while (err == EINTR);
	free(data);
	return err;
}

uint32_t event_poll(const struct gpu *gpu, uint32_t id)
{
	struct waited w;

	CHECK_OK(event_wait(gpu, &id, 1, true, 0, &w));
	return w.result;
}
