#!/bin/bash
# npu-head tensors says what is in a model: exit 0 for a sound one with or without a head, 65 with a sentence else.
. "$(dirname "$0")/lib.bash"
python3 - "$work" <<'PY' || fail "python3"
import json, os, struct, sys
work = sys.argv[1]
def safetensors(path, tensors):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    header, at = {}, 0
    for name, dtype, shape, size in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    h = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(h)) + h + bytes(at))
safetensors(work + "/plain.safetensors", [("lm_head.weight", "BF16", [8, 64], 1024), ("a\x1b[31m\nb", "F32", [], 4),
                                          ("nine", "U8", [1] * 9, 1)])
safetensors(work + "/none.safetensors", [("conv.bias", "F32", [4], 16)])
safetensors(work + "/empty.safetensors", [])
safetensors(work + "/i8.safetensors", [("lm_head.weight", "F64", [8, 64], 4096)])
safetensors(work + "/many.safetensors", [("t%d" % i, "U8", [1], 1) for i in range(1000)])
for i, n in enumerate(["model.embed_tokens.weight", "lm_head.weight"]):
    safetensors(work + "/two/model-0000%d-of-00002.safetensors" % (i + 1), [(n, "F32", [2, 64], 512)])
open(work + "/two/config.json", "w").write('{"tie_word_embeddings": true}')
open(work + "/bad.safetensors", "wb").write(b"\x10\0\0\0\0\0\0\0{}")
PY
start_daemon
before=$(daemon_descriptors)
json() { # MODEL PYTHON: the document is d
	expect 0 "$head" tensors "$1" --json
	python3 -c "import json, sys
d = json.load(open(sys.argv[1]))
assert $2, d" "$work/out" || fail "$1: $2"
}
expect 0 "$head" tensors "$work/plain.safetensors"
grep -qE '^lm_head.weight +BF16 +8 x 64 +1.0 kB|^lm_head.weight +BF16 +8 x 64 ' "$work/out" || fail "$(cat "$work/out")"
grep -q 'head: lm_head.weight (untied)' "$work/out" || fail "$(cat "$work/out")"
! grep -q $'\x1b' "$work/out" || fail "a name's control characters reach the terminal"
json "$work/plain.safetensors" 'd["head"] == {"name": "lm_head.weight", "why": "untied", "usable": True} and d["note"] is None'
json "$work/plain.safetensors" '[t["shape"] for t in d["tensors"]] == [[8, 64], [], [1] * 8] and d["tensors"][2]["rank"] == 9'
json "$work/plain.safetensors" '[t["head"] for t in d["tensors"]] == [True, False, False] and d["format"] == "safetensors"'
json "$work/none.safetensors" 'd["head"] is None and "conv.bias" in d["note"] and len(d["tensors"]) == 1'
json "$work/empty.safetensors" 'd["head"] is None and d["tensors"] == []'
json "$work/i8.safetensors" 'd["head"]["usable"] is False and "F64" in d["note"]'
json "$work/many.safetensors" '[t["name"] for t in d["tensors"]] == ["t%d" % i for i in range(1000)]'
json "$work/two" 'd["files"] == 3 and d["head"]["name"] == "model.embed_tokens.weight" and d["head"]["why"] == "tied" and d["model"] == "two"'
json "$work/two" '[t["file"] for t in d["tensors"]] == ["model-0000%d-of-00002.safetensors" % i for i in (1, 2)]'
for model in none empty i8 many; do
	expect 0 "$head" tensors "$work/$model.safetensors"
	grep -qE 'no head: |cannot be used: ' "$work/out" || fail "$model: $(tail -n 1 "$work/out")"
done
expect 65 "$head" tensors "$work/bad.safetensors"
says bad.safetensors
expect 66 "$head" tensors "$work/missing.safetensors"
says missing.safetensors
expect 64 "$head" tensors "$work/plain.safetensors" --top 3
says tensors --top
expect 64 "$head" tensors

wrong=
if [ -r "$data/bad/MANIFEST.tsv" ]; then
	while IFS=$'\t' read -r file verdict _; do
		case $file in gguf/* | safetensors/*) ;; *) continue ;; esac
		timeout 30 "$head" tensors "$data/bad/$file" >"$work/out" 2>"$work/err"
		status=$?
		wanted=0 # for one without a head too
		[ "$verdict" = reject ] && wanted=65
		((status == wanted)) || wrong+="$file ($verdict): exit $status: $(cat -v "$work/err")"$'\n'
	done <"$data/bad/MANIFEST.tsv"
fi
[ -z "$wrong" ] || fail "$wrong"
daemon_lives "the files of bad/"
descriptors_back_to "$before" || fail "descriptors: $(daemon_descriptors), before: $before"
stop_daemon
