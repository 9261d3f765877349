"""crowd.py TOOLS DIRECTORY SECONDS SEED: 16 processes, three heads, rows at random, some cancelled, some killed.

Every answer is compared with the oracle's, bit for bit. Prints what was done; fails with the first wrong answer."""
import os
import random
import signal
import sys
import time

import npud
from members import collect, spawn

TOOLS, WORK, SECONDS, SEED = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
sys.path.insert(0, TOOLS)
import oracle  # noqa: E402

MEMBERS, ROWS, KILLS = 16, 24, 12
rng = random.Random(SEED)


def rotten(k):
    return oracle.farr([rng.choice((float("nan"), float("inf"), -1.0, 3.0)) for _ in range(k)])


class Reference:
    """A head's file, rows to ask for, and what the oracle says of each."""

    def __init__(self, path):
        n, k, w = oracle.weights(path, "lm_head.weight")
        scales, columns = oracle.quant_all(n, k, w)
        self.path = path
        rows = [oracle.vector(k, i + 1) for i in range(ROWS)] + [rotten(k) for _ in range(4)]
        self.x = [oracle.fbytes(x) for x in rows]
        self.logits = [oracle.fbytes(oracle.logits(scales, columns, x)) for x in rows]

    def ask(self, head, which, start=False):
        fields = {"head": head, "rows": len(which), "x": b"".join(self.x[i] for i in which)}
        return head_client.start("head.run", **fields) if start else head_client.call("head.run", **fields)

    def check(self, answer, which, how):
        if answer["logits"] != b"".join(self.logits[i] for i in which):
            sys.exit(f"FAIL: {self.path}, rows {which}, {how}: not the oracle's bits")


def open_head(client, reference):
    file = client.pass_file(open(reference.path, "rb"))
    head = client.call("head.open", file=file)["head"]
    while not client.call("head.wait", head=head)["ready"]:
        pass
    return head


def one_row_in_any_company(references):
    global head_client
    with npud.Client(name="company") as head_client:
        for r in references:
            head = open_head(head_client, r)
            for which in [[0], [ROWS], *([0] + [rng.randrange(ROWS) for _ in range(n - 1)] for n in range(2, 17)),
                          [ROWS, 0, ROWS + 1], [i % (ROWS + 4) for i in range(128)]]:
                r.check(r.ask(head, which), which, "alone")


def member(references, seed, until):
    global head_client
    local = random.Random(seed)
    counts = {"answers": 0, "cancelled": 0, "shared": 0}
    with npud.Client(name=f"member {seed}") as head_client:
        heads = [(r, open_head(head_client, r)) for r in references]
        while time.monotonic() < until:
            r, head = local.choice(heads)
            which = [local.randrange(ROWS + 4) for _ in range(local.choice((1, 1, 1, 2, 5, 16, 40)))]
            pending = r.ask(head, which, start=True)
            if local.random() < 0.1:
                time.sleep(local.random() * 0.002)
                pending.cancel()
            try:
                answer = pending.result()
            except npud.Error as error:
                if error.name != "CANCELLED":
                    sys.exit(f"FAIL: {error.name}: {error.message}")
                counts["cancelled"] += 1
                continue
            r.check(answer, which, f"in a pass of {answer['rows_in_pass']}")
            counts["answers"] += 1
            counts["shared"] += answer["rows_in_pass"] > min(len(which), 16)
            if local.random() < 0.2:
                time.sleep(local.random() * 0.01)
    return counts


references = [Reference(os.path.join(WORK, f"{i}.safetensors")) for i in (1, 2, 3)]
one_row_in_any_company(references)
until = time.monotonic() + SECONDS
members = [spawn(member, references, i, until) for i in range(MEMBERS)]
for i in range(KILLS):
    time.sleep(SECONDS / (KILLS + 2))
    victim = rng.randrange(MEMBERS)
    pid, pipe = members[victim]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(pipe)
    members[victim] = spawn(member, references, 100 + i, until)
total, failed = collect(members)
if failed:
    sys.exit("FAIL: a member failed, see above")
if not total["answers"] or not total["shared"] or not total["cancelled"]:
    sys.exit(f"FAIL: the crowd did not do what it is for: {total}")
with npud.Client(name="after") as after:
    status = after.call("status")
    if status["clients"] != 1 or status["in_flight"] != 1:
        sys.exit(f"FAIL: something of the dead is left: {status}")
print(*(f"{value} {key}" for key, value in total.items()))
