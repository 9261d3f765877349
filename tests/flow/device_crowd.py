"""device_crowd.py MODEL CLIENTS ANSWERS: CLIENTS processes ask for rows of the head until each has ANSWERS answers.

They ask for the device, and where it cannot be had for what there is. Every answer is compared with the host's, bit for
bit. Prints how many there were by path; fails with the first wrong one."""
import array
import collections
import random
import sys

import npud
from members import collect, spawn

MODEL, CLIENTS, ANSWERS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ROWS = 16


def open_head(client):
    head = client.call("head.open", file=client.pass_file(open(MODEL, "rb")))["head"]
    while True:
        told = client.call("head.wait", head=head)
        if told["ready"]:
            return head, told


def ask(client, head, x, which, **fields):
    return client.call("head.run", head=head, rows=len(which), x=b"".join(x[i] for i in which), **fields)


def references():
    rng = random.Random(1)
    with npud.Client(name="host") as client:
        head, told = open_head(client)
        x = [array.array("f", (rng.gauss(0, 1) for _ in range(told["h"]))).tobytes() for _ in range(ROWS)]
        return x, [ask(client, head, x, [i], path="host")["logits"] for i in range(ROWS)]


def member(seed, x, logits):
    rng = random.Random(seed)
    paths = collections.Counter()
    with npud.Client(name=f"member {seed}") as client:
        head, _ = open_head(client)
        for _ in range(ANSWERS):
            which = [rng.randrange(ROWS) for _ in range(rng.choice((1, 2, 5, 16)))]
            try:
                answer = ask(client, head, x, which, path="device")
            except npud.Error as error:
                if error.name != "NO_PATH":
                    raise
                answer = ask(client, head, x, which)
            if answer["logits"] != b"".join(logits[i] for i in which):
                sys.exit(f"FAIL: rows {which} on {answer['path']}: not the host's bits")
            paths[answer["path"]] += 1
    return paths


def main():
    x, logits = references()
    total, failed = collect([spawn(member, seed, x, logits) for seed in range(CLIENTS)])
    if failed:
        sys.exit("FAIL: a member failed, see above")
    print(*(f"{path} {count}" for path, count in sorted(total.items())))


main()
