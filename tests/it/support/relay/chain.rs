//! A scripted chain: just enough for every pin to hold, and for writes to start.
//!
//! In: the requests of a relay that is configured by [`PINS`]. Out: the responses of a healthy
//! node. It knows no transaction; a test that submits one handles it before [`honest`].

use portcullis_filters::felt::Felt;
use portcullis_filters::secret::{Secret, SecretKey};
use portcullis_filters::tx::selector;

use crate::support::node::{Act, Call};
use crate::support::script::{json, send};

/// The class of every account.
pub(crate) const CLASS: &str = "0x5b4b537eaa2399e3aa99c4e2e0208ebd6c71bc1467938cd52c798c601e43564";

/// The keys of the owner, the verifier and the one user.
pub(crate) const OWNER_KEY: &str = "0xace1";
pub(crate) const VERIFIER_KEY: &str = "0xace2";
pub(crate) const USER_KEY: &str = "0xace3";

/// The relay's pins for this chain. A class hash is its contract's address plus 0x1000.
pub(crate) const PINS: [(&str, &str); 18] = [
    ("chain_id", "PORTCULLIS_DEV"),
    ("account_class", CLASS),
    ("owner", "0x100"),
    ("verifier", "0x101"),
    ("faucet", ""),
    ("token", "0x205"),
    ("token_class", "0x1205"),
    ("registry", "0x200"),
    ("registry_class", "0x1200"),
    ("staking", "0x201"),
    ("staking_class", "0x1201"),
    ("card", "0x202"),
    ("card_class", "0x1202"),
    ("usership", "0x203"),
    ("usership_class", "0x1203"),
    ("bridge", "0x204"),
    ("bridge_class", "0x1204"),
    ("l1_bridge", "0x1111"),
];

/// Results of the views that the relay reads for its pins: contract, view, result.
const VIEWS: [(&str, &str, &[&str]); 17] = [
    ("0x200", "verification_v2_required", &["0x1"]),
    ("0x200", "account_class_hash", &[CLASS]),
    ("0x200", "owner", &["0x100"]),
    ("0x200", "verifier", &["0x101"]),
    ("0x200", "wiring", &["0x202", "0x201", "0x203", "0x204"]),
    ("0x202", "owner", &["0x100"]),
    ("0x202", "minter", &["0x100"]),
    ("0x202", "registry", &["0x200"]),
    ("0x202", "bridge", &["0x204"]),
    ("0x201", "owner", &["0x100"]),
    ("0x201", "token", &["0x205"]),
    ("0x201", "registry", &["0x200"]),
    ("0x203", "submitter", &["0x101"]),
    ("0x203", "registry", &["0x200"]),
    ("0x204", "owner", &["0x100"]),
    ("0x204", "token", &["0x205"]),
    ("0x204", "card", &["0x202"]),
];

pub(crate) fn key(text: &str) -> SecretKey {
    SecretKey::parse(&Secret::new(text.into())).expect("a number below the curve's order")
}

pub(crate) fn felt(text: &str) -> Felt {
    Felt::parse(text).expect("a felt")
}

/// True for a method that submits a transaction.
pub(crate) fn is_add(call: &Call) -> bool {
    method(call).starts_with("starknet_add")
}

/// The JSON-RPC method of a call.
pub(crate) fn method(call: &Call) -> String {
    call.json()["method"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// True for a call of this view.
pub(crate) fn is_view(call: &Call, view: &str) -> bool {
    let stated = &call.json()["params"]["request"]["entry_point_selector"];
    stated
        .as_str()
        .is_some_and(|stated| felt(stated) == selector(view))
}

/// The response of a healthy node.
pub(crate) fn honest(call: &Call) -> Vec<Act> {
    let requested = call.json();
    let params = &requested["params"];
    let text = |at: &str| {
        params
            .pointer(at)
            .and_then(|value| value.as_str())
            .unwrap_or_default()
    };
    match requested["method"].as_str().unwrap_or_default() {
        "starknet_chainId" => {
            let id = Felt::from_short_string("PORTCULLIS_DEV").expect("a short string");
            result(call, &format!("\"{id}\""))
        }
        "starknet_specVersion" => result(call, "\"0.10.2\""),
        // a known method without its parameters
        name if name.starts_with("starknet_") && params.as_array().is_some_and(Vec::is_empty) => {
            error(call, -32602)
        }
        "starknet_getBlockWithTxHashes" => block(call, 1_700_000_000),
        "starknet_getClassHashAt" => result(
            call,
            &format!("\"{}\"", class_of(text("/contract_address"))),
        ),
        "starknet_call" => {
            let arg = text("/request/calldata/0");
            let (to, view) = (
                text("/request/contract_address"),
                text("/request/entry_point_selector"),
            );
            result(call, &view_of(to, felt(view), arg))
        }
        "starknet_getNonce" => result(call, "\"0x0\""),
        "starknet_estimateFee" => {
            let of = |name| format!(r#""{name}_consumed":"0x10","{name}_price":"0x10""#);
            let all = ["l1_gas", "l1_data_gas", "l2_gas"].map(of).join(",");
            result(call, &format!("[{{{all}}}]"))
        }
        "starknet_getTransactionReceipt" => error(call, 29),
        _ => error(call, -32601),
    }
}

/// Block 0 with this timestamp, which identifies one instance of a chain.
pub(crate) fn block(call: &Call, timestamp: u64) -> Vec<Act> {
    let block = format!(r#"{{"block_number":0,"block_hash":"0x1","timestamp":{timestamp}}}"#);
    result(call, &block)
}

/// The node accepted the transaction of this hash.
pub(crate) fn took(call: &Call, hash: Felt) -> Vec<Act> {
    result(call, &format!(r#"{{"transaction_hash":"{hash}"}}"#))
}

/// The receipt of a successful transaction.
pub(crate) fn receipt(call: &Call) -> Vec<Act> {
    let status = r#"{"finality_status":"ACCEPTED_ON_L2","execution_status":"SUCCEEDED"}"#;
    result(call, status)
}

/// A correct response with this result.
pub(crate) fn result(call: &Call, result: &str) -> Vec<Act> {
    send(crate::support::script::result(call, result))
}

/// A JSON-RPC error with this code.
pub(crate) fn error(call: &Call, code: i64) -> Vec<Act> {
    let error = format!(r#"{{"code":{code},"message":"a-word-of-the-node"}}"#);
    send(json(format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
        call.id()
    )))
}

fn class_of(address: &str) -> Felt {
    let contract = PINS.iter().position(|(name, pin)| {
        *pin == address
            && PINS
                .iter()
                .any(|(other, _)| *other == format!("{name}_class"))
    });
    contract.map_or(felt(CLASS), |at| felt(PINS[at + 1].1))
}

fn view_of(to: &str, view: Felt, arg: &str) -> String {
    let array = |felts: &[&str]| format!("[\"{}\"]", felts.join("\",\""));
    if let Some((.., felts)) = VIEWS
        .iter()
        .find(|row| row.0 == to && selector(row.1) == view)
    {
        return array(felts);
    }
    if view == selector("is_authorised_verifier") {
        return array(&[if arg == "0x101" { "0x1" } else { "0x0" }]);
    }
    if view == selector("l1_bridge") {
        return array(&["0x1111"]);
    }
    if view == selector("balance_of") {
        return array(&["0x3635c9adc5dea00000", "0x0"]);
    }
    if view == selector("get_public_key") {
        let owner_of = match to {
            "0x100" => OWNER_KEY,
            "0x101" => VERIFIER_KEY,
            _ => USER_KEY,
        };
        return array(&[&key(owner_of).public_key().to_string()]);
    }
    array(&["0x0"])
}
