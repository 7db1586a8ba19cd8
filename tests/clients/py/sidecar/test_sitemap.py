"""The sitemap by its schema (libxml2), and as ultimate-sitemap-parser reads it."""

import http.client
import time
from pathlib import Path
from xml.parsers import expat

import pytest
from lxml import etree
from usp.objects.sitemap import IndexXMLSitemap, PagesXMLSitemap
from usp.tree import sitemap_from_str

from content import HIDDEN_PAGE, PAGES
from server import BASE_URL, LONG

SCHEMAS = Path(__file__).parent / "schema"
NAMESPACE = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
PAGE = 45_000
# A page takes a debug build some seconds, and a million rows take PostgreSQL half a minute.
EVERY = 1 if LONG else 7
MANY = {"sqlite": 1_000_000, "postgres": 1_000_000 if LONG else 100_000}


def assert_valid(body, schema):
    etree.XMLSchema(etree.parse(SCHEMAS / schema)).assertValid(etree.fromstring(body))


def locations(body):
    return [loc.text for loc in etree.fromstring(body).iterfind(f"*/{NAMESPACE}loc")]


@pytest.mark.parametrize("path", ["/sitemap.xml", "/functions/seo-sitemap"])
def test_a_small_site_has_one_valid_urlset_that_starts_at_home(sidecar, path):
    answer = sidecar.get(path)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/xml; charset=utf-8"
    assert_valid(answer.body, "all.xsd")
    found = locations(answer.body)
    assert found[0] == f"{BASE_URL}/"
    assert len(found) == 1 + len(PAGES)
    assert found[1] == PAGES[0]["loc"]
    assert HIDDEN_PAGE["loc"] not in found


def test_a_reader_reads_every_page_with_its_time_and_images(sidecar):
    tree = sitemap_from_str(sidecar.get("/sitemap.xml").body.decode())
    assert isinstance(tree, PagesXMLSitemap), tree
    pages = {page.url: page for page in tree.all_pages()}
    assert len(pages) == 1 + len(PAGES)
    assert pages[PAGES[0]["loc"]].last_modified.isoformat() == PAGES[0]["lastmod_at"].replace(
        "Z", "+00:00"
    )
    assert [image.loc for image in pages[PAGES[-1]["loc"]].images] == PAGES[-1]["images"]
    odd = pages["https://cards.example/cards/%C3%BCber?a=1&b='2'"]
    assert [image.loc for image in odd.images] == ["https://media.cards.example/u&1.jpg"]


def test_an_invalid_page_is_refused(sidecar):
    for query, error in {
        "?page=2": (404, "NotFound"),
        "?page=99999999": (404, "NotFound"),
        "?page=0": (400, "InvalidRequest"),
        "?page=-1": (400, "InvalidRequest"),
        "?page=x": (400, "InvalidRequest"),
        "?page=99999999999999999999": (400, "InvalidRequest"),
        "?page=1&page=1": (400, "InvalidRequest"),
    }.items():
        assert sidecar.get(f"/functions/seo-sitemap{query}").error == error, query


ROWS = {
    "sqlite": """(WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n
        WHERE id < {count}) SELECT id FROM n)""",
    "postgres": "generate_series(1, {count}::bigint) AS n (id)",
}


def fill(database, count, step=1):
    """Pages with the ids 1, 1 + step, …; id n has the URL …/c/n."""
    rows = ROWS[database.kind].format(count=count)
    database.execute(
        "INSERT INTO sitemap_url (id, loc, lastmod_us) "
        f"SELECT at, '{BASE_URL}/c/' || at, 1790000000000000 + at * 1000000 "
        f"FROM (SELECT (id - 1) * {step} + 1 AS at FROM {rows}) AS ids"
    )


def first_byte(sidecar, path):
    """Seconds until the first byte of the body."""
    connection = http.client.HTTPConnection(sidecar.address, timeout=60)
    began = time.monotonic()
    connection.request("GET", path)
    response = connection.getresponse()
    response.read(1)
    took = time.monotonic() - began
    response.read()
    connection.close()
    return took


def test_a_million_pages_are_served_in_bounded_memory(start, engine, tmp_path, capsys):
    large = start(database=engine(tmp_path))
    many = MANY[large.database.kind]
    fill(large.database, many)
    before = large.peak_memory()
    index = large.get("/sitemap.xml").body
    assert_valid(index, "siteindex.xsd")
    shards = locations(index)
    count = -(-many // PAGE)
    # with home, page 1 has one URL more than a file: it is split in two halves
    numbers = ["1", "1.2", *range(2, count + 1)]
    sizes = [*[PAGE] * (count - 2), many - PAGE * (count - 1)]
    assert shards == [f"{BASE_URL}/sitemap.xml?page={at}" for at in numbers]
    tree = sitemap_from_str(index.decode())
    assert isinstance(tree, IndexXMLSitemap), tree

    last = len(numbers) - 1
    chosen = sorted({1, *range(0, last, EVERY), last})
    seen, largest = [], 0
    for at in chosen:
        answer = large.get(shards[at].removeprefix(BASE_URL))
        assert answer.headers["Transfer-Encoding"] == "chunked", "it is streamed"
        largest = max(largest, len(answer.body))
        assert len(answer.body) <= 45_000_000
        seen.append(count_urls(answer.body))
        if at in (0, last):
            assert_valid(answer.body, "all.xsd")
    assert sum(seen[:2]) == PAGE + 1 and min(seen[:2]) > PAGE // 3, "each page once, and home"
    assert seen[2:] == [sizes[at - 2] for at in chosen[2:]]
    grown = large.peak_memory() - before
    assert grown < 48 << 20, f"{grown} bytes more than at start"

    took = [first_byte(large, path) for path in ("/sitemap.xml", "/functions/seo-sitemap?page=22")]
    with capsys.disabled():
        print(
            f"\n{large.database.kind}: first byte of the index after {took[0] * 1e3:.1f} ms, of a "
            f"page after {took[1] * 1e3:.1f} ms; largest page {largest} bytes; memory grew by "
            f"{grown >> 20} MiB"
        )


def count_urls(body):
    """The url elements of a well-formed document."""
    urls = 0

    def start(name, _):
        nonlocal urls
        urls += name == "url"

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.Parse(body, True)
    return urls


def test_a_changed_page_changes_only_its_shard(start, engine, tmp_path):
    sidecar = start(database=engine(tmp_path))
    fill(sidecar.database, 3, step=PAGE)

    def tags():
        paths = (f"/functions/seo-sitemap?page={at}" for at in (1, 2))
        return [sidecar.ask("HEAD", path).headers["ETag"] for path in paths]

    before = tags()
    assert len(locations(sidecar.get("/sitemap.xml").body)) == 3
    sidecar.database.execute("UPDATE sitemap_url SET lastmod_us = lastmod_us + 1 WHERE id = 45001")
    sidecar.database.execute("UPDATE sitemap_url SET indexable = 0 WHERE id > 90000")
    assert sidecar.get("/functions/seo-sitemap?page=3").error == (404, "NotFound")
    after = tags()
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)
    assert len(locations(sidecar.get("/sitemap.xml").body)) == 2
