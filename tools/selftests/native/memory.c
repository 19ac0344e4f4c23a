// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The native interface: what is asked, buffers, and ranges of an address space, by CPU and by GPU.
 */
#include "native.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2ul << 20)
/* Where the cases bind; queues lie elsewhere. */
#define AT 0x100000000ul
#define QUEUE_AT 0x10000000ul
#define OUT_AT 0x20000000ul

_Static_assert(sizeof(struct drm_rkfd_query) == 24, "query");
_Static_assert(sizeof(struct drm_rkfd_device) == 104, "device");
_Static_assert(sizeof(struct drm_rkfd_heap) == 32, "heap");
_Static_assert(sizeof(struct drm_rkfd_bo_create) == 32, "bo_create");
_Static_assert(sizeof(struct drm_rkfd_bo_info) == 40, "bo_info");
_Static_assert(sizeof(struct drm_rkfd_bind_op) == 40, "bind_op");
_Static_assert(sizeof(struct drm_rkfd_bind) == 24, "bind");
_Static_assert(DRM_RKFD_QUERY >= 0x40, "clear of amdgpu's numbers");

/* A file with an SDMA queue that reads and writes what is bound. */
struct engine {
	struct nfile file;
	struct nqueue q;
	struct nbo out;
	uint32_t fence;
};

static void begin(struct engine *e)
{
	need_file(&e->file);
	need_nqueue(&e->file, &e->q, DRM_RKFD_QUEUE_SDMA, QUEUE_AT);
	need_nbo(&e->file, &e->out, SYSTEM, 16 * PAGE);
	CHECK_OK(bind_one(&e->file, OUT_AT, e->out.size, e->out.handle, 0));
	e->fence = 0;
}

static volatile uint32_t *out32(const struct engine *e, uint64_t offset)
{
	return (volatile uint32_t *)(e->out.cpu + offset);
}

static void run(struct engine *e, struct packets *p)
{
	sdma_fence(p, OUT_AT + PAGE - 4, ++e->fence);
	nsubmit(&e->q, p);
	await32(out32(e, PAGE - 4), e->fence, "the fence");
}

static uint32_t gpu_read(struct engine *e, uint64_t va)
{
	struct packets p = { .n = 0 };

	sdma_copy(&p, va, OUT_AT, 4);
	run(e, &p);
	return *out32(e, 0);
}

static void gpu_write(struct engine *e, uint64_t va, uint32_t value)
{
	struct packets p = { .n = 0 };

	sdma_write(&p, va, &value, 1);
	run(e, &p);
}

static void end(struct engine *e)
{
	drop_nqueue(&e->file, &e->q);
	CHECK_OK(unbind_one(&e->file, OUT_AT, e->out.size));
	drop_nbo(&e->file, &e->out);
	close_file(&e->file);
}

static void fill(const struct nbo *bo, uint32_t seed)
{
	for (uint64_t at = 0; at < bo->size; at += PAGE)
		*(volatile uint32_t *)(bo->cpu + at) = seed + at / PAGE;
}

CASE(query_device, "QUERY tells what the GPU is, in as many bytes as there is room for")
{
	struct nfile file;
	struct drm_rkfd_device device;
	struct drm_rkfd_query query = { .what = DRM_RKFD_QUERY_DEVICE };

	need_file(&file);
	CHECK_OK(native(file.fd, DRM_IOCTL_RKFD_QUERY, &query));
	CHECK_EQ(query.size, sizeof(device));
	CHECK_EQ(file.device.version, DRM_RKFD_VERSION);
	CHECK(file.device.gfx_target == 90010 || file.device.gfx_target == 90006);
	CHECK_EQ(file.device.wave_size, 64);
	CHECK_EQ(file.device.va_start, 0x10000);
	CHECK_EQ(file.device.va_end, 1ul << 47);
	CHECK_EQ(file.device.page_sizes, PAGE | HUGE | 1ul << 30);
	CHECK(file.device.compute_units > 0);
	CHECK(file.device.max_binds >= 4096);
	memset(&device, 0x5a, sizeof(device));
	query.data = (uintptr_t)&device;
	query.size = 8;
	CHECK_OK(native(file.fd, DRM_IOCTL_RKFD_QUERY, &query));
	CHECK_EQ(query.size, sizeof(device));
	CHECK_EQ(device.version, DRM_RKFD_VERSION);
	CHECK_EQ(device.gfx_target, 0x5a5a5a5a);
	close_file(&file);
}

CASE(query_refused, "QUERY: EINVAL for what it does not know, EFAULT where nothing can be written")
{
	struct nfile file;
	struct drm_rkfd_query query;

	need_file(&file);
	query = (struct drm_rkfd_query){ .what = 2 };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_QUERY, &query), EINVAL);
	query = (struct drm_rkfd_query){ .flags = 1 };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_QUERY, &query), EINVAL);
	query = (struct drm_rkfd_query){ .pad = 1 };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_QUERY, &query), EINVAL);
	query = (struct drm_rkfd_query){ .size = 8, .data = 8 };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_QUERY, &query), EFAULT);
	close_file(&file);
}

CASE(call_sizes, "a shorter argument is completed by zeroes, what a longer one has more is not looked at")
{
	struct nfile file;
	struct {
		struct drm_rkfd_query query;
		uint64_t more;
	} longer = { .query = { .what = DRM_RKFD_QUERY_HEAPS }, .more = ~0ull };
	struct drm_rkfd_query shorter = { .what = DRM_RKFD_QUERY_DEVICE, .pad = 1 };

	need_file(&file);
	CHECK_OK(native(file.fd, DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_QUERY, longer), &longer));
	CHECK_EQ(longer.query.size, 2 * sizeof(struct drm_rkfd_heap));
	/* Without its last four bytes, which would be refused. */
	CHECK_OK(native(file.fd, _IOC(_IOC_READ | _IOC_WRITE, 'd', DRM_COMMAND_BASE + DRM_RKFD_QUERY, 20), &shorter));
	CHECK_EQ(shorter.size, sizeof(struct drm_rkfd_device));
	CHECK_ERR(native(file.fd, DRM_IOWR(DRM_COMMAND_BASE + 0x4f, longer), &longer), EINVAL);
	CHECK_ERR(native(file.fd, DRM_IOWR(DRM_COMMAND_BASE + 0x3f, longer), &longer), EINVAL);
	close_file(&file);
}

CASE(create, "BO_CREATE makes cleared memory, in pages, that the CPU can map; BO_INFO tells what it is")
{
	static const uint32_t heaps[] = { VRAM, SYSTEM };
	struct nfile file;

	need_file(&file);
	for (unsigned int i = 0; i < 2; i++) {
		struct drm_rkfd_bo_info info;
		struct nbo bo;

		need_nbo(&file, &bo, heaps[i], 3 * PAGE - 5);
		CHECK_EQ(bo.size, 3 * PAGE);
		for (uint64_t at = 0; at < bo.size; at += 4)
			CHECK_EQ(*(volatile uint32_t *)(bo.cpu + at), 0);
		CHECK_OK(nbo_info(&file, bo.handle, &info));
		CHECK_EQ(info.heap, heaps[i]);
		CHECK_EQ(info.size, bo.size);
		CHECK_EQ(info.flags, DRM_RKFD_BO_CPU_ACCESS | DRM_RKFD_BO_UNCACHED);
		CHECK_EQ(info.mmap_offset, bo.mmap_offset);
		CHECK_EQ(info.ranges, 0);
		drop_nbo(&file, &bo);
		CHECK_ERR(nbo_info(&file, bo.handle, &info), ENOENT);
	}
	close_file(&file);
}

CASE(create_refused, "BO_CREATE: EINVAL for what no buffer can be, ENOMEM for more than there is")
{
	struct nfile file;
	struct nbo bo;
	struct drm_rkfd_bo_create args;
	struct drm_rkfd_bo_info info = { .handle = 1, .pad = 1 };

	need_file(&file);
	CHECK_ERR(nbo_create(&file, &bo, VRAM, 0, 0), EINVAL);
	CHECK_ERR(nbo_create(&file, &bo, DRM_RKFD_HEAP_NONE, PAGE, 0), EINVAL);
	CHECK_ERR(nbo_create(&file, &bo, 3, PAGE, 0), EINVAL);
	CHECK_ERR(nbo_create(&file, &bo, VRAM, PAGE, 0x10), EINVAL);
	args = (struct drm_rkfd_bo_create){ .size = PAGE, .heap = VRAM, .fallback = 3 };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BO_CREATE, &args), EINVAL);
	args = (struct drm_rkfd_bo_create){ .size = PAGE, .heap = VRAM, .handle = 1 };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BO_CREATE, &args), EINVAL);
	CHECK_ERR(nbo_create(&file, &bo, VRAM, 1ul << 46, 0), ENOMEM);
	CHECK_ERR(nbo_create(&file, &bo, VRAM, ~0ul, 0), ENOMEM);
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BO_INFO, &info), EINVAL);
	CHECK_ERR(nbo_info(&file, 12345, &info), ENOENT);
	close_file(&file);
}

CASE(parts, "parts of a buffer at several places: GPU and CPU see the same bytes in each")
{
	static const uint32_t heaps[] = { VRAM, SYSTEM };
	struct engine e;

	begin(&e);
	for (unsigned int i = 0; i < 2; i++) {
		struct nbo bo;

		need_nbo(&e.file, &bo, heaps[i], HUGE + 5 * PAGE);
		fill(&bo, 0x1000);
		/* Whole, its third page alone, and its end, at addresses that fit no large page. */
		CHECK_OK(bind_one(&e.file, AT, bo.size, bo.handle, 0));
		CHECK_OK(bind_one(&e.file, AT + (1ul << 32) + 7 * PAGE, PAGE, bo.handle, 2 * PAGE));
		CHECK_OK(bind_one(&e.file, AT + (2ul << 32) + HUGE - PAGE, 6 * PAGE, bo.handle, HUGE - PAGE));
		CHECK_EQ(ranges_of(&e.file, &bo), 3);
		CHECK_EQ(gpu_read(&e, AT + HUGE + 4 * PAGE), 0x1000 + 512 + 4);
		CHECK_EQ(gpu_read(&e, AT + (1ul << 32) + 7 * PAGE), 0x1002);
		for (unsigned int page = 0; page < 6; page++)
			CHECK_EQ(gpu_read(&e, AT + (2ul << 32) + HUGE - PAGE + page * PAGE), 0x1000 + 511 + page);
		gpu_write(&e, AT + (1ul << 32) + 7 * PAGE + 8, 0xabc);
		CHECK_EQ(gpu_read(&e, AT + 2 * PAGE + 8), 0xabc);
		CHECK_EQ(*(volatile uint32_t *)(bo.cpu + 2 * PAGE + 8), 0xabc);
		/* Without a handle it lives on where it is bound. */
		drop_nbo(&e.file, &bo);
		CHECK_EQ(gpu_read(&e, AT + 2 * PAGE + 8), 0xabc);
		CHECK_OK(unbind_one(&e.file, AT, 3ul << 32));
	}
	end(&e);
}

CASE(replaced, "what a list covers is replaced, and of what it cuts the rest stays: in small pages and in a large one")
{
	static const uint64_t starts[] = { AT + PAGE, AT };
	struct engine e;

	begin(&e);
	for (unsigned int i = 0; i < 2; i++) {
		uint64_t at = starts[i];
		struct nbo a, b;
		struct drm_rkfd_bind_op ops[3];

		need_nbo(&e.file, &a, VRAM, 2 * HUGE);
		need_nbo(&e.file, &b, SYSTEM, 2 * PAGE);
		fill(&a, 0xa000);
		fill(&b, 0xb000);
		CHECK_OK(bind_one(&e.file, at, a.size, a.handle, 0));
		ops[0] = map_op(at + 700 * PAGE, PAGE, b.handle, PAGE);
		ops[1] = unmap_op(at + 3 * PAGE, 2 * PAGE);
		ops[2] = map_op(at + 5 * PAGE, PAGE, a.handle, 9 * PAGE);
		CHECK_OK(bind_list(&e.file, ops, 3, NULL));
		/* 0-2, 5, 6-699, 701-1023 */
		CHECK_EQ(ranges_of(&e.file, &a), 4);
		CHECK_EQ(ranges_of(&e.file, &b), 1);
		CHECK_EQ(gpu_read(&e, at + 2 * PAGE), 0xa002);
		CHECK_EQ(gpu_read(&e, at + 5 * PAGE), 0xa009);
		CHECK_EQ(gpu_read(&e, at + 6 * PAGE), 0xa006);
		CHECK_EQ(gpu_read(&e, at + 511 * PAGE), 0xa000 + 511);
		CHECK_EQ(gpu_read(&e, at + 699 * PAGE), 0xa000 + 699);
		CHECK_EQ(gpu_read(&e, at + 700 * PAGE), 0xb001);
		CHECK_EQ(gpu_read(&e, at + 701 * PAGE), 0xa000 + 701);
		CHECK_EQ(gpu_read(&e, at + 1023 * PAGE), 0xa000 + 1023);
		/* Nothing is there: bound anew it shows what is bound now. */
		CHECK_OK(bind_one(&e.file, at + 3 * PAGE, PAGE, b.handle, 0));
		CHECK_EQ(gpu_read(&e, at + 3 * PAGE), 0xb000);
		CHECK_OK(unbind_one(&e.file, at, a.size));
		CHECK_EQ(ranges_of(&e.file, &a), 0);
		drop_nbo(&e.file, &a);
		drop_nbo(&e.file, &b);
	}
	end(&e);
}

CASE(all_or_nothing, "a list with one bad range changes nothing, and tells which it is")
{
	struct engine e;
	struct nbo a, b;
	struct drm_rkfd_bind_op ops[3];
	uint32_t failed;

	begin(&e);
	need_nbo(&e.file, &a, VRAM, 4 * PAGE);
	need_nbo(&e.file, &b, VRAM, 4 * PAGE);
	fill(&a, 0xa000);
	fill(&b, 0xb000);
	CHECK_OK(bind_one(&e.file, AT, a.size, a.handle, 0));
	ops[0] = map_op(AT, PAGE, b.handle, 0);
	ops[1] = unmap_op(AT + PAGE, PAGE);
	ops[2] = map_op(AT + 2 * PAGE, 2 * PAGE, b.handle, 3 * PAGE);
	CHECK_ERR(bind_list(&e.file, ops, 3, &failed), EINVAL);
	CHECK_EQ(failed, 2);
	ops[2] = map_op(AT + 2 * PAGE, PAGE, 12345, 0);
	CHECK_ERR(bind_list(&e.file, ops, 3, &failed), ENOENT);
	CHECK_EQ(failed, 2);
	/* Part of a queue's memory cannot go. */
	ops[2] = unmap_op(QUEUE_AT, PAGE);
	CHECK_ERR(bind_list(&e.file, ops, 3, &failed), EBUSY);
	CHECK_EQ(failed, 2);
	ops[2] = map_op(AT + PAGE, PAGE, b.handle, 0);
	CHECK_ERR(bind_list(&e.file, ops, 3, &failed), EINVAL);
	CHECK_EQ(failed, 2);
	CHECK_EQ(ranges_of(&e.file, &a), 1);
	CHECK_EQ(ranges_of(&e.file, &b), 0);
	for (unsigned int page = 0; page < 4; page++)
		CHECK_EQ(gpu_read(&e, AT + page * PAGE), 0xa000 + page);
	CHECK_OK(bind_list(&e.file, ops, 2, &failed));
	CHECK_EQ(failed, DRM_RKFD_BIND_NO_OP);
	CHECK_EQ(gpu_read(&e, AT), 0xb000);
	CHECK_OK(unbind_one(&e.file, AT, a.size));
	end(&e);
}

CASE(bind_refused, "BIND: each errno for its cause")
{
	struct nfile file;
	struct nbo bo;
	struct drm_rkfd_bind_op op, good;
	struct drm_rkfd_bind args;
	struct {
		struct drm_rkfd_bind_op op;
		uint64_t more;
	} longer;

	need_file(&file);
	need_nbo(&file, &bo, VRAM, 4 * PAGE);
	good = map_op(AT, PAGE, bo.handle, 0);
#define REFUSED(field, value, err)                                                                  \
	do {                                                                                       \
		op = good;                                                                         \
		op.field = (value);                                                                \
		CHECK_ERR(bind_list(&file, &op, 1, NULL), err);                                    \
	} while (0)
	REFUSED(op, 3, EINVAL);
	REFUSED(flags, 4, EINVAL);
	REFUSED(pad, 1, EINVAL);
	REFUSED(address, AT + 1, EINVAL);
	REFUSED(address, 0xf000, EINVAL);
	REFUSED(address, file.device.va_end, EINVAL);
	REFUSED(address, ~0xffful, EINVAL);
	REFUSED(length, 0, EINVAL);
	REFUSED(length, PAGE - 1, EINVAL);
	REFUSED(length, 5 * PAGE, EINVAL);
	REFUSED(length, ~0xffful, EINVAL);
	REFUSED(offset, 1, EINVAL);
	REFUSED(offset, 4 * PAGE, EINVAL);
	REFUSED(offset, ~0xffful, EINVAL);
	REFUSED(handle, 0, ENOENT);
	good = unmap_op(AT, PAGE);
	REFUSED(flags, RW, EINVAL);
	REFUSED(offset, PAGE, EINVAL);
	REFUSED(handle, bo.handle, EINVAL);
	CHECK_OK(bind_list(&file, &good, 1, NULL));
	args = (struct drm_rkfd_bind){ .ops = (uintptr_t)&good, .count = 0, .stride = sizeof(good) };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BIND, &args), EINVAL);
	args.count = file.device.max_binds + 1;
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BIND, &args), EINVAL);
	args.count = 1;
	args.flags = 1;
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BIND, &args), EINVAL);
	args.flags = 0;
	args.stride = sizeof(good) - 8;
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BIND, &args), EINVAL);
	args.stride = sizeof(good) + 4;
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BIND, &args), EINVAL);
	args.stride = 264;
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BIND, &args), EINVAL);
	args.stride = sizeof(good);
	args.ops = 8;
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BIND, &args), EFAULT);
	longer.op = map_op(AT, PAGE, bo.handle, 0);
	longer.more = 1;
	args = (struct drm_rkfd_bind){ .ops = (uintptr_t)&longer, .count = 1, .stride = sizeof(longer) };
	CHECK_ERR(native(file.fd, DRM_IOCTL_RKFD_BIND, &args), E2BIG);
	CHECK_EQ(ranges_of(&file, &bo), 0);
	longer.more = 0;
	CHECK_OK(native(file.fd, DRM_IOCTL_RKFD_BIND, &args));
	CHECK_EQ(ranges_of(&file, &bo), 1);
	close_file(&file);
}

CASE_LIMIT(scattered, "thousands of scattered ranges in one list, and the same list takes them away", 120)
{
	enum { COUNT = 4096 };
	static struct drm_rkfd_bind_op ops[COUNT];
	struct engine e;
	struct nbo bo;

	begin(&e);
	need_nbo(&e.file, &bo, SYSTEM, COUNT * PAGE);
	fill(&bo, 0x5000);
	/* In an order that is none, every other page of a region, and some far away. */
	for (unsigned int i = 0; i < COUNT; i++) {
		unsigned int n = i * 1021 % COUNT;
		uint64_t va = AT + (uint64_t)n * 2 * PAGE + (n % 64 == 5 ? 1ul << 40 : 0);

		ops[i] = map_op(va, PAGE, bo.handle, (uint64_t)n * PAGE);
	}
	CHECK_OK(bind_list(&e.file, ops, COUNT, NULL));
	CHECK_EQ(ranges_of(&e.file, &bo), COUNT);
	for (unsigned int i = 0; i < COUNT; i += 61)
		CHECK_EQ(gpu_read(&e, ops[i].address), 0x5000 + ops[i].offset / PAGE);
	for (unsigned int i = 0; i < COUNT; i++)
		ops[i] = unmap_op(ops[i].address, PAGE);
	CHECK_OK(bind_list(&e.file, ops, COUNT, NULL));
	CHECK_EQ(ranges_of(&e.file, &bo), 0);
	drop_nbo(&e.file, &bo);
	end(&e);
}

CASE(isolated, "two opens by one program: the same addresses show what each bound, handles and offsets of one mean nothing to the other")
{
	struct engine a, b;
	struct nbo in_a, in_b;
	struct drm_rkfd_bo_info info;

	begin(&a);
	begin(&b);
	need_nbo(&a.file, &in_a, VRAM, PAGE);
	/* The numbers of handles begin anew in each file: this is one that only `a` has so far. */
	CHECK_ERR(nbo_info(&b.file, in_a.handle, &info), ENOENT);
	CHECK_ERR(bind_one(&b.file, AT, PAGE, in_a.handle, 0), ENOENT);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, b.file.fd, (off_t)in_a.mmap_offset) == MAP_FAILED);
	CHECK_EQ(errno, EACCES);
	need_nbo(&b.file, &in_b, VRAM, PAGE);
	fill(&in_a, 0xaaaa);
	fill(&in_b, 0xbbbb);
	CHECK_OK(bind_one(&a.file, AT, PAGE, in_a.handle, 0));
	CHECK_OK(bind_one(&b.file, AT, PAGE, in_b.handle, 0));
	CHECK_EQ(gpu_read(&a, AT), 0xaaaa);
	CHECK_EQ(gpu_read(&b, AT), 0xbbbb);
	gpu_write(&a, AT + 4, 1);
	gpu_write(&b, AT + 4, 2);
	CHECK_EQ(gpu_read(&a, AT + 4), 1);
	CHECK_EQ(*(volatile uint32_t *)(in_a.cpu + 4), 1);
	CHECK_EQ(*(volatile uint32_t *)(in_b.cpu + 4), 2);
	/* The one goes, the other stays. */
	CHECK_OK(unbind_one(&a.file, AT, PAGE));
	CHECK_EQ(gpu_read(&b, AT + 4), 2);
	end(&a);
	CHECK_EQ(gpu_read(&b, AT), 0xbbbb);
	end(&b);
}

CASE(either_interface, "an address space belongs to the interface that changes it first; the other gets EBUSY")
{
	struct gpu gpu;
	struct nfile file, other;
	struct nbo bo;
	int fd;

	need_gpu(&gpu, 0);
	need_file(&file);
	CHECK_OK(nbo_create(&file, &bo, VRAM, PAGE, 0));
	CHECK_OK(bind_one(&file, AT, PAGE, bo.handle, 0));
	CHECK_ERR(acquire_vm(&gpu, file.fd), EBUSY);
	need_file(&other);
	fd = other.fd;
	CHECK_OK(acquire_vm(&gpu, fd));
	CHECK_OK(nbo_create(&other, &bo, VRAM, PAGE, 0));
	CHECK_ERR(bind_one(&other, AT, PAGE, bo.handle, 0), EBUSY);
	CHECK_ERR(unbind_one(&other, AT, PAGE), EBUSY);
}

static struct nfile shared;

/* A child that inherited the file. */
static void use_inherited(void *unused)
{
	struct nbo bo;

	need_nbo(&shared, &bo, VRAM, PAGE);
	fill(&bo, 0xc41d);
	CHECK_OK(bind_one(&shared, AT + PAGE, PAGE, bo.handle, 0));
	CHECK_EQ(ranges_of(&shared, &bo), 1);
}

CASE(forked, "a child that inherits the descriptor has the same address space; what it bound stays when it ends")
{
	struct engine e;

	begin(&e);
	shared = e.file;
	CHECK_EQ(in_child(use_inherited, NULL), 0);
	CHECK_EQ(gpu_read(&e, AT + PAGE), 0xc41d);
	CHECK_OK(unbind_one(&e.file, AT + PAGE, PAGE));
	end(&e);
}

static void with_everything(int ready)
{
	static struct engine e;
	struct nbo bo;

	begin(&e);
	need_nbo(&e.file, &bo, VRAM, 8 * HUGE);
	CHECK_OK(bind_one(&e.file, AT, bo.size, bo.handle, 0));
	gpu_write(&e, AT, 1);
	say_ready(ready);
	for (;;)
		pause();
}

static void await_used(const struct nfile *file, uint32_t heap, uint64_t most)
{
	uint64_t end = now_ms() + WAIT_MS, used;

	while ((used = heap_used(file, heap)) > most) {
		if (now_ms() > end)
			FAIL("%llu bytes of heap %u are not given back", (unsigned long long)(used - most), heap);
		usleep(1000);
	}
}

CASE(given_back, "closing a file, and killing its program, gives all memory back")
{
	struct nfile file;
	struct engine e;
	struct nbo bo;
	uint64_t vram, system;
	pid_t pid;

	need_file(&file);
	vram = heap_used(&file, VRAM);
	system = heap_used(&file, SYSTEM);
	begin(&e);
	CHECK_OK(nbo_create(&e.file, &bo, VRAM, 8 * HUGE, 0));
	CHECK_OK(bind_one(&e.file, AT, bo.size, bo.handle, 0));
	CHECK(heap_used(&file, VRAM) >= vram + 8 * HUGE);
	/* All at once: queue, ranges, buffers; the mappings go first, for they hold the file. */
	CHECK_EQ(munmap(e.q.doorbells, e.file.device.doorbell_bytes), 0);
	CHECK_EQ(munmap(e.q.memory.cpu, e.q.memory.size), 0);
	CHECK_EQ(munmap(e.out.cpu, e.out.size), 0);
	close_file(&e.file);
	await_used(&file, VRAM, vram);
	await_used(&file, SYSTEM, system);
	pid = start_child(with_everything);
	CHECK(heap_used(&file, VRAM) >= vram + 8 * HUGE);
	kill_child(pid);
	await_used(&file, VRAM, vram);
	await_used(&file, SYSTEM, system);
	close_file(&file);
}
