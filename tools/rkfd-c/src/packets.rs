// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Writers of packets.
//!
//! Each puts whole packets into the ring or, on an error, nothing.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use library::packet::aql;
use library::packet::aql::Barrier;
use library::packet::aql::BarrierKind;
use library::packet::aql::Pm4Buffer;
use library::packet::pm4;
use library::packet::pm4::ReleaseData;
use library::packet::pm4::ReleaseInterrupt;
use library::packet::sdma;
use library::queue::QueueKind;

use crate::error::array;
use crate::error::given;
use crate::error::guard;
use crate::error::Failure;
use crate::error::Result;
use crate::event::Event;
use crate::queue::millis;
use crate::queue::Queue;

/// Puts `count` dwords of PM4 or SDMA packets into the ring, at the next free place. -EAGAIN where there is no room now, or
/// others wait for it in rkfd_queue_emit_within(); -EINVAL on an AQL queue. The GPU learns of them by rkfd_queue_commit.
///
/// MT-Safe.
///
/// # Safety
/// `dwords` points to that many.
#[no_mangle]
pub unsafe extern "C" fn rkfd_queue_emit(
    queue: Option<&Queue>,
    dwords: *const u32,
    count: u32,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        // SAFETY: the caller's promise.
        queue.emit(unsafe { array(dwords, count, "dwords") }?)
    })
}

/// As rkfd_queue_emit(), but waits for room, for `limit_ms` at most, then -ETIMEDOUT. Those who wait get room in the order in
/// which they came, and nobody else gets any meanwhile, so many dwords get their turn among few, too. What was emitted before is
/// committed first, by whichever thread, since the GPU makes room only by reading it. -EINVAL for more than the ring has.
///
/// MT-Safe.
///
/// # Safety
/// `dwords` points to `count` dwords.
#[no_mangle]
pub unsafe extern "C" fn rkfd_queue_emit_within(
    queue: Option<&Queue>,
    dwords: *const u32,
    count: u32,
    limit_ms: u32,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        // SAFETY: the caller's promise.
        let dwords = unsafe { array(dwords, count, "dwords") }?;
        queue.emit_within(dwords, millis(limit_ms))
    })
}

/// Puts one AQL packet of 16 dwords into the ring, its header last; bits 0 to 15 of its first dword are not used.
/// `index`, unless NULL, receives the packet's index. Waits for room as rkfd_aql_emit_within(), for as long as the queue's
/// options say.
///
/// MT-Safe.
///
/// # Safety
/// `packet` points to 16 dwords.
#[no_mangle]
pub unsafe extern "C" fn rkfd_aql_emit(
    queue: Option<&Queue>,
    packet: *const u32,
    header: u16,
    index: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        // SAFETY: the caller's promise.
        let packet = unsafe { aql_packet(packet) }?;
        put_aql(queue, (packet, header), None, index)
    })
}

/// As rkfd_aql_emit(), but waits for room in a full ring, spinning for a moment, then sleeping, for `limit_ms` at most: then
/// -ETIMEDOUT. -EIO where the queue stopped at a packet. Nothing is written then.
///
/// MT-Safe.
///
/// # Safety
/// `packet` points to 16 dwords.
#[no_mangle]
pub unsafe extern "C" fn rkfd_aql_emit_within(
    queue: Option<&Queue>,
    packet: *const u32,
    header: u16,
    limit_ms: u32,
    index: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        // SAFETY: the caller's promise.
        let packet = unsafe { aql_packet(packet) }?;
        put_aql(queue, (packet, header), Some(limit_ms), index)
    })
}

/// # Safety
/// `packet` points to 16 dwords, or is NULL.
unsafe fn aql_packet(packet: *const u32) -> Result<[u32; aql::DWORDS]> {
    let mut copy = [0; aql::DWORDS];
    // SAFETY: the caller's promise.
    copy.copy_from_slice(unsafe { array(packet, 16, "packet") }?);
    Ok(copy)
}

/// Writes an AQL packet.
pub(crate) fn put_aql(
    queue: &Queue,
    (packet, header): ([u32; aql::DWORDS], u16),
    limit_ms: Option<u32>,
    index: Option<&mut MaybeUninit<u64>>,
) -> Result<()> {
    queue.demand(QueueKind::Aql)?;
    let at = match limit_ms {
        Some(limit) => queue
            .queue
            .stage_aql_within(&packet, header, millis(limit))?,
        None => queue.queue.stage_aql(&packet, header)?,
    };
    if let Some(index) = index {
        index.write(at);
    }
    Ok(())
}

fn put_pm4(queue: Option<&Queue>, packets: &[pm4::Packet]) -> Result<()> {
    let queue = given(queue, "queue")?;
    queue.demand(QueueKind::Pm4)?;
    queue.emit(&pm4::Packet::encode_all(packets).map_err(library::error::Error::from)?)
}

fn put_sdma(queue: &Queue, packets: &[sdma::Packet]) -> Result<()> {
    queue.demand(QueueKind::Sdma)?;
    queue.emit(&sdma::Packet::encode_all(packets).map_err(library::error::Error::from)?)
}

/// PM4: stores `count` dwords at `address` and waits until they arrived.
///
/// MT-Safe.
///
/// # Safety
/// `values` points to that many.
#[no_mangle]
pub unsafe extern "C" fn rkfd_pm4_write(
    queue: Option<&Queue>,
    address: u64,
    values: *const u32,
    count: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let data = unsafe { array(values, count, "values") }?.to_vec();
        put_pm4(
            queue,
            &[pm4::Packet::WriteData {
                address,
                data,
                confirm: true,
            }],
        )
    })
}

/// PM4: runs `dwords` dwords of packets at `address` and comes back.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_pm4_run(queue: Option<&Queue>, address: u64, dwords: u32) -> c_int {
    guard(|| {
        put_pm4(
            queue,
            &[pm4::Packet::IndirectBuffer {
                address,
                dwords,
                chain: false,
            }],
        )
    })
}

/// PM4: invalidates the caches before later packets.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_pm4_acquire(queue: Option<&Queue>) -> c_int {
    guard(|| {
        put_pm4(
            queue,
            &[pm4::Packet::AcquireMem {
                coher: pm4::COHER_ALL,
            }],
        )
    })
}

/// PM4: when earlier work is done and written back, stores 64 bits at `address` (8-byte aligned).
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_pm4_release(queue: Option<&Queue>, address: u64, value: u64) -> c_int {
    guard(|| {
        put_pm4(
            queue,
            &[pm4::Packet::ReleaseMem {
                event: pm4::CACHE_FLUSH_AND_INV_TS,
                address,
                data: ReleaseData::Qword(value),
                interrupt: ReleaseInterrupt::None,
            }],
        )
    })
}

/// PM4: when earlier work is done and written back, raises an event.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_pm4_raise(queue: Option<&Queue>, event: Option<&Event>) -> c_int {
    guard(|| {
        let event = given(event, "event")?.signal()?;
        put_pm4(
            queue,
            &[pm4::Packet::ReleaseMem {
                event: pm4::CACHE_FLUSH_AND_INV_TS,
                address: event.slot_address(),
                data: ReleaseData::Dword(event.id()),
                interrupt: ReleaseInterrupt::AfterWrite(event.id()),
            }],
        )
    })
}

/// The pieces of a long copy or fill (offset, bytes), bounded by what the ring could ever hold.
fn pieces(queue: &Queue, bytes: u64, dwords: u64) -> Result<impl Iterator<Item = (u64, u32)>> {
    let most = u64::from(sdma::MAX_BYTES);
    if bytes == 0 || bytes.div_ceil(most) > queue.ring_bytes() / (4 * dwords) {
        return Err(Failure::invalid(format!(
            "{bytes} bytes are nothing, or more packets than the ring holds"
        )));
    }
    Ok((0..bytes.div_ceil(most)).map(move |n| {
        let offset = n * most;
        // CAST: at most `MAX_BYTES`.
        (offset, (bytes - offset).min(most) as u32)
    }))
}

fn no_wrap(address: u64, bytes: u64) -> Result<()> {
    match address.checked_add(bytes) {
        Some(_) => Ok(()),
        None => Err(Failure::invalid("A range beyond the address space")),
    }
}

/// SDMA: copies `bytes` bytes, in as many packets as it takes.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_sdma_copy(
    queue: Option<&Queue>,
    destination: u64,
    source: u64,
    bytes: u64,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        no_wrap(source, bytes)?;
        no_wrap(destination, bytes)?;
        let packets: Vec<_> = pieces(queue, bytes, 7)?
            .map(|(offset, bytes)| sdma::Packet::CopyLinear {
                source: source + offset,
                destination: destination + offset,
                bytes,
            })
            .collect();
        put_sdma(queue, &packets)
    })
}

/// SDMA: fills `bytes` bytes (a multiple of 4) with a dword, in as many packets as it takes.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_sdma_fill(
    queue: Option<&Queue>,
    destination: u64,
    value: u32,
    bytes: u64,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        no_wrap(destination, bytes)?;
        let packets: Vec<_> = pieces(queue, bytes, 5)?
            .map(|(offset, bytes)| sdma::Packet::ConstFill {
                destination: destination + offset,
                data: value,
                bytes,
            })
            .collect();
        put_sdma(queue, &packets)
    })
}

/// SDMA: after earlier packets, stores a dword at `address`.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_sdma_fence(queue: Option<&Queue>, address: u64, value: u32) -> c_int {
    guard(|| {
        let data = value;
        put_sdma(
            given(queue, "queue")?,
            &[sdma::Packet::Fence { address, data }],
        )
    })
}

/// SDMA: after earlier packets, raises an event.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_sdma_raise(queue: Option<&Queue>, event: Option<&Event>) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        let event = given(event, "event")?.signal()?;
        put_sdma(
            queue,
            &[
                sdma::Packet::Fence {
                    address: event.slot_address(),
                    data: event.id(),
                },
                sdma::Packet::Trap {
                    context: event.id(),
                },
            ],
        )
    })
}

/// AQL: waits until all of `count` (0 to 5) signals are exactly 0 (one that is below 0 is waited for as well) and earlier
/// packets are done, then decrements the signal at `completion`, unless that is 0. `index`, unless NULL, receives the
/// packet's index.
///
/// MT-Safe.
///
/// # Safety
/// `dependencies` points to the addresses of `count` signals.
#[no_mangle]
pub unsafe extern "C" fn rkfd_aql_barrier(
    queue: Option<&Queue>,
    dependencies: *const u64,
    count: u32,
    completion: u64,
    index: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        let mut packet = Barrier {
            kind: BarrierKind::And,
            dependencies: [0; 5],
            completion,
        };
        if count > 5 {
            return Err(Failure::invalid(format!(
                "{count} dependencies where 5 can be"
            )));
        }
        if count > 0 {
            // SAFETY: the caller's promise.
            let given = unsafe { array(dependencies, count, "dependencies") }?;
            for (to, from) in packet.dependencies.iter_mut().zip(given) {
                *to = *from;
            }
        }
        let encoded = packet.encode().map_err(library::error::Error::from)?;
        put_aql(queue, encoded, None, index)
    })
}

/// AQL: runs `dwords` dwords of PM4 packets at `address`, then decrements the signal at `completion`, unless that is 0.
/// `index`, unless NULL, receives the packet's index.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_aql_pm4(
    queue: Option<&Queue>,
    address: u64,
    dwords: u32,
    completion: u64,
    index: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        let packet = Pm4Buffer {
            address,
            dwords,
            completion,
        };
        let encoded = packet.encode().map_err(library::error::Error::from)?;
        put_aql(queue, encoded, None, index)
    })
}
