#!/bin/bash
# Packing a head takes its image and at most 64 MiB more, whatever the type, stored either way, in one tile or in two.
. "$(dirname "$0")/lib.bash"
grep -qE '__asan_init|__tsan_init' "$npud" && skip "a sanitizer takes memory of its own"
python3 - "$work" <<'PY' || fail "python3"
import json, struct, sys
work = sys.argv[1]
NV, H = 32000, 1024
def file(name, header, size):
    with open(work + "/" + name, "wb") as f:
        f.write(header)
        f.truncate(len(header) + size)
def safetensors(name, tensors):
    header, at = {}, 0
    for key, dtype, shape, size in tensors:
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    h = json.dumps(header).encode()
    file(name, struct.pack("<Q", len(h)) + h, at)
blocks = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
          11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18)}
for number, (values, size) in blocks.items():
    h = b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 13) + b"output.weight" + struct.pack("<IQQIQ", 2, H, NV, number, 0)
    file("%d.gguf" % number, h + bytes(-len(h) % 32), NV * H // values * size)
for dtype, size in (("F32", 4), ("BF16", 2)):
    safetensors(dtype + ".rows", [("lm_head.weight", dtype, [NV, H], NV * H * size)])
    safetensors(dtype + ".columns", [("lm_head.weight", dtype, [H, NV], NV * H * size)])
chunks = NV // 32 * (H // 256)
embedding = ("model.embed_tokens.weight", "BF16", [NV, H], NV * H * 2)
for name, shape in (("5120", [chunks, 5120]), ("4736", [chunks, 4736]), ("8704", [chunks, 8704]),
                    ("5120-wide", [NV // 32, H // 128, 5120])):
    size = 1
    for s in shape:
        size *= s
    safetensors(name + ".q4nx", [embedding, ("lm_head.weight", "I8", shape, size)])
# One row of chunks, and one row of all words, that are many megabytes as float32.
safetensors("deep.q4nx", [("lm_head.weight", "I8", [8 * 512, 8704], 8 * 512 * 8704)])
safetensors("wide", [("lm_head.weight", "F32", [8, 3000000], 8 * 3000000 * 4)])
PY
start_daemon --config "$keep_nothing" # every head goes before the next one comes
export NPUD_STORE=0

kb() { # NAME: of the daemon's status
	awk -v name="$1:" '$1 == name { print $2 }' "/proc/$daemon_pid/status"
}

measured=0
packs() { # FILE OPTION...: VmHWM begins anew and is compared with the anonymous memory before and the pages of files
	local before allowed=$((64 * 1024)) peak bytes
	before=$(($(kb RssAnon) + $(kb RssFile) + $(kb RssShmem)))
	echo 5 >"/proc/$daemon_pid/clear_refs" || fail "clear_refs"
	expect 0 "$head" run "$work/$1" --random 1 --json "${@:2}"
	peak=$(kb VmHWM)
	bytes=$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
g = d["geometry"]
assert d["packed"] == g["tiles"] and d["bytes"] >= g["kpad"] * g["tile"] * g["tiles"], d
print(d["bytes"])' "$work/out") || fail "$*: $(cat "$work/out")"
	((peak - before <= bytes / 1024 + allowed)) ||
		fail "$*: $((peak - before)) kB, the image has $((bytes / 1024))"
	((peak - before >= bytes / 1024 / 2)) || fail "$*: $((peak - before)) kB are too few to be believed"
	measured=$((measured + 1))
}

for model in "$work"/*.gguf "$work"/*.rows; do
	packs "${model##*/}"
done
for dtype in F32 BF16; do
	packs $dtype.columns --transpose
done
packs BF16.rows --tile 32000 --layout row-major
packs BF16.columns --transpose --tile 32000
packs 5120.q4nx
packs 5120.q4nx --signed
packs 5120-wide.q4nx
packs 4736.q4nx
packs 8704.q4nx --q8 a
packs 8704.q4nx --q8 b
packs deep.q4nx --q8 b --k 131072
packs wide --transpose
daemon_lives
stop_daemon
echo "$measured heads"
