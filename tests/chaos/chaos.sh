#!/bin/bash
# chaos.sh [SECONDS]: the daemon, its clients and holders are killed at random moments, on a device at fault and with a store
# that fills up: no wrong bit, never two holders, nothing of the dead left, and everything comes back.
# NPUD_TEST_SEED: another course than the usual one (which is not the same twice either: time has its part in it).
. "$NPUD_SOURCE_DIR/tests/flow/lib.bash"
for i in 0 1 2 3; do
	"$NPUD_BIN/tests/make-model" "$work/$i.safetensors" $((2000 + 500 * i)) 256 $((i + 1)) >/dev/null || fail "make-model"
done
mkdir "$work/disk"
if mount -t tmpfs -o size=8m none "$work/disk" 2>/dev/null; then
	trap 'status=$?; umount -l "$work/disk"; (exit $status); cleanup' EXIT
fi
cd "$work" || exit 1
PYTHONPATH=$NPUD_SOURCE_DIR/client/python timeout 300 python3 "$NPUD_SOURCE_DIR/tests/chaos/chaos.py" "$NPUD_BIN" "$work" \
	"$work/disk/images" "${1:-25}" "${NPUD_TEST_SEED:-1}" || fail "chaos"
! grep -E 'ERROR: |runtime error:' "$log" || fail "the log has sanitizer reports"
