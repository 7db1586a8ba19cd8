"""Conditions: of each, and of its end, log, metrics, probe and page say the same."""

import hashlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edge import Devnet, Edge, Redis, ask, eventually, fleet_secret
from outage import Outage
from world import PORTCULLIS, ROOT

DOWN, UP = "node URL failed", "node URL works again"


class HungNode(Outage):
    """The node accepts connections and answers nothing."""

    alerts = ("PortcullisNodeDown",)

    def start(self):
        self.serve(self.own_node())

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

    alerts = ("PortcullisNodeDown", "PortcullisNodeBreakerOpen", "PortcullisRelayPinsUnproven")

    def start(self):
        self.serve(self.own_node(), relay=True)

    def play(self):
        with self.reading():
            self.node.kill()
            self.edge.is_wrong("node_url", DOWN, "refused", "failing")
            line = self.edge.says("pins", "pins lost: the relay writes nothing")
            # the first is the chain's id, unless a proof had read that when the node died
            assert re.search(r"not proven: \w+( and \d+ more)?, unreadable", line["cause"]), line
            self.fires(*self.alerts)
            # one cause pages once
            assert self.pages("PortcullisNodeDown") == {"PortcullisNodeDown"}
            self.node.start()
            self.edge.is_well("node_url", UP)
            self.edge.says("pins", "pins proven: the relay writes")
        self.is_resolved("PortcullisNodeDown")


class LaggingNode(Outage):
    """One of two nodes of a chain follows it no longer."""

    alerts = ("PortcullisNodeBreakerOpen",)

    def start(self):
        first = self.own_node()
        folder = self.folder / "second"
        folder.mkdir()
        # the same genesis and the same times are the same blocks
        self.second = self.add(Devnet(folder, genesis=first.genesis))
        self.serve(first, node__url=json.dumps([first.url, self.second.url]))

    def mine(self, node):
        for number in range(1, 11):
            at = int(node.genesis) + 10 * number
            node.ask("devnet_setTime", time=at, generate_block=True)

    def play(self):
        with self.reading():
            self.mine(self.node)
            self.edge.is_wrong("node_url", DOWN, "lagging: its head is 0", "degraded")
            self.fires(*self.alerts)
            assert not self.alertmanager.paged(self.edge.admin)[0], "the other one serves"
            self.mine(self.second)
            self.edge.is_well("node_url", UP)


class WrongChain(Outage):
    """Another chain answers at the URL of the gateway that has `node.chain_id`."""

    alerts = ("PortcullisNodeDown",)

    def start(self):
        self.serve(self.own_node(), node__chain_id="PORTCULLIS_DEV")

    def play(self):
        with self.reading():
            self.node.kill()
            self.node.start(("--chain-id", "SN_MAIN"))
            self.edge.is_wrong("node_url", DOWN, "chain|refused", "failing")
            # in one stream: a page each tenth of a second would be more than may be open
            self.edge.verdict("SN_MAIN")
            assert self.edge.read() == 502, "nothing of another chain is served"
            self.fires("PortcullisNodeDown")
            assert self.pages("PortcullisNodeDown") == {"PortcullisNodeDown"}
            self.node.kill()
            self.node.start()
            self.edge.is_well("node_url", UP)
        self.is_resolved("PortcullisNodeDown")


class WrongPins(DeadNode):
    """A chain of the same id, but without the contracts, answers at the relay's URL."""

    alerts = ("PortcullisRelayPinsUnproven",)

    def play(self):
        self.node.kill()
        self.node.start(("--chain-id", "PORTCULLIS_DEV", "--seed", "7"))
        self.edge.says("node_url", UP)
        message = "pins lost: the relay writes nothing"
        self.edge.is_wrong("pins", message, "not proven", "failing")
        status, text = self.operate("/recovery-cancel", {"identity": "0x1d"})
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


class FullDisk(DeadNode):
    """The file system of the SQLite store is full while the relay journals refusals."""

    alerts = ("PortcullisStoreUnavailable",)

    def start(self):
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", self.disk], check=True)
        self.stack.callback(subprocess.run, ["umount", "--lazy", self.disk], check=True)
        self.serve(self.own_node(), relay=True, store__url=f"sqlite:{self.disk}/portcullis.db")

    def open_session(self):
        """Opens an age session: one write to the store. Its status; five a minute are permitted."""
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

    def free(self):
        (self.disk / "filler").unlink()

    def is_failing(self):
        """Whether the probes of the process and of the sidecar say so."""
        _, text = ask(f"http://{self.edge.admin}/readyz?verbose")
        status, health = ask(f"http://{self.edge.sidecar}/functions/health-check")
        return "verdict: failing" in text and status == 503 and '"store_error"' in health

    def play(self):
        self.fill()
        eventually("a write to fail", lambda: self.open_session() == 503, 10)
        self.edge.is_wrong("store", "store unreachable", "full|No space left", "failing")
        # what the sidecar's check found is cached for 10 s
        eventually("the probes to say so", self.is_failing, 15)
        for _ in range(3):
            # between the events of a sender that repeats one
            until = time.monotonic() + 6
            while time.monotonic() < until:
                assert self.is_failing()
                time.sleep(1)
            assert self.open_session() == 503
        self.fires("PortcullisStoreUnavailable")
        assert self.pages("PortcullisStoreUnavailable") == {"PortcullisStoreUnavailable"}
        self.free()
        self.edge.is_well("store", "store reachable again")
        assert self.open_session() == 201, "without a restart"
        self.is_resolved("PortcullisStoreUnavailable")


class FullServerDisk(FullDisk):
    """The disk of PostgreSQL's tables is full, that of its log is not."""

    def start(self):
        self.server = self.add(Server("tests/lib/small_disk.sh"))
        self.serve(self.own_node(), relay=True, store__url=f"{self.server.url}/small")

    def fill(self):
        self.server.order("fill")

    def free(self):
        self.server.order("free")


class FleetStoreAway(Outage):
    """The store of the fleet is killed, and starts again empty."""

    alerts = ("PortcullisFleetStoreUnavailable", "PortcullisFleetStateMissing")

    def start(self):
        self.store = self.add(Redis(self.folder))
        keys = {"fleet__url": self.store.url, "fleet__secret_file": fleet_secret(self.folder)}
        self.serve(self.calm, **keys)
        eventually("the fleet", lambda: self.edge.metric("portcullis_fleet_up") == 1)

    def play(self):
        with self.reading():
            self.store.kill()
            self.edge.is_wrong("fleet", "fleet store unreachable", ".", "degraded")
            self.fires("PortcullisFleetStoreUnavailable")
            assert self.edge.read() == 200, "each instance admits its part"
            self.fires("PortcullisFleetStateMissing")
            self.store.start()
            self.edge.is_well("fleet", "fleet store reachable again")
        self.is_over("PortcullisFleetStoreUnavailable")
        self.is_over("PortcullisFleetStateMissing")


class Server:
    """A PostgreSQL of the tests, run by a script that obeys words."""

    def __init__(self, script):
        command = ("bash", script)
        pipe = subprocess.PIPE
        self.shell = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self.url = self.shell.stdout.readline().rstrip("\n/")
        assert self.url.startswith("postgres://"), self.url

    def order(self, word):
        print(word, file=self.shell.stdin, flush=True)
        assert self.shell.stdout.readline().strip() == word

    def end(self):
        self.shell.stdin.close()
        self.shell.wait(60)


class ReplicaAway(Outage):
    """The replica that documents are read from is killed."""

    alerts = ("PortcullisReplicaNotUsed",)

    def start(self):
        self.standby = self.add(Server("tests/lib/standby.sh"))
        self.serve(
            self.calm,
            sidecar__listen="127.0.0.1:0",
            sidecar__base_url="https://portcullis.test",
            store__url=f"{self.standby.url}:5432/postgres",
            store__read_url=f"{self.standby.url}:5433/postgres",
        )
        used = "portcullis_store_replica_used"
        eventually("the replica", lambda: self.edge.metric(used) == 1)

    def play(self):
        self.standby.order("kill")
        self.edge.is_wrong("replica", "replica of the store not used", ".", "degraded")
        self.fires(*self.alerts)
        self.standby.order("start")
        self.edge.is_well("replica", "replica of the store used again")
        self.is_over(*self.alerts)


class StoreNotPruned(Outage):
    """The store was last pruned four days ago."""

    alerts = ("PortcullisStoreNotPruned",)

    def start(self):
        self.database = self.folder / "portcullis.db"
        self.serve(
            self.calm,
            sidecar__listen="127.0.0.1:0",
            sidecar__base_url="https://portcullis.test",
            store__url=f"sqlite:{self.database}",
        )

    def play(self):
        database = sqlite3.connect(self.database, isolation_level=None)
        four_days_us = 4 * 86_400 * 1_000_000
        database.execute("UPDATE pruning SET pruned_us = pruned_us - ?", (four_days_us,))
        database.close()
        self.fires(*self.alerts)
        prune = [PORTCULLIS, "store", "prune", *self.edge.command[-2:]]
        subprocess.run(prune, env={**os.environ, **self.edge.env}, check=True)
        self.is_over(*self.alerts)


class ExpiredCertificate(Outage):
    """The certificate of the gateway expires while it is served."""

    alerts = ("PortcullisCertificateExpiresSoon", "PortcullisCertificateExpiresNow")
    scheme = "https"

    def start(self):
        self.certify(timedelta(days=90))
        files = {"certificate_file": "gateway.pem", "key_file": "gateway.key"}
        keys = {f"gateway__tls__{key}": self.folder / name for key, name in files.items()}
        self.node, self.edge = self.calm, self.add(Edge(self.folder, self.calm, **keys))
        eventually("a read", lambda: self.edge.read(scheme="https") == 200)

    def certify(self, validity):
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway")])
        names = x509.SubjectAlternativeName([x509.DNSName("gateway.example")])
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=80))
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
        self.edge.signal(signal.SIGHUP)

    def play(self):
        self.renew(timedelta(days=10))
        self.edge.is_wrong("certificate", "certificate needs renewal", "expires in 9", "degraded")
        self.fires("PortcullisCertificateExpiresSoon")
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


class AuthorityAway(ExpiredCertificate):
    """The authority that renews the certificate of the gateway is away."""

    alerts = ("PortcullisCertificateNotOrdered",)

    def start(self):
        directory, domain = "https://127.0.0.1:1/dir", "gateway.example"
        digest = hashlib.sha256(f"{directory} {domain}".encode()).hexdigest()[:8]
        self.file = self.folder / "acme" / f"{domain}-{digest}.pem"
        self.file.parent.mkdir()
        self.certify(timedelta(days=400))
        keys = {
            "gateway__tls__domains": [domain],
            "tls__acme__terms_accepted": "true",
            "tls__acme__directory": directory,
            "tls__acme__folder": self.file.parent,
        }
        self.node, self.edge = self.calm, self.add(Edge(self.folder, self.calm, **keys))
        eventually("a read", lambda: self.edge.read(scheme="https") == 200)

    def certify(self, validity):
        super().certify(validity)
        pair = [(self.folder / f"gateway.{kind}").read_bytes() for kind in ("key", "pem")]
        secret = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(secret, "wb") as file:
            file.write(b"".join(pair))

    def play(self):
        self.renew(timedelta(days=20))
        self.edge.is_wrong(
            "certificate", "certificate needs renewal", "the authority is unreachable", "degraded"
        )
        self.fires("PortcullisCertificateNotOrdered")
        self.renew(timedelta(days=400))
        self.edge.is_well("certificate", "certificate valid")
        self.is_over("PortcullisCertificateNotOrdered")


class Flood(Outage):
    """A client sends far more than its limit: the log stays readable, and nothing pages."""

    alerts = ("PortcullisRequestsRateLimited",)
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
        assert text == "verdict: ok\nready: ok\n" and self.edge.verdict()["state"] == "ok", text
        self.fires("PortcullisRequestsRateLimited")
        assert self.alertmanager.paged(self.edge.admin)[0] == set(), "a flood is for the morning"
