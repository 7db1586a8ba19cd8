//! The calls that users may sign: pairs of contract and entrypoint, each with its arguments.

use crate::support::{
    NOW, bounds, call, contracts, felts, hex, invoke, judge, policy, reason, request, sender,
};
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{Endpoint, Finding, Inspected};
use portcullis_filters::tx::{Call, Contract, Entrypoint, Invoke, Transaction, selector};
use portcullis_filters::verdict::Reason::{self, *};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::HashSet;

/// The owner's table, as it is written.
const TABLE: [(&str, &[&str]); 4] = [
    ("token", &["approve"]),
    (
        "staking",
        &[
            "register_validator",
            "increase_self_stake",
            "delegate",
            "request_undelegate",
            "withdraw",
            "exit_validator",
        ],
    ),
    ("bridge", &["bridge_out_token", "bridge_out_card"]),
    ("card", &["transfer", "burn"]),
];

fn contract(name: &str) -> Felt {
    let contract = Contract::ALL
        .into_iter()
        .find(|contract| contract.name() == name);
    contracts().address(contract.expect(name))
}

fn pairs() -> HashSet<(Felt, Felt)> {
    let row = |(name, entrypoints): (&str, &'static [&'static str])| {
        let contract = contract(name);
        entrypoints
            .iter()
            .map(move |entrypoint| (contract, selector(entrypoint)))
    };
    TABLE.into_iter().flat_map(row).collect()
}

#[test]
fn selectors_are_those_of_the_node() {
    for (name, expected) in [
        (
            "approve",
            "0x219209e083275171774dab1df80982e9df2096516f06319c5c6d71ae0a8480c",
        ),
        (
            "register_validator",
            "0x1a467d8de9cec59bc76f0741dd09ed7a95a93df1eec1b5d10b04800ca60f92c",
        ),
        (
            "transfer",
            "0x83afd3f4caedc6eebf44246fe54e38c95e3179a5ec9ea81740eca5b482d12e",
        ),
        (
            "burn",
            "0x3e8cfd4725c1e28fa4a6e3e468b4fcf75367166b850ac5f04e33ec843e82c1",
        ),
    ] {
        assert_eq!(selector(name), hex(expected), "{name}");
    }
}

#[test]
fn every_pair_is_on_the_list_or_refused() {
    let pairs = pairs();
    assert_eq!(pairs.len(), Entrypoint::ALL.len());
    let names = TABLE
        .iter()
        .flat_map(|(_, entrypoints)| entrypoints.iter().copied());
    let privileged = [
        "mint",
        "set_minter",
        "slash",
        "wire",
        "require_v2",
        "escrow",
        "upgrade",
    ];
    for name in names
        .chain(privileged)
        .chain(["__execute__", "register_identity"])
    {
        for contract in Contract::ALL {
            let to = contracts().address(contract);
            // arguments that no entrypoint takes: a listed call gets as far as its arguments
            let verdict = reason(&request(invoke(vec![call(to, name, &felts(&[9; 9]))])));
            let listed = pairs.contains(&(to, selector(name)));
            let expected = if listed {
                ArgumentNotAllowed
            } else {
                EntrypointNotAllowed
            };
            assert_eq!(verdict, Err(expected), "{name} of {contract:?}");
        }
    }
    let zero = Call {
        to: contracts().card,
        selector: Felt::ZERO,
        args: Vec::new(),
    };
    assert_eq!(
        reason(&request(invoke(vec![zero]))),
        Err(EntrypointNotAllowed)
    );
}

/// A contract, an entrypoint, arguments, and the expected verdict.
type Row<'a> = (&'a str, &'a str, &'a [Felt], Result<(), Reason>);

#[test]
fn each_entrypoint_takes_exactly_its_arguments() {
    let ([staking, bridge, card], user) = (["staking", "bridge", "card"].map(contract), sender());
    let n = |number: u64| Felt::from(number);
    let wide = Felt::from_limbs([0, 1, 0, 0]).expect("2^128");
    let l1_last = Felt::from_limbs([0, (1 << 32) - 1, u64::MAX, u64::MAX]).expect("2^160 - 1");
    let l1_over = Felt::from_limbs([0, 1 << 32, 0, 0]).expect("2^160");
    let no_address = hex("0x7ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00");
    let (yes, no) = (Ok(()), Err(ArgumentNotAllowed));
    let table: &[Row<'_>] = &[
        ("token", "approve", &[staking, n(1), n(0)], yes),
        ("token", "approve", &[bridge, n(0), n(1)], yes),
        ("token", "approve", &[card, n(1), n(0)], no),
        ("token", "approve", &[user, n(1), n(0)], no),
        ("token", "approve", &[n(0x77), n(1), n(0)], no),
        ("token", "approve", &[staking, wide, n(0)], no),
        ("token", "approve", &[staking, n(0), wide], no),
        ("token", "approve", &[staking, n(1)], no),
        ("token", "approve", &[staking, n(1), n(0), n(0)], no),
        ("token", "approve", &[], no),
        (
            "staking",
            "register_validator",
            &[n(10_000), n(1), n(0)],
            yes,
        ),
        (
            "staking",
            "register_validator",
            &[n(10_001), n(1), n(0)],
            no,
        ),
        ("staking", "register_validator", &[wide, n(1), n(0)], no),
        ("staking", "increase_self_stake", &[n(0), n(1)], yes),
        ("staking", "increase_self_stake", &[n(0), n(0)], no),
        ("staking", "increase_self_stake", &[n(1)], no),
        ("staking", "delegate", &[user, n(1), n(0)], yes),
        ("staking", "delegate", &[n(0), n(1), n(0)], no),
        ("staking", "delegate", &[no_address, n(1), n(0)], no),
        ("staking", "delegate", &[user, n(0), n(0)], no),
        ("staking", "request_undelegate", &[user, n(1), n(0)], yes),
        ("staking", "request_undelegate", &[user, n(0), n(0)], no),
        ("staking", "withdraw", &[], yes),
        ("staking", "withdraw", &[n(0)], no),
        ("staking", "exit_validator", &[], yes),
        ("staking", "exit_validator", &[n(0)], no),
        ("bridge", "bridge_out_token", &[l1_last, n(1), n(0)], yes),
        ("bridge", "bridge_out_token", &[l1_over, n(1), n(0)], no),
        ("bridge", "bridge_out_token", &[n(0), n(1), n(0)], no),
        ("bridge", "bridge_out_token", &[n(1), n(0), n(0)], no),
        ("bridge", "bridge_out_card", &[n(1), n(0), n(0)], yes),
        ("bridge", "bridge_out_card", &[n(0), n(1), n(0)], no),
        ("bridge", "bridge_out_card", &[l1_over, n(1), n(0)], no),
        ("card", "transfer", &[user, n(7), n(0)], yes),
        ("card", "transfer", &[n(0), n(7), n(0)], no),
        ("card", "transfer", &[no_address, n(7), n(0)], no),
        ("card", "transfer", &[user, wide, n(0)], no),
        ("card", "burn", &[n(7), n(0)], yes),
        ("card", "burn", &[n(7), wide], no),
        ("card", "burn", &[n(7), n(0), n(0)], no),
    ];
    for (name, entrypoint, args, expected) in table {
        let calls = vec![call(contract(name), entrypoint, args)];
        assert_eq!(
            reason(&request(invoke(calls))),
            *expected,
            "{entrypoint}{args:?}"
        );
    }
}

#[test]
fn a_refusal_says_which_arguments_are_expected() {
    for (name, entrypoint, expected) in [
        ("token", "approve", "the staking pool or the bridge adapter"),
        ("staking", "withdraw", "none"),
        ("card", "burn", "a card"),
    ] {
        let calls = vec![call(contract(name), entrypoint, &felts(&[9; 9]))];
        let refusal = judge(&request(invoke(calls)))
            .expect_err("nine are too many")
            .message;
        assert!(
            refusal.contains(entrypoint) && refusal.contains(expected),
            "{refusal}"
        );
    }
}

fn amount() -> impl Strategy<Value = [Felt; 2]> {
    (1_u128.., any::<u128>()).prop_map(|(low, high)| [Felt::from(low), Felt::from(high)])
}

/// A call that its rule lets through.
fn allowed_call() -> impl Strategy<Value = Call> {
    let any_call = (
        prop::sample::select(&Entrypoint::ALL),
        amount(),
        1_u64..10_001,
    );
    any_call.prop_map(|(entrypoint, [low, high], number)| {
        let (first, amount) = (Felt::from(number), [low, high].to_vec());
        let mut args = match entrypoint {
            Entrypoint::Approve => vec![contracts().bridge],
            Entrypoint::Withdraw
            | Entrypoint::ExitValidator
            | Entrypoint::IncreaseSelfStake
            | Entrypoint::Burn => vec![],
            _ => vec![first],
        };
        if !matches!(entrypoint, Entrypoint::Withdraw | Entrypoint::ExitValidator) {
            args.extend(amount);
        }
        call(
            contracts().address(entrypoint.contract()),
            entrypoint.name(),
            &args,
        )
    })
}

/// A felt that means something somewhere in calldata.
fn telling_felt() -> impl Strategy<Value = Felt> {
    let names = ["burn", "transfer", "approve", "withdraw", "mint", "upgrade"].map(selector);
    let addresses = Contract::ALL.map(|contract| contracts().address(contract));
    let known: Vec<Felt> = names
        .into_iter()
        .chain(addresses)
        .chain([sender()])
        .collect();
    prop_oneof![
        (0_u64..12).prop_map(Felt::from),
        prop::sample::select(known),
        any::<u128>().prop_map(Felt::from),
        any::<[u64; 4]>().prop_filter_map("below the prime", Felt::from_limbs),
    ]
}

fn calldata(transaction: &Transaction) -> Vec<Felt> {
    let json: Value = serde_json::from_str(&transaction.to_json()).expect("JSON");
    let calldata = json["calldata"].as_array().expect("a list");
    calldata
        .iter()
        .map(|felt| hex(felt.as_str().expect("a felt")))
        .collect()
}

/// The calls of a request that is let through.
fn calls_of(body: &str) -> Result<Vec<Call>, Reason> {
    let mut calls = Vec::new();
    let verdict = policy().inspect_with(Endpoint::Rpc, body.as_bytes(), NOW, |finding| {
        if let Finding::Calls(allowed) = finding {
            calls.extend(allowed.iter().map(|allowed| allowed.call().clone()));
        }
    });
    match verdict.map_err(|refusal| refusal.reason)? {
        Inspected::Transaction(unverified) => unverified
            .admission()
            .map(|()| calls)
            .map_err(|refusal| refusal.reason),
        Inspected::Operation(operation) => panic!("{operation:?}"),
    }
}

fn unsigned_request(calldata: &[Felt]) -> String {
    let transaction = invoke(Vec::new()).to_json();
    let felts: Vec<_> = calldata.iter().map(|felt| format!("\"{felt}\"")).collect();
    let calldata = format!("\"calldata\":[{}]", felts.join(","));
    let transaction = transaction.replacen("\"calldata\":[\"0x0\"]", &calldata, 1);
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"starknet_addInvokeTransaction","params":[{transaction}]}}"#
    )
}

proptest! {
    // each case hashes: 64 take seconds without optimisation
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn allowed_calls_come_through_as_they_were(
        calls in prop::collection::vec(allowed_call(), 1..9),
    ) {
        let body = unsigned_request(&calldata(&invoke(calls.clone())));
        prop_assert_eq!(calls_of(&body), Ok(calls));
    }

    /// Calls that pass are on the list, and are all that an account would read.
    #[test]
    fn no_changed_felt_passes_the_list(
        calls in prop::collection::vec(allowed_call(), 1..9),
        at in any::<prop::sample::Index>(),
        felt in telling_felt(),
    ) {
        let mut changed = calldata(&invoke(calls));
        let at = at.index(changed.len());
        changed[at] = felt;
        if let Ok(calls) = calls_of(&unsigned_request(&changed)) {
            let pairs = pairs();
            for call in &calls {
                prop_assert!(pairs.contains(&(call.to, call.selector)), "{:?}", call);
                if call.selector == selector("approve") {
                    prop_assert!([contract("staking"), contract("bridge")].contains(&call.args[0]));
                }
            }
            let again = Invoke { sender: sender(), calls, nonce: Felt::ZERO, bounds: bounds() };
            prop_assert_eq!(calldata(&again.into()), changed);
        }
    }

    #[test]
    fn no_felts_make_it_panic(noise in prop::collection::vec(telling_felt(), 0..40)) {
        let _ = calls_of(&unsigned_request(&noise));
    }
}
