//! Permitted requests: the thirteen reads, ids, large responses, health, CORS, request ids.
//!
//! Requests that reach the node are compared byte for byte: the gateway serializes them from what
//! it validated.

use crate::support::check::{assert_common, assert_result};
use crate::support::edge::{Edge, Setup};
use crate::support::node::{Call, Node};
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::script::{RESULT, echo, good, result, send, sized};

const ADDRESS: &str = "0x049D36570D4e46f48e99674bd3fcc84644DdD6b96F7C741B1562B82f9e004dC7";
const CANONICAL: &str = "0x49d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7";

/// An invoke transaction of version 3; felts as a wallet writes them, or minimal.
fn invoke(zero: &str, sender: &str) -> String {
    let bounds = r#"{"max_amount":"0x1","max_price_per_unit":"0x2"}"#;
    format!(
        "{{\"type\":\"INVOKE\",\"sender_address\":\"{sender}\",\"calldata\":[\"{zero}\"],\
         \"account_deployment_data\":[],\"version\":\"0x3\",\"signature\":[],\
         \"nonce\":\"{zero}\",\"resource_bounds\":\
         {{\"l1_gas\":{bounds},\"l1_data_gas\":{bounds},\"l2_gas\":{bounds}}},\"tip\":\"0x0\",\
         \"paymaster_data\":[],\
         \"nonce_data_availability_mode\":\"L1\",\"fee_data_availability_mode\":\"L1\"}}"
    )
}

/// Method, params by position, params by name, and the params that reach the node.
fn thirteen() -> Vec<(&'static str, String, String, String)> {
    let block = r#"{"block_number":0}"#;
    let call = |own: &str, zero: &str| {
        let selector = format!(r#""entry_point_selector":"{zero}""#);
        format!(r#"{{"contract_address":"{own}",{selector},"calldata":["{zero}"]}}"#)
    };
    let none = |method| (method, "[]".to_owned(), "{}".to_owned(), "{}".to_owned());
    let one = |method, name: &str, given: &str, sent: &str| {
        let by_name = |value: &str| format!("{{\"{name}\":{value}}}");
        (method, format!("[{given}]"), by_name(given), by_name(sent))
    };
    let hash = |method| {
        let (given, sent) = (format!("\"{ADDRESS}\""), format!("\"{CANONICAL}\""));
        one(method, "transaction_hash", &given, &sent)
    };
    let at = |method, name: &str| {
        let sent = format!(r#"{{"block_id":{block},"{name}":"{CANONICAL}"}}"#);
        // By name, in another order.
        let by_name = format!(r#"{{"{name}":"{ADDRESS}", "block_id":{{"block_number": 0}}}}"#);
        (method, format!("[{block},\"{ADDRESS}\"]"), by_name, sent)
    };
    let (given, sent) = (call(ADDRESS, "0x00"), call(CANONICAL, "0x0"));
    let (wallet, minimal) = (invoke("0x00", ADDRESS), invoke("0x0", CANONICAL));
    vec![
        none("starknet_specVersion"),
        none("starknet_chainId"),
        none("starknet_blockNumber"),
        one(
            "starknet_getBlockWithTxHashes",
            "block_id",
            "\"pre_confirmed\"",
            "\"pre_confirmed\"",
        ),
        hash("starknet_getTransactionByHash"),
        hash("starknet_getTransactionReceipt"),
        hash("starknet_getTransactionStatus"),
        at("starknet_getClassHashAt", "contract_address"),
        at("starknet_getClass", "class_hash"),
        at("starknet_getClassAt", "contract_address"),
        at("starknet_getNonce", "contract_address"),
        (
            "starknet_call",
            format!("[{given},\"latest\"]"),
            format!("{{\"block_id\":\"latest\",\"request\":{given}}}"),
            format!("{{\"request\":{sent},\"block_id\":\"latest\"}}"),
        ),
        (
            "starknet_estimateFee",
            format!("[[{wallet}],[\"SKIP_VALIDATE\"],\"latest\"]"),
            format!(
                "{{\"request\":[{wallet}],\"block_id\":\"latest\",\
                 \"simulation_flags\":[\"SKIP_VALIDATE\"]}}"
            ),
            format!(
                "{{\"request\":[{minimal}],\"simulation_flags\":[\"SKIP_VALIDATE\"],\
                 \"block_id\":\"latest\"}}"
            ),
        ),
    ]
}

#[test]
fn each_read_is_forwarded_in_canonical_form() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for (method, by_position, by_name, sent) in thirteen() {
        for params in [by_position, by_name] {
            let response = edge.ask(&Request::post(rpc("\"mine\"", method, &params)));
            assert_result(&response, "\"mine\"", RESULT, &format!("{method} {params}"));
            let call = node.calls().pop().expect("the node was queried");
            let id = call.id();
            assert_ne!(id, "\"mine\"", "the node gets an id of ours");
            let members = format!("\"id\":{id},\"method\":\"{method}\",\"params\":{sent}");
            let expected = format!("{{\"jsonrpc\":\"2.0\",{members}}}");
            let came = String::from_utf8(call.body).unwrap();
            assert_eq!(
                came, expected,
                "{method} {params}: what was judged is what is sent"
            );
        }
    }
}

#[test]
fn params_may_be_omitted_when_none_are_required() {
    let node = Node::start(echo);
    let edge = Edge::start(&node);
    let body = r#"{"id":1,"jsonrpc":"2.0","method":"starknet_specVersion"}"#;
    assert_result(
        &edge.ask(&Request::post(body)),
        "1",
        "{}",
        "as starknet.js asks",
    );
}

#[test]
fn no_client_header_reaches_the_node() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let hostile = [
        ("Accept-Encoding", "gzip, br"),
        ("Authorization", "Bearer secret-of-the-client"),
        ("Cookie", "secret-of-the-client=1"),
        ("Forwarded", "for=203.0.113.1"),
        ("Origin", "https://a.test"),
        ("Referer", "https://a.test/secret-of-the-client"),
        ("User-Agent", "secret-of-the-client"),
        ("Via", "1.1 secret-of-the-client"),
        ("X-Forwarded-For", "203.0.113.1"),
        ("X-Forwarded-Host", "secret-of-the-client"),
        ("X-Api-Key", "secret-of-the-client"),
        ("X-Request-Id", "secret-of-the-client"),
        (
            "Connection",
            "X-Api-Key, Host, Content-Length, Accept-Encoding",
        ),
        ("Host", "edge.test"),
    ];
    let plain = Request::post(QUESTION).without("Host");
    let request = hostile
        .iter()
        .fold(plain, |own, (name, value)| own.with(name, value));
    assert_eq!(edge.ask(&request).status, 200, "odd headers do no harm");
    let call = node.calls().pop().expect("the node was queried");
    assert!(
        call.head.starts_with("POST /rpc HTTP/1.1\r\n"),
        "the node's own path: {}",
        call.head
    );
    assert!(
        !call.head.contains("secret-of-the-client"),
        "nothing crosses: {}",
        call.head
    );
    let headers = call.headers();
    let known = [
        "host",
        "content-type",
        "content-length",
        "accept",
        "accept-encoding",
        "user-agent",
    ];
    for (name, _) in &headers {
        assert!(
            known.contains(&name.as_str()),
            "{name} is not one of ours: {}",
            call.head
        );
    }
    let authority = node.address().to_string();
    let length = call.body.len().to_string();
    let expected = [
        ("host", authority.as_str()),
        ("content-type", "application/json"),
        ("content-length", &length),
        ("accept-encoding", "identity"),
        (
            "user-agent",
            concat!("portcullis/", env!("CARGO_PKG_VERSION")),
        ),
    ];
    for (name, value) in expected {
        let own: Vec<_> = headers.iter().filter(|(own, _)| own == name).collect();
        assert_eq!(own.len(), 1, "one {name}: {}", call.head);
        assert_eq!(own[0].1, value, "{name}");
    }
}

#[test]
fn the_nodes_retry_after_reaches_the_client() {
    for (status, field, expected, why) in [
        (
            "429 Too Many Requests",
            "Retry-After: 7",
            Some("7"),
            "as it is",
        ),
        (
            "503 Service Unavailable",
            "Retry-After: 3600",
            Some("60"),
            "at most a minute",
        ),
        (
            "429 Too Many Requests",
            "Retry-After: soon",
            None,
            "no time",
        ),
        (
            "500 Internal Server Error",
            "Retry-After: 7",
            None,
            "no refusal",
        ),
    ] {
        let node = Node::start(move |_| send(sized(status, &[field], "busy")));
        let response = Edge::start(&node).ask(&Request::post(QUESTION));
        assert_eq!(response.status, 502, "{status}");
        assert_eq!(
            response.json()["error"]["data"]["reason"],
            "upstream_status",
            "{status}"
        );
        assert_eq!(response.header("Retry-After"), expected, "{status}: {why}");
    }
}

#[test]
fn the_id_is_echoed_byte_for_byte() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let long = format!("\"{}\"", "x".repeat(5_000));
    let digits = "9".repeat(400);
    let ids = [
        "0",
        "1",
        "-1",
        "-0",
        "1.0",
        "1e2",
        "1E+2",
        "0.10",
        "18446744073709551616",
        "1e400",
        "\"\"",
        "\"1\"",
        "\"null\"",
        "\"a\\u0062\"",
        "\"\\u0000\"",
        "\"\\\"}\\\\\"",
        "\"\\ud83d\\ude00\"",
        "\"ü😀\"",
        "\"\u{2028}\"",
        "\"</script>\"",
        &long,
        &digits,
    ];
    for id in ids {
        let response = edge.ask(&Request::post(rpc(id, "starknet_chainId", "[]")));
        assert_result(&response, id, RESULT, "the client gets its own id back");
    }
}

#[test]
fn whitespace_and_member_order_do_not_matter() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let body = "\r\n { \"params\" : [ ] ,\t\"method\":\"starknet_chainId\", \"id\" : 7 ,\n\
                \"jsonrpc\":\"2.0\" } \n";
    assert_result(
        &edge.ask(&Request::post(body)),
        "7",
        RESULT,
        "JSON as people write it",
    );
}

#[test]
fn large_answers_pass_whole() {
    let sizes = [0, 1, 4_000, 4_096, 65_536, 1_700_000, 4_000_000];
    let text = |size: usize| format!("\"{}\"", "ab".repeat(size / 2));
    let node = Node::start(move |call: &Call| {
        let size = call.json()["params"]["block_id"]["block_number"]
            .as_u64()
            .unwrap();
        send(result(call, &text(usize::try_from(size).unwrap())))
    });
    let edge = Edge::start(&node);
    let mut client = edge.client();
    for size in sizes {
        let params = format!(r#"[{{"block_number":{size}}}]"#);
        let request = Request::post(rpc("7", "starknet_getBlockWithTxHashes", &params));
        let response = client.ask(&request);
        assert_result(
            &response,
            "7",
            &text(size),
            &format!("an answer of {size} bytes"),
        );
    }
}

#[test]
fn healthz_answers_get_and_head_without_the_node() {
    let edge = Setup::before(Node::nowhere()).start();
    let get = edge.ask(&Request::new("GET", "/healthz"));
    assert_common(&get, "GET /healthz");
    assert_eq!((get.status, get.text().trim_end()), (200, "ok"), "alive");
    let mut client = edge.client();
    client.send(
        Request::new("HEAD", "/healthz")
            .with("Connection", "close")
            .bytes(),
    );
    let head = client.response_to_head();
    assert_common(&head, "HEAD /healthz");
    assert_eq!(head.status, 200, "HEAD is like GET");
    assert_eq!(
        head.header("Content-Type"),
        get.header("Content-Type"),
        "HEAD is like GET"
    );
    client.ends("except for the body");
}

#[test]
fn valid_request_ids_are_echoed_others_replaced() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let ask = |id: &str| {
        let response = edge.ask(&Request::post(QUESTION).with("X-Request-Id", id));
        assert_common(&response, id);
        response
            .header("X-Request-Id")
            .unwrap_or_default()
            .to_owned()
    };
    let long = "a".repeat(64);
    for id in ["12345678", "ABCD-efgh-0123", "--------", long.as_str()] {
        assert_eq!(ask(id), id, "a request id that fits is used");
    }
    let longer = "a".repeat(65);
    let others = [
        "",
        "1234567",
        &longer,
        "with space",
        "under_score",
        "a%0d%0ab",
        "ünïcödé",
    ];
    for id in others {
        assert_ne!(ask(id), id, "a request id that does not fit is replaced");
    }
    let minted = || {
        edge.ask(&Request::post(QUESTION))
            .header("X-Request-Id")
            .unwrap()
            .to_owned()
    };
    assert_ne!(minted(), minted(), "every request has its own");
}

#[test]
fn traceparent_is_passed_on_if_it_is_one() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let sent_for = |value: &str| {
        let response = edge.ask(&Request::post(QUESTION).with("traceparent", value));
        assert_eq!(response.status, 200, "{value:?} is no reason to refuse");
        let headers = node.calls().pop().expect("the node was queried").headers();
        let sent = headers.into_iter().find(|(name, _)| name == "traceparent");
        sent.map(|(_, value)| value)
    };
    assert_eq!(
        sent_for(parent).as_deref(),
        Some(parent),
        "a trace goes on to the node"
    );
    for noise in [
        "",
        "1",
        "00-0af7-b7ad-01",
        &parent.to_uppercase(),
        &format!("{parent}, x"),
    ] {
        assert_eq!(sent_for(noise), None, "{noise:?} does not cross");
    }
}

/// The value of a header as a sorted list, in lower case.
fn list(response: &crate::support::response::Response, name: &str) -> Vec<String> {
    let value = response
        .header(name)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let mut items: Vec<String> = value
        .split(',')
        .map(|item| item.trim().to_owned())
        .filter(|item| !item.is_empty())
        .collect();
    items.sort();
    items
}

#[test]
fn a_browser_of_any_origin_may_ask() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let preflight = Request::new("OPTIONS", "/rpc")
        .with("Origin", "https://wallet.test")
        .with("Access-Control-Request-Method", "POST")
        .with("Access-Control-Request-Headers", "content-type");
    let response = edge.ask(&preflight);
    assert_common(&response, "a preflight");
    assert!(
        [200, 204].contains(&response.status),
        "a preflight passes: {response:?}"
    );
    assert!(response.body.is_empty(), "a preflight has no body");
    assert_eq!(
        response.header("Access-Control-Allow-Origin"),
        Some("*"),
        "any origin"
    );
    assert!(
        list(&response, "Access-Control-Allow-Methods").contains(&"post".into()),
        "POST"
    );
    let headers = list(&response, "Access-Control-Allow-Headers");
    let allowed = [
        "*",
        "authorization",
        "content-type",
        "traceparent",
        "x-chain-position",
        "x-request-id",
    ];
    assert_eq!(headers, allowed, "what a client may send");
    assert_eq!(
        response.header("Access-Control-Max-Age"),
        Some("86400"),
        "for a day"
    );
    let exposed = [
        "ratelimit",
        "ratelimit-policy",
        "retry-after",
        "x-cache",
        "x-chain-position",
        "x-request-id",
    ];
    for body in [QUESTION, "{"] {
        let response = edge.ask(&Request::post(body).with("Origin", "https://wallet.test"));
        assert_common(&response, "a request of a browser");
        assert_eq!(
            response.header("Access-Control-Allow-Origin"),
            Some("*"),
            "{body}"
        );
        assert_eq!(
            list(&response, "Access-Control-Expose-Headers"),
            exposed,
            "{body}"
        );
        let credentials = response.header("Access-Control-Allow-Credentials");
        assert_eq!(credentials, None, "no credentials: {body}");
    }
    assert_eq!(node.calls().len(), 1, "a preflight never reaches the node");
}

#[test]
fn a_page_may_send_any_header() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for sent in [
        "argent-client, argent-version, content-type",
        "baggage, content-type, sentry-trace",
        "baggage, content-type, traceparent, tracestate",
        "authorization, content-type, x-client-version",
    ] {
        let preflight = Request::new("OPTIONS", "/rpc")
            .with("Origin", "https://wallet.test")
            .with("Access-Control-Request-Method", "POST")
            .with("Access-Control-Request-Headers", sent);
        let allowed = list(&edge.ask(&preflight), "Access-Control-Allow-Headers");
        let is_named = |name: &str| allowed.iter().any(|own| own == name);
        // the Fetch standard, section 4.8: a wildcard does not cover Authorization
        let passes = |name: &str| is_named(name) || (is_named("*") && name != "authorization");
        assert!(sent.split(", ").all(passes), "{sent}: {allowed:?}");
        let request = sent
            .split(", ")
            .filter(|name| *name != "content-type" && *name != "traceparent")
            .fold(Request::post(QUESTION), |request, name| {
                request.with(name, "1")
            })
            .with("Origin", "https://wallet.test");
        assert_result(&edge.ask(&request), "7", RESULT, sent);
    }
}

#[test]
fn a_list_of_origins_narrows_who_may_ask() {
    let node = Node::start(good);
    let origins = r#"["https://a.test", "https://b.test:8443"]"#;
    let edge = Edge::with(&node, &[("gateway.cors_origins", origins)]);
    let allowed = |method: &str, origin: &str| {
        let request = if method == "POST" {
            Request::post(QUESTION)
        } else {
            Request::new("OPTIONS", "/rpc").with("Access-Control-Request-Method", "POST")
        };
        let response = edge.ask(&request.with("Origin", origin));
        assert_common(&response, origin);
        assert!(
            list(&response, "Vary").contains(&"origin".into()),
            "the answer varies: {origin}"
        );
        response
            .header("Access-Control-Allow-Origin")
            .map(str::to_owned)
    };
    for method in ["OPTIONS", "POST"] {
        for origin in ["https://a.test", "https://b.test:8443"] {
            assert_eq!(
                allowed(method, origin).as_deref(),
                Some(origin),
                "{method} of {origin}"
            );
        }
        for origin in [
            "https://c.test",
            "http://a.test",
            "https://a.test.evil",
            "null",
            "*",
            "",
        ] {
            assert_eq!(allowed(method, origin), None, "{method} of {origin:?}");
        }
    }
}
