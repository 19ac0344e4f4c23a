// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The native interface of a render node: address spaces that belong to open files, not to the process.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use library::native;
use library::native::abi;
use library::native::Heap;
use library::native::QueueKind;
use library::native::Rights;
use nix::errno::Errno;

use crate::error::array;
use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::error::Result;
use crate::migrate::features_of;
use crate::queue::RKFD_QUEUE_PM4;
use crate::queue::RKFD_QUEUE_SDMA;
use crate::sized::answer;
use crate::sized::grows;

/// Memory of the GPU.
pub const RKFD_HEAP_VRAM: u32 = 0;
/// Memory of the machine.
pub const RKFD_HEAP_SYSTEM: u32 = 1;

/// The GPU may read.
pub const RKFD_RANGE_READ: u32 = 0;
/// The GPU may read and write.
pub const RKFD_RANGE_WRITE: u32 = 1;
/// The GPU may read and fetch instructions.
pub const RKFD_RANGE_EXECUTE: u32 = 2;

/// The GPU was about to write; else it read.
pub const RKFD_FAULT_WRITE: u32 = 1;
/// The GPU was about to fetch an instruction.
pub const RKFD_FAULT_EXECUTE: u32 = 2;
/// The page is bound, but not for this.
pub const RKFD_FAULT_PRESENT: u32 = 4;

/// An address space of a GPU that shares nothing with others, also of the same program: one open file of a render node.
#[derive(Debug)]
pub struct Space(pub(crate) native::Space);

/// Memory of an address space, mapped for the CPU. The GPU sees it where it is bound.
#[derive(Debug)]
pub struct Bo(native::Bo);

/// Ranges to be mapped and unmapped together.
#[derive(Debug)]
pub struct BindList(Mutex<native::BindList>);

/// A queue of an address space.
#[derive(Debug)]
pub struct SpaceQueue(native::Queue);

/// A counter of the program (eventfd) that interrupts of an address space increase.
#[derive(Debug)]
pub struct SpaceEvent(native::Event);

/// What the GPU of an address space is, and what can be in the address space.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceInfo {
    /// sizeof(struct rkfd_space_info); set it before the call.
    pub size: u32,
    /// Version of the native interface that the driver speaks.
    pub version: u32,
    /// Version of the GPU's instruction set, such as 90010 for gfx90a.
    pub gfx_target_version: u32,
    /// PCI device id.
    pub device: u32,
    /// Compute units.
    pub compute_units: u32,
    /// Work-items of a wave.
    pub wavefront_size: u32,
    /// Copy engines.
    pub sdma_engines: u32,
    /// Most queues of the address space.
    pub max_queues: u32,
    /// First and last address that can be bound.
    pub va_base: u64,
    /// See `va_base`.
    pub va_limit: u64,
    /// Bit n: pages of 2^n bytes.
    pub page_sizes: u64,
    /// RKFD_SPACE_*: what the address space can do. From version 0.9 on.
    pub features: u64,
}

/// An access of an address space that was refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultInfo {
    /// sizeof(struct rkfd_fault_info); set it before the call.
    pub size: u32,
    /// RKFD_FAULT_*.
    pub access: u32,
    /// First byte of the page.
    pub address: u64,
    /// When it was, in nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    /// Faults since the last call that found no room.
    pub dropped: u64,
}

grows! {
    SpaceInfo, "rkfd_space_info", 56;
    FaultInfo, "rkfd_fault_info", 32;
}

pub(crate) fn size_of_memory(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Failure::invalid("A size beyond the address space"))
}

pub(crate) fn rights_of(number: u32) -> Result<Rights> {
    match number {
        RKFD_RANGE_READ => Ok(Rights::Read),
        RKFD_RANGE_WRITE => Ok(Rights::Write),
        RKFD_RANGE_EXECUTE => Ok(Rights::Execute),
        other => Err(Failure::invalid(format!("No rights: {other}"))),
    }
}

fn access_of(fault: &abi::Fault) -> u32 {
    [
        (abi::FAULT_WRITE, RKFD_FAULT_WRITE),
        (abi::FAULT_EXECUTE, RKFD_FAULT_EXECUTE),
        (abi::FAULT_PRESENT, RKFD_FAULT_PRESENT),
    ]
    .iter()
    .filter(|(driver, _)| fault.access & driver != 0)
    .fold(0, |access, (_, ours)| access | ours)
}

/// Opens a render node, such as "/dev/dri/renderD128": another address space with each call. Needs no
/// /dev/kfd. -ENOTTY, -EINVAL or -EOPNOTSUPP where its driver has no native interface.
///
/// MT-Safe.
///
/// # Safety
/// `path` is a text that ends in a zero byte.
#[no_mangle]
pub unsafe extern "C" fn rkfd_space_open(
    path: *const c_char,
    space: Option<&mut MaybeUninit<Option<Box<Space>>>>,
) -> c_int {
    guard(|| {
        let out = given(space, "space")?;
        out.write(None);
        if path.is_null() {
            return Err(Failure::invalid("path is NULL"));
        }
        // SAFETY: not null, and the caller's promise.
        let path = unsafe { CStr::from_ptr(path) };
        let path = path
            .to_str()
            .map_err(|_| Failure::invalid("path is no text in UTF-8"))?;
        out.write(Some(Box::new(Space(native::Space::open(path)?))));
        Ok(())
    })
}

/// Gives an address space back; NULL is allowed. What was made of it keeps it until that is freed, too.
///
/// MT-Unsafe race:space: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_space_close(space: Option<Box<Space>>) {
    release(space);
}

fn describe(info: &abi::DeviceInfo) -> SpaceInfo {
    SpaceInfo {
        size: 0,
        version: info.version,
        gfx_target_version: info.gfx_target,
        device: info.pci_device,
        compute_units: info.compute_units,
        wavefront_size: info.wave_size,
        sdma_engines: info.sdma_engines,
        max_queues: info.max_queues,
        va_base: info.va_start,
        va_limit: info.va_end.saturating_sub(1),
        page_sizes: info.page_sizes,
        features: features_of(info),
    }
}

/// Describes the GPU of an address space.
///
/// MT-Safe.
///
/// # Safety
/// `info` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_space_describe(space: Option<&Space>, info: *mut SpaceInfo) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { answer(info) }?;
        out.give(describe(given(space, "space")?.0.info()));
        Ok(())
    })
}

/// Makes memory of at least `bytes` bytes (whole pages) in a heap (RKFD_HEAP_*), cleared and never cached
/// by the GPU, and maps it for the CPU. No GPU address shows it yet: see rkfd_bind_list_map().
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_bo_new(
    space: Option<&Space>,
    heap: u32,
    bytes: u64,
    bo: Option<&mut MaybeUninit<Option<Box<Bo>>>>,
) -> c_int {
    guard(|| {
        let out = given(bo, "bo")?;
        out.write(None);
        let space = given(space, "space")?;
        let heap = match heap {
            RKFD_HEAP_VRAM => Heap::Vram,
            RKFD_HEAP_SYSTEM => Heap::System,
            other => return Err(Failure::invalid(format!("No heap: {other}"))),
        };
        let made = space.0.bo(heap, size_of_memory(bytes)?)?;
        out.write(Some(Box::new(Bo(made))));
        Ok(())
    })
}

/// Unmaps memory for the CPU and gives it back; NULL is allowed. Ranges that show it keep it for the GPU.
///
/// MT-Unsafe race:bo: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_bo_free(bo: Option<Box<Bo>>) {
    release(bo);
}

/// Where the CPU reaches the memory; NULL for NULL.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_bo_cpu(bo: Option<&Bo>) -> *mut c_void {
    bo.map_or(null_mut(), |bo| bo.0.as_ptr().cast())
}

/// The size in bytes; 0 for NULL.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_bo_size(bo: Option<&Bo>) -> u64 {
    // CAST: a 64-bit process.
    bo.map_or(0, |bo| bo.0.size() as u64)
}

/// Makes an empty list of ranges of an address space.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_bind_list_new(
    space: Option<&Space>,
    list: Option<&mut MaybeUninit<Option<Box<BindList>>>>,
) -> c_int {
    guard(|| {
        let out = given(list, "list")?;
        out.write(None);
        let space = given(space, "space")?;
        let made = BindList(Mutex::new(space.0.list()));
        out.write(Some(Box::new(made)));
        Ok(())
    })
}

/// Gives a list back; NULL is allowed. What it bound stays bound.
///
/// MT-Unsafe race:list: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_bind_list_free(list: Option<Box<BindList>>) {
    release(list);
}

/// Adds to a list: `bytes` bytes at GPU address `address` are to show those of `bo` from `offset` on, with
/// rights (RKFD_RANGE_*). All three are multiples of 4096. `bo` is not freed before the list was bound.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_bind_list_map(
    list: Option<&BindList>,
    address: u64,
    bo: Option<&Bo>,
    offset: u64,
    bytes: u64,
    rights: u32,
) -> c_int {
    guard(|| {
        let list = given(list, "list")?;
        let bo = given(bo, "bo")?;
        let (offset, bytes) = (size_of_memory(offset)?, size_of_memory(bytes)?);
        let rights = rights_of(rights)?;
        let mut list = list.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.map(address, &bo.0, offset, bytes, rights)?;
        Ok(())
    })
}

/// Adds to a list: `bytes` bytes at GPU address `address`, multiples of 4096, are to show nothing.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_bind_list_unmap(list: Option<&BindList>, address: u64, bytes: u64) -> c_int {
    guard(|| {
        let list = given(list, "list")?;
        let bytes = size_of_memory(bytes)?;
        let mut list = list.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.unmap(address, bytes);
        Ok(())
    })
}

/// Maps and unmaps the ranges of a list, all or none; the list stays as it is. When this returns 0, the GPU
/// can use what is mapped, and reaches nothing of what is not. -EINVAL for ranges that overlap each other
/// or leave memory or addresses; -EBUSY where a queue uses what would go; -EADDRINUSE where a mirror has some of the
/// addresses, but one of all memory.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_space_bind(space: Option<&Space>, list: Option<&BindList>) -> c_int {
    guard(|| {
        let space = given(space, "space")?;
        let list = given(list, "list")?;
        let list = list.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(space.0.bind(&list)?)
    })
}

/// Makes a queue (RKFD_QUEUE_PM4 or RKFD_QUEUE_SDMA) with memory of its own, bound from GPU address
/// `address` on, where nothing may be: some 64 KiB, for PM4 some 16 MiB.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_space_queue_new(
    space: Option<&Space>,
    kind: u32,
    address: u64,
    queue: Option<&mut MaybeUninit<Option<Box<SpaceQueue>>>>,
) -> c_int {
    guard(|| {
        let out = given(queue, "queue")?;
        out.write(None);
        let space = given(space, "space")?;
        let kind = match kind {
            RKFD_QUEUE_PM4 => QueueKind::Pm4,
            RKFD_QUEUE_SDMA => QueueKind::Sdma,
            other => return Err(Failure::invalid(format!("No kind of queue here: {other}"))),
        };
        let made = space.0.queue(kind, address)?;
        out.write(Some(Box::new(SpaceQueue(made))));
        Ok(())
    })
}

/// Destroys a queue and unbinds its memory; NULL is allowed.
///
/// MT-Unsafe race:queue: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_space_queue_free(queue: Option<Box<SpaceQueue>>) {
    release(queue);
}

/// Writes `count` dwords of packets into the ring and rings the doorbell. Packets of one call stay together.
/// -EAGAIN where the GPU has to read on first.
///
/// MT-Safe.
///
/// # Safety
/// `dwords` points to `count` dwords that nobody changes meanwhile.
#[no_mangle]
pub unsafe extern "C" fn rkfd_space_queue_submit(
    queue: Option<&SpaceQueue>,
    dwords: *const u32,
    count: u32,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        // SAFETY: the caller's promise.
        let dwords = unsafe { array(dwords, count, "dwords") }?;
        Ok(queue.0.submit(dwords)?)
    })
}

/// Has a counter (eventfd) increased by each interrupt of the address space that carries the event's slot.
/// The descriptor may be closed afterwards. -EBADF where it is none, -EINVAL where it is no eventfd.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_space_event_new(
    space: Option<&Space>,
    eventfd: c_int,
    event: Option<&mut MaybeUninit<Option<Box<SpaceEvent>>>>,
) -> c_int {
    guard(|| {
        let out = given(event, "event")?;
        out.write(None);
        let space = given(space, "space")?;
        if eventfd < 0 {
            return Err(Failure::new(Errno::EBADF, "No descriptor"));
        }
        // SAFETY: not -1; used for the number alone, and the driver says whether it is open.
        let counter = unsafe { BorrowedFd::borrow_raw(eventfd) };
        let made = space.0.signal_event(counter)?;
        out.write(Some(Box::new(SpaceEvent(made))));
        Ok(())
    })
}

/// Gives an event back; its counter is not increased any more. NULL is allowed.
///
/// MT-Unsafe race:event: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_space_event_free(event: Option<Box<SpaceEvent>>) {
    release(event);
}

/// What packets raise as the context id of their interrupt, from 1 on; 0 for NULL.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_space_event_slot(event: Option<&SpaceEvent>) -> u32 {
    event.map_or(0, |event| event.0.slot())
}

/// Sleeps until the dword at `offset` of `bo` is `value`; for `limit_ms` at most, then -ETIMEDOUT. Whoever
/// stores it should raise an interrupt; without one it is looked at about once a millisecond.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_space_wait(
    space: Option<&Space>,
    bo: Option<&Bo>,
    offset: u64,
    value: u32,
    limit_ms: u32,
) -> c_int {
    guard(|| {
        let space = given(space, "space")?;
        let bo = given(bo, "bo")?;
        let offset = size_of_memory(offset)?;
        let limit = Duration::from_millis(limit_ms.into());
        Ok(space.0.wait_u32(&bo.0, offset, value, limit)?)
    })
}

/// Takes the oldest access that was refused and that nobody has asked for. -EAGAIN where there is none. The
/// first of them has stopped all queues of the address space for good.
///
/// MT-Safe.
///
/// # Safety
/// `fault` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_space_fault(space: Option<&Space>, fault: *mut FaultInfo) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { answer(fault) }?;
        let space = given(space, "space")?;
        let (fault, dropped) = space.0.fault()?;
        let fault = fault.ok_or_else(|| Failure::new(Errno::EAGAIN, "No access was refused"))?;
        out.give(FaultInfo {
            size: 0,
            access: access_of(&fault),
            address: fault.address,
            time: fault.time,
            dropped,
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_refused_and_freed() {
        let invalid = -(Errno::EINVAL as c_int);
        // SAFETY: NULL is allowed.
        unsafe {
            assert_eq!(rkfd_space_open(std::ptr::null(), None), invalid);
            assert_eq!(rkfd_space_queue_submit(None, std::ptr::null(), 0), invalid);
            assert_eq!(rkfd_space_fault(None, null_mut()), invalid);
            assert_eq!(rkfd_space_describe(None, null_mut()), invalid);
        }
        assert_eq!(rkfd_bo_new(None, RKFD_HEAP_VRAM, 4096, None), invalid);
        assert_eq!(rkfd_bind_list_new(None, None), invalid);
        assert_eq!(
            rkfd_bind_list_map(None, 0, None, 0, 0, RKFD_RANGE_READ),
            invalid
        );
        assert_eq!(rkfd_bind_list_unmap(None, 0, 0), invalid);
        assert_eq!(rkfd_space_bind(None, None), invalid);
        assert_eq!(
            rkfd_space_queue_new(None, RKFD_QUEUE_SDMA, 0, None),
            invalid
        );
        assert_eq!(rkfd_space_event_new(None, 0, None), invalid);
        assert_eq!(rkfd_space_wait(None, None, 0, 0, 0), invalid);
        assert_eq!(rkfd_space_event_slot(None), 0);
        assert!(rkfd_bo_cpu(None).is_null());
        assert_eq!(rkfd_bo_size(None), 0);
        rkfd_space_close(None);
        rkfd_bo_free(None);
        rkfd_bind_list_free(None);
        rkfd_space_queue_free(None);
        rkfd_space_event_free(None);
    }

    #[test]
    fn a_file_that_is_no_render_node_is_refused_by_name() {
        let mut space = MaybeUninit::uninit();
        // SAFETY: a text that ends in a zero byte.
        let rc = unsafe { rkfd_space_open(c"/nonexistent/node".as_ptr(), Some(&mut space)) };
        assert_eq!(rc, -(Errno::ENOENT as c_int));
        // SAFETY: every call writes it.
        assert!(unsafe { space.assume_init() }.is_none());
        let mut space = MaybeUninit::uninit();
        // SAFETY: as above.
        let rc = unsafe { rkfd_space_open(c"/dev/null".as_ptr(), Some(&mut space)) };
        assert_eq!(rc, -(Errno::ENOTTY as c_int));
        // SAFETY: as above.
        assert!(unsafe { space.assume_init() }.is_none());
    }

    #[test]
    fn each_field_of_a_description_is_that_of_the_driver() {
        let info = abi::DeviceInfo {
            version: 1,
            gfx_target: 2,
            pci_device: 3,
            compute_units: 4,
            wave_size: 5,
            sdma_engines: 6,
            max_queues: 7,
            va_start: 8,
            va_end: 10,
            page_sizes: 11,
            features: 7,
            ..abi::DeviceInfo::default()
        };
        let wanted = SpaceInfo {
            size: 0,
            version: 1,
            gfx_target_version: 2,
            device: 3,
            compute_units: 4,
            wavefront_size: 5,
            sdma_engines: 6,
            max_queues: 7,
            va_base: 8,
            va_limit: 9,
            page_sizes: 11,
            features: 3,
        };
        assert_eq!(describe(&info), wanted);
    }

    #[test]
    fn what_faults_did_is_told_in_numbers_of_this_library() {
        let fault = |access| abi::Fault {
            access,
            ..abi::Fault::default()
        };
        assert_eq!(access_of(&fault(0)), 0);
        assert_eq!(
            access_of(&fault(abi::FAULT_WRITE | abi::FAULT_PRESENT)),
            RKFD_FAULT_WRITE | RKFD_FAULT_PRESENT
        );
        assert_eq!(access_of(&fault(abi::FAULT_EXECUTE)), RKFD_FAULT_EXECUTE);
    }
}
