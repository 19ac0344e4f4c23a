// SPDX-License-Identifier: GPL-2.0 OR MIT
//! D3hot and back, through configuration space.

mod common;

use common::fixture::Fixture;
use common::queue::write_data;
use gpu_model::asic::GFX90A;
use gpu_model::pci::{ConfigSpace, Subsystem};

/// PMCSR: the power state in bits 1:0, No_Soft_Reset in bit 3.
const PMCSR: u64 = 0x4c;

fn state(c: &ConfigSpace) -> u8 {
    let mut b = [0];
    c.read(PMCSR, &mut b);
    b[0]
}

#[test]
fn d0_and_d3hot_are_the_states_there_are() {
    let mut c = ConfigSpace::new(&GFX90A, 64 << 20, Subsystem::default());
    assert_eq!((state(&c), c.asleep()), (0, false));
    for unsupported in [1, 2] {
        c.write(PMCSR, &[unsupported, 0]);
        assert_eq!((state(&c), c.asleep()), (0, false));
    }
    c.write(PMCSR, &[3]);
    assert_eq!((state(&c), c.asleep()), (3, true));
    c.write(PMCSR, &[2, 0]);
    assert_eq!((state(&c), c.asleep()), (3, true));
    // Other registers in one write with it, and others alone.
    c.write(PMCSR - 4, &[0; 8]);
    assert_eq!((state(&c), c.asleep()), (0, false));
    c.write(4, &[6, 0]);
    assert!(!c.asleep() && c.bus_master());
}

#[test]
fn asleep_it_does_nothing_and_wakes_reset() {
    let mut f = Fixture::new(&GFX90A, 0x91, 0x4000);
    f.b.vram_write(0x3f0_0000, &[0xa5; 8]);
    f.b.wr(0x30100, 77);
    f.q.push(&mut f.b, &write_data(f.va, 1));
    f.b.gpu.set_asleep(true);
    let before = f.b.gpu.soc.log.stats.clone();
    assert_eq!(f.b.rd(0x378c), 0xffff_ffff);
    f.b.wr(0x30104, 78);
    f.q.ring_bell(&mut f.b);
    f.b.run_for(10_000_000);
    assert_eq!(f.b.ram32(f.bus), 0);
    let now = &f.b.gpu.soc.log.stats;
    assert_eq!(
        (now.msi_raised, now.packets_compute, now.rotations),
        (before.msi_raised, before.packets_compute, before.rotations)
    );
    f.b.gpu.set_asleep(false);
    // MEMSIZE is there at once; scratch registers, the queue and the aperture of the doorbells are not.
    assert_eq!(f.b.rd(0x378c), 64);
    assert_eq!([f.b.rd(0x30100), f.b.rd(0x30104), f.b.rd(0x3780)], [0; 3]);
    assert!(!common::fixture::active(&mut f.b, common::fixture::FIRST));
    f.b.run_for(10_000_000);
    assert_eq!(f.b.ram32(f.bus), 0);
    let mut kept = [0; 8];
    f.b.vram_read(0x3f0_0000, &mut kept);
    assert_eq!(kept, [0xa5; 8]);
    f.b.no_errors();
}
