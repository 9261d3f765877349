#!/bin/bash
# path=auto: before both paths are measured one row goes to the host and several to the device; then so many rows go
# where they were quicker.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
went() { # PATH WHY OPTION...
	local path=$1 why=$2
	shift 2
	run_to "$work/logits" "$work/m.safetensors" --random 5 "$@"
	[ "$(run_field path)" = "$path" ] || fail "$*: went to the $(run_field path): $(run_field path_why)"
	[[ $(run_field path_why) == *"$why"* ]] || fail "$*: why: $(run_field path_why)"
}
# Three launches, each slower than many passes of the host.
start_soft "latency=200000"
health_becomes ok
went host "a single row, and not both paths are measured"
went device "several rows, and not both paths are measured" --rows 3
went host "asked for" --rows 3 --path host
went host "the host was quicker for so many rows" --rows 3
went device "asked for" --path device
went host "the host was quicker for so many rows"
# Other numbers of rows have times of their own.
went device "several rows, and not both paths are measured" --rows 16
stop_daemon
