// SPDX-License-Identifier: GPL-2.0

//! Interrupt rings: set-up, and delivery of what the GPU reports.
//!
//! Ring 0 (256 KiB) raises the MSI and has its write pointer written back to memory. Rings 1 and 2
//! (one page) raise nothing; an entry on ring 0 says that they have something. The MSI's thread
//! drains all rings and hands each vector to the [`IrqSink`], which may sleep.
//!
//! Where a ring is and how it is programmed is in [`ring`], how it is read without trust in what the
//! device says in [`cursor`], and what becomes of a vector in [`deliver`].
//!
//! Lock order: [`Ih::rings`] before [`Ih::sink`]; the locks of the sink and of the copy engine come after both. The bank
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
        Mutex,
        SetOnce, //
    },
};

pub(crate) mod counters;
pub(crate) mod cursor;
mod deliver;
mod ring;

use self::{
    counters::Counters,
    ring::{
        HwPort,
        RingState, //
    }, //
};
use super::{
    access::{
        Access,
        Hw, //
    },
    copy::CopyEngine,
    nbio,
    retry::{
        Cam,
        FaultToken, //
    }, //
};
use crate::{
    hw::{
        ih::{
            self,
            Fault,
            Pending,
            VECTOR_BYTES,
            VECTOR_DWORDS, //
        },
        regs::osssys::{
            self,
            Chicken,
            IhDoorbell,
            RbWptr,
            RetryIntCamCntl, //
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

/// A translation fault and its address space.
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

/// Receives what user queues report. Called from the interrupt thread, or on behalf of it (see
/// [`Gpu::catch_up`](super::Gpu::catch_up)); may sleep.
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
    /// An access was refused, or is being repeated and is not served. Returns whether the receiver calls
    /// [`Gpu::log_fault`](super::Gpu::log_fault) later; otherwise it is logged at once, if it was not repeated.
    fn vm_fault(&self, fault: &VmFault) -> bool;
    /// An access of `pasid` cannot be carried out and is being repeated. It is reported again once `token` is dropped, unless
    /// it could be carried out meanwhile.
    fn vm_retry(&self, fault: &VmFault, token: FaultToken);
    /// A ring overflowed: vectors of any address space may have been lost. Called after those that were not.
    fn overflow(&self);
}

/// Stops the rings of an earlier driver, whose memory is not theirs any more.
///
/// # Errors
///
/// `ENODEV` if the ASIC description names more rings than there are.
pub(super) fn disable(hw: &Hw) -> Result {
    for number in 0..hw.asic().ih.rings {
        ring::disable(hw, &hw.asic().ih.ring(number).ok_or(ENODEV)?);
    }
    Ok(())
}

/// The rings, and whether the device writes to them.
struct Rings {
    list: KVec<RingState>,
    running: bool,
}

/// The interrupt handler of one GPU.
#[pin_data]
pub(crate) struct Ih {
    access: Arc<Access>,
    #[pin]
    rings: Mutex<Rings>,
    /// Ring 0's write pointer, as the device reports it.
    writeback: DmaBuffer,
    /// Up to where ring 0 was read, for the watchdog.
    handled: Atomic<u32>,
    /// Interrupts when the last pass began.
    announced: Atomic<i64>,
    #[pin]
    sink: Mutex<Option<Arc<dyn IrqSink>>>,
    cam: Arc<Cam>,
    /// The engine that has the jobs which the traps of VMID 0 announce.
    copy: SetOnce<Arc<CopyEngine>>,
    counters: Counters,
}

impl Ih {
    /// Allocates the rings.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(access: &Arc<Access>, hw: &Hw) -> Result<Arc<Self>> {
        let mut list = KVec::new();
        for number in 0..hw.asic().ih.rings {
            list.push(RingState::new(hw, number)?, GFP_KERNEL)?;
        }
        let rings = Rings {
            list,
            running: false,
        };
        let writeback = DmaBuffer::new(hw.dev(), dma::PAGE, GFP_KERNEL)?;
        Arc::pin_init(
            try_pin_init!(Self {
                access: access.clone(),
                rings <- new_mutex!(rings, "rkfd_ih_rings"),
                writeback,
                handled: Atomic::new(0),
                announced: Atomic::new(0),
                sink <- new_mutex!(None, "rkfd_ih_sink"),
                cam: Cam::new(access)?,
                copy: SetOnce::new(),
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
        for ring in rings.list.iter_mut() {
            ring.buffer.disable(hw);
            ring.cursor.reset();
        }
        self.handled.store(0, Relaxed);
        // The device writes it with the next vector only. Until then what it said before a sleep would
        // stand, and the watchdog would read vectors that are not there.
        if let Err(e) = self.writeback.write32(0, 0) {
            dev_err!(hw.dev(), "no write-back of the interrupt ring: {:?}\n", e);
        }
        nbio::ih_control(hw, dummy_page);
        if layout.set_chicken {
            hw.modify(layout.chicken(), |raw| {
                Chicken::from_raw(raw)
                    .with(Chicken::MC_SPACE_GPA_ENABLE, 1)
                    .raw()
            });
        }
        for ring in rings.list.iter() {
            ring.buffer
                .program(hw, ring.cursor.ring(), self.writeback.bus_addr());
        }
        // Repeated retry faults are filtered until the driver releases the entry. None is in use yet.
        self.cam.forget();
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
        for ring in rings.list.iter() {
            ring.buffer.enable(hw);
        }
        rings.running = true;
    }

    /// Delivers what was raised up to now: nothing of a queue that is off the hardware is delivered after this.
    ///
    /// Bounded as a pass is. A device that does not answer delivers nothing more; what a ring lost in an
    /// overflow is lost here, too.
    pub(super) fn flush(&self, hw: &Hw) {
        let mut rings = self.rings.lock();
        if !rings.running || hw.is_lost() {
            return;
        }
        // The answer to a read comes after what the device wrote before it: the vectors, and the pointer in
        // memory that a pass goes by. What has come on other rings has an entry on the first.
        let nothing = rings.list.first().is_none_or(|first| {
            let end = first.cursor.ring().pending(first.buffer.wptr(hw));
            end == Pending::UpTo(first.cursor.position())
        });
        if nothing {
            return;
        }
        // The message of what is found here is on its way; it is not late.
        self.drain(hw, &mut rings, true);
    }

    /// Stops the rings; the interrupt must be detached before.
    pub(super) fn stop(&self, hw: &Hw) {
        let mut rings = self.rings.lock();
        rings.running = false;
        for ring in rings.list.iter() {
            ring.buffer.disable(hw);
        }
        hw.modify(hw.asic().ih.retry_int_cam_cntl(), |raw| {
            RetryIntCamCntl::from_raw(raw)
                .with(RetryIntCamCntl::ENABLE, 0)
                .raw()
        });
        // Nor is an entry released while the device sleeps.
        self.cam.forget();
    }

    /// From now on interrupts of the kernel's copy engine reach `copy`; to be called once.
    pub(super) fn set_copy(&self, copy: Arc<CopyEngine>) {
        let _ = self.copy.populate(copy);
    }

    /// Sets or removes the sink.
    ///
    /// When this returns, the previous sink is not called any more.
    pub(crate) fn set_sink(&self, sink: Option<Arc<dyn IrqSink>>) {
        // The ring lock is held during delivery, so taking it waits for a pass to end.
        let rings = self.rings.lock();
        let old = core::mem::replace(&mut *self.sink.lock(), sink);
        drop(rings);
        drop(old);
    }

    /// An entry of the CAM that was in use before the last reset.
    #[cfg(rkfd_kunit)]
    pub(crate) fn old_token(&self, number: u16) -> FaultToken {
        FaultToken::forgotten(&self.cam, number)
    }

    /// Delivers an access that was being repeated as one that is refused.
    pub(crate) fn refuse(&self, fault: &VmFault) {
        // As a pass does, for callers that change the sink.
        let _rings = self.rings.lock();
        let sink = self.sink.lock().clone();
        if let Some(sink) = &sink {
            sink.vm_fault(fault);
        }
    }

    /// What was seen so far.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Logs a fault of which the sink said that it is logged later. Nothing while the rings do not run, when the
    /// device may be without power.
    pub(super) fn log_fault(&self, hw: &Hw, fault: &VmFault) {
        let rings = self.rings.lock();
        if rings.running {
            Self::log_latched(hw, fault);
        }
    }

    /// Counts a fault that was taken by the sink, and dropped.
    pub(crate) fn count_dropped_fault(&self) {
        self.counters.fault_drops.inc();
    }

    /// Read positions of the rings, in bytes.
    pub(crate) fn positions(&self) -> [u32; 3] {
        let mut positions = [0; 3];
        for (to, ring) in positions.iter_mut().zip(self.rings.lock().list.iter()) {
            *to = ring.cursor.position();
        }
        positions
    }

    /// Drains all rings, if they run. `announced`: a message of what is there came or will.
    fn drain(&self, hw: &Hw, rings: &mut Rings, announced: bool) {
        if !rings.running {
            return;
        }
        let sink = self.sink.lock().clone();
        for RingState { cursor, buffer } in rings.list.iter_mut() {
            let mut port = HwPort::new(hw, buffer, cursor.ring(), &self.writeback);
            let number = buffer.number();
            let pass = cursor.drain(&mut port, |_, vector| {
                self.deliver(hw, number, vector, sink.as_deref());
            });
            if pass.is_ok_and(|pass| pass.overflows > 0) {
                if let Some(sink) = &sink {
                    sink.overflow();
                }
            }
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
            // All ones in memory may have been written by a device that is lost; the check logs that.
            let _ = hw.check_alive();
        }
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
            let mut rings = self.rings.lock();
            let interrupts = self.counters.interrupts.get();
            let announced = self.announced.load(Relaxed) != interrupts;
            self.announced.store(interrupts, Relaxed);
            self.drain(&hw, &mut rings, announced);
        }
    }
}

const _: () = assert!(
    VECTOR_BYTES as usize == VECTOR_DWORDS * 4,
    "a vector is whole dwords"
);
