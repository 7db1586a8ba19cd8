"""A fleet of instances with their store, clients that use them, and what a judge counts.

Quotas are at real scale: 180 requests in any 60 s.
"""

import hashlib
import hmac
import http.client
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "outages"))

from edge import FLEET_SECRET, Edge, Redis, eventually, fleet_secret

QUOTA, WINDOW, LEASE = 180, 60.0, 30.0
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "starknet_blockNumber", "params": []})


class Store(Redis):
    """The store, which knows its messages."""

    def ask(self, *command):
        cli = ("redis-cli", "-h", self.host, "-p", str(self.port), *command)
        return subprocess.run(cli, check=True, capture_output=True, text=True).stdout.split("\n")

    def messages(self, client):
        """Messages about a client so far: each instance numbers its own."""
        digest = hmac.new(FLEET_SECRET.encode(), client.encode(), hashlib.sha256).hexdigest()[:32]
        fields = self.ask("HGETALL", f"pc:{{portcullis:gateway:{digest}}}")
        records = zip(fields[::2], fields[1::2])
        return sum(int(value.split(":")[0]) for name, value in records if name.startswith("L"))


class Admission(NamedTuple):
    """The begin and end of a request that was admitted in between."""

    begun: float
    ended: float


class Client(threading.Thread):
    """Sends reads at the times that `pace` yields, to the instances in turn."""

    def __init__(self, name, address, pace, instances):
        super().__init__(daemon=True)
        self.name, self.address, self.pace, self.instances = name, address, pace, instances
        self.sent, self.is_over = [], False

    def run(self):
        begun = time.monotonic()
        turns = itertools.count()
        for at in self.pace:
            time.sleep(max(0.0, begun + at - time.monotonic()))
            if self.is_over:
                return
            self.send(self.instances[next(turns) % len(self.instances)])

    def send(self, instance):
        headers = {"content-type": "application/json", "x-forwarded-for": self.address}
        at, wall = time.monotonic(), time.time()
        try:
            connection = instance.connection(self.name)
            connection.request("POST", "/rpc", BODY, headers)
            response = connection.getresponse()
            response.read()
            status = response.status
        except OSError:
            instance.drop(self.name)
            status = 0
        except http.client.HTTPException:
            instance.drop(self.name)
            status = 0
        self.sent.append((wall, status, time.monotonic() - at))


class Instance:
    """A place in the fleet: another process may replace its process.

    `clock` is how many seconds its wall clock is ahead; `other` is for the `Edge`.
    """

    def __init__(self, folder, number, node, store, clock=0, **other):
        self.folder, self.number, self.node, self.store = folder, number, node, store
        self.clock, self.other = clock, other
        self.connections, self.edges = {}, []
        self.start()

    def start(self):
        folder = self.folder / f"{self.number}-{len(self.edges)}"
        folder.mkdir()
        keys = {
            "gateway__requests_per_minute": QUOTA,
            "fleet__url": self.store.url,
            "fleet__secret_file": fleet_secret(folder),
            "fleet__lease": f"{LEASE:.0f}s",
        }
        (folder / "portcullis.toml").write_text("")
        self.edge = Edge(folder, self.node, **keys, **self.other)
        self.edges.append(self.edge)
        self.shares()

    def shares(self):
        """Waits until it uses the store."""
        eventually("the fleet", self.uses_store, 10)

    def uses_store(self):
        return self.edge.metric("portcullis_fleet_up") == 1

    def connection(self, client):
        known = self.connections.get(client)
        if known is None:
            host, port = self.edge.gateway.split(":")
            known = self.connections[client] = http.client.HTTPConnection(host, int(port), 5)
        return known

    def drop(self, client):
        known = self.connections.pop(client, None)
        if known is not None:
            known.close()

    def admissions(self):
        """Each admission with its client: each request that was not refused for its rate."""
        for edge in self.edges:
            for line in edge.lines():
                if line.get("surface") == "gateway" and line.get("path") == "/rpc":
                    if line["reason"] != "rate_limited":
                        ended = datetime.fromisoformat(line["time"]).timestamp() - self.clock
                        begun = ended - line["total_ms"] / 1000
                        yield Admission(begun, ended), line["client"]

    def end(self):
        for edge in self.edges:
            if edge.child.process.poll() is None:
                edge.end()


def steady(rate):
    return (number / rate for number in itertools.count())


def wallet():
    """A page that opens, and then polls: 40 reads in two seconds, then two each five seconds."""
    yield from (number / 20 for number in range(40))
    yield from (5.0 * turn + second for turn in itertools.count(1) for second in (0.0, 0.1))


def most(admissions, window=WINDOW):
    """The most admissions in any window; one at its end is in the next. Counts only those that are
    within it wherever between begin and end each took place."""
    admissions = sorted(admissions)
    begun = [one.begun for one in admissions]
    firsts = (bisect_right(begun, one.ended - window) for one in admissions)
    return max((last - first + 1 for last, first in enumerate(firsts)), default=0)


def exact(times):
    """How many of these requests one exact limiter would admit."""
    admitted = []
    for at in sorted(times):
        if len(admitted) < QUOTA or admitted[-QUOTA] <= at - WINDOW:
            admitted.append(at)
    return len(admitted)


def percentile(percent, values):
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else 0.0


def p99(values):
    return percentile(99, values)


def admissions(instances):
    """The admissions of each client, at all instances."""
    admitted = {}
    for instance in instances:
        for one, client in instance.admissions():
            admitted.setdefault(client, []).append(one)
    return admitted
