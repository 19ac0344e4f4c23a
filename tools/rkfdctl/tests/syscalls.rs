// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The system-call counter, against code whose calls are known. A program of its own, because it forks.

#[path = "../src/syscalls.rs"]
mod syscalls;

use std::process::ExitCode;

use nix::libc;

fn calls(n: u32) {
    for _ in 0..n {
        // SAFETY: takes nothing and cannot fail.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

fn main() -> ExitCode {
    let watched = syscalls::watched(|mut counter| {
        for n in [0, 3, 0, 20, 1] {
            match counter.count(|| calls(n)) {
                Ok(((), count)) if count.calls == u64::from(n) => {
                    let named = usize::try_from(n).unwrap_or(0).min(8);
                    let getppid = u64::try_from(libc::SYS_getppid).unwrap_or(0);
                    if count.numbers != vec![getppid; named] {
                        eprintln!("{n} calls: wrong numbers {:?}", count.numbers);
                        return ExitCode::FAILURE;
                    }
                }
                other => {
                    eprintln!("{n} calls were counted as {other:?}");
                    return ExitCode::FAILURE;
                }
            }
        }
        // Threads at once, each with windows of its own, and calls outside of these.
        let threads: Vec<_> = (1..=3u32)
            .map(|n| {
                std::thread::spawn(move || {
                    for _ in 0..4 {
                        calls(7);
                        syscalls::on_thread(|| calls(n));
                    }
                })
            })
            .collect();
        for thread in threads {
            if thread.join().is_err() {
                return ExitCode::FAILURE;
            }
        }
        match (counter.of_threads(), counter.of_threads()) {
            (Ok((count, 12)), Ok((none, 0))) if count.calls == 24 && none.calls == 0 => {}
            other => {
                eprintln!("24 calls of threads in 12 windows were counted as {other:?}");
                return ExitCode::FAILURE;
            }
        }
        ExitCode::SUCCESS
    });
    match watched {
        Ok(code) => code,
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}
