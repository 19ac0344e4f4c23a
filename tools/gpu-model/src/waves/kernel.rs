// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A kernel as all its waves have it, and the state in which a wave begins.
//!
//! Sources: kernel descriptor, initial registers and packed work-item ids of the AMDGPU usage document of LLVM; register
//! fields of `gc_9_0_sh_mask.h` and `gc_9_4_2_sh_mask.h`.

use gfx9_isa::inst::Asic as Isa;
use gfx9_isa::wave::{reg, status, Wave};

use super::sync::Share;
use super::units::{Demand, Seat, UnitMask};

/// COMPUTE_PGM_RSRC2 and what follows from it.
mod rsrc2 {
    pub const SCRATCH_EN: u32 = 1;
    pub const TGID_X: u32 = 1 << 7;
    pub const TG_SIZE: u32 = 1 << 10;
}

/// STATUS.TRAP_EN.
const STATUS_TRAP_EN: u32 = 1 << 6;
/// STATUS.VALID.
const STATUS_VALID: u32 = 1 << 16;
/// STATUS.ALLOW_REPLAY.
const STATUS_ALLOW_REPLAY: u32 = 1 << 22;
/// The most user SGPRs that the command processor delivers.
pub const USER_SGPRS: usize = 16;
/// Lanes of a wave.
const LANES: u32 = 64;
/// Registers of one kind that instructions can name.
const FILE: u32 = 256;

/// Private memory of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scratch {
    /// Bytes of a wave's slot.
    pub wave: u64,
    /// Slots.
    pub slots: u32,
}

/// What all waves of a dispatch have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Instruction set.
    pub isa: Isa,
    /// Address space.
    pub vmid: u8,
    /// Doorbell of the queue in its slice, as GET_DOORBELL tells.
    pub doorbell: u32,
    /// Which hardware queue, as HW_ID has it: QUEUE, PIPE and ME.
    pub queue: (u8, u8, u8),
    /// Address of the first instruction.
    pub entry: u64,
    /// COMPUTE_PGM_RSRC1 to 3.
    pub rsrc: [u32; 3],
    /// User SGPRs.
    pub user: Vec<u32>,
    /// Id of the first group.
    pub start: [u32; 3],
    /// Groups.
    pub groups: [u32; 3],
    /// Work-items of a group.
    pub size: [u32; 3],
    /// Work-items of the last group of each dimension.
    pub last: [u32; 3],
    /// Bytes of LDS of a group.
    pub lds: u32,
    /// Private memory; `None` if no wave uses any.
    pub scratch: Option<Scratch>,
    /// Exceptions and `s_trap` enter the trap handler.
    pub traps: bool,
    /// TBA and TMA.
    pub trap_base: [u32; 4],
    /// SH_MEM_BASES.
    pub apertures: u32,
    /// SH_MEM_CONFIG permits faults to retry.
    pub retries: bool,
    /// Index of the packet.
    pub packet: u64,
    /// Units that the queue may use.
    pub units: UnitMask,
    /// Priority of the queue; higher ones launch first.
    pub priority: (u32, u32),
    /// Its resources of global wave sync.
    pub sync: Share,
}

impl Kernel {
    /// Number of groups; `None` if nobody could ever count them.
    pub fn count(&self) -> Option<u64> {
        let [x, y, z] = self.groups.map(u64::from);
        x.checked_mul(y)?.checked_mul(z)
    }

    /// Id of a group by its number, x first.
    pub fn id(&self, number: u64) -> [u32; 3] {
        let [x, y, _] = self.groups.map(|n| u64::from(n).max(1));
        let at = [number % x, number / x % y, number / x / y];
        // Each is less than the groups of its dimension.
        std::array::from_fn(|i| self.start[i].wrapping_add(at[i] as u32))
    }

    /// Work-items of a group in each dimension.
    fn extent(&self, id: [u32; 3]) -> [u32; 3] {
        std::array::from_fn(|i| {
            let at = id[i].wrapping_sub(self.start[i]);
            if at.wrapping_add(1) == self.groups[i] {
                self.last[i]
            } else {
                self.size[i]
            }
        })
    }

    /// Waves of a whole group.
    pub fn waves(&self) -> u32 {
        let items: u64 = self.size.iter().map(|&n| u64::from(n)).product();
        // At most 1024 work-items, which was checked.
        (items.div_ceil(u64::from(LANES)) as u32).max(1)
    }

    /// Allocated vector registers: ArchVGPRs and AccVGPRs.
    pub fn vgprs(&self) -> (u32, u32) {
        let field = (self.rsrc[0] & 0x3F) + 1;
        if self.isa == Isa::Gfx906 {
            return (field * 4, 0);
        }
        let total = field * 8;
        let arch = (((self.rsrc[2] & 0x3F) + 1) * 4).min(total).min(FILE);
        (arch, (total - arch).min(FILE))
    }

    /// Allocated scalar registers.
    pub fn sgprs(&self) -> u32 {
        ((self.rsrc[0] >> 6 & 0xF) / 2 + 1) * 16
    }

    /// What a whole group needs of a unit.
    pub fn demand(&self) -> Demand {
        let granule = if self.isa == Isa::Gfx906 { 4 } else { 8 };
        Demand {
            waves: self.waves(),
            vgprs: ((self.rsrc[0] & 0x3F) + 1) * granule,
            sgprs: self.sgprs(),
            lds: self.lds.next_multiple_of(512),
        }
    }

    /// The waves of a group at its seats; `slots` are their slots of private memory.
    pub fn group(&self, id: [u32; 3], seats: &[Seat], slots: &[u32]) -> Vec<Wave> {
        let extent = self.extent(id);
        let items: u32 = extent.iter().product();
        let count = items.div_ceil(LANES).max(1);
        (0..count)
            .map(|number| {
                let at = number as usize;
                let seat = seats.get(at).copied().unwrap_or_default();
                let slot = slots.get(at).copied().unwrap_or(0);
                self.wave(id, extent, (number, count), seat, slot)
            })
            .collect()
    }

    /// HW_ID of a wave at a seat.
    pub fn hw_id(&self, seat: Seat) -> u32 {
        let (queue, pipe, me) = self.queue;
        u32::from(seat.slot & 0xF)
            | u32::from(seat.simd & 3) << 4
            | u32::from(pipe & 3) << 6
            | u32::from(seat.unit & 0xF) << 8
            | u32::from(seat.engine & 7) << 13
            | u32::from(self.vmid & 0xF) << 20
            | u32::from(queue & 7) << 24
            | u32::from(me & 3) << 30
    }

    fn gpr_alloc(&self) -> u32 {
        let (arch, _) = self.vgprs();
        let (vgprs, sgprs) = (self.rsrc[0] & 0x3F, self.sgprs() / 16 - 1);
        match self.isa {
            Isa::Gfx906 => vgprs << 8 | sgprs << 24,
            Isa::Gfx90a | Isa::Gfx942 => vgprs << 6 | (arch / 4 - 1) << 12 | sgprs << 24,
        }
    }

    fn wave(
        &self,
        id: [u32; 3],
        extent: [u32; 3],
        (number, count): (u32, u32),
        seat: Seat,
        slot: u32,
    ) -> Wave {
        let [rsrc1, rsrc2, _] = self.rsrc;
        let (arch, acc) = self.vgprs();
        let mut wave = Wave::with_registers(self.isa, arch as usize, acc as usize);
        wave.pc = self.entry;
        wave.mode = rsrc1 >> 12 & 0xFF
            | (rsrc1 >> 21 & 1) << 8
            | (rsrc1 >> 23 & 1) << 9
            | (rsrc1 >> 22 & 1) << 11
            | (rsrc2 >> 24 & 0x7F) << 12
            | (rsrc2 >> 13 & 3) << 19
            | (rsrc1 >> 26 & 1) << 23;
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        wave.status = STATUS_VALID
            | flag(rsrc1 >> 20 & 1 != 0, status::PRIV)
            | flag(self.traps, STATUS_TRAP_EN)
            | flag(count > 1, status::IN_TG)
            | flag(self.retries, STATUS_ALLOW_REPLAY);
        wave.hw_id = self.hw_id(seat);
        wave.gpr_alloc = self.gpr_alloc();
        wave.lds_alloc = self.lds.div_ceil(256) << 12;
        wave.sh_mem_bases = self.apertures;
        wave.trap_base = self.trap_base;
        let items: u32 = extent.iter().product();
        let first = number * LANES;
        let lanes = items.saturating_sub(first).min(LANES);
        wave.set_pair(reg::EXEC, u64::MAX.checked_shr(64 - lanes).unwrap_or(0));
        self.scalars(&mut wave, id, (number, count), slot);
        self.vectors(&mut wave, extent, first, lanes);
        wave
    }

    fn scalars(&self, wave: &mut Wave, id: [u32; 3], (number, count): (u32, u32), slot: u32) {
        let rsrc2 = self.rsrc[1];
        let user = (rsrc2 >> 1 & 0x1F) as usize;
        for (at, value) in self.user.iter().take(user.min(USER_SGPRS)).enumerate() {
            wave.sgpr[at] = *value;
        }
        let mut at = user;
        let mut put = |on: bool, value: u32| {
            if on {
                wave.sgpr[at] = value;
                at += 1;
            }
        };
        for (i, &value) in id.iter().enumerate() {
            put(rsrc2 & rsrc2::TGID_X << i != 0, value);
        }
        let info = count | if number == 0 { 1 << 31 } else { 0 };
        put(rsrc2 & rsrc2::TG_SIZE != 0, info);
        let offset = self.scratch.map_or(0, |s| s.wave * u64::from(slot));
        // All of the queue's private memory is less than 4 GiB for the SGPR that tells of it.
        put(rsrc2 & rsrc2::SCRATCH_EN != 0, offset as u32);
        if self.traps {
            let first = usize::from(reg::TTMP0);
            wave.sgpr[first + 6] = self.packet as u32 & 0x1FF_FFFF;
            wave.sgpr[first + 8..first + 11].copy_from_slice(&id);
            let no_scratch = u32::from(self.scratch.is_none()) << 6;
            wave.sgpr[first + 11] = number & 0x3F | no_scratch;
        }
    }

    fn vectors(&self, wave: &mut Wave, [ex, ey, _]: [u32; 3], first: u32, lanes: u32) {
        let components = (self.rsrc[1] >> 11 & 3).min(2) as usize;
        for lane in 0..lanes {
            let flat = first + lane;
            let (ex, ey) = (ex.max(1), ey.max(1));
            let ids = [flat % ex, flat / ex % ey, flat / ex / ey];
            let asked = |i: usize| if i <= components { ids[i] } else { 0 };
            if self.isa == Isa::Gfx906 {
                for (number, id) in ids.iter().enumerate().take(components + 1) {
                    if let Some(row) = wave.vgpr_mut(number, false) {
                        row[lane as usize] = *id;
                    }
                }
            } else if let Some(row) = wave.vgpr_mut(0, false) {
                row[lane as usize] = asked(0) | asked(1) << 10 | asked(2) << 20;
            }
        }
    }
}
