// SPDX-License-Identifier: GPL-2.0 OR MIT
//! From a dispatch packet to a [`Kernel`].
//!
//! AQL packets and kernel descriptors: `hsa.h` and the AMDGPU usage document of LLVM; the queue object:
//! `amd_hsa_queue.h`; DISPATCH_DIRECT: COMPUTE_* registers of `gc_9_0_sh_mask.h`.

use gfx9_isa::inst::Asic as Isa;

use super::kernel::{Kernel, Scratch, USER_SGPRS};
use super::sync::Share;
use super::units::{UnitMask, ENGINES, LDS};
use crate::aql::{self, QueueError};
use crate::cp::hqd::r;
use crate::cp::queue::Run;
use crate::cp::slot::SlotId;
use crate::device::Gpu;
use crate::regs::{sh_mem, RETRY_DISABLE};
use crate::vm::access::{VmError, VmResult};

/// Most work-items of a workgroup.
const MAX_WORKGROUP: u64 = 1024;
/// COMPUTE_* registers by their number behind 0xE00.
mod sh {
    pub const START: usize = 0x04;
    pub const NUM_THREAD: usize = 0x07;
    pub const PGM: usize = 0x0C;
    pub const RSRC1: usize = 0x12;
    pub const RSRC2: usize = 0x13;
    pub const RSRC3: usize = 0x2D;
    pub const TMPRING_SIZE: usize = 0x18;
    pub const USER_DATA: usize = 0x40;
    /// STATIC_THREAD_MGMT of each engine.
    pub const CU_MASKS: [usize; 8] = [0x16, 0x17, 0x19, 0x1A, 0x25, 0x26, 0x27, 0x28];
}
/// COMPUTE_DISPATCH_INITIATOR.
mod initiator {
    pub const SHADER_EN: u32 = 1;
    pub const PARTIAL_TG_EN: u32 = 1 << 1;
    pub const FORCE_START_AT_000: u32 = 1 << 2;
    pub const USE_THREAD_DIMENSIONS: u32 = 1 << 5;
}
/// `kernel_code_properties` of a descriptor: what the user SGPRs hold.
mod wants {
    pub const PRIVATE_SEGMENT_BUFFER: u32 = 1;
    pub const DISPATCH_PTR: u32 = 1 << 1;
    pub const QUEUE_PTR: u32 = 1 << 2;
    pub const KERNARG_PTR: u32 = 1 << 3;
    pub const DISPATCH_ID: u32 = 1 << 4;
    pub const FLAT_SCRATCH_INIT: u32 = 1 << 5;
    pub const PRIVATE_SEGMENT_SIZE: u32 = 1 << 6;
}
/// Bytes in front of the entry of a kernel with preloaded arguments (gfx90a and later).
const PRELOAD_PROLOGUE: u64 = 256;
/// COMPUTE_PGM_RSRC2.TRAP_PRESENT.
const TRAP_PRESENT: u32 = 1 << 6;
/// SQ_SHADER_TBA_HI.TRAP_EN.
const TRAP_EN: u32 = 1 << 31;
/// `queue_properties` of the queue object: ENABLE_TRAP_HANDLER.
const ENABLE_TRAP_HANDLER: u32 = 1;
/// Bytes of the queue object.
const QUEUE_OBJECT: u64 = 256;

/// Why a kernel cannot be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A page is on its way.
    Retry,
    /// The packet is wrong.
    Error(QueueError),
}

/// What the packet processor reads of `amd_queue_t`.
#[derive(Debug, Clone, Copy, Default)]
struct QueueObject {
    address: u64,
    tmpring: u32,
    descriptor: [u32; 4],
    backing: u64,
    lane_bytes: u32,
    properties: u32,
}

fn pair(words: &[u32], at: usize) -> u64 {
    let word = |at: usize| words.get(at).copied().map_or(0, u64::from);
    word(at) | word(at + 1) << 32
}

/// COMPUTE_TMPRING_SIZE: WAVES, and WAVESIZE in units of 1 KiB.
fn tmpring(value: u32) -> Option<Scratch> {
    let (slots, wave) = (value & 0xFFF, u64::from(value >> 12 & 0x1FFF) * 1024);
    (slots != 0 && wave != 0).then_some(Scratch { wave, slots })
}

/// Groups of one dimension, and the work-items of the last one.
fn split(grid: u32, size: u32) -> (u32, u32) {
    let rest = grid % size;
    (grid.div_ceil(size), if rest == 0 { size } else { rest })
}

impl Gpu {
    /// Address of the queue object around the read index of an AQL queue, 0 if there is none.
    ///
    /// # Errors
    /// See [`Gpu::vm_read`].
    pub fn queue_object(&mut self, slot: SlotId, run: &Run) -> VmResult<u64> {
        let rptr = self.cp.hqd(slot).pair(r::RPTR_REPORT) & !7;
        let offset = self.soc.vm_read_u32(run.client(), rptr.wrapping_add(8))?;
        // Another offset is that of no queue object.
        Ok(if offset == 0 || u64::from(offset) > QUEUE_OBJECT - 8 {
            0
        } else {
            rptr.wrapping_sub(u64::from(offset))
        })
    }

    fn read_queue_object(&mut self, slot: SlotId, run: &Run) -> VmResult<QueueObject> {
        let address = self.queue_object(slot, run)?;
        if address == 0 {
            return Ok(QueueObject::default());
        }
        // compute_tmpring_size to queue_properties.
        let mut words = [0; 11];
        self.soc
            .vm_read_dwords(run.client(), address.wrapping_add(140), &mut words)?;
        Ok(QueueObject {
            address,
            tmpring: words[0],
            descriptor: [words[1], words[2], words[3], words[4]],
            backing: pair(&words, 5),
            lane_bytes: words[9],
            properties: words[10],
        })
    }

    /// Units of the die that are not fused off, and that the driver has not given up.
    pub(super) fn working_units(&self) -> UnitMask {
        std::array::from_fn(|engine| {
            if engine >= self.soc.asic.engines as usize {
                return 0;
            }
            let off = self.soc.board.inactive_units(self.soc.asic, engine as u32)
                | self.soc.regs.user_array_config(engine) >> 16;
            !off as u16
        })
    }

    /// Units that a queue may use: bit n of an engine's mask is its n-th working unit.
    fn units_of(&self, slot: SlotId) -> UnitMask {
        let working = self.working_units();
        let hqd = self.cp.hqd(slot);
        std::array::from_fn(|engine: usize| {
            let mask = sh::CU_MASKS.get(engine).map_or(0, |&at| hqd.sh(at));
            let units = (0..16).filter(|unit| working[engine % ENGINES] >> unit & 1 != 0);
            units
                .enumerate()
                .filter(|(n, _)| mask >> n & 1 != 0)
                .fold(0, |units, (_, unit)| units | 1 << unit)
        })
    }

    /// What the process in `vmid` has of global wave sync.
    fn sync_share(&self, vmid: u8) -> Share {
        let process = self.hws.process(vmid);
        process.map_or(Share::default(), |process| Share {
            pasid: process.pasid,
            count: process.gws,
        })
    }

    /// A kernel with what follows from its queue alone; `properties` are those of the queue object.
    pub(crate) fn kernel_of(
        &self,
        slot: SlotId,
        run: &Run,
        rsrc: [u32; 3],
        properties: u32,
    ) -> Kernel {
        let vmid = run.space();
        let of_vmid = |i| self.soc.regs.per_vmid(vmid, i);
        let trap_base = [
            of_vmid(sh_mem::TBA_LO),
            of_vmid(sh_mem::TBA_HI),
            of_vmid(sh_mem::TMA_LO),
            of_vmid(sh_mem::TMA_HI),
        ];
        let has_handler = trap_base[0] != 0 || trap_base[1] & !TRAP_EN != 0;
        let enabled = trap_base[1] & TRAP_EN != 0
            || rsrc[1] & TRAP_PRESENT != 0
            || properties & ENABLE_TRAP_HANDLER != 0;
        Kernel {
            isa: self.soc.asic.isa(),
            vmid,
            doorbell: run.doorbell / 2 & 0x3FF,
            queue: (slot.queue(), slot.pipe(), slot.me()),
            entry: 0,
            rsrc,
            user: Vec::new(),
            start: [0; 3],
            groups: [0; 3],
            size: [1; 3],
            last: [1; 3],
            lds: 0,
            scratch: None,
            traps: has_handler && enabled,
            trap_base,
            apertures: of_vmid(sh_mem::BASES),
            retries: of_vmid(sh_mem::CONFIG) & RETRY_DISABLE == 0,
            packet: run.rptr,
            units: self.units_of(slot),
            priority: self.cp.hqd(slot).priority(),
            sync: self.sync_share(vmid),
        }
    }

    /// The kernel of an AQL packet: number `index` of its queue, at `at`.
    ///
    /// # Errors
    /// The packet is wrong, or something that it names is not there.
    pub fn aql_kernel(
        &mut self,
        slot: SlotId,
        run: &Run,
        (index, at, p): (u64, u64, &[u32; 16]),
    ) -> Result<Kernel, Refused> {
        let error = |e| Err(Refused::Error(e));
        let size = [p[1] & 0xFFFF, p[1] >> 16, p[2] & 0xFFFF];
        let grid = [p[3], p[4], p[5]];
        let (private, lds, object) = (p[6], p[7], pair(p, 8));
        if p[0] >> 16 & 3 == 0 || size.contains(&0) || grid.contains(&0) {
            return error(aql::DIMENSION);
        }
        if size.iter().map(|&n| u64::from(n)).product::<u64>() > MAX_WORKGROUP {
            return error(aql::WORKGROUP);
        }
        if lds > LDS {
            return error(aql::GROUP_MEMORY);
        }
        if object == 0 || object % 64 != 0 {
            return error(aql::CODE_OBJECT);
        }
        let mut descriptor = [0; 16];
        match self
            .soc
            .vm_read_dwords(run.client(), object, &mut descriptor)
        {
            Ok(()) => {}
            Err(VmError::Retry) => return Err(Refused::Retry),
            Err(VmError::Fault) => return error(aql::CODE_OBJECT),
        }
        let entry = object.wrapping_add(pair(&descriptor, 4));
        if entry % 256 != 0 {
            return error(aql::CODE_OBJECT);
        }
        let queue = match self.read_queue_object(slot, run) {
            Ok(queue) => queue,
            Err(VmError::Retry) => return Err(Refused::Retry),
            Err(VmError::Fault) => QueueObject::default(),
        };
        let rsrc = [descriptor[12], descriptor[13], descriptor[11]];
        let split: [(u32, u32); 3] = std::array::from_fn(|i| split(grid[i], size[i]));
        let mut user = user_sgprs(descriptor[14], &queue, (at, index, p));
        let preloaded = self.preload(run, descriptor[14] >> 16, pair(p, 10), &mut user)?;
        let mut kernel = Kernel {
            // Code that loads the arguments itself comes first, for firmware that does not.
            entry: if preloaded {
                entry.wrapping_add(PRELOAD_PROLOGUE)
            } else {
                entry
            },
            user,
            groups: split.map(|(groups, _)| groups),
            size,
            last: split.map(|(_, last)| last),
            lds,
            packet: index,
            ..self.kernel_of(slot, run, rsrc, queue.properties)
        };
        if kernel.count().is_none() {
            return error(aql::DIMENSION);
        }
        if private > 0 {
            kernel.scratch = tmpring(queue.tmpring);
            let enough = kernel.scratch.is_some_and(|s| s.slots >= kernel.waves());
            if private > queue.lane_bytes || !enough {
                return error(aql::SCRATCH);
            }
        }
        if !self.waves.dispatcher.can_hold(&kernel) {
            return error(aql::REGISTERS);
        }
        Ok(kernel)
    }

    /// Puts the arguments that a descriptor asks for (`kernarg_preload`) into the user SGPRs behind the others; returns
    /// whether there are any.
    fn preload(
        &mut self,
        run: &Run,
        asked: u32,
        kernarg: u64,
        user: &mut Vec<u32>,
    ) -> Result<bool, Refused> {
        let (length, offset) = ((asked & 0x7F) as usize, u64::from(asked >> 7 & 0x1FF));
        if length == 0 || self.soc.asic.isa() == Isa::Gfx906 {
            return Ok(false);
        }
        let mut words = [0; USER_SGPRS];
        let room = USER_SGPRS - user.len().min(USER_SGPRS);
        let words = &mut words[..length.min(room)];
        let from = kernarg.wrapping_add(4 * offset);
        // Arguments that are not there have raised their fault; the kernel gets zeros, as whoever reads them.
        if self.soc.vm_read_dwords(run.client(), from, words) == Err(VmError::Retry) {
            return Err(Refused::Retry);
        }
        user.extend_from_slice(words);
        Ok(true)
    }

    /// The kernel of a DISPATCH_DIRECT or DISPATCH_INDIRECT packet with these dimensions and this initiator, or `None` if
    /// it has no group.
    ///
    /// # Errors
    /// The registers describe none that can run.
    pub fn pm4_kernel(
        &self,
        slot: SlotId,
        run: &Run,
        (dims, control): ([u32; 3], u32),
    ) -> Result<Option<Kernel>, &'static str> {
        let hqd = self.cp.hqd(slot);
        let reg = |i: usize| hqd.sh(i);
        let threads: [u32; 3] = std::array::from_fn(|i| reg(sh::NUM_THREAD + i));
        let size = threads.map(|n| (n & 0xFFFF).max(1));
        let mut start: [u32; 3] = std::array::from_fn(|i| reg(sh::START + i));
        if control & initiator::FORCE_START_AT_000 != 0 {
            start = [0; 3];
        }
        let partial = |i: usize| match threads[i] >> 16 {
            n if n != 0 && control & initiator::PARTIAL_TG_EN != 0 => n.min(size[i]),
            _ => size[i],
        };
        // The dimensions are ends, not lengths.
        let split: [(u32, u32); 3] = std::array::from_fn(|i| {
            let (end, last) = if control & initiator::USE_THREAD_DIMENSIONS != 0 {
                split(dims[i], size[i])
            } else {
                (dims[i], partial(i))
            };
            (end.saturating_sub(start[i]), last)
        });
        let groups = split.map(|(groups, _)| groups);
        if control & initiator::SHADER_EN == 0 || groups.contains(&0) {
            return Ok(None);
        }
        if size.iter().map(|&n| u64::from(n)).product::<u64>() > MAX_WORKGROUP {
            return Err("workgroup is too large");
        }
        let isa = self.soc.asic.isa();
        let rsrc3 = if isa == Isa::Gfx906 {
            0
        } else {
            reg(sh::RSRC3)
        };
        let rsrc = [reg(sh::RSRC1), reg(sh::RSRC2), rsrc3];
        let entry = u64::from(reg(sh::PGM)) << 8 | u64::from(reg(sh::PGM + 1) & 0xFF) << 40;
        let lds = (rsrc[1] >> 15 & 0x1FF) * 512;
        let kernel = Kernel {
            // Addresses have 48 bits, sign-extended.
            entry: ((entry << 16) as i64 >> 16) as u64,
            user: (0..USER_SGPRS).map(|i| reg(sh::USER_DATA + i)).collect(),
            start,
            groups,
            size,
            last: split.map(|(_, last)| last),
            lds,
            scratch: tmpring(reg(sh::TMPRING_SIZE)).filter(|_| rsrc[1] & 1 != 0),
            ..self.kernel_of(slot, run, rsrc, 0)
        };
        if kernel.count().is_none() {
            return Err("there are too many groups");
        }
        let starved = |s: Scratch| s.slots < kernel.waves();
        if kernel.scratch.is_some_and(starved) {
            return Err("COMPUTE_TMPRING_SIZE has less waves than a group");
        }
        if lds > LDS || !self.waves.dispatcher.can_hold(&kernel) {
            return Err("no compute unit has room for a group");
        }
        Ok(Some(kernel))
    }
}

/// The user SGPRs that a descriptor asks for, in their order.
fn user_sgprs(
    properties: u32,
    queue: &QueueObject,
    (packet, index, p): (u64, u64, &[u32; 16]),
) -> Vec<u32> {
    let mut out = Vec::with_capacity(USER_SGPRS);
    let mut put = |bit: u32, words: &[u32]| {
        if properties & bit != 0 {
            out.extend_from_slice(words);
        }
    };
    let wide = |value: u64| [value as u32, (value >> 32) as u32];
    put(wants::PRIVATE_SEGMENT_BUFFER, &queue.descriptor);
    put(wants::DISPATCH_PTR, &wide(packet));
    put(wants::QUEUE_PTR, &wide(queue.address));
    put(wants::KERNARG_PTR, &[p[10], p[11]]);
    put(wants::DISPATCH_ID, &wide(index));
    put(wants::FLAT_SCRATCH_INIT, &wide(queue.backing));
    let private = p[6].checked_next_multiple_of(4).unwrap_or(p[6]);
    put(wants::PRIVATE_SEGMENT_SIZE, &[private]);
    out.truncate(USER_SGPRS);
    out
}
