#!/usr/bin/env python3
"""tests/bench/clients.py: one client of the daemon, sixteen, and sixteen processes without one, on one head of
151936 x 2048 for argmax. A daemon of its own; NPUD_BIN is the build folder, which keeps the model. One line a figure,
separated by tabs, as scripts/bench reads it: name, value (the median of the turns), must, aim, the least, the
largest, what it is. BENCH_QUICK: shorter turns."""
import json
import os
import subprocess
import sys
import time

import server
from server import BIN

BENCH = os.path.join(BIN, "client", "npu-bench")
MODEL = os.path.join(BIN, "bench-151936x2048.safetensors")
QUICK = bool(os.environ.get("BENCH_QUICK"))
CLIENTS, TURNS, SECONDS = 16, 9, 0.7 if QUICK else 2
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "client", "python"))


def crowd(count, seconds, *options):
    said = subprocess.run([BENCH, "clients", MODEL, "--clients", str(count), "--seconds", str(seconds), "--json", *options],
                          stdout=subprocess.PIPE, check=True).stdout
    return json.loads(said)["rows"][0]


def report(name, values, must, aim, what):
    values = sorted(values)
    print(name, "%.3f" % values[len(values) // 2], must, aim, "%.3f" % values[0], "%.3f" % values[-1], what, sep="\t",
          flush=True)


def pass_ratio(client, head):
    """What a pass over 16 rows takes over one of a row: nothing can be served faster than that."""
    def compute(rows):
        fields = {"head": head.handle, "want": "argmax", "rows": rows, "x": bytes(4 * head.h * rows)}
        return sorted(client.call("head.run", **fields)["compute_seconds"] for _ in range(5))[2]
    return compute(CLIENTS) / compute(1)


def outside(client, head):
    """What share of a request for one row is not the pass: the way there and back, through Python here."""
    shares = []
    for _ in range(20):
        begun = time.monotonic()
        ran = client.call("head.run", head=head.handle, want="argmax", x=bytes(4 * head.h))["compute_seconds"]
        shares.append(1 - ran / (time.monotonic() - begun))
    return sorted(shares)[len(shares) // 2]


def measure():
    import npud

    with npud.Client(name="bench") as client, client.open(MODEL) as head:
        turns = []
        for _ in range(TURNS):
            turns.append((crowd(1, SECONDS), crowd(CLIENTS, SECONDS), pass_ratio(client, head), outside(client, head)))
    apart = [crowd(CLIENTS, SECONDS, "--separate") for _ in range(1 if QUICK else 3)]
    report("clients.16.over1", [many["rows_per_second"] / one["rows_per_second"] for one, many, *_ in turns], ">=7", ">=9",
           "rows/s of 16 clients over those of one alone")
    report("clients.16.limit", [CLIENTS / ratio for _, _, ratio, _ in turns], "-", "-",
           "16 over what a pass of 16 rows takes of one row's: no more can be had")
    report("clients.16.rows", [many["rows_per_pass"] for _, many, *_ in turns], "-", "-", "rows of a pass while 16 ask")
    report("clients.16.p99", [many["worst_p99_ms"] / one["p99_ms"] for one, many, *_ in turns], "<=3", "<=2.5",
           "the worst client's p99 over that of one alone")
    report("clients.1.outside", [share for *_, share in turns], "<=0.12", "<=0.03",
           "share of a request for one row spent outside its pass")
    together = sorted(many["rows_per_second"] for _, many, *_ in turns)[len(turns) // 2]
    report("clients.16.over_apart", [together / row["rows_per_second"] for row in apart], ">=6", ">=9",
           "rows/s of 16 clients over those of 16 processes with a pass each")


def main():
    if not os.path.exists(MODEL):
        subprocess.run([os.path.join(BIN, "tests", "make-model"), MODEL + ".new", "151936", "2048"], check=True)
        os.rename(MODEL + ".new", MODEL)
    with server.running("[store]\nenabled = no\n"):
        measure()


main()
