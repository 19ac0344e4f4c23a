// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Launches that depend on each other, and several queues and processes.

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rkfd::code::arguments::Value;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Surroundings;
use rkfd::code::program::Kernel;
use rkfd::device::Device;
use rkfd::memory::Buffer;
use rkfd::packet::aql::Barrier;
use rkfd::packet::aql::BarrierKind;
use rkfd::packet::aql::Scope;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;

use crate::bench::along;
use crate::bench::contents;
use crate::bench::fill;
use crate::bench::hip;
use crate::bench::load;
use crate::bench::same;
use crate::bench::Bench;
use crate::tap::patience;
use crate::CASES;

/// What `step` makes of 0 in so many rounds.
pub fn stepped(rounds: u32) -> u32 {
    (0..rounds).fold(0u32, |x, round| x.wrapping_mul(3).wrapping_add(round))
}

/// Launches `rounds` steps, one behind the other, by the barrier bit or by barrier packets, and waits for the last.
pub fn run_chain(bench: &Bench, kernel: &Kernel, rounds: u32, packets: bool) {
    let n = 1024;
    let data = bench.memory(4 * n);
    bench.done.store(0, 1).unwrap();
    for round in 0..rounds {
        let mut dispatch = along(kernel, n, 256)
            .argument(&data)
            .argument(n as u32)
            .argument(round)
            .barrier(!packets)
            .scopes(Scope::Agent, Scope::Agent);
        if round + 1 == rounds {
            dispatch = dispatch
                .scopes(Scope::Agent, Scope::System)
                .completion(bench.done.address(0).unwrap());
        }
        bench
            .queue
            .stage_dispatch(&dispatch, &bench.kernargs)
            .unwrap();
        if packets {
            let barrier = Barrier {
                kind: BarrierKind::And,
                dependencies: [0; 5],
                completion: 0,
            };
            let (packet, header) = barrier.encode().unwrap();
            bench.queue.stage_aql(&packet, header).unwrap();
        }
    }
    bench.queue.flush();
    bench.await_end();
    same(&contents(&data, n), &vec![stepped(rounds); n]);
}

pub fn chain(device: &Arc<Device>) {
    let mut bench = Bench::new(device);
    let kernel = hip(device, "step");
    // More than the ring has.
    for packets in [false, true] {
        run_chain(&bench, &kernel, 100, packets);
        bench.kernargs.clear();
    }
}

pub fn across_queues(device: &Arc<Device>) {
    let benches = [Bench::new(device), Bench::new(device)];
    let kernel = hip(device, "step");
    let n = 512;
    let data = benches[0].memory(4 * n);
    let rounds = 20u32;
    // The queues take turns: each step ends in a signal that the other queue's barrier waits for.
    let turns = Signals::new(device, rounds as usize).unwrap();
    for round in 0..rounds {
        turns.store(round as usize, 1).unwrap();
    }
    for round in 0..rounds {
        let bench = &benches[round as usize % 2];
        if let Some(before) = round.checked_sub(1) {
            let mut dependencies = [0; 5];
            dependencies[2] = turns.address(before as usize).unwrap();
            let barrier = Barrier {
                kind: BarrierKind::And,
                dependencies,
                completion: 0,
            };
            let (packet, header) = barrier.encode().unwrap();
            bench.queue.submit_aql(&packet, header).unwrap();
        }
        bench.launch(
            along(&kernel, n, 128)
                .argument(&data)
                .argument(n as u32)
                .argument(round)
                .completion(turns.address(round as usize).unwrap()),
        );
    }
    turns
        .wait_below(rounds as usize - 1, 1, patience())
        .unwrap();
    same(&contents(&data, n), &vec![stepped(rounds); n]);
}

pub fn many_queues(device: &Arc<Device>) {
    let kernel = hip(device, "step");
    thread::scope(|scope| {
        for n in 0..8 {
            let kernel = &kernel;
            scope.spawn(move || run_chain(&Bench::new(device), kernel, 20 + n, n % 2 == 0));
        }
    });
}

pub fn many_processes(_device: &Arc<Device>) {
    let this = env::current_exe().unwrap();
    let number = CASES
        .iter()
        .position(|(name, _)| name.starts_with("launches that"))
        .unwrap();
    let children: Vec<_> = (0..8)
        .map(|_| {
            Command::new(&this)
                .args(["--case", &number.to_string()])
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

/// A dispatch as a packet that somebody else writes, header and all.
fn packet(bench: &Bench, dispatch: &Dispatch<'_>) -> [u32; 16] {
    let planned = dispatch.plan(&Surroundings::default()).unwrap();
    let kernargs = bench.kernargs.place(&planned).unwrap();
    let (mut packet, header) = dispatch.encode(&planned, kernargs).unwrap();
    packet[0] = packet[0] & 0xffff_0000 | u32::from(header);
    packet
}

/// A queue as the kernels' `struct target` has it.
fn target(bench: &Bench, queue: &Queue) -> Buffer {
    let buffer = bench.memory(4096);
    fill(
        &buffer,
        &[
            queue.write_pointer_address(),
            queue.read_pointer_address(),
            queue.ring_address(),
            queue.ring_bytes() as u64 / 64,
            queue.doorbell_address(),
        ],
    );
    buffer
}

/// Packets that kernels put into queues which the program leaves to them.
pub fn enqueue(device: &Arc<Device>) {
    let mut bench = Bench::new(device);
    let queue = || Queue::new(device, QueueOptions::new(QueueKind::Aql)).unwrap();
    let queues = [queue(), queue()];
    let _doorbells = bench.queue.doorbells_for_kernels().unwrap();
    let targets = queues.each_ref().map(|queue| target(&bench, queue));
    let program = load(device, "hip.co");
    let (enqueue, visit) = (
        program.kernel("enqueue").unwrap(),
        program.kernel("visit").unwrap(),
    );
    let (many, hops) = (100, 25);
    // More than the ring has, so that those who put them there wait for room.
    assert!(many > queues[0].ring_bytes() / 64);
    let packets = bench.memory(64 * many);
    let visits = bench.memory(4 * many);
    for round in 0..10 {
        fill(&visits, &vec![0u32; many]);
        let visited = bench.done.address(0).unwrap();
        bench.done.store(0, many as i64).unwrap();
        let children = (0..many).flat_map(|n| {
            let child = Dispatch::new(&visit).argument(&visits).argument(n as u32);
            packet(&bench, &child.barrier(n % 2 == 0).completion(visited))
        });
        fill(&packets, &children.collect::<Vec<u32>>());
        // Each work-group puts one of them there.
        let parent = along(&enqueue, many, 1)
            .argument(&targets[0])
            .argument(&packets);
        bench.launch(parent);
        bench.await_end();
        same(&contents(&visits, many), &vec![1u32; many]);

        // Each kernel puts the next one into the other queue.
        fill(&visits, &vec![0u32; many]);
        bench.done.store(0, hops as i64).unwrap();
        let address = |hop: usize| Value::Address(packets.address() + 64 * hop as u64);
        let mut chain = Vec::new();
        for hop in 0..hops {
            let next = Dispatch::new(&enqueue)
                .argument(&targets[(hop + 1 + round) % 2])
                .argument(address(hop + 1));
            let last = Dispatch::new(&visit).argument(&visits).argument(7u32);
            let this = if hop + 1 < hops { next } else { last };
            chain.extend(packet(&bench, &this.completion(visited)));
        }
        fill(&packets, &chain);
        let first = Dispatch::new(&enqueue)
            .argument(&targets[round % 2])
            .argument(address(0));
        bench.launch(first);
        bench.await_end();
        let mut wanted = vec![0u32; many];
        wanted[7] = 1;
        same(&contents(&visits, many), &wanted);
        bench.queue.drain(patience()).unwrap();
        bench.kernargs.clear();
    }
    let written = 10 * (many + hops) as u64;
    let places: u64 = queues.iter().map(Queue::write_pointer).sum();
    assert_eq!(places, written, "places that were taken");
}
