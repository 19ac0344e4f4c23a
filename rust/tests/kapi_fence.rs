// SPDX-License-Identifier: GPL-2.0

//! Fences.

use kernel::prelude::*;

use crate::kapi::fence::{
    FenceContext,
    FenceMemory,
    PendingFence,
    Signalling, //
};

fn pending(context: &FenceContext, number: u64) -> Result<PendingFence> {
    Ok(FenceMemory::new()?.init(context, number))
}

#[kunit_tests(rkfd_kapi_fence)]
mod suite {
    use super::*;

    #[test]
    fn a_fence_says_how_the_work_went() -> Result {
        let context = FenceContext::new();
        for (number, result) in [(1, Ok(())), (2, Err(EIO)), (3, Err(ETIMEDOUT))] {
            let pending = pending(&context, number)?;
            let fence = pending.fence().ok_or(EINVAL)?;
            let other = fence.clone();
            assert_eq!(fence.result(), None);
            assert_eq!(fence.wait(0), None);
            let signalling = Signalling::begin();
            pending.signal(result);
            drop(signalling);
            assert_eq!(fence.result(), Some(result));
            drop(fence);
            assert_eq!(other.wait(1000), Some(result));
        }
        Ok(())
    }

    #[test]
    fn a_fence_that_nobody_will_signal_is_cancelled() -> Result {
        let context = FenceContext::new();
        let pending = pending(&context, 1)?;
        let fence = pending.fence().ok_or(EINVAL)?;
        drop(pending);
        assert_eq!(fence.result(), Some(Err(ECANCELED)));
        Ok(())
    }
}
