//! One line of a file: an object of a known type, with its members as the columns of a row.

use super::field::read_members;
use super::record_type::RecordType;
use super::types::{RECORD_TYPES, types};
use serde_json::{Map, Value};
use simd_json::prelude::*;
use simd_json::tape::{self, Object};
use simd_json::{Buffers, ErrorType};

/// A row of a table, by column.
pub(super) type Row = Map<String, Value>;

/// Objects and lists may nest this deep; no record nests deeper than 4.
pub(super) const MAX_DEPTH: usize = 64;

/// A member that identifies all posts of an author, for their deletion.
const AUTHOR: &str = "author_did";

/// A record of a file.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) of: &'static RecordType,
    pub(super) action: Action,
    pub(super) row: Row,
}

/// The effect of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Inserts or updates the row.
    Put,
    /// Deletes the row.
    Delete,
    /// Deletes all rows of an author.
    DeleteAuthor,
}

impl Record {
    /// Parses a line, or returns what is wrong with it. Duplicate members are visible in the tape,
    /// so they can be refused; `simd-json` takes half the time of `serde_json` (benches/import.rs).
    pub(super) fn parse(line: &mut [u8], buffers: &mut Buffers) -> Result<Self, String> {
        let start = line.first_chunk().copied();
        let tape = simd_json::to_tape_with_buffers(line, buffers)
            .map_err(|error| not_an_object(start, Some(error.error())))?;
        let members = tape.as_value().as_object();
        let members = members.ok_or_else(|| not_an_object(start, None))?;
        let of = match values(&members, "type")[..] {
            [name] => RECORD_TYPES
                .iter()
                .find(|of| name.as_str() == Some(of.name)),
            _ => None,
        };
        let of = of.ok_or_else(|| {
            format!(
                "type must be one of {}",
                types().collect::<Vec<_>>().join(", ")
            )
        })?;
        let is_deletion = match values(&members, "delete")[..] {
            [] => Some(false),
            [flag] => flag.as_bool(),
            _ => None,
        };
        let is_deletion = is_deletion.ok_or("delete must be true or false")?;
        let author = of.members.iter().position(|member| member.name == AUTHOR);
        let names_author = !values(&members, AUTHOR).is_empty();
        let (action, known) = match author {
            _ if !is_deletion => (Action::Put, of.members),
            Some(at) if names_author => (Action::DeleteAuthor, &of.members[at..=at]),
            _ => (Action::Delete, &of.members[..of.keys]),
        };
        let members = members
            .iter()
            .filter(|(name, _)| !matches!(*name, "type" | "delete"));
        let row = read_members(members, known).map_err(|error| error.under(of.name).to_string())?;
        Ok(Self { of, action, row })
    }

    /// The key of a record: one statement cannot take two records with the same key.
    pub(super) fn key(&self) -> String {
        let text = |column: &str| match self.row.get(column) {
            Some(Value::String(text)) => text.clone(),
            value => value.map(Value::to_string).unwrap_or_default(),
        };
        match self.of.name {
            // a post has the same moderation labels in each feed
            "feed_item" if self.action == Action::Put => text("post_uri"),
            _ if self.action == Action::DeleteAuthor => text(AUTHOR),
            // the snapshots of a viewer must be imported in order
            "suggestion" => text("viewer_did"),
            _ => self.of.key().map(text).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// The message for a line that is no object, by its first bytes and the parser's error.
fn not_an_object(start: Option<[u8; 2]>, error: Option<&ErrorType>) -> String {
    let hint = match start {
        _ if matches!(error, Some(ErrorType::InvalidNumber)) => {
            ": a number in it is malformed, or beyond 64 bits"
        }
        Some([0xef, 0xbb]) => ": the file begins with a byte order mark, save it without",
        Some([0xff, 0xfe] | [0xfe, 0xff]) => ": the file is in UTF-16, save it in UTF-8",
        Some([b'{' | b'[', b'\n' | b'\r']) => " on each line",
        _ => "",
    };
    format!("expected one JSON object in UTF-8{hint}")
}

/// The values of all members with this name.
fn values<'t, 'i>(members: &Object<'t, 'i>, name: &str) -> Vec<tape::Value<'t, 'i>> {
    members
        .iter()
        .filter(|(own, _)| *own == name)
        .map(|(_, value)| value)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_64_bits_is_named() {
        for (line, hint) in [
            (r#"{"type":"page","lastmod_at":99999999999999999999}"#, true),
            (r#"{"type":"page","lastmod_at":}"#, false),
            (r#"{"type":"page"}"#, false),
        ] {
            let mut text = line.as_bytes().to_vec();
            let parsed = Record::parse(&mut text, &mut Buffers::default());
            let error = parsed.map(|_| ()).expect_err(line);
            let named = error.ends_with("a number in it is malformed, or beyond 64 bits");
            assert_eq!(named, hint, "{line}: {error}");
        }
    }
}
