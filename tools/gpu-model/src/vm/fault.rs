// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Page faults: what is latched, what interrupts, what retries.

use super::access::VmError;
use super::hub::context;
use super::walk::WalkFault;
use super::{Access, Client, HubId};
use crate::ih::{client, Iv};
use crate::regs::{sh_mem, RETRY_DISABLE};
use crate::soc::Soc;
use crate::trace::{Origin, Ring};

/// Entries of the retry CAM.
pub const CAM_ENTRIES: usize = 64;
/// Without the CAM, how often one page raises its retry fault again, in nanoseconds.
const REPOST_NS: u64 = 2_000_000;

/// A page that retries, as the CAM identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CamKey {
    /// Hub.
    pub hub: HubId,
    /// Address space.
    pub vmid: u8,
    /// Page number.
    pub page: u64,
}

/// The filter for duplicate retry faults in the interrupt handler.
#[derive(Debug)]
pub struct RetryCam {
    entries: [Option<CamKey>; CAM_ENTRIES],
    /// Entries that a reset took while the driver was still to release them.
    forgotten: [bool; CAM_ENTRIES],
    /// Pages seen while the CAM is off, with the time of the last post.
    unfiltered: Vec<(CamKey, u64)>,
}

impl Default for RetryCam {
    fn default() -> Self {
        Self {
            entries: [None; CAM_ENTRIES],
            forgotten: [false; CAM_ENTRIES],
            unfiltered: Vec::new(),
        }
    }
}

impl RetryCam {
    /// Takes an entry for a page.  `None`: it has one already, or the CAM is full and back-pressures.
    fn claim(&mut self, key: CamKey) -> Option<u32> {
        if self.entries.contains(&Some(key)) {
            return None;
        }
        let i = self.entries.iter().position(Option::is_none)?;
        *self.entries.get_mut(i)? = Some(key);
        *self.forgotten.get_mut(i)? = false;
        u32::try_from(i).ok()
    }

    /// Releases an entry; false if it was not in use.  Once after a reset that is no mistake: the driver may not have
    /// seen yet that the entry is gone.
    pub fn release(&mut self, index: u32) -> bool {
        let i = index as usize;
        let used = self.entries.get_mut(i).is_some_and(|e| e.take().is_some());
        used || self.forgotten.get_mut(i).is_some_and(std::mem::take)
    }

    /// The block is reset.
    pub fn reset(&mut self) {
        for (entry, forgotten) in self.entries.iter_mut().zip(&mut self.forgotten) {
            *forgotten |= entry.take().is_some();
        }
        self.unfiltered.clear();
    }

    /// Entries in use.
    pub fn entries(&self) -> impl Iterator<Item = (usize, CamKey)> + '_ {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(i, e)| e.map(|k| (i, k)))
    }

    /// Whether a page may post now when there is no CAM.
    fn due(&mut self, key: CamKey, now: u64) -> bool {
        self.unfiltered
            .retain(|(_, t)| now.saturating_sub(*t) < REPOST_NS);
        let due = !self.unfiltered.iter().any(|(k, _)| *k == key);
        if due && self.unfiltered.len() < 1024 {
            self.unfiltered.push((key, now));
        }
        due
    }
}

/// Whether an access that failed may retry, as far as that depends on the cause.
pub fn may_retry(why: Option<WalkFault>) -> bool {
    match why {
        None | Some(WalkFault::InvalidPde(_) | WalkFault::InvalidPte(_)) => true,
        Some(
            WalkFault::Disabled
            | WalkFault::Range
            | WalkFault::ForcedNoRetry(_)
            | WalkFault::Nowhere { .. }
            | WalkFault::Blocked
            | WalkFault::Malformed { .. },
        ) => false,
    }
}

impl Soc {
    /// Whether faults of this VMID may retry (apart from what the entry itself says).
    fn retries(&self, c: Client) -> bool {
        let disabled = self.regs.per_vmid(c.vmid, sh_mem::CONFIG) & RETRY_DISABLE != 0;
        c.vmid != 0 && self.hub(c.hub).context(c.vmid).retry && !disabled
    }

    /// Raises a fault for an access; `why` is `None` for missing permission.
    pub(crate) fn vm_fault(
        &mut self,
        c: Client,
        va: u64,
        access: Access,
        why: Option<WalkFault>,
    ) -> VmError {
        if why == Some(WalkFault::Blocked) {
            self.log.stats.dma_blocked += 1;
            return VmError::Retry;
        }
        let text = || match why {
            None => format!("vmid {} {access:?} at {va:#x}: permission", c.vmid),
            Some(w) => format!("vmid {} {access:?} at {va:#x}: {w:x?}", c.vmid),
        };
        match why {
            // Pages of doorbells are in the hands of user programs, and can only be stored to.
            Some(WalkFault::Nowhere {
                target,
                level: u32::MAX,
                ..
            }) if self.own_ranges().find(target).is_some() => {
                self.user_error("own-bar", text());
            }
            Some(WalkFault::Nowhere { .. }) => self.protocol_error("pte-to-nowhere", text()),
            Some(WalkFault::Malformed { .. }) => self.protocol_error("malformed-pte", text()),
            _ if c.vmid == 0 => self.protocol_error("vmid0-fault", text()),
            _ => {}
        }
        if may_retry(why) && self.retries(c) {
            self.retry_fault(c, va, access, why, text());
            VmError::Retry
        } else {
            self.no_retry_fault(c, va, access, why, text());
            VmError::Fault
        }
    }

    fn fault_iv(
        &self,
        c: Client,
        va: u64,
        access: Access,
        why: Option<WalkFault>,
        retry: bool,
    ) -> Iv {
        let (read, write) = (access == Access::Read, access.writes());
        let mut flags = (va >> 44) as u32 & 0xF;
        flags |= (u32::from(access == Access::Execute) << 4)
            | (u32::from(write) << 5)
            | (u32::from(read) << 6);
        flags |= u32::from(retry) << 7;
        Iv {
            client: if c.hub == HubId::Gfx {
                client::UTCL2
            } else {
                client::VMC
            },
            source: 0,
            // Bit 3 says that there is no valid entry; a page that only lacks the permission has one.
            ring_id: (u8::from(why.is_some()) << 3)
                | (u8::from(read) << 4)
                | (u8::from(write) << 5),
            vmid: c.vmid,
            mm: c.hub == HubId::Mm,
            data: [(va >> 12) as u32, flags, 0, 0],
        }
    }

    fn retry_fault(
        &mut self,
        c: Client,
        va: u64,
        access: Access,
        why: Option<WalkFault>,
        text: String,
    ) {
        self.log.stats.replays += 1;
        if !self.hub(c.hub).retry_interrupts() {
            return;
        }
        let key = CamKey {
            hub: c.hub,
            vmid: c.vmid,
            page: va >> 12,
        };
        let mut iv = self.fault_iv(c, va, access, why, true);
        let cam = self.ih_cam_enabled();
        if cam {
            let Some(index) = self.cam.claim(key) else {
                return;
            };
            iv.data[2] = index;
        } else if !self.cam.due(key, self.clock.now_ns()) {
            return;
        }
        self.log.stats.faults_retry += 1;
        let origin = Origin {
            vmid: c.vmid,
            pasid: self.pasid_of(c.vmid, c.hub),
            doorbell: 0,
        };
        self.log
            .event(self.clock.now_ns(), Ring::Vm, origin, "RETRY_FAULT", text);
        // With the CAM the driver waits for these on ring 0, without it on ring 1.
        let ring = if cam || !self.ih_ring_enabled(1) {
            0
        } else {
            1
        };
        self.ih_post(ring, iv);
    }

    fn no_retry_fault(
        &mut self,
        c: Client,
        va: u64,
        access: Access,
        why: Option<WalkFault>,
        text: String,
    ) {
        let now = self.clock.now_ns();
        self.log.stats.faults_no_retry += 1;
        if c.vmid != 0
            && !matches!(
                why,
                Some(WalkFault::Nowhere { .. } | WalkFault::Malformed { .. })
            )
        {
            self.log.stats.user_errors += 1;
        }
        let origin = Origin {
            vmid: c.vmid,
            pasid: self.pasid_of(c.vmid, c.hub),
            doorbell: 0,
        };
        self.log
            .event(now, Ring::Vm, origin, "NO_RETRY_FAULT", text);
        let enable = self.latch_no_retry(c, va, access, why);
        if self.hub(c.hub).context(c.vmid).cntl & enable != 0 {
            let iv = self.fault_iv(c, va, access, why, false);
            self.ih_post(0, iv);
        }
    }

    /// Latches a fault in the hub's status registers; returns the context's interrupt enable for its kind.
    pub(super) fn latch_no_retry(
        &mut self,
        c: Client,
        va: u64,
        access: Access,
        why: Option<WalkFault>,
    ) -> u32 {
        let (walker, valid_bit, enable) = match why {
            None => {
                let e = match access {
                    Access::Read => context::INT_READ,
                    Access::Write | Access::Atomic => context::INT_WRITE,
                    Access::Execute => context::INT_EXECUTE,
                };
                (0, 0, e)
            }
            Some(WalkFault::Range | WalkFault::Disabled) => (1, 1, context::INT_RANGE),
            Some(WalkFault::InvalidPde(level)) => (2 + level.min(2), 1, context::INT_PDE0),
            Some(_) => (0, 1, context::INT_VALID),
        };
        let perm = valid_bit
            | match access {
                Access::Read => 2,
                Access::Write | Access::Atomic => 4,
                Access::Execute => 8,
            };
        let status = (walker << 1)
            | (perm << 4)
            | (u32::from(c.cid & 0x1FF) << 9)
            | (u32::from(access.writes()) << 18)
            | (u32::from(access == Access::Atomic) << 19)
            | (u32::from(c.vmid & 0xF) << 20);
        self.hub_mut(c.hub)
            .latch_fault(status, (va >> 12) & 0xF_FFFF_FFFF);
        enable
    }
}
