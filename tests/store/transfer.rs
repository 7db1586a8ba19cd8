//! Content as lines of JSON: in, out, and what is refused.

use crate::world::World;
use portcullis_store::{ImportError, ImportRules, Imported, Store, content_types};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Cursor;

pub(crate) const ANN: &str = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa";
pub(crate) const BOB: &str = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb";
const USER: &str = "00000000-0000-4000-8000-000000000001";
pub(crate) const AT: &str = "2026-11-21T08:00:00.000001Z";
const POST: &str = "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/1";

/// The sample content that the program ships, in the order of its files.
const SAMPLES: [&str; 6] = [
    include_str!("../../conf/dev/content/1-accounts.ndjson"),
    include_str!("../../conf/dev/content/2-podcasts.ndjson"),
    include_str!("../../conf/dev/content/3-feed-items.ndjson"),
    include_str!("../../conf/dev/content/4-follows.ndjson"),
    include_str!("../../conf/dev/content/5-suggestions.ndjson"),
    include_str!("../../conf/dev/content/6-pages.ndjson"),
];

async fn import(store: &Store, text: &str) -> Result<Imported, ImportError> {
    import_at(store, text, Some("https://cards.example")).await
}

/// The time of all imports: 2026-11-22T00:00:00Z.
const NOW: i64 = 1_795_305_600_000_000;

async fn import_at(
    store: &Store,
    text: &str,
    base_url: Option<&str>,
) -> Result<Imported, ImportError> {
    let rules = ImportRules {
        base_url,
        now_us: NOW,
    };
    store
        .content()
        .import(&mut Cursor::new(text), rules, |_, _| {})
        .await
}

pub(crate) async fn imported(store: &Store, text: &str) -> String {
    import(store, text).await.unwrap().to_string()
}

/// The error of a refused import.
pub(crate) async fn refused(store: &Store, text: &str) -> String {
    match import(store, text).await {
        Err(error @ ImportError::Refused(..)) => error.to_string(),
        other => panic!("{text} is refused, not {other:?}"),
    }
}

pub(crate) async fn exported(store: &Store, only: Option<&str>) -> String {
    let mut out = Vec::new();
    store.content().export(only, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

/// A record of each type, with what it must have and nothing more.
pub(crate) fn least(name: &str) -> Value {
    let mut record = match name {
        "account" => json!({"user_id": USER, "created_at": AT}),
        "podcast" => json!({
            "did": ANN, "title": "T", "description": "D", "link": "https://a.example/",
            "language": "en", "category": "Leisure", "explicit": false,
            "image_url": "https://a.example/i.jpg", "updated_at": AT,
        }),
        "episode" => json!({
            "id": "e1", "did": ANN, "guid": "g1", "title": "T", "description_html": "<p>D</p>",
            "enclosure_url": "https://a.example/1.mp3", "enclosure_length": 1,
            "enclosure_type": "audio/mpeg", "published_at": AT, "updated_at": AT,
        }),
        "feed_item" => json!({
            "feed": "showcase", "post_uri": POST, "author_did": ANN, "sort_at": AT,
        }),
        "moderation" => json!({"post_uri": POST, "labels": ["spam"]}),
        "suggestion" => json!({
            "viewer_did": "*", "built_at": AT,
            "items": [{"actor_did": BOB, "post_uri": POST, "reason": "popular"}],
        }),
        "follow" => json!({"did": ANN, "subject_did": BOB}),
        "page" => json!({"loc": "https://cards.example/a", "lastmod_at": AT}),
        other => panic!("a type without a test: {other}"),
    };
    record["type"] = name.into();
    record
}

/// A record with some members set, or left out where they are null.
pub(crate) fn with(name: &str, members: &[(&str, Value)]) -> String {
    let mut record = least(name);
    for (member, value) in members {
        match value {
            Value::Null => drop(record.as_object_mut().unwrap().remove(*member)),
            value => record[*member] = value.clone(),
        }
    }
    record.to_string()
}

pub(crate) async fn export_returns_what_import_took(world: World) {
    let store = world.open().await;
    for sample in SAMPLES {
        imported(&store, sample).await;
    }
    let first = exported(&store, None).await;
    let types: BTreeSet<_> = first
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].to_string())
        .collect();
    assert_eq!(
        types.len(),
        content_types().count(),
        "the samples show every type: {types:?}"
    );
    for sample in SAMPLES {
        imported(&store, sample).await;
    }
    assert_eq!(
        exported(&store, None).await,
        first,
        "what is imported twice is stored once"
    );
    imported(&store, &first).await;
    assert_eq!(
        exported(&store, None).await,
        first,
        "what comes out can go in"
    );
    store.close().await;
    let other = world.other().await;
    imported(&other, &first).await;
    assert_eq!(exported(&other, None).await, first, "also elsewhere");
}

pub(crate) async fn the_examples_of_the_readme_work(world: World) {
    let store = world.open().await;
    let text = include_str!("../../conf/store/README.md");
    let examples = |language: &'static str| {
        let blocks = text.split("```").skip(1).step_by(2);
        blocks.filter_map(move |block| block.strip_prefix(language))
    };
    for statement in examples("sql\n").filter(|statement| statement.starts_with("INSERT")) {
        world.raw(statement).await.unwrap();
    }
    let by_sql = exported(&store, None).await;
    let records: String = examples("json\n").collect();
    assert_eq!(
        records.lines().count(),
        content_types().count(),
        "one of each type"
    );
    imported(&store, &records).await;
    assert_eq!(exported(&store, None).await, by_sql, "both say the same");
}

pub(crate) async fn required_members_suffice(world: World) {
    let store = world.open().await;
    for name in content_types() {
        assert_eq!(
            imported(&store, &least(name).to_string()).await,
            format!("1 {name}")
        );
        let out = exported(&store, Some(name)).await;
        let record: Value = serde_json::from_str(&out).unwrap();
        for (member, value) in least(name).as_object().unwrap() {
            assert_eq!(&record[member], value, "{name}.{member} of {out}");
        }
    }
    let all = exported(&store, None).await;
    assert_eq!(
        all.lines().count(),
        content_types().count(),
        "one of each: {all}"
    );
}

pub(crate) async fn deleting_a_record_twice_is_fine(world: World) {
    let store = world.open().await;
    let all: String = content_types()
        .map(|name| least(name).to_string() + "\n")
        .collect();
    imported(&store, &all).await;
    let gone: String = [
        json!({"type": "account", "delete": true, "user_id": USER}),
        json!({"type": "podcast", "delete": true, "did": ANN}),
        json!({"type": "feed_item", "delete": true, "feed": "showcase", "post_uri": POST}),
        json!({"type": "moderation", "delete": true, "post_uri": POST}),
        json!({"type": "suggestion", "delete": true, "viewer_did": "*", "built_at": AT}),
        json!({"type": "follow", "delete": true, "did": ANN, "subject_did": BOB}),
        json!({"type": "page", "delete": true, "loc": "https://cards.example/a"}),
    ]
    .map(|record| record.to_string() + "\n")
    .concat();
    for _ in 0..2 {
        assert!(
            imported(&store, &gone)
                .await
                .starts_with("1 account deleted, 1 podcast deleted")
        );
        assert_eq!(
            exported(&store, None).await,
            "",
            "a podcast's episodes go with it"
        );
    }
    let one = json!({"type": "episode", "delete": true, "id": "e1"}).to_string();
    assert_eq!(imported(&store, &one).await, "1 episode deleted");
}

pub(crate) async fn an_author_s_posts_are_deleted_together(world: World) {
    let store = world.open().await;
    let post = |did: &str, feed: &str, key: u32| {
        let uri = format!("at://{did}/app.bsky.feed.post/{key}");
        let post = json!({"type": "feed_item", "feed": feed, "post_uri": uri, "author_did": did,
            "sort_at": AT, "labels": ["holo"], "moderation_labels": ["spam"]});
        format!("{post}\n")
    };
    let posts = post(ANN, "showcase", 1) + &post(ANN, "journals", 2) + &post(BOB, "showcase", 3);
    assert_eq!(imported(&store, &posts).await, "3 feed_items");
    let of = |did: &str| json!({"type": "feed_item", "delete": true, "author_did": did});
    let lines = format!("{}\n{}\n", of(ANN), of("did:web:nobody.example"));
    assert_eq!(imported(&store, &lines).await, "2 feed_items deleted");
    for (count, left, what) in [
        ("SELECT count(*) FROM feed_item", 1, "what is Bob's stays"),
        ("SELECT count(*) FROM feed_label", 1, "labels go with posts"),
        (
            "SELECT count(*) FROM moderation_label",
            3,
            "they hide for ever",
        ),
    ] {
        assert_eq!(world.number(count).await, left, "{what}");
    }
    let both = json!({"type": "feed_item", "delete": true, "author_did": ANN, "feed": "showcase"});
    let refused = refused(&store, &both.to_string()).await;
    assert!(refused.contains("feed_item.feed is unknown"), "{refused}");
}

pub(crate) async fn export_leaves_malformed_rows_out(world: World) {
    let store = world.open().await;
    imported(&store, &[follow(1), follow(2)].join("\n")).await;
    world
        .raw(
            "INSERT INTO feed_item (feed, post_uri, author_did, sort_us) VALUES \
             ('showcase', 'at://a', 'did:plc:a', 9000000000000000000), \
             ('showcase', 'at://b', 'did:plc:b', 1000000);
             INSERT INTO sitemap_url (id, loc, lastmod_us) VALUES \
             (7, 'https://a.example', -900000000000000000)",
        )
        .await
        .unwrap();
    let mut out = Vec::new();
    let left_out = store.content().export(None, &mut out).await.unwrap();
    assert_eq!(left_out.malformed, 2);
    assert_eq!(
        left_out.rows,
        [
            "feed_item showcase at://a: sort_us",
            "sitemap_url https://a.example: lastmod_us"
        ]
    );
    let lines = String::from_utf8(out).unwrap();
    assert_eq!(lines.lines().count(), 3, "the others are written: {lines}");
}

pub(crate) async fn a_file_is_imported_whole_or_not(world: World) {
    let store = world.open().await;
    let follows: String = (0..2_500)
        .map(|number| follow(number) + "\n")
        .collect::<Vec<_>>()
        .concat();
    let late = |last: &str| format!("{follows}{last}");
    for (what, last) in [
        ("an invalid line", "{"),
        ("an episode of no podcast", &*least("episode").to_string()),
    ] {
        let why = refused(&store, &late(last)).await;
        assert!(why.starts_with("line 2501: "), "{what}: {why}");
        assert_eq!(exported(&store, None).await, "", "{what}");
    }
    assert_eq!(imported(&store, &late("")).await, "2,500 follows");
}

/// A line like no other.
fn follow(number: u32) -> String {
    json!({"type": "follow", "did": ANN, "subject_did": format!("did:web:{number}.example")})
        .to_string()
}

pub(crate) async fn errors_name_the_line_and_the_member(world: World) {
    let store = world.open().await;
    for (line, why) in [
        ("[]".into(), "expected one JSON object in UTF-8"),
        (
            "\u{feff}{}".into(),
            "expected one JSON object in UTF-8: the file begins with a byte order mark",
        ),
        (
            "{\n\"type\": \"follow\"}".into(),
            "expected one JSON object in UTF-8 on each line",
        ),
        (
            r#"{"type":"feed"}"#.into(),
            "type must be one of account, podcast, episode, feed_item",
        ),
        (
            r#"{"type":"follow","type":"follow"}"#.into(),
            "type must be one of",
        ),
        (
            r#"{"type":"follow","delete":1}"#.into(),
            "delete must be true or false",
        ),
        (
            with("follow", &[("did", Value::Null)]),
            "follow.did is missing",
        ),
        (
            with("follow", &[("dad", json!(1))]),
            "follow.dad is unknown",
        ),
        (
            with("follow", &[("delete", json!(true)), ("since", json!(AT))]),
            "follow.since is unknown",
        ),
        (
            least("follow")
                .to_string()
                .replacen('{', r#"{"d\u0069d":"did:plc:x","#, 1),
            "follow.did must be a DID",
        ),
        (
            least("follow")
                .to_string()
                .replacen('{', &format!(r#"{{"d\u0069d":"{ANN}","#), 1),
            "follow.did is duplicated",
        ),
        (
            with("episode", &[("enclosure_length", json!(0))]),
            "episode.enclosure_length must be a whole number of bytes, greater than 0",
        ),
        (
            with("episode", &[("enclosure_length", json!(1.0))]),
            "episode.enclosure_length must be",
        ),
        (
            with("episode", &[("enclosure_length", json!("1"))]),
            "episode.enclosure_length must be",
        ),
        (
            with(
                "podcast",
                &[(
                    "persons",
                    json!([{"name": "A"}, {"name": "B", "href": "x"}]),
                )],
            ),
            "podcast.persons[1].href must be an https URL",
        ),
        (
            with("page", &[("images", json!(["https://a.example/", 5]))]),
            "page.images[1] must be",
        ),
        (
            with("feed_item", &[("feed", json!("whoto-follow"))]),
            "feed_item.feed must be one of trade-listings, collection-posts",
        ),
    ] {
        let error = refused(&store, &format!("{}\n\n{line}", least("page"))).await;
        assert!(
            error.starts_with(&format!("line 3: {why}")),
            "{line}: {error}"
        );
        assert!(error.ends_with("nothing was imported"), "{error}");
    }
    assert_eq!(exported(&store, None).await, "");
    let many = "{\n".repeat(25);
    let error = refused(&store, &many).await;
    assert_eq!(error.lines().count(), 22, "twenty of them in full: {error}");
    assert!(
        error.contains("line 20: ") && error.contains("and 5 more"),
        "{error}"
    );
    let long = format!("{}\n{}\n[]", "x".repeat(3 << 20), least("page"));
    let error = refused(&store, &long).await;
    assert!(
        error.starts_with("line 1: longer than any record\nline 3: "),
        "{error}"
    );
}

pub(crate) async fn pages_of_foreign_origins_are_refused(world: World) {
    let store = world.open().await;
    let foreign = with("page", &[("loc", json!("https://a.example/a"))]);
    let error = refused(&store, &format!("{}\n{foreign}", least("page"))).await;
    let why = "line 2: page.loc must be below https://cards.example/ and have no fragment";
    assert!(error.starts_with(why), "{error}");
    import_at(&store, &foreign, None).await.unwrap();
    let gone = json!({"type": "page", "delete": true, "loc": "https://a.example/a"}).to_string();
    assert_eq!(
        imported(&store, &gone).await,
        "1 page deleted",
        "it can be removed"
    );
}

/// Members that have a form of their own: what they take, and what they do not.
pub(crate) async fn members_accept_only_valid_values(world: World) {
    let store = world.open().await;
    let long = "x".repeat(700);
    for (name, member, good, bad) in [
        (
            "account",
            "user_id",
            &[USER][..],
            &["1", "00000000000040008000000000000001", ""][..],
        ),
        (
            "account",
            "handle",
            &["a.b", "x-1.cards.example"],
            &["@a.b", "A.b", "a", "a.1", "-a.b"],
        ),
        (
            "account",
            "did",
            &[BOB, "did:web:a.example%3A80"],
            &["did:plc:a", "did:web:", "plc:a"],
        ),
        ("account", "status", &["banned"], &["Banned", "deleted"]),
        (
            "account",
            "created_at",
            &["2026-02-28T23:59:59+14:00"],
            &["2026-02-29T00:00:00Z", "2026-02-28x00:00:00Z", "1"],
        ),
        (
            "account",
            "created_at",
            &["1970-01-01T00:00:00Z"],
            &["1969-12-31T23:59:59Z", "2026"],
        ),
        (
            "feed_item",
            "post_uri",
            &[POST],
            &[
                "at://ann.example/a.b.c/1",
                "at://did:web:a/a.b/1",
                &*format!("{POST}{long}"),
            ],
        ),
        (
            "feed_item",
            "set_code",
            &["neo-genesis", "第一"],
            &["Base1", " a", "a,b", "a\u{0}"],
        ),
        (
            "podcast",
            "guid",
            &["917393e3-1b1e-5cef-ace4-edaa54e1f810"],
            &["917393E3", "g"],
        ),
        (
            "podcast",
            "language",
            &["en-US", "pt"],
            &["english", "EN", ""],
        ),
        (
            "podcast",
            "link",
            &["https://[::1]:80/"],
            &["http://a.example/"],
        ),
        (
            "podcast",
            "title",
            &["😀 & <b>"],
            &["", " ", "a\u{1}b", "a\u{0}"],
        ),
        (
            "podcast",
            "owner_email",
            &["a@b.example"],
            &["a@b", "@b.example", "a b@c.example"],
        ),
        (
            "page",
            "loc",
            &[
                "https://cards.example/?a=b&c",
                "https://CARDS.example?a",
                "https://cards.example",
            ],
            &[
                "https:///a",
                "ftp://cards.example/",
                "https://u@cards.example/",
                "https://a.example/",
                "https://cards.example.evil.test/",
                "http://cards.example/",
                "https://cards.example:8443/",
                "https://cards.example/a#b",
            ],
        ),
    ] {
        for (texts, is_good) in [(good, true), (bad, false)] {
            for text in texts {
                let line = with(name, &[(member, json!(text))]);
                let done = import(&store, &line).await;
                assert_eq!(done.is_ok(), is_good, "{name}.{member} {text:?}: {done:?}");
            }
        }
    }
}

pub(crate) async fn a_podcast_keeps_its_first_guid(world: World) {
    let store = world.open().await;
    let guid = async || {
        let out = exported(&store, Some("podcast")).await;
        serde_json::from_str::<Value>(&out).unwrap()["guid"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let without = with("podcast", &[]);
    let nowhere = import_at(&store, &without, None).await;
    let why = nowhere.unwrap_err().to_string();
    assert!(why.starts_with("line 1: podcast: guid is missing"), "{why}");
    imported(&store, &without).await;
    let first = guid().await;
    assert_eq!(first.len(), 36);
    let other = "917393e3-1b1e-5cef-ace4-edaa54e1f810";
    for (what, line) in [
        (
            "another guid",
            with(
                "podcast",
                &[("guid", json!(other)), ("title", json!("New"))],
            ),
        ),
        ("no guid", with("podcast", &[("title", json!("New"))])),
    ] {
        for base_url in [Some("https://elsewhere.example"), None] {
            import_at(&store, &line, base_url).await.unwrap();
            assert_eq!(guid().await, first, "{what}, {base_url:?}");
        }
    }
    let out = exported(&store, Some("podcast")).await;
    assert!(
        out.contains("\"title\":\"New\""),
        "the rest does change: {out}"
    );
    let stolen = with("podcast", &[("did", json!(BOB)), ("guid", json!(first))]);
    let why = refused(&store, &stolen).await;
    assert!(
        why.starts_with("line 1: podcast: another podcast has its guid"),
        "{why}"
    );
}

pub(crate) async fn constraint_violations_name_the_line(world: World) {
    let store = world.open().await;
    let account = |number: u8, handle: &str| {
        let user = format!("00000000-0000-4000-8000-00000000000{number}");
        with(
            "account",
            &[("user_id", json!(user)), ("handle", json!(handle))],
        )
    };
    let lines = [
        account(1, "a.example"),
        account(2, "b.example"),
        account(3, "a.example"),
    ];
    let why = refused(&store, &lines.join("\n")).await;
    assert!(
        why.starts_with("line 3: account: another account has its did or handle"),
        "{why}"
    );
    let swap = [
        account(1, "a.example"),
        account(2, "b.example"),
        account(1, "c.example"),
        account(2, "a.example"),
        account(1, "b.example"),
    ];
    assert_eq!(
        imported(&store, &swap.join("\n")).await,
        "5 accounts",
        "in the order of the lines"
    );
    for (what, lines) in [
        (
            "two swap",
            [account(1, "a.example"), account(2, "b.example")],
        ),
        (
            "one is handed over, the taker first",
            [account(1, "b.example"), account(2, "c.example")],
        ),
        (
            "it comes back",
            [account(1, "a.example"), account(2, "b.example")],
        ),
    ] {
        assert_eq!(
            imported(&store, &lines.join("\n")).await,
            "2 accounts",
            "{what}"
        );
        let text = exported(&store, Some("account")).await;
        let handles = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let expected = lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let handle = |account: Value| account["handle"].clone();
        assert!(
            handles.map(handle).eq(expected.map(handle)),
            "{what}: {text}"
        );
    }
    let before = exported(&store, None).await;
    let lines = [
        account(1, "b.example"),
        account(2, "a.example"),
        account(3, "a.example"),
    ];
    let why = refused(&store, &lines.join("\n")).await;
    assert!(
        why.starts_with("line 3: account: another"),
        "the swap is not to blame: {why}"
    );
    assert_eq!(exported(&store, None).await, before);
    let episodes = [
        least("podcast").to_string(),
        least("episode").to_string(),
        with("episode", &[("id", json!("e2")), ("guid", json!("g2"))]),
    ];
    let why = refused(&store, &episodes.join("\n")).await;
    assert!(
        why.starts_with("line 3: episode: another episode of the podcast has its"),
        "{why}"
    );
}

pub(crate) async fn the_newest_import_sets_the_labels(world: World) {
    let store = world.open().await;
    let item = |feed: &str, labels: Value, moderation: Value| {
        let members = [
            ("feed", json!(feed)),
            ("labels", labels),
            ("moderation_labels", moderation),
        ];
        with("feed_item", &members) + "\n"
    };
    let none = Value::Null;
    for (lines, labels, moderation) in [
        (
            item("showcase", json!(["rare", "holo", "rare"]), none.clone()),
            r#"["holo","rare"]"#,
            "",
        ),
        (
            item("showcase", json!(["rare"]), json!(["spam"])),
            r#"["rare"]"#,
            r#"["spam"]"#,
        ),
        (
            item("showcase", json!([]), none.clone()),
            "[]",
            r#"["spam"]"#,
        ),
        (
            item("journals", none.clone(), json!(["a"]))
                + &item("showcase", none.clone(), json!(["b"])),
            "[]",
            r#"["b"]"#,
        ),
        (
            item("showcase", json!(["a"]), none.clone())
                + &item("showcase", json!(["b"]), json!(["c"])),
            r#"["b"]"#,
            r#"["c"]"#,
        ),
        (
            item("showcase", json!(["c"]), json!(["b"]))
                + &item("journals", json!(["d"]), none.clone())
                + &item("showcase", json!(["e"]), none.clone()),
            r#"["e"]"#,
            r#"["b"]"#,
        ),
        (item("showcase", json!(["x"]), json!([])), r#"["x"]"#, ""),
    ] {
        imported(&store, &lines).await;
        let items = exported(&store, Some("feed_item")).await;
        let showcase = items
            .lines()
            .find(|line| line.contains("\"showcase\""))
            .unwrap();
        assert!(
            showcase.ends_with(&format!("\"labels\":{labels}}}")),
            "{lines}: {showcase}"
        );
        let posts = exported(&store, Some("moderation")).await;
        assert_eq!(
            posts.contains(&format!("\"labels\":{moderation}")),
            !moderation.is_empty()
        );
    }
}

pub(crate) async fn a_snapshot_of_suggestions_never_changes(world: World) {
    let store = world.open().await;
    let snapshot = |at: &str, reasons: &[&str]| {
        let item = |reason: &&str| json!({"actor_did": BOB, "post_uri": POST, "reason": reason});
        let items: Vec<_> = reasons.iter().map(item).collect();
        with(
            "suggestion",
            &[("built_at", json!(at)), ("items", json!(items))],
        )
    };
    let (old, new) = ("2026-11-20T04:00:00Z", "2026-11-21T04:00:00Z");
    let both = [snapshot(old, &["a"]), snapshot(new, &["a", "b"])].join("\n");
    imported(&store, &both).await;
    imported(&store, &both).await;
    for (what, line) in [
        ("another item", snapshot(new, &["a", "c"])),
        ("one item more", snapshot(new, &["a", "b", "c"])),
        ("one item less", snapshot(new, &["a"])),
        ("an older one", snapshot("2026-11-20T12:00:00Z", &["a"])),
    ] {
        let why = refused(&store, &line).await;
        assert!(
            why.starts_with("line 1: suggestion: built_at must be later"),
            "{what}: {why}"
        );
    }
    let why = refused(&store, &snapshot("2026-11-22T04:00:00Z", &[])).await;
    assert!(
        why.starts_with("line 1: suggestion.items must be a list of 1 to 500\n"),
        "{why}"
    );
    assert_eq!(exported(&store, None).await.lines().count(), 2);

    // who writes by SQL may count in another unit than microseconds: readers take the greatest id
    world
        .raw("UPDATE suggestion SET snapshot_id = snapshot_id * 1000")
        .await
        .unwrap();
    let before = exported(&store, None).await;
    imported(&store, &both).await;
    let why = refused(&store, &snapshot("2026-11-22T04:00:00Z", &["d"])).await;
    assert!(
        why.starts_with("line 1: suggestion: built_at must be later"),
        "unseen: {why}"
    );
    assert_eq!(exported(&store, None).await, before);
}

pub(crate) async fn imports_of_pages_use_up_no_ids(world: World) {
    let store = world.open().await;
    let page = |name: &str, at: &str| {
        let loc = json!(format!("https://cards.example/{name}"));
        with("page", &[("loc", loc), ("lastmod_at", json!(at))]) + "\n"
    };
    imported(&store, &(page("a", AT) + &page("b", AT))).await;
    for _ in 0..3 {
        imported(
            &store,
            &(page("b", "2026-12-01T00:00:00Z") + &page("a", AT)),
        )
        .await;
    }
    imported(&store, &page("c", AT)).await;
    let out = exported(&store, Some("page")).await;
    let locs = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["loc"].clone());
    let expected = ["a", "b", "c"].map(|name| json!(format!("https://cards.example/{name}")));
    assert_eq!(
        locs.collect::<Vec<_>>(),
        expected,
        "pages come out in the order of their ids"
    );
    let four = "INSERT INTO sitemap_url (loc, lastmod_us) VALUES ('https://cards.example/d', 1)";
    world.raw(four).await.unwrap();
    assert_eq!(
        world.number("SELECT max(id) FROM sitemap_url").await,
        4,
        "one for each"
    );
}

pub(crate) async fn many_lines_are_imported_and_exported(world: World) {
    let store = world.open().await;
    let lines: Vec<_> = (0..3_000).map(follow).collect();
    assert_eq!(imported(&store, &lines.join("\n")).await, "3,000 follows");
    let out = exported(&store, Some("follow")).await;
    let (found, expected): (BTreeSet<_>, BTreeSet<_>) = (
        out.lines().collect(),
        lines.iter().map(String::as_str).collect(),
    );
    assert_eq!(out.lines().count(), 3_000);
    assert_eq!(found.len(), expected.len(), "each of them once");
}

pub(crate) async fn an_import_leaves_fresh_statistics(world: World) {
    let store = world.open().await;
    let lines: Vec<_> = (0..100).map(follow).collect();
    imported(&store, &lines.join("\n")).await;
    if !world.is_sqlite() {
        let rows = "SELECT CAST(reltuples AS BIGINT) FROM pg_class WHERE relname = 'follow'";
        assert_eq!(
            world.number(rows).await,
            100,
            "the planner knows how many rows there are"
        );
    }
}
