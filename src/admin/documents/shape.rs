//! A schema in the notation of TypeScript, with links to other schemas.

use super::node::Node;
use super::spec::{Spec, reference};
use super::text::{escape, inline};

/// A schema as a block. `not`, `format` and the like are in the raw document only. A schema that
/// only refers to another is shown as that one.
pub(super) fn of(spec: &Spec, schema: &Node) -> String {
    let is_name = schema.members().count() == 1;
    let schema = if is_name { spec.follow(schema) } else { schema };
    format!("<pre class=\"shape\">{}</pre>", shape(spec, schema, 0))
}

/// The schema of a parameter or header, in a line.
pub(super) fn line(spec: &Spec, schema: &Node) -> String {
    let rules = rules(schema);
    let rules = if rules.is_empty() { rules } else { format!(" <i>{rules}</i>") };
    format!("<code>{}</code>{rules}", shape(spec, schema, 0))
}

fn shape(spec: &Spec, schema: &Node, indent: usize) -> String {
    let mut parts = Vec::new();
    if let Some(to) = reference(schema) {
        let name = to.rsplit('/').next().unwrap_or_default();
        let anchor = spec.schema_anchor(name);
        parts.push(format!("<a href=\"#{anchor}\">{}</a>", escape(name)));
    }
    for all in schema["allOf"].items() {
        parts.push(shape(spec, all, indent));
    }
    for name in ["oneOf", "anyOf"] {
        let each: Vec<_> =
            schema[name].items().iter().map(|one| shape(spec, one, indent)).collect();
        if !each.is_empty() {
            let joint = if each.iter().any(|one| one.contains('\n')) { "\n" } else { " " };
            let pad = if joint == "\n" { " ".repeat(indent) } else { String::new() };
            parts.push(each.join(&format!("{joint}{pad}| ")));
        }
    }
    if let Some(own) = own(spec, schema, indent) {
        parts.push(own);
    }
    if parts.is_empty() { "any".to_owned() } else { parts.join(" &amp; ") }
}

/// The part of a schema that is not a combination of others.
fn own(spec: &Spec, schema: &Node, indent: usize) -> Option<String> {
    if !schema["const"].is_absent() {
        return Some(literal(&schema["const"]));
    }
    let values: Vec<_> = schema["enum"].items().iter().map(literal).collect();
    if !values.is_empty() {
        let one_line = values.join(" | ");
        if one_line.len() + indent <= 72 {
            return Some(one_line);
        }
        let pad = " ".repeat(indent + 2);
        return Some(values.iter().map(|value| format!("\n{pad}| {value}")).collect());
    }
    let types = &schema["type"];
    if !types.items().is_empty() {
        return Some(types.items().iter().map(Node::text).collect::<Vec<_>>().join(" | "));
    }
    match types.as_str() {
        Some("array") => Some(array(spec, schema, indent)),
        Some("object") => Some(object(spec, schema, indent)),
        None if schema["properties"].is_object() => Some(object(spec, schema, indent)),
        plain => plain.map(str::to_owned),
    }
}

fn array(spec: &Spec, schema: &Node, indent: usize) -> String {
    if schema["items"].is_absent() {
        return if schema["maxItems"].as_i64() == Some(0) { "[]" } else { "any[]" }.to_owned();
    }
    let item = shape(spec, &schema["items"], indent);
    if let (Some(1), Some(1)) = (schema["minItems"].as_i64(), schema["maxItems"].as_i64()) {
        return format!("[{item}]");
    }
    if item.contains(" | ") || item.contains(" &amp; ") {
        format!("({item})[]")
    } else {
        format!("{item}[]")
    }
}

fn object(spec: &Spec, schema: &Node, indent: usize) -> String {
    let pad = " ".repeat(indent + 2);
    let required: Vec<_> = schema["required"].items().iter().filter_map(Node::as_str).collect();
    // a schema that only narrows another does not say what is required
    let narrows = schema["type"].is_absent();
    let mut lines = String::new();
    for (name, member) in schema["properties"].members() {
        let optional = if narrows || required.contains(&name) { "" } else { "?" };
        let shape = shape(spec, member, indent + 2);
        let remark = remark(member);
        lines.push_str(&format!("\n{pad}<b>{}</b>{optional}: {shape}{remark}", escape(name)));
    }
    if schema["additionalProperties"].is_object() {
        let shape = shape(spec, &schema["additionalProperties"], indent + 2);
        lines.push_str(&format!("\n{pad}[name]: {shape}"));
    }
    if lines.is_empty() {
        let closed = schema["maxProperties"].as_i64() == Some(0);
        return if closed { "{}" } else { "object" }.to_owned();
    }
    format!("{{{lines}\n{}}}", " ".repeat(indent))
}

/// The comment behind a member.
fn remark(member: &Node) -> String {
    let description = member["description"].text().replace('\n', " ");
    let words = [inline(&description), rules(member)];
    let words: Vec<_> = words.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    if words.is_empty() { String::new() } else { format!("  <i>// {}</i>", words.join(" ")) }
}

/// Bounds and patterns, in words.
pub(super) fn rules(schema: &Node) -> String {
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
    if !schema["default"].is_absent() {
        rules.push(format!("default {}", literal(&schema["default"])));
    }
    rules.retain(|rule| !rule.is_empty());
    rules.join(", ")
}

fn literal(value: &Node) -> String {
    escape(&value.json())
}
