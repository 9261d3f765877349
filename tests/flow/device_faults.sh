#!/bin/bash
# Whatever a device does, the answer is right, says where it was made, and the device is well again when it can be.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
rows=("$work/m.safetensors" --random 5 --rows 3)
run() { run_to "$work/logits" "${rows[@]}" "$@"; }

kernel_set 16,64,128,1 16,512,1024,1

# The first launch is the canary of the start, the second that of the head's context; the head has three tiles.
start_device ""
health_becomes ok
run_once "$work/host" "${rows[@]}" --path host
run_once "$work/logits" "${rows[@]}" --path device
[ "$(device_field launches)" = 5 ] || fail "the head is not 3 launches: $(device_told)"
stop_daemon

faulty() { # FAULT COUNTER WHY NAMED [LINE...]
	local fault=$1 counter=$2 why=$3 named=$4
	shift 4
	start_device "$fault" "recovery = 0" "$@"
	health_becomes ok
	run_once "$work/logits" "${rows[@]}"
	same_bits "$work/host" "$work/logits" "$fault"
	[[ $("$npuctl" events) == *"runs on the host for now, with the same bits: $why"* ]] ||
		fail "$fault: $("$npuctl" events)"
	[ "$(device_field "$counter")" = 1 ] || fail "$fault is not counted as $counter: $(device_told)"
	health_becomes ok
	said=$("$npuctl" status)
	says "ok" "1 at fault" "$named" " ago: "
	run --path device
	same_bits "$work/host" "$work/logits" "after $fault"
	[ "$(run_field path)" = device ] || fail "after $fault the device is not used"
	[ "$(device_field recoveries)" = 1 ] || fail "$fault: not one recovery: $(device_told)"
	[ "$(events_with 'runs on the host for now')" = 1 ] || fail "$fault: $("$npuctl" events)"
	stop_daemon
}
faulty timeout@4 timeouts "the driver ended a launch" "the driver ended a launch as timed out"
faulty error@4 errors "a launch failed" "the driver says that a launch failed"
for fault in stale garbage swap flip; do
	faulty $fault@4 mismatches "a launch was reported as completed, and was wrong" "success over a wrong result"
done

# A launch that does not end: whoever has rows waits for one deadline, nobody else does, and what the device may still write
# to is kept. XRT 2.13 has one context a kernel, so that nothing works there until the driver's watchdog has ended it.
start_device "hang@4 watchdog=8000" "recovery = 0" "launch_ms = 5000"
health_becomes ok
run_once "$work/logits" "${rows[@]}" &
hung=$!
children+=($hung)
for ((i = 0; i < 200; i++)); do
	(($(device_field launches) >= 4)) && break
	sleep 0.05
done
timeout 5 "$npuctl" ping >/dev/null || fail "no ping while a launch hangs"
kill -0 $hung 2>/dev/null || fail "the launch did not hang, or a ping waited for it"
# Why the rows of others wait is told.
until "$npuctl" status | grep -q "^pass  *has taken [1-9].* wait for its end"; do
	kill -0 $hung 2>/dev/null || fail "status does not tell of a pass that takes long: $("$npuctl" status)"
	sleep 0.05
done
run_once "$work/other" "${rows[@]}" --path host
[ "$(device_field hangs)" = 1 ] || fail "another client waits longer than a deadline: $(device_told)"
same_bits "$work/host" "$work/other" "beside a hang"
wait $hung || fail "the run whose launch hangs"
same_bits "$work/host" "$work/logits" hang
[ "$(device_field hangs)" = 1 ] && (($(device_field parked) >= 1)) || fail "a hang: $(device_told)"
health_becomes ok 60
said=$("$npuctl" status)
says "did not end by its deadline" "1 at fault"
run --path device
same_bits "$work/host" "$work/logits" "after a hang"
stop_daemon

# No context: others have them all, for a while.
start_device "no-context=7000@1"
health_becomes degraded
[[ $("$npuctl" status --json | json_field reason) == *"no hardware context is free"* ]] || fail "$("$npuctl" status)"
for i in 1 2 3; do
	run
	same_bits "$work/host" "$work/logits" "without a context"
	[ "$(run_field path) $(run_field path_why)" = "host the device is not well" ] || fail "$(cat "$work/run.json")"
done
[ "$(events_with 'runs on the host for now')" = 1 ] || fail "the fallback is not said once: $("$npuctl" events)"
expect 69 "$head" run "$work/m.safetensors" --random 5 --path device
says "path=device cannot be had" "not well"
health_becomes ok 40
run --path device
same_bits "$work/host" "$work/logits" "when there is a context"
stop_daemon
