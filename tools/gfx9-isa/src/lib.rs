// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The gfx9 compute instruction set.
//!
//! * [`tables`]: one row per opcode (mnemonic, encoding, ASICs, operands, modifiers).
//! * [`decode`]: words to [`inst::Inst`], by the rows.
//! * [`text`]: the text of an instruction, as LLVM's disassembler writes it.
//!
//! No device and no I/O is known here.

#![allow(
    clippy::precedence,
    clippy::needless_range_loop,
    reason = "fields are shifted and masked, and lanes of several registers counted, everywhere"
)]

pub mod decode;
pub mod inst;
pub mod tables;
pub mod text;
