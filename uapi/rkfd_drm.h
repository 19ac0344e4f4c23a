/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * The native interface of rkfd, on the render nodes of its GPUs. Documentation/uapi.md explains each call, and which
 * errno has which cause.
 *
 * Every open of a render node is an address space of the GPU with its own buffers, queues, doorbells and events. It
 * does not depend on the process, and nothing here needs /dev/kfd.
 *
 * Rules for all calls: unknown flags, unknown numbers and padding that is not 0 are EINVAL. The layout is the same for
 * 32-bit programs. The size of an argument is in the number of the call: a program may send an older, shorter form, and
 * fields that it does not send are 0.
 */
#ifndef RKFD_DRM_H
#define RKFD_DRM_H

#include <drm/drm.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* Version of this interface, in drm_rkfd_device. Larger versions only add. */
#define DRM_RKFD_VERSION 6

#define DRM_RKFD_QUERY 0x40
#define DRM_RKFD_BO_CREATE 0x41
#define DRM_RKFD_BO_INFO 0x42
#define DRM_RKFD_BIND 0x43
#define DRM_RKFD_QUEUE_CREATE 0x44
#define DRM_RKFD_QUEUE_UPDATE 0x45
#define DRM_RKFD_QUEUE_DESTROY 0x46
#define DRM_RKFD_EVENT_CREATE 0x47
#define DRM_RKFD_EVENT_DESTROY 0x48
#define DRM_RKFD_WAIT 0x49
#define DRM_RKFD_FAULTS 0x4a
#define DRM_RKFD_MIRROR_CREATE 0x4b
#define DRM_RKFD_MIRROR_DESTROY 0x4c
#define DRM_RKFD_MIRROR_QUERY 0x4d
#define DRM_RKFD_MIRROR_POPULATE 0x4e
#define DRM_RKFD_MIRROR_MIGRATE 0x4f

/* QUERY: what is asked for. */
#define DRM_RKFD_QUERY_DEVICE 0 /* struct drm_rkfd_device */
#define DRM_RKFD_QUERY_HEAPS 1 /* struct drm_rkfd_heap, one per heap */

struct drm_rkfd_query {
	__u32 what;
	__u32 flags; /* 0 */
	__u64 data; /* in: where the answer goes */
	__u32 size; /* in: bytes there; out: bytes of the whole answer */
	__u32 pad;
};

/* Features. */
#define DRM_RKFD_FEATURE_QUEUES_TAKE_TURNS 0x1 /* Queues that find no place on the hardware wait for one. */
#define DRM_RKFD_FEATURE_MIGRATION 0x2 /* Memory of mirrors can be in VRAM; see MIRROR_MIGRATE. */
#define DRM_RKFD_FEATURE_MOVES_BY_ACCESS 0x4 /* Accesses move memory as hints say; see MIRROR_MIGRATE, KEEP. */

struct drm_rkfd_device {
	__u32 version; /* DRM_RKFD_VERSION of the driver */
	__u32 features;
	__u32 gfx_target; /* major * 10000 + minor * 100 + stepping */
	__u32 pci_device;
	__u32 pci_revision;
	__u32 compute_units;
	__u32 wave_size; /* lanes */
	__u32 xccs;
	__u64 va_start; /* first GPU address that can be bound */
	__u64 va_end; /* first one above */
	__u64 page_sizes; /* bit n: leaves of 2^n bytes */
	__u64 clock_hz; /* of the GPU's time stamps */
	__u32 sdma_engines; /* that can be named in drm_rkfd_queue_create */
	__u32 sdma_general; /* those among them, from 0 on, that any queue may get */
	__u32 sdma_queues; /* queues of one engine */
	__u32 max_queues; /* queues of one file */
	__u32 doorbell_bytes; /* size of the doorbell mapping of a file */
	__u32 eop_bytes; /* smallest end-of-pipe buffer */
	__u32 save_bytes; /* smallest save_size of a compute queue */
	__u32 ctl_stack_bytes; /* its ctl_stack_size */
	__u32 debug_bytes; /* what the save area must have behind save_size */
	__u32 max_binds; /* longest list of BIND */
};

#define DRM_RKFD_HEAP_NONE 0
#define DRM_RKFD_HEAP_VRAM 1
#define DRM_RKFD_HEAP_SYSTEM 2

struct drm_rkfd_heap {
	__u32 heap;
	__u32 flags; /* 0 */
	__u64 total; /* bytes that buffers can have in all */
	__u64 used; /* by all programs */
	__u64 cpu_visible; /* of the total */
};

/* BO_CREATE: for what. */
#define DRM_RKFD_BO_COHERENT 0x1 /* Caches keep to what others write while a kernel runs. */
#define DRM_RKFD_BO_UNCACHED 0x2 /* Never cached. */
#define DRM_RKFD_BO_CONTIGUOUS 0x4 /* In VRAM: one block. */
#define DRM_RKFD_BO_CPU_ACCESS 0x8 /* In VRAM: where the CPU can map it. All VRAM is, today. */

struct drm_rkfd_bo_create {
	__u64 size; /* in: bytes; out: rounded up to pages */
	__u32 heap; /* DRM_RKFD_HEAP_* */
	__u32 fallback; /* where the first has no room; DRM_RKFD_HEAP_NONE: nowhere */
	__u32 flags; /* DRM_RKFD_BO_* */
	__u32 handle; /* out: for DRM_IOCTL_GEM_CLOSE and DRM_IOCTL_PRIME_HANDLE_TO_FD, too */
	__u64 mmap_offset; /* out: where the CPU maps it on this file */
};

struct drm_rkfd_bo_info {
	__u32 handle;
	__u32 pad;
	__u32 heap; /* out: where it is now */
	__u32 flags; /* out: DRM_RKFD_BO_* */
	__u64 size; /* out */
	__u64 mmap_offset; /* out */
	__u64 ranges; /* out: in how many ranges of this file's address space it is */
};

/* BIND: what becomes of a range. */
#define DRM_RKFD_BIND_UNMAP 0
#define DRM_RKFD_BIND_MAP 1 /* shows a part of a buffer */
#define DRM_RKFD_BIND_MAP_USER 2 /* shows memory of the caller; from version 2 on */

/* What the GPU may do in the range beside reading. */
#define DRM_RKFD_BIND_WRITE 0x1
#define DRM_RKFD_BIND_EXECUTE 0x2

struct drm_rkfd_bind_op {
	__u32 op; /* DRM_RKFD_BIND_UNMAP, … */
	__u32 flags; /* DRM_RKFD_BIND_WRITE, …; 0 to unmap */
	__u64 address; /* GPU address, a multiple of 4 KiB */
	__u64 length; /* bytes, a multiple of 4 KiB */
	__u64 offset; /* first byte in the buffer, or of the caller's memory, a multiple of 4 KiB; 0 to unmap */
	__u32 handle; /* of the buffer; else 0 */
	__u32 pad;
};

#define DRM_RKFD_BIND_NO_OP 0xffffffffu

struct drm_rkfd_bind {
	__u64 ops; /* array of struct drm_rkfd_bind_op */
	__u32 count; /* 1 to max_binds */
	__u32 stride; /* sizeof(struct drm_rkfd_bind_op) */
	__u32 flags; /* 0 */
	__u32 failed; /* out: the operation at fault, or DRM_RKFD_BIND_NO_OP */
};

/* QUEUE_CREATE. */
#define DRM_RKFD_QUEUE_PM4 0 /* compute, PM4 packets */
#define DRM_RKFD_QUEUE_AQL 1 /* compute, AQL packets */
#define DRM_RKFD_QUEUE_SDMA 2
#define DRM_RKFD_ENGINE_ANY 0xffffffffu

struct drm_rkfd_queue_create {
	__u32 type; /* DRM_RKFD_QUEUE_* */
	__u32 flags; /* 0 */
	/* GPU addresses. What lies there stays bound, and cannot be replaced, while the queue lives. */
	__u64 ring; /* a multiple of 256 */
	__u64 read_pointer; /* 64 bits; the page is the queue's */
	__u64 write_pointer; /* 64 bits; the page is the queue's */
	__u64 eop; /* end-of-pipe buffer of a compute queue; 0: none */
	__u64 save; /* save area of a compute queue */
	__u32 ring_size; /* bytes, a power of two from 1024 on */
	__u32 eop_size; /* bytes */
	__u32 save_size; /* bytes */
	__u32 ctl_stack_size; /* bytes */
	__u32 engine; /* of an SDMA queue: a number, or DRM_RKFD_ENGINE_ANY; else 0 */
	__u32 percentage; /* 0 to 100; 0: the queue does not run */
	__u32 priority; /* 0 to 15 */
	__u32 id; /* out */
	__u32 doorbell; /* out: byte in the doorbell mapping */
	__u32 pad;
	__u64 doorbell_map; /* out: where the file maps its doorbells, doorbell_bytes of them */
};

/* QUEUE_UPDATE: which fields count. */
#define DRM_RKFD_UPDATE_RING 0x1
#define DRM_RKFD_UPDATE_PERCENTAGE 0x2
#define DRM_RKFD_UPDATE_PRIORITY 0x4
#define DRM_RKFD_UPDATE_CU_MASK 0x8

struct drm_rkfd_queue_update {
	__u32 id;
	__u32 flags; /* DRM_RKFD_UPDATE_*, at least one */
	__u64 ring;
	__u32 ring_size;
	__u32 percentage;
	__u32 priority;
	__u32 cu_count; /* bits in cu_mask, a multiple of 32, at most 1024 */
	__u64 cu_mask; /* array of __u32 */
};

struct drm_rkfd_queue_destroy {
	__u32 id;
	__u32 pad;
};

/* EVENT_CREATE: when the eventfd is signalled. */
#define DRM_RKFD_EVENT_SIGNAL 0 /* an interrupt carries the slot as its context id */
#define DRM_RKFD_EVENT_FAULT 1 /* an access was refused; see FAULTS */
#define DRM_RKFD_EVENT_QUEUE 2 /* a queue failed, or hung and was reset */
#define DRM_RKFD_EVENT_RESET 3 /* the GPU lost its memory, is out of service or gone */

struct drm_rkfd_event_create {
	__s32 eventfd;
	__u32 condition; /* DRM_RKFD_EVENT_* */
	__u32 flags; /* 0 */
	__u32 slot; /* out: 1 to 4095 */
};

struct drm_rkfd_event_destroy {
	__u32 slot;
	__u32 pad;
};

/* WAIT: how a word in memory compares with the value, both masked. */
#define DRM_RKFD_WAIT_EQUAL 0
#define DRM_RKFD_WAIT_NOT_EQUAL 1
#define DRM_RKFD_WAIT_AT_LEAST 2

#define DRM_RKFD_WAIT_ALL 0x1 /* all conditions hold at once; else one suffices */
#define DRM_RKFD_WAIT_NONE 0xffffffffu

struct drm_rkfd_wait_op {
	__u64 address; /* of the caller's memory, a multiple of size */
	__u64 value;
	__u64 mask;
	__u32 compare; /* DRM_RKFD_WAIT_EQUAL, … */
	__u32 size; /* 4 or 8 bytes */
};

struct drm_rkfd_wait {
	__u64 ops; /* array of struct drm_rkfd_wait_op */
	__u64 deadline; /* nanoseconds of CLOCK_MONOTONIC */
	__u32 count; /* 1 to 4096 */
	__u32 stride; /* sizeof(struct drm_rkfd_wait_op) */
	__u32 flags;
	__u32 met; /* out: first condition that holds, or DRM_RKFD_WAIT_NONE */
};

/* FAULTS: what the GPU was about to do. */
#define DRM_RKFD_FAULT_WRITE 0x1 /* else it read */
#define DRM_RKFD_FAULT_EXECUTE 0x2
#define DRM_RKFD_FAULT_PRESENT 0x4 /* the page is bound, but not for this */

struct drm_rkfd_fault {
	__u64 address; /* first byte of the page */
	__u64 time; /* nanoseconds of CLOCK_MONOTONIC */
	__u32 access; /* DRM_RKFD_FAULT_* */
	__u32 pad;
};

struct drm_rkfd_faults {
	__u64 records; /* array of struct drm_rkfd_fault */
	__u32 count; /* in: records there; out: records that were written */
	__u32 stride; /* sizeof(struct drm_rkfd_fault) */
	__u32 flags; /* 0 */
	__u32 pad;
	__u64 dropped; /* out: faults since the last call that found no room */
};

/* MIRROR_CREATE. The calls of mirrors are there from version 2 on. */
#define DRM_RKFD_MIRROR_READ_ONLY 0x1 /* The GPU writes nothing. */
#define DRM_RKFD_MIRROR_EXECUTE 0x2
#define DRM_RKFD_MIRROR_POPULATED 0x4 /* Filled now, and without FAULT after each change, while queues wait. */
#define DRM_RKFD_MIRROR_FAULT 0x8 /* From version 3 on. Filled by accesses, which are repeated until then. */
#define DRM_RKFD_MIRROR_WHOLE 0x10 /* From version 4 on, with FAULT. All memory, each byte at its own address. */

struct drm_rkfd_mirror_create {
	__u64 address; /* of the caller's memory, a multiple of 4 KiB; 0 with WHOLE, as the next two */
	__u64 gpu_address; /* where the GPU sees it, a multiple of 4 KiB */
	__u64 length; /* bytes, a multiple of 4 KiB */
	__u32 flags; /* DRM_RKFD_MIRROR_* */
	__u32 id; /* out */
	__u64 leaf; /* out: bytes of the largest page that the two addresses allow */
};

struct drm_rkfd_mirror_destroy {
	__u32 id;
	__u32 pad;
};

struct drm_rkfd_mirror_query {
	__u32 id;
	__u32 flags; /* out: DRM_RKFD_MIRROR_* */
	__u64 address; /* out */
	__u64 gpu_address; /* out */
	__u64 length; /* out */
	__u64 bytes; /* out: that the GPU can reach now */
	__u64 huge_bytes; /* out: those of them in pages of 2 MiB */
	__u64 changes; /* out: of memory that was, or was to be, reached */
	__u64 faults; /* out, from version 3 on: accesses that memory was shown for */
	__u64 vram_bytes; /* out, from version 5 on: those of the bytes that are in VRAM of this GPU */
	__u64 hints; /* out, from version 6 on: ranges with a hint */
};

struct drm_rkfd_mirror_populate {
	__u32 id;
	__u32 flags; /* 0 */
	__u64 gpu_address; /* a multiple of 4 KiB */
	__u64 length; /* bytes, a multiple of 4 KiB */
};

/* MIRROR_MIGRATE, from version 5 on: what is asked for, at least NOW or KEEP. */
#define DRM_RKFD_MIGRATE_NOW 0x1 /* Move what is there. */
#define DRM_RKFD_MIGRATE_KEEP 0x2 /* From version 6 on. Note the place as a hint for later. */
#define DRM_RKFD_MIGRATE_FILL 0x4 /* With NOW, to VRAM: also pages where nothing is yet. */

/* Ranges of one mirror that have a hint. */
#define DRM_RKFD_MIRROR_MAX_HINTS 4096

/* Where memory is to be. */
#define DRM_RKFD_PLACE_POLICY 0 /* where the driver thinks best */
#define DRM_RKFD_PLACE_VRAM 1 /* VRAM of this GPU */
#define DRM_RKFD_PLACE_SYSTEM 2 /* system memory */
#define DRM_RKFD_PLACE_STAY 3 /* where it is */

struct drm_rkfd_mirror_migrate {
	__u32 id;
	__u32 flags; /* DRM_RKFD_MIGRATE_* */
	__u64 gpu_address; /* a multiple of 4 KiB */
	__u64 length; /* bytes, a multiple of 4 KiB */
	__u32 place; /* DRM_RKFD_PLACE_*; NOW wants one of VRAM and SYSTEM */
	__u32 granularity; /* with KEEP: log2 of the bytes that move at once, 16 to 21; 0: the driver's choice */
	__u64 moved; /* out: bytes that NOW has moved */
	__u64 stayed; /* out: bytes there that are elsewhere */
};

#define DRM_IOCTL_RKFD_QUERY DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_QUERY, struct drm_rkfd_query)
#define DRM_IOCTL_RKFD_BO_CREATE DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_BO_CREATE, struct drm_rkfd_bo_create)
#define DRM_IOCTL_RKFD_BO_INFO DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_BO_INFO, struct drm_rkfd_bo_info)
#define DRM_IOCTL_RKFD_BIND DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_BIND, struct drm_rkfd_bind)
#define DRM_IOCTL_RKFD_QUEUE_CREATE DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_QUEUE_CREATE, struct drm_rkfd_queue_create)
#define DRM_IOCTL_RKFD_QUEUE_UPDATE DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_QUEUE_UPDATE, struct drm_rkfd_queue_update)
#define DRM_IOCTL_RKFD_QUEUE_DESTROY DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_QUEUE_DESTROY, struct drm_rkfd_queue_destroy)
#define DRM_IOCTL_RKFD_EVENT_CREATE DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_EVENT_CREATE, struct drm_rkfd_event_create)
#define DRM_IOCTL_RKFD_EVENT_DESTROY DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_EVENT_DESTROY, struct drm_rkfd_event_destroy)
#define DRM_IOCTL_RKFD_WAIT DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_WAIT, struct drm_rkfd_wait)
#define DRM_IOCTL_RKFD_FAULTS DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_FAULTS, struct drm_rkfd_faults)
#define DRM_IOCTL_RKFD_MIRROR_CREATE DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_MIRROR_CREATE, struct drm_rkfd_mirror_create)
#define DRM_IOCTL_RKFD_MIRROR_DESTROY \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_MIRROR_DESTROY, struct drm_rkfd_mirror_destroy)
#define DRM_IOCTL_RKFD_MIRROR_QUERY DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_MIRROR_QUERY, struct drm_rkfd_mirror_query)
#define DRM_IOCTL_RKFD_MIRROR_POPULATE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_MIRROR_POPULATE, struct drm_rkfd_mirror_populate)
#define DRM_IOCTL_RKFD_MIRROR_MIGRATE DRM_IOWR(DRM_COMMAND_BASE + DRM_RKFD_MIRROR_MIGRATE, struct drm_rkfd_mirror_migrate)

#if defined(__cplusplus)
}
#endif

#endif
