#!/bin/bash
# Every bad input has its exit status and a message a person can read, and the daemon goes on.
. "$(dirname "$0")/lib.bash"
model=$work/m.safetensors
"$NPUD_BIN/tests/make-model" "$model" 300 64 || fail "make-model"

printable() {
	python3 -c 'import sys
b = open(sys.argv[1], "rb").read()
t = b.decode()
sys.exit(not (t.strip() and t.endswith("\n") and t.replace("\n", "").isprintable()))' "$work/err"
}

# Without a daemon.
expect 69 "$head" run "$model" --random 1
says "$socket"
expect 69 "$npuctl" ping
says "$socket"
expect 69 "$npuctl" --socket "$work/other.sock" status
says "$work/other.sock"

start_daemon
files=0 wrong=
if [ -r "$data/bad/MANIFEST.tsv" ]; then
	while IFS=$'\t' read -r file verdict _; do
		case $file in image/*) continue ;; esac
		files=$((files + 1))
		timeout 30 "$head" run "$data/bad/$file" --random 1 >"$work/out" 2>"$work/err"
		status=$?
		wanted=65
		[ "$verdict" = accept ] && wanted=0
		if ((status != wanted)); then
			wrong+="$file ($verdict): exit $status: $(cat -v "$work/err")"$'\n'
		elif ((status != 0)) && ! printable; then
			wrong+="$file: message: $(cat -v "$work/err")"$'\n'
		fi
	done <"$data/bad/MANIFEST.tsv"
	((files > 100)) || fail "only $files files of bad/MANIFEST.tsv"
	daemon_lives "the files of bad/"

	# The table of a model with weights that are not finite has finite scores only.
	expect 0 "$head" run "$data/bad/gguf/ok-nonfinite.gguf" --random 1 --top 4
	says "not finite"
	[[ $(head -n 1 "$work/out") == *SCORE* ]] || fail "no table: $(cat "$work/out")"
	(($(wc -l <"$work/out") == 5)) || fail "not 4 words: $(cat "$work/out")"
	! grep -qiE 'nan|inf' "$work/out" || fail "scores that are not finite: $(cat "$work/out")"
	expect 0 "$head" run "$data/bad/gguf/ok-nonfinite.gguf" --random 1 --json
	python3 -c 'import json, sys
assert json.load(open(sys.argv[1]))["weights_nonfinite"] > 0' "$work/out" || fail "weights_nonfinite"
else
	echo "without the files of bad/: $data is not there"
fi

# Files of terabytes that take no place on the disk are refused before they are read.
python3 - "$work" <<'PY' || fail "python3"
import struct, sys
work = sys.argv[1]
n, h = 1 << 31, 1024
text = ('{"lm_head.weight":{"dtype":"BF16","shape":[%d,%d],"data_offsets":[0,%d]}}' % (n, h, n * h * 2)).encode()
with open(work + "/sparse.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    f.truncate(8 + len(text) + n * h * 2)
with open(work + "/sparse.gguf", "wb") as f:
    f.write(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 8, 1 << 37))
    f.truncate(1 << 41)
PY
expect 75 "$head" run "$work/sparse.safetensors" --random 1
says sparse.safetensors "can never fit" max_bytes
expect 0 "$npuctl" plan "$work/sparse.safetensors"
grep -q "can never fit" "$work/out" || fail "$(cat "$work/out")"
for tool in "$head run --random 1" "$head tensors" "$npuctl plan"; do
	expect 65 $tool "$work/sparse.gguf"
	says sparse.gguf 'key "a"' "a header may have"
done

# What is no file, by whatever asks for a model: one sentence, which names it once.
mkfifo "$work/pipe.gguf"
mkdir "$work/loop" && ln -s model.safetensors "$work/loop/model.safetensors"
mkdir "$work/one" && ln -s "$model/below" "$work/one/model.safetensors"
python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$work/socket.gguf" || fail "python3"
for tool in "$head run --random 1" "$head open" "$head tensors" "$npuctl plan" "$npuctl store add"; do
	expect 66 $tool "$work/none.gguf"
	says "$work/none.gguf: no such file"
	[[ $said != *none.gguf*none.gguf* ]] || fail "$tool names its model twice: $said"
	for odd in pipe socket; do
		expect 65 $tool "$work/$odd.gguf"
		says "$odd.gguf: is not a regular file; name the model file"
	done
	expect 65 $tool ""
	says "the name of the model is empty"
	# A file of a model is one whether it was named or found.
	for odd in loop one; do
		expect 66 $tool "$work/$odd"
		says "model.safetensors: cannot open" "check the"
	done
done
mkdir "$work/packed"
expect 66 "$head" pack "$work/loop" --out "$work/packed"

# Activations.
python3 - "$work" <<'PY' || fail "python3"
import array, struct, sys
work = sys.argv[1]
x = array.array("f", [(i * 37 % 101 - 50) / 16 for i in range(3 * 64)])
if sys.byteorder == "big":
    x.byteswap()
raw = x.tobytes()
open(work + "/x.raw", "wb").write(raw)
open(work + "/x100.raw", "wb").write(raw[:400])
open(work + "/odd.raw", "wb").write(raw[:255])
open(work + "/none.raw", "wb").close()
def npy(name, shape, data, descr="<f4", order="False"):
    h = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)
    h += " " * (-(10 + len(h) + 1) % 64) + "\n"
    open(work + "/" + name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h.encode() + data)
npy("x.npy", "(3, 64)", raw)
npy("one.npy", "(64,)", raw[:256])
npy("f8.npy", "(64,)", raw[:512], "<f8")
npy("fortran.npy", "(3, 64)", raw, order="True")
npy("wide.npy", "(2, 96)", raw)
npy("huge.npy", "(4611686018427387905, 64)", raw)
npy("cut.npy", "(3, 64)", raw[:-4])
nan = bytearray(raw[:256])
nan[0:8] = struct.pack("<ff", float("nan"), float("inf"))
open(work + "/nan.raw", "wb").write(nan)
# H above the limit: one row of 133145 F32
h, n = 133145, 1
head = ('{"lm_head.weight":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,%d]}}' % (n, h, n * h * 4)).encode()
open(work + "/wide.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + bytes(n * h * 4))
PY
run() { # STATUS FILE OPTION...
	local status=$1 x=$2
	shift 2
	expect "$status" "$head" run "$model" --x "$x" "$@"
	((status == 0)) || printable || fail "--x $x: message $said"
}
run 0 "$work/x.raw" --logits "$work/of-raw"
run 0 "$work/x.npy" --logits "$work/of-npy"
cmp "$work/of-raw" "$work/of-npy" || fail ".npy and raw activations give other logits"
(($(stat -c %s "$work/of-raw") == 3 * 300 * 4)) || fail "not 3 x 300 logits"
"$head" run "$model" --x - --logits "$work/of-stdin" <"$work/x.raw" || fail "--x -"
cmp "$work/of-raw" "$work/of-stdin" || fail "stdin gives other logits"
run 0 "$work/one.npy"
run 65 "$work/x100.raw"
says 100 64
run 65 "$work/x.raw" --rows 2
says 192 128
run 65 "$work/odd.raw"
says 255
run 65 "$work/none.raw"
run 65 "$work/f8.npy"
says '<f8'
run 65 "$work/fortran.npy"
run 65 "$work/wide.npy"
says 96 64
run 65 "$work/huge.npy"
truncate -s 1T "$work/sparse.raw"
run 65 "$work/sparse.raw"
says "give fewer rows at a time"
run 65 "$work/cut.npy"
run 66 "$work/missing.raw"
says "$work/missing.raw"
run 66 "$work"

# JSON.
run 0 "$work/nan.raw" --json
says "2 activations were not finite"
python3 - "$work/out" <<'PY' || fail "--json: $(cat "$work/out")"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["nonfinite"] == 2, d["nonfinite"]
assert d["path"] == "host", d["path"]
g = d["geometry"]
assert g["nv"] == 300 and g["h"] == 64 and g["kpad"] == 64 and g["tile"] * g["tiles"] >= 300, g
assert all(isinstance(d["seconds"][k], (int, float)) for k in ("open", "queue", "compute", "cpu", "total"))
top = d["top"]
assert len(top) == 1 and len(top[0]) == 10
s = [w["score"] for w in top[0]]
assert s == sorted(s, reverse=True), s
PY

# Models.
expect 66 "$head" run "$work/missing.safetensors" --random 1
says "$work/missing.safetensors"
: >"$work/empty"
for file in /etc/passwd "$work/empty"; do
	expect 65 "$head" run "$file" --random 1
	says "${file##*/}"
	printable || fail "$file: $said"
done
timeout 20 "$head" run "$work" --random 1 >"$work/out" 2>"$work/err"
status=$?
said=$(<"$work/err")
((status == 65 || status == 66)) || fail "a directory as the model: exit $status: $said"
says "${work##*/}"
mkfifo "$work/fifo"
timeout 10 "$head" run "$work/fifo" --random 1 >"$work/out" 2>"$work/err"
status=$?
said=$(<"$work/err")
((status == 65 || status == 66)) || fail "a fifo as the model: exit $status: $said"
expect 65 "$head" run "$work/wide.safetensors" --random 1
says 133145
expect 65 "$head" run "$model" --tensor no.such.tensor --random 1
says no.such.tensor

# Options.
expect 65 "$head" run "$model" --random 1 --tile 100
says 100
[[ ${said//100/} =~ [0-9] ]] || fail "--tile 100: the message has one number only: $said"
expect 64 "$head" run "$model" --random 1 --layout diagonal
says diagonal
for option in "--no-such-option" "--tile x" "--tile -1" "--rows 0" "--random 1x" "--top 0" "--x $work/x.raw"; do
	# shellcheck disable=SC2086
	expect 64 "$head" run "$model" --random 1 $option
	printable || fail "$option: $said"
done
expect 64 "$head" run "$model"
expect 64 "$head" run
expect 64 "$head"
expect 64 "$head" nonsense
expect 64 "$npuctl" nonsense
expect 73 "$head" run "$model" --random 1 --logits "$work/no/such/place"
says "$work/no/such/place"
daemon_lives "all of it"
[ -z "$(find "$work" -name '*.tmp.*')" ] || fail "unfinished files are left: $(find "$work" -name '*.tmp.*')"
stop_daemon
[ -z "$wrong" ] || fail "bad/MANIFEST.tsv: $wrong"
echo "$files files of bad/, and the rest"
