/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * rkfd_tasks.h: work from kernels of a GPU to the CPU, and to queues of GPUs.
 *
 * For HIP and OpenCL C 2.0, compiled by clang for amdgcn with 64 lanes per wave; no other header is needed. The layout
 * and the rules are in Documentation/tasks.md; the CPU's side is rkfd::tasks of the user library, whose tests compare
 * every number below with its own.
 *
 * A kernel gets the address of an area (`struct rkfd_tasks`) and hands a task over by a function's number, its arguments
 * by value and, if it wants to know the end, a future:
 *
 *	struct { rkfd_u64 a, b; } args = { 1, 2 };
 *	rkfd_future f;
 *	rkfd_u64 sum;
 *
 *	if (RKFD_TASK(tasks, RKFD_TASK_LOW, ADD, args, &f, tries) == RKFD_TASK_OK &&
 *	    rkfd_future_wait(tasks, f, tries, &sum) == RKFD_TASK_OK)
 *		...
 *
 * Any lanes of a wave may call these functions, in branches that diverge as well. No lane waits for another lane of its
 * wave: what a call takes it hands over before it returns, and each wait has a bound.
 */
#ifndef RKFD_TASKS_H
#define RKFD_TASKS_H

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_CPP_VERSION__)
#define RKFD_TASKS_FN static inline __attribute__((always_inline, unused))
#define RKFD_TASKS_GLOBAL __global
typedef uint rkfd_u32;
typedef ulong rkfd_u64;
#else
#define RKFD_TASKS_FN static inline __attribute__((device, always_inline, unused))
#define RKFD_TASKS_GLOBAL
typedef unsigned int rkfd_u32;
typedef unsigned long rkfd_u64;
#endif

/* An area: header, rings of each lane and priority, their slots, cells of futures. Sizes and offsets are in bytes. */
#define RKFD_TASKS_MAGIC 0x6b736174u
#define RKFD_TASKS_VERSION 1u
/* What different sides write lies in different lines. */
#define RKFD_TASKS_LINE 128
#define RKFD_TASKS_HEADER_BYTES 512
#define RKFD_TASK_RING_BYTES 256
#define RKFD_TASK_CELL_BYTES 64
/* Bytes of a slot in front of its arguments. */
#define RKFD_TASK_SLOT_HEAD 32

#define RKFD_TASK_HIGH 0u
#define RKFD_TASK_LOW 1u
#define RKFD_TASK_PRIORITIES 2u

/* State of a slot: position << 16 | worker << 8 | phase. A producer sees FREE and stores READY, and nothing else. */
#define RKFD_SLOT_POSITION_SHIFT 16
#define RKFD_SLOT_WORKER_SHIFT 8
#define RKFD_SLOT_FREE 0u
#define RKFD_SLOT_READY 1u
#define RKFD_SLOT_TAKEN 2u

/* State of a cell: generation << 32 | phase. A future is generation << 32 | index + 1; 0 is none. */
#define RKFD_CELL_FREE 0u
#define RKFD_CELL_WAITING 1u
#define RKFD_CELL_DONE 2u
#define RKFD_CELL_FAILED 3u
#define RKFD_CELL_DROPPED 4u

/* What `closed` says. */
#define RKFD_TASKS_OPEN 0u
#define RKFD_TASKS_CLOSING 1u
#define RKFD_TASKS_ENDED 2u

/* Answers. */
#define RKFD_TASK_OK 0u		/* handed over; or the future came true */
#define RKFD_TASK_FULL 1u	/* no room in the ring, within the bound */
#define RKFD_TASK_NO_FUTURE 2u	/* all futures are in use */
#define RKFD_TASK_TOO_LONG 3u	/* more bytes of arguments than a slot has */
#define RKFD_TASK_CLOSED 4u	/* nobody takes tasks any more */
#define RKFD_TASK_FAILED 5u	/* the task failed; the value says why */
#define RKFD_TASK_PENDING 6u	/* no end within the bound; the future is still the caller's */
#define RKFD_TASK_STALE 7u	/* not a future of the caller's */

/* Why tasks fail, as the value of their future; a function's own reasons begin at 256. */
#define RKFD_FAIL_FUNCTION 1u	/* no function has this number */
#define RKFD_FAIL_BYTES 2u	/* the function does not take so many bytes */
#define RKFD_FAIL_PANIC 3u	/* the function panicked */
#define RKFD_FAIL_WORKER 4u	/* the worker died while it ran the function */
#define RKFD_FAIL_THEN 5u	/* there is no such continuation, or too many followed each other */
#define RKFD_FAIL_OWN 256u

/* Numbers of the functions of the host-call service (rkfd::tasks::host), and their own reasons. */
#define RKFD_CALL_PRINT 0xff00u
#define RKFD_CALL_READ 0xff01u
#define RKFD_CALL_ALLOCATE 0xff02u
#define RKFD_CALL_RELEASE 0xff03u
#define RKFD_FAIL_ADDRESS (RKFD_FAIL_OWN + 0u)	/* memory that the program did not offer */
#define RKFD_FAIL_FILE (RKFD_FAIL_OWN + 1u)	/* no such file */
#define RKFD_FAIL_IO (RKFD_FAIL_OWN + 2u)	/* the system's error is above: value >> 32 */
#define RKFD_FAIL_MEMORY (RKFD_FAIL_OWN + 3u)	/* no room in the heap, or not an allocation of it */
#define RKFD_FAIL_FORMAT (RKFD_FAIL_OWN + 4u)	/* a text that is none */

struct rkfd_tasks {
	rkfd_u32 magic, version;
	rkfd_u32 lanes, depth;		/* rings of each priority; slots of a ring: powers of two */
	rkfd_u32 segment, futures;	/* bytes of a slot; cells: a power of two, or 0 */
	rkfd_u32 event, number;		/* id of the workers' event; which area of the program this is */
	rkfd_u64 mailbox;		/* the event's slot; 0: nobody sleeps on one */
	rkfd_u64 rings, slots, cells;	/* offsets */
	rkfd_u64 bytes;
	rkfd_u64 gap0[7];
	rkfd_u64 sleeping, gap1[15];	/* not 0: workers sleep, and want an interrupt */
	rkfd_u64 closed, gap2[15];
	rkfd_u64 refused, gap3[15];	/* calls of kernels that found no room */
};

struct rkfd_task_ring {
	rkfd_u64 tail, gap0[15];	/* next position to be taken by a producer */
	rkfd_u64 head, gap1[15];	/* no position before it has a task that nobody took */
};

struct rkfd_task_slot {
	rkfd_u64 state;
	rkfd_u32 function, bytes;
	rkfd_u64 future;
	rkfd_u32 then, source;		/* function that follows, or 0; what the producer calls itself */
	rkfd_u64 arguments[];
};

struct rkfd_task_cell {
	rkfd_u64 state, value, gap[6];
};

typedef rkfd_u64 rkfd_future;

_Static_assert(sizeof(struct rkfd_tasks) == RKFD_TASKS_HEADER_BYTES, "header");
_Static_assert(__builtin_offsetof(struct rkfd_tasks, sleeping) == RKFD_TASKS_LINE, "sleeping");
_Static_assert(sizeof(struct rkfd_task_ring) == RKFD_TASK_RING_BYTES, "ring");
_Static_assert(__builtin_offsetof(struct rkfd_task_slot, arguments) == RKFD_TASK_SLOT_HEAD, "slot");
_Static_assert(sizeof(struct rkfd_task_cell) == RKFD_TASK_CELL_BYTES, "cell");

/*
 * Atomics of the whole system. Across PCIe there are addition, exchange and comparison with exchange, so nothing else is
 * used.
 */
#if defined(__HIP__)
#define RKFD_LOAD(at, order) __hip_atomic_load(at, order, __HIP_MEMORY_SCOPE_SYSTEM)
#define RKFD_STORE(at, value, order) __hip_atomic_store(at, value, order, __HIP_MEMORY_SCOPE_SYSTEM)
#define RKFD_ADD(at, value) __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)
#define RKFD_SWAP(at, value) __hip_atomic_exchange(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)
#define RKFD_CHANGE(at, old, value) \
	__hip_atomic_compare_exchange_strong(at, old, value, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM)
#else
#define RKFD_LOAD(at, order) __scoped_atomic_load_n(at, order, __MEMORY_SCOPE_SYSTEM)
#define RKFD_STORE(at, value, order) __scoped_atomic_store_n(at, value, order, __MEMORY_SCOPE_SYSTEM)
#define RKFD_ADD(at, value) __scoped_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)
#define RKFD_SWAP(at, value) __scoped_atomic_exchange_n(at, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)
#define RKFD_CHANGE(at, old, value) \
	__scoped_atomic_compare_exchange_n(at, old, value, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_SYSTEM)
#endif

/* Lanes that execute this now, as bits. */
RKFD_TASKS_FN rkfd_u64 rkfd_lanes(int which)
{
	return __builtin_amdgcn_ballot_w64(which != 0);
}

/* How many of them are below this one. */
RKFD_TASKS_FN rkfd_u32 rkfd_rank(rkfd_u64 lanes)
{
	return __builtin_amdgcn_mbcnt_hi((rkfd_u32)(lanes >> 32), __builtin_amdgcn_mbcnt_lo((rkfd_u32)lanes, 0));
}

/* The value that the first of them has. */
RKFD_TASKS_FN rkfd_u64 rkfd_first(rkfd_u64 value)
{
	rkfd_u32 low = (rkfd_u32)__builtin_amdgcn_readfirstlane((int)(rkfd_u32)value);
	rkfd_u32 high = (rkfd_u32)__builtin_amdgcn_readfirstlane((int)(rkfd_u32)(value >> 32));

	return (rkfd_u64)high << 32 | low;
}

/* Which CU, and so on, the wave is on: spreads waves over rings. */
RKFD_TASKS_FN rkfd_u32 rkfd_place(void)
{
	/* HW_ID without the wave's own bits: SIMD, pipe, CU, SH, SE. */
	rkfd_u32 id = (rkfd_u32)__builtin_amdgcn_s_getreg(4 | 4 << 6 | (15 - 4) << 11);

	return id ^ id >> 4;
}

/* Futures. */

RKFD_TASKS_FN RKFD_TASKS_GLOBAL struct rkfd_task_cell *rkfd_cell(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_u32 index)
{
	rkfd_u64 at = (rkfd_u64)tasks + tasks->cells + (rkfd_u64)(index & (tasks->futures - 1)) * RKFD_TASK_CELL_BYTES;

	return (RKFD_TASKS_GLOBAL struct rkfd_task_cell *)at;
}

/* Takes a future, of those from `start` on. Lanes look at different ones. 0: it found none. */
RKFD_TASKS_FN rkfd_future rkfd_future_take(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_u64 start)
{
	rkfd_u32 futures = tasks->futures, probes = futures < 256 ? futures : 256;
	rkfd_future taken = 0;

	for (rkfd_u32 probe = 0; probe < probes && !taken; probe++) {
		rkfd_u32 index = (rkfd_u32)(start + probe) & (futures - 1);
		RKFD_TASKS_GLOBAL struct rkfd_task_cell *cell = rkfd_cell(tasks, index);
		rkfd_u64 state = RKFD_LOAD(&cell->state, __ATOMIC_ACQUIRE);
		rkfd_u64 generation = (state >> 32) + 1 & 0xffffffff;

		if ((rkfd_u32)state == RKFD_CELL_FREE && RKFD_CHANGE(&cell->state, &state, generation << 32 | RKFD_CELL_WAITING))
			taken = generation << 32 | (index + 1);
	}
	return taken;
}

/* The task of a future was not handed over. */
RKFD_TASKS_FN void rkfd_future_return(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_future future)
{
	RKFD_STORE(&rkfd_cell(tasks, (rkfd_u32)future - 1)->state, future >> 32 << 32 | RKFD_CELL_FREE, __ATOMIC_RELEASE);
}

/*
 * Looks once. RKFD_TASK_PENDING: not yet. Otherwise the future is given back, and `value` is the task's, or the reason
 * for its failure.
 */
RKFD_TASKS_FN rkfd_u32 rkfd_future_look(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_future future, rkfd_u64 *value)
{
	rkfd_u32 index = (rkfd_u32)future - 1;

	if (!(rkfd_u32)future || index >= tasks->futures)
		return RKFD_TASK_STALE;
	RKFD_TASKS_GLOBAL struct rkfd_task_cell *cell = rkfd_cell(tasks, index);
	rkfd_u64 state = RKFD_LOAD(&cell->state, __ATOMIC_ACQUIRE);

	if (state >> 32 != future >> 32)
		return RKFD_TASK_STALE;
	if ((rkfd_u32)state == RKFD_CELL_WAITING)
		return RKFD_LOAD(&tasks->closed, __ATOMIC_RELAXED) == RKFD_TASKS_ENDED ? RKFD_TASK_CLOSED : RKFD_TASK_PENDING;
	if ((rkfd_u32)state != RKFD_CELL_DONE && (rkfd_u32)state != RKFD_CELL_FAILED)
		return RKFD_TASK_STALE;
	*value = RKFD_LOAD(&cell->value, __ATOMIC_RELAXED);
	rkfd_future_return(tasks, future);
	return (rkfd_u32)state == RKFD_CELL_DONE ? RKFD_TASK_OK : RKFD_TASK_FAILED;
}

/* Looks up to `tries` times, with pauses. */
RKFD_TASKS_FN rkfd_u32 rkfd_future_wait(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_future future, rkfd_u32 tries,
					rkfd_u64 *value)
{
	rkfd_u32 answer = RKFD_TASK_PENDING;

	for (rkfd_u32 i = 0; i < tries && answer == RKFD_TASK_PENDING; i++) {
		answer = rkfd_future_look(tasks, future, value);
		if (answer == RKFD_TASK_PENDING)
			__builtin_amdgcn_s_sleep(4);
	}
	return answer;
}

/* The end of the task is nobody's concern any more; the worker gives the future back. */
RKFD_TASKS_FN void rkfd_future_drop(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_future future)
{
	rkfd_u64 state = future >> 32 << 32 | RKFD_CELL_WAITING, value;

	if (!RKFD_CHANGE(&rkfd_cell(tasks, (rkfd_u32)future - 1)->state, &state, future >> 32 << 32 | RKFD_CELL_DROPPED))
		rkfd_future_look(tasks, future, &value);
}

/* Tasks. */

/* Wakes sleeping workers: once for a wave, and once for each time that they have gone to sleep. */
RKFD_TASKS_FN void rkfd_wake(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks)
{
	/* Either this sees that they sleep, or they see the task: each looks after a fence that follows its store. */
	__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
	rkfd_u64 sleeping = rkfd_first(RKFD_LOAD(&tasks->sleeping, __ATOMIC_RELAXED));

	if (!sleeping)
		return;
	if (rkfd_rank(rkfd_lanes(1)) == 0)
		sleeping = RKFD_SWAP(&tasks->sleeping, 0);
	sleeping = rkfd_first(sleeping);
	rkfd_u64 mailbox = rkfd_first(tasks->mailbox);

	if (sleeping && mailbox) {
		rkfd_u32 event = (rkfd_u32)rkfd_first(tasks->event);

		RKFD_STORE((RKFD_TASKS_GLOBAL rkfd_u64 *)mailbox, (rkfd_u64)event, __ATOMIC_RELEASE);
		__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
		__builtin_amdgcn_s_sendmsg(1, event & 0xffffff);
	}
}

/*
 * Hands tasks of those lanes over that execute this, which all have the same ring. They take places in a row with one
 * exchange: as many as are free. Who gets none is told so.
 */
RKFD_TASKS_FN rkfd_u32 rkfd_ring_put(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_u64 ring_at, rkfd_u64 slots_at,
				     rkfd_u32 function, rkfd_u32 then, const rkfd_u64 *words, rkfd_u32 bytes, rkfd_future future,
				     rkfd_u32 source)
{
	RKFD_TASKS_GLOBAL struct rkfd_task_ring *ring = (RKFD_TASKS_GLOBAL struct rkfd_task_ring *)ring_at;
	const rkfd_u64 active = rkfd_lanes(1);
	const rkfd_u32 rank = rkfd_rank(active);
	RKFD_TASKS_GLOBAL struct rkfd_task_slot *slot;
	rkfd_u64 place, tail, seen, below;
	rkfd_u32 count;
	int is_free;

	/* One that fails does so because another wave, or a thread, has succeeded. */
	do {
		tail = rkfd_first(RKFD_LOAD(&ring->tail, __ATOMIC_RELAXED));
		place = tail + rank;
		slot = (RKFD_TASKS_GLOBAL struct rkfd_task_slot *)(slots_at + (place & (tasks->depth - 1)) * tasks->segment);
		is_free = RKFD_LOAD(&slot->state, __ATOMIC_ACQUIRE) == place << RKFD_SLOT_POSITION_SHIFT;
		/* All lanes below the first whose place is not free. */
		below = active & ~rkfd_lanes(is_free);
		below = below ? (below & (0 - below)) - 1 : ~0ul;
		count = (rkfd_u32)__builtin_popcountl(active & below);
		if (!count)
			return RKFD_TASK_FULL;
		seen = tail;
		if (rank == 0)
			RKFD_CHANGE(&ring->tail, &seen, tail + count);
		seen = rkfd_first(seen);
	} while (seen != tail);
	if (rank < count) {
		slot->function = function;
		slot->bytes = bytes;
		slot->future = future;
		slot->then = then;
		slot->source = source;
		for (rkfd_u32 i = 0; i < (bytes + 7) / 8; i++)
			slot->arguments[i] = words[i];
		RKFD_STORE(&slot->state, place << RKFD_SLOT_POSITION_SHIFT | RKFD_SLOT_READY, __ATOMIC_RELEASE);
	}
	rkfd_wake(tasks);
	return rank < count ? RKFD_TASK_OK : RKFD_TASK_FULL;
}

/*
 * Hands a task over: `function` with `bytes` bytes of arguments; `then`, if not 0, follows it with its value as input.
 * `lane` chooses one of the area's rings of that priority. Where `future` is not null, it is the caller's until
 * rkfd_future_look has told its end. A full ring is looked at `tries` times.
 */
RKFD_TASKS_FN rkfd_u32 rkfd_task_submit(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_u32 lane, rkfd_u32 priority,
					rkfd_u32 function, rkfd_u32 then, const rkfd_u64 *words, rkfd_u32 bytes, rkfd_future *future,
					rkfd_u32 source, rkfd_u32 tries)
{
	rkfd_u32 answer = RKFD_TASK_FULL;
	rkfd_future taken = 0;
	const rkfd_u64 index = (lane & (tasks->lanes - 1)) * RKFD_TASK_PRIORITIES + (priority ? RKFD_TASK_LOW : RKFD_TASK_HIGH);
	const rkfd_u64 ring = (rkfd_u64)tasks + tasks->rings + index * RKFD_TASK_RING_BYTES;
	const rkfd_u64 slots = (rkfd_u64)tasks + tasks->slots + index * tasks->depth * tasks->segment;

	if (bytes > tasks->segment - RKFD_TASK_SLOT_HEAD)
		return RKFD_TASK_TOO_LONG;
	if (future) {
		rkfd_u64 tail = RKFD_LOAD(&((RKFD_TASKS_GLOBAL struct rkfd_task_ring *)ring)->tail, __ATOMIC_RELAXED);

		taken = rkfd_future_take(tasks, tail + index * (tasks->futures / 2 + 1) + rkfd_rank(rkfd_lanes(1)));
		if (!taken)
			return RKFD_TASK_NO_FUTURE;
	}
	for (rkfd_u32 i = 0; i < tries && answer == RKFD_TASK_FULL; i++) {
		int todo = 1;

		if (RKFD_LOAD(&tasks->closed, __ATOMIC_RELAXED) != RKFD_TASKS_OPEN) {
			answer = RKFD_TASK_CLOSED;
			todo = 0;
		}
		/* Lanes with the same ring at a time. */
		while (rkfd_lanes(todo)) {
			if (todo && rkfd_first(ring) == ring) {
				answer = rkfd_ring_put(tasks, rkfd_first(ring), rkfd_first(slots), function, then, words, bytes, taken, source);
				todo = 0;
			}
		}
		if (answer == RKFD_TASK_FULL && i + 1 < tries)
			__builtin_amdgcn_s_sleep(16);
	}
	if (answer == RKFD_TASK_FULL)
		RKFD_ADD(&tasks->refused, (rkfd_u64)1);
	if (answer != RKFD_TASK_OK && taken)
		rkfd_future_return(tasks, taken);
	if (answer == RKFD_TASK_OK && future)
		*future = taken;
	return answer;
}

/* The same with any object as arguments, for the ring of the wave's place; with a function that follows, or without. */
#define RKFD_TASK_THEN(tasks, priority, function, then, object, future, tries)                                        \
	({                                                                                                            \
		rkfd_u64 rkfd_words_[(sizeof(object) + 7) / 8];                                                       \
		rkfd_words_[(sizeof(object) - 1) / 8] = 0;                                                            \
		__builtin_memcpy(rkfd_words_, &(object), sizeof(object));                                             \
		rkfd_task_submit(tasks, rkfd_place(), priority, function, then, rkfd_words_, sizeof(object), future, \
				 rkfd_place(), tries);                                                                \
	})
#define RKFD_TASK(tasks, priority, function, object, future, tries) \
	RKFD_TASK_THEN(tasks, priority, function, 0, object, future, tries)

/* Hands a task over whose end it waits for. */
RKFD_TASKS_FN rkfd_u32 rkfd_task_call(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_u32 function, const rkfd_u64 *words,
				      rkfd_u32 bytes, rkfd_u64 *value, rkfd_u32 tries)
{
	rkfd_future future = 0;
	rkfd_u32 answer = rkfd_task_submit(tasks, rkfd_place(), RKFD_TASK_HIGH, function, 0, words, bytes, &future, rkfd_place(), tries);

	return answer == RKFD_TASK_OK ? rkfd_future_wait(tasks, future, tries, value) : answer;
}

/* The host-call service. */

/*
 * Prints a line: `format` is the address of a text in the program's memory, with conversions as printf has them; each word
 * is one argument: an integer, the bits of a double, or the address of a text.
 */
RKFD_TASKS_FN rkfd_u32 rkfd_print(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_u64 format, const rkfd_u64 *arguments,
				  rkfd_u32 count, rkfd_u32 tries)
{
	rkfd_u64 words[16];

	if (count > 15)
		return RKFD_TASK_TOO_LONG;
	words[0] = format;
	for (rkfd_u32 i = 0; i < count; i++)
		words[i + 1] = arguments[i];
	return rkfd_task_submit(tasks, rkfd_place(), RKFD_TASK_LOW, RKFD_CALL_PRINT, 0, words, 8 * (count + 1), 0, rkfd_place(), tries);
}

/* Reads up to `bytes` bytes at `offset` of a file that the program offers by a number; `got` is how many there were. */
RKFD_TASKS_FN rkfd_u32 rkfd_read(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_u64 file, rkfd_u64 offset, rkfd_u64 to,
				 rkfd_u64 bytes, rkfd_u64 *got, rkfd_u32 tries)
{
	const rkfd_u64 words[4] = { file, offset, to, bytes };

	return rkfd_task_call(tasks, RKFD_CALL_READ, words, sizeof(words), got, tries);
}

/* Memory of the program's heap that CPU and GPU see at one address. */
RKFD_TASKS_FN rkfd_u32 rkfd_allocate(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_u64 bytes, rkfd_u64 align,
				     rkfd_u64 *address, rkfd_u32 tries)
{
	const rkfd_u64 words[2] = { bytes, align };

	return rkfd_task_call(tasks, RKFD_CALL_ALLOCATE, words, sizeof(words), address, tries);
}

/* Gives it back. */
RKFD_TASKS_FN rkfd_u32 rkfd_release(RKFD_TASKS_GLOBAL struct rkfd_tasks *tasks, rkfd_u64 address, rkfd_u64 *bytes, rkfd_u32 tries)
{
	const rkfd_u64 words[1] = { address };

	return rkfd_task_call(tasks, RKFD_CALL_RELEASE, words, sizeof(words), bytes, tries);
}

/* Work for queues of GPUs. */

/* An AQL queue that the program leaves to kernels. */
struct rkfd_target {
	rkfd_u64 write, read;	/* addresses of its indices */
	rkfd_u64 ring, packets;	/* address, and a power of two */
	rkfd_u64 doorbell;	/* address; 0: this GPU does not reach it */
};

/*
 * Puts a packet of 16 dwords, header and all, into a queue, its header last, and rings the doorbell. `index` is its
 * place, for those who have somebody else ring. A place is taken only where there is room, for which it looks
 * `tries` times.
 */
RKFD_TASKS_FN rkfd_u32 rkfd_queue_push(const RKFD_TASKS_GLOBAL struct rkfd_target *to, const RKFD_TASKS_GLOBAL rkfd_u32 *packet,
				       rkfd_u64 *index, rkfd_u32 tries)
{
	RKFD_TASKS_GLOBAL rkfd_u64 *write = (RKFD_TASKS_GLOBAL rkfd_u64 *)to->write, *read = (RKFD_TASKS_GLOBAL rkfd_u64 *)to->read;
	rkfd_u32 answer = RKFD_TASK_FULL;

	/* All lanes stay until the last is done, so that who has a place fills it before others wait for room. */
	for (rkfd_u32 i = 0; i < tries && rkfd_lanes(answer == RKFD_TASK_FULL); i++) {
		if (answer == RKFD_TASK_FULL) {
			rkfd_u64 at = RKFD_LOAD(write, __ATOMIC_RELAXED);

			if (at - RKFD_LOAD(read, __ATOMIC_ACQUIRE) < to->packets && RKFD_CHANGE(write, &at, at + 1)) {
				RKFD_TASKS_GLOBAL rkfd_u32 *place =
					(RKFD_TASKS_GLOBAL rkfd_u32 *)(to->ring + (at & (to->packets - 1)) * 64);

				for (rkfd_u32 n = 1; n < 16; n++)
					place[n] = packet[n];
				RKFD_STORE(place, packet[0], __ATOMIC_RELEASE);
				if (to->doorbell) {
					__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
					RKFD_STORE((RKFD_TASKS_GLOBAL rkfd_u64 *)to->doorbell, at, __ATOMIC_RELEASE);
				}
				*index = at;
				answer = RKFD_TASK_OK;
			}
		}
		__builtin_amdgcn_s_sleep(1);
	}
	return answer;
}

#endif
