"""
untaken.py MODEL LIMIT PID: clients of a user ask for large results and do not read them. The daemon PID never has more
of them than [limits] user_replies, LIMIT, allows; who asks for more is told so; who reads gets what was asked for.
"""
import os
import sys

from sp import Client, check, failures, file_pass, lives

MODEL, LIMIT, DAEMON = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ROWS, ASKED = 64, 12


def resident(which):
    with open(f"/proc/{DAEMON}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(which))


def opened():
    c = Client()
    c.told = c.hello()
    fd = os.open(MODEL, os.O_RDONLY)
    file = file_pass(c.told["token"], [fd])[2]["file"]
    os.close(fd)
    c.head = c.call("head.open", {"file": file})[1]["head"]
    while not (told := c.call("head.wait", {"head": c.head})[1])["ready"]:
        pass
    c.x = bytes(4 * told["h"] * ROWS)
    c.size = 4 * told["nv"] * ROWS
    return c


def ask(c, times):
    for _ in range(times):
        c.send("head.run", {"head": c.head, "rows": ROWS, "x": c.x})


def too_many(code, body):
    detail = body.get("detail", {})
    check(code == 9 and detail.get("limit") == LIMIT and detail.get("depth", 0) <= LIMIT, f"{code} {detail}")
    check(detail.get("needed", 0) >= reader.size and 0 < detail.get("retry_ms", 0) <= 1000, f"{detail}")


def fill(clients):
    """One result for each, which it does not read: computed, they count as long as nobody has."""
    rows = reader.call("status")[1]["rows"]
    for c in clients:
        ask(c, 1)
        rows += ROWS
        while reader.call("status")[1]["rows"] < rows:
            pass
    ask(reader, 1)
    too_many(*reader.answer())


def given_back(what):
    for _ in range(200):
        ask(reader, 1)
        code, body = reader.answer()
        if code == 0:
            check(len(body["logits"]) == reader.size, f"a result of {len(body['logits'])} bytes")
            return
    check(False, f"{what}: {code} {body}")


silent, reader = opened(), opened()
fit = LIMIT // reader.size
check(silent.told["user_replies"] == LIMIT, f"hello: {silent.told}")
before = resident("VmRSS")
fill([silent] * fit)
ask(silent, ASKED)
ask(reader, ASKED)
for _ in range(ASKED):
    too_many(*reader.answer(mine=False))
# A result is there twice while it is written down; a sanitizer keeps what was freed.
grown = resident("VmHWM") - before
print(f"{grown >> 20} MiB at most, {2 * ASKED} results of {reader.size >> 20} MiB were asked for")
check(grown < 5 * LIMIT, f"{grown} bytes for results of {LIMIT}")
silent.s.close()
given_back("after one connection with several")

# A connection that has only one, of which NNG says that it was sent, counts too.
few = [opened() for _ in range(fit)]
fill(few)
for c in few:
    c.s.close()
given_back("after several connections with one")
lives("results that nobody takes", within=5)
sys.exit(bool(failures))
