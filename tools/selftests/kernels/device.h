/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the kernels need of a language: HIP without its headers, so that any clang with this target compiles them. */
#ifndef DEVICE_H
#define DEVICE_H

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define NOINLINE __attribute__((noinline))
#define GROUP(most) __attribute__((amdgpu_flat_work_group_size(1, most)))

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;

__device__ inline u32 local_x() { return __builtin_amdgcn_workitem_id_x(); }
__device__ inline u32 local_y() { return __builtin_amdgcn_workitem_id_y(); }
__device__ inline u32 group_x() { return __builtin_amdgcn_workgroup_id_x(); }
__device__ inline u32 group_y() { return __builtin_amdgcn_workgroup_id_y(); }
__device__ inline u32 size_x() { return __builtin_amdgcn_workgroup_size_x(); }
__device__ inline u32 global_x() { return group_x() * size_x() + local_x(); }
__device__ inline u32 lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }

/* All of the work-group's stores before are seen by all of it behind. */
__device__ inline void sync()
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

template <typename T> __device__ inline T add(T *at, T value)
{
	return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

/* With the CPU. */
template <typename T> __device__ inline T add_to_system(T *at, T value)
{
	return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

#endif
