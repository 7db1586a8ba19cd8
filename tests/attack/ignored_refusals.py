"""One client ignores its 429s as fast as it can: the log stays readable, and shows another client's
requests."""

import threading
import time

from lib.attack import HTTP1, Attack
from lib.world import World, eventually, read, request, require, response, status_of

GATEWAY = """
[gateway]
listen = "127.0.0.1:0"
[gateway.cache]
enabled = false
"""


def refusals(world, seconds, counts):
    """Sends small reads on one connection, many at a time; counts the responses by status."""
    connection = world.connect("gateway")
    bytes_ = request(b"POST", b"/rpc", read())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        connection.sendall(bytes_)
        status, fields, _ = response(connection)
        counts.append(status)
        if fields.get("connection") == "close":
            connection.close()
            connection = world.connect("gateway")
    connection.close()


def refusals_are_ignored():
    with World(GATEWAY) as world:
        counts = []
        threads = [threading.Thread(target=refusals, args=(world, 4, counts)) for _ in range(4)]
        for thread in threads:
            thread.start()
        others = [status_of(world, "gateway", b"POST", b"/rpc", read()) for _ in range(50)]
        for thread in threads:
            thread.join()
        require(set(others) == {200}, f"another client's reads: {set(others)}")
        require(set(counts) <= {200, 429}, f"the flood's: {set(counts)}")
        refused = counts.count(429)
        require(counts.count(200) == 180 and refused > 1_000, f"180 pass, {refused} are refused")

        def lines(client):
            of = [entry for entry in world.entries() if entry.get("client") == client]
            return [entry for entry in of if "status" in entry]

        eventually("each request of the other is logged", lambda: len(lines("192.0.2.2")) == 50)
        logged = len([line for line in lines("192.0.2.1") if line["status"] == 429])
        require(1 <= logged <= max(100, refused // 10), f"{logged} lines for {refused} refusals")
        total = world.metric("portcullis_requests_total")
        require(total >= len(counts), f"{total} of {len(counts)} are counted")


ATTACK = Attack(
    title="ignored refusals",
    published="RFC 6585, section 4",
    over=(HTTP1,),
    checks=(refusals_are_ignored,),
    also="180 reads pass, one line in ten refusals",
)
