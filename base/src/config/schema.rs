//! The JSON Schema of a configuration file, for editors: names, meanings, types and defaults.
//!
//! It is made from the registry of keys. Which forms a key takes is asked of its reader. Bounds,
//! relations between keys, and which are missing (a variable may set them) are left to
//! `portcullis check`.

use serde_json::{Map, Value, json};
use toml::de::DeValue;

use super::Draft;
use super::key::{DefaultValue, Key};
use super::registry::KEYS;

/// The schema, as a JSON document.
pub fn schema() -> String {
    let mut root = object("The configuration of Portcullis.");
    for section in KEYS.0 {
        let own = section.path.split('.').fold(&mut root, |parent, name| {
            let members = &mut parent["properties"];
            if members.get(name).is_none() {
                members[name] = object("");
            }
            &mut members[name]
        });
        if !section.about.is_empty() {
            own["description"] = text(section.about).into();
        }
        for key in section.keys {
            let (_, name) = key.split();
            own["properties"][name] = of_key(key);
        }
    }
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    format!("{root:#}\n")
}

/// A table, which has no other members than those that are added.
fn object(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "properties": Map::new(),
        "additionalProperties": false,
    })
}

/// Lines of a comment as one text; the reason for a default has a line of its own.
fn text(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.trim()).collect();
    lines.join(" ").replace(" Why: ", "\nWhy: ")
}

fn of_key(key: &Key) -> Value {
    let literal = DeValue::parse(key.literal());
    let literal = literal.expect("every literal of a row is TOML: each start reads them all");
    let value = json_of(literal.get_ref());
    let types = match value {
        // a list of one item may be written as that item
        Value::Array(_) => json!(["array", "string", "integer"]),
        _ if takes(key, &format!("[{}]", key.literal())) => json!([type_of(&value), "array"]),
        _ => json!(type_of(&value)),
    };
    let mut schema = json!({ "type": types, "description": text(key.doc) });
    if let DefaultValue::Default(_) = key.default {
        schema["default"] = value;
    }
    schema
}

/// Whether a key's reader takes this value.
fn takes(key: &Key, literal: &str) -> bool {
    let (section, name) = key.split();
    let draft = Draft::parse(&format!("[{section}]\n{name} = {literal}\n"), []);
    let Ok(draft) = draft else { return false };
    match draft.mistakes {
        Ok(()) => true,
        Err(errors) => errors.iter().all(|error| error.key != key.path),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) | Value::Null => "string",
    }
}

fn json_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Integer(number) => number
            .as_str()
            .parse::<u64>()
            .map_or(Value::Null, Value::from),
        DeValue::Float(number) => number
            .as_str()
            .parse::<f64>()
            .map_or(Value::Null, Value::from),
        DeValue::Array(items) => items.iter().map(|item| json_of(item.get_ref())).collect(),
        DeValue::Table(members) => members
            .iter()
            .map(|(name, value)| (name.get_ref().to_string(), json_of(value.get_ref())))
            .collect(),
        other => other.as_str().unwrap_or_default().into(),
    }
}
