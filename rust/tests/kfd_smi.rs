// SPDX-License-Identifier: GPL-2.0

//! The lines of SMI_EVENTS, and where they wait to be read.

use kernel::prelude::*;

use crate::{
    kapi::task::ThreadGroup,
    kfd::smi::{
        event::LINE_SIZE,
        fifo::{
            Fifo,
            SIZE, //
        },
        EvictionTrigger,
        Locations,
        MigrateTrigger,
        Migration,
        SmiEvent,
        UnmapTrigger, //
    },
};

/// Longer than a line has room for.
const LONG: &str = "a cause of a reset that somebody described with more words than there is room for in a line of \
    this stream of events";

/// Takes what there is, at most `max` bytes.
fn taken(fifo: &mut Fifo, max: usize) -> Result<KVec<u8>> {
    let mut bytes = KVec::from_elem(0, max, GFP_KERNEL)?;
    let taken = fifo.take(&mut bytes);
    bytes.truncate(taken.len);
    Ok(bytes)
}

#[kunit_tests(rkfd_kfd_smi)]
mod tests {
    use super::*;

    #[test]
    fn lines_leave_in_the_order_in_which_they_came() -> Result {
        let mut fifo = Fifo::new()?;
        assert!(fifo.is_empty());
        assert_eq!(taken(&mut fifo, 8)?.len(), 0);
        assert!(fifo.push(b"one\n") && fifo.push(b"two\n"));
        assert!(!fifo.is_empty());
        assert_eq!(&*taken(&mut fifo, 6)?, b"one\ntw");
        assert!(fifo.push(b"three\n"));
        assert_eq!(&*taken(&mut fifo, 100)?, b"o\nthree\n");
        assert!(fifo.is_empty());
        Ok(())
    }

    #[test]
    fn a_line_without_room_is_left_out_whole() -> Result {
        let mut fifo = Fifo::new()?;
        let line = [b'x'; 96];
        let mut lines = 0;
        while fifo.push(&line) {
            lines += 1;
        }
        assert_eq!(lines, SIZE / line.len());
        let rest = SIZE - lines * line.len();
        assert!(!fifo.push(line.get(..=rest).unwrap_or_default()));
        assert!(fifo.push(line.get(..rest).unwrap_or_default()));
        assert!(!fifo.push(b"\n"));
        assert_eq!(taken(&mut fifo, 2 * SIZE)?.len(), SIZE);
        assert!(fifo.is_empty());
        Ok(())
    }

    #[test]
    fn bytes_stay_what_they_are_over_the_end_of_the_buffer() -> Result {
        let mut fifo = Fifo::new()?;
        // Neither length divides the other, so that every place is a start once in a while.
        for round in 0..3000u32 {
            let line = round.to_le_bytes();
            assert!(fifo.push(&line) && fifo.push(b"abcdefg"));
            assert_eq!(&*taken(&mut fifo, 4)?, &line);
            assert_eq!(&*taken(&mut fifo, 7)?, b"abcdefg");
        }
        Ok(())
    }

    #[test]
    fn what_was_put_back_is_taken_again() -> Result {
        let mut fifo = Fifo::new()?;
        let mut room = [0; 4];
        assert!(fifo.push(b"abcdef"));
        let first = fifo.take(&mut room);
        fifo.put_back(first);
        assert_eq!(&*taken(&mut fifo, 6)?, b"abcdef");
        // Too late: somebody else read on.
        fifo.put_back(first);
        assert!(fifo.is_empty());
        // Too late: something else lies there.
        assert!(fifo.push(b"abcd"));
        let lost = fifo.take(&mut room);
        let full = KVec::from_elem(b'x', SIZE, GFP_KERNEL)?;
        assert!(fifo.push(&full));
        fifo.put_back(lost);
        assert_eq!(&*taken(&mut fifo, SIZE + 4)?, &*full);
        Ok(())
    }

    #[test]
    fn lines_say_what_the_interface_wants() {
        let who = ThreadGroup::current();
        let off = SmiEvent::QueueEviction(&who, EvictionTrigger::Suspend).line(0xabc, 12);
        let text = core::str::from_utf8(off.bytes()).unwrap_or_default();
        assert!(text.starts_with("9 12 -") && text.ends_with(" abc 3\n"));
        let moved = SmiEvent::QueueEviction(&who, EvictionTrigger::Ttm).line(0xabc, 12);
        let text = core::str::from_utf8(moved.bytes()).unwrap_or_default();
        assert!(text.starts_with("9 12 -") && text.ends_with(" abc 2\n"));
        let on = SmiEvent::QueueRestoreDelayed(&who).line(0xabc, 13);
        let text = core::str::from_utf8(on.bytes()).unwrap_or_default();
        assert!(text.starts_with("a 13 -") && text.ends_with(" abc R\n"));
        let svm = SmiEvent::QueueEviction(&who, EvictionTrigger::Svm).line(0xabc, 12);
        let text = core::str::from_utf8(svm.bytes()).unwrap_or_default();
        assert!(text.starts_with("9 12 -") && text.ends_with(" abc 0\n"));
        let fault = SmiEvent::PageFaultStart(&who, 0x7f12, true).line(0xabc, 14);
        let text = core::str::from_utf8(fault.bytes()).unwrap_or_default();
        assert!(text.starts_with("7 14 -") && text.ends_with(" @7f12(abc) W\n"));
        let fault = SmiEvent::PageFaultStart(&who, 0x7f12, false).line(0xabc, 14);
        assert!(fault.bytes().ends_with(b" @7f12(abc) R\n"));
        let served = SmiEvent::PageFaultEnd(&who, 0x7f12, false).line(0xabc, 15);
        let text = core::str::from_utf8(served.bytes()).unwrap_or_default();
        assert!(text.starts_with("8 15 -") && text.ends_with(" @7f12(abc) U\n"));
        let served = SmiEvent::PageFaultEnd(&who, 0x7f12, true).line(0xabc, 15);
        assert!(served.bytes().ends_with(b" @7f12(abc) M\n"));
        let gone = SmiEvent::UnmapFromGpu(&who, 0x7f12, 0x20, UnmapTrigger::Unmapped);
        let line = gone.line(0xabc, 16);
        let text = core::str::from_utf8(line.bytes()).unwrap_or_default();
        assert!(text.starts_with("b 16 -") && text.ends_with(" @7f12(20) abc 2\n"));
        let moving = UnmapTrigger::Migration;
        let gone = SmiEvent::UnmapFromGpu(&who, 0x7f12, 0x20, moving).line(0xabc, 16);
        assert!(gone.bytes().ends_with(b" @7f12(20) abc 1\n"));
        let reset = SmiEvent::PreReset(0x1f, "engines").line(1, 2);
        assert_eq!(reset.bytes(), b"3 1f engines\n");
        let over = SmiEvent::PostReset(0x1f, "engines").line(1, 2);
        assert_eq!(over.bytes(), b"4 1f engines\n");
    }

    #[test]
    fn lines_of_migrations_say_from_where_to_where_and_why() {
        let who = ThreadGroup::current();
        let mut migration = Migration {
            page: 0x7f12,
            pages: 0x200,
            is_out: false,
            trigger: MigrateTrigger::GpuFault,
        };
        let nowhere = Locations {
            prefetch: 0xabc,
            preferred: u32::MAX,
        };
        let begin = SmiEvent::MigrateStart(&who, migration, nowhere).line(0xabc, 17);
        let text = core::str::from_utf8(begin.bytes()).unwrap_or_default();
        assert!(text.starts_with("5 17 -"));
        assert!(text.ends_with(" @7f12(200) 0->abc abc:ffffffff 1\n"));
        let end = SmiEvent::MigrateEnd(&who, migration, ENOMEM.to_errno()).line(0xabc, 18);
        let text = core::str::from_utf8(end.bytes()).unwrap_or_default();
        assert!(text.starts_with("6 18 -"));
        assert!(text.ends_with(" @7f12(200) 0->abc 1 -12\n"));
        (migration.is_out, migration.trigger) = (true, MigrateTrigger::CpuFault);
        let end = SmiEvent::MigrateEnd(&who, migration, 0).line(0xabc, 19);
        assert!(end.bytes().ends_with(b" @7f12(200) abc->0 2 0\n"));
        migration.trigger = MigrateTrigger::Prefetch;
        let home = Locations {
            prefetch: 0,
            preferred: 0,
        };
        let begin = SmiEvent::MigrateStart(&who, migration, home).line(0xabc, 20);
        assert!(begin.bytes().ends_with(b" @7f12(200) abc->0 0:0 0\n"));
        // The longest there can be.
        let far = Migration {
            page: u64::MAX >> 12,
            pages: u64::MAX >> 12,
            ..migration
        };
        let begin = SmiEvent::MigrateStart(&who, far, nowhere).line(u32::MAX, u64::MAX);
        assert!(begin.bytes().ends_with(b" abc:ffffffff 0\n"));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_ends() {
        let line = SmiEvent::PreReset(u32::MAX, LONG).line(1, 2);
        assert_eq!(line.bytes().len(), LINE_SIZE);
        assert!(line.bytes().starts_with(b"3 ffffffff a cause of"));
        assert_eq!(line.bytes().last(), Some(&b'\n'));
    }

    #[test]
    fn events_have_bits_of_their_own() {
        let who = ThreadGroup::current();
        let bit = |event: SmiEvent<'_>| event.bit();
        assert_eq!(bit(SmiEvent::VmFault(&who)), 1);
        assert_eq!(bit(SmiEvent::PreReset(0, "")), 1 << 2);
        assert_eq!(bit(SmiEvent::PostReset(0, "")), 1 << 3);
        assert_eq!(bit(SmiEvent::PageFaultStart(&who, 1, true)), 1 << 6);
        assert_eq!(bit(SmiEvent::PageFaultEnd(&who, 1, true)), 1 << 7);
        let migration = Migration {
            page: 1,
            pages: 1,
            is_out: true,
            trigger: MigrateTrigger::CpuFault,
        };
        let locations = Locations {
            prefetch: 0,
            preferred: 0,
        };
        let begin = SmiEvent::MigrateStart(&who, migration, locations);
        assert_eq!(bit(begin), 1 << 4);
        assert_eq!(bit(SmiEvent::MigrateEnd(&who, migration, 0)), 1 << 5);
        assert_eq!(bit(SmiEvent::QueueRestore(&who)), 1 << 9);
        let changed = UnmapTrigger::Notifier;
        assert_eq!(bit(SmiEvent::UnmapFromGpu(&who, 1, 1, changed)), 1 << 10);
        assert_eq!(bit(SmiEvent::ProcessStart(&who)), 1 << 11);
        assert_eq!(bit(SmiEvent::ProcessEnd(&who)), 1 << 12);
    }
}
