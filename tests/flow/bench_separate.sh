#!/bin/bash
# npu-bench clients --separate needs no daemon: every process packs and runs a head of its own.
. "$(dirname "$0")/lib.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 256 1 >/dev/null || fail "make-model"
for want in argmax logits; do
	"$NPUD_BIN/client/npu-bench" clients "$work/m.safetensors" --separate --clients 1,2 --seconds 0.2 --want $want \
		--json >"$work/said" || fail "$want: status $?"
	python3 - "$work/said" <<'EOC' || fail "$(cat "$work/said")"
import json, sys
said = json.load(open(sys.argv[1]))
assert said["separate"] and [r["clients"] for r in said["rows"]] == [1, 2], said
assert all(r["rows_per_second"] > 0 for r in said["rows"]), said
EOC
done
status=0
"$NPUD_BIN/client/npu-bench" clients "$work/none" --separate --seconds 0.1 2>"$work/said" || status=$?
[ $status != 0 ] && grep -q none "$work/said" || fail "a model that is not there: status $status: $(cat "$work/said")"
for threads in 0 17 1.5 2x nan ''; do
	expect 64 "$NPUD_BIN/client/npu-bench" clients "$work/m.safetensors" --separate --threads "$threads"
	grep -q -- "--threads $threads: give a whole number" "$work/err" || fail "--threads '$threads': $(cat "$work/err")"
done
