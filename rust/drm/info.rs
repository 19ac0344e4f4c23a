// SPDX-License-Identifier: GPL-2.0

//! `AMDGPU_INFO`: what `libdrm_amdgpu` asks of the render node.
//!
//! The numbers and layouts are those of `amdgpu_drm.h`. A query that concerns a block that this
//! driver does not have (display, video, graphics rings) answers what `amdgpu` answers for a device
//! without it. As there, the caller gets as many bytes as it asked for, at most what there is.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::regs;
use crate::{
    gpu::{
        account,
        silicon::Silicon,
        Gpu, //
    },
    hw::{
        asic::AsicDesc,
        num::{
            hi32,
            lo32, //
        }, //
    },
    kapi::drm_ioctl::Reply,
    vm::{
        pt::{
            HUGE,
            PAGE, //
        },
        va, //
    },
};

/// Number among the driver commands.
pub(super) const NR: u32 = 5;

/// `AMDGPU_INFO_*`.
mod query {
    pub(super) const ACCEL_WORKING: u32 = 0x00;
    pub(super) const TIMESTAMP: u32 = 0x05;
    pub(super) const NUM_BYTES_MOVED: u32 = 0x0f;
    pub(super) const VRAM_USAGE: u32 = 0x10;
    pub(super) const GTT_USAGE: u32 = 0x11;
    pub(super) const VRAM_GTT: u32 = 0x14;
    pub(super) const READ_MMR_REG: u32 = 0x15;
    pub(super) const DEV_INFO: u32 = 0x16;
    pub(super) const VIS_VRAM_USAGE: u32 = 0x17;
    pub(super) const NUM_EVICTIONS: u32 = 0x18;
    pub(super) const MEMORY: u32 = 0x19;
    pub(super) const SENSOR: u32 = 0x1d;
    pub(super) const NUM_VRAM_CPU_PAGE_FAULTS: u32 = 0x1e;
    pub(super) const VRAM_LOST_COUNTER: u32 = 0x1f;
}

/// `AMDGPU_FAMILY_AI`: everything that is gfx9.
const FAMILY_AI: u32 = 141;
/// `AMDGPU_VRAM_TYPE_HBM`.
const VRAM_TYPE_HBM: u32 = 6;
/// Reference clock of the counter in kHz (100 MHz on all supported ASICs).
const COUNTER_KHZ: u32 = 100_000;
/// First address of the upper half of the 48-bit space, and what the kernel keeps at its end: the
/// trap handler's 64 KiB and twice 2 MiB (`AMDGPU_VA_RESERVED_TOP`).
const HIGH_VA_START: u64 = 0xffff_8000_0000_0000;
const RESERVED_TOP: u64 = 0x1_0000 + 2 * 0x20_0000;
/// Registers that one call may read.
const MAX_REGS: u32 = 128;
/// Shader engines and arrays that `instance` can select; all ones selects all.
const MAX_SE: u32 = 4;
const MAX_SH: u32 = 2;
const SELECT_ALL: u32 = 0xff;
/// Words of `drm_amdgpu_info_device`.
const DEV_INFO_WORDS: usize = 110;

/// An answer under construction: 32-bit words in the order of the C structure.
pub(crate) struct Answer(KVec<u32>);

impl Answer {
    fn new() -> Self {
        Self(KVec::new())
    }

    fn u32(&mut self, value: u32) -> Result<&mut Self> {
        self.0.push(value, GFP_KERNEL)?;
        Ok(self)
    }

    fn u64(&mut self, value: u64) -> Result<&mut Self> {
        self.u32(lo32(value))?.u32(hi32(value))
    }

    fn zeros(&mut self, words: usize) -> Result<&mut Self> {
        for _ in 0..words {
            self.u32(0)?;
        }
        Ok(self)
    }

    /// The words.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn words(&self) -> &[u32] {
        &self.0
    }

    /// As it goes to user address `pointer`, at most `size` bytes of it.
    fn reply(&self, pointer: u64, size: u32) -> Result<Reply> {
        let mut bytes = KVec::with_capacity(4 * self.0.len(), GFP_KERNEL)?;
        for word in &self.0 {
            bytes.extend_from_slice(&word.to_ne_bytes(), GFP_KERNEL)?;
        }
        bytes.truncate(crate::hw::num::index(size));
        Ok(Reply::new(pointer, bytes))
    }
}

/// Answers a query; `arg` is `struct drm_amdgpu_info`.
///
/// # Errors
///
/// - `EINVAL`: no buffer, an unknown query, or one about a block that is not there.
/// - `EFAULT`: a register may not be read.
/// - `ENOENT`: a sensor.
/// - `EIO`, `ENODEV`, `ENOMEM`.
pub(super) fn query(gpu: &Arc<Gpu>, arg: [u32; 8]) -> Result<Reply> {
    let [pointer_lo, pointer_hi, size, query, args @ ..] = arg;
    let pointer = u64::from(pointer_hi) << 32 | u64::from(pointer_lo);
    if size == 0 || pointer == 0 {
        return Err(EINVAL);
    }
    answer(gpu, query, args)?.reply(pointer, size)
}

fn answer(gpu: &Arc<Gpu>, query: u32, args: [u32; 4]) -> Result<Answer> {
    let mut answer = Answer::new();
    match query {
        query::ACCEL_WORKING => {
            // A caller means to submit work, which a device that is gone does not take.
            gpu.enter()?;
            answer.u32(1)?;
        }
        query::TIMESTAMP => {
            answer.u64(gpu.clock_counter()?)?;
        }
        // Buffers stay where they are.
        query::NUM_BYTES_MOVED | query::NUM_EVICTIONS | query::NUM_VRAM_CPU_PAGE_FAULTS => {
            answer.u64(0)?;
        }
        // All VRAM that is handed out is visible.
        query::VRAM_USAGE | query::VIS_VRAM_USAGE => {
            answer.u64(gpu.vram().used())?;
        }
        query::GTT_USAGE => {
            answer.u64(account::system().allocated.used())?;
        }
        query::VRAM_GTT => {
            let usable = gpu.vram().total();
            answer
                .u64(usable)?
                .u64(usable.min(gpu.info().vram_visible))?
                .u64(account::system().allocated.limit())?;
        }
        query::MEMORY => memory(gpu, &mut answer)?,
        query::READ_MMR_REG => registers(gpu, args, &mut answer)?,
        query::DEV_INFO => return device(gpu.asic(), &Identity::of(gpu)),
        // There is no power management to ask.
        query::SENSOR => return Err(ENOENT),
        query::VRAM_LOST_COUNTER => {
            answer.u32(0)?;
        }
        _ => return Err(EINVAL),
    }
    Ok(answer)
}

/// `struct drm_amdgpu_memory_info`: VRAM, visible VRAM, system memory.
fn memory(gpu: &Gpu, answer: &mut Answer) -> Result {
    let (info, vram) = (gpu.info(), gpu.vram());
    let system = &account::system().allocated;
    let heaps = [
        (info.vram_size, vram.total(), vram.used()),
        (
            info.vram_visible,
            vram.total().min(info.vram_visible),
            vram.used(),
        ),
        (system.limit(), system.limit(), system.used()),
    ];
    for (total, usable, used) in heaps {
        answer
            .u64(total)?
            .u64(usable)?
            .u64(used)?
            .u64(usable / 4 * 3)?;
    }
    Ok(())
}

/// `AMDGPU_INFO_READ_MMR_REG`: `count` registers from dword `offset` on.
fn registers(gpu: &Gpu, args: [u32; 4], answer: &mut Answer) -> Result {
    let [offset, count, instance, _flags] = args;
    let (engine, array) = (instance & 0xff, instance >> 8 & 0xff);
    // What is checked is all that it is for: none of the registers differs between engines.
    if (engine != SELECT_ALL && engine >= MAX_SE) || (array != SELECT_ALL && array >= MAX_SH) {
        return Err(EINVAL);
    }
    if count > MAX_REGS {
        return Err(EINVAL);
    }
    let hw = gpu.enter()?;
    for i in 0..count {
        let offset = offset.checked_add(i).ok_or(EFAULT)?;
        answer.u32(regs::read_allowed(&hw, offset)?)?;
    }
    Ok(())
}

/// What of a GPU does not follow from its ASIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// PCI device id.
    pub(crate) device_id: u32,
    /// Silicon revision.
    pub(crate) revision: u32,
    /// PCI revision.
    pub(crate) pci_revision: u32,
    /// What the device reports of itself.
    pub(crate) silicon: Silicon,
}

impl Identity {
    fn of(gpu: &Gpu) -> Self {
        let info = gpu.info();
        Self {
            device_id: u32::from(info.device_id),
            revision: info.revision,
            pci_revision: u32::from(info.pci_revision),
            silicon: info.silicon,
        }
    }
}

/// `struct drm_amdgpu_info_device`. What only graphics needs, and what is not known here (the
/// link's speed and width, the lowest clocks, what the power controller does not tell, cache sizes that newer
/// chips report here), is 0.
pub(crate) fn device(asic: &AsicDesc, identity: &Identity) -> Result<Answer> {
    let (shader, silicon) = (&asic.shader, &identity.silicon);
    let engine_khz = u64::from(silicon.engine_clock_mhz) * 1000;
    let memory_khz = u64::from(silicon.memory_clock_mhz) * 1000;
    // Where the driver counts external revisions from (`soc15_common_early_init`).
    let external = match asic.ip.gc.2 {
        0 => 0x28,
        2 => 0x3c,
        _ => 0x46,
    };

    let mut answer = Answer::new();
    let a = &mut answer;
    a.u32(identity.device_id)?
        .u32(identity.revision)?
        .u32(identity.revision + external)?
        .u32(identity.pci_revision)?
        .u32(FAMILY_AI)?
        .u32(shader.engines)?
        .u32(shader.arrays_per_engine)?
        .u32(COUNTER_KHZ)?
        .u64(engine_khz)?
        .u64(memory_khz)?
        .u32(silicon.units.count())?
        // cu_ao_mask: no unit is always on.
        .u32(0)?;
    // cu_bitmap: engine n lies in row n % 4, column n / 4 (`gfx_v9_0_get_cu_info`).
    for row in 0..4 {
        for column in 0..4 {
            a.u32(silicon.units.mask(column * 4 + row))?;
        }
    }
    // enabled_rb_pipes_mask, num_rb_pipes, num_hw_gfx_contexts, pcie_gen.
    a.u32(0)?
        .u32(0)?
        .u32(0)?
        .u32(0)?
        // ids_flags: a discrete GPU.
        .u64(0)?
        .u64(va::USER_START)?
        .u64(va::USER_END)?
        .u32(lo32(PAGE))?
        .u32(lo32(HUGE))?
        .u32(lo32(PAGE))?
        // ce_ram_size.
        .u32(0)?
        .u32(VRAM_TYPE_HBM)?
        .u32(asic.topology.memory_width)?
        // vce_harvest_config, gc_double_offchip_lds_buf.
        .zeros(2)?
        // Addresses and sizes of four primitive buffers.
        .zeros(12)?
        .u32(shader.wave_front)?
        // num_shader_visible_vgprs.
        .u32(256)?
        .u32(shader.max_cu_per_array)?
        // num_tcc_blocks, gs_vgt_table_depth, gs_prim_buffer_depth, max_gs_waves_per_vgt,
        // pcie_num_lanes.
        .zeros(5)?
        // cu_ao_bitmap.
        .zeros(16)?
        .u64(HIGH_VA_START)?
        .u64(RESERVED_TOP.wrapping_neg())?
        // pa_sc_tile_steering_override, pad, tcc_disabled_mask.
        .zeros(4)?
        // min_engine_clock, min_memory_clock: the power controller is asked for the highest only.
        .u64(0)?
        .u64(0)?;
    let rest = DEV_INFO_WORDS.checked_sub(a.0.len()).ok_or(EINVAL)?;
    a.zeros(rest)?;
    Ok(answer)
}
