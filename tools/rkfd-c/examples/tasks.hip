// SPDX-License-Identifier: GPL-2.0 OR MIT
// The kernel of tasks.c: each work-item asks the CPU for a sum, and waits for it. HIP without its headers.
#include "rkfd_tasks.h"

extern "C" __attribute__((global)) void sums(struct rkfd_tasks *tasks, rkfd_u64 *out)
{
	rkfd_u64 item = __builtin_amdgcn_workitem_id_x();
	struct { rkfd_u64 a, b; } args = { item, 2 };
	rkfd_u32 tries = 1u << 30;
	rkfd_future future;
	rkfd_u64 sum = 0;

	if (RKFD_TASK(tasks, RKFD_TASK_LOW, 1, args, &future, tries) == RKFD_TASK_OK &&
	    rkfd_future_wait(tasks, future, tries, &sum) == RKFD_TASK_OK)
		out[item] = sum;
}
