# What the flow tests of the device share; sourced after lib.bash. The device is the software one or, where NPUD_TEST_XRT
# names the module, the real XRT over the device for tests: the environment has where that is.

kind=soft
[ -z "${NPUD_TEST_XRT:-}" ] || kind=xrt

# kernel_set DESIGN...: what the device can run, for start_device, as of tests/mkset. The software device does without,
# and then has kernels for every geometry.
kernels=
kernel_set() {
	kernels=$work/kernels
	mkdir -p "$kernels" && "$NPUD_BIN/tests/mkset" "$kernels" "$@" || fail "mkset $*"
}

# start_device SETTINGS [LINE...]: a daemon with the device, whose faults and limits are SETTINGS; LINEs go into [device],
# or begin a section.
start_device() {
	local settings=$1
	shift
	{
		printf '[device]\nkind = %s\n' "$kind"
		[ -z "$kernels" ] || printf 'kernels = %s\n' "$kernels"
		if [ "$kind" = soft ]; then
			printf 'settings = %s\n' "$settings"
		else
			touch "$work/accel0" # nobody else's, to be locked
			printf 'module = %s\nnode = %s/accel0\nlock = %s/npu.lock\n' "$NPUD_TEST_XRT" "$work" "$work"
			export NPUD_TEST_NPU=$settings
		fi
		(($# == 0)) || printf '%s\n' "$@"
	} >"$work/device.conf"
	start_daemon --config "$work/device.conf"
}

# The same with the software device, whatever is tested.
start_soft() {
	local kind=soft kernels=
	start_device "$@"
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
