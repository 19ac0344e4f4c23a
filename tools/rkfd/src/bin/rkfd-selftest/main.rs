// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The library's own functions and errors on a GPU, as TAP. (`tools/selftests/library*.c` do the same for its C face.)
//!
//! Each case runs in a process of its own. Arguments choose cases by parts of their names. `KFD_REQUIRE_GPU` makes it a
//! failure that there is no GPU; `TAP_PATIENCE` multiplies the time that waits may take.

// A case fails by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod memory;
mod refused;
#[path = "../tap/mod.rs"]
mod tap;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use rkfd::device::Device;
use rkfd::error::Error;
use rkfd::event::Event;
use rkfd::event::Waited;
use rkfd::event::FIRST_AGE;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::native;
use rkfd::native::Heap;
use rkfd::native::Rights;
use rkfd::native::Space;
use rkfd::packet::aql;
use rkfd::packet::aql::Barrier;
use rkfd::packet::aql::BarrierKind;
use rkfd::packet::pm4::Packet;
use rkfd::queue::error::Reason;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;

use tap::patience;
use tap::Case;

/// How long to wait for what never comes.
const SHORT: Duration = Duration::from_millis(20);

const CASES: &[Case] = &[
    ("memory of every kind is written by the GPU", memory::kinds),
    ("memory at a chosen address, once", memory::chosen_address),
    ("memory that cannot be", memory::refused),
    ("doorbells and the register page", memory::registers),
    ("packets and waits that cannot be", bad_packets),
    ("a full PM4 ring, and one that is waited for", full_pm4),
    ("producers share an AQL ring without a lock", producers),
    ("places without packets, and places given up", empty_places),
    ("a queue that stops tells why", stopped),
    ("signals: sleepers, bounds, ages of events", signals),
    ("a queue is destroyed once", destroyed),
    ("native: two address spaces in one program", native_spaces),
    (
        "native: memory of the program, and any pointer",
        native_mirrors,
    ),
];

fn errno<T: std::fmt::Debug>(result: rkfd::error::Result<T>) -> Errno {
    let error = result.unwrap_err();
    error
        .errno()
        .unwrap_or_else(|| panic!("no errno: {error:?}"))
}

fn refused<T: std::fmt::Debug>(result: rkfd::error::Result<T>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Argument(_)), "{error:?}");
}

fn late<T: std::fmt::Debug>(result: rkfd::error::Result<T>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
}

fn queue(device: &Arc<Device>, kind: QueueKind) -> Queue {
    Queue::new(device, QueueOptions::new(kind)).unwrap()
}

fn stopped_queue(device: &Arc<Device>, kind: QueueKind) -> Queue {
    let options = QueueOptions {
        percentage: 0,
        full_limit: SHORT,
        ..QueueOptions::new(kind)
    };
    Queue::new(device, options).unwrap()
}

fn write(address: u64, value: u32) -> Vec<u32> {
    Packet::encode_all(&[Packet::WriteData {
        address,
        data: vec![value],
        confirm: true,
    }])
    .unwrap()
}

fn barrier(completion: u64) -> ([u32; aql::DWORDS], u16) {
    let packet = Barrier {
        kind: BarrierKind::And,
        dependencies: [0; 5],
        completion,
    };
    packet.encode().unwrap()
}

fn bad_packets(device: &Arc<Device>) {
    let pm4 = queue(device, QueueKind::Pm4);
    let sdma = queue(device, QueueKind::Sdma);
    let aql = queue(device, QueueKind::Aql);
    let (packet, header) = barrier(0);
    refused(aql.stage(&[0]));
    refused(aql.submit(&[0]));
    for other in [&pm4, &sdma] {
        refused(other.stage_aql(&packet, header));
        refused(other.reserve_aql(1, SHORT));
        refused(other.publish_aql(0, header));
        refused(other.wait_error(SHORT));
        refused(other.on_error(None));
        assert_eq!(other.aql_place(0), None);
        assert_eq!(other.error(), None);
    }
    refused(aql.reserve_aql(0, SHORT));
    refused(aql.reserve_aql(65, SHORT));
    refused(aql.stage_aql(&packet, aql::INVALID));
    refused(aql.publish_aql(0, header));
    assert_eq!(aql.write_pointer(), 0);
    for ring_bytes in [0, 2048, 5000] {
        let options = QueueOptions {
            ring_bytes,
            ..QueueOptions::new(QueueKind::Pm4)
        };
        refused(Queue::new(device, options));
    }
    let options = QueueOptions {
        percentage: 101,
        ..QueueOptions::new(QueueKind::Pm4)
    };
    assert_eq!(errno(Queue::new(device, options)), Errno::EINVAL);
    refused(Queue::with_save_buffer(
        device,
        QueueOptions::new(QueueKind::Aql),
        None,
    ));
    assert_eq!(errno(pm4.update(101, 7)), Errno::EINVAL);
    assert_eq!(errno(pm4.set_cu_mask(&[])), Errno::EINVAL);
}

fn full_pm4(device: &Arc<Device>) {
    let queue = stopped_queue(device, QueueKind::Pm4);
    let buffer = Buffer::new(device, Kind::Gtt, 4096).unwrap();
    let mut staged = 0;
    let full = loop {
        match queue.stage(&write(buffer.address(), staged + 1)) {
            Ok(()) => staged += 1,
            Err(e) => break e,
        }
    };
    assert!(
        matches!(full, Error::RingFull { wanted: 5, free: 3 }),
        "{full:?}"
    );
    // Nothing was submitted, so there is nothing to wait for.
    queue.drain(SHORT).unwrap();
    assert!(queue.flush());
    assert!(!queue.flush());
    late(queue.drain(SHORT));
    late(queue.wait_for_room(100, SHORT));
    assert!(!queue.drained());
    thread::scope(|scope| {
        scope.spawn(|| queue.wait_for_room(1023, patience()).unwrap());
        scope.spawn(|| queue.drain(patience()).unwrap());
        queue.update(100, 7).unwrap();
    });
    assert!(queue.drained());
    assert_eq!(queue.free(), 1023);
    rkfd::backoff::wait_until("the last write", patience(), || {
        let seen = buffer.read_u32(0)?;
        Ok((seen == staged, seen.into()))
    })
    .unwrap();
}

fn producers(device: &Arc<Device>) {
    const THREADS: u64 = 4;
    const EACH: u64 = 300;
    let queue = queue(device, QueueKind::Aql);
    let signals = Signals::new(device, 1).unwrap();
    let all = i64::try_from(THREADS * EACH).unwrap();
    signals.store(0, all).unwrap();
    let (packet, header) = barrier(signals.address(0).unwrap());
    let indices: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let queue = &queue;
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    while taken.len() < 300 {
                        let left = EACH - taken.len() as u64;
                        let count = (1 + (n + left) % 4).min(left);
                        let slots: Vec<_> = queue.reserve_aql(count, patience()).unwrap().collect();
                        // The last first.
                        for slot in slots.into_iter().rev() {
                            taken.push(slot.index());
                            slot.publish(&packet, header).unwrap();
                        }
                        queue.flush();
                    }
                    taken
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    queue.drain(patience()).unwrap();
    signals.wait_below(0, 1, patience()).unwrap();
    assert_eq!(signals.load(0).unwrap(), 0);
    let distinct: BTreeSet<u64> = indices.into_iter().collect();
    assert_eq!(distinct, (0..THREADS * EACH).collect());
    assert_eq!(queue.read_pointer(), THREADS * EACH);
}

fn empty_places(device: &Arc<Device>) {
    let queue = stopped_queue(device, QueueKind::Aql);
    let signals = Signals::new(device, 1).unwrap();
    signals.store(0, 2).unwrap();
    let (packet, header) = barrier(signals.address(0).unwrap());
    // One of three gets a packet, the others are dropped, one of them unseen.
    let mut slots = queue.reserve_aql(3, SHORT).unwrap();
    let first = slots.next().unwrap();
    let second = slots.next().unwrap();
    assert_eq!((first.index(), second.index()), (0, 1));
    drop(slots);
    drop(first);
    second.publish(&packet, header).unwrap();
    for _ in 3..64 {
        drop(queue.reserve_aql(1, SHORT).unwrap());
    }
    late(queue.reserve_aql(1, SHORT));
    late(queue.stage_aql(&packet, header));
    late(queue.stage_aql_within(&packet, header, Duration::ZERO));
    assert_eq!(queue.free(), 0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| queue.stage_aql_within(&packet, header, patience()));
        queue.update(100, 7).unwrap();
        assert_eq!(waiter.join().unwrap().unwrap(), 67);
    });
    queue.flush();
    queue.drain(patience()).unwrap();
    signals.wait_below(0, 1, patience()).unwrap();
    assert_eq!(queue.read_pointer(), 68);
}

fn stopped(device: &Arc<Device>) {
    let queue = queue(device, QueueKind::Aql);
    late(queue.wait_error(SHORT));
    let (tell, told) = mpsc::channel();
    queue
        .on_error(Some(Box::new(move |error| tell.send(error).unwrap())))
        .unwrap();
    // A dispatch of one work-item whose code object is null.
    let mut packet = [0; aql::DWORDS];
    packet[..6].copy_from_slice(&[1 << 16, 1 | (1 << 16), 1, 1, 1, 1]);
    let index = queue.submit_aql(&packet, 2).unwrap();
    let error = queue.wait_error(patience()).unwrap();
    assert_eq!(error.reasons(), [Reason::CodeObject]);
    assert_eq!((error.code, error.packet), (8, index));
    assert_eq!(told.recv_timeout(patience()).unwrap(), error);
    assert_eq!(queue.error(), Some(error));
    let failed = queue.drain(patience()).unwrap_err();
    assert!(
        matches!(failed, Error::QueueFailed(e) if e == error),
        "{failed:?}"
    );
    queue.on_error(None).unwrap();
    // The sender went with the callback.
    assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

fn signals(device: &Arc<Device>) {
    let signals = Signals::new(device, 2).unwrap();
    let event = Event::new(device, true).unwrap();
    for index in [2, usize::MAX] {
        for error in [
            signals.address(index).map(drop),
            signals.load(index).map(drop),
            signals.store(index, 1),
            signals.attach(index, &event),
            signals.times(index).map(drop),
            signals.wait_below(index, 1, SHORT).map(drop),
        ] {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::OutOfRange { .. }), "{error:?}");
        }
    }
    signals.store(0, 5).unwrap();
    assert_eq!(signals.wait_below(0, 6, SHORT).unwrap(), 5);
    late(signals.wait_below(0, 5, SHORT));
    signals.attach(0, &event).unwrap();
    late(signals.wait_below(0, 5, SHORT));
    thread::scope(|scope| {
        let sleepers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| signals.wait_below(0, 5, patience())))
            .collect();
        signals.store(0, 4).unwrap();
        for sleeper in sleepers {
            assert_eq!(sleeper.join().unwrap().unwrap(), 4);
        }
    });
    // Each signal is seen once by each who counts ages.
    let event = Event::new(device, true).unwrap();
    let (mut one, mut other) = (FIRST_AGE, FIRST_AGE);
    for _ in 0..3 {
        assert_eq!(event.wait_past(&mut one, SHORT).unwrap(), Waited::TimedOut);
        event.set().unwrap();
        assert_eq!(
            event.wait_past(&mut one, patience()).unwrap(),
            Waited::Complete
        );
        assert_eq!(
            event.wait_past(&mut other, patience()).unwrap(),
            Waited::Complete
        );
        assert_eq!(one, other);
    }
}

fn destroyed(device: &Arc<Device>) {
    for kind in [QueueKind::Pm4, QueueKind::Aql, QueueKind::Sdma] {
        let mut queue = queue(device, kind);
        queue.destroy().unwrap();
        queue.destroy().unwrap();
        assert_eq!(errno(queue.update(100, 7)), Errno::EFAULT);
    }
}

fn native_spaces(_device: &Arc<Device>) {
    const AT: u64 = 1 << 32;
    let open = || {
        (128..144)
            .find_map(|minor| Space::open(format!("/dev/dri/renderD{minor}")).ok())
            .expect("a render node with the native interface")
    };
    let spaces = [open(), open()];
    let buffers = [
        spaces[0].bo(Heap::Vram, 0x3000).unwrap(),
        spaces[1].bo(Heap::System, 0x3000).unwrap(),
    ];
    refused(
        spaces[0]
            .list()
            .map(AT, &buffers[1], 0, 0x1000, Rights::Write)
            .map(|_| ()),
    );
    for (n, kind) in [(1, native::QueueKind::Pm4), (2, native::QueueKind::Sdma)] {
        let mut queues = Vec::new();
        for (space, bo) in spaces.iter().zip(&buffers) {
            let mut list = space.list();
            // The middle page alone.
            list.map(AT, bo, 0x1000, 0x1000, Rights::Write).unwrap();
            space.bind(&list).unwrap();
            queues.push(space.queue(kind, 2 << 32).unwrap());
        }
        for (who, queue) in (n * 16..).zip(&queues) {
            let packet = match kind {
                native::QueueKind::Pm4 => vec![0xc003_3702, (5 << 8) | (1 << 20), 4, 1, who],
                _ => vec![2, 4, 1, 0, who],
            };
            queue.submit(&packet).unwrap();
        }
        for (who, (space, bo)) in (n * 16..).zip(spaces.iter().zip(&buffers)) {
            let limit = patience();
            space.wait_u32(bo, 0x1004, who, limit).unwrap();
            assert_eq!(bo.read_u32(4).unwrap(), 0);
            assert_eq!(space.faults().unwrap(), (Vec::new(), 0));
        }
    }
    let mut list = spaces[0].list();
    list.unmap(AT, 0x1000);
    refused(spaces[1].bind(&list));
    spaces[0].bind(&list).unwrap();
    list.unmap(AT, 0x1000);
    assert_eq!(errno(spaces[0].bind(&list)), Errno::EINVAL);
    // What nothing is bound at is a fault of the one alone.
    let queue = spaces[0].queue(native::QueueKind::Pm4, 2 << 32).unwrap();
    queue
        .submit(&[0xc003_3702, (5 << 8) | (1 << 20), 4, 1, 1])
        .unwrap();
    let start = std::time::Instant::now();
    let fault = loop {
        if let Some(fault) = spaces[0].faults().unwrap().0.first() {
            break *fault;
        }
        assert!(start.elapsed() < patience(), "no fault");
        thread::yield_now();
    };
    assert_eq!(fault.address, AT);
    assert_eq!(spaces[1].faults().unwrap().0, Vec::new());
}

fn native_mirrors(_device: &Arc<Device>) {
    const AT: u64 = 1 << 32;
    let open = || {
        (128..144)
            .find_map(|minor| Space::open(format!("/dev/dri/renderD{minor}")).ok())
            .expect("a render node with the native interface")
    };
    // WRITE_LINEAR of one dword.
    let write = |to: u64, value: u32| [2, to as u32, (to >> 32) as u32, 0, value]; // CAST: halves.
    let seen = |word: &AtomicU32, value: u32| {
        let start = std::time::Instant::now();
        while word.load(Ordering::Acquire) != value {
            assert!(start.elapsed() < patience(), "nothing is written");
            thread::yield_now();
        }
    };
    let page = rkfd::sys::Mapping::anonymous(rkfd::sys::PAGE).unwrap();
    // SAFETY: the page is zero, aligned, and lives longer than this; GPU and CPU access the word as a whole.
    let word = unsafe { &*page.as_ptr().cast::<AtomicU32>() };
    let (start, len) = (page.as_ptr(), rkfd::sys::PAGE);
    let space = open();
    let filling = native::Filling::AtOnce;
    // SAFETY: only the word is written, and nobody has an exclusive reference to it.
    let mirror = unsafe { space.mirror(start, len, AT, Rights::Write, filling) }.unwrap();
    assert_eq!(mirror.query().unwrap().bytes, len as u64); // CAST: a size.
    let queue = space.queue(native::QueueKind::Sdma, 2 << 32).unwrap();
    queue.submit(&write(AT, 5)).unwrap();
    seen(word, 5);
    mirror.populate(AT, len).unwrap();
    assert_eq!(errno(mirror.populate(AT, 2 * len)), Errno::EINVAL);
    drop(mirror);
    // SAFETY: as above.
    let again = unsafe { space.mirror(start, len, AT, Rights::Read, filling) }.unwrap();
    assert_eq!(again.query().unwrap().flags & 1, 1);

    let space = open();
    // SAFETY: as above; nothing else is written.
    let all = match unsafe { space.mirror_all(Rights::Write) } {
        Err(e) if e.errno() == Some(Errno::EOPNOTSUPP) => return,
        all => all.unwrap(),
    };
    assert_eq!(all.leaf(), 2 << 20);
    let queue = space.queue(native::QueueKind::Sdma, 2 << 32).unwrap();
    let late = Box::new(AtomicU32::new(0));
    for (at, value) in [(word, 6), (&*late, 7)] {
        let address = std::ptr::from_ref(at).expose_provenance() as u64; // CAST: an address.
        queue.submit(&write(address, value)).unwrap();
        seen(at, value);
    }
    assert!(all.query().unwrap().faults > 0);
    assert_eq!(space.faults().unwrap(), (Vec::new(), 0));
}

fn main() {
    let mut cases = CASES.to_vec();
    if std::env::var_os("LIBRARY_NO_RECOVERY").is_some() {
        let name = "a queue that the GPU does not let go keeps its memory, and the GPU uses it";
        cases.push((name, refused::kept));
    }
    tap::main(&cases);
}
