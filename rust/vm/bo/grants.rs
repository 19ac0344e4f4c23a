// SPDX-License-Identifier: GPL-2.0

//! Who may map which buffer.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    },
};

use super::memory::Memory;
use crate::kapi::{
    drm_file::FileTag,
    gem::Object, //
};

/// Which buffers one open file may map.
///
/// The DRM core compares files by address, and an address comes again after a file was closed. So
/// a permission has to end before its file does, even if the buffer stays.
#[pin_data]
pub(crate) struct Grants {
    #[pin]
    state: Mutex<GrantState>,
}

struct GrantState {
    /// The file, once it is known and until it is closed.
    tag: Option<FileTag>,
    closed: bool,
    objects: RBTree<usize, Object<Memory>>,
}

impl Grants {
    /// Nothing may be mapped yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let state = GrantState {
            tag: None,
            closed: false,
            objects: RBTree::new(),
        };
        Arc::pin_init(
            try_pin_init!(Self {
                state <- new_mutex!(state, "rkfd_grants"),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Says which file this is about; only the first call counts.
    pub(crate) fn set_file(&self, tag: FileTag) {
        self.state.lock().tag.get_or_insert(tag);
    }

    pub(super) fn allow(&self, object: &Object<Memory>) -> Result {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(ENODEV);
        }
        let tag = state.tag.ok_or(EINVAL)?;
        object.allow(tag)?;
        state
            .objects
            .insert(node.into_node(object.key(), object.clone()));
        Ok(())
    }

    pub(super) fn revoke(&self, object: &Object<Memory>) {
        let mut state = self.state.lock();
        let node = state.objects.remove_node(&object.key());
        if let (Some(_), Some(tag)) = (&node, state.tag) {
            object.revoke(tag);
        }
        drop(state);
        // Outside the lock: may free the object.
        drop(node);
    }

    /// The file is being closed.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let objects = core::mem::replace(&mut state.objects, RBTree::new());
        let tag = state.tag;
        drop(state);
        if let Some(tag) = tag {
            for object in objects.values() {
                object.revoke(tag);
            }
        }
    }

    /// Buffers that can be mapped.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn len(&self) -> usize {
        self.state.lock().objects.iter().count()
    }
}
