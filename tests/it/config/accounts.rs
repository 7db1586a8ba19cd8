//! The accounts of the relay, and their keys.

use super::{messages, whole, with_env};

#[test]
fn an_account_of_the_relay_has_one_role() {
    for (faucet, file, expected) in [
        ("0x102", "faucet.key", ""),
        ("0x100", "", ""),
        (
            "0x101",
            "faucet.key",
            "relay.pins.faucet: expected another account than relay.pins.verifier",
        ),
        (
            "0x0101",
            "",
            "relay.pins.faucet: expected another account than relay.pins.verifier",
        ),
        (
            "0x100",
            "faucet.key",
            "relay.pins.faucet, another account than relay.pins.owner",
        ),
        (
            "0x102",
            "verifier.key",
            "another file than relay.keys.verifier_file",
        ),
        (
            "0x102",
            "owner.key",
            "another file than relay.keys.owner_file",
        ),
    ] {
        let variables = [
            ("PORTCULLIS__RELAY__PINS__FAUCET", faucet),
            ("PORTCULLIS__RELAY__KEYS__FAUCET_FILE", file),
        ];
        let parsed = with_env(&whole("", ""), &variables);
        if expected.is_empty() {
            assert!(parsed.is_ok(), "{faucet} {file}: {parsed:?}");
        } else {
            let found = messages(parsed);
            assert_eq!(found.len(), 1, "{faucet} {file}: {found:?}");
            assert!(
                found[0].contains(expected),
                "{found:?} should have {expected:?}"
            );
        }
    }
}
