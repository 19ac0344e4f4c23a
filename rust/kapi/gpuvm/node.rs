// SPDX-License-Identifier: GPL-2.0

//! The memory of ranges: in the tree of an address space, and before and after that. The suite `rkfd_gpuvm` tests it.

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

/// A range.
///
/// # Invariants
///
/// While it is in a [`GpuVm`](super::GpuVm), `data` is `Some` and `next` is `None`.
#[repr(C)]
pub(super) struct Node<D> {
    // First: C has pointers to it.
    pub(super) va: Opaque<bindings::drm_gpuva>,
    /// The value of the range.
    pub(super) data: Option<D>,
    /// Link of [`Chain`].
    pub(super) next: Option<KBox<Node<D>>>,
}

// SAFETY: Outside an address space it is memory with one owner; inside, it is reached through the `GpuVm` only.
unsafe impl<D: Send> Send for Node<D> {}
// SAFETY: Shared access reads what does not change meanwhile, and lends `&D`.
unsafe impl<D: Sync> Sync for Node<D> {}

/// Nodes that are in no [`GpuVm`](super::GpuVm). Moving them in and out allocates nothing.
pub(super) struct Chain<D>(pub(super) Option<KBox<Node<D>>>);

impl<D> Chain<D> {
    /// Puts a node in front.
    pub(super) fn push(&mut self, mut node: KBox<Node<D>>) {
        node.next = self.0.take();
        self.0 = Some(node);
    }

    /// Takes the first node out.
    pub(super) fn pop(&mut self) -> Option<KBox<Node<D>>> {
        let mut node = self.0.take()?;
        self.0 = node.next.take();
        Some(node)
    }
}

impl<D> Drop for Chain<D> {
    fn drop(&mut self) {
        // One by one: the default drop of a linked list recurses as deep as the list is long.
        while self.pop().is_some() {}
    }
}
