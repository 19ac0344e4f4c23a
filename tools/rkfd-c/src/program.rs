// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Compiled code on the GPU, and launches of its kernels.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::ffi::CStr;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr::null;
use std::sync::Arc;

use library::code::arguments::Value;
use library::code::dispatch::Dispatch as Launch;
use library::code::metadata::ArgumentKind;
use library::code::metadata::ArgumentMetadata;
use library::code::program;
use library::packet::aql::Scope;
use library::queue::QueueKind;
use nix::errno::Errno;

use crate::error::array;
use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::error::Result;
use crate::gpu::chars;
use crate::gpu::Vm;
use crate::packets::put_aql;
use crate::queue::Queue;
use crate::sized::answer;
use crate::sized::grows;
use crate::sized::read;

/// An argument's bytes, as many as it has.
pub const RKFD_ARGUMENT_VALUE: u32 = 0;
/// An address, 8 bytes.
pub const RKFD_ARGUMENT_ADDRESS: u32 = 1;
/// Group memory (local T * of OpenCL C): what is passed is its size in bytes, a uint32_t.
pub const RKFD_ARGUMENT_LOCAL: u32 = 2;

/// Memory is acquired from, or released to, the whole system.
pub const RKFD_SCOPE_SYSTEM: u32 = 0;
/// The GPU alone.
pub const RKFD_SCOPE_AGENT: u32 = 1;
/// Nobody.
pub const RKFD_SCOPE_NONE: u32 = 2;

/// The kernel may begin while packets before it still run.
pub const RKFD_DISPATCH_NO_BARRIER: u32 = 1;

/// What is known of a kernel; 0 and "" where the compiler does not tell.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelInfo {
    /// sizeof(struct rkfd_kernel_info); set it before the call.
    pub size: u32,
    /// Version of the code object: 4, 5 or 6.
    pub version: u32,
    /// Address of the descriptor, for packets of the program's own.
    pub object: u64,
    /// Bytes of the arguments, those that the source does not name included.
    pub kernarg_bytes: u32,
    /// Their alignment, at least 16.
    pub kernarg_align: u32,
    /// Bytes of group memory of its own variables.
    pub group_bytes: u32,
    /// Bytes of private memory of a work-item.
    pub private_bytes: u32,
    /// Arguments that the source names.
    pub arguments: u32,
    /// Most work-items of a work-group.
    pub max_group: u32,
    /// The only dimensions that a work-group may have; 0 where there are none such.
    pub required_group: [u32; 3],
    /// Work-items of a wave.
    pub wavefront_size: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// Vector registers, accumulation registers among them.
    pub vgprs: u32,
    /// Accumulation registers.
    pub agprs: u32,
    /// 1 where calls need private memory that the compiler could not count.
    pub dynamic_stack: u32,
    /// Language, such as "OpenCL C".
    pub language: [c_char; 16],
}

/// What is known of an argument.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArgumentInfo {
    /// sizeof(struct rkfd_argument_info); set it before the call.
    pub size: u32,
    /// RKFD_ARGUMENT_*.
    pub kind: u32,
    /// Where it begins.
    pub offset: u32,
    /// How long it is.
    pub bytes: u32,
    /// Name in the source; "" where the compiler does not tell.
    pub name: [c_char; 32],
}

/// How to launch a kernel. Set `size` and all others to 0, then what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dispatch {
    /// sizeof(struct rkfd_dispatch).
    pub size: u32,
    /// RKFD_DISPATCH_*.
    pub flags: u32,
    /// Work-items in x, y and z; 0 counts as 1.
    pub grid: [u32; 3],
    /// Work-items of a work-group; 0 counts as 1.
    pub group: [u32; 3],
    /// Number of the first work-item, as OpenCL's kernels see it.
    pub offset: [u64; 3],
    /// Bytes of group memory beside the kernel's own (extern __shared__ of HIP).
    pub group_bytes: u32,
    /// At least as many bytes of private memory for each work-item.
    pub private_bytes: u32,
    /// RKFD_SCOPE_*: what the kernel sees of others' stores.
    pub acquire: u32,
    /// RKFD_SCOPE_*: who sees the kernel's stores.
    pub release: u32,
    /// For each argument that the source names, a pointer to its value.
    pub arguments: *const *const c_void,
    /// Instead of them: the bytes of all arguments, for kernels without metadata.
    pub raw: *const c_void,
    /// How many `arguments` are.
    pub argument_count: u32,
    /// How many bytes `raw` are.
    pub raw_bytes: u32,
    /// Where the arguments go: rkfd_kernel_info.kernarg_bytes (where that is 0, `raw_bytes`) of memory that CPU and GPU see,
    /// on kernarg_align bytes. It is the kernel's until that has ended.
    pub kernarg: *mut c_void,
    /// Address of the signal that is decremented when the kernel has ended, or 0.
    pub completion: u64,
}

grows! {
    KernelInfo, "rkfd_kernel_info", 88;
    ArgumentInfo, "rkfd_argument_info", 48;
    Dispatch, "rkfd_dispatch", 112;
}

/// A code object in the memory of a GPU.
#[derive(Debug)]
pub struct Program {
    pub(crate) program: Arc<program::Program>,
    names: Vec<CString>,
}

/// A kernel of a program.
#[derive(Debug)]
pub struct Kernel(program::Kernel);

impl Kernel {
    /// The arguments that the source names.
    fn explicit(&self) -> impl Iterator<Item = &ArgumentMetadata> {
        let metadata = self.0.code().metadata.iter();
        metadata.flat_map(|m| m.arguments.iter().filter(|a| !a.kind.is_hidden()))
    }

    fn align(&self) -> u32 {
        let metadata = self.0.code().metadata.as_ref();
        metadata.map_or(16, |m| m.kernarg_align.max(16))
    }
}

/// A name from C.
///
/// # Safety
/// Where it is not NULL, `text` ends in a zero byte and stays while the result lives.
unsafe fn name_of<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(Failure::invalid("name is NULL"));
    }
    // SAFETY: not null, and the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Failure::invalid("name is no text in UTF-8"))
}

/// Loads a code object for the GPU into its memory: what `clang -target amdgcn-amd-amdhsa`, `clang -x cl` and
/// `hipcc --genco` make, of a bundle the part for this GPU. `image` is not needed afterwards. -ENOEXEC for what is no
/// linked code object of version 4 to 6, or is broken; -EOPNOTSUPP for one of another GPU.
///
/// MT-Safe.
///
/// # Safety
/// `image` points to `bytes` bytes that nobody changes meanwhile.
#[no_mangle]
pub unsafe extern "C" fn rkfd_program_load(
    vm: Option<&Vm>,
    image: *const c_void,
    bytes: u64,
    program: Option<&mut MaybeUninit<Option<Box<Program>>>>,
) -> c_int {
    guard(|| {
        let out = given(program, "program")?;
        out.write(None);
        let vm = given(vm, "vm")?;
        let count = u32::try_from(bytes)
            .map_err(|_| Failure::invalid(format!("A code object of {bytes} bytes")))?;
        // SAFETY: the caller's promise.
        let image = unsafe { array(image.cast::<u8>(), count, "image") }?;
        let program = program::Program::load(&vm.device, image)?;
        let names = program.object().kernels().iter();
        let names = names
            .map(|kernel| CString::new(kernel.name.as_str()).unwrap_or_default())
            .collect();
        out.write(Some(Box::new(Program { program, names })));
        Ok(())
    })
}

/// Gives a program back; NULL is allowed. It stays on the GPU while handles of its kernels exist. Kernels that run are the
/// caller's concern: wait, then free.
///
/// MT-Unsafe race:program: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_program_free(program: Option<Box<Program>>) {
    release(program);
}

/// Name of a program's kernel with that number, from 0; NULL where there are no more. It is valid until the program is
/// freed.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_program_kernel(program: Option<&Program>, index: u32) -> *const c_char {
    // CAST: 32 bits into 64.
    program
        .and_then(|p| p.names.get(index as usize))
        .map_or(null(), |name| name.as_ptr())
}

/// Address and size of a symbol of a program, such as a variable of the GPU's. Either pointer may be NULL. -ENOENT where
/// there is none of that name.
///
/// MT-Safe.
///
/// # Safety
/// `name` is a text that ends in a zero byte.
#[no_mangle]
pub unsafe extern "C" fn rkfd_program_symbol(
    program: Option<&Program>,
    name: *const c_char,
    address: Option<&mut MaybeUninit<u64>>,
    bytes: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let program = given(program, "program")?;
        // SAFETY: the caller's promise.
        let symbol = program.program.symbol(unsafe { name_of(name) }?)?;
        if let Some(address) = address {
            address.write(symbol.address);
        }
        if let Some(bytes) = bytes {
            bytes.write(symbol.size);
        }
        Ok(())
    })
}

/// Finds a kernel by its name. -ENOENT where there is none; rkfd_last_error() then names those that there are.
///
/// MT-Safe.
///
/// # Safety
/// `name` is a text that ends in a zero byte.
#[no_mangle]
pub unsafe extern "C" fn rkfd_kernel_new(
    program: Option<&Program>,
    name: *const c_char,
    kernel: Option<&mut MaybeUninit<Option<Box<Kernel>>>>,
) -> c_int {
    guard(|| {
        let out = given(kernel, "kernel")?;
        out.write(None);
        let program = given(program, "program")?;
        // SAFETY: the caller's promise.
        let kernel = program.program.kernel(unsafe { name_of(name) }?)?;
        out.write(Some(Box::new(Kernel(kernel))));
        Ok(())
    })
}

/// Gives a kernel back; NULL is allowed.
///
/// MT-Unsafe race:kernel: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_kernel_free(kernel: Option<Box<Kernel>>) {
    release(kernel);
}

/// Describes a kernel.
///
/// MT-Safe.
///
/// # Safety
/// `info` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_kernel_describe(
    kernel: Option<&Kernel>,
    info: *mut KernelInfo,
) -> c_int {
    guard(|| {
        let kernel = given(kernel, "kernel")?;
        // SAFETY: the caller's promise.
        let info = unsafe { answer(info) }?;
        let code = kernel.0.code();
        let (descriptor, metadata) = (&code.descriptor, code.metadata.as_ref());
        let said = |of: fn(&library::code::metadata::KernelMetadata) -> u32| metadata.map_or(0, of);
        info.give(KernelInfo {
            size: 0,
            version: kernel.0.program().object().version().into(),
            object: kernel.0.address(),
            kernarg_bytes: code.kernarg_bytes(),
            kernarg_align: kernel.align(),
            group_bytes: descriptor.group_bytes,
            private_bytes: descriptor.private_bytes,
            // CAST: a list of a document that has less than 4 GiB.
            arguments: kernel.explicit().count() as u32,
            max_group: said(|m| m.max_group),
            required_group: metadata.and_then(|m| m.required_group).unwrap_or_default(),
            wavefront_size: descriptor.wavefront_size(),
            sgprs: said(|m| m.sgprs),
            vgprs: said(|m| m.vgprs),
            agprs: said(|m| m.agprs),
            dynamic_stack: descriptor.uses_dynamic_stack().into(),
            language: chars(metadata.map_or("", |m| m.language.as_str())),
        });
        Ok(())
    })
}

/// Describes an argument that the source names, by its number from 0. -ERANGE where there are no more.
///
/// MT-Safe.
///
/// # Safety
/// `info` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_kernel_argument(
    kernel: Option<&Kernel>,
    index: u32,
    info: *mut ArgumentInfo,
) -> c_int {
    guard(|| {
        let kernel = given(kernel, "kernel")?;
        // SAFETY: the caller's promise.
        let info = unsafe { answer(info) }?;
        // CAST: 32 bits into 64.
        let found = kernel.explicit().nth(index as usize).ok_or_else(|| {
            let count = kernel.explicit().count();
            Failure::new(
                Errno::ERANGE,
                format!("No argument {index}: there are {count}"),
            )
        })?;
        info.give(ArgumentInfo {
            size: 0,
            kind: match found.kind {
                ArgumentKind::ByValue => RKFD_ARGUMENT_VALUE,
                ArgumentKind::DynamicShared => RKFD_ARGUMENT_LOCAL,
                _ => RKFD_ARGUMENT_ADDRESS,
            },
            offset: found.offset,
            bytes: found.size,
            name: chars(&found.name),
        });
        Ok(())
    })
}

fn scope_of(number: u32) -> Result<Scope> {
    match number {
        RKFD_SCOPE_SYSTEM => Ok(Scope::System),
        RKFD_SCOPE_AGENT => Ok(Scope::Agent),
        RKFD_SCOPE_NONE => Ok(Scope::None),
        other => Err(Failure::invalid(format!("No scope: {other}"))),
    }
}

fn group_of(items: [u32; 3]) -> Result<[u16; 3]> {
    let mut group = [1; 3];
    for (to, from) in group.iter_mut().zip(items) {
        *to = u16::try_from(from.max(1))
            .map_err(|_| Failure::invalid(format!("{from} work-items of a work-group")))?;
    }
    Ok(group)
}

/// The launch that C describes.
///
/// # Safety
/// As [`rkfd_kernel_launch`].
unsafe fn launch_of<'k>(kernel: &'k Kernel, from: &Dispatch) -> Result<Launch<'k>> {
    if from.flags & !RKFD_DISPATCH_NO_BARRIER != 0 {
        let text = format!("No flags of a dispatch: {:#x}", from.flags);
        return Err(Failure::invalid(text));
    }
    let mut launch = Launch::new(&kernel.0)
        .grid(from.grid.map(|items| items.max(1)))
        .group(group_of(from.group)?)
        .offset(from.offset)
        .dynamic_group_bytes(from.group_bytes)
        .private_bytes(from.private_bytes)
        .barrier(from.flags & RKFD_DISPATCH_NO_BARRIER == 0)
        .scopes(scope_of(from.acquire)?, scope_of(from.release)?)
        .completion(from.completion);
    if from.raw_bytes != 0 {
        // SAFETY: the caller's promise.
        let raw = unsafe { array(from.raw.cast::<u8>(), from.raw_bytes, "raw") }?;
        launch = launch.raw_arguments(raw);
    }
    let explicit: Vec<_> = kernel.explicit().collect();
    // CAST: 32 bits into 64.
    if from.raw_bytes == 0 && from.argument_count as usize != explicit.len() {
        return Err(Failure::invalid(format!(
            "{} arguments where the kernel has {}",
            from.argument_count,
            explicit.len()
        )));
    }
    if from.argument_count == 0 {
        return Ok(launch);
    }
    // SAFETY: the caller's promise.
    let values = unsafe { array(from.arguments, from.argument_count, "arguments") }?;
    for (argument, value) in explicit.into_iter().zip(values) {
        if value.is_null() {
            return Err(Failure::invalid("An argument is NULL, not its value"));
        }
        let (bytes, is_local) = match argument.kind {
            ArgumentKind::DynamicShared => (4, true),
            _ => (argument.size as usize, false), // CAST: 32 bits into 64.
        };
        // SAFETY: not null, and the caller's promise: it points to a value of the argument's size.
        let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), bytes) };
        launch = launch.argument(match (is_local, value) {
            (true, [a, b, c, d]) => Value::Local(u32::from_ne_bytes([*a, *b, *c, *d])),
            _ => Value::Bytes(value.to_vec()),
        });
    }
    Ok(launch)
}

/// Launches a kernel on an AQL queue: stores its arguments, those that the source does not name included, and writes the
/// packet. The GPU runs it after rkfd_queue_commit(). Where the queue's waves have less private memory than the kernel
/// needs, the call waits until the queue is idle, and gives them more. `index`, unless NULL, receives the packet's index.
/// -EINVAL for dimensions, memory or arguments that cannot be; otherwise as rkfd_aql_emit().
///
/// MT-Safe.
///
/// # Safety
/// `dispatch` points to as many bytes as its `size` says, its pointers to values of the arguments' sizes; `kernarg` is
/// memory for the arguments that nobody else uses.
#[no_mangle]
pub unsafe extern "C" fn rkfd_kernel_launch(
    queue: Option<&Queue>,
    kernel: Option<&Kernel>,
    dispatch: *const Dispatch,
    index: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let (queue, kernel) = (given(queue, "queue")?, given(kernel, "kernel")?);
        queue.demand(QueueKind::Aql)?;
        // SAFETY: the caller's promise.
        let from = unsafe { read(dispatch) }?;
        // SAFETY: the caller's promise.
        let launch = unsafe { launch_of(kernel, &from) }?;
        let planned = launch
            .plan(&queue.queue.surroundings())
            .map_err(library::error::Error::from)?;
        let kernarg = from.kernarg;
        // CAST: an address, and an alignment of 32 bits.
        let (address, align) = (kernarg as u64, u64::from(planned.kernarg_align));
        if planned.kernargs.is_empty() {
            let encoded = launch.encode(&planned, 0)?;
            let _scratch = queue.queue.provide_scratch(planned.private_bytes)?;
            return put_aql(queue, encoded, None, index);
        }
        if kernarg.is_null() || address % align != 0 {
            let text = format!("kernarg is NULL, or not on {align} bytes");
            return Err(Failure::invalid(text));
        }
        let encoded = launch.encode(&planned, address)?;
        let _scratch = queue.queue.provide_scratch(planned.private_bytes)?;
        // SAFETY: the caller's promise: not null, writable, and of the arguments' size.
        unsafe {
            let to = kernarg.cast::<u8>();
            std::ptr::copy_nonoverlapping(planned.kernargs.as_ptr(), to, planned.kernargs.len());
        }
        put_aql(queue, encoded, None, index)
    })
}

/// Sees to it that waves of an AQL queue have at least `bytes` of private memory for each work-item, for dispatch packets
/// of the program's own. Where they have less, it waits until the queue is idle. -EINVAL for more than there can be.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_queue_provide_scratch(queue: Option<&Queue>, bytes: u32) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        queue.demand(QueueKind::Aql)?;
        drop(queue.queue.provide_scratch(bytes)?);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_refused_and_freeing_it_is_not() {
        let invalid = -(Errno::EINVAL as c_int);
        // SAFETY: NULL is allowed everywhere.
        unsafe {
            assert_eq!(rkfd_program_load(None, null(), 0, None), invalid);
            assert_eq!(rkfd_program_symbol(None, null(), None, None), invalid);
            assert_eq!(rkfd_kernel_new(None, null(), None), invalid);
            assert_eq!(rkfd_kernel_describe(None, std::ptr::null_mut()), invalid);
            assert_eq!(rkfd_kernel_argument(None, 0, std::ptr::null_mut()), invalid);
            assert_eq!(rkfd_kernel_launch(None, None, null(), None), invalid);
        }
        assert_eq!(rkfd_queue_provide_scratch(None, 0), invalid);
        assert!(rkfd_program_kernel(None, 0).is_null());
        rkfd_program_free(None);
        rkfd_kernel_free(None);
    }

    #[test]
    fn numbers_from_c_are_checked() {
        assert_eq!(scope_of(RKFD_SCOPE_AGENT).unwrap(), Scope::Agent);
        assert!(scope_of(3).is_err());
        assert_eq!(group_of([0, 256, 65535]).unwrap(), [1, 256, 65535]);
        assert!(group_of([1, 65536, 1]).is_err());
        // SAFETY: it is no pointer that is read.
        assert!(unsafe { name_of(null()) }.is_err());
    }
}
