#!/bin/bash
# What operators see of tickets, and what they do about them.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
: >"$work/node"
cat >"$work/npud.conf" <<END
[device]
node = $work/node
lock = $work/npu.lock
[ticket]
per_user = 6
END
start_daemon --config "$work/npud.conf"

in_background "$hold" -t 30s -l holder -- sleep 30
until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
for name in a b c; do
	in_background "$hold" -l "$name" -c "$([ $name = c ] && echo batch || echo normal)" -- sh -c "echo $name >>'$work/order'"
	until_true sh -c "'$npuctl' tickets -N | grep -q ' $name '" || fail "$name does not wait"
done
expect 0 "$npuctl" why 4
grep -q "place 3 in the queue" "$work/out" || fail "why: $(cat "$work/out")"
grep -q "ticket 1 of uid $(id -u).*holder: sleep 30" "$work/out" || fail "why does not name the holder: $(cat "$work/out")"
[[ $(grep -c '^  ticket [123] of' "$work/out") == 3 ]] || fail "why does not name those before: $(cat "$work/out")"
expect 0 "$npuctl" why 4 --json
python3 -c 'import json,sys; w=json.load(open(sys.argv[1])); assert w["ticket"]["place"]==3 and [t["ticket"] for t in w["before"]]==[1,2,3], w' "$work/out" || fail "why --json"
expect 0 "$npuctl" tickets move 4 1
expect 65 "$npuctl" tickets show 99
says "no ticket 99"
expect 64 "$npuctl" tickets move 4 0
expect 64 "$npuctl" tickets frobnicate 4
# The limit of a user refuses at once and says who holds.
in_background "$hold" -l d -- true
in_background "$hold" -l e -- true
until_true sh -c "'$npuctl' tickets -N | grep -q ' e '" || fail "e does not wait"
expect 75 "$hold" -- true
says "has 6 tickets already" "holder" "for another"

expect 0 "$npuctl" drain
[ "$("$npuctl" tickets -N | awk '$1 !~ /^[0-9]+$/')" = "" ] || fail "tickets -N has more than tickets: $("$npuctl" tickets -N)"
"$npuctl" tickets | grep -q "nothing is granted until npuctl resume" || fail "tickets does not say that it drains"
grep -q "1 still holds the NPU" "$work/out" || fail "drain: $(cat "$work/out")"
"$npuctl" status | grep -q '^draining .*npuctl resume' || fail "status does not say that it drains: $("$npuctl" status)"
expect 0 "$npuctl" tickets revoke 1 "making room"
sleep 0.5
[ ! -e "$work/order" ] || fail "granted while draining"
expect 0 "$npuctl" why 4
grep -q "drains" "$work/out" || fail "why does not say that it drains: $(cat "$work/out")"
# Draining outlives a restart.
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
start_daemon --config "$work/npud.conf"
sleep 0.5
[ ! -e "$work/order" ] || fail "granted while draining, after a restart"
expect 0 "$npuctl" drain
grep -q "^nobody still holds the NPU" "$work/out" || fail "drain: $(cat "$work/out")"
expect 0 "$npuctl" resume
"$npuctl" status --json | jq -e '.draining == false' >/dev/null || fail "status: $("$npuctl" status --json)"
all_ran() { [ "$(wc -l <"$work/order" 2>/dev/null)" = 3 ]; }
# Who waited connects again in its own time.
until_true all_ran || until_true all_ran ||
	fail "not all ran: $(cat "$work/order" "$work/bg.err"; "$npuctl" tickets; "$npuctl" why 3; "$npuctl" clients)"
[[ $(tr '\n' ' ' <"$work/order") == "c a b " ]] || fail "the move did not count: $(tr '\n' ' ' <"$work/order")"
expect 0 "$npuctl" events
for kind in offered granted released resumed restored; do
	grep -q "$kind" "$work/out" || fail "no event $kind"
done
expect 0 "$npuctl" usage --json
python3 -c 'import json,os,sys; u=json.load(open(sys.argv[1]))["usage"]; assert u[0]["uid"]==os.getuid() and u[0]["held_seconds"]>0 and u[0]["tickets"]>=4, u' "$work/out" || fail "usage: $(cat "$work/out")"

until_true sh -c "[ -z \"\$('$npuctl' tickets -N)\" ]" || fail "the rest does not run: $("$npuctl" tickets)"
# A neighbour without a ticket is named, and keeps one that wants to be alone away.
expect 0 "$hold" --alone -n -- true
sleep 100 <"$work/node" &
children+=("$!")
neighbour=$!
expect 0 "$npuctl" who
grep -q "pid $neighbour .*sleep" "$work/out" || fail "who: $(cat "$work/out")"
expect 75 "$hold" --alone -n -- true
says "without a ticket"
expect 75 "$hold" --alone -w 500ms -- true
expect 75 "$hold" -- "$hold" --alone -- true
says "is not alone"
expect 0 "$hold" -n -- true
# Who holds beside one is told so, at the grant and when one comes.
expect 0 "$hold" -n -- sh -c "until '$npuctl' tickets --json | jq -e '.tickets[0].beside | contains(\"$neighbour (sleep)\")' >/dev/null; do sleep 0.05; done; sleep 0.2"
says "the NPU is used without a ticket, too: $neighbour (sleep)"
in_background "$hold" --alone -- sh -c "echo alone >>'$work/order'"
sleep 0.3
kill "$neighbour"
until_true grep -q alone "$work/order" || fail "never alone"
# Who keeps the lock of the tools is named.
flock "$work/npu.lock" sleep 100 &
locker=$!
children+=("$locker")
until_true sh -c "! flock -n '$work/npu.lock' true" || fail "flock does not lock"
if grep -q " $locker .*:$(stat -c %i "$work/npu.lock") " /proc/locks; then
	expect 0 "$npuctl" who
	grep -qF "$work/npu.lock: locked by pid $locker (flock)" "$work/out" || fail "who does not name who locks: $(cat "$work/out")"
fi
pkill -P "$locker"
wait "$locker"
expect 0 "$npuctl" who --json
grep -q '"lock_keeper": *""' "$work/out" || fail "the lock is free: $(cat "$work/out")"
# Who uses it under a ticket is no neighbour.
expect 0 "$hold" -- sh -c "exec 5<'$work/node'; '$npuctl' who | grep -q nobody"

# One without an end has got one when another waits, and is told why.
in_background "$hold" -s -t 0 -l server -- sleep 30
server=${children[-1]}
until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
id=$("$npuctl" tickets -N | awk 'NR==1 { print $1 }')
expect 0 "$npuctl" why "$id"
grep -q "until it lets go or another waits" "$work/out" || fail "why: $(cat "$work/out")"
in_background "$hold" -- true
until_true sh -c "'$npuctl' why $id | grep -q 'for another .* s: it had no end and ticket'" || fail "why: $("$npuctl" why "$id")"
kill "$server"
until_true sh -c "[ -z \"\$('$npuctl' tickets -N)\" ]" || fail "tickets are left: $("$npuctl" tickets)"

# Another user may look, and not revoke.
if [[ $(id -u) == 0 ]]; then
	in_background "$hold" -t 30s -- sleep 30
	until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
	id=$("$npuctl" tickets -N | awk 'NR==1 { print $1 }')
	chmod 755 "$work" "$work/run"
	chmod 666 "$socket"
	expect 77 setpriv --reuid 65534 --regid 65534 --clear-groups "$npuctl" tickets revoke "$id"
	says "belongs to uid 0"
	expect 77 setpriv --reuid 65534 --regid 65534 --clear-groups "$npuctl" drain
	expect 0 setpriv --reuid 65534 --regid 65534 --clear-groups "$npuctl" why "$id"
fi
stop_daemon
