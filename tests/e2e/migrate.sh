# SPDX-License-Identifier: GPL-2.0 OR MIT
# shellcheck shell=sh
#
# Programs that hold memory in VRAM (tools/selftests/native/migrate_hold.c has the letters, svm_hold.c those of one by attributes). Each has a name, and a descriptor
# of this shell, 5 or 6, by which it is told.

export KFD_REQUIRE_GPU=1

# begin_holder NAME FD [PROGRAM]: not within check, whose commands run in a shell of their own.
begin_holder() {
	mkfifo "/tmp/hold-$1"
	"$RKFD_OUT/selftests/native/${3:-migrate_hold}" <"/tmp/hold-$1" >"/tmp/said-$1" 2>&1 5>&- 6>&- &
	echo $! >"/tmp/pid-$1"
	eval "exec $2>/tmp/hold-$1"
}
holder_begins() { eventually 60 grep -q '^# ready' "/tmp/said-$1"; }

# act NAME FD LETTERS: has it do these things, and waits until it has.
act() {
	act_wanted=$(($(grep -c '^# done' "/tmp/said-$1") + ${#3}))
	printf %s "$3" >&"$2"
	act_tries=$((120 * patience * 10))
	until [ "$(grep -c '^# done' "/tmp/said-$1")" -ge $act_wanted ]; do
		act_tries=$((act_tries - 1))
		if [ $act_tries = 0 ] || grep -q '^not ok' "/tmp/said-$1"; then
			tail -n 8 "/tmp/said-$1"
			return 1
		fi
		sleep 0.1
	done
}

# said NAME WORD: what it said last that begins so.
said() { sed -n "s/^# \($2 .*\)/\1/p" "/tmp/said-$1" | tail -n 1; }

# pid_of NAME: the process that has the memory, a child of the one that reports.
pid_of() {
	read -r parent <"/tmp/pid-$1"
	for stat in /proc/[0-9]*/stat; do
		{ read -r pid _ _ ppid _ <"$stat"; } 2>/dev/null || continue
		[ "$ppid" != "$parent" ] || { echo "$pid"; return; }
	done
}

# stop_holder NAME, go_on NAME
is_stopped() { grep -q '^State:.[Tt]' "/proc/$1/status"; }
stop_holder() {
	holder=$(pid_of "$1")
	kill -STOP "$holder" && eventually 30 is_stopped "$holder"
}
go_on() { kill -CONT "$(pid_of "$1")"; }

# end_holder NAME FD: not within check. $ended is its status.
end_holder() {
	eval "exec $2>&-"
	read -r holder <"/tmp/pid-$1"
	ended=0
	wait "$holder" || ended=$?
}
