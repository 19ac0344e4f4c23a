// SPDX-License-Identifier: GPL-2.0

//! Sizes of the area into which waves are saved when a queue is preempted (CWSR).
//!
//! User space allocates the area and computes its size by the same formula, so both must agree to
//! the byte. Source: `kfd_queue.c` `kfd_queue_ctx_save_restore_size`; the thunk's `queues.c`.

use super::num;
use super::pte::PAGE;

/// Bytes of scalar registers of a compute unit.
const SGPR_BYTES: u64 = 0x4000;
/// Bytes of local data share of a compute unit.
const LDS_BYTES: u64 = 0x1_0000;
/// Bytes of hardware registers of a compute unit.
const HWREG_BYTES: u64 = 0x1000;
/// Waves of a compute unit.
const WAVES_PER_CU: u64 = 40;
/// Cap of waves per shader engine.
const WAVES_PER_SE: u64 = 512;
/// Control stack bytes of one wave.
const CONTROL_STACK_PER_WAVE: u64 = 8;
/// Debugger bytes of one wave.
const DEBUG_PER_WAVE: u64 = 32;
/// Bytes of the header at the start of the area.
pub(crate) const HEADER_BYTES: u64 = 40;
/// Alignment of the debugger part.
const DEBUG_ALIGN: u64 = 64;

/// Sizes in bytes for one XCC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Waves that can be resident.
    pub(crate) waves: u32,
    /// Control stack, header included.
    pub(crate) ctl_stack: u32,
    /// Control stack and wave state.
    pub(crate) cwsr: u32,
    /// Debugger memory after the above.
    pub(crate) debug: u32,
    /// The whole area for `num_xcc` XCCs.
    pub(crate) total: u64,
}

/// Computes the sizes.
///
/// `cu_count` compute units per XCC, `shader_engines` of them, `vgpr_bytes` per compute unit.
pub(crate) const fn sizes(
    cu_count: u32,
    shader_engines: u32,
    vgpr_bytes: u32,
    num_xcc: u32,
) -> Sizes {
    let cu = num::widen(cu_count);
    let by_cu = cu * WAVES_PER_CU;
    let by_se = num::widen(shader_engines) * WAVES_PER_SE;
    let waves = if by_cu < by_se { by_cu } else { by_se };
    let ctl_stack = up(HEADER_BYTES + waves * CONTROL_STACK_PER_WAVE + 8, PAGE);
    let wave_state = cu * (num::widen(vgpr_bytes) + SGPR_BYTES + LDS_BYTES + HWREG_BYTES);
    let cwsr = up(ctl_stack + up(wave_state, PAGE), PAGE);
    let debug = up(waves * DEBUG_PER_WAVE, DEBUG_ALIGN);
    Sizes {
        waves: num::lo32(waves),
        ctl_stack: num::lo32(ctl_stack),
        cwsr: num::lo32(cwsr),
        debug: num::lo32(debug),
        total: up((cwsr + debug) * num::widen(num_xcc), PAGE),
    }
}

/// `align_up` of values that are far from overflow: all inputs are products of ASIC constants.
const fn up(value: u64, align: u64) -> u64 {
    match num::align_up(value, align) {
        Some(v) => v,
        None => u64::MAX & !(align - 1),
    }
}

/// What a preempted queue has saved, from the four words that the microcode leaves in the MQD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedState {
    /// Offset of the first used byte of the control stack in the area.
    pub(crate) ctl_stack_offset: u32,
    /// Used bytes of the control stack.
    pub(crate) ctl_stack_used: u32,
    /// Offset of the end of the wave state.
    pub(crate) wave_state_offset: u32,
    /// Used bytes of the wave state.
    pub(crate) wave_state_used: u32,
}

impl SavedState {
    /// Interprets `cntl_stack_size`, `cntl_stack_offset` and `wg_state_offset` of an MQD whose
    /// queue was created with `ctl_stack` and `cwsr` bytes.
    ///
    /// The stack grows down from its size, the wave state up from there. `None` if hardware left
    /// values outside the area.
    pub(crate) const fn new(
        cntl_stack_size: u32,
        cntl_stack_offset: u32,
        wg_state_offset: u32,
        ctl_stack: u32,
        cwsr: u32,
    ) -> Option<Self> {
        if cntl_stack_size > ctl_stack
            || cntl_stack_offset > cntl_stack_size
            || wg_state_offset < cntl_stack_size
            || wg_state_offset > cwsr
        {
            return None;
        }
        Some(Self {
            ctl_stack_offset: cntl_stack_offset,
            ctl_stack_used: cntl_stack_size - cntl_stack_offset,
            wave_state_offset: wg_state_offset,
            wave_state_used: wg_state_offset - cntl_stack_size,
        })
    }

    /// The first 16 bytes of the header of the area, as the kernel writes them for user space.
    pub(crate) const fn header(self) -> [u32; 4] {
        [
            self.ctl_stack_offset,
            self.ctl_stack_used,
            self.wave_state_offset,
            self.wave_state_used,
        ]
    }
}
