"""quotas.py DIRECTORY: one user takes all it may have; limits as quotas.sh sets them."""
import os
import select
import socket
import sys
import time

from sp import Client, check, failures, file_pass, lives, pack, refused, side, unpack

WORK = sys.argv[1]
CONNECTIONS, IN_FLIGHT, USER_IN_FLIGHT, HANDLES = 6, 4, 10, 5


def busy(answer, depth, limit, what):
    refused(answer, 9, "BUSY", what)
    detail = answer[-1].get("detail", {})
    check(detail.get("depth") == depth and detail.get("limit") == limit, f"{what}: {detail}")
    check(0 < detail.get("retry_ms", 0) <= 1000, f"{what}: {detail}")


def at_once(ask, what):
    """Whether a refusal comes within 50 ms: on a machine that does much else, one of twenty."""
    for _ in range(20):
        begun = time.monotonic()
        ask()
        if time.monotonic() - begun < 0.05:
            return
    check(False, f"{what}: none of 20 refusals came within 50 ms")


def counted_out():
    """Waits until connections that were closed are not counted any more."""
    for _ in range(100):
        try:
            c = Client()
            alone = c.call("hello", {})[0] == 0 and c.call("status")[1]["clients"] == 1
            c.s.close()
            if alone:
                return
        except (OSError, EOFError):
            pass
        time.sleep(0.1)


def connections():
    clients = [Client() for _ in range(CONNECTIONS)]
    for c in clients:
        told = c.hello()
    check(told["user_connections"] == CONNECTIONS and told["max_in_flight"] == IN_FLIGHT, f"hello: {told}")
    check(told["user_in_flight"] == USER_IN_FLIGHT and told["user_handles"] == HANDLES, f"hello: {told}")
    late = Client()
    for _ in range(3):
        busy(late.call("hello", {}), CONNECTIONS, CONNECTIONS, "one connection too many")
    at_once(lambda: late.call("hello", {}), "a connection too many")
    refused(late.call("ping"), 3, "HELLO_FIRST", "ping on a connection too many")
    clients.pop().s.close()
    time.sleep(0.2)
    check(late.call("hello", {})[0] == 0, "a connection that may be there now")
    busy(Client().call("hello", {}), CONNECTIONS, CONNECTIONS, "another connection too many")
    for c in clients + [late]:
        c.s.close()

    # Far too many: the ones behind those that are told so are closed at once, and nobody else notices.
    crowd = []
    try:
        for _ in range(CONNECTIONS + 32 + 64):  # some of those before may not be counted out yet, nor be let in
            crowd.append(Client())
            crowd[-1].call("hello", {})
        check(False, "connections that nobody limits")
    except (OSError, EOFError):
        check(len(crowd) > CONNECTIONS, f"only {len(crowd)} connections")
    for c in crowd:
        c.s.close()
    counted_out()
    lives("a crowd of connections", within=5)


def in_flight():
    clients = [Client() for _ in range(3)]
    for c in clients:
        c.hello()
    a, b, d = clients
    for c in (a, b):
        for _ in range(IN_FLIGHT):
            c.send("events.next", {})
    time.sleep(0.2)
    busy(a.call("ping"), IN_FLIGHT, IN_FLIGHT, "a request of the connection too many")
    for _ in range(USER_IN_FLIGHT - 2 * IN_FLIGHT):
        d.send("events.next", {})
    time.sleep(0.2)
    busy(d.call("ping"), USER_IN_FLIGHT, USER_IN_FLIGHT, "a request of the user too many")
    at_once(lambda: d.call("ping"), "a request of the user too many")
    at_once(lambda: a.call("ping"), "a request of the connection too many")
    d.send("cancel", {"req": 2})
    codes = {d.answer(mine=False)[0] for _ in range(2)}
    check(codes == {10, 0}, f"cancel, which frees, is served above the limit: {codes}")
    check(d.call("ping") == (0, {}), "a request that may be there now")
    a.s.close()
    time.sleep(0.2)
    check(b.call("ping")[0] == 9 and d.call("ping")[0] == 0, "what a client that went away had in flight")
    for c in clients:
        c.s.close()


def handles():
    name = os.path.join(WORK, "any-file")
    with open(name, "wb") as f:
        f.write(b"hello")
    fd = os.open(name, os.O_RDONLY)
    a, b = Client(), Client()
    tokens = [c.hello()["token"] for c in (a, b)]
    files = [file_pass(tokens[0], [fd])[2]["file"] for _ in range(HANDLES - 1)]
    code, _ = a.call("head.open", {"file": files[0]})
    check(code == 0, "head.open")
    busy(file_pass(tokens[0], [fd]), HANDLES, HANDLES, "a file too many")
    busy(file_pass(tokens[1], [fd]), HANDLES, HANDLES, "a file too many on another connection of the user")
    busy(a.call("head.open", {"file": files[0]}), HANDLES, HANDLES, "a head too many")
    at_once(lambda: file_pass(tokens[0], [fd]), "a file too many")
    at_once(lambda: a.call("head.open", {"file": files[0]}), "a head too many")
    check(a.call("file.close", {"file": files[-1]})[0] == 0, "file.close")
    check(file_pass(tokens[1], [fd])[1] == 0, "a file that may be there now")
    a.s.close()
    time.sleep(0.2)
    for _ in range(HANDLES - 1):
        check(file_pass(tokens[1], [fd])[1] == 0, "what a client that went away had open")
    busy(file_pass(tokens[1], [fd]), HANDLES, HANDLES, "a file too many at the end")
    b.s.close()
    os.close(fd)


def side_connections():
    peers = [side() for _ in range(64)]
    time.sleep(0.2)
    for _ in range(3):
        late = side()
        select.select([late], [], [], 10)
        late.send(pack([1, "ping", 1, {}]))  # it has been told, and has not looked: it is no broken connection
        busy(unpack(late.recv(65536))[0], 64, 64, "a connection to the side socket too many")
        check(late.recv(1) == b"", "a refused connection is still there")
        late.close()
    for s in peers:
        s.close()
    time.sleep(0.2)
    s = side()
    s.send(pack([1, "ping", 1, {}]))
    refused(unpack(s.recv(65536))[0], 5, "UNKNOWN_OP", "the side socket afterwards")
    s.close()

    # However many there are, who comes next is told so.
    crowd = [side() for _ in range(2000)]
    token = Client().hello()["token"]
    with open(os.path.join(WORK, "any-file"), "rb") as f:
        busy(file_pass(token, [f.fileno()], req=0), 64, 64, "file.pass beside 2000 connections")
    for s in crowd:
        s.close()


for part in (connections, in_flight, handles, side_connections):
    part()
    counted_out()
    time.sleep(0.3)
print("quotas:", "good" if not failures else f"{len(failures)} failures")
sys.exit(bool(failures))
