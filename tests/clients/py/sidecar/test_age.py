"""Age verification from end to end: a session, signed events, and the user's status."""

import hashlib
import hmac
import json
import re
import secrets
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from server import UNSPEAKABLE, WEBHOOK_SECRETS, eventually
from tokens import bearer, mint

SESSION = "/functions/age-verification-session"
WEBHOOK = "/functions/age-verifier-webhook"
SIGNATURE = "x-service-verifier-signature"
JSON = {"Content-Type": "application/json"}


def instant(moment):
    return moment.isoformat().replace("+00:00", "Z")


class User:
    """A signed-in user."""

    def __init__(self, sidecar, user_id=None):
        self.sidecar = sidecar
        self.id = user_id or str(uuid.uuid4())
        self.headers = bearer(mint(sub=self.id))

    def open(self, body=None):
        return self.sidecar.ask("POST", SESSION, {**self.headers, **JSON}, body)

    def subject(self):
        answer = self.open()
        assert answer.status == 201, answer.body
        return answer.json()["subject_ref"]

    def status(self):
        answer = self.sidecar.get(SESSION, self.headers)
        assert answer.status == 200, answer.body
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.json()


def event(subject, status="verified", after=0, **changes):
    """An event `after` seconds from a minute ago."""
    at = datetime.now(UTC) - timedelta(seconds=60 - after)
    verified = status == "verified"
    return {
        "event_id": f"evt_{secrets.token_hex(8)}",
        "subject_ref": subject,
        "status": status,
        "age_band": "18_plus" if verified else None,
        "verified_at": instant(at) if verified else None,
        "expires_at": None,
        "occurred_at": instant(at),
        **changes,
    }


def sign(body, secret=WEBHOOK_SECRETS[0]):
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def send(sidecar, said, signature=None):
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    UNSPEAKABLE.add(body.decode("utf-8", "replace"))
    signature = signature or sign(body)
    UNSPEAKABLE.add(signature)
    return sidecar.ask("POST", WEBHOOK, {**JSON, SIGNATURE: signature}, body)


@pytest.fixture(name="user")
def somebody(sidecar):
    return User(sidecar)


def test_a_new_user_is_unverified(user):
    assert user.status() == {"status": "unverified"}


def test_a_session_opens_with_an_opaque_reference(user):
    answer = user.open(b"{}")
    assert answer.status == 201
    assert answer.headers["Cache-Control"] == "no-store"
    opened = answer.json()
    assert set(opened) == {"subject_ref", "status", "expires_at", "verification_url"}
    assert re.fullmatch("[0-9a-f]{48}", opened["subject_ref"])
    assert opened["status"] == "pending"
    assert opened["verification_url"] == f"https://verify.example/start?ref={opened['subject_ref']}"
    ends = datetime.fromisoformat(opened["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=23, minutes=59) < ends < timedelta(hours=24, seconds=5)
    assert user.status() == {"status": "pending"}


def test_a_session_body_is_empty_or_an_empty_object(user):
    for body in (None, b"", b" { } "):
        assert user.open(body).status == 201, body
    for body, error in {
        b'{"birthday":"2000-01-01"}': (400, "InvalidRequest"),
        b"[]": (400, "InvalidRequest"),
        b"{": (400, "InvalidRequest"),
        b" " * 1025: (413, "PayloadTooLarge"),
    }.items():
        assert user.open(body).error == error, body


def test_a_user_is_verified_until_the_verification_ends(sidecar, user):
    ends = datetime.now(UTC) + timedelta(seconds=3)
    said = event(user.subject(), expires_at=instant(ends))
    answer = send(sidecar, said)
    assert (answer.status, answer.json()) == (200, {"status": "applied", "state": "verified"})
    stated = user.status()
    assert (stated["status"], stated["age_band"]) == ("verified", "18_plus")
    for field in ("verified_at", "expires_at"):
        assert stated[field] == said[field][:19] + "Z", "in whole seconds"
    eventually("it to end", lambda: user.status()["status"] == "expired")
    assert datetime.now(UTC) >= ends - timedelta(milliseconds=50)


def test_a_verification_without_an_end_is_valid_for_a_year(sidecar, user):
    said = event(user.subject())
    assert send(sidecar, said).status == 200
    stated = user.status()
    since, until = (datetime.fromisoformat(stated[f]) for f in ("verified_at", "expires_at"))
    assert until - since == timedelta(days=365)


def test_events_apply_in_the_order_of_occurrence(sidecar, user):
    subject = user.subject()
    for status, after, expected, state in [
        ("pending", 1, 200, "pending"),
        ("rejected", 10, 200, "rejected"),
        ("verified", 5, (409, "StaleTransition"), "rejected"),
        ("expired", 20, (409, "InvalidTransition"), "rejected"),
        ("verified", 15, 200, "verified"),
        ("pending", 30, (409, "InvalidTransition"), "verified"),
        ("revoked", 25, 200, "revoked"),
        ("verified", 40, (409, "InvalidTransition"), "revoked"),
    ]:
        answer = send(sidecar, event(subject, status, after))
        found = answer.status if expected == 200 else answer.error
        assert found == expected, (status, answer.body)
        assert user.status()["status"] == state


def test_a_repeated_event_gets_its_first_outcome(sidecar, user):
    subject = user.subject()
    newer, older = event(subject, "rejected", 10), event(subject, "verified", 5)
    assert send(sidecar, newer).json()["status"] == "applied"
    assert send(sidecar, older).error == (409, "StaleTransition")
    for said, outcome in ((newer, "applied"), (older, "stale")):
        for form in (json.dumps(said), json.dumps(said, indent=1), json.dumps({**said})):
            answer = send(sidecar, form.encode())
            assert answer.status == 200
            assert answer.json() == {"status": "duplicate", "outcome": outcome, "state": "rejected"}
    zoned = datetime.fromisoformat(newer["occurred_at"]).astimezone().isoformat()
    assert send(sidecar, {**newer, "occurred_at": zoned}).json()["status"] == "duplicate"


def test_an_event_id_identifies_one_event(sidecar, user):
    said = event(user.subject(), "rejected")
    assert send(sidecar, said).status == 200
    other = {**said, "status": "revoked"}
    assert send(sidecar, other).error == (409, "EventConflict")
    assert user.status()["status"] == "rejected"


def test_fifty_copies_at_once_are_applied_once(sidecar, user):
    said = event(user.subject())
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: send(sidecar, said), range(50)))
    assert {answer.status for answer in answers} == {200}
    assert sorted(answer.json()["status"] for answer in answers) == ["applied"] + ["duplicate"] * 49


def test_an_unknown_subject_is_reported_and_not_stored(sidecar):
    said = event(secrets.token_hex(24))
    assert send(sidecar, said).error == (404, "UnknownSubject")
    assert send(
        sidecar, {**said, "status": "revoked", "age_band": None, "verified_at": None}
    ).error == (
        404,
        "UnknownSubject",
    ), "the event's id is free still"


SIGNATURES = {
    "lower case": (True, lambda mac: mac),
    "upper case": (True, str.upper),
    "with its prefix": (True, lambda mac: f"sha256={mac}"),
    "one digit changed": (False, lambda mac: mac[:-1] + ("0" if mac[-1] != "0" else "1")),
    "cut": (False, lambda mac: mac[:-1]),
    "another prefix": (False, lambda mac: f"sha1={mac}"),
    "two at once": (False, lambda mac: f"{mac},{mac}"),
    "zeros": (False, lambda _: "0" * 64),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_signature_decides(sidecar, user, name):
    good, change = SIGNATURES[name]
    body = json.dumps(event(user.subject())).encode()
    answer = send(sidecar, body, change(sign(body)))
    assert answer.error == ((200, None) if good else (401, "InvalidSignature"))
    assert "WWW-Authenticate" not in answer.headers


def test_both_secrets_are_valid_during_rotation(sidecar, user):
    for secret in WEBHOOK_SECRETS:
        body = json.dumps(event(user.subject())).encode()
        assert send(sidecar, body, sign(body, secret)).status == 200
    body = json.dumps(event(user.subject())).encode()
    assert send(sidecar, body, sign(body, "x" * 64)).status == 401


def test_every_wrong_signature_gets_the_same_response(sidecar):
    bodies = set()
    for headers in (
        {},
        {SIGNATURE: ""},
        {SIGNATURE: "nonsense"},
        [(SIGNATURE, "0" * 64), (SIGNATURE, "0" * 64)],
        {SIGNATURE: "0" * 64, "Content-Type": "text/plain"},
    ):
        answer = sidecar.ask("POST", WEBHOOK, headers, b"{}")
        assert answer.error == (401, "InvalidSignature")
        bodies.add(answer.json()["message"])
    assert len(bodies) == 1


DATE_OF_BIRTH = "1987-06-05"
UNSPEAKABLE.add(DATE_OF_BIRTH)


@pytest.mark.parametrize(
    "field",
    ["date_of_birth", "name", "email", "document_image", "photograph", "evidence", "user_id"],
)
def test_personal_data_is_refused(sidecar, user, field):
    answer = send(sidecar, {**event(user.subject()), field: DATE_OF_BIRTH})
    assert answer.error == (400, "InvalidRequest")
    message = answer.json()["message"]
    assert DATE_OF_BIRTH not in message
    assert user.status()["status"] == "pending"


MISTAKES = {
    "a status of its own": {"status": "approved"},
    "a band that is not configured": {"age_band": "21_plus"},
    "no band": {"age_band": None},
    "a date of birth as the band": {"age_band": DATE_OF_BIRTH},
    "no verified_at": {"verified_at": None},
    "an instant without a zone": {"occurred_at": "2026-11-20T10:00:00"},
    "an instant as a number": {"occurred_at": 1790000000},
    "an instant so long ago that its event may be forgotten": {
        "verified_at": instant(datetime.now(UTC) - timedelta(days=181)),
        "occurred_at": instant(datetime.now(UTC) - timedelta(days=181)),
    },
    "an instant to come": {"occurred_at": "2099-01-01T00:00:00Z"},
    "an end before the start": {"expires_at": "2001-01-01T00:00:00Z"},
    "an event_id with a space": {"event_id": "a b"},
    "a subject of another length": {"subject_ref": "00"},
    "a member twice": None,
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_event_is_exact_or_refused(sidecar, user, name):
    said = event(user.subject())
    if MISTAKES[name] is None:
        body = json.dumps(said).replace("{", '{"status":"verified",', 1).encode()
    else:
        body = json.dumps(said | MISTAKES[name]).encode()
    assert send(sidecar, body).error == (400, "InvalidRequest")


def test_an_event_fits_into_16384_bytes(sidecar, user):
    body = json.dumps(event(user.subject())).encode()
    assert send(sidecar, body.ljust(16_384)).status == 200
    assert send(sidecar, body.ljust(16_385)).error == (413, "PayloadTooLarge")


def test_five_sessions_a_minute_are_enough(user):
    assert [user.open().status for _ in range(5)] == [201] * 5
    answer = user.open()
    assert answer.error == (429, "RateLimitExceeded")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60


def test_ten_open_sessions_are_enough(sidecar, user):
    for _ in range(2):
        assert [user.open().status for _ in range(5)] == [201] * 5
        sidecar.database.execute(
            "UPDATE age_session SET created_us = created_us - 120000000 "
            f"WHERE user_id = '{user.id}'"
        )
    answer = user.open()
    assert answer.error == (429, "RateLimitExceeded")
    assert int(answer.headers["Retry-After"]) > 60, "until the first of them ends"
    sidecar.database.execute(f"UPDATE age_session SET expires_us = 1 WHERE user_id = '{user.id}'")
    assert user.open().status == 201


def test_webhook_responses_have_no_cors_headers(sidecar):
    headers = {"Origin": "https://cards.example"}
    for answer in (
        sidecar.ask("OPTIONS", WEBHOOK, headers),
        sidecar.ask("POST", WEBHOOK, headers, b"{}"),
    ):
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
