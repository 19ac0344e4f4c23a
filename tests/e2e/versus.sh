# SPDX-License-Identifier: GPL-2.0 OR MIT
# shellcheck shell=sh
#
# What `rkfdctl bench versus measure` says of any driver; found EXPRESSION is then a Python expression over the rows
# p[what, beside], their times t and their counts c.

json=$(rkfdctl bench versus measure --existing 1,16 --rounds 4 --skip hang)
check "it measures" same 0 "$?"

found() {
	printf '%s' "$json" | python3 -c '
import json, sys
report = json.load(sys.stdin)
p = {(r["what"], r["beside"]): r for r in report["rows"]}
t = {k: r["time"]["micros"] for k, r in p.items() if r["time"] != "untimed"}
c = {k: r["counts"] for k, r in p.items() if r["counts"]}
memory = ["%s %s" % (s, m) for m in ("VRAM", "system memory", "of the process") for s in ("4 KiB", "2 MiB", "64 MiB")]
print(eval(sys.argv[1]))' "$1"
}

check "the driver's name" same "$driver" "$(found 'report["driver"]')"
check "every operation on queues beside 1 and 16" same True \
	"$(found 'all((w, b) in t and (w, b) in c for b in ("1 queue", "16 queues") for w in ("create a queue", "stop a queue", "start a queue", "destroy a queue", "create a queue, first packet"))')"
check "every kind and size of memory" same True \
	"$(found 'all((w, m) in t for m in memory for w in ("map", "unmap", "unmap and map", "allocate, map, unmap, free"))')"
check "changes of the process's own" same True \
	"$(found 'all((w, m) in t for m in memory[6:] for w in ("change pages", "change pages, next packet"))')"
check "packets, a process that is killed, and loading" same True \
	"$(found 'all(k in t for k in (("packet to memory", "PM4 queue"), ("packet to memory", "AQL queue"), ("packet to event", "PM4 queue"), ("kill -9 until queues are off", "8 queues"), ("load the driver", ""), ("load the driver, first packet", "counted with unloading")))')"
check "everything took time" same True "$(found 'all(us > 0 for us in t.values())')"
check "a call is a part of what it belongs to" same True \
	"$(found 'all(t["change pages", m] <= t["change pages, next packet", m] for m in memory[6:])')"
check "packets enter no driver" same True \
	"$(found 'all(c["packet to memory", q]["packets"] < 0.5 for q in ("PM4 queue", "AQL queue"))')"
check "an event is an interrupt" same True "$(found 'c["packet to event", "PM4 queue"]["interrupts"] >= 1')"
check "what is unmapped is flushed" same True "$(found 'all(c["unmap and map", m]["flushes"] >= 1 for m in memory)')"
check "loading touches registers" same True \
	"$(found 'c["load the driver, first packet", "counted with unloading"]["registers"] > 100')"
