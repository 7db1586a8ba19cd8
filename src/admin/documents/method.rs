//! A method of OpenRPC, with its parameters, result and errors.

use super::node::{Members, Node};
use super::operation::example;
use super::shape;
use super::spec::Spec;
use super::text::{blocks, escape, inline};

/// The anchor of a method.
pub(super) fn anchor(spec: &Spec, method: &Node) -> String {
    spec.anchor(&[method["name"].text()])
}

/// One method, in a collapsed block.
pub(super) fn of(spec: &Spec, method: &Node) -> String {
    let name = method["name"].text();
    let mut html = format!(
        "<details class=\"entry\"><summary><code>{}</code> <span>{}</span></summary>\
         <div class=\"at\" id=\"{}\"></div>",
        escape(name),
        inline(method["summary"].text()),
        anchor(spec, method)
    );
    html.push_str(&blocks(method["description"].text()));
    html.push_str("<h4>Parameters, in this order or by name</h4>");
    html.push_str(&parameters(spec, method));
    let result = &method["result"];
    html.push_str(&format!("<h4>Result <code>{}</code></h4>", escape(result["name"].text())));
    html.push_str(&blocks(result["description"].text()));
    html.push_str(&shape::of(spec, &result["schema"]));
    html.push_str(&errors(spec, method));
    for one in method["examples"].items() {
        html.push_str(&exchange(name, one));
    }
    html.push_str("</details>");
    html
}

fn parameters(spec: &Spec, method: &Node) -> String {
    let mut rows = String::new();
    for parameter in method["params"].items() {
        let parameter = spec.follow(parameter);
        let required = parameter["required"].is_true();
        rows.push_str(&format!(
            "<tr><td><code>{}</code><br><i>{}</i></td><td>{}</td><td>{}</td></tr>",
            escape(parameter["name"].text()),
            if required { "required" } else { "optional" },
            shape::line(spec, &parameter["schema"]),
            inline(parameter["description"].text()),
        ));
    }
    if rows.is_empty() {
        return "<p>None.</p>".to_owned();
    }
    format!("<div class=\"wide\"><table>{rows}</table></div>")
}

fn errors(spec: &Spec, method: &Node) -> String {
    let mut rows = String::new();
    for error in method["errors"].items() {
        let error = spec.follow(error);
        let reasons = error["data"]["reason"].items().iter().filter_map(Node::as_str);
        let reasons: Vec<_> =
            reasons.map(|reason| format!("<code>{}</code>", escape(reason))).collect();
        rows.push_str(&format!(
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            error["code"].as_i64().unwrap_or_default(),
            inline(error["message"].text()),
            reasons.join(" "),
        ));
    }
    format!(
        "<details class=\"more\"><summary>errors</summary><div class=\"wide\"><table>{rows}\
         </table></div></details>"
    )
}

/// An example as it goes over the wire.
fn exchange(method: &str, one: &Node) -> String {
    let object = |members: Vec<(&str, Node)>| {
        let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
        Node::Object(Members(members.collect()))
    };
    let envelope = |rest: Vec<(&str, Node)>| {
        let head = [("jsonrpc", Node::from("2.0")), ("id", Node::Number(1.into()))];
        object(head.into_iter().chain(rest).collect())
    };
    let params = one["params"].items().iter();
    let params = params.map(|param| (param["name"].text(), param["value"].clone())).collect();
    let request = envelope(vec![("method", method.into()), ("params", object(params))]);
    let title = format!("Example: {}", one["name"].text());
    if one["result"].is_absent() {
        return example(&title, &request);
    }
    let answer = envelope(vec![("result", one["result"]["value"].clone())]);
    let (request, answer) = (request.pretty(), answer.pretty());
    format!(
        "<details class=\"example\"><summary>{}</summary><pre>{}</pre><pre>{}</pre></details>",
        inline(&title),
        escape(&request),
        escape(&answer)
    )
}
