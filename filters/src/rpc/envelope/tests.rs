//! Which bodies are requests, and which differ in their ids only.

use super::*;
use proptest::prelude::*;

#[test]
fn an_id_keeps_its_bytes() {
    let long = format!("\"{}\"", "x".repeat(5_000));
    for id in [
        "1",
        "-1",
        "1.0",
        "1e2",
        "1e400",
        "18446744073709551616",
        r#""a\u0062""#,
        "\"\"",
        &long,
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id": {id} ,"method":"m"}}"#);
        let envelope = Envelope::parse(body.as_bytes()).expect(id);
        assert_eq!(envelope.id.as_str(), id);
    }
}

#[test]
fn no_parameters_may_be_written_as_null() {
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#;
    assert_eq!(
        Envelope::parse(body)
            .expect("starknet.go sends this")
            .params,
        None
    );
}

#[test]
fn anything_but_one_request_is_refused() {
    use Reason::{Batch, InvalidRequest, ParseError};
    for (body, reason, id) in [
        (r#"{"#, ParseError, None),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m"} x"#,
            ParseError,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":["\ud800"]}"#,
            ParseError,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1e400]}"#,
            ParseError,
            None,
        ),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, Batch, None),
        ("[]", Batch, None),
        ("null", InvalidRequest, None),
        ("7", InvalidRequest, None),
        ("-7.5", InvalidRequest, None),
        (r#""text""#, InvalidRequest, None),
        ("{}", InvalidRequest, None),
        (r#"{"id":1,"method":"m"}"#, InvalidRequest, Some("1")),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            InvalidRequest,
            Some("1"),
        ),
        (
            r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#,
            InvalidRequest,
            Some("1"),
        ),
        (r#"{"jsonrpc":"2.0","method":"m"}"#, InvalidRequest, None),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
            InvalidRequest,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#,
            InvalidRequest,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":{"a":1},"method":"m"}"#,
            InvalidRequest,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":"\ud800","method":"m"}"#,
            InvalidRequest,
            None,
        ),
        (r#"{"jsonrpc":"2.0","id":1}"#, InvalidRequest, Some("1")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            InvalidRequest,
            Some("1"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":0}"#,
            InvalidRequest,
            Some("1"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"p"}"#,
            InvalidRequest,
            Some("1"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","extra":0}"#,
            InvalidRequest,
            Some("1"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}"#,
            InvalidRequest,
            Some("1"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","m\u0065thod":"n"}"#,
            InvalidRequest,
            Some("1"),
        ),
        (
            r#"{"id":1,"jsonrpc":"2.0","method":"m","id":2}"#,
            InvalidRequest,
            None,
        ),
    ] {
        let refusal = Envelope::parse(body.as_bytes()).expect_err(body);
        assert_eq!(
            (refusal.reason, refusal.id.as_deref()),
            (reason, id),
            "{body}"
        );
    }
}

fn found(body: &str) -> Option<&str> {
    BodyWithoutId::find(body.as_bytes()).map(|split| split.id())
}

#[test]
fn a_number_is_found_where_clients_write_it() {
    for (body, id) in [
        (r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#, Some("7")),
        (r#"{"id": 0, "jsonrpc": "2.0"}"#, Some("0")),
        (
            r#"{"jsonrpc":"2.0","id":123456789012345}"#,
            Some("123456789012345"),
        ),
        (r#"{"id":1234567890123456}"#, None),
        (r#"{"id":007}"#, None),
        (r#"{"id":-7}"#, None),
        (r#"{"id":7.0}"#, None),
        (r#"{"id":7e3}"#, None),
        (r#"{"id":7 }"#, None),
        (r#"{"id":"7"}"#, None),
        (r#"{"id":null}"#, None),
        (r#"{"id":}"#, None),
        (r#"{"id":7"#, None),
        (r#"{"i\u0064":7}"#, None),
        ("", None),
    ] {
        assert_eq!(found(body), id, "{body}");
    }
}

#[test]
fn a_lookalike_of_the_id_is_not_it() {
    for (body, is_id) in [
        (r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#, true),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"id":7}}"#,
            true,
        ),
        (
            r#"{"jsonrpc":"2.0","params":{"id":7},"method":"m","id":7}"#,
            false,
        ),
        (r#"{"jsonrpc":"2.0","method":"\"id\":7,","id":7}"#, true),
        (
            r#"{"jsonrpc":"2.0","params":["\\\"id\":7,"],"method":"m","i\u0064":7}"#,
            false,
        ),
    ] {
        let id = Envelope::parse(body.as_bytes()).map(|envelope| envelope.id);
        let split = BodyWithoutId::find(body.as_bytes());
        let both = split.zip(id.ok());
        assert_eq!(
            both.is_some_and(|(split, id)| split.is_at(id)),
            is_id,
            "{body}"
        );
    }
}

#[test]
fn bodies_are_found_by_what_is_around_the_id() {
    use core::hash::{BuildHasher, BuildHasherDefault};
    type Hashes = BuildHasherDefault<std::hash::DefaultHasher>;
    let bodies = [
        r#"{"id":7,"method":"m"}"#,
        r#"{"id":8,"method":"m"}"#,
        r#"{"id":7,"method":"n"}"#,
        r#"{"x":1,"id":7,"method":"m"}"#,
    ];
    let [one, again, after, before] =
        bodies.map(|body| BodyWithoutId::find(body.as_bytes()).unwrap());
    let hash = |split: &BodyWithoutId<'_>| Hashes::default().hash_one(split);
    assert_eq!((one, hash(&one)), (again, hash(&again)));
    for other in [after, before] {
        assert_ne!(one, other);
        assert_ne!(hash(&one), hash(&other));
    }
    let [head, tail] = one.parts();
    assert_eq!((head, tail), (&br#"{"id":"#[..], &br#","method":"m"}"#[..]));
    let parts = [head, tail].concat();
    assert_eq!(BodyWithoutId::stored(&parts, head.len()), Some(one));
}

/// Parameters that contain a lookalike of an id.
const PARAMS: [&str; 7] = [
    "[]",
    r#"["latest","0x1"]"#,
    r#"{"id":5,"x":1}"#,
    r#"[{"id":5},{"id":6}]"#,
    r#"["\"id\":5,"]"#,
    r#"["\\\"id\":5,", {"x\"id":5}]"#,
    r#"{"\u0022id\u0022":5,"i\u0064":5}"#,
];

proptest! {
    #[test]
    fn equal_bodies_are_the_same_request(
        one in 0u64..1_000_000_000_000_000, other in 0u64..1_000_000_000_000_000,
        params in prop::sample::select(&PARAMS[..]), order in 0usize..4,
    ) {
        let rest = r#""jsonrpc":"2.0","method":"starknet_call""#;
        let body = |id: u64| match order {
            0 => format!(r#"{{{rest},"id":{id},"params":{params}}}"#),
            1 => format!(r#"{{"id": {id}, "params": {params}, {rest}}}"#),
            2 => format!(r#"{{{rest},"params":{params},"id":{id}}}"#),
            _ => format!(r#"{{{rest},"i\u0064":{id},"params":{params}}}"#),
        };
        let (one, other) = (body(one), body(other));
        let parsed = Envelope::parse(one.as_bytes()).expect("it is a request");
        let again = Envelope::parse(other.as_bytes()).expect("so is this");
        let [first, second] = [&one, &other].map(|body| BodyWithoutId::find(body.as_bytes()));
        if let Some(first) = first.filter(|first| first.is_at(parsed.id)) {
            let second = second.expect("the number is at the same place");
            prop_assert_eq!(first, second);
            prop_assert_eq!(second.id(), again.id.as_str());
            prop_assert_eq!((parsed.method, parsed.params), (again.method, again.params));
        } else {
            prop_assert!(order > 1, "the first place is found: {}", one);
        }
    }
}

#[test]
fn a_refusal_names_the_member_of_a_request() {
    for (body, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","param":[]}"#,
            "unknown member `param`; expected jsonrpc, id, method, params",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","m\u0065thod":"n"}"#,
            "method appears twice",
        ),
    ] {
        let refusal = Envelope::parse(body.as_bytes()).expect_err("it is refused");
        assert_eq!(refusal.message, expected);
    }
}
