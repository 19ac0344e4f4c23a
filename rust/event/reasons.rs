// SPDX-License-Identifier: GPL-2.0

//! Why a queue failed, as the interface names it.

use crate::hw::ih::PacketException;

/// Reasons, one bit each: `KFD_EC_MASK` of `linux/kfd_ioctl.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reasons(u64);

/// First and last exception of packets.
const PACKET_CODES: core::ops::RangeInclusive<u32> = 16..=23;
/// First and last exception of waves.
const WAVE_CODES: core::ops::RangeInclusive<u32> = 1..=6;
/// Others of queues: preemption error, new.
const QUEUE_CODES: core::ops::RangeInclusive<u32> = 30..=31;
/// A message of the trap handler: doorbell id below, reasons from here on.
const TRAP_SHIFT: u32 = 10;

const fn mask(codes: &core::ops::RangeInclusive<u32>) -> u64 {
    // CAST: Codes are below 64.
    (u64::MAX >> (64 - *codes.end())) & (u64::MAX << (*codes.start() - 1))
}

impl Reasons {
    /// The reason that a packet was refused for; `None` where the interface has no name for it.
    pub(crate) fn of_packet(code: PacketException) -> Option<Self> {
        let code = code.code();
        PACKET_CODES.contains(&code).then(|| Self(1 << (code - 1)))
    }

    /// What a trap handler reports in its message, with the doorbell id of the queue; `None` if that is no
    /// failure of a queue.
    pub(crate) fn of_trap(message: u32) -> Option<(u32, Self)> {
        let reasons = u64::from(message >> TRAP_SHIFT);
        let known = mask(&PACKET_CODES) | mask(&WAVE_CODES) | mask(&QUEUE_CODES);
        (reasons & known != 0).then_some((message & ((1 << TRAP_SHIFT) - 1), Self(reasons)))
    }

    /// The bits.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}
