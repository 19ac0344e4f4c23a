// SPDX-License-Identifier: GPL-2.0

//! `vms` in a GPU's directory in debugfs: every open address space, with its mappings and its page
//! table decoded.

use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt, new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use crate::vm::Vm;

/// The address spaces of open files.
#[pin_data]
pub(crate) struct VmList {
    #[pin]
    vms: Mutex<KVec<Arc<Vm>>>,
}

impl VmList {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                vms <- new_mutex!(KVec::new(), "rkfd_vm_list"),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn add(&self, vm: &Arc<Vm>) -> Result {
        Ok(self.vms.lock().push(vm.clone(), GFP_KERNEL_ACCOUNT)?)
    }

    pub(super) fn remove(&self, vm: &Arc<Vm>) {
        let mut vms = self.vms.lock();
        let at = vms.iter().position(|other| Arc::ptr_eq(other, vm));
        let removed = at.and_then(|index| vms.remove(index).ok());
        drop(vms);
        drop(removed);
    }

    /// Copied, so that no lock is held while they are written out.
    fn snapshot(&self) -> Result<KVec<Arc<Vm>>> {
        let vms = self.vms.lock();
        let mut copy = KVec::with_capacity(vms.len(), GFP_KERNEL)?;
        for vm in vms.iter() {
            copy.push(vm.clone(), GFP_KERNEL)?;
        }
        Ok(copy)
    }
}

/// The file; it goes when this is dropped, which waits for readers.
#[pin_data]
pub(super) struct Files {
    #[pin]
    vms: File<Arc<VmList>>,
}

impl Files {
    /// Makes the file in `dir`. Where debugfs refuses it does not exist, which is no error.
    pub(super) fn new(dir: &Dir, list: &Arc<VmList>) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            try_pin_init!(Self {
                vms <- dir.read_callback_file(c"vms", list.clone(), &dump),
            }? Error),
            GFP_KERNEL,
        )
    }
}

fn dump(list: &Arc<VmList>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let vms = list.snapshot().map_err(|_| fmt::Error)?;
    for vm in &vms {
        vm.dump(f)?;
        writeln!(f)?;
    }
    Ok(())
}
