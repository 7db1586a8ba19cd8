"""An ACME authority of our own: Pebble, with its DNS and its management of that."""

import json
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "lib"))

from ports import free_port


def eventually(what, look, patience=30.0):
    """Polls `look` until it returns something, and returns that."""
    end = time.monotonic() + patience
    while not (found := look()):
        assert time.monotonic() < end, f"still waiting: {what}"
        time.sleep(0.05)
    return found


class Child:
    """A process whose output goes to a file."""

    def __init__(self, log, *command, env=None, cwd=None):
        self.log = log
        with log.open("a") as output:
            self.process = subprocess.Popen(
                [str(word) for word in command], env=env, cwd=cwd,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )

    def text(self):
        return self.log.read_text(errors="replace")

    def says(self, pattern, patience=30.0):
        """The first match of `pattern` in its output."""

        def look():
            found = re.search(pattern, self.text())
            assert found or self.process.poll() is None, f"it ended:\n{self.text()}"
            return found

        return eventually(f"{self.log.name} to say {pattern}", look, patience)

    def end(self, signal_=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal_)
        return self.process.wait(timeout=30)


def openssl(*words):
    subprocess.run(["openssl", *[str(word) for word in words]], check=True, capture_output=True)


def identity(folder):
    """The certificate of the directory itself, and that of the authority that signed it."""
    root, key = folder / "directory-ca.pem", folder / "directory-ca.key"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl("req", "-x509", *curve, "-subj", "/CN=directory root", "-keyout", key, "-out", root)
    openssl(
        "req", "-x509", *curve, "-subj", "/CN=directory", "-CA", root, "-CAkey", key,
        "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
        "-keyout", folder / "directory.key", "-out", folder / "directory.pem",
    )
    return root


class Authority:
    """A Pebble that validates at these ports. It forgets everything when it ends. With `customers`, it
    takes no accounts but theirs: keys by their ids."""

    def __init__(self, folder, http_port=1, tls_port=1, lifetime=86_400, rejected_nonces=5,
                 customers=None):
        self.folder, self.lifetime, self.customers = folder, lifetime, customers
        self.ports = {"httpPort": http_port, "tlsPort": tls_port}
        self.port, self.management, self.dns, self.names = (free_port() for _ in range(4))
        self.root = folder / "directory-ca.pem"
        if not self.root.exists():
            identity(folder)
        self.env = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": str(rejected_nonces)}
        self.dns_server = Child(
            folder / "dns.log", "pebble-challtestsrv", "-dns01", f"127.0.0.1:{self.dns}",
            "-management", f"127.0.0.1:{self.names}", "-defaultIPv6", "", "-http01", "",
            "-https01", "", "-tlsalpn01", "",
        )
        self.start()

    @property
    def directory(self):
        return f"https://127.0.0.1:{self.port}/dir"

    def start(self):
        config = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.folder / "directory.pem"),
            "privateKey": str(self.folder / "directory.key"),
            "certificateValidityPeriod": self.lifetime,
            "externalAccountBindingRequired": self.customers is not None,
            "externalAccountMACKeys": self.customers or {},
            **self.ports,
        }
        file = self.folder / "pebble.json"
        file.write_text(json.dumps({"pebble": config}))
        log = self.folder / "pebble.log"
        self.pebble = Child(
            log, "pebble", "-config", file, "-dnsserver", f"127.0.0.1:{self.dns}", env=self.env
        )
        eventually("the directory", self.answers)

    def answers(self):
        try:
            return self.get(self.port, "/dir") is not None
        except OSError:
            return False

    def get(self, port, path):
        context = ssl.create_default_context(cafile=self.root)
        with urllib.request.urlopen(f"https://127.0.0.1:{port}{path}", context=context) as answer:
            return answer.read().decode()

    def stop(self):
        self.pebble.end()

    def end(self):
        self.pebble.end()
        self.dns_server.end()

    def issuer(self):
        """The root of the certificates that it issues, until it is started again."""
        return self.get(self.management, "/roots/0")

    def point(self, name, address=None):
        """Resolves a name to this address from now on; without one, to 127.0.0.1 again."""
        path, body = "clear-a", {"host": name}
        if address:
            path, body = "add-a", {**body, "addresses": [address]}
        data = json.dumps(body).encode()
        urllib.request.urlopen(f"http://127.0.0.1:{self.names}/{path}", data).read()

    def count(self, event):
        return len(re.findall(event, self.pebble.text()))

    def accounts(self):
        """How many it has."""
        return self.count("There are now [0-9]+ accounts")

    def orders(self):
        return self.count('Added order "')

    def issued(self):
        return self.count("Issued certificate serial")
