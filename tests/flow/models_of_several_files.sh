#!/bin/bash
# A model is one file, several, a directory or a name: the same weights give the same logits however they lie.
. "$(dirname "$0")/lib.bash"
export HOME=$work/home
unset HF_HOME HF_HUB_CACHE XDG_CACHE_HOME XDG_CONFIG_HOME OLLAMA_MODELS
mkdir -p "$HOME"

python3 - "$work" <<'PY' || fail "python3"
import json, os, random, struct, sys
work = sys.argv[1]
random.seed(4)
NV, H = 300, 64
def matrix(rows):
    return struct.pack("<%df" % (rows * H), *[random.gauss(0, 0.1) for _ in range(rows * H)])
head, embed, other = matrix(NV), matrix(NV), matrix(8)
T = {"lm_head.weight": (NV, head), "model.embed_tokens.weight": (NV, embed), "model.norm.weight": (8, other)}

def safetensors(path, names):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    header, at, data = {}, 0, b""
    for n in names:
        rows, b = T[n]
        header[n] = {"dtype": "F32", "shape": [rows, H], "data_offsets": [at, at + len(b)]}
        at += len(b)
        data += b
    h = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(h)) + h + data)

def gguf(path, tensors, no=None, count=None, total=None):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    s = lambda t: struct.pack("<Q", len(t)) + t.encode()
    keys = []
    if count:
        keys = [s("split.no") + struct.pack("<IH", 2, no), s("split.count") + struct.pack("<IH", 2, count),
                s("split.tensors.count") + struct.pack("<Ii", 5, total)]
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys)
    at, data = 0, b""
    for name, rows, b in tensors:
        out += s(name) + struct.pack("<IQQIQ", 2, H, rows, 0, at)
        data += b + bytes(-len(b) % 32)
        at = len(data)
    out += bytes(-len(out) % 32)
    open(path, "wb").write(out + data)

def text(path, t):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(t if isinstance(t, str) else json.dumps(t))

safetensors(work + "/untied.safetensors", ["lm_head.weight"])
safetensors(work + "/tied.safetensors", ["model.embed_tokens.weight"])
# Hugging Face: shards, an index, a config
shards = {"model-00001-of-00003.safetensors": ["model.embed_tokens.weight"],
          "model-00002-of-00003.safetensors": ["model.norm.weight"],
          "model-00003-of-00003.safetensors": ["lm_head.weight"]}
def hf(d, config):
    for f, names in shards.items():
        safetensors(d + "/" + f, names)
    text(d + "/model.safetensors.index.json",
         {"metadata": {}, "weight_map": {n: f for f, names in shards.items() for n in names}})
    text(d + "/config.json", config)
    text(d + "/tokenizer.json", {})
hf(work + "/hf", {"tie_word_embeddings": False})
hf(work + "/hf-tied", {"tie_word_embeddings": True})
hf(work + "/hf-short", {})
os.remove(work + "/hf-short/model-00002-of-00003.safetensors")
# Shards as gpt-oss, DeepSeek and Kimi call them: only the index says which there are.
for d, names in (("from-0", ["model-%05d-of-00002.safetensors" % i for i in range(3)]),
                 ("six-digits", ["model-%05d-of-000003.safetensors" % i for i in (1, 2, 3)]),
                 ("no-zeros", ["model-%d-of-3.safetensors" % i for i in (1, 2, 3)])):
    for f, n in zip(names, T):
        safetensors(work + "/" + d + "/" + f, [n])
    text(work + "/" + d + "/model.safetensors.index.json", {"weight_map": dict(zip(T, names))})
    text(work + "/" + d + "/config.json", {})
safetensors(work + "/no-zeros/consolidated.safetensors", ["model.embed_tokens.weight"])
text(work + "/up/model.safetensors.index.json", {"weight_map": {"lm_head.weight": "../untied.safetensors"}})
os.mkdir(work + "/fetching")
text(work + "/fetching/model.safetensors.index.json", {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}})
text(work + "/gguf/model.safetensors.index.json", {"weight_map": {"lm_head.weight": "never-fetched.safetensors"}})
safetensors(work + "/rest/model-00003-of-00003.safetensors", ["lm_head.weight"])
text(work + "/pickled/pytorch_model.bin", "PK")
safetensors(work + "/one/model.safetensors", list(T))
text(work + "/one/config.json", {"tie_word_embeddings": True})
os.mkdir(work + "/one/model.safetensors.index.json") # of no concern to a model in one file
safetensors(work + "/flm/model.q4nx", list(T))
text(work + "/flm/config.json", {"hidden_size": H})
# llama.cpp: one split model, and a directory of several
parts = [[], [("token_embd.weight", NV, embed)], [("output.weight", NV, head)]]
for i, p in enumerate(parts):
    gguf(work + "/gguf/m-Q8-%05d-of-00003.gguf" % (i + 1), p, i, 3, 2)
gguf(work + "/gguf/mmproj-m.gguf", [("v.weight", 8, other)])
gguf(work + "/gguf/m.mmproj-f16.gguf", [("v.weight", 8, other)])
gguf(work + "/gguf/m.imatrix.gguf", [("v.weight", 8, other)])
gguf(work + "/ggufs/a.gguf", [("output.weight", NV, head)])
gguf(work + "/ggufs/b.gguf", [("output.weight", NV, embed)])
os.makedirs(work + "/nothing")
# the usual places
home = work + "/home"
snap = home + "/.cache/huggingface/hub/models--acme--Tiny-1B"
rev = "0123456789abcdef0123456789abcdef01234567"
hf(snap + "/snapshots/" + rev, {})
os.makedirs(snap + "/blobs") # as huggingface_hub has it: names are links to what is called by its hash
for i, f in enumerate(sorted(os.listdir(snap + "/snapshots/" + rev))):
    os.rename(snap + "/snapshots/" + rev + "/" + f, snap + "/blobs/%064x" % i)
    os.symlink("../../blobs/%064x" % i, snap + "/snapshots/" + rev + "/" + f)
text(snap + "/refs/main", rev)
hf(home + "/.cache/huggingface/hub/models--one--Twice/snapshots/" + rev, {})
hf(home + "/.cache/huggingface/hub/models--two--Twice/snapshots/" + rev, {})
safetensors(home + "/.config/flm/models/Tiny-2B-NPU2/model.q4nx", ["lm_head.weight"])
digest = "ab" * 32
gguf(home + "/.ollama/models/blobs/sha256-" + digest, [("output.weight", NV, head)])
layer = lambda kind, d: {"mediaType": "application/vnd.ollama.image." + kind, "digest": "sha256:" + d, "size": 1}
manifest = {"schemaVersion": 2, "config": layer("config", "cd" * 32),
            "layers": [layer("template", "ef" * 32), layer("model", digest), layer("params", "01" * 32)]}
m = home + "/.ollama/models/manifests/registry.ollama.ai/"
text(m + "library/tiny/latest", manifest)
text(m + "acme/tiny/3b", manifest)
text(m + "library/evil/latest", json.dumps(manifest).replace(digest, "../../../../etc/passwd"))
PY

start_daemon --config "$keep_nothing"
logits() { # MODEL FILE
	expect 0 "$head" run "$1" --random 7 --logits "$work/$2"
}
logits "$work/untied.safetensors" untied
logits "$work/tied.safetensors" tied
cmp -s "$work/untied" "$work/tied" && fail "the two heads are equal: the test shows nothing"
same() { # REFERENCE MODEL
	logits "$2" got
	cmp "$work/$1" "$work/got" || fail "$2 has other logits than the $1 head"
}
# Any way to name a model that is sharded.
same untied "$work/hf"
same untied "$work/hf/"
same untied "$work/hf/model.safetensors.index.json"
same untied "$work/hf/model-00001-of-00003.safetensors"
(cd "$work/hf" && "$head" run . --random 7 --logits "$work/got") && cmp "$work/untied" "$work/got" || fail "."
(cd "$work/hf" && "$head" run model.safetensors.index.json --random 7 --logits "$work/got") &&
	cmp "$work/untied" "$work/got" || fail "an index without a folder"
for model in from-0 from-0/model-00001-of-00002.safetensors from-0/model-00000-of-00002.safetensors six-digits \
	six-digits/model-00002-of-000003.safetensors no-zeros no-zeros/model.safetensors.index.json \
	no-zeros/model-2-of-3.safetensors; do
	same untied "$work/$model"
done
same tied "$work/no-zeros/consolidated.safetensors"
same tied "$work/hf-tied"
same tied "$work/one"
same tied "$work/one/model.safetensors"
same untied "$work/flm"
same untied "$work/gguf"
same untied "$work/gguf/m-Q8-00002-of-00003.gguf"
same untied "$work/ggufs/a.gguf"
same untied acme/Tiny-1B
same untied Tiny-1B
same untied "$HOME/.cache/huggingface/hub/models--acme--Tiny-1B"
same untied Tiny-2B-NPU2
same untied Tiny-2B
same untied tiny
same untied tiny:latest
same untied acme/tiny:3b
HF_HUB_CACHE=$HOME/.cache/huggingface/hub HOME=/nonexistent same untied Tiny-1B

# What is wrong is said.
refused() { # STATUS MODEL WORDS...
	local status=$1 model=$2
	shift 2
	expect "$status" "$head" run "$model" --random 7
	says "$@"
}
refused 66 "$work/hf-short" model-00002-of-00003.safetensors model.safetensors.index.json "is the download complete?"
refused 66 "$work/rest" model-00001-of-00003.safetensors "3 files" "is the download complete?"
refused 66 "$work/rest/model-00003-of-00003.safetensors" model-00001-of-00003.safetensors "3 files"
refused 66 "$work/fetching" model-00001-of-00002.safetensors model.safetensors.index.json "is the download complete?"
refused 65 "$work/up" "names no .safetensors file beside it"
refused 65 "$work/up/model.safetensors.index.json" "names no .safetensors file beside it"
refused 65 "$work/pickled" "no model" "PyTorch" "save them as safetensors"
refused 65 "$work/ggufs" "2 models" a.gguf b.gguf
refused 65 "$work/nothing" nothing "no model"
refused 65 Twice models--one--Twice models--two--Twice
refused 66 no-such-model no-such-model "$HOME/.cache/huggingface/hub" .ollama
refused 66 tiny:7b "tiny:7b"
refused 66 evil evil
refused 66 ../home ../home
refused 66 acme/../../x "no such file"

# Files are given back, those of refused models too; the label says which model it was.
before=$(daemon_descriptors)
same untied acme/Tiny-1B
grep -q 'acme/Tiny-1B' "$log" || fail "the log does not name acme/Tiny-1B"
descriptors_back_to "$before" || fail "descriptors: $(daemon_descriptors), before: $before"

stop_daemon
