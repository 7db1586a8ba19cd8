//! Transactions that a real client sent and a real node took, with the hashes that it gave them.

use crate::support::{CLASS, NOW, hex, policy};
use portcullis_filters::policy::{Endpoint, Inspected, TransactionPermit};
use portcullis_filters::tx::{Account, Bounds, Declare, Transaction};
use portcullis_filters::verdict::Refusal;
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

fn text<'a>(vector: &'a Value, member: &str) -> &'a str {
    vector[member].as_str().expect(member)
}

fn judge<'a>(vector: &Value, body: &'a [u8]) -> Result<TransactionPermit<'a>, Refusal> {
    let policy = policy();
    let public_key = hex(text(vector, "public_key"));
    let account = Account {
        class_hash: hex(CLASS),
        public_key,
    };
    match policy.inspect(Endpoint::Rpc, body, NOW)? {
        Inspected::Transaction(unverified) => {
            unverified.admission().map_err(Refusal::clone)?;
            // a deployment has shown its key already
            let account = unverified.sender().map(|_| account);
            unverified.verify(&policy, account)
        }
        Inspected::Operation(operation) => panic!("{operation:?}"),
    }
}

#[test]
fn real_transactions_have_the_node_s_hash() {
    let mut permitted = 0;
    for vector in vectors("writes.ndjson") {
        let what = text(&vector, "what");
        match judge(&vector, text(&vector, "body").as_bytes()) {
            Err(refusal) => assert_eq!(refusal.reason.name(), text(&vector, "verdict"), "{what}"),
            Ok(permit) => {
                assert_eq!("permit", text(&vector, "verdict"), "{what}");
                assert_eq!(permit.hash(), hex(text(&vector, "hash")), "{what}");
                if let Some(address) = vector["contract_address"].as_str() {
                    assert_eq!(permit.sender(), hex(address), "{what}");
                }
                permitted += 1;
            }
        }
    }
    assert_eq!(permitted, 9, "flows of users");
}

#[test]
fn written_transactions_are_judged_the_same() {
    for vector in vectors("writes.ndjson") {
        let what = text(&vector, "what");
        let Ok(permit) = judge(&vector, text(&vector, "body").as_bytes()) else {
            continue;
        };
        let (id, method, params) = (permit.id().as_str(), permit.method(), permit.params());
        let again =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let again = judge(&vector, again.as_bytes()).expect(what);
        assert_eq!(
            (again.hash(), again.calls()),
            (permit.hash(), permit.calls()),
            "{what}"
        );
        assert_eq!(again.params(), params, "{what}");
    }
}

#[test]
fn a_declaration_has_the_node_s_hash() {
    for vector in vectors("declares.ndjson") {
        let bound = |resource: &str| {
            let number = |member| hex(text(&vector["bounds"][resource], member));
            let (amount, price) = (number("max_amount"), number("max_price_per_unit"));
            (
                amount.to_u64().expect("64 bits"),
                price.to_u128().expect("128 bits"),
            )
        };
        let transaction = Transaction::from(Declare {
            sender: hex(text(&vector, "sender")),
            class_hash: hex(text(&vector, "class_hash")),
            compiled_class_hash: hex(text(&vector, "compiled_class_hash")),
            contract_class: "{}".into(),
            nonce: hex(text(&vector, "nonce")),
            bounds: Bounds {
                l1_gas: bound("l1_gas"),
                l1_data_gas: bound("l1_data_gas"),
                l2_gas: bound("l2_gas"),
            },
        });
        assert_eq!(
            transaction.hash(policy().chain_id),
            hex(text(&vector, "hash"))
        );
    }
}
