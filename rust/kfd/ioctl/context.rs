// SPDX-License-Identifier: GPL-2.0

//! CREATE_PROCESS.

use super::call::Call;
use crate::kfd::{
    command::Argument,
    process::Context, //
};
use kernel::prelude::*;

/// Gives the file a context: from now on its calls and mappings are about a process object of its own, which has nothing
/// yet and ends with the file.
///
/// # Errors
///
/// - `EINVAL`: the file has one.
/// - Those of [`Context::new`].
pub(super) fn create_process(call: &Call<'_>, _argument: &mut Argument) -> Result {
    if call.context.as_ref().is_some() {
        return Err(EINVAL);
    }
    let context = Context::new(&call.system.devices()?)?;
    // Another thread may have been faster. Its context stays, and this one ends.
    if !call.context.populate(context) {
        return Err(EINVAL);
    }
    Ok(())
}
