//! A schema as people read one: its shape, in the notation of TypeScript, with links to others.

use crate::document::{Document, items, members, reference, string};
use crate::json;
use crate::text::{escape, inline};
use yaml_rust2::Yaml;

/// What `not`, `format` and the like say is in the raw document only. A schema that is another's
/// name and nothing else is shown as that.
pub(crate) fn of(document: &Document, schema: &Yaml) -> String {
    let is_name = schema.as_hash().is_some_and(|members| members.len() == 1);
    let schema = if is_name { document.follow(schema) } else { schema };
    format!("<pre class=\"shape\">{}</pre>", shape(document, schema, 0))
}

/// The same for a value that stands in a line: a parameter, a header.
pub(crate) fn line(document: &Document, schema: &Yaml) -> String {
    let rules = rules(schema);
    let rules = if rules.is_empty() { rules } else { format!(" <i>{rules}</i>") };
    format!("<code>{}</code>{rules}", shape(document, schema, 0))
}

fn shape(document: &Document, schema: &Yaml, indent: usize) -> String {
    let mut parts = Vec::new();
    if let Some(to) = reference(schema) {
        let name = to.rsplit('/').next().unwrap_or_default();
        let anchor = document.schema_anchor(name);
        parts.push(format!("<a href=\"#{anchor}\">{}</a>", escape(name)));
    }
    for all in items(&schema["allOf"]) {
        parts.push(shape(document, all, indent));
    }
    for name in ["oneOf", "anyOf"] {
        let each: Vec<_> =
            items(&schema[name]).iter().map(|one| shape(document, one, indent)).collect();
        if !each.is_empty() {
            let joint = if each.iter().any(|one| one.contains('\n')) { "\n" } else { " " };
            let pad = if joint == "\n" { " ".repeat(indent) } else { String::new() };
            parts.push(each.join(&format!("{joint}{pad}| ")));
        }
    }
    if let Some(own) = own(document, schema, indent) {
        parts.push(own);
    }
    if parts.is_empty() { "any".to_owned() } else { parts.join(" &amp; ") }
}

/// What a schema says itself.
fn own(document: &Document, schema: &Yaml, indent: usize) -> Option<String> {
    if !schema["const"].is_badvalue() {
        return Some(literal(&schema["const"]));
    }
    if let Some(values) = schema["enum"].as_vec() {
        let values: Vec<_> = values.iter().map(literal).collect();
        let one_line = values.join(" | ");
        if one_line.len() + indent <= 72 {
            return Some(one_line);
        }
        let pad = " ".repeat(indent + 2);
        return Some(values.iter().map(|value| format!("\n{pad}| {value}")).collect());
    }
    let types = &schema["type"];
    if let Some(types) = types.as_vec() {
        return Some(types.iter().filter_map(Yaml::as_str).collect::<Vec<_>>().join(" | "));
    }
    match types.as_str() {
        Some("array") => Some(array(document, schema, indent)),
        Some("object") => Some(object(document, schema, indent)),
        None if schema["properties"].as_hash().is_some() => Some(object(document, schema, indent)),
        plain => plain.map(str::to_owned),
    }
}

fn array(document: &Document, schema: &Yaml, indent: usize) -> String {
    if schema["items"].is_badvalue() {
        return if schema["maxItems"].as_i64() == Some(0) { "[]" } else { "any[]" }.to_owned();
    }
    let item = shape(document, &schema["items"], indent);
    if let (Some(1), Some(1)) = (schema["minItems"].as_i64(), schema["maxItems"].as_i64()) {
        return format!("[{item}]");
    }
    if item.contains(" | ") || item.contains(" &amp; ") {
        format!("({item})[]")
    } else {
        format!("{item}[]")
    }
}

fn object(document: &Document, schema: &Yaml, indent: usize) -> String {
    let pad = " ".repeat(indent + 2);
    let required: Vec<_> = items(&schema["required"]).iter().filter_map(Yaml::as_str).collect();
    // what only narrows another schema leaves open what is required
    let narrows = schema["type"].is_badvalue();
    let mut lines = String::new();
    for (name, member) in members(&schema["properties"]) {
        let optional = if narrows || required.contains(&name) { "" } else { "?" };
        let shape = shape(document, member, indent + 2);
        let remark = remark(member);
        lines.push_str(&format!("\n{pad}<b>{}</b>{optional}: {shape}{remark}", escape(name)));
    }
    if schema["additionalProperties"].as_hash().is_some() {
        let shape = shape(document, &schema["additionalProperties"], indent + 2);
        lines.push_str(&format!("\n{pad}[name]: {shape}"));
    }
    if lines.is_empty() {
        let closed = schema["maxProperties"].as_i64() == Some(0);
        return if closed { "{}" } else { "object" }.to_owned();
    }
    format!("{{{lines}\n{}}}", " ".repeat(indent))
}

/// What is to be said of a member, behind it.
fn remark(member: &Yaml) -> String {
    let description = string(member, "description").replace('\n', " ");
    let words = [inline(&description), rules(member)];
    let words: Vec<_> = words.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    if words.is_empty() { String::new() } else { format!("  <i>// {}</i>", words.join(" ")) }
}

/// Bounds and forms, in words.
pub(crate) fn rules(schema: &Yaml) -> String {
    let number = |name: &str| schema[name].as_i64();
    let range = |low: Option<i64>, high: Option<i64>, what: &str| match (low, high) {
        (Some(low), Some(high)) if low == high => format!("{what}exactly {low}"),
        (Some(low), Some(high)) => format!("{what}{low} to {high}"),
        (Some(low), None) => format!("{what}at least {low}"),
        (None, Some(high)) => format!("{what}at most {high}"),
        (None, None) => String::new(),
    };
    let mut rules = vec![
        range(number("minimum"), number("maximum"), ""),
        range(number("minLength"), number("maxLength"), "characters: "),
        range(number("minItems"), number("maxItems"), "items: "),
    ];
    if let Some(pattern) = schema["pattern"].as_str() {
        rules.push(escape(pattern));
    }
    if !schema["default"].is_badvalue() {
        rules.push(format!("default {}", literal(&schema["default"])));
    }
    rules.retain(|rule| !rule.is_empty());
    rules.join(", ")
}

fn literal(value: &Yaml) -> String {
    escape(&json::of(value))
}
