#!/bin/bash
# What npud is started in is not always what it hopes for: closed descriptors, few files, small files.
. "$(dirname "$0")/lib.bash"
model=$work/m.safetensors
"$NPUD_BIN/tests/make-model" "$model" 3000 256 || fail "make-model"
logits() { "$head" run "$model" --random 1 --logits "$1" || fail "no logits: $1"; }

start_daemon
logits "$work/usual"
stop_daemon

# Nothing of the daemon's own becomes its stdin, stdout or stderr.
"$npud" --socket "$socket" --cache-dir "$work/cache" --state-dir "$work/state" <&- >&- 2>&- &
daemon_pid=$!
for ((i = 0; i < 100; i++)); do
	timeout 5 "$npuctl" ping >/dev/null 2>&1 && break
	sleep 0.1
done
for fd in 0 1 2; do
	[[ $(readlink "/proc/$daemon_pid/fd/$fd") == /dev/null ]] ||
		fail "descriptor $fd is $(readlink "/proc/$daemon_pid/fd/$fd")"
done
logits "$work/closed"
cmp "$work/usual" "$work/closed" || fail "other logits with closed descriptors"
stop_daemon

few() {
	ulimit -n 20
	exec "$npud" --socket "$socket" --cache-dir "$work/cache" --state-dir "$work/state"
}
expect 70 bash -c "$(declare -f few); npud='$npud' socket='$socket' work='$work'; few"
says "only 20 files may be open" "ulimit -Hn"

# The store's file of 3000 x 256 does not fit; the head is run all the same.
rm -rf "$work/cache"
(
	ulimit -f 400 # KiB
	exec "$npud" --socket "$socket" --cache-dir "$work/cache" --state-dir "$work/state"
) >/dev/null 2>&1 </dev/null &
daemon_pid=$!
for ((i = 0; i < 100; i++)); do
	timeout 5 "$npuctl" ping >/dev/null 2>&1 && break
	sleep 0.1
done
logits "$work/small"
cmp "$work/usual" "$work/small" || fail "other logits where the store cannot grow"
daemon_lives "a limit of file sizes"
(
	ulimit -f 4
	"$head" run "$model" --random 1 --logits "$work/cut" 2>"$work/err"
)
status=$?
((status == 74)) || fail "logits beyond the limit of file sizes: exit $status: $(<"$work/err")"
[[ $(echo "$work"/cut*) == "$work/cut*" ]] || fail "left: $(echo "$work"/cut*)"
stop_daemon
