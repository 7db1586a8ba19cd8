//! `health-check`: each dependency, what the response discloses about it, and to whom.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::check::each;
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::Request;
use crate::support::response::Response;
use crate::support::secure::{Pair, secured_node};
use crate::support::sidecar::expect::{answered, common};
use crate::support::sidecar::stage::Stage;
use crate::support::sidecar::token::second_of;
use crate::support::sidecar::upstream::{Answer, Upstream};

const PATH: &str = "/functions/health-check";
const OPERATOR: &str = "the-token-of-the-operator-0123456789abcdef";
const COMPONENTS: [&str; 8] = [
    "card_data",
    "database",
    "email",
    "payments",
    "pds",
    "platform",
    "podcast_syndication",
    "web_push",
];

/// Responds to each path according to its last segment: `/ok`, `/302`, `/500`, `/hang`.
fn upstream() -> Upstream {
    Upstream::start(|path| match path.rsplit('/').next() {
        Some("500") => Answer::Is("500 Internal Server Error", "a-secret-of-theirs".to_owned()),
        Some("404") => Answer::Is("404 Not Found", "a-secret-of-theirs".to_owned()),
        Some("302") => Answer::Is("302 Found", String::new()),
        Some("hang") => Answer::Hang,
        _ => Answer::Is("200 OK", "{}".to_owned()),
    })
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// A sidecar with a healthy platform and these keys.
fn stage(upstream: &Upstream, keys: &[(&str, String)]) -> Stage {
    let platform = quoted(&upstream.url("/platform/ok"));
    let mut all = vec![("sidecar.health.platform", &*platform)];
    all.extend(keys.iter().map(|(key, value)| (*key, value.as_str())));
    Stage::empty(&all)
}

/// The only check of a component.
fn component(body: &Value, name: &str) -> Value {
    let parts = body["checks"][name]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    assert_eq!(parts.len(), 1, "{name} in {body}");
    parts[0].clone()
}

fn health(answer: &Response, status: &str, why: &str) -> Value {
    let body = answered(answer, if status == "fail" { 503 } else { 200 }, why);
    assert_eq!(body["status"], status, "{why}: {body}");
    assert_eq!(answer.header("Cache-Control"), Some("no-store"), "{why}");
    assert!(
        body["version"].as_str().is_some_and(|own| !own.is_empty()),
        "{why}: {body}"
    );
    body
}

#[test]
fn a_sidecar_whose_parts_are_well_passes() {
    let upstream = upstream();
    let providers = format!("[\"one={0}\", \"two={0}\"]", upstream.url("/data/ok"));
    let stage = stage(
        &upstream,
        &[
            ("sidecar.health.card_data", providers),
            ("sidecar.health.pds", quoted(&upstream.url(""))),
            ("sidecar.health.email", quoted(&upstream.url("/email/ok"))),
            ("sidecar.health.web_push", quoted(&upstream.url("/push/ok"))),
            (
                "sidecar.health.podcast_syndication",
                quoted(&upstream.url("/pod/ok")),
            ),
            (
                "sidecar.health.payments",
                format!("[\"p={}\"]", upstream.url("/pay/ok")),
            ),
        ],
    );
    let body = health(&stage.get(PATH), "pass", "all is well");
    let mut names: Vec<&str> = body["checks"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, COMPONENTS, "each of them");
    for (name, parts) in body["checks"].as_object().into_iter().flatten() {
        let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
        assert_eq!(
            parts.len(),
            if name == "card_data" { 2 } else { 1 },
            "{name}: {body}"
        );
        for part in parts {
            assert_eq!(part["componentId"], name.as_str(), "{part}");
            assert_eq!(part["configured"], true, "{part}");
            assert_eq!(part["status"], "pass", "{part}");
            let latency = part["latency"].as_str().unwrap_or_default();
            assert!(
                ["<10ms", "<100ms", "<1s", ">=1s"].contains(&latency),
                "{name}: {part}"
            );
            assert_eq!(part.get("output"), None, "{name}: nothing to say: {part}");
        }
    }
    assert_eq!(
        upstream.requests("/xrpc/_health"),
        1,
        "a PDS is queried at its own endpoint"
    );
    assert_eq!(upstream.requests("/data/ok"), 2, "each provider");
}

#[test]
fn unconfigured_components_do_not_fail() {
    let upstream = upstream();
    let body = health(&stage(&upstream, &[]).get(PATH), "pass", "nothing optional");
    for name in COMPONENTS
        .into_iter()
        .filter(|name| !["database", "platform"].contains(name))
    {
        let parts = body["checks"][name].as_array().cloned().unwrap_or_default();
        for part in &parts {
            assert_eq!(part["configured"], false, "{name}: {part}");
            assert_eq!(part["status"], "pass", "{name}: {part}");
            let words = part
                .get("output")
                .is_none_or(|output| output == "not_configured");
            assert!(words, "{name}: {part}");
        }
    }
    let unset = Stage::empty(&[]).get(PATH);
    let body = answered(&unset, unset.status, "without a platform");
    let platform = component(&body, "platform");
    assert_eq!(platform["configured"], false, "{platform}");
    assert_eq!(platform["output"], "not_configured", "{platform}");
}

#[test]
fn only_critical_components_fail_the_check() {
    let closed = format!("http://{}/ok", Node::nowhere());
    let upstream = upstream();
    let cases = [
        ("500", upstream.url("/500"), "http_5xx"),
        ("404", upstream.url("/404"), "http_4xx"),
        ("nobody", closed, "unreachable"),
    ];
    each(cases, |(what, url, output)| {
        for (key, name, list) in [
            ("sidecar.health.email", "email", false),
            ("sidecar.health.card_data", "card_data", true),
            ("sidecar.health.payments", "payments", true),
        ] {
            let value = if list {
                format!("[\"secret_name={url}\"]")
            } else {
                quoted(&url)
            };
            let answer = stage(&upstream, &[(key, value)]).get(PATH);
            let body = health(&answer, "warn", &format!("{what}: {name}"));
            let part = component(&body, name);
            assert_eq!(
                (&part["status"], &part["output"]),
                (&json!("warn"), &json!(output))
            );
            let said = answer.text();
            for secret in ["127.", "http:", "a-secret", "secret_name", &url] {
                assert!(!said.contains(secret), "{what}: {secret} in {said}");
            }
        }
        let answer = Stage::empty(&[("sidecar.health.platform", &quoted(&url))]).get(PATH);
        let part = component(&health(&answer, "fail", what), "platform");
        assert_eq!(part["output"], output, "{what}: {part}");
    });
}

#[test]
fn a_redirect_is_a_warning_unless_expected() {
    let upstream = upstream();
    let cases = [
        ("302", "[]", "warn", json!("http_3xx")),
        ("302", "[\"platform=302\"]", "pass", Value::Null),
        (
            "302",
            "[\"email=302\", \"platform=301\"]",
            "warn",
            json!("http_3xx"),
        ),
        (
            "404",
            "[\"platform=200\", \"platform=404\"]",
            "pass",
            Value::Null,
        ),
        ("ok", "[\"platform=302\"]", "fail", json!("http_2xx")),
    ];
    each(cases, |(path, expect, status, output)| {
        let what = format!("{path} with {expect}");
        let url = quoted(&upstream.url(&format!("/{path}")));
        let keys = [
            ("sidecar.health.platform", &*url),
            ("sidecar.health.expect", expect),
        ];
        let body = health(&Stage::empty(&keys).get(PATH), status, &what);
        let part = component(&body, "platform");
        assert_eq!(
            (&part["status"], &part["output"]),
            (&json!(status), &output)
        );
    });
}

#[test]
fn components_are_checked_concurrently_with_a_timeout() {
    let upstream = upstream();
    let hang = upstream.url("/hang");
    let stage = stage(
        &upstream,
        &[
            ("sidecar.health.email", quoted(&hang)),
            ("sidecar.health.web_push", quoted(&hang)),
            (
                "sidecar.health.payments",
                format!("[\"a={hang}\", \"b={hang}\"]"),
            ),
        ],
    );
    let start = Instant::now();
    let body = health(&stage.get(PATH), "warn", "four that hang");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(4), "all within 3 s: {took:?}");
    for name in ["email", "web_push"] {
        let part = component(&body, name);
        assert_eq!(part["output"], "timeout", "{part}");
        assert_eq!(part["latency"], ">=1s", "{part}");
    }
}

#[test]
fn results_are_cached_for_all_clients() {
    let upstream = upstream();
    let stage = stage(
        &upstream,
        &[("sidecar.health.email", quoted(&upstream.url("/email/ok")))],
    );
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| health(&stage.get(PATH), "pass", "many at once"));
        }
    });
    for _ in 0..5 {
        health(&stage.get(PATH), "pass", "and later");
    }
    assert_eq!(upstream.requests("/email/ok"), 1, "one check serves all");
    assert_eq!(upstream.requests("/platform/ok"), 1, "one check serves all");
}

#[test]
fn a_live_probe_asks_nobody() {
    let closed = quoted(&format!("http://{}/", Node::nowhere()));
    let stage = Stage::empty(&[("sidecar.health.platform", &closed)]);
    let live = stage.get(&format!("{PATH}?probe=live"));
    let body = answered(&live, 200, "the process lives");
    assert_eq!(body["status"], "pass", "{body}");
    health(&stage.get(PATH), "fail", "though its platform does not");
}

#[test]
fn details_are_for_the_operator() {
    let upstream = upstream();
    let folder = Folder::new();
    let file = folder.secret("operator.token", OPERATOR);
    let url = upstream.url("/data/500");
    let stage = stage(
        &upstream,
        &[
            ("sidecar.operator_token_file", quoted(&file)),
            ("sidecar.health.card_data", format!("[\"scry={url}\"]")),
        ],
    );
    let ask = |field: &str| stage.get_with(PATH, "Authorization", field);
    let body = health(&ask(&format!("Bearer {OPERATOR}")), "warn", "the operator");
    let part = component(&body, "card_data");
    assert_eq!(part["name"], "scry", "{part}");
    assert!(
        part["latency_ms"].as_f64().is_some_and(|own| own >= 0.0),
        "{part}"
    );
    assert!(second_of(&part["time"]).is_some(), "{part}");
    assert!(
        !body.to_string().contains("127.0.0.1"),
        "not even here: {body}"
    );
    let others = [
        "",
        "Bearer",
        "Bearer wrong",
        &OPERATOR[1..],
        &format!("Basic {OPERATOR}"),
    ];
    for field in others
        .into_iter()
        .map(str::to_owned)
        .chain([format!("Bearer {OPERATOR}x")])
    {
        let text = ask(&field).text().to_owned();
        let silent = !["scry", "latency_ms", "\"time\""]
            .iter()
            .any(|word| text.contains(word));
        assert!(silent, "{field:?} opens details: {text}");
    }
    let public = component(&health(&stage.get(PATH), "warn", "anybody"), "card_data");
    let words = ["componentId", "configured", "latency", "output", "status"];
    let mut members: Vec<&str> = public
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    members.sort_unstable();
    assert_eq!(members, words, "what anybody sees");
}

#[test]
fn a_refused_certificate_has_its_own_word() {
    let upstream = upstream();
    let folder = Folder::new();
    let pair = Pair::with("localhost", |_| {});
    let address = secured_node((Ipv4Addr::LOCALHOST, upstream.port()).into(), &pair);
    let url = quoted(&format!("https://localhost:{}/ok", address.port()));
    let file = folder.secret("operator.token", OPERATOR);
    let keys = [
        ("sidecar.health.email", url),
        ("sidecar.operator_token_file", quoted(&file)),
    ];
    let stage = stage(&upstream, &keys);
    let public = component(&health(&stage.get(PATH), "warn", "anybody"), "email");
    assert_eq!(public["output"], "tls_error", "{public}");
    assert_eq!(public.get("cause"), None, "{public}");
    let answer = stage.get_with(PATH, "Authorization", &format!("Bearer {OPERATOR}"));
    let own = component(&health(&answer, "warn", "the operator"), "email");
    let cause = own["cause"].as_str().unwrap_or_default();
    assert!(cause.contains("certificate: unknown issuer"), "{own}");
}

#[test]
fn the_media_type_follows_accept() {
    let upstream = upstream();
    let stage = stage(&upstream, &[]);
    let health = "application/health+json";
    let cases = [
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("text/html", "application/json"),
        (health, health),
        ("application/health+json, application/json;q=0.5", health),
        ("text/html, application/health+json", health),
    ];
    each(cases, |(accept, expected)| {
        let answer = stage.get_with(PATH, "Accept", accept);
        common(&answer, accept);
        assert_eq!(answer.header("Content-Type"), Some(expected), "{accept}");
        let head = stage.head(&Request::new("HEAD", PATH).with("Accept", accept), PATH);
        assert_eq!(head.header("Content-Type"), Some(expected), "HEAD {accept}");
    });
}
