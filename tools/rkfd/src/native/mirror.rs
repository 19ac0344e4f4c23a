// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory of the program at GPU addresses of an address space: what is there, whatever becomes of it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::abi;
use super::Rights;
use super::Space;
use crate::error::Result;
use crate::sys;

/// When a mirror shows memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// At once, and again after each change while the queues of the address space wait.
    AtOnce,
    /// When the GPU accesses it; the access is repeated until then. Only before the first queue, and where the GPU can.
    OnAccess,
}

/// A mirror. It ends when this is dropped; then the GPU does not reach the memory any more.
#[derive(Debug)]
pub struct Mirror {
    fd: Arc<OwnedFd>,
    id: u32,
    leaf: u64,
}

impl Space {
    /// Shows `len` bytes of the program's memory from `memory` on, whole pages, at GPU addresses from `address` on.
    ///
    /// # Safety
    /// While the mirror lives, packets of this address space may read and, with [`Rights::Write`], write the memory. The
    /// caller sees to it that they do so only where and when no reference forbids it.
    ///
    /// # Errors
    /// [`Error::Call`](crate::error::Error::Call): `EOPNOTSUPP` where the GPU cannot repeat accesses, for one.
    pub unsafe fn mirror(
        &self,
        memory: *mut u8,
        len: usize,
        address: u64,
        rights: Rights,
        filling: Filling,
    ) -> Result<Mirror> {
        let filling = match filling {
            Filling::AtOnce => abi::MIRROR_POPULATED,
            Filling::OnAccess => abi::MIRROR_FAULT,
        };
        self.make_mirror(abi::MirrorCreate {
            address: memory.expose_provenance() as u64, // CAST: an address.
            gpu_address: address,
            length: len as u64, // CAST: a size in memory.
            flags: flags_of(rights) | filling,
            ..abi::MirrorCreate::default()
        })
    }

    /// Shows all memory of the program, also what comes later, at its own addresses when the GPU accesses it: any pointer is
    /// good, but where buffers are bound. Before the first queue, and where the GPU can repeat accesses.
    ///
    /// # Safety
    /// As [`Space::mirror`], for all memory.
    ///
    /// # Errors
    /// As [`Space::mirror`]; `EADDRINUSE`: there is a mirror.
    pub unsafe fn mirror_all(&self, rights: Rights) -> Result<Mirror> {
        self.make_mirror(abi::MirrorCreate {
            flags: flags_of(rights) | abi::MIRROR_FAULT | abi::MIRROR_WHOLE,
            ..abi::MirrorCreate::default()
        })
    }

    fn make_mirror(&self, mut arg: abi::MirrorCreate) -> Result<Mirror> {
        // SAFETY: the call itself touches no memory; who promises for what the GPU does is the caller of the functions above.
        unsafe { sys::call_again(&*self.fd, "MIRROR_CREATE", abi::MIRROR_CREATE, &mut arg) }?;
        Ok(Mirror {
            fd: self.fd.clone(),
            id: arg.id,
            leaf: arg.leaf,
        })
    }
}

/// The flags of MIRROR_CREATE that say what the GPU may do.
fn flags_of(rights: Rights) -> u32 {
    match rights {
        Rights::Read => abi::MIRROR_READ_ONLY,
        Rights::Write => 0,
        Rights::Execute => abi::MIRROR_READ_ONLY | abi::MIRROR_EXECUTE,
    }
}

impl Mirror {
    /// Bytes of the largest page that the GPU can have here.
    pub fn leaf(&self) -> u64 {
        self.leaf
    }

    /// What it is, what the GPU can reach now, and what happened to it.
    ///
    /// # Errors
    /// [`Error::Call`](crate::error::Error::Call).
    pub fn query(&self) -> Result<abi::MirrorQuery> {
        let mut arg = abi::MirrorQuery {
            id: self.id,
            ..abi::MirrorQuery::default()
        };
        // SAFETY: the argument has no pointers that the call follows.
        unsafe { sys::call_again(&*self.fd, "MIRROR_QUERY", abi::MIRROR_QUERY, &mut arg) }?;
        Ok(arg)
    }

    /// Shows all memory at `len` bytes from GPU address `address` on, also what was mapped after the mirror was made.
    ///
    /// # Errors
    /// [`Error::Call`](crate::error::Error::Call): `EFAULT` where there is no memory.
    pub fn populate(&self, address: u64, len: usize) -> Result<()> {
        let mut arg = abi::MirrorPopulate {
            id: self.id,
            gpu_address: address,
            length: len as u64, // CAST: a size in memory.
            ..abi::MirrorPopulate::default()
        };
        // SAFETY: the mirror was made under a promise for its whole range.
        unsafe { sys::call_again(&*self.fd, "MIRROR_POPULATE", abi::MIRROR_POPULATE, &mut arg) }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let mut arg = abi::MirrorDestroy {
            id: self.id,
            pad: 0,
        };
        // SAFETY: the argument has no pointers.
        let _ = unsafe { sys::call(&*self.fd, abi::MIRROR_DESTROY, &mut arg) };
    }
}
