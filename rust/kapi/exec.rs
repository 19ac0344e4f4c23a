// SPDX-License-Identifier: GPL-2.0

//! Locking the reservations of several objects without deadlock: `drm_exec`.
//!
//! Of two threads that lock the same objects in different order one backs off: it unlocks all that it has, waits for
//! the object that the other one has, and begins anew. In C `drm_exec_until_all_locked` is a loop around the locking, with
//! a computed label. Here it is two closures of [`with_locked`]: the first one locks, and is run again after each
//! contention; the second one is run once, with everything locked. So there is nothing to undo but what the first one
//! changes itself.
//!
//! C header: [`include/drm/drm_exec.h`](srctree/include/drm/drm_exec.h)

use core::marker::PhantomData;

use kernel::{
    bindings,
    prelude::*,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

use super::{
    gem::Object,
    mappable::Mappable,
    resv::Resv, //
};

/// Whether signals end the wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// They do: for system calls.
    Interruptible,
    /// They do not: for work of the kernel.
    Uninterruptible,
}

/// Why locking was not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Another thread comes first. To be handed on by the closure, which is run again.
    Contended,
    /// Locking has failed for good.
    Failed(Error),
}

impl From<Error> for LockError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A `drm_exec` that is initialised.
///
/// # Invariants
///
/// It does not move, since it has a list of locks with pointers to it: only references of it leave [`with_locked`].
struct Context(Opaque<bindings::drm_exec>);

impl Context {
    /// Whether the thread has backed off, and what it had is to be unlocked.
    fn is_contended(&self) -> bool {
        // SAFETY: Initialised, and only this thread uses it. Outside a call the pointer is an object or null.
        unsafe { !(*self.0.get()).contended.is_null() }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; unlocks what is locked.
        unsafe { bindings::drm_exec_fini(self.0.get()) };
    }
}

/// What the first closure of [`with_locked`] locks by.
pub(crate) struct Locking<'exec, T: Mappable> {
    context: &'exec Context,
    _types: PhantomData<(fn() -> T, NotThreadSafe)>,
}

impl<T: Mappable> Locking<'_, T> {
    /// Locks the reservation of `object`; once more is nothing.
    ///
    /// # Errors
    ///
    /// - [`LockError::Contended`]: the closure has to end with it.
    /// - `EINTR`: a signal came. `ENOMEM`.
    pub(crate) fn lock(&mut self, object: &Object<T>) -> Result<(), LockError> {
        // SAFETY: The context is initialised, in its loop, and takes a reference of the object.
        let result = unsafe { bindings::drm_exec_lock_obj(self.context.0.get(), object.as_raw()) };
        match result {
            0 => Ok(()),
            _ if self.context.is_contended() => Err(LockError::Contended),
            error => Err(LockError::Failed(Error::from_errno(error))),
        }
    }
}

/// Objects whose reservations are locked, and stay so for `'exec`.
pub(crate) struct Locked<'exec, T: Mappable> {
    context: &'exec Context,
    _types: PhantomData<(fn() -> T, NotThreadSafe)>,
}

impl<'exec, T: Mappable> Locked<'exec, T> {
    /// The proof that `object` is one of them.
    pub(crate) fn resv<'a>(&self, object: &'a Object<T>) -> Option<Resv<'a, T>>
    where
        'exec: 'a,
    {
        // SAFETY: The context is initialised, the object live. A lock that another thread holds has another
        // ticket, or none; that of this thread changes only here.
        let ours = unsafe {
            let holder = (&raw const (*object.resv()).lock.ctx).read_volatile();
            core::ptr::eq(holder, &raw const (*self.context.0.get()).ticket)
        };
        // SAFETY: Locked with this context by this thread, and unlocked only when the context ends, after `'exec`.
        ours.then(|| unsafe { Resv::new(object) })
    }
}

/// Locks objects by `lock`, which is run again after each contention and must end with the error of
/// [`Locking::lock`]; then runs `run` once. All is unlocked behind it. `room` is about how many objects there are.
///
/// # Errors
///
/// Those of `lock`; `EDEADLK` if it ends with [`LockError::Contended`] without any.
pub(crate) fn with_locked<T: Mappable, R>(
    wait: Wait,
    room: u32,
    mut lock: impl FnMut(&mut Locking<'_, T>) -> Result<(), LockError>,
    run: impl for<'exec> FnOnce(&Locked<'exec, T>) -> R,
) -> Result<R> {
    let raw = Opaque::<bindings::drm_exec>::uninit();
    let interruptible = wait == Wait::Interruptible;
    // Initialised where it stays: a context without locks may be moved.
    // SAFETY: `raw` is memory for a context, and is not used before.
    unsafe { crate::bindings::rkfd_exec_init(raw.get(), interruptible, room) };
    let context = Context(raw);
    loop {
        // SAFETY: Initialised above. True: there are no locks now, and locking begins, or begins anew.
        if !unsafe { bindings::drm_exec_cleanup(context.0.get()) } {
            break;
        }
        let mut locking = Locking {
            context: &context,
            _types: PhantomData,
        };
        match lock(&mut locking) {
            Ok(()) => {}
            Err(LockError::Contended) if context.is_contended() => {}
            Err(LockError::Contended) => return Err(EDEADLK),
            Err(LockError::Failed(error)) => return Err(error),
        }
    }
    let locked = Locked {
        context: &context,
        _types: PhantomData,
    };
    Ok(run(&locked))
}
