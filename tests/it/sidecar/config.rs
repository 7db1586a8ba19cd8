//! Errors in `[sidecar]`: each message names the key and the accepted values.

use std::iter;

use portcullis_base::config::{Config, Errors, SidecarLive};

use crate::support::check::each;

/// The minimal configuration of a sidecar, with one key set.
fn parse(key: &str, literal: &str) -> Result<Config, Errors> {
    let mut keys = vec![
        ("node.url", "\"http://127.0.0.1:9/rpc\""),
        ("sidecar.base_url", "\"https://cards.example\""),
    ];
    keys.retain(|(own, _)| *own != key);
    keys.push((key, literal));
    keys.sort_unstable();
    let lines = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
    Config::parse(&lines.collect::<String>(), iter::empty())
}

fn sidecar(key: &str, literal: &str) -> SidecarLive {
    let config = parse(key, literal).unwrap_or_else(|errors| panic!("{key} = {literal}: {errors}"));
    config.sidecar.expect("a sidecar is configured").live
}

/// `count` distinct texts.
fn texts(count: usize, of: impl Fn(usize) -> String) -> String {
    let texts: Vec<_> = (0..count)
        .map(|number| format!("\"{}\"", of(number)))
        .collect();
    format!("[{}]", texts.join(","))
}

#[test]
fn each_mistake_names_key_and_accepted_values() {
    let seventeen = texts(17, |number| format!("label{number}"));
    let providers = texts(17, |number| format!("p{number}=https://api.example"));
    let long = format!("[\"{}\"]", "a".repeat(129));
    let mistakes = [
        ("sidecar.listen", "\"here\"", "address:port"),
        ("sidecar.base_url", "\"\"", "origin"),
        (
            "sidecar.base_url",
            "\"cards.example\"",
            "https://cards.example",
        ),
        ("sidecar.base_url", "\"http://cards.example\"", "https"),
        ("sidecar.base_url", "\"ftp://cards.example\"", "scheme"),
        ("sidecar.base_url", "\"https://cards.example/path\"", "path"),
        ("sidecar.base_url", "\"https://cards.example?x\"", "path"),
        (
            "sidecar.base_url",
            "\"https://user:word@cards.example\"",
            "",
        ),
        ("sidecar.requests_per_minute", "0", "1"),
        ("sidecar.requests_per_minute", "\"600\"", ""),
        ("sidecar.max_clients", "0", "1"),
        ("sidecar.max_in_flight_per_client", "0", "1"),
        ("sidecar.trusted_proxies", "[\"everybody\"]", ""),
        ("sidecar.operator_token_file", "7", "path"),
        (
            "sidecar.feeds.publisher_did",
            "\"cards.example\"",
            "did:plc:",
        ),
        ("sidecar.feeds.service_did", "\"did:web:\"", "did:plc:"),
        (
            "sidecar.feeds.service_did",
            "\"DID:web:a.example\"",
            "did:plc:",
        ),
        ("sidecar.feeds.privacy_policy", "\"privacy\"", "URL"),
        (
            "sidecar.feeds.terms_of_service",
            "\"javascript:alert(1)\"",
            "URL",
        ),
        ("sidecar.feeds.blocked_labels", &seventeen, "16"),
        ("sidecar.feeds.blocked_labels", "[\"\"]", "label"),
        ("sidecar.feeds.blocked_labels", "[\"two words\"]", "label"),
        (
            "sidecar.feeds.blocked_labels",
            "[\"spam\", \"spam\"]",
            "spam",
        ),
        ("sidecar.feeds.blocked_labels", &long, "128"),
        ("sidecar.session.audience", "\"\"", "empty"),
        (
            "sidecar.session.hs256_secret_files",
            "[\"a\", \"b\", \"c\"]",
            "at most 2",
        ),
        ("sidecar.session.hs256_secret_files", "[\"a\", \"a\"]", "a"),
        ("sidecar.session.hs256_secret_files", "[\"\"]", "empty"),
        ("sidecar.session.jwks_url", "\"file:///etc/keys\"", "URL"),
        ("sidecar.session.plc_url", "\"\"", ""),
        ("sidecar.session.localhost_dids", "\"yes\"", "true"),
        (
            "sidecar.age.webhook_secret_files",
            "[\"a\", \"b\", \"c\"]",
            "at most 2",
        ),
        ("sidecar.age.signature_header", "\"two words\"", "header"),
        ("sidecar.age.signature_header", "\"\"", "header"),
        ("sidecar.age.age_bands", "[\"18+\"]", "letters"),
        ("sidecar.age.age_bands", "[\"adult\", \"adult\"]", "adult"),
        (
            "sidecar.age.verification_url",
            "\"https://verifier.example/\"",
            "{subject_ref}",
        ),
        (
            "sidecar.age.verification_url",
            "\"ref/{subject_ref}\"",
            "URL",
        ),
        ("sidecar.age.session_lifetime", "\"0s\"", ""),
        ("sidecar.age.session_lifetime", "24", "unit"),
        ("sidecar.age.validity", "\"forever\"", ""),
        ("sidecar.podcasts.redirect_moved", "\"no\"", "true"),
        ("sidecar.podcasts.hub_url", "\"hub.example\"", "URL"),
        ("sidecar.robots.indexing", "\"no\"", "true"),
        ("sidecar.robots.disallow", "[\"auth\"]", "/"),
        ("sidecar.robots.disallow", "[\"/a#b\"]", "#"),
        ("sidecar.robots.disallow", "[\"/a\\nUser-agent: x\"]", "/"),
        ("sidecar.robots.blocked_agents", "[\"Bot/1.0\"]", "token"),
        ("sidecar.robots.blocked_agents", "[\"\"]", "token"),
        ("sidecar.health.platform", "\"cards.example\"", "URL"),
        ("sidecar.health.email", "\"smtp://mail.example\"", "URL"),
        (
            "sidecar.health.expect",
            "[\"mail=200\"]",
            "podcast_syndication",
        ),
        ("sidecar.health.expect", "[\"email=99\"]", "200 to 599"),
        (
            "sidecar.health.card_data",
            "[\"https://api.example\"]",
            "name",
        ),
        (
            "sidecar.health.card_data",
            "[\"=https://api.example\"]",
            "name",
        ),
        (
            "sidecar.health.card_data",
            "[\"a=https://a.example\", \"a=https://a.example\"]",
            "a",
        ),
        ("sidecar.health.payments", &providers, "16"),
        (
            "sidecar.health.payments",
            "[\"pay=https://u:p@api.example\"]",
            "",
        ),
    ];
    each(mistakes, |(key, literal, part)| {
        let errors = match parse(key, literal) {
            Err(errors) => errors,
            Ok(_) => panic!("{key} = {literal} is a mistake"),
        };
        let all: Vec<_> = errors.iter().collect();
        assert_eq!(all.len(), 1, "{key} = {literal}: one mistake: {errors}");
        assert_eq!(all[0].key, key, "{key} = {literal}: {errors}");
        assert!(
            all[0].message.contains(part),
            "{key} = {literal}: {part} in {errors}"
        );
    });
}

#[test]
fn an_unknown_key_gets_a_suggestion() {
    for (key, meant) in [
        ("sidecar.base_ulr", "base_url"),
        ("sidecar.feeds.blocked_label", "blocked_labels"),
        ("sidecar.age.webhook_secret_file", "webhook_secret_files"),
        ("sidecar.health.plattform", "platform"),
        ("sidecar.robot.indexing", "robots"),
    ] {
        let errors = parse(key, "\"x\"").expect_err(key);
        let said = errors.to_string();
        assert!(said.contains(meant), "{key}: did you mean {meant}: {said}");
    }
}

#[test]
fn a_sidecar_needs_to_know_its_own_address() {
    let text = "[node]\nurl = \"http://127.0.0.1:9/rpc\"\n[sidecar]\n";
    let errors = Config::parse(text, iter::empty()).expect_err("no base URL");
    assert!(errors.to_string().contains("sidecar.base_url"), "{errors}");
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = sidecar("sidecar.base_url", "\"https://Cards.example:8443/\"");
    assert_eq!(
        config.base_url, "https://cards.example:8443",
        "an origin in lower case"
    );
    assert_eq!(
        config.feeds.service_did, "did:web:cards.example%3A8443",
        "its did:web"
    );
    assert_eq!(
        config.feeds.publisher_did, config.feeds.service_did,
        "which publishes"
    );
    let labels = [
        "!hide",
        "!takedown",
        "spam",
        "csam",
        "scam",
        "impersonation",
    ];
    assert_eq!(config.feeds.blocked_labels, labels, "what never shows");
    assert_eq!(config.session.audience, "authenticated", "who is signed in");
    assert_eq!(config.session.issuer, None, "by anybody who has the key");
    assert_eq!(
        config.session.plc_url, "https://plc.directory",
        "where DIDs are"
    );
    assert!(
        !config.session.localhost_dids,
        "this machine has no accounts"
    );
    assert_eq!(
        config.age.signature_header, "x-service-verifier-signature",
        "the header"
    );
    assert_eq!(
        config.age.age_bands,
        ["under_13", "13_15", "16_17", "18_plus"],
        "the bands"
    );
    assert_eq!(config.age.session_lifetime.as_secs(), 86_400, "a day");
    assert_eq!(config.age.validity.as_secs(), 365 * 86_400, "a year");
    assert!(config.robots.indexing, "what is public is listed");
    assert_eq!(
        config.robots.disallow,
        [
            "/auth/",
            "/auth$",
            "/settings/",
            "/settings$",
            "/search/",
            "/search$",
            "/search?",
        ],
        "but this"
    );
}

#[test]
fn an_http_base_url_must_be_loopback() {
    for url in [
        "http://localhost:8082",
        "http://127.0.0.1:8082",
        "http://[::1]:8082",
    ] {
        let config = sidecar("sidecar.base_url", &format!("\"{url}\""));
        assert_eq!(config.base_url, url, "it is for development");
    }
}
