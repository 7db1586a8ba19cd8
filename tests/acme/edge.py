"""A `portcullis serve` whose gateway gets its certificate from an authority."""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path

from authority import Child, eventually, free_port

PORTCULLIS = Path(os.environ["PORTCULLIS"]).resolve()
DOMAIN = "rpc.edge.test"


class Edge:
    """A gateway with a domain, in front of a node that is away, and an admin listener."""

    def __init__(self, folder, authority, port, domains=(DOMAIN,), more=(), **acme):
        self.folder, self.authority, self.port, self.more = folder, authority, port, more
        self.domains, self.acme, self.starts = domains, acme, 0
        self.admin = free_port()
        self.config = folder / "portcullis.toml"
        self.child = None

    def write(self):
        acme = {"directory": self.authority.directory, "ca_file": str(self.authority.root),
                "terms_accepted": True, **self.acme}
        lines = [
            "[node]", 'url = "http://127.0.0.1:1/rpc"',
            "[gateway]", f'listen = "127.0.0.1:{self.port}"', "requests_per_minute = 1000000",
            "[gateway.cache]", "enabled = false",
            "[gateway.tls]", f"domains = {json.dumps(list(self.domains))}",
            "[admin]", f'listen = "127.0.0.1:{self.admin}"',
            "[tls.acme]", *(f"{key} = {json.dumps(value)}" for key, value in acme.items()),
            *self.more,
        ]
        self.config.write_text("\n".join(lines) + "\n")

    def start(self, *before):
        """Starts it, behind the words of another command."""
        self.write()
        self.starts += 1
        log = self.folder / f"portcullis-{self.starts}.log"
        words = [*before, PORTCULLIS, "serve", "--config", self.config]
        self.child = Child(log, *words, cwd=self.folder)
        return self

    def end(self, signal_=signal.SIGTERM):
        return self.child.end(signal_)

    def serves(self):
        self.child.says('"message":"serving"')

    def events(self, message):
        return [json.loads(line) for line in self.child.text().splitlines() if message in line]

    def reload(self):
        self.child.process.send_signal(signal.SIGHUP)

    def ask(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=10) as answer:
            return answer.read().decode()

    def readiness(self):
        return self.ask("/readyz?verbose")

    def metric(self, series):
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.ask("/metrics"), re.MULTILINE)
        return float(found[1]) if found else None

    def handshake(self, root, protocols=("http/1.1",)):
        """The serial number of a certificate that this root and the domain verify. Without a root, any
        handshake succeeds."""
        context = ssl.create_default_context(cadata=root) if root else ssl._create_unverified_context()
        context.set_alpn_protocols(list(protocols))
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as stream:
            with context.wrap_socket(stream, server_hostname=self.domains[0]) as inside:
                assert inside.selected_alpn_protocol() == protocols[0]
                return inside.getpeercert().get("serialNumber")

    def resumes_at(self, other, root):
        """Whether a session that began here goes on at another instance."""
        context = ssl.create_default_context(cadata=root)
        # of TLS 1.3, a ticket comes after the handshake
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        session = None
        for port in (self.port, other.port):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
                name = {"server_hostname": self.domains[0], "session": session}
                with context.wrap_socket(stream, **name) as inside:
                    session, is_resumed = inside.session, inside.session_reused
        return is_resumed

    def has_certificate(self, root):
        try:
            return self.handshake(root)
        except (OSError, AssertionError):
            return None

    def waits_for_certificate(self, patience=30.0):
        root = self.authority.issuer()
        return eventually("a certificate", lambda: self.has_certificate(root), patience)

    def files(self):
        return sorted(path.name for path in (self.folder / "acme").iterdir())

    def is_whole(self):
        """Whether the key of the stored certificate is its own, as openssl sees them."""
        file = next((self.folder / "acme").glob("*.pem"), None)
        if file is None:
            return None
        assert file.stat().st_mode & 0o777 == 0o600, "others can read it"
        of = [
            subprocess.run(["openssl", *words, "-in", file], check=True, capture_output=True).stdout
            for words in (["x509", "-noout", "-pubkey"], ["pkey", "-pubout"])
        ]
        return of[0] == of[1]

    def check(self, *more):
        words = [PORTCULLIS, "check", "--config", self.config, *more]
        return subprocess.run(words, cwd=self.folder, capture_output=True, text=True)

    def request(self, port, method, path, host):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request(method, path, headers={"host": host})
        answer = connection.getresponse()
        return answer.status, answer.getheader("location"), answer.read().decode()
