#!/bin/bash
# npud --check-device, over XRT with the device for tests: says what is wrong, and that all is well.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
mkdir "$dir/set"
"$NPUD_BIN/tests/mkset" "$dir/set" 16,64,128,1 4,128,100,0 || exit 1

config() { # KEY=VALUE...: over what is good
	printf '[device]\nnode = /dev/null\nkernels = %s\nmodule = %s\n' "$dir/set" "$NPUD_TEST_XRT" >"$dir/npud.conf"
	local pair
	for pair in "$@"; do
		sed -i "s|^${pair%%=*} = .*|${pair%%=*} = ${pair#*=}|" "$dir/npud.conf"
	done
}

says() { # STATUS PATTERN WHAT [COMMAND...]
	local status=$1 pattern=$2 what=$3 got
	shift 3
	"$@" "$NPUD_BIN/daemon/npud" --config "$dir/npud.conf" --state-dir "$dir/state" --check-device >"$dir/out" 2>&1
	got=$?
	if [ $got != "$status" ] || ! grep -qE "$pattern" "$dir/out"; then
		echo "FAIL: $what: status $got, and no '$pattern' in:"
		sed 's/^/   | /' "$dir/out"
		bad=1
	fi
}

config
says 0 '^ok  canary +16 x 64 x 128, blocked: right' "all well" env
says 0 '^ok  canary +4 x 128 x 100, row-major: right' "all well" env
says 69 '^BAD canary .* 16 x 64 x 128.*its answer is wrong' "garbage" env NPUD_TEST_NPU=garbage/1
says 69 '^BAD canary .*timed out' "timeout" env NPUD_TEST_NPU=timeout/1
says 69 '^BAD canary .*no hardware context is free' "no context" env NPUD_TEST_NPU=contexts=0
says 69 '^BAD XRT .*XILINX_XRT not set' "XRT not set up" env -u XILINX_XRT
says 0 '^BAD memlock +1024 KiB' "little locked memory" bash -c 'ulimit -l 1024; exec "$@"' -
config node=/dev/accel/none
says 0 '^BAD node +/dev/accel/none: No such file' "no node" env
config module=/nowhere/npud-xrt.so
says 69 '^BAD XRT +no XRT module at /nowhere' "no module" env
config "module=$NPUD_BIN/tests/mkset"
says 69 '^BAD XRT ' "not a module" env
config "kernels="
says 69 '^BAD kernel set .*state/kernels: kernels.json cannot be read' "no kernel set" env
says 69 'npuctl kernels import DIR' "what to do without one" env
config "kernels=$dir/nothing"
says 69 '^BAD kernel set .*kernels.json cannot be read' "no manifest" env
truncate -s 1000 "$dir/set/0.xclbin"
config
says 69 '^BAD kernel set .*0.xclbin: it should be' "a damaged image" env
exit $bad
