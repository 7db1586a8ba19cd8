//! Clients by network: those with limits of their own, and those that are blocked.

use crate::admin::eventually;
use crate::support::check::{
    assert_common_with_quota, assert_error, assert_quota, assert_result, each, rate_limit,
};
use crate::support::edge::{AMPLE, Edge, Setup};
use crate::support::node::{Act, Latch, Node};
use crate::support::request::{QUESTION, Request};
use crate::support::script::{RESULT, echo, good};

/// A request forwarded by a proxy for this client.
fn forwarded(for_whom: &str) -> Request {
    Request::post(QUESTION).with("X-Forwarded-For", for_whom)
}

const NETWORKS: &str = r#"[
    { networks = ["203.0.113.0/24", "2001:db8:1::/48"], requests_per_minute = 5 },
    { networks = "203.0.113.64/26", requests_per_minute = 1 },
    { networks = "198.51.100.0/24", max_in_flight = 1 },
    { networks = "198.51.101.0/24", requests_per_minute = 9, max_in_flight = 3 },
]"#;

/// An edge whose clients have two requests a minute, except for those of some networks.
fn with_networks(node: &Node, more: &[(&str, &str)]) -> Edge {
    let networks = NETWORKS.replace('\n', " ");
    let mut keys = vec![
        ("gateway.requests_per_minute", "2"),
        ("gateway.clients", &networks),
    ];
    keys.extend(more);
    Edge::with(node, &keys)
}

#[test]
fn a_network_has_its_own_quota() {
    let node = Node::start(good);
    let edge = with_networks(&node, &[]);
    each(
        [
            ("192.0.2.1", 2, "none of the networks"),
            ("203.0.113.1", 5, "a network"),
            ("203.0.113.2", 5, "each of its clients alone"),
            ("203.0.113.64", 1, "the most specific network"),
            ("203.0.113.127", 1, "up to its last address"),
            ("203.0.113.128", 5, "and no further"),
            ("2001:db8:1::1", 5, "a network of IPv6"),
            ("2001:db8:2::1", 2, "none of IPv6"),
            ("198.51.100.1", 2, "a network with another limit only"),
            (
                "203.0.113.9, 192.0.2.2",
                2,
                "the client wrote the first hop",
            ),
        ],
        |(client, quota, why)| {
            for number in 0..quota {
                let response = edge.ask(&forwarded(client));
                assert_eq!(response.status, 200, "{client}: {why}");
                assert_common_with_quota(&response, quota, why);
                assert_eq!(rate_limit(&response, why).0, quota - number - 1, "{why}");
            }
            let refused = edge.ask(&forwarded(client));
            assert_eq!(refused.status, 429, "{client}: {why}");
            assert_common_with_quota(&refused, quota, why);
        },
    );
}

#[test]
fn a_network_has_its_own_bound_in_flight() {
    let latch = Latch::default();
    let hold = latch.clone();
    let node = Node::start(move |call| {
        let mut acts = vec![Act::Hold(hold.clone())];
        acts.extend(echo(call));
        acts
    });
    let edge = with_networks(&node, &[("gateway.max_in_flight_per_client", "2")]);
    let bounds = [("198.51.100.1", 1), ("192.0.2.1", 2), ("198.51.101.1", 3)];
    let clients = bounds.map(|(client, bound)| vec![client; bound]);
    let clients = clients.concat();
    let held: Vec<_> = clients
        .iter()
        .map(|client| {
            let mut connection = edge.client();
            connection.send(forwarded(client).bytes());
            connection
        })
        .collect();
    eventually(&edge, "each has a place", |now| {
        now["portcullis_requests_in_flight"] == 6.0
    });
    let refused = edge.ask(&forwarded("198.51.100.1"));
    assert_eq!(refused.status, 429, "one at a time");
    assert_eq!(
        refused.json()["error"]["data"]["reason"],
        "too_many_in_flight"
    );
    latch.open();
    for mut connection in held {
        assert_eq!(connection.response().status, 200, "within its bound");
    }
}

#[test]
fn a_malformed_head_shows_the_quota_of_its_peer() {
    let node = Node::start(good);
    let networks = "[{ networks = \"127.0.0.0/8\", requests_per_minute = 9 }]";
    let edge = Edge::with(&node, &[("gateway.clients", networks)]);
    let mut client = edge.client();
    client.send(b"POST /rpc HTTP/9.9\r\n\r\n");
    let refused = client.response();
    assert_eq!(refused.status, 400);
    assert_quota(&refused, 9, "as in every other response");
}

#[test]
fn exempt_clients_of_a_network_are_not_counted() {
    let node = Node::start(good);
    let edge = with_networks(&node, &[("gateway.exempt", "\"203.0.113.64\"")]);
    for _ in 0..4 {
        let response = edge.ask(&forwarded("203.0.113.64"));
        assert_eq!(response.status, 200);
        assert_common_with_quota(&response, 1, "the quota that would apply");
    }
    assert_eq!(edge.ask(&forwarded("203.0.113.65")).status, 200);
    assert_eq!(edge.ask(&forwarded("203.0.113.65")).status, 429);
}

#[test]
fn a_reload_changes_the_quota_of_a_network() {
    let node = Node::start(good);
    let setup = Setup::before(node.address()).set("gateway.requests_per_minute", "1");
    let edge = setup.start();
    let mut client = edge.client();
    let mut statuses = |count| -> Vec<_> {
        (0..count)
            .map(|_| client.ask(&forwarded("10.0.0.1")).status)
            .collect()
    };
    assert_eq!(statuses(2), [200, 429]);
    for (quota, expected) in [
        (3, [200, 200, 429]),
        (2, [429, 429, 429]),
        (4, [200, 429, 429]),
    ] {
        let networks = format!("[{{ networks = \"10.0.0.0/8\", requests_per_minute = {quota} }}]");
        edge.rewrite(&setup.clone().set("gateway.clients", &networks));
        edge.signal("HUP");
        edge.line("the change", |line| {
            line["key"] == "gateway.clients"
                && line["to"]
                    .as_str()
                    .is_some_and(|to| to.contains(&format!("= {quota} }}")))
        });
        assert_eq!(
            statuses(3),
            expected,
            "a quota of {quota}, on one connection"
        );
    }
}

#[test]
fn a_blocked_client_gets_403_on_every_path() {
    let node = Node::start(good);
    let blocked = "[\"203.0.113.0/24\", \"2001:db8::/32\"]";
    let keys = [("gateway.blocked", blocked), ("gateway.docs", "true")];
    let edge = Edge::with(&node, &keys);
    let upgrade = Request::new("GET", "/rpc")
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket")
        .with("Sec-WebSocket-Version", "13")
        .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let requests = [
        Request::post(QUESTION),
        Request::post("{"),
        upgrade,
        Request::new("GET", "/healthz"),
        Request::new("GET", "/docs"),
        Request::new("GET", "/docs/openapi/gateway.json"),
        Request::new("GET", "/nowhere"),
        Request::new("OPTIONS", "/healthz"),
    ];
    for client in [
        "203.0.113.1",
        "2001:db8::1",
        "::ffff:203.0.113.9",
        "1.1.1.1, 203.0.113.255",
    ] {
        each(&requests, |request| {
            let request = request.clone().with("X-Forwarded-For", client);
            let response = edge.ask(&request);
            assert_eq!(response.status, 403, "{request:?}");
            let body = response.json();
            assert_eq!(body["error"]["data"]["reason"], "blocked", "{request:?}");
            let left = rate_limit(&response, client).0;
            assert_eq!(left, AMPLE, "it does not count: {request:?}");
        });
    }
    assert_eq!(node.calls().len(), 0, "the node is not asked");
    for client in ["203.0.114.1", "203.0.113.1, 192.0.2.1", "2001:db9::1"] {
        assert_result(&edge.ask(&forwarded(client)), "7", RESULT, client);
    }
    let health = edge.ask(&Request::new("GET", "/healthz"));
    assert_eq!(health.status, 200, "the proxy itself is not blocked");
    assert_eq!(edge.admin_get("/livez").status, 200);
}

#[test]
fn a_page_of_a_blocked_client_reads_why() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.blocked", "\"127.0.0.1\"")]);
    let preflight = Request::new("OPTIONS", "/rpc")
        .with("Origin", "https://wallet.test")
        .with("Access-Control-Request-Method", "POST");
    assert_eq!(
        edge.ask(&preflight).status,
        204,
        "its refusal is unreadable"
    );
    let refused = edge.ask(&Request::post(QUESTION).with("Origin", "https://wallet.test"));
    assert_eq!(refused.header("Access-Control-Allow-Origin"), Some("*"));
    assert_error(&refused, "blocked", "7", "the page reads it");
    assert_eq!(
        edge.admin_get("/livez").status,
        200,
        "the operator is not blocked"
    );
}

#[test]
fn a_forged_address_neither_blocks_nor_unblocks() {
    let node = Node::start(good);
    let keys = [
        ("gateway.blocked", "[\"203.0.113.0/24\", \"127.0.0.1\"]"),
        ("gateway.trusted_proxies", "[]"),
    ];
    let edge = Edge::with(&node, &keys);
    assert_eq!(
        edge.ask(&forwarded("192.0.2.1")).status,
        403,
        "the peer counts"
    );
    let keys = [
        ("gateway.blocked", "\"203.0.113.0/24\""),
        ("gateway.trusted_proxies", "[]"),
    ];
    let edge = Edge::with(&node, &keys);
    assert_eq!(
        edge.ask(&forwarded("203.0.113.1")).status,
        200,
        "the peer counts"
    );
}

#[test]
fn a_reload_blocks_and_unblocks() {
    let node = Node::start(good);
    let setup = Setup::before(node.address());
    let edge = setup.start();
    let mut client = edge.client();
    for (blocked, status) in [
        ("[\"127.0.0.1\"]", 403),
        ("[]", 200),
        ("[\"127.0.0.0/8\"]", 403),
    ] {
        edge.rewrite(&setup.clone().set("gateway.blocked", blocked));
        edge.signal("HUP");
        edge.line("the change", |line| {
            line["key"] == "gateway.blocked" && line["to"] == blocked
        });
        let found = client.ask(&Request::post(QUESTION)).status;
        assert_eq!(found, status, "{blocked}, on an open connection");
    }
}
