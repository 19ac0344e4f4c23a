// SPDX-License-Identifier: GPL-2.0

//! One mirror.

use core::ops::Range;

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        Mutex, //
    },
};

use super::{
    quiesce::Pause,
    shape::{
        Request,
        Shape, //
    },
    window::{
        Fill,
        Want,
        Watcher,
        Window,
        WINDOW, //
    },
};
use crate::{
    kapi::{
        hmm::{
            AddressSpace,
            AddressSpaceUser,
            Memory, //
        },
        task::fatal_signal_pending, //
    },
    vm::mirrored::GRANULE,
};

/// What a mirror shows, and how often that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Bytes that the GPU can reach now.
    pub(crate) bytes: u64,
    /// Those of them in leaves of 2 MiB.
    pub(crate) huge: u64,
    /// Changes of memory that was, or was to be, shown.
    pub(crate) changes: u64,
}

/// The windows of a mirror.
struct Windows {
    /// By GPU address.
    tree: RBTree<u64, Arc<Window>>,
    /// There are no more.
    ended: bool,
}

/// A range of a program's memory that the GPU sees.
#[pin_data]
pub(crate) struct Mirror {
    id: u32,
    shape: Shape,
    pause: Arc<Pause>,
    memory: AddressSpace,
    /// Whoever holds the lock may allocate.
    #[pin]
    windows: Mutex<Windows>,
}

impl Mirror {
    pub(super) fn new(
        pause: &Arc<Pause>,
        id: u32,
        shape: Shape,
        memory: AddressSpace,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                id,
                shape,
                pause: pause.clone(),
                memory,
                windows <- new_mutex!(
                    Windows {
                        tree: RBTree::new(),
                        ended: false,
                    },
                    "rkfd_mirror_windows"
                ),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Its number among the mirrors of the address space.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// What it is.
    pub(crate) fn request(&self) -> Request {
        self.shape.request()
    }

    /// Bytes of the largest leaf that the two ranges allow.
    pub(crate) fn leaf(&self) -> u64 {
        self.shape.leaf()
    }

    /// GPU addresses.
    pub(super) fn gpu(&self) -> Range<u64> {
        self.shape.gpu()
    }

    /// What it shows at the moment.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for window in self.windows.lock().tree.values() {
            let (bytes, huge, changes) = window.state().lock().usage();
            usage.bytes += bytes;
            usage.huge += huge;
            usage.changes += changes;
        }
        usage
    }

    /// The window with a GPU address, made if there is none.
    fn window(&self, user: &AddressSpaceUser, va: u64) -> Result<Arc<Window>> {
        let key = va & !(WINDOW - 1);
        if let Some(window) = self.windows.lock().tree.get(&key) {
            return Ok(window.clone());
        }
        // Without the lock: registering a notifier takes the mmap lock, under which others may want this one.
        let window = Watcher::window(&self.pause, user, self.shape, va)?;
        let node = RBTreeNode::new(key, window.clone(), GFP_KERNEL_ACCOUNT)?;
        let mut windows = self.windows.lock();
        if windows.ended {
            drop(windows);
            return Err(ESRCH);
        }
        if let Some(other) = windows.tree.get(&key) {
            let other = other.clone();
            drop(windows);
            return Ok(other);
        }
        windows.tree.insert(node);
        drop(windows);
        Ok(window)
    }

    /// Shows what the program has at GPU addresses `range` of the mirror: all of it, or with `all` false what there is.
    ///
    /// # Errors
    ///
    /// Those of [`Fill::fill`]; `ESRCH`, too, if the mirror ends; `EINTR`: the caller is being killed.
    pub(super) fn populate(&self, range: &Range<u64>, all: bool) -> Result {
        let user = self.memory.enter()?;
        let mut va = range.start;
        while va < range.end {
            if fatal_signal_pending() {
                return Err(EINTR);
            }
            let rest = self.shape.cpu_range(&(va..range.end));
            let (memory, end) = user.memory_at(rest);
            if matches!(memory, Memory::None | Memory::Unusable) {
                if all {
                    return Err(EFAULT);
                }
                va = self.shape.gpu_address(end - 1) + 1;
                continue;
            }
            let granule_end = (va & !(GRANULE - 1)) + GRANULE;
            let asked = va..granule_end.min(range.end);
            let want = if all { Want::All } else { Want::Some };
            self.window(&user, va)?.fill(&user, va, &asked, want)?;
            va = asked.end;
        }
        Ok(())
    }

    /// Whether the program may write at a GPU address of the mirror.
    ///
    /// # Errors
    ///
    /// `ESRCH`: it has ended.
    pub(super) fn is_writable(&self, va: u64) -> Result<bool> {
        let at = self.shape.cpu_range(&(va..va + 1));
        let (memory, _) = self.memory.enter()?.memory_at(at);
        Ok(memory == Memory::Writable)
    }

    /// Shows again what changes have taken away.
    ///
    /// # Errors
    ///
    /// Those of [`Fill::fill`]. Where the program has ended there is nothing to show, and no error.
    pub(super) fn refill(&self) -> Result {
        let Ok(user) = self.memory.enter() else {
            return Ok(());
        };
        let mut from = 0;
        loop {
            let next = {
                let windows = self.windows.lock();
                let cursor = windows.tree.cursor_lower_bound(&from);
                cursor.map(|cursor| (*cursor.current().0, cursor.current().1.clone()))
            };
            let Some((key, window)) = next else {
                return Ok(());
            };
            window.refill(&user)?;
            from = key + 1;
        }
    }

    /// Ends all access through it. Its GPU addresses are free afterwards.
    pub(super) fn end(&self) {
        loop {
            let first = {
                let mut windows = self.windows.lock();
                windows.ended = true;
                let cursor = windows.tree.cursor_front();
                cursor.map(|cursor| *cursor.current().0)
            };
            let Some(key) = first else { break };
            let window = self.windows.lock().tree.remove(&key);
            if let Some(window) = &window {
                window.end();
            }
            // Waits for changes that are being told.
            drop(window);
        }
        self.pause.vm().release(self.shape.gpu().start);
    }
}
