// SPDX-License-Identifier: GPL-2.0

//! Accesses that wait: which lane looks at which, and which are refused. The entries of the CAM that they name are of a GPU that was
//! probed, from before its last reset, so that none is released.

use kernel::prelude::*;

use super::gpu_live::on_each;
use crate::{
    gpu::{
        Gpu,
        VmFault, //
    },
    hw::ih::{
        Fault,
        Hub, //
    },
    mirror::{
        Accesses,
        Verdict,
        LANES, //
    },
};

const PAGE: u64 = 0x1000;
const HUGE: u64 = 0x20_0000;
const VA: u64 = 0x7000_0000_0000;
/// Accesses that find room.
const ROOM: u64 = 64;

fn access(hub: Hub, address: u64) -> VmFault {
    VmFault {
        pasid: 1,
        vmid: 8,
        timestamp: 0,
        fault: Fault {
            hub,
            address,
            execute: false,
            write: true,
            read: false,
            retry: true,
            protection: true,
            cam_index: 0,
        },
    }
}

fn open() -> Result<Accesses> {
    let mut accesses = Accesses::new();
    assert!(!accesses.is_open());
    drop(accesses.open(Accesses::room()?));
    assert!(accesses.is_open());
    Ok(accesses)
}

/// Notes an access with an entry of the CAM.
fn push(accesses: &mut Accesses, gpu: &Gpu, address: u64) -> Option<usize> {
    accesses.push(&access(Hub::Gfx, address), gpu.ih().old_token(63))
}

#[kunit_tests(rkfd_mirror_accesses_live)]
mod cases {
    use super::*;

    #[test]
    fn each_granule_is_looked_at_by_one_lane() -> Result {
        on_each(|gpu| {
            let mut accesses = open()?;
            assert_eq!(push(&mut accesses, gpu, VA), Some(0));
            assert_eq!(push(&mut accesses, gpu, VA + PAGE), None);
            for lane in 1..LANES {
                assert_eq!(
                    push(&mut accesses, gpu, VA + lane as u64 * HUGE),
                    Some(lane)
                );
            }
            // No lane is free for it.
            assert_eq!(push(&mut accesses, gpu, VA + 9 * HUGE), None);
            let address = |next: Result<_, _>| {
                next.ok()
                    .map(|waiting: crate::mirror::Waiting| waiting.fault.fault.address)
            };
            for lane in (0..LANES).rev() {
                let found = address(accesses.next(lane));
                // Any that no other lane has taken: the first of those is for each its own.
                assert_eq!(found, Some(VA + lane as u64 * HUGE));
            }
            assert_eq!(address(accesses.next(2)), Some(VA + 9 * HUGE));
            // The rest is of a granule that lane 0 looks at.
            assert!(accesses.next(1).is_err());
            assert_eq!(address(accesses.next(0)), Some(VA + PAGE));
            assert!(accesses.next(0).is_err());
            assert_eq!(push(&mut accesses, gpu, VA), Some(0));
            Ok(())
        })
    }

    #[test]
    fn what_finds_no_room_is_repeated_when_a_lane_ends() -> Result {
        on_each(|gpu| {
            let mut accesses = open()?;
            for page in 0..ROOM + 2 {
                push(&mut accesses, gpu, VA + page * PAGE);
            }
            for _ in 0..ROOM {
                assert!(accesses.next(0).is_ok());
            }
            let crowded = accesses.next(0).err();
            assert!(crowded.is_some_and(|tokens| !tokens.is_empty()));
            let nothing = accesses.next(0).err();
            assert!(nothing.is_some_and(|tokens| tokens.is_empty()));
            Ok(())
        })
    }

    #[test]
    fn only_the_second_report_is_refused() -> Result {
        on_each(|gpu| {
            let mut accesses = open()?;
            let mut judge = |hub, address, ends| -> Result<Verdict> {
                accesses.push(&access(hub, address), gpu.ih().old_token(63));
                let waiting = accesses.next(0).map_err(|_| EINVAL)?;
                if ends {
                    accesses.note_end();
                }
                Ok(accesses.judge(&waiting))
            };
            assert_eq!(judge(Hub::Gfx, VA, false), Ok(Verdict::Repeat));
            // Others, though at the same page.
            assert_eq!(judge(Hub::Mm, VA, false), Ok(Verdict::Repeat));
            assert_eq!(judge(Hub::Gfx, VA + PAGE, false), Ok(Verdict::Repeat));
            // A queue ends meanwhile: it may have been its access, and so may those before.
            assert_eq!(judge(Hub::Gfx, VA, true), Ok(Verdict::Repeat));
            assert_eq!(judge(Hub::Gfx, VA, false), Ok(Verdict::Repeat));
            assert_eq!(judge(Hub::Gfx, VA, false), Ok(Verdict::Refuse));
            // The queues are on their way out.
            assert_eq!(judge(Hub::Gfx, VA, false), Ok(Verdict::Leave));
            Ok(())
        })
    }

    #[test]
    fn memory_that_was_shown_meanwhile_keeps_an_access_from_being_refused() -> Result {
        on_each(|gpu| {
            let mut accesses = open()?;
            let judge = |accesses: &mut Accesses| -> Result<Verdict> {
                push(accesses, gpu, VA);
                let waiting = accesses.next(0).map_err(|_| EINVAL)?;
                Ok(accesses.judge(&waiting))
            };
            assert_eq!(judge(&mut accesses), Ok(Verdict::Repeat));
            // What lies around a page is shown with it.
            accesses.note_served(&access(Hub::Gfx, VA + PAGE));
            assert_eq!(judge(&mut accesses), Ok(Verdict::Repeat));
            accesses.note_shown(&(VA - PAGE..VA + PAGE));
            assert_eq!(judge(&mut accesses), Ok(Verdict::Repeat));
            // Elsewhere, up to the next page and the next granule.
            accesses.note_shown(&(VA + PAGE..VA + HUGE));
            accesses.note_shown(&(VA - HUGE..VA));
            accesses.note_served(&access(Hub::Gfx, VA + HUGE));
            assert_eq!(judge(&mut accesses), Ok(Verdict::Refuse));
            Ok(())
        })
    }

    #[test]
    fn a_page_that_was_served_is_not_held_against_anybody() -> Result {
        on_each(|gpu| {
            let mut accesses = open()?;
            for allowed in [false, true, false] {
                push(&mut accesses, gpu, VA);
                let waiting = accesses.next(0).map_err(|_| EINVAL)?;
                if allowed {
                    accesses.note_served(&waiting.fault);
                } else {
                    assert_eq!(accesses.judge(&waiting), Verdict::Repeat);
                }
            }
            assert_eq!(accesses.note_failure(), 0);
            assert_eq!(accesses.note_failure(), 1);
            Ok(())
        })
    }
}
