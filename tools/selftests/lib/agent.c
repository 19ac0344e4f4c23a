// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "agent.h"
#include "hints.h"

#include <string.h>

#define SDMA KFD_IOC_QUEUE_TYPE_SDMA
/* Pages that a batch copies behind the one that has the fence. */
#define COPIED 15u
/* Pages of which a batch changes a word. */
#define CHANGED 400u
/* Pages of which a batch looks at a word. */
#define SEEN 256u

void agent_open(struct agent *a, int index)
{
	memset(a, 0, sizeof(*a));
	need_vm(&a->gpu, index);
	need_svm_of(&a->gpu);
}

void agent_open_with(struct agent *a, int index, const struct agent *other)
{
	memset(a, 0, sizeof(*a));
	need_vm_of(&a->gpu, index, other->gpu.fd);
}

void agent_start(struct agent *a)
{
	need_queue(&a->gpu, &a->q, SDMA);
	need_bo(&a->gpu, &a->out, FLAGS_GTT, (1 + COPIED) * PAGE);
}

void agent_stop(struct agent *a)
{
	await_drained(&a->q);
	drop_queue(&a->gpu, &a->q);
	drop_bo(&a->gpu, &a->out);
}

void agent_run(struct agent *a, struct packets *p)
{
	sdma_fence(p, a->out.va + PAGE - 4, ++a->fence);
	submit(&a->q, p);
	await32(bo32(&a->out, PAGE - 4), a->fence, "the fence");
}

uint32_t agent_reads(struct agent *a, const volatile void *at)
{
	struct packets p = { .n = 0 };

	*bo32(&a->out, 0) = 0xdddddddd;
	sdma_copy(&p, (uintptr_t)at, a->out.va, 4);
	agent_run(a, &p);
	return *bo32(&a->out, 0);
}

void agent_writes(struct agent *a, volatile void *at, uint32_t value)
{
	struct packets p = { .n = 0 };

	sdma_write(&p, (uintptr_t)at, &value, 1);
	agent_run(a, &p);
}

void agent_adds(struct agent *a, uint8_t *at, unsigned int pages, unsigned int word, uint64_t value)
{
	for (unsigned int first = 0; first < pages; first += CHANGED) {
		unsigned int count = pages - first < CHANGED ? pages - first : CHANGED;
		struct packets p = { .n = 0 };

		for (unsigned int i = 0; i < count; i++)
			sdma_atomic(&p, 47, (uintptr_t)at + (first + i) * PAGE + 8 * word, value);
		agent_run(a, &p);
	}
}

/* Has it copy pages to where the CPU reads them. */
static const uint8_t *copied(struct agent *a, const uint8_t *at, unsigned int pages)
{
	uint8_t *to = (uint8_t *)a->out.va + PAGE;
	struct packets p = { .n = 0 };

	memset(to, 0x5a, pages * PAGE);
	/* The GPU's stores come after these. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (unsigned int i = 0; i < pages; i++)
		sdma_copy(&p, (uintptr_t)at + i * PAGE, (uintptr_t)to + i * PAGE, PAGE);
	agent_run(a, &p);
	return to;
}

void agent_has_added(struct agent *a, const uint8_t *at, unsigned int first, unsigned int pages, uint32_t seed,
		     unsigned int word, uint64_t value)
{
	for (unsigned int done = 0; done < pages; done += COPIED) {
		unsigned int count = pages - done < COPIED ? pages - done : COPIED;
		const uint8_t *seen = copied(a, at + done * PAGE, count);

		for (unsigned int i = 0; i < count; i++)
			page_has(seen + i * PAGE, "GPU", first + done + i, seed, word, value);
	}
}

void agent_has_pattern(struct agent *a, const uint8_t *at, unsigned int first, unsigned int pages, uint32_t seed)
{
	agent_has_added(a, at, first, pages, seed, 0, 0);
}

void agent_has_zeroes(struct agent *a, const uint8_t *at, unsigned int pages)
{
	for (unsigned int done = 0; done < pages; done += COPIED) {
		unsigned int count = pages - done < COPIED ? pages - done : COPIED;
		const uint8_t *seen = copied(a, at + done * PAGE, count);

		for (unsigned int i = 0; i < count; i++)
			page_is_zero(seen + i * PAGE, "GPU", done + i);
	}
}

void agent_sees(struct agent *a, const uint8_t *at, unsigned int pages, uint32_t seed)
{
	for (unsigned int first = 0; first < pages; first += SEEN) {
		unsigned int count = pages - first < SEEN ? pages - first : SEEN;
		struct packets p = { .n = 0 };

		for (unsigned int i = 0; i < count; i++)
			sdma_copy(&p, (uintptr_t)at + (first + i) * PAGE, a->out.va + 4 * i, 4);
		agent_run(a, &p);
		for (unsigned int i = 0; i < count; i++)
			CHECK_EQ(*bo32(&a->out, 4 * i), seed + first + i);
	}
}

void mark_pages(uint8_t *at, unsigned int pages, uint32_t seed)
{
	for (unsigned int i = 0; i < pages; i++)
		*(volatile uint32_t *)(at + i * PAGE) = seed + i;
}

void has_marks(const uint8_t *at, unsigned int pages, uint32_t seed)
{
	for (unsigned int i = 0; i < pages; i++)
		CHECK_EQ(*(const volatile uint32_t *)(at + i * PAGE), seed + i);
}

void agent_is_refused(struct agent *a, volatile void *at, bool write)
{
	struct kfd_event_data data = { 0 };
	struct packets p = { .n = 0 };
	uint32_t value = 0xbad;
	struct event fault;
	struct waited w;
	int err;

	CHECK_OK(event_create(&a->gpu, KFD_IOC_EVENT_MEMORY, false, 0, &fault));
	if (write)
		sdma_write(&p, (uintptr_t)at, &value, 1);
	else
		sdma_copy(&p, (uintptr_t)at, a->out.va, 4);
	submit(&a->q, &p);
	data.event_id = fault.id;
	do {
		err = event_wait_data(&a->gpu, &data, 1, true, WAIT_MS, &w);
	} while (err == EINTR);
	CHECK_OK(err);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data.memory_exception_data.gpu_id, a->gpu.id);
	CHECK_EQ(data.memory_exception_data.va, (uintptr_t)at & ~(PAGE - 1));
}

void need_moves(const struct agent *a)
{
	/* Another file: that of the GPU's address space is not asked for anything else. */
	struct nfile file = { .fd = -1 };
	struct drm_rkfd_query query = {
		.what = DRM_RKFD_QUERY_DEVICE, .data = (uintptr_t)&file.device, .size = sizeof(file.device),
	};

	if (!is_rkfd())
		return;
	file.fd = need_render(&a->gpu);
	CHECK_OK(native(file.fd, DRM_IOCTL_RKFD_QUERY, &query));
	need_migration(&file);
	close_file(&file);
}

uint64_t agent_count(const struct agent *a, const char *name)
{
	/* Only its device is asked for. */
	const struct nfile file = { .fd = a->gpu.drm };

	return mirror_count(&file, name);
}

uint64_t agent_has(const struct agent *a, const char *word)
{
	const struct nfile file = { .fd = a->gpu.drm };

	return mirrors_have(&file, word);
}
