# SPDX-License-Identifier: GPL-2.0 OR MIT
# shellcheck shell=sh
#
# TAP from shell: `. "${0%/*}/lib.sh"`, then cases, then `done_testing`.

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

# PCI addresses of the GPUs, one per line.
gpus() {
	for device in /sys/bus/pci/devices/*; do
		[ "$(cat "$device/vendor")" = 0x1002 ] && echo "${device##*/}"
	done
	true
}

done_testing() {
	echo "1..$tap_number"
	exit $tap_failed
}
