// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The native interface of a render node (`uapi/rkfd_drm.h`), which needs no `/dev/kfd` and nothing process-wide.
//!
//! A [`Space`] is one open file: an address space of the GPU with buffers ([`Bo`]), queues ([`Queue`]), mirrors of the
//! program's memory ([`Mirror`]), events and faults of its own. Two of them share nothing, also in one program.
//!
//! ```no_run
//! use rkfd::native::{Heap, QueueKind, Rights, Space};
//!
//! # fn main() -> rkfd::error::Result<()> {
//! let space = Space::open("/dev/dri/renderD128")?;
//! let bo = space.bo(Heap::System, 4096)?;
//! let mut list = space.list();
//! list.map(0x1_0000_0000, &bo, 0, 4096, Rights::Write)?;
//! space.bind(&list)?;
//! let queue = space.queue(QueueKind::Sdma, 0x2_0000_0000)?;
//! // WRITE_LINEAR of one dword.
//! queue.submit(&[2, 0, 1, 0, 42])?;
//! space.wait_u32(&bo, 0, 42, std::time::Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use nix::errno::Errno;
use nix::time::clock_gettime;
use nix::time::ClockId;

use crate::error::Error;
use crate::error::Result;
use crate::packet::aql as packet;
use crate::sys;
use crate::sys::Mapping;
use crate::sys::PAGE;

pub mod abi;
mod aql;
mod bo;
mod mirror;

pub use self::bo::Bo;
use self::bo::Handle;
pub use self::mirror::Filling;
pub use self::mirror::Hint;
pub use self::mirror::Migration;
pub use self::mirror::Mirror;
pub use self::mirror::Moved;
pub use self::mirror::PartlyMoved;
pub use self::mirror::Place;
pub use self::mirror::Reach;

/// Bytes of a ring.
const RING: usize = 0x10000;
/// Faults that the driver keeps.
const FAULTS: usize = 64;

/// Which memory a buffer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heap {
    /// That of the GPU.
    Vram,
    /// That of the machine.
    System,
}

/// What the GPU may do in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Read.
    Read,
    /// Read and write.
    Write,
    /// Read and fetch instructions.
    Execute,
}

/// Type of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Compute, PM4 packets.
    Pm4,
    /// Compute, AQL packets.
    Aql,
    /// SDMA packets.
    Sdma,
}

impl QueueKind {
    /// Bytes that the write pointer counts.
    fn unit(self) -> usize {
        match self {
            Self::Pm4 => 4,
            Self::Aql => packet::BYTES,
            Self::Sdma => 1,
        }
    }

    /// Where the write pointer and the read pointer lie in their page.
    fn pointers(self) -> (usize, usize) {
        match self {
            Self::Aql => aql::POINTERS,
            Self::Pm4 | Self::Sdma => (8, 16),
        }
    }
}

/// An address space of a GPU: one open file of its render node.
#[derive(Debug)]
pub struct Space {
    fd: Arc<OwnedFd>,
    info: abi::DeviceInfo,
}

impl Space {
    /// Opens a render node.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Call`]: it has no native interface.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(Error::file(path))?;
        let fd = Arc::new(OwnedFd::from(file));
        let mut info = abi::DeviceInfo::default();
        let mut arg = abi::Query {
            data: std::ptr::from_mut(&mut info).expose_provenance() as u64, // CAST: an address.
            size: size_of::<abi::DeviceInfo>() as u32,                      // CAST: a small size.
            ..abi::Query::default()
        };
        // SAFETY: the answer goes to `info`, of which the size is given.
        unsafe { sys::call_again(&*fd, "QUERY", abi::QUERY, &mut arg) }?;
        Ok(Self { fd, info })
    }

    /// What the GPU is, and what it demands.
    pub fn info(&self) -> &abi::DeviceInfo {
        &self.info
    }

    /// Makes a cleared buffer that is bound nowhere, mapped for the CPU.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn bo(&self, heap: Heap, size: usize) -> Result<Bo> {
        let mut arg = abi::BoCreate {
            size: size as u64, // CAST: a size in memory.
            heap: match heap {
                Heap::Vram => abi::HEAP_VRAM,
                Heap::System => abi::HEAP_SYSTEM,
            },
            flags: abi::BO_CPU_ACCESS | abi::BO_UNCACHED,
            ..abi::BoCreate::default()
        };
        // SAFETY: the argument has no pointers.
        unsafe { sys::call_again(&*self.fd, "BO_CREATE", abi::BO_CREATE, &mut arg) }?;
        let handle = Handle {
            fd: self.fd.clone(),
            number: arg.handle,
        };
        let size = usize::try_from(arg.size).map_err(|_| Error::Argument("A huge buffer"))?;
        let memory = Mapping::of_device(&*self.fd, size, arg.mmap_offset)?;
        Ok(Bo { memory, handle })
    }

    /// An empty list of ranges.
    pub fn list(&self) -> BindList {
        BindList {
            fd: self.fd.clone(),
            ops: Vec::new(),
        }
    }

    /// Maps and unmaps the ranges of a list, all or none.
    ///
    /// # Errors
    /// [`Error::Call`]; [`Error::Argument`]: the list is empty, too long, or that of another address space.
    pub fn bind(&self, list: &BindList) -> Result<()> {
        if !Arc::ptr_eq(&self.fd, &list.fd) {
            return Err(Error::Argument("A list of another address space"));
        }
        let count = u32::try_from(list.ops.len()).map_err(|_| Error::Argument("A long list"))?;
        let mut arg = abi::Bind {
            ops: list.ops.as_ptr().expose_provenance() as u64, // CAST: an address.
            count,
            stride: size_of::<abi::BindOp>() as u32, // CAST: a small size.
            ..abi::Bind::default()
        };
        // SAFETY: the list has as many operations as the argument says, and lives as long as the call.
        unsafe { sys::call_again(&*self.fd, "BIND", abi::BIND, &mut arg) }
    }

    /// Makes a queue whose memory is bound from `address` on, where nothing may be: 64 KiB of ring, pointers and, for
    /// compute, the save area. An AQL queue has no private memory for waves: a kernel that needs some stops it.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn queue(&self, kind: QueueKind, address: u64) -> Result<Queue> {
        let info = &self.info;
        let compute = kind != QueueKind::Sdma;
        let waves = u64::from(info.save_bytes) + u64::from(info.debug_bytes);
        let save = usize::try_from(waves * u64::from(info.xccs)).unwrap_or(usize::MAX);
        let (pointers, eop) = (RING, RING + PAGE);
        let size = if compute { eop + PAGE + save } else { eop };
        let bo = self.bo(Heap::System, size)?;
        let mut list = self.list();
        list.map(address, &bo, 0, bo.size(), Rights::Write)?;
        self.bind(&list)?;
        let bound = Bound {
            fd: self.fd.clone(),
            address,
            len: bo.size(),
        };
        let at = |offset: usize| address + offset as u64; // CAST: a size in memory.
        if kind == QueueKind::Aql {
            aql::describe(&bo, address)?;
        }
        let (write, read) = kind.pointers();
        let mut arg = abi::QueueCreate {
            r#type: match kind {
                QueueKind::Pm4 => abi::QUEUE_PM4,
                QueueKind::Aql => abi::QUEUE_AQL,
                QueueKind::Sdma => abi::QUEUE_SDMA,
            },
            ring: address,
            ring_size: RING as u32, // CAST: a constant.
            write_pointer: at(pointers + write),
            read_pointer: at(pointers + read),
            engine: if compute { 0 } else { abi::ENGINE_ANY },
            percentage: 100,
            priority: 7,
            ..abi::QueueCreate::default()
        };
        if compute {
            arg.eop = at(eop);
            arg.eop_size = info.eop_bytes;
            arg.save = at(eop + PAGE);
            arg.save_size = info.save_bytes;
            arg.ctl_stack_size = info.ctl_stack_bytes;
            bo.write_u32(eop + PAGE + 16, info.save_bytes)?;
            bo.write_u32(eop + PAGE + 20, info.debug_bytes * info.xccs)?;
        }
        // SAFETY: the argument has GPU addresses, no pointers.
        unsafe { sys::call_again(&*self.fd, "QUEUE_CREATE", abi::QUEUE_CREATE, &mut arg) }?;
        let live = Live {
            fd: self.fd.clone(),
            id: arg.id,
        };
        let len = info.doorbell_bytes as usize; // CAST: a small size.
        let doorbells = Mapping::of_device(&*self.fd, len, arg.doorbell_map)?;
        let doorbell = arg.doorbell as usize; // CAST: as above.
        if doorbell % 8 != 0 || doorbell + 8 > len {
            return Err(Error::Argument("A doorbell outside of its page"));
        }
        Ok(Queue {
            kind,
            written: Mutex::new(0),
            doorbell,
            doorbells,
            live,
            _bound: bound,
            bo,
        })
    }

    /// Has a counter of the caller's (`eventfd`) increased by packets that raise an interrupt with the event's slot.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn signal_event(&self, counter: BorrowedFd<'_>) -> Result<Event> {
        let mut arg = abi::EventCreate {
            eventfd: counter.as_raw_fd(),
            ..abi::EventCreate::default()
        };
        // SAFETY: the argument has no pointers.
        unsafe { sys::call_again(&*self.fd, "EVENT_CREATE", abi::EVENT_CREATE, &mut arg) }?;
        Ok(Event {
            fd: self.fd.clone(),
            slot: arg.slot,
        })
    }

    /// Sleeps until the dword at `offset` of `bo` is `value`. Who stores it raises an interrupt afterwards; for those who do
    /// not, it is looked at once a millisecond.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::TimedOut`]; [`Error::Call`].
    pub fn wait_u32(&self, bo: &Bo, offset: usize, value: u32, limit: Duration) -> Result<()> {
        let start = now()?;
        let end = start.saturating_add(limit);
        loop {
            let seen = bo.read_u32(offset)?;
            let now = now()?;
            if seen == value {
                return Ok(());
            }
            if now >= end {
                return Err(Error::TimedOut {
                    what: "a dword",
                    seen: seen.into(),
                    ms: limit.as_millis(),
                });
            }
            let op = abi::WaitOp {
                address: (bo.memory.address() + offset) as u64, // CAST: an address.
                value: value.into(),
                mask: u64::MAX,
                size: 4,
                ..abi::WaitOp::default()
            };
            let look = end.min(now + Duration::from_millis(1));
            let mut arg = abi::Wait {
                ops: std::ptr::from_ref(&op).expose_provenance() as u64, // CAST: an address.
                deadline: u64::try_from(look.as_nanos()).unwrap_or(u64::MAX),
                count: 1,
                stride: size_of::<abi::WaitOp>() as u32, // CAST: a small size.
                ..abi::Wait::default()
            };
            // SAFETY: one operation, whose word lies in a mapping that `bo` owns.
            match unsafe { sys::call_again(&*self.fd, "WAIT", abi::WAIT, &mut arg) } {
                Err(e) if e.errno() == Some(Errno::ETIME) => {}
                result => result?,
            }
        }
    }

    /// The oldest faults that nobody has read, and how many found no room since the last call.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn faults(&self) -> Result<(Vec<abi::Fault>, u64)> {
        self.take_faults(FAULTS)
    }

    /// The oldest of them alone.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn fault(&self) -> Result<(Option<abi::Fault>, u64)> {
        let (records, dropped) = self.take_faults(1)?;
        Ok((records.first().copied(), dropped))
    }

    fn take_faults(&self, most: usize) -> Result<(Vec<abi::Fault>, u64)> {
        let mut records = vec![abi::Fault::default(); most];
        let mut arg = abi::Faults {
            records: records.as_mut_ptr().expose_provenance() as u64, // CAST: an address.
            count: most as u32,                                       // CAST: at most `FAULTS`.
            stride: size_of::<abi::Fault>() as u32,                   // CAST: a small size.
            ..abi::Faults::default()
        };
        // SAFETY: there is room for as many records as the argument says.
        unsafe { sys::call_again(&*self.fd, "FAULTS", abi::FAULTS, &mut arg) }?;
        records.truncate(arg.count as usize); // CAST: at most as many.
        Ok((records, arg.dropped))
    }
}

fn now() -> Result<Duration> {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(Duration::from)
        .map_err(|errno| Error::Call {
            call: "clock_gettime",
            errno,
        })
}

/// Ranges to be mapped and unmapped together. They do not overlap.
#[derive(Debug)]
pub struct BindList {
    fd: Arc<OwnedFd>,
    ops: Vec<abi::BindOp>,
}

impl BindList {
    /// Shows `length` bytes from byte `offset` on of `bo` at `address`.
    ///
    /// # Errors
    /// [`Error::Argument`]: the buffer is one of another address space.
    pub fn map(
        &mut self,
        address: u64,
        bo: &Bo,
        offset: usize,
        length: usize,
        rights: Rights,
    ) -> Result<&mut Self> {
        if !Arc::ptr_eq(&self.fd, &bo.handle.fd) {
            return Err(Error::Argument("A buffer of another address space"));
        }
        self.ops.push(abi::BindOp {
            op: abi::BIND_MAP,
            flags: match rights {
                Rights::Read => 0,
                Rights::Write => abi::BIND_WRITE,
                Rights::Execute => abi::BIND_EXECUTE,
            },
            address,
            length: length as u64, // CAST: a size in memory.
            offset: offset as u64, // CAST: as above.
            handle: bo.handle.number,
            pad: 0,
        });
        Ok(self)
    }

    /// Shows nothing in `length` bytes at `address`.
    pub fn unmap(&mut self, address: u64, length: usize) -> &mut Self {
        self.ops.push(abi::BindOp {
            op: abi::BIND_UNMAP,
            address,
            length: length as u64, // CAST: a size in memory.
            ..abi::BindOp::default()
        });
        self
    }
}

/// A range of a queue; unmapped when dropped.
#[derive(Debug)]
struct Bound {
    fd: Arc<OwnedFd>,
    address: u64,
    len: usize,
}

impl Drop for Bound {
    fn drop(&mut self) {
        let op = abi::BindOp {
            op: abi::BIND_UNMAP,
            address: self.address,
            length: self.len as u64, // CAST: a size in memory.
            ..abi::BindOp::default()
        };
        let mut arg = abi::Bind {
            ops: std::ptr::from_ref(&op).expose_provenance() as u64, // CAST: an address.
            count: 1,
            stride: size_of::<abi::BindOp>() as u32, // CAST: a small size.
            ..abi::Bind::default()
        };
        // SAFETY: one operation, which lives as long as the call.
        let _ = unsafe { sys::call_again(&*self.fd, "BIND", abi::BIND, &mut arg) };
    }
}

/// A queue in the driver; destroyed when dropped.
#[derive(Debug)]
struct Live {
    fd: Arc<OwnedFd>,
    id: u32,
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut arg = abi::QueueDestroy {
            id: self.id,
            pad: 0,
        };
        // SAFETY: the argument has no pointers.
        let _ =
            unsafe { sys::call_again(&*self.fd, "QUEUE_DESTROY", abi::QUEUE_DESTROY, &mut arg) };
    }
}

/// A queue; destroyed and unbound when dropped.
#[derive(Debug)]
pub struct Queue {
    kind: QueueKind,
    /// Units of the write pointer: dwords for PM4, packets for AQL, bytes for SDMA.
    written: Mutex<u64>,
    doorbell: usize,
    doorbells: Mapping,
    // In this order: off the hardware, then unbound, then freed.
    live: Live,
    _bound: Bound,
    bo: Bo,
}

impl Queue {
    /// Its id in the driver.
    pub fn id(&self) -> u32 {
        self.live.id
    }

    /// Writes packets and rings the doorbell. AQL packets are whole, with their headers.
    ///
    /// # Errors
    /// [`Error::RingFull`]: the GPU has to read on first; [`Error::Argument`]: a part of an AQL packet.
    pub fn submit(&self, dwords: &[u32]) -> Result<()> {
        let unit = self.kind.unit();
        if dwords.len() * 4 % unit != 0 {
            return Err(Error::Argument("A part of a packet"));
        }
        let (at_write, at_read) = self.kind.pointers();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let ring = (RING / unit) as u64; // CAST: a constant.
        let units = (dwords.len() * 4 / unit) as u64; // CAST: a size in memory.
        let read = self.bo.shared(RING + at_read)?.load(Ordering::Acquire);
        // PM4's pointer wraps with the ring.
        let used = written.wrapping_sub(read) & (ring - 1);
        // The GPU writes the read pointer, so it may be any number.
        let free = (ring - 4).saturating_sub(used);
        if units > free {
            return Err(Error::RingFull {
                wanted: units,
                free,
            });
        }
        let first = (*written as usize).wrapping_mul(unit) / 4; // CAST: only the part in the ring counts.
        let is_aql = self.kind == QueueKind::Aql;
        let place = |n: usize| (first.wrapping_add(n) % (RING / 4)) * 4;
        let is_header = |n: usize| is_aql && n % packet::DWORDS == 0;
        for (n, dword) in dwords.iter().enumerate().filter(|(n, _)| !is_header(*n)) {
            self.bo.write_u32(place(n), *dword)?;
        }
        if is_aql {
            // The GPU may look at a packet as soon as its header says what it is.
            sys::publish();
            for (n, dword) in dwords.iter().enumerate().step_by(packet::DWORDS) {
                self.bo.write_u32(place(n), *dword)?;
            }
        }
        *written += units;
        self.bo
            .shared(RING + at_write)?
            .store(*written, Ordering::Release);
        let rung = written.wrapping_sub(is_aql.into());
        sys::publish();
        // SAFETY: 8-byte aligned and inside the mapping, as `Space::queue` has checked; any value is harmless.
        unsafe {
            let at = self.doorbells.as_ptr().add(self.doorbell).cast();
            AtomicU64::from_ptr(at).store(rung, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// An event; its slot is given back when dropped.
#[derive(Debug)]
pub struct Event {
    fd: Arc<OwnedFd>,
    slot: u32,
}

impl Event {
    /// What packets raise as the context id of their interrupt.
    pub fn slot(&self) -> u32 {
        self.slot
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut arg = abi::EventDestroy {
            slot: self.slot,
            pad: 0,
        };
        // SAFETY: the argument has no pointers.
        let _ = unsafe { sys::call(&*self.fd, abi::EVENT_DESTROY, &mut arg) };
    }
}
