//! Signatures, repeated transactions, and account deployments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use portcullis_filters::felt::Felt;
use portcullis_filters::tx::{Invoke, Transaction, is_public_key};

use crate::support::client::PATIENCE;
use crate::support::relay::chain::{self, USER_KEY, felt, honest, is_add, method, took};
use crate::support::relay::devnet;
use crate::support::relay::expect::{rpc_refused, submitted};
use crate::support::relay::stage::{Stage, Trick};
use crate::support::relay::user::{BOUNDS, Signed, User, call, chain_id, replaced};
use crate::support::request::padded;

/// The order of the curve, most significant limb first.
const ORDER: [u64; 4] = [
    0x0800_0000_0000_0010,
    0xffff_ffff_ffff_ffff,
    0xb781_126d_cae7_b232,
    0x1e66_a241_adc6_4d2f,
];

/// `r` and `s` as they appear in the text.
fn signature(signed: &Signed) -> [String; 2] {
    let json: serde_json::Value = serde_json::from_str(&signed.text).unwrap();
    [0, 1].map(|at| json["signature"][at].as_str().unwrap().to_owned())
}

/// The order minus this number.
fn negated(number: &str) -> Felt {
    let mut limbs = [0; 4];
    let mut borrow = false;
    for at in (0..4).rev() {
        let (less, first) = ORDER[at].overflowing_sub(felt(number).limbs()[at]);
        let (less, second) = less.overflowing_sub(u64::from(borrow));
        (limbs[at], borrow) = (less, first || second);
    }
    Felt::from_limbs(limbs).expect("below the order, which is below the prime")
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_signature_variant_is_the_same_transaction() {
    let stage = Stage::on_devnet();
    let fine = stage.fine(&devnet::deployed(), 1);
    let [_, s] = signature(&fine);
    let other = fine.bent(&s, &negated(&s).to_string());
    assert_ne!(other, fine.body().into_bytes(), "it is another text");
    submitted(
        &stage.post("/rpc", fine.body()),
        fine.hash,
        "as it was signed",
    );
    submitted(&stage.post("/rpc", &other), fine.hash, "with n - s for s");
    assert_eq!(stage.adds().len(), 1, "it is answered from the journal");

    let stage = Stage::on_devnet();
    let fine = stage.fine(&devnet::deployed(), 1);
    let [_, s] = signature(&fine);
    let other = fine.bent(&s, &negated(&s).to_string());
    submitted(
        &stage.post("/rpc", &other),
        fine.hash,
        "the other one first",
    );
    submitted(
        &stage.post("/rpc", fine.body()),
        fine.hash,
        "then as it was signed",
    );
    assert_eq!(
        stage.adds().len(),
        1,
        "whichever comes first is the one that is sent"
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_mined_transaction_is_answered_without_resending() {
    let stage = Stage::on_devnet();
    let user = devnet::deployed();
    let fine = stage.fine(&user, 1);
    for why in ["the first time", "again", "and again"] {
        submitted(&stage.post("/rpc", fine.body()), fine.hash, why);
    }
    assert_eq!(
        stage.adds().len(),
        1,
        "a repeat is answered from the journal"
    );
    let other = Stage::on_devnet();
    submitted(
        &other.post("/rpc", fine.body()),
        fine.hash,
        "a relay that does not know it",
    );
    let params = format!(
        r#"{{"block_id":"latest","contract_address":"{}"}}"#,
        user.address
    );
    assert_eq!(
        devnet::ask("starknet_getNonce", &params),
        "0x2",
        "it was executed once"
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_foreign_signature_is_refused() {
    let stage = Stage::on_devnet();
    let (user, other) = (devnet::deployed(), devnet::deployed());
    let fine = stage.fine(&user, 1);
    let [r, s] = signature(&fine);
    let pair = format!(r#"["{r}","{s}"]"#);
    let to = |signature: &str| fine.bent(&pair, signature);
    let args = [stage.pin("staking"), Felt::from(5_u64), Felt::ZERO];
    let calls = vec![call(stage.pin("token"), "approve", &args)];
    let stranger = other.invoke_from(user.address, &calls, 1, BOUNDS);
    let nonce = Felt::from(1_u64);
    let unsigned = Transaction::from(Invoke {
        sender: user.address,
        calls,
        nonce,
        bounds: BOUNDS,
    });
    let sepolia = Felt::from_short_string("SN_SEPOLIA").unwrap();
    let elsewhere = unsigned.clone().sign(sepolia, &user.key).to_json();
    let query = unsigned.query().sign(chain_id(), &user.key).to_json();
    let query = replaced(&query, "0x100000000000000000000000000000003", "0x3");
    let order = "0x800000000000010ffffffffffffffffb781126dcae7b2321e66a241adc64d2f";
    let tricks: [Trick<'_>; 13] = [
        ("none", to("[]"), "signature_invalid"),
        ("half", to(&format!(r#"["{r}"]"#)), "signature_invalid"),
        (
            "one felt too many",
            to(&format!(r#"["{r}","{s}","0x0"]"#)),
            "signature_invalid",
        ),
        ("zeros", to(r#"["0x0","0x0"]"#), "signature_invalid"),
        (
            "r alone",
            to(&format!(r#"["{r}","0x0"]"#)),
            "signature_invalid",
        ),
        (
            "the halves swapped",
            to(&format!(r#"["{s}","{r}"]"#)),
            "signature_invalid",
        ),
        (
            "the order for s",
            to(&format!(r#"["{r}","{order}"]"#)),
            "signature_invalid",
        ),
        (
            "of another key",
            stranger.body().into_bytes(),
            "signature_invalid",
        ),
        (
            "for another chain",
            fine.request_with(&elsewhere).into_bytes(),
            "signature_invalid",
        ),
        (
            "of an estimate",
            fine.request_with(&query).into_bytes(),
            "signature_invalid",
        ),
        (
            "of another nonce",
            fine.bent(r#""nonce":"0x1""#, r#""nonce":"0x2""#),
            { "signature_invalid" },
        ),
        (
            "of another amount",
            fine.bent(r#""0x5""#, r#""0x6""#),
            "signature_invalid",
        ),
        (
            "of other bounds",
            fine.bent(r#""max_amount":"0x2710""#, r#""max_amount":"0x2711""#),
            { "signature_invalid" },
        ),
    ];
    stage.assert_tricks(&fine, &tricks);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_foreign_account_deployment_is_refused() {
    let stage = Stage::on_devnet();
    let user = devnet::funded();
    let fine = user.deploy();
    let key = user.key.public_key().to_string();
    let arguments = format!(r#""constructor_calldata":["{key}"]"#);
    let salt = format!(r#""contract_address_salt":"{key}""#);
    let keyed = |key: &str| {
        let text = replaced(
            &fine.text,
            &salt,
            &format!(r#""contract_address_salt":"{key}""#),
        );
        let text = replaced(
            &text,
            &arguments,
            &format!(r#""constructor_calldata":["{key}"]"#),
        );
        fine.request_with(&text).into_bytes()
    };
    let off_curve = (1_u64..)
        .map(Felt::from)
        .find(|key| !is_public_key(*key))
        .unwrap();
    let [r, s] = signature(&fine);
    let token_class = user.deploy_of(stage.pin("token_class"));
    let tricks: [Trick<'_>; 12] = [
        (
            "of another class",
            token_class.body().into_bytes(),
            "class_not_approved",
        ),
        ("with the key zero", keyed("0x0"), "public_key_invalid"),
        (
            "with a key off the curve",
            keyed(&off_curve.to_string()),
            "public_key_invalid",
        ),
        ("with another's key", keyed("0x1"), "signature_invalid"),
        (
            "with another salt",
            fine.bent(&salt, r#""contract_address_salt":"0x1""#),
            { "address_mismatch" },
        ),
        (
            "without arguments",
            fine.bent(&arguments, r#""constructor_calldata":[]"#),
            { "address_mismatch" },
        ),
        (
            "with two",
            fine.bent(&arguments, &arguments.replace(']', ",\"0x1\"]")),
            { "address_mismatch" },
        ),
        (
            "with a nonce",
            fine.bent(r#""nonce":"0x0""#, r#""nonce":"0x1""#),
            "argument_not_allowed",
        ),
        (
            "with a tip",
            fine.bent(r#""tip":"0x0""#, r#""tip":"0x1""#),
            "tip_not_zero",
        ),
        (
            "with a sender",
            fine.bent(r#""tip":"0x0""#, r#""tip":"0x0","sender_address":"0x1""#),
            { "invalid_request" },
        ),
        ("signed by r, r", fine.bent(&s, &r), "signature_invalid"),
        (
            "as an invoke",
            fine.bent("DEPLOY_ACCOUNT", "INVOKE"),
            "invalid_request",
        ),
    ];
    stage.assert_tricks(&fine, &tricks);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_deployment_answers_with_its_address() {
    let stage = Stage::on_devnet();
    let user = devnet::funded();
    let fine = user.deploy();
    for why in ["the first time", "again"] {
        let answer = stage.post("/rpc", fine.body());
        submitted(&answer, fine.hash, why);
        let stated = &answer.json()["result"]["contract_address"];
        assert_eq!(*stated, user.address.to_string(), "{why}: where it is");
    }
    assert_eq!(
        stage.adds().len(),
        1,
        "a repeat is answered from the journal"
    );
}

#[test]
fn after_a_restart_a_repeat_is_new() {
    let life = Arc::new(AtomicU64::new(1));
    let user = User::with_key(USER_KEY);
    let hash = Arc::new(std::sync::Mutex::new(Felt::ZERO));
    let (now, known) = (Arc::clone(&life), Arc::clone(&hash));
    let script = move |call: &crate::support::node::Call| match method(call).as_str() {
        _ if is_add(call) => took(call, *known.lock().unwrap()),
        "starknet_getBlockWithTxHashes" => chain::block(call, now.load(Ordering::Relaxed)),
        _ => honest(call),
    };
    let stage = Stage::with_script(script, &[("relay.pins_max_age", "\"100ms\"")]);
    let fine = stage.fine(&user, 0);
    *hash.lock().unwrap() = fine.hash;
    stage.post("/rpc", fine.body());
    stage.post("/rpc", fine.body());
    assert_eq!(
        stage.adds().len(),
        1,
        "one life of the chain, one transaction"
    );
    life.store(2, Ordering::Relaxed);
    let deadline = Instant::now() + PATIENCE;
    while stage.adds().len() < 2 {
        assert!(Instant::now() < deadline, "the new chain never gets it");
        let answer = stage.post("/rpc", fine.body());
        assert!([200, 503].contains(&answer.status), "{}", answer.text());
    }
    submitted(
        &stage.post("/rpc", fine.body()),
        fine.hash,
        "the same hash on the new chain",
    );
    assert_eq!(stage.adds().len(), 2, "and there, too, only once");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn signed_bodies_have_at_most_65536_bytes() {
    let stage = Stage::on_devnet();
    let fine = stage.fine(&devnet::deployed(), 1);
    let answer = stage.post("/rpc", padded(&fine.body(), 65_537));
    rpc_refused(&answer, "body_too_large", "null", "one byte too many");
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    let answer = stage.post("/rpc", padded(&fine.body(), 65_536));
    submitted(&answer, fine.hash, "not one byte too many");
    assert_eq!(stage.adds().len(), 1, "it reaches the node");
}
