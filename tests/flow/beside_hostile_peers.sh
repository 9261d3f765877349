#!/bin/bash
# Beside every kind of hostile client a well-behaved one gets its answers, without an error.
. "$(dirname "$0")/lib.bash"
start_daemon
sleep 0.3
timeout 300 python3 "$here/beside.py" "$npud" "$daemon_pid" || fail "beside.py"
daemon_lives "hostile peers"
grep -q ' cut-off: ' "$log" || fail "a client that never reads is not cut off"
twice=$(sed -n 's/.* \(session [0-9]*\): cut-off: .*/\1/p' "$log" | sort | uniq -d)
[ -z "$twice" ] || fail "cut off twice: $twice"
stop_daemon
