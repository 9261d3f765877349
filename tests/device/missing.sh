#!/bin/bash
# Whatever an NPU lacks, npud and --check-device say which it is and what to do, and the host does the work.
. "$(dirname "$0")/../flow/lib.bash"
. "$(dirname "$0")/../flow/device.bash"
[ "$kind" = xrt ] || skip "it needs XRT with the device for tests"
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
kernel_set 16,512,1024,1
run() { run_once "$work/$1" "$work/m.safetensors" --random 5 --rows 3; }
start_daemon
run host
stop_daemon

# How npud is started: what is put before it.
real=$npud
under() { # COMMAND...
	printf '#!/bin/bash\nexec %s %q "$@"\n' "${*@Q}" "$real" >"$work/npud"
	chmod 755 "$work/npud"
	npud=$work/npud
}

# lacks HEALTH STATUS TEXT... [-- LINE...]: that is npud's health and --check-device's status; TEXTs are in npud's log and in
# what --check-device prints.
lacks() {
	local health=$1 status=$2 text texts=()
	shift 2
	while (($#)) && [ "$1" != -- ]; do
		texts+=("$1")
		shift
	done
	: >"$log"
	start_device "" "${@:2}"
	health_becomes "$health"
	run answer
	same_bits "$work/host" "$work/answer" "${texts[0]}"
	stop_daemon
	for text in "${texts[@]}"; do
		grep -qF -- "$text" "$log" || fail "'$text' is not in the log"
	done
	timeout 60 "$npud" --config "$work/device.conf" --state-dir "$work/state" --check-device >"$work/out" 2>&1
	[ $? = "$status" ] || fail "${texts[0]}: --check-device does not exit $status: $(cat "$work/out")"
	for text in "${texts[@]}"; do
		grep -qF -- "$text" "$work/out" || fail "'$text' is not said by --check-device: $(cat "$work/out")"
	done
}

under env -u XILINX_XRT
lacks absent 69 "XILINX_XRT not set"
grep -q 'set XILINX_XRT to where XRT is' "$work/out" || fail "what to do about XILINX_XRT is not said: $(cat "$work/out")"

# The real library with its driver for hardware that is not here.
mkdir -p "$work/real/lib"
core=$(find /usr/lib /opt/xilinx -name libxrt_core.so.2 -print -quit 2>/dev/null)
[ -n "$core" ] || fail "libxrt_core.so.2 is not there"
ln -s "$core" "$work/real/lib/"
under env -u XCL_EMULATION_MODE XILINX_XRT="$work/real"
lacks absent 69 "Could not open device" "$work/nowhere: No such file" "modprobe amdxdna" -- "node = $work/nowhere"

npud=$real
lacks absent 69 "no XRT module at $work/nowhere.so" "docs/kernels.md" -- "module = $work/nowhere.so"
sed 's/libxrt_coreutil\.so\.2/libxrt_coreutil.so.9/g' "$NPUD_TEST_XRT" >"$work/other.so"
lacks absent 69 "libxrt_coreutil.so.9: cannot open" "install XRT, or build the module" -- "module = $work/other.so"
under bash -c 'ulimit -l 1024 && exec "$@"' -
lacks ok 0 "1024 KiB of memory may be locked" "LimitMEMLOCK=infinity"

npud=$real
truncate -s 1000 "$kernels/0.xclbin"
lacks absent 69 "0.xclbin: it should be" "build the kernel set again"
kernel_set 16,512,1024,1,elf
lacks failed 69 "cannot load a full ELF image, which needs 2.19" "use a kernel set with xclbin images"
kernel_set 16,512,1024,1

# A user whose node it is not.
user=(setpriv --reuid 2001 --regid 2001 --clear-groups)
if [ "$(id -u)" = 0 ] && "${user[@]}" test -x "$real" -a -r "$NPUD_TEST_XRT" 2>/dev/null; then
	touch "$work/accel0" && chmod 600 "$work/accel0"
	chmod 755 "$work"
	chown -R 2001 "$work/run" "$work/cache" "$work/state"
	under "${user[@]}" env HOME="$work"
	lacks ok 0 "accel0 cannot be opened for reading and writing: Permission denied" "add npud's user to the group"
fi
