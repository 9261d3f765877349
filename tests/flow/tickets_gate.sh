#!/bin/bash
# With [device] acl the node opens for who holds a ticket, for as long as any process of the hold is there, and for nobody
# else; over restarts of the daemon, and although udev may set it anew.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/tickets.bash"
[[ $(id -u) == 0 ]] || skip "only root can be several users"
node=$work/node
: >"$node"
chmod 660 "$node"
chmod 755 "$work"
python3 - "$node" <<'END' || skip "$work has no ACLs"
import os, struct, sys
entries = [(1, 6, -1), (2, 6, 65533), (4, 6, -1), (16, 6, -1), (32, 0, -1)]
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in entries)
os.setxattr(sys.argv[1], "system.posix_acl_access", acl)
END
printf '[device]\nnode = %s\nacl = yes\n[ticket]\ngrace = 1\nresume = 2\n' "$node" >"$work/npud.conf"
open_to_all() { # of the daemon's socket: its directory is the daemon's own
	chmod 755 "$work/run"
	chmod 666 "$socket"
}
start_gated() {
	start_daemon --config "$work/npud.conf"
	open_to_all
}
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
opens() { setpriv --reuid "$1" --regid "$1" --clear-groups dd if="$node" of="$node" count=0 conv=notrunc 2>/dev/null; }
shut() { ! opens "$1"; }
opens 65533 || fail "the test's ACL does nothing"
start_gated

# What an earlier daemon left there is put right; nobody gets in without a ticket.
until_true shut 65533 || fail "who holds nothing was let in by a daemon of before"
shut 65534 || fail "anybody may open the node"
"${nobody[@]}" "$hold" -t 60s -- dd if="$node" of="$node" count=0 conv=notrunc 2>"$work/err" || fail "the holder is shut out: $(cat "$work/err")"
until_true shut 65534 || fail "the node stays open after the hold"

# As long as its tree is there, and not for others.
s=$(unique_sleep 1)
in_background "${nobody[@]}" "$hold" -s -t 60s -- sh -c "sleep $s & exit 0"
until_true opens 65534 || fail "the holder is shut out"
shut 65533 || fail "another user is let in by the hold"
in_background "${nobody[@]}" "$hold" -s -t 60s -- sleep 0.5
second=$!
wait "$second"
opens 65534 || fail "the end of one of two holds shuts the other out"

# udev sets the mode anew, an administrator takes the ACL away: it is there again within a second or two.
chmod 600 "$node"
until_true opens 65534 || fail "the node was reset and stays shut to the holder"
# The daemon is killed, and comes back.
kill -KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
start_gated
opens 65534 || fail "a restart shuts the holder out"
pkill -f "^sleep $s"
until_true shut 65534 || fail "the node stays open after the last process"
[ "$(stat -c %a "$node")" = 660 ] || [ "$(stat -c %a "$node")" = 600 ] || fail "the mode is $(stat -c %a "$node") afterwards"

# Who is revoked is out when its processes are.
in_background "${nobody[@]}" "$hold" -t 60s -g 300ms -- sleep 1000
until_true opens 65534 || fail "the holder is shut out"
"$npuctl" tickets revoke "$("$npuctl" tickets -N | awk 'NR==1 { print $1 }')" >/dev/null || fail "revoke"
until_true shut 65534 || fail "the node stays open after a revocation"
expect 0 "$npuctl" who
stop_daemon

# That it cannot be done is said once, and tickets are granted all the same.
printf '[device]\nnode = /proc/version\nacl = yes\n' >"$work/npud.conf"
start_gated
expect 0 "${nobody[@]}" "$hold" -- true
expect 0 "${nobody[@]}" "$hold" -- true
expect 0 "$npuctl" events
[ "$(grep -c "who may open it cannot be changed" "$work/out")" = 1 ] || fail "not said once: $(cat "$work/out")"
stop_daemon
