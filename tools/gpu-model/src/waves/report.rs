// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What waves come to, as those who execute them tell the device.

use std::sync::Arc;

use gfx9_isa::races::Finding;

use super::job::Dispatch;
use super::units::Seat;
use crate::vm::own::Post;
use crate::vm::window::Fault;

/// What a wave has come to.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The dispatch is complete.
    Done,
    /// Nobody executes a group of the dispatch, which is to be taken off, any more.
    Held,
    /// An access is to be replayed.
    Retry(Fault),
    /// An access faulted; the wave is halted, or in its trap handler.
    Fault {
        /// The fault.
        fault: Fault,
        /// The wave has a trap handler.
        handled: bool,
    },
    /// The wave has halted for a reason that concerns the queue.
    Failed(Failure),
    /// A wave has entered its trap handler for a reason that would have halted it.
    Handled(Failure),
    /// What the checker of LDS has found.
    Lds(Vec<Finding>),
    /// `s_sendmsg` with MSG_INTERRUPT: M0, and whether the trap handler sent it.
    Message(u32, bool),
    /// Stores to doorbells, in their order.
    Posted(Vec<Post>),
}

/// Why a wave has halted, or would have without its trap handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// An instruction that does not exist, in words why.
    Illegal {
        /// Address.
        pc: u64,
        /// Mnemonic, if there is one.
        name: Option<&'static str>,
    },
    /// An address that no aperture has, or that is not aligned.
    Aperture {
        /// Address.
        va: u64,
    },
    /// A page that is not there or lacks the permission.
    Memory {
        /// Address.
        va: u64,
    },
    /// `s_trap 2`.
    Abort,
    /// Another trap.
    Trap(u8),
    /// Floating-point exceptions that MODE enables.
    Math(u32),
}

/// Where a wave is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spot {
    /// Its place on a compute unit.
    pub seat: Seat,
    /// Id of its group.
    pub group: [u32; 3],
    /// Its number in the group.
    pub wave: u32,
    /// Address of its instruction.
    pub pc: u64,
}

/// Something for the device.
#[derive(Debug, Clone)]
pub struct Report {
    /// Of which dispatch.
    pub dispatch: Arc<Dispatch>,
    /// Which wave; none where the dispatch as a whole is meant.
    pub spot: Spot,
    /// What.
    pub what: What,
}
