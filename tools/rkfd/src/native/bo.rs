// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Buffers of an address space.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use super::abi;
use crate::error::Error;
use crate::error::Result;
use crate::sys;
use crate::sys::Mapping;

/// A handle of a buffer; closed when dropped.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) number: u32,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut arg = abi::GemClose {
            handle: self.number,
            pad: 0,
        };
        // SAFETY: the argument has no pointers.
        let _ = unsafe { sys::call(&*self.fd, abi::GEM_CLOSE, &mut arg) };
    }
}

/// A buffer. Ranges that show it outlive it.
#[derive(Debug)]
pub struct Bo {
    pub(super) memory: Mapping,
    // After the mapping.
    pub(super) handle: Handle,
}

impl Bo {
    /// Bytes.
    pub fn size(&self) -> usize {
        self.memory.size()
    }

    /// First byte, for those who take care of the GPU's accesses themselves.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    fn at(&self, offset: usize, len: usize) -> Result<*mut u8> {
        let inside = offset
            .checked_add(len)
            .is_some_and(|end| end <= self.size());
        if !inside || offset % len != 0 {
            return Err(Error::OutOfRange {
                offset,
                len,
                size: self.size(),
            });
        }
        Ok(self.memory.as_ptr().wrapping_add(offset))
    }

    /// Reads a dword that the GPU may be writing.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn read_u32(&self, offset: usize) -> Result<u32> {
        let at = self.at(offset, 4)?.cast::<u32>();
        // SAFETY: aligned, inside a mapping that `self` owns.
        Ok(unsafe { at.read_volatile() })
    }

    /// Writes a dword.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn write_u32(&self, offset: usize, value: u32) -> Result<()> {
        let at = self.at(offset, 4)?.cast::<u32>();
        // SAFETY: as in `read_u32`.
        unsafe { at.write_volatile(value) };
        Ok(())
    }

    /// A qword that CPU and GPU share.
    pub(super) fn shared(&self, offset: usize) -> Result<&AtomicU64> {
        let at = self.at(offset, 8)?.cast::<u64>();
        // SAFETY: aligned, inside a mapping that `self` owns; this program accesses the place as an atomic only.
        Ok(unsafe { AtomicU64::from_ptr(at) })
    }
}
