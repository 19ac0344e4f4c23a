// SPDX-License-Identifier: GPL-2.0

//! The HIQ's ring and the fences, on memory that the test plays the device of.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    backend::{
        fence::{
            FencePool,
            POOL_BYTES,
            SLOTS, //
        },
        hiq::{
            Hiq,
            HIQ_BYTES,
            RING_DWORDS, //
        }, //
    },
    fake::{
        Fake,
        Mode, //
    },
    platform::{
        Domain,
        Platform, //
    }, //
};
use crate::hw::{
    asic::GFX90A,
    num::widen,
    pm4::NOP_ONE, //
};

/// Microseconds that the tests grant.
const TIMEOUT: u64 = 20_000;

/// A ring whose device consumes only when the test says so.
struct Bench {
    fake: Arc<Fake>,
    hiq: Hiq,
}

impl Bench {
    fn new() -> Result<Self> {
        let fake = Fake::new(&GFX90A)?;
        fake.set_mode(Mode::Dead);
        let hiq = Hiq::new(fake.alloc(HIQ_BYTES, Domain::Gart)?)?;
        Ok(Self { fake, hiq })
    }

    /// Submits a packet of the words `first`, `first + 1`, ...
    fn submit(&mut self, first: u32, dwords: u32) -> Result {
        let mut held = self.hiq.hold(&*self.fake, dwords, TIMEOUT)?;
        for i in 0..dwords {
            held.push(&[first + i])?;
        }
        held.submit()?;
        Ok(())
    }

    /// The read pointer as the driver takes it.
    fn rptr(&mut self) -> Result<u64> {
        self.hiq.rptr(&*self.fake)
    }

    /// The device reports a read pointer.
    fn report(&self, rptr: u32) {
        self.fake.store(self.hiq.addrs().rptr, rptr);
    }

    /// Dword `index` of the ring.
    fn word(&self, index: u32) -> u32 {
        self.fake
            .load(self.hiq.addrs().ring + widen(index) * 4)
            .unwrap_or(0xdead_dead)
    }

    /// The write pointer in memory.
    fn wptr(&self) -> u32 {
        self.fake.load(self.hiq.addrs().wptr).unwrap_or(u32::MAX)
    }

    /// Moves both pointers to `position` of a fresh ring.
    fn advance(&mut self, position: u32) -> Result {
        let mut at = 0;
        while at < position {
            let step = (position - at).min(200);
            self.submit(0, step)?;
            at += step;
            self.report(at % RING_DWORDS);
        }
        Ok(())
    }
}

#[kunit_tests(rkfd_sched_hiq)]
mod ring {
    use super::*;

    #[test]
    fn submit_publishes_words_then_pointer_then_one_doorbell() -> Result {
        let mut bench = Bench::new()?;
        bench.submit(0x100, 3)?;
        assert_eq!(
            [bench.word(0), bench.word(1), bench.word(2)],
            [0x100, 0x101, 0x102]
        );
        assert_eq!(bench.word(3), 0);
        assert_eq!(bench.wptr(), 3);
        assert_eq!(bench.hiq.wptr(), 3);
        assert_eq!(bench.fake.doorbells(), 1);
        assert_eq!(bench.hiq.stats().dwords, 3);
        Ok(())
    }

    #[test]
    fn dropped_hold_publishes_nothing() -> Result {
        let mut bench = Bench::new()?;
        let mut held = bench.hiq.hold(&*bench.fake, 4, TIMEOUT)?;
        held.push(&[1, 2, 3, 4])?;
        drop(held);
        assert_eq!(bench.wptr(), 0);
        assert_eq!(bench.fake.doorbells(), 0);
        bench.submit(7, 2)?;
        assert_eq!([bench.word(0), bench.word(1)], [7, 8]);
        assert_eq!(bench.wptr(), 2);
        Ok(())
    }

    #[test]
    fn shorter_than_reserved_leaves_no_gap() -> Result {
        let mut bench = Bench::new()?;
        let mut held = bench.hiq.hold(&*bench.fake, 10, TIMEOUT)?;
        held.push(&[1, 2])?;
        held.submit()?;
        assert_eq!(bench.wptr(), 2);
        bench.submit(9, 1)?;
        assert_eq!(bench.word(2), 9);
        Ok(())
    }

    #[test]
    fn gap_before_the_end_is_filled_with_one_dword_nops() -> Result {
        let mut bench = Bench::new()?;
        bench.advance(505)?;
        bench.submit(0x500, 13)?;
        for index in 505..RING_DWORDS {
            assert_eq!(bench.word(index), NOP_ONE);
        }
        assert_eq!(bench.word(0), 0x500);
        assert_eq!(bench.word(12), 0x50c);
        assert_eq!(bench.wptr(), RING_DWORDS + 13);
        assert_eq!(bench.hiq.stats().padding, 7);
        Ok(())
    }

    #[test]
    fn packet_that_ends_at_the_end_needs_no_padding() -> Result {
        let mut bench = Bench::new()?;
        bench.advance(499)?;
        bench.submit(0x500, 13)?;
        assert_eq!(bench.word(511), 0x50c);
        assert_eq!(bench.wptr(), RING_DWORDS);
        assert_eq!(bench.hiq.stats().padding, 0);
        bench.submit(0x600, 1)?;
        assert_eq!(bench.word(0), 0x600);
        Ok(())
    }

    #[test]
    fn one_dword_stays_free() -> Result {
        let mut bench = Bench::new()?;
        bench.submit(0, 200)?;
        bench.submit(0, 200)?;
        bench.submit(0, 111)?;
        assert_eq!(bench.wptr(), RING_DWORDS - 1);
        assert_eq!(
            bench.hiq.hold(&*bench.fake, 1, TIMEOUT).err(),
            Some(ETIMEDOUT)
        );
        assert_eq!(bench.hiq.stats().stalls, 1);
        assert_eq!(bench.fake.doorbells(), 3);
        // One consumed dword makes room for exactly one.
        bench.report(1);
        bench.submit(0x77, 1)?;
        assert_eq!(bench.word(511), 0x77);
        assert_eq!(
            bench.hiq.hold(&*bench.fake, 1, TIMEOUT).err(),
            Some(ETIMEDOUT)
        );
        Ok(())
    }

    #[test]
    fn waits_for_the_device_to_consume() -> Result {
        let mut bench = Bench::new()?;
        let addrs = bench.hiq.addrs();
        bench.submit(0, 250)?;
        bench.submit(0, 250)?;
        bench.fake.consume_on_pause(addrs.rptr, 500);
        let before = bench.fake.elapsed();
        bench.submit(0x900, 20)?;
        assert!(bench.fake.elapsed() > before);
        assert_eq!(bench.hiq.stats().stalls, 1);
        // 12 dwords of padding, then the packet.
        assert_eq!(bench.word(0), 0x900);
        assert_eq!(bench.wptr(), 532);
        Ok(())
    }

    #[test]
    fn time_out_comes_at_its_time() -> Result {
        let mut bench = Bench::new()?;
        bench.submit(0, 255)?;
        bench.submit(0, 255)?;
        let before = bench.fake.elapsed();
        assert_eq!(
            bench.hiq.hold(&*bench.fake, 100, TIMEOUT).err(),
            Some(ETIMEDOUT)
        );
        let waited = bench.fake.elapsed() - before;
        assert!((TIMEOUT..TIMEOUT + 2_000).contains(&waited));
        Ok(())
    }

    #[test]
    fn lost_device_ends_the_wait_early() -> Result {
        let mut bench = Bench::new()?;
        bench.submit(0, 255)?;
        bench.submit(0, 255)?;
        bench.fake.set_mode(Mode::Lost);
        assert_eq!(
            bench.hiq.hold(&*bench.fake, 100, 9_000_000).err(),
            Some(EIO)
        );
        assert!(bench.fake.elapsed() < 200_000);
        Ok(())
    }

    #[test]
    fn read_pointer_outside_the_ring_is_refused() -> Result {
        let mut bench = Bench::new()?;
        bench.submit(0, 4)?;
        bench.report(RING_DWORDS);
        assert_eq!(bench.rptr().err(), Some(EIO));
        bench.report(u32::MAX);
        assert_eq!(bench.rptr().err(), Some(EIO));
        bench.report(4);
        assert_eq!(bench.rptr()?, 4);
        Ok(())
    }

    #[test]
    fn read_pointer_beyond_the_write_pointer_is_refused() -> Result {
        let mut bench = Bench::new()?;
        bench.submit(0, 4)?;
        bench.report(5);
        assert_eq!(bench.rptr().err(), Some(EIO));
        // A read pointer that runs backwards looks like one that ran ahead.
        bench.report(3);
        assert_eq!(bench.rptr()?, 3);
        bench.report(2);
        assert_eq!(bench.rptr().err(), Some(EIO));
        Ok(())
    }

    #[test]
    fn lengths_that_never_fit_are_refused_at_once() -> Result {
        let mut bench = Bench::new()?;
        assert_eq!(bench.hiq.hold(&*bench.fake, 0, TIMEOUT).err(), Some(EINVAL));
        assert_eq!(
            bench.hiq.hold(&*bench.fake, 256, TIMEOUT).err(),
            Some(EINVAL)
        );
        assert!(bench.hiq.hold(&*bench.fake, 255, TIMEOUT).is_ok());
        assert_eq!(bench.fake.elapsed(), 0);
        Ok(())
    }

    #[test]
    fn push_beyond_the_reservation_is_refused() -> Result {
        let mut bench = Bench::new()?;
        let mut held = bench.hiq.hold(&*bench.fake, 2, TIMEOUT)?;
        assert_eq!(held.push(&[1, 2, 3]).err(), Some(ENOSPC));
        held.push(&[1, 2])?;
        assert_eq!(held.push(&[3]).err(), Some(ENOSPC));
        held.submit()?;
        assert_eq!(bench.wptr(), 2);
        Ok(())
    }

    #[test]
    fn stream_survives_many_wraps() -> Result {
        let mut bench = Bench::new()?;
        let mut read = 0_u64;
        let mut expected = 1_u32;
        let mut next = 1_u32;
        for round in 0..600_u32 {
            let dwords = 1 + round * 7 % 61;
            bench.submit(next, dwords)?;
            next += dwords;
            // The device reads everything and checks that words come in order, padding aside.
            while read < bench.hiq.wptr() {
                // CAST: The remainder is small.
                let word = bench.word((read % widen(RING_DWORDS)) as u32);
                if word != NOP_ONE {
                    assert_eq!(word, expected);
                    expected += 1;
                }
                read += 1;
            }
            bench.report((read % widen(RING_DWORDS)) as u32);
        }
        assert_eq!(expected, next);
        assert_eq!(bench.hiq.stats().stalls, 0);
        assert!(bench.hiq.stats().padding > 0);
        Ok(())
    }

    #[test]
    fn small_memory_is_refused() -> Result {
        let fake = Fake::new(&GFX90A)?;
        assert_eq!(
            Hiq::new(fake.alloc(4096, Domain::Gart)?).err(),
            Some(EINVAL)
        );
        Ok(())
    }
}

/// A pool on memory of its own.
fn pool() -> Result<(Arc<Fake>, FencePool)> {
    let fake = Fake::new(&GFX90A)?;
    let pool = FencePool::new(fake.alloc(POOL_BYTES, Domain::Gart)?)?;
    Ok((fake, pool))
}

/// The device writes a fence.
fn write(fake: &Fake, addr: u64, value: u64) {
    fake.store(addr, crate::hw::num::lo32(value));
    fake.store(addr + 4, crate::hw::num::hi32(value));
}

#[kunit_tests(rkfd_sched_fence)]
mod fences {
    use super::*;

    #[test]
    fn fence_is_seen_when_written() -> Result {
        let (fake, mut pool) = pool()?;
        let fence = pool.arm()?;
        assert_eq!(fence.addr() % 8, 0);
        assert!(!pool.signalled(&fence)?);
        write(&fake, fence.addr(), fence.value());
        assert!(pool.signalled(&fence)?);
        pool.release(fence);
        assert_eq!(pool.free(), SLOTS);
        Ok(())
    }

    #[test]
    fn values_never_repeat_and_slots_rest() -> Result {
        let (_fake, mut pool) = pool()?;
        let mut last = 0;
        let mut previous = 0;
        for _ in 0..3 * SLOTS {
            let fence = pool.arm()?;
            assert!(fence.value() > last);
            assert!(fence.addr() != previous);
            last = fence.value();
            previous = fence.addr();
            pool.release(fence);
        }
        Ok(())
    }

    #[test]
    fn late_write_satisfies_nobody_and_overwrites_nobody() -> Result {
        let (fake, mut pool) = pool()?;
        let late = pool.arm()?;
        let (addr, value) = (late.addr(), late.value());
        pool.abandon(late);
        for _ in 0..2 * SLOTS {
            let fence = pool.arm()?;
            assert!(fence.addr() != addr);
            write(&fake, addr, value);
            assert!(!pool.signalled(&fence)?);
            write(&fake, fence.addr(), fence.value());
            assert!(pool.signalled(&fence)?);
            pool.release(fence);
        }
        assert_eq!(pool.quarantined(), 1);
        Ok(())
    }

    #[test]
    fn foreign_values_are_counted_and_ignored() -> Result {
        let (fake, mut pool) = pool()?;
        let fence = pool.arm()?;
        write(&fake, fence.addr(), fence.value() + 1);
        assert!(!pool.signalled(&fence)?);
        write(&fake, fence.addr(), 100);
        assert!(!pool.signalled(&fence)?);
        assert_eq!(pool.strays(), 2);
        pool.release(fence);
        // The slot is cleaned before its next use.
        for _ in 0..SLOTS {
            let fence = pool.arm()?;
            assert!(!pool.signalled(&fence)?);
            pool.release(fence);
        }
        assert_eq!(pool.strays(), 2);
        Ok(())
    }

    #[test]
    fn exhausted_pool_fails_until_a_reset() -> Result {
        let (_fake, mut pool) = pool()?;
        for _ in 0..SLOTS {
            let fence = pool.arm()?;
            pool.abandon(fence);
        }
        assert_eq!(pool.arm().err(), Some(EIO));
        assert_eq!(pool.quarantined(), SLOTS);
        pool.after_reset();
        assert_eq!(pool.free(), SLOTS);
        let fence = pool.arm()?;
        // Values go on even across a reset.
        // CAST: A small constant.
        assert!(fence.value() > SLOTS as u64);
        pool.release(fence);
        Ok(())
    }

    #[test]
    fn removed_device_is_reported() -> Result {
        let (fake, mut pool) = pool()?;
        let fence = pool.arm()?;
        fake.set_mode(Mode::Gone);
        assert_eq!(pool.signalled(&fence).err(), Some(ENODEV));
        assert_eq!(pool.arm().err(), Some(ENODEV));
        pool.abandon(fence);
        Ok(())
    }
}
