//! Headers of requests to a hosted service, which knows its clients by them: from a file of lines
//! `Name: value`, or for the collector from OpenTelemetry's variable.

use super::{SecretError, locate, read};
use portcullis_filters::header_lines::{HeaderLines, MalformedHeaders};
use portcullis_filters::key_values::{self, MalformedPair};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The `User-Agent` of requests to a node or a collector: firewalls refuse requests without one.
pub const AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));
/// The variable of the headers for the collector (OTLP exporter specification). It has a secret, as
/// the standard demands; a file is the better place.
const VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Why headers are unusable. The text shows no header.
#[derive(Debug, Error)]
pub enum HeadersError {
    /// The file is unreadable.
    #[error(transparent)]
    Unreadable(#[from] SecretError),
    /// A line of the file cannot be sent.
    #[error("secret file {}: {fault}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, and why.
        fault: MalformedHeaders,
    },
    /// The variable is no list of pairs.
    #[error("{VARIABLE}: {0}")]
    Pair(MalformedPair),
    /// A pair of the variable cannot be sent.
    #[error("{VARIABLE}: as headers, {0}")]
    Variable(MalformedHeaders),
    /// The variable is not UTF-8.
    #[error("{VARIABLE} is not UTF-8")]
    NotText,
}

/// Reads the lines of a file.
///
/// # Errors
/// Fails if the file is unreadable, or a line of it cannot be sent.
pub fn of_file(path: &Path) -> Result<HeaderLines, HeadersError> {
    let text = read(path)?;
    HeaderLines::parse(text.expose(), AGENT).map_err(|fault| HeadersError::Line {
        path: locate(path),
        fault,
    })
}

/// Reads the headers for the collector: those of the file, or else of the variable.
///
/// # Errors
/// Fails as [`of_file`] does, or if the variable is malformed.
pub fn for_collector(path: Option<&Path>) -> Result<HeaderLines, HeadersError> {
    if let Some(path) = path {
        return of_file(path);
    }
    match std::env::var(VARIABLE) {
        Ok(list) if !list.trim().is_empty() => of_list(&list),
        Ok(_) | Err(std::env::VarError::NotPresent) => Ok(HeaderLines::of_program(AGENT)),
        Err(std::env::VarError::NotUnicode(_)) => Err(HeadersError::NotText),
    }
}

fn of_list(list: &str) -> Result<HeaderLines, HeadersError> {
    let pairs = key_values::parse(list).map_err(HeadersError::Pair)?;
    let lines: Vec<_> = pairs
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let lines = super::Secret::new(lines.join("\n").into_bytes());
    HeaderLines::parse(lines.expose(), AGENT).map_err(HeadersError::Variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_a_list_of_headers() {
        let headers = of_list("authorization=Basic%20YTpi,x-scope=one").expect("two pairs");
        let pairs: Vec<_> = headers.pairs().collect();
        let expected = [
            ("User-Agent", AGENT),
            ("authorization", "Basic YTpi"),
            ("x-scope", "one"),
        ];
        assert_eq!(pairs, expected);
        for (list, why) in [
            ("hunter2", "OTEL_EXPORTER_OTLP_HEADERS: pair 1 has no ="),
            (
                "host=hunter2",
                "OTEL_EXPORTER_OTLP_HEADERS: as headers, line 1: host cannot be",
            ),
        ] {
            let error = of_list(list).expect_err(list).to_string();
            assert!(error.starts_with(why), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
