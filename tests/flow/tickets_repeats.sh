#!/bin/bash
# What is asked twice about tickets happens once, over a restart of the daemon too; offers that nobody takes go on.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
start_daemon
# Started anew by the test, in the middle of it: as a child of this script.
mkfifo "$work/again" "$work/done"
NPUD_SOCKET=$socket timeout 120 python3 "$here/tickets_repeats.py" sh -c "echo >'$work/again' && read x <'$work/done'" &
test=$!
children+=("$test")
read -r _ <"$work/again"
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
start_daemon
echo >"$work/done"
wait "$test" || fail "tickets_repeats.py"
stop_daemon
