// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Which GPUs there are and how a process binds one: apertures, ACQUIRE_VM.
 */
#include "kfd.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int apertures(int fd, void *list, uint32_t *n)
{
	struct kfd_ioctl_get_process_apertures_new_args args = {
		.kfd_process_device_apertures_ptr = (uintptr_t)list,
		.num_of_nodes = *n,
	};
	int err = kfd_call(fd, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, &args);

	*n = args.num_of_nodes;
	return err;
}

CASE(aperture_count, "APERTURES_NEW: n = 0 only counts")
{
	uint32_t n = 0, ids[MAX_GPUS];
	int fd = need_kfd();

	/* The pointer must not be touched. */
	CHECK_OK(apertures(fd, (void *)1, &n));
	CHECK_EQ(n, gpu_ids(fd, ids, MAX_GPUS));
}

CASE(aperture_ids, "APERTURES_NEW: ids are non-zero, 16 bits, distinct")
{
	uint32_t ids[MAX_GPUS];
	unsigned int n = gpu_ids(need_kfd(), ids, MAX_GPUS);

	if (!n)
		LACKING("no GPU");
	for (unsigned int i = 0; i < n; i++) {
		CHECK_NE(ids[i], 0);
		CHECK_OP(ids[i], <=, 0xffff);
		for (unsigned int j = 0; j < i; j++)
			CHECK_NE(ids[i], ids[j]);
	}
}

CASE(aperture_values, "APERTURES_NEW: LDS, scratch and GPUVM apertures of gfx9")
{
	struct gpu gpu;

	need_gpu(&gpu, 0);
	CHECK_EQ(gpu.apertures.lds_base, 1ull << 48);
	CHECK_EQ(gpu.apertures.lds_limit, (1ull << 48) + 0xffffffff);
	CHECK_EQ(gpu.apertures.scratch_base, 2ull << 48);
	CHECK_EQ(gpu.apertures.scratch_limit, (2ull << 48) + 0xffffffff);
	CHECK_EQ(gpu.apertures.gpuvm_base, 0x10000);
	/* Exactly this limit makes the thunk use one address for CPU and GPU. */
	CHECK_EQ(gpu.apertures.gpuvm_limit, (1ull << 47) - 1);
}

CASE(aperture_too_many, "APERTURES_NEW: more entries than there are nodes is EINVAL")
{
	struct gpu gpu;
	uint32_t n = 10000;

	need_gpu(&gpu, 0);
	CHECK_ERR(apertures(gpu.fd, (void *)1, &n), EINVAL);
}

CASE(aperture_fewer, "APERTURES_NEW: room for one yields one")
{
	struct kfd_process_device_apertures list[2];
	struct gpu gpu;
	uint32_t n = 1;

	need_gpu(&gpu, 0);
	memset(list, 0xa5, sizeof(list));
	CHECK_OK(apertures(gpu.fd, list, &n));
	CHECK_EQ(n, 1);
	CHECK_EQ(list[0].gpu_id, gpu.id);
	CHECK_EQ(list[0].pad, 0);
	CHECK_EQ(list[1].gpu_id, 0xa5a5a5a5);
}

CASE(aperture_bad_pointer, "APERTURES_NEW: unwritable list is EFAULT")
{
	struct gpu gpu;
	uint32_t n = 1;

	need_gpu(&gpu, 0);
	CHECK_ERR(apertures(gpu.fd, (void *)1, &n), EFAULT);
}

CASE(aperture_old, "APERTURES: the old call agrees with the new one")
{
	struct kfd_ioctl_get_process_apertures_args args;
	struct gpu gpu;

	need_gpu(&gpu, 0);
	memset(&args, 0xa5, sizeof(args));
	CHECK_OK(kfd_call(gpu.fd, AMDKFD_IOC_GET_PROCESS_APERTURES, &args));
	CHECK_OP(args.num_of_nodes, >=, 1);
	CHECK_OP(args.num_of_nodes, <=, NUM_OF_SUPPORTED_GPUS);
	CHECK(!memcmp(&args.process_apertures[0], &gpu.apertures, sizeof(gpu.apertures)));
}

CASE(ids_stable, "ids are the same at every open")
{
	uint32_t a[MAX_GPUS], b[MAX_GPUS];
	int fd = need_kfd();
	unsigned int n = gpu_ids(fd, a, MAX_GPUS);

	if (!n)
		LACKING("no GPU");
	close(fd);
	CHECK_EQ(gpu_ids(need_kfd(), b, MAX_GPUS), n);
	CHECK(!memcmp(a, b, n * sizeof(a[0])));
}

CASE(acquire, "ACQUIRE_VM: binds, and the same file again is no error")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
}

CASE(acquire_bad_fd, "ACQUIRE_VM: a number that is no file is EINVAL")
{
	struct gpu gpu;

	need_gpu(&gpu, 0);
	CHECK_ERR(acquire_vm(&gpu, 1000), EINVAL);
	CHECK_ERR(acquire_vm(&gpu, -1), EINVAL);
}

CASE(acquire_bad_gpu, "ACQUIRE_VM: an unknown GPU is EINVAL")
{
	struct gpu gpu;

	need_gpu(&gpu, 0);
	gpu.drm = need_render(&gpu);
	gpu.id ^= 0x5555;
	CHECK_ERR(acquire_vm(&gpu, gpu.drm), EINVAL);
	gpu.id = 0;
	CHECK_ERR(acquire_vm(&gpu, gpu.drm), EINVAL);
}

CASE(acquire_foreign_file, "ACQUIRE_VM: a file that is no render node is EINVAL")
{
	struct gpu gpu;
	int null;

	need_gpu(&gpu, 0);
	null = open("/dev/null", O_RDWR);
	CHECK_OP(null, >=, 0);
	CHECK_ERR(acquire_vm(&gpu, null), EINVAL);
	CHECK_ERR(acquire_vm(&gpu, gpu.fd), EINVAL);
	/* A refusal leaves the GPU free to be bound. */
	CHECK_OK(acquire_vm(&gpu, need_render(&gpu)));
}

CASE(acquire_second_file, "ACQUIRE_VM: another file for a bound GPU is EBUSY, whatever it is; a number that is none is EINVAL")
{
	struct gpu gpu, other;
	int null = open("/dev/null", O_RDWR);

	CHECK_OP(null, >=, 0);
	need_vm(&gpu, 0);
	CHECK_ERR(acquire_vm(&gpu, need_render(&gpu)), EBUSY);
	CHECK_ERR(acquire_vm(&gpu, null), EBUSY);
	CHECK_ERR(acquire_vm(&gpu, 1000), EINVAL);
	other = gpu;
	other.id ^= 0x5555;
	CHECK_ERR(acquire_vm(&other, null), EINVAL);
	CHECK_OK(acquire_vm(&gpu, gpu.drm));
}

CASE(acquire_dup, "ACQUIRE_VM: a duplicate of the same file is the same file")
{
	struct gpu gpu;

	need_vm(&gpu, 0);
	CHECK_OK(acquire_vm(&gpu, dup(gpu.drm)));
}

CASE(acquire_keeps_file, "ACQUIRE_VM: the binding outlives the closed descriptor")
{
	struct gpu gpu;
	struct bo bo;
	int again;

	need_vm(&gpu, 0);
	again = dup(gpu.drm);
	close(gpu.drm);
	gpu.drm = again;
	need_bo(&gpu, &bo, FLAGS_GTT, PAGE);
	drop_bo(&gpu, &bo);
}

CASE(acquire_wrong_gpu, "ACQUIRE_VM: the render node of another GPU is refused")
{
	struct gpu first, second;

	if (!is_rkfd())
		SKIP("other drivers do not ask whose file it is");
	need_gpu(&first, 0);
	need_gpu(&second, 1);
	CHECK_ERR(acquire_vm(&first, need_render(&second)), EINVAL);
	CHECK_OK(acquire_vm(&first, need_render(&first)));
}

CASE(acquire_both, "ACQUIRE_VM: one process binds two GPUs")
{
	struct gpu first, second;

	need_vm(&first, 0);
	need_vm_of(&second, 1, first.fd);
	CHECK_NE(first.id, second.id);
}
