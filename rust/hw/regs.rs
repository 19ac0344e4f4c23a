// SPDX-License-Identifier: GPL-2.0

//! Register addresses and layouts, by block.
//!
//! A [`Reg`] is a byte offset into BAR5. Registers that sit at one place on every supported ASIC are
//! constants; those that moved between ASICs are methods of a layout that [`AsicDesc`] names
//! ([`hub::HubLayout`], [`sdma::SdmaLayout`], [`osssys::IhLayout`]). Names are those of the register
//! headers without the `mm`/`reg` prefix.
//!
//! [`AsicDesc`]: super::asic::AsicDesc

pub(crate) mod athub;
pub(crate) mod gc;
pub(crate) mod hdp;
pub(crate) mod hqd;
pub(crate) mod hub;
pub(crate) mod mp;
mod names;
pub(crate) mod nbio;
pub(crate) mod osssys;
mod reg;
pub(crate) mod sdma;
pub(crate) mod slot;

pub(crate) use names::name;
pub(crate) use reg::{
    regs,
    Reg,
    MMIO_SIZE, //
};
