#!/bin/bash
# Servers that use the NPU all the time are paused for exclusive holds, and go on after them, whatever happens.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"

ticket_times=$'[ticket]\nresume = 1\ngrace = 1'
cat >"$work/npud.conf" <<END
[device]
node = $work/node
$ticket_times
[tenant flm]
pause = echo paused >>$work/story
resume = echo resumed >>$work/story
END
story() { tr '\n' ' ' <"$work/story"; }
story_is() { [[ $(story) == "$1 " ]]; }
: >"$work/story"
start_daemon --config "$work/npud.conf"
expect 0 "$hold" -s -- true
[ ! -s "$work/story" ] || fail "paused for a shared hold: $(story)"
expect 0 "$hold" -- sh -c "echo held >>'$work/story'"
until_true story_is "paused held resumed" || fail "one hold: $(story)"

# Not resumed between two holds, of which one waits for the other.
: >"$work/story"
in_background "$hold" -- sh -c "until [ -e '$work/go' ]; do sleep 0.05; done; echo first >>'$work/story'"
until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
in_background "$hold" -- sh -c "echo second >>'$work/story'"
until_true sh -c "'$npuctl' tickets -N | grep -q queued" || fail "does not wait"
touch "$work/go"
until_true story_is "paused first second resumed" || fail "two holds: $(story)"
expect 0 "$npuctl" events
grep -q "tenant.*flm: paused" "$work/out" && grep -q "tenant.*flm: resumed" "$work/out" || fail "events: $(cat "$work/out")"

# A daemon that is killed while they are paused: they stay so for the holder, and go on after it.
: >"$work/story"
in_background "$hold" -- sh -c "sleep 3; echo held >>'$work/story'"
until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
start_daemon --config "$work/npud.conf"
until_true story_is "paused held resumed" || fail "a restart below a hold: $(story)"
# The holder ends while there is no daemon.
: >"$work/story"
in_background "$hold" -- sleep 100
holder=$!
until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
kill -KILL "$holder"
start_daemon --config "$work/npud.conf"
until_true story_is "paused resumed" || fail "a holder that ended without a daemon: $(story)"
stop_daemon

# What fails or takes too long is told and holds up nobody.
cat >"$work/npud.conf" <<END
$ticket_times
[tenant broken]
pause = exit 3
resume = kill -9 \$\$
[tenant slow]
pause = trap "" TERM; sleep 300.$$ & sleep 300.$$
resume = echo resumed >>$work/story
timeout = 1
END
: >"$work/story"
start_daemon --config "$work/npud.conf"
expect 0 "$hold" -w 20s -- true
until_true story_is "resumed" || fail "not resumed after a pause that failed: $(story)"
expect 0 "$npuctl" events
for part in "broken: pause failed: exit status 3" "broken: resume failed: ended by signal 9" \
	"slow: pause failed: it took longer than 1 s and was killed" "slow: resumed"; do
	grep -q "$part" "$work/out" || fail "no event '$part': $(cat "$work/out")"
done
until_true nothing_left "sleep 300.$$" || fail "a command that was killed left processes"
# One that waits for servers to be paused is told so, and may leave.
in_background "$hold" -- true
waiter=$!
until_true sh -c "'$npuctl' tickets -N | grep -q queued" || fail "does not wait"
id=$("$npuctl" tickets -N | awk '{ print $1; exit }')
until_true sh -c "'$npuctl' why $id | grep -q 'being paused'" || fail "why does not say what it waits for"
kill -INT "$waiter"
until_true is_gone "$waiter" || fail "cannot leave"
stop_daemon
