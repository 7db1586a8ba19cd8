"""The world of an attack: a certificate, stand-ins for the node and for other services that count
what is requested of them, the program, and its metrics."""

import json
import os
import re
import resource
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAM = os.environ.get("PORTCULLIS", "target/debug/portcullis")
# How long anything may take on a slow machine; nothing is judged by its time.
PATIENCE = 45
LARGE = (4 << 20) - 4096
LARGE_RESULT = b'"' + b"x" * LARGE + b'"'


class Failed(Exception):
    """The program did not behave as required."""


def require(holds, what):
    if not holds:
        raise Failed(what)


def eventually(what, probe):
    """Waits until `probe` returns something; returns that."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = probe()
        if found:
            return found
        time.sleep(0.05)
    raise Failed(f"within {PATIENCE} s it is not so that {what}")


class Service(ThreadingHTTPServer):
    """An HTTP server on loopback. `answer` maps a path and a body to a response's body, or to the
    body and what to wait for between the head and it."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, answer, host="127.0.0.1"):
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), Handler)
        self.answer, self.lock, self.requested = answer, threading.Lock(), []
        # Requests at a time: now, and the most there were.
        self.now, self.most = 0, 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path=""):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, request, address):
        pass  # the program went away

    def count(self, path):
        with self.lock:
            return self.requested.count(path)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # the head is written on its own, and must not wait for an acknowledgement
    disable_nagle_algorithm = True

    def do_GET(self):
        with self.server.lock:
            self.server.requested.append(self.path)
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        try:
            self.answer()
        finally:
            with self.server.lock:
                self.server.now -= 1

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.answer(self.path, body)
        answer, wait = answer if isinstance(answer, tuple) else (answer, None)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n"
        self.wfile.write(f"{head}Content-Type: application/json\r\n\r\n".encode())
        if wait:
            wait(PATIENCE)
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *_):
        pass


def node_answer(_, body):
    """A receipt is large, everything else is small."""
    request = json.loads(body)
    large = request["method"] == "starknet_getTransactionReceipt"
    head = b'{"jsonrpc":"2.0","id":%d,"result":' % request["id"]
    return head + (LARGE_RESULT if large else b'"0x1"') + b"}"


def read(number=None):
    """The body of a read: a large one of this number, or a small one."""
    method, params = "starknet_chainId", []
    if number is not None:
        method, params = "starknet_getTransactionReceipt", [hex(number)]
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


class World:
    """One program with its configuration and its surroundings; ends with the `with` block."""

    def __init__(self, config, *, files=None, wrapper=()):
        self.config, self.files, self.wrapper = config, files, list(wrapper)
        self.folder = Path(tempfile.mkdtemp(prefix="portcullis-attack."))
        self.node = Service(node_answer)
        self.process = None

    def __enter__(self):
        self.certify()
        text = (
            f'[node]\nurl = "{self.node.url("/rpc")}"\n'
            f'[store]\nurl = "sqlite:{self.folder}/store.db"\n'
            f'[admin]\nlisten = "127.0.0.1:0"\n{self.config}'
        )
        path = self.folder / "portcullis.toml"
        path.write_text(text.replace("FOLDER", str(self.folder)))
        before = None
        if self.files:
            before = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (self.files, self.files))
        # to a file: a pipe would have to be read as fast as an attack is logged
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [*self.wrapper, PROGRAM, "serve", "--config", str(path)],
                stdout=subprocess.DEVNULL,
                stderr=log,
                preexec_fn=before,
            )
        self.surfaces, self.addresses = len(re.findall(r"(?m)^listen", text)), {}
        listens = lambda: len(self.listening()) == self.surfaces or self.ended()
        try:
            eventually("it listens", listens)
            require(self.process.poll() is None, "the program starts")
        except Failed:
            self.__exit__(Failed)
            raise
        return self

    def __exit__(self, kind, *_):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.node.shutdown()
        if kind:
            print("".join(f"  {line}\n" for line in self.lines()[-15:]), end="")
        shutil.rmtree(self.folder, ignore_errors=True)

    def ended(self):
        return self.process.poll() is not None

    def lines(self):
        """The whole lines of the log so far."""
        log = self.folder / "log"
        text = log.read_text(errors="replace") if log.exists() else ""
        return text.split("\n")[:-1]

    def entries(self):
        """The log so far."""
        return [json.loads(line) for line in self.lines() if line.startswith("{")]

    def listening(self):
        """Where each surface listens."""
        if len(self.addresses) < self.surfaces:
            self.addresses = self.listening_so_far()
        return self.addresses

    def listening_so_far(self):
        entries = [entry for entry in self.entries() if entry.get("message") == "listening"]
        return {entry["surface"]: entry["address"].rsplit(":", 1) for entry in entries}

    def address(self, surface):
        host, port = self.listening()[surface]
        return host.strip("[]"), int(port)

    def certify(self):
        self.pem, key = self.folder / "edge.pem", self.folder / "edge.key"
        new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        command = ["openssl", *new.split(), "-subj", "/CN=localhost",
                   "-keyout", key, "-out", self.pem]
        subprocess.run(command, check=True, capture_output=True)
        key.chmod(0o600)

    def secure(self, surface, protocol="h2", receive=None):
        """A TLS connection that speaks this protocol."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([protocol])
        return context.wrap_socket(self.connect(surface, receive=receive))

    def connect(self, surface, receive=None):
        """A plain connection, with a receive buffer of this size."""
        host, port = self.address(surface)
        one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        one.settimeout(PATIENCE)
        one.connect((host, port))
        return one

    def metric(self, name):
        """The sum over a metric's labels."""
        _, _, body = ask(self.connect("admin"), b"GET", b"/metrics", close=True)
        found = re.findall(rf"(?m)^{name}(?:{{.*}})? (\S+)$", body.decode())
        return sum(map(float, found))

    def resident(self):
        """Bytes of memory that the program has resident."""
        return self.memory("VmRSS")

    def peak(self):
        """The most that it has had resident since it started."""
        return self.memory("VmHWM")

    def memory(self, name):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) << 10

    def cpu(self):
        """The seconds of CPU time that its threads have used."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def threads(self):
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))


TLS = '[{0}.tls]\ncertificate_file = "FOLDER/edge.pem"\nkey_file = "FOLDER/edge.key"\n'


def request(method, path, body=b"", client="192.0.2.1", close=False):
    """The bytes of a request over HTTP/1."""
    fields = [b"Host: localhost", b"X-Forwarded-For: " + client.encode()]
    if method == b"POST":
        fields += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    if close:
        fields.append(b"Connection: close")
    return b"\r\n".join([b"%s %s HTTP/1.1" % (method, path), *fields, b"", body])


def ask(connection, method, path, body=b"", client="192.0.2.1", close=False):
    connection.sendall(request(method, path, body, client, close))
    return response(connection)


def response(connection, has_body=True):
    """The status, the fields and the whole body of the next response over HTTP/1."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += receive(connection)
    head, body = data.split(b"\r\n\r\n", 1)
    first, *rest = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in rest)}
    length = int(fields.get("content-length", 0)) if has_body else 0
    pieces, got = [body], len(body)
    while got < length:
        pieces.append(receive(connection))
        got += len(pieces[-1])
    return int(first.split()[1]), fields, b"".join(pieces)


def receive(connection):
    piece = connection.recv(1 << 18)
    if not piece:
        raise EOFError("the connection ended")
    return piece


def status_of(world, surface, method, path, body=b"", client="192.0.2.2"):
    """The status of one request on a connection of its own."""
    connection = world.connect(surface)
    try:
        return ask(connection, method, path, body, client, close=True)[0]
    except (EOFError, OSError):
        return 0
    finally:
        connection.close()
