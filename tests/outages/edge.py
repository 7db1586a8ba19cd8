"""What an outage needs: a real node, a `portcullis serve` in front of it, and an Alertmanager.

PORTCULLIS names the program; `starknet-devnet`, `prometheus` and `prometheus-alertmanager` are
found on PATH. All data is in one folder, which the caller removes.
"""

import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1] / name) for name in ("lib", "prometheus")]

from ports import free_port
from world import PORTCULLIS, ROOT, Child, ask, eventually

# What happens is said within this many seconds, in the log, the metrics, the probe and the page.
SOON = 10.0
# `for`, and the times of Alertmanager, are this much shorter than shipped.
FASTER = 20
# In ms: the longest `for` after that.
LONGEST = 15_000

FLEET_SECRET = "fleet-0123456789abcdef0123456789abcdef"


def fleet_secret(folder):
    """The file of a fleet's secret."""
    secret = folder / "fleet.secret"
    secret.write_text(FLEET_SECRET)
    secret.chmod(0o600)
    return secret


class WallClock:
    """A wall clock that is ahead of the real one, of each process with this environment."""

    def __init__(self, folder, seconds=0):
        library, source = folder / "clock.so", Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O", "-o", library, source], check=True)
        self.offset = folder / "clock.offset"
        self.set(seconds)
        # jemalloc's thread waits by the kernel's clock for a time of this one: it would never wait
        quiet = {"_RJEM_MALLOC_CONF": "background_thread:false"}
        self.env = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(self.offset), **quiet}

    def set(self, seconds):
        """Sets it, for running processes too."""
        with self.offset.open("r+b" if self.offset.exists() else "wb") as file:
            file.write(struct.pack("q", seconds))


class Devnet:
    """A node on a port of its own, which it keeps over restarts, as it does its chain."""

    def __init__(self, folder, *arguments, host="127.0.0.1", genesis=None):
        self.folder, self.port, self.arguments = folder, free_port(), arguments
        self.host, self.url = host, f"http://{host}:{self.port}/rpc"
        self.child = None
        self.genesis = genesis or str(int(time.time()))
        self.start()

    def start(self, other_chain=()):
        """Starts it with its chain, or with another one as these arguments say."""
        own = ("--chain-id", "PORTCULLIS_DEV", "--seed", "0", "--start-time", self.genesis)
        own += ("--dump-on", "block", "--dump-path", str(self.folder / "chain.json"))
        self.child = Child(
            self.folder / "devnet.log",
            *("starknet-devnet", "--host", self.host, "--port", str(self.port)),
            *("--state-archive-capacity", "full", *(other_chain or own)),
            *self.arguments,
        )
        self.child.says("listening on")

    def ask(self, method, **params):
        """Sends a request of its own administration; the result."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        _, text = ask(self.url, body)
        return json.loads(text)["result"]

    def signal(self, which):
        self.child.process.send_signal(which)

    def kill(self):
        self.child.end(signal.SIGKILL)

    def end(self):
        self.signal(signal.SIGCONT)
        self.kill()


class Redis:
    """A fleet's store on a port that it keeps, without files: a restart is empty."""

    def __init__(self, folder, *arguments, host="127.0.0.1", env=None):
        self.folder, self.port, self.host = folder, free_port(), host
        self.arguments, self.env = arguments, env
        self.url = f"redis://{host}:{self.port}"
        # the package of the tools has the server under another name
        found = shutil.which("redis-server") or shutil.which("redis-check-rdb")
        (folder / "redis-server").symlink_to(found)
        self.start()

    def start(self):
        own = ("--port", str(self.port), "--bind", self.host, "--protected-mode", "no")
        own += ("--save", "", "--dir", str(self.folder))
        program = str(self.folder / "redis-server")
        self.child = Child(self.folder / "redis.log", program, *own, *self.arguments, env=self.env)
        self.child.says("Ready to accept connections")

    def signal(self, which):
        self.child.process.send_signal(which)

    def kill(self):
        self.child.end(signal.SIGKILL)

    end = kill


class Edge:
    """A `portcullis serve` with gateway and admin listener, and more keys as variables.

    The admin listener keeps its address over restarts. `under` is a command that runs it, `child`
    starts it.
    """

    def __init__(self, folder, node, relay=False, under=(), child=Child, env=None, **keys):
        self.folder, self.child_of = folder, child
        config = folder / "portcullis.toml"
        listens = {"gateway.listen": "127.0.0.1:0", "admin.listen": f"127.0.0.1:{free_port()}"}
        listens["log.format"] = "json"
        if relay:
            # contracts, pins and keys
            command = [PORTCULLIS, "dev", "--prepare", "--node", node.url, "--state", str(folder)]
            subprocess.run(command, check=True, capture_output=True)
            listens |= {f"{name}.listen": "127.0.0.1:0" for name in ("relay", "sidecar")}
        else:
            config.write_text(f'[node]\nurl = "{node.url}"\n')
        keys = {**listens, **{key.replace("__", "."): value for key, value in keys.items()}}
        self.env = {f"PORTCULLIS__{key.upper().replace('.', '__')}": str(keys[key]) for key in keys}
        self.env |= env or {}
        self.command = [*under, PORTCULLIS, "serve", "--config", str(config)]
        self.start()

    def start(self):
        self.child = self.child_of(self.folder / "serve.log", *self.command, env=self.env)
        self.child.says('"message":"serving"')
        for line in self.lines():
            if line.get("message") == "listening":
                setattr(self, line["surface"], line["address"])

    def lines(self):
        """The log so far; a line that is being written is not in it."""
        text = self.child.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def read(self, method="starknet_blockNumber", params=(), scheme="http", **headers):
        """Sends a read; its status."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(f"{scheme}://{self.gateway}/rpc", body, headers, timeout=20)[0]

    def signal(self, which):
        self.child.process.send_signal(which)

    def verdict(self, text=""):
        """The verdict on the page and what is wrong, from its stream of snapshots: the first one
        with this text, within 10 snapshots, one a second."""
        url = f"http://{self.admin}/events"
        with urllib.request.urlopen(url, timeout=5) as stream:
            snapshots = (line[6:] for line in stream if line.startswith(b"data: "))
            for snapshot in itertools.islice(snapshots, 10):
                verdict = json.loads(snapshot)["verdict"]
                if text in str(verdict):
                    return verdict
        raise AssertionError(f"no snapshot has {text!r}")

    def metric(self, series):
        _, text = ask(f"http://{self.admin}/metrics")
        found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.M)
        return float(found[1]) if found else None

    def says(self, condition, message, **fields):
        """Waits for a line of this condition with these fields; returns it."""

        def look():
            wanted = {"condition": condition, "message": message, **fields}
            for line in self.lines():
                if all(line.get(key) == value for key, value in wanted.items()):
                    return line
            return None

        return eventually(f"the log of {self.folder.name} to say {message}", look, SOON)

    def is_wrong(self, condition, message, cause, verdict):
        """Checks that log, metrics, probe and page say all the same, soon."""
        begun = time.monotonic()
        line = self.says(condition, message)
        assert re.search(cause, line["cause"]), f"{cause} is not the cause: {line}"
        assert line["level"] == ("error" if verdict == "failing" else "warn"), line
        gauge = "portcullis_condition" + ("_failing" if verdict == "failing" else "")
        gauge += f'{{condition="{condition}"}}'
        eventually(gauge, lambda: self.metric(gauge), SOON)
        status, text = ask(f"http://{self.admin}/readyz?verbose")
        assert status == 200 and f"verdict: {verdict}" in text and message in text, text
        assert line["subject"] in text, text
        page = self.verdict()
        assert page["state"] == verdict, page
        troubles = [one for one in page["troubles"] if one["condition"] == condition]
        assert troubles and troubles[0]["message"] == message, page
        print(f"{self.folder.name}: {message} ({line['cause']}), {time.monotonic() - begun:.1f} s")

    def is_well(self, condition, message):
        """Checks that the end of a condition is said as well, and that nothing else is wrong."""
        line = self.says(condition, message)
        assert line["level"] == "info" and "lasted" in line, line

        def look():
            _, text = ask(f"http://{self.admin}/readyz?verbose")
            return text == "verdict: ok\nready: ok\n" and self.verdict()["state"] == "ok"

        eventually(f"{self.folder.name} to be well", look, 2 * SOON)
        gauge = f'portcullis_condition{{condition="{condition}"}}'
        assert self.metric(gauge) == 0, gauge

    def end(self):
        self.child.end()


class Alertmanager:
    """The shipped one, faster, and what it sends to the pager."""

    def __init__(self, folder):
        self.pages = pages = []

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/pager":
                    pages.extend(json.loads(body)["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=self.receiver.serve_forever, daemon=True).start()
        text = (ROOT / "conf/prometheus/alertmanager.yml").read_text()
        text = text.replace("127.0.0.1:9095", f"127.0.0.1:{self.receiver.server_port}")
        text = re.sub(r"(group_wait|group_interval): (\d+)([sm])", faster, text)
        config = folder / "alertmanager.yml"
        config.write_text(text)
        own = Path(shutil.which("prometheus-alertmanager")).parents[1] / "share"
        if not Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
            # it reads its templates at this path, and is unpacked elsewhere
            over = ["-o", f"lowerdir={own}:/usr/share", "overlay", "/usr/share"]
            subprocess.run(["mount", "-t", "overlay", *over], check=True)
        self.child = Child(
            folder / "alertmanager.log",
            *("prometheus-alertmanager", f"--config.file={config}"),
            *(f"--storage.path={folder / 'alertmanager'}", "--web.listen-address=127.0.0.1:0"),
            "--cluster.listen-address=",
        )
        self.address = self.child.says(r"address=(127\.0\.0\.1:\d+)")[1]

    def paged(self, instance):
        """The alerts of this process that were sent as firing, and those that were resolved."""
        own = [page for page in list(self.pages) if page["labels"]["instance"] == instance]
        firing, resolved = (
            {page["labels"]["alertname"] for page in own if page["status"] == status}
            for status in ("firing", "resolved")
        )
        return firing, resolved

    def end(self):
        self.child.end()
        self.receiver.shutdown()


def faster(match):
    seconds = int(match[2]) * {"s": 1, "m": 60, "h": 3600}[match[3]]
    return f"{match[1]}: {min(seconds * 1000 // FASTER, LONGEST)}ms"


def shortened(rules):
    """A rule file whose alerts fire sooner. Ranges of half an hour and longer are as shipped: what
    happened since the start is within them."""

    def shorter(match):
        return f"{match[1]}{int(match[2]) * 60 // FASTER}s"

    rules = re.sub(r"(\[|offset )(2|5|10|15)m\b", shorter, rules)
    # the age of what has a time stamp
    ages = re.compile(r"(time\(\) - .* > )(\d+)$", re.M)
    rules = ages.sub(lambda match: f"{match[1]}{max(int(match[2]) // FASTER, 12)}", rules)
    return re.sub(r"(for): (\d+)([smh])$", faster, rules, flags=re.M)
