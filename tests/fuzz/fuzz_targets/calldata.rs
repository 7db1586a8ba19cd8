//! The calldata of a user's transaction, against a second reading of the list of permitted calls:
//! the same verdict and the same reason. Accepted calldata is accepted when a wallet signs it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{Endpoint, Inspected, RelayPolicy};
use portcullis_filters::tx::{Bounds, Call, Invoke, Transaction, account_address, selector};
use portcullis_filters::verdict::Reason::{self, *};
use portcullis_fuzz::{NOW, account, contracts, hex, key, relay};
use std::sync::LazyLock;

static POLICY: LazyLock<RelayPolicy> = LazyLock::new(relay);
static SENDER: LazyLock<Felt> =
    LazyLock::new(|| account_address(account().public_key, POLICY.account_class));
static TOKENS: LazyLock<Vec<Felt>> = LazyLock::new(tokens);

/// Where an entrypoint may be called, and what its arguments are.
const CALLS: [(&str, &str, &str); 11] = [
    ("token", "approve", "spender number"),
    ("staking", "register_validator", "points number"),
    ("staking", "increase_self_stake", "positive"),
    ("staking", "delegate", "address positive"),
    ("staking", "request_undelegate", "address positive"),
    ("staking", "withdraw", ""),
    ("staking", "exit_validator", ""),
    ("bridge", "bridge_out_token", "l1 positive"),
    ("bridge", "bridge_out_card", "l1 number"),
    ("card", "transfer", "address number"),
    ("card", "burn", "number"),
];

const NAMES: [&str; 6] = ["token", "staking", "bridge", "card", "registry", "usership"];

fuzz_target!(|data: &[u8]| {
    let calldata: Vec<Felt> = data.iter().map(|byte| token(*byte)).collect();
    let expected = reference(&calldata);
    let found = judged(&calldata).map_err(|(reason, _)| reason);
    assert_eq!(
        found,
        expected.as_ref().map(|_| ()).map_err(|reason| *reason),
        "{calldata:?}"
    );
    // a signature takes longer than all of the rest
    if let Ok(calls) = expected
        && data.len().is_multiple_of(8)
    {
        assert_signed(&calldata, calls);
    }
});

/// A byte means a small number, or one of the felts that mean something.
fn token(byte: u8) -> Felt {
    let number = Felt::from(u64::from(byte));
    let at = usize::from(byte).checked_sub(16);
    at.and_then(|at| TOKENS.get(at)).copied().unwrap_or(number)
}

fn tokens() -> Vec<Felt> {
    let mut tokens: Vec<Felt> = NAMES.iter().map(|name| address(name)).collect();
    tokens.extend(CALLS.iter().map(|(_, entrypoint, _)| selector(entrypoint)));
    tokens.push(*SENDER);
    tokens.extend(["upgrade", "set_public_key", "mint", "__execute__"].map(selector));
    tokens.extend([9_999, 10_000, 10_001, u64::MAX].map(Felt::from));
    tokens.extend([1 << 64, u128::MAX].map(Felt::from));
    tokens.extend(
        [
            "0x100000000000000000000000000000000",
            "0xffffffffffffffffffffffffffffffffffffffff",
            "0x10000000000000000000000000000000000000000",
            "0x7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeff",
            "0x7ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00",
            "0x800000000000011000000000000000000000000000000000000000000000000",
        ]
        .map(hex),
    );
    tokens
}

fn address(contract: &str) -> Felt {
    let contracts = contracts();
    match contract {
        "token" => contracts.token,
        "staking" => contracts.staking,
        "bridge" => contracts.bridge,
        "card" => contracts.card,
        "registry" => contracts.registry,
        _ => contracts.usership,
    }
}

/// The calls that this calldata makes, or why it is refused.
fn reference(calldata: &[Felt]) -> Result<Vec<Call>, Reason> {
    if calldata.len() > 256 {
        return Err(CalldataTooLarge);
    }
    let mut felts = calldata.iter().copied();
    let count = felts.next().ok_or(CalldataMalformed)?;
    let count = count
        .to_u64()
        .filter(|count| *count <= 8)
        .ok_or(TooManyCalls)?;
    let mut calls = Vec::new();
    for _ in 0..count {
        let mut next = || felts.next().ok_or(CalldataMalformed);
        let (to, selector, length) = (next()?, next()?, next()?);
        let length = length.to_u64().ok_or(CalldataMalformed)?;
        let mut args = Vec::new();
        for _ in 0..length.min(257) {
            args.push(next()?);
        }
        calls.push(Call { to, selector, args });
    }
    if calls.is_empty() || felts.next().is_some() {
        return Err(CalldataMalformed);
    }
    if calls.iter().any(|call| call.to == *SENDER) {
        return Err(ContractNotAllowed);
    }
    calls.iter().try_for_each(permitted)?;
    Ok(calls)
}

fn permitted(call: &Call) -> Result<(), Reason> {
    let contract = NAMES.into_iter().find(|name| address(name) == call.to);
    let contract = contract.ok_or(ContractNotAllowed)?;
    let row = CALLS
        .iter()
        .find(|(at, name, _)| *at == contract && selector(name) == call.selector);
    let (_, _, kinds) = row.ok_or(EntrypointNotAllowed)?;
    let mut args = call.args.iter().copied();
    let fit = kinds
        .split_whitespace()
        .all(|kind| fits(kind, &mut args).unwrap_or(false));
    if fit && args.next().is_none() {
        Ok(())
    } else {
        Err(ArgumentNotAllowed)
    }
}

fn fits(kind: &str, args: &mut impl Iterator<Item = Felt>) -> Option<bool> {
    let one = args.next()?;
    let bytes = one.to_bytes_be();
    Some(match kind {
        "spender" => one == address("staking") || one == address("bridge"),
        "points" => one.to_u64().is_some_and(|points| points <= 10_000),
        "address" => one != Felt::ZERO && one < hex(TOO_LARGE),
        "l1" => one != Felt::ZERO && bytes.iter().take(12).all(|byte| *byte == 0),
        _ => {
            let [low, high] = [one.to_u128()?, args.next()?.to_u128()?];
            kind == "number" || (low, high) != (0, 0)
        }
    })
}

/// 2^251 - 256, where addresses end.
const TOO_LARGE: &str = "0x7ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00";

/// Judges an unsigned transaction with this calldata; returns its parameters.
fn judged(calldata: &[Felt]) -> Result<(), (Reason, String)> {
    let calldata: Vec<String> = calldata.iter().map(|felt| format!("\"{felt}\"")).collect();
    let transaction = Transaction::from(invoke(Vec::new())).to_params();
    // without calls, the calldata is one zero
    let params = transaction.replace(
        r#""calldata":["0x0"]"#,
        &format!(r#""calldata":[{}]"#, calldata.join(",")),
    );
    let body = request(&params);
    let reason = match POLICY.inspect(Endpoint::Rpc, body.as_bytes(), NOW) {
        Ok(Inspected::Transaction(unverified)) => match unverified.admission() {
            Ok(()) => return Ok(()),
            Err(refusal) => refusal.reason,
        },
        Ok(operation) => panic!("{operation:?}"),
        Err(refusal) => refusal.reason,
    };
    Err((reason, body))
}

fn invoke(calls: Vec<Call>) -> Invoke {
    let bounds = Bounds {
        l1_gas: (0, 1),
        l1_data_gas: (1, 1),
        l2_gas: (1, 1),
    };
    Invoke {
        sender: *SENDER,
        calls,
        nonce: Felt::from(3_u64),
        bounds,
    }
}

fn request(params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"starknet_addInvokeTransaction","params":{params}}}"#
    )
}

/// Signs the calls as a wallet does, and submits them.
fn assert_signed(calldata: &[Felt], calls: Vec<Call>) {
    let transaction = Transaction::from(invoke(calls.clone())).sign(POLICY.chain_id, &key());
    let body = request(&transaction.to_params());
    let inspected = POLICY
        .inspect(Endpoint::Rpc, body.as_bytes(), NOW)
        .expect("it is well-formed");
    let Inspected::Transaction(unverified) = inspected else {
        panic!("{inspected:?}")
    };
    assert_eq!(unverified.admission(), Ok(()), "it is permitted");
    let permit = unverified
        .verify(&POLICY, Some(account()))
        .expect("it is signed");
    assert_eq!(permit.hash(), transaction.hash(POLICY.chain_id));
    assert_eq!(
        permit.params(),
        transaction.to_params(),
        "the node is sent what was signed"
    );
    let sent: Vec<&Call> = permit
        .calls()
        .iter()
        .map(|allowed| allowed.call())
        .collect();
    assert_eq!(sent, calls.iter().collect::<Vec<_>>());
    assert!(calldata.len() <= 256);
}
