//! Startup failures of the relay: invalid secrets, and a policy that is not V2.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use crate::support::check::each;
use crate::support::edge::Setup;
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain::honest;
use crate::support::relay::stage::{Stage, TOKEN, setup};

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Asserts that `serve` exits with 2 and `check` with 1, that both name the cause, and that neither
/// prints a secret.
fn assert_refused(setup: &Setup, named: &str, secrets: &[&str], why: &str) {
    for (subcommand, code) in [("serve", 2), ("check", 1)] {
        let output = setup.run(subcommand);
        let said = words(&output);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{why}: {subcommand} says {said}"
        );
        assert!(said.contains(named), "{why}: {named} is named: {said}");
        for secret in secrets {
            assert!(!said.contains(secret), "{why}: {secret} is printed: {said}");
        }
    }
}

#[test]
fn a_short_or_missing_token_stops_startup() {
    let folder = Folder::new();
    let setup = setup(Node::nowhere(), &folder, &[]);
    let short = "0123456789abcdef0123456789abcde";
    for token in [
        short,
        "two words-0123456789abcdef0123456789",
        "",
        "süß-0123456789abcdef0123456789ab",
    ] {
        folder.secret("relay.token", token);
        let secrets: &[&str] = if token.is_empty() { &[] } else { &[token] };
        assert_refused(&setup, "relay.token", secrets, token);
    }
    folder.secret("relay.token", TOKEN);
    let output = setup.run("check");
    assert_eq!(
        output.status.code(),
        Some(0),
        "32 characters and more: {}",
        words(&output)
    );
}

#[test]
fn bad_second_tokens_stop_startup() {
    let folder = Folder::new();
    let setup = setup(Node::nowhere(), &folder, &[]);
    let files = [
        ("a.token", TOKEN),
        ("b.token", TOKEN),
        ("c.token", "other-0123456789abcdef0123456789"),
    ];
    let files = files.map(|(name, token)| folder.secret(name, token));
    let with = |files: &[&String]| {
        let list: Vec<_> = files.iter().map(|file| format!("\"{file}\"")).collect();
        setup
            .clone()
            .set("relay.token_files", &format!("[{}]", list.join(",")))
    };
    let [a, b, c] = &files;
    let missing = folder.file("missing.token");
    assert_refused(&with(&[a, b]), "token", &[TOKEN], "the same token twice");
    assert_refused(
        &with(&[a, c, b]),
        "relay.token_files",
        &[TOKEN],
        "three tokens",
    );
    assert_refused(&with(&[]), "relay.token_files", &[], "none");
    assert_refused(
        &with(&[a, &missing]),
        "missing.token",
        &[TOKEN],
        "a file that is not there",
    );
    let output = with(&[a, c]).run("check");
    assert_eq!(
        output.status.code(),
        Some(0),
        "two different ones: {}",
        words(&output)
    );
}

#[test]
fn a_secret_that_others_can_read() {
    for name in ["relay.token", "owner.key", "verifier.key"] {
        for mode in [0o640, 0o604, 0o620, 0o666] {
            let folder = Folder::new();
            let setup = setup(Node::nowhere(), &folder, &[]);
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.file(name), permissions).unwrap();
            assert_refused(&setup, name, &[TOKEN], &format!("{name} of mode {mode:o}"));
        }
    }
}

#[test]
fn a_malformed_key_stops_the_start() {
    let order = "0x800000000000010ffffffffffffffffb781126dcae7b2321e66a241adc64d2f";
    for name in ["owner.key", "verifier.key"] {
        for text in [
            "",
            "0x0",
            "ace1ace1",
            "0xace1ace1ace1g",
            "0xace1 0xace2",
            order,
        ] {
            let folder = Folder::new();
            let setup = setup(Node::nowhere(), &folder, &[]);
            folder.secret(name, text);
            let secrets: &[&str] = if text.len() > 3 { &[text] } else { &[] };
            assert_refused(&setup, name, secrets, &format!("{name} holds {text:?}"));
        }
    }
}

#[test]
fn an_incomplete_v2_policy_stops_startup() {
    let folder = Folder::new();
    let setup = setup(Node::nowhere(), &folder, &[]);
    let policy = |key: &str| format!("relay.policy.{key}");
    each(
        [
            ("identity_verification_mode", "\"v1\""),
            ("identity_verification_mode", "\"V2\""),
            ("identity_verification_mode", "\"\""),
            ("identity_verification_mode", "2"),
            ("verification_v2_required", "false"),
            ("verification_v2_required", "\"true\""),
            ("ecosystem_ready", "false"),
            ("ecosystem_ready", "1"),
        ],
        |(key, value)| {
            let setup = setup.clone().set(&policy(key), value);
            assert_refused(&setup, &policy(key), &[], &format!("{key} = {value}"));
        },
    );
    for key in [
        "identity_verification_mode",
        "verification_v2_required",
        "ecosystem_ready",
    ] {
        let setup = setup.clone().unset(&policy(key));
        assert_refused(&setup, key, &[], &format!("{key} is left out"));
    }
}

#[test]
fn missing_or_contradicting_pins_stop_startup() {
    let folder = Folder::new();
    let setup = setup(Node::nowhere(), &folder, &[]);
    let pin = |name: &str| format!("relay.pins.{name}");
    for name in [
        "chain_id",
        "account_class",
        "owner",
        "verifier",
        "registry",
        "token_class",
    ] {
        assert_refused(
            &setup.clone().unset(&pin(name)),
            &pin(name),
            &[],
            "it is left out",
        );
    }
    for (what, name, value) in [
        ("no felt", "registry", "\"registry\""),
        ("a number", "registry", "5"),
        (
            "owner and verifier are one account",
            "verifier",
            "\"0x100\"",
        ),
        (
            "a chain id that is too long",
            "chain_id",
            "\"more than 31 characters are no text\"",
        ),
        ("a faucet without a key", "faucet", "\"0x102\""),
    ] {
        let named = if name == "faucet" { "faucet" } else { name };
        assert_refused(&setup.clone().set(&pin(name), value), named, &[], what);
    }
}

#[test]
fn a_store_that_another_relay_writes_to() {
    let stage = Stage::scripted();
    let output = stage.setup.run("serve");
    let said = words(&output);
    assert_eq!(
        output.status.code(),
        Some(2),
        "a second relay on one journal: {said}"
    );
    assert!(said.contains("journal.db"), "which file? {said}");
    assert_eq!(stage.ready().status, 200, "the first one goes on");
}

#[test]
fn a_store_outlives_its_relay() {
    let folder = Folder::new();
    let node = Node::start(honest);
    for life in 1..=2 {
        let mut edge = setup(node.address(), &folder, &[]).start();
        edge.signal("TERM");
        assert_eq!(edge.wait().code(), Some(0), "life {life} ends well");
    }
}
