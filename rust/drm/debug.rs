// SPDX-License-Identifier: GPL-2.0

//! Open address spaces in a GPU's directory in debugfs.
//!
//! | file | content |
//! |---|---|
//! | `vms` | every address space, with its mappings and its page table decoded |
//! | `walk` | the entries that lead to one address: write `PASID ADDRESS` and read the answer, which repeats both |
//!
//! All open files of `walk` share the question, of which the last one is answered.

use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    uaccess::UserSliceReader, //
};

use crate::vm::Vm;

/// Longest question to `walk`: a PASID, an address of 16 digits and `0x`, and white space.
const QUESTION: usize = 32;

/// The address space of an open file.
struct Open {
    vm: Arc<Vm>,
    /// The process that opened the file.
    pid: i32,
}

/// What `walk` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Question {
    /// The address space.
    pasid: u16,
    /// An address of it.
    va: u64,
}

impl Question {
    /// Reads `PASID ADDRESS`, a decimal number and a hexadecimal one behind `0x`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is something else.
    fn parse(text: &[u8]) -> Result<Self> {
        let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
        let mut words = text.split_ascii_whitespace();
        let (pasid, va) = words.next().zip(words.next()).ok_or(EINVAL)?;
        if words.next().is_some() {
            return Err(EINVAL);
        }
        let digits = va.strip_prefix("0x").ok_or(EINVAL)?;
        Ok(Self {
            pasid: pasid.parse().map_err(|_| EINVAL)?,
            va: u64::from_str_radix(digits, 16).map_err(|_| EINVAL)?,
        })
    }
}

/// The address spaces of open files.
#[pin_data]
pub(crate) struct VmList {
    #[pin]
    vms: Mutex<KVec<Open>>,
    /// The last one.
    #[pin]
    question: Mutex<Option<Question>>,
}

impl VmList {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                vms <- new_mutex!(KVec::new(), "rkfd_vm_list"),
                question <- new_mutex!(None, "rkfd_vm_question"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lists the address space of a file that process `pid` opens.
    pub(super) fn add(&self, vm: &Arc<Vm>, pid: i32) -> Result {
        let open = Open {
            vm: vm.clone(),
            pid,
        };
        Ok(self.vms.lock().push(open, GFP_KERNEL_ACCOUNT)?)
    }

    pub(super) fn remove(&self, vm: &Arc<Vm>) {
        let mut vms = self.vms.lock();
        let at = vms.iter().position(|other| Arc::ptr_eq(&other.vm, vm));
        let removed = at.and_then(|index| vms.remove(index).ok());
        drop(vms);
        drop(removed);
    }

    /// Copied, so that no lock is held while they are written out.
    fn snapshot(&self) -> Result<KVec<Open>> {
        let vms = self.vms.lock();
        let mut copy = KVec::with_capacity(vms.len(), GFP_KERNEL)?;
        for Open { vm, pid } in vms.iter() {
            let open = Open {
                vm: vm.clone(),
                pid: *pid,
            };
            copy.push(open, GFP_KERNEL)?;
        }
        Ok(copy)
    }

    /// The address space with a PASID.
    fn find(&self, pasid: u16) -> Option<Arc<Vm>> {
        let vms = self.vms.lock();
        let found = vms.iter().find(|open| open.vm.pasid() == pasid);
        found.map(|open| open.vm.clone())
    }
}

/// The files; they go when this is dropped, which waits for readers.
#[pin_data]
pub(super) struct Files {
    #[pin]
    vms: File<Arc<VmList>>,
    #[pin]
    walk: File<Arc<VmList>>,
}

impl Files {
    /// Makes the files in `dir`. Where debugfs refuses they do not exist, which is no error.
    pub(super) fn new(dir: &Dir, list: &Arc<VmList>) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            try_pin_init!(Self {
                vms <- dir.read_callback_file(c"vms", list.clone(), &dump),
                walk <- dir.read_write_callback_file(c"walk", list.clone(), &answer, &ask),
            }? Error),
            GFP_KERNEL,
        )
    }
}

fn dump(list: &Arc<VmList>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let vms = list.snapshot().map_err(|_| fmt::Error)?;
    for Open { vm, pid } in &vms {
        vm.dump(f, *pid)?;
        writeln!(f)?;
    }
    Ok(())
}

fn ask(list: &Arc<VmList>, reader: &mut UserSliceReader) -> Result {
    let mut text = [0; QUESTION];
    let text = text.get_mut(..reader.len()).ok_or(EINVAL)?;
    reader.read_slice(text)?;
    let question = Question::parse(text)?;
    *list.question.lock() = Some(question);
    Ok(())
}

fn answer(list: &Arc<VmList>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let question = *list.question.lock();
    let Some(Question { pasid, va }) = question else {
        return writeln!(f, "nothing asked; write PASID and address");
    };
    match list.find(pasid) {
        Some(vm) => vm.dump_walk(f, va),
        None => writeln!(f, "PASID {pasid} address {va:#x} of no open file"),
    }
}
