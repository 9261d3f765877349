#!/bin/bash
# A head that was packed once comes from the image store after every restart, with the same logits; what is doubtful is
# refused, said, packed afresh and a hit again.
. "$(dirname "$0")/lib.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 200 || fail "make-model"
ask() { "$head" run "$work/m.safetensors" --random 7 --rows 3 --tile 1024 --logits "$1" || fail "run"; }

# The last line of the log on an open, once it is there.
opened() {
	local i line
	for ((i = 0; i < 100; i++)); do
		line=$(grep -F ' lm head: ' "$log" | tail -n 1)
		[[ $line != *"$1"* ]] || return 0
		sleep 0.1
	done
	fail "the log has no '$1' but: $line"
}

start_daemon
NPUD_STORE=0 ask "$work/off"
opened "0 tile(s) from the image store, 3 packed (0 written), 0 refused; kd=256 T=1024 blocked"
stop_daemon
start_daemon
ask "$work/cold"
opened "0 tile(s) from the image store, 3 packed (3 written), 0 refused"
for i in 1 2 3; do
	stop_daemon
	: >"$log"
	start_daemon
	ask "$work/warm"
	opened "3 tile(s) from the image store, 0 packed (0 written), 0 refused"
	cmp "$work/off" "$work/cold" && cmp "$work/off" "$work/warm" || fail "other logits"
done
# Resident still: attached, and the sample is of the file that is named now.
ask "$work/warm"
opened "0 tile(s) from the image store, 0 packed (0 written), 0 refused"
cmp "$work/off" "$work/warm" || fail "other logits"
stop_daemon

# Who opens the same head at the same moment shares one packing and one writing.
rm -rf "$work/cache/images"
"$NPUD_BIN/tests/make-model" "$work/large.safetensors" 20000 1000 || fail "make-model"
start_daemon
for i in 1 2 3 4; do
	"$head" open "$work/large.safetensors" --tile 5120 --json >"$work/at-once-$i" &
	children+=($!)
done
for pid in "${children[@]}"; do
	wait "$pid" || fail "one of four at once failed"
done
children=()
[ "$(cat "$work"/at-once-* | jq -s 'map(.packed) | add')" = 4 ] || fail "packed more than once: $(cat "$work"/at-once-*)"
[ "$(cat "$work"/at-once-* | jq -s 'map(.written) | add')" = 4 ] || fail "written more than once: $(cat "$work"/at-once-*)"
"$npuctl" store --json | jq -e '.written == 4 and .misses == 4 and (.heads | length) == 1' >/dev/null || fail "$("$npuctl" store)"
stop_daemon
