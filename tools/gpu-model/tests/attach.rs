// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The device as a VMM sees it, over real sockets.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use serde_json::{json, Value};
use vfio_user::Client;

const BAR0: u32 = 0;
const BAR2: u32 = 2;
const BAR5: u32 = 5;
const ROM: u32 = 6;
const CONFIG: u32 = 7;
const MSI: u32 = 1;

struct Model {
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Model {
    fn drop(&mut self) {
        // Ends a model that a failed test left behind; an error means that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Longest wait for anything the model does.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tries until it succeeds.
fn patiently<T, E: std::fmt::Debug>(what: &str, mut f: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match f() {
            Ok(v) => return v,
            Err(e) => assert!(Instant::now() < end, "{what}: {e:?}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Model {
    fn start(asic: &str) -> (Self, Client) {
        Self::start_with(asic, &[])
    }

    fn start_with(asic: &str, options: &[&str]) -> (Self, Client) {
        let model = Self::spawn(asic, options);
        let socket = model.dir.path().join("dev");
        // The file is there before anybody listens to it.
        let client = patiently("connection", || Client::new(&socket));
        (model, client)
    }

    /// Starts it, and does not connect.
    fn spawn(asic: &str, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gpu-model"))
            .args(["--asic", asic, "--vram", "64M"])
            .args(options)
            .arg("--socket")
            .arg(dir.path().join("dev"))
            .arg("--control")
            .arg(dir.path().join("ctl"))
            .arg("--log")
            .arg(dir.path().join("log"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, dir }
    }

    fn control(&self) -> (BufReader<UnixStream>, UnixStream) {
        let path = self.dir.path().join("ctl");
        let s = patiently("control socket", || UnixStream::connect(&path));
        s.set_read_timeout(Some(PATIENCE)).unwrap();
        (BufReader::new(s.try_clone().unwrap()), s)
    }

    fn ask(&self, request: &Value) -> Value {
        let (mut r, mut w) = self.control();
        writeln!(w, "{request}").unwrap();
        let mut line = String::new();
        r.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Waits for the exit that follows a disconnection.
    fn finish(self) -> (i32, String) {
        let (status, text) = self.end();
        (status.code().unwrap(), text)
    }

    /// Waits for the end, whatever it is.
    fn end(mut self) -> (ExitStatus, String) {
        let status = patiently("exit", || self.child.try_wait().unwrap().ok_or("it runs"));
        let mut text = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut text).unwrap();
        (status, text)
    }
}

fn rd(c: &mut Client, at: u64) -> u32 {
    let mut b = [0; 4];
    c.region_read(BAR5, at, &mut b).unwrap();
    u32::from_le_bytes(b)
}

fn wr(c: &mut Client, at: u64, v: u32) {
    c.region_write(BAR5, at, &v.to_le_bytes()).unwrap();
}

#[test]
fn identity_and_regions() {
    for (asic, device, revision) in [("gfx90a", 0x740f_u16, 2), ("gfx906", 0x66a1, 0)] {
        let (model, mut c) = Model::start(asic);
        let mut h = [0u8; 64];
        c.region_read(CONFIG, 0, &mut h).unwrap();
        assert_eq!(u16::from_le_bytes([h[0], h[1]]), 0x1002);
        assert_eq!(u16::from_le_bytes([h[2], h[3]]), device);
        assert_eq!(h[8..12], [revision, 0, 0x80, 0x03]);
        assert_eq!(h[0x2c..0x30], [0xf4, 0x1a, 0x66, 0x6b]);
        // Sizing: BAR0 64-bit prefetchable of 64 MiB, BAR2 64-bit of 2 MiB, BAR5 32-bit of 512 KiB.
        for (at, want) in [
            (0x10u64, 0xfc00_000cu32),
            (0x18, 0xffe0_0004),
            (0x24, 0xfff8_0000),
        ] {
            c.region_write(CONFIG, at, &[0xff; 4]).unwrap();
            let mut b = [0; 4];
            c.region_read(CONFIG, at, &mut b).unwrap();
            assert_eq!(u32::from_le_bytes(b), want, "BAR at {at:#x}");
        }
        // Capabilities: MSI with one 64-bit vector, PCI Express with atomic completion.
        let mut at = u64::from(h[0x34]);
        let (mut msi, mut atomics) = (false, false);
        for _ in 0..16 {
            let mut cap = [0; 0x28];
            c.region_read(CONFIG, at, &mut cap).unwrap();
            msi |= cap[0] == 5 && cap[2] & 0xfe == 0x80;
            atomics |= cap[0] == 0x10 && cap[0x24] & 0x80 != 0 && cap[0x25] & 1 != 0;
            at = u64::from(cap[1]);
            if at == 0 {
                break;
            }
        }
        assert!(msi && atomics && at == 0);
        let bar0 = c.region(BAR0).unwrap();
        assert_eq!((bar0.size, bar0.sparse_areas.len()), (64 << 20, 1));
        assert!(bar0.file_offset.is_some(), "VRAM comes with its descriptor");
        assert_eq!(c.region(BAR2).unwrap().size, 2 << 20);
        assert_eq!(c.region(BAR5).unwrap().size, 512 << 10);
        assert_eq!(c.region(ROM).unwrap().size, 4096);
        let mut rom = [0; 4096];
        c.region_read(ROM, 0, &mut rom).unwrap();
        assert_eq!(rom[..3], [0x55, 0xaa, 8]);
        assert_eq!(&rom[0x30..0x3a], b" 761295520");
        c.shutdown().unwrap();
        drop(c);
        assert_eq!(model.finish(), (0, String::new()));
    }
}

#[test]
fn subsystem_ids_can_be_those_of_a_card() {
    let (model, mut c) = Model::start_with("gfx90a", &["--subsystem", "1002:0C34"]);
    let mut h = [0u8; 4];
    c.region_read(CONFIG, 0x2c, &mut h).unwrap();
    assert_eq!(h, [0x02, 0x10, 0x34, 0x0c]);
    // Hardware ids: not writable, and the same after a reset.
    c.region_write(CONFIG, 0x2c, &[0xff; 4]).unwrap();
    c.reset().unwrap();
    c.region_read(CONFIG, 0x2c, &mut h).unwrap();
    assert_eq!(h, [0x02, 0x10, 0x34, 0x0c]);
    drop(c);
    assert_eq!(model.finish(), (0, String::new()));
}

#[test]
fn bad_subsystem_ids_are_refused() {
    for bad in [
        "1002",
        "1002:",
        "10020c34",
        "1002:0c345",
        "100g:0000",
        "+002:0000",
        ":",
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_gpu-model"))
            .args(["--socket", "none", "--control", "none", "--subsystem", bad])
            .output()
            .unwrap();
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{bad}: {text}");
        assert!(
            text.contains("not VVVV:DDDD in hexadecimal"),
            "{bad}: {text}"
        );
    }
}

/// The whole way from the options to registers and the control socket.
#[test]
fn a_board_is_as_its_options_say() {
    let (model, mut c) = Model::start_with(
        "gfx906",
        &[
            "--compute-units=9",
            "--mec-firmware=33",
            "--sdma-firmware=44",
            "--engine-clock=555",
            "--memory-clock=0",
            "--fault=deaf-smu",
        ],
    );
    c.reset().unwrap();
    let mut shares = Vec::new();
    for engine in 0..4 {
        wr(&mut c, 0x30800, engine << 16);
        shares.push((!rd(&mut c, 0x89bc) >> 16).count_ones());
    }
    assert_eq!(shares, [3, 2, 2, 2]);
    assert_eq!((rd(&mut c, 0x3e068), rd(&mut c, 0x6180)), (33, 44));
    let message = |c: &mut Client, message, argument| {
        for (at, v) in [(0x58a68, 0), (0x58a48, argument), (0x58a08, message)] {
            wr(c, at, v);
        }
        (rd(c, 0x58a68), rd(c, 0x58a48))
    };
    assert_eq!(message(&mut c, 1, 1), (0, 1));
    let faults = model.ask(&json!({"cmd": "faults"}));
    assert_eq!(faults["faults"][0]["kind"], "deaf-smu");
    model.ask(&json!({"cmd": "clear-faults"}));
    assert_eq!(message(&mut c, 0x2b, 0), (1, 555));
    assert_eq!(message(&mut c, 0x2b, 5 << 16).0, 0xff);
    let stats = model.ask(&json!({"cmd": "stats"}));
    let board = json!({
        "compute_units": 9,
        "mec_firmware": 33,
        "sdma_firmware": 44,
        "engine_clock": 555,
        "memory_clock": 0,
    });
    assert_eq!(stats["board"], board);
    drop(c);
    assert_eq!(model.finish(), (0, String::new()));
}

#[test]
fn ranges_of_invalidations_are_refused_unless_an_option_says_otherwise() {
    for (options, errors) in [
        (&[][..], true),
        (&["--invalidation-ranges=refuse"], true),
        (&["--invalidation-ranges=size-bit"], false),
    ] {
        let (model, mut c) = Model::start_with("gfx90a", options);
        // The option outlives what a VMM does first.
        c.reset().unwrap();
        // Engine 0 of the GFX hub: one page, VMID 3.
        wr(&mut c, 0xa31c, 0x2000_0006);
        wr(&mut c, 0xa320, 0xe);
        wr(&mut c, 0xa28c, (1 << 3) | 0x7c_0000);
        patiently("acknowledgement", || match rd(&mut c, 0xa2d4) {
            8 => Ok(()),
            ack => Err(ack),
        });
        drop(c);
        let (code, text) = model.finish();
        assert_eq!(code, if errors { 3 } else { 0 }, "{options:?}: {text}");
        assert_eq!(text.contains("invalidate-range"), errors, "{text}");
    }
}

#[test]
fn the_statistics_tell_how_long_accesses_wait() {
    let (model, mut c) = Model::start("gfx90a");
    for _ in 0..100 {
        assert_eq!(rd(&mut c, 0x378c), 64);
    }
    let stats = model.ask(&json!({"cmd": "stats"}));
    let figure = |of: &str, name: &str| stats["latency"][of][name].as_u64().unwrap();
    assert!(figure("access", "count") >= 100, "{stats}");
    assert!(figure("step", "count") > 0, "{stats}");
    for of in ["access", "step"] {
        let all = ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|name| figure(of, name));
        assert!(all[0] > 0 && all.is_sorted(), "{of}: {all:?}");
    }
    drop(c);
    assert_eq!(model.finish().0, 0);
}

#[test]
fn vram_is_the_shared_file_and_the_window_sees_it() {
    let (model, mut c) = Model::start("gfx90a");
    let vram = c.region(BAR0).unwrap().file_offset.clone().unwrap();
    vram.file()
        .write_all_at(&0x1234_5678u32.to_le_bytes(), vram.start() + 0x3000)
        .unwrap();
    // MM_INDEX / MM_DATA.
    wr(&mut c, 0x00, 0x3000 | (1 << 31));
    wr(&mut c, 0x18, 0);
    assert_eq!(rd(&mut c, 0x04), 0x1234_5678);
    // SCRATCH_REG0 through PCIE_INDEX2 / DATA2.
    wr(&mut c, 0x38, 0x30100);
    wr(&mut c, 0x3c, 77);
    assert_eq!(rd(&mut c, 0x30100), 77);
    c.reset().unwrap();
    assert_eq!(rd(&mut c, 0x30100), 0);
    assert_eq!(rd(&mut c, 0x378c), 64);
    drop(c);
    assert_eq!(model.finish().0, 0);
}

#[test]
fn the_vmm_sends_it_to_sleep() {
    let (model, mut c) = Model::start("gfx90a");
    wr(&mut c, 0x30100, 77);
    c.region_write(CONFIG, 0x4c, &[3, 0]).unwrap();
    assert_eq!(rd(&mut c, 0x30100), 0xffff_ffff);
    let mut id = [0; 4];
    c.region_read(CONFIG, 0, &mut id).unwrap();
    assert_eq!(id, [0x02, 0x10, 0x0f, 0x74], "it is still there");
    c.region_write(CONFIG, 0x4c, &[0, 0]).unwrap();
    assert_eq!((rd(&mut c, 0x30100), rd(&mut c, 0x378c)), (0, 64));
    // A reset wakes it, too.
    c.region_write(CONFIG, 0x4c, &[3, 0]).unwrap();
    c.reset().unwrap();
    assert_eq!(rd(&mut c, 0x378c), 64);
    drop(c);
    assert_eq!(model.finish(), (0, String::new()));
}

/// One interrupt through real DMA memory and a real eventfd: the IH writes a vector for a fault of VMID 0.
#[test]
fn interrupts_reach_the_eventfd_and_errors_the_exit_status() {
    let (model, mut c) = Model::start("gfx90a");
    let ram = gpu_model::server::make_vram(1 << 20).unwrap();
    c.dma_map(0, 0x8000_0000, 1 << 20, ram.as_raw_fd()).unwrap();
    let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
    let fd: OwnedFd = OwnedFd::from(event);
    // DATA_EVENTFD | ACTION_TRIGGER.
    c.set_irqs(MSI, (1 << 2) | (1 << 5), 0, 1, &[fd.as_raw_fd()])
        .unwrap();
    // Memory and bus master.
    c.region_write(CONFIG, 4, &[6, 0]).unwrap();
    wr(&mut c, 0x4280 + 0x18d * 4, 1 << 4);
    // IH ring 0 of 4 KiB at bus 0x80000000, write-back at 0x80010000.
    wr(&mut c, 0x4484, 0x8000_0000u32 >> 8);
    wr(&mut c, 0x4498, 0x8001_0000);
    wr(
        &mut c,
        0x4480,
        1 | (10 << 1) | (1 << 8) | (1 << 16) | (1 << 17) | (1 << 21) | (1 << 28),
    );
    // IH doorbell: dword 0x2f0.
    wr(&mut c, 0x3bc8, (0x2f0 << 2) | (8 << 16));
    wr(&mut c, 0x3780, 1);
    wr(&mut c, 0x449c, 0x2f0 | (1 << 28));
    // The KIQ with a ring nowhere: its fetch faults in VMID 0, which interrupts.
    wr(&mut c, 0x8234, 0);
    wr(&mut c, 0xc2e0, 2);
    wr(&mut c, 0x3b2a8, 0xc8);
    wr(&mut c, 0x8088, (2 << 2) | 1);
    wr(&mut c, 0xc914 + 4 * 8, 0x1000);
    wr(&mut c, 0xc914 + 4 * 17, 8 | (1 << 30));
    wr(&mut c, 0xc914 + 4 * 15, 0x40 | (1 << 30));
    wr(&mut c, 0xc914 + 4 * 2, 1);
    wr(&mut c, 0x8088, 0);
    c.region_write(BAR2, 0x40, &4u64.to_le_bytes()).unwrap();
    let mut file = File::from(fd);
    let mut count = [0; 8];
    patiently("interrupt", || file.read_exact(&mut count));
    assert!(u64::from_ne_bytes(count) >= 1);
    let mut wptr = [0; 4];
    ram.read_exact_at(&mut wptr, 0x1_0000).unwrap();
    assert_eq!(u32::from_le_bytes(wptr), 32);
    let mut iv = [0; 8];
    ram.read_exact_at(&mut iv, 0).unwrap();
    assert_eq!(iv[..2], [0x1b, 0]);
    // The control socket tells the same, to several clients.
    let (_idle, _also_idle) = (model.control(), model.control());
    let errors = model.ask(&json!({"cmd": "errors"}));
    assert_eq!(errors["errors"][0]["rule"], "vmid0-fault");
    let stats = model.ask(&json!({"cmd": "stats"}));
    assert_eq!(
        (&stats["ok"], &stats["stats"]["interrupts_posted"]),
        (&json!(true), &json!(1))
    );
    c.dma_unmap(0x8000_0000, 1 << 20).unwrap();
    drop(c);
    let (code, text) = model.finish();
    assert_eq!(code, 3);
    assert!(text.starts_with("PROTOCOL ERROR #0"), "{text}");
}

#[test]
fn control_answers_every_request_with_one_line() {
    let (model, c) = Model::start("gfx90a");
    let (mut r, mut w) = model.control();
    let mut ask = |text: &str| -> Value {
        w.write_all(text.as_bytes()).unwrap();
        w.write_all(b"\n").unwrap();
        let mut line = String::new();
        r.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    assert_eq!(ask("{")["ok"], false);
    assert_eq!(ask(r#"{"cmd":"dance"}"#)["ok"], false);
    assert_eq!(ask(&"x".repeat(200_000))["ok"], false);
    assert_eq!(ask(r#"{"cmd":"fault","kind":"nonsense"}"#)["ok"], false);
    assert_eq!(ask(r#"{"cmd":"fault","kind":"slow-preempt"}"#)["ok"], false);
    assert_eq!(
        ask(r#"{"cmd":"fault","kind":"hang-queue","doorbell":5,"count":1}"#)["ok"],
        true
    );
    assert_eq!(
        ask(r#"{"cmd":"faults"}"#)["faults"][0]["kind"],
        "hang-queue"
    );
    assert_eq!(
        ask(r#"{"cmd":"fault","kind":"drop-msi","count":2}"#)["ok"],
        true
    );
    assert_eq!(ask(r#"{"cmd":"faults"}"#)["faults"][1]["kind"], "drop-msi");
    assert_eq!(
        ask(r#"{"cmd":"fault","kind":"deaf-smu","count":1}"#)["ok"],
        true
    );
    assert_eq!(ask(r#"{"cmd":"faults"}"#)["faults"][2]["kind"], "deaf-smu");
    assert_eq!(ask(r#"{"cmd":"clear-faults"}"#)["ok"], true);
    assert_eq!(ask(r#"{"cmd":"faults"}"#)["faults"], json!([]));
    assert_eq!(ask(r#"{"cmd":"queues"}"#)["compute"], json!([]));
    assert_eq!(ask(r#"{"cmd":"vm","vmid":3}"#)["hubs"][1]["enabled"], false);
    assert_eq!(ask(r#"{"cmd":"vm","vmid":16}"#)["ok"], false);
    assert_eq!(ask(r#"{"cmd":"trace","max":5}"#)["ok"], true);
    assert_eq!(ask(r#"{"cmd":"clear-errors"}"#)["ok"], true);
    drop(c);
    assert_eq!(model.finish().0, 0);
}

/// The library that reads the version message takes for granted that it ends with a zero.  What it does else is a panic,
/// and the program is to end by that: no half of a device goes on, and no exit status looks like one of its own.
#[test]
fn a_panic_ends_the_program() {
    let model = Model::spawn("gfx90a", &[]);
    let socket = model.dir.path().join("dev");
    let mut vmm = patiently("connection", || UnixStream::connect(&socket));
    let text = *b"{}";
    let mut message = Vec::new();
    // Message 0, VERSION; the size of all of it, a command, no error; version 0.1.
    for half in [0, 1, 20 + text.len() as u16, 0, 0, 0, 0, 0, 0, 1] {
        message.extend(half.to_le_bytes());
    }
    message.extend(text);
    vmm.write_all(&message).unwrap();
    let (status, said) = model.end();
    assert_eq!(
        status.signal(),
        Some(nix::libc::SIGABRT),
        "{status}: {said}"
    );
    let report = "gpu-model: thread main panicked, the model ends; this is a defect of the model";
    assert!(said.lines().any(|line| line == report), "{said}");
}
