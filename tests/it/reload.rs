//! Reloading on SIGHUP: reloadable settings apply at once, and an invalid configuration changes
//! nothing.

use crate::support::check::{assert_common_with_quota, rate_limit};
use crate::support::client::Client;
use crate::support::edge::Setup;
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::script::good;

#[test]
fn sighup_changes_limits_without_closing_connections() {
    let node = Node::start(good);
    let setup = Setup::before(node.address());
    let edge = setup.start();
    let mut client = edge.client();
    let nonce = Request::post(rpc("1", "starknet_getNonce", r#"["latest","0x1"]"#));
    for _ in 0..4 {
        // until the request's head is cached
        assert_eq!(
            client.ask(&nonce).status,
            200,
            "every read is let through at first"
        );
    }

    edge.rewrite(
        &setup
            .set("gateway.requests_per_minute", "7000")
            .set("gateway.methods", r#"["starknet_blockNumber"]"#)
            .set("node.max_idle", "3"),
    );
    edge.signal("HUP");
    for (key, to, effective) in [
        ("gateway.requests_per_minute", "7000", "now"),
        ("gateway.methods", r#"["starknet_blockNumber"]"#, "now"),
        ("node.max_idle", "3", "after a restart"),
    ] {
        let line = edge.line(&format!("the change of {key}"), |line| line["key"] == key);
        assert_eq!(
            (&line["to"], &line["effective"]),
            (&to.into(), &effective.into()),
            "{key}"
        );
    }

    let refused = client.ask(&nonce);
    assert_eq!(refused.status, 403, "the narrowed list is in force");
    let answered = client.ask(&Request::post(QUESTION));
    assert_common_with_quota(&answered, 7000, "the new quota is in force");
    assert_eq!(
        answered.status, 200,
        "what is still on the list is answered"
    );
}

#[test]
fn a_reload_that_changes_nothing_is_no_warning() {
    let node = Node::start(good);
    let (folder, token) = (Folder::new(), "t".repeat(40));
    let file = format!("\"{}\"", folder.secret("operator.token", &token));
    let edge = Setup::before(node.address())
        .set("admin.token_file", &file)
        .start();
    edge.signal("HUP");
    let line = edge.line("its end", |line| {
        line["message"] == "configuration reloaded: nothing changed"
    });
    assert_eq!(line["level"], "info");
    let lines = edge.lines();
    let warnings = lines.iter().filter(|line| line.contains("\"warn\""));
    let of_reload = warnings.filter(|line| line.contains("reloaded") || line.contains("changed"));
    assert_eq!(of_reload.count(), 0, "{lines:?}");
}

#[test]
fn a_key_in_a_node_url_is_not_logged() {
    let node = Node::start(good);
    let url = |key: &str| format!("\"http://{}/v1/{key}\"", node.address());
    let setup = Setup::before(node.address());
    let edge = setup.clone().set("node.url", &url("hunter1")).start();
    edge.rewrite(&setup.set("node.url", &url("hunter2")));
    edge.signal("HUP");
    let line = edge.line("the change", |line| line["key"] == "node.url");
    let shown = format!("\"http://{}/…\"", node.address());
    assert_eq!(
        (&line["from"], &line["to"]),
        (&shown.clone().into(), &shown.into())
    );
    assert!(
        !edge.admin_get("/metrics").text().contains("hunter"),
        "nor in a label"
    );
    assert!(
        !edge.admin_get("/state").text().contains("hunter"),
        "nor on the page"
    );
    let lines = edge.lines();
    assert!(
        !lines.iter().any(|line| line.contains("hunter")),
        "{lines:?}"
    );
}

#[test]
fn a_reload_invalidates_cached_heads() {
    let node = Node::start(good);
    let trusting = r#"["127.0.0.0/8"]"#;
    let setup = Setup::before(node.address()).set("gateway.trusted_proxies", trusting);
    let edge = setup.start();
    let mut client = edge.client();
    let forwarded = Request::post(QUESTION).with("X-Forwarded-For", "192.0.2.1");
    let left = |client: &mut Client| rate_limit(&client.ask(&forwarded), "each counts").0;
    let first = left(&mut client);
    for count in 1..4 {
        assert_eq!(
            left(&mut client),
            first - count,
            "they are all of the client behind the proxy"
        );
    }
    edge.rewrite(&setup.set("gateway.trusted_proxies", "[]"));
    edge.signal("HUP");
    edge.line("the change", |line| {
        line["key"] == "gateway.trusted_proxies"
    });
    assert_eq!(
        left(&mut client),
        first,
        "now it is the proxy's own, and its first"
    );
}

#[test]
fn a_file_with_a_mistake_changes_nothing() {
    let node = Node::start(good);
    let setup = Setup::before(node.address()).set("gateway.requests_per_minute", "500");
    let edge = setup.start();
    edge.rewrite(
        &setup
            .set("gateway.requests_per_minute", "600")
            .set("gateway.max_clients", "\"many\""),
    );
    edge.signal("HUP");
    edge.line("the mistake", |line| {
        let message = line["message"].as_str().unwrap_or_default();
        message.contains("reload failed") && message.contains("gateway.max_clients")
    });
    let answered = edge.ask(&Request::post(QUESTION));
    assert_common_with_quota(&answered, 500, "the old quota is in force");
}
