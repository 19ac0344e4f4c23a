// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Kernels assembled by LLVM, their descriptors, and queues to dispatch them from.

use std::collections::HashMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use super::fixture::Fixture;
use super::Bench;
use gpu_model::asic::Asic;
use gpu_model::board::Board;

/// Whether there is no assembler.  In the toolbox, which has one, that is a failure; elsewhere the test says that it is
/// skipped.
pub fn without_llvm(test: &str) -> bool {
    let found = Command::new("llvm-mc").arg("--version").output();
    let works = found.is_ok_and(|output| output.status.success());
    if !works {
        let toolbox = std::env::var_os("RKFD_IN_TOOLBOX").is_some_and(|inside| !inside.is_empty());
        assert!(!toolbox, "{test}: the toolbox has no llvm-mc that runs");
        eprintln!("{test}: skipped, since there is no llvm-mc");
    }
    !works
}

/// The words of a program in LLVM's syntax: the only section of code of its object file.
pub fn assemble(asic: &Asic, program: &str) -> Vec<u32> {
    type Known = Mutex<HashMap<(&'static str, String), Vec<u32>>>;
    static KNOWN: OnceLock<Known> = OnceLock::new();
    let key = (asic.name, program.to_owned());
    let known = KNOWN.get_or_init(Known::default);
    if let Some(words) = known.lock().unwrap().get(&key) {
        return words.clone();
    }
    let object = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new("llvm-mc")
        .args(["-triple=amdgcn-amd-amdhsa", "--filetype=obj", "-o"])
        .arg(object.path())
        .arg(format!("-mcpu={}", asic.name))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(program.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let elf = std::fs::read(object.path()).unwrap();
    let number = |at: usize, bytes: usize| {
        let bytes = &elf[at..at + bytes];
        bytes
            .iter()
            .rev()
            .fold(0usize, |v, b| (v << 8) | usize::from(*b))
    };
    let (table, size, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let code = (0..count)
        .map(|n| table + n * size)
        .find(|at| number(at + 4, 4) == 1 && number(at + 8, 8) & 4 != 0)
        .unwrap();
    let (from, len) = (number(code + 0x18, 8), number(code + 0x20, 8));
    let words: Vec<u32> = elf[from..from + len]
        .chunks(4)
        .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
        .collect();
    known.lock().unwrap().insert(key, words.clone());
    words
}

/// A kernel and how it is dispatched.
#[derive(Clone)]
pub struct Launch {
    pub program: String,
    /// Work-items of a group and of all.
    pub group: [u32; 3],
    pub grid: [u32; 3],
    pub lds: u32,
    /// Bytes of private memory of a work-item.
    pub private: u32,
    /// VGPRs and AccVGPRs.
    pub vgprs: u32,
    pub agprs: u32,
    /// `kernel_code_properties`; bit 3 is the kernarg pointer.
    pub properties: u32,
    /// User SGPRs.
    pub users: u32,
    /// More bits of COMPUTE_PGM_RSRC2.
    pub rsrc2: u32,
}

impl Launch {
    /// Kernarg pointer in s[0:1], workgroup id in s2; one dimension.
    pub fn new(program: &str, group: u32, grid: u32) -> Self {
        Self {
            program: program.into(),
            group: [group, 1, 1],
            grid: [grid, 1, 1],
            lds: 0,
            private: 0,
            vgprs: 24,
            agprs: 0,
            properties: 1 << 3,
            users: 2,
            rsrc2: 1 << 7,
        }
    }

    /// Stores descriptor and code at a place in guest memory.
    pub fn put(&self, b: &Bench, asic: &Asic, bus: u64) {
        let words = match self.program.as_str() {
            "" => Vec::new(),
            program => assemble(asic, program),
        };
        let gfx906 = asic.name == "gfx906";
        let (granule, total) = if gfx906 {
            (4, self.vgprs)
        } else {
            (8, self.vgprs.next_multiple_of(4) + self.agprs)
        };
        let mut d = [0u32; 16];
        d[4] = 256;
        if !gfx906 {
            d[11] = self.vgprs.div_ceil(4) - 1;
        }
        // 32 SGPRs, no rounding, all denormals, DX10_CLAMP, IEEE.
        d[12] = (total.div_ceil(granule) - 1) | (2 << 6) | (0xf0 << 12) | (1 << 21) | (1 << 23);
        d[13] = (self.users << 1) | self.rsrc2;
        d[14] = self.properties;
        b.set_words(bus, &d);
        b.set_words(bus + 256, &words);
    }

    /// The packet that dispatches it.
    pub fn packet(&self, object: u64, kernarg: u64, signal: u64) -> [u32; 16] {
        let mut p = [0; 16];
        p[0] = 2 | (1 << 8) | (2 << 9) | (2 << 11) | (3 << 16);
        p[1] = self.group[0] | (self.group[1] << 16);
        p[2] = self.group[2];
        p[3..6].copy_from_slice(&self.grid);
        p[6] = self.private;
        p[7] = self.lds;
        for (i, v) in [(8, object), (10, kernarg), (14, signal)] {
            p[i] = v as u32;
            p[i + 1] = (v >> 32) as u32;
        }
        p
    }
}

/// Where things are in the page of a [`fixture`].
pub const DATA: u64 = 0x8000;
pub const CODE: u64 = 0x4000;
pub const KERNARG: u64 = 0x1000;
pub const DONE: u64 = 0x40;
pub const INACTIVE: u64 = 0x800;
/// Bytes of data.
pub const DATA_SIZE: u64 = 0x38000;

/// A process with an AQL queue, its queue object, a completion signal with event 42 and an inactive signal with event 77.
pub fn fixture(asic: &'static Asic, units: u32, retry: bool, cwsr: bool) -> Fixture {
    let board = Board {
        compute_units: units,
        ..asic.board
    };
    let b = Bench::on_board(asic, board).schedule();
    let f = Fixture::on(b, 0x31, DATA + DATA_SIZE, |b, p, (va, bus)| {
        p.retry = retry;
        p.gws = 64;
        let mut q = p.queue(b).into_aql(b);
        if cwsr {
            q = q.with_cwsr(b, p);
        }
        let obj = q.ptrs_va + 1024;
        b.set64(q.mqd.bus + 139 * 4, obj + 128);
        b.set64(q.mqd.bus + 141 * 4, q.ptrs_va + 64);
        b.set32(q.ptrs + 1024 + 136, 128);
        b.set64(q.ptrs + 1024 + 192, va + INACTIVE);
        b.set64(bus + INACTIVE + 16, va + 0xa00);
        b.set32(bus + INACTIVE + 24, 77);
        b.set64(bus + DONE + 8, 1);
        b.set64(bus + DONE + 16, va + 0xf00);
        b.set32(bus + DONE + 24, 42);
        q
    });
    f.b.set64(f.bus + 0xf00, u64::MAX);
    // The kernel's only argument: the address of the data.
    f.b.set64(f.bus + KERNARG, f.va + DATA);
    f
}

/// Gives the kernel at [`CODE`] a name: the code object around it, as a loader leaves it in memory.
pub fn name_kernel(f: &Fixture, name: &str) {
    let at = |offset: u64| f.bus + CODE - 0x2000 + offset;
    // ELF64, little-endian, of AMDGPU, with two program headers.
    f.b.set_words(at(0), &[0x464c_457f, 0x0001_0102]);
    f.b.set32(at(16), 3 | (224 << 16));
    f.b.set64(at(32), 64);
    f.b.set32(at(52), 64 | (56 << 16));
    f.b.set32(at(56), 2);
    // An executable segment of four pages, and the dynamic section: symbols, names, hashes.
    f.b.set32(at(64), 1);
    f.b.set32(at(64 + 4), 5);
    f.b.set64(at(64 + 32), 0x4000);
    f.b.set64(at(64 + 40), 0x4000);
    f.b.set32(at(120), 2);
    f.b.set64(at(120 + 16), 0x200);
    for (number, (tag, value)) in [(6, 0x300), (5, 0x400), (4, 0x500)].into_iter().enumerate() {
        f.b.set64(at(0x200 + 16 * number as u64), tag);
        f.b.set64(at(0x208 + 16 * number as u64), value);
    }
    // A global function where the code begins.
    f.b.set32(at(0x318), 1);
    f.b.set32(at(0x31c), 0x12);
    f.b.set64(at(0x320), 0x2000 + 256);
    f.b.set32(at(0x504), 2);
    let bytes: Vec<u8> = [b"\0", name.as_bytes(), &[0; 4]].concat();
    let words: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    f.b.set_words(at(0x400), &words);
}

/// Dispatches without running to the end.
pub fn submit(f: &mut Fixture, asic: &Asic, launch: &Launch) {
    launch.put(&f.b, asic, f.bus + CODE);
    let p = launch.packet(f.va + CODE, f.va + KERNARG, f.va + DONE);
    let i = f.q.wptr % (f.q.dwords / 16);
    f.b.set_words(f.q.ring + i * 64, &p);
    f.q.wptr += 1;
    f.b.set64(f.q.ptrs + 64, f.q.wptr);
    f.b.bell(f.q.doorbell, f.q.wptr - 1);
}

/// Dispatches and runs until nothing is left to do.
pub fn launch(f: &mut Fixture, asic: &Asic, launch: &Launch) {
    submit(f, asic, launch);
    f.b.run();
}

/// Words of the data.
pub fn data(f: &Fixture, count: usize) -> Vec<u32> {
    f.b.words(f.bus + DATA, count)
}

/// The completion signal has been decremented once.
pub fn is_done(f: &Fixture) -> bool {
    f.b.ram64(f.bus + DONE + 8) == 0
}

/// v2 = address of the data in v[2:3] plus four times v1.
pub const ADDRESS: &str = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n\
    s_waitcnt lgkmcnt(0)\n\
    v_lshlrev_b32 v1, 2, v1\n\
    v_mov_b32 v3, s5\n\
    v_add_co_u32 v2, vcc, s4, v1\n\
    v_addc_co_u32 v3, vcc, 0, v3, vcc\n";

/// Stores v0 at the work-item's own dword of the data; groups have 64 work-items.
pub fn store_each(value: &str) -> String {
    format!(
        "s_lshl_b32 s3, s2, 6\nv_add_u32 v1, s3, v0\n{ADDRESS}{value}\n\
         global_store_dword v[2:3], v0, off\ns_endpgm"
    )
}

/// SET_SH_REG.
pub fn sh(first: u32, values: &[u32]) -> Vec<u32> {
    let mut w = vec![0xc000_7600 | ((values.len() as u32) << 16), first];
    w.extend(values);
    w
}
