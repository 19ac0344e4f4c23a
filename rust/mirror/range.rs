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
    hint_table::HintTable,
    quiesce::Pause,
    rules::Rules,
    shape::{
        Request,
        Rights,
        Shape, //
    },
    window::{
        Fill,
        Look,
        Usage,
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
    trace,
    vm::{
        mirrored::GRANULE,
        Vm, //
    },
};

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
    hints: Arc<HintTable>,
    /// Memory may be allocated under it.
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
        let hints = HintTable::new()?;
        Arc::pin_init(
            pin_init!(Self {
                id,
                shape,
                pause: pause.clone(),
                memory,
                hints,
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

    /// Whether it is of all memory, each byte at its own address.
    pub(crate) fn is_whole(&self) -> bool {
        self.shape.is_whole()
    }

    /// Which memory it shows where.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The program's.
    pub(super) fn memory(&self) -> &AddressSpace {
        &self.memory
    }

    /// Where the program wants it.
    pub(super) fn hints(&self) -> &Arc<HintTable> {
        &self.hints
    }

    /// What says in place of hints what the GPU may do, and where memory is to be.
    pub(super) fn rules(&self) -> Option<&dyn Rules> {
        self.pause.rules()
    }

    /// How many ranges of it have a hint.
    pub(crate) fn hinted_ranges(&self) -> usize {
        self.hints.len()
    }

    /// The address space of the GPU.
    pub(super) fn vm(&self) -> &Arc<Vm> {
        self.pause.vm()
    }

    /// GPU addresses.
    pub(super) fn gpu(&self) -> Range<u64> {
        self.shape.gpu()
    }

    /// What it shows at the moment.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for window in self.windows.lock().tree.values() {
            window.state().lock().count(&mut usage);
        }
        usage
    }

    /// The window with a GPU address, made if there is none.
    pub(super) fn window(&self, user: &AddressSpaceUser, va: u64) -> Result<Arc<Window>> {
        let key = va & !(WINDOW - 1);
        if let Some(window) = self.windows.lock().tree.get(&key) {
            return Ok(window.clone());
        }
        // Without the lock: registering a notifier takes the mmap lock, under which others may want this one.
        let window = Watcher::window(&self.pause, user, self.shape, &self.hints, va)?;
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

    /// Calls `f` for each window that has some of `range`, GPU addresses.
    fn for_each_window(&self, range: &Range<u64>, mut f: impl FnMut(&Arc<Window>)) {
        let mut from = range.start & !(WINDOW - 1);
        loop {
            let next = {
                let windows = self.windows.lock();
                let cursor = windows.tree.cursor_lower_bound(&from);
                cursor.map(|cursor| (*cursor.current().0, cursor.current().1.clone()))
            };
            let Some((key, window)) = next.filter(|(key, _)| *key < range.end) else {
                return;
            };
            f(&window);
            from = key + 1;
        }
    }

    /// Calls `f` with GPU addresses that are shown, in ascending order, and how: under update locks, so it must not allocate.
    pub(super) fn for_each_shown(&self, f: &mut dyn FnMut(Range<u64>, Look)) {
        self.for_each_window(&self.shape.gpu(), |window| {
            window.state().lock().for_each_shown(f);
        });
    }

    /// Whether something of `range`, GPU addresses, is shown that queues rely on.
    pub(super) fn is_relied_on(&self, range: &Range<u64>) -> bool {
        let mut relied_on = false;
        self.for_each_window(range, |window| relied_on |= window.is_relied_on(range));
        relied_on
    }

    /// The rules of `range`, GPU addresses, are other ones: what was shown by the old ones goes.
    pub(super) fn rules_changed(&self, range: &Range<u64>) {
        self.for_each_window(range, |window| window.rules_changed(range));
    }

    /// What the GPU may do at GPU address `va`; `None`: nothing.
    pub(super) fn rights_at(&self, va: u64) -> Option<Rights> {
        match self.pause.rules() {
            Some(rules) => rules.rule(&(va..va + 1)).0.rights,
            None => Some(self.shape.rights),
        }
    }

    /// Memory of `range`, GPU addresses, is to move to VRAM when it is accessed, where accesses are repeated: what shows it in the
    /// system goes.
    pub(super) fn expect_moves(&self, range: &Range<u64>) {
        if self.shape.request().filling.on_access {
            self.for_each_window(range, |window| window.expect_moves(range));
        }
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
        let vm = self.pause.vm();
        self.hints.end(vm.gpu());
        trace::mirror_destroy(vm.gpu().id(), vm.pasid(), self.id);
        if self.shape.is_whole() {
            vm.release_rest();
        } else {
            vm.release(self.shape.gpu().start);
        }
    }
}
