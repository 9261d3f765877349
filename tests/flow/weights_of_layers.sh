#!/bin/bash
# Projection weights: each layer its own, fused ones side by side, experts never kept.
. "$(dirname "$0")/lib.bash"
start_daemon
PYTHONPATH=$NPUD_SOURCE_DIR/client/python python3 "$here/weights.py" "$work" || fail "see above"
grep -q 'layer 1 role 0: 0 tile(s) from the image store, 1 packed' "$log" || fail "the log does not say what was loaded"
daemon_lives "weights"
stop_daemon
