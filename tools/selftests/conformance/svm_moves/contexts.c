// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SVM in contexts of one program (CREATE_PROCESS): each moves the program's memory by attributes of its own, and all see it where it
 * is.
 */
#include "moves.h"
#include "smi.h"

#ifdef AMDKFD_IOC_CREATE_PROCESS
#define MOVES (KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_MIGRATE_START) | KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_MIGRATE_END))

static void open_context(struct agent *a)
{
	struct agent context = { .gpu = { .fd = need_kfd() } };

	CHECK_OK(kfd_call(context.gpu.fd, AMDKFD_IOC_CREATE_PROCESS, NULL));
	agent_open_with(a, 0, &context);
	need_moves(a);
	agent_start(a);
}

CASE_LIMIT(contexts, "SVM: memory that one context has moved the other one uses there, by attributes of its own; a touch is told once", 120)
{
	enum { N = 64 };
	uint8_t *p = patterned(N, 1);
	struct smi_move begin, end;
	struct agent both[2];
	int fd;

	need_rkfd();
	for (unsigned int i = 0; i < 2; i++) {
		open_context(&both[i]);
		allow(&both[i], p, N);
	}
	all_in(&both[0], p, N);
	CHECK_EQ(svm_get(&both[0].gpu, p, N * PAGE, PREFETCH), both[0].gpu.id);
	CHECK_EQ(svm_get(&both[1].gpu, p, N * PAGE, PREFETCH), UNDEFINED);
	for (unsigned int i = 0; i < 2; i++) {
		agent_has_added(&both[i], p, 0, N, 1, 2, i);
		agent_adds(&both[i], p, N, 2, 1);
	}
	CHECK_EQ(device_pages(p, N), N);
	all_out(&both[1], p, N);
	agent_adds(&both[0], p, N, 2, 1);
	CHECK_EQ(device_pages(p, N), 0);
	all_in(&both[1], p, N);
	agent_has_added(&both[0], p, 0, N, 1, 2, 3);
	fd = need_smi(&both[0].gpu, MOVES);
	page_has(p + 20 * PAGE, "CPU", 20, 1, 2, 3);
	CHECK_EQ(smi_moves(fd, &begin, &end, 1), 1);
	CHECK_EQ(begin.trigger, KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU);
	CHECK_EQ(begin.from, both[0].gpu.id);
	CHECK_EQ(begin.to, 0);
	has_added(p, 0, N, 1, 2, 3);
	for (unsigned int i = 0; i < 2; i++)
		agent_stop(&both[i]);
}
#endif
