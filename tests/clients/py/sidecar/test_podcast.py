"""The podcast feed as feed readers read it: feedparser, and gPodder's podcastparser."""

import io
import time
from datetime import UTC, datetime, timedelta

import feedparser
import podcastparser
import pytest
from lxml import etree

from content import (
    ADA,
    BEA,
    CAI,
    CONTROLS,
    DEE,
    FULL_EPISODE,
    LINK,
    ODD_EPISODES,
    TITLES,
    did,
    scheduled,
)
from server import BASE_URL

PATH = f"/functions/podcast-rss-feed?did={ADA}"
ITUNES = "{http://www.itunes.com/dtds/podcast-1.0.dtd}"
PODCAST = "{https://podcastindex.org/namespace/1.0}"
ATOM = "{http://www.w3.org/2005/Atom}"
LISTED = [FULL_EPISODE, *ODD_EPISODES]


def legal(text):
    """As XML can represent it."""
    return "".join(letter for letter in text if letter not in CONTROLS)


@pytest.fixture(name="rss")
def rss_bytes(sidecar):
    answer = sidecar.get(PATH)
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "application/rss+xml; charset=utf-8"
    return answer.body


def test_feedparser_reads_every_listed_episode(rss):
    feed = feedparser.parse(
        rss, response_headers={"content-type": "application/rss+xml; charset=utf-8"}
    )
    assert feed.bozo == 0, feed.get("bozo_exception")
    assert feed.version == "rss20"
    assert [entry.id for entry in feed.entries] == [episode["guid"] for episode in LISTED]
    for entry, record in zip(feed.entries, LISTED, strict=True):
        assert not entry.guidislink, "a guid is no address"
        enclosure = entry.enclosures[0]
        assert enclosure.href == record["enclosure_url"]
        assert (enclosure.length, enclosure.type) == ("1234567", "audio/mpeg")
        published = datetime(*entry.published_parsed[:6], tzinfo=UTC)
        assert published == datetime.fromisoformat(record["published_at"])
        assert entry.itunes_duration == "1800"


def test_podcastparser_reads_every_listed_episode_with_its_fields(rss):
    feed = podcastparser.parse(BASE_URL + PATH, io.BytesIO(rss))
    assert feed["link"] == "https://cards.example/podcast"
    assert feed["language"] == "en"
    assert feed["cover_url"] == "https://media.cards.example/cover.jpg"
    assert feed["type"] == "episodic"
    assert feed["itunes_owner"] == {"name": "Ada", "email": "podcast@cards.example"}
    assert not feed["explicit"]
    assert [item["guid"] for item in feed["episodes"]] == [item["guid"] for item in LISTED]
    full = feed["episodes"][0]
    assert full["total_time"] == 1800
    assert (full["season"], full["number"]) == (2, 7)
    assert full["explicit"]
    assert full["link"] == "https://cards.example/podcast/full"
    assert full["episode_art_url"] == "https://media.cards.example/full.jpg"
    assert full["enclosures"] == [
        {"url": FULL_EPISODE["enclosure_url"], "file_size": 1234567, "mime_type": "audio/mpeg"}
    ]


@pytest.mark.parametrize("name", TITLES)
def test_odd_text_survives(rss, name):
    channel = etree.fromstring(rss).find("channel")
    titles = {item.findtext("guid"): item.findtext("title") for item in channel.iter("item")}
    assert titles[f"{ADA}-{name}"] == legal(TITLES[name])


def test_the_description_survives_without_illegal_xml_characters(rss):
    said = etree.fromstring(rss).findtext("channel/description")
    assert said == f"{TITLES['cdata']} {TITLES['rtl']} {TITLES['emoji']}"


def test_a_description_is_cut_at_4000_bytes_between_two_letters(rss):
    item = etree.fromstring(rss).find("channel/item")
    said = item.findtext("description").encode()
    assert 3900 < len(said) <= 4000
    said.decode()
    assert said.startswith(b"With a link")
    whole = item.findtext("{http://purl.org/rss/1.0/modules/content/}encoded")
    assert "\u00e9" + "y" * 500 in whole, "the page's text is whole"
    assert f'href="{LINK}"' in whole


def test_everything_that_psp_1_requires_is_present(rss):
    channel = etree.fromstring(rss).find("channel")
    link = channel.find(f"{ATOM}link[@rel='self']")
    assert link.get("href") == BASE_URL + PATH
    assert link.get("type") == "application/rss+xml"
    for tag in ("title", "description", "link", "language", f"{ITUNES}explicit", f"{PODCAST}guid"):
        assert channel.findtext(tag), tag
    assert channel.findtext(f"{PODCAST}locked") == "yes"
    category = channel.find(f"{ITUNES}category")
    assert category.get("text") == "Leisure"
    assert category.find(f"{ITUNES}category").get("text") == "Hobbies"
    assert channel.find(f"{ITUNES}image").get("href").startswith("https://")
    for item in channel.iter("item"):
        assert item.findtext("title") and item.findtext("guid")
        assert set(item.find("enclosure").attrib) == {"url", "length", "type"}


def test_an_episode_links_its_post_transcript_and_people(rss):
    channel = etree.fromstring(rss).find("channel")
    found = {
        f"{name} {attribute}": channel.find(f"item/{PODCAST}{name}").get(attribute)
        for name, attribute in [
            ("socialInteract", "protocol"),
            ("socialInteract", "uri"),
            ("transcript", "url"),
            ("transcript", "type"),
            ("chapters", "url"),
        ]
    }
    assert found == {
        "socialInteract protocol": "atproto",
        "socialInteract uri": FULL_EPISODE["social_uri"],
        "transcript url": "https://media.cards.example/full.vtt",
        "transcript type": "text/vtt",
        "chapters url": "https://media.cards.example/full.json",
    }
    assert channel.findtext(f"item/{PODCAST}person") == "A guest"
    assert channel.find(f"{PODCAST}funding").get("url") == "https://cards.example/give"


def test_a_handle_gives_the_same_bytes(sidecar, rss):
    for handle in ("ada.cards.example", "@ADA.cards.example", "%40ada.cards.example"):
        assert sidecar.get(f"/functions/podcast-rss-feed?handle={handle}").body == rss
    both = sidecar.get(f"{PATH}&handle=ada.cards.example")
    assert both.body == rss


REFUSED = {
    "": (400, "InvalidRequest"),
    "?did=&handle=": (400, "InvalidRequest"),
    f"?did={ADA}&handle=bea.cards.example": (400, "InvalidRequest"),
    f"?did={ADA}&did={ADA}": (400, "InvalidRequest"),
    "?did=nonsense": (404, "NotFound"),
    f"?did={did('nobody')}": (404, "NotFound"),
    "?handle=nobody.cards.example": (404, "NotFound"),
    f"?did={BEA}": (404, "NotFound"),
    f"?did={CAI}": (410, "Gone"),
    "?handle=cai.cards.example": (410, "Gone"),
    f"?did={DEE}": (410, "Gone"),
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_request_without_a_feed_is_refused(sidecar, query):
    answer = sidecar.get(f"/functions/podcast-rss-feed{query}")
    assert answer.error == REFUSED[query]
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_scheduled_episode_appears_in_time(sidecar):
    creator = did(f"sched{sidecar.database.kind}")
    due, records = scheduled(creator)
    sidecar.take_in(records)
    path = f"/functions/podcast-rss-feed?did={creator}"

    def episodes():
        answer = sidecar.get(path)
        return answer, len(feedparser.parse(answer.body).entries)

    before, count = episodes()
    assert count == 1
    assert before.max_age() <= 4, "a copy may not outlive the episode's start"
    while datetime.now(UTC) < due + timedelta(milliseconds=100):
        assert before.max_age() >= 1
        time.sleep(0.1)
    after, count = episodes()
    assert count == 2
    assert after.max_age() == 300
    assert after.headers["ETag"] != before.headers["ETag"]
