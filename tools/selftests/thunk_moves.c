// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Memory that moves to VRAM and back by attributes of SVM, through libhsakmt: what each side sees, and where it is. */
#include "thunk.h"

#include "pages.h"

#define N 64u

/* The thunk makes ids of GPUs from numbers of nodes, and of locations back. */
static HSAKMT_STATUS set(void *p, unsigned int pages, HSA_SVM_ATTR_TYPE type, HSAuint32 value)
{
	HSA_SVM_ATTRIBUTE attribute = { type, value };

	return hsaKmtSVMSetAttr(p, pages * PAGE, 1, &attribute);
}

static HSAuint32 get(void *p, unsigned int pages, HSA_SVM_ATTR_TYPE type)
{
	HSA_SVM_ATTRIBUTE attribute = { type, 0 };

	HSA_OK(hsaKmtSVMGetAttr(p, pages * PAGE, 1, &attribute));
	return attribute.value;
}

static uint8_t *need_pattern(uint32_t seed)
{
	uint8_t *p;

	if (!gpu.Capability.ui32.SVMAPISupported)
		SKIP("the driver has no SVM");
	p = mmap(NULL, N * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	CHECK_EQ(madvise(p, N * PAGE, MADV_NOHUGEPAGE), 0);
	pattern(p, 0, N, seed);
	return p;
}

/* Until all is there: again for pages that somebody had in hand for a moment. */
static void prefetch(void *p, HSAuint32 location)
{
	uint64_t end = now_ms() + PATIENCE_MS;
	unsigned int wanted = location == node ? N : 0;

	for (;;) {
		HSA_OK(set(p, N, HSA_SVM_ATTR_PREFETCH_LOC, location));
		if (device_pages(p, N) == wanted)
			break;
		if (now_ms() > end)
			FAIL("%u pages of %u are in VRAM", device_pages(p, N), N);
		usleep(1000);
	}
	CHECK_EQ(get(p, N, HSA_SVM_ATTR_PREFETCH_LOC), location);
}

/* The GPU compares nothing: it copies, and adds. */
struct worker {
	struct queue q;
	uint8_t *copy;
	uint32_t ticket;
};

static void begin(struct worker *w)
{
	need_queue(&w->q, HSA_QUEUE_COMPUTE);
	w->copy = host_memory(2 * PAGE);
	w->ticket = 0;
}

static void finish(struct worker *w)
{
	drop_queue(&w->q);
	release(w->copy, 2 * PAGE);
}

static void run(struct worker *w, struct packets *k)
{
	pm4_write(k, (uintptr_t)w->copy + PAGE, ++w->ticket);
	submit(&w->q, k);
	await((volatile uint32_t *)(w->copy + PAGE), w->ticket, "the last packet");
}

static void gpu_has(struct worker *w, const uint8_t *p, uint32_t seed, uint64_t added)
{
	struct packets k = { .n = 0 };

	for (unsigned int i = 0; i < N; i++) {
		memset(w->copy, 0x5a, PAGE);
		pm4_dma(&k, (uintptr_t)p + i * PAGE, (uintptr_t)w->copy, PAGE);
		run(w, &k);
		page_has(w->copy, "GPU", i, seed, 3, added);
	}
}

static void gpu_adds(struct worker *w, uint8_t *p, uint64_t value)
{
	struct packets k = { .n = 0 };

	for (unsigned int i = 0; i < N; i++) {
		pm4_atomic(&k, 47, (uintptr_t)p + i * PAGE + 3 * 8, value);
		/* The ring is a page. */
		if (i % 32 == 31)
			run(w, &k);
	}
}

CASE_LIMIT(prefetched, "attributes of SVM: a prefetch moves memory to the GPU, where that works on it, and back", 120)
{
	struct worker w;
	uint8_t *p;

	need_gpu();
	p = need_pattern(1);
	HSA_OK(set(p, N, HSA_SVM_ATTR_ACCESS_IN_PLACE, node));
	CHECK_EQ(get(p, N, HSA_SVM_ATTR_PREFETCH_LOC), INVALID_NODEID);
	begin(&w);
	prefetch(p, node);
	gpu_has(&w, p, 1, 0);
	gpu_adds(&w, p, 5);
	CHECK_EQ(device_pages(p, N), N);
	prefetch(p, 0);
	has_added(p, 0, N, 1, 3, 5);
	gpu_adds(&w, p, 1);
	CHECK_EQ(device_pages(p, N), 0);
	prefetch(p, node);
	gpu_has(&w, p, 1, 6);
	/* The CPU brings it back. */
	has_added(p, 0, N, 1, 3, 6);
	CHECK_EQ(device_pages(p, N), 0);
	CHECK_EQ(get(p, N, HSA_SVM_ATTR_PREFETCH_LOC), node);
	/* No location is none. */
	CHECK_NE(set(p, N, HSA_SVM_ATTR_PREFETCH_LOC, machine.NumNodes), HSAKMT_STATUS_SUCCESS);
	CHECK_EQ(device_pages(p, N), 0);
	finish(&w);
	CHECK_EQ(munmap(p, N * PAGE), 0);
}

CASE_LIMIT(by_accesses, "attributes of SVM with XNACK: an access moves memory to the GPU that is preferred", 120)
{
	struct worker w;
	uint64_t end;
	uint8_t *p;

	need_gpu();
	if (access("/sys/module/rkfd", F_OK))
		SKIP("how much an access moves is the driver's choice");
	p = need_pattern(2);
	if (hsaKmtSetXNACKMode(1) != HSAKMT_STATUS_SUCCESS)
		SKIP("a GPU has no XNACK");
	HSA_OK(set(p, N, HSA_SVM_ATTR_PREFERRED_LOC, 0));
	begin(&w);
	gpu_has(&w, p, 2, 0);
	CHECK_EQ(device_pages(p, N), 0);
	CHECK_EQ(get(p, N, HSA_SVM_ATTR_PREFERRED_LOC), 0);
	end = now_ms() + PATIENCE_MS;
	do {
		if (now_ms() > end)
			FAIL("%u pages of %u are in VRAM", device_pages(p, N), N);
		HSA_OK(set(p, N, HSA_SVM_ATTR_PREFERRED_LOC, 0));
		HSA_OK(set(p, N, HSA_SVM_ATTR_PREFERRED_LOC, node));
		gpu_has(&w, p, 2, 0);
	} while (device_pages(p, N) < N);
	CHECK_EQ(get(p, N, HSA_SVM_ATTR_PREFERRED_LOC), node);
	gpu_adds(&w, p, 7);
	CHECK_EQ(device_pages(p, N), N);
	has_added(p, 0, N, 2, 3, 7);
	finish(&w);
	CHECK_EQ(munmap(p, N * PAGE), 0);
}
