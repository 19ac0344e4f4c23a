/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The user library of rkfd for C: GPUs, memory, queues, events, signals, compiled kernels and tasks of these over
 * /dev/kfd, and address spaces by render nodes alone. Kernels that hand tasks over include rkfd_tasks.h.
 *
 * Functions that can fail return 0 or a negative errno; rkfd_last_error() tells more. Each says how it goes with threads,
 * in the terms of attributes(7): what is MT-Safe may be called from any thread at any time, but for handles that are being
 * given back. A child of fork must not use its parent's handles.
 *
 * Structures begin with their size: the caller sets it to sizeof before each call, and they may grow.
 *
 * Link with librkfd.so, or with librkfd.a and -lgcc_s -ldl -lm (before glibc 2.34 -lpthread, too).
 *
 * Generated from the Rust sources by tools/rkfd-c/tests/header.rs; edit those.
 */

#ifndef RKFD_H
#define RKFD_H

#include <stdint.h>

/**
 * Major version that the header is of. A program that was compiled with version N.m, N being 1 or more, is linked to
 * librkfd.so.N and runs with N.m and any later N.x. While N is 0 any minor version may change anything: such a program is
 * linked to librkfd.so.0.m, and runs with 0.m alone.
 */
#define RKFD_VERSION_MAJOR 0

/**
 * Minor version that the header is of: functions and fields were added since a lower one, and changed where the major
 * version is 0.
 */
#define RKFD_VERSION_MINOR 9

/**
 * VRAM that the CPU can reach, too.
 */
#define RKFD_BUFFER_VRAM 0

/**
 * VRAM for the GPU alone.
 */
#define RKFD_BUFFER_VRAM_PRIVATE 1

/**
 * System memory of the kernel.
 */
#define RKFD_BUFFER_GTT 2

/**
 * Anonymous memory of the process. (rkfd_buffer_wrap takes memory that is there already.)
 */
#define RKFD_BUFFER_USERPTR 3

/**
 * The doorbells that the process has on the GPU, RKFD_DOORBELL_BYTES of them. The CPU and packets or kernels of the GPU ring
 * that of a queue, which is at `doorbell_offset` of struct rkfd_queue_info, by a store of 8 bytes. Nobody reads them.
 */
#define RKFD_BUFFER_DOORBELL 4

/**
 * The page of registers that the driver lets programs write to, RKFD_MMIO_REMAP_BYTES: a store of 4 bytes to its start, by
 * the CPU or the GPU, flushes the host data path, so that what the CPU stored to VRAM before is there for the GPU. Nobody
 * reads it.
 */
#define RKFD_BUFFER_MMIO_REMAP 5

/**
 * Bytes of RKFD_BUFFER_DOORBELL.
 */
#define RKFD_DOORBELL_BYTES 8192

/**
 * Bytes of RKFD_BUFFER_MMIO_REMAP.
 */
#define RKFD_MMIO_REMAP_BYTES 4096

/**
 * Coarse-grained: what the GPU wrote is seen when its packet has ended and released it, no earlier.
 */
#define RKFD_COHERENCE_PACKETS 0

/**
 * Fine-grained: coherent with the CPU while packets run.
 */
#define RKFD_COHERENCE_FINE 1

/**
 * Fine-grained, with other GPUs as well.
 */
#define RKFD_COHERENCE_EXTENDED 2

/**
 * The GPU may not write to the memory.
 */
#define RKFD_BUFFER_READ_ONLY 1

/**
 * The GPU may not execute from it: waves that come there fault, with `no_execute` of struct rkfd_exception_info.
 */
#define RKFD_BUFFER_NO_EXECUTE 2

/**
 * The GPU's caches do not keep it.
 */
#define RKFD_BUFFER_UNCACHED 4

/**
 * VRAM in one piece.
 */
#define RKFD_BUFFER_CONTIGUOUS 8

/**
 * A memory access of this process's queues that no page backs or permits.
 */
#define RKFD_EXCEPTION_MEMORY 0

/**
 * A queue that hung, a GPU that was reset or is lost.
 */
#define RKFD_EXCEPTION_HARDWARE 1

/**
 * Executes PM4 packets on a compute pipe. The ring counts dwords.
 */
#define RKFD_QUEUE_PM4 0

/**
 * Executes AQL packets on a compute pipe. The ring counts packets of 64 bytes.
 */
#define RKFD_QUEUE_AQL 1

/**
 * Executes SDMA packets on a copy engine. The ring counts bytes.
 */
#define RKFD_QUEUE_SDMA 2

/**
 * An argument's bytes, as many as it has.
 */
#define RKFD_ARGUMENT_VALUE 0

/**
 * An address, 8 bytes.
 */
#define RKFD_ARGUMENT_ADDRESS 1

/**
 * Group memory (local T * of OpenCL C): what is passed is its size in bytes, a uint32_t.
 */
#define RKFD_ARGUMENT_LOCAL 2

/**
 * Memory is acquired from, or released to, the whole system.
 */
#define RKFD_SCOPE_SYSTEM 0

/**
 * The GPU alone.
 */
#define RKFD_SCOPE_AGENT 1

/**
 * Nobody.
 */
#define RKFD_SCOPE_NONE 2

/**
 * The kernel may begin while packets before it still run.
 */
#define RKFD_DISPATCH_NO_BARRIER 1

/**
 * A code or exception that this library does not know.
 */
#define RKFD_REASON_UNKNOWN 0

/**
 * A dispatch whose dimensions are 0 or too many.
 */
#define RKFD_REASON_DIMENSION 1

/**
 * A dispatch that wants more group memory than there is.
 */
#define RKFD_REASON_GROUP_MEMORY 2

/**
 * A dispatch whose code object is null or cannot be read.
 */
#define RKFD_REASON_CODE_OBJECT 3

/**
 * A packet of a type that the GPU does not run.
 */
#define RKFD_REASON_PACKET_FORMAT 4

/**
 * A dispatch whose work-group is too large.
 */
#define RKFD_REASON_WORKGROUP_SIZE 5

/**
 * A dispatch that wants more registers than there are.
 */
#define RKFD_REASON_REGISTERS 6

/**
 * A vendor packet that the GPU does not know.
 */
#define RKFD_REASON_VENDOR_PACKET 7

/**
 * A dispatch that wants more private memory than the queue has.
 */
#define RKFD_REASON_SCRATCH 8

/**
 * A wave aborted.
 */
#define RKFD_REASON_WAVE_ABORT 9

/**
 * A wave ran into a trap.
 */
#define RKFD_REASON_WAVE_TRAP 10

/**
 * A wave's arithmetic raised an exception.
 */
#define RKFD_REASON_WAVE_MATH 11

/**
 * A wave came to an instruction that does not exist.
 */
#define RKFD_REASON_ILLEGAL_INSTRUCTION 12

/**
 * A wave accessed memory that is not there.
 */
#define RKFD_REASON_MEMORY_VIOLATION 13

/**
 * A wave accessed an aperture beyond its end.
 */
#define RKFD_REASON_APERTURE_VIOLATION 14

/**
 * The queue did not leave the hardware.
 */
#define RKFD_REASON_PREEMPTION 15

/**
 * Memory of the GPU.
 */
#define RKFD_HEAP_VRAM 0

/**
 * Memory of the machine.
 */
#define RKFD_HEAP_SYSTEM 1

/**
 * The GPU may read.
 */
#define RKFD_RANGE_READ 0

/**
 * The GPU may read and write.
 */
#define RKFD_RANGE_WRITE 1

/**
 * The GPU may read and fetch instructions.
 */
#define RKFD_RANGE_EXECUTE 2

/**
 * The GPU was about to write; else it read.
 */
#define RKFD_FAULT_WRITE 1

/**
 * The GPU was about to fetch an instruction.
 */
#define RKFD_FAULT_EXECUTE 2

/**
 * The page is bound, but not for this.
 */
#define RKFD_FAULT_PRESENT 4

/**
 * A mirror shows memory when it is made, and again after each change while the queues of the address space wait.
 */
#define RKFD_FILLING_AT_ONCE 0

/**
 * It shows memory when the GPU accesses it; the access is repeated until then, and no queue waits for a change. Where the
 * GPU can, and chosen before the first queue of the address space.
 */
#define RKFD_FILLING_ON_ACCESS 1

/**
 * All memory of the program, also what comes later, at the addresses that it has for the program.
 */
#define RKFD_MIRROR_WHOLE 1

/**
 * Memory is to be where the driver thinks best. No place to move to.
 */
#define RKFD_PLACE_POLICY 0

/**
 * Memory is to be in VRAM of the address space's GPU.
 */
#define RKFD_PLACE_VRAM 1

/**
 * Memory is to be in system memory.
 */
#define RKFD_PLACE_SYSTEM 2

/**
 * Memory is to be where it is. No place to move to.
 */
#define RKFD_PLACE_STAY 3

/**
 * Of an address space: memory of mirrors can be moved to VRAM (rkfd_mirror_migrate()).
 */
#define RKFD_SPACE_MIGRATES 1

/**
 * Accesses of the GPU move memory where hints say so (RKFD_MIGRATE_KEEP), in mirrors that accesses fill.
 */
#define RKFD_SPACE_MOVES_BY_ACCESS 2

/**
 * What is there moves now.
 */
#define RKFD_MIGRATE_NOW 1

/**
 * The place is noted for later accesses of the GPU: see rkfd_mirror_migrate().
 */
#define RKFD_MIGRATE_KEEP 2

/**
 * With RKFD_MIGRATE_NOW to RKFD_PLACE_VRAM: also pages of the program that have no memory yet, which then are zeroes in VRAM.
 */
#define RKFD_MIGRATE_FILL 4

/**
 * Ranges of one mirror that have a hint.
 */
#define RKFD_MIRROR_MAX_HINTS 4096

/**
 * What a function of a task returns: it ended, with `value`.
 */
#define RKFD_OUTCOME_DONE 0

/**
 * The task that it gave to rkfd_task_then() takes the place of its own, and ends the future.
 */
#define RKFD_OUTCOME_THEN 1

/**
 * It failed, and so does any other number: `value` is the reason, which RKFD_TASK_REASON_OWN is added to. What would
 * follow does not run.
 */
#define RKFD_OUTCOME_FAILED 2

/**
 * Why a task failed: no function has its number.
 */
#define RKFD_TASK_REASON_FUNCTION 1

/**
 * The function does not take so many bytes of arguments, or a slot has fewer.
 */
#define RKFD_TASK_REASON_BYTES 2

/**
 * The function panicked, which those of C cannot.
 */
#define RKFD_TASK_REASON_PANIC 3

/**
 * The worker died while it ran the function.
 */
#define RKFD_TASK_REASON_WORKER 4

/**
 * There is no such function to follow, or more than 64 followed each other.
 */
#define RKFD_TASK_REASON_THEN 5

/**
 * Reasons of functions begin here.
 */
#define RKFD_TASK_REASON_OWN 256

/**
 * The task is of high priority: workers take it before others, but for every ninth.
 */
#define RKFD_TASK_URGENT 1

/**
 * Workers run on any CPU, not only on those near the GPUs, and areas are on no memory node in particular.
 */
#define RKFD_WORKERS_ANYWHERE 1

/**
 * Workers end when all tasks that are there have run.
 */
#define RKFD_STOP_DRAINED 0

/**
 * Workers end when each has run the task that it has in hand. The others are left, and never run.
 */
#define RKFD_STOP_AT_ONCE 1

/**
 * Ranges to be mapped and unmapped together.
 */
struct rkfd_bind_list;

/**
 * Memory of an address space, mapped for the CPU. The GPU sees it where it is bound.
 */
struct rkfd_bo;

/**
 * Memory, mapped on its GPU, and on those that it is shared with.
 */
struct rkfd_buffer;

/**
 * An event: a signal event, which packets and the CPU raise, or an exception event, which only the driver does.
 */
struct rkfd_event;

/**
 * Functions that tasks name, by their numbers.
 */
struct rkfd_functions;

/**
 * A GPU that the driver serves.
 */
struct rkfd_gpu;

/**
 * What kernels can have done for them: text that is printed, files that are read, memory of a heap.
 */
struct rkfd_host;

/**
 * A kernel of a program.
 */
struct rkfd_kernel;

/**
 * Memory of the program at GPU addresses of an address space.
 */
struct rkfd_mirror;

/**
 * A code object in the memory of a GPU.
 */
struct rkfd_program;

/**
 * A user queue. Packets of one call stay together, whoever else emits. PM4 and SDMA packets are copied behind a lock;
 * AQL packets go into places that producers take without one, in the order in which they came.
 */
struct rkfd_queue;

/**
 * An array of signals, in one buffer.
 */
struct rkfd_signals;

/**
 * An address space of a GPU that shares nothing with others, also of the same program: one open file of a render node.
 */
struct rkfd_space;

/**
 * A counter of the program (eventfd) that interrupts of an address space increase.
 */
struct rkfd_space_event;

/**
 * A queue of an address space.
 */
struct rkfd_space_queue;

/**
 * The process's address space on one GPU: what buffers, queues and events belong to.
 */
struct rkfd_vm;

/**
 * Rings for tasks of kernels and of the program, and the threads that run these.
 */
struct rkfd_workers;

/**
 * What is known of a GPU; 0 and "" where the driver does not tell.
 */
struct rkfd_gpu_info {
        /**
         * sizeof(struct rkfd_gpu_info); set it before the call.
         */
        uint32_t size;
        /**
         * Its id in the driver's calls.
         */
        uint32_t gpu_id;
        /**
         * Its node in the topology.
         */
        uint32_t node;
        /**
         * Version of its instruction set, such as 90010 for gfx90a.
         */
        uint32_t gfx_target_version;
        /**
         * SIMD units, and how many of them make a compute unit.
         */
        uint32_t simd_count;
        /**
         * See `simd_count`.
         */
        uint32_t simd_per_cu;
        /**
         * Copy engines.
         */
        uint32_t sdma_engines;
        /**
         * PCI vendor id.
         */
        uint32_t vendor;
        /**
         * PCI device id.
         */
        uint32_t device;
        /**
         * 1 for the device model, 0 for a card.
         */
        uint32_t is_model;
        /**
         * Major version of the interface of /dev/kfd.
         */
        uint32_t kfd_major;
        /**
         * Its minor version.
         */
        uint32_t kfd_minor;
        /**
         * VRAM in bytes.
         */
        uint64_t vram_bytes;
        /**
         * First and last address that buffers may have.
         */
        uint64_t va_base;
        /**
         * See `va_base`.
         */
        uint64_t va_limit;
        /**
         * PCI address, such as "0000:00:03.0".
         */
        char pci[16];
        /**
         * Name of the ASIC.
         */
        char name[32];
};

/**
 * What memory to allocate: set `size`, call rkfd_buffer_defaults(), then change what is to differ.
 */
struct rkfd_buffer_options {
        /**
         * sizeof(struct rkfd_buffer_options).
         */
        uint32_t size;
        /**
         * RKFD_BUFFER_VRAM, _VRAM_PRIVATE, _GTT, _USERPTR, _DOORBELL or _MMIO_REMAP.
         */
        uint32_t kind;
        /**
         * Bytes; rounded up to whole pages.
         */
        uint64_t bytes;
        /**
         * The address for CPU and GPU, a multiple of 4096 where nothing is mapped; 0: any.
         */
        uint64_t address;
        /**
         * USERPTR: memory that the program has, as for rkfd_buffer_wrap(). NULL: new memory. (`address` is 0 with it.)
         */
        void *memory;
        /**
         * RKFD_COHERENCE_*.
         */
        uint32_t coherence;
        /**
         * RKFD_BUFFER_READ_ONLY, _NO_EXECUTE, _UNCACHED, _CONTIGUOUS.
         */
        uint32_t flags;
};

/**
 * What the driver tells of an exception. Fields of the other kind are 0.
 */
struct rkfd_exception_info {
        /**
         * sizeof(struct rkfd_exception_info); set it before the call.
         */
        uint32_t size;
        /**
         * RKFD_EXCEPTION_*.
         */
        uint32_t kind;
        /**
         * Memory: the page's address.
         */
        uint64_t address;
        /**
         * The GPU's id.
         */
        uint32_t gpu_id;
        /**
         * Memory: 1 where there was no page.
         */
        uint32_t not_present;
        /**
         * Memory: 1 for a write to a page that must not be written.
         */
        uint32_t read_only;
        /**
         * Memory: 1 for an instruction from a page that must not be executed.
         */
        uint32_t no_execute;
        /**
         * Memory: 1 where the address is not exact.
         */
        uint32_t imprecise;
        /**
         * Memory: 0 for an ordinary fault, else KFD_MEM_ERR_* of the kernel's header.
         */
        uint32_t cause;
        /**
         * Hardware: 0 for a reset of the GPU, 1 for one of an engine.
         */
        uint32_t reset_type;
        /**
         * Hardware: 0 for a hang, 1 for a memory error.
         */
        uint32_t reset_cause;
        /**
         * Hardware: 1 where the contents of VRAM are gone.
         */
        uint32_t memory_lost;
        /**
         * 0.
         */
        uint32_t reserved;
};

/**
 * How to create a queue: set `size`, call rkfd_queue_defaults(), then change what is to differ.
 */
struct rkfd_queue_options {
        /**
         * sizeof(struct rkfd_queue_options).
         */
        uint32_t size;
        /**
         * The copy engine of an SDMA queue; below 0 the driver chooses.
         */
        int32_t engine;
        /**
         * Ring size in bytes: a power of two of at least 4096, or 0 for 4 KiB (compute) or 64 KiB (SDMA).
         */
        uint64_t ring_bytes;
        /**
         * 0 (stopped) to 100.
         */
        uint32_t percentage;
        /**
         * 0 to 15; 7 is ordinary.
         */
        uint32_t priority;
        /**
         * For how many milliseconds an AQL packet waits for room, where the call names no limit.
         */
        uint32_t full_limit_ms;
        /**
         * 0.
         */
        uint32_t reserved;
};

/**
 * Where a queue is, and how far.
 */
struct rkfd_queue_info {
        /**
         * sizeof(struct rkfd_queue_info); set it before the call.
         */
        uint32_t size;
        /**
         * Its id in this process.
         */
        uint32_t queue_id;
        /**
         * RKFD_QUEUE_*.
         */
        uint32_t kind;
        /**
         * 0.
         */
        uint32_t reserved;
        /**
         * The ring's size in bytes.
         */
        uint64_t ring_bytes;
        /**
         * The ring's address.
         */
        uint64_t ring;
        /**
         * Address of the write pointer.
         */
        uint64_t write_pointer;
        /**
         * Address of the read pointer.
         */
        uint64_t read_pointer;
        /**
         * Address of the doorbell in this process.
         */
        uint64_t doorbell;
        /**
         * Units written; monotonic.
         */
        uint64_t written;
        /**
         * The GPU's read pointer in units; that of a PM4 queue wraps with the ring.
         */
        uint64_t read;
        /**
         * Units of room.
         */
        uint64_t room;
        /**
         * Address of an AQL queue's amd_queue_t, 0 for other queues.
         */
        uint64_t object;
        /**
         * Byte of the doorbell in the process's doorbells on the GPU (RKFD_BUFFER_DOORBELL).
         */
        uint64_t doorbell_offset;
};

/**
 * What is known of a kernel; 0 and "" where the compiler does not tell.
 */
struct rkfd_kernel_info {
        /**
         * sizeof(struct rkfd_kernel_info); set it before the call.
         */
        uint32_t size;
        /**
         * Version of the code object: 4, 5 or 6.
         */
        uint32_t version;
        /**
         * Address of the descriptor, for packets of the program's own.
         */
        uint64_t object;
        /**
         * Bytes of the arguments, those that the source does not name included.
         */
        uint32_t kernarg_bytes;
        /**
         * Their alignment, at least 16.
         */
        uint32_t kernarg_align;
        /**
         * Bytes of group memory of its own variables.
         */
        uint32_t group_bytes;
        /**
         * Bytes of private memory of a work-item.
         */
        uint32_t private_bytes;
        /**
         * Arguments that the source names.
         */
        uint32_t arguments;
        /**
         * Most work-items of a work-group.
         */
        uint32_t max_group;
        /**
         * The only dimensions that a work-group may have; 0 where there are none such.
         */
        uint32_t required_group[3];
        /**
         * Work-items of a wave.
         */
        uint32_t wavefront_size;
        /**
         * Scalar registers.
         */
        uint32_t sgprs;
        /**
         * Vector registers, accumulation registers among them.
         */
        uint32_t vgprs;
        /**
         * Accumulation registers.
         */
        uint32_t agprs;
        /**
         * 1 where calls need private memory that the compiler could not count.
         */
        uint32_t dynamic_stack;
        /**
         * Language, such as "OpenCL C".
         */
        char language[16];
};

/**
 * What is known of an argument.
 */
struct rkfd_argument_info {
        /**
         * sizeof(struct rkfd_argument_info); set it before the call.
         */
        uint32_t size;
        /**
         * RKFD_ARGUMENT_*.
         */
        uint32_t kind;
        /**
         * Where it begins.
         */
        uint32_t offset;
        /**
         * How long it is.
         */
        uint32_t bytes;
        /**
         * Name in the source; "" where the compiler does not tell.
         */
        char name[32];
};

/**
 * How to launch a kernel. Set `size` and all others to 0, then what is to differ.
 */
struct rkfd_dispatch {
        /**
         * sizeof(struct rkfd_dispatch).
         */
        uint32_t size;
        /**
         * RKFD_DISPATCH_*.
         */
        uint32_t flags;
        /**
         * Work-items in x, y and z; 0 counts as 1.
         */
        uint32_t grid[3];
        /**
         * Work-items of a work-group; 0 counts as 1.
         */
        uint32_t group[3];
        /**
         * Number of the first work-item, as OpenCL's kernels see it.
         */
        uint64_t offset[3];
        /**
         * Bytes of group memory beside the kernel's own (extern __shared__ of HIP).
         */
        uint32_t group_bytes;
        /**
         * At least as many bytes of private memory for each work-item.
         */
        uint32_t private_bytes;
        /**
         * RKFD_SCOPE_*: what the kernel sees of others' stores.
         */
        uint32_t acquire;
        /**
         * RKFD_SCOPE_*: who sees the kernel's stores.
         */
        uint32_t release;
        /**
         * For each argument that the source names, a pointer to its value.
         */
        const void *const *arguments;
        /**
         * Instead of them: the bytes of all arguments, for kernels without metadata.
         */
        const void *raw;
        /**
         * How many `arguments` are.
         */
        uint32_t argument_count;
        /**
         * How many bytes `raw` are.
         */
        uint32_t raw_bytes;
        /**
         * Where the arguments go: rkfd_kernel_info.kernarg_bytes (where that is 0, `raw_bytes`) of memory that CPU and GPU see,
         * on kernarg_align bytes. It is the kernel's until that has ended.
         */
        void *kernarg;
        /**
         * Address of the signal that is decremented when the kernel has ended, or 0.
         */
        uint64_t completion;
};

/**
 * What stopped an AQL queue.
 */
struct rkfd_queue_error_info {
        /**
         * sizeof(struct rkfd_queue_error_info); set it before a call.
         */
        uint32_t size;
        /**
         * RKFD_REASON_*, the first of them where there are several.
         */
        uint32_t reason;
        /**
         * Bit n for RKFD_REASON_* number n: all of them.
         */
        uint64_t reasons;
        /**
         * Index of the packet that the queue stopped at.
         */
        uint64_t packet;
        /**
         * Value of queue_inactive_signal: what the packet processor says.
         */
        uint64_t code;
        /**
         * What the driver says, where rkfd_vm_enable_runtime() was called: bit n - 1 for exception n of linux/kfd_ioctl.h
         * (enum kfd_dbg_trap_exception_code).
         */
        uint64_t exceptions;
};

/**
 * Called when a queue stops, with what rkfd_queue_on_error() was given.
 */
typedef void (*rkfd_error_callback)(void *data, const struct rkfd_queue_error_info *error);

/**
 * What the GPU of an address space is, and what can be in the address space.
 */
struct rkfd_space_info {
        /**
         * sizeof(struct rkfd_space_info); set it before the call.
         */
        uint32_t size;
        /**
         * Version of the native interface that the driver speaks.
         */
        uint32_t version;
        /**
         * Version of the GPU's instruction set, such as 90010 for gfx90a.
         */
        uint32_t gfx_target_version;
        /**
         * PCI device id.
         */
        uint32_t device;
        /**
         * Compute units.
         */
        uint32_t compute_units;
        /**
         * Work-items of a wave.
         */
        uint32_t wavefront_size;
        /**
         * Copy engines.
         */
        uint32_t sdma_engines;
        /**
         * Most queues of the address space.
         */
        uint32_t max_queues;
        /**
         * First and last address that can be bound.
         */
        uint64_t va_base;
        /**
         * See `va_base`.
         */
        uint64_t va_limit;
        /**
         * Bit n: pages of 2^n bytes.
         */
        uint64_t page_sizes;
        /**
         * RKFD_SPACE_*: what the address space can do. From version 0.9 on.
         */
        uint64_t features;
};

/**
 * An access of an address space that was refused.
 */
struct rkfd_fault_info {
        /**
         * sizeof(struct rkfd_fault_info); set it before the call.
         */
        uint32_t size;
        /**
         * RKFD_FAULT_*.
         */
        uint32_t access;
        /**
         * First byte of the page.
         */
        uint64_t address;
        /**
         * When it was, in nanoseconds of CLOCK_MONOTONIC.
         */
        uint64_t time;
        /**
         * Faults since the last call that found no room.
         */
        uint64_t dropped;
};

/**
 * What memory to show, and where: set `size` and all others to 0, then what is to differ.
 */
struct rkfd_mirror_options {
        /**
         * sizeof(struct rkfd_mirror_options).
         */
        uint32_t size;
        /**
         * RKFD_RANGE_*: what the GPU may do. It writes only where the program may, too.
         */
        uint32_t rights;
        /**
         * First byte of the memory, a multiple of 4096; NULL for all memory.
         */
        void *memory;
        /**
         * Bytes, a multiple of 4096; 0 for all memory.
         */
        uint64_t bytes;
        /**
         * GPU address of the first byte, a multiple of 4096; 0 for all memory.
         */
        uint64_t address;
        /**
         * RKFD_FILLING_*; for all memory RKFD_FILLING_ON_ACCESS.
         */
        uint32_t filling;
        /**
         * RKFD_MIRROR_WHOLE or 0.
         */
        uint32_t flags;
};

/**
 * What a mirror is, what the GPU can reach by it now, and what happened to it.
 */
struct rkfd_mirror_info {
        /**
         * sizeof(struct rkfd_mirror_info); set it before the call.
         */
        uint32_t size;
        /**
         * RKFD_RANGE_*.
         */
        uint32_t rights;
        /**
         * RKFD_FILLING_*.
         */
        uint32_t filling;
        /**
         * RKFD_MIRROR_WHOLE or 0.
         */
        uint32_t flags;
        /**
         * Address of the memory's first byte for the program; of all memory the first that can be shown.
         */
        uint64_t memory;
        /**
         * GPU address of that byte.
         */
        uint64_t address;
        /**
         * Bytes of the range, whether there is memory or not.
         */
        uint64_t bytes;
        /**
         * Bytes of the largest page that the GPU can have here: 2 MiB where `memory` and `address` differ by a multiple of that.
         */
        uint64_t leaf;
        /**
         * Bytes that the GPU can reach now.
         */
        uint64_t shown;
        /**
         * How many of them in pages of 2 MiB.
         */
        uint64_t shown_huge;
        /**
         * Changes of memory that was shown or about to be.
         */
        uint64_t changes;
        /**
         * Accesses that memory was shown for.
         */
        uint64_t faults;
        /**
         * How many of the bytes of `shown` are in VRAM of the GPU. From version 0.8 on.
         */
        uint64_t shown_vram;
        /**
         * Ranges of it with a hint where memory is to be (RKFD_MIGRATE_KEEP). From version 0.9 on.
         */
        uint64_t hints;
};

/**
 * Which memory of a mirror is to move where: set `size` and all others to 0, then what is to differ.
 */
struct rkfd_migrate_options {
        /**
         * sizeof(struct rkfd_migrate_options).
         */
        uint32_t size;
        /**
         * RKFD_MIGRATE_*, of which NOW or KEEP.
         */
        uint32_t flags;
        /**
         * GPU address of the first byte, a multiple of 4096.
         */
        uint64_t address;
        /**
         * Bytes, a multiple of 4096.
         */
        uint64_t bytes;
        /**
         * RKFD_PLACE_*.
         */
        uint32_t place;
        /**
         * With RKFD_MIGRATE_KEEP: log2 of the bytes that move at once, 16 to 21; 0: the driver's choice.
         */
        uint32_t granularity;
};

/**
 * What a function of a task gets. A kernel may have chosen any of it, but for the number of bytes, which is one that the
 * function takes.
 */
struct rkfd_call {
        /**
         * sizeof(struct rkfd_call), as the library has it.
         */
        uint32_t size;
        /**
         * Number of the function.
         */
        uint32_t function;
        /**
         * The arguments, on 8 bytes; NULL where there are none. They are gone when the function returns.
         */
        const void *arguments;
        /**
         * Bytes of the arguments.
         */
        uint32_t bytes;
        /**
         * What the producer calls itself; in kernels rkfd_place().
         */
        uint32_t source;
        /**
         * Value of the function that this one follows; 0 for the first.
         */
        uint64_t input;
        /**
         * The GPU that the task came from, as `gpus` of struct rkfd_workers_options has it; behind the last, the program itself.
         */
        uint32_t area;
        /**
         * Who runs it, from 0.
         */
        uint32_t worker;
};

/**
 * A function of tasks: gets `data` of rkfd_functions_add(), and returns RKFD_OUTCOME_*. `value` is 0 before the call.
 */
typedef int (*rkfd_task_callback)(void *data, const struct rkfd_call *call, uint64_t *value);

/**
 * A task. Set `size` and all others to 0, then what is to differ.
 */
struct rkfd_task {
        /**
         * sizeof(struct rkfd_task).
         */
        uint32_t size;
        /**
         * Number of the function, not 0.
         */
        uint32_t function;
        /**
         * Number of the function that follows it, with the same arguments and with its value as `input`; 0: none.
         */
        uint32_t then;
        /**
         * What the caller calls itself; the function is told.
         */
        uint32_t source;
        /**
         * RKFD_TASK_URGENT or 0.
         */
        uint32_t flags;
        /**
         * Bytes of the arguments.
         */
        uint32_t bytes;
        /**
         * The arguments, which are copied; any where `bytes` is 0.
         */
        const void *arguments;
};

/**
 * Called with what a kernel prints: `bytes` bytes, and a zero byte behind them.
 */
typedef void (*rkfd_print_callback)(void *data, const char *text, uint64_t bytes);

/**
 * What to start: set `size`, call rkfd_workers_defaults(), then change what is to differ.
 */
struct rkfd_workers_options {
        /**
         * sizeof(struct rkfd_workers_options).
         */
        uint32_t size;
        /**
         * RKFD_WORKERS_ANYWHERE or 0.
         */
        uint32_t flags;
        /**
         * GPUs whose kernels hand tasks over; any where `gpu_count` is 0.
         */
        const struct rkfd_vm *const *gpus;
        /**
         * How many these are.
         */
        uint32_t gpu_count;
        /**
         * Threads that run tasks, 1 to 256.
         */
        uint32_t workers;
        /**
         * For the area of each GPU: rings of each priority, a power of two up to 64.
         */
        uint32_t lanes;
        /**
         * Slots of a ring, a power of two from 2 to 65536.
         */
        uint32_t depth;
        /**
         * Bytes of a slot, 32 and the arguments: a multiple of 64 up to 4096.
         */
        uint32_t segment;
        /**
         * Futures that can be in use at the same time: a power of two up to 1048576, or 0.
         */
        uint32_t futures;
        /**
         * The same for the area of the program's own tasks.
         */
        uint32_t own_lanes;
        /**
         * See `depth`.
         */
        uint32_t own_depth;
        /**
         * See `segment`.
         */
        uint32_t own_segment;
        /**
         * See `futures`.
         */
        uint32_t own_futures;
        /**
         * NULL, or a file that is made, and removed at the end: counters that other programs read while the workers run. `rkfdctl
         * tasks` looks at /dev/shm/rkfd-tasks-*.
         */
        const char *statistics;
};

/**
 * An area and its counters, each as of the moment when it was read.
 */
struct rkfd_area_info {
        /**
         * sizeof(struct rkfd_area_info); set it before the call.
         */
        uint32_t size;
        /**
         * Id of its GPU; 0: the program's own.
         */
        uint32_t gpu_id;
        /**
         * Rings of each priority.
         */
        uint32_t lanes;
        /**
         * Slots of a ring.
         */
        uint32_t depth;
        /**
         * Bytes of a slot.
         */
        uint32_t segment;
        /**
         * Futures that it has.
         */
        uint32_t futures;
        /**
         * Futures in use.
         */
        uint32_t futures_in_use;
        /**
         * Memory node of the GPU, where the area was asked for; -1 where the system does not tell, and with
         * RKFD_WORKERS_ANYWHERE.
         */
        int32_t node;
        /**
         * Its address for kernels; 0: the program's own.
         */
        uint64_t address;
        /**
         * Tasks of high priority that workers took.
         */
        uint64_t taken_high;
        /**
         * Those of low priority.
         */
        uint64_t taken_low;
        /**
         * Tasks that ended with a value.
         */
        uint64_t done;
        /**
         * Tasks that failed.
         */
        uint64_t failed;
        /**
         * Of these, those that were not run, since no function takes them.
         */
        uint64_t rejected;
        /**
         * Slots that had a state which they cannot have.
         */
        uint64_t corrupt;
        /**
         * Tasks whose future was none.
         */
        uint64_t late;
        /**
         * Tasks in the ring that was visited last, behind the one that was taken.
         */
        uint64_t waiting;
        /**
         * Calls of kernels that found no room.
         */
        uint64_t refused;
        /**
         * Tasks in its rings that no worker has taken yet.
         */
        uint64_t ready;
};

/**
 * Counters of a worker, each as of the moment when it was read.
 */
struct rkfd_worker_info {
        /**
         * sizeof(struct rkfd_worker_info); set it before the call.
         */
        uint32_t size;
        /**
         * 0.
         */
        uint32_t reserved;
        /**
         * Functions that it ran.
         */
        uint64_t runs;
        /**
         * Times that it looked at the rings.
         */
        uint64_t turns;
        /**
         * Times that it went to sleep.
         */
        uint64_t sleeps;
        /**
         * Times that it was woken.
         */
        uint64_t wakes;
        /**
         * Times that it woke by itself.
         */
        uint64_t looks;
        /**
         * Tasks of a thread that had died which were put in line again.
         */
        uint64_t recovered;
        /**
         * Tasks of one which failed.
         */
        uint64_t lost;
        /**
         * Threads that ended before their time.
         */
        uint64_t deaths;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library that the program runs with: major in the upper 16 bits, minor in the lower.
 *
 * MT-Safe.
 */
uint32_t rkfd_version(void);

/**
 * The version as text, such as "0.2.0".
 *
 * MT-Safe.
 */
const char *rkfd_version_text(void);

/**
 * The text of the last error of the calling thread, "" where there was none. Valid until the thread's next call that
 * fails; calls that succeed leave it as it is.
 *
 * MT-Safe.
 */
const char *rkfd_last_error(void);

/**
 * Counts the GPUs. No driver is -ENODEV; a driver without a GPU is success and 0.
 *
 * MT-Safe.
 */
int rkfd_gpu_count(uint32_t *count);

/**
 * Opens the GPU with that number, from 0 in the driver's order. -ENODEV where there is none. Give it back with
 * rkfd_gpu_close; what was made from it lives on.
 *
 * MT-Safe.
 */
int rkfd_gpu_open(uint32_t index,
                  struct rkfd_gpu **gpu);

/**
 * Gives a GPU back; NULL is allowed.
 *
 * MT-Unsafe race:gpu: no other call may use the handle meanwhile or later.
 */
void rkfd_gpu_close(struct rkfd_gpu *gpu);

/**
 * Describes a GPU, as it was when it was opened.
 *
 * MT-Safe.
 *
 * # Safety
 * `info` points to as many bytes as its `size` says.
 */
int rkfd_gpu_describe(const struct rkfd_gpu *gpu, struct rkfd_gpu_info *info);

/**
 * Opens the process's address space on a GPU. There is one for each GPU until the process ends: opening again gives
 * another handle of the same. -EBUSY where the process bound it in another way than by this library.
 *
 * MT-Safe.
 */
int rkfd_vm_open(const struct rkfd_gpu *gpu,
                 struct rkfd_vm **vm);

/**
 * Gives a handle of the address space back; NULL is allowed. What was made from it lives on.
 *
 * MT-Unsafe race:vm: no other call may use the handle meanwhile or later.
 */
void rkfd_vm_close(struct rkfd_vm *vm);

/**
 * VRAM that can still be allocated, in bytes.
 *
 * MT-Safe.
 */
int rkfd_vm_available(const struct rkfd_vm *vm, uint64_t *bytes);

/**
 * Sets options, whose `size` is set, to those of rkfd_buffer_new(): the GPU may read, write and execute; memory of the
 * system is fine-grained and uncached, VRAM neither. Doorbells and the register page have these options alone.
 *
 * MT-Safe.
 *
 * # Safety
 * `options` points to as many bytes as its `size` says.
 */
int rkfd_buffer_defaults(uint32_t kind,
                         uint64_t bytes,
                         struct rkfd_buffer_options *options);

/**
 * Allocates memory as `options` say, and maps it on the GPU and, except for private VRAM, the CPU. -EEXIST where something
 * is at the address already; -EPERM for memory of the program that it may only read, unless the GPU may not write, either;
 * -EINVAL for what can never be, such as an address that the GPU does not have.
 *
 * MT-Safe.
 *
 * # Safety
 * `options` points to as many bytes as its `size` says. Memory of the program stays mapped until the buffer is freed.
 */
int rkfd_buffer_create(const struct rkfd_vm *vm,
                       const struct rkfd_buffer_options *options,
                       struct rkfd_buffer **buffer);

/**
 * Allocates at least `size` bytes (whole pages, RKFD_BUFFER_* kind) and maps them on the GPU, for reading, writing and
 * executing, and, except for private VRAM, on the CPU. Memory of the kernel comes cleared; a child of fork does not have it.
 * Doorbells and the register page are there already: the buffer shows them, and they are as large as they are (-EINVAL).
 *
 * MT-Safe.
 */
int rkfd_buffer_new(const struct rkfd_vm *vm,
                    uint32_t kind,
                    uint64_t size,
                    struct rkfd_buffer **buffer);

/**
 * Lets the GPU see memory that the program has: `size` bytes at `memory`, both multiples of 4096 (else -EINVAL). CPU and
 * GPU see it at the same address. -EFAULT where nothing is mapped. rkfd_buffer_free leaves the memory as it is.
 *
 * MT-Safe.
 *
 * # Safety
 * The memory stays mapped for reading and writing until the buffer is freed.
 */
int rkfd_buffer_wrap(const struct rkfd_vm *vm,
                     void *memory,
                     uint64_t size,
                     struct rkfd_buffer **buffer);

/**
 * Maps a buffer on another GPU as well, at the same address, until it is freed. Success where it is mapped there. Memory
 * of the kernel and of the process can be shared; whether a GPU reaches another's VRAM is for the driver to say. Doorbells
 * and registers are each GPU's own (-EINVAL).
 *
 * MT-Safe.
 */
int rkfd_buffer_share(const struct rkfd_buffer *buffer,
                      const struct rkfd_vm *vm);

/**
 * Unmaps and frees a buffer; NULL is allowed. Whatever still uses it on the GPU faults, so wait first. One that a service for
 * kernels was offered (rkfd_host_offer()) stays as long as that.
 *
 * MT-Unsafe race:buffer: no other call may use the handle meanwhile or later.
 */
void rkfd_buffer_free(struct rkfd_buffer *buffer);

/**
 * Where the CPU reaches the buffer; NULL for private VRAM, and for NULL. Doorbells and the register page are mapped for
 * writing only.
 *
 * MT-Safe.
 */
void *rkfd_buffer_cpu(const struct rkfd_buffer *buffer);

/**
 * The buffer's address for packets; 0 for NULL.
 *
 * MT-Safe.
 */
uint64_t rkfd_buffer_gpu(const struct rkfd_buffer *buffer);

/**
 * The buffer's size in bytes; 0 for NULL.
 *
 * MT-Safe.
 */
uint64_t rkfd_buffer_size(const struct rkfd_buffer *buffer);

/**
 * Creates a signal event. With `auto_reset` (not 0), a wait that it satisfies also resets it.
 *
 * Packets of any GPU that the process made an event for may raise it.
 *
 * MT-Safe.
 */
int rkfd_event_new(const struct rkfd_vm *vm, int auto_reset, struct rkfd_event **event);

/**
 * Creates an exception event (RKFD_EXCEPTION_* kind). It stays raised once it is. Give it back with rkfd_event_free.
 *
 * MT-Safe.
 */
int rkfd_exception_new(const struct rkfd_vm *vm,
                       uint32_t kind,
                       struct rkfd_event **event);

/**
 * Destroys an event; NULL is allowed. A packet that still raises it wakes nobody.
 *
 * MT-Unsafe race:event: no other call may use the handle meanwhile or later.
 */
void rkfd_event_free(struct rkfd_event *event);

/**
 * The event's id: what a packet stores at its slot and gives its interrupt as context. 0 for NULL.
 *
 * MT-Safe.
 */
uint32_t rkfd_event_id(const struct rkfd_event *event);

/**
 * Address of a signal event's slot. 0 for NULL, and for an exception event.
 *
 * MT-Safe.
 */
uint64_t rkfd_event_slot(const struct rkfd_event *event);

/**
 * Raises a signal event from the CPU.
 *
 * MT-Safe.
 */
int rkfd_event_set(const struct rkfd_event *event);

/**
 * Takes a signal event back.
 *
 * MT-Safe.
 */
int rkfd_event_reset(const struct rkfd_event *event);

/**
 * Sleeps until the event is raised, for `limit_ms` at most: then -ETIMEDOUT. -EIO where it was destroyed meanwhile.
 *
 * MT-Safe.
 */
int rkfd_event_wait(const struct rkfd_event *event,
                    uint32_t limit_ms);

/**
 * Sleeps until all (`all` is not 0) or any of `count` events are raised, signals and exceptions of any GPU among each
 * other; for `limit_ms` at most, then -ETIMEDOUT. -EIO where one was destroyed meanwhile.
 *
 * Each auto-reset event that was raised is reset by that, even where any one would have done: which it was is for the
 * memory to tell that its packets write. An event without auto-reset, and an exception, can be asked by a wait of 0 ms.
 *
 * MT-Safe.
 *
 * # Safety
 * `events` points to that many events.
 */
int rkfd_events_wait(const struct rkfd_event *const *events,
                     uint32_t count,
                     int all,
                     uint32_t limit_ms);

/**
 * Sleeps until an exception event is raised, as rkfd_event_wait, and tells what happened.
 *
 * MT-Safe.
 *
 * # Safety
 * `info` points to as many bytes as its `size` says.
 */
int rkfd_exception_wait(const struct rkfd_event *event, uint32_t limit_ms, struct rkfd_exception_info *info);

/**
 * Allocates `count` signals with value 0.
 *
 * MT-Safe.
 */
int rkfd_signals_new(const struct rkfd_vm *vm, uint32_t count, struct rkfd_signals **signals);

/**
 * Frees signals; NULL is allowed. A packet that still completes one faults, so wait first.
 *
 * MT-Unsafe race:signals: no other call may use the handle meanwhile or later.
 */
void rkfd_signals_free(struct rkfd_signals *signals);

/**
 * Lets packets of another GPU of the process wait for the signals and complete them, until they are freed: their addresses
 * are the same there. Success where they are shared already.
 *
 * MT-Safe.
 */
int rkfd_signals_share(const struct rkfd_signals *signals,
                       const struct rkfd_vm *vm);

/**
 * A signal's address for packets; 0 for NULL and where there is no such signal.
 *
 * MT-Safe.
 */
uint64_t rkfd_signals_address(const struct rkfd_signals *signals, uint32_t index);

/**
 * Reads a signal's value, and sees everything that its packet wrote. -ERANGE where there is no such signal.
 *
 * MT-Safe.
 */
int rkfd_signals_load(const struct rkfd_signals *signals, uint32_t index, int64_t *value);

/**
 * Sets a signal's value, after everything written before. Where threads sleep in rkfd_signals_wait_below() for it, its
 * event is raised.
 *
 * MT-Safe.
 */
int rkfd_signals_store(const struct rkfd_signals *signals,
                       uint32_t index,
                       int64_t value);

/**
 * Lets each completion of a signal raise an event, too. The event must outlive the packets.
 *
 * MT-Safe.
 */
int rkfd_signals_attach(const struct rkfd_signals *signals, uint32_t index, const struct rkfd_event *event);

/**
 * Waits until a signal's value is below `bound`; for `limit_ms` at most, then -ETIMEDOUT. `value`, unless NULL, receives
 * the value seen. Spins for a moment, then sleeps: until the event is raised that was attached to the signal, or for short
 * times where none was.
 *
 * MT-Safe.
 */
int rkfd_signals_wait_below(const struct rkfd_signals *signals,
                            uint32_t index,
                            int64_t bound,
                            uint32_t limit_ms,
                            int64_t *value);

/**
 * Sets options, whose `size` is set, to the ordinary ones: a ring of the ordinary size, percentage 100, priority 7, an
 * engine of the driver's choice, 30 s.
 *
 * MT-Safe.
 *
 * # Safety
 * `options` points to as many bytes as its `size` says.
 */
int rkfd_queue_defaults(struct rkfd_queue_options *options);

/**
 * Creates a queue (RKFD_QUEUE_* kind) with all that it needs: ring, pointers, end-of-pipe buffer, save area, doorbell, and
 * for AQL an amd_queue_t with an event for its errors. NULL options are those of rkfd_queue_defaults().
 *
 * MT-Safe.
 *
 * # Safety
 * `options` is NULL or points to as many bytes as its `size` says.
 */
int rkfd_queue_new(const struct rkfd_vm *vm,
                   uint32_t kind,
                   const struct rkfd_queue_options *options,
                   struct rkfd_queue **queue);

/**
 * Destroys a queue, whatever it still has to do; NULL is allowed. -EIO means that the queue does not leave the hardware, or
 * left it only by a reset of the GPU: the queue and all its memory stay then, the handle stays valid, and the call can be
 * repeated, which succeeds where the queue is gone. Not to be called from an error callback of the same queue.
 *
 * MT-Unsafe race:queue: no other call may use the queue meanwhile, nor after success.
 */
int rkfd_queue_free(struct rkfd_queue *queue);

/**
 * Tells where a queue is, and how far.
 *
 * MT-Safe.
 *
 * # Safety
 * `info` points to as many bytes as its `size` says.
 */
int rkfd_queue_describe(const struct rkfd_queue *queue, struct rkfd_queue_info *info);

/**
 * Changes percentage (0 stops the queue) and priority.
 *
 * MT-Safe.
 */
int rkfd_queue_update(const struct rkfd_queue *queue, uint32_t percentage, uint32_t priority);

/**
 * Restricts the waves of a compute queue to the compute units whose bits are set; `mask` has `words` words of 32 units
 * each, the first unit in the lowest bit of the first word. Packets that run no waves are not concerned.
 *
 * MT-Safe.
 *
 * # Safety
 * `mask` points to that many words.
 */
int rkfd_queue_set_cu_mask(const struct rkfd_queue *queue,
                           const uint32_t *mask,
                           uint32_t words);

/**
 * Waits until the ring has room for `dwords` dwords of packets; for `limit_ms` at most, then -ETIMEDOUT. -EINVAL where
 * the ring never has that room, -EBUSY where packets of the calling thread are not committed and the GPU therefore cannot
 * make room, -EIO where an AQL queue stopped at a packet. Spins for a moment, then sleeps. Room is room for any thread, in no
 * order: rkfd_aql_reserve() takes it, and for PM4 and SDMA rkfd_queue_emit_within().
 *
 * MT-Safe.
 */
int rkfd_queue_reserve(const struct rkfd_queue *queue,
                       uint32_t dwords,
                       uint32_t limit_ms);

/**
 * Tells the GPU of everything emitted, by whichever thread, by one doorbell: the write pointer goes to memory, a store
 * barrier orders it and the packets before the doorbell, then the doorbell is rung. Success where there was nothing to
 * tell.
 *
 * MT-Safe.
 */
int rkfd_queue_commit(const struct rkfd_queue *queue);

/**
 * Waits until the GPU has read everything from the ring that was committed before the call (of an AQL queue, everything
 * that is valid); for `limit_ms` at most, then -ETIMEDOUT. -EBUSY where packets of the calling thread are not committed,
 * -EIO where an AQL queue stopped at a packet. Read is not done: let the last packet raise an event, complete a signal or
 * write memory, and wait for that. Spins for a moment, then sleeps.
 *
 * MT-Safe.
 */
int rkfd_queue_wait(const struct rkfd_queue *queue,
                    uint32_t limit_ms);

/**
 * Takes `count` places of an AQL ring in a row, for packets that the caller writes in place. Waits for room behind those
 * who came first, spinning for a moment, then sleeping; for `limit_ms` at most, then -ETIMEDOUT, and the places are
 * nobody's. `first` receives the index of the first; the others follow. Each has to be made valid by rkfd_aql_publish().
 * -EINVAL for 0 and for more than the ring has, -EIO where the queue stopped at a packet.
 *
 * MT-Safe; without a lock.
 */
int rkfd_aql_reserve(const struct rkfd_queue *queue,
                     uint32_t count,
                     uint32_t limit_ms,
                     uint64_t *first);

/**
 * Where the packet with that index is to be written: 64 bytes, of which the first two, the header, are
 * rkfd_aql_publish()'s. NULL where nobody has taken the place, and where its packet was published.
 *
 * MT-Safe; without a lock.
 */
void *rkfd_aql_place(const struct rkfd_queue *queue, uint64_t index);

/**
 * Makes a packet valid that was written in place: stores its header, after all of the packet. The GPU may run it from now
 * on, and does after rkfd_queue_commit(). -EINVAL where the place is not open, which it is not any more once its packet
 * was published, by this thread or another; and for a header of type INVALID (1).
 *
 * MT-Safe; without a lock.
 */
int rkfd_aql_publish(const struct rkfd_queue *queue,
                     uint64_t index,
                     uint16_t header);

/**
 * Puts `count` dwords of PM4 or SDMA packets into the ring, at the next free place. -EAGAIN where there is no room now, or
 * others wait for it in rkfd_queue_emit_within(); -EINVAL on an AQL queue. The GPU learns of them by rkfd_queue_commit.
 *
 * MT-Safe.
 *
 * # Safety
 * `dwords` points to that many.
 */
int rkfd_queue_emit(const struct rkfd_queue *queue,
                    const uint32_t *dwords,
                    uint32_t count);

/**
 * As rkfd_queue_emit(), but waits for room, for `limit_ms` at most, then -ETIMEDOUT. Those who wait get room in the order in
 * which they came, and nobody else gets any meanwhile, so many dwords get their turn among few, too. What was emitted before is
 * committed first, by whichever thread, since the GPU makes room only by reading it. -EINVAL for more than the ring has.
 *
 * MT-Safe.
 *
 * # Safety
 * `dwords` points to `count` dwords.
 */
int rkfd_queue_emit_within(const struct rkfd_queue *queue,
                           const uint32_t *dwords,
                           uint32_t count,
                           uint32_t limit_ms);

/**
 * Puts one AQL packet of 16 dwords into the ring, its header last; bits 0 to 15 of its first dword are not used.
 * `index`, unless NULL, receives the packet's index. Waits for room as rkfd_aql_emit_within(), for as long as the queue's
 * options say.
 *
 * MT-Safe.
 *
 * # Safety
 * `packet` points to 16 dwords.
 */
int rkfd_aql_emit(const struct rkfd_queue *queue,
                  const uint32_t *packet,
                  uint16_t header,
                  uint64_t *index);

/**
 * As rkfd_aql_emit(), but waits for room in a full ring, spinning for a moment, then sleeping, for `limit_ms` at most: then
 * -ETIMEDOUT. -EIO where the queue stopped at a packet. Nothing is written then.
 *
 * MT-Safe.
 *
 * # Safety
 * `packet` points to 16 dwords.
 */
int rkfd_aql_emit_within(const struct rkfd_queue *queue,
                         const uint32_t *packet,
                         uint16_t header,
                         uint32_t limit_ms,
                         uint64_t *index);

/**
 * PM4: stores `count` dwords at `address` and waits until they arrived.
 *
 * MT-Safe.
 *
 * # Safety
 * `values` points to that many.
 */
int rkfd_pm4_write(const struct rkfd_queue *queue, uint64_t address, const uint32_t *values, uint32_t count);

/**
 * PM4: runs `dwords` dwords of packets at `address` and comes back.
 *
 * MT-Safe.
 */
int rkfd_pm4_run(const struct rkfd_queue *queue, uint64_t address, uint32_t dwords);

/**
 * PM4: invalidates the caches before later packets.
 *
 * MT-Safe.
 */
int rkfd_pm4_acquire(const struct rkfd_queue *queue);

/**
 * PM4: when earlier work is done and written back, stores 64 bits at `address` (8-byte aligned).
 *
 * MT-Safe.
 */
int rkfd_pm4_release(const struct rkfd_queue *queue, uint64_t address, uint64_t value);

/**
 * PM4: when earlier work is done and written back, raises an event.
 *
 * MT-Safe.
 */
int rkfd_pm4_raise(const struct rkfd_queue *queue, const struct rkfd_event *event);

/**
 * SDMA: copies `bytes` bytes, in as many packets as it takes.
 *
 * MT-Safe.
 */
int rkfd_sdma_copy(const struct rkfd_queue *queue, uint64_t destination, uint64_t source, uint64_t bytes);

/**
 * SDMA: fills `bytes` bytes (a multiple of 4) with a dword, in as many packets as it takes.
 *
 * MT-Safe.
 */
int rkfd_sdma_fill(const struct rkfd_queue *queue, uint64_t destination, uint32_t value, uint64_t bytes);

/**
 * SDMA: after earlier packets, stores a dword at `address`.
 *
 * MT-Safe.
 */
int rkfd_sdma_fence(const struct rkfd_queue *queue, uint64_t address, uint32_t value);

/**
 * SDMA: after earlier packets, raises an event.
 *
 * MT-Safe.
 */
int rkfd_sdma_raise(const struct rkfd_queue *queue, const struct rkfd_event *event);

/**
 * AQL: waits until all of `count` (0 to 5) signals are exactly 0 (one that is below 0 is waited for as well) and earlier
 * packets are done, then decrements the signal at `completion`, unless that is 0. `index`, unless NULL, receives the
 * packet's index.
 *
 * MT-Safe.
 *
 * # Safety
 * `dependencies` points to the addresses of `count` signals.
 */
int rkfd_aql_barrier(const struct rkfd_queue *queue,
                     const uint64_t *dependencies,
                     uint32_t count,
                     uint64_t completion,
                     uint64_t *index);

/**
 * AQL: runs `dwords` dwords of PM4 packets at `address`, then decrements the signal at `completion`, unless that is 0.
 * `index`, unless NULL, receives the packet's index.
 *
 * MT-Safe.
 */
int rkfd_aql_pm4(const struct rkfd_queue *queue,
                 uint64_t address,
                 uint32_t dwords,
                 uint64_t completion,
                 uint64_t *index);

/**
 * Loads a code object for the GPU into its memory: what `clang -target amdgcn-amd-amdhsa`, `clang -x cl` and
 * `hipcc --genco` make, of a bundle the part for this GPU. `image` is not needed afterwards. -ENOEXEC for what is no
 * linked code object of version 4 to 6, or is broken; -EOPNOTSUPP for one of another GPU.
 *
 * MT-Safe.
 *
 * # Safety
 * `image` points to `bytes` bytes that nobody changes meanwhile.
 */
int rkfd_program_load(const struct rkfd_vm *vm,
                      const void *image,
                      uint64_t bytes,
                      struct rkfd_program **program);

/**
 * Gives a program back; NULL is allowed. It stays on the GPU while handles of its kernels exist. Kernels that run are the
 * caller's concern: wait, then free.
 *
 * MT-Unsafe race:program: no other call may use the handle meanwhile or later.
 */
void rkfd_program_free(struct rkfd_program *program);

/**
 * Name of a program's kernel with that number, from 0; NULL where there are no more. It is valid until the program is
 * freed.
 *
 * MT-Safe.
 */
const char *rkfd_program_kernel(const struct rkfd_program *program,
                                uint32_t index);

/**
 * Address and size of a symbol of a program, such as a variable of the GPU's. Either pointer may be NULL. -ENOENT where
 * there is none of that name.
 *
 * MT-Safe.
 *
 * # Safety
 * `name` is a text that ends in a zero byte.
 */
int rkfd_program_symbol(const struct rkfd_program *program,
                        const char *name,
                        uint64_t *address,
                        uint64_t *bytes);

/**
 * Finds a kernel by its name. -ENOENT where there is none; rkfd_last_error() then names those that there are.
 *
 * MT-Safe.
 *
 * # Safety
 * `name` is a text that ends in a zero byte.
 */
int rkfd_kernel_new(const struct rkfd_program *program, const char *name, struct rkfd_kernel **kernel);

/**
 * Gives a kernel back; NULL is allowed.
 *
 * MT-Unsafe race:kernel: no other call may use the handle meanwhile or later.
 */
void rkfd_kernel_free(struct rkfd_kernel *kernel);

/**
 * Describes a kernel.
 *
 * MT-Safe.
 *
 * # Safety
 * `info` points to as many bytes as its `size` says.
 */
int rkfd_kernel_describe(const struct rkfd_kernel *kernel, struct rkfd_kernel_info *info);

/**
 * Describes an argument that the source names, by its number from 0. -ERANGE where there are no more.
 *
 * MT-Safe.
 *
 * # Safety
 * `info` points to as many bytes as its `size` says.
 */
int rkfd_kernel_argument(const struct rkfd_kernel *kernel, uint32_t index, struct rkfd_argument_info *info);

/**
 * Launches a kernel on an AQL queue: stores its arguments, those that the source does not name included, and writes the
 * packet. The GPU runs it after rkfd_queue_commit(). Where the queue's waves have less private memory than the kernel
 * needs, the call waits until the queue is idle, and gives them more. `index`, unless NULL, receives the packet's index.
 * -EINVAL for dimensions, memory or arguments that cannot be; otherwise as rkfd_aql_emit().
 *
 * MT-Safe.
 *
 * # Safety
 * `dispatch` points to as many bytes as its `size` says, its pointers to values of the arguments' sizes; `kernarg` is
 * memory for the arguments that nobody else uses.
 */
int rkfd_kernel_launch(const struct rkfd_queue *queue,
                       const struct rkfd_kernel *kernel,
                       const struct rkfd_dispatch *dispatch,
                       uint64_t *index);

/**
 * Sees to it that waves of an AQL queue have at least `bytes` of private memory for each work-item, for dispatch packets
 * of the program's own. Where they have less, it waits until the queue is idle. -EINVAL for more than there can be.
 *
 * MT-Safe.
 */
int rkfd_queue_provide_scratch(const struct rkfd_queue *queue,
                               uint32_t bytes);

/**
 * A reason (RKFD_REASON_*) in words; "" for a number that is none.
 *
 * MT-Safe.
 */
const char *rkfd_reason_text(uint32_t reason);

/**
 * Has the driver report exceptions of the process's queues, too (RUNTIME_ENABLE): what waves run into, in
 * `exceptions` of struct rkfd_queue_error_info. Packets that cannot run are reported without that. A process has one runtime:
 * -EBUSY where it was enabled, by this library or another, such as ROCr. It has to be before the first queue: -EEXIST.
 *
 * MT-Safe.
 */
int rkfd_vm_enable_runtime(const struct rkfd_vm *vm);

/**
 * Tells what stopped an AQL queue. -EAGAIN where nothing did.
 *
 * MT-Safe.
 *
 * # Safety
 * `error` points to as many bytes as its `size` says.
 */
int rkfd_queue_error(const struct rkfd_queue *queue, struct rkfd_queue_error_info *error);

/**
 * Sleeps until an AQL queue stops at a packet; for `limit_ms` at most, then -ETIMEDOUT. 0 means that it stopped, and
 * `error` tells why.
 *
 * MT-Safe.
 *
 * # Safety
 * `error` points to as many bytes as its `size` says.
 */
int rkfd_queue_error_wait(const struct rkfd_queue *queue,
                          uint32_t limit_ms,
                          struct rkfd_queue_error_info *error);

/**
 * Has `callback` called, with `data`, each time that an AQL queue stops, and again where the driver tells more of the same
 * stop, from a thread of the library. It takes
 * the place of the one before; NULL ends the calls. When this returns, and when rkfd_queue_free() did, the callback before
 * is not running any more and is not called again. A callback may call any function but rkfd_queue_free() and this one
 * for its own queue; `error` is valid until it returns.
 *
 * MT-Safe.
 *
 * # Safety
 * `callback` may be called from any thread with `data` until it is replaced.
 */
int rkfd_queue_on_error(const struct rkfd_queue *queue,
                        rkfd_error_callback callback,
                        void *data);

/**
 * Opens a render node, such as "/dev/dri/renderD128": another address space with each call. Needs no
 * /dev/kfd. -ENOTTY, -EINVAL or -EOPNOTSUPP where its driver has no native interface.
 *
 * MT-Safe.
 *
 * # Safety
 * `path` is a text that ends in a zero byte.
 */
int rkfd_space_open(const char *path, struct rkfd_space **space);

/**
 * Gives an address space back; NULL is allowed. What was made of it keeps it until that is freed, too.
 *
 * MT-Unsafe race:space: no other call may use the handle meanwhile or later.
 */
void rkfd_space_close(struct rkfd_space *space);

/**
 * Describes the GPU of an address space.
 *
 * MT-Safe.
 *
 * # Safety
 * `info` points to as many bytes as its `size` says.
 */
int rkfd_space_describe(const struct rkfd_space *space, struct rkfd_space_info *info);

/**
 * Makes memory of at least `bytes` bytes (whole pages) in a heap (RKFD_HEAP_*), cleared and never cached
 * by the GPU, and maps it for the CPU. No GPU address shows it yet: see rkfd_bind_list_map().
 *
 * MT-Safe.
 */
int rkfd_bo_new(const struct rkfd_space *space, uint32_t heap, uint64_t bytes, struct rkfd_bo **bo);

/**
 * Unmaps memory for the CPU and gives it back; NULL is allowed. Ranges that show it keep it for the GPU.
 *
 * MT-Unsafe race:bo: no other call may use the handle meanwhile or later.
 */
void rkfd_bo_free(struct rkfd_bo *bo);

/**
 * Where the CPU reaches the memory; NULL for NULL.
 *
 * MT-Safe.
 */
void *rkfd_bo_cpu(const struct rkfd_bo *bo);

/**
 * The size in bytes; 0 for NULL.
 *
 * MT-Safe.
 */
uint64_t rkfd_bo_size(const struct rkfd_bo *bo);

/**
 * Makes an empty list of ranges of an address space.
 *
 * MT-Safe.
 */
int rkfd_bind_list_new(const struct rkfd_space *space, struct rkfd_bind_list **list);

/**
 * Gives a list back; NULL is allowed. What it bound stays bound.
 *
 * MT-Unsafe race:list: no other call may use the handle meanwhile or later.
 */
void rkfd_bind_list_free(struct rkfd_bind_list *list);

/**
 * Adds to a list: `bytes` bytes at GPU address `address` are to show those of `bo` from `offset` on, with
 * rights (RKFD_RANGE_*). All three are multiples of 4096. `bo` is not freed before the list was bound.
 *
 * MT-Safe.
 */
int rkfd_bind_list_map(const struct rkfd_bind_list *list,
                       uint64_t address,
                       const struct rkfd_bo *bo,
                       uint64_t offset,
                       uint64_t bytes,
                       uint32_t rights);

/**
 * Adds to a list: `bytes` bytes at GPU address `address`, multiples of 4096, are to show nothing.
 *
 * MT-Safe.
 */
int rkfd_bind_list_unmap(const struct rkfd_bind_list *list, uint64_t address, uint64_t bytes);

/**
 * Maps and unmaps the ranges of a list, all or none; the list stays as it is. When this returns 0, the GPU
 * can use what is mapped, and reaches nothing of what is not. -EINVAL for ranges that overlap each other
 * or leave memory or addresses; -EBUSY where a queue uses what would go; -EADDRINUSE where a mirror has some of the
 * addresses, but one of all memory.
 *
 * MT-Safe.
 */
int rkfd_space_bind(const struct rkfd_space *space,
                    const struct rkfd_bind_list *list);

/**
 * Makes a queue (RKFD_QUEUE_PM4 or RKFD_QUEUE_SDMA) with memory of its own, bound from GPU address
 * `address` on, where nothing may be: some 64 KiB, for PM4 some 16 MiB.
 *
 * MT-Safe.
 */
int rkfd_space_queue_new(const struct rkfd_space *space,
                         uint32_t kind,
                         uint64_t address,
                         struct rkfd_space_queue **queue);

/**
 * Destroys a queue and unbinds its memory; NULL is allowed.
 *
 * MT-Unsafe race:queue: no other call may use the handle meanwhile or later.
 */
void rkfd_space_queue_free(struct rkfd_space_queue *queue);

/**
 * Writes `count` dwords of packets into the ring and rings the doorbell. Packets of one call stay together.
 * -EAGAIN where the GPU has to read on first.
 *
 * MT-Safe.
 *
 * # Safety
 * `dwords` points to `count` dwords that nobody changes meanwhile.
 */
int rkfd_space_queue_submit(const struct rkfd_space_queue *queue, const uint32_t *dwords, uint32_t count);

/**
 * Has a counter (eventfd) increased by each interrupt of the address space that carries the event's slot.
 * The descriptor may be closed afterwards. -EBADF where it is none, -EINVAL where it is no eventfd.
 *
 * MT-Safe.
 */
int rkfd_space_event_new(const struct rkfd_space *space, int eventfd, struct rkfd_space_event **event);

/**
 * Gives an event back; its counter is not increased any more. NULL is allowed.
 *
 * MT-Unsafe race:event: no other call may use the handle meanwhile or later.
 */
void rkfd_space_event_free(struct rkfd_space_event *event);

/**
 * What packets raise as the context id of their interrupt, from 1 on; 0 for NULL.
 *
 * MT-Safe.
 */
uint32_t rkfd_space_event_slot(const struct rkfd_space_event *event);

/**
 * Sleeps until the dword at `offset` of `bo` is `value`; for `limit_ms` at most, then -ETIMEDOUT. Whoever
 * stores it should raise an interrupt; without one it is looked at about once a millisecond.
 *
 * MT-Safe.
 */
int rkfd_space_wait(const struct rkfd_space *space,
                    const struct rkfd_bo *bo,
                    uint64_t offset,
                    uint32_t value,
                    uint32_t limit_ms);

/**
 * Takes the oldest access that was refused and that nobody has asked for. -EAGAIN where there is none. The
 * first of them has stopped all queues of the address space for good.
 *
 * MT-Safe.
 *
 * # Safety
 * `fault` points to as many bytes as its `size` says.
 */
int rkfd_space_fault(const struct rkfd_space *space, struct rkfd_fault_info *fault);

/**
 * Shows memory of the program at GPU addresses of an address space: `bytes` bytes from `memory` on, or all of it. Whatever
 * is there is shown, be it private, shared or of a file; nothing is pinned. CPU and GPU see the same: where the program
 * unmaps, protects, moves or discards memory, or the kernel swaps it out, the GPU does not reach it any more before that
 * happens, and reaches afterwards what is there then. An access to where there is no memory is a fault: see
 * rkfd_space_fault(). An address space has any number of mirrors, of the same memory, too, or one of all memory.
 *
 * In a mirror of all memory any pointer is good, to the stack, a global variable or what is allocated or mapped later,
 * without a further call. Where something is bound (rkfd_space_bind), that has the address until it is unbound.
 *
 * -EINVAL for unknown rights, filling or flags; for an address or a size that is no multiple of 4096, or a size of 0; for
 * GPU addresses that cannot be bound; for all memory with a range, or not filled by accesses. -E2BIG where the structure is
 * of a newer header and asks for what this library does not know. -EOVERFLOW where a range passes the last address there is,
 * -EFAULT for memory where no program can have any. -EADDRINUSE where something is bound, or mirrored, at one of the
 * GPU addresses, or all memory is; for all memory, where there is a mirror. -EOPNOTSUPP where accesses are to fill it, and
 * the GPU cannot repeat them; -EBUSY where they are to, and the address space has had a queue whose accesses are not
 * repeated. -EXDEV in a child of fork, whose memory is not what the address space shows.
 *
 * MT-Safe.
 *
 * # Safety
 * `options` points to as many bytes as its `size` says. Until the mirror is freed, packets may read the memory and, with
 * RKFD_RANGE_WRITE, write it: what they touch, and when, is the caller's concern.
 */
int rkfd_mirror_new(const struct rkfd_space *space,
                    const struct rkfd_mirror_options *options,
                    struct rkfd_mirror **mirror);

/**
 * Ends a mirror; NULL is allowed. When this returns, the GPU does not reach the memory by it any more, and its GPU
 * addresses are free. rkfd_space_close() does not end it.
 *
 * MT-Unsafe race:mirror: no other call may use the handle meanwhile or later.
 */
void rkfd_mirror_free(struct rkfd_mirror *mirror);

/**
 * Describes a mirror. What it shows may have changed when this returns.
 *
 * MT-Safe.
 *
 * # Safety
 * `info` points to as many bytes as its `size` says.
 */
int rkfd_mirror_describe(const struct rkfd_mirror *mirror, struct rkfd_mirror_info *info);

/**
 * Shows all memory at `bytes` bytes from GPU address `address` on: what was mapped there after a mirror was filled at once,
 * and what no access has found yet. -EINVAL where these are no whole pages of the mirror, or none; -EFAULT where somewhere
 * there is no memory, or none that the GPU can use: what lies before it is shown then.
 *
 * MT-Safe.
 */
int rkfd_mirror_populate(const struct rkfd_mirror *mirror,
                         uint64_t address,
                         uint64_t bytes);

/**
 * Moves memory of a range of a mirror to where it is to be, or has that place noted, or both. Program and GPU see the same
 * bytes at the same addresses before, meanwhile and afterwards. What is in VRAM the GPU uses there; an access of the CPU, or
 * of the kernel for the program, brings the pages around it back to system memory. Only memory of the program's own can move
 * (private and anonymous, not locked or pinned): all else stays, which is no error, and holes in the program's memory are
 * stepped over.
 *
 * `*moved` is how many bytes were moved, also where the call fails after a part of them, and `*stayed` how many are there and
 * elsewhere than they should be; what is where it should be counts in neither. Either may be NULL.
 *
 * With RKFD_MIGRATE_KEEP the place is noted for the range, in place of what was noted there (RKFD_PLACE_POLICY: nothing more is),
 * before anything moves, and stays noted where that fails. Alone it moves nothing, and both numbers are 0. The hint is one of
 * addresses of this mirror, whatever memory is there later; other mirrors have their own. In a mirror that accesses fill, and where
 * RKFD_SPACE_MOVES_BY_ACCESS is set, an access of the GPU that finds memory of the program's own in the system under
 * RKFD_PLACE_VRAM has the block around it, of 2 to the power of `granularity` bytes and aligned in GPU addresses, moved to VRAM
 * that nobody uses, and waits for that; where there is none, it uses the memory in place. What CPU and GPU use in turn within
 * a tenth of a second stays in the system for a while. The other places have accesses move nothing. Elsewhere hints have no effect.
 *
 * -EINVAL for unknown flags or an unknown place; without RKFD_MIGRATE_NOW and RKFD_MIGRATE_KEEP; for RKFD_MIGRATE_NOW to
 * RKFD_PLACE_POLICY or RKFD_PLACE_STAY; for RKFD_MIGRATE_FILL without RKFD_MIGRATE_NOW to RKFD_PLACE_VRAM; for a granularity
 * that there is not; where these are no whole pages of the mirror, or none. -E2BIG where the structure is of a newer header and
 * asks for what this library does not know. -EOPNOTSUPP for RKFD_PLACE_VRAM where nothing can be moved there, and for
 * RKFD_MIGRATE_KEEP where the driver speaks a version of the native interface before 6. -ENOSPC where the mirror would have more
 * than RKFD_MIRROR_MAX_HINTS ranges with a hint. -ENOMEM where there is no room, by VRAM or by the limit of the program's control
 * group, which hints do not meet. -EXDEV in a child of fork. -ETIMEDOUT where the GPU did not stop using memory, -EIO where it does not answer.
 *
 * MT-Safe.
 *
 * # Safety
 * `options` points to as many bytes as its `size` says.
 */
int rkfd_mirror_migrate(const struct rkfd_mirror *mirror,
                        const struct rkfd_migrate_options *options,
                        uint64_t *moved,
                        uint64_t *stayed);

/**
 * Makes a table without functions.
 *
 * MT-Safe.
 */
int rkfd_functions_new(struct rkfd_functions **functions);

/**
 * Gives a table back; NULL is allowed. Workers that were started with it keep what was in it.
 *
 * MT-Unsafe race:functions: no other call may use the handle meanwhile or later.
 */
void rkfd_functions_free(struct rkfd_functions *functions);

/**
 * Adds a function, for tasks of that number with `least` to `most` bytes of arguments; others of that number fail
 * (RKFD_TASK_REASON_BYTES). Workers that were started before do not have it. -EINVAL for number 0, for `callback` NULL and
 * for bytes that no task has; -EEXIST where the number is taken. The numbers from 0xff00 on are those of the library.
 *
 * The function runs on any worker, several times at once, and keeps its worker from other tasks until it returns. It may call
 * every function of this library but rkfd_workers_stop() (-EDEADLK); a wait for another task may take as long as that
 * finds no other worker. It returns: it neither ends its thread nor throws, which ends the process.
 *
 * MT-Safe.
 *
 * # Safety
 * `callback` may be called from any thread with `data` as long as there are workers that were started with the table, until
 * rkfd_workers_stop() returned 0 for them.
 */
int rkfd_functions_add(const struct rkfd_functions *functions,
                       uint32_t number,
                       uint32_t least,
                       uint32_t most,
                       rkfd_task_callback callback,
                       void *data);

/**
 * Adds the functions of a service for kernels (rkfd_print() and so on of rkfd_tasks.h). Without it, such calls of kernels
 * fail as tasks that no function has the number of. -EEXIST where a table has one, or where numbers of it are taken.
 *
 * MT-Safe.
 */
int rkfd_functions_add_host(const struct rkfd_functions *functions,
                            const struct rkfd_host *host);

/**
 * In a function of tasks: has another task take the place of its own, if the function returns RKFD_OUTCOME_THEN. It has the
 * priority of the task before; `then`, where it is 0, is that of the task before as well. The last call counts. -EPERM elsewhere
 * than in such a function; -EINVAL for number 0 or for flags; -EMSGSIZE for more bytes than any slot has.
 *
 * MT-Safe.
 *
 * # Safety
 * `task` points to as many bytes as its `size` says, and its arguments are readable.
 */
int rkfd_task_then(const struct rkfd_task *task);

/**
 * Makes a service, which calls `print` with `data` for each text, from any worker, one text at a time. It is the
 * kernels' of workers that are started with a table that it was added to (rkfd_functions_add_host()), and reaches only what it is
 * offered. `print` may call any function of this library but rkfd_workers_stop() (-EDEADLK); it returns as functions of tasks do.
 * -EINVAL where `print` is NULL.
 *
 * MT-Safe.
 *
 * # Safety
 * `print` may be called from any thread with `data` as long as there are workers with the service, until
 * rkfd_workers_stop() returned 0 for them.
 */
int rkfd_host_new(rkfd_print_callback print,
                  void *data,
                  struct rkfd_host **host);

/**
 * Gives a service back; NULL is allowed. Tables and workers that have it keep it, and what it was offered.
 *
 * MT-Unsafe race:host: no other call may use the handle meanwhile or later.
 */
void rkfd_host_free(struct rkfd_host *host);

/**
 * Lets kernels name a buffer by its addresses: texts are found there, and files are read into it. `vm` is the one that the
 * buffer was made with. The buffer stays as long as the service, also where rkfd_buffer_free() gives the handle back. -EINVAL for
 * memory that the CPU does not reach.
 *
 * MT-Safe.
 */
int rkfd_host_offer(const struct rkfd_host *host,
                    const struct rkfd_vm *vm,
                    const struct rkfd_buffer *buffer);

/**
 * Lets kernels name texts that are part of their program, which stays as long as the service.
 *
 * MT-Safe.
 */
int rkfd_host_offer_program(const struct rkfd_host *host, const struct rkfd_program *program);

/**
 * Lets kernels read a file by `number`, which counts from 0. The descriptor may be closed afterwards; its position is neither
 * used nor changed. -EBADF where it is none.
 *
 * MT-Safe.
 */
int rkfd_host_offer_file(const struct rkfd_host *host,
                         int file,
                         uint64_t *number);

/**
 * Gives kernels a heap, which is offered as well (rkfd_host_offer()). It takes the place of the one before, whose allocations
 * are forgotten. Without one, kernels that allocate fail.
 *
 * MT-Safe.
 */
int rkfd_host_set_heap(const struct rkfd_host *host,
                       const struct rkfd_vm *vm,
                       const struct rkfd_buffer *buffer);

/**
 * Bytes of the heap that kernels have now; 0 for NULL.
 *
 * MT-Safe.
 */
uint64_t rkfd_host_allocated(const struct rkfd_host *host);

/**
 * Sets options, whose `size` is set, to what is ordinary: no GPU, two workers, near the GPUs, four lanes of 256 slots of 256
 * bytes and 4096 futures for each area.
 *
 * MT-Safe.
 *
 * # Safety
 * `options` points to as many bytes as its `size` says.
 */
int rkfd_workers_defaults(struct rkfd_workers_options *options);

/**
 * Makes an area for each GPU and one for the program's own tasks, and starts threads that run the functions of a table, as
 * it is now. `options` NULL: those of rkfd_workers_defaults(). Without a GPU no driver is needed. -EINVAL for a shape, a number
 * of workers or flags that cannot be; the errno of the file where the statistics cannot be made; -EAGAIN where the system
 * has no thread.
 *
 * MT-Safe.
 *
 * # Safety
 * `options` points to as many bytes as its `size` says, `gpus` to `gpu_count` address spaces, `statistics` to a text that ends
 * in a zero byte.
 */
int rkfd_workers_new(const struct rkfd_functions *functions,
                     const struct rkfd_workers_options *options,
                     struct rkfd_workers **workers);

/**
 * Takes no new tasks and ends the threads (RKFD_STOP_*), for `limit_ms` at most. `left`, unless NULL, receives how many tasks
 * were left, kernels' among them: 0 after RKFD_STOP_DRAINED, but for those that were handed over at the same time. Who waits for
 * one of these learns of it: -ECANCELED, in kernels RKFD_TASK_CLOSED.
 *
 * -ETIMEDOUT where a function still runs, or where tasks are there; `left` has how many have not ended, roughly. No new tasks are
 * taken then (-ESHUTDOWN), the threads end when they can, and the call can be repeated, also with the other number; there is
 * no way back from RKFD_STOP_AT_ONCE. 0 where they have ended already. -EINVAL for another number; -EDEADLK from a function of
 * tasks, which would wait for itself.
 *
 * MT-Safe.
 */
int rkfd_workers_stop(const struct rkfd_workers *workers,
                      uint32_t how,
                      uint32_t limit_ms,
                      uint64_t *left);

/**
 * Gives areas and what is left in them back; NULL is allowed. Kernels that use an area have ended before, as with any memory. -EBUSY
 * where rkfd_workers_stop() has not returned 0: everything stays then, and the handle stays valid.
 *
 * MT-Unsafe race:workers: no other call may use the handle meanwhile, nor after success.
 */
int rkfd_workers_free(struct rkfd_workers *workers);

/**
 * Address of the area of a GPU, by its number in `gpus`: an argument of kernels, which name it struct rkfd_tasks *. 0 for NULL,
 * and where there is no such GPU. It is valid until rkfd_workers_free().
 *
 * MT-Safe.
 */
uint64_t rkfd_workers_address(const struct rkfd_workers *workers,
                              uint32_t gpu);

/**
 * Hands a task of the program's over. `future`, unless NULL, receives what rkfd_workers_wait() takes, which is the caller's until
 * that has told the end, or rkfd_workers_drop() was called; 0 where the call fails. Each thread uses one lane.
 *
 * Where the ring has no room, or all futures are in use, it waits for that as long as `limit_ms`: -EAGAIN where that is 0, else
 * -ETIMEDOUT. -EMSGSIZE for more bytes of arguments than a slot has; -ESHUTDOWN after rkfd_workers_stop(); -EINVAL for function 0
 * and unknown flags. Nothing is handed over where it fails.
 *
 * MT-Safe.
 *
 * # Safety
 * `task` points to as many bytes as its `size` says, its arguments to `bytes` bytes that nobody changes meanwhile.
 */
int rkfd_workers_submit(const struct rkfd_workers *workers,
                        const struct rkfd_task *task,
                        uint32_t limit_ms,
                        uint64_t *future);

/**
 * Waits until a task of the program's has ended, for `limit_ms` at most: spins for a moment, then sleeps; with 0 it looks once.
 * `value`, unless NULL, receives what the function ended with, and everything that it stored is seen. -EIO where the task
 * failed, with the reason (RKFD_TASK_REASON_*) as value; -ECANCELED where the workers have ended without it. The future is given
 * back then, in all three cases. -ETIMEDOUT: it is still the caller's. -EINVAL for what is no future that waits.
 *
 * MT-Safe.
 */
int rkfd_workers_wait(const struct rkfd_workers *workers,
                      uint64_t future,
                      uint32_t limit_ms,
                      uint64_t *value);

/**
 * Gives a future back without waiting: its task runs all the same. -EINVAL for what is no future that waits.
 *
 * MT-Safe.
 */
int rkfd_workers_drop(const struct rkfd_workers *workers, uint64_t future);

/**
 * Gives back the places of a GPU's rings that waves have taken and not filled, after the queue that they were in is gone, or
 * the GPU was reset, and when all others that hand tasks over there are at rest. `count`, unless NULL, receives how many there
 * were. -ERANGE where there is no such GPU.
 *
 * MT-Safe.
 */
int rkfd_workers_forget_unwritten(const struct rkfd_workers *workers,
                                  uint32_t gpu,
                                  uint64_t *count);

/**
 * Describes the area of a GPU, by its number in `gpus`; behind the last, that of the program's own tasks. -ERANGE behind that.
 *
 * MT-Safe.
 *
 * # Safety
 * `info` points to as many bytes as its `size` says.
 */
int rkfd_workers_area(const struct rkfd_workers *workers,
                      uint32_t area,
                      struct rkfd_area_info *info);

/**
 * Tells the counters of a worker, from 0. -ERANGE where there is none of that number.
 *
 * MT-Safe.
 *
 * # Safety
 * `info` points to as many bytes as its `size` says.
 */
int rkfd_workers_worker(const struct rkfd_workers *workers, uint32_t worker, struct rkfd_worker_info *info);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RKFD_H */
