//! The mistakes in a configuration: each with its place and what is accepted.
//!
//! The texts are for the operator's terminal. Values are quoted and cut to one short line.

use std::path::PathBuf;
use std::{error, fmt, io};

/// How much of a value a message shows, in characters.
const SHOWN: usize = 60;

/// The place of a value. Errors are listed in this order.
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
    /// None: the key has its default, or is missing.
    Absent,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The key's full path (`gateway.listen`); empty for a mistake in the TOML itself.
    pub key: String,
    /// The place of the value.
    pub origin: Origin,
    /// What is wrong, and what is accepted.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors(Vec<ConfigError>);

impl Errors {
    /// The errors in the order of the file, or `value` when there are none.
    pub(super) fn unless_none<T>(mut errors: Vec<ConfigError>, value: T) -> Result<T, Self> {
        if errors.is_empty() {
            return Ok(value);
        }
        errors.sort_by(|a, b| (&a.origin, &a.key).cmp(&(&b.origin, &b.key)));
        Err(Self(errors))
    }

    /// The errors of the file, then of the environment, then the missing keys.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl error::Error for Errors {}

/// Why a configuration file was not loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read: missing, forbidden, too large, not UTF-8.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The file or the environment contains mistakes.
    Invalid {
        /// The file.
        path: PathBuf,
        /// All of them.
        errors: Errors,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "cannot read the configuration file {}: {error}", path.display())
            }
            Self::Invalid { path, errors } => {
                let count = errors.0.len();
                let plural = if count == 1 { "" } else { "s" };
                let path = path.display();
                write!(f, "{count} error{plural} in the configuration ({path}):\n{errors}")
            }
        }
    }
}

impl error::Error for LoadError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } => Some(error),
            Self::Invalid { errors, .. } => Some(errors),
        }
    }
}

/// A value in quotes, as [`shown`].
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
