#!/bin/bash
# Peers that misbehave on either socket are refused with a type, and everybody else is served.
. "$(dirname "$0")/lib.bash"
start_daemon
sleep 0.3
before=$(daemon_descriptors)

timeout 120 python3 "$here/hostile_peers.py" "$work" || fail "hostile_peers.py"
daemon_lives "hostile peers"
descriptors_back_to "$before" || fail "$(daemon_descriptors) descriptors, $before before: $(ls -l "/proc/$daemon_pid/fd")"

# A second daemon at the same path.
expect 75 "$npud" --foreground --socket "$socket" --cache-dir "$work/cache2" --state-dir "$work/state2"
says "pid $daemon_pid " "$socket"
timeout 5 "$npuctl" ping >/dev/null || fail "the first daemon does not answer after the second one"
stop_daemon

# What is at the path and is no socket stays.
for at in "$socket" "$socket.fd"; do
	rm -f "$socket" "$socket.fd"
	echo precious >"$at"
	timeout 20 "$npud" --foreground --socket "$socket" --cache-dir "$work/cache" --state-dir "$work/state" \
		>"$work/out" 2>"$work/err"
	status=$?
	said=$(<"$work/err")
	[ "$(cat "$at")" = precious ] || fail "the file at $at was touched"
	((status != 0 && status != 124)) || fail "npud started over a file at $at: exit $status"
	says "$at" "no socket"
	((status == 75)) || fail "exit $status, not 75, with a file at $at: $said"
done
