// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of the driver: what becomes of queues, memory and mirrors, and resets.
//!
//! C header: `include/rkfd_trace.h`

use crate::kapi::trace::tracepoints;

tracepoints! {
    /// A queue was made.
    fn queue_create / queue_create_enabled / __tracepoint_queue_create / rust_do_trace_queue_create (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        queue: u64,
        kind: u32,
        doorbell: u32,
        ring: u64,
        ring_size: u32,
    );
    /// A queue was destroyed.
    fn queue_destroy / queue_destroy_enabled / __tracepoint_queue_destroy / rust_do_trace_queue_destroy (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        queue: u64,
        doorbell: u32,
        us: u64,
        result: i32,
    );
    /// A queue became part of what the hardware works on.
    fn queue_map / queue_map_enabled / __tracepoint_queue_map / rust_do_trace_queue_map (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        queue: u64,
        kind: u32,
        doorbell: u32,
    );
    /// The hardware confirmed that a queue is off.
    fn queue_unmap / queue_unmap_enabled / __tracepoint_queue_unmap / rust_do_trace_queue_unmap (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        queue: u64,
        kind: u32,
        doorbell: u32,
    );
    /// Queues were preempted.
    fn preempt / preempt_enabled / __tracepoint_preempt / rust_do_trace_preempt (
        gpu_id: u32,
        scope: u32,
        pasid: u16,
        queues: u32,
        us: u64,
        refused: u32,
        result: i32,
    );
    /// The queues of an address space may not run.
    fn evict / evict_enabled / __tracepoint_evict / rust_do_trace_evict (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        cause: u32,
        us: u64,
        result: i32,
    );
    /// One cause not to run is over.
    fn restore / restore_enabled / __tracepoint_restore / rust_do_trace_restore (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        cause: u32,
        result: i32,
    );
    /// Something was reset.
    fn reset / reset_enabled / __tracepoint_reset / rust_do_trace_reset (
        gpu_id: u32,
        kind: u32,
        doorbell: u32,
        queues: u32,
        us: u64,
        result: i32,
    );
    /// The hardware got a new list of what to work on.
    fn runlist / runlist_enabled / __tracepoint_runlist / rust_do_trace_runlist (
        gpu_id: u32,
        processes: u32,
        queues: u32,
        dwords: u32,
        chained: bool,
        result: i32,
    );
    /// A range of an address space was mapped.
    fn vm_map / vm_map_enabled / __tracepoint_vm_map / rust_do_trace_vm_map (
        gpu_id: u32,
        pasid: u16,
        address: u64,
        length: u64,
        result: i32,
    );
    /// A range of an address space was unmapped.
    fn vm_unmap / vm_unmap_enabled / __tracepoint_vm_unmap / rust_do_trace_vm_unmap (
        gpu_id: u32,
        pasid: u16,
        address: u64,
        length: u64,
        result: i32,
    );
    /// Memory of a buffer was moved.
    fn bo_move / bo_move_enabled / __tracepoint_bo_move / rust_do_trace_bo_move (
        gpu_id: u32,
        out: bool,
        length: u64,
        us: u64,
        result: i32,
    );
    /// An access was refused, or is being retried.
    fn vm_fault / vm_fault_enabled / __tracepoint_vm_fault / rust_do_trace_vm_fault (
        gpu_id: u32,
        pasid: u16,
        vmid: u32,
        address: u64,
        write: bool,
        execute: bool,
        retry: bool,
    );
    /// A mirror was made.
    fn mirror_create / mirror_create_enabled / __tracepoint_mirror_create / rust_do_trace_mirror_create (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        mirror: u32,
        cpu: u64,
        address: u64,
        length: u64,
    );
    /// A mirror has ended.
    fn mirror_destroy / mirror_destroy_enabled / __tracepoint_mirror_destroy / rust_do_trace_mirror_destroy (
        gpu_id: u32,
        pasid: u16,
        mirror: u32,
    );
    /// Memory was looked for because of an access that is repeated.
    fn mirror_serve / mirror_serve_enabled / __tracepoint_mirror_serve / rust_do_trace_mirror_serve (
        gpu_id: u32,
        pasid: u16,
        address: u64,
        write: bool,
        bytes: u64,
        us: u64,
        result: i32,
    );
    /// Memory changes that a mirror shows, or is to show.
    fn mirror_change / mirror_change_enabled / __tracepoint_mirror_change / rust_do_trace_mirror_change (
        gpu_id: u32,
        pasid: u16,
        address: u64,
        length: u64,
        cause: u32,
    );
    /// Memory of a program was moved, or was to be.
    fn mirror_migrate / mirror_migrate_enabled / __tracepoint_mirror_migrate / rust_do_trace_mirror_migrate (
        gpu_id: u32,
        out: bool,
        trigger: u32,
        address: u64,
        asked: u64,
        moved: u64,
        us: u64,
        result: i32,
    );
}

/// What a [`reset`] was of.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum ResetKind {
    /// One queue.
    Queue,
    /// The engines, in place.
    Engines,
    /// The chip.
    Chip,
}
