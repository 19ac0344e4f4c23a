// SPDX-License-Identifier: GPL-2.0

//! Command words, arguments, handles, offsets and apertures of `/dev/kfd`.

use kernel::prelude::*;

use crate::{
    event::reasons::Reasons,
    hw::ih::{
        bad_packet,
        Fault,
        Hub, //
    },
    kfd::{
        command::{
            check_number,
            number,
            size,
            Argument,
            Direction,
            Shape, //
        },
        device::apertures,
        file::MmapTarget,
        interrupt::memory_exception,
        ioctl::{
            entry,
            memory::flags_of, //
        },
        process::Handle,
        uapi, //
    },
};

/// `_IOC(direction, 'K', number, size)`; bits 31:30 are 1 for write, 2 for read.
fn word(direction: Direction, number: u32, size: u32) -> u32 {
    let bits = match direction {
        Direction::None => 0,
        Direction::In => 1,
        Direction::Out => 2,
        Direction::InOut => 3,
    };
    bits << 30 | size << 16 | uapi::IOC_TYPE << 8 | number
}

#[kunit_tests(rkfd_kfd_command)]
mod command {
    use super::*;

    /// Words from a C program that includes `linux/kfd_ioctl.h` of the kernel 7.3.
    const WORDS: [u32; 40] = [
        0x8008_4b01,
        0xc060_4b02,
        0xc008_4b03,
        0x4020_4b04,
        0xc028_4b05,
        0x8190_4b06,
        0x4018_4b07,
        0xc020_4b08,
        0x4008_4b09,
        0x4008_4b0a,
        0x4008_4b0b,
        0xc018_4b0c,
        0x4008_4b0d,
        0x4008_4b0e,
        0x4010_4b0f,
        0x4010_4b10,
        0xc010_4b11,
        0xc028_4b12,
        0x4018_4b13,
        0xc010_4b14,
        0x4008_4b15,
        0xc028_4b16,
        0x4008_4b17,
        0xc018_4b18,
        0xc018_4b19,
        0x4010_4b1a,
        0xc018_4b1b,
        0xc020_4b1c,
        0xc018_4b1d,
        0xc010_4b1e,
        0xc008_4b1f,
        0xc018_4b20,
        0xc004_4b21,
        0xc038_4b22,
        0xc010_4b23,
        0xc010_4b24,
        0xc010_4b25,
        0xc020_4b26,
        0x0000_4b27,
        0xc010_4b28,
    ];

    #[test]
    fn the_table_has_every_command_with_its_size_and_direction() -> Result {
        for (want, index) in WORDS.into_iter().zip(1..) {
            let shape = entry(index).ok_or(ENOTTY)?.shape;
            let have = word(shape.direction, index, u32::try_from(shape.size)?);
            assert_eq!(have, want);
        }
        assert!(entry(0).is_none() && entry(0x29).is_none() && entry(0x80).is_none());
        Ok(())
    }

    #[test]
    fn arguments_are_copied_the_way_that_they_travel() {
        for (direction, copies) in [
            (Direction::In, (true, false)),
            (Direction::Out, (false, true)),
            (Direction::InOut, (true, true)),
        ] {
            assert_eq!((direction.copies_in(), direction.copies_out()), copies);
        }
    }

    #[test]
    fn numbers_outside_the_table_are_no_commands() {
        for bad in [0, 0x29, 0x80, 0x85, 0xff] {
            assert_eq!(check_number(bad), Err(ENOTTY));
        }
        assert_eq!(check_number(0x01), Ok(()));
        assert_eq!(check_number(0x28), Ok(()));
    }

    #[test]
    fn only_number_and_size_of_the_word_count() {
        assert_eq!((number(0xc058_4b02), size(0xc058_4b02)), (2, 88));
        assert_eq!((number(0x0060_ff02), size(0x0060_ff02)), (2, 96));
        assert_eq!(size(0xffff_ffff), 0x3fff);
    }
}

fn shape(size: usize) -> Shape {
    Shape {
        name: "TEST",
        size,
        direction: Direction::InOut,
    }
}

#[kunit_tests(rkfd_kfd_argument)]
mod argument {
    use super::*;

    #[test]
    fn a_short_argument_is_completed_with_zeros() -> Result {
        let mut argument = Argument::new(&shape(96), word(Direction::InOut, 2, 88))?;
        assert_eq!(argument.user_size(), 88);
        argument.user_mut().fill(0xff);
        let queue: uapi::CreateQueue = argument.read()?;
        assert_eq!(
            (queue.ctl_stack_size, queue.ring_base),
            (u32::MAX, u64::MAX)
        );
        assert_eq!((queue.sdma_engine_id, queue.metadata_ring_size), (0, 0));
        Ok(())
    }

    #[test]
    fn exactly_what_came_goes_back() -> Result {
        let mut argument = Argument::new(&shape(8), word(Direction::InOut, 1, 4))?;
        argument.write(&uapi::GetVersion {
            major: 0x0403_0201,
            minor: 9,
        })?;
        assert_eq!(argument.user(), [1, 2, 3, 4]);
        Ok(())
    }

    #[test]
    fn the_tail_of_a_long_argument_is_carried_along() -> Result {
        let mut argument = Argument::new(&shape(8), word(Direction::InOut, 1, 12))?;
        argument.user_mut().fill(0xaa);
        argument.write(&uapi::GetVersion {
            major: 1,
            minor: 23,
        })?;
        assert_eq!(
            argument.user(),
            [1, 0, 0, 0, 23, 0, 0, 0, 0xaa, 0xaa, 0xaa, 0xaa]
        );
        Ok(())
    }

    #[test]
    fn an_empty_argument_works() -> Result {
        let mut argument = Argument::new(&shape(8), word(Direction::InOut, 1, 0))?;
        argument.write(&uapi::GetVersion {
            major: 1,
            minor: 23,
        })?;
        assert!(argument.user().is_empty());
        assert_eq!(argument.read::<uapi::GetVersion>()?.minor, 23);
        Ok(())
    }

    #[test]
    fn a_type_larger_than_both_sides_is_refused() -> Result {
        let argument = Argument::new(&shape(4), word(Direction::InOut, 1, 4))?;
        assert_eq!(argument.read::<uapi::GetVersion>().err(), Some(EINVAL));
        Ok(())
    }
}

#[kunit_tests(rkfd_kfd_names)]
mod names {
    use super::*;

    #[test]
    fn handles_carry_the_gpu_above() {
        let handle = Handle {
            gpu_id: 0x1234,
            index: 1,
        };
        assert_eq!(handle.encode(), 0x1234_0000_0001);
        assert_eq!(Handle::decode(0x1234_0000_0001), handle);
        let odd = Handle::decode(u64::MAX);
        assert_eq!((odd.gpu_id, odd.index), (u32::MAX, u32::MAX));
    }

    #[test]
    fn mmap_offsets_name_kind_and_gpu() {
        let doorbell = MmapTarget::decode(3 << 62 | 0x1234 << 46 | 0x1ff8);
        assert_eq!(
            (doorbell.kind, doorbell.gpu_id),
            (uapi::MMAP_TYPE_DOORBELL, 0x1234)
        );
        let mmio = MmapTarget::decode(0xffff << 46);
        assert_eq!((mmio.kind, mmio.gpu_id), (uapi::MMAP_TYPE_MMIO, 0xffff));
        assert_eq!(MmapTarget::decode(2 << 62).kind, uapi::MMAP_TYPE_EVENTS);
        assert_eq!(MmapTarget::decode((1 << 46) - 1).gpu_id, 0);
    }

    #[test]
    fn mappings_stay_in_the_window_of_their_gpu() {
        let window = 3 << 62 | 0x1234 << 46;
        let end = window | ((1 << 46) - 1);
        assert!(MmapTarget::has_room(window, 8192));
        assert!(MmapTarget::has_room(end - 8191, 8192));
        assert!(!MmapTarget::has_room(end - 4095, 8192));
        assert!(MmapTarget::has_room(end - 4095, 4096));
        assert!(!MmapTarget::has_room(u64::MAX - 4095, 8192));
    }

    #[test]
    fn apertures_are_those_of_gfx9() {
        let have = apertures(7);
        assert_eq!(
            (have.lds_base, have.lds_limit),
            (0x1_0000_0000_0000, 0x1_0000_ffff_ffff)
        );
        assert_eq!(
            (have.scratch_base, have.scratch_limit),
            (0x2_0000_0000_0000, 0x2_0000_ffff_ffff)
        );
        assert_eq!(
            (have.gpuvm_base, have.gpuvm_limit),
            (0x1_0000, 0x7fff_ffff_ffff)
        );
        assert_eq!((have.gpu_id, have.pad), (7, 0));
    }

    #[test]
    fn allocation_flags_of_the_thunk() {
        let ring = flags_of(0xd600_0004);
        assert!(ring.writable && ring.executable && ring.coherent && ring.uncached);
        assert!(!ring.public && !ring.contiguous);
        let scratch = flags_of(0x9000_0001);
        assert!(scratch.writable && !scratch.executable && !scratch.coherent);
        assert!(flags_of(0xf000_0001).public);
        assert!(flags_of(0x0080_0001).contiguous);
        assert!(flags_of(0x0100_0001).coherent);
    }

    fn fault(protection: bool, write: bool, execute: bool) -> Fault {
        Fault {
            hub: Hub::Gfx,
            address: 0x7e00_0000_1008,
            execute,
            write,
            read: !write,
            retry: false,
            protection,
            cam_index: 0,
        }
    }

    #[test]
    fn faults_name_page_and_cause() {
        let absent = memory_exception(&fault(true, true, false), 9);
        assert_eq!((absent.va, absent.gpu_id), (0x7e00_0000_1000, 9));
        assert_eq!(
            (absent.not_present, absent.read_only, absent.no_execute),
            (1, 0, 0)
        );
        let read_only = memory_exception(&fault(false, true, false), 9);
        assert_eq!(
            (
                read_only.not_present,
                read_only.read_only,
                read_only.no_execute
            ),
            (0, 1, 0)
        );
        let no_execute = memory_exception(&fault(false, false, true), 9);
        assert_eq!((no_execute.read_only, no_execute.no_execute), (0, 1));
        assert_eq!((absent.imprecise, absent.error_type), (0, 0));
    }

    #[test]
    fn failures_have_one_bit_each() {
        let packet = |code: u32| {
            let (doorbell, code) = bad_packet(code << 10 | 0x123);
            (doorbell, Reasons::of_packet(code).map(Reasons::bits))
        };
        assert_eq!(packet(16), (0x123, Some(1 << 15)));
        assert_eq!(packet(23), (0x123, Some(1 << 22)));
        // A plain bad opcode, and codes of something else.
        for code in [0, 1, 15, 24, 30, 64, 0xffff] {
            assert_eq!(packet(code).1, None);
        }
        let trap = |data: u32| Reasons::of_trap(data).map(|(id, reasons)| (id, reasons.bits()));
        // Wave trap and illegal instruction.
        assert_eq!(trap(0b1010 << 10 | 0x3ff), Some((0x3ff, 0b1010)));
        assert_eq!(trap(0x3ff), None);
        // A bit that names nothing.
        assert_eq!(trap(1 << 16 | 5), None);
    }

    #[test]
    fn wait_timeouts_are_never_shorter_than_asked() {
        use crate::event::wait::{
            remaining_ms,
            timeout_to_jiffies, //
        };
        assert_eq!(timeout_to_jiffies(0), 0);
        assert!(timeout_to_jiffies(1) >= 2);
        assert!(timeout_to_jiffies(u32::MAX) > timeout_to_jiffies(u32::MAX - 1));
        assert_eq!(
            timeout_to_jiffies(u32::MAX - 1),
            timeout_to_jiffies(0x7fff_ffff)
        );
        // What is left restarts the wait; the two special values stay as they are.
        let all = timeout_to_jiffies(1000);
        assert_eq!(remaining_ms(1000, all), Some(1000));
        assert_eq!(remaining_ms(1000, 0), Some(0));
        assert_eq!(remaining_ms(u32::MAX, all), None);
        assert_eq!(remaining_ms(0, 0), None);
    }

    #[test]
    fn wait_that_times_out_early_sleeps_on() {
        use crate::event::wait::TimeLeft;
        use kernel::{
            sync::CondVarTimeoutResult,
            time::Delta, //
        };
        const ASKED_MS: u32 = 100;
        let mut left = TimeLeft::new(ASKED_MS);
        let (mut now, mut sleeps) = (0, 0);
        while left.jiffies() != 0 {
            // However long the sleep was to be, late ticks end it now.
            now += 7;
            sleeps += 1;
            assert!(sleeps < 100);
            left.slept(&CondVarTimeoutResult::Timeout, || Delta::from_millis(now));
        }
        // The first sleep that ends at or after the time asked for is the last one.
        assert_eq!((now, sleeps), (105, 15));

        // One nanosecond is missing: not over.
        let mut left = TimeLeft::new(ASKED_MS);
        left.slept(&CondVarTimeoutResult::Timeout, || {
            Delta::from_nanos(99_999_999)
        });
        assert_eq!(left.jiffies(), TimeLeft::new(1).jiffies());
        left.slept(&CondVarTimeoutResult::Timeout, || Delta::from_millis(100));
        assert_eq!(left.jiffies(), 0);

        // Who is woken keeps what the sleep has left, and no clock is read.
        let mut left = TimeLeft::new(ASKED_MS);
        let mut read = false;
        for woken in [
            CondVarTimeoutResult::Woken { jiffies: 5 },
            CondVarTimeoutResult::Signal { jiffies: 3 },
        ] {
            let (CondVarTimeoutResult::Woken { jiffies }
            | CondVarTimeoutResult::Signal { jiffies }) = woken
            else {
                continue;
            };
            left.slept(&woken, || {
                read = true;
                Delta::ZERO
            });
            assert_eq!((left.jiffies(), read), (jiffies, false));
        }
    }
}
