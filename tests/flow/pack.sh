#!/bin/bash
# npu-head pack writes the images that the oracle writes, without a daemon; check accepts them and nothing else.
. "$(dirname "$0")/lib.bash"
oracle=${NPUD_TEST_ORACLE:-$data/../tools/oracle.py}
"$NPUD_BIN/tests/make-model" "$work/m.safetensors" 300 100 || fail "make-model"
mkdir "$work/images"

pack() { # STATUS MODEL OPTION...: the files are in order in ${files[@]}
	local status=$1 model=$2 file
	shift 2
	rm -f "$work/images"/*
	expect "$status" "$head" pack "$model" --out "$work/images" "$@"
	files=("$work/images"/*-t*.q4hi)
	for file in "$work/images"/*; do
		[[ $status == 0 && ${file##*/} =~ ^headimg-[0-9a-f]{32}-t[0-9]+\.q4hi$ ]] || [[ $file == *'*' ]] ||
			fail "pack left $file"
	done
}
# Three tiles of 128 columns: 24 + 128 * 128 + 4 * 128 bytes each.
pack 0 "$work/m.safetensors" --tile 128
((${#files[@]} == 3)) || fail "not 3 tiles: ${files[*]}"
for file in "${files[@]}"; do
	(($(stat -c %s "$file") == 24 + 128 * 132)) || fail "$file has $(stat -c %s "$file") bytes"
	expect 0 "$head" check "$file"
	grep -q "sound: kd 128, nd 128, 16920 bytes" "$work/out" 2>/dev/null || fail "check: $said"
	expect 0 "$head" check "$file" --tile 128 --json
done
python3 - "$work/images" "${files[0]}" <<'PY' || fail "the files are not what their header says"
import struct, sys
b = open(sys.argv[2], "rb").read()
assert b[:8] == b"Q4HI0001" and struct.unpack("<II", b[8:16]) == (128, 128)
h = 0xcbf29ce484222325
for c in b[24:]:
    h = (h ^ c) * 0x100000001b3 & (1 << 64) - 1
assert struct.unpack("<Q", b[16:24])[0] == h
PY
# The same weights have the same names, whoever packs them; other weights have others.
first=${files[0]##*/}
pack 0 "$work/m.safetensors" --tile 128 --json
[ "${files[0]##*/}" = "$first" ] || fail "the name of the same weights changed"
"$NPUD_BIN/tests/make-model" "$work/n.safetensors" 300 100 2 || fail "make-model"
pack 0 "$work/n.safetensors" --tile 128
[ "${files[0]##*/}" != "$first" ] || fail "other weights have the same name"

# check refuses by what is wrong.
file=${files[1]}
expect 65 "$head" check "$file" --tile 256
says "nd 128" "nd 256"
cp "$file" "$work/bad.q4hi"
printf '\x55' | dd of="$work/bad.q4hi" bs=1 seek=300 conv=notrunc status=none
expect 65 "$head" check "$work/bad.q4hi"
says hash bad.q4hi
truncate -s -1 "$work/bad.q4hi"
expect 65 "$head" check "$work/bad.q4hi"
says "short payload"
expect 65 "$head" check "$work/m.safetensors"
says magic
expect 66 "$head" check "$work/absent.q4hi"
says "not there"

# pack refuses, and leaves nothing.
pack 65 "$work/m.safetensors" --tile 100
pack 65 "$work/m.safetensors" --tensor none
pack 66 "$work/missing.safetensors"
python3 - "$work/vast.safetensors" <<'PY' || fail "python3"
import struct, sys
n, h = 1 << 31, 1024 # 4 TB that take no place on the disk
text = ('{"lm_head.weight":{"dtype":"BF16","shape":[%d,%d],"data_offsets":[0,%d]}}' % (n, h, n * h * 2)).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    f.truncate(8 + len(text) + n * h * 2)
PY
pack 65 "$work/vast.safetensors"
says vast.safetensors "this machine's memory"
expect 73 "$head" pack "$work/m.safetensors" --out "$work/nowhere"
says nowhere "make it first"
expect 64 "$head" pack "$work/m.safetensors"
says --out
expect 64 "$head" pack "$work/m.safetensors" --out "$work/images" --layout diagonal
says diagonal

# Byte for byte the oracle's, in both layouts, dense and quantised.
[ -r "$oracle" ] || skip "$oracle is not there; all but the comparison with it passed"
compared=0
for case in "gguf/stories260K-q8_0.gguf output.weight blocked 128" "gguf/stories260K.gguf output.weight row-major 200" \
	"safetensors/ollama-minicpm3-zeros.safetensors lm_head.weight blocked 128"; do
	read -r file tensor layout tile <<<"$case"
	[ -r "$data/$file" ] || continue
	pack 0 "$data/$file" --tile "$tile" --layout "$layout"
	rm -f "$work"/oracle.*
	python3 "$oracle" image "$data/$file" "$tensor" "$work/oracle" --tile "$tile" --layout "${layout%-major}" >/dev/null ||
		fail "the oracle on $file"
	theirs=("$work"/oracle "$work"/oracle.*)
	[ -e "${theirs[0]}" ] || theirs=("${theirs[@]:1}")
	[ -e "${theirs[-1]}" ] || unset 'theirs[-1]'
	((${#theirs[@]} == ${#files[@]})) || fail "$file: ${#files[@]} tiles, the oracle ${#theirs[@]}"
	for ((i = 0; i < ${#files[@]}; i++)); do
		cmp "$work/images"/*-t$i.q4hi "${theirs[i]}" || fail "$file: tile $i of $layout is not the oracle's"
		compared=$((compared + 1))
	done
done
echo "$compared images equal the oracle's"
