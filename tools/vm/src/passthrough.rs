// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Whether a real card can be handed to the VM.

use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;

/// Why a card cannot be passed through, with what to do about it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// The text is no PCI address.
    #[error("{0:?} is no PCI address; it looks like 0000:03:00.0 (see lspci -D)")]
    NoAddress(String),
    /// No such device.
    #[error("there is no PCI device {0} on this machine (see lspci -D)")]
    NoDevice(String),
    /// The host has no IOMMU.
    #[error(
        "{0} is in no IOMMU group, so its DMA cannot be confined; switch the IOMMU on in the firmware and \
         boot the host with intel_iommu=on or amd_iommu=on (inside a VM there is usually none)"
    )]
    NoIommu(String),
    /// Another driver holds it.
    #[error(
        "{address} is bound to {driver}, not to vfio-pci; as root: \
         echo vfio-pci > /sys/bus/pci/devices/{address}/driver_override && \
         echo {address} > /sys/bus/pci/devices/{address}/driver/unbind && \
         echo {address} > /sys/bus/pci/drivers_probe"
    )]
    OtherDriver {
        /// The card.
        address: String,
        /// The driver.
        driver: String,
    },
    /// No driver holds it.
    #[error(
        "{0} has no driver; as root: modprobe vfio-pci && \
         echo vfio-pci > /sys/bus/pci/devices/{0}/driver_override && echo {0} > /sys/bus/pci/drivers_probe"
    )]
    NoDriver(String),
    /// The card shares its IOMMU group with a device that the host uses.
    #[error(
        "{address} shares IOMMU group {group} with {other}, which is bound to {driver}; the whole group must \
         be given away, so bind that device to vfio-pci too or use another slot"
    )]
    GroupInUse {
        /// The card.
        address: String,
        /// Its group.
        group: String,
        /// The other device.
        other: String,
        /// The other device's driver.
        driver: String,
    },
    /// A device node is missing or may not be opened.
    #[error("{path} cannot be opened: {error}; {hint}")]
    NoAccess {
        /// The node.
        path: String,
        /// Why.
        error: String,
        /// What helps.
        hint: &'static str,
    },
}

/// Where the kernel shows devices; a parameter so that tests can show their own.
#[derive(Clone, Debug)]
pub struct Host {
    /// `/sys/bus/pci/devices`.
    pub devices: PathBuf,
    /// `/dev/vfio`.
    pub vfio: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            devices: "/sys/bus/pci/devices".into(),
            vfio: "/dev/vfio".into(),
        }
    }
}

impl Host {
    /// Checks the card at `address` and returns its full address and its PCI device id.
    ///
    /// # Errors
    /// The first thing that is in the way.
    pub fn check(&self, address: &str) -> Result<Card, Refusal> {
        let address = full_address(address).ok_or_else(|| Refusal::NoAddress(address.into()))?;
        let device = self.devices.join(&address);
        if !device.exists() {
            return Err(Refusal::NoDevice(address));
        }
        let Some(group) = link_name(&device.join("iommu_group")) else {
            return Err(Refusal::NoIommu(address));
        };
        match link_name(&device.join("driver")) {
            Some(driver) if driver == "vfio-pci" => {}
            Some(driver) => return Err(Refusal::OtherDriver { address, driver }),
            None => return Err(Refusal::NoDriver(address)),
        }
        self.check_group(&address, &group)?;
        accessible(
            &self.vfio.join("vfio"),
            "load the module vfio, and let the container see /dev/vfio",
        )?;
        accessible(
            &self.vfio.join(&group),
            "run as root, and let the container see /dev/vfio",
        )?;
        let id = fs::read_to_string(device.join("device")).unwrap_or_default();
        Ok(Card {
            device_id: id.trim().trim_start_matches("0x").to_owned(),
            address,
        })
    }

    fn check_group(&self, address: &str, group: &str) -> Result<(), Refusal> {
        let members = self.devices.join(address).join("iommu_group/devices");
        let mut others: Vec<String> = fs::read_dir(members)
            .map(|entries| {
                entries
                    .flatten()
                    .map(|entry| entry.file_name().to_string_lossy().into_owned())
                    .collect()
            })
            .unwrap_or_default();
        others.sort();
        for other in others.into_iter().filter(|other| other != address) {
            // A group is viable while its other members have no driver, a vfio driver, or are bridges.
            match link_name(&self.devices.join(&other).join("driver")) {
                None => {}
                Some(driver) if driver.starts_with("vfio") || driver == "pcieport" => {}
                Some(driver) => {
                    return Err(Refusal::GroupInUse {
                        address: address.into(),
                        group: group.into(),
                        other,
                        driver,
                    })
                }
            }
        }
        Ok(())
    }
}

/// A card that can be passed through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Full PCI address.
    pub address: String,
    /// PCI device id in hexadecimal, as `force_probe` takes it.
    pub device_id: String,
}

/// `03:00.0` and `0000:03:00.0` as the latter.
fn full_address(text: &str) -> Option<String> {
    let hex = |part: &str, digits| {
        part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let (rest, function) = text.split_once('.')?;
    let parts: Vec<&str> = rest.split(':').collect();
    let (domain, bus, slot) = match parts.as_slice() {
        [bus, slot] => ("0000", *bus, *slot),
        [domain, bus, slot] => (*domain, *bus, *slot),
        _ => return None,
    };
    let valid = hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && hex(function, 1);
    valid.then(|| format!("{domain}:{bus}:{slot}.{function}").to_ascii_lowercase())
}

fn link_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

fn accessible(path: &Path, hint: &'static str) -> Result<(), Refusal> {
    match File::options().read(true).write(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Refusal::NoAccess {
            path: path.display().to_string(),
            error: error.to_string(),
            hint,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Fake {
        dir: tempfile::TempDir,
        host: Host,
    }

    const CARD: &str = "0000:03:00.0";

    impl Fake {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let host = Host {
                devices: dir.path().join("devices"),
                vfio: dir.path().join("vfio"),
            };
            fs::create_dir_all(dir.path().join("groups/9/devices")).unwrap();
            fs::create_dir(&host.vfio).unwrap();
            Self { dir, host }
        }

        fn device(&self, address: &str, driver: Option<&str>, group: bool) {
            let device = self.host.devices.join(address);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("device"), "0x740f\n").unwrap();
            if let Some(driver) = driver {
                symlink(format!("../drivers/{driver}"), device.join("driver")).unwrap();
            }
            if group {
                symlink(self.dir.path().join("groups/9"), device.join("iommu_group")).unwrap();
                fs::write(self.dir.path().join("groups/9/devices").join(address), "").unwrap();
            }
        }
    }

    #[test]
    fn a_free_card_is_accepted_by_short_address() {
        let fake = Fake::new();
        fake.device(CARD, Some("vfio-pci"), true);
        fake.device("0000:02:00.0", Some("pcieport"), true);
        fake.device("0000:03:00.1", None, true);
        fs::write(fake.host.vfio.join("vfio"), "").unwrap();
        fs::write(fake.host.vfio.join("9"), "").unwrap();
        let card = fake.host.check("03:00.0").unwrap();
        assert_eq!(
            (card.address.as_str(), card.device_id.as_str()),
            (CARD, "740f")
        );
    }

    #[test]
    fn each_obstacle_is_named() {
        let fake = Fake::new();
        for text in ["", "gpu", "03:00", "0000:03:00.00", "3:0.0", "a:b:c:d.e"] {
            assert_eq!(fake.host.check(text), Err(Refusal::NoAddress(text.into())));
        }
        assert_eq!(fake.host.check(CARD), Err(Refusal::NoDevice(CARD.into())));
        fake.device(CARD, None, false);
        assert_eq!(fake.host.check(CARD), Err(Refusal::NoIommu(CARD.into())));
        fake.device(CARD, None, true);
        assert_eq!(fake.host.check(CARD), Err(Refusal::NoDriver(CARD.into())));
        fake.device("0000:04:00.0", Some("amdgpu"), true);
        assert_eq!(
            fake.host.check("0000:04:00.0"),
            Err(Refusal::OtherDriver {
                address: "0000:04:00.0".into(),
                driver: "amdgpu".into()
            })
        );
    }

    #[test]
    fn a_group_in_use_and_missing_nodes_are_named() {
        let fake = Fake::new();
        fake.device(CARD, Some("vfio-pci"), true);
        let refusal = fake.host.check(CARD).unwrap_err();
        assert!(
            refusal
                .to_string()
                .contains("/vfio/vfio cannot be opened: No such file"),
            "{refusal}"
        );
        fake.device("0000:03:00.1", Some("snd_hda_intel"), true);
        let refusal = fake.host.check(CARD).unwrap_err();
        assert!(
            refusal.to_string().contains(
                "shares IOMMU group 9 with 0000:03:00.1, which is bound to snd_hda_intel"
            ),
            "{refusal}"
        );
    }
}
