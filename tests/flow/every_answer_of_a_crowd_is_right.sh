#!/bin/bash
# 16 processes, three heads, rows at random, some cancelled, some processes killed: every answer has the oracle's bits,
# and a row's are the same alone, in any batch, cut from 128, and beside rows that are not numbers.
# NPUD_TEST_SEED: another draw than the usual one.
. "$(dirname "$0")/lib.bash"
tools=$data/../tools
[ -r "$tools/oracle.py" ] || skip "$tools/oracle.py is not there; set NPUD_TEST_DATA to the folder beside it"
for i in 1 2 3; do
	"$NPUD_BIN/tests/make-model" "$work/$i.safetensors" $((200 * i)) 192 $i >/dev/null || fail "make-model"
done
start_daemon
PYTHONPATH=$NPUD_SOURCE_DIR/client/python python3 "$here/crowd.py" "$tools" "$work" 8 "${NPUD_TEST_SEED:-1}" ||
	fail "seed ${NPUD_TEST_SEED:-1}"
daemon_lives "a crowd"
stop_daemon
