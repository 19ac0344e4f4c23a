// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What a runtime learns of queues that fail: reasons in the word that the header of the context save area
 * names, and the event there.
 */
#include "kfd.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define AQL KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
#define COMPUTE KFD_IOC_QUEUE_TYPE_COMPUTE
#define REASON(code) KFD_EC_MASK(code)

struct fixture {
	struct gpu gpu;
	struct queue q;
	struct bo words;
};

static struct fixture f;

static int runtime(const struct gpu *gpu, bool enable)
{
	struct kfd_ioctl_runtime_enable_args args = {
		.mode_mask = enable ? KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK : 0,
	};

	return kfd_call(gpu->fd, AMDKFD_IOC_RUNTIME_ENABLE, &args);
}

static volatile struct kfd_context_save_area_header *header(const struct queue *q)
{
	return (volatile struct kfd_context_save_area_header *)q->save.va;
}

static void begin(bool enable)
{
	need_vm(&f.gpu, 0);
	if (enable)
		CHECK_OK(runtime(&f.gpu, true));
	need_bo(&f.gpu, &f.words, FLAGS_GTT, PAGE);
	need_queue(&f.gpu, &f.q, AQL);
}

static void report_to(const struct queue *q, unsigned int word, uint32_t event)
{
	header(q)->err_payload_addr = (uintptr_t)bo64(&f.words, 8 * word);
	header(q)->err_event_id = event;
}

/* A kernel dispatch without dimensions. */
static void bad_dispatch(struct queue *q)
{
	uint64_t index = q->written++;
	volatile uint32_t *slot = bo32(&q->ring, 64 * (index % (q->args.ring_size / 64)));

	for (unsigned int i = 1; i < 16; i++)
		slot[i] = 0;
	slot[1] = 1 | 1 << 16; /* Work-group of 1 x 1 x 1 … */
	slot[2] = 1;
	slot[3] = slot[4] = slot[5] = 1; /* … in a grid of the same. */
	*q->wptr = q->written;
	__atomic_store_n(slot, 2, __ATOMIC_RELEASE);
	ring_doorbell(q, index);
}

static int wait_for(uint32_t event, uint32_t ms, struct waited *w)
{
	return event_wait(&f.gpu, &event, 1, true, ms, w);
}

CASE(told, "a packet that cannot be run: its reason is in the word, and the event wakes the sleeper")
{
	struct event ev;
	struct waited w;

	begin(true);
	need_event(&f.gpu, true, &ev);
	report_to(&f.q, 1, ev.id);
	bad_dispatch(&f.q);
	CHECK_OK(wait_for(ev.id, tap_ms(30000), &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
	CHECK_EQ(*bo64(&f.words, 8), REASON(EC_QUEUE_PACKET_DISPATCH_DIM_INVALID));
	CHECK_EQ(*bo64(&f.words, 0), 0);
	CHECK_EQ(*bo64(&f.words, 16), 0);
}

CASE(added, "reasons are added to those that the word has")
{
	begin(true);
	report_to(&f.q, 1, 0);
	*bo64(&f.words, 8) = REASON(EC_QUEUE_WAVE_ABORT) | 1ull << 63;
	bad_dispatch(&f.q);
	await64(bo64(&f.words, 8),
		REASON(EC_QUEUE_WAVE_ABORT) | 1ull << 63 | REASON(EC_QUEUE_PACKET_DISPATCH_DIM_INVALID),
		"the reason");
}

CASE(own_queue, "of two queues, only the word of the one that failed changes")
{
	struct queue other;

	begin(true);
	need_queue(&f.gpu, &other, AQL);
	report_to(&f.q, 1, 0);
	report_to(&other, 2, 0);
	bad_dispatch(&other);
	await64(bo64(&f.words, 16), REASON(EC_QUEUE_PACKET_DISPATCH_DIM_INVALID), "the reason");
	CHECK_EQ(*bo64(&f.words, 8), 0);
}

CASE(others_live, "the other queues of the process and the GPU go on")
{
	struct packets p = { .n = 0 };
	struct queue other;

	begin(true);
	need_queue(&f.gpu, &other, COMPUTE);
	report_to(&f.q, 1, 0);
	bad_dispatch(&f.q);
	await64(bo64(&f.words, 8), REASON(EC_QUEUE_PACKET_DISPATCH_DIM_INVALID), "the reason");
	pm4_write(&p, f.words.va + 64, 0x1234);
	submit(&other, &p);
	await32(bo32(&f.words, 64), 0x1234, "the other queue's packet");
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
	CHECK_OK(queue_destroy(&f.gpu, other.args.queue_id));
}

/* An end-of-pipe interrupt, which comes after what was raised before it. */
static void later_interrupt(struct queue *q)
{
	struct packets p = { .n = 0 };
	struct event ev;
	struct waited w;

	need_event(&f.gpu, true, &ev);
	pm4_release(&p, ev.slot_va, 2, ev.id, 2, ev.id);
	submit(q, &p);
	CHECK_OK(wait_for(ev.id, tap_ms(30000), &w));
	CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_COMPLETE);
}

CASE(halted, "a queue that stopped at a bad packet does not run again; its neighbours do")
{
	struct queue other;

	begin(true);
	need_queue(&f.gpu, &other, COMPUTE);
	report_to(&f.q, 1, 0);
	bad_dispatch(&f.q);
	await64(bo64(&f.words, 8), REASON(EC_QUEUE_PACKET_DISPATCH_DIM_INVALID), "the reason");
	/* The queue is marked before the reason is delivered. amdkfd does not remember that it stopped. */
	if (is_rkfd())
		CHECK_ERR(queue_update(&f.gpu, &f.q, 100, 7), EACCES);
	else
		CHECK_OK(queue_update(&f.gpu, &f.q, 100, 7));
	CHECK_OK(queue_update(&f.gpu, &other, 100, 7));
	later_interrupt(&other);
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
}

CASE(not_enabled, "without RUNTIME_ENABLE nothing is written")
{
	struct queue other;

	begin(false);
	need_queue(&f.gpu, &other, COMPUTE);
	report_to(&f.q, 1, 0);
	bad_dispatch(&f.q);
	for (int i = 0; i < 10; i++)
		later_interrupt(&other);
	CHECK_EQ(*bo64(&f.words, 8), 0);
}

CASE(disabled_again, "after RUNTIME_ENABLE was taken back nothing is written")
{
	struct queue other;

	begin(true);
	CHECK_OK(runtime(&f.gpu, false));
	need_queue(&f.gpu, &other, COMPUTE);
	report_to(&f.q, 1, 0);
	bad_dispatch(&f.q);
	for (int i = 0; i < 10; i++)
		later_interrupt(&other);
	CHECK_EQ(*bo64(&f.words, 8), 0);
}

CASE(bad_addresses, "words and headers that are not there do no harm")
{
	struct queue second, third;
	struct packets p = { .n = 0 };

	begin(true);
	need_queue(&f.gpu, &second, AQL);
	need_queue(&f.gpu, &third, AQL);
	header(&f.q)->err_payload_addr = 0;
	bad_dispatch(&f.q);
	header(&second)->err_payload_addr = ~7ull;
	header(&second)->err_event_id = 12345;
	bad_dispatch(&second);
	report_to(&third, 3, 0);
	CHECK_EQ(mprotect((void *)third.save.va, PAGE, PROT_NONE), 0);
	bad_dispatch(&third);
	CHECK_OK(queue_destroy(&f.gpu, f.q.args.queue_id));
	CHECK_OK(queue_destroy(&f.gpu, second.args.queue_id));
	CHECK_OK(queue_destroy(&f.gpu, third.args.queue_id));
	need_queue(&f.gpu, &f.q, COMPUTE);
	pm4_write(&p, f.words.va + 64, 0x1234);
	submit(&f.q, &p);
	await32(bo32(&f.words, 64), 0x1234, "a new queue's packet");
}

CASE(own_process, "the word of another process at the same address stays")
{
	int status, to_parent[2], to_child[2];
	struct queue other;
	struct event ev;
	struct waited w;
	char byte = 0;
	pid_t pid;

	CHECK_EQ(pipe(to_parent), 0);
	CHECK_EQ(pipe(to_child), 0);
	pid = fork();
	if (pid == 0) {
		/* Lest a parent that gave up be waited for. */
		close(to_child[1]);
		begin(true);
		need_event(&f.gpu, true, &ev);
		report_to(&f.q, 1, ev.id);
		CHECK_EQ(write(to_parent[1], &byte, 1), 1);
		/* The other has heard of its own, and what the GPU said until then has been dealt with. */
		CHECK_EQ(read(to_child[0], &byte, 1), 1);
		need_queue(&f.gpu, &other, COMPUTE);
		later_interrupt(&other);
		CHECK_OK(wait_for(ev.id, 0, &w));
		CHECK_EQ(w.result, KFD_IOC_WAIT_RESULT_TIMEOUT);
		CHECK_EQ(*bo64(&f.words, 8), 0);
		_exit(0);
	}
	close(to_parent[1]);
	if (read(to_parent[0], &byte, 1) != 1)
		child_gave_up(pid);
	begin(true);
	report_to(&f.q, 1, 0);
	bad_dispatch(&f.q);
	await64(bo64(&f.words, 8), REASON(EC_QUEUE_PACKET_DISPATCH_DIM_INVALID), "the reason");
	CHECK_EQ(write(to_child[1], &byte, 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}
