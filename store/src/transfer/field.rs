//! The types of members: from JSON to the value of a column, and back.
//!
//! Values that a reader of the tables cannot use are refused; nothing is corrected silently.

use crate::syntax::{
    is_at_uri, is_did, is_domain, is_email, is_geo, is_language, is_osm, is_tag, is_text, is_url,
    is_uuid, is_visible,
};
use FieldType::Syntax;
use serde_json::{Map, Value};
use simd_json::prelude::*;
use simd_json::tape;
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The type of a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldType {
    /// Text of a syntax: its description for errors, and its check.
    Syntax(&'static str, fn(&str) -> bool),
    /// Visible ASCII, at most this many characters.
    Id(usize),
    /// Text for people, at most this many characters.
    Text(usize),
    /// Text that filters compare, in lower case, at most this many bytes.
    Tag(usize),
    OneOf(&'static [&'static str]),
    /// A URL that import takes with https only.
    Https,
    Flag,
    /// An integer greater than 0, of this unit.
    Count(&'static str),
    Instant,
    /// Items of one type, at least and at most this many.
    List(&'static FieldType, usize, usize),
    Object(&'static [Member]),
}

pub(super) const UUID: FieldType = Syntax("a UUID in lower case", is_uuid);
pub(super) const DID: FieldType = Syntax(
    "a DID, such as did:plc: and 24 characters of a-z and 2-7",
    is_did,
);
/// `*` means all viewers without a snapshot of their own.
pub(super) const VIEWER: FieldType = Syntax("a DID, or *", |text| text == "*" || is_did(text));
pub(super) const HANDLE: FieldType = Syntax(
    "a handle in lower case and without @, such as ann.example",
    is_domain,
);
pub(super) const AT_URI: FieldType =
    Syntax("at://DID/COLLECTION/KEY of at most 700 bytes", is_at_uri);
pub(super) const URL: FieldType = Syntax(
    "an http or https URL of at most 2047 ASCII characters",
    |text| is_url(text, &["https://", "http://"]),
);
pub(super) const HTTPS: FieldType = FieldType::Https;
pub(super) const EMAIL: FieldType = Syntax("an e-mail address", is_email);
pub(super) const GEO: FieldType = Syntax("a geo URI, such as geo:48.85,2.35", is_geo);
pub(super) const OSM: FieldType = Syntax("an OpenStreetMap object, such as R113314", is_osm);
pub(super) const LANGUAGE: FieldType = Syntax("a language, such as en or pt-BR", is_language);

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) column: &'static str,
    pub(super) field: FieldType,
    pub(super) presence: Presence,
}

/// Whether a member may be absent; `null` is absent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Presence {
    Required,
    Optional,
    /// The column has this value, in JSON, if the member is absent.
    Default(&'static str),
}

impl Member {
    pub(super) const fn required(name: &'static str, field: FieldType) -> Self {
        Self {
            name,
            column: name,
            field,
            presence: Presence::Required,
        }
    }

    pub(super) const fn optional(name: &'static str, field: FieldType) -> Self {
        Self {
            presence: Presence::Optional,
            ..Self::required(name, field)
        }
    }

    pub(super) const fn default(
        name: &'static str,
        field: FieldType,
        column: &'static str,
    ) -> Self {
        Self {
            presence: Presence::Default(column),
            ..Self::required(name, field)
        }
    }

    /// An instant `…_at` in a column `…_us`.
    pub(super) const fn instant(name: &'static str, column: &'static str) -> Self {
        Self {
            column,
            ..Self::required(name, FieldType::Instant)
        }
    }
}

/// A mistake in a member, and its path in the record.
#[derive(Debug, Error)]
#[error("{path} {why}")]
pub(super) struct MemberError {
    path: String,
    why: String,
}

impl MemberError {
    fn new(path: &str, why: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            why: why.into(),
        }
    }

    /// Prefixes the path with this name or index.
    pub(super) fn under(mut self, name: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{name}{dot}{}", self.path);
        self
    }
}

/// Reads the members of an object into their columns. An absent member has no column.
pub(super) fn read_members<'t, 'i: 't>(
    members: impl Iterator<Item = (&'i str, tape::Value<'t, 'i>)>,
    known: &[Member],
) -> Result<Map<String, Value>, MemberError> {
    let mut row = Map::new();
    let mut seen = vec![false; known.len()];
    for (name, json) in members {
        let Some(at) = known.iter().position(|member| member.name == name) else {
            return Err(MemberError::new(&printable(name), "is unknown"));
        };
        if std::mem::replace(&mut seen[at], true) {
            return Err(MemberError::new(name, "is duplicated"));
        }
        if json.as_null().is_none() {
            let value = known[at]
                .field
                .read(json)
                .map_err(|error| error.under(name))?;
            row.insert(known[at].column.to_owned(), value);
        }
    }
    for member in known {
        match member.presence {
            _ if row.contains_key(member.column) => {}
            Presence::Required => return Err(MemberError::new(member.name, "is missing")),
            Presence::Optional => {}
            Presence::Default(json) => {
                let value = serde_json::from_str(json).expect("a default is JSON");
                row.insert(member.column.to_owned(), value);
            }
        }
    }
    Ok(row)
}

/// The beginning of an unknown name, without control characters.
fn printable(name: &str) -> String {
    name.chars()
        .take(40)
        .filter(|letter| !letter.is_control())
        .collect()
}

impl FieldType {
    /// Converts JSON to the value of the column.
    fn read(self, json: tape::Value<'_, '_>) -> Result<Value, MemberError> {
        let error = || MemberError::new("", format!("must be {}", self.expected()));
        match self {
            Self::Flag => json.as_bool().map(|flag| i64::from(flag).into()),
            Self::Count(_) => json.as_i64().filter(|number| *number > 0).map(Value::from),
            Self::Instant => json.as_str().and_then(micros).map(Value::from),
            Self::List(item, least, most) => {
                let items = json
                    .as_array()
                    .filter(|list| (least..=most).contains(&list.len()));
                let items = items.ok_or_else(error)?;
                let items = items.iter().enumerate().map(|(at, json)| {
                    item.read(json)
                        .map_err(|error| error.under(&format!("[{at}]")))
                });
                return items.collect::<Result<_, _>>().map(Value::Array);
            }
            Self::Object(known) => {
                let members = json.as_object().ok_or_else(error)?;
                return read_members(members.iter(), known).map(Value::Object);
            }
            _ => json
                .as_str()
                .filter(|text| self.accepts(text))
                .map(Value::from),
        }
        .ok_or_else(error)
    }

    /// Converts a column's number to the JSON of the member.
    pub(super) fn show_number(self, number: i64) -> Option<Value> {
        match self {
            Self::Flag => Some((number != 0).into()),
            Self::Count(_) => Some(number.into()),
            Self::Instant => {
                let nanos = i128::from(number) * 1_000;
                let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?;
                at.format(&Rfc3339).ok().map(Value::from)
            }
            _ => None,
        }
    }

    /// Whether the member's column holds a number.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Flag | Self::Count(_) | Self::Instant)
    }

    /// Whether the member's column holds JSON.
    pub(super) fn is_json(self) -> bool {
        matches!(self, Self::List(..) | Self::Object(_))
    }

    /// Whether the member is a list of labels, which have tables of their own.
    pub(super) fn is_labels(self) -> bool {
        matches!(self, Self::List(Self::Tag(_), ..))
    }

    /// Whether a document may show this text, which a writer of the tables may have stored past the
    /// import: as import accepts it, except that an http URL works as well and that documents cut
    /// long text.
    pub(super) fn shows(self, text: &str) -> bool {
        match self {
            Self::Https => is_url(text, &["https://", "http://"]),
            Self::Text(_) => !text.trim().is_empty(),
            _ => self.accepts(text),
        }
    }

    fn accepts(self, text: &str) -> bool {
        match self {
            Self::Syntax(_, is) => is(text),
            Self::Id(most) => text.len() <= most && is_visible(text),
            Self::Text(most) => is_text(text) && text.chars().count() <= most,
            Self::Tag(most) => is_tag(text) && text.len() <= most,
            Self::OneOf(names) => names.contains(&text),
            Self::Https => is_url(text, &["https://"]),
            Self::Flag | Self::Count(_) | Self::Instant | Self::List(..) | Self::Object(_) => false,
        }
    }

    fn expected(self) -> String {
        match self {
            Self::Syntax(what, _) => what.into(),
            Self::Id(most) => format!("1 to {most} visible ASCII characters"),
            Self::Text(most) => {
                format!("text of at most {most} characters, not blank, without control characters")
            }
            Self::Tag(most) => format!(
                "1 to {most} bytes in lower case, without commas, control characters, or spaces \
                 around them"
            ),
            Self::OneOf(names) => format!("one of {}", names.join(", ")),
            Self::Https => "an https URL of at most 2047 ASCII characters".into(),
            Self::Flag => "true or false".into(),
            Self::Count(units) => format!("a whole number of {units}, greater than 0"),
            Self::Instant => {
                "an RFC 3339 instant from 1970 on, such as 2026-11-21T08:00:00Z".into()
            }
            Self::List(_, 0, most) => format!("a list of at most {most}"),
            Self::List(_, least, most) => format!("a list of {least} to {most}"),
            Self::Object(members) => {
                let names: Vec<_> = members.iter().map(|member| member.name).collect();
                format!("an object of {}", names.join(", "))
            }
        }
    }
}

fn micros(text: &str) -> Option<i64> {
    // the parser takes any byte between date and time
    if !matches!(text.as_bytes().get(10), Some(b'T' | b't')) {
        return None;
    }
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(at.unix_timestamp_nanos() / 1_000)
        .ok()
        .filter(|micros| *micros >= 0)
}
