// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Large replies of the control socket are put together while the device goes on.
#![allow(clippy::expect_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use gpu_model::asic::GFX90A;
use gpu_model::clock::Clock;
use gpu_model::control::{answer, Device};
use gpu_model::device::Gpu;
use gpu_model::server::make_vram;
use gpu_model::soc::NoMsi;
use gpu_model::trace::{Log, Origin, Ring};
use serde_json::{json, Value};

/// A device that does something between two uses.
struct Working {
    gpu: Gpu,
    now: Arc<AtomicU64>,
    uses: usize,
    /// Records that it makes between two uses.
    makes: usize,
}

impl Working {
    fn new(capacity: usize, records: usize, makes: usize) -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let vram = make_vram(64 << 20).expect("VRAM");
        let (clock, log) = (Clock::Manual(now.clone()), Log::new(capacity, None, false));
        let gpu = Gpu::new(
            &GFX90A,
            GFX90A.board,
            vram,
            64 << 20,
            clock,
            log,
            Box::new(NoMsi),
        );
        let mut working = Self {
            gpu: gpu.expect("a device"),
            now,
            uses: 0,
            makes: 0,
        };
        let before = working.gpu.soc.log.since(0).0.end as usize;
        working.work(records - before);
        working.makes = makes;
        working
    }

    /// One record each microsecond.
    fn work(&mut self, records: usize) {
        for _ in 0..records {
            let t = self.now.fetch_add(1000, Ordering::Relaxed);
            self.gpu
                .soc
                .log
                .event(t, Ring::Device, Origin::default(), "WORK", String::new());
        }
    }

    fn trace(&mut self, request: &str) -> (Value, Vec<u64>) {
        let reply = answer(self, request);
        let records = reply["records"].as_array().expect("records");
        let seqs = records
            .iter()
            .map(|r| r["seq"].as_u64().expect("seq"))
            .collect();
        (reply, seqs)
    }
}

impl Device for Working {
    fn with<T>(&mut self, use_it: impl FnOnce(&mut Gpu) -> T) -> T {
        // A reply, or a part of one, is not made here.
        let copied = std::any::type_name::<T>();
        assert!(!copied.contains("serde_json"), "{copied}");
        if self.uses != 0 {
            self.work(self.makes);
        }
        self.uses += 1;
        use_it(&mut self.gpu)
    }
}

#[test]
fn a_long_trace_is_copied_in_pieces() {
    let mut device = Working::new(65536, 3000, 10);
    let (reply, seqs) = device.trace(r#"{"cmd":"trace","max":2000}"#);
    // What there was when it was asked for, nothing of what came later.
    assert_eq!(seqs, (1000..3000).collect::<Vec<_>>());
    assert_eq!(reply["since_ns"], reply["records"][0]["t_ns"]);
    assert!((8..=10).contains(&device.uses), "{} uses", device.uses);
}

#[test]
fn all_of_a_time_is_said_to_be_all() {
    let mut device = Working::new(65536, 3000, 10);
    // The clock stands at 3 ms less what was there at the start.
    let (reply, seqs) = device.trace(r#"{"cmd":"trace","last_ms":1,"max":5000}"#);
    let since = reply["since_ns"].as_u64().expect("a time");
    assert_eq!(since + 1_000_000, reply["t_ns"].as_u64().expect("a time"));
    assert_eq!(seqs, (2000..3000).collect::<Vec<_>>());
}

#[test]
fn records_that_are_dropped_meanwhile_are_not_claimed() {
    // Between two pieces more comes than a piece takes.
    let mut device = Working::new(1000, 3000, 300);
    let (reply, seqs) = device.trace(r#"{"cmd":"trace","max":5000}"#);
    assert_eq!(seqs.last(), Some(&2999));
    assert!(seqs.len() < 1000 && !seqs.is_empty());
    let whole = seqs
        .windows(2)
        .rposition(|w| w[1] != w[0] + 1)
        .map_or(0, |i| i + 1);
    assert_eq!(whole, 0, "no gaps: {seqs:?}");
    assert_eq!(reply["since_ns"], reply["records"][0]["t_ns"]);
}

#[test]
fn all_errors_are_shown_whatever_comes_meanwhile() {
    let mut device = Working::new(100, 100, 0);
    for i in 0..1500u64 {
        device.gpu.soc.protocol_error("bank", i.to_string());
    }
    let reply = answer(&mut device, r#"{"cmd":"errors"}"#);
    let seqs: Vec<u64> = reply["errors"]
        .as_array()
        .expect("errors")
        .iter()
        .map(|e| e["seq"].as_u64().expect("seq"))
        .collect();
    assert_eq!(seqs, (476..1500).collect::<Vec<_>>());
    assert_eq!(reply["total"], 1500);
    assert!(device.uses > 4, "{} uses", device.uses);
}

/// As many as are remembered, and one that is not.
#[test]
fn a_thousand_stray_doorbells_are_copied_in_pieces() {
    let mut device = Working::new(100, 100, 1);
    // RCC_DOORBELL_APER_EN.
    device.gpu.mmio_write(0x3780, &1u32.to_le_bytes());
    for i in 0..1025u64 {
        device.gpu.doorbell_write(0x1000 + 8 * i, &i.to_le_bytes());
    }
    let reply = answer(&mut device, r#"{"cmd":"doorbells"}"#);
    assert_eq!(
        (&reply["rung"], &reply["foreign"]),
        (&json!(1025), &json!(1025))
    );
    let strays: Vec<[u64; 4]> = reply["strays"]
        .as_array()
        .expect("strays")
        .iter()
        .map(|s| ["byte", "doorbell", "value", "count"].map(|m| s[m].as_u64().expect(m)))
        .collect();
    let want: Vec<[u64; 4]> = (0..1024)
        .map(|i| [0x1000 + 8 * i, 0x400 + 2 * i, i, 1])
        .collect();
    assert_eq!(strays, want);
    assert!(device.uses > 4, "{} uses", device.uses);
}

/// What each request finds is looked at by other tests; here, that none of them is answered while the device waits.
#[test]
fn no_reply_is_put_together_while_the_device_waits() {
    let mut device = Working::new(1000, 500, 1);
    device.gpu.mmio_write(0x3780, &1u32.to_le_bytes());
    device.gpu.doorbell_write(0x1000, &[0; 8]);
    for request in [
        r#"{"cmd":"stats"}"#,
        r#"{"cmd":"trace","queues":true}"#,
        r#"{"cmd":"queues"}"#,
        r#"{"cmd":"waves"}"#,
        r#"{"cmd":"profile-start"}"#,
        r#"{"cmd":"profile"}"#,
        r#"{"cmd":"profile-stop"}"#,
        r#"{"cmd":"check","on":false}"#,
        r#"{"cmd":"program-errors"}"#,
        r#"{"cmd":"doorbells"}"#,
        r#"{"cmd":"vm","vmid":3,"va":4096}"#,
        r#"{"cmd":"errors"}"#,
        r#"{"cmd":"clear-errors"}"#,
        r#"{"cmd":"fault","kind":"hang-queue"}"#,
        r#"{"cmd":"faults"}"#,
        r#"{"cmd":"clear-faults"}"#,
    ] {
        device.uses = 0;
        assert_eq!(answer(&mut device, request)["ok"], true, "{request}");
        assert!(device.uses > 0, "{request}");
    }
}
