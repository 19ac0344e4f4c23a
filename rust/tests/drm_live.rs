// SPDX-License-Identifier: GPL-2.0

//! The render node on every GPU that was probed: the registers that programs may read.

use kernel::prelude::*;

use super::gpu_live::on_each;
use crate::{
    drm::regs::read_allowed,
    hw::regs::{
        gc,
        Reg, //
    }, //
};

/// STATUS_REG of an SDMA engine, in dwords from its base.
const SDMA_STATUS: u32 = 0x25;

#[kunit_tests(rkfd_drm_live)]
mod cases {
    use super::*;

    #[test]
    fn each_register_that_may_be_read_is_read_itself() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let graphics = read_allowed(&hw, gc::GRBM_STATUS.dword())?;
            assert_eq!(graphics, hw.read(gc::GRBM_STATUS));
            for base in hw.asic().sdma.engines.iter().take(2) {
                let reg = Reg::new(*base, SDMA_STATUS);
                let status = read_allowed(&hw, reg.dword())?;
                assert_eq!(status, hw.read(reg));
                // IDLE, which in the other register is not the lowest bit.
                assert_eq!(status & 1, 1);
                assert!(status != graphics);
                let next = Reg::new(*base, SDMA_STATUS + 1);
                assert_eq!(read_allowed(&hw, next.dword()), Err(EFAULT));
            }
            Ok(())
        })
    }
}
