// SPDX-License-Identifier: GPL-2.0 OR MIT
//! UNMAP_QUEUES of the scheduler: which queues leave, which stay, and how they come back.

mod common;

use common::fixture::{unmap_doorbells, Fixture};
use common::proc::Proc;
use common::queue::{indirect, wait_mem, write_data, UserQueue};
use gpu_model::asic::GFX90A;

fn fixture() -> Fixture {
    Fixture::new(&GFX90A, 0x61, 0x4000)
}

#[test]
fn preemption_in_nested_buffers_resumes_where_it_was() {
    let mut f = fixture();
    // ib1: write, ib2, write; ib2: write, wait, write.
    let (ib1, ib2) = (f.va + 0x1000, f.va + 0x2000);
    let mut one = write_data(f.va, 1);
    one.extend(indirect(ib2, 17, false));
    one.extend(write_data(f.va + 12, 4));
    let mut two = write_data(f.va + 4, 2);
    let flag = f.va + 0x800;
    two.extend(wait_mem(flag, 1));
    two.extend(write_data(f.va + 8, 3));
    f.b.set_words(f.bus + 0x1000, &one);
    f.b.set_words(f.bus + 0x2000, &two);
    f.q.push(&mut f.b, &indirect(ib1, one.len() as u32, false));
    f.q.send(&mut f.b, &write_data(f.va + 16, 5));
    assert_eq!(f.b.words(f.bus, 5), [1, 2, 0, 0, 0]);
    for _ in 0..3 {
        let fence = f.b.unmap(3, 0, 0);
        f.b.run();
        assert_eq!(f.b.ram64(fence.bus), 100);
        // Slots are reused by others in between: nothing may live in the slot only.
        let list = f.list.clone();
        f.b.run_list(&list, false, 1);
        f.b.run_for(1_000_000);
        assert_eq!(f.b.words(f.bus, 5), [1, 2, 0, 0, 0]);
    }
    f.b.set32(f.bus + 0x800, 1);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.words(f.bus, 5), [1, 2, 3, 4, 5]);
    f.b.no_errors();
}

#[test]
fn static_queues_survive_the_usual_unmap() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    let mut s = f.p.queue(&mut f.b);
    let mut list = f.p.map_process(&f.b, 2);
    let mut m = s.map_queues();
    m[1] |= 2 << 21;
    list.extend(&m);
    list.extend(f.q.map_queues());
    f.b.run_list(&list, false, 1);
    f.b.run();
    f.b.unmap(3, 0, 0);
    f.b.run();
    s.send(&mut f.b, &write_data(f.va, 1));
    f.q.send(&mut f.b, &write_data(f.va + 4, 1));
    assert_eq!(f.b.words(f.bus, 2), [1, 0]);
    // All.
    f.b.unmap(2, 0, 0);
    f.b.run();
    s.send(&mut f.b, &write_data(f.va, 2));
    assert_eq!(f.b.words(f.bus, 2), [1, 0]);
    f.b.no_errors();
}

#[test]
fn a_static_queue_stays_over_run_lists_until_it_is_named() {
    for by_pasid in [false, true] {
        let mut f = fixture();
        f.b.unmap(3, 0, 0);
        let mut s = f.p.queue(&mut f.b);
        let mut list = f.p.map_process(&f.b, 2);
        let mut m = s.map_queues();
        m[1] |= 2 << 21;
        list.extend(&m);
        list.extend(f.q.map_queues());
        for i in 0..4u32 {
            // The driver lists the static queue again each time, as upstream does for its debug queue.
            f.b.run_list(&list, false, 1);
            s.send(&mut f.b, &write_data(f.va, i));
            f.q.send(&mut f.b, &write_data(f.va + 4, i));
            assert_eq!(f.b.words(f.bus, 2), [i, i]);
            f.b.unmap(3, 0, 0);
            f.b.run();
        }
        let maps = f.b.gpu.soc.log.stats.queue_maps;
        // An empty list leaves it alone, too.
        let alone = f.p.map_process(&f.b, 0);
        f.b.run_list(&alone, false, 1);
        f.b.unmap(3, 0, 0);
        s.send(&mut f.b, &write_data(f.va, 9));
        assert_eq!(f.b.ram32(f.bus), 9);
        assert_eq!(f.b.gpu.soc.log.stats.queue_maps, maps);
        if by_pasid {
            f.b.unmap(1, 0, 0x61);
            f.b.run();
        } else {
            unmap_doorbells(&mut f.b, 0, &[s.doorbell]);
        }
        s.send(&mut f.b, &write_data(f.va, 10));
        assert_eq!(f.b.ram32(f.bus), 9);
        f.b.no_errors();
    }
}

#[test]
fn unmap_by_pasid_takes_one_process() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    let mut other = Proc::new(&mut f.b, 0x62, 1);
    let (va2, bus2) = other.page(&mut f.b, 4096);
    let mut q2 = other.queue(&mut f.b);
    let mut list = f.list.clone();
    list.extend(other.map_process(&f.b, 1));
    list.extend(q2.map_queues());
    f.b.run_list(&list, false, 2);
    f.b.unmap(1, 0, 0x61);
    f.b.run();
    f.q.send(&mut f.b, &write_data(f.va, 1));
    q2.send(&mut f.b, &write_data(va2, 2));
    assert_eq!((f.b.ram32(f.bus), f.b.ram32(bus2)), (0, 2));
    f.b.no_errors();
}

#[test]
fn unmap_by_doorbell_takes_up_to_four() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    let mut queues: Vec<UserQueue> = (0..6).map(|_| f.p.queue(&mut f.b)).collect();
    queues.push(f.p.sdma_queue(&mut f.b, 1, 0));
    let mut list = f.p.map_process(&f.b, 7);
    for q in &queues {
        list.extend(q.map_queues());
    }
    f.b.run_list(&list, false, 1);
    f.b.run();
    let bells: Vec<u64> = [0, 2, 4, 6].iter().map(|i| queues[*i].doorbell).collect();
    unmap_doorbells(&mut f.b, 0, &bells);
    let left: Vec<u64> =
        f.b.gpu
            .hws
            .mapped()
            .iter()
            .filter(|m| !m.by_kiq)
            .map(|m| u64::from(m.doorbell) * 4)
            .collect();
    assert_eq!(
        left,
        [queues[1].doorbell, queues[3].doorbell, queues[5].doorbell]
    );
    // The others have gone, and a list may follow once the rest has, whatever took it away.
    unmap_doorbells(&mut f.b, 0, &left);
    f.b.run_list(&list, false, 1);
    queues[0].send(&mut f.b, &write_data(f.va, 5));
    assert_eq!(f.b.ram32(f.bus), 5);
    f.b.no_errors();
}

#[test]
fn a_queue_taken_by_name_does_not_come_back_with_the_next_window() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    // 30 queues on 24 slots.
    let mut queues: Vec<UserQueue> = (0..30).map(|_| f.p.queue(&mut f.b)).collect();
    let mut list = f.p.map_process(&f.b, 30);
    for q in &queues {
        list.extend(q.map_queues());
    }
    f.b.run_list(&list, true, 1);
    f.b.run();
    // One that is connected and one that waits.
    unmap_doorbells(&mut f.b, 0, &[queues[3].doorbell, queues[28].doorbell]);
    for (i, q) in queues.iter_mut().enumerate() {
        q.push(&mut f.b, &write_data(f.va + 4 * i as u64, 1));
    }
    f.b.run_for(400_000_000);
    let want: Vec<u32> = (0..30).map(|i| u32::from(i != 3 && i != 28)).collect();
    assert_eq!(f.b.words(f.bus, 30), want);
    f.b.no_errors();
}
