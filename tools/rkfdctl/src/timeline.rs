// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl trace --timeline`: which queue sat on which hardware slot when, from the model's records of ring `HQD`.
//!
//! Only changes are recorded: a queue that kept its slot throughout the window is not in the picture.

mod svg;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::control::Record;

pub use svg::draw;

/// A place for a queue: an HQD of a pipe, or one of an SDMA engine.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Slot {
    /// 1 for SDMA, so that its rows come after those of the compute engine.
    class: u32,
    engine: String,
    me: u32,
    pipe: u32,
    queue: u32,
}

impl Slot {
    /// Its name at the row.
    pub fn name(&self) -> String {
        if self.class == 0 {
            format!("me {} pipe {} queue {}", self.me, self.pipe, self.queue)
        } else {
            format!("{} queue {}", self.engine, self.queue)
        }
    }
}

/// One stay of one queue on a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Stay {
    /// Nanoseconds of the model's clock.
    pub start: u64,
    /// The same; the picture's end where the queue is still there.
    pub end: u64,
    /// Process; 0 for queues of the kernel.
    pub pasid: u32,
    /// Doorbell of the queue, as a dword index.
    pub doorbell: u64,
    /// VMID.
    pub vmid: u32,
    /// Why it ended; empty while it lasts.
    pub reason: String,
}

/// All that a picture shows.
#[derive(Debug, Default, PartialEq)]
pub struct Timeline {
    /// Nanoseconds of the model's clock.
    pub start: u64,
    /// The same.
    pub end: u64,
    /// Stays by slot, each in order of time.
    pub rows: BTreeMap<Slot, Vec<Stay>>,
}

#[derive(Deserialize)]
struct Fields {
    engine: String,
    #[serde(default)]
    me: u32,
    #[serde(default)]
    pipe: u32,
    #[serde(default)]
    queue: u32,
    #[serde(default)]
    reason: String,
}

impl Timeline {
    /// Pairs connections with disconnections. A queue that was there before the first record, or is there after the
    /// last, stays from or to the edge.
    pub fn new(records: &[Record]) -> Self {
        let start = records.iter().map(|r| r.t_ns).min().unwrap_or(0);
        let end = records.iter().map(|r| r.t_ns).max().unwrap_or(0);
        let mut rows: BTreeMap<Slot, Vec<Stay>> = BTreeMap::new();
        let mut open: BTreeMap<Slot, Stay> = BTreeMap::new();
        for record in records.iter().filter(|r| r.ring == "HQD") {
            let Ok(fields) = serde_json::from_value::<Fields>(record.fields.clone()) else {
                continue;
            };
            let slot = Slot {
                class: u32::from(fields.engine != "compute"),
                engine: fields.engine,
                me: fields.me,
                pipe: fields.pipe,
                queue: fields.queue,
            };
            let mut stay = Stay {
                start: record.t_ns,
                end,
                pasid: record.pasid.unwrap_or(0),
                doorbell: record.doorbell.unwrap_or(0),
                vmid: record.vmid.unwrap_or(0),
                reason: String::new(),
            };
            match record.packet.as_str() {
                "CONNECT" => {
                    if let Some(earlier) = open.insert(slot.clone(), stay) {
                        rows.entry(slot).or_default().push(Stay {
                            end: record.t_ns,
                            ..earlier
                        });
                    }
                }
                "DISCONNECT" => {
                    let known = rows.contains_key(&slot);
                    match open.remove(&slot) {
                        Some(earlier) => stay = earlier,
                        // Its connection is older than the trace.
                        None if !known => stay.start = start,
                        None => continue,
                    }
                    stay.end = record.t_ns;
                    stay.reason = fields.reason;
                    rows.entry(slot).or_default().push(stay);
                }
                _ => {}
            }
        }
        for (slot, stay) in open {
            rows.entry(slot).or_default().push(stay);
        }
        Self { start, end, rows }
    }

    /// Processes in the order of their first stay; those of the kernel (0) last.
    pub fn processes(&self) -> Vec<u32> {
        let mut first: BTreeMap<u32, u64> = BTreeMap::new();
        for stay in self.rows.values().flatten() {
            let t = first.entry(stay.pasid).or_insert(stay.start);
            *t = (*t).min(stay.start);
        }
        let mut order: Vec<u32> = first.keys().copied().collect();
        order.sort_by_key(|pasid| (*pasid == 0, first.get(pasid).copied(), *pasid));
        order
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn record(
        t_ms: u64,
        packet: &str,
        engine: &str,
        pipe: u32,
        pasid: u32,
        reason: &str,
    ) -> Record {
        serde_json::from_value(serde_json::json!({
            "seq": t_ms, "t_ns": t_ms * 1_000_000, "ring": "HQD", "vmid": 8, "pasid": pasid,
            "doorbell": 0x800 + pasid, "packet": packet,
            "fields": { "engine": engine, "me": 1, "pipe": pipe, "queue": 2, "reason": reason },
        }))
        .unwrap()
    }

    fn stays(t: &Timeline, name: &str) -> Vec<(u64, u64, u32, String)> {
        t.rows
            .iter()
            .filter(|(slot, _)| slot.name() == name)
            .flat_map(|(_, stays)| stays)
            .map(|s| {
                (
                    s.start / 1_000_000,
                    s.end / 1_000_000,
                    s.pasid,
                    s.reason.clone(),
                )
            })
            .collect()
    }

    #[test]
    fn stays_are_paired_by_slot() {
        let t = Timeline::new(&[
            record(10, "CONNECT", "compute", 0, 1, "map"),
            record(11, "CONNECT", "compute", 1, 2, "map"),
            record(12, "CONNECT", "sdma0", 0, 1, "map"),
            record(20, "DISCONNECT", "compute", 0, 1, "quantum"),
            record(21, "CONNECT", "compute", 0, 3, "map"),
            record(30, "DISCONNECT", "compute", 1, 2, "unmap"),
        ]);
        assert_eq!(
            stays(&t, "me 1 pipe 0 queue 2"),
            [(10, 20, 1, "quantum".into()), (21, 30, 3, String::new())]
        );
        assert_eq!(
            stays(&t, "me 1 pipe 1 queue 2"),
            [(11, 30, 2, "unmap".into())]
        );
        assert_eq!(stays(&t, "sdma0 queue 2"), [(12, 30, 1, String::new())]);
        assert_eq!(t.processes(), [1, 2, 3]);
        let names: Vec<String> = t.rows.keys().map(Slot::name).collect();
        assert_eq!(names.last().unwrap(), "sdma0 queue 2", "SDMA comes last");
    }

    #[test]
    fn a_trace_that_begins_in_the_middle_counts_from_its_edge() {
        let t = Timeline::new(&[
            record(5, "CONNECT", "compute", 1, 9, "map"),
            record(8, "DISCONNECT", "compute", 0, 4, "quantum"),
            // Neither a second end nor another ring makes a stay.
            record(9, "DISCONNECT", "compute", 0, 4, "quantum"),
        ]);
        assert_eq!(
            stays(&t, "me 1 pipe 0 queue 2"),
            [(5, 8, 4, "quantum".into())]
        );
        assert_eq!(Timeline::new(&[]), Timeline::default());
    }

    #[test]
    fn the_kernels_queues_come_last() {
        let t = Timeline::new(&[
            record(1, "CONNECT", "compute", 3, 0, "static"),
            record(2, "CONNECT", "compute", 0, 7, "map"),
        ]);
        assert_eq!(t.processes(), [7, 0]);
    }
}
