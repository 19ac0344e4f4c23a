# SPDX-License-Identifier: GPL-2.0 OR MIT
# shellcheck shell=sh
#
# TAP from shell: `. "${0%/*}/lib.sh"`, then cases, then `done_testing`.

# How much longer than on a fast idle machine a wait may take; the test driver says it.
patience=${TAP_PATIENCE:-1}
tap_number=0
tap_failed=0

# case NAME COMMAND…: passes if COMMAND succeeds; its output explains a failure.
check() {
	tap_name=$1
	shift
	tap_number=$((tap_number + 1))
	if tap_output=$("$@" 2>&1); then
		echo "ok $tap_number $tap_name"
	else
		echo "# exit status $? of: $*"
		printf '%s\n' "$tap_output" | sed 's/^/#   /'
		echo "not ok $tap_number $tap_name"
		tap_failed=1
	fi
}

# skip NAME REASON
skip() {
	tap_number=$((tap_number + 1))
	echo "ok $tap_number $1 # SKIP $2"
}

# same WANTED FOUND
same() {
	[ "$1" = "$2" ] || {
		printf 'wanted: %s\nfound:  %s\n' "$1" "$2"
		return 1
	}
}

# holds TEXT REGEX: some line of TEXT matches.
holds() {
	printf '%s\n' "$1" | grep -qE "$2" || {
		printf 'no line matches %s in:\n%s\n' "$2" "$1"
		return 1
	}
}

# status WANTED COMMAND…: COMMAND ends with that exit status.
status() {
	wanted=$1
	shift
	found=0
	"$@" || found=$?
	same "$wanted" "$found"
}

# within SECONDS PROGRAM…: ends with that program's status, or with 124 where it takes longer.
within() {
	within_limit=$(($1 * patience))
	shift
	timeout "$within_limit" "$@"
}

# eventually SECONDS COMMAND…: COMMAND succeeds, though maybe not at once.
eventually() {
	tries=$(($1 * patience * 10))
	shift
	until eventually_output=$("$@" 2>&1); do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || {
			printf '%s\n' "$eventually_output"
			return 1
		}
		sleep 0.1
	done
}

# Unloads the driver, which a program that has just ended may hold a little longer; 124 would be a hang.
unload() {
	rmmod amdgpu 2>/dev/null
	eventually 20 within 60 rmmod rkfd
}

# Writes the events of the GPUs to $events_log until forget_events; from when events_come succeeded on.
watch_events() {
	events_log=/tmp/events-${0##*/}
	rkfdctl events --raw >"$events_log" 2>&1 &
	events_pid=$!
}
events_come() { rkfdctl demo --rounds 1 && grep -q '^0 c ' "$events_log"; }

# Stops that, because whoever has a file open keeps the module.
forget_events() {
	kill "$events_pid"
	wait "$events_pid" 2>/dev/null
	true
}

# expressions SETUP: from here on `of TEXT EXPRESSION` prints a Python expression over the names that SETUP, Python too,
# makes of `text`. One interpreter serves all of them, since its start takes a hundred times what an expression does. It
# ends with the test, whose end of the pipe it reads from.
expressions() {
	mkfifo "/tmp/expressions-$$" "/tmp/values-$$"
	python3 -c '
import json, sys

def part():
    lines = []
    for line in iter(sys.stdin.readline, ""):
        if line == "%%\n":
            return "".join(lines)
        lines.append(line)
    sys.exit()

while True:
    expression, text = part().strip(), part()
    names = {"json": json, "text": text}
    try:
        exec(sys.argv[1], names)
        print(eval(expression, names))
    except Exception:
        sys.excepthook(*sys.exc_info())
    print("%%", flush=True)' "$1" <"/tmp/expressions-$$" >"/tmp/values-$$" &
	exec 8>"/tmp/expressions-$$" 9<"/tmp/values-$$"
	rm "/tmp/expressions-$$" "/tmp/values-$$"
}
of() {
	printf '%s\n%%%%\n%s\n%%%%\n' "$2" "$1" >&8
	while IFS= read -r of_line <&9 && [ "$of_line" != %% ]; do
		printf '%s\n' "$of_line"
	done
}

# PCI addresses of the GPUs, one per line.
gpus() {
	for device in /sys/bus/pci/devices/*; do
		read -r vendor <"$device/vendor"
		[ "$vendor" = 0x1002 ] && echo "${device##*/}"
	done
	true
}

done_testing() {
	echo "1..$tap_number"
	exit $tap_failed
}
