"""weights.py DIRECTORY: projection weights of layers, against the same matrices opened as heads."""
import json
import os
import random
import struct
import sys

import npud

WORK = sys.argv[1]
K = 96


def check(ok, what):
    if not ok:
        sys.exit(f"FAIL: {what}")


def refused(name, call, *args, **fields):
    try:
        call(*args, **fields)
    except npud.Error as error:
        check(error.name == name, f"refused as {error.name}, not {name}: {error.message}")
        return error.message
    sys.exit(f"FAIL: not refused: {args} {fields}")


def matrix(n, k, seed):
    r = random.Random(seed)
    return struct.pack(f"<{n * k}f", *(r.uniform(-1, 1) for _ in range(n * k)))


def half(data):
    """The same as BF16, cut."""
    return b"".join(data[i + 2 : i + 4] for i in range(0, len(data), 4))


def transposed(data, n, k):
    return b"".join(data[4 * (j * k + i) : 4 * (j * k + i) + 4] for i in range(k) for j in range(n))


def write(name, tensors):
    header, blob = {}, b""
    for tensor, (kind, shape, data) in tensors.items():
        header[tensor] = {"dtype": kind, "shape": shape, "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    head = json.dumps(header).encode()
    path = os.path.join(WORK, name)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + blob)
    return path


tensors = {"lm_head.weight": ("F32", [128, K], matrix(128, K, 99))}
for layer in (0, 1):
    for i, (name, n) in enumerate((("q", 192), ("k", 64), ("v", 40), ("gate", 200), ("up", 200))):
        tensors[f"{layer}.{name}"] = ("F32", [n, K], matrix(n, K, 10 * layer + i))
tensors["v16"] = ("BF16", [40, K], half(matrix(40, K, 77)))
tensors["vT"] = ("F32", [K, 72], transposed(matrix(72, K, 78), 72, K))
tensors["uT"] = ("F32", [K, 300], transposed(matrix(300, K, 79), 300, K))
tensors["other_k"] = ("F32", [8, K + 1], matrix(8, K + 1, 5))
for e in range(4):
    tensors[f"expert{e}"] = ("F32", [100, K], matrix(100, K, 500 + e))
one = write("one.safetensors", tensors)
changed = dict(tensors)
changed["0.q"] = ("F32", [192, K], matrix(192, K, 1000))
two = write("two.safetensors", changed)


def names(*tensors):
    return [{"name": t} for t in tensors]


def load(client, file, tensors, **fields):
    answer = client.call("weights.load", file=file, tensors=names(*tensors), **fields)
    while not answer["ready"]:
        answer = client.call("weights.load", weights=answer["weights"])
    return answer


def x_of(rows, seed=1):
    r = random.Random(seed)
    return struct.pack(f"<{rows * K}f", *(r.uniform(-2, 2) for _ in range(rows * K)))


def as_head(client, file, tensor, x, rows, **fields):
    """What head.run makes of one tensor: logits per row."""
    head = client.call("head.open", file=file, tensor=tensor, **fields)["head"]
    while not client.call("head.wait", head=head)["ready"]:
        pass
    logits = client.call("head.run", head=head, rows=rows, x=x)["logits"]
    client.call("head.close", head=head)
    size = len(logits) // rows
    return [logits[i * size : (i + 1) * size] for i in range(rows)]


def side_by_side(*matrices):
    return b"".join(b"".join(parts) for parts in zip(*matrices))


def resident(client):
    return client.call("weights.list")["weights"]


with npud.Client(name="weights") as c, npud.Client(name="other") as d:
    file, file2 = c.pass_file(open(one, "rb")), d.pass_file(open(two, "rb"))
    x, rows = x_of(5), 5
    gemm = lambda w, **fields: c.call("gemm.run", weights=w["weights"], rows=rows, x=x, **fields)

    # Two layers of equal shape and role have their own weights, and fused ones are their parts side by side.
    qkv = [load(c, file, [f"{i}.q", f"{i}.k", f"{i}.v"], layer=i, role="0") for i in (0, 1)]
    for i in (0, 1):
        want = side_by_side(*(as_head(c, file, f"{i}.{t}", x, rows) for t in "qkv"))
        got = gemm(qkv[i])
        check(got["y"] == want, f"layer {i}: the fused weights are not those of their parts")
        check(got["hash"] == qkv[i]["hash"], "the answer names other weights")
        check(qkv[i]["nv"] == 296 and qkv[i]["h"] == K, f"shape {qkv[i]}")
    check(qkv[0]["hash"] != qkv[1]["hash"], "two layers have one hash")
    # Tiles that end inside a part, both layouts, parts that are stored another way or the other way round.
    for fields in ({"tile": 128}, {"tile": 100, "layout": "row-major"}):
        w = load(c, file, ["0.q", "0.k", "0.v"], layer=0, role="0", **fields)
        check(gemm(w)["y"] == gemm(qkv[0])["y"], f"{fields}: other numbers")
    mixed = load(c, file, ["0.q", "v16"], layer=0, role="mixed")
    check(gemm(mixed)["y"] == side_by_side(as_head(c, file, "0.q", x, rows), as_head(c, file, "v16", x, rows)), "types")
    check("F32" in mixed["type"] and "BF16" in mixed["type"], f"type {mixed['type']}")
    turned = load(c, file, ["uT", "vT"], layer=0, role="turned", transpose=True, tile=128)
    want = side_by_side(*(as_head(c, file, t, x, rows, transpose=True) for t in ("uT", "vT")))
    check(gemm(turned)["y"] == want, "transposed")
    # Two shapes of equal role, the same weights under another layer or role: entries of their own.
    shapes = [load(c, file, [t], layer=0, role="4") for t in ("0.q", "0.k")]
    check([s["nv"] for s in shapes] == [192, 64], "two shapes of one role")
    before = len(resident(c))
    again = load(c, file, ["0.q"], layer=0, role="4")
    check(again["attached"] and len(resident(c)) == before, "the same is there twice")
    for fields in ({"layer": 1, "role": "4"}, {"layer": 0, "role": "3"}):
        w = load(c, file, ["0.q"], **fields)
        check(not w["attached"] and len(resident(c)) == before + 1, f"{fields} is another's entry")
        before += 1
    # Order matters, and so do equal labels with other bytes.
    check(load(c, file, ["0.up", "0.gate"], layer=0, role="2")["hash"]
          != load(c, file, ["0.gate", "0.up"], layer=0, role="2")["hash"], "the order of parts")
    mine = load(c, file, ["0.q"], layer=7, role="0", label="model")
    theirs = load(d, file2, ["0.q"], layer=7, role="0", label="model")
    check(not theirs["attached"] and mine["hash"] != theirs["hash"], "other bytes, equal labels: one entry")
    y = d.call("gemm.run", weights=theirs["weights"], rows=rows, x=x)["y"]
    check(y == side_by_side(as_head(d, file2, "0.q", x, rows)), "the other user's numbers are not theirs")
    check(y != gemm(mine)["y"], "two users have one matrix")

    # Routed experts are right each time, and nothing of them stays.
    count = lambda: (len(resident(c)), len(list(c.heads())), c.call("status")["resident_bytes"])
    for turn in range(3):
        for e in range(4):
            got = c.call("gemm.run", file=file, tensors=names(f"expert{e}"), role="-1", rows=rows, x=x)
            check(got["y"] == side_by_side(as_head(c, file, f"expert{e}", x, rows)), f"expert {e}, turn {turn}")
            if turn == 0:  # as_head keeps the same bytes resident; they are heads
                before = count()
            check(count() == before, f"experts are kept: {before} -> {count()}")
    refused("BAD_COUNT", c.call, "gemm.run", file=file, tensors=names("expert1"), role="-1", rows=rows, x=x_of(1))
    refused("NO_HEAD", c.call, "gemm.run", file=file, tensors=names("no such"), role="-1", rows=rows, x=x)
    check(count() == before, "experts that were refused are kept")
    wait = c.start("gemm.run", file=file, tensors=names("expert1", "expert2"), role="-", rows=rows, x=x)
    wait.cancel()
    try:
        wait.result()
    except npud.Error as error:
        check(error.name == "CANCELLED", error.name)

    # What is refused, and by what name.
    load_of = lambda **fields: c.call("weights.load", file=file, **fields)
    check("not kept" in refused("BAD_VALUE", load_of, tensors=names("expert0"), role="-1"), "experts")
    refused("BAD_VALUE", load_of, tensors=[], role="0")
    refused("BAD_VALUE", load_of, tensors=names(""), role="0")
    refused("BAD_VALUE", load_of, tensors=names("0.q"), role="")
    refused("BAD_VALUE", load_of, tensors=names("0.q"), role="head")
    refused("TOO_LARGE", load_of, tensors=names(*["0.q"] * 9), role="0")
    refused("BAD_VALUE", c.call, "gemm.run", file=file, tensors=names("0.q"), role="0", rows=1, x=x_of(1))
    refused("NO_SUCH_HANDLE", c.call, "weights.load", file=999, tensors=names("0.q"), role="0")
    refused("NO_SUCH_HANDLE", c.call, "gemm.run", weights=999, rows=1, x=x_of(1))
    refused("BAD_COUNT", c.call, "gemm.run", weights=mine["weights"], rows=2, x=x_of(1))
    refused("NO_HEAD", load, c, file, ["no such"], role="0")
    check("H=97" in refused("BAD_GEOMETRY", load, c, file, ["0.q", "other_k"], role="0"), "which shapes")
    check(not any(h["tensor"].startswith("0.q + ") for h in list(c.heads())), "weights show as heads")
    for w in qkv + shapes + [again, mine]:
        c.call("weights.close", weights=w["weights"])
    refused("NO_SUCH_HANDLE", c.call, "gemm.run", weights=mine["weights"], rows=1, x=x_of(1))
print("ok")
