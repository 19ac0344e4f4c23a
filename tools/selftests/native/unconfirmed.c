// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A mirror is filled while the GPU does not confirm that it dropped translations. Nobody holds the memory of a mirror, so the GPU
 * must not reach any by the time that the call has failed.
 *
 * Needs the device model, whose control port has such a fault, and breaks the GPU.
 */
#include "mirror.h"
#include "model.h"

CASE_LIMIT(filled, "a mirror is filled by a GPU that confirms no flush: the call fails, and the GPU has lost bus mastering", 240)
{
	uint8_t *p = need_memory(16 * PAGE);
	struct drm_rkfd_mirror_create args;
	struct engine e;
	struct nbo bo;

	need_model();
	engine_begin(&e);
	need_nbo(&e.file, &bo, SYSTEM, PAGE);
	CHECK_OK(bind_one(&e.file, AT + HUGE, bo.size, bo.handle, 0));
	fill(p, 16, 0x100);
	/* The GPU knows translations of a mirror, too. */
	need_mirror(&e.file, p, AT + 2 * HUGE, 8 * PAGE, 0);
	gpu_sees(&e, AT + 2 * HUGE, 8, 0x100);
	gpu_write(&e, AT + HUGE, 0x600d);
	CHECK_EQ(*(volatile uint32_t *)bo.cpu, 0x600d);
	CHECK(masters_the_bus());
	ask_model("{\"cmd\":\"fault\",\"kind\":\"deaf-tlb\"}");
	/* From here on a flush is owed, by whoever writes entries next. */
	CHECK_ERR(unbind_one(&e.file, AT + HUGE, bo.size), ETIMEDOUT);
	CHECK(masters_the_bus());
	CHECK_ERR(mirror_create(&e.file, p + 8 * PAGE, AT, 8 * PAGE, 0, &args), ETIMEDOUT);
	CHECK(!masters_the_bus());
	ask_model("{\"cmd\":\"clear-faults\"}");
}
