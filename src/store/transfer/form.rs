//! What a member of a record may hold: from JSON to the value of a column, and back.
//!
//! Whatever is written here is what the documents and feeds need of it: a form that a reader would
//! choke on never gets into a table. Nothing is corrected silently.

use super::syntax::{
    MAX_AT_URI, MAX_URL, is_at_uri, is_did, is_email, is_handle, is_language, is_tag, is_text,
    is_url, is_uuid, is_visible,
};
use portcullis_filters::rpc::json::Json;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What a member may hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Uuid,
    Did,
    /// A DID, or `*` for everybody else.
    Viewer,
    Handle,
    AtUri,
    /// `http` or `https`.
    Url,
    /// `https` only.
    Https,
    Email,
    Language,
    /// Visible ASCII, up to so many characters.
    Id(usize),
    /// For people, up to so many characters.
    Text(usize),
    /// What a filter compares with, in lower case, up to so many bytes.
    Tag(usize),
    OneOf(&'static [&'static str]),
    Flag,
    /// Greater than 0, of these units.
    Whole(&'static str),
    Instant,
    /// At least and at most so many of one form.
    List(&'static Form, usize, usize),
    Object(&'static [Member]),
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) column: &'static str,
    pub(super) form: Form,
    pub(super) need: Need,
}

/// What its absence means; `null` is absent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    Must,
    May,
    /// It stands for this JSON.
    Or(&'static str),
}

impl Member {
    pub(super) const fn must(name: &'static str, form: Form) -> Self {
        Self { name, column: name, form, need: Need::Must }
    }

    pub(super) const fn may(name: &'static str, form: Form) -> Self {
        Self { need: Need::May, ..Self::must(name, form) }
    }

    pub(super) const fn or(name: &'static str, form: Form, json: &'static str) -> Self {
        Self { need: Need::Or(json), ..Self::must(name, form) }
    }

    /// An instant `…_at`, in a column `…_us`.
    pub(super) const fn instant(name: &'static str, column: &'static str) -> Self {
        Self { column, ..Self::must(name, Form::Instant) }
    }
}

/// Why a member can not be taken, and where in the record it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    path: String,
    why: String,
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.path, self.why)
    }
}

impl Misfit {
    fn new(why: String) -> Self {
        Self { path: String::new(), why }
    }

    /// Found under this name or index.
    pub(super) fn under(mut self, name: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{dot}{}", self.path);
        self
    }
}

/// Takes an object apart, each member into its column. What is absent is in no column.
pub(super) fn read_members(
    members: Vec<(std::borrow::Cow<'_, str>, Json<'_>)>,
    known: &[Member],
) -> Result<Map<String, Value>, Misfit> {
    let mut row = Map::new();
    let mut seen = vec![false; known.len()];
    for (name, json) in members {
        let Some(at) = known.iter().position(|member| member.name == name) else {
            return Err(Misfit::new("is no member of it".into()).under(&shown(&name)));
        };
        if std::mem::replace(&mut seen[at], true) {
            return Err(Misfit::new("is there twice".into()).under(&name));
        }
        if json != Json::Null {
            let value = known[at].form.read(json).map_err(|misfit| misfit.under(&name))?;
            row.insert(known[at].column.to_owned(), value);
        }
    }
    for member in known {
        match member.need {
            _ if row.contains_key(member.column) => {}
            Need::Must => return Err(Misfit::new("is missing".into()).under(member.name)),
            Need::May => {}
            Need::Or(text) => {
                let json = Json::parse(text.as_bytes()).expect("a default is JSON");
                row.insert(member.column.to_owned(), member.form.read(json)?);
            }
        }
    }
    Ok(row)
}

/// A name that somebody else chose, as far as it helps.
fn shown(name: &str) -> String {
    name.chars().take(40).filter(|letter| !letter.is_control()).collect()
}

impl Form {
    /// The value of the column.
    pub(super) fn read(self, json: Json<'_>) -> Result<Value, Misfit> {
        let misfit = || Misfit::new(format!("must be {}", self.expected()));
        match (self, json) {
            (Self::Flag, Json::Bool(flag)) => Ok(i64::from(flag).into()),
            (Self::Whole(_), Json::Integer(number @ 1..)) => {
                i64::try_from(number).map(Value::from).map_err(|_| misfit())
            }
            (Self::Instant, Json::String(text)) => {
                micros(&text).map(Value::from).ok_or_else(misfit)
            }
            (Self::List(form, least, most), Json::Array(items))
                if (least..=most).contains(&items.len()) =>
            {
                let items = items.into_iter().enumerate().map(|(at, item)| {
                    form.read(item).map_err(|misfit| misfit.under(&format!("[{at}]")))
                });
                items.collect::<Result<_, _>>().map(Value::Array)
            }
            (Self::Object(known), Json::Object(members)) => {
                read_members(members, known).map(Value::Object)
            }
            (_, Json::String(text)) if self.takes(&text) => Ok(text.into_owned().into()),
            _ => Err(misfit()),
        }
    }

    /// The member of a column's number.
    pub(super) fn show_number(self, number: i64) -> Option<Value> {
        match self {
            Self::Flag => Some((number != 0).into()),
            Self::Whole(_) => Some(number.into()),
            Self::Instant => {
                let nanos = i128::from(number) * 1_000;
                let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?;
                at.format(&Rfc3339).ok().map(Value::from)
            }
            _ => None,
        }
    }

    /// Whether its column holds a number.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Flag | Self::Whole(_) | Self::Instant)
    }

    /// Whether its column holds JSON.
    pub(super) fn is_json(self) -> bool {
        matches!(self, Self::List(..) | Self::Object(_))
    }

    fn takes(self, text: &str) -> bool {
        match self {
            Self::Uuid => is_uuid(text),
            Self::Did => is_did(text),
            Self::Viewer => text == "*" || is_did(text),
            Self::Handle => is_handle(text),
            Self::AtUri => is_at_uri(text),
            Self::Url => is_url(text, &["https://", "http://"]),
            Self::Https => is_url(text, &["https://"]),
            Self::Email => is_email(text),
            Self::Language => is_language(text),
            Self::Id(most) => text.len() <= most && is_visible(text),
            Self::Text(most) => is_text(text) && text.chars().count() <= most,
            Self::Tag(most) => is_tag(text) && text.len() <= most,
            Self::OneOf(names) => names.contains(&text),
            Self::Flag | Self::Whole(_) | Self::Instant | Self::List(..) | Self::Object(_) => false,
        }
    }

    fn expected(self) -> String {
        match self {
            Self::Uuid => "a UUID in lower case".into(),
            Self::Did => "a DID, such as did:plc: and 24 characters of a-z and 2-7".into(),
            Self::Viewer => "a DID, or *".into(),
            Self::Handle => "a handle in lower case and without @, such as ann.example".into(),
            Self::AtUri => {
                format!("at://DID/COLLECTION/KEY of at most {MAX_AT_URI} bytes")
            }
            Self::Url => format!("an http or https URL of at most {MAX_URL} ASCII characters"),
            Self::Https => format!("an https URL of at most {MAX_URL} ASCII characters"),
            Self::Email => "an e-mail address".into(),
            Self::Language => "a language, such as en or pt-BR".into(),
            Self::Id(most) => format!("1 to {most} visible ASCII characters"),
            Self::Text(most) => {
                format!("text of at most {most} characters, not blank, without control characters")
            }
            Self::Tag(most) => format!(
                "1 to {most} bytes in lower case, without commas, control characters, or spaces \
                 around them"
            ),
            Self::OneOf(names) => format!("one of {}", names.join(", ")),
            Self::Flag => "true or false".into(),
            Self::Whole(units) => format!("a whole number of {units}, greater than 0"),
            Self::Instant => "an instant of RFC 3339, such as 2026-11-21T08:00:00Z".into(),
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
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(at.unix_timestamp_nanos() / 1_000).ok().filter(|micros| *micros >= 0)
}
