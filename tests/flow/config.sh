#!/bin/bash
# A configuration that cannot be used is refused with its line, before anything is made.
. "$(dirname "$0")/lib.bash"

check() { # STATUS, the text on stdin
	cat >"$work/npud.conf"
	expect "$1" "$npud" --check-config --config "$work/npud.conf"
}

check 0 <<END
; all of them
[daemon]
socket = $work/from-file/npud.sock
cache_dir = $work/cache
state_dir = $work/state
[device]
kind = none
[resident]
max_bytes = 1073741824
[limits]
connections = 100
in_flight = 8
in_flight_all = 64
handles = 16
END
grep -qF "$work/from-file/npud.sock" "$work/out" || fail "the socket is not told: $(cat "$work/out")"
[ ! -e "$work/from-file" ] && [ ! -e "$work/cache" ] || fail "--check-config made directories"
expect 0 "$npud" --check-config --config "$work/npud.conf" --socket "$work/wins.sock"
grep -qF "$work/wins.sock" "$work/out" || fail "the command line does not win: $(cat "$work/out")"
expect 0 env NPUD_CONFIG="$work/npud.conf" "$npud" --check-config
grep -qF "$work/from-file/npud.sock" "$work/out" || fail "NPUD_CONFIG is not read"
check 0 </dev/null
expect 0 "$npud" --check-config
expect 0 "$npud" --check-config --config /dev/null

check 78 <<END
[limits]

conections = 5
END
says "$work/npud.conf:3:" conections '"connections" in [limits]'
check 78 <<END
[daemom]
socket = /tmp/x/y
END
says "$work/npud.conf:2:" daemom '"socket" in [daemon]'
check 78 <<END
[limits]
handles = 4
in_flight_al = 5
nonsense = 1
END
says "$work/npud.conf:3:" '"in_flight_all"'
for value in 0 -1 x 1x 99999999 18446744073709551616 ''; do
	check 78 <<<"[limits]"$'\n'"in_flight = $value"
	says "$work/npud.conf:2:" in_flight
done
check 78 <<<"[device]"$'\n'"kind = imaginary"
says "$work/npud.conf" imaginary
check 78 <<<"[daemon]"$'\n'"socket = relative.sock"
says "$work/npud.conf" relative.sock
check 78 <<<"[daemon]"$'\n'"socket"
says "$work/npud.conf:2:"
printf '[limits]\n\033[31mkey\007 = 1\n' | check 78
[[ $said != *$'\033'* ]] || fail "a key reaches the terminal as it is"
printf '[limits]\nhandles = \033[31m\n' | check 78
[[ $said != *$'\033'* ]] || fail "a value reaches the terminal as it is"

timeout 20 "$npud" --check-config --config "$work/missing.conf" >"$work/out" 2>"$work/err"
status=$?
said=$(<"$work/err")
says "$work/missing.conf"
missing=$status missing_said=$said
# What cannot be read again is no configuration, and an empty one would be taken for the defaults.
expect 78 "$npud" --check-config --config "$work"
says "$work" "a directory" "give a file"
mkfifo "$work/pipe"
expect 78 timeout 20 "$npud" --check-config --config "$work/pipe"
says "$work/pipe" "a pipe" "give a file"
expect 64 "$npud" --no-such-option
expect 64 "$npud" argument
((missing == 78)) || fail "a missing configuration: exit $missing, not 78: $missing_said"
# Groups are looked for, too: without the one npud would not start, without the other nobody could connect.
check 78 <<<"[daemon]"$'\n'"admin_group = no-such-group"
says 'admin_group is "no-such-group": there is no such group'
check 0 <<<"[daemon]"$'\n'"group = no-such-group"
says 'group is "no-such-group": there is no such group'
# Last: a line longer than the reader's buffer.
check 78 <<<"[daemon]"$'\n'"socket = /$(printf 'x%.0s' {1..5000})"
says "$work/npud.conf:2:"

# A place that others could exchange is none: whoever is first in /tmp makes the directory that ours would be in.
if [ "$(id -u)" = 0 ]; then
	mkdir -m 1777 "$work/everyone" && mkdir "$work/everyone/theirs" && chown 2001 "$work/everyone/theirs"
	expect 78 "$npud" --socket "$work/everyone/theirs/run/npud.sock" --state-dir "$work/state"
	says "$work/everyone/theirs: belongs to uid 2001, and lies where everyone may write; choose another place"
	[ ! -e "$work/everyone/theirs/run/npud.sock" ] || fail "it serves there"
fi
