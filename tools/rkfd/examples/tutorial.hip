// SPDX-License-Identifier: GPL-2.0 OR MIT
// The kernels of Documentation/tutorial.md:
//
//	hipcc --genco --offload-arch=gfx90a --offload-arch=gfx906 -O2 tutorial.hip -o tutorial.co
#include <hip/hip_runtime.h>

#define GROUP 256

extern "C" __global__ void __launch_bounds__(GROUP) saxpy(unsigned n, float a, const float *x, float *y)
{
	unsigned i = blockIdx.x * GROUP + threadIdx.x;

	if (i < n)
		y[i] = a * x[i] + y[i];
}

// Counts its launches, one place for each producer.
extern "C" __global__ void tally(unsigned *counts, unsigned producer)
{
	atomicAdd_system(&counts[producer], 1u);
}

// The nodes of the graphs.
extern "C" __global__ void __launch_bounds__(GROUP) scale(unsigned *out, const unsigned *in, unsigned factor, unsigned add)
{
	unsigned i = blockIdx.x * GROUP + threadIdx.x;

	out[i] = in[i] * factor + add;
}

extern "C" __global__ void __launch_bounds__(GROUP) join(unsigned *out, const unsigned *left, const unsigned *right)
{
	unsigned i = blockIdx.x * GROUP + threadIdx.x;

	out[i] = left[i] * 1000 + right[i];
}

// Reads where it is told to.
extern "C" __global__ void peek(unsigned *out, const unsigned *from)
{
	*out = *from;
}
