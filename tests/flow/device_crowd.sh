#!/bin/bash
# Four client processes on one device: every answer has the host's bits, with launches at fault and without; and ten
# thousand launches leave neither memory nor descriptors behind.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
export PYTHONPATH=$NPUD_SOURCE_DIR/client/python
# What AddressSanitizer keeps back of freed memory is not memory that is lost.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:quarantine_size_mb=0:thread_local_quarantine_size_kb=0
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 200 64 >/dev/null || fail "make-model"
kernel_set 16,64,128,1
crowd() { timeout 300 python3 "$here/device_crowd.py" "$work/m.safetensors" "$@" || fail "four clients: $(device_told)"; }
memory() { awk '{ print $2 * 4 }' "/proc/$daemon_pid/statm"; } # KiB
at_least() { (($(device_field launches) >= $1)) || fail "not $1 launches: $(device_told)"; }

start_device "timeout/53 error/47 stale/43 garbage/41 swap/37 flip/31" "recovery = 0"
health_becomes ok
crowd 4 200
for counter in timeouts errors mismatches; do
	(($(device_field $counter) > 0)) || fail "no $counter: $(device_told)"
done
health_becomes ok
stop_daemon

start_device ""
health_becomes ok
crowd 4 400
at_least 1000
memory=$(memory)
descriptors=$(daemon_descriptors)
crowd 4 2600
at_least 10000
descriptors_back_to "$descriptors" || fail "$descriptors descriptors, and then $(daemon_descriptors)"
(($(memory) - memory < 3000)) || fail "$memory KiB, and then $(memory)"
[ "$(device_field errors) $(device_field mismatches) $(device_field timeouts)" = "0 0 0" ] || fail "$(device_told)"
stop_daemon
