#!/bin/bash
# npu-hold says by its exit status what became of the command, or of the ticket.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"

expect 69 "$hold" -- true
says "no daemon"
start_daemon
expect 0 "$hold" -- true
expect 3 "$hold" -- sh -c 'exit 3'
expect 143 "$hold" -- sh -c 'kill -TERM $$'
expect 127 "$hold" -- /no/such/command
expect 126 "$hold" -- /etc/passwd
expect 64 "$hold" -t soon -- true
says "--time soon"
expect 64 "$hold" -t 1.5m -- true
expect 64 "$hold" -t 0 -- true
says "only a shared ticket"
expect 64 "$hold" -c urgent -- true
says "realtime, interactive, normal or batch"
expect 64 "$hold" -t 365d -- true
says "at most"
expect 64 "$hold" --signal NOSUCH@1s -- true
expect 64 "$hold" --signal USR1@0 -t 5s -- true
expect 64 "$hold" --signal USR1@2s -t 2s -- true
says "never come"
expect 64 "$hold" --signal USR1@1s -t 5s
says "no command"

if [[ $(id -u) == 0 ]]; then
	# A stranger to the socket.
	chmod 755 "$work"
	expect 77 setpriv --reuid 65534 --regid 65534 --clear-groups "$hold" -- true
	says "$socket"
fi

out=$(echo through | "$hold" -- cat) || fail "cat under npu-hold"
[[ $out == through ]] || fail "stdin did not pass: $out"
"$hold" -t 90s -- sh -c 'echo "$NPU_TICKET $NPU_TICKET_EXPIRES"' >"$work/env" || fail "npu-hold"
read -r ticket expires <"$work/env"
[[ $ticket =~ ^[0-9]+:[0-9a-f]{32}$ ]] || fail "NPU_TICKET is '$ticket'"
left=$((expires - $(date +%s)))
((left > 80 && left <= 90)) || fail "NPU_TICKET_EXPIRES is $left s from now"
"$hold" -- sh -c 'ls /proc/self/fd' >"$work/fds" || fail "npu-hold"
[[ $(cat "$work/fds") == "$(sh -c 'ls /proc/self/fd')" ]] || fail "descriptors pass to the command: $(tr '\n' ' ' <"$work/fds")"

# The time runs out.
expect 124 "$hold" -t 300ms -g 5 -- sleep 60
says "its time was up"
expect 42 "$hold" -t 2s --signal USR1@1500ms -- sh -c 'trap "exit 42" USR1; while :; do sleep 0.05; done'

# Another holds.
in_background "$hold" -t 30s -l "the first" -- sleep 30
until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "the first is not granted"
expect 75 "$hold" -n -- true
says "the first" "for another" "uid $(id -u)"
expect 75 "$hold" -w 300ms -- true
says "not granted in time" "the first"
kill -TERM "${children[0]}"
wait "${children[0]}"
[[ $? == 143 ]] || fail "SIGTERM is not forwarded"

# One inside another joins it; an exclusive one inside a shared one would wait for itself.
expect 0 "$hold" -t 20s -- "$hold" -n -t 10s -- true
expect 64 "$hold" -s -t 20s -- "$hold" -- true
says "wait for itself"
# What is asked for and cannot be is said, and a signal that is too late is not sent at once.
expect 0 "$hold" -t 5s -- "$hold" -t 1h --signal USR1@1m -- sh -c 'sleep 0.2'
says "ends with ticket" "--signal: it does not come"
expect 0 "$hold" -t 5s -- "$hold" -t 5s -- true
[ -z "$said" ] || fail "a second less is not worth a word: $said"
inner=$("$hold" -t 5s -- "$hold" -t 1h -- sh -c 'echo $NPU_TICKET_EXPIRES') || fail "nested"
((inner - $(date +%s) <= 5)) || fail "a nested hold outlives the one around it"
NPU_TICKET=garbage expect 64 "$hold" -- true

# Without a command it prints the ticket and holds until it is interrupted.
in_background "$hold" -t 20s
pid=${children[-1]}
until_true grep -q '^[0-9]*:' "$work/bg.out" || fail "no ticket is printed"
kill -TERM "$pid" # SIGINT is ignored in the background of a script
wait "$pid" || fail "an interrupted hold exits $?"
# A ticket that cannot be told is given back at once.
"$hold" -t 60s >/dev/full 2>"$work/err"
[[ $? == 125 ]] || fail "a ticket that cannot be printed is held"
said=$(<"$work/err")
says "stdout: cannot write"
stop_daemon
