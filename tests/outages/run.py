#!/usr/bin/env python3
"""Replays outages against real parts: what is reported of each, and of its end.

    PORTCULLIS=target/debug/portcullis unshare --map-root-user --mount tests/outages/run.py

Of each outage the log, the metrics, `/readyz?verbose` and the page say the same within ten seconds;
a real Prometheus with the shipped rules fires the alert (`for` and the rates are shortened), and a
real Alertmanager with the shipped inhibitions sends one page. With the name of one, only that.
`unshare` is for the small file system that fills up.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edge import Alertmanager, Devnet, Edge, ask, eventually, shortened
from world import Prometheus

DOWN, UP = "node URL failed", "node URL works again"


class Outage:
    """One outage: `start` makes its world, `play` breaks and mends it."""

    keys = {"gateway__requests_per_minute": 10_000}

    def __init__(self, folder, exit_stack):
        self.folder, self.stack = folder, exit_stack
        self.name = type(self).__name__
        folder.mkdir()

    def add(self, part):
        self.stack.callback(part.end)
        return part

    def start(self):
        self.node = self.add(Devnet(self.folder))
        self.edge = self.add(Edge(self.folder, self.node, **self.keys))
        eventually("a read", lambda: self.edge.read() == 200)

    def firing(self, alert):
        own = f'ALERTS{{alertname="{alert}",alertstate="firing",instance="{self.edge.admin}"}}'
        return self.prometheus.query(own)

    def fires(self, alert):
        """Waits until the alert fires for this process."""
        eventually(f"{self.name}: {alert}", lambda: self.firing(alert), 60)

    def is_over(self, alert):
        """Waits until it fires no more."""
        eventually(f"{self.name}: the end of {alert}", lambda: not self.firing(alert), 60)

    def pages(self, alert):
        """Waits until the pager was called for it; returns all alerts that it was called for."""
        what = f"{self.name}: a page for {alert}"
        eventually(what, lambda: alert in self.alertmanager.paged(self.edge.admin)[0], 60)
        return self.alertmanager.paged(self.edge.admin)[0]

    def is_resolved(self, alert):
        """Waits until the pager received the end."""
        what = f"{self.name}: the end of {alert}"
        eventually(what, lambda: alert in self.alertmanager.paged(self.edge.admin)[1], 60)

    @contextmanager
    def reading(self):
        """Readers at work, each with one read at a time."""
        is_over = threading.Event()

        def work():
            while not is_over.is_set():
                try:
                    self.edge.read(scheme=getattr(self, "scheme", "http"))
                except OSError:
                    pass
                is_over.wait(0.05)

        readers = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for reader in readers:
            reader.start()
        yield
        is_over.set()
        for reader in readers:
            reader.join()


class HungNode(Outage):
    """The node accepts connections and answers nothing."""

    def play(self):
        with self.reading():
            self.node.signal(signal.SIGSTOP)
            self.edge.says("cache", "cache bypassed")
            self.edge.is_wrong("node_url", DOWN, "no answer|timeout|timed out", "failing")
            self.fires("PortcullisNodeDown")
            assert self.pages("PortcullisNodeDown") == {"PortcullisNodeDown"}
            self.node.signal(signal.SIGCONT)
            self.edge.is_well("node_url", UP)
            self.edge.says("cache", "cache in use again")
        self.is_resolved("PortcullisNodeDown")


class DeadNode(Outage):
    """The node is killed under reads; the relay can prove nothing any more."""

    def start(self):
        self.node = self.add(Devnet(self.folder))
        self.edge = self.add(Edge(self.folder, self.node, relay=True, **self.keys))
        eventually("a read", lambda: self.edge.read() == 200)
        ready = 'portcullis_relay_pins_ready'
        eventually("the pins", lambda: self.edge.metric(ready) == 1)

    def play(self):
        with self.reading():
            self.node.kill()
            self.edge.is_wrong("node_url", DOWN, "refused", "failing")
            line = self.edge.says("pins", "pins lost: the relay writes nothing")
            assert re.search("chain_id and .* unreadable", line["cause"]), line
            for alert in ("PortcullisNodeDown", "PortcullisRelayPinsUnproven"):
                self.fires(alert)
            self.fires("PortcullisNodeBreakerOpen")
            # one cause pages once
            assert self.pages("PortcullisNodeDown") == {"PortcullisNodeDown"}
            self.node.start()
            self.edge.is_well("node_url", UP)
            self.edge.says("pins", "pins proven: the relay writes")
        self.is_resolved("PortcullisNodeDown")


class WrongChain(Outage):
    """Another chain answers at the URL of the gateway that has `node.chain_id`."""

    def start(self):
        self.node = self.add(Devnet(self.folder))
        keys = {**self.keys, "node__chain_id": "PORTCULLIS_DEV"}
        self.edge = self.add(Edge(self.folder, self.node, **keys))
        eventually("a read", lambda: self.edge.read() == 200)

    def play(self):
        with self.reading():
            self.node.kill()
            self.node.start(("--chain-id", "SN_MAIN"))
            self.edge.is_wrong("node_url", DOWN, "chain|refused", "failing")
            eventually("the chain as the cause", lambda: "SN_MAIN" in str(self.edge.verdict()), 10)
            assert self.edge.read() == 502, "nothing of another chain is served"
            self.fires("PortcullisNodeDown")
            assert self.pages("PortcullisNodeDown") == {"PortcullisNodeDown"}
            self.node.kill()
            self.node.start()
            self.edge.is_well("node_url", UP)
        self.is_resolved("PortcullisNodeDown")


class WrongPins(DeadNode):
    """A chain of the same id, but without the contracts, answers at the relay's URL."""

    def play(self):
        self.node.kill()
        self.node.start(("--chain-id", "PORTCULLIS_DEV", "--seed", "7"))
        self.edge.says("node_url", UP)
        message = "pins lost: the relay writes nothing"
        self.edge.is_wrong("pins", message, "not proven", "failing")
        url, body = f"http://{self.edge.relay}/recovery-cancel", {"identity": "0x1d"}
        status, text = ask(url, body, self.bearer())
        assert status == 503 and "pins_unproven" in text, text
        self.fires("PortcullisRelayPinsUnproven")
        # between the two chains there was none
        pages = self.pages("PortcullisRelayPinsUnproven") - {"PortcullisNodeDown"}
        assert pages == {"PortcullisRelayPinsUnproven"}, pages
        self.node.kill()
        self.node.start()
        self.edge.is_well("pins", "pins proven: the relay writes")
        # the restart may have fired NodeDown, which inhibits also the notice of the end
        self.is_over("PortcullisRelayPinsUnproven")

    def bearer(self):
        return {"authorization": "Bearer " + (self.folder / "relay.token").read_text().strip()}


class FullDisk(DeadNode):
    """The file system of the SQLite store is full while the relay journals refusals."""

    def start(self):
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", self.disk], check=True)
        self.stack.callback(subprocess.run, ["umount", "--lazy", self.disk], check=True)
        self.node = self.add(Devnet(self.folder))
        keys = {"store__url": f"sqlite:{self.disk}/portcullis.db"}
        self.edge = self.add(Edge(self.folder, self.node, relay=True, **keys))
        ready = 'portcullis_relay_pins_ready'
        eventually("the pins", lambda: self.edge.metric(ready) == 1)

    def open_session(self):
        """Opens an age session: one write to the store. Its status."""
        session = (self.folder / "user.session").read_text().strip()
        url = f"http://{self.edge.sidecar}/functions/age-verification-session"
        return ask(url, b"", {"authorization": f"Bearer {session}"})[0]

    def fill(self):
        with (self.disk / "filler").open("ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass

    def play(self):
        self.fill()
        eventually("a write to fail", lambda: self.open_session() == 503, 10)
        self.edge.is_wrong("store", "store unreachable", "full|No space left", "failing")
        self.fires("PortcullisStoreUnavailable")
        assert self.pages("PortcullisStoreUnavailable") == {"PortcullisStoreUnavailable"}
        (self.disk / "filler").unlink()
        self.edge.is_well("store", "store reachable again")
        self.is_resolved("PortcullisStoreUnavailable")


class ExpiredCertificate(Outage):
    """The certificate of the gateway expires while it is served."""

    scheme = "https"

    def start(self):
        self.node = self.add(Devnet(self.folder))
        self.certify(timedelta(days=90))
        keys = {
            **self.keys,
            "gateway__tls__certificate_file": self.folder / "gateway.pem",
            "gateway__tls__key_file": self.folder / "gateway.key",
        }
        self.edge = self.add(Edge(self.folder, self.node, **keys))
        eventually("a read", lambda: self.edge.read(scheme="https") == 200)

    def certify(self, validity):
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway")])
        names = x509.SubjectAlternativeName([x509.DNSName("gateway.example")])
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + validity)
            .add_extension(names, critical=False)
            .sign(key, hashes.SHA256())
        )
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        private = key.private_bytes(*form, serialization.NoEncryption())
        secret = os.open(self.folder / "gateway.key", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(secret, "wb") as file:
            file.write(private)
        (self.folder / "gateway.pem").write_bytes(certificate.public_bytes(form[0]))

    def renew(self, validity):
        self.certify(validity)
        self.edge.child.process.send_signal(signal.SIGHUP)

    def play(self):
        self.renew(timedelta(seconds=6))
        self.edge.is_wrong("certificate", "certificate needs renewal", "expires in", "degraded")
        gauge = 'portcullis_condition_failing{condition="certificate"}'
        eventually("its end", lambda: self.edge.metric(gauge) == 1, 15)
        page = self.edge.verdict()
        assert page["state"] == "failing" and "expired" in page["troubles"][0]["cause"], page
        _, text = ask(f"http://{self.edge.admin}/readyz?verbose")
        assert "it has expired" in text, text
        self.edge.says("certificate", "certificate needs renewal", level="error")
        self.fires("PortcullisCertificateExpiresNow")
        assert self.pages("PortcullisCertificateExpiresNow") == {"PortcullisCertificateExpiresNow"}
        self.renew(timedelta(days=90))
        self.edge.is_well("certificate", "certificate valid")
        self.is_resolved("PortcullisCertificateExpiresNow")


class Flood(Outage):
    """A client sends far more than its limit: the log stays readable, and nothing pages."""

    keys = {}

    def play(self):
        before = len(self.edge.lines())
        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda _: self.edge.read(), range(3000)))
        refused = statuses.count(429)
        assert refused > 2000 and set(statuses) == {200, 429}, set(statuses)
        counted = 'portcullis_requests_total{reason="rate_limited",verdict="refused"}'
        assert self.edge.metric(counted) == refused

        def summaries():
            return [line for line in self.edge.lines() if "more times" in line.get("message", "")]

        eventually("the number of the others", summaries, 15)
        assert len(self.edge.lines()) - before < 400, "the flood fills the log"
        _, text = ask(f"http://{self.edge.admin}/readyz?verbose")
        assert text == "ok\nverdict: ok\n" and self.edge.verdict()["state"] == "ok", text
        self.fires("PortcullisRequestsRateLimited")
        assert self.alertmanager.paged(self.edge.admin)[0] == set(), "a flood is for the morning"


OUTAGES = (HungNode, DeadNode, WrongChain, WrongPins, FullDisk, ExpiredCertificate, Flood)


def attempt(outage, act):
    """Runs one act of an outage; whether it went well."""
    try:
        act()
        return True
    except Exception:
        traceback.print_exc()
        for log in sorted(outage.folder.glob("serve.log")):
            print(f"--- {outage.name}\n{log.read_text()[-4000:]}", file=sys.stderr)
        return False


def main():
    wanted = [one for one in OUTAGES if not sys.argv[1:] or one.__name__ in sys.argv[1:]]
    with tempfile.TemporaryDirectory(prefix="portcullis-outages-") as folder, ExitStack() as stack:
        folder = Path(folder)
        outages = [one(folder / one.__name__, stack) for one in wanted]
        pool = stack.enter_context(ThreadPoolExecutor(len(outages)))
        if not all(pool.map(lambda one: attempt(one, one.start), outages)):
            return 1
        alertmanager = Alertmanager(folder)
        stack.callback(alertmanager.end)
        targets = [one.edge.admin for one in outages]
        prometheus = Prometheus(
            folder, *targets, change=shortened, alertmanager=alertmanager.address
        )
        stack.callback(prometheus.end)
        prometheus.await_samples()
        for one in outages:
            one.prometheus, one.alertmanager = prometheus, alertmanager
        passed = list(pool.map(lambda one: attempt(one, one.play), outages))
    print(f"{sum(passed)} of {len(passed)} outages are reported as required")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
