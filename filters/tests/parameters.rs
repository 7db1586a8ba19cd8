//! Parameters of reads: which are taken, and what a client reads of those that are not.

use portcullis_filters::client::TrustedProxies;
use portcullis_filters::networks::Networks;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::{Method, MethodSet};
use portcullis_filters::verdict::Reason;
use serde_json::{Value, json};

fn policy() -> GatewayPolicy {
    GatewayPolicy {
        methods: MethodSet::new(&Method::ALL),
        trusted_proxies: TrustedProxies::default(),
        blocked: Networks::default(),
        has_documents: false,
    }
}

/// The parameters as they are written, or the message of the refusal.
fn judged(method: &str, params: &str) -> Result<Value, String> {
    let method = format!("starknet_{method}");
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let policy = policy();
    let permit = policy.inspect(body.as_bytes()).map_err(|refusal| {
        assert_eq!(refusal.reason, Reason::InvalidParams, "{body}");
        refusal.message.into_owned()
    })?;
    let mut out = Vec::new();
    permit.write_request(7, &mut out);
    let written: Value = serde_json::from_slice(&out).expect("what is written is JSON");
    Ok(written["params"].clone())
}

#[test]
fn a_refusal_names_the_parameter() {
    let view = r#"{"contract_address":"0x1","entry_point_selector":"0x2","calldata":["0x3","x"]}"#;
    for (method, params, message) in [
        (
            "chainId",
            "[1]",
            "starknet_chainId takes no parameters; 1 given",
        ),
        (
            "chainId",
            r#"{"a":1}"#,
            "starknet_chainId takes no parameters",
        ),
        (
            "chainId",
            r#"{"":1}"#,
            "starknet_chainId takes no parameters",
        ),
        (
            "chainId",
            r#"{"":1,"":2}"#,
            "starknet_chainId takes no parameters",
        ),
        (
            "getNonce",
            r#"["latest","0x1",2]"#,
            "starknet_getNonce takes 2 parameters; 3 given",
        ),
        (
            "getNonce",
            r#"{"block_id":"latest","contract_address":"0x1","":1}"#,
            "starknet_getNonce takes no parameters but block_id, contract_address",
        ),
        ("getNonce", r#"["latest"]"#, "contract_address is required"),
        (
            "getNonce",
            r#"{"block_id":"latest","block_id":1}"#,
            "block_id appears twice",
        ),
        (
            "getNonce",
            r#"["pending","0x1"]"#,
            "block_id must be latest, pre_confirmed",
        ),
        (
            "getNonce",
            r#"[{"block_number":"1"},"0x1"]"#,
            "block_id must be latest",
        ),
        (
            "getNonce",
            r#"[{"block_number":1,"block_hash":"0x1"},"0x1"]"#,
            "block_id must be",
        ),
        (
            "getNonce",
            r#"["latest","1"]"#,
            "contract_address must be 0x and 1 to 64",
        ),
        (
            "call",
            &format!("[{view},\"latest\"]"),
            "calldata[1] must be 0x and 1 to 64",
        ),
        (
            "call",
            &format!("[{},\"latest\"]", view.replace(r#"["0x3","x"]"#, "7")),
            "calldata must",
        ),
        (
            "call",
            r#"[{},"latest"]"#,
            "request must be an object of contract_address",
        ),
        (
            "getTransactionByHash",
            r#"["0x1",["OTHER"]]"#,
            "response_flags must be an array",
        ),
        (
            "getTransactionByHash",
            r#"["0x1",["INCLUDE_PROOF_FACTS",1]]"#,
            "response_flags must be",
        ),
        (
            "getTransactionByHash",
            r#"["0x1",{}]"#,
            "response_flags must be",
        ),
        (
            "estimateFee",
            r#"[[],[],"latest"]"#,
            "request must be an array of 1 to 4",
        ),
    ] {
        let refusal = judged(method, params).expect_err(params);
        let is_exact = message.contains(" takes ") || message.ends_with("required");
        assert!(refusal.starts_with(message), "{params}: {refusal}");
        assert!(!is_exact || refusal == message, "{params}: {refusal}");
    }
}

#[test]
fn a_flag_is_set_or_not_or_absent() {
    let hash = "transaction_hash";
    for (params, written) in [
        (r#"["0x1"]"#, json!({ hash: "0x1" })),
        (
            r#"["0x1",[]]"#,
            json!({ hash: "0x1", "response_flags": [] }),
        ),
        (
            r#"["0x1",["INCLUDE_PROOF_FACTS"]]"#,
            json!({ hash: "0x1", "response_flags": ["INCLUDE_PROOF_FACTS"] }),
        ),
    ] {
        assert_eq!(
            judged("getTransactionByHash", params),
            Ok(written),
            "{params}"
        );
    }
}

/// A transaction with calldata of this many felts.
fn transaction(felts: usize) -> Value {
    let limits = json!({ "max_amount": "0x1", "max_price_per_unit": "0x2" });
    json!({
        "type": "INVOKE",
        "version": "0x3",
        "sender_address": "0x1",
        "calldata": vec!["0x5"; felts],
        "signature": [],
        "nonce": "0x0",
        "resource_bounds": { "l1_gas": limits, "l2_gas": limits, "l1_data_gas": limits },
        "tip": "0x0",
        "paymaster_data": [],
        "account_deployment_data": [],
        "nonce_data_availability_mode": "L1",
        "fee_data_availability_mode": "L1",
    })
}

#[test]
fn a_former_tag_gets_the_hint_to_the_new_one() {
    let hint = |tag: &str| {
        let request = json!({
            "jsonrpc": "2.0", "id": 1, "method": "starknet_getNonce", "params": [tag, "0x1"],
        });
        let refusal = policy()
            .inspect(request.to_string().as_bytes())
            .expect_err(tag);
        assert_eq!(refusal.reason, Reason::InvalidParams);
        assert!(
            refusal
                .message
                .starts_with("block_id must be latest, pre_confirmed")
        );
        refusal.hint
    };
    assert_eq!(hint("Latest"), None);
    let hint = hint("pending").expect("it was a tag until version 0.9");
    for word in ["pre_confirmed", "0.9", "starknet.js 8", "starknet-rs 0.17"] {
        assert!(hint.contains(word), "{hint}");
    }
}

#[test]
fn an_estimate_is_of_one_to_four_transactions() {
    let estimated = |transactions: &[Value]| {
        let params = json!([transactions, ["SKIP_VALIDATE"], "latest"]);
        judged("estimateFee", &params.to_string())
    };
    for count in 1..=4 {
        let written = estimated(&vec![transaction(3); count]).expect("it is an estimate");
        assert_eq!(written["request"].as_array().map(Vec::len), Some(count));
        assert_eq!(written["simulation_flags"], json!(["SKIP_VALIDATE"]));
    }
    let refusal = estimated(&vec![transaction(3); 5]).expect_err("five are too many");
    assert!(
        refusal.starts_with("request must be an array of 1 to 4"),
        "{refusal}"
    );
    let written = estimated(&[transaction(9_000)]).expect("as many felts as fit");
    assert_eq!(
        written["request"][0]["calldata"].as_array().map(Vec::len),
        Some(9_000)
    );
}
