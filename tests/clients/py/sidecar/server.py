"""The process that the tests here query, and the database behind it.

PORTCULLIS names the binary, PORTCULLIS_TEST_POSTGRES a PostgreSQL server: a URL to which the name
of a database is appended. Both are required. With PORTCULLIS_TEST_LONG set, slow tests (minutes)
run, too. Everything listens on ports of its own.
"""

import http.client
import itertools
import json
import os
import re
import secrets
import sqlite3
import subprocess
import time
from dataclasses import dataclass

import psycopg

BINARY = os.environ["PORTCULLIS"]
POSTGRES = os.environ["PORTCULLIS_TEST_POSTGRES"]
LONG = "PORTCULLIS_TEST_LONG" in os.environ
BASE_URL = "https://cards.example"

WEBHOOK_SECRETS = [secrets.token_hex(32), secrets.token_hex(32)]
SESSION_SECRET = secrets.token_hex(32)
OPERATOR_TOKEN = secrets.token_urlsafe(32)

# What no log and no metric may ever hold: code that makes a secret or sends a body adds to it.
UNSPEAKABLE = {*WEBHOOK_SECRETS, SESSION_SECRET, OPERATOR_TOKEN}

_count = itertools.count()


def eventually(what, look, patience=20.0):
    """Polls `look` until it returns something, and returns that."""
    end = time.monotonic() + patience
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"still waiting: {what}"
        time.sleep(0.02)


@dataclass
class Answer:
    """A response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The status, and the error's name if there is one."""
        return self.status, self.json()["error"] if self.status >= 400 else None

    def max_age(self):
        return int(re.search(r"max-age=(\d+)", self.headers["Cache-Control"])[1])


class SqliteFile:
    """A database in a file of its own."""

    kind = "sqlite"

    def __init__(self, folder):
        self.path = folder / f"{next(_count)}.db"
        self.url = f"sqlite:{self.path}"

    def connect(self):
        return sqlite3.connect(self.path, isolation_level=None, timeout=10)

    def execute(self, statement):
        connection = self.connect()
        try:
            connection.execute(statement)
        finally:
            connection.close()

    def drop(self):
        """Nothing to do: the whole folder is removed."""


class PostgresDatabase:
    """A fresh database on the server."""

    kind = "postgres"

    def __init__(self, _folder):
        self.name = f"sidecar_{os.getpid()}_{next(_count)}"
        self.url = POSTGRES + self.name
        self._on_server(f"CREATE DATABASE {self.name} TEMPLATE template0")

    @staticmethod
    def _on_server(statement):
        with psycopg.connect(f"{POSTGRES}postgres", autocommit=True) as server:
            server.execute(statement)

    def execute(self, statement):
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def drop(self):
        """Drops it even while clients are connected."""
        self._on_server(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


ENGINES = {"sqlite": SqliteFile, "postgres": PostgresDatabase}


def toml(sections):
    """The text of a configuration. Strings, numbers, flags and lists look as they do in JSON."""
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in keys.items())
    return "\n".join(lines) + "\n"


def secret_file(folder, name, value):
    """A file that only its owner can read."""
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(value)
    return str(path)


class Sidecar:
    """A running `portcullis serve`. `changes` are sections of keys: {"sidecar.age": {…}}."""

    def __init__(self, folder, database, changes=None, records=()):
        self.folder = folder / f"sidecar{next(_count)}"
        self.folder.mkdir()
        self.database = database
        self.config = self.folder / "portcullis.toml"
        self.config.write_text(toml(self._sections(changes or {})))
        self.log_path = self.folder / "log"
        self._run("store", "migrate", "--config", self.config)
        if records:
            self.take_in(records)
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--config", self.config], stdin=subprocess.DEVNULL, stderr=log
            )
        try:
            self.address = self._address_of("sidecar")
            self.admin = self._address_of("admin")
        except BaseException:
            self.process.kill()
            raise

    def _sections(self, changes):
        sections = {
            "node": {"url": "http://127.0.0.1:9"},
            "log": {"level": "debug"},
            "admin": {"listen": "127.0.0.1:0"},
            "store": {"url": self.database.url},
            "sidecar": {
                "listen": "127.0.0.1:0",
                "base_url": BASE_URL,
                "requests_per_minute": 1_000_000,
                "operator_token_file": secret_file(self.folder, "operator", OPERATOR_TOKEN),
            },
            "sidecar.session": {
                "hs256_secret_files": [secret_file(self.folder, "session", SESSION_SECRET)]
            },
            "sidecar.age": {
                "webhook_secret_files": [
                    secret_file(self.folder, f"webhook{at}", secret)
                    for at, secret in enumerate(WEBHOOK_SECRETS)
                ]
            },
        }
        for section, keys in changes.items():
            sections.setdefault(section, {}).update(keys)
        return sections

    def _run(self, *words):
        done = subprocess.run([BINARY, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def take_in(self, records):
        """Imports records next to the running process."""
        path = self.folder / f"{next(_count)}.ndjson"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return self._run("store", "import", "--config", self.config, path)

    def log(self):
        return self.log_path.read_text()

    def _address_of(self, surface):
        def look():
            assert self.process.poll() is None, self.log()
            for line in self.log().splitlines():
                entry = json.loads(line) if line.startswith("{") else {}
                if (entry.get("message"), entry.get("surface")) == ("listening", surface):
                    return entry["address"]
            return None

        return eventually(f"{surface} to listen", look)

    def ask(self, method, path, headers=(), body=None, address=None):
        """One request on a connection of its own. Headers are pairs: a name may repeat."""
        connection = http.client.HTTPConnection(address or self.address, timeout=60)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            pairs = headers.items() if isinstance(headers, dict) else headers
            for name, value in pairs:
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path, headers=()):
        return self.ask("GET", path, headers)

    def metrics(self):
        return self.ask("GET", "/metrics", address=self.admin).body.decode()

    def peak_memory(self):
        """Its peak memory, in bytes."""
        status = open(f"/proc/{self.process.pid}/status", encoding="ascii").read()
        return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[1]) * 1024

    def leaked(self):
        """Secrets in its log or metrics."""
        shown = self.log() + self.metrics()
        return [secret for secret in UNSPEAKABLE if secret in shown]

    def end(self):
        """Ends it. Asserts that it leaked no secret, and that it exits with 0."""
        try:
            leaked = self.leaked()
        finally:
            self.process.terminate()
            try:
                status = self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        assert not leaked, f"in the log or the metrics: {leaked}"
        assert status == 0, f"exit {status}:\n{self.log()[-2000:]}"
        assert '"level":"error"' not in self.log() or self.may_complain, self.log()[-2000:]

    may_complain = False
