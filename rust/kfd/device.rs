// SPDX-License-Identifier: GPL-2.0

//! GPUs as `/dev/kfd` shows them, and what each process has of them outside its lock.
//!
//! Lock order: [`ProcessDevice::doorbells`] may be taken with the mmap lock held and is innermost but for
//! memory allocation.

use super::{
    smi::{
        EvictionTrigger,
        Smi,
        SmiEvent, //
    },
    topology::facts::GpuFacts,
    uapi::{
        Apertures,
        MMAP_GPU_SHIFT,
        MMAP_TYPE_DOORBELL, //
    },
};
use crate::{
    event::tenants::Tenants,
    gpu::{
        devmem::Told,
        DoorbellSlice,
        Gpu, //
    },
    hw::{
        asic::PCI_VENDOR,
        pte::PAGE,
        regs::gc::ShMemBases, //
    },
    kapi::{
        chrdev::IoMemory,
        gate::{
            Gate,
            GateGuard, //
        },
        sysinfo,
        task::ThreadGroup, //
    },
    mirror::Mirrors,
    queue::space::Space,
    sched::Scheduler,
    vm::{
        MoveMonitor,
        Moved, //
    },
};
use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
};

/// Length of the LDS and scratch windows, bytes.
const WINDOW: u64 = 1 << 32;
/// First address of user space on the GPU; what lies below catches null pointers.
pub(crate) const GPUVM_BASE: u64 = 0x1_0000;
/// Last address of user space on the GPU, the same as on the CPU.
pub(crate) const GPUVM_LIMIT: u64 = (1 << 47) - 1;
/// Compute queues that the scheduler gets: 24 of the 32 of the first micro engine.
const CP_QUEUES: u32 = 24;

/// The apertures of every gfx9 GPU for 64-bit processes.
pub(crate) fn apertures(gpu_id: u32) -> Apertures {
    let lds_base = ShMemBases::KFD.shared_aperture();
    let scratch_base = ShMemBases::KFD.private_aperture();
    Apertures {
        lds_base,
        lds_limit: lds_base + WINDOW - 1,
        scratch_base,
        scratch_limit: scratch_base + WINDOW - 1,
        gpuvm_base: GPUVM_BASE,
        gpuvm_limit: GPUVM_LIMIT,
        gpu_id,
        pad: 0,
    }
}

/// A GPU with its scheduler.
///
/// May outlive both: then operations answer `ENODEV`.
#[pin_data]
pub(crate) struct Device {
    gpu: Arc<Gpu>,
    sched: Arc<Scheduler>,
    facts: GpuFacts,
    smi: Arc<Smi>,
    /// Open while user space may map registers and doorbells.
    #[pin]
    mappable: Gate<()>,
    tenants: Arc<Tenants>,
}

impl Device {
    /// A GPU that works, whose events go to `smi`, and what concerns one address space to `tenants`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        sched: &Arc<Scheduler>,
        tenants: &Arc<Tenants>,
        smi: &Arc<Smi>,
    ) -> Result<Arc<Self>> {
        let moves = Moves {
            gpu_id: gpu.id(),
            smi: smi.clone(),
        };
        tenants.set_monitor(Arc::new(moves, GFP_KERNEL)?);
        Arc::pin_init(
            try_pin_init!(Self {
                gpu: gpu.clone(),
                sched: sched.clone(),
                facts: facts(gpu, sched),
                smi: smi.clone(),
                mappable <- Gate::new(()),
                tenants: tenants.clone(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Id in the topology.
    pub(crate) fn gpu_id(&self) -> u32 {
        self.gpu.id()
    }

    /// The hardware.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The scheduler.
    pub(crate) fn sched(&self) -> &Arc<Scheduler> {
        &self.sched
    }

    /// What the topology shows of it.
    pub(crate) fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    /// Reports an event of this GPU to the files that monitor it. Neither sleeps nor allocates.
    pub(crate) fn report(&self, event: &SmiEvent<'_>) {
        self.smi.report(self.gpu_id(), event);
    }

    /// Ticks of the GPU, 0 if it cannot be asked.
    pub(crate) fn clock_counter(&self) -> u64 {
        self.gpu.clock_counter().unwrap_or(0)
    }

    /// Whether the GPU is there.
    ///
    /// # Errors
    ///
    /// `ENODEV` if not.
    pub(crate) fn check(&self) -> Result {
        if self.mappable.is_open() {
            Ok(())
        } else {
            Err(ENODEV)
        }
    }

    fn enter_mappable(&self) -> Result<GateGuard<'_, ()>> {
        self.mappable.enter().ok_or(ENODEV)
    }

    /// The GPU goes: its registers are not mapped any more from now on. Returns when no mapping is under way.
    pub(crate) fn close(&self) {
        let _ = self.mappable.close();
    }

    /// The owners of the address spaces.
    pub(crate) fn tenants(&self) -> &Arc<Tenants> {
        &self.tenants
    }
}

/// Reports queues that stop while memory moves, of both interfaces.
struct Moves {
    gpu_id: u32,
    smi: Arc<Smi>,
}

impl MoveMonitor for Moves {
    fn moved(&self, group: &ThreadGroup, what: Moved) {
        let event = match what {
            Moved::Off => SmiEvent::QueueEviction(group, EvictionTrigger::Ttm),
            Moved::On => SmiEvent::QueueRestore(group),
        };
        self.smi.report(self.gpu_id, &event);
    }
}

fn facts(gpu: &Gpu, sched: &Scheduler) -> GpuFacts {
    let info = gpu.info();
    let connection = sysinfo::pci_connection(gpu.pdev());
    GpuFacts {
        gpu_id: gpu.id(),
        asic: gpu.asic(),
        vram: gpu.vram().total(),
        large_bar: info.vram_visible >= info.vram_size,
        vendor_id: u32::from(PCI_VENDOR),
        device_id: u32::from(info.device_id),
        location_id: info.location_id,
        domain: info.domain,
        revision: info.revision,
        render_minor: gpu.render_minor().unwrap_or(0),
        cp_queues: CP_QUEUES,
        num_gws: sched.num_gws(),
        numa_node: connection.numa_node,
        bandwidth: connection.bandwidth,
        // The model's atomics are those of the host's processors, without a PCIe path on which ports would have to pass
        // them on; the ports that the VM shows do not say that they do. HIP has no `printf` in kernels without.
        sends_atomics: connection.sends_atomics || info.is_model(),
        completes_atomics: connection.completes_atomics,
        silicon: info.silicon,
    }
}

/// A GPU in the hands of one process.
#[pin_data]
pub(crate) struct ProcessDevice {
    device: Arc<Device>,
    /// The doorbells, from the first use on.
    #[pin]
    doorbells: Mutex<Option<Arc<DoorbellSlice>>>,
    /// The queues, and the address space from ACQUIRE_VM on.
    #[pin]
    space: Space,
    /// Memory of the process that the GPU sees at its own addresses, from ACQUIRE_VM on. A spinlock for the sake of the interrupt
    /// thread.
    #[pin]
    mirrors: SpinLock<Option<Arc<Mirrors>>>,
    /// Has moves of that memory reported.
    #[pin]
    told: SpinLock<Option<Told>>,
}

impl ProcessDevice {
    /// Nothing taken yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: Arc<Device>) -> Result<Pin<KBox<Self>>> {
        let space = Space::new(&device.gpu, &device.sched);
        KBox::pin_init(
            pin_init!(Self {
                device,
                doorbells <- new_mutex!(None, "rkfd_doorbells_of_process"),
                space <- space,
                mirrors <- new_spinlock!(None, "rkfd_mirrors_of_process"),
                told <- new_spinlock!(None, "rkfd_told_of_process"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Id in the topology.
    pub(crate) fn gpu_id(&self) -> u32 {
        self.device.gpu_id()
    }

    /// The GPU.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The doorbells of the process, taken now if that has not been done.
    ///
    /// # Errors
    ///
    /// - `EUSERS`: other processes have all of them.
    /// - `ENOMEM`: no memory.
    /// - `ENODEV`: the GPU is gone.
    pub(crate) fn doorbells(&self) -> Result<Arc<DoorbellSlice>> {
        self.device.check()?;
        let mut doorbells = self.doorbells.lock();
        if let Some(slice) = &*doorbells {
            return Ok(slice.clone());
        }
        let slice = self.device.gpu.doorbells().alloc_slice().map_err(|error| {
            if error == ENOSPC {
                EUSERS
            } else {
                error
            }
        })?;
        *doorbells = Some(slice.clone());
        Ok(slice)
    }

    /// The queues and the address space.
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Memory of the process that the GPU sees, from ACQUIRE_VM on.
    pub(crate) fn mirrors(&self) -> Option<Arc<Mirrors>> {
        self.mirrors.lock().clone()
    }

    /// Sets it, and what has its moves reported.
    pub(crate) fn set_mirrors(&self, mirrors: Arc<Mirrors>, told: Told) {
        let old = self.mirrors.lock().replace(mirrors);
        drop(old);
        let old = self.told.lock().replace(told);
        drop(old);
    }

    /// Takes it, to be closed.
    pub(crate) fn take_mirrors(&self) -> Option<Arc<Mirrors>> {
        self.mirrors.lock().take()
    }

    /// mmap offset of the doorbell at `byte` of the slice.
    pub(crate) fn doorbell_offset(&self, byte: u32) -> u64 {
        MMAP_TYPE_DOORBELL | u64::from(self.gpu_id()) << MMAP_GPU_SHIFT | u64::from(byte)
    }

    /// The process ends: gives its doorbells and its address space back.
    pub(crate) fn release(&self) {
        let slice = self.doorbells.lock().take();
        let told = self.told.lock().take();
        self.space.set_vm(None);
        drop((slice, told));
    }
}

/// What a mapping of `/dev/kfd` shows.
enum Window {
    /// The doorbells of the process.
    Doorbells(Arc<DoorbellSlice>),
    /// The page with the HDP flush registers.
    MmioRemap,
}

/// A mapping of `/dev/kfd`.
pub(crate) struct IoWindow {
    device: Arc<Device>,
    window: Window,
    /// Offset of the mapping in the file, pages.
    first_page: u64,
    /// Pages.
    len: u64,
}

impl IoWindow {
    /// Shows the doorbells in `slice` from page `first_page` of the file on.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn doorbells(
        device: &Arc<Device>,
        slice: Arc<DoorbellSlice>,
        first_page: u64,
    ) -> Result<Arc<Self>> {
        let window = Self {
            device: device.clone(),
            window: Window::Doorbells(slice),
            first_page,
            len: u64::from(DoorbellSlice::SIZE) / PAGE,
        };
        Ok(Arc::new(window, GFP_KERNEL_ACCOUNT)?)
    }

    /// Shows the HDP flush page at page `first_page` of the file.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn mmio_remap(device: &Arc<Device>, first_page: u64) -> Result<Arc<Self>> {
        let window = Self {
            device: device.clone(),
            window: Window::MmioRemap,
            first_page,
            len: 1,
        };
        Ok(Arc::new(window, GFP_KERNEL_ACCOUNT)?)
    }
}

impl IoMemory for IoWindow {
    fn with_page(&self, page: u64, insert: &mut dyn FnMut(u64)) -> Result {
        let index = page.checked_sub(self.first_page).ok_or(EINVAL)?;
        if index >= self.len {
            return Err(EINVAL);
        }
        // A reset takes mappings away before it begins, and they shall stay away until it is over.
        let up = self.device.gpu.wait_up()?;
        // While the gate is held the removal of the GPU waits, and unmaps afterwards.
        let _open = self.device.enter_mappable()?;
        let hw = self.device.gpu.enter()?;
        let base = match &self.window {
            Window::Doorbells(slice) => hw.doorbell_bus_addr() + slice.bar_offset(),
            Window::MmioRemap => hw.mmio_remap_bus_addr().ok_or(ENODEV)?,
        };
        insert(base + index * PAGE);
        // A reset that began in between may have taken mappings away before this one was there. To keep it from
        // beginning would let it wait for memory, and memory may wait for it.
        if self.device.gpu.was_reset_since(up) {
            return Err(EAGAIN);
        }
        Ok(())
    }
}
