// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of the process on the GPU, while the process changes what is there: the GPU sees what the CPU
 * sees, and never what the process has given up.
 */
#include "kfd.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
#define MIB (1ul << 20)

struct fixture {
	struct gpu gpu;
	struct queue q;
	struct bo user; /* The memory under test. */
	struct bo out; /* GTT, where the GPU tells what it sees. */
	struct packets p;
	uint32_t ticket;
};

static struct fixture f;

static void *memory(uint64_t size, int prot)
{
	void *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* Makes a buffer of memory that is there already, at GPU address `va`. */
static int wrap_at(struct fixture *x, struct bo *bo, uint64_t va, void *at, uint64_t size)
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = {
		.va_addr = va,
		.mmap_offset = (uintptr_t)at,
		.size = size,
		.gpu_id = x->gpu.id,
		.flags = FLAGS_USERPTR,
	};
	int err = kfd_call(x->gpu.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args);

	*bo = (struct bo){ .handle = args.handle, .va = va, .size = size, .flags = FLAGS_USERPTR };
	return err;
}

static void begin_in(struct fixture *x, uint64_t size)
{
	need_vm(&x->gpu, 0);
	need_queue(&x->gpu, &x->q, COMPUTE);
	need_bo(&x->gpu, &x->out, FLAGS_GTT, 2 * PAGE);
	CHECK_OK(bo_wrap(&x->gpu, &x->user, FLAGS_USERPTR, memory(size, PROT_READ | PROT_WRITE), size));
	CHECK_OK(bo_map(&x->gpu, &x->user));
	x->p.n = 0;
	x->ticket = 0;
}

static void begin(uint64_t size)
{
	begin_in(&f, size);
}

/* Submits, and waits until all of it is done. */
static void run(struct fixture *x)
{
	pm4_write(&x->p, x->out.va + PAGE, ++x->ticket);
	submit(&x->q, &x->p);
	x->p.n = 0;
	await32(bo32(&x->out, PAGE), x->ticket, "the last packet");
}

/* What the GPU reads at byte `offset`. */
static uint32_t gpu_reads(struct fixture *x, uint64_t offset)
{
	*bo32(&x->out, 0) = 0xdddddddd;
	pm4_copy(&x->p, 1, x->user.va + offset, x->out.va, false);
	run(x);
	return *bo32(&x->out, 0);
}

static void gpu_writes(struct fixture *x, uint64_t offset, uint32_t value)
{
	pm4_write(&x->p, x->user.va + offset, value);
	run(x);
}

/* Both see both's writes. */
static void check_shared(struct fixture *x, uint64_t offset, uint32_t seed)
{
	*bo32(&x->user, offset) = seed;
	CHECK_EQ(gpu_reads(x, offset), seed);
	gpu_writes(x, offset, ~seed);
	CHECK_EQ(*bo32(&x->user, offset), ~seed);
}

/* An access of the GPU at `va` faults. */
static void check_faults(struct fixture *x, uint64_t va)
{
	struct kfd_event_data data = { 0 };
	struct event fault;
	struct waited w;
	int err;

	CHECK_OK(event_create(&x->gpu, KFD_IOC_EVENT_MEMORY, false, 0, &fault));
	pm4_write(&x->p, va, 0xbad);
	submit(&x->q, &x->p);
	data.event_id = fault.id;
	do {
		err = event_wait_data(&x->gpu, &data, 1, true, tap_ms(30000), &w);
	} while (err == EINTR);
	CHECK_OK(err);
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(data.memory_exception_data.gpu_id, x->gpu.id);
	CHECK_EQ(data.memory_exception_data.va, va & ~(PAGE - 1));
}

CASE(dontneed, "MADV_DONTNEED: the GPU sees the zeroes, then what the CPU writes, and the CPU what the GPU writes")
{
	begin(4 * PAGE);
	check_shared(&f, 0x40, 0x11);
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	CHECK_EQ(gpu_reads(&f, 0x40), 0);
	check_shared(&f, 0x40, 0x22);
}

CASE(dontneed_untouched, "MADV_DONTNEED, and the GPU is the first to touch the memory again")
{
	begin(4 * PAGE);
	check_shared(&f, PAGE, 0x11);
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	gpu_writes(&f, PAGE + 4, 0x33);
	CHECK_EQ(*bo32(&f.user, PAGE + 4), 0x33);
	CHECK_EQ(*bo32(&f.user, PAGE), 0);
}

CASE(dontneed_100, "100 times MADV_DONTNEED")
{
	begin(2 * PAGE);
	for (uint32_t i = 1; i <= 100; i++) {
		CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
		check_shared(&f, PAGE - 4, i);
		check_shared(&f, PAGE, ~i);
	}
}

CASE(replaced, "mmap over the memory: the GPU sees the new memory")
{
	begin(4 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK(mmap((void *)f.user.va, f.user.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == (void *)f.user.va);
	check_shared(&f, 0, 0x22);
	check_shared(&f, 3 * PAGE, 0x33);
}

CASE(middle_of_large, "one page in the middle of 4 MiB changes: all others keep their content")
{
	const uint64_t size = 4 * MIB, hole = 2 * MIB + 5 * PAGE;

	begin(size);
	for (uint64_t at = 0; at < size; at += PAGE)
		*bo32(&f.user, at) = 0x1000 + at / PAGE;
	CHECK_EQ(gpu_reads(&f, hole), 0x1000 + hole / PAGE);
	CHECK_EQ(madvise((void *)(f.user.va + hole), PAGE, MADV_DONTNEED), 0);
	*bo32(&f.user, hole + 4) = 0x77;
	for (uint64_t at = 0; at < size; at += 37 * PAGE)
		CHECK_EQ(gpu_reads(&f, at), 0x1000 + at / PAGE);
	CHECK_EQ(gpu_reads(&f, hole), 0);
	CHECK_EQ(gpu_reads(&f, hole + 4), 0x77);
	CHECK_EQ(gpu_reads(&f, hole - PAGE), 0x1000 + hole / PAGE - 1);
	CHECK_EQ(gpu_reads(&f, hole + PAGE), 0x1000 + hole / PAGE + 1);
}

CASE(unmapped_access, "munmap: the queue works on, and an access to what is gone faults")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_EQ(munmap((void *)f.user.va, f.user.size), 0);
	pm4_write(&f.p, f.out.va + 8, 0x44);
	run(&f);
	CHECK_EQ(*bo32(&f.out, 8), 0x44);
	check_faults(&f, f.user.va + PAGE + 0x10);
}

CASE(unmapped_active, "munmap while a queue waits in a packet: the packet goes on, and the memory is not reached")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	pm4_write(&f.p, f.out.va + 24, 3);
	pm4_wait(&f.p, EQUAL, f.out.va + 16, 1, 0xffffffff);
	pm4_write(&f.p, f.out.va + 20, 2);
	submit(&f.q, &f.p);
	f.p.n = 0;
	await32(bo32(&f.out, 24), 3, "the packet before the wait");
	CHECK_EQ(munmap((void *)f.user.va, f.user.size), 0);
	*bo32(&f.out, 16) = 1;
	await32(bo32(&f.out, 20), 2, "the packet after the wait");
	check_faults(&f, f.user.va);
}

CASE(unmapped_part, "munmap of one page takes the whole buffer from the GPU")
{
	begin(4 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_EQ(munmap((void *)(f.user.va + PAGE), PAGE), 0);
	check_faults(&f, f.user.va + PAGE);
}

CASE(unmapped_free, "munmap, then UNMAP and FREE of the buffer")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_EQ(munmap((void *)f.user.va, f.user.size), 0);
	CHECK_OK(bo_unmap(&f.gpu, &f.user));
	CHECK_OK(bo_free(&f.gpu, &f.user));
	pm4_write(&f.p, f.out.va + 8, 0x44);
	run(&f);
	CHECK_EQ(*bo32(&f.out, 8), 0x44);
}

CASE(unmapped_again, "munmap, new memory in the same place and a new buffer of it")
{
	struct bo again;
	void *at;

	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	at = (void *)f.user.va;
	CHECK_EQ(munmap(at, f.user.size), 0);
	CHECK_OK(bo_unmap(&f.gpu, &f.user));
	CHECK_OK(bo_free(&f.gpu, &f.user));
	CHECK(mmap(at, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	CHECK_OK(bo_wrap(&f.gpu, &again, FLAGS_USERPTR, at, 2 * PAGE));
	CHECK_OK(bo_map(&f.gpu, &again));
	f.user = again;
	check_shared(&f, PAGE, 0x22);
}

CASE(moved_away, "mremap: what has moved away faults at its old address")
{
	void *to;

	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	to = mremap((void *)f.user.va, f.user.size, f.user.size, MREMAP_MAYMOVE | MREMAP_FIXED,
		    (void *)need_address(f.user.size, PAGE));
	CHECK(to != MAP_FAILED);
	CHECK_EQ(*(volatile uint32_t *)to, ~0x11u);
	check_faults(&f, f.user.va);
}

CASE(moved_in, "mremap: what is moved into the place is what the GPU sees")
{
	uint32_t *from;

	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	from = memory(2 * PAGE, PROT_READ | PROT_WRITE);
	from[0] = 0xabc;
	CHECK(mremap(from, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)f.user.va) ==
	      (void *)f.user.va);
	CHECK_EQ(gpu_reads(&f, 0), 0xabc);
	check_shared(&f, PAGE, 0x22);
}

CASE(protected, "mprotect to read-only and back")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_EQ(mprotect((void *)f.user.va, f.user.size, PROT_READ), 0);
	CHECK_EQ(*bo32(&f.user, 0), ~0x11u);
	CHECK_EQ(mprotect((void *)f.user.va, f.user.size, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(gpu_reads(&f, 0), ~0x11u);
	check_shared(&f, 0, 0x22);
}

static uint32_t *memory_read_only(void)
{
	uint32_t *p = memory(PAGE, PROT_READ | PROT_WRITE);

	p[3] = 0x99;
	CHECK_EQ(mprotect(p, PAGE, PROT_READ), 0);
	return p;
}

CASE(read_only, "ALLOC: memory that the process may not write, for a GPU that may, is EPERM")
{
	struct bo refused;

	begin(PAGE);
	CHECK_ERR(bo_wrap(&f.gpu, &refused, FLAGS_USERPTR, memory_read_only(), PAGE), EPERM);
	check_shared(&f, 0, 0x11);
}

CASE(read_only_both, "ALLOC: memory that the process may not write, for a GPU that only reads, works")
{
	uint32_t *p;

	if (!is_rkfd())
		SKIP("other drivers want every buffer's memory writable");
	begin(PAGE);
	p = memory_read_only();
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR & ~WRITABLE, p, PAGE));
	CHECK_OK(bo_map(&f.gpu, &f.user));
	CHECK_EQ(gpu_reads(&f, 12), 0x99);
}

CASE(zero_page, "a buffer that the GPU only reads, of memory never touched: the GPU sees the first write of the CPU")
{
	begin(PAGE);
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR & ~WRITABLE, memory(PAGE, PROT_READ | PROT_WRITE), PAGE));
	CHECK_OK(bo_map(&f.gpu, &f.user));
	CHECK_EQ(gpu_reads(&f, 0), 0);
	*bo32(&f.user, 0) = 0x1234;
	CHECK_EQ(gpu_reads(&f, 0), 0x1234);
}

CASE(forked, "fork: parent and GPU share memory as before, the child has a copy of its own")
{
	int to_child[2], to_parent[2], status;
	char byte = 'x';
	pid_t pid;

	begin(4 * PAGE);
	check_shared(&f, 0, 0x11);
	*bo32(&f.user, 4) = 0x5a;
	CHECK_EQ(pipe(to_child), 0);
	CHECK_EQ(pipe(to_parent), 0);
	pid = fork();
	if (pid == 0) {
		close(to_child[1]);
		*bo32(&f.user, PAGE) = 0xc1;
		if (write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1)
			_exit(1);
		/* What the GPU and the parent wrote meanwhile is not here, what was before is. */
		_exit(*bo32(&f.user, 0) != ~0x11u || *bo32(&f.user, 4) != 0x5a || *bo32(&f.user, 8) != 0 ||
		      *bo32(&f.user, PAGE) != 0xc1);
	}
	CHECK_EQ(read(to_parent[0], &byte, 1), 1);
	CHECK_EQ(gpu_reads(&f, PAGE), 0);
	gpu_writes(&f, 8, 0x66);
	CHECK_EQ(*bo32(&f.user, 8), 0x66);
	check_shared(&f, 0, 0x22);
	check_shared(&f, PAGE, 0x33);
	CHECK_EQ(write(to_child[1], &byte, 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	check_shared(&f, 0, 0x44);
}

CASE(shared_file, "a shared file: the GPU sees what others write, and a fault where the file was cut")
{
	volatile uint32_t *other;
	void *at;
	int fd;

	begin(PAGE);
	fd = memfd_create("shared", 0);
	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, 2 * PAGE), 0);
	at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	other = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED && (void *)other != MAP_FAILED);
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR, at, 2 * PAGE));
	CHECK_OK(bo_map(&f.gpu, &f.user));
	other[1] = 0x777;
	CHECK_EQ(gpu_reads(&f, 4), 0x777);
	gpu_writes(&f, 8, 0x888);
	CHECK_EQ(other[2], 0x888);
	CHECK_EQ(ftruncate(fd, 0), 0);
	check_faults(&f, f.user.va + PAGE);
}

CASE(before_map, "memory that changes between ALLOC and MAP")
{
	begin(PAGE);
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR, memory(2 * PAGE, PROT_READ | PROT_WRITE), 2 * PAGE));
	*bo32(&f.user, 0) = 1;
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	*bo32(&f.user, 0) = 2;
	CHECK_OK(bo_map(&f.gpu, &f.user));
	CHECK_EQ(gpu_reads(&f, 0), 2);
	check_shared(&f, PAGE, 3);
}

CASE(after_unmap, "memory that changes between UNMAP and the next MAP")
{
	begin(2 * PAGE);
	check_shared(&f, 0, 0x11);
	CHECK_OK(bo_unmap(&f.gpu, &f.user));
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	*bo32(&f.user, 0) = 0x55;
	CHECK_OK(bo_map(&f.gpu, &f.user));
	CHECK_EQ(gpu_reads(&f, 0), 0x55);
}

CASE(two_buffers, "two buffers of the same memory follow it together")
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = { 0 };
	struct fixture other;

	begin(2 * PAGE);
	args = (struct kfd_ioctl_alloc_memory_of_gpu_args){
		.va_addr = need_address(2 * PAGE, PAGE),
		.mmap_offset = f.user.va,
		.size = 2 * PAGE,
		.gpu_id = f.gpu.id,
		.flags = FLAGS_USERPTR,
	};
	CHECK_OK(kfd_call(f.gpu.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args));
	other = f;
	other.user = (struct bo){ .handle = args.handle, .va = args.va_addr, .size = args.size };
	CHECK_OK(bo_map(&f.gpu, &other.user));
	for (uint32_t i = 1; i <= 20; i++) {
		CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
		pm4_write(&f.p, f.user.va + 4 * i, i);
		pm4_write(&f.p, other.user.va + PAGE + 4 * i, ~i);
		run(&f);
		CHECK_EQ(*bo32(&f.user, 4 * i), i);
		CHECK_EQ(*bo32(&f.user, PAGE + 4 * i), ~i);
	}
}

/* More than the kernel's checker of DMA mappings takes for one place, unless it is told that all are coherent. */
#define OTHERS 12

CASE(many_buffers, "13 buffers of the same memory: through each the GPU reads and writes it")
{
	struct bo first, others[OTHERS];

	begin(2 * PAGE);
	first = f.user;
	for (unsigned int i = 0; i < OTHERS; i++) {
		uint64_t va = need_address(2 * PAGE, PAGE);

		CHECK_OK(wrap_at(&f, &others[i], va, (void *)first.va, 2 * PAGE));
		CHECK_OK(bo_map(&f.gpu, &others[i]));
	}
	for (unsigned int i = 0; i < OTHERS; i++) {
		uint64_t at = i % 2 ? PAGE : 0x80;

		*bo32(&first, at) = 0x1000 + i;
		f.user.va = others[i].va;
		CHECK_EQ(gpu_reads(&f, at), 0x1000 + i);
		gpu_writes(&f, at, 0x2000 + i);
		CHECK_EQ(*bo32(&first, at), 0x2000 + i);
	}
	/* All of them follow a change. */
	CHECK_EQ(madvise((void *)first.va, first.size, MADV_DONTNEED), 0);
	for (unsigned int i = 0; i < OTHERS; i++) {
		f.user.va = others[i].va;
		*bo32(&first, 0) = 0x3000 + i;
		CHECK_EQ(gpu_reads(&f, 0), 0x3000 + i);
	}
	f.user = first;
	for (unsigned int i = 0; i < OTHERS; i++) {
		CHECK_OK(bo_unmap(&f.gpu, &others[i]));
		CHECK_OK(bo_free(&f.gpu, &others[i]));
	}
	check_shared(&f, 0x40, 0x55);
}

CASE(ring, "the memory of the ring changes: packets written afterwards run")
{
	begin(PAGE);
	for (uint32_t i = 1; i <= 20; i++) {
		pm4_write(&f.p, f.out.va + 8, i);
		run(&f);
		CHECK_EQ(*bo32(&f.out, 8), i);
		await_drained(&f.q);
		CHECK_EQ(madvise((void *)f.q.ring.va, f.q.ring.size, MADV_DONTNEED), 0);
	}
}

CASE(queue_meanwhile, "queues made and destroyed while memory changes")
{
	struct queue more;

	begin(2 * PAGE);
	for (uint32_t i = 1; i <= 10; i++) {
		CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
		need_queue(&f.gpu, &more, COMPUTE);
		pm4_write(&f.p, f.user.va + 4, i);
		submit(&more, &f.p);
		f.p.n = 0;
		await32(bo32(&f.user, 4), i, "the new queue's packet");
		CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
		drop_queue(&f.gpu, &more);
		check_shared(&f, 0, i);
	}
}

struct churn {
	volatile bool stop;
	char *at;
	uint64_t size;
};

static void *churn(void *context)
{
	struct churn *c = context;

	while (!c->stop) {
		if (madvise(c->at, c->size, MADV_DONTNEED))
			return (void *)1;
		*(volatile char *)c->at = 1;
	}
	return NULL;
}

CASE_LIMIT(thread, "another thread changes memory all the time: queues go on, and other memory is right", 120)
{
	struct churn c = { .size = 8 * PAGE };
	struct bo churned;
	pthread_t thread;
	void *failed;

	begin(4 * PAGE);
	c.at = memory(c.size, PROT_READ | PROT_WRITE);
	CHECK_OK(bo_wrap(&f.gpu, &churned, FLAGS_USERPTR, c.at, c.size));
	CHECK_OK(bo_map(&f.gpu, &churned));
	CHECK_EQ(pthread_create(&thread, NULL, churn, &c), 0);
	for (uint32_t i = 1; i <= 20; i++) {
		check_shared(&f, 4 * i, i);
		usleep(1000);
	}
	c.stop = true;
	CHECK_EQ(pthread_join(thread, &failed), 0);
	CHECK(!failed);
	CHECK_OK(bo_unmap(&f.gpu, &churned));
	CHECK_OK(bo_free(&f.gpu, &churned));
	check_shared(&f, 0, 0x99);
}

static void *drop_always(void *context)
{
	struct churn *c = context;

	while (!c->stop)
		if (madvise(c->at, c->size, MADV_DONTNEED))
			return (void *)1;
	return NULL;
}

CASE_LIMIT(alloc_changing, "ALLOC of memory that another thread changes all the time works, or is EAGAIN: never EBUSY", 120)
{
	struct churn c = { .size = 16 * MIB };
	pthread_t thread;
	void *failed;

	begin(PAGE);
	c.at = memory(c.size, PROT_READ | PROT_WRITE);
	CHECK_EQ(pthread_create(&thread, NULL, drop_always, &c), 0);
	for (int i = 0; i < 3; i++) {
		struct bo changing;
		int err = bo_wrap(&f.gpu, &changing, FLAGS_USERPTR, c.at, c.size);

		if (err)
			CHECK_ERR(err, EAGAIN);
		else
			CHECK_OK(bo_free(&f.gpu, &changing));
	}
	c.stop = true;
	CHECK_EQ(pthread_join(thread, &failed), 0);
	CHECK(!failed);
	CHECK_OK(bo_wrap(&f.gpu, &f.user, FLAGS_USERPTR, c.at, c.size));
	CHECK_OK(bo_map(&f.gpu, &f.user));
	check_shared(&f, 0x40, 0x11);
}

static void rounds(struct fixture *x, uint32_t n)
{
	for (uint32_t i = 1; i <= n; i++) {
		check_shared(x, 4 * (i % 1000), i * 3);
		if (madvise((void *)x->user.va, x->user.size, MADV_DONTNEED))
			FAIL("madvise: %s", strerror(errno));
		CHECK_EQ(gpu_reads(x, 4 * (i % 1000)), 0);
	}
}

CASE_LIMIT(processes, "8 processes change their memory at the same time", 240)
{
	pid_t pids[8];
	int status;

	for (unsigned int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			begin(4 * PAGE);
			rounds(&f, 8);
			_exit(0);
		}
	}
	for (unsigned int i = 0; i < 8; i++) {
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK_EQ(status, 0);
	}
}

CASE_LIMIT(killed, "processes killed while their memory changes: others work on", 240)
{
	begin(4 * PAGE);
	for (unsigned int i = 0; i < 8; i++) {
		int pipefd[2], status;
		char byte;
		pid_t pid;

		CHECK_EQ(pipe(pipefd), 0);
		pid = fork();
		if (pid == 0) {
			struct fixture *own = calloc(1, sizeof(*own));

			begin_in(own, 4 * PAGE);
			rounds(own, 1);
			if (write(pipefd[1], "x", 1) != 1)
				_exit(1);
			rounds(own, 1000000);
			_exit(0);
		}
		close(pipefd[1]);
		if (read(pipefd[0], &byte, 1) != 1)
			child_gave_up(pid);
		close(pipefd[0]);
		usleep(500 * i);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status));
		CHECK_EQ(WTERMSIG(status), SIGKILL);
		check_shared(&f, 0, i);
	}
}
