// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Events signalled by the CPU: ids, limits, the page, auto-reset, life time. (event_waits.c has the waiting.)
 */
#include "kfd.h"

#define UNKNOWN 4095u

CASE(create_values, "CREATE_EVENT: a signal event's id, slot and trigger agree and are not 0")
{
	struct kfd_ioctl_create_event_args args = { .event_type = KFD_IOC_EVENT_SIGNAL };
	struct event first;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &first);
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_CREATE_EVENT, &args));
	CHECK_NE(args.event_id, 0);
	CHECK_NE(args.event_id, first.id);
	CHECK_OP(args.event_id, <, KFD_SIGNAL_EVENT_LIMIT);
	CHECK_EQ(args.event_slot_index, args.event_id);
	CHECK_EQ(args.event_trigger_data, args.event_id);
	CHECK_EQ(args.event_page_offset, 2ull << 62);
}

CASE(create_slot_idle, "CREATE_EVENT: the slots of a new page are all ones")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	CHECK_EQ(*(volatile uint64_t *)ev.slot_va, ~0ull);
}

CASE(create_lowest, "CREATE_EVENT: the lowest free id is reused")
{
	struct event a, b, c, again;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &a);
	need_event(&gpu, false, &b);
	need_event(&gpu, false, &c);
	CHECK_EQ(b.id, a.id + 1);
	CHECK_EQ(c.id, b.id + 1);
	CHECK_OK(event_destroy(&gpu, b.id));
	need_event(&gpu, false, &again);
	CHECK_EQ(again.id, b.id);
}

CASE(reused_is_fresh, "CREATE_EVENT: a reused id is not signalled and its slot is idle")
{
	struct event a, b;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &a);
	CHECK_OK(event_set(&gpu, a.id));
	*(volatile uint64_t *)a.slot_va = a.id;
	CHECK_OK(event_destroy(&gpu, a.id));
	need_event(&gpu, false, &b);
	CHECK_EQ(b.id, a.id);
	CHECK_EQ(*(volatile uint64_t *)b.slot_va, ~0ull);
	CHECK_EQ(event_poll(&gpu, b.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

CASE(create_other_types, "CREATE_EVENT: memory and hardware events have ids above 0x40000000 and need no page")
{
	struct event memory, hardware;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &memory));
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_HW_EXCEPTION, false, 0, &hardware));
	CHECK_OP(memory.id, >=, 0x40000000);
	CHECK_OP(hardware.id, >=, 0x40000000);
	CHECK_NE(memory.id, hardware.id);
	CHECK_EQ(event_poll(&gpu, memory.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_EQ(event_poll(&gpu, hardware.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

CASE(create_silent_types, "CREATE_EVENT: the types that nothing signals are taken, and SET of them is EINVAL")
{
	static const uint32_t types[] = {
		KFD_IOC_EVENT_NODECHANGE, KFD_IOC_EVENT_DEVICESTATECHANGE, KFD_IOC_EVENT_SYSTEM_EVENT,
		KFD_IOC_EVENT_PROFILE_EVENT, KFD_IOC_EVENT_QUEUE_EVENT,
	};
	struct event ev[5];
	struct gpu gpu;

	need_vm(&gpu, 0);
	for (int i = 0; i < 5; i++) {
		CHECK_OK(event_create(&gpu, types[i], true, 0, &ev[i]));
		CHECK_OP(ev[i].id, >=, 0x40000000);
		for (int k = 0; k < i; k++)
			CHECK_NE(ev[i].id, ev[k].id);
		CHECK_ERR(event_set(&gpu, ev[i].id), EINVAL);
		CHECK_EQ(event_poll(&gpu, ev[i].id), KFD_IOC_WAIT_RESULT_TIMEOUT);
	}
	for (int i = 0; i < 5; i++)
		CHECK_OK(event_destroy(&gpu, ev[i].id));
}

CASE(create_debug, "CREATE_EVENT: a debug event needs the page and has a slot, and SET and RESET of it are EINVAL")
{
	struct event signal, debug;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_DEBUG_EVENT, false, 0, &debug), ENOMEM);
	need_event(&gpu, false, &signal);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_DEBUG_EVENT, false, 0, &debug));
	CHECK_OP(debug.id, <, KFD_SIGNAL_EVENT_LIMIT);
	CHECK_EQ(debug.slot, debug.id);
	CHECK_NE(debug.slot, signal.slot);
	CHECK_ERR(event_set(&gpu, debug.id), EINVAL);
	CHECK_ERR(event_reset(&gpu, debug.id), EINVAL);
	CHECK_EQ(event_poll(&gpu, debug.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_OK(event_destroy(&gpu, debug.id));
}

CASE(create_no_page, "CREATE_EVENT: a signal event before there is a page is ENOMEM")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, 0, &ev), ENOMEM);
}

CASE(page_twice, "CREATE_EVENT: a second page is EINVAL")
{
	struct event ev;
	struct gpu gpu;
	struct bo other;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	need_bo(&gpu, &other, FLAGS_GTT, EVENT_PAGE_BYTES);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, other.handle, &ev), EINVAL);
	drop_bo(&gpu, &other);
}

CASE(page_bad_handle, "CREATE_EVENT: a page handle that does not exist is EINVAL")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, (uint64_t)gpu.id << 32 | 0x7fffffff, &ev), EINVAL);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, (uint64_t)(gpu.id ^ 0x5555) << 32 | 1, &ev), EINVAL);
}

CASE(page_wrong_kind, "CREATE_EVENT: a page in user memory is EINVAL")
{
	struct event ev;
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_USERPTR, EVENT_PAGE_BYTES);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, bo.handle, &ev), EINVAL);
	drop_bo(&gpu, &bo);
}

CASE(page_in_vram, "CREATE_EVENT: a page in VRAM is EINVAL")
{
	struct event ev;
	struct gpu gpu;
	struct bo bo;

	if (!is_rkfd())
		SKIP("other drivers move it");
	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_VRAM, EVENT_PAGE_BYTES);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, bo.handle, &ev), EINVAL);
	drop_bo(&gpu, &bo);
}

CASE(page_too_small, "CREATE_EVENT: a page of less than 32 KiB is refused, a good one after it is not")
{
	struct event ev;
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, EVENT_PAGE_BYTES / 2);
	CHECK_ERR(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, bo.handle, &ev), EINVAL);
	need_event(&gpu, false, &ev);
	drop_bo(&gpu, &bo);
}

CASE(page_not_freed, "FREE: of the event page is EPERM")
{
	struct event ev;
	struct gpu gpu;
	struct bo page;

	need_vm(&gpu, 0);
	need_bo(&gpu, &page, FLAGS_GTT, EVENT_PAGE_BYTES);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, page.handle, &ev));
	CHECK_ERR(bo_free(&gpu, &page), EPERM);
	CHECK_OK(event_destroy(&gpu, ev.id));
	CHECK_ERR(bo_free(&gpu, &page), EPERM);
}

CASE_LIMIT(limit, "CREATE_EVENT: 4095 signal events and one more is ENOSPC; a destroyed one makes room", 120)
{
	struct event ev, last;
	struct gpu gpu;
	int err = 0;
	unsigned int n = 1;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	while (n < 5000 && !(err = event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, 0, &last)))
		n++;
	CHECK_EQ(n, KFD_SIGNAL_EVENT_LIMIT - 1);
	CHECK_ERR(err, ENOSPC);
	CHECK_OK(event_destroy(&gpu, ev.id));
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_SIGNAL, false, 0, &last));
	CHECK_EQ(last.id, ev.id);
}

CASE_LIMIT(limit_other, "CREATE_EVENT: 65536 events without a slot and one more is ENOSPC; a destroyed one makes room", 240)
{
	struct event first, last;
	unsigned int n = 1;
	struct gpu gpu;
	int err = 0;

	if (!is_rkfd())
		SKIP("other drivers have room for a billion");
	need_vm(&gpu, 0);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &first));
	while (n < 70000 && !(err = event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &last)))
		n++;
	CHECK_EQ(n, 65536);
	CHECK_ERR(err, ENOSPC);
	CHECK_OK(event_destroy(&gpu, first.id));
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &last));
	CHECK_EQ(last.id, first.id);
}

CASE(unknown_ids, "SET, RESET, DESTROY and WAIT of an unknown id are EINVAL")
{
	struct event ev;
	struct waited w;
	struct gpu gpu;
	uint32_t ids[] = { UNKNOWN, 0, 0x40000000, 0xffffffff };

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	for (unsigned int i = 0; i < 4; i++) {
		CHECK_ERR(event_set(&gpu, ids[i]), EINVAL);
		CHECK_ERR(event_reset(&gpu, ids[i]), EINVAL);
		CHECK_ERR(event_destroy(&gpu, ids[i]), EINVAL);
		CHECK_ERR(event_wait(&gpu, &ids[i], 1, true, 0, &w), EINVAL);
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_FAIL);
	}
}

CASE(destroy_twice, "DESTROY_EVENT: twice is EINVAL")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	CHECK_OK(event_destroy(&gpu, ev.id));
	CHECK_ERR(event_destroy(&gpu, ev.id), EINVAL);
}

CASE(set_other_types, "SET and RESET of a memory event are EINVAL")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(event_create(&gpu, KFD_IOC_EVENT_MEMORY, false, 0, &ev));
	CHECK_ERR(event_set(&gpu, ev.id), EINVAL);
	CHECK_ERR(event_reset(&gpu, ev.id), EINVAL);
	CHECK_OK(event_destroy(&gpu, ev.id));
}

CASE(manual_reset, "a manual event stays signalled until RESET")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	CHECK_EQ(event_poll(&gpu, ev.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_OK(event_set(&gpu, ev.id));
	for (int i = 0; i < 3; i++)
		CHECK_EQ(event_poll(&gpu, ev.id), KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_OK(event_reset(&gpu, ev.id));
	CHECK_EQ(event_poll(&gpu, ev.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

CASE(auto_reset, "an auto-reset event satisfies one wait")
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ev);
	CHECK_OK(event_set(&gpu, ev.id));
	CHECK_OK(event_set(&gpu, ev.id));
	CHECK_EQ(event_poll(&gpu, ev.id), KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(event_poll(&gpu, ev.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

CASE(auto_reset_consumed, "an auto-reset event that was signalled is consumed even if the wait times out on another")
{
	struct event ready, never;
	struct waited w;
	struct gpu gpu;
	uint32_t ids[2];

	need_vm(&gpu, 0);
	need_event(&gpu, true, &ready);
	need_event(&gpu, true, &never);
	ids[0] = ready.id;
	ids[1] = never.id;
	CHECK_OK(event_set(&gpu, ready.id));
	CHECK_OK(event_wait(&gpu, ids, 2, true, 10, &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_EQ(event_poll(&gpu, ready.id), KFD_IOC_WAIT_RESULT_TIMEOUT);
}

static void child_tries_event(void *id)
{
	struct event ev;
	struct gpu gpu;

	need_vm(&gpu, 0);
	need_event(&gpu, false, &ev);
	/* The parent's event is number two and more; here only one exists. */
	CHECK_ERR(event_set(&gpu, *(uint32_t *)id), EINVAL);
	CHECK_ERR(event_destroy(&gpu, *(uint32_t *)id), EINVAL);
}

CASE(foreign_event, "another process's event is unknown here")
{
	struct event ev[3];
	struct gpu gpu;

	need_vm(&gpu, 0);
	for (int i = 0; i < 3; i++)
		need_event(&gpu, false, &ev[i]);
	CHECK_EQ(in_child(child_tries_event, &ev[2].id), 0);
	CHECK_EQ(event_poll(&gpu, ev[2].id), KFD_IOC_WAIT_RESULT_TIMEOUT);
	CHECK_OK(event_destroy(&gpu, ev[2].id));
}
