// SPDX-License-Identifier: GPL-2.0

//! All mirrors of an address space, and its queues while memory changes.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::{
    quiesce::{
        Pause,
        Refill, //
    },
    range::Mirror,
    shape::{
        Request,
        Shape, //
    },
};
use crate::{
    kapi::hmm::AddressSpace,
    sched::{
        SchedProcess,
        Scheduler, //
    },
    vm::{
        pt::PAGE,
        va,
        Vm, //
    },
};

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
    #[pin]
    list: Mutex<List>,
}

impl Refill for Mirrors {
    fn refill(&self) -> Result {
        let mut last = 0;
        loop {
            let next = {
                let list = self.list.lock();
                if list.closed {
                    return Err(ENODEV);
                }
                let next = list.mirrors.partition_point(|mirror| mirror.id() <= last);
                list.mirrors.get(next).cloned()
            };
            let Some(mirror) = next else { return Ok(()) };
            mirror.refill()?;
            last = mirror.id();
        }
    }
}

impl Mirrors {
    /// None, of `vm`. To be closed in the end.
    ///
    /// # Errors
    ///
    /// `ENODEV` while the module is being unloaded, `ENOMEM`.
    pub(crate) fn new(vm: &Arc<Vm>, sched: &Arc<Scheduler>) -> Result<Arc<Self>> {
        let pause = Pause::new(vm, sched)?;
        Arc::pin_init(
            pin_init!(Self {
                pause,
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

    /// Shows memory of the caller, as much of it as there is.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no whole pages, none, or GPU addresses that nobody can use.
    /// - `EOVERFLOW`: one of the ranges wraps around.
    /// - `EFAULT`: no program has such addresses.
    /// - `EADDRINUSE`: another mirror or a buffer has some of the GPU addresses.
    /// - `ENOSPC`: too many mirrors.
    /// - `EOPNOTSUPP`: the machine gives the GPU copies of memory.
    /// - `EAGAIN`: the memory does not stop changing.
    /// - `ENOMEM`, `EINTR`; `ENODEV`, `EIO`, `ETIMEDOUT`: the GPU is gone, lost, or did not answer.
    pub(crate) fn create(self: &Arc<Self>, request: &Request) -> Result<Arc<Mirror>> {
        let shape = Shape::new(request)?;
        let memory = AddressSpace::of_caller().ok_or(EINVAL)?;
        let range = self.pause.vm().reserve(request.gpu, request.len)?;
        let mirror = self.list(shape, memory).inspect_err(|_| {
            self.pause.vm().release(range.start);
        })?;
        if let Err(error) = mirror.populate(&range, false) {
            // Not if somebody else has destroyed it.
            if let Ok(mirror) = self.take(mirror.id()) {
                mirror.end();
            }
            return Err(error);
        }
        Ok(mirror)
    }

    fn list(self: &Arc<Self>, shape: Shape, memory: AddressSpace) -> Result<Arc<Mirror>> {
        let mut list = self.list.lock();
        if list.closed {
            return Err(ENODEV);
        }
        let id = list.last.checked_add(1).ok_or(ENOSPC)?;
        let mirror = Mirror::new(&self.pause, id, shape, memory)?;
        list.mirrors.push(mirror.clone(), GFP_KERNEL_ACCOUNT)?;
        self.pause.set_refill(Some(self.clone()));
        list.last = id;
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
        let mirror = self.find(id)?;
        let range = va::check(va, len)?;
        let whole = mirror.gpu();
        if range.start < whole.start || range.end > whole.end {
            return Err(EINVAL);
        }
        mirror.populate(&range, true)
    }

    /// Serves an access of the GPU to `address` that its page tables do not allow: where a mirror has memory that may be
    /// accessed so, it is shown when this returns, and the access can be repeated. Takes no lock of another address
    /// space, and may wait for user space.
    ///
    /// # Errors
    ///
    /// - `EFAULT`: no mirror is there, or it has no memory there, or none that the GPU can use.
    /// - `EPERM`: there is memory, but the access is not allowed.
    /// - `ESRCH`: the program whose memory it is has ended.
    /// - Others as those of [`Self::create`].
    #[cfg_attr(
        not(rkfd_kunit),
        expect(dead_code, reason = "called once the GPU repeats accesses")
    )]
    pub(crate) fn service(&self, address: u64, write: bool, execute: bool) -> Result {
        let mirror = {
            let list = self.list.lock();
            let mut mirrors = list.mirrors.iter();
            mirrors
                .find(|mirror| mirror.gpu().contains(&address))
                .cloned()
        };
        let mirror = mirror.ok_or(EFAULT)?;
        let rights = mirror.request().rights;
        if (write && !rights.write) || (execute && !rights.execute) {
            return Err(EPERM);
        }
        let page = address & !(PAGE - 1);
        let page = page..page + PAGE;
        mirror.populate(&page, true)?;
        if write && !mirror.is_writable(address)? {
            return Err(EPERM);
        }
        Ok(())
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
        drop(self.set_process(None));
    }
}
