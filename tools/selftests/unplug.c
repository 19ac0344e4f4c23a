// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A GPU that goes away while it is in use: unbound from its driver, or taken off the bus, and back.
 *
 * Needs root, and a driver that may be unbound. Each case leaves the GPU bound again.
 */
#include "files.h"
#include "native.h"
#include "udmabuf.h"

#include <dirent.h>
#include <drm/amdgpu_drm.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE

static char address[64], driver[256];

/* Finds the PCI function and the driver behind a render node. */
static void find_device(const struct gpu *gpu)
{
	char link[128], target[512];
	ssize_t n;

	if (geteuid())
		SKIP("needs root");
	snprintf(link, sizeof(link), "/sys/class/drm/renderD%u/device", gpu->render_minor);
	CHECK(realpath(link, target));
	snprintf(address, sizeof(address), "%.63s", strrchr(target, '/') + 1);
	strcat(link, "/driver");
	n = readlink(link, target, sizeof(target) - 1);
	CHECK_OP(n, >, 0);
	target[n] = '\0';
	snprintf(driver, sizeof(driver), "/sys/bus/pci/drivers/%.200s", strrchr(target, '/') + 1);
	if (strcmp(strrchr(driver, '/'), "/rkfd"))
		SKIP("%s is not a driver that these tests take GPUs from", driver);
}

static void unbind(void)
{
	write_text(driver, "unbind", address);
}

static void bind_again(void)
{
	write_text(driver, "bind", address);
}

static void off_the_bus(void)
{
	char device[128];

	snprintf(device, sizeof(device), "/sys/bus/pci/devices/%s", address);
	write_text(device, "remove", "1");
}

static void rescan(void)
{
	write_text("/sys/bus/pci", "rescan", "1");
}

static void works(void *unused)
{
	struct packets p = { .n = 0 };
	struct gpu gpu;
	struct queue q;
	struct bo bo;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	pm4_write(&p, bo.va, 0x11fe);
	submit(&q, &p);
	await32(bo32(&bo, 0), 0x11fe, "a new process's work");
	drop_queue(&gpu, &q);
	drop_bo(&gpu, &bo);
}

static sigjmp_buf escape;

static void on_bus_error(int number)
{
	siglongjmp(escape, 1);
}

/* Uses everything that the process had: nothing may hang, and nothing may claim to work. */
static void everything_refuses(struct gpu *gpu, struct queue *q, struct bo *bo)
{
	struct kfd_ioctl_get_version_args version = { 0, 0 };
	struct sigaction action = { .sa_handler = on_bus_error, .sa_flags = SA_NODEFER };
	struct kfd_ioctl_create_queue_args again = q->args;
	struct bo more;

	/* The driver itself is still there. */
	CHECK_OK(kfd_call(gpu->fd, AMDKFD_IOC_GET_VERSION, &version));
	CHECK_NE(bo_alloc(gpu, &more, FLAGS_GTT, PAGE), 0);
	CHECK_NE(kfd_call(gpu->fd, AMDKFD_IOC_CREATE_QUEUE, &again), 0);
	/* Old objects may be given back or may be gone; either answer comes at once. */
	queue_update(gpu, q, 100, 7);
	queue_destroy(gpu, q->args.queue_id);
	bo_unmap(gpu, bo);
	bo_free(gpu, bo);
	/* Touching the doorbell reaches nothing: a bus error, or a page that leads nowhere. */
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
	CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
	if (!sigsetjmp(escape, 1))
		*q->doorbell = q->written + 5;
	if (!sigsetjmp(escape, 1))
		*bo32(bo, 0) = 1;
}

static void in_use(void (*away)(void), void (*back)(void))
{
	struct packets p = { .n = 0 };
	struct event ev;
	struct gpu gpu;
	struct queue q;
	struct bo bo;

	need_vm(&gpu, 0);
	find_device(&gpu);
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &bo, FLAGS_VRAM, 2 * PAGE);
	need_event(&gpu, true, &ev);
	pm4_write(&p, bo.va, 7);
	submit(&q, &p);
	await32(bo32(&bo, 0), 7, "work before");
	away();
	everything_refuses(&gpu, &q, &bo);
	back();
	/* This process keeps its files to the dead device; a new one finds the live one. */
	CHECK_EQ(in_child(works, NULL), 0);
	CHECK_EQ(in_child(works, NULL), 0);
}

CASE_LIMIT(unbound_in_use, "unbound while a queue, a buffer and an event live; bound again it works", 120)
{
	in_use(unbind, bind_again);
}

CASE_LIMIT(removed_in_use, "taken off the bus while a queue, a buffer and an event live; found again it works", 120)
{
	in_use(off_the_bus, rescan);
}

CASE_LIMIT(unbound_busy, "unbound while a queue waits in WAIT_REG_MEM; bound again it works", 120)
{
	struct packets p = { .n = 0 };
	struct gpu gpu;
	struct queue q;
	struct bo bo;

	need_vm(&gpu, 0);
	find_device(&gpu);
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	pm4_write(&p, bo.va + 8, 1);
	pm4_wait(&p, 3, bo.va, 42, 0xffffffff);
	submit(&q, &p);
	await32(bo32(&bo, 8), 1, "the packet before the wait");
	unbind();
	bind_again();
	CHECK_EQ(in_child(works, NULL), 0);
}

static int shared_buffer(const struct gpu *gpu, uint32_t flags, volatile uint32_t **cpu)
{
	struct kfd_ioctl_export_dmabuf_args args = { .flags = O_CLOEXEC };
	struct bo bo;

	need_bo(gpu, &bo, flags, 2 * PAGE);
	args.handle = bo.handle;
	CHECK_OK(kfd_call(gpu->fd, AMDKFD_IOC_EXPORT_DMABUF, &args));
	*cpu = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, args.dmabuf_fd, 0);
	CHECK(*cpu != MAP_FAILED);
	(*cpu)[0] = 0x600d;
	CHECK_EQ(*bo32(&bo, 0), 0x600d);
	return args.dmabuf_fd;
}

/* Whether an access ends in a signal. */
static bool is_refused(volatile uint32_t *cpu)
{
	if (sigsetjmp(escape, 1))
		return true;
	cpu[0] = 1;
	return false;
}

/* Runs with the buffers of a GPU that is gone; the one that is there by now does not know them. */
static void new_gpu_refuses(void *fds)
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	for (int i = 0; i < 2; i++) {
		struct kfd_ioctl_import_dmabuf_args args = {
			.va_addr = need_address(PAGE, PAGE),
			.gpu_id = gpu.id,
			.dmabuf_fd = ((const int *)fds)[i],
		};

		/* System memory is any GPU's. */
		CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args), i ? EINVAL : 0);
	}
}

CASE_LIMIT(unbound_shared, "unbound while buffers are shared by descriptors: mappings of these end, the descriptors stay", 120)
{
	struct sigaction action = { .sa_handler = on_bus_error, .sa_flags = SA_NODEFER };
	volatile uint32_t *cpu[2];
	struct gpu gpu;
	int fds[2];

	need_vm(&gpu, 0);
	find_device(&gpu);
	fds[0] = shared_buffer(&gpu, FLAGS_GTT, &cpu[0]);
	fds[1] = shared_buffer(&gpu, FLAGS_VRAM, &cpu[1]);
	unbind();
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
	for (int i = 0; i < 2; i++) {
		CHECK(is_refused(cpu[i]));
		CHECK_EQ(lseek(fds[i], 0, SEEK_END), 2 * PAGE);
	}
	bind_again();
	CHECK(is_refused(cpu[0]));
	CHECK(is_refused(cpu[1]));
	CHECK_EQ(in_child(new_gpu_refuses, fds), 0);
	close(fds[0]);
	close(fds[1]);
	CHECK_EQ(in_child(works, NULL), 0);
}

/* Memory of another driver. */
static struct udmabuf imported;

/* Has the GPU write it. */
static void write_import(uint32_t value)
{
	struct kfd_ioctl_import_dmabuf_args args = { .dmabuf_fd = (uint32_t)imported.fd };
	struct packets p = { .n = 0 };
	struct gpu gpu;
	struct queue q;
	struct bo bo;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, COMPUTE);
	bo = (struct bo){ .va = need_address(imported.size, PAGE), .size = imported.size };
	args.gpu_id = gpu.id;
	args.va_addr = bo.va;
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_IMPORT_DMABUF, &args));
	bo.handle = args.handle;
	CHECK_OK(bo_map(&gpu, &bo));
	pm4_write(&p, bo.va + PAGE, value);
	submit(&q, &p);
	await32(udmabuf32(&imported, PAGE), value, "what the GPU writes");
}

static void hold_import(int ready)
{
	write_import(0xb0);
	say_ready(ready);
	pause();
}

static void import_anew(void *unused)
{
	write_import(0xb2);
}

CASE_LIMIT(unbound_importing, "unbound while memory of another driver is mapped: that is its owner's again when the program ends", 120)
{
	struct gpu gpu;
	pid_t pid;

	need_vm(&gpu, 0);
	find_device(&gpu);
	need_udmabuf(&imported, 3, NULL, 0);
	pid = start_child(hold_import);
	unbind();
	CHECK_EQ(*udmabuf32(&imported, PAGE), 0xb0);
	*udmabuf32(&imported, PAGE) = 0xb1;
	bind_again();
	CHECK_EQ(*udmabuf32(&imported, PAGE), 0xb1);
	CHECK_EQ(in_child(import_anew, NULL), 0);
	kill_child(pid);
	CHECK_EQ(*udmabuf32(&imported, PAGE), 0xb2);
	CHECK_EQ(munmap(imported.cpu, imported.size), 0);
	CHECK_EQ(close(imported.fd), 0);
	await_unshared(imported.memfd);
	CHECK_EQ(in_child(works, NULL), 0);
}

struct sleeper {
	const struct gpu *gpu;
	uint32_t id;
	int err;
	struct waited w;
	volatile int asleep;
};

static void *sleep_on(void *arg)
{
	struct sleeper *s = arg;

	__atomic_store_n(&s->asleep, 1, __ATOMIC_RELEASE);
	s->err = event_wait(s->gpu, &s->id, 1, true, 3000, &s->w);
	return NULL;
}

CASE_LIMIT(unbound_asleep, "unbound while a thread sleeps on an event: it ends, woken, failed or timed out", 120)
{
	struct sleeper s = { 0 };
	struct event ev;
	struct gpu gpu;
	pthread_t t;

	need_vm(&gpu, 0);
	find_device(&gpu);
	need_event(&gpu, true, &ev);
	s.gpu = &gpu;
	s.id = ev.id;
	CHECK_EQ(pthread_create(&t, NULL, sleep_on, &s), 0);
	while (!__atomic_load_n(&s.asleep, __ATOMIC_ACQUIRE))
		sched_yield();
	unbind();
	CHECK_EQ(pthread_join(t, NULL), 0);
	bind_again();
	CHECK_EQ(in_child(works, NULL), 0);
}

/* A query whose answer goes where no memory is yet. */
struct query {
	int drm;
	struct drm_amdgpu_info info;
	int err;
};

static void *ask(void *arg)
{
	struct query *q = arg;

	q->err = ioctl(q->drm, DRM_IOCTL_AMDGPU_INFO, &q->info) ? errno : 0;
	return NULL;
}

static void *unbind_from_thread(void *done)
{
	unbind();
	__atomic_store_n((volatile int *)done, 1, __ATOMIC_RELEASE);
	return NULL;
}

CASE_LIMIT(unbound_in_fault, "unbound while a query of the render node waits for the memory that its answer goes to", 120)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero = { .range.len = PAGE };
	struct uffdio_api api = { .api = UFFD_API };
	pthread_t asker, unbinder;
	struct query q = { 0 };
	volatile uint32_t *at;
	struct uffd_msg msg;
	struct pollfd fault;
	volatile int done = 0;
	bool in_time;
	struct gpu gpu;
	uint64_t end;

	need_vm(&gpu, 0);
	find_device(&gpu);
	fault = (struct pollfd){ .fd = syscall(SYS_userfaultfd, O_CLOEXEC), .events = POLLIN };
	if (fault.fd < 0)
		SKIP("no userfaultfd: %s", strerror(errno));
	CHECK_EQ(ioctl(fault.fd, UFFDIO_API, &api), 0);
	at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	reg.range.start = zero.range.start = (uintptr_t)at;
	reg.range.len = PAGE;
	CHECK_EQ(ioctl(fault.fd, UFFDIO_REGISTER, &reg), 0);

	q.drm = gpu.drm;
	q.info.return_pointer = (uintptr_t)at;
	q.info.return_size = sizeof(*at);
	q.info.query = AMDGPU_INFO_ACCEL_WORKING;
	CHECK_EQ(pthread_create(&asker, NULL, ask, &q), 0);
	CHECK_EQ(poll(&fault, 1, WAIT_MS), 1);
	CHECK_EQ(read(fault.fd, &msg, sizeof(msg)), sizeof(msg));
	CHECK_EQ(msg.event, UFFD_EVENT_PAGEFAULT);

	CHECK_EQ(pthread_create(&unbinder, NULL, unbind_from_thread, (void *)&done), 0);
	end = now_ms() + WAIT_MS;
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE) && now_ms() < end)
		usleep(1000);
	in_time = __atomic_load_n(&done, __ATOMIC_ACQUIRE);
	/* Whatever came of it, nothing may hang when the case ends. */
	CHECK_EQ(ioctl(fault.fd, UFFDIO_ZEROPAGE, &zero), 0);
	CHECK_EQ(pthread_join(asker, NULL), 0);
	CHECK_EQ(pthread_join(unbinder, NULL), 0);
	bind_again();
	if (!in_time)
		FAIL("unbinding waited %u ms for the query", WAIT_MS);
	/* The answer is that of the time when it was asked. */
	CHECK_ERR(q.err, 0);
	CHECK_EQ(*at, 1);
	CHECK_EQ(in_child(works, NULL), 0);
}

struct native_sleeper {
	const struct nfile *file;
	volatile pid_t tid;
	int err;
};

/* Sleeps for a word that nobody writes. */
static void *sleep_natively(void *context)
{
	struct native_sleeper *me = context;
	uint64_t word = 0;
	struct drm_rkfd_wait_op op = { .address = (uintptr_t)&word, .value = 1, .mask = ~0ull, .size = 8 };
	struct drm_rkfd_wait wait = {
		.ops = (uintptr_t)&op, .count = 1, .stride = sizeof(op), .deadline = ~0ull,
	};

	__atomic_store_n(&me->tid, gettid(), __ATOMIC_RELEASE);
	do
		me->err = native(me->file->fd, DRM_IOCTL_RKFD_WAIT, &wait);
	while (me->err == EINTR);
	return NULL;
}

CASE_LIMIT(unbound_native, "unbound while the native interface is in use: an event, an end of waits, and ENODEV from every call", 120)
{
	struct sigaction action = { .sa_handler = on_bus_error, .sa_flags = SA_NODEFER };
	struct drm_rkfd_event_create event = { .condition = DRM_RKFD_EVENT_RESET };
	struct drm_rkfd_queue_update update = { .flags = DRM_RKFD_UPDATE_PRIORITY };
	struct drm_rkfd_query query = { .what = DRM_RKFD_QUERY_DEVICE };
	struct drm_rkfd_event_destroy event_destroy = { .pad = 0 };
	struct nfile file, second;
	struct native_sleeper sleepers[2] = { { .file = &file }, { .file = &second } };
	struct packets p = { .n = 0 };
	struct drm_rkfd_wait wait = { .count = 1 };
	struct drm_rkfd_faults faults = { .count = 0 };
	struct drm_rkfd_bo_info info;
	struct pollfd told;
	struct nqueue q;
	struct nbo bo;
	struct gpu gpu;
	pthread_t threads[2];

	need_gpu(&gpu, 0);
	find_device(&gpu);
	need_file(&file);
	need_nqueue(&file, &q, DRM_RKFD_QUEUE_SDMA, 0x10000000);
	need_nbo(&file, &bo, VRAM, PAGE);
	CHECK_OK(bind_one(&file, 0x100000000, PAGE, bo.handle, 0));
	sdma_fence(&p, 0x100000000, 7);
	nsubmit(&q, &p);
	await32((volatile uint32_t *)bo.cpu, 7, "work before");
	told = (struct pollfd){ .fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN };
	event.eventfd = told.fd;
	CHECK_OK(native(file.fd, DRM_IOCTL_RKFD_EVENT_CREATE, &event));
	/* Both files are known by then: each has asked for its faults. */
	need_file(&second);
	for (int i = 0; i < 2; i++) {
		faults.stride = sizeof(struct drm_rkfd_fault);
		CHECK_OK(native(sleepers[i].file->fd, DRM_IOCTL_RKFD_FAULTS, &faults));
		CHECK_EQ(pthread_create(&threads[i], NULL, sleep_natively, &sleepers[i]), 0);
		await_sleep(&sleepers[i].tid);
	}
	unbind();
	CHECK_EQ(poll(&told, 1, (int)WAIT_MS), 1);
	for (int i = 0; i < 2; i++) {
		join_in_time(threads[i], i ? "the wait of the second file" : "the wait of the first file");
		CHECK_ERR(sleepers[i].err, ENODEV);
	}
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_QUERY, &query), ENODEV);
	CHECK_ERR(nbo_create(&file, &bo, SYSTEM, PAGE, 0), ENODEV);
	CHECK_ERR(nbo_info(&file, 1, &info), ENODEV);
	CHECK_ERR(unbind_one(&file, 0x100000000, PAGE), ENODEV);
	CHECK_ERR(nqueue_create(&file, &q), ENODEV);
	update.id = q.args.id;
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_QUEUE_UPDATE, &update), ENODEV);
	CHECK_ERR(nqueue_destroy(&file, q.args.id), ENODEV);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_EVENT_CREATE, &event), ENODEV);
	event_destroy.slot = 1;
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_EVENT_DESTROY, &event_destroy), ENODEV);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_WAIT, &wait), ENODEV);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_FAULTS, &faults), ENODEV);
	/* What is mapped reaches nothing. */
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
	CHECK(is_refused((volatile uint32_t *)q.doorbell));
	CHECK(is_refused((volatile uint32_t *)q.memory.cpu));
	close_file(&file);
	close_file(&second);
	bind_again();
	CHECK_EQ(in_child(works, NULL), 0);
	need_file(&file);
	close_file(&file);
}

CASE_LIMIT(readers, "topology files held open and read across unbinding and binding", 120)
{
	static const char *const files[] = { "gpu_id", "name", "properties", "mem_banks/0/properties",
					     "caches/0/properties", "io_links/0/properties" };
	int fds[6];
	char path[256], text[4096];
	struct gpu gpu;
	int node = -1;

	need_gpu(&gpu, 0);
	find_device(&gpu);
	for (int i = 0; i < 64 && node < 0; i++) {
		FILE *f;
		unsigned int id;

		snprintf(path, sizeof(path), "/sys/devices/virtual/kfd/kfd/topology/nodes/%d/gpu_id", i);
		f = fopen(path, "r");
		CHECK(f);
		CHECK_EQ(fscanf(f, "%u", &id), 1);
		fclose(f);
		if (id == gpu.id)
			node = i;
	}
	for (int i = 0; i < 6; i++) {
		snprintf(path, sizeof(path), "/sys/devices/virtual/kfd/kfd/topology/nodes/%d/%s", node, files[i]);
		fds[i] = open(path, O_RDONLY);
		if (fds[i] < 0)
			FAIL("%s: %s", path, strerror(errno));
		CHECK_OP(pread(fds[i], text, sizeof(text), 0), >, 0);
	}
	for (int round = 0; round < 3; round++) {
		unbind();
		for (int i = 0; i < 6; i++) {
			/* The file's node is gone: no answer, and no old one. */
			CHECK_EQ(pread(fds[i], text, sizeof(text), 0), -1);
			CHECK_EQ(errno, ENODEV);
		}
		bind_again();
	}
	CHECK_EQ(in_child(works, NULL), 0);
}

CASE_LIMIT(id_stays, "the GPU's id is the same after it came back", 120)
{
	struct gpu before, after;

	need_gpu(&before, 0);
	find_device(&before);
	close(before.fd);
	for (int round = 0; round < 3; round++) {
		unbind();
		bind_again();
		need_gpu(&after, 0);
		CHECK_EQ(after.id, before.id);
		close(after.fd);
	}
}

CASE_LIMIT(generation_moves, "the topology's generation moves when a GPU goes and when it comes", 120)
{
	const char *path = "/sys/devices/virtual/kfd/kfd/topology/generation_id";
	unsigned long seen[3];
	struct gpu gpu;

	need_gpu(&gpu, 0);
	find_device(&gpu);
	for (int i = 0; i < 3; i++) {
		FILE *f = fopen(path, "r");

		CHECK(f);
		CHECK_EQ(fscanf(f, "%lu", &seen[i]), 1);
		fclose(f);
		if (i == 0)
			unbind();
		else if (i == 1)
			bind_again();
	}
	CHECK_NE(seen[0], seen[1]);
	CHECK_NE(seen[1], seen[2]);
	CHECK_NE(seen[0], seen[2]);
}
