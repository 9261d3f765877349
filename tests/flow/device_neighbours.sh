#!/bin/bash
# Beside tools that lock the NPU and a server that uses it all the time, with work on a device: what npud computes goes
# there when it may, to the host while a stranger has the lock, and under a hold to the device whoever locks it then.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
. "$(dirname "$0")/tickets.bash"
trap 'status=$?; pkill -f "^sleep 1000.$$"; (exit $status); cleanup' EXIT
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
kernel_set 16,512,1024,1
lock=$work/npu.lock
rows=("$work/m.safetensors" --random 5 --rows 3)
# Where work goes that nobody reserved the device for, while another has the lock: to software it is not in the way.
beside=host
[ "$kind" = xrt ] || beside=device
is_locked() { ! flock -n "$lock" true; }
ran_on() { # PATH WHAT
	same_bits "$work/right" "$work/logits" "$2"
	[ "$(run_field path)" = "$1" ] || fail "$2: on the $(run_field path), for $(run_field path_why)"
}

cat >"$work/server" <<END
#!/bin/bash
# The server: it has the lock as long as it runs.
case \$1 in
start)
	flock "$lock" sleep 1000.$$ &
	while flock -n "$lock" true; do sleep 0.01; done
	echo resumed >>"$work/story"
	;;
stop)
	pkill -f "^sleep 1000.$$"
	while ! flock -n "$lock" true; do sleep 0.01; done
	echo paused >>"$work/story"
	;;
esac
END
chmod +x "$work/server"
touch "$lock"
# Each run opens the head anew, so that nothing is measured and several rows go to the device.
start_device "latency=20000" "[resident]" "keep = 0" "[tenant server]" "pause = $work/server stop" "resume = $work/server start >/dev/null 2>&1"
health_becomes ok
run_to "$work/right" "${rows[@]}" --path host

# Alone the device is used, with the lock taken around each pass and given back after it.
run_to "$work/logits" "${rows[@]}" --path device
ran_on device "nobody else there"
until_true sh -c "flock -n '$lock' true" || fail "npud keeps the lock"
if [ "$kind" = xrt ]; then
	(while [ ! -e "$work/enough" ]; do "$head" run "${rows[@]}" --path device --top 1 >/dev/null || exit 1; done) &
	children+=("$!")
	until_true is_locked || fail "npud does not take the lock around its launches"
	touch "$work/enough"
	wait "$!" || fail "work on the device with a lock that is free now and then"
fi

# While the server has it, the host computes, and says who has the lock; who wants the device and nothing else is refused.
"$work/server" start >/dev/null 2>&1
run_to "$work/logits" "${rows[@]}"
ran_on $beside "beside a server"
if [ "$kind" = xrt ]; then
	[[ $(run_field path_why) == *"keeps its lock $lock"* ]] || fail "the lock is not named: $(run_field path_why)"
	expect 69 "$head" run "${rows[@]}" --path device
	says "keeps its lock"
fi

# An exclusive hold has it paused, and the holder's tools may lock the NPU: npud computes for the holder all the same.
: >"$work/story"
expect 0 "$hold" -t 60s -- flock -n "$lock" sh -c "\"\$@\" && echo ran >>'$work/story'" sh "$head" run "${rows[@]}" \
	--path device --logits "$work/logits" --json
cp "$work/out" "$work/run.json"
ran_on device "under a hold whose holder has the lock"
until_true sh -c "[ \"\$(tr '\n' ' ' <'$work/story')\" = 'paused ran resumed ' ]" || fail "the server: $(cat "$work/story")"
is_locked || fail "the server does not have its lock again"
run_to "$work/logits" "${rows[@]}"
ran_on $beside "beside the server again"

# A hold that is killed in the middle of a pass: the pass ends, the server goes on, and nobody's answer is another.
: >"$work/story"
in_background "$hold" -t 60s -g 300ms -- "$head" run "$work/m.safetensors" --random 5 --rows 250 --path device --top 1
until_true grep -q paused "$work/story" || fail "not paused"
kill -KILL "${children[-1]}"
until_true grep -q resumed "$work/story" || fail "not resumed after the holder was killed"
run_to "$work/logits" "${rows[@]}"
ran_on $beside "after a holder that was killed"
[ "$(device_field mismatches) $(device_field errors)" = "0 0" ] || fail "the device has failed: $(device_told)"
stop_daemon
