// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Sizes that CREATE_QUEUE checks: the context save area and its control stack.
//!
//! The kernel publishes `cwsr_size` and `ctl_stack_size`; the formula is that of the thunk and of kernel 7.3's
//! `kfd_queue.c`, and serves where the topology is not there.

use crate::topology::Properties;

const PAGE: u64 = 4096;
const SGPR_BYTES: u64 = 0x4000;
const LDS_BYTES: u64 = 0x10000;
const HWREG_BYTES: u64 = 0x1000;
const DEBUGGER_BYTES_PER_WAVE: u64 = 32;

/// Sizes in bytes of the save area of one compute queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveArea {
    /// `ctl_stack_size`.
    pub control_stack: u32,
    /// `ctx_save_restore_size`.
    pub context: u32,
    /// Debugger memory behind it.
    pub debugger: u32,
    /// What has to be allocated.
    pub total: u64,
}

/// What the sizes depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Compute units of one XCC.
    pub compute_units: u64,
    /// Shader engines.
    pub engines: u64,
    /// `gfx_target_version`, such as 90010.
    pub gfx: u64,
    /// XCCs.
    pub xccs: u64,
}

impl Shape {
    /// The shape that a GPU's node describes.
    pub fn of_node(p: &Properties) -> Option<Self> {
        let xccs = p.get("num_xcc").filter(|&n| n != 0).unwrap_or(1);
        let per_cu = p.get("simd_per_cu").filter(|&n| n != 0)?;
        let per_engine = p.get("simd_arrays_per_engine").filter(|&n| n != 0)?;
        Some(Self {
            compute_units: p.get("simd_count")? / per_cu / xccs,
            engines: p.get("array_count")? / per_engine,
            gfx: p.get("gfx_target_version")?,
            xccs,
        })
    }

    /// The shape of a known PCI device.
    pub fn of_pci_device(device: u32) -> Option<Self> {
        let (compute_units, engines, gfx) = match device {
            0x740f => (104, 8, 90010),
            0x66a1 => (60, 4, 90006),
            0x74a1 => (38, 4, 90402),
            _ => return None,
        };
        Some(Self {
            compute_units,
            engines,
            gfx,
            xccs: 1,
        })
    }

    /// The sizes.
    pub fn save_area(&self) -> Option<SaveArea> {
        let vgpr = match self.gfx {
            90402 | 90010 | 90008 => 0x80000,
            _ => 0x40000,
        };
        let waves = (self.compute_units * 40).min(self.engines * 512);
        let control_stack = (40 + waves * 8 + 8).next_multiple_of(PAGE);
        let groups = self.compute_units * (vgpr + SGPR_BYTES + LDS_BYTES + HWREG_BYTES);
        let context = control_stack + groups.next_multiple_of(PAGE);
        Self::area(control_stack, context, waves, self.xccs)
    }

    /// The sizes, with those that the kernel printed.
    pub fn save_area_of_node(p: &Properties) -> Option<SaveArea> {
        let shape = Self::of_node(p)?;
        let computed = shape.save_area()?;
        let (Some(context), Some(stack)) = (p.get("cwsr_size"), p.get("ctl_stack_size")) else {
            return Some(computed);
        };
        if context == 0 || stack == 0 {
            return Some(computed);
        }
        let waves = (shape.compute_units * 40).min(shape.engines * 512);
        Self::area(stack, context, waves, shape.xccs)
    }

    fn area(control_stack: u64, context: u64, waves: u64, xccs: u64) -> Option<SaveArea> {
        let debugger = (waves * DEBUGGER_BYTES_PER_WAVE).next_multiple_of(64);
        Some(SaveArea {
            control_stack: u32::try_from(control_stack).ok()?,
            context: u32::try_from(context).ok()?,
            debugger: u32::try_from(debugger).ok()?,
            total: ((context + debugger) * xccs).next_multiple_of(PAGE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_parts() {
        for (device, control_stack, context, debugger, total) in [
            (0x740f, 0x9000, 0x3c9_1000, 0x20000, 0x3cb_1000),
            (0x66a1, 0x5000, 0x13f_1000, 0x10000, 0x140_1000),
            (0x74a1, 0x3000, 0x162_1000, 0xbe00, 0x162_d000),
        ] {
            let area = Shape::of_pci_device(device).unwrap().save_area().unwrap();
            assert_eq!(
                area,
                SaveArea {
                    control_stack,
                    context,
                    debugger,
                    total
                },
                "{device:#x}"
            );
        }
        assert_eq!(Shape::of_pci_device(0x1234), None);
    }

    #[test]
    fn the_kernels_figures_win() {
        let text =
            "simd_count 16\nsimd_per_cu 4\nnum_xcc 1\narray_count 4\nsimd_arrays_per_engine 1\n\
                    gfx_target_version 90402\ncwsr_size 8192\nctl_stack_size 4096\n";
        let p = Properties::parse(text).unwrap();
        let area = Shape::save_area_of_node(&p).unwrap();
        assert_eq!(
            (area.context, area.control_stack, area.debugger),
            (8192, 4096, 0x1400)
        );
        assert_eq!(
            Shape::of_node(&p).unwrap().save_area().unwrap().context,
            0x255000
        );
    }
}
