//! An operation of OpenAPI, with its parameters, body and responses.

use super::node::Node;
use super::shape;
use super::spec::Spec;
use super::text::{blocks, escape, inline};

/// The anchor of an operation.
pub(super) fn anchor(spec: &Spec, method: &str, path: &str) -> String {
    spec.anchor(&[method, path])
}

/// One operation, in a collapsed block.
pub(super) fn of(spec: &Spec, method: &str, path: &str, operation: &Node) -> String {
    let mut html = format!(
        "<details class=\"entry\"><summary><b class=\"verb {method}\">{}</b> <code>{}</code> \
         <span>{}</span></summary><div class=\"at\" id=\"{}\"></div>",
        method.to_uppercase(),
        escape(path),
        inline(operation["summary"].text()),
        anchor(spec, method, path)
    );
    html.push_str(&blocks(operation["description"].text()));
    html.push_str(&security(spec, operation));
    html.push_str(&parameters(spec, operation));
    html.push_str(&body(spec, spec.follow(&operation["requestBody"])));
    html.push_str(&responses(spec, &operation["responses"]));
    html.push_str("</details>");
    html
}

/// The credentials that it needs.
fn security(spec: &Spec, operation: &Node) -> String {
    let own = &operation["security"];
    let needs = if own.is_absent() { &spec.root["security"] } else { own }.items();
    let schemes = &spec.root["components"]["securitySchemes"];
    let mut html = String::new();
    for (name, _) in needs.iter().flat_map(Node::members) {
        let scheme = &schemes[name];
        let what = match (scheme["scheme"].text(), scheme["name"].text()) {
            ("bearer", _) => "<code>Authorization: Bearer</code>".to_owned(),
            (_, header) => format!("<code>{}</code>", escape(header)),
        };
        let optional = needs.iter().any(|one| one.members().next().is_none());
        let word = if optional { "Optional" } else { "Required" };
        let about = inline(&scheme["description"].text().replace("\n\n", " "));
        html.push_str(&format!("<p class=\"needs\">{word}: {what}. {about}</p>"));
    }
    html
}

fn parameters(spec: &Spec, operation: &Node) -> String {
    let mut rows = String::new();
    for parameter in operation["parameters"].items() {
        let parameter = spec.follow(parameter);
        let required = parameter["required"].is_true();
        let mut about = inline(parameter["description"].text());
        if !parameter["example"].is_absent() {
            let example = &parameter["example"];
            let text = example.as_str().map_or_else(|| example.json(), str::to_owned);
            about.push_str(&format!(" <i>For example</i> <code>{}</code>", escape(&text)));
        }
        rows.push_str(&format!(
            "<tr><td><code>{}</code><br><i>{}{}</i></td><td>{}</td><td>{about}</td></tr>",
            escape(parameter["name"].text()),
            escape(parameter["in"].text()),
            if required { ", required" } else { "" },
            shape::line(spec, &parameter["schema"]),
        ));
    }
    if rows.is_empty() { rows } else { format!("<h4>Parameters</h4>{}", table(&rows)) }
}

fn table(rows: &str) -> String {
    format!("<div class=\"wide\"><table>{rows}</table></div>")
}

fn body(spec: &Spec, body: &Node) -> String {
    let mut html = String::new();
    for (media_type, content) in body["content"].members() {
        html.push_str(&format!("<h4>Body <code>{}</code></h4>", escape(media_type)));
        html.push_str(&blocks(body["description"].text()));
        html.push_str(&shape::of(spec, &content["schema"]));
        html.push_str(&examples(content));
    }
    html
}

/// The examples of a body.
fn examples(content: &Node) -> String {
    let mut html = String::new();
    if !content["example"].is_absent() {
        html.push_str(&example("Example", &content["example"]));
    }
    for (_, one) in content["examples"].members() {
        html.push_str(&example(one["summary"].text(), &one["value"]));
    }
    html
}

/// One example, in a collapsed block.
pub(super) fn example(title: &str, value: &Node) -> String {
    let text = escape(&value.pretty());
    let title = inline(title);
    format!("<details class=\"example\"><summary>{title}</summary><pre>{text}</pre></details>")
}

/// Each status with its meaning, headers and body.
pub(super) fn responses(spec: &Spec, responses: &Node) -> String {
    let mut html = "<h4>Responses</h4><dl class=\"answers\">".to_owned();
    for (status, response) in responses.members() {
        let response = spec.follow(response);
        let class = status.chars().next().unwrap_or_default();
        html.push_str(&format!("<dt class=\"s{class}\">{}</dt><dd>", escape(status)));
        html.push_str(&blocks(response["description"].text()));
        html.push_str("<details class=\"more\"><summary>headers and body</summary>");
        html.push_str(&headers(spec, response));
        for (media_type, content) in response["content"].members() {
            html.push_str(&format!("<p><code>{}</code></p>", escape(media_type)));
            if !content["schema"].is_absent() {
                html.push_str(&shape::of(spec, &content["schema"]));
            }
            html.push_str(&examples(content));
        }
        html.push_str("</details></dd>");
    }
    html.push_str("</dl>");
    html
}

/// The headers of a response.
pub(super) fn headers(spec: &Spec, response: &Node) -> String {
    let mut rows = String::new();
    for (name, header) in response["headers"].members() {
        let header = spec.follow(header);
        let required = header["required"].is_true();
        rows.push_str(&format!(
            "<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            if required { "" } else { "<br><i>optional</i>" },
            shape::line(spec, spec.follow(&header["schema"])),
            inline(header["description"].text()),
        ));
    }
    if rows.is_empty() { rows } else { table(&rows) }
}
