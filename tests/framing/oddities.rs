//! Unusual and malformed spellings of each part of a request, as `oddities.txt` lists them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::escape::unescape;

static ALL: LazyLock<BTreeMap<&str, Vec<&[u8]>>> = LazyLock::new(|| {
    let mut all = BTreeMap::new();
    let mut section = "";
    let lines = include_str!("oddities.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name;
            continue;
        }
        let spelling = if line == "<empty>" {
            Vec::new()
        } else {
            unescape(line)
        };
        let spellings: &mut Vec<&[u8]> = all.entry(section).or_default();
        spellings.push(spelling.leak());
    }
    all
});

/// The spellings in a section.
pub(crate) fn spellings(section: &str) -> &'static [&'static [u8]] {
    ALL.get(section).expect("a section of this name")
}
