// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The native interface for 32-bit programs: the same calls by the 32-bit entry of the kernel, which a 64-bit program can
 * use, too. All arguments lie below 4 GiB, as theirs do.
 */
#include "native.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define AT 0x100000000ul
/* ioctl in the table of 32-bit system calls. */
#define NR_IOCTL32 54

static sigjmp_buf escape;

static void on_fault(int number)
{
	siglongjmp(escape, 1);
}

/* The call itself: 0 or errno. */
static int native32(int fd, unsigned long request, void *args)
{
	long result = NR_IOCTL32;

	__asm__ volatile("int $0x80"
			 : "+a"(result)
			 : "b"((long)fd), "c"(request), "d"(args)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)result < 0 ? -(int)result : 0;
}

/* What all cases use: a file, and memory that 32 bits can name. */
static void *begin(struct nfile *file)
{
	struct sigaction action = { .sa_handler = on_fault }, before;
	void *low;

	need_file(file);
	low = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	CHECK(low != MAP_FAILED);
	CHECK_EQ(sigaction(SIGSEGV, &action, &before), 0);
	/* Kernels without 32-bit programs have no such entry. */
	if (sigsetjmp(escape, 1))
		SKIP("this kernel runs no 32-bit programs");
	CHECK_ERR(native32(-1, DRM_IOCTL_RKFD_QUERY, low), EBADF);
	CHECK_EQ(sigaction(SIGSEGV, &before, NULL), 0);
	return low;
}

CASE(query32, "a 32-bit QUERY is answered as a 64-bit one")
{
	struct {
		struct drm_rkfd_query query;
		struct drm_rkfd_device device;
	} *low;
	struct nfile file;

	low = begin(&file);
	low->query = (struct drm_rkfd_query){
		.what = DRM_RKFD_QUERY_DEVICE, .data = (uintptr_t)&low->device, .size = sizeof(low->device),
	};
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_QUERY, &low->query));
	CHECK_EQ(low->query.size, sizeof(low->device));
	CHECK_EQ(memcmp(&low->device, &file.device, sizeof(low->device)), 0);
	low->query.flags = 1;
	CHECK_ERR(native32(file.fd, DRM_IOCTL_RKFD_QUERY, &low->query), EINVAL);
}

CASE(memory32, "32-bit BO_CREATE, BIND and BO_INFO: sizes, addresses and offsets have all their 64 bits")
{
	struct {
		struct drm_rkfd_bo_create bo;
		struct drm_rkfd_bo_info info;
		struct drm_rkfd_bind bind;
		struct drm_rkfd_bind_op ops[2];
	} *low;
	struct nfile file;
	uint32_t *cpu;

	low = begin(&file);
	low->bo = (struct drm_rkfd_bo_create){ .size = 3 * PAGE - 1, .heap = SYSTEM };
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_BO_CREATE, &low->bo));
	CHECK_EQ(low->bo.size, 3 * PAGE);
	/* The offset is one that the 64-bit call takes. */
	cpu = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, (off_t)low->bo.mmap_offset);
	CHECK(cpu != MAP_FAILED);
	cpu[0] = 1;
	low->ops[0] = map_op(AT, PAGE, low->bo.handle, 2 * PAGE);
	low->ops[1] = map_op(AT + (1ul << 40), 2 * PAGE, low->bo.handle, 0);
	low->bind = (struct drm_rkfd_bind){
		.ops = (uintptr_t)low->ops, .count = 2, .stride = sizeof(low->ops[0]), .failed = 7,
	};
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_BIND, &low->bind));
	CHECK_EQ(low->bind.failed, DRM_RKFD_BIND_NO_OP);
	low->info = (struct drm_rkfd_bo_info){ .handle = low->bo.handle };
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_BO_INFO, &low->info));
	CHECK_EQ(low->info.ranges, 2);
	CHECK_EQ(low->info.size, 3 * PAGE);
	CHECK_EQ(low->info.mmap_offset, low->bo.mmap_offset);
	low->ops[1].address = AT + 1;
	CHECK_ERR(native32(file.fd, DRM_IOCTL_RKFD_BIND, &low->bind), EINVAL);
	CHECK_EQ(low->bind.failed, 1);
}

CASE(queue32, "a queue and an event of 32-bit calls work as others do")
{
	struct {
		struct drm_rkfd_queue_create queue;
		struct drm_rkfd_queue_update update;
		struct drm_rkfd_queue_destroy destroy;
		struct drm_rkfd_event_create event;
		struct drm_rkfd_event_destroy event_destroy;
		struct drm_rkfd_wait wait;
		struct drm_rkfd_wait_op op;
		struct drm_rkfd_faults faults;
		struct drm_rkfd_fault record;
	} *low;
	struct packets p = { .n = 0 };
	struct nfile file;
	struct nqueue q;
	uint64_t count;
	int fd = eventfd(0, EFD_CLOEXEC);

	low = begin(&file);
	nqueue_prepare(&file, &q, DRM_RKFD_QUEUE_SDMA, AT);
	low->queue = q.args;
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_QUEUE_CREATE, &low->queue));
	q.args = low->queue;
	q.doorbells = mmap(NULL, file.device.doorbell_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd,
			   (off_t)q.args.doorbell_map);
	CHECK(q.doorbells != MAP_FAILED);
	q.doorbell = (volatile uint64_t *)((char *)q.doorbells + q.args.doorbell);
	low->event = (struct drm_rkfd_event_create){ .eventfd = fd };
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_EVENT_CREATE, &low->event));
	CHECK_EQ(low->event.slot, 1);
	low->update = (struct drm_rkfd_queue_update){
		.id = q.args.id, .flags = DRM_RKFD_UPDATE_PRIORITY, .priority = 3,
	};
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_QUEUE_UPDATE, &low->update));
	/* Behind the pointers, in the page that nobody else uses. */
	sdma_fence(&p, AT + 0x10000 + 64, 0x32);
	sdma_trap(&p, low->event.slot);
	nsubmit(&q, &p);
	CHECK_EQ(read(fd, &count, sizeof(count)), sizeof(count));
	CHECK_EQ(*(volatile uint32_t *)(q.memory.cpu + 0x10000 + 64), 0x32);
	low->op = (struct drm_rkfd_wait_op){
		.address = (uintptr_t)&low->op.value, .value = 5, .mask = ~0ull, .size = 8,
	};
	low->wait = (struct drm_rkfd_wait){ .ops = (uintptr_t)&low->op, .count = 1, .stride = sizeof(low->op) };
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_WAIT, &low->wait));
	CHECK_EQ(low->wait.met, 0);
	low->faults = (struct drm_rkfd_faults){
		.records = (uintptr_t)&low->record, .count = 1, .stride = sizeof(low->record),
	};
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_FAULTS, &low->faults));
	CHECK_EQ(low->faults.count, 0);
	low->event_destroy.slot = low->event.slot;
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_EVENT_DESTROY, &low->event_destroy));
	low->destroy.id = q.args.id;
	CHECK_OK(native32(file.fd, DRM_IOCTL_RKFD_QUEUE_DESTROY, &low->destroy));
	CHECK_ERR(native32(file.fd, DRM_IOCTL_RKFD_QUEUE_DESTROY, &low->destroy), ENOENT);
}
