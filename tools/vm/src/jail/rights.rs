// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The rights with which QEMU runs.

use super::Spec;
use anyhow::Context;
use nix::unistd::setgroups;
use nix::unistd::setresgid;
use nix::unistd::setresuid;
use nix::unistd::Gid;
use nix::unistd::Uid;
use rustix::io::Errno;
use rustix::thread::capabilities;
use rustix::thread::clear_ambient_capability_set;
use rustix::thread::configure_capability_in_ambient_set;
use rustix::thread::remove_capability_from_bounding_set;
use rustix::thread::set_capabilities;
use rustix::thread::set_keep_capabilities;
use rustix::thread::set_no_new_privs;
use rustix::thread::CapabilitySet;
use rustix::thread::CapabilitySets;
use std::fs;

/// The user and group that own nothing.
const NOBODY: u32 = 65534;

/// Which rights a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rights {
    /// Whether QEMU must be root, which owns the device nodes and, mostly, what is shared.
    root: bool,
    /// Capabilities that it keeps.
    kept: CapabilitySet,
}

impl Rights {
    /// Those of `spec`. `one_user`: the user namespace maps only the id of the caller.
    fn of(spec: &Spec, one_user: bool) -> Self {
        if one_user {
            // A capability here holds for the user's own files, to which it adds nothing.
            return Self {
                root: true,
                kept: CapabilitySet::empty(),
            };
        }
        // A checkout's files need not be readable by all; what is not shared is mounted for reading only. Not
        // CAP_DAC_READ_SEARCH: with that any file of a mounted file system could be opened by its handle, whatever the
        // root.
        let mut kept = CapabilitySet::DAC_OVERRIDE;
        if !spec.shares.is_empty() {
            // The guest's root writes there as root does: files of any owner, with any mode.
            kept |= CapabilitySet::CHOWN | CapabilitySet::FOWNER | CapabilitySet::FSETID;
        }
        Self {
            root: !spec.shares.is_empty() || !spec.devices.is_empty(),
            kept,
        }
    }
}

/// Whether the table of /proc/self/uid_map has only the user's own id.
fn has_one_user(uid_map: &str) -> bool {
    let mut sizes = uid_map.lines().map(|line| line.split_whitespace().nth(2));
    sizes.all(|size| size == Some("1"))
}

/// Gives up, for good, every right that `spec` has no need of.
pub(super) fn give_up(spec: &Spec) -> anyhow::Result<()> {
    let map = fs::read_to_string("/proc/self/uid_map").context("reading /proc/self/uid_map")?;
    let rights = Rights::of(spec, has_one_user(&map));
    set_no_new_privs(true).context("setting no_new_privs")?;
    // All bits: a newer kernel may have capabilities that have no name here.
    let all = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
    for capability in all.filter(|one| !rights.kept.contains(*one)) {
        match remove_capability_from_bounding_set(capability) {
            // There is no such capability.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error).context("narrowing the bounding set"),
        }
    }
    clear_ambient_capability_set().context("clearing the ambient capabilities")?;
    if !rights.root {
        set_keep_capabilities(true).context("keeping capabilities")?;
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        setgroups(&[]).context("leaving all groups")?;
        setresgid(group, group, group).context("becoming the group nobody")?;
        setresuid(user, user, user).context("becoming nobody")?;
    }
    set_capabilities(
        None,
        CapabilitySets {
            effective: rights.kept,
            permitted: rights.kept,
            inheritable: rights.kept,
        },
    )
    .context("giving up capabilities")?;
    for capability in rights.kept.iter() {
        configure_capability_in_ambient_set(capability, true)
            .context("keeping a capability over exec")?;
    }
    let left = capabilities(None).context("reading the capabilities")?;
    anyhow::ensure!(
        left.permitted == rights.kept,
        "capabilities are left: {:?}",
        left.permitted
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Share;

    #[test]
    fn a_run_has_the_rights_that_it_needs() {
        let plain = Rights::of(&Spec::default(), false);
        assert!(!plain.root);
        assert_eq!(plain.kept, CapabilitySet::DAC_OVERRIDE);
        let share = Share {
            tag: "share0".into(),
            path: "/home/a".into(),
        };
        let shares = Spec {
            shares: vec![share],
            ..Spec::default()
        };
        let writing = Rights::of(&shares, false);
        assert!(writing.root);
        assert!(writing.kept.contains(CapabilitySet::DAC_OVERRIDE));
        assert!(!writing
            .kept
            .intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_READ_SEARCH));
        assert!(Rights::of(&shares, true).kept.is_empty());
        let devices = Spec {
            devices: vec!["/dev/kvm".into()],
            ..Spec::default()
        };
        let accelerated = Rights::of(&devices, false);
        assert!(accelerated.root);
        assert_eq!(accelerated.kept, CapabilitySet::DAC_OVERRIDE);
    }

    #[test]
    fn one_user_is_told_from_many() {
        assert!(has_one_user("         0       1000          1\n"));
        assert!(!has_one_user("         0          0 4294967295\n"));
        assert!(!has_one_user("0 1000 1\n1 100000 65535\n"));
    }
}
