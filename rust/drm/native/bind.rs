// SPDX-License-Identifier: GPL-2.0

//! BIND: lists of ranges.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc, //
};

use super::{
    args::{
        for_each_element,
        require_zero, //
        Device,
        File,
    },
    context::Context,
    uapi::{
        bind,
        BindList,
        BindOp, //
    }, //
};
use crate::{
    hw::pte::PAGE,
    kapi::drm_file::DrmDevice,
    vm::{
        bind::{
            Bind,
            BindError, //
        },
        va,
        Bo,
        BoArgs,
        BoFlags,
        BoKind, //
    },
};

/// Longest list.
pub(super) const MAX_OPS: u32 = 65536;

/// Maps and unmaps the ranges of a list, all or none.
///
/// # Errors
///
/// - `EINVAL`: an empty or too long list; unknown operations or flags; addresses, lengths and offsets that are no whole
///   pages, leave the address range or the buffer; ranges that overlap each other.
/// - `E2BIG`: the operations have fields that this version does not know.
/// - `EFAULT`: the list cannot be read.
/// - `ENOENT`: no such buffer in this file.
/// - `EXDEV`, `EFAULT`, `EPERM`, `EAGAIN`: those of [`user_buffer`].
/// - `EBUSY`: a queue uses what would go; or `/dev/kfd` has the address space.
/// - `EADDRINUSE`: a range meets a mirror.
/// - `ENOMEM`, `EAGAIN`, `EINTR`, `ENODEV`, `EIO`, `ETIMEDOUT`: those of [`Vm::bind`](crate::vm::Vm::bind).
pub(super) fn bind(dev: &Device, file: &File, arg: &mut BindList) -> Result {
    arg.failed = bind::NO_OP;
    let result = run(dev, file, arg);
    result.map_err(|BindError { error, index }| {
        arg.failed = index.unwrap_or(bind::NO_OP);
        error
    })
}

fn run(dev: &Device, file: &File, arg: &BindList) -> Result<(), BindError> {
    require_zero(&[arg.flags])?;
    if arg.count == 0 || arg.count > MAX_OPS {
        return Err(EINVAL.into());
    }
    let context = file.inner().get_ref().context();
    let mut list = List::new();
    for_each_element(arg.ops, arg.count, arg.stride, |number, op| {
        list.add(dev, file, context, number, &op)
    })
    .map_err(|(error, index)| BindError { error, index })?;
    context.claim()?;
    context.vm().bind(&list.sources, &mut list.binds)?;
    context.vm().bring_home();
    Ok(())
}

/// A buffer of the caller's memory that an operation names, for it alone.
///
/// # Errors
///
/// - `EINVAL`: address 0, or no whole pages.
/// - `EXDEV`: the file shows memory of another address space of the CPU.
/// - `EFAULT`, `EPERM`: no memory there, or memory that cannot be accessed so.
/// - `EAGAIN`: the memory does not stop changing.
/// - `EINTR`, `ENOMEM`, `ENODEV`, `EIO`.
fn user_buffer(dev: &Device, context: &Arc<Context>, op: &BindOp) -> Result<Arc<Bo>> {
    // Before pages are looked for, which may take long.
    va::check(op.address, op.length)?;
    if op.offset % PAGE != 0 {
        return Err(EINVAL);
    }
    let args = BoArgs {
        kind: BoKind::Userptr,
        size: op.length,
        flags: BoFlags {
            writable: op.flags & bind::WRITE != 0,
            executable: op.flags & bind::EXECUTE != 0,
            // The CPU has it, too.
            coherent: true,
            ..BoFlags::default()
        },
        user: Some(context.user_memory(op.offset)?),
        doorbells: None,
    };
    Bo::new(dev.gpu(), &DrmDevice::of(dev), args)
}

/// A list as it is being checked.
struct List {
    /// Buffers, each with the rights of its ranges.
    sources: KVVec<Arc<Bo>>,
    /// Their numbers by handle and rights.
    known: RBTree<(u32, u32), usize>,
    binds: KVVec<Bind>,
}

impl List {
    fn new() -> Self {
        Self {
            sources: KVVec::new(),
            known: RBTree::new(),
            binds: KVVec::new(),
        }
    }

    fn add(
        &mut self,
        dev: &Device,
        file: &File,
        context: &Arc<Context>,
        number: u32,
        op: &BindOp,
    ) -> Result {
        require_zero(&[op.pad])?;
        let bind = match op.op {
            bind::UNMAP => {
                require_zero(&[op.flags, op.handle])?;
                if op.offset != 0 {
                    return Err(EINVAL);
                }
                Bind::unmap(number, op.address, op.length)?
            }
            bind::MAP => {
                if op.flags & !(bind::WRITE | bind::EXECUTE) != 0 {
                    return Err(EINVAL);
                }
                let source = self.source(file, op.handle, op.flags)?;
                let bo = self.sources.get(source).ok_or(EINVAL)?;
                Bind::map(number, op.address, op.length, source, bo, op.offset)?
            }
            bind::MAP_USER => {
                require_zero(&[op.flags & !(bind::WRITE | bind::EXECUTE), op.handle])?;
                let bo = user_buffer(dev, context, op)?;
                let source = self.sources.len();
                let bind = Bind::map(number, op.address, op.length, source, &bo, 0)?;
                self.sources.push(bo, GFP_KERNEL_ACCOUNT)?;
                bind
            }
            _ => return Err(EINVAL),
        };
        Ok(self.binds.push(bind, GFP_KERNEL_ACCOUNT)?)
    }

    /// The buffer with a handle and rights, by its number.
    fn source(&mut self, file: &File, handle: u32, rights: u32) -> Result<usize> {
        if let Some(source) = self.known.get(&(handle, rights)) {
            return Ok(*source);
        }
        let object = Bo::of_handle(file, handle).ok_or(ENOENT)?;
        let bo = Bo::with_rights(
            object,
            rights & bind::WRITE != 0,
            rights & bind::EXECUTE != 0,
        )?;
        let source = self.sources.len();
        self.sources.push(bo, GFP_KERNEL_ACCOUNT)?;
        let node = RBTreeNode::new((handle, rights), source, GFP_KERNEL_ACCOUNT)?;
        self.known.insert(node);
        Ok(source)
    }
}
