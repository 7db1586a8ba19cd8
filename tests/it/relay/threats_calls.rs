//! Forbidden senders, targets and amounts.
//!
//! Well-formed calls are signed as they are, so that the signature is not the reason for the
//! refusal. Calldata that is not a list of calls is edited in the text: it is refused earlier.

use portcullis_filters::felt::Felt;
use portcullis_filters::tx::{Bounds, Call};

use crate::support::relay::chain::{CLASS, felt};
use crate::support::relay::devnet;
use crate::support::relay::expect::{rpc_refused, submitted};
use crate::support::relay::stage::Stage;
use crate::support::relay::user::{BOUNDS, ID, User, call, replaced};

const DEPLOYER: &str = "0x41a78e741e5af2fec34b695679bc6891742439f7afb8484ecd7766661ad02bf";

fn small(number: u64) -> Felt {
    Felt::from(number)
}

fn scene() -> (Stage, User) {
    (Stage::on_devnet(), devnet::deployed())
}

/// The call that [`Stage::fine`] makes.
fn approve(stage: &Stage) -> Call {
    call(
        stage.pin("token"),
        "approve",
        &[stage.pin("staking"), small(5), small(0)],
    )
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_sender_of_another_class_is_refused() {
    let (stage, user) = scene();
    let calls = [approve(&stage)];
    let of = |sender: Felt| user.invoke_from(sender, &calls, 0, BOUNDS);
    let card = of(stage.pin("card"));
    let nobody = of(small(0x1234));
    for (what, signed, reason) in [
        (
            "a contract that would believe anything",
            &card,
            "class_not_approved",
        ),
        ("nobody", &nobody, "account_not_deployed"),
    ] {
        rpc_refused(&stage.post("/rpc", signed.body()), reason, ID, what);
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    stage.assert_passes(&stage.fine(&user, 1));
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn calls_to_self_or_deployers_are_refused() {
    let (stage, user) = scene();
    let (own, other) = (user.address, devnet::deployed().address);
    let calls = [
        ("its own upgrade", call(own, "upgrade", &[felt(CLASS)])),
        (
            "its own key",
            call(own, "set_public_key", &[small(1), small(0)]),
        ),
        (
            "itself with a name of the list",
            call(own, "approve", &[own, small(1), small(0)]),
        ),
        (
            "the deployer",
            call(felt(DEPLOYER), "deployContract", &[felt(CLASS), small(0)]),
        ),
        (
            "another account",
            call(other, "execute_from_outside_v2", &[small(0)]),
        ),
        ("no contract", call(small(0), "approve", &[small(0)])),
        (
            "the owner",
            call(stage.pin("owner"), "set_public_key", &[small(1), small(0)]),
        ),
    ];
    let signed = calls.map(|(what, call)| (what, user.invoke(&[approve(&stage), call], 1)));
    let mut tricks: Vec<_> = signed
        .iter()
        .map(|(what, signed)| (*what, signed.body().into_bytes(), "contract_not_allowed"))
        .collect();
    // targets are checked before the sender
    let token = user.invoke_from(stage.pin("token"), &[approve(&stage)], 1, BOUNDS);
    tricks.push((
        "a contract of ours that calls itself",
        token.body().into_bytes(),
        { "contract_not_allowed" },
    ));
    stage.assert_tricks(&stage.fine(&user, 1), &tricks);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn an_entrypoint_on_the_wrong_contract_is_refused() {
    let (stage, user) = scene();
    let contracts = ["token", "staking", "bridge", "card", "registry", "usership"];
    let entrypoints = [
        ("approve", "token"),
        ("register_validator", "staking"),
        ("increase_self_stake", "staking"),
        ("delegate", "staking"),
        ("request_undelegate", "staking"),
        ("withdraw", "staking"),
        ("exit_validator", "staking"),
        ("bridge_out_token", "bridge"),
        ("bridge_out_card", "bridge"),
        ("transfer", "card"),
        ("burn", "card"),
    ];
    for (entrypoint, home) in entrypoints {
        for contract in contracts.into_iter().filter(|contract| *contract != home) {
            let args = [stage.pin("staking"), small(1), small(0)];
            let signed = user.invoke(&[call(stage.pin(contract), entrypoint, &args)], 1);
            let answer = stage.post("/rpc", signed.body());
            let why = format!("{entrypoint} of the {contract} contract");
            rpc_refused(&answer, "entrypoint_not_allowed", ID, &why);
        }
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    stage.assert_passes(&stage.fine(&user, 1));
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn an_unlisted_entrypoint_is_refused() {
    let (stage, user) = scene();
    let calls = [
        ("token", "transfer"),
        ("token", "transfer_from"),
        ("token", "transferFrom"),
        ("token", "increase_allowance"),
        ("card", "mint"),
        ("card", "set_minter"),
        ("card", "set_approval_for_all"),
        ("staking", "slash"),
        ("registry", "require_v2"),
        ("registry", "register_identity"),
        ("usership", "submit_usership"),
        ("bridge", "__execute__"),
        ("bridge", ""),
    ];
    for (contract, entrypoint) in calls {
        let args = [user.address, small(1), small(0)];
        let call = call(stage.pin(contract), entrypoint, &args);
        let signed = user.invoke(&[approve(&stage), call], 1);
        let answer = stage.post("/rpc", signed.body());
        let why = format!("{entrypoint} of the {contract} contract, after a call that is fine");
        rpc_refused(&answer, "entrypoint_not_allowed", ID, &why);
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    stage.assert_passes(&stage.fine(&user, 1));
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn approve_allows_pool_and_bridge_only() {
    let (stage, user) = scene();
    let pins = ["token", "card", "registry", "usership", "owner", "verifier"];
    let mut spenders: Vec<_> = pins.map(|name| (name, stage.pin(name))).to_vec();
    spenders.push(("the user", user.address));
    spenders.push(("nobody", small(0)));
    for (what, spender) in spenders {
        let args = [spender, small(5), small(0)];
        let signed = user.invoke(&[call(stage.pin("token"), "approve", &args)], 1);
        let answer = stage.post("/rpc", signed.body());
        rpc_refused(&answer, "argument_not_allowed", ID, what);
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    let args = [stage.pin("bridge"), small(5), small(0)];
    stage.assert_passes(&user.invoke(&[call(stage.pin("token"), "approve", &args)], 1));
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn calldata_must_decode_exactly_to_calls() {
    let (stage, user) = scene();
    let fine = stage.fine(&user, 1);
    let calldata = |felts: &str| {
        let start = fine.text.find(r#""calldata":["#).unwrap();
        let end = start + fine.text[start..].find(']').unwrap() + 1;
        let text = replaced(
            &fine.text,
            &fine.text[start..end],
            &format!(r#""calldata":[{felts}]"#),
        );
        fine.request_with(&text).into_bytes()
    };
    let (huge, wide) = (r#""0x100000000""#, r#""0x10000000000000000""#);
    let head = r#""0x1","0x2""#;
    stage.assert_tricks(
        &fine,
        &[
            ("nothing", calldata(""), "calldata_malformed"),
            ("no calls", calldata(r#""0x0""#), "calldata_malformed"),
            (
                "no calls and a felt",
                calldata(r#""0x0","0x0""#),
                "calldata_malformed",
            ),
            (
                "a trailing felt",
                fine.bent(r#""0x0"],"acc"#, r#""0x0","0x0"],"acc"#),
                { "calldata_malformed" },
            ),
            (
                "an argument cut off",
                fine.bent(r#","0x0"],"acc"#, r#"],"acc"#),
                { "calldata_malformed" },
            ),
            (
                "two announced, one there",
                fine.bent(r#"["0x1""#, r#"["0x2""#),
                { "calldata_malformed" },
            ),
            (
                "a length of 2^32",
                calldata(&format!("{head},\"0x3\",{huge}")),
                "calldata_malformed",
            ),
            (
                "a length of 2^64",
                calldata(&format!("{head},\"0x3\",{wide}")),
                "calldata_malformed",
            ),
            (
                "2^32 calls",
                calldata(&format!("{huge},{head},\"0x0\"")),
                "too_many_calls",
            ),
            (
                "2^64 calls",
                calldata(&format!("{wide},{head},\"0x0\"")),
                "too_many_calls",
            ),
            (
                "the form of Cairo 0",
                calldata(&format!(r#"{head},"0x3","0x0","0x1","0x1","0x5""#)),
                "calldata_malformed",
            ),
        ],
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn calls_felts_and_gas_are_bounded() {
    let (stage, user) = scene();
    let eight = vec![approve(&stage); 8];
    let nine = user.invoke(&vec![approve(&stage); 9], 1);
    let long = call(stage.pin("token"), "approve", &[small(0); 252]);
    let longer = call(stage.pin("token"), "approve", &[small(0); 253]);
    let price = 10_000_000_000;
    let l2 = |amount, price| Bounds {
        l2_gas: (amount, price),
        ..BOUNDS
    };
    let most = Bounds {
        l1_gas: (0, price),
        l1_data_gas: (500_000_000, price),
        l2_gas: (500_000_000, price),
    };
    let more = Bounds {
        l1_gas: (1, 1),
        ..most
    };
    let bound = |bounds| user.invoke_within(&eight, 1, bounds).body().into_bytes();
    stage.assert_tricks(
        // the configured limits, accepted in full: 8 calls, 500 million L2 gas and 10 STRK
        &user.invoke_within(&eight, 1, most),
        &[
            ("9 calls", nine.body().into_bytes(), "too_many_calls"),
            (
                "257 felts",
                user.invoke(&[longer], 1).body().into_bytes(),
                "calldata_too_large",
            ),
            (
                "256 felts",
                user.invoke(&[long], 1).body().into_bytes(),
                "argument_not_allowed",
            ),
            (
                "a unit of gas",
                bound(l2(500_000_001, 1)),
                "fee_bound_exceeded",
            ),
            ("a fri", bound(more), "fee_bound_exceeded"),
            (
                "all the gas there is",
                bound(l2(u64::MAX, 1)),
                "fee_bound_exceeded",
            ),
            (
                "a price beyond 128 bits",
                bound(l2(2, u128::MAX)),
                "fee_bound_exceeded",
            ),
        ],
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn every_call_of_a_transaction_is_judged() {
    let (stage, user) = scene();
    let bad = call(stage.pin("card"), "burn", &[small(1)]);
    for at in 0..4 {
        let mut calls = vec![approve(&stage); 3];
        calls.insert(at, bad.clone());
        let answer = stage.post("/rpc", user.invoke(&calls, 1).body());
        rpc_refused(
            &answer,
            "argument_not_allowed",
            ID,
            &format!("the bad call is number {at}"),
        );
    }
    let four = user.invoke(&vec![approve(&stage); 4], 1);
    submitted(&stage.post("/rpc", four.body()), four.hash, "without it");
}
