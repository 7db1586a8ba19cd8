//! Every lookup uses an index, however much is stored, as the databases themselves report.

use crate::world::World;
use portcullis_store::{FeedQuery, sql};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Statement, its arguments, and the index; two where both hold nothing but what is unresolved.
const LOOK_UPS: [(&str, &[&str], &str); 35] = [
    (sql::ENTRIES, &["900", "10"], "journal_pkey"),
    (sql::ENTRIES_NEWEST, &["10"], "journal_pkey"),
    (sql::ENTRIES_OF, &["900"], "journal_intent"),
    (sql::EVENT_ENTRIES, &["900", "10"], "journal_pkey"),
    (sql::EVENTS_DUE, &["900", "9000", "10"], "journal_pkey"),
    (
        sql::INTENT_MOVE,
        &["900", "'sent'", "'x'", "1", "0", "NULL", "NULL"],
        "intent_pkey",
    ),
    (sql::INTENT_BY_HASH, &["'e'", "'0x900'"], "intent_hash"),
    (
        sql::INTENTS_OF_SLOT,
        &["'e'", "'0x1'", "900"],
        "intent_slot",
    ),
    (
        sql::DISPLACED,
        &["'e'", "900", "64"],
        "intent_displaced or intent_search_state",
    ),
    (sql::COUNT_UNPLACED, &[], "intent_unplaced"),
    (sql::INCLUDED, &["'e'", "5"], "intent_included"),
    (
        sql::INCLUDED_ANYWHERE,
        &["'e'", "900", "16"],
        "intent_included",
    ),
    (sql::FLOOR, &["'e'"], "intent_included"),
    (
        sql::UNRESOLVED,
        &["'e'"],
        "intent_unresolved or intent_digest",
    ),
    (
        sql::UNRESOLVED_OF_SIGNER,
        &["'e'", "'0x1'"],
        "intent_unresolved",
    ),
    (
        sql::LAST_OF,
        &["'e'", "'drip'", "'0x900'", "10", "8000"],
        "intent_subject",
    ),
    (sql::DRIPS, &["'e'", "8000", "9000"], "intent_drips"),
    (sql::FEES, &["'e'", "8000", "9000"], "fee_sum_pkey"),
    (
        sql::FEES_BY_MINUTE,
        &["'e'", "8000", "9000"],
        "fee_sum_pkey",
    ),
    (sql::KEY, &["'e'", "'k900'"], "idempotency_pkey"),
    (
        sql::KEY_ANSWER,
        &["'e'", "'k900'", "'drip'", "'d'", "900", "200", "''"],
        "idempotency_pkey",
    ),
    (
        sql::KEY_RELEASE,
        &["'e'", "'k900'", "'t'"],
        "idempotency_pkey",
    ),
    (sql::KEY_PRUNE, &["20"], "idempotency_created"),
    (sql::INTENT_NEWEST, &[], "intent_pkey"),
    (sql::INTENTS_DATE, &["10", "8999"], "intent_pkey"),
    (sql::SEARCH, &["900", "25"], "intent_pkey"),
    (
        sql::SEARCH_BY_HASH,
        &["900", "25", "'0x800'"],
        "intent_search_hash",
    ),
    (
        sql::SEARCH_BY_SUBJECT,
        &["900", "25", NULL, "'0x800'"],
        "intent_search_subject",
    ),
    (
        sql::SEARCH_BY_STATE,
        &["900", "25", NULL, NULL, "'sent'"],
        "intent_search_state",
    ),
    (
        sql::SEARCH_BY_OPERATION,
        &["900", "25", NULL, NULL, NULL, "'none'"],
        "intent_search_operation",
    ),
    (
        sql::ENTRIES_MATCHING,
        &["900", "8000", "10", "5"],
        "journal_pkey",
    ),
    (
        sql::ENTRIES_MATCHING_NEWEST,
        &["900", "8000", "10", "5"],
        "journal_pkey",
    ),
    (sql::REFUSALS, &["900", "25"], "journal_refused"),
    (sql::REFUSALS_RECENT, &["900", "910"], "refusal_first"),
    (
        sql::REFUSALS_COUNTED,
        &["8000", "8", NULL, "25"],
        "refusal_first",
    ),
];

/// The facts of a decision, by several indexes.
const FACTS: [(&str, &[&str]); 6] = [
    (
        sql::INTEND_FACTS,
        &[
            "'e'", "'k900'", "'e'", "10", "8000", "5", "'0x1'", "900", "'e'", "8000", "9000",
            "'e'", "'drip'", "'0x900'", "10", "8000",
        ],
    ),
    (
        sql::INTEND_INTENTS,
        &["'e'", "'0x900'", "'0x1'", "900", "'d900'", "7", "8"],
    ),
    (sql::CHANGE_INTENTS, &["900"]),
    (sql::BOUND, &["'e'", "'0x900'", "'0x900'", "'0x1'", "900"]),
    (sql::PAIRS, &["'e'", "'0x900'", "'0x900'"]),
    (sql::REQUESTED, &["'e'", "'d900'", "'k900'", "'drip'"]),
];

/// The lookups of content. The blocking labels are arguments from `$5` on, so later ones are apart.
const CONTENT_LOOK_UPS: [(&str, &[&str], &[&str], &str); 27] = [
    (
        sql::FEED_MODERATIONS,
        &["'showcase'", "1001"],
        &[],
        "feed_item_page",
    ),
    (
        sql::FEED,
        &["'showcase'", "4500", "'u'", "51"],
        &["'[]'"],
        "feed_item_page",
    ),
    (
        sql::FEED_OF_SET,
        &["'showcase'", "4500", "'u'", "51"],
        &["'[]'", "'base1'"],
        "feed_item_set",
    ),
    (
        sql::FEED_OF_LABELS,
        &["'showcase'", "4500", "'u'", "51"],
        &[
            "'common'", "'rare'", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "'[]'",
        ],
        "feed_label_page or feed_label_set",
    ),
    (
        sql::FEED_OF_LABELS_AND_SET,
        &["'showcase'", "4500", "'u'", "51"],
        &[
            "'rare'", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "'[]'", "'base1'",
        ],
        "feed_label_set",
    ),
    (sql::SNAPSHOT, &["'did:9'"], &[], "suggestion_pkey"),
    (sql::SNAPSHOT_AT, &["'did:9'", "9"], &[], "suggestion_pkey"),
    (
        sql::SUGGESTIONS,
        &["'did:9'", "9", "1", "51"],
        &["'did:9'"],
        "suggestion_pkey",
    ),
    (sql::ACCOUNT_OF_USER, &["'9'"], &[], "account_pkey"),
    (sql::ACCOUNT_OF_DID, &["'did:9'"], &[], "account_did_key"),
    (sql::ACCOUNT_OF_HANDLE, &["'h9'"], &[], "account_handle_key"),
    (sql::PODCAST, &["'did:9'"], &[], "podcast_pkey"),
    (
        sql::EPISODES,
        &["'did:9'", "4500", "6000000", "20000", "100000", "0"],
        &[],
        "episode_page",
    ),
    (
        sql::EPISODES_PUBLISHED,
        &["'did:9'", "4500", "6000000", "20000", "100000"],
        &[],
        "episode_page",
    ),
    (
        sql::NEXT_PUBLICATION,
        &["'did:9'", "4500"],
        &[],
        "episode_page",
    ),
    (
        sql::FEEDS_CHANGED,
        &["8900", "8950", "10000"],
        &[],
        "episode_published",
    ),
    (
        sql::SITEMAP_PAGES,
        &["50000", "8388608"],
        &[],
        "sitemap_url_page",
    ),
    (
        sql::SITEMAP_PAGE,
        &["3", "8388608"],
        &[],
        "sitemap_url_page",
    ),
    (
        sql::SITEMAP_STAMPS,
        &["3", "8388608", "33554432", "0", "16777216", "2"],
        &[],
        "sitemap_url_page",
    ),
    (
        sql::SITEMAP_URLS,
        &["100000", "135000", "1000", "262144"],
        &[],
        "sitemap_url_page or sitemap_url_pkey",
    ),
    (
        sql::SITEMAP_BELOW,
        &["'https://a.example/9'", "'https://a.example/9~'", "10000"],
        &[],
        "sitemap_url_loc_key",
    ),
    (
        sql::AGE_SESSIONS,
        &["'9'", "10", "20", "10"],
        &[],
        "age_session_user",
    ),
    (
        sql::AGE_SESSIONS_DATE,
        &["'9'", "10", "20"],
        &[],
        "age_session_user",
    ),
    (sql::AGE_SUBJECT, &["'9'"], &[], "age_session_pkey"),
    (
        sql::AGE_SESSION_MOVE,
        &["'9'", "'verified'", "1", "NULL", "1", "1"],
        &[],
        "age_session_pkey",
    ),
    (
        sql::AGE_EVENT_FACTS,
        &["'e9'", "'9'", "'9'"],
        &[],
        "age_event_pkey",
    ),
    (sql::AGE_REPORTS, &["'9'", "10"], &[], "age_session_user"),
];
const NULL: &str = "NULL";
/// The tables that must never be scanned.
const TABLES: [&str; 8] = [
    "feed_item",
    "feed_label",
    "suggestion",
    "account",
    "episode",
    "sitemap_url",
    "age_session",
    "age_event",
];

/// Many rows of which few are unresolved.
const FILL: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO journal SELECT i, i, 'sent', i, 'drip', '{}', 'h', 'h' FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO intent SELECT i, 'e', CASE i % 2 WHEN 0 THEN 'drip' ELSE 'faucet-drip' END,
      'd' || i, '0x' || i, '{}', '0x' || (i % 3), i, '0x' || i, '{}',
      CASE WHEN i % 100 = 0 THEN 'sent' WHEN i % 100 = 1 THEN 'displaced' ELSE 'succeeded' END,
      NULL, i, i, 0, NULL, i, i, 'f' FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO refusal SELECT 'drip', 'why', i, i, 9 FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO fee_sum SELECT 'e', i, i FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO idempotency SELECT 'k' || i, 'drip', 'd', i, 200, '', i, 'e', NULL FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO faucet_binding SELECT 'e', '0x' || i, '0x' || i, i FROM n";

/// Many rows of each table: feeds with a rare label and some that are blocked, pages with gaps.
const FILL_CONTENT: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO feed_item (feed, post_uri, record_uri, author_did, set_code, sort_us, hidden)
      SELECT CASE i % 2 WHEN 0 THEN 'showcase' ELSE 'journals' END, 'p' || i,
      NULL, 'did:' || i, CASE i % 5 WHEN 0 THEN 'base1' ELSE 'neo' END, i, i % 50 / 49 FROM n;
    INSERT INTO feed_label (feed, post_uri, label) SELECT feed, post_uri,
      CASE sort_us % 300 WHEN 0 THEN 'rare' ELSE 'common' END FROM feed_item;
    INSERT INTO moderation_label SELECT post_uri, 'spam' FROM feed_item WHERE sort_us % 3 = 0;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO account SELECT '' || i, 'did:' || i, 'h' || i, 'active', i FROM n;
    INSERT INTO follow SELECT did, 'did:' || (created_us + 1) FROM account;
    INSERT INTO suggestion SELECT 'did:' || (created_us % 90), created_us % 90, created_us,
      did, 'p' || created_us, 'similar', created_us FROM account;
    INSERT INTO podcast (did, guid, title, description, link, language, category, explicit,
      image_url, updated_us) SELECT did, did, '', '', 'https://a', 'en', 'Leisure', 0,
      'https://a', 1 FROM account;
    INSERT INTO episode (id, did, guid, title, description_html, enclosure_url, enclosure_length,
      enclosure_type, published_us, updated_us) SELECT user_id, 'did:' || (created_us % 90 + 1),
      did, '', '', 'https://' || did, 1, 'audio/mpeg', created_us, 1 FROM account;
    INSERT INTO sitemap_url (id, loc, lastmod_us) SELECT created_us * 50, did, created_us
      FROM account;
    INSERT INTO age_session (subject_ref, user_id, status, created_us, expires_us)
      SELECT did, user_id, 'pending', 1, 99 FROM account;
    INSERT INTO age_event SELECT 'e' || user_id, '', did, 'verified', NULL, 1, 1, 1, 1, 'applied',
      'verified' FROM account;
    INSERT INTO age_user SELECT user_id, 'verified', NULL, 1, 1, 1 FROM account";

/// The statement with its arguments in it; the rest of them are NULL.
fn filled(statement: &str, arguments: &[&str]) -> String {
    let rest = std::iter::repeat_n(&NULL, 32_usize.saturating_sub(arguments.len()));
    let numbered = arguments.iter().chain(rest).enumerate().collect::<Vec<_>>();
    // the other way round $1 would be found in $10
    numbered
        .into_iter()
        .rev()
        .fold(format!(" {statement}"), |text, (at, argument)| {
            text.replace(&format!("${}", at + 1), argument)
        })
}

pub(crate) async fn every_lookup_uses_its_index(world: World) {
    world.open().await.close().await;
    world.raw(FILL).await.unwrap();
    if !world.is_sqlite() {
        // PostgreSQL does that by itself, SQLite never
        world.raw("ANALYZE").await.unwrap();
    }
    for (statement, arguments) in FACTS {
        let statement = filled(statement, arguments);
        let plan = match world.is_sqlite() {
            true => sqlite_plan(&world.url, statement.clone()).await,
            false => postgres_plan(&world.url, statement.clone()).await,
        };
        let scans = |line: &str| {
            let tables = ["intent", "idempotency", "faucet_binding", "fee_sum"];
            let mut names = tables.iter().chain(&["it", "slot", "equal", "open"]);
            names.any(|name| line.trim() == format!("SCAN {name}"))
                || tables
                    .iter()
                    .any(|name| line.contains(&format!("Seq Scan on {name}")))
        };
        assert!(
            !plan.lines().any(scans),
            "{statement}: a table is read whole:\n{plan}"
        );
    }
    for (statement, arguments, index) in LOOK_UPS {
        let statement = filled(statement, arguments);
        let (plan, expected) = if world.is_sqlite() {
            let plan = sqlite_plan(&world.url, statement.clone()).await;
            let key = match index {
                "journal_pkey" | "intent_pkey" => "INTEGER PRIMARY KEY",
                "idempotency_pkey" => "sqlite_autoindex_idempotency_1",
                "faucet_binding_pkey" => "sqlite_autoindex_faucet_binding_1",
                "fee_sum_pkey" => "SEARCH fee_sum USING PRIMARY KEY",
                named => named,
            };
            // the newest entries are walked to by the table itself, from its end
            let walks = index == "journal_pkey" && plan == "SCAN journal";
            (plan, if walks { "SCAN journal" } else { key })
        } else {
            (postgres_plan(&world.url, statement.clone()).await, index)
        };
        let used = expected.split(" or ").any(|index| plan.contains(index));
        assert!(used, "{statement}: {expected} is not in\n{plan}");
    }
}

pub(crate) async fn every_content_lookup_uses_its_index(world: World) {
    world.open().await.close().await;
    world.raw(FILL_CONTENT).await.unwrap();
    if !world.is_sqlite() {
        world.raw("ANALYZE").await.unwrap();
    }
    for (statement, first, beyond, index) in CONTENT_LOOK_UPS {
        let mut arguments = first.to_vec();
        if statement.contains("$20") {
            arguments.push("'spam'");
            arguments.resize(20, NULL);
        }
        arguments.extend(beyond);
        let (plans, expected) = if world.is_sqlite() {
            (
                vec![sqlite_plan(&world.url, filled(statement, &arguments)).await],
                sqlite_name(index),
            )
        } else {
            let custom = postgres_plan(&world.url, filled(statement, &arguments)).await;
            let generic = postgres_generic_plan(&world.url, statement, &arguments).await;
            (vec![custom, generic], index)
        };
        for plan in plans {
            let used = expected.split(" or ").any(|index| plan.contains(index));
            let scanned = TABLES.iter().any(|table| {
                plan.contains(&format!("Seq Scan on {table}"))
                    || plan.lines().any(|line| line == format!("SCAN {table}"))
            });
            assert!(
                used && !scanned,
                "{statement}: {expected} is not in\n{plan}"
            );
        }
    }
}

/// The steps of SQLite's machine, or the rows that PostgreSQL reads and drops.
async fn work(world: &World, statement: &str, arguments: &[&str]) -> u64 {
    let statement = filled(statement, arguments);
    if world.is_sqlite() {
        let mut connection = SqliteConnection::connect(&world.url).await.unwrap();
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        connection
            .lock_handle()
            .await
            .unwrap()
            .set_progress_handler(10, move || {
                counted.fetch_add(10, Ordering::Relaxed);
                true
            });
        sqlx::query(AssertSqlSafe(statement))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        return steps.load(Ordering::Relaxed);
    }
    let explain = format!("(ANALYZE, TIMING OFF){statement}");
    let plan = postgres_plan(&world.url, explain).await;
    let numbers = plan.lines().filter_map(|line| {
        let dropped = line
            .split_once("Rows Removed by")
            .and_then(|(_, rest)| rest.split_once(": "));
        let read = line
            .split_once("(actual rows=")
            .and_then(|(_, rest)| rest.split_once(' '));
        dropped.map(|(_, rows)| rows).or(read.map(|(rows, _)| rows))
    });
    numbers
        .filter_map(|rows| rows.trim().parse::<u64>().ok())
        .sum()
}

pub(crate) async fn blocked_posts_are_not_read(world: World) {
    let store = world.open().await;
    let posts = |from: u32, to: u32| {
        format!(
            "WITH RECURSIVE n (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to})
             INSERT INTO feed_item (feed, post_uri, author_did, set_code, sort_us)
             SELECT 'showcase', 'p' || i, 'a', 'base1', i FROM n;
             INSERT INTO feed_label (feed, post_uri, label) SELECT feed, post_uri, 'rare'
             FROM feed_item WHERE sort_us BETWEEN {from} AND {to};"
        )
    };
    let visible =
        "INSERT INTO moderation_label VALUES ('p1', 'pets'), ('p2', 'art'), ('p2', 'pets');";
    world.raw(&(posts(1, 4) + visible)).await.unwrap();
    let statements: [(&str, &[&str]); 5] = [
        (sql::FEED_MODERATIONS, &[]),
        (sql::FEED, &["'[]'"]),
        (sql::FEED_OF_SET, &["'[]'", "'base1'"]),
        (
            sql::FEED_OF_LABELS,
            &[&["'rare'"][..], &[NULL; 9], &["'[]'"]].concat(),
        ),
        (
            sql::FEED_OF_LABELS_AND_SET,
            &[&["'rare'"][..], &[NULL; 9], &["'[]'", "'base1'"]].concat(),
        ),
    ];
    let measured = async || {
        if !world.is_sqlite() {
            world.raw("ANALYZE").await.unwrap();
        }
        let mut measured = Vec::new();
        for (statement, beyond) in statements {
            let first: &[&str] = &["'showcase'", "99999", "'u'", "51", "'spam'", "'scam'"];
            let arguments = [first, &[NULL; 14], beyond].concat();
            let few = ["'showcase'", "1001"];
            let arguments = if beyond.is_empty() {
                &few[..]
            } else {
                &arguments
            };
            measured.push(work(&world, statement, arguments).await);
        }
        measured
    };
    let before = measured().await;
    // the newest 20,000 are blocked, by three sets of labels
    let blocked =
        "INSERT INTO moderation_label SELECT post_uri, 'spam' FROM feed_item WHERE sort_us > 4;
        INSERT INTO moderation_label SELECT post_uri, 'scam' FROM feed_item
        WHERE sort_us > 4 AND sort_us % 3 = 0;
        INSERT INTO moderation_label SELECT post_uri, 'pets' FROM feed_item
        WHERE sort_us > 4 AND sort_us % 5 = 0";
    world.raw(&(posts(5, 20_004) + blocked)).await.unwrap();
    let after = measured().await;
    for (before, after) in before.iter().zip(&after) {
        assert!(*after < before + 500, "{after} instead of {before}");
    }
    let (labels, blocked) = (["rare".to_owned()], ["spam", "scam"].map(str::to_owned));
    for (labels, set) in [
        (&[][..], None),
        (&[], Some("base1")),
        (&labels, None),
        (&labels, Some("base1")),
    ] {
        let query = FeedQuery {
            feed: "showcase",
            set,
            labels,
            blocked: &blocked,
            after: None,
            limit: 3,
        };
        let found = store.feeds().posts(&query).await.unwrap();
        let found: Vec<_> = found.iter().map(|post| post.sort_us).collect();
        assert_eq!(found, [4, 3, 2], "merged from what is not blocked");
        let query = FeedQuery {
            after: Some((2, "p2")),
            ..query
        };
        assert_eq!(
            store.feeds().posts(&query).await.unwrap()[0].sort_us,
            1,
            "the end"
        );
    }
}

/// SQLite has names of its own for the indexes behind keys.
fn sqlite_name(index: &'static str) -> &'static str {
    match index {
        "sitemap_url_pkey" => "INTEGER PRIMARY KEY",
        "sitemap_url_loc_key" => "sqlite_autoindex_sitemap_url_1",
        "suggestion_pkey" => "sqlite_autoindex_suggestion_1",
        "account_pkey" => "sqlite_autoindex_account_1",
        "account_did_key" => "sqlite_autoindex_account_2",
        "account_handle_key" => "sqlite_autoindex_account_3",
        "podcast_pkey" => "sqlite_autoindex_podcast_1",
        "age_session_pkey" => "sqlite_autoindex_age_session_1",
        "age_event_pkey" => "sqlite_autoindex_age_event_1",
        "age_user_pkey" => "sqlite_autoindex_age_user_1",
        named => named,
    }
}

/// The plan that PostgreSQL makes for any arguments, and may keep.
async fn postgres_generic_plan(url: &str, statement: &str, arguments: &[&str]) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let setting = "SET plan_cache_mode = force_generic_plan";
    sqlx::query(setting).execute(&mut connection).await.unwrap();
    let prepare = AssertSqlSafe(format!("PREPARE look_up AS {statement}"));
    sqlx::raw_sql(prepare)
        .execute(&mut connection)
        .await
        .unwrap();
    let places = (1..=32)
        .rev()
        .find(|place| statement.contains(&format!("${place}")))
        .unwrap();
    let mut arguments = arguments.to_vec();
    arguments.resize(places, NULL);
    let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE look_up({})", arguments.join(", ")));
    let rows = sqlx::query(explain)
        .fetch_all(&mut connection)
        .await
        .unwrap();
    rows.iter()
        .map(|row| row.get::<String, _>(0))
        .collect::<Vec<_>>()
        .join("\n")
}

async fn sqlite_plan(url: &str, statement: String) -> String {
    let mut connection = SqliteConnection::connect(url).await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN{statement}"));
    let rows = sqlx::query(explain)
        .fetch_all(&mut connection)
        .await
        .unwrap();
    rows.iter()
        .map(|row| row.get::<String, _>("detail"))
        .collect::<Vec<_>>()
        .join("\n")
}

async fn postgres_plan(url: &str, statement: String) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN{statement}"));
    let rows = sqlx::query(explain)
        .fetch_all(&mut connection)
        .await
        .unwrap();
    rows.iter()
        .map(|row| row.get::<String, _>(0))
        .collect::<Vec<_>>()
        .join("\n")
}
