// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The binary interface of `/dev/kfd`, as data.
//!
//! Every structure here mirrors one of `linux/kfd_ioctl.h`. Sizes and offsets are asserted when this crate is
//! compiled; `tests/abi.rs` compiles the same figures against the system's header, so neither can drift alone.
//! Field comments of the header apply; only what it leaves open is said here.

use std::mem::offset_of;
use std::mem::size_of;

/// One field of a mirrored structure: its C name, offset and size in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name in the C header.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// One mirrored structure: its C name without `struct`, size and fields.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The name in the C header.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Every field.
    pub fields: &'static [Field],
}

/// One call: the name after `AMDKFD_IOC_` and the command word.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The name in the C header without its prefix.
    pub name: &'static str,
    /// The command word: direction, size, `'K'`, number.
    pub command: u32,
}

macro_rules! mirror {
    ($( $(#[$doc:meta])* $rust:ident = $c:literal, $size:literal { $( $off:literal $field:ident : $ty:ty ),* $(,)? } )*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $rust {
                $(
                    #[doc = concat!("`", stringify!($field), "` of the C structure.")]
                    pub $field: $ty,
                )*
            }

            const _: () = {
                assert!(size_of::<$rust>() == $size);
                $( assert!(offset_of!($rust, $field) == $off); )*
            };
        )*

        /// Every mirrored structure, for comparison with a C header.
        pub const LAYOUTS: &[Layout] = &[
            $( Layout {
                name: $c,
                size: $size,
                fields: &[ $( Field { name: stringify!($field), offset: $off, size: size_of::<$ty>() } ),* ],
            } ),*
        ];
    };
}

mirror! {
    /// GET_VERSION.
    GetVersion = "kfd_ioctl_get_version_args", 8 { 0 major_version: u32, 4 minor_version: u32 }
    /// CREATE_QUEUE in the form of kernel 7.3.
    ///
    /// User space before interface 1.17 sends the first 88 bytes only.
    CreateQueue = "kfd_ioctl_create_queue_args", 96 {
        0 ring_base_address: u64, 8 write_pointer_address: u64, 16 read_pointer_address: u64,
        24 doorbell_offset: u64, 32 ring_size: u32, 36 gpu_id: u32, 40 queue_type: u32,
        44 queue_percentage: u32, 48 queue_priority: u32, 52 queue_id: u32,
        56 eop_buffer_address: u64, 64 eop_buffer_size: u64, 72 ctx_save_restore_address: u64,
        80 ctx_save_restore_size: u32, 84 ctl_stack_size: u32, 88 sdma_engine_id: u32,
        92 metadata_ring_size: u32,
    }
    /// DESTROY_QUEUE.
    DestroyQueue = "kfd_ioctl_destroy_queue_args", 8 { 0 queue_id: u32, 4 pad: u32 }
    /// SET_MEMORY_POLICY.
    SetMemoryPolicy = "kfd_ioctl_set_memory_policy_args", 32 {
        0 alternate_aperture_base: u64, 8 alternate_aperture_size: u64, 16 gpu_id: u32,
        20 default_policy: u32, 24 alternate_policy: u32, 28 misc_process_flag: u32,
    }
    /// GET_CLOCK_COUNTERS.
    GetClockCounters = "kfd_ioctl_get_clock_counters_args", 40 {
        0 gpu_clock_counter: u64, 8 cpu_clock_counter: u64, 16 system_clock_counter: u64,
        24 system_clock_freq: u64, 32 gpu_id: u32, 36 pad: u32,
    }
    /// The address apertures of one GPU.
    Apertures = "kfd_process_device_apertures", 56 {
        0 lds_base: u64, 8 lds_limit: u64, 16 scratch_base: u64, 24 scratch_limit: u64,
        32 gpuvm_base: u64, 40 gpuvm_limit: u64, 48 gpu_id: u32, 52 pad: u32,
    }
    /// GET_PROCESS_APERTURES_NEW.
    GetAperturesNew = "kfd_ioctl_get_process_apertures_new_args", 16 {
        0 kfd_process_device_apertures_ptr: u64, 8 num_of_nodes: u32, 12 pad: u32,
    }
    /// UPDATE_QUEUE.
    UpdateQueue = "kfd_ioctl_update_queue_args", 24 {
        0 ring_base_address: u64, 8 queue_id: u32, 12 ring_size: u32,
        16 queue_percentage: u32, 20 queue_priority: u32,
    }
    /// CREATE_EVENT.
    CreateEvent = "kfd_ioctl_create_event_args", 32 {
        0 event_page_offset: u64, 8 event_trigger_data: u32, 12 event_type: u32, 16 auto_reset: u32,
        20 node_id: u32, 24 event_id: u32, 28 event_slot_index: u32,
    }
    /// DESTROY_EVENT.
    DestroyEvent = "kfd_ioctl_destroy_event_args", 8 { 0 event_id: u32, 4 pad: u32 }
    /// SET_EVENT.
    SetEvent = "kfd_ioctl_set_event_args", 8 { 0 event_id: u32, 4 pad: u32 }
    /// RESET_EVENT.
    ResetEvent = "kfd_ioctl_reset_event_args", 8 { 0 event_id: u32, 4 pad: u32 }
    /// WAIT_EVENTS.
    WaitEvents = "kfd_ioctl_wait_events_args", 24 {
        0 events_ptr: u64, 8 num_events: u32, 12 wait_for_all: u32, 16 timeout: u32, 20 wait_result: u32,
    }
    /// SET_SCRATCH_BACKING_VA.
    SetScratchBackingVa = "kfd_ioctl_set_scratch_backing_va_args", 16 { 0 va_addr: u64, 8 gpu_id: u32, 12 pad: u32 }
    /// GET_TILE_CONFIG.
    GetTileConfig = "kfd_ioctl_get_tile_config_args", 40 {
        0 tile_config_ptr: u64, 8 macro_tile_config_ptr: u64, 16 num_tile_configs: u32,
        20 num_macro_tile_configs: u32, 24 gpu_id: u32, 28 gb_addr_config: u32, 32 num_banks: u32,
        36 num_ranks: u32,
    }
    /// SET_TRAP_HANDLER.
    SetTrapHandler = "kfd_ioctl_set_trap_handler_args", 24 {
        0 tba_addr: u64, 8 tma_addr: u64, 16 gpu_id: u32, 20 pad: u32,
    }
    /// ACQUIRE_VM.
    AcquireVm = "kfd_ioctl_acquire_vm_args", 8 { 0 drm_fd: u32, 4 gpu_id: u32 }
    /// ALLOC_MEMORY_OF_GPU.
    AllocMemory = "kfd_ioctl_alloc_memory_of_gpu_args", 40 {
        0 va_addr: u64, 8 size: u64, 16 handle: u64, 24 mmap_offset: u64, 32 gpu_id: u32, 36 flags: u32,
    }
    /// FREE_MEMORY_OF_GPU.
    FreeMemory = "kfd_ioctl_free_memory_of_gpu_args", 8 { 0 handle: u64 }
    /// MAP_MEMORY_TO_GPU.
    MapMemory = "kfd_ioctl_map_memory_to_gpu_args", 24 {
        0 handle: u64, 8 device_ids_array_ptr: u64, 16 n_devices: u32, 20 n_success: u32,
    }
    /// UNMAP_MEMORY_FROM_GPU.
    UnmapMemory = "kfd_ioctl_unmap_memory_from_gpu_args", 24 {
        0 handle: u64, 8 device_ids_array_ptr: u64, 16 n_devices: u32, 20 n_success: u32,
    }
    /// SET_CU_MASK.
    SetCuMask = "kfd_ioctl_set_cu_mask_args", 16 { 0 queue_id: u32, 4 num_cu_mask: u32, 8 cu_mask_ptr: u64 }
    /// GET_QUEUE_WAVE_STATE.
    GetQueueWaveState = "kfd_ioctl_get_queue_wave_state_args", 24 {
        0 ctl_stack_address: u64, 8 ctl_stack_used_size: u32, 12 save_area_used_size: u32,
        16 queue_id: u32, 20 pad: u32,
    }
    /// SET_XNACK_MODE.
    SetXnackMode = "kfd_ioctl_set_xnack_mode_args", 4 { 0 xnack_enabled: i32 }
    /// SMI_EVENTS.
    SmiEvents = "kfd_ioctl_smi_events_args", 8 { 0 gpuid: u32, 4 anon_fd: u32 }
    /// AVAILABLE_MEMORY.
    AvailableMemory = "kfd_ioctl_get_available_memory_args", 16 { 0 available: u64, 8 gpu_id: u32, 12 pad: u32 }
    /// RUNTIME_ENABLE.
    RuntimeEnable = "kfd_ioctl_runtime_enable_args", 16 { 0 r_debug: u64, 8 mode_mask: u32, 12 capabilities_mask: u32 }
}

/// One entry of WAIT_EVENTS (`kfd_event_data`).
///
/// The first 32 bytes are a union: the age of a signal event (in and out), or a payload of an exception (out).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventData {
    /// The union, as its first word (`last_event_age` of a signal event) and the rest.
    pub last_event_age: u64,
    /// Bytes 8..32 of the union.
    pub rest: [u64; 3],
    /// Reserved for extensions.
    pub kfd_event_data_ext: u64,
    /// The event waited for.
    pub event_id: u32,
    /// Padding.
    pub pad: u32,
}

const _: () = {
    assert!(size_of::<EventData>() == 48);
    assert!(offset_of!(EventData, kfd_event_data_ext) == 32);
    assert!(offset_of!(EventData, event_id) == 40);
};

const WRITE: u32 = 1;
const READ: u32 = 2;

const fn command(direction: u32, nr: u32, size: usize) -> u32 {
    assert!(size < 1 << 14 && nr < 256);
    // CAST: bounded by the assertion above.
    (direction << 30) | ((size as u32) << 16) | ((b'K' as u32) << 8) | nr
}

macro_rules! calls {
    ($( $name:ident = $dir:expr, $nr:literal, $args:ty; )*) => {
        $(
            #[doc = concat!("Command word of ", stringify!($name), ".")]
            pub const $name: u32 = command($dir, $nr, size_of::<$args>());
        )*
        /// Every call that this crate names.
        pub const CALLS: &[Call] = &[ $( Call { name: stringify!($name), command: $name } ),* ];
    };
}

calls! {
    GET_VERSION = READ, 0x01, GetVersion;
    CREATE_QUEUE = READ | WRITE, 0x02, CreateQueue;
    DESTROY_QUEUE = READ | WRITE, 0x03, DestroyQueue;
    SET_MEMORY_POLICY = WRITE, 0x04, SetMemoryPolicy;
    GET_CLOCK_COUNTERS = READ | WRITE, 0x05, GetClockCounters;
    UPDATE_QUEUE = WRITE, 0x07, UpdateQueue;
    CREATE_EVENT = READ | WRITE, 0x08, CreateEvent;
    DESTROY_EVENT = WRITE, 0x09, DestroyEvent;
    SET_EVENT = WRITE, 0x0a, SetEvent;
    RESET_EVENT = WRITE, 0x0b, ResetEvent;
    WAIT_EVENTS = READ | WRITE, 0x0c, WaitEvents;
    SET_SCRATCH_BACKING_VA = READ | WRITE, 0x11, SetScratchBackingVa;
    GET_TILE_CONFIG = READ | WRITE, 0x12, GetTileConfig;
    SET_TRAP_HANDLER = WRITE, 0x13, SetTrapHandler;
    GET_PROCESS_APERTURES_NEW = READ | WRITE, 0x14, GetAperturesNew;
    ACQUIRE_VM = WRITE, 0x15, AcquireVm;
    ALLOC_MEMORY_OF_GPU = READ | WRITE, 0x16, AllocMemory;
    FREE_MEMORY_OF_GPU = WRITE, 0x17, FreeMemory;
    MAP_MEMORY_TO_GPU = READ | WRITE, 0x18, MapMemory;
    UNMAP_MEMORY_FROM_GPU = READ | WRITE, 0x19, UnmapMemory;
    SET_CU_MASK = WRITE, 0x1a, SetCuMask;
    GET_QUEUE_WAVE_STATE = READ | WRITE, 0x1b, GetQueueWaveState;
    SMI_EVENTS = READ | WRITE, 0x1f, SmiEvents;
    SET_XNACK_MODE = READ | WRITE, 0x21, SetXnackMode;
    AVAILABLE_MEMORY = READ | WRITE, 0x23, AvailableMemory;
    RUNTIME_ENABLE = READ | WRITE, 0x25, RuntimeEnable;
}

/// Values of `queue_type`.
pub mod queue_type {
    /// PM4 compute queue.
    pub const COMPUTE: u32 = 0;
    /// SDMA queue on an engine of the kernel's choice.
    pub const SDMA: u32 = 1;
    /// AQL compute queue.
    pub const COMPUTE_AQL: u32 = 2;
    /// SDMA queue on the engine named in the call.
    pub const SDMA_BY_ENGINE: u32 = 4;
}

/// Flags of ALLOC_MEMORY_OF_GPU.
pub mod alloc {
    /// Memory of the GPU.
    pub const VRAM: u32 = 1 << 0;
    /// System memory owned by the kernel.
    pub const GTT: u32 = 1 << 1;
    /// System memory of the caller.
    pub const USERPTR: u32 = 1 << 2;
    /// The process's doorbell slice.
    pub const DOORBELL: u32 = 1 << 3;
    /// The page with the remapped HDP flush registers.
    pub const MMIO_REMAP: u32 = 1 << 4;
    /// VRAM in one piece.
    pub const CONTIGUOUS: u32 = 1 << 23;
    /// Coherent with the CPU and other GPUs.
    pub const EXT_COHERENT: u32 = 1 << 24;
    /// Not cached by the GPU.
    pub const UNCACHED: u32 = 1 << 25;
    /// Coherent with the CPU.
    pub const COHERENT: u32 = 1 << 26;
    /// No other memory may stand in.
    pub const NO_SUBSTITUTE: u32 = 1 << 28;
    /// VRAM that the CPU can map.
    pub const PUBLIC: u32 = 1 << 29;
    /// The GPU may execute from it.
    pub const EXECUTABLE: u32 = 1 << 30;
    /// The GPU may write to it.
    pub const WRITABLE: u32 = 1 << 31;
}

/// `mode_mask` of RUNTIME_ENABLE: enable, not disable.
pub const RUNTIME_MODE_ENABLE: u32 = 1;

/// Event types of CREATE_EVENT.
pub mod event_type {
    /// Raised by a packet, or by SET_EVENT.
    pub const SIGNAL: u32 = 0;
    /// GPU reset or hang.
    pub const HW_EXCEPTION: u32 = 3;
    /// GPU page fault.
    pub const MEMORY: u32 = 8;
}

/// Results of WAIT_EVENTS.
pub mod wait_result {
    /// The condition came true.
    pub const COMPLETE: u32 = 0;
    /// It did not within the time given.
    pub const TIMEOUT: u32 = 1;
    /// An event was destroyed meanwhile.
    pub const FAIL: u32 = 2;
}
