// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory of the program at GPU addresses of an address space: what is there, whatever becomes of it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;

use super::abi;
use super::Rights;
use super::Space;
use crate::error::Error;
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

/// Where memory of a mirror is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Where the driver thinks best. No place to move to.
    #[default]
    Policy,
    /// VRAM of this GPU.
    Vram,
    /// System memory.
    System,
    /// Where it is. No place to move to.
    Stay,
}

/// What [`Mirror::migrate`] is to do, of which at least one of `now` and `keep`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// Where memory is to be.
    pub place: Place,
    /// Move what is there, to [`Place::Vram`] or [`Place::System`].
    pub now: bool,
    /// Note the place as a hint for later.
    pub keep: bool,
    /// With `now` and [`Place::Vram`]: also pages of the program that have no memory yet, which then are zeroes in VRAM.
    pub fill: bool,
    /// With `keep`: log2 of the bytes that move at once, 16 to 21; 0: the driver's choice.
    pub granularity: u32,
}

impl Migration {
    /// Moves what is there.
    pub fn now(place: Place) -> Self {
        Self {
            place,
            now: true,
            ..Self::default()
        }
    }
}

/// What became of the memory of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that were moved.
    pub moved: u64,
    /// Bytes that are there, and elsewhere than they should be.
    pub stayed: u64,
}

/// A call of [`Mirror::migrate`] that did not come to its end, after it had moved something or nothing. No content is lost.
#[derive(Debug, thiserror::Error)]
#[error("{error}, after {} bytes", told.moved)]
pub struct PartlyMoved {
    /// What had become of the memory by then.
    pub told: Moved,
    /// What ended it.
    #[source]
    pub error: Error,
}

impl From<PartlyMoved> for Error {
    fn from(partly: PartlyMoved) -> Self {
        partly.error
    }
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

    /// Whether memory of mirrors can be moved to VRAM ([`Mirror::migrate`]).
    pub fn can_migrate(&self) -> bool {
        self.info().features & abi::FEATURE_MIGRATION != 0
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

    /// Moves memory at `len` bytes from GPU address `address` on, whole pages of the mirror, to where it is to be, or has the
    /// driver note that place, or both.
    ///
    /// Program and GPU see the same bytes at the same addresses before, meanwhile and afterwards. What is in VRAM the GPU uses
    /// there; an access of the CPU, or of the kernel for the program, brings the pages around it back to system memory.
    /// Only memory of the program's own can move (private and anonymous, not locked or pinned): all else stays, which is no
    /// error. Holes in the program's memory are stepped over. Pages that are where they should be count neither as moved nor
    /// as stayed.
    ///
    /// Where a signal came or memory did not stop changing the call is made again, and what all of them moved is told.
    ///
    /// # Errors
    /// [`PartlyMoved`], in which [`Error::Call`] has
    ///
    /// * `EINVAL`: neither `now` nor `keep`; `now` to [`Place::Policy`] or [`Place::Stay`]; `fill` without `now` to
    ///   [`Place::Vram`]; a granularity that there is not; no whole pages of the mirror, or none;
    /// * `EOPNOTSUPP`: [`Place::Vram`] where nothing can be moved there (see [`Space::can_migrate`]); `keep`, which no driver
    ///   knows yet;
    /// * `ENOMEM`: no room, by VRAM or by the limit of the program's control group;
    /// * `ESRCH`: the program whose memory it is has ended, or another thread has ended the mirror; `EXDEV`: the caller is a
    ///   child of that program;
    /// * `ETIMEDOUT`, `EIO`: the GPU did not stop using memory, or does not answer.
    pub fn migrate(
        &self,
        address: u64,
        len: usize,
        how: Migration,
    ) -> std::result::Result<Moved, PartlyMoved> {
        let mut told = Moved::default();
        loop {
            let mut arg = abi::MirrorMigrate {
                id: self.id,
                gpu_address: address,
                length: len as u64, // CAST: a size in memory.
                ..how.argument()
            };
            // SAFETY: the argument has no pointers; what is moved keeps its content and its addresses.
            let result = unsafe { sys::call(&*self.fd, abi::MIRROR_MIGRATE, &mut arg) };
            told.moved += arg.moved;
            told.stayed = arg.stayed;
            match result {
                Ok(()) => return Ok(told),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => {
                    let call = "MIRROR_MIGRATE";
                    let error = Error::Call { call, errno };
                    return Err(PartlyMoved { told, error });
                }
            }
        }
    }
}

impl Migration {
    /// What of the call's argument follows from it.
    fn argument(self) -> abi::MirrorMigrate {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        abi::MirrorMigrate {
            flags: flag(self.now, abi::MIGRATE_NOW)
                | flag(self.keep, abi::MIGRATE_KEEP)
                | flag(self.fill, abi::MIGRATE_FILL),
            place: match self.place {
                Place::Policy => abi::PLACE_POLICY,
                Place::Vram => abi::PLACE_VRAM,
                Place::System => abi::PLACE_SYSTEM,
                Place::Stay => abi::PLACE_STAY,
            },
            granularity: self.granularity,
            ..abi::MirrorMigrate::default()
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_is_flags_and_a_place() {
        let all = Migration {
            place: Place::Vram,
            now: true,
            keep: true,
            fill: true,
            granularity: 21,
        };
        let arg = all.argument();
        assert_eq!((arg.flags, arg.place, arg.granularity), (7, 1, 21));
        // What the driver answers is 0 in a question.
        assert_eq!((arg.moved, arg.stayed), (0, 0));
        for (place, number) in [
            (Place::Policy, 0),
            (Place::Vram, 1),
            (Place::System, 2),
            (Place::Stay, 3),
        ] {
            let arg = Migration::now(place).argument();
            assert_eq!((arg.flags, arg.place, arg.granularity), (1, number, 0));
        }
        assert_eq!(Migration::default().argument().flags, 0);
    }

    #[test]
    fn what_was_moved_is_told_with_the_error() {
        let partly = PartlyMoved {
            told: Moved {
                moved: 8192,
                stayed: 4096,
            },
            error: Error::Call {
                call: "MIRROR_MIGRATE",
                errno: Errno::ENOMEM,
            },
        };
        let text = partly.to_string();
        assert!(text.starts_with("MIRROR_MIGRATE: ENOMEM"), "{text}");
        assert!(text.ends_with(", after 8192 bytes"), "{text}");
        assert_eq!(Error::from(partly).errno(), Some(Errno::ENOMEM));
    }
}
