"""Conditional requests (RFC 9110, section 13), for every document with an ETag."""

from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime

import pytest

from content import ADA

DOCUMENTS = {
    "podcast": f"/functions/podcast-rss-feed?did={ADA}",
    "podcast by handle": "/functions/podcast-rss-feed?handle=ada.cards.example",
    "sitemap": "/functions/seo-sitemap",
    "sitemap page": "/functions/seo-sitemap?page=1",
    "sitemap.xml": "/sitemap.xml",
    "robots": "/functions/seo-robots",
    "robots.txt": "/robots.txt",
}
OTHER = '"' + "0" * 64 + '"'

# {tag} is the document's own; the value is whether it counts as unchanged.
TAGS = {
    "{tag}": True,
    "W/{tag}": True,
    "{other}, {tag}": True,
    "{other},W/{tag} , {other}": True,
    "*": True,
    "{other}": False,
    "W/{other}": False,
    "": False,
}


@pytest.fixture(params=DOCUMENTS, name="document")
def document_of(request, sidecar):
    path = DOCUMENTS[request.param]
    answer = sidecar.get(path)
    assert answer.status == 200, answer.body
    return path, answer


def assert_unchanged(answer, whole):
    assert answer.status == 304
    assert answer.body == b""
    for name in ("ETag", "Cache-Control", "Last-Modified", "Vary", "Link"):
        assert answer.headers[name] == whole.headers[name], name


@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_if_none_match_is_compared_weakly(sidecar, document, method, tags):
    path, whole = document
    given = tags.format(tag=whole.headers["ETag"], other=OTHER)
    answer = sidecar.ask(method, path, {"If-None-Match": given})
    if TAGS[tags]:
        assert_unchanged(answer, whole)
    else:
        assert answer.status == 200
        assert answer.body == (whole.body if method == "GET" else b"")


def test_several_lines_of_if_none_match_are_one_list(sidecar, document):
    path, whole = document
    lines = [("If-None-Match", OTHER), ("If-None-Match", whole.headers["ETag"])]
    assert_unchanged(sidecar.get(path, lines), whole)


def test_a_tag_is_strong_and_stays(sidecar, document):
    path, whole = document
    assert whole.headers["ETag"].startswith('"')
    again = sidecar.get(path)
    assert again.headers["ETag"] == whole.headers["ETag"]
    assert again.body == whole.body


def test_head_returns_the_headers_of_get(sidecar, document):
    path, whole = document
    head = sidecar.ask("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    assert lasting(head) == lasting(whole)
    if whole.headers["Content-Length"]:
        assert head.headers["Content-Length"] == whole.headers["Content-Length"]


def lasting(answer):
    """The headers that must not vary."""
    fleeting = {"x-request-id", "ratelimit", "date", "content-length", "transfer-encoding"}
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return {name: value for name, value in headers.items() if name not in fleeting}


def test_if_modified_since_counts_seconds(sidecar, document):
    path, whole = document
    if "podcast" not in path:
        assert "Last-Modified" not in whole.headers, "no time of a change is known"
        return
    modified = parsedate_to_datetime(whole.headers["Last-Modified"])
    for moment, unchanged in [
        (modified, True),
        (modified + timedelta(days=1), True),
        (modified - timedelta(seconds=1), False),
    ]:
        since = {"If-Modified-Since": format_datetime(moment, usegmt=True)}
        answer = sidecar.get(path, since)
        assert (answer.status == 304) == unchanged, moment


def test_an_invalid_date_is_ignored(sidecar, document):
    path, _ = document
    assert sidecar.get(path, {"If-Modified-Since": "yesterday"}).status == 200


def test_if_none_match_wins_over_if_modified_since(sidecar, document):
    path, whole = document
    late = format_datetime(parsedate_to_datetime("Fri, 01 Jan 2100 00:00:00 GMT"), usegmt=True)
    early = "Sat, 01 Jan 2000 00:00:00 GMT"
    both = {"If-None-Match": OTHER, "If-Modified-Since": late}
    assert sidecar.get(path, both).status == 200
    both = {"If-None-Match": whole.headers["ETag"], "If-Modified-Since": early}
    assert_unchanged(sidecar.get(path, both), whole)
