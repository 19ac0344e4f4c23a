// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the control socket shows.

use serde_json::{json, Value};

use super::Device;
use crate::asic::Asic;
use crate::cp::hqd::r;
use crate::decode;
use crate::device::Gpu;
use crate::mem::Phys;
use crate::regs::sh_mem;
use crate::trace::Record;
use crate::vm::walk::{bits, walk, Directories, Page};
use crate::vm::HubId;

/// Records and errors that are copied at a time while the device waits.
const BATCH: usize = 256;

/// Counters and identity.
pub fn stats(gpu: &Gpu) -> Value {
    let mut stats = serde_json::to_value(&gpu.soc.log.stats).unwrap_or_else(|_| json!({}));
    if let Some(map) = stats.as_object_mut() {
        map.insert("trace_records".into(), json!(gpu.soc.log.records().count()));
    }
    json!({
        "ok": true,
        "asic": gpu.soc.asic.name,
        "board": gpu.soc.board,
        "vram": gpu.soc.mem.vram_size(),
        "t_ns": gpu.soc.clock.now_ns(),
        "latency": gpu.latency,
        "stats": stats,
    })
}

fn record(asic: &Asic, rec: &Record) -> Value {
    let d = decode::record(asic, rec);
    let raw = rec.raw.get(..rec.raw_len).unwrap_or(&[]);
    json!({
        "seq": rec.seq,
        "t_ns": rec.t_ns,
        "ring": rec.ring,
        "vmid": rec.origin.vmid,
        "pasid": rec.origin.pasid,
        "doorbell": rec.origin.doorbell,
        "packet": d.name,
        "text": d.text(),
        "fields": d.fields,
        "raw": raw,
        "dwords": rec.total_len,
    })
}

/// Trace records; `queues` asks for the queues that are connected behind the last of them as well.
pub fn trace(device: &mut impl Device, last_ms: Option<u64>, max: usize, queues: bool) -> Value {
    let (now, from, asic, (found, oldest), connected) = device.with(|gpu| {
        let now = gpu.soc.clock.now_ns();
        let from = last_ms.map_or(0, |ms| now.saturating_sub(ms.saturating_mul(1_000_000)));
        let connected = queues.then(|| self::queues(gpu));
        (now, from, gpu.soc.asic, gpu.soc.log.since(from), connected)
    });
    let max = u64::try_from(max).unwrap_or(u64::MAX);
    let first = found.start.max(found.end.saturating_sub(max));
    let mut wanted = Vec::new();
    let mut next = first;
    while next < found.end {
        // The device goes on meanwhile, and may drop what is not copied yet.
        let copied = device.with(|gpu| gpu.soc.log.copy_records(next..found.end, BATCH));
        let (Some(first), Some(last)) = (copied.first(), copied.last()) else {
            break;
        };
        if first.seq != next {
            // Something in between is gone.
            wanted.clear();
        }
        next = last.seq + 1;
        wanted.extend(copied);
    }
    // Whether something of the time that was asked for is not among the records: left out, or forgotten.
    let start = wanted.first().map_or(found.end, |rec| rec.seq);
    let forgotten = found.start == oldest && oldest > 0;
    let since = if start > found.start || forgotten {
        wanted.first().map_or(now, |rec| rec.t_ns)
    } else {
        from
    };
    let records: Vec<Value> = wanted.iter().map(|rec| record(asic, rec)).collect();
    let mut reply = json!({"ok": true, "t_ns": now, "since_ns": since, "records": records});
    if let (Some(connected), Some(map)) = (connected, reply.as_object_mut()) {
        map.insert("queues".into(), connected);
    }
    reply
}

/// Protocol errors.
pub fn errors(device: &mut impl Device) -> Value {
    let total = device.with(|gpu| gpu.soc.log.total_errors());
    let mut errors = Vec::new();
    let mut next = 0;
    while next < total {
        let copied = device.with(|gpu| gpu.soc.log.copy_errors(next, BATCH));
        let Some(last) = copied.last() else { break };
        next = last.seq + 1;
        errors.extend(copied);
    }
    json!({"ok": true, "total": total, "errors": errors})
}

/// Connected queues.
pub fn queues(gpu: &mut Gpu) -> Value {
    let active: Vec<_> = gpu
        .cp
        .iter()
        .filter(|(_, h)| h.active())
        .map(|(s, _)| s)
        .collect();
    let mut compute = Vec::new();
    for slot in active {
        gpu.sync_pointers(slot);
        let h = gpu.cp.hqd(slot);
        let Some(run) = h.run() else { continue };
        compute.push(json!({
            "slot": slot.index(),
            "me": slot.me(),
            "pipe": slot.pipe(),
            "queue": slot.queue(),
            "role": format!("{:?}", run.role),
            "format": if run.aql { "aql" } else { "pm4" },
            "vmid": run.vmid,
            "pasid": gpu.soc.pasid_of(run.vmid, HubId::Gfx),
            "doorbell": run.doorbell,
            "ring": run.base,
            "size": run.len,
            "rptr": run.rptr,
            "wptr": run.wptr,
            "in_ib": run.frames.len(),
            "busy": run.has_work(),
            "halted": run.pace.halted,
            "error": h.reg(r::ERROR),
            "mqd": h.pair(r::MQD_BASE),
        }));
    }
    let mut sdma = Vec::new();
    for (engine, e) in gpu.sdma.iter().enumerate() {
        for (block, c) in e.contexts() {
            sdma.push(json!({
                "engine": engine,
                "context": match block { 0 => "gfx".into(), 1 => "page".into(), n => format!("rlc{}", n - 2) },
                "vmid": c.vmid,
                "pasid": gpu.soc.pasid_of(c.vmid, HubId::Mm),
                "doorbell": c.doorbell,
                "ring": c.base,
                "size": c.len * 4,
                "rptr": c.rptr * 4,
                "wptr": c.wptr.wrapping_mul(4),
                "busy": c.has_work(),
                "halted": c.pace.halted,
            }));
        }
    }
    let list = gpu.hws.runlist();
    json!({
        "ok": true,
        "compute": compute,
        "sdma": sdma,
        "runlist": {
            "active": list.is_some(),
            "over_subscribed": list.is_some_and(|l| l.over_subscribed),
        },
    })
}

/// Stray doorbells.
pub fn doorbells(gpu: &Gpu) -> Value {
    let strays: Vec<_> = gpu
        .soc
        .strays
        .iter()
        .map(|(byte, s)| {
            json!({
                "byte": byte,
                "doorbell": byte / 4,
                "kind": s.kind,
                "count": s.count,
                "value": s.value,
                "pasid": s.pasid,
                "t_ns": s.t_ns,
            })
        })
        .collect();
    let stats = &gpu.soc.log.stats;
    json!({
        "ok": true,
        "rung": stats.doorbells,
        "unmapped": stats.doorbells_unmapped,
        "foreign": stats.doorbells_foreign,
        "malformed": stats.doorbells_malformed,
        "strays": strays,
    })
}

/// The directory entries that a walk has read, from the root down.
#[derive(Default)]
struct Trail(Vec<u64>);

impl Directories for Trail {
    fn get(&self, _: u32, _: u64, _: u32) -> Option<u64> {
        None
    }
    fn put(&mut self, _: u32, _: u64, _: u32, entry: u64) {
        self.0.push(entry);
    }
}

/// What a walk has found, as numbers: an offset in VRAM, or a bus address.
fn page(page: Page) -> Value {
    let (memory, address) = match page.phys {
        Some(Phys::Vram(offset)) => ("vram", Some(offset)),
        Some(Phys::Bus(address)) => ("bus", Some(address)),
        None => ("none", None),
    };
    let right = |bit, name| if page.perms & bit != 0 { name } else { "-" };
    let rights = [
        right(bits::R, "r"),
        right(bits::W, "w"),
        right(bits::X, "x"),
    ];
    json!({
        "memory": memory,
        "address": address,
        "bytes": 1u64 << page.shift,
        "rights": rights.concat(),
    })
}

/// An address space.
pub fn vm(gpu: &Gpu, vmid: u8, va: Option<u64>) -> Result<Value, String> {
    if vmid > 15 {
        return Err("vmid is 0 to 15".into());
    }
    let mut hubs = Vec::new();
    for id in [HubId::Gfx, HubId::Mm] {
        let hub = gpu.soc.hub(id);
        let ctx = hub.context(vmid);
        let mut v = json!({
            "hub": format!("{id:?}"),
            "enabled": ctx.enabled,
            "depth": ctx.depth,
            "block_size": ctx.block_size,
            "retry": ctx.retry,
            "root": format!("{:#x}", ctx.base),
            "start": format!("{:#x}", ctx.start << 12),
            "end": format!("{:#x}", (ctx.end << 12) | 0xFFF),
            "pasid": gpu.soc.pasid_of(vmid, id),
            "tlb_entries": hub.space(vmid).len(),
        });
        if let (Some(va), Some(map)) = (va, v.as_object_mut()) {
            let mut trail = Trail::default();
            let found = walk(
                &gpu.soc.mem.current(),
                &ctx,
                hub.fb_offset(),
                va,
                &mut trail,
            );
            map.insert("walk".into(), json!(format!("{found:x?}")));
            map.insert("directories".into(), json!(trail.0));
            map.insert("page".into(), json!(found.ok().map(page)));
            map.insert("fb_offset".into(), json!(hub.fb_offset()));
            map.insert(
                "cached".into(),
                json!(format!("{:x?}", hub.space(vmid).peek(va))),
            );
        }
        hubs.push(v);
    }
    let cam: Vec<_> = gpu
        .soc.cam
        .entries()
        .filter(|(_, k)| k.vmid == vmid)
        .map(|(i, k)| json!({"index": i, "hub": format!("{:?}", k.hub), "va": format!("{:#x}", k.page << 12)}))
        .collect();
    // Addresses in units of 256 bytes; the high half has 8 bits of one.
    let trap = |lo, hi| {
        let (lo, hi) = (
            gpu.soc.regs.per_vmid(vmid, lo),
            gpu.soc.regs.per_vmid(vmid, hi) & 0xFF,
        );
        format!("{:#x}", ((u64::from(hi) << 32) | u64::from(lo)) << 8)
    };
    Ok(json!({
        "ok": true,
        "vmid": vmid,
        "hubs": hubs,
        "retry_cam": cam,
        "tba": trap(sh_mem::TBA_LO, sh_mem::TBA_HI),
        "tma": trap(sh_mem::TMA_LO, sh_mem::TMA_HI),
    }))
}
