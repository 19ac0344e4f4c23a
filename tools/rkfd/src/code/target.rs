// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which GPU code is for: the instruction set and the features that change what code may assume.
//!
//! Numbers: `e_flags` in `AMDGPUUsage` of LLVM (`EF_AMDGPU_MACH_*`, `EF_AMDGPU_FEATURE_*_V4`).

use std::fmt;

use crate::device::Device;

/// Whether code uses a feature of the hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feature {
    /// The instruction set has it not, or it is not known.
    #[default]
    None,
    /// Code that runs in either case.
    Any,
    /// Code that needs it off.
    Off,
    /// Code that needs it on.
    On,
}

impl Feature {
    fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::Any,
            2 => Self::Off,
            _ => Self::On,
        }
    }

    /// As the name of a target has it.
    fn suffix(self, name: &str) -> String {
        match self {
            Self::None | Self::Any => String::new(),
            Self::Off => format!(":{name}-"),
            Self::On => format!(":{name}+"),
        }
    }

    /// Whether code that says this runs where the GPU says `gpu`.
    fn runs_on(self, gpu: Self) -> bool {
        match (self, gpu) {
            (Self::Off, Self::On) | (Self::On, Self::Off) => false,
            (Self::None | Self::Any | Self::Off | Self::On, _) => true,
        }
    }
}

/// A target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// `EF_AMDGPU_MACH`.
    machine: u32,
    /// Whether the memory has ECC, with which loads of 16 bits write whole registers.
    pub sramecc: Feature,
    /// Whether accesses that fault are tried again.
    pub xnack: Feature,
}

/// Machine, name, and the `gfx_target_version` of the GPUs that run it.
const MACHINES: &[(u32, &str, &[u64])] = &[
    (0x2c, "gfx900", &[90000]),
    (0x2d, "gfx902", &[90002]),
    (0x2e, "gfx904", &[90004]),
    (0x2f, "gfx906", &[90006]),
    (0x30, "gfx908", &[90008]),
    (0x31, "gfx909", &[90009]),
    (0x32, "gfx90c", &[90012]),
    (0x3f, "gfx90a", &[90010]),
    (0x40, "gfx940", &[90400]),
    (0x4b, "gfx941", &[90401]),
    (0x4c, "gfx942", &[90402]),
    (
        0x51,
        "gfx9-generic",
        &[90000, 90002, 90004, 90006, 90009, 90012],
    ),
    (0x5f, "gfx9-4-generic", &[90400, 90401, 90402]),
];

/// `HSA_CAP_SRAM_EDCSUPPORTED` of a node's `capability`.
const SRAM_ECC: u64 = 1 << 19;

impl Target {
    /// What the flags of an ELF header say.
    pub fn from_flags(flags: u32) -> Self {
        Self {
            machine: flags & 0xff,
            xnack: Feature::from_bits(flags >> 8),
            sramecc: Feature::from_bits(flags >> 10),
        }
    }

    /// The target of a name such as `gfx90a:sramecc+:xnack-`. `None` for one that is not known here.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.split(':');
        let machine = parts.next()?;
        let mut target = Self {
            machine: MACHINES.iter().find(|(_, n, _)| *n == machine)?.0,
            sramecc: Feature::None,
            xnack: Feature::None,
        };
        for part in parts {
            let state = match part.chars().next_back()? {
                '+' => Feature::On,
                '-' => Feature::Off,
                _ => return None,
            };
            match part.get(..part.len() - 1)? {
                "sramecc" => target.sramecc = state,
                "xnack" => target.xnack = state,
                _ => return None,
            }
        }
        Some(target)
    }

    /// The target that a GPU of this `gfx_target_version` is, features left open. `None` for one that is not known here.
    pub fn from_version(gfx: u64) -> Option<Self> {
        let (machine, ..) = MACHINES.iter().find(|(_, _, runs)| *runs == [gfx])?;
        Some(Self {
            machine: *machine,
            sramecc: Feature::None,
            xnack: Feature::None,
        })
    }

    /// What a GPU is. Whether it tries faulting accesses again is a mode of the process, which is left open.
    pub fn of_device(device: &Device) -> Option<Self> {
        let target = Self::from_version(device.gfx())?;
        let capability = device
            .gpu()
            .node
            .as_ref()
            .and_then(|node| node.properties.get("capability"));
        let sramecc = match capability {
            None => Feature::None,
            Some(bits) if bits & SRAM_ECC != 0 => Feature::On,
            Some(_) => Feature::Off,
        };
        Some(Self { sramecc, ..target })
    }

    fn row(&self) -> Option<&'static (u32, &'static str, &'static [u64])> {
        MACHINES.iter().find(|row| row.0 == self.machine)
    }

    /// The processor's name, such as `gfx90a`; `None` for one that is not known here.
    pub fn processor(&self) -> Option<&'static str> {
        self.row().map(|row| row.1)
    }

    /// Whether code for this target runs on `gpu`.
    pub fn runs_on(&self, gpu: &Target) -> bool {
        let runs = self.row().map_or(&[][..], |row| row.2);
        let version = match gpu.row() {
            Some((_, _, [only])) => *only,
            _ => return false,
        };
        runs.contains(&version)
            && self.sramecc.runs_on(gpu.sramecc)
            && self.xnack.runs_on(gpu.xnack)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.processor() {
            Some(name) => f.write_str(name)?,
            None => write!(f, "machine {:#x}", self.machine)?,
        }
        f.write_str(&self.sramecc.suffix("sramecc"))?;
        f.write_str(&self.xnack.suffix("xnack"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_llvm() {
        // What clang 17 puts there for these names of targets.
        for (flags, name) in [
            (0x53f, "gfx90a"),
            (0xe3f, "gfx90a:sramecc+:xnack-"),
            (0xb3f, "gfx90a:sramecc-:xnack+"),
            (0x52f, "gfx906"),
            (0x54c, "gfx942"),
            (0x051, "gfx9-generic"),
            (0x011, "machine 0x11"),
        ] {
            assert_eq!(Target::from_flags(flags).to_string(), name, "{flags:#x}");
        }
        assert_eq!(
            Target::from_name("gfx90a:sramecc+:xnack-"),
            Some(Target::from_flags(0xe3f))
        );
        for none in [
            "",
            "gfx90b",
            "gfx90a:",
            "gfx90a:ecc+",
            "gfx90a:xnack",
            "gfx90a:é",
        ] {
            assert_eq!(Target::from_name(none), None, "{none:?}");
        }
    }

    #[test]
    fn code_runs_where_it_is_for() {
        let gpu = |gfx| Target::from_version(gfx).unwrap();
        let code = |name| Target::from_name(name).unwrap();
        assert!(code("gfx90a").runs_on(&gpu(90010)));
        assert!(code("gfx90a:sramecc-").runs_on(&gpu(90010)));
        assert!(!code("gfx90a").runs_on(&gpu(90006)));
        assert!(code("gfx9-generic").runs_on(&gpu(90006)));
        assert!(!code("gfx9-generic").runs_on(&gpu(90010)));
        assert!(!Target::from_flags(0x11).runs_on(&gpu(90010)));
        assert!(!code("gfx90a").runs_on(&code("gfx9-generic")));
        let with_ecc = Target {
            sramecc: Feature::On,
            ..gpu(90010)
        };
        assert!(code("gfx90a:sramecc+").runs_on(&with_ecc));
        assert!(!code("gfx90a:sramecc-").runs_on(&with_ecc));
        assert_eq!(Target::from_version(100_300), None);
    }
}
