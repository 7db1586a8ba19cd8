//! Requests of real clients and responses of a real node, each with the expected verdict;
//! `vectors/README.md` lists their sources.

use portcullis_filters::client::TrustedProxies;
use portcullis_filters::networks::Networks;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::response::Outcome;
use portcullis_filters::rpc::{CacheClass, CachePolicy};
use portcullis_filters::rpc::{Method, MethodSet};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn vectors(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors")
        .join(name);
    let text = fs::read_to_string(path).expect("the vectors are committed");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a vector is JSON"))
        .collect()
}

fn policy() -> GatewayPolicy {
    GatewayPolicy {
        methods: MethodSet::new(&Method::ALL),
        trusted_proxies: TrustedProxies::default(),
        blocked: Networks::default(),
        has_documents: false,
    }
}

#[test]
fn real_requests_get_the_contract_s_verdict() {
    let policy = policy();
    let mut seen = 0;
    for client in [
        "starknet_js",
        "starknet_py",
        "starknet_rs",
        "starknet_go",
        "starknet_jvm",
    ] {
        for vector in vectors(&format!("{client}.ndjson")) {
            let body = vector["body"].as_str().expect("a body");
            let verdict = match policy.inspect(body.as_bytes()) {
                Ok(_) => "permit",
                Err(refusal) => refusal.reason.name(),
            };
            assert_eq!(vector["verdict"], verdict, "{client}: {body}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen} requests were judged");
}

/// The node must read exactly what was judged: the rewritten form is judged the same, and is
/// written the same again.
#[test]
fn the_written_request_is_a_fixed_point() {
    let policy = policy();
    for client in [
        "starknet_js",
        "starknet_py",
        "starknet_rs",
        "starknet_go",
        "starknet_jvm",
    ] {
        for vector in vectors(&format!("{client}.ndjson")) {
            let body = vector["body"].as_str().expect("a body");
            let Ok(permit) = policy.inspect(body.as_bytes()) else {
                continue;
            };
            let mut written = Vec::new();
            permit.write_request(7, &mut written);
            let again = policy
                .inspect(&written)
                .expect("what was permitted is permitted again");
            assert_eq!(
                (again.method(), again.params()),
                (permit.method(), permit.params())
            );
            let mut twice = Vec::new();
            again.write_request(7, &mut twice);
            assert_eq!(written, twice, "{body}");
        }
    }
}

#[test]
fn real_answers_keep_their_payload() {
    for vector in vectors("answers.ndjson") {
        let body = vector["body"].as_str().expect("a body");
        let id = vector["id"].as_u64().expect("an id");
        let outcome = Outcome::verify(body.as_bytes(), id).expect(body);
        let (member, payload) = match outcome {
            Outcome::Result(payload) => ("result", payload),
            Outcome::Error(payload) => ("error", payload),
        };
        let payload = std::str::from_utf8(payload).expect("it is UTF-8");
        assert_eq!(vector["outcome"], member, "{body}");
        assert!(
            body.contains(&format!("\"{member}\":{payload}")),
            "as the node wrote it: {body}"
        );
        assert_eq!(
            Outcome::verify(body.as_bytes(), id + 1),
            None,
            "another id: {body}"
        );
    }
}

#[test]
fn only_final_answers_are_cached() {
    let policy = policy();
    let mut cached = 0;
    for vector in vectors("cached.ndjson") {
        let text = |name: &str| vector[name].as_str().expect("it is a string");
        let permit = policy
            .inspect(text("request").as_bytes())
            .expect("it is permitted");
        let request: Value = serde_json::from_str(text("request")).expect("it is JSON");
        let id = request["id"].as_u64().expect("an integer");
        let keep = match Outcome::verify(text("answer").as_bytes(), id).expect("it is one") {
            Outcome::Result(result) => CacheClass::of(permit.method(), permit.params())
                .and_then(|class| class.policy(std::str::from_utf8(result).ok()?)),
            Outcome::Error(_) => None,
        };
        let said = match keep {
            None => "no".to_owned(),
            Some(CachePolicy::Briefly) => "briefly".to_owned(),
            Some(CachePolicy::WithBlock(number)) => format!("with block {number}"),
            Some(CachePolicy::UntilL1(number)) => format!("until L1: block {number}"),
        };
        assert_eq!(
            said,
            text("keep"),
            "{}: {}",
            text("request"),
            text("answer")
        );
        cached += usize::from(keep.is_some());
    }
    assert!(cached > 5, "{cached} answers were cached");
}
