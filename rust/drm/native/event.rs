// SPDX-License-Identifier: GPL-2.0

//! EVENT_CREATE, EVENT_DESTROY, WAIT and FAULTS.

use kernel::{
    prelude::*,
    sync::CondVarTimeoutResult,
    time::Jiffies,
    transmute::AsBytes, //
};

use super::{
    args::{
        for_each_element,
        require_zero,
        user_slice, //
        Device,
        File,
    },
    notices::{
        Condition,
        FAULT_LIMIT, //
    },
    uapi::{
        condition,
        fault,
        wait,
        EventCreate,
        EventDestroy,
        FaultRecord,
        Faults,
        Wait,
        WaitOp, //
    }, //
};
use crate::{
    hw::{
        ih::Fault,
        num::index, //
    },
    kapi::{
        drm_ioctl::is_unplugged,
        eventfd::EventFd,
        log::monotonic_ns, //
    },
};

/// Longest list of conditions.
const MAX_CONDITIONS: u32 = 4096;
/// Nanoseconds of a millisecond.
const NS_PER_MS: u64 = 1_000_000;

impl FaultRecord {
    /// What is told of `fault`, which came at `time`.
    pub(super) fn new(fault: &Fault, time: i64) -> Self {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        Self {
            address: fault.address & !0xfff,
            time: u64::try_from(time).unwrap_or(0),
            access: flag(fault.write, fault::WRITE)
                | flag(fault.execute, fault::EXECUTE)
                | flag(!fault.protection, fault::PRESENT),
            pad: 0,
        }
    }
}

/// Has a counter of the caller's signalled.
///
/// # Errors
///
/// - `EINVAL`: an unknown condition or flag; the descriptor is no eventfd.
/// - `EBADF`: no such descriptor.
/// - `EBUSY`: `/dev/kfd` has the address space.
/// - `ENOSPC`: no slot left.
/// - `ENOMEM`.
pub(super) fn create(_dev: &Device, file: &File, arg: &mut EventCreate) -> Result {
    require_zero(&[arg.flags, arg.slot])?;
    let condition = match arg.condition {
        condition::SIGNAL => Condition::Signal,
        condition::FAULT => Condition::Fault,
        condition::QUEUE => Condition::Queue,
        condition::RESET => Condition::Reset,
        _ => return Err(EINVAL),
    };
    let counter = EventFd::from_fd(arg.eventfd)?;
    let context = file.inner().get_ref().context();
    context.claim()?;
    arg.slot = context.notices().add(condition, counter)?;
    Ok(())
}

/// Takes a slot back. Its counter is not signalled any more when this returns.
///
/// # Errors
///
/// - `EINVAL`: padding that is not 0.
/// - `ENOENT`: no such slot in this file.
pub(super) fn destroy(_dev: &Device, file: &File, arg: &mut EventDestroy) -> Result {
    require_zero(&[arg.pad])?;
    file.inner().get_ref().context().notices().remove(arg.slot)
}

/// A condition on memory.
impl WaitOp {
    /// # Errors
    ///
    /// `EINVAL`.
    fn check(&self) -> Result {
        let is_known = matches!(self.compare, wait::EQUAL | wait::NOT_EQUAL | wait::AT_LEAST);
        let is_sized = matches!(self.size, 4 | 8);
        if !is_known || !is_sized || self.address % u64::from(self.size) != 0 {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Whether it holds at this moment.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    fn holds(&self) -> Result<bool> {
        let mut reader = user_slice(self.address, index(self.size))?.reader();
        let word = if self.size == 4 {
            u64::from(reader.read::<u32>()?)
        } else {
            reader.read::<u64>()?
        };
        let (word, value) = (word & self.mask, self.value & self.mask);
        Ok(match self.compare {
            wait::NOT_EQUAL => word != value,
            wait::AT_LEAST => word >= value,
            _ => word == value,
        })
    }
}

/// Sleeps until words of the caller's memory have values, one or all of them. They are looked at when the wait
/// begins, and again whenever an interrupt of this file's address space arrives, whatever its context id.
///
/// # Errors
///
/// - `EINVAL`: an empty or too long list, an unknown flag, size or comparison, an address that is not aligned.
/// - `E2BIG`: the conditions have fields that this version does not know.
/// - `EFAULT`: the list, or a word, cannot be read.
/// - `EBUSY`: `/dev/kfd` has the address space.
/// - `ETIME`: the time is over.
/// - `ENODEV`: the GPU is gone.
/// - `EINTR` (or the call is repeated): a signal.
pub(super) fn wait(dev: &Device, file: &File, arg: &mut Wait) -> Result {
    arg.met = wait::NONE;
    if arg.count == 0 || arg.count > MAX_CONDITIONS || arg.flags & !wait::ALL != 0 {
        return Err(EINVAL);
    }
    let mut conditions = KVVec::with_capacity(index(arg.count), GFP_KERNEL_ACCOUNT)?;
    for_each_element(arg.ops, arg.count, arg.stride, |_, op: WaitOp| {
        op.check()?;
        Ok(conditions.push(op, GFP_KERNEL_ACCOUNT)?)
    })
    .map_err(|(error, _)| error)?;
    let context = file.inner().get_ref().context();
    context.claim()?;
    let notices = context.notices();
    loop {
        // Before the look: a report that comes after it is not slept through.
        let seen = notices.count();
        if let Some(first) = look(&conditions, arg.flags & wait::ALL != 0)? {
            arg.met = first;
            return Ok(());
        }
        // What takes the GPU away wakes all waiters before the hardware goes.
        if is_unplugged(dev) {
            return Err(ENODEV);
        }
        drop(dev.gpu().enter()?);
        let now = u64::try_from(monotonic_ns()).unwrap_or(0);
        let left = arg.deadline.saturating_sub(now);
        if left == 0 {
            return Err(ETIME);
        }
        if let CondVarTimeoutResult::Signal { .. } = notices.sleep(seen, jiffies(left)) {
            return Err(ERESTARTSYS);
        }
    }
}

/// The first condition that holds, where one (or `all`) do.
fn look(conditions: &[WaitOp], all: bool) -> Result<Option<u32>> {
    let mut first = None;
    for (number, condition) in (0u32..).zip(conditions) {
        match (condition.holds()?, all) {
            (true, false) => return Ok(Some(number)),
            (true, true) => first = first.or(Some(number)),
            (false, true) => return Ok(None),
            (false, false) => {}
        }
    }
    Ok(first)
}

/// At least `ns` nanoseconds.
fn jiffies(ns: u64) -> Jiffies {
    let ms = u32::try_from(ns / NS_PER_MS + 1).unwrap_or(u32::MAX / 4);
    kernel::time::msecs_to_jiffies(ms.min(u32::MAX / 4)).saturating_add(1)
}

/// Moves the oldest faults of the address space to the caller. With room for none it tells how many found no room.
///
/// # Errors
///
/// - `EINVAL`: an unknown flag, a wrong distance of records.
/// - `EFAULT`: the records cannot be written; they are lost then.
/// - `EBUSY`: `/dev/kfd` has the address space.
/// - `ENOMEM`.
pub(super) fn faults(_dev: &Device, file: &File, arg: &mut Faults) -> Result {
    require_zero(&[arg.flags, arg.pad])?;
    let stride = index(arg.stride);
    if stride != core::mem::size_of::<FaultRecord>() {
        return Err(EINVAL);
    }
    let context = file.inner().get_ref().context();
    context.claim()?;
    let room = index(arg.count).min(FAULT_LIMIT);
    let mut records = KVec::new();
    records.reserve(room, GFP_KERNEL_ACCOUNT)?;
    arg.dropped = context.notices().take_faults(&mut records, room);
    arg.count = crate::hw::num::len32(records.len());
    let mut writer = user_slice(arg.records, records.len() * stride)?.writer();
    for record in &records {
        writer.write_slice(AsBytes::as_bytes(record))?;
    }
    Ok(())
}
