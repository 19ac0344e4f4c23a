// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of the process that a thread of the process brings in (userfaultfd): the thread may call the driver
 * before it does, and the driver does not wait for memory with anything in hand that such a call needs.
 */
#include "kfd.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AQL KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE

struct pager {
	const struct gpu *gpu;
	int fd;
	void *at;
	volatile unsigned int served;
};

static struct gpu gpu;
static struct pager pager;

/* A call that takes whatever protects the buffers and queues of the process. */
static void call_driver(const struct gpu *g)
{
	struct kfd_ioctl_free_memory_of_gpu_args args = { .handle = (uint64_t)g->id << 32 | 0x7ffffff0 };

	CHECK_NE(kfd_call(g->fd, AMDKFD_IOC_FREE_MEMORY_OF_GPU, &args), 0);
}

static void *serve(void *context)
{
	struct pager *p = context;
	struct uffd_msg msg;

	while (read(p->fd, &msg, sizeof(msg)) == sizeof(msg)) {
		struct uffdio_zeropage zero = { .range.len = PAGE };

		if (msg.event != UFFD_EVENT_PAGEFAULT)
			continue;
		call_driver(p->gpu);
		zero.range.start = msg.arg.pagefault.address & ~(PAGE - 1);
		p->served++;
		/* Another fault in the same page may have been served meanwhile. */
		if (ioctl(p->fd, UFFDIO_ZEROPAGE, &zero) && errno != EEXIST && errno != EAGAIN)
			FAIL("UFFDIO_ZEROPAGE: %s", strerror(errno));
	}
	return NULL;
}

/* Ends the case where a buffer's memory cannot be such: elsewhere a fault that would have to wait fails instead. */
static void need_served_buffers(void)
{
	if (!is_rkfd())
		SKIP("other drivers make no buffer of memory that a thread brings in");
	need_vm(&gpu, 0);
}

/* Memory that is absent until the thread brings it. */
static void *served_memory(uint64_t size)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	pthread_t thread;

	pager.gpu = &gpu;
	pager.fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (pager.fd < 0)
		SKIP("no userfaultfd: %s", strerror(errno));
	CHECK_EQ(ioctl(pager.fd, UFFDIO_API, &api), 0);
	pager.at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pager.at != MAP_FAILED);
	reg.range.start = (uintptr_t)pager.at;
	reg.range.len = size;
	CHECK_EQ(ioctl(pager.fd, UFFDIO_REGISTER, &reg), 0);
	CHECK_EQ(pthread_create(&thread, NULL, serve, &pager), 0);
	return pager.at;
}

static struct bo wrap(void *at, uint64_t size)
{
	struct bo bo;

	CHECK_OK(bo_wrap(&gpu, &bo, FLAGS_USERPTR, at, size));
	return bo;
}

CASE(alloc, "ALLOC of memory that a thread brings in after a call of its own")
{
	struct bo bo;

	need_served_buffers();
	bo = wrap(served_memory(4 * PAGE), 4 * PAGE);
	CHECK_EQ(pager.served, 4);
	CHECK_OK(bo_free(&gpu, &bo));
}

CASE(map, "MAP of such memory that has gone since ALLOC")
{
	struct bo bo;

	need_served_buffers();
	bo = wrap(served_memory(2 * PAGE), 2 * PAGE);
	CHECK_EQ(madvise(pager.at, 2 * PAGE, MADV_DONTNEED), 0);
	CHECK_OK(bo_map(&gpu, &bo));
	CHECK_EQ(pager.served, 4);
	CHECK_OK(bo_unmap(&gpu, &bo));
	CHECK_OK(bo_free(&gpu, &bo));
}

CASE(changed, "mapped memory that goes: the queues run on when the thread has brought it back")
{
	struct packets p = { .n = 0 };
	struct bo bo, out;
	struct queue q;

	need_served_buffers();
	need_queue(&gpu, &q, COMPUTE);
	need_bo(&gpu, &out, FLAGS_GTT, PAGE);
	bo = wrap(served_memory(2 * PAGE), 2 * PAGE);
	CHECK_OK(bo_map(&gpu, &bo));
	for (uint32_t i = 1; i <= 5; i++) {
		CHECK_EQ(madvise(pager.at, 2 * PAGE, MADV_DONTNEED), 0);
		p.n = 0;
		pm4_write(&p, bo.va + PAGE, i);
		pm4_write(&p, out.va, i);
		submit(&q, &p);
		await32(bo32(&out, 0), i, "the packet");
		CHECK_EQ(*bo32(&bo, PAGE), i);
	}
	CHECK_OP(pager.served, >, 2);
	drop_queue(&gpu, &q);
}

CASE(report, "a failed queue is reported into such memory")
{
	struct kfd_ioctl_runtime_enable_args enable = { .mode_mask = KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK };
	volatile struct kfd_context_save_area_header *header;
	volatile uint32_t *slot;
	volatile uint64_t *word;
	struct queue q;

	if (!is_rkfd())
		SKIP("amdkfd writes the reason with locks held that the thread's call takes: neither comes to an end");
	need_vm(&gpu, 0);
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_RUNTIME_ENABLE, &enable));
	need_queue(&gpu, &q, AQL);
	word = served_memory(PAGE);
	header = (volatile void *)q.save.va;
	header->err_payload_addr = (uintptr_t)word;
	/* A kernel dispatch without dimensions. */
	slot = bo32(&q.ring, 0);
	for (unsigned int i = 1; i < 16; i++)
		slot[i] = 0;
	slot[1] = 1 | 1 << 16;
	slot[2] = slot[3] = slot[4] = slot[5] = 1;
	*q.wptr = 1;
	__atomic_store_n(slot, 2, __ATOMIC_RELEASE);
	ring_doorbell(&q, 0);
	/* The driver is the first to touch it. */
	for (uint64_t end = now_ms() + WAIT_MS; !pager.served && now_ms() < end;)
		usleep(1000);
	CHECK_EQ(pager.served, 1);
	await64(word, KFD_EC_MASK(EC_QUEUE_PACKET_DISPATCH_DIM_INVALID), "the reason");
	CHECK_OK(queue_destroy(&gpu, q.args.queue_id));
}
