// SPDX-License-Identifier: GPL-2.0

//! GET_VERSION.

use super::call::Call;
use crate::kfd::uapi::{
    GetVersion,
    VERSION, //
};
use kernel::prelude::*;

/// Tells which interface this is. Never fails.
pub(super) fn get_version(_call: &Call<'_>, args: &mut GetVersion) -> Result {
    (args.major, args.minor) = VERSION;
    Ok(())
}
