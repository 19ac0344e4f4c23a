// SPDX-License-Identifier: GPL-2.0

//! Checks of queue requests.

use kernel::prelude::*;

use crate::{
    hw::{
        asic::{
            GFX906,
            GFX90A, //
        },
        cwsr, //
    },
    kfd::uapi::{
        CreateQueue,
        UpdateQueue, //
    },
    queue::request::{
        effective_percent,
        Kind,
        MappingReq,
        SdmaEngine, //
    },
};

/// The user's range in these tests.
const LIMIT: u64 = 0x7fff_ffff_f000;

fn access_ok(address: u64, len: u64) -> bool {
    address.checked_add(len).is_some_and(|end| end <= LIMIT)
}

/// Save areas of two cards: 104 of 112 units, and 60 of 64.
const MI210: cwsr::Sizes = GFX90A.shader.save_area(104, 1);
const MI50: cwsr::Sizes = GFX906.shader.save_area(60, 1);

fn good() -> CreateQueue {
    CreateQueue {
        ring_base: 0x10_0000,
        ring_size: 0x1000,
        write_pointer: 0x20_0008,
        read_pointer: 0x20_1010,
        eop_address: 0x30_0000,
        eop_size: 0x1000,
        ctx_save_address: 0x40_0000,
        ctx_save_size: MI210.cwsr,
        ctl_stack_size: MI210.ctl_stack,
        queue_percentage: 100,
        queue_priority: 7,
        ..CreateQueue::default()
    }
}

fn refusal(change: impl FnOnce(&mut CreateQueue)) -> Option<Error> {
    let mut request = good();
    change(&mut request);
    request.check(access_ok).err()
}

#[kunit_tests(rkfd_queue_request)]
mod request {
    use super::*;

    #[test]
    fn a_good_request_passes_unchanged() -> Result {
        let properties = good().check(access_ok)?;
        assert_eq!(properties.kind, Kind::Pm4);
        assert_eq!(
            (properties.ring_base, properties.ring_size),
            (0x10_0000, 0x1000)
        );
        assert_eq!((properties.percent, properties.priority), (100, 7));
        assert_eq!(properties.effective_percent(), 100);
        Ok(())
    }

    #[test]
    fn percentage_has_eight_bits_of_its_own() -> Result {
        assert_eq!(refusal(|r| r.queue_percentage = 101), Some(EINVAL));
        assert_eq!(refusal(|r| r.queue_percentage = 0xff), Some(EINVAL));
        let mut request = good();
        request.queue_percentage = 0x0365;
        assert_eq!(request.check(access_ok).err(), Some(EINVAL));
        request.queue_percentage = 0x0364;
        assert_eq!(request.check(access_ok)?.percent, 100);
        Ok(())
    }

    #[test]
    fn priority_ends_at_fifteen() {
        assert_eq!(refusal(|r| r.queue_priority = 15), None);
        assert_eq!(refusal(|r| r.queue_priority = 16), Some(EINVAL));
    }

    #[test]
    fn ring_sizes_are_powers_of_two_and_at_least_1024() -> Result {
        for (size, want) in [
            (0, 1024),
            (1, 1024),
            (512, 1024),
            (1024, 1024),
            (2048, 2048),
        ] {
            let mut request = good();
            request.ring_size = size;
            assert_eq!(request.check(access_ok)?.ring_size, want);
        }
        for size in [3, 1023, 1025, 0x3000, u32::MAX] {
            assert_eq!(refusal(|r| r.ring_size = size), Some(EINVAL));
        }
        Ok(())
    }

    #[test]
    fn pointers_outside_the_user_range_fault() {
        assert_eq!(refusal(|r| r.ring_base = LIMIT), Some(EFAULT));
        assert_eq!(refusal(|r| r.read_pointer = LIMIT), Some(EFAULT));
        assert_eq!(refusal(|r| r.write_pointer = LIMIT - 3), Some(EFAULT));
        assert_eq!(refusal(|r| r.write_pointer = LIMIT - 4), None);
        assert_eq!(refusal(|r| r.eop_address = u64::MAX), Some(EFAULT));
        assert_eq!(refusal(|r| r.ctx_save_address = 1 << 63), Some(EFAULT));
    }

    #[test]
    fn optional_pointers_may_be_zero() -> Result {
        let mut request = good();
        request.eop_address = 0;
        request.ctx_save_address = 0;
        request.ring_base = 0;
        let properties = request.check(|address, len| address != 0 && access_ok(address, len))?;
        assert_eq!(
            (properties.eop, properties.ctx, properties.ring_base),
            (0, 0, 0)
        );
        assert_eq!(properties.effective_percent(), 0);
        Ok(())
    }

    #[test]
    fn types_by_number() -> Result {
        let kinds = [
            (0, Kind::Pm4),
            (1, Kind::Sdma(SdmaEngine::General)),
            (2, Kind::Aql),
            (3, Kind::Sdma(SdmaEngine::Xgmi)),
            (4, Kind::Sdma(SdmaEngine::Number(1))),
        ];
        for (number, kind) in kinds {
            let mut request = good();
            request.queue_type = number;
            request.sdma_engine_id = 1;
            assert_eq!(request.check(access_ok)?.kind, kind);
        }
        assert_eq!(refusal(|r| r.queue_type = 5), Some(ENOTSUPP));
        assert_eq!(refusal(|r| r.queue_type = u32::MAX), Some(ENOTSUPP));
        Ok(())
    }

    #[test]
    fn the_first_defect_in_upstream_order_decides() {
        assert_eq!(
            refusal(|r| {
                r.queue_percentage = 101;
                r.ring_base = LIMIT;
                r.queue_type = 9;
            }),
            Some(EINVAL)
        );
        assert_eq!(
            refusal(|r| {
                r.ring_base = LIMIT;
                r.ring_size = 3;
            }),
            Some(EFAULT)
        );
        assert_eq!(
            refusal(|r| {
                r.ring_size = 3;
                r.read_pointer = LIMIT;
            }),
            Some(EINVAL)
        );
        assert_eq!(
            refusal(|r| {
                r.read_pointer = LIMIT;
                r.queue_type = 9;
            }),
            Some(EFAULT)
        );
    }

    #[test]
    fn metadata_belongs_to_aql_rings() -> Result {
        let mut request = good();
        request.metadata_ring_size = 0x800;
        assert_eq!(request.check(access_ok)?.metadata_size, 0);
        request.queue_type = 2;
        assert_eq!(request.check(access_ok)?.metadata_size, 0x800);
        request.metadata_ring_size = 0x900;
        assert_eq!(request.check(access_ok).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn an_update_follows_the_same_rules() -> Result {
        let update = |ring_base, ring_size, queue_percentage, queue_priority| {
            let update = UpdateQueue {
                ring_base,
                ring_size,
                queue_percentage,
                queue_priority,
                ..UpdateQueue::default()
            };
            update.check(access_ok)
        };
        assert_eq!(update(0, 0, 101, 0).err(), Some(EINVAL));
        assert_eq!(update(0, 0, 0, 16).err(), Some(EINVAL));
        assert_eq!(update(LIMIT, 0, 0, 0).err(), Some(EFAULT));
        assert_eq!(update(0, 3, 0, 0).err(), Some(EINVAL));
        let change = update(0x1000, 0, 50, 15)?;
        assert_eq!(change.ring, Some((0x1000, 1024)));
        assert_eq!((change.percent, change.priority), (Some(50), Some(15)));
        // Without a ring the queue stops, whatever share it is given.
        let change = update(0, 0, 50, 15)?;
        assert_eq!((change.ring, change.percent), (None, Some(0)));
        assert_eq!(effective_percent(0, 100), 0);
        assert_eq!(effective_percent(0x1000, 50), 50);
        Ok(())
    }
}

#[kunit_tests(rkfd_queue_mapping_reqs)]
mod mapping_reqs {
    use super::*;

    #[test]
    fn pointers_need_exactly_their_page() -> Result {
        let reqs = good().check(access_ok)?.mapping_reqs(&MI210, 1)?;
        assert_eq!(
            reqs.wptr,
            MappingReq {
                va: 0x20_0000,
                size: 0x1000
            }
        );
        assert_eq!(
            reqs.rptr,
            MappingReq {
                va: 0x20_1000,
                size: 0x1000
            }
        );
        assert_eq!(
            reqs.ring,
            MappingReq {
                va: 0x10_0000,
                size: 0x1000
            }
        );
        assert_eq!(
            reqs.eop,
            Some(MappingReq {
                va: 0x30_0000,
                size: 0x1000
            })
        );
        Ok(())
    }

    #[test]
    fn the_save_area_has_the_size_that_the_thunk_computes() -> Result {
        let reqs = good().check(access_ok)?.mapping_reqs(&MI210, 1)?;
        assert_eq!(
            reqs.ctx,
            Some(MappingReq {
                va: 0x40_0000,
                size: 0x3cb_1000
            })
        );

        let mut request = good();
        request.ctx_save_size = 0x13f_1000;
        request.ctl_stack_size = 0x5000;
        let reqs = request.check(access_ok)?.mapping_reqs(&MI50, 1)?;
        assert_eq!(
            reqs.ctx,
            Some(MappingReq {
                va: 0x40_0000,
                size: 0x140_1000
            })
        );
        Ok(())
    }

    #[test]
    fn wrong_sizes_are_refused() -> Result {
        let refused = |change: fn(&mut CreateQueue)| -> Result<Option<Error>> {
            let mut request = good();
            change(&mut request);
            Ok(request.check(access_ok)?.mapping_reqs(&MI210, 1).err())
        };
        assert_eq!(refused(|r| r.eop_size = 0xfff)?, Some(EINVAL));
        assert_eq!(refused(|r| r.eop_size = 0x1_0000_0000)?, Some(EINVAL));
        assert_eq!(refused(|r| r.ctl_stack_size += 0x1000)?, Some(EINVAL));
        assert_eq!(refused(|r| r.ctx_save_size -= 1)?, Some(EINVAL));
        assert_eq!(refused(|r| r.ctx_save_size += 0x1000)?, None);
        assert_eq!(refused(|r| r.eop_address = 0)?, None);
        // What one card takes is too little for one with more units.
        let full = GFX90A.cwsr;
        let request = good().check(access_ok)?;
        assert_eq!(request.mapping_reqs(&full, 1).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn copy_queues_need_no_buffers_of_waves() -> Result {
        let mut request = good();
        request.queue_type = 1;
        request.ctl_stack_size = 0;
        request.ctx_save_size = 0;
        let reqs = request.check(access_ok)?.mapping_reqs(&MI210, 1)?;
        assert_eq!((reqs.eop, reqs.ctx), (None, None));
        Ok(())
    }

    #[test]
    fn metadata_lengthens_the_ring() -> Result {
        let mut request = good();
        request.queue_type = 2;
        request.metadata_ring_size = 0x400;
        let reqs = request.check(access_ok)?.mapping_reqs(&MI210, 1)?;
        assert_eq!(
            reqs.ring,
            MappingReq {
                va: 0x10_0000,
                size: 0x2000
            }
        );
        Ok(())
    }
}
