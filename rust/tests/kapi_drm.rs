// SPDX-License-Identifier: GPL-2.0

//! Commands of the DRM node, and files that are none of it.

use kernel::{
    drm,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use crate::{
    drm::{
        Client,
        RkfdDrm, //
    },
    kapi::{
        chrdev::{
            CharDevice,
            FileOps,
            MmapRequest, //
        },
        drm_file::DrmFile,
        drm_ioctl::{
            self,
            Ioctl,
            Reply, //
        },
        kunit::UserMemory, //
    },
};

/// A command that is never called.
struct Command;

// SAFETY: No table has it.
unsafe impl Ioctl for Command {
    type Driver = RkfdDrm;
    type Arg = [u32; 6];
    const NR: u32 = 9;
    const NAME: &'static CStr = c"RKFD_KUNIT";

    fn run(
        _dev: &drm::Device<RkfdDrm, drm::Registered>,
        _arg: [u32; 6],
        _file: &drm::File<Client>,
    ) -> Result<Reply> {
        Err(EINVAL)
    }
}

#[kunit_tests(rkfd_kapi_drm_ioctl)]
mod ioctl {
    use super::*;

    #[test]
    fn descriptor_says_number_size_and_direction() {
        let command = drm_ioctl::render::<Command>();
        // _IOW('d', 0x40 + 9, 24 bytes).
        assert_eq!(command.cmd, 1 << 30 | 24 << 16 | 0x64 << 8 | 0x49);
        assert_eq!(command.flags, drm::ioctl::RENDER_ALLOW);
        assert!(command.func.is_some());
        assert!(!command.name.is_null());
        assert!(drm_ioctl::HOLE.func.is_none());
        assert_eq!((drm_ioctl::HOLE.cmd, drm_ioctl::HOLE.flags), (0, 0));
    }

    /// A reply of three bytes for `address`.
    fn reply(address: u64) -> Result<Reply> {
        let mut bytes = KVec::new();
        bytes.extend_from_slice(&[0xa5, 0x5a, 0xc3], GFP_KERNEL)?;
        Ok(Reply::new(address, bytes))
    }

    #[test]
    fn reply_reaches_user_memory_and_nothing_beside_it() -> Result {
        let memory = UserMemory::new(PAGE_SIZE)?;
        let at = memory.address() + 100;
        reply(at)?.copy_out()?;
        let mut found = [0xff; 5];
        UserSlice::new(UserPtr::from_addr(usize::try_from(at - 1)?), 5)
            .reader()
            .read_slice(&mut found)?;
        assert_eq!(found, [0, 0xa5, 0x5a, 0xc3, 0]);

        // None at all is no access.
        Reply::new(0, KVec::new()).copy_out()?;
        // Half behind the end, where nothing is mapped, and in the kernel's half.
        // CAST: `usize` is at most 64 bits wide.
        let end = memory.address() + PAGE_SIZE as u64;
        assert_eq!(reply(end - 1)?.copy_out(), Err(EFAULT));
        memory.unmap();
        for address in [at, 0, u64::MAX, 0xffff_8880_0000_0000] {
            assert_eq!(reply(address)?.copy_out(), Err(EFAULT));
        }
        Ok(())
    }
}

/// A file of this module that is not of DRM.
struct Stranger;

impl FileOps for Stranger {
    type Context = ();

    fn open(_context: &Arc<()>) -> Result<KBox<Self>> {
        Ok(KBox::new(Self, GFP_KERNEL)?)
    }

    fn ioctl(&self, _command: u32, _argument: usize) -> Result<isize> {
        Err(ENOTTY)
    }

    fn mmap(&self, _request: MmapRequest<'_>) -> Result {
        Err(ENODEV)
    }
}

#[kunit_tests(rkfd_kapi_drm_file)]
mod file {
    use super::*;

    #[test]
    fn file_of_another_kind_is_refused() -> Result {
        // The same module is its owner, but it was not opened by DRM: what it keeps is no file of the render node.
        let device = CharDevice::<Stranger>::new(c"rkfd-kunit", Arc::new((), GFP_KERNEL)?)?;
        let file = device.test_file()?;
        let taken = DrmFile::<RkfdDrm>::from_file(file.behind_descriptor());
        assert_eq!(taken.err(), Some(EINVAL));
        Ok(())
    }
}
