#!/bin/bash
# What a program cannot write is said and is a failure; that nobody reads on is no news.
. "$(dirname "$0")/lib.bash"
start_daemon
for command in "$npuctl metrics" "$npuctl status --json" "$npuctl --help" "$head --help" \
	"$npud --help" "$npud --version" "$npud --check-config"; do
	$command >/dev/full 2>"$work/err"
	status=$?
	said=$(<"$work/err")
	((status == 74)) || fail "$command >/dev/full: exit $status"
	says "stdout: cannot write: No space left on device; the output is not complete"
	# The reader has gone before anything is written.
	{
		sleep 0.3
		$command 2>"$work/err"
		echo $? >"$work/status"
	} | true
	[ ! -s "$work/err" ] || fail "$command | true: $(cat "$work/err")"
	[ "$(<"$work/status")" = 74 ] || fail "$command | true: exit $(<"$work/status")"
done
stop_daemon
