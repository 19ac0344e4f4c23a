// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The kernel's face as the thunk sees it: a program linked with libhsakmt, unmodified.
 *
 * The thunk reports nearly every errno as one status; conformance/ asks for the errnos themselves. The cases
 * about queues are in thunk_queues.c, those about memory that moves in thunk_moves.c.
 */
#include "thunk.h"

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
	/* By attributes of SVM it has no other address than its own, which the thunk does not tell. */
	if (gpu.Capability.ui32.SVMAPISupported && !va)
		va = (uintptr_t)p;
	CHECK_NE(va, 0);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	pm4_write(&k, va + 3 * PAGE, 0x2468);
	submit(&q, &k);
	await((volatile uint32_t *)((char *)p + 3 * PAGE), 0x2468, "the GPU's write");
	drop_queue(&q);
	HSA_OK(hsaKmtUnmapMemoryToGPU(p));
	HSA_OK(hsaKmtDeregisterMemory(p));
}

CASE(svm_attributes, "attributes of SVM: set, read back, and in force at the program's own addresses")
{
	HSA_SVM_ATTRIBUTE set[] = {
		{ HSA_SVM_ATTR_PREFERRED_LOC, 0 },
		{ HSA_SVM_ATTR_ACCESS, 0 },
		{ HSA_SVM_ATTR_SET_FLAGS, HSA_SVM_FLAG_GPU_EXEC },
		{ HSA_SVM_ATTR_GRANULARITY, 5 },
	};
	HSA_SVM_ATTRIBUTE get[] = {
		{ HSA_SVM_ATTR_PREFERRED_LOC, ~0u }, { HSA_SVM_ATTR_ACCESS, 0 },      { HSA_SVM_ATTR_SET_FLAGS, 0 },
		{ HSA_SVM_ATTR_CLR_FLAGS, 0 },	     { HSA_SVM_ATTR_GRANULARITY, 0 },
	};
	const HSAuint32 flags = HSA_SVM_FLAG_HOST_ACCESS | HSA_SVM_FLAG_COHERENT | HSA_SVM_FLAG_GPU_EXEC;
	struct packets k = { .n = 0 };
	volatile uint32_t *p;
	struct queue q;

	need_gpu();
	if (!gpu.Capability.ui32.SVMAPISupported)
		SKIP("the driver has no SVM");
	p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	/* The thunk makes ids of GPUs from numbers of nodes, and of locations back. */
	set[1].value = get[1].value = node;
	HSA_OK(hsaKmtSVMSetAttr((void *)p, 4 * PAGE, 4, set));
	HSA_OK(hsaKmtSVMGetAttr((void *)p, 4 * PAGE, 5, get));
	CHECK_EQ(get[0].value, 0);
	CHECK_EQ(get[1].type, HSA_SVM_ATTR_ACCESS);
	CHECK_EQ(get[2].value, flags);
	CHECK_EQ(get[3].value, ~flags);
	CHECK_EQ(get[4].value, 5);
	need_queue(&q, HSA_QUEUE_COMPUTE);
	pm4_write(&k, (uintptr_t)p + 3 * PAGE, 0x1357);
	submit(&q, &k);
	await(p + 3 * PAGE / 4, 0x1357, "the GPU's write");
	drop_queue(&q);
	set[1].type = HSA_SVM_ATTR_NO_ACCESS;
	set[1].value = node;
	HSA_OK(hsaKmtSVMSetAttr((void *)p, 4 * PAGE, 1, &set[1]));
	get[1] = (HSA_SVM_ATTRIBUTE){ HSA_SVM_ATTR_ACCESS, node };
	HSA_OK(hsaKmtSVMGetAttr((void *)p, 4 * PAGE, 1, &get[1]));
	CHECK_EQ(get[1].type, HSA_SVM_ATTR_NO_ACCESS);
	CHECK_EQ(munmap((void *)p, 4 * PAGE), 0);
}

CASE(memory_available, "available memory shrinks by what is allocated and grows back")
{
	HSAuint64 before, during, after;
	void *p;

	need_gpu();
	/* What an earlier process gives back late must not come back in between. */
	for (int attempt = 0; attempt < 10; attempt++) {
		HSA_OK(hsaKmtAvailableMemory(node, &before));
		p = gpu_memory(32ul << 20, false);
		HSA_OK(hsaKmtAvailableMemory(node, &during));
		release(p, 32ul << 20);
		HSA_OK(hsaKmtAvailableMemory(node, &after));
		if (after == before)
			break;
		usleep(tap_ms(20) * 1000);
	}
	CHECK_OP(during, <=, before - (32ul << 20));
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
