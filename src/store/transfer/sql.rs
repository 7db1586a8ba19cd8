//! The statements of import and export. An import statement takes many rows as one JSON list, which
//! saves a round trip per row.
//!
//! The text is the same for both databases, except the functions that unfold and fold lists.

/// A statement for each database.
#[derive(Debug, Clone, Copy)]
pub(super) struct Statement {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

/// A page of a table after a key; the last argument is the number of rows.
#[derive(Debug)]
pub(super) struct Select {
    pub(super) page: Statement,
    /// The columns of the key.
    pub(super) after: &'static [After],
}

/// A column of a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum After {
    Text(&'static str),
    Int(&'static str),
}

use After::{Int, Text};

/// A statement over the rows `r.value` of the list `$1`.
macro_rules! over_rows {
    ($before:expr, $after:expr) => {
        Statement {
            sqlite: concat!($before, "json_each($1) AS r", $after),
            postgres: concat!($before, "json_array_elements(CAST($1 AS json)) AS r", $after),
        }
    };
}

/// A column of a row.
macro_rules! value {
    (text $column:ident) => {
        concat!("r.value ->> '", stringify!($column), "'")
    };
    (int $column:ident) => {
        concat!("CAST(r.value ->> '", stringify!($column), "' AS BIGINT)")
    };
    // a stored value stays
    (kept_podcast $column:ident) => {
        concat!(
            "COALESCE((SELECT p.",
            stringify!($column),
            " FROM podcast p WHERE p.did = r.value ->> 'did'), ",
            value!(text $column),
            ")"
        )
    };
}

/// Inserts rows, and updates the columns after the semicolon of existing ones.
macro_rules! put {
    (
        $table:ident, $key:literal: $kind:ident $first:ident $(, $more_kind:ident $more:ident)*
        ; $set_kind:ident $set:ident $(, $other_kind:ident $other:ident)*
    ) => {
        over_rows!(
            concat!(
                "INSERT INTO ", stringify!($table), " (", stringify!($first),
                $(", ", stringify!($more),)*
                ", ", stringify!($set), $(", ", stringify!($other),)*
                ") SELECT ", value!($kind $first),
                $(", ", value!($more_kind $more),)*
                ", ", value!($set_kind $set), $(", ", value!($other_kind $other),)*
                " FROM "
            ),
            concat!(
                " WHERE true ON CONFLICT (", $key, ") DO UPDATE SET ",
                stringify!($set), " = excluded.", stringify!($set),
                $(", ", stringify!($other), " = excluded.", stringify!($other),)*
            )
        )
    };
}

/// Inserts rows, and leaves existing ones unchanged.
macro_rules! add {
    ($table:ident: $kind:ident $first:ident $(, $more_kind:ident $more:ident)*) => {
        over_rows!(
            concat!(
                "INSERT INTO ", stringify!($table), " (", stringify!($first),
                $(", ", stringify!($more),)* ") SELECT ", value!($kind $first),
                $(", ", value!($more_kind $more),)* " FROM "
            ),
            " WHERE true ON CONFLICT DO NOTHING"
        )
    };
}

/// Deletes the rows of these keys.
macro_rules! delete {
    ($table:ident: $kind:ident $first:ident $(, $more_kind:ident $more:ident)*) => {
        over_rows!(
            concat!(
                "DELETE FROM ", stringify!($table), " WHERE (", stringify!($first),
                $(", ", stringify!($more),)* ") IN (SELECT ", value!($kind $first),
                $(", ", value!($more_kind $more),)* " FROM "
            ),
            ")"
        )
    };
}

/// A statement whose text is the same for both.
macro_rules! same {
    ($text:expr) => {
        Statement { sqlite: $text, postgres: $text }
    };
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

/// Clears names that change first, as two accounts that swap theirs would conflict.
pub(super) const ACCOUNT_CLEAR: Statement = over_rows!(
    "UPDATE account SET did = NULL, handle = NULL FROM ",
    " WHERE account.user_id = r.value ->> 'user_id' \
    AND (account.did IS DISTINCT FROM r.value ->> 'did' \
    OR account.handle IS DISTINCT FROM r.value ->> 'handle')"
);
pub(super) const ACCOUNT_PUT: Statement =
    put!(account, "user_id": text user_id; text did, text handle, text status, int created_us);
pub(super) const ACCOUNT_DELETE: Statement = delete!(account: text user_id);
pub(super) const ACCOUNT_SELECT: Select = Select {
    page: same!("SELECT * FROM account WHERE user_id > $1 ORDER BY user_id LIMIT $2"),
    after: &[Text("user_id")],
};

/// A podcast that is new and has no guid.
pub(super) const PODCAST_WITHOUT_GUID: Statement = over_rows!(
    "SELECT 1 AS found FROM ",
    " WHERE r.value ->> 'guid' IS NULL \
    AND NOT EXISTS (SELECT 1 FROM podcast p WHERE p.did = r.value ->> 'did') LIMIT 1"
);
pub(super) const PODCAST_PUT: Statement = put!(
    podcast, "did": text did, kept_podcast guid; text title, text description, text link,
    text language, text author, text category, text subcategory, int explicit, text image_url,
    text kind, text medium, int locked, text owner_name, text owner_email, text copyright,
    text funding, text persons, text txt, int complete, int block, text new_feed_url, text status,
    int updated_us
);
pub(super) const PODCAST_DELETE: Statement = delete!(podcast: text did);
pub(super) const PODCAST_SELECT: Select = Select {
    page: same!("SELECT * FROM podcast WHERE did > $1 ORDER BY did LIMIT $2"),
    after: &[Text("did")],
};

/// An episode whose podcast is missing.
pub(super) const EPISODE_ALONE: Statement = over_rows!(
    "SELECT 1 AS found FROM ",
    " WHERE NOT EXISTS (SELECT 1 FROM podcast p WHERE p.did = r.value ->> 'did') LIMIT 1"
);
pub(super) const EPISODE_PUT: Statement = put!(
    episode, "id": text id, text guid; text did, text title, text description_html, text link,
    text enclosure_url, int enclosure_length, text enclosure_type, int duration_s,
    int published_us, int season, int number, text kind, int explicit, text image_url,
    text transcripts, text persons, text chapters_url, text social_uri, text visibility,
    int updated_us
);
pub(super) const EPISODE_DELETE: Statement = delete!(episode: text id);
pub(super) const EPISODE_SELECT: Select = Select {
    page: same!("SELECT * FROM episode WHERE id > $1 ORDER BY id LIMIT $2"),
    after: &[Text("id")],
};

pub(super) const FEED_ITEM_PUT: Statement = put!(
    feed_item, "feed, post_uri": text feed, text post_uri; text record_uri, text author_did,
    text set_code, int sort_us, int hidden
);
pub(super) const FEED_ITEM_DELETE: Statement = delete!(feed_item: text feed, text post_uri);
pub(super) const FEED_LABEL_CLEAR: Statement = delete!(feed_label: text feed, text post_uri);
pub(super) const FEED_LABEL_PUT: Statement = add!(feed_label: text feed, text post_uri, text label);
/// A page of items; `$fold` makes a list of their labels.
macro_rules! feed_items {
    ($fold:literal) => {
        concat!(
            "SELECT *, CAST(NULL AS TEXT) AS moderation_labels, COALESCE((SELECT ",
            $fold,
            " FROM feed_label l WHERE l.feed = feed_item.feed AND l.post_uri = feed_item.post_uri)",
            ", '[]') AS labels FROM feed_item WHERE (feed, post_uri) > ($1, $2) ",
            "ORDER BY feed, post_uri LIMIT $3"
        )
    };
}
pub(super) const FEED_ITEM_SELECT: Select = Select {
    page: Statement {
        sqlite: feed_items!("json_group_array(l.label ORDER BY l.label)"),
        postgres: feed_items!("CAST(json_agg(l.label ORDER BY l.label) AS TEXT)"),
    },
    after: &[Text("feed"), Text("post_uri")],
};

pub(super) const MODERATION_CLEAR: Statement = delete!(moderation_label: text post_uri);
pub(super) const MODERATION_PUT: Statement = add!(moderation_label: text post_uri, text label);
/// A page of posts; `$fold` makes a list of their labels.
macro_rules! moderation {
    ($fold:literal) => {
        concat!(
            "SELECT post_uri, ",
            $fold,
            " AS labels FROM moderation_label WHERE post_uri > $1 ",
            "GROUP BY post_uri ORDER BY post_uri LIMIT $2"
        )
    };
}
pub(super) const MODERATION_SELECT: Select = Select {
    page: Statement {
        sqlite: moderation!("json_group_array(label ORDER BY label)"),
        postgres: moderation!("CAST(json_agg(label ORDER BY label) AS TEXT)"),
    },
    after: &[Text("post_uri")],
};

/// An item that is not in the stored snapshot of its instant, although that snapshot or a newer one
/// is stored.
pub(super) const SUGGESTION_OLD: Statement = over_rows!(
    "SELECT 1 AS found FROM ",
    " WHERE EXISTS (SELECT 1 FROM suggestion n WHERE n.viewer_did = r.value ->> 'viewer_did' \
    AND (n.snapshot_id >= CAST(r.value ->> 'built_us' AS BIGINT) \
    OR n.built_us >= CAST(r.value ->> 'built_us' AS BIGINT))) \
    AND NOT EXISTS (SELECT 1 FROM suggestion s WHERE s.viewer_did = r.value ->> 'viewer_did' \
    AND s.built_us = CAST(r.value ->> 'built_us' AS BIGINT) \
    AND s.rank = CAST(r.value ->> 'rank' AS BIGINT) AND s.actor_did = r.value ->> 'actor_did' \
    AND s.post_uri = r.value ->> 'post_uri' AND s.reason = r.value ->> 'reason') LIMIT 1"
);
/// A snapshot that has fewer items than the stored one of its instant.
pub(super) const SUGGESTION_SHORT: Statement = over_rows!(
    "SELECT 1 AS found FROM ",
    " WHERE EXISTS (SELECT 1 FROM suggestion s WHERE s.viewer_did = r.value ->> 'viewer_did' \
    AND s.built_us = CAST(r.value ->> 'built_us' AS BIGINT) \
    AND s.rank > json_array_length(r.value -> 'items')) LIMIT 1"
);
/// Inserts the items of new snapshots; the checks above found stored ones equal.
pub(super) const SUGGESTION_PUT: Statement = over_rows!(
    "INSERT INTO suggestion \
    (viewer_did, snapshot_id, rank, actor_did, post_uri, reason, built_us) \
    SELECT r.value ->> 'viewer_did', CAST(r.value ->> 'built_us' AS BIGINT), \
    CAST(r.value ->> 'rank' AS BIGINT), r.value ->> 'actor_did', r.value ->> 'post_uri', \
    r.value ->> 'reason', CAST(r.value ->> 'built_us' AS BIGINT) FROM ",
    " WHERE NOT EXISTS (SELECT 1 FROM suggestion s WHERE s.viewer_did = r.value ->> 'viewer_did' \
    AND s.built_us = CAST(r.value ->> 'built_us' AS BIGINT))"
);
pub(super) const SUGGESTION_DELETE: Statement = delete!(suggestion: text viewer_did, int built_us);
/// A page of snapshots: `$object` makes an item, `$fold` and `$end` a list of them.
macro_rules! suggestions {
    ($fold:literal, $object:literal, $end:literal) => {
        concat!(
            "SELECT viewer_did, snapshot_id, max(built_us) AS built_us, ",
            $fold,
            $object,
            "('actor_did', actor_did, 'post_uri', post_uri, 'reason', reason) ORDER BY rank",
            $end,
            " AS items FROM suggestion WHERE (viewer_did, snapshot_id) > ($1, $2) ",
            "GROUP BY viewer_did, snapshot_id ORDER BY viewer_did, snapshot_id LIMIT $3"
        )
    };
}
pub(super) const SUGGESTION_SELECT: Select = Select {
    page: Statement {
        sqlite: suggestions!("json_group_array(", "json_object", ")"),
        postgres: suggestions!("CAST(json_agg(", "json_build_object", ") AS TEXT)"),
    },
    after: &[Text("viewer_did"), Int("snapshot_id")],
};

pub(super) const FOLLOW_PUT: Statement = add!(follow: text did, text subject_did);
pub(super) const FOLLOW_DELETE: Statement = delete!(follow: text did, text subject_did);
pub(super) const FOLLOW_SELECT: Select = Select {
    page: same!(
        "SELECT did, subject_did FROM follow WHERE (did, subject_did) > ($1, $2) \
        ORDER BY did, subject_did LIMIT $3"
    ),
    after: &[Text("did"), Text("subject_did")],
};

/// Updates existing pages: an insert would use up ids.
pub(super) const PAGE_UPDATE: Statement = over_rows!(
    "UPDATE sitemap_url SET lastmod_us = CAST(r.value ->> 'lastmod_us' AS BIGINT), \
    images = r.value ->> 'images', indexable = CAST(r.value ->> 'indexable' AS BIGINT) FROM ",
    " WHERE sitemap_url.loc = r.value ->> 'loc'"
);
/// Inserts the others.
pub(super) const PAGE_ADD: Statement = over_rows!(
    "INSERT INTO sitemap_url (loc, lastmod_us, images, indexable) \
    SELECT r.value ->> 'loc', CAST(r.value ->> 'lastmod_us' AS BIGINT), r.value ->> 'images', \
    CAST(r.value ->> 'indexable' AS BIGINT) FROM ",
    " WHERE NOT EXISTS (SELECT 1 FROM sitemap_url s WHERE s.loc = r.value ->> 'loc')"
);
pub(super) const PAGE_DELETE: Statement = delete!(sitemap_url: text loc);
pub(super) const PAGE_SELECT: Select = Select {
    page: same!(
        "SELECT id, loc, lastmod_us, images, indexable FROM sitemap_url \
        WHERE id > $1 ORDER BY id LIMIT $2"
    ),
    after: &[Int("id")],
};
