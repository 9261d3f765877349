"""device_lies_to_a_crowd.py MODEL SECONDS: 8 processes on a device of which launches go wrong.

Every answer is compared with the host's, bit for bit. Prints what was done; fails with the first wrong answer."""
import random
import sys
import time

import npud
from members import collect, spawn

MODEL, SECONDS = sys.argv[1], float(sys.argv[2])
MEMBERS, ROWS, FAULTS = 8, 32, ("timeouts", "errors", "hangs", "mismatches")


def floats(k, seed):
    return npud.array.array("f", (random.Random(seed).uniform(-4, 4) for _ in range(k))).tobytes()


def open_all(client):
    """The operation, its field and the handle of each kind of weights."""
    file = client.pass_file(open(MODEL, "rb"))
    handles = []
    for layout in ("blocked", "row-major"):
        head = client.call("head.open", file=file, layout=layout)["head"]
        while not client.call("head.wait", head=head)["ready"]:
            pass
        handles.append(("head.run", "head", head, "logits"))
        fields = {"file": file, "tensors": [{"name": "lm_head.weight"}], "layer": 3, "role": "1", "layout": layout}
        weights = client.call("weights.load", **fields)
        while not weights["ready"]:
            weights = client.call("weights.load", weights=weights["weights"])
        handles.append(("gemm.run", "weights", weights["weights"], "y"))
    return handles


def run(client, handle, x, which, path):
    op, field, number, _ = handle
    return client.call(op, **{field: number}, rows=len(which), x=b"".join(x[i] for i in which), path=path)


def member(x, right, seed, until):
    local = random.Random(seed)
    counts = {"host": 0, "device": 0, "refused": 0}
    with npud.Client(name=f"member {seed}") as client:
        handles = open_all(client)
        while time.monotonic() < until:
            handle = local.choice(handles)
            which = [local.randrange(ROWS) for _ in range(local.choice((1, 2, 5, 16, 40)))]
            path = local.choice(("auto", "device", "alternate"))
            try:
                answer = run(client, handle, x, which, path)
            except npud.Error as error:
                if error.name != "NO_PATH" or path != "device":
                    sys.exit(f"FAIL: path={path}: {error.name}: {error.message}")
                counts["refused"] += 1
                time.sleep(0.001)
                continue
            if answer[handle[3]] != b"".join(right[i] for i in which):
                sys.exit(f"FAIL: {handle[0]}, rows {which}, path={path}, on {answer['path']}: other bits")
            if path == "device" and answer["path"] != "device" or (answer["path"] == "device") != (answer["launch_rows"] > 0):
                sys.exit(f"FAIL: path={path} says it ran on {answer['path']} in launches of {answer['launch_rows']}")
            counts[answer["path"]] += 1
    return counts


with npud.Client(name="reference") as reference:
    handles = open_all(reference)
    with reference.open(MODEL) as head:
        x = [floats(head.h, i) for i in range(ROWS)]
    right = [run(reference, handles[0], x, [i], "host")["logits"] for i in range(ROWS)]
    for handle in handles:
        for i in range(ROWS):
            if run(reference, handle, x, [i], "host")[handle[3]] != right[i]:
                sys.exit("FAIL: the host's bits depend on the layout")
    until = time.monotonic() + SECONDS
    members = [spawn(member, x, right, i, until) for i in range(MEMBERS)]
    total, failed = collect(members)
    device = reference.call("device")
print(*(f"{value} {key}" for key, value in total.items()), *(f"{device[f]} {f}" for f in ("launches", *FAULTS)))
if failed:
    sys.exit("FAIL: a member failed, see above")
if not total["device"] or not total["host"] or not all(device[f] for f in FAULTS):
    sys.exit("FAIL: the crowd did not do what it is for")
