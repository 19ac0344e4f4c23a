// SPDX-License-Identifier: GPL-2.0 OR MIT
// Kernels in OpenCL C, with its own functions where the compiler has them (rkfd-programs has the same on the CPU).

typedef unsigned int uint;

#ifdef WITH_LIBRARY
#define ITEM() get_global_id(0)
#else
// get_global_id(0) by hand: the offset is the first of the hidden arguments of version 4.
#define ITEM() (__builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x())
#endif

__constant uint weights[4] = { 1, 10, 100, 1000 };

// Both pieces of group memory have a size that the launch chooses.
kernel void weighted(global uint *out, global const uint *in, local uint *left, local uint *right, uint n)
{
	size_t i = ITEM();
	uint t = __builtin_amdgcn_workitem_id_x();

	left[t] = i < n ? in[i] : 0;
	right[t] = weights[t % 4];
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
	if (i < n)
		out[i] = left[t ^ 1] * right[t ^ 2];
}
