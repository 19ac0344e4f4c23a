// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A dispatch as it lies in the save area of its queue.
//!
//! The area belongs to the user, who may store there whatever he likes.  So only what a user chooses is read back from it:
//! the packet's part of the kernel, and the waves.  The address space, the compute units and the trap handler are those
//! of the queue that goes on.

use gfx9_isa::group::Group;

use super::front::{Flight, Stand};
use super::job::{Frozen, Resting, Waves};
use super::kernel::{Kernel, Scratch};
use super::report::Failure;
use crate::aql::QueueError;

/// Begins a saved dispatch; the last digit is the version of the format.
const MAGIC: u32 = 0x4B53_4901;
/// Most work-items of a workgroup.
const MAX_WORKGROUP: u64 = 1024;

/// A dispatch that was read back.
#[derive(Debug)]
pub struct Saved {
    /// When it began (ticks).
    pub started: u64,
    /// How it stands.
    pub stand: Stand,
    /// Its groups; none if it is over.
    pub frozen: Option<Frozen>,
}

struct Writer<'a>(&'a mut Vec<u32>);

impl Writer<'_> {
    fn word(&mut self, value: u32) {
        self.0.push(value);
    }

    fn wide(&mut self, value: u64) {
        self.0.extend([value as u32, (value >> 32) as u32]);
    }

    fn list(&mut self, words: &[u32]) {
        self.0.push(words.len() as u32);
        self.0.extend_from_slice(words);
    }

    /// A list of what `put` writes.
    fn list_of(&mut self, put: impl FnOnce(&mut Writer<'_>)) {
        let at = self.0.len();
        self.0.push(0);
        put(self);
        let count = self.0.len() - at - 1;
        if let Some(word) = self.0.get_mut(at) {
            *word = count as u32;
        }
    }

    /// Bytes, filled up to whole words.
    fn bytes(&mut self, bytes: &[u8]) {
        let words = bytes.chunks_exact(4);
        let rest = words.remainder();
        self.0.extend(words.map(word_of));
        if !rest.is_empty() {
            let mut word = [0; 4];
            for (to, from) in word.iter_mut().zip(rest) {
                *to = *from;
            }
            self.0.push(u32::from_le_bytes(word));
        }
    }
}

fn word_of(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

struct Reader<'a>(&'a [u32]);

impl<'a> Reader<'a> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*word)
    }

    fn wide(&mut self) -> Option<u64> {
        Some(u64::from(self.word()?) | u64::from(self.word()?) << 32)
    }

    fn three(&mut self) -> Option<[u32; 3]> {
        Some([self.word()?, self.word()?, self.word()?])
    }

    fn list(&mut self) -> Option<&'a [u32]> {
        let count = self.word()? as usize;
        let (words, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(words)
    }
}

/// The words of a dispatch whose waves have been taken off.
pub fn encode(flight: &Flight) -> Vec<u32> {
    let mut words = Vec::new();
    put(flight, &mut Writer(&mut words));
    words
}

fn put(flight: &Flight, out: &mut Writer<'_>) {
    out.word(MAGIC);
    out.wide(flight.started);
    let (kind, time, exception, told) = match flight.stand {
        Stand::Running => (0, 0, 0, 0),
        Stand::Done(end) => (1, end, 0, 0),
        Stand::Failed(e, told) => (2, 0, e.exception, u32::from(told)),
        Stand::Told => (3, 0, 0, 0),
    };
    out.word(kind);
    out.wide(time);
    out.word(exception);
    out.word(told);
    let Some(Frozen {
        kernel,
        next,
        failed,
        groups,
    }) = &flight.frozen
    else {
        out.word(0);
        return;
    };
    out.word(1);
    out.wide(kernel.entry);
    out.wide(kernel.packet);
    for three in [
        kernel.rsrc,
        kernel.start,
        kernel.groups,
        kernel.size,
        kernel.last,
    ] {
        three.into_iter().for_each(|word| out.word(word));
    }
    out.word(kernel.lds);
    let (wave, slots) = kernel.scratch.map_or((0, 0), |s| (s.wave, s.slots));
    out.wide(wave);
    out.word(slots);
    out.list(&kernel.user);
    out.wide(*next);
    out.word(u32::from(*failed));
    out.word(groups.len() as u32);
    for group in groups {
        group.id.into_iter().for_each(|word| out.word(word));
        out.list(&group.slots);
        out.list_of(|out| out.bytes(&group.group.0.save()));
    }
}

/// Reads what [`encode`] has written, for a queue whose kernels begin as `base`; `None` if it is something else.
pub fn decode(words: &[u32], base: Kernel) -> Option<Saved> {
    let mut from = Reader(words);
    if from.word()? != MAGIC {
        return None;
    }
    let started = from.wide()?;
    let kind = from.word()?;
    let end = from.wide()?;
    let (exception, told) = (from.word()?, from.word()? != 0);
    let stand = match kind {
        0 => Stand::Running,
        1 => Stand::Done(end),
        2 => Stand::Failed(error_of(exception)?, told),
        3 => Stand::Told,
        _ => return None,
    };
    let over = matches!(stand, Stand::Done(_) | Stand::Told);
    if from.word()? == 0 {
        // Nothing would ever complete another one.
        return over.then_some(Saved {
            started,
            stand,
            frozen: None,
        });
    }
    if over {
        // Nobody would take its waves off again, and they would go on in whatever address space has their VMID then.
        return None;
    }
    let (entry, packet) = (from.wide()?, from.wide()?);
    let [rsrc, start, groups, size, last] = [
        from.three()?,
        from.three()?,
        from.three()?,
        from.three()?,
        from.three()?,
    ];
    let lds = from.word()?;
    let (wave, slots) = (from.wide()?, from.word()?);
    let kernel = Kernel {
        entry,
        packet,
        rsrc,
        start,
        groups,
        size,
        last,
        lds,
        scratch: (slots != 0).then_some(Scratch {
            wave: wave & 0x7F_FFFF,
            slots: slots.min(0xFFF),
        }),
        user: from.list()?.to_vec(),
        ..base
    };
    let whole = |items: u64, n: &u32| items.checked_mul(u64::from(*n));
    let items = size.iter().try_fold(1, whole)?;
    let fits = |(n, whole): (&u32, &u32)| *n >= 1 && n <= whole;
    if !(1..=MAX_WORKGROUP).contains(&items) || !last.iter().zip(&size).all(fits) {
        return None;
    }
    let total = kernel.count().filter(|_| lds <= super::units::LDS)?;
    let next = from.wide()?;
    let failed = from.word()? != 0;
    let count = from.word()?;
    let mut resting = Vec::new();
    for _ in 0..count {
        resting.push(group(&mut from, &kernel)?);
    }
    let whole = from.0.is_empty() && next <= total && u64::from(count) <= next;
    whole.then_some(Saved {
        started,
        stand,
        frozen: Some(Frozen {
            kernel,
            next,
            failed,
            groups: resting,
        }),
    })
}

/// Appends the words of all dispatches of a queue, each behind their number; none if there is no dispatch.
pub fn encode_all<'a>(flights: impl Iterator<Item = &'a Flight>, to: &mut Vec<u32>) {
    let mut out = Writer(to);
    for flight in flights {
        out.list_of(|out| put(flight, out));
    }
}

/// Reads what [`encode_all`] has written, as [`decode`] does; `None` also for more than `most` dispatches.
pub fn decode_all(words: &[u32], base: &Kernel, most: usize) -> Option<Vec<Saved>> {
    let mut from = Reader(words);
    let mut all = Vec::new();
    while !from.0.is_empty() {
        if all.len() == most {
            return None;
        }
        all.push(decode(from.list()?, base.clone())?);
    }
    Some(all)
}

fn group(from: &mut Reader<'_>, kernel: &Kernel) -> Option<Resting> {
    let id = from.three()?;
    let slots = from.list()?.to_vec();
    let words = from.list()?;
    let mut bytes = vec![0; 4 * words.len()];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let mut group = Group::restore(&bytes).ok()?;
    let known = slots
        .iter()
        .all(|slot| kernel.scratch.is_some_and(|s| *slot < s.slots));
    let sane = known
        && slots.len() <= kernel.waves() as usize
        && (1..=kernel.waves() as usize).contains(&group.len())
        && group.lds().len() == kernel.demand().lds as usize;
    for number in 0..group.len() {
        let wave = group.wave_mut(number)?;
        if wave.asic() != kernel.isa {
            return None;
        }
        wave.trap_base = kernel.trap_base;
        wave.sh_mem_bases = kernel.apertures;
    }
    sane.then_some(Resting {
        id,
        group: Waves(group),
        slots,
    })
}

/// The failure with this exception.
fn error_of(exception: u32) -> Option<QueueError> {
    let all = [
        Failure::Illegal { pc: 0, name: None },
        Failure::Aperture { va: 0 },
        Failure::Memory { va: 0 },
        Failure::Abort,
        Failure::Trap(0),
        Failure::Math(0),
    ];
    all.into_iter()
        .map(Failure::error)
        .find(|error| error.exception == exception)
}
