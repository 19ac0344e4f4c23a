// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The gfx9 compute instruction set.
//!
//! * [`tables`]: one row per opcode (mnemonic, encoding, ASICs, operands, modifiers).
//! * [`decode`]: words to [`inst::Inst`], by the rows.
//! * [`text`]: the text of an instruction, as LLVM's disassembler writes it.
//! * [`wave`]: the state of a wave; [`env`]: the memory, LDS and messages that it reaches, as traits.
//! * [`exec`]: what each instruction does to them; [`fp`]: floating point as the ISA has it.
//! * [`observe`]: who watches, with [`exec::cost`] for what instructions move, and [`races`], which checks LDS.
//!
//! No device and no I/O is known here.  `Documentation/isa.md` tells the scope and how it is proved.

#![allow(
    clippy::precedence,
    clippy::needless_range_loop,
    reason = "fields are shifted and masked, and lanes of several registers counted, everywhere"
)]

pub mod decode;
pub mod env;
pub mod exec;
pub mod fp;
pub mod group;
pub mod inst;
pub mod lanes;
pub mod observe;
pub mod processor;
pub mod races;
pub mod simd;
pub mod tables;
pub mod text;
pub mod wave;
pub mod workload;
