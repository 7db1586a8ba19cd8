//! A writer of XML for the podcast feed and the sitemap: one element after another, into memory.
//!
//! In: text as it was stored. Out: well-formed UTF-8. Characters that XML 1.0 cannot represent, not
//! even escaped, are dropped: one of them would make the document unreadable. Optional values are
//! passed as they are: an element without text and an attribute without value are not written.

use bytes::Bytes;
use quick_xml::Writer;
use quick_xml::events::{BytesCData, BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use std::borrow::Cow;
use std::fmt::Write as _;

/// Attributes of an element: names and values.
pub type Attributes<'a> = &'a [(&'a str, &'a str)];

/// A document, or a part of one, that is being written.
pub struct Xml(Writer<Vec<u8>>);

impl Xml {
    /// Starts a document with its declaration.
    pub fn begin() -> Self {
        let mut xml = Self(Writer::new_with_indent(Vec::new(), b' ', 2));
        xml.write(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        xml
    }

    /// Opens an element.
    pub fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        self.write(Event::Start(start(name, attributes)));
    }

    /// Closes the last open element.
    pub fn close(&mut self, name: &str) {
        self.write(Event::End(BytesEnd::new(name)));
    }

    /// Writes an element with attributes only.
    pub fn empty(&mut self, name: &str, attributes: Attributes<'_>) {
        self.write(Event::Empty(start(name, attributes)));
    }

    /// Writes an element with text, unless that is empty.
    pub fn text<'a>(&mut self, name: &str, text: impl Into<Option<&'a str>>) {
        self.element(name, &[], text.into().unwrap_or_default());
    }

    /// Writes an element with attributes and text, unless the text is empty.
    pub fn element(&mut self, name: &str, attributes: Attributes<'_>, text: &str) {
        let text = legal(text);
        if !text.is_empty() {
            self.open(name, attributes);
            self.write(Event::Text(BytesText::new(&text)));
            self.close(name);
        }
    }

    /// Writes an element with text as a CDATA section, unless the text is empty.
    pub fn cdata(&mut self, name: &str, text: &str) {
        let text = legal(text);
        if !text.is_empty() {
            self.open(name, &[]);
            BytesCData::escaped(&text).for_each(|part| self.write(Event::CData(part)));
            self.close(name);
        }
    }

    /// Bytes written since the last [`Self::take`].
    pub(super) fn len(&self) -> usize {
        self.0.get_ref().len()
    }

    /// Removes what was written after this length.
    pub(super) fn truncate(&mut self, length: usize) {
        self.0.get_mut().truncate(length);
    }

    /// Returns what was written so far; the document continues after it.
    /// Its memory is that of its bytes: a body may be held for as long as its client reads.
    pub fn take(&mut self) -> Bytes {
        std::mem::take(self.0.get_mut()).into_boxed_slice().into()
    }

    fn write(&mut self, event: Event<'_>) {
        self.0.write_event(event).expect("memory takes every write");
    }
}

fn start<'a>(name: &'a str, attributes: Attributes<'_>) -> BytesStart<'a> {
    let mut start = BytesStart::new(name);
    for (name, value) in attributes {
        let value = legal(value);
        if !value.is_empty() {
            start.push_attribute((*name, &*value));
        }
    }
    start
}

/// Removes the characters that XML 1.0 forbids (section 2.2, `Char`).
pub(super) fn legal(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_legal) {
        text.into()
    } else {
        text.chars().filter(|c| is_legal(*c)).collect()
    }
}

pub(super) fn is_legal(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// The end of a text that was cut.
pub(super) const ELLIPSIS: &str = "…";

/// The start of a text: at most `max_bytes`.
pub(super) fn prefix(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// Puts a text on one line: one space between words, and at most `max_chars` characters.
pub fn line(text: &str, max_chars: usize) -> String {
    let (text, mut left) = (legal(text), max_chars);
    let mut line = String::with_capacity(text.len().min(max_chars));
    for word in text.split_whitespace() {
        if !line.is_empty() && left > 0 {
            line.push(' ');
            left -= 1;
        }
        for c in word.chars().take(left) {
            line.push(c);
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Shortens a text to at most `max_bytes` before escaping. A cut text ends with an ellipsis.
pub fn shortened(text: &str, max_bytes: usize) -> String {
    let text = legal(text);
    let text = text.trim();
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let start = prefix(text, max_bytes.saturating_sub(ELLIPSIS.len()));
    start.trim_end().to_owned() + ELLIPSIS
}

/// A URL in ASCII: bytes that a URL cannot contain are percent-encoded, existing escapes stay
/// (RFC 3986, appendix A).
pub fn url(text: &str) -> String {
    let text = text.trim();
    let bytes = text.as_bytes();
    let host = text.find("://").map_or(0, |at| at + "://".len());
    let path = text[host..].find(['/', '?', '#']);
    let path = path.map_or(text.len(), |length| host + length);
    let fragment = text.find('#');
    let is_escape = |at: usize| {
        bytes[at + 1..]
            .iter()
            .take(2)
            .filter(|b| b.is_ascii_hexdigit())
            .count()
            == 2
    };
    percent_encoded(text, |at, byte| match byte {
        b'%' => is_escape(at),
        // only around an IPv6 address
        b'[' | b']' => at < path,
        b'#' => fragment == Some(at),
        _ => byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte),
    })
}

/// Percent-encodes the bytes that are not plain, by their position and value.
pub(super) fn percent_encoded(text: &str, is_plain: impl Fn(usize, u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for (at, byte) in text.bytes().enumerate() {
        if is_plain(at, byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("memory takes every write");
        }
    }
    encoded
}
