//! The statements of import and export. An import statement takes many rows as one JSON list, which
//! saves a round trip per row.
//!
//! The text is the same for both databases, except the words in braces ([`WORDS`]).

use super::field::{Member, Presence};
use super::record_type::RecordType;

/// The words in braces, for SQLite and for PostgreSQL.
const WORDS: [(&str, &str, &str); 4] = [
    // the rows `r.value` of the list `$1`
    (
        "{rows}",
        "json_each($1) AS r",
        "json_array_elements(CAST($1 AS json)) AS r",
    ),
    // a list of values, from here to `{end}`
    ("{list}", "json_group_array(", "CAST(json_agg("),
    ("{end}", ")", ") AS TEXT)"),
    ("{object}", "json_object", "json_build_object"),
];

/// The database that a statement is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The text of a statement for this database.
    pub(super) fn text(self, statement: &str) -> String {
        WORDS
            .iter()
            .fold(statement.to_owned(), |text, (word, sqlite, postgres)| {
                text.replace(
                    word,
                    match self {
                        Self::Sqlite => sqlite,
                        Self::Postgres => postgres,
                    },
                )
            })
    }
}

/// Inserts rows, or updates existing ones except for their columns `once`.
pub(super) fn put(of: &RecordType, once: &[&str]) -> String {
    let members = || of.members.iter().filter(|member| !member.field.is_labels());
    let stored = |column| {
        let [key, ..] = of.members else {
            return String::new();
        };
        let (table, key) = (of.table, key.column);
        format!("(SELECT o.{column} FROM {table} o WHERE o.{key} = r.value ->> '{key}')")
    };
    let value_of = |member: &Member| match member.presence {
        // the column allows no NULL
        Presence::Optional if once.contains(&member.column) => {
            format!("COALESCE({}, {})", stored(member.column), value(member))
        }
        _ => value(member),
    };
    let updated = members().skip(of.keys).map(|member| member.column);
    format!(
        "INSERT INTO {} ({}) SELECT {} FROM {{rows}} WHERE true ON CONFLICT ({}) DO UPDATE SET {}",
        of.table,
        list(members().map(|member| member.column.to_owned())),
        list(members().map(value_of)),
        list(of.key().map(str::to_owned)),
        list(
            updated
                .filter(|column| !once.contains(column))
                .map(|column| format!("{column} = excluded.{column}"))
        ),
    )
}

/// Deletes the rows of these keys.
pub(super) fn delete(of: &RecordType) -> String {
    format!(
        "DELETE FROM {} WHERE ({}) IN (SELECT {} FROM {{rows}})",
        of.table,
        list(of.key().map(str::to_owned)),
        list(of.members[..of.keys].iter().map(value)),
    )
}

/// The expression for a member's column in a row.
fn value(member: &Member) -> String {
    let text = format!("r.value ->> '{}'", member.column);
    if member.field.is_number() {
        format!("CAST({text} AS BIGINT)")
    } else {
        text
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// Begins a batch.
pub(super) const SAVE: &str = "SAVEPOINT batch";
/// Undoes a batch.
pub(super) const UNDO: &str = "ROLLBACK TO SAVEPOINT batch";
/// Keeps a batch.
pub(super) const KEEP: &str = "RELEASE SAVEPOINT batch";
/// SQLite only: 64 MiB of page cache. With the default of 2 MB, each row reads and writes index
/// pages of a large table on disk.
pub(super) const CACHE: &str = "PRAGMA cache_size = -65536";
/// PostgreSQL only: the timeouts of statements and of idling in this transaction.
pub(super) const TIMEOUT: &str = "SELECT set_config('statement_timeout', $1, true), \
    set_config('idle_in_transaction_session_timeout', $1, true)";

/// PostgreSQL only: statistics of the tables that an import writes.
pub(super) const ANALYZE: &str = "ANALYZE account, podcast, episode, feed_item, feed_label, \
    moderation_label, suggestion, follow, sitemap_url";

/// Clears DIDs and handles that change, as two accounts that swap theirs would conflict.
pub(super) const ACCOUNT_CLEAR: &str = "UPDATE account SET did = NULL, handle = NULL FROM {rows} \
    WHERE account.user_id = r.value ->> 'user_id' \
    AND (account.did IS DISTINCT FROM r.value ->> 'did' \
    OR account.handle IS DISTINCT FROM r.value ->> 'handle')";

/// A podcast that is new and has no guid.
pub(super) const PODCAST_WITHOUT_GUID: &str = "SELECT 1 AS found FROM {rows} \
    WHERE r.value ->> 'guid' IS NULL \
    AND NOT EXISTS (SELECT 1 FROM podcast p WHERE p.did = r.value ->> 'did') LIMIT 1";

/// A podcast that is serial, although a stored full episode has no number.
pub(super) const PODCAST_UNNUMBERED: &str = "SELECT 1 AS found FROM {rows} \
    WHERE r.value ->> 'kind' = 'serial' AND EXISTS (SELECT 1 FROM episode e \
    WHERE e.did = r.value ->> 'did' AND e.kind = 'full' AND e.number IS NULL) LIMIT 1";

/// A full episode of a serial podcast without a number.
pub(super) const EPISODE_UNNUMBERED: &str = "SELECT 1 AS found FROM {rows} \
    WHERE r.value ->> 'number' IS NULL AND r.value ->> 'kind' = 'full' \
    AND EXISTS (SELECT 1 FROM podcast p \
    WHERE p.did = r.value ->> 'did' AND p.kind = 'serial') LIMIT 1";
/// An episode that is stored with another guid.
pub(super) const EPISODE_RENAMED: &str = "SELECT 1 AS found FROM {rows} \
    WHERE EXISTS (SELECT 1 FROM episode e WHERE e.id = r.value ->> 'id' \
    AND e.guid <> r.value ->> 'guid') LIMIT 1";
/// An episode whose podcast is missing.
pub(super) const EPISODE_ALONE: &str = "SELECT 1 AS found FROM {rows} \
    WHERE NOT EXISTS (SELECT 1 FROM podcast p WHERE p.did = r.value ->> 'did') LIMIT 1";

/// Deletes the posts of these authors from all feeds. Their moderation labels stay: a post that
/// returns is still hidden.
pub(super) const AUTHOR_DELETE: &str = "DELETE FROM feed_item WHERE author_did IN \
    (SELECT r.value ->> 'author_did' FROM {rows})";

pub(super) const FEED_LABEL_CLEAR: &str = "DELETE FROM feed_label WHERE (feed, post_uri) IN \
    (SELECT r.value ->> 'feed', r.value ->> 'post_uri' FROM {rows})";
pub(super) const FEED_LABEL_PUT: &str = "INSERT INTO feed_label (feed, post_uri, label) \
    SELECT r.value ->> 'feed', r.value ->> 'post_uri', r.value ->> 'label' FROM {rows} \
    WHERE true ON CONFLICT DO NOTHING";
/// A page of items with a list of their labels.
pub(super) const FEED_ITEM_SELECT: &str = "SELECT *, CAST(NULL AS TEXT) AS moderation_labels, \
    COALESCE((SELECT {list}l.label ORDER BY l.label{end} FROM feed_label l \
    WHERE l.feed = feed_item.feed AND l.post_uri = feed_item.post_uri), '[]') AS labels \
    FROM feed_item WHERE (feed, post_uri) > ($1, $2) ORDER BY feed, post_uri LIMIT $3";

pub(super) const MODERATION_CLEAR: &str = "DELETE FROM moderation_label WHERE post_uri IN \
    (SELECT r.value ->> 'post_uri' FROM {rows})";
pub(super) const MODERATION_PUT: &str = "INSERT INTO moderation_label (post_uri, label) \
    SELECT r.value ->> 'post_uri', r.value ->> 'label' FROM {rows} \
    WHERE true ON CONFLICT DO NOTHING";
/// A page of posts with a list of their labels.
pub(super) const MODERATION_SELECT: &str = "SELECT post_uri, \
    {list}label ORDER BY label{end} AS labels FROM moderation_label \
    WHERE post_uri > $1 GROUP BY post_uri ORDER BY post_uri LIMIT $2";

/// An item that is not in the stored snapshot of its instant, although that snapshot or a newer one
/// is stored.
pub(super) const SUGGESTION_OLD: &str = "SELECT 1 AS found FROM {rows} \
    WHERE EXISTS (SELECT 1 FROM suggestion n WHERE n.viewer_did = r.value ->> 'viewer_did' \
    AND (n.snapshot_id >= CAST(r.value ->> 'built_us' AS BIGINT) \
    OR n.built_us >= CAST(r.value ->> 'built_us' AS BIGINT))) \
    AND NOT EXISTS (SELECT 1 FROM suggestion s WHERE s.viewer_did = r.value ->> 'viewer_did' \
    AND s.built_us = CAST(r.value ->> 'built_us' AS BIGINT) \
    AND s.rank = CAST(r.value ->> 'rank' AS BIGINT) AND s.actor_did = r.value ->> 'actor_did' \
    AND s.post_uri = r.value ->> 'post_uri' AND s.reason = r.value ->> 'reason') LIMIT 1";
/// A snapshot that has fewer items than the stored one of its instant.
pub(super) const SUGGESTION_SHORT: &str = "SELECT 1 AS found FROM {rows} \
    WHERE EXISTS (SELECT 1 FROM suggestion s WHERE s.viewer_did = r.value ->> 'viewer_did' \
    AND s.built_us = CAST(r.value ->> 'built_us' AS BIGINT) \
    AND s.rank > json_array_length(r.value -> 'items')) LIMIT 1";
/// Inserts the items of new snapshots; the checks above found stored ones equal.
pub(super) const SUGGESTION_PUT: &str = "INSERT INTO suggestion \
    (viewer_did, snapshot_id, rank, actor_did, post_uri, reason, built_us) \
    SELECT r.value ->> 'viewer_did', CAST(r.value ->> 'built_us' AS BIGINT), \
    CAST(r.value ->> 'rank' AS BIGINT), r.value ->> 'actor_did', r.value ->> 'post_uri', \
    r.value ->> 'reason', CAST(r.value ->> 'built_us' AS BIGINT) FROM {rows} \
    WHERE NOT EXISTS (SELECT 1 FROM suggestion s WHERE s.viewer_did = r.value ->> 'viewer_did' \
    AND s.built_us = CAST(r.value ->> 'built_us' AS BIGINT))";
/// A page of snapshots with a list of their items.
pub(super) const SUGGESTION_SELECT: &str = "SELECT viewer_did, snapshot_id, \
    max(built_us) AS built_us, {list}{object}('actor_did', actor_did, 'post_uri', post_uri, \
    'reason', reason) ORDER BY rank{end} AS items FROM suggestion \
    WHERE (viewer_did, snapshot_id) > ($1, $2) \
    GROUP BY viewer_did, snapshot_id ORDER BY viewer_did, snapshot_id LIMIT $3";

pub(super) const FOLLOW_PUT: &str = "INSERT INTO follow (did, subject_did) \
    SELECT r.value ->> 'did', r.value ->> 'subject_did' FROM {rows} \
    WHERE true ON CONFLICT DO NOTHING";
pub(super) const FOLLOW_SELECT: &str = "SELECT did, subject_did FROM follow \
    WHERE (did, subject_did) > ($1, $2) ORDER BY did, subject_did LIMIT $3";

/// Updates existing pages: an insert would use up ids.
pub(super) const PAGE_UPDATE: &str = "UPDATE sitemap_url \
    SET lastmod_us = CAST(r.value ->> 'lastmod_us' AS BIGINT), images = r.value ->> 'images', \
    indexable = CAST(r.value ->> 'indexable' AS BIGINT) FROM {rows} \
    WHERE sitemap_url.loc = r.value ->> 'loc'";
/// Inserts the pages that do not exist yet.
pub(super) const PAGE_ADD: &str = "INSERT INTO sitemap_url (loc, lastmod_us, images, indexable) \
    SELECT r.value ->> 'loc', CAST(r.value ->> 'lastmod_us' AS BIGINT), r.value ->> 'images', \
    CAST(r.value ->> 'indexable' AS BIGINT) FROM {rows} \
    WHERE NOT EXISTS (SELECT 1 FROM sitemap_url s WHERE s.loc = r.value ->> 'loc')";
pub(super) const PAGE_SELECT: &str = "SELECT id, loc, lastmod_us, images, indexable \
    FROM sitemap_url WHERE id > $1 ORDER BY id LIMIT $2";
