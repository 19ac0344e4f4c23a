// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Allocations of the driver's calls fail, one at a time: each call is then refused with ENOMEM (EFAULT where it was
 * the copy to or from user space that failed) or does without, and the same call afterwards succeeds and works.
 * Needs a kernel with fault injection (/proc/self/fail-nth); who runs it has switched on failslab and the like.
 */
#include "attributes.h"
#include "pages.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
#define AQL KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
#define SDMA KFD_IOC_QUEUE_TYPE_SDMA

/* More allocations than any call makes. */
enum { MOST = 3000 };
/* How a child ends besides 0 (the call made fewer allocations) and 1 (a check failed). */
enum { REFUSED = 10, SURVIVED = 11 };

/* One attempt, in a process of its own. */
struct attempt {
	unsigned int nth;
	uint32_t kind;
	struct gpu gpu;
	int drm;
	struct bo bo;
	struct queue q;
	struct event event;
	uint64_t page;
	void (*prepare)(struct attempt *a);
	int (*call)(struct attempt *a);
	void (*verify)(struct attempt *a);
};

static int counter = -1;

/* The write itself copies from user space and so may be what fails; then nothing is armed any more. */
static void arm(unsigned int nth)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%u", nth);

	for (int i = 0; i < 3; i++)
		if (pwrite(counter, text, n, 0) == n)
			return;
	FAIL("fail-nth cannot be written: %s", strerror(errno));
}

/* Whether the failure came to pass before this. */
static bool disarm(void)
{
	char text[16] = "";
	bool failed = pread(counter, text, sizeof(text) - 1, 0) > 0 && atoi(text) == 0;

	arm(0);
	return failed;
}

static void attempt(void *context)
{
	struct attempt *a = context;
	bool failed;
	int err;

	/* Of this process, not of the one that forked it. */
	counter = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	CHECK(counter >= 0);
	a->prepare(a);
	arm(a->nth);
	err = a->call(a);
	failed = disarm();
	if (err) {
		if (!failed || (err != ENOMEM && err != EFAULT))
			FAIL("allocation %u: %s", a->nth, tap_errno(err));
		/* Nothing was held back. */
		CHECK_OK(a->call(a));
	}
	if (a->verify)
		a->verify(a);
	_exit(!failed ? 0 : err ? REFUSED : SURVIVED);
}

static void sweep(struct attempt *a)
{
	unsigned int refused = 0, survived = 0;

	if (access("/proc/thread-self/fail-nth", W_OK))
		SKIP("this kernel injects no faults");
	for (a->nth = 1; a->nth < MOST; a->nth++) {
		int status = in_child(attempt, a);

		if (status == 0)
			break;
		if (status != REFUSED && status != SURVIVED)
			FAIL("allocation %u: the process ended with %d", a->nth, status);
		*(status == REFUSED ? &refused : &survived) += 1;
	}
	tap_note("%u allocations: %u times refused, %u times done all the same", a->nth - 1, refused, survived);
	CHECK_OP(a->nth, <, MOST);
	CHECK_OP(refused, >, 0);
}

static void with_vm(struct attempt *a)
{
	need_vm(&a->gpu, 0);
}

/* /dev/kfd and address space */

static void nothing(struct attempt *a)
{
}

static int open_kfd(struct attempt *a)
{
	a->gpu.fd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
	return a->gpu.fd < 0 ? errno : 0;
}

static void is_kfd(struct attempt *a)
{
	struct kfd_ioctl_get_version_args args = { 0 };

	CHECK_OK(kfd_call(a->gpu.fd, AMDKFD_IOC_GET_VERSION, &args));
	CHECK_EQ(args.major_version, KFD_IOCTL_MAJOR_VERSION);
}

CASE_LIMIT(opening, "open of /dev/kfd", 600)
{
	struct attempt a = { .prepare = nothing, .call = open_kfd, .verify = is_kfd };

	sweep(&a);
}

static void unbound(struct attempt *a)
{
	need_gpu(&a->gpu, 0);
	a->drm = need_render(&a->gpu);
	a->gpu.drm = a->drm;
}

static int acquire(struct attempt *a)
{
	return acquire_vm(&a->gpu, a->drm);
}

static void has_vm(struct attempt *a)
{
	need_bo(&a->gpu, &a->bo, FLAGS_GTT, PAGE);
	drop_bo(&a->gpu, &a->bo);
}

CASE_LIMIT(acquiring, "ACQUIRE_VM", 600)
{
	struct attempt a = { .prepare = unbound, .call = acquire, .verify = has_vm };

	sweep(&a);
}

/* Memory */

static void with_address(struct attempt *a)
{
	with_vm(a);
	a->bo.size = 4 * PAGE;
	if (a->kind != FLAGS_USERPTR) {
		a->bo.va = need_address(a->bo.size, PAGE);
		return;
	}
	a->bo.va = (uintptr_t)mmap(NULL, a->bo.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset((void *)a->bo.va, 1, a->bo.size);
}

static int allocate(struct attempt *a)
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = {
		.va_addr = a->bo.va,
		.size = a->bo.size,
		.gpu_id = a->gpu.id,
		.flags = a->kind,
		.mmap_offset = a->kind == FLAGS_USERPTR ? a->bo.va : 0,
	};
	int err = kfd_call(a->gpu.fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args);

	a->bo.handle = args.handle;
	return err;
}

static void maps(struct attempt *a)
{
	CHECK_OK(bo_map(&a->gpu, &a->bo));
	CHECK_OK(bo_unmap(&a->gpu, &a->bo));
	CHECK_OK(bo_free(&a->gpu, &a->bo));
}

static void allocating(uint32_t kind)
{
	struct attempt a = { .kind = kind, .prepare = with_address, .call = allocate, .verify = maps };

	sweep(&a);
}

CASE_LIMIT(alloc_gtt, "ALLOC_MEMORY_OF_GPU: GTT", 600) { allocating(FLAGS_GTT); }
CASE_LIMIT(alloc_vram, "ALLOC_MEMORY_OF_GPU: VRAM", 600) { allocating(FLAGS_VRAM); }
CASE_LIMIT(alloc_userptr, "ALLOC_MEMORY_OF_GPU: user memory", 600) { allocating(FLAGS_USERPTR); }

static void allocated(struct attempt *a)
{
	with_address(a);
	CHECK_OK(allocate(a));
}

static int map(struct attempt *a)
{
	return bo_map(&a->gpu, &a->bo);
}

static void unmaps(struct attempt *a)
{
	CHECK_OK(bo_unmap(&a->gpu, &a->bo));
	CHECK_OK(bo_free(&a->gpu, &a->bo));
}

static void mapping(uint32_t kind)
{
	struct attempt a = { .kind = kind, .prepare = allocated, .call = map, .verify = unmaps };

	sweep(&a);
}

CASE_LIMIT(map_gtt, "MAP_MEMORY_TO_GPU: GTT", 600) { mapping(FLAGS_GTT); }
CASE_LIMIT(map_vram, "MAP_MEMORY_TO_GPU: VRAM", 600) { mapping(FLAGS_VRAM); }
CASE_LIMIT(map_userptr, "MAP_MEMORY_TO_GPU: user memory", 600) { mapping(FLAGS_USERPTR); }

/* Queues */

static void prepared(struct attempt *a)
{
	with_vm(a);
	queue_prepare(&a->gpu, &a->q, a->kind, a->kind == SDMA ? 0x10000 : 0x1000);
}

static int create(struct attempt *a)
{
	return kfd_call(a->gpu.fd, AMDKFD_IOC_CREATE_QUEUE, &a->q.args);
}

static void queue_ends(struct attempt *a)
{
	CHECK_OK(queue_destroy(&a->gpu, a->q.args.queue_id));
	/* It works again, with packets. */
	if (a->kind == COMPUTE) {
		struct packets p = { .n = 0 };

		need_queue(&a->gpu, &a->q, COMPUTE);
		need_bo(&a->gpu, &a->bo, FLAGS_GTT, PAGE);
		pm4_write(&p, a->bo.va, 0xa11c);
		submit(&a->q, &p);
		await32(bo32(&a->bo, 0), 0xa11c, "a packet");
	}
}

static void creating(uint32_t type)
{
	struct attempt a = { .kind = type, .prepare = prepared, .call = create, .verify = queue_ends };

	sweep(&a);
}

CASE_LIMIT(create_pm4, "CREATE_QUEUE: PM4", 900) { creating(COMPUTE); }
CASE_LIMIT(create_aql, "CREATE_QUEUE: AQL", 900) { creating(AQL); }
CASE_LIMIT(create_sdma, "CREATE_QUEUE: SDMA", 900) { creating(SDMA); }

static void live(struct attempt *a)
{
	with_vm(a);
	need_queue(&a->gpu, &a->q, COMPUTE);
}

static int update(struct attempt *a)
{
	return queue_update(&a->gpu, &a->q, 50, 3);
}

static void queue_works(struct attempt *a)
{
	struct packets p = { .n = 0 };

	need_bo(&a->gpu, &a->bo, FLAGS_GTT, PAGE);
	pm4_write(&p, a->bo.va, 0xa11c);
	submit(&a->q, &p);
	await32(bo32(&a->bo, 0), 0xa11c, "a packet");
	drop_queue(&a->gpu, &a->q);
	drop_bo(&a->gpu, &a->bo);
}

CASE_LIMIT(updating, "UPDATE_QUEUE", 600)
{
	struct attempt a = { .prepare = live, .call = update, .verify = queue_works };

	sweep(&a);
}

/* Events */

static void with_slots(struct attempt *a)
{
	struct event first;

	with_vm(a);
	need_event(&a->gpu, true, &first);
}

static int create_event(struct attempt *a)
{
	return event_create(&a->gpu, KFD_IOC_EVENT_SIGNAL, true, 0, &a->event);
}

static int wait_for_it(struct attempt *a)
{
	struct waited waited;
	int err = event_wait(&a->gpu, &a->event.id, 1, true, 0, &waited);

	return err;
}

static void event_works(struct attempt *a)
{
	struct waited waited;

	CHECK_OK(event_set(&a->gpu, a->event.id));
	CHECK_OK(event_wait(&a->gpu, &a->event.id, 1, true, 10000, &waited));
	CHECK_EQ(waited.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_OK(event_destroy(&a->gpu, a->event.id));
}

CASE_LIMIT(event_creating, "CREATE_EVENT", 600)
{
	struct attempt a = { .prepare = with_slots, .call = create_event, .verify = event_works };

	sweep(&a);
}

static void with_event(struct attempt *a)
{
	with_vm(a);
	need_event(&a->gpu, true, &a->event);
}

CASE_LIMIT(waiting, "WAIT_EVENTS", 600)
{
	struct attempt a = { .prepare = with_event, .call = wait_for_it, .verify = event_works };

	sweep(&a);
}

/* Memory that moves */

enum { MOVED = 8 };

static void with_memory(struct attempt *a)
{
	void *p = mmap(NULL, MOVED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	with_vm(a);
	CHECK(p != MAP_FAILED);
	pattern(p, 0, MOVED, 1);
	a->bo.va = (uintptr_t)p;
	CHECK_OK(svm_set(&a->gpu, p, MOVED * PAGE, IN_PLACE, a->gpu.id));
}

static int prefetch(struct attempt *a, uint32_t location)
{
	return svm_set(&a->gpu, (void *)a->bo.va, MOVED * PAGE, PREFETCH, location);
}

static int move_in(struct attempt *a)
{
	return prefetch(a, a->gpu.id);
}

static int move_out(struct attempt *a)
{
	return prefetch(a, 0);
}

/* Until all is there: again for pages that somebody had in hand for a moment. */
static void has_moved(struct attempt *a, uint32_t location)
{
	uint64_t end = now_ms() + WAIT_MS;
	unsigned int wanted = location ? MOVED : 0;

	while (device_pages((void *)a->bo.va, MOVED) != wanted) {
		if (now_ms() > end)
			FAIL("%u pages of %u are in VRAM", device_pages((void *)a->bo.va, MOVED), (unsigned int)MOVED);
		usleep(1000);
		CHECK_OK(prefetch(a, location));
	}
}

static void is_whole(struct attempt *a)
{
	has_pattern((uint8_t *)a->bo.va, 0, MOVED, 1);
	CHECK_OK(move_in(a));
	has_moved(a, a->gpu.id);
	has_pattern((uint8_t *)a->bo.va, 0, MOVED, 1);
}

static void with_memory_in_vram(struct attempt *a)
{
	with_memory(a);
	CHECK_OK(move_in(a));
	has_moved(a, a->gpu.id);
}

static void is_out(struct attempt *a)
{
	has_moved(a, 0);
	has_pattern((uint8_t *)a->bo.va, 0, MOVED, 1);
}

CASE_LIMIT(moving_in, "SVM: a prefetch to the GPU", 900)
{
	struct attempt a = { .prepare = with_memory, .call = move_in, .verify = is_whole };

	sweep(&a);
}

CASE_LIMIT(moving_out, "SVM: a prefetch to the system", 900)
{
	struct attempt a = { .prepare = with_memory_in_vram, .call = move_out, .verify = is_out };

	sweep(&a);
}
