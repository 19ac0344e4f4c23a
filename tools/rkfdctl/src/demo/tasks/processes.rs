// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Several processes that hand tasks over, of which one is killed.

use std::env;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;

use anyhow::anyhow;
use anyhow::bail;
use anyhow::Context;

use super::super::heading;
use super::handover;
use super::row;
use super::stage::Stage;
use super::stage::TRIES;
use super::Options;
use crate::style;

/// What another process says when the first of its tasks have run.
const READY: &str = "ready";

/// Another process; killed when dropped.
struct Other {
    child: Child,
    from: BufReader<std::process::ChildStdout>,
}

impl Other {
    /// Starts one, which is at it when this returns.
    fn start(options: &Options) -> anyhow::Result<Self> {
        let tool = env::current_exe().context("the tool's own path")?;
        let mut command = Command::new(tool);
        command.args(["demo", "gpu-tasks", "--child"]);
        command.args(["--gpu", &options.gpu.to_string()]);
        if let Some(gpus) = options.gpus {
            command.args(["--gpus", &gpus.to_string()]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("another process")?;
        let from = BufReader::new(child.stdout.take().context("its output")?);
        let mut other = Self { child, from };
        let said = other.line()?;
        if said != READY {
            bail!("another process said {said:?}");
        }
        Ok(other)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Has it end, and returns how many of its tasks ran.
    fn stop(mut self) -> anyhow::Result<u64> {
        drop(self.child.stdin.take());
        let ran = self.line()?.parse().context("its number of tasks")?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("another process: {status}");
        }
        Ok(ran)
    }

    /// Kills it in the middle of its work.
    fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        let status = self.child.wait()?;
        if status.signal() != Some(9) {
            bail!("the process that was to be killed: {status}");
        }
        // It could not remove its file.
        let _ = std::fs::remove_file(crate::tasks::file_of(self.child.id()));
        Ok(())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn tell(stage: &mut Stage, options: &Options) -> anyhow::Result<()> {
    heading("Processes: each has its own rings and workers");
    let others = [Other::start(options)?, Other::start(options)?];
    let tasks = stage.tasks(stage.shape, None)?;
    let [doomed, other] = others;
    handover::start(stage, &tasks, 64, 4, TRIES)?;
    // While this process and the other one are at it.
    doomed.kill()?;
    let wanted = handover::finish(stage, 64)?;
    let mut ran = stage.world.check_notes(&tasks, &wanted)?;
    handover::start(stage, &tasks, 64, 4, TRIES)?;
    let wanted = handover::finish(stage, 64)?;
    ran += stage.world.check_notes(&tasks, &wanted)?;
    let theirs = other.stop()?;
    row(
        "three processes, one killed",
        format!(
            "{ran} tasks here and {theirs} in the other one: {}",
            style::good("each ran once")
        ),
    );
    Ok(())
}

/// What the other process does: it hands tasks over until its standard input ends, and says how many have run.
///
/// # Errors
/// One was lost, or ran twice.
pub fn work(stage: &mut Stage) -> anyhow::Result<()> {
    let tasks = stage.tasks(stage.shape, None)?;
    let stop = Arc::new(AtomicBool::new(true));
    handover::until(stage, &tasks, &stop)?;
    println!("{READY}");
    std::io::stdout().flush()?;
    stop.store(false, Ordering::Release);
    let at_end = stop.clone();
    let reader = thread::spawn(move || {
        let ended = std::io::stdin().lock().read_line(&mut String::new());
        at_end.store(true, Ordering::Release);
        ended.map(drop)
    });
    let ran = handover::until(stage, &tasks, &stop)?;
    reader
        .join()
        .map_err(|_| anyhow!("the thread that reads standard input panicked"))??;
    println!("{ran}");
    Ok(())
}
