"""The log at its most verbose level and the metrics hold no secret."""

import json
import secrets

from content import BANNED_USER, RECORDS
from server import OPERATOR_TOKEN, UNSPEAKABLE, eventually
from test_age import DATE_OF_BIRTH, SESSION, User, event, send
from tokens import EMAIL, bearer, mint


def test_logs_contain_no_body_token_or_personal_data(start):
    sidecar = start(records=RECORDS)
    user = User(sidecar)
    subject = user.subject()
    marker = secrets.token_hex(12)
    UNSPEAKABLE.add(marker)
    answers = [
        send(sidecar, event(subject)),
        send(sidecar, {**event(subject), "date_of_birth": DATE_OF_BIRTH}),
        send(sidecar, {**event(subject), marker: EMAIL}),
        send(sidecar, event(subject, event_id=f"evt_{marker}", status="approved")),
        send(sidecar, event(subject), "0" * 64),
        send(sidecar, json.dumps(event(subject)).encode()[:-1]),
        sidecar.get(SESSION, bearer(mint(exp=1))),
        sidecar.get(SESSION, bearer(mint(sub=BANNED_USER))),
        sidecar.get(SESSION, bearer(mint(is_anonymous=True))),
        sidecar.ask("POST", SESSION, user.headers, json.dumps({"email": EMAIL}).encode()),
        sidecar.get("/functions/health-check", bearer(OPERATOR_TOKEN)),
        sidecar.get(f"/functions/podcast-rss-feed?handle={marker}.example"),
        sidecar.get(f"/functions/{marker}?token={marker}"),
    ]
    wanted = {answer.headers["X-Request-Id"] for answer in answers}
    eventually("every request in the log", lambda: all(i in sidecar.log() for i in wanted))
    assert user.id not in sidecar.log() + sidecar.metrics(), "whose attempt it was"
    assert sidecar.leaked() == []


def test_every_line_is_json_and_names_the_function(start):
    sidecar = start()
    sidecar.get("/functions/describeFeedGenerator")
    sidecar.get("/robots.txt")
    eventually("both in the log", lambda: sidecar.log().count('"status":200') >= 2)
    lines = [json.loads(line) for line in sidecar.log().splitlines()]
    named = {line.get("method") or line.get("operation") for line in lines if "status" in line}
    assert {"describeFeedGenerator", "seo-robots"} <= named, named
