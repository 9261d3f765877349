#!/usr/bin/env python3
"""seeds.py: writes the seeds of fuzz_container, fuzz_decode and fuzz_record that corpus/ keeps, and some of fuzz_index.

Numbers are from a fixed generator, so the files are the same whenever they are made."""
import json
import os
import random
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STORE = os.path.join(HERE, "..", "..", "store")
random_bytes = random.Random(1).randbytes

# ggml's number of the types that are read, values and bytes of a block
GGML = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
        "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110),
        "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ4_NL": (20, 32, 18),
        "BF16": (30, 1, 2)}


def gguf(number, width, data):
    name = b"output.weight"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", len(name)) + name
    head += struct.pack("<IQQIQ", 2, width, 1, number, 0)
    return head + bytes(-len(head) % 32) + data


def safetensors(tensors):
    at, header = 0, {}
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors)


def q4nx(shape, data, embedding):
    tensors = [("lm_head.weight", "I8", shape, data)]
    if embedding:
        tensors.append(("model.embed_tokens.weight", "BF16", embedding, bytes(2 * embedding[0] * embedding[1])))
    return safetensors(tensors)


def llama2c(vocabulary):
    dim, hidden, layers, heads, kv, places = 4, 3, 1, 2, 1, 5
    rows = abs(vocabulary)
    values = rows * 4 + 4 + 16 + 8 + 8 + 16 + 4 + 3 * 12 + 4 + 10 + (rows * 4 if vocabulary < 0 else 0)
    return struct.pack("<7i", dim, hidden, layers, heads, kv, vocabulary, places) + bytes(4 * values)


def q8_chunk():
    """Scales of 1, and a code of full scale in every group as layout a has it."""
    codes = bytearray(b & 63 for b in random_bytes(8192))
    for group in range(8):
        for r in range(32):
            codes[(group * 32 + (group * 5 + r * 11) % 32) * 32 + r] = 127
    return struct.pack("<256H", *[0x3f80] * 256) + bytes(codes)


KEY = b"0123456789abcde\0" + struct.pack(">IIB", 64, 256, 1)  # what fuzz_record wants


def record_header():
    """Tile 1 of 2 as record.h has it; its own hash is fuzz_record's to set."""
    return b"NPHI" + struct.pack("<IQ5II2I", 1, 0x1122334455667788, 64, 256, 1, 1, 2, 200, 8 << 20, 2) + KEY[:16] + \
        bytes(16) + struct.pack("<QQ", 0, 1) + bytes(24) + bytes(8)


def record_chunk(chunk, length):
    return KEY + struct.pack(">II", 1, chunk) + bytes(3) + struct.pack("<IQ", length, 0) + bytes(length)


def readings():
    """The names in the order fuzz_decode numbers them."""
    with open(os.path.join(STORE, "types.def")) as f:
        types = [line[5:line.index(",")] for line in f if line.startswith("TYPE(")]
    return types, ["q4_1", "q4_1 signed", "q4k", "q8a", "q8b", "q8c"]


def main():
    def put(folder, name, data):
        path = os.path.join(HERE, "corpus", folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)

    for name, (number, values, size) in GGML.items():
        put("container", "gguf-" + name.lower(), gguf(number, values, random_bytes(size)))
    put("container", "q4nx-q4_1", q4nx([1, 5120], random_bytes(5120), [32, 8]))
    put("container", "q4nx-zeros", q4nx([1, 1, 5120], random_bytes(512) + bytes(4608), [32, 70]))
    put("container", "q4nx-q4k", q4nx([1, 1, 4736], random_bytes(4736), None))
    put("container", "q4nx-q8", q4nx([1, 1, 8704], q8_chunk(), [32, 70]))
    put("container", "q4nx-q8c", q4nx([1, 2, 5120], random_bytes(10240), [32, 250]))
    put("container", "llama2c-tied", llama2c(6))
    put("container", "llama2c-untied", llama2c(-6))
    put("container", "head-below", safetensors([("language_model.lm_head.weight", "F32", [1, 1], bytes(4)),
                                                ("language_model.lm_head.bias", "F32", [1], bytes(4))]))
    put("container", "head-in-another-form", safetensors([("lm_head.qweight", "I32", [1, 1], bytes(4)),
                                                          ("model.embed_tokens.weight", "F32", [1, 1], bytes(4))]))
    put("container", "pointer-of-git-lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    put("container", "web-page", b"<!DOCTYPE html><html></html>")
    put("index", "config-of-python", b'1{"NaN":[NaN,-Infinity,1000000000000000000000],"a":"\\"Infinity","a":1}')
    put("index", "config-of-two-minds", b'1{"tie_word_embeddings":true,"llm_config":{"tie_word_embeddings":false}}')
    put("index", "one-shard-unknown", b'0{"weight_map":{"lm_head.weight":"m-00002-of-00002.safetensors"}}')
    put("index", "names-of-all-kinds", b'0{"weight_map":{"a":"b.safetensors","\\"":"a.safetensors","c":"../a.safetensors",'
                                       b'"d":"b.safetensors","e":"\\u0061.safetensors"},"f":"z.safetensors"}')
    put("record", "header", b"\0" + record_header())
    put("record", "header-hashed", b"\1" + record_header())
    put("record", "header-cut", b"\0" + record_header()[:100])
    put("record", "chunk-of-codes", b"\2" + record_chunk(0, 2 * 64 * 128))
    put("record", "chunk-of-scales", b"\2" + record_chunk(1, 256 * 4))
    types, kinds = readings()
    for name, (_, _, size) in GGML.items():
        put("decode", name.lower(), bytes([types.index(name), 0]) + random_bytes(size * (1 if size > 40 else 3)))
    for i, name in enumerate(kinds):
        size = {"q4k": 4736, "q8a": 8704, "q8b": 8704}.get(name, 5120)
        put("decode", name.replace(" ", "-"), bytes([len(types) + i, 70]) + random_bytes(size))


if __name__ == "__main__":
    sys.exit(main())
