// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The control socket: newline-delimited JSON, one request, one reply.  Several clients may connect.

mod views;
mod waves;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::device::Gpu;
use crate::inject::{Injection, Kind};
use crate::server::Shared;

/// Longest request line.
const MAX_LINE: u64 = 64 * 1024;
/// Trace records returned unless the request names another number.
const DEFAULT_TRACE: usize = 1000;

/// The same of instructions of a profile.
const DEFAULT_TOP: usize = 10;
/// The same of waves: more than an MI210 holds.
const DEFAULT_WAVES: usize = 4096;

/// A request.
#[derive(Debug, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case")]
pub enum Request {
    /// Counters.
    Stats,
    /// Trace records, oldest first.
    Trace {
        /// Only records of the last so many milliseconds.
        last_ms: Option<u64>,
        /// At most so many, the newest.
        max: Option<usize>,
        /// The queues that are connected at this moment, too.
        #[serde(default)]
        queues: bool,
    },
    /// Table of hardware queue slots.
    Queues,
    /// Where all waves are.
    Waves {
        /// Only those of kernels whose name has this in it.
        kernel: Option<String>,
        /// At most so many; the others are counted.
        max: Option<usize>,
    },
    /// Counts what kernels execute, from now on.
    ProfileStart {
        /// Only kernels whose name has this in it.
        kernel: Option<String>,
    },
    /// Counts no more.
    ProfileStop,
    /// What was counted.
    Profile {
        /// So many instructions of each kernel, those executed most.
        top: Option<usize>,
    },
    /// Checks the accesses of kernels to LDS, or no longer.
    Check {
        /// From now on, or no longer.
        on: bool,
    },
    /// What kernels have done wrong lately.
    ProgramErrors {
        /// Only those from this number on.
        #[serde(default)]
        from: u64,
    },
    /// Doorbells that no connected queue listened to.
    Doorbells,
    /// Set-up of an address space.
    Vm {
        /// Which.
        vmid: u8,
        /// Also translate this address.
        va: Option<u64>,
    },
    /// Protocol errors.
    Errors,
    /// Forget protocol errors.
    ClearErrors,
    /// Switch a fault on.
    Fault {
        /// Kind, by name.
        kind: String,
        /// Doorbell dword index of the queue concerned.
        doorbell: Option<u32>,
        /// How often.
        count: Option<u64>,
        /// How long.
        ms: Option<u64>,
    },
    /// List the faults that are on.
    Faults,
    /// Switch all faults off.
    ClearFaults,
}

/// Where requests find the device.  Between two uses it goes on working: a use copies what a reply needs, a large one in
/// pieces, and the reply is put together without the device.
pub trait Device {
    /// Uses the device.
    fn with<T>(&mut self, use_it: impl FnOnce(&mut Gpu) -> T) -> T;
}

impl Device for Gpu {
    fn with<T>(&mut self, use_it: impl FnOnce(&mut Gpu) -> T) -> T {
        use_it(self)
    }
}

impl Device for &Shared {
    fn with<T>(&mut self, use_it: impl FnOnce(&mut Gpu) -> T) -> T {
        use_it(&mut self.lock())
    }
}

/// Answers a request line. A member `id` of the request comes back, so that a client of a port that another one used
/// before, and left without reading, tells its answer from the other's.
pub fn answer(device: &mut impl Device, line: &str) -> Value {
    let refused = |e: serde_json::Error| json!({"ok": false, "error": format!("bad request: {e}")});
    let request: Value = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(e) => return refused(e),
    };
    let id = request.get("id").cloned();
    let mut reply = match serde_json::from_value(request) {
        Ok(request) => {
            execute(device, request).unwrap_or_else(|e| json!({"ok": false, "error": e}))
        }
        Err(e) => refused(e),
    };
    if let (Some(id), Some(reply)) = (id, reply.as_object_mut()) {
        reply.insert("id".into(), id);
    }
    reply
}

fn execute(device: &mut impl Device, request: Request) -> Result<Value, String> {
    Ok(match request {
        Request::Stats => views::stats(device),
        Request::Trace {
            last_ms,
            max,
            queues,
        } => views::trace(device, last_ms, max.unwrap_or(DEFAULT_TRACE), queues),
        Request::Queues => views::queues(device),
        Request::Waves { kernel, max } => {
            waves::waves(device, kernel.as_deref(), max.unwrap_or(DEFAULT_WAVES))
        }
        Request::ProfileStart { kernel } => {
            device.with(|gpu| gpu.waves.dispatcher.watch.start_profile(kernel));
            json!({"ok": true})
        }
        Request::ProfileStop => {
            device.with(|gpu| gpu.waves.dispatcher.watch.stop_profile());
            json!({"ok": true})
        }
        Request::Profile { top } => waves::profile(device, top.unwrap_or(DEFAULT_TOP)),
        Request::Check { on } => {
            device.with(|gpu| gpu.waves.dispatcher.watch.check(on));
            json!({"ok": true})
        }
        Request::ProgramErrors { from } => {
            let (total, errors) = device.with(|gpu| gpu.waves.errors.since(from));
            json!({"ok": true, "total": total, "errors": errors})
        }
        Request::Doorbells => views::doorbells(device),
        Request::Vm { vmid, va } => views::vm(device, vmid, va)?,
        Request::Errors => views::errors(device),
        Request::ClearErrors => {
            device.with(|gpu| gpu.soc.log.clear_errors());
            json!({"ok": true})
        }
        Request::Fault {
            kind,
            doorbell,
            count,
            ms,
        } => {
            let kind = Kind::by_name(&kind).ok_or_else(|| format!("unknown fault {kind}"))?;
            if count == Some(0) {
                return Err("count must not be 0".into());
            }
            if kind == Kind::SlowPreempt && ms.is_none() {
                return Err("slow-preempt needs ms".into());
            }
            let fault = Injection {
                kind,
                doorbell,
                count,
                ms,
            };
            if !device.with(|gpu| gpu.soc.inject.add(fault)) {
                return Err("too many faults are on".into());
            }
            json!({"ok": true})
        }
        Request::Faults => {
            let faults = device.with(|gpu| gpu.soc.inject.list().to_vec());
            json!({"ok": true, "faults": faults})
        }
        Request::ClearFaults => {
            device.with(|gpu| {
                gpu.soc.inject.clear();
                gpu.soc.kick();
            });
            json!({"ok": true})
        }
    })
}

fn client(shared: &Shared, stream: &UnixStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        let n = reader.by_ref().take(MAX_LINE).read_line(&mut line)?;
        if n == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        let reply = if n as u64 == MAX_LINE && !line.ends_with('\n') {
            // The rest of an overlong line is skipped, so that the next request is found.
            let mut rest = Vec::new();
            while reader
                .by_ref()
                .take(MAX_LINE)
                .read_until(b'\n', &mut rest)?
                != 0
                && rest.last() != Some(&b'\n')
            {
                rest.clear();
            }
            json!({"ok": false, "error": "request too long"})
        } else {
            let mut device = shared;
            let reply = answer(&mut device, line.trim());
            shared.wake();
            reply
        };
        let mut text = reply.to_string();
        text.push('\n');
        writer.write_all(text.as_bytes())?;
    }
}

/// Starts to listen; each client gets a thread.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(path: &Path, shared: Arc<Shared>) -> anyhow::Result<()> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // A client that cannot be served is dropped; others are not affected.
                let _ = std::thread::Builder::new()
                    .name("control-client".into())
                    .spawn(move || {
                        let _ = client(&shared, &stream);
                    });
            }
        })?;
    Ok(())
}
