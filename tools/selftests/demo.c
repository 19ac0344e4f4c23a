// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * One dispatch through /dev/kfd, with nothing but the C header: no library, no helper.
 *
 * Binds the first GPU, makes a ring, a pointer page, the buffers that a compute queue needs and a target,
 * creates a queue and an event, maps the doorbell, writes two packets, rings, sleeps on the event, and checks
 * what landed. Each step is one TAP line; a step that fails ends the program.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/kfd_ioctl.h>

#define PAGE 4096ul
#define SLICE 8192ul
#define WRITABLE ((uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE)
#define BASE (WRITABLE | KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE | KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE)
#define GTT                                                                                          \
	(BASE | KFD_IOC_ALLOC_MEM_FLAGS_GTT | KFD_IOC_ALLOC_MEM_FLAGS_COHERENT |                      \
	 KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED)

enum { STEPS = 9, VALUE = 0x600df00d };

static int step;
static int kfd = -1, drm = -1;
static uint32_t gpu;

static void done(const char *what)
{
	printf("ok %d - %s\n", ++step, what);
	fflush(stdout);
}

static void must(int ok, const char *what)
{
	if (ok)
		return;
	printf("# %s\nnot ok %d - %s\n", strerror(errno), ++step, what);
	exit(1);
}

struct buffer {
	uint64_t va, handle;
};

static struct buffer buffer(uint32_t flags, uint64_t size, int prot)
{
	void *va = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct kfd_ioctl_alloc_memory_of_gpu_args alloc = { .size = size, .gpu_id = gpu, .flags = flags };
	struct kfd_ioctl_map_memory_to_gpu_args map = { .device_ids_array_ptr = (uintptr_t)&gpu, .n_devices = 1 };

	must(va != MAP_FAILED, "address space for a buffer");
	alloc.va_addr = (uintptr_t)va;
	must(!ioctl(kfd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &alloc), "ALLOC_MEMORY_OF_GPU");
	must(mmap(va, size, prot, MAP_SHARED | MAP_FIXED, drm, alloc.mmap_offset) != MAP_FAILED,
	     "mmap of a buffer on the render node");
	map.handle = alloc.handle;
	must(!ioctl(kfd, AMDKFD_IOC_MAP_MEMORY_TO_GPU, &map), "MAP_MEMORY_TO_GPU");
	return (struct buffer){ alloc.va_addr, alloc.handle };
}

/* A number from the GPU's topology node: what the sizes of the save area hang on. */
static uint64_t property(const char *key)
{
	for (int node = 0; node < 64; node++) {
		char path[128], name[64];
		unsigned long long v;
		uint32_t id = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/sys/devices/virtual/kfd/kfd/topology/nodes/%d/gpu_id", node);
		f = fopen(path, "r");
		if (!f)
			break;
		if (fscanf(f, "%u", &id) != 1)
			id = 0;
		fclose(f);
		if (id != gpu)
			continue;
		snprintf(path, sizeof(path), "/sys/devices/virtual/kfd/kfd/topology/nodes/%d/properties", node);
		f = fopen(path, "r");
		while (f && fscanf(f, "%63s %llu", name, &v) == 2)
			if (!strcmp(name, key)) {
				fclose(f);
				return v;
			}
		if (f)
			fclose(f);
	}
	printf("# the topology does not know %s of the GPU\n", key);
	errno = ENOENT;
	must(0, "topology");
	return 0;
}

static void open_all(void)
{
	struct kfd_process_device_apertures list[16];
	struct kfd_ioctl_get_process_apertures_new_args apertures = {
		.kfd_process_device_apertures_ptr = (uintptr_t)list,
	};
	struct kfd_ioctl_get_version_args version;
	struct kfd_ioctl_acquire_vm_args acquire;
	char path[64];

	kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
	if (kfd < 0 && errno == ENOENT) {
		printf("1..0 # SKIP no /dev/kfd\n");
		exit(0);
	}
	must(kfd >= 0, "open /dev/kfd");
	must(!ioctl(kfd, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, &apertures), "count the GPUs");
	if (!apertures.num_of_nodes) {
		printf("1..0 # SKIP no GPU\n");
		exit(0);
	}
	printf("1..%d\n", STEPS);
	must(!ioctl(kfd, AMDKFD_IOC_GET_VERSION, &version) && version.major_version == 1, "interface version 1");
	done("open /dev/kfd, interface version 1");

	if (apertures.num_of_nodes > 16)
		apertures.num_of_nodes = 16;
	must(!ioctl(kfd, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, &apertures) && list[0].gpu_id, "find a GPU");
	gpu = list[0].gpu_id;
	printf("# GPU %#x of %u, interface %u.%u\n", gpu, apertures.num_of_nodes, version.major_version,
	       version.minor_version);
	done("find a GPU");

	snprintf(path, sizeof(path), "/dev/dri/renderD%llu", (unsigned long long)property("drm_render_minor"));
	drm = open(path, O_RDWR | O_CLOEXEC);
	must(drm >= 0, "open the render node");
	acquire = (struct kfd_ioctl_acquire_vm_args){ .drm_fd = drm, .gpu_id = gpu };
	must(!ioctl(kfd, AMDKFD_IOC_ACQUIRE_VM, &acquire), "acquire the address space");
	done("acquire the address space");
}

int main(void)
{
	struct kfd_ioctl_create_event_args event = { .event_type = KFD_IOC_EVENT_SIGNAL, .auto_reset = 1 };
	struct kfd_ioctl_create_queue_args args = { 0 };
	struct kfd_ioctl_wait_events_args wait = { .num_events = 1, .wait_for_all = 1, .timeout = 120000 };
	struct kfd_ioctl_destroy_queue_args destroy = { 0 };
	struct kfd_event_data data = { 0 };
	struct buffer ring, pointers, target, slots, eop, save;
	volatile uint64_t *doorbell;
	uint32_t *dw;
	uint64_t slot, debug, waves, cus;
	unsigned int n = 0;
	char *slice;

	printf("TAP version 13\n");
	open_all();

	ring = buffer(GTT, PAGE, PROT_READ | PROT_WRITE);
	pointers = buffer(GTT, PAGE, PROT_READ | PROT_WRITE);
	target = buffer(GTT, PAGE, PROT_READ | PROT_WRITE);
	slots = buffer(GTT, 0x8000, PROT_READ | PROT_WRITE);
	eop = buffer(BASE | KFD_IOC_ALLOC_MEM_FLAGS_VRAM, PAGE, PROT_NONE);
	cus = property("simd_count") / property("simd_per_cu");
	waves = property("array_count") / property("simd_arrays_per_engine") * 512;
	waves = cus * 40 < waves ? cus * 40 : waves;
	debug = (waves * 32 + 63) & ~63ull;
	save = buffer(GTT, (property("cwsr_size") + debug + PAGE - 1) & ~(PAGE - 1), PROT_READ | PROT_WRITE);
	done("allocate and map the buffers");

	event.event_page_offset = slots.handle;
	must(!ioctl(kfd, AMDKFD_IOC_CREATE_EVENT, &event) && event.event_id, "create an event");
	slot = slots.va + 8ull * event.event_slot_index;
	done("create an event");

	args.ring_base_address = ring.va;
	args.write_pointer_address = pointers.va + 8;
	args.read_pointer_address = pointers.va + 16;
	args.ring_size = PAGE;
	args.gpu_id = gpu;
	args.queue_type = KFD_IOC_QUEUE_TYPE_COMPUTE;
	args.queue_percentage = 100;
	args.queue_priority = 7;
	args.eop_buffer_address = eop.va;
	args.eop_buffer_size = PAGE;
	args.ctx_save_restore_address = save.va;
	args.ctx_save_restore_size = property("cwsr_size");
	args.ctl_stack_size = property("ctl_stack_size");
	must(!ioctl(kfd, AMDKFD_IOC_CREATE_QUEUE, &args), "create a PM4 queue");
	slice = mmap(NULL, SLICE, PROT_READ | PROT_WRITE, MAP_SHARED, kfd,
		     (off_t)(args.doorbell_offset & ~(SLICE - 1)));
	must(slice != MAP_FAILED, "map the doorbells");
	doorbell = (volatile uint64_t *)(slice + (args.doorbell_offset & (SLICE - 1)));
	done("create a PM4 queue and map its doorbell");

	/* WRITE_DATA: one dword to memory, confirmed. */
	dw = (uint32_t *)ring.va;
	dw[n++] = 0xc0033702;
	dw[n++] = 5 << 8 | 1 << 20;
	dw[n++] = (uint32_t)target.va;
	dw[n++] = target.va >> 32;
	dw[n++] = VALUE;
	/* RELEASE_MEM: after everything before, the event's id into its slot, then the interrupt. */
	dw[n++] = 0xc0064902;
	dw[n++] = 0x14 | 5 << 8 | 1 << 15 | 1 << 17;
	dw[n++] = 2u << 24 | 1u << 29;
	dw[n++] = (uint32_t)slot;
	dw[n++] = slot >> 32;
	dw[n++] = event.event_id;
	dw[n++] = 0;
	dw[n++] = event.event_id;
	/* The pointer before the doorbell: the GPU reads it from memory when it connects the queue. */
	__atomic_store_n((uint64_t *)(pointers.va + 8), n, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*doorbell = n;

	data.event_id = event.event_id;
	wait.events_ptr = (uintptr_t)&data;
	while (ioctl(kfd, AMDKFD_IOC_WAIT_EVENTS, &wait))
		must(errno == EINTR, "sleep until the packet's interrupt");
	errno = ETIMEDOUT;
	must(wait.wait_result == KFD_IOC_WAIT_RESULT_COMPLETE, "sleep until the packet's interrupt");
	done("sleep until the packet's interrupt");

	printf("# at %#llx: %#x\n", (unsigned long long)target.va, *(volatile uint32_t *)target.va);
	errno = EIO;
	must(*(volatile uint32_t *)target.va == VALUE, "the packet's value landed");
	done("the packet's value landed");

	destroy.queue_id = args.queue_id;
	must(!ioctl(kfd, AMDKFD_IOC_DESTROY_QUEUE, &destroy), "destroy the queue");
	done("destroy the queue");
	return 0;
}
