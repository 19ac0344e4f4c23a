// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What a GPU is, and how a process binds it. */
#include "kfd.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

bool is_rkfd(void)
{
	return !access("/sys/module/rkfd", F_OK);
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

/* The value behind `key` in lines of keys and values. */
static bool value_of(const char *text, const char *key, uint64_t *value)
{
	size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, n) && line[n] == ' ') {
			*value = strtoull(line + n + 1, NULL, 10);
			return true;
		}
	}
	return false;
}

/* A file of a topology node; they are a page at most. */
struct node_text {
	char text[PAGE + 1];
};

/* The node of a GPU, -1 if it has none. What was found once is not looked for again: GPUs keep their nodes. */
static int node_of(uint32_t gpu_id)
{
	static struct {
		uint32_t gpu_id;
		int node;
	} found[16];
	static unsigned int count;

	for (unsigned int i = 0; i < count; i++)
		if (found[i].gpu_id == gpu_id)
			return found[i].node;
	for (int n = 0; n < 64; n++) {
		char path[256];
		uint64_t id;

		snprintf(path, sizeof(path), TOPOLOGY "/nodes/%d/gpu_id", n);
		if (!read_number(path, &id) || id != gpu_id)
			continue;
		if (count < sizeof(found) / sizeof(found[0])) {
			found[count].gpu_id = gpu_id;
			found[count++].node = n;
		}
		return n;
	}
	return -1;
}

static bool read_node(uint32_t gpu_id, const char *file, struct node_text *of)
{
	int node = node_of(gpu_id);
	char path[256];
	FILE *f;

	if (node < 0)
		return false;
	snprintf(path, sizeof(path), TOPOLOGY "/nodes/%d/%s", node, file);
	f = fopen(path, "re");
	if (!f)
		return false;
	of->text[fread(of->text, 1, sizeof(of->text) - 1, f)] = '\0';
	fclose(f);
	return true;
}

bool topology_value(uint32_t gpu_id, const char *file, const char *key, uint64_t *value)
{
	struct node_text found;

	return read_node(gpu_id, file, &found) && value_of(found.text, key, value);
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
	gpu->debug_size = debug;
	gpu->save_total = page_align(gpu->cwsr_size + debug);
}

static uint32_t number(const struct node_text *properties, const char *key)
{
	uint64_t v = 0;

	value_of(properties->text, key, &v);
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
	struct node_text properties;
	uint64_t simds, per_cu, arrays, per_engine, xccs;

	if (!read_node(gpu->id, "properties", &properties)) {
		by_pci_device(gpu);
		return;
	}
	gpu->gfx = number(&properties, "gfx_target_version");
	gpu->render_minor = number(&properties, "drm_render_minor");
	gpu->ctl_stack_size = number(&properties, "ctl_stack_size");
	gpu->cwsr_size = number(&properties, "cwsr_size");
	gpu->sdma_engines = number(&properties, "num_sdma_engines");
	gpu->sdma_queues_per_engine = number(&properties, "num_sdma_queues_per_engine");
	gpu->cp_queues = number(&properties, "num_cp_queues");
	topology_value(gpu->id, "mem_banks/0/properties", "size_in_bytes", &gpu->vram);
	simds = number(&properties, "simd_count");
	per_cu = number(&properties, "simd_per_cu");
	arrays = number(&properties, "array_count");
	per_engine = number(&properties, "simd_arrays_per_engine");
	xccs = number(&properties, "num_xcc");
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
