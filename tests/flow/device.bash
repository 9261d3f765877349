# What the flow tests of the device share; sourced after lib.bash.

# start_soft SETTINGS [LINE...]: a daemon with the software device; LINEs go into [device], or begin a section.
start_soft() {
	local settings=$1
	shift
	{
		printf '[device]\nkind = soft\nsettings = %s\n' "$settings"
		(($# == 0)) || printf '%s\n' "$@"
	} >"$work/soft.conf"
	start_daemon --config "$work/soft.conf"
}

json_field() { # NAME, of the object on stdin
	python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}

device_field() { "$npuctl" device --json | json_field "$1"; }

# Waits until the device's health is $1, at most $2 (10) seconds.
health_becomes() {
	local i health
	for ((i = 0; i < ${2:-10} * 20; i++)); do
		health=$(device_field health) || fail "npuctl device"
		[ "$health" = "$1" ] && return 0
		sleep 0.05
	done
	fail "health is $health and not $1: $(device_told)"
}

# run_to FILE MODEL OPTION...: logits to FILE; what was said of it in $work/run.json, for which the rows run twice.
run_to() {
	local file=$1
	shift
	timeout 60 "$head" run "$@" --logits "$file" --json >"$work/run.json" 2>"$work/err" ||
		fail "npu-head run $*: $(cat "$work/err")"
}

# The same, once, and nothing is said.
run_once() {
	local file=$1
	shift
	timeout 60 "$head" run "$@" --logits "$file" >/dev/null 2>"$work/err" || fail "npu-head run $*: $(cat "$work/err")"
}

run_field() { json_field "$1" <"$work/run.json"; }

same_bits() { cmp -s "$1" "$2" || fail "$3: other bits than the host's"; }

events_with() { "$npuctl" events | grep -c -- "$1"; }

# All of npuctl device but the kernels.
device_told() { "$npuctl" device | sed '/^$/,$d'; }
