//! Rows that a document leaves out because they do not fit it, and malformed members of rows.
//!
//! One row never breaks a document for everyone. Rows that are left out are counted, and their keys
//! are logged in one line per rendering.

use portcullis_base::telemetry::Metrics;
use portcullis_filters::policy::Function;
use std::fmt::Display;

/// Keys in a log line: enough to find the writer that is at fault.
const MAX_KEYS: usize = 5;
/// Characters of a key: a stored text may have any length.
const MAX_KEY: usize = 100;

/// The rows and members that one rendering left out.
#[derive(Debug, Default)]
pub struct Skipped {
    /// How many rows and members.
    pub count: u64,
    keys: Vec<String>,
}

impl Skipped {
    /// Adds a row, or a member of one.
    pub(super) fn add(&mut self, key: impl Display) {
        self.count += 1;
        if self.keys.len() < MAX_KEYS {
            self.keys
                .push(key.to_string().chars().take(MAX_KEY).collect());
        }
    }

    /// Counts and logs the rows and members, if there are any.
    pub(super) fn report(&self, metrics: &Metrics, function: Function) {
        if self.count > 0 {
            let (name, keys) = (function.name(), self.keys.join(", "));
            metrics.sidecar.skip(function, self.count);
            log::warn!(
                "{name}: {} malformed rows or members are left out: {keys}",
                self.count
            );
        }
    }
}
