// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A dispatch as it lies in the save area of its queue.
//!
//! The area belongs to the user, who may store there whatever he likes.  So only what a user chooses is read back from it:
//! the packet's part of the kernel, and the waves.  The address space, the compute units and the trap handler are those
//! of the queue that goes on.

use gfx9_isa::group::Parts;

use super::front::{Flight, Stand};
use super::job::{Frozen, Resting, Waves};
use super::kernel::{Kernel, Scratch};
use super::measure::{groups_of, Measure};
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

/// Words of what precedes the groups of a dispatch, without its user SGPRs.
const HEAD: usize = 37;
/// The same of a dispatch that is over, all that there is of it.
const OVER: usize = 9;
/// Words of what precedes the waves and LDS of a group, without its slots of private memory.
const GROUP_HEAD: usize = 5;
/// Most waves of a group, each of which has a slot of private memory.
const MAX_WAVES: usize = 16;
/// Most words that a dispatch may have for user SGPRs.
const MAX_USER: usize = 256;

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn words(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.word(*value));
    }

    fn wide(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn list(&mut self, words: &[u32]) {
        self.word(words.len() as u32);
        self.words(words);
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    fn wide(&mut self) -> Option<u64> {
        Some(u64::from(self.word()?) | u64::from(self.word()?) << 32)
    }

    fn three(&mut self) -> Option<[u32; 3]> {
        Some([self.word()?, self.word()?, self.word()?])
    }

    fn list(&mut self, most: usize) -> Option<Vec<u32>> {
        let count = self.word()? as usize;
        if count > most {
            return None;
        }
        (0..count).map(|_| self.word()).collect()
    }
}

/// Words of a group as [`put_group`] writes it.
pub(super) fn group_words(group: &Resting) -> usize {
    GROUP_HEAD + group.slots.len() + group.group.0.saved_size() / 4
}

/// Words of what precedes the groups of a dispatch, or of all of one that is over.
pub(super) fn head_words(flight: &Flight) -> usize {
    match &flight.frozen {
        Some(frozen) => HEAD + frozen.kernel.user.len(),
        None => OVER,
    }
}

/// Writes the dispatches of a queue, whose waves have been taken off, a part at a time.
#[derive(Debug)]
pub struct Encoder {
    sizes: Measure,
    flight: usize,
    /// The next group; `None` before the head of the dispatch.
    group: Option<usize>,
    /// Its next part.
    part: usize,
}

impl Encoder {
    /// At the beginning of dispatches that have been measured.
    pub fn new(sizes: Measure) -> Self {
        Self {
            sizes,
            flight: 0,
            group: None,
            part: 0,
        }
    }

    /// Appends the next part, at most [`Parts::LONGEST`] bytes and a few.  False if there is none.
    pub fn put<'a>(
        &mut self,
        mut flights: impl Iterator<Item = &'a Flight>,
        to: &mut Vec<u8>,
    ) -> bool {
        let Some(flight) = flights.nth(self.flight) else {
            return false;
        };
        let out = &mut Writer(to);
        let mut groups = groups_of(flight);
        let count = groups.len();
        match self.group {
            None => {
                let words = self.sizes.words.get(self.flight);
                out.word(words.map_or(0, |words| *words as u32));
                put_head(flight, out);
                self.group = Some(0);
            }
            Some(number) => {
                if let Some(group) = groups.nth(number) {
                    put_group(group, self.part, out);
                    self.part += 1;
                    if self.part == group.group.0.saved_parts() {
                        (self.group, self.part) = (Some(number + 1), 0);
                    }
                }
            }
        }
        if self.group.is_some_and(|next| next >= count) {
            self.flight += 1;
            self.group = None;
        }
        true
    }
}

fn put_head(flight: &Flight, out: &mut Writer<'_>) {
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
        ..
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
        out.words(&three);
    }
    out.word(kernel.lds);
    let (wave, slots) = kernel.scratch.map_or((0, 0), |s| (s.wave, s.slots));
    out.wide(wave);
    out.word(slots);
    out.list(&kernel.user);
    out.wide(*next);
    out.word(u32::from(*failed));
    out.word(groups.len() as u32);
}

fn put_group(group: &Resting, part: usize, out: &mut Writer<'_>) {
    let waves = &group.group.0;
    if part == 0 {
        out.words(&group.id);
        out.list(&group.slots);
        // LDS and all else of a group are whole words.
        out.word((waves.saved_size() / 4) as u32);
    }
    waves.save_part(part, out.0);
}

/// Where a [`Decoder`] is.
enum At {
    /// Before a dispatch.
    Head,
    /// Inside of one.
    Groups(Box<Half>),
}

/// A dispatch that is being read back.
struct Half {
    /// Bytes of it that are left.
    left: usize,
    started: u64,
    stand: Stand,
    frozen: Frozen,
    /// Groups that are still to come, the one that is being read included.
    lacks: u32,
    group: Option<HalfGroup>,
}

/// A group that is being read back.
struct HalfGroup {
    id: [u32; 3],
    slots: Vec<u32>,
    parts: Parts,
    /// Bytes of it that are left.
    left: usize,
}

/// Reads what [`Encoder`] has written, a part at a time, for a queue whose kernels begin as `base`.
pub struct Decoder {
    base: Kernel,
    most: usize,
    all: Vec<Saved>,
    at: At,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} dispatches", self.all.len())
    }
}

impl Decoder {
    /// Bytes that have to be there for the next part, unless there are no more.
    pub const LONGEST: usize = {
        let head = 4 * (HEAD + 1 + MAX_USER);
        let group = 4 * (GROUP_HEAD + MAX_WAVES) + Parts::LONGEST;
        if head > group {
            head
        } else {
            group
        }
    };

    /// For a queue that has at most `most` dispatches.
    pub fn new(base: Kernel, most: usize) -> Self {
        Self {
            base,
            most,
            all: Vec::new(),
            at: At::Head,
        }
    }

    /// Takes the next part off the bytes; `None` if it is something else than [`Encoder`] writes.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let half = match &mut self.at {
            At::Head => {
                if self.all.len() == self.most {
                    return None;
                }
                let mut from = Reader(bytes);
                let length = from.word()? as usize * 4;
                let before = from.0.len();
                match head(&mut from, self.base.clone())? {
                    Head::Over(started, stand) => {
                        if before - from.0.len() != length {
                            return None;
                        }
                        self.all.push(Saved {
                            started,
                            stand,
                            frozen: None,
                        });
                        *bytes = from.0;
                        return Some(());
                    }
                    Head::Half(mut half) => {
                        half.left = length.checked_sub(before - from.0.len())?;
                        *bytes = from.0;
                        self.at = At::Groups(half);
                    }
                }
                let At::Groups(half) = &mut self.at else {
                    return None;
                };
                half
            }
            At::Groups(half) => {
                half.take(bytes)?;
                half
            }
        };
        if half.lacks == 0 {
            if half.left != 0 {
                return None;
            }
            let At::Groups(half) = std::mem::replace(&mut self.at, At::Head) else {
                return None;
            };
            self.all.push(Saved {
                started: half.started,
                stand: half.stand,
                frozen: Some(half.frozen),
            });
        }
        Some(())
    }

    /// What was read, if the last part was that of a whole dispatch.
    pub fn end(self) -> Option<Vec<Saved>> {
        matches!(self.at, At::Head).then_some(self.all)
    }
}

impl Half {
    fn take(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let (mut mine, _) = bytes.split_at(self.left.min(bytes.len()));
        let had = mine.len();
        match &mut self.group {
            None => self.group = Some(HalfGroup::begin(&mut mine, &self.frozen.kernel)?),
            Some(group) => group.wave(&mut mine)?,
        }
        let took = had - mine.len();
        self.left -= took;
        *bytes = bytes.get(took..)?;
        if let Some(group) = self.group.take_if(|group| !group.parts.lacks_waves()) {
            let resting = group.end(&self.frozen.kernel)?;
            self.frozen.push(resting);
            self.lacks -= 1;
        }
        Some(())
    }
}

impl HalfGroup {
    fn begin(bytes: &mut &[u8], kernel: &Kernel) -> Option<Self> {
        let mut from = Reader(bytes);
        let id = from.three()?;
        let slots = from.list(MAX_WAVES)?;
        let left = from.word()? as usize * 4;
        let (mut mine, _) = from.0.split_at(left.min(from.0.len()));
        let had = mine.len();
        let parts = Parts::begin(&mut mine).ok()?;
        let took = had - mine.len();
        *bytes = from.0.get(took..)?;
        let known = slots
            .iter()
            .all(|slot| kernel.scratch.is_some_and(|s| *slot < s.slots));
        known.then_some(Self {
            id,
            slots,
            parts,
            left: left - took,
        })
    }

    fn wave(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let (mut mine, _) = bytes.split_at(self.left.min(bytes.len()));
        let had = mine.len();
        self.parts.wave(&mut mine).ok()?;
        let took = had - mine.len();
        self.left -= took;
        *bytes = bytes.get(took..)?;
        Some(())
    }

    fn end(self, kernel: &Kernel) -> Option<Resting> {
        if self.left != 0 {
            return None;
        }
        let mut group = self.parts.group()?;
        let sane = self.slots.len() <= kernel.waves() as usize
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
            id: self.id,
            group: Waves(group),
            slots: self.slots,
        })
    }
}

/// What precedes the groups of a dispatch.
enum Head {
    /// It is over, and has none.
    Over(u64, Stand),
    Half(Box<Half>),
}

fn head(from: &mut Reader<'_>, base: Kernel) -> Option<Head> {
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
        return over.then_some(Head::Over(started, stand));
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
        user: from.list(MAX_USER)?,
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
    if next > total || u64::from(count) > next {
        return None;
    }
    Some(Head::Half(Box::new(Half {
        left: 0,
        started,
        stand,
        frozen: Frozen::new(kernel, next, failed),
        lacks: count,
        group: None,
    })))
}

/// Appends the words of all dispatches of a queue, each behind their number; none if there is no dispatch.
pub fn encode_all<'a>(flights: impl Iterator<Item = &'a Flight> + Clone, to: &mut Vec<u32>) {
    let mut sizes = Measure::default();
    while sizes.measure(flights.clone(), 1) {}
    let (mut encoder, mut bytes) = (Encoder::new(sizes), Vec::new());
    while encoder.put(flights.clone(), &mut bytes) {}
    let words = bytes.chunks_exact(4);
    to.extend(words.map(|word| word.try_into().map_or(0, u32::from_le_bytes)));
}

/// Reads what [`encode_all`] has written, for a queue whose kernels begin as `base`; `None` if it is something else, also
/// for more than `most` dispatches.
pub fn decode_all(words: &[u32], base: &Kernel, most: usize) -> Option<Vec<Saved>> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut rest = bytes.as_slice();
    let mut decoder = Decoder::new(base.clone(), most);
    while !rest.is_empty() {
        decoder.take(&mut rest)?;
    }
    decoder.end()
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
