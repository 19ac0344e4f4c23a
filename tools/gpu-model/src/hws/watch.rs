// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What has to stay while a run list is active: its buffer, and the MQDs of its queues.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::runlist::Runlist;
use super::{Mapped, Target};
use crate::cp::mqd::MEC;
use crate::device::Gpu;
use crate::vm::Access;

/// How often the scheduler looks at the buffer and the MQDs of an active list.
pub(super) const LOOK_NS: u64 = 50_000_000;
/// Dwords of the buffer that it compares.
const DIGEST_DWORDS: u32 = 16384;
/// SDMA*_RLC*_DOORBELL_OFFSET in an SDMA MQD.
const SDMA_DOORBELL_DW: u64 = 22;

impl Gpu {
    /// A digest of the (first part of the) buffer of a list; `None` where it is not to be read.
    pub(super) fn runlist_digest(&mut self, list: &Runlist) -> Option<u64> {
        let mut words = vec![0; list.size.min(DIGEST_DWORDS) as usize];
        let bytes = words.len() * 4;
        if !self.soc.vm_accessible(MEC, list.base, bytes, Access::Read) {
            return None;
        }
        self.soc.vm_read_dwords(MEC, list.base, &mut words).ok()?;
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        Some(hasher.finish())
    }

    /// The scheduler may walk a list again as long as it is active, and read the MQDs that it names: a driver that has
    /// freed one of them too early is found out.
    pub fn look_again(&mut self) {
        let now = self.soc.clock.now_ns();
        let Some(mut list) = self.hws.runlist.take() else {
            return;
        };
        list.look_at = now.saturating_add(LOOK_NS);
        // A scheduler that a driver must take for dead looks at nothing any more, and while bus mastering is off there is
        // nothing to be seen.
        if !list.changed && !self.hws_seems_dead() && self.soc.mem.bus_master() {
            if list.digest.is_some() && self.runlist_digest(&list) != list.digest {
                list.changed = true;
                let text = format!(
                    "the buffer at {:#x} changed while its list is active",
                    list.base
                );
                self.soc.protocol_error("run-list", text);
            }
            let listed: Vec<Mapped> = self
                .hws
                .mapped
                .iter()
                .filter(|m| !m.by_kiq)
                .copied()
                .collect();
            for m in listed {
                if !self.is_still_mqd(&m) {
                    list.changed = true;
                    let text = format!(
                        "MQD {:#x} (doorbell {:#x}) is none any more, but its queue is mapped",
                        m.mqd, m.doorbell
                    );
                    self.soc.protocol_error("mqd", text);
                }
            }
        }
        self.hws.runlist = Some(list);
    }

    fn is_still_mqd(&mut self, m: &Mapped) -> bool {
        match m.target {
            Target::Compute(_) => {
                let own = self.soc.peek_u32(MEC, m.mqd + 128 * 4);
                self.has_mqd(m.mqd) && own.is_some_and(|low| low & !3 == m.mqd as u32)
            }
            Target::Sdma(..) => {
                let doorbell = self.soc.peek_u32(MEC, m.mqd + SDMA_DOORBELL_DW * 4);
                doorbell.is_some_and(|v| (v >> 2) & 0x3FF_FFFF == m.doorbell)
            }
        }
    }
}
