#!/bin/bash
# Three users and a stranger: what one holds is of no use to another, and who is not in the group is told which.
. "$(dirname "$0")/lib.bash"
[ "$(id -u)" = 0 ] || skip "only root can be other users"
command -v setpriv >/dev/null || skip "setpriv is not there"
getent group users staff >/dev/null || skip "the groups users and staff are not there"
"$NPUD_BIN/tests/make-model" "$work/secret.safetensors" 200 64 || fail "make-model"
chmod 0755 "$work"
chmod 0600 "$work/secret.safetensors"
install -d -m 0750 -g users "$work/run"
printf '[daemon]\ngroup = users\nadmin_group = staff\n' >"$work/npud.conf"
start_daemon --config "$work/npud.conf"

expect_as() { # STATUS UID GID GROUPS COMMAND...
	expect "$1" setpriv --reuid "$2" --regid "$3" --groups "$4" -- "${@:5}"
}
for tool in "$npuctl" "$head"; do # copies that everybody may run
	install -m 0755 "$tool" "$work/"
done
expect_as 0 2001 2001 100 "$work/npuctl" status
expect_as 77 2001 2001 100 "$work/npuctl" reload
says "uid 2001" "group staff"
expect_as 0 2001 50 100 "$work/npuctl" reload
expect_as 77 2004 2004 2004 "$work/npuctl" status
says "$socket" "member of the group users"
chmod 0755 "$work/run" # the directory lets everybody in, the socket does not
expect_as 77 2004 2004 2004 "$work/npuctl" status
says "$socket" "member of the group users"
expect_as 66 2001 2001 100 "$work/npu-head" run "$work/secret.safetensors" --random 1
says secret.safetensors


python() { # the module is a file that everybody may read
	PYTHONPATH=$work python3 -c 'import npud, sys; npud.Client(sys.argv[1])' "$socket"
}
install -m 0644 "$NPUD_SOURCE_DIR/client/python/npud.py" "$work/"
export -f python
export work socket
expect_as 1 2004 2004 2004 bash -c python
says "$socket" "member of the group users"
# A reload takes the group back; who is not its owner cannot be helped by a group.
printf '[daemon]\nadmin_group = staff\n' >"$work/npud.conf"
expect 0 "$npuctl" reload
[ "$(stat -c %g "$socket") $(stat -c %g "$socket.fd")" = "$(id -g) $(id -g)" ] || fail "the group is not taken back"
expect_as 77 2001 2001 100 "$work/npuctl" status
says "it serves its owner alone" "npud --foreground"
expect_as 1 2001 2001 100 bash -c python
says "it serves its owner alone" "npud --foreground"
printf '[daemon]\ngroup = users\nadmin_group = staff\n' >"$work/npud.conf"
expect 0 "$npuctl" reload
expect_as 0 2001 2001 100 "$work/npuctl" status

timeout 60 python3 "$here/users.py" "$work" || fail "users.py"
stop_daemon
