//! The types of records: their members, and the statements that import and export them.
//!
//! A member has the name of its column; an instant ends in `_at` where its column ends in `_us`. To
//! add a member, add it to a migration and to this table; a member of a suggestion or a page also
//! to the statements in `sql.rs`.

use super::field::FieldType::{self, Count, Flag, Id, List, Object, OneOf, Tag, Text};
use super::field::{
    AT_URI, DID, EMAIL, GEO, HANDLE, HTTPS, LANGUAGE, Member, OSM, URL, UUID, VIEWER,
};
use super::record_type::Rows::{All, Each, With};
use super::record_type::Step::{Check, Put, Run};
use super::record_type::{After, RecordType};
use super::sql;

/// The names of all types, in an order that imports them.
pub fn types() -> impl Iterator<Item = &'static str> {
    RECORD_TYPES.iter().map(|of| of.name)
}

const MODERATION_LABELS: &str = "moderation_labels";
const LABELS: FieldType = List(&Tag(128), 0, 32);
const FALSE: &str = "0";
const TRUE: &str = "1";
const EMPTY: &str = "[]";
const NOT_NEWER: &str = "built_at must be later than in every snapshot of this viewer: snapshots \
                         never change";

const PERSON: &[Member] = &[
    Member::required("name", Text(128)),
    Member::optional("role", Text(128)),
    Member::optional("group", Text(128)),
    Member::optional("image", HTTPS),
    Member::optional("href", HTTPS),
];
const CATEGORY: &[Member] = &[
    Member::required("category", Text(255)),
    Member::optional("subcategory", Text(255)),
];
const LOCATION: &[Member] = &[
    Member::required("name", Text(128)),
    Member::optional("rel", OneOf(&["subject", "creator"])),
    Member::optional("geo", GEO),
    Member::optional("osm", OSM),
];
const FUNDING: &[Member] = &[
    Member::required("url", HTTPS),
    Member::required("text", Text(128)),
];
const TXT: &[Member] = &[
    Member::optional("purpose", Text(128)),
    Member::required("value", Text(4_000)),
];
const TRANSCRIPT: &[Member] = &[
    Member::required("url", HTTPS),
    Member::required(
        "kind",
        OneOf(&[
            "text/plain",
            "text/html",
            "text/vtt",
            "application/json",
            "application/x-subrip",
            "application/srt",
        ]),
    ),
    Member::optional("language", LANGUAGE),
    Member::optional("rel", OneOf(&["captions"])),
];
const SUGGESTED: &[Member] = &[
    Member::required("actor_did", DID),
    Member::required("post_uri", AT_URI),
    Member::required("reason", Id(64)),
];

/// All types, in an order that imports them: podcasts before their episodes.
pub(super) static RECORD_TYPES: [RecordType; 8] = [
    RecordType {
        name: "account",
        table: "account",
        keys: 1,
        members: &[
            Member::required("user_id", UUID),
            Member::optional("did", DID),
            Member::optional("handle", HANDLE),
            Member::default(
                "status",
                OneOf(&["active", "deactivated", "taken_down", "banned"]),
                r#""active""#,
            ),
            Member::instant("created_at", "created_us"),
        ],
        put: &[Run(sql::ACCOUNT_CLEAR, All), Put(&[])],
        page: "SELECT * FROM account WHERE user_id > $1 ORDER BY user_id LIMIT $2",
        after: &[After::Text("user_id")],
        conflict: "another account has its did or handle",
    },
    RecordType {
        name: "podcast",
        table: "podcast",
        keys: 1,
        members: &[
            Member::required("did", DID),
            Member::optional("guid", UUID),
            Member::required("title", Text(255)),
            Member::required("description", Text(4_000)),
            Member::required("link", HTTPS),
            Member::required("language", LANGUAGE),
            Member::optional("author", Text(255)),
            Member::required("category", Text(255)),
            Member::optional("subcategory", Text(255)),
            Member::default("categories", List(&Object(CATEGORY), 0, 8), EMPTY),
            Member::required("explicit", Flag),
            Member::required("image_url", HTTPS),
            Member::default("kind", OneOf(&["episodic", "serial"]), r#""episodic""#),
            Member::default(
                "medium",
                OneOf(&[
                    "podcast",
                    "music",
                    "video",
                    "film",
                    "audiobook",
                    "newsletter",
                ]),
                r#""podcast""#,
            ),
            Member::default("locked", Flag, TRUE),
            Member::optional("owner_name", Text(255)),
            Member::optional("owner_email", EMAIL),
            Member::optional("copyright", Text(255)),
            Member::optional("license", Text(128)),
            Member::optional("license_url", HTTPS),
            Member::default("locations", List(&Object(LOCATION), 0, 8), EMPTY),
            Member::default("funding", List(&Object(FUNDING), 0, 20), EMPTY),
            Member::default("persons", List(&Object(PERSON), 0, 50), EMPTY),
            Member::default("txt", List(&Object(TXT), 0, 20), EMPTY),
            Member::default("complete", Flag, FALSE),
            Member::default("block", Flag, FALSE),
            Member::optional("new_feed_url", HTTPS),
            Member::default("status", OneOf(&["active", "taken_down"]), r#""active""#),
            Member::instant("updated_at", "updated_us"),
        ],
        put: &[
            Check(
                sql::PODCAST_WITHOUT_GUID,
                All,
                "guid is missing, and no base URL is set to derive it from",
            ),
            Check(
                sql::PODCAST_UNNUMBERED,
                All,
                "kind is serial, but a stored full episode has no number: number it first",
            ),
            Put(&["guid"]),
        ],
        page: "SELECT * FROM podcast WHERE did > $1 ORDER BY did LIMIT $2",
        after: &[After::Text("did")],
        conflict: "another podcast has its guid",
    },
    RecordType {
        name: "episode",
        table: "episode",
        keys: 1,
        members: &[
            Member::required("id", Id(128)),
            Member::required("did", DID),
            Member::required("guid", Id(255)),
            Member::required("title", Text(255)),
            Member::required("description_html", Text(65_536)),
            Member::optional("link", HTTPS),
            Member::required("enclosure_url", HTTPS),
            Member::required("enclosure_length", Count("bytes")),
            Member::required(
                "enclosure_type",
                OneOf(&[
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
            Member::optional("duration_s", Count("seconds")),
            Member::instant("published_at", "published_us"),
            Member::optional("season", Count("seasons")),
            Member::optional("number", Count("episodes")),
            Member::default("kind", OneOf(&["full", "trailer", "bonus"]), r#""full""#),
            Member::optional("explicit", Flag),
            Member::optional("image_url", HTTPS),
            Member::default("transcripts", List(&Object(TRANSCRIPT), 0, 20), EMPTY),
            Member::default("persons", List(&Object(PERSON), 0, 50), EMPTY),
            Member::optional("chapters_url", HTTPS),
            Member::optional("social_uri", AT_URI),
            Member::default(
                "visibility",
                OneOf(&["public", "hidden", "members", "draft"]),
                r#""public""#,
            ),
            Member::instant("updated_at", "updated_us"),
        ],
        put: &[
            Check(
                sql::EPISODE_ALONE,
                All,
                "no podcast has its did: import the podcast first",
            ),
            Check(
                sql::EPISODE_UNNUMBERED,
                All,
                "number is missing: the podcast is serial",
            ),
            Check(
                sql::EPISODE_RENAMED,
                All,
                "guid differs from the stored one: it never changes",
            ),
            Put(&["guid"]),
        ],
        page: "SELECT * FROM episode WHERE id > $1 ORDER BY id LIMIT $2",
        after: &[After::Text("id")],
        conflict: "another episode of the podcast has its guid or enclosure_url",
    },
    RecordType {
        name: "feed_item",
        table: "feed_item",
        keys: 2,
        members: &[
            Member::required(
                "feed",
                OneOf(&[
                    "trade-listings",
                    "collection-posts",
                    "fresh-pulls",
                    "showcase",
                    "journals",
                    "card-reviews",
                ]),
            ),
            Member::required("post_uri", AT_URI),
            Member::optional("record_uri", AT_URI),
            Member::required("author_did", DID),
            Member::optional("set_code", Tag(64)),
            Member::instant("sort_at", "sort_us"),
            Member::default("hidden", Flag, FALSE),
            Member::default("labels", LABELS, EMPTY),
            Member::optional(MODERATION_LABELS, LABELS),
        ],
        put: &[
            Put(&[]),
            Run(sql::FEED_LABEL_CLEAR, All),
            Run(sql::FEED_LABEL_PUT, Each("labels")),
            Run(sql::MODERATION_CLEAR, With(MODERATION_LABELS)),
            Run(sql::MODERATION_PUT, Each(MODERATION_LABELS)),
        ],
        page: sql::FEED_ITEM_SELECT,
        after: &[After::Text("feed"), After::Text("post_uri")],
        conflict: "it violates a constraint of its table",
    },
    RecordType {
        name: "moderation",
        table: "moderation_label",
        keys: 1,
        members: &[
            Member::required("post_uri", AT_URI),
            Member::required("labels", LABELS),
        ],
        put: &[
            Run(sql::MODERATION_CLEAR, All),
            Run(sql::MODERATION_PUT, Each("labels")),
        ],
        page: sql::MODERATION_SELECT,
        after: &[After::Text("post_uri")],
        conflict: "it violates a constraint of its table",
    },
    RecordType {
        name: "suggestion",
        table: "suggestion",
        keys: 2,
        members: &[
            Member::required("viewer_did", VIEWER),
            Member::instant("built_at", "built_us"),
            Member::required("items", List(&Object(SUGGESTED), 1, 500)),
        ],
        put: &[
            Check(sql::SUGGESTION_OLD, Each("items"), NOT_NEWER),
            Check(sql::SUGGESTION_SHORT, All, NOT_NEWER),
            Run(sql::SUGGESTION_PUT, Each("items")),
        ],
        page: sql::SUGGESTION_SELECT,
        after: &[After::Text("viewer_did"), After::Int("snapshot_id")],
        conflict: "it violates a constraint of its table",
    },
    RecordType {
        name: "follow",
        table: "follow",
        keys: 2,
        members: &[
            Member::required("did", DID),
            Member::required("subject_did", DID),
        ],
        put: &[Run(sql::FOLLOW_PUT, All)],
        page: sql::FOLLOW_SELECT,
        after: &[After::Text("did"), After::Text("subject_did")],
        conflict: "it violates a constraint of its table",
    },
    RecordType {
        name: "page",
        table: "sitemap_url",
        keys: 1,
        members: &[
            Member::required("loc", URL),
            Member::instant("lastmod_at", "lastmod_us"),
            Member::default("images", List(&URL, 0, 1_000), EMPTY),
            Member::default("indexable", Flag, TRUE),
        ],
        put: &[Run(sql::PAGE_UPDATE, All), Run(sql::PAGE_ADD, All)],
        page: sql::PAGE_SELECT,
        after: &[After::Int("id")],
        conflict: "it violates a constraint of its table",
    },
];
