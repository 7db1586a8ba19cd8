//! Malformed transaction texts: duplicate, unknown and escaped members, non-canonical numbers.
//!
//! The node is a real one, which accepts most of these. Each case is derived from a valid signed
//! transaction.

use crate::support::relay::devnet;
use crate::support::relay::expect::{rpc_refused, submitted};
use crate::support::relay::stage::Stage;
use crate::support::relay::user::{ID, Signed, replaced};

/// The prime: the smallest number that is not a felt. The node reads it as zero.
pub(super) const PRIME: &str = "0x800000000000011000000000000000000000000000000000000000000000001";

/// A relay, and a transaction that it accepts.
pub(super) fn scene() -> (Stage, Signed) {
    let stage = Stage::on_devnet();
    let fine = stage.fine(&devnet::deployed(), 1);
    (stage, fine)
}

/// Asserts that the relay refuses each of these replacements as `invalid_request`.
fn assert_invalid(rows: &[(&str, &str, &str)]) {
    let (stage, fine) = scene();
    let bodies = rows
        .iter()
        .map(|(what, from, to)| (*what, fine.bent(from, to), "invalid_request"));
    stage.assert_tricks(&fine, &bodies.collect::<Vec<_>>());
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn duplicate_transaction_members_are_refused() {
    let (stage, fine) = scene();
    let twice = format!(
        r#"{{"invoke_transaction":{0},"invoke_transaction":{0}}}"#,
        fine.text
    );
    let twice =
        crate::support::request::rpc(ID, "starknet_addInvokeTransaction", &twice).into_bytes();
    let l2_gas = r#""l2_gas":{"max_amount":"0x1","max_price_per_unit":"0x1"},"l2_gas""#;
    let rows = [
        ("the tip", r#""tip":"0x0""#, r#""tip":"0x0","tip":"0x5""#),
        (
            "the tip, the other way round",
            r#""tip":"0x0""#,
            r#""tip":"0x5","tip":"0x0""#,
        ),
        (
            "the tip behind an escape",
            r#""tip":"0x0""#,
            r#""tip":"0x0","t\u0069p":"0x0""#,
        ),
        (
            "the calldata",
            r#""calldata":"#,
            r#""calldata":["0x0"],"calldata":"#,
        ),
        (
            "the version",
            r#""version":"0x3""#,
            r#""version":"0x3","version":"0x3""#,
        ),
        ("the nonce", r#""nonce":"#, r#""nonce":"0x0","nonce":"#),
        (
            "the bounds",
            r#""resource_bounds""#,
            r#""resource_bounds":{},"resource_bounds""#,
        ),
        ("a resource", r#""l2_gas""#, l2_gas),
        (
            "an amount",
            r#""max_amount""#,
            r#""max_amount":"0x1","max_amount""#,
        ),
    ];
    let mut tricks = vec![("the transaction", twice, "invalid_request")];
    tricks.extend(rows.map(|(what, from, to)| (what, fine.bent(from, to), "invalid_request")));
    stage.assert_tricks(&fine, &tricks);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn duplicate_request_members_are_refused() {
    let (stage, fine) = scene();
    for (what, from, to, id) in [
        (
            "the method",
            r#""method":"#,
            r#""method":"starknet_call","method":"#,
            ID,
        ),
        (
            "the method behind an escape",
            r#""method":"#,
            r#""m\u0065thod":"x","method":"#,
            ID,
        ),
        ("the params", r#""params":"#, r#""params":[],"params":"#, ID),
        (
            "the version",
            r#""jsonrpc":"#,
            r#""jsonrpc":"2.0","jsonrpc":"#,
            ID,
        ),
        ("the id", r#""id":"#, r#""id":8,"id":"#, "null"),
    ] {
        let answer = stage.post("/rpc", fine.bent(from, to));
        rpc_refused(&answer, "invalid_request", id, what);
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    stage.assert_passes(&fine);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn names_are_compared_after_unescaping() {
    let (stage, fine) = scene();
    let tip = r#""tip":"0x0""#;
    let method = "starknet_addInvokeTransaction";
    let tricks = [
        (
            "a tip",
            fine.bent(tip, r#""t\u0069p":"0x5""#),
            "tip_not_zero",
        ),
        (
            "a proof",
            fine.bent(tip, r#""tip":"0x0","pro\u006ff":"""#),
            "proof_data",
        ),
        (
            "a mode",
            fine.bent(r#""L1""#, r#""L\u0032""#),
            "data_availability_mode",
        ),
        (
            "a method",
            fine.bent(method, r"devnet_m\u0069nt"),
            "method_not_allowed",
        ),
    ];
    for (what, body, reason) in tricks {
        rpc_refused(&stage.post("/rpc", body), reason, ID, what);
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    let disguised = replaced(&fine.body(), tip, r#""t\u0069p":"\u0030x0""#);
    let disguised = replaced(&disguised, method, r"starknet_\u0061ddInvokeTransaction");
    let answer = stage.post("/rpc", disguised);
    submitted(
        &answer,
        fine.hash,
        "the same transaction, some of it escaped",
    );
    let sent = String::from_utf8(stage.adds().remove(0).body).unwrap();
    assert!(
        sent.contains(&fine.text),
        "the node gets the plain form: {sent}"
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn unknown_members_are_refused() {
    assert_invalid(&[
        ("of the request", r#""id":7"#, r#""id":7,"x":1"#),
        (
            "of the params",
            r#"{"invoke_transaction""#,
            r#"{"x":1,"invoke_transaction""#,
        ),
        (
            "of the transaction",
            r#""tip":"0x0""#,
            r#""tip":"0x0","x":1"#,
        ),
        (
            "of another kind",
            r#""tip":"0x0""#,
            r#""tip":"0x0","class_hash":"0x1""#,
        ),
        (
            "of an older version",
            r#""tip":"0x0""#,
            r#""tip":"0x0","max_fee":"0x1""#,
        ),
        (
            "with an empty name",
            r#""tip":"0x0""#,
            r#""tip":"0x0","":"0x0""#,
        ),
        ("in other case", r#""tip":"0x0""#, r#""Tip":"0x0""#),
    ]);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn unknown_resource_bounds_are_refused() {
    assert_invalid(&[
        ("a resource", r#""l1_gas""#, r#""l3_gas":{},"l1_gas""#),
        ("a resource in capitals", r#""l1_gas""#, r#""L1_GAS""#),
        (
            "a bound",
            r#""max_amount""#,
            r#""min_amount":"0x0","max_amount""#,
        ),
        ("no l1_data_gas", r#""l1_data_gas""#, r#""l2_gas""#),
    ]);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn the_prime_is_not_a_felt() {
    let quoted = format!("\"{PRIME}\"");
    let of = |name: &str| format!(r#""{name}":{quoted}"#);
    assert_invalid(&[
        ("as tip", r#""tip":"0x0""#, &of("tip")),
        ("as nonce", r#""nonce":"0x1""#, &of("nonce")),
        (
            "in the calldata",
            r#""calldata":["0x1""#,
            &format!(r#""calldata":[{quoted}"#),
        ),
        (
            "in the signature",
            r#""signature":["#,
            &format!(r#""signature":[{quoted},"#),
        ),
        (
            "in the paymaster data",
            r#""paymaster_data":["#,
            &format!(r#""paymaster_data":[{quoted}"#),
        ),
        ("as amount", r#""max_amount":"0x0""#, &of("max_amount")),
    ]);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn malformed_felts_are_refused() {
    let nonce = r#""nonce":"0x1""#;
    let too_long = format!(r#""nonce":"0x{:0>65}""#, "1");
    let beyond = format!(r#""nonce":"0x{}""#, "f".repeat(64));
    assert_invalid(&[
        ("above the prime", nonce, &beyond),
        ("of 65 digits", nonce, &too_long),
        ("decimal", nonce, r#""nonce":"1""#),
        ("a number", nonce, r#""nonce":1"#),
        ("without prefix", nonce, r#""nonce":"a1""#),
        ("with 0X", nonce, r#""nonce":"0X1""#),
        ("without digits", nonce, r#""nonce":"0x""#),
        ("empty", nonce, r#""nonce":"""#),
        ("with a space", nonce, r#""nonce":"0x1 ""#),
        ("with a sign", nonce, r#""nonce":"-0x1""#),
        ("with an underscore", nonce, r#""nonce":"0x1_0""#),
        ("null", nonce, r#""nonce":null"#),
        ("left out", r#""nonce":"0x1","#, ""),
        (
            "a number in the calldata",
            r#""calldata":["0x1""#,
            r#""calldata":[1"#,
        ),
        (
            "a text for the calldata",
            r#""calldata":["#,
            r#""calldata":"0x1","x":["#,
        ),
        (
            "a sender that is a number",
            r#""sender_address":""#,
            r#""sender_address":1,"x":""#,
        ),
        (
            "a nonce of more than 64 bits",
            nonce,
            r#""nonce":"0x10000000000000000""#,
        ),
    ]);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_felt_with_two_prefixes_is_refused() {
    assert_invalid(&[
        (
            "in the calldata",
            r#""calldata":["0x1""#,
            r#""calldata":["0x0x1""#,
        ),
        (
            "in the signature",
            r#""signature":["0x"#,
            r#""signature":["0x0x"#,
        ),
        ("as nonce", r#""nonce":"0x1""#, r#""nonce":"0x0x1""#),
        (
            "as sender",
            r#""sender_address":"0x"#,
            r#""sender_address":"0x0x"#,
        ),
        ("as tip", r#""tip":"0x0""#, r#""tip":"0x0x0""#),
    ]);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn felt_spellings_are_normalised() {
    let (stage, fine) = scene();
    let digits = fine.text.split(r#""sender_address":"0x"#).nth(1).unwrap();
    let digits = digits.split('"').next().unwrap();
    let body = replaced(
        &fine.body(),
        digits,
        &format!("{digits:0>64}").to_uppercase(),
    );
    let body = replaced(&body, r#""nonce":"0x1""#, r#""nonce":"0x0001""#);
    let body = replaced(&body, r#""tip":"0x0""#, r#""tip":"0x00""#);
    assert_ne!(body, fine.body(), "it is spelled differently");
    let answer = stage.post("/rpc", body);
    submitted(
        &answer,
        fine.hash,
        "the same transaction in another spelling",
    );
    let sent = String::from_utf8(stage.adds().remove(0).body).unwrap();
    assert!(
        sent.contains(&fine.text),
        "the node gets the canonical spelling: {sent}"
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn gas_amounts_are_strict_numbers() {
    let (amount, price) = (
        r#""max_amount":"0x0""#,
        r#""max_price_per_unit":"0x2540be400""#,
    );
    let wide = format!(r#""max_price_per_unit":"0x1{}""#, "0".repeat(32));
    assert_invalid(&[
        ("a number", amount, r#""max_amount":0"#),
        ("without prefix", amount, r#""max_amount":"ff""#),
        ("with two prefixes", amount, r#""max_amount":"0x0xff""#),
        ("without digits", amount, r#""max_amount":"0x""#),
        ("empty", amount, r#""max_amount":"""#),
        (
            "of more than 64 bits",
            amount,
            r#""max_amount":"0x10000000000000000""#,
        ),
        ("a price of more than 128 bits", price, &wide),
        (
            "a price that is a number",
            price,
            r#""max_price_per_unit":1"#,
        ),
    ]);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_tip_must_be_strictly_zero() {
    let tip = r#""tip":"0x0""#;
    assert_invalid(&[
        ("no digits", tip, r#""tip":"0x""#),
        ("empty", tip, r#""tip":"""#),
        ("a number", tip, r#""tip":0"#),
        ("null", tip, r#""tip":null"#),
        (
            "of more than 8 bytes",
            tip,
            r#""tip":"0x10000000000000000""#,
        ),
        ("left out", r#""tip":"0x0","#, ""),
    ]);
}
