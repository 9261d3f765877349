#!/bin/bash
# npu-bench compare: two settings by turns, rows matched, bits compared, and a status that is 0 only where all holds.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
bench=$NPUD_BIN/client/npu-bench
PATH=$NPUD_BIN/daemon:$PATH
mkdir "$work/tmp"
export TMPDIR=$work/tmp
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 1000 128 1 >/dev/null || fail "make-model"
"$NPUD_BIN/tests/make-model" "$work/other.safetensors" 1000 128 2 >/dev/null || fail "make-model"
compare=("$bench" compare "$work/m.safetensors" --seconds 0.1)
holds() { # ASSERTIONS of `d`, the object in $work/out; rows by phase are in `row`
	python3 - "$work/out" "$1" <<'EOC' || fail "$1: $(cat "$work/out")"
import json, sys
d = json.load(open(sys.argv[1]))
row = {r["a"]["phase"]: r for r in d["rows"]}
exec(sys.argv[2])
EOC
}
nothing_is_left() {
	[ -z "$(ls "$work/tmp")" ] || fail "left behind: $(ls "$work/tmp")"
	! pgrep -f "$work/tmp/" >/dev/null || fail "a daemon is left behind"
}

# The host against the device, of a daemon that is there; a launch takes as long as many passes of the host.
start_soft "latency=20000"
health_becomes ok
"$head" run "$work/m.safetensors" --random 1 >/dev/null || fail "a head that stays resident"
expect 0 "${compare[@]}" --a path=host --b path=device --rounds 2 --json
holds 'assert d["holds"] and not d["unmatched"] and not d["differing"] and d["answers"] >= 2 * 2 * 3 * 4
assert d["a"]["setting"] == "path=host" and not d["a"]["own_daemon"] and d["b"]["health"] == "ok"
assert set(row) == {"decode", "batch", "prefill"}
assert row["decode"]["a"]["m"] == 1 and row["decode"]["b"]["m"] == 16 and "launch" in row["decode"]["exception"]
assert row["batch"]["a"]["m"] == row["batch"]["b"]["m"] == 16 and row["batch"]["exception"] == ""
assert all(r["a"]["path"] == "host" and r["b"]["path"] == "device" and r["rounds"] == 2 for r in d["rows"])
assert all(r["low"] <= r["ratio"] <= r["high"] for r in d["rows"]) and row["prefill"]["ratio"] > 1.5'
expect 1 "${compare[@]}" --a path=host --b path=device --rounds 1 --tolerance 50 --one-sided
grep -q '^verdict: does not hold' "$work/out" && grep -q 'decode: --b takes' "$work/out" || fail "$(cat "$work/out")"
expect 0 "${compare[@]}" --a path=device --b path=host --rounds 1 --tolerance 50 --one-sided
grep -q '^verdict: holds' "$work/out" && grep -q 'all equal, bit for bit' "$work/out" &&
	grep -q '^b: path=host: npud .*, device soft ok, [0-9]* other client' "$work/out" || fail "$(cat "$work/out")"
expect 1 "${compare[@]}" --a path=device --b path=host --rounds 1 --tolerance 50
expect 0 "${compare[@]}" --a path=host --b path=alternate --rounds 1 --json
holds 'assert {r["b"]["path"] for r in d["rows"] if r["a"]["phase"] == "decode"} == {"host", "device"}'

# The weights change meanwhile: other bits are noticed, in whichever side they turn up.
"$npuctl" evict "$("$npuctl" heads --no-headers | awk '{ print $1 }')" >/dev/null || fail "evict"
cp "$work/m.safetensors" "$work/changing.safetensors"
"$bench" compare "$work/changing.safetensors" --seconds 0.1 --rounds 4 --a path=host --b "socket=$socket,path=host" \
	>"$work/out" 2>"$work/err" &
bench_pid=$!
children+=($bench_pid)
for ((i = 0; i < 400; i++)); do
	[ -n "$("$npuctl" heads --no-headers)" ] && break
	sleep 0.05
done
mv "$work/other.safetensors" "$work/changing.safetensors"
status=0
wait $bench_pid || status=$?
((status == 1)) || fail "other bits: exit $status: $(cat "$work/out" "$work/err")"
grep -q 'answers have other bits than the first one; first in .*: logit .* of row' "$work/out" || fail "$(cat "$work/out")"

# What is the daemon's own: one is started, with the configuration of this environment.
export NPUD_CONFIG=$work/device.conf
sed -i 's/^settings.*/settings =/' "$work/device.conf"
# What it does for others is no part of that.
printf '[preload]\nall = %s\n[tenant flm]\npause = touch %s/paused\nresume = true\n' "$work/m.safetensors" "$work" >>"$work/device.conf"
expect 0 "${compare[@]}" --a threads=1,store=on,path=host --b path=device,store=off,batch=64 --rounds 2 --json
holds 'assert d["holds"] and d["a"]["own_daemon"] and d["b"]["own_daemon"] and d["b"]["device"] == "soft"
assert row["open"]["a"]["m"] == 0 and row["open"]["rounds"] == 2
assert row["prefill"]["a"]["m"] == 16 and row["prefill"]["b"]["m"] == 128'
expect 0 "${compare[@]}" --a batch=8,path=host --b batch=128,path=host --rounds 1 --json
holds 'assert row["prefill"]["a"]["m"] == 8 and row["prefill"]["b"]["m"] == 128 and "batch limit" in row["prefill"]["exception"]'
holds 'assert row["open"]["rounds"] == 1, "it was preloaded"'
nothing_is_left
expect 0 "$NPUD_BIN/client/npu-hold" -- "$bench" compare "$work/m.safetensors" --seconds 0.1 --rounds 1 --a threads=1 --b path=host
nothing_is_left

# Interrupted.
"${compare[@]}" --rounds 1000 --a threads=1 --b threads=2 >"$work/out" 2>"$work/err" &
bench_pid=$!
children+=($bench_pid)
for ((i = 0; i < 400; i++)); do
	compgen -G "$work/tmp/*/run/npud.sock" >/dev/null && break
	sleep 0.05
done
kill -TERM $bench_pid
status=0
wait $bench_pid || status=$?
((status == 143)) || fail "interrupted: exit $status: $(cat "$work/err")"
nothing_is_left

expect 64 "${compare[@]}" --a path=host
says "--b SETTINGS is missing"
expect 64 "${compare[@]}" --a path=npu --b path=host
says "--a path=npu" "auto, host, device or alternate"
expect 64 "${compare[@]}" --a "socket=$socket,threads=2" --b ""
says "leave out the socket"
expect 64 "${compare[@]}" --a "" --b "" --one-sided
says "--tolerance"
expect 64 "${compare[@]}" --a "" --b "" --want logits
says "an option goes with clients only"
expect 64 "${compare[@]}" --a "" --b "" --rounds 1.5
expect 64 "$bench" compare --a "" --b ""
expect 66 "$bench" compare "$work/none" --a "" --b ""
expect 69 "${compare[@]}" --a "" --b "socket=$work/none"
says "$work/none"
printf '[device]\nkind = none\n' >"$work/none.conf"
NPUD_CONFIG=$work/none.conf expect 69 "${compare[@]}" --a threads=1 --b threads=1,path=device
says "--b" "path=device cannot be had"
printf '[device]\nkind = elf\n' >"$work/none.conf"
NPUD_CONFIG=$work/none.conf expect 69 "${compare[@]}" --a threads=1 --b path=host
says "--a: the daemon that was started for it ended" "kind"
nothing_is_left
stop_daemon
