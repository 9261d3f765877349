#!/bin/bash
# A kernel set decides what goes to the device; what it does not cover, and what its memory does not hold, is the host's
# and said so. An NPU that is not there, or another's, leaves everything to the host.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
"$NPUD_BIN/tests/make-model" "$work/deep.safetensors" 500 1024 >/dev/null || fail "make-model"
mkdir "$work/set" && "$NPUD_BIN/tests/mkset" "$work/set" 16,512,1024,0 16,512,1024,1 || fail "mkset"
run() { run_to "$work/logits" "$1" --random 5 --rows 3 "${@:2}"; }
geometry() { python3 -c 'import json, sys; g = json.load(open(sys.argv[1]))["geometry"]; print(g["kpad"], g["tile"], g["layout"])' "$work/run.json"; }

start_soft "heap=8000000" "kernels = $work/set"
health_becomes ok
[[ $("$npuctl" device) == *"512  1024  blocked"* ]] || fail "the set is not listed: $(device_told)"
run "$work/m.safetensors" --path host
cp "$work/logits" "$work/host"
run "$work/m.safetensors" --path device --layout row-major
same_bits "$work/host" "$work/logits" row-major
[ "$(geometry)" = "512 1024 row-major" ] || fail "the geometry is $(geometry)"
run "$work/m.safetensors" --path device --layout blocked
same_bits "$work/host" "$work/logits" blocked
run "$work/m.safetensors" --tile 128
same_bits "$work/host" "$work/logits" "a tile of one's own"
[ "$(run_field path) $(geometry)" = "host 512 128 blocked" ] || fail "a tile of one's own: $(run_field path) $(geometry)"
run "$work/deep.safetensors"
[ "$(run_field path)" = host ] || fail "a head without a kernel ran on $(run_field path)"
run "$work/deep.safetensors"
[ "$(events_with 'no kernel of the set covers 500 x 1024')" = 1 ] || fail "it is not said once: $("$npuctl" events)"
stop_daemon

# Three tiles of half a megabyte and the buffers of launches do not fit.
start_soft "heap=1500000" "kernels = $work/set"
health_becomes ok
run "$work/m.safetensors"
same_bits "$work/host" "$work/logits" "no memory on the device"
[ "$(run_field path)" = host ] || fail "ran on $(run_field path) without memory"
[ "$(events_with 'the device has no memory for tile')" = 1 ] || fail "$("$npuctl" events)"
daemon_lives
stop_daemon

absent() { # WORD LINE...
	local word=$1
	shift
	printf '%s\n' '[device]' "$@" >"$work/soft.conf"
	start_daemon --config "$work/soft.conf"
	[ "$(device_field health)" = absent ] || fail "$*: health $(device_field health)"
	[[ $("$npuctl" status) == *"$word"* ]] || fail "$*: '$word' is not in: $("$npuctl" status)"
	run "$work/m.safetensors"
	same_bits "$work/host" "$work/logits" "$*"
	stop_daemon
}
absent "no kernel set" "kind = auto"
absent "kernels.json cannot be read" "kind = soft" "kernels = $work"
absent "no XRT module" "kind = xrt" "kernels = $work/set" "module = $work/missing.so"

# Another daemon has the NPU.
touch "$work/accel0"
python3 -c 'import fcntl, sys, time
f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print("locked", flush=True); time.sleep(60)' "$work/accel0" >"$work/locked" &
holder=$!
children+=($holder)
for ((i = 0; i < 100; i++)); do
	[ -s "$work/locked" ] && break
	sleep 0.05
done
absent "is in use by process $holder (python3)" "kind = xrt" "kernels = $work/set" "node = $work/accel0"

for bad in "kind = npu" "settings = sometimes" "kernels = here" "launch_ms = 0"; do
	printf '%s\n' '[device]' 'kind = soft' "$bad" >"$work/bad.conf"
	expect 78 "$npud" --config "$work/bad.conf" --check-config
done
