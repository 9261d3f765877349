#!/bin/bash
# Projection weights: each layer its own, fused ones side by side, experts never kept.
. "$(dirname "$0")/lib.bash"
start_daemon
PYTHONPATH=$NPUD_SOURCE_DIR/client/python python3 "$here/weights.py" "$work" || fail "see above"
grep -q 'layer 1 role 0: 0 tile(s) from the image store, 1 packed' "$log" || fail "the log does not say what was loaded"
"$NPUD_BIN/tests/weights-calls" "$work/one.safetensors" || fail "libnpu"
# The same, uploaded: no side socket is beside this name of the socket.
mkdir "$work/elsewhere"
ln -s "$socket" "$work/elsewhere/npud.sock"
NPUD_SOCKET=$work/elsewhere/npud.sock "$NPUD_BIN/tests/weights-calls" "$work/one.safetensors" || fail "libnpu, uploading"
daemon_lives "weights"
stop_daemon
