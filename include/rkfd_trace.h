/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of the driver: what becomes of queues, memory and devices. Times are in microseconds, doorbells are byte
 * offsets in the doorbell BAR, results are 0 or negative errnos.
 */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM rkfd

#if !defined(RKFD_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define RKFD_TRACE_H

#include <linux/tracepoint.h>

/* The numbers are those of rust/trace.rs. */
#define rkfd_show_queue_type(type) \
	__print_symbolic(type, { 0, "pm4" }, { 1, "aql" }, { 2, "sdma" })
#define rkfd_show_scope(scope) \
	__print_symbolic(scope, { 0, "all" }, { 1, "pasid" }, { 2, "doorbells" })
#define rkfd_show_cause(cause) \
	__print_symbolic(cause, { 0, "userptr" }, { 1, "svm" }, { 2, "memory" }, \
			 { 3, "suspend" }, { 4, "debugger" }, { 5, "fault" })
#define rkfd_show_reset(kind) \
	__print_symbolic(kind, { 0, "queue" }, { 1, "engines" }, { 2, "chip" })
#define rkfd_show_change(cause) \
	__print_symbolic(cause, { 0, "unmap" }, { 1, "clear" }, { 2, "protect" }, \
			 { 3, "soft_dirty" }, { 4, "end" }, { 5, "migrate" }, \
			 { 6, "exclusive" }, { 7, "other" })

#define rkfd_show_trigger(trigger) \
	__print_symbolic(trigger, { 0, "request" }, { 1, "access" }, { 2, "cpu_fault" }, { 3, "eviction" }, { 4, "end" })

/* A queue was made; it will be mapped soon. */
TRACE_EVENT(queue_create,
	TP_PROTO(u32 gpu_id, s32 pid, u16 pasid, u64 queue, u32 type, u32 doorbell, u64 ring,
		 u32 ring_size),
	TP_ARGS(gpu_id, pid, pasid, queue, type, doorbell, ring, ring_size),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(s32, pid)
		__field(u16, pasid)
		__field(u64, queue)
		__field(u32, type)
		__field(u32, doorbell)
		__field(u64, ring)
		__field(u32, ring_size)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pid = pid;
		__entry->pasid = pasid;
		__entry->queue = queue;
		__entry->type = type;
		__entry->doorbell = doorbell;
		__entry->ring = ring;
		__entry->ring_size = ring_size;
	),
	TP_printk("gpu_id=%u pid=%d pasid=%u queue=%llu type=%s doorbell=0x%x ring=0x%llx size=%u",
		  __entry->gpu_id, __entry->pid, __entry->pasid, __entry->queue,
		  rkfd_show_queue_type(__entry->type), __entry->doorbell, __entry->ring,
		  __entry->ring_size)
);

/* A queue was destroyed; the time is what its owner waited for the hardware. */
TRACE_EVENT(queue_destroy,
	TP_PROTO(u32 gpu_id, s32 pid, u16 pasid, u64 queue, u32 doorbell, u64 us, s32 result),
	TP_ARGS(gpu_id, pid, pasid, queue, doorbell, us, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(s32, pid)
		__field(u16, pasid)
		__field(u64, queue)
		__field(u32, doorbell)
		__field(u64, us)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pid = pid;
		__entry->pasid = pasid;
		__entry->queue = queue;
		__entry->doorbell = doorbell;
		__entry->us = us;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u pid=%d pasid=%u queue=%llu doorbell=0x%x us=%llu result=%d",
		  __entry->gpu_id, __entry->pid, __entry->pasid, __entry->queue,
		  __entry->doorbell, __entry->us, __entry->result)
);

DECLARE_EVENT_CLASS(rkfd_queue,
	TP_PROTO(u32 gpu_id, s32 pid, u16 pasid, u64 queue, u32 type, u32 doorbell),
	TP_ARGS(gpu_id, pid, pasid, queue, type, doorbell),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(s32, pid)
		__field(u16, pasid)
		__field(u64, queue)
		__field(u32, type)
		__field(u32, doorbell)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pid = pid;
		__entry->pasid = pasid;
		__entry->queue = queue;
		__entry->type = type;
		__entry->doorbell = doorbell;
	),
	TP_printk("gpu_id=%u pid=%d pasid=%u queue=%llu type=%s doorbell=0x%x",
		  __entry->gpu_id, __entry->pid, __entry->pasid, __entry->queue,
		  rkfd_show_queue_type(__entry->type), __entry->doorbell)
);

/* A queue became part of what the hardware works on. */
DEFINE_EVENT(rkfd_queue, queue_map,
	TP_PROTO(u32 gpu_id, s32 pid, u16 pasid, u64 queue, u32 type, u32 doorbell),
	TP_ARGS(gpu_id, pid, pasid, queue, type, doorbell)
);

/* The hardware confirmed that a queue is off. */
DEFINE_EVENT(rkfd_queue, queue_unmap,
	TP_PROTO(u32 gpu_id, s32 pid, u16 pasid, u64 queue, u32 type, u32 doorbell),
	TP_ARGS(gpu_id, pid, pasid, queue, type, doorbell)
);

/* Queues were preempted; refused is the doorbell of one that did not stop. */
TRACE_EVENT(preempt,
	TP_PROTO(u32 gpu_id, u32 scope, u16 pasid, u32 queues, u64 us, u32 refused, s32 result),
	TP_ARGS(gpu_id, scope, pasid, queues, us, refused, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(u32, scope)
		__field(u16, pasid)
		__field(u32, queues)
		__field(u64, us)
		__field(u32, refused)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->scope = scope;
		__entry->pasid = pasid;
		__entry->queues = queues;
		__entry->us = us;
		__entry->refused = refused;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u scope=%s pasid=%u queues=%u us=%llu refused=0x%x result=%d",
		  __entry->gpu_id, rkfd_show_scope(__entry->scope), __entry->pasid,
		  __entry->queues, __entry->us, __entry->refused, __entry->result)
);

/* The queues of an address space may not run; the time is what the caller waited. */
TRACE_EVENT(evict,
	TP_PROTO(u32 gpu_id, s32 pid, u16 pasid, u32 cause, u64 us, s32 result),
	TP_ARGS(gpu_id, pid, pasid, cause, us, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(s32, pid)
		__field(u16, pasid)
		__field(u32, cause)
		__field(u64, us)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pid = pid;
		__entry->pasid = pasid;
		__entry->cause = cause;
		__entry->us = us;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u pid=%d pasid=%u cause=%s us=%llu result=%d",
		  __entry->gpu_id, __entry->pid, __entry->pasid, rkfd_show_cause(__entry->cause),
		  __entry->us, __entry->result)
);

/* One cause not to run is over. */
TRACE_EVENT(restore,
	TP_PROTO(u32 gpu_id, s32 pid, u16 pasid, u32 cause, s32 result),
	TP_ARGS(gpu_id, pid, pasid, cause, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(s32, pid)
		__field(u16, pasid)
		__field(u32, cause)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pid = pid;
		__entry->pasid = pasid;
		__entry->cause = cause;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u pid=%d pasid=%u cause=%s result=%d",
		  __entry->gpu_id, __entry->pid, __entry->pasid, rkfd_show_cause(__entry->cause),
		  __entry->result)
);

/* Something was reset: one queue (of doorbell), the engines, or the chip. */
TRACE_EVENT(reset,
	TP_PROTO(u32 gpu_id, u32 kind, u32 doorbell, u32 queues, u64 us, s32 result),
	TP_ARGS(gpu_id, kind, doorbell, queues, us, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(u32, kind)
		__field(u32, doorbell)
		__field(u32, queues)
		__field(u64, us)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->kind = kind;
		__entry->doorbell = doorbell;
		__entry->queues = queues;
		__entry->us = us;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u kind=%s doorbell=0x%x queues=%u us=%llu result=%d",
		  __entry->gpu_id, rkfd_show_reset(__entry->kind), __entry->doorbell,
		  __entry->queues, __entry->us, __entry->result)
);

/* A PCI function lost bus mastering: from now on it reaches no memory. */
TRACE_EVENT(bus_master_off,
	TP_PROTO(u32 domain, u32 bus, u32 devfn),
	TP_ARGS(domain, bus, devfn),
	TP_STRUCT__entry(
		__field(u32, domain)
		__field(u32, bus)
		__field(u32, devfn)
	),
	TP_fast_assign(
		__entry->domain = domain;
		__entry->bus = bus;
		__entry->devfn = devfn;
	),
	TP_printk("%04x:%02x:%02x.%x", __entry->domain, __entry->bus, __entry->devfn >> 3,
		  __entry->devfn & 7)
);

DECLARE_EVENT_CLASS(rkfd_range,
	TP_PROTO(u32 gpu_id, u16 pasid, u64 address, u64 length, s32 result),
	TP_ARGS(gpu_id, pasid, address, length, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(u16, pasid)
		__field(u64, address)
		__field(u64, length)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pasid = pasid;
		__entry->address = address;
		__entry->length = length;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u pasid=%u address=0x%llx length=0x%llx result=%d",
		  __entry->gpu_id, __entry->pasid, __entry->address, __entry->length,
		  __entry->result)
);

/* A range of an address space shows memory from now on, if the result is 0. */
DEFINE_EVENT(rkfd_range, vm_map,
	TP_PROTO(u32 gpu_id, u16 pasid, u64 address, u64 length, s32 result),
	TP_ARGS(gpu_id, pasid, address, length, result)
);

/* It shows nothing any more. */
DEFINE_EVENT(rkfd_range, vm_unmap,
	TP_PROTO(u32 gpu_id, u16 pasid, u64 address, u64 length, s32 result),
	TP_ARGS(gpu_id, pasid, address, length, result)
);

/* Memory of a buffer was moved out of VRAM, or back; the time is that of the copy. */
TRACE_EVENT(bo_move,
	TP_PROTO(u32 gpu_id, bool out, u64 length, u64 us, s32 result),
	TP_ARGS(gpu_id, out, length, us, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(bool, out)
		__field(u64, length)
		__field(u64, us)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->out = out;
		__entry->length = length;
		__entry->us = us;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u direction=%s length=0x%llx us=%llu result=%d", __entry->gpu_id,
		  __entry->out ? "out" : "in", __entry->length, __entry->us, __entry->result)
);

/* An access was refused, or is being retried. */
TRACE_EVENT(vm_fault,
	TP_PROTO(u32 gpu_id, u16 pasid, u32 vmid, u64 address, bool write, bool execute, bool retry),
	TP_ARGS(gpu_id, pasid, vmid, address, write, execute, retry),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(u16, pasid)
		__field(u32, vmid)
		__field(u64, address)
		__field(bool, write)
		__field(bool, execute)
		__field(bool, retry)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pasid = pasid;
		__entry->vmid = vmid;
		__entry->address = address;
		__entry->write = write;
		__entry->execute = execute;
		__entry->retry = retry;
	),
	TP_printk("gpu_id=%u pasid=%u vmid=%u address=0x%llx write=%d execute=%d retry=%d",
		  __entry->gpu_id, __entry->pasid, __entry->vmid, __entry->address, __entry->write,
		  __entry->execute, __entry->retry)
);

/* A mirror was made: it shows length bytes of the process from cpu on at GPU addresses from address on. */
TRACE_EVENT(mirror_create,
	TP_PROTO(u32 gpu_id, s32 pid, u16 pasid, u32 mirror, u64 cpu, u64 address, u64 length),
	TP_ARGS(gpu_id, pid, pasid, mirror, cpu, address, length),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(s32, pid)
		__field(u16, pasid)
		__field(u32, mirror)
		__field(u64, cpu)
		__field(u64, address)
		__field(u64, length)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pid = pid;
		__entry->pasid = pasid;
		__entry->mirror = mirror;
		__entry->cpu = cpu;
		__entry->address = address;
		__entry->length = length;
	),
	TP_printk("gpu_id=%u pid=%d pasid=%u mirror=%u cpu=0x%llx address=0x%llx length=0x%llx",
		  __entry->gpu_id, __entry->pid, __entry->pasid, __entry->mirror, __entry->cpu,
		  __entry->address, __entry->length)
);

/* A mirror has ended: the GPU does not reach its memory any more. */
TRACE_EVENT(mirror_destroy,
	TP_PROTO(u32 gpu_id, u16 pasid, u32 mirror),
	TP_ARGS(gpu_id, pasid, mirror),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(u16, pasid)
		__field(u32, mirror)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pasid = pasid;
		__entry->mirror = mirror;
	),
	TP_printk("gpu_id=%u pasid=%u mirror=%u", __entry->gpu_id, __entry->pasid, __entry->mirror)
);

/*
 * Memory was looked for because of an access that is repeated: the granule shows so many bytes now, or nothing had to be
 * shown. The time is from the report on.
 */
TRACE_EVENT(mirror_serve,
	TP_PROTO(u32 gpu_id, u16 pasid, u64 address, bool write, u64 bytes, u64 us, s32 result),
	TP_ARGS(gpu_id, pasid, address, write, bytes, us, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(u16, pasid)
		__field(u64, address)
		__field(bool, write)
		__field(u64, bytes)
		__field(u64, us)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pasid = pasid;
		__entry->address = address;
		__entry->write = write;
		__entry->bytes = bytes;
		__entry->us = us;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u pasid=%u address=0x%llx write=%d bytes=0x%llx us=%llu result=%d",
		  __entry->gpu_id, __entry->pasid, __entry->address, __entry->write,
		  __entry->bytes, __entry->us, __entry->result)
);

/* Memory changes that a mirror shows, or is to show, in one of its windows; the address is the GPU's. */
TRACE_EVENT(mirror_change,
	TP_PROTO(u32 gpu_id, u16 pasid, u64 address, u64 length, u32 cause),
	TP_ARGS(gpu_id, pasid, address, length, cause),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(u16, pasid)
		__field(u64, address)
		__field(u64, length)
		__field(u32, cause)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->pasid = pasid;
		__entry->address = address;
		__entry->length = length;
		__entry->cause = cause;
	),
	TP_printk("gpu_id=%u pasid=%u address=0x%llx length=0x%llx cause=%s",
		  __entry->gpu_id, __entry->pasid, __entry->address, __entry->length,
		  rkfd_show_change(__entry->cause))
);

/*
 * Memory of a program has moved to VRAM or back, moved bytes of those that were asked for. The address is the program's, or
 * with trigger "end" or "eviction" a byte of the VRAM.
 */
TRACE_EVENT(mirror_migrate,
	TP_PROTO(u32 gpu_id, bool out, u32 trigger, u64 address, u64 asked, u64 moved, u64 us,
		 s32 result),
	TP_ARGS(gpu_id, out, trigger, address, asked, moved, us, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(bool, out)
		__field(u32, trigger)
		__field(u64, address)
		__field(u64, asked)
		__field(u64, moved)
		__field(u64, us)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->out = out;
		__entry->trigger = trigger;
		__entry->address = address;
		__entry->asked = asked;
		__entry->moved = moved;
		__entry->us = us;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u out=%d trigger=%s address=0x%llx asked=0x%llx moved=0x%llx us=%llu result=%d",
		  __entry->gpu_id, __entry->out, rkfd_show_trigger(__entry->trigger),
		  __entry->address, __entry->asked, __entry->moved, __entry->us, __entry->result)
);

/* The hardware got a new list of what to work on; chained: it takes turns. */
TRACE_EVENT(runlist,
	TP_PROTO(u32 gpu_id, u32 processes, u32 queues, u32 dwords, bool chained, s32 result),
	TP_ARGS(gpu_id, processes, queues, dwords, chained, result),
	TP_STRUCT__entry(
		__field(u32, gpu_id)
		__field(u32, processes)
		__field(u32, queues)
		__field(u32, dwords)
		__field(bool, chained)
		__field(s32, result)
	),
	TP_fast_assign(
		__entry->gpu_id = gpu_id;
		__entry->processes = processes;
		__entry->queues = queues;
		__entry->dwords = dwords;
		__entry->chained = chained;
		__entry->result = result;
	),
	TP_printk("gpu_id=%u processes=%u queues=%u dwords=%u chained=%d result=%d",
		  __entry->gpu_id, __entry->processes, __entry->queues, __entry->dwords,
		  __entry->chained, __entry->result)
);

#endif /* RKFD_TRACE_H */

/* Outside of the guard: define_trace.h reads this file again, found by -I of Kbuild. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rkfd_trace
#include <trace/define_trace.h>
