// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Mirrors that are filled by accesses of the GPU, which are repeated until then: nothing stops when memory changes, and an access
 * that nothing allows is an error of its file alone.
 */
#include "debugfs.h"
#include "mirror.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Where the second queue of a file lies. */
#define OTHER_AT 0x12000000ul
#define PRESENT DRM_RKFD_FAULT_PRESENT
#define WRITE DRM_RKFD_FAULT_WRITE

/* A file whose accesses to a mirror at AT are repeated, and a queue. */
static uint32_t begin(struct engine *e, void *cpu, uint64_t length, uint32_t flags)
{
	struct drm_rkfd_mirror_create args;
	int err;

	engine_open(e);
	err = mirror_create(&e->file, cpu, AT, length, flags | FAULT, &args);
	if (err == EOPNOTSUPP)
		SKIP("the GPU repeats no accesses of one address space alone");
	CHECK_OK(err);
	engine_start(e, QUEUE_AT);
	return args.id;
}

CASE(refused, "the mode is chosen before the first queue, and only where the GPU has it")
{
	struct drm_rkfd_mirror_create args;
	uint8_t *p = need_memory(4 * PAGE);
	struct engine e;
	int err;

	engine_open(&e);
	CHECK_ERR(mirror_create(&e.file, p, AT, 4 * PAGE, FAULT | 16, &args), EINVAL);
	err = mirror_create(&e.file, p, AT, 4 * PAGE, FAULT, &args);
	if (err == EOPNOTSUPP) {
		/* Neither is anything else made. */
		CHECK_ERR(mirror_destroy(&e.file, 1), ENOENT);
		CHECK_OK(mirror_create(&e.file, p, AT, 4 * PAGE, POPULATED, &args));
		SKIP("the GPU repeats no accesses of one address space alone");
	}
	CHECK_OK(err);
	CHECK_EQ(mirror_query(&e.file, args.id).flags, FAULT);
	CHECK_OK(mirror_destroy(&e.file, args.id));
	engine_start(&e, QUEUE_AT);
	/* It stays chosen. */
	CHECK_OK(mirror_create(&e.file, p, AT, 4 * PAGE, FAULT | POPULATED | RO, &args));
	CHECK_EQ(mirror_query(&e.file, args.id).flags, FAULT | POPULATED | RO);
	CHECK_EQ(mirror_query(&e.file, args.id).bytes, 4 * PAGE);
	CHECK_OK(mirror_destroy(&e.file, args.id));
	engine_end(&e);
	engine_begin(&e);
	CHECK_ERR(mirror_create(&e.file, p, AT, 4 * PAGE, FAULT, &args), EBUSY);
	CHECK_OK(mirror_create(&e.file, p, AT, 4 * PAGE, POPULATED, &args));
	engine_end(&e);
}

CASE(found, "nothing is shown before it is accessed; then CPU and GPU see the same, also what is allocated later")
{
	struct drm_rkfd_mirror_query info;
	uint8_t *p = need_memory(1500 * PAGE);
	struct engine e;
	uint32_t id = begin(&e, p, 1500 * PAGE, 0);

	CHECK_EQ(mirror_query(&e.file, id).bytes, 0);
	fill(p, 1500, 0x1000);
	gpu_sees(&e, AT, 1500, 0x1000);
	info = mirror_query(&e.file, id);
	CHECK_EQ(info.bytes, 1500 * PAGE);
	CHECK(info.faults > 0);
	/* The neighbourhood comes along, so accesses are few. */
	CHECK_OP(info.faults, <, 150);
	*word(p, 700 * PAGE) = 0xc0de;
	CHECK_EQ(gpu_read(&e, AT + 700 * PAGE), 0xc0de);
	gpu_write(&e, AT + 701 * PAGE + 8, 0xabc);
	CHECK_EQ(*word(p, 701 * PAGE + 8), 0xabc);
	for (unsigned int round = 1; round <= 10; round++) {
		CHECK_EQ(munmap(p + 300 * PAGE, 500 * PAGE), 0);
		CHECK(need_memory_at(p + 300 * PAGE, 500 * PAGE, MAP_FIXED) == p + 300 * PAGE);
		CHECK_EQ(gpu_read(&e, AT + 500 * PAGE), 0);
		gpu_write(&e, AT + 501 * PAGE, round);
		CHECK_EQ(*word(p, 501 * PAGE), round);
		CHECK_EQ(gpu_read(&e, AT + 299 * PAGE), 0x1000 + 299);
		fill(p, 1500, 0x1000);
	}
	gpu_sees(&e, AT, 1500, 0x1000);
	engine_end(&e);
}

CASE(reads_leave_zero_pages, "memory that the GPU only reads is not allocated, and a page that is shared until it is written stays shared")
{
	uint8_t *p = need_memory(64 * PAGE);
	struct engine e;
	uint32_t id = begin(&e, p, 64 * PAGE, 0);
	int go[2], status;
	char byte;
	pid_t child;

	CHECK_EQ(gpu_read(&e, AT + 3 * PAGE), 0);
	CHECK_EQ(gpu_read(&e, AT + 40 * PAGE), 0);
	/* A write finds the page again, with the right to. */
	gpu_write(&e, AT + 3 * PAGE, 5);
	CHECK_EQ(*word(p, 3 * PAGE), 5);
	CHECK(mirror_query(&e.file, id).faults >= 2);
	fill(p, 64, 0x100);
	CHECK_EQ(pipe(go), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(go[1]);
		if (read(go[0], &byte, 1) != 0)
			_exit(1);
		for (unsigned int i = 0; i < 64; i++)
			if (*word(p, i * PAGE) != 0x100 + i)
				_exit(2);
		_exit(0);
	}
	close(go[0]);
	CHECK_EQ(gpu_read(&e, AT + 7 * PAGE), 0x107);
	gpu_write(&e, AT + 7 * PAGE, 0x777);
	CHECK_EQ(*word(p, 7 * PAGE), 0x777);
	*word(p, 8 * PAGE) = 0x888;
	CHECK_EQ(gpu_read(&e, AT + 8 * PAGE), 0x888);
	close(go[1]);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	engine_end(&e);
}

CASE(large, "a large page of the program is shown as one by a single access")
{
	uint8_t *p = need_aligned(2 * HUGE);
	struct drm_rkfd_mirror_query info;
	struct engine e;
	uint32_t id;

	madvise(p, 2 * HUGE, MADV_HUGEPAGE);
	fill(p, 1024, 0x2000);
	if (madvise(p, 2 * HUGE, MADV_COLLAPSE))
		SKIP("no large pages here");
	id = begin(&e, p, 2 * HUGE, 0);
	CHECK_EQ(gpu_read(&e, AT + 600 * PAGE), 0x2000 + 600);
	info = mirror_query(&e.file, id);
	CHECK_EQ(info.faults, 1);
	CHECK_EQ(info.bytes, HUGE);
	CHECK_EQ(info.huge_bytes, HUGE);
	gpu_sees(&e, AT, 1024, 0x2000);
	CHECK_EQ(mirror_query(&e.file, id).faults, 2);
	engine_end(&e);
}

CASE(outside, "an access to a hole, or against the rights, is reported once and stops this file alone")
{
	uint8_t *p = need_memory(8 * PAGE);
	struct drm_rkfd_mirror_create args;
	struct engine good;

	begin(&good, p, 8 * PAGE, 0);
	CHECK_EQ(mprotect(p + 6 * PAGE, PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(p + 7 * PAGE, PAGE, PROT_NONE), 0);
	for (unsigned int i = 0; i < 5; i++) {
		struct engine e;

		fill(p, 4, 0x50);
		begin(&e, p, 8 * PAGE, 0);
		CHECK_OK(mirror_create(&e.file, p, AT + HUGE, 4 * PAGE, FAULT | RO, &args));
		CHECK_EQ(gpu_read(&e, AT), 0x50);
		switch (i) {
		case 0:
			must_fault(&e, AT + 8 * PAGE, false, 0);
			break;
		case 1:
			must_fault(&e, AT + 9 * PAGE, true, WRITE);
			break;
		case 2:
			CHECK_EQ(gpu_read(&e, AT + 6 * PAGE), 0);
			must_fault(&e, AT + 6 * PAGE, true, WRITE | PRESENT);
			break;
		case 3:
			must_fault(&e, AT + 7 * PAGE, false, 0);
			break;
		case 4:
			CHECK_EQ(gpu_read(&e, AT + HUGE), 0x50);
			must_fault(&e, AT + HUGE, true, WRITE | PRESENT);
			break;
		}
		CHECK_EQ(*word(p, 0), 0x50);
		/* Nobody else notices. */
		gpu_write(&good, AT + 8, 0x60 + i);
		CHECK_EQ(*word(p, 8), 0x60 + i);
		CHECK_EQ(new_faults(&e, NULL), 0);
		engine_leave(&e);
	}
	engine_end(&good);
}

/* Memory whose pages are brought in by who reads `fd`. */
static int watched(uint8_t *p, uint64_t length)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { (uintptr_t)p, length },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		SKIP("no userfaultfd: %s", strerror(errno));
	CHECK_EQ(ioctl(fd, UFFDIO_API, &api), 0);
	CHECK_EQ(ioctl(fd, UFFDIO_REGISTER, &reg), 0);
	return fd;
}

/* Waits until somebody waits for a page. */
static void await_wanted(int fd, uint8_t *page)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	struct uffd_msg msg;

	CHECK_EQ(poll(&wait, 1, (int)tap_ms(20000)), 1);
	CHECK_EQ(read(fd, &msg, sizeof(msg)), sizeof(msg));
	CHECK_EQ(msg.event, UFFD_EVENT_PAGEFAULT);
	CHECK_EQ(msg.arg.pagefault.address & ~(PAGE - 1), (uintptr_t)page);
}

static void bring_in(int fd, uint8_t *page, uint64_t length)
{
	struct uffdio_zeropage zero = { .range = { (uintptr_t)page, length } };

	CHECK_EQ(ioctl(fd, UFFDIO_ZEROPAGE, &zero), 0);
}

/* Has the second queue write, and waits for that. */
static void write_by(struct engine *e, struct nqueue *q, uint64_t va, volatile uint32_t *at, uint32_t value)
{
	struct packets p = { .n = 0 };

	sdma_write(&p, va, &value, 1);
	nsubmit(q, &p);
	await32(at, value, "what the other queue writes");
}

CASE(one_waits, "an access waits for user space, while memory changes and other accesses of the same file are served: no queue stops")
{
	uint8_t *p = need_aligned(3 * HUGE);
	struct packets late = { .n = 0 };
	struct nqueue other;
	struct engine e;
	uint32_t id, value = 7;
	unsigned long stops;
	int fd;

	madvise(p, 3 * HUGE, MADV_NOHUGEPAGE);
	fd = watched(p, HUGE);
	id = begin(&e, p, 3 * HUGE, 0);
	need_nqueue(&e.file, &other, DRM_RKFD_QUEUE_SDMA, OTHER_AT);
	sdma_write(&late, AT + 5 * PAGE, &value, 1);
	nsubmit(&e.q, &late);
	await_wanted(fd, p);
	stops = sched_counter("evictions");
	for (uint32_t round = 1; round <= 20; round++) {
		uint64_t at = HUGE + (round * 37 % 1000) * PAGE;

		write_by(&e, &other, AT + at + 8, word(p, at + 8), 0x100 + round);
		CHECK_EQ(madvise(p + at, PAGE, MADV_DONTNEED), 0);
		CHECK_EQ(*word(p, at + 8), 0);
	}
	CHECK(mirror_query(&e.file, id).changes > 0);
	CHECK_EQ(sched_counter("evictions"), stops);
	bring_in(fd, p, HUGE);
	await32(word(p, 5 * PAGE), value, "the write that waited");
	drop_nqueue(&e.file, &other);
	engine_end(&e);
	close(fd);
}

CASE(stale, "a queue ends while its access waits, and the memory goes: no access is refused")
{
	uint8_t *p = need_aligned(2 * HUGE);
	struct packets late = { .n = 0 };
	struct nqueue other;
	struct engine e;
	uint32_t value = 7;
	int fd;

	madvise(p, 2 * HUGE, MADV_NOHUGEPAGE);
	fd = watched(p, HUGE);
	begin(&e, p, 2 * HUGE, 0);
	need_nqueue(&e.file, &other, DRM_RKFD_QUEUE_SDMA, OTHER_AT);
	sdma_write(&late, AT + 5 * PAGE, &value, 1);
	nsubmit(&other, &late);
	await_wanted(fd, p);
	drop_nqueue(&e.file, &other);
	CHECK_EQ(munmap(p, HUGE), 0);
	gpu_write(&e, AT + HUGE, 0x11);
	CHECK_EQ(*word(p, HUGE), 0x11);
	/* Another queue, which has nothing to do with it. */
	need_nqueue(&e.file, &other, DRM_RKFD_QUEUE_SDMA, OTHER_AT);
	write_by(&e, &other, AT + HUGE + PAGE, word(p, HUGE + PAGE), 0x22);
	drop_nqueue(&e.file, &other);
	engine_end(&e);
	close(fd);
}

CASE(closed, "a file is closed, and a program killed, while an access waits for user space")
{
	uint8_t *p = need_aligned(HUGE);
	int fd = watched(p, HUGE), ready[2], status;
	struct packets late = { .n = 0 };
	struct engine e;
	uint32_t value = 7;
	pid_t child;
	char byte;

	begin(&e, p, HUGE, 0);
	sdma_write(&late, AT + 5 * PAGE, &value, 1);
	nsubmit(&e.q, &late);
	await_wanted(fd, p);
	engine_leave(&e);
	/* Whoever waited still does, and finds that nobody needs it. */
	bring_in(fd, p, HUGE);
	close(fd);
	CHECK_EQ(pipe(ready), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		fd = watched(need_memory_at(p, HUGE, MAP_FIXED), HUGE);
		late.n = 0;
		begin(&e, p, HUGE, 0);
		sdma_write(&late, AT + 5 * PAGE, &value, 1);
		nsubmit(&e.q, &late);
		await_wanted(fd, p);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
		_exit(2);
	}
	close(ready[1]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFSIGNALED(status));
	/* The GPU serves others. */
	p = need_memory(4 * PAGE);
	begin(&e, p, 4 * PAGE, 0);
	gpu_write(&e, AT, 0x33);
	CHECK_EQ(*word(p, 0), 0x33);
	engine_end(&e);
}

CASE(guests, "many files of one program at the same GPU addresses: an error of one reaches exactly that one")
{
	enum { GUESTS = 8 };
	struct engine e[GUESTS];
	uint8_t *p[GUESTS];

	for (unsigned int i = 0; i < GUESTS; i++) {
		p[i] = need_memory(64 * PAGE);
		begin(&e[i], p[i], 64 * PAGE, 0);
		fill(p[i], 64, i << 16);
	}
	for (unsigned int i = 0; i < GUESTS; i++)
		gpu_sees(&e[i], AT, 64, i << 16);
	must_fault(&e[3], AT + 64 * PAGE, false, 0);
	for (unsigned int i = 0; i < GUESTS; i++) {
		if (i == 3)
			continue;
		gpu_write(&e[i], AT + 5 * PAGE, 0x55 + i);
		CHECK_EQ(*word(p[i], 5 * PAGE), 0x55 + i);
		CHECK_EQ(new_faults(&e[i], NULL), 0);
	}
	for (unsigned int i = 0; i < GUESTS; i++) {
		if (i == 3)
			engine_leave(&e[i]);
		else
			engine_end(&e[i]);
	}
}

struct changer {
	uint8_t *p;
	_Atomic bool stop;
	unsigned int rounds;
};

/* What keeps the content, whatever the GPU does meanwhile. */
static void *change(void *arg)
{
	struct changer *c = arg;

	while (!c->stop) {
		int status;
		pid_t child;

		mprotect(c->p, 700 * PAGE, PROT_READ);
		mprotect(c->p, 700 * PAGE, PROT_READ | PROT_WRITE);
		madvise(c->p, 1024 * PAGE, MADV_COLD);
		madvise(c->p, 1024 * PAGE, MADV_COLLAPSE);
		madvise(c->p, 1024 * PAGE, MADV_PAGEOUT);
		child = fork();
		if (child == 0)
			_exit(0);
		if (child > 0)
			waitpid(child, &status, 0);
		c->rounds++;
		usleep(2000);
	}
	return NULL;
}

CASE_LIMIT(under_load, "the GPU reads and writes while the memory moves, splits and is shared: no byte is lost, no access refused", 120)
{
	struct changer c = { .p = need_aligned(1024 * PAGE) };
	struct engine e;
	pthread_t thread;
	uint32_t id;

	fill(c.p, 1024, 0x4000);
	id = begin(&e, c.p, 1024 * PAGE, 0);
	CHECK_EQ(pthread_create(&thread, NULL, change, &c), 0);
	for (uint32_t round = 1; round <= 60 || c.rounds < 20; round++) {
		struct packets p = { .n = 0 };
		uint32_t at = round * 37 % 1000;

		/* Beyond what becomes read-only for a moment. */
		sdma_write(&p, AT + (700 + round % 300) * PAGE + 8, &round, 1);
		for (unsigned int i = 0; i < 24; i++)
			sdma_copy(&p, AT + (at + i) * PAGE, OUT_AT + 4 * i, 4);
		engine_run(&e, &p);
		for (unsigned int i = 0; i < 24; i++)
			CHECK_EQ(*out32(&e, 4 * i), 0x4000 + at + i);
		CHECK_EQ(*word(c.p, (700 + round % 300) * PAGE + 8), round);
	}
	c.stop = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(mirror_query(&e.file, id).changes > 0);
	gpu_sees(&e, AT, 1024, 0x4000);
	engine_end(&e);
}
