#!/bin/bash
# Tickets are not granted for a device that has failed: those who wait are told why, and go on when it is well again.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
. "$(dirname "$0")/device.bash"

# Two canaries fail at once, which is a failure; the next, after a while, takes long to fail as well.
start_soft "error@1-2 hang@3" "recovery = 4" "launch_ms = 1500"
health_becomes failed
expect 75 "$hold" -n -- true
says "the device has failed" "npuctl status"
in_background "$hold" -- sh -c "'$npuctl' device --json >'$work/device.json'"
waiter=$!
until_true sh -c "'$npuctl' tickets -N | grep -q queued" || fail "it does not wait"
id=$("$npuctl" tickets -N | awk '{ print $1; exit }')
expect 0 "$npuctl" why "$id"
grep -q "the device has failed.*canary" "$work/out" || fail "why: $(cat "$work/out")"
wait "$waiter" || fail "the hold exits $?: $(cat "$work/bg.err")"
[ "$(json_field health <"$work/device.json")" = ok ] || fail "granted before it was well: $(cat "$work/device.json")"
stop_daemon

# One that fails under a hold is no reason to end it.
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
start_soft "error@2-99"
health_becomes ok
expect 0 "$hold" -- sh -c "'$head' run '$work/m.safetensors' --random 1 --rows 3 && '$head' run '$work/m.safetensors' --random 1 --rows 3"
health_becomes failed
expect 75 "$hold" -n -- true
says "the device has failed"
stop_daemon
