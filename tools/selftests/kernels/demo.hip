// SPDX-License-Identifier: GPL-2.0 OR MIT
// Kernels of `rkfdctl demo hsa`, which knows what each has to leave behind. HIP without its headers.
#include "device.h"

template <typename T> __device__ inline T load(const T *at)
{
	return __hip_atomic_load(at, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}

template <typename T> __device__ inline void store(T *at, T value)
{
	__hip_atomic_store(at, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}

extern "C" {

struct node {
	struct node *next;
	u64 value;
};

struct walked {
	u64 sum, nodes;
};

// Sums the values of a list and changes each of them. `next` is relative to `base`, which is 0 where it is a pointer.
__global__ void GROUP(64) walk(u64 base, struct node *first, u64 factor, struct walked *out)
{
	struct node *at = first;
	u64 sum = 0, nodes = 0;

	while (at) {
		sum += at->value;
		at->value = at->value * factor + 1;
		nodes++;
		at = at->next ? (struct node *)((u64)at->next + base) : nullptr;
	}
	out->sum = sum;
	out->nodes = nodes;
}

// One step of a chain: each depends on all before it.
__global__ void GROUP(64) hop(u64 *value, u64 number)
{
	*value = *value * 3 + number;
}

__global__ void GROUP(64) visit(u32 *visits, u32 place)
{
	add_to_system(&visits[place], 1u);
}

// Adds to a counter at the same time as the CPU, which learns by `running` that it has begun.
__global__ void GROUP(64) count(u64 *counter, u32 *running, u32 rounds)
{
	add_to_system(running, 1u);
	for (u32 i = 0; i < rounds; i++)
		add_to_system(counter, (u64)1);
}

// Places and indices of a ring, each index in a cache line of its own.
struct ring {
	u64 written, gap1[15];
	u64 read, gap2[15];
	u64 places[];
};

__device__ inline u64 item(u64 number, u64 seed)
{
	return (number + 1) * 0x9e3779b97f4a7c15 ^ seed;
}

__global__ void GROUP(64) produce(struct ring *ring, u64 size, u64 items, u64 seed)
{
	for (u64 i = 0; i < items; i++) {
		while (i - load(&ring->read) >= size)
			__builtin_amdgcn_s_sleep(1);
		ring->places[i % size] = item(i, seed);
		store(&ring->written, i + 1);
	}
}

// Leaves a number that depends on every item and on their order.
__global__ void GROUP(64) consume(struct ring *ring, u64 size, u64 items, u64 *digest)
{
	u64 sum = 0;

	for (u64 i = 0; i < items; i++) {
		while (load(&ring->written) <= i)
			__builtin_amdgcn_s_sleep(1);
		sum = sum * 31 + ring->places[i % size];
		store(&ring->read, i + 1);
	}
	*digest = sum;
}

} // extern "C"
