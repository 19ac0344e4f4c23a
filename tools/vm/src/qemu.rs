// SPDX-License-Identifier: GPL-2.0 OR MIT
//! QEMU's command line.

use crate::accel::Accel;
use crate::jail;
use crate::protocol;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;

/// Name of the program.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// 9p mount tag of the root.
const ROOT_TAG: &str = "rkfd-root";
/// Options by which QEMU forbids itself what no run needs: old system calls, more rights, other programs,
/// priorities.
pub const SANDBOX: [&str; 2] = [
    "-sandbox",
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
];

/// PCI bus numbers of each node's host bridge.
const BUSES: u32 = 64;

/// A GPU in the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// A device model.
    Model {
        /// Name of the vfio-user socket in [`jail::SOCKETS`].
        socket: String,
        /// Name of the control socket there.
        control: String,
    },
    /// A real card.
    Card {
        /// PCI address on the host.
        address: String,
    },
}

/// All that shapes the VM. Files are where [`jail`] shows them.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// TCG or KVM.
    pub accel: Accel,
    /// Process 1 of the guest, a path in its root.
    pub init: &'a Path,
    /// Guest memory in MiB, a multiple of `nodes`.
    pub memory: u64,
    /// Virtual CPUs, a multiple of `nodes`.
    pub cpus: u32,
    /// NUMA nodes, 1 or more, among which memory, CPUs and GPUs are divided.
    pub nodes: u32,
    /// GPUs in order.
    pub gpus: &'a [Gpu],
    /// Shared directories with their tags.
    pub shares: &'a [protocol::Share],
    /// Named ports with the descriptors of their sockets.
    pub ports: &'a [(&'a str, RawFd)],
    /// Descriptor of the socket for the serial console.
    pub console: RawFd,
    /// kHz of the time stamp counter that the guest reads, if known.
    pub tsc_khz: Option<u64>,
    /// Timer ticks per second of the kernel, if known.
    pub hz: Option<u64>,
    /// More kernel parameters.
    pub kernel_args: &'a str,
}

/// A comma in a value of a QEMU option is written twice.
fn escape(value: &Path) -> String {
    value.to_string_lossy().replace(',', ",,")
}

/// A kernel parameter's value with blanks needs quotes.
fn quote(value: &Path) -> String {
    let value = value.to_string_lossy();
    if value.contains(' ') {
        format!("\"{value}\"")
    } else {
        value.into_owned()
    }
}

impl Machine<'_> {
    /// The arguments.
    pub fn args(&self) -> Vec<OsString> {
        let mut args = Args(Vec::new());
        args.two("-accel", self.accel.option());
        args.two("-cpu", self.accel.cpu());
        args.two("-machine", "q35,vmport=off,i8042=off");
        args.two("-m", format!("{}M", self.memory));
        let mut processors = self.accel.processors(self.cpus);
        if self.nodes > 1 {
            // A socket for each: the kernel warns of processors that share a cache across nodes.
            processors.push_str(&format!(",sockets={}", self.nodes));
        }
        args.two("-smp", processors);
        self.nodes(&mut args);
        for bare in ["-nodefaults", "-no-user-config", "-no-reboot"] {
            args.0.push(bare.into());
        }
        args.0.extend(SANDBOX.map(OsString::from));
        args.two("-display", "none");
        args.two("-monitor", "none");
        args.two("-chardev", format!("socket,id=console,fd={}", self.console));
        args.two("-serial", "chardev:console");
        args.two("-kernel", jail::KERNEL);
        args.two("-append", self.kernel_line());
        self.file_systems(&mut args);
        self.serial_ports(&mut args);
        self.bridges(&mut args);
        for (index, gpu) in self.gpus.iter().enumerate() {
            self.gpu(&mut args, index, gpu);
        }
        args.0
    }

    /// Memory and processors of each node.
    fn nodes(&self, args: &mut Args) {
        let memory = self.memory / u64::from(self.nodes);
        let cpus = self.cpus / self.nodes;
        for node in 0..self.nodes {
            // The models map guest memory by its file descriptor.
            args.two(
                "-object",
                format!("memory-backend-memfd,id=ram{node},size={memory}M,share=on"),
            );
            if self.nodes == 1 {
                args.two("-numa", "node,memdev=ram0");
                return;
            }
            let (first, last) = (node * cpus, (node + 1) * cpus - 1);
            args.two(
                "-numa",
                format!("node,nodeid={node},memdev=ram{node},cpus={first}-{last}"),
            );
        }
    }

    /// A PCI host bridge for the GPUs of each node, where there are several. They come behind all devices that do not name
    /// a bus: for these, QEMU takes the newest host bridge. The first node's comes last, since that is what QEMU's ACPI
    /// tables begin with, so that the guest finds GPUs in their order.
    fn bridges(&self, args: &mut Args) {
        for node in (0..self.nodes).rev().filter(|_| self.nodes > 1) {
            args.two(
                "-device",
                format!(
                    "pxb-pcie,id=node{node},bus=pcie.0,bus_nr={},numa_node={node}",
                    (node + 1) * BUSES
                ),
            );
        }
    }

    /// The node of a GPU. GPUs that follow each other share one where there are more GPUs than nodes, so that their
    /// order is that of their PCI addresses.
    fn node_of(&self, gpu: usize) -> usize {
        // CAST: a count of a few.
        let nodes = self.nodes as usize;
        gpu * nodes / self.gpus.len().max(nodes)
    }

    fn kernel_line(&self) -> String {
        // `loglevel` only keeps the slow serial line quiet: the whole log goes over a port, and an oops
        // raises the level by itself. `tsc=reliable` and `no_timer_check` skip tests that measure the
        // host's load. `pci=no_e820`: the firmware puts large BARs into a range that QEMU reserves (AMD's
        // below 1 TiB), where the kernel would refuse to put them again after a rescan of the bus. The stall
        // time of RCU is longer than the kernel's 21 s: a thread of the least priority, such as khugepaged, that
        // is preempted in a reader waits for as long behind dozens of busy processes on one processor.
        let mut line = format!(
            "console=ttyS0 loglevel=4 log_buf_len=4M printk.devkmsg=on panic=-1 oops=panic \
             tsc=reliable no_timer_check random.trust_cpu=on kunit.enable=0 pci=no_e820 \
             rcupdate.rcu_cpu_stall_timeout=100 \
             root={ROOT_TAG} rootfstype=9p ro \
             rootflags=trans=virtio,version=9p2000.L,cache=loose,msize=1048576 init={}",
            quote(self.init)
        );
        if let Some(khz) = self.tsc_khz {
            line.push_str(&format!(" tsc_early_khz={khz}"));
            // Otherwise each processor but the first watches the counter for dozens of ticks, while the first one spins.
            if let Some(ticks) = self.hz.and_then(|hz| (khz * 1000).checked_div(hz)) {
                line.push_str(&format!(" lpj={ticks}"));
            }
        }
        if !self.kernel_args.is_empty() {
            line.push(' ');
            line.push_str(self.kernel_args);
        }
        line
    }

    fn file_systems(&self, args: &mut Args) {
        args.two(
            "-fsdev",
            format!(
                "local,id=root,path={},security_model=none,readonly=on,multidevs=remap",
                jail::EXPORT
            ),
        );
        args.two(
            "-device",
            format!("virtio-9p-pci,fsdev=root,mount_tag={ROOT_TAG}"),
        );
        for share in self.shares {
            let tag = &share.tag;
            args.two(
                "-fsdev",
                format!(
                    "local,id={tag},path={},security_model=none,multidevs=remap",
                    escape(&jail::share(tag))
                ),
            );
            args.two(
                "-device",
                format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
            );
        }
    }

    fn serial_ports(&self, args: &mut Args) {
        args.two("-device", "virtio-serial-pci");
        for (name, descriptor) in self.ports {
            args.two("-chardev", format!("socket,id={name},fd={descriptor}"));
            args.two(
                "-device",
                format!("virtserialport,chardev={name},name={name}"),
            );
        }
    }

    fn gpu(&self, args: &mut Args, index: usize, gpu: &Gpu) {
        // A slot of its own behind a root port, as a real card has.
        let bus = match self.nodes {
            1 => String::new(),
            _ => format!(",bus=node{}", self.node_of(index)),
        };
        args.two(
            "-device",
            format!(
                "pcie-root-port,id=slot{index},chassis={0},slot={0}{bus}",
                index + 1
            ),
        );
        match gpu {
            Gpu::Model { socket, control } => {
                let at = |name: &String| Path::new(jail::SOCKETS).join(name);
                let device = serde_json::json!({
                    "driver": "vfio-user-pci",
                    "id": format!("gpu{index}"),
                    "bus": format!("slot{index}"),
                    "socket": { "type": "unix", "path": at(socket) },
                    // A loaded host may take its time; a dead model closes the socket anyway.
                    "x-msg-timeout": 60_000,
                });
                args.two("-device", device.to_string());
                let name = format!("{}{index}", protocol::PORT_CONTROL_PREFIX);
                args.two(
                    "-chardev",
                    format!("socket,id={name},path={}", escape(&at(control))),
                );
                args.two(
                    "-device",
                    format!("virtserialport,chardev={name},name={name}"),
                );
            }
            Gpu::Card { address } => {
                args.two(
                    "-device",
                    format!("vfio-pci,id=gpu{index},bus=slot{index},host={address}"),
                );
            }
        }
    }
}

struct Args(Vec<OsString>);

impl Args {
    fn two(&mut self, option: &str, value: impl Into<OsString>) {
        self.0.push(option.into());
        self.0.push(value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine<'a>(gpus: &'a [Gpu], shares: &'a [protocol::Share]) -> Machine<'a> {
        Machine {
            accel: Accel::Tcg,
            init: Path::new("/a b/init"),
            memory: 2048,
            cpus: 2,
            nodes: 1,
            gpus,
            shares,
            ports: &[("rkfd.status", 7)],
            console: 9,
            tsc_khz: Some(2_600_000),
            hz: Some(250),
            kernel_args: "kunit.enable=1",
        }
    }

    fn model(index: usize) -> Gpu {
        Gpu::Model {
            socket: format!("gpu{index}"),
            control: format!("control{index}"),
        }
    }

    fn value_after<'a>(args: &'a [String], option: &str, part: &str) -> &'a str {
        let at = args.iter().zip(args.iter().skip(1));
        at.filter(|(name, _)| *name == option)
            .map(|(_, value)| value.as_str())
            .find(|value| value.contains(part))
            .unwrap_or_else(|| panic!("no {option} with {part} in {args:?}"))
    }

    fn strings(machine: &Machine<'_>) -> Vec<String> {
        machine
            .args()
            .into_iter()
            .map(|arg| arg.into_string().unwrap())
            .collect()
    }

    #[test]
    fn no_gpu_means_no_slot() {
        let args = strings(&machine(&[], &[]));
        assert!(!args.iter().any(|arg| arg.contains("pcie-root-port")));
        assert_eq!(
            value_after(&args, "-chardev", "status"),
            "socket,id=rkfd.status,fd=7"
        );
        assert_eq!(value_after(&args, "-serial", ""), "chardev:console");
        let console = value_after(&args, "-chardev", "id=console");
        assert_eq!(console, "socket,id=console,fd=9");
        let line = value_after(&args, "-append", "");
        assert!(line.contains(" init=\"/a b/init\""));
        assert!(line.ends_with(" tsc_early_khz=2600000 lpj=10400000 kunit.enable=1"));
    }

    #[test]
    fn a_lone_processor_leaves_room_for_another() {
        let smp = |accel, cpus| {
            let machine = Machine {
                accel,
                cpus,
                ..machine(&[], &[])
            };
            value_after(&strings(&machine), "-smp", "cpus=").to_string()
        };
        assert_eq!(smp(Accel::Tcg, 1), "cpus=1,maxcpus=2");
        assert_eq!(smp(Accel::Tcg, 4), "cpus=4,maxcpus=4");
        assert_eq!(smp(Accel::Kvm, 1), "cpus=1");
    }

    fn values_after<'a>(args: &'a [String], option: &str, part: &str) -> Vec<&'a str> {
        let at = args.iter().zip(args.iter().skip(1));
        at.filter(|(name, value)| *name == option && value.contains(part))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    #[test]
    fn one_node_has_all_and_no_bridge() {
        let gpus = [model(0), model(1)];
        let args = strings(&machine(&gpus, &[]));
        assert_eq!(value_after(&args, "-m", ""), "2048M");
        assert_eq!(
            values_after(&args, "-object", ""),
            ["memory-backend-memfd,id=ram0,size=2048M,share=on"]
        );
        assert_eq!(values_after(&args, "-numa", ""), ["node,memdev=ram0"]);
        assert_eq!(value_after(&args, "-smp", ""), "cpus=2,maxcpus=2");
        assert!(values_after(&args, "-device", "pxb-pcie").is_empty());
        assert_eq!(
            values_after(&args, "-device", "pcie-root-port"),
            [
                "pcie-root-port,id=slot0,chassis=1,slot=1",
                "pcie-root-port,id=slot1,chassis=2,slot=2"
            ]
        );
    }

    #[test]
    fn nodes_share_memory_processors_and_gpus_evenly() {
        let gpus = [model(0), model(1)];
        let args = strings(&Machine {
            cpus: 4,
            nodes: 2,
            ..machine(&gpus, &[])
        });
        assert_eq!(value_after(&args, "-m", ""), "2048M");
        assert_eq!(value_after(&args, "-smp", ""), "cpus=4,maxcpus=4,sockets=2");
        assert_eq!(
            values_after(&args, "-object", ""),
            [
                "memory-backend-memfd,id=ram0,size=1024M,share=on",
                "memory-backend-memfd,id=ram1,size=1024M,share=on"
            ]
        );
        assert_eq!(
            values_after(&args, "-numa", ""),
            [
                "node,nodeid=0,memdev=ram0,cpus=0-1",
                "node,nodeid=1,memdev=ram1,cpus=2-3"
            ]
        );
        assert_eq!(
            values_after(&args, "-device", "pxb-pcie"),
            [
                "pxb-pcie,id=node1,bus=pcie.0,bus_nr=128,numa_node=1",
                "pxb-pcie,id=node0,bus=pcie.0,bus_nr=64,numa_node=0"
            ]
        );
        assert_eq!(
            values_after(&args, "-device", "pcie-root-port"),
            [
                "pcie-root-port,id=slot0,chassis=1,slot=1,bus=node0",
                "pcie-root-port,id=slot1,chassis=2,slot=2,bus=node1"
            ]
        );
        // Every other device is on the first bridge, which QEMU only takes while there is no newer one.
        let at = |part: &str| args.iter().position(|arg| arg.starts_with(part)).unwrap();
        assert!(at("virtio-9p-pci") < at("pxb-pcie") && at("virtio-serial-pci") < at("pxb-pcie"));
    }

    #[test]
    fn gpus_are_in_the_order_of_their_nodes() {
        for (count, wanted) in [
            (1, &[0][..]),
            (2, &[0, 1]),
            (3, &[0, 0, 1]),
            (4, &[0, 0, 1, 1]),
        ] {
            let gpus: Vec<Gpu> = (0..count).map(model).collect();
            let machine = Machine {
                nodes: 2,
                ..machine(&gpus, &[])
            };
            let found: Vec<usize> = (0..count).map(|gpu| machine.node_of(gpu)).collect();
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn each_gpu_has_a_slot_a_device_and_a_control_port() {
        let gpus = [
            model(0),
            Gpu::Card {
                address: "0000:03:00.0".into(),
            },
        ];
        let args = strings(&machine(&gpus, &[]));
        let device: serde_json::Value =
            serde_json::from_str(value_after(&args, "-device", "vfio-user-pci")).unwrap();
        assert_eq!(device["socket"]["path"], "/run/rkfd/gpu0");
        assert_eq!(device["bus"], "slot0");
        assert_eq!(
            value_after(&args, "-chardev", "control"),
            "socket,id=rkfd.control.0,path=/run/rkfd/control0"
        );
        assert_eq!(
            value_after(&args, "-device", "vfio-pci"),
            "vfio-pci,id=gpu1,bus=slot1,host=0000:03:00.0"
        );
        assert_eq!(
            args.iter()
                .filter(|arg| arg.contains("pcie-root-port"))
                .count(),
            2
        );
    }

    #[test]
    fn a_share_is_writable_and_the_root_is_not() {
        let shares = [protocol::Share {
            tag: "share0".into(),
            path: "/home/a,b".into(),
        }];
        let args = strings(&machine(&[], &shares));
        let root = value_after(&args, "-fsdev", "id=root");
        assert!(root.contains("path=/export,") && root.contains("readonly=on"));
        let share = value_after(&args, "-fsdev", "id=share0");
        assert!(share.contains("path=/shares/share0,") && !share.contains("readonly"));
        // Where it is on the host, QEMU need not know.
        assert!(!args.iter().any(|arg| arg.contains("/home/")));
    }
}
