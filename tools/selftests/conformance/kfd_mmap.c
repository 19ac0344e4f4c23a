// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * mmap of /dev/kfd: doorbells, the register page, and what is neither.
 */
#include "kfd.h"

#include <sys/mman.h>
#include <unistd.h>

struct fixture {
	struct gpu gpu;
	struct queue q;
};

static void live(struct fixture *f)
{
	need_vm(&f->gpu, 0);
	queue_prepare(&f->gpu, &f->q, KFD_IOC_QUEUE_TYPE_COMPUTE, 0x1000);
	CHECK_OK(queue_create(&f->gpu, &f->q));
}

static int map_doorbell(int fd, uint64_t offset, uint64_t length)
{
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	if (p == MAP_FAILED)
		return errno;
	munmap(p, length);
	return 0;
}

CASE(doorbell_length, "mmap of doorbells: any length but 8192 is EINVAL")
{
	struct fixture f;
	uint64_t base;

	live(&f);
	base = f.q.args.doorbell_offset & ~(DOORBELL_SLICE - 1);
	CHECK_ERR(map_doorbell(f.gpu.fd, base, PAGE), EINVAL);
	CHECK_ERR(map_doorbell(f.gpu.fd, base, 2 * DOORBELL_SLICE), EINVAL);
	CHECK_OK(map_doorbell(f.gpu.fd, base, DOORBELL_SLICE));
}

CASE(doorbell_gpu, "mmap of doorbells: an unknown GPU is ENODEV")
{
	struct fixture f;

	live(&f);
	CHECK_ERR(map_doorbell(f.gpu.fd, 3ull << 62 | (uint64_t)(f.gpu.id ^ 0x5555) << 46, DOORBELL_SLICE), ENODEV);
}

CASE(mmap_types, "mmap of /dev/kfd: events and reserved memory are EINVAL")
{
	struct fixture f;

	live(&f);
	CHECK_ERR(map_doorbell(f.gpu.fd, 2ull << 62 | (uint64_t)f.gpu.id << 46, DOORBELL_SLICE), EINVAL);
	CHECK_ERR(map_doorbell(f.gpu.fd, 1ull << 62 | (uint64_t)f.gpu.id << 46, DOORBELL_SLICE), EINVAL);
}

CASE(mmap_mmio_length, "mmap of the register page: any length but 4096 is EINVAL")
{
	struct fixture f;

	live(&f);
	CHECK_ERR(map_doorbell(f.gpu.fd, (uint64_t)f.gpu.id << 46, 2 * PAGE), EINVAL);
	CHECK_ERR(map_doorbell(f.gpu.fd, (uint64_t)(f.gpu.id ^ 0x5555) << 46, PAGE), ENODEV);
}

CASE(mmap_private, "private mappings of /dev/kfd: writable is refused or a copy, read-only shows the doorbells and stays so")
{
	struct fixture f;
	uint64_t base, seen;
	volatile uint64_t *p;

	live(&f);
	base = f.q.args.doorbell_offset & ~(DOORBELL_SLICE - 1);
	p = mmap(NULL, DOORBELL_SLICE, PROT_READ | PROT_WRITE, MAP_PRIVATE, f.gpu.fd, (off_t)base);
	if (p == MAP_FAILED)
		CHECK_ERR(errno, EINVAL);
	else
		p[0] = p[DOORBELL_SLICE / 8 - 1];
	p = mmap(NULL, DOORBELL_SLICE, PROT_READ, MAP_PRIVATE, f.gpu.fd, (off_t)base);
	CHECK(p != MAP_FAILED);
	seen = p[0] ^ p[DOORBELL_SLICE / 8 - 1];
	if (!mprotect((void *)p, DOORBELL_SLICE, PROT_READ | PROT_WRITE))
		p[0] = seen;
	CHECK_EQ(munmap((void *)p, DOORBELL_SLICE), 0);
	drop_queue(&f.gpu, &f.q);
}

CASE(mmap_low_bits, "mmap of /dev/kfd: the low bits of the offset may be anything that leaves room for the mapping")
{
	const uint64_t last = (1ull << 46) - PAGE;
	struct fixture f;
	uint64_t base;

	live(&f);
	base = 3ull << 62 | (uint64_t)f.gpu.id << 46;
	CHECK_OK(map_doorbell(f.gpu.fd, base | PAGE, DOORBELL_SLICE));
	CHECK_OK(map_doorbell(f.gpu.fd, base | (last - PAGE), DOORBELL_SLICE));
	/* The second page would lie in the window of another GPU. */
	if (is_rkfd())
		CHECK_ERR(map_doorbell(f.gpu.fd, base | last, DOORBELL_SLICE), EINVAL);
	drop_queue(&f.gpu, &f.q);
}

static void child_touches_doorbell(void *slice)
{
	*(volatile uint64_t *)slice = 1;
}

CASE(doorbell_not_inherited, "a forked child does not inherit the doorbells")
{
	struct fixture f;

	live(&f);
	CHECK_EQ(in_child(child_touches_doorbell, f.q.slice), -11);
	drop_queue(&f.gpu, &f.q);
}
