#!/usr/bin/env python3
"""Certificates by ACME, from a Pebble of our own.

    PORTCULLIS=target/debug/portcullis tests/acme/run.py [NAME…]

`pebble`, `pebble-challtestsrv`, `openssl`, `h2load`, `haproxy`, `redis-cli` and `strace` are found on
PATH, and PORTCULLIS_TEST_REDIS is the URL of a Redis, as under tests/lib/redis.sh. Pebble rejects good
nonces, as it does by default, and validates every challenge from three places.
"""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from authority import Authority, Child, eventually, free_port
from edge import DOMAIN, Edge
from renewal_info import RenewalInfo

FAILED = "portcullis_acme_failed_attempts"
# Requests per second while a certificate is renewed.
CLIENTS, RATE = 10, 50


class World:
    """An authority and an edge, which end with it."""

    def __init__(self, stack, folder, is_http=False, domains=(DOMAIN,), **authority):
        self.port, self.http = free_port(), free_port()
        ports = {"http_port": self.http} if is_http else {"tls_port": self.port}
        self.authority = Authority(folder, **ports, **authority)
        stack.callback(self.authority.end)
        acme = {"http_address": f"127.0.0.1:{self.http}"} if is_http else {}
        self.edge = Edge(folder, self.authority, self.port, domains, **acme)
        stack.callback(lambda: self.edge.child and self.edge.end(signal.SIGKILL))


def first(stack, folder):
    """The first certificate, with two names, and a fifth of all nonces rejected."""
    world = World(stack, folder, domains=(DOMAIN, "www.edge.test"), rejected_nonces=20)
    edge, started = world.edge, time.monotonic()
    edge.start().serves()
    assert "ready: ok" in edge.readiness(), "the other listeners serve at once"
    edge.waits_for_certificate()
    took = time.monotonic() - started
    assert took < 30, took
    assert world.authority.orders() == world.authority.issued() == 1
    assert edge.is_whole() and not any("order" in name for name in edge.files()), edge.files()
    eventually("no condition", lambda: "certificate" not in edge.readiness())
    challenges = 'portcullis_tls_handshakes_total{outcome="challenge",surface="gateway"}'
    assert edge.metric(challenges) >= 2, "each name was proven by a handshake"
    assert edge.metric('portcullis_acme_orders_total{outcome="issued"}') == 1
    root = world.authority.issuer()
    edge.handshake(root, ("h2",))
    try:
        edge.handshake(None, ("acme-tls/1",))
    except OSError:
        pass
    else:
        raise AssertionError("nothing is pending")
    edge.end()
    edge.start().serves()
    edge.waits_for_certificate()
    edge.end()
    assert world.authority.orders() == 1, "a restart orders nothing"
    return f"{took:.1f} s"


def over_http(stack, folder):
    """The challenge http-01, and what else port 80 answers."""
    world = World(stack, folder, is_http=True)
    edge = world.edge
    edge.start().serves()
    edge.waits_for_certificate()
    for method, path, host, expected in [
        ("GET", "/a?b=c", DOMAIN, (308, f"https://{DOMAIN}/a?b=c")),
        ("GET", "/", f"{DOMAIN.upper()}:80", (308, f"https://{DOMAIN}/")),
        ("GET", "/", "elsewhere.test", (404, None)),
        ("GET", "/.well-known/acme-challenge/none", DOMAIN, (404, None)),
        ("POST", "/", DOMAIN, (405, None)),
    ]:
        found = edge.request(world.http, method, path, host)[:2]
        assert found == expected, (method, path, host, found)


def refused(stack, folder):
    """A name that resolves to another machine: the problem is shown, and a reload tries again."""
    world = World(stack, folder)
    edge, authority = world.edge, world.authority
    authority.point(DOMAIN, "127.0.0.2")
    edge.start().serves()
    pattern = r"certificate needs renewal \(gateway\).*validation: rpc\.edge\.test: .*\(\w+\); attempt 2"
    eventually("the problem", lambda: re.search(pattern, edge.readiness()))
    assert "verdict: failing" in edge.readiness()
    eventually("the metric", lambda: edge.metric(FAILED) == 1)
    edge.end(signal.SIGKILL)
    edge.start().serves()
    eventually("the problem, after a restart", lambda: re.search(pattern, edge.readiness()))
    assert authority.orders() == 1, "a restart does not hurry"
    authority.point(DOMAIN)
    live = edge.check("--live").stdout
    assert "agrees with the authority's" in live and f"{authority.directory} answers" in live, live
    edge.reload()
    edge.waits_for_certificate()
    eventually("all is well", lambda: "verdict: degraded" in edge.readiness()
               or "verdict: ok" in edge.readiness())
    eventually("the metric", lambda: edge.metric(FAILED) == 0)


def external_account(stack, folder):
    """An authority that knows its customers: without a key the account is refused, with it created."""
    key = base64.urlsafe_b64encode(b"the key of an external account").decode()
    world = World(stack, folder, customers={"customer-7": key})
    edge = world.edge
    edge.start().serves()
    eventually("the problem", lambda: "externalAccountRequired" in edge.readiness())
    edge.end()
    file = folder / "eab.key"
    file.write_text(f"{key}\n")
    file.chmod(0o600)
    edge.acme |= {"eab_key_id": "customer-7", "eab_key_file": str(file)}
    edge.start().serves()
    # the refusal is remembered
    edge.reload()
    edge.waits_for_certificate()
    assert world.authority.orders() == 1


def another_customer(stack, folder):
    """The authority forgets its accounts, and knows the customer by another key: the file that has it
    is read for the next account, without a restart and without a lost handshake."""
    keys = [base64.urlsafe_b64encode(f"the {which} key of the customer.".encode()).decode()
            for which in ("first", "other")]
    file = folder / "eab.key"
    file.touch(mode=0o600)
    file.write_text(keys[0])
    world = World(stack, folder, lifetime=30, customers={"customer-7": keys[0]})
    edge, authority = world.edge, world.authority
    edge.acme |= {"eab_key_id": "customer-7", "eab_key_file": str(file)}
    edge.start().serves()
    first = edge.waits_for_certificate()
    root = authority.issuer()
    with Handshakes(edge, root) as handshakes:
        authority.stop()
        authority.customers = {"customer-7": keys[1]}
        authority.start()
        file.write_text(keys[1])
        edge.reload()
        edge.child.says('"key":"tls.acme.eab_key_file",.*"effective":"with the next connection"')
        handshakes.roots += authority.issuer()
        eventually("another certificate", lambda: edge.handshake(handshakes.roots) != first, 40)
    assert len(edge.events("ACME account created")) == 2
    return f"{len(handshakes.serials)} handshakes, none lost"


class Handshakes:
    """Clients that connect again and again."""

    def __init__(self, edge, roots):
        self.edge, self.roots, self.serials, self.failures = edge, roots, [], []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.connect)

    def connect(self):
        while not self.over.wait(0.02):
            try:
                self.serials.append(self.edge.handshake(self.roots))
            except (OSError, AssertionError) as error:
                self.failures.append(error)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        assert not self.failures, self.failures[:3]


def renewal(stack, folder):
    """A renewal under load: no request is lost, and new handshakes get the new certificate."""
    world = World(stack, folder, lifetime=18)
    edge = world.edge
    edge.start().serves()
    edge.waits_for_certificate()
    with Handshakes(edge, world.authority.issuer()) as handshakes:
        load = subprocess.run(
            ["h2load", f"-c{CLIENTS}", "-m1", "-D20", f"--rps={RATE}",
             f"https://127.0.0.1:{edge.port}/healthz"],
            capture_output=True, text=True, check=True,
        ).stdout
    serials = handshakes.serials
    found = list(dict.fromkeys(serials))
    assert len(found) == 2, f"{len(found)} certificates"
    assert serials == sorted(serials, key=found.index), "the old one never returns"
    counts = re.search(
        r"requests: (\d+) total, .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout",
        load,
    )
    total, succeeded, *lost = map(int, counts.groups())
    assert total == succeeded and not any(lost), load
    assert total >= 0.5 * 20 * CLIENTS * RATE, load
    assert world.authority.issued() == 2
    return f"{total} requests and {len(serials)} handshakes, none lost"


def renewal_info(stack, folder):
    """A certificate that its authority wants renewed now, as one that it revokes, is replaced at once."""
    world = World(stack, folder)
    info = RenewalInfo(folder, world.authority)
    stack.callback(info.end)
    edge = world.edge
    edge.acme |= {"directory": info.directory}
    edge.start().serves()
    first = edge.waits_for_certificate()
    root = world.authority.issuer()
    eventually("another certificate", lambda: edge.has_certificate(root) not in (None, first), 40)
    eventually("the window of the new one", lambda: len(info.asked) == 2, 40)
    assert info.replaced == info.asked[:1], "the order names the certificate that it replaces"
    assert world.authority.orders() == world.authority.issued() == 2


def away(stack, folder):
    """The authority is away until the certificate has expired, and has forgotten everything."""
    world = World(stack, folder, lifetime=12)
    edge, authority = world.edge, world.authority
    edge.start().serves()
    first = edge.waits_for_certificate()
    authority.stop()
    eventually("the cause", lambda: "the authority is unreachable: " in edge.readiness())
    eventually("its end", lambda: "verdict: failing" in edge.readiness())
    assert "it has expired" in edge.readiness()
    authority.start()
    second = edge.waits_for_certificate()
    assert first != second
    eventually("its end", lambda: "verdict: failing" not in edge.readiness())
    assert edge.events("does not know the ACME account"), "another account was created"


# Everything that a first certificate writes: the account, the order, when it was issued, the
# certificate, each as a new file that replaces the last one; then the order is removed.
WRITES = ("fsync", "/^rename", "fsync") * 4 + ("/^unlink",)
# strace counts the calls of each thread for itself
ONE_THREAD = ("[server]", "threads = 1")


def crash(stack, folder, call, number):
    """Dies before it makes this call for the nth time; the next start finishes."""
    world = World(stack, folder)
    edge, authority = world.edge, world.authority
    edge.more = ONE_THREAD
    inject = f"inject={call}:signal=KILL:when={number}"
    edge.start("strace", "-f", "-o", folder / "strace.log",
               "-e", f"trace={call}", "-e", inject)
    eventually("the crash", lambda: edge.child.process.poll() is not None, 40)
    assert edge.is_whole() in (None, True)
    edge.start().serves()
    edge.waits_for_certificate()
    assert edge.is_whole()
    eventually("no order is left", lambda: not any("order" in name for name in edge.files()))
    return authority.orders(), authority.issued()


def crashes(stack, folder):
    """kill -9 before each write: one certificate, and a second order only for one that was lost."""
    points, seen = [], {}
    for index, call in enumerate(WRITES):
        seen[call] = seen.get(call, 0) + 1
        points.append((index, call, seen[call]))
    with ThreadPoolExecutor(3) as pool:
        def one(point):
            index, call, number = point
            place = folder / str(index)
            place.mkdir()
            with ExitStack() as own:
                return index, call, *crash(own, place, call, number)

        for index, call, orders, issued in pool.map(one, points):
            # the URL of the order is on the disk after the second rename
            expected = 2 if index in (3, 4) else 1
            assert orders == expected and issued == 1, (index, call, orders, issued)
    return f"{len(points)} points"


class Fleet:
    """Three instances behind a balancer, which gives each connection to the next one."""

    def __init__(self, stack, folder, store=None, **authority):
        self.port, self.name = free_port(), f"acme-{free_port()}"
        store = store or os.environ["PORTCULLIS_TEST_REDIS"]
        self.authority = Authority(folder, tls_port=self.port, **authority)
        stack.callback(self.authority.end)
        secret = folder / "fleet.secret"
        secret.write_text("fleet-0123456789abcdef0123456789\n")
        secret.chmod(0o600)
        more = ("[fleet]", f'url = "{store}"', f'secret_file = "{secret}"', f'name = "{self.name}"')
        self.edges = []
        for number in range(3):
            place = folder / f"instance-{number}"
            place.mkdir()
            edge = Edge(place, self.authority, free_port(), more=more)
            stack.callback(lambda edge=edge: edge.child and edge.end(signal.SIGKILL))
            self.edges.append(edge)
        servers = (f"server i{number} 127.0.0.1:{edge.port}" for number, edge in enumerate(self.edges))
        config = folder / "haproxy.cfg"
        config.write_text("\n".join([
            "defaults", "mode tcp", "timeout connect 1s", "timeout client 9s", "timeout server 9s",
            "option redispatch", "retries 3",
            "listen edge", f"bind 127.0.0.1:{self.port}", "balance roundrobin", *servers, "",
        ]))
        balancer = Child(folder / "haproxy.log", "haproxy", "-db", "-f", config)
        stack.callback(lambda: balancer.end(signal.SIGKILL))

    def certificate(self, patience=30.0):
        """The serial number of the certificate that all of them present."""
        root = self.authority.issuer()
        found = [edge.waits_for_certificate(patience) for edge in self.edges if edge.child]
        one = lambda: len({edge.has_certificate(root) for edge in self.edges}) == 1
        eventually("one certificate", one, patience)
        return found[0]

    def shared(self):
        """All values that the instances share, as they are in the store."""
        redis = ["redis-cli", "-s", os.environ["PORTCULLIS_TEST_REDIS"].removeprefix("unix:")]
        run = lambda *words: subprocess.run([*redis, *words], check=True, capture_output=True).stdout
        keys = run("--scan", "--pattern", f"pc:{self.name}:value:*").split()
        return {key: run("get", key) for key in keys}


def fleet(stack, folder):
    """One order for three instances, whichever its authority asks, and one for its renewal."""
    world = Fleet(stack, folder, lifetime=36)
    started = time.monotonic()
    for edge in world.edges:
        edge.start()
    first = world.certificate()
    took = time.monotonic() - started
    assert world.authority.orders() == world.authority.issued() == 1
    accounts = [name for edge in world.edges for name in edge.files() if "account" in name]
    assert len(accounts) == 1, accounts
    values = world.shared()
    assert len(values) == 4, "the account, the certificate, its issue, and the key of sessions"
    assert not any(b"PRIVATE" in value or b"CERTIFICATE" in value for value in values.values())
    edge, other, _ = world.edges
    eventually("one key of sessions", lambda: edge.resumes_at(other, world.authority.issuer()))
    # without its folder and its certificate, it takes that of the others
    edge.end(signal.SIGKILL)
    shutil.rmtree(edge.folder / "acme")
    edge.start()
    assert world.certificate() == first
    eventually("the renewal", lambda: world.authority.issued() == 2, 40)
    eventually("the new certificate at all of them", lambda: world.certificate() != first, 20)
    assert world.authority.orders() == 2
    assert all(edge.is_whole() for edge in world.edges)
    for edge in world.edges:
        assert not edge.events('"message":"not issued"')
    return f"{took:.1f} s"


def fleet_crash(stack, folder, number):
    """Dies before it writes its nth file; another instance goes on with what the store has."""
    world = Fleet(stack, folder)
    dying, *others = world.edges
    dying.more += ONE_THREAD
    dying.start("strace", "-f", "-o", folder / "strace.log", "-e", "trace=/^rename",
                "-e", f"inject=/^rename:signal=KILL:when={number}")
    eventually("the crash", lambda: dying.child.process.poll() is not None, 40)
    assert "killed by SIGKILL" in (folder / "strace.log").read_text()
    for edge in others:
        edge.start()
    dying.child = None
    for edge in others:
        edge.waits_for_certificate(60)
    dying.start()
    world.certificate()
    authority = world.authority
    assert (authority.accounts(), authority.orders(), authority.issued()) == (1, 1, 1)
    resumed = [edge for edge in others if edge.events("ACME order resumed")]
    # one of them goes on, unless the certificate was there
    assert len(resumed) == (number in (2, 3)), number


def fleet_crashes(stack, folder):
    """kill -9 of the instance that orders, before it writes account, order, receipt, certificate."""
    with ThreadPoolExecutor(3) as pool:
        def one(number):
            place = folder / str(number)
            place.mkdir()
            with ExitStack() as own:
                fleet_crash(own, place, number)

        list(pool.map(one, (1, 2, 3, 4)))


def fleet_away(stack, folder):
    """Without the fleet's store nothing is ordered, and that is said."""
    world = Fleet(stack, folder, store=f"unix:{folder}/none")
    edge = world.edges[0]
    edge.start().serves()
    pattern = r"certificate needs renewal \(gateway\).*the fleet's store is unavailable: .*; attempt 2"
    eventually("the cause", lambda: re.search(pattern, edge.readiness()))
    assert world.authority.orders() == 0


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (first, over_http, refused, external_account, another_customer, renewal, renewal_info,
                     away,
                     crashes, fleet, fleet_crashes, fleet_away)
}


def tail(log):
    """The end of a log, without its requests."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if '"verdict"' not in line][-40:])


def play(name):
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="portcullis-acme-") as folder, ExitStack() as stack:
        try:
            told = SCENARIOS[name](stack, Path(folder))
        except Exception:
            logs = sorted(Path(folder).rglob("*.log"))
            tails = (f"--- {log.name}\n{tail(log)}" for log in logs)
            return name, traceback.format_exc() + "\n".join(tails)
    print(f"{name}: ok, {time.monotonic() - started:.1f} s{f', {told}' if told else ''}", flush=True)
    return name, None


def main():
    names = sys.argv[1:] or list(SCENARIOS)
    with ThreadPoolExecutor(len(names)) as pool:
        failed = [(name, why) for name, why in pool.map(play, names) if why]
    for name, why in failed:
        print(f"{name}: FAILED\n{why}", file=sys.stderr)
    sys.exit(bool(failed))


main()
