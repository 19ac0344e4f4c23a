// SPDX-License-Identifier: GPL-2.0

//! The memory control group that a thread charges to, and for how long.

use kernel::prelude::*;

use crate::kapi::{
    kunit::skip,
    memcg::MemoryGroup, //
};

#[kunit_tests(rkfd_kapi_memcg)]
mod suite {
    use super::*;

    #[test]
    fn a_group_is_charged_as_long_as_its_scope_lasts() {
        let group = MemoryGroup::of_current();
        if !group.is_some() {
            skip(c"the kernel has no memory control groups");
            return;
        }
        assert!(!group.is_active());
        let within = group.charged(|| {
            let within = MemoryGroup::of_current();
            // Scopes nest, and the outer one is active again after the inner one.
            let inner = within.charged(|| within.is_active());
            (group.is_active(), inner, within.is(&group))
        });
        assert_eq!(within, (true, true, true));
        assert!(!group.is_active());
    }

    #[test]
    fn what_runs_in_a_scope_hands_its_result_out() {
        let group = MemoryGroup::of_current();
        assert_eq!(group.charged(|| Err::<u32, Error>(ENOSPC)), Err(ENOSPC));
        assert_eq!(group.charged(|| 0x5a_u32), 0x5a);
        assert!(!group.is_some() || !group.is_active());
    }
}
