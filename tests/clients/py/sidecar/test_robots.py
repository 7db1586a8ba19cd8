"""robots.txt as crawlers read it: Protego (longest match) and urllib (first match) must agree."""

from urllib.robotparser import RobotFileParser

import pytest
from protego import Protego

from server import BASE_URL

ALLOWED = {
    "/": True,
    "/cards/1": True,
    "/cards/search": True,
    "/robots.txt": True,
    "/sitemap.xml": True,
    "/functions/podcast-rss-feed?did=did:plc:adaaaaaaaaaaaaaaaaaaaaaa": True,
    "/functions/seo-sitemap": True,
    "/functions/seo-sitemap?page=2": True,
    "/functions/age-verification-session": False,
    "/functions/age-verifier-webhook": False,
    "/functions/health-check": False,
    "/xrpc/app.bsky.feed.getFeedSkeleton": False,
    "/auth/callback": False,
    "/settings/privacy": False,
    "/search?q=holo": False,
    "/authors/ann": True,
}
# By the end of a path or an empty query, which urllib does not know.
WHOLE = {"/auth": False, "/settings": False, "/search": False, "/author": True, "/searching": True}


def readers(text):
    """The verdict of each parser on an agent and a path."""
    protego = Protego.parse(text)
    urllib = RobotFileParser()
    urllib.parse(text.splitlines())
    return {
        "Protego": lambda agent, path: protego.can_fetch(BASE_URL + path, agent),
        "urllib": lambda agent, path: urllib.can_fetch(agent, BASE_URL + path),
    }


@pytest.mark.parametrize("path", ["/robots.txt", "/functions/seo-robots"])
def test_both_readers_agree_on_what_may_be_read(sidecar, path):
    answer = sidecar.get(path)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    for name, reads in readers(answer.body.decode()).items():
        for url, allowed in ALLOWED.items():
            for agent in ("Googlebot", "Mozilla/5.0"):
                assert reads(agent, url) == allowed, f"{name}: {url}"
        for url, allowed in WHOLE.items() if name == "Protego" else ():
            assert reads("Googlebot", url) == allowed, url
            assert not reads("GPTBot", url) or url == "/robots.txt", f"{name}: blocked, {url}"


def test_both_readers_find_the_sitemap(sidecar):
    text = sidecar.get("/robots.txt").body.decode()
    assert list(Protego.parse(text).sitemaps) == [f"{BASE_URL}/sitemap.xml"]
    urllib = RobotFileParser()
    urllib.parse(text.splitlines())
    assert urllib.site_maps() == [f"{BASE_URL}/sitemap.xml"]


def test_it_is_plain_text_for_any_reader(sidecar):
    body = sidecar.get("/robots.txt").body
    assert body.isascii() and b"\r" not in body and body.endswith(b"\n")
    assert not body.startswith(b"\xef\xbb\xbf")


def test_a_site_without_indexing_disallows_everything(start):
    text = start({"sidecar.robots": {"indexing": False}}).get("/robots.txt").body.decode()
    for name, reads in readers(text).items():
        for url in ALLOWED:
            assert not reads("Googlebot", url) or url == "/robots.txt", f"{name}: {url}"
