// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The guest sizes the BARs while queues wait for pages: what they hold meanwhile is no address, and nobody stores there.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "common/vmm.rs"]
mod vmm;

use std::mem::swap;
use std::sync::Arc;

use common::fixture::Fixture;
use common::queue::{write_data, UserQueue};
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::pci::Subsystem;
use gpu_model::server::{Backend, Shared};
use vfio_user::ServerBackend;
use vmm::{device, CONFIG};

const PAGE: u64 = 4096;
/// Where the process sees a page of doorbells, which is not mapped at first.
const BELL_PAGE: u64 = 0x7500_0000_0000;
/// BAR2 and BAR5 on the bus, before and after the guest has moved them.
const PLACES: [[u64; 2]; 2] = [[0xfe60_0000, 0xfe80_0000], [0xfea0_0000, 0xfec0_0000]];
/// In configuration space: the command register, BAR2 and BAR5.
const COMMAND: u64 = 4;
const BAR2: u64 = 0x18;
const BAR5: u64 = 0x24;
/// Memory decoding and bus mastering.
const DECODES: u32 = 2;
const MASTER: u32 = 4;

/// Configuration space of the device of a fixture.
struct Config {
    shared: Arc<Shared>,
    backend: Backend,
}

impl Config {
    fn new() -> Self {
        let (shared, _) = device();
        let backend = Backend::new(Arc::clone(&shared), Subsystem::default());
        Self { shared, backend }
    }

    /// A write of the guest; it comes to the fixture's device.
    fn write(&mut self, f: &mut Fixture, at: u64, value: u32) {
        swap(&mut *self.shared.lock(), &mut f.b.gpu);
        let done = self.backend.region_write(CONFIG, at, &value.to_le_bytes());
        swap(&mut *self.shared.lock(), &mut f.b.gpu);
        done.unwrap();
    }

    fn read(&mut self, at: u64) -> u32 {
        let mut value = [0; 4];
        self.backend.region_read(CONFIG, at, &mut value).unwrap();
        u32::from_le_bytes(value)
    }

    /// Puts BAR2 and BAR5 there and turns decoding on.
    fn place(&mut self, f: &mut Fixture, [doorbells, registers]: [u64; 2]) {
        self.write(f, BAR2, doorbells as u32);
        self.write(f, BAR2 + 4, (doorbells >> 32) as u32);
        self.write(f, BAR5, registers as u32);
        self.write(f, COMMAND, DECODES | MASTER);
    }

    /// All ones, and what the BARs make of it.
    fn size(&mut self, f: &mut Fixture) -> [u32; 3] {
        [BAR2, BAR2 + 4, BAR5].map(|bar| {
            self.write(f, bar, u32::MAX);
            self.read(bar)
        })
    }
}

/// The pages that were reported since the last time, with their entries of the CAM.
fn faults(f: &mut Fixture) -> Vec<(u64, u32)> {
    f.b.run_for(5_000_000);
    f.b.irqs()
        .iter()
        .filter(|iv| matches!(iv.client, 0x1b | 0x12) && iv.data[1] & 0x80 != 0)
        .map(|iv| {
            let page = (u64::from(iv.data[0]) << 12) | (u64::from(iv.data[1] & 0xf) << 44);
            (page, iv.data[2] & 0x3ff)
        })
        .collect()
}

/// A process that retries, with two queues.
fn two_queues(asic: &'static Asic) -> (Fixture, UserQueue) {
    let mut f = Fixture::with(asic, 0x4a, PAGE, |b, p, _| {
        p.retry = true;
        p.queue(b)
    });
    f.preempt();
    let other = f.p.queue(&mut f.b);
    let mut list = f.p.map_process(&f.b, 2);
    list.extend(f.q.map_queues());
    list.extend(other.map_queues());
    f.b.run_list(&list, false, 1);
    f.b.run();
    (f, other)
}

/// The self-ring aperture stands there for BAR2.
fn ring_at(f: &mut Fixture, doorbells: u64) {
    f.b.wr(0x3480 + 0xf4 * 4, doorbells as u32);
    f.b.wr(0x3480 + 0xf3 * 4, (doorbells >> 32) as u32);
    f.b.wr(0x3480 + 0xf5 * 4, 3);
}

#[test]
fn a_queue_that_waits_for_a_page_of_the_bars_sees_none_of_their_sizing() {
    for asic in [&GFX90A, &GFX906] {
        let (mut f, mut other) = two_queues(asic);
        let mut config = Config::new();
        for (round, places) in PLACES.into_iter().enumerate() {
            config.place(&mut f, places);
            ring_at(&mut f, places[0]);
            let page = BELL_PAGE + round as u64 * PAGE;
            let bell = places[0] + other.doorbell;
            // The other queue has a packet, for which the first one is to ring.
            let value = 0x51 + round as u32;
            let packet = write_data(f.va, value);
            other.push(&mut f.b, &packet);
            let at = page + (bell & 0xfff);
            let ring = [
                0xc004_3700,
                (5 << 8) | (1 << 20),
                at as u32,
                (at >> 32) as u32,
                other.wptr as u32,
                0,
            ];
            f.q.send(&mut f.b, &ring);
            let seen = faults(&mut f);
            let [(missing, entry)] = seen[..] else {
                panic!("{seen:x?}");
            };
            assert_eq!(missing, page);
            // Decoding is off. The registers of the device would be out of reach of a guest, but nothing else changes.
            config.write(&mut f, COMMAND, MASTER);
            let sizes = config.size(&mut f);
            assert_eq!(sizes, [0xffe0_0004, 0xffff_ffff, 0xfff8_0000]);
            assert_eq!(f.b.gpu.soc.bars().doorbells, places[0]);
            assert!(faults(&mut f).is_empty());
            assert_eq!(f.b.ram32(f.bus), if round == 0 { 0 } else { 0x51 });
            // The page comes while the BARs hold all ones, and the packet is carried out where they were.
            f.p.set_pte(&mut f.b, page, (bell & !0xfff) | 0x77);
            f.b.flush_vmid(f.b.first_vmid());
            f.b.release_cam(entry);
            assert!(faults(&mut f).is_empty());
            assert_eq!(f.b.ram32(f.bus), value, "{} {round}", asic.name);
            config.place(&mut f, places);
            assert_eq!(f.b.gpu.soc.bars().doorbells, places[0]);
        }
        f.b.no_errors();
    }
}

#[test]
fn a_flush_page_that_is_mapped_late_is_found_where_the_bar_was() {
    for asic in [&GFX90A, &GFX906] {
        let (mut f, _) = two_queues(asic);
        let mut config = Config::new();
        let [places, moved] = PLACES;
        config.place(&mut f, places);
        // The first dword of the page of HDP registers, which flushes memory.
        let packet = write_data(BELL_PAGE, 0);
        f.q.send(&mut f.b, &packet);
        let seen = faults(&mut f);
        let [(missing, entry)] = seen[..] else {
            panic!("{seen:x?}");
        };
        assert_eq!(missing, BELL_PAGE);
        config.write(&mut f, COMMAND, MASTER);
        config.size(&mut f);
        f.p.set_pte(&mut f.b, BELL_PAGE, (places[1] + 0x7f000) | 0x77);
        let vmid = f.b.first_vmid();
        f.b.flush_vmid(vmid);
        // The host moves the data, and leaves the flush of memory to the packet.
        let (old, new) = (f.bus, f.b.alloc_ram(PAGE));
        let entry_at = f.p.pte_at(&mut f.b, f.va);
        f.b.vram_write(entry_at, &(new | 0x77).to_le_bytes());
        f.b.release_cam(entry);
        assert!(faults(&mut f).is_empty());
        f.b.flush_vmid_only(vmid);
        let data = write_data(f.va, 0x51);
        f.q.send(&mut f.b, &data);
        let found = [f.b.ram32(old), f.b.ram32(new)];
        assert_eq!(found, [0, 0x51], "{}", asic.name);
        f.b.no_errors();
        // Once the BAR is elsewhere, the entry leads to nowhere.
        config.place(&mut f, moved);
        f.q.send(&mut f.b, &packet);
        f.b.expect_errors(&["pte-to-nowhere"]);
    }
}

#[test]
fn bars_at_the_end_of_all_addresses_are_nobodys_trap() {
    let (mut f, _) = two_queues(&GFX90A);
    let mut config = Config::new();
    config.write(&mut f, COMMAND, MASTER);
    config.size(&mut f);
    config.write(&mut f, COMMAND, DECODES | MASTER);
    assert_eq!(f.b.gpu.soc.bars().doorbells, 0xffff_ffff_ffe0_0000);
    // The last page that entries can name is far below.
    f.p.set_pte(&mut f.b, BELL_PAGE, 0xffff_ffff_f000 | 0x77);
    f.b.flush_vmid(f.b.first_vmid());
    let packet = write_data(BELL_PAGE, 0);
    f.q.send(&mut f.b, &packet);
    f.b.expect_errors(&["pte-to-nowhere"]);
}
