# SPDX-License-Identifier: GPL-2.0 OR MIT
# shellcheck shell=sh
#
# What rocminfo prints, for those who check it.

agents() { printf '%s\n' "$1" | grep -c '^Agent [0-9]'; }

# agents_of_type TEXT CPU|GPU
agents_of_type() { printf '%s\n' "$1" | grep -cE "^ *Device Type: +$2 *$"; }

# agent TEXT N: the lines about agent N.
agent() {
	printf '%s\n' "$1" | awk -v n="$2" '/^Agent [0-9]/ { on = $2 == n } /^\*\*\* Done/ { on = 0 } on'
}

# value TEXT LABEL: the first value behind a label.
value() { printf '%s\n' "$1" | sed -n "s/^ *$2: *//; T; s/ *\$//; p; q"; }

no_complaint() {
	! printf '%s\n' "$1" | grep -iE 'hsa api call failure|not loaded|error|assert|unable'
}

# cpu_looks_right TEXT: the agent is this machine's processor, with its memory in every kind of pool.
cpu_looks_right() {
	model=$(sed -n 's/^model name[ \t]*: *//p' /proc/cpuinfo | head -n 1 | sed 's/ *$//')
	memory=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
	check "CPU: name" same "$model" "$(value "$1" Name)"
	check "CPU: marketing name" same "$model" "$(value "$1" 'Marketing Name')"
	check "CPU: vendor" same CPU "$(value "$1" 'Vendor Name')"
	check "CPU: profile" same FULL_PROFILE "$(value "$1" Profile)"
	check "CPU: node" same 0 "$(value "$1" Node)"
	check "CPU: cores" same "$(grep -c '^processor' /proc/cpuinfo)" "$(value "$1" 'Compute Unit')"
	check "CPU: no queues" same '0(0x0)' "$(value "$1" 'Max Queue Number')"
	check "CPU: pools" same "$(printf 'GLOBAL; FLAGS: %s\n' 'FINE GRAINED' 'KERNARG, FINE GRAINED' 'COARSE GRAINED')" \
		"$(printf '%s\n' "$1" | sed -n 's/^ *Segment: *//p' | sed 's/ *$//')"
	check "CPU: all of memory is in each" same "$(printf '%s\n' "$memory" "$memory" "$memory")" \
		"$(printf '%s\n' "$1" | sed -n 's/^ *Size: *\([0-9]*\)(.*) KB *$/\1/p')"
	check "CPU: every pool can be allocated from" same "$(printf 'TRUE\nTRUE\nTRUE')" \
		"$(printf '%s\n' "$1" | sed -n 's/^ *Allocatable: *//p' | sed 's/ *$//')"
}

# looks_like TEXT gfx90a|gfx906: the agent is that part, with what it has.
looks_like() {
	case $2 in
	gfx90a) cus=104 engines=8 lines=128 product=MI210 chip=29711 clock=1700 l2=8192 ;;
	gfx906) cus=60 engines=4 lines=64 product='AMD Radeon Graphics|MI50' chip=26273 clock=1725 l2=8192 ;;
	*) check "a part that this test knows" false; return ;;
	esac
	# Without power management amdgpu says 100 MHz of every part.
	[ "${RKFD_DRIVER:-rkfd}" != amdgpu ] || clock=100
	check "name" same "$2" "$(value "$1" Name)"
	check "product name" holds "$(value "$1" 'Marketing Name')" "$product"
	check "vendor" same AMD "$(value "$1" 'Vendor Name')"
	check "feature" same KERNEL_DISPATCH "$(value "$1" Feature)"
	check "compute units" same "$cus" "$(value "$1" 'Compute Unit')"
	check "shader engines" same "$engines" "$(value "$1" 'Shader Engines')"
	check "SIMDs per CU" same 4 "$(value "$1" 'SIMDs per CU')"
	check "wavefront" same '64(0x40)' "$(value "$1" 'Wavefront Size')"
	check "chip id" holds "$(value "$1" 'Chip ID')" "^$chip\\("
	check "clock" holds "$(value "$1" 'Max Clock Freq. (MHz)')" "^$clock\$"
	check "cache line" holds "$(value "$1" 'Cacheline Size')" "^($lines|64|128)\\("
	check "L1 cache" holds "$(value "$1" L1)" '^16\('
	check "L2 cache" holds "$(value "$1" L2)" "^$l2\\("
	check "ISA" holds "$1" "Name: +amdgcn-amd-amdhsa--$2(:sramecc[+-])?(:xnack[+-])? *\$"
	check "a coarse-grained pool" holds "$1" 'GLOBAL; FLAGS: COARSE GRAINED'
	check "a group pool of 64 KiB" holds "$(printf '%s\n' "$1" | grep -A2 'Segment: *GROUP')" 'Size: +64\(0x40\) KB'
	check "the whole VRAM in a pool" holds "$1" 'Size: +10[0-9]{5}\(0x[0-9a-f]+\) KB'
}
