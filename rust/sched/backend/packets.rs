// SPDX-License-Identifier: GPL-2.0

//! The packet sequences of the HIQ. Order and content are facts of the hardware contract; how a
//! packet is encoded is [`hw::pm4`](crate::hw::pm4)'s business.

use kernel::prelude::*;

use crate::{
    hw::{
        asic::AsicDesc,
        doorbell::DoorbellOffset,
        pm4::{
            DoorbellList,
            EncodeError,
            InterfaceQueue,
            QueryStatus,
            SetResources,
            UnmapAction,
            UnmapFilter,
            UnmapQueues,
            WriteReg, //
        },
        regs::gc::{
            IqWaitTime2,
            CP_IQ_WAIT_TIME2, //
        },
        timeouts, //
    },
    sched::{
        config::Config,
        desired::{
            plan::Scope,
            state::QUEUE_MASK, //
        }, //
    }, //
};

/// A sequence of packets of bounded length.
pub(super) struct Sequence<const N: usize> {
    words: [u32; N],
    len: usize,
}

impl<const N: usize> Sequence<N> {
    const fn new() -> Self {
        Self {
            words: [0; N],
            len: 0,
        }
    }

    fn push(&mut self, packet: &[u32]) -> Result {
        let end = self.len + packet.len();
        self.words
            .get_mut(self.len..end)
            .ok_or(ENOSPC)?
            .copy_from_slice(packet);
        self.len = end;
        Ok(())
    }

    /// The dwords.
    pub(super) fn as_slice(&self) -> &[u32] {
        self.words.get(..self.len).unwrap_or(&[])
    }
}

/// A driver bug in a value that goes into a packet.
fn bug(error: EncodeError) -> Error {
    pr_err!("scheduler: bad packet: {}\n", format_args!("{error}"));
    EINVAL
}

/// What the firmware gets first: its VMIDs and slots, and (GC 9.4.1 and later) to retry dequeues
/// without long sleeps. `wait_time2` is the present value of CP_IQ_WAIT_TIME2.
///
/// # Errors
///
/// `EINVAL`: a value does not fit; a driver bug.
pub(super) fn init_packets(
    asic: &AsicDesc,
    config: &Config,
    wait_time2: u32,
) -> Result<Sequence<{ SetResources::DWORDS + WriteReg::DWORDS }>> {
    let mut sequence = Sequence::new();
    let latency = timeouts::unmap_latency_units(config.timeout_ms);
    sequence.push(
        &SetResources {
            vmid_mask: asic.vmid_mask(),
            unmap_latency: u8::try_from(latency).unwrap_or(u8::MAX),
            xnack_check: asic.xnack_check(config.mec_firmware),
            queue: InterfaceQueue::Hiq,
            queue_mask: QUEUE_MASK,
            gws_mask: u64::MAX,
            oac_mask: 0,
        }
        .encode(),
    )?;
    if asic.sets_que_sleep {
        let value = IqWaitTime2::from_raw(wait_time2)
            .with(IqWaitTime2::QUE_SLEEP, timeouts::QUE_SLEEP)
            .raw();
        let packet = WriteReg::on_hiq(CP_IQ_WAIT_TIME2, value)
            .encode()
            .map_err(bug)?;
        sequence.push(&packet)?;
    }
    Ok(sequence)
}

/// Takes the queues in `scope` off the hardware, saving what they do, or killing it.
///
/// # Errors
///
/// `EINVAL`: not a doorbell; a driver bug, or nonsense of the firmware.
pub(super) fn unmap(action: UnmapAction, scope: &Scope) -> Result<[u32; UnmapQueues::DWORDS]> {
    let filter = match scope {
        Scope::Dynamic => UnmapFilter::NonStatic,
        Scope::All => UnmapFilter::All,
        Scope::Pasid(pasid) => UnmapFilter::Pasid(*pasid),
        Scope::Doorbells(list, count) => {
            let mut doorbells = [DoorbellOffset::kernel(0); 4];
            for (entry, dword) in doorbells.iter_mut().zip(list).take(*count) {
                *entry = DoorbellOffset::from_dword(*dword).ok_or(EINVAL)?;
            }
            let named = doorbells.get(..*count).ok_or(EINVAL)?;
            UnmapFilter::Doorbells(DoorbellList::new(named).ok_or(EINVAL)?)
        }
    };
    Ok(UnmapQueues { action, filter }.encode())
}

/// Asks for `value` at `fence` when all earlier packets have taken effect.
///
/// # Errors
///
/// `EINVAL`: the address is misaligned; a driver bug.
pub(super) fn query(fence: u64, value: u64) -> Result<[u32; QueryStatus::DWORDS]> {
    QueryStatus::fence(fence, value).encode().map_err(bug)
}
