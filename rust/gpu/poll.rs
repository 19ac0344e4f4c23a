// SPDX-License-Identifier: GPL-2.0

//! Polling with a deadline.
//!
//! A thread that polls may lose its CPU between a look at the device and the look at the clock, or for the whole
//! of a pause: on a loaded machine, or where a hypervisor has taken the virtual CPU, for longer than the time-out.
//! So a look decides that time is up only if it was made after the deadline. `read_poll_timeout` of the `kernel`
//! crate compares the clock after the look, and takes the time that the thread slept for the device's.

use kernel::{
    prelude::*,
    processor::cpu_relax,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// Calls `step` until it returns a value, sleeping for `pause` between the calls.
///
/// # Errors
///
/// `ETIMEDOUT` if a call that began more than `timeout_us` microseconds after the first had no value; whatever
/// `step` returns.
pub(crate) fn poll<T>(
    timeout_us: u32,
    pause: Delta,
    step: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start: Instant<Monotonic> = Instant::now();
    until(
        i64::from(timeout_us),
        || start.elapsed().as_micros_ceil(),
        || {
            fsleep(pause);
            cpu_relax();
        },
        step,
    )
}

/// [`poll`] by any clock: `passed` tells how many microseconds have passed.
pub(crate) fn until<T>(
    timeout_us: i64,
    passed: impl Fn() -> i64,
    mut pause: impl FnMut(),
    mut step: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    loop {
        // Before the look: see the module's documentation.
        let is_over = passed() > timeout_us;
        if let Some(value) = step()? {
            return Ok(value);
        }
        if is_over {
            return Err(ETIMEDOUT);
        }
        pause();
    }
}
