// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What a process sets and asks of a GPU: memory policy, clocks, scratch, trap handler, tiles, XNACK, its runtime.
 */
#include "kfd.h"
#include "model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int policy(const struct gpu *gpu, uint32_t id, uint32_t standard, uint32_t alternate)
{
	struct kfd_ioctl_set_memory_policy_args args = {
		.alternate_aperture_base = 0x200000,
		.alternate_aperture_size = 0x7fffffe00000,
		.gpu_id = id,
		.default_policy = standard,
		.alternate_policy = alternate,
	};

	return kfd_call(gpu->fd, AMDKFD_IOC_SET_MEMORY_POLICY, &args);
}

CASE(policy_values, "SET_MEMORY_POLICY: every pair of valid policies is accepted")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	for (uint32_t a = 0; a < 2; a++)
		for (uint32_t b = 0; b < 2; b++)
			CHECK_OK(policy(&gpu, gpu.id, a, b));
}

CASE(policy_bad_default, "SET_MEMORY_POLICY: an unknown default policy is EINVAL")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(policy(&gpu, gpu.id, 2, 0), EINVAL);
	CHECK_ERR(policy(&gpu, gpu.id, 0xffffffff, 0), EINVAL);
}

CASE(policy_bad_alternate, "SET_MEMORY_POLICY: an unknown alternate policy is EINVAL")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(policy(&gpu, gpu.id, 0, 2), EINVAL);
}

CASE(policy_bad_gpu, "SET_MEMORY_POLICY: an unknown GPU is EINVAL")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(policy(&gpu, gpu.id ^ 0x5555, 0, 0), EINVAL);
}

CASE(policy_unbound, "SET_MEMORY_POLICY: before ACQUIRE_VM is ESRCH")
{
	struct gpu gpu;

	need_gpu(&gpu, 0);
	CHECK_ERR(policy(&gpu, gpu.id, 0, 0), ESRCH);
}

static int clocks(int fd, uint32_t id, struct kfd_ioctl_get_clock_counters_args *args)
{
	memset(args, 0xa5, sizeof(*args));
	args->gpu_id = id;
	return kfd_call(fd, AMDKFD_IOC_GET_CLOCK_COUNTERS, args);
}

CASE(clock_advances, "GET_CLOCK_COUNTERS: every counter advances, the frequency is 1 GHz")
{
	struct kfd_ioctl_get_clock_counters_args a, b;
	struct gpu gpu;

	need_gpu(&gpu, 0);
	CHECK_OK(clocks(gpu.fd, gpu.id, &a));
	CHECK_EQ(a.system_clock_freq, 1000000000);
	CHECK_NE(a.gpu_clock_counter, 0);
	for (int i = 0; i < 100; i++) {
		CHECK_OK(clocks(gpu.fd, gpu.id, &b));
		CHECK_OP(b.gpu_clock_counter, >, a.gpu_clock_counter);
		CHECK_OP(b.cpu_clock_counter, >, a.cpu_clock_counter);
		CHECK_OP(b.system_clock_counter, >, a.system_clock_counter);
		a = b;
	}
}

CASE(clock_unknown_gpu, "GET_CLOCK_COUNTERS: an unknown GPU counts 0 and is no error")
{
	struct kfd_ioctl_get_clock_counters_args a;
	int fd = need_kfd();

	CHECK_OK(clocks(fd, 0xffffffff, &a));
	CHECK_EQ(a.gpu_clock_counter, 0);
	CHECK_NE(a.cpu_clock_counter, 0);
	CHECK_NE(a.system_clock_counter, 0);
	CHECK_EQ(a.system_clock_freq, 1000000000);
}

CASE(clock_rate, "GET_CLOCK_COUNTERS: the GPU's clock does not outrun its 100 MHz by an order of magnitude")
{
	struct kfd_ioctl_get_clock_counters_args a, b;
	struct gpu gpu;
	uint64_t ns, ticks;

	need_gpu(&gpu, 0);
	/* Long enough for a pause between the readings of the two clocks not to matter. */
	CHECK_OK(clocks(gpu.fd, gpu.id, &a));
	do {
		CHECK_OK(clocks(gpu.fd, gpu.id, &b));
		ns = b.cpu_clock_counter - a.cpu_clock_counter;
	} while (ns < 1000000000);
	ticks = b.gpu_clock_counter - a.gpu_clock_counter;
	tap_note("%llu ticks in %llu ns", (unsigned long long)ticks, (unsigned long long)ns);
	CHECK_OP(ticks, >, ns / 100);
	CHECK_OP(ticks, <, ns);
}

static int scratch(const struct gpu *gpu, uint32_t id, uint64_t va)
{
	struct kfd_ioctl_set_scratch_backing_va_args args = { .va_addr = va, .gpu_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_SET_SCRATCH_BACKING_VA, &args);
}

CASE(scratch_ok, "SET_SCRATCH_BACKING_VA: accepted for a bound GPU")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(scratch(&gpu, gpu.id, 0x7f0000000000 >> 16));
	CHECK_OK(scratch(&gpu, gpu.id, 0));
}

CASE(scratch_bad_gpu, "SET_SCRATCH_BACKING_VA: an unknown GPU is EINVAL")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(scratch(&gpu, gpu.id ^ 0x5555, 0), EINVAL);
}

CASE(scratch_unbound, "SET_SCRATCH_BACKING_VA: before ACQUIRE_VM is ENODEV")
{
	struct gpu gpu;

	need_gpu(&gpu, 0);
	CHECK_ERR(scratch(&gpu, gpu.id, 0), ENODEV);
}

static int trap(const struct gpu *gpu, uint32_t id, uint64_t tba, uint64_t tma)
{
	struct kfd_ioctl_set_trap_handler_args args = { .tba_addr = tba, .tma_addr = tma, .gpu_id = id };

	return kfd_call(gpu->fd, AMDKFD_IOC_SET_TRAP_HANDLER, &args);
}

CASE(trap_ok, "SET_TRAP_HANDLER: a handler, and none, are accepted")
{
	struct gpu gpu;
	struct bo bo;

	need_vm(&gpu, 0);
	need_bo(&gpu, &bo, FLAGS_USERPTR, PAGE);
	CHECK_OK(trap(&gpu, gpu.id, bo.va, 0));
	CHECK_OK(trap(&gpu, gpu.id, bo.va, bo.va));
	CHECK_OK(trap(&gpu, gpu.id, 0, 0));
}

/* Whether an address space of the model has this trap handler. */
static bool has_trap(uint64_t tba, uint64_t tma)
{
	char request[64], code[64], memory[64];

	snprintf(code, sizeof(code), "\"tba\":\"%#llx\"", (unsigned long long)tba);
	snprintf(memory, sizeof(memory), "\"tma\":\"%#llx\"", (unsigned long long)tma);
	for (int vmid = 1; vmid < 16; vmid++) {
		const char *reply;

		snprintf(request, sizeof(request), "{\"cmd\":\"vm\",\"vmid\":%d}", vmid);
		reply = ask_model(request);
		if (strstr(reply, code) && strstr(reply, memory))
			return true;
	}
	return false;
}

static void await_trap(uint64_t tba, uint64_t tma)
{
	for (uint64_t end = now_ms() + WAIT_MS; !has_trap(tba, tma);) {
		if (now_ms() > end)
			FAIL("no address space has code %#llx and memory %#llx", (unsigned long long)tba,
			     (unsigned long long)tma);
		usleep(1000);
	}
}

CASE(trap_installed, "SET_TRAP_HANDLER: before and beside a queue, code and memory are what the hardware has")
{
	/* Of this process alone: an address space of the hardware keeps what it had last. */
	const uint64_t own = (uint64_t)getpid() << 16;
	const uint64_t tba = 0x7e0000000000 + own, tma = 0x7d0000000100 + own, other = 0x7c0000000000 + own;
	struct gpu gpu;
	struct queue q;

	if (!is_rkfd())
		SKIP("amdkfd has a handler of its own in the hardware, which calls the program's");
	need_model();
	need_vm(&gpu, 0);
	CHECK_OK(trap(&gpu, gpu.id, tba, tma));
	need_queue(&gpu, &q, KFD_IOC_QUEUE_TYPE_COMPUTE);
	await_trap(tba, tma);
	/* Not where its memory is the code. */
	CHECK(!has_trap(tma, tba));
	CHECK_OK(trap(&gpu, gpu.id, other, tma));
	await_trap(other, tma);
	drop_queue(&gpu, &q);
}

CASE(trap_bad_gpu, "SET_TRAP_HANDLER: an unknown GPU is EINVAL")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_ERR(trap(&gpu, gpu.id ^ 0x5555, 0, 0), EINVAL);
}

CASE(trap_unbound, "SET_TRAP_HANDLER: before ACQUIRE_VM is ESRCH")
{
	struct gpu gpu;

	need_gpu(&gpu, 0);
	CHECK_ERR(trap(&gpu, gpu.id, 0, 0), ESRCH);
}

CASE(tile_ok, "GET_TILE_CONFIG: counts are clipped to 32 and 16, GB_ADDR_CONFIG is filled")
{
	uint32_t tile[64], macro[64];
	struct kfd_ioctl_get_tile_config_args args = {
		.tile_config_ptr = (uintptr_t)tile,
		.macro_tile_config_ptr = (uintptr_t)macro,
		.num_tile_configs = 64,
		.num_macro_tile_configs = 64,
	};
	struct gpu gpu;

	need_vm(&gpu, 0);
	args.gpu_id = gpu.id;
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_GET_TILE_CONFIG, &args));
	CHECK_OP(args.num_tile_configs, <=, 32);
	CHECK_OP(args.num_macro_tile_configs, <=, 16);
	CHECK_NE(args.gb_addr_config, 0);
}

CASE(tile_bad_pointer, "GET_TILE_CONFIG: an unwritable array is EFAULT with its count 0")
{
	uint32_t macro[16];
	struct kfd_ioctl_get_tile_config_args args = {
		.tile_config_ptr = 1,
		.macro_tile_config_ptr = (uintptr_t)macro,
		.num_tile_configs = 32,
		.num_macro_tile_configs = 16,
	};
	struct gpu gpu;

	need_vm(&gpu, 0);
	args.gpu_id = gpu.id;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_GET_TILE_CONFIG, &args), EFAULT);
	CHECK_EQ(args.num_tile_configs, 0);
}

CASE(tile_bad_macro, "GET_TILE_CONFIG: an unwritable second array is EFAULT with its count 0, the first is filled")
{
	uint32_t tile[33];
	struct kfd_ioctl_get_tile_config_args args = {
		.tile_config_ptr = (uintptr_t)tile,
		.macro_tile_config_ptr = 1,
		.num_tile_configs = 33,
		.num_macro_tile_configs = 16,
	};
	struct gpu gpu;

	memset(tile, 0xa5, sizeof(tile));
	need_vm(&gpu, 0);
	args.gpu_id = gpu.id;
	CHECK_ERR(kfd_call(gpu.fd, AMDKFD_IOC_GET_TILE_CONFIG, &args), EFAULT);
	CHECK_EQ(args.num_macro_tile_configs, 0);
	CHECK_EQ(args.num_tile_configs, 32);
	for (int i = 0; i < 32; i++)
		CHECK_EQ(tile[i], 0);
	CHECK_EQ(tile[32], 0xa5a5a5a5);
}

CASE(tile_bad_gpu, "GET_TILE_CONFIG: an unknown GPU is EINVAL")
{
	struct kfd_ioctl_get_tile_config_args args = { .gpu_id = 0x5555aaaa };

	need_gpu(&(struct gpu){ 0 }, 0);
	CHECK_ERR(kfd_call(need_kfd(), AMDKFD_IOC_GET_TILE_CONFIG, &args), EINVAL);
}

static int xnack(int fd, int32_t *mode)
{
	struct kfd_ioctl_set_xnack_mode_args args = { .xnack_enabled = *mode };
	int err = kfd_call(fd, AMDKFD_IOC_SET_XNACK_MODE, &args);

	*mode = args.xnack_enabled;
	return err;
}

static bool xnack_supported(const struct gpu *gpu)
{
	return gpu->gfx == 90010 || gpu->gfx >= 90400;
}

CASE(xnack_query, "SET_XNACK_MODE: -1 asks")
{
	struct gpu gpu;
	int32_t mode = -1;

	need_vm(&gpu, 0);
	CHECK_OK(xnack(gpu.fd, &mode));
	CHECK(mode == 0 || mode == 1);
}

CASE(xnack_off, "SET_XNACK_MODE: off is always accepted and read back")
{
	struct gpu gpu;
	int32_t mode = 0;

	need_vm(&gpu, 0);
	CHECK_OK(xnack(gpu.fd, &mode));
	mode = -1;
	CHECK_OK(xnack(gpu.fd, &mode));
	CHECK_EQ(mode, 0);
}

CASE(xnack_on, "SET_XNACK_MODE: on is kept where the GPU can, EPERM where it cannot")
{
	struct gpu gpu;
	int32_t mode = 1;
	int err;

	need_vm(&gpu, 0);
	err = xnack(gpu.fd, &mode);
	if (xnack_supported(&gpu)) {
		/* A driver may refuse what the part can; it must not accept and forget. */
		if (err == EPERM && !is_rkfd())
			SKIP("the driver does not offer XNACK");
		CHECK_OK(err);
		mode = -1;
		CHECK_OK(xnack(gpu.fd, &mode));
		CHECK_EQ(mode, 1);
	} else {
		CHECK_ERR(err, EPERM);
	}
}

CASE(xnack_with_queue, "SET_XNACK_MODE: with a live queue is EBUSY, asking is not")
{
	struct gpu gpu;
	struct queue q;
	int32_t mode = 0;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, KFD_IOC_QUEUE_TYPE_COMPUTE);
	CHECK_ERR(xnack(gpu.fd, &mode), EBUSY);
	mode = -1;
	CHECK_OK(xnack(gpu.fd, &mode));
	drop_queue(&gpu, &q);
	mode = 0;
	CHECK_OK(xnack(gpu.fd, &mode));
}

static int runtime(int fd, uint32_t mode)
{
	struct kfd_ioctl_runtime_enable_args args = { .r_debug = 0x1000, .mode_mask = mode };

	return kfd_call(fd, AMDKFD_IOC_RUNTIME_ENABLE, &args);
}

CASE(runtime_twice, "RUNTIME_ENABLE: enable, again EBUSY, disable, enable")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(runtime(gpu.fd, 1));
	CHECK_ERR(runtime(gpu.fd, 1), EBUSY);
	CHECK_OK(runtime(gpu.fd, 0));
	CHECK_OK(runtime(gpu.fd, 1));
}

CASE(runtime_with_queue, "RUNTIME_ENABLE: with a live queue is EEXIST")
{
	struct gpu gpu;
	struct queue q;

	need_vm(&gpu, 0);
	need_queue(&gpu, &q, KFD_IOC_QUEUE_TYPE_COMPUTE);
	CHECK_ERR(runtime(gpu.fd, 1), EEXIST);
	drop_queue(&gpu, &q);
	CHECK_OK(runtime(gpu.fd, 1));
}

CASE(runtime_disable, "RUNTIME_ENABLE: disabling what is not enabled is no error")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(runtime(gpu.fd, 0));
}
