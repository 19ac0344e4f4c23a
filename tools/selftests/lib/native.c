// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Open files, buffers, ranges and queues by the native interface. */
#include "native.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_MINOR 128
#define RING_BYTES 0x10000u

int native(int fd, unsigned long request, void *args)
{
	return ioctl(fd, request, args) ? errno : 0;
}

static int query_device(int fd, struct drm_rkfd_device *device)
{
	struct drm_rkfd_query query = { .what = DRM_RKFD_QUERY_DEVICE, .data = (uintptr_t)device, .size = sizeof(*device) };

	return native(fd, DRM_IOCTL_RKFD_QUERY, &query);
}

/* Whether a render node has the native interface, which it opens. */
static bool open_node(struct nfile *file)
{
	for (int minor = FIRST_MINOR; minor < FIRST_MINOR + MAX_GPUS; minor++) {
		char path[64];

		snprintf(path, sizeof(path), "/dev/dri/renderD%d", minor);
		file->fd = open(path, O_RDWR | O_CLOEXEC);
		if (file->fd < 0)
			continue;
		if (!query_device(file->fd, &file->device))
			return true;
		close(file->fd);
	}
	return false;
}

void need_file(struct nfile *file)
{
	if (!open_node(file))
		LACKING("no render node with the native interface");
}

bool has_node(void)
{
	struct nfile file;
	bool found = open_node(&file);

	if (found)
		close_file(&file);
	return found;
}

void close_file(struct nfile *file)
{
	CHECK_EQ(close(file->fd), 0);
	file->fd = -1;
}

int nbo_create(const struct nfile *file, struct nbo *bo, uint32_t heap, uint64_t size, uint32_t flags)
{
	struct drm_rkfd_bo_create args = { .size = size, .heap = heap, .flags = flags };
	int err = native(file->fd, DRM_IOCTL_RKFD_BO_CREATE, &args);

	*bo = (struct nbo){ .handle = args.handle, .size = args.size, .mmap_offset = args.mmap_offset };
	return err;
}

void need_nbo(const struct nfile *file, struct nbo *bo, uint32_t heap, uint64_t size)
{
	CHECK_OK(nbo_create(file, bo, heap, size, DRM_RKFD_BO_CPU_ACCESS | DRM_RKFD_BO_UNCACHED));
	bo->cpu = mmap(NULL, bo->size, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, (off_t)bo->mmap_offset);
	if (bo->cpu == MAP_FAILED)
		FAIL("mmap of a buffer: %s", strerror(errno));
}

int nbo_close(const struct nfile *file, uint32_t handle)
{
	struct drm_gem_close args = { .handle = handle };

	return native(file->fd, DRM_IOCTL_GEM_CLOSE, &args);
}

void drop_nbo(const struct nfile *file, struct nbo *bo)
{
	if (bo->cpu)
		CHECK_EQ(munmap(bo->cpu, bo->size), 0);
	CHECK_OK(nbo_close(file, bo->handle));
	bo->cpu = NULL;
}

int nbo_info(const struct nfile *file, uint32_t handle, struct drm_rkfd_bo_info *info)
{
	*info = (struct drm_rkfd_bo_info){ .handle = handle };
	return native(file->fd, DRM_IOCTL_RKFD_BO_INFO, info);
}

uint64_t ranges_of(const struct nfile *file, const struct nbo *bo)
{
	struct drm_rkfd_bo_info info;

	CHECK_OK(nbo_info(file, bo->handle, &info));
	return info.ranges;
}

int bind_list(const struct nfile *file, const struct drm_rkfd_bind_op *ops, uint32_t count, uint32_t *failed)
{
	struct drm_rkfd_bind args = { .ops = (uintptr_t)ops, .count = count, .stride = sizeof(*ops) };
	int err = native(file->fd, DRM_IOCTL_RKFD_BIND, &args);

	if (failed)
		*failed = args.failed;
	return err;
}

struct drm_rkfd_bind_op map_op(uint64_t va, uint64_t length, uint32_t handle, uint64_t offset)
{
	return (struct drm_rkfd_bind_op){
		.op = DRM_RKFD_BIND_MAP, .flags = RW, .address = va, .length = length, .offset = offset, .handle = handle,
	};
}

struct drm_rkfd_bind_op unmap_op(uint64_t va, uint64_t length)
{
	return (struct drm_rkfd_bind_op){ .op = DRM_RKFD_BIND_UNMAP, .address = va, .length = length };
}

int bind_one(const struct nfile *file, uint64_t va, uint64_t length, uint32_t handle, uint64_t offset)
{
	struct drm_rkfd_bind_op op = map_op(va, length, handle, offset);

	return bind_list(file, &op, 1, NULL);
}

int unbind_one(const struct nfile *file, uint64_t va, uint64_t length)
{
	struct drm_rkfd_bind_op op = unmap_op(va, length);

	return bind_list(file, &op, 1, NULL);
}

void nqueue_prepare(const struct nfile *file, struct nqueue *q, uint32_t type, uint64_t va)
{
	const struct drm_rkfd_device *device = &file->device;
	bool compute = type != DRM_RKFD_QUEUE_SDMA;
	uint64_t pointers = RING_BYTES, eop = pointers + PAGE, save = eop + PAGE;
	uint64_t size = compute ? save + (uint64_t)(device->save_bytes + device->debug_bytes) * device->xccs : eop;
	/* Where the pointers of an AQL queue lie relative to each other is laid down in amd_queue_t. */
	uint64_t wptr = type == DRM_RKFD_QUEUE_AQL ? 0x38 : 8, rptr = type == DRM_RKFD_QUEUE_AQL ? 0x80 : 16;

	memset(q, 0, sizeof(*q));
	need_nbo(file, &q->memory, SYSTEM, page_align(size));
	q->va = va;
	CHECK_OK(bind_one(file, va, q->memory.size, q->memory.handle, 0));
	q->ring = (uint32_t *)q->memory.cpu;
	q->wptr = (volatile uint64_t *)(q->memory.cpu + pointers + wptr);
	q->rptr = (volatile uint64_t *)(q->memory.cpu + pointers + rptr);
	q->args = (struct drm_rkfd_queue_create){
		.type = type,
		.ring = va,
		.ring_size = RING_BYTES,
		.write_pointer = va + pointers + wptr,
		.read_pointer = va + pointers + rptr,
		.percentage = 100,
		.priority = 7,
		.engine = compute ? 0 : DRM_RKFD_ENGINE_ANY,
	};
	if (type == DRM_RKFD_QUEUE_AQL)
		for (uint32_t at = 0; at < RING_BYTES; at += 64)
			q->ring[at / 4] = 1; /* INVALID */
	if (compute) {
		q->args.eop = va + eop;
		q->args.eop_size = device->eop_bytes;
		q->args.save = va + save;
		q->args.save_size = device->save_bytes;
		q->args.ctl_stack_size = device->ctl_stack_bytes;
		((uint32_t *)(q->memory.cpu + save))[4] = device->save_bytes;
		((uint32_t *)(q->memory.cpu + save))[5] = device->debug_bytes * device->xccs;
	}
}

int nqueue_create(const struct nfile *file, struct nqueue *q)
{
	int err = native(file->fd, DRM_IOCTL_RKFD_QUEUE_CREATE, &q->args);

	if (err)
		return err;
	q->doorbells = mmap(NULL, file->device.doorbell_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd,
			    (off_t)q->args.doorbell_map);
	if (q->doorbells == MAP_FAILED)
		FAIL("mmap of the doorbells: %s", strerror(errno));
	q->doorbell = (volatile uint64_t *)((char *)q->doorbells + q->args.doorbell);
	return 0;
}

void need_nqueue(const struct nfile *file, struct nqueue *q, uint32_t type, uint64_t va)
{
	nqueue_prepare(file, q, type, va);
	CHECK_OK(nqueue_create(file, q));
}

int nqueue_destroy(const struct nfile *file, uint32_t id)
{
	struct drm_rkfd_queue_destroy args = { .id = id };

	return native(file->fd, DRM_IOCTL_RKFD_QUEUE_DESTROY, &args);
}

void drop_nqueue(const struct nfile *file, struct nqueue *q)
{
	CHECK_OK(nqueue_destroy(file, q->args.id));
	CHECK_EQ(munmap(q->doorbells, file->device.doorbell_bytes), 0);
	CHECK_OK(unbind_one(file, q->va, q->memory.size));
	drop_nbo(file, &q->memory);
}

static void ring(struct nqueue *q, uint64_t value)
{
	/* Packets and pointer first. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*q->doorbell = value;
}

void nsubmit(struct nqueue *q, const struct packets *p)
{
	uint64_t unit = q->args.type == DRM_RKFD_QUEUE_SDMA ? 1 : 4;
	uint64_t words = q->args.ring_size / 4, at = q->written * unit / 4;

	for (unsigned int i = 0; i < p->n; i++)
		q->ring[(at + i) % words] = p->dw[i];
	q->written += p->n * 4 / unit;
	__atomic_store_n(q->wptr, q->written, __ATOMIC_RELEASE);
	ring(q, q->written);
}

void nsubmit_barrier(struct nqueue *q, uint64_t completion)
{
	uint64_t index = q->written++;
	uint32_t *slot = q->ring + index % (q->args.ring_size / 64) * 16;

	memset(slot + 1, 0, 60);
	memcpy(slot + 14, &completion, sizeof(completion));
	__atomic_store_n(q->wptr, q->written, __ATOMIC_RELEASE);
	/* BARRIER_AND with the barrier bit, acquire and release at system scope. */
	__atomic_store_n(slot, 3 | 1 << 8 | 2 << 9 | 2 << 11, __ATOMIC_RELEASE);
	ring(q, index);
}

static struct drm_rkfd_heap heap_of(const struct nfile *file, uint32_t heap)
{
	struct drm_rkfd_heap heaps[4];
	struct drm_rkfd_query query = { .what = DRM_RKFD_QUERY_HEAPS, .data = (uintptr_t)heaps, .size = sizeof(heaps) };

	CHECK_OK(native(file->fd, DRM_IOCTL_RKFD_QUERY, &query));
	for (unsigned int i = 0; i < query.size / sizeof(heaps[0]) && i < 4; i++)
		if (heaps[i].heap == heap)
			return heaps[i];
	FAIL("no heap %u", heap);
}

uint64_t heap_used(const struct nfile *file, uint32_t heap)
{
	return heap_of(file, heap).used;
}

uint64_t heap_total(const struct nfile *file, uint32_t heap)
{
	return heap_of(file, heap).total;
}
