#!/bin/bash
# Clients at once get the logits one gets alone, and killed ones leave nothing behind.
. "$(dirname "$0")/lib.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 2000 256 || fail "make-model"
start_daemon --config "$keep_nothing"
run() { "$head" run "$work/m.safetensors" --random 7 --rows 5 --logits "$1"; }

run "$work/alone" || fail "alone"
(($(stat -c %s "$work/alone") == 5 * 2000 * 4)) || fail "not 5 x 2000 logits"
sleep 0.3 # until the daemon has seen that client go
before=$(daemon_descriptors)

pids=()
for i in 1 2 3 4 5 6 7 8; do
	run "$work/at-once-$i" &
	pids+=($!)
done
for pid in "${pids[@]}"; do
	wait "$pid" || fail "one of eight clients failed"
done
for i in 1 2 3 4 5 6 7 8; do
	cmp "$work/alone" "$work/at-once-$i" || fail "client $i of eight got other logits"
done

# One loop that must not notice, while others die at all stages of their lives.
(
	for i in 1 2 3 4 5 6 7 8 9 10; do
		run "$work/loop" || exit 1
		cmp "$work/alone" "$work/loop" || exit 1
	done
) &
loop=$!
children+=("$loop")
killed=0
for delay in 0.02 0.04 0.06 0.08 0.1 0.12 0.15 0.2 0.25 0.3; do
	"$head" run "$work/m.safetensors" --random 3 --rows 5000 --logits "$work/dies" 2>/dev/null &
	pid=$!
	children+=("$pid")
	sleep "$delay"
	kill -KILL "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	(($? == 137)) && killed=$((killed + 1))
done
wait "$loop" || fail "a client noticed that others were killed"
children=()
((killed >= 3)) || fail "only $killed clients could be killed before they were done"

for ((i = 0; i < 50; i++)); do
	"$npuctl" --json clients >"$work/clients" || fail "npuctl clients"
	"$npuctl" --json heads >"$work/heads" || fail "npuctl heads"
	python3 - "$work/clients" "$work/heads" <<-'PY' && break
		import json, sys
		clients = json.load(open(sys.argv[1]))["clients"]
		heads = json.load(open(sys.argv[2]))["heads"]
		sys.exit(not (len(clients) == 1 and clients[0]["name"] == "npuctl" and not heads))
	PY
	sleep 0.1
done
((i < 50)) || fail "left behind: $(cat "$work/clients" "$work/heads")"
descriptors_back_to "$before" || fail "$(daemon_descriptors) descriptors, $before before: $(ls -l "/proc/$daemon_pid/fd")"
run "$work/after" && cmp "$work/alone" "$work/after" || fail "other logits afterwards"
stop_daemon
echo "8 at once equal, $killed killed"
