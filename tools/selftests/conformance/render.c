// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The render node beside /dev/kfd: what libdrm and the runtime ask there before they do anything. It has to agree with
 * what the topology and /dev/kfd say of the same GPU.
 */
#include "kfd.h"
#include "rkfd_drm.h"

#include <drm/amdgpu_drm.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)
/* Where a register's answer does not depend on the power state: its number among all registers, in dwords. */
#define GB_ADDR_CONFIG 0x263e
#define ANY_ENGINE 0xffff
#define UNTOUCHED 0xa5

static int info(const struct gpu *gpu, struct drm_amdgpu_info *args, void *answer, uint32_t size)
{
	args->return_pointer = (uintptr_t)answer;
	args->return_size = size;
	return kfd_call(gpu->drm, DRM_IOCTL_AMDGPU_INFO, args);
}

static int query(const struct gpu *gpu, uint32_t what, void *answer, uint32_t size)
{
	struct drm_amdgpu_info args = { .query = what };

	memset(answer, UNTOUCHED, size);
	return info(gpu, &args, answer, size);
}

static int registers(const struct gpu *gpu, uint32_t offset, uint32_t count, uint32_t instance, uint32_t *answer,
		     uint32_t size)
{
	struct drm_amdgpu_info args = {
		.query = AMDGPU_INFO_READ_MMR_REG,
		.read_mmr_reg = { .dword_offset = offset, .count = count, .instance = instance },
	};

	return info(gpu, &args, answer, size);
}

/* Whether bytes from `from` on are as they were. */
static bool untouched(const void *answer, size_t from, size_t size)
{
	for (size_t i = from; i < size; i++)
		if (((const uint8_t *)answer)[i] != UNTOUCHED)
			return false;
	return true;
}

static uint64_t need_property(const struct gpu *gpu, const char *key)
{
	uint64_t value;

	if (!topology_value(gpu->id, "properties", key, &value))
		SKIP("the topology does not tell %s", key);
	return value;
}

CASE(version, "VERSION: the driver's name, in the version 3 that clients ask for")
{
	char name[32] = "";
	struct drm_version args = { .name = name, .name_len = sizeof(name) - 1 };
	const char *expected = is_rkfd() ? "rkfd" : "amdgpu";
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(kfd_call(gpu.drm, DRM_IOCTL_VERSION, &args));
	CHECK_EQ(args.name_len, strlen(expected));
	CHECK(!strcmp(name, expected));
	CHECK_EQ(args.version_major, 3);
}

CASE(dev_info, "DEV_INFO: identity, units and clocks are those of the topology")
{
	struct drm_amdgpu_info_device device;
	unsigned int units = 0;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(query(&gpu, AMDGPU_INFO_DEV_INFO, &device, sizeof(device)));
	CHECK_EQ(device.device_id, need_property(&gpu, "device_id"));
	CHECK_EQ(device.family, AMDGPU_FAMILY_AI);
	CHECK_EQ(device.cu_active_number, need_property(&gpu, "simd_count") / need_property(&gpu, "simd_per_cu"));
	for (int engine = 0; engine < 4; engine++)
		for (int array = 0; array < 4; array++)
			units += __builtin_popcount(device.cu_bitmap[engine][array]);
	CHECK_EQ(units, device.cu_active_number);
	CHECK_EQ(device.num_shader_engines * device.num_shader_arrays_per_engine, need_property(&gpu, "array_count"));
	CHECK_EQ(device.num_shader_arrays_per_engine, need_property(&gpu, "simd_arrays_per_engine"));
	CHECK_EQ(device.wave_front_size, need_property(&gpu, "wave_front_size"));
	/* Without power management amdkfd says 100 MHz, and amdgpu what the board's ROM has. */
	if (is_rkfd() || need_property(&gpu, "max_engine_clk_fcompute") != 100)
		CHECK_EQ(device.max_engine_clock / 1000, need_property(&gpu, "max_engine_clk_fcompute"));
	CHECK_EQ(device.gpu_counter_freq, 100000);
	CHECK_EQ(device.virtual_address_alignment, PAGE);
	/* Below is what a process may not map; above, what the CPU has no addresses for. */
	CHECK_OP(device.virtual_address_offset, <=, gpu.apertures.gpuvm_base << 8);
	CHECK_OP(device.virtual_address_max, >=, gpu.apertures.gpuvm_limit);
}

CASE(memory, "MEMORY and VRAM_GTT: agree with each other, the topology and AVAILABLE_MEMORY")
{
	struct drm_amdgpu_info_vram_gtt sizes;
	struct drm_amdgpu_memory_info m;
	struct gpu gpu;

	need_vm(&gpu, 0);
	if (!gpu.vram)
		SKIP("the topology does not tell the size of VRAM");
	CHECK_OK(query(&gpu, AMDGPU_INFO_MEMORY, &m, sizeof(m)));
	CHECK_OK(query(&gpu, AMDGPU_INFO_VRAM_GTT, &sizes, sizeof(sizes)));
	/* Drivers differ in whether the topology counts what they keep for themselves. */
	CHECK_OP(gpu.vram, <=, m.vram.total_heap_size);
	CHECK_OP(gpu.vram, >=, m.vram.usable_heap_size);
	CHECK_OP(m.vram.usable_heap_size, <=, m.vram.total_heap_size);
	CHECK_OP(m.vram.heap_usage, <=, m.vram.total_heap_size);
	CHECK_OP(m.cpu_accessible_vram.total_heap_size, <=, m.vram.total_heap_size);
	CHECK_OP(m.cpu_accessible_vram.usable_heap_size, <=, m.cpu_accessible_vram.total_heap_size);
	CHECK_NE(m.gtt.usable_heap_size, 0);
	CHECK_OP(m.gtt.heap_usage, <=, m.gtt.total_heap_size);
	CHECK_OP(m.vram.max_allocation, <, m.vram.usable_heap_size);
	CHECK_OP(m.vram.max_allocation, >=, m.vram.usable_heap_size / 2);
	CHECK_EQ(sizes.vram_size, m.vram.usable_heap_size);
	CHECK_EQ(sizes.vram_cpu_accessible_size, m.cpu_accessible_vram.usable_heap_size);
	CHECK_EQ(sizes.gtt_size, m.gtt.usable_heap_size);
	CHECK_OP(available(&gpu), <=, sizes.vram_size);
	CHECK_OP(available(&gpu), >, sizes.vram_size / 2);
}

static uint64_t vram_used(const struct gpu *gpu)
{
	uint64_t used;

	CHECK_OK(query(gpu, AMDGPU_INFO_VRAM_USAGE, &used, sizeof(used)));
	return used;
}

CASE(usage, "VRAM_USAGE: a buffer counts while it is there")
{
	uint64_t before, end;
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	available_settled(&gpu);
	before = vram_used(&gpu);
	CHECK_OK(bo_alloc(&gpu, &bo, FLAGS_VRAM_PRIVATE, 16 * MIB));
	CHECK_OP(vram_used(&gpu), >=, before + 16 * MIB);
	CHECK_OP(vram_used(&gpu), <, before + 32 * MIB);
	CHECK_OK(bo_free(&gpu, &bo));
	/* What the CPU has mapped is there until it has not. */
	CHECK_OP(vram_used(&gpu), >=, before);
	CHECK_EQ(munmap((void *)bo.va, bo.size), 0);
	for (end = now_ms() + WAIT_MS; vram_used(&gpu) > before;) {
		if (now_ms() > end)
			FAIL("%llu bytes remain in use", (unsigned long long)(vram_used(&gpu) - before));
		usleep(1000);
	}
}

static void ends_with_memory(void *drm)
{
	struct gpu gpu;
	struct bo bo;

	need_gpu(&gpu, 0);
	gpu.drm = *(int *)drm;
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
	need_bo(&gpu, &bo, FLAGS_VRAM_PRIVATE, 16 * MIB);
	CHECK_OP(vram_used(&gpu), >=, 16 * MIB);
}

CASE(lent_file, "VRAM_USAGE: a process that ends leaves none of its memory in the address space of a file that stays open")
{
	uint64_t before, end;
	struct gpu gpu;

	if (!is_rkfd())
		SKIP("amdgpu keeps the page tables of an address space until the file is closed");
	need_gpu(&gpu, 0);
	gpu.drm = need_render(&gpu);
	before = vram_used(&gpu);
	CHECK_EQ(in_child(ends_with_memory, &gpu.drm), 0);
	for (end = now_ms() + WAIT_MS; vram_used(&gpu) > before;) {
		if (now_ms() > end)
			FAIL("%llu bytes remain in use", (unsigned long long)(vram_used(&gpu) - before));
		usleep(1000);
	}
}

CASE(working, "ACCEL_WORKING: yes")
{
	uint32_t yes;
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(query(&gpu, AMDGPU_INFO_ACCEL_WORKING, &yes, sizeof(yes)));
	CHECK_EQ(yes, 1);
}

CASE(timestamp, "TIMESTAMP: the clock that GET_CLOCK_COUNTERS reads")
{
	struct kfd_ioctl_get_clock_counters_args before = { 0 }, after = { 0 };
	struct gpu gpu;
	uint64_t now;

	need_vm(&gpu, 0);
	before.gpu_id = after.gpu_id = gpu.id;
	for (int i = 0; i < 10; i++) {
		CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_GET_CLOCK_COUNTERS, &before));
		CHECK_OK(query(&gpu, AMDGPU_INFO_TIMESTAMP, &now, sizeof(now)));
		CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_GET_CLOCK_COUNTERS, &after));
		CHECK_OP(before.gpu_clock_counter, <=, now);
		CHECK_OP(now, <=, after.gpu_clock_counter);
	}
}

CASE(register_read, "READ_MMR_REG: GB_ADDR_CONFIG is what GET_TILE_CONFIG says")
{
	struct kfd_ioctl_get_tile_config_args tile = { 0 };
	uint32_t answer[2];
	uint32_t none[1];
	struct gpu gpu;

	need_vm(&gpu, 0);
	tile.gpu_id = gpu.id;
	tile.tile_config_ptr = tile.macro_tile_config_ptr = (uintptr_t)none;
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_GET_TILE_CONFIG, &tile));
	memset(answer, UNTOUCHED, sizeof(answer));
	CHECK_OK(registers(&gpu, GB_ADDR_CONFIG, 1, ANY_ENGINE, answer, sizeof(answer)));
	CHECK_EQ(answer[0], tile.gb_addr_config);
	CHECK(untouched(answer, 4, sizeof(answer)));
	/* None of the engines has one of its own. */
	CHECK_OK(registers(&gpu, GB_ADDR_CONFIG, 1, 3, answer, sizeof(answer)));
	CHECK_EQ(answer[0], tile.gb_addr_config);
}

CASE(register_refused, "READ_MMR_REG: another register is EFAULT; 129 of them, shader engine 4, array 2 are EINVAL")
{
	static uint32_t answer[129];
	struct gpu gpu;

	need_vm(&gpu, 0);
	memset(answer, UNTOUCHED, sizeof(answer));
	CHECK_ERR(registers(&gpu, 0, 1, ANY_ENGINE, answer, sizeof(answer)), EFAULT);
	CHECK_ERR(registers(&gpu, 0xffffffff, 1, ANY_ENGINE, answer, sizeof(answer)), EFAULT);
	CHECK_ERR(registers(&gpu, 0xffffffff, 2, ANY_ENGINE, answer, sizeof(answer)), EFAULT);
	/* The first one may be read. */
	CHECK_ERR(registers(&gpu, GB_ADDR_CONFIG, 2, ANY_ENGINE, answer, sizeof(answer)), EFAULT);
	CHECK_ERR(registers(&gpu, GB_ADDR_CONFIG, 129, ANY_ENGINE, answer, sizeof(answer)), EINVAL);
	CHECK_ERR(registers(&gpu, GB_ADDR_CONFIG, 1, 4, answer, sizeof(answer)), EINVAL);
	CHECK_ERR(registers(&gpu, GB_ADDR_CONFIG, 1, 2 << AMDGPU_INFO_MMR_SH_INDEX_SHIFT, answer, sizeof(answer)),
		  EINVAL);
	CHECK(untouched(answer, 0, sizeof(answer)));
}

CASE(no_room, "INFO: no pointer, or size 0, is EINVAL; a pointer that cannot be written is EFAULT")
{
	struct drm_amdgpu_info args = { .query = AMDGPU_INFO_MEMORY };
	struct drm_amdgpu_memory_info m;
	struct gpu gpu;

	need_vm(&gpu, 0);
	memset(&m, UNTOUCHED, sizeof(m));
	CHECK_ERR(info(&gpu, &args, NULL, sizeof(m)), EINVAL);
	CHECK_ERR(info(&gpu, &args, &m, 0), EINVAL);
	CHECK_ERR(info(&gpu, &args, (void *)8, sizeof(m)), EFAULT);
	CHECK(untouched(&m, 0, sizeof(m)));
}

CASE(truncated, "INFO: as many bytes as asked for, at most what there is, and none beyond")
{
	struct drm_amdgpu_info args = { .query = AMDGPU_INFO_DEV_INFO };
	struct drm_amdgpu_info_device whole, part;
	uint64_t working[8];
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(query(&gpu, AMDGPU_INFO_DEV_INFO, &whole, sizeof(whole)));
	for (uint32_t size = 1; size < 80; size += 13) {
		memset(&part, UNTOUCHED, sizeof(part));
		CHECK_OK(info(&gpu, &args, &part, size));
		/* Clocks may change meanwhile; what lies before them does not. */
		CHECK(!memcmp(&part, &whole, size < offsetof(struct drm_amdgpu_info_device, max_engine_clock) ? size :
					     offsetof(struct drm_amdgpu_info_device, max_engine_clock)));
		CHECK(untouched(&part, size, sizeof(part)));
	}
	CHECK_OK(query(&gpu, AMDGPU_INFO_ACCEL_WORKING, working, sizeof(working)));
	CHECK(untouched(working, 4, sizeof(working)));
}

CASE(unknown_query, "INFO: an unknown query is EINVAL")
{
	uint64_t answer[64];
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(query(&gpu, 0x7f, answer, sizeof(answer)), EINVAL);
	CHECK_ERR(query(&gpu, 0xffffffff, answer, sizeof(answer)), EINVAL);
	CHECK(untouched(answer, 0, sizeof(answer)));
}

CASE(absent_blocks, "INFO: of engines, firmware and power that no one drives here nothing is told")
{
	static const uint32_t absent[] = { AMDGPU_INFO_HW_IP_INFO, AMDGPU_INFO_HW_IP_COUNT, AMDGPU_INFO_FW_VERSION,
					   AMDGPU_INFO_GDS_CONFIG };
	uint64_t answer[64];
	struct gpu gpu;

	if (!is_rkfd())
		SKIP("other drivers drive them");
	need_vm(&gpu, 0);
	for (unsigned int i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		CHECK_ERR(query(&gpu, absent[i], answer, sizeof(answer)), EINVAL);
	CHECK_ERR(query(&gpu, AMDGPU_INFO_SENSOR, answer, sizeof(answer)), ENOENT);
	CHECK(untouched(answer, 0, sizeof(answer)));
}

CASE(other_commands, "every command of amdgpu but INFO is EINVAL, and so is what neither it nor the driver's own interface has")
{
	struct gpu gpu;

	if (!is_rkfd())
		SKIP("other drivers have them");
	need_vm(&gpu, 0);
	for (unsigned int nr = 0; nr < DRM_COMMAND_END - DRM_COMMAND_BASE; nr++) {
		uint64_t args[8] = { 0 };

		if (nr == DRM_AMDGPU_INFO || (nr >= DRM_RKFD_QUERY && nr <= DRM_RKFD_MIRROR_POPULATE))
			continue;
		CHECK_ERR(kfd_call(gpu.drm, DRM_IOWR(DRM_COMMAND_BASE + nr, args), args), EINVAL);
	}
}
