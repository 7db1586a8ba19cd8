"""One sidecar for each database engine, with content; most tests only read from it."""

import pytest

from content import RECORDS, STATEMENTS
from server import ENGINES, Sidecar
from stubs import Stub
from tokens import ISSUER, SigningKey


@pytest.fixture(scope="session", name="stub")
def loopback_stub():
    stub = Stub()
    yield stub
    stub.end()


@pytest.fixture(scope="session", name="keys")
def platform_keys(stub):
    """The platform's keys by their algorithm, published at /jwks.json."""
    keys = {name: SigningKey(name, f"{name}-1") for name in ("ES256", "RS256", "EdDSA")}
    stub.answers["/jwks.json"] = {"keys": [key.public for key in keys.values()]}
    return keys


@pytest.fixture(scope="session", params=ENGINES, name="engine")
def database_engine(request):
    return ENGINES[request.param]


@pytest.fixture(scope="session", name="sidecar")
def sidecar_with_content(engine, tmp_path_factory, stub, keys):
    folder = tmp_path_factory.mktemp("sidecar")
    database = engine(folder)
    changes = {
        "sidecar.session": {"issuer": ISSUER, "jwks_url": f"{stub.url}/jwks.json"},
        "sidecar.age": {"verification_url": "https://verify.example/start?ref={subject_ref}"},
        "sidecar.robots": {"blocked_agents": ["GPTBot"]},
    }
    sidecar = Sidecar(folder, database, changes, RECORDS)
    for statement in STATEMENTS:
        database.execute(statement)
    yield sidecar
    sidecar.end()
    database.drop()


@pytest.fixture(name="start")
def starter(tmp_path):
    """Starts a sidecar of the test's own, on SQLite by default."""
    started = []

    def start(changes=None, records=(), database=None):
        database = database or ENGINES["sqlite"](tmp_path)
        started.append((Sidecar(tmp_path, database, changes, records), database))
        return started[-1][0]

    yield start
    for sidecar, database in started:
        try:
            sidecar.end()
        finally:
            database.drop()
