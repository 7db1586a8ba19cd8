//! Operation bodies: exactly the documented members and types, and values that are always
//! forbidden. Every request here is refused, so nothing reaches the node.

use serde_json::{Value, json};

use super::threats_text::PRIME;
use crate::support::check::each;
use crate::support::node::Call;
use crate::support::relay::chain::{USER_KEY, honest, is_view, result};
use crate::support::relay::expect::refused;
use crate::support::relay::stage::Stage;
use crate::support::relay::user::User;
use portcullis_filters::felt::Felt;
use portcullis_filters::tx::is_public_key;

/// The type of a member.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Felt,
    Number,
    Integer,
    Text,
    Time,
}

/// A body as its members: name, value, kind.
pub(super) type Body = Vec<(&'static str, Value, Kind)>;

/// Every operation except `/require-v2`, with a well-formed body.
pub(super) fn operations() -> Vec<(&'static str, Body)> {
    let user = User::with_key(USER_KEY);
    let felt = |name, value: &str| (name, json!(value), Kind::Felt);
    let address = user.address.to_string();
    let key = user.key.public_key().to_string();
    let account = || felt("account", &address);
    let identity = || felt("identity", "0x1d");
    vec![
        (
            "/register",
            vec![identity(), account(), felt("public_key", &key)],
        ),
        (
            "/verification-attest",
            vec![
                account(),
                felt("attestation_id", "0xa1"),
                ("assurance_type", json!("age_over_18"), Kind::Text),
                ("assurance_level", json!(1), Kind::Integer),
                ("expires_at", json!("2100-01-31T12:00:00Z"), Kind::Time),
            ],
        ),
        (
            "/verification-revoke",
            vec![account(), ("reason", json!("withdrawn"), Kind::Text)],
        ),
        (
            "/mint-card",
            vec![
                felt("recipient", &address),
                ("card_id", json!("7"), Kind::Number),
            ],
        ),
        (
            "/submit-usership",
            vec![
                account(),
                ("epoch", json!(3), Kind::Integer),
                ("units", json!("42"), Kind::Number),
                felt("evidence", "0xe"),
            ],
        ),
        (
            "/faucet-drip",
            vec![
                identity(),
                felt("recipient", &address),
                felt("public_key", &key),
            ],
        ),
        (
            "/recovery-propose",
            vec![
                identity(),
                felt("new_account", &address),
                felt("new_public_key", &key),
            ],
        ),
        ("/recovery-execute", vec![identity()]),
        ("/recovery-cancel", vec![identity()]),
    ]
}

/// The members as JSON text, optionally with one value replaced.
pub(super) fn text(body: &Body, instead: Option<(&str, &str)>) -> String {
    let members = body.iter().map(|(name, value, _)| match instead {
        Some((other, text)) if other == *name => format!(r#""{name}":{text}"#),
        _ => format!(r#""{name}":{value}"#),
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Invalid texts for this kind.
fn misfits(kind: Kind) -> Vec<String> {
    let common = ["null", "true", "{}", "[]", "1.5", "-1", r#""""#, r#"" ""#];
    let own: &[&str] = match kind {
        Kind::Felt => &[
            "1",
            r#""1""#,
            r#""0x""#,
            r#""0X1""#,
            r#""0x0x1""#,
            r#""0xg""#,
            r#""0x1 ""#,
        ],
        Kind::Number => &[
            "7", r#""07""#, r#""-1""#, r#""1e3""#, r#""0x""#, r#""7 ""#, r#""+7""#,
        ],
        Kind::Integer => &[r#""1""#, "1e2", "1.0", "18446744073709551616"],
        Kind::Text => &[
            "1",
            r#""32 characters are one too many.!""#,
            r#""süß""#,
            r#""a\nb""#,
        ],
        Kind::Time => &[
            "4102444800",
            r#""2100-01-31""#,
            r#""2100-02-30T00:00:00Z""#,
            r#""soon""#,
        ],
    };
    let mut texts: Vec<_> = own.iter().map(|text| (*text).to_owned()).collect();
    // a space is valid in a text
    texts.extend(
        common
            .iter()
            .filter(|own| kind != Kind::Text || **own != r#"" ""#)
            .map(|own| (*own).into()),
    );
    match kind {
        Kind::Felt => texts.extend(
            [
                PRIME,
                &format!("0x{}", "f".repeat(64)),
                &format!("0x{:0>65}", 1),
            ]
            .map(|text| format!("\"{text}\"")),
        ),
        Kind::Number => texts.push(format!("\"1{}\"", "0".repeat(78))),
        _ => {}
    }
    texts
}

#[test]
fn a_body_has_exactly_its_members_each_once() {
    let stage = Stage::scripted();
    each(operations(), |(path, body)| {
        let whole = text(&body, None);
        let inner = whole.trim_matches(['{', '}']);
        let mut bad = vec![
            ("nothing".to_owned(), "{}".to_owned()),
            ("an unknown member".into(), format!(r#"{{{inner},"x":1}}"#)),
            ("a scalar".into(), "1".into()),
            ("a text".into(), "\"x\"".into()),
        ];
        for (at, (name, value, _)) in body.iter().enumerate() {
            let mut rest = body.clone();
            rest.remove(at);
            bad.push((format!("no {name}"), text(&rest, None)));
            bad.push((
                format!("{name} twice"),
                format!(r#"{{{inner},"{name}":{value}}}"#),
            ));
            let escaped = format!(r"\u{:04x}{}", u32::from(name.as_bytes()[0]), &name[1..]);
            let twice = format!(r#"{{{inner},"{escaped}":{value}}}"#);
            bad.push((format!("{name} twice, once behind an escape"), twice));
            let capital = whole.replacen(
                &format!("\"{name}\""),
                &format!("\"{}\"", name.to_uppercase()),
                1,
            );
            bad.push((format!("{name} in capitals"), capital));
        }
        for (what, body) in bad {
            refused(
                &stage.post(path, body),
                "invalid_request",
                &format!("{path}: {what}"),
            );
        }
        refused(&stage.post(path, format!("[{whole}]")), "batch", path);
        refused(
            &stage.post(path, &whole[..whole.len() - 1]),
            "parse_error",
            path,
        );
        refused(
            &stage.post(path, format!("{whole}{whole}")),
            "parse_error",
            path,
        );
    });
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
}

#[test]
fn mistyped_members_are_invalid() {
    let stage = Stage::scripted();
    each(operations(), |(path, body)| {
        for (name, _, kind) in &body {
            for misfit in misfits(*kind) {
                let answer = stage.post(path, text(&body, Some((name, &misfit))));
                refused(
                    &answer,
                    "invalid_request",
                    &format!("{path}: {name} is {misfit}"),
                );
            }
        }
    });
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
}

#[test]
fn forbidden_bodies_have_their_own_reasons() {
    let stage = Stage::scripted();
    let off_curve = (1_u64..)
        .map(Felt::from)
        .find(|key| !is_public_key(*key))
        .unwrap()
        .to_string();
    let no_address = format!("\"0x7{}00\"", "f".repeat(60));
    let (zero, other, off_curve) = ("\"0x0\"", "\"0x1\"", format!("\"{off_curve}\""));
    let mismatch = "address_mismatch";
    let (argument, assurance) = ("argument_not_allowed", "assurance_not_allowed");
    let rows: [(&str, &str, &str, &str); 34] = [
        ("/register", "identity", zero, argument),
        ("/register", "account", zero, argument),
        ("/register", "account", &no_address, argument),
        ("/register", "account", other, mismatch),
        ("/register", "public_key", other, mismatch),
        ("/register", "public_key", zero, "public_key_invalid"),
        ("/register", "public_key", &off_curve, "public_key_invalid"),
        ("/verification-attest", "account", zero, argument),
        ("/verification-attest", "attestation_id", zero, argument),
        (
            "/verification-attest",
            "assurance_type",
            "\"age_over_21\"",
            assurance,
        ),
        (
            "/verification-attest",
            "assurance_type",
            "\"AGE_OVER_18\"",
            assurance,
        ),
        ("/verification-attest", "assurance_level", "0", assurance),
        ("/verification-attest", "assurance_level", "4", assurance),
        ("/verification-attest", "assurance_level", "256", assurance),
        ("/verification-attest", "assurance_level", "257", assurance),
        (
            "/verification-attest",
            "expires_at",
            "\"2020-01-31T12:00:00Z\"",
            argument,
        ),
        (
            "/verification-attest",
            "expires_at",
            "\"1969-12-31T23:59:59Z\"",
            argument,
        ),
        ("/verification-revoke", "account", zero, argument),
        ("/mint-card", "recipient", zero, argument),
        ("/mint-card", "recipient", &no_address, argument),
        ("/mint-card", "recipient", "\"0x204\"", argument),
        ("/mint-card", "recipient", "\"0x202\"", argument),
        ("/submit-usership", "account", zero, argument),
        ("/submit-usership", "units", "\"0\"", argument),
        ("/submit-usership", "epoch", "0", "epoch_out_of_range"),
        ("/submit-usership", "epoch", "1000001", "epoch_out_of_range"),
        (
            "/submit-usership",
            "epoch",
            "18446744073709551615",
            "epoch_out_of_range",
        ),
        ("/faucet-drip", "recipient", other, mismatch),
        ("/faucet-drip", "public_key", zero, "public_key_invalid"),
        ("/faucet-drip", "identity", zero, argument),
        ("/recovery-propose", "new_account", other, mismatch),
        (
            "/recovery-propose",
            "new_public_key",
            &off_curve,
            "public_key_invalid",
        ),
        ("/recovery-execute", "identity", zero, argument),
        ("/recovery-cancel", "identity", zero, argument),
    ];
    let operations = operations();
    each(rows, |(path, member, value, reason)| {
        let (_, body) = operations.iter().find(|(own, _)| *own == path).unwrap();
        let answer = stage.post(path, text(body, Some((member, value))));
        refused(&answer, reason, &format!("{path}: {member} is {value}"));
    });
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
}

/// The scripted chain before permanent V2 was activated.
fn before_v2(call: &Call) -> Vec<crate::support::node::Act> {
    let is_call = call.json()["method"] == "starknet_call";
    if is_call && is_view(call, "verification_v2_required") {
        return result(call, "[\"0x0\"]");
    }
    honest(call)
}

#[test]
fn v2_activation_needs_the_exact_phrase() {
    let stage = Stage::with_script(before_v2, &[]);
    for body in [
        "{}",
        r#"{"confirm":""}"#,
        r#"{"confirm":"yes"}"#,
        r#"{"confirm":"activate permanent v2 verification"}"#,
        r#"{"confirm":"ACTIVATE PERMANENT V2 VERIFICATION "}"#,
        r#"{"confirm":"ACTIVATE PERMANENT V2 VERIFICATION\u0000"}"#,
    ] {
        refused(
            &stage.post("/require-v2", body),
            "confirmation_required",
            body,
        );
    }
    for body in [
        r#"{"confirm":true}"#,
        r#"{"confirm":null}"#,
        r#"{"confirmed":"yes"}"#,
    ] {
        refused(&stage.post("/require-v2", body), "invalid_request", body);
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    let other = stage.post("/recovery-execute", r#"{"identity":"0x1d"}"#);
    refused(
        &other,
        "pins_unproven",
        "nothing else is written before V2 is activated",
    );
}

#[test]
fn active_v2_is_confirmed_without_a_transaction() {
    let script = |call: &Call| match call.json()["method"].as_str() {
        Some("starknet_getClassHashAt") => result(call, "\"0x666\""),
        _ => honest(call),
    };
    let stage = Stage::with_script(script, &[]);
    assert_eq!(stage.ready().status, 503, "no class is the right one");
    for body in ["{}", r#"{"confirm":"ACTIVATE PERMANENT V2 VERIFICATION"}"#] {
        let answer = stage.post("/require-v2", body);
        let exactly = r#"{"ok":true,"transaction_hash":"","idempotent":true,"verification_v2_required":true}"#;
        assert_eq!((answer.status, answer.text()), (200, exactly), "{body}");
    }
    assert_eq!(stage.adds().len(), 0, "nothing was to be written");
}
