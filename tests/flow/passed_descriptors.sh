#!/bin/bash
# A descriptor that somebody passes can make nobody else wait, whatever is behind it and on whichever socket it comes.
. "$(dirname "$0")/lib.bash"
start_daemon
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
timeout 5 "$npuctl" ping >/dev/null
before=$(daemon_descriptors)
timeout 60 python3 "$here/lingering.py" "$daemon_pid" || fail "lingering.py"
daemon_lives "sockets that linger"
descriptors_back_to "$before" || fail "$(daemon_descriptors) descriptors, $before before: $(ls -l "/proc/$daemon_pid/fd")"

[ "$(id -u)" = 0 ] || skip "only root can mount FUSE file systems"
"$NPUD_BIN/tests/make-model" "$work/model" 200 64 || fail "make-model"
expect 0 "$head" run "$work/model" --random 7 --top 3 --json
direct=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["top"])' "$work/out")

# Waits until what a file system says has a word.
heard() { # NAME WORD
	local i
	for ((i = 0; i < 100; i++)); do
		! grep -q 'no FUSE' "$work/$1.said" || skip "$(cat "$work/$1.said")"
		grep -q "$2" "$work/$1.said" && return
		sleep 0.1
	done
	fail "$1 does not say $2: $(cat "$work/$1.said")"
}
declare -A served
serve() { # NAME UID: the model in a file system of that user, at $work/NAME
	mkdir "$work/$1"
	: >"$work/$1.said"
	python3 "$here/fusefs.py" "$work/$1" "$2" "$work/model" >"$work/$1.said" 2>&1 &
	served[$1]=$!
	children+=($!)
	disown
	heard "$1" mounted
}
trap 'status=$?; umount -l "$work"/{disk,home} 2>/dev/null; (exit $status); cleanup' EXIT
unserve() { # NAME
	kill -KILL "${served[$1]}" 2>/dev/null
	umount -l "$work/$1"
}

# What root mounted is read where it lies; what a user did is uploaded.
serve disk 0
serve home 2001
for name in disk home; do
	expect 0 "$head" run "$work/$name/model" --random 7 --top 3 --json
	[ "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["top"])' "$work/out")" = "$direct" ] ||
		fail "$name: other words than from a disk"
	python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import npud
with npud.Client() as c: c.open(sys.argv[2])' "$NPUD_SOURCE_DIR/client/python" "$work/$name/model" || fail "npud.py: $name"
done

# A file that was taken is let go of, however long that takes, at the end of its session too.
timeout 60 python3 "$here/stopped_end.py" "$work/disk/model" "${served[disk]}" || fail "stopped_end.py"
daemon_lives "a disk that does not answer"
unserve disk

timeout 60 python3 "$here/stopped_file.py" "$work/home/model" "$work/model" "${served[home]}" || fail "stopped_file.py"
daemon_lives "a file system that does not answer"
unserve home
descriptors_back_to "$before" || fail "$(daemon_descriptors) descriptors, $before before: $(ls -l "/proc/$daemon_pid/fd")"
stop_daemon
