// SPDX-License-Identifier: GPL-2.0

//! Directories and texts in sysfs.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::kapi::{
    kobject::{
        Directory,
        Parent,
        Text, //
    },
    kunit::DmaDevice, //
};

fn text(content: &[u8]) -> Result<Arc<Text>> {
    let mut bytes = KVVec::new();
    bytes.extend_from_slice(content, GFP_KERNEL)?;
    Text::new(bytes)
}

fn bytes(content: &[u8]) -> Result<KVVec<u8>> {
    let mut bytes = KVVec::new();
    bytes.extend_from_slice(content, GFP_KERNEL)?;
    Ok(bytes)
}

#[kunit_tests(rkfd_kobject)]
mod suite {
    use super::*;

    #[test]
    fn a_text_tells_whether_it_changed() -> Result {
        let text = text(b"one\n")?;
        assert!(!text.set(bytes(b"one\n")?));
        assert!(text.set(bytes(b"one")?));
        assert!(text.set(bytes(b"")?));
        assert!(!text.set(bytes(b"")?));
        Ok(())
    }

    #[test]
    fn a_name_is_taken_until_its_directory_is_dropped() -> Result {
        let device = DmaDevice::new(c"rkfd_test_sysfs")?;
        let parent = Parent::Device(device.device());
        let files = [(c"first", text(b"1")?), (c"second", text(b"2")?)];
        let top = Directory::new(parent, fmt!("nodes"), &files)?;
        // A directory in the directory, and one without files.
        let inner = Directory::new(Parent::Directory(&top), fmt!("{}", 0), &files)?;
        let empty = Directory::new(Parent::Directory(&top), fmt!("{}", 1), &[])?;
        drop(inner);
        let again = Directory::new(Parent::Directory(&top), fmt!("{}", 0), &files)?;
        drop((again, empty));
        drop(top);
        let top = Directory::new(parent, fmt!("nodes"), &files)?;
        drop(top);
        // The texts outlive their files.
        assert!(files[0].1.set(bytes(b"3")?));
        Ok(())
    }

    #[test]
    fn a_directory_without_a_name_is_refused() -> Result {
        let device = DmaDevice::new(c"rkfd_test_sysfs")?;
        let parent = Parent::Device(device.device());
        assert_eq!(Directory::new(parent, fmt!(""), &[]).err(), Some(EINVAL));
        drop(Directory::new(parent, fmt!("named"), &[])?);
        Ok(())
    }
}
