/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The user library of rkfd for C: GPUs, memory, queues, events and signals over /dev/kfd.
 *
 * Functions that can fail return 0 or a negative errno; rkfd_last_error() tells more. Nothing may be called while
 * another thread gives the same handle back; otherwise every function may be called from any thread. A child of fork
 * must not use its parent's handles.
 *
 * Link with librkfd.so, or with librkfd.a and -lgcc_s -ldl -lm (before glibc 2.34 -lpthread, too).
 *
 * Generated from the Rust sources by tools/rkfd-c/tests/header.rs; edit those.
 */

#ifndef RKFD_H
#define RKFD_H

#include <stdint.h>

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
 * Memory, mapped on its GPU, and on those that it is shared with, for reading, writing and executing.
 */
struct rkfd_buffer;

/**
 * An event: a signal event, which packets and the CPU raise, or an exception event, which only the driver does.
 */
struct rkfd_event;

/**
 * A GPU that the driver serves.
 */
struct rkfd_gpu;

/**
 * A user queue. Its functions may be called from any thread; packets of one thread are not torn apart by another's,
 * but rkfd_queue_reserve() reserves for nobody in particular.
 */
struct rkfd_queue;

/**
 * An array of signals, in one buffer.
 */
struct rkfd_signals;

/**
 * The process's address space on one GPU: what buffers, queues and events belong to.
 */
struct rkfd_vm;

/**
 * What is known of a GPU; 0 and "" where the driver does not tell.
 */
struct rkfd_gpu_info {
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
         * 0.
         */
        uint32_t reserved;
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
 * What the driver tells of an exception. Fields of the other kind are 0.
 */
struct rkfd_exception_info {
        /**
         * RKFD_EXCEPTION_*.
         */
        uint32_t kind;
        /**
         * The GPU's id.
         */
        uint32_t gpu_id;
        /**
         * Memory: the page's address.
         */
        uint64_t address;
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
};

/**
 * How to create a queue; start from rkfd_queue_defaults().
 */
struct rkfd_queue_options {
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
         * The copy engine of an SDMA queue; below 0 the driver chooses.
         */
        int32_t engine;
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
         * Its id in this process.
         */
        uint32_t queue_id;
        /**
         * RKFD_QUEUE_*.
         */
        uint32_t kind;
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
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The text of the last error of the calling thread, "" where there was none. Valid until the thread's next call that
 * fails; calls that succeed leave it as it is.
 */
const char *rkfd_last_error(void);

/**
 * Counts the GPUs. No driver is -ENODEV; a driver without a GPU is success and 0.
 */
int rkfd_gpu_count(uint32_t *count);

/**
 * Opens the GPU with that number, from 0 in the driver's order. -ENODEV where there is none. Give it back with
 * rkfd_gpu_close; what was made from it lives on.
 */
int rkfd_gpu_open(uint32_t index,
                  struct rkfd_gpu **gpu);

/**
 * Gives a GPU back; NULL is allowed.
 */
void rkfd_gpu_close(struct rkfd_gpu *gpu);

/**
 * Describes a GPU, as it was when it was opened.
 */
int rkfd_gpu_describe(const struct rkfd_gpu *gpu, struct rkfd_gpu_info *info);

/**
 * Opens the process's address space on a GPU. There is one for each GPU until the process ends: opening again gives
 * another handle of the same. -EBUSY where the process bound it in another way than by this library.
 */
int rkfd_vm_open(const struct rkfd_gpu *gpu,
                 struct rkfd_vm **vm);

/**
 * Gives a handle of the address space back; NULL is allowed. What was made from it lives on.
 */
void rkfd_vm_close(struct rkfd_vm *vm);

/**
 * VRAM that can still be allocated, in bytes.
 */
int rkfd_vm_available(const struct rkfd_vm *vm, uint64_t *bytes);

/**
 * Allocates at least `size` bytes (whole pages, RKFD_BUFFER_* kind) and maps them on the GPU and, except for private
 * VRAM, the CPU. Memory of the kernel comes cleared; a child of fork does not have it.
 */
int rkfd_buffer_new(const struct rkfd_vm *vm,
                    uint32_t kind,
                    uint64_t size,
                    struct rkfd_buffer **buffer);

/**
 * Lets the GPU see memory that the program has: `size` bytes at `memory`, both multiples of 4096 (else -EINVAL). CPU and
 * GPU see it at the same address. -EFAULT where nothing is mapped. rkfd_buffer_free leaves the memory as it is.
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
 * of the kernel and of the process can be shared; whether a GPU reaches another's VRAM is for the driver to say.
 */
int rkfd_buffer_share(const struct rkfd_buffer *buffer,
                      const struct rkfd_vm *vm);

/**
 * Unmaps and frees a buffer; NULL is allowed. Whatever still uses it on the GPU faults, so wait first.
 */
void rkfd_buffer_free(struct rkfd_buffer *buffer);

/**
 * Where the CPU reaches the buffer; NULL for private VRAM, and for NULL.
 */
void *rkfd_buffer_cpu(const struct rkfd_buffer *buffer);

/**
 * The buffer's address for packets; 0 for NULL.
 */
uint64_t rkfd_buffer_gpu(const struct rkfd_buffer *buffer);

/**
 * The buffer's size in bytes; 0 for NULL.
 */
uint64_t rkfd_buffer_size(const struct rkfd_buffer *buffer);

/**
 * Creates a signal event. With `auto_reset` (not 0), a wait that it satisfies also resets it.
 *
 * Packets of any GPU that the process made an event for may raise it.
 */
int rkfd_event_new(const struct rkfd_vm *vm, int auto_reset, struct rkfd_event **event);

/**
 * Creates an exception event (RKFD_EXCEPTION_* kind). It stays raised once it is. Give it back with rkfd_event_free.
 */
int rkfd_exception_new(const struct rkfd_vm *vm,
                       uint32_t kind,
                       struct rkfd_event **event);

/**
 * Destroys an event; NULL is allowed. A packet that still raises it wakes nobody.
 */
void rkfd_event_free(struct rkfd_event *event);

/**
 * The event's id: what a packet stores at its slot and gives its interrupt as context. 0 for NULL.
 */
uint32_t rkfd_event_id(const struct rkfd_event *event);

/**
 * Address of a signal event's slot. 0 for NULL, and for an exception event.
 */
uint64_t rkfd_event_slot(const struct rkfd_event *event);

/**
 * Raises a signal event from the CPU.
 */
int rkfd_event_set(const struct rkfd_event *event);

/**
 * Takes a signal event back.
 */
int rkfd_event_reset(const struct rkfd_event *event);

/**
 * Sleeps until the event is raised, for `limit_ms` at most: then -ETIMEDOUT. -EIO where it was destroyed meanwhile.
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
 * # Safety
 * `events` points to that many events.
 */
int rkfd_events_wait(const struct rkfd_event *const *events,
                     uint32_t count,
                     int all,
                     uint32_t limit_ms);

/**
 * Sleeps until an exception event is raised, as rkfd_event_wait, and tells what happened.
 */
int rkfd_exception_wait(const struct rkfd_event *event, uint32_t limit_ms, struct rkfd_exception_info *info);

/**
 * Allocates `count` signals with value 0.
 */
int rkfd_signals_new(const struct rkfd_vm *vm, uint32_t count, struct rkfd_signals **signals);

/**
 * Frees signals; NULL is allowed. A packet that still completes one faults, so wait first.
 */
void rkfd_signals_free(struct rkfd_signals *signals);

/**
 * A signal's address for packets; 0 for NULL and where there is no such signal.
 */
uint64_t rkfd_signals_address(const struct rkfd_signals *signals, uint32_t index);

/**
 * Reads a signal's value, and sees everything that its packet wrote. -ERANGE where there is no such signal.
 */
int rkfd_signals_load(const struct rkfd_signals *signals, uint32_t index, int64_t *value);

/**
 * Sets a signal's value, after everything written before.
 */
int rkfd_signals_store(const struct rkfd_signals *signals, uint32_t index, int64_t value);

/**
 * Lets each completion of a signal raise an event, too. The event must outlive the packets.
 */
int rkfd_signals_attach(const struct rkfd_signals *signals, uint32_t index, const struct rkfd_event *event);

/**
 * Polls, without entering the kernel, until a signal's value is below `bound`; for `limit_ms` at most, then -ETIMEDOUT.
 * `value`, unless NULL, receives the value seen.
 */
int rkfd_signals_wait_below(const struct rkfd_signals *signals,
                            uint32_t index,
                            int64_t bound,
                            uint32_t limit_ms,
                            int64_t *value);

/**
 * The ordinary options: a ring of the ordinary size, percentage 100, priority 7, an engine of the driver's choice.
 */
struct rkfd_queue_options rkfd_queue_defaults(void);

/**
 * Creates a queue (RKFD_QUEUE_* kind) with all that it needs: ring, pointers, end-of-pipe buffer, save area, doorbell.
 * NULL options are rkfd_queue_defaults().
 */
int rkfd_queue_new(const struct rkfd_vm *vm,
                   uint32_t kind,
                   const struct rkfd_queue_options *options,
                   struct rkfd_queue **queue);

/**
 * Destroys a queue, whatever it still has to do; NULL is allowed.
 */
void rkfd_queue_free(struct rkfd_queue *queue);

/**
 * Tells where a queue is, and how far.
 */
int rkfd_queue_describe(const struct rkfd_queue *queue, struct rkfd_queue_info *info);

/**
 * Changes percentage (0 stops the queue) and priority.
 */
int rkfd_queue_update(const struct rkfd_queue *queue, uint32_t percentage, uint32_t priority);

/**
 * Restricts the waves of a compute queue to the compute units whose bits are set; `mask` has `words` words of 32 units
 * each, the first unit in the lowest bit of the first word. Packets that run no waves are not concerned.
 *
 * # Safety
 * `mask` points to that many words.
 */
int rkfd_queue_set_cu_mask(const struct rkfd_queue *queue,
                           const uint32_t *mask,
                           uint32_t words);

/**
 * Waits until the ring has room for `dwords` dwords of packets; for `limit_ms` at most, then -ETIMEDOUT. -EINVAL where
 * the ring never has that room, -EBUSY where packets are not committed and the GPU therefore cannot make room.
 */
int rkfd_queue_reserve(const struct rkfd_queue *queue,
                       uint32_t dwords,
                       uint32_t limit_ms);

/**
 * Tells the GPU of everything emitted, by one doorbell: the write pointer goes to memory, a store barrier orders it and
 * the packets before the doorbell, then the doorbell is rung. Success where there was nothing to tell.
 */
int rkfd_queue_commit(const struct rkfd_queue *queue);

/**
 * Waits until the GPU read everything from the ring; for `limit_ms` at most, then -ETIMEDOUT. -EBUSY where packets are
 * not committed. Read is not done: let the last packet raise an event, complete a signal or write memory, and wait for
 * that. Polls, without entering the kernel.
 */
int rkfd_queue_wait(const struct rkfd_queue *queue,
                    uint32_t limit_ms);

/**
 * Puts `count` dwords of PM4 or SDMA packets into the ring, at the next free place. -EAGAIN where there is no room now
 * (rkfd_queue_reserve), -EINVAL on an AQL queue. The GPU learns of them by rkfd_queue_commit.
 *
 * # Safety
 * `dwords` points to that many.
 */
int rkfd_queue_emit(const struct rkfd_queue *queue,
                    const uint32_t *dwords,
                    uint32_t count);

/**
 * Puts one AQL packet of 16 dwords into the ring, its header last; bits 0 to 15 of its first dword are not used.
 * `index`, unless NULL, receives the packet's index. -EAGAIN where there is no room now.
 *
 * # Safety
 * `packet` points to 16 dwords.
 */
int rkfd_aql_emit(const struct rkfd_queue *queue,
                  const uint32_t *packet,
                  uint16_t header,
                  uint64_t *index);

/**
 * PM4: stores `count` dwords at `address` and waits until they arrived.
 *
 * # Safety
 * `values` points to that many.
 */
int rkfd_pm4_write(const struct rkfd_queue *queue, uint64_t address, const uint32_t *values, uint32_t count);

/**
 * PM4: runs `dwords` dwords of packets at `address` and comes back.
 */
int rkfd_pm4_run(const struct rkfd_queue *queue, uint64_t address, uint32_t dwords);

/**
 * PM4: invalidates the caches before later packets.
 */
int rkfd_pm4_acquire(const struct rkfd_queue *queue);

/**
 * PM4: when earlier work is done and written back, stores 64 bits at `address` (8-byte aligned).
 */
int rkfd_pm4_release(const struct rkfd_queue *queue, uint64_t address, uint64_t value);

/**
 * PM4: when earlier work is done and written back, raises an event.
 */
int rkfd_pm4_raise(const struct rkfd_queue *queue, const struct rkfd_event *event);

/**
 * SDMA: copies `bytes` bytes, in as many packets as it takes.
 */
int rkfd_sdma_copy(const struct rkfd_queue *queue, uint64_t destination, uint64_t source, uint64_t bytes);

/**
 * SDMA: fills `bytes` bytes (a multiple of 4) with a dword, in as many packets as it takes.
 */
int rkfd_sdma_fill(const struct rkfd_queue *queue, uint64_t destination, uint32_t value, uint64_t bytes);

/**
 * SDMA: after earlier packets, stores a dword at `address`.
 */
int rkfd_sdma_fence(const struct rkfd_queue *queue, uint64_t address, uint32_t value);

/**
 * SDMA: after earlier packets, raises an event.
 */
int rkfd_sdma_raise(const struct rkfd_queue *queue, const struct rkfd_event *event);

/**
 * AQL: waits until all of `count` (0 to 5) signals are exactly 0 (one that is below 0 is waited for as well) and earlier
 * packets are done, then decrements the signal at `completion`, unless that is 0. `index`, unless NULL, receives the
 * packet's index.
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
 */
int rkfd_aql_pm4(const struct rkfd_queue *queue,
                 uint64_t address,
                 uint32_t dwords,
                 uint64_t completion,
                 uint64_t *index);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RKFD_H */
