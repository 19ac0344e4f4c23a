// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One queue under load: batches of packets whose every effect in memory is compared.
//!
//! Batch `n` of a queue writes a pattern that belongs to `n` and to no other batch of any queue, adds 1 to a counter and
//! ends with a fence. The next batch in the same slot is written only after the comparison. A packet that is lost leaves
//! another pattern, one that runs twice another counter.

use std::sync::Arc;

use anyhow::Context;
use rkfd::device::Device;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::packet::aql;
use rkfd::packet::pm4;
use rkfd::packet::sdma;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::queue::SaveBuffer;
use rkfd::signal::Signals;

/// Batches of one queue that the GPU may have at a time.
pub const DEPTH: u64 = 8;

/// Bytes of a batch's slot in the buffer.
const SLOT: usize = 512;
/// Where the slots begin; before them lies the counter.
const FIRST: usize = 512;
/// Dwords of the pattern.
const PATTERN: usize = 8;
/// Bytes of the pattern.
const PATTERN_BYTES: usize = 4 * PATTERN;
/// Places in a slot.
const COPY: usize = 64;
const FILL: usize = 128;
const FILL_BYTES: usize = 64;
const FENCE: usize = 192;
/// The PM4 buffer of an AQL batch.
const CODE: usize = 256;

/// Packets that one batch has.
pub fn packets_per_batch(kind: QueueKind) -> u64 {
    match kind {
        QueueKind::Pm4 => 4,
        QueueKind::Aql => 3,
        QueueKind::Sdma => 5,
    }
}

/// A queue, its memory and what it has been told.
pub struct Load {
    queue: Queue,
    memory: Buffer,
    signals: Option<Signals>,
    seed: u64,
    submitted: u64,
    finished: u64,
    good: u64,
    first_error: Option<String>,
    lost_on_purpose: Option<u64>,
}

impl Load {
    /// Creates the queue and its memory.
    pub fn new(
        device: &Arc<Device>,
        kind: QueueKind,
        seed: u64,
        save: Option<Arc<SaveBuffer>>,
    ) -> rkfd::error::Result<Self> {
        // CAST: a small constant.
        let depth = DEPTH as usize;
        let memory = Buffer::new(device, Kind::Gtt, FIRST + depth * SLOT)?;
        let signals = match kind {
            QueueKind::Aql => Some(Signals::new(device, 3 * depth)?),
            QueueKind::Pm4 | QueueKind::Sdma => None,
        };
        let queue = Queue::with_save_buffer(device, QueueOptions::new(kind), save)?;
        Ok(Self {
            queue,
            memory,
            signals,
            seed,
            submitted: 0,
            finished: 0,
            good: 0,
            first_error: None,
            lost_on_purpose: None,
        })
    }

    /// Leaves the packets that write the pattern out of batch `batch`, to see whether that is noticed.
    pub fn lose(&mut self, batch: u64) {
        self.lost_on_purpose = Some(batch);
    }

    /// Changes the queue to what it is, for which it leaves the hardware and comes back.
    pub fn touch(&mut self) -> Result<(), rkfd::error::Error> {
        let usual = QueueOptions::new(self.queue.kind());
        self.queue.update(usual.percentage, usual.priority)
    }

    /// Address of its ring.
    pub fn ring_address(&self) -> u64 {
        self.queue.ring_address()
    }

    /// What the queue executes.
    pub fn kind(&self) -> QueueKind {
        self.queue.kind()
    }

    /// Batches submitted.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Batches that ended and left in memory what they should.
    pub fn good(&self) -> u64 {
        self.good
    }

    /// The first thing that was wrong.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// True while the GPU has work of this queue.
    pub fn busy(&self) -> bool {
        self.finished < self.submitted
    }

    fn pattern(&self, batch: u64) -> [u32; PATTERN] {
        let mut state = self.seed ^ batch.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        std::array::from_fn(|_| {
            // Marsaglia's xorshift; the constant keeps the state from 0.
            state |= 1 << 63;
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as u32 // CAST: 32 of its bits.
        })
    }

    fn slot(batch: u64) -> usize {
        // CAST: less than the depth.
        FIRST + (batch % DEPTH) as usize * SLOT
    }

    /// Index of the first of a batch's three signals.
    fn signal(batch: u64) -> usize {
        (batch % DEPTH) as usize * 3 // CAST: as above.
    }

    /// The fence of batch `batch`, never 0.
    fn fence(batch: u64) -> u32 {
        (batch as u32) | (1 << 31) // CAST: neighbours in a slot differ in the low bits.
    }

    /// Writes batches until the depth is reached, and rings the doorbell once. Returns whether there were any.
    pub fn fill(&mut self) -> anyhow::Result<bool> {
        // The GPU reports its read pointer now and then: a batch may have ended whose room in the ring is not free yet.
        while self.submitted - self.finished < DEPTH && self.queue.free() >= self.room() {
            self.stage(self.submitted)?;
            self.submitted += 1;
        }
        Ok(self.queue.flush())
    }

    /// Room that a batch takes at most, in units of the ring.
    fn room(&self) -> u64 {
        match self.kind() {
            QueueKind::Pm4 => 64,
            QueueKind::Aql => packets_per_batch(QueueKind::Aql),
            QueueKind::Sdma => 4 * 64,
        }
    }

    fn stage(&mut self, batch: u64) -> anyhow::Result<()> {
        let slot = Self::slot(batch);
        for at in (0..CODE).step_by(4) {
            self.memory.write_u32(slot + at, 0xdead_beef)?;
        }
        self.memory.write_u32(slot + FENCE, 0)?;
        match self.kind() {
            QueueKind::Pm4 => {
                let dwords = self.pm4(batch)?;
                self.queue.stage(&dwords)?;
            }
            QueueKind::Sdma => {
                let dwords = self.sdma(batch)?;
                self.queue.stage(&dwords)?;
            }
            QueueKind::Aql => self.stage_aql(batch)?,
        }
        Ok(())
    }

    fn pm4(&self, batch: u64) -> anyhow::Result<Vec<u32>> {
        let base = self.memory.address();
        let slot = base + Self::slot(batch) as u64; // CAST: offsets in a buffer, here and below.
        let write = pm4::Packet::WriteData {
            address: slot,
            data: self.pattern(batch).to_vec(),
            confirm: true,
        };
        let lost = self.lost_on_purpose == Some(batch);
        Ok(pm4::Packet::encode_all(&[
            if lost {
                pm4::Packet::Nop(vec![0; 4])
            } else {
                write
            },
            pm4::Packet::DmaData {
                source: slot,
                destination: slot + COPY as u64,
                bytes: PATTERN_BYTES as u32,
            },
            pm4::Packet::AtomicMem {
                operation: pm4::ATOMIC_ADD64,
                address: base,
                source: 1,
                compare: 0,
            },
            pm4::Packet::ReleaseMem {
                event: pm4::CACHE_FLUSH_AND_INV_TS,
                address: slot + FENCE as u64,
                data: pm4::ReleaseData::Dword(Self::fence(batch)),
                interrupt: pm4::ReleaseInterrupt::None,
            },
        ])?)
    }

    fn sdma(&self, batch: u64) -> anyhow::Result<Vec<u32>> {
        let base = self.memory.address();
        let slot = base + Self::slot(batch) as u64;
        let pattern = self.pattern(batch);
        Ok(sdma::Packet::encode_all(&[
            sdma::Packet::WriteLinear {
                destination: slot,
                data: pattern.to_vec(),
            },
            sdma::Packet::CopyLinear {
                source: slot,
                destination: slot + COPY as u64,
                bytes: PATTERN_BYTES as u32,
            },
            sdma::Packet::ConstFill {
                destination: slot + FILL as u64,
                data: pattern[0],
                bytes: FILL_BYTES as u32,
            },
            sdma::Packet::Atomic {
                operation: sdma::ATOMIC_ADD64,
                address: base,
                source: 1,
            },
            sdma::Packet::Fence {
                address: slot + FENCE as u64,
                data: Self::fence(batch),
            },
        ])?)
    }

    /// A barrier, a buffer of PM4 packets, another barrier that waits for its signal.
    fn stage_aql(&mut self, batch: u64) -> anyhow::Result<()> {
        let code = self.pm4(batch)?;
        let at = Self::slot(batch) + CODE;
        self.memory.write_dwords(at, &code)?;
        let signals = self.signals.as_ref().context("an AQL queue has signals")?;
        let first = Self::signal(batch);
        for n in first..first + 3 {
            signals.store(n, 1)?;
        }
        let (one, two, three) = (
            signals.address(first)?,
            signals.address(first + 1)?,
            signals.address(first + 2)?,
        );
        let barrier = |kind, dependency, completion| aql::Barrier {
            kind,
            dependencies: [dependency, 0, 0, 0, 0],
            completion,
        };
        let before = barrier(aql::BarrierKind::And, 0, one).encode()?;
        let work = aql::Pm4Buffer {
            address: self.memory.address() + at as u64,
            dwords: code.len() as u32, // CAST: a handful of packets.
            completion: two,
        }
        .encode()?;
        let after = barrier(aql::BarrierKind::Or, two, three).encode()?;
        for (packet, header) in [before, work, after] {
            self.queue.stage_aql(&packet, header)?;
        }
        Ok(())
    }

    fn ended(&self, batch: u64) -> anyhow::Result<bool> {
        Ok(match &self.signals {
            Some(signals) => signals.load(Self::signal(batch) + 2)? <= 0,
            None => self.memory.read_u32(Self::slot(batch) + FENCE)? == Self::fence(batch),
        })
    }

    /// Compares what ended since the last call. Returns whether anything did.
    pub fn collect(&mut self) -> anyhow::Result<bool> {
        let before = self.finished;
        while self.busy() && self.ended(self.finished)? {
            // The fence was seen; what was written before it is read after it.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            match self.check(self.finished)? {
                None => self.good += 1,
                Some(error) => {
                    self.first_error.get_or_insert(error);
                }
            }
            self.finished += 1;
        }
        Ok(self.finished > before)
    }

    /// What is wrong with an ended batch.
    fn check(&self, batch: u64) -> anyhow::Result<Option<String>> {
        let slot = Self::slot(batch);
        let pattern = self.pattern(batch);
        for (i, wanted) in pattern.into_iter().enumerate() {
            for (what, at) in [("pattern", 0), ("copy", COPY)] {
                let found = self.memory.read_u32(slot + at + 4 * i)?;
                if found != wanted {
                    return Ok(Some(format!(
                        "batch {batch}: dword {i} of its {what} is {found:#010x}, not {wanted:#010x}"
                    )));
                }
            }
        }
        if self.kind() == QueueKind::Sdma {
            for at in (FILL..FILL + FILL_BYTES).step_by(4) {
                let found = self.memory.read_u32(slot + at)?;
                if found != pattern[0] {
                    return Ok(Some(format!(
                        "batch {batch}: the fill holds {found:#010x}, not {:#010x}",
                        pattern[0]
                    )));
                }
            }
        }
        if let Some(signals) = &self.signals {
            let fence = self.memory.read_u32(slot + FENCE)?;
            if fence != Self::fence(batch) {
                return Ok(Some(format!("batch {batch}: its fence is {fence:#010x}")));
            }
            for n in 0..3 {
                let value = signals.load(Self::signal(batch) + n)?;
                if value != 0 {
                    return Ok(Some(format!("batch {batch}: signal {n} is at {value}")));
                }
            }
        }
        Ok(None)
    }

    /// After the last batch: the counter says how often batches ran.
    pub fn check_counter(&mut self) -> anyhow::Result<()> {
        let counted = self.memory.read_u64(0)?;
        if !self.busy() && counted != self.submitted {
            self.first_error.get_or_insert(format!(
                "{} batches were submitted, but {counted} were counted by the GPU",
                self.submitted
            ));
        }
        Ok(())
    }
}
