//! The headers that an operator adds to each request to a node or a collector.
//!
//! In: the text of a file, one header a line, and the `User-Agent` of the program. Out: the lines
//! as they are sent, or the first line that is refused, and why. The lines are secrets, since
//! hosted services identify their clients by them: an error has a line number, and no text of a
//! line except a name that the program sets itself.

use crate::secret::Secret;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Lines of the file: a provider wants one or two.
const MAX_LINES: usize = 16;
const USER_AGENT: &[u8] = b"user-agent";
/// Headers that the program sets itself, or that concern one connection only (RFC 9110, section
/// 7.6.1).
const OWN_NAMES: [&str; 18] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Why a line is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFault {
    /// There is no colon.
    NoColon,
    /// The name is not a token (RFC 9110, section 5.1).
    Name,
    /// The value is empty, or has other bytes than visible ASCII, spaces and tabs.
    Value,
    /// The program sets this header itself, or it concerns one connection only.
    Own(&'static str),
    /// The line of this number has the name already.
    Duplicate(usize),
    /// There are more than sixteen lines.
    TooMany,
}

/// The first refused line of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedHeaders {
    /// No line has a header.
    Empty,
    /// The line of this number, from 1.
    Line(usize, LineFault),
}

impl fmt::Display for MalformedHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, fault) = match self {
            Self::Empty => return f.write_str("it must contain lines `Name: value`, one a header"),
            Self::Line(line, fault) => (line, fault),
        };
        write!(f, "line {line}: ")?;
        match fault {
            LineFault::NoColon => f.write_str("it must be `Name: value`, and has no colon"),
            LineFault::Name => {
                f.write_str("the name before the colon must be letters, digits and hyphens")
            }
            LineFault::Value => {
                f.write_str("the value after the colon must be visible ASCII, at least one")
            }
            LineFault::Own(name) => write!(
                f,
                "{name} cannot be set: the program sets it, or it concerns one connection only"
            ),
            LineFault::Duplicate(first) => write!(f, "line {first} has the same name"),
            LineFault::TooMany => write!(f, "at most {MAX_LINES} headers can be set"),
        }
    }
}

/// The lines that are sent with each request, each with its CRLF; wiped when dropped.
#[derive(Debug)]
pub struct HeaderLines(Secret);

impl HeaderLines {
    /// The lines without a file: the program names itself.
    pub fn of_program(agent: &str) -> Self {
        Self(Secret::new(agent_line(agent).into_bytes()))
    }

    /// Parses the text of the file. A `User-Agent` there replaces that of the program.
    ///
    /// # Errors
    /// Returns the first refused line.
    pub fn parse(text: &[u8], agent: &str) -> Result<Self, MalformedHeaders> {
        let mut fields: Vec<Field<'_>> = Vec::new();
        for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let field = Field::parse(line, number)
                .map_err(|fault| MalformedHeaders::Line(number, fault))?;
            if let Some(first) = fields.iter().find(|other| other.has_name(field.name)) {
                let fault = LineFault::Duplicate(first.line);
                return Err(MalformedHeaders::Line(number, fault));
            }
            if fields.len() >= MAX_LINES {
                return Err(MalformedHeaders::Line(number, LineFault::TooMany));
            }
            fields.push(field);
        }
        if fields.is_empty() {
            return Err(MalformedHeaders::Empty);
        }
        let agent = if fields.iter().any(|field| field.has_name(USER_AGENT)) {
            String::new()
        } else {
            agent_line(agent)
        };
        // never grows: a copy left behind would not be wiped
        let length = fields.iter().map(Field::length).sum::<usize>();
        let mut lines = Vec::with_capacity(length.saturating_add(agent.len()));
        lines.extend_from_slice(agent.as_bytes());
        for field in fields {
            for piece in [field.name, b": ", field.value, b"\r\n"] {
                lines.extend_from_slice(piece);
            }
        }
        Ok(Self(Secret::new(lines)))
    }

    /// The lines, for the code that sends them.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// The name and the value of each line, for a library that sends them.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.0.expose().split(|byte| *byte == b'\n');
        lines.filter_map(|line| str::from_utf8(line).ok()?.trim_end().split_once(": "))
    }
}

fn agent_line(agent: &str) -> String {
    alloc::format!("User-Agent: {agent}\r\n")
}

/// One header of the file.
struct Field<'a> {
    line: usize,
    name: &'a [u8],
    value: &'a [u8],
}

impl<'a> Field<'a> {
    fn parse(text: &'a [u8], line: usize) -> Result<Self, LineFault> {
        let colon = text.iter().position(|byte| *byte == b':');
        let (name, value) = colon
            .and_then(|colon| text.split_at_checked(colon))
            .ok_or(LineFault::NoColon)?;
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.is_empty() || !name.iter().all(is_token) {
            return Err(LineFault::Name);
        }
        let field = Self { line, name, value };
        if let Some(own) = OWN_NAMES.iter().find(|own| field.has_name(own.as_bytes())) {
            return Err(LineFault::Own(own));
        }
        if value.is_empty() || !value.iter().all(is_visible) {
            return Err(LineFault::Value);
        }
        Ok(field)
    }

    fn has_name(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The length of the line as it is sent.
    fn length(&self) -> usize {
        [self.name.len(), 2, self.value.len(), 2].iter().sum()
    }
}

/// Whether a name of a field may have this byte (RFC 9110, section 5.6.2).
fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

/// Whether a value may have this byte: visible ASCII and blanks (RFC 9110, section 5.5).
fn is_visible(byte: &u8) -> bool {
    byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "portcullis/1.2.3";

    fn parse(text: &str) -> Result<String, MalformedHeaders> {
        let headers = HeaderLines::parse(text.as_bytes(), AGENT)?;
        Ok(String::from_utf8(headers.expose().to_vec()).expect("it was a string"))
    }

    #[test]
    fn each_line_becomes_one_header() {
        let ours = "User-Agent: portcullis/1.2.3\r\n";
        for (text, expected, why) in [
            ("X-Key: one", format!("{ours}X-Key: one\r\n"), "one line"),
            (
                "X-Key:  one \r\n\r\n  Authorization:Bearer two\n",
                format!("{ours}X-Key: one\r\nAuthorization: Bearer two\r\n"),
                "two lines, with white space around",
            ),
            (
                "user-agent: other (you: me)\nX-Key: one",
                "user-agent: other (you: me)\r\nX-Key: one\r\n".to_owned(),
                "a name of its own",
            ),
        ] {
            assert_eq!(parse(text), Ok(expected), "{why}");
        }
        let ours_only = HeaderLines::of_program(AGENT);
        assert_eq!(ours_only.expose(), ours.as_bytes(), "without a file");
        let headers = HeaderLines::parse(b"X-Key: a: b\nY-Key:c", AGENT).expect("two lines");
        let pairs: Vec<_> = headers.pairs().collect();
        let expected = [("User-Agent", AGENT), ("X-Key", "a: b"), ("Y-Key", "c")];
        assert_eq!(pairs, expected, "as pairs");
    }

    #[test]
    fn a_refused_line_is_named_by_number() {
        use LineFault::{Duplicate, Name, NoColon, Own, TooMany, Value};
        let many = "X: 1\n".repeat(17).replace('X', "X-");
        let many: Vec<_> = many.lines().zip(1..).collect();
        let many = many
            .iter()
            .map(|(line, number)| line.replace(':', &format!("{number}:")));
        let many = many.collect::<Vec<_>>().join("\n");
        for (text, line, fault) in [
            ("no colon", 1, NoColon),
            ("X-Key: one\nsecret", 2, NoColon),
            (": value", 1, Name),
            ("X Key: value", 1, Name),
            ("X-Key : value", 1, Name),
            ("X-Key:", 1, Value),
            ("X-Key: \u{e9}", 1, Value),
            ("X-Key: one\rX-Other: two", 1, Value),
            ("X-Key: one\n\nHOST: other", 3, Own("host")),
            ("content-length: 5", 1, Own("content-length")),
            ("Transfer-Encoding: chunked", 1, Own("transfer-encoding")),
            ("Connection: close", 1, Own("connection")),
            ("Traceparent: 00", 1, Own("traceparent")),
            ("X-Key: one\nX-Other: two\nx-key: three", 3, Duplicate(1)),
            ("User-Agent: one\nUser-Agent: two", 2, Duplicate(1)),
            (&*many, 17, TooMany),
        ] {
            let expected = Err(MalformedHeaders::Line(line, fault));
            assert_eq!(parse(text), expected, "{text:?}");
        }
        for text in ["", "\r\n \n"] {
            assert_eq!(parse(text), Err(MalformedHeaders::Empty), "{text:?}");
        }
    }

    #[test]
    fn neither_errors_nor_debug_show_secrets() {
        for text in [
            "hunter2",
            "hunter2 hunter2: x",
            "X-Key: hunter2\nx-key: hunter2",
            "X-Key: hunter2\u{e9}",
            "Host: hunter2",
        ] {
            let error = HeaderLines::parse(text.as_bytes(), AGENT).expect_err(text);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let headers = HeaderLines::parse(b"X-Key: hunter2", AGENT).expect("a header");
        assert!(!format!("{headers:?}").contains("hunter2"));
    }
}
