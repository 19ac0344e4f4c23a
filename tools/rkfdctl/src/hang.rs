// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl hang`: breaks something in the device model and sees who is hurt.
//!
//! A guilty and an innocent process have a PM4, an AQL and an SDMA queue each and verify all that their packets write.
//! When both work, a fault of the model is switched on, for one of the guilty one's queues where the fault can be for one
//! queue, and for the scheduler's own where fences are lost. What the two are told, whether their queues go on, and how
//! long calls take is printed as JSON.

mod actor;

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Kfd;
use serde::Serialize;
use serde_json::json;
use serde_json::Value;

use crate::control::Control;
use crate::debugfs;
use crate::trace::control_of;
use actor::Says;
use actor::Told;

/// Batches that a queue must verify to count as alive.
const ALIVE: u64 = 5;

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    actor: Option<Hidden>,
    /// The model's fault, such as hang-queue, ignore-preempt, ignore-queue-reset, ignore-reset, slow-preempt, hang-hws, drop-fences, drop-interrupts, drop-msi
    #[arg(long)]
    fault: Option<String>,
    /// Which of the guilty process's queues it strikes, where it can be for one queue
    #[arg(long, value_enum, default_value_t = Struck::Pm4)]
    queue: Struck,
    /// Only so often
    #[arg(long)]
    count: Option<u64>,
    /// The fault's duration in milliseconds
    #[arg(long)]
    ms: Option<u64>,
    /// Let the innocent process create a queue meanwhile, use it and destroy it, which takes preemptions
    #[arg(long)]
    preempt: bool,
    /// Let the guilty process change the queue that the fault strikes, which takes that queue off the hardware
    #[arg(long)]
    touch: bool,
    /// Wait for the guilty process's hardware exception
    #[arg(long)]
    exception: bool,
    /// Let the fault act for so many seconds, for one that nobody is told of
    #[arg(long, conflicts_with = "exception")]
    watch: Option<f64>,
    /// Let the fault act until this counter of the driver's debugfs file `sched` has grown
    #[arg(long, value_name = "COUNTER")]
    until: Option<String>,
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Seconds that any step may take
    #[arg(long, default_value_t = 60.0)]
    patience: f64,
}

/// A queue of a process, in the order in which it has them.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Struck {
    Pm4,
    Aql,
    Sdma,
}

impl Struck {
    fn index(self) -> usize {
        match self {
            Self::Pm4 => 0,
            Self::Aql => 1,
            Self::Sdma => 2,
        }
    }
}

#[derive(clap::Subcommand)]
enum Hidden {
    /// One process of a scenario
    #[command(hide = true)]
    Actor(actor::Options),
}

/// What one process went through.
#[derive(Debug, Default, Serialize)]
struct Story {
    /// The first exception it was told.
    exception: Option<Told>,
    /// Batches verified when the fault was switched on, by queue.
    before: Vec<u64>,
    /// … and at the end.
    after: Vec<u64>,
    /// Whether each queue went on.
    alive: Vec<bool>,
    /// The first wrong content of memory.
    wrong: Option<String>,
    /// Why it ended early.
    failed: Option<String>,
}

#[derive(Serialize)]
struct Outcome {
    fault: String,
    doorbell: Option<u64>,
    /// What CREATE_QUEUE said while the fault was on.
    created: Vec<Value>,
    /// Batches that the queue created then has finished.
    created_good: u64,
    /// What UPDATE_QUEUE said to the guilty process.
    touched: Vec<Value>,
    /// Milliseconds that DESTROY_QUEUE took.
    destroyed_ms: Option<u64>,
    guilty: Story,
    innocent: Story,
    seconds: f64,
}

/// A process and what is known of it.
struct Actor {
    child: Child,
    says: mpsc::Receiver<anyhow::Result<Says>>,
    rings: Vec<u64>,
    good: Vec<u64>,
    extra: u64,
    created: Vec<Value>,
    touched: Vec<Value>,
    destroyed: Option<u64>,
    reported: bool,
    story: Story,
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Actor {
    fn start(gpu: usize, index: u64) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program's own path")?;
        let mut child = Command::new(program)
            .args(["hang", "actor", "--gpu", &gpu.to_string()])
            .args(["--index", &index.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a process")?;
        let out = child.stdout.take().context("a process without output")?;
        let (sender, says) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let said = line
                    .map_err(anyhow::Error::from)
                    .and_then(|line| Ok(serde_json::from_str(&line)?));
                if sender.send(said).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            says,
            rings: Vec::new(),
            good: Vec::new(),
            extra: 0,
            created: Vec::new(),
            touched: Vec::new(),
            destroyed: None,
            reported: false,
            story: Story::default(),
        })
    }

    /// Tells it what to do; that it is gone is part of its story.
    fn tell(&mut self, word: &str) {
        let told = match &mut self.child.stdin {
            Some(input) => writeln!(input, "{word}").is_ok(),
            None => false,
        };
        if !told {
            self.ended();
        }
    }

    fn ended(&mut self) {
        self.story
            .failed
            .get_or_insert_with(|| "it ended".to_owned());
    }

    /// Takes in what it said up to now.
    fn hear(&mut self) -> anyhow::Result<()> {
        loop {
            match self.says.try_recv() {
                Ok(said) => self.take(said?),
                Err(mpsc::TryRecvError::Empty) => return Ok(()),
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.ended();
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, said: Says) {
        match said {
            Says::Ready { rings } => self.rings = rings,
            Says::Progress { good, extra, error } => {
                self.good = good;
                // It is gone once it was destroyed.
                self.extra = self.extra.max(extra);
                if self.story.wrong.is_none() {
                    self.story.wrong = error;
                }
            }
            Says::Exception(told) => {
                self.story.exception.get_or_insert(told);
            }
            Says::Created { errno, ms } => {
                self.created.push(json!({ "errno": errno, "ms": ms }));
            }
            Says::Touched { errno, ms } => {
                self.touched.push(json!({ "errno": errno, "ms": ms }));
            }
            Says::Destroyed { ms } => self.destroyed = Some(ms),
            Says::Reported => self.reported = true,
            Says::Failed { why } => {
                self.story.failed.get_or_insert(why);
            }
        }
    }

    /// Which queues verified [`ALIVE`] batches more than `then`.
    fn alive_since(&self, then: &[u64]) -> Vec<bool> {
        self.good
            .iter()
            .zip(then)
            .map(|(now, then)| *now >= then + ALIVE)
            .collect()
    }

    fn all_alive_since(&self, then: &[u64]) -> bool {
        !then.is_empty() && self.alive_since(then).iter().all(|a| *a)
    }
}

/// A number that the driver counts up.
struct Counter {
    pci: String,
    name: String,
    first: u64,
}

impl Counter {
    fn new(gpu: usize, name: &str) -> anyhow::Result<Self> {
        let device = Kfd::open()?.gpus()?;
        let pci = device
            .get(gpu)
            .and_then(|gpu| gpu.pci())
            .context("a GPU without a PCI address")?;
        let mut counter = Self {
            pci: pci.address,
            name: name.to_owned(),
            first: 0,
        };
        counter.first = counter
            .read()
            .with_context(|| format!("the driver does not count {name}"))?;
        Ok(counter)
    }

    fn read(&self) -> Option<u64> {
        let text = debugfs::read(&self.pci, "sched").ok()?;
        debugfs::counters(&text).get(&self.name).copied()
    }

    fn grew(&self) -> bool {
        self.read().is_some_and(|now| now > self.first)
    }
}

struct Scene {
    guilty: Actor,
    innocent: Actor,
    patience: Duration,
}

impl Scene {
    /// Waits until both processes have told everything that their queues finished up to now.
    fn take_stock(&mut self) -> anyhow::Result<()> {
        for actor in [&mut self.guilty, &mut self.innocent] {
            actor.reported = false;
            actor.tell("report");
        }
        let told = |a: &Actor| a.reported || a.story.failed.is_some();
        if !self.until(|g, i| told(g) && told(i))? {
            bail!("a process does not say what its queues have done");
        }
        Ok(())
    }

    /// Waits until `done`. Returns whether it came true in time.
    fn until(&mut self, mut done: impl FnMut(&Actor, &Actor) -> bool) -> anyhow::Result<bool> {
        let end = Instant::now() + self.patience;
        loop {
            self.guilty.hear()?;
            self.innocent.hear()?;
            if done(&self.guilty, &self.innocent) {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The model while a fault is on, which whatever ends the scenario switches off: the next one wants a sound GPU.
struct FaultOn(Control);

impl FaultOn {
    fn off(&mut self) -> anyhow::Result<()> {
        self.0.request(&json!({ "cmd": "clear-faults" }))?;
        Ok(())
    }

    /// Switches it off and says whether that went well.
    fn clear(mut self) -> anyhow::Result<()> {
        self.off()
    }
}

impl Drop for FaultOn {
    fn drop(&mut self) {
        // Twice is no harm; an error has been reported, or there is a worse one.
        let _ = self.off();
    }
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if let Some(Hidden::Actor(actor)) = &options.actor {
        return actor::run(actor);
    }
    let fault = options.fault.as_deref().context("--fault is missing")?;
    let patience = Duration::try_from_secs_f64(options.patience)
        .context("--patience takes a number of seconds")?;
    let watch = options
        .watch
        .map(Duration::try_from_secs_f64)
        .transpose()
        .context("--watch takes a number of seconds")?;
    let mut control = control_of(options.gpu)?;
    let counter = options
        .until
        .as_deref()
        .map(|name| Counter::new(options.gpu, name))
        .transpose()?;
    let mut scene = Scene {
        guilty: Actor::start(options.gpu, 1)?,
        innocent: Actor::start(options.gpu, 2)?,
        patience,
    };
    let both = |g: &Actor, i: &Actor| {
        [g, i]
            .iter()
            .all(|a| a.good.len() == 3 && a.good.iter().all(|n| *n >= ALIVE))
    };
    if !scene.until(both)? {
        bail!(
            "the processes did not begin to work: {:?}, {:?}",
            scene.guilty.story,
            scene.innocent.story
        );
    }

    let doorbell = match fault {
        "hang-queue" | "ignore-preempt" | "ignore-queue-reset" | "ignore-reset"
        | "slow-preempt" => {
            let ring = scene.guilty.rings.get(options.queue.index()).copied();
            Some(doorbell_of(
                &mut control,
                ring.context("no ring")?,
                patience,
            )?)
        }
        // Fences of users' packets are their own affair; lost ones leave their queues waiting for ever.
        "drop-fences" => Some(doorbell_of_scheduler(&mut control)?),
        _ => None,
    };
    let mut request = json!({ "cmd": "fault", "kind": fault });
    for (key, number) in [
        ("doorbell", doorbell),
        ("count", options.count),
        ("ms", options.ms),
    ] {
        if let Some(n) = number {
            request[key] = n.into();
        }
    }
    control.request(&request)?;
    let fault_on = FaultOn(control);
    let began = Instant::now();
    scene.until(|_, _| true)?;
    scene.guilty.story.before = scene.guilty.good.clone();
    scene.innocent.story.before = scene.innocent.good.clone();

    if options.preempt {
        scene.innocent.tell("create");
        scene.until(|_, i| !i.created.is_empty() || i.story.failed.is_some())?;
        // A queue that is destroyed before the scheduler got to it never needed a preemption; one that works has had it.
        if scene.innocent.created.iter().all(|c| c["errno"].is_null()) {
            scene.until(|_, i| i.extra > 0 || i.story.failed.is_some())?;
        }
        scene.innocent.tell("destroy");
        scene.until(|_, i| i.destroyed.is_some() || i.story.failed.is_some())?;
    }
    if options.touch {
        scene
            .guilty
            .tell(&format!("touch {}", options.queue.index()));
        scene.until(|g, _| !g.touched.is_empty() || g.story.failed.is_some())?;
    }
    if options.exception {
        scene.until(|g, _| g.story.exception.is_some() || g.story.failed.is_some())?;
    }
    if let Some(watch) = watch {
        let end = Instant::now() + watch;
        scene.until(|_, _| Instant::now() >= end)?;
    }
    let mut counted = true;
    if let Some(counter) = &counter {
        counted = scene
            .until(|g, i| counter.grew() || g.story.failed.is_some() || i.story.failed.is_some())?;
    }
    // From here on, whatever was lost has been noticed, or nothing was: everybody who can go on does. What a queue
    // finished before that, and its process only tells now, is no sign of life.
    scene.take_stock()?;
    let then = (scene.guilty.good.clone(), scene.innocent.good.clone());
    scene.until(|_, i| i.all_alive_since(&then.1) || i.story.failed.is_some())?;
    if !counted {
        bail!("the counter did not grow");
    }
    // One that a fault of its own queue stopped does not go on with all of them.
    let noticed = watch.is_some() || counter.is_some() || options.exception;
    let stopped = fault != "drop-fences" && doorbell.is_some() && noticed;
    if stopped {
        scene.until(|g, _| {
            let mut alive = g.alive_since(&then.0);
            let struck = options.queue.index();
            if struck < alive.len() {
                alive.remove(struck);
            }
            !alive.is_empty() && alive.into_iter().all(|a| a) || g.story.failed.is_some()
        })?;
    } else {
        scene.until(|g, _| g.all_alive_since(&then.0) || g.story.failed.is_some())?;
    }
    let seconds = began.elapsed().as_secs_f64();
    fault_on.clear()?;
    let Scene {
        mut guilty,
        mut innocent,
        ..
    } = scene;
    for (actor, then) in [(&mut guilty, &then.0), (&mut innocent, &then.1)] {
        actor.story.after = actor.good.clone();
        actor.story.alive = actor.alive_since(then);
        actor.tell("stop");
    }
    let outcome = Outcome {
        fault: fault.to_owned(),
        doorbell,
        created: std::mem::take(&mut innocent.created),
        created_good: innocent.extra,
        touched: std::mem::take(&mut guilty.touched),
        destroyed_ms: innocent.destroyed,
        guilty: std::mem::take(&mut guilty.story),
        innocent: std::mem::take(&mut innocent.story),
        seconds,
    };
    anstream::println!("{}", serde_json::to_string_pretty(&outcome)?);
    Ok(ExitCode::SUCCESS)
}

/// The doorbell of the scheduler's own queue.
fn doorbell_of_scheduler(control: &mut Control) -> anyhow::Result<u64> {
    let answer = control.request(&json!({ "cmd": "queues" }))?;
    answer
        .get("compute")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|q| q.get("role").and_then(Value::as_str) == Some("Hiq"))
        .and_then(|q| q.get("doorbell")?.as_u64())
        .context("the scheduler has no queue: the driver loads queues itself")
}

/// The doorbell of the connected queue with this ring, as the model counts them.
fn doorbell_of(control: &mut Control, ring: u64, limit: Duration) -> anyhow::Result<u64> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        let answer = control.request(&json!({ "cmd": "queues" }))?;
        let found = ["compute", "sdma"]
            .iter()
            .filter_map(|kind| answer.get(kind)?.as_array())
            .flatten()
            .find(|q| q.get("ring").and_then(Value::as_u64) == Some(ring))
            .and_then(|q| q.get("doorbell")?.as_u64());
        if let Some(doorbell) = found {
            return Ok(doorbell);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("the queue with the ring at {ring:#x} does not come onto the hardware")
}
