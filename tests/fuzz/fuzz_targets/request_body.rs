//! A JSON-RPC body at the gateway. A permitted one names one of the thirteen methods, has the
//! client's values in another spelling, and is permitted again. A `parse_error` is no valid JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_filters::policy::{GatewayPolicy, ReadPermit};
use portcullis_filters::rpc::Method;
use portcullis_filters::rpc::json::MAX_DEPTH;
use portcullis_filters::verdict::Reason;
use portcullis_fuzz::gateway;
use portcullis_fuzz::reference::{canonical, depth, members, unique};
use serde_json::{Value, json};
use std::sync::LazyLock;

static POLICY: LazyLock<GatewayPolicy> = LazyLock::new(gateway);

fuzz_target!(|body: &[u8]| {
    match POLICY.inspect(body) {
        Ok(permit) => assert_permitted(body, &permit),
        Err(refusal) => {
            let is_json = serde_json::from_slice::<Value>(body)
                .is_ok_and(|value| depth(&value) <= usize::from(MAX_DEPTH));
            assert!(
                !(is_json && refusal.reason == Reason::ParseError),
                "JSON is JSON"
            );
            if let Some(id) = refusal.id {
                let value: Value = serde_json::from_str(&id).unwrap_or(Value::Null);
                assert!(
                    value.is_string() || value.is_number() || is_huge(&id),
                    "{id}"
                );
            }
        }
    }
});

/// A number that no `f64` holds, such as `1e400`: JSON, and an id.
fn is_huge(id: &str) -> bool {
    id.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

fn written(permit: &ReadPermit<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    permit.write_request(9, &mut out);
    out
}

fn assert_permitted(body: &[u8], permit: &ReadPermit<'_>) {
    let text = std::str::from_utf8(body).expect("UTF-8");
    let sent = members(text).expect("an object");
    let value = |name: &str| {
        let mut named = sent.iter().filter(|(member, _)| member == name);
        let first = named.next().map(|(_, value)| value.get());
        assert!(named.next().is_none(), "{name} appears twice");
        first
    };
    assert_eq!(
        value("id"),
        Some(permit.id().as_str()),
        "the id, byte for byte"
    );
    let method: String = serde_json::from_str(value("method").expect("a method")).expect("text");
    assert!(
        Method::ALL.iter().any(|allowed| allowed.name() == method),
        "{method}"
    );
    assert_eq!(
        serde_json::from_str(value("jsonrpc").expect("a version")).ok(),
        Some("2.0".to_owned())
    );

    let forwarded = written(permit);
    let params = match value("params").map(|params| unique(params.as_bytes())) {
        None | Some(Some(Value::Null)) => json!({}),
        Some(Some(Value::Array(items))) => {
            let names = permit
                .params()
                .arguments()
                .iter()
                .map(|(name, _)| (*name).to_owned());
            assert!(items.len() >= names.len(), "by position, none is left out");
            names.zip(items).collect()
        }
        Some(params) => params.expect("no duplicates"),
    };
    let expected =
        json!({ "jsonrpc": "2.0", "id": 9, "method": method, "params": canonical(&params) });
    assert_eq!(
        unique(&forwarded),
        Some(expected),
        "what the client requested"
    );

    let again = POLICY
        .inspect(&forwarded)
        .expect("what is forwarded is permitted");
    assert_eq!(
        (again.method(), again.params()),
        (permit.method(), permit.params())
    );
    assert_eq!(written(&again), forwarded);
}
