"""health-check against stubs of every dependency."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from server import LONG, OPERATOR_TOKEN
from stubs import Stub, closed_port
from tokens import bearer

PATH = "/functions/health-check"
SINGLE = ("platform", "pds", "email", "web_push", "podcast_syndication")
COMPONENTS = {*SINGLE, "database", "card_data", "payments"}


@pytest.fixture(name="upstream")
def stub_upstream():
    """A stub whose paths all pass, except those that a test sets."""
    stub = Stub()
    stub.answers = dict.fromkeys(
        (*(f"/{name}" for name in SINGLE), "/cards-a", "/cards-b", "/pay", "/xrpc/_health"), 200
    )
    yield stub
    stub.end()


def settings(stub, **changes):
    """Everything configured. The PDS is an origin, whose health check has a path of its own."""
    return {
        "sidecar.health": {
            **{name: f"{stub.url}/{name}" for name in SINGLE},
            "pds": stub.url,
            "card_data": [f"first={stub.url}/cards-a", f"second={stub.url}/cards-b"],
            "payments": [f"bank={stub.url}/pay"],
            **changes,
        }
    }


def statuses(health):
    return {
        name: [check["status"] for check in checks] for name, checks in health["checks"].items()
    }


def assert_nothing_leaks(body, stub):
    text = body.decode()
    for secret in (stub.url, "127.0.0.1", "http:", "sqlite", "postgres", ".db"):
        assert secret not in text, text


def test_all_components_pass(start, upstream):
    sidecar = start(settings(upstream))
    answer = sidecar.get(PATH)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    health = answer.json()
    assert health["status"] == "pass"
    assert re.match(r"\d+\.\d+", health["version"])
    assert set(health["checks"]) == COMPONENTS
    assert {status for all_of in statuses(health).values() for status in all_of} == {"pass"}
    assert len(health["checks"]["card_data"]) == 2
    for name, checks in health["checks"].items():
        for check in checks:
            assert check["configured"] is True
            assert check["componentId"] == name
            assert check["latency"] in ("<10ms", "<100ms", "<1s", ">=1s")
            assert not {"output", "name", "time", "latency_ms"} & set(check)
    assert upstream.hits["/xrpc/_health"] == 1, "the PDS is queried at its own health path"
    assert_nothing_leaks(answer.body, upstream)


def test_a_component_that_is_not_configured_does_not_fail(start):
    answer = start().get(PATH)
    health = answer.json()
    assert (answer.status, health["status"]) == (200, "pass")
    for name in COMPONENTS - {"database"}:
        (check,) = health["checks"][name]
        assert (check["configured"], check["status"]) == (False, "pass"), name
        assert check["output"] == "not_configured"
        assert "latency" not in check
    assert health["checks"]["database"][0]["configured"] is True


FAULTS = {
    "answers 503": (503, "http_5xx"),
    "answers 404": (404, "http_4xx"),
    "hangs": ("hang", "timeout"),
    "refuses": (None, "unreachable"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_component_that_is_down_is_named_by_one_word(start, upstream, fault):
    answer, word = FAULTS[fault]
    upstream.answers["/email"] = upstream.answers["/cards-b"] = answer
    down = closed_port()
    changes = {"email": down, "card_data": [f"first={upstream.url}/cards-a", f"second={down}"]}
    sidecar = start(settings(upstream, **(changes if answer is None else {})))
    answer = sidecar.get(PATH)
    health = answer.json()
    assert (answer.status, health["status"]) == (200, "warn"), "not critical"
    assert statuses(health)["email"][0] in ("warn", "fail")
    assert health["checks"]["email"][0]["output"] == word
    first, second = health["checks"]["card_data"]
    assert first["status"] == "pass" and "output" not in first
    assert second["output"] == word
    assert_nothing_leaks(answer.body, upstream)


@pytest.mark.parametrize("fault", FAULTS)
def test_without_the_platform_the_service_fails(start, upstream, fault):
    answer, word = FAULTS[fault]
    upstream.answers["/platform"] = answer
    changes = {"platform": closed_port()} if answer is None else {}
    answer = start(settings(upstream, **changes)).get(PATH)
    health = answer.json()
    assert (answer.status, health["status"]) == (503, "fail")
    (check,) = health["checks"]["platform"]
    assert (check["status"], check["output"]) == ("fail", word)


def test_it_responds_within_three_seconds_when_all_hang(start, upstream):
    upstream.answers = dict.fromkeys(upstream.answers, "hang")
    sidecar = start(settings(upstream))
    began = time.monotonic()
    answer = sidecar.get(PATH)
    assert time.monotonic() - began < 3.5
    assert answer.status == 503
    outputs = {
        check.get("output")
        for name, checks in answer.json()["checks"].items()
        for check in checks
        if name != "database"
    }
    assert outputs == {"timeout"}


def test_an_outcome_is_cached_for_ten_seconds(start, upstream):
    sidecar = start(settings(upstream))
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: sidecar.get(PATH).status, range(60)))
    assert set(answers) == {200}
    assert max(upstream.hits.values()) == 1, upstream.hits
    upstream.answers["/platform"] = 500
    assert sidecar.get(PATH).status == 200, "cached"
    if LONG:
        time.sleep(10)
        assert sidecar.get(PATH).status == 503
        assert max(upstream.hits.values()) == 2, upstream.hits


def test_only_the_operator_sees_detail(start, upstream):
    sidecar = start(settings(upstream))
    answer = sidecar.get(PATH, bearer(OPERATOR_TOKEN))
    checks = answer.json()["checks"]
    assert [check["name"] for check in checks["card_data"]] == ["first", "second"]
    assert checks["payments"][0]["name"] == "bank"
    for check in (check for all_of in checks.values() for check in all_of):
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z", check["time"])
        assert check["latency_ms"] >= 0
    assert_nothing_leaks(answer.body, upstream)
    for headers in (
        {},
        bearer("x" * 43),
        bearer(OPERATOR_TOKEN[:-1]),
        {"Authorization": "Basic eDp4"},
    ):
        plain = sidecar.get(PATH, headers)
        assert plain.status == 200
        assert not any(
            {"name", "time", "latency_ms"} & set(check)
            for all_of in plain.json()["checks"].values()
            for check in all_of
        ), headers


def test_liveness_calls_no_component(start, upstream):
    upstream.answers = dict.fromkeys(upstream.answers, 503)
    sidecar = start(settings(upstream))
    answer = sidecar.get(f"{PATH}?probe=live")
    assert (answer.status, answer.json()["status"]) == (200, "pass")
    assert not upstream.hits
    assert sidecar.get("/healthz").status == 200


def test_the_media_type_follows_accept(start, upstream):
    sidecar = start(settings(upstream))
    for accept, expected in {
        "application/health+json": "application/health+json",
        "text/html, application/health+json;q=0.9": "application/health+json",
        "application/json": "application/json",
        "*/*": "application/json",
    }.items():
        assert sidecar.get(PATH, {"Accept": accept}).headers["Content-Type"] == expected, accept
