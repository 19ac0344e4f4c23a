// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the control socket shows.

use std::sync::Arc;

use serde_json::{json, Value};

use super::Device;
use crate::asic::Asic;
use crate::cp::hqd::r;
use crate::cp::queue::Role;
use crate::cp::slot::SlotId;
use crate::decode;
use crate::device::Gpu;
use crate::mem::Phys;
use crate::regs::sh_mem;
use crate::trace::Record;
use crate::vm::walk::{bits, walk, Directories, Page};
use crate::vm::HubId;

/// Records, errors and doorbells that are copied at a time while the device waits.
const BATCH: usize = 256;

/// Counters and identity.
pub fn stats(device: &mut impl Device) -> Value {
    let (asic, board, vram, now, latency, stats, records) = device.with(|gpu| {
        let soc = &gpu.soc;
        (
            soc.asic.name,
            soc.board,
            soc.mem.vram_size(),
            soc.clock.now_ns(),
            gpu.latency,
            soc.log.stats.clone(),
            soc.log.records().len(),
        )
    });
    let mut stats = serde_json::to_value(&stats).unwrap_or_else(|_| json!({}));
    if let Some(map) = stats.as_object_mut() {
        map.insert("trace_records".into(), json!(records));
    }
    json!({
        "ok": true,
        "asic": asic,
        "board": board,
        "vram": vram,
        "t_ns": now,
        "latency": latency,
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
        let connected = queues.then(|| Connected::copy(gpu));
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
        map.insert("queues".into(), connected.reply());
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

/// A connected compute queue.
struct Compute {
    slot: SlotId,
    role: Role,
    aql: bool,
    vmid: u8,
    pasid: u16,
    doorbell: u32,
    base: u64,
    len: u64,
    rptr: u64,
    wptr: u64,
    frames: usize,
    busy: bool,
    halted: Option<&'static str>,
    error: u32,
    mqd: u64,
}

impl Compute {
    fn reply(&self) -> Value {
        json!({
            "slot": self.slot.index(),
            "me": self.slot.me(),
            "pipe": self.slot.pipe(),
            "queue": self.slot.queue(),
            "role": format!("{:?}", self.role),
            "format": if self.aql { "aql" } else { "pm4" },
            "vmid": self.vmid,
            "pasid": self.pasid,
            "doorbell": self.doorbell,
            "ring": self.base,
            "size": self.len,
            "rptr": self.rptr,
            "wptr": self.wptr,
            "in_ib": self.frames,
            "busy": self.busy,
            "halted": self.halted,
            "error": self.error,
            "mqd": self.mqd,
        })
    }
}

/// A connected SDMA queue; its pointers count dwords.
struct Copying {
    engine: usize,
    block: usize,
    vmid: u8,
    pasid: u16,
    doorbell: u32,
    base: u64,
    len: u64,
    rptr: u64,
    wptr: u64,
    busy: bool,
    halted: Option<&'static str>,
}

impl Copying {
    fn reply(&self) -> Value {
        let context = match self.block {
            0 => "gfx".into(),
            1 => "page".into(),
            n => format!("rlc{}", n - 2),
        };
        json!({
            "engine": self.engine,
            "context": context,
            "vmid": self.vmid,
            "pasid": self.pasid,
            "doorbell": self.doorbell,
            "ring": self.base,
            "size": self.len * 4,
            "rptr": self.rptr * 4,
            "wptr": self.wptr.wrapping_mul(4),
            "busy": self.busy,
            "halted": self.halted,
        })
    }
}

/// The queues that are connected at one moment.
struct Connected {
    compute: Vec<Compute>,
    sdma: Vec<Copying>,
    /// Whether the run list is over-subscribed, if there is one.
    runlist: Option<bool>,
}

impl Connected {
    fn copy(gpu: &mut Gpu) -> Self {
        let active: Vec<_> = gpu
            .cp
            .iter()
            .filter(|(_, h)| h.active())
            .map(|(s, _)| s)
            .collect();
        let mut compute = Vec::with_capacity(active.len());
        for slot in active {
            gpu.sync_pointers(slot);
            let h = gpu.cp.hqd(slot);
            let Some(run) = h.run() else { continue };
            compute.push(Compute {
                slot,
                role: run.role,
                aql: run.aql,
                vmid: run.vmid,
                pasid: gpu.soc.pasid_of(run.vmid, HubId::Gfx),
                doorbell: run.doorbell,
                base: run.base,
                len: run.len,
                rptr: run.rptr,
                wptr: run.wptr,
                frames: run.frames.len(),
                busy: run.has_work(),
                halted: run.pace.halted,
                error: h.reg(r::ERROR),
                mqd: h.pair(r::MQD_BASE),
            });
        }
        let contexts = gpu.sdma.iter().enumerate();
        let contexts =
            contexts.flat_map(|(n, e)| e.contexts().map(move |(block, c)| (n, block, c)));
        let sdma = contexts
            .map(|(engine, block, c)| Copying {
                engine,
                block,
                vmid: c.vmid,
                pasid: gpu.soc.pasid_of(c.vmid, HubId::Mm),
                doorbell: c.doorbell,
                base: c.base,
                len: c.len,
                rptr: c.rptr,
                wptr: c.wptr,
                busy: c.has_work(),
                halted: c.pace.halted,
            })
            .collect();
        Self {
            compute,
            sdma,
            runlist: gpu.hws.runlist().map(|list| list.over_subscribed),
        }
    }

    fn reply(&self) -> Value {
        let compute: Vec<Value> = self.compute.iter().map(Compute::reply).collect();
        let sdma: Vec<Value> = self.sdma.iter().map(Copying::reply).collect();
        json!({
            "ok": true,
            "compute": compute,
            "sdma": sdma,
            "runlist": {
                "active": self.runlist.is_some(),
                "over_subscribed": self.runlist.unwrap_or(false),
            },
        })
    }
}

/// Connected queues.
pub fn queues(device: &mut impl Device) -> Value {
    device.with(Connected::copy).reply()
}

/// Stray doorbells.
pub fn doorbells(device: &mut impl Device) -> Value {
    let [rung, unmapped, foreign, malformed] = device.with(|gpu| {
        let stats = &gpu.soc.log.stats;
        [
            stats.doorbells,
            stats.doorbells_unmapped,
            stats.doorbells_foreign,
            stats.doorbells_malformed,
        ]
    });
    let mut strays: Vec<Value> = Vec::new();
    let mut next = Some(0);
    while let Some(from) = next {
        let copied = device.with(|gpu| gpu.soc.strays.copy(from, BATCH));
        next = copied.last().and_then(|(byte, _)| byte.checked_add(1));
        strays.extend(copied.iter().map(|(byte, s)| {
            json!({
                "byte": byte,
                "doorbell": byte / 4,
                "kind": s.kind,
                "count": s.count,
                "value": s.value,
                "pasid": s.pasid,
                "t_ns": s.t_ns,
            })
        }));
    }
    json!({
        "ok": true,
        "rung": rung,
        "unmapped": unmapped,
        "foreign": foreign,
        "malformed": malformed,
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
///
/// # Errors
/// There is no such one.
pub fn vm(device: &mut impl Device, vmid: u8, va: Option<u64>) -> Result<Value, String> {
    if vmid > 15 {
        return Err("vmid is 0 to 15".into());
    }
    // Memory and cached translations are read without the device.
    let (mem, spaces, contexts, cam, trap) = device.with(|gpu| {
        let context = |id| {
            let hub = gpu.soc.hub(id);
            let pasid = gpu.soc.pasid_of(vmid, id);
            (id, hub.context(vmid), hub.fb_offset(), pasid)
        };
        let cam = gpu.soc.cam.entries().filter(|(_, k)| k.vmid == vmid);
        let trap = [
            (sh_mem::TBA_LO, sh_mem::TBA_HI),
            (sh_mem::TMA_LO, sh_mem::TMA_HI),
        ];
        let of = |i| gpu.soc.regs.per_vmid(vmid, i);
        (
            Arc::clone(&gpu.soc.mem),
            Arc::clone(&gpu.soc.spaces),
            [HubId::Gfx, HubId::Mm].map(context),
            cam.collect::<Vec<_>>(),
            trap.map(|(lo, hi)| (of(lo), of(hi))),
        )
    });
    let mut hubs = Vec::new();
    for (id, ctx, fb_offset, pasid) in contexts {
        let space = spaces.space(id, vmid);
        let mut v = json!({
            "hub": format!("{id:?}"),
            "enabled": ctx.enabled,
            "depth": ctx.depth,
            "block_size": ctx.block_size,
            "retry": ctx.retry,
            "root": format!("{:#x}", ctx.base),
            "start": format!("{:#x}", ctx.start << 12),
            "end": format!("{:#x}", (ctx.end << 12) | 0xFFF),
            "pasid": pasid,
            "tlb_entries": space.len(),
        });
        if let (Some(va), Some(map)) = (va, v.as_object_mut()) {
            let mut trail = Trail::default();
            let found = walk(&mem.current(), &ctx, fb_offset, va, &mut trail);
            map.insert("walk".into(), json!(format!("{found:x?}")));
            map.insert("directories".into(), json!(trail.0));
            map.insert("page".into(), json!(found.ok().map(page)));
            map.insert("fb_offset".into(), json!(fb_offset));
            map.insert("cached".into(), json!(format!("{:x?}", space.peek(va))));
        }
        hubs.push(v);
    }
    let cam: Vec<_> = cam
        .iter()
        .map(|(i, k)| json!({"index": i, "hub": format!("{:?}", k.hub), "va": format!("{:#x}", k.page << 12)}))
        .collect();
    // Addresses in units of 256 bytes; the high half has 8 bits of one.
    let [tba, tma] = trap.map(|(lo, hi)| {
        let address = (u64::from(hi & 0xFF) << 32) | u64::from(lo);
        format!("{:#x}", address << 8)
    });
    Ok(json!({
        "ok": true,
        "vmid": vmid,
        "hubs": hubs,
        "retry_cam": cam,
        "tba": tba,
        "tma": tma,
    }))
}
