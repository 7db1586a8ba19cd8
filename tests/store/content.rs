//! Suggestions, accounts, podcasts and the sitemap.

use crate::world::{NOW, World};
use portcullis_store::{
    AccountStatus, FeedQuery, Funding, Person, SitemapFile, SitemapNumber, SitemapStamp,
    SitemapStep, SitemapUrl, Store, SuggestionQuery, Transcript, Txt,
};

const VIEWER: &str = "did:plc:viewer";

/// A snapshot of these actors, ranked as they come.
async fn snapshot(world: &World, viewer: &str, id: i64, built_us: i64, actors: &[&str]) {
    let row = |(at, actor): (usize, &&str)| {
        let place = format!("'{viewer}', {id}, {}", at + 1);
        format!(
            "INSERT INTO suggestion VALUES \
                 ({place}, 'did:plc:{actor}', 'at://{actor}', 'similar', {built_us});"
        )
    };
    world
        .raw(&actors.iter().enumerate().map(row).collect::<String>())
        .await
        .unwrap();
}

fn first() -> SuggestionQuery<'static> {
    SuggestionQuery {
        viewer_did: VIEWER,
        blocked: &[],
        after: None,
        newer_than_us: 0,
        limit: 10,
    }
}

/// The snapshot, and the actors without `did:plc:`.
async fn suggested(store: &Store, query: SuggestionQuery<'_>) -> Option<(i64, Vec<String>)> {
    let found = store.feeds().suggestions(&query).await.unwrap()?;
    let name = |did: &str| did.trim_start_matches("did:plc:").to_owned();
    Some((
        found.snapshot_id,
        found
            .items
            .iter()
            .map(|item| name(&item.actor_did))
            .collect(),
    ))
}

fn some(snapshot: i64, actors: &[&str]) -> Option<(i64, Vec<String>)> {
    Some((snapshot, actors.iter().map(ToString::to_string).collect()))
}

pub(crate) async fn the_newest_own_or_common_snapshot_serves(world: World) {
    let store = world.open().await;
    assert_eq!(suggested(&store, first()).await, None);
    snapshot(&world, "did:plc:other", 1, 1, &["x"]).await;
    assert_eq!(suggested(&store, first()).await, None);
    snapshot(&world, "*", 2, 2, &["a", "viewer", "b", "c"]).await;
    assert_eq!(
        suggested(&store, first()).await,
        some(2, &["a", "b", "c"]),
        "never themselves"
    );
    snapshot(&world, VIEWER, 3, 3, &["d", "e"]).await;
    snapshot(&world, VIEWER, 4, 4, &["f", "e", "d"]).await;
    assert_eq!(suggested(&store, first()).await, some(4, &["f", "e", "d"]));
    let found = store
        .feeds()
        .suggestions(&first())
        .await
        .unwrap()
        .unwrap()
        .items
        .remove(0);
    assert_eq!((found.rank, found.reason.as_str()), (1, "similar"));
    assert_eq!(found.post_uri, "at://f");
    for (newer_than_us, expected) in [(3, Some(4)), (4, None)] {
        let found = suggested(
            &store,
            SuggestionQuery {
                newer_than_us,
                ..first()
            },
        )
        .await;
        assert_eq!(
            found.map(|(id, _)| id),
            expected,
            "newer than {newer_than_us}"
        );
    }
    snapshot(&world, "*", 5, 9, &["g"]).await;
    let found = suggested(
        &store,
        SuggestionQuery {
            newer_than_us: 4,
            ..first()
        },
    )
    .await;
    assert_eq!(
        found,
        some(5, &["g"]),
        "an own one that is too old is as good as none"
    );
}

pub(crate) async fn suggestion_pages_stay_in_their_snapshot(world: World) {
    let store = world.open().await;
    snapshot(&world, VIEWER, 1, 1, &["a", "b", "c", "d"]).await;
    snapshot(&world, "*", 2, 2, &["e", "f"]).await;
    snapshot(&world, VIEWER, 3, 3, &["d", "c"]).await;
    snapshot(&world, "did:plc:other", 4, 4, &["x", "y"]).await;
    for (after, limit, expected) in [
        ((1, 0), 2, some(1, &["a", "b"])),
        ((1, 2), 2, some(1, &["c", "d"])),
        ((1, 4), 2, some(1, &[])),
        ((2, 1), 9, some(2, &["f"])),
        ((4, 1), 9, None),
        ((5, 1), 9, None),
    ] {
        let newer_than_us = 2;
        let query = SuggestionQuery {
            after: Some(after),
            limit,
            newer_than_us,
            ..first()
        };
        assert_eq!(suggested(&store, query).await, expected, "{after:?}");
    }
}

pub(crate) async fn followed_and_closed_accounts_are_not_suggested(world: World) {
    let store = world.open().await;
    snapshot(&world, VIEWER, 1, 1, &["a", "b", "c", "d", "e", "f"]).await;
    world
        .raw(
            "INSERT INTO follow VALUES ('did:plc:viewer', 'did:plc:b'), ('did:plc:a', 'did:plc:c');
             INSERT INTO moderation_label VALUES ('at://d', 'spam'), ('at://e', 'nudity');
             INSERT INTO account (user_id, did, status, created_us) VALUES \
               ('1', 'did:plc:a', 'active', 0), ('2', 'did:plc:f', 'taken_down', 0)",
        )
        .await
        .unwrap();
    let blocked = ["spam".to_owned()];
    let query = SuggestionQuery {
        blocked: &blocked,
        ..first()
    };
    assert_eq!(suggested(&store, query).await, some(1, &["a", "c", "e"]));
    let query = SuggestionQuery {
        after: Some((1, 1)),
        limit: 1,
        ..query
    };
    assert_eq!(
        suggested(&store, query).await,
        some(1, &["c"]),
        "a page is filled up"
    );
}

pub(crate) async fn an_account_has_three_names(world: World) {
    let store = world.open().await;
    world
        .raw(
            "INSERT INTO account VALUES ('u1', 'did:plc:a', 'ash.cards.example', 'active', 1),
             ('u2', NULL, NULL, 'banned', 2), ('u3', 'did:plc:c', NULL, 'deactivated', 3)",
        )
        .await
        .unwrap();
    let ash = store.accounts().by_user("u1").await.unwrap().unwrap();
    assert_eq!(
        (ash.user_id.as_str(), ash.status),
        ("u1", AccountStatus::Active)
    );
    assert_eq!(
        store.accounts().by_did("did:plc:a").await.unwrap(),
        Some(ash.clone())
    );
    assert_eq!(
        store
            .accounts()
            .by_handle("ash.cards.example")
            .await
            .unwrap(),
        Some(ash)
    );
    let second = store.accounts().by_user("u2").await.unwrap().unwrap();
    assert_eq!(
        (second.did, second.handle, second.status),
        (None, None, AccountStatus::Banned)
    );
    let third = store.accounts().by_did("did:plc:c").await.unwrap().unwrap();
    assert_eq!(third.status, AccountStatus::Deactivated);
    assert_eq!(store.accounts().by_user("did:plc:a").await.unwrap(), None);
    assert_eq!(store.accounts().by_did("u1").await.unwrap(), None);
    assert_eq!(
        store
            .accounts()
            .by_handle("Ash.cards.example")
            .await
            .unwrap(),
        None
    );
}

/// A podcast with what a row needs.
pub(crate) const PODCAST: &str = "INSERT INTO podcast \
    (did, guid, title, description, link, language, category, explicit, image_url, updated_us) \
    VALUES ('did:plc:a', 'g', 'T', 'D', 'https://a.example', 'en', 'Leisure', 0, \
    'https://i.example', 5)";

pub(crate) async fn a_podcast_is_read_as_written(world: World) {
    let store = world.open().await;
    assert_eq!(store.podcasts().get("did:plc:a").await.unwrap(), None);
    world.raw(PODCAST).await.unwrap();
    let plain = store.podcasts().get("did:plc:a").await.unwrap().unwrap();
    assert_eq!((plain.guid.as_str(), plain.author.as_deref()), ("g", None));
    assert_eq!(
        (plain.kind.as_str(), plain.medium.as_str()),
        ("episodic", "podcast")
    );
    assert_eq!(
        (plain.explicit, plain.locked, plain.complete, plain.block),
        (false, true, false, false)
    );
    assert!(plain.funding.is_empty() && plain.persons.is_empty() && plain.txt.is_empty());
    assert_eq!((plain.taken_down, plain.updated_us), (false, 5));
    let lists = r#"UPDATE podcast SET explicit = 1, locked = 0, complete = 1, block = 1,
        funding = '[{"url":"https://f.example","text":"Ü"}]',
        persons = '[{"name":"Ash","role":"host"},{"name":"Bo"}]',
        txt = '[{"purpose":"verify","value":"v"},{"value":"w"}]', status = 'taken_down'"#;
    world.raw(lists).await.unwrap();
    let full = store.podcasts().get("did:plc:a").await.unwrap().unwrap();
    assert_eq!(
        (full.explicit, full.locked, full.complete, full.block),
        (true, false, true, true)
    );
    let funding = Funding {
        url: "https://f.example".to_owned(),
        text: "Ü".to_owned(),
    };
    assert_eq!(full.funding, [funding]);
    let host = Person {
        name: "Ash".to_owned(),
        role: Some("host".to_owned()),
        ..Person::default()
    };
    assert_eq!(
        full.persons,
        [
            host,
            Person {
                name: "Bo".to_owned(),
                ..Person::default()
            }
        ]
    );
    let verify = Txt {
        purpose: Some("verify".to_owned()),
        value: "v".to_owned(),
    };
    assert_eq!(
        full.txt,
        [
            verify,
            Txt {
                purpose: None,
                value: "w".to_owned()
            }
        ]
    );
    assert!(full.taken_down);
}

pub(crate) async fn malformed_items_of_lists_are_left_out(world: World) {
    let store = world.open().await;
    world.raw(PODCAST).await.unwrap();
    let good = r#"{"url":"https://f.example","text":"F"}"#;
    for (wrong, left) in [
        ("nonsense".to_owned(), 0),
        ("{}".to_owned(), 0),
        ("[{}]".to_owned(), 0),
        (format!("[1,{good}]"), 1),
    ] {
        let written = world
            .raw(&format!("UPDATE podcast SET funding = '{wrong}'"))
            .await;
        if !world.is_sqlite() && !wrong.starts_with('[') {
            assert!(written.is_err(), "PostgreSQL refuses {wrong}");
            continue;
        }
        written.unwrap();
        let podcast = store.podcasts().get("did:plc:a").await.unwrap().unwrap();
        assert_eq!(
            (podcast.funding.len(), podcast.malformed),
            (left, vec!["funding"]),
            "{wrong}"
        );
    }
}

/// An episode with what a row needs.
pub(crate) fn episode(id: &str, published_us: i64, visibility: &str) -> String {
    format!(
        "INSERT INTO episode (id, did, guid, title, description_html, enclosure_url, \
         enclosure_length, enclosure_type, published_us, visibility, updated_us) VALUES \
         ('{id}', 'did:plc:a', 'g{id}', 'T', '<p>', 'https://e.example/{id}', 7, 'audio/mpeg', \
         {published_us}, '{visibility}', 1);"
    )
}

pub(crate) async fn published_episodes_are_listed_newest_first(world: World) {
    let store = world.open().await;
    world.raw(PODCAST).await.unwrap();
    let mut rows = String::new();
    for (id, published_us, visibility) in [
        ("1", NOW - 9, "public"),
        ("2", NOW - 3, "public"),
        ("3", NOW - 3, "public"),
        ("4", NOW, "public"),
        ("5", NOW + 1, "public"),
        ("6", NOW + 5, "public"),
        ("7", NOW - 1, "hidden"),
        ("8", NOW - 1, "members"),
        ("9", NOW + 1, "draft"),
    ] {
        rows += &episode(id, published_us, visibility);
    }
    world.raw(&rows).await.unwrap();
    let ids = async |did, now_us| {
        let episodes = store.podcasts().episodes(did, now_us, 1).await.unwrap();
        episodes
            .into_iter()
            .map(|episode| episode.id)
            .collect::<String>()
    };
    assert_eq!(ids("did:plc:a", NOW).await, "4321");
    assert_eq!(ids("did:plc:a", NOW - 1).await, "321");
    assert_eq!(ids("did:plc:a", NOW + 9).await, "654321");
    assert_eq!(ids("did:plc:b", NOW).await, "");
    for (now_us, next) in [
        (NOW - 1, Some(NOW)),
        (NOW, Some(NOW + 1)),
        (NOW + 1, Some(NOW + 5)),
        (NOW + 5, None),
    ] {
        let found = store
            .podcasts()
            .next_publication("did:plc:a", now_us)
            .await
            .unwrap();
        assert_eq!(found, next, "after {now_us}");
    }
    assert_eq!(
        store
            .podcasts()
            .next_publication("did:plc:b", NOW)
            .await
            .unwrap(),
        None
    );
}

pub(crate) async fn pages_of_episodes_end_by_weight(world: World) {
    let store = world.open().await;
    let mut rows = format!("{PODCAST};");
    for number in 0..130 {
        rows += &episode(&format!("e{number:03}"), NOW - number, "public");
    }
    world.raw(&rows).await.unwrap();
    let counts = async || {
        let published = store.podcasts().published("did:plc:a", NOW).await.unwrap();
        let mut counts = Vec::new();
        for page in 1..=published.pages {
            let page = store.podcasts().episodes("did:plc:a", NOW, page).await;
            counts.push(page.unwrap().len());
        }
        counts
    };
    assert_eq!(counts().await, [130], "small ones fit");
    let text = |bytes: usize| {
        format!(
            "UPDATE episode SET description_html = '{}'",
            "x".repeat(bytes)
        )
    };
    for (bytes, expected, why) in [
        (3_333, vec![130], "300 fit"),
        (10_000, vec![100, 30], "six bytes for each"),
        (
            20_000,
            vec![60, 60, 10],
            "what a feed writes of a text is bounded",
        ),
        (2_000_000, vec![60, 60, 10], "however long it is"),
    ] {
        world.raw(&text(bytes)).await.unwrap();
        assert_eq!(counts().await, expected, "{bytes} bytes: {why}");
    }
    let list = |bytes: usize| format!("UPDATE episode SET persons = '[\"{}\"]'", "x".repeat(bytes));
    world.raw(&text(1)).await.unwrap();
    world.raw(&list(99_996)).await.unwrap();
    assert_eq!(counts().await, [20, 20, 20, 20, 20, 20, 10], "lists count");
    world.raw(&list(400_000)).await.unwrap();
    assert_eq!(counts().await, [130], "a list that is not read does not");
    let read = store
        .podcasts()
        .episodes("did:plc:a", NOW, 1)
        .await
        .unwrap();
    assert_eq!(
        (&read[0].persons, &*read[0].malformed),
        (&vec![], &["persons"][..])
    );
}

pub(crate) async fn an_episode_is_read_as_written(world: World) {
    let store = world.open().await;
    world
        .raw(&format!("{PODCAST}; {}", episode("1", NOW, "public")))
        .await
        .unwrap();
    let read = async || {
        store
            .podcasts()
            .episodes("did:plc:a", NOW, 1)
            .await
            .unwrap()
            .remove(0)
    };
    let plain = read().await;
    assert_eq!(
        (plain.enclosure_length, plain.duration_s, plain.explicit),
        (7, None, None)
    );
    assert_eq!((plain.kind.as_str(), plain.published_us), ("full", NOW));
    world
        .raw(
            r#"UPDATE episode SET explicit = 0, duration_s = 60, season = 2, number = 3,
            transcripts = '[{"url":"https://t.example","kind":"text/vtt","rel":"captions"}]',
            persons = '[{"name":"Bo","href":"https://b.example"}]',
            social_uri = 'at://did:web:a/b/c'"#,
        )
        .await
        .unwrap();
    let full = read().await;
    assert_eq!((full.explicit, full.duration_s), (Some(false), Some(60)));
    assert_eq!((full.season, full.number), (Some(2), Some(3)));
    let transcript = Transcript {
        url: "https://t.example".to_owned(),
        kind: "text/vtt".to_owned(),
        language: None,
        rel: Some("captions".to_owned()),
    };
    assert_eq!(full.transcripts, [transcript]);
    assert_eq!(full.persons[0].href.as_deref(), Some("https://b.example"));
    assert_eq!(full.social_uri.as_deref(), Some("at://did:web:a/b/c"));
}

async fn stamp(store: &Store, number: SitemapNumber) -> Option<SitemapStamp> {
    store
        .sitemap()
        .reader()
        .await
        .unwrap()
        .stamp(number)
        .await
        .unwrap()
}

async fn urls(store: &Store, after_id: i64, last_id: i64, limit: i64) -> Vec<SitemapUrl> {
    let mut reader = store.sitemap().reader().await.unwrap();
    reader.urls(after_id, last_id, step(limit)).await.unwrap()
}

/// A step of this many URLs, of any weight.
fn step(urls: i64) -> SitemapStep {
    SitemapStep {
        urls,
        weight: i64::MAX,
    }
}

pub(crate) async fn a_file_is_read_from_one_snapshot(world: World) {
    let store = world.open().await;
    world
        .raw(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)
             INSERT INTO sitemap_url (id, loc, lastmod_us) \
             SELECT i, 'https://c.example/' || i, i FROM n",
        )
        .await
        .unwrap();
    let mut reader = store.sitemap().reader().await.unwrap();
    let before = reader.stamp(SitemapNumber::FIRST).await.unwrap().unwrap();
    let mut found = reader.urls(0, 20, step(5)).await.unwrap();
    let changes = "UPDATE sitemap_url SET lastmod_us = 99, loc = loc || 'x'; \
                   DELETE FROM sitemap_url WHERE id IN (3, 13)";
    world.raw(changes).await.unwrap();
    found.extend(reader.urls(5, 20, step(99)).await.unwrap());
    let times = found.iter().map(|url| url.lastmod_us);
    assert!(times.eq(1..=20), "rows of the same state: {found:?}");
    assert_eq!(
        reader.stamp(SitemapNumber::FIRST).await.unwrap(),
        Some(before)
    );
    assert_ne!(
        stamp(&store, SitemapNumber::FIRST).await,
        Some(before),
        "another reader"
    );
    // slow readers leave connections to others
    let mut readers = vec![reader];
    while readers.last().unwrap().is_snapshot() {
        readers.push(store.sitemap().reader().await.unwrap());
    }
    assert_eq!(readers.len() - 1, if world.is_sqlite() { 2 } else { 4 });
    let newest = readers
        .last_mut()
        .unwrap()
        .urls(0, 20, step(99))
        .await
        .unwrap();
    assert!(
        newest.len() == 18 && newest.iter().all(|url| url.lastmod_us == 99),
        "{newest:?}"
    );
    store
        .feeds()
        .posts(&FeedQuery {
            feed: "showcase",
            set: None,
            labels: &[],
            blocked: &[],
            after: None,
            limit: 1,
        })
        .await
        .unwrap();
    drop(readers);
    assert!(
        store.sitemap().reader().await.unwrap().is_snapshot(),
        "they were given back"
    );
}

pub(crate) async fn sitemap_pages_have_fixed_ids_and_gaps(world: World) {
    let store = world.open().await;
    assert_eq!(store.sitemap().files().await.unwrap(), []);
    assert_eq!(stamp(&store, SitemapNumber::FIRST).await, None);
    let mut rows = String::new();
    for (id, lastmod_us, indexable) in [
        (1, 5, 1),
        (44_999, 9, 1),
        (45_001, 99, 0),
        (135_001, 7, 1),
        (135_002, 8, 0),
        (9_000_000_000_000_000_000_i64, NOW, 1),
    ] {
        rows += &format!(
            "INSERT INTO sitemap_url (id, loc, lastmod_us, indexable, images) VALUES \
             ({id}, 'https://c.example/{id}', {lastmod_us}, {indexable}, \
             '[\"https://i.example\"]');"
        );
    }
    world.raw(&rows).await.unwrap();
    let number = |page, part| SitemapNumber { page, part };
    let page = |page, lastmod_us| SitemapFile {
        number: number(page, 1),
        lastmod_us,
    };
    let expected = [page(1, 9), page(4, 7), page(200_000_000_000_000, NOW)];
    assert_eq!(store.sitemap().files().await.unwrap(), expected);
    for (page, part, urls) in [
        (0, 1, None),
        (1, 1, Some(2)),
        (1, 0, None),
        (1, 2, None),
        (1, i64::MAX, None),
        (2, 1, None),
        (4, 1, Some(1)),
        (i64::MAX, 1, None),
    ] {
        let stamp = stamp(&store, number(page, part)).await;
        assert_eq!(
            stamp.map(|stamp| stamp.urls),
            urls,
            "page {page}, part {part}"
        );
    }
    let ids = async |after, last, limit| {
        let urls = urls(&store, after, last, limit).await;
        urls.into_iter().map(|url| url.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(0, 45_000, 10).await, [1, 44_999]);
    assert_eq!(ids(0, 45_000, 1).await, [1]);
    assert_eq!(ids(1, 45_000, 1).await, [44_999]);
    assert_eq!(ids(44_999, 90_000, 10).await, [0; 0]);
    let url = urls(&store, 135_000, 180_000, 10).await.remove(0);
    assert_eq!(
        (url.loc.as_str(), url.lastmod_us),
        ("https://c.example/135001", 7)
    );
    assert_eq!(url.images, ["https://i.example"]);
    assert!(
        world
            .raw("INSERT INTO sitemap_url (id, loc, lastmod_us) VALUES (0, 'x', 1)")
            .await
            .is_err()
    );
}

pub(crate) async fn a_stamp_changes_with_every_url_change(world: World) {
    let store = world.open().await;
    // a whole page of the greatest values there are
    world
        .raw(&format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 44999)
             INSERT INTO sitemap_url (id, loc, lastmod_us) \
             SELECT i, 'https://c.example/' || i, {} FROM n",
            i64::MAX / 2_147_483_647 * 2_147_483_647 - 1
        ))
        .await
        .unwrap();
    let mut stamps = vec![stamp(&store, SitemapNumber::FIRST).await.unwrap()];
    assert_eq!(stamps[0].urls, 44_999);
    assert_eq!(store.sitemap().files().await.unwrap().len(), 1);
    for change in [
        "UPDATE sitemap_url SET lastmod_us = 1000000 WHERE id = 7",
        "UPDATE sitemap_url SET lastmod_us = 2000000 WHERE id = 7",
        "UPDATE sitemap_url SET lastmod_us = 1000000 WHERE id IN (7, 8)",
        "UPDATE sitemap_url SET lastmod_us = 3000000 WHERE id = 8",
        "UPDATE sitemap_url SET lastmod_us = 4000000 - lastmod_us WHERE id IN (7, 8)",
        "DELETE FROM sitemap_url WHERE id = 9",
        "INSERT INTO sitemap_url (id, loc, lastmod_us) VALUES (9, 'https://c.example', 1000000)",
        "UPDATE sitemap_url SET indexable = 0 WHERE id = 44999",
        "UPDATE sitemap_url SET indexable = 1 - indexable WHERE id IN (44998, 44999)",
    ] {
        world.raw(change).await.unwrap();
        let stamp = stamp(&store, SitemapNumber::FIRST).await.unwrap();
        assert!(!stamps.contains(&stamp), "{change}: {stamp:?}");
        stamps.push(stamp);
    }
    assert_eq!(
        stamp(&store, SitemapNumber::FIRST).await.as_ref(),
        stamps.last(),
        "and else it stays"
    );
}

pub(crate) async fn every_url_is_in_exactly_one_file(world: World) {
    let store = world.open().await;
    // 1 to 45,001 with ten images, then the largest records that import takes, then small ones
    let insert = |from: u32, to: u32, images: &str| {
        format!(
            "WITH RECURSIVE n (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to})
             INSERT INTO sitemap_url (id, loc, lastmod_us, images)
             SELECT i, 'https://cards.example/cards/' || i, i, '{images}' FROM n;"
        )
    };
    let image = |path: &str| format!("\"https://media.cards.example/{path}\"");
    let ten = format!("[{}]", vec![image("sets/base1/holo.png"); 10].join(","));
    let huge = format!("[{}]", vec![image(&"&".repeat(900)); 1_000].join(","));
    let last = 45_050;
    let sql =
        insert(1, 45_001, &ten) + &insert(45_002, 45_020, &huge) + &insert(45_021, last, "[]");
    world.raw(&sql).await.unwrap();
    let mut found = Vec::new();
    let files = store.sitemap().files().await.unwrap();
    assert!(
        files.iter().filter(|file| file.number.page == 2).count() > 1,
        "{files:?}"
    );
    for file in files {
        let stamp = stamp(&store, file.number).await.expect("no file is empty");
        let urls = urls(&store, stamp.first_id - 1, stamp.last_id, 99_999).await;
        assert_eq!(urls.len() as i64, stamp.urls, "{file:?}");
        let home = usize::from(file.number == SitemapNumber::FIRST);
        assert!(
            (2..=45_000).contains(&(urls.len() + home)),
            "{} URLs in {file:?}",
            urls.len()
        );
        let newest = urls.iter().map(|url| url.lastmod_us).max();
        assert_eq!(Some(file.lastmod_us), newest, "{file:?}");
        assert_eq!(stamp.lastmod_us, file.lastmod_us, "{file:?}");
        let bytes: usize = urls.iter().map(rendered).sum();
        assert!(bytes <= 45_000_000 - 1_000, "{bytes} bytes in {file:?}");
        found.extend(urls.iter().map(|url| url.id));
    }
    assert_eq!(
        found,
        (1..=i64::from(last)).collect::<Vec<_>>(),
        "each once, in order"
    );
}

pub(crate) async fn home_splits_a_full_page_in_halves(world: World) {
    let store = world.open().await;
    let insert = |from: u32, to: u32| {
        format!(
            "WITH RECURSIVE n (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to})
             INSERT INTO sitemap_url (id, loc, lastmod_us)
             SELECT i, 'https://cards.example/cards/' || i, i FROM n"
        )
    };
    let first = |part, lastmod_us| SitemapFile {
        number: SitemapNumber { page: 1, part },
        lastmod_us,
    };
    world.raw(&insert(2, 45_000)).await.unwrap();
    assert_eq!(
        store.sitemap().files().await.unwrap(),
        [first(1, 45_000)],
        "with home, 45,000"
    );
    world.raw(&insert(1, 1)).await.unwrap();
    let files = store.sitemap().files().await.unwrap();
    let half = files[0].lastmod_us;
    assert_eq!(files, [first(1, half), first(2, 45_000)]);
    assert!((22_000..23_000).contains(&half), "{half} of 45,001");
    let stamps = async || {
        let numbers = [1, 2].map(|part| SitemapNumber { page: 1, part });
        [
            stamp(&store, numbers[0]).await,
            stamp(&store, numbers[1]).await,
        ]
        .map(Option::unwrap)
    };
    let before = stamps().await;
    assert_eq!((before[0].first_id, before[0].last_id), (1, half));
    assert_eq!((before[1].first_id, before[1].last_id), (half + 1, 45_000));
    // a change is in its own half, and the next page changes neither
    world
        .raw("UPDATE sitemap_url SET lastmod_us = 99999 WHERE id = 7")
        .await
        .unwrap();
    world.raw(&insert(45_001, 45_002)).await.unwrap();
    let files = store.sitemap().files().await.unwrap();
    assert_eq!(files[..2], [first(1, 99_999), first(2, 45_000)]);
    assert_eq!(files[2].number, SitemapNumber { page: 2, part: 1 });
    let after = stamps().await;
    assert_ne!(after[0], before[0]);
    assert_eq!(after[1], before[1]);
    // the last id alone fills no file
    world
        .raw("UPDATE sitemap_url SET indexable = 0 WHERE id BETWEEN 9 AND 44999")
        .await
        .unwrap();
    assert_eq!(
        store.sitemap().files().await.unwrap()[..1],
        [first(1, 99_999)]
    );
    assert_eq!(
        stamp(&store, SitemapNumber { page: 1, part: 2 }).await,
        None
    );
    assert_eq!(stamp(&store, SitemapNumber::FIRST).await.unwrap().urls, 9);
}

/// Bytes of a URL in a file.
fn rendered(url: &SitemapUrl) -> usize {
    let escaped = |text: &str| text.len() + 4 * text.matches('&').count();
    let images = url.images.iter().map(|image| escaped(image) + 80);
    escaped(&url.loc) + 120 + images.sum::<usize>()
}
