// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Calls that wait for the hardware to drop translations: other threads of the process go on meanwhile, and a call
 * succeeds only if the hardware confirms it.
 *
 * Needs the device model, whose control port loses the answer to a flush: the driver waits for it as long as it
 * waits for anything of the kind, and then flushes another way. An answer that is lost works once between two resets of
 * the GPU; one that is late, any number of times.
 */
#include "debugfs.h"
#include "kfd.h"
#include "model.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct gpu gpu;
static struct bo bo;

static void *unmap(void *context)
{
	CHECK_OK(bo_unmap(&gpu, &bo));
	return NULL;
}

/* Whether a thread is over, or will be in a moment. */
static bool is_over(pthread_t thread)
{
	struct timespec end;

	CHECK_EQ(clock_gettime(CLOCK_REALTIME, &end), 0);
	end.tv_nsec += 200000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}
	return pthread_timedjoin_np(thread, NULL, &end) == 0;
}

CASE(unmap_waits, "UNMAP waits for the hardware: a call of another thread that needs the process's state does not")
{
	struct kfd_ioctl_free_memory_of_gpu_args none;
	uint64_t end = now_ms() + WAIT_MS;
	struct bo other;
	pthread_t thread;

	need_model();
	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	none.handle = (uint64_t)gpu.id << 32 | 0x7ffffff0;
	ask_model("{\"cmd\":\"fault\",\"kind\":\"drop-fences\",\"count\":1}");
	CHECK_EQ(pthread_create(&thread, NULL, unmap, NULL), 0);
	/* The answer was lost, so the wait for it has begun. */
	while (strstr(ask_model("{\"cmd\":\"faults\"}"), "drop-fences")) {
		CHECK_OP(now_ms(), <, end);
		usleep(1000);
	}
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_FREE_MEMORY_OF_GPU, &none), EINVAL);
	CHECK_OK(bo_alloc(&gpu, &other, FLAGS_GTT, PAGE));
	CHECK(!is_over(thread));
	/* A call on the same buffer waits. */
	CHECK_OK(bo_free(&gpu, &bo));
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

CASE(unconfirmed, "UNMAP that the hardware does not confirm fails; the buffer stays mapped, and is unmapped later")
{
	struct packets p = { .n = 0 };
	struct queue q;

	need_model();
	need_vm(&gpu, 0);
	need_queue(&gpu, &q, KFD_IOC_QUEUE_TYPE_COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	/* With a queue on the hardware there is an address space whose translations can be dropped. */
	pm4_write(&p, bo.va, 0x600d);
	submit(&q, &p);
	await32(bo32(&bo, 0), 0x600d, "work");
	ask_model("{\"cmd\":\"fault\",\"kind\":\"deaf-tlb\"}");
	CHECK_ERR(bo_unmap(&gpu, &bo), ETIMEDOUT);
	CHECK_ERR(bo_free(&gpu, &bo), EBUSY);
	ask_model("{\"cmd\":\"clear-faults\"}");
	CHECK_OK(bo_unmap(&gpu, &bo));
	CHECK_OK(bo_free(&gpu, &bo));
}

/* A call of a thread, and how far it is. */
struct mapping {
	struct bo bo;
	volatile bool begun, over;
	int err;
};

static void *map(void *context)
{
	struct mapping *m = context;

	m->begun = true;
	m->err = bo_map(&gpu, &m->bo);
	m->over = true;
	return NULL;
}

CASE(map_waits, "MAP waits for a flush that is owed: calls of another thread that need the process's state do not")
{
	/* Calls, 2 ms apart, within one MAP, and in how many MAPs of at most so many: more than find their way before and behind. */
	enum { CALLS = 10, MAPS = 3, MOST = 30 };
	struct kfd_ioctl_free_memory_of_gpu_args none;
	struct mapping m = { .begun = false };
	struct packets p = { .n = 0 }, late = { .n = 0 };
	unsigned int through = 0;
	struct queue q;

	need_model();
	need_vm(&gpu, 0);
	need_queue(&gpu, &q, KFD_IOC_QUEUE_TYPE_COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	CHECK_OK(bo_alloc(&gpu, &m.bo, FLAGS_GTT, PAGE));
	none.handle = (uint64_t)gpu.id << 32 | 0x7ffffff0;
	/* With a queue on the hardware there is an address space whose translations can be dropped. */
	pm4_write(&p, bo.va, 0x600d);
	submit(&q, &p);
	await32(bo32(&bo, 0), 0x600d, "work");
	ask_model("{\"cmd\":\"fault\",\"kind\":\"deaf-tlb\"}");
	CHECK_ERR(bo_unmap(&gpu, &bo), ETIMEDOUT);
	/* From here on a MAP has to flush what is owed, and waits for an answer that does not come. */
	for (unsigned int n = 0; n < MOST && through < MAPS; n++) {
		unsigned int calls = 0;
		pthread_t thread;

		m.begun = m.over = false;
		CHECK_EQ(pthread_create(&thread, NULL, map, &m), 0);
		while (!m.begun)
			usleep(100);
		for (;;) {
			CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_FREE_MEMORY_OF_GPU, &none), EINVAL);
			if (m.over)
				break;
			calls++;
			usleep(2000);
		}
		CHECK_EQ(pthread_join(thread, NULL), 0);
		CHECK_ERR(m.err, ETIMEDOUT);
		tap_note("%u calls while a MAP waited", calls);
		through += calls >= CALLS;
	}
	CHECK_EQ(through, MAPS);
	ask_model("{\"cmd\":\"clear-faults\"}");
	CHECK_OK(bo_map(&gpu, &m.bo));
	pm4_write(&late, m.bo.va, 0x1a7e);
	submit(&q, &late);
	await32(bo32(&m.bo, 0), 0x1a7e, "work in the memory that was mapped at last");
	CHECK_OK(bo_unmap(&gpu, &bo));
	CHECK_OK(bo_free(&gpu, &bo));
	drop_queue(&gpu, &q);
	drop_bo(&gpu, &m.bo);
}

CASE(kept, "a queue's descriptor whose flush is not confirmed keeps its address in the GART; later queues have others, and work")
{
	struct queue q, next;
	unsigned long at;

	need_model();
	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	need_queue(&gpu, &q, KFD_IOC_QUEUE_TYPE_COMPUTE);
	at = only_mqd();
	drop_queue(&gpu, &q);
	/* An address that is free is the first to be used again. */
	need_queue(&gpu, &q, KFD_IOC_QUEUE_TYPE_COMPUTE);
	CHECK_EQ(only_mqd(), at);
	ask_model("{\"cmd\":\"fault\",\"kind\":\"deaf-tlb\"}");
	CHECK_OK(queue_destroy(&gpu, q.args.queue_id));
	ask_model("{\"cmd\":\"clear-faults\"}");
	for (uint32_t n = 1; n <= 3; n++) {
		struct packets p = { .n = 0 };

		need_queue(&gpu, &next, KFD_IOC_QUEUE_TYPE_COMPUTE);
		CHECK_NE(only_mqd(), at);
		pm4_write(&p, bo.va, 0x600d0 + n);
		submit(&next, &p);
		await32(bo32(&bo, 0), 0x600d0 + n, "work");
		drop_queue(&gpu, &next);
	}
}

CASE(late, "UNMAP that the hardware confirms late: the same way is used again after that, and not before")
{
	uint64_t end = now_ms() + WAIT_MS;
	struct packets p = { .n = 0 };
	unsigned long before, asked;
	struct queue q;

	need_model();
	need_vm(&gpu, 0);
	need_queue(&gpu, &q, KFD_IOC_QUEUE_TYPE_COMPUTE);
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	pm4_write(&p, bo.va, 0x600d);
	submit(&q, &p);
	await32(bo32(&bo, 0), 0x600d, "work");
	before = ring_written("kiq");
	ask_model("{\"cmd\":\"fault\",\"kind\":\"deaf-tlb\"}");
	CHECK_ERR(bo_unmap(&gpu, &bo), ETIMEDOUT);
	asked = ring_written("kiq");
	CHECK_OP(asked, >, before);
	/* It has not answered yet. */
	CHECK_ERR(bo_unmap(&gpu, &bo), ETIMEDOUT);
	CHECK_EQ(ring_written("kiq"), asked);
	ask_model("{\"cmd\":\"clear-faults\"}");
	/* Now it does, in a moment. */
	CHECK_OK(bo_unmap(&gpu, &bo));
	while (ring_written("kiq") == asked) {
		CHECK_OP(now_ms(), <, end);
		usleep(1000);
		CHECK_OK(bo_map(&gpu, &bo));
		CHECK_OK(bo_unmap(&gpu, &bo));
	}
	CHECK_OK(bo_free(&gpu, &bo));
}
