// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which block answers a register, and the registers that do something.

use super::{athub, gc, mp, nbio, sh_mem, BAR5_SIZE};
use crate::board::{ones, MEC_VERSION_BITS};
use crate::cp::slot::SlotId;
use crate::device::Gpu;
use crate::ih::{client, reg as ihreg, Iv};
use crate::mem::Phys;
use crate::soc::Soc;
use crate::trace::{Origin, Ring};
use crate::vm::hub::{mc, vm, HubEffect, Request};
use crate::vm::range::{Range, Reading};
use crate::vm::tlb::Levels;
use crate::vm::HubId;

/// Who writes a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// The CPU through BAR5.
    Cpu,
    /// A packet of the queue in this slot.
    Cp(SlotId),
    /// An SDMA packet.
    Sdma,
}

const IH_SPAN: u32 = 0x190;
const CPC_GENERIC2: u32 = 1 << 29;
/// How long an invalidation engine takes for a legacy or lightweight request: until then the old translations are
/// in use.
const INVALIDATE_LIGHT_NS: u64 = 100_000;
/// The same for a heavyweight one, which also waits for accesses that are under way.
const INVALIDATE_HEAVY_NS: u64 = 200_000;
/// FLUSH_TYPE from which on a request waits for writes that were translated before.
pub const HEAVYWEIGHT: u32 = 2;
/// VMID 0 in a mask of VMIDs: the kernel's own address space.
const KERNEL: u16 = 1;

impl Soc {
    /// Slot selected by GRBM_GFX_CNTL; `None` for the graphics micro-engine.
    pub fn selected_slot(&self) -> Option<SlotId> {
        let v = self.regs.plain(gc::GRBM_GFX_CNTL);
        SlotId::new(((v >> 2) & 3) as u8, (v & 3) as u8, ((v >> 8) & 7) as u8)
    }

    fn selected_vmid(&self) -> u8 {
        ((self.regs.plain(gc::GRBM_GFX_CNTL) >> 4) & 0xF) as u8
    }

    /// Counts an invalidation and lets stalled accesses replay.
    pub fn note_invalidation(&mut self, id: HubId, vmids: u16, levels: Levels, range: Range) {
        self.log.stats.tlb_invalidations += u64::from(vmids.count_ones());
        let which = match (levels.l1, levels.l2) {
            (true, true) => "",
            (true, false) => ", only L1",
            (false, true) => ", only L2",
            (false, false) => ", no translations",
        };
        let mut text = format!("{id:?} hub, vmid mask {vmids:#06x}{which}");
        if !range.is_all() {
            text += &format!(", pages {:#x} to {:#x}", range.first, range.last);
        }
        self.log.event(
            self.clock.now_ns(),
            Ring::Vm,
            Origin::default(),
            "INVALIDATE",
            text,
        );
        self.kick();
    }
}

impl Gpu {
    fn per_vmid_index(&self, r: u32) -> Option<usize> {
        Some(match r {
            gc::SH_MEM_BASES => sh_mem::BASES,
            gc::SH_MEM_CONFIG => sh_mem::CONFIG,
            gc::SQ_SHADER_TBA_LO..=gc::SQ_SHADER_TMA_HI => {
                sh_mem::TBA_LO + (r - gc::SQ_SHADER_TBA_LO) as usize
            }
            gc::SPI_GDBG_PER_VMID_CNTL if self.soc.asic.gdbg_per_vmid => sh_mem::GDBG,
            _ => return None,
        })
    }

    fn hub_register(&self, r: u32) -> Option<(HubId, bool, u32)> {
        for (id, l) in [
            (HubId::Gfx, self.soc.asic.gfxhub),
            (HubId::Mm, self.soc.asic.mmhub),
        ] {
            if (l.vm_base..l.vm_base + vm::COUNT).contains(&r) {
                return Some((id, true, r - l.vm_base));
            }
            if (l.mc_base..l.mc_base + mc::COUNT).contains(&r) {
                return Some((id, false, r - l.mc_base));
            }
        }
        None
    }

    fn ih_register(&self, r: u32) -> Option<u32> {
        r.checked_sub(self.soc.asic.osssys).filter(|&o| o < IH_SPAN)
    }

    fn undecoded(&mut self, what: &str, r: u32) -> bool {
        let byte = r.wrapping_mul(4);
        if u64::from(r) * 4 < BAR5_SIZE && self.soc.asic.decodes(byte) {
            return false;
        }
        self.soc.protocol_error(
            "mmio-hole",
            format!("{what} of register byte {byte:#x}: no block there"),
        );
        true
    }

    /// Reads a register.
    pub fn reg_read(&mut self, r: u32) -> u32 {
        if self.undecoded("read", r) {
            return 0;
        }
        if let Some((hub, is_vm, o)) = self.hub_register(r) {
            return if is_vm {
                self.settle_invalidations();
                let v = self.soc.hub_mut(hub).read_vm(o);
                if let Some(engine) = self.soc.hub(hub).forgotten_semaphore(o) {
                    let text = format!("{hub:?} hub: VM_INVALIDATE_ENG{engine}_SEM is asked for again and again, but was never released");
                    self.soc.protocol_error("invalidate-sem", text);
                }
                v
            } else {
                self.soc.hub(hub).read_mc(o)
            };
        }
        if let Some((engine, o)) = self.sdma_register(r) {
            return self.sdma_reg_read(engine, o);
        }
        if let Some(i) = self.per_vmid_index(r) {
            return self.soc.regs.per_vmid(self.soc.selected_vmid(), i);
        }
        match r {
            gc::HQD_FIRST..=gc::HQD_LAST => self.hqd_reg_read(r - gc::HQD_FIRST),
            gc::COMPUTE_FIRST..=gc::COMPUTE_LAST => self.compute_reg_read(r - gc::COMPUTE_FIRST),
            gc::CPC_INT_CNTL => self
                .soc
                .selected_slot()
                .map_or(0, |s| self.soc.regs.int_cntl(s.pipe_index())),
            gc::CP_ME1_PIPE0_INT_CNTL..=gc::CP_ME2_PIPE3_INT_CNTL => self
                .soc
                .regs
                .int_cntl((r - gc::CP_ME1_PIPE0_INT_CNTL) as usize),
            gc::SPI_CSQ_WF_ACTIVE_STATUS => self.slotted_queues(),
            gc::CC_GC_SHADER_ARRAY_CONFIG | gc::GC_USER_SHADER_ARRAY_CONFIG => {
                self.soc.shader_array_read(r)
            }
            gc::RLC_GPU_CLOCK_COUNT_LSB => self.soc.regs.clock_capture as u32,
            gc::RLC_GPU_CLOCK_COUNT_MSB => (self.soc.regs.clock_capture >> 32) as u32,
            nbio::MM_DATA => self.window_read(),
            nbio::PCIE_DATA => self.indirect_read(u64::from(self.soc.regs.plain(nbio::PCIE_INDEX))),
            nbio::PCIE_DATA2 => self.indirect_read(self.smn_address()),
            r if r == self.soc.asic.nbio2 + nbio::GPU_HDP_FLUSH_DONE => self
                .soc
                .regs
                .plain(self.soc.asic.nbio2 + nbio::GPU_HDP_FLUSH_REQ),
            _ => self.soc.regs.plain(r),
        }
    }

    /// Writes a register.
    pub fn reg_write(&mut self, r: u32, v: u32, writer: Writer) {
        if self.undecoded("write", r) {
            return;
        }
        if let Some((hub, is_vm, o)) = self.hub_register(r) {
            self.hub_write(hub, is_vm, o, v);
            return;
        }
        if let Some((engine, o)) = self.sdma_register(r) {
            self.sdma_reg_write(engine, o, v);
            return;
        }
        if let Some(o) = self.ih_register(r) {
            self.ih_reg_write(o, v);
            return;
        }
        if let Some(i) = self.per_vmid_index(r) {
            self.soc.regs.set_per_vmid(self.soc.selected_vmid(), i, v);
            return;
        }
        match r {
            gc::HQD_FIRST..=gc::HQD_LAST => self.hqd_reg_write(r - gc::HQD_FIRST, v),
            gc::COMPUTE_FIRST..=gc::COMPUTE_LAST => {
                self.compute_reg_write(r - gc::COMPUTE_FIRST, v)
            }
            gc::CPC_INT_CNTL => {
                if let Some(s) = self.soc.selected_slot() {
                    self.soc.regs.set_int_cntl(s.pipe_index(), v);
                } else {
                    self.soc.protocol_error(
                        "bank",
                        format!("CPC_INT_CNTL = {v:#x} with no MEC selected"),
                    );
                }
            }
            gc::CP_ME1_PIPE0_INT_CNTL..=gc::CP_ME2_PIPE3_INT_CNTL => {
                self.soc
                    .regs
                    .set_int_cntl((r - gc::CP_ME1_PIPE0_INT_CNTL) as usize, v);
            }
            gc::CPC_INT_STATUS => self.cpc_int_status(v, writer),
            gc::CP_PQ_WPTR_POLL_CNTL1 => self.one_shot_poll(v),
            gc::CP_MEC_CNTL => self.mec_cntl(v),
            gc::CP_MEC_ME1_UCODE_ADDR => self.soc.regs.set_plain(r, v & ones(MEC_VERSION_BITS)),
            gc::CC_GC_SHADER_ARRAY_CONFIG | gc::GC_USER_SHADER_ARRAY_CONFIG => {
                self.soc.shader_array_write(r, v);
            }
            gc::SPI_COMPUTE_QUEUE_RESET => self.queue_reset(v),
            gc::GRBM_SOFT_RESET => self.soft_reset(v),
            gc::SQ_CMD => {
                let text = format!("SQ_CMD {v:#010x}: cmd {} vmid {}", v & 7, v >> 28);
                self.soc.log.event(
                    self.soc.clock.now_ns(),
                    Ring::Device,
                    Origin::default(),
                    "SQ_CMD",
                    text,
                );
            }
            gc::RLC_SAFE_MODE => self.soc.regs.set_plain(r, v & !1),
            gc::RLC_CAPTURE_GPU_CLOCK_COUNT => {
                if v & 1 != 0 {
                    self.soc.regs.clock_capture = self.soc.clock.ticks();
                }
            }
            nbio::MM_DATA => self.window_write(v),
            nbio::PCIE_DATA => {
                let a = u64::from(self.soc.regs.plain(nbio::PCIE_INDEX));
                self.indirect_write(a, v, writer);
            }
            nbio::PCIE_DATA2 => {
                let a = self.smn_address();
                self.indirect_write(a, v, writer);
            }
            _ => self.plain_write(r, v),
        }
    }

    fn plain_write(&mut self, r: u32, v: u32) {
        if let Some(o) = r.checked_sub(self.soc.asic.athub).filter(|&o| o < 0x60) {
            self.athub_write(o, v);
            return;
        }
        if let Some(o) = r.checked_sub(self.soc.asic.mp).filter(|&o| o < 0x400) {
            self.mailbox_write(o, v);
            return;
        }
        if r >= self.soc.asic.hdp_remap / 4 {
            self.hdp_flush(r);
            return;
        }
        let flushes = [nbio::HDP_MEM_COHERENCY_FLUSH, nbio::GPU_HDP_FLUSH_REQ];
        if flushes.iter().any(|f| r == self.soc.asic.nbio2 + f) {
            self.soc.log.stats.hdp_flushes += 1;
            self.soc.mem.hdp_flush();
        }
        if r == self.soc.asic.nbio2 + nbio::CONFIG_MEMSIZE {
            self.soc.protocol_error(
                "read-only",
                format!("write of {v:#x} to RCC_CONFIG_MEMSIZE"),
            );
            return;
        }
        self.soc.regs.set_plain(r, v);
    }

    fn hub_write(&mut self, id: HubId, is_vm: bool, o: u32, v: u32) {
        if !is_vm {
            self.soc.hub_mut(id).write_mc(o, v);
            return;
        }
        let ranges = self.soc.ranges();
        let all = ranges == Reading::Refuse
            && (self.soc.rules.flush_range || self.soc.hub(id).translates(v as u16));
        if let Some((engine, [low, high])) = self.soc.hub(id).rangeless_engine(o).filter(|_| all) {
            let text = format!(
                "{id:?} hub: VM_INVALIDATE_ENG{engine}_REQ = {v:#x}, its ADDR_RANGE is {high:#x}:{low:08x}, not all"
            );
            self.soc.protocol_error("invalidate-range", text);
        }
        self.settle_invalidations();
        match self.soc.hub_mut(id).write_vm(o, v) {
            HubEffect::None => {}
            HubEffect::Invalidated(vmids, levels) => {
                self.soc.note_invalidation(id, vmids, levels, Range::ALL);
            }
            HubEffect::Requested {
                engine,
                mut request,
                busy,
            } => {
                // The engine has latched it: what is written there later is for the next request.
                request.range = ranges.range(self.soc.hub(id).address_range(engine as u32));
                self.request_invalidation(id, engine, request, busy);
            }
        }
    }

    /// VM_INVALIDATE_ENGn_REQ: the engine drops the translations and then acknowledges, both after a while.
    fn request_invalidation(&mut self, id: HubId, engine: usize, mut request: Request, busy: bool) {
        let name = format!("{id:?} hub: VM_INVALIDATE_ENG{engine}_REQ");
        if busy {
            let text = format!("{name} before the request before it was acknowledged");
            self.soc.protocol_error("invalidate-busy", text);
        }
        self.claim_tables(id, request.vmids & KERNEL);
        let takes = match request.kind {
            0..=2 if !self.soc.rules.late_acks => 0,
            0 | 1 => INVALIDATE_LIGHT_NS,
            2 => INVALIDATE_HEAVY_NS,
            kind => {
                self.soc
                    .protocol_error("invalidate-type", format!("{name}: FLUSH_TYPE {kind}"));
                INVALIDATE_HEAVY_NS
            }
        };
        if self.soc.inject.take_invalidation() {
            let text = format!("{name} is not answered on request");
            let now = self.soc.clock.now_ns();
            self.soc
                .log
                .event(now, Ring::Vm, Origin::default(), "DEAF_TLB", text);
        } else {
            request.due = Some(self.soc.clock.now_ns().saturating_add(takes));
        }
        self.soc.hub_mut(id).begin_request(engine, request);
        self.soc.kick();
    }

    /// Completes the invalidations whose time has come; returns when the next one is due.
    pub fn settle_invalidations(&mut self) -> Option<u64> {
        let now = self.soc.clock.now_ns();
        for id in [HubId::Gfx, HubId::Mm] {
            while let Some(request) = self.soc.hub_mut(id).end_request(now) {
                if request.kind >= HEAVYWEIGHT {
                    self.land_writes(id, request.vmids, request.range);
                }
                self.soc
                    .note_invalidation(id, request.vmids, request.levels, request.range);
            }
        }
        let next = [HubId::Gfx, HubId::Mm].map(|id| self.soc.hub(id).next_request(now));
        next.into_iter().flatten().min()
    }

    fn ih_reg_write(&mut self, o: u32, v: u32) {
        for (n, &base) in ihreg::RING.iter().enumerate() {
            if o == base + ihreg::CNTL {
                self.soc.ih_write_cntl(n, v);
                return;
            }
            if o == base + ihreg::RPTR {
                self.soc.ih_write_rptr(n, v);
                return;
            }
        }
        if o == ihreg::CAM_ACK {
            self.soc.ih_release_cam(v & 0x3FF);
            return;
        }
        self.soc.regs.set_plain(self.soc.asic.osssys + o, v);
    }

    fn athub_write(&mut self, o: u32, v: u32) {
        let base = self.soc.asic.athub;
        if o == athub::UPDATE_STATUS {
            let left = self.soc.regs.plain(base + o) & !v;
            self.soc.regs.set_plain(base + o, left);
            return;
        }
        self.soc.regs.set_plain(base + o, v);
        let bit = match o {
            o if (athub::VMID_PASID..athub::VMID_PASID + 16).contains(&o) => o - athub::VMID_PASID,
            o if (athub::VMID_PASID_MM..athub::VMID_PASID_MM + 16).contains(&o) => {
                16 + o - athub::VMID_PASID_MM
            }
            _ => return,
        };
        let done = self.soc.regs.plain(base + athub::UPDATE_STATUS) | (1 << bit);
        self.soc.regs.set_plain(base + athub::UPDATE_STATUS, done);
    }

    fn mailbox_write(&mut self, o: u32, v: u32) {
        let base = self.soc.asic.mp;
        match o {
            mp::MP0_C2PMSG_64 => {
                // The PSP takes the command and shows ready again.
                if v == 0x0007_0000 {
                    self.mode1_reset("PSP");
                }
            }
            mp::MP0_C2PMSG_33 | mp::MP0_C2PMSG_35 | mp::MP0_C2PMSG_81 => {}
            mp::MP1_C2PMSG_66 => {
                if self.soc.smu_message(v) {
                    self.mode1_reset("SMU");
                }
            }
            _ => self.soc.regs.set_plain(base + o, v),
        }
    }

    fn hdp_flush(&mut self, r: u32) {
        let which = if r * 4 == self.soc.asic.hdp_remap {
            nbio::REMAP_HDP_MEM_FLUSH
        } else if r * 4 == self.soc.asic.hdp_remap + 4 {
            nbio::REMAP_HDP_REG_FLUSH
        } else {
            // User programs have this page mapped.
            self.soc.user_error(
                "hdp-remap",
                format!("write to {:#x} in the HDP remap page", r * 4),
            );
            return;
        };
        let programmed = self.soc.regs.plain(self.soc.asic.nbio2 + which);
        if programmed != r * 4 {
            let text = format!(
                "HDP flush at {:#x} but the remap register holds {programmed:#x}",
                r * 4
            );
            self.soc.protocol_error("hdp-remap", text);
        } else if which == nbio::REMAP_HDP_MEM_FLUSH {
            self.soc.log.stats.hdp_flushes += 1;
            self.soc.mem.hdp_flush();
        }
    }

    fn cpc_int_status(&mut self, v: u32, writer: Writer) {
        if v & CPC_GENERIC2 == 0 {
            return;
        }
        let Writer::Cp(slot) = writer else { return };
        if self.soc.regs.int_cntl(slot.pipe_index()) & CPC_GENERIC2 != 0 {
            let iv = Iv {
                client: client::GRBM_CP,
                source: 178,
                ring_id: slot.ring_id(),
                ..Iv::default()
            };
            self.soc.ih_post(0, iv);
        }
    }

    fn smn_address(&self) -> u64 {
        u64::from(self.soc.regs.plain(nbio::PCIE_INDEX2))
            | (u64::from(self.soc.regs.plain(nbio::PCIE_INDEX2_HI)) << 32)
    }

    fn indirect_read(&mut self, addr: u64) -> u32 {
        if addr < BAR5_SIZE {
            let r = (addr / 4) as u32;
            // The windows themselves are not reachable through the windows.
            return if r < 0x12 { 0 } else { self.reg_read(r) };
        }
        self.soc.regs.indirect(addr)
    }

    fn indirect_write(&mut self, addr: u64, v: u32, writer: Writer) {
        if addr < BAR5_SIZE {
            let r = (addr / 4) as u32;
            if r >= 0x12 {
                self.reg_write(r, v, writer);
            }
            return;
        }
        self.soc.regs.set_indirect(addr, v);
    }

    fn window_address(&self) -> (bool, u64) {
        let index = self.soc.regs.plain(nbio::MM_INDEX);
        let hi = u64::from(self.soc.regs.plain(nbio::MM_INDEX_HI));
        (
            index >> 31 != 0,
            (hi << 31) | u64::from(index & 0x7FFF_FFFF),
        )
    }

    fn window_read(&mut self) -> u32 {
        let (vram, addr) = self.window_address();
        if !vram {
            return self.indirect_read(addr);
        }
        self.soc.mem.read_u32(Phys::Vram(addr)).unwrap_or_else(|_| {
            self.soc.protocol_error(
                "mm-window",
                format!("MM_DATA read at VRAM offset {addr:#x}"),
            );
            0
        })
    }

    fn window_write(&mut self, v: u32) {
        let (vram, addr) = self.window_address();
        if !vram {
            self.indirect_write(addr, v, Writer::Cpu);
        } else if addr % 4 != 0
            || self
                .soc
                .mem
                .write(Phys::Vram(addr), &v.to_le_bytes())
                .is_err()
        {
            self.soc.protocol_error(
                "mm-window",
                format!("MM_DATA write at VRAM offset {addr:#x}"),
            );
        }
    }
}
