// SPDX-License-Identifier: GPL-2.0

//! Reading an interrupt ring, against a device that lies.

use kernel::prelude::*;

use crate::{
    gpu::ih::cursor::{
        Cursor,
        Pass,
        Port,
        MAX_ROUNDS, //
    },
    hw::{
        ih::{
            Client,
            Event,
            Ring,
            Vector,
            RING12_BYTES,
            VECTOR_BYTES, //
        },
        num::index, //
    },
};

/// OVERFLOW of IH_RB_WPTR.
const OVERFLOW: u32 = 1;

/// A ring in plain memory and a script of write pointers.
struct Fake {
    memory: KVec<[u32; 8]>,
    wptrs: KVec<u32>,
    calls: usize,
    rptr: u32,
    cleared: u32,
    gone: bool,
}

impl Fake {
    /// Every vector is an end-of-pipe event whose context names its place.
    fn new(wptrs: &[u32]) -> Result<Self> {
        let mut memory = KVec::new();
        for place in 0..RING12_BYTES / VECTOR_BYTES {
            memory.push(
                [0x0300_b514, place, 0, 0x8001, 0x100 + place, 0, 0, 0],
                GFP_KERNEL,
            )?;
        }
        let mut script = KVec::new();
        script.extend_from_slice(wptrs, GFP_KERNEL)?;
        Ok(Self {
            memory,
            wptrs: script,
            calls: 0,
            rptr: u32::MAX,
            cleared: 0,
            gone: false,
        })
    }
}

impl Port for Fake {
    fn wptr(&mut self) -> Result<u32> {
        if self.gone {
            return Err(EIO);
        }
        let last = self.wptrs.len().saturating_sub(1);
        let value = self.wptrs.get(self.calls.min(last)).copied();
        self.calls += 1;
        value.ok_or(EINVAL)
    }

    fn vector(&mut self, position: u32) -> Result<Vector> {
        let dwords = self
            .memory
            .get(index(position / VECTOR_BYTES))
            .ok_or(EINVAL)?;
        Ok(Vector::decode(dwords))
    }

    fn set_rptr(&mut self, position: u32) {
        self.rptr = position;
    }

    fn clear_overflow(&mut self) {
        self.cleared += 1;
    }
}

fn cursor() -> Result<Cursor> {
    Ok(Cursor::new(Ring::new(RING12_BYTES).ok_or(EINVAL)?))
}

/// Runs a pass and returns what it met and the contexts that were delivered.
fn run(cursor: &mut Cursor, fake: &mut Fake) -> Result<(Pass, KVec<u32>)> {
    let mut seen = KVec::with_capacity(4096, GFP_KERNEL)?;
    let pass = cursor.drain(fake, |_, vector| {
        if let Event::EndOfPipe { context, .. } = vector.event() {
            let _ = seen.push(context, GFP_KERNEL);
        }
    })?;
    Ok((pass, seen))
}

#[kunit_tests(rkfd_gpu_ih)]
mod cases {
    use super::*;

    #[test]
    fn empty_ring_delivers_nothing_and_rings_no_doorbell() -> Result {
        let mut fake = Fake::new(&[0])?;
        let (pass, seen) = run(&mut cursor()?, &mut fake)?;
        assert_eq!(pass, Pass::default());
        assert!(seen.is_empty());
        assert_eq!((fake.rptr, fake.calls), (u32::MAX, 1));
        Ok(())
    }

    #[test]
    fn vectors_come_in_order_and_the_device_is_told() -> Result {
        let mut fake = Fake::new(&[3 * VECTOR_BYTES])?;
        let mut cursor = cursor()?;
        let (pass, seen) = run(&mut cursor, &mut fake)?;
        assert_eq!(pass.vectors, 3);
        assert_eq!(seen.as_slice(), [0x100, 0x101, 0x102]);
        assert_eq!(fake.rptr, 3 * VECTOR_BYTES);
        assert_eq!(cursor.position(), 3 * VECTOR_BYTES);
        Ok(())
    }

    #[test]
    fn vector_fields_are_those_of_the_ring() -> Result {
        let mut fake = Fake::new(&[VECTOR_BYTES])?;
        let mut found = None;
        cursor()?.drain(&mut fake, |_, vector| found = Some(*vector))?;
        let vector = found.ok_or(EINVAL)?;
        assert_eq!(vector.client, Client::GrbmCp);
        assert_eq!((vector.source, vector.vmid, vector.pasid), (181, 3, 0x8001));
        Ok(())
    }

    #[test]
    fn reading_goes_on_while_the_device_writes() -> Result {
        let step = |n: u32| n * VECTOR_BYTES;
        let mut fake = Fake::new(&[step(1), step(4), step(4)])?;
        let (pass, seen) = run(&mut cursor()?, &mut fake)?;
        assert_eq!(pass.vectors, 4);
        assert_eq!(seen.as_slice(), [0x100, 0x101, 0x102, 0x103]);
        assert_eq!(fake.calls, 3);
        Ok(())
    }

    #[test]
    fn the_end_of_the_ring_is_followed_by_its_start() -> Result {
        let last = RING12_BYTES - VECTOR_BYTES;
        let mut fake = Fake::new(&[last, last, VECTOR_BYTES, VECTOR_BYTES])?;
        let mut cursor = cursor()?;
        let (pass, _) = run(&mut cursor, &mut fake)?;
        assert_eq!(pass.vectors, 127);
        let (pass, seen) = run(&mut cursor, &mut fake)?;
        assert_eq!(pass.vectors, 2);
        assert_eq!(seen.as_slice(), [0x100 + 127, 0x100]);
        assert_eq!(cursor.position(), VECTOR_BYTES);
        Ok(())
    }

    #[test]
    fn overflow_restarts_behind_the_write_pointer() -> Result {
        // 10 vectors read; then the device laps the reader and stops at vector 40.
        let mut cursor = cursor()?;
        run(&mut cursor, &mut Fake::new(&[10 * VECTOR_BYTES])?)?;
        let mut fake = Fake::new(&[40 * VECTOR_BYTES | OVERFLOW, 40 * VECTOR_BYTES])?;
        let (pass, seen) = run(&mut cursor, &mut fake)?;
        assert_eq!((pass.overflows, fake.cleared), (1, 1));
        // All that survives: 127 vectors from 41 around to 40.
        assert_eq!(pass.vectors, 127);
        assert_eq!(seen.first().copied(), Some(0x100 + 41));
        assert_eq!(seen.last().copied(), Some(0x100 + 39));
        assert_eq!(cursor.position(), 40 * VECTOR_BYTES);
        Ok(())
    }

    #[test]
    fn impossible_write_pointers_read_nothing() -> Result {
        for bad in [
            u32::MAX,
            RING12_BYTES,
            RING12_BYTES + VECTOR_BYTES,
            4,
            28,
            0x3_ffe0,
        ] {
            let mut fake = Fake::new(&[bad])?;
            let mut cursor = cursor()?;
            let (pass, seen) = run(&mut cursor, &mut fake)?;
            assert_eq!(pass.bad_pointer, Some(bad));
            assert_eq!((pass.vectors, fake.calls, fake.rptr), (0, 1, u32::MAX));
            assert!(seen.is_empty());
            assert_eq!(cursor.position(), 0);
        }
        Ok(())
    }

    #[test]
    fn an_endless_device_does_not_hold_the_reader() -> Result {
        let mut script = KVec::new();
        for round in 1..1000_u32 {
            script.push(round % 128 * VECTOR_BYTES, GFP_KERNEL)?;
        }
        let mut fake = Fake::new(&script)?;
        let mut cursor = cursor()?;
        let (pass, _) = run(&mut cursor, &mut fake)?;
        assert_eq!(pass.vectors, MAX_ROUNDS);
        assert_eq!(cursor.position(), MAX_ROUNDS * VECTOR_BYTES);
        Ok(())
    }

    #[test]
    fn a_lost_device_ends_the_pass() -> Result {
        let mut fake = Fake::new(&[VECTOR_BYTES])?;
        fake.gone = true;
        let mut cursor = cursor()?;
        assert_eq!(run(&mut cursor, &mut fake).err(), Some(EIO));
        assert_eq!(cursor.position(), 0);
        Ok(())
    }
}
