#!/usr/bin/env python3
"""Three instances, one Redis, and clients that use all of them: is a quota always exact over all?

    PORTCULLIS=target/debug/portcullis tests/fleet/run.py

At real scale: 180 requests in any 60 s. Meanwhile an instance is killed while it holds leases, the
store hangs, and the store is killed and starts again empty. The judge slides a window over the
admissions in the access logs of all instances.
"""

import hashlib
import hmac
import http.client
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "outages"))

from edge import Devnet, Edge, Redis, ask, eventually

QUOTA, WINDOW, LEASE = 180, 60.0, 30.0
SECRET = "fleet-0123456789abcdef0123456789abcdef"
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "starknet_blockNumber", "params": []})


class Store(Redis):
    """The store, which knows its messages."""

    def ask(self, *command):
        cli = ("redis-cli", "-p", str(self.port), *command)
        return subprocess.run(cli, check=True, capture_output=True, text=True).stdout.split("\n")

    def messages(self, client):
        """Messages about a client so far: each instance numbers its own."""
        digest = hmac.new(SECRET.encode(), client.encode(), hashlib.sha256).hexdigest()[:32]
        fields = self.ask("HGETALL", f"pc:{{portcullis:gateway:{digest}}}")
        records = zip(fields[::2], fields[1::2])
        return sum(int(value.split(":")[0]) for name, value in records if name.startswith("L"))


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
    """A place in the fleet: another process may take it over."""

    def __init__(self, folder, number, node, store):
        self.folder, self.number, self.node, self.store = folder, number, node, store
        self.connections, self.edges = {}, []
        self.start()

    def start(self):
        folder = self.folder / f"{self.number}-{len(self.edges)}"
        folder.mkdir()
        secret = folder / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        keys = {
            "gateway__requests_per_minute": QUOTA,
            "fleet__url": self.store.url,
            "fleet__secret_file": secret,
            "fleet__lease": f"{LEASE:.0f}s",
        }
        (folder / "portcullis.toml").write_text("")
        edge = Edge(folder, self.node, **keys)
        eventually("the fleet", lambda: edge.metric("portcullis_fleet_up") == 1, 10)
        self.edges.append(edge)
        self.edge = edge

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
        """The time and the client of each request that was not refused for its rate."""
        for edge in self.edges:
            for line in edge.lines():
                if line.get("surface") == "gateway" and line.get("path") == "/rpc":
                    if line["reason"] != "rate_limited":
                        at = datetime.fromisoformat(line["time"]).timestamp()
                        yield at - line["total_ms"] / 1000, line["client"]

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


def most(times, window=WINDOW):
    """The most events in any window; one at its end is in the next."""
    times, first, found = sorted(times), 0, 0
    for last, at in enumerate(times):
        while times[first] <= at - window:
            first += 1
        found = max(found, last - first + 1)
    return found


def exact(times):
    """How many of these requests one exact limiter would admit."""
    admitted = []
    for at in sorted(times):
        if len(admitted) < QUOTA or admitted[-QUOTA] <= at - WINDOW:
            admitted.append(at)
    return len(admitted)


def p99(values):
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else 0.0


def play(folder, stack):
    store = Store(folder)
    stack.callback(store.end)
    node = Devnet(folder)
    stack.callback(node.end)
    places = [Instance(folder, number, node, store) for number in range(3)]
    for place in places:
        stack.callback(place.end)
    clients = [
        Client("flood over all", "203.0.113.1", steady(9.0), places),
        Client("flood at one", "203.0.113.2", steady(6.0), places[:1]),
        Client("at 0.9 of the quota", "203.0.113.3", steady(2.7), places),
        Client("wallet over all", "203.0.113.4", wallet(), places),
        Client("wallet at one", "203.0.113.5", wallet(), places[:1]),
    ]
    begun = time.time()
    events = {"begun": begun}

    def until(seconds, what):
        time.sleep(max(0.0, begun + seconds - time.time()))
        events[what] = time.time()
        print(f"{time.time() - begun:5.1f} s: {what}", flush=True)

    for client in clients:
        client.start()
    until(75, "an instance is killed")
    messages = {client.name: store.messages(client.address) for client in clients}
    reads = {client.name: len(client.sent) for client in clients}
    places[2].edge.child.end(signal.SIGKILL)
    places[2].start()
    until(75 + LEASE + WINDOW + 2, "its leases are over")
    until(175, "the store hangs")
    store.signal(signal.SIGSTOP)
    until(180, "the store goes on")
    store.signal(signal.SIGCONT)
    recovered(places, 2.0)
    until(190, "the store is killed")
    store.kill()
    down = [place.edge.says("fleet", "fleet store unreachable") for place in places]
    until(210, "the store starts again, empty")
    store.start()
    recovered(places, 2.0)
    until(275, "the end")
    for client in clients:
        client.is_over = True
    fallback = sum(
        place.edge.metric('portcullis_fleet_fallback_admitted_total{surface="gateway"}')
        for place in places
    )
    for client in clients:
        client.join(10)
    assert all(down)
    judge(places, clients, events, messages, reads, fallback)


def recovered(places, patience):
    begun = time.monotonic()
    for place in places:
        eventually("the fleet", lambda: place.edge.metric("portcullis_fleet_up") == 1, 10)
    took = time.monotonic() - begun
    print(f"         shared again after {took:.1f} s", flush=True)
    assert took <= patience, f"shared again after {took:.1f} s"


def judge(places, clients, events, messages, reads, fallback):
    begun, killed, hangs, goes_on = (
        events[what]
        for what in ("begun", "an instance is killed", "the store hangs", "the store goes on")
    )
    admitted = {}
    for place in places:
        for at, client in place.admissions():
            admitted.setdefault(client, []).append(at)
    faults = []

    def must(holds, what):
        if not holds:
            faults.append(what)

    for client in clients:
        name, own = client.name, admitted[client.address]
        before = [at for at, _, _ in client.sent if at < killed]
        passed = sum(1 for at, status, _ in client.sent if at < killed and status == 200)
        refused = exact(before) - passed
        per_read = messages[name] / reads[name]
        highest = most(own)
        over = [at for at in own if events["its leases are over"] - WINDOW < at]
        over = [at for at in over if at <= events["its leases are over"]]
        print(
            f"{name:20} most in 60 s {highest:3} of {QUOTA}; before faults refused beyond one exact "
            f"limiter {refused} of {len(before)}, messages per request {per_read:.3f}; "
            f"{len(over)} a minute after the leases of the dead"
        )
        must(highest <= QUOTA, f"{name}: {highest} in a window")
        # a cell of the window, and what is merged in a report
        lag = 1.1 * len(before) / (killed - begun)
        must(refused <= 0.01 * len(before) + lag, f"{name}: {refused} refused too many")
        if "wallet" in name:
            refused = [at - killed for at, status, _ in client.sent if status == 429]
            must(not refused, f"{name}: refused {refused[:3]} s after the kill")
            must(per_read <= 0.2, f"{name}: {per_read:.3f} messages per read")
        if "flood" in name:
            must(len(over) >= 0.9 * QUOTA, f"{name}: only {len(over)} after a kill")
        failed = [status for at, status, _ in client.sent if status >= 500]
        must(not failed, f"{name}: {failed[:3]}")
    normal = [took for one in clients for at, _, took in one.sent if at < killed]
    hanging = [took for one in clients for at, _, took in one.sent if hangs <= at < goes_on]
    print(
        f"p99 of a request {1000 * p99(normal):.1f} ms, while the store hangs "
        f"{1000 * p99(hanging):.1f} ms; at most {1000 * max(hanging):.1f} ms; "
        f"{fallback:.0f} admitted without the store"
    )
    slowest = p99(normal) + 0.05
    must(p99(hanging) <= slowest, f"p99 {1000 * p99(hanging):.0f} ms while the store hangs")
    must(fallback > 0, "nothing was admitted without the store")
    assert not faults, "\n".join(faults)


def main():
    folder = Path(tempfile.mkdtemp())
    try:
        with ExitStack() as stack:
            play(folder, stack)
    finally:
        if os.environ.get("KEEP"):
            print(folder)
        else:
            shutil.rmtree(folder)


main()
