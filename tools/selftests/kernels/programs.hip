// SPDX-License-Identifier: GPL-2.0 OR MIT
// Kernels of rkfd-programs, which has the same on the CPU. HIP without its headers.
#include "device.h"

extern "C" {

__device__ u32 answer = 42;
__constant__ u32 primes[8] = { 2, 3, 5, 7, 11, 13, 17, 19 };

__global__ void GROUP(1024) vector_add(const float *a, const float *b, float *c, u32 n)
{
	u32 i = global_x();

	if (i < n)
		c[i] = a[i] + b[i];
}

// Each lane's number goes through LDS to its neighbour. The compiler does not see the read, so it is waited for by hand.
__global__ void GROUP(256) lanes(u32 *out)
{
	__shared__ u32 numbers[256];
	u32 i = local_x(), got;

	numbers[i] = lane() + 100 * (i / 64);
	sync();
	u32 at = (u32)(u64)(__attribute__((address_space(3))) u32 *)&numbers[i ^ 1];
	asm volatile("ds_read_b32 %0, %1\n\ts_waitcnt lgkmcnt(0)" : "=v"(got) : "v"(at) : "memory");
	out[group_x() * 256 + i] = got;
}

// Work-items of this work-group in dimension d, as device libraries compute it: the last one may have fewer.
__device__ inline u32 actual_size(u32 d, u32 group)
{
	const u32 *counts = (const u32 *)__builtin_amdgcn_implicitarg_ptr();
	const unsigned short *sizes = (const unsigned short *)(counts + 3);

	return group < counts[d] ? sizes[d] : sizes[3 + d];
}

// What the launch says of itself, by hidden arguments and the packet.
__global__ void GROUP(1024) geometry(u32 *out)
{
	u32 *to = out + 8 * (group_x() + group_y() * 3);

	if (local_x() || local_y())
		return;
	to[0] = actual_size(0, group_x());
	to[1] = actual_size(1, group_y());
	to[2] = actual_size(2, __builtin_amdgcn_workgroup_id_z());
	to[3] = __builtin_amdgcn_grid_size_x();
	to[4] = __builtin_amdgcn_grid_size_y();
	to[5] = __builtin_amdgcn_grid_size_z();
	to[6] = answer;
	to[7] = primes[(group_x() + group_y()) % 8];
}

__global__ void GROUP(256) reduce(u64 *sum, const u32 *in, u32 n)
{
	__shared__ u64 part[256];
	u32 t = local_x();
	u64 own = 0;

	for (u32 i = global_x(); i < n; i += 256 * 16)
		own += in[i];
	part[t] = own;
	sync();
	for (u32 half = 128; half; half /= 2) {
		if (t < half)
			part[t] += part[t + half];
		sync();
	}
	if (!t)
		add(sum, part[0]);
}

__global__ void GROUP(256) histogram(u32 *bins, const u8 *in, u32 n)
{
	__shared__ u32 own[256];
	u32 t = local_x();

	own[t] = 0;
	sync();
	for (u32 i = global_x(); i < n; i += 256 * 8)
		__hip_atomic_fetch_add(&own[in[i]], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
	sync();
	if (own[t])
		add(&bins[t], own[t]);
}

// Work-groups of 32 by 8.
__global__ void GROUP(256) transpose(float *out, const float *in, u32 width, u32 height)
{
	__shared__ float tile[32][33];
	u32 x = group_x() * 32 + local_x(), y = group_y() * 32 + local_y();

	for (u32 j = 0; j < 32; j += 8)
		if (x < width && y + j < height)
			tile[local_y() + j][local_x()] = in[(y + j) * width + x];
	sync();
	x = group_y() * 32 + local_x();
	y = group_x() * 32 + local_y();
	for (u32 j = 0; j < 32; j += 8)
		if (x < height && y + j < width)
			out[(y + j) * height + x] = tile[local_x()][local_y() + j];
}

// Sums up to each element within its work-group, and each work-group's sum.
__global__ void GROUP(256) scan_blocks(u32 *data, u32 *sums, u32 n)
{
	__shared__ u32 part[256];
	u32 t = local_x(), i = global_x();

	part[t] = i < n ? data[i] : 0;
	sync();
	for (u32 distance = 1; distance < 256; distance *= 2) {
		u32 before = t >= distance ? part[t - distance] : 0;

		sync();
		part[t] += before;
		sync();
	}
	if (i < n)
		data[i] = part[t];
	if (t == 255)
		sums[group_x()] = part[t];
}

__global__ void GROUP(256) scan_add(u32 *data, const u32 *sums, u32 n)
{
	u32 i = global_x();

	if (group_x() && i < n)
		data[i] += sums[group_x() - 1];
}

// Square matrices of n by n, n a multiple of 16; work-groups of 16 by 16.
__global__ void GROUP(256) gemm(float *c, const float *a, const float *b, u32 n)
{
	__shared__ float left[16][17], right[16][17];
	u32 x = local_x(), y = local_y(), row = group_y() * 16 + y, column = group_x() * 16 + x;
	float sum = 0;

	for (u32 k = 0; k < n; k += 16) {
		left[y][x] = a[row * n + k + x];
		right[y][x] = b[(k + y) * n + column];
		sync();
		for (u32 i = 0; i < 16; i++)
			sum += left[y][i] * right[i][x];
		sync();
	}
	c[row * n + column] = sum;
}

#ifdef __gfx90a__
typedef float float4 __attribute__((ext_vector_type(4)));

// As gemm, a wave for each 16 by 16.
__global__ void GROUP(64) gemm_mfma(float *c, const float *a, const float *b, u32 n)
{
	u32 i = lane() % 16, k = lane() / 16, row = group_y() * 16, column = group_x() * 16;
	float4 sum = { 0, 0, 0, 0 };

	for (u32 at = k; at < n; at += 4)
		sum = __builtin_amdgcn_mfma_f32_16x16x4f32(a[(row + i) * n + at], b[at * n + column + i], sum, 0, 0, 0);
	for (u32 j = 0; j < 4; j++)
		c[(row + 4 * k + j) * n + column + i] = sum[j];
}
#endif

// Every lane's loop has a length of its own.
__global__ void GROUP(256) collatz(u32 *steps, u32 n)
{
	u32 i = global_x(), count = 0;

	if (i >= n)
		return;
	for (u64 value = i + 1; value != 1; count++) {
		if (value % 2)
			value = 3 * value + 1;
		else
			value /= 2;
		if (count == 1000)
			break;
	}
	steps[i] = count;
}

__device__ NOINLINE u32 tree(u32 depth, u32 seed)
{
	u32 own[4];

	for (u32 i = 0; i < 4; i++)
		own[i] = seed * (i + 1) + depth;
	if (!depth)
		return own[seed % 4];
	return tree(depth - 1, own[seed % 4]) + tree(depth - 1, own[(seed + 1) % 4]) + own[(seed + 2) % 4];
}

__global__ void GROUP(64) recursion(u32 *out, u32 depth)
{
	u32 i = global_x();

	out[i] = tree(depth + i % 3, i);
}

// 16 KiB of private memory for each work-item, in an order that none can foresee.
__global__ void GROUP(64) scratch(u32 *out, u32 step)
{
	u32 own[4096], i = global_x(), sum = 0;

	for (u32 n = 0; n < 4096; n++)
		own[(n * step) % 4096] = n ^ i;
	for (u32 n = 0; n < 4096; n += 64)
		sum = sum * 31 + own[(n + i) % 4096];
	out[i] = sum;
}

// With the CPU at the same time.
__global__ void GROUP(64) shared_counters(u64 *integer, float *single, double *twice, u32 rounds)
{
	for (u32 i = 0; i < rounds; i++) {
		add_to_system(integer, (u64)3 << 20);
		add_to_system(single, 1.0f);
		add_to_system(twice, 0.5);
	}
}

__global__ void GROUP(256) many(u32 *out, u32 n)
{
	u32 i = global_x(), x = i;

	if (i >= n)
		return;
	x ^= x >> 16;
	x *= 0x7feb352d;
	x ^= x >> 15;
	x *= 0x846ca68b;
	x ^= x >> 16;
	out[i] = x;
}

// A step that depends on all steps before it.
__global__ void GROUP(256) step(u32 *data, u32 n, u32 round)
{
	u32 i = global_x();

	if (i < n)
		data[i] = data[i] * 3 + round;
}

// Group memory that the launch sizes.
__global__ void GROUP(256) reverse(u32 *data)
{
	extern __shared__ u32 dynamic[];
	u32 t = local_x(), at = group_x() * size_x();

	dynamic[t] = data[at + t];
	sync();
	data[at + t] = dynamic[size_x() - 1 - t];
}

// A queue that takes AQL packets, in the hands of kernels.
struct target {
	u64 *write, *read;
	u32 *ring;
	u64 packets, *doorbell;
};

// Each work-group puts one packet into the queue: a place by the write index, the header last, the doorbell. It waits for
// room; work-items of one wave could not, since those that have room would wait for the others.
__global__ void GROUP(64) enqueue(const struct target *to, const u32 *packets)
{
	const u32 *packet = packets + 16 * group_x();

	if (local_x())
		return;
	u64 index = add_to_system(to->write, (u64)1);
	while (index - __hip_atomic_load(to->read, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM) >= to->packets)
		__builtin_amdgcn_s_sleep(1);
	u32 *place = to->ring + index % to->packets * 16;
	for (u32 i = 1; i < 16; i++)
		place[i] = packet[i];
	__hip_atomic_store(place, packet[0], __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
	__hip_atomic_store(to->doorbell, index, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}

__global__ void GROUP(64) visit(u32 *visits, u32 n)
{
	add_to_system(&visits[n], 1u);
}

} // extern "C"
