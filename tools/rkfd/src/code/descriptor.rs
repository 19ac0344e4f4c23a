// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Kernel descriptors: the 64 bytes at a kernel's symbol `NAME.kd`, which a dispatch packet points to.
//!
//! Layout: "Kernel Descriptor" in `AMDGPUUsage` of LLVM.

/// Bytes of a descriptor; its alignment, too.
pub const BYTES: usize = 64;

/// What a dispatch and its caller need to know of a descriptor; the rest is the packet processor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Bytes of group memory (LDS) of the kernel's own variables.
    pub group_bytes: u32,
    /// Bytes of private memory (scratch) of a work-item.
    pub private_bytes: u32,
    /// Bytes of the kernel's arguments; 0 where the compiler did not say.
    pub kernarg_bytes: u32,
    /// Distance from the descriptor to the kernel's first instruction.
    pub entry: i64,
    /// `COMPUTE_PGM_RSRC1`, `2` and `3`.
    pub resources: [u32; 3],
    /// `kernel_code_properties`.
    pub properties: u16,
}

/// Bits of `kernel_code_properties`.
mod property {
    pub const WAVEFRONT_SIZE_32: u16 = 1 << 10;
    pub const USES_DYNAMIC_STACK: u16 = 1 << 11;
}

impl Descriptor {
    /// Reads the bytes of one.
    pub fn parse(bytes: &[u8; BYTES]) -> Self {
        let word = |at: usize| {
            let mut raw = [0; 4];
            raw.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(raw)
        };
        // CAST: the two halves of a signed number; half a dword.
        Self {
            group_bytes: word(0),
            private_bytes: word(4),
            kernarg_bytes: word(8),
            entry: ((u64::from(word(20)) << 32) | u64::from(word(16))) as i64,
            resources: [word(48), word(52), word(44)],
            properties: word(56) as u16,
        }
    }

    /// Work-items of a wave.
    pub fn wavefront_size(&self) -> u32 {
        if self.properties & property::WAVEFRONT_SIZE_32 != 0 {
            32
        } else {
            64
        }
    }

    /// Whether calls need private memory that the compiler cannot count.
    pub fn uses_dynamic_stack(&self) -> bool {
        self.properties & property::USES_DYNAMIC_STACK != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_they_are() {
        let mut bytes = [0; BYTES];
        for (at, value) in [
            (0, 0x11u32),
            (4, 0x22),
            (8, 0x33),
            (44, 3),
            (48, 1),
            (52, 2),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&(-256i64).to_le_bytes());
        bytes[56..58].copy_from_slice(&0x0c08u16.to_le_bytes());
        let d = Descriptor::parse(&bytes);
        assert_eq!(
            (d.group_bytes, d.private_bytes, d.kernarg_bytes),
            (0x11, 0x22, 0x33)
        );
        assert_eq!((d.entry, d.resources), (-256, [1, 2, 3]));
        assert_eq!((d.wavefront_size(), d.uses_dynamic_stack()), (32, true));
        assert_eq!(Descriptor::parse(&[0; BYTES]).wavefront_size(), 64);
    }
}
