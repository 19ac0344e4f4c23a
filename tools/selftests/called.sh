#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR MIT
#
# called.sh HEADER: what library_called.h includes, made of rkfd.h: a number for each function, their names, and a macro in
# the place of each that notes the call.
set -eu

# A name in front of a parenthesis, outside of comments.
names=$(sed -e 's|/\*.*\*/||' -e '/\/\*/,/\*\//d' "$1" | grep -o '\<rkfd_[a-z0-9_]*(' | tr -d '(' | sort -u)
[ -n "$names" ] || { echo "$0: no function in $1" >&2; exit 1; }

echo '/* Made by called.sh. */'
echo 'enum called {'
printf '\tCALLED_%s,\n' $names
printf '\tCALLED_FUNCTIONS\n};\n\n#define CALLED_NAMES'
printf ' \\\n\t"%s",' $names
printf '\n\n'
for name in $names; do
	echo "#define $name(...) (called(CALLED_$name), $name(__VA_ARGS__))"
done
