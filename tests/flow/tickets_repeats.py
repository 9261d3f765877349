"""Requests about tickets that are sent again, as by a client that lost its connection, and offers that nobody confirms.
argv: what runs to kill the daemon and start it again."""
import subprocess
import sys
import time

from sp import Client, check, failures


def again(c, call):
    """Sends the same request once more: the same answer."""
    c.req -= 1
    return c.call(*call)


def reconnected(old):
    c = Client()
    c.nonce = old.nonce
    c.hello()
    c.req = old.req
    return c


def good(answer, what):
    check(answer[0] == 0, f"{what}: {answer}")
    return answer[1]


def tickets(c):
    return [(t["ticket"], t["state"]) for t in good(c.call("ticket.list"), "ticket.list")["tickets"]]


def client():
    c = Client()
    c.hello()
    return c


ask = ("ticket.request", {"label": "asked twice"})
holder, waiter = client(), client()
first = good(holder.call(*ask), "request")
check(first["state"] == "offered", first)
check(good(again(holder, ask), "the same request")["ticket"] == first["ticket"], "asked twice, and there are two")
take = ("ticket.confirm", {"ticket": first["ticket"], "token": first["token"], "number": first["number"]})
granted = good(holder.call(*take), "confirm")
check(good(again(holder, take), "the same confirm")["number"] == granted["number"], "confirmed twice")
check(good(holder.call(*take), "another confirm")["state"] == "granted", "confirmed again")
second = good(waiter.call(*ask), "request")
check(second["state"] == "queued" and second["place"] == 1, second)
look = client()
check(tickets(look) == [(first["ticket"], "granted"), (second["ticket"], "queued")], tickets(look))
for _ in range(9):
    passed = good(look.call("ticket.request", {}), "request")
    good(look.call("ticket.release", {"ticket": passed["ticket"], "token": passed["token"]}), "release")

# The daemon dies before its answer came, and is there again: the same request finds its ticket and its place.
subprocess.run(sys.argv[1:], check=True)
look = client()
waiter.req -= 1
waiter = reconnected(waiter)
check(good(waiter.call(*ask), "the request of before")["ticket"] == second["ticket"], "a second place in the queue")
check(tickets(look) == [(first["ticket"], "granted"), (second["ticket"], "queued")], tickets(look))
# With its token the holder goes on where it was.
holder = reconnected(holder)
show = {"ticket": first["ticket"], "token": first["token"], "version": 0}
kept = good(holder.call("ticket.wait", show), "wait")
check(kept["version"] > passed["version"], "versions of before the restart come again after it")
check(kept["state"] == "granted" and kept["connected"] and kept["remaining_ms"] <= granted["remaining_ms"], kept)
refusal = waiter.call("ticket.wait", {**show, "token": bytes(16)})
check(refusal[1].get("error") == "NO_SUCH_TICKET", refusal)
let_go = ("ticket.release", {"ticket": first["ticket"], "token": first["token"]})
check(good(holder.call(*let_go), "release")["state"] == "released", "release")
check(good(again(holder, let_go), "the same release")["state"] == "released", "the same release")
check(good(holder.call(*let_go), "another release")["state"] == "released", "another release")

# An offer that is not confirmed goes to the next, and its number is worth nothing from then on.
third = client()
next_one = good(third.call(*ask), "request")
stale = good(waiter.call("ticket.show", {"ticket": second["ticket"]}), "show")
check(stale["state"] == "offered", stale)
until = time.monotonic() + 60
while (state := good(third.call("ticket.show", {"ticket": next_one["ticket"]}), "show"))["state"] == "queued":
    check(time.monotonic() < until, "an offer that nobody confirms is kept for ever")
    if failures:
        break
    time.sleep(0.1)
check(state["state"] == "offered" and state["number"] > stale["number"], state)
late = waiter.call("ticket.confirm", {"ticket": second["ticket"], "token": second["token"], "number": stale["number"]})
check(late[1].get("error") == "TICKET_OVER", late)
good(third.call("ticket.confirm", {"ticket": next_one["ticket"], "token": next_one["token"], "number": state["number"]}),
     "confirm")
# A plain client that goes loses its ticket at once, and who waits has the next turn.
third.s.close()
mine = {"ticket": second["ticket"], "token": second["token"], "version": 0, "wait_ms": 0}
until = time.monotonic() + 20
while (state := good(waiter.call("ticket.wait", mine), "wait"))["state"] == "queued" and time.monotonic() < until:
    time.sleep(0.02)
check(state["state"] == "offered", state)
check(good(look.call("ticket.show", {"ticket": next_one["ticket"]}), "show")["state"] == "lost", "the ticket of one who left")
sys.exit(bool(failures))
