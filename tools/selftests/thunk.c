// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The kernel's face as the thunk sees it: a program linked with libhsakmt, unmodified.
 *
 * The thunk reports nearly every errno as one status; conformance/ asks for the errnos themselves.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hsakmt/hsakmt.h>

#include "pm4.h"
#include "tap.h"

#define PAGE 4096ul
#define PATIENCE_MS 30000

#define HSA_OK(call) CHECK_EQ(call, HSAKMT_STATUS_SUCCESS)

static HsaSystemProperties machine;
static HsaNodeProperties gpu;
static HSAuint32 node;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

static void await(volatile uint32_t *p, uint32_t value, const char *what)
{
	uint64_t end = now_ms() + PATIENCE_MS;

	while (__atomic_load_n(p, __ATOMIC_ACQUIRE) != value) {
		if (now_ms() > end)
			FAIL("%s: waited for %#x, last seen %#x", what, value, *p);
		sched_yield();
	}
}

static void need_thunk(void)
{
	HSAKMT_STATUS status = hsaKmtOpenKFD();

	if (status == HSAKMT_STATUS_KERNEL_IO_CHANNEL_NOT_OPENED)
		LACKING("no /dev/kfd");
	HSA_OK(status);
	HSA_OK(hsaKmtAcquireSystemProperties(&machine));
}

static bool find_gpu(unsigned int index)
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

static void need_gpu(void)
{
	need_thunk();
	if (!find_gpu(0))
		LACKING("no GPU");
}

/* Memory for the GPU to execute and write; like the runtime's. */
static void *host_memory(uint64_t size)
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

static void *gpu_memory(uint64_t size, bool host_access)
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

static void release(void *p, uint64_t size)
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

static void need_queue(struct queue *q, HSA_QUEUE_TYPE type)
{
	*q = (struct queue){ .type = type, .bytes = type == HSA_QUEUE_SDMA ? 0x10000 : 0x1000 };
	q->ring = host_memory(q->bytes);
	memset(q->ring, 0, q->bytes);
	HSA_OK(hsaKmtCreateQueue(node, type, 100, HSA_QUEUE_PRIORITY_NORMAL, q->ring, q->bytes, NULL, &q->r));
}

static void drop_queue(struct queue *q)
{
	HSA_OK(hsaKmtDestroyQueue(q->r.QueueId));
	release(q->ring, q->bytes);
}

static void submit(struct queue *q, struct packets *p)
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

static HsaEvent *need_event(bool manual)
{
	HsaEventDescriptor d = { .EventType = HSA_EVENTTYPE_SIGNAL, .NodeId = node };
	HsaEvent *e = NULL;

	HSA_OK(hsaKmtCreateEvent(&d, manual, false, &e));
	CHECK(e);
	CHECK_NE(e->EventId, 0);
	CHECK_NE(e->EventData.HWData2, 0);
	return e;
}

CASE(open_counts, "open twice counts, close twice closes")
{
	need_thunk();
	CHECK_EQ(hsaKmtOpenKFD(), HSAKMT_STATUS_KERNEL_ALREADY_OPENED);
	HSA_OK(hsaKmtCloseKFD());
	HSA_OK(hsaKmtCloseKFD());
	CHECK_EQ(hsaKmtCloseKFD(), HSAKMT_STATUS_KERNEL_IO_CHANNEL_NOT_OPENED);
	HSA_OK(hsaKmtOpenKFD());
}

CASE(version, "version: major 1")
{
	HsaVersionInfo v;

	need_thunk();
	HSA_OK(hsaKmtGetVersion(&v));
	CHECK_EQ(v.KernelInterfaceMajorVersion, 1);
}

CASE(forked, "a forked child's handles are dead until it opens again")
{
	int status;
	pid_t pid;

	need_gpu();
	pid = fork();
	if (pid == 0) {
		HsaMemFlags flags = { .Value = 0 };
		HsaVersionInfo v;
		void *p = NULL;

		if (hsaKmtGetVersion(&v) == HSAKMT_STATUS_SUCCESS ||
		    hsaKmtAllocMemory(0, PAGE, flags, &p) == HSAKMT_STATUS_SUCCESS)
			_exit(1);
		if (hsaKmtOpenKFD() != HSAKMT_STATUS_SUCCESS)
			_exit(2);
		_exit(hsaKmtGetVersion(&v) == HSAKMT_STATUS_SUCCESS ? 0 : 3);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}

CASE(topology, "topology: CPU first, GPUs with engine id, memory, caches and links")
{
	unsigned int cpus = 0, gpus = 0;

	need_gpu();
	for (HSAuint32 n = 0; n < machine.NumNodes; n++) {
		HsaMemoryProperties *banks;
		HsaCacheProperties *caches;
		HsaIoLinkProperties *links;
		HsaNodeProperties p;
		bool vram = false, data = false;

		HSA_OK(hsaKmtGetNodeProperties(n, &p));
		if (p.NumCPUCores) {
			CHECK_EQ(gpus, 0);
			cpus++;
			continue;
		}
		gpus++;
		CHECK_EQ(p.EngineId.ui32.Major, 9);
		CHECK_NE(p.EngineId.ui32.uCode, 0);
		CHECK_NE(p.uCodeEngineVersions.uCodeSDMA, 0);
		CHECK_NE(p.NumSIMDPerCU, 0);
		CHECK_EQ(p.WaveFrontSize, 64);
		CHECK_NE(p.AMDName[0], 0);
		CHECK_OP(p.DrmRenderMinor, >=, 128);
		CHECK_OP(p.NumMemoryBanks, >, 0);

		banks = calloc(p.NumMemoryBanks, sizeof(*banks));
		HSA_OK(hsaKmtGetNodeMemoryProperties(n, p.NumMemoryBanks, banks));
		for (unsigned int i = 0; i < p.NumMemoryBanks; i++)
			if (banks[i].HeapType == HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC ||
			    banks[i].HeapType == HSA_HEAPTYPE_FRAME_BUFFER_PRIVATE) {
				vram = true;
				CHECK_OP(banks[i].SizeInBytes, >=, 64 << 20);
			}
		CHECK(vram);

		caches = calloc(p.NumCaches, sizeof(*caches));
		HSA_OK(hsaKmtGetNodeCacheProperties(n, p.FComputeIdLo, p.NumCaches, caches));
		for (unsigned int i = 0; i < p.NumCaches; i++)
			data |= caches[i].CacheType.ui32.Data && caches[i].CacheType.ui32.HSACU;
		CHECK(data);

		CHECK_OP(p.NumIOLinks, >, 0);
		links = calloc(p.NumIOLinks, sizeof(*links));
		HSA_OK(hsaKmtGetNodeIoLinkProperties(n, p.NumIOLinks, links));
		for (unsigned int i = 0; i < p.NumIOLinks; i++)
			CHECK_EQ(links[i].NodeFrom, n);
	}
	CHECK_OP(cpus, >, 0);
	CHECK_OP(gpus, >, 0);
}

CASE(bad_node, "a node that does not exist is refused")
{
	HsaNodeProperties p;
	HsaQueueResource r = { 0 };
	void *ring;

	need_gpu();
	CHECK_NE(hsaKmtGetNodeProperties(machine.NumNodes, &p), HSAKMT_STATUS_SUCCESS);
	ring = host_memory(PAGE);
	CHECK_NE(hsaKmtCreateQueue(machine.NumNodes, HSA_QUEUE_COMPUTE, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, PAGE,
				   NULL, &r),
		 HSAKMT_STATUS_SUCCESS);
}

CASE(clocks, "clock counters advance")
{
	HsaClockCounters a, b;

	need_gpu();
	HSA_OK(hsaKmtGetClockCounters(node, &a));
	HSA_OK(hsaKmtGetClockCounters(node, &b));
	CHECK_OP(b.GPUClockCounter, >, a.GPUClockCounter);
	CHECK_OP(b.CPUClockCounter, >, a.CPUClockCounter);
	CHECK_EQ(a.SystemClockFrequencyHz, 1000000000);
}

static void check_memory(uint32_t *p, uint64_t size)
{
	struct packets k = { .n = 0 };
	struct queue q;

	for (uint64_t i = 0; i < size / 4; i++)
		((volatile uint32_t *)p)[i] = i * 0x9e3779b9;
	for (uint64_t i = 0; i < size / 4; i++)
		CHECK_EQ(((volatile uint32_t *)p)[i], (uint32_t)(i * 0x9e3779b9));
	need_queue(&q, HSA_QUEUE_COMPUTE);
	pm4_copy(&k, 1, (uintptr_t)p + 4, (uintptr_t)p + size - 4, false);
	pm4_write(&k, (uintptr_t)p, 0x600d);
	submit(&q, &k);
	await(p, 0x600d, "the GPU's write");
	CHECK_EQ(((volatile uint32_t *)p)[size / 4 - 1], 0x9e3779b9);
	drop_queue(&q);
}

CASE(memory_host, "host memory: written and read by CPU and GPU")
{
	void *p;

	need_gpu();
	p = host_memory(5 * PAGE);
	check_memory(p, 5 * PAGE);
	release(p, 5 * PAGE);
}

CASE(memory_vram, "GPU memory with host access: written and read by CPU and GPU")
{
	void *p;

	need_gpu();
	p = gpu_memory(2ul << 20, true);
	check_memory(p, 2ul << 20);
	release(p, 2ul << 20);
}

CASE(memory_vram_private, "GPU memory without host access: copied to and from by the GPU")
{
	struct packets k = { .n = 0 };
	volatile uint32_t *host;
	struct queue q;
	char *vram;

	need_gpu();
	host = host_memory(PAGE);
	vram = gpu_memory(PAGE, false);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	host[0] = 0x1357;
	pm4_dma(&k, (uintptr_t)host, (uintptr_t)vram, 64);
	pm4_dma(&k, (uintptr_t)vram, (uintptr_t)host + 64, 64);
	pm4_write(&k, (uintptr_t)host + 256, 1);
	submit(&q, &k);
	await(host + 64, 1, "the packet after the copies");
	CHECK_EQ(host[16], 0x1357);
	drop_queue(&q);
	release(vram, PAGE);
	release((void *)host, PAGE);
}

CASE(memory_registered, "registered memory of the program: written by the GPU at the address it got there")
{
	struct packets k = { .n = 0 };
	HSAuint64 va = 0;
	struct queue q;
	void *p;

	need_gpu();
	p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	memset(p, 0, 4 * PAGE);
	HSA_OK(hsaKmtRegisterMemory(p, 4 * PAGE));
	HSA_OK(hsaKmtMapMemoryToGPU(p, 4 * PAGE, &va));
	CHECK_NE(va, 0);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	pm4_write(&k, va + 3 * PAGE, 0x2468);
	submit(&q, &k);
	await((volatile uint32_t *)((char *)p + 3 * PAGE), 0x2468, "the GPU's write");
	drop_queue(&q);
	HSA_OK(hsaKmtUnmapMemoryToGPU(p));
	HSA_OK(hsaKmtDeregisterMemory(p));
}

CASE(memory_available, "available memory shrinks by what is allocated and grows back")
{
	HSAuint64 before, during, after;
	void *p;

	need_gpu();
	HSA_OK(hsaKmtAvailableMemory(node, &before));
	p = gpu_memory(32ul << 20, false);
	HSA_OK(hsaKmtAvailableMemory(node, &during));
	CHECK_OP(during, <=, before - (32ul << 20));
	release(p, 32ul << 20);
	HSA_OK(hsaKmtAvailableMemory(node, &after));
	CHECK_EQ(after, before);
}

CASE(memory_too_much, "more memory than there is is refused")
{
	HsaMemFlags flags = { .Value = 0 };
	void *p = NULL;

	need_gpu();
	flags.ui32.NonPaged = 1;
	CHECK_NE(hsaKmtAllocMemory(node, 1ull << 42, flags, &p), HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtAllocMemory(node, 0, flags, &p), HSAKMT_STATUS_SUCCESS);
}

CASE(event_manual, "events: set, wait, reset, time-out")
{
	HsaEvent *e;

	need_gpu();
	e = need_event(true);
	CHECK_EQ(hsaKmtWaitOnEvent(e, 10), HSAKMT_STATUS_WAIT_TIMEOUT);
	HSA_OK(hsaKmtSetEvent(e));
	HSA_OK(hsaKmtWaitOnEvent(e, 10));
	HSA_OK(hsaKmtWaitOnEvent(e, 10));
	HSA_OK(hsaKmtResetEvent(e));
	CHECK_EQ(hsaKmtWaitOnEvent(e, 10), HSAKMT_STATUS_WAIT_TIMEOUT);
	HSA_OK(hsaKmtDestroyEvent(e));
}

CASE(event_auto, "events: auto-reset")
{
	HsaEvent *e;

	need_gpu();
	e = need_event(false);
	HSA_OK(hsaKmtSetEvent(e));
	HSA_OK(hsaKmtWaitOnEvent(e, 1000));
	CHECK_EQ(hsaKmtWaitOnEvent(e, 10), HSAKMT_STATUS_WAIT_TIMEOUT);
	HSA_OK(hsaKmtDestroyEvent(e));
}

CASE(event_any_all, "events: any and all of several")
{
	HsaEvent *e[4];

	need_gpu();
	for (int i = 0; i < 4; i++)
		e[i] = need_event(true);
	CHECK_EQ(hsaKmtWaitOnMultipleEvents(e, 4, false, 10), HSAKMT_STATUS_WAIT_TIMEOUT);
	HSA_OK(hsaKmtSetEvent(e[2]));
	HSA_OK(hsaKmtWaitOnMultipleEvents(e, 4, false, 1000));
	CHECK_EQ(hsaKmtWaitOnMultipleEvents(e, 4, true, 10), HSAKMT_STATUS_WAIT_TIMEOUT);
	for (int i = 0; i < 4; i++)
		HSA_OK(hsaKmtSetEvent(e[i]));
	HSA_OK(hsaKmtWaitOnMultipleEvents(e, 4, true, 1000));
	for (int i = 0; i < 4; i++)
		HSA_OK(hsaKmtDestroyEvent(e[i]));
}

CASE(event_many, "events: 256 and their slots are distinct")
{
	static HsaEvent *e[256];

	need_gpu();
	for (int i = 0; i < 256; i++) {
		e[i] = need_event(false);
		for (int j = 0; j < i; j++)
			CHECK_NE(e[i]->EventData.HWData2, e[j]->EventData.HWData2);
	}
	for (int i = 0; i < 256; i++)
		HSA_OK(hsaKmtDestroyEvent(e[i]));
}

CASE(pm4_queue, "PM4 queue: packets write memory")
{
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue q;

	need_gpu();
	out = host_memory(PAGE);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	for (uint32_t i = 1; i <= 500; i++) {
		pm4_write(&k, (uintptr_t)out, i);
		submit(&q, &k);
		await(out, i, "the packet");
	}
	drop_queue(&q);
	release((void *)out, PAGE);
}

CASE(pm4_event, "PM4 queue: a packet raises the event that the program sleeps on")
{
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue q;
	HsaEvent *e;

	need_gpu();
	out = host_memory(PAGE);
	e = need_event(false);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	for (uint32_t i = 1; i <= 20; i++) {
		pm4_write(&k, (uintptr_t)out, i);
		pm4_release(&k, e->EventData.HWData2, 1, e->EventId, 2, e->EventId);
		submit(&q, &k);
		HSA_OK(hsaKmtWaitOnEvent(e, PATIENCE_MS));
		CHECK_EQ(*out, i);
	}
	drop_queue(&q);
	HSA_OK(hsaKmtDestroyEvent(e));
}

CASE_LIMIT(pm4_update, "PM4 queue: disabled by percentage and by a null ring, enabled again", 120)
{
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue q, other;

	need_gpu();
	out = host_memory(PAGE);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	need_queue(&other, HSA_QUEUE_COMPUTE);
	for (int how = 0; how < 2; how++) {
		if (how)
			HSA_OK(hsaKmtUpdateQueue(q.r.QueueId, 100, HSA_QUEUE_PRIORITY_NORMAL, NULL, 0, NULL));
		else
			HSA_OK(hsaKmtUpdateQueue(q.r.QueueId, 0, HSA_QUEUE_PRIORITY_NORMAL, q.ring, q.bytes, NULL));
		pm4_write(&k, (uintptr_t)out, how + 1);
		submit(&q, &k);
		/* The other queue's work shows that the GPU had its chance. */
		for (uint32_t i = 1; i <= 20; i++) {
			pm4_write(&k, (uintptr_t)out + 64, how << 8 | i);
			submit(&other, &k);
			await(out + 16, how << 8 | i, "the other queue");
		}
		CHECK_EQ(*out, how);
		HSA_OK(hsaKmtUpdateQueue(q.r.QueueId, 100, HSA_QUEUE_PRIORITY_MAXIMUM, q.ring, q.bytes, NULL));
		await(out, how + 1, "the disabled queue's packet");
	}
	drop_queue(&q);
	drop_queue(&other);
}

CASE(pm4_cu_mask, "PM4 queue: a CU mask is taken, a bad one refused")
{
	HSAuint32 mask[4] = { ~0u, ~0u, ~0u, ~0u };
	struct queue q;

	need_gpu();
	need_queue(&q, HSA_QUEUE_COMPUTE);
	HSA_OK(hsaKmtSetQueueCUMask(q.r.QueueId, 128, mask));
	CHECK_NE(hsaKmtSetQueueCUMask(q.r.QueueId, 31, mask), HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtSetQueueCUMask(q.r.QueueId, 0, mask), HSAKMT_STATUS_SUCCESS);
	drop_queue(&q);
}

CASE_LIMIT(pm4_many, "PM4 queues: 8 at once, each does its work", 120)
{
	struct packets k = { .n = 0 };
	volatile uint32_t *out;
	struct queue q[8];

	need_gpu();
	out = host_memory(PAGE);
	for (int i = 0; i < 8; i++)
		need_queue(&q[i], HSA_QUEUE_COMPUTE);
	for (uint32_t round = 1; round <= 5; round++) {
		for (int i = 0; i < 8; i++) {
			pm4_write(&k, (uintptr_t)(out + 16 * i), round << 8 | i);
			submit(&q[i], &k);
		}
		for (int i = 0; i < 8; i++)
			await(out + 16 * i, round << 8 | i, "a queue's write");
	}
	for (int i = 0; i < 8; i++)
		drop_queue(&q[i]);
}

CASE(sdma_queue, "SDMA queue: copy, fill, fence, and a trap that wakes")
{
	struct packets k = { .n = 0 };
	uint32_t *vram, *host;
	struct queue q;
	HsaEvent *e;

	need_gpu();
	host = host_memory(8 * PAGE);
	vram = gpu_memory(8 * PAGE, false);
	e = need_event(false);
	need_queue(&q, HSA_QUEUE_SDMA);
	for (uint32_t i = 0; i < PAGE; i++)
		host[i] = i ^ 0xa5a50000;
	sdma_copy(&k, (uintptr_t)host, (uintptr_t)vram, 4 * PAGE);
	sdma_fill(&k, (uintptr_t)vram, 0x5a5a5a5a, 64);
	sdma_copy(&k, (uintptr_t)vram, (uintptr_t)host + 4 * PAGE, 4 * PAGE);
	sdma_fence(&k, e->EventData.HWData2, e->EventId);
	sdma_trap(&k, e->EventId);
	submit(&q, &k);
	HSA_OK(hsaKmtWaitOnEvent(e, PATIENCE_MS));
	for (uint32_t i = 0; i < PAGE; i++)
		CHECK_EQ(((volatile uint32_t *)host)[PAGE + i], i < 16 ? 0x5a5a5a5a : (i ^ 0xa5a50000));
	drop_queue(&q);
	HSA_OK(hsaKmtDestroyEvent(e));
	release(vram, 8 * PAGE);
}

CASE(aql_queue, "AQL queue: created with the runtime's pointers, a barrier packet decrements its signal")
{
	volatile int64_t *signal;
	HsaQueueResource r = { 0 };
	uint64_t *pointers;
	uint16_t *ring;
	uint64_t end;

	need_gpu();
	ring = host_memory(PAGE);
	pointers = host_memory(PAGE);
	signal = host_memory(PAGE);
	for (int i = 0; i < 64; i++)
		ring[i * 32] = 1; /* INVALID */
	signal[0] = 1; /* A user signal … */
	signal[1] = 5; /* … and its value. */
	/* Where amd_queue_t has its write and read index. */
	r.Queue_write_ptr_aql = (HSAuint64 *)((char *)pointers + 0x38);
	r.Queue_read_ptr_aql = (HSAuint64 *)((char *)pointers + 0x80);
	HSA_OK(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE_AQL, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, PAGE, NULL, &r));
	for (uint64_t i = 0; i < 5; i++) {
		uint16_t *packet = ring + 32 * i;

		memset(packet + 1, 0, 62);
		*(uint64_t *)(packet + 28) = (uintptr_t)signal;
		__atomic_store_n(r.Queue_write_ptr_aql, i + 1, __ATOMIC_RELEASE);
		__atomic_store_n(packet, 3 | 1 << 8 | 2 << 9 | 2 << 11, __ATOMIC_RELEASE);
		*(volatile HSAuint64 *)r.Queue_DoorBell_aql = i;
	}
	end = now_ms() + PATIENCE_MS;
	while (__atomic_load_n(&signal[1], __ATOMIC_ACQUIRE)) {
		if (now_ms() > end)
			FAIL("the signal is at %lld", (long long)signal[1]);
		sched_yield();
	}
	HSA_OK(hsaKmtDestroyQueue(r.QueueId));
	release(ring, PAGE);
}

CASE(queue_errors, "queues: bad ring sizes, percentages and ids are refused")
{
	HsaQueueResource r = { 0 };
	void *ring;

	need_gpu();
	ring = host_memory(2 * PAGE);
	CHECK_NE(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE, 101, HSA_QUEUE_PRIORITY_NORMAL, ring, 2 * PAGE, NULL, &r),
		 HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, 0x1800, NULL, &r),
		 HSAKMT_STATUS_SUCCESS);
	CHECK_NE(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, PAGE, NULL, &r),
		 HSAKMT_STATUS_SUCCESS);
	/* A refusal leaves nothing behind that would keep the right one from working. */
	HSA_OK(hsaKmtCreateQueue(node, HSA_QUEUE_COMPUTE, 100, HSA_QUEUE_PRIORITY_NORMAL, ring, 2 * PAGE, NULL, &r));
	HSA_OK(hsaKmtDestroyQueue(r.QueueId));
}

CASE(two_gpus, "memory and queues on each of two GPUs")
{
	need_gpu();
	if (!find_gpu(1))
		SKIP("needs 2 GPUs");
	for (unsigned int i = 0; i < 2; i++) {
		struct packets k = { .n = 0 };
		volatile uint32_t *out;
		struct queue q;

		CHECK(find_gpu(i));
		out = host_memory(PAGE);
		need_queue(&q, HSA_QUEUE_COMPUTE);
		pm4_write(&k, (uintptr_t)out, 0x700 + i);
		submit(&q, &k);
		await(out, 0x700 + i, "a GPU's write");
		drop_queue(&q);
		release((void *)out, PAGE);
	}
}
