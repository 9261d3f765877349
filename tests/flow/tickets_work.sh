#!/bin/bash
# Work under a ticket, and a ticket without work; and the calls of C.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 500 64 >/dev/null || fail "make-model"
start_daemon
expect 0 "$NPUD_BIN/tests/ticket-calls"

# What is under a ticket is refused when it is over, wherever it would have run; in every shell that has its name.
run=("$head" run "$work/m.safetensors" --random 1)
expect 0 "$hold" -- sh -c "echo \"\$NPU_TICKET\" >'$work/ticket'; \"\$@\"" sh "${run[@]}"
expect 75 env NPU_TICKET="$(cat "$work/ticket")" "${run[@]}"
says "ticket 5 is released" "take another"
expect 65 env NPU_TICKET=nonsense "${run[@]}"
says "NPU_TICKET is no ticket"
expect 0 "${run[@]}"
stop_daemon

# A hold that computes stays; one that does nothing is warned and let go.
printf '[ticket]\nidle_release = 3\ngrace = 1\n' >"$work/npud.conf"
start_daemon --config "$work/npud.conf"
expect 0 "$hold" -t 60s -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do "$@" || exit 9; sleep 0.5; done' sh "${run[@]}"
idle=$(unique_sleep 1)
status=0
timeout 60 "$hold" -t 60s -- sleep "$idle" 2>"$work/err" || status=$?
((status == 124)) || fail "an idle hold: exit $status: $(cat "$work/err")"
nothing_left "sleep $idle" || fail "the command of an idle hold goes on"
expect 0 "$npuctl" events
grep -q "warned" "$work/out" && grep -q "revoked.*idle_release" "$work/out" || fail "no warning, or no reason: $(cat "$work/out")"
stop_daemon
