//! A V3 transaction, in an estimate and as a write. An estimate accepts what a plain reading of its
//! fields accepts; the hash is that of those fields; the rewritten form has the same hash.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{
    Endpoint, Finding, GatewayPolicy, Inspected, RelayPolicy, Unverified,
};
use portcullis_filters::rpc::reads::Argument;
use portcullis_filters::tx::{Transaction, contract_address};
use portcullis_fuzz::reference::{felt, felts, unique};
use portcullis_fuzz::{NOW, gateway, relay};
use serde_json::Value;
use starknet_types_core::felt::Felt as Plain;
use starknet_types_core::hash::{Poseidon, StarkHash};
use std::sync::LazyLock;

static GATEWAY: LazyLock<GatewayPolicy> = LazyLock::new(gateway);
static RELAY: LazyLock<RelayPolicy> = LazyLock::new(relay);

fuzz_target!(|text: &[u8]| {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    if serde_json::from_str::<&serde_json::value::RawValue>(text).is_err() {
        return;
    }
    let expected = unique(text.as_bytes()).and_then(|value| reference(&value));
    let found = estimated(text);
    assert_eq!(found.as_ref().map(|(hash, _)| *hash), expected, "{text}");
    if let Some((hash, written)) = found {
        assert_eq!(
            estimated(&written),
            Some((hash, written.clone())),
            "written again"
        );
    }
    for (method, name) in [
        ("starknet_addInvokeTransaction", "invoke_transaction"),
        (
            "starknet_addDeployAccountTransaction",
            "deploy_account_transaction",
        ),
    ] {
        submit(method, &format!("{{\"{name}\":{text}}}"), expected);
    }
});

/// The hash of a transaction that may be estimated, and the text that the node is sent.
fn estimated(text: &str) -> Option<(Plain, String)> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"starknet_estimateFee","params":[[{text}],[],"latest"]}}"#
    );
    let permit = GATEWAY.inspect(body.as_bytes()).ok()?;
    let (_, argument) = permit.params().arguments().first()?;
    let Argument::Transactions(transactions) = argument else {
        panic!("{argument:?}")
    };
    let [transaction] = transactions.as_slice() else {
        panic!("one was sent")
    };
    Some((
        plain(transaction.hash(RELAY.chain_id)),
        transaction.to_json(),
    ))
}

fn submit(method: &str, params: &str, expected: Option<Plain>) {
    let request = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
    };
    let body = request(params);
    let mut judged: Option<Transaction> = None;
    let inspected = RELAY.inspect_with(Endpoint::Rpc, body.as_bytes(), NOW, |finding| {
        if let Finding::Transaction(transaction) = finding {
            judged = Some(transaction.clone());
        }
    });
    let Some(judged) = judged else {
        assert!(inspected.is_err());
        return;
    };
    let hash = judged.hash(RELAY.chain_id);
    if let Some(expected) = expected {
        assert_eq!(plain(hash), expected, "the hash that the user signs");
    }
    let again = request(&judged.to_params());
    let again = RELAY.inspect(Endpoint::Rpc, again.as_bytes(), NOW);
    match (inspected, again) {
        (Ok(Inspected::Transaction(one)), Ok(Inspected::Transaction(other))) => {
            assert_eq!((one.hash(), other.hash()), (hash, hash));
            assert_eq!((one.sender(), one.kind()), (other.sender(), other.kind()));
            let reason = |of: &Unverified<'_>| of.admission().map_err(|refusal| refusal.reason);
            assert_eq!(reason(&one), reason(&other));
        }
        (Err(one), Err(other)) => assert_eq!(one.reason, other.reason),
        (one, other) => panic!("{one:?}, but as it was written {other:?}"),
    }
}

fn plain(felt: Felt) -> Plain {
    Plain::from_bytes_be(&felt.to_bytes_be())
}

fn ours(felt: Plain) -> Option<Felt> {
    Felt::from_bytes_be(&felt.to_bytes_be())
}

/// The hash of a transaction with exactly the fields of its kind; Starknet documentation,
/// "Transaction hash calculation, v3".
fn reference(transaction: &Value) -> Option<Plain> {
    const COMMON: [&str; 9] = [
        "type",
        "version",
        "signature",
        "nonce",
        "resource_bounds",
        "tip",
        "paymaster_data",
        "nonce_data_availability_mode",
        "fee_data_availability_mode",
    ];
    let field = |name: &str| transaction.get(name);
    let list = |name: &str| felts(field(name)?).filter(|felts| felts.len() <= 256);
    let short = |text: &str| Plain::from_bytes_be_slice(text.as_bytes());
    let own = match field("type")?.as_str()? {
        "INVOKE" => ["sender_address", "calldata", "account_deployment_data"],
        "DEPLOY_ACCOUNT" => [
            "class_hash",
            "contract_address_salt",
            "constructor_calldata",
        ],
        _ => return None,
    };
    if !has_exactly(transaction, &[&COMMON[..], &own].concat()) {
        return None;
    }
    list("signature")?;
    let version = match field("version")?.as_str()? {
        "0x3" => Plain::from(3),
        "0x100000000000000000000000000000003" => {
            Plain::from((1_u128 << 127) + 1) * Plain::TWO + Plain::ONE
        }
        _ => return None,
    };
    let modes = mode(field("nonce_data_availability_mode")?)? << 32
        | mode(field("fee_data_availability_mode")?)?;
    let deploys = own[0] == "class_hash";
    let (prefix, sender, rest) = if deploys {
        let (class, salt) = (felt(field(own[0])?)?, felt(field(own[1])?)?);
        let constructor = list(own[2])?;
        let arguments: Option<Vec<Felt>> = constructor.iter().copied().map(ours).collect();
        let address = contract_address(Felt::ZERO, ours(salt)?, ours(class)?, &arguments?);
        (
            "deploy_account",
            plain(address),
            vec![poseidon(&constructor), class, salt],
        )
    } else {
        let hashes = vec![poseidon(&list(own[2])?), poseidon(&list(own[1])?)];
        ("invoke", felt(field(own[0])?)?, hashes)
    };
    let mut parts = vec![short(prefix), version, sender, fee(transaction)?];
    parts.extend([poseidon(&list("paymaster_data")?), short("SN_SEPOLIA")]);
    parts.extend([felt(field("nonce")?)?, Plain::from(modes)]);
    parts.extend(rest);
    Some(poseidon(&parts))
}

fn has_exactly(object: &Value, names: &[&str]) -> bool {
    object.as_object().is_some_and(|members| {
        members.len() == names.len() && names.iter().all(|name| members.contains_key(*name))
    })
}

fn mode(value: &Value) -> Option<u64> {
    match value.as_str()? {
        "L1" => Some(0),
        "L2" => Some(1),
        _ => None,
    }
}

fn fee(transaction: &Value) -> Option<Plain> {
    let bounds = transaction.get("resource_bounds")?;
    if !has_exactly(bounds, &["l1_gas", "l1_data_gas", "l2_gas"]) {
        return None;
    }
    let bound = |name: &str| {
        let bound = bounds.get(&*name.to_lowercase())?;
        let fits = has_exactly(bound, &["max_amount", "max_price_per_unit"]);
        let amount = number::<8>(bound.get("max_amount")?)?;
        let price = number::<16>(bound.get("max_price_per_unit")?)?;
        // the key's name in the hash of the API's 0.8 and later
        let short = if name == "L1_DATA_GAS" {
            "L1_DATA"
        } else {
            name
        };
        let name = format!("{short:\0>8}");
        fits.then(|| Plain::from_bytes_be_slice(&[name.as_bytes(), &amount, &price].concat()))
    };
    let tip = Plain::from_bytes_be_slice(&number::<8>(transaction.get("tip")?)?);
    Some(poseidon(&[
        tip,
        bound("L1_GAS")?,
        bound("L2_GAS")?,
        bound("L1_DATA_GAS")?,
    ]))
}

/// A felt of at most this many bytes.
fn number<const BYTES: usize>(value: &Value) -> Option<[u8; BYTES]> {
    let bytes = felt(value)?.to_bytes_be();
    let (zeros, number) = bytes.split_at(32 - BYTES);
    zeros
        .iter()
        .all(|byte| *byte == 0)
        .then(|| number.try_into().ok())?
}

fn poseidon(felts: &[Plain]) -> Plain {
    Poseidon::hash_array(felts)
}
