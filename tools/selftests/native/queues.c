// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The native interface: queues of every type, their doorbells, and what is refused.
 */
#include "native.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AT 0x100000000ul
#define QUEUE_AT 0x10000000ul

_Static_assert(sizeof(struct drm_rkfd_queue_create) == 96, "queue_create");
_Static_assert(sizeof(struct drm_rkfd_queue_update) == 40, "queue_update");
_Static_assert(sizeof(struct drm_rkfd_queue_destroy) == 8, "queue_destroy");

struct fixture {
	struct nfile file;
	struct nqueue q;
	struct nbo out;
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

static void end(struct fixture *f)
{
	drop_nqueue(&f->file, &f->q);
	CHECK_OK(unbind_one(&f->file, AT, f->out.size));
	drop_nbo(&f->file, &f->out);
	close_file(&f->file);
}

static void write_by(struct fixture *f, uint64_t offset, uint32_t value)
{
	struct packets p = { .n = 0 };

	if (f->q.args.type == DRM_RKFD_QUEUE_SDMA)
		sdma_write(&p, AT + offset, &value, 1);
	else
		pm4_write(&p, AT + offset, value);
	nsubmit(&f->q, &p);
}

CASE(pm4, "a PM4 queue runs packets, a ring's worth and more")
{
	struct fixture f;

	begin(&f, DRM_RKFD_QUEUE_PM4);
	for (uint32_t i = 1; i <= 40; i++) {
		struct packets p = { .n = 0 };

		for (unsigned int n = 0; n < 100; n++)
			pm4_write(&p, AT + 4 * n, i << 16 | n);
		pm4_write(&p, AT + PAGE, i);
		nsubmit(&f.q, &p);
		await32(out32(&f, PAGE), i, "the last word of a batch");
		for (unsigned int n = 0; n < 100; n++)
			CHECK_EQ(*out32(&f, 4 * n), i << 16 | n);
	}
	end(&f);
}

CASE(sdma, "an SDMA queue on any engine, and on each by its number")
{
	struct fixture f;

	begin(&f, DRM_RKFD_QUEUE_SDMA);
	write_by(&f, 0, 0x5d5a);
	await32(out32(&f, 0), 0x5d5a, "what the engine writes");
	for (uint32_t engine = 0; engine < f.file.device.sdma_engines; engine++) {
		struct fixture g = f;

		nqueue_prepare(&g.file, &g.q, DRM_RKFD_QUEUE_SDMA, 2 * QUEUE_AT);
		g.q.args.engine = engine;
		CHECK_OK(nqueue_create(&g.file, &g.q));
		write_by(&g, 4, 0x100 + engine);
		await32(out32(&g, 4), 0x100 + engine, "what an engine writes");
		drop_nqueue(&g.file, &g.q);
	}
	end(&f);
}

CASE(aql, "an AQL queue runs barrier packets and counts their signals down")
{
	struct fixture f;
	volatile uint64_t *signal;

	begin(&f, DRM_RKFD_QUEUE_AQL);
	signal = (volatile uint64_t *)f.out.cpu;
	signal[0] = 1;
	signal[1] = 2000;
	for (unsigned int i = 0; i < 2000; i++) {
		if (i % 500 == 0)
			await64(f.q.rptr, i, "room in the ring");
		/* A slot that was executed is INVALID again. */
		nsubmit_barrier(&f.q, AT);
	}
	await64(&signal[1], 0, "the signal's value");
	await64(f.q.rptr, 2000, "the read pointer");
	end(&f);
}

CASE(queue_refused, "QUEUE_CREATE: each errno for its cause")
{
	static const uint32_t types[] = { DRM_RKFD_QUEUE_PM4, DRM_RKFD_QUEUE_AQL, DRM_RKFD_QUEUE_SDMA };
	struct nfile file;

	need_file(&file);
#define REFUSED(field, value, err)                                                                  \
	do {                                                                                       \
		struct nqueue bad = q;                                                             \
		bad.args.field = (value);                                                          \
		CHECK_ERR(nqueue_create(&file, &bad), err);                                        \
	} while (0)
	for (unsigned int i = 0; i < 3; i++) {
		bool compute = types[i] != DRM_RKFD_QUEUE_SDMA;
		struct nqueue q;

		nqueue_prepare(&file, &q, types[i], QUEUE_AT);
		REFUSED(type, 3, EINVAL);
		REFUSED(flags, 1, EINVAL);
		REFUSED(pad, 1, EINVAL);
		REFUSED(id, 1, EINVAL);
		REFUSED(doorbell, 1, EINVAL);
		REFUSED(doorbell_map, 1, EINVAL);
		REFUSED(percentage, 101, EINVAL);
		REFUSED(percentage, 0x100, EINVAL);
		REFUSED(priority, 16, EINVAL);
		REFUSED(ring, 0, EINVAL);
		REFUSED(ring, QUEUE_AT + 128, EINVAL);
		REFUSED(ring, 1ul << 47, EINVAL);
		REFUSED(ring_size, 512, EINVAL);
		REFUSED(ring_size, 3 * PAGE, EINVAL);
		REFUSED(read_pointer, q.args.read_pointer + 4, EINVAL);
		REFUSED(write_pointer, q.args.write_pointer + 1, EINVAL);
		REFUSED(write_pointer, 0, EINVAL);
		REFUSED(ring, 8 * QUEUE_AT, EFAULT);
		REFUSED(ring, QUEUE_AT + (q.memory.size & ~0xfffful), EFAULT);
		REFUSED(read_pointer, 8 * QUEUE_AT, EFAULT);
		REFUSED(write_pointer, 8 * QUEUE_AT, EFAULT);
		if (compute) {
			REFUSED(engine, 1, EINVAL);
			REFUSED(eop, q.args.eop + 1, EINVAL);
			REFUSED(eop_size, file.device.eop_bytes - 1, EINVAL);
			REFUSED(save, 0, EINVAL);
			REFUSED(save_size, file.device.save_bytes - 1, EINVAL);
			REFUSED(ctl_stack_size, file.device.ctl_stack_bytes + PAGE, EINVAL);
			REFUSED(save, 8 * QUEUE_AT, EFAULT);
			REFUSED(eop, 8 * QUEUE_AT, EFAULT);
		} else {
			REFUSED(engine, file.device.sdma_engines, EINVAL);
			REFUSED(eop, QUEUE_AT, EINVAL);
			REFUSED(eop_size, PAGE, EINVAL);
			REFUSED(save, QUEUE_AT, EINVAL);
			REFUSED(save_size, PAGE, EINVAL);
		}
		/* None of them has left anything. */
		CHECK_OK(unbind_one(&file, QUEUE_AT, q.memory.size));
		drop_nbo(&file, &q.memory);
	}
	close_file(&file);
}

CASE(holds, "what a queue uses stays bound until it is destroyed; then nothing holds it")
{
	struct fixture f;
	struct nbo other;

	begin(&f, DRM_RKFD_QUEUE_PM4);
	need_nbo(&f.file, &other, SYSTEM, PAGE);
	CHECK_ERR(unbind_one(&f.file, QUEUE_AT, PAGE), EBUSY);
	CHECK_ERR(bind_one(&f.file, QUEUE_AT, PAGE, other.handle, 0), EBUSY);
	CHECK_ERR(unbind_one(&f.file, 0x10000, 1ul << 40), EBUSY);
	write_by(&f, 0, 7);
	await32(out32(&f, 0), 7, "what the queue writes");
	CHECK_OK(nqueue_destroy(&f.file, f.q.args.id));
	CHECK_OK(unbind_one(&f.file, 0x10000, 1ul << 40));
	CHECK_EQ(ranges_of(&f.file, &f.q.memory), 0);
}

static int update(const struct fixture *f, struct drm_rkfd_queue_update *args)
{
	args->id = f->q.args.id;
	return native(f->file.fd, DRM_IOCTL_RKFD_QUEUE_UPDATE, args);
}

CASE(updated, "QUEUE_UPDATE stops a queue, lets it go on, and gives it another ring")
{
	struct fixture f;
	struct drm_rkfd_queue_update args;
	struct nbo ring;
	uint32_t mask[2] = { 0xffff, 0 };

	begin(&f, DRM_RKFD_QUEUE_PM4);
	write_by(&f, 0, 1);
	await32(out32(&f, 0), 1, "the first word");
	args = (struct drm_rkfd_queue_update){ .flags = DRM_RKFD_UPDATE_PERCENTAGE, .percentage = 0 };
	CHECK_OK(update(&f, &args));
	write_by(&f, 0, 2);
	CHECK_EQ(*out32(&f, 0), 1);
	/* A field that is not named is not looked at. */
	args = (struct drm_rkfd_queue_update){ .flags = DRM_RKFD_UPDATE_PRIORITY, .priority = 3, .percentage = 400 };
	CHECK_OK(update(&f, &args));
	CHECK_EQ(*out32(&f, 0), 1);
	args = (struct drm_rkfd_queue_update){ .flags = DRM_RKFD_UPDATE_PERCENTAGE | DRM_RKFD_UPDATE_CU_MASK,
					       .percentage = 100, .cu_mask = (uintptr_t)mask, .cu_count = 64 };
	CHECK_OK(update(&f, &args));
	await32(out32(&f, 0), 2, "what was written while the queue stood still");
	await32((volatile uint32_t *)f.q.rptr, f.q.written, "the read pointer");
	/* A larger ring, in the middle of a buffer, with what the queue has not read. */
	need_nbo(&f.file, &ring, SYSTEM, 64 * PAGE);
	CHECK_OK(bind_one(&f.file, 4 * QUEUE_AT, ring.size, ring.handle, 0));
	args = (struct drm_rkfd_queue_update){ .flags = DRM_RKFD_UPDATE_RING, .ring = 4 * QUEUE_AT + 16 * PAGE,
					       .ring_size = 32 * PAGE };
	CHECK_OK(update(&f, &args));
	f.q.ring = (uint32_t *)(ring.cpu + 16 * PAGE);
	f.q.args.ring_size = 32 * PAGE;
	write_by(&f, 0, 3);
	await32(out32(&f, 0), 3, "a word from the new ring");
	CHECK_ERR(unbind_one(&f.file, 4 * QUEUE_AT, PAGE), EBUSY);
	CHECK_OK(nqueue_destroy(&f.file, f.q.args.id));
	CHECK_OK(unbind_one(&f.file, 4 * QUEUE_AT, ring.size));
}

CASE(update_refused, "QUEUE_UPDATE and QUEUE_DESTROY: each errno for its cause")
{
	struct fixture f, g;
	struct drm_rkfd_queue_update args;
	struct drm_rkfd_queue_destroy destroy = { .pad = 1 };
	uint32_t mask = ~0u;

	begin(&f, DRM_RKFD_QUEUE_PM4);
#define UPDATE(err, ...)                                                                            \
	do {                                                                                       \
		args = (struct drm_rkfd_queue_update){ __VA_ARGS__ };                              \
		CHECK_ERR(update(&f, &args), err);                                                 \
	} while (0)
	UPDATE(EINVAL, .flags = 0);
	UPDATE(EINVAL, .flags = 0x10);
	UPDATE(EINVAL, .flags = DRM_RKFD_UPDATE_PERCENTAGE, .percentage = 101);
	UPDATE(EINVAL, .flags = DRM_RKFD_UPDATE_PRIORITY, .priority = 16);
	UPDATE(EINVAL, .flags = DRM_RKFD_UPDATE_RING, .ring = QUEUE_AT, .ring_size = 1000);
	UPDATE(EINVAL, .flags = DRM_RKFD_UPDATE_RING, .ring = QUEUE_AT + 1, .ring_size = PAGE);
	UPDATE(EFAULT, .flags = DRM_RKFD_UPDATE_RING, .ring = 8 * QUEUE_AT, .ring_size = PAGE);
	UPDATE(EINVAL, .flags = DRM_RKFD_UPDATE_CU_MASK, .cu_mask = (uintptr_t)&mask, .cu_count = 0);
	UPDATE(EINVAL, .flags = DRM_RKFD_UPDATE_CU_MASK, .cu_mask = (uintptr_t)&mask, .cu_count = 31);
	UPDATE(EINVAL, .flags = DRM_RKFD_UPDATE_CU_MASK, .cu_mask = (uintptr_t)&mask, .cu_count = 1056);
	UPDATE(EFAULT, .flags = DRM_RKFD_UPDATE_CU_MASK, .cu_mask = 8, .cu_count = 32);
	CHECK_ERR(native(f.file.fd, DRM_IOCTL_RKFD_QUEUE_DESTROY, &destroy), EINVAL);
	CHECK_ERR(nqueue_destroy(&f.file, 777), ENOENT);
	/* A queue of one file is none of another. */
	begin(&g, DRM_RKFD_QUEUE_SDMA);
	CHECK_EQ(g.q.args.id, f.q.args.id);
	CHECK_OK(nqueue_destroy(&g.file, g.q.args.id));
	CHECK_ERR(nqueue_destroy(&g.file, f.q.args.id), ENOENT);
	args = (struct drm_rkfd_queue_update){ .id = f.q.args.id, .flags = DRM_RKFD_UPDATE_PRIORITY };
	CHECK_ERR(native(g.file.fd, DRM_IOCTL_RKFD_QUEUE_UPDATE, &args), ENOENT);
	/* What was answered before is nothing that can be asked for. */
	CHECK_ERR(nqueue_create(&g.file, &g.q), EINVAL);
	g.q.args.id = 0;
	g.q.args.doorbell = 0;
	g.q.args.doorbell_map = 0;
	CHECK_OK(nqueue_create(&g.file, &g.q));
	args = (struct drm_rkfd_queue_update){ .id = g.q.args.id, .flags = DRM_RKFD_UPDATE_CU_MASK,
					       .cu_mask = (uintptr_t)&mask, .cu_count = 32 };
	CHECK_ERR(native(g.file.fd, DRM_IOCTL_RKFD_QUEUE_UPDATE, &args), EINVAL);
	write_by(&f, 0, 9);
	await32(out32(&f, 0), 9, "that the queue is as it was");
	end(&f);
}

CASE(doorbells, "each file has doorbells of its own, which no other file can map; what rings on one reaches only its queues")
{
	struct fixture a, b;
	void *p;

	begin(&a, DRM_RKFD_QUEUE_PM4);
	begin(&b, DRM_RKFD_QUEUE_PM4);
	CHECK_EQ(a.q.args.doorbell, b.q.args.doorbell);
	p = mmap(NULL, a.file.device.doorbell_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b.file.fd,
		 (off_t)a.q.args.doorbell_map);
	CHECK(p == MAP_FAILED);
	CHECK_EQ(errno, EACCES);
	/* The same byte of the one page rings for the one queue. */
	write_by(&a, 0, 0xa);
	await32(out32(&a, 0), 0xa, "what the first queue writes");
	CHECK_EQ(*out32(&b, 0), 0);
	write_by(&b, 0, 0xb);
	await32(out32(&b, 0), 0xb, "what the second queue writes");
	CHECK_EQ(*out32(&a, 0), 0xa);
	end(&a);
	write_by(&b, 0, 0xc);
	await32(out32(&b, 0), 0xc, "what the second queue writes alone");
	end(&b);
}

CASE_LIMIT(many_files, "many files in one program, each with a queue at the same addresses, write what is theirs", 120)
{
	static struct fixture f[12];
	struct nfile file;
	unsigned int files;

	/* Where they take no turns, each has one of the hardware's address spaces for itself. */
	need_file(&file);
	files = file.device.features & DRM_RKFD_FEATURE_QUEUES_TAKE_TURNS ? 12 : 6;
	for (unsigned int i = 0; i < files; i++)
		begin(&f[i], i % 2 ? DRM_RKFD_QUEUE_SDMA : DRM_RKFD_QUEUE_PM4);
	for (uint32_t round = 1; round <= 5; round++) {
		for (unsigned int i = 0; i < files; i++)
			write_by(&f[i], 8, round << 16 | i);
		for (unsigned int i = 0; i < files; i++)
			await32(out32(&f[i], 8), round << 16 | i, "what a file's queue writes");
	}
	for (unsigned int i = 0; i < files; i++)
		end(&f[i]);
}
