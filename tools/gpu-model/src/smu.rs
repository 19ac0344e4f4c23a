// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The power controller (SMU, MP1) as far as its mailbox goes: message in C2PMSG_66, argument and result in C2PMSG_82,
//! response in C2PMSG_90.  Numbers: `aldebaran_ppsmc.h`, `vega20_ppsmc.h` and the `smu*_driver_if` headers of Linux.

use crate::regs::mp;
use crate::soc::Soc;
use crate::trace::{Origin, Ring};

const TEST_MESSAGE: u32 = 1;
const GET_SMU_VERSION: u32 = 2;
/// Argument of the reset message: mode 1.
const MODE_1: u32 = 1;
/// GFXCLK in the list of clocks.
const GFXCLK: u32 = 0;

/// What an ASIC's controller understands, where ASICs differ.
#[derive(Debug, Clone, Copy)]
pub struct Interface {
    /// Version of its firmware, as GetSmuVersion tells it.
    pub version: u32,
    /// GfxDriverReset; Vega 20 has none.
    pub reset: Option<u32>,
    /// GetMaxDpmFreq.
    pub max_frequency: u32,
    /// UCLK in the list of clocks.
    pub uclk: u32,
}

/// What comes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Done, with this result.
    Value(u32),
    /// The device is reset.
    Reset,
    /// Understood, but it cannot be done.
    Failed,
    /// The controller does not know the message.
    Unknown,
}

impl Answer {
    /// PPSMC_Result.
    fn code(self) -> u32 {
        match self {
            Answer::Value(_) | Answer::Reset => 0x01,
            Answer::Failed => 0xFF,
            Answer::Unknown => 0xFE,
        }
    }
}

impl Soc {
    fn smu_answer(&self, message: u32, argument: u32) -> Answer {
        let smu = &self.asic.smu;
        match message {
            TEST_MESSAGE => Answer::Value(argument.wrapping_add(1)),
            GET_SMU_VERSION => Answer::Value(smu.version),
            m if m == smu.max_frequency => {
                // The clock is in the upper half; the lower one is not used.
                let mhz = match (argument >> 16, argument & 0xFFFF) {
                    (GFXCLK, 0) => self.board.engine_clock,
                    (clock, 0) if clock == smu.uclk => self.board.memory_clock,
                    _ => 0,
                };
                match mhz {
                    0 => Answer::Failed,
                    mhz => Answer::Value(mhz),
                }
            }
            m if Some(m) == smu.reset => {
                // The upper half tells why.
                if argument & 0xFFFF == MODE_1 {
                    Answer::Reset
                } else {
                    Answer::Failed
                }
            }
            _ => Answer::Unknown,
        }
    }

    /// Takes the message written to C2PMSG_66; whether the device is to be reset for it.
    #[must_use]
    pub fn smu_message(&mut self, message: u32) -> bool {
        let base = self.asic.mp;
        self.regs.set_plain(base + mp::MP1_C2PMSG_66, message);
        let argument = self.regs.plain(base + mp::MP1_C2PMSG_82);
        if self.inject.take_smu_message() {
            self.smu_note(message, argument, "not answered, on request".into());
            return false;
        }
        let answer = self.smu_answer(message, argument);
        self.smu_note(message, argument, format!("{answer:?}"));
        if let Answer::Value(v) = answer {
            self.regs.set_plain(base + mp::MP1_C2PMSG_82, v);
        }
        self.regs.set_plain(base + mp::MP1_C2PMSG_90, answer.code());
        answer == Answer::Reset
    }

    fn smu_note(&mut self, message: u32, argument: u32, outcome: String) {
        let now = self.clock.now_ns();
        let text = format!("message {message:#x} argument {argument:#x}: {outcome}");
        self.log
            .event(now, Ring::Device, Origin::default(), "SMU_MESSAGE", text);
    }
}
