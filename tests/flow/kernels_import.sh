#!/bin/bash
# A kernel set is taken in whole or not at all, used from the next start, and can be taken back.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
mkset() { mkdir -p "$1" && "$NPUD_BIN/tests/mkset" "$@" || fail "mkset"; }
mkset "$work/a" 16,512,1024,0 16,512,1024,1
mkset "$work/b" 4,256,128,1
place=$work/state/kernels
designs() { "$npuctl" kernels --json | python3 -c 'import json, sys; print(*(d["kd"] for d in json.load(sys.stdin)["designs"]))'; }
sets() { find "$work/state" -maxdepth 1 -name 'kernels.npud-*' | wc -l; }

start_soft ""
health_becomes ok
built_in=$("$npuctl" device --json | json_field designs)
expect 0 "$npuctl" kernels
[[ $(cat "$work/out") == "no kernel set at $place: npuctl kernels import"* ]] || fail "$(cat "$work/out")"
expect 65 "$npuctl" kernels undo
says "no set before"
expect 65 "$npuctl" kernels remove
says "no kernel set to remove"
expect 64 "$npuctl" kernels import
expect 64 "$npuctl" kernels take "$work/a"
expect 64 "$npuctl" kernels remove "$work/a"

expect 0 "$npuctl" kernels import "$work/a"
[[ $(cat "$work/out") == *"512  1024  row-major"*"512  1024  blocked"*"when it is started next"* ]] || fail "$(cat "$work/out")"
[ "$("$npuctl" device --json | json_field designs)" = "$built_in" ] || fail "it changed under the daemon"
rm -r "$work/a"
stop_daemon
start_soft ""
health_becomes ok
[ "$(device_field designs | grep -o "'kd': 512" | wc -l)" = 2 ] || fail "not the set: $("$npuctl" device)"

[[ $(device_field designs) == *"$place.npud-"* ]] || fail "it would follow the link: $("$npuctl" device)"

# What is wrong is refused before anything is copied.
refused() { # STATUS DIR TEXT...
	local status=$1 directory=$2
	shift 2
	expect "$status" "$npuctl" kernels import "$directory"
	says "$@"
	[ "$(designs)" = "512 512" ] || fail "$*: the set is $(designs) afterwards"
	[ "$(sets)" = 1 ] || fail "$*: $(ls "$work/state")"
}
refused 66 "$work/nowhere" "No such file" "a kernel set is a directory with kernels.json"
mkdir "$work/empty"
refused 66 "$work/empty" "neither a kernels.json nor files named as mlir-aie names them"
cp -r "$work/b" "$work/damaged" && truncate -s 1000 "$work/damaged/0.xclbin"
refused 65 "$work/damaged" "0.xclbin: it should be"
cp -r "$work/b" "$work/gone" && rm "$work/gone/0.bin"
refused 65 "$work/gone" "0.bin: No such file"
cp -r "$work/b" "$work/outside" && sed -i 's|"0.bin"|"../b/0.bin"|' "$work/outside/kernels.json"
refused 65 "$work/outside" "plain names within the directory"
cp -r "$work/b" "$work/text" && echo '{' >"$work/text/kernels.json"
refused 65 "$work/text" "kernels.json is no JSON"

mkdir "$work/pipe" && mkfifo "$work/pipe/kernels.json"
refused 65 "$work/pipe" "kernels.json cannot be read: it is no plain file"

# A daemon goes on with the set that it opened, whatever is imported.
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 3000 512 >/dev/null || fail "make-model"
expect 0 "$npuctl" kernels import "$work/b"
[ "$(designs)" = 256 ] || fail "the set is $(designs)"
run_to "$work/logits" "$work/m.safetensors" --random 5 --rows 3 --path device
run_to "$work/host" "$work/m.safetensors" --random 5 --rows 3 --path host
same_bits "$work/host" "$work/logits" "with the set it opened"

expect 0 "$npuctl" kernels undo
[ "$(designs)" = "512 512" ] || fail "undo gives $(designs)"
expect 0 "$npuctl" kernels undo
[ "$(designs)" = 256 ] || fail "undo of undo gives $(designs)"
expect 0 "$npuctl" kernels remove
grep -q 'npud does without when it is started next' "$work/out" || fail "$(cat "$work/out")"
[ -z "$(designs)" ] || fail "removed, and there is $(designs)"
expect 0 "$npuctl" kernels undo
[ "$(designs)" = 256 ] || fail "undo of remove gives $(designs)"

# What an import left that was killed goes with the next one; of the sets before, one stays. Nothing else is touched.
mkdir "$work/state/kernels.npud-killed" "$work/state/kernels.backup"
touch "$work/state/kernels.npud-killed/0.xclbin"
expect 0 "$npuctl" kernels import "$work/b"
[ "$(sets)" = 2 ] || fail "$(ls "$work/state")"
[ -d "$work/state/kernels.backup" ] || fail "a directory of somebody else's is gone"

# Names as mlir-aie gives them need no manifest.
mkdir "$work/build"
cp "$work/b/0.xclbin" "$work/build/final_64x4096x2048_16x64x64_4c.xclbin"
cp "$work/b/0.bin" "$work/build/insts_64x4096x2048_16x64x64_4c.bin"
cp "$work/b/0.xclbin" "$work/build/final_1x64x64.xclbin" # without instructions: none of ours
expect 0 "$npuctl" kernels import "$work/build"
read -r rows kd nd layout kernel _ < <("$npuctl" kernels --no-headers)
[ "$rows $kd $nd $layout $kernel" = "64 4096 2048 row-major MLIR_AIE" ] || fail "$("$npuctl" kernels)"
stop_daemon

# A place that npuctl did not make is left alone.
start_soft "" "kernels = $work/b"
expect 73 "$npuctl" kernels import "$work/build"
says "$work/b is no kernel set that npuctl imported"
[ "$(designs)" = 256 ] || fail "$work/b was touched"
stop_daemon

# Where there is no directory for it, that is said.
start_soft "" "kernels = $work/not/there"
expect 73 "$npuctl" kernels import "$work/b"
says "$work/not: there is no such directory for a kernel set to go to"
stop_daemon

# Who may not write there is told so.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && getent group users >/dev/null; then
	chmod 755 "$work" "$work/state"
	chgrp users "$work/run" && chmod 750 "$work/run"
	install -m 0755 "$npuctl" "$work/"
	start_soft "" "[daemon]" "group = users"
	expect 77 setpriv --reuid 2001 --regid 2001 --groups 100 -- "$work/npuctl" kernels import "$work/build"
	says "Permission denied; run it as root, or as the user npud runs as"
	stop_daemon
fi
