// SPDX-License-Identifier: GPL-2.0 OR MIT
//! VMIDs: giving one to a process, taking it back.

use super::runlist::Runlist;
use super::Process;
use crate::cp::pm4::Packet;
use crate::cp::queue::{Outcome, Run};
use crate::device::Gpu;
use crate::ih::reg as ihreg;
use crate::mem::Phys;
use crate::regs::dispatch::HEAVYWEIGHT;
use crate::regs::{athub, gc, sh_mem, RETRY_DISABLE};
use crate::trace::{Origin, Ring};
use crate::vm::range::Range;
use crate::vm::space::Ticket;
use crate::vm::tlb::Levels;
use crate::vm::HubId;

/// An INVALIDATE_TLBS that has been carried out, and is done when all executors have seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flush {
    /// Address spaces, a bit per VMID.
    vmids: u16,
    /// Of the last hub.
    ticket: Ticket,
}

impl Gpu {
    /// VMID of a process that holds one.
    pub fn vmid_of_pasid(&self, pasid: u16) -> Option<u8> {
        let hit = |p: &Option<Process>| p.is_some_and(|p| p.pasid == pasid);
        self.hws
            .processes
            .iter()
            .position(hit)
            .and_then(|v| u8::try_from(v).ok())
    }

    /// A VMID for a process: its own if it has one, else the lowest free one of the pool.
    pub fn pick_vmid(&self, pasid: u16) -> Option<u8> {
        let mask = self.hws.resources.map_or(0, |r| r.vmid_mask);
        self.vmid_of_pasid(pasid).or_else(|| {
            (1..16u8).find(|&v| {
                (mask >> v) & 1 != 0
                    && self
                        .hws
                        .processes
                        .get(usize::from(v))
                        .is_some_and(Option::is_none)
            })
        })
    }

    /// Installs the context of a MAP_PROCESS packet in a VMID.  Its queues may run when all executors have seen the
    /// invalidation that this returns.
    pub fn install_process(&mut self, vmid: u8, p: &Packet) -> Option<Ticket> {
        let pasid = p.dw(1) as u16;
        let base = p.qw(2);
        self.check_process(pasid, base, p);
        let busy = self.hws.mapped.iter().any(|m| m.vmid == vmid);
        for hub in [HubId::Gfx, HubId::Mm] {
            self.soc.hub_mut(hub).set_base(vmid, base);
        }
        // The new owner must not see the translations of the last one, nor its own from before.
        let flush = (!busy).then(|| {
            let first = self.soc.hub(HubId::Gfx).invalidate(1 << vmid);
            first.max(self.soc.hub(HubId::Mm).invalidate(1 << vmid))
        });
        let config = p.dw(5);
        for (i, v) in [
            (sh_mem::BASES, p.dw(4)),
            (sh_mem::CONFIG, config),
            (sh_mem::TBA_LO, p.dw(6)),
            (sh_mem::TBA_HI, p.dw(7)),
            (sh_mem::TMA_LO, p.dw(8)),
            (sh_mem::TMA_HI, p.dw(9)),
        ] {
            self.soc.regs.set_per_vmid(vmid, i, v);
        }
        if self.soc.asic.gdbg_per_vmid && self.soc.asic.map_process_dw == 21 {
            self.soc.regs.set_per_vmid(vmid, sh_mem::GDBG, p.dw(14));
            for n in 0..4u32 {
                let watch = p.dw(15 + n as usize);
                if watch >> 31 != 0 {
                    let value = watch & !(0xF << 24) | (u32::from(vmid) << 24);
                    self.soc.regs.set_plain(gc::TCP_WATCH0_CNTL + 3 * n, value);
                }
            }
        }
        self.set_pasid_mapping(vmid, Some(pasid));
        let gws = (p.dw(13) & 0x7F) as u8;
        if let Some(slot) = self.hws.processes.get_mut(usize::from(vmid)) {
            *slot = Some(Process {
                pasid,
                retry_disable: config & RETRY_DISABLE != 0,
                gws,
            });
        }
        if gws == 0 {
            self.waves.dispatcher.sync.forget(pasid);
        }
        let origin = Origin {
            vmid,
            pasid,
            doorbell: 0,
        };
        let text = format!("pasid {pasid:#x} takes vmid {vmid}, root {base:#x}");
        self.soc.log.event(
            self.soc.clock.now_ns(),
            Ring::Sched,
            origin,
            "VMID_TAKE",
            text,
        );
        flush
    }

    fn check_process(&mut self, pasid: u16, base: u64, p: &Packet) {
        if pasid == 0 {
            self.soc
                .protocol_error("map-process", format!("PASID 0, root {base:#x}"));
        }
        if base & 1 == 0 {
            self.soc.protocol_error(
                "map-process",
                format!("pasid {pasid:#x}: root {base:#x} is not valid"),
            );
            return;
        }
        let addr = base & crate::vm::walk::bits::PDE_ADDR;
        let at = if base & crate::vm::walk::bits::S != 0 {
            Phys::Bus(addr)
        } else {
            Phys::Vram(addr.wrapping_sub(self.soc.hub(HubId::Gfx).fb_offset()))
        };
        let missing = !self.soc.mem.exists(at, false) && !self.soc.mem.blocked(at);
        if addr & 0xFFF != 0 || missing {
            let text = format!("pasid {pasid:#x}: root {base:#x} does not lie in memory");
            self.soc.protocol_error("map-process", text);
        }
        if p.dw(10) != 0 {
            self.soc.protocol_error(
                "reserved-bits",
                format!("MAP_PROCESS dword 10 is {:#x}", p.dw(10)),
            );
        }
    }

    fn set_pasid_mapping(&mut self, vmid: u8, pasid: Option<u16>) {
        let v = u32::from(vmid & 0xF);
        let value = pasid.map_or(0, |p| u32::from(p) | athub::VALID);
        let base = self.soc.asic.athub;
        self.soc.regs.set_plain(base + athub::VMID_PASID + v, value);
        self.soc
            .regs
            .set_plain(base + athub::VMID_PASID_MM + v, value);
        let lut = pasid.map_or(0, u32::from);
        self.soc
            .regs
            .set_plain(self.soc.asic.osssys + ihreg::VMID_LUT + v, lut);
        self.soc
            .regs
            .set_plain(self.soc.asic.osssys + ihreg::VMID_LUT_MM + v, lut);
    }

    /// Takes back the VMIDs of processes that have no connected queue any more.
    pub fn release_idle_processes(&mut self) {
        let entered = self.hws.runlist.as_ref().and_then(Runlist::entered_vmid);
        for vmid in (1..16u8).filter(|&v| entered != Some(v)) {
            let held = self.hws.processes.get(usize::from(vmid)).copied().flatten();
            let Some(p) = held else { continue };
            if self.hws.mapped.iter().any(|m| m.vmid == vmid) {
                continue;
            }
            if let Some(slot) = self.hws.processes.get_mut(usize::from(vmid)) {
                *slot = None;
            }
            self.set_pasid_mapping(vmid, None);
            let origin = Origin {
                vmid,
                pasid: p.pasid,
                doorbell: 0,
            };
            let text = format!("pasid {:#x} gives back vmid {vmid}", p.pasid);
            self.soc.log.event(
                self.soc.clock.now_ns(),
                Ring::Sched,
                origin,
                "VMID_FREE",
                text,
            );
        }
    }

    /// INVALIDATE_TLBS: by PASID, through the mapping registers.  The ring goes on when all executors have seen it.
    pub fn invalidate_tlbs(&mut self, run: &mut Run, p: &Packet) -> Outcome {
        let control = p.dw(1);
        let hubs: &[HubId] = if (control >> 4) & 1 != 0 {
            &[HubId::Gfx, HubId::Mm]
        } else {
            &[HubId::Gfx]
        };
        let begun = run.flush.take();
        let flush = begun.unwrap_or_else(|| self.drop_translations(control, hubs));
        if !self.soc.spaces.acknowledged(flush.ticket) {
            run.flush = Some(flush);
            // They take a batch of instructions.
            run.pace.look_often();
            return Outcome::Wait;
        }
        // FLUSH_TYPE.
        let kind = control >> 29;
        for &hub in hubs {
            if kind >= HEAVYWEIGHT {
                self.land_writes(hub, flush.vmids, Range::ALL);
            }
            self.soc
                .note_invalidation(hub, flush.vmids, Levels::ALL, Range::ALL);
        }
        Outcome::Done
    }

    /// Drops the translations that an INVALIDATE_TLBS names.
    fn drop_translations(&mut self, control: u32, hubs: &[HubId]) -> Flush {
        let pasid = ((control >> 5) & 0xFFFF) as u16;
        let mut vmids = 0u16;
        for v in 0..16u32 {
            let m = self
                .soc
                .regs
                .plain(self.soc.asic.athub + athub::VMID_PASID + v);
            if m & athub::VALID != 0 && m as u16 == pasid {
                vmids |= 1 << v;
            }
        }
        let mut ticket = Ticket::default();
        for &hub in hubs {
            self.claim_tables(hub, vmids);
            ticket = self.soc.hub(hub).invalidate(vmids);
        }
        Flush { vmids, ticket }
    }

    /// An invalidation of the translations of a process, or of the kernel (VMID 0), says that its tables are written, and
    /// flushed.  A request to an invalidation engine does not say so of another VMID: the scheduler may have given that to
    /// another process meanwhile, and a driver also makes one when it gives a VMID out, while other threads write tables.
    pub(crate) fn claim_tables(&self, hub: HubId, vmids: u16) {
        if !self.soc.rules.pte_flush {
            return;
        }
        for vmid in (0..16u8).filter(|vmid| (vmids >> vmid) & 1 != 0) {
            self.soc
                .mem
                .claim_tables(self.soc.hub(hub).context(vmid).base);
        }
    }
}
