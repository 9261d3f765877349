#!/bin/bash
# Where rows run: asked for by option, environment and configuration; verified; and refused where it cannot be.
. "$(dirname "$0")/lib.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
start_daemon
run() { "$head" run "$work/m.safetensors" --random 5 --rows 3 --json "$@"; }
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
top() { python3 -c 'import json, sys; print(json.load(sys.stdin)["top"])'; }

plain=$(run | top) || fail "a plain run"
for path in auto host alternate; do
	out=$(run --path $path) || fail "--path $path"
	[ "$(field path <<<"$out")" = host ] || fail "$path without a device ran on $(field path <<<"$out")"
	[ "$(top <<<"$out")" = "$plain" ] || fail "--path $path gives other words"
done
out=$(run --verify) || fail "--verify"
[ "$(field verified <<<"$out")" = True ] || fail "--verify is not reported"
[ "$(top <<<"$out")" = "$plain" ] || fail "--verify gives other words"

refused() { # STATUS WORD COMMAND...
	local status=0 want=$1 word=$2
	shift 2
	"$@" >"$work/out" 2>"$work/said" || status=$?
	[ $status = "$want" ] || fail "$*: status $status instead of $want: $(cat "$work/said")"
	grep -q -- "$word" "$work/said" || fail "$*: '$word' is not in: $(cat "$work/said")"
}
refused 69 'path=device cannot be had: there is no device' run --path device
refused 64 'no such path' run --path npu
refused 69 'path=device' env NPUD_HEAD_PATH=device "$head" run "$work/m.safetensors" --random 5
# The environment of a program that serves: a typo is a warning, the empty string is unset.
refused 0 'no such path' env NPUD_HEAD_PATH=garbage "$head" run "$work/m.safetensors" --random 5
[ -s "$work/out" ] || fail "a typo in the environment ends the run"
NPUD_HEAD_PATH= "$head" run "$work/m.safetensors" --random 5 >/dev/null 2>"$work/said" || fail "an empty NPUD_HEAD_PATH"
[ ! -s "$work/said" ] || fail "an empty NPUD_HEAD_PATH is warned of: $(cat "$work/said")"
NPUD_HEAD_PATH=device run --path host >/dev/null || fail "the option does not come before the environment"
stop_daemon

printf '[head]\npath = device\n' >"$work/npud.conf"
start_daemon --config "$work/npud.conf"
refused 69 'path=device' run
NPUD_HEAD_PATH=host run >/dev/null || fail "the environment does not come before the configuration"
stop_daemon
printf '[head]\npath = npu\n' >"$work/npud.conf"
refused 78 'auto, host, device or alternate' "$npud" --config "$work/npud.conf" --check-config
