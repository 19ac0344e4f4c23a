// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl trace --timeline`: which queue sat on which hardware slot when, from the model's records of ring `HQD`.
//!
//! Only changes are recorded: that a queue kept its slot throughout the window follows from its being connected at the
//! end.

mod svg;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::control::Record;
use crate::control::Window;

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

impl Stay {
    /// One that begins with this record and lasts.
    fn from_record(record: &Record, end: u64) -> Self {
        Self {
            start: record.t_ns,
            end,
            pasid: record.pasid.unwrap_or(0),
            doorbell: record.doorbell.unwrap_or(0),
            vmid: record.vmid.unwrap_or(0),
            reason: String::new(),
        }
    }
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

/// A queue in the model's table of connected ones.
#[derive(Deserialize)]
struct Connected {
    doorbell: u64,
    #[serde(default)]
    vmid: u32,
    #[serde(default)]
    pasid: u32,
}

/// Where it sits: the model names compute slots and contexts of SDMA engines differently.
#[derive(Deserialize)]
#[serde(untagged)]
enum Place {
    Compute { me: u32, pipe: u32, queue: u32 },
    Sdma { engine: u32, context: String },
}

impl Place {
    /// The slot as the records call it; `None` for a context with another name.
    fn slot(self) -> Option<Slot> {
        match self {
            Self::Compute { me, pipe, queue } => Some(Slot {
                class: 0,
                engine: "compute".to_owned(),
                me,
                pipe,
                queue,
            }),
            Self::Sdma { engine, context } => Some(Slot {
                class: 1,
                engine: format!("sdma{engine}"),
                me: 0,
                pipe: 0,
                // GFX and PAGE, which only a driver's own rings use, come behind the others.
                queue: match context.as_str() {
                    "gfx" => 8,
                    "page" => 9,
                    other => other.strip_prefix("rlc")?.parse().ok()?,
                },
            }),
        }
    }
}

/// The queues of the model's answer to `queues`, and where they sit.
fn connected(queues: &Value) -> Vec<(Slot, Connected)> {
    ["compute", "sdma"]
        .iter()
        .filter_map(|kind| queues.get(kind)?.as_array())
        .flatten()
        .filter_map(|queue| {
            let place = Place::deserialize(queue).ok()?;
            Some((place.slot()?, Connected::deserialize(queue).ok()?))
        })
        .collect()
}

fn slot_of(fields: &Fields) -> Slot {
    Slot {
        class: u32::from(fields.engine != "compute"),
        engine: fields.engine.clone(),
        me: fields.me,
        pipe: fields.pipe,
        queue: fields.queue,
    }
}

impl Timeline {
    /// Pairs connections with disconnections. A queue that was there before the first record, or is there after the
    /// last, stays from or to the edge; one that has no record and is connected at the end was there all the time.
    pub fn new(window: &Window) -> Self {
        let Window { start, end, .. } = *window;
        let mut rows: BTreeMap<Slot, Vec<Stay>> = BTreeMap::new();
        let mut open: BTreeMap<Slot, Stay> = BTreeMap::new();
        for record in window.records.iter().filter(|r| r.ring == "HQD") {
            let Ok(fields) = serde_json::from_value::<Fields>(record.fields.clone()) else {
                continue;
            };
            let slot = slot_of(&fields);
            let mut stay = Stay::from_record(record, end);
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
        for (slot, queue) in connected(&window.queues) {
            let since = rows.get(&slot).and_then(|stays| stays.last());
            let start = since.map_or(start, |earlier| earlier.end);
            open.entry(slot).or_insert_with(|| Stay {
                start,
                end,
                pasid: queue.pasid,
                doorbell: queue.doorbell,
                vmid: queue.vmid,
                reason: String::new(),
            });
        }
        for (slot, stay) in open {
            rows.entry(slot).or_default().push(stay);
        }
        Self { start, end, rows }
    }

    /// How the stays ended, by reason: how often, and how long the middle one lasted (nanoseconds). One whose beginning is
    /// older than the window counts, but its length is unknown; those that last have no reason.
    pub fn reasons(&self) -> BTreeMap<&str, (usize, Option<u64>)> {
        let mut lengths: BTreeMap<&str, (usize, Vec<u64>)> = BTreeMap::new();
        for stay in self.rows.values().flatten() {
            let (count, known) = lengths.entry(&stay.reason).or_default();
            *count += 1;
            if stay.start > self.start {
                known.push(stay.end.saturating_sub(stay.start));
            }
        }
        lengths
            .into_iter()
            .map(|(reason, (count, mut known))| {
                known.sort_unstable();
                (reason, (count, known.get(known.len() / 2).copied()))
            })
            .collect()
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
            "fields": { "engine": engine, "me": u32::from(engine == "compute"), "pipe": pipe, "queue": 2, "reason": reason },
        }))
        .unwrap()
    }

    /// What the records alone tell.
    pub fn of(records: &[Record]) -> Timeline {
        let times = || records.iter().map(|r| r.t_ns);
        Timeline::new(&Window {
            start: times().min().unwrap_or(0),
            end: times().max().unwrap_or(0),
            records: records.to_vec(),
            queues: Value::Null,
        })
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
        let t = of(&[
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
        let t = of(&[
            record(5, "CONNECT", "compute", 1, 9, "map"),
            record(8, "DISCONNECT", "compute", 0, 4, "quantum"),
            // Neither a second end nor another ring makes a stay.
            record(9, "DISCONNECT", "compute", 0, 4, "quantum"),
        ]);
        assert_eq!(
            stays(&t, "me 1 pipe 0 queue 2"),
            [(5, 8, 4, "quantum".into())]
        );
        assert_eq!(of(&[]), Timeline::default());
    }

    #[test]
    fn the_kernels_queues_come_last() {
        let t = of(&[
            record(1, "CONNECT", "compute", 3, 0, "static"),
            record(2, "CONNECT", "compute", 0, 7, "map"),
        ]);
        assert_eq!(t.processes(), [7, 0]);
    }

    /// A window from 100 to 200 ms, with queues on the slots 0, 1 and 2 of the first pipes and on two of an SDMA engine.
    fn window(records: &[Record]) -> Window {
        let compute = |pipe: u32| {
            serde_json::json!({
                "slot": pipe * 8 + 2, "me": 1, "pipe": pipe, "queue": 2, "role": "User",
                "vmid": 8, "pasid": 10 + pipe, "doorbell": 0x900 + pipe, "halted": null,
            })
        };
        let sdma = |context: &str| {
            serde_json::json!({
                "engine": 0, "context": context, "vmid": 9, "pasid": 20, "doorbell": 0xa00, "ring": 1,
            })
        };
        Window {
            start: 100_000_000,
            end: 200_000_000,
            records: records.to_vec(),
            queues: serde_json::json!({
                "ok": true,
                "compute": [compute(0), compute(1), compute(2)],
                "sdma": [sdma("rlc2"), sdma("page")],
                "runlist": { "active": true },
            }),
        }
    }

    #[test]
    fn who_stays_throughout_is_there_all_the_time() {
        let t = Timeline::new(&window(&[]));
        assert_eq!((t.start, t.end), (100_000_000, 200_000_000));
        for (pipe, pasid) in [(0, 10), (1, 11), (2, 12)] {
            assert_eq!(
                stays(&t, &format!("me 1 pipe {pipe} queue 2")),
                [(100, 200, pasid, String::new())]
            );
        }
        assert_eq!(stays(&t, "sdma0 queue 9"), [(100, 200, 20, String::new())]);
        let all: Vec<&Stay> = t.rows.values().flatten().collect();
        assert_eq!((all.len(), all[1].doorbell, all[1].vmid), (5, 0x901, 8));
        assert_eq!(t.processes(), [10, 11, 12, 20]);
    }

    #[test]
    fn what_is_recorded_is_not_told_twice() {
        let t = Timeline::new(&window(&[
            // It was somebody else's before.
            record(120, "DISCONNECT", "compute", 0, 4, "unmap"),
            record(130, "CONNECT", "compute", 0, 10, "map"),
            // Its connection has no record.
            record(140, "DISCONNECT", "compute", 1, 5, "quantum"),
            // It is not connected any more.
            record(150, "CONNECT", "compute", 3, 6, "map"),
            record(160, "DISCONNECT", "compute", 3, 6, "unmap"),
            record(170, "CONNECT", "sdma0", 0, 20, "map"),
        ]));
        assert_eq!(
            stays(&t, "me 1 pipe 0 queue 2"),
            [(100, 120, 4, "unmap".into()), (130, 200, 10, String::new())]
        );
        assert_eq!(
            stays(&t, "me 1 pipe 1 queue 2"),
            [
                (100, 140, 5, "quantum".into()),
                (140, 200, 11, String::new())
            ]
        );
        assert_eq!(
            stays(&t, "me 1 pipe 2 queue 2"),
            [(100, 200, 12, String::new())]
        );
        assert_eq!(
            stays(&t, "me 1 pipe 3 queue 2"),
            [(150, 160, 6, "unmap".into())]
        );
        // The record and the table name the same context.
        assert_eq!(stays(&t, "sdma0 queue 2"), [(170, 200, 20, String::new())]);
    }

    #[test]
    fn stays_are_counted_by_how_they_ended() {
        let mut records = vec![record(120, "DISCONNECT", "compute", 0, 4, "quantum")];
        for (from, to) in [(121, 131), (140, 160), (161, 191)] {
            records.push(record(from, "CONNECT", "compute", 0, 5, "quantum"));
            records.push(record(to, "DISCONNECT", "compute", 0, 5, "quantum"));
        }
        records.push(record(193, "CONNECT", "compute", 0, 6, "quantum"));
        records.push(record(194, "DISCONNECT", "compute", 0, 6, "unmap"));
        let mut w = window(&records);
        w.queues["compute"].as_array_mut().unwrap().truncate(2);
        w.queues["sdma"] = Value::Null;
        w.queues["compute"][0]["pipe"] = 7.into();
        let t = Timeline::new(&w);
        let wanted = [
            ("", (2, None)),
            ("quantum", (4, Some(20_000_000))),
            ("unmap", (1, Some(1_000_000))),
        ];
        assert_eq!(t.reasons(), BTreeMap::from(wanted));
    }

    #[test]
    fn places_without_a_name_are_passed_over() {
        let mut w = window(&[]);
        w.queues["sdma"][0]["context"] = "rlcx".into();
        w.queues["compute"][0]["pipe"] = "first".into();
        assert_eq!(Timeline::new(&w).rows.len(), 3);
        w.queues = Value::Null;
        assert!(Timeline::new(&w).rows.is_empty());
    }
}
