//! Text as HTML: escaped, with the subset of Markdown that the documents use.

/// Escapes a text for an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A line of text, with code between backticks.
pub(super) fn inline(text: &str) -> String {
    let parts = text.trim().split('`').enumerate();
    let html = parts.map(|(at, part)| match at % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    });
    html.collect()
}

/// Paragraphs, and lists of lines that begin with a hyphen.
pub(super) fn blocks(text: &str) -> String {
    text.trim().split("\n\n").filter(|block| !block.trim().is_empty()).map(block).collect()
}

fn block(text: &str) -> String {
    let (before, list) = match text.find("- ") {
        Some(0) => ("", text),
        _ => text.split_once("\n- ").map_or((text, ""), |(before, list)| (before, list)),
    };
    let mut html = String::new();
    if !before.is_empty() {
        html.push_str(&format!("<p>{}</p>", inline(before)));
    }
    if !list.is_empty() {
        let items = list.trim_start_matches("- ").split("\n- ");
        let items: String = items.map(|item| format!("<li>{}</li>", inline(item))).collect();
        html.push_str(&format!("<ul>{items}</ul>"));
    }
    html
}

/// An anchor of letters, digits and hyphens.
pub(super) fn anchor(words: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let text: String = words.chars().map(plain).collect();
    text.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}
