// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Named virtio-serial ports.

use anyhow::Context;
use std::fs;
use std::fs::File;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// How long the ports may take to appear after boot. QEMU announces them at once; only a missing driver
/// takes longer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two looks.
const INTERVAL: Duration = Duration::from_millis(1);

/// An open port.
pub(super) struct Port(File);

impl Port {
    /// Opens the port of that name, waiting until the driver has made it.
    ///
    /// # Errors
    /// Where there is none after [`DEADLINE`], or it is open already.
    pub(super) fn open(name: &str) -> anyhow::Result<Self> {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(path) = find(name) {
                let file = File::options()
                    .read(true)
                    .write(true)
                    .open(&path)
                    .with_context(|| format!("opening {}", path.display()))?;
                return Ok(Self(file));
            }
            if Instant::now() >= end {
                anyhow::bail!("no virtio port is called {name}");
            }
            thread::sleep(INTERVAL);
        }
    }

    /// The device file.
    pub(super) fn into_file(self) -> File {
        self.0
    }
}

fn find(name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir("/sys/class/virtio-ports").ok()?.flatten() {
        let found = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if found.trim_end() == name {
            let node = PathBuf::from("/dev").join(entry.file_name());
            // The class device appears a moment before its node.
            return node.exists().then_some(node);
        }
    }
    None
}
