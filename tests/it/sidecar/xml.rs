//! The writer of feeds and sitemaps, and how it shortens and encodes text.

use portcullis_edge::sidecar::xml::{Xml, line, shortened, url};

use crate::support::sidecar::xml::read;

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
    let names: Vec<_> = root
        .children
        .iter()
        .map(|child| child.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["text", "cdata", "leaf"],
        "nothing is written of nothing"
    );
    assert_eq!(root.one("text").text, hard);
    assert_eq!(
        root.one("cdata").text,
        hard,
        "a section that would end is split"
    );
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
    assert_eq!(
        [&*root.one("text").text, &*root.one("cdata").text],
        [clean, clean]
    );
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
        (
            " https://cards.example/a?b=c&d='e'#f ",
            "https://cards.example/a?b=c&d='e'#f",
        ),
        (
            "https://cards.example/é/🃏",
            "https://cards.example/%C3%A9/%F0%9F%83%8F",
        ),
        (
            "https://cards.example/a b\"<>\u{7f}",
            "https://cards.example/a%20b%22%3C%3E%7F",
        ),
        (
            "https://cards.example/%C3%A9%2f",
            "https://cards.example/%C3%A9%2f",
        ),
        ("https://cards.example/100%", "https://cards.example/100%25"),
        (
            "https://[2001:db8::1]:8443/a[1]?b[]=c#d[#e]",
            "https://[2001:db8::1]:8443/a%5B1%5D?b%5B%5D=c#d%5B%23e%5D",
        ),
        ("https://[::1]?[", "https://[::1]?%5B"),
        ("https://[::1]", "https://[::1]"),
        ("[]", "[]"),
        (
            "https://cards.example/%e%zz%",
            "https://cards.example/%25e%25zz%25",
        ),
    ] {
        assert_eq!(url(text), expected);
    }
}
