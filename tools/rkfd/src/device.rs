// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Finding GPUs and opening one.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;

use nix::errno::Errno;

use crate::abi;
use crate::error::Error;
use crate::error::Result;
use crate::hdp::FlushPage;
use crate::sizes::SaveArea;
use crate::sizes::Shape;
use crate::sys;
use crate::sys::Argument;
use crate::sys::Mapping;
use crate::topology::Node;
use crate::topology::Topology;

/// Bytes of a process's doorbell slice.
pub const DOORBELL_SLICE: usize = 8192;

/// The open `/dev/kfd`.
#[derive(Debug)]
pub struct Kfd {
    file: File,
    version: (u32, u32),
}

/// A GPU that the driver serves.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Its id in every call.
    pub id: u32,
    /// Its apertures.
    pub apertures: abi::Apertures,
    /// Its node, where the driver publishes a topology.
    pub node: Option<Node>,
}

impl Gpu {
    /// Its PCI device: the one behind the render node that its node names, or behind the only render node there is.
    pub fn pci(&self) -> Option<PciIdentity> {
        match render_nodes(self).as_slice() {
            [only] => pci_identity(only),
            _ => None,
        }
    }

    /// `gfx_target_version`, such as 90010; 0 where it is not known.
    pub fn gfx(&self) -> u64 {
        self.node
            .as_ref()
            .and_then(|n| n.properties.get("gfx_target_version"))
            .or_else(|| Some(Shape::of_pci_device(self.pci()?.device)?.gfx))
            .unwrap_or(0)
    }
}

/// What the PCI device behind a render node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PciIdentity {
    /// The address, such as `0000:00:03.0`.
    pub address: String,
    /// Vendor id.
    pub vendor: u32,
    /// Device id.
    pub device: u32,
    /// Subsystem vendor id.
    pub subsystem_vendor: u32,
    /// Subsystem device id.
    pub subsystem_device: u32,
    /// Revision.
    pub revision: u32,
}

impl PciIdentity {
    /// True for the device model, false for a card.
    pub fn is_model(&self) -> bool {
        self.subsystem_vendor == 0x1af4 && self.subsystem_device == 0x6b66
    }
}

impl Kfd {
    /// Opens `/dev/kfd` and checks its interface version.
    ///
    /// # Errors
    /// [`Error::NoDriver`] where there is none; [`Error::File`], [`Error::Version`], [`Error::Call`].
    pub fn open() -> Result<Arc<Self>> {
        let path = Path::new("/dev/kfd");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => Error::NoDriver,
                _ => Error::file(path)(e),
            })?;
        let mut v = abi::GetVersion::default();
        // SAFETY: the argument has no pointers.
        unsafe { sys::call_again(&file, "GET_VERSION", abi::GET_VERSION, &mut v) }?;
        if v.major_version != 1 {
            return Err(Error::Version(v.major_version, v.minor_version));
        }
        Ok(Arc::new(Self {
            file,
            version: (v.major_version, v.minor_version),
        }))
    }

    /// Interface version: major, minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Makes a call whose argument holds no pointers.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub(crate) fn plain<T: Argument>(
        &self,
        name: &'static str,
        command: u32,
        arg: &mut T,
    ) -> Result<()> {
        // SAFETY: callers pass arguments without pointers, or with addresses that the kernel checks for the calling
        // process and that are never dereferenced here.
        unsafe { sys::call_again(&self.file, name, command, arg) }
    }

    /// The GPUs, in the driver's order; empty where there is none.
    ///
    /// # Errors
    /// [`Error::Call`], and those of [`Topology::read`].
    pub fn gpus(&self) -> Result<Vec<Gpu>> {
        const NAME: &str = "GET_PROCESS_APERTURES_NEW";
        let mut count = abi::GetAperturesNew::default();
        self.plain(NAME, abi::GET_PROCESS_APERTURES_NEW, &mut count)?;
        if count.num_of_nodes == 0 {
            return Ok(Vec::new());
        }
        // CAST: a count of GPUs.
        let mut list = vec![abi::Apertures::default(); count.num_of_nodes as usize];
        let mut get = abi::GetAperturesNew {
            // CAST: an address.
            kfd_process_device_apertures_ptr: list.as_mut_ptr() as u64,
            num_of_nodes: count.num_of_nodes,
            pad: 0,
        };
        // SAFETY: the pointer names `num_of_nodes` entries that live across the call.
        unsafe { sys::call_again(&self.file, NAME, abi::GET_PROCESS_APERTURES_NEW, &mut get) }?;
        // CAST: as above.
        list.truncate(get.num_of_nodes as usize);
        let topology = Topology::read()?;
        let node = |id| topology.as_ref().and_then(|t| t.gpu(id)).cloned();
        Ok(list
            .into_iter()
            .map(|a| Gpu {
                id: a.gpu_id,
                apertures: a,
                node: node(a.gpu_id),
            })
            .collect())
    }

    /// Reads the clocks. A GPU that does not exist counts 0.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn clocks(&self, gpu_id: u32) -> Result<abi::GetClockCounters> {
        let mut arg = abi::GetClockCounters {
            gpu_id,
            ..Default::default()
        };
        self.plain("GET_CLOCK_COUNTERS", abi::GET_CLOCK_COUNTERS, &mut arg)?;
        Ok(arg)
    }
}

impl Kfd {
    /// Has the driver report exceptions of this process's queues (RUNTIME_ENABLE): what waves run into, and packets that
    /// cannot run, in [`crate::queue::error::QueueError::exceptions`]. A process has one runtime.
    ///
    /// # Errors
    /// [`Error::Call`]; `EBUSY` where the process has enabled it already, this library or another, and `EEXIST` where it has
    /// queues.
    pub fn enable_runtime(&self) -> Result<()> {
        let mut arg = abi::RuntimeEnable {
            mode_mask: abi::RUNTIME_MODE_ENABLE,
            ..Default::default()
        };
        self.plain("RUNTIME_ENABLE", abi::RUNTIME_ENABLE, &mut arg)
    }
}

impl AsFd for Kfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Render nodes that may belong to `gpu`: the one its node names, or else all there are.
fn render_nodes(gpu: &Gpu) -> Vec<PathBuf> {
    if let Some(minor) = gpu
        .node
        .as_ref()
        .and_then(|n| n.properties.get("drm_render_minor"))
        .filter(|&m| m != 0)
    {
        return vec![PathBuf::from(format!("/dev/dri/renderD{minor}"))];
    }
    let mut found: Vec<PathBuf> = fs::read_dir("/dev/dri")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("renderD"))
        .map(|e| e.path())
        .collect();
    found.sort();
    found
}

/// The PCI device behind a render node.
pub fn pci_identity(render: &Path) -> Option<PciIdentity> {
    let dir = Path::new("/sys/class/drm")
        .join(render.file_name()?)
        .join("device");
    let hex = |name: &str| -> Option<u32> {
        let text = fs::read_to_string(dir.join(name)).ok()?;
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    Some(PciIdentity {
        address: fs::canonicalize(&dir)
            .ok()?
            .file_name()?
            .to_string_lossy()
            .into_owned(),
        vendor: hex("vendor")?,
        device: hex("device")?,
        subsystem_vendor: hex("subsystem_vendor")?,
        subsystem_device: hex("subsystem_device")?,
        revision: hex("revision").unwrap_or(0),
    })
}

/// A GPU bound to this process by ACQUIRE_VM.
#[derive(Debug)]
pub struct Device {
    kfd: Arc<Kfd>,
    gpu: Gpu,
    render: File,
    render_path: PathBuf,
    pci: Option<PciIdentity>,
    doorbells: Mutex<Option<Arc<Mapping>>>,
    /// Nothing inside where the driver has none.
    flush_page: OnceLock<Option<FlushPage>>,
}

impl Device {
    /// Binds the process's address space on `gpu` to a newly opened render node.
    ///
    /// A process has one compute address space per GPU: a second binding to another open file is EBUSY.
    ///
    /// # Errors
    /// [`Error::NoRenderNode`] where no render node is the GPU's; [`Error::File`], [`Error::Call`].
    pub fn open(kfd: &Arc<Kfd>, gpu: &Gpu) -> Result<Arc<Self>> {
        let candidates = render_nodes(gpu);
        let single = candidates.len() == 1;
        for path in candidates {
            let render = match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(f) => f,
                Err(e) if single => return Err(Error::file(path)(e)),
                Err(_) => continue,
            };
            let drm_fd =
                u32::try_from(render.as_raw_fd()).map_err(|_| Error::Argument("A negative fd"))?;
            let mut arg = abi::AcquireVm {
                drm_fd,
                gpu_id: gpu.id,
            };
            match kfd.plain("ACQUIRE_VM", abi::ACQUIRE_VM, &mut arg) {
                Ok(()) => {
                    return Ok(Arc::new(Self {
                        kfd: kfd.clone(),
                        gpu: gpu.clone(),
                        render,
                        pci: pci_identity(&path),
                        render_path: path,
                        doorbells: Mutex::new(None),
                        flush_page: OnceLock::new(),
                    }))
                }
                // Another device's render node: the next one may be it.
                Err(e) if !single && e.errno() == Some(Errno::EINVAL) => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::NoRenderNode(gpu.id))
    }

    /// Opens the first GPU.
    ///
    /// # Errors
    /// [`Error::NoGpu`], and those of [`Kfd::open`] and [`Device::open`].
    pub fn first() -> Result<Arc<Self>> {
        let kfd = Kfd::open()?;
        let gpus = kfd.gpus()?;
        Self::open(&kfd, gpus.first().ok_or(Error::NoGpu)?)
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The GPU's id.
    pub fn id(&self) -> u32 {
        self.gpu.id
    }

    /// The driver.
    pub fn kfd(&self) -> &Arc<Kfd> {
        &self.kfd
    }

    /// The render node.
    pub fn render_path(&self) -> &Path {
        &self.render_path
    }

    pub(crate) fn render(&self) -> BorrowedFd<'_> {
        self.render.as_fd()
    }

    /// The PCI device, where sysfs tells.
    pub fn pci(&self) -> Option<&PciIdentity> {
        self.pci.as_ref()
    }

    /// `gfx_target_version`, such as 90010; 0 where it is not known.
    pub fn gfx(&self) -> u64 {
        self.gpu.gfx()
    }

    /// The GPU's shape, where the topology or the PCI id tells.
    pub fn shape(&self) -> Option<Shape> {
        self.gpu
            .node
            .as_ref()
            .and_then(|n| Shape::of_node(&n.properties))
            .or_else(|| Shape::of_pci_device(self.pci.as_ref()?.device))
    }

    /// Sizes of the save area of a compute queue.
    ///
    /// # Errors
    /// [`Error::Argument`] where neither the topology nor the PCI id tells.
    pub fn save_area(&self) -> Result<SaveArea> {
        self.gpu
            .node
            .as_ref()
            .and_then(|n| Shape::save_area_of_node(&n.properties))
            .or_else(|| Shape::of_pci_device(self.pci.as_ref()?.device)?.save_area())
            .ok_or(Error::Argument(
                "The GPU's shape is not known, hence not the size of its save area",
            ))
    }

    /// VRAM that can still be allocated, in bytes.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn available_memory(&self) -> Result<u64> {
        let mut arg = abi::AvailableMemory {
            gpu_id: self.id(),
            ..Default::default()
        };
        self.kfd
            .plain("AVAILABLE_MEMORY", abi::AVAILABLE_MEMORY, &mut arg)?;
        Ok(arg.available)
    }

    /// Flushes the host data path: what the CPU stored to VRAM before is there when a packet that is submitted afterwards
    /// reads it. Nothing happens where the driver offers no way to do so.
    pub fn flush_host_data_path(&self) {
        let page = self
            .flush_page
            .get_or_init(|| FlushPage::new(&self.kfd, self.id()).ok());
        if let Some(page) = page {
            page.flush();
        }
    }

    /// The process's doorbells on this GPU, mapped at the first call with the offset that CREATE_QUEUE returned.
    pub(crate) fn doorbells(&self, offset: u64) -> Result<Arc<Mapping>> {
        let mut slot = self
            .doorbells
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(mapping) = &*slot {
            return Ok(mapping.clone());
        }
        // CAST: a constant power of two.
        let base = offset & !(DOORBELL_SLICE as u64 - 1);
        let mapping = Arc::new(Mapping::of_device(&*self.kfd, DOORBELL_SLICE, base)?);
        *slot = Some(mapping.clone());
        Ok(mapping)
    }
}
