//! What can be asked over HTTP: an operation of OpenAPI, with all that it takes and answers.

use crate::document::{Document, items, members, string};
use crate::text::{blocks, escape, inline};
use crate::{json, shape};
use yaml_rust2::Yaml;

/// The anchor of an operation.
pub(crate) fn anchor(document: &Document, method: &str, path: &str) -> String {
    document.anchor(&[method, path])
}

/// One operation, folded until somebody wants to read it.
pub(crate) fn of(document: &Document, method: &str, path: &str, operation: &Yaml) -> String {
    let mut html = format!(
        "<details class=\"entry\"><summary><b class=\"verb {method}\">{}</b> <code>{}</code> \
         <span>{}</span></summary><div class=\"at\" id=\"{}\"></div>",
        method.to_uppercase(),
        escape(path),
        inline(string(operation, "summary")),
        anchor(document, method, path)
    );
    html.push_str(&blocks(string(operation, "description")));
    html.push_str(&security(document, operation));
    html.push_str(&parameters(document, operation));
    html.push_str(&body(document, document.follow(&operation["requestBody"])));
    html.push_str(&responses(document, &operation["responses"]));
    html.push_str("</details>");
    html
}

/// Who may ask.
fn security(document: &Document, operation: &Yaml) -> String {
    let own = &operation["security"];
    let needs = items(if own.is_badvalue() { &document.root["security"] } else { own });
    let schemes = &document.root["components"]["securitySchemes"];
    let mut html = String::new();
    for (name, _) in needs.iter().flat_map(members) {
        let scheme = &schemes[name];
        let what = match (string(scheme, "scheme"), string(scheme, "name")) {
            ("bearer", _) => "<code>Authorization: Bearer</code>".to_owned(),
            (_, header) => format!("<code>{}</code>", escape(header)),
        };
        let optional = needs.iter().any(|one| members(one).next().is_none());
        let word = if optional { "may have" } else { "needs" };
        let about = inline(&string(scheme, "description").replace("\n\n", " "));
        html.push_str(&format!("<p class=\"needs\">It {word} {what}: {about}</p>"));
    }
    html
}

fn parameters(document: &Document, operation: &Yaml) -> String {
    let mut rows = String::new();
    for parameter in items(&operation["parameters"]) {
        let parameter = document.follow(parameter);
        let required = parameter["required"].as_bool().unwrap_or_default();
        let mut about = inline(string(parameter, "description"));
        if !parameter["example"].is_badvalue() {
            let example = &parameter["example"];
            let text = example.as_str().map_or_else(|| json::of(example), str::to_owned);
            about.push_str(&format!(" <i>For example</i> <code>{}</code>", escape(&text)));
        }
        rows.push_str(&format!(
            "<tr><td><code>{}</code><br><i>{}{}</i></td><td>{}</td><td>{about}</td></tr>",
            escape(string(parameter, "name")),
            escape(string(parameter, "in")),
            if required { ", required" } else { "" },
            shape::line(document, &parameter["schema"]),
        ));
    }
    if rows.is_empty() { rows } else { format!("<h4>Parameters</h4>{}", table(&rows)) }
}

fn table(rows: &str) -> String {
    format!("<div class=\"wide\"><table>{rows}</table></div>")
}

fn body(document: &Document, body: &Yaml) -> String {
    let mut html = String::new();
    for (media_type, content) in members(&body["content"]) {
        html.push_str(&format!("<h4>Body <code>{}</code></h4>", escape(media_type)));
        html.push_str(&blocks(string(body, "description")));
        html.push_str(&shape::of(document, &content["schema"]));
        html.push_str(&examples(content));
    }
    html
}

/// Examples, of a body or of an answer.
fn examples(content: &Yaml) -> String {
    let mut html = String::new();
    if !content["example"].is_badvalue() {
        html.push_str(&example("Example", &content["example"]));
    }
    for (_, one) in members(&content["examples"]) {
        html.push_str(&example(string(one, "summary"), &one["value"]));
    }
    html
}

/// One example, folded.
pub(crate) fn example(title: &str, value: &Yaml) -> String {
    let text = escape(&json::pretty(value));
    let title = inline(title);
    format!("<details class=\"example\"><summary>{title}</summary><pre>{text}</pre></details>")
}

/// Each status with its meaning, headers and body.
pub(crate) fn responses(document: &Document, responses: &Yaml) -> String {
    let mut html = "<h4>Answers</h4><dl class=\"answers\">".to_owned();
    for (status, response) in members(responses) {
        let response = document.follow(response);
        let class = status.chars().next().unwrap_or_default();
        html.push_str(&format!("<dt class=\"s{class}\">{}</dt><dd>", escape(status)));
        html.push_str(&blocks(string(response, "description")));
        html.push_str("<details class=\"more\"><summary>headers and body</summary>");
        html.push_str(&headers(document, response));
        for (media_type, content) in members(&response["content"]) {
            html.push_str(&format!("<p><code>{}</code></p>", escape(media_type)));
            if !content["schema"].is_badvalue() {
                html.push_str(&shape::of(document, &content["schema"]));
            }
            html.push_str(&examples(content));
        }
        html.push_str("</details></dd>");
    }
    html.push_str("</dl>");
    html
}

/// The headers of an answer.
pub(crate) fn headers(document: &Document, response: &Yaml) -> String {
    let mut rows = String::new();
    for (name, header) in members(&response["headers"]) {
        let header = document.follow(header);
        let required = header["required"].as_bool().unwrap_or_default();
        rows.push_str(&format!(
            "<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            if required { "" } else { "<br><i>not always</i>" },
            shape::line(document, document.follow(&header["schema"])),
            inline(string(header, "description")),
        ));
    }
    if rows.is_empty() { rows } else { table(&rows) }
}
