/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the cases through libhsakmt share. Each file has its own copy of the state; a case is one process. */
#ifndef THUNK_H
#define THUNK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hsakmt/hsakmt.h>

#include "backoff.h"
#include "pm4.h"
#include "tap.h"

#define PAGE 4096ul
#define PATIENCE_MS tap_ms(30000)

#define HSA_OK(call) CHECK_EQ(call, HSAKMT_STATUS_SUCCESS)

static HsaSystemProperties machine;
static HsaNodeProperties gpu;
static HSAuint32 node;

static inline uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

static inline void await(volatile uint32_t *p, uint32_t value, const char *what)
{
	uint64_t end = now_ms() + PATIENCE_MS;
	struct backoff wait = { 0 };

	while (__atomic_load_n(p, __ATOMIC_ACQUIRE) != value) {
		if (now_ms() > end)
			FAIL("%s: waited for %#x, last seen %#x", what, value, *p);
		back_off(&wait);
	}
}

static inline void need_thunk(void)
{
	HSAKMT_STATUS status = hsaKmtOpenKFD();

	if (status == HSAKMT_STATUS_KERNEL_IO_CHANNEL_NOT_OPENED)
		LACKING("no /dev/kfd");
	HSA_OK(status);
	HSA_OK(hsaKmtAcquireSystemProperties(&machine));
}

static inline bool find_gpu(unsigned int index)
{
	for (HSAuint32 n = 0; n < machine.NumNodes; n++) {
		HsaNodeProperties p;

		HSA_OK(hsaKmtGetNodeProperties(n, &p));
		if (!p.NumFComputeCores)
			continue;
		if (!index--) {
			node = n;
			gpu = p;
			return true;
		}
	}
	return false;
}

static inline void need_gpu(void)
{
	need_thunk();
	if (!find_gpu(0))
		LACKING("no GPU");
}

/* Memory for the GPU to execute and write; like the runtime's. */
static inline void *host_memory(uint64_t size)
{
	HsaMemFlags flags = { .Value = 0 };
	void *p = NULL;

	flags.ui32.HostAccess = 1;
	flags.ui32.ExecuteAccess = 1;
	flags.ui32.NonPaged = 0;
	flags.ui32.CachePolicy = HSA_CACHING_NONCACHED;
	flags.ui32.NoNUMABind = 1;
	HSA_OK(hsaKmtAllocMemory(0, size, flags, &p));
	HSA_OK(hsaKmtMapMemoryToGPU(p, size, NULL));
	return p;
}

static inline void *gpu_memory(uint64_t size, bool host_access)
{
	HsaMemFlags flags = { .Value = 0 };
	void *p = NULL;

	flags.ui32.NonPaged = 1;
	flags.ui32.HostAccess = host_access;
	flags.ui32.ExecuteAccess = 1;
	HSA_OK(hsaKmtAllocMemory(node, size, flags, &p));
	HSA_OK(hsaKmtMapMemoryToGPU(p, size, NULL));
	return p;
}

static inline void release(void *p, uint64_t size)
{
	HSA_OK(hsaKmtUnmapMemoryToGPU(p));
	HSA_OK(hsaKmtFreeMemory(p, size));
}

struct queue {
	HSA_QUEUE_TYPE type;
	HsaQueueResource r;
	uint32_t *ring;
	uint64_t bytes, written;
};

static inline HSAKMT_STATUS try_queue(struct queue *q, HSA_QUEUE_TYPE type)
{
	*q = (struct queue){ .type = type, .bytes = type == HSA_QUEUE_SDMA ? 0x10000 : 0x1000 };
	q->ring = host_memory(q->bytes);
	memset(q->ring, 0, q->bytes);
	return hsaKmtCreateQueue(node, type, 100, HSA_QUEUE_PRIORITY_NORMAL, q->ring, q->bytes, NULL, &q->r);
}

static inline void drop_queue(struct queue *q)
{
	HSA_OK(hsaKmtDestroyQueue(q->r.QueueId));
	release(q->ring, q->bytes);
}

/*
 * n queues of one type. Those of SDMA are few and never take turns: where copies of this program run side by side
 * (see many.c), one that finds too few gives back what it has and waits for the others.
 */
static inline void need_queues(struct queue *q, int n, HSA_QUEUE_TYPE type)
{
	bool shared = type == HSA_QUEUE_SDMA && getenv("TAP_COPIES");
	uint64_t end = now_ms() + 4 * PATIENCE_MS;

	for (int i = 0; i < n; i++) {
		HSAKMT_STATUS status = try_queue(&q[i], type);

		if (status == HSAKMT_STATUS_SUCCESS)
			continue;
		if (!shared || now_ms() > end)
			HSA_OK(status);
		release(q[i].ring, q[i].bytes);
		while (i > 0)
			drop_queue(&q[--i]);
		i = -1;
		usleep(20000);
	}
}

static inline void need_queue(struct queue *q, HSA_QUEUE_TYPE type)
{
	need_queues(q, 1, type);
}

static inline void submit(struct queue *q, struct packets *p)
{
	uint64_t unit = q->type == HSA_QUEUE_SDMA ? 4 : 1;

	for (unsigned int i = 0; i < p->n; i++)
		q->ring[(q->written / unit + i) % (q->bytes / 4)] = p->dw[i];
	q->written += p->n * unit;
	__atomic_store_n(q->r.Queue_write_ptr_aql, q->written, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile HSAuint64 *)q->r.Queue_DoorBell_aql = q->written;
	p->n = 0;
}

static inline HsaEvent *need_event(bool manual)
{
	HsaEventDescriptor d = { .EventType = HSA_EVENTTYPE_SIGNAL, .NodeId = node };
	HsaEvent *e = NULL;

	HSA_OK(hsaKmtCreateEvent(&d, manual, false, &e));
	CHECK(e);
	CHECK_NE(e->EventId, 0);
	CHECK_NE(e->EventData.HWData2, 0);
	return e;
}

#endif
