// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The vfio-user side: regions, DMA mappings, interrupts, and the worker that runs queues.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::sys::memfd::{memfd_create, MemFdCreateFlag};
use parking_lot::{Condvar, Mutex, MutexGuard};
use vfio_bindings::bindings::vfio::{
    vfio_region_info, vfio_region_sparse_mmap_area, VFIO_IRQ_INFO_EVENTFD,
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX, VFIO_PCI_BAR5_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_PCI_ROM_REGION_INDEX, VFIO_REGION_INFO_FLAG_MMAP,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};
use vfio_user::{
    DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion, SparseArea,
};

use crate::device::{Gpu, Step, BAR2_SIZE};
use crate::pci::{ConfigSpace, Rom, Subsystem, CONFIG_SIZE, ROM_SIZE};
use crate::regs::BAR5_SIZE;
use crate::soc::{Callers, MsiSink};
use crate::vm::own::BarAddresses;

/// Longest sleep of the worker; a bound, not a poll: every event wakes it.
const IDLE_SLEEP: Duration = Duration::from_millis(500);

/// Longest step, unless a single piece of work takes longer.
pub const STEP: Duration = Duration::from_micros(100);

/// Most bytes of an access to a region: max_data_xfer_size of the protocol's version message.
const MAX_ACCESS: usize = 1 << 20;

/// How long the worker leaves the lock free for an access whose thread has no processor.
const HANDOVER: Duration = Duration::from_millis(1);

/// The device behind its lock, and the worker's alarm.
pub struct Shared {
    gpu: Mutex<Gpu>,
    callers: Callers,
    work: Condvar,
    stop: AtomicBool,
}

impl Shared {
    /// Wraps a device.
    pub fn new(gpu: Gpu) -> Arc<Self> {
        Arc::new_cyclic(|shared: &Weak<Self>| {
            let shared = Weak::clone(shared);
            gpu.waves.dispatcher.set_waker(Box::new(move || {
                if let Some(shared) = shared.upgrade() {
                    // The worker that was about to sleep does so before it gives the lock away.
                    drop(shared.gpu.lock());
                    shared.wake();
                }
            }));
            Self {
                callers: gpu.soc.callers().clone(),
                gpu: Mutex::new(gpu),
                work: Condvar::new(),
                stop: AtomicBool::new(false),
            }
        })
    }

    /// The device, for inspection or control.
    pub fn lock(&self) -> MutexGuard<'_, Gpu> {
        self.gpu.lock()
    }

    /// Serves an access that a virtual processor of the guest waits for: the step that runs ends at its next packet.
    pub fn trapped<T>(&self, access: impl FnOnce(&mut Gpu) -> T) -> T {
        let begun = Instant::now();
        let mut gpu = self.callers.wait(|| self.gpu.lock());
        let done = access(&mut gpu);
        gpu.latency.access.note(begun.elapsed());
        done
    }

    /// Wakes the worker.
    pub fn wake(&self) {
        self.work.notify_one();
    }

    /// Ends the worker.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Leaves the device to a trapped access. Until its thread sleeps for the lock, which it does not do at once, only
    /// a lock that stays free lets it in.
    fn hand_over(&self, gpu: &mut MutexGuard<'_, Gpu>) {
        MutexGuard::unlocked_fair(gpu, || {
            let begun = Instant::now();
            while self.callers.are_waiting() && begun.elapsed() < HANDOVER {
                std::thread::yield_now();
            }
        });
    }

    /// Runs queues until [`Shared::stop`].  Each turn holds the lock for a bounded piece of work only and hands it
    /// over to a waiting register access.
    pub fn run_worker(&self) {
        let mut gpu = self.gpu.lock();
        while !self.stop.load(Ordering::Acquire) {
            match gpu.step_within(STEP) {
                Step::Busy if self.callers.are_waiting() => self.hand_over(&mut gpu),
                Step::Busy => MutexGuard::bump(&mut gpu),
                Step::Idle(_) if !gpu.waves.dispatcher.may_sleep() => {}
                Step::Idle(at) => {
                    let now = gpu.soc.clock.now_ns();
                    let sleep =
                        at.map_or(IDLE_SLEEP, |t| Duration::from_nanos(t.saturating_sub(now)));
                    self.work.wait_for(&mut gpu, sleep.min(IDLE_SLEEP));
                    gpu.waves.dispatcher.awake();
                }
            }
        }
    }
}

/// An eventfd given by the VMM.
struct EventFdMsi(OwnedFd);

impl MsiSink for EventFdMsi {
    fn raise(&self) {
        // The counter cannot overflow in practice; a VMM that has gone away is noticed elsewhere.
        let _ = nix::unistd::write(self.0.as_fd(), &1u64.to_ne_bytes());
    }
}

/// Answers the VMM's messages.
pub struct Backend {
    shared: Arc<Shared>,
    config: ConfigSpace,
    reset_config: ConfigSpace,
    rom: Rom,
}

impl Backend {
    /// A backend for a device.
    pub fn new(shared: Arc<Shared>, subsystem: Subsystem) -> Self {
        let gpu = shared.lock();
        gpu.soc.mem.set_bus_master(false);
        let config = ConfigSpace::new(gpu.soc.asic, gpu.soc.mem.vram_size(), subsystem);
        let rom = Rom::new(gpu.soc.asic, &gpu.soc.board);
        drop(gpu);
        Self {
            shared,
            rom,
            reset_config: config.clone(),
            config,
        }
    }
}

/// Refuses an access that is longer than those that the server allows.
fn check_length(data: &[u8]) -> Result<(), io::Error> {
    if data.len() > MAX_ACCESS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(())
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), io::Error> {
        check_length(data)?;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.read(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX => self.shared.trapped(|gpu| gpu.vram_read(offset, data)),
            VFIO_PCI_ROM_REGION_INDEX => self.rom.read(offset, data),
            // What a doorbell reads as is not specified.
            VFIO_PCI_BAR2_REGION_INDEX => data.fill(0),
            VFIO_PCI_BAR5_REGION_INDEX => self.shared.trapped(|gpu| gpu.mmio_read(offset, data)),
            _ => data.fill(0xFF),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        check_length(data)?;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                self.config.write(offset, data);
                let master = self.config.bus_master();
                let (bars, asleep) = (self.config.bars(), self.config.asleep());
                self.shared.trapped(|gpu| {
                    gpu.soc.mem.set_bus_master(master);
                    // Queues that have a BAR mapped go on using it while the guest sizes the BARs.
                    if let Some(bars) = bars {
                        gpu.soc.set_bars(bars);
                    }
                    gpu.set_asleep(asleep);
                });
                self.shared.wake();
            }
            VFIO_PCI_BAR0_REGION_INDEX => self.shared.trapped(|gpu| gpu.vram_write(offset, data)),
            VFIO_PCI_BAR2_REGION_INDEX => {
                self.shared.trapped(|gpu| gpu.doorbell_write(offset, data));
                self.shared.wake();
            }
            VFIO_PCI_BAR5_REGION_INDEX => {
                self.shared.trapped(|gpu| gpu.mmio_write(offset, data));
                self.shared.wake();
            }
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> Result<(), io::Error> {
        let mut gpu = self.shared.lock();
        let writable = flags.contains(DmaMapFlags::WRITE);
        let done = gpu
            .soc
            .mem
            .dma_map(address, size, fd.map(|f| (f, offset)), writable);
        // Failing the message would end the session; the driver sees the hole if it uses it.
        if let Err(e) = done {
            gpu.soc
                .log
                .note(&format!("DMA map {address:#x}+{size:#x}: {e:#}"));
        }
        drop(gpu);
        self.shared.wake();
        Ok(())
    }

    fn dma_unmap(
        &mut self,
        flags: DmaUnmapFlags,
        address: u64,
        size: u64,
    ) -> Result<(), io::Error> {
        // The device sees the change between two steps; who executes without its lock is waited for without it.
        let mut gpu = self.shared.lock();
        let (retired, done) = if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            (gpu.soc.mem.dma_retire_all(), Ok(0))
        } else {
            gpu.soc.mem.dma_retire(address, size)
        };
        if let Err(e) = &done {
            gpu.soc
                .log
                .note(&format!("DMA unmap {address:#x}+{size:#x}: {e:#}"));
        }
        drop(gpu);
        retired.wait();
        match done {
            Ok(_) => Ok(()),
            Err(e) => Err(io::Error::new(io::ErrorKind::InvalidInput, e)),
        }
    }

    fn reset(&mut self) -> Result<(), io::Error> {
        self.config = self.reset_config.clone();
        let master = self.config.bus_master();
        self.shared.trapped(|gpu| {
            gpu.device_reset();
            gpu.soc.set_bars(BarAddresses::default());
            gpu.soc.mem.set_bus_master(master);
        });
        // Waves are to leave their units, and VRAM may still be on its way to be lost.
        self.shared.wake();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        _start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> Result<(), io::Error> {
        if index != VFIO_PCI_MSI_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        let mut gpu = self.shared.lock();
        if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            match fds.into_iter().next() {
                Some(fd) => gpu.soc.set_msi(Box::new(EventFdMsi(OwnedFd::from(fd)))),
                None => gpu.soc.set_msi(Box::new(crate::soc::NoMsi)),
            }
        } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 && count == 0 {
            gpu.soc.set_msi(Box::new(crate::soc::NoMsi));
        }
        Ok(())
    }
}

/// Makes the memory that is the device's VRAM.
///
/// # Errors
/// The kernel refuses it.
pub fn make_vram(size: u64) -> anyhow::Result<File> {
    let fd = memfd_create(c"gpu-model-vram", MemFdCreateFlag::MFD_CLOEXEC)?;
    let file = File::from(fd);
    file.set_len(size)?;
    Ok(file)
}

fn region(index: u32, size: u64, flags: u32) -> ServerRegion {
    let argsz = u32::try_from(size_of::<vfio_region_info>()).unwrap_or(0);
    ServerRegion {
        region_info: vfio_region_info {
            argsz,
            flags,
            index,
            cap_offset: 0,
            size,
            offset: 0,
        },
        sparse_areas: Vec::new(),
        mmap_fd: None,
    }
}

/// Serves one VMM until it disconnects.
///
/// # Errors
/// The socket cannot be made, or the VMM breaks the protocol.
pub fn serve(
    socket: &Path,
    shared: &Arc<Shared>,
    vram: &File,
    subsystem: Subsystem,
) -> anyhow::Result<()> {
    let vram_size = shared.lock().soc.mem.vram_size();
    let rw = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    let regions = (0..VFIO_PCI_NUM_REGIONS)
        .map(|i| match i {
            VFIO_PCI_BAR0_REGION_INDEX => {
                let mut r = region(i, vram_size, rw | VFIO_REGION_INFO_FLAG_MMAP);
                // Without an area that covers it the VMM does not get the descriptor.
                r.sparse_areas = vec![SparseArea {
                    area: vfio_region_sparse_mmap_area {
                        offset: 0,
                        size: vram_size,
                    },
                }];
                r.mmap_fd = Some(vram.as_raw_fd());
                r
            }
            VFIO_PCI_BAR2_REGION_INDEX => region(i, BAR2_SIZE, rw),
            VFIO_PCI_BAR5_REGION_INDEX => region(i, BAR5_SIZE, rw),
            VFIO_PCI_ROM_REGION_INDEX => region(i, ROM_SIZE as u64, VFIO_REGION_INFO_FLAG_READ),
            VFIO_PCI_CONFIG_REGION_INDEX => region(i, CONFIG_SIZE as u64, rw),
            _ => region(i, 0, 0),
        })
        .collect();
    let irqs = (0..VFIO_PCI_NUM_IRQS)
        .map(|index| IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD,
            // The error interrupt is never used, but QEMU warns if it is absent.
            count: u32::from(matches!(
                index,
                VFIO_PCI_MSI_IRQ_INDEX | VFIO_PCI_ERR_IRQ_INDEX
            )),
        })
        .collect();
    if socket.exists() {
        std::fs::remove_file(socket)?;
    }
    let server = Server::new(socket, true, irqs, regions)?;
    let mut backend = Backend::new(Arc::clone(shared), subsystem);
    match server.run(&mut backend) {
        // A VMM that is killed resets the connection instead of closing it.
        Ok(()) | Err(vfio_user::Error::ReceiveWithFd(_)) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
