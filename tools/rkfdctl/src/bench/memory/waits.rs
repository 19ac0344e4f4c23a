// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Events: round trips, and waits for one of many.

use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use anyhow::Context;
use nix::libc;
use nix::poll::poll;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use nix::sys::eventfd::EfdFlags;
use nix::sys::eventfd::EventFd;
use rkfd::device::Device;
use rkfd::event;
use rkfd::event::Awaited;
use rkfd::event::Event;
use rkfd::event::Waited;
use serde::Serialize;

use super::timed;
use super::times;
use super::Pair;
use crate::bench::strays::Trip;

/// Entries of a wait.
const LISTS: [usize; 3] = [1, 64, 4096];
/// Events that a process can have: one slot of the page is nobody's.
const MOST: usize = 4095;
/// Longest wait for a signal that is there.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for one of so many.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub events: usize,
    pub time: Pair,
}

/// Round trips of an event of the GPU, and of a byte between threads.
///
/// # Errors
/// A call failed, or an event did not come.
pub fn round_trip(device: &Arc<Device>, rounds: u32) -> anyhow::Result<Pair> {
    let mut trip = Trip::new(device)?;
    let (mut warm, mut found) = (Vec::new(), Vec::new());
    trip.series(1, &mut warm)?;
    trip.series(rounds, &mut found)?;
    let (mut here, mut there) = UnixStream::pair()?;
    let echo = std::thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let peer = times(rounds, |_| {
        timed(|| {
            here.write_all(&[1])?;
            Ok(here.read_exact(&mut [0])?)
        })
    });
    drop(here);
    if echo.join().is_err() {
        bail!("the thread of the peer panicked");
    }
    Ok(Pair::new(found, peer?))
}

/// Waits for the last one of many events to be signalled, which it is.
///
/// # Errors
/// A call failed, or a wait ended otherwise.
pub fn measure(device: &Arc<Device>, rounds: u32) -> anyhow::Result<Vec<Figures>> {
    let most = LISTS.into_iter().max().unwrap_or(1);
    let events = (0..most.min(MOST))
        .map(|_| Event::new(device, true))
        .collect::<Result<Vec<Event>, _>>()
        .context("events")?;
    allow_files(most)?;
    let peers = (0..most)
        .map(|_| EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK))
        .collect::<Result<Vec<EventFd>, _>>()
        .context("eventfds")?;
    let mut found = Vec::new();
    for count in LISTS {
        // Where there are fewer events than entries, the first one is in the list more than once.
        let missing = count.saturating_sub(events.len());
        let last = events.get(count - missing - 1).context("an event")?;
        let list: Vec<&dyn Awaited> = events
            .iter()
            .take(1)
            .cycle()
            .take(missing)
            .chain(events.iter().take(count))
            .map(|event| event as &dyn Awaited)
            .collect();
        let waits = times(rounds, |_| {
            last.set()?;
            timed(|| match event::wait(device, &list, false, PATIENCE)? {
                Waited::Complete => Ok(()),
                Waited::TimedOut => bail!("an event that was set was not seen"),
            })
        })?;
        let ready = peers.get(count - 1).context("an eventfd")?;
        ready.write(1)?;
        let polls = times(rounds, |_| {
            timed(|| {
                let mut list: Vec<PollFd<'_>> = peers
                    .iter()
                    .take(count)
                    .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
                    .collect();
                match poll(&mut list, PollTimeout::NONE)? {
                    1 => Ok(()),
                    n => bail!("{n} of {count} eventfds were readable"),
                }
            })
        })?;
        ready.read()?;
        found.push(Figures {
            events: list.len(),
            time: Pair::new(waits, polls),
        });
    }
    Ok(found)
}

/// Lets this process have `count` files open, and some more.
fn allow_files(count: usize) -> anyhow::Result<()> {
    let wanted = libc::rlim_t::try_from(count)? + 256;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes the structure.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    if got == 0 && limit.rlim_cur >= wanted {
        return Ok(());
    }
    limit.rlim_cur = wanted;
    limit.rlim_max = limit.rlim_max.max(wanted);
    // SAFETY: the kernel reads the structure.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        bail!(
            "{count} files cannot be open: {}",
            nix::errno::Errno::last()
        );
    }
    Ok(())
}
