// SPDX-License-Identifier: GPL-2.0

//! The calls of `/dev/kfd`: the table and the way through it.

mod aperture;
pub(crate) mod call;
mod clock;
mod context;
mod dmabuf;
mod event;
pub(crate) mod memory;
mod policy;
mod queue;
mod smi;
mod svm;
mod unsupported;
mod version;

use super::{
    command::{
        self,
        Argument,
        Direction,
        Shape, //
    },
    uapi, //
};
use crate::kapi::task::{
    capable,
    Capability, //
};
use call::Call;
use kernel::{
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// A call of the table.
pub(crate) struct Entry {
    /// Name, size and direction.
    pub(crate) shape: Shape,
    /// Only for callers that may checkpoint.
    checkpoint_restore: bool,
    run: fn(&Call<'_>, &mut Argument) -> Result,
}

/// An entry that reads the argument as a structure, runs a function on it and stores it again, whatever
/// the outcome.
macro_rules! entry {
    ($name:ident, $direction:ident, $($args:ident)::+, $run:expr) => {
        Entry {
            shape: Shape {
                name: stringify!($name),
                size: core::mem::size_of::<uapi::$($args)::+>(),
                direction: Direction::$direction,
            },
            checkpoint_restore: false,
            run: |call, argument| {
                let run: fn(&Call<'_>, &mut uapi::$($args)::+) -> Result = $run;
                let mut args: uapi::$($args)::+ = argument.read()?;
                let result = run(call, &mut args);
                argument.write(&args)?;
                result
            },
        }
    };
}

/// The entry of command `number`.
pub(crate) fn entry(number: u32) -> Option<Entry> {
    let found = match number {
        0x01 => entry!(GET_VERSION, Out, GetVersion, version::get_version),
        0x02 => entry!(CREATE_QUEUE, InOut, CreateQueue, queue::create_queue),
        0x03 => entry!(DESTROY_QUEUE, InOut, DestroyQueue, queue::destroy_queue),
        0x04 => entry!(
            SET_MEMORY_POLICY,
            In,
            SetMemoryPolicy,
            policy::set_memory_policy
        ),
        0x05 => entry!(
            GET_CLOCK_COUNTERS,
            InOut,
            GetClockCounters,
            clock::get_clock_counters
        ),
        0x06 => entry!(
            GET_PROCESS_APERTURES,
            Out,
            GetProcessApertures,
            aperture::get_process_apertures
        ),
        0x07 => entry!(UPDATE_QUEUE, In, UpdateQueue, queue::update_queue),
        0x08 => entry!(CREATE_EVENT, InOut, CreateEvent, event::create_event),
        0x09 => entry!(DESTROY_EVENT, In, EventId, event::destroy_event),
        0x0a => entry!(SET_EVENT, In, EventId, event::set_event),
        0x0b => entry!(RESET_EVENT, In, EventId, event::reset_event),
        0x0c => entry!(WAIT_EVENTS, InOut, WaitEvents, event::wait_events),
        0x0d => entry!(DBG_REGISTER, In, retired::Short, unsupported::retired),
        0x0e => entry!(DBG_UNREGISTER, In, retired::Short, unsupported::retired),
        0x0f => entry!(DBG_ADDRESS_WATCH, In, retired::Long, unsupported::retired),
        0x10 => entry!(DBG_WAVE_CONTROL, In, retired::Long, unsupported::retired),
        0x11 => entry!(
            SET_SCRATCH_BACKING_VA,
            InOut,
            SetScratchBackingVa,
            policy::set_scratch_backing_va
        ),
        0x12 => entry!(
            GET_TILE_CONFIG,
            InOut,
            GetTileConfig,
            policy::get_tile_config
        ),
        0x13 => entry!(
            SET_TRAP_HANDLER,
            In,
            SetTrapHandler,
            policy::set_trap_handler
        ),
        0x14 => entry!(
            GET_PROCESS_APERTURES_NEW,
            InOut,
            GetProcessAperturesNew,
            aperture::get_process_apertures_new
        ),
        0x15 => entry!(ACQUIRE_VM, In, AcquireVm, memory::acquire_vm),
        0x16 => entry!(
            ALLOC_MEMORY_OF_GPU,
            InOut,
            AllocMemory,
            memory::alloc_memory
        ),
        0x17 => entry!(FREE_MEMORY_OF_GPU, In, FreeMemory, memory::free_memory),
        0x18 => entry!(MAP_MEMORY_TO_GPU, InOut, MapMemory, memory::map_memory),
        0x19 => entry!(
            UNMAP_MEMORY_FROM_GPU,
            InOut,
            MapMemory,
            memory::unmap_memory
        ),
        0x1a => entry!(SET_CU_MASK, In, SetCuMask, queue::set_cu_mask),
        0x1b => entry!(
            GET_QUEUE_WAVE_STATE,
            InOut,
            GetQueueWaveState,
            queue::get_queue_wave_state
        ),
        0x1c => entry!(
            GET_DMABUF_INFO,
            InOut,
            GetDmabufInfo,
            dmabuf::get_dmabuf_info
        ),
        0x1d => entry!(IMPORT_DMABUF, InOut, ImportDmabuf, dmabuf::import_dmabuf),
        0x1e => entry!(
            ALLOC_QUEUE_GWS,
            InOut,
            AllocQueueGws,
            queue::alloc_queue_gws
        ),
        0x1f => entry!(SMI_EVENTS, InOut, SmiEvents, smi::smi_events),
        0x20 => Entry {
            shape: Shape {
                name: "SVM",
                size: core::mem::size_of::<uapi::Svm>(),
                direction: Direction::InOut,
            },
            checkpoint_restore: false,
            run: svm::svm,
        },
        0x21 => entry!(SET_XNACK_MODE, InOut, SetXnackMode, policy::set_xnack_mode),
        0x22 => Entry {
            checkpoint_restore: true,
            ..entry!(CRIU_OP, InOut, CriuOp, unsupported::criu_op)
        },
        0x23 => entry!(
            AVAILABLE_MEMORY,
            InOut,
            AvailableMemory,
            memory::available_memory
        ),
        0x24 => entry!(EXPORT_DMABUF, InOut, ExportDmabuf, dmabuf::export_dmabuf),
        0x25 => entry!(RUNTIME_ENABLE, InOut, RuntimeEnable, policy::runtime_enable),
        0x26 => entry!(DBG_TRAP, InOut, DbgTrap, unsupported::dbg_trap),
        0x27 => Entry {
            shape: Shape {
                name: "CREATE_PROCESS",
                size: 0,
                direction: Direction::None,
            },
            checkpoint_restore: false,
            run: context::create_process,
        },
        0x28 => entry!(PROFILER, InOut, Profiler, unsupported::profiler),
        _ => return None,
    };
    Some(found)
}

/// Runs a command.
///
/// # Errors
///
/// - `ENOTTY`: no such number.
/// - `EBADF`: the file belongs to another process.
/// - `EINVAL`: a number of the range that nothing answers.
/// - `EACCES`: only for callers that may checkpoint.
/// - `ENOMEM`, `EFAULT`: the argument.
/// - What the call itself reports.
pub(crate) fn dispatch(call: &Call<'_>, word: u32, argument: usize) -> Result<isize> {
    let number = command::number(word);
    command::check_number(number)?;
    call.process.check_caller(call.opener)?;
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
        pr_debug!(
            "pid {}: {} gives {:?}\n",
            call.process.pid(),
            entry.shape.name,
            error
        );
    }
    result.map(|()| 0)
}
