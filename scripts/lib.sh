# SPDX-License-Identifier: GPL-2.0 OR MIT
# shellcheck shell=bash
#
# Shared by every script: where things live, and how a long step reports itself.
# Sourced, never run.

set -euo pipefail

# Where chroot and the like are, which users do not have there on some systems.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export TOP

# Everything that a second checkout can reuse lives here, keyed by content.
RKFD_CACHE=${RKFD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rkfd}
# What belongs to this checkout only (module, tools, logs).
OUT=${RKFD_OUT:-$TOP/build}
# The toolbox, make and the guest start elsewhere, so a path must mean the same everywhere.
{ read -r RKFD_CACHE && read -r OUT; } < <(realpath -ms -- "$RKFD_CACHE" "$OUT")
RKFD_OUT=$OUT
[ -z "${KDIR:-}" ] || KDIR=$(realpath -ms -- "$KDIR")
export RKFD_CACHE OUT RKFD_OUT KDIR

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
	C_BOLD=$'\e[1m' C_DIM=$'\e[2m' C_RED=$'\e[31m' C_GREEN=$'\e[32m' C_OFF=$'\e[0m'
else
	C_BOLD='' C_DIM='' C_RED='' C_GREEN='' C_OFF=''
fi

say() { printf '%s\n' "$*" >&2; }

# die MESSAGE [HINT]: one line of what failed, one of what to do.
die() {
	say "${C_RED}error:${C_OFF} $1"
	[ $# -lt 2 ] || say "       $2"
	exit 1
}

[ "$(uname -m)" = x86_64 ] || die "this is $(uname -m): the test kernel, the VM and the module are for x86-64"

for path in "$TOP" "$RKFD_CACHE" "$OUT" "${KDIR:-}"; do
	case $path in
	*[[:space:]:\$\#%\;\"\'\\]*)
		die "the path '$path' has a character at which make or the shell would split it" \
			"none of these, please: blank : ; \$ # % \" ' \\   (checkout, RKFD_CACHE, RKFD_OUT, KDIR)"
		;;
	esac
done
unset path

# bound_kernel: the directories, one per line, that a kernel tree of the user's (KDIR) has outside of what
# the toolbox sees by itself. KDIR may be a link, as /lib/modules/VERSION/build is, and a build directory made
# with O= has its source elsewhere.
bound_kernel() {
	[ -n "${KDIR:-}" ] || return 0
	printf '%s\n' "$KDIR"
	[ ! -L "$KDIR" ] || realpath -- "$KDIR"
	[ ! -d "$KDIR/source" ] || realpath -- "$KDIR/source"
}

# key WORD_OR_FILE...: the content key of a recipe, 16 hexadecimal digits.
key() {
	local item
	for item in "$@"; do
		if [ -f "$item" ]; then cat "$item"; else printf '%s\n' "$item"; fi
	done | sha256sum | cut -c1-16
}

elapsed() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# Bash ignores set -e in all that runs left of ||, however deep, so that a function called there goes
# on after a failure. Hence what runs other people's functions below does so alone on its line, and so
# should its callers; a function that matters says || return besides.

# What a step does when we are told to stop: the command and all that it started go first.
stop_step() {
	trap - INT TERM HUP
	kill -TERM -- "-$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
	[ -t 2 ] && printf '\r\e[K' >&2
	kill -s "$2" $$
}

# step NAME LOG HINT COMMAND...: runs COMMAND with its output in LOG and shows that
# it is alive. On failure: which step, the log's last lines, its path, and HINT.
step() {
	local name=$1 log=$2 hint=$3 start=$SECONDS pid rc=0 last tick=0
	shift 3
	mkdir -p "$(dirname "$log")"
	# A process group of its own: a plain background command would ignore SIGINT and run on after us.
	set -m
	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	local signal
	for signal in INT TERM HUP; do
		# shellcheck disable=SC2064
		trap "stop_step $pid $signal" $signal
	done
	while kill -0 "$pid" 2>/dev/null; do
		if [ -t 2 ]; then
			last=$(tail -c 400 "$log" 2>/dev/null | tr '\r' '\n' | tail -n 1 | tr -cd '[:print:]' | cut -c1-50)
			printf '\r\e[K  %s  %s  %s%s%s' "$(elapsed $((SECONDS - start)))" "$name" "$C_DIM" "$last" "$C_OFF" >&2
		elif [ $((tick % 300)) -eq 299 ]; then
			say "  $(elapsed $((SECONDS - start)))  $name ..."
		fi
		tick=$((tick + 1))
		sleep 0.1
	done
	wait "$pid" || rc=$?
	trap - INT TERM HUP
	[ -t 2 ] && printf '\r\e[K' >&2
	if [ "$rc" -ne 0 ]; then
		say "${C_RED}FAILED${C_OFF} $name after $(elapsed $((SECONDS - start))) (exit $rc). The log ends:"
		tail -n 25 "$log" | sed 's/^/    | /' >&2
		say "  log:  $log"
		say "  help: $hint"
		return "$rc"
	fi
	say "  ${C_GREEN}ok${C_OFF}  $(elapsed $((SECONDS - start)))  $name"
}

# with_lock NAME COMMAND...: one builder at a time for a shared thing in the cache.
with_lock() {
	local name=$1 fd
	shift
	mkdir -p "$RKFD_CACHE/lock"
	exec {fd}>"$RKFD_CACHE/lock/$name"
	if ! flock -n "$fd"; then
		say "  waiting for another checkout that is building: $name"
		flock "$fd"
	fi
	# A failure ends the script, and the lock with it.
	"$@"
	exec {fd}>&-
}
