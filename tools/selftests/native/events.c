// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The native interface: events by eventfd, waits for memory, faults as records.
 */
#include "debugfs.h"
#include "native.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define AT 0x100000000ul
#define QUEUE_AT 0x10000000ul
#define NOWHERE 0x700000000ul

_Static_assert(sizeof(struct drm_rkfd_event_create) == 16, "event_create");
_Static_assert(sizeof(struct drm_rkfd_event_destroy) == 8, "event_destroy");
_Static_assert(sizeof(struct drm_rkfd_wait_op) == 32, "wait_op");
_Static_assert(sizeof(struct drm_rkfd_wait) == 32, "wait");
_Static_assert(sizeof(struct drm_rkfd_fault) == 24, "fault");
_Static_assert(sizeof(struct drm_rkfd_faults) == 32, "faults");

struct fixture {
	struct nfile file;
	struct nqueue q;
	struct nbo out;
};

struct nevent {
	int fd;
	uint32_t slot;
};

static void begin(struct fixture *f, uint32_t type)
{
	need_file(&f->file);
	need_nqueue(&f->file, &f->q, type, QUEUE_AT);
	need_nbo(&f->file, &f->out, SYSTEM, 4 * PAGE);
	CHECK_OK(bind_one(&f->file, AT, f->out.size, f->out.handle, 0));
}

static volatile uint32_t *out32(const struct fixture *f, uint64_t offset)
{
	return (volatile uint32_t *)(f->out.cpu + offset);
}

static int event_add(const struct nfile *file, int fd, uint32_t condition, uint32_t *slot)
{
	struct drm_rkfd_event_create args = { .eventfd = fd, .condition = condition };
	int err = native(file->fd, DRM_IOCTL_RKFD_EVENT_CREATE, &args);

	*slot = args.slot;
	return err;
}

static void need_event_of(const struct nfile *file, struct nevent *ev, uint32_t condition)
{
	ev->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	CHECK(ev->fd >= 0);
	CHECK_OK(event_add(file, ev->fd, condition, &ev->slot));
	CHECK(ev->slot >= 1 && ev->slot < 4096);
}

static int event_remove(const struct nfile *file, uint32_t slot)
{
	struct drm_rkfd_event_destroy args = { .slot = slot };

	return native(file->fd, DRM_IOCTL_RKFD_EVENT_DESTROY, &args);
}

/* How often the event was signalled since the last look; 0 after `ms` without. */
static uint64_t take(const struct nevent *ev, int ms)
{
	struct pollfd p = { .fd = ev->fd, .events = POLLIN };
	uint64_t count = 0;

	if (poll(&p, 1, ms) == 1)
		CHECK_EQ(read(ev->fd, &count, sizeof(count)), sizeof(count));
	return count;
}

static void need_signalled(const struct nevent *ev)
{
	CHECK_NE(take(ev, (int)WAIT_MS), 0);
}

/* Stores a word and raises an interrupt that carries `slot`. */
static void raise_by(struct fixture *f, uint64_t offset, uint32_t value, uint32_t slot)
{
	struct packets p = { .n = 0 };

	if (f->q.args.type == DRM_RKFD_QUEUE_SDMA) {
		sdma_fence(&p, AT + offset, value);
		sdma_trap(&p, slot);
	} else {
		pm4_release(&p, AT + offset, 1, value, 2, slot);
	}
	nsubmit(&f->q, &p);
}

static void signals(uint32_t type)
{
	struct fixture f, other;
	struct nevent ev[3], foreign;

	begin(&f, type);
	need_file(&other.file);
	need_event_of(&other.file, &foreign, DRM_RKFD_EVENT_SIGNAL);
	for (unsigned int i = 0; i < 3; i++)
		need_event_of(&f.file, &ev[i], DRM_RKFD_EVENT_SIGNAL);
	CHECK_EQ(foreign.slot, ev[0].slot);
	for (uint32_t round = 1; round <= 20; round++) {
		unsigned int i = round % 3;

		raise_by(&f, 0, round, ev[i].slot);
		need_signalled(&ev[i]);
		CHECK_EQ(*out32(&f, 0), round);
		CHECK_EQ(take(&ev[(i + 1) % 3], 0), 0);
		CHECK_EQ(take(&ev[(i + 2) % 3], 0), 0);
	}
	/* The same number in another file is another event. */
	CHECK_EQ(take(&foreign, 0), 0);
	/* A slot that is given back signals nothing; an interrupt with its number harms nobody. */
	CHECK_OK(event_remove(&f.file, ev[0].slot));
	CHECK_ERR(event_remove(&f.file, ev[0].slot), ENOENT);
	raise_by(&f, 0, 100, ev[0].slot);
	raise_by(&f, 0, 101, ev[1].slot);
	need_signalled(&ev[1]);
	CHECK_EQ(take(&ev[0], 0), 0);
	/* The lowest free one comes next. */
	CHECK_OK(event_add(&f.file, ev[0].fd, DRM_RKFD_EVENT_SIGNAL, &ev[0].slot));
	CHECK_EQ(ev[0].slot, foreign.slot);
	drop_nqueue(&f.file, &f.q);
	close_file(&f.file);
}

CASE(signal_pm4, "RELEASE_MEM with an interrupt signals the eventfd of its slot, and no other") { signals(DRM_RKFD_QUEUE_PM4); }
CASE(signal_sdma, "an SDMA trap signals the eventfd of its slot, and no other") { signals(DRM_RKFD_QUEUE_SDMA); }

CASE(event_refused, "EVENT_CREATE and EVENT_DESTROY: each errno for its cause")
{
	struct nfile file;
	struct drm_rkfd_event_create args;
	struct drm_rkfd_event_destroy destroy = { .slot = 1, .pad = 1 };
	uint32_t slot;
	int fd = eventfd(0, EFD_CLOEXEC);

	need_file(&file);
	CHECK_ERR(event_add(&file, fd, 4, &slot), EINVAL);
	CHECK_ERR(event_add(&file, -1, 0, &slot), EBADF);
	CHECK_ERR(event_add(&file, file.fd, 0, &slot), EINVAL);
	args = (struct drm_rkfd_event_create){ .eventfd = fd, .flags = 1 };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_EVENT_CREATE, &args), EINVAL);
	args = (struct drm_rkfd_event_create){ .eventfd = fd, .slot = 1 };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_EVENT_CREATE, &args), EINVAL);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_EVENT_DESTROY, &destroy), EINVAL);
	CHECK_ERR(event_remove(&file, 1), ENOENT);
	CHECK_ERR(event_remove(&file, 0), ENOENT);
	for (uint32_t i = 1; i < 4096; i++) {
		CHECK_OK(event_add(&file, fd, 0, &slot));
		CHECK_EQ(slot, i);
	}
	CHECK_ERR(event_add(&file, fd, 0, &slot), ENOSPC);
	close_file(&file);
}

static int read_faults(const struct nfile *file, struct drm_rkfd_fault *records, uint32_t room, uint32_t *count,
		       uint64_t *dropped)
{
	struct drm_rkfd_faults args = { .records = (uintptr_t)records, .count = room, .stride = sizeof(*records) };
	int err = native(file->fd, DRM_IOCTL_RKFD_FAULTS, &args);

	*count = args.count;
	*dropped = args.dropped;
	return err;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

CASE(faults, "an access to nothing is told as a record and an event, stops the queues of its file, and of no other")
{
	struct fixture f, g;
	struct nevent fault, foreign;
	struct drm_rkfd_fault records[64];
	struct packets p = { .n = 0 };
	uint64_t before = now_ns(), dropped;
	uint32_t count;

	begin(&f, DRM_RKFD_QUEUE_PM4);
	begin(&g, DRM_RKFD_QUEUE_PM4);
	need_event_of(&f.file, &fault, DRM_RKFD_EVENT_FAULT);
	need_event_of(&g.file, &foreign, DRM_RKFD_EVENT_FAULT);
	CHECK_OK(read_faults(&f.file, records, 64, &count, &dropped));
	CHECK_EQ(count, 0);
	pm4_write(&p, NOWHERE + 2 * PAGE + 12, 1);
	nsubmit(&f.q, &p);
	need_signalled(&fault);
	CHECK_OK(read_faults(&f.file, records, 64, &count, &dropped));
	CHECK(count >= 1);
	CHECK_EQ(dropped, 0);
	CHECK_EQ(records[0].address, NOWHERE + 2 * PAGE);
	CHECK_EQ(records[0].access, DRM_RKFD_FAULT_WRITE);
	CHECK(records[0].time >= before && records[0].time <= now_ns());
	/* The other file learns nothing and works. */
	CHECK_OK(read_faults(&g.file, records, 64, &count, &dropped));
	CHECK_EQ(count, 0);
	CHECK_EQ(take(&foreign, 0), 0);
	p.n = 0;
	pm4_write(&p, AT, 5);
	nsubmit(&g.q, &p);
	await32(out32(&g, 0), 5, "what the other file's queue writes");
	/* Nothing of the offender runs any more, and all of it can go. */
	CHECK_OK(nqueue_destroy(&f.file, f.q.args.id));
	CHECK_OK(unbind_one(&f.file, 0x10000, 1ul << 40));
}

/* Files whose queues storm, and the stores to nothing of each. */
#define STORMS 4u
#define STORES 800u
/* Rounds of a file that works meanwhile. */
#define ROUNDS 100u

/* What was told of a storm so far. */
struct told {
	uint64_t count, last;
};

/* Reads what there is: stores to pages of which each is behind the one before, and a number of those that are not told. */
static void add_told(const struct fixture *f, struct told *told)
{
	struct drm_rkfd_fault records[64];
	uint64_t dropped;
	uint32_t count;

	CHECK_OK(read_faults(&f->file, records, 64, &count, &dropped));
	for (uint32_t i = 0; i < count; i++) {
		CHECK_EQ(records[i].access, DRM_RKFD_FAULT_WRITE);
		if (!told->last)
			CHECK_EQ(records[i].address, NOWHERE + PAGE);
		CHECK_OP(records[i].address, >, told->last);
		CHECK_OP(records[i].address, <=, NOWHERE + STORES * PAGE);
		told->last = records[i].address;
	}
	told->count += count + dropped;
}

CASE_LIMIT(storms, "storms of faults lose and reorder no event of another file, and each fault is told or counted", 120)
{
	static struct packets p;
	struct fixture f[STORMS], g;
	struct nevent fault[STORMS], ev[3];
	struct told told[STORMS] = { 0 };
	unsigned long before, drops, raised = 0;
	uint64_t end, total = 0;

	begin(&g, DRM_RKFD_QUEUE_PM4);
	for (unsigned int i = 0; i < 3; i++)
		need_event_of(&g.file, &ev[i], DRM_RKFD_EVENT_SIGNAL);
	for (unsigned int i = 0; i < STORMS; i++) {
		begin(&f[i], DRM_RKFD_QUEUE_PM4);
		need_event_of(&f[i].file, &fault[i], DRM_RKFD_EVENT_FAULT);
	}
	for (unsigned int i = 1; i <= STORES; i++)
		pm4_write(&p, NOWHERE + i * PAGE, 1);
	before = ih_counter("fault");
	drops = ih_counter("fault_drops");
	for (unsigned int i = 0; i < STORMS; i++)
		nsubmit(&f[i].q, &p);
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		raise_by(&g, 0, round, ev[round % 3].slot);
		CHECK_EQ(take(&ev[round % 3], (int)WAIT_MS), 1);
		CHECK_EQ(*out32(&g, 0), round);
		CHECK_EQ(take(&ev[(round + 1) % 3], 0), 0);
		CHECK_EQ(take(&ev[(round + 2) % 3], 0), 0);
	}
	for (unsigned int i = 0; i < STORMS; i++) {
		need_signalled(&fault[i]);
		CHECK_OK(nqueue_destroy(&f[i].file, f[i].q.args.id));
	}
	/* The queues are off the hardware. What they raised before is handled some time. */
	for (end = now_ms() + WAIT_MS; !total || total != raised; usleep(1000)) {
		if (now_ms() > end)
			FAIL("%lu faults, of which %llu are told or counted", raised, (unsigned long long)total);
		total = 0;
		for (unsigned int i = 0; i < STORMS; i++) {
			add_told(&f[i], &told[i]);
			total += told[i].count;
		}
		raised = ih_counter("fault") - before;
	}
	tap_note("%lu faults, %lu of them dropped before they were handled", raised,
		 ih_counter("fault_drops") - drops);
	for (unsigned int i = 0; i < STORMS; i++)
		CHECK(told[i].last);
}

CASE(read_only, "a store to a range that is bound for reading is a fault with the page present")
{
	struct fixture f;
	struct nevent fault;
	struct nbo bo;
	struct drm_rkfd_bind_op op;
	struct drm_rkfd_fault records[64];
	struct packets p = { .n = 0 };
	uint64_t dropped;
	uint32_t count;

	begin(&f, DRM_RKFD_QUEUE_PM4);
	need_event_of(&f.file, &fault, DRM_RKFD_EVENT_FAULT);
	need_nbo(&f.file, &bo, VRAM, PAGE);
	*(volatile uint32_t *)bo.cpu = 0x1234;
	op = map_op(NOWHERE, PAGE, bo.handle, 0);
	op.flags = 0;
	CHECK_OK(bind_list(&f.file, &op, 1, NULL));
	pm4_copy(&p, 1, NOWHERE, AT, false);
	pm4_write(&p, AT + 4, 1);
	nsubmit(&f.q, &p);
	await32(out32(&f, 4), 1, "the end of a read");
	CHECK_EQ(*out32(&f, 0), 0x1234);
	p.n = 0;
	pm4_write(&p, NOWHERE, 0x4321);
	nsubmit(&f.q, &p);
	need_signalled(&fault);
	CHECK_OK(read_faults(&f.file, records, 64, &count, &dropped));
	CHECK(count >= 1);
	CHECK_EQ(records[0].address, NOWHERE);
	CHECK_EQ(records[0].access, DRM_RKFD_FAULT_WRITE | DRM_RKFD_FAULT_PRESENT);
	CHECK_EQ(*(volatile uint32_t *)bo.cpu, 0x1234);
}

CASE(faults_refused, "FAULTS: each errno for its cause")
{
	struct nfile file;
	struct drm_rkfd_fault record;
	struct drm_rkfd_faults args;

	need_file(&file);
#define FAULTS(err, ...)                                                                            \
	do {                                                                                       \
		args = (struct drm_rkfd_faults){ .records = (uintptr_t)&record, .count = 1,        \
						 .stride = sizeof(record) };                       \
		__VA_ARGS__;                                                                       \
		CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_FAULTS, &args), err);                     \
	} while (0)
	FAULTS(EINVAL, args.flags = 1);
	FAULTS(EINVAL, args.pad = 1);
	FAULTS(EINVAL, args.stride = 8);
	FAULTS(0, args.count = 0);
	FAULTS(0, args.count = ~0u);
	close_file(&file);
}

CASE(faults_unread, "FAULTS: EFAULT where a record cannot be written; it is lost then")
{
	struct fixture f;
	struct nevent fault;
	struct drm_rkfd_fault records[64];
	struct packets p = { .n = 0 };
	uint64_t dropped;
	uint32_t count;

	begin(&f, DRM_RKFD_QUEUE_PM4);
	need_event_of(&f.file, &fault, DRM_RKFD_EVENT_FAULT);
	/* Nothing is written where nothing is to be told. */
	CHECK_OK(read_faults(&f.file, (void *)8, 64, &count, &dropped));
	CHECK_EQ(count, 0);
	pm4_write(&p, NOWHERE, 1);
	nsubmit(&f.q, &p);
	need_signalled(&fault);
	/* What runs on leaves no more behind it: the queue is off the hardware when it is destroyed. */
	CHECK_OK(nqueue_destroy(&f.file, f.q.args.id));
	CHECK_ERR(read_faults(&f.file, (void *)8, 64, &count, &dropped), EFAULT);
	CHECK_OK(read_faults(&f.file, records, 64, &count, &dropped));
	CHECK_EQ(count, 0);
}

CASE(queue_failed, "a packet that no queue knows signals the event for failed queues; QUEUE_UPDATE of the queue is EACCES then")
{
	struct fixture f;
	struct nevent failed;
	struct packets p = { .n = 0 };
	struct drm_rkfd_queue_update args = { .flags = DRM_RKFD_UPDATE_PERCENTAGE, .percentage = 100 };
	uint64_t end;
	int err;

	begin(&f, DRM_RKFD_QUEUE_PM4);
	args.id = f.q.args.id;
	need_event_of(&f.file, &failed, DRM_RKFD_EVENT_QUEUE);
	/* An opcode of type 3 that does not exist. */
	pm4_header(&p, 0xff, 1);
	put(&p, 0);
	nsubmit(&f.q, &p);
	need_signalled(&failed);
	/* It does not run again. The event may come before that is in force. */
	end = now_ms() + WAIT_MS;
	while (!(err = native(f.file.fd, DRM_IOCTL_RKFD_QUEUE_UPDATE, &args)) && now_ms() < end)
		usleep(1000);
	CHECK_ERR(err, EACCES);
	args = (struct drm_rkfd_queue_update){ .id = f.q.args.id, .flags = DRM_RKFD_UPDATE_PRIORITY, .priority = 1 };
	CHECK_ERR(native(f.file.fd, DRM_IOCTL_RKFD_QUEUE_UPDATE, &args), EACCES);
	CHECK_OK(nqueue_destroy(&f.file, f.q.args.id));
}

static int wait_for(const struct nfile *file, const struct drm_rkfd_wait_op *ops, uint32_t count, uint32_t flags,
		    uint64_t deadline, uint32_t *met)
{
	struct drm_rkfd_wait args = {
		.ops = (uintptr_t)ops, .count = count, .stride = sizeof(*ops), .flags = flags, .deadline = deadline,
	};
	int err;

	do
		err = native(file->fd, DRM_IOCTL_RKFD_WAIT, &args);
	while (err == EINTR);
	*met = args.met;
	return err;
}

CASE(waits, "WAIT sleeps until memory has values, one or all of them, and says which")
{
	struct fixture f;
	struct drm_rkfd_wait_op ops[2];
	uint64_t far = now_ns() + (uint64_t)WAIT_MS * 1000000;
	uint32_t met;

	begin(&f, DRM_RKFD_QUEUE_SDMA);
	ops[0] = (struct drm_rkfd_wait_op){ .address = (uintptr_t)out32(&f, 0), .value = 7, .mask = ~0ull, .size = 4 };
	ops[1] = (struct drm_rkfd_wait_op){ .address = (uintptr_t)out32(&f, 8), .value = 2, .mask = 0xff, .size = 8,
					    .compare = DRM_RKFD_WAIT_AT_LEAST };
	/* Over at once, and not before its time. */
	CHECK_ERR(wait_for(&f.file, ops, 2, 0, 0, &met), ETIME);
	CHECK_EQ(met, DRM_RKFD_WAIT_NONE);
	uint64_t soon = now_ns() + 20000000;

	CHECK_ERR(wait_for(&f.file, ops, 2, 0, soon, &met), ETIME);
	CHECK(now_ns() >= soon);
	raise_by(&f, 8, 0x102, 1);
	CHECK_OK(wait_for(&f.file, ops, 2, 0, far, &met));
	CHECK_EQ(met, 1);
	CHECK_ERR(wait_for(&f.file, ops, 2, DRM_RKFD_WAIT_ALL, 0, &met), ETIME);
	raise_by(&f, 0, 7, 1);
	CHECK_OK(wait_for(&f.file, ops, 2, DRM_RKFD_WAIT_ALL, far, &met));
	CHECK_EQ(met, 0);
	ops[0].compare = DRM_RKFD_WAIT_NOT_EQUAL;
	for (uint32_t round = 8; round < 60; round++) {
		ops[0].value = round - 1;
		raise_by(&f, 0, round, 1);
		CHECK_OK(wait_for(&f.file, ops, 1, 0, far, &met));
		CHECK_EQ(*out32(&f, 0), round);
	}
	drop_nqueue(&f.file, &f.q);
}

CASE(wait_refused, "WAIT: each errno for its cause")
{
	struct nfile file;
	uint64_t word = 1;
	struct {
		struct drm_rkfd_wait_op op;
		uint64_t more;
	} ops;
	struct drm_rkfd_wait args;

	need_file(&file);
#define WAIT(err, ...)                                                                              \
	do {                                                                                       \
		ops.op = (struct drm_rkfd_wait_op){ .address = (uintptr_t)&word, .value = 1,       \
						    .mask = ~0ull, .size = 8 };                    \
		ops.more = 0;                                                                      \
		args = (struct drm_rkfd_wait){ .ops = (uintptr_t)&ops, .count = 1,                 \
					       .stride = sizeof(ops.op) };                         \
		__VA_ARGS__;                                                                       \
		CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_WAIT, &args), err);                       \
	} while (0)
	WAIT(0, (void)0);
	CHECK_EQ(args.met, 0);
	WAIT(EINVAL, args.count = 0);
	WAIT(EINVAL, args.count = 4097);
	WAIT(EINVAL, args.flags = 2);
	WAIT(EINVAL, args.stride = 24);
	WAIT(EFAULT, args.ops = 8);
	WAIT(EINVAL, ops.op.size = 2);
	WAIT(EINVAL, ops.op.compare = 3);
	WAIT(EINVAL, ops.op.address += 4);
	WAIT(EFAULT, ops.op.address = 8);
	WAIT(ETIME, ops.op.value = 2);
	WAIT(E2BIG, args.stride = sizeof(ops); ops.more = 1);
	WAIT(0, args.stride = sizeof(ops));
	close_file(&file);
}
