#!/bin/bash
# npuctl store add packs ahead of time; export writes what npu-head pack writes; import keeps nothing of which one column differs
# from the model, and what it keeps is a hit.
. "$(dirname "$0")/lib.bash"
for i in 1 2; do
	"$NPUD_BIN/tests/make-model" "$work/m$i.safetensors" 3000 200 $i || fail "make-model"
done
add() { "$npuctl" store add "$@" --json; }
stored() { "$npuctl" store --json | jq "$1"; }

start_daemon --config "$keep_nothing"
said=$(add "$work/m1.safetensors" --tile 1024) || fail "add"
jq -e '.tiles == 3 and .packed == 3 and .written == 3 and .layout == "blocked"' <<<"$said" >/dev/null || fail "add: $said"
said=$("$head" open "$work/m1.safetensors" --tile 1024 --json) || fail "open"
jq -e '.from_store == 3 and .packed == 0' <<<"$said" >/dev/null || fail "what was added is no hit: $said"
expect 0 "$npuctl" store add "$work/m1.safetensors" --tile 1024
grep -q '0 written, 3 were there' "$work/out" || fail "again: $(cat "$work/out")"
expect 64 "$npuctl" store add
expect 66 "$npuctl" store add "$work/nothing.safetensors"
expect 64 "$npuctl" store verify --tile 5
NPUD_STORE=0 expect 64 "$npuctl" store add "$work/m1.safetensors"
says "NPUD_STORE=0"

mkdir "$work/out1" "$work/packed" "$work/bad"
hash=$(stored '.heads[0].hash' | tr -d '"')
said=$("$npuctl" store export "${hash:0:8}" --out "$work/out1" --json) || fail "export"
"$head" pack "$work/m1.safetensors" --tile 1024 --out "$work/packed" >/dev/null || fail "pack"
for t in 0 1 2; do
	file=$work/out1/headimg-$hash-t$t.q4hi
	[ "$(jq -r ".files[$t].file" <<<"$said")" = "${file##*/}" ] || fail "names: $said"
	cmp "$file" "$work"/packed/*-t$t.q4hi || fail "export and pack write different bytes"
done
# Ended while it waits for who reads a tile: it says so under its own name, and leaves no unfinished file.
mkdir "$work/pipe" && mkfifo "$work/pipe/headimg-$hash-t1.q4hi"
timeout 60 "$npuctl" store export "$hash" --out "$work/pipe" >/dev/null 2>"$work/err" &
exporter=$!
until [ -e "$work/pipe/headimg-$hash-t0.q4hi" ]; do
	kill -0 "$exporter" 2>/dev/null || fail "export: $(cat "$work/err")"
	sleep 0.05
done
kill -TERM "$exporter" # timeout passes it on
status=0
wait "$exporter" || status=$?
[ $status = 143 ] && [ "$(cat "$work/err")" = "npuctl: interrupted" ] || fail "exit $status: $(cat "$work/err")"
! compgen -G "$work/pipe/*.tmp.*" || fail "an unfinished file is left behind"
expect 65 "$npuctl" store export nothing --out "$work/out1"
expect 64 "$npuctl" store export "$hash"
expect 73 "$npuctl" store export "$hash" --out "$work/out1/none"

# A model whose head is not there yet, from the files of npu-head pack.
"$npuctl" store prune >/dev/null && "$npuctl" store compact >/dev/null || fail "prune"
files=("$work"/packed/*.q4hi)
refuse() { # WHAT SAYS: the files in bad are not imported, and nothing is kept
	expect 65 "$npuctl" store import "${model:-$work/m1.safetensors}" "$work"/bad/*
	says "$2"
	[ "$(stored '.heads | length')" = 0 ] || fail "$1: something was kept"
	rm -f "$work"/bad/*
}
cp "${files[@]}" "$work/bad"
model=$work/m2.safetensors refuse "other weights" "column 0"
cp "${files[@]:0:2}" "$work/bad"
refuse "a tile less" "t2 of 3 is missing"
cp "${files[@]}" "$work/bad"
printf 'x' | dd of="$work/bad/${files[1]##*/}" bs=1 seek=5000 conv=notrunc status=none
refuse "damage" "hash"
cp "${files[0]}" "$work/bad/a-t1.q4hi"
cp "${files[1]}" "$work/bad/a-t0.q4hi"
cp "${files[2]}" "$work/bad/a-t2.q4hi"
refuse "tiles exchanged" "column 0"
# One code changed, and the file's own hash made good again: only the comparison can find that.
cp "${files[@]}" "$work/bad"
python3 - "$work/bad/${files[2]##*/}" <<'END' || fail "python"
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
at = 24 + 777
data[at] = (data[at] + 1) % 100
fnv = 0xCBF29CE484222325
for byte in data[24:]:
    fnv = (fnv ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
data[16:24] = struct.pack("<Q", fnv)
open(sys.argv[1], "wb").write(data)
END
refuse "one code" "the code is"
expect 65 "$npuctl" store import "$work/m1.safetensors" "${files[@]}" --layout row-major
says "--layout"
cp "${files[0]}" "$work/x.q4hi"
expect 64 "$npuctl" store import "$work/m1.safetensors" "$work/x.q4hi"
says "which tile"
# Geometries that only a device's kernel has: wider than the vocabulary, deeper than the model.
"$NPUD_BIN/tests/make-model" "$work/narrow.safetensors" 300 200 && "$NPUD_BIN/tests/make-model" "$work/flat.safetensors" 3000 100 ||
	fail "make-model"
expect 65 "$npuctl" store import "$work/narrow.safetensors" "$work"/packed/*-t0.q4hi
says "T=1024 does not go" "cut for a kernel of a device: npuctl store add"
expect 65 "$npuctl" store import "$work/flat.safetensors" "$work"/packed/*.q4hi
says "kd 256, nd 1024" "kd 128" "cut for a kernel of a device: npuctl store add"

expect 0 "$npuctl" store import "$work/m1.safetensors" "${files[@]}"
said=$("$head" open "$work/m1.safetensors" --tile 1024 --json) || fail "open"
jq -e '.from_store == 3 and .packed == 0' <<<"$said" >/dev/null || fail "what was imported is no hit: $said"

# The same weights cut another way have the same hash.
expect 0 "$npuctl" store add "$work/m1.safetensors" --tile 1000 --layout row-major
rm -f "$work"/out1/* "$work"/packed/*
expect 65 "$npuctl" store export "$hash" --out "$work/out1"
says "2 heads are so called" "--layout"
expect 64 "$npuctl" store export "$hash" --out "$work/out1" --tensor x
expect 0 "$npuctl" store show "$hash" --tile 1024
expect 0 "$npuctl" store export "$hash" --out "$work/out1" --layout row-major
"$head" pack "$work/m1.safetensors" --tile 1000 --layout row-major --out "$work/packed" >/dev/null || fail "pack"
for t in 0 1 2; do
	cmp "$work/out1/headimg-$hash-t$t.q4hi" "$work"/packed/*-t$t.q4hi || fail "row-major: other bytes"
done
expect 0 "$npuctl" store import "$work/m1.safetensors" "$work"/packed/*.q4hi --layout row-major
grep -q '0 written, 3 were there' "$work/out" || fail "import: $(cat "$work/out")"

# A user who is no administrator gets nobody's weights.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	chmod 0755 "$work" "$work/run"
	chmod 0666 "$socket" "$socket.fd"
	install -m 0755 "$npuctl" "$work/npuctl"
	mkdir -m 0777 "$work/theirs"
	expect 77 setpriv --reuid 65534 --regid 65534 --clear-groups "$work/npuctl" store export "$hash" --tile 1024 --out "$work/theirs"
	[ -z "$(ls -A "$work/theirs")" ] || fail "a file is left of a refused export"
fi
"$npuctl" store prune >/dev/null && "$npuctl" store compact >/dev/null || fail "prune"
stop_daemon

# Resident but not in the store, for whatever reason: the next who may use the store has it written.
start_daemon
NPUD_STORE=0 "$head" open "$work/m2.safetensors" --tile 1024 >/dev/null || fail "open"
[ "$(stored '.heads | length')" = 0 ] || fail "written although it was off"
said=$(add "$work/m2.safetensors" --tile 1024) || fail "add"
jq -e '.packed == 0 and .written == 3' <<<"$said" >/dev/null || fail "not written from memory: $said"

# So too where a bad record was taken out under a resident head.
"$head" open "$work/m1.safetensors" --tile 1024 >/dev/null || fail "open"
python3 "$here/store_damage.py" codes 0 "$work/cache/images/db/data.mdb" || fail "store_damage"
expect 1 "$npuctl" store verify --remove
grep -q 'removed' "$work/out" || fail "verify: $(cat "$work/out")"
[ "$(stored '.heads | length')" = 1 ] || fail "not one head is left"
written=0
for i in 1 2; do
	said=$(add "$work/m$i.safetensors" --tile 1024) || fail "add"
	written=$((written + $(jq .written <<<"$said")))
done
[ $written = 3 ] || fail "$written tiles were written, not the 3 that were taken out"
expect 0 "$npuctl" store verify
stop_daemon
