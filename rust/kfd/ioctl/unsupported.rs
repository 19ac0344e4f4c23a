// SPDX-License-Identifier: GPL-2.0

//! Calls that nothing stands behind, with the answers of upstream where the hardware or the kernel
//! lacks the feature.

use super::Call;
use kernel::prelude::*;

/// The debugger calls before DBG_TRAP.
///
/// # Errors
///
/// Always `EPERM`.
pub(super) fn retired<T>(_call: &Call<'_>, _args: &mut T) -> Result {
    Err(EPERM)
}
