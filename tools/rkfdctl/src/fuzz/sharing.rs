// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Buffers that are shared by descriptors.

use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rkfd::sys::Mapping;
use rkfd::sys::PAGE;

use super::calls::command;
use super::calls::drm_command;
use super::calls::READ;
use super::calls::WRITE;
use super::kinds::Kind;
use super::process::Buffer;
use super::thread::Thread;

/// Most descriptors that lie about in a process.
const SHARED: usize = 8;
/// Pages of address space for an import; what is larger overlaps others, or is refused.
const IMPORTED: usize = 64;

impl Thread<'_> {
    /// Exports, imports, asks.
    pub fn share(&mut self) {
        match self.dice.below(5) {
            0 | 1 => self.export(),
            2 => self.import(),
            3 => self.shared_info(),
            _ => self.import_handle(),
        }
    }

    /// A descriptor that was exported; kept while it is used, whatever other threads do.
    fn any_shared(&mut self) -> Option<Arc<OwnedFd>> {
        let objects = self.process.objects();
        let at = self.dice.index(objects.shared.len())?;
        objects.shared.get(at).cloned()
    }

    /// Its number, or that of something else.
    fn number_of(&mut self, fd: Option<&Arc<OwnedFd>>) -> u32 {
        let right = fd.map_or(u32::MAX, |fd| fd.as_raw_fd() as u32); // CAST: not negative.
        if self.dice.odd() {
            let render = self.process.render.as_raw_fd() as u32; // CAST: as above.
            return self.dice.pick(&[render, u32::MAX, 1 << 20]).unwrap_or(0);
        }
        right
    }

    fn keep_shared(&mut self, fd: u32) {
        // SAFETY: the driver has just made it for this process.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) }; // CAST: a descriptor.
        let mut objects = self.process.objects();
        if objects.shared.len() >= SHARED {
            if let Some(at) = self.dice.index(objects.shared.len()) {
                objects.shared.swap_remove(at);
            }
        }
        objects.shared.push(Arc::new(fd));
    }

    fn export(&mut self) {
        let (kind, word, mut arg);
        if self.dice.one_in(3) {
            (kind, word) = (Kind::Drm, drm_command(READ | WRITE, 0x2d, 12));
            // Handles of a file are small numbers; DRM_RDWR or not.
            // CAST: below 64.
            arg = [self.dice.below(64) as u32, self.dice.w32(2), u32::MAX, 0];
        } else {
            (kind, word) = (Kind::ExportDmabuf, command(READ | WRITE, 0x24, 16));
            let handle = self.any_handle();
            // CAST: halves of a handle.
            arg = [
                handle as u32,
                (handle >> 32) as u32,
                self.dice.w32(0),
                u32::MAX,
            ];
        }
        if self.any_call(kind, word, &mut arg) {
            let fd = if kind == Kind::Drm { arg[2] } else { arg[3] };
            self.keep_shared(fd);
        }
    }

    fn import(&mut self) {
        let fd = self.any_shared();
        let Ok(range) = Mapping::reserve(IMPORTED * PAGE, PAGE) else {
            return;
        };
        let va = self.dice.w64(range.address() as u64); // CAST: an address.
        let gpu_id = self.dice.w32(self.process.plan.target.gpu_id);
        let fd_number = self.number_of(fd.as_ref());
        // CAST: halves of an address.
        let mut arg = [va as u32, (va >> 32) as u32, 0, 0, gpu_id, fd_number];
        let word = command(READ | WRITE, 0x1d, 24);
        if self.process.call(Kind::ImportDmabuf, word, &mut arg) == 0 {
            let buffer = Buffer {
                handle: (u64::from(arg[3]) << 32) | u64::from(arg[2]),
                va,
                size: 0,
                flags: 0,
                mmap_offset: 0,
                range: Some(Arc::new(range)),
            };
            self.process.objects().buffers.push(buffer);
        }
    }

    fn shared_info(&mut self) {
        let fd = self.any_shared();
        let mut room = [0u64; 8];
        let metadata = self.pointer(room.as_mut_ptr().expose_provenance());
        let fd_number = self.number_of(fd.as_ref());
        let mut arg = [0u32; 8];
        // CAST: halves of an address.
        (arg[2], arg[3]) = (metadata as u32, (metadata >> 32) as u32);
        arg[4] = self.dice.w32(64);
        arg[7] = fd_number;
        let word = command(READ | WRITE, 0x1c, 32);
        self.process.call(Kind::DmabufInfo, word, &mut arg);
    }

    /// A handle in the render node's file, which a random GEM_CLOSE may close.
    fn import_handle(&mut self) {
        let fd = self.any_shared();
        let mut arg = [0, 0, self.number_of(fd.as_ref())];
        let word = drm_command(READ | WRITE, 0x2e, 12);
        self.drm_call(Kind::Drm, word, &mut arg);
    }

    fn any_call(&mut self, kind: Kind, word: u32, arg: &mut [u32; 4]) -> bool {
        if kind == Kind::Drm {
            self.drm_call(kind, word, arg) == 0
        } else {
            self.process.call(kind, word, arg) == 0
        }
    }
}
