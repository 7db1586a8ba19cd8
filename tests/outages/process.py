"""The process and its listeners: it crashes, hangs in its end, or comes to a limit of its own."""

import itertools
import os
import signal
import socket
import subprocess
from contextlib import ExitStack
from subprocess import PIPE, Popen

from edge import eventually
from outage import Outage
from way import Way
from world import Child

REQUEST = (
    b"POST /rpc HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
    b"x-forwarded-for: 198.51.100.%d\r\ncontent-length: %d\r\n\r\n%b"
)
NUMBERS = itertools.count(1)
BLOCK_NUMBER = b'{"jsonrpc":"2.0","id":1,"method":"starknet_blockNumber","params":[]}'


def connect(address, body=BLOCK_NUMBER, client=1):
    """A connection of this client that sent one request and has not read the response."""
    host, _, port = address.rpartition(":")
    connection = socket.socket()
    connection.settimeout(20)
    connection.connect((host, int(port)))
    connection.sendall(REQUEST % (client, len(body), body))
    return connection


class Crashes(Outage):
    """The process is killed, is started again later, and is killed again twice."""

    alerts = ("PortcullisDown", "PortcullisRestarting")

    def starts(self):
        changes = "changes(process_start_time_seconds{instance='%s'}[1h])" % self.edge.admin
        found = self.prometheus.query(changes)
        return int(found[0]["value"][1]) if found else 0

    def play(self):
        for start in (1, 2, 3):
            self.edge.child.end(signal.SIGKILL)
            if start == 1:
                self.fires("PortcullisDown")
                assert self.pages("PortcullisDown") == {"PortcullisDown"}
            self.edge.start()
            eventually("the start to be seen", lambda wanted=start: self.starts() >= wanted)
        self.fires("PortcullisRestarting")
        self.is_resolved("PortcullisDown")


class Drains(Outage):
    """A second signal would end it, and nobody sends one."""

    alerts = ("PortcullisDraining",)
    keys = {"server__drain_delay": "1h"}

    def play(self):
        self.edge.signal(signal.SIGTERM)
        self.fires("PortcullisDraining")
        self.edge.child.end()


class FewFiles(Outage):
    """The limit of file descriptors is far below that of connections."""

    alerts = ("PortcullisFilesNearLimit",)

    def start(self):
        self.serve(self.calm, under=("prlimit", "--nofile=200:200"))

    def play(self):
        with ExitStack() as connections:
            for _ in range(160):
                connections.enter_context(connect(self.edge.gateway)).recv(1)
            self.fires("PortcullisFilesNearLimit")
            assert self.pages("PortcullisFilesNearLimit") == {"PortcullisFilesNearLimit"}
        self.is_resolved("PortcullisFilesNearLimit")


class ManyConnections(Outage):
    """All peers together have most of the connections, and one peer asks for ever more."""

    alerts = ("PortcullisConnectionsNearLimit", "PortcullisConnectionsRefused")

    def start(self):
        limits = {"max": 40, "max_per_client": 35}
        limits = {f"gateway__connections__{key}": value for key, value in limits.items()}
        self.serve(self.calm, gateway__trusted_proxies="[]", **limits)

    def one_more(self):
        connect(self.edge.gateway).close()

    def play(self):
        with ExitStack() as connections:
            for _ in range(35):
                connections.enter_context(connect(self.edge.gateway)).recv(1)
            with self.repeating(self.one_more, 1, 0.2):
                self.fires(*self.alerts)
            assert not self.alertmanager.paged(self.edge.admin)[0]


class LargeAnswers(Outage):
    """Many clients at once get large answers, which arrive slowly: no memory is left for others."""

    alerts = ("PortcullisAnswerMemoryLow", "PortcullisOverloaded")

    def start(self):
        way = self.add(Way(self.calm))
        way.fault = lambda method, _: Way.STALL if method == "starknet_getClassAt" else None
        memory = {"server__answer_memory": "16 MiB", "gateway__cache__size": "1 MiB"}
        self.serve(way, **memory)

    def read_class(self):
        number = next(NUMBERS)
        params = {"block_id": "latest", "contract_address": hex(number)}
        client = f"198.51.100.{number % 200}"
        return self.edge.read("starknet_getClassAt", params, x_forwarded_for=client)

    def play(self):
        with self.repeating(self.read_class, 60, 0.1):
            self.fires(*self.alerts)
            self.pages("PortcullisOverloaded")


class HungJournal(Outage):
    """Whoever reads the log hangs, and the requests go on."""

    alerts = ("PortcullisLogLinesDropped",)
    keys = {"gateway__requests_per_minute": 1_000_000_000}

    def start(self):
        self.serve(self.calm, child=Piped)

    def play(self):
        self.edge.child.reader.send_signal(signal.SIGSTOP)
        body = self.folder / "read.json"
        body.write_bytes(BLOCK_NUMBER)
        dropped = "portcullis_log_dropped_lines_total"
        while not self.edge.metric(dropped):
            command = ["h2load", "--h1", "-c", "4", "-n", "4000", "-d", str(body)]
            for field in ("content-type: application/json", f"x-request-id: {'i' * 60}"):
                command += ["-H", field]
            command += [f"http://{self.edge.gateway}/rpc"]
            subprocess.run(command, check=True, capture_output=True)
        self.fires("PortcullisLogLinesDropped")
        self.edge.child.reader.send_signal(signal.SIGCONT)
        eventually("the log to say so", self.said)

    def said(self):
        return [line for line in self.edge.lines() if "dropped" in line.get("message", "")]


class Piped(Child):
    """A process whose output goes through a pipe."""

    def __init__(self, log, *command, env=None):
        self.log = log
        with log.open("w") as output:
            self.reader = Popen(["cat"], stdin=PIPE, stdout=output)
        to = self.reader.stdin
        self.process = Popen(command, env={**os.environ, **(env or {})}, stdout=to, stderr=to)
        to.close()

    def end(self, signal_=signal.SIGTERM):
        self.reader.send_signal(signal.SIGCONT)
        super().end(signal_)
        self.reader.wait(timeout=60)


class ManyClients(Outage):
    """More clients than the limiter tracks."""

    alerts = ("PortcullisRateLimitEvictions",)
    keys = {"gateway__max_clients": 16}

    def play(self):
        for number in range(100):
            connect(self.edge.gateway, client=number).recv(1)
        self.fires("PortcullisRateLimitEvictions")


class BadReload(Outage):
    """Somebody mistypes a key, and sends SIGHUP."""

    alerts = ("PortcullisConfigReloadFailed",)

    def play(self):
        config = self.folder / "portcullis.toml"
        good = config.read_text()
        config.write_text(good + '[gateway]\nrequests_per_minut = 180\n')
        self.edge.signal(signal.SIGHUP)
        self.fires("PortcullisConfigReloadFailed")
        config.write_text(good)
        self.edge.signal(signal.SIGHUP)
        self.is_over("PortcullisConfigReloadFailed")


class ForgottenRestart(Outage):
    """Somebody changes a key that needs a restart, sends SIGHUP, and forgets the restart."""

    alerts = ("PortcullisRestartPending",)

    def play(self):
        config = self.folder / "portcullis.toml"
        before = self.edge.metric("portcullis_config_hash")
        config.write_text(config.read_text() + "[server]\ngrace_period = '14s'\n")
        self.edge.signal(signal.SIGHUP)
        self.fires("PortcullisRestartPending")
        assert self.edge.metric("portcullis_config_hash") == before, "nothing else is in force"
        self.edge.child.end()
        self.edge.start()
        self.is_over("PortcullisRestartPending")
        assert self.edge.metric("portcullis_config_hash") != before
