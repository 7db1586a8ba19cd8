//! The verification of a node's answer, against `serde_json`: the same answers pass, with the same
//! bytes as their payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_filters::rpc::response::Outcome;
use portcullis_fuzz::reference::members;
use serde_json::value::RawValue;

const ID: u64 = 7;

fuzz_target!(|answer: &[u8]| {
    let found = Outcome::verify(answer, ID);
    let expected = std::str::from_utf8(answer).ok().and_then(reference);
    match expected {
        Some(Expected::Exactly(outcome)) => assert_eq!(found, Some(outcome)),
        // a node's own contradiction, which may be refused or passed on
        Some(Expected::AtMost(outcome)) => assert!(found.is_none() || found == Some(outcome)),
        None => assert_eq!(found, None),
    }
});

enum Expected<'a> {
    Exactly(Outcome<'a>),
    AtMost(Outcome<'a>),
}

fn reference(answer: &str) -> Option<Expected<'_>> {
    let all = members(answer)?;
    let single = |name: &str| {
        let mut named = all.iter().filter(|(member, _)| member == name);
        let first = named.next();
        if named.next().is_some() {
            Err(())
        } else {
            Ok(first.map(|(_, value)| value.get()))
        }
    };
    let [version, id, result, error] = ["jsonrpc", "id", "result", "error"]
        .map(single)
        .map(Result::ok);
    let text: Option<String> = serde_json::from_str(version??).ok();
    if text.as_deref() != Some("2.0") || serde_json::from_str::<u64>(id??).ok() != Some(ID) {
        return None;
    }
    match (result?, error?) {
        (Some(result), None) => Some(Expected::Exactly(Outcome::Result(result.as_bytes()))),
        (None, Some(error)) => error_object(error),
        _ => None,
    }
}

/// An object with an integer code and a message in UTF-8.
fn error_object(text: &str) -> Option<Expected<'_>> {
    let all = members(text)?;
    let values = |name: &str| -> Vec<&RawValue> {
        all.iter()
            .filter(|(member, _)| member == name)
            .map(|(_, value)| *value)
            .collect()
    };
    let (codes, messages) = (values("code"), values("message"));
    let is_code = serde_json::from_str::<i64>(codes.last()?.get()).is_ok();
    let is_message = serde_json::from_str::<String>(messages.last()?.get()).is_ok();
    let outcome = Outcome::Error(text.as_bytes());
    (is_code && is_message).then_some(match (codes.len(), messages.len()) {
        (1, 1) => Expected::Exactly(outcome),
        _ => Expected::AtMost(outcome),
    })
}
