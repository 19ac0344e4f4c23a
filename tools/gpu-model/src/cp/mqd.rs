// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The memory image of a queue (`v9_structs.h`), loaded and written back.

use super::hqd::{f, r, COUNT};
use super::queue::{Frame, Role, Run};
use super::slot::SlotId;
use crate::device::Gpu;
use crate::trace::Ring;
use crate::vm::access::VmResult;
use crate::vm::{Client, HubId, CID_CPC};

/// First dword of every compute MQD.
pub const HEADER: u32 = 0xC031_0800;
/// MQD dword of the first HQD register.
const HQD_DW: usize = 128;
/// MQD dwords that are registers: 128..=183.
const HQD_DWORDS: usize = 56;
/// MQD dword of the AQL read index.
const READ_INDEX_DW: u64 = 96;
/// Where the scheduler logs the doorbell of a queue that refused preemption (HIQ MQD).
pub const REFUSED_DW: u64 = 240;
/// First dword of the model's private part, in the reserved tail of the 512-dword MQD.
const PRIVATE_DW: u64 = 256;
const PRIVATE_MAGIC: u32 = 0x4D42_4932;
/// Nesting of indirect buffers that is saved.
pub const MAX_FRAMES: usize = 4;
const PRIVATE_DWORDS: usize = 4 + 4 * MAX_FRAMES;

/// Client of scheduler accesses to kernel memory.
pub const MEC: Client = Client {
    hub: HubId::Gfx,
    vmid: 0,
    cid: CID_CPC,
};

/// What a MAP_QUEUES packet says that the MQD must agree with.
#[derive(Debug, Clone, Copy)]
pub struct Expect {
    /// MQD address.
    pub mqd: u64,
    /// Doorbell dword index.
    pub doorbell: u32,
    /// Write pointer address.
    pub wptr_addr: u64,
    /// The queue belongs to a user.
    pub user: bool,
}

impl Gpu {
    /// Loads an MQD into the registers of a free slot, reporting every field that contradicts the contract.
    ///
    /// # Errors
    /// The memory cannot be read.
    pub fn load_mqd(&mut self, slot: SlotId, e: &Expect) -> VmResult<()> {
        let mut m = vec![0u32; 256];
        let stale = self.soc.vm_read_hosted(MEC, e.mqd, &mut m)?;
        self.check_flushed(stale, e);
        let dw = |i: usize| m.get(i).copied().unwrap_or(0);
        let pair = |i: usize| u64::from(dw(i)) | (u64::from(dw(i + 1)) << 32);
        let hqd = |i: usize| dw(HQD_DW + i);
        let mut wrong: Vec<String> = Vec::new();
        let mut rule = |bad: bool, text: String| {
            if bad {
                wrong.push(text);
            }
        };
        rule(dw(0) != HEADER, format!("header {:#x}", dw(0)));
        rule(
            pair(HQD_DW) & !3 != e.mqd,
            format!("cp_mqd_base_addr {:#x}", pair(HQD_DW)),
        );
        rule(hqd(r::ACTIVE) & 1 != 0, "cp_hqd_active set".into());
        let (control, doorbell) = (hqd(r::PQ_CONTROL), hqd(r::DOORBELL));
        rule(
            (doorbell & f::DOORBELL_OFFSET) >> 2 != e.doorbell,
            format!("doorbell_control {doorbell:#x}"),
        );
        rule(
            pair(HQD_DW + r::WPTR_POLL) != e.wptr_addr,
            format!("wptr_poll_addr {:#x}", pair(HQD_DW + r::WPTR_POLL)),
        );
        rule(e.user && pair(HQD_DW + r::PQ_BASE) == 0, "pq_base 0".into());
        rule(
            hqd(r::PQ_CONTROL) & 0x3F > 29,
            format!("queue size field {}", control & 0x3F),
        );
        rule(
            e.user && pair(HQD_DW + r::RPTR_REPORT) == 0,
            "rptr_report_addr 0".into(),
        );
        rule(
            pair(HQD_DW + r::RPTR_REPORT) & 3 != 0,
            "rptr_report_addr not aligned".into(),
        );
        rule(
            hqd(r::MQD_CONTROL) & 0xF != 0,
            format!("cp_mqd_control {:#x}", hqd(r::MQD_CONTROL)),
        );
        let privileged = f::PRIV_STATE | f::KMD_QUEUE;
        if e.user {
            rule(
                control & privileged != 0,
                format!("user queue with pq_control {control:#x}"),
            );
            // No EOP buffer is no mistake: CREATE_QUEUE takes address 0 (`kfd_queue.c`), so a user may ask for it.
            let cwsr = hqd(r::PERSISTENT_STATE) & f::QSWITCH_MODE != 0;
            rule(
                cwsr && pair(HQD_DW + r::CTX_SAVE_BASE) == 0,
                "QSWITCH_MODE without ctx_save_base_addr".into(),
            );
            // Both empty, or both with what an earlier preemption saved.
            let (stack, offset) = (hqd(r::CNTL_STACK_SIZE), hqd(r::CNTL_STACK_OFFSET));
            let (state, size) = (hqd(r::WG_STATE_OFFSET), hqd(r::CTX_SAVE_SIZE));
            let empty = offset == stack && state == stack;
            let saved = offset < stack && state > stack && state <= size;
            rule(
                cwsr && !empty && !saved,
                format!(
                    "cntl_stack_size {stack:#x} cntl_stack_offset {offset:#x} wg_state_offset {state:#x} \
                     ctx_save_size {size:#x}"
                ),
            );
        } else {
            rule(
                control & f::PRIV_STATE == 0,
                format!("kernel queue with pq_control {control:#x}"),
            );
        }
        let aql = hqd(r::AQL_CONTROL) & 0x7FFF != 0;
        rule(
            aql != ((control >> 25) & 3 == 2),
            format!(
                "aql_control {:#x}, pq_control {control:#x}",
                hqd(r::AQL_CONTROL)
            ),
        );
        if !wrong.is_empty() {
            let text = format!(
                "MQD {:#x} (doorbell {:#x}, wptr {:#x}): {}",
                e.mqd,
                e.doorbell,
                e.wptr_addr,
                wrong.join("; ")
            );
            self.soc.protocol_error("mqd", text);
        }
        let h = self.cp.hqd_mut(slot);
        for (i, d) in h.regs.iter_mut().enumerate().take(HQD_DWORDS.min(COUNT)) {
            *d = dw(HQD_DW + i);
        }
        self.set_sh(slot, &m);
        self.cwsr_check(slot, if e.user { Role::User } else { Role::Kiq });
        Ok(())
    }

    /// Reports an MQD that was written through BAR0 and not flushed.
    pub fn check_flushed(&mut self, stale: bool, e: &Expect) {
        if stale {
            let text = format!(
                "MQD {:#x} (doorbell {:#x}) is mapped, but what the host wrote there was not flushed",
                e.mqd, e.doorbell
            );
            self.soc.protocol_error("hdp-flush", text);
        }
    }

    fn set_sh(&mut self, slot: SlotId, m: &[u32]) {
        let dw = |i: usize| m.get(i).copied().unwrap_or(0);
        for (i, d) in self.cp.hqd_mut(slot).sh.iter_mut().enumerate() {
            *d = match i {
                0x00..=0x24 => dw(i + 1),
                0x25..=0x28 => dw(i + 2),
                0x40..=0x4F => dw(i + 1),
                _ => 0,
            };
        }
    }

    /// Loads the COMPUTE_* registers of a slot from an MQD, for a queue whose HQD registers the driver wrote.
    pub fn load_sh(&mut self, slot: SlotId, mqd: u64) {
        let mut m = vec![0u32; 128];
        // What cannot be read has been reported by the access.
        if self.soc.vm_read_dwords(MEC, mqd, &mut m).is_ok() {
            self.set_sh(slot, &m);
        }
    }

    /// Whether an MQD lies at an address of the kernel's space.
    pub fn has_mqd(&mut self, mqd: u64) -> bool {
        self.soc.peek_u32(MEC, mqd) == Some(HEADER)
    }

    /// Saves a stopped queue to its MQD.  A reset drops the packet and the indirect buffers it was in.
    pub fn save_queue(&mut self, slot: SlotId, mqd: u64, run: &mut Run, reset: bool) {
        if reset {
            let h = self.cp.hqd_mut(slot);
            h.set(r::IB_CONTROL, h.reg(r::IB_CONTROL) & 0x7FF0_0000);
            self.cwsr_forget(slot);
        } else {
            self.cwsr_save(slot, mqd, run);
        }
        self.save_mqd(slot, mqd);
        if run.role == Role::User && self.has_mqd(mqd) {
            if reset {
                let blank = [0u32; PRIVATE_DWORDS];
                // Failures were reported by the access.
                let _ = self.soc.vm_write_dwords(MEC, mqd + PRIVATE_DW * 4, &blank);
            } else {
                self.save_private(mqd, run);
            }
        }
    }

    /// Lets a queue that has been connected go on where it was saved.
    pub fn resume_queue(&mut self, slot: SlotId, mqd: u64) {
        let saved = self.cwsr_saved(slot);
        if let Some(mut run) = self.cp.hqd_mut(slot).run.take() {
            run.restore = saved.then_some(mqd);
            self.load_private(mqd, &mut run);
            self.cp.hqd_mut(slot).run = Some(run);
        }
    }

    /// Writes a stopped slot back to its MQD.  Failures were reported by the access itself.
    pub fn save_mqd(&mut self, slot: SlotId, mqd: u64) {
        let h = self.cp.hqd(slot);
        let hqd: Vec<u32> = h.regs.iter().copied().take(HQD_DWORDS).collect();
        let sh: Vec<u32> = h.sh.iter().copied().take(0x25).collect();
        let user_data: Vec<u32> = h.sh.iter().copied().skip(0x40).take(16).collect();
        let aql = h.reg(r::AQL_CONTROL) & 0x7FFF != 0;
        let index = u64::from(h.reg(r::PQ_RPTR));
        // One probe first: a driver that freed an MQD too early is reported once, not five times.
        if self
            .soc
            .vm_probe(MEC, mqd, 2048, crate::vm::Access::Write)
            .is_err()
        {
            return;
        }
        let mut put = |dw: u64, words: &[u32]| {
            // The probe has shown that the range is there.
            let _ = self.soc.vm_write_dwords(MEC, mqd + dw * 4, words);
        };
        put(1, &sh);
        put(65, &user_data);
        if aql {
            put(READ_INDEX_DW, &[index as u32, (index >> 32) as u32]);
        }
        put(HQD_DW as u64, &hqd);
    }

    /// Saves indirect-buffer nesting that registers cannot hold.
    pub fn save_private(&mut self, mqd: u64, run: &Run) {
        let mut words = [0u32; PRIVATE_DWORDS];
        let flags = u32::from(run.stalled) | (u32::from(run.in_vendor) << 1);
        if !run.frames.is_empty() || run.progress != 0 || flags != 0 {
            let head = [
                PRIVATE_MAGIC,
                run.frames.len().min(MAX_FRAMES) as u32,
                run.progress as u32,
                flags,
            ];
            for (d, s) in words.iter_mut().zip(head) {
                *d = s;
            }
            for (d, fr) in words.chunks_exact_mut(4).skip(1).zip(&run.frames) {
                d.copy_from_slice(&[fr.base as u32, (fr.base >> 32) as u32, fr.size, fr.pos]);
            }
        }
        // Failures were reported by the access.
        let _ = self.soc.vm_write_dwords(MEC, mqd + PRIVATE_DW * 4, &words);
    }

    /// Restores what [`Gpu::save_private`] saved.
    pub fn load_private(&mut self, mqd: u64, run: &mut Run) {
        let mut words = [0u32; PRIVATE_DWORDS];
        if self
            .soc
            .vm_read_dwords(MEC, mqd + PRIVATE_DW * 4, &mut words)
            .is_err()
        {
            return;
        }
        let [magic, depth, progress, flags, ..] = words;
        let in_ib = !run.frames.is_empty();
        if magic == PRIVATE_MAGIC && depth > 0 && !in_ib {
            // CP_HQD_IB_CONTROL was stored afresh: IB_SIZE and PROCESSING_IB are in no other place.
            self.soc.log.stats.ib_dropped += 1;
            let origin = self.origin_of(run);
            let text = format!("MQD {mqd:#x}: PROCESSING_IB is 0, the rest of the buffer is lost");
            self.soc.log.event(
                self.soc.clock.now_ns(),
                Ring::Sched,
                origin,
                "IB_DROPPED",
                text,
            );
        }
        if magic != PRIVATE_MAGIC || depth as usize > MAX_FRAMES || in_ib != (depth > 0) {
            return;
        }
        run.progress = u64::from(progress);
        run.stalled = flags & 1 != 0;
        run.in_vendor = flags & 2 != 0;
        let vmid = run.vmid;
        run.frames = words
            .chunks_exact(4)
            .skip(1)
            .take(depth as usize)
            .map(|c| Frame {
                base: u64::from(c[0]) | (u64::from(c[1]) << 32),
                size: c[2],
                pos: c[3],
                vmid,
            })
            .collect();
    }
}
