//! YAML as JSON, members in the order in which they are written.

use yaml_rust2::Yaml;

/// On one line.
pub(crate) fn of(node: &Yaml) -> String {
    let mut out = String::new();
    write(node, None, &mut out);
    out
}

/// For people: a member or an item on each line, short arrays and objects aside.
pub(crate) fn pretty(node: &Yaml) -> String {
    let mut out = String::new();
    write(node, Some(0), &mut out);
    out
}

/// Columns that an array or an object may have to stand on one line.
const SHORT: usize = 76;

fn write(node: &Yaml, indent: Option<usize>, out: &mut String) {
    match node {
        Yaml::String(text) => string(text, out),
        Yaml::Integer(number) => out.push_str(&number.to_string()),
        Yaml::Real(number) => out.push_str(number),
        Yaml::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Yaml::Array(items) => {
            list('[', ']', items.iter().map(|item| ("", item)), fits(node, indent), out);
        }
        Yaml::Hash(members) => {
            let members =
                members.iter().map(|(name, member)| (name.as_str().unwrap_or_default(), member));
            list('{', '}', members, fits(node, indent), out);
        }
        Yaml::Null | Yaml::Alias(_) | Yaml::BadValue => out.push_str("null"),
    }
}

/// The indentation of what is inside, unless all of it stands on one line.
fn fits(node: &Yaml, indent: Option<usize>) -> Option<usize> {
    indent.filter(|indent| indent + of(node).len() > SHORT).map(|indent| indent + 2)
}

fn list<'a>(
    open: char,
    close: char,
    members: impl Iterator<Item = (&'a str, &'a Yaml)>,
    indent: Option<usize>,
    out: &mut String,
) {
    let line = |out: &mut String, indent: Option<usize>| {
        if let Some(indent) = indent {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
        }
    };
    out.push(open);
    for (at, (name, member)) in members.enumerate() {
        if at > 0 {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
        line(out, indent);
        if open == '{' {
            string(name, out);
            out.push_str(": ");
        }
        write(member, indent, out);
    }
    line(out, indent.map(|indent| indent - 2));
    out.push(close);
}

/// A string with what JSON escapes; RFC 8259, section 7.
fn string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            plain => out.push(plain),
        }
    }
    out.push('"');
}
