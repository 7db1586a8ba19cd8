"""The database is gone, or busy: what still works, and the error of the rest."""

import json
import threading

import pytest

from content import ADA, RECORDS
from server import PostgresDatabase, Sidecar, SqliteFile
from stubs import Stub
from test_age import JSON, SESSION, SIGNATURE, WEBHOOK, User, event, send, sign
from tokens import bearer, mint

FEED = (
    "/xrpc/app.bsky.feed.getFeedSkeleton?feed=at://did:web:cards.example/app.bsky.feed.generator/"
)


@pytest.fixture(scope="module", name="bereft")
def sidecar_without_a_database(tmp_path_factory):
    """A sidecar whose database was dropped after its first response."""
    folder = tmp_path_factory.mktemp("bereft")
    database, platform = PostgresDatabase(folder), Stub()
    platform.answers["/"] = 200
    changes = {"sidecar.health": {"platform": f"{platform.url}/"}}
    sidecar = Sidecar(folder, database, changes, RECORDS)
    sidecar.may_complain = True
    assert sidecar.get(f"{FEED}fresh-pulls").status == 200
    sidecar.subject = User(sidecar).subject()
    database.drop()
    yield sidecar
    sidecar.end()
    platform.end()


ASKED = {
    f"{FEED}journals": {},
    f"/functions/podcast-rss-feed?did={ADA}": {},
    "/functions/podcast-rss-feed?handle=ada.cards.example": {},
    "/functions/seo-sitemap?page=1": {},
    SESSION: bearer(mint()),
}


@pytest.mark.parametrize("path", ASKED)
def test_requests_that_need_the_database_get_503(bereft, path):
    answer = bereft.get(path, ASKED[path])
    assert answer.error == (503, "StoreUnavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers["Cache-Control"] in ("no-store", "private, no-store")
    for word in (b"postgres", b'database "', b"sidecar_", b"sqlx", b"/tmp"):
        assert word not in answer.body, "no driver's words"


def test_an_event_must_be_sent_again(bereft):
    answer = send(bereft, event(bereft.subject))
    assert answer.error == (503, "StoreUnavailable")
    assert int(answer.headers["Retry-After"]) >= 1


def test_a_wrong_signature_is_refused_nevertheless(bereft):
    body = json.dumps(event(bereft.subject)).encode()
    headers = {**JSON, SIGNATURE: sign(body, "x" * 64)}
    assert bereft.ask("POST", WEBHOOK, headers, body).error == (401, "InvalidSignature")


@pytest.mark.parametrize(
    "path",
    [
        "/robots.txt",
        "/functions/seo-robots",
        "/healthz",
        "/functions/describeFeedGenerator",
        "/.well-known/did.json",
        "/functions/health-check?probe=live",
    ],
)
def test_requests_that_need_no_database_succeed(bereft, path):
    assert bereft.get(path).status == 200


def test_the_health_check_names_the_database(bereft):
    answer = bereft.get("/functions/health-check")
    assert answer.status == 503
    health = answer.json()
    assert health["status"] == "fail"
    (check,) = health["checks"]["database"]
    assert check["status"] == "fail"
    assert check["output"] in ("store_error", "timeout", "unreachable")
    assert health["checks"]["platform"][0]["status"] == "pass"


def test_reads_work_and_events_wait_while_another_process_writes(start, tmp_path):
    database = SqliteFile(tmp_path)
    sidecar = start(records=RECORDS, database=database)
    sidecar.may_complain = True
    said = event(User(sidecar).subject())
    writer = database.connect()
    writer.execute("BEGIN IMMEDIATE")
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(send(sidecar, said)))
    waiting.start()
    assert sidecar.get(f"{FEED}fresh-pulls").status == 200
    waiting.join(15)
    writer.execute("ROLLBACK")
    writer.close()
    assert answers and answers[0].error == (503, "StoreUnavailable")
    assert int(answers[0].headers["Retry-After"]) >= 1
    assert send(sidecar, said).json() == {"status": "applied", "state": "verified"}, (
        "not stored before"
    )
