// SPDX-License-Identifier: GPL-2.0 OR MIT
// Tasks from OpenCL C, without its library.
#include "rkfd_tasks.h"

#define MIX 2u

__attribute__((reqd_work_group_size(64, 1, 1)))
kernel void ask_cl(global struct rkfd_tasks *tasks, uint rounds, uint tries, global ulong *out)
{
	uint i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
	uint answer = RKFD_TASK_OK;
	ulong sum = 0;

	for (uint n = 0; n < rounds && answer == RKFD_TASK_OK; n++) {
		ulong args[2] = { i, n };
		rkfd_future future = 0;
		ulong value = 0;

		answer = RKFD_TASK(tasks, RKFD_TASK_LOW, MIX, args, &future, tries);
		if (answer == RKFD_TASK_OK)
			answer = rkfd_future_wait(tasks, future, tries, &value);
		sum = sum * 31 + value;
	}
	out[2 * i] = sum;
	out[2 * i + 1] = answer;
}
