// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Lanes on memory of the host, with functions in place of GPUs: the shadow is compared with what the kernel does.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use super::*;

const PAGES: usize = 1024;
const FILE: usize = 128;

/// A GPU that is a function: it has the memory of the arena by its address, and is done when a batch is waited for.
struct Function {
    start: usize,
    queued: Vec<GpuOp>,
}

impl Function {
    fn at(&self, page: usize, offset: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.start + page * PAGE + offset)
    }

    fn read(&self, page: usize, offset: usize, bytes: usize) -> Vec<u8> {
        let at = self.at(page, offset);
        let byte = |n| {
            // SAFETY: the plan says that the page is readable, and the arena lives.
            unsafe { at.add(n).read_volatile() }
        };
        (0..bytes).map(byte).collect()
    }

    fn write(&self, page: usize, offset: usize, bytes: &[u8]) {
        let at = self.at(page, offset);
        for (n, byte) in bytes.iter().enumerate() {
            // SAFETY: as above, and writable.
            unsafe { at.add(n).write_volatile(*byte) };
        }
    }
}

impl Gpu for Function {
    fn submit(&mut self, ops: &[GpuOp]) -> anyhow::Result<()> {
        self.queued.extend_from_slice(ops);
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut found = Vec::new();
        for op in std::mem::take(&mut self.queued) {
            match op {
                GpuOp::Write { page, offset, data } => {
                    let bytes: Vec<u8> = data.iter().flat_map(|d| d.to_le_bytes()).collect();
                    self.write(page, offset, &bytes);
                }
                GpuOp::Fill {
                    page,
                    offset,
                    data,
                    bytes,
                } => self.write(page, offset, &data.to_le_bytes().repeat(bytes / 4)),
                GpuOp::Add {
                    page,
                    offset,
                    value,
                    times,
                } => {
                    for _ in 0..times {
                        let old = self.read(page, offset, 8).try_into().unwrap();
                        let sum = u64::from_le_bytes(old).wrapping_add(value);
                        self.write(page, offset, &sum.to_le_bytes());
                    }
                }
                GpuOp::Copy { from, to, bytes } => {
                    self.write(to.0, to.1, &self.read(from.0, from.1, bytes));
                }
                GpuOp::Read {
                    page,
                    offset,
                    wanted,
                } => found.extend(self.read(page, offset, wanted.len())),
            }
        }
        Ok(found)
    }

    fn show(&mut self, _first: usize, _count: usize) -> anyhow::Result<()> {
        Ok(())
    }

    fn migrate(
        &mut self,
        _first: usize,
        count: usize,
        to: Place,
        _fill: bool,
    ) -> anyhow::Result<Option<u64>> {
        // A GPU without room.
        Ok((to == Place::System).then_some((count * PAGE) as u64))
    }

    fn hint(&mut self, _first: usize, _count: usize, hint: Option<Hint>) -> anyhow::Result<bool> {
        // A GPU without VRAM for programs.
        Ok(!matches!(hint, Some(Hint::Vram(_))))
    }
}

/// A lane of the host's memory.
fn lane(seed: u64, number: usize, gpus: usize) -> (Lane<Function>, Arc<Tally>) {
    // Tests run at the same time.
    static PLACES: AtomicUsize = AtomicUsize::new(0);
    let start = 0x20_0000_0000 + (PLACES.fetch_add(1, Ordering::Relaxed) << 30);
    let arena = Arena::new(start, PAGES, FILE).unwrap();
    let tally = Arc::new(Tally::new());
    let gpus = (0..gpus).map(|_| Function {
        start,
        queued: Vec::new(),
    });
    let lane = Lane::new(number, seed, arena, FILE, gpus.collect(), tally.clone()).unwrap();
    (lane, tally)
}

#[test]
fn the_shadow_is_what_the_kernel_does() {
    for seed in 0..6 {
        let (mut lane, tally) = lane(seed, 3, (seed % 3) as usize);
        for _ in 0..40 {
            lane.round().unwrap();
        }
        lane.close().unwrap();
        assert_eq!(tally.rounds(), 40);
        assert!(tally.verified().0 > 1 << 20);
    }
}

#[test]
fn moves_are_counted_and_change_no_content() {
    let (mut lane, tally) = lane(7, 1, 2);
    lane.migrate();
    for _ in 0..20 {
        lane.round().unwrap();
    }
    lane.close().unwrap();
    assert!(tally.done(Kind::MoveOut) > 0 && tally.refused(Kind::MoveIn) > 0);
    assert_eq!(
        (tally.refused(Kind::MoveOut), tally.done(Kind::MoveIn)),
        (0, 0)
    );
    assert!(tally.done(Kind::Hint) > 0 && tally.refused(Kind::Hint) > 0);
    let (moved_in, moved_out) = tally.all_moved();
    assert!(moved_in == 0 && moved_out > 0);
}

#[test]
fn two_runs_of_a_seed_make_the_same_choices() {
    let choices = |seed, number| {
        let (mut lane, _) = lane(seed, number, 1);
        for _ in 0..30 {
            lane.round().unwrap();
        }
        lane.choices()
    };
    let first = choices(1, 0);
    assert_eq!(first, choices(1, 0));
    assert_ne!(first, choices(1, 1));
    assert_ne!(first, choices(2, 0));
}

#[test]
fn what_is_spoiled_is_found() {
    for what in [Spoil::Byte, Spoil::Packet] {
        let found = (0..4).filter(|seed| {
            let (mut lane, _) = lane(*seed, 0, 1);
            lane.spoil(Some(what));
            let results: Vec<_> = (0..=SPOILED).map(|_| lane.round()).collect();
            assert!(results[..SPOILED as usize].iter().all(Result::is_ok));
            results[SPOILED as usize].is_err()
        });
        // A batch may have no packet that writes.
        assert!(found.count() >= 2, "{what:?}");
    }
}
