// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Firmware files for amdgpu: headers with nothing behind them.
//!
//! amdgpu does not come up without the files of the RLC, the MEC and the SDMA engines. What it does with them where
//! the security processor is off is to look at sizes and versions in their headers (`amdgpu_ucode.h`); the model has
//! no processors that would run microcode, its engines do what theirs would. So the files have headers that amdgpu
//! accepts, versions, and words of zeros where microcode would be.

use anyhow::Context;
use std::fs;
use std::path::Path;

/// Where the kernel looks.
const DIRECTORY: &str = "/lib/firmware/amdgpu";

/// Bytes of `common_firmware_header`.
const COMMON: usize = 32;
/// Words in the place of microcode.
const WORDS: usize = 64;

/// One file.
struct File {
    name: &'static str,
    /// Version of the header's layout.
    layout: (u16, u16),
    /// Version of the block.
    ip: (u16, u16),
    /// Version of the firmware.
    version: u32,
    /// Words of the header behind the common ones, the first of which is the feature version.
    own: usize,
    /// Feature version.
    feature: u32,
}

/// Aldebaran's. The version of the MEC firmware is the model's; from 88 on amdgpu would run a shader between
/// processes, below 51 it has queues work around defects. That of SDMA is the model's likewise.
const FILES: [File; 3] = [
    File {
        name: "aldebaran_rlc.bin",
        layout: (2, 0),
        ip: (9, 4),
        version: 17,
        own: 18,
        feature: 1,
    },
    File {
        name: "aldebaran_mec.bin",
        layout: (1, 0),
        ip: (9, 4),
        version: 70,
        own: 3,
        feature: 46,
    },
    File {
        name: "aldebaran_sdma.bin",
        layout: (1, 0),
        ip: (4, 4),
        version: 8,
        own: 4,
        feature: 40,
    },
];

impl File {
    /// Its content, in little-endian words as `amdgpu_ucode.h` has them.
    fn bytes(&self) -> Vec<u8> {
        let header = COMMON + self.own * 4;
        let microcode = WORDS * 4;
        let half = |(major, minor): (u16, u16)| u32::from(major) | (u32::from(minor) << 16);
        // CAST: sums of constants, a few hundred.
        let mut words = vec![
            (header + microcode) as u32,
            header as u32,
            half(self.layout),
            half(self.ip),
            self.version,
            microcode as u32,
            header as u32,
            // Check sum, which nobody looks at.
            0,
            self.feature,
        ];
        words.resize((header + microcode) / 4, 0);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// Writes the files.
///
/// # Errors
/// Names the file that could not be written.
pub(super) fn write() -> anyhow::Result<()> {
    write_to(Path::new(DIRECTORY))
}

fn write_to(dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    for file in &FILES {
        let path = dir.join(file.name);
        fs::write(&path, file.bytes()).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_are_those_that_amdgpu_accepts() {
        let dir = tempfile::tempdir().unwrap();
        write_to(dir.path()).unwrap();
        // File, bytes of its structure, layout, firmware version.
        for (name, header, layout, version) in [
            ("aldebaran_rlc.bin", 104, 2, 17),
            ("aldebaran_mec.bin", 44, 1, 70),
            ("aldebaran_sdma.bin", 48, 1, 8),
        ] {
            let bytes = fs::read(dir.path().join(name)).unwrap();
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            // amdgpu_ucode_validate.
            assert_eq!(word(0) as usize, bytes.len(), "{name}");
            assert_eq!(word(4), header, "{name}");
            assert_eq!(word(8) & 0xFFFF, layout, "{name}");
            assert_eq!(word(16), version, "{name}");
            assert_eq!(word(20) + word(24), word(0), "{name}");
            assert!(bytes[header as usize..].iter().all(|byte| *byte == 0));
        }
    }
}
