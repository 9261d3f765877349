#!/bin/bash
# Eight clients, heads in both layouts and projection weights, one launch of a hundred at fault: every answer has the
# host's bits, says where it was made, and the device is well again afterwards.
# usage: [SECONDS]
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 1500 256 >/dev/null || fail "make-model"
# Each a prime, so that they meet as seldom as can be; together 1 of 100. What hangs is parked until the watchdog ends it.
start_soft "timeout/701 error/709 stale/719 garbage/727 swap/733 flip/739 hang/743 watchdog=800" \
	"launch_ms = 300" "recovery = 0"
health_becomes ok
PYTHONPATH=$NPUD_SOURCE_DIR/client/python python3 "$here/device_lies_to_a_crowd.py" "$work/m.safetensors" "${1:-40}" ||
	fail "a crowd on a device at fault"
daemon_lives "a crowd"
health_becomes ok
# A launch of a hundred still goes wrong.
for ((i = 0; i < 50; i++)); do
	"$head" run "$work/m.safetensors" --random 5 --path device >/dev/null 2>"$work/err" && break
	health_becomes ok
done
((i < 50)) || fail "afterwards the device is not used: $(cat "$work/err"; device_told)"
stop_daemon
