// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The structures and numbers of `uapi/rkfd_drm.h`, whose comments apply.
//!
//! `tests/abi.rs` compiles all of them against that header.

use std::mem::offset_of;
use std::mem::size_of;

use crate::abi::Call;
use crate::abi::Field;
use crate::abi::Layout;
use crate::sys::Argument;

macro_rules! numbers {
    ($( $(#[$doc:meta])* $name:ident = $value:expr; )*) => {
        $( $(#[$doc])* pub const $name: u32 = $value; )*

        /// Every number, by its name after `DRM_RKFD_`.
        pub const NUMBERS: &[(&str, u32)] = &[ $( (stringify!($name), $name) ),* ];
    };
}

numbers! {
    /// Memory of the GPU.
    HEAP_VRAM = 1;
    /// Memory of the machine.
    HEAP_SYSTEM = 2;
    /// A buffer that is never cached.
    BO_UNCACHED = 0x2;
    /// A buffer that the CPU can map.
    BO_CPU_ACCESS = 0x8;
    /// Unmaps a range.
    BIND_UNMAP = 0;
    /// Shows a part of a buffer.
    BIND_MAP = 1;
    /// Shows memory of the caller.
    BIND_MAP_USER = 2;
    /// The GPU may write.
    BIND_WRITE = 0x1;
    /// The GPU may fetch instructions.
    BIND_EXECUTE = 0x2;
    /// A queue for PM4 packets.
    QUEUE_PM4 = 0;
    /// A queue for AQL packets.
    QUEUE_AQL = 1;
    /// A queue for SDMA packets.
    QUEUE_SDMA = 2;
    /// Any engine.
    ENGINE_ANY = u32::MAX;
    /// The GPU was about to write.
    FAULT_WRITE = 0x1;
    /// It was about to fetch an instruction.
    FAULT_EXECUTE = 0x2;
    /// The page is bound, but not for this.
    FAULT_PRESENT = 0x4;
    /// The GPU writes nothing.
    MIRROR_READ_ONLY = 0x1;
    /// The GPU may fetch instructions.
    MIRROR_EXECUTE = 0x2;
    /// Filled at once, and after each change while queues wait.
    MIRROR_POPULATED = 0x4;
    /// Filled by accesses, which are repeated until then.
    MIRROR_FAULT = 0x8;
    /// All memory, each byte at its own address.
    MIRROR_WHOLE = 0x10;
    /// Of a device: memory of mirrors can be in VRAM.
    FEATURE_MIGRATION = 0x2;
    /// Of a device: accesses move memory as hints say.
    FEATURE_MOVES_BY_ACCESS = 0x4;
    /// Ranges of one mirror that have a hint.
    MIRROR_MAX_HINTS = 4096;
    /// Moves what is there.
    MIGRATE_NOW = 0x1;
    /// Notes the place for later.
    MIGRATE_KEEP = 0x2;
    /// Moves also where nothing is yet.
    MIGRATE_FILL = 0x4;
    /// Where the driver thinks best.
    PLACE_POLICY = 0;
    /// VRAM of this GPU.
    PLACE_VRAM = 1;
    /// System memory.
    PLACE_SYSTEM = 2;
    /// Where it is.
    PLACE_STAY = 3;
}

macro_rules! structures {
    ($( $(#[$doc:meta])* $name:ident = $c:literal, $size:literal { $( $field:ident: $ty:ty ),* $(,)? } )*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name {
                $( #[doc = concat!("`", stringify!($field), "` of the C structure.")] pub $field: $ty, )*
            }

            const _: () = {
                assert!(size_of::<$name>() == $size);
                assert!(0 $( + size_of::<$ty>() )* == $size);
            };

            // SAFETY: integers without padding, of the size that the command word says.
            unsafe impl Argument for $name {}
        )*

        /// Every structure, for comparison with the C header.
        pub const LAYOUTS: &[Layout] = &[
            $( Layout {
                name: $c,
                size: $size,
                fields: &[ $( Field {
                    name: stringify!($field),
                    offset: offset_of!($name, $field),
                    size: size_of::<$ty>(),
                } ),* ],
            } ),*
        ];
    };
}

structures! {
    /// QUERY.
    Query = "drm_rkfd_query", 24 { what: u32, flags: u32, data: u64, size: u32, pad: u32 }
    /// What QUERY answers.
    DeviceInfo = "drm_rkfd_device", 104 {
        version: u32, features: u32, gfx_target: u32, pci_device: u32, pci_revision: u32, compute_units: u32,
        wave_size: u32, xccs: u32, va_start: u64, va_end: u64, page_sizes: u64, clock_hz: u64, sdma_engines: u32,
        sdma_general: u32, sdma_queues: u32, max_queues: u32, doorbell_bytes: u32, eop_bytes: u32, save_bytes: u32,
        ctl_stack_bytes: u32, debug_bytes: u32, max_binds: u32,
    }
    /// BO_CREATE.
    BoCreate = "drm_rkfd_bo_create", 32 { size: u64, heap: u32, fallback: u32, flags: u32, handle: u32, mmap_offset: u64 }
    /// DRM_IOCTL_GEM_CLOSE.
    GemClose = "drm_gem_close", 8 { handle: u32, pad: u32 }
    /// An operation of BIND.
    BindOp = "drm_rkfd_bind_op", 40 { op: u32, flags: u32, address: u64, length: u64, offset: u64, handle: u32, pad: u32 }
    /// BIND.
    Bind = "drm_rkfd_bind", 24 { ops: u64, count: u32, stride: u32, flags: u32, failed: u32 }
    /// QUEUE_CREATE.
    QueueCreate = "drm_rkfd_queue_create", 96 {
        r#type: u32, flags: u32, ring: u64, read_pointer: u64, write_pointer: u64, eop: u64, save: u64,
        ring_size: u32, eop_size: u32, save_size: u32, ctl_stack_size: u32, engine: u32, percentage: u32,
        priority: u32, id: u32, doorbell: u32, pad: u32, doorbell_map: u64,
    }
    /// QUEUE_DESTROY.
    QueueDestroy = "drm_rkfd_queue_destroy", 8 { id: u32, pad: u32 }
    /// EVENT_CREATE.
    EventCreate = "drm_rkfd_event_create", 16 { eventfd: i32, condition: u32, flags: u32, slot: u32 }
    /// EVENT_DESTROY.
    EventDestroy = "drm_rkfd_event_destroy", 8 { slot: u32, pad: u32 }
    /// A condition of WAIT.
    WaitOp = "drm_rkfd_wait_op", 32 { address: u64, value: u64, mask: u64, compare: u32, size: u32 }
    /// WAIT.
    Wait = "drm_rkfd_wait", 32 { ops: u64, deadline: u64, count: u32, stride: u32, flags: u32, met: u32 }
    /// A record of FAULTS.
    Fault = "drm_rkfd_fault", 24 { address: u64, time: u64, access: u32, pad: u32 }
    /// FAULTS.
    Faults = "drm_rkfd_faults", 32 { records: u64, count: u32, stride: u32, flags: u32, pad: u32, dropped: u64 }
    /// MIRROR_CREATE.
    MirrorCreate = "drm_rkfd_mirror_create", 40 { address: u64, gpu_address: u64, length: u64, flags: u32, id: u32, leaf: u64 }
    /// MIRROR_DESTROY.
    MirrorDestroy = "drm_rkfd_mirror_destroy", 8 { id: u32, pad: u32 }
    /// MIRROR_QUERY.
    MirrorQuery = "drm_rkfd_mirror_query", 80 {
        id: u32, flags: u32, address: u64, gpu_address: u64, length: u64, bytes: u64, huge_bytes: u64, changes: u64, faults: u64,
        vram_bytes: u64, hints: u64,
    }
    /// MIRROR_POPULATE.
    MirrorPopulate = "drm_rkfd_mirror_populate", 24 { id: u32, flags: u32, gpu_address: u64, length: u64 }
    /// MIRROR_MIGRATE.
    MirrorMigrate = "drm_rkfd_mirror_migrate", 48 {
        id: u32, flags: u32, gpu_address: u64, length: u64, place: u32, granularity: u32, moved: u64, stayed: u64,
    }
}

/// The command word of a call of the native interface.
const fn native<T>(number: u32) -> u32 {
    // CAST: sizes of 14 bits and a byte.
    (3 << 30) | ((size_of::<T>() as u32) << 16) | ((b'd' as u32) << 8) | (0x80 + number)
}

macro_rules! calls {
    ($( $name:ident = $number:literal $arg:ty; )*) => {
        $(
            #[doc = concat!("`DRM_IOCTL_RKFD_", stringify!($name), "`.")]
            pub const $name: u32 = native::<$arg>($number);
        )*

        /// Every call, by its name after `DRM_IOCTL_RKFD_`.
        pub const CALLS: &[Call] = &[ $( Call { name: stringify!($name), command: $name } ),* ];
    };
}

calls! {
    QUERY = 0 Query;
    BO_CREATE = 1 BoCreate;
    BIND = 3 Bind;
    QUEUE_CREATE = 4 QueueCreate;
    QUEUE_DESTROY = 6 QueueDestroy;
    EVENT_CREATE = 7 EventCreate;
    EVENT_DESTROY = 8 EventDestroy;
    WAIT = 9 Wait;
    FAULTS = 10 Faults;
    MIRROR_CREATE = 11 MirrorCreate;
    MIRROR_DESTROY = 12 MirrorDestroy;
    MIRROR_QUERY = 13 MirrorQuery;
    MIRROR_POPULATE = 14 MirrorPopulate;
    MIRROR_MIGRATE = 15 MirrorMigrate;
}

/// `DRM_IOCTL_GEM_CLOSE`.
pub const GEM_CLOSE: u32 = (1 << 30) | (8 << 16) | ((b'd' as u32) << 8) | 0x09; // CAST: a byte.
