// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "kfd.h"

#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS tap_ms(30000)

#define TOPOLOGY "/sys/devices/virtual/kfd/kfd/topology"

int kfd_call(int fd, unsigned long command, void *args)
{
	return ioctl(fd, command, args) ? errno : 0;
}

int need_kfd(void)
{
	int fd = open("/dev/kfd", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		LACKING("/dev/kfd: %s", strerror(errno));
	return fd;
}

unsigned int gpu_ids(int fd, uint32_t *ids, unsigned int max)
{
	struct kfd_process_device_apertures list[MAX_GPUS];
	struct kfd_ioctl_get_process_apertures_new_args args = { 0 };

	CHECK_OK(kfd_call(fd, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, &args));
	if (!args.num_of_nodes)
		return 0;
	if (args.num_of_nodes > MAX_GPUS)
		FAIL("%u GPUs; these tests are made for %d", args.num_of_nodes, MAX_GPUS);
	args.kfd_process_device_apertures_ptr = (uintptr_t)list;
	CHECK_OK(kfd_call(fd, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, &args));
	for (unsigned int i = 0; i < args.num_of_nodes && i < max; i++)
		ids[i] = list[i].gpu_id;
	return args.num_of_nodes;
}

static bool read_number(const char *path, uint64_t *value)
{
	FILE *f = fopen(path, "re");
	unsigned long long v;
	bool ok;

	if (!f)
		return false;
	ok = fscanf(f, "%llu", &v) == 1;
	fclose(f);
	if (ok)
		*value = v;
	return ok;
}

static bool read_key(const char *path, const char *key, uint64_t *value)
{
	FILE *f = fopen(path, "re");
	char line[512];
	bool ok = false;

	if (!f)
		return false;
	while (!ok && fgets(line, sizeof(line), f)) {
		size_t n = strlen(key);

		if (!strncmp(line, key, n) && line[n] == ' ') {
			*value = strtoull(line + n + 1, NULL, 10);
			ok = true;
		}
	}
	fclose(f);
	return ok;
}

static int node_of(uint32_t gpu_id)
{
	for (int n = 0; n < 64; n++) {
		char path[256];
		uint64_t id;

		snprintf(path, sizeof(path), TOPOLOGY "/nodes/%d/gpu_id", n);
		if (read_number(path, &id) && id == gpu_id)
			return n;
	}
	return -1;
}

bool topology_value(uint32_t gpu_id, const char *file, const char *key, uint64_t *value)
{
	int node = node_of(gpu_id);
	char path[256];

	if (node < 0)
		return false;
	snprintf(path, sizeof(path), TOPOLOGY "/nodes/%d/%s", node, file);
	return read_key(path, key, value);
}

static uint64_t page_align(uint64_t n)
{
	return (n + PAGE - 1) & ~(PAGE - 1);
}

/* Sizes of the context save area: the kernel's figures, else its formula on what is known of the GPU. */
static void save_sizes(struct gpu *gpu, uint64_t cus, uint64_t engines)
{
	uint64_t vgpr = gpu->gfx == 90402 || gpu->gfx == 90010 || gpu->gfx == 90008 ? 0x80000 : 0x40000;
	uint64_t waves = cus * 40 < engines * 512 ? cus * 40 : engines * 512;
	uint64_t ctl = page_align(40 + waves * 8 + 8);
	uint64_t debug = (waves * 32 + 63) & ~63ull;

	if (!gpu->ctl_stack_size || !gpu->cwsr_size) {
		gpu->ctl_stack_size = ctl;
		gpu->cwsr_size = ctl + page_align(cus * (vgpr + 0x4000 + 0x10000 + 0x1000));
	}
	gpu->save_total = page_align(gpu->cwsr_size + debug);
}

static uint32_t property(const struct gpu *gpu, const char *key)
{
	uint64_t v = 0;

	topology_value(gpu->id, "properties", key, &v);
	return v;
}

static void by_pci_device(struct gpu *gpu)
{
	glob_t found;

	if (glob("/sys/class/drm/renderD*/device/device", 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		FILE *f = fopen(found.gl_pathv[i], "re");
		unsigned int device = 0;

		if (f && fscanf(f, "%x", &device) == 1) {
			if (device == 0x740f) {
				gpu->gfx = 90010;
				save_sizes(gpu, 104, 8);
			} else if (device == 0x66a1) {
				gpu->gfx = 90006;
				save_sizes(gpu, 60, 4);
			} else if (device == 0x74a1) {
				gpu->gfx = 90402;
				save_sizes(gpu, 38, 4);
			}
		}
		if (f)
			fclose(f);
	}
	globfree(&found);
}

static void describe(struct gpu *gpu)
{
	uint64_t simds, per_cu, arrays, per_engine, xccs;

	if (node_of(gpu->id) < 0) {
		by_pci_device(gpu);
		return;
	}
	gpu->gfx = property(gpu, "gfx_target_version");
	gpu->render_minor = property(gpu, "drm_render_minor");
	gpu->ctl_stack_size = property(gpu, "ctl_stack_size");
	gpu->cwsr_size = property(gpu, "cwsr_size");
	gpu->sdma_engines = property(gpu, "num_sdma_engines");
	gpu->sdma_queues_per_engine = property(gpu, "num_sdma_queues_per_engine");
	gpu->cp_queues = property(gpu, "num_cp_queues");
	topology_value(gpu->id, "mem_banks/0/properties", "size_in_bytes", &gpu->vram);
	simds = property(gpu, "simd_count");
	per_cu = property(gpu, "simd_per_cu");
	arrays = property(gpu, "array_count");
	per_engine = property(gpu, "simd_arrays_per_engine");
	xccs = property(gpu, "num_xcc");
	if (xccs > 1)
		SKIP("a GPU of several XCCs, whose save area these tests do not lay out");
	if (per_cu && per_engine)
		save_sizes(gpu, simds / per_cu, arrays / per_engine);
}

static void describe_gpu(struct gpu *gpu, int index, int fd)
{
	struct kfd_process_device_apertures list[MAX_GPUS];
	struct kfd_ioctl_get_process_apertures_new_args args = {
		.kfd_process_device_apertures_ptr = (uintptr_t)list,
	};
	uint32_t ids[MAX_GPUS];
	unsigned int n = gpu_ids(fd, ids, MAX_GPUS);

	if (!n)
		LACKING("no GPU");
	if ((unsigned int)index >= n)
		SKIP("needs %d GPUs, there are %u", index + 1, n);
	args.num_of_nodes = n;
	CHECK_OK(kfd_call(fd, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, &args));
	*gpu = (struct gpu){ .fd = fd, .drm = -1, .id = ids[index], .index = index, .apertures = list[index] };
	describe(gpu);
}

void need_gpu(struct gpu *gpu, int index)
{
	describe_gpu(gpu, index, need_kfd());
}

int acquire_vm(const struct gpu *gpu, int drm)
{
	struct kfd_ioctl_acquire_vm_args args = { .drm_fd = drm, .gpu_id = gpu->id };

	return kfd_call(gpu->fd, AMDKFD_IOC_ACQUIRE_VM, &args);
}

int need_render(const struct gpu *gpu)
{
	char path[64];
	int fd;

	if (gpu->render_minor) {
		snprintf(path, sizeof(path), "/dev/dri/renderD%u", gpu->render_minor);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			FAIL("%s: %s", path, strerror(errno));
		return fd;
	}
	/* Without a topology the render nodes are in the order of the GPUs. */
	for (int minor = 128, seen = 0; minor < 256; minor++) {
		snprintf(path, sizeof(path), "/dev/dri/renderD%d", minor);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (seen++ == gpu->index)
			return fd;
		close(fd);
	}
	FAIL("no render node for GPU %d", gpu->index);
}

static void bind_gpu(struct gpu *gpu)
{
	gpu->drm = need_render(gpu);
	CHECK_OK(acquire_vm(gpu, gpu->drm));
}

void need_vm(struct gpu *gpu, int index)
{
	need_gpu(gpu, index);
	bind_gpu(gpu);
}

void need_vm_of(struct gpu *gpu, int index, int fd)
{
	describe_gpu(gpu, index, fd);
	bind_gpu(gpu);
}

uint64_t available(const struct gpu *gpu)
{
	struct kfd_ioctl_get_available_memory_args args = { .gpu_id = gpu->id };

	CHECK_OK(kfd_call(gpu->fd, AMDKFD_IOC_AVAILABLE_MEMORY, &args));
	return args.available;
}

uint64_t available_settled(const struct gpu *gpu)
{
	uint64_t end = now_ms() + PATIENCE_MS, since = now_ms(), seen = available(gpu);

	while (now_ms() < since + tap_ms(200)) {
		uint64_t now = available(gpu);

		if (now != seen) {
			seen = now;
			since = now_ms();
		}
		if (now_ms() > end)
			FAIL("other processes allocate VRAM meanwhile");
		usleep(5000);
	}
	return seen;
}

void await_available(const struct gpu *gpu, uint64_t bytes)
{
	uint64_t end = now_ms() + PATIENCE_MS, now;

	while ((now = available(gpu)) < bytes) {
		if (now_ms() > end)
			FAIL("%llu bytes of VRAM are missing", (unsigned long long)(bytes - now));
		usleep(1000);
	}
}

uint64_t need_address(uint64_t size, uint64_t align)
{
	uint64_t whole = size + align;
	char *p = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t start, at;

	if (p == MAP_FAILED)
		FAIL("cannot reserve %#llx bytes: %s", (unsigned long long)whole, strerror(errno));
	start = (uintptr_t)p;
	at = (start + align - 1) & ~(align - 1);
	if (at > start)
		munmap(p, at - start);
	if (start + whole > at + size)
		munmap((void *)(at + size), start + whole - at - size);
	return at;
}

int bo_alloc(const struct gpu *gpu, struct bo *bo, uint32_t flags, uint64_t size)
{
	struct kfd_ioctl_alloc_memory_of_gpu_args args = { .size = size, .gpu_id = gpu->id, .flags = flags };
	int prot = PROT_READ | PROT_WRITE, err;

	*bo = (struct bo){ .size = size, .flags = flags };
	if (flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR) {
		void *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return errno;
		madvise(p, size, MADV_DONTFORK);
		bo->va = (uintptr_t)p;
		args.mmap_offset = bo->va;
	} else {
		bo->va = need_address(page_align(size), size >= 2 << 20 ? 2 << 20 : PAGE);
	}
	args.va_addr = bo->va;
	err = kfd_call(gpu->fd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &args);
	if (err) {
		munmap((void *)bo->va, size);
		return err;
	}
	bo->handle = args.handle;
	bo->mmap_offset = args.mmap_offset;
	if (flags & (KFD_IOC_ALLOC_MEM_FLAGS_GTT | KFD_IOC_ALLOC_MEM_FLAGS_VRAM)) {
		if (flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM && !(flags & KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC))
			prot = PROT_NONE;
		if (mmap((void *)bo->va, size, prot, MAP_SHARED | MAP_FIXED, gpu->drm, bo->mmap_offset) ==
		    MAP_FAILED)
			FAIL("mmap of a buffer (flags %#x, %#llx bytes): %s", flags, (unsigned long long)size,
			     strerror(errno));
		madvise((void *)bo->va, size, MADV_DONTFORK);
	}
	return 0;
}

int bo_map(const struct gpu *gpu, const struct bo *bo)
{
	uint32_t id = gpu->id;
	struct kfd_ioctl_map_memory_to_gpu_args args = {
		.handle = bo->handle,
		.device_ids_array_ptr = (uintptr_t)&id,
		.n_devices = 1,
	};
	int err = kfd_call(gpu->fd, AMDKFD_IOC_MAP_MEMORY_TO_GPU, &args);

	if (!err)
		CHECK_EQ(args.n_success, 1);
	return err;
}

int bo_unmap(const struct gpu *gpu, const struct bo *bo)
{
	uint32_t id = gpu->id;
	struct kfd_ioctl_unmap_memory_from_gpu_args args = {
		.handle = bo->handle,
		.device_ids_array_ptr = (uintptr_t)&id,
		.n_devices = 1,
	};
	int err = kfd_call(gpu->fd, AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, &args);

	if (!err)
		CHECK_EQ(args.n_success, 1);
	return err;
}

int bo_free(const struct gpu *gpu, const struct bo *bo)
{
	struct kfd_ioctl_free_memory_of_gpu_args args = { .handle = bo->handle };

	return kfd_call(gpu->fd, AMDKFD_IOC_FREE_MEMORY_OF_GPU, &args);
}

void need_bo(const struct gpu *gpu, struct bo *bo, uint32_t flags, uint64_t size)
{
	CHECK_OK(bo_alloc(gpu, bo, flags, size));
	CHECK_OK(bo_map(gpu, bo));
}

void drop_bo(const struct gpu *gpu, struct bo *bo)
{
	CHECK_OK(bo_unmap(gpu, bo));
	CHECK_OK(bo_free(gpu, bo));
	munmap((void *)bo->va, bo->size);
	bo->va = 0;
}

/* Where the pointers lie in their page: as in the thunk's queue structure and, for AQL, in amd_queue_t. */
static void pointer_offsets(uint32_t type, uint64_t *wptr, uint64_t *rptr)
{
	*wptr = type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL ? 0x38 : 8;
	*rptr = type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL ? 0x80 : 16;
}

void queue_prepare(const struct gpu *gpu, struct queue *q, uint32_t type, uint32_t ring_bytes)
{
	bool compute = type == KFD_IOC_QUEUE_TYPE_COMPUTE || type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL;
	uint64_t wptr, rptr;

	memset(q, 0, sizeof(*q));
	need_bo(gpu, &q->ring, FLAGS_USERPTR, ring_bytes);
	need_bo(gpu, &q->pointers, FLAGS_GTT, PAGE);
	pointer_offsets(type, &wptr, &rptr);
	q->wptr = bo64(&q->pointers, wptr);
	q->rptr = bo64(&q->pointers, rptr);
	q->args = (struct kfd_ioctl_create_queue_args){
		.ring_base_address = q->ring.va,
		.write_pointer_address = q->pointers.va + wptr,
		.read_pointer_address = q->pointers.va + rptr,
		.ring_size = ring_bytes,
		.gpu_id = gpu->id,
		.queue_type = type,
		.queue_percentage = 100,
		.queue_priority = 7,
	};
	if (type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)
		for (uint64_t at = 0; at < ring_bytes; at += 64)
			*bo32(&q->ring, at) = 1; /* INVALID */
	if (compute) {
		if (!gpu->save_total)
			SKIP("the size of the save area is not known for this GPU");
		need_bo(gpu, &q->eop, FLAGS_VRAM_PRIVATE, PAGE);
		need_bo(gpu, &q->save, FLAGS_USERPTR, gpu->save_total);
		*bo32(&q->save, 16) = gpu->cwsr_size;
		*bo32(&q->save, 20) = gpu->save_total - gpu->cwsr_size;
		q->args.eop_buffer_address = q->eop.va;
		q->args.eop_buffer_size = PAGE;
		q->args.ctx_save_restore_address = q->save.va;
		q->args.ctx_save_restore_size = gpu->cwsr_size;
		q->args.ctl_stack_size = gpu->ctl_stack_size;
	}
}

bool takes_turns(void)
{
	const char *policy = getenv("KFD_SCHED_POLICY");

	return !policy || !strcmp(policy, "0");
}

bool scheduled_by_driver(void)
{
	const char *policy = getenv("KFD_SCHED_POLICY");

	return policy && !strcmp(policy, "2");
}

int queue_create(const struct gpu *gpu, struct queue *q)
{
	uint64_t offset;
	int err = kfd_call(gpu->fd, AMDKFD_IOC_CREATE_QUEUE, &q->args);

	if (err)
		return err;
	offset = q->args.doorbell_offset;
	q->slice = mmap(NULL, DOORBELL_SLICE, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd,
			(off_t)(offset & ~(DOORBELL_SLICE - 1)));
	if (q->slice == MAP_FAILED)
		FAIL("mmap of the doorbells at %#llx: %s", (unsigned long long)offset, strerror(errno));
	q->doorbell = (volatile uint64_t *)((char *)q->slice + (offset & (DOORBELL_SLICE - 1)));
	return 0;
}

void need_queue(const struct gpu *gpu, struct queue *q, uint32_t type)
{
	queue_prepare(gpu, q, type, type == KFD_IOC_QUEUE_TYPE_SDMA ? 0x10000 : 0x1000);
	CHECK_OK(queue_create(gpu, q));
}

void await_queue(const struct gpu *gpu, struct queue *q, uint32_t type)
{
	uint64_t end = now_ms() + PATIENCE_MS;
	int err;

	queue_prepare(gpu, q, type, type == KFD_IOC_QUEUE_TYPE_SDMA ? 0x10000 : 0x1000);
	while ((err = queue_create(gpu, q)) == ENOSPC && !takes_turns() && now_ms() < end)
		usleep(10000);
	CHECK_EQ(err, 0);
}

int queue_destroy(const struct gpu *gpu, uint32_t id)
{
	struct kfd_ioctl_destroy_queue_args args = { .queue_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_DESTROY_QUEUE, &args);
}

int queue_update(const struct gpu *gpu, const struct queue *q, uint32_t percentage, uint32_t priority)
{
	struct kfd_ioctl_update_queue_args args = {
		.ring_base_address = q->args.ring_base_address,
		.queue_id = q->args.queue_id,
		.ring_size = q->args.ring_size,
		.queue_percentage = percentage,
		.queue_priority = priority,
	};

	return kfd_call(gpu->fd, AMDKFD_IOC_UPDATE_QUEUE, &args);
}

void drop_queue(const struct gpu *gpu, struct queue *q)
{
	CHECK_OK(queue_destroy(gpu, q->args.queue_id));
	munmap(q->slice, DOORBELL_SLICE);
	drop_bo(gpu, &q->ring);
	drop_bo(gpu, &q->pointers);
	if (q->eop.va)
		drop_bo(gpu, &q->eop);
	if (q->save.va)
		drop_bo(gpu, &q->save);
}

static bool is_sdma(const struct queue *q)
{
	return q->args.queue_type == KFD_IOC_QUEUE_TYPE_SDMA ||
	       q->args.queue_type == KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID;
}

void ring_doorbell(const struct queue *q, uint64_t value)
{
	/* Packets and pointer first, also out of write-combined memory. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#ifdef __x86_64__
	__builtin_ia32_sfence();
#endif
	*q->doorbell = value;
}

/*
 * What a queue has not executed is never overwritten. The read pointer of PM4 wraps with the ring, that of SDMA does
 * not; the difference, taken within the ring, is the same for both.
 */
static void await_room(const struct queue *q, uint64_t units)
{
	uint64_t ring = is_sdma(q) ? q->args.ring_size : q->args.ring_size / 4;
	uint64_t end = now_ms() + PATIENCE_MS, used;

	if (units >= ring)
		FAIL("%llu units do not fit into a ring of %llu", (unsigned long long)units, (unsigned long long)ring);
	for (;;) {
		uint64_t rptr = is_sdma(q) ? __atomic_load_n(q->rptr, __ATOMIC_ACQUIRE) :
					     __atomic_load_n((volatile uint32_t *)q->rptr, __ATOMIC_ACQUIRE);

		used = (q->written - rptr) & (ring - 1);
		if (used + units < ring)
			return;
		if (now_ms() > end)
			FAIL("waited %u ms for room for %llu units: read pointer %#llx, written %#llx", PATIENCE_MS,
			     (unsigned long long)units, (unsigned long long)rptr, (unsigned long long)q->written);
		sched_yield();
	}
}

void submit(struct queue *q, const struct packets *p)
{
	uint64_t unit = is_sdma(q) ? 1 : 4;
	uint64_t ring = q->args.ring_size / 4;
	uint64_t at = q->written * unit / 4;

	await_room(q, p->n * 4 / unit);
	for (unsigned int i = 0; i < p->n; i++)
		*bo32(&q->ring, (at + i) % ring * 4) = p->dw[i];
	q->written += p->n * 4 / unit;
	__atomic_store_n(q->wptr, q->written, __ATOMIC_RELEASE);
	ring_doorbell(q, q->written);
}

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

void await64(volatile uint64_t *address, uint64_t value, const char *what)
{
	uint64_t end = now_ms() + PATIENCE_MS;

	while (__atomic_load_n(address, __ATOMIC_ACQUIRE) != value) {
		if (now_ms() > end)
			FAIL("%s: waited %u ms for %#llx, last seen %#llx", what, PATIENCE_MS,
			     (unsigned long long)value, (unsigned long long)*address);
		sched_yield();
	}
}

void await32(volatile uint32_t *address, uint32_t value, const char *what)
{
	uint64_t end = now_ms() + PATIENCE_MS;

	while (__atomic_load_n(address, __ATOMIC_ACQUIRE) != value) {
		if (now_ms() > end)
			FAIL("%s: waited %u ms for %#x, last seen %#x", what, PATIENCE_MS, value, *address);
		sched_yield();
	}
}

void await_drained(const struct queue *q)
{
	if (q->args.queue_type == KFD_IOC_QUEUE_TYPE_COMPUTE)
		await32((volatile uint32_t *)q->rptr, q->written % (q->args.ring_size / 4), "read pointer");
	else
		await64(q->rptr, q->written, "read pointer");
}

int event_create(const struct gpu *gpu, uint32_t type, bool auto_reset, uint64_t page, struct event *ev)
{
	struct kfd_ioctl_create_event_args args = {
		.event_page_offset = page,
		.event_type = type,
		.auto_reset = auto_reset,
	};
	int err = kfd_call(gpu->fd, AMDKFD_IOC_CREATE_EVENT, &args);

	if (!err)
		*ev = (struct event){ .id = args.event_id, .slot = args.event_slot_index };
	return err;
}

void need_event(const struct gpu *gpu, bool auto_reset, struct event *ev)
{
	/* One slot page per process; a case is a process. */
	static struct bo page;
	static pid_t owner;
	bool fresh = owner != getpid();

	if (fresh) {
		need_bo(gpu, &page, FLAGS_GTT, EVENT_PAGE_BYTES);
		owner = getpid();
	}
	CHECK_OK(event_create(gpu, KFD_IOC_EVENT_SIGNAL, auto_reset, fresh ? page.handle : 0, ev));
	ev->slot_va = page.va + 8ull * ev->slot;
}

int event_set(const struct gpu *gpu, uint32_t id)
{
	struct kfd_ioctl_set_event_args args = { .event_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_SET_EVENT, &args);
}

int event_reset(const struct gpu *gpu, uint32_t id)
{
	struct kfd_ioctl_reset_event_args args = { .event_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_RESET_EVENT, &args);
}

int event_destroy(const struct gpu *gpu, uint32_t id)
{
	struct kfd_ioctl_destroy_event_args args = { .event_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_DESTROY_EVENT, &args);
}

int event_wait_data(const struct gpu *gpu, struct kfd_event_data *data, uint32_t n, bool all, uint32_t ms,
		    struct waited *out)
{
	struct kfd_ioctl_wait_events_args args = {
		.events_ptr = (uintptr_t)data,
		.num_events = n,
		.wait_for_all = all,
		.timeout = ms,
		.wait_result = 0xffffffff,
	};
	int err = kfd_call(gpu->fd, AMDKFD_IOC_WAIT_EVENTS, &args);

	*out = (struct waited){ .result = args.wait_result, .timeout_left = args.timeout };
	return err;
}

int event_wait(const struct gpu *gpu, const uint32_t *ids, uint32_t n, bool all, uint32_t ms, struct waited *out)
{
	struct kfd_event_data *data = calloc(n ? n : 1, sizeof(*data));
	int err;

	if (!data)
		FAIL("out of memory");
	for (uint32_t i = 0; i < n; i++)
		data[i].event_id = ids[i];
	do {
		err = event_wait_data(gpu, data, n, all, ms, out);
		ms = out->timeout_left;
	} while (err == EINTR);
	free(data);
	return err;
}

int in_child(void (*run)(void *), void *context)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		FAIL("fork: %s", strerror(errno));
	if (pid == 0) {
		run(context);
		fflush(stdout);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			FAIL("waitpid: %s", strerror(errno));
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void child_gave_up(pid_t pid)
{
	int status = 0;

	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == TAP_STATUS_SKIP)
		SKIP("the child lacks something");
	FAIL("the child ended early (status %#x)", status);
}
