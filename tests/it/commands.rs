//! Operator commands: `explain`, and `check --live`.

use std::process::Output;

use crate::support::edge::Setup;
use crate::support::node::Node;
use crate::support::request::rpc;
use crate::support::script::good;

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("what is printed is text")
}

#[test]
fn explain_shows_the_forwarded_call_without_sending() {
    let node = Node::start(good);
    let setup = Setup::before(node.address());
    let request = rpc("5", "starknet_getNonce", r#"["latest","0x00AB"]"#);
    let output = setup.run_with("explain", &["-"], &request);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(0), "it is permitted: {text}");
    for shown in [
        "ok       envelope: JSON-RPC 2.0, id 5",
        "ok       method: starknet_getNonce",
        "contract_address = Felt(0xab)",
        r#""params":{"block_id":"latest","contract_address":"0xab"}"#,
    ] {
        assert!(text.contains(shown), "{shown:?} is shown in {text}");
    }
    assert_eq!(node.connections(), 0, "nothing is sent");
}

#[test]
fn explain_names_the_check_that_refuses() {
    let setup = Setup::before(Node::nowhere());
    for (request, reason, passed) in [
        ("{", "parse_error", "size"),
        ("[]", "batch", "size"),
        (&*rpc("1", "starknet_addInvokeTransaction", "[]"), "method_not_allowed", "envelope"),
        (&*rpc("1", "starknet_getNonce", r#"["pending","0x1"]"#), "invalid_params", "method"),
    ] {
        let output = setup.run_with("explain", &["-"], request);
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(1), "{request} is refused: {text}");
        assert!(text.contains(&format!("refused  {reason}: ")), "{reason} in {text}");
        assert!(text.contains(&format!("ok       {passed}: ")), "{passed} passed in {text}");
    }
}

#[test]
fn a_live_check_queries_the_node() {
    let node = Node::start(good);
    let output = Setup::before(node.address()).run_with("check", &["--live"], "");
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    assert_eq!(node.calls().len(), 2, "its version and its chain");

    let output = Setup::before(Node::nowhere()).run_with("check", &["--live"], "");
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(1), "a node that is not there is a failure: {text}");
    assert!(text.contains("FAILED: unreachable"), "{text}");
}
