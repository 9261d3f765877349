#!/bin/bash
# The daemon dies and comes back: the holder's command never stops, the order is kept, and no two ever hold.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
start_daemon

# Each holder notes when it begins and ends, by a clock that only rises. The first ends after the restarts.
cat >"$work/note" <<'END'
#!/bin/bash
now() { read -r up _ </proc/uptime; echo "$up"; }
begun=$(now)
echo "$1 $$ begins" >>"$2/order"
until [ -e "$2/go" ]; do
	sleep 0.05
done
sleep 0.3
echo "$begun $(now) $1" >>"$2/intervals"
END
chmod +x "$work/note"

in_background "$hold" -t 60s -l one -- "$work/note" one "$work"
one=${children[-1]}
until_true test -s "$work/order" || fail "the first does not begin"
in_background "$hold" -t 60s -l two -- "$work/note" two "$work"
two=${children[-1]}
until_true sh -c "'$npuctl' tickets -N | grep -c queued | grep -q 1" || fail "the second does not wait"
in_background "$hold" -t 60s -l three -- "$work/note" three "$work"
three=${children[-1]}
until_true sh -c "'$npuctl' tickets -N | grep -c queued | grep -q 2" || fail "the third does not wait"
before=$("$npuctl" tickets --json)

kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
sleep 0.3
start_daemon
after=$("$npuctl" tickets --json)
python3 - "$before" "$after" <<'END' || fail "the queue is another after the restart: $before $after"
import json, sys
a, b = ([(t["ticket"], t["label"], t["place"]) for t in json.loads(x)["tickets"]] for x in sys.argv[1:])
sys.exit(a != b or len(a) != 3)
END
kill -0 "$one" || fail "the holder was ended by the restart"

# And once more, by SIGTERM: tickets are kept.
stop_daemon
start_daemon
touch "$work/go"
for pid in "$one" "$two" "$three"; do
	wait "$pid" || fail "a hold exits $? after the restarts: $(cat "$work/bg.err")"
done
[[ $(awk '{ print $1 }' "$work/order" | tr '\n' ' ') == "one two three " ]] || fail "order: $(cat "$work/order")"
sort -n "$work/intervals" | awk 'NR > 1 && $1 + 0.02 < last { exit 1 } { last = $2 }' ||
	fail "two held at once: $(cat "$work/intervals")"

# A holder that dies while the daemon is away is found out at the start.
s=$(unique_sleep 1)
in_background "$hold" -t 60s -g 300ms -- sleep "$s"
front=${children[-1]}
until_true pgrep -f "^sleep $s" >/dev/null || fail "the command did not start"
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
kill -KILL "$front"
until_true nothing_left "^sleep $s" || fail "the command outlives npu-hold without a daemon"
start_daemon
expect 0 "$hold" -w 8 -- true

# Of another boot nothing is taken over.
in_background "$hold" -t 60s -- sleep "$(unique_sleep 2)"
until_true sh -c "'$npuctl' tickets -N | grep -q granted" || fail "not granted"
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
kill -STOP "${children[-1]}" "$(pgrep -P "${children[-1]}" | head -1)"
echo another-boot >"$work/state/tickets/boot"
start_daemon
expect 0 "$hold" -n -- true
kill -KILL "$(pgrep -P "${children[-1]}" | head -1)" "${children[-1]}"
stop_daemon
