//! The page: a table of contents at its side, then one part for each document.

use super::spec::Spec;
use super::text::{blocks, escape, inline};
use super::{method, operation, shape};

/// HTTP methods, in the order in which they are shown.
const VERBS: [&str; 4] = ["get", "post", "put", "options"];

/// All documents on one page, which loads nothing and runs no script.
pub(super) fn of(documents: &[Spec], style: &str) -> String {
    let list: String = documents.iter().map(contents).collect();
    let parts: String = documents.iter().map(part).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Portcullis: interfaces</title><style>{style}</style></head><body>\
         <nav><p class=\"top\"><a href=\"#top\">Portcullis</a></p>{list}</nav>\
         <main id=\"top\"><header><h1>Interfaces</h1><p>Requests and responses of each surface, \
         from the documents that the program is tested against.</p></header>{parts}</main>\
         </body></html>\n"
    )
}

/// The heading of a part: its surface.
fn short_title(spec: &Spec) -> String {
    capital(spec.root["info"]["title"].text().trim_start_matches("Portcullis "))
}

/// The operations and methods of a document.
fn contents(spec: &Spec) -> String {
    let mut links = String::new();
    let mut link = |anchor: &str, verb: &str, text: &str| {
        let verb = if verb.is_empty() {
            String::new()
        } else {
            format!("<b class=\"verb {verb}\">{}</b> ", verb.to_uppercase())
        };
        links.push_str(&format!("<li><a href=\"#{anchor}\">{verb}{}</a></li>", escape(text)));
    };
    for (path, of_path) in spec.root["paths"].members() {
        for verb in VERBS.into_iter().filter(|verb| !of_path[*verb].is_absent()) {
            link(&operation::anchor(spec, verb, path), verb, path);
        }
    }
    for one in spec.root["methods"].items() {
        let name = one["name"].text();
        link(&method::anchor(spec, one), "", name.trim_start_matches("starknet_"));
    }
    let (anchor, short) = (spec.anchor(&[]), inline(&short_title(spec)));
    format!("<p><a href=\"#{anchor}\">{short}</a></p><ul>{links}</ul>")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

/// One document.
fn part(spec: &Spec) -> String {
    let Spec { folder, name, root } = spec;
    let kind = if *folder == "openapi" { "OpenAPI" } else { "OpenRPC" };
    let mut html = format!(
        "<section id=\"{}\"><h2>{}</h2><p class=\"raw\">{kind} as \
         <a href=\"/docs/{folder}/{name}.yaml\">YAML</a> or \
         <a href=\"/docs/{folder}/{name}.json\">JSON</a>",
        spec.anchor(&[]),
        inline(&short_title(spec))
    );
    let origin = root["servers"]
        .items()
        .first()
        .map_or("", |server| server["variables"]["origin"]["default"].text());
    if !origin.is_empty() {
        html.push_str(&format!(", at <code>{}</code> by default", escape(origin)));
    }
    html.push_str("</p>");
    html.push_str(&blocks(root["info"]["description"].text()));
    for (path, of_path) in root["paths"].members() {
        for verb in VERBS.into_iter().filter(|verb| !of_path[*verb].is_absent()) {
            html.push_str(&operation::of(spec, verb, path, &of_path[verb]));
        }
    }
    for one in root["methods"].items() {
        html.push_str(&method::of(spec, one));
    }
    html.push_str(&any_request(spec));
    html.push_str(&every_answer(spec));
    html.push_str(&schemas(spec));
    html.push_str("</section>");
    html
}

/// The responses to requests that match no operation.
fn any_request(spec: &Spec) -> String {
    let any = &spec.root["x-any-request"];
    if any.is_absent() {
        return String::new();
    }
    format!(
        "<details class=\"entry\"><summary><b>Any other request</b></summary>{}{}</details>",
        blocks(any["description"].text()),
        operation::responses(spec, &any["responses"])
    )
}

/// The headers that any response may have.
fn every_answer(spec: &Spec) -> String {
    let every = &spec.root["x-every-answer"];
    if every.is_absent() {
        return String::new();
    }
    format!(
        "<details class=\"entry\"><summary><b>Headers of every response</b></summary>{}{}\
         </details>",
        blocks(every["description"].text()),
        operation::headers(spec, every)
    )
}

fn schemas(spec: &Spec) -> String {
    let mut html = String::new();
    for (name, schema) in spec.root["components"]["schemas"].members() {
        html.push_str(&format!(
            "<div class=\"schema\" id=\"{}\"><h5>{}</h5>{}{}</div>",
            spec.schema_anchor(name),
            escape(name),
            blocks(schema["description"].text()),
            shape::of(spec, schema)
        ));
        let rules = shape::rules(schema);
        if !rules.is_empty() {
            html.push_str(&format!("<p class=\"rules\"><i>{rules}</i></p>"));
        }
    }
    if html.is_empty() {
        return html;
    }
    format!("<details class=\"entry\"><summary><b>Schemas</b></summary>{html}</details>")
}
