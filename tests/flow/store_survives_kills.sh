#!/bin/bash
# store_survives_kills.sh [KILLS]: the daemon is killed at random times while heads are written and replaced. Whatever that
# leaves, the next daemon gives the right logits, moves nothing aside, and the file does not grow without bound.
. "$(dirname "$0")/lib.bash"
kills=${1:-12}
models=3
printf '[resident]\nkeep = 0\n[store]\nmin_free_bytes = 0\n' >"$work/npud.conf"
ask() { "$head" run "$work/m$1.safetensors" --random 7 --tile 128 --logits "$2"; }
start() { start_daemon --config "$work/npud.conf"; }

start
for ((m = 0; m < models; m++)); do
	"$NPUD_BIN/tests/make-model" "$work/m$m.safetensors" 1500 500 $((m + 1)) || fail "make-model"
	NPUD_STORE=0 ask $m "$work/right$m" || fail "run"
done
stop_daemon

db=$work/cache/images/db/data.mdb
hits=0
for ((i = 0; i < kills; i++)); do
	# Now and then nothing of it can be used: everything is replaced.
	((i % 4 != 3)) || python3 "$here/store_damage.py" header 8 "$db" || fail "store_damage"
	start
	for ((m = 0; m < models; m++)); do
		"$head" open "$work/m$m.safetensors" --tile 128 >/dev/null 2>&1 &
		children=($!)
		# The last is left in the middle; a fourth of the others too.
		if ((m == models - 1 || RANDOM % 4 == 0)); then
			sleep "0.$(printf '%03d' $((RANDOM % 120)))"
			break
		fi
		wait "${children[0]}" || fail "kill $i: open of m$m failed"
		children=()
	done
	kill -KILL "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	daemon_pid=
	((${#children[@]} == 0)) || { kill "${children[0]}" 2>/dev/null; wait "${children[0]}" 2>/dev/null; }
	children=()
	start
	# What this test broke itself and nobody has opened since is broken still, and goes.
	if ((i % 4 == 3)); then
		"$npuctl" store verify --remove >"$work/verify"
	fi
	"$npuctl" store verify >"$work/verify" || fail "kill $i: what is there does not hold together: $(cat "$work/verify")"
	m=$((i % models))
	ask $m "$work/now" || fail "kill $i: run"
	cmp "$work/right$m" "$work/now" || fail "kill $i: other logits"
	stop_daemon
	ls -d "$work/cache/images/db.bad-"* >/dev/null 2>&1 && fail "kill $i: a sound store was moved aside"
	grep -q '[1-9][0-9]* tile(s) from the image store' "$log" && hits=$((hits + 1))
	: >"$log"
	size=$(stat -c %s "$db")
	((size < 16 << 20)) || fail "kill $i: the file has $size bytes by now"
done
((hits > 0 || kills < 4)) || fail "nothing ever came from the store: this shows little"
start
for ((m = 0; m < models; m++)); do
	ask $m "$work/now" && cmp "$work/right$m" "$work/now" || fail "afterwards: other logits"
done
stop_daemon
