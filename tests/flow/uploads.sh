#!/bin/bash
# A client that cannot pass a descriptor sends the bytes: in order, within its bound, the same weights as from a file.
. "$(dirname "$0")/lib.bash"
shard() { python3 - "$1" "$2" <<'PY'; }
import json, random, struct, sys
name, tensor = sys.argv[1:3]
n, k = (100 if "two" in name else 300), 32
r = random.Random(tensor)
data = struct.pack(f"<{n * k}f", *(r.uniform(-1, 1) for _ in range(n * k)))
head = json.dumps({tensor: {"dtype": "F32", "shape": [n, k], "data_offsets": [0, len(data)]}}).encode()
with open(name, "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head + data)
PY
shard "$work/model.safetensors" lm_head.weight
shard "$work/two-00001-of-00002.safetensors" model.layers.0.self_attn.q_proj.weight
shard "$work/two-00002-of-00002.safetensors" lm_head.weight
size=$(stat -c %s "$work/model.safetensors")
printf '[limits]\nuser_upload = %d\n' $((2 * size - 1)) >"$work/npud.conf"
start_daemon --config "$work/npud.conf"
before=$(daemon_descriptors)
mkdir "$work/elsewhere"
ln -s "$socket" "$work/elsewhere/npud.sock"
NO_SIDE_SOCKET=$work/elsewhere/npud.sock PYTHONPATH=$NPUD_SOURCE_DIR/client/python timeout 120 \
	python3 "$here/uploads.py" "$work/model.safetensors" "$work"/two-*.safetensors || fail "see above"
daemon_lives "uploads"
descriptors_back_to "$before" || fail "$(daemon_descriptors) descriptors, $before before"

# The daemon ends in good order whatever is half sent and runs.
PYTHONPATH=$NPUD_SOURCE_DIR/client/python python3 - "$work/model.safetensors" >"$work/busy" <<'PY' &
import sys, npud
c = npud.Client()
head = c.open(sys.argv[1])
file = c.call("upload.begin", name="m", bytes=1000)["file"]
c.call("upload.put", file=file, at=0, data=b"x" * 500)
print("busy", flush=True)
try:
    while True:
        head.top([1.0] * head.h)
except npud.Error as error:
    print(error.name, flush=True)
PY
children+=($!)
for ((i = 0; i < 600; i++)); do
	grep -q busy "$work/busy" && break
	sleep 0.05
done
stop_daemon
