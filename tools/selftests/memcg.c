// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory control groups: what a process has the driver allocate is charged to the group of the process, once; a process
 * at the limit of its group gets ENOMEM, or is killed, while processes outside work; and the charge ends with the process.
 *
 * Needs root, and the memory controller of a cgroup2 mount at /sys/fs/cgroup.
 */
#include "group.h"
#include "native.h"
#include "pm4_queue.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
/* What a process may still have charged when it begins to allocate without end. */
#define ROOM (2 * MIB)
/* … where each step takes little, and where it takes less than that. */
#define LITTLE_ROOM (MIB / 16)
#define LEAST_ROOM (MIB / 64)
/* Charges are made in batches per processor, and some caches outlive a process. */
#define SLACK (MIB / 2)
/* More than there is. */
#define NO_LIMIT (1ul << 40)
/* Address space that the steps use, a page table apart. */
#define STRIDE (1ul << 30)

static struct group group;

/* A process of the group, and how far it came; in memory that the case has charged to its own group. */
struct member {
	volatile uint32_t steps;
	volatile int err;
	pid_t pid;
	int go[2], ready[2];
};

/* What is allocated again and again. */
struct kind {
	/* Before the limit is set. */
	void (*prepare)(void);
	/* Step number `n`; 0 or errno. */
	int (*step)(uint32_t n);
	/* So many would be charged with much more than the room that there is. */
	uint32_t most;
	uint64_t room;
};

/* Addresses for the steps, reserved beforehand: a call of the C library that fails would tell nothing of the driver. */
static uint64_t addresses;

static struct member *begin_member(const struct kind *kind, uint32_t steps, bool may_be_killed)
{
	struct member *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char byte;
	pid_t pid;

	CHECK(m != MAP_FAILED);
	memset(m, 0, sizeof(*m));
	CHECK(!pipe2(m->go, O_CLOEXEC) && !pipe2(m->ready, O_CLOEXEC));
	fflush(stdout);
	pid = fork();
	CHECK_NE(pid, -1);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		group_join(&group);
		if (!may_be_killed) {
			FILE *adj = fopen("/proc/self/oom_score_adj", "we");

			if (!adj || fputs("-1000", adj) < 0 || fclose(adj))
				FAIL("oom_score_adj: %s", strerror(errno));
		}
		kind->prepare();
		/* Its own page table of this page is there before the limit is. */
		m->steps = 0;
		say_ready(m->ready[1]);
		if (read(m->go[0], &byte, 1) != 1)
			_exit(1);
		while (m->steps < steps && !(m->err = kind->step(m->steps)))
			m->steps++;
		say_ready(m->ready[1]);
		for (;;)
			pause();
	}
	m->pid = pid;
	close(m->ready[1]);
	if (read(m->ready[0], &byte, 1) != 1)
		child_gave_up(m->pid);
	return m;
}

static void let_go_on(struct member *m)
{
	CHECK_EQ(write(m->go[1], "x", 1), 1);
}

/* Waits until the member has no more to do: true, or has been killed: false. */
static bool is_done(struct member *m)
{
	char byte;

	return read(m->ready[0], &byte, 1) == 1;
}

/* Waits until the group is charged no more than `charge`. Nothing but a limit empties the reserves of processors. */
static void await_rest(uint64_t charge)
{
	settle_charge(&group);
	group_set(&group, "memory.max", NO_LIMIT);
	await_charge(&group, charge);
}

/* Ends the member, and waits for its charge to go. */
static void end_member(struct member *m, uint64_t charge)
{
	int status;

	kill(m->pid, SIGKILL);
	CHECK_EQ(waitpid(m->pid, &status, 0), m->pid);
	CHECK(WIFSIGNALED(status));
	close(m->go[0]);
	close(m->go[1]);
	close(m->ready[0]);
	munmap((void *)m, PAGE);
	await_rest(charge);
}

/* What a process outside of the group does meanwhile, and has to succeed with. */
static void work_outside(uint32_t round)
{
	struct event ev;
	struct bo bo;

	need_bo(&f.gpu, &bo, FLAGS_GTT, MIB);
	memset((void *)bo.va, 0x5a, MIB);
	drop_bo(&f.gpu, &bo);
	CHECK_OK(event_create(&f.gpu, KFD_IOC_EVENT_NODECHANGE, true, 0, &ev));
	CHECK_OK(event_destroy(&f.gpu, ev.id));
	pm4_write(&f.p, f.out.va, 0xb000 + round);
	go();
	await32(bo32(&f.out, 0), 0xb000 + round, "a packet of a process outside of the group");
}

static struct gpu mine;

static void prepare_vm(void)
{
	/* The page tables of the case are those of another process. */
	need_vm(&mine, 0);
	addresses = need_address(512 * STRIDE, STRIDE);
}

/*
 * A process allocates until it may no more. The charge of one that only began, and of what the kernel keeps for the
 * group, is where the charge has to come back to.
 */
static void run_away(const struct kind *kind, bool may_be_killed)
{
	uint64_t start, before, kills, limited;
	uint32_t round = 0;
	struct member *m;
	bool done;

	need_group(&group);
	begin(FLAGS_GTT);
	m = begin_member(kind, 4, may_be_killed);
	let_go_on(m);
	CHECK(is_done(m));
	CHECK_EQ(m->steps, 4);
	end_member(m, UINT64_MAX);
	/* Whatever comes later than its end. */
	await_rest(SLACK);
	start = group_charge(&group);

	m = begin_member(kind, kind->most, may_be_killed);
	if (!may_be_killed)
		settle_charge(&group);
	before = group_charge(&group);
	kills = group_number(&group, "memory.events", "oom_kill");
	limited = group_number(&group, "memory.events", "max");
	group_set(&group, "memory.max", (before + kind->room) & ~(PAGE - 1));
	let_go_on(m);
	for (uint32_t seen = 0; seen < m->steps || round < 8; round++) {
		seen = m->steps;
		work_outside(round);
	}
	done = is_done(m);
	tap_note("%u steps, %lld bytes, then %s", m->steps,
		 (long long)(group_charge(&group) - before),
		 done ? tap_errno(m->err) : "killed");
	CHECK_OP(m->steps, <, kind->most);
	CHECK_OP(group_number(&group, "memory.events", "max"), >, limited);
	if (may_be_killed) {
		CHECK(!done);
		CHECK_OP(group_number(&group, "memory.events", "oom_kill"), >, kills);
	} else {
		CHECK(done);
		CHECK_ERR(m->err, ENOMEM);
	}
	work_outside(round++);
	end_member(m, start + SLACK);
	work_outside(round);
	drop_group(&group);
}

static int alloc(uint32_t flags, uint64_t va, uint64_t size, void *user, uint64_t *handle)
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = {
		.va_addr = va,
		.mmap_offset = (uintptr_t)user,
		.size = size,
		.gpu_id = mine.id,
		.flags = flags,
	};
	int err = kfd_call(mine.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args);

	*handle = args.handle;
	return err;
}

static int step_pages(uint32_t n)
{
	uint64_t handle;

	return alloc(FLAGS_GTT, addresses + n * MIB, MIB / 4, NULL, &handle);
}

static const struct kind pages = { prepare_vm, step_pages, 8 * ROOM / (MIB / 4), ROOM };

CASE(buffers, "system memory of buffers is the group's: at its limit ENOMEM")
{
	run_away(&pages, false);
}

static char *user;
#define USER_BYTES (256 * PAGE)

static void prepare_user(void)
{
	prepare_vm();
	user = mmap(NULL, USER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	CHECK(user != MAP_FAILED);
	madvise(user, USER_BYTES, MADV_DONTFORK);
}

static int step_user(uint32_t n)
{
	uint64_t handle;

	return alloc(FLAGS_USERPTR, addresses + n * USER_BYTES, USER_BYTES, user, &handle);
}

/* The lists of pages alone are 8 bytes a page. */
static const struct kind registrations = { prepare_user, step_user, 8 * ROOM / (USER_BYTES / PAGE * 8), ROOM };

CASE(registrations_end, "records of registered memory are the group's: at its limit ENOMEM")
{
	run_away(&registrations, false);
}

static int step_tables(uint32_t n)
{
	struct bo bo = { .size = PAGE };
	int err = alloc(FLAGS_VRAM_PRIVATE, addresses + n * STRIDE, PAGE, NULL, &bo.handle);

	return err ? err : bo_map(&mine, &bo);
}

/* Each mapping has page directories of its own: three pages of copies at least. */
static const struct kind tables = { prepare_vm, step_tables, 500, LITTLE_ROOM };

CASE(page_tables, "page tables are the group's: at its limit ENOMEM")
{
	run_away(&tables, false);
}

static struct queue model;

static void prepare_queue(void)
{
	prepare_vm();
	queue_prepare(&mine, &model, COMPUTE, 0x1000);
}

static int step_bookkeeping(uint32_t n)
{
	uint64_t handle;

	return alloc(FLAGS_VRAM_PRIVATE, addresses + n * PAGE, PAGE, NULL, &handle);
}

/* A buffer of VRAM takes no system memory but for what the driver and DRM note of it, some hundred bytes. */
static const struct kind bookkeeping = { prepare_vm, step_bookkeeping, 8 * ROOM / 256, ROOM };

CASE(notes, "what is noted of buffers is the group's: at its limit ENOMEM")
{
	run_away(&bookkeeping, false);
}

/* Waits with long lists, each by a thread of its own. */
#define ENTRIES 4000u

static struct kfd_event_data *entries;
static volatile int wait_err;
static pthread_attr_t small;

static void prepare_waits(void)
{
	struct event ev;

	prepare_vm();
	CHECK_OK(event_create(&mine, KFD_IOC_EVENT_NODECHANGE, false, 0, &ev));
	entries = calloc(ENTRIES, sizeof(*entries));
	CHECK(entries);
	for (uint32_t i = 0; i < ENTRIES; i++)
		entries[i].event_id = ev.id;
	CHECK(!pthread_attr_init(&small));
	CHECK(!pthread_attr_setstacksize(&small, 64 << 10));
}

static void *wait_long(void *unused)
{
	struct waited waited;
	int err = event_wait_data(&mine, entries, ENTRIES, false, UINT32_MAX - 1, &waited);

	if (err)
		wait_err = err;
	return NULL;
}

static int step_waits(uint32_t n)
{
	pthread_t thread;
	int err = pthread_create(&thread, &small, wait_long, NULL);

	/* The kernel has no memory for a thread: EAGAIN of the C library. */
	if (err)
		return err == EAGAIN ? ENOMEM : err;
	/* Until it waits, or may not. */
	for (unsigned int i = 0; i < 20 && !wait_err; i++)
		usleep(1000);
	return wait_err;
}

static const struct kind waits = { prepare_waits, step_waits, 8 * ROOM / (ENTRIES * 40), ROOM };

CASE_LIMIT(wait_lists, "lists of events to wait for are the group's: at its limit ENOMEM", 120)
{
	run_away(&waits, false);
}

static int step_queues(uint32_t n)
{
	struct kfd_ioctl_create_queue_args args = model.args;

	return kfd_call(mine.fd, AMDKFD_IOC_CREATE_QUEUE, &args);
}

static const struct kind queues = { prepare_queue, step_queues, 400, LEAST_ROOM };

CASE_LIMIT(queue, "what is noted of queues is the group's: at its limit ENOMEM", 120)
{
	run_away(&queues, false);
}

/* The same by the native interface, of one file. */
static struct nfile file;
static struct nqueue native_model;

static void prepare_file(void)
{
	need_file(&file);
}

static int step_native_pages(uint32_t n)
{
	struct nbo bo;

	return nbo_create(&file, &bo, SYSTEM, MIB / 4, 0);
}

static const struct kind native_pages = { prepare_file, step_native_pages, 8 * ROOM / (MIB / 4), ROOM };

CASE(native_buffers, "system memory of buffers of the native interface is the group's: at its limit ENOMEM")
{
	run_away(&native_pages, false);
}

static int step_native_bookkeeping(uint32_t n)
{
	struct nbo bo;

	return nbo_create(&file, &bo, VRAM, PAGE, 0);
}

static const struct kind native_bookkeeping = { prepare_file, step_native_bookkeeping, 8 * ROOM / 256, ROOM };

CASE(native_notes, "what is noted of buffers of the native interface is the group's: at its limit ENOMEM")
{
	run_away(&native_bookkeeping, false);
}

static void prepare_native_queue(void)
{
	prepare_file();
	nqueue_prepare(&file, &native_model, DRM_RKFD_QUEUE_PM4, 1ul << 32);
}

static int step_native_queues(uint32_t n)
{
	struct drm_rkfd_queue_create args = native_model.args;

	return native(file.fd, DRM_IOCTL_RKFD_QUEUE_CREATE, &args);
}

static const struct kind native_queues = { prepare_native_queue, step_native_queues, 400, LEAST_ROOM };

CASE_LIMIT(native_queue, "what is noted of queues of the native interface is the group's: at its limit ENOMEM", 120)
{
	run_away(&native_queues, false);
}

/*
 * What each of many queues is charged with. Both readings are without what processors have charged in reserve.
 */
static void weigh(const struct kind *kind)
{
	/* Of the records, which are a few hundred bytes each. */
	uint64_t before, bytes, least = 1024;
	struct member *m;

	need_group(&group);
	begin(FLAGS_GTT);
	/* There the descriptor is in system memory, with the control stack behind its page. */
	if (f.gpu.gfx == 90006)
		least += PAGE + page_align(f.gpu.ctl_stack_size);
	m = begin_member(kind, kind->most, false);
	settle_charge(&group);
	before = group_charge(&group);
	group_set(&group, "memory.max", NO_LIMIT);
	let_go_on(m);
	CHECK(is_done(m));
	CHECK_EQ(m->err, 0);
	CHECK_EQ(m->steps, kind->most);
	settle_charge(&group);
	bytes = (group_charge(&group) - before) / kind->most;
	tap_note("%llu bytes a queue, of at least %llu", (unsigned long long)bytes, (unsigned long long)least);
	CHECK_OP(bytes, >=, least);
	CHECK_OP(bytes, <, MIB);
	group_set(&group, "memory.max", NO_LIMIT);
	end_member(m, SLACK);
	drop_group(&group);
}

static const struct kind some_queues = { prepare_queue, step_queues, 64, 0 };
static const struct kind some_native_queues = { prepare_native_queue, step_native_queues, 64, 0 };

CASE_LIMIT(queue_weight, "a queue's descriptor and records are charged in full", 120)
{
	weigh(&some_queues);
}

CASE_LIMIT(native_queue_weight, "so are those of a queue of the native interface", 120)
{
	weigh(&some_native_queues);
}

/* Buffers as far as they go, then memory of the process itself. */
static int step_touch(uint32_t n)
{
	int err = step_pages(n);

	if (err == ENOMEM) {
		memset(user, 0x5a, 8 * ROOM);
		_exit(1);
	}
	return err;
}

static void prepare_touch(void)
{
	prepare_vm();
	user = mmap(NULL, 8 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(user != MAP_FAILED);
}

static const struct kind touches = { prepare_touch, step_touch, 8 * ROOM / (MIB / 4), ROOM };

CASE(killed, "a process that the kernel kills at its group's limit gives everything back")
{
	run_away(&touches, true);
}

CASE(once, "memory that is registered again and again is charged once")
{
	static const struct kind kind = { prepare_user, step_user, 32, 0 };
	uint64_t before, after;
	struct member *m;

	need_group(&group);
	begin(FLAGS_GTT);
	m = begin_member(&kind, kind.most, false);
	before = group_charge(&group);
	CHECK_OP(before, >=, USER_BYTES);
	let_go_on(m);
	CHECK(is_done(m));
	CHECK_EQ(m->err, 0);
	CHECK_EQ(m->steps, 32);
	after = group_charge(&group);
	tap_note("%llu bytes for %u registrations of %lu bytes", (unsigned long long)(after - before), 32u, USER_BYTES);
	/* The lists of pages, not the pages. */
	CHECK_OP(after - before, <, USER_BYTES);
	end_member(m, SLACK);
	drop_group(&group);
}
