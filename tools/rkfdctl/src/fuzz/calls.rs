// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Everything but memory and queues: events, the process's settings, fixed answers, wrong arguments, the render node,
//! and children.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::wait::waitpid;
use nix::sys::wait::WaitStatus;
use nix::unistd::ForkResult;
use rkfd::abi;

use super::kinds::Kind;
use super::raw;
use super::tally::errno_name;
use super::thread::Thread;

/// Most events of a process.
const EVENTS: usize = 64;
pub const WRITE: u32 = 1;
pub const READ: u32 = 2;

/// The command word of a call of `/dev/kfd`.
pub const fn command(direction: u32, number: u32, size: u32) -> u32 {
    (direction << 30) | (size << 16) | ((b'K' as u32) << 8) | number // CAST: a byte.
}

/// The command word of a call of a render node.
pub const fn drm_command(direction: u32, number: u32, size: u32) -> u32 {
    (direction << 30) | (size << 16) | ((b'd' as u32) << 8) | number // CAST: a byte.
}

/// What nothing stands behind: kind, command word, and whether its first word is a GPU id, a process id or neither.
const FIXED: &[(Kind, u32, First)] = &[
    (Kind::OldDebugger, command(WRITE, 0x0d, 8), First::Gpu),
    (Kind::OldDebugger, command(WRITE, 0x0e, 8), First::Gpu),
    (Kind::OldDebugger, command(WRITE, 0x0f, 16), First::Any),
    (Kind::OldDebugger, command(WRITE, 0x10, 16), First::Any),
    (Kind::Criu, command(READ | WRITE, 0x22, 56), First::Any),
    (
        Kind::DbgTrap,
        command(READ | WRITE, 0x26, 32),
        First::Process,
    ),
    (Kind::Profiler, command(READ | WRITE, 0x28, 16), First::Any),
    (Kind::Unknown, command(READ | WRITE, 0x00, 8), First::Any),
    (Kind::Unknown, command(READ | WRITE, 0x29, 8), First::Any),
    (Kind::Unknown, command(READ | WRITE, 0x80, 64), First::Any),
    (Kind::Unknown, command(READ | WRITE, 0x81, 64), First::Any),
    (Kind::Unknown, command(READ | WRITE, 0x82, 64), First::Any),
    (Kind::Unknown, command(READ | WRITE, 0x83, 64), First::Any),
    (Kind::Unknown, command(READ | WRITE, 0x84, 64), First::Any),
    (Kind::Unknown, command(READ | WRITE, 0x85, 64), First::Any),
    (Kind::Unknown, command(READ | WRITE, 0xff, 8), First::Any),
];

/// CREATE_PROCESS, which has no argument.
const CREATE_PROCESS: u32 = command(0, 0x27, 0);

/// What the first word of an argument is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Gpu,
    Process,
    Any,
}

impl Thread<'_> {
    /// The id of an event.
    fn any_event(&mut self) -> u32 {
        let right = {
            let objects = self.process.objects();
            self.dice.pick(&objects.events).unwrap_or(0)
        };
        self.dice.w32(right)
    }

    pub fn create_event(&mut self) {
        if self.process.objects().events.len() >= EVENTS {
            return self.destroy_event();
        }
        let kind = self
            .dice
            .pick(&[0, 0, 0, 0, 1, 2, 3, 5, 6, 7, 8])
            .unwrap_or(0);
        let dice = &mut self.dice;
        let mut arg = abi::CreateEvent {
            event_page_offset: dice.w64(0),
            event_type: dice.w32(kind),
            auto_reset: dice.below(2) as u32, // CAST: below 2.
            node_id: dice.w32(0),
            ..Default::default()
        };
        if self
            .process
            .call(Kind::CreateEvent, abi::CREATE_EVENT, &mut arg)
            == 0
        {
            self.process.objects().events.push(arg.event_id);
        }
    }

    pub fn destroy_event(&mut self) {
        let id = {
            let mut objects = self.process.objects();
            let at = self.dice.index(objects.events.len());
            at.map(|at| objects.events.swap_remove(at))
        };
        let mut arg = abi::DestroyEvent {
            event_id: id.unwrap_or(0x7777_7777),
            pad: 0,
        };
        self.process
            .call(Kind::DestroyEvent, abi::DESTROY_EVENT, &mut arg);
    }

    pub fn set_event(&mut self) {
        let mut arg = abi::SetEvent {
            event_id: self.any_event(),
            pad: 0,
        };
        self.process.call(Kind::SetEvent, abi::SET_EVENT, &mut arg);
    }

    pub fn reset_event(&mut self) {
        let mut arg = abi::ResetEvent {
            event_id: self.any_event(),
            pad: 0,
        };
        self.process
            .call(Kind::ResetEvent, abi::RESET_EVENT, &mut arg);
    }

    pub fn wait_events(&mut self) {
        let count = self.dice.below(6);
        let mut list: Vec<abi::EventData> = (0..count)
            .map(|_| abi::EventData {
                event_id: self.any_event(),
                last_event_age: self.dice.w64(0),
                ..Default::default()
            })
            .collect();
        let ms = self.dice.pick(&[0, 0, 1, 5, 20]).unwrap_or(0);
        let mut arg = abi::WaitEvents {
            events_ptr: self.pointer(list.as_mut_ptr().expose_provenance()),
            num_events: count as u32, // CAST: below 6.
            wait_for_all: self.dice.w32(0),
            timeout: ms,
            ..Default::default()
        };
        if self.dice.odd() {
            // More than the kernel takes; or some that lie nowhere.
            (arg.num_events, arg.events_ptr) = (5000, super::dice::LOW_ADDRESS);
        }
        self.process
            .call(Kind::WaitEvents, abi::WAIT_EVENTS, &mut arg);
    }

    /// Calls about the process and its GPU.
    pub fn about_process(&mut self) {
        let process = self.process;
        let gpu_id = self.dice.w32(process.plan.target.gpu_id);
        match self.dice.below(11) {
            0 => {
                process.call(
                    Kind::GetVersion,
                    abi::GET_VERSION,
                    &mut abi::GetVersion::default(),
                );
            }
            1 => {
                let mut arg = abi::GetClockCounters {
                    gpu_id,
                    ..Default::default()
                };
                process.call(Kind::Clocks, abi::GET_CLOCK_COUNTERS, &mut arg);
            }
            2 => {
                process.call(Kind::Apertures, command(READ, 0x06, 400), &mut [0u64; 50]);
            }
            3 => {
                let mut room = [abi::Apertures::default(); 16];
                let mut arg = abi::GetAperturesNew {
                    kfd_process_device_apertures_ptr: self
                        .pointer(room.as_mut_ptr().expose_provenance()),
                    num_of_nodes: self.dice.below(17) as u32, // CAST: at most 16.
                    pad: 0,
                };
                process.call(Kind::AperturesNew, abi::GET_PROCESS_APERTURES_NEW, &mut arg);
            }
            4 => {
                let dice = &mut self.dice;
                let mut arg = abi::SetMemoryPolicy {
                    alternate_aperture_base: dice.w64(0),
                    alternate_aperture_size: dice.w64(0),
                    gpu_id,
                    default_policy: dice.w32(0),
                    alternate_policy: dice.w32(1),
                    misc_process_flag: dice.w32(0),
                };
                process.call(Kind::MemoryPolicy, abi::SET_MEMORY_POLICY, &mut arg);
            }
            5 => {
                let mut arg = abi::SetScratchBackingVa {
                    va_addr: self.dice.w64(0x10000),
                    gpu_id,
                    pad: 0,
                };
                process.call(Kind::Scratch, abi::SET_SCRATCH_BACKING_VA, &mut arg);
            }
            6 => {
                let (mut tiles, mut macro_tiles) = ([0u32; 64], [0u32; 64]);
                let mut arg = abi::GetTileConfig {
                    tile_config_ptr: self.pointer(tiles.as_mut_ptr().expose_provenance()),
                    macro_tile_config_ptr: self
                        .pointer(macro_tiles.as_mut_ptr().expose_provenance()),
                    num_tile_configs: self.dice.below(65) as u32, // CAST: at most 64.
                    num_macro_tile_configs: self.dice.below(65) as u32, // CAST: as above.
                    gpu_id,
                    ..Default::default()
                };
                process.call(Kind::TileConfig, abi::GET_TILE_CONFIG, &mut arg);
            }
            7 => {
                let mut arg = abi::SetTrapHandler {
                    tba_addr: self.dice.w64(0),
                    tma_addr: self.dice.w64(0),
                    gpu_id,
                    pad: 0,
                };
                process.call(Kind::TrapHandler, abi::SET_TRAP_HANDLER, &mut arg);
            }
            8 => {
                let mode = self.dice.pick(&[-1, -1, 0, 1, i32::MIN]).unwrap_or(-1);
                let mut arg = abi::SetXnackMode {
                    xnack_enabled: mode,
                };
                process.call(Kind::Xnack, abi::SET_XNACK_MODE, &mut arg);
            }
            9 => {
                let mut arg = abi::AvailableMemory {
                    gpu_id,
                    ..Default::default()
                };
                process.call(Kind::Available, abi::AVAILABLE_MEMORY, &mut arg);
            }
            _ => {
                let mut arg = abi::RuntimeEnable {
                    r_debug: self.dice.w64(0),
                    mode_mask: self.dice.below(4) as u32, // CAST: below 4.
                    capabilities_mask: 0,
                };
                process.call(Kind::Runtime, abi::RUNTIME_ENABLE, &mut arg);
            }
        }
    }

    pub fn fixed_answers(&mut self) {
        let Some((kind, word, first)) = self.dice.pick(FIXED) else {
            return;
        };
        // No word is an address: these calls never come to use one, and must not.
        let mut argument = [0u32; 16];
        for word in &mut argument {
            *word = self.dice.below(8) as u32; // CAST: below 8.
            *word = self.dice.w32(*word);
        }
        argument[0] = match first {
            First::Gpu => self.dice.w32(self.process.plan.target.gpu_id),
            First::Process => self.dice.pick(&[std::process::id(), 1, 0]).unwrap_or(0),
            First::Any => argument[0],
        };
        self.process.call(kind, word, &mut argument);
    }

    /// A call of those that this program knows, at a wrong place.
    pub fn bad_argument(&mut self) {
        let Some(call) = self.dice.pick(abi::CALLS) else {
            return;
        };
        self.dice.begin_right();
        let hole = self.process.hole.address() as u64; // CAST: an address.
        let place = self
            .dice
            .pick(&[
                0,
                super::dice::LOW_ADDRESS,
                super::dice::KERNEL_ADDRESS,
                hole,
            ])
            .unwrap_or(0);
        // SAFETY: none of the places has memory.
        let errno = unsafe { raw::ioctl(self.process.kfd.as_fd(), call.command, place) };
        self.process
            .answered(Kind::BadArgument, errno, &format!(" ({})", call.name));
    }

    /// A call with a shorter or longer argument than it has: the rest is zero, or too much.
    pub fn odd_size(&mut self) {
        let number = 1 + self.dice.below(0x28) as u32; // CAST: a small number.
        let size = match self.dice.below(4) {
            0 => self.dice.below(16) as u32,      // CAST: as above.
            1 => 4 * self.dice.below(64) as u32,  // CAST: as above.
            2 => self.dice.below(1 << 14) as u32, // CAST: 14 bits.
            _ => (1 << 14) - 1,
        };
        // These would free or stop what the others count on, or hide it from the descriptor.
        if matches!(number, 0x03 | 0x15 | 0x17 | 0x19 | 0x27) {
            return;
        }
        self.argument.0.fill(0);
        for at in 0..16 {
            let word = self.dice.below(4) as u32; // CAST: below 4.
                                                  // Upper halves stay 0, so that no address comes of two words.
            if at % 2 == 0 {
                self.argument.0[at] = word;
            }
        }
        let place = std::ptr::from_mut(&mut *self.argument).expose_provenance() as u64; // CAST: an address.
        let word = command(READ | WRITE, number, size);
        // SAFETY: room for the largest argument; addresses in it are small numbers, where nothing is mapped.
        let errno = unsafe { raw::ioctl(self.process.kfd.as_fd(), word, place) };
        self.process.answered(
            Kind::OddSize,
            errno,
            &format!(" ({number:#04x}, {size} bytes)"),
        );
    }

    /// A second descriptor of each node.
    pub fn open_again(&mut self) {
        let process = self.process;
        let open = |kind: Kind, path: &std::path::Path| {
            let file = File::options().read(true).write(true).open(path);
            let errno = file.as_ref().err().and_then(std::io::Error::raw_os_error);
            process.answered(kind, errno.unwrap_or(0), "");
            file.ok()
        };
        if self.dice.one_in(2) {
            if let Some(file) = open(Kind::OpenKfd, std::path::Path::new("/dev/kfd")) {
                let mut arg = abi::GetVersion::default();
                // CAST: an address.
                let place = std::ptr::from_mut(&mut arg).expose_provenance() as u64;
                // SAFETY: an argument of that size, without pointers.
                let errno = unsafe { raw::ioctl(file.as_fd(), abi::GET_VERSION, place) };
                process.answered(Kind::GetVersion, errno, " (second descriptor)");
                if self.dice.one_in(2) {
                    self.context(&file);
                }
            }
        } else if let Some(file) = open(Kind::OpenRender, &process.plan.target.render) {
            let mut arg = abi::AcquireVm {
                drm_fd: file.as_raw_fd() as u32, // CAST: not negative.
                gpu_id: process.plan.target.gpu_id,
            };
            process.call(Kind::AcquireVm, abi::ACQUIRE_VM, &mut arg);
        }
    }

    /// A context for a descriptor: it has nothing of the process, gets an address space, and ends with the descriptor.
    fn context(&mut self, kfd: &File) {
        let process = self.process;
        // SAFETY: a call without argument.
        let make = || unsafe { raw::ioctl(kfd.as_fd(), CREATE_PROCESS, 0) };
        let made = make();
        process.answered(Kind::CreateProcess, made, "");
        if made != 0 {
            return;
        }
        let again = make();
        process.answered(Kind::CreateProcess, again, " (again)");
        if again == 0 {
            process.report("a descriptor has got a second context");
        }
        let mut set = abi::SetEvent {
            event_id: self.any_event(),
            pad: 0,
        };
        // CAST: an address.
        let place = std::ptr::from_mut(&mut set).expose_provenance() as u64;
        // SAFETY: an argument of that size, without pointers.
        let errno = unsafe { raw::ioctl(kfd.as_fd(), abi::SET_EVENT, place) };
        process.answered(Kind::SetEvent, errno, " (context)");
        if errno == 0 {
            process.report("a context that has made no event has set one");
        }
        let path = &process.plan.target.render;
        let Ok(render) = File::options().read(true).write(true).open(path) else {
            return;
        };
        let mut acquire = abi::AcquireVm {
            drm_fd: render.as_raw_fd() as u32, // CAST: not negative.
            gpu_id: process.plan.target.gpu_id,
        };
        // CAST: an address.
        let place = std::ptr::from_mut(&mut acquire).expose_provenance() as u64;
        // SAFETY: an argument of that size, without pointers.
        let errno = unsafe { raw::ioctl(kfd.as_fd(), abi::ACQUIRE_VM, place) };
        process.answered(Kind::AcquireVm, errno, " (context)");
    }

    pub fn amdgpu_info(&mut self) {
        let mut out = [0u32; 256];
        let query = self.dice.below(0x24) as u32; // CAST: a small number.
        let to = self.pointer(out.as_mut_ptr().expose_provenance());
        let mut arg = [0u32; 8];
        arg[0] = to as u32; // CAST: halves of an address.
        arg[1] = (to >> 32) as u32; // CAST: as above.
                                    // At most as much as there is room.
        arg[2] = self.dice.pick(&[0, 4, 8, 64, 1024]).unwrap_or(4);
        arg[3] = self.dice.w32(query);
        for word in &mut arg[4..] {
            *word = self.dice.below(4) as u32; // CAST: below 4.
        }
        self.drm_call(Kind::AmdgpuInfo, drm_command(WRITE, 0x45, 32), &mut arg);
    }

    pub fn drm(&mut self) {
        let calls = [
            drm_command(READ | WRITE, 0x00, 64), // VERSION, whose lengths are 0
            drm_command(WRITE, 0x09, 8),         // GEM_CLOSE
            drm_command(READ | WRITE, 0x0a, 8),  // GEM_FLINK
            drm_command(READ | WRITE, 0x0b, 16), // GEM_OPEN
            drm_command(READ | WRITE, 0x0c, 16), // GET_CAP
            drm_command(WRITE, 0x0d, 16),        // SET_CLIENT_CAP
            drm_command(READ | WRITE, 0x40, 32), // AMDGPU_GEM_CREATE
            drm_command(READ | WRITE, 0x42, 24), // AMDGPU_CTX
            drm_command(READ | WRITE, 0x44, 24), // AMDGPU_CS
            drm_command(READ | WRITE, 0x48, 40), // AMDGPU_GEM_VA
        ];
        let Some(call) = self.dice.pick(&calls) else {
            return;
        };
        let mut arg = [0u32; 16];
        for word in arg
            .iter_mut()
            .step_by(2)
            .take(if call == calls[0] { 0 } else { 8 })
        {
            *word = self.dice.below(8) as u32; // CAST: below 8.
        }
        self.drm_call(Kind::Drm, call, &mut arg);
    }

    pub(super) fn drm_call<const N: usize>(
        &self,
        kind: Kind,
        word: u32,
        arg: &mut [u32; N],
    ) -> i32 {
        // CAST: an address.
        let place = arg.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: as large as the command word says; addresses in it are right, small numbers, or lead nowhere.
        let errno = unsafe { raw::ioctl(self.process.render(), word, place) };
        self.process
            .answered(kind, errno, &format!(" ({:#04x})", word & 0xff));
        errno
    }

    /// A child that uses what it has inherited, which is not its own.
    pub fn fork(&mut self) {
        let kfd = self.process.kfd.as_fd();
        let slice = (3 << 62) | (u64::from(self.process.plan.target.gpu_id) << 46);
        let Some(call) = self.dice.pick(abi::CALLS) else {
            return;
        };
        // CAST: an address.
        let place = std::ptr::from_mut(&mut *self.argument).expose_provenance() as u64;
        // SAFETY: the child makes system calls only and leaves by _exit.
        let child = match unsafe { nix::unistd::fork() } {
            Err(e) => return self.process.answered(Kind::Fork, e as i32, ""), // CAST: its number.
            Ok(ForkResult::Child) => {
                // SAFETY: room for the largest argument.
                let first = unsafe { raw::ioctl(kfd, call.command, place) };
                let second = raw::map(kfd, 8192, libc::PROT_READ, libc::MAP_SHARED, slice)
                    .err()
                    .unwrap_or(0);
                let status = match (first, second) {
                    (libc::EBADF, libc::EBADF) => 0,
                    (libc::EBADF, other) => other.clamp(1, 127) + 127,
                    (other, _) => other.clamp(0, 126) + 1,
                };
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(status) }
            }
            Ok(ForkResult::Parent { child }) => child,
        };
        self.process.answered(Kind::Fork, 0, "");
        let of = format!(" ({})", call.name);
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, status)) => {
                let first = if (1..=127).contains(&status) {
                    status - 1
                } else {
                    libc::EBADF
                };
                let second = if status >= 128 {
                    status - 127
                } else {
                    libc::EBADF
                };
                self.process.answered(Kind::Inherited, first, &of);
                self.process.answered(Kind::InheritedMmap, second, "");
            }
            Ok(other) => self
                .process
                .report(&format!("a child ended otherwise: {other:?}")),
            Err(e) => self
                .process
                .report(&format!("waitpid: {}", errno_name(e as i32))), // CAST: its number.
        }
    }
}
