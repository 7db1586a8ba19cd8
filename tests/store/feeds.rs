//! Feeds: what a page holds, and that pages hold while posts come and go.

use crate::world::{Random, World};
use portcullis_store::{FeedItem, FeedQuery, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};

const FEED: &str = "showcase";
const SETS: [&str; 2] = ["base1", "neo-genesis"];
const LABELS: [&str; 3] = ["rare", "holo", "graded"];

/// A post as the tables have it.
#[derive(Debug, Clone)]
struct Post {
    uri: String,
    sort_us: i64,
    set: Option<&'static str>,
    labels: Vec<&'static str>,
    moderation: Vec<&'static str>,
    is_hidden: bool,
}

impl Post {
    /// With few times, so that many are at the same one.
    fn any(number: u64, random: &mut Random) -> Self {
        let some = |from: &[&'static str], random: &mut Random| -> Vec<&'static str> {
            from.iter()
                .copied()
                .filter(|_| random.below(3) == 0)
                .collect()
        };
        Self {
            uri: format!("at://did:plc:a/app.bsky.feed.post/{number:05}"),
            sort_us: random.below(12) as i64,
            set: SETS.get(random.below(3) as usize).copied(),
            labels: some(&LABELS, random),
            moderation: some(&["spam", "nudity"], random),
            is_hidden: random.below(8) == 0,
        }
    }

    fn insert(&self) -> String {
        let Self { uri, sort_us, .. } = self;
        let set = self.set.map_or("NULL".to_owned(), |set| format!("'{set}'"));
        let hidden = i64::from(self.is_hidden);
        let mut sql = format!(
            "INSERT INTO feed_item (feed, post_uri, author_did, set_code, sort_us, hidden) \
             VALUES ('{FEED}', '{uri}', 'did:plc:a', {set}, {sort_us}, {hidden});"
        );
        for label in &self.labels {
            let columns = "feed_label (feed, post_uri, label)";
            sql += &format!("INSERT INTO {columns} VALUES ('{FEED}', '{uri}', '{label}');");
        }
        for label in &self.moderation {
            sql += &format!("INSERT INTO moderation_label VALUES ('{uri}', '{label}');");
        }
        sql
    }

    fn is_shown(&self, query: &FeedQuery<'_>) -> bool {
        let has = |labels: &[String], of: &[&str]| {
            labels.iter().any(|label| of.contains(&label.as_str()))
        };
        !self.is_hidden
            && query.set.is_none_or(|set| self.set == Some(set))
            && (query.labels.is_empty() || has(query.labels, &self.labels))
            && !has(query.blocked, &self.moderation)
    }

    fn item(&self) -> FeedItem {
        FeedItem {
            post_uri: self.uri.clone(),
            sort_us: self.sort_us,
        }
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn all_of(feed: &str) -> FeedQuery<'_> {
    FeedQuery {
        feed,
        set: None,
        labels: &[],
        blocked: &[],
        after: None,
        limit: 100,
    }
}

async fn uris(store: &Store, query: FeedQuery<'_>) -> Vec<String> {
    store
        .feeds()
        .posts(&query)
        .await
        .unwrap()
        .into_iter()
        .map(|item| item.post_uri)
        .collect()
}

pub(crate) async fn a_page_holds_the_newest_matching_posts(world: World) {
    let store = world.open().await;
    let mut random = Random::new(1);
    let posts: Vec<Post> = (0..60)
        .map(|number| Post::any(number, &mut random))
        .collect();
    world
        .raw(&posts.iter().map(Post::insert).collect::<String>())
        .await
        .unwrap();
    let label_lists: [&[&str]; 5] = [
        &[],
        &["rare"],
        &["rare", "graded"],
        &["unknown"],
        &["a", "b", "c", "d", "e", "f", "g", "h", "holo", "rare"],
    ];
    let blocked_lists: [&[&str]; 3] = [&[], &["spam"], &["nudity", "spam"]];
    for labels in label_lists.map(texts) {
        for blocked in blocked_lists.map(texts) {
            for set in [None, Some("base1"), Some("unknown")] {
                for limit in [1, 7, 100] {
                    let (labels, blocked) = (&labels[..], &blocked[..]);
                    let query = FeedQuery {
                        set,
                        labels,
                        blocked,
                        limit,
                        ..all_of(FEED)
                    };
                    let shown = posts.iter().filter(|post| post.is_shown(&query));
                    let mut expected: Vec<FeedItem> = shown.map(Post::item).collect();
                    expected
                        .sort_by(|a, b| (b.sort_us, &b.post_uri).cmp(&(a.sort_us, &a.post_uri)));
                    expected.truncate(limit as usize);
                    assert_eq!(
                        store.feeds().posts(&query).await.unwrap(),
                        expected,
                        "{query:?}"
                    );
                }
            }
        }
    }
    assert_eq!(
        uris(&store, all_of("journals")).await,
        [""; 0],
        "each feed is its own"
    );
}

/// Posts by their addresses.
type Posts = BTreeMap<String, Post>;

/// Two posts go or change between hidden and not, another comes; whose was touched is not steady.
fn disturb(posts: &mut Posts, steady: &mut BTreeSet<String>, random: &mut Random) -> String {
    let mut sql = String::new();
    for _ in 0..2 {
        let at = random.below(posts.len() as u64) as usize;
        let post = posts.values_mut().nth(at).unwrap();
        let of_it = format!("WHERE post_uri = '{}';", post.uri);
        steady.remove(&post.uri);
        if random.below(2) == 0 {
            sql += &format!("DELETE FROM feed_item {of_it} DELETE FROM moderation_label {of_it}");
            let uri = post.uri.clone();
            posts.remove(&uri);
        } else {
            post.is_hidden = !post.is_hidden;
            sql += &format!(
                "UPDATE feed_item SET hidden = {} {of_it}",
                i64::from(post.is_hidden)
            );
        }
    }
    let come = Post::any(random.below(500), random);
    if !posts.contains_key(&come.uri) {
        sql += &come.insert();
        posts.insert(come.uri.clone(), come);
    }
    sql
}

pub(crate) async fn pages_neither_repeat_nor_skip_during_changes(world: World) {
    let store = world.open().await;
    let apply = async |sql: String| world.raw(&format!("BEGIN; {sql} COMMIT")).await.unwrap();
    let blocked = texts(&["spam"]);
    for seed in 1..=24 {
        let mut random = Random::new(seed);
        let labels = texts(&LABELS[..random.below(3) as usize]);
        let set = SETS.get(random.below(4) as usize).copied();
        let limit = 2 + random.below(5) as u32;
        let filter = FeedQuery {
            set,
            labels: &labels,
            blocked: &blocked,
            limit,
            ..all_of(FEED)
        };
        let mut posts: Posts = (0..80)
            .map(|number| Post::any(number * 6, &mut random))
            .map(|post| (post.uri.clone(), post))
            .collect();
        let begin = "DELETE FROM feed_item; DELETE FROM moderation_label;".to_owned();
        apply(posts.values().fold(begin, |sql, post| sql + &post.insert())).await;
        let shown = posts.values().filter(|post| post.is_shown(&filter));
        let mut steady: BTreeSet<String> = shown.map(|post| post.uri.clone()).collect();
        let mut seen: Vec<FeedItem> = Vec::new();
        loop {
            let after = seen
                .last()
                .map(|item| (item.sort_us, item.post_uri.as_str()));
            let page = store
                .feeds()
                .posts(&FeedQuery { after, ..filter })
                .await
                .unwrap();
            if page.is_empty() {
                break;
            }
            for item in &page {
                assert!(
                    posts[&item.post_uri].is_shown(&filter),
                    "seed {seed}: {item:?}"
                );
            }
            seen.extend(page);
            apply(disturb(&mut posts, &mut steady, &mut random)).await;
        }
        let position = |item: &FeedItem| (item.sort_us, item.post_uri.clone());
        assert!(
            seen.is_sorted_by(|a, b| position(a) > position(b)),
            "seed {seed}: {seen:?}"
        );
        let seen: BTreeSet<String> = seen.into_iter().map(|item| item.post_uri).collect();
        assert!(
            seen.is_superset(&steady),
            "seed {seed}: what was there all the time was seen"
        );
    }
}

pub(crate) async fn labels_follow_their_post(world: World) {
    let store = world.open().await;
    let post = Post {
        uri: "at://a/b/c".to_owned(),
        sort_us: 5,
        set: Some("base1"),
        labels: vec!["rare", "holo"],
        moderation: vec![],
        is_hidden: false,
    };
    world.raw(&post.insert()).await.unwrap();
    let labels = texts(&["holo"]);
    let shown = async |set| {
        let query = FeedQuery {
            labels: &labels,
            set,
            ..all_of(FEED)
        };
        store
            .feeds()
            .posts(&query)
            .await
            .unwrap()
            .into_iter()
            .map(|item| item.sort_us)
            .collect::<Vec<_>>()
    };
    for (change, of_all, of_base1) in [
        ("UPDATE feed_item SET hidden = hidden", vec![5], vec![5]),
        ("UPDATE feed_item SET hidden = 1", vec![], vec![]),
        (
            "UPDATE feed_item SET hidden = 0, sort_us = 6",
            vec![6],
            vec![6],
        ),
        ("UPDATE feed_item SET set_code = 'neo'", vec![6], vec![]),
        ("UPDATE feed_item SET set_code = NULL", vec![6], vec![]),
        (
            "UPDATE feed_item SET set_code = 'base1', sort_us = 7",
            vec![7],
            vec![7],
        ),
        (
            "DELETE FROM feed_label WHERE label = 'holo'",
            vec![],
            vec![],
        ),
        (
            "INSERT INTO feed_label (feed, post_uri, label, hidden, sort_us) \
          VALUES ('showcase', 'at://a/b/c', 'holo', 1, 9)",
            vec![7],
            vec![7],
        ),
        ("DELETE FROM feed_item", vec![], vec![]),
    ] {
        world.raw(change).await.unwrap();
        assert_eq!(shown(None).await, of_all, "{change}");
        assert_eq!(shown(Some("base1")).await, of_base1, "{change}");
    }
    let orphan = "INSERT INTO feed_label (feed, post_uri, label) VALUES ('showcase', 'u', 'rare')";
    assert!(world.raw(orphan).await.is_err(), "a label needs its post");
}

pub(crate) async fn moderation_follows_labels_and_posts(world: World) {
    let store = world.open().await;
    let (labels, blocked) = (texts(&["rare"]), texts(&["spam"]));
    let insert = "INSERT INTO feed_item (feed, post_uri, author_did, sort_us) \
                  VALUES ('showcase', 'u', 'a', 1), ('journals', 'u', 'a', 1), \
                  ('showcase', 'v', 'a', 2);
                  INSERT INTO feed_label (feed, post_uri, label) VALUES ('showcase', 'u', 'rare')";
    world.raw(insert).await.unwrap();
    for (change, showcase, journals, rare) in [
        ("SELECT 1", "vu", "u", "u"),
        (
            "INSERT INTO moderation_label VALUES ('u', 'pets')",
            "vu",
            "u",
            "u",
        ),
        (
            "INSERT INTO moderation_label VALUES ('u', 'spam')",
            "v",
            "",
            "",
        ),
        (
            "DELETE FROM moderation_label WHERE label = 'spam'",
            "vu",
            "u",
            "u",
        ),
        ("UPDATE moderation_label SET label = 'spam'", "v", "", ""),
        ("UPDATE moderation_label SET post_uri = 'v'", "u", "u", "u"),
        (
            "INSERT INTO moderation_label VALUES ('w', 'spam')",
            "u",
            "u",
            "u",
        ),
        (
            "INSERT INTO feed_item (feed, post_uri, author_did, sort_us) \
             VALUES ('showcase', 'w', 'a', 3)",
            "u",
            "u",
            "u",
        ),
        (
            "INSERT INTO feed_label (feed, post_uri, label) VALUES ('showcase', 'w', 'rare')",
            "u",
            "u",
            "u",
        ),
        (
            "DELETE FROM moderation_label WHERE post_uri = 'w'",
            "wu",
            "u",
            "wu",
        ),
        ("DELETE FROM moderation_label", "wvu", "u", "wu"),
    ] {
        world.raw(change).await.unwrap();
        let shown = async |feed: &'static str, labels: &[String]| {
            let query = FeedQuery {
                labels,
                blocked: &blocked,
                ..all_of(feed)
            };
            uris(&store, query).await.concat()
        };
        assert_eq!(shown("showcase", &[]).await, showcase, "{change}");
        assert_eq!(shown("journals", &[]).await, journals, "{change}");
        assert_eq!(shown("showcase", &labels).await, rare, "{change}");
        let sets = "SELECT count(*) FROM feed_item i WHERE moderation <> '[]' AND NOT EXISTS \
                    (SELECT 1 FROM moderation_label m WHERE m.post_uri = i.post_uri)";
        assert_eq!(world.number(sets).await, 0, "{change}");
    }
}

/// Two moderators at once, and one who removes a label while the post arrives.
pub(crate) async fn labels_at_the_same_time_are_both_stored(world: World) {
    if world.is_sqlite() {
        return; // one writes at a time
    }
    let store = world.open().await;
    let item = |uri: &str| {
        format!(
            "INSERT INTO feed_item (feed, post_uri, author_did, sort_us) \
             VALUES ('showcase', '{uri}', 'a', 1)"
        )
    };
    let setup = format!(
        "{}; INSERT INTO moderation_label VALUES ('v', 'spam')",
        item("u")
    );
    world.raw(&setup).await.unwrap();
    let first = "INSERT INTO moderation_label VALUES ('u', 'a'); \
                 DELETE FROM moderation_label WHERE post_uri = 'v'";
    let second = format!(
        "INSERT INTO moderation_label VALUES ('u', 'b'); {}",
        item("v")
    );
    world.behind(first, world.raw(&second)).await.unwrap();
    let both = "SELECT count(*) FROM feed_item WHERE moderation = '[\"a\", \"b\"]'";
    assert_eq!(world.number(both).await, 1);
    let blocked = texts(&["a", "spam"]);
    assert_eq!(
        uris(
            &store,
            FeedQuery {
                blocked: &blocked,
                ..all_of(FEED)
            }
        )
        .await,
        ["v"]
    );
}

/// Two at once: the one hides a post, the other gives it a label.
pub(crate) async fn a_label_never_shows_a_hidden_post(world: World) {
    if world.is_sqlite() {
        return; // one writes at a time
    }
    let store = world.open().await;
    let mut random = Random::new(3);
    let plain = Post {
        labels: vec![],
        moderation: vec![],
        ..Post::any(1, &mut random)
    };
    let post = Post {
        is_hidden: false,
        ..plain
    };
    world.raw(&post.insert()).await.unwrap();
    let label = format!(
        "INSERT INTO feed_label (feed, post_uri, label) VALUES ('{FEED}', '{}', 'rare')",
        post.uri
    );
    world
        .behind("UPDATE feed_item SET hidden = 1", world.raw(&label))
        .await
        .unwrap();
    let labels = texts(&["rare"]);
    assert_eq!(
        uris(
            &store,
            FeedQuery {
                labels: &labels,
                ..all_of(FEED)
            }
        )
        .await,
        [""; 0]
    );
}

pub(crate) async fn unstorable_text_matches_nothing(world: World) {
    let store = world.open().await;
    let post = Post {
        moderation: vec![],
        ..Post::any(1, &mut Random::new(1))
    };
    world
        .raw(
            &Post {
                is_hidden: false,
                ..post
            }
            .insert(),
        )
        .await
        .unwrap();
    let labels = texts(&["ra\0re"]);
    for query in [
        FeedQuery {
            set: Some("ba\0se1"),
            ..all_of(FEED)
        },
        FeedQuery {
            labels: &labels,
            ..all_of(FEED)
        },
        all_of("show\0case"),
    ] {
        assert_eq!(uris(&store, query).await, [""; 0], "{query:?}");
    }
    assert_eq!(store.accounts().by_handle("a\0b").await.unwrap(), None);
}

pub(crate) async fn too_many_labels_are_refused(world: World) {
    let store = world.open().await;
    let labels: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    for (requested, blocked, is_taken) in [(10, 16, true), (11, 0, false), (0, 17, false)] {
        let (labels, blocked) = (&labels[..requested], &labels[..blocked]);
        let found = store
            .feeds()
            .posts(&FeedQuery {
                labels,
                blocked,
                ..all_of(FEED)
            })
            .await;
        assert_eq!(found.is_ok(), is_taken, "{requested}, {blocked:?}");
        if !is_taken {
            assert!(
                matches!(found, Err(StoreError::TooLarge("labels"))),
                "{found:?}"
            );
        }
    }
}
