// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What happened: the bounded trace, the protocol errors and the counters.

pub mod file;

use std::collections::VecDeque;
use std::fs::File;

use serde::Serialize;

use self::file::LogFile;
use crate::cp::slot::SlotId;

/// Raw dwords kept of one packet.
pub const MAX_RAW: usize = 24;
/// Trace records kept unless told otherwise.
pub const DEFAULT_RECORDS: usize = 65536;
const MAX_ERRORS: usize = 1024;
/// Errors that are written to stderr and the log file; further ones are counted and kept like the others.
const MAX_ERROR_LINES: u64 = 10_000;

/// Which stream a record belongs to; it also says how its dwords are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Ring {
    /// Kernel interface queue.
    #[serde(rename = "KIQ")]
    Kiq,
    /// Scheduler queue.
    #[serde(rename = "HIQ")]
    Hiq,
    /// Packets of a run-list buffer.
    #[serde(rename = "runlist")]
    Runlist,
    /// PM4 user queue.
    #[serde(rename = "compute")]
    Compute,
    /// AQL user queue.
    #[serde(rename = "aql")]
    Aql,
    /// SDMA queue.
    #[serde(rename = "sdma")]
    Sdma,
    /// Interrupt ring entry.
    #[serde(rename = "ih")]
    Ih,
    /// Scheduler and queue slot events.
    #[serde(rename = "sched")]
    Sched,
    /// Which queue sits on which hardware slot.
    #[serde(rename = "HQD")]
    Hqd,
    /// Address translation events.
    #[serde(rename = "vm")]
    Vm,
    /// Device-wide events.
    #[serde(rename = "device")]
    Device,
}

/// Where a record comes from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin {
    /// VMID of the queue.
    pub vmid: u8,
    /// PASID mapped to that VMID.
    pub pasid: u16,
    /// Doorbell dword index of the queue.
    pub doorbell: u32,
}

/// Why a queue took or left a hardware slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// MAP_QUEUES, by the KIQ or in the first window of a run list.
    Map,
    /// Time slicing of an over-subscribed run list.
    Quantum,
    /// UNMAP_QUEUES with preemption.
    Unmap,
    /// UNMAP_QUEUES with reset, or a reset of queue, pipe, engine or device.
    Reset,
    /// The driver wrote the queue's registers itself.
    Register,
    /// MAP_QUEUES of a static queue.
    Static,
}

impl Reason {
    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Map => "map",
            Reason::Quantum => "quantum",
            Reason::Unmap => "unmap",
            Reason::Reset => "reset",
            Reason::Register => "register",
            Reason::Static => "static",
        }
    }
}

/// A hardware slot that a queue can sit on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// A compute slot.
    Compute(SlotId),
    /// A queue context of an SDMA engine: 0 GFX, 1 PAGE, from 2 on RLC0, RLC1, ...
    Sdma {
        /// Engine.
        engine: usize,
        /// Context.
        block: usize,
    },
}

/// Something that happened and is not a packet.
#[derive(Debug, Clone)]
pub enum Event {
    /// Free text.
    Note {
        /// What happened.
        name: &'static str,
        /// In words.
        text: String,
    },
    /// A queue took (`connect`) or left a hardware slot.
    Seat {
        /// It took the slot.
        connect: bool,
        /// Which.
        seat: Seat,
        /// Why.
        reason: Reason,
        /// More about the queue.
        text: String,
    },
}

/// One trace record.
#[derive(Debug, Clone)]
pub struct Record {
    /// Serial number, from 0.
    pub seq: u64,
    /// Nanoseconds since the model started.
    pub t_ns: u64,
    /// Stream.
    pub ring: Ring,
    /// Queue identity.
    pub origin: Origin,
    /// An event; none for packets, which are decoded when asked for.
    pub event: Option<Event>,
    /// First dwords of the packet.
    pub raw: [u32; MAX_RAW],
    /// How many of `raw` are meaningful.
    pub raw_len: usize,
    /// Length of the whole packet in dwords.
    pub total_len: usize,
}

/// One protocol error: the driver broke the hardware contract.
#[derive(Debug, Clone, Serialize)]
pub struct ProtocolError {
    /// Serial number, from 0.
    pub seq: u64,
    /// Nanoseconds since the model started.
    pub t_ns: u64,
    /// The violated rule, as a stable short name.
    pub rule: &'static str,
    /// What was seen.
    pub text: String,
}

/// Event counters.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// Trapped register reads.
    pub mmio_reads: u64,
    /// Trapped register writes.
    pub mmio_writes: u64,
    /// Doorbell writes.
    pub doorbells: u64,
    /// Doorbell writes that no connected queue owned.
    pub doorbells_unmatched: u64,
    /// Of these, doorbells of queues that wait for a slot.
    pub doorbells_unmapped: u64,
    /// Of these, doorbells that no known queue has.
    pub doorbells_foreign: u64,
    /// Of these, writes that are no doorbells: wrong width or alignment.
    pub doorbells_malformed: u64,
    /// Packets run from the KIQ.
    pub packets_kiq: u64,
    /// Packets run from the HIQ.
    pub packets_hiq: u64,
    /// Packets taken from run-list buffers.
    pub packets_runlist: u64,
    /// PM4 packets of user queues.
    pub packets_compute: u64,
    /// Dwords of the packets from the KIQ.
    pub dwords_kiq: u64,
    /// Dwords of the packets from the HIQ.
    pub dwords_hiq: u64,
    /// Dwords of the buffers of the run lists that were started. Each counts once, however often time slicing walks it.
    pub dwords_runlist: u64,
    /// AQL packets.
    pub packets_aql: u64,
    /// SDMA packets.
    pub packets_sdma: u64,
    /// Kernel dispatches seen (PM4 and AQL).
    pub dispatches: u64,
    /// Waves that failed without a trap handler.
    pub waves_failed: u64,
    /// Run lists started.
    pub runlists: u64,
    /// UNMAP_QUEUES packets of the HIQ.
    pub preemptions: u64,
    /// Over-subscription rotations.
    pub rotations: u64,
    /// Queues connected to hardware slots.
    pub queue_maps: u64,
    /// Queues disconnected.
    pub queue_unmaps: u64,
    /// Of these, queues that UNMAP_QUEUES or a reset took off their slots.
    pub queues_preempted: u64,
    /// Queues that found something else in their save area than they had left there.
    pub saves_changed: u64,
    /// Queues that came back without the indirect buffer that they had left in.
    pub ib_dropped: u64,
    /// Records written into EOP buffers.
    pub eop_records: u64,
    /// Most compute queues connected at a time.
    pub max_connected: u64,
    /// Interrupt vectors written.
    pub interrupts_posted: u64,
    /// Messages sent to the host.
    pub msi_raised: u64,
    /// Messages lost on request (fault drop-msi).
    pub msi_dropped: u64,
    /// Messages that were not sent because bus mastering was off.
    pub msi_blocked: u64,
    /// Accesses to the bus that were tried and did not happen because bus mastering was off; one that is tried again
    /// counts again.
    pub dma_blocked: u64,
    /// Flushes of the host data path that registers asked for.
    pub hdp_flushes: u64,
    /// Interrupt ring overflows.
    pub ih_overflows: u64,
    /// Retry faults posted.
    pub faults_retry: u64,
    /// No-retry faults.
    pub faults_no_retry: u64,
    /// Accesses that were replayed.
    pub replays: u64,
    /// Translation cache hits.
    pub tlb_hits: u64,
    /// Translation cache misses (walks).
    pub tlb_misses: u64,
    /// Invalidation requests, per hub and VMID.
    pub tlb_invalidations: u64,
    /// Bytes moved by SDMA engines.
    pub sdma_bytes: u64,
    /// Bytes moved by DMA_DATA.
    pub cp_dma_bytes: u64,
    /// Mistakes of user programs (bad packets, faults in user queues).
    pub user_errors: u64,
    /// Broken rules on the driver's side.
    pub protocol_errors: u64,
    /// Device resets.
    pub resets: u64,
}

/// Trace, errors and counters of one device.
#[derive(Debug)]
pub struct Log {
    records: VecDeque<Record>,
    capacity: usize,
    next_seq: u64,
    errors: VecDeque<ProtocolError>,
    total_errors: u64,
    file: Option<LogFile>,
    echo: bool,
    /// Counters.
    pub stats: Stats,
}

impl Log {
    /// A log that keeps `capacity` records, copies error lines to `file`, an empty one, and, with `echo`, to stderr.
    pub fn new(capacity: usize, file: Option<File>, echo: bool) -> Self {
        Self {
            records: VecDeque::new(),
            capacity: capacity.max(1),
            next_seq: 0,
            errors: VecDeque::new(),
            total_errors: 0,
            file: file.map(LogFile::new),
            echo,
            stats: Stats::default(),
        }
    }

    fn push(&mut self, record: Record) {
        if self.records.len() >= self.capacity {
            self.records.pop_front();
        }
        self.next_seq += 1;
        self.records.push_back(record);
    }

    /// Records a packet.
    pub fn packet(
        &mut self,
        t_ns: u64,
        ring: Ring,
        origin: Origin,
        words: &[u32],
        total_len: usize,
    ) {
        let mut raw = [0; MAX_RAW];
        let raw_len = words.len().min(MAX_RAW);
        for (d, s) in raw.iter_mut().zip(words) {
            *d = *s;
        }
        let stats = &mut self.stats;
        match ring {
            Ring::Kiq => {
                stats.packets_kiq += 1;
                stats.dwords_kiq += total_len as u64;
            }
            Ring::Hiq => {
                stats.packets_hiq += 1;
                stats.dwords_hiq += total_len as u64;
            }
            Ring::Runlist => stats.packets_runlist += 1,
            Ring::Compute => stats.packets_compute += 1,
            Ring::Aql => stats.packets_aql += 1,
            Ring::Sdma => stats.packets_sdma += 1,
            Ring::Ih | Ring::Sched | Ring::Hqd | Ring::Vm | Ring::Device => {}
        }
        let seq = self.next_seq;
        self.push(Record {
            seq,
            t_ns,
            ring,
            origin,
            event: None,
            raw,
            raw_len,
            total_len,
        });
    }

    /// Records an event that is not a packet.
    pub fn event(
        &mut self,
        t_ns: u64,
        ring: Ring,
        origin: Origin,
        name: &'static str,
        text: String,
    ) {
        self.push_event(t_ns, ring, origin, Event::Note { name, text });
    }

    /// Records that a queue took or left a hardware slot, and counts it.
    pub fn seat(
        &mut self,
        t_ns: u64,
        origin: Origin,
        connect: bool,
        (seat, reason): (Seat, Reason),
        text: String,
    ) {
        let count = if connect {
            &mut self.stats.queue_maps
        } else {
            &mut self.stats.queue_unmaps
        };
        *count += 1;
        if !connect && matches!(reason, Reason::Unmap | Reason::Reset) {
            self.stats.queues_preempted += 1;
        }
        let event = Event::Seat {
            connect,
            seat,
            reason,
            text,
        };
        self.push_event(t_ns, Ring::Hqd, origin, event);
    }

    fn push_event(&mut self, t_ns: u64, ring: Ring, origin: Origin, event: Event) {
        let seq = self.next_seq;
        self.push(Record {
            seq,
            t_ns,
            ring,
            origin,
            event: Some(event),
            raw: [0; MAX_RAW],
            raw_len: 0,
            total_len: 0,
        });
    }

    /// Counts and reports a broken rule.
    pub fn protocol_error(&mut self, t_ns: u64, rule: &'static str, text: String) {
        self.stats.protocol_errors += 1;
        let line = format!(
            "PROTOCOL ERROR #{} t={}us {rule}: {text}",
            self.total_errors,
            t_ns / 1000
        );
        // A driver that breaks a rule for ever must not fill the disk.
        let silent = self.total_errors >= MAX_ERROR_LINES;
        if self.echo && !silent {
            eprintln!("{line}");
        }
        if let Some(file) = self.file.as_mut().filter(|_| !silent) {
            file.line(&line);
        }
        if self.errors.len() >= MAX_ERRORS {
            self.errors.pop_front();
        }
        self.errors.push_back(ProtocolError {
            seq: self.total_errors,
            t_ns,
            rule,
            text,
        });
        self.total_errors += 1;
    }

    /// Writes a line to the log file, if there is one.
    pub fn note(&mut self, line: &str) {
        if let Some(file) = &mut self.file {
            file.line(line);
        }
    }

    /// The records kept, oldest first.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> + ExactSizeIterator {
        self.records.iter()
    }

    /// Serial numbers of the records kept from this time on, and of the oldest one of all.
    pub fn since(&self, t_ns: u64) -> (std::ops::Range<u64>, u64) {
        let oldest = self.records.front().map_or(self.next_seq, |rec| rec.seq);
        let before = self.records.partition_point(|rec| rec.t_ns < t_ns) as u64;
        (oldest + before..self.next_seq, oldest)
    }

    /// The records of these serial numbers that are still there, at most `most`, oldest first.
    pub fn copy_records(&self, seq: std::ops::Range<u64>, most: usize) -> Vec<Record> {
        let oldest = self.records.front().map_or(self.next_seq, |rec| rec.seq);
        // What does not fit into `usize` is not there either.
        let skip = usize::try_from(seq.start.saturating_sub(oldest)).unwrap_or(usize::MAX);
        self.records
            .iter()
            .skip(skip)
            .take_while(|rec| rec.seq < seq.end)
            .take(most)
            .cloned()
            .collect()
    }

    /// The protocol errors kept from this serial number on, at most `most`, oldest first.
    pub fn copy_errors(&self, from: u64, most: usize) -> Vec<ProtocolError> {
        let later = |e: &&ProtocolError| e.seq >= from;
        self.errors
            .iter()
            .filter(later)
            .take(most)
            .cloned()
            .collect()
    }

    /// The last protocol errors, oldest first.
    pub fn errors(&self) -> impl Iterator<Item = &ProtocolError> {
        self.errors.iter()
    }

    /// Protocol errors counted since the start, whether cleared or not.
    pub fn total_errors(&self) -> u64 {
        self.total_errors
    }

    /// Forgets the errors shown so far.  The count since the start, which decides the exit status, is reset too:
    /// a test that provokes errors on purpose clears them.
    pub fn clear_errors(&mut self) {
        self.errors.clear();
        self.total_errors = 0;
        self.stats.protocol_errors = 0;
    }
}
