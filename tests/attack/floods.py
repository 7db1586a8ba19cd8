"""One client ignores its 429s as fast as it can: the log stays readable, and shows another client's
requests. More connections than the process may have open files: it says so when it starts, those
that are open are served, the operator's probes are answered, and it recovers."""

import os
import threading
import time

from lib.world import World, ask, eventually, read, request, require, response, status_of

GATEWAY = """
[gateway]
listen = "127.0.0.1:0"
[gateway.cache]
enabled = false
"""
FILES = 200


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


def quota():
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


def descriptors():
    with World(GATEWAY, files=FILES) as world:
        warned = [entry for entry in world.entries() if entry["level"] == "warn"]
        require(any("open files" in entry["message"] for entry in warned), "a warning at the start")
        early = [world.connect("gateway") for _ in range(20)]
        for connection in early:
            require(ask(connection, b"GET", b"/healthz")[0] == 200, "a connection before the flood")
        flood = [world.connect("gateway") for _ in range(2 * FILES)]
        for connection in flood:
            connection.sendall(request(b"GET", b"/healthz"))
        files = lambda: len(os.listdir(f"/proc/{world.process.pid}/fd"))
        eventually("many are open", lambda: files() >= FILES // 2)
        for connection in early:
            require(ask(connection, b"GET", b"/healthz")[0] == 200, "an open one is served")
        probes = [status_of(world, "admin", b"GET", b"/livez") for _ in range(5)]
        require(probes == [200] * 5, f"the operator's probes meanwhile: {probes}")
        for connection in flood:
            connection.close()
        eventually("it recovers",
                   lambda: status_of(world, "gateway", b"POST", b"/rpc", read()) == 200)


def main():
    quota()
    descriptors()
