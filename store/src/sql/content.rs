//! The statements of the service endpoints. They read feeds, suggestions, accounts, podcasts and
//! the sitemap; they write age verification: sessions, the verifier's events, the status of users.
//!
//! A page of a feed starts in an index where the last one ended, and no query counts rows. It has
//! the posts of one set of moderation labels, so blocked posts are not read at all. Blocked labels
//! have 16 parameters and selected ones 10, NULL where there are fewer.

/// Excludes the blocked labels `$5` to `$20`. The expression around the label keeps it out of the
/// index search: the few labels of a post are read at once, not searched one by one.
macro_rules! unblocked {
    ($table:literal) => {
        concat!(
            "NOT EXISTS (SELECT 1 FROM moderation_label WHERE moderation_label.post_uri = ",
            $table,
            ".post_uri AND moderation_label.label || '' IN ",
            "($5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20))"
        )
    };
}

/// `$4` posts of the feed `$1` after the position `$2`, `$3`. The filter selects by the set of
/// moderation labels already; the labels are checked again, in case one is set at this moment.
macro_rules! page {
    ($table:literal, $filter:expr) => {
        concat!(
            "SELECT post_uri, sort_us FROM ",
            $table,
            " WHERE feed = $1 AND ",
            $filter,
            "hidden = 0 AND (sort_us, post_uri) < ($2, $3) AND ",
            unblocked!($table),
            " ORDER BY sort_us DESC, post_uri DESC LIMIT $4"
        )
    };
}

/// A page of the posts with one of the labels `$21` to `$30`, merged from a page per label, so that
/// a rare label costs no more than a common one.
macro_rules! labelled {
    ($filter:literal) => {
        labelled!($filter; "$21" "$22" "$23" "$24" "$25" "$26" "$27" "$28" "$29" "$30")
    };
    ($filter:literal; $first:literal $($other:literal)*) => {
        concat!(
            labelled!(under $first, $filter),
            $(" UNION ", labelled!(under $other, $filter),)*
            " ORDER BY sort_us DESC, post_uri DESC LIMIT $4"
        )
    };
    (under $label:literal, $filter:literal) => {
        concat!(
            "SELECT post_uri, sort_us FROM (",
            page!("feed_label", concat!("label = ", $label, " AND ", $filter)),
            ") AS labelled"
        )
    };
}

/// The sets of moderation labels in a feed, at most `$2`: steps from each to the next.
pub const FEED_MODERATIONS: &str = "WITH RECURSIVE found (moderation) AS ( \
    SELECT min(moderation) FROM feed_item WHERE feed = $1 AND hidden = 0 \
    UNION ALL SELECT (SELECT min(feed_item.moderation) FROM feed_item \
    WHERE feed = $1 AND hidden = 0 AND feed_item.moderation > found.moderation) \
    FROM found WHERE found.moderation IS NOT NULL) \
    SELECT moderation FROM found WHERE moderation IS NOT NULL LIMIT $2";
/// A page of a feed with the moderation labels `$21`.
pub const FEED: &str = page!("feed_item", "moderation = $21 AND ");
/// A page of a feed within the set `$22`.
pub const FEED_OF_SET: &str = page!("feed_item", "moderation = $21 AND set_code = $22 AND ");
/// A page of a feed with some labels and the moderation labels `$31`.
pub const FEED_OF_LABELS: &str = labelled!("moderation = $31 AND ");
/// A page of a feed with some labels within the set `$32`.
pub const FEED_OF_LABELS_AND_SET: &str = labelled!("moderation = $31 AND set_code = $32 AND ");

/// A viewer's newest snapshot.
pub const SNAPSHOT: &str = "SELECT snapshot_id, built_us FROM suggestion WHERE viewer_did = $1 \
    ORDER BY snapshot_id DESC, rank DESC LIMIT 1";
/// Whether a viewer has this snapshot.
pub const SNAPSHOT_AT: &str = "SELECT snapshot_id FROM suggestion WHERE viewer_did = $1 \
    AND snapshot_id = $2 LIMIT 1";
/// `$4` suggestions to the viewer `$1` from the snapshot `$2` of `$21` after the rank `$3`, without
/// accounts that the viewer follows or that were closed since the snapshot.
pub const SUGGESTIONS: &str = concat!(
    "SELECT rank, actor_did, post_uri, reason FROM suggestion ",
    "WHERE viewer_did = $21 AND snapshot_id = $2 AND rank > $3 AND actor_did <> $1 ",
    "AND NOT EXISTS (SELECT 1 FROM follow WHERE follow.did = $1 ",
    "AND follow.subject_did = suggestion.actor_did) ",
    "AND NOT EXISTS (SELECT 1 FROM account WHERE account.did = suggestion.actor_did ",
    "AND account.status <> 'active') AND ",
    unblocked!("suggestion"),
    " ORDER BY rank LIMIT $4"
);

/// All columns of an account, with the condition.
macro_rules! account {
    ($condition:literal) => {
        concat!(
            "SELECT user_id, did, handle, status FROM account WHERE ",
            $condition
        )
    };
}

/// The account of a user.
pub const ACCOUNT_OF_USER: &str = account!("user_id = $1");
/// The account with a DID.
pub const ACCOUNT_OF_DID: &str = account!("did = $1");
/// The account with a handle.
pub const ACCOUNT_OF_HANDLE: &str = account!("handle = $1");

/// A creator's podcast.
pub const PODCAST: &str = "SELECT did, guid, title, description, link, language, author, \
    category, subcategory, categories, explicit, image_url, kind, medium, locked, owner_name, \
    owner_email, copyright, license, license_url, locations, funding, persons, txt, complete, \
    block, new_feed_url, status, updated_us, removed_us FROM podcast WHERE did = $1";
/// The episodes of a podcast that are published by `$2`, each with its page, from 0. A page ends
/// once it weighs `$3`. An episode weighs the bytes that it takes in a feed, but at least `$4`: a
/// byte of its text may be escaped as six, up to `$5`, and one of its lists as three. A list of
/// more than 400,000 bytes is not read.
macro_rules! episodes_on_pages {
    () => {
        "(SELECT id, changed_us, (CAST(sum(weight) OVER ( \
         ORDER BY published_us DESC, id DESC ROWS UNBOUNDED PRECEDING) AS BIGINT) - weight) / $3 \
         AS page FROM (SELECT id, published_us, changed_us, \
         CASE WHEN text + lists < $4 THEN $4 ELSE text + lists END AS weight \
         FROM (SELECT id, published_us, \
         CASE WHEN updated_us > published_us THEN updated_us ELSE published_us END AS changed_us, \
         CASE WHEN octet_length(description_html) > $5 / 6 THEN $5 \
         ELSE 6 * octet_length(description_html) END AS text, \
         3 * (CASE WHEN octet_length(persons) > 400000 THEN 0 ELSE octet_length(persons) END \
         + CASE WHEN octet_length(transcripts) > 400000 THEN 0 \
         ELSE octet_length(transcripts) END) \
         AS lists FROM episode \
         WHERE did = $1 AND visibility = 'public' AND published_us <= $2) AS measured) AS weighed) \
         AS placed"
    };
}
/// When one of a podcast's published episodes last changed, and the last page of its feed. The
/// arguments are those of `episodes_on_pages`.
pub const EPISODES_PUBLISHED: &str = concat!(
    "SELECT max(changed_us) AS changed_us, max(page) AS last_page FROM ",
    episodes_on_pages!()
);
/// The episodes of page `$6`, newest first.
pub const EPISODES: &str = concat!(
    "SELECT episode.id, did, guid, title, substr(description_html, 1, 65536) AS description_html, \
     link, enclosure_url, enclosure_length, enclosure_type, duration_s, episode.published_us, \
     season, number, kind, explicit, image_url, \
     CASE WHEN octet_length(transcripts) > 400000 THEN '' ELSE transcripts END AS transcripts, \
     CASE WHEN octet_length(persons) > 400000 THEN '' ELSE persons END AS persons, \
     chapters_url, social_uri, updated_us FROM ",
    episodes_on_pages!(),
    " JOIN episode ON episode.id = placed.id WHERE placed.page = $6 AND episode.did = $1 \
     AND visibility = 'public' AND published_us <= $2 \
     ORDER BY episode.published_us DESC, episode.id DESC"
);
/// When the next episode of a podcast is published after `$2`.
pub const NEXT_PUBLICATION: &str = "SELECT min(published_us) AS published_us FROM episode \
    WHERE did = $1 AND visibility = 'public' AND published_us > $2";
/// At most `$3` feeds that are served and have an episode that appeared or changed after `$1` and
/// no later than `$2`, each with its last change, latest first.
pub const FEEDS_CHANGED: &str = "SELECT did, changed_us FROM ( \
    SELECT did, max(changed_us) AS changed_us FROM ( \
    SELECT did, published_us AS changed_us FROM episode \
    WHERE visibility = 'public' AND published_us > $1 AND published_us <= $2 \
    UNION ALL SELECT did, updated_us FROM episode \
    WHERE visibility = 'public' AND updated_us > $1 AND updated_us <= $2 \
    AND published_us <= $2) AS episodes GROUP BY did) AS changed \
    WHERE (SELECT podcast.status FROM podcast WHERE podcast.did = changed.did) = 'active' \
    AND coalesce((SELECT account.status FROM account WHERE account.did = changed.did), 'active') \
    = 'active' ORDER BY changed_us DESC LIMIT $3";

/// The pages of the sitemap that have a URL, at most `$1`: steps from each to the next. No URL
/// counts for more than the weight `$2`, whatever the column has: there, the last id of page 1 has
/// the weight of a whole file.
pub const SITEMAP_PAGES: &str = "WITH RECURSIVE found (page) AS ( \
    SELECT min(page) FROM sitemap_url WHERE indexable = 1 \
    UNION ALL SELECT (SELECT min(sitemap_url.page) FROM sitemap_url \
    WHERE indexable = 1 AND sitemap_url.page > found.page) \
    FROM found WHERE found.page IS NOT NULL) \
    SELECT page, (SELECT count(*) FROM sitemap_url \
    WHERE indexable = 1 AND sitemap_url.page = found.page) AS urls, \
    (SELECT max(lastmod_us) FROM sitemap_url \
    WHERE indexable = 1 AND sitemap_url.page = found.page) AS lastmod_us, \
    (SELECT CAST(sum(CASE WHEN weight > $2 THEN $2 ELSE weight END) AS BIGINT) FROM sitemap_url \
    WHERE indexable = 1 AND sitemap_url.page = found.page) AS weight \
    FROM found WHERE page IS NOT NULL ORDER BY page LIMIT $1";
/// One page of the sitemap, in which no URL weighs more than `$2`.
pub const SITEMAP_PAGE: &str = "SELECT min(page) AS page, count(*) AS urls, \
    max(lastmod_us) AS lastmod_us, \
    CAST(sum(CASE WHEN weight > $2 THEN $2 ELSE weight END) AS BIGINT) AS weight \
    FROM sitemap_url WHERE page = $1 AND indexable = 1 HAVING count(*) > 0";
/// The stamps of all parts of a sitemap page in which no URL weighs more than `$2`. A URL is in the
/// part in which it ends. Parts weigh `$3` each up to the weight `$4`; the last part but one ends
/// at the weight `$5`, and the last has the number `$6`. The checksum changes with every id and
/// every time: each id of a page has a factor of its own, and 45,000 such products fit into 63
/// bits.
pub const SITEMAP_STAMPS: &str = "SELECT part, min(id) AS first_id, max(id) AS last_id, \
    count(*) AS urls, max(lastmod_us) AS lastmod_us, \
    CAST(sum((lastmod_us % 2147483647 + 1) * (id % 45000 + 1)) AS BIGINT) AS checksum \
    FROM (SELECT id, lastmod_us, CASE WHEN weight_end <= $4 THEN (weight_end - 1) / $3 + 1 \
    WHEN weight_end <= $5 THEN CAST($6 AS BIGINT) - 1 ELSE CAST($6 AS BIGINT) END AS part \
    FROM (SELECT id, lastmod_us, CAST(sum(CASE WHEN weight > $2 THEN $2 ELSE weight END) \
    OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS BIGINT) AS weight_end \
    FROM sitemap_url WHERE page = $1 AND indexable = 1) AS weighed) AS placed \
    GROUP BY part ORDER BY part";
/// URLs of a sitemap page after the id `$1`, up to another: at most `$3`, and none after the one
/// with which they weigh `$4` or more. The index alone answers for weights.
pub const SITEMAP_URLS: &str = "SELECT id, loc, lastmod_us, images FROM sitemap_url \
    WHERE id > $1 AND id <= (SELECT max(id) FROM (SELECT id, sum(weight) OVER \
    (ORDER BY id ROWS UNBOUNDED PRECEDING) - weight AS before FROM (SELECT id, weight \
    FROM sitemap_url WHERE page = (CAST($2 AS BIGINT) - 1) / 45000 + 1 AND id > $1 AND id <= $2 \
    AND indexable = 1 ORDER BY id LIMIT $3) AS next) AS weighed WHERE before < $4) \
    AND indexable = 1 ORDER BY id";

/// At most `$3` URLs of the sitemap from `$1` to `$2`.
pub const SITEMAP_BELOW: &str = "SELECT loc FROM sitemap_url WHERE loc >= $1 AND loc < $2 \
    AND indexable = 1 ORDER BY loc LIMIT $3";

/// The sessions of a user that limit another one: opened after `$2`, up to `$3`, or waiting for an
/// event at `$4`.
pub const AGE_SESSIONS: &str = "SELECT created_us, expires_us, last_occurred_us \
    FROM age_session WHERE user_id = $1 AND ((created_us > $2 AND created_us <= $3) \
    OR (last_occurred_us IS NULL AND expires_us > $4))";
/// Dates the sessions of a user anew, at `$2`, that are dated after `$3`; each waits as long as
/// before.
pub const AGE_SESSIONS_DATE: &str = "UPDATE age_session \
    SET created_us = $2, expires_us = $2 + expires_us - created_us \
    WHERE user_id = $1 AND created_us > $3";
/// Opens a session.
pub const AGE_SESSION_ADD: &str = "INSERT INTO age_session \
    (subject_ref, user_id, status, created_us, expires_us) VALUES ($1, $2, 'pending', $3, $4)";
/// The user of a session, which never changes.
pub const AGE_SUBJECT: &str = "SELECT user_id FROM age_session WHERE subject_ref = $1";
/// Updates a session by the event that was applied to it.
pub const AGE_SESSION_MOVE: &str = "UPDATE age_session SET status = $2, last_occurred_us = $3, \
    age_band = $4, verified_us = $5, verified_until_us = $6 WHERE subject_ref = $1";

/// The stored facts that an event may conflict with: the event of its id, and its subject if that
/// belongs to the user `$3`.
pub const AGE_EVENT_FACTS: &str = "SELECT age_event.digest, age_event.outcome, \
    age_event.status_after, age_session.status AS subject_status, \
    age_session.last_occurred_us AS subject_us FROM (SELECT 1 AS one) AS here \
    LEFT JOIN age_event ON age_event.event_id = $1 \
    LEFT JOIN age_session ON age_session.subject_ref = $2 AND age_session.user_id = $3";
/// Stores an event.
pub const AGE_EVENT_ADD: &str = "INSERT INTO age_event \
    (event_id, digest, subject_ref, status, age_band, verified_us, expires_us, occurred_us, \
    received_us, outcome, status_after) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// The sessions of a user that have a report, or that wait for one at `$2`.
pub const AGE_REPORTS: &str = "SELECT subject_ref, status, last_occurred_us, age_band, \
    verified_us, verified_until_us, created_us, expires_us FROM age_session \
    WHERE user_id = $1 AND (last_occurred_us IS NOT NULL OR expires_us > $2)";
/// Updates the age status of a user.
pub const AGE_USER_MOVE: &str = "INSERT INTO age_user \
    (user_id, status, age_band, verified_us, expires_us, last_occurred_us) \
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (user_id) DO UPDATE SET \
    status = excluded.status, age_band = excluded.age_band, verified_us = excluded.verified_us, \
    expires_us = excluded.expires_us, last_occurred_us = excluded.last_occurred_us";
