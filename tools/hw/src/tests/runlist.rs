// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Run lists: the decoder reads back what the builder wrote, for any set of processes.

use proptest::prelude::*;

use crate::hw::doorbell::DoorbellOffset;
use crate::hw::pm4::process::Debug;
use crate::hw::pm4::{
    EncodeError, Engine, MapProcessFlavour, MapTarget, Packet, Packets, QueueClass, Trap,
};
use crate::hw::regs::gc::{ShMemBases, ShMemConfig};
use crate::hw::runlist::{Context, Limits, Plan, Process, Queue, RunListError, SliceProcess};

fn context(pasid: u16, xnack: bool) -> Context {
    Context {
        pasid,
        page_table_base: (u64::from(pasid) << 12) | 1,
        sh_mem_config: ShMemConfig::for_xnack(xnack),
        sh_mem_bases: ShMemBases::KFD,
        trap: Some(Trap {
            tba: 0xFFFF_FFBF_0000,
            tma: 0xFFFF_FFBF_1000,
        }),
        quantum: 10,
        num_gws: 64,
        diq: false,
        debug: Debug::default(),
    }
}

fn queue() -> impl Strategy<Value = Queue> {
    let engine = prop_oneof![3 => Just(Engine::Compute), 2 => (0u8..5).prop_map(Engine::Sdma)];
    (engine, 0u32..1 << 20, 0u64..1 << 30, any::<bool>()).prop_map(|(engine, id, mqd, gws)| Queue {
        engine,
        doorbell: DoorbellOffset::kernel(id),
        mqd: mqd << 12,
        wptr: 0x7F00_0000_0000 | (u64::from(id) << 3),
        gws: gws && engine == Engine::Compute,
    })
}

/// Processes with distinct PASIDs.
fn processes() -> impl Strategy<Value = Vec<(bool, Vec<Queue>)>> {
    proptest::collection::vec(
        (any::<bool>(), proptest::collection::vec(queue(), 0..6)),
        0..8,
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    (
        any::<bool>(),
        1u32..14,
        0u32..33,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(v9, max_processes, compute_slots, xnack_check, isolate)| Limits {
                flavour: if v9 {
                    MapProcessFlavour::V9
                } else {
                    MapProcessFlavour::Aldebaran
                },
                max_processes,
                compute_slots,
                xnack_check,
                isolate,
            },
        )
}

proptest! {
    #[test]
    fn the_list_says_what_was_asked(limits in limits(), wanted in processes()) {
        let list: Vec<SliceProcess<'_>> = (1u16..)
            .zip(&wanted)
            .map(|(pasid, (xnack, queues))| SliceProcess { context: context(pasid, *xnack), queues })
            .collect();
        let plan = Plan::new(limits, list.iter()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let mut out = vec![0xAAAA_AAAA; plan.dwords() + 1];
        let ib = 0x80_0000_1000;
        let built = plan.build(list.iter(), ib, &mut out);
        prop_assert_eq!(built, Ok(plan.dwords()));
        prop_assert_eq!(out.pop(), Some(0xAAAA_AAAA), "nothing is written behind the list");

        let mut order = Vec::new();
        let mut queues: Vec<Vec<_>> = Vec::new();
        let mut tails = Vec::new();
        for decoded in Packets::new(&out) {
            match decoded.packet {
                Packet::MapProcess(process) => {
                    order.push(process.pasid);
                    prop_assert_eq!(process.num_queues as usize, wanted[usize::from(process.pasid) - 1].1.len());
                    queues.push(Vec::new());
                }
                Packet::MapQueues(map) => {
                    prop_assert!(tails.is_empty());
                    queues.last_mut().ok_or_else(|| TestCaseError::fail("queue before process"))?.push(map);
                }
                Packet::RunList(tail) => tails.push(tail),
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            }
        }
        // Same processes, grouped by mode beginning with the first one's, stable inside a group.
        let first = wanted.first().is_some_and(|process| process.0);
        let of_mode = |mode: bool| (1u16..).zip(&wanted).filter(move |(_, p)| p.0 == mode).map(|(pasid, _)| pasid);
        let expected: Vec<u16> = of_mode(first).chain(of_mode(!first)).collect();
        prop_assert_eq!(&order, &expected);
        for (pasid, mapped) in order.iter().zip(&queues) {
            let asked = &wanted[usize::from(*pasid) - 1].1;
            prop_assert_eq!(mapped.len(), asked.len());
            for (map, queue) in mapped.iter().zip(asked) {
                prop_assert_eq!((map.doorbell, map.mqd, map.wptr), (queue.doorbell, queue.mqd, queue.wptr));
                prop_assert_eq!(map.target, MapTarget::Scheduled { engine: queue.engine, class: QueueClass::Normal, gws: queue.gws });
            }
        }
        // The tail exists exactly when over-subscribed, and names the list itself.
        let compute = wanted.iter().flat_map(|p| &p.1).filter(|q| q.engine == Engine::Compute).count();
        let gws = wanted.iter().flat_map(|p| &p.1).filter(|q| q.gws).count();
        let mixed = wanted.iter().any(|p| p.0) && wanted.iter().any(|p| !p.0);
        let over = wanted.len() > limits.max_processes as usize
            || compute > limits.compute_slots as usize
            || gws > 1
            || (mixed && limits.xnack_check);
        prop_assert_eq!(tails.len(), usize::from(over));
        for tail in tails {
            prop_assert_eq!((tail.ib, tail.dwords as usize, tail.chain), (ib, plan.dwords(), true));
        }
        let start = plan.run_list(ib);
        prop_assert!(!start.chain);
        let most = if limits.isolate { 1 } else { limits.max_processes };
        prop_assert!(start.process_count <= most);
        prop_assert!(start.encode().is_ok());
    }

    #[test]
    fn any_short_buffer_is_refused(wanted in processes(), short in 1usize..40) {
        let list: Vec<SliceProcess<'_>> = (1u16..)
            .zip(&wanted)
            .map(|(pasid, (xnack, queues))| SliceProcess { context: context(pasid, *xnack), queues })
            .collect();
        let limits = Limits { flavour: MapProcessFlavour::V9, max_processes: 8, compute_slots: 24, xnack_check: false, isolate: false };
        let plan = Plan::new(limits, list.iter()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        if let Some(have) = plan.dwords().checked_sub(short) {
            let mut out = vec![0; have];
            prop_assert_eq!(
                plan.build(list.iter(), 0, &mut out),
                Err(RunListError::Encode(EncodeError::NoSpace { need: plan.dwords(), have }))
            );
            prop_assert!(out.iter().all(|word| *word == 0));
        }
    }
}

const LIMITS: Limits = Limits {
    flavour: MapProcessFlavour::Aldebaran,
    max_processes: 13,
    compute_slots: 24,
    xnack_check: false,
    isolate: false,
};

#[test]
fn compute_queues_beside_a_debug_queue_are_static() {
    let queues = [Engine::Compute, Engine::Sdma(0)].map(|engine| Queue {
        engine,
        doorbell: DoorbellOffset::kernel(0x800),
        mqd: 0x1000,
        wptr: 0x2000,
        gws: false,
    });
    let process = [SliceProcess {
        context: Context {
            diq: true,
            ..context(1, true)
        },
        queues: &queues,
    }];
    let plan = Plan::new(LIMITS, process.iter()).expect("valid");
    let mut out = vec![0; plan.dwords()];
    plan.build(process.iter(), 0, &mut out).expect("fits");
    // DIQ_ENABLE and no queue count for the scheduler, and queue type 2 for the compute queue only.
    assert_eq!((out[1] >> 24) & 1, 1);
    assert_eq!(out[13] >> 22, 0);
    assert_eq!(out[22], 0x2040_0010);
    assert_eq!(out[29], 0x2800_0010);
}

#[test]
fn only_a_process_with_a_cooperative_queue_gets_sync_slots() {
    let queue = Queue {
        engine: Engine::Compute,
        doorbell: DoorbellOffset::kernel(0x800),
        mqd: 0x1000,
        wptr: 0x2000,
        gws: true,
    };
    let plain = [Queue {
        gws: false,
        ..queue
    }];
    let sync = [queue];
    let processes = [(1, &plain), (2, &sync)].map(|(pasid, queues)| SliceProcess {
        context: context(pasid, true),
        queues: &queues[..],
    });
    let plan = Plan::new(LIMITS, processes.iter()).expect("valid");
    let mut out = vec![0; plan.dwords()];
    plan.build(processes.iter(), 0, &mut out).expect("fits");
    assert_eq!(out[13] & 0x7F, 0);
    assert_eq!(out[28 + 13] & 0x7F, 64);
    assert_eq!(out[28 + 22], 0x2000_1010);
}

#[test]
fn reasons_are_listed() {
    let queues = [Queue {
        engine: Engine::Compute,
        doorbell: DoorbellOffset::kernel(0x800),
        mqd: 0x1000,
        wptr: 0x2000,
        gws: true,
    }; 2];
    let processes = [1, 2].map(|pasid| SliceProcess {
        context: context(pasid, true),
        queues: &queues,
    });
    let limits = Limits {
        max_processes: 1,
        compute_slots: 3,
        ..LIMITS
    };
    let plan = Plan::new(limits, processes.iter()).expect("valid");
    assert_eq!(
        plan.oversubscription().to_string(),
        "processes, compute queues, cooperative queues"
    );
    assert_eq!((plan.processes(), plan.queues()), (2, 4));
}

#[test]
fn a_bad_address_stops_the_build() {
    let queues = [Queue {
        engine: Engine::Compute,
        doorbell: DoorbellOffset::kernel(0x800),
        mqd: 0x1002,
        wptr: 0x2000,
        gws: false,
    }];
    let process = [SliceProcess {
        context: context(1, true),
        queues: &queues,
    }];
    let plan = Plan::new(LIMITS, process.iter()).expect("valid");
    let mut out = vec![0; plan.dwords()];
    assert_eq!(
        plan.build(process.iter(), 0, &mut out),
        Err(RunListError::Encode(EncodeError::Misaligned {
            field: "mqd",
            value: 0x1002
        }))
    );
}

#[test]
fn a_process_may_be_anything_that_lists_its_queues() {
    /// Counts up instead of storing queues.
    struct Generated(u32);

    impl Process for Generated {
        fn context(&self) -> Context {
            context(9, true)
        }

        fn queues(&self) -> impl Iterator<Item = Queue> {
            (0..self.0).map(|n| Queue {
                engine: Engine::Compute,
                doorbell: DoorbellOffset::kernel(0x800 + n),
                mqd: u64::from(n) << 12,
                wptr: u64::from(n) << 3,
                gws: false,
            })
        }
    }

    let one = [Generated(3)];
    let plan = Plan::new(LIMITS, one.iter()).expect("valid");
    assert_eq!(plan.dwords(), 21 + 3 * 7);
}

#[test]
fn a_list_longer_than_the_packet_can_name_is_refused() {
    struct Huge;

    impl Process for Huge {
        fn context(&self) -> Context {
            context(1, true)
        }

        fn queues(&self) -> impl Iterator<Item = Queue> {
            (0..150_000).map(|_| Queue {
                engine: Engine::Sdma(0),
                doorbell: DoorbellOffset::kernel(0x900),
                mqd: 0,
                wptr: 0,
                gws: false,
            })
        }
    }

    let list = [Huge];
    assert_eq!(
        Plan::new(LIMITS, list.iter()),
        Err(RunListError::TooLong(21 + 150_000 * 7))
    );
}
