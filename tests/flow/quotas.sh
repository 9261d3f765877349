#!/bin/bash
# A user that takes all it may have is told so, with numbers, and gets more when it gives back.
. "$(dirname "$0")/lib.bash"
cat >"$work/npud.conf" <<EOC
[limits]
user_connections = 6
in_flight = 4
user_in_flight = 10
handles = 5
EOC
start_daemon --config "$work/npud.conf"
sleep 0.3
before=$(daemon_descriptors)
timeout 120 python3 "$here/quotas.py" "$work" || fail "quotas.py"
daemon_lives "a user at its limits"
descriptors_back_to "$before" || fail "$(daemon_descriptors) descriptors, $before before"
stop_daemon
