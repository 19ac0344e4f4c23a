// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory of every kind.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use nix::errno::Errno;
use rkfd::backoff::wait_until;
use rkfd::device::Device;
use rkfd::device::DOORBELL_SLICE;
use rkfd::error::Error;
use rkfd::memory::Buffer;
use rkfd::memory::BufferOptions;
use rkfd::memory::Coherence;
use rkfd::memory::Kind;
use rkfd::queue::QueueKind;
use rkfd::sys::PAGE;

use crate::errno;
use crate::queue;
use crate::refused as not_made;
use crate::tap::patience;
use crate::write;

/// Each kind, coherence and use: the GPU writes it, and the CPU sees what it wrote.
pub fn kinds(device: &Arc<Device>) {
    let queue = queue(device, QueueKind::Pm4);
    let done = Buffer::new(device, Kind::Gtt, 4096).unwrap();
    let mut count = 0;
    for kind in [Kind::Vram, Kind::VramPrivate, Kind::Gtt, Kind::Userptr] {
        for coherence in [Coherence::AtPackets, Coherence::Fine, Coherence::Extended] {
            for (uncached, executable) in [(false, false), (true, false), (false, true)] {
                let options = BufferOptions {
                    coherence,
                    uncached,
                    executable,
                    ..BufferOptions::new(kind, 5000)
                };
                let buffer = Buffer::with(device, &options).unwrap();
                assert_eq!(buffer.size(), 8192);
                count += 1;
                let mut packets = write(buffer.address() + 4096, count);
                packets.extend(write(done.address(), count));
                queue.submit(&packets).unwrap();
                wait_until("the write", patience(), || {
                    let seen = done.read_u32(0)?;
                    Ok((seen == count, seen.into()))
                })
                .unwrap();
                match kind {
                    Kind::VramPrivate => {
                        let hidden = buffer.read_u32(4096).unwrap_err();
                        assert!(matches!(hidden, Error::OutOfRange { .. }));
                    }
                    _ => assert_eq!(buffer.read_u32(4096).unwrap(), count, "{options:?}"),
                }
            }
        }
    }
}

/// Memory is where the program says, and nothing else can be there.
pub fn chosen_address(device: &Arc<Device>) {
    let at = 0x0d00_0000_0000;
    for kind in [Kind::Vram, Kind::VramPrivate, Kind::Gtt, Kind::Userptr] {
        let options = BufferOptions {
            address: Some(at),
            ..BufferOptions::new(kind, 8192)
        };
        let buffer = Buffer::with(device, &options).unwrap();
        assert_eq!(buffer.address(), at);
        let inside = BufferOptions {
            address: Some(at + 4096),
            ..options
        };
        assert_eq!(errno(Buffer::with(device, &inside)), Errno::EEXIST);
        drop(buffer);
        // Nothing of it is left.
        drop(Buffer::with(device, &inside).unwrap());
    }
}

/// What cannot be is refused.
pub fn refused(device: &Arc<Device>) {
    let with = |options| Buffer::with(device, &options);
    let gtt = BufferOptions::new(Kind::Gtt, 4096);
    not_made(with(BufferOptions { size: 0, ..gtt }));
    not_made(with(BufferOptions {
        size: usize::MAX,
        ..gtt
    }));
    not_made(with(BufferOptions {
        contiguous: true,
        ..gtt
    }));
    not_made(with(BufferOptions {
        address: Some(0x0d00_0000_0008),
        ..gtt
    }));
    let buffer = with(gtt).unwrap();
    for (offset, fits) in [
        (4092, true),
        (4096, false),
        (4094, false),
        (usize::MAX - 3, false),
    ] {
        assert_eq!(buffer.read_u32(offset).is_ok(), fits, "{offset}");
        assert_eq!(buffer.write_u32(offset, 1).is_ok(), fits, "{offset}");
    }
    // Nothing is mapped there.
    let nowhere = 0x0d00_0000_0000_usize as *mut u8;
    // SAFETY: the driver refuses it, so nothing uses the range.
    let over = unsafe { Buffer::over(device, nowhere, 4096) };
    assert_eq!(errno(over), Errno::EFAULT);
}

/// Doorbells and the register page: written by the CPU, and neither read nor used in another way.
pub fn registers(device: &Arc<Device>) {
    // Before there is a queue, whose creation tells where the doorbells are.
    let bells = Buffer::new(device, Kind::Doorbell, DOORBELL_SLICE).unwrap();
    let queue = queue(device, QueueKind::Pm4);
    let done = Buffer::new(device, Kind::Gtt, 4096).unwrap();
    queue.stage(&write(done.address(), 1)).unwrap();
    let at = queue.write_pointer_address() as usize as *mut u64; // CAST: an address of a 64-bit process.
                                                                 // SAFETY: aligned, and the queue's as long as it lives; all access to it is atomic.
    let pointer = unsafe { AtomicU64::from_ptr(at) };
    pointer.store(queue.write_pointer(), Ordering::SeqCst);
    // CAST: less than the doorbells' size.
    let doorbell = queue.doorbell_offset() as usize % DOORBELL_SLICE;
    bells.write_u64(doorbell, queue.write_pointer()).unwrap();
    wait_until("the write", patience(), || {
        let seen = done.read_u32(0)?;
        Ok((seen == 1, seen.into()))
    })
    .unwrap();
    let page = Buffer::new(device, Kind::MmioRemap, PAGE).unwrap();
    page.write_u32(0, 1).unwrap();
    for buffer in [&bells, &page] {
        let mut bytes = [0; 8];
        for result in [
            buffer.read_u32(0).map(drop),
            buffer.read_u64(0).map(drop),
            buffer.read_bytes(0, &mut bytes),
            buffer.write_bytes(0, &bytes),
            buffer.write_u64(buffer.size(), 0),
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::OutOfRange { .. }), "{error:?}");
        }
    }
    for (kind, fixed, other) in [
        (Kind::Doorbell, DOORBELL_SLICE, PAGE),
        (Kind::MmioRemap, PAGE, 2 * PAGE),
    ] {
        let ordinary = BufferOptions::new(kind, fixed);
        for options in [
            BufferOptions::new(kind, other),
            BufferOptions {
                executable: true,
                ..ordinary
            },
            BufferOptions {
                writable: false,
                ..ordinary
            },
            BufferOptions {
                uncached: true,
                ..ordinary
            },
            BufferOptions {
                contiguous: true,
                ..ordinary
            },
        ] {
            not_made(Buffer::with(device, &options));
        }
    }
}
