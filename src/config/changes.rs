//! The differences between two configurations, key by key, for a reload.

use super::keys::{self, Key};
use std::collections::BTreeMap;

/// The value of each key as text, defaults included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values(pub(super) BTreeMap<&'static str, String>);

/// A key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key's path.
    pub key: &'static str,
    /// Its old value.
    pub from: &'a str,
    /// Its new value.
    pub to: &'a str,
    /// Whether a reload applies it, or only a restart.
    pub live: bool,
}

impl Values {
    /// The changes from these values to `new`, in the order of the example file.
    pub fn changes<'a>(&'a self, new: &'a Self) -> Vec<Change<'a>> {
        let text = |values: &'a Self, key: &Key| values.0.get(key.path).map_or("", String::as_str);
        keys::all()
            .map(|key| Change {
                key: key.path,
                from: text(self, key),
                to: text(new, key),
                live: key.live,
            })
            .filter(|change| change.from != change.to)
            .collect()
    }
}
