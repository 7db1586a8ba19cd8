//! One line of a file: an object of a known type, its members turned into the columns of a row.

use super::form::{Misfit, read_members};
use super::kind::{KINDS, Kind};
use portcullis_filters::rpc::json::Json;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// A row of a table, by column.
pub(super) type Row = Map<String, Value>;

/// One line of a file.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) kind: &'static Kind,
    /// Whether the row is to go.
    pub(super) is_deletion: bool,
    pub(super) row: Row,
}

/// Why a line is no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// It is no JSON object, or no UTF-8.
    NotAnObject,
    /// It is longer than any record.
    TooLong,
    /// Its `type` is missing, there twice, or unknown.
    Type,
    /// Its `delete` is there twice, or neither true nor false.
    Delete,
    /// A member is missing, unknown, or not what it should be.
    Member(Misfit),
    /// What is stored already does not allow it: the type, and why.
    Refused(&'static str, &'static str),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("it must be one JSON object in UTF-8"),
            Self::TooLong => f.write_str("it is longer than any record"),
            Self::Type => {
                let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
                write!(f, "type must be one of {}", names.join(", "))
            }
            Self::Delete => f.write_str("delete must be true or false"),
            Self::Member(misfit) => misfit.fmt(f),
            Self::Refused(kind, why) => write!(f, "{kind}: {why}"),
        }
    }
}

impl Record {
    /// Reads a line.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Wrong> {
        let Some(Json::Object(mut members)) = Json::parse(line) else {
            return Err(Wrong::NotAnObject);
        };
        let kind = match take(&mut members, "type").ok_or(Wrong::Type)? {
            Some(Json::String(name)) => KINDS.iter().find(|kind| kind.name == name),
            _ => None,
        };
        let kind = kind.ok_or(Wrong::Type)?;
        let is_deletion = match take(&mut members, "delete").ok_or(Wrong::Delete)? {
            Some(Json::Bool(flag)) => flag,
            None => false,
            Some(_) => return Err(Wrong::Delete),
        };
        let known = if is_deletion { &kind.members[..kind.keys] } else { kind.members };
        let row = read_members(members, known)
            .map_err(|misfit| Wrong::Member(misfit.under(kind.name)))?;
        Ok(Self { kind, is_deletion, row })
    }

    /// What must not be twice in one statement.
    pub(super) fn key(&self) -> String {
        let text = |column: &str| match self.row.get(column) {
            Some(Value::String(text)) => text.clone(),
            value => value.map(Value::to_string).unwrap_or_default(),
        };
        let columns = match self.kind.name {
            // what moderators say of a post is the same in each feed, and the snapshots of a
            // viewer are ordered
            "feed_item" if !self.is_deletion => &["post_uri"][..],
            "suggestion" => &["viewer_did"],
            _ => return self.kind.key().map(text).collect::<Vec<_>>().join("\n"),
        };
        columns.iter().copied().map(text).collect()
    }
}

/// Takes a member out, if it is there; `None` if it is there twice.
#[expect(clippy::option_option, reason = "absent is no fault, twice is one")]
fn take<'a>(members: &mut Vec<(Cow<'a, str>, Json<'a>)>, name: &str) -> Option<Option<Json<'a>>> {
    let mut found = None;
    while let Some(at) = members.iter().position(|(own, _)| own == name) {
        if found.replace(members.remove(at).1).is_some() {
            return None;
        }
    }
    Some(found)
}
