// SPDX-License-Identifier: GPL-2.0

//! SDMA engines: start and stop. Their user queues are the scheduler's business; the driver's own ring is in
//! [`copy`](super::copy).
//!
//! Source: `sdma_v4_0.c` (`ctx_switch_enable`, `start`, `enable`).

use kernel::time::{
    delay::fsleep,
    Delta, //
};

use super::access::Hw;
use crate::hw::regs::sdma::{
    Cntl,
    Engine,
    F32Cntl,
    PhaseQuantum,
    UTCL1_TIMEOUT_DRIVER, //
};

/// Runs `f` on each engine.
fn for_each(hw: &Hw, f: impl Fn(&Engine)) {
    for n in 0..hw.asic().sdma_engines() {
        if let Some(engine) = hw.asic().sdma.engine(n) {
            f(&engine);
        }
    }
}

/// Un-halts all engines: context switches on, traps on, translation on.
pub(super) fn start(hw: &Hw) {
    let ctxempty = hw.asic().sdma.ctxempty_int;
    for_each(hw, |engine| {
        hw.modify(engine.f32_cntl(), |raw| {
            F32Cntl::from_raw(raw).with(F32Cntl::HALT, 0).raw()
        });
        hw.write(engine.utcl1_timeout(), UTCL1_TIMEOUT_DRIVER);
        hw.write(engine.sem_wait_fail_timer_cntl(), 0);
        // Before context switches are on, which go by them.
        for reg in [
            engine.phase0_quantum(),
            engine.phase1_quantum(),
            engine.phase2_quantum(),
        ] {
            hw.write(reg, PhaseQuantum::DRIVER.raw());
        }
        hw.modify(engine.cntl(), |raw| {
            Cntl::from_raw(raw)
                .with(Cntl::AUTO_CTXSW_ENABLE, 1)
                .with(Cntl::UTC_L1_ENABLE, 1)
                .with(Cntl::TRAP_ENABLE, 1)
                .with_flag(Cntl::CTXEMPTY_INT_ENABLE, ctxempty)
                .raw()
        });
    });
}

/// Halts all engines.
pub(super) fn halt(hw: &Hw) {
    for_each(hw, |engine| {
        hw.modify(engine.cntl(), |raw| {
            Cntl::from_raw(raw)
                .with(Cntl::AUTO_CTXSW_ENABLE, 0)
                .with(Cntl::TRAP_ENABLE, 0)
                .with(Cntl::CTXEMPTY_INT_ENABLE, 0)
                .raw()
        });
        hw.modify(engine.f32_cntl(), |raw| {
            F32Cntl::from_raw(raw).with(F32Cntl::HALT, 1).raw()
        });
    });
}

/// Time that F32_CNTL.RESET stays set, as long as the bits of GRBM_SOFT_RESET do.
const RESET_US: i64 = 50;

/// Resets the micro engine of one copy engine, which must be halted and have no queue enabled, and leaves it halted.
/// What it was doing ends where it is; its microcode, its registers and the other engines stay as they are. Sleeps.
///
/// Not for engines that cannot be reset alone ([`Engine::can_be_reset`]).
pub(super) fn reset(hw: &Hw, engine: &Engine) {
    for reset in [1, 0] {
        hw.modify(engine.f32_cntl(), |raw| {
            F32Cntl::from_raw(raw).with(F32Cntl::RESET, reset).raw()
        });
        let _ = hw.read(engine.f32_cntl());
        fsleep(Delta::from_micros(RESET_US));
    }
}
