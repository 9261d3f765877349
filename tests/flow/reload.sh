#!/bin/bash
# SIGHUP reads the configuration again: good changes take effect, bad ones change nothing, nobody is cut off.
. "$(dirname "$0")/lib.bash"
conf=$work/npud.conf
printf '[limits]\nhandles = 5\n' >"$conf"
start_daemon --config "$conf"
export PYTHONPATH=$here
told() { # the handles hello tells
	python3 -c 'from sp import Client; print(Client().hello()["user_handles"])'
}
reload() { # and wait until the log has one more line about it
	local before i
	before=$(grep -c ' npud: reload: ' "$log")
	kill -HUP "$daemon_pid" || fail "the daemon is gone"
	for ((i = 0; i < 50; i++)); do
		(($(grep -c ' npud: reload: ' "$log") > before)) && break
		sleep 0.1
	done
	((i < 50)) || fail "nothing is said about a reload"
	said=$(grep ' npud: reload: ' "$log" | tail -n 1)
}
[ "$(told)" = 5 ] || fail "the configuration is not read at the start"

printf '[limits]\nhandles = 7\n' >"$conf"
reload
[ "$(told)" = 7 ] || fail "a limit did not change: $(told)"
[[ $said != *restart* ]] || fail "nothing needs a restart: $said"

printf '[limits]\nhandles = 8\nhandels = 9\n' >"$conf"
reload
says "$conf:3:" handels "stays as it was"
[ "$(told)" = 7 ] || fail "a bad configuration changed something"

printf '[limits]\nhandles = 8\n[daemon]\nadmin_group = there-is-no-such-group\n' >"$conf"
reload
says there-is-no-such-group "stays as it was"
[ "$(told)" = 7 ] || fail "an unknown group changed something"

printf '[limits]\nhandles = 9\n[daemon]\nsocket = %s/elsewhere/npud.sock\nstate_dir = %s/elsewhere\n' "$work" "$work" >"$conf"
reload
[ "$(told)" = 9 ] || fail "a limit did not change beside what needs a restart"
[[ $said != *restart* ]] || fail "the command line has the last word on socket and state_dir: $said"

printf '[limits]\nhandles = 9\n[head]\nthreads = 16\n' >"$conf"
reload
says "restart" "[head] threads"
rm "$conf"
reload
says "$conf" "stays as it was"
python3 - <<'END' || fail "reload as an operation"
import sys
from sp import Client, check, failures, refused
c = Client()
c.hello()
refused(c.call("reload"), 23, "BAD_CONFIG", "reload without its file")
sys.exit(bool(failures))
END
stop_daemon
