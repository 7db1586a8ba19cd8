//! Sanitizes text by creators: HTML about an episode, as harmless HTML and as plain text; and plain
//! text that apps may render as HTML.
//!
//! No markup is passed through: text is decoded and escaped again, and allowed tags are written
//! anew and closed. So the output contains only these tags, whatever the input is. The only
//! attribute is the `href` of a link. A parser of HTML5 would be a dozen
//! crates more, for a dozen tags.

use crate::sidecar::xml::{ELLIPSIS, is_legal, legal};
use quick_xml::escape::{escape, resolve_html5_entity};
use quick_xml::events::BytesStart;
use std::ops::ControlFlow;

/// Tags of the output. Only `br` has no end tag.
const ALLOWED: &str = "a b blockquote br code em h1 h2 h3 h4 h5 h6 i li ol p pre strong ul";
/// Those that end a paragraph.
const BLOCKS: &str = "blockquote h1 h2 h3 h4 h5 h6 li ol p pre ul";
/// Elements whose content is dropped.
const HIDDEN: &str = "iframe noscript script style template textarea title";
/// Elements that can act, or hide what follows, without any attribute.
const ACTIVE: &str = "applet base body button embed form frameset head html input link listing \
                      math meta noembed noframes object plaintext select svg xmp";
/// Schemes of links.
const SCHEMES: &[&str] = &["https://", "http://", "mailto:"];
/// The bound on nested tags: far beyond lists in lists.
const MAX_DEPTH: usize = 32;
/// The longest name of a character reference has 31 bytes.
const MAX_REFERENCE: usize = 32;
/// 2,047 bytes: longer links work in few browsers.
const MAX_URL: usize = 2_047;

/// Reduces HTML to its text and the allowed tags. The rest of a longer text is left out once the
/// output has `max_bytes`.
pub(super) fn sanitize(html: &str, max_bytes: usize) -> String {
    let mut page = Page {
        html: String::with_capacity(html.len().min(max_bytes)),
        open: Vec::new(),
        max_bytes,
    };
    for token in Tokens(html) {
        let written = match token {
            Token::Text(text) => page.text(text),
            Token::Open(tag) => page.open(tag),
            Token::Close(name) => page.close(name),
        };
        if written.is_break() {
            page.html.push_str(ELLIPSIS);
            break;
        }
    }
    page.close_down_to(0);
    page.html.trim().to_owned()
}

/// The text alone, with paragraphs and white space as a browser shows them. Text that looks like
/// a tag is broken up: the text must be harmless to apps that render it as HTML. The rest of a
/// longer text is left out once the output has `max_bytes`.
pub(super) fn plain(html: &str, max_bytes: usize) -> String {
    let mut plain = Plain {
        text: String::with_capacity(html.len().min(max_bytes)),
        gap: 0,
    };
    for token in Tokens(html) {
        match token {
            Token::Text(raw) => {
                let _full = decode(raw, |piece| {
                    piece.chars().for_each(|c| plain.push(c));
                    below(plain.text.len(), max_bytes)
                });
            }
            Token::Open(tag) => plain.gap = plain.gap.max(gap_at(name_of(tag))),
            Token::Close(name) => plain.gap = plain.gap.max(gap_at(name)),
        }
        if plain.text.len() >= max_bytes {
            break;
        }
    }
    plain.text
}

/// Plain text being written.
struct Plain {
    text: String,
    /// The separator before the next character: an index in [`GAPS`].
    gap: usize,
}

impl Plain {
    fn push(&mut self, c: char) {
        if !is_legal(c) {
            return;
        }
        if c.is_ascii_whitespace() {
            self.gap = self.gap.max(1);
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str(GAPS[self.gap]);
        }
        if self.text.ends_with('<') && (c.is_ascii_alphabetic() || "/!?".contains(c)) {
            self.text.push(' ');
        }
        self.text.push(c);
        self.gap = 0;
    }
}

/// Plain text with every tag broken up by a space, so that apps that render HTML show the tag.
pub(super) fn without_tags(text: &str) -> String {
    broken_up(&legal(text), is_tag)
}

/// Plain text with every tag broken up that could do more than change its appearance. Other tags
/// stay, as most apps show this text unrendered.
pub(super) fn without_active_tags(text: &str) -> String {
    broken_up(&legal(text), |after| {
        let tag = after.strip_prefix('/').unwrap_or(after);
        let name = name_of(tag);
        let is_bare = tag[name.len()..].starts_with('>');
        let is_inert = [ACTIVE, HIDDEN]
            .iter()
            .all(|list| one_of(list, name).is_none());
        is_tag(after) && !(is_bare && is_inert)
    })
}

/// Inserts a space after each `<` where `breaks` finds a tag in the text that follows.
fn broken_up(text: &str, breaks: impl Fn(&str) -> bool) -> String {
    let (mut broken, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('<') {
        broken.extend([before, if breaks(after) { "< " } else { "<" }]);
        rest = after;
    }
    broken + rest
}

/// Whether an HTML parser finds a tag or a comment in the text after a `<`.
fn is_tag(after: &str) -> bool {
    let tag = after.strip_prefix('/').unwrap_or(after);
    tag.starts_with(|c: char| c.is_ascii_alphabetic()) || after.starts_with("!--")
}

/// Separators by their width: of several, the widest counts.
const GAPS: [&str; 4] = ["", " ", "\n", "\n\n"];

/// The index in [`GAPS`] of the separator at a tag's start or end.
fn gap_at(name: &str) -> usize {
    match name.to_ascii_lowercase().as_str() {
        "td" | "th" => 1,
        "br" | "div" | "hr" | "li" | "tr" => 2,
        "blockquote" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "ol" | "p" | "pre" | "ul" => 3,
        _ => 0,
    }
}

/// The output being written. Each step breaks off once the output is full.
struct Page {
    html: String,
    open: Vec<&'static str>,
    max_bytes: usize,
}

impl Page {
    fn text(&mut self, raw: &str) -> ControlFlow<()> {
        decode(raw, |piece| {
            for c in piece.chars() {
                self.has_room()?;
                match c {
                    '<' => self.html.push_str("&lt;"),
                    '>' => self.html.push_str("&gt;"),
                    '&' => self.html.push_str("&amp;"),
                    '"' => self.html.push_str("&quot;"),
                    '\'' => self.html.push_str("&apos;"),
                    _ => self.html.push(c),
                }
            }
            ControlFlow::Continue(())
        })
    }

    fn has_room(&self) -> ControlFlow<()> {
        below(self.html.len(), self.max_bytes)
    }

    fn open(&mut self, tag: &str) -> ControlFlow<()> {
        let Some(name) = one_of(ALLOWED, name_of(tag)) else {
            return ControlFlow::Continue(());
        };
        self.has_room()?;
        self.close_before(name);
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
        ControlFlow::Continue(())
    }

    /// Closes open elements that cannot contain this one: a link, an item of the same list, or the
    /// paragraph around a block.
    fn close_before(&mut self, name: &str) {
        if matches!(name, "a" | "li") {
            let last = self
                .open
                .iter()
                .rposition(|open| *open == name || (name == "li" && matches!(*open, "ul" | "ol")));
            if let Some(at) = last.filter(|at| self.open[*at] == name) {
                self.close_down_to(at);
            }
        }
        if one_of(BLOCKS, name).is_some()
            && let Some(at) = self.open.iter().rposition(|open| *open == "p")
        {
            self.close_down_to(at);
        }
    }

    fn close(&mut self, name: &str) -> ControlFlow<()> {
        let last = self
            .open
            .iter()
            .rposition(|open| open.eq_ignore_ascii_case(name));
        if let Some(at) = last {
            self.close_down_to(at);
        }
        ControlFlow::Continue(())
    }

    fn close_down_to(&mut self, depth: usize) {
        for name in self.open.drain(depth..).rev() {
            self.html.extend(["</", name, ">"]);
        }
    }
}

/// Finds a name in a list, ignoring case.
fn one_of(names: &'static str, name: &str) -> Option<&'static str> {
    names.split(' ').find(|one| one.eq_ignore_ascii_case(name))
}

/// The target of a link, if its scheme is allowed and it is no longer than a URL may be.
fn target(tag: &str) -> Option<String> {
    let start = BytesStart::from_content(tag, name_of(tag).len());
    let mut attributes = start.html_attributes();
    let href = attributes
        .with_checks(false)
        .flatten()
        .find(|attribute| attribute.key.as_ref().eq_ignore_ascii_case("href"))?;
    let mut target = String::new();
    let is_short = decode(href.value.trim(), |piece| {
        target.push_str(piece);
        below(target.len(), MAX_URL + 1)
    });
    let has_scheme = |scheme: &&str| {
        target
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let is_allowed = is_short.is_continue() && SCHEMES.iter().any(has_scheme);
    is_allowed.then_some(target)
}

fn name_of(tag: &str) -> &str {
    let end = tag.find(|c: char| !c.is_ascii_alphanumeric());
    &tag[..end.unwrap_or(tag.len())]
}

/// Resolves character references; unknown ones stay as they are. Passes the text on in pieces,
/// without a copy, until `take` breaks off.
fn decode(raw: &str, mut take: impl FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
    let mut rest = raw;
    while let Some(at) = rest.find('&') {
        if at > 0 {
            take(&rest[..at])?;
        }
        let after = &rest[at + 1..];
        rest = after;
        let end = after
            .bytes()
            .take(MAX_REFERENCE)
            .position(|byte| byte == b';');
        let mut character = [0; 4];
        match end.and_then(|end| resolve(&after[..end], &mut character).zip(Some(end))) {
            Some((text, end)) => {
                rest = &after[end + 1..];
                take(text)?;
            }
            None => take("&")?,
        }
    }
    take(rest)
}

/// The text of a character reference, by its name or number.
fn resolve<'a>(name: &str, buffer: &'a mut [u8; 4]) -> Option<&'a str> {
    let Some(number) = name.strip_prefix('#') else {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        return if is_name {
            resolve_html5_entity(name)
        } else {
            None
        };
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => number.parse(),
    };
    let character = char::from_u32(code.ok()?)?;
    Some(character.encode_utf8(buffer))
}

/// Breaks off once this many of `max` bytes are written.
fn below(bytes: usize, max: usize) -> ControlFlow<()> {
    if bytes < max {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

/// A piece of HTML, without comments and hidden elements.
enum Token<'a> {
    Text(&'a str),
    /// The text between `<` and `>`.
    Open(&'a str),
    /// The name.
    Close(&'a str),
}

/// The unread rest of the HTML. Every byte is read once or twice, whatever the input is.
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
                    // an unfinished tag: it and the rest are text
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
    /// Skips the content of a hidden element and returns whether it is one. Its end tag stays, and
    /// closes nothing.
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

/// The end of a tag: the first `>` outside of quotes. A quote counts only at the start of a value.
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
