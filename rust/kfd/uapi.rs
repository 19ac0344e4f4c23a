// SPDX-License-Identifier: GPL-2.0

//! The binary interface of `/dev/kfd`: commands, structures and constants of `linux/kfd_ioctl.h`.
//!
//! Layouts are stated, not derived from C: every structure names its size, and the conformance
//! programs compare these numbers with the system header. Field order is the order in memory.

use crate::kapi::abi::abi_struct;

/// Version of the interface (major, minor).
pub(crate) const VERSION: (u32, u32) = (1, 23);

/// Magic of all commands.
#[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
pub(crate) const IOC_TYPE: u32 = 0x4b;

abi_struct! {
    /// GET_VERSION.
    struct GetVersion: 8 {
        /// Out.
        major: u32,
        /// Out.
        minor: u32,
    }
}

abi_struct! {
    /// CREATE_QUEUE. User space before 1.17 passes the first 88 bytes.
    struct CreateQueue: 96 {
        /// In: GPU address of the ring.
        ring_base: u64,
        /// In: GPU address of the write pointer.
        write_pointer: u64,
        /// In: GPU address of the read pointer.
        read_pointer: u64,
        /// Out: mmap offset of the doorbell.
        doorbell_offset: u64,
        /// In: bytes.
        ring_size: u32,
        /// In.
        gpu_id: u32,
        /// In: 0 PM4, 1 SDMA, 2 AQL, 3 SDMA for XGMI, 4 SDMA on `sdma_engine_id`.
        queue_type: u32,
        /// In: bits 7:0 percentage, 15:8 target XCC.
        queue_percentage: u32,
        /// In: 0..=15.
        queue_priority: u32,
        /// Out.
        queue_id: u32,
        /// In: GPU address of the end-of-pipe buffer, or 0.
        eop_address: u64,
        /// In: bytes.
        eop_size: u64,
        /// In: GPU address of the context save area.
        ctx_save_address: u64,
        /// In: bytes.
        ctx_save_size: u32,
        /// In: bytes.
        ctl_stack_size: u32,
        /// In: for type 4.
        sdma_engine_id: u32,
        /// In: bytes, AQL queues only.
        metadata_ring_size: u32,
    }
}

abi_struct! {
    /// DESTROY_QUEUE.
    struct DestroyQueue: 8 {
        /// In.
        queue_id: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// UPDATE_QUEUE.
    struct UpdateQueue: 24 {
        /// In: GPU address, 0 stops the queue.
        ring_base: u64,
        /// In.
        queue_id: u32,
        /// In: bytes.
        ring_size: u32,
        /// In.
        queue_percentage: u32,
        /// In.
        queue_priority: u32,
    }
}

abi_struct! {
    /// SET_CU_MASK.
    struct SetCuMask: 16 {
        /// In.
        queue_id: u32,
        /// In: number of bits, a multiple of 32.
        num_cu_mask: u32,
        /// In: pointer to `num_cu_mask / 32` words.
        cu_mask_ptr: u64,
    }
}

abi_struct! {
    /// GET_QUEUE_WAVE_STATE.
    struct GetQueueWaveState: 24 {
        /// In: pointer to the save area header.
        ctl_stack_address: u64,
        /// Out: bytes.
        ctl_stack_used: u32,
        /// Out: bytes.
        save_area_used: u32,
        /// In.
        queue_id: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// SET_MEMORY_POLICY.
    struct SetMemoryPolicy: 32 {
        /// In.
        alternate_base: u64,
        /// In.
        alternate_size: u64,
        /// In.
        gpu_id: u32,
        /// In: 0 coherent, 1 not.
        default_policy: u32,
        /// In: 0 coherent, 1 not.
        alternate_policy: u32,
        /// In: process flags.
        misc_flags: u32,
    }
}

abi_struct! {
    /// GET_CLOCK_COUNTERS.
    struct GetClockCounters: 40 {
        /// Out: ticks of the GPU.
        gpu: u64,
        /// Out: raw monotonic time, ns.
        cpu: u64,
        /// Out: time since boot, ns.
        system: u64,
        /// Out: Hz of `system`.
        system_freq: u64,
        /// In.
        gpu_id: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// The apertures of one GPU.
    struct Apertures: 56 {
        /// First address of the LDS window.
        lds_base: u64,
        /// Last address of it.
        lds_limit: u64,
        /// First address of the scratch window.
        scratch_base: u64,
        /// Last address of it.
        scratch_limit: u64,
        /// First address that page tables translate for user space.
        gpuvm_base: u64,
        /// Last address of it.
        gpuvm_limit: u64,
        /// The GPU.
        gpu_id: u32,
        /// Zero.
        pad: u32,
    }
}

/// Room for GPUs in [`GetProcessApertures`].
pub(crate) const OLD_APERTURES: usize = 7;

abi_struct! {
    /// GET_PROCESS_APERTURES.
    struct GetProcessApertures: 400 {
        /// Out.
        apertures: [Apertures; OLD_APERTURES],
        /// Out.
        num_nodes: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// GET_PROCESS_APERTURES_NEW.
    struct GetProcessAperturesNew: 16 {
        /// In: pointer to [`Apertures`].
        apertures_ptr: u64,
        /// In: room; out: entries.
        num_nodes: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// CREATE_EVENT.
    struct CreateEvent: 32 {
        /// In: handle of the signal page with the first event; out: an mmap cookie.
        page_offset: u64,
        /// Out.
        trigger_data: u32,
        /// In.
        event_type: u32,
        /// In: non-zero for yes.
        auto_reset: u32,
        /// In: unused.
        node_id: u32,
        /// Out.
        event_id: u32,
        /// Out.
        slot_index: u32,
    }
}

abi_struct! {
    /// DESTROY_EVENT, SET_EVENT, RESET_EVENT.
    struct EventId: 8 {
        /// In.
        event_id: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// WAIT_EVENTS.
    struct WaitEvents: 24 {
        /// In: pointer to [`EventData`].
        events_ptr: u64,
        /// In.
        num_events: u32,
        /// In: non-zero for all.
        wait_for_all: u32,
        /// In: ms; out: what is left when a signal interrupts.
        timeout: u32,
        /// Out: [`WAIT_COMPLETE`] and the others.
        wait_result: u32,
    }
}

/// The condition holds.
pub(crate) const WAIT_COMPLETE: u32 = 0;
/// The time-out passed.
pub(crate) const WAIT_TIMEOUT: u32 = 1;
/// The wait failed.
pub(crate) const WAIT_FAIL: u32 = 2;

abi_struct! {
    /// One entry of a wait list.
    struct EventData: 48 {
        /// In: the last age in words 0 and 1; out: see [`crate::event::payload`].
        data: [u32; 8],
        /// Unused.
        ext: u64,
        /// In.
        event_id: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// SET_SCRATCH_BACKING_VA.
    struct SetScratchBackingVa: 16 {
        /// In: address >> 16.
        va: u64,
        /// In.
        gpu_id: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// GET_TILE_CONFIG.
    struct GetTileConfig: 40 {
        /// In: pointer to words.
        tile_ptr: u64,
        /// In: pointer to words.
        macro_tile_ptr: u64,
        /// In: room; out: words written.
        num_tile: u32,
        /// In: room; out: words written.
        num_macro_tile: u32,
        /// In.
        gpu_id: u32,
        /// Out.
        gb_addr_config: u32,
        /// Out.
        num_banks: u32,
        /// Out.
        num_ranks: u32,
    }
}

abi_struct! {
    /// SET_TRAP_HANDLER.
    struct SetTrapHandler: 24 {
        /// In: address of the handler.
        tba: u64,
        /// In: address of its memory.
        tma: u64,
        /// In.
        gpu_id: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// ACQUIRE_VM.
    struct AcquireVm: 8 {
        /// In: an open render node.
        drm_fd: u32,
        /// In.
        gpu_id: u32,
    }
}

/// Flags of ALLOC_MEMORY_OF_GPU.
pub(crate) mod alloc_flags {
    /// Memory of the GPU.
    pub(crate) const VRAM: u32 = 1 << 0;
    /// System memory.
    pub(crate) const GTT: u32 = 1 << 1;
    /// Memory of the caller.
    pub(crate) const USERPTR: u32 = 1 << 2;
    /// The doorbells of the process.
    pub(crate) const DOORBELL: u32 = 1 << 3;
    /// The page with the HDP flush registers.
    pub(crate) const MMIO_REMAP: u32 = 1 << 4;
    /// One run of VRAM.
    pub(crate) const CONTIGUOUS: u32 = 1 << 23;
    /// Coherent across devices.
    pub(crate) const EXT_COHERENT: u32 = 1 << 24;
    /// Not cached.
    pub(crate) const UNCACHED: u32 = 1 << 25;
    /// Coherent with the CPU.
    pub(crate) const COHERENT: u32 = 1 << 26;
    /// Map half the size twice; gfx7 and gfx8 only.
    pub(crate) const AQL_QUEUE_MEM: u32 = 1 << 27;
    /// VRAM that the CPU maps.
    pub(crate) const PUBLIC: u32 = 1 << 29;
    /// The GPU may fetch instructions.
    pub(crate) const EXECUTABLE: u32 = 1 << 30;
    /// The GPU may write.
    pub(crate) const WRITABLE: u32 = 1 << 31;
}

abi_struct! {
    /// ALLOC_MEMORY_OF_GPU.
    struct AllocMemory: 40 {
        /// In: GPU address at which it will be mapped.
        va: u64,
        /// In: bytes.
        size: u64,
        /// Out.
        handle: u64,
        /// In: CPU address of a userptr; out: where to mmap it.
        mmap_offset: u64,
        /// In.
        gpu_id: u32,
        /// In: see [`alloc_flags`].
        flags: u32,
    }
}

abi_struct! {
    /// FREE_MEMORY_OF_GPU.
    struct FreeMemory: 8 {
        /// In.
        handle: u64,
    }
}

abi_struct! {
    /// MAP_MEMORY_TO_GPU and UNMAP_MEMORY_FROM_GPU.
    struct MapMemory: 24 {
        /// In.
        handle: u64,
        /// In: pointer to GPU ids.
        device_ids_ptr: u64,
        /// In.
        num_devices: u32,
        /// In and out: how many are done.
        num_success: u32,
    }
}

abi_struct! {
    /// ALLOC_QUEUE_GWS.
    struct AllocQueueGws: 16 {
        /// In.
        queue_id: u32,
        /// In.
        num_gws: u32,
        /// Out.
        first_gws: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// GET_DMABUF_INFO.
    struct GetDmabufInfo: 32 {
        /// Out: bytes.
        size: u64,
        /// In.
        metadata_ptr: u64,
        /// In: room; out: bytes.
        metadata_size: u32,
        /// Out.
        gpu_id: u32,
        /// Out.
        flags: u32,
        /// In.
        dmabuf_fd: u32,
    }
}

abi_struct! {
    /// IMPORT_DMABUF.
    struct ImportDmabuf: 24 {
        /// In.
        va: u64,
        /// Out.
        handle: u64,
        /// In.
        gpu_id: u32,
        /// In.
        dmabuf_fd: u32,
    }
}

abi_struct! {
    /// EXPORT_DMABUF.
    struct ExportDmabuf: 16 {
        /// In.
        handle: u64,
        /// In.
        flags: u32,
        /// Out.
        dmabuf_fd: u32,
    }
}

abi_struct! {
    /// SMI_EVENTS.
    struct SmiEvents: 8 {
        /// In.
        gpu_id: u32,
        /// Out.
        anon_fd: u32,
    }
}

abi_struct! {
    /// The fixed part of SVM.
    struct Svm: 24 {
        /// In.
        start: u64,
        /// In: bytes.
        size: u64,
        /// In.
        op: u32,
        /// In: number of attributes of 8 bytes that follow.
        num_attrs: u32,
    }
}

abi_struct! {
    /// SET_XNACK_MODE.
    struct SetXnackMode: 4 {
        /// In: negative to ask; out: the mode.
        xnack_enabled: i32,
    }
}

abi_struct! {
    /// CRIU_OP.
    struct CriuOp: 56 {
        /// In.
        devices: u64,
        /// In.
        bos: u64,
        /// In.
        priv_data: u64,
        /// In and out.
        priv_data_size: u64,
        /// In and out.
        num_devices: u32,
        /// In and out.
        num_bos: u32,
        /// In and out.
        num_objects: u32,
        /// In and out.
        pid: u32,
        /// In.
        op: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// AVAILABLE_MEMORY.
    struct AvailableMemory: 16 {
        /// Out: bytes.
        available: u64,
        /// In.
        gpu_id: u32,
        /// Unused.
        pad: u32,
    }
}

abi_struct! {
    /// RUNTIME_ENABLE.
    struct RuntimeEnable: 16 {
        /// In: the runtime's structure for the debugger.
        r_debug: u64,
        /// In: bit 0 enable, bit 1 save TTMPs.
        mode_mask: u32,
        /// Out.
        capabilities_mask: u32,
    }
}

abi_struct! {
    /// DBG_TRAP.
    struct DbgTrap: 32 {
        /// In.
        pid: u32,
        /// In.
        op: u32,
        /// By `op`.
        payload: [u64; 3],
    }
}

abi_struct! {
    /// PROFILER.
    struct Profiler: 16 {
        /// In.
        op: u32,
        /// By `op`.
        payload: [u32; 3],
    }
}

/// The arguments of the four retired debugger calls, which no longer look at them.
pub(crate) mod retired {
    use crate::kapi::abi::abi_struct;

    abi_struct! {
        /// DBG_REGISTER and DBG_UNREGISTER.
        struct Short: 8 {
            /// Unused.
            words: [u32; 2],
        }
    }

    abi_struct! {
        /// DBG_ADDRESS_WATCH and DBG_WAVE_CONTROL.
        struct Long: 16 {
            /// Unused.
            words: [u64; 2],
        }
    }
}

/// mmap offsets: bits 63:62 kind, 61:46 GPU id.
pub(crate) const MMAP_TYPE_SHIFT: u32 = 62;
/// Bits 61:46 of an mmap offset.
pub(crate) const MMAP_GPU_SHIFT: u32 = 46;
/// The HDP flush page.
pub(crate) const MMAP_TYPE_MMIO: u64 = 0;
/// Once an event page made by the kernel; still the cookie that CREATE_EVENT returns.
pub(crate) const MMAP_TYPE_EVENTS: u64 = 2 << MMAP_TYPE_SHIFT;
/// The doorbells.
pub(crate) const MMAP_TYPE_DOORBELL: u64 = 3 << MMAP_TYPE_SHIFT;
