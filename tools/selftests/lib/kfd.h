/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What every conformance test needs of /dev/kfd: GPUs, buffers, queues, events.
 *
 * Functions that make one call return 0 or its errno, so that a test can demand either. Functions named
 * need_… end the case when they fail.
 */
#ifndef KFD_H
#define KFD_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/kfd_ioctl.h>

#include "pm4.h"
#include "tap.h"

#define PAGE 4096ul
/* How long the waits of this library last at most. */
#define WAIT_MS tap_ms(30000)
#define MAX_GPUS 16
#define DOORBELL_SLICE 8192ul
#define EVENT_PAGE_BYTES 0x8000ul
/* The kernel's ENOTSUPP, which CREATE_QUEUE lets out. */
#define KERNEL_ENOTSUPP 524

/* Bit 31 is a signed constant in the header. */
#define WRITABLE ((uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE)
#define COMMON (WRITABLE | KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE | KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE)
#define SHARED (KFD_IOC_ALLOC_MEM_FLAGS_COHERENT | KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED)
/* The combinations that the thunk uses. */
#define FLAGS_GTT (KFD_IOC_ALLOC_MEM_FLAGS_GTT | COMMON | SHARED)
#define FLAGS_USERPTR (KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | COMMON | SHARED)
#define FLAGS_VRAM (KFD_IOC_ALLOC_MEM_FLAGS_VRAM | COMMON | KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC)
#define FLAGS_VRAM_PRIVATE (KFD_IOC_ALLOC_MEM_FLAGS_VRAM | COMMON)
#define FLAGS_DOORBELL                                                                               \
	(KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL | WRITABLE | KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE |       \
	 KFD_IOC_ALLOC_MEM_FLAGS_COHERENT)
#define FLAGS_MMIO                                                                                   \
	(KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP | WRITABLE | KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE |     \
	 KFD_IOC_ALLOC_MEM_FLAGS_COHERENT)

/* One GPU, bound to this process. */
struct gpu {
	int fd; /* /dev/kfd */
	int drm; /* render node, or -1 before need_vm */
	uint32_t id;
	int index;
	struct kfd_process_device_apertures apertures;
	/* From the topology, else from the PCI id; 0 where neither tells. */
	uint32_t gfx;
	uint32_t render_minor;
	uint32_t ctl_stack_size;
	uint32_t cwsr_size;
	uint64_t debug_size; /* Behind the waves in the save area. */
	uint64_t save_total;
	uint32_t sdma_engines;
	uint32_t sdma_queues_per_engine;
	uint32_t cp_queues;
	uint64_t vram;
};

/* A buffer with its CPU mapping; `va` is 0 where there is none. */
struct bo {
	uint64_t handle;
	uint64_t va;
	uint64_t size;
	uint64_t mmap_offset;
	uint32_t flags;
};

struct queue {
	struct kfd_ioctl_create_queue_args args;
	struct bo ring, pointers, eop, save;
	volatile uint64_t *wptr, *rptr, *doorbell;
	uint64_t written; /* Units of the queue's write pointer. */
	void *slice;
};

/* The call itself: 0 or errno, never repeated. */
int kfd_call(int fd, unsigned long command, void *args);

/* Opens /dev/kfd, or ends the case. */
int need_kfd(void);

/* Whether rkfd answers, for the few cases in which it means to differ from amdkfd. */
bool is_rkfd(void);

/* GPU ids of this process, at most `max`; returns how many there are. */
unsigned int gpu_ids(int fd, uint32_t *ids, unsigned int max);

/* GPU number `index`, not yet bound. Ends the case as lacking where there is none. */
void need_gpu(struct gpu *gpu, int index);

/* As need_gpu, and binds it: render node opened, VM acquired. */
void need_vm(struct gpu *gpu, int index);

/* A further GPU over the /dev/kfd of another. */
void need_vm_of(struct gpu *gpu, int index, int fd);

int acquire_vm(const struct gpu *gpu, int drm);

/* Opens the GPU's render node, or ends the case. */
int need_render(const struct gpu *gpu);

/* A value of the GPU's topology node. */
bool topology_value(uint32_t gpu_id, const char *file, const char *key, uint64_t *value);

/* Bytes of VRAM that can be allocated. */
uint64_t available(const struct gpu *gpu);
/* … when what earlier processes had, which workers may hold for a while after their end, has come back. */
uint64_t available_settled(const struct gpu *gpu);
/* Waits until that much is there. */
void await_available(const struct gpu *gpu, uint64_t bytes);

/* Buffers. bo_alloc reserves an address, allocates and, except for PROT_NONE kinds, maps on the CPU. */
int bo_alloc(const struct gpu *gpu, struct bo *bo, uint32_t flags, uint64_t size);
/* A buffer of memory that is there already, at the same address. */
int bo_wrap(const struct gpu *gpu, struct bo *bo, uint32_t flags, void *at, uint64_t size);
int bo_map(const struct gpu *gpu, const struct bo *bo);
int bo_unmap(const struct gpu *gpu, const struct bo *bo);
int bo_free(const struct gpu *gpu, const struct bo *bo);
void need_bo(const struct gpu *gpu, struct bo *bo, uint32_t flags, uint64_t size);
void drop_bo(const struct gpu *gpu, struct bo *bo);

static inline volatile uint32_t *bo32(const struct bo *bo, uint64_t offset)
{
	return (volatile uint32_t *)(bo->va + offset);
}

static inline volatile uint64_t *bo64(const struct bo *bo, uint64_t offset)
{
	return (volatile uint64_t *)(bo->va + offset);
}

static inline uint64_t page_align(uint64_t n)
{
	return (n + PAGE - 1) & ~(PAGE - 1);
}

/* Reserves address space without backing. */
uint64_t need_address(uint64_t size, uint64_t align);

/*
 * Queues. queue_prepare makes the buffers and fills the arguments with what is right for the type, so that a
 * test can spoil one of them; queue_create makes the call and maps the doorbell.
 */
void queue_prepare(const struct gpu *gpu, struct queue *q, uint32_t type, uint32_t ring_bytes);
int queue_create(const struct gpu *gpu, struct queue *q);
/* Before the queue is created: its save area in user memory, as the thunk has it, instead of VRAM. */
void save_in_user_memory(const struct gpu *gpu, struct queue *q);
/*
 * Whether queues that find no slot take turns. The module parameter sched_policy decides, of which the
 * environment tells (KFD_SCHED_POLICY); otherwise the 25th compute queue of a GPU is ENOSPC.
 */
bool takes_turns(void);
/* Whether the driver loads queues itself (sched_policy 2): a change of a queue then leaves all others where they are. */
bool scheduled_by_driver(void);
void need_queue(const struct gpu *gpu, struct queue *q, uint32_t type);
/* How many SDMA engines can be named by their number; 0 where nothing tells. */
uint32_t sdma_numbers(const struct gpu *gpu);
/* Where queues take no turns, waits until another process gives its place up. */
void await_queue(const struct gpu *gpu, struct queue *q, uint32_t type);
int queue_destroy(const struct gpu *gpu, uint32_t id);
int queue_update(const struct gpu *gpu, const struct queue *q, uint32_t percentage, uint32_t priority);
void drop_queue(const struct gpu *gpu, struct queue *q);

/* Writes packets, stores the write pointer, rings the doorbell. */
void submit(struct queue *q, const struct packets *p);
void ring_doorbell(const struct queue *q, uint64_t value);

/* Polls memory until it holds `value`; ends the case if it does not within the case's patience. */
void await32(volatile uint32_t *address, uint32_t value, const char *what);
void await64(volatile uint64_t *address, uint64_t value, const char *what);
/* Polls until the GPU read everything submitted. */
void await_drained(const struct queue *q);

/* Events. The first of a process needs the slot page, which need_event makes. */
struct event {
	uint32_t id;
	uint32_t slot;
	uint64_t slot_va;
};

int event_create(const struct gpu *gpu, uint32_t type, bool auto_reset, uint64_t page, struct event *ev);
void need_event(const struct gpu *gpu, bool auto_reset, struct event *ev);
int event_set(const struct gpu *gpu, uint32_t id);
int event_reset(const struct gpu *gpu, uint32_t id);
int event_destroy(const struct gpu *gpu, uint32_t id);

struct waited {
	uint32_t result;
	uint32_t timeout_left;
};

/* WAIT_EVENTS on entries of the caller's. */
int event_wait_data(const struct gpu *gpu, struct kfd_event_data *data, uint32_t n, bool all, uint32_t ms,
		    struct waited *out);
/* … on ids, without ages. Repeats after a Unix signal. */
int event_wait(const struct gpu *gpu, const uint32_t *ids, uint32_t n, bool all, uint32_t ms, struct waited *out);

/* Whether a wait for this event alone would be over (KFD_IOC_WAIT_RESULT_*); an auto-reset signal is taken. */
uint32_t event_poll(const struct gpu *gpu, uint32_t id);

/* Monotonic time in milliseconds. */
uint64_t now_ms(void);

/* Waits until a thread of this process, which has left its number here, sleeps in the kernel. */
void await_sleep(const volatile pid_t *tid);
/* pthread_join, but for a thread that does not end, which is `what`. */
void join_in_time(pthread_t thread, const char *what);

/* Runs a function in a child process and returns its exit status (negative: signal number). */
int in_child(void (*run)(void *), void *context);

/*
 * A child that is to be met in the middle of something: `act` gets as far as the case wants it, calls say_ready and
 * goes on; it does not return. The call is over when the child is ready, and ends the case where that never is.
 */
pid_t start_child(void (*act)(int ready));
void say_ready(int ready);
/* Kills a child, and demands that it lived until then. */
void kill_child(pid_t pid);

/* The descriptor of an open file, through a socket to another process. */
void send_fd(int to, int fd);
int receive_fd(int from);

/* Ends the case because a child did not get as far as it should: skipped if the child skipped, else failed. */
void child_gave_up(pid_t pid) __attribute__((noreturn));

#endif
