//! The page: a list of all there is at its side, then one part for each document.

use crate::document::{Document, items, members, string};
use crate::text::{blocks, escape, inline};
use crate::{method, operation, shape};

/// HTTP methods, in the order in which they are shown.
const VERBS: [&str; 4] = ["get", "post", "put", "options"];

/// All documents on one page. It needs nothing else, and runs no script.
pub(crate) fn of(documents: &[Document], style: &str) -> String {
    let list: String = documents.iter().map(contents).collect();
    let parts: String = documents.iter().map(part).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Portcullis: interfaces</title><style>{style}</style></head><body>\
         <nav><p class=\"top\"><a href=\"#top\">Portcullis</a></p>{list}</nav>\
         <main id=\"top\"><header><h1>Interfaces</h1><p>What each surface takes and answers, from \
         the documents that the program is tested against.</p></header>{parts}</main>\
         </body></html>\n"
    )
}

/// What a part is called: the surface.
fn short_title(document: &Document) -> String {
    capital(string(&document.root["info"], "title").trim_start_matches("Portcullis "))
}

/// The list of what is in a document.
fn contents(document: &Document) -> String {
    let mut links = String::new();
    let mut link = |anchor: &str, verb: &str, text: &str| {
        let verb = if verb.is_empty() {
            String::new()
        } else {
            format!("<b class=\"verb {verb}\">{}</b> ", verb.to_uppercase())
        };
        links.push_str(&format!("<li><a href=\"#{anchor}\">{verb}{}</a></li>", escape(text)));
    };
    for (path, of_path) in members(&document.root["paths"]) {
        for verb in VERBS.into_iter().filter(|verb| !of_path[*verb].is_badvalue()) {
            link(&operation::anchor(document, verb, path), verb, path);
        }
    }
    for one in items(&document.root["methods"]) {
        let name = string(one, "name");
        link(&method::anchor(document, one), "", name.trim_start_matches("starknet_"));
    }
    let (anchor, short) = (document.anchor(&[]), inline(&short_title(document)));
    format!("<p><a href=\"#{anchor}\">{short}</a></p><ul>{links}</ul>")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

/// One document.
fn part(document: &Document) -> String {
    let Document { folder, name, root } = document;
    let kind = if *folder == "openapi" { "OpenAPI" } else { "OpenRPC" };
    let mut html = format!(
        "<section id=\"{}\"><h2>{}</h2><p class=\"raw\">{kind} as \
         <a href=\"/docs/{folder}/{name}.yaml\">YAML</a> or \
         <a href=\"/docs/{folder}/{name}.json\">JSON</a>",
        document.anchor(&[]),
        inline(&short_title(document))
    );
    let origin = string(&root["servers"][0]["variables"]["origin"], "default");
    if !origin.is_empty() {
        html.push_str(&format!(", at <code>{}</code> by default", escape(origin)));
    }
    html.push_str("</p>");
    html.push_str(&blocks(string(&root["info"], "description")));
    for (path, of_path) in members(&root["paths"]) {
        for verb in VERBS.into_iter().filter(|verb| !of_path[*verb].is_badvalue()) {
            html.push_str(&operation::of(document, verb, path, &of_path[verb]));
        }
    }
    for one in items(&root["methods"]) {
        html.push_str(&method::of(document, one));
    }
    html.push_str(&any_request(document));
    html.push_str(&every_answer(document));
    html.push_str(&schemas(document));
    html.push_str("</section>");
    html
}

/// What is answered whatever the path.
fn any_request(document: &Document) -> String {
    let any = &document.root["x-any-request"];
    if any.is_badvalue() {
        return String::new();
    }
    format!(
        "<details class=\"entry\"><summary><b>Any other request</b></summary>{}{}</details>",
        blocks(string(any, "description")),
        operation::responses(document, &any["responses"])
    )
}

/// Headers that any answer may carry.
fn every_answer(document: &Document) -> String {
    let every = &document.root["x-every-answer"];
    if every.is_badvalue() {
        return String::new();
    }
    format!(
        "<details class=\"entry\"><summary><b>Headers of every answer</b></summary>{}{}</details>",
        blocks(string(every, "description")),
        operation::headers(document, every)
    )
}

fn schemas(document: &Document) -> String {
    let mut html = String::new();
    for (name, schema) in members(&document.root["components"]["schemas"]) {
        html.push_str(&format!(
            "<div class=\"schema\" id=\"{}\"><h5>{}</h5>{}{}</div>",
            document.schema_anchor(name),
            escape(name),
            blocks(string(schema, "description")),
            shape::of(document, schema)
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
