// SPDX-License-Identifier: GPL-2.0

//! An address space as the scheduler installs it for its queues.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    hw::regs::gc::{
        ShMemBases,
        ShMemConfig, //
    },
    sched::{
        KeepAlive,
        ProcessParams, //
    },
    vm::Vm,
};

/// Keeps an address space while the hardware may walk it.
struct KeepVm(#[expect(dead_code, reason = "kept, not used")] Arc<Vm>);

impl KeepAlive for KeepVm {}

/// What installs `vm` on the hardware of its GPU; `tba` and `tma` are the trap handler and its memory, 0 for none.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn params(vm: &Arc<Vm>, xnack: bool, tba: u64, tma: u64) -> Result<ProcessParams> {
    Ok(ProcessParams {
        pasid: vm.pasid(),
        page_table_base: vm.page_table_base(),
        sh_mem_config: ShMemConfig::for_xnack(xnack).raw(),
        sh_mem_bases: ShMemBases::KFD.raw(),
        tba,
        tma,
        keep: Some(Arc::new(KeepVm(vm.clone()), GFP_KERNEL_ACCOUNT)?),
    })
}
