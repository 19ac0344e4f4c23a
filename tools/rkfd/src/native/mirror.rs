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

/// How much moves at once where an access finds memory that is to be in VRAM: the block of this size, aligned in GPU
/// addresses, that has the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reach {
    /// What the driver thinks best, anew each time.
    #[default]
    Auto,
    /// 64 KiB.
    K64,
    /// 128 KiB.
    K128,
    /// 256 KiB.
    K256,
    /// 512 KiB.
    K512,
    /// 1 MiB.
    M1,
    /// 2 MiB.
    M2,
}

impl Reach {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Auto,
        Self::K64,
        Self::K128,
        Self::K256,
        Self::K512,
        Self::M1,
        Self::M2,
    ];

    /// As [`Migration::granularity`] has it.
    pub fn granularity(self) -> u32 {
        match self {
            Self::Auto => 0,
            Self::K64 => 16,
            Self::K128 => 17,
            Self::K256 => 18,
            Self::K512 => 19,
            Self::M1 => 20,
            Self::M2 => 21,
        }
    }
}

/// Where memory of a range is to be whenever an access of the GPU finds it: see [`Mirror::hint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hint {
    /// In VRAM of this GPU: what an access finds in system memory moves first.
    Vram(Reach),
    /// In system memory: accesses move nothing.
    System,
    /// Where it is: accesses move nothing.
    Stay,
}

/// What [`Mirror::migrate`] is to do, of which at least one of `now` and `keep`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// Where memory is to be.
    pub place: Place,
    /// Move what is there, to [`Place::Vram`] or [`Place::System`].
    pub now: bool,
    /// Note the place as a hint for later accesses: see [`Mirror::hint`]. First, where `now` is set, too.
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

    /// Notes where memory is to be, or takes what was noted away.
    pub fn keep(hint: Option<Hint>) -> Self {
        let (place, reach) = match hint {
            None => (Place::Policy, Reach::Auto),
            Some(Hint::Vram(reach)) => (Place::Vram, reach),
            Some(Hint::System) => (Place::System, Reach::Auto),
            Some(Hint::Stay) => (Place::Stay, Reach::Auto),
        };
        Self {
            place,
            keep: true,
            granularity: reach.granularity(),
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

    /// Whether accesses move memory to VRAM where hints say so ([`Mirror::hint`]), in mirrors that accesses fill.
    pub fn moves_by_access(&self) -> bool {
        self.info().features & abi::FEATURE_MOVES_BY_ACCESS != 0
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

    /// Notes where memory at `len` bytes from GPU address `address` on, whole pages of the mirror, is to be when the GPU
    /// accesses it, in place of what was noted there; `None` takes that away. Nothing moves by the call itself.
    ///
    /// The hint is one of addresses of this mirror: memory that is mapped there later is under it, too, and other mirrors of
    /// the same memory have hints of their own. It has an effect where accesses fill the mirror and
    /// [`Space::moves_by_access`] says so; else it is noted alone. With [`Hint::Vram`] an access that finds memory in the
    /// system has the block around it moved, if that is the program's own and there is room in VRAM that nobody uses; else it
    /// is used in place. What CPU and GPU use in turn within a tenth of a second stays in the system for a while.
    ///
    /// # Errors
    /// [`Error::Call`](crate::error::Error::Call) as [`Mirror::migrate`] for `keep`, of which `EINVAL`, `EOPNOTSUPP`, `EXDEV`,
    /// `ENOSPC` and `ENOMEM` come here; then nothing has changed.
    pub fn hint(&self, address: u64, len: usize, hint: Option<Hint>) -> Result<()> {
        self.migrate(address, len, Migration::keep(hint))?;
        Ok(())
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
    /// With `keep` the place is noted first, and stays noted where moving fails.
    ///
    /// Where a signal came or memory did not stop changing the call is made again, and what all of them moved is told.
    ///
    /// # Errors
    /// [`PartlyMoved`], in which [`Error::Call`] has
    ///
    /// * `EINVAL`: neither `now` nor `keep`; `now` to [`Place::Policy`] or [`Place::Stay`]; `fill` without `now` to
    ///   [`Place::Vram`]; a granularity that there is not; no whole pages of the mirror, or none;
    /// * `EOPNOTSUPP`: [`Place::Vram`] where nothing can be moved there (see [`Space::can_migrate`]); `keep` where the driver
    ///   speaks a version of the interface before 6;
    /// * `ENOSPC`: `keep`, and the mirror would have more than [`abi::MIRROR_MAX_HINTS`] ranges with a hint;
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
    fn a_hint_is_a_place_with_what_moves_at_once() {
        let of = |hint| {
            let arg = Migration::keep(hint).argument();
            assert_eq!(arg.flags, abi::MIGRATE_KEEP);
            (arg.place, arg.granularity)
        };
        for (reach, number) in Reach::ALL.into_iter().zip([0, 16, 17, 18, 19, 20, 21]) {
            assert_eq!(of(Some(Hint::Vram(reach))), (abi::PLACE_VRAM, number));
        }
        assert_eq!(of(Some(Hint::System)), (abi::PLACE_SYSTEM, 0));
        assert_eq!(of(Some(Hint::Stay)), (abi::PLACE_STAY, 0));
        assert_eq!(of(None), (abi::PLACE_POLICY, 0));
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
