// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * MIRROR_MIGRATE as a call: each errno for its cause, what it costs in VRAM, who pays for that, and several threads at once.
 */
#include "limited.h"
#include "migrate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

CASE(refused, "each errno for its cause, and nothing has moved")
{
	struct drm_rkfd_mirror_migrate args, good;
	uint8_t *p = need_memory(4 * PAGE);
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 4 * PAGE, POPULATED);

	pattern(p, 0, 4, 1);
	good = (struct drm_rkfd_mirror_migrate){
		.id = id, .flags = NOW, .gpu_address = AT, .length = 4 * PAGE, .place = IN_VRAM,
	};
#define REFUSED(err, ...)                                                                  \
	do {                                                                               \
		args = good;                                                               \
		__VA_ARGS__;                                                               \
		CHECK_ERR(native(e.file.fd, DRM_IOCTL_RKFD_MIRROR_MIGRATE, &args), err);   \
		CHECK_EQ(device_pages(p, 4), 0);                                           \
	} while (0)
	REFUSED(EINVAL, args.flags = 0);
	REFUSED(EINVAL, args.flags = NOW | 8);
	REFUSED(EINVAL, args.flags = 1u << 31);
	REFUSED(EINVAL, args.flags = FILL);
	REFUSED(EINVAL, args.flags = FILL | KEEP);
	REFUSED(EINVAL, args.flags = NOW | FILL; args.place = IN_SYSTEM);
	REFUSED(EINVAL, args.place = DRM_RKFD_PLACE_POLICY);
	REFUSED(EINVAL, args.place = DRM_RKFD_PLACE_STAY);
	REFUSED(EINVAL, args.flags = NOW | KEEP; args.place = DRM_RKFD_PLACE_POLICY);
	REFUSED(EINVAL, args.place = 4);
	REFUSED(EINVAL, args.flags = KEEP; args.place = 4);
	REFUSED(EINVAL, args.granularity = 16);
	REFUSED(EINVAL, args.flags = KEEP; args.granularity = 15);
	REFUSED(EINVAL, args.flags = KEEP; args.granularity = 22);
	REFUSED(EINVAL, args.flags = KEEP; args.granularity = 1u << 31);
	REFUSED(EINVAL, args.moved = 1);
	REFUSED(EINVAL, args.stayed = 1);
	REFUSED(EINVAL, args.length = 0);
	REFUSED(EINVAL, args.length = PAGE + 8);
	REFUSED(EINVAL, args.gpu_address = AT + 8);
	REFUSED(EINVAL, args.gpu_address = AT - PAGE);
	REFUSED(EINVAL, args.gpu_address = AT + PAGE);
	REFUSED(EINVAL, args.length = 5 * PAGE);
	REFUSED(EINVAL, args.length = -PAGE);
	REFUSED(EINVAL, args.gpu_address = -PAGE; args.length = 2 * PAGE);
	REFUSED(ENOENT, args.id = id + 1);
	REFUSED(ENOENT, args.id = 0);
	/* None of them has noted anything; native/hints_calls.c has what KEEP does. */
	CHECK_EQ(mirror_query(&e.file, id).hints, 0);
#undef REFUSED
	gpu_has_pattern(&e, AT, 0, 4, 1);
	has_pattern(p, 0, 4, 1);
	/* One page is enough. */
	CHECK_EQ(move_all(&e.file, id, AT + 3 * PAGE, PAGE, IN_VRAM, 0), PAGE);
	CHECK_EQ(device_pages(p, 4), 1);
	CHECK_OK(mirror_destroy(&e.file, id));
	CHECK_ERR(mirror_migrate(&e.file, id, AT, 4 * PAGE, IN_SYSTEM, 0, NULL), ENOENT);
	CHECK_EQ(device_pages(p, 4), 1);
	has_pattern(p, 0, 4, 1);
	engine_end(&e);
}

static struct engine shared;
static uint32_t shared_id;

static void migrate_in_child(void *context)
{
	(void)context;
	_exit(mirror_migrate(&shared.file, shared_id, AT, 4 * PAGE, IN_VRAM, 0, NULL));
}

/* Opens a file with a mirror whose memory is in VRAM, hands it over, and ends. */
static void open_and_leave(void *context)
{
	uint8_t *p = need_memory(4 * PAGE);

	pattern(p, 0, 4, 1);
	need_file(&shared.file);
	shared_id = need_mirror(&shared.file, p, AT, 4 * PAGE, POPULATED);
	move_all(&shared.file, shared_id, AT, 4 * PAGE, IN_VRAM, 0);
	send_fd(*(int *)context, shared.file.fd);
}

CASE(other_process, "another process moves nothing: EXDEV while the opener lives, and an error when it has ended")
{
	uint8_t *p = need_memory(4 * PAGE);
	int line[2], err;

	shared_id = moving_begin(&shared, p, AT, 4 * PAGE, POPULATED);
	pattern(p, 0, 4, 2);
	CHECK_EQ(in_child(migrate_in_child, NULL), EXDEV);
	CHECK_EQ(device_pages(p, 4), 0);
	gpu_has_pattern(&shared, AT, 0, 4, 2);
	engine_end(&shared);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line), 0);
	CHECK_EQ(in_child(open_and_leave, &line[1]), 0);
	shared.file.fd = receive_fd(line[0]);
	/* The first one of the file. */
	err = mirror_migrate(&shared.file, 1, AT, 4 * PAGE, IN_VRAM, 0, NULL);
	CHECK(err == ESRCH || err == EXDEV);
	close_file(&shared.file);
}

static void costs_by(uint32_t filling)
{
	uint8_t *p = need_aligned(4 * HUGE);
	struct drm_rkfd_mirror_query info;
	uint64_t before;
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 4 * HUGE, filling);

	madvise(p, 4 * HUGE, MADV_NOHUGEPAGE);
	fill(p, 4 * HUGE / PAGE, 0x100);
	gpu_sees(&e, AT, 4 * HUGE / PAGE, 0x100);
	before = settled_vram(&e.file);
	CHECK_EQ(move_all(&e.file, id, AT, 4 * HUGE, IN_VRAM, 0), 4 * HUGE);
	CHECK_OP(heap_used(&e.file, VRAM), >=, before + 4 * HUGE);
	gpu_sees(&e, AT, 4 * HUGE / PAGE, 0x100);
	/* Neighbours are neighbours there. */
	info = mirror_query(&e.file, id);
	CHECK_EQ(info.vram_bytes, 4 * HUGE);
	CHECK_EQ(info.huge_bytes, 4 * HUGE);
	/* Half by the call, a part by the CPU, the rest by the end of the memory. */
	CHECK_EQ(move_all(&e.file, id, AT, 2 * HUGE, IN_SYSTEM, 0), 2 * HUGE);
	for (unsigned int i = 0; i < HUGE / PAGE; i++)
		CHECK_EQ(*word(p, 2 * HUGE + i * PAGE), 0x100 + 1024 + i);
	CHECK_EQ(munmap(p + 3 * HUGE, HUGE), 0);
	await_vram(&e.file, before);
	gpu_sees(&e, AT, 3 * HUGE / PAGE, 0x100);
	fill(p, 3 * HUGE / PAGE, 0x200);
	gpu_sees(&e, AT, 3 * HUGE / PAGE, 0x200);
	engine_end(&e);
}

CASE_LIMIT(costs, "what is moved costs VRAM, is one large page of the GPU where it was all of one, and is given back when it has come out", 120)
{
	in_both_ways(costs_by);
}

CASE_LIMIT(limit, "the limit of the caller's group: what fits moves, ENOMEM for the rest, what cannot move takes nothing; the charge ends with it", 120)
{
	uint8_t *p = need_aligned(8 * HUGE);
	struct drm_rkfd_mirror_migrate args;
	struct limited l;
	struct engine e;
	uint32_t id = moving_begin(&e, p, AT, 8 * HUGE, POPULATED);
	const unsigned int pages = 8 * HUGE / PAGE;
	int err;

	pattern(p, 0, pages, 3);
	need_limited(&l, e.file.fd);
	group_join(&l.group);
	CHECK_EQ(vram_charged(&l), 0);
	set_limit(&l, 3 * HUGE);
	do
		err = mirror_migrate(&e.file, id, AT, 8 * HUGE, IN_VRAM, 0, &args);
	while (err == EAGAIN);
	CHECK_ERR(err, ENOMEM);
	CHECK_EQ(args.moved, 3 * HUGE);
	CHECK_EQ(device_pages(p, pages), 3 * HUGE / PAGE);
	CHECK_EQ(vram_charged(&l), 3 * HUGE);
	gpu_has_pattern(&e, AT, 0, pages, 3);
	/* No VRAM is wanted for what stays where it is. */
	CHECK_EQ(mlock(p + 4 * HUGE, HUGE), 0);
	do
		err = mirror_migrate(&e.file, id, AT + 4 * HUGE, HUGE, IN_VRAM, 0, &args);
	while (err == EAGAIN);
	CHECK_EQ(err, 0);
	CHECK_EQ(args.moved, 0);
	CHECK_EQ(args.stayed, HUGE);
	CHECK_EQ(munlock(p + 4 * HUGE, HUGE), 0);
	set_limit(&l, UINT64_MAX);
	CHECK_EQ(move_all(&e.file, id, AT, 8 * HUGE, IN_VRAM, 0), 5 * HUGE);
	CHECK_EQ(vram_charged(&l), 8 * HUGE);
	gpu_has_pattern(&e, AT, 0, pages, 3);
	has_pattern(p, 0, pages, 3);
	await_vram_charged(&l, 0);
	engine_end(&e);
	/* The group goes when nobody is in it. */
	leave_limited(&l);
}

CASE_LIMIT(too_much, "more than there is VRAM: what fits moves, or not, and each byte is right", 240)
{
	struct drm_rkfd_mirror_migrate args;
	struct engine e;
	uint64_t size, total;
	unsigned int pages;
	uint32_t id;
	uint8_t *p;
	int err;

	engine_open(&e);
	need_migration(&e.file);
	total = heap_total(&e.file, VRAM);
	if (total > (256ul << 20))
		SKIP("so much VRAM is not filled here");
	size = (total + 8 * HUGE) & ~(HUGE - 1);
	pages = size / PAGE;
	p = need_aligned(size);
	fill(p, pages, 0x1000);
	id = need_mirror(&e.file, p, AT, size, POPULATED);
	engine_start(&e, QUEUE_AT);
	do
		err = mirror_migrate(&e.file, id, AT, size, IN_VRAM, 0, &args);
	while (err == EAGAIN);
	CHECK_ERR(err, ENOMEM);
	CHECK_OP(args.moved, >=, total / 4);
	CHECK_OP(args.moved, <, total);
	CHECK_EQ(device_pages(p, pages), args.moved / PAGE);
	gpu_sees(&e, AT, pages, 0x1000);
	for (unsigned int i = 0; i < pages; i++)
		CHECK_EQ(*word(p, i * PAGE), 0x1000 + i);
	CHECK_EQ(device_pages(p, pages), 0);
	engine_end(&e);
}

/* Two threads' worth of calls about one mirror, while it is made and destroyed. */
static struct {
	struct nfile *file;
	atomic_uint id;
	atomic_bool stop;
	atomic_uint calls;
} raced;

static void *migrate_on(void *context)
{
	const uint32_t place = *(const uint32_t *)context;

	while (!raced.stop) {
		struct drm_rkfd_mirror_migrate args;
		int err = mirror_migrate(raced.file, raced.id, AT, 64 * PAGE, place, 0, &args);

		if (err && err != ENOENT && err != ESRCH && err != EAGAIN)
			FAIL("%s for a mirror that may have ended", tap_errno(err));
		CHECK_OP(args.moved + args.stayed, <=, 64 * PAGE);
		raced.calls++;
	}
	return NULL;
}

CASE_LIMIT(ended_meanwhile, "mirrors end while threads move their memory in and out: ENOENT or ESRCH, and each byte is right", 120)
{
	static uint32_t places[] = { IN_VRAM, IN_SYSTEM };
	uint8_t *p = need_memory(64 * PAGE);
	pthread_t threads[2];
	struct engine e;

	engine_open(&e);
	need_migration(&e.file);
	pattern(p, 0, 64, 8);
	raced.file = &e.file;
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, migrate_on, &places[i]), 0);
	for (unsigned int round = 0; round < 40; round++) {
		struct drm_rkfd_mirror_create args;
		unsigned int calls;
		int err;

		do
			err = mirror_create(&e.file, p, AT, 64 * PAGE, POPULATED, &args);
		while (err == EAGAIN);
		CHECK_OK(err);
		raced.id = args.id;
		calls = raced.calls;
		while (raced.calls < calls + 2)
			usleep(100);
		CHECK_OK(mirror_destroy(&e.file, args.id));
		has_pattern(p, 0, 64, 8);
	}
	raced.stop = true;
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	engine_start(&e, QUEUE_AT);
	engine_end(&e);
	has_pattern(p, 0, 64, 8);
}

/* What moves memory in and out until it is told to end. */
struct mover {
	struct nfile *file;
	uint32_t id;
	atomic_bool stop;
	uint64_t in, out;
};

static void *move_on(void *context)
{
	struct mover *m = context;

	while (!m->stop) {
		struct drm_rkfd_mirror_migrate args;
		int err = mirror_migrate(m->file, m->id, AT, 256 * PAGE, IN_VRAM, 0, &args);

		CHECK(!err || err == EAGAIN);
		m->in += args.moved;
		err = mirror_migrate(m->file, m->id, AT, 256 * PAGE, IN_SYSTEM, 0, &args);
		CHECK(!err || err == EAGAIN);
		m->out += args.moved;
		/* Queues of mirrors without repeated accesses run between two changes. */
		usleep(2000);
	}
	return NULL;
}

/* Adds to a word of each page, in turn. */
static void *add_on(void *context)
{
	uint8_t *p = context;

	for (unsigned int round = 0; round < 40; round++)
		for (unsigned int page = 0; page < 256; page++)
			__atomic_fetch_add((uint64_t *)(p + page * PAGE + 16), 1, __ATOMIC_RELAXED);
	return NULL;
}

static void under_load_by(uint32_t filling)
{
	uint8_t *p = need_memory(256 * PAGE);
	struct engine e;
	struct mover m = { .file = &e.file };
	pthread_t threads[3];
	unsigned int rounds = 0;
	bool ended = false;

	m.id = moving_begin(&e, p, AT, 256 * PAGE, filling);
	pattern(p, 0, 256, 11);
	for (unsigned int page = 0; page < 256; page++)
		((uint64_t *)(p + page * PAGE))[1] = ((uint64_t *)(p + page * PAGE))[2] = 0;
	CHECK_EQ(pthread_create(&threads[0], NULL, move_on, &m), 0);
	for (int i = 1; i < 3; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, add_on, p), 0);
	while (!ended || rounds < 20) {
		gpu_adds(&e, AT, 256, 1, 1);
		rounds++;
		ended = ended || !pthread_tryjoin_np(threads[1], NULL);
	}
	CHECK_EQ(pthread_join(threads[2], NULL), 0);
	m.stop = true;
	CHECK_EQ(pthread_join(threads[0], NULL), 0);
	tap_note("%u rounds of the GPU, %llu pages in, %llu out by call", rounds, (unsigned long long)m.in / PAGE,
		 (unsigned long long)m.out / PAGE);
	CHECK_OP(m.in, >, 0);
	for (unsigned int page = 0; page < 256; page++) {
		volatile uint64_t *words = (volatile uint64_t *)(p + page * PAGE);

		CHECK_EQ(words[1], rounds);
		CHECK_EQ(words[2], 80);
	}
	engine_end(&e);
}

CASE_LIMIT(under_load, "GPU and CPU add to the same pages while these move in and out without end: no addition is lost", 240)
{
	in_both_ways(under_load_by);
}
