// SPDX-License-Identifier: GPL-2.0

//! The calls of `/dev/kfd`: the table and the way through it.

mod aperture;
mod clock;
mod event;
mod unsupported;
mod version;

use super::{
    command::{
        self,
        Argument,
        Direction,
        Shape, //
    },
    process::Process,
    uapi,
    Facade, //
};
use crate::kapi::task::{
    capable,
    Capability, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Who calls.
pub(crate) struct Call<'a> {
    /// The face.
    pub(crate) facade: &'a Arc<Facade>,
    /// The process that opened the file; the dispatcher checked that it is the caller's.
    pub(crate) process: &'a Arc<Process>,
}

/// A call of the table.
struct Entry {
    shape: Shape,
    /// Only for those who may checkpoint.
    checkpoint_restore: bool,
    run: fn(&Call<'_>, &mut Argument) -> Result,
}

/// An entry that reads the argument as a structure, runs a function on it and stores it again, whatever
/// the outcome.
macro_rules! entry {
    ($name:literal, $direction:ident, $args:ty, $run:expr) => {
        Some(Entry {
            shape: Shape {
                name: $name,
                size: core::mem::size_of::<$args>(),
                direction: Direction::$direction,
            },
            checkpoint_restore: false,
            run: |call, argument| {
                let run: fn(&Call<'_>, &mut $args) -> Result = $run;
                let mut args: $args = argument.read()?;
                let result = run(call, &mut args);
                argument.write(&args)?;
                result
            },
        })
    };
}

/// The entry of command `number`.
fn entry(number: u32) -> Option<Entry> {
    match number {
        0x01 => entry!("GET_VERSION", Out, uapi::GetVersion, version::get_version),
        0x05 => entry!(
            "GET_CLOCK_COUNTERS",
            InOut,
            uapi::GetClockCounters,
            clock::get_clock_counters
        ),
        0x06 => entry!(
            "GET_PROCESS_APERTURES",
            Out,
            uapi::GetProcessApertures,
            aperture::get_process_apertures
        ),
        0x08 => entry!("CREATE_EVENT", InOut, uapi::CreateEvent, event::create_event),
        0x09 => entry!("DESTROY_EVENT", In, uapi::EventId, event::destroy_event),
        0x0a => entry!("SET_EVENT", In, uapi::EventId, event::set_event),
        0x0b => entry!("RESET_EVENT", In, uapi::EventId, event::reset_event),
        0x0c => entry!("WAIT_EVENTS", InOut, uapi::WaitEvents, event::wait_events),
        0x0d => entry!("DBG_REGISTER", In, uapi::retired::Short, unsupported::retired),
        0x0e => entry!("DBG_UNREGISTER", In, uapi::retired::Short, unsupported::retired),
        0x0f => entry!("DBG_ADDRESS_WATCH", In, uapi::retired::Long, unsupported::retired),
        0x10 => entry!("DBG_WAVE_CONTROL", In, uapi::retired::Long, unsupported::retired),
        0x14 => entry!(
            "GET_PROCESS_APERTURES_NEW",
            InOut,
            uapi::GetProcessAperturesNew,
            aperture::get_process_apertures_new
        ),
        _ => None,
    }
}

/// Runs a command.
///
/// # Errors
///
/// - `ENOTTY`: no such number.
/// - `EBADF`: the file belongs to another process.
/// - `EINVAL`: a number of the range that nothing answers.
/// - `EACCES`: only for those who may checkpoint.
/// - `ENOMEM`, `EFAULT`: the argument.
/// - What the call itself reports.
pub(crate) fn dispatch(call: &Call<'_>, word: u32, argument: usize) -> Result<isize> {
    let number = command::number(word);
    command::check_number(number)?;
    call.process.check_caller()?;
    let entry = entry(number).ok_or(EINVAL)?;
    if entry.checkpoint_restore
        && !capable(Capability::CheckpointRestore)
        && !capable(Capability::SysAdmin)
    {
        return Err(EACCES);
    }

    let mut bytes = Argument::new(&entry.shape, word)?;
    let user = UserSlice::new(UserPtr::from_addr(argument), bytes.user_size());
    let (mut reader, mut writer) = user.reader_writer();
    if entry.shape.direction.copies_in() {
        reader.read_slice(bytes.user_mut())?;
    }
    let result = (entry.run)(call, &mut bytes);
    if entry.shape.direction.copies_out() {
        writer.write_slice(bytes.user())?;
    }
    if let Err(error) = result {
        pr_debug!("pid {}: {} gives {:?}\n", call.process.pid(), entry.shape.name, error);
    }
    result.map(|()| 0)
}
