#!/bin/bash
# Projection weights lie where the device takes them, in the layout of its kernels, and give the host's bits there; experts
# are the host's.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/device.bash"
mkdir "$work/set" && "$NPUD_BIN/tests/mkset" "$work/set" 16,128,256,0 || fail "mkset"
start_soft "" "kernels = $work/set"
health_becomes ok
PYTHONPATH=$NPUD_SOURCE_DIR/client/python python3 - "$work/m.safetensors" <<'PY' || fail "see above"
import json, random, struct, sys
import npud

r, k, tensors, data = random.Random(1), 96, {}, b""
for name, n in (("q", 300), ("k", 40), ("e", 70)):
    part = struct.pack(f"<{n * k}f", *(r.uniform(-1, 1) for _ in range(n * k)))
    tensors[name] = {"dtype": "F32", "shape": [n, k], "data_offsets": [len(data), len(data) + len(part)]}
    data += part
header = json.dumps(tensors).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(header)) + header + data)
x = struct.pack(f"<{5 * k}f", *(r.uniform(-2, 2) for _ in range(5 * k)))
with npud.Client() as c:
    for fields in ({}, {"layout": "row-major"}):
        with c.load_weights(sys.argv[1], ["q", "k"], "0", layer=1, **fields) as w:
            assert (w.info["layout"], w.info["tile"], w.nv) == ("row-major", 256, 340), w.info
            run = lambda **how: c.call("gemm.run", weights=w.handle, rows=5, x=x, **how)
            host, device, both = run(path="host"), run(path="device"), run(path="auto", verify=True)
            assert (host["path"], device["path"], both["verified"]) == ("host", "device", True), (host, device)
            assert host["y"] == device["y"] == both["y"], "other bits"
    with c.load_weights(sys.argv[1], ["q", "k"], "0", layer=1, layout="blocked") as w:
        again = c.call("gemm.run", weights=w.handle, rows=5, x=x)
        assert (w.info["layout"], again["path"], again["y"]) == ("blocked", "host", host["y"]), w.info
    file = c.upload(sys.argv[1])
    expert = {"file": file, "tensors": [{"name": "e"}], "role": "-7", "rows": 5, "x": x}
    answer = c.call("gemm.run", **expert)
    assert answer["path"] == "host", answer["why"]
    print(answer["why"])
    try:
        c.call("gemm.run", path="device", **expert)
        sys.exit("an expert ran on the device")
    except npud.Error as error:
        assert error.name == "NO_PATH", error
PY
daemon_lives "weights on a device"
stop_daemon
