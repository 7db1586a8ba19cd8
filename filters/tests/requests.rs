//! Properties of the policy over made requests: whatever is permitted is read by the node as it was
//! judged, and no change of a permitted request gets past what the change breaks.

use portcullis_filters::client::TrustedProxies;
use portcullis_filters::networks::Networks;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::{Method, MethodSet};
use portcullis_filters::verdict::Reason;
use proptest::prelude::*;
use serde_json::{Value, json};

fn policy() -> GatewayPolicy {
    GatewayPolicy {
        methods: MethodSet::new(&Method::ALL),
        trusted_proxies: TrustedProxies::default(),
        blocked: Networks::default(),
        has_documents: false,
    }
}

fn felt() -> impl Strategy<Value = Value> {
    "0x[0-7][0-9a-fA-F]{0,62}|0x0{1,60}[0-9a-f]{1,4}".prop_map(Value::from)
}

fn block() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!("latest")),
        Just(json!("pre_confirmed")),
        Just(json!("l1_accepted")),
        any::<u64>().prop_map(|number| json!({ "block_number": number })),
        felt().prop_map(|hash| json!({ "block_hash": hash })),
    ]
}

/// A method with its parameters by name, in the order of the API.
fn call() -> impl Strategy<Value = (&'static str, Vec<(&'static str, Value)>)> {
    let view = (felt(), felt(), prop::collection::vec(felt(), 0..9)).prop_map(|(to, entry, data)| {
        json!({ "contract_address": to, "entry_point_selector": entry, "calldata": data })
    });
    let named = |name| move |(block, felt)| (name, block, felt);
    prop_oneof![
        prop::sample::select(vec!["specVersion", "chainId", "blockNumber"])
            .prop_map(|name| (name, vec![])),
        block().prop_map(|block| ("getBlockWithTxHashes", vec![("block_id", block)])),
        felt().prop_map(|hash| ("getTransactionByHash", vec![("transaction_hash", hash)])),
        felt().prop_map(|hash| ("getTransactionReceipt", vec![("transaction_hash", hash)])),
        felt().prop_map(|hash| ("getTransactionStatus", vec![("transaction_hash", hash)])),
        prop_oneof![
            (block(), felt()).prop_map(named("getClassHashAt")),
            (block(), felt()).prop_map(named("getClassAt")),
            (block(), felt()).prop_map(named("getNonce")),
        ]
        .prop_map(|(name, block, felt)| {
            (name, vec![("block_id", block), ("contract_address", felt)])
        }),
        (block(), felt()).prop_map(|(block, felt)| (
            "getClass",
            vec![("block_id", block), ("class_hash", felt)]
        )),
        (view, block())
            .prop_map(|(view, block)| ("call", vec![("request", view), ("block_id", block)])),
    ]
}

fn request(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": format!("starknet_{method}"), "params": params })
        .to_string()
}

fn written(body: &str) -> Result<Value, Reason> {
    let policy = policy();
    let permit = policy
        .inspect(body.as_bytes())
        .map_err(|refusal| refusal.reason)?;
    let mut out = Vec::new();
    permit.write_request(9, &mut out);
    Ok(serde_json::from_slice(&out).expect("what is written is JSON"))
}

/// Each felt as the shortest lower-case text of its value.
fn canonical(value: &Value) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => {
                let digits = digits.trim_start_matches('0').to_lowercase();
                json!(format!(
                    "0x{}",
                    if digits.is_empty() { "0" } else { &digits }
                ))
            }
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), canonical(value)))
            .collect(),
        _ => value.clone(),
    }
}

proptest! {
    #[test]
    fn names_and_positions_are_the_same_call((method, params) in call()) {
        let by_name: Value = params.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
        let by_position: Value = params.iter().map(|(_, value)| value.clone()).collect();
        let expected = json!({
            "jsonrpc": "2.0",
            "id": 9,
            "method": format!("starknet_{method}"),
            "params": canonical(&by_name),
        });
        prop_assert_eq!(written(&request(method, &by_name)), Ok(expected.clone()));
        prop_assert_eq!(written(&request(method, &by_position)), Ok(expected));
    }

    #[test]
    fn one_parameter_more_or_less_is_refused((method, params) in call(), extra in felt()) {
        let mut by_position: Vec<Value> = params.iter().map(|(_, value)| value.clone()).collect();
        let mut by_name: serde_json::Map<String, Value> =
            params.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
        if by_position.pop().is_some() {
            let fewer = request(method, &Value::from(by_position.clone()));
            prop_assert_eq!(written(&fewer), Err(Reason::InvalidParams));
        }
        by_name.insert("extra".into(), extra.clone());
        let more = request(method, &Value::from(by_name));
        prop_assert_eq!(written(&more), Err(Reason::InvalidParams));
        let mut by_position: Vec<Value> = params.iter().map(|(_, value)| value.clone()).collect();
        by_position.extend([extra.clone(), extra]);
        let more = request(method, &Value::from(by_position));
        prop_assert_eq!(written(&more), Err(Reason::InvalidParams));
    }

    #[test]
    fn a_duplicate_member_is_refused_everywhere(
        (method, params) in call(),
        which in any::<prop::sample::Index>(),
    ) {
        let by_name: Value = params.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
        let body = request(method, &by_name);
        // repeat a member right before itself, its name spelled with an escape
        let names: Vec<usize> =
            body.match_indices("\":").filter_map(|(end, _)| body[..end].rfind('"')).collect();
        let start = names[which.index(names.len())];
        let end = start + body[start..].find("\":").expect("it was found from there");
        let first = body.as_bytes()[start + 1];
        let twin = format!("\"\\u00{first:02x}{}\":0,", &body[start + 2..end]);
        let twice = format!("{}{twin}{}", &body[..start], &body[start..]);
        let reason = written(&twice).expect_err("a duplicate is refused");
        prop_assert!(
            matches!(reason, Reason::InvalidRequest | Reason::InvalidParams), "{twice}: {reason:?}"
        );
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
        let policy = policy();
        let _ = policy.inspect(&body);
    }

    #[test]
    fn damaged_requests_never_panic(
        (method, params) in call(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let params: Value = params.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
        let mut body = request(method, &params).into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        let policy = policy();
        if let Ok(permit) = policy.inspect(&body) {
            let mut out = Vec::new();
            permit.write_request(1, &mut out);
            prop_assert!(policy.inspect(&out).is_ok(), "what is written is permitted");
        }
    }
}
