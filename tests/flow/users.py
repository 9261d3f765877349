"""users.py DIRECTORY: what one user holds is of no use to another. As root: it connects as others."""
import contextlib
import os
import sys
import time

from sp import Client, check, failures, file_pass, refused

WORK = sys.argv[1]
ALICE, BOB, CAROL = 2001, 2002, 2003
USERS, STAFF = 100, 50


@contextlib.contextmanager
def user(uid, gid):
    """The kernel takes the identity of a peer when it connects."""
    os.setgroups([USERS])
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def client(uid, gid):
    with user(uid, gid):
        c = Client()
    c.told = c.hello()
    return c


def passed(uid, token, fd):
    with user(uid, uid):
        return file_pass(token, [fd])


alice, bob, carol = client(ALICE, ALICE), client(BOB, BOB), client(CAROL, STAFF)
secret = os.path.join(WORK, "secret.safetensors")
fd = os.open(secret, os.O_RDONLY)
code, body = passed(ALICE, alice.told["token"], fd)[1:]
check(code == 0, f"file.pass: {code} {body}")
file = body["file"]
code, body = alice.call("head.open", {"file": file})
check(code == 0, f"head.open: {code} {body}")
head = body["head"]
check(alice.call("head.wait", {"head": head})[1].get("ready"), "head.wait")

refused(bob.call("head.open", {"file": file}), 8, "NO_SUCH_HANDLE", "another's file")
for op in ("head.wait", "head.run", "head.close"):
    refused(bob.call(op, {"head": head}), 8, "NO_SUCH_HANDLE", f"{op} of another's head")
refused(bob.call("file.close", {"file": file}), 8, "NO_SUCH_HANDLE", "file.close of another's file")
refused(passed(BOB, alice.told["token"], fd), 7, "NOT_ALLOWED", "another user's token")
alice.send("events.next", {})
time.sleep(0.1)
check(bob.call("cancel", {"req": alice.req}) == (0, {"found": False}), "cancel of another's request")

refused(bob.call("kick", {"session": alice.told["session"]}), 7, "NOT_ALLOWED", "kick by a stranger")
message = bob.call("kick", {"session": alice.told["session"]})[1]["message"]
check("root" in message and "staff" in message and str(BOB) in message, f"who may is not told: {message}")
refused(bob.call("reload"), 7, "NOT_ALLOWED", "reload by a stranger")
other = Client()  # root, with Alice's nonce: another user, another client
other.nonce = alice.nonce
other.hello()
check(bob.call("ping") == (0, {}) and other.call("ping") == (0, {}), "the others")

check(carol.call("kick", {"session": alice.told["session"]}) == (0, {}), "kick by a member of the admin group")
code, body = alice.answer()
check(body["events"][0]["kind"] == "kicked", f"what the kicked one is told: {body}")
check(alice.s.recv(1) == b"", "the kicked one is still connected")
refused(passed(ALICE, alice.told["token"], fd), 7, "NOT_ALLOWED", "the token of a session that was ended")
print("users:", "good" if not failures else f"{len(failures)} failures")
sys.exit(bool(failures))
