// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl model`: requests to the device model's control port, faults among them.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;
use serde_json::Value;

use crate::control::Control;

#[derive(clap::Args)]
pub struct Options {
    /// Model, counted from 0 by PCI address
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Control port or socket, instead of the model's own
    #[arg(long)]
    control: Option<PathBuf>,
    #[command(subcommand)]
    request: Request,
}

#[derive(clap::Subcommand)]
enum Request {
    /// Counters
    Stats,
    /// The table of hardware queues
    Queues,
    /// Protocol errors of the driver
    Errors,
    /// Forget the protocol errors
    ClearErrors,
    /// Switch a fault on
    Fault {
        /// hang-queue, ignore-preempt, ignore-queue-reset, ignore-reset, slow-preempt, hang-hws, drop-fences, drop-interrupts, drop-msi, deaf-smu, deaf-tlb, lose-vram, die
        kind: String,
        /// The queue, by its doorbell
        #[arg(long)]
        doorbell: Option<u64>,
        /// How often
        #[arg(long)]
        count: Option<u64>,
        /// How long, in milliseconds
        #[arg(long)]
        ms: Option<u64>,
    },
    /// Switch all faults off
    ClearFaults,
    /// Any request, as JSON
    Raw {
        /// Such as '{"cmd":"vm","vmid":3}'
        json: String,
    },
}

impl Request {
    fn to_json(&self) -> anyhow::Result<Value> {
        Ok(match self {
            Request::Stats => json!({ "cmd": "stats" }),
            Request::Queues => json!({ "cmd": "queues" }),
            Request::Errors => json!({ "cmd": "errors" }),
            Request::ClearErrors => json!({ "cmd": "clear-errors" }),
            Request::ClearFaults => json!({ "cmd": "clear-faults" }),
            Request::Raw { json } => {
                serde_json::from_str(json).context("the request is no JSON")?
            }
            Request::Fault {
                kind,
                doorbell,
                count,
                ms,
            } => {
                let mut request = json!({ "cmd": "fault", "kind": kind });
                for (key, number) in [("doorbell", doorbell), ("count", count), ("ms", ms)] {
                    if let Some(n) = number {
                        request[key] = (*n).into();
                    }
                }
                request
            }
        })
    }
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut control = match &options.control {
        Some(path) => Control::open(path)?,
        None => Control::of_index(options.gpu)?,
    };
    let answer = control.request(&options.request.to_json()?)?;
    anstream::println!("{}", serde_json::to_string_pretty(&answer)?);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_hold_what_was_given_and_nothing_else() {
        let fault = Request::Fault {
            kind: "hang-queue".into(),
            doorbell: Some(2048),
            count: None,
            ms: Some(5),
        };
        let expected = json!({ "cmd": "fault", "kind": "hang-queue", "doorbell": 2048, "ms": 5 });
        assert_eq!(fault.to_json().unwrap(), expected);
        assert_eq!(
            Request::Queues.to_json().unwrap(),
            json!({ "cmd": "queues" })
        );
        assert!(Request::Raw { json: "{".into() }.to_json().is_err());
    }
}
