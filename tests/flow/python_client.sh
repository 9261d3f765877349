#!/bin/bash
# The Python client has npu-head's logits to the bit, cancels, and finds a daemon that restarts.
. "$(dirname "$0")/lib.bash"
export PYTHONPATH=$NPUD_SOURCE_DIR/client/python PYTHONDONTWRITEBYTECODE=1
start_daemon
model=$work/model.safetensors
"$NPUD_BIN/tests/make-model" "$model" 1000 96 || fail "make-model"
"$NPUD_BIN/tests/make-model" "$work/big.safetensors" 32000 1024 || fail "make-model"

# The example and npu-head show the same words for a row of ones.
activations() { # ROWS EXPRESSION FILE
	python3 -c 'import array, random, sys
random.seed(1)
x = [eval(sys.argv[2]) for _ in range(96 * int(sys.argv[1]))]
array.array("f", x).tofile(open(sys.argv[3], "wb"))' "$@" || fail "activations"
}
activations 1 1.0 "$work/ones"
python3 "$NPUD_SOURCE_DIR/client/python/example.py" "$model" >"$work/words" || fail "example.py"
expect 0 "$head" run "$model" --x "$work/ones" --top 5 --no-headers
[ "$(wc -l <"$work/words")" = 5 ] || fail "example.py: $(<"$work/words")"
diff <(awk '{ print $1 }' "$work/words") <(awk '{ print $3 }' "$work/out") || fail "other words than npu-head's"

# 300 rows: more than one request.
activations 300 'random.gauss(0, 2)' "$work/x"
expect 0 "$head" run "$model" --x "$work/x" --logits "$work/logits"
coproc python3 "$here/python_client.py" "$model" "$work/big.safetensors" "$work/logits" "$work/x" "$daemon_pid"
client=$COPROC_PID
children+=("$client")
exec {to}>&"${COPROC[1]}" {from}<&"${COPROC[0]}"
while read -r -t 120 -u "$from" line; do
	[ "$line" = restart ] && break
	echo "$line"
done
[ "${line:-}" = restart ] || fail "python_client.py ended early"
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
start_daemon
echo done >&"$to"
cat <&"$from"
wait "$client" || fail "python_client.py"
stop_daemon
