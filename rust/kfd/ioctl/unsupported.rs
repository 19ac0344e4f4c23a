// SPDX-License-Identifier: GPL-2.0

//! Calls that nothing stands behind, with the answers of upstream where the hardware or the kernel
//! lacks the feature. What upstream checks first is checked first.

use super::call::Call;
use crate::kfd::uapi::{
    CriuOp,
    DbgTrap,
    Profiler, //
};
use kernel::prelude::*;

/// The debugger calls before DBG_TRAP.
///
/// # Errors
///
/// Always `EPERM`.
pub(super) fn retired<T>(_call: &Call<'_>, _args: &mut T) -> Result {
    Err(EPERM)
}

/// Last operation of CRIU_OP.
const CRIU_LAST_OP: u32 = 4;

/// Checkpoint and restore, for callers that may.
///
/// # Errors
///
/// - `EINVAL`: unknown operation.
/// - `EOPNOTSUPP`: otherwise.
pub(super) fn criu_op(_call: &Call<'_>, args: &mut CriuOp) -> Result {
    if args.op > CRIU_LAST_OP {
        return Err(EINVAL);
    }
    Err(EOPNOTSUPP)
}

/// DBG_TRAP's operation that begins a session.
const DBG_TRAP_ENABLE: u32 = 0;

/// The debugger.
///
/// # Errors
///
/// - `EINVAL`: schedulers without firmware, whatever is asked for, or an operation outside a session; there never
///   is one.
/// - `EOPNOTSUPP`: the file has a context.
/// - `ESRCH`: no such process, or one that has not opened `/dev/kfd`.
/// - `EPERM`: a process of another user.
/// - `ENODEV`: the begin of a session: no GPU can be debugged.
pub(super) fn dbg_trap(call: &Call<'_>, args: &mut DbgTrap) -> Result {
    if !crate::sched::has_firmware() {
        return Err(EINVAL);
    }
    if call.context.as_ref().is_some() {
        return Err(EOPNOTSUPP);
    }
    let pid = crate::kapi::task::tgid_of(args.pid).ok_or(ESRCH)?;
    if pid != crate::kapi::task::current_tgid() {
        return if call.system.processes.has_pid(pid) {
            Err(EPERM)
        } else {
            Err(ESRCH)
        };
    }
    if args.op == DBG_TRAP_ENABLE {
        Err(ENODEV)
    } else {
        Err(EINVAL)
    }
}

/// Operations of PROFILER.
mod profiler_op {
    pub(super) const PMC: u32 = 0;
    pub(super) const VERSION: u32 = 2;
    pub(super) const PTL_CONTROL: u32 = 3;
}

/// Version of the PROFILER call.
const PROFILER_VERSION: u32 = 1;

/// The profiler's control call.
///
/// # Errors
///
/// - `EINVAL`: unknown operation.
/// - `EPERM`: performance counters, for callers that may not use them.
/// - `EOPNOTSUPP`: otherwise, but for the version.
pub(super) fn profiler(_call: &Call<'_>, args: &mut Profiler) -> Result {
    use crate::kapi::task::{
        capable,
        Capability, //
    };
    match args.op {
        profiler_op::VERSION => {
            let [version, ..] = &mut args.payload;
            *version = PROFILER_VERSION;
            Ok(())
        }
        profiler_op::PMC if !capable(Capability::PerfMon) && !capable(Capability::SysAdmin) => {
            Err(EPERM)
        }
        profiler_op::PMC | profiler_op::PTL_CONTROL => Err(EOPNOTSUPP),
        _ => Err(EINVAL),
    }
}
