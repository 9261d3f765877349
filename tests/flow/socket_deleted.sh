#!/bin/bash
# Sockets that are deleted under the daemon are made again, and who is connected does not notice.
. "$(dirname "$0")/lib.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 200 64 || fail "make-model"
umask 077 # which is not the sockets': their group may connect
start_daemon
group_may_connect() { [ "$(stat -c %a "$socket" "$socket.fd")" = $'660\n660' ] || fail "$(ls -l "$work/run")"; }
group_may_connect
export PYTHONPATH=$here

# One client from before all of it: a ping a line, to the end.
coproc old { exec python3 -c '
import sys
from sp import Client
c = Client()
c.hello()
for line in sys.stdin:
    print(c.call("ping")[0], flush=True)
'; } 2>"$work/old.err"
children+=("$old_PID")
old_lives() {
	local answer
	echo >&"${old[1]}"
	read -r -t 10 answer <&"${old[0]}" && [ "$answer" = 0 ] || fail "the old client is not served: $1"
}
comes_back() {
	local i
	for ((i = 0; i < 80; i++)); do
		timeout 5 "$npuctl" ping >/dev/null 2>&1 && [ -S "$socket.fd" ] && return
		sleep 0.1
	done
	fail "8 s later nobody can connect: $1"
}
old_lives "at the start"

for what in "$socket" "$socket.fd" "$socket.lock" "$work/run"; do
	rm -rf "$what"
	old_lives "without $what"
	comes_back "without $what"
	old_lives "after $what came back"
	group_may_connect
	for ((i = 0; i < 40; i++)); do
		[ -e "$socket.lock" ] && break
		sleep 0.1
	done
	[ "$(cat "$socket.lock")" = "$daemon_pid" ] || fail "the lock is not there again: $what"
	expect 0 "$head" run "$work/m.safetensors" --random 7 --top 3
	expect 75 "$npud" --foreground --socket "$socket" --cache-dir "$work/cache2" --state-dir "$work/state2"
done

# Somebody else's file takes the place: it stays, and the daemon says so.
for at in "$socket" "$socket.fd"; do
	rm -f "$at"
	echo precious >"$at"
done
for at in "$socket" "$socket.fd"; do
	for ((i = 0; i < 60; i++)); do
		grep -qF "$at: is there and is no socket" "$log" && break
		sleep 0.1
	done
	((i < 60)) || fail "the daemon does not say that $at is no socket"
	old_lives "with a file at $at"
	[ "$(cat "$at")" = precious ] || fail "the file at $at was touched"
	rm "$at"
done
comes_back "after the files of others"
rm "$socket" "$socket.fd"
echo precious | tee "$socket" >"$socket.fd"
old_lives "before the end"
kill -TERM "$daemon_pid"
wait "$daemon_pid" || fail "exit $?"
daemon_pid=
[ "$(cat "$socket" "$socket.fd")" = $'precious\nprecious' ] || fail "files of others were deleted at the end"

# One that was killed lets go of its locks only when its memory is gone: who is started in its place waits for that.
rm "$socket" "$socket.fd"
for lock in "$socket.lock" "$work/state/tickets/lock"; do
	(
		flock -n 8 || exit 1
		touch "$work/has"
		until [ -e "$work/waits" ]; do sleep 0.05; done
	) 8>>"$lock" &
	children+=($!)
	until [ -e "$work/has" ]; do sleep 0.05; done
	(
		for ((i = 0; i < 200; i++)); do
			for pid in $(pgrep -f -- "$npud --foreground --socket $socket "); do
				ls -l "/proc/$pid/fd" 2>/dev/null | grep -qF "$lock" && break 2
			done
			sleep 0.05
		done
		touch "$work/waits"
	) &
	children+=($!)
	start_daemon
	[ -e "$work/waits" ] || fail "the daemon served while another had $lock"
	stop_daemon
	rm "$work/has" "$work/waits"
done
