//! What creators write about an episode: as HTML that can do no harm, and as plain text.
//!
//! Nothing is passed through: text is decoded and escaped anew, a tag is written anew when it is on
//! the list, and closed. So whatever the input is, the output holds these tags only. Of attributes
//! there is the `href` of a link.

use crate::sidecar::xml::legal;
use quick_xml::escape::{escape, resolve_html5_entity};
use quick_xml::events::BytesStart;

/// Tags that are kept. `br` is the one that has no end.
const KEPT: &str = "a b blockquote br code em h1 h2 h3 h4 h5 h6 i li ol p pre strong ul";
/// Elements whose content is nothing to read.
const HIDDEN: &str = "iframe noscript script style template textarea title";
/// Where a link may lead.
const SCHEMES: &[&str] = &["https://", "http://", "mailto:"];
/// How deep tags may be nested: far beyond lists in lists.
const MAX_DEPTH: usize = 32;
/// The longest name of a character has 31 bytes.
const MAX_REFERENCE: usize = 32;

/// The HTML, with what is on the list and all text.
pub(super) fn sanitised(html: &str) -> String {
    let mut page = Page { html: String::with_capacity(html.len()), open: Vec::new() };
    for token in Tokens(html) {
        match token {
            Token::Text(text) => page.html.push_str(&escape(decoded(text))),
            Token::Open(tag) => page.open(tag),
            Token::Close(name) => page.close(name),
        }
    }
    page.close_down_to(0);
    page.html.trim().to_owned()
}

/// The text alone: paragraphs apart, white space as a browser shows it.
pub(super) fn plain(html: &str) -> String {
    let (mut text, mut gap) = (String::with_capacity(html.len()), Gap::None);
    for token in Tokens(html) {
        match token {
            Token::Text(raw) => gap = append(&mut text, gap, &decoded(raw)),
            Token::Open(tag) => gap = gap.max(Gap::at(name_of(tag))),
            Token::Close(name) => gap = gap.max(Gap::at(name)),
        }
    }
    without_tags(&legal(&text))
}

/// Appends the words of a text behind a gap, and tells which gap comes behind them.
fn append(text: &mut String, mut gap: Gap, words: &str) -> Gap {
    for part in words.split_inclusive(|c: char| c.is_ascii_whitespace()) {
        let word = part.trim_ascii_end();
        if !word.is_empty() {
            text.push_str(if text.is_empty() { "" } else { gap.text() });
            text.push_str(word);
            gap = Gap::None;
        }
        if word.len() < part.len() {
            gap = gap.max(Gap::Space);
        }
    }
    gap
}

/// What separates two words; the widest one of several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Space,
    Line,
    Paragraph,
}

impl Gap {
    /// Where a tag begins or ends.
    fn at(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "blockquote" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "ol" | "p" | "pre" | "ul" => {
                Self::Paragraph
            }
            "br" | "div" | "hr" | "li" | "tr" => Self::Line,
            "td" | "th" => Self::Space,
            _ => Self::None,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Space => " ",
            Self::Line => "\n",
            Self::Paragraph => "\n\n",
        }
    }
}

/// A text that is no HTML, also for a reader who takes it for some: what was escaped must not
/// become a tag.
fn without_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        out.push(c);
        let begins_tag = |c: &char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?');
        if c == '<' && rest.peek().is_some_and(begins_tag) {
            out.push(' ');
        }
    }
    out
}

/// HTML that is being written.
struct Page {
    html: String,
    open: Vec<&'static str>,
}

impl Page {
    fn open(&mut self, tag: &str) {
        let Some(name) = one_of(KEPT, name_of(tag)) else { return };
        self.end_before(name);
        match name {
            "br" => self.html.push_str("<br>"),
            _ if self.open.len() == MAX_DEPTH => {}
            "a" => {
                if let Some(target) = target(tag) {
                    self.html.extend(["<a href=\"", &*escape(target), "\">"]);
                    self.open.push(name);
                }
            }
            _ => {
                self.html.extend(["<", name, ">"]);
                self.open.push(name);
            }
        }
    }

    /// Ends what can not go on when a tag begins: a paragraph in a paragraph, a link in a link, an
    /// entry in an entry of the same list.
    fn end_before(&mut self, name: &str) {
        let is_list = |open: &&str| matches!(*open, "ul" | "ol");
        let last = match name {
            "p" | "a" => self.open.iter().rposition(|open| *open == name),
            "li" => self.open.iter().rposition(|open| *open == "li" || is_list(open)),
            _ => None,
        };
        if let Some(at) = last.filter(|at| self.open[*at] == name) {
            self.close_down_to(at);
        }
    }

    fn close(&mut self, name: &str) {
        let last = self.open.iter().rposition(|open| open.eq_ignore_ascii_case(name));
        if let Some(at) = last {
            self.close_down_to(at);
        }
    }

    fn close_down_to(&mut self, depth: usize) {
        for name in self.open.drain(depth..).rev() {
            self.html.extend(["</", name, ">"]);
        }
    }
}

/// A name as it is in a list.
fn one_of(names: &'static str, name: &str) -> Option<&'static str> {
    names.split(' ').find(|one| one.eq_ignore_ascii_case(name))
}

/// Where a link leads, if it may.
fn target(tag: &str) -> Option<String> {
    let start = BytesStart::from_content(tag, name_of(tag).len());
    let mut attributes = start.html_attributes();
    let href = attributes
        .with_checks(false)
        .flatten()
        .find(|attribute| attribute.key.as_ref().eq_ignore_ascii_case("href"))?;
    let target = decoded(href.value.trim());
    let leads = |scheme: &&str| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    SCHEMES.iter().any(leads).then_some(target)
}

fn name_of(tag: &str) -> &str {
    let end = tag.find(|c: char| !c.is_ascii_alphanumeric());
    &tag[..end.unwrap_or(tag.len())]
}

/// A text with its character references resolved; what is none stays as it is.
fn decoded(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once('&') {
        text.push_str(before);
        rest = after;
        let end = after.bytes().take(MAX_REFERENCE).position(|byte| byte == b';');
        let character = end.and_then(|end| character(&after[..end]));
        match (character, end) {
            (Some(character), Some(end)) => {
                text.push_str(&character);
                rest = &after[end + 1..];
            }
            _ => text.push('&'),
        }
    }
    text + rest
}

fn character(name: &str) -> Option<String> {
    let Some(number) = name.strip_prefix('#') else {
        return resolve_html5_entity(name).map(str::to_owned);
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => number.parse(),
    };
    code.ok().and_then(char::from_u32).map(String::from)
}

/// What HTML is made of, without comments and what is hidden.
enum Token<'a> {
    Text(&'a str),
    /// What stands between `<` and `>`.
    Open(&'a str),
    /// The name.
    Close(&'a str),
}

/// The rest of some HTML. Every byte is looked at once or twice, whatever the input.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let html = self.0;
            let after = html.strip_prefix('<').unwrap_or_default();
            let closes = after.starts_with('/');
            if after.starts_with("!--") {
                self.0 = after.split_once("-->").map_or("", |(_, rest)| rest);
            } else if after.starts_with(['!', '?']) {
                self.0 = after.split_once('>').map_or("", |(_, rest)| rest);
            } else if after[usize::from(closes)..].starts_with(|c: char| c.is_ascii_alphabetic()) {
                let Some(end) = tag_end(after) else {
                    // it breaks off: no tag, nor is there one behind it
                    self.0 = "";
                    return Some(Token::Text(html));
                };
                let tag = &after[usize::from(closes)..end];
                self.0 = &after[end + 1..];
                if closes {
                    return Some(Token::Close(name_of(tag)));
                }
                if !self.skip_hidden(name_of(tag)) {
                    return Some(Token::Open(tag));
                }
            } else {
                let end = html.bytes().skip(1).position(|byte| byte == b'<');
                let (text, rest) = html.split_at(end.map_or(html.len(), |end| end + 1));
                self.0 = rest;
                return (!text.is_empty()).then_some(Token::Text(text));
            }
        }
    }
}

impl Tokens<'_> {
    /// Leaves out what a hidden element holds; its end tag closes nothing.
    fn skip_hidden(&mut self, name: &str) -> bool {
        let is_hidden = one_of(HIDDEN, name).is_some();
        if is_hidden {
            let end = self.0.match_indices("</").find(|(at, _)| {
                let found = self.0.get(at + 2..at + 2 + name.len());
                found.is_some_and(|found| found.eq_ignore_ascii_case(name))
            });
            self.0 = end.map_or("", |(at, _)| &self.0[at..]);
        }
        is_hidden
    }
}

/// Where a tag ends: at the first `>` outside of quotes, which begin a value only.
fn tag_end(tag: &str) -> Option<usize> {
    let (mut quote, mut last) = (None, b' ');
    tag.bytes().position(|byte| {
        match quote {
            Some(open) if open == byte => quote = None,
            Some(_) => return false,
            None if last == b'=' && matches!(byte, b'"' | b'\'') => quote = Some(byte),
            None => {}
        }
        if !byte.is_ascii_whitespace() {
            last = byte;
        }
        quote.is_none() && byte == b'>'
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_the_list_is_left_of_html() {
        for (html, expected) in [
            ("<p>one</p>", "<p>one</p>"),
            ("<P CLASS='x' onclick=evil()>one<BR/>two</P>", "<p>one<br>two</p>"),
            ("<p>one<p>two", "<p>one</p><p>two</p>"),
            (
                "<ul><li>a<li>b<ul><li>c</ul></ul>",
                "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>",
            ),
            ("<b><i>x</b>y</i>", "<b><i>x</i></b>y"),
            ("</p>x</div>", "x"),
            ("<div><span>x</span></div>", "x"),
            ("<script>alert('<p>')</script>x", "x"),
            ("<SCRIPT src=x>alert(1)</sCript >x", "x"),
            ("<style>p{}", ""),
            ("<svg/onload=alert(1)>x", "x"),
            ("<img src=x onerror=alert(1)>x", "x"),
            ("a<!-- <script> -->b<![CDATA[c]]>d<?php e ?>f", "abdf"),
            ("<!-- never ends", ""),
            ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
            ("I <3 cards", "I &lt;3 cards"),
            ("a <b and no end", "a &lt;b and no end"),
            ("&lt;script&gt;&amp;lt;", "&lt;script&gt;&amp;lt;"),
            (
                "caf&eacute;&#233;&#xE9;&nbsp;&unknown; &#x110000; &",
                "caféé\u{e9}\u{a0}&amp;unknown; &amp;#x110000; &amp;",
            ),
            ("<<p>>x", "&lt;<p>&gt;x</p>"),
            ("]]>", "]]&gt;"),
        ] {
            assert_eq!(sanitised(html), expected, "{html}");
        }
    }

    #[test]
    fn links_lead_to_the_web_or_to_mail() {
        for (html, expected) in [
            (
                "<a href='https://a.example/?b=c&d'>x</a>",
                "<a href=\"https://a.example/?b=c&amp;d\">x</a>",
            ),
            ("<a class=y HREF = HTTP://a.example >x</a>", "<a href=\"HTTP://a.example\">x</a>"),
            ("<a href=\"mailto:a@b.example\">x</a>", "<a href=\"mailto:a@b.example\">x</a>"),
            (
                "<a href='https://a.example/\"onclick=\"'>x</a>",
                "<a href=\"https://a.example/&quot;onclick=&quot;\">x</a>",
            ),
            (
                "<a title='a > b' href='https://a.example'>x</a>",
                "<a href=\"https://a.example\">x</a>",
            ),
            (
                "<a title=don't href=https://a.example>x</a> it's",
                "<a href=\"https://a.example\">x</a> it&apos;s",
            ),
            ("<a href='javascript:alert(1)'>x</a>", "x"),
            ("<a href='java&#9;script:alert(1)'>x</a>", "x"),
            ("<a href=' &#1;javascript:alert(1)'>x</a>", "x"),
            ("<a href='data:text/html,x'>x</a>", "x"),
            ("<a href='//a.example'>x</a>", "x"),
            ("<a href>x</a>", "x"),
            ("<a>x</a>", "x"),
            (
                "<a href='https://a.example'>x<a href='https://b.example'>y",
                "<a href=\"https://a.example\">x</a><a href=\"https://b.example\">y</a>",
            ),
        ] {
            assert_eq!(sanitised(html), expected, "{html}");
        }
    }

    #[test]
    fn plain_text_has_paragraphs_and_no_tags() {
        for (html, expected) in [
            ("<p>one\n  two</p>\n<p>three</p>", "one two\n\nthree"),
            ("one<br>two<br/><br>three", "one\ntwo\nthree"),
            ("<ul><li>a</li><li>b</li></ul>c", "a\nb\n\nc"),
            ("in<b>one</b>word", "inoneword"),
            ("<b>two</b> <i>words</i>", "two words"),
            ("<a href='https://a.example'>a link</a>", "a link"),
            ("R&amp;D &lt;3", "R&D <3"),
            ("&lt;script&gt;x&lt;/script&gt; &lt;!--", "< script>x< /script> < !--"),
            ("&lt;<b>script></b>", "< script>"),
            ("&lt;&#1;script>", "< script>"),
            ("<script>x</script> <style>y</style>", ""),
            ("  <p> </p> ", ""),
            ("plain text", "plain text"),
        ] {
            assert_eq!(plain(html), expected, "{html}");
        }
    }

    #[test]
    fn hostile_html_stays_small_and_is_closed() {
        for piece in ["<p>", "<b>", "<a ", "<a href=\"", "</", "<!--", "&", "<ul><li>", "<script>"]
        {
            let html = piece.repeat(50_000);
            let safe = sanitised(&html);
            assert!(safe.len() <= 8 * html.len(), "{piece}: {} bytes", safe.len());
            plain(&html);
        }
        let deep = sanitised(&"<b>".repeat(1000));
        assert_eq!(deep.matches("<b>").count(), MAX_DEPTH);
        assert_eq!(deep.matches("</b>").count(), MAX_DEPTH);
    }
}
