//! The mistakes in a configuration, each with its place and the accepted values.
//!
//! The texts are for the operator's terminal. Values are quoted and cut to one short line.

use std::path::PathBuf;
use std::{fmt, io};

use super::DEFAULT_PATHS;
use portcullis_filters::nearest::nearest;
use thiserror::Error;

/// The length to which a message shortens a value, in characters.
const SHOWN: usize = 60;

/// Where a value is set. Errors are listed in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A place in the file, counted from 1.
    File {
        /// The line.
        line: usize,
        /// The character in the line.
        column: usize,
    },
    /// The environment variable of this name.
    Variable(String),
    /// No place: the key has its default, or is missing.
    Absent,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The key's full path (`gateway.listen`); empty for a mistake in the TOML itself.
    pub key: String,
    /// Where the value is set.
    pub origin: Origin,
    /// The mistake, and the accepted values.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File { line, column } => write!(f, "line {line}, column {column}: ")?,
            Origin::Variable(name) => write!(f, "environment variable {name}: ")?,
            Origin::Absent => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// All mistakes of a configuration, at least one; shown one per line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Errors(Vec<ConfigError>);

impl Errors {
    /// Returns `value`, or the errors in the order of the file if there are any.
    pub(super) fn unless_none<T>(mut errors: Vec<ConfigError>, value: T) -> Result<T, Self> {
        if errors.is_empty() {
            return Ok(value);
        }
        errors.sort_by(|a, b| (&a.origin, &a.key).cmp(&(&b.origin, &b.key)));
        Err(Self(errors))
    }

    /// Removes the errors about `section`; `Ok` if none are left.
    pub fn except_in(mut self, section: &str) -> Result<(), Self> {
        self.0.retain(|error| !error.key.starts_with(section));
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// Whether an error is about this key.
    pub fn names(&self, key: &str) -> bool {
        self.0.iter().any(|error| error.key == key)
    }

    /// The errors of the file, then of the environment, then the missing keys.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

/// Why a configuration file was not loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// No file was named, and none of the default paths exists.
    #[error(
        "no configuration: neither {} nor ./{} exists; name a file with --config",
        DEFAULT_PATHS[0],
        DEFAULT_PATHS[1]
    )]
    NoFile,
    /// The file cannot be read: missing, forbidden, too large, not UTF-8.
    #[error("cannot read the configuration file {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The file or the environment contains mistakes.
    #[error(
        "{} error{} in the configuration ({path}):\n{errors}",
        .errors.0.len(),
        if .errors.0.len() == 1 { "" } else { "s" }
    )]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All mistakes.
        #[source]
        errors: Errors,
    },
}

/// A value in quotes, shortened by [`shown`].
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", shown(text))
}

/// A text on one line, cut at [`SHOWN`] characters.
pub(super) fn shown(text: &str) -> String {
    let text = text.escape_debug().to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The known name that `word` most likely means: see [`nearest`].
pub(super) fn closest<'n>(
    word: &str,
    names: impl Iterator<Item = &'n str>,
    core: fn(&str) -> &str,
) -> Option<&'n str> {
    nearest(word, names, core, distance)
}

/// The number of letters to insert, drop, replace or swap, ignoring case.
pub(super) fn distance(word: &str, name: &str) -> usize {
    strsim::damerau_levenshtein(word, &name.to_lowercase())
}
