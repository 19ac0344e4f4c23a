// SPDX-License-Identifier: GPL-2.0

//! Interrupt rings: set-up, and delivery of what the GPU reports.
//!
//! Ring 0 (256 KiB) raises the MSI and has its write pointer written back to memory. Rings 1 and 2
//! (one page) raise nothing; an entry on ring 0 says that they have something. The MSI's thread
//! drains all rings and hands each vector to the [`IrqSink`], which may sleep.
//!
//! How a ring is read without trust in what the device says is in [`cursor`].
//!
//! Lock order: [`Ih::rings`] before [`Ih::sink`]; the sink's own locks come after both. The bank
//! lock of the hardware is innermost.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

pub(crate) mod counters;
pub(crate) mod cursor;

use self::{
    counters::Counters,
    cursor::{
        Cursor,
        Port, //
    }, //
};
use super::{
    access::{
        Access,
        Hw, //
    },
    hub,
    nbio, //
};
use crate::{
    hw::{
        doorbell::DoorbellOffset,
        ih::{
            self,
            Event,
            Fault,
            Hub,
            Pending,
            Vector,
            RING0_BYTES,
            RING12_BYTES,
            VECTOR_BYTES,
            VECTOR_DWORDS, //
        },
        num::{
            hi32,
            index,
            lo32, //
        },
        regs::{
            hub::{
                gfxhub_client,
                FaultStatus,
                HubLayout, //
            },
            osssys::{
                self,
                Chicken,
                IhDoorbell,
                RbCntl,
                RbWptr,
                RetryIntCamCntl,
                RingRegs, //
            }, //
        }, //
    },
    kapi::{
        dma::{
            self,
            DmaBuffer, //
        },
        irq,
        log::dev_limited, //
    },
};

/// A translation fault and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VmFault {
    /// Address space.
    pub(crate) pasid: u16,
    /// VMID that it had.
    pub(crate) vmid: u8,
    /// GPU clock at the fault, 48 bits.
    pub(crate) timestamp: u64,
    /// Address and kind.
    pub(crate) fault: Fault,
}

/// Receives what user queues report. Called from the interrupt thread; may sleep.
pub(crate) trait IrqSink: Send + Sync {
    /// A compute queue of `pasid` finished a packet that carries context id `ctx`.
    fn eop(&self, pasid: u16, ctx: u32);
    /// An SDMA queue of `pasid` executed a TRAP with context id `ctx`.
    fn sdma_trap(&self, pasid: u16, ctx: u32);
    /// A wave of `pasid` sent a message or failed; `data` is the 24-bit word with its encoding in
    /// bits 27 and 26, see [`Ih`].
    fn sq(&self, pasid: u16, data: ih::SqInterrupt);
    /// A queue of `pasid` stopped at a bad packet: doorbell id [9:0], exception code [25:10].
    fn bad_opcode(&self, pasid: u16, ctx0: u32);
    /// An access of `pasid` was refused, or is being retried until this returns and beyond.
    fn vm_fault(&self, fault: &VmFault);
}

/// One ring and the place up to which it was read.
pub(super) struct RingState {
    cursor: Cursor,
    place: RingPlace,
}

/// Where a ring is.
struct RingPlace {
    number: usize,
    regs: RingRegs,
    doorbell: DoorbellOffset,
    memory: DmaBuffer,
}

impl RingState {
    fn new(hw: &Hw, number: u32) -> Result<Self> {
        let bytes = if number == 0 {
            RING0_BYTES
        } else {
            RING12_BYTES
        };
        Ok(Self {
            cursor: Cursor::new(ih::Ring::new(bytes).ok_or(EINVAL)?),
            place: RingPlace {
                number: index(number),
                regs: hw.asic().ih.ring(number).ok_or(ENODEV)?,
                doorbell: hw.asic().doorbell.ih_ring(number),
                memory: DmaBuffer::new(hw.dev(), index(bytes))?,
            },
        })
    }
}

impl RingPlace {
    fn disable(&self, hw: &Hw) {
        hw.modify(self.regs.cntl, |raw| {
            RbCntl::from_raw(raw)
                .with(RbCntl::RB_ENABLE, 0)
                .with(RbCntl::ENABLE_INTR, 0)
                .raw()
        });
        hw.write(self.regs.rptr, 0);
        hw.write(self.regs.wptr, 0);
    }

    fn program(&self, hw: &Hw, ring: ih::Ring, writeback: u64) {
        let bus = self.memory.bus_addr();
        hw.write(self.regs.base, lo32(bus >> 8));
        hw.write(self.regs.base_hi, hi32(bus >> 8) & 0xff);
        hw.modify(self.regs.cntl, |raw| {
            RbCntl::from_raw(raw)
                .with(RbCntl::MC_SPACE, RbCntl::SPACE_BUS)
                .with(RbCntl::WPTR_OVERFLOW_CLEAR, 1)
                .with(RbCntl::WPTR_OVERFLOW_ENABLE, 1)
                .with(RbCntl::RB_SIZE, ring.size_field())
                .with(RbCntl::WPTR_WRITEBACK_ENABLE, 1)
                .with(RbCntl::MC_SNOOP, 1)
                .with(RbCntl::MC_RO, 0)
                .with(RbCntl::MC_VMID, 0)
                .with_flag(RbCntl::RPTR_REARM, self.number == 0)
                .with_flag(RbCntl::RB_FULL_DRAIN_ENABLE, self.number == 1)
                .raw()
        });
        if self.number == 0 {
            hw.write(osssys::IH_RB_WPTR_ADDR_LO, lo32(writeback));
            hw.write(osssys::IH_RB_WPTR_ADDR_HI, hi32(writeback) & 0xffff);
        }
        hw.write(self.regs.wptr, 0);
        hw.write(self.regs.rptr, 0);
        hw.write(
            self.regs.doorbell_rptr,
            IhDoorbell::new()
                .with(IhDoorbell::OFFSET, self.doorbell.dword())
                .with(IhDoorbell::ENABLE, 1)
                .raw(),
        );
    }

    fn enable(&self, hw: &Hw) {
        hw.modify(self.regs.cntl, |raw| {
            RbCntl::from_raw(raw)
                .with(RbCntl::RB_ENABLE, 1)
                .with(RbCntl::RB_GPU_TS_ENABLE, 1)
                .with(RbCntl::WPTR_OVERFLOW_CLEAR, 0)
                .with_flag(RbCntl::ENABLE_INTR, self.number == 0)
                .raw()
        });
        self.clear_overflow(hw);
    }

    /// Pulses the clear bit, so that the next overflow is seen again.
    fn clear_overflow(&self, hw: &Hw) {
        for bit in [1, 0] {
            hw.modify(self.regs.cntl, |raw| {
                RbCntl::from_raw(raw)
                    .with(RbCntl::WPTR_OVERFLOW_CLEAR, bit)
                    .raw()
            });
        }
    }
}

/// A ring and the device behind it.
struct HwPort<'a> {
    hw: &'a Hw,
    place: &'a RingPlace,
    ring: ih::Ring,
    writeback: &'a DmaBuffer,
}

impl Port for HwPort<'_> {
    /// Ring 0's from memory, unless it reports an overflow, which the register must confirm, for it
    /// may have been cleared since.
    fn wptr(&mut self) -> Result<u32> {
        let mut value = None;
        if self.place.number == 0 {
            let written = self.writeback.read32(0)?;
            if !matches!(self.ring.pending(written), Pending::Overflow { .. }) {
                value = Some(written);
            }
        }
        let value = value.unwrap_or_else(|| self.hw.read(self.place.regs.wptr));
        if self.hw.is_lost() {
            return Err(EIO);
        }
        // The vectors were written before the pointer that was just read.
        dma::read_barrier();
        Ok(value)
    }

    fn vector(&mut self, position: u32) -> Result<Vector> {
        let mut dwords = [0; VECTOR_DWORDS];
        self.place
            .memory
            .read_dwords(self.ring.dword_index(position) * 4, &mut dwords)?;
        Ok(Vector::decode(&dwords))
    }

    fn set_rptr(&mut self, position: u32) {
        self.hw.doorbell32(self.place.doorbell.byte(), position);
    }

    fn clear_overflow(&mut self) {
        self.place.clear_overflow(self.hw);
    }
}

/// The interrupt handler of one GPU.
#[pin_data]
pub(crate) struct Ih {
    access: Arc<Access>,
    #[pin]
    rings: Mutex<KVec<RingState>>,
    /// Ring 0's write pointer, as the device reports it.
    writeback: DmaBuffer,
    /// Up to where ring 0 was read, for the watchdog.
    handled: Atomic<u32>,
    /// Interrupts when the last pass began.
    announced: Atomic<i64>,
    #[pin]
    sink: Mutex<Option<Arc<dyn IrqSink>>>,
    counters: Counters,
}

impl Ih {
    /// Allocates the rings.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(access: &Arc<Access>, hw: &Hw) -> Result<Arc<Self>> {
        let mut rings = KVec::new();
        for number in 0..hw.asic().ih.rings {
            rings.push(RingState::new(hw, number)?, GFP_KERNEL)?;
        }
        let writeback = DmaBuffer::new(hw.dev(), dma::PAGE)?;
        Arc::pin_init(
            try_pin_init!(Self {
                access: access.clone(),
                rings <- new_mutex!(rings, "rkfd_ih_rings"),
                writeback,
                handled: Atomic::new(0),
                announced: Atomic::new(0),
                sink <- new_mutex!(None, "rkfd_ih_sink"),
                counters: Counters::default(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Programs the rings and lets them run; the interrupt must be attached before. `dummy_page` is
    /// a page of system memory that the block may read.
    pub(super) fn start(&self, hw: &Hw, dummy_page: u64) {
        let layout = &hw.asic().ih;
        let mut rings = self.rings.lock();
        for ring in rings.iter_mut() {
            ring.place.disable(hw);
            ring.cursor.reset();
        }
        self.handled.store(0, Relaxed);
        nbio::ih_control(hw, dummy_page);
        if layout.set_chicken {
            hw.modify(layout.chicken(), |raw| {
                Chicken::from_raw(raw)
                    .with(Chicken::MC_SPACE_GPA_ENABLE, 1)
                    .raw()
            });
        }
        for ring in rings.iter() {
            ring.place
                .program(hw, ring.cursor.ring(), self.writeback.bus_addr());
        }
        // Repeated retry faults are filtered until the driver releases the entry.
        hw.write(
            osssys::IH_DOORBELL_RETRY_CAM,
            IhDoorbell::new()
                .with(IhDoorbell::OFFSET, hw.asic().doorbell.retry_cam().dword())
                .with(IhDoorbell::ENABLE, 1)
                .raw(),
        );
        hw.modify(layout.retry_int_cam_cntl(), |raw| {
            RetryIntCamCntl::from_raw(raw)
                .with(RetryIntCamCntl::ENABLE, 1)
                .raw()
        });
        for ring in rings.iter() {
            ring.place.enable(hw);
        }
    }

    /// Stops the rings; the interrupt must be detached before.
    pub(super) fn stop(&self, hw: &Hw) {
        let rings = self.rings.lock();
        for ring in rings.iter() {
            ring.place.disable(hw);
        }
        hw.modify(hw.asic().ih.retry_int_cam_cntl(), |raw| {
            RetryIntCamCntl::from_raw(raw)
                .with(RetryIntCamCntl::ENABLE, 0)
                .raw()
        });
    }

    /// Sets or removes who is told.
    ///
    /// When this returns, the previous sink is not called any more.
    pub(crate) fn set_sink(&self, sink: Option<Arc<dyn IrqSink>>) {
        // The ring lock is held during delivery, so taking it waits for a pass to end.
        let rings = self.rings.lock();
        let old = core::mem::replace(&mut *self.sink.lock(), sink);
        drop(rings);
        drop(old);
    }

    /// What was seen so far.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Read positions of the rings, in bytes.
    pub(crate) fn positions(&self) -> [u32; 3] {
        let mut positions = [0; 3];
        for (to, ring) in positions.iter_mut().zip(self.rings.lock().iter()) {
            *to = ring.cursor.position();
        }
        positions
    }

    /// Drains all rings.
    fn drain(&self, hw: &Hw) {
        let mut rings = self.rings.lock();
        let sink = self.sink.lock().clone();
        let interrupts = self.counters.interrupts.get();
        let announced = self.announced.load(Relaxed) != interrupts;
        self.announced.store(interrupts, Relaxed);
        for RingState { cursor, place } in rings.iter_mut() {
            let mut port = HwPort {
                hw,
                place,
                ring: cursor.ring(),
                writeback: &self.writeback,
            };
            let number = place.number;
            let pass = cursor.drain(&mut port, |_, vector| {
                self.deliver(hw, number, vector, sink.as_deref());
            });
            if number == 0 {
                self.handled.store(cursor.position(), Relaxed);
                if let (Ok(pass), false) = (&pass, announced) {
                    self.counters.unannounced.add(pass.vectors);
                }
            }
            self.report(hw, number, cursor.position(), pass);
        }
    }

    /// Counts and logs what a pass met besides vectors.
    fn report(&self, hw: &Hw, ring: usize, position: u32, pass: Result<cursor::Pass>) {
        let pass = match pass {
            Ok(pass) => pass,
            Err(e) => {
                dev_limited!(
                    dev_err,
                    hw.dev(),
                    "interrupt ring {} cannot be read: {:?}\n",
                    ring,
                    e
                );
                return;
            }
        };
        if pass.overflows > 0 {
            self.counters.overflows.inc();
            dev_limited!(
                dev_warn,
                hw.dev(),
                "interrupt ring {} overflowed {} times; read up to {:#x}\n",
                ring,
                pass.overflows,
                position
            );
        }
        if let Some(raw) = pass.bad_pointer {
            self.counters.bad_pointers.inc();
            dev_limited!(
                dev_err,
                hw.dev(),
                "interrupt ring {} reports write pointer {:#x}, read {:#x}\n",
                ring,
                raw,
                position
            );
            // All ones in memory may be the last word of a dying device; the check logs that.
            let _ = hw.check_alive();
        }
    }

    fn deliver(&self, hw: &Hw, ring: usize, vector: &Vector, sink: Option<&dyn IrqSink>) {
        let count = &self.counters;
        if let Some(counter) = count.vectors.get(ring) {
            counter.inc();
        }
        let event = vector.event();
        if let Event::Fault(fault) = event {
            self.deliver_fault(hw, vector, fault, sink);
            return;
        }
        let user = vector.pasid != 0 && hw.asic().owns_vmid(u32::from(vector.vmid));
        let pasid = vector.pasid;
        match event {
            Event::EndOfPipe { context, .. } if user => {
                count.eop.inc();
                // On ASICs whose EOP packets of kernel origin carry context 0, KFD ignores it.
                if let (Some(sink), true) = (sink, context != 0) {
                    sink.eop(pasid, context);
                }
            }
            Event::SdmaTrap { context, .. } if pasid != 0 => {
                count.sdma_trap.inc();
                if let Some(sink) = sink {
                    sink.sdma_trap(pasid, context);
                }
            }
            Event::Sq(data) if user => {
                count.sq.inc();
                if let Some(sink) = sink {
                    sink.sq(pasid, data);
                }
            }
            Event::BadPacket { .. } => {
                count.bad_opcode.inc();
                dev_limited!(
                    dev_info,
                    hw.dev(),
                    "a queue stopped at a bad packet: {}\n",
                    format_args!("{vector}")
                );
                if let (Some(sink), true) = (sink, user) {
                    sink.bad_opcode(pasid, vector.data[0]);
                }
            }
            Event::PrivilegedRegister(_)
            | Event::PrivilegedInstruction(_)
            | Event::SdmaOther { .. } => {
                count.other.inc();
                dev_limited!(
                    dev_info,
                    hw.dev(),
                    "a queue did what it may not: {}\n",
                    format_args!("{vector}")
                );
            }
            Event::SdmaPoison(_) | Event::VmPoison => {
                count.other.inc();
                dev_limited!(
                    dev_err,
                    hw.dev(),
                    "uncorrectable memory error: {}\n",
                    format_args!("{vector}")
                );
            }
            Event::EndOfPipe { .. } | Event::Sq(_) | Event::SdmaTrap { .. } => {
                count.foreign.inc();
            }
            Event::OtherRing(_)
            | Event::KiqFence
            | Event::QueryStatus(_)
            | Event::UnattachedDoorbell
            | Event::Unknown
            | Event::Fault(_) => count.other.inc(),
        }
    }

    fn deliver_fault(&self, hw: &Hw, vector: &Vector, fault: Fault, sink: Option<&dyn IrqSink>) {
        let hub = match fault.hub {
            Hub::Gfx => &hw.asic().gfxhub,
            Hub::Mm => &hw.asic().mmhub,
        };
        if fault.retry {
            self.counters.retry_faults.inc();
        } else {
            self.counters.faults.inc();
            log_fault(hw, hub, vector, &fault);
        }
        if vector.pasid == 0 {
            self.counters.foreign.inc();
        } else if let Some(sink) = sink {
            sink.vm_fault(&VmFault {
                pasid: vector.pasid,
                vmid: vector.vmid,
                timestamp: vector.timestamp,
                fault,
            });
        }
        if fault.retry {
            // The access is replayed by itself; releasing the entry lets it be reported again.
            hw.doorbell32(
                hw.asic().doorbell.retry_cam().byte(),
                u32::from(fault.cam_index),
            );
        }
    }
}

/// Tells of a fault that was not retried, and lets the hub latch the next one.
fn log_fault(hw: &Hw, hub: &HubLayout, vector: &Vector, fault: &Fault) {
    let status = hub::take_fault_status(hw, hub);
    let client = status
        .filter(|_| fault.hub == Hub::Gfx)
        .and_then(|status| gfxhub_client(status.get(FaultStatus::CID)))
        .unwrap_or("unknown client");
    let flag = |on: bool, name: &'static str| if on { name } else { "" };
    let status = status.map_or(0, |status| status.raw());
    let (read, write, execute) = (
        flag(fault.read, "read "),
        flag(fault.write, "write "),
        flag(fault.execute, "execute "),
    );
    let (name, address, pasid, vmid) = (hub.name, fault.address, vector.pasid, vector.vmid);
    if vmid == 0 {
        dev_limited!(
            dev_err,
            hw.dev(),
            "{name} fault at {address:#x} of the kernel: {read}{write}{execute}from {client} (status {status:#010x})\n"
        );
    } else {
        // A user's own mistake, no error of the driver or the device.
        dev_limited!(
            dev_info,
            hw.dev(),
            "{name} fault at {address:#x}: PASID {pasid} VMID {vmid} {read}{write}{execute}from {client} (status {status:#010x})\n"
        );
    }
}

impl irq::Handler for Ih {
    fn interrupt(&self) {
        self.counters.interrupts.inc();
    }

    fn is_overdue(&self) -> bool {
        // All ones and nonsense are for the thread to judge, which has the device at hand.
        self.writeback
            .read32(0)
            .is_ok_and(|wptr| RbWptr::from_raw(wptr).bytes() != self.handled.load(Relaxed))
    }

    fn handle(&self) {
        let Some(hw) = self.access.enter() else {
            return;
        };
        if !hw.is_lost() {
            self.drain(&hw);
        }
    }
}

const _: () = assert!(
    VECTOR_BYTES as usize == VECTOR_DWORDS * 4,
    "a vector is whole dwords"
);
