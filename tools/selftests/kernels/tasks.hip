// SPDX-License-Identifier: GPL-2.0 OR MIT
// Kernels of `rkfdctl demo gpu-tasks` and `rkfdctl bench tasks`, which know what each has to leave behind. HIP without
// its headers.
#include "device.h"
#include "rkfd_tasks.h"

// Functions of the program, as it has them.
enum { NOTE = 1, MIX = 2, TWICE = 3, BELL = 4, NO_SUCH = 99 };

__device__ inline u64 mix(u64 a, u64 b)
{
	return (a * 31 + b + 1) * 0x9e3779b97f4a7c15;
}

struct note {
	u64 producer, number, check;
};

struct pair {
	u64 a, b;
};

extern "C" {

// Sizes and offsets, for the program to compare with its own.
__global__ void GROUP(64) layout(u64 *out)
{
	u32 n = 0;

	out[n++] = sizeof(struct rkfd_tasks);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, lanes);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, segment);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, event);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, mailbox);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, rings);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, slots);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, cells);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, bytes);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, sleeping);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, closed);
	out[n++] = __builtin_offsetof(struct rkfd_tasks, refused);
	out[n++] = sizeof(struct rkfd_task_ring);
	out[n++] = __builtin_offsetof(struct rkfd_task_ring, head);
	out[n++] = __builtin_offsetof(struct rkfd_task_slot, function);
	out[n++] = __builtin_offsetof(struct rkfd_task_slot, future);
	out[n++] = __builtin_offsetof(struct rkfd_task_slot, then);
	out[n++] = __builtin_offsetof(struct rkfd_task_slot, arguments);
	out[n++] = sizeof(struct rkfd_task_cell);
	out[n++] = __builtin_offsetof(struct rkfd_task_cell, value);
}

// Each work-item hands tasks over, of both priorities in turn, until it has `count` of them or finds no room. It leaves
// how many.
__global__ void GROUP(256) notes(struct rkfd_tasks *tasks, u64 first, u32 count, u32 tries, u32 *handed)
{
	u64 producer = first + global_x();
	u32 n = 0;

	for (; n < count; n++) {
		struct note args = { producer, n, mix(producer, n) };

		if (RKFD_TASK(tasks, n & 1, NOTE, args, 0, tries) != RKFD_TASK_OK)
			break;
	}
	handed[global_x()] = n;
}

// Each work-item asks for values, one after the other, and waits for each. It leaves what it made of them, and the last
// answer.
__global__ void GROUP(256) ask(struct rkfd_tasks *tasks, u32 rounds, u32 tries, u64 *out)
{
	u64 sum = 0;
	u32 answer = RKFD_TASK_OK;

	for (u32 n = 0; n < rounds && answer == RKFD_TASK_OK; n++) {
		struct pair args = { global_x(), n };
		rkfd_future future;
		u64 value = 0;

		answer = RKFD_TASK(tasks, RKFD_TASK_HIGH, MIX, args, &future, tries);
		if (answer == RKFD_TASK_OK)
			answer = rkfd_future_wait(tasks, future, tries, &value);
		sum = sum * 31 + value;
	}
	out[2 * global_x()] = sum;
	out[2 * global_x() + 1] = answer;
}

// Each work-item asks, works, and then looks: it leaves its own work, the value, and the last answer.
__global__ void GROUP(256) go_on(struct rkfd_tasks *tasks, u32 work, u32 tries, u64 *out)
{
	struct pair args = { global_x(), 7 };
	rkfd_future future;
	u64 own = global_x(), value = 0;
	u32 answer = RKFD_TASK_THEN(tasks, RKFD_TASK_LOW, MIX, TWICE, args, &future, tries);

	for (u32 i = 0; i < work; i++)
		own = mix(own, i);
	if (answer == RKFD_TASK_OK)
		answer = rkfd_future_wait(tasks, future, tries, &value);
	out[3 * global_x()] = own;
	out[3 * global_x() + 1] = value;
	out[3 * global_x() + 2] = answer;
}

// Work-items of a wave that go different ways, each of which hands tasks over and waits, as often as it likes.
__global__ void GROUP(256) branches(struct rkfd_tasks *tasks, u64 first, u32 tries, u64 *out)
{
	u32 i = global_x(), answer = RKFD_TASK_OK;
	u64 sum = 0, value = 0;

	for (u32 n = 0; n < 1 + i % 5 && answer == RKFD_TASK_OK; n++) {
		if ((i + n) % 4 == 0) {
			struct note args = { first + i, n, mix(first + i, n) };

			answer = RKFD_TASK(tasks, i & 1, NOTE, args, 0, tries);
		} else if ((i + n) % 4 == 1) {
			struct pair args = { i, n };
			rkfd_future future;

			answer = RKFD_TASK(tasks, RKFD_TASK_LOW, MIX, args, &future, tries);
			if (answer == RKFD_TASK_OK)
				answer = rkfd_future_wait(tasks, future, tries, &value);
			sum += value;
		} else if ((i + n) % 4 == 2) {
			struct pair args = { i, n };
			rkfd_future future;

			answer = RKFD_TASK_THEN(tasks, RKFD_TASK_HIGH, MIX, TWICE, args, &future, tries);
			if (answer == RKFD_TASK_OK)
				answer = rkfd_future_wait(tasks, future, tries, &value);
			sum += value;
		} else {
			struct pair one = { i, n }, two = { n, i };
			rkfd_future early, late;

			answer = RKFD_TASK(tasks, RKFD_TASK_LOW, MIX, one, &early, tries);
			if (answer == RKFD_TASK_OK) {
				answer = RKFD_TASK(tasks, RKFD_TASK_HIGH, MIX, two, &late, tries);
				if (answer == RKFD_TASK_OK) {
					answer = rkfd_future_wait(tasks, late, tries, &value);
					sum += value;
				}
				if (answer == RKFD_TASK_OK)
					answer = rkfd_future_wait(tasks, early, tries, &value);
				sum += value;
			}
		}
	}
	out[2 * i] = sum;
	out[2 * i + 1] = answer;
}

// What no kernel should do, by one work-item: tasks that nobody takes, a task with a length and a future that are made
// up, and a slot with a state that it cannot have.
__global__ void GROUP(64) wrong(struct rkfd_tasks *tasks, u32 tries, u64 *out)
{
	struct pair args = { 1, 2 };
	rkfd_future future;
	u64 reason = 0;

	out[0] = RKFD_TASK(tasks, RKFD_TASK_LOW, NO_SUCH, args, &future, tries);
	out[1] = rkfd_future_wait(tasks, future, tries, &reason);
	out[2] = reason;
	out[3] = RKFD_TASK(tasks, RKFD_TASK_LOW, NOTE, args, &future, tries);
	out[4] = rkfd_future_wait(tasks, future, tries, &reason);
	out[5] = reason;
	u64 words[1] = { 0 };
	out[6] = rkfd_task_submit(tasks, 0, RKFD_TASK_LOW, NOTE, 0, words, 1u << 20, 0, 0, tries);

	struct rkfd_task_ring *ring = (struct rkfd_task_ring *)((u64)tasks + tasks->rings);
	u64 place = RKFD_LOAD(&ring->tail, __ATOMIC_RELAXED);
	struct rkfd_task_slot *slot =
		(struct rkfd_task_slot *)((u64)tasks + tasks->slots + (place & (tasks->depth - 1)) * tasks->segment);
	slot->function = MIX;
	slot->bytes = ~0u;
	slot->future = 0x1234567800000001;
	slot->then = 0;
	RKFD_ADD(&ring->tail, (u64)1);
	RKFD_STORE(&slot->state, place << RKFD_SLOT_POSITION_SHIFT | RKFD_SLOT_READY, __ATOMIC_RELEASE);
	rkfd_wake(tasks);
	// The ring of the other priority: its next place.
	ring++;
	place = RKFD_LOAD(&ring->tail, __ATOMIC_RELAXED);
	slot = (struct rkfd_task_slot *)((u64)tasks + tasks->slots + (u64)tasks->depth * tasks->segment +
					 (place & (tasks->depth - 1)) * tasks->segment);
	RKFD_STORE(&slot->state, 0xdeadbeefcafe0007, __ATOMIC_RELEASE);
}

// Prints a line for each work-item.
__global__ void GROUP(64) print(struct rkfd_tasks *tasks, u32 tries, u64 *out)
{
	u64 words[4] = { group_x(), local_x(), (u64)(local_x() % 2 ? "odd" : "even"),
			 __builtin_bit_cast(u64, 0.25 * local_x()) };

	out[global_x()] = rkfd_print(tasks, (u64)"group %u, work-item %2u: %-4s %.2f\n", words, 4, tries);
}

// Each work-item has its piece of a file read, and leaves the answer, the bytes that there were, and their sum as it
// finds them in memory.
__global__ void GROUP(64) read(struct rkfd_tasks *tasks, u64 file, u8 *to, u64 piece, u32 tries, u64 *out)
{
	u32 i = global_x();
	u64 got = 0, sum = 0;
	u32 answer = rkfd_read(tasks, file, i * piece, (u64)(to + i * piece), piece, &got, tries);

	if (answer == RKFD_TASK_OK)
		for (u64 n = 0; n < got; n++)
			sum = sum * 31 + to[i * piece + n];
	out[3 * i] = answer;
	out[3 * i + 1] = got;
	out[3 * i + 2] = sum;
}

// Each work-item allocates, fills, and leaves the answer and the address. An odd one gives its memory back at once.
__global__ void GROUP(64) allocate(struct rkfd_tasks *tasks, u32 tries, u64 *out)
{
	u32 i = global_x();
	u64 address = 0, bytes = 0;
	u32 answer = rkfd_allocate(tasks, 64 + 8 * i, 0, &address, tries);

	if (answer == RKFD_TASK_OK) {
		u64 *own = (u64 *)address;

		for (u32 n = 0; n < 8 + i; n++)
			own[n] = mix(i, n);
		if (i % 2)
			answer = rkfd_release(tasks, address, &bytes, tries);
	}
	out[2 * i] = answer;
	out[2 * i + 1] = address;
}

// Gives back what it is told to, and leaves the answers.
__global__ void GROUP(64) release(struct rkfd_tasks *tasks, const u64 *addresses, u32 tries, u64 *out)
{
	u64 bytes = 0;

	out[2 * global_x()] = rkfd_release(tasks, addresses[global_x()], &bytes, tries);
	out[2 * global_x() + 1] = bytes;
}

// Each work-item puts a packet into a queue. Where this GPU does not reach its doorbell, a task has it rung.
__global__ void GROUP(64) push(struct rkfd_tasks *tasks, const struct rkfd_target *to, const u32 *packets, u64 number, u32 tries,
			       u64 *out)
{
	struct pair args = { number, 0 };
	u32 answer = rkfd_queue_push(to, packets + 16 * global_x(), &args.b, tries);

	if (answer == RKFD_TASK_OK && !to->doorbell)
		answer = RKFD_TASK(tasks, RKFD_TASK_HIGH, BELL, args, 0, tries);
	out[global_x()] = answer;
}

// What is pushed.
__global__ void GROUP(64) visit(u32 *visits, u32 place)
{
	add_to_system(&visits[place], 1u);
}

} // extern "C"
