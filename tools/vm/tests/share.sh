#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR MIT
#
# What Documentation/ci.md promises to a project that is not in this checkout: scripts/vm --share and RKFD_BIND
# of the toolbox. scripts/test runs it where a user would, outside of the toolbox; it prints TAP.

top=$(cd "${0%/*}/../../.." && pwd)
. "$top/tests/e2e/lib.sh"

project=$(mktemp -d) || exit 1
trap 'rm -rf "$project"' EXIT
echo 'from outside' >"$project/input"
cat >"$project/run" <<'EOF'
#!/bin/sh
rocminfo >rocminfo.txt || exit 1
mkdir -p results/deep
cp input results/deep/copy
echo "$1 in $PWD"
echo 'to the other stream' >&2
exit 7
EOF
chmod +x "$project/run"
cd "$project" || exit 1

found=0
"$top/scripts/vm" --no-build --share "$project" -- ./run argument >stdout 2>stderr </dev/null || found=$?
check "the program's status is the line's" same 7 "$found"
check "its output is the line's, and it ran in its directory" same "argument in $project" "$(cat stdout)"
check "so is what it wrote to standard error, and nothing else" same "to the other stream" "$(cat stderr)"
check "a ROCm program found the GPU" holds "$(cat rocminfo.txt)" '^ *Name: *gfx90a *$'
check "what it made is there, in a subdirectory, too" same "from outside" "$(cat results/deep/copy)"

found=0
(cd / && "$top/scripts/vm" --no-build --share=/no/such/project -- true) >stdout 2>stderr </dev/null || found=$?
check "a directory that is not there is refused" same "1 " "$found $(cat stdout)"
check "… by its name" holds "$(cat stderr)" '^error: --share /no/such/project: no such directory$'

bound=$(RKFD_BIND=$project "$top/scripts/toolbox" run -- sh -c 'pwd; cat input; echo built >product')
check "the toolbox works in a directory of RKFD_BIND" same "$project
from outside" "$bound"
check "… and leaves there what it made" same built "$(cat product)"
done_testing
