// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the control socket shows of waves.

use std::sync::Arc;

use gfx9_isa::decode::Decoder;
use gfx9_isa::exec::cost::Class;
use gfx9_isa::text::text;
use rustc_hash::FxHashMap;
use serde_json::{json, Value};

use super::Device;
use crate::vm::executor::Executor;
use crate::vm::window::PageCache;
use crate::vm::{Access, HubId};
use crate::waves::look::{instruction, word};
use crate::waves::runner::client;

/// Where all waves are: of kernels with `kernel` in their names, `max` at most.
///
/// They stand still meanwhile, while the device goes on.
pub fn waves(device: &mut impl Device, kernel: Option<&str>, max: usize) -> Value {
    let (dispatcher, bus, spaces, isa, pasids) = device.with(|gpu| {
        let pasids: [u16; 16] =
            std::array::from_fn(|vmid| gpu.soc.pasid_of(vmid as u8, HubId::Gfx));
        (
            Arc::clone(&gpu.waves.dispatcher),
            Arc::clone(&gpu.soc.mem),
            Arc::clone(&gpu.soc.spaces),
            gpu.soc.asic.isa(),
            pasids,
        )
    });
    let decoder = Decoder::new(isa);
    let mut memory = Executor::new(&bus, &spaces);
    let mut cache = PageCache::default();
    let mut texts: FxHashMap<(u8, u64), Option<String>> = FxHashMap::default();
    let (mut total, mut rows) = (0u64, Vec::new());
    let look = dispatcher.look();
    for seen in &look.waves {
        let of = &seen.dispatch.kernel;
        memory.quiesce();
        let mut window = memory.window(client(of), false, &mut cache);
        seen.dispatch
            .learn_name(&mut |va, bytes: &mut [u8]| window.read(va, bytes, Access::Read).is_ok());
        let name = seen.dispatch.name();
        if kernel.is_some_and(|part| !name.is_some_and(|name| name.contains(part))) {
            continue;
        }
        total += 1;
        if rows.len() >= max {
            continue;
        }
        let pc = seen.spot.pc;
        let line = texts
            .entry((of.vmid, pc))
            .or_insert_with(|| {
                let inst = instruction(&mut window, &decoder, pc)?;
                Some(text(&inst, isa))
            })
            .clone();
        // Of a queue that has left its slot meanwhile, another process' memory may have been read.
        let current = look.is_current(seen);
        let seat = seen.seated.then(|| {
            let seat = seen.spot.seat;
            json!({"engine": seat.engine, "unit": seat.unit, "simd": seat.simd, "slot": seat.slot})
        });
        let (queue, pipe, me) = of.queue;
        rows.push(json!({
            "kernel": name.filter(|_| current),
            "entry": of.entry,
            "object": seen.dispatch.object().filter(|_| current),
            "vmid": of.vmid,
            "pasid": pasids.get(usize::from(of.vmid)),
            "doorbell": of.doorbell,
            "me": me,
            "pipe": pipe,
            "queue": queue,
            "dispatch": seen.dispatch.serial,
            "packet": of.packet,
            "group": seen.spot.group,
            "wave": seen.spot.wave,
            "seat": seat,
            "state": word(seen.state),
            "pc": pc,
            "exec": seen.exec,
            "instruction": line.filter(|_| current),
        }));
    }
    drop(look);
    memory.pause();
    json!({"ok": true, "total": total, "waves": rows})
}

/// What kernels have executed while they were watched, with the `top` instructions that were executed most.
pub fn profile(device: &mut impl Device, top: usize) -> Value {
    let (dispatcher, isa) =
        device.with(|gpu| (Arc::clone(&gpu.waves.dispatcher), gpu.soc.asic.isa()));
    let (running, kernels) = dispatcher.watch.profile();
    let kernels: Vec<Value> = kernels
        .into_iter()
        .map(|((name, entry, object), tally)| {
            let classes: serde_json::Map<String, Value> = Class::ALL
                .iter()
                .zip(&tally.classes)
                .filter(|(_, (count, _))| *count != 0)
                .map(|(class, (count, moved))| {
                    let value = json!({
                        "instructions": count,
                        "loaded": moved.loaded,
                        "stored": moved.stored,
                        "conflicts": moved.conflicts,
                    });
                    (class.name().to_owned(), value)
                })
                .collect();
            let top: Vec<Value> = tally
                .top(top)
                .iter()
                .map(|(pc, place)| {
                    json!({
                        "pc": pc,
                        "count": place.count,
                        "conflicts": place.conflicts,
                        "instruction": text(&place.inst, isa),
                    })
                })
                .collect();
            json!({
                "kernel": name,
                "entry": entry,
                "object": object,
                "instructions": tally.instructions(),
                "classes": classes,
                "top": top,
            })
        })
        .collect();
    json!({"ok": true, "running": running, "kernels": kernels})
}
