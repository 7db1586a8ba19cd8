//! Every key of the configuration: its path, its default and its meaning, in one table, and the
//! reasons in another.
//!
//! The reader takes defaults and known names from here, and [`example`] renders the annotated
//! `conf/portcullis.toml`, so the three cannot drift apart. Types and ranges are in `check.rs`.

use std::fmt::Write as _;

use super::suggest::closest;
use live::LIVE;

mod live;
mod reasons;
mod table;

#[cfg(test)]
pub(super) use reasons::REASONS;
pub(super) use table::{KEYS, SECTIONS};

/// The start of every environment variable that overrides a key.
pub(super) const ENV_PREFIX: &str = "PORTCULLIS__";

/// A table of the file.
#[derive(Debug)]
pub(super) struct Section {
    /// Its name as it stands in brackets.
    pub(super) path: &'static str,
    /// What it is for.
    doc: &'static str,
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// The full path, such as `gateway.listen`.
    pub(super) path: &'static str,
    /// What it is when the file does not say, as a TOML literal.
    pub(super) preset: Preset,
    /// What it means.
    doc: &'static str,
}

/// The value of a key that is not given.
#[derive(Debug)]
pub(super) enum Preset {
    /// The default.
    Default(&'static str),
    /// None, the key is required; the literal is what the example file shows.
    Required(&'static str),
}

impl Key {
    /// The TOML literal that the example file shows.
    pub(super) fn literal(&self) -> &'static str {
        match self.preset {
            Preset::Default(literal) | Preset::Required(literal) => literal,
        }
    }

    /// Whether a running process takes over a change of it, on SIGHUP.
    pub(super) fn is_live(&self) -> bool {
        LIVE.contains(&self.path)
    }

    /// The environment variable that overrides this key.
    pub(super) fn variable(&self) -> String {
        variable(self.path)
    }
}

const fn section(path: &'static str, doc: &'static str) -> Section {
    Section { path, doc }
}

const fn key(path: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key { path, preset: Preset::Default(default), doc }
}

const fn required(path: &'static str, example: &'static str, doc: &'static str) -> Key {
    Key { path, preset: Preset::Required(example), doc }
}

/// The key of this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The section of this path.
pub(super) fn find_section(path: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.path == path)
}

/// The environment variable that overrides the key of this path.
pub(super) fn variable(path: &str) -> String {
    format!("{ENV_PREFIX}{}", path.replace('.', "__").to_ascii_uppercase())
}

/// The sentence on a key that is not in the table; `shown` writes a suggested path.
pub(super) fn unknown_key(path: &str, shown: impl Fn(&str) -> String) -> String {
    let paths = || KEYS.iter().map(|key| key.path);
    if let Some(near) = closest(path, paths(), last_segment) {
        return format!("unknown key; did you mean {}?", shown(near));
    }
    match path.rsplit_once('.').and_then(|(parent, _)| find_section(parent)) {
        Some(section) => {
            let names: Vec<_> = keys_of(section).map(|key| last_segment(key.path)).collect();
            format!("unknown key; [{}] takes {}", section.path, names.join(", "))
        }
        None => format!("unknown key; the sections are {}", section_list()),
    }
}

/// The sentence on a table that is not a section.
pub(super) fn unknown_section(path: &str) -> String {
    let paths = SECTIONS.iter().map(|section| section.path);
    match closest(path, paths, last_segment) {
        Some(near) => format!("unknown section; did you mean [{near}]?"),
        None => format!("unknown section; the sections are {}", section_list()),
    }
}

fn section_list() -> String {
    SECTIONS.iter().map(|section| section.path).collect::<Vec<_>>().join(", ")
}

fn keys_of(section: &Section) -> impl Iterator<Item = &'static Key> {
    let path = section.path;
    KEYS.iter().filter(move |key| key.path.rsplit_once('.').is_some_and(|(of, _)| of == path))
}

fn last_segment(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, last)| last)
}

/// The annotated example file: every section and key with its meaning, its reason and its default.
pub fn example() -> String {
    let mut text = String::from(EXAMPLE_HEAD);
    for section in SECTIONS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n# {}\n[{}]", section.doc, section.path);
        for key in keys_of(section) {
            let live = if key.is_live() { " Taken over on SIGHUP." } else { "" };
            let name = last_segment(key.path);
            let _ = writeln!(text, "\n# {}{live}", key.doc);
            if let Some(reason) = reasons::reason(key.path) {
                let _ = writeln!(text, "# Why: {reason}");
            }
            let _ = writeln!(text, "{name} = {}", key.literal());
        }
    }
    text
}

const EXAMPLE_HEAD: &str = r#"# The configuration of Portcullis: every key, with its meaning, its default and the reason for it.
#
# Required are node.url, at least one of [gateway], [relay], [sidecar] and [admin], and the keys
# that say so. Durations ("500ms", "8s", "2m", "1h"), sizes ("100 B", "64 KiB", "4 MiB", "1 GiB")
# and amounts ("10 STRK", "0.5 STRK", "1000 fri") carry their unit. A list of one may be written as
# that one value.
# An environment variable overrides each key: PORTCULLIS__GATEWAY__LISTEN is gateway.listen.
# `portcullis check --config FILE` names every mistake at once.
"#;
