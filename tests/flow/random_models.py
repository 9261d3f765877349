#!/usr/bin/env python3
"""random_models.py TOOLS DIR SEED: random models of every reading, with what the oracle says of each.

Writes files and EXPECTED.tsv (the columns of the oracle's `sums`) into DIR. The oracle is TOOLS/oracle.py. What a
quantiser finds hard is likelier than by chance: ties, values that are not finite, denormals, -0, columns of
zeros, columns whose largest value is about 1e-12."""
import random
import struct
import sys

tools, out, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path.insert(0, tools)
import mkgguf  # noqa: E402
import mkq4nx  # noqa: E402
import oracle  # noqa: E402

rng = random.Random(seed)
INF = float("inf")
COLUMNS = ("bell", "ties", "zero", "tiny", "limit", "huge", "denormal", "rotten")


def column(kind, k):
    if kind == "ties":  # 127 makes scale and inverse 1: halves are ties, to the last bit
        edge = [0.5, 1.5, 2.5, 126.5, 0.49999997, 1.4999999]
        v = [rng.choice(edge) * rng.choice((1, -1)) for _ in range(k)]
        v[rng.randrange(k)] = 127.0
        return v
    if kind == "zero":
        return [rng.choice((0.0, -0.0)) for _ in range(k)]
    if kind == "limit":  # on both sides of where a largest value counts as 1
        least, = struct.unpack("<I", struct.pack("<f", 1e-12))
        v = [rng.choice((1, -1)) * 1e-12 * rng.uniform(0, 0.9) for _ in range(k)]
        v[rng.randrange(k)], = struct.unpack("<f", struct.pack("<I", least + rng.randrange(-2, 3)))
        return v
    scale = {"tiny": 1e-13, "huge": 1e38, "denormal": 1e-40}.get(kind, 0.05)
    v = [rng.gauss(0, scale) for _ in range(k)]
    if kind == "rotten":
        for _ in range(1 + k // 8):
            v[rng.randrange(k)] = rng.choice((INF, -INF, float("nan"), 1e-42, -0.0))
    return v


def matrix(n, k):
    w = []
    for _ in range(n):
        w += [max(-3e38, min(3e38, x)) if abs(x) != INF else x for x in column(rng.choice(COLUMNS), k)]
    return w


def halves(w):
    return struct.pack("<%de" % len(w), *[max(-65504.0, min(65504.0, x)) if abs(x) != INF else x for x in w])


def dense(dtype, w):
    if dtype == "F16":
        return halves(w)
    if dtype == "BF16":
        return struct.pack("<%dH" % len(w), *map(mkq4nx.to_bf16, w))
    return oracle.fbytes(oracle.farr([oracle.f32(x) for x in w]))


rows = []


def expect(file, opts, **options):
    sums = oracle.sums(out + "/" + file, "lm_head.weight", **options)
    # Which NaN a product gives is nobody's contract: those weights are compared by their codes alone.
    if any(x != x for x in oracle.weights(out + "/" + file, "lm_head.weight", **options)[2]):
        sums[3] = "-"
    rows.append("\t".join([file, "lm_head.weight", opts] + sums))


def safetensors(i, dtype, transpose):
    n, k = rng.randrange(1, 150), rng.randrange(1, 200)
    file = "%d-%s.safetensors" % (i, dtype)
    shape = [k, n] if transpose else [n, k]
    mkq4nx.write_safetensors(out + "/" + file, [("lm_head.weight", dtype, shape, dense(dtype, matrix(*shape)))])
    expect(file, "--transpose" if transpose else "", transpose=transpose)


def blocks(i, number, name, values, size, finite):
    n, k = rng.randrange(1, 20), values * rng.randrange(1, 1 + 512 // values)
    raw = bytearray(rng.randbytes(n * k // values * size))
    if finite:  # no exponent of a half is 31: every second byte has bit 6 clear
        raw = bytearray(b & 0xbf if j % 2 else b & 0xfb for j, b in enumerate(raw))
    file = "%d-%s.gguf" % (i, name.lower())
    with open(out + "/" + file, "wb") as f:
        f.write(mkgguf.gguf([], [("lm_head.weight", [k, n], number, bytes(raw))]))
    expect(file, "")


def q4nx(i, kind):
    chunk = mkq4nx.SIZE[kind]
    columns = 128 if kind == "q8c" else 256
    k = rng.randrange(200, 400)  # so that q8c, told by the number of its chunks, is told
    across, down = -(-k // columns), rng.randrange(1, 3)
    raw = bytearray(rng.randbytes(chunk * across * down))
    scales = (4608, 4736) if kind == "q4k" else (0, 1024) if kind == "q4_1" else (0, 512)
    for at in range(0, len(raw), chunk):
        # Below 2, for a product past float32's range is inf here and not in the oracle, which rounds once; but
        # some that are not finite themselves.
        for j in range(at + scales[0], at + scales[1], 2):
            raw[j + 1] &= 0xbf
            if rng.random() < 0.01:
                raw[j:j + 2] = rng.choice((b"\x80\x7f", b"\x80\xff", b"\xc0\x7f"))
        if kind == "q4_0s":
            raw[at + 512:at + 1024] = bytes(512)
    file = "%d-%s.q4nx" % (i, kind)
    mkq4nx.write_safetensors(out + "/" + file, [("lm_head.weight", "I8", [down, across, chunk], bytes(raw))])
    opts, options = "--k %d" % k, {"k": k}
    if kind == "q4_0s":
        opts, options = opts + " --signed", dict(options, signed=True)
    if kind in ("q8a", "q8b"):
        opts, options = opts + " --q8 " + kind[2], dict(options, q8=kind[2])
    expect(file, opts, **options)


def main():
    for i in range(4):
        for dtype in ("F32", "F16", "BF16"):
            safetensors(i, dtype, i == 3)
    for number, (name, values, size) in oracle.GGML.items():
        if name in oracle.DQ:
            blocks(0, number, name, values, size, True)
            blocks(1, number, name, values, size, False)
    for kind in mkq4nx.SIZE:
        q4nx(0, kind)
    with open(out + "/EXPECTED.tsv", "w") as f:
        f.write("\n".join(rows) + "\n")


main()
