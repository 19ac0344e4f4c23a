// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * SMI_EVENTS: a file of lines about a GPU and the processes on it. What a line says is checked to the last byte.
 */
#include "agent.h"
#include "smi.h"
#include "userptr.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIT(event) KFD_SMI_EVENT_MASK_FROM_INDEX(event)
/* What a file holds. */
#define FIFO_BYTES 8192

/* The line of an event that names this process and what it is called. */
static void check_named(const char *line, unsigned int event, char between, const char *name)
{
	char wanted[128];

	snprintf(wanted, sizeof(wanted), "%x %x%c%s\n", event, getpid(), between, name);
	smi_check_text(line, wanted);
}

CASE(bad_gpu, "SMI_EVENTS: an unknown GPU is EINVAL")
{
	struct gpu gpu;
	int fd;

	need_gpu(&gpu, 0);
	CHECK_ERR(smi_open(&gpu, gpu.id ^ 0x5555, &fd), EINVAL);
	/* No file may be handed out with an error. */
	CHECK_EQ(fd, -1);
}

CASE(empty, "SMI_EVENTS: reading an empty file is EAGAIN, and it does not poll readable")
{
	struct gpu gpu;

	need_gpu(&gpu, 0);
	smi_check_empty(need_smi(&gpu, 0));
}

CASE(descriptor, "SMI_EVENTS: the file is for reading and writing, and open after exec")
{
	struct gpu gpu;
	int fd;

	need_gpu(&gpu, 0);
	fd = need_smi(&gpu, 0);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	CHECK_EQ(fcntl(fd, F_GETFD), 0);
}

CASE(masks, "SMI_EVENTS: a mask of less than 8 bytes, or that is not there, is EFAULT; of more bytes 8 are taken")
{
	uint64_t masks[2] = { BIT(KFD_SMI_EVENT_PROCESS_START), ~0ull };
	struct gpu gpu;
	int fd;

	need_gpu(&gpu, 0);
	fd = need_smi(&gpu, 0);
	CHECK_EQ(write(fd, "1234567", 7), -1);
	CHECK_EQ(errno, EFAULT);
	CHECK_EQ(write(fd, memory(PAGE, PROT_NONE), 8), -1);
	CHECK_EQ(errno, EFAULT);
	CHECK_EQ(write(fd, masks, sizeof(masks)), 8);
}

CASE(start, "SMI_EVENTS: ACQUIRE_VM starts a process, with its number and name, for files that ask")
{
	struct gpu gpu;
	int fd, deaf, other;

	CHECK_EQ(prctl(PR_SET_NAME, "starts here"), 0);
	need_gpu(&gpu, 0);
	fd = need_smi(&gpu, BIT(KFD_SMI_EVENT_PROCESS_START));
	deaf = need_smi(&gpu, 0);
	other = need_smi(&gpu, ~BIT(KFD_SMI_EVENT_PROCESS_START));
	smi_check_empty(fd);
	gpu.drm = need_render(&gpu);
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
	check_named(smi_next_line(fd), KFD_SMI_EVENT_PROCESS_START, ' ', "starts here");
	smi_check_empty(fd);
	smi_check_empty(deaf);
	smi_check_empty(other);
	/* Once. */
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
	smi_check_empty(fd);
}

CASE(mask_off, "SMI_EVENTS: what a new mask leaves out is not reported any more")
{
	const uint64_t none = 0;
	struct gpu gpu;
	int fd;

	need_gpu(&gpu, 0);
	fd = need_smi(&gpu, ~0ull);
	CHECK_EQ(write(fd, &none, sizeof(none)), sizeof(none));
	gpu.drm = need_render(&gpu);
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
	smi_check_empty(fd);
}

CASE(name, "SMI_EVENTS: a name with a line feed makes no line of its own")
{
	struct gpu gpu;
	int fd;

	CHECK_EQ(prctl(PR_SET_NAME, "a\nc 1 b\x01\xff"), 0);
	need_gpu(&gpu, 0);
	fd = need_smi(&gpu, BIT(KFD_SMI_EVENT_PROCESS_START));
	gpu.drm = need_render(&gpu);
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
	if (is_rkfd())
		check_named(smi_next_line(fd), KFD_SMI_EVENT_PROCESS_START, ' ', "a?c 1 b??");
	else
		smi_next_line(fd);
}

static void start_and_end(void *unused)
{
	struct gpu gpu;

	CHECK_EQ(prctl(PR_SET_NAME, "short life"), 0);
	need_vm(&gpu, 0);
	_exit(0);
}

CASE(end, "SMI_EVENTS: root sees other processes start and end")
{
	uint64_t events = BIT(KFD_SMI_EVENT_PROCESS_START) | BIT(KFD_SMI_EVENT_PROCESS_END) |
			  BIT(KFD_SMI_EVENT_ALL_PROCESS);
	unsigned int seen = 0;
	struct gpu gpu;
	int fd;

	if (geteuid())
		SKIP("needs root");
	need_gpu(&gpu, 0);
	fd = need_smi(&gpu, events);
	CHECK_EQ(in_child(start_and_end, NULL), 0);
	/* Earlier processes may end only now. */
	while (seen < 2) {
		unsigned int event;
		const char *line = smi_next_line(fd);
		char name[32];
		pid_t pid;

		CHECK_EQ(sscanf(line, "%x %x %31[^\n]", &event, (unsigned int *)&pid, name), 3);
		CHECK_NE(pid, getpid());
		if (strcmp(name, "short life"))
			continue;
		CHECK_EQ(event, seen ? KFD_SMI_EVENT_PROCESS_END : KFD_SMI_EVENT_PROCESS_START);
		seen++;
	}
}

static int from_parent[2], to_parent[2];

static void watch_without_root(void *unused)
{
	struct gpu gpu;
	char byte;
	int fd;

	need_gpu(&gpu, 0);
	gpu.drm = need_render(&gpu);
	if (setgid(65534) || setuid(65534))
		_exit(TAP_STATUS_SKIP);
	fd = need_smi(&gpu, ~0ull);
	CHECK_EQ(write(to_parent[1], "", 1), 1);
	CHECK_EQ(read(from_parent[0], &byte, 1), 1);
	/* The other process has started by now. */
	smi_check_empty(fd);
	CHECK_EQ(prctl(PR_SET_NAME, "watcher"), 0);
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
	check_named(smi_next_line(fd), KFD_SMI_EVENT_PROCESS_START, ' ', "watcher");
	_exit(0);
}

CASE(foreign, "SMI_EVENTS: without privilege one sees one's own process only")
{
	struct gpu gpu;
	int status;
	pid_t pid;
	char byte;

	if (geteuid())
		SKIP("needs root to give it up");
	CHECK_EQ(pipe(from_parent), 0);
	CHECK_EQ(pipe(to_parent), 0);
	pid = fork();
	CHECK_OP(pid, >=, 0);
	if (!pid)
		watch_without_root(NULL);
	close(to_parent[1]);
	if (read(to_parent[0], &byte, 1) == 1) {
		need_vm(&gpu, 0);
		CHECK_EQ(write(from_parent[1], "", 1), 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status) == TAP_STATUS_SKIP)
		SKIP("the watcher gave up");
	CHECK_EQ(WEXITSTATUS(status), 0);
}

#define MOVES (BIT(KFD_SMI_EVENT_MIGRATE_START) | BIT(KFD_SMI_EVENT_MIGRATE_END))
#define MOVED 32u

static void watch_moves_without_root(void)
{
	struct gpu gpu;
	char byte;
	int fd;

	need_gpu(&gpu, 0);
	if (setgid(65534) || setuid(65534))
		_exit(TAP_STATUS_SKIP);
	fd = need_smi(&gpu, ~0ull);
	CHECK_EQ(write(to_parent[1], "", 1), 1);
	CHECK_EQ(read(from_parent[0], &byte, 1), 1);
	/* The other process has moved memory by now. */
	smi_check_empty(fd);
	_exit(0);
}

/* Moves memory, tells who it is, and what it has moved. */
static void move_and_tell(void *context)
{
	uint8_t *p = memory(MOVED * PAGE, PROT_READ | PROT_WRITE);
	int tell = *(int *)context;
	struct agent a;
	struct {
		pid_t pid;
		uint64_t page;
	} told = { getpid(), (uintptr_t)p / PAGE };

	agent_open(&a, 0);
	need_moves(&a);
	pattern(p, 0, MOVED, 1);
	CHECK_OK(svm_set(&a.gpu, p, MOVED * PAGE, PREFETCH, a.gpu.id));
	CHECK_OP(device_pages(p, MOVED), >, 0);
	CHECK_EQ(write(tell, &told, sizeof(told)), sizeof(told));
	/* It ends with memory in VRAM, which nobody is told of. */
}

CASE(moves_of_others, "SMI_EVENTS: root sees that memory of other processes moves, without privilege one does not")
{
	struct {
		pid_t pid;
		uint64_t page;
	} told;
	unsigned long start, size;
	unsigned int event;
	int fd, status, tell[2], pid;
	struct gpu gpu;
	pid_t watcher;
	uint64_t ns;
	char byte;

	if (geteuid())
		SKIP("needs root to give it up");
	CHECK_EQ(pipe(from_parent), 0);
	CHECK_EQ(pipe(to_parent), 0);
	CHECK_EQ(pipe(tell), 0);
	watcher = fork();
	CHECK_OP(watcher, >=, 0);
	if (!watcher)
		watch_moves_without_root();
	close(to_parent[1]);
	if (read(to_parent[0], &byte, 1) != 1)
		child_gave_up(watcher);
	need_gpu(&gpu, 0);
	fd = need_smi(&gpu, MOVES | BIT(KFD_SMI_EVENT_ALL_PROCESS));
	status = in_child(move_and_tell, &tell[1]);
	if (status == TAP_STATUS_SKIP)
		SKIP("the driver moves no memory");
	CHECK_EQ(status, 0);
	CHECK_EQ(read(tell[0], &told, sizeof(told)), sizeof(told));
	for (event = KFD_SMI_EVENT_MIGRATE_START; event <= KFD_SMI_EVENT_MIGRATE_END; event++) {
		unsigned int found, from, to;

		CHECK_EQ(sscanf(smi_next_line(fd), "%x %lu -%d @%lx(%lx) %x->%x ", &found, &ns, &pid, &start, &size, &from, &to), 7);
		CHECK_EQ(found, event);
		CHECK_EQ(pid, told.pid);
		CHECK_EQ(start, told.page);
		CHECK_EQ(size, MOVED);
		CHECK_EQ(from, 0);
		CHECK_EQ(to, gpu.id);
	}
	smi_check_empty(fd);
	CHECK_EQ(write(from_parent[1], "", 1), 1);
	CHECK_EQ(waitpid(watcher, &status, 0), watcher);
	CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status) == TAP_STATUS_SKIP)
		SKIP("the watcher gave up");
	CHECK_EQ(WEXITSTATUS(status), 0);
}

CASE(fault, "SMI_EVENTS: a refused access names the process")
{
	int fd;

	CHECK_EQ(prctl(PR_SET_NAME, "faulty"), 0);
	begin(2 * PAGE);
	fd = need_smi(&f.gpu, BIT(KFD_SMI_EVENT_VMFAULT));
	check_shared(&f, 0, 0x11);
	smi_check_empty(fd);
	CHECK_EQ(munmap((void *)f.user.va, f.user.size), 0);
	check_faults(&f, f.user.va + PAGE);
	check_named(smi_next_line(fd), KFD_SMI_EVENT_VMFAULT, ':', "faulty");
}

CASE(eviction, "SMI_EVENTS: pages that change evict the queues, for the reason userptr, and restore them")
{
	uint64_t before, off, on;
	char wanted[32];
	const char *rest;
	int fd;

	begin(4 * PAGE);
	check_shared(&f, 0, 0x11);
	fd = need_smi(&f.gpu, BIT(KFD_SMI_EVENT_QUEUE_EVICTION) | BIT(KFD_SMI_EVENT_QUEUE_RESTORE));
	before = boot_ns();
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	snprintf(wanted, sizeof(wanted), "%x %d", f.gpu.id, KFD_QUEUE_EVICTION_TRIGGER_USERPTR);
	smi_check_text(smi_timed(smi_next_line(fd), KFD_SMI_EVENT_QUEUE_EVICTION, &off), wanted);
	do {
		rest = smi_timed(smi_next_line(fd), KFD_SMI_EVENT_QUEUE_RESTORE, &on);
		snprintf(wanted, sizeof(wanted), "%x R", f.gpu.id);
	} while (!strcmp(rest, wanted));
	snprintf(wanted, sizeof(wanted), "%x 0", f.gpu.id);
	smi_check_text(rest, wanted);
	CHECK_OP(off, >=, before);
	CHECK_OP(on, >=, off);
	CHECK_OP(boot_ns(), >=, on);
	check_shared(&f, 0, 0x22);
	smi_check_empty(fd);
}

CASE(not_evicted, "SMI_EVENTS: a process without queues is not evicted")
{
	struct gpu gpu;
	struct bo bo;
	int fd;

	if (!is_rkfd())
		SKIP("amdkfd reports the eviction of every process, with queues or without");
	need_vm(&gpu, 0);
	fd = need_smi(&gpu, BIT(KFD_SMI_EVENT_QUEUE_EVICTION));
	CHECK_OK(bo_wrap(&gpu, &bo, FLAGS_USERPTR, memory(PAGE, PROT_READ | PROT_WRITE), PAGE));
	CHECK_OK(bo_map(&gpu, &bo));
	CHECK_EQ(madvise((void *)bo.va, bo.size, MADV_DONTNEED), 0);
	smi_check_empty(fd);
}

CASE(kept, "SMI_EVENTS: what a read into no memory found is there for the next one; a short read takes a part")
{
	char line[KFD_SMI_EVENT_MSG_SIZE] = "", wanted[64];
	struct gpu gpu;
	int fd, n;

	CHECK_EQ(prctl(PR_SET_NAME, "kept"), 0);
	need_gpu(&gpu, 0);
	fd = need_smi(&gpu, BIT(KFD_SMI_EVENT_PROCESS_START));
	gpu.drm = need_render(&gpu);
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
	CHECK_EQ(read(fd, memory(PAGE, PROT_NONE), PAGE), -1);
	CHECK_EQ(errno, EFAULT);
	if (!is_rkfd())
		return;
	n = snprintf(wanted, sizeof(wanted), "%x %x kept\n", KFD_SMI_EVENT_PROCESS_START, getpid());
	CHECK_EQ(read(fd, line, 3), 3);
	CHECK_EQ(read(fd, line + 3, sizeof(line) - 3), n - 3);
	smi_check_text(line, wanted);
	smi_check_empty(fd);
}

CASE(overflow, "SMI_EVENTS: a file that nobody reads holds whole lines, the oldest ones, and reports again once it was read")
{
	static char text[FIFO_BYTES + 1];
	const uint64_t events = BIT(KFD_SMI_EVENT_QUEUE_EVICTION);
	uint64_t ns, last = 0, before;
	unsigned int lines = 0, bytes = 0;
	int fd, n, fresh;

	begin(PAGE);
	fd = need_smi(&f.gpu, events);
	before = boot_ns();
	/* More than there is room for: a second file, which is read, says how much it is. */
	fresh = need_smi(&f.gpu, events);
	while (bytes < FIFO_BYTES + PAGE) {
		const char *line;

		check_shared(&f, 0, lines);
		CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
		line = smi_next_line(fresh);
		bytes += strlen(line);
		smi_timed(line, KFD_SMI_EVENT_QUEUE_EVICTION, &ns);
		lines++;
	}
	n = read(fd, text, sizeof(text));
	CHECK_OP(n, <=, FIFO_BYTES);
	CHECK_OP(n, >, FIFO_BYTES - KFD_SMI_EVENT_MSG_SIZE);
	CHECK_EQ(text[n - 1], '\n');
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines--) {
		smi_timed(line, KFD_SMI_EVENT_QUEUE_EVICTION, &ns);
		if (!last)
			CHECK_OP(ns, >=, before);
		CHECK_OP(ns, >, last);
		last = ns;
	}
	CHECK_OP(lines, >, 0);
	smi_check_empty(fd);
	check_shared(&f, 0, 1);
	CHECK_EQ(madvise((void *)f.user.va, f.user.size, MADV_DONTNEED), 0);
	smi_timed(smi_next_line(fd), KFD_SMI_EVENT_QUEUE_EVICTION, &ns);
	CHECK_OP(ns, >, last);
}

static void *starts(void *context)
{
	struct gpu *gpu = context;

	CHECK_OK(acquire_vm(gpu, gpu->drm));
	return NULL;
}

CASE(sleeper, "SMI_EVENTS: a line wakes who sleeps in poll")
{
	struct pollfd p = { .events = POLLIN };
	pthread_t thread;
	struct gpu gpu;

	need_gpu(&gpu, 0);
	gpu.drm = need_render(&gpu);
	p.fd = need_smi(&gpu, BIT(KFD_SMI_EVENT_PROCESS_START));
	CHECK_EQ(pthread_create(&thread, NULL, starts, &gpu), 0);
	CHECK_EQ(poll(&p, 1, tap_ms(30000)), 1);
	CHECK_EQ(p.revents, POLLIN);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

CASE(many, "SMI_EVENTS: 200 files of one process report the same")
{
	struct gpu gpu;
	int fds[200];

	CHECK_EQ(prctl(PR_SET_NAME, "many"), 0);
	need_gpu(&gpu, 0);
	gpu.drm = need_render(&gpu);
	for (int i = 0; i < 200; i++)
		fds[i] = need_smi(&gpu, BIT(KFD_SMI_EVENT_PROCESS_START));
	for (int i = 0; i < 200; i += 3)
		close(fds[i]);
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
	for (int i = 0; i < 200; i++)
		if (i % 3)
			check_named(smi_next_line(fds[i]), KFD_SMI_EVENT_PROCESS_START, ' ', "many");
}
