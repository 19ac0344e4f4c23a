// SPDX-License-Identifier: GPL-2.0

//! Device classes.

use kernel::prelude::*;

use crate::kapi::class::Class;

#[kunit_tests(rkfd_class)]
mod suite {
    use super::*;

    #[test]
    fn a_taken_name_is_refused_without_noise() -> Result {
        // Every kernel has it; had the driver core been asked, the log would show a stack dump.
        assert_eq!(Class::new(c"mem").err(), Some(EBUSY));
        let mine = Class::new(c"rkfd_test")?;
        assert_eq!(Class::new(c"rkfd_test").err(), Some(EBUSY));
        drop(mine);
        drop(Class::new(c"rkfd_test")?);
        Ok(())
    }
}
