"""A whole Portcullis on a real node, a Prometheus that scrapes it, and some traffic.

PORTCULLIS names the program; `prometheus` and `starknet-devnet` are found on PATH. All ports are
free ones, and all data is stored in one folder, which the caller removes.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PORTCULLIS = os.environ["PORTCULLIS"]
SURFACES = ("gateway", "relay", "sidecar", "admin")
# starknet_keccak("get_public_key")
GET_PUBLIC_KEY = "0x1a35984e05126dbecb7c3bb9929e7dd9106d460c59b1633739a5c733a5fb13b"


def eventually(what, look, patience=120.0):
    """Polls `look` until it returns something, and returns that."""
    end = time.monotonic() + patience
    while not (found := look()):
        assert time.monotonic() < end, f"still waiting: {what}"
        time.sleep(0.1)
    return found


# The certificate was generated a moment ago.
ANY_CERTIFICATE = ssl._create_unverified_context()


def ask(url, body=None, headers=None, timeout=None):
    """One request, a POST when it has a body: status and body."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    headers = {"content-type": "application/json", **(headers or {})}
    try:
        request = urllib.request.Request(url, data, headers)
        with urllib.request.urlopen(request, timeout=timeout, context=ANY_CERTIFICATE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Proxied(http.client.HTTPConnection):
    """A connection of a balancer's own: PROXY protocol, version 2, command LOCAL."""

    def connect(self):
        super().connect()
        self.sock.sendall(b"\r\n\r\n\0\r\nQUIT\n" + bytes([0x20, 0, 0, 0]))


def ask_proxied(address, path, body=None, headers=None):
    """One request with a PROXY header before it: status and body."""
    connection = Proxied(address, timeout=30)
    method = "GET" if body is None else "POST"
    connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


class Child:
    """A process whose output goes to a file."""

    def __init__(self, log, *command, env=None):
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                command, env={**os.environ, **(env or {})}, stdout=output, stderr=output
            )

    def says(self, pattern):
        """The first match of `pattern` in its output."""

        def look():
            text = self.log.read_text()
            assert self.process.poll() is None, f"it ended:\n{text}"
            return re.search(pattern, text)

        return eventually(f"{self.process.args[0]} to say {pattern}", look)

    def end(self, signal_=signal.SIGTERM):
        self.process.send_signal(signal_)
        self.process.wait(timeout=60)


class Portcullis:
    """All four surfaces, as `portcullis dev` makes them: the relay with a certificate, the sidecar
    behind a TCP balancer."""

    def __init__(self, folder):
        self.state = folder / "state"
        env = {f"PORTCULLIS__{name.upper()}__LISTEN": "127.0.0.1:0" for name in SURFACES}
        certificate, key = folder / "relay.pem", folder / "relay.key"
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=relay"]
        make += ["-days", "90", "-out", str(certificate), "-keyout", str(key)]
        subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
        key.chmod(0o600)
        env["PORTCULLIS__RELAY__TLS__CERTIFICATE_FILE"] = str(certificate)
        env["PORTCULLIS__RELAY__TLS__KEY_FILE"] = str(key)
        env["PORTCULLIS__SIDECAR__PROXY_PROTOCOL"] = "true"
        # a server with a certificate, which nothing asks
        with socket.create_server(("127.0.0.1", 0)) as free:
            relay = f"127.0.0.1:{free.getsockname()[1]}"
        env["PORTCULLIS__RELAY__LISTEN"] = relay
        env["PORTCULLIS__SIDECAR__SESSION__PLC_URL"] = f"https://{relay}"
        self.child = Child(
            folder / "portcullis.log", PORTCULLIS, "dev", "--state", str(self.state), env=env
        )
        for name in SURFACES:
            setattr(self, name, self.child.says(rf"{name} +https?://([0-9.:]+)/?")[1])

    def secret(self, name):
        return (self.state / name).read_text().strip()

    def traffic(self):
        """Traffic of every kind: reads, refusals, writes, events, the health check."""
        self.reads()
        self.writes()
        self.events()
        expiry = "portcullis_peer_certificate_expiry_timestamp_seconds"
        eventually("a server's certificate", lambda: expiry in self.families())

    def rpc(self, method, params):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return ask(f"http://{self.gateway}/rpc", body)

    def reads(self):
        for _ in range(3):
            for method in ("starknet_chainId", "starknet_blockNumber"):
                status, text = self.rpc(method, [])
                assert status == 200, text
        status, text = self.rpc("starknet_addInvokeTransaction", [])
        assert status == 403, text
        status, text = ask(f"http://{self.gateway}/rpc", b"{")
        assert status == 400, text

    def writes(self):
        url, config = f"https://{self.relay}", (self.state / "portcullis.toml").read_text()
        verifier = re.search(r'^verifier = "(0x[0-9a-f]+)"', config, re.M)[1]
        call = {
            "contract_address": verifier,
            "entry_point_selector": GET_PUBLIC_KEY,
            "calldata": [],
        }
        _, text = self.rpc("starknet_call", [call, "latest"])
        drip = {
            "identity": "0x1234",
            "recipient": verifier,
            "public_key": json.loads(text)["result"][0],
        }
        bearer = {"authorization": f"Bearer {self.secret('relay.token')}"}
        status, text = ask(f"{url}/faucet-drip", drip, bearer)
        assert status == 200 and not json.loads(text)["idempotent"], text
        another = {**bearer, "idempotency-key": "another-drip"}
        status, text = ask(f"{url}/faucet-drip", drip, another)
        assert status == 429, text
        status, text = ask(f"{url}/faucet-drip", drip)
        assert status == 401, text

    def events(self):
        session = {"authorization": f"Bearer {self.secret('user.session')}"}
        status, text = self.function("age-verification-session", b"", session)
        assert status == 201, text
        subject = json.loads(text)["subject_ref"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = self.state / "event.json"
        fields = {"event_id": "evt-1", "subject_ref": subject, "status": "verified"}
        times = {"verified_at": now, "expires_at": None, "occurred_at": now}
        event.write_text(json.dumps({**fields, "age_band": "18_plus", **times}))
        secret = str(self.state / "webhook.secret")
        command = [PORTCULLIS, "sign-webhook", "--secret-file", secret, str(event)]
        signature = subprocess.check_output(command, text=True).strip()
        for sent, wanted in ((signature, 200), ("0" * 64, 401)):
            headers = {"x-service-verifier-signature": sent}
            status, text = self.function("age-verifier-webhook", event.read_bytes(), headers)
            assert status == wanted, text
        status, text = self.function("health-check")
        assert status == 200, text

    def function(self, name, body=None, headers=None):
        return ask_proxied(self.sidecar, f"/functions/{name}", body, headers)

    def families(self):
        """The names of all exported metrics."""
        _, text = ask(f"http://{self.admin}/metrics")
        return set(re.findall(r"^# TYPE (\S+)", text, re.M))

    def end(self):
        self.child.end(signal.SIGINT)


class Prometheus:
    """Uses the shipped configuration with other targets, and an interval of 1 s instead of 15 s.

    `change` may change the text of each rule file; `alertmanager` is an address, `interval` another
    interval.
    """

    def __init__(
        self, folder, *targets, change=lambda text: text, alertmanager=None, interval="1s"
    ):
        shutil.copytree(ROOT / "conf/prometheus", folder / "conf")
        config = folder / "conf/prometheus.yml"
        text = config.read_text()
        replaced = [("127.0.0.1:8083", '", "'.join(targets))]
        replaced.append(("_interval: 15s", f"_interval: {interval}"))
        if alertmanager:
            replaced.append(("- targets: []", f'- targets: ["{alertmanager}"]'))
        for there, here in replaced:
            assert there in text, f"{there} is not in the configuration"
            text = text.replace(there, here)
        config.write_text(text)
        for rules in (folder / "conf/rules").iterdir():
            rules.write_text(change(rules.read_text()))
        self.child = Child(
            folder / "prometheus.log",
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
            # Its logs use its own time zone.
            env={"TZ": "UTC"},
        )
        address = self.child.says(r'"?Listening on"?.* address=(127\.0\.0\.1:\d+)')[1]
        ready = f"http://{address}/-/ready"
        eventually("Prometheus to be ready", lambda: ask(ready)[0] == 200)
        self.url = f"http://{address}/api/v1"

    def get(self, path, **parameters):
        """The response of an endpoint; raises on an error, with its message."""
        _, text = ask(f"{self.url}/{path}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(text)
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        return answer["data"]

    def query(self, expression):
        return self.get("query", query=expression)["result"]

    def series(self, selector):
        return self.get("series", **{"match[]": selector})

    def rules(self):
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def await_samples(self):
        """Waits until it has scraped often enough for rates, and evaluated every rule on that."""
        count = "min(count_over_time(portcullis_requests_total[1h]))"
        eventually("three scrapes", lambda: (n := self.query(count)) and int(n[0]["value"][1]) >= 3)
        since = datetime.now(UTC).isoformat()

        def are_fresh():
            return all(rule["lastEvaluation"] > since for rule in self.rules())

        eventually("all rules to be evaluated", are_fresh)

    def end(self):
        self.child.end()
