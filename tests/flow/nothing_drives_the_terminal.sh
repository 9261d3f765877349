#!/bin/bash
# What comes from arguments, files and other clients is shown on a terminal and never obeyed.
. "$(dirname "$0")/lib.bash"
evil=$'\033]0;owned\007\x9b31m\nnpuctl: fine'
hold=$NPUD_BIN/client/npu-hold
bench=$NPUD_BIN/client/npu-bench

clean() { # FILE WHAT: lines of printable ASCII, and something escaped
	! LC_ALL=C grep -q '[^ -~]' "$1" || fail "$2: $(cat -v "$1")"
	grep -qF '\x1b]0;owned\x07' "$1" || fail "$2 does not show what it was given: $(cat "$1")"
	! grep -q '^npuctl: fine' "$1" || fail "$2: a line of its own: $(cat "$1")"
}
complains() { # COMMAND...: fails, with the evil words made harmless
	timeout 60 "$@" >"$work/out" 2>&1 </dev/null && fail "$*: did not fail"
	clean "$work/out" "${1##*/} ${2-}"
}

for program in "$npud" "$npuctl" "$head" "$hold" "$bench"; do
	complains "$program" "--$evil"
done
complains "$npud" "$evil"
complains "$npud" --config "/$evil"
complains "$npud" --socket "/dev/null/$evil/s" --cache-dir "$work/c" --state-dir "$work/s"
complains "$npuctl" "$evil"
complains "$npuctl" --socket "/$evil" status
complains "$head" --socket "/$evil" run "$work/none" --random 1
complains "$head" "$evil"
complains "$head" compare "$evil" "$work/none"
complains "$head" check "$work/$evil"
complains "$bench" "$evil"
complains "$hold" --time "$evil" true
complains "$hold" --socket "/$evil" -- true

label=${evil//$'\x9b31m'/} # which is UTF-8, or it is refused
# Names that another client gave: in tables, sentences, the journal and the daemon's log.
start_daemon
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 300 64 >/dev/null || fail "make-model"
cp "$work/m.safetensors" "$work/$label" || fail "a file of that name"
complains "$npuctl" kick "$evil"
complains "$npuctl" store show "$evil"
complains "$npuctl" kernels import "/$evil"
complains "$npuctl" plan "$work/none$evil"
complains "$head" run "$work/none$evil" --random 1
"$hold" --label "$label" -- "$npuctl" tickets >"$work/out" || fail "npu-hold"
clean "$work/out" "npuctl tickets"
"$head" run "$work/$label" --random 1 >/dev/null || fail "a model of that name"
"$npuctl" heads >"$work/out" || fail "npuctl heads"
clean "$work/out" "npuctl heads"
"$hold" --label "$label" -- "$npuctl" tickets show 2 >"$work/out" || fail "npuctl tickets show"
clean "$work/out" "npuctl tickets show"
"$npuctl" events >"$work/out" || fail "events"
! LC_ALL=C grep -q '[^ -~]' "$work/out" || fail "events: $(cat -v "$work/out")"
! LC_ALL=C grep -q '[^ -~]' "$log" || fail "the log: $(cat -v "$log")"
stop_daemon
