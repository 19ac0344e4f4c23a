// SPDX-License-Identifier: GPL-2.0

//! Which memory a mirror shows where.

use core::ops::Range;

use kernel::prelude::*;

use crate::{
    hw::pte::Access,
    kapi::task::access_ok,
    vm::{
        pt::{
            HUGE,
            PAGE, //
        },
        va, //
    },
};

/// First address above what a mirror of all memory has: that of a program with 47 bits, whose last page is never
/// mapped. What a program maps above, on machines with more bits, has no GPU address of its own.
const WHOLE_END: u64 = va::USER_END - PAGE;

/// What the GPU may do beside reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Where the program may, too.
    pub(crate) write: bool,
    /// Fetch instructions.
    pub(crate) execute: bool,
}

impl Rights {
    /// What entries allow.
    pub(super) fn access(self, write: bool) -> Access {
        Access {
            read: true,
            write,
            execute: self.execute,
        }
    }
}

/// Which memory is shown where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// First address of the program's.
    pub(crate) cpu: u64,
    /// First GPU address.
    pub(crate) gpu: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// What the GPU may do.
    pub(crate) rights: Rights,
    /// When the GPU is shown it.
    pub(crate) filling: Filling,
}

/// When the GPU is shown memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filling {
    /// Once the mirror is made.
    pub(crate) at_once: bool,
    /// After a change, when it is accessed: accesses are repeated until then. Else soon after, while the queues wait.
    pub(crate) on_access: bool,
}

/// A [`Request`] that can be.
///
/// # Invariants
///
/// `len` is not 0, all are whole pages, and neither range wraps around or leaves what programs or GPU have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    cpu: u64,
    gpu: u64,
    len: u64,
    pub(super) rights: Rights,
    pub(super) filling: Filling,
    /// All memory that no buffer covers.
    whole: bool,
}

impl Shape {
    /// Of a request whose GPU addresses were reserved.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: none, or no whole pages.
    /// - `EOVERFLOW`: one of the ranges wraps around.
    /// - `EFAULT`: no program has such addresses.
    pub(super) fn new(request: &Request) -> Result<Self> {
        let Request {
            cpu,
            gpu,
            len,
            rights,
            filling,
        } = *request;
        if len == 0 || [cpu, gpu, len].iter().any(|value| value % PAGE != 0) {
            return Err(EINVAL);
        }
        cpu.checked_add(len).ok_or(EOVERFLOW)?;
        gpu.checked_add(len).ok_or(EOVERFLOW)?;
        if !access_ok(cpu, len) {
            return Err(EFAULT);
        }
        // INVARIANT: Checked above; the GPU addresses where they were reserved.
        Ok(Self {
            cpu,
            gpu,
            len,
            rights,
            filling,
            whole: false,
        })
    }

    /// Of all that the GPU can have at the addresses of the program.
    pub(super) const fn whole(rights: Rights, on_access: bool) -> Self {
        // INVARIANT: Whole pages of what both have.
        Self {
            cpu: va::USER_START,
            gpu: va::USER_START,
            len: WHOLE_END - va::USER_START,
            rights,
            filling: Filling {
                at_once: false,
                on_access,
            },
            whole: true,
        }
    }

    /// Whether it is of all memory. Buffers may have a part of the GPU addresses then, at any time.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// What it was made of.
    pub(super) fn request(&self) -> Request {
        let Self {
            cpu,
            gpu,
            len,
            rights,
            filling,
            whole: _,
        } = *self;
        Request {
            cpu,
            gpu,
            len,
            rights,
            filling,
        }
    }

    /// GPU addresses.
    pub(super) fn gpu(&self) -> Range<u64> {
        self.gpu..self.gpu + self.len
    }

    /// What the program has at GPU addresses of the mirror.
    pub(super) fn cpu_range(&self, gpu: &Range<u64>) -> Range<usize> {
        // CAST: Addresses of programs, of 64 bits where this driver runs.
        let cpu = |va: u64| (va - self.gpu + self.cpu) as usize;
        cpu(gpu.start)..cpu(gpu.end)
    }

    /// Where the GPU sees a byte of the program's that is in the mirror.
    pub(super) fn gpu_address(&self, cpu: usize) -> u64 {
        // CAST: `usize` is at most 64 bits wide.
        cpu as u64 - self.cpu + self.gpu
    }

    /// Largest leaf that the distance of the two ranges allows.
    pub(super) fn leaf(&self) -> u64 {
        let distance = self.cpu ^ self.gpu;
        match distance.trailing_zeros() {
            0..64 => (1u64 << distance.trailing_zeros()).min(HUGE),
            _ => HUGE,
        }
    }
}
