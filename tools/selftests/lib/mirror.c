// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "mirror.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(struct drm_rkfd_mirror_create) == 40, "mirror_create");
_Static_assert(sizeof(struct drm_rkfd_mirror_destroy) == 8, "mirror_destroy");
_Static_assert(sizeof(struct drm_rkfd_mirror_query) == 80, "mirror_query");
_Static_assert(sizeof(struct drm_rkfd_mirror_populate) == 24, "mirror_populate");

void engine_open(struct engine *e)
{
	need_file(&e->file);
	engine_prepare(e);
}

void engine_prepare(struct engine *e)
{
	struct drm_rkfd_event_create event = { .condition = DRM_RKFD_EVENT_FAULT };

	need_nbo(&e->file, &e->out, SYSTEM, 16 * PAGE);
	CHECK_OK(bind_one(&e->file, OUT_AT, e->out.size, e->out.handle, 0));
	e->fence = 0;
	e->fault = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	CHECK(e->fault >= 0);
	event.eventfd = e->fault;
	CHECK_OK(native(e->file.fd, DRM_IOCTL_RKFD_EVENT_CREATE, &event));
}

void engine_start(struct engine *e, uint64_t queue_at)
{
	need_nqueue(&e->file, &e->q, DRM_RKFD_QUEUE_SDMA, queue_at);
}

void engine_begin(struct engine *e)
{
	engine_open(e);
	engine_start(e, QUEUE_AT);
}

void engine_end(struct engine *e)
{
	CHECK_EQ(new_faults(e, NULL), 0);
	drop_nqueue(&e->file, &e->q);
	CHECK_OK(unbind_one(&e->file, OUT_AT, e->out.size));
	drop_nbo(&e->file, &e->out);
	close(e->fault);
	close_file(&e->file);
}

void engine_leave(struct engine *e)
{
	CHECK_EQ(munmap(e->q.doorbells, e->file.device.doorbell_bytes), 0);
	CHECK_EQ(munmap(e->q.memory.cpu, e->q.memory.size), 0);
	CHECK_EQ(munmap(e->out.cpu, e->out.size), 0);
	close(e->fault);
	close_file(&e->file);
}

volatile uint32_t *out32(const struct engine *e, uint64_t offset)
{
	return (volatile uint32_t *)(e->out.cpu + offset);
}

void engine_run(struct engine *e, struct packets *p)
{
	sdma_fence(p, OUT_AT + PAGE - 4, ++e->fence);
	nsubmit(&e->q, p);
	await32(out32(e, PAGE - 4), e->fence, "the fence");
}

uint32_t gpu_read(struct engine *e, uint64_t va)
{
	struct packets p = { .n = 0 };

	*out32(e, 0) = 0xdeadbeef;
	sdma_copy(&p, va, OUT_AT, 4);
	engine_run(e, &p);
	return *out32(e, 0);
}

void gpu_write(struct engine *e, uint64_t va, uint32_t value)
{
	struct packets p = { .n = 0 };

	sdma_write(&p, va, &value, 1);
	engine_run(e, &p);
}

void gpu_sees(struct engine *e, uint64_t va, unsigned int pages, uint32_t seed)
{
	for (unsigned int first = 0; first < pages; first += 256) {
		struct packets p = { .n = 0 };
		unsigned int count = pages - first < 256 ? pages - first : 256;

		for (unsigned int i = 0; i < count; i++)
			sdma_copy(&p, va + (first + i) * PAGE, OUT_AT + 4 * i, 4);
		engine_run(e, &p);
		for (unsigned int i = 0; i < count; i++)
			CHECK_EQ(*out32(e, 4 * i), seed + first + i);
	}
}

uint32_t new_faults(const struct engine *e, struct drm_rkfd_fault *first)
{
	struct drm_rkfd_fault records[64];
	struct drm_rkfd_faults args = { .records = (uintptr_t)records, .count = 64, .stride = sizeof(*records) };

	CHECK_OK(native(e->file.fd, DRM_IOCTL_RKFD_FAULTS, &args));
	if (args.count && first)
		*first = records[0];
	return args.count;
}

struct drm_rkfd_fault await_fault(const struct engine *e)
{
	struct pollfd wait = { .fd = e->fault, .events = POLLIN };
	struct drm_rkfd_fault fault = { 0 };

	CHECK_EQ(poll(&wait, 1, (int)tap_ms(20000)), 1);
	CHECK(new_faults(e, &fault) >= 1);
	return fault;
}

void must_fault(struct engine *e, uint64_t va, bool write, uint32_t access)
{
	struct packets p = { .n = 0 };
	struct drm_rkfd_fault fault;
	uint32_t value = 0xbad;

	CHECK_EQ(new_faults(e, NULL), 0);
	if (write)
		sdma_write(&p, va, &value, 1);
	else
		sdma_copy(&p, va, OUT_AT, 4);
	nsubmit(&e->q, &p);
	fault = await_fault(e);
	CHECK_EQ(fault.address, va & ~(PAGE - 1));
	CHECK_EQ(fault.access, access);
}

int mirror_create(const struct nfile *file, void *cpu, uint64_t va, uint64_t length, uint32_t flags,
		  struct drm_rkfd_mirror_create *args)
{
	*args = (struct drm_rkfd_mirror_create){
		.address = (uintptr_t)cpu,
		.gpu_address = va,
		.length = length,
		.flags = flags & (POPULATED | FAULT) ? flags : flags | POPULATED,
	};
	return native(file->fd, DRM_IOCTL_RKFD_MIRROR_CREATE, args);
}

uint32_t need_mirror(const struct nfile *file, void *cpu, uint64_t va, uint64_t length, uint32_t flags)
{
	struct drm_rkfd_mirror_create args;

	CHECK_OK(mirror_create(file, cpu, va, length, flags, &args));
	CHECK(args.id != 0);
	return args.id;
}

int mirror_destroy(const struct nfile *file, uint32_t id)
{
	struct drm_rkfd_mirror_destroy args = { .id = id };

	return native(file->fd, DRM_IOCTL_RKFD_MIRROR_DESTROY, &args);
}

int mirror_populate(const struct nfile *file, uint32_t id, uint64_t va, uint64_t length)
{
	struct drm_rkfd_mirror_populate args = { .id = id, .gpu_address = va, .length = length };

	return native(file->fd, DRM_IOCTL_RKFD_MIRROR_POPULATE, &args);
}

struct drm_rkfd_mirror_query mirror_query(const struct nfile *file, uint32_t id)
{
	struct drm_rkfd_mirror_query args = { .id = id };

	CHECK_OK(native(file->fd, DRM_IOCTL_RKFD_MIRROR_QUERY, &args));
	return args;
}

uint8_t *need_memory_at(void *at, uint64_t size, int flags)
{
	void *p = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

uint8_t *need_memory(uint64_t size)
{
	return need_memory_at(NULL, size, 0);
}

uint8_t *need_aligned(uint64_t size)
{
	uint8_t *p = need_memory(size + 2 * HUGE);

	return (uint8_t *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
}

volatile uint32_t *word(uint8_t *p, uint64_t offset)
{
	return (volatile uint32_t *)(p + offset);
}

void fill(uint8_t *p, unsigned int pages, uint32_t seed)
{
	for (unsigned int i = 0; i < pages; i++)
		*word(p, i * PAGE) = seed + i;
}
