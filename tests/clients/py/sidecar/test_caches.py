"""The documents behind an nginx that caches. It reads them over HTTP/1.0, its default, or 1.1."""

import gzip
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import feedparser
import pytest

from content import ADA, BEA, VIEWER_USER, did, scheduled
from server import eventually
from tokens import bearer, mint

sys.path.insert(0, str(Path(__file__).parents[3] / "lib"))
from ports import free_port  # noqa: E402

FEED = "/functions/getFeedSkeleton?feed=at://did:web:cards.example/app.bsky.feed.generator/"
AGE = "/functions/age-verification-session"
DOCUMENTS = {
    "podcast": f"/functions/podcast-rss-feed?did={ADA}",
    "robots": "/robots.txt",
    "feed": f"{FEED}showcase",
    "feeds": "/functions/describeFeedGenerator",
    "did": "/.well-known/did.json",
}
VERSIONS = {"1.0": "", "1.1": 'proxy_http_version 1.1; proxy_set_header Connection "";'}


class Cache:
    """An nginx in front of a sidecar."""

    def __init__(self, folder, sidecar, version):
        self.sidecar, self.port = sidecar, free_port()
        self.streams_whole = version == "1.1"
        paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        config = folder / "nginx.conf"
        config.write_text(f"""
            daemon off; master_process off; worker_processes 1;
            pid {folder}/pid; error_log {folder}/errors; events {{}}
            http {{
              access_log off;
              {" ".join(f"{path}_temp_path {folder}/{path};" for path in paths)}
              proxy_cache_path {folder}/cache keys_zone=documents:4m;
              server {{
                listen 127.0.0.1:{self.port};
                location / {{
                  proxy_pass http://{sidecar.address};
                  {VERSIONS[version]}
                  proxy_cache documents; proxy_cache_key $request_uri; proxy_cache_revalidate on;
                  add_header X-Cached $upstream_cache_status always;
                }}
              }}
            }}""")
        self.process = subprocess.Popen(["nginx", "-e", folder / "errors", "-c", config])
        eventually("nginx to listen", self._listens)

    def _listens(self):
        assert self.process.poll() is None, "nginx ended"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def get(self, path, headers=(), method="GET"):
        return self.sidecar.ask(method, path, headers, address=f"127.0.0.1:{self.port}")

    def end(self):
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture(scope="module", params=VERSIONS, name="cache")
def cache_in_front(request, sidecar, tmp_path_factory):
    cache = Cache(tmp_path_factory.mktemp("nginx"), sidecar, request.param)
    yield cache
    cache.end()


def is_hit(answer):
    return answer.headers["X-Cached"] == "HIT"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_cache_returns_the_bytes_of_the_document(sidecar, cache, document):
    path = DOCUMENTS[document]
    own = sidecar.get(path)
    first = cache.get(path)
    again = cache.get(path)
    assert (first.status, is_hit(first), is_hit(again)) == (200, False, True)
    assert first.body == again.body == own.body
    packed = cache.get(path, {"Accept-Encoding": "gzip"})
    if packed.headers["Content-Encoding"] == "gzip":
        assert gzip.decompress(packed.body) == own.body
    else:
        assert packed.body == own.body
    plain = cache.get(path)
    assert (plain.headers["Content-Encoding"], plain.body) == (None, own.body)
    head = cache.get(path, method="HEAD")
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize("document", ["podcast", "robots"])
def test_a_cache_compares_tags(cache, document):
    path = DOCUMENTS[document]
    tag = cache.get(path).headers["ETag"]
    for given, status in [(tag, 304), (f"W/{tag}", 304), ('"other"', 200)]:
        assert cache.get(path, {"If-None-Match": given}).status == status, given


def test_a_sitemap_is_cached_only_if_its_end_is_known(sidecar, cache):
    own = sidecar.get("/sitemap.xml").body
    for _ in range(2):
        answer = cache.get("/sitemap.xml")
        assert answer.body == own
    # over HTTP/1.0 a file that is cut off ends as a whole one does
    assert is_hit(answer) == cache.streams_whole


REFUSALS = {
    "/functions/podcast-rss-feed": 400,
    f"/functions/podcast-rss-feed?did={did('nobody')}": 404,
    f"/functions/podcast-rss-feed?did={BEA}": 404,
    f"{FEED}none": 400,
    "/sitemap-9.xml": 404,
    "/nothing": 404,
}


@pytest.mark.parametrize("path", REFUSALS)
def test_a_refusal_is_not_cached(cache, path):
    for _ in range(3):
        answer = cache.get(path)
        assert (answer.status, is_hit(answer)) == (REFUSALS[path], False)


def test_nothing_of_a_user_is_cached(cache):
    user = bearer(mint(sub=VIEWER_USER))
    for path in (f"{FEED}whoto-follow", AGE):
        for headers, status in [(user, 200), ((), 401), (user, 200), ((), 401)]:
            answer = cache.get(path, headers)
            assert (answer.status, is_hit(answer)) == (status, False), path


def test_a_cache_shows_a_scheduled_episode_in_time(sidecar, cache):
    version = "new" if cache.streams_whole else "old"
    creator = did(f"cache{version}{sidecar.database.kind}")
    due, records = scheduled(creator)
    sidecar.take_in(records)
    path = f"/functions/podcast-rss-feed?did={creator}"

    def episodes():
        return len(feedparser.parse(cache.get(path).body).entries)

    assert episodes() == 1
    while datetime.now(UTC) < due + timedelta(seconds=1.5):
        time.sleep(0.1)
    assert episodes() == 2
