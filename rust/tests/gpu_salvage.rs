// SPDX-License-Identifier: GPL-2.0

//! What the registers of a copy engine's context say of its queue.

use kernel::prelude::*;

use crate::gpu::salvage::Copying;

/// RB_ENABLE of RB_CNTL.
const ENABLED: u32 = 1;
/// IDLE of CONTEXT_STATUS.
const IDLE: u32 = 4;
/// A ring size and SELECTED, EXPIRED: bits that decide nothing.
const OTHERS: (u32, u32) = (0x18, 0x9);

#[kunit_tests(rkfd_gpu_salvage)]
mod cases {
    use super::*;

    #[test]
    fn a_context_is_in_use_while_it_is_enabled_or_in_a_packet() {
        for (cntl, status) in [(0, 0), OTHERS] {
            let decode = |enabled, idle| Copying::decode(cntl | enabled, status | idle);
            assert_eq!(decode(0, IDLE), Copying::Idle);
            assert_eq!(decode(0, 0), Copying::Ending);
            assert_eq!(decode(ENABLED, 0), Copying::Running);
            assert_eq!(decode(ENABLED, IDLE), Copying::Running);
        }
        // As the headers have it after a reset (`mmSDMA0_RLC0_CONTEXT_STATUS_DEFAULT`).
        assert_eq!(Copying::decode(0, 4), Copying::Idle);
    }

    #[test]
    fn a_lost_device_copies_nothing() {
        // All ones: nobody waits for a packet to end.
        assert_ne!(Copying::decode(u32::MAX, u32::MAX), Copying::Ending);
    }
}
