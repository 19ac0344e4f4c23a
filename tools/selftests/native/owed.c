// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of the caller goes after a list has unmapped it on a GPU that did not confirm that it dropped the translations. No range
 * names that memory any more: queues run again when the flush has been repeated, and what goes later does not concern them.
 *
 * Needs the device model, whose control port has such a fault, and leaves memory that the driver keeps until it is unbound.
 */
#include "debugfs.h"
#include "mirror.h"
#include "model.h"

#include <sys/mman.h>

CASE_LIMIT(owed, "memory goes that a list could not unmap for certain: queues stop for that once, and do not reach it", 240)
{
	uint8_t *p = need_memory(4 * PAGE);
	struct drm_rkfd_bind_op op = {
		.op = DRM_RKFD_BIND_MAP_USER,
		.flags = DRM_RKFD_BIND_WRITE,
		.address = AT,
		.length = 4 * PAGE,
		.offset = (uintptr_t)p,
	};
	struct packets late = { .n = 0 };
	uint32_t failed, value = 0xbad;
	struct drm_rkfd_fault fault;
	unsigned long stops;
	struct engine e;

	need_model();
	engine_begin(&e);
	CHECK_OK(bind_list(&e.file, &op, 1, &failed));
	/* The GPU knows the translation from here on. */
	gpu_write(&e, AT + PAGE, 0x600d);
	CHECK_EQ(*word(p, PAGE), 0x600d);
	ask_model("{\"cmd\":\"fault\",\"kind\":\"deaf-tlb\"}");
	CHECK_ERR(unbind_one(&e.file, AT, 4 * PAGE), ETIMEDOUT);
	/* The memory is kept, so this is no reason to give the GPU up. */
	CHECK(masters_the_bus());
	ask_model("{\"cmd\":\"clear-faults\"}");
	/* A page goes, and the queues stop for it, since the GPU may know where it was. */
	stops = sched_counter("evictions");
	CHECK_EQ(madvise(p, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(sched_counter("evictions"), stops + 1);
	/* They run again, behind the flush. */
	gpu_write(&e, OUT_AT + 64, 0x77);
	CHECK_EQ(*out32(&e, 64), 0x77);
	/* From here on it is known that the GPU knows nothing of the others. */
	CHECK_EQ(madvise(p + PAGE, 3 * PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(sched_counter("evictions"), stops + 1);
	sdma_write(&late, AT + PAGE, &value, 1);
	nsubmit(&e.q, &late);
	fault = await_fault(&e);
	CHECK_EQ(fault.address, AT + PAGE);
	CHECK_EQ(*word(p, PAGE), 0);
	CHECK(masters_the_bus());
}
