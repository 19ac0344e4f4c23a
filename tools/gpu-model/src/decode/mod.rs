// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Packets as text and fields, for traces and error lines.

pub mod pm4;
pub mod sdma;
pub mod spec;

use serde_json::{Map, Value};

use crate::asic::Asic;
use crate::trace::{Event, Reason, Record, Ring, Seat};

/// A decoded packet or event.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// Packet name.
    pub name: String,
    /// Field values; numbers wider than 53 bits are hexadecimal strings.
    pub fields: Map<String, Value>,
}

impl Decoded {
    /// One line: name and fields.
    pub fn text(&self) -> String {
        let mut out = self.name.clone();
        for (k, v) in &self.fields {
            match v {
                Value::Number(n) => match n.as_u64() {
                    Some(n) if n > 9 => out.push_str(&format!(" {k}={n:#x}")),
                    _ => out.push_str(&format!(" {k}={n}")),
                },
                Value::String(s) => out.push_str(&format!(" {k}={s}")),
                other => out.push_str(&format!(" {k}={other}")),
            }
        }
        out
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: u64) {
        let v = if value < 1 << 53 {
            Value::from(value)
        } else {
            Value::from(format!("{value:#x}"))
        };
        self.fields.insert(name.to_string(), v);
    }

    /// A packet without fields.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            fields: Map::new(),
        }
    }
}

/// Decodes a trace record.
pub fn record(asic: &Asic, r: &Record) -> Decoded {
    match &r.event {
        Some(Event::Note { name, text }) => {
            let mut d = Decoded::named(*name);
            if !text.is_empty() {
                d.fields.insert("text".into(), Value::from(text.clone()));
            }
            return d;
        }
        Some(Event::Seat {
            connect,
            seat,
            reason,
            text,
        }) => return seat_event(*connect, *seat, *reason, text),
        None => {}
    }
    let raw = r.raw.get(..r.raw_len).unwrap_or(&[]);
    match r.ring {
        Ring::Sdma => sdma::decode(asic, raw),
        Ring::Aql => aql(raw),
        Ring::Ih => interrupt(raw),
        _ => pm4::decode(asic, raw),
    }
}

fn seat_event(connect: bool, seat: Seat, reason: Reason, text: &str) -> Decoded {
    let mut d = Decoded::named(if connect { "CONNECT" } else { "DISCONNECT" });
    let (engine, me, pipe, queue) = match seat {
        Seat::Compute(s) => ("compute".to_string(), s.me(), s.pipe(), s.queue().into()),
        // An RLC context goes by its number; GFX and PAGE, which only a driver's own rings use, come behind.
        Seat::Sdma { engine, block } => {
            let queue = block.checked_sub(2).unwrap_or(block + 8);
            (format!("sdma{engine}"), 0, 0, queue)
        }
    };
    d.fields.insert("engine".into(), Value::from(engine));
    d.field("me", me.into());
    d.field("pipe", pipe.into());
    d.field("queue", queue as u64);
    d.fields.insert("reason".into(), Value::from(reason.name()));
    if !text.is_empty() {
        d.fields.insert("text".into(), Value::from(text));
    }
    d
}

fn word(raw: &[u32], i: usize) -> u64 {
    raw.get(i).copied().map_or(0, u64::from)
}

fn pair(raw: &[u32], i: usize) -> u64 {
    word(raw, i) | (word(raw, i + 1) << 32)
}

fn aql(raw: &[u32]) -> Decoded {
    let header = word(raw, 0) & 0xFFFF;
    let name = match header & 0xFF {
        0 => "AQL_VENDOR",
        1 => "AQL_INVALID",
        2 => "KERNEL_DISPATCH",
        3 => "BARRIER_AND",
        4 => "AGENT_DISPATCH",
        5 => "BARRIER_OR",
        _ => "AQL_UNKNOWN",
    };
    let mut d = Decoded::named(name);
    d.field("barrier", (header >> 8) & 1);
    d.field("acquire", (header >> 9) & 3);
    d.field("release", (header >> 11) & 3);
    match header & 0xFF {
        0 if word(raw, 0) >> 16 == 2 => {
            d.name = "BARRIER_VALUE".into();
            for (n, i) in [("signal", 2), ("value", 4), ("mask", 6)] {
                d.field(n, pair(raw, i));
            }
            d.field("condition", word(raw, 8));
        }
        2 => {
            d.field("dimensions", (word(raw, 0) >> 16) & 3);
            for (n, i) in [("grid_x", 3), ("grid_y", 4), ("grid_z", 5)] {
                d.field(n, word(raw, i));
            }
            d.field("workgroup_x", word(raw, 1) & 0xFFFF);
            d.field("workgroup_y", word(raw, 1) >> 16);
            d.field("workgroup_z", word(raw, 2) & 0xFFFF);
            d.field("kernel_object", pair(raw, 8));
            d.field("kernarg", pair(raw, 10));
        }
        3 | 5 => {
            for (n, i) in [
                ("dep0", 2),
                ("dep1", 4),
                ("dep2", 6),
                ("dep3", 8),
                ("dep4", 10),
            ] {
                d.field(n, pair(raw, i));
            }
        }
        _ => {}
    }
    d.field("completion_signal", pair(raw, 14));
    d
}

fn interrupt(raw: &[u32]) -> Decoded {
    let w0 = word(raw, 0);
    let (client, source) = (w0 & 0xFF, (w0 >> 8) & 0xFF);
    let name = match (client, source) {
        (0x14, 181) => "IV_EOP",
        (0x14, 178) => "IV_KIQ_FENCE",
        (0x14, 183) => "IV_BAD_OPCODE",
        (0x14, 184) => "IV_PRIV_REG",
        (0x14, 200) => "IV_VM_DOORBELL",
        (0x12 | 0x1B, 0) => "IV_VM_FAULT",
        (0, 0) => "IV_IH_RING",
        (_, 224) => "IV_SDMA_TRAP",
        _ => "IV",
    };
    let mut d = Decoded::named(name);
    d.field("client", client);
    d.field("source", source);
    d.field("ring_id", (w0 >> 16) & 0xFF);
    d.field("vmid", (w0 >> 24) & 0xF);
    d.field("pasid", word(raw, 3) & 0xFFFF);
    d.field("timestamp", pair(raw, 1) & 0xFFFF_FFFF_FFFF);
    for (n, i) in [("data0", 4), ("data1", 5), ("data2", 6)] {
        d.field(n, word(raw, i));
    }
    d
}
