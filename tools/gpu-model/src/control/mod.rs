// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The control socket: newline-delimited JSON, one request, one reply.

use std::path::Path;
use std::sync::Arc;

use crate::server::Shared;

/// Starts to listen.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(_path: &Path, _shared: Arc<Shared>) -> anyhow::Result<()> {
    Ok(())
}
