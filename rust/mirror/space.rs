// SPDX-License-Identifier: GPL-2.0

//! All mirrors of an address space, and its queues while memory changes.

use core::ops::Range;

use kernel::{
    impl_has_work,
    new_mutex,
    new_spinlock,
    new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::Work, //
};

use super::{
    accesses::Accesses,
    hints::Hint,
    migrate::{
        Place,
        Tally, //
    },
    quiesce::{
        Pause,
        Refill, //
    },
    range::Mirror,
    rules::Rules,
    shape::{
        Request,
        Rights,
        Shape, //
    },
};
use crate::{
    gpu::{
        mirrors::MirrorFigures,
        registry::{
            registry,
            Registry, //
        }, //
    },
    kapi::{
        drm_file::DrmDevice,
        hmm::AddressSpace,
        task::current_tgid, //
    },
    sched::{
        SchedProcess,
        Scheduler, //
    },
    trace,
    vm::{
        va,
        Vm, //
    },
};

mod ruled;
mod serve;

/// The mirrors.
struct List {
    /// In the order of their ids.
    mirrors: KVec<Arc<Mirror>>,
    /// The id that was given last.
    last: u32,
    /// The file is closed.
    closed: bool,
}

/// All mirrors of an address space.
#[pin_data]
pub(crate) struct Mirrors {
    pause: Arc<Pause>,
    /// The process that made it.
    pid: i32,
    registry: Arc<Registry>,
    #[pin]
    list: Mutex<List>,
    /// Accesses that the GPU repeats. An innermost lock, for the interrupt thread takes it: nothing is allocated under it.
    #[pin]
    accesses: SpinLock<Accesses>,
    /// The lanes of `accesses`.
    #[pin]
    lane0: Work<Self, 0>,
    #[pin]
    lane1: Work<Self, 1>,
    #[pin]
    lane2: Work<Self, 2>,
    #[pin]
    lane3: Work<Self, 3>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Mirrors { self.lane0 }
    impl HasWork<Self, 1> for Mirrors { self.lane1 }
    impl HasWork<Self, 2> for Mirrors { self.lane2 }
    impl HasWork<Self, 3> for Mirrors { self.lane3 }
}

impl Refill for Mirrors {
    fn refill(&self) -> Result {
        self.accesses.lock().note_shown(&(0..va::USER_END));
        let mut last = 0;
        loop {
            if self.list.lock().closed {
                return Err(ENODEV);
            }
            let Some(mirror) = self.after(last) else {
                return Ok(());
            };
            mirror.refill()?;
            last = mirror.id();
        }
    }
}

impl Mirrors {
    /// None, of `vm`. With `rules` it is these that say what the GPU may do in all mirrors, and no mirror allows more. To be
    /// closed in the end.
    ///
    /// # Errors
    ///
    /// `ENODEV` while the module is being unloaded, `ENOMEM`.
    pub(crate) fn new(
        vm: &Arc<Vm>,
        sched: &Arc<Scheduler>,
        rules: Option<Arc<dyn Rules>>,
    ) -> Result<Arc<Self>> {
        let pause = Pause::new(vm, sched, rules)?;
        let registry = registry()?;
        Arc::pin_init(
            pin_init!(Self {
                pause,
                pid: current_tgid(),
                registry,
                accesses <- new_spinlock!(Accesses::new(), "rkfd_mirror_accesses"),
                lane0 <- new_work!("Mirrors::lane0"),
                lane1 <- new_work!("Mirrors::lane1"),
                lane2 <- new_work!("Mirrors::lane2"),
                lane3 <- new_work!("Mirrors::lane3"),
                list <- new_mutex!(
                    List {
                        mirrors: KVec::new(),
                        last: 0,
                        closed: false,
                    },
                    "rkfd_mirrors"
                ),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The process that made it.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// The address space.
    pub(super) fn vm(&self) -> &Arc<Vm> {
        self.pause.vm()
    }

    /// The first mirror with an id above `last`.
    pub(super) fn after(&self, last: u32) -> Option<Arc<Mirror>> {
        let list = self.list.lock();
        let next = list.mirrors.partition_point(|mirror| mirror.id() <= last);
        list.mirrors.get(next).cloned()
    }

    /// Counts for people.
    fn figures(&self) -> &MirrorFigures {
        self.vm().gpu().mirrors()
    }

    /// A number that no other one has as long as this is there.
    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Shows memory of the caller, as much of it as there is.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no whole pages, none, or GPU addresses that cannot be used.
    /// - `EOVERFLOW`: one of the ranges wraps around.
    /// - `EFAULT`: no program has such addresses.
    /// - `EADDRINUSE`: another mirror or a buffer has some of the GPU addresses.
    /// - `ENOSPC`: too many mirrors.
    /// - `EOPNOTSUPP`: the machine gives the GPU copies of memory.
    /// - `ESRCH`: another thread destroyed the mirror before it was filled.
    /// - `EAGAIN`: the memory does not stop changing.
    /// - `ENOMEM`, `EINTR`; `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer.
    pub(crate) fn create(self: &Arc<Self>, request: &Request) -> Result<Arc<Mirror>> {
        let shape = Shape::new(request)?;
        let memory = AddressSpace::of_caller().ok_or(EINVAL)?;
        let range = self.pause.vm().reserve(request.gpu, request.len)?;
        let mirror = self.list(shape, memory).inspect_err(|_| {
            self.pause.vm().release(range.start);
        })?;
        let filled = if request.filling.at_once {
            self.accesses.lock().note_shown(&range);
            mirror.populate(&range, false)
        } else {
            Ok(())
        };
        if let Err(error) = filled {
            // Not if another thread has destroyed it.
            if let Ok(mirror) = self.take(mirror.id()) {
                mirror.end();
            }
            return Err(error);
        }
        Ok(mirror)
    }

    /// Shows all memory of the caller, also what it maps later, at its own addresses: with `on_access` when the GPU accesses
    /// it there, else what rules keep, see [`Self::show_by_rules`]. What buffers have, now or later, is theirs.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the caller is no program.
    /// - `EADDRINUSE`: there is a mirror.
    /// - `ENOSPC`: too many mirrors have been made.
    /// - `ENODEV`: the file is closed. `ENOMEM`.
    pub(crate) fn create_whole(
        self: &Arc<Self>,
        rights: Rights,
        on_access: bool,
    ) -> Result<Arc<Mirror>> {
        let memory = AddressSpace::of_caller().ok_or(EINVAL)?;
        let vm = self.pause.vm();
        vm.reserve_rest()?;
        let listed = self.list(Shape::whole(rights, on_access), memory);
        listed.inspect_err(|_| vm.release_rest())
    }

    /// Takes away what a mirror shows of `range`, GPU addresses; what is being found there is found once more, by the rules
    /// that hold now. Queues that rely on it wait until then.
    fn withdraw(&self, mirror: &Mirror, range: &Range<u64>) {
        self.take_away(mirror, range, |mirror| mirror.rules_changed(range));
    }

    /// Has `take` take away some of what a mirror shows of `range`, GPU addresses. Queues that rely on it wait until it is found
    /// again.
    fn take_away(&self, mirror: &Mirror, range: &Range<u64>, take: impl FnOnce(&Mirror)) {
        let relied_on = mirror.is_relied_on(range);
        if relied_on {
            self.pause.stop();
        }
        take(mirror);
        if relied_on {
            self.pause.refill_soon();
        }
    }

    /// Takes away all that is shown. Queues that rely on it wait until it is found again.
    pub(super) fn hide_all(&self) {
        let mut last = 0;
        while let Some(mirror) = self.after(last) {
            self.withdraw(&mirror, &mirror.gpu());
            last = mirror.id();
        }
    }

    fn list(self: &Arc<Self>, shape: Shape, memory: AddressSpace) -> Result<Arc<Mirror>> {
        let mut list = self.list.lock();
        if list.closed {
            return Err(ENODEV);
        }
        let id = list.last.checked_add(1).ok_or(ENOSPC)?;
        let request = shape.request();
        let mirror = Mirror::new(&self.pause, id, shape, memory)?;
        list.mirrors.reserve(1, GFP_KERNEL_ACCOUNT)?;
        if id == 1 {
            self.figures().list(self.key(), self.clone())?;
        }
        list.mirrors.push(mirror.clone(), GFP_KERNEL_ACCOUNT)?;
        self.pause.set_refill(Some(self.clone()));
        list.last = id;
        trace::mirror_create(
            self.vm().gpu().id(),
            self.pid,
            self.vm().pasid(),
            id,
            request.cpu,
            request.gpu,
            request.len,
        );
        Ok(mirror)
    }

    /// The mirror with an id.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub(crate) fn find(&self, id: u32) -> Result<Arc<Mirror>> {
        let list = self.list.lock();
        let at = list.mirrors.binary_search_by_key(&id, |m| m.id());
        let at = at.map_err(|_| ENOENT)?;
        list.mirrors.get(at).cloned().ok_or(ENOENT)
    }

    fn take(&self, id: u32) -> Result<Arc<Mirror>> {
        let mut list = self.list.lock();
        let at = list.mirrors.binary_search_by_key(&id, |m| m.id());
        let at = at.map_err(|_| ENOENT)?;
        list.mirrors.remove(at).map_err(|_| ENOENT)
    }

    /// Ends a mirror. When this returns the GPU does not reach its memory.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub(crate) fn destroy(&self, id: u32) -> Result {
        self.take(id)?.end();
        Ok(())
    }

    /// Ends all mirrors. When this returns the GPU does not reach their memory.
    pub(crate) fn destroy_all(&self) {
        let mirrors = core::mem::replace(&mut self.list.lock().mirrors, KVec::new());
        for mirror in &mirrors {
            mirror.end();
        }
    }

    /// Shows all that a mirror has at `len` bytes from GPU address `va` on.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: no such mirror.
    /// - `EINVAL`: no whole pages of it, or none.
    /// - `EFAULT`: there is no memory somewhere, or none that the GPU can use.
    /// - `ESRCH`: the program whose memory it is has ended.
    /// - Others as those of [`Self::create`].
    pub(crate) fn populate(&self, id: u32, va: u64, len: u64) -> Result {
        let (mirror, range) = self.part_of(id, va, len)?;
        self.accesses.lock().note_shown(&range);
        mirror.populate(&range, true)
    }

    /// Notes where what a mirror has at `len` bytes from GPU address `va` on is to be when the GPU accesses it; `None`: nothing is
    /// noted any more. What is to be in VRAM, and is shown in the system, is not shown before it is accessed, where accesses are
    /// repeated. The caller's group is charged for VRAM that is to be had, as far as its limit goes.
    ///
    /// # Errors
    ///
    /// All is as before.
    ///
    /// - `ENOENT`: no such mirror. `EINVAL`: no whole pages of it, or none.
    /// - `ENOSPC`: there would be too many ranges. `ENOMEM`.
    pub(crate) fn keep(
        &self,
        dev: &DrmDevice,
        id: u32,
        va: u64,
        len: u64,
        hint: Option<Hint>,
    ) -> Result {
        let (mirror, range) = self.part_of(id, va, len)?;
        mirror.hints().note(self.vm().gpu(), dev, &range, hint)?;
        if matches!(hint, Some(Hint::Vram { .. })) {
            mirror.expect_moves(&range);
        }
        Ok(())
    }

    /// Moves what a mirror has at `len` bytes from GPU address `va` on, as far as it can move. Returns also what has moved and what
    /// has not.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: no such mirror. `EINVAL`: no whole pages of it, or none.
    /// - Those of [`Mirror::migrate`].
    pub(crate) fn migrate(
        &self,
        dev: &DrmDevice,
        id: u32,
        va: u64,
        len: u64,
        place: Place,
    ) -> (Tally, Result) {
        let mut tally = Tally::default();
        let moved = self.part_of(id, va, len).and_then(|(mirror, range)| {
            self.accesses.lock().note_shown(&range);
            let result = mirror.migrate(dev, &range, place, Some(&mut tally));
            self.pause.restore_now();
            result
        });
        (tally, moved)
    }

    /// A mirror, and a part of it.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such mirror. `EINVAL`: no whole pages of it, or none.
    pub(crate) fn part_of(&self, id: u32, va: u64, len: u64) -> Result<(Arc<Mirror>, Range<u64>)> {
        let mirror = self.find(id)?;
        let range = va::check(va, len)?;
        let whole = mirror.gpu();
        if range.start < whole.start || range.end > whole.end {
            return Err(EINVAL);
        }
        Ok((mirror, range))
    }

    /// The address space has queues from now on, or none any more. The old value is to be dropped where that is allowed.
    pub(crate) fn set_process(
        &self,
        process: Option<Arc<SchedProcess>>,
    ) -> Option<Arc<SchedProcess>> {
        self.pause.set_process(process)
    }

    /// The file is closed: ends all mirrors, and makes no more. Queues must be off the hardware.
    pub(crate) fn close(&self) {
        let mirrors = {
            let mut list = self.list.lock();
            list.closed = true;
            core::mem::replace(&mut list.mirrors, KVec::new())
        };
        for mirror in &mirrors {
            mirror.end();
        }
        self.pause.set_refill(None);
        self.figures().unlist(self.key());
        drop(self.set_process(None));
    }
}
