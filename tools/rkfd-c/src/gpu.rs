// SPDX-License-Identifier: GPL-2.0 OR MIT
//! GPUs and the process's address space on each.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use library::device;
use library::device::Device;
use library::device::Kfd;
use nix::errno::Errno;

use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::error::Result;
use crate::sized::answer;
use crate::sized::grows;

/// A GPU that the driver serves.
#[derive(Debug)]
pub struct Gpu {
    kfd: Arc<Kfd>,
    gpu: device::Gpu,
}

/// The process's address space on one GPU: what buffers, queues and events belong to.
#[derive(Debug)]
pub struct Vm {
    pub(crate) device: Arc<Device>,
}

/// What is known of a GPU; 0 and "" where the driver does not tell.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GpuInfo {
    /// sizeof(struct rkfd_gpu_info); set it before the call.
    pub size: u32,
    /// Its id in the driver's calls.
    pub gpu_id: u32,
    /// Its node in the topology.
    pub node: u32,
    /// Version of its instruction set, such as 90010 for gfx90a.
    pub gfx_target_version: u32,
    /// SIMD units, and how many of them make a compute unit.
    pub simd_count: u32,
    /// See `simd_count`.
    pub simd_per_cu: u32,
    /// Copy engines.
    pub sdma_engines: u32,
    /// PCI vendor id.
    pub vendor: u32,
    /// PCI device id.
    pub device: u32,
    /// 1 for the device model, 0 for a card.
    pub is_model: u32,
    /// Major version of the interface of /dev/kfd.
    pub kfd_major: u32,
    /// Its minor version.
    pub kfd_minor: u32,
    /// VRAM in bytes.
    pub vram_bytes: u64,
    /// First and last address that buffers may have.
    pub va_base: u64,
    /// See `va_base`.
    pub va_limit: u64,
    /// PCI address, such as "0000:00:03.0".
    pub pci: [c_char; 16],
    /// Name of the ASIC.
    pub name: [c_char; 32],
}

grows! {
    GpuInfo, "rkfd_gpu_info", 120;
}

/// `text`, cut so that a zero byte ends it.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(text.bytes().take(N.saturating_sub(1))) {
        // CAST: a byte is a byte; the sign of C's `char` is the platform's.
        *to = from as c_char;
    }
    out
}

/// Heap types of a memory bank that are VRAM: visible to the CPU or not.
const VRAM_HEAPS: [u64; 2] = [1, 2];

fn describe(gpu: &Gpu) -> GpuInfo {
    let node = gpu.gpu.node.as_ref();
    let number = |key| {
        node.and_then(|n| n.properties.get_u32(key))
            .unwrap_or_default()
    };
    let vram = node.map_or(0, |n| {
        n.mem_banks
            .iter()
            .filter(|b| b.get("heap_type").is_some_and(|t| VRAM_HEAPS.contains(&t)))
            .filter_map(|b| b.get("size_in_bytes"))
            .fold(0u64, u64::saturating_add)
    });
    let pci = gpu.gpu.pci();
    let (kfd_major, kfd_minor) = gpu.kfd.version();
    GpuInfo {
        size: 0,
        gpu_id: gpu.gpu.id,
        node: node.map(|n| n.index).unwrap_or_default(),
        gfx_target_version: u32::try_from(gpu.gpu.gfx()).unwrap_or_default(),
        simd_count: number("simd_count"),
        simd_per_cu: number("simd_per_cu"),
        sdma_engines: number("num_sdma_engines"),
        vendor: pci.as_ref().map(|p| p.vendor).unwrap_or_default(),
        device: pci.as_ref().map(|p| p.device).unwrap_or_default(),
        is_model: pci.as_ref().is_some_and(|p| p.is_model()).into(),
        kfd_major,
        kfd_minor,
        vram_bytes: vram,
        va_base: gpu.gpu.apertures.gpuvm_base,
        va_limit: gpu.gpu.apertures.gpuvm_limit,
        pci: chars(pci.as_ref().map_or("", |p| p.address.as_str())),
        name: chars(node.map_or("", |n| n.name.as_str())),
    }
}

/// Counts the GPUs. No driver is -ENODEV; a driver without a GPU is success and 0.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_gpu_count(count: Option<&mut MaybeUninit<u32>>) -> c_int {
    guard(|| {
        let count = given(count, "count")?;
        let found = Kfd::open()?.gpus()?.len();
        count.write(u32::try_from(found).unwrap_or(u32::MAX));
        Ok(())
    })
}

/// Opens the GPU with that number, from 0 in the driver's order. -ENODEV where there is none. Give it back with
/// rkfd_gpu_close; what was made from it lives on.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_gpu_open(
    index: u32,
    gpu: Option<&mut MaybeUninit<Option<Box<Gpu>>>>,
) -> c_int {
    guard(|| {
        let out = given(gpu, "gpu")?;
        out.write(None);
        let kfd = Kfd::open()?;
        let mut gpus = kfd.gpus()?;
        // CAST: 32 bits into 64.
        let index = index as usize;
        if index >= gpus.len() {
            let text = format!("No GPU {index}: there are {}", gpus.len());
            return Err(Failure::new(Errno::ENODEV, text));
        }
        let gpu = gpus.swap_remove(index);
        out.write(Some(Box::new(Gpu { kfd, gpu })));
        Ok(())
    })
}

/// Gives a GPU back; NULL is allowed.
///
/// MT-Unsafe race:gpu: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_gpu_close(gpu: Option<Box<Gpu>>) {
    release(gpu);
}

/// Describes a GPU, as it was when it was opened.
///
/// MT-Safe.
///
/// # Safety
/// `info` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_gpu_describe(gpu: Option<&Gpu>, info: *mut GpuInfo) -> c_int {
    guard(|| {
        let gpu = given(gpu, "gpu")?;
        // SAFETY: the caller's promise.
        unsafe { answer(info) }?.give(describe(gpu));
        Ok(())
    })
}

/// Address spaces by process and GPU. The kernel binds a process to one per GPU until the process ends, so they are kept.
///
/// The process is part of the key because a forked child has none, whatever it inherits.
static BOUND: Mutex<BTreeMap<(u32, u32), Arc<Device>>> = Mutex::new(BTreeMap::new());

fn bind(gpu: &Gpu) -> Result<Arc<Device>> {
    let key = (std::process::id(), gpu.gpu.id);
    let mut bound = BOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = bound.get(&key) {
        let gone = device
            .available_memory()
            .is_err_and(|e| e.errno() == Some(Errno::ENODEV));
        if !gone {
            return Ok(device.clone());
        }
    }
    let device = Device::open(&gpu.kfd, &gpu.gpu)?;
    bound.insert(key, device.clone());
    Ok(device)
}

/// Opens the process's address space on a GPU. There is one for each GPU until the process ends: opening again gives
/// another handle of the same. -EBUSY where the process bound it in another way than by this library.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_vm_open(
    gpu: Option<&Gpu>,
    vm: Option<&mut MaybeUninit<Option<Box<Vm>>>>,
) -> c_int {
    guard(|| {
        let out = given(vm, "vm")?;
        out.write(None);
        let device = bind(given(gpu, "gpu")?)?;
        out.write(Some(Box::new(Vm { device })));
        Ok(())
    })
}

/// Gives a handle of the address space back; NULL is allowed. What was made from it lives on.
///
/// MT-Unsafe race:vm: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_vm_close(vm: Option<Box<Vm>>) {
    release(vm);
}

/// VRAM that can still be allocated, in bytes.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_vm_available(
    vm: Option<&Vm>,
    bytes: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let (vm, bytes) = (given(vm, "vm")?, given(bytes, "bytes")?);
        bytes.write(vm.device.available_memory()?);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_ended() {
        assert_eq!(chars::<4>("ab"), [b'a' as c_char, b'b' as c_char, 0, 0]);
        assert_eq!(chars::<3>("abcd"), [b'a' as c_char, b'b' as c_char, 0]);
    }

    #[test]
    fn null_is_refused_and_closing_it_is_not() {
        let invalid = -(Errno::EINVAL as c_int);
        assert_eq!(rkfd_gpu_count(None), invalid);
        assert_eq!(rkfd_gpu_open(0, None), invalid);
        // SAFETY: NULL is allowed.
        let described = unsafe { rkfd_gpu_describe(None, std::ptr::null_mut()) };
        assert_eq!(described, invalid);
        assert_eq!(rkfd_vm_open(None, None), invalid);
        assert_eq!(rkfd_vm_available(None, None), invalid);
        rkfd_gpu_close(None);
        rkfd_vm_close(None);
    }
}
