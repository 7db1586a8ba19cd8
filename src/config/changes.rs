//! What differs between two configurations, key by key, for whoever reloads one.

use super::keys::{KEYS, Key};
use std::collections::BTreeMap;
use toml::de::DeValue;

/// The value of each key as text, defaults included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values(pub(super) BTreeMap<&'static str, String>);

/// A key with another value than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key's path.
    pub key: &'static str,
    /// Its value so far.
    pub from: &'a str,
    /// Its value from now on.
    pub to: &'a str,
    /// Whether a running process takes it over, or only the next one.
    pub live: bool,
}

impl Values {
    /// The changes from these values to `new`, in the order of the keys' table.
    pub fn changes<'a>(&'a self, new: &'a Self) -> Vec<Change<'a>> {
        let text = |values: &'a Self, key: &Key| values.0.get(key.path).map_or("", String::as_str);
        KEYS.iter()
            .map(|key| Change {
                key: key.path,
                from: text(self, key),
                to: text(new, key),
                live: key.is_live(),
            })
            .filter(|change| change.from != change.to)
            .collect()
    }
}

/// A value as one line of TOML.
pub(super) fn text(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| text(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(_) => "{}".to_owned(),
    }
}
