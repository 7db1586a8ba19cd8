//! Operator commands: `explain`, `check --live`, and which configuration a command reads.

use std::process::Output;

use serde_json::Value;

use crate::support::edge::{Setup, program};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain::method;
use crate::support::request::rpc;
use crate::support::script::{good, result, send};

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
fn explain_prints_no_control_characters() {
    let setup = Setup::before(Node::nowhere());
    let request = rpc("\"a\u{202e}\u{9b}31m\"", "starknet_chainId", "[]");
    let output = setup.run_with("explain", &["-"], &request);
    let text = printed(&output);
    assert!(!text.contains(['\u{202e}', '\u{9b}', '\u{1b}']), "{text:?}");
    assert!(text.contains(r"a\u{202e}\u{9b}31m"), "{text:?}");
}

#[test]
fn explain_names_the_check_that_refuses() {
    let setup = Setup::before(Node::nowhere());
    for (request, reason, passed) in [
        ("{", "parse_error", "size"),
        ("[]", "batch", "size"),
        (
            &*rpc("1", "starknet_addInvokeTransaction", "[]"),
            "method_not_allowed",
            "envelope",
        ),
        (
            &*rpc("1", "starknet_getNonce", r#"["pending","0x1"]"#),
            "invalid_params",
            "method",
        ),
    ] {
        let output = setup.run_with("explain", &["-"], request);
        let text = printed(&output);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{request} is refused: {text}"
        );
        assert!(
            text.contains(&format!("refused  {reason}: ")),
            "{reason} in {text}"
        );
        assert!(
            text.contains(&format!("ok       {passed}: ")),
            "{passed} passed in {text}"
        );
    }
}

#[test]
fn explain_names_the_felt_that_is_none() {
    let setup = Setup::before(Node::nowhere());
    let request = |contract: &str, calldata: &str| {
        let call = format!(
            r#"{{"contract_address":{contract},"entry_point_selector":"0x2","calldata":{calldata}}}"#
        );
        rpc("1", "starknet_call", &format!(r#"[{call},"latest"]"#))
    };
    for (request, named) in [
        (request("5", "[]"), "contract_address must be"),
        (
            request(r#""0x1""#, r#"["0x1","0x"]"#),
            "calldata[1] must be",
        ),
        (
            request(r#""0x1""#, "{}"),
            "calldata must be an array of felts",
        ),
    ] {
        let text = printed(&setup.run_with("explain", &["-"], &request));
        assert!(text.contains(named), "{named} in {text}");
    }
}

#[test]
fn a_live_check_queries_the_node() {
    let node = Node::start(|call| match &*method(call) {
        "starknet_specVersion" => send(result(call, "\"0.10.2\"")),
        _ => good(call),
    });
    let output = Setup::before(node.address()).run_with("check", &["--live"], "");
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let methods: Vec<_> = node
        .calls()
        .iter()
        .map(|call| call.json()["method"].clone())
        .collect();
    assert_eq!(
        methods[..2],
        ["starknet_specVersion", "starknet_chainId"],
        "its version and chain"
    );
    let is_brand = |method: &Value| !method.as_str().unwrap_or_default().starts_with("starknet_");
    let (brands, tried): (Vec<_>, Vec<_>) = methods[2..].iter().partition(|name| is_brand(name));
    assert_eq!(brands.len(), 3, "which node it is: {methods:?}");
    assert_eq!(
        tried.len(),
        13,
        "each method that is used, once: {methods:?}"
    );

    let output = Setup::before(Node::nowhere()).run_with("check", &["--live"], "");
    let text = printed(&output);
    assert_eq!(
        output.status.code(),
        Some(1),
        "a node that is not there is a failure: {text}"
    );
    let causes = text.lines().filter(|line| line.contains("FAILED"));
    assert_eq!(
        causes
            .filter(|line| line.contains("connection refused"))
            .count(),
        2,
        "{text}"
    );
}

#[test]
fn without_a_file_the_default_one_is_read() {
    let folder = Folder::new();
    let run = |words: &[&str]| {
        let output = program()
            .args(words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let commands = [
        &["serve"][..],
        &["check"],
        &["journal", "list"],
        &["store", "prune"],
    ];
    for words in commands {
        let (code, said) = run(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        let places = [
            "/etc/portcullis/portcullis.toml nor ./portcullis.toml",
            "--config",
        ];
        assert!(
            places.iter().all(|place| said.contains(place)),
            "{words:?}: {said}"
        );
    }
    std::fs::write(folder.path().join("portcullis.toml"), "[gatewya]\n").unwrap();
    for words in commands {
        let (_, said) = run(words);
        assert!(
            said.contains("portcullis.toml") && said.contains("gatewya"),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn the_file_is_named_before_or_after_the_subcommand() {
    let folder = Folder::new();
    let file = folder.file("other.toml");
    std::fs::write(&file, "[node]\nurl = \"http://127.0.0.1:1\"\n[admin]\n").unwrap();
    for [command, subcommand] in [
        ["journal", "list"],
        ["journal", "verify"],
        ["store", "prune"],
    ] {
        for words in [
            [command, "--config", &*file, subcommand],
            [command, subcommand, "--config", &*file],
        ] {
            let output = program()
                .args(words)
                .current_dir(folder.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
            assert!(
                said.contains("the configuration has no ["),
                "it was read: {said}"
            );
        }
    }
}
