//! The build script: converts the API documents in `conf/` from YAML to JSON, keeping the order of
//! their members, and renders them and the runbook as pages from the templates in
//! `templates`: an operator reads those of the running version, without a network.

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, UndefinedBehavior, Value, context};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};
use std::error::Error;
use std::path::Path;
use std::{env, fs, io};
use yaml_rust2::{Yaml, YamlLoader};

/// The documents, in the order of the page.
const DOCUMENTS: [(&str, &str); 5] = [
    ("openapi", "gateway"),
    ("openrpc", "gateway"),
    ("openapi", "relay"),
    ("openapi", "sidecar"),
    ("openapi", "admin"),
];
/// The folder with the templates of the pages and their styles.
const TEMPLATES: &str = "templates";
/// The runbook of the alerts.
const RUNBOOK: &str = "../conf/prometheus/RUNBOOK.md";

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    let mut documents = Vec::new();
    for (folder, name) in DOCUMENTS {
        let path = format!("../conf/{folder}/{name}.yaml");
        println!("cargo::rerun-if-changed={path}");
        let yaml = YamlLoader::load_from_str(&fs::read_to_string(&path)?)
            .map_err(|error| format!("{path}: {error}"))?;
        let root = yaml.first().map(value).unwrap_or_default();
        fs::write(out.join(format!("{folder}-{name}.json")), json(&root))?;
        documents.push(context! { folder, name, root });
    }
    println!("cargo::rerun-if-changed={TEMPLATES}");
    fs::write(out.join("documents.html"), page(&documents, "operator")?)?;
    // the public page: the gateway's HTTP interface and methods
    fs::write(out.join("gateway.html"), page(&documents[..2], "public")?)?;
    println!("cargo::rerun-if-changed={RUNBOOK}");
    fs::write(out.join("runbook.html"), runbook()?)?;
    Ok(())
}

fn value(node: &Yaml) -> Value {
    match node {
        Yaml::String(text) => text.into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Real(number) => number.parse::<f64>().unwrap_or_default().into(),
        Yaml::Boolean(value) => (*value).into(),
        Yaml::Array(items) => items.iter().map(value).collect(),
        Yaml::Hash(members) => Value::from_pairs(
            members
                .iter()
                .map(|(name, member)| (value(name), value(member))),
        ),
        Yaml::Null | Yaml::Alias(_) | Yaml::BadValue => Value::from(()),
    }
}

/// The text of a template.
fn template(name: &str) -> io::Result<String> {
    fs::read_to_string(Path::new(TEMPLATES).join(name))
}

/// Renders documents as one page without scripts and external resources. `readers` is `operator` or
/// `public`.
fn page(documents: &[Value], readers: &str) -> Result<String, Box<dyn Error>> {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Chainable);
    for name in ["page.html", "document.html"] {
        templates.add_template_owned(name, template(name)?)?;
    }
    templates.add_filter("json", json);
    templates.add_filter("pretty", |node: &Value| pretty(node, 0));
    templates.add_filter("blocks", |text: Option<&str>| {
        Value::from_safe_string(blocks(text))
    });
    templates.add_filter("inline", |text: Option<&str>| {
        let html = blocks(text);
        let paragraph = html
            .trim()
            .strip_prefix("<p>")
            .and_then(|rest| rest.strip_suffix("</p>"));
        Value::from_safe_string(paragraph.unwrap_or(&html).to_owned())
    });
    templates.add_filter("at", at);
    templates.add_filter("by_name", |list: Vec<Value>| {
        Value::from_pairs(
            list.iter()
                .map(|one| (member(one, "name"), member(one, "value"))),
        )
    });
    templates.add_function("anchor", anchor);
    templates.add_function("pad", |indent: usize| " ".repeat(indent));
    let style = template("palette.css")? + &template("style.css")?;
    let page = templates
        .get_template("page.html")?
        .render(context! { documents, readers, style })?;
    // minijinja also escapes `/` and `'`, which HTML text does not need
    Ok(page.replace("&#x2f;", "/").replace("&#x27;", "'"))
}

/// Renders the runbook as a page, with an anchor at each heading. Links to other files would lead
/// nowhere, so only their text stays.
fn runbook() -> Result<String, Box<dyn Error>> {
    let text = fs::read_to_string(RUNBOOK)?;
    let (mut heading, mut is_dropped) = (None::<String>, false);
    let is_elsewhere = |to: &str| !to.starts_with('#') && !to.starts_with("https://");
    let events = Parser::new_ext(&text, Options::ENABLE_TABLES).flat_map(|event| {
        match &event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(title) = &mut heading {
                    title.push_str(part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let id = slug(&heading.take().unwrap_or_default());
                let anchor = format!("<a class=\"at\" id=\"{id}\"></a>");
                return vec![Event::InlineHtml(anchor.into()), event];
            }
            Event::Start(Tag::Link { dest_url, .. }) if is_elsewhere(dest_url) => {
                is_dropped = true;
                return Vec::new();
            }
            Event::End(TagEnd::Link) if is_dropped => {
                is_dropped = false;
                return Vec::new();
            }
            _ => {}
        }
        vec![event]
    });
    let mut body = String::new();
    html::push_html(&mut body, events);
    let style = template("palette.css")? + &template("style.css")?;
    Ok(template("runbook.html")?
        .replace("{{ style }}", &style)
        .replace("{{ body }}", &body))
}

/// The anchor that GitHub generates for a heading.
fn slug(title: &str) -> String {
    let letters = title.to_lowercase().replace(' ', "-");
    letters
        .chars()
        .filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter))
        .collect()
}

/// A value as JSON on one line.
fn json(node: &Value) -> String {
    match parts(node, json) {
        Some(([open, close], parts)) => format!("{open}{}{close}", parts.join(", ")),
        None => serde_json::to_string(node).unwrap_or_default(),
    }
}

/// A value as JSON for people: a member or an item on each line, except where an array or object
/// is short.
fn pretty(node: &Value, indent: usize) -> String {
    const SHORT: usize = 76;
    let (line, inner) = (json(node), indent + 2);
    match parts(node, |part| pretty(part, inner)) {
        Some(([open, close], parts)) if indent + line.len() > SHORT => {
            let (pad, end) = (" ".repeat(inner), " ".repeat(indent));
            format!(
                "{open}\n{pad}{}\n{end}{close}",
                parts.join(&format!(",\n{pad}"))
            )
        }
        _ => line,
    }
}

/// The brackets of an array or object and its parts, serialized by `write`; `None` for a scalar.
fn parts(node: &Value, write: impl Fn(&Value) -> String) -> Option<([char; 2], Vec<String>)> {
    match node.kind() {
        ValueKind::Seq => Some((
            ['[', ']'],
            node.try_iter().ok()?.map(|item| write(&item)).collect(),
        )),
        ValueKind::Map => {
            let member = |name: Value| {
                let member = node.get_item(&name).unwrap_or_default();
                format!("{}: {}", json(&name), write(&member))
            };
            Some((['{', '}'], node.try_iter().ok()?.map(member).collect()))
        }
        _ => None,
    }
}

fn member(node: &Value, name: &str) -> Value {
    node.get_attr(name).unwrap_or_default()
}

/// Markdown as HTML.
fn blocks(text: Option<&str>) -> String {
    let mut out = String::new();
    html::push_html(&mut out, Parser::new(text.unwrap_or_default()));
    out
}

/// Resolves a `$ref` within the document. A node without one is returned as it is.
fn at(node: &Value, root: &Value) -> Value {
    let reference = member(node, "$ref");
    match reference.as_str().and_then(|to| to.strip_prefix("#/")) {
        Some(path) => path
            .split('/')
            .fold(root.clone(), |node, name| member(&node, name)),
        None => node.clone(),
    }
}

/// An anchor of letters, digits and hyphens.
fn anchor(document: &Value, words: Rest<String>) -> String {
    let names = ["folder", "name"].map(|name| member(document, name).to_string());
    let text = names
        .into_iter()
        .chain(words.0)
        .collect::<Vec<_>>()
        .join("-");
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}
