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
pub(super) type Attributes<'a> = &'a [(&'a str, &'a str)];

/// A document, or a part of one, that is being written.
pub(super) struct Xml(Writer<Vec<u8>>);

impl Xml {
    /// Starts a document with its declaration.
    pub(super) fn begin() -> Self {
        let mut xml = Self(Writer::new_with_indent(Vec::new(), b' ', 2));
        xml.write(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        xml
    }

    pub(super) fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        self.write(Event::Start(start(name, attributes)));
    }

    /// Closes the last open element.
    pub(super) fn close(&mut self, name: &str) {
        self.write(Event::End(BytesEnd::new(name)));
    }

    /// Writes an element with attributes only.
    pub(super) fn empty(&mut self, name: &str, attributes: Attributes<'_>) {
        self.write(Event::Empty(start(name, attributes)));
    }

    /// Writes an element with text, unless that is empty.
    pub(super) fn text<'a>(&mut self, name: &str, text: impl Into<Option<&'a str>>) {
        self.element(name, &[], text.into().unwrap_or_default());
    }

    /// Writes an element with attributes and text, unless the text is empty.
    pub(super) fn element(&mut self, name: &str, attributes: Attributes<'_>, text: &str) {
        let text = legal(text);
        if !text.is_empty() {
            self.open(name, attributes);
            self.write(Event::Text(BytesText::new(&text)));
            self.close(name);
        }
    }

    /// Writes an element with text as a CDATA section, unless the text is empty.
    pub(super) fn cdata(&mut self, name: &str, text: &str) {
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
    pub(super) fn take(&mut self) -> Bytes {
        std::mem::take(self.0.get_mut()).into()
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

fn is_legal(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// Puts a text on one line: one space between words, and at most `max_chars` characters.
pub(super) fn line(text: &str, max_chars: usize) -> String {
    let words: Vec<_> = legal(text).split_whitespace().map(str::to_owned).collect();
    let line: String = words.join(" ").chars().take(max_chars).collect();
    line.trim_end().to_owned()
}

/// Shortens a text to at most `max_bytes` before escaping. A cut text ends with an ellipsis.
pub(super) fn shortened(text: &str, max_bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    let text = legal(text);
    let text = text.trim();
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max_bytes.saturating_sub(ELLIPSIS.len()));
    text[..end].trim_end().to_owned() + ELLIPSIS
}

/// A URL in ASCII: bytes that a URL cannot contain are percent-encoded, existing escapes stay.
pub(super) fn url(text: &str) -> String {
    let bytes = text.trim().as_bytes();
    let is_escape =
        |at: usize| bytes[at + 1..].iter().take(2).filter(|b| b.is_ascii_hexdigit()).count() == 2;
    percent_encoded(text.trim(), |at, byte| match byte {
        b'%' => is_escape(at),
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use quick_xml::Reader;
    use quick_xml::escape::{resolve_xml_entity, unescape};

    /// A parsed element.
    #[derive(Debug, Default)]
    pub(in crate::sidecar) struct Node {
        pub(in crate::sidecar) name: String,
        pub(in crate::sidecar) attributes: Vec<(String, String)>,
        pub(in crate::sidecar) text: String,
        pub(in crate::sidecar) children: Vec<Self>,
    }

    impl Node {
        /// The children with a name.
        pub(in crate::sidecar) fn all(&self, name: &str) -> impl Iterator<Item = &Self> {
            self.children.iter().filter(move |child| child.name == name)
        }

        /// The only child with a name.
        pub(in crate::sidecar) fn one(&self, name: &str) -> &Self {
            let found: Vec<_> = self.all(name).collect();
            assert_eq!(found.len(), 1, "one {name} in {}", self.name);
            found[0]
        }

        pub(in crate::sidecar) fn attribute(&self, name: &str) -> Option<&str> {
            let found = self.attributes.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        }
    }

    /// Parses a well-formed document to its root.
    pub(in crate::sidecar) fn read(document: &[u8]) -> Node {
        let text = std::str::from_utf8(document).expect("a document is UTF-8");
        assert!(text.chars().all(is_legal), "a document has legal characters only");
        let mut reader = Reader::from_str(text);
        let mut open = vec![Node::default()];
        loop {
            let event = reader.read_event().expect("a document is well-formed");
            match event {
                Event::Start(start) => open.push(node(&start)),
                Event::Empty(start) => open.last_mut().unwrap().children.push(node(&start)),
                Event::End(_) => {
                    let node = open.pop().unwrap();
                    open.last_mut().unwrap().children.push(node);
                }
                Event::Text(text) => open.last_mut().unwrap().text.push_str(&text.into_inner()),
                Event::CData(text) => open.last_mut().unwrap().text.push_str(&text.into_inner()),
                Event::GeneralRef(name) => {
                    let name = name.into_inner();
                    let known = name.starts_with('#') || resolve_xml_entity(&name).is_some();
                    assert!(known, "XML itself knows no &{name};");
                    let text = unescape(&format!("&{name};")).unwrap().into_owned();
                    open.last_mut().unwrap().text.push_str(&text);
                }
                Event::Eof => break,
                Event::Decl(_) => {}
                other => panic!("nothing else is written: {other:?}"),
            }
        }
        assert_eq!(open.len(), 1, "all is closed");
        open.pop().unwrap().children.pop().expect("a document has a root")
    }

    fn node(start: &BytesStart<'_>) -> Node {
        let attributes = start.attributes().map(|attribute| {
            let attribute = attribute.expect("an attribute is well-formed and there once");
            let value = unescape(&attribute.value).unwrap().into_owned();
            (attribute.key.as_ref().to_owned(), value)
        });
        let (name, attributes) = (start.name().as_ref().to_owned(), attributes.collect());
        Node { name, attributes, ..Node::default() }
    }

    #[test]
    fn written_elements_are_read_back() {
        let hard = "a < b && c > 'd' \"e\" ]]> \u{202e}عربي 🃏 é\r\n\tend";
        let mut xml = Xml::begin();
        xml.open("root", &[("empty", ""), ("hard", hard)]);
        xml.text("text", hard);
        xml.cdata("cdata", hard);
        xml.text("none", None);
        xml.text("blank", "");
        xml.empty("leaf", &[("a", "1")]);
        xml.close("root");
        let root = read(&xml.take());
        assert_eq!(root.attributes, [("hard".to_owned(), hard.to_owned())]);
        let names: Vec<_> = root.children.iter().map(|child| child.name.as_str()).collect();
        assert_eq!(names, ["text", "cdata", "leaf"], "nothing is written of nothing");
        assert_eq!(root.one("text").text, hard);
        assert_eq!(root.one("cdata").text, hard, "a section that would end is split");
    }

    #[test]
    fn characters_that_xml_forbids_are_dropped() {
        let dirty = "a\u{0}b\u{1}c\u{8}d\u{b}e\u{1f}f\u{fffe}g\u{ffff}h\u{fffd}i\u{10ffff}";
        let mut xml = Xml::begin();
        xml.open("root", &[("dirty", dirty)]);
        xml.text("text", dirty);
        xml.cdata("cdata", dirty);
        xml.text("only", "\u{1}\u{2}");
        xml.close("root");
        let root = read(&xml.take());
        let clean = "abcdefgh\u{fffd}i\u{10ffff}";
        assert_eq!(root.attribute("dirty"), Some(clean));
        assert_eq!([&*root.one("text").text, &*root.one("cdata").text], [clean, clean]);
        assert_eq!(root.children.len(), 2, "nothing is left of the last one");
    }

    #[test]
    fn a_line_is_trimmed_and_cut() {
        for (text, max, expected) in [
            ("  a \n\t b  ", 9, "a b"),
            ("\u{1}a\u{b}b", 9, "ab"),
            ("ééé", 2, "éé"),
            ("ab cd", 3, "ab"),
            (" ", 9, ""),
        ] {
            assert_eq!(line(text, max), expected, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for (text, max, expected) in [
            (" 1234567 ", 7, "1234567"),
            ("12345678", 7, "1234…"),
            ("\u{1}12345678", 8, "12345678"),
            ("ééééé", 10, "ééééé"),
            ("éééééé", 10, "ééé…"),
            ("&&&", 3, "&&&"),
            ("word word", 8, "word…"),
            ("🃏🃏🃏", 11, "🃏🃏…"),
        ] {
            let short = shortened(text, max);
            assert_eq!(short, expected, "{text:?}");
            assert!(short.len() <= max, "{text:?} fits");
        }
    }

    #[test]
    fn a_url_is_ascii() {
        for (text, expected) in [
            (" https://cards.example/a?b=c&d='e'#f ", "https://cards.example/a?b=c&d='e'#f"),
            ("https://cards.example/é/🃏", "https://cards.example/%C3%A9/%F0%9F%83%8F"),
            ("https://cards.example/a b\"<>\u{7f}", "https://cards.example/a%20b%22%3C%3E%7F"),
            ("https://cards.example/%C3%A9%2f", "https://cards.example/%C3%A9%2f"),
            ("https://cards.example/100%", "https://cards.example/100%25"),
            ("https://cards.example/%e%zz%", "https://cards.example/%25e%25zz%25"),
        ] {
            assert_eq!(url(text), expected);
        }
    }
}
