// SPDX-License-Identifier: GPL-2.0

//! Polling with a deadline, by a clock of the test.

use core::cell::Cell;

use kernel::prelude::*;

use crate::gpu::poll::until;

/// Microseconds of the time-outs below.
const TIMEOUT: i64 = 100;

/// Polls a device that answers from `answers` on; the thread loses its CPU for `lost` microseconds after each look
/// and sleeps for `pause`. Returns the outcome, the time that passed and the number of looks.
fn poll(answers: i64, lost: i64, pause: i64) -> (Result<i64>, i64, u32) {
    let (clock, looks) = (Cell::new(0), Cell::new(0));
    let outcome = until(
        TIMEOUT,
        || clock.get(),
        || clock.set(clock.get() + pause),
        || {
            let now = clock.get();
            looks.set(looks.get() + 1);
            clock.set(now + lost);
            Ok((now >= answers).then_some(now))
        },
    );
    (outcome, clock.get(), looks.get())
}

#[kunit_tests(rkfd_gpu_poll)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_answers_in_time_is_found_after_any_loss_of_the_cpu() -> Result {
        // One that has answered is asked once.
        assert_eq!(poll(0, 0, 10), (Ok(0), 0, 1));
        // 100 us are over before the clock is looked at for the first time.
        let (outcome, _, looks) = poll(TIMEOUT, 100 * TIMEOUT, 10);
        assert_eq!((outcome, looks), (Ok(100 * TIMEOUT + 10), 2));
        // The pause takes longer than all of the time-out.
        let (outcome, _, looks) = poll(TIMEOUT, 0, 100 * TIMEOUT);
        assert_eq!((outcome, looks), (Ok(100 * TIMEOUT), 2));
        // At every place where the thread may lose it.
        for lost in 0..3 * TIMEOUT {
            for pause in 1..TIMEOUT / 2 {
                assert!(poll(TIMEOUT, lost, pause).0.is_ok());
            }
        }
        Ok(())
    }

    #[test]
    fn a_device_that_does_not_answer_is_given_up_soon_after_the_time_is_over() -> Result {
        for pause in 1..2 * TIMEOUT {
            let (outcome, passed, looks) = poll(i64::MAX, 0, pause);
            assert_eq!(outcome, Err(ETIMEDOUT));
            // One look behind the deadline, no more.
            assert!(passed > TIMEOUT && passed <= TIMEOUT + pause);
            assert_eq!(i64::from(looks), passed / pause + 1);
        }
        Ok(())
    }

    #[test]
    fn an_error_ends_the_wait_at_once() -> Result {
        let pauses = Cell::new(0);
        let outcome: Result<()> =
            until(TIMEOUT, || 0, || pauses.set(pauses.get() + 1), || Err(EIO));
        assert_eq!((outcome, pauses.get()), (Err(EIO), 0));
        Ok(())
    }
}
