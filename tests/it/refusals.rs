//! Refused bodies: not JSON, not one JSON-RPC request, not a permitted method, not its params.
//!
//! Each row of the gateway's table of errors has its wire tests here or, where the body does not
//! matter, in `heads`. A refused request never reaches the node.

use crate::support::check::{assert_error, each, id_bytes};
use crate::support::edge::{Edge, Setup};
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::response::Response;
use crate::support::script::{good, result, send};

/// Asserts that each body gets this refusal and this id, and that nothing reaches the node.
fn assert_bodies_refused(cases: &[(&str, Vec<u8>)], reason: &str, id: &str) {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    each(cases, |(what, body)| {
        let response = edge.ask(&Request::post(body));
        assert_error(&response, reason, id, what);
    });
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

fn texts(cases: &[(&'static str, &str)]) -> Vec<(&'static str, Vec<u8>)> {
    cases
        .iter()
        .map(|(what, body)| (*what, body.as_bytes().to_vec()))
        .collect()
}

/// A request for `starknet_chainId` whose nesting, including the request itself, has `levels`.
fn nested(levels: usize) -> Vec<u8> {
    let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
    rpc("7", "starknet_chainId", &format!("{open}{close}")).into_bytes()
}

#[test]
fn non_json_is_a_parse_error() {
    let whole = rpc("7", "starknet_chainId", "[]");
    let mut cases = texts(&[
        ("a body of no byte", ""),
        ("only white space", " \r\n\t "),
        ("an object cut short", r#"{"jsonrpc":"2.0","id":7"#),
        ("a word", "starknet_chainId"),
        ("half a word", "nul"),
        ("single quotes", "{'jsonrpc':'2.0'}"),
        (
            "a comma before the end",
            r#"{"jsonrpc":"2.0","id":7,"method":"starknet_chainId",}"#,
        ),
        ("no comma", r#"{"jsonrpc":"2.0" "id":7}"#),
        (
            "a comment",
            r#"{"jsonrpc":"2.0",/* */"id":7,"method":"starknet_chainId"}"#,
        ),
        (
            "not a number",
            r#"{"jsonrpc":"2.0","id":NaN,"method":"starknet_chainId"}"#,
        ),
        (
            "a number with a zero before it",
            r#"{"jsonrpc":"2.0","id":07,"method":"m"}"#,
        ),
        (
            "a number with a plus",
            r#"{"jsonrpc":"2.0","id":+7,"method":"m"}"#,
        ),
        (
            "a hexadecimal number",
            r#"{"jsonrpc":"2.0","id":0x7,"method":"m"}"#,
        ),
        (
            "a line break in a string",
            "{\"jsonrpc\":\"2.0\",\"id\":\"a\nb\"}",
        ),
        (
            "an invalid escape",
            r#"{"jsonrpc":"2.0","id":"\x41","method":"m"}"#,
        ),
        ("a name without quotes", r#"{jsonrpc:"2.0"}"#),
        ("trailing text", &format!("{whole}x")),
        ("a trailing bracket", &format!("{whole}}}")),
        (
            "a second request behind the first",
            &format!("{whole}{whole}"),
        ),
        ("one request per line", &format!("{whole}\n{whole}\n")),
        ("a NUL behind the request", &format!("{whole}\0")),
        ("a form", "jsonrpc=2.0&id=7&method=starknet_chainId"),
    ]);
    let utf16 = whole.encode_utf16().flat_map(u16::to_le_bytes).collect();
    cases.extend([
        (
            "a byte order mark",
            [b"\xef\xbb\xbf", whole.as_bytes()].concat(),
        ),
        ("UTF-16", utf16),
        (
            "a stray continuation byte",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"\x80\"}".to_vec(),
        ),
        (
            "an overlong slash",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"\xc0\xaf\"}".to_vec(),
        ),
        (
            "a surrogate in UTF-8",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"\xed\xa0\x80\"}".to_vec(),
        ),
        ("bad UTF-8 in a member's name", b"{\"\xff\":1}".to_vec()),
        ("65 levels", nested(65)),
        ("60,000 levels", vec![b'['; 60_000]),
    ]);
    assert_bodies_refused(&cases, "parse_error", "null");
}

#[test]
fn sixty_four_levels_are_still_json() {
    assert_bodies_refused(&[("64 levels", nested(64))], "invalid_params", "7");
}

#[test]
fn json_other_than_a_request_is_invalid() {
    let without_an_id = texts(&[
        ("a number", "1"),
        ("a string", r#""starknet_chainId""#),
        ("null", "null"),
        ("true", "true"),
        ("an empty object", "{}"),
        (
            "no id, which JSON-RPC calls a notification",
            r#"{"jsonrpc":"2.0","method":"m"}"#,
        ),
        ("a null id", &rpc("null", "starknet_chainId", "[]")),
        ("a boolean id", &rpc("true", "starknet_chainId", "[]")),
        ("an object as id", &rpc("{}", "starknet_chainId", "[]")),
        ("an array as id", &rpc("[1]", "starknet_chainId", "[]")),
    ]);
    assert_bodies_refused(&without_an_id, "invalid_request", "null");
}

/// The response has the id if the id was read before the error; otherwise `null` is valid.
#[test]
fn a_misshapen_request_is_invalid() {
    let cases = texts(&[
        (
            "no version",
            r#"{"id":7,"method":"starknet_chainId","params":[]}"#,
        ),
        (
            "version 1.0",
            r#"{"jsonrpc":"1.0","id":7,"method":"starknet_chainId"}"#,
        ),
        (
            "a number as version",
            r#"{"jsonrpc":2.0,"id":7,"method":"starknet_chainId"}"#,
        ),
        (
            "a null version",
            r#"{"jsonrpc":null,"id":7,"method":"starknet_chainId"}"#,
        ),
        (
            "a version with a space",
            r#"{"jsonrpc":"2.0 ","id":7,"method":"starknet_chainId"}"#,
        ),
        ("no method", r#"{"jsonrpc":"2.0","id":7,"params":[]}"#),
        (
            "a number as method",
            r#"{"jsonrpc":"2.0","id":7,"method":1,"params":[]}"#,
        ),
        (
            "a null method",
            r#"{"jsonrpc":"2.0","id":7,"method":null,"params":[]}"#,
        ),
        (
            "an array as method",
            r#"{"jsonrpc":"2.0","id":7,"method":["starknet_chainId"]}"#,
        ),
        (
            "a string as params",
            &rpc("7", "starknet_chainId", "\"[]\""),
        ),
        ("a number as params", &rpc("7", "starknet_chainId", "0")),
        (
            "a boolean as params",
            &rpc("7", "starknet_chainId", "false"),
        ),
        (
            "an unknown member",
            r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[],"x":1}"#,
        ),
        (
            "a member in other case",
            r#"{"jsonrpc":"2.0","id":7,"Method":"m","params":[]}"#,
        ),
        (
            "a result",
            r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[],"result":1}"#,
        ),
        (
            "two methods",
            r#"{"jsonrpc":"2.0","id":7,"method":"m","method":"m"}"#,
        ),
        (
            "two ids",
            r#"{"jsonrpc":"2.0","id":7,"id":7,"method":"starknet_chainId"}"#,
        ),
        (
            "two versions",
            r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":7,"method":"m"}"#,
        ),
        (
            "two params",
            r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[],"params":[]}"#,
        ),
        (
            "a second method that hides behind an escape",
            r#"{"jsonrpc":"2.0","id":7,"method":"starknet_chainId","m\u0065thod":"devnet_mint"}"#,
        ),
        (
            "a second id that hides behind an escape",
            r#"{"jsonrpc":"2.0","id":7,"\u0069\u0064":8,"method":"starknet_chainId"}"#,
        ),
        (
            "an unknown member that hides behind an escape",
            r#"{"jsonrpc":"2.0","id":7,"method":"starknet_chainId","\u0078":8}"#,
        ),
    ]);
    let node = Node::start(good);
    let edge = Edge::start(&node);
    each(&cases, |(what, body)| {
        let response = edge.ask(&Request::post(body));
        let id = id_bytes(&response);
        assert!(id == "7" || id == "null", "{what}: {id} is nobody's id");
        assert_error(&response, "invalid_request", &id, what);
    });
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn a_batch_is_refused_with_a_hint() {
    let call = rpc("7", "starknet_chainId", "[]");
    let bodies = [
        "[]".to_owned(),
        format!("[{call}]"),
        format!(" [{call},{call}]"),
        "[1]".to_owned(),
    ];
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for body in bodies {
        let response = edge.ask(&Request::post(&body));
        assert_error(&response, "batch", "null", &body);
        let message = response.json()["error"]["message"].to_string();
        let hint = ["single", "each call"]
            .iter()
            .any(|words| message.contains(words));
        assert!(hint, "the message says what to do instead: {message}");
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

/// Spelled out, not derived, so that a write cannot enter the list of reads by accident.
const NEVER_READS: [&str; 29] = [
    "starknet_addInvokeTransaction",
    "starknet_addDeployAccountTransaction",
    "starknet_addDeclareTransaction",
    "devnet_mint",
    "devnet_restart",
    "devnet_setTime",
    "devnet_dump",
    "devnet_load",
    "devnet_impersonateAccount",
    "devnet_chainId",
    "devnet_",
    "starknet_getStorageAt",
    "starknet_getBlockWithTxs",
    "starknet_getEvents",
    "starknet_syncing",
    "starknet_traceTransaction",
    "starknet_simulateTransactions",
    "starknet_subscribeNewHeads",
    "starknet_proveTransaction",
    "starknet_chainid",
    "Starknet_chainId",
    "STARKNET_CHAINID",
    " starknet_chainId",
    "starknet_chainId ",
    "starknet_chainId\\u0000",
    "chainId",
    "\u{455}tarknet_chainId",
    "rpc.discover",
    "",
];

#[test]
fn every_method_but_the_thirteen_reads_is_forbidden() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for method in NEVER_READS {
        // Params that fit no method show that the method is checked first.
        let response = edge.ask(&Request::post(rpc("\"a\"", method, r#"{"any":["thing"]}"#)));
        assert_error(&response, "method_not_allowed", "\"a\"", method);
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn a_refused_write_names_the_relay() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for method in &NEVER_READS[..3] {
        let response = edge.ask(&Request::post(rpc("7", method, "[]")));
        assert_error(&response, "method_not_allowed", "7", method);
        let message = response.json()["error"]["message"].to_string();
        assert!(
            message.contains("relay"),
            "{method}: where to submit instead? {message}"
        );
    }
}

#[test]
fn a_refused_method_gets_the_remedy() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for (method, remedy) in [
        ("starknet_getBlockWithTxs", "`tip: 0n`"),
        ("starknet_addInvokeTransaction", "the relay"),
        (
            "starknet_addDeclareTransaction",
            "classes are declared by the operator",
        ),
        ("starknet_getEvents", "starknet_getTransactionReceipt"),
        (
            "starknet_traceTransaction",
            "starknet_getTransactionReceipt",
        ),
        (
            "starknet_getMessagesStatus",
            "starknet_getTransactionStatus",
        ),
        ("starknet_syncing", "its timestamp"),
        ("starknet_getStateUpdate", "starknet_getNonce"),
        ("starknet_subscribeNewHeads", "poll starknet_blockNumber"),
        ("starknet_getnonce", "did you mean starknet_getNonce?"),
        ("getNonce", "did you mean starknet_getNonce?"),
        ("eth_chainId", "use starknet_chainId"),
        ("eth_mining", "begin with starknet_"),
        ("devnet_mint", "administration"),
        (
            "xyzzy",
            "the methods are starknet_specVersion, starknet_chainId, ",
        ),
    ] {
        let response = edge.ask(&Request::post(rpc("7", method, "[]")));
        assert_error(&response, "method_not_allowed", "7", method);
        let hint = hint(&response);
        assert!(hint.contains(remedy), "{method}: {hint}");
    }
    let batch = hint(&edge.ask(&Request::post(format!("[{QUESTION}]"))));
    assert!(batch.contains("a request of its own"), "{batch}");
    assert_eq!(node.connections(), 0, "none of them reaches the node");
}

#[test]
fn a_versioned_path_gets_the_nodes_version() {
    let node = Node::start(|call| send(result(call, "\"0.9.0\"")));
    let edge = Edge::start(&node);
    let version = Request::post(rpc("1", "starknet_specVersion", "[]"));
    assert_eq!(edge.ask(&version).status, 200);
    let request = Request::post(QUESTION).line("POST /rpc/v0_8 HTTP/1.1");
    let hint = hint(&edge.ask(&request));
    assert!(hint.contains("version 0.9.0 of the Starknet API"), "{hint}");
}

#[test]
fn a_wrong_path_gets_the_remedy() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for (path, remedy) in [
        ("/rpc/v0_8", "starknet_specVersion returns the version"),
        ("/rpc/v0_10", "without a version"),
        ("/v0_9", "without a version"),
        ("/v0_8/rpc", "without a version"),
        ("/rpc?x=1", "without a query"),
        ("/rpc/", "without a slash"),
        ("/rpc/ws", "there is no WebSocket"),
        ("/ws", "there is no WebSocket"),
        ("/rpc/other", "the only path"),
        ("/other", "null"),
        ("/", "null"),
    ] {
        let request = Request::post(QUESTION).line(&format!("POST {path} HTTP/1.1"));
        let response = edge.ask(&request);
        assert_error(&response, "not_found", "7", path);
        assert!(
            hint(&response).contains(remedy),
            "{path}: {}",
            hint(&response)
        );
    }
    for path in ["/rpc", "/", "/socket"] {
        let upgrade = Request::new("GET", path)
            .with("Connection", "Upgrade")
            .with("Upgrade", "websocket")
            .with("Sec-WebSocket-Version", "13")
            .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
        let response = edge.ask(&upgrade);
        assert!(
            hint(&response).contains("there is no WebSocket"),
            "{path}: {}",
            hint(&response)
        );
    }
    let page = edge.ask(&Request::new("GET", "/rpc"));
    assert!(
        hint(&page).contains("by POST"),
        "opened in a browser: {}",
        hint(&page)
    );
    assert_eq!(node.connections(), 0, "none of them reaches the node");
}

#[test]
fn a_web_page_can_read_the_refusal_of_a_wrong_path() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for path in ["/rpc/v0_8", "/", "/healthz", "/other"] {
        let preflight = Request::new("OPTIONS", path).with("Origin", "https://wallet.test");
        let bare = edge.ask(&preflight).status;
        assert!(matches!(bare, 404 | 405), "{path}: not a preflight, {bare}");
        let passed = edge.ask(&preflight.with("Access-Control-Request-Method", "POST"));
        assert_eq!(
            passed.status, 204,
            "{path}: browsers send nothing after another status"
        );
        assert_eq!(
            passed.header("Access-Control-Allow-Origin"),
            Some("*"),
            "{path}"
        );
    }
    let post = Request::post(QUESTION).line("POST /rpc/v0_8 HTTP/1.1");
    let refused = edge.ask(&post.with("Origin", "https://wallet.test"));
    assert_eq!(refused.status, 404);
    assert_eq!(
        refused.header("Access-Control-Allow-Origin"),
        Some("*"),
        "the page may read it"
    );
    assert_eq!(node.connections(), 0, "none of them reaches the node");
}

/// The hint of a refusal as JSON.
fn hint(response: &Response) -> String {
    response.json()["error"]["data"]["hint"].to_string()
}

#[test]
fn a_method_outside_the_configuration_is_forbidden() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.methods", r#"["starknet_blockNumber"]"#)]);
    let listed = edge.ask(&Request::post(rpc("7", "starknet_blockNumber", "[]")));
    assert_eq!(
        listed.status,
        200,
        "a method that is listed still passes: {}",
        listed.text()
    );
    let left_out = edge.ask(&Request::post(rpc("8", "starknet_chainId", "[]")));
    assert_error(
        &left_out,
        "method_not_allowed",
        "8",
        "one that is not listed does not",
    );
    assert_eq!(
        node.calls().len(),
        1,
        "only the listed method reaches the node"
    );
}

#[test]
fn a_configuration_cannot_widen_the_allowlist() {
    let node = Node::nowhere();
    for method in [
        "starknet_addInvokeTransaction",
        "devnet_mint",
        "starknet_getEvents",
    ] {
        let methods = format!("[\"starknet_chainId\", \"{method}\"]");
        let output = Setup::before(node)
            .set("gateway.methods", &methods)
            .run("serve");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{method} is a configuration error"
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("gateway.methods"),
            "the error names the key: {said}"
        );
    }
}

const FELT: &str = "0x5";
/// The prime of the field: the smallest number that is not a felt.
const PRIME: &str = "0x800000000000011000000000000000000000000000000000000000000000001";

#[test]
fn params_must_fit_the_method() {
    let block = |id: &str| rpc("7", "starknet_getBlockWithTxHashes", &format!("[{id}]"));
    let status = |hash: &str| rpc("7", "starknet_getTransactionStatus", &format!("[{hash}]"));
    let nonce = |params: &str| rpc("7", "starknet_getNonce", params);
    let cases = [
        ("an extra element", rpc("7", "starknet_chainId", "[1]")),
        (
            "an extra member",
            rpc("7", "starknet_chainId", r#"{"x":1}"#),
        ),
        ("an element too few", nonce(r#"["latest"]"#)),
        ("an element too many", nonce(r#"["latest","0x1","0x2"]"#)),
        ("elements in the wrong order", nonce(r#"["0x1","latest"]"#)),
        ("a member too few", nonce(r#"{"block_id":"latest"}"#)),
        (
            "a null member",
            nonce(r#"{"block_id":"latest","contract_address":null}"#),
        ),
        (
            "an unknown member",
            nonce(r#"{"block_id":"latest","contract_address":"0x1","contractAddress":"0x2"}"#),
        ),
        (
            "a member twice",
            nonce(r#"{"block_id":"latest","contract_address":"0x1","contract_address":"0x2"}"#),
        ),
        (
            "a member twice, once behind an escape",
            nonce(r#"{"block_id":"latest","contract_address":"0x1","\u0062lock_id":"latest"}"#),
        ),
        ("no hash", rpc("7", "starknet_getTransactionStatus", "[]")),
        ("a number for a felt", status("5")),
        ("a felt without 0x", status("\"5\"")),
        ("a felt without digits", status("\"0x\"")),
        ("a felt with 0X", status("\"0X5\"")),
        ("a felt with another letter", status("\"0xg\"")),
        ("a felt with a sign", status("\"0x-1\"")),
        ("a felt with a space", status("\"0x5 \"")),
        ("65 digits", status(&format!("\"0x{}\"", "0".repeat(65)))),
        ("the prime itself", status(&format!("\"{PRIME}\""))),
        ("64 times f", status(&format!("\"0x{}\"", "f".repeat(64)))),
        ("a tag of no version", block("\"newest\"")),
        ("a tag in other case", block("\"Latest\"")),
        ("a bare block number", block("5")),
        ("a negative block number", block(r#"{"block_number":-1}"#)),
        (
            "a fractional block number",
            block(r#"{"block_number":1.5}"#),
        ),
        ("a block number as text", block(r#"{"block_number":"5"}"#)),
        (
            "a block number above 64 bits",
            block(r#"{"block_number":18446744073709551616}"#),
        ),
        (
            "number and hash of a block",
            block(r#"{"block_number":1,"block_hash":"0x1"}"#),
        ),
        (
            "the block number twice",
            block(r#"{"block_number":1,"block_number":1}"#),
        ),
        (
            "an unknown member in a block id",
            block(r#"{"block_hash":"0x1","x":1}"#),
        ),
        ("an empty block id", block("{}")),
        ("a null block id", block("null")),
        (
            "a bad felt in a block id",
            block(r#"{"block_hash":"latest"}"#),
        ),
    ];
    let cases: Vec<_> = cases
        .into_iter()
        .map(|(what, body)| (what, body.into_bytes()))
        .collect();
    assert_bodies_refused(&cases, "invalid_params", "7");
}

#[test]
fn a_call_that_is_no_call_is_invalid() {
    let to = r#""contract_address":"0x1""#;
    let what = r#""entry_point_selector":"0x2""#;
    let cases = [
        ("no object", "\"0x1\"".to_owned()),
        ("no calldata", format!("{{{to},{what}}}")),
        ("no selector", format!("{{{to},\"calldata\":[]}}")),
        ("no contract", format!("{{{what},\"calldata\":[]}}")),
        (
            "calldata that is no array",
            format!("{{{to},{what},\"calldata\":\"0x1\"}}"),
        ),
        (
            "calldata with a number",
            format!("{{{to},{what},\"calldata\":[1]}}"),
        ),
        (
            "calldata with the prime",
            format!("{{{to},{what},\"calldata\":[\"{PRIME}\"]}}"),
        ),
        (
            "calldata with a null",
            format!("{{{to},{what},\"calldata\":[\"{FELT}\",null]}}"),
        ),
        ("a selector by name", {
            format!("{{{to},\"entry_point_selector\":\"balanceOf\",\"calldata\":[]}}")
        }),
        (
            "an unknown member",
            format!("{{{to},{what},\"calldata\":[],\"nonce\":\"0x0\"}}"),
        ),
        (
            "calldata twice",
            format!("{{{to},{what},\"calldata\":[],\"calldata\":[]}}"),
        ),
    ];
    let call = |request: &str| rpc("7", "starknet_call", &format!("[{request},\"latest\"]"));
    let bodies: Vec<_> = cases
        .iter()
        .map(|(what, request)| (*what, call(request).into_bytes()))
        .collect();
    assert_bodies_refused(&bodies, "invalid_params", "7");
}

/// An invoke transaction of version 3 with one member's text replaced.
fn invoke(from: &str, to: &str) -> String {
    let bounds = r#"{"max_amount":"0x1","max_price_per_unit":"0x2"}"#;
    let all = format!(r#""l1_gas":{bounds},"l1_data_gas":{bounds},"l2_gas":{bounds}"#);
    let text = format!(
        r#"{{"type":"INVOKE","version":"0x3","sender_address":"0x1","calldata":["0x0"],
        "signature":[],"nonce":"0x0","resource_bounds":{{{all}}},"tip":"0x0",
        "paymaster_data":[],"account_deployment_data":[],
        "nonce_data_availability_mode":"L1","fee_data_availability_mode":"L1"}}"#
    );
    assert!(
        from.is_empty() || text.contains(from),
        "{from} is replaced by {to}"
    );
    if from.is_empty() {
        text
    } else {
        text.replace(from, to)
    }
}

#[test]
fn estimates_take_v3_transactions_only() {
    let params = |txs: &str, flags: &str| format!("[{txs},{flags},\"latest\"]");
    let one = |from: &str, to: &str| params(&format!("[{}]", invoke(from, to)), "[]");
    let cases = [
        (
            "a transaction outside of an array",
            params(&invoke("", ""), "[]"),
        ),
        (
            "an unknown flag",
            params(&format!("[{}]", invoke("", "")), "[\"SKIP_EVERYTHING\"]"),
        ),
        (
            "flags that are no array",
            params(&format!("[{}]", invoke("", "")), "\"SKIP_VALIDATE\""),
        ),
        (
            "flags left out",
            format!("[[{}],\"latest\"]", invoke("", "")),
        ),
        ("a transaction that is a string", params("[\"0x1\"]", "[]")),
        ("an empty transaction", params("[{}]", "[]")),
        ("version 1", one("\"0x3\"", "\"0x1\"")),
        ("version 0", one("\"0x3\"", "\"0x0\"")),
        (
            "a number as version",
            one("\"version\":\"0x3\"", "\"version\":3"),
        ),
        ("an unknown type", one("\"INVOKE\"", "\"L1_HANDLER\"")),
        ("a type in other case", one("\"INVOKE\"", "\"invoke\"")),
        (
            "an unknown member",
            one("\"tip\":\"0x0\"", "\"tip\":\"0x0\",\"x\":1"),
        ),
        (
            "a member twice",
            one("\"tip\":\"0x0\"", "\"tip\":\"0x0\",\"tip\":\"0x0\""),
        ),
        (
            "a tip above 64 bits",
            one("\"tip\":\"0x0\"", "\"tip\":\"0x10000000000000000\""),
        ),
        ("a number as tip", one("\"tip\":\"0x0\"", "\"tip\":0")),
        ("no nonce", one("\"nonce\":\"0x0\",", "")),
        (
            "an unknown mode",
            one("\"fee_data_availability_mode\":\"L1\"", {
                "\"fee_data_availability_mode\":\"L3\""
            }),
        ),
        ("an unknown resource", one("\"l2_gas\"", "\"l3_gas\"")),
        (
            "an amount above 64 bits",
            one("\"0x1\",\"max_price", "\"0x1ffffffffffffffff\",\"max_price"),
        ),
    ];
    let bodies: Vec<_> = cases
        .iter()
        .map(|(what, params)| (*what, rpc("7", "starknet_estimateFee", params).into_bytes()))
        .collect();
    assert_bodies_refused(&bodies, "invalid_params", "7");
}

#[test]
fn an_error_echoes_the_request_id_exactly() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for id in [
        "1",
        "-1",
        "1.0",
        "1e2",
        "18446744073709551616",
        "\"a\\u0062\"",
        "\"\"",
        "\"ü\"",
    ] {
        let forbidden = edge.ask(&Request::post(rpc(id, "devnet_mint", "[]")));
        assert_error(
            &forbidden,
            "method_not_allowed",
            id,
            "a method that is no read",
        );
        let invalid = edge.ask(&Request::post(rpc(id, "starknet_chainId", "[1]")));
        assert_error(&invalid, "invalid_params", id, "params that do not fit");
    }
}
