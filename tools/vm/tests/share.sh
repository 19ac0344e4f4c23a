#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR MIT
#
# What Documentation/ci.md promises to a project that is not in this checkout: scripts/vm --share and --with, and
# RKFD_BIND of the toolbox. scripts/test runs it where a user would, outside of the toolbox; it prints TAP.

top=$(cd "${0%/*}/../../.." && pwd)
. "$top/tests/e2e/lib.sh"

# Also where HOME is another.
RKFD_CACHE=${RKFD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rkfd}
export RKFD_CACHE

project= home= mine= place= canary= with1= with2= run= other=
# leave: however this ends.
leave() {
	for process in $with1 $with2 $run $other; do kill "$process" 2>/dev/null; done
	for made in "$project" "$home" "$mine" "$place" "$canary"; do [ -z "$made" ] || rm -rf "$made"; done
}
trap leave EXIT
# A shell that a signal ends does not heed EXIT.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
project=$(mktemp -d) || exit 1
home=$(mktemp -d) || exit 1
secret=$(od -An -N16 -tx8 /dev/urandom | tr -d ' ')
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

# Packages that the toolbox does not have: two small ones, by two runs at once.
found=0
for part in 1 2; do
	"$top/scripts/vm" --no-build --gpus 0 --no-module --with hello,sl --share "$project" -- \
		sh -c 'hello; ls /usr/games/sl; touch /usr/bin/rkfd-new' >with$part 2>with$part.err </dev/null &
	eval "with$part=\$!"
done
wait "$with1" || found=$?
with1=
check "a run with packages goes well" same "0 " "$found $(grep -v 'packages: \|waiting for another' with1.err)"
check "the guest has the packages" same "Hello, world!
/usr/games/sl" "$(cat with1)"
found=0
wait "$with2" || found=$?
with2=
check "so has that of a run beside it" same "0 $(cat with1)" "$found $(cat with2)"
check "the toolbox does not" [ ! -e "$("$top/scripts/toolbox" path)/usr/bin/hello" ]
check "what the guest wrote is in no layer" same "" "$(find "$RKFD_CACHE"/with-*/ -name 'rkfd-new' 2>&1)"
found=0
"$top/scripts/vm" --no-build --with no-such-package-at-all -- true >stdout 2>stderr </dev/null || found=$?
check "a package that Debian does not have is refused" same "1 " "$found $(cat stdout)"
check "… by its name" holds "$(cat stderr)" '^error: --with no-such-package-at-all: Debian 13 .* no such package$'
found=0
"$top/scripts/vm" --no-build --with 'hello;rm' -- true >stdout 2>stderr </dev/null || found=$?
check "a name that is none is refused" holds "$found $(cat stderr)" '^1 error: --with hello;rm: that is no name'

# What belongs to the user and the machine must not be in the guest's reach. A file that says what no other file
# says is where a credential would be; the guest looks for it, in its root beneath all that it mounts itself.
mkdir "$home/.ssh" "$home/.cargo"
for file in .ssh/id_rsa .netrc .pypirc .cargo/credentials.toml .gitconfig; do
	echo "# $secret" >"$home/$file"
done
printf '#!/bin/sh\nsecret=%s\n' "$secret" >look
cat >>look <<'EOF'
project=$PWD
# Not everything in it is to be listed: the programs, and what is built, are large and known.
mkdir /tmp/root
mount --bind / /tmp/root && cd /tmp/root || exit 1
echo "top: $(ls -A | tr '\n' ' ')"
for dir in dev media mnt proc srv sys; do [ -z "$(ls -A $dir)" ] || echo "in $dir: $(ls -A $dir)"; done
find . \( -path ./usr -o -path ./opt -o -path ./etc -o -path ".$RKFD_TOP" -o -path ".$RKFD_OUT" \) -prune \
	-o ! -type d ! -type l -printf 'file: %p\n'
ls -d etc/*shadow* etc/apt etc/ssh etc/resolv.conf etc/ssl/private etc/sudoers* 2>/dev/null
# Names of what the user and the machine have, beneath the guest's own mounts or not.
for path in "$@"; do
	[ ! -e "$path" ] && [ ! -e ".$path" ] || echo "there is $path"
done
[ -z "$(ls -A ".$RKFD_TOP/.git" 2>/dev/null)" ] || [ ! -s ".$RKFD_TOP/.git" ] || echo 'git knows something'
grep -rls "$secret" etc /proc/[0-9]*/environ
[ -x "$RKFD_TOP/scripts/vm" ] && [ -x "$RKFD_OUT/bin/rkfdctl" ] || echo 'the checkout or what is built is not there'
touch "$RKFD_TOP/scratch" || echo 'the checkout has no scratch layer'
# The host looks at QEMU meanwhile.
cd "$project" && mkdir -m 750 made && echo made >made/file && chmod 604 made/file && chown 12:34 made/file
: >ready
until [ -e go ]; do sleep 0.1; done
EOF
chmod +x look
CANARY=$secret HOME=$home CARGO_HOME=$home/.cargo "$top/scripts/vm" --no-build --gpus 0 --no-module --share "$project" -- \
	./look "$home" "$RKFD_CACHE" "$top/.git/HEAD" >stdout 2>stderr </dev/null &
run=$!

# rights: of the QEMU that has the project in its reach.
rights() {
	for process in /proc/[0-9]*; do
		# It may end this instant.
		{ tr '\0' ' ' <"$process/cmdline"; } 2>/dev/null | grep -q '^[^ ]*qemu-system-x86_64 ' || continue
		grep -qs "/${project##*/} /shares/share0 " "$process/mountinfo" || continue
		grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' "$process/status"
		ls "$process/root"
		return
	done
	echo 'there is no such QEMU'
	return 1
}
until [ -e ready ] || ! kill -0 $run 2>/dev/null; do sleep 0.1; done
found=$(rights)
: >go
found_status=0
wait $run || found_status=$?
run=
check "the guest's command went well" same 0 $found_status
system=
for dir in bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys tmp usr var; do
	case $dir in lib32 | libx32 | lib64 | opt) [ -e "$("$top/scripts/toolbox" path)/$dir" ] || continue ;; esac
	system="$system$dir "
done
# Where the checkout and its products are may be a directory of its own.
reached=$(sed 's/^top: //;t;d' stdout | tr ' ' '\n' | grep -vx -e "$(echo "$top" | cut -d/ -f2)" -e "$(echo "${RKFD_OUT:-$top}" | cut -d/ -f2)")
wanted=$(echo "$system" | tr ' ' '\n' | grep -vx -e "$(echo "$top" | cut -d/ -f2)" -e "$(echo "${RKFD_OUT:-$top}" | cut -d/ -f2)")
check "the guest's root has a system's directories and those of the checkout" same "$wanted" "$reached"
check "no home, cache, credential, process or device of the host is in its reach" same "" "$(grep -v '^top: ' stdout)"
check "it complained of nothing" same "" "$(cat stderr)"
check "what it wrote into the checkout stays in the guest" [ ! -e "$top/scratch" ]
check "what it made in the share has the modes and the owner that it gave" same "750 0:0 604 12:34" \
	"$(stat -c '%a %u:%g' made made/file | tr '\n' ' ' | sed 's/ $//')"
check "QEMU can gain no rights" holds "$found" '^NoNewPrivs:.1$'
check "… filters its system calls" holds "$found" '^Seccomp:.2$'
check "… has no capability but for files" same "0000000000001b 0000000000001b" \
	"$(echo "$found" | sed -n 's/^Cap...:.*\(..............\)$/\1/p' | tr '\n' ' ' | sed 's/ $//')"
check "… and sees nothing else of the host" same "boot dev empty etc export proc run shares" \
	"$(echo "$found" | grep -v : | grep -vxE 'usr|s?bin|lib(32|64|x32)?|opt' | tr '\n' ' ' | sed 's/ $//')"

# Nor in the toolbox: the user's files, disks and other processes are not to be found there by any path, and passwords only by
# what downloads.
# Each form of what may be a secret in cargo's settings, of which cargo would not take all in one file.
cat >"$home/.cargo/config.toml" <<EOF
env.CANARY_DOTTED = "$secret"
[http]
proxy = "user:$secret@localhost:9"
[env]
CANARY_KEY = "$secret"
[env.CANARY_TABLE]
value = '$secret'
[registries]
canary = { index = "sparse+https://user:$secret@localhost/", token = "$secret" }
EOF
CANARY=$secret sleep 1000 &
other=$!
cat >search <<'EOF'
home=$1 secret=$2 other=$3
[ ! -e "$home" ] || echo "the home is there"
for process in /proc/[0-9]*; do
	[ ! -e "$process/root$home" ] || echo "the home is behind $process"
	! grep -qs "$secret" "$process/environ" || echo "$process tells its environment"
done
[ ! -e "/proc/$other" ] || echo "a process of the user is there"
# The root of the mount namespace is the toolbox' own: neither who enters the namespace again nor who leaves a chroot gets
# any further.
! nsenter --mount=/proc/self/ns/mnt test -e "$home" || echo "the home is at the root of the namespace"
perl -e 'mkdir "/tmp/in"; chroot "/tmp/in" or die; chdir ".." for 1 .. 99; chroot "."; print "the home is above\n" if -e shift' "$home"
for open in /proc/self/fd/*; do [ ! -d "$open" ] || echo "a directory is open: $(readlink "$open")"; done
# Devices: no disk, and none can be made; the node of the host keeps its mode.
find /dev -type b
! mknod /tmp/disk b 7 0 2>/dev/null || echo "it makes disks"
for node in null zero full random urandom tty; do [ -c /dev/$node ] || echo "there is no /dev/$node"; done
# A node that is the host's is a mount of its own, for reading only.
awk '$5 == "/dev" && / - devtmpfs / || $5 == "/dev/null" && $6 !~ /^ro/ { print "the mode of /dev/null can be changed" }' /proc/self/mountinfo
[ "$(stat -c '%t:%T %a' /dev/null)" = '1:3 666' ] || echo "/dev/null is another"
echo x >/dev/null && echo x >/dev/shm/x || echo "it cannot be written to"
perl -MPOSIX -e 'open my $new, "+<", "/dev/ptmx" or print "no terminal: $!\n"; print "no terminal there\n" unless -c "/dev/pts/0"'
# The cache, which is large, lies in some home as a rule.
for file in "$CARGO_HOME"/*.toml /tmp/* /tmp/.[!.]* /root/.* /home/*; do
	[ ! -f "$file" ] || ! grep -q "$secret" "$file" || echo "${file##*/}"
done
! grep -rqs "$secret" /etc/apt || echo "it stays in the toolbox"
! apt-config dump | grep -q "$secret" || echo "apt has it"
! env | grep -q "$secret" || echo "the environment has it"
grep -c -e 'localhost:9"' -e sparse "$CARGO_HOME/config.toml"
EOF
# apt's settings are of the machine: only root can show others in their place.
apt= apt_settings=
if [ "$(id -u)" = 0 ] && [ -d /etc/apt/apt.conf.d ]; then
	apt=$project/apt
	mkdir "$apt" && echo "Acquire::http::Proxy \"http://user:$secret@localhost:9/\";" >"$apt/99proxy" || exit 1
	apt_settings=".apt.conf
apt has it
"
fi
# in_toolbox: what the search finds, as the user with that home.
in_toolbox() {
	# shellcheck disable=SC2016
	CANARY=$secret HOME=$home CARGO_HOME=$home/.cargo http_proxy=http://user:$secret@localhost:9/ RKFD_BIND=$project \
		${apt:+unshare -m sh -c 'mount --bind "$1" /etc/apt/apt.conf.d && shift && exec "$@"' sh "$apt"} \
		"$top/scripts/toolbox" run -- sh ./search "$home" "$secret" "$other" 9<"$home" 7<"$home/.ssh"
}
# As an older toolbox has it.
canary=$("$top/scripts/toolbox" path)/etc/apt/apt.conf.d/99rkfd-canary
echo "# $secret" >"$canary" || exit 1
check "in the toolbox no home, credential, disk or process of the user is in reach, and cargo has its settings" same 2 "$(in_toolbox)"
check "… but what downloads has the passwords" same "config.toml
credentials.toml
${apt_settings}the environment has it
2" "$(RKFD_FETCH=1 in_toolbox | grep -v '^/proc/.* tells its environment$')"
kill $other
other=

# Nor does it see what git keeps: a check-out by a CI job has a password there. Checkouts of their own, since what is in the
# real one is the user's.
mkdir -p directory/.git file || exit 1
printf '[http]\n\textraheader = %s\n' "$secret" | tee file/.git >directory/.git/config
for kind in directory file; do
	cp -r "$top/scripts" $kind/ || exit 1
	found=$(cd $kind && scripts/toolbox run -- sh -c 'ls scripts/toolbox; grep -rl "$1" .; [ $? != 1 ] || echo nothing' sh "$secret" 2>&1)
	check "in the toolbox a checkout whose .git is a $kind has nothing of it" same "scripts/toolbox
nothing" "$found"
	check "… and outside it is what it was" grep -qr "$secret" $kind/.git
done

# With TOOLBOX=none the runner is where the user is, and QEMU's root is made from the machine's own: the program that makes it
# runs here as well, unless the machine's C library is older.
jail=${RKFD_OUT:-$top/build}/bin/rkfd-jail
runs_here() { "$jail" 2>&1 | grep -q '^rkfd-jail:'; }
reason="what is built does not run outside of the toolbox"
if runs_here; then
	mkdir base sockets && : >image
	mine=$(mktemp "${HOME:-/root}/.rkfd-canary-XXXXXX") || exit 1
	found=$("$jail" "{\"base\":\"$project/base\",\"exports\":[\"$top\"],\"hidden\":[\"$top/.git\"],\"shares\":[],
		\"kernel\":\"$project/image\",\"sockets\":\"$project/sockets\",\"devices\":[],\"toolbox\":false,\"cards\":false,\"program\":\"/bin/sh\"}" -c '
		ls -d "/export$1/scripts" && find / \( -path /proc -o -path "*/usr" -o -path "/export$1" \) -prune -o \( -name "$2" -o -name credentials.toml -o -name .ssh \) -print
		find /export/home /export/root /export/proc /export/sys /export/dev -mindepth 1 -maxdepth 1 ! -path "/export/$(echo "$1" | cut -d/ -f2)*"
	' sh "$top" "${mine##*/}" 2>&1)
	check "without a toolbox the checkout is in reach, and no home or credential of the machine" same "/export$top/scripts" "$found"
	rm -f "$mine"
	mine=
else
	skip "without a toolbox no home or credential of the machine is in reach" "$reason"
fi

# Who is not root makes QEMU's root in a user namespace; root becomes a user for it.
user=12345
as_user() { setpriv --reuid $user --regid $user --clear-groups -- "$@"; }
if [ "$(id -u)" != 0 ]; then
	user=$(id -u)
	as_user() { "$@"; }
fi
# Some hosts give such a namespace no rights (AppArmor), which is to refuse it.
refusal=$(as_user unshare --user --map-root-user --mount true 2>&1) || reason="this host refuses user namespaces to users ($refusal)"
if runs_here && as_user unshare --user --map-root-user --mount true 2>/dev/null; then
	# What is built may lie in a directory that is root's alone, and so does the project.
	place=$(mktemp -d) || exit 1
	mkdir "$place/base" "$place/sockets" "$place/checkout" "$place/share" && : >"$place/image" && cp "$jail" "$place/jail" || exit 1
	echo source >"$place/checkout/file"
	[ "$(id -u)" != 0 ] || chown -R $user:$user "$place"
	found=0
	(cd / && as_user "$place/jail" "{\"base\":\"$place/base\",\"exports\":[\"$place/checkout\"],\"hidden\":[],
		\"shares\":[{\"tag\":\"share0\",\"path\":\"$place/share\"}],\"kernel\":\"$place/image\",\"sockets\":\"$place/sockets\",
		\"devices\":[],\"toolbox\":false,\"cards\":false,\"program\":\"/bin/sh\"}" -c '
		grep -E "^(CapPrm|CapEff|CapBnd|NoNewPrivs):" /proc/1/status
		echo /proc/[0-9]*
		cat "/export$1/file"
		echo made >/shares/share0/made || echo "the share is not writable"
		for path in /export/tmp /export/usr "/export$1"; do ! (: >"$path/new") 2>/dev/null || echo "$path is writable"; done
		! mount -t tmpfs none /proc 2>/dev/null || echo "it mounts"
	' sh "$place/checkout") >stdout 2>stderr </dev/null || found=$?
	check "a user needs no root: the program runs, without any right, and sees its own processes" same "0 CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
NoNewPrivs:	1
/proc/1
source" "$found $(cat stdout stderr)"
	check "… and what it made in the share is the user's" same "$user made" "$(stat -c %u "$place/share/made") $(cat "$place/share/made")"
else
	skip "a user needs no root" "$reason"
fi

# Nor does scripts/vm as a whole, with a toolbox, a cache and a checkout that another user has made and that are for reading. Where
# these are may be root's alone, so they show elsewhere, as does the kernel, whose place in the cache depends on the path of that.
command="a user runs a program on a GPU"
if [ "$(id -u)" != 0 ]; then
	skip "$command" "this is a user, and all of the above was so"
elif [ -z "$place" ]; then
	skip "$command" "$reason"
else
	mkdir "$place/top" "$place/cache" "$place/kernel" "$place/out" "$place/out/bin" "$place/out/module" || exit 1
	chown $user:$user "$place/out" && chmod 755 "$place" || exit 1
	found=0
	# shellcheck disable=SC2016
	(cd / && unshare -m sh -euc '
		place=$1 user=$2 out=$4
		mount --bind "$3" "$place/top" && mount --bind "$5" "$place/cache" && mount --bind "$6" "$place/kernel"
		for name in bin module; do mount --bind "$out/$name" "$place/out/$name"; done
		exec setpriv --reuid "$user" --regid "$user" --clear-groups -- env HOME="$place" RKFD_CACHE="$place/cache" \
			RKFD_OUT="$place/out" KDIR="$place/kernel" "$place/top/scripts/vm" --no-build --share "$place/share" -- \
			sh -c "rocminfo | sed -n \"s/^ *Name: *\(gfx[0-9a-f]*\) *$/\1/p\"; echo guest >guest"
	' sh "$place" $user "$top" "${RKFD_OUT:-$top/build}" "$RKFD_CACHE" "$("$top/scripts/build" kernel base)") >stdout 2>stderr </dev/null || found=$?
	check "$command" same "0 gfx90a" "$found $(cat stdout)"
	# The module was built for a kernel by another name.
	check "… without a word" same "" "$(grep -v ' the sources are newer than ' stderr)"
	check "… and what the guest wrote is the user's" same "$user guest" "$(stat -c %u "$place/share/guest") $(cat "$place/share/guest")"
fi
done_testing
