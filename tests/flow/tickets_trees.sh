#!/bin/bash
# Nothing that a command started outlives its ticket, whoever is killed; and the next is granted only then.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
start_daemon

# A command that ignores SIGTERM and one that went off by itself.
s=$(unique_sleep 1)
expect 124 "$hold" -t 300ms -g 300ms -- sh -c "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep $s' &) ; sleep $s"
nothing_left "sleep $s" || fail "processes are left after the time was up"

# What the command leaves behind keeps the ticket until it ends.
s=$(unique_sleep 2)
in_background "$hold" -t 30s -- sh -c "setsid sleep $s & exit 5"
front=${children[-1]}
until_true pgrep -f "^sleep $s" >/dev/null || fail "the command did not start"
sleep 0.3
expect 75 "$hold" -n -- true
pkill -f "^sleep $s"
wait "$front"
[[ $? == 5 ]] || fail "the command's status is lost"

# Orphans that end while the command runs are no zombies of anybody's.
s=$(unique_sleep 9)
in_background "$hold" -t 30s -- sh -c "for i in 1 2 3; do (setsid true &); done; exec sleep $s"
front=${children[-1]}
until_true pgrep -f "^sleep $s" >/dev/null || fail "the command did not start"
until_true sh -c "! ps -o stat= --ppid $front --ppid $(pgrep -P "$front" | head -1) | grep -q Z" || fail "zombies below npu-hold"
pkill -f "^sleep $s"
wait "$front"

held() {
	s=$(unique_sleep "$1")
	in_background "$hold" -t 60s -g 300ms -- sh -c "(setsid sleep $s &); sleep $s"
	front=${children[-1]}
	until_true pgrep -f "^sleep $s" >/dev/null || fail "the command did not start"
	keeper=$(pgrep -P "$front" | head -1)
}
next_is_granted() {
	expect 0 "$hold" -w 8 -- sh -c "! pgrep -f '^sleep $s'"
}

held 3 # the front
kill -KILL "$front"
next_is_granted
held 4 # the keeper
kill -KILL "$keeper"
next_is_granted
wait "$front"
[[ $? == 125 ]] || fail "npu-hold whose keeper was killed exits otherwise"
held 5 # the command
pkill -KILL -f "^sh -c .*sleep $s"
pkill -KILL -f "^sleep $s"
wait "$front"
[[ $? == 137 ]] || fail "npu-hold whose command was killed exits otherwise"
next_is_granted
if grep -q cgroup2 /proc/mounts && [[ $(id -u) == 0 ]]; then
	held 6 # both at once: only the cgroup knows then
	kill -KILL "$keeper" "$front"
	next_is_granted
	for cgroup in /sys/fs/cgroup{,/unified}/npu-hold-"$keeper"; do
		[ ! -e "$cgroup" ] || fail "$cgroup is left behind"
	done
	# What the daemon never heard of, as of one that waited, the next one removes: if it is empty and its keeper gone.
	in_background "$hold" -t 20s -- sleep 20
	until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
	holder=${children[-1]}
	in_background "$hold" -l waits -- true
	front=${children[-1]}
	until_true sh -c "'$npuctl' tickets -N | grep -q ' waits '" || fail "does not wait"
	keeper=$(pgrep -P "$front")
	cgroups=$(grep cgroup2 /proc/mounts | cut -d' ' -f2 | head -n 1)$(sed -n 's/^0:://p' /proc/self/cgroup)
	if [ -d "$cgroups/npu-hold-$keeper" ]; then
		kill -KILL "$keeper" "$front"
		mkdir "$cgroups/npu-hold-$$" || fail "no cgroup can be made"
		until_true sh -c "'$hold' -n -- true 2>/dev/null; [ ! -e '$cgroups/npu-hold-$keeper' ]" || fail "npu-hold-$keeper is left behind"
		rmdir "$cgroups/npu-hold-$$" || fail "a cgroup of a living process was removed"
	fi
	kill "$holder"
	wait "$holder"
fi

# A stopped holder keeps its ticket until its time is up, and no longer.
s=$(unique_sleep 7)
in_background "$hold" -t 1500ms -g 300ms -- sleep "$s"
front=${children[-1]}
until_true pgrep -f "^sleep $s" >/dev/null || fail "the command did not start"
kill -STOP "$front" "$(pgrep -f "^sleep $s")"
expect 75 "$hold" -n -- true
next_is_granted
kill -CONT "$front"
wait "$front"
[[ $? == 124 ]] || fail "a stopped hold does not end as one whose time was up"

# A waiter that goes away leaves the queue.
held 8
in_background "$hold" -- true
waiter=${children[-1]}
until_true sh -c "'$npuctl' tickets -N | grep -q queued" || fail "it does not wait"
kill -KILL "$waiter"
until_true sh -c "! '$npuctl' tickets -N | grep -q queued" || fail "a dead waiter stays in the queue"
"$npuctl" tickets revoke "$("$npuctl" tickets -N | awk 'NR==1 { print $1 }')" maintenance >/dev/null || fail "revoke"
wait "$front"
status=$?
[[ $status == 124 ]] || fail "a revoked hold exits $status: $(cat "$work/bg.err")"
grep -q maintenance "$work/bg.err" || fail "the reason is not told: $(cat "$work/bg.err")"
nothing_left "sleep $s" || fail "processes are left after the revocation"
stop_daemon
