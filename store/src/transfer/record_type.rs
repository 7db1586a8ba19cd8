//! A type of record: its members, its key, and the statements that import and export it.

use super::field::Member;

/// A type of record.
#[derive(Debug)]
pub(super) struct RecordType {
    pub(super) name: &'static str,
    pub(super) table: &'static str,
    /// Number of leading members that form the key.
    pub(super) keys: usize,
    pub(super) members: &'static [Member],
    /// The statements that import rows, in order.
    pub(super) put: &'static [Step],
    /// A page of rows after a key; the last argument is the number of rows.
    pub(super) page: &'static str,
    /// The columns of that key.
    pub(super) after: &'static [After],
    /// The message for a row that violates a constraint.
    pub(super) conflict: &'static str,
}

/// A statement for many rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Inserts or updates the table's rows, except these columns of existing ones.
    Put(&'static [&'static str]),
    /// Deletes the table's rows.
    Delete,
    Run(&'static str, Rows),
    /// Finds a row only if the rows must be refused, with this message.
    Check(&'static str, Rows, &'static str),
}

/// A column of the key of a page.
#[derive(Debug, Clone, Copy)]
pub(super) enum After {
    Text(&'static str),
    Int(&'static str),
}

/// The rows that a statement takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rows {
    All,
    /// The rows that have this list.
    With(&'static str),
    /// A row for each item of this list, with its rank and the record's key.
    Each(&'static str),
}

impl RecordType {
    /// The columns of the key.
    pub(super) fn key(&self) -> impl Iterator<Item = &'static str> {
        self.members[..self.keys].iter().map(|member| member.column)
    }
}
