// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Processes that hold idle queues, beside which a benchmark measures.

use std::io::BufRead;
use std::io::BufReader;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use anyhow::bail;
use anyhow::Context;

/// Queues that one process takes, so that many queues are also several processes.
const HELD_BY_ONE: usize = 120;

/// Holding processes; they end with this value.
pub struct Holders {
    gpu: usize,
    held: usize,
    children: Vec<Child>,
}

impl Holders {
    /// None yet, for the GPU of that number.
    pub fn new(gpu: usize) -> Self {
        Self {
            gpu,
            held: 0,
            children: Vec::new(),
        }
    }

    /// Adds processes until there are `queues` queues. Idle queues are only added.
    ///
    /// # Errors
    /// A process could not be started, or could not create its queues.
    pub fn grow(&mut self, queues: usize) -> anyhow::Result<()> {
        while self.held < queues {
            let more = (queues - self.held).min(HELD_BY_ONE);
            let mut child =
                Command::new(std::env::current_exe().context("this program's own path")?)
                    .args(["bench", "worker", "--gpu", &self.gpu.to_string()])
                    .args(["--queues", &more.to_string()])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .context("starting a process")?;
            let out = child.stdout.take().context("a process without output")?;
            self.children.push(child);
            let mut line = String::new();
            BufReader::new(out).read_line(&mut line)?;
            if line.trim() != "ready" {
                bail!(
                    "a process could not create {more} queues beside {}",
                    self.held
                );
            }
            self.held += more;
        }
        Ok(())
    }

    /// Queues that are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Processes that hold them.
    pub fn processes(&self) -> usize {
        self.children.len()
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        for child in &mut self.children {
            // End of input is the word to end.
            drop(child.stdin.take());
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}
