// SPDX-License-Identifier: GPL-2.0

//! The calling task, and the end of address spaces.
//!
//! C headers: [`include/linux/sched.h`](srctree/include/linux/sched.h),
//! [`include/linux/mmu_notifier.h`](srctree/include/linux/mmu_notifier.h)

use crate::bindings as rkfd;
use kernel::{
    bindings,
    error::to_result,
    mm::{
        Mm,
        MmWithUser, //
    },
    new_spinlock,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        SpinLock, //
    },
    task::Task,
    time::Jiffies,
    types::Opaque, //
};

/// Whether the running system call came through the 32-bit interface.
pub(crate) fn in_compat_syscall() -> bool {
    // SAFETY: Reads the state of the current task.
    unsafe { rkfd::rkfd_in_compat_syscall() }
}

/// Whether `len` bytes at `addr` lie in the range that user space may have; says nothing about
/// what is mapped there.
pub(crate) fn access_ok(addr: u64, len: u64) -> bool {
    // SAFETY: A comparison of numbers with the limit of the current task.
    unsafe { rkfd::rkfd_access_ok(addr, len) }
}

/// Whether the current task is being killed and should not start, or go on with, long work.
pub(crate) fn fatal_signal_pending() -> bool {
    // SAFETY: Looks at the current task only.
    unsafe { rkfd::rkfd_fatal_signal_pending() }
}

/// Milliseconds of `jiffies`, rounded up to what the clock can tell.
pub(crate) fn jiffies_to_msecs(jiffies: Jiffies) -> u32 {
    // SAFETY: Arithmetic.
    unsafe { rkfd::rkfd_jiffies_to_msecs(jiffies) }
}

/// Id of the calling process in the initial namespace.
pub(crate) fn current_tgid() -> i32 {
    current!().group_leader().pid()
}

/// Id, in the initial namespace, of the process that a thread belongs to which the caller's namespace calls
/// `nr`.
pub(crate) fn tgid_of(nr: u32) -> Option<i32> {
    let nr = c_int::try_from(nr).ok()?;
    // SAFETY: Looks a number up, whatever it is.
    let tgid = unsafe { rkfd::rkfd_tgid_of(nr) };
    (tgid != 0).then_some(tgid)
}

/// Capabilities that the interface asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Capability {
    /// Override everything else.
    SysAdmin,
    /// Performance counters.
    PerfMon,
    /// Checkpoint and restore.
    CheckpointRestore,
}

/// Whether the caller has `capability`; records that it was used.
pub(crate) fn capable(capability: Capability) -> bool {
    let number = match capability {
        Capability::SysAdmin => bindings::CAP_SYS_ADMIN,
        Capability::PerfMon => bindings::CAP_PERFMON,
        Capability::CheckpointRestore => bindings::CAP_CHECKPOINT_RESTORE,
    };
    c_int::try_from(number).is_ok_and(|number| {
        // SAFETY: May be called by any task.
        unsafe { bindings::capable(number) }
    })
}

/// Bytes of a task's name, its end included (`TASK_COMM_LEN`).
const NAME_SIZE: usize = 16;

/// Name of a task, as it chose it: any bytes.
pub(crate) struct TaskName([u8; NAME_SIZE]);

impl TaskName {
    /// The bytes before its end.
    pub(crate) fn bytes(&self) -> &[u8] {
        let len = self.0.iter().position(|byte| *byte == 0);
        self.0.get(..len.unwrap_or(NAME_SIZE)).unwrap_or_default()
    }
}

/// Names a thread group (what user space calls a process) by its leader.
#[derive(Clone)]
pub(crate) struct ThreadGroup {
    leader: ARef<Task>,
    /// See [`Self::own_pid`].
    own_pid: i32,
}

impl ThreadGroup {
    /// The group of the caller.
    pub(crate) fn current() -> Self {
        let task = current!();
        Self {
            leader: task.group_leader().into(),
            own_pid: task.tgid_nr_ns(task.active_pid_ns()),
        }
    }

    /// Whether the caller belongs to this group.
    pub(crate) fn is_current(&self) -> bool {
        *current!().group_leader() == *self.leader
    }

    /// The group of a thread.
    #[cfg(rkfd_kunit)]
    pub(super) fn of(leader: ARef<Task>) -> Self {
        let own_pid = leader.pid();
        Self { leader, own_pid }
    }

    /// Whether this is the same group as `other`, whichever of its threads led it when it was named: one that
    /// executes a program becomes the leader.
    pub(crate) fn is(&self, other: &Self) -> bool {
        // SAFETY: Compares fields that a task keeps until it is freed, and both are referenced.
        unsafe { rkfd::rkfd_same_process(self.leader.as_ptr(), other.leader.as_ptr()) }
    }

    /// Whether its last thread is ending or has ended.
    pub(crate) fn has_ended(&self) -> bool {
        // SAFETY: Reads what all threads of the group keep until they are freed, and one is referenced.
        unsafe { rkfd::rkfd_process_ended(self.leader.as_ptr()) }
    }

    /// Process id in the initial namespace, for messages.
    pub(crate) fn pid(&self) -> i32 {
        self.leader.pid()
    }

    /// Process id in the namespace of the process, which is what it knows itself by.
    pub(crate) fn own_pid(&self) -> i32 {
        self.own_pid
    }

    /// Name of the process at this moment.
    pub(crate) fn name(&self) -> TaskName {
        let mut name = [0; NAME_SIZE];
        // SAFETY: The task is referenced, and the buffer has the size of a task's name.
        unsafe { rkfd::rkfd_task_comm(self.leader.as_ptr(), name.as_mut_ptr()) };
        TaskName(name)
    }
}

/// Names an address space without keeping it: two of them are equal if they are the same while one of
/// them is [watched](MmWatch) or referenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MmKey(usize);

impl MmKey {
    /// Whether the caller runs in this address space.
    pub(crate) fn is_current(self) -> bool {
        current!().mm().is_some_and(|mm| key_of(mm) == self)
    }
}

/// Names the current task among those that there are.
pub(crate) fn current_task() -> usize {
    let task: &Task = current!();
    core::ptr::from_ref(task).addr()
}

/// The address space of the caller and its key; `None` for a kernel thread.
pub(crate) fn current_mm() -> Option<(ARef<MmWithUser>, MmKey)> {
    let task = current!();
    let mm = task.mm()?;
    Some((mm.into(), key_of(mm)))
}

/// The key of an address space.
pub(super) fn key_of(mm: &Mm) -> MmKey {
    MmKey(mm.as_raw().addr())
}

/// Called once when an address space ends.
pub(crate) trait MmRelease: Send + Sync {
    /// The last thread of the address space has left it (exit or exec); its pages are freed after this
    /// call returns. May sleep.
    fn mm_released(&self);
}

/// The part of a watch that the notifier points to.
///
/// One reference belongs to the registration, one to the [`MmWatch`].
#[pin_data]
struct Watch {
    #[pin]
    notifier: Opaque<bindings::mmu_notifier>,
    /// `None` once the watch ended. What takes it ends the registration.
    #[pin]
    target: SpinLock<Option<Arc<dyn MmRelease>>>,
}

// SAFETY: `notifier` is only touched by the MMU notifier core, which has its own locks.
unsafe impl Send for Watch {}
// SAFETY: `notifier` is only touched by the MMU notifier core, which has its own locks; `target` is behind a lock.
unsafe impl Sync for Watch {}

/// Watches an address space until it dies or the watch is dropped.
///
/// After the drop, a call that had begun may still be running; [`mm_watch_barrier`] waits for it.
pub(crate) struct MmWatch(Arc<Watch>);

impl Watch {
    const OPS: bindings::mmu_notifier_ops = bindings::mmu_notifier_ops {
        release: Some(Self::release),
        free_notifier: Some(Self::free),
        ..pin_init::zeroed()
    };

    /// Ends the registration if that has not been done, and returns what was watching.
    fn end(&self) -> Option<Arc<dyn MmRelease>> {
        let target = self.target.lock().take()?;
        // SAFETY: The notifier was registered, which makes one user, and only the one caller that
        // took the target drops that user.
        unsafe { bindings::mmu_notifier_put(self.notifier.get()) };
        Some(target)
    }

    /// # Safety
    ///
    /// Called by the MMU notifier core with a notifier that lies in a [`Watch`].
    unsafe extern "C" fn release(
        subscription: *mut bindings::mmu_notifier,
        _mm: *mut bindings::mm_struct,
    ) {
        // SAFETY: `subscription` is the field of a `Watch` that the registration keeps alive until
        // `free` is called, which the core does after all of these calls have returned.
        let watch =
            unsafe { &*kernel::container_of!(Opaque::cast_from(subscription), Watch, notifier) };
        let target = watch.target.lock().clone();
        if let Some(target) = target {
            target.mm_released();
        }
        drop(watch.end());
    }

    /// # Safety
    ///
    /// Called by the MMU notifier core once, after the last use of the notifier.
    unsafe extern "C" fn free(subscription: *mut bindings::mmu_notifier) {
        // SAFETY: The registration owned one reference, made by `Arc::into_raw` in `MmWatch::new`.
        drop(unsafe {
            Arc::from_raw(kernel::container_of!(
                Opaque::cast_from(subscription),
                Watch,
                notifier
            ))
        });
    }
}

impl MmWatch {
    /// Watches `mm` for `target`. Takes the mmap lock for writing.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EINTR` if the caller is being killed.
    pub(crate) fn new(mm: &MmWithUser, target: Arc<dyn MmRelease>) -> Result<Self> {
        let watch = Arc::pin_init(
            pin_init!(Watch {
                notifier <- Opaque::ffi_init(|slot: *mut bindings::mmu_notifier| {
                    // SAFETY: `slot` is valid for writes; all zeroes is a valid `mmu_notifier`.
                    unsafe { slot.write(core::mem::zeroed()) };
                    // SAFETY: `slot` is initialised above, and not registered yet: there is no other user.
                    unsafe { (*slot).ops = &Watch::OPS };
                }),
                target <- new_spinlock!(Some(target), "rkfd_mm_watch"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let registration = Arc::into_raw(watch.clone());
        // SAFETY: The notifier is initialised, its memory belongs to the registration from here on,
        // and `mm` has users.
        let ret =
            unsafe { bindings::mmu_notifier_register((*registration).notifier.get(), mm.as_raw()) };
        if let Err(error) = to_result(ret) {
            // SAFETY: Not registered, so the reference is still ours.
            drop(unsafe { Arc::from_raw(registration) });
            drop(watch.target.lock().take());
            return Err(error);
        }
        Ok(Self(watch))
    }
}

impl Drop for MmWatch {
    fn drop(&mut self) {
        drop(self.0.end());
    }
}

/// Waits until nothing of ended watches is running or will be freed later. For the end of the module;
/// must not be called from [`MmRelease::mm_released`].
pub(crate) fn mm_watch_barrier() {
    // SAFETY: Waits for callbacks; the caller is not in one.
    unsafe { bindings::mmu_notifier_synchronize() };
}

/// Runs `f` in a kernel thread with the user memory of `mm`.
///
/// # Errors
///
/// `EINVAL`: the caller has user memory of its own.
pub(crate) fn with_user_memory<R>(mm: &MmWithUser, f: impl FnOnce() -> R) -> Result<R> {
    if current!().mm().is_some() {
        return Err(EINVAL);
    }
    // SAFETY: The caller is a kernel thread without user memory, and `mm` has users.
    unsafe { bindings::kthread_use_mm(mm.as_raw()) };
    let result = f();
    // SAFETY: Undoes the above.
    unsafe { bindings::kthread_unuse_mm(mm.as_raw()) };
    Ok(result)
}

/// Reads user memory of the calling thread that is present; never waits.
///
/// # Errors
///
/// `EFAULT`: it is not present, or not the user's.
pub(crate) fn read_present(address: u64, to: &mut [u8]) -> Result {
    let from = user_pointer(address)?;
    // SAFETY: `to` is valid for writes; the other side is checked by the function.
    let ret = unsafe { bindings::copy_from_user_nofault(to.as_mut_ptr().cast(), from, to.len()) };
    if ret != 0 {
        return Err(EFAULT);
    }
    Ok(())
}

/// Writes user memory of the calling thread that is present and writable; never waits.
///
/// # Errors
///
/// `EFAULT`: it is not, or not the user's.
pub(crate) fn write_present(address: u64, from: &[u8]) -> Result {
    let to = user_pointer(address)?;
    // SAFETY: `from` is valid for reads; the other side is checked by the function.
    let ret = unsafe { bindings::copy_to_user_nofault(to, from.as_ptr().cast(), from.len()) };
    if ret != 0 {
        return Err(EFAULT);
    }
    Ok(())
}

/// Brings `len` bytes of user memory of the calling thread in; may wait for whatever serves the fault.
///
/// # Errors
///
/// `EFAULT`: they cannot be accessed so.
pub(crate) fn bring_in(address: u64, len: usize, write: bool) -> Result {
    let at = user_pointer(address)?;
    let left = if write {
        // SAFETY: Looks at user memory only, with all checks; changes nothing there.
        unsafe { bindings::fault_in_safe_writeable(at.cast(), len) }
    } else {
        // SAFETY: Looks at user memory only, with all checks; changes nothing there.
        unsafe { bindings::fault_in_readable(at.cast(), len) }
    };
    if left != 0 {
        return Err(EFAULT);
    }
    Ok(())
}

fn user_pointer(address: u64) -> Result<*mut c_void> {
    let address = usize::try_from(address).map_err(|_| EFAULT)?;
    Ok(core::ptr::without_provenance_mut(address))
}

/// Raw monotonic time in nanoseconds.
pub(crate) fn raw_ns() -> u64 {
    // SAFETY: Reads a clock.
    let time = unsafe { bindings::ktime_get_raw() };
    u64::try_from(time).unwrap_or(0)
}

/// Time since boot in nanoseconds, sleep included.
pub(crate) fn boottime_ns() -> u64 {
    use kernel::time::ClockSource;
    u64::try_from(kernel::time::BootTime::ktime_get()).unwrap_or(0)
}
