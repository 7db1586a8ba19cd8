//! What can be asked over JSON-RPC: a method of OpenRPC, with its parameters, result and errors.

use crate::document::{Document, items, string};
use crate::operation::example;
use crate::text::{blocks, escape, inline};
use crate::{json, shape};
use yaml_rust2::yaml::Hash;
use yaml_rust2::{Yaml, yaml};

/// The anchor of a method.
pub(crate) fn anchor(document: &Document, method: &Yaml) -> String {
    document.anchor(&[string(method, "name")])
}

/// One method, folded until somebody wants to read it.
pub(crate) fn of(document: &Document, method: &Yaml) -> String {
    let name = string(method, "name");
    let mut html = format!(
        "<details class=\"entry\"><summary><code>{}</code> <span>{}</span></summary>\
         <div class=\"at\" id=\"{}\"></div>",
        escape(name),
        inline(string(method, "summary")),
        anchor(document, method)
    );
    html.push_str(&blocks(string(method, "description")));
    html.push_str("<h4>Parameters, in this order or by name</h4>");
    html.push_str(&parameters(document, method));
    let result = &method["result"];
    html.push_str(&format!("<h4>Result <code>{}</code></h4>", escape(string(result, "name"))));
    html.push_str(&blocks(string(result, "description")));
    html.push_str(&shape::of(document, &result["schema"]));
    html.push_str(&errors(document, method));
    for one in items(&method["examples"]) {
        html.push_str(&exchange(name, one));
    }
    html.push_str("</details>");
    html
}

fn parameters(document: &Document, method: &Yaml) -> String {
    let mut rows = String::new();
    for parameter in items(&method["params"]) {
        let parameter = document.follow(parameter);
        let required = parameter["required"].as_bool().unwrap_or_default();
        rows.push_str(&format!(
            "<tr><td><code>{}</code><br><i>{}</i></td><td>{}</td><td>{}</td></tr>",
            escape(string(parameter, "name")),
            if required { "required" } else { "may be left out" },
            shape::line(document, &parameter["schema"]),
            inline(string(parameter, "description")),
        ));
    }
    if rows.is_empty() {
        return "<p>None.</p>".to_owned();
    }
    format!("<div class=\"wide\"><table>{rows}</table></div>")
}

fn errors(document: &Document, method: &Yaml) -> String {
    let mut rows = String::new();
    for error in items(&method["errors"]) {
        let error = document.follow(error);
        let reasons = items(&error["data"]["reason"]).iter().filter_map(Yaml::as_str);
        let reasons: Vec<_> =
            reasons.map(|reason| format!("<code>{}</code>", escape(reason))).collect();
        rows.push_str(&format!(
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            error["code"].as_i64().unwrap_or_default(),
            inline(string(error, "message")),
            reasons.join(" "),
        ));
    }
    format!(
        "<details class=\"more\"><summary>errors</summary><div class=\"wide\"><table>{rows}\
         </table></div></details>"
    )
}

/// An example as it goes over the wire.
fn exchange(method: &str, one: &Yaml) -> String {
    let mut params = Hash::new();
    for param in items(&one["params"]) {
        params.insert(param["name"].clone(), param["value"].clone());
    }
    let text = |text: &str| Yaml::String(text.to_owned());
    let envelope = |members: Vec<(&str, Yaml)>| {
        let head = [("jsonrpc", text("2.0")), ("id", Yaml::Integer(1))];
        let all = head.into_iter().chain(members);
        Yaml::Hash(all.map(|(name, value)| (text(name), value)).collect::<yaml::Hash>())
    };
    let request = envelope(vec![("method", text(method)), ("params", Yaml::Hash(params))]);
    let title = format!("Example: {}", string(one, "name"));
    let Some(result) = one["result"].as_hash() else { return example(&title, &request) };
    let result = result.get(&text("value")).cloned().unwrap_or(Yaml::Null);
    let answer = envelope(vec![("result", result)]);
    let (request, answer) = (json::pretty(&request), json::pretty(&answer));
    format!(
        "<details class=\"example\"><summary>{}</summary><pre>{}</pre><pre>{}</pre></details>",
        inline(&title),
        escape(&request),
        escape(&answer)
    )
}
