//! A configuration key: its path, its default, its text, and when a change is effective.
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
    pub(super) effect: Effect,
}

/// When a change is effective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// A reload applies it, and reads the files that the key names.
    Live,
    /// A value needs a restart; a reload reads the file that the key names.
    Reread,
    /// A value needs a restart; the next connection uses the file that the key names.
    Reconnect,
    /// It needs a restart, and so does the content of the file that the key names.
    Restart,
}

impl Effect {
    /// When another value is effective, as the log says it.
    pub fn of_value(self) -> &'static str {
        match self {
            Self::Live => NOW,
            Self::Reread | Self::Reconnect | Self::Restart => AFTER_RESTART,
        }
    }

    /// When another content of a named file is effective.
    pub fn of_content(self) -> &'static str {
        match self {
            Self::Live | Self::Reread => NOW,
            Self::Reconnect => "with the next connection",
            Self::Restart => AFTER_RESTART,
        }
    }
}

const NOW: &str = "now";
const AFTER_RESTART: &str = "after a restart";

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
