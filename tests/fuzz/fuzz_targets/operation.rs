//! An operation's body; its first byte chooses the operation. Another spelling gets the same
//! verdict; an accepted body has exactly the operation's members, and its canonical form is the
//! same operation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_filters::operations::OperationKind;
use portcullis_filters::policy::{Endpoint, Inspected, OperationPermit, RelayPolicy};
use portcullis_filters::verdict::Reason;
use portcullis_fuzz::reference::{depth, felt, unique};
use portcullis_fuzz::{NOW, relay};
use std::sync::LazyLock;

static POLICY: LazyLock<RelayPolicy> = LazyLock::new(relay);

fuzz_target!(|data: &[u8]| {
    let Some((first, body)) = data.split_first() else {
        return;
    };
    let kind = OperationKind::ALL[usize::from(*first) % OperationKind::ALL.len()];
    let verdict = judge(kind, body);
    let value = unique(body).filter(|value| depth(value) <= 64);
    let Some(value) = value else {
        assert!(
            verdict.is_err(),
            "not JSON, too deep, or with a member twice"
        );
        return;
    };
    let respelled = judge(kind, value.to_string().as_bytes());
    let digest = |verdict: &Result<OperationPermit, Reason>| match verdict {
        Ok(permit) => Ok((permit.digest(), permit.canonical())),
        Err(reason) => Err(*reason),
    };
    assert_eq!(digest(&verdict), digest(&respelled), "{value}");
    let Ok(permit) = verdict else { return };

    let canonical = permit.canonical();
    let again = judge(kind, canonical.as_bytes()).expect("its canonical form is accepted");
    assert_eq!(again.operation(), permit.operation());
    let written = unique(canonical.as_bytes()).expect("JSON");
    let (sent, written) = (value.as_object().expect("an object"), written);
    let written = written.as_object().expect("an object");
    for (name, value) in written {
        assert_eq!(
            sent.get(name).and_then(felt).is_some(),
            felt(value).is_some() && !is_number(name, sent)
        );
        if let (Some(one), Some(other)) = (sent.get(name).and_then(felt), felt(value)) {
            assert_eq!(one, other, "{name}");
        }
    }
    let unconfirmed = kind == OperationKind::RequireV2 && written.is_empty();
    assert!(
        sent.len() == written.len() || unconfirmed,
        "{value} is {canonical}"
    );
});

/// Whether it is a number that was sent in decimal digits.
fn is_number(name: &str, sent: &serde_json::Map<String, serde_json::Value>) -> bool {
    let text = sent.get(name).and_then(|value| value.as_str());
    text.is_some_and(|text| !text.starts_with("0x"))
}

fn judge(kind: OperationKind, body: &[u8]) -> Result<OperationPermit, Reason> {
    match POLICY.inspect(Endpoint::Operation(kind), body, NOW) {
        Ok(Inspected::Operation(permit)) => match permit.admission() {
            Ok(()) => Ok(permit),
            Err(refusal) => Err(refusal.reason),
        },
        Ok(Inspected::Transaction(transaction)) => panic!("{transaction:?}"),
        Err(refusal) => Err(refusal.reason),
    }
}
