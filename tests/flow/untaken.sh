#!/bin/bash
# Results that a client asks for and does not read take no more memory than a user may have.
. "$(dirname "$0")/lib.bash"
limit=$((80 << 20))
printf '[limits]\nuser_replies = %d\n' $limit >"$work/npud.conf"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 100000 64 || fail "make-model"
start_daemon --config "$work/npud.conf"
timeout 120 python3 "$here/untaken.py" "$work/m.safetensors" "$limit" "$daemon_pid" || fail "untaken.py"
daemon_lives "results that nobody takes"
stop_daemon
