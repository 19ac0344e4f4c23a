// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The messages between VMM and device.
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
use vfio::{Refused, Vmm};
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
