// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Register file of a VM hub.  Offsets and fields: gc_9_0 and mmhub headers; reset values: gc_9_0_default.h.

use std::sync::Arc;

use super::range::{self, Range};
use super::space::{Setup, Space, Spaces, Ticket};
use super::tlb::Levels;
use super::HubId;

/// Offsets from `HubLayout::vm_base`.
pub mod vm {
    /// VM_L2_CNTL2.
    pub const L2_CNTL2: u32 = 0x01;
    /// VM_L2_PROTECTION_FAULT_CNTL.
    pub const FAULT_CNTL: u32 = 0x07;
    /// VM_L2_PROTECTION_FAULT_CNTL2.
    pub const FAULT_CNTL2: u32 = 0x08;
    /// VM_L2_PROTECTION_FAULT_STATUS.
    pub const FAULT_STATUS: u32 = 0x0B;
    /// VM_L2_PROTECTION_FAULT_ADDR_LO32.
    pub const FAULT_ADDR_LO: u32 = 0x0C;
    /// VM_L2_PROTECTION_FAULT_ADDR_HI32.
    pub const FAULT_ADDR_HI: u32 = 0x0D;
    /// VM_CONTEXT0_CNTL; one per VMID.
    pub const CONTEXT_CNTL: u32 = 0x40;
    /// VM_CONTEXTS_DISABLE.
    pub const CONTEXTS_DISABLE: u32 = 0x50;
    /// VM_INVALIDATE_ENG0_SEM; one per engine.
    pub const INV_SEM: u32 = 0x51;
    /// VM_INVALIDATE_ENG0_REQ.
    pub const INV_REQ: u32 = 0x63;
    /// VM_INVALIDATE_ENG0_ACK.
    pub const INV_ACK: u32 = 0x75;
    /// VM_INVALIDATE_ENG0_ADDR_RANGE_LO32; lo, hi per engine.
    pub const INV_RANGE: u32 = 0x87;
    /// VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32; lo, hi per VMID.
    pub const PT_BASE: u32 = 0xAB;
    /// VM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32.
    pub const PT_START: u32 = 0xCB;
    /// VM_CONTEXT0_PAGE_TABLE_END_ADDR_LO32.
    pub const PT_END: u32 = 0xEB;
    /// Registers in this part.
    pub const COUNT: u32 = 0x10B;
}

/// Offsets from `HubLayout::mc_base`.
pub mod mc {
    /// MC_VM_FB_OFFSET.
    pub const FB_OFFSET: u32 = 0x00;
    /// MC_VM_FB_LOCATION_BASE.
    pub const FB_BASE: u32 = 0x15;
    /// MC_VM_FB_LOCATION_TOP.
    pub const FB_TOP: u32 = 0x16;
    /// MC_VM_AGP_TOP.
    pub const AGP_TOP: u32 = 0x17;
    /// MC_VM_AGP_BOT.
    pub const AGP_BOT: u32 = 0x18;
    /// MC_VM_AGP_BASE.
    pub const AGP_BASE: u32 = 0x19;
    /// MC_VM_SYSTEM_APERTURE_LOW_ADDR.
    pub const SYS_LOW: u32 = 0x1A;
    /// MC_VM_SYSTEM_APERTURE_HIGH_ADDR.
    pub const SYS_HIGH: u32 = 0x1B;
    /// MC_VM_MX_L1_TLB_CNTL.
    pub const L1_TLB_CNTL: u32 = 0x1C;
    /// Registers in this part.
    pub const COUNT: u32 = 0x1D;
}

/// Number of invalidation engines.
pub const ENGINES: u32 = 18;
/// Number of address spaces.
pub const VMIDS: usize = 16;

/// Fields of CONTEXTn_CNTL.
pub mod context {
    /// Context enabled.
    pub const ENABLE: u32 = 1 << 0;
    /// Invalid pages make accesses retry.
    pub const RETRY: u32 = 1 << 7;
    /// Interrupt on a range fault.
    pub const INT_RANGE: u32 = 1 << 9;
    /// Interrupt on an invalid PDE.
    pub const INT_PDE0: u32 = 1 << 13;
    /// Interrupt on an invalid PTE.
    pub const INT_VALID: u32 = 1 << 15;
    /// Interrupt on a read without permission.
    pub const INT_READ: u32 = 1 << 17;
    /// Interrupt on a write without permission.
    pub const INT_WRITE: u32 = 1 << 19;
    /// Interrupt on an execute without permission.
    pub const INT_EXECUTE: u32 = 1 << 21;
}

/// FAULT_CNTL2: retry faults raise interrupts.
pub const ENABLE_RETRY_FAULT_INTERRUPT: u32 = 1 << 19;

/// Decoded page-table set-up of one VMID.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Context {
    /// Translation is on.
    pub enabled: bool,
    /// Levels above the leaf level, 0..=3.
    pub depth: u32,
    /// log2 of leaf-level pages per leaf entry (9: the leaf entry covers 2 MiB).
    pub block_size: u32,
    /// Retry on invalid pages.
    pub retry: bool,
    /// Entry-like root pointer.
    pub base: u64,
    /// First page number.
    pub start: u64,
    /// Last page number.
    pub end: u64,
    /// Raw CNTL.
    pub cntl: u32,
}

/// One hub.
#[derive(Debug)]
pub struct Hub {
    vm: [u32; vm::COUNT as usize],
    mc: [u32; mc::COUNT as usize],
    id: HubId,
    spaces: Arc<Spaces>,
    fault_latched: bool,
    /// How often each engine's semaphore was asked for since it was taken.
    sem_refusals: [u32; ENGINES as usize],
    /// What each engine is working on.
    requests: [Option<Request>; ENGINES as usize],
}

/// An invalidation that is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Address spaces, a bit per VMID.
    pub vmids: u16,
    /// From which caches.
    pub levels: Levels,
    /// Which part of the address spaces.
    pub range: Range,
    /// Clears the fault status as well.
    pub clear_fault: bool,
    /// FLUSH_TYPE: 0 legacy, 1 lightweight, 2 heavyweight.
    pub kind: u32,
    /// When it is carried out; `None` for one that is never answered.
    pub due: Option<u64>,
    /// It has been carried out, and is acknowledged when all executors have seen it.
    pub carried_out: Option<Ticket>,
}

/// How long until the executors are asked again whether they have seen an invalidation, in nanoseconds.
pub const EXECUTORS_NS: u64 = 10_000;

fn at(regs: &[u32], i: u32) -> u32 {
    regs.get(i as usize).copied().unwrap_or(0)
}

fn put(regs: &mut [u32], i: u32, v: u32) {
    if let Some(r) = regs.get_mut(i as usize) {
        *r = v;
    }
}

/// What a register write asks the device to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HubEffect {
    /// Nothing beyond storage.
    None,
    /// Translations of these VMIDs were dropped from these caches.
    Invalidated(u16, Levels),
    /// An invalidation engine has got a request.
    Requested {
        /// Which.
        engine: usize,
        /// What it is to do, in the whole of the address spaces; the device sets when, and in which part.
        request: Request,
        /// It had not acknowledged the request before.
        busy: bool,
    },
}

/// Reads in a row that find a semaphore taken before it counts as never released.  It is held for the time of one
/// invalidation, a few microseconds.
const SEM_PATIENCE: u32 = 64;

impl Hub {
    /// A hub as the boot firmware leaves it: FB location set, nothing else.
    pub fn new(id: HubId, spaces: Arc<Spaces>, fb_base: u64, vram_size: u64) -> Self {
        let mut hub = Self {
            vm: [0; vm::COUNT as usize],
            mc: [0; mc::COUNT as usize],
            id,
            spaces,
            fault_latched: false,
            sem_refusals: [0; ENGINES as usize],
            requests: [None; ENGINES as usize],
        };
        hub.reset(fb_base, vram_size);
        hub
    }

    /// Power-on values.
    pub fn reset(&mut self, fb_base: u64, vram_size: u64) {
        self.vm = [0; vm::COUNT as usize];
        self.mc = [0; mc::COUNT as usize];
        self.fault_latched = false;
        self.sem_refusals = [0; ENGINES as usize];
        self.requests = [None; ENGINES as usize];
        put(&mut self.vm, 0, 0x0008_0602);
        put(&mut self.vm, 2, 0x8010_0007);
        put(&mut self.vm, 0x17, 0xC1);
        put(&mut self.vm, vm::FAULT_CNTL, 0x3FFF_FFFC);
        put(&mut self.vm, vm::FAULT_CNTL2, 0x000A_0000);
        for v in 0..VMIDS as u32 {
            // Translation comes up disabled although the header's reset value has the interrupt enables set.
            put(&mut self.vm, vm::CONTEXT_CNTL + v, 0x007F_FE80);
        }
        put(&mut self.mc, mc::FB_BASE, (fb_base >> 24) as u32);
        put(
            &mut self.mc,
            mc::FB_TOP,
            ((fb_base + vram_size - 1) >> 24) as u32,
        );
        put(&mut self.mc, mc::L1_TLB_CNTL, 0x0000_2501);
        self.set_up_all();
        // Waves are off the units when the device is reset: nobody has to see it.
        let _ = self.invalidate(u16::MAX);
    }

    /// One of the hub's address spaces.
    pub fn space(&self, vmid: u8) -> &Space {
        self.spaces.space(self.id, vmid)
    }

    /// The registers of a VMID's tables have changed.
    fn set_up(&self, vmid: u8) {
        self.space(vmid).set_up(Setup {
            context: self.context(vmid),
            fb_offset: self.fb_offset(),
        });
    }

    fn set_up_all(&self) {
        for vmid in 0..VMIDS as u8 {
            self.set_up(vmid);
        }
    }

    /// Drops all that is cached for the VMIDs whose bits are set.  It is done when all executors have seen it
    /// ([`Spaces::acknowledged`]): none uses it afterwards.
    #[must_use]
    pub fn invalidate(&self, vmids: u16) -> Ticket {
        self.spaces.invalidate(self.id, vmids, Levels::ALL)
    }

    /// Reads a register of the VM part.
    pub fn read_vm(&mut self, r: u32) -> u32 {
        match r {
            // Reading a semaphore acquires it: the reader sees 1 if it was free.
            r if (vm::INV_SEM..vm::INV_REQ).contains(&r) => {
                let taken = at(&self.vm, r);
                put(&mut self.vm, r, 1);
                if taken != 0 {
                    if let Some(n) = self.sem_refusals.get_mut((r - vm::INV_SEM) as usize) {
                        *n = n.saturating_add(1);
                    }
                }
                1 - taken
            }
            r => at(&self.vm, r),
        }
    }

    /// The engine whose semaphore register was just read, if its holder seems to have forgotten it; told once.
    pub fn forgotten_semaphore(&self, r: u32) -> Option<u32> {
        let engine = r.checked_sub(vm::INV_SEM)?;
        (self.sem_refusals.get(engine as usize) == Some(&SEM_PATIENCE)).then_some(engine)
    }

    /// A context of these VMIDs is on.
    pub fn translates(&self, vmids: u16) -> bool {
        (0..VMIDS as u8).any(|vmid| (vmids >> vmid) & 1 != 0 && self.context(vmid).enabled)
    }

    /// The engine that a write of register `r` starts with a range of addresses that does not cover everything, and
    /// this range.  How a part of the address space is named no source tells, see [`range::Reading`].
    pub fn rangeless_engine(&self, r: u32) -> Option<(u32, [u32; 2])> {
        let engine = r.checked_sub(vm::INV_REQ).filter(|&e| e < ENGINES)?;
        let range = self.address_range(engine);
        (range != [u32::MAX, range::HI5]).then_some((engine, range))
    }

    /// VM_INVALIDATE_ENGn_ADDR_RANGE of an engine: LO32, and the bits of HI32 that there are.
    pub fn address_range(&self, engine: u32) -> [u32; 2] {
        let first = vm::INV_RANGE + 2 * engine;
        [at(&self.vm, first), at(&self.vm, first + 1) & range::HI5]
    }

    /// Hands an engine a request.  It has not been acknowledged before its time.
    pub fn begin_request(&mut self, engine: usize, request: Request) {
        if let Some(slot) = self.requests.get_mut(engine) {
            *slot = Some(request);
        }
    }

    /// When to look at the engines again.
    pub fn next_request(&self, now: u64) -> Option<u64> {
        let next = |r: &Request| match r.carried_out {
            Some(_) => Some(now + EXECUTORS_NS),
            None => r.due,
        };
        self.requests.iter().flatten().filter_map(next).min()
    }

    /// Carries out the requests whose time has come: their translations are dropped.  Completes one that all executors
    /// have seen: the engine acknowledges.
    pub fn end_request(&mut self, now: u64) -> Option<Request> {
        for request in self.requests.iter_mut().flatten() {
            if request.carried_out.is_none() && request.due.is_some_and(|t| t <= now) {
                request.carried_out = Some(self.spaces.invalidate_range(
                    self.id,
                    request.vmids,
                    request.levels,
                    request.range,
                ));
            }
        }
        let seen = |r: &Request| r.carried_out.is_some_and(|t| self.spaces.acknowledged(t));
        let engine = self
            .requests
            .iter()
            .position(|r| r.as_ref().is_some_and(seen))?;
        let request = self.requests.get_mut(engine)?.take()?;
        if request.clear_fault {
            self.clear_fault();
        }
        let ack = vm::INV_ACK + engine as u32;
        put(&mut self.vm, ack, u32::from(request.vmids));
        Some(request)
    }

    /// Reads a register of the MC part.
    pub fn read_mc(&self, r: u32) -> u32 {
        at(&self.mc, r)
    }

    /// Writes a register of the MC part.
    pub fn write_mc(&mut self, r: u32, v: u32) {
        put(&mut self.mc, r, v);
        if r == mc::FB_OFFSET {
            self.set_up_all();
        }
    }

    /// Writes a register of the VM part.
    pub fn write_vm(&mut self, r: u32, v: u32) -> HubEffect {
        match r {
            vm::L2_CNTL2 => {
                put(&mut self.vm, r, v & !3);
                if v & 3 != 0 {
                    let levels = Levels {
                        l1: v & 1 != 0,
                        l2: v & 2 != 0,
                        pdes: if v & 2 != 0 { 7 } else { 0 },
                    };
                    // No register tells when this is done; nobody waits for the executors.
                    let _ = self.spaces.invalidate(self.id, u16::MAX, levels);
                    return HubEffect::Invalidated(0xFFFF, levels);
                }
            }
            vm::FAULT_CNTL => {
                put(&mut self.vm, r, v & !1);
                if v & 1 != 0 {
                    self.clear_fault();
                }
            }
            vm::FAULT_STATUS | vm::FAULT_ADDR_LO | vm::FAULT_ADDR_HI => {}
            r if (vm::INV_SEM..vm::INV_REQ).contains(&r) => {
                put(&mut self.vm, r, v & 1);
                if let Some(n) = self.sem_refusals.get_mut((r - vm::INV_SEM) as usize) {
                    *n = 0;
                }
            }
            r if (vm::INV_REQ..vm::INV_ACK).contains(&r) => {
                put(&mut self.vm, r, v);
                let vmids = v as u16;
                // L2_PTES and L1_PTES select the caches that hold final translations, L2_PDE0..2 directory entries.
                let levels = Levels {
                    l1: v & (1 << 22) != 0,
                    l2: v & (1 << 18) != 0,
                    pdes: (v >> 19) as u8 & 7,
                };
                let engine = (r - vm::INV_REQ) as usize;
                let before = self.requests.get(engine).copied().flatten();
                put(&mut self.vm, vm::INV_ACK + (r - vm::INV_REQ), 0);
                return HubEffect::Requested {
                    engine,
                    request: Request {
                        vmids,
                        levels,
                        range: Range::ALL,
                        clear_fault: v & (1 << 23) != 0,
                        kind: (v >> 16) & 3,
                        due: None,
                        carried_out: None,
                    },
                    busy: before.is_some_and(|r| r.due.is_some()),
                };
            }
            r if (vm::INV_ACK..vm::INV_ACK + ENGINES).contains(&r) => {}
            r => {
                put(&mut self.vm, r, v);
                self.table_register_written(r);
            }
        }
        HubEffect::None
    }

    fn table_register_written(&self, r: u32) {
        let vmids = VMIDS as u32;
        let vmid = match r {
            vm::CONTEXTS_DISABLE => return self.set_up_all(),
            r if (vm::CONTEXT_CNTL..vm::CONTEXT_CNTL + vmids).contains(&r) => r - vm::CONTEXT_CNTL,
            // Low and high word of each VMID: base, first and last page.
            r if (vm::PT_BASE..vm::PT_BASE + 6 * vmids).contains(&r) => {
                (r - vm::PT_BASE) % (2 * vmids) / 2
            }
            _ => return,
        };
        self.set_up(vmid as u8);
    }

    fn clear_fault(&mut self) {
        self.fault_latched = false;
        put(&mut self.vm, vm::FAULT_STATUS, 0);
        put(&mut self.vm, vm::FAULT_ADDR_LO, 0);
        put(&mut self.vm, vm::FAULT_ADDR_HI, 0);
    }

    /// Latches the first fault; later ones only set MORE_FAULTS.
    pub fn latch_fault(&mut self, status: u32, page: u64) {
        if self.fault_latched {
            let s = at(&self.vm, vm::FAULT_STATUS) | 1;
            put(&mut self.vm, vm::FAULT_STATUS, s);
            return;
        }
        self.fault_latched = true;
        put(&mut self.vm, vm::FAULT_STATUS, status);
        put(&mut self.vm, vm::FAULT_ADDR_LO, page as u32);
        put(&mut self.vm, vm::FAULT_ADDR_HI, (page >> 32) as u32 & 0xF);
    }

    /// Whether retry faults raise interrupts.
    pub fn retry_interrupts(&self) -> bool {
        at(&self.vm, vm::FAULT_CNTL2) & ENABLE_RETRY_FAULT_INTERRUPT != 0
    }

    /// Sets the page-table root of a VMID (the scheduler does this for MAP_PROCESS).
    pub fn set_base(&mut self, vmid: u8, base: u64) {
        let i = vm::PT_BASE + 2 * u32::from(vmid & 0xF);
        put(&mut self.vm, i, base as u32);
        put(&mut self.vm, i + 1, (base >> 32) as u32);
        self.set_up(vmid);
    }

    /// The page-table set-up of a VMID.
    pub fn context(&self, vmid: u8) -> Context {
        let v = u32::from(vmid & 0xF);
        let cntl = at(&self.vm, vm::CONTEXT_CNTL + v);
        let pair = |r: u32| {
            u64::from(at(&self.vm, r + 2 * v)) | (u64::from(at(&self.vm, r + 2 * v + 1)) << 32)
        };
        let disabled = (at(&self.vm, vm::CONTEXTS_DISABLE) >> v) & 1 != 0;
        Context {
            enabled: cntl & context::ENABLE != 0 && !disabled,
            depth: (cntl >> 1) & 3,
            block_size: (cntl >> 3) & 0xF,
            retry: cntl & context::RETRY != 0,
            base: pair(vm::PT_BASE),
            start: pair(vm::PT_START) & 0xF_FFFF_FFFF,
            end: pair(vm::PT_END) & 0xF_FFFF_FFFF,
            cntl,
        }
    }

    /// FB base and last byte, as MC addresses.
    pub fn fb(&self) -> (u64, u64) {
        let base = u64::from(at(&self.mc, mc::FB_BASE) & 0xFF_FFFF) << 24;
        let top = (u64::from(at(&self.mc, mc::FB_TOP) & 0xFF_FFFF) << 24) | 0xFF_FFFF;
        (base, top)
    }

    /// What page tables add to a VRAM offset.
    pub fn fb_offset(&self) -> u64 {
        u64::from(at(&self.mc, mc::FB_OFFSET) & 0xFF_FFFF) << 24
    }

    /// AGP window (first byte, last byte, bus base), if it is on.
    pub fn agp(&self) -> Option<(u64, u64, u64)> {
        let bot = u64::from(at(&self.mc, mc::AGP_BOT) & 0xFF_FFFF) << 24;
        let top = (u64::from(at(&self.mc, mc::AGP_TOP) & 0xFF_FFFF) << 24) | 0xFF_FFFF;
        let base = u64::from(at(&self.mc, mc::AGP_BASE) & 0xFF_FFFF) << 24;
        // Both registers zero is the power-on state, not a window of 16 MiB at address 0.
        let on = bot <= top && at(&self.mc, mc::AGP_BOT) | at(&self.mc, mc::AGP_TOP) != 0;
        on.then_some((bot, top, base))
    }

    /// System aperture, first and last byte.
    pub fn system_aperture(&self) -> (u64, u64) {
        let low = u64::from(at(&self.mc, mc::SYS_LOW) & 0x3FFF_FFFF) << 18;
        let high = (u64::from(at(&self.mc, mc::SYS_HIGH) & 0x3FFF_FFFF) << 18) | 0x3_FFFF;
        (low, high)
    }
}
