// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A queue whose waves fill compute units, and wait there.

use std::time::Duration;

use gpu_model::asic::GFX90A;
use gpu_model::board::Board;
use nix::time::{clock_gettime, ClockId};

use super::kernel::Launch;
use super::proc::Proc;
use super::queue::{write_data, UserQueue};
use super::{Bench, Sys};

/// Groups of one wave that a compute unit has at once.
const WAVES: u32 = 16;
/// What lies in the area before anything is saved.
pub const BLANK: u8 = 0xa5;
/// A page that is not there at first.
const LATE: u64 = 0x7500_0000_0000;

/// Each wave has 128 registers and 4 KiB of LDS, a quarter of what a SIMD has of both.  All of them wait for a page, then
/// store what they have in their last register and in LDS.
const PROGRAM: &str = "s_load_dwordx4 s[4:7], s[0:1], 0x0\n\
    v_mov_b32 v127, s2\n\
    v_lshlrev_b32 v1, 2, v0\n\
    v_mov_b32 v126, s2\n\
    ds_write_b32 v1, v126 offset:3840\n\
    s_waitcnt lgkmcnt(0)\n\
    v_mov_b32 v2, s6\n\
    v_mov_b32 v3, s7\n\
    global_load_dword v4, v[2:3], off\n\
    s_waitcnt vmcnt(0)\n\
    ds_read_b32 v5, v1 offset:3840\n\
    s_waitcnt lgkmcnt(0)\n\
    v_add_u32 v5, v5, v127\n\
    v_add_u32 v5, v5, v4\n\
    v_lshlrev_b32 v1, 2, v127\n\
    v_mov_b32 v3, s5\n\
    v_add_co_u32 v2, vcc, s4, v1\n\
    v_addc_co_u32 v3, vcc, 0, v3, vcc\n\
    global_store_dword v[2:3], v5, off\n\
    s_endpgm";

/// Processor time of this thread.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

/// A board with so many compute units, and a queue that fills them.
pub struct Full {
    pub b: Bench,
    pub p: Proc,
    pub q: UserQueue,
    /// Waves.
    pub count: u32,
    /// How long a step takes at most, if it looks at that.
    pub limit: Option<Duration>,
    /// Dispatches of the kernel.
    pub dispatches: u32,
    /// Where they store, and the value of the completion signal.
    data: u64,
    pub done: u64,
}

impl Full {
    pub fn new(compute_units: u32) -> Self {
        let board = Board {
            compute_units,
            ..GFX90A.board
        };
        let mut b = Bench::on_board(&GFX90A, board).schedule();
        let mut p = Proc::new(&mut b, 0x61, 0);
        p.retry = true;
        let (code, bus) = p.page(&mut b, 0x1000);
        let (data, data_bus) = p.page(&mut b, 0x4000);
        let count = compute_units * WAVES;
        let mut kernel = Launch::new(PROGRAM, 64, 64 * count);
        kernel.vgprs = 128;
        kernel.lds = 4096;
        kernel.put(&b, &GFX90A, bus);
        let sizes = GFX90A.save_sizes(compute_units);
        let q = p.queue(&mut b).into_aql(&mut b);
        let q = q.with_save_area(&mut b, &mut p, sizes.stack, sizes.area);
        let object = q.ptrs_va + 1024;
        b.set64(q.mqd.bus + 139 * 4, object + 128);
        b.set32(q.ptrs + 1024 + 136, 128);
        // The arguments, and a signal of one packet.
        let (arguments, signal) = (0x800, 0xc00);
        b.set64(bus + arguments, data);
        b.set64(bus + arguments + 8, LATE);
        b.set64(bus + signal + 8, 1);
        let packet = kernel.packet(code, code + arguments, code + signal);
        b.set_words(q.ring, &packet);
        b.set64(q.ptrs + 64, 1);
        Self {
            b,
            p,
            q,
            count,
            limit: None,
            dispatches: 1,
            data: data_bus,
            done: bus + signal + 8,
        }
    }

    /// Steps until something is so; returns how long the longest of them took, in processor time.
    pub fn until(&mut self, is_so: impl Fn(&Bench) -> bool) -> Duration {
        let mut longest = Duration::ZERO;
        for _ in 0..100_000 {
            if is_so(&self.b) {
                return longest;
            }
            self.b.advance(10_000);
            let begun = now();
            let _ = match self.limit {
                Some(limit) => self.b.gpu.step_within(limit),
                None => self.b.gpu.step(),
            };
            longest = longest.max(now() - begun);
        }
        panic!("it never is");
    }

    pub fn waves(b: &Bench) -> u32 {
        b.gpu.waves.dispatcher.figures().1
    }

    /// Submits a run list with the queue.
    pub fn list(&mut self) {
        let mut list = self.p.map_process(&self.b, 1);
        list.extend(self.q.map_queues());
        self.b.run_list(&list, false, 1);
    }

    pub fn map(&mut self) -> Duration {
        self.list();
        let count = self.count;
        self.until(|b| Self::waves(b) == count)
    }

    pub fn unmap(&mut self) -> Duration {
        let fence = self.b.unmap(3, 0, 0);
        let took = self.until(|b| b.ram64(fence.bus) == 100);
        assert_eq!(Self::waves(&self.b), 0);
        took
    }

    /// Bytes of control stack and of state that the queue has left.
    pub fn saved(&self) -> (u32, u32) {
        let dw = |i: u64| self.b.ram32(self.q.mqd.bus + i * 4);
        (dw(175) - dw(174), dw(176) - dw(175))
    }

    /// Gives the waves their page, and looks at what they have stored.
    pub fn end(&mut self) {
        self.give_page();
        self.finish();
    }

    pub fn give_page(&mut self) {
        let page = self.b.alloc_ram(4096);
        self.b.set32(page, 1000);
        self.p.set_pte(&mut self.b, LATE, page | 0x77);
    }

    /// Waves that have stored what they have.
    pub fn stored(&self) -> usize {
        let words = self.b.words(self.data, self.count as usize);
        words.iter().filter(|word| **word != 0).count()
    }

    /// Looks at what waves have stored that have their page.
    pub fn finish(&mut self) {
        let done = self.done;
        self.until(|b| b.ram64(done) == 0);
        let want: Vec<u32> = (0..self.count).map(|n| 1000 + 2 * n).collect();
        assert_eq!(self.b.words(self.data, self.count as usize), want);
        self.b.no_errors();
        assert_eq!(self.b.gpu.soc.log.stats.saves_changed, 0);
        let (begun, _) = self.b.gpu.waves.dispatcher.figures();
        assert!(
            begun <= u64::from(self.count * self.dispatches),
            "none began anew: {begun}"
        );
    }
}

/// The state part of the queue's save area.
pub fn state(f: &Full, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    f.b.ram_read(f.q.save.0 + u64::from(f.q.save.1), &mut bytes);
    bytes
}

/// Fills the area, so that zeros that are written show.
pub fn blank(f: &Full) {
    let size = f.b.ram32(f.q.mqd.bus + 177 * 4) - f.q.save.1;
    let at = f.q.save.0 + u64::from(f.q.save.1);
    f.b.ram_write(at, &vec![BLANK; size as usize]);
}

/// How far the state behind the record is written.
pub fn written(f: &Full) -> usize {
    let size = f.b.ram32(f.q.mqd.bus + 177 * 4) - f.q.save.1;
    let bytes = state(f, size as usize);
    bytes
        .iter()
        .rposition(|b| *b != BLANK)
        .map_or(0, |at| at + 1)
}

/// A step in which somebody waits for the device.
pub fn pressed(b: &mut Bench) {
    let callers = b.gpu.soc.callers().clone();
    b.advance(1000);
    callers.wait(|| {
        let _ = b.gpu.step();
    });
}

/// Steps until the fence is there; returns how many.
pub fn wait(b: &mut Bench, fence: Sys) -> usize {
    let fenced = |b: &Bench| b.ram64(fence.bus) == 100;
    let steps = (0..10_000).take_while(|_| {
        pressed(b);
        !fenced(b)
    });
    let steps = steps.count();
    assert!(fenced(b));
    steps
}

/// A queue of another process, with a packet that stores a number, can be mapped and runs.
pub fn others_run(b: &mut Bench) {
    let mut p = Proc::new(b, 0x77, 4);
    let (va, bus) = p.page(b, 0x1000);
    let mut q = p.queue(b);
    let mut list = p.map_process(b, 1);
    list.extend(q.map_queues());
    b.run_list(&list, false, 1);
    b.run();
    q.send(b, &write_data(va, 77));
    assert_eq!(b.ram32(bus), 77);
}
