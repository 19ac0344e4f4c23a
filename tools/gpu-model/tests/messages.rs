// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The messages between VMM and device: what they carry, and such that make no sense.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "common/vfio.rs"]
mod vfio;
#[path = "common/vmm.rs"]
mod vmm;

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use gpu_model::pci::Subsystem;
use gpu_model::server::{make_vram, serve, Backend, Shared};
use nix::sys::eventfd::{EfdFlags, EventFd};
use proptest::collection::vec;
use proptest::prelude::*;
use vfio::{fields, message, Field, Refused, Vmm};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};
use vmm::*;

/// A server for one session, and its socket.
fn server(
    dir: &Path,
    shared: &Arc<Shared>,
    vram: &File,
) -> (PathBuf, JoinHandle<anyhow::Result<()>>) {
    let socket = dir.join("dev");
    let (shared, vram) = (Arc::clone(shared), vram.try_clone().unwrap());
    let listens = socket.clone();
    let server = std::thread::spawn(move || serve(&listens, &shared, &vram, Subsystem::default()));
    (socket, server)
}

/// Sends the message of the device, whether or not it is a bus master at the moment; how often it arrived.
fn arrives(shared: &Shared, event: &EventFd) -> u64 {
    let mut gpu = shared.lock();
    let master = gpu.soc.mem.bus_master();
    gpu.soc.mem.set_bus_master(true);
    gpu.soc.raise_msi();
    gpu.soc.mem.set_bus_master(master);
    event.read().unwrap_or(0)
}

fn event() -> EventFd {
    EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// What comes over the socket is what the backend says: each message of one client, against a backend of its own.
    #[test]
    fn messages_say_what_the_backend_says(ops in vec(op(), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        let (shared, vram) = device();
        let (socket, server) = server(dir.path(), &shared, &vram);
        let mut vmm = Vmm::attach(&socket);
        let (mine, _vram) = device();
        let mut backend = Backend::new(Arc::clone(&mine), Subsystem::default());
        let ram = make_vram(1 << 20).unwrap();
        // The server refuses regions that there are not; the backend is not asked.
        let exists = |region: u32| region < 9;
        let (theirs, ours) = (event(), event());
        let mut connected = false;
        for op in ops {
            match op {
                Op::Read(r, at, n) => {
                    let (mut a, mut b) = (vec![0x5a; n], vec![0xa5; n]);
                    let read = vmm.region_read(r, at, &mut a);
                    if exists(r) {
                        backend.region_read(r, at, &mut b).unwrap();
                        prop_assert_eq!((read, a), (Ok(()), b), "region {} at {:#x}", r, at);
                    } else {
                        prop_assert_eq!(read, Err(Refused(22)));
                    }
                }
                // What such a one carries, the server's library takes for the next message.
                Op::Write(r, ..) if !exists(r) => {}
                Op::Write(r, at, data) => {
                    prop_assert_eq!(vmm.region_write(r, at, &data), Ok(()));
                    backend.region_write(r, at, &data).unwrap();
                }
                Op::Map { at, size, offset, file, write } => {
                    let flags = if write { DmaMapFlags::READ_WRITE } else { DmaMapFlags::READ };
                    let fd = file.then(|| ram.as_raw_fd());
                    prop_assert_eq!(vmm.dma_map(flags.bits(), offset, (at, size), fd), Ok(()));
                    let file = file.then(|| ram.try_clone().unwrap());
                    backend.dma_map(flags, offset, at, size, file).unwrap();
                }
                Op::Unmap { at, size, all } => {
                    let flags = if all { DmaUnmapFlags::UNMAP_ALL } else { DmaUnmapFlags::empty() };
                    let refused = backend.dma_unmap(flags, at, size).map_err(|e| e.kind());
                    let refused = refused.map_err(|kind| {
                        assert_eq!(kind, ErrorKind::InvalidInput);
                        // The server names no errno for what a backend refuses.
                        Refused(0)
                    });
                    prop_assert_eq!(vmm.dma_unmap(all, at, size), refused);
                }
                Op::Irqs { index, flags, count, event } => {
                    let fd = event.then(|| theirs.as_raw_fd());
                    let done = vmm.set_irqs(index, flags, count, fd);
                    // Of five interrupts there is no sixth, and no list of booleans (DATA_BOOL) is taken.
                    if index >= 5 {
                        prop_assert_eq!(done, Err(Refused(22)));
                    } else if flags & 2 != 0 {
                        prop_assert_eq!(done, Err(Refused(0)));
                    } else {
                        prop_assert_eq!(done, Ok(()));
                        let fds = event.then(|| File::from(ours.as_fd().try_clone_to_owned().unwrap()));
                        backend.set_irqs(index, flags, 0, count, fds.into_iter().collect()).unwrap();
                    }
                    let sent = (arrives(&shared, &theirs), arrives(&mine, &ours));
                    if done.is_ok() && index == 1 && flags & 0x20 != 0 {
                        connected = match (flags & 4 != 0, flags & 1 != 0 && count == 0) {
                            (true, _) => event,
                            (false, none) => connected && !none,
                        };
                    }
                    let want = u64::from(connected);
                    prop_assert_eq!(sent, (want, want));
                }
                Op::Reset => {
                    prop_assert_eq!(vmm.reset(), Ok(()));
                    backend.reset().unwrap();
                }
            }
            let ranges = |shared: &Shared| shared.lock().soc.mem.dma_ranges();
            prop_assert_eq!(ranges(&shared), ranges(&mine));
            let master = |shared: &Shared| shared.lock().soc.mem.bus_master();
            prop_assert_eq!(master(&shared), master(&mine));
        }
        prop_assert_eq!(vmm.reset(), Ok(()));
        let mut size = [0; 4];
        vmm.region_read(BAR5, 0x378c, &mut size).unwrap();
        prop_assert_eq!(u32::from_le_bytes(size), (VRAM >> 20) as u32);
        prop_assert!(vmm.hang_up());
        server.join().expect("no panic").expect("an orderly end");
        prop_assert!(shared.lock().latency.access.count() > 0);
    }
}

/// Something that no VMM sends.
#[derive(Debug, Clone)]
enum Nonsense {
    /// Bytes, the first of which are a header.
    Bytes(Vec<u8>),
    /// A command with what may follow it, or not.
    Command(u16, u32, Vec<u8>),
    /// A command that says that it is longer or shorter than it is.
    Lies(u16, u32, Vec<u8>),
    /// An access to a region of so many bytes.
    Access(u16, u32, u64, u32),
    Map([u64; 3], u32),
    Unmap([u64; 2], u32),
    Irqs([u32; 5]),
}

fn nonsense() -> impl Strategy<Value = Nonsense> {
    // The server's library cannot take a version that is none.
    let command = || {
        prop_oneof![4 => 2u16..15, 1 => any::<u16>()].prop_map(|c| {
            if c == vfio::VERSION {
                0
            } else {
                c
            }
        })
    };
    let bytes = |most: usize| vec(any::<u8>(), 0..most);
    prop_oneof![
        2 => (command(), bytes(60)).prop_map(|(command, mut all)| {
            if all.len() > 3 {
                all[2..4].copy_from_slice(&command.to_le_bytes());
            }
            Nonsense::Bytes(all)
        }),
        3 => (command(), any::<u32>(), bytes(40)).prop_map(|(c, f, b)| Nonsense::Command(c, f, b)),
        1 => (command(), any::<u32>(), bytes(40)).prop_map(|(c, n, b)| Nonsense::Lies(c, n, b)),
        2 => (9u16..11, 0u32..10, any::<u64>(), prop_oneof![0u32..64, Just(1u32 << 20), 1u32 << 20..64 << 20])
            .prop_map(|(c, r, at, n)| Nonsense::Access(c, r, at, n)),
        1 => (any::<[u64; 3]>(), any::<u32>()).prop_map(|(w, f)| Nonsense::Map(w, f)),
        1 => (any::<[u64; 2]>(), any::<u32>()).prop_map(|(w, f)| Nonsense::Unmap(w, f)),
        1 => any::<[u32; 5]>().prop_map(Nonsense::Irqs),
    ]
}

impl Nonsense {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Nonsense::Bytes(all) => all.clone(),
            Nonsense::Command(command, flags, payload) => message(7, *command, *flags, payload),
            Nonsense::Lies(command, size, payload) => {
                let mut all = message(7, *command, 0, payload);
                all[4..8].copy_from_slice(&size.to_le_bytes());
                all
            }
            Nonsense::Access(command, region, at, count) => {
                let access = [Field::Q(*at), Field::W(*region), Field::W(*count)];
                message(7, *command, 0, &fields(&access))
            }
            Nonsense::Map([offset, at, size], flags) => {
                let map = [
                    Field::W(32),
                    Field::W(*flags),
                    Field::Q(*offset),
                    Field::Q(*at),
                    Field::Q(*size),
                ];
                message(7, 2, 0, &fields(&map))
            }
            Nonsense::Unmap([at, size], flags) => {
                let unmap = [
                    Field::W(24),
                    Field::W(*flags),
                    Field::Q(*at),
                    Field::Q(*size),
                ];
                message(7, 3, 0, &fields(&unmap))
            }
            Nonsense::Irqs(words) => message(7, 8, 0, &fields(&words.map(Field::W))),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The server refuses it or ends the session, and the device is there for the next one.
    #[test]
    fn nonsense_ends_a_session_at_most(all in vec(nonsense(), 1..8), agreed in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let (shared, vram) = device();
        let (socket, first) = server(dir.path(), &shared, &vram);
        let mut vmm = if agreed { Vmm::attach(&socket) } else { Vmm::connect(&socket) };
        for nonsense in &all {
            vmm.send(&nonsense.bytes());
        }
        prop_assert!(vmm.hang_up(), "the session goes on");
        // An error or none, but no panic.
        let _ = first.join().expect("no panic");
        shared.lock().device_reset();
        let (socket, second) = server(dir.path(), &shared, &vram);
        let mut vmm = Vmm::attach(&socket);
        prop_assert_eq!(vmm.dma_unmap(true, 0, 0), Ok(()));
        let mut size = [0; 4];
        vmm.region_read(BAR5, 0x378c, &mut size).unwrap();
        prop_assert_eq!(u32::from_le_bytes(size), (VRAM >> 20) as u32);
        prop_assert!(vmm.hang_up());
        second.join().expect("no panic").expect("an orderly end");
    }
}

/// Each is answered, and what comes behind it is served.
#[test]
fn what_is_refused_leaves_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, vram) = device();
    let (socket, server) = server(dir.path(), &shared, &vram);
    let mut vmm = Vmm::attach(&socket);
    let access = |region, count| fields(&[Field::Q(0), Field::W(region), Field::W(count)]);
    let irqs = |words: [u32; 5]| fields(&words.map(Field::W));
    let mut long = access(BAR0, (1 << 20) + 1);
    long.resize(16 + (1 << 20) + 1, 0xa5);
    for (command, payload, errno) in [
        // None, and two that go the other way.
        (0, vec![], 0),
        (11, vec![], 0),
        (99, vec![], 0),
        // A region that there is not.
        (9, access(9, 4), 22),
        // More than the version allows.
        (9, access(BAR0, (1 << 20) + 1), 0),
        (9, access(BAR5, 1 << 26), 0),
        (10, long, 0),
        // An interrupt that there is not, and a list of booleans.
        (8, irqs([20, 0x24, 5, 0, 1]), 22),
        (8, irqs([20, 0x22, 1, 0, 1]), 0),
        // Information on a region and an interrupt that there are not.
        (5, fields(&[32, 0, 9, 0, 0, 0, 0, 0].map(Field::W)), 22),
        (7, fields(&[16, 0, 5, 0].map(Field::W)), 22),
    ] {
        assert_eq!(
            vmm.ask(command, &payload, &[]),
            Err(Refused(errno)),
            "{command}"
        );
        let mut size = [0; 4];
        vmm.region_read(BAR5, 0x378c, &mut size).unwrap();
        assert_eq!(u32::from_le_bytes(size), (VRAM >> 20) as u32);
    }
    // As much as the version allows.
    let mut much = vec![0xa5; 1 << 20];
    vmm.region_write(BAR0, 1 << 20, &much).unwrap();
    much.fill(0);
    vmm.region_read(BAR0, 1 << 20, &mut much).unwrap();
    assert!(much.iter().all(|b| *b == 0xa5));
    // A mapping that cannot be cut there.
    let ram = make_vram(1 << 20).unwrap();
    vmm.dma_map(3, 0, (1 << 30, 1 << 20), Some(ram.as_raw_fd()))
        .unwrap();
    assert_eq!(vmm.dma_unmap(false, 1 << 30, 0x800), Err(Refused(0)));
    let ranges = shared.lock().soc.mem.dma_ranges();
    assert_eq!(ranges.len(), 1);
    assert_eq!(ranges.first(), Some(&(1 << 30..(1 << 30) + (1 << 20))));
    assert!(vmm.hang_up());
    server.join().unwrap().unwrap();
}
