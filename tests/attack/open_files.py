"""More connections than the process may have open files: it says so when it starts, those that are
open are served, the operator's probes are answered, and it recovers."""

import os

from lib.attack import HTTP1, Attack
from lib.world import World, ask, eventually, read, request, require, status_of

GATEWAY = """
[gateway]
listen = "127.0.0.1:0"
[gateway.cache]
enabled = false
"""
FILES = 200


def files_run_out():
    with World(GATEWAY, files=FILES) as world:
        warned = lambda: [entry for entry in world.entries() if entry["level"] == "warn"]
        eventually("a warning at the start",
                   lambda: any("open files" in entry["message"] for entry in warned()))
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


ATTACK = Attack(
    title="open files",
    published="RFC 4732",
    over=(HTTP1,),
    checks=(files_run_out,),
    also="open connections and the operator's probes are served",
)
