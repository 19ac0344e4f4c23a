// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SVM: what a GPU may do with the program's memory by its attributes, and what becomes of its queues.
 */
#include "smi.h"
#include "svm.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIT(event) KFD_SMI_EVENT_MASK_FROM_INDEX(event)

static uint32_t ticket;

static void run(void)
{
	pm4_write(&f.p, f.out.va + PAGE, ++ticket);
	go();
	await32(bo32(&f.out, PAGE), ticket, "the last packet");
}

static uint32_t gpu_reads(const volatile void *at)
{
	*bo32(&f.out, 0) = 0xdddddddd;
	pm4_copy(&f.p, 1, (uintptr_t)at, f.out.va, false);
	run();
	return *bo32(&f.out, 0);
}

static void gpu_writes(volatile void *at, uint32_t value)
{
	pm4_write(&f.p, (uintptr_t)at, value);
	run();
}

static volatile uint32_t *word(uint8_t *p, uint64_t at)
{
	return (volatile uint32_t *)(p + at);
}

/* Both see both's writes. */
static void check_shared(uint8_t *p, uint32_t seed)
{
	*word(p, 0) = seed;
	CHECK_EQ(gpu_reads(p), seed);
	gpu_writes(p, ~seed);
	CHECK_EQ(*word(p, 0), ~seed);
}

/* A write of the GPU faults, and with it the queue is lost. */
static void check_faults(volatile void *at)
{
	struct kfd_event_data data = { 0 };
	struct event fault;
	struct waited w;
	int err;

	CHECK_OK(event_create(&f.gpu, KFD_IOC_EVENT_MEMORY, false, 0, &fault));
	pm4_write(&f.p, (uintptr_t)at, 0xbad);
	go();
	data.event_id = fault.id;
	do {
		err = event_wait_data(&f.gpu, &data, 1, true, tap_ms(30000), &w);
	} while (err == EINTR);
	CHECK_OK(err);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data.memory_exception_data.gpu_id, f.gpu.id);
	CHECK_EQ(data.memory_exception_data.va, (uintptr_t)at & ~(PAGE - 1));
}

/* … in a child, so that the case can go on. */
static void faults_in_child(void *context)
{
	void (*prepare)(uint8_t *) = (void (*)(uint8_t *))context;
	uint8_t *p;

	begin_svm();
	p = memory(4 * PAGE);
	CHECK_OK(set1(p, 4 * PAGE, ACCESS, f.gpu.id));
	check_shared(p + PAGE, 0x77);
	prepare(p);
	*word(p, PAGE) = 0x55;
	check_faults(p + PAGE);
	CHECK_EQ(*word(p, PAGE), 0x55);
}

CASE(shared, "SVM: with access the GPU sees what the CPU sees at the same address, whatever becomes of the memory")
{
	uint8_t *p;
	int status;
	pid_t child;

	begin_svm();
	p = memory(600 * PAGE);
	CHECK_OK(set1(p + 100 * PAGE, 400 * PAGE, ACCESS, f.gpu.id));
	for (unsigned int i = 0; i < 400; i += 57)
		check_shared(p + (100 + i) * PAGE, 0x100 + i);
	/* In the midst another one. */
	CHECK_OK(set1(p + 200 * PAGE, 100 * PAGE, IN_PLACE, f.gpu.id));
	check_shared(p + 199 * PAGE, 0x11);
	check_shared(p + 200 * PAGE, 0x22);
	check_shared(p + 300 * PAGE, 0x33);
	CHECK_EQ(madvise(p + 250 * PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(gpu_reads(p + 250 * PAGE), 0);
	check_shared(p + 250 * PAGE, 0x44);
	CHECK_EQ(mprotect(p + 100 * PAGE, 400 * PAGE, PROT_READ), 0);
	CHECK_EQ(gpu_reads(p + 250 * PAGE), ~0x44u);
	CHECK_EQ(mprotect(p + 100 * PAGE, 400 * PAGE, PROT_READ | PROT_WRITE), 0);
	check_shared(p + 250 * PAGE, 0x55);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		*word(p, 250 * PAGE) = 0xbad;
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(gpu_reads(p + 250 * PAGE), ~0x55u);
	check_shared(p + 250 * PAGE, 0x66);
	end();
}

CASE(registered, "SVM: memory that is registered first and mapped later, as the thunk does, and whose neighbours go")
{
	struct attr list[] = { { CLR_FLAGS, KFD_IOCTL_SVM_FLAG_COHERENT }, { CLR_FLAGS, 0x80 } };
	uint8_t *p;

	begin_svm();
	p = memory(8 * PAGE);
	CHECK_OK(svm(SET, p + 2 * PAGE, 4 * PAGE, list, 2));
	CHECK_EQ(access_of(p + 2 * PAGE, 4 * PAGE), NO_ACCESS);
	CHECK_OK(set1(p + 2 * PAGE, 4 * PAGE, IN_PLACE, f.gpu.id));
	check_shared(p + 2 * PAGE, 0x11);
	CHECK_EQ(munmap(p, 2 * PAGE), 0);
	CHECK_EQ(munmap(p + 5 * PAGE, 3 * PAGE), 0);
	check_shared(p + 4 * PAGE, 0x22);
	CHECK_EQ(get1(p + 2 * PAGE, 3 * PAGE, SET_FLAGS), KFD_IOCTL_SVM_FLAG_HOST_ACCESS);
	end();
}

CASE_LIMIT(many_changes, "SVM: a hundred times other attributes and other memory while the queue works", 120)
{
	uint8_t *p;

	begin_svm();
	p = memory(64 * PAGE);
	CHECK_OK(set1(p, 32 * PAGE, ACCESS, f.gpu.id));
	for (uint32_t i = 1; i <= 100; i++) {
		uint64_t at = (32 + i * 7 % 24) * PAGE;

		CHECK_OK(set1(p + at, 8 * PAGE, i & 1 ? ACCESS : IN_PLACE, f.gpu.id));
		check_shared(p + at + 3 * PAGE, i);
		check_shared(p + i % 32 * PAGE, ~i);
		CHECK_EQ(munmap(p + at, 8 * PAGE), 0);
		CHECK(mmap(p + at, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		      p + at);
		CHECK_EQ(access_of(p + at, 8 * PAGE), NO_ACCESS);
	}
	end();
}

static void forbid(uint8_t *p)
{
	CHECK_OK(set1(p + PAGE, PAGE, NO_ACCESS, f.gpu.id));
	check_shared(p + 2 * PAGE, 0x88);
}

static void protect(uint8_t *p)
{
	CHECK_OK(set1(p + PAGE, PAGE, SET_FLAGS, KFD_IOCTL_SVM_FLAG_GPU_RO));
	*word(p, PAGE) = 0x99;
	CHECK_EQ(gpu_reads(p + PAGE), 0x99);
	check_shared(p + 2 * PAGE, 0x88);
}

static void replace(uint8_t *p)
{
	CHECK(mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + PAGE);
	check_shared(p + 2 * PAGE, 0x88);
}

CASE(forbidden, "SVM: a write without access, to what the GPU may read only, or to what was mapped anew is a memory exception")
{
	need_svm();
	close(f.gpu.fd);
	CHECK_EQ(in_child(faults_in_child, (void *)forbid), 0);
	CHECK_EQ(in_child(faults_in_child, (void *)protect), 0);
	CHECK_EQ(in_child(faults_in_child, (void *)replace), 0);
}

CASE(save_area, "SVM: the save area of a queue may be memory that is always mapped, and no other")
{
	struct attr list[] = { { PREFETCH, 0 },	    { PREFERRED, 0 }, { CLR_FLAGS, 0xffffffae },
			       { SET_FLAGS, 0x51 }, { ACCESS, 0 },    { GRANULARITY, 0xff } };
	uint8_t *p;

	need_svm();
	queue_prepare(&f.gpu, &f.q, COMPUTE, PAGE);
	p = memory(f.q.save.size + (2ul << 20));
	p = (uint8_t *)(((uintptr_t)p + (2ul << 20) - 1) & ~((2ul << 20) - 1));
	f.q.args.ctx_save_restore_address = (uintptr_t)p;
	CHECK_ERR(queue_create(&f.gpu, &f.q), EINVAL);
	CHECK_OK(set1(p, f.q.save.size, ACCESS, f.gpu.id));
	CHECK_ERR(queue_create(&f.gpu, &f.q), EINVAL);
	list[0].value = list[4].value = f.gpu.id;
	CHECK_OK(svm(SET, p, f.q.save.size - PAGE, list, 6));
	CHECK_ERR(queue_create(&f.gpu, &f.q), EINVAL);
	CHECK_OK(svm(SET, p, f.q.save.size, list, 6));
	CHECK_OK(queue_create(&f.gpu, &f.q));
	need_bo(&f.gpu, &f.out, FLAGS_GTT, 16 * PAGE);
	f.p.n = 0;
	for (unsigned int i = 0; i < 10; i++) {
		/* The queue leaves the hardware and comes back. */
		CHECK_OK(queue_update(&f.gpu, &f.q, 0, 7));
		CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
		run();
	}
	await_drained(&f.q);
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
	CHECK_EQ(munmap(p, f.q.save.size), 0);
}

static void exits_with_queue(void *context)
{
	bool killed = context != NULL;
	uint8_t *p;

	need_svm();
	queue_prepare(&f.gpu, &f.q, COMPUTE, PAGE);
	p = memory(f.q.save.size);
	f.q.args.ctx_save_restore_address = (uintptr_t)p;
	CHECK_OK(set1(p, f.q.save.size, SET_FLAGS, KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED));
	CHECK_OK(set1(p, f.q.save.size, ACCESS, f.gpu.id));
	CHECK_OK(queue_create(&f.gpu, &f.q));
	need_bo(&f.gpu, &f.out, FLAGS_GTT, 16 * PAGE);
	f.p.n = 0;
	run();
	/* Does not end: the queue is on the hardware, and at work. */
	pm4_wait(&f.p, EQUAL, f.out.va, 1, 0xffffffff);
	*bo32(&f.out, 0) = 0;
	go();
	if (killed)
		raise(SIGKILL);
	_exit(0);
}

/* A process of its own, since the first file of a process has its address space until it ends. */
static void works(void *context)
{
	(void)context;
	begin_svm();
	run();
	end();
}

CASE(save_area_at_the_end, "SVM: a process exits, or is killed, with a queue whose save area is its memory: the GPU serves others")
{
	need_svm();
	close(f.gpu.fd);
	CHECK_EQ(in_child(exits_with_queue, NULL), 0);
	CHECK_EQ(in_child(exits_with_queue, &f), -SIGKILL);
	CHECK_EQ(in_child(works, NULL), 0);
}

static bool turn_on(void)
{
	struct kfd_ioctl_set_xnack_mode_args args = { .xnack_enabled = 1 };

	return kfd_call(f.gpu.fd, AMDKFD_IOC_SET_XNACK_MODE, &args) == 0;
}

CASE(any_pointer, "SVM: with XNACK on the GPU has all memory, also what comes later, and attributes take it away")
{
	volatile uint32_t stack = 0x77;
	uint8_t *p;

	need_svm();
	p = memory(8 * PAGE);
	if (!turn_on())
		SKIP("the GPU has no XNACK");
	CHECK_EQ(access_of(p, 8 * PAGE), ACCESS);
	need_queue(&f.gpu, &f.q, COMPUTE);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, 16 * PAGE);
	CHECK_EQ(gpu_reads(&stack), 0x77);
	gpu_writes(&stack, 0x78);
	CHECK_EQ(stack, 0x78);
	for (uint32_t i = 1; i <= 10; i++) {
		uint8_t *later = memory(100 * PAGE);

		check_shared(later + 50 * PAGE, i);
		CHECK_EQ(munmap(later, 100 * PAGE), 0);
	}
	CHECK_OK(set1(p + PAGE, PAGE, SET_FLAGS, KFD_IOCTL_SVM_FLAG_GPU_RO));
	check_shared(p, 0x11);
	*word(p, PAGE) = 0x22;
	CHECK_EQ(gpu_reads(p + PAGE), 0x22);
	CHECK_OK(set1(p + PAGE, PAGE, CLR_FLAGS, KFD_IOCTL_SVM_FLAG_GPU_RO));
	check_shared(p + PAGE, 0x33);
	CHECK_OK(set1(p + PAGE, PAGE, NO_ACCESS, f.gpu.id));
	check_shared(p, 0x44);
	check_shared(p + 2 * PAGE, 0x55);
	check_faults(p + PAGE);
}

CASE(modes, "SVM: attributes stay when XNACK is turned on and off again")
{
	struct kfd_ioctl_set_xnack_mode_args off = { .xnack_enabled = 0 };
	uint8_t *p;

	need_svm();
	p = memory(8 * PAGE);
	CHECK_OK(set1(p, 4 * PAGE, ACCESS, f.gpu.id));
	CHECK_OK(set1(p, 4 * PAGE, GRANULARITY, 2));
	if (!turn_on())
		SKIP("the GPU has no XNACK");
	CHECK_EQ(get1(p, 4 * PAGE, GRANULARITY), 2);
	CHECK_EQ(access_of(p + 4 * PAGE, 4 * PAGE), ACCESS);
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_SET_XNACK_MODE, &off));
	CHECK_EQ(access_of(p, 4 * PAGE), ACCESS);
	CHECK_EQ(access_of(p + 4 * PAGE, 4 * PAGE), NO_ACCESS);
	need_queue(&f.gpu, &f.q, COMPUTE);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, 16 * PAGE);
	check_shared(p + 3 * PAGE, 0x11);
	end();
}

/* What follows the process in a line must be this. */
static void check_line(int fd, unsigned int event, const char *wanted)
{
	uint64_t ns;

	smi_check_text(smi_timed(smi_next_line(fd), event, &ns), wanted);
}

CASE(events, "SVM: SMI_EVENTS tells of faults that are served, and of memory that is not mapped any more")
{
	char wanted[128];
	uint8_t *p;
	int fd;

	need_svm();
	if (!turn_on())
		SKIP("the GPU has no XNACK");
	p = memory(PAGE);
	need_queue(&f.gpu, &f.q, COMPUTE);
	need_bo(&f.gpu, &f.out, FLAGS_GTT, 16 * PAGE);
	/* Where the CPU has it: what moves is in svm_moves. */
	CHECK_OK(set1(p, PAGE, PREFERRED, 0));
	*word(p, 0) = 1;
	fd = need_smi(&f.gpu, BIT(KFD_SMI_EVENT_PAGE_FAULT_START) | BIT(KFD_SMI_EVENT_PAGE_FAULT_END));
	gpu_writes(p, 2);
	snprintf(wanted, sizeof(wanted), "@%lx(%x) W", (unsigned long)p / PAGE, f.gpu.id);
	check_line(fd, KFD_SMI_EVENT_PAGE_FAULT_START, wanted);
	snprintf(wanted, sizeof(wanted), "@%lx(%x) U", (unsigned long)p / PAGE, f.gpu.id);
	check_line(fd, KFD_SMI_EVENT_PAGE_FAULT_END, wanted);
	close(fd);
	fd = need_smi(&f.gpu, BIT(KFD_SMI_EVENT_UNMAP_FROM_GPU));
	CHECK_EQ(munmap(p, PAGE), 0);
	snprintf(wanted, sizeof(wanted), "@%lx(1) %x 2", (unsigned long)p / PAGE, f.gpu.id);
	check_line(fd, KFD_SMI_EVENT_UNMAP_FROM_GPU, wanted);
	close(fd);
}

CASE(evictions, "SVM: without XNACK a change of memory takes the queues off, and SMI_EVENTS says why")
{
	char wanted[64];
	uint8_t *p;
	int fd;

	begin_svm();
	p = memory(4 * PAGE);
	CHECK_OK(set1(p, 4 * PAGE, ACCESS, f.gpu.id));
	check_shared(p, 0x11);
	fd = need_smi(&f.gpu, BIT(KFD_SMI_EVENT_QUEUE_EVICTION) | BIT(KFD_SMI_EVENT_QUEUE_RESTORE));
	CHECK_EQ(madvise(p, PAGE, MADV_DONTNEED), 0);
	snprintf(wanted, sizeof(wanted), "%x 0", f.gpu.id);
	check_line(fd, KFD_SMI_EVENT_QUEUE_EVICTION, wanted);
	check_line(fd, KFD_SMI_EVENT_QUEUE_RESTORE, wanted);
	check_shared(p, 0x22);
	close(fd);
	end();
}
