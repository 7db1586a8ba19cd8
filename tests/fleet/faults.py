#!/usr/bin/env python3
"""Three instances whose network, clocks or store fail: what is admitted over all stays bounded.

    PORTCULLIS=target/debug/portcullis tests/fleet/faults.py

One instance is cut off from the store, both ways and then one way, with clients also behind one
address for all three: HAProxy by request and a packet filter by connection. The wall clocks of two
are wrong by an hour, and that of the store jumps. The store dies, and its replica is promoted. The
three run side by side, each with a fleet of its own, in name spaces that end with this program.
"""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from instances import (
    LEASE, QUOTA, WINDOW, Client, Instance, Store, admissions, exact, most, p99, steady, wallet,
)

from edge import Devnet, WallClock, eventually, free_port
from world import Child

# What an instance without the store admits of a client in a minute, and the largest lease.
PART, WANT = QUOTA // 3, 16
SWITCH = "10.9.0.1"
# one address for all instances: by request, and by connection
FRONT, FRONT_PORT = {"haproxy": SWITCH, "nft": "10.9.0.2"}, 8080


class Fault:
    """A fleet of three with some clients, and one fault after the other."""

    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack
        self.begun = time.time()

    def end_of(self, thing):
        self.stack.callback(thing.end)
        return thing

    def start(self, *clients):
        self.begun, self.clients = time.time(), clients
        for client in clients:
            client.start()

    def until(self, seconds, what):
        """Waits until this many seconds after the start; the time."""
        time.sleep(max(0.0, self.begun + seconds - time.time()))
        print(f"{type(self).__name__:10} {time.time() - self.begun:5.1f} s: {what}", flush=True)
        return time.time()

    def stop(self):
        for client in self.clients:
            client.is_over = True
        for client in self.clients:
            client.join(10)

    def check(self, what, found, bound):
        print(f"{type(self).__name__:10} {what}: {found} of {bound}", flush=True)
        assert found <= bound, f"{what}: {found}, more than {bound}"

    def never_failed(self):
        failed = [
            f"{client.name}: {status} after {at - self.begun:.1f} s, in {took:.3f} s"
            for client in self.clients
            for at, status, took in client.sent
            if status not in (200, 429)
        ]
        assert not failed, f"{len(failed)} other answers: {failed[:3]}"


def within(admissions, begun, ended):
    return [one for one in admissions if begun <= one.begun < ended]


class Place(Instance):
    """An instance on a machine of its own: a network name space."""

    def __init__(self, folder, number, node, store):
        self.space = f"i{number}"
        address, way = f"10.9.{number + 1}.2", f"10.9.{number + 1}.1"
        ip("netns", "add", self.space)
        ip("link", "add", f"v{number}", "type", "veth", "peer", "name", "e", "netns", self.space)
        ip("address", "add", f"{way}/24", "dev", f"v{number}")
        ip("link", "set", f"v{number}", "up")
        self.enter = ("ip", "netns", "exec", self.space)
        for rest in (
            ("link", "set", "lo", "up"),
            ("link", "set", "e", "up"),
            ("address", "add", f"{address}/24", "dev", "e"),
            ("route", "add", "default", "via", way),
        ):
            subprocess.run([*self.enter, "ip", *rest], check=True)
        keys = {
            "gateway__listen": f"{address}:{FRONT_PORT}",
            "gateway__trusted_proxies": f"{way}/32",
        }
        super().__init__(folder, number, node, store, under=self.enter, **keys)

    def uses_store(self):
        url = f"http://{self.edge.admin}/metrics"
        text = subprocess.check_output([*self.enter, "curl", "-sS", url], text=True)
        return "\nportcullis_fleet_up 1\n" in text

    def cut_off(self, *ways):
        """Drops what goes these ways between it and the store; nothing, without any."""
        port = self.store.port
        hooks = {"to": ("output", f"tcp dport {port}"), "from": ("input", f"tcp sport {port}")}
        chains = "\n".join(
            f"chain {hook} {{ type filter hook {hook} priority 0; {rule} drop; }}"
            for hook, rule in (hooks[way] for way in ways)
        )
        text = f"table inet cut {{}}\ndelete table inet cut\ntable inet cut {{\n{chains}\n}}\n"
        subprocess.run([*self.enter, "nft", "-f", "-"], input=text, text=True, check=True)


class Front:
    """One address for several instances, for a client with an address of its own."""

    def __init__(self, name, source):
        self.name, self.source = name, source
        ip("address", "add", f"{source}/32", "dev", "lo")

    def connection(self, client):
        return http.client.HTTPConnection(FRONT[self.name], FRONT_PORT, 5, (self.source, 0))

    def drop(self, client):
        """Each request has a connection of its own."""


def balance(folder, places):
    """Balances over the places by HAProxy and by the packet filter; returns the HAProxy."""
    addresses = [place.edge.gateway.split(":")[0] for place in places]
    servers = "\n".join(f"  server i{at} {to}:{FRONT_PORT}" for at, to in enumerate(addresses))
    proxy = haproxy(folder, f"""
defaults
  mode http
  timeout connect 1s
  timeout client 10s
  timeout server 10s
listen all
  bind {FRONT["haproxy"]}:{FRONT_PORT}
  option forwardfor
  balance roundrobin
{servers}
""")
    ip("address", "add", f"{FRONT['nft']}/32", "dev", "lo")
    targets = ", ".join(f"{at} : {to}" for at, to in enumerate(addresses))
    rule = f"ip daddr {FRONT['nft']} dnat to numgen inc mod {len(places)} map {{ {targets} }}"
    text = f"table ip front {{\nchain to {{ type nat hook output priority -100; {rule}; }}\n}}\n"
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
    for name, host in FRONT.items():
        eventually(name, lambda: is_open(host, FRONT_PORT), 10)
    return proxy


def is_open(*address):
    with socket.socket() as client:
        return client.connect_ex(address) == 0


def haproxy(folder, text):
    config = folder / "haproxy.cfg"
    config.write_text(text)
    return Child(folder / "haproxy.log", "haproxy", "-db", "-f", str(config))


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Partition(Fault):
    """One instance is cut off: it admits its part, and nobody else notices."""

    def play(self):
        ip("address", "add", f"{SWITCH}/32", "dev", "lo")
        store = self.end_of(Store(self.folder, host=SWITCH))
        node = self.end_of(Devnet(self.folder, host=SWITCH))
        places = [self.end_of(Place(self.folder, number, node, store)) for number in range(3)]
        self.stack.callback(balance(self.folder, places).end, signal.SIGKILL)
        fronts = {name: Front(name, f"10.9.100.{at}") for at, name in enumerate(FRONT)}
        self.start(
            Client("flood over all", "203.0.113.1", steady(9.0), places),
            Client("flood at the one", "203.0.113.2", steady(6.0), places[2:]),
            Client("wallet at another", "203.0.113.3", wallet(), places[:1]),
            *(
                Client(f"flood by {name}", front.source, steady(6.0), [front])
                for name, front in fronts.items()
            ),
        )
        cut = self.until(20, "one is cut off")
        places[2].cut_off("to", "from")
        eventually("the store to be missed", lambda: not places[2].uses_store(), 3)
        assert all(place.uses_store() for place in places[:2]), "the others have it"
        healed = self.until(95, "it is not any more")
        places[2].cut_off()
        eventually("the store to be used", places[2].uses_store, 3)
        again = self.until(100, "answers to it are lost")
        places[2].cut_off("from")
        eventually("the store to be missed", lambda: not places[2].uses_store(), 3)
        self.until(120, "they are not any more")
        places[2].cut_off()
        eventually("the store to be used", places[2].uses_store, 3)
        last = time.time()
        over = self.until(182, "the end")
        self.stop()
        self.never_failed()
        whole, others, own = admissions(places), admissions(places[:2]), admissions(places[2:])
        for client in self.clients:
            name, address = client.name, client.address
            self.check(f"{name}, at the others", most(others.get(address, [])), QUOTA)
            alone = most(within(own.get(address, []), cut + 1, healed))
            self.check(f"{name}, at the one cut off", alone, PART + WANT)
            self.check(f"{name}, at all", most(whole[address]), QUOTA + PART + WANT)
            before = most(within(whole[address], 0, cut))
            self.check(f"{name}, before", before, QUOTA)
            self.check(f"{name}, after", most(within(whole[address], last, over)), QUOTA)
        reads = self.clients[2].sent
        assert all(status == 200 for _, status, _ in reads), "a wallet elsewhere is refused"
        calm = [took for at, _, took in reads if at < cut or healed < at < again]
        cuts = [took for at, _, took in reads if cut <= at < healed]
        times = [f"{1000 * p99(of):.1f} ms" for of in (calm, cuts)]
        print(f"Partition  p99 elsewhere: {times[0]}, while it is cut off {times[1]}", flush=True)


class Clocks(Fault):
    """Wall clocks are wrong: those of instances mean nothing, that of the store costs once."""

    def play(self):
        clock = self.clock("store", 0)
        store = self.end_of(Store(self.folder, env=clock.env))
        node = self.end_of(Devnet(self.folder))
        places = []
        for number, ahead in enumerate((0, 3600, -3600)):
            env = self.clock(f"instance{number}", ahead).env
            place = Instance(self.folder, number, node, store, clock=ahead, env=env)
            places.append(self.end_of(place))
        self.start(
            Client("flood over all", "203.0.113.1", steady(9.0), places),
            Client("at 0.9 of the quota", "203.0.113.2", steady(2.7), places),
        )
        jumps = self.until(75, "the store's clock jumps 30 s ahead")
        clock.set(30)
        back = self.until(145, "it goes back")
        clock.set(0)
        over = self.until(210, "the end")
        self.stop()
        self.never_failed()
        admitted = admissions(places)
        for client in self.clients:
            name, own = client.name, admitted[client.address]
            self.check(f"{name}, by wrong clocks", most(within(own, 0, jumps)), QUOTA)
            before = [at for at, _, _ in client.sent if at < jumps]
            passed = sum(1 for at, status, _ in client.sent if at < jumps and status == 200)
            # a cell of the window, and what is merged in a report
            lag = 1.1 * len(before) / (jumps - self.begun)
            bound = round(0.01 * len(before) + lag)
            self.check(f"{name}, refused beyond one limiter", exact(before) - passed, bound)
            self.check(f"{name}, while the clock jumps", most(own), 2 * QUOTA)
            self.check(f"{name}, after that", most(within(own, jumps + 1, over)), QUOTA)
            assert within(own, back + WINDOW / 2, over), f"{name}: refused since it went back"

    def clock(self, name, seconds):
        """A wall clock with files of its own."""
        folder = self.folder / f"clock-{name}"
        folder.mkdir()
        return WallClock(folder, seconds)


class Promotion(Fault):
    """The store dies under load, and its replica takes its place: what it had got counts on."""

    def play(self):
        folders = [self.folder / name for name in ("primary", "replica")]
        for folder in folders:
            folder.mkdir()
        primary = self.end_of(Store(folders[0], "--repl-diskless-sync-delay", "0"))
        replica = self.end_of(Store(folders[1]))
        replica.ask("REPLICAOF", "127.0.0.1", str(primary.port))
        follows = lambda: "master_link_status:up" in "\n".join(replica.ask("INFO", "replication"))
        eventually(f"the replica: {replica.child.log.read_text()}", follows, 60)
        store = self.end_of(Balancer(self.folder, primary, replica))
        node = self.end_of(Devnet(self.folder))
        places = [Instance(self.folder, number, node, store) for number in range(3)]
        for place in places:
            self.end_of(place)
        self.start(
            Client("flood over all", "203.0.113.1", steady(9.0), places),
            Client("wallet over all", "203.0.113.2", wallet(), places),
        )
        dies = self.until(70, "the store dies")
        primary.kill()
        replica.ask("REPLICAOF", "NO", "ONE")
        for place in places:
            place.shares()
        self.until(70 + WINDOW + LEASE, "the end")
        self.stop()
        self.never_failed()
        for client in self.clients:
            own = admissions(places)[client.address]
            self.check(f"{client.name}, before", most(within(own, 0, dies)), QUOTA)
            self.check(f"{client.name}, at all", most(own), QUOTA + 3 * WANT)
        reads = self.clients[1].sent
        assert all(status == 200 for _, status, _ in reads), "a wallet is refused"


class Balancer:
    """A real HAProxy that leads to whichever of the stores is the primary."""

    def __init__(self, folder, *stores):
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        servers = "\n".join(
            f"  server store{at} 127.0.0.1:{store.port} check inter 200ms fall 1 rise 1"
            " on-marked-down shutdown-sessions"
            for at, store in enumerate(stores)
        )
        self.child = haproxy(folder, f"""
defaults
  mode tcp
  timeout connect 1s
  timeout client 1h
  timeout server 1h
listen store
  bind 127.0.0.1:{self.port}
  option tcp-check
  tcp-check send info\\ replication\\r\\n
  tcp-check expect string role:master
{servers}
""")

    def end(self):
        self.child.end(signal.SIGKILL)


def main():
    if "--inside" not in sys.argv:
        mapped = [] if os.getuid() == 0 else ["--map-root-user"]
        again = [sys.executable, "-B", __file__, "--inside"]
        os.execvp("unshare", ["unshare", *mapped, "--net", "--mount", *again])
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    ip("link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    folder, failed = Path(tempfile.mkdtemp()), []

    def play(kind):
        own = folder / kind.__name__
        own.mkdir()
        try:
            with ExitStack() as stack:
                kind(own, stack).play()
        except Exception:
            failed.append(f"{kind.__name__}: {traceback.format_exc()}")

    kinds = (Partition, Clocks, Promotion)
    threads = [threading.Thread(target=play, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if os.environ.get("KEEP"):
        print(folder)
    else:
        shutil.rmtree(folder)
    sys.exit("\n".join(failed) or 0)


main()
