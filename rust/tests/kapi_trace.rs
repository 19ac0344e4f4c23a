// SPDX-License-Identifier: GPL-2.0

//! What records of tracepoints say of results.

use kernel::prelude::*;

use crate::kapi::trace;

#[kunit_tests(rkfd_kapi_trace)]
mod suite {
    use super::*;

    #[test]
    fn a_result_is_recorded_as_its_errno() {
        assert_eq!(trace::errno(&Ok::<u64, Error>(12)), 0);
        assert_eq!(trace::errno(&Err::<(), Error>(EIO)), -5);
        assert_eq!(trace::errno(&Err::<(), Error>(ENOMEM)), -12);
        assert_eq!(trace::errno(&Err::<(), Error>(ETIMEDOUT)), -110);
    }
}
