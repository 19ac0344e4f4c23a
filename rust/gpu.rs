// SPDX-License-Identifier: GPL-2.0

//! One GPU: a PCI device.
//!
//! [`Gpu::new`] brings a posted device up in the order that the hardware requires (the same as
//! `amdgpu`'s: bus interface, hubs, interrupts, compute block, SDMA, kernel queues) and
//! [`Gpu::shutdown`] takes it down again. In between the object hands out what the layers above
//! share: video memory, the GART window, doorbells, address space ids, and the hardware itself
//! through a gate ([`access`]).
//!
//! A [`Gpu`] is reference-counted and may outlive its device; then every operation answers
//! `ENODEV`.
//!
//! Lock order, outermost first: IH rings, IH sink, KIQ, copy engine, range allocators; hardware locks
//! ([`access`]) are innermost.

pub(crate) mod access;
pub(crate) mod account;
mod bring_up;
pub(crate) mod clear;
pub(crate) mod conduct;
pub(crate) mod copy;
pub(crate) mod debug;
mod device;
pub(crate) mod devmem;
mod direction;
pub(crate) mod doorbell;
pub(crate) mod gart;
pub(crate) mod gfx;
pub(crate) mod hub;
mod identity;
mod ids;
pub(crate) mod ih;
pub(crate) mod kiq;
pub(crate) mod mirrors;
pub(crate) mod moves;
mod nbio;
pub(crate) mod pasid;
pub(crate) mod pieces;
pub(crate) mod poll;
mod power;
pub(crate) mod registry;
pub(crate) mod reserved;
mod reset;
pub(crate) mod retry;
pub(crate) mod salvage;
mod sdma;
pub(crate) mod silicon;
mod smu;
mod stage;
pub(crate) mod vmid;
pub(crate) mod vram;

pub(crate) use self::{
    access::Hw,
    device::{
        Config,
        Gpu, //
    },
    doorbell::{
        Doorbell,
        DoorbellSlice,
        KernelDoorbell, //
    },
    gart::GartBuffer,
    identity::MODEL_SUBSYSTEM,
    ih::{
        IrqSink,
        VmFault, //
    },
    pasid::Pasid,
    registry::{
        registry,
        Registry, //
    },
    stage::Moment,
    vram::{
        VramBlock,
        VramBlocks, //
    },
};
#[cfg(rkfd_kunit)]
pub(crate) use self::{
    doorbell::DoorbellManager,
    pasid::PasidPool,
    vram::VramManager, //
};
