// SPDX-License-Identifier: GPL-2.0

//! MAP_QUEUES and UNMAP_QUEUES.

use core::fmt;

use super::super::bits::fields;
use super::super::doorbell::DoorbellOffset;
use super::super::num;
use super::super::regs::hqd::Slot;
use super::{
    aligned,
    narrow,
    op,
    EncodeError,
    Header, //
};

fields! {
    /// MAP_QUEUES dword 1.
    pub(crate) struct MapQueuesDw1 {
        /// 0 = ENGINE_SEL alone, 1 = SDMA 0 to 7, 2 = SDMA 8 to 15.
        EXTENDED_ENGINE_SEL [3:2];
        /// 0 = the named slot, 1 = the scheduler chooses.
        QUEUE_SEL [5:4];
        /// VMID, with a named slot.
        VMID [11:8];
        /// The queue uses global wave sync.
        GWS_CONTROL_QUEUE [12:12];
        /// Slot: queue.
        QUEUE [15:13];
        /// Slot: pipe.
        PIPE [17:16];
        /// Slot: micro engine less one.
        ME [18:18];
        /// See [`QueueClass`].
        QUEUE_TYPE [23:21];
        /// Number format of the allocation.
        ALLOC_FORMAT [25:24];
        /// 0 compute, 1 HIQ, 2 and 3 SDMA 0 and 1, 4 graphics.
        ENGINE_SEL [28:26];
        /// Queues in the packet.
        NUM_QUEUES [31:29];
    }
}

/// Engine that runs a queue of a run list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// MEC.
    Compute,
    /// SDMA engine, 0 to 15.
    Sdma(u8),
}

impl Engine {
    /// Extended and legacy engine selection (`pm_map_queues_v9`).
    ///
    /// Engines 0 and 1 use the legacy numbers 2 and 3; the others the extended selection.
    fn select(self) -> Result<[u32; 2], EncodeError> {
        match self {
            Self::Compute => Ok([0, 0]),
            Self::Sdma(engine @ 0..=1) => Ok([0, 2 + u32::from(engine)]),
            Self::Sdma(engine @ 2..=7) => Ok([1, u32::from(engine)]),
            Self::Sdma(engine) => {
                narrow("sdma engine", u64::from(engine), 4)?;
                Ok([2, u32::from(engine) % 8])
            }
        }
    }

    /// The inverse of `select`.
    const fn from_select(extended: u32, legacy: u32) -> Option<Self> {
        // CAST: The field has 3 bits.
        let low = legacy as u8 & 7;
        match (extended, legacy) {
            (0, 0) => Some(Self::Compute),
            (0, 2 | 3) => Some(Self::Sdma(low - 2)),
            (1, 0..=7) => Some(Self::Sdma(low)),
            (2, 0..=7) => Some(Self::Sdma(low + 8)),
            _ => None,
        }
    }
}

/// Scheduling class of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueClass {
    /// Ordinary queue.
    Normal,
    /// Survives an UNMAP_QUEUES of all non-static queues; compute queues of a process with a debug interface queue.
    Static,
}

/// Where a queue goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapTarget {
    /// In a run list: the scheduler chooses slot and VMID.
    Scheduled {
        /// Engine.
        engine: Engine,
        /// Scheduling class; SDMA queues are always normal.
        class: QueueClass,
        /// Uses global wave sync.
        gws: bool,
    },
    /// On the KIQ: an ordinary compute queue in a named slot.
    KiqCompute {
        /// Slot.
        slot: Slot,
        /// VMID, 4 bits.
        vmid: u32,
    },
    /// On the KIQ: the HIQ, in a named slot and VMID 0.
    KiqHiq {
        /// Slot.
        slot: Slot,
    },
}

/// MAP_QUEUES, 7 dwords: connects one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapQueues {
    /// Where it goes.
    pub(crate) target: MapTarget,
    /// Its doorbell.
    pub(crate) doorbell: DoorbellOffset,
    /// Address of its MQD in VMID 0, a multiple of 4.
    pub(crate) mqd: u64,
    /// Address of its write pointer in its own VMID, a multiple of 4.
    pub(crate) wptr: u64,
}

impl MapQueues {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 7;

    /// The packet.
    ///
    /// # Errors
    ///
    /// `Misaligned` for `mqd` or `wptr`; `Overflow` for an SDMA engine above 15 or a VMID above 15.
    pub(crate) fn encode(&self) -> Result<[u32; Self::DWORDS], EncodeError> {
        let mqd = aligned("mqd", self.mqd, 4)?;
        let wptr = aligned("wptr", self.wptr, 4)?;
        let base = MapQueuesDw1::new().with(MapQueuesDw1::NUM_QUEUES, 1);
        let dw1 = match self.target {
            MapTarget::Scheduled { engine, class, gws } => {
                let [extended, legacy] = engine.select()?;
                let is_static = class == QueueClass::Static && engine == Engine::Compute;
                base.with(MapQueuesDw1::QUEUE_SEL, 1)
                    .with(MapQueuesDw1::EXTENDED_ENGINE_SEL, extended)
                    .with(MapQueuesDw1::ENGINE_SEL, legacy)
                    .with(MapQueuesDw1::QUEUE_TYPE, if is_static { 2 } else { 0 })
                    .with_flag(MapQueuesDw1::GWS_CONTROL_QUEUE, gws)
            }
            MapTarget::KiqCompute { slot, vmid } => {
                in_slot(base, slot).try_with(MapQueuesDw1::VMID, vmid)?
            }
            MapTarget::KiqHiq { slot } => in_slot(base, slot).with(MapQueuesDw1::ENGINE_SEL, 1),
        };
        Ok([
            Header::packet(op::MAP_QUEUES, Self::DWORDS).raw(),
            dw1.raw(),
            self.doorbell.field(),
            num::lo32(mqd),
            num::hi32(mqd),
            num::lo32(wptr),
            num::hi32(wptr),
        ])
    }

    /// The packet's meaning; `None` if it uses what this driver never does.
    pub(crate) const fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        let dw1 = MapQueuesDw1::from_raw(dw[1]);
        let Some(doorbell) = DoorbellOffset::from_dword(dw[2] >> 2) else {
            return None;
        };
        if dw1.undeclared() != 0
            || dw1.is_set(MapQueuesDw1::ALLOC_FORMAT)
            || dw1.get(MapQueuesDw1::NUM_QUEUES) != 1
            || dw[2] & 3 != 0
            || (dw[3] | dw[5]) & 3 != 0
        {
            return None;
        }
        let Some(target) = target_of(dw1) else {
            return None;
        };
        Some(Self {
            target,
            doorbell,
            mqd: num::join(dw[3], dw[4]),
            wptr: num::join(dw[5], dw[6]),
        })
    }
}

/// `dw1` with the slot's coordinates.
const fn in_slot(dw1: MapQueuesDw1, slot: Slot) -> MapQueuesDw1 {
    dw1.with(MapQueuesDw1::QUEUE, slot.queue())
        .with(MapQueuesDw1::PIPE, slot.pipe())
        .with(MapQueuesDw1::ME, slot.me() - 1)
}

/// Target that dword 1 names.
const fn target_of(dw1: MapQueuesDw1) -> Option<MapTarget> {
    let engine_sel = dw1.get(MapQueuesDw1::ENGINE_SEL);
    let extended = dw1.get(MapQueuesDw1::EXTENDED_ENGINE_SEL);
    let class = match dw1.get(MapQueuesDw1::QUEUE_TYPE) {
        0 => QueueClass::Normal,
        2 => QueueClass::Static,
        _ => return None,
    };
    // CAST: The fields have 1, 2 and 3 bits.
    let slot = match Slot::new(
        dw1.get(MapQueuesDw1::ME) as u8 + 1,
        dw1.get(MapQueuesDw1::PIPE) as u8,
        dw1.get(MapQueuesDw1::QUEUE) as u8,
    ) {
        Some(slot) => slot,
        None => return None,
    };
    let vmid = dw1.get(MapQueuesDw1::VMID);
    let gws = dw1.is_set(MapQueuesDw1::GWS_CONTROL_QUEUE);
    match dw1.get(MapQueuesDw1::QUEUE_SEL) {
        1 if slot.bit() == 0 && vmid == 0 => match Engine::from_select(extended, engine_sel) {
            Some(Engine::Sdma(_)) if matches!(class, QueueClass::Static) => None,
            Some(engine) => Some(MapTarget::Scheduled { engine, class, gws }),
            None => None,
        },
        0 if extended == 0 && !gws && matches!(class, QueueClass::Normal) => match engine_sel {
            0 => Some(MapTarget::KiqCompute { slot, vmid }),
            1 if vmid == 0 => Some(MapTarget::KiqHiq { slot }),
            _ => None,
        },
        _ => None,
    }
}

impl fmt::Display for MapQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MAP_QUEUES ")?;
        match self.target {
            MapTarget::Scheduled { engine, class, gws } => {
                write!(f, "{engine:?} {class:?}{}", if gws { " gws" } else { "" })?;
            }
            MapTarget::KiqCompute { slot, vmid } => write!(
                f,
                "compute at me {} pipe {} queue {} vmid {vmid}",
                slot.me(),
                slot.pipe(),
                slot.queue()
            )?,
            MapTarget::KiqHiq { slot } => write!(
                f,
                "HIQ at me {} pipe {} queue {}",
                slot.me(),
                slot.pipe(),
                slot.queue()
            )?,
        }
        write!(
            f,
            " doorbell {:#x} mqd {:#x} wptr {:#x}",
            self.doorbell.byte(),
            self.mqd,
            self.wptr
        )
    }
}

/// What happens to the queues that UNMAP_QUEUES selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnmapAction {
    /// Save or drain running waves, write the state back, free the slot.
    Preempt,
    /// Kill running waves, write the state back, free the slot.
    Reset,
    /// As preempt, and do not schedule the process any more; exact meaning not verified.
    DisableProcess,
    /// Preempt but keep the slot (KIQ), with the ring's write pointer.
    PreemptNoUnmap {
        /// Write pointer in dwords.
        rb_wptr: u32,
    },
}

/// One to four doorbells.
///
/// # Invariants
///
/// `len` is 1 to 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoorbellList {
    items: [Option<DoorbellOffset>; 4],
    len: usize,
}

impl DoorbellList {
    /// A list of one doorbell.
    pub(crate) const fn one(doorbell: DoorbellOffset) -> Self {
        // INVARIANT: The length is 1.
        Self {
            items: [Some(doorbell), None, None, None],
            len: 1,
        }
    }

    /// A list of up to four doorbells; `None` if empty or longer.
    pub(crate) fn new(doorbells: &[DoorbellOffset]) -> Option<Self> {
        if doorbells.is_empty() || doorbells.len() > 4 {
            return None;
        }
        let mut items = [None; 4];
        for (item, doorbell) in items.iter_mut().zip(doorbells) {
            *item = Some(*doorbell);
        }
        // INVARIANT: Checked in the line above.
        Some(Self {
            items,
            len: doorbells.len(),
        })
    }

    /// The doorbells.
    pub(crate) fn iter(&self) -> impl Iterator<Item = DoorbellOffset> + '_ {
        self.items.iter().flatten().copied()
    }
}

/// Which queues UNMAP_QUEUES selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnmapFilter {
    /// Those with the given doorbells.
    Doorbells(DoorbellList),
    /// Those of one PASID.
    Pasid(u16),
    /// All of the run list, static ones and SDMA included.
    All,
    /// All but static ones; the normal update of a run list.
    NonStatic,
}

fields! {
    /// UNMAP_QUEUES dword 1.
    pub(crate) struct UnmapQueuesDw1 {
        /// See [`UnmapAction`].
        ACTION [1:0];
        /// 0 for all supported SDMA generations.
        EXTENDED_ENGINE_SEL [3:2];
        /// See [`UnmapFilter`].
        QUEUE_SEL [5:4];
        /// 0 compute, which covers SDMA queues of the run list too.
        ENGINE_SEL [28:26];
        /// Doorbells in the packet.
        NUM_QUEUES [31:29];
    }
}

/// UNMAP_QUEUES, 6 dwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnmapQueues {
    /// What happens.
    pub(crate) action: UnmapAction,
    /// To which queues.
    pub(crate) filter: UnmapFilter,
}

impl UnmapQueues {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 6;

    /// The packet.
    pub(crate) fn encode(&self) -> [u32; Self::DWORDS] {
        let mut out = [0; Self::DWORDS];
        let mut dw1 = UnmapQueuesDw1::new();
        match self.filter {
            UnmapFilter::Doorbells(list) => {
                dw1 = dw1.with(UnmapQueuesDw1::NUM_QUEUES, num::len32(list.len));
                for (word, doorbell) in out.iter_mut().skip(2).zip(list.iter()) {
                    *word = doorbell.field();
                }
            }
            UnmapFilter::Pasid(pasid) => {
                dw1 = dw1.with(UnmapQueuesDw1::QUEUE_SEL, 1);
                out[2] = u32::from(pasid);
            }
            UnmapFilter::All => dw1 = dw1.with(UnmapQueuesDw1::QUEUE_SEL, 2),
            UnmapFilter::NonStatic => dw1 = dw1.with(UnmapQueuesDw1::QUEUE_SEL, 3),
        }
        let action = match self.action {
            UnmapAction::Preempt => 0,
            UnmapAction::Reset => 1,
            UnmapAction::DisableProcess => 2,
            UnmapAction::PreemptNoUnmap { rb_wptr } => {
                // The word is the second doorbell of the other actions.
                out[3] = rb_wptr;
                3
            }
        };
        out[0] = Header::packet(op::UNMAP_QUEUES, Self::DWORDS).raw();
        out[1] = dw1.with(UnmapQueuesDw1::ACTION, action).raw();
        out
    }

    /// The packet's meaning; `None` if it uses what this driver never does.
    pub(crate) fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        let dw1 = UnmapQueuesDw1::from_raw(dw[1]);
        if dw1.undeclared() != 0
            || dw1.is_set(UnmapQueuesDw1::EXTENDED_ENGINE_SEL)
            || dw1.is_set(UnmapQueuesDw1::ENGINE_SEL)
        {
            return None;
        }
        let action = match dw1.get(UnmapQueuesDw1::ACTION) {
            0 => UnmapAction::Preempt,
            1 => UnmapAction::Reset,
            2 => UnmapAction::DisableProcess,
            _ => UnmapAction::PreemptNoUnmap { rb_wptr: dw[3] },
        };
        let count = num::index(dw1.get(UnmapQueuesDw1::NUM_QUEUES));
        let no_unmap = matches!(action, UnmapAction::PreemptNoUnmap { .. });
        let filter = match dw1.get(UnmapQueuesDw1::QUEUE_SEL) {
            0 => {
                if no_unmap && count != 1 {
                    return None;
                }
                let mut items = [None; 4];
                for (item, word) in items.iter_mut().zip(dw.iter().skip(2)).take(count) {
                    if word & 3 != 0 {
                        return None;
                    }
                    *item = Some(DoorbellOffset::from_dword(word >> 2)?);
                }
                if count == 0 || count > 4 {
                    return None;
                }
                // INVARIANT: Checked in the line above.
                UnmapFilter::Doorbells(DoorbellList { items, len: count })
            }
            1 => UnmapFilter::Pasid(u16::try_from(dw[2]).ok()?),
            2 => UnmapFilter::All,
            _ => UnmapFilter::NonStatic,
        };
        if !matches!(filter, UnmapFilter::Doorbells(_)) && count != 0 {
            return None;
        }
        Some(Self { action, filter })
    }
}

impl fmt::Display for UnmapQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UNMAP_QUEUES {:?} ", self.action)?;
        match self.filter {
            UnmapFilter::Doorbells(list) => {
                write!(f, "doorbells")?;
                for doorbell in list.iter() {
                    write!(f, " {:#x}", doorbell.byte())?;
                }
                Ok(())
            }
            UnmapFilter::Pasid(pasid) => write!(f, "pasid {pasid}"),
            UnmapFilter::All => write!(f, "all"),
            UnmapFilter::NonStatic => write!(f, "all non-static"),
        }
    }
}
