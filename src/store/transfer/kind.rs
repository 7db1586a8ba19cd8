//! The types of records: which members they have, and which statements take them.
//!
//! A member has its column's name; an instant ends in `_at` where its column ends in `_us`. To add
//! one, add it to the migration, here, and to its statement in `sql.rs`.

use super::form::{Form, Member};
use super::sql::{self, Select, Statement};

/// A type of record.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The first members tell which row it is: so many.
    pub(super) keys: usize,
    pub(super) members: &'static [Member],
    /// What puts rows where they belong, in this order.
    pub(super) put: &'static [Step],
    pub(super) delete: Statement,
    pub(super) select: Select,
    /// What it means when the database refuses a row.
    pub(super) clash: &'static str,
}

/// One statement for many rows.
#[derive(Debug)]
pub(super) enum Step {
    Run(Statement, Rows),
    /// Finds a row only if the rows can not be taken, and why.
    Check(Statement, Rows, &'static str),
}

/// Which rows it is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rows {
    All,
    /// Those that have this list.
    With(&'static str),
    /// One for each item of this list, with its rank and the record's key.
    Each(&'static str),
}

impl Kind {
    /// The columns of the key.
    pub(super) fn key(&self) -> impl Iterator<Item = &'static str> {
        self.members[..self.keys].iter().map(|member| member.column)
    }
}

use Rows::{All, Each, With};
use Step::{Check, Run};

const MODERATION_LABELS: &str = "moderation_labels";
const LABELS: Form = Form::List(&Form::Tag(128), 0, 32);
const UNTRUE: &str = "false";
const NONE: &str = "[]";
const NOT_NEWER: &str = "built_at must be later than that of every snapshot of this viewer, and \
                         none of them changes";

const PERSON: &[Member] = &[
    Member::must("name", Form::Text(128)),
    Member::may("role", Form::Text(128)),
    Member::may("group", Form::Text(128)),
    Member::may("image", Form::Https),
    Member::may("href", Form::Https),
];
const FUNDING: &[Member] =
    &[Member::must("url", Form::Https), Member::must("text", Form::Text(128))];
const TXT: &[Member] =
    &[Member::may("purpose", Form::Text(128)), Member::must("value", Form::Text(4_000))];
const TRANSCRIPT: &[Member] = &[
    Member::must("url", Form::Https),
    Member::must(
        "kind",
        Form::OneOf(&[
            "text/plain",
            "text/html",
            "text/vtt",
            "application/json",
            "application/x-subrip",
            "application/srt",
        ]),
    ),
    Member::may("language", Form::Language),
];
const SUGGESTED: &[Member] = &[
    Member::must("actor_did", Form::Did),
    Member::must("post_uri", Form::AtUri),
    Member::must("reason", Form::Id(64)),
];

/// All types, in an order in which they can be imported: a podcast comes before its episodes.
pub(super) static KINDS: [Kind; 8] = [
    Kind {
        name: "account",
        keys: 1,
        members: &[
            Member::must("user_id", Form::Uuid),
            Member::may("did", Form::Did),
            Member::may("handle", Form::Handle),
            Member::or(
                "status",
                Form::OneOf(&["active", "deactivated", "taken_down", "banned"]),
                r#""active""#,
            ),
            Member::instant("created_at", "created_us"),
        ],
        put: &[Run(sql::ACCOUNT_CLEAR, All), Run(sql::ACCOUNT_PUT, All)],
        delete: sql::ACCOUNT_DELETE,
        select: sql::ACCOUNT_SELECT,
        clash: "another account has its did or handle",
    },
    Kind {
        name: "podcast",
        keys: 1,
        members: &[
            Member::must("did", Form::Did),
            Member::may("guid", Form::Uuid),
            Member::must("title", Form::Text(255)),
            Member::must("description", Form::Text(4_000)),
            Member::must("link", Form::Https),
            Member::must("language", Form::Language),
            Member::may("author", Form::Text(255)),
            Member::must("category", Form::Text(255)),
            Member::may("subcategory", Form::Text(255)),
            Member::must("explicit", Form::Flag),
            Member::must("image_url", Form::Https),
            Member::or("kind", Form::OneOf(&["episodic", "serial"]), r#""episodic""#),
            Member::or(
                "medium",
                Form::OneOf(&["podcast", "music", "video", "film", "audiobook", "newsletter"]),
                r#""podcast""#,
            ),
            Member::or("locked", Form::Flag, "true"),
            Member::may("owner_name", Form::Text(255)),
            Member::may("owner_email", Form::Email),
            Member::may("copyright", Form::Text(255)),
            Member::or("funding", Form::List(&Form::Object(FUNDING), 0, 20), NONE),
            Member::or("persons", Form::List(&Form::Object(PERSON), 0, 50), NONE),
            Member::or("txt", Form::List(&Form::Object(TXT), 0, 20), NONE),
            Member::or("complete", Form::Flag, UNTRUE),
            Member::or("block", Form::Flag, UNTRUE),
            Member::may("new_feed_url", Form::Https),
            Member::or("status", Form::OneOf(&["active", "taken_down"]), r#""active""#),
            Member::instant("updated_at", "updated_us"),
        ],
        put: &[
            Check(
                sql::PODCAST_WITHOUT_GUID,
                All,
                "guid is missing, and there is no base URL to make it from",
            ),
            Run(sql::PODCAST_PUT, All),
        ],
        delete: sql::PODCAST_DELETE,
        select: sql::PODCAST_SELECT,
        clash: "another podcast has its guid",
    },
    Kind {
        name: "episode",
        keys: 1,
        members: &[
            Member::must("id", Form::Id(128)),
            Member::must("did", Form::Did),
            Member::must("guid", Form::Id(255)),
            Member::must("title", Form::Text(255)),
            Member::must("description_html", Form::Text(65_536)),
            Member::may("link", Form::Https),
            Member::must("enclosure_url", Form::Https),
            Member::must("enclosure_length", Form::Whole("bytes")),
            Member::must(
                "enclosure_type",
                Form::OneOf(&[
                    "audio/mpeg",
                    "audio/mp4",
                    "audio/m4a",
                    "audio/x-m4a",
                    "audio/ogg",
                    "video/mp4",
                    "video/m4v",
                    "video/x-m4v",
                    "video/quicktime",
                ]),
            ),
            Member::may("duration_s", Form::Whole("seconds")),
            Member::instant("published_at", "published_us"),
            Member::may("season", Form::Whole("seasons")),
            Member::may("number", Form::Whole("episodes")),
            Member::or("kind", Form::OneOf(&["full", "trailer", "bonus"]), r#""full""#),
            Member::may("explicit", Form::Flag),
            Member::may("image_url", Form::Https),
            Member::or("transcripts", Form::List(&Form::Object(TRANSCRIPT), 0, 20), NONE),
            Member::or("persons", Form::List(&Form::Object(PERSON), 0, 50), NONE),
            Member::may("chapters_url", Form::Https),
            Member::may("social_uri", Form::AtUri),
            Member::or(
                "visibility",
                Form::OneOf(&["public", "hidden", "members", "draft"]),
                r#""public""#,
            ),
            Member::instant("updated_at", "updated_us"),
        ],
        put: &[
            Check(sql::EPISODE_ALONE, All, "did is no podcast's: import that first"),
            Run(sql::EPISODE_PUT, All),
        ],
        delete: sql::EPISODE_DELETE,
        select: sql::EPISODE_SELECT,
        clash: "another episode of the podcast has its guid or enclosure_url",
    },
    Kind {
        name: "feed_item",
        keys: 2,
        members: &[
            Member::must(
                "feed",
                Form::OneOf(&[
                    "trade-listings",
                    "collection-posts",
                    "fresh-pulls",
                    "showcase",
                    "journals",
                    "card-reviews",
                ]),
            ),
            Member::must("post_uri", Form::AtUri),
            Member::may("record_uri", Form::AtUri),
            Member::must("author_did", Form::Did),
            Member::may("set_code", Form::Tag(64)),
            Member::instant("sort_at", "sort_us"),
            Member::or("hidden", Form::Flag, UNTRUE),
            Member::or("labels", LABELS, NONE),
            Member::may(MODERATION_LABELS, LABELS),
        ],
        put: &[
            Run(sql::FEED_ITEM_PUT, All),
            Run(sql::FEED_LABEL_CLEAR, All),
            Run(sql::FEED_LABEL_PUT, Each("labels")),
            Run(sql::MODERATION_CLEAR, With(MODERATION_LABELS)),
            Run(sql::MODERATION_PUT, Each(MODERATION_LABELS)),
        ],
        delete: sql::FEED_ITEM_DELETE,
        select: sql::FEED_ITEM_SELECT,
        clash: "its table does not take it",
    },
    Kind {
        name: "moderation",
        keys: 1,
        members: &[Member::must("post_uri", Form::AtUri), Member::must("labels", LABELS)],
        put: &[Run(sql::MODERATION_CLEAR, All), Run(sql::MODERATION_PUT, Each("labels"))],
        delete: sql::MODERATION_CLEAR,
        select: sql::MODERATION_SELECT,
        clash: "its table does not take it",
    },
    Kind {
        name: "suggestion",
        keys: 2,
        members: &[
            Member::must("viewer_did", Form::Viewer),
            Member::instant("built_at", "built_us"),
            Member::must("items", Form::List(&Form::Object(SUGGESTED), 1, 500)),
        ],
        put: &[
            Check(sql::SUGGESTION_OLD, Each("items"), NOT_NEWER),
            Check(sql::SUGGESTION_SHORT, All, NOT_NEWER),
            Run(sql::SUGGESTION_PUT, Each("items")),
        ],
        delete: sql::SUGGESTION_DELETE,
        select: sql::SUGGESTION_SELECT,
        clash: "its table does not take it",
    },
    Kind {
        name: "follow",
        keys: 2,
        members: &[Member::must("did", Form::Did), Member::must("subject_did", Form::Did)],
        put: &[Run(sql::FOLLOW_PUT, All)],
        delete: sql::FOLLOW_DELETE,
        select: sql::FOLLOW_SELECT,
        clash: "its table does not take it",
    },
    Kind {
        name: "page",
        keys: 1,
        members: &[
            Member::must("loc", Form::Url),
            Member::instant("lastmod_at", "lastmod_us"),
            Member::or("images", Form::List(&Form::Url, 0, 1_000), NONE),
            Member::or("indexable", Form::Flag, "true"),
        ],
        put: &[Run(sql::PAGE_UPDATE, All), Run(sql::PAGE_ADD, All)],
        delete: sql::PAGE_DELETE,
        select: sql::PAGE_SELECT,
        clash: "its table does not take it",
    },
];
