// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What stops an AQL queue, and who learns of it.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;

use library::queue::error::QueueError as Stopped;
use library::queue::QueueKind;
use nix::errno::Errno;

use crate::error::given;
use crate::error::guard;
use crate::error::Failure;
use crate::gpu::Vm;
use crate::queue::millis;
use crate::queue::Queue;
use crate::sized::answer;
use crate::sized::grows;

/// A code or exception that this library does not know.
pub const RKFD_REASON_UNKNOWN: u32 = 0;
/// A dispatch whose dimensions are 0 or too many.
pub const RKFD_REASON_DIMENSION: u32 = 1;
/// A dispatch that wants more group memory than there is.
pub const RKFD_REASON_GROUP_MEMORY: u32 = 2;
/// A dispatch whose code object is null or cannot be read.
pub const RKFD_REASON_CODE_OBJECT: u32 = 3;
/// A packet of a type that the GPU does not run.
pub const RKFD_REASON_PACKET_FORMAT: u32 = 4;
/// A dispatch whose work-group is too large.
pub const RKFD_REASON_WORKGROUP_SIZE: u32 = 5;
/// A dispatch that wants more registers than there are.
pub const RKFD_REASON_REGISTERS: u32 = 6;
/// A vendor packet that the GPU does not know.
pub const RKFD_REASON_VENDOR_PACKET: u32 = 7;
/// A dispatch that wants more private memory than the queue has.
pub const RKFD_REASON_SCRATCH: u32 = 8;
/// A wave aborted.
pub const RKFD_REASON_WAVE_ABORT: u32 = 9;
/// A wave ran into a trap.
pub const RKFD_REASON_WAVE_TRAP: u32 = 10;
/// A wave's arithmetic raised an exception.
pub const RKFD_REASON_WAVE_MATH: u32 = 11;
/// A wave came to an instruction that does not exist.
pub const RKFD_REASON_ILLEGAL_INSTRUCTION: u32 = 12;
/// A wave accessed memory that is not there.
pub const RKFD_REASON_MEMORY_VIOLATION: u32 = 13;
/// A wave accessed an aperture beyond its end.
pub const RKFD_REASON_APERTURE_VIOLATION: u32 = 14;
/// The queue did not leave the hardware.
pub const RKFD_REASON_PREEMPTION: u32 = 15;

/// What stopped an AQL queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueErrorInfo {
    /// sizeof(struct rkfd_queue_error_info); set it before a call.
    pub size: u32,
    /// RKFD_REASON_*, the first of them where there are several.
    pub reason: u32,
    /// Bit n for RKFD_REASON_* number n: all of them.
    pub reasons: u64,
    /// Index of the packet that the queue stopped at.
    pub packet: u64,
    /// Value of queue_inactive_signal: what the packet processor says.
    pub code: u64,
    /// What the driver says, where rkfd_vm_enable_runtime() was called: bit n - 1 for exception n of linux/kfd_ioctl.h
    /// (enum kfd_dbg_trap_exception_code).
    pub exceptions: u64,
}

grows! {
    QueueErrorInfo, "rkfd_queue_error_info", 40;
}

/// Called when a queue stops, with what rkfd_queue_on_error() was given.
pub type ErrorCallback =
    Option<unsafe extern "C" fn(data: *mut c_void, error: *const QueueErrorInfo)>;

impl From<Stopped> for QueueErrorInfo {
    fn from(from: Stopped) -> Self {
        // CAST: numbers of reasons, which are those of the constants above (see the tests), and a size.
        Self {
            size: size_of::<Self>() as u32,
            reason: from.reason() as u32,
            reasons: from
                .reasons()
                .iter()
                .fold(0, |all, reason| all | (1 << *reason as u32)),
            packet: from.packet,
            code: from.code,
            exceptions: from.exceptions,
        }
    }
}

/// A reason (RKFD_REASON_*) in words; "" for a number that is none.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_reason_text(reason: u32) -> *const c_char {
    const TEXTS: [&std::ffi::CStr; 16] = [
        c"a reason that is not known here",
        c"a dispatch of bad dimensions",
        c"a dispatch with too much group memory",
        c"a dispatch of a bad code object",
        c"a packet of a type that the GPU does not run",
        c"a dispatch with too large a work-group",
        c"a dispatch with too many registers",
        c"a vendor packet that the GPU does not know",
        c"a dispatch with more private memory than the queue has",
        c"a wave that aborted",
        c"a wave that trapped",
        c"a wave's arithmetic exception",
        c"a wave's illegal instruction",
        c"a wave's access to memory that is not there",
        c"a wave's access beyond an aperture",
        c"a queue that did not leave the hardware",
    ];
    // CAST: 32 bits into 64.
    TEXTS.get(reason as usize).copied().unwrap_or(c"").as_ptr()
}

/// Has the driver report exceptions of the process's queues, too (RUNTIME_ENABLE): what waves run into, in
/// `exceptions` of struct rkfd_queue_error_info. Packets that cannot run are reported without that. A process has one runtime:
/// -EBUSY where it was enabled, by this library or another, such as ROCr. It has to be before the first queue: -EEXIST.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_vm_enable_runtime(vm: Option<&Vm>) -> c_int {
    guard(|| Ok(given(vm, "vm")?.device.kfd().enable_runtime()?))
}

/// Tells what stopped an AQL queue. -EAGAIN where nothing did.
///
/// MT-Safe.
///
/// # Safety
/// `error` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_queue_error(
    queue: Option<&Queue>,
    error: *mut QueueErrorInfo,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        // SAFETY: the caller's promise.
        let error = unsafe { answer(error) }?;
        queue.demand(QueueKind::Aql)?;
        match queue.queue.error() {
            Some(stopped) => {
                error.give(stopped.into());
                Ok(())
            }
            None => Err(Failure::new(Errno::EAGAIN, "The queue did not stop")),
        }
    })
}

/// Sleeps until an AQL queue stops at a packet; for `limit_ms` at most, then -ETIMEDOUT. 0 means that it stopped, and
/// `error` tells why.
///
/// MT-Safe.
///
/// # Safety
/// `error` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_queue_error_wait(
    queue: Option<&Queue>,
    limit_ms: u32,
    error: *mut QueueErrorInfo,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        // SAFETY: the caller's promise.
        let error = unsafe { answer(error) }?;
        queue.demand(QueueKind::Aql)?;
        error.give(queue.queue.wait_error(millis(limit_ms))?.into());
        Ok(())
    })
}

/// A pointer that only C looks at.
struct Data(*mut c_void);

// SAFETY: it is handed from the thread that registers a callback to the one that calls it, and not looked at between.
unsafe impl Send for Data {}

/// Has `callback` called, with `data`, each time that an AQL queue stops, and again where the driver tells more of the same
/// stop, from a thread of the library. It takes
/// the place of the one before; NULL ends the calls. When this returns, and when rkfd_queue_free() did, the callback before
/// is not running any more and is not called again. A callback may call any function but rkfd_queue_free() and this one
/// for its own queue; `error` is valid until it returns.
///
/// MT-Safe.
///
/// # Safety
/// `callback` may be called from any thread with `data` until it is replaced.
#[no_mangle]
pub unsafe extern "C" fn rkfd_queue_on_error(
    queue: Option<&Queue>,
    callback: ErrorCallback,
    data: *mut c_void,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        queue.demand(QueueKind::Aql)?;
        let data = Data(data);
        let tell = callback.map(|callback| {
            Box::new(move |stopped: Stopped| {
                let data = &data;
                let error = QueueErrorInfo::from(stopped);
                // SAFETY: the caller's promise; the error lives across the call.
                unsafe { callback(data.0, &raw const error) };
            }) as Box<dyn FnMut(Stopped) + Send>
        });
        Ok(queue.queue.on_error(tell)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use library::queue::error::Reason;
    use std::ffi::CStr;

    #[test]
    fn reasons_have_the_numbers_and_texts_of_the_library() {
        for reason in Reason::ALL {
            // SAFETY: a text of the program that ends in a zero.
            let text = unsafe { CStr::from_ptr(rkfd_reason_text(*reason as u32)) };
            assert_eq!(text.to_str().unwrap(), reason.text());
        }
        // SAFETY: as above.
        let none = unsafe { CStr::from_ptr(rkfd_reason_text(Reason::ALL.len() as u32)) };
        assert!(none.is_empty());
        for (constant, reason) in [
            (RKFD_REASON_UNKNOWN, Reason::Unknown),
            (RKFD_REASON_DIMENSION, Reason::Dimension),
            (RKFD_REASON_GROUP_MEMORY, Reason::GroupMemory),
            (RKFD_REASON_CODE_OBJECT, Reason::CodeObject),
            (RKFD_REASON_PACKET_FORMAT, Reason::PacketFormat),
            (RKFD_REASON_WORKGROUP_SIZE, Reason::WorkgroupSize),
            (RKFD_REASON_REGISTERS, Reason::Registers),
            (RKFD_REASON_VENDOR_PACKET, Reason::VendorPacket),
            (RKFD_REASON_SCRATCH, Reason::Scratch),
            (RKFD_REASON_WAVE_ABORT, Reason::WaveAbort),
            (RKFD_REASON_WAVE_TRAP, Reason::WaveTrap),
            (RKFD_REASON_WAVE_MATH, Reason::WaveMath),
            (RKFD_REASON_ILLEGAL_INSTRUCTION, Reason::IllegalInstruction),
            (RKFD_REASON_MEMORY_VIOLATION, Reason::MemoryViolation),
            (RKFD_REASON_APERTURE_VIOLATION, Reason::ApertureViolation),
            (RKFD_REASON_PREEMPTION, Reason::Preemption),
        ] {
            assert_eq!(constant, reason as u32);
        }
    }

    #[test]
    fn an_error_has_all_its_reasons() {
        let error = QueueErrorInfo::from(Stopped {
            code: 0x102,
            exceptions: 1 << 15,
            packet: 9,
        });
        assert_eq!(error.reason, RKFD_REASON_DIMENSION);
        let both = (1 << RKFD_REASON_DIMENSION) | (1 << RKFD_REASON_VENDOR_PACKET);
        assert_eq!((error.reasons, error.packet), (both, 9));
    }
}
