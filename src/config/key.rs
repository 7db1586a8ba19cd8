//! A configuration key: its path, its default, its text, and whether a reload applies it.
//!
//! `section.rs` makes keys from the rows of a section.

/// The prefix of every environment variable that overrides a key.
pub(super) const ENV_PREFIX: &str = "PORTCULLIS__";
/// The prefix of every variable that may be meant to override a key.
pub(super) const NAME_PREFIX: &str = "PORTCULLIS_";

/// A table of the file.
pub(super) struct Section {
    /// Its name in brackets.
    pub(super) path: &'static str,
    /// The comment above it; empty for further keys of a section that already has one.
    pub(super) about: &'static [&'static str],
    pub(super) keys: &'static [Key],
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The full path, such as `gateway.listen`.
    pub(super) path: &'static str,
    pub(super) default: DefaultValue,
    /// The lines of the comment above it: its meaning, then the reason for its default.
    pub(super) doc: &'static [&'static str],
    /// Whether a running process applies a change on SIGHUP.
    pub(super) live: bool,
}

/// The value of a key that is not set, as a TOML literal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DefaultValue {
    Default(&'static str),
    /// No default: the key is required. The literal is what the example file shows.
    Required(&'static str),
}

impl Key {
    /// The TOML literal that the example file shows.
    pub(super) fn literal(&self) -> &'static str {
        match self.default {
            DefaultValue::Default(literal) | DefaultValue::Required(literal) => literal,
        }
    }

    /// The environment variable that overrides this key.
    pub(super) fn variable(&self) -> String {
        variable(self.path)
    }

    /// Its section's path, and its name there.
    pub(super) fn split(&self) -> (&'static str, &'static str) {
        self.path.rsplit_once('.').unwrap_or(("", self.path))
    }
}

/// The environment variable that overrides the key of this path.
pub fn variable(path: &str) -> String {
    format!(
        "{ENV_PREFIX}{}",
        path.replace('.', "__").to_ascii_uppercase()
    )
}
