"""uploads.py MODEL SHARD SHARD: model files sent piece by piece; [limits] user_upload is twice MODEL's size, less 1."""
import os
import signal
import subprocess
import sys

import npud

MODEL, SHARDS = sys.argv[1], sys.argv[2:4]
with open(MODEL, "rb") as f:
    BYTES = f.read()


def check(ok, what):
    if not ok:
        sys.exit(f"FAIL: {what}")


def refused(error_name, op, **fields):
    try:
        c.call(op, **fields)
    except npud.Error as error:
        check(error.name == error_name, f"{op}: refused as {error.name}, not {error_name}: {error.message}")
        return error
    sys.exit(f"FAIL: not refused: {op} {fields}")


def begin(size, **fields):
    return c.call("upload.begin", name="model.safetensors", bytes=size, **fields)["file"]


def same_as_passed():
    x = [1.0, -2.0] * 16
    with c.open(MODEL) as passed:
        logits, name = passed.logits(x[: passed.h]), passed.info["hash"]
        file = c.upload(BYTES)
        with c.open(file) as head:
            check(head.info["hash"] == name and head.info["attached"], f"an upload has another hash: {head.info}")
            check(head.logits(x[: head.h]) == logits, "other logits")
        check(c.call("model.tensors", file=file)["head"] == "lm_head.weight", "its tensors")
        c.call("file.close", file=file)
    # Alone, as a projection, of two shards, and by itself where no descriptor can be passed.
    file = c.upload(MODEL)
    with c.load_weights(file, "lm_head.weight", "3", layer=2) as w:
        c.call("file.close", file=file)
        check(w.gemm(x[: w.h]) == logits, "the product with uploaded weights")
    with c.open(SHARDS) as head:
        logits = head.logits(x[: head.h])
    first = c.upload(SHARDS[0])
    c.upload(SHARDS[1], of=first)
    with c.load_weights(first, ["lm_head.weight"], "both") as w:
        check(w.gemm(x[: w.h]) == logits, "uploaded shards")
    c.call("file.close", file=first)
    with npud.Client(socket=os.environ["NO_SIDE_SOCKET"]) as d, d.open(SHARDS) as head:
        check(head.logits(x[: head.h]) == logits, "without a side socket")


def in_order_or_not_at_all():
    check("no bytes" in refused("BAD_VALUE", "upload.begin", name="m", bytes=0).message, "none")
    check(refused("BAD_VALUE", "upload.begin", bytes=0).message.startswith("a file without a name: "), "no name")
    refused("NO_SUCH_HANDLE", "upload.begin", name="m", bytes=9, of=999)
    refused("NO_SUCH_HANDLE", "upload.put", file=999, at=0, data=b"x")
    refused("NO_SUCH_HANDLE", "upload.end", file=999)
    passed = c.pass_file(os.open(MODEL, os.O_RDONLY))
    refused("BAD_VALUE", "upload.put", file=passed, at=0, data=b"x")
    refused("BAD_VALUE", "upload.end", file=passed)
    c.call("file.close", file=passed)

    file = begin(len(BYTES))
    check(c.call("upload.put", file=file, at=0, data=BYTES[:100])["bytes"] == 100, "bytes so far")
    check("100 have come" in refused("BAD_VALUE", "upload.put", file=file, at=99, data=b"x").message, "from where")
    refused("BAD_VALUE", "upload.put", file=file, at=101, data=b"x")
    error = refused("TOO_LARGE", "upload.put", file=file, at=100, data=BYTES)
    check(error.detail["limit"] == len(BYTES) and error.detail["needed"] == len(BYTES) + 100, f"{error.detail}")
    error = refused("BAD_COUNT", "upload.end", file=file)
    check(error.detail["needed"] == len(BYTES) and error.detail["limit"] == 100, f"{error.detail}")
    for op, fields in (("head.open", {}), ("model.tensors", {}), ("resident.plan", {}),
                       ("weights.load", {"tensors": [{"name": "lm_head.weight"}], "role": "0"})):
        check("100 of" in refused("BAD_VALUE", op, file=file, **fields).message, f"{op} of half a file")
    # What is repeated, since its answer was lost, is not done twice.
    fields = {"file": file, "at": 100, "data": BYTES[100:200]}
    put = c.start("upload.put", **fields)
    check(put.result()["bytes"] == 200, "the next bytes")
    check(c._send("upload.put", fields, put.req).result()["bytes"] == 200, "a repeat is not answered alike")
    c.call("upload.put", file=file, at=200, data=BYTES[200:])
    for _ in range(2):
        c.call("upload.end", file=file)
    check("has ended" in refused("BAD_VALUE", "upload.put", file=file, at=len(BYTES), data=b"").message, "the end")
    with c.open(file):
        pass
    c.call("file.close", file=file)
    refused("NO_SUCH_HANDLE", "upload.put", file=file, at=0, data=b"")
    file = c.upload(b"no model at all")
    check(refused_open(file) == "BAD_CONTAINER", "garbage")
    c.call("file.close", file=file)


def refused_open(file):
    try:
        c.open(file)
    except npud.Error as error:
        return error.name
    return None


def bounded():
    most, size = c.hello["user_upload"], len(BYTES)
    error = refused("TOO_LARGE", "upload.begin", name="m", bytes=most + 1)
    check(error.detail["limit"] == most and error.detail["needed"] == most + 1, f"{error.detail}")
    first = begin(size)
    with npud.Client() as other:
        try:
            other.upload(BYTES)
            check(False, "two connections of a user have more than it may")
        except npud.Error as error:
            check(error.name == "BUSY" and error.detail["depth"] == size and error.detail["retry_ms"], f"{error!r}")
    c.call("file.close", file=first)  # never ended: its bytes are free again
    first = c.upload(BYTES)
    with c.open(first):
        pass
    check(refused("BUSY", "upload.begin", name="m", bytes=size).detail["depth"] == size, "what was read is charged on")
    c.call("file.close", file=first)
    c.call("file.close", file=begin(most))
    # What a client that was killed had begun, is nobody's.
    killed = subprocess.Popen(
        [sys.executable, "-c", f"import npud, time\nc = npud.Client()\n"
         f"f = c.call('upload.begin', name='m', bytes={most})['file']\n"
         "c.call('upload.put', file=f, at=0, data=b'x' * 1000)\nprint('begun', flush=True)\ntime.sleep(600)"],
        stdout=subprocess.PIPE)
    killed.stdout.readline()
    check(refused("BUSY", "upload.begin", name="m", bytes=1).detail["depth"] == most, "what another process has")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    for _ in range(1000):
        try:
            file = begin(most)
            break
        except npud.Error as error:
            check(error.name == "BUSY", f"{error!r}")
    c.call("file.close", file=file)


with npud.Client(name="uploads") as c:
    same_as_passed()
    in_order_or_not_at_all()
    bounded()
print("ok")
