#!/usr/bin/env python3
"""Three instances, one Redis, one node that loses blocks: does one watch of the chain do for all?

    PORTCULLIS=target/debug/portcullis tests/fleet/watcher.py

Counts the calls to the node on their way. The node aborts blocks and restarts, the leader is killed
and suspended, and the store is away during a rollback. Meanwhile clients read at all instances, with
the positions of others. The judge knows when each branch of the chain ended.
"""

import http.client
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "outages"))

from edge import Devnet, Edge, Redis, eventually, fleet_secret
from way import Way

INTERVAL = 1.0
# Two intervals and a poll, on a busy machine.
STALE = 2 * INTERVAL + 1.0


class Node(Devnet):
    """A node with the time of the machine, so that no block is mined twice in a second."""

    def start(self, other_chain=("--chain-id", "PORTCULLIS_DEV", "--seed", "0")):
        super().start(other_chain)


class Count(Way):
    """A way to the node that counts the calls of those who watch it."""

    def __init__(self, node):
        super().__init__(node)
        self.calls = 0
        self.fault = self.count

    def count(self, method, params):
        self.calls += 1

    def per_second(self, seconds):
        before, begun = self.calls, time.monotonic()
        time.sleep(seconds)
        return (self.calls - before) / (time.monotonic() - begun)


class Instance(Edge):
    def __init__(self, folder, number, node, store):
        own = folder / f"instance-{number}"
        own.mkdir()
        super().__init__(
            own,
            node,
            gateway__requests_per_minute=1_000_000,
            gateway__cache__watch_interval=f"{INTERVAL:.0f}s",
            fleet__url=store.url,
            fleet__secret_file=fleet_secret(own),
        )

    def query(self, method, params, position=None):
        """Sends a read: its status, where it came from, its position and its result."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        headers = {"content-type": "application/json"}
        if position:
            headers["x-chain-position"] = position
        host, port = self.gateway.split(":")
        connection = http.client.HTTPConnection(host, int(port), 10)
        try:
            connection.request("POST", "/rpc", body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            cache, at = (response.getheader(name) for name in ("x-cache", "x-chain-position"))
            return response.status, cache, at, answer.get("result")
        finally:
            connection.close()

    def block(self, number):
        return self.query("starknet_getBlockWithTxHashes", [{"block_number": number}])

    def end(self):
        if self.child.process.poll() is None:
            self.signal(signal.SIGCONT)
            super().end()

    def leads(self):
        return self.metric("portcullis_fleet_is_watcher") == 1

    def emptied(self):
        causes = ("rollback", "genesis", "unreachable", "strange")
        series = 'portcullis_cache_epochs_total{{cause="{}"}}'
        return sum(self.metric(series.format(cause)) for cause in causes)


class Readers:
    """Read a block at every instance all the time, and remember what came from a cache."""

    def __init__(self, instances, number):
        self.instances, self.number = instances, number
        self.hits, self.faults, self.is_over = [], [], False
        self.positions = {}
        self.threads = [threading.Thread(target=self.run, args=(one,)) for one in instances]
        for thread in self.threads:
            thread.start()

    def run(self, instance):
        while not self.is_over:
            begun = time.monotonic()
            try:
                status, cache, at, block = instance.block(self.number)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                time.sleep(0.05)
                continue
            # when it was sent: it may be old before it is read
            if cache == "hit":
                self.hits.append((begun, instance.folder.name, block))
            if at:
                epoch = int(at.split(".")[0])
                if epoch < self.positions.get(instance.folder.name, 0):
                    self.faults.append(f"{instance.folder.name}: the epoch went back to {at}")
                self.positions[instance.folder.name] = epoch
            time.sleep(0.02)

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join(15)

    def judge(self, what, old, ended):
        """Nothing of a branch that ended then may come from a cache much later."""
        late = [(at - ended, name) for at, name, block in self.hits if block == old]
        latest = max((at for at, _ in late), default=0.0)
        print(f"{what}: the old block came from a cache for up to {max(latest, 0.0):.2f} s")
        assert latest <= STALE, f"{what}: {latest:.2f} s later at {max(late)[1]}"
        assert not self.faults, self.faults[:3]


def accepted(node):
    """Blocks are cached for good once they are accepted on L1."""
    newest = {"block_number": node.ask("starknet_blockNumber")}
    node.ask("devnet_acceptOnL1", starting_block_id=newest)


def mine(node, count=1):
    return [node.ask("devnet_createBlock")["block_hash"] for _ in range(count)]


def is_cached(instances, number):
    def look():
        return all(one.block(number)[1] == "hit" for one in instances)

    eventually(f"block {number} in every cache", look, 15)


def leader(instances, patience):
    begun = time.monotonic()
    eventually("a leader", lambda: any(one.leads() for one in instances), patience)
    found = [one for one in instances if one.leads()]
    assert len(found) == 1, f"{len(found)} lead"
    return found[0], time.monotonic() - begun


def rollback(what, instances, node, change, number):
    """Rolls the chain back under readers, and judges what came from caches."""
    is_cached(instances, number)
    old = instances[0].block(number)[3]
    readers = Readers(instances, number)
    time.sleep(0.5)
    ended = change()
    time.sleep(STALE + 2)
    readers.end()
    assert any(at < ended for at, _, _ in readers.hits), "it was cached before"
    readers.judge(what, old, ended)


def abort(node, number):
    def change():
        time.sleep(1.1)  # a block of another second
        block = {"block_number": number}
        node.ask("devnet_abortBlocks", starting_block_id=block)
        # the node shows the old branch until it has answered
        ended = time.monotonic()
        mine(node, 3)
        return ended

    return change


def restart(node):
    def change():
        node.ask("devnet_restart")
        ended = time.monotonic()
        mine(node, 3)
        return ended

    return change


def has_one_epoch(instances):
    """Waits until all instances state positions of one epoch, which a doubt may change once more."""

    def is_one():
        stated = [one.block(2)[2] for one in instances]
        return all(stated) and len({position.split(".")[0] for position in stated}) == 1

    eventually("one epoch for all", is_one)


def positions(instances):
    """Each answer's position is answered from at the next instance."""
    at = None

    def position_of(instance):
        status, _, position, _ = instance.query("starknet_blockNumber", [], at)
        assert status == 200, f"{at}: {status}"
        return position

    for turn in range(60):
        one = instances[turn % len(instances)]
        # none is stated while a rollback is in doubt, as after a pause of the machine
        position = eventually("a position", lambda: position_of(one))
        pair = tuple(map(int, position.split(".")))
        assert at is None or pair >= tuple(map(int, at.split("."))), f"{position} after {at}"
        at = position


def elections(instances):
    print("the leader is killed")
    before = [one.emptied() for one in instances]
    first, _ = leader(instances, 10)
    first.child.end(signal.SIGKILL)
    others = [one for one in instances if one is not first]
    second, took = leader(others, 4.5)
    print(f"another leads after {took:.1f} s")
    is_cached(others, 1)
    first.start()
    time.sleep(1.5)

    print("the leader sleeps")
    second.signal(signal.SIGSTOP)
    others = [one for one in instances if one is not second]
    third, took = leader(others, 4.5)
    print(f"another leads after {took:.1f} s")
    time.sleep(10 - took)
    second.signal(signal.SIGCONT)
    time.sleep(2)
    assert third.leads() and not second.leads(), "the sleeper leads no more"
    is_cached(instances, 1)
    # the one that was killed started with an empty cache, and has counted nothing
    after = [one.emptied() for one in instances]
    others = [(a, b) for one, a, b in zip(instances, before, after) if one is not first]
    assert all(a == b for a, b in others), f"an election emptied a cache: {before}, {after}"


def sleeper(instances, node, number):
    """The leader sleeps through a rollback: what does it return when it wakes?"""
    is_cached(instances, number)
    old = instances[0].block(number)[3]
    asleep, _ = leader(instances, 10)
    asleep.signal(signal.SIGSTOP)
    leader([one for one in instances if one is not asleep], 4.5)
    ended = abort(node, number)()
    time.sleep(max(0.0, ended + STALE - time.monotonic()))
    asleep.signal(signal.SIGCONT)
    for _ in range(50):
        _, cache, _, block = asleep.block(number)
        assert cache != "hit" or block != old, "it returned what it cached before it slept"
    eventually("one epoch", lambda: len({one.block(1)[2] for one in instances}) == 1, 10)
    print("a leader that slept through a rollback returned nothing from before")


def play(folder, stack):
    store = Redis(folder)
    stack.callback(store.end)
    node = Node(folder)
    stack.callback(node.end)
    way = Count(node)
    mine(node, 3)
    accepted(node)
    instances = []

    def start():
        one = Instance(folder, len(instances), way, store)
        stack.callback(one.end)
        instances.append(one)

    start()
    is_cached(instances, 1)
    alone = way.per_second(5)
    start()
    start()
    is_cached(instances, 1)
    together = way.per_second(5)
    print(f"node calls per second: {alone:.1f} with one instance, {together:.1f} with three")
    assert alone <= 6 and together <= 6, "one watches"
    assert together >= 1, "one does"

    positions(instances)
    mine(node, 2)
    positions(instances)
    accepted(node)
    rollback("blocks are aborted", instances, node, abort(node, 2), 3)
    has_one_epoch(instances)
    positions(instances)
    accepted(node)
    rollback("the node restarts", instances, node, restart(node), 1)
    positions(instances)
    accepted(node)
    elections(instances)

    mine(node, 2)
    accepted(node)
    sleeper(instances, node, 3)
    accepted(node)

    def away():
        store.kill()
        return abort(node, 2)()

    rollback("blocks are aborted without the store", instances, node, away, 3)
    alone = way.per_second(6)
    print(f"node calls per second: {alone:.1f} without the store")
    store.start()
    leader(instances, 10)
    eventually("states", lambda: all(one.block(1)[2] for one in instances), 10)
    positions(instances)


def main():
    folder = Path(tempfile.mkdtemp())
    begun = time.monotonic()
    try:
        with ExitStack() as stack:
            play(folder, stack)
        print(f"{time.monotonic() - begun:.0f} s")
    finally:
        shutil.rmtree(folder)


main()
