"""Records as the product's backend writes them, for `portcullis store import`."""

import uuid
from datetime import UTC, datetime, timedelta

NOW = datetime.now(UTC).replace(microsecond=0)


def instant(moment):
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def did(name):
    """A did:plc whose 24 characters start with a name."""
    return f"did:plc:{name:a<24}"


ADA, BEA, CAI, DEE, EVE = (did(name) for name in ("ada", "bea", "cai", "dee", "eve"))
BANNED_USER = str(uuid.uuid4())
VIEWER_USER = str(uuid.uuid4())

# Legal in JSON and in a database, but not in XML 1.0, however it is escaped.
CONTROLS = "\x01\x08\x0b\x1f\ufffe"
TITLES = {
    "markup": "Ampersand & <b>\"tags\"</b> & 'quotes'",
    "cdata": "the end ]]> of a section, and <![CDATA[ another ]]>",
    "controls": f"a{CONTROLS}b",
    "rtl": "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u202babc\u202c",
    "emoji": "\U0001f469\u200d\U0001f680 cards \U0001f0cf \u00e9\u0301",
    "cyrillic": "\u041a\u0430\u0440\u0442\u044b",
}
# Podcast apps accept 4,000 bytes. The last letter has two bytes, across that boundary.
LINK = "https://cards.example/a?b=1&amp;c=2"
LONG = "x" * 3999 + "\u00e9" + "y" * 500


def account(name, status="active", user_id=None):
    return {
        "type": "account",
        "user_id": user_id or str(uuid.uuid4()),
        "did": did(name),
        "handle": f"{name}.cards.example",
        "status": status,
        "created_at": instant(NOW - timedelta(days=300)),
    }


def podcast(owner, **changes):
    return {
        "type": "podcast",
        "did": owner,
        "guid": str(uuid.uuid5(uuid.NAMESPACE_URL, owner)),
        "title": "Cards on the table",
        "description": "A weekly talk about cards.",
        "link": "https://cards.example/podcast",
        "language": "en",
        "author": "The hosts",
        "category": "Leisure",
        "subcategory": "Hobbies",
        "explicit": False,
        "image_url": "https://media.cards.example/cover.jpg",
        "updated_at": instant(NOW - timedelta(days=2)),
        **changes,
    }


def episode(owner, name, published, **changes):
    return {
        "type": "episode",
        "id": f"{owner}-{name}",
        "did": owner,
        "guid": f"{owner}-{name}",
        "title": f"Episode {name}",
        "description_html": f"<p>About {name}.</p>",
        "enclosure_url": f"https://media.cards.example/{owner[8:11]}/{name}.mp3",
        "enclosure_length": 1234567,
        "enclosure_type": "audio/mpeg",
        "duration_s": 1800,
        "published_at": instant(published),
        "updated_at": instant(published),
        **changes,
    }


ODD_EPISODES = [
    episode(ADA, name, NOW - timedelta(days=10 + at), title=title.replace(CONTROLS, ""))
    for at, (name, title) in enumerate(TITLES.items())
]

FULL_EPISODE = episode(
    ADA,
    "full",
    NOW - timedelta(days=3),
    link="https://cards.example/podcast/full",
    season=2,
    number=7,
    kind="full",
    explicit=True,
    image_url="https://media.cards.example/full.jpg",
    description_html=f'<p>With <a href="{LINK}">a link</a></p><p>{LONG}</p>',
    transcripts=[
        {"url": "https://media.cards.example/full.vtt", "kind": "text/vtt", "language": "en"}
    ],
    persons=[{"name": "A guest", "role": "guest"}],
    chapters_url="https://media.cards.example/full.json",
    social_uri=f"at://{ADA}/app.bsky.feed.post/3kfull",
)

UNLISTED_EPISODES = [
    episode(ADA, "hidden", NOW - timedelta(days=1), visibility="hidden"),
    episode(ADA, "members", NOW - timedelta(days=1), visibility="members"),
    episode(ADA, "draft", NOW - timedelta(days=1), visibility="draft"),
    episode(ADA, "scheduled", NOW + timedelta(days=30)),
]


def scheduled(owner):
    """A podcast with an old episode and one that is due in some seconds; when that is."""
    due = datetime.now(UTC) + timedelta(seconds=4)
    return due, [
        podcast(owner),
        episode(owner, "old", due - timedelta(days=1)),
        episode(owner, "new", due, updated_at=due.isoformat()),
    ]


def feed_item(feed, name, minutes, **changes):
    uri = f"at://{ADA}/app.bsky.feed.post/{name}"
    return {
        "type": "feed_item",
        "feed": feed,
        "post_uri": uri,
        "author_did": ADA,
        "sort_at": instant(NOW - timedelta(minutes=minutes)),
        "labels": [],
        **changes,
    }


def page(path, **changes):
    return {
        "type": "page",
        "loc": f"https://cards.example{path}",
        "lastmod_at": instant(NOW - timedelta(days=5)),
        **changes,
    }


FEEDS = (
    "trade-listings",
    "collection-posts",
    "fresh-pulls",
    "showcase",
    "journals",
    "card-reviews",
)

PAGES = [
    *(page(f"/cards/{number}") for number in range(1, 41)),
    page("/cards/odd?a=1&b='2'", images=["https://media.cards.example/u&1.jpg"]),
    page("/cards/two", images=[f"https://media.cards.example/{n}.jpg" for n in (1, 2)]),
]
HIDDEN_PAGE = page("/cards/not-for-search", indexable=False)

RECORDS = [
    account("ada", user_id=VIEWER_USER),
    account("bea"),
    account("cai"),
    account("dee", "deactivated"),
    account("eve", "banned", BANNED_USER),
    *(
        feed_item(
            feed,
            f"{feed[:4]}{at:04}",
            at,
            set_code="neo" if at % 2 else None,
            labels=["holo"] if at % 3 else ["graded"],
        )
        for feed in FEEDS
        for at in range(60)
    ),
    {
        "type": "suggestion",
        "viewer_did": "*",
        "built_at": instant(NOW - timedelta(hours=1)),
        "items": [
            {
                "actor_did": BEA,
                "post_uri": f"at://{BEA}/app.bsky.feed.post/3kbea",
                "reason": "popular",
            }
        ],
    },
    podcast(
        ADA,
        title=TITLES["markup"],
        funding=[{"url": "https://cards.example/give", "text": "Give"}],
        persons=[{"name": "Ada", "role": "host"}],
        txt=[{"purpose": "verify", "value": "abc"}],
        owner_name="Ada",
        owner_email="podcast@cards.example",
        copyright="2026 Ada",
    ),
    FULL_EPISODE,
    *ODD_EPISODES,
    *UNLISTED_EPISODES,
    podcast(CAI, status="taken_down"),
    podcast(DEE),
    episode(DEE, "one", NOW - timedelta(days=1)),
    *PAGES,
    HIDDEN_PAGE,
]


def quoted(text):
    """As an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


# A backend that writes to the tables directly can store what an import would refuse.
STATEMENTS = [
    "UPDATE podcast SET description = "
    + quoted(f"{CONTROLS}{TITLES['cdata']} {TITLES['rtl']} {TITLES['emoji']}")
    + f" WHERE did = '{ADA}'",
    f"UPDATE episode SET title = {quoted(TITLES['controls'])} WHERE id = '{ADA}-controls'",
    "UPDATE sitemap_url SET loc = "
    + quoted("https://cards.example/cards/\u00fcber?a=1&b='2'")
    + f" WHERE loc = {quoted(PAGES[-2]['loc'])}",
]
