// SPDX-License-Identifier: GPL-2.0

//! QUERY: what the GPU is and has.

use kernel::{
    prelude::*,
    transmute::AsBytes, //
};

use super::{
    args::{
        require_zero,
        user_slice, //
        Device,
        File,
    },
    bind,
    uapi::{
        self,
        DeviceAnswer,
        HeapAnswer,
        Query, //
    }, //
};
use crate::{
    gpu::{
        account,
        DoorbellSlice,
        Gpu, //
    },
    hw::asic::EOP_BYTES,
    queue::manager::max_per_device,
    sched::{
        Scheduler,
        QUEUES_PER_ENGINE, //
    },
    vm::{
        pt::{
            GIB,
            HUGE,
            PAGE, //
        },
        va, //
    },
};

/// Reference clock of the counter (100 MHz on all supported ASICs).
const CLOCK_HZ: u64 = 100_000_000;

/// Answers a query: writes as much of the answer as the caller has room for, and tells its size.
///
/// # Errors
///
/// - `EINVAL`: an unknown query, or a flag.
/// - `EFAULT`: the answer cannot be written.
/// - `ENODEV`: the GPU is gone.
pub(super) fn query(dev: &Device, _file: &File, arg: &mut Query) -> Result {
    require_zero(&[arg.flags, arg.pad])?;
    let gpu = dev.gpu();
    match arg.what {
        uapi::query::DEVICE => answer(arg, AsBytes::as_bytes(&device(gpu, dev.sched()))),
        uapi::query::HEAPS => {
            let [vram, system] = heaps(gpu);
            let mut bytes = [0; 2 * core::mem::size_of::<HeapAnswer>()];
            let (first, second) = bytes.split_at_mut(core::mem::size_of::<HeapAnswer>());
            first.copy_from_slice(AsBytes::as_bytes(&vram));
            second.copy_from_slice(AsBytes::as_bytes(&system));
            answer(arg, &bytes)
        }
        _ => Err(EINVAL),
    }
}

fn answer(arg: &mut Query, bytes: &[u8]) -> Result {
    let len = bytes.len().min(crate::hw::num::index(arg.size));
    arg.size = crate::hw::num::len32(bytes.len());
    let part = bytes.get(..len).ok_or(EINVAL)?;
    user_slice(arg.data, len)?.writer().write_slice(part)
}

fn feature(is_there: bool, feature: u32) -> u32 {
    if is_there {
        feature
    } else {
        0
    }
}

fn device(gpu: &Gpu, sched: &Scheduler) -> DeviceAnswer {
    let (asic, info) = (gpu.asic(), gpu.info());
    let units = info.silicon.units.count();
    let save = asic.shader.save_area(units, asic.num_xcc);
    let migrates = gpu.device_pages().may_populate();
    let moves_by_access = migrates && asic.xnack_per_process;
    DeviceAnswer {
        version: uapi::VERSION,
        features: feature(sched.takes_turns(), uapi::FEATURE_QUEUES_TAKE_TURNS)
            | feature(migrates, uapi::FEATURE_MIGRATION)
            | feature(moves_by_access, uapi::FEATURE_MOVES_BY_ACCESS),
        gfx_target: asic.gfx_target_version,
        pci_device: u32::from(info.device_id),
        pci_revision: u32::from(info.pci_revision),
        compute_units: units,
        wave_size: asic.shader.wave_front,
        xccs: asic.num_xcc,
        va_start: va::USER_START,
        va_end: va::USER_END,
        page_sizes: PAGE | HUGE | GIB,
        clock_hz: CLOCK_HZ,
        sdma_engines: asic.sdma_engines(),
        sdma_general: asic.sdma_general_engines,
        sdma_queues: QUEUES_PER_ENGINE,
        max_queues: crate::hw::num::len32(max_per_device(asic)),
        doorbell_bytes: DoorbellSlice::SIZE,
        eop_bytes: EOP_BYTES,
        save_bytes: save.cwsr,
        ctl_stack_bytes: save.ctl_stack,
        debug_bytes: save.debug,
        max_binds: bind::MAX_OPS,
    }
}

fn heaps(gpu: &Gpu) -> [HeapAnswer; 2] {
    let vram = gpu.vram_budget();
    let system = &account::system().allocated;
    let total = vram.limit();
    [
        HeapAnswer {
            heap: uapi::heap::VRAM,
            flags: 0,
            total,
            used: vram.used(),
            // All VRAM that is handed out is visible.
            cpu_visible: total.min(gpu.info().vram_visible),
        },
        HeapAnswer {
            heap: uapi::heap::SYSTEM,
            flags: 0,
            total: system.limit(),
            used: system.used(),
            cpu_visible: system.limit(),
        },
    ]
}
