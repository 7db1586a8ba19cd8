//! One line of a file: an object of a known type, with its members as the columns of a row.

use super::field::read_members;
use super::record_type::RecordType;
use super::types::{RECORD_TYPES, types};
use serde_json::{Map, Value};
use simd_json::Buffers;
use simd_json::prelude::*;
use simd_json::tape::{self, Object};

/// A row of a table, by column.
pub(super) type Row = Map<String, Value>;

/// Objects and lists may nest this deep; no record nests deeper than 4.
pub(super) const MAX_DEPTH: usize = 64;

/// A record of a file.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) of: &'static RecordType,
    /// Whether the record deletes its row.
    pub(super) is_deletion: bool,
    pub(super) row: Row,
}

impl Record {
    /// Parses a line, or returns what is wrong with it. Duplicate members are visible in the tape,
    /// so they can be refused; `simd-json` takes half the time of `serde_json` (benches/import.rs).
    pub(super) fn parse(line: &mut [u8], buffers: &mut Buffers) -> Result<Self, String> {
        let tape = simd_json::to_tape_with_buffers(line, buffers).ok();
        let members = tape.as_ref().and_then(|tape| tape.as_value().as_object());
        let members = members.ok_or("expected one JSON object in UTF-8")?;
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
        let known = if is_deletion {
            &of.members[..of.keys]
        } else {
            of.members
        };
        let members = members
            .iter()
            .filter(|(name, _)| !matches!(*name, "type" | "delete"));
        let row = read_members(members, known).map_err(|error| error.under(of.name).to_string())?;
        Ok(Self {
            of,
            is_deletion,
            row,
        })
    }

    /// The key of a record: one statement cannot take two records with the same key.
    pub(super) fn key(&self) -> String {
        let text = |column: &str| match self.row.get(column) {
            Some(Value::String(text)) => text.clone(),
            value => value.map(Value::to_string).unwrap_or_default(),
        };
        match self.of.name {
            // a post has the same moderation labels in each feed
            "feed_item" if !self.is_deletion => text("post_uri"),
            // the snapshots of a viewer must be imported in order
            "suggestion" => text("viewer_did"),
            _ => self.of.key().map(text).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// The values of all members with this name.
fn values<'t, 'i>(members: &Object<'t, 'i>, name: &str) -> Vec<tape::Value<'t, 'i>> {
    members
        .iter()
        .filter(|(own, _)| *own == name)
        .map(|(_, value)| value)
        .collect()
}
