// SPDX-License-Identifier: GPL-2.0

//! What an event carries for its waiter (`kfd_event_data` of `linux/kfd_ioctl.h`).

use crate::kapi::abi::abi_struct;

abi_struct! {
    /// A memory fault (`kfd_hsa_memory_exception_data`).
    struct MemoryExceptionData: 32 {
        /// The page was not present.
        not_present: u32,
        /// A write met a read-only page.
        read_only: u32,
        /// An instruction fetch met a page without execute permission.
        no_execute: u32,
        /// The address is not exact.
        imprecise: u32,
        /// Page-aligned address.
        va: u64,
        /// The GPU that faulted, never 0.
        gpu_id: u32,
        /// 0: no RAS error; 1: SRAM ECC; 2: poison consumed; 3: GPU hang.
        error_type: u32,
    }
}

abi_struct! {
    /// A GPU reset (`kfd_hsa_hw_exception_data`).
    struct HwExceptionData: 16 {
        /// 0: the whole GPU; 1: one engine.
        reset_type: u32,
        /// 0: hang; 1: ECC.
        reset_cause: u32,
        /// Whether memory contents were lost.
        memory_lost: u32,
        /// The GPU, never 0.
        gpu_id: u32,
    }
}

/// What is stored in an event or reported about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Nothing.
    None,
    /// For memory events.
    Memory(MemoryExceptionData),
    /// For hardware-exception events.
    HwException(HwExceptionData),
    /// The age of a signal event whose waiter gave an age.
    Age(u64),
}
