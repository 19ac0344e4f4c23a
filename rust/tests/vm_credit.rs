// SPDX-License-Identifier: GPL-2.0

//! What is charged ahead for rooms of pages, on every GPU that was probed; skipped where there is none.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    gpu_live::on_each,
    vm_live_bench::Bench, //
};
use crate::{
    gpu::Gpu,
    kapi::{
        kunit::UserMemory,
        task::current_mm, //
    },
    vm::room::{
        end_credit,
        top_up,
        top_up_below_root,
        Credit,
        Room, //
    },
};

const HUGE: u64 = 0x20_0000;

/// Makes a room of free VRAM for the test.
fn make(gpu: &Arc<Gpu>, credit: &Arc<Credit>) -> Result<Room> {
    let (_, key) = current_mm().ok_or(EINVAL)?;
    Ok(Room::of_free(gpu, credit, key)?.0)
}

#[kunit_tests(rkfd_vm_credit_live)]
mod suite {
    use super::*;

    #[test]
    fn rooms_take_from_the_credit_and_give_back_to_it() -> Result {
        on_each(|gpu| {
            let _program = UserMemory::new(0x1000)?;
            let bench = Bench::new(gpu)?;
            gpu.device_pages().settle();
            let before = gpu.vram_budget().used();
            let credit = Credit::new()?;
            assert_eq!(make(gpu, &credit).err(), Some(ENOMEM));
            top_up_below_root(&credit, gpu, &bench.device, 2)?;
            assert_eq!(credit.amounts(), (2, 0));
            // It is charged to the group alone.
            assert_eq!(gpu.vram_budget().used(), before);
            let one = make(gpu, &credit)?;
            let two = make(gpu, &credit)?;
            assert_eq!(gpu.vram_budget().used(), before + 2 * HUGE);
            assert_eq!(credit.amounts(), (0, 2));
            assert_eq!(make(gpu, &credit).err(), Some(ENOMEM));
            // What rooms have counts.
            top_up_below_root(&credit, gpu, &bench.device, 3)?;
            assert_eq!(credit.amounts(), (1, 2));
            drop(one);
            assert_eq!(credit.amounts(), (2, 1));
            credit.limit_to(2);
            assert_eq!(credit.amounts(), (1, 1));
            credit.limit_to(1);
            assert_eq!(credit.amounts(), (0, 1));
            drop(two);
            assert_eq!(credit.amounts(), (1, 0));
            end_credit(&credit, gpu);
            assert_eq!(credit.amounts(), (0, 0));
            assert_eq!(make(gpu, &credit).err(), Some(ENOMEM));
            assert_eq!(gpu.vram_budget().used(), before);
            Ok(())
        })
    }

    #[test]
    fn a_room_that_outlives_the_credit_gives_back_to_the_group() -> Result {
        on_each(|gpu| {
            let _program = UserMemory::new(0x1000)?;
            let bench = Bench::new(gpu)?;
            let credit = Credit::new()?;
            top_up_below_root(&credit, gpu, &bench.device, 1)?;
            let room = make(gpu, &credit)?;
            end_credit(&credit, gpu);
            drop(room);
            assert_eq!(credit.amounts(), (0, 0));
            Ok(())
        })
    }

    #[test]
    fn nothing_is_charged_ahead_where_there_is_no_limit() -> Result {
        on_each(|gpu| {
            let _program = UserMemory::new(0x1000)?;
            let bench = Bench::new(gpu)?;
            let credit = Credit::new()?;
            // A thread of the kernel is of the root group.
            top_up(&credit, gpu, &bench.device, u64::MAX)?;
            assert_eq!(credit.amounts(), (0, 0));
            let rooms = [make(gpu, &credit)?, make(gpu, &credit)?];
            assert_eq!(credit.amounts(), (0, 0));
            drop(rooms);
            // No more than there is.
            top_up_below_root(&credit, gpu, &bench.device, u64::MAX)?;
            let most = gpu.vram_budget().limit() / HUGE;
            assert_eq!(credit.amounts(), (usize::try_from(most)?, 0));
            end_credit(&credit, gpu);
            Ok(())
        })
    }
}
