// SPDX-License-Identifier: GPL-2.0

//! What the suites of the scheduler begin and end with: schedulers on a fake device, processes,
//! queues, and keep-alives that are counted.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use super::{
    config::Config,
    desired::queue::QueueHold,
    fake::{
        doorbell,
        Fake, //
    },
    params::{
        KeepAlive,
        ProcessParams,
        QueueKind,
        QueueSpec,
        SdmaPlace, //
    },
    platform::Platform,
    worker::Worker, //
};
use crate::{
    gpu::conduct::{
        Conducts,
        Standing, //
    },
    hw::{
        asic::GFX90A,
        mqd::Eop,
        num::widen, //
    },
    kapi::{
        task::ThreadGroup,
        workqueue::OwnedQueue, //
    }, //
};

/// Settings of most suites: no delay, so that the driver of a test decides when things happen.
pub(super) fn config() -> Config {
    Config {
        gather_us: 0,
        // Of gfx90a one that hands out global wave sync, and does not check retry modes.
        mec_firmware: 0x28,
        ..Config::default()
    }
}

/// Who calls the scheduler of a fake, and what is held against them.
#[pin_data]
pub(super) struct Callers {
    conducts: Arc<Conducts>,
    #[pin]
    current: Mutex<Option<ThreadGroup>>,
}

impl Callers {
    /// Everybody who calls is somebody else.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            conducts: Conducts::new()?,
            current <- new_mutex!(None),
        }? Error)
    }

    /// From now on `group` calls.
    pub(super) fn set(&self, group: ThreadGroup) {
        let old = self.current.lock().replace(group);
        drop(old);
    }

    /// How many are known.
    pub(super) fn count(&self) -> usize {
        self.conducts.count()
    }

    /// As [`Platform::standing`].
    pub(super) fn standing(&self) -> Result<Standing> {
        let current = self.current.lock().clone();
        match current {
            Some(group) => self.conducts.standing(0, &group),
            None => Conducts::new()?.standing(0, &ThreadGroup::current()),
        }
    }
}

/// A scheduler that its test drives.
pub(super) fn scheduler(fake: &Arc<Fake>, config: Config) -> Result<Arc<Worker>> {
    let platform: Arc<dyn Platform> = fake.clone();
    Worker::new(platform, config, None)
}

/// A scheduler with its worker.
pub(super) fn working_scheduler(fake: &Arc<Fake>, config: Config) -> Result<Arc<Worker>> {
    let platform: Arc<dyn Platform> = fake.clone();
    let queue = OwnedQueue::new(c"rkfd-sched-test", 3)?;
    Worker::new(platform, config, Some(queue))
}

/// A well-behaved gfx90a and a driven scheduler on it, with the log of the bring-up taken.
pub(super) fn setup() -> Result<(Arc<Fake>, Arc<Worker>)> {
    setup_with(config())
}

/// As [`setup`], with other settings.
pub(super) fn setup_with(config: Config) -> Result<(Arc<Fake>, Arc<Worker>)> {
    let fake = Fake::new(&GFX90A)?;
    let sched = scheduler(&fake, config)?;
    let _ = fake.log();
    Ok((fake, sched))
}

/// A process.
pub(super) fn process(pasid: u16) -> ProcessParams {
    ProcessParams {
        pasid,
        page_table_base: 0x1234_5001,
        sh_mem_config: 0x1018,
        sh_mem_bases: 0x0001_0002,
        tba: 0,
        tma: 0,
        keep: None,
    }
}

/// A compute queue with doorbell `n`.
pub(super) fn pm4(n: u32) -> QueueSpec {
    QueueSpec {
        kind: QueueKind::Pm4,
        ring_base: 0x7f00_0000_0000 + widen(n) * 0x10_0000,
        ring_size: 0x1000,
        rptr: 0x7e00_0000_0000 + widen(n) * 0x1000,
        wptr: 0x7e00_0000_0080 + widen(n) * 0x1000,
        eop: Some(Eop {
            base: 0x7d00_0000_0000 + widen(n) * 0x1000,
            bytes: 4096,
        }),
        cwsr: None,
        doorbell: doorbell(n),
        priority: 7,
        percent: 100,
        cu_mask: None,
        trap: false,
        gws: false,
    }
}

/// An SDMA queue with doorbell `n`.
pub(super) fn sdma(n: u32, engine: u32, queue: u32) -> QueueSpec {
    QueueSpec {
        kind: QueueKind::Sdma(SdmaPlace { engine, queue }),
        eop: None,
        ..pm4(n)
    }
}

/// Creates a compute queue with doorbell `n`.
pub(super) fn create(sched: &Arc<Worker>, proc: u64, n: u32) -> Result<u64> {
    sched.create_queue(proc, pm4(n), QueueHold::default())
}

/// Counts how many of it live.
pub(super) struct Token {
    count: Arc<Atomic<i64>>,
}

impl KeepAlive for Token {}

impl Token {
    /// A keep-alive that is counted in `count`.
    pub(super) fn keep(count: &Arc<Atomic<i64>>) -> Result<Arc<dyn KeepAlive>> {
        count.add(1, Relaxed);
        let token: Arc<dyn KeepAlive> = Arc::new(
            Self {
                count: count.clone(),
            },
            GFP_KERNEL,
        )?;
        Ok(token)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.count.add(-1, Relaxed);
    }
}

/// Shuts a scheduler down and checks that nothing is left and no rule was broken.
pub(super) fn finish(fake: &Arc<Fake>, sched: Arc<Worker>) -> Result {
    sched.shutdown();
    sched.release();
    let mapped = fake.mapped();
    drop(sched);
    let (blocks, breaches) = (fake.blocks(), fake.breaches());
    if mapped != 0 || blocks != 0 || breaches != 0 {
        pr_err!("left behind: {mapped} queues mapped, {blocks} blocks, {breaches} breaches\n");
        return Err(EBUSY);
    }
    Ok(())
}
