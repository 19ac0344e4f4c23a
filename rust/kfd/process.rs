// SPDX-License-Identifier: GPL-2.0

//! Processes: one object per address space, shared by all opens of `/dev/kfd` in it that have no context.
//!
//! A process object begins with the first open and ends when its address space does (exit, kill, exec):
//! closing the file does not stop queues, as user space may close and open again. A descriptor answers
//! `EBADF` to other thread groups, to its own after exec, and once the address space is gone: what a call
//! does to memory it does in the address space whose end is watched.
//!
//! A file may be given a [`Context`], a process object of its own beside that of the address space, by which one program keeps
//! apart what it does for others: address spaces of the GPUs, buffers, queues, events, attributes of memory. It ends with
//! the file, which calls and mappings hold, or with the address space if that ends first.
//!
//! The end runs in `Process::teardown`, before the pages of the address space are freed: queues
//! first, so that the GPU stops touching them, then events, then memory.
//!
//! # Locks
//!
//! `ProcessTable::entries` is taken for moments only, to look up, insert or remove: never around the mmap lock
//! (watching an address space takes it), which the server of a fault may keep others waiting for as long as
//! it wants, nor around an allocation, which may wait for a process to end. The opens and exits of all
//! processes need `entries`.
//!
//! A thread that holds the mmap lock (mmap, fault handlers, [changes of pages](crate::queue::userptr)) must not take
//! `Process::state`, under which memory is allocated; `entries` and `state` are never held together. Under
//! `state` no user memory is touched and no page of a process looked for: user space may serve such a fault
//! (userfaultfd, FUSE) by a thread that waits for `state`, or never.
//!
//! `Allocation::freed`, the lock of one buffer, is held by MAP, UNMAP and FREE of it while the hardware drops
//! translations, and comes before `state`.
//!
//! `Svm::attribute_lock` comes before `state`, and is held while memory of the process is waited for; see
//! [`svm`](crate::kfd::svm).
//!
//! `state` is not held either while queues leave the hardware, which may take as long as a time-out does, with
//! three exceptions: the end of the process, when no other thread can call; the first queue on a GPU, which waits
//! for an eviction that is under way; and CREATE_QUEUE where changes are not collected (`coalesce=0`), whose
//! purpose is to wait.

mod context;
mod exception;
mod failures;
mod sched;
mod shared;
mod state;
mod table;
mod tenant;
mod userptr;
mod work;

pub(crate) use self::{
    context::Context,
    shared::Process,
    state::{
        Allocation,
        Handle, //
    },
    table::ProcessTable, //
};
