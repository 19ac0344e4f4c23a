// SPDX-License-Identifier: GPL-2.0

//! The structures and numbers of `uapi/rkfd_drm.h`.

use crate::kapi::abi::abi_struct;

/// Version of the interface.
pub(super) const VERSION: u32 = 6;

/// Numbers among the driver's commands.
pub(super) mod nr {
    pub(in super::super) const QUERY: u32 = 0x40;
    pub(in super::super) const BO_CREATE: u32 = 0x41;
    pub(in super::super) const BO_INFO: u32 = 0x42;
    pub(in super::super) const BIND: u32 = 0x43;
    pub(in super::super) const QUEUE_CREATE: u32 = 0x44;
    pub(in super::super) const QUEUE_UPDATE: u32 = 0x45;
    pub(in super::super) const QUEUE_DESTROY: u32 = 0x46;
    pub(in super::super) const EVENT_CREATE: u32 = 0x47;
    pub(in super::super) const EVENT_DESTROY: u32 = 0x48;
    pub(in super::super) const WAIT: u32 = 0x49;
    pub(in super::super) const FAULTS: u32 = 0x4a;
    pub(in super::super) const MIRROR_CREATE: u32 = 0x4b;
    pub(in super::super) const MIRROR_DESTROY: u32 = 0x4c;
    pub(in super::super) const MIRROR_QUERY: u32 = 0x4d;
    pub(in super::super) const MIRROR_POPULATE: u32 = 0x4e;
    pub(in super::super) const MIRROR_MIGRATE: u32 = 0x4f;
}

/// What QUERY asks for.
pub(super) mod query {
    pub(in super::super) const DEVICE: u32 = 0;
    pub(in super::super) const HEAPS: u32 = 1;
}

/// Queues that find no place on the hardware wait for one.
pub(super) const FEATURE_QUEUES_TAKE_TURNS: u32 = 0x1;
/// Memory of mirrors can be in VRAM.
pub(super) const FEATURE_MIGRATION: u32 = 0x2;
/// Accesses move memory of mirrors as hints say.
pub(super) const FEATURE_MOVES_BY_ACCESS: u32 = 0x4;

/// Heaps.
pub(super) mod heap {
    pub(in super::super) const NONE: u32 = 0;
    pub(in super::super) const VRAM: u32 = 1;
    pub(in super::super) const SYSTEM: u32 = 2;
}

/// Flags of BO_CREATE.
pub(super) mod bo_flags {
    pub(in super::super) const COHERENT: u32 = 0x1;
    pub(in super::super) const UNCACHED: u32 = 0x2;
    pub(in super::super) const CONTIGUOUS: u32 = 0x4;
    pub(in super::super) const CPU_ACCESS: u32 = 0x8;
    pub(in super::super) const ALL: u32 = COHERENT | UNCACHED | CONTIGUOUS | CPU_ACCESS;
}

/// Operations and flags of BIND.
pub(super) mod bind {
    pub(in super::super) const UNMAP: u32 = 0;
    pub(in super::super) const MAP: u32 = 1;
    pub(in super::super) const MAP_USER: u32 = 2;
    pub(in super::super) const WRITE: u32 = 0x1;
    pub(in super::super) const EXECUTE: u32 = 0x2;
    /// No operation is at fault.
    pub(in super::super) const NO_OP: u32 = u32::MAX;
}

/// Flags of MIRROR_CREATE.
pub(super) mod mirror_flags {
    pub(in super::super) const READ_ONLY: u32 = 0x1;
    pub(in super::super) const EXECUTE: u32 = 0x2;
    pub(in super::super) const POPULATED: u32 = 0x4;
    pub(in super::super) const FAULT: u32 = 0x8;
    pub(in super::super) const WHOLE: u32 = 0x10;
    pub(in super::super) const ALL: u32 = READ_ONLY | EXECUTE | POPULATED | FAULT | WHOLE;
}

/// Flags of MIRROR_MIGRATE.
pub(super) mod migrate_flags {
    pub(in super::super) const NOW: u32 = 0x1;
    pub(in super::super) const KEEP: u32 = 0x2;
    pub(in super::super) const FILL: u32 = 0x4;
    pub(in super::super) const ALL: u32 = NOW | KEEP | FILL;
}

/// Where memory is to be.
pub(super) mod place {
    pub(in super::super) const VRAM: u32 = 1;
    pub(in super::super) const SYSTEM: u32 = 2;
    /// The largest number: where it is.
    pub(in super::super) const STAY: u32 = 3;
}

abi_struct! {
    /// `struct drm_rkfd_query`.
    struct Query: 24 {
        what: u32,
        flags: u32,
        data: u64,
        size: u32,
        pad: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_device`.
    struct DeviceAnswer: 104 {
        version: u32,
        features: u32,
        gfx_target: u32,
        pci_device: u32,
        pci_revision: u32,
        compute_units: u32,
        wave_size: u32,
        xccs: u32,
        va_start: u64,
        va_end: u64,
        page_sizes: u64,
        clock_hz: u64,
        sdma_engines: u32,
        sdma_general: u32,
        sdma_queues: u32,
        max_queues: u32,
        doorbell_bytes: u32,
        eop_bytes: u32,
        save_bytes: u32,
        ctl_stack_bytes: u32,
        debug_bytes: u32,
        max_binds: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_heap`.
    struct HeapAnswer: 32 {
        heap: u32,
        flags: u32,
        total: u64,
        used: u64,
        cpu_visible: u64,
    }
}

abi_struct! {
    /// `struct drm_rkfd_bo_create`.
    struct BoCreate: 32 {
        size: u64,
        heap: u32,
        fallback: u32,
        flags: u32,
        handle: u32,
        mmap_offset: u64,
    }
}

abi_struct! {
    /// `struct drm_rkfd_bo_info`.
    struct BoInfo: 40 {
        handle: u32,
        pad: u32,
        heap: u32,
        flags: u32,
        size: u64,
        mmap_offset: u64,
        ranges: u64,
    }
}

abi_struct! {
    /// `struct drm_rkfd_bind_op`.
    struct BindOp: 40 {
        op: u32,
        flags: u32,
        address: u64,
        length: u64,
        offset: u64,
        handle: u32,
        pad: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_bind`.
    struct BindList: 24 {
        ops: u64,
        count: u32,
        stride: u32,
        flags: u32,
        failed: u32,
    }
}

/// Types of queues, and engines.
pub(super) mod queue {
    pub(in super::super) const PM4: u32 = 0;
    pub(in super::super) const AQL: u32 = 1;
    pub(in super::super) const SDMA: u32 = 2;
    /// Any engine.
    pub(in super::super) const ANY_ENGINE: u32 = u32::MAX;
}

/// What QUEUE_UPDATE changes.
pub(super) mod update {
    pub(in super::super) const RING: u32 = 0x1;
    pub(in super::super) const PERCENTAGE: u32 = 0x2;
    pub(in super::super) const PRIORITY: u32 = 0x4;
    pub(in super::super) const CU_MASK: u32 = 0x8;
    pub(in super::super) const ALL: u32 = RING | PERCENTAGE | PRIORITY | CU_MASK;
}

/// Conditions of events.
pub(super) mod condition {
    pub(in super::super) const SIGNAL: u32 = 0;
    pub(in super::super) const FAULT: u32 = 1;
    pub(in super::super) const QUEUE: u32 = 2;
    pub(in super::super) const RESET: u32 = 3;
}

/// Flags of WAIT.
pub(super) mod wait {
    /// All conditions must hold at once, not just one.
    pub(in super::super) const ALL: u32 = 0x1;
    /// No condition holds.
    pub(in super::super) const NONE: u32 = u32::MAX;
    /// The word is equal to the value.
    pub(in super::super) const EQUAL: u32 = 0;
    /// It differs.
    pub(in super::super) const NOT_EQUAL: u32 = 1;
    /// It is as large, or larger.
    pub(in super::super) const AT_LEAST: u32 = 2;
}

/// What a fault was.
pub(super) mod fault {
    pub(in super::super) const WRITE: u32 = 0x1;
    pub(in super::super) const EXECUTE: u32 = 0x2;
    pub(in super::super) const PRESENT: u32 = 0x4;
}

abi_struct! {
    /// `struct drm_rkfd_queue_create`.
    struct QueueCreate: 96 {
        queue_type: u32,
        flags: u32,
        ring: u64,
        read_pointer: u64,
        write_pointer: u64,
        eop: u64,
        save: u64,
        ring_size: u32,
        eop_size: u32,
        save_size: u32,
        ctl_stack_size: u32,
        engine: u32,
        percentage: u32,
        priority: u32,
        id: u32,
        doorbell: u32,
        pad: u32,
        doorbell_map: u64,
    }
}

abi_struct! {
    /// `struct drm_rkfd_queue_update`.
    struct QueueUpdate: 40 {
        id: u32,
        flags: u32,
        ring: u64,
        ring_size: u32,
        percentage: u32,
        priority: u32,
        cu_count: u32,
        cu_mask: u64,
    }
}

abi_struct! {
    /// `struct drm_rkfd_queue_destroy`.
    struct QueueDestroy: 8 {
        id: u32,
        pad: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_event_create`.
    struct EventCreate: 16 {
        eventfd: i32,
        condition: u32,
        flags: u32,
        slot: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_event_destroy`.
    struct EventDestroy: 8 {
        slot: u32,
        pad: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_wait_op`.
    struct WaitOp: 32 {
        address: u64,
        value: u64,
        mask: u64,
        compare: u32,
        size: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_wait`.
    struct Wait: 32 {
        ops: u64,
        deadline: u64,
        count: u32,
        stride: u32,
        flags: u32,
        met: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_fault`.
    struct FaultRecord: 24 {
        address: u64,
        time: u64,
        access: u32,
        pad: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_faults`.
    struct Faults: 32 {
        records: u64,
        count: u32,
        stride: u32,
        flags: u32,
        pad: u32,
        dropped: u64,
    }
}

abi_struct! {
    /// `struct drm_rkfd_mirror_create`.
    struct MirrorCreate: 40 {
        address: u64,
        gpu_address: u64,
        length: u64,
        flags: u32,
        id: u32,
        leaf: u64,
    }
}

abi_struct! {
    /// `struct drm_rkfd_mirror_destroy`.
    struct MirrorDestroy: 8 {
        id: u32,
        pad: u32,
    }
}

abi_struct! {
    /// `struct drm_rkfd_mirror_query`.
    struct MirrorQuery: 80 {
        id: u32,
        flags: u32,
        address: u64,
        gpu_address: u64,
        length: u64,
        bytes: u64,
        huge_bytes: u64,
        changes: u64,
        faults: u64,
        vram_bytes: u64,
        hints: u64,
    }
}

abi_struct! {
    /// `struct drm_rkfd_mirror_populate`.
    struct MirrorPopulate: 24 {
        id: u32,
        flags: u32,
        gpu_address: u64,
        length: u64,
    }
}

abi_struct! {
    /// `struct drm_rkfd_mirror_migrate`.
    struct MirrorMigrate: 48 {
        id: u32,
        flags: u32,
        gpu_address: u64,
        length: u64,
        place: u32,
        granularity: u32,
        moved: u64,
        stayed: u64,
    }
}
