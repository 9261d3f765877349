#!/bin/bash
# npuctl kick ends a session, npuctl events says so, and goes on over a restart of the daemon.
. "$(dirname "$0")/lib.bash"
start_daemon
"$npuctl" events --follow --json >"$work/followed" 2>"$work/followed.err" &
children+=($!)
line() { # waits until the follower has printed this many lines
	local i
	for ((i = 0; i < 100; i++)); do
		(($(wc -l <"$work/followed") >= $1)) && return
		sleep 0.1
	done
	fail "the follower has not $1 lines: $(cat "$work/followed" "$work/followed.err")"
}
"$npuctl" ping --count 1000000 >/dev/null 2>"$work/victim.err" &
victim=$!
children+=("$victim")
for ((i = 0; i < 50; i++)); do
	session=$("$npuctl" clients --json | python3 -c "
import json, sys
print(*(c['session'] for c in json.load(sys.stdin)['clients'] if c['pid'] == $victim))")
	[ -n "$session" ] && break
	sleep 0.1
done
expect 0 "$npuctl" kick "$session"
line 1
expect 65 "$npuctl" kick "$session"
says "session $session"
expect 64 "$npuctl" kick
expect 64 "$npuctl" kick 7x
expect 64 "$npuctl" kick 7 8
expect 64 "$npuctl" status --follow
expect 0 "$npuctl" events
grep -q "kicked .*session $session of uid $(id -u): by uid $(id -u)" "$work/out" || fail "$(cat "$work/out")"
expect 0 "$npuctl" reload
line 2
kill -TERM "$daemon_pid"
wait "$daemon_pid"
line 3
start_daemon
expect 0 "$npuctl" reload
line 4
python3 - "$work/followed" <<'END' || fail "$(cat "$work/followed")"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
assert [e["kind"] for e in events] == ["kicked", "reload", "shutdown", "reload"], events
assert [e["number"] for e in events] == [1, 2, 3, 1], events
END
stop_daemon
