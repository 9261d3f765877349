#!/bin/bash
# A full disk, a read-only directory, none, another daemon's, a head larger than the budget: npud says so and goes on without the
# store, with the right logits.
. "$(dirname "$0")/lib.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 6000 1000 1 || fail "make-model"
"$NPUD_BIN/tests/make-model" "$work/n.safetensors" 6000 1000 2 || fail "make-model"
ask() { "$head" run "$work/$1.safetensors" --random 7 --tile 1024 --logits "$2" || fail "run"; }
stored() { "$head" open "$work/$1.safetensors" --tile 1024 --json; }
# begin STORE-LINES: a daemon with this [store] begins.
begin() {
	: >"$log"
	printf '[resident]\nkeep = 0\n[store]\n%s\n' "$1" >"$work/npud.conf"
	start_daemon --config "$work/npud.conf"
}
# answers WRITTEN: both heads are right, and so many tiles of each are written.
answers() {
	local m said
	for m in m n; do
		ask $m "$work/now"
		cmp "$work/right_$m" "$work/now" || fail "$m: other logits"
		said=$(stored $m) || fail "open"
		jq -e ".written == $1" <<<"$said" >/dev/null || fail "$m: not $1 tiles written: $said"
	done
	daemon_lives
}
logged() { [ "$(grep -c "$1" "$log")" = "$2" ] || fail "the log has not $2 times '$1'"; }

begin 'enabled = no'
ask m "$work/right_m"
ask n "$work/right_n"
logged 'there is none' 0
stop_daemon

begin "path = /dev/null/images"
logged 'there is none, heads are packed every time: .*/dev/null' 1
answers 0
"$npuctl" store | grep -q '/dev/null' || fail "npuctl store does not say why"
stop_daemon

begin $'max_bytes = 1048576\nmin_free_bytes = 0'
answers 0
logged 'not written: m.safetensors: the packed head has .* max_bytes is 1048576' 1
stop_daemon

begin "path = $work/one"
"$npud" --foreground --socket "$work/other.sock" --cache-dir "$work/c2" --state-dir "$work/s2" --config "$work/npud.conf" \
	>"$work/second" 2>&1 && fail "two daemons have one store"
grep -q "$daemon_pid" "$work/second" || fail "the second does not name the first: $(cat "$work/second")"
daemon_lives "a second one"
stop_daemon

mkdir "$work/small"
mount -t tmpfs -o size=4m none "$work/small" 2>/dev/null || skip "the rest needs to mount a tmpfs"
unmount() { umount -l "$work/small" 2>/dev/null; }
trap 'status=$?; unmount; (exit $status); cleanup' EXIT
begin $'min_free_bytes = 0\npath = '"$work/small/images"
answers 0
logged 'not written: .*free some space' 1
stop_daemon
begin "path = $work/small/images"
answers 0
logged 'not written: .*min_free_bytes' 1
stop_daemon
[ "$(stat -c %s "$work/small/images/db/data.mdb")" -lt $((4 << 20)) ] || fail "it grew below the floor"

# With room again it is a store like any other, and without a right to write it is none.
mount -o remount,size=64m "$work/small" || fail "remount"
begin $'min_free_bytes = 0\npath = '"$work/small/images"
said=$(stored m)
jq -e '.packed > 0 and .written == .packed and .packed + .from_store == 6' <<<"$said" >/dev/null || fail "there is room: $said"
said=$(stored m)
jq -e '.from_store == 6' <<<"$said" >/dev/null || fail "not from the store: $said"
stop_daemon
mount -o remount,ro "$work/small" || fail "remount"
begin $'min_free_bytes = 0\npath = '"$work/small/images"
logged 'there is none, heads are packed every time' 1
answers 0
stop_daemon
