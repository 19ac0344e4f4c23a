// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Why a queue stopped.
//!
//! Two sources tell. The packet processor stores a code to the queue's inactive signal, for packets that it cannot run.
//! The driver adds bits to the queue's exception word, for those and for what waves do, where the process has enabled
//! its runtime ([`crate::device::Kfd::enable_runtime`]). Codes: `amd_aql_queue.cpp` of ROCr; exceptions:
//! `enum kfd_dbg_trap_exception_code` of `linux/kfd_ioctl.h`.

use std::fmt;

macro_rules! reasons {
    ($( $(#[$doc:meta])* $name:ident = $number:literal, $text:literal, code: $code:expr, exception: $exception:expr; )*) => {
        /// A reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Reason {
            $( $(#[$doc])* $name = $number, )*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Reason] = &[ $( Reason::$name ),* ];

            /// In words.
            pub fn text(self) -> &'static str {
                match self { $( Reason::$name => $text, )* }
            }

            /// Bits of the inactive signal's value that mean it.
            const fn codes(self) -> u64 {
                match self { $( Reason::$name => $code, )* }
            }

            /// The exception that means it; 0 where none does.
            const fn exception(self) -> u32 {
                match self { $( Reason::$name => $exception, )* }
            }
        }
    };
}

reasons! {
    /// A code or exception that is not known here.
    Unknown = 0, "a reason that is not known here", code: 0, exception: 0;
    /// The dispatch's dimensions are 0 or too many.
    Dimension = 1, "a dispatch of bad dimensions", code: 0x2, exception: 16;
    /// The dispatch wants more local memory than there is.
    GroupMemory = 2, "a dispatch with too much group memory", code: 0x4, exception: 17;
    /// The dispatch's code object is null or cannot be read.
    CodeObject = 3, "a dispatch of a bad code object", code: 0x8, exception: 18;
    /// The packet's type is none that the GPU runs.
    PacketFormat = 4, "a packet of a type that the GPU does not run", code: 0x20, exception: 20;
    /// The work-group has too many work-items.
    WorkgroupSize = 5, "a dispatch with too large a work-group", code: 0x40, exception: 21;
    /// The kernel wants more registers than there are.
    Registers = 6, "a dispatch with too many registers", code: 0x80, exception: 22;
    /// A vendor's packet that the GPU does not know.
    VendorPacket = 7, "a vendor packet that the GPU does not know", code: 0x100, exception: 23;
    /// The dispatch wants scratch memory that the queue does not have.
    Scratch = 8, "a dispatch with more private memory than the queue has", code: 0x401, exception: 0;
    /// A wave ended itself (s_trap 2, abort).
    WaveAbort = 9, "a wave that aborted", code: 0, exception: 1;
    /// A wave ran into a trap.
    WaveTrap = 10, "a wave that trapped", code: 0x8000_0000, exception: 2;
    /// A wave's arithmetic raised an exception.
    WaveMath = 11, "a wave's arithmetic exception", code: 0, exception: 3;
    /// A wave came to an instruction that does not exist.
    IllegalInstruction = 12, "a wave's illegal instruction", code: 0x4000_0000, exception: 4;
    /// A wave accessed memory that is not there.
    MemoryViolation = 13, "a wave's access to memory that is not there", code: 0, exception: 5;
    /// A wave accessed an aperture beyond its end.
    ApertureViolation = 14, "a wave's access beyond an aperture", code: 0x2000_0000, exception: 6;
    /// The queue did not leave the hardware.
    Preemption = 15, "a queue that did not leave the hardware", code: 0, exception: 30;
}

/// What stopped a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueError {
    /// Value of the inactive signal: the packet processor's codes, one bit each.
    pub code: u64,
    /// The driver's exceptions: bit n - 1 is exception n.
    pub exceptions: u64,
    /// Index of the packet that the queue stopped at.
    pub packet: u64,
}

impl QueueError {
    /// The reasons, [`Reason::Unknown`] among them where a bit means none.
    pub fn reasons(&self) -> Vec<Reason> {
        let (mut codes, mut exceptions) = (self.code, self.exceptions);
        let mut found = Vec::new();
        for reason in Reason::ALL {
            let code = reason.codes();
            let exception = match reason.exception() {
                0 => 0,
                n => 1u64 << (n - 1),
            };
            if codes & code != 0 || exceptions & exception != 0 {
                found.push(*reason);
            }
            codes &= !code;
            exceptions &= !exception;
        }
        if codes != 0 || exceptions != 0 {
            found.push(Reason::Unknown);
        }
        found
    }

    /// The first of the reasons.
    pub fn reason(&self) -> Reason {
        self.reasons().first().copied().unwrap_or(Reason::Unknown)
    }
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packet {}: ", self.packet)?;
        for (n, reason) in self.reasons().iter().enumerate() {
            f.write_str(if n == 0 { "" } else { ", " })?;
            f.write_str(reason.text())?;
        }
        write!(
            f,
            " (code {:#x}, exceptions {:#x})",
            self.code, self.exceptions
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_exceptions_are_decoded() {
        let of = |code, exceptions| {
            QueueError {
                code,
                exceptions,
                packet: 7,
            }
            .reasons()
        };
        for (code, reason) in [
            (0x1, Reason::Scratch),
            (0x2, Reason::Dimension),
            (0x4, Reason::GroupMemory),
            (0x8, Reason::CodeObject),
            (0x20, Reason::PacketFormat),
            (0x40, Reason::WorkgroupSize),
            (0x80, Reason::Registers),
            (0x100, Reason::VendorPacket),
            (0x400, Reason::Scratch),
            (0x2000_0000, Reason::ApertureViolation),
            (0x4000_0000, Reason::IllegalInstruction),
            (0x8000_0000, Reason::WaveTrap),
            (0x10, Reason::Unknown),
        ] {
            assert_eq!(of(code, 0), [reason], "{code:#x}");
        }
        for (exception, reason) in [
            (1, Reason::WaveAbort),
            (5, Reason::MemoryViolation),
            (16, Reason::Dimension),
            (23, Reason::VendorPacket),
            // EC_QUEUE_PREEMPTION_ERROR, and EC_QUEUE_NEW, which is no error.
            (30, Reason::Preemption),
            (31, Reason::Unknown),
            (34, Reason::Unknown),
        ] {
            assert_eq!(of(0, 1 << (exception - 1)), [reason], "{exception}");
        }
        assert_eq!(
            of(0x102, (1 << 15) | (1 << 63)),
            [Reason::Dimension, Reason::VendorPacket, Reason::Unknown]
        );
    }

    #[test]
    fn an_error_reads_as_its_reasons() {
        let error = QueueError {
            code: 2,
            exceptions: 1 << 15,
            packet: 7,
        };
        assert_eq!(error.reason(), Reason::Dimension);
        assert_eq!(
            error.to_string(),
            "packet 7: a dispatch of bad dimensions (code 0x2, exceptions 0x8000)"
        );
    }

    #[test]
    fn numbers_are_dense_and_texts_differ() {
        for (n, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, n);
            let same = Reason::ALL.iter().filter(|r| r.text() == reason.text());
            assert_eq!(same.count(), 1);
        }
    }
}
