#!/bin/bash
# Who uses the NPU is seen, and the daemon can be killed, while some program has a file open where nothing answers any more.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
[ "$(id -u)" = 0 ] || skip "only root can mount FUSE file systems"
mkdir "$work/dead" "$work/dev"
: >"$work/dev/model" # the name that the file system has
ln -s dev/model "$work/node"
printf '[device]\nnode = %s\n' "$work/node" >"$work/npud.conf"
PYTHONDONTWRITEBYTECODE=1 python3 "$here/fusefs.py" "$work/dead" 0 "$work/npud.conf" >"$work/said" 2>&1 &
disk=$!
trap 'status=$?; kill -KILL "$disk" 2>/dev/null; umount -l "$work/dead" 2>/dev/null; (exit $status); cleanup' EXIT
until_true grep -qE 'mounted|no FUSE' "$work/said" || fail "no file system: $(cat "$work/said")"
! grep 'no FUSE' "$work/said" || skip "there is no FUSE here"
sleep 1000 <"$work/dead/model" &
children+=("$!")
sleep 1000 <"$work/dev/model" &
children+=("$!")
neighbour=$!
until_true sh -c "[ '$work/dev/model' -ef /proc/$neighbour/fd/0 ]" || fail "no neighbour"
until_true sh -c "readlink /proc/${children[0]}/fd/0 | grep -q dead/model" || fail "nobody has a file open there"
kill -USR1 "$disk"
until_true grep -q stopped "$work/said" || fail "it does not stop"

start_daemon --config "$work/npud.conf"
expect 0 timeout 10 "$npuctl" who
grep -q "pid $neighbour of uid 0 (sleep)" "$work/out" || fail "who: $(cat "$work/out")"
[ "$(wc -l <"$work/out")" = 1 ] || fail "who names one too many: $(cat "$work/out")"
stop_daemon
