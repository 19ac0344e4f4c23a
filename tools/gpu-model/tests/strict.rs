// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Each rule of the contract that the driver can break is noticed, named and survived.

mod common;

use common::proc::Proc;
use common::queue::UserQueue;
use common::Bench;
use gpu_model::asic::{GFX906, GFX90A};

fn ready() -> Bench {
    let mut b = Bench::new(&GFX90A);
    b.bring_up();
    b.start_kiq();
    b.start_hiq();
    b
}

fn with_queue() -> (Bench, Proc, UserQueue) {
    let mut b = ready();
    b.set_resources();
    let mut p = Proc::new(&mut b, 0x81, 0);
    let q = p.queue(&mut b);
    (b, p, q)
}

fn run_list(b: &mut Bench, ib: &[u32]) {
    b.run_list(ib, false, 1);
    b.run();
}

#[test]
fn run_list_before_set_resources() {
    let mut b = ready();
    run_list(&mut b, &[0xffff_1000]);
    b.expect_errors(&["run-list"]);
}

#[test]
fn run_list_while_one_is_active() {
    let (mut b, p, q) = with_queue();
    let mut ib = p.map_process(&b, 1);
    ib.extend(q.map_queues());
    run_list(&mut b, &ib);
    b.no_errors();
    run_list(&mut b, &ib);
    b.expect_errors(&["run-list"]);
}

#[test]
fn map_queues_before_map_process() {
    let (mut b, _, q) = with_queue();
    run_list(&mut b, &q.map_queues());
    b.expect_errors(&["map-queues"]);
}

#[test]
fn reserved_bits_are_decoded() {
    let (mut b, p, q) = with_queue();
    let mut ib = p.map_process(&b, 1);
    let mut m = q.map_queues();
    m[1] |= 1 << 6;
    ib.extend(m);
    run_list(&mut b, &ib);
    let text = b.errors().join("\n");
    assert!(
        text.contains("MAP_QUEUES") && text.contains("0x00000040"),
        "{text}"
    );
    b.expect_errors(&["reserved-bits"]);
}

#[test]
fn reserved_bits_of_what_an_unmap_names() {
    let (mut b, _, q) = with_queue();
    let bell = q.doorbell as u32;
    let unmap = |b: &mut Bench, words: [u32; 5]| {
        let mut packet = vec![0xc004_a300];
        packet.extend(words);
        b.submit_hiq(&packet);
        b.run();
    };
    // By doorbell, by PASID, all of them (with a PASID that nobody looks at).
    unmap(&mut b, [2 << 29, bell, bell + 8, 0, 0]);
    unmap(&mut b, [1 << 4, 0x81, 0, 0, 0]);
    unmap(&mut b, [2 << 4, 0xdead_beef, 0, 0, 0]);
    b.no_errors();
    unmap(&mut b, [2 << 29, bell | 1, (bell + 8) | (1 << 28), 0, 0]);
    b.expect_errors(&["reserved-bits", "reserved-bits"]);
    unmap(&mut b, [1 << 4, 0x1_0081, 0, 0, 0]);
    let text = b.errors().join("\n");
    assert!(text.contains("dword 2 bits 0x00010000"), "{text}");
    b.expect_errors(&["reserved-bits"]);
}

#[test]
fn run_lists_are_made_of_packets_of_type_3() {
    let (mut b, p, q) = with_queue();
    let mut ib = p.map_process(&b, 1);
    ib.push(0x8000_0000);
    ib.extend(q.map_queues());
    run_list(&mut b, &ib);
    let text = b.errors().join("\n");
    assert!(text.contains("0x80000000 at dword 21"), "{text}");
    b.expect_errors(&["run-list"]);
    assert_eq!(b.gpu.soc.log.stats.queue_maps, 2, "KIQ and HIQ alone");
}

#[test]
fn map_process_of_the_other_asic() {
    let (mut b, p, q) = with_queue();
    let mut ib = p.map_process(&b, 1);
    ib.truncate(16);
    ib[0] = 0xc00e_a100;
    ib.extend(q.map_queues());
    run_list(&mut b, &ib);
    let rules: Vec<_> = b.gpu.soc.log.errors().map(|e| e.rule).collect();
    assert_eq!(rules, ["map-process", "packet-length"]);

    let mut b = Bench::scheduled(&GFX906);
    let p = Proc::new(&mut b, 1, 0);
    b.tf = true;
    let ib = p.map_process(&b, 0);
    b.tf = false;
    run_list(&mut b, &ib);
    let rules: Vec<_> = b.gpu.soc.log.errors().map(|e| e.rule).collect();
    assert!(rules.contains(&"map-process"), "{rules:?}");
}

#[test]
fn doorbells_must_be_routed_to_their_unit() {
    let (mut b, mut p, _) = with_queue();
    // A compute queue in the SDMA range of its page.
    let bad = UserQueue::new(&mut b, &mut p, 0x100);
    let mut ib = p.map_process(&b, 2);
    ib.extend(bad.map_queues());
    // An SDMA0 queue with a doorbell of SDMA1.
    let sdma = UserQueue::new_sdma(&mut b, &mut p, 0, 0x10a);
    ib.extend(sdma.map_queues());
    run_list(&mut b, &ib);
    b.expect_errors(&["doorbell-routing", "doorbell-routing"]);
}

#[test]
fn one_doorbell_one_queue() {
    let (mut b, mut p, q) = with_queue();
    let twin = UserQueue::new(&mut b, &mut p, 0);
    let mut ib = p.map_process(&b, 2);
    ib.extend(q.map_queues());
    ib.extend(twin.map_queues());
    run_list(&mut b, &ib);
    b.expect_errors(&["doorbell-duplicate"]);
}

#[test]
fn mqd_fields_must_agree() {
    for (dw, value, word) in [
        (0u64, 0u32, "header"),
        (128, 0x1000, "cp_mqd_base_addr"),
        (130, 1, "cp_hqd_active"),
        (145, 9 | (5 << 8) | (1 << 30), "user queue with pq_control"),
    ] {
        let (mut b, p, q) = with_queue();
        b.set32(q.mqd.bus + dw * 4, value);
        let mut ib = p.map_process(&b, 1);
        ib.extend(q.map_queues());
        run_list(&mut b, &ib);
        let errors = b.errors();
        assert!(
            errors
                .iter()
                .any(|e| e.starts_with("mqd:") && e.contains(word)),
            "{dw}: {errors:?}"
        );
    }
}

#[test]
fn a_user_queue_may_do_without_an_eop_buffer() {
    let (mut b, p, q) = with_queue();
    b.set32(q.mqd.bus + 165 * 4, 0);
    b.set32(q.mqd.bus + 166 * 4, 0);
    let mut ib = p.map_process(&b, 1);
    ib.extend(q.map_queues());
    run_list(&mut b, &ib);
    b.expect_errors(&[]);
}

#[test]
fn a_pasid_appears_once() {
    let (mut b, p, _) = with_queue();
    let mut ib = p.map_process(&b, 0);
    ib.extend(p.map_process(&b, 0));
    b.run_list(&ib, false, 2);
    b.run();
    b.expect_errors(&["map-process"]);
}

#[test]
fn too_many_queues_without_a_chain() {
    let (mut b, mut p, _) = with_queue();
    let mut ib = p.map_process(&b, 25);
    for _ in 0..25 {
        let q = p.queue(&mut b);
        ib.extend(q.map_queues());
    }
    run_list(&mut b, &ib);
    b.expect_errors(&["run-list"]);
}

#[test]
fn page_table_root_must_exist() {
    let (mut b, p, q) = with_queue();
    let mut ib = p.map_process(&b, 1);
    ib[3] = 0x70;
    ib.extend(q.map_queues());
    run_list(&mut b, &ib);
    let rules: Vec<_> = b.gpu.soc.log.errors().map(|e| e.rule).collect();
    assert_eq!(rules.first(), Some(&"map-process"));
}

#[test]
fn hiq_write_pointer_beyond_the_ring() {
    let mut b = ready();
    b.bell(0x40 * 8, 5000);
    b.run();
    let rules: Vec<_> = b.gpu.soc.log.errors().map(|e| e.rule).collect();
    assert_eq!(rules.first(), Some(&"wptr-beyond-ring"));
}

#[test]
fn a_packet_cut_off_by_the_write_pointer() {
    let mut b = ready();
    b.submit_hiq(&[0xc006_a000, 0]);
    b.run();
    b.expect_errors(&["packet-beyond-wptr"]);
}

#[test]
fn vmid0_faults_are_the_drivers() {
    let mut b = ready();
    b.submit_kiq(&[0xc003_3700, 5 << 8, 0xf000_0000, 0, 1]);
    b.run();
    b.expect_errors(&["vmid0-fault"]);
    let ivs = b.irqs();
    assert_eq!((ivs[0].client, ivs[0].vmid), (0x1b, 0));
}

#[test]
fn registers_that_nobody_decodes() {
    let mut b = ready();
    assert_eq!(b.rd(0x20000), 0);
    b.expect_errors(&["mmio-hole"]);
    b.wr(0x1_5000, 1);
    b.expect_errors(&["mmio-hole"]);
    let mut two = [0; 2];
    b.gpu.mmio_read(0x8000, &mut two);
    b.expect_errors(&["mmio-shape"]);
}

#[test]
fn ih_read_pointer_beyond_the_write_pointer() {
    let mut b = ready();
    b.bell32(0x178 * 8, 64);
    b.expect_errors(&["ih-rptr"]);
}

#[test]
fn ih_rings_at_bus_addresses_need_the_chicken_bit() {
    let mut b = Bench::new(&GFX90A);
    b.wr(0x4480, (1 << 28) | 1 | (10 << 1));
    b.expect_errors(&["ih-space"]);
}

#[test]
fn sdma_queues_need_a_running_engine() {
    let (mut b, mut p, _) = with_queue();
    b.wr(0x4980 + 0x2a * 4, 1);
    let q = p.sdma_queue(&mut b, 0, 0);
    let mut ib = p.map_process(&b, 1);
    ib.extend(q.map_queues());
    run_list(&mut b, &ib);
    b.expect_errors(&["sdma-halted"]);
}

#[test]
fn retry_cam_entries_are_released_once() {
    let mut b = ready();
    b.release_cam(3);
    b.expect_errors(&["cam-release"]);
}

#[test]
fn hdp_flush_goes_to_the_programmed_place() {
    let mut b = Bench::new(&GFX90A);
    b.wr(0x7f000, 0);
    b.expect_errors(&["hdp-remap"]);
    // Programs have the page as well; what else they do there is theirs.
    b.wr(0x7f008, 1);
    b.gpu.mmio_write(0x7f001, &[1]);
    b.gpu.mmio_read(0x7f002, &mut [0; 2]);
    b.no_errors();
    assert_eq!(b.gpu.soc.log.stats.user_errors, 3);
}

#[test]
fn doorbells_need_the_aperture() {
    let mut b = Bench::new(&GFX90A);
    b.bell(0x10_0000, 1);
    b.expect_errors(&["doorbell-aperture"]);
}

#[test]
fn an_unmapped_user_doorbell_is_harmless() {
    let mut b = ready();
    b.bell(0x10_0008, 1);
    b.run();
    b.no_errors();
    assert_eq!(b.gpu.soc.log.stats.doorbells_unmatched, 1);
}

#[test]
fn a_queue_slot_is_selected_before_it_is_written() {
    let mut b = ready();
    b.wr(0xc914, 0);
    b.expect_errors(&["bank"]);
}

#[test]
fn freed_mqd_is_noticed_at_the_write_back() {
    let (mut b, p, q) = with_queue();
    let mut ib = p.map_process(&b, 1);
    ib.extend(q.map_queues());
    run_list(&mut b, &ib);
    // The driver unmaps the MQD from the GART while the queue is connected.
    let slot = 2 * 1024 * 1024 + q.mqd.gart / 4096 * 8;
    b.vram_write(slot, &[0; 8]);
    b.flush_vmid(0);
    let fence = b.unmap(3, 0, 0);
    b.run();
    assert_eq!(b.ram64(fence.bus), 100);
    let rules: Vec<_> = b.gpu.soc.log.errors().map(|e| e.rule).collect();
    assert!(
        rules.contains(&"vmid0-fault") && rules.iter().all(|r| matches!(*r, "vmid0-fault" | "mqd")),
        "{rules:?}"
    );
}

/// An SDMA engine reaches user queues by context switches, and their addresses by translation.
#[test]
fn sdma_queues_need_a_set_up_engine() {
    for cntl in [1u32, 1 | 2, 1 | (1 << 18)] {
        let (mut b, mut p, _) = with_queue();
        b.wr(0x4980 + 0x1c * 4, cntl);
        let q = p.sdma_queue(&mut b, 0, 0);
        let mut ib = p.map_process(&b, 1);
        ib.extend(q.map_queues());
        run_list(&mut b, &ib);
        b.expect_errors(&["sdma-cntl"]);
    }
}

/// The semaphore of an invalidation engine is given once.
#[test]
fn an_invalidation_semaphore_is_released() {
    let mut b = ready();
    let hubs = b.hubs();
    for (vm, _) in hubs {
        let sem = vm + 0x144 + 17 * 4;
        for _ in 0..3 {
            assert_eq!(b.rd(sem), 1);
            // Who waits for a moment is no offender.
            assert!((0..20).all(|_| b.rd(sem) == 0));
            b.wr(sem, 0);
        }
        b.no_errors();
        assert_eq!(b.rd(sem), 1);
        assert!((0..1000).all(|_| b.rd(sem) == 0));
        b.expect_errors(&["invalidate-sem"]);
        assert_eq!(b.rd(sem - 4), 1, "engine 16 has its own");
        b.wr(sem, 0);
        assert_eq!(b.rd(sem), 1);
        b.no_errors();
    }
}

/// A bus has as many address bits as the ASIC drives.
#[test]
fn memory_beyond_the_bus_is_out_of_reach() {
    for (asic, bits) in [(&GFX90A, 48), (&GFX906, 44)] {
        let b = Bench::new(asic);
        let far = 1u64 << bits;
        for at in [far - 4096, far] {
            let ram = gpu_model::server::make_vram(4096).unwrap();
            b.gpu
                .soc
                .mem
                .dma_map(at, 4096, Some((ram, 0)), true)
                .unwrap();
        }
        use gpu_model::mem::Phys;
        assert!(
            b.gpu.soc.mem.exists(Phys::Bus(far - 4096), true),
            "{}",
            asic.name
        );
        assert!(
            !b.gpu.soc.mem.exists(Phys::Bus(far), false),
            "{}",
            asic.name
        );
    }
}

#[test]
fn an_invalidation_engine_needs_its_range() {
    let mut b = Bench::new(&GFX90A);
    b.bring_up();
    for (vm, _) in b.hubs() {
        // Engine 5: ADDR_RANGE at +0x21c, REQ at +0x18c.
        b.wr(vm + 0x21c + 40, 0);
        b.wr(vm + 0x220 + 40, 0);
        b.wr(vm + 0x18c + 20, (1 << 3) | 0x7c_0000);
        // It is answered.
        b.await_ack(vm, 5, 1 << 3);
        b.expect_errors(&["invalidate-range"]);
        b.wr(vm + 0x21c + 40, 0xffff_ffff);
        b.wr(vm + 0x220 + 40, 0x1f);
        b.wr(vm + 0x18c + 20, (1 << 3) | 0x7c_0000);
        b.no_errors();
    }
}

/// `df_v3_6.c` reads how memory is interleaved; without the register a right driver would be blamed.
#[test]
fn the_data_fabric_tells_its_channels() {
    for (asic, register, mask) in [(&GFX90A, 0x7064u64, 0x7c), (&GFX906, 0x7044, 0x3c)] {
        let mut b = Bench::new(asic);
        let at = (b.rd(register * 4) & mask) >> 2;
        assert_eq!(
            at, 8,
            "{}: index of 32 in df_v3_6_channel_number",
            asic.name
        );
        // FabricConfigAccessControl.
        let v = b.rd(0x7410 * 4);
        b.wr(0x7410 * 4, v | 1);
        b.no_errors();
    }
}
