"""hostile_peers.py DIRECTORY: what no client should do, with a handwritten one."""
import os
import socket
import struct
import sys
import time

from sp import GREETING, Client, check, exactly, failures, file_pass, lives, pack, refused, side, side_send, stream

WORK = sys.argv[1]


def main_socket():
    for _ in range(200):
        stream().close()
    lives("200 connections that were closed at once")

    s = stream()
    s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    try:
        got = b""
        while part := s.recv(4096):
            got += part
        check(len(got) <= 8, f"HTTP was answered by {got!r}")
    except ConnectionError:
        pass
    except TimeoutError:
        check(False, "a peer that speaks HTTP is not disconnected within 10 s")
    s.close()
    lives("HTTP")

    half = stream()
    half.sendall(GREETING[:4])
    silent = stream()
    lives("half a greeting")

    c = Client()
    refused(c.call("ping"), 3, "HELLO_FIRST", "ping before hello")
    refused(c.call("head.list"), 3, "HELLO_FIRST", "head.list before hello")
    refused(c.call("hello", major=2), 4, "VERSION", "another major")
    hello = c.hello()
    check(len(hello["token"]) == 16 and hello["major"] == 1, f"hello: {hello}")
    check(c.call("ping") == (0, {}), "ping")
    refused(c.call("ping", major=9), 4, "VERSION", "another major later")
    refused(c.call("no.such.\x1b[31mop"), 5, "UNKNOWN_OP", "an unknown operation")
    refused(c.call("file.pass", {"token": hello["token"]}), 7, "NOT_ALLOWED", "file.pass on the main socket")
    malformed = {
        "an empty message": b"",
        "array32 that claims 2^32-1": b"\xdd\xff\xff\xff\xff",
        "map32 that claims 2^32-1": b"\xdf\xff\xff\xff\xff",
        "bin32 that claims 4 GiB": b"\xc6\xff\xff\xff\xff",
        "str cut short": b"\x94\x01\xd9\xff" + b"ping",
        "an extension": b"\x94\x01" + pack("ping") + b"\x01\xd4\x01\x00",
        "only a number": b"\x07",
        "text": b"GET / HTTP/1.1\r\n\r\n",
        "three elements": b"\x93\x01" + pack("ping") + b"\x01",
        "two values": pack([1, "ping", 1, {}]) * 2,
        "fields that are an array": pack([1, "ping", 1, []]),
        "an operation that is a number": pack([1, 2, 1, {}]),
        "a never used byte": b"\xc1",
    }
    for what, body in malformed.items():
        refused(c.raw(body), 1, "MALFORMED", what)
    refused(c.raw(b"\x91" * 100000 + b"\xc0"), 2, "TOO_LARGE", "deep nesting")
    field = b"\x94\x01" + pack("ping") + b"\x01\x81" + pack("a") + b"\x91" * 5000 + b"\xc0"
    refused(c.raw(field), 2, "TOO_LARGE", "deep nesting in a field")
    many = b"\x94\x01" + pack("ping") + b"\x01\x81" + pack("a") + b"\xdd" + struct.pack(">I", 100000) + b"\x00" * 100000
    code = c.raw(many)[1]
    check(code in (1, 2), f"100000 values in a field: code {code}")

    # Missing fields take their defaults: a handle 0, which there is not.
    for op in ("head.open", "head.wait", "head.run", "head.close", "file.close"):
        refused(c.call(op), 8, "NO_SUCH_HANDLE", f"{op} without fields")
    code, body = c.call("cancel")
    check(code == 0 and body.get("found") is False, f"cancel without fields: {code} {body}")
    check(c.call("ping", {"unknown": [1, 2, {"x": b"y"}]}) == (0, {}), "unknown fields are not ignored")
    for fields in ({"head": "one"}, {"head": b"1"}, {"head": []}):
        code = c.call("head.close", fields)[0]
        check(code in (1, 6), f"head.close {fields}: code {code}")
    check(c.call("ping") == (0, {}), "the session does not live on after refusals")

    # A frame that claims more than a request may have.
    big = stream()
    big.sendall(GREETING)
    exactly(big, 8)
    big.sendall(b"\x01" + struct.pack(">Q", 1 << 62))
    try:
        check(big.recv(1) == b"", "a frame of 2^62 bytes is not refused")
    except ConnectionError:
        pass
    except TimeoutError:
        check(False, "a frame that claims 2^62 bytes is not disconnected within 10 s")
    big.close()

    # Messages without a request id: too short, and the high bit never set.
    for payload in (b"", b"\x80", b"\x00" * 64):
        s = stream()
        s.sendall(GREETING + b"\x01" + struct.pack(">Q", len(payload)) + payload)
        s.close()
    lives("messages without a request id")
    half.close()
    silent.close()
    return c, hello["token"]


def side_socket(c, token):
    for _ in range(200):
        side().close()
    lives("200 connections to the side socket")
    # Their ends are noticed one after the other; so long the user has as many as one may have.
    for _ in range(100):
        if side_send(pack([1, "ping", 1, {}]))[-1].get("error") != "BUSY":
            break
        time.sleep(0.1)

    refused(side_send(b"\xc1garbage\x00\xff"), 1, "MALFORMED", "garbage on the side socket")
    refused(side_send(b"\xdd\xff\xff\xff\xff"), 1, "MALFORMED", "array32 on the side socket")
    refused(side_send(b"\xc6" + b"\x00" * 60000), 1, "MALFORMED", "a packet longer than any request")
    refused(side_send(pack([2, "file.pass", 1, {"token": token}])), 4, "VERSION", "another major on the side socket")
    refused(side_send(pack([1, "ping", 1, {}])), 5, "UNKNOWN_OP", "ping on the side socket")

    name = os.path.join(WORK, "some-file")
    with open(name, "wb") as f:
        f.write(b"hello")
    flags = {
        "a file open for writing": os.O_WRONLY,
        "a file open for reading and writing": os.O_RDWR,
        "a file open with O_PATH": os.O_PATH,
    }
    good = os.open(name, os.O_RDONLY)
    refused(file_pass(b"x" * 16, [good]), 7, "NOT_ALLOWED", "a wrong token")
    refused(file_pass(b"", [good]), 7, "NOT_ALLOWED", "an empty token")
    refused(file_pass(token[:15], [good]), 7, "NOT_ALLOWED", "a token cut short")
    refused(file_pass(token, []), 6, "BAD_VALUE", "no descriptor")
    for what, flag in flags.items():
        fd = os.open(name, flag)
        refused(file_pass(token, [fd]), 6, "BAD_VALUE", what)
        os.close(fd)
    directory = os.open(WORK, os.O_RDONLY)
    refused(file_pass(token, [directory]), 6, "BAD_VALUE", "a directory")
    pipe = os.pipe()
    refused(file_pass(token, [pipe[0]]), 6, "BAD_VALUE", "a pipe")
    null = os.open("/dev/null", os.O_RDONLY)
    refused(file_pass(token, [null]), 6, "BAD_VALUE", "a device")
    for fd in (directory, *pipe, null):
        os.close(fd)

    # Several descriptors in one packet: all are refused, none leaks (the shell counts).
    for count in (2, 8, 100):
        refused(file_pass(token, [good] * count), 6, "BAD_VALUE", f"{count} descriptors")

    req, code, body = file_pass(token, [good])
    check(code == 0, f"file.pass: {code} {body}")
    if code == 0:
        code, opened = c.call("head.open", {"file": body["file"]})
        if code == 0:
            code, opened = c.call("head.wait", {"head": opened["head"]})
        check(code == 18, f"five bytes as a model: {code} {opened}")
        check(c.call("file.close", {"file": body["file"]})[0] == 0, "file.close")
        refused(c.call("file.close", {"file": body["file"]}), 8, "NO_SUCH_HANDLE", "file.close twice")
    os.close(good)

    # The token of a session that has ended is worth nothing.
    d = Client()
    old = d.hello()["token"]
    d.s.close()
    time.sleep(0.3)
    fd = os.open(name, os.O_RDONLY)
    refused(file_pass(old, [fd]), 7, "NOT_ALLOWED", "the token of an ended session")
    os.close(fd)

    # A peer that sends and never reads.
    s = side()
    for _ in range(2000):
        try:
            s.send(pack([1, "ping", 1, {}]), socket.MSG_DONTWAIT)
        except OSError:
            break
    lives("a side peer that does not read")
    s.close()


def repeats():
    """A request that must not happen twice is answered from memory when it is repeated."""
    admin, again, victim, other = Client(), Client(), Client(), Client()
    again.nonce = admin.nonce
    for c in (admin, again, victim, other):
        c.session = c.hello()["session"]

    def kick(c, req, session):
        return c.raw(pack([1, "kick", req, {"session": session}]))

    check(kick(admin, 100, victim.session) == [100, 0, {}], "kick")
    check(victim.s.recv(1) == b"", "a kicked client is still connected")
    time.sleep(0.2)
    check(kick(admin, 100, victim.session) == [100, 0, {}], "kick repeated on the same connection")
    check(kick(again, 100, victim.session) == [100, 0, {}], "kick repeated on another connection of the client")
    refused(kick(admin, 101, victim.session), 25, "NO_SUCH_SESSION", "a new kick of who is gone")
    refused(kick(other, 100, victim.session), 25, "NO_SUCH_SESSION", "the number of another client's request")
    refused(kick(admin, 100, other.session), 6, "BAD_VALUE", "a number used again for another request")
    admin.s.close()
    again.s.close()
    time.sleep(0.2)
    later = Client()
    later.nonce = admin.nonce
    later.hello()
    check(kick(later, 100, victim.session) == [100, 0, {}], "kick repeated after the client came back")
    check(other.call("ping") == (0, {}), "a client that nobody kicked")
    for c in (victim, other, later):
        c.s.close()


def events():
    """What concerns a session waits for it, in bounded number; the journal shows all of it to all."""
    c, admin = Client(), Client()
    session = c.hello()["session"]
    admin.hello()
    check(c.call("events.next", {"wait_ms": 0}) == (0, {"events": [], "more": False, "resync": False}), "no events")
    code, body = c.call("events.next", {"since": 1 << 40, "wait_ms": 0})
    check(code == 0 and body["resync"], f"a number of another life of the daemon: {code} {body}")
    refused(c.call("events.next", {"wait_ms": 25001}), 6, "BAD_VALUE", "a wait that is too long")

    seen = 0  # page through to the end of the journal
    while True:
        code, body = admin.call("events.list", {"since": seen, "wait_ms": 0})
        if body["events"]:
            seen = body["events"][-1]["number"]
        if not body["more"]:
            break
    waiting = Client()
    waiting.hello()
    waiting.send("events.list", {"since": seen})
    c.send("events.next", {})
    time.sleep(0.1)
    code, _ = admin.call("kick", {"session": session})
    check(code == 0, "kick")
    code, body = waiting.answer()
    told = body["events"][0]
    check(told["kind"] == "kicked" and told["session"] == session and told["number"] == seen + 1, f"the journal: {told}")
    check(told["uid"] == os.getuid() and abs(told["time_ms"] / 1000 - time.time()) < 60, f"the journal: {told}")

    # A journal that a reader did not follow says so, and pages.
    for _ in range(1100):
        d = Client()
        admin.call("kick", {"session": d.hello()["session"]})
        d.s.close()
    code, body = admin.call("events.list", {"since": seen, "wait_ms": 0})
    check(body["resync"] and body["more"] and len(body["events"]) == 32, f"an overflown journal: {body['resync']} {body['more']}")
    numbers = [e["number"] for e in body["events"]]
    while body["more"]:
        code, body = admin.call("events.list", {"since": numbers[-1], "wait_ms": 0})
        check(not body["resync"], "resync in the middle of the journal")
        numbers += [e["number"] for e in body["events"]]
    check(numbers == list(range(numbers[0], numbers[0] + 1024)), f"the journal: {len(numbers)} from {numbers[0]} to {numbers[-1]}")
    for s in (c, admin, waiting):
        s.s.close()


client, its_token = main_socket()
events()
repeats()
side_socket(client, its_token)
check(client.call("ping") == (0, {}), "the first session does not live to the end")
client.s.close()
print("hostile peers:", "good" if not failures else f"{len(failures)} failures")
sys.exit(bool(failures))
