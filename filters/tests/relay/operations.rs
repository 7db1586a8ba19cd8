//! The operations' bodies: exactly their members, and what a deployment lets through.

use crate::support::{CLASS, NOW, contracts, hex, key, policy, sender};
use portcullis_filters::felt::Felt;
use portcullis_filters::operations::{Operation, OperationKind, PHRASE};
use portcullis_filters::policy::{Endpoint, Inspected, OperationPermit, RelayPolicy};
use portcullis_filters::tx::account_address;
use portcullis_filters::verdict::Reason::{self, *};
use portcullis_filters::verdict::Refusal;
use proptest::prelude::*;
use serde_json::{Value, json};

fn judge(kind: OperationKind, body: &str) -> Result<OperationPermit, Refusal> {
    match policy().inspect(Endpoint::Operation(kind), body.as_bytes(), NOW)? {
        Inspected::Operation(permit) => {
            permit.admission().map_err(Refusal::clone)?;
            Ok(permit)
        }
        Inspected::Transaction(transaction) => panic!("{transaction:?}"),
    }
}

fn reason(kind: OperationKind, body: &Value) -> Result<(), Reason> {
    judge(kind, &body.to_string())
        .map(drop)
        .map_err(|refusal| refusal.reason)
}

/// A good body of each.
fn good(kind: OperationKind) -> Value {
    let (account, public_key) = (sender().to_string(), key().public_key().to_string());
    match kind {
        OperationKind::Register => {
            json!({"identity": "0x1d", "account": account, "public_key": public_key})
        }
        OperationKind::VerificationAttest => json!({
            "account": account, "attestation_id": "0xa7", "assurance_type": "KYC",
            "assurance_level": 3, "expires_at": "2031-02-03T04:05:06+01:00",
        }),
        OperationKind::VerificationRevoke => json!({"account": account, "reason": "a \"why\""}),
        OperationKind::MintCard => {
            json!({"recipient": account, "card_id": "340282366920938463463374607431768211456"})
        }
        OperationKind::SubmitUsership => {
            json!({"account": account, "epoch": 10, "units": "255", "evidence": "0x0"})
        }
        OperationKind::FaucetDrip => {
            json!({"identity": "0x1d", "recipient": account, "public_key": public_key})
        }
        OperationKind::RecoveryPropose => {
            json!({"identity": "0x1d", "new_account": account, "new_public_key": public_key})
        }
        OperationKind::RecoveryExecute | OperationKind::RecoveryCancel => {
            json!({"identity": "0x1d"})
        }
        OperationKind::RequireV2 => json!({"confirm": PHRASE}),
    }
}

/// A good body with one member set.
fn with(kind: OperationKind, member: &str, value: impl Into<Value>) -> Value {
    let mut body = good(kind);
    body[member] = value.into();
    body
}

#[test]
fn a_good_body_is_understood() {
    let attest = judge(
        OperationKind::VerificationAttest,
        &good(OperationKind::VerificationAttest).to_string(),
    );
    let attest = attest.expect("it is good");
    let Operation::VerificationAttest(attest) = attest.operation() else {
        panic!("{attest:?}")
    };
    assert_eq!(
        (attest.assurance_level, attest.expires_at),
        (3, 1_927_854_306)
    );
    assert_eq!(attest.assurance_type.felt(), hex("0x4b5943"));
    let mint = judge(
        OperationKind::MintCard,
        &good(OperationKind::MintCard).to_string(),
    );
    let mint = mint.expect("it is good");
    let Operation::MintCard(mint) = mint.operation() else {
        panic!("{mint:?}")
    };
    assert_eq!(
        mint.card_id.felts(),
        [Felt::ZERO, Felt::from(1_u64)],
        "2^128"
    );
    for kind in OperationKind::ALL {
        let permit = judge(kind, &good(kind).to_string()).expect("it is good");
        assert_eq!(permit.operation().kind(), kind);
    }
}

#[test]
fn members_are_exactly_those_of_the_operation() {
    for kind in OperationKind::ALL {
        let body = good(kind);
        let text = body.to_string();
        let members = body.as_object().expect("an object");
        for name in members.keys() {
            let mut fewer = members.clone();
            fewer.remove(name);
            let needed = kind != OperationKind::RequireV2;
            let refusal = judge(kind, &Value::from(fewer).to_string()).err();
            assert_eq!(refusal.is_some(), needed, "{kind:?} without {name}");
            if let Some(refusal) = refusal {
                assert_eq!(refusal.reason, InvalidRequest, "{kind:?} without {name}");
                assert!(
                    refusal.message.contains(name.as_str()),
                    "{refusal:?} names {name}"
                );
            }
            let first = name.as_bytes()[0];
            let escaped = format!("\\u00{first:02x}{}", &name[1..]);
            let twice = text.replacen('{', &format!("{{\"{escaped}\":{},", members[name]), 1);
            let refusal = judge(kind, &twice).expect_err("twice");
            assert_eq!(refusal.reason, InvalidRequest, "{kind:?} with {name} twice");
            assert!(
                refusal.message.contains(name.as_str()),
                "{refusal:?} names {name}"
            );
            for value in [
                json!(null),
                json!(true),
                json!(-1),
                json!(1.5),
                json!([]),
                json!({}),
            ] {
                let refusal = judge(kind, &with(kind, name, value.clone()).to_string());
                let refusal = refusal.expect_err("another type");
                assert_eq!(
                    refusal.reason, InvalidRequest,
                    "{kind:?} with {name}: {value}"
                );
                assert!(
                    refusal.message.contains(name.as_str()),
                    "{refusal:?} names {name}"
                );
            }
        }
        assert_eq!(
            reason(kind, &with(kind, "more", 1)),
            Err(InvalidRequest),
            "{kind:?}"
        );
        for (body, expected) in [
            (format!("[{text}]"), Batch),
            ("[]".into(), Batch),
            ("1".into(), InvalidRequest),
            ("null".into(), InvalidRequest),
            (String::new(), ParseError),
            (format!("{text} x"), ParseError),
            (format!("\u{feff}{text}"), ParseError),
        ] {
            let refusal = judge(kind, &body).expect_err("no object");
            assert_eq!(
                (refusal.reason, refusal.id),
                (expected, None),
                "{kind:?}: {body}"
            );
        }
    }
}

#[test]
fn a_value_never_accepted_has_its_reason() {
    use OperationKind::*;
    let prime = "0x800000000000011000000000000000000000000000000000000000000000001";
    let no_address = "0x7ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00";
    let long = "x".repeat(32);
    let card = contracts().card.to_string();
    for (kind, member, value, expected) in [
        (Register, "identity", json!("0x0"), ArgumentNotAllowed),
        (Register, "identity", json!("29"), InvalidRequest),
        (Register, "identity", json!(prime), InvalidRequest),
        (Register, "account", json!("0x0"), ArgumentNotAllowed),
        (Register, "account", json!(no_address), ArgumentNotAllowed),
        (Register, "account", json!("0x1"), AddressMismatch),
        (Register, "public_key", json!("0x0"), PublicKeyInvalid),
        (FaucetDrip, "recipient", json!("0x1"), AddressMismatch),
        (
            RecoveryPropose,
            "new_account",
            json!("0x1"),
            AddressMismatch,
        ),
        (
            RecoveryPropose,
            "new_public_key",
            json!("0x0"),
            PublicKeyInvalid,
        ),
        (
            RecoveryExecute,
            "identity",
            json!("0x0"),
            ArgumentNotAllowed,
        ),
        (
            VerificationAttest,
            "attestation_id",
            json!("0x0"),
            ArgumentNotAllowed,
        ),
        (
            VerificationAttest,
            "assurance_type",
            json!("kyc"),
            AssuranceNotAllowed,
        ),
        (
            VerificationAttest,
            "assurance_type",
            json!(""),
            InvalidRequest,
        ),
        (
            VerificationAttest,
            "assurance_type",
            json!(long),
            InvalidRequest,
        ),
        (
            VerificationAttest,
            "assurance_level",
            json!(2),
            AssuranceNotAllowed,
        ),
        (
            VerificationAttest,
            "assurance_level",
            json!(0),
            AssuranceNotAllowed,
        ),
        (
            VerificationAttest,
            "assurance_level",
            json!(259),
            AssuranceNotAllowed,
        ),
        (
            VerificationAttest,
            "assurance_level",
            json!("3"),
            InvalidRequest,
        ),
        (
            VerificationAttest,
            "expires_at",
            json!("2030-01-01T00:00:00Z"),
            ArgumentNotAllowed,
        ),
        (
            VerificationAttest,
            "expires_at",
            json!("1969-12-31T23:59:59Z"),
            ArgumentNotAllowed,
        ),
        (
            VerificationAttest,
            "expires_at",
            json!("2031-01-01"),
            InvalidRequest,
        ),
        (
            VerificationAttest,
            "expires_at",
            json!("2031-01-01T00:00:00"),
            InvalidRequest,
        ),
        (
            VerificationAttest,
            "expires_at",
            json!("2031-02-30T00:00:00Z"),
            InvalidRequest,
        ),
        (
            VerificationAttest,
            "expires_at",
            json!("1927854306"),
            InvalidRequest,
        ),
        (
            VerificationRevoke,
            "reason",
            json!("line\n"),
            InvalidRequest,
        ),
        (MintCard, "recipient", json!(card), ArgumentNotAllowed),
        (MintCard, "card_id", json!("0x1x"), InvalidRequest),
        (MintCard, "card_id", json!("-1"), InvalidRequest),
        (SubmitUsership, "epoch", json!(9), EpochOutOfRange),
        (SubmitUsership, "epoch", json!(21), EpochOutOfRange),
        (SubmitUsership, "epoch", json!("10"), InvalidRequest),
        (SubmitUsership, "units", json!("0"), ArgumentNotAllowed),
        (
            SubmitUsership,
            "units",
            json!("340282366920938463463374607431768211456"),
            InvalidRequest,
        ),
    ] {
        assert_eq!(
            reason(kind, &with(kind, member, value.clone())),
            Err(expected),
            "{member} {value}"
        );
    }
    for (kind, member, value) in [
        (
            VerificationAttest,
            "assurance_type",
            json!("age \"18\\21\""),
        ),
        (
            VerificationAttest,
            "expires_at",
            json!("2030-01-01T00:00:01Z"),
        ),
        (
            VerificationAttest,
            "expires_at",
            json!("9999-12-31T23:59:59Z"),
        ),
        (SubmitUsership, "epoch", json!(20)),
        (
            SubmitUsership,
            "units",
            json!("0xffffffffffffffffffffffffffffffff"),
        ),
        (MintCard, "card_id", json!("0")),
    ] {
        assert_eq!(
            reason(kind, &with(kind, member, value.clone())),
            Ok(()),
            "{member} {value}"
        );
    }
}

#[test]
fn an_account_of_another_class_has_another_address() {
    let account_class = hex("0x1");
    let other = RelayPolicy {
        account_class,
        ..policy()
    };
    let body = good(OperationKind::Register).to_string();
    let endpoint = Endpoint::Operation(OperationKind::Register);
    let inspected = other.inspect(endpoint, body.as_bytes(), NOW);
    let Ok(Inspected::Operation(permit)) = inspected else {
        panic!("{inspected:?}")
    };
    assert_eq!(
        permit.admission().map_err(|refusal| refusal.reason),
        Err(AddressMismatch)
    );
    assert_ne!(account_address(key().public_key(), account_class), sender());
    assert_eq!(account_address(key().public_key(), hex(CLASS)), sender());
}

#[test]
fn the_confirmation_of_v2_is_parsed_only() {
    for (body, expected) in [
        (json!({"confirm": PHRASE}), true),
        (json!({}), false),
        (json!({"confirm": ""}), false),
        (
            json!({"confirm": "activate permanent v2 verification"}),
            false,
        ),
        (json!({"confirm": format!("{PHRASE} ")}), false),
    ] {
        let permit = judge(OperationKind::RequireV2, &body.to_string()).expect("it is well-formed");
        let Operation::RequireV2(require) = permit.operation() else {
            panic!("{permit:?}")
        };
        assert_eq!(require.confirmed, expected, "{body}");
    }
}

#[test]
fn equal_operations_have_one_canonical_form() {
    use OperationKind::*;
    for (kind, member, one, other) in [
        (Register, "identity", json!("0x1d"), json!("0x0000001D")),
        (MintCard, "card_id", json!("26"), json!("0x1a")),
        (SubmitUsership, "units", json!("255"), json!("0xff")),
        (
            VerificationAttest,
            "expires_at",
            json!("2031-02-03T04:05:06+01:00"),
            json!("2031-02-03T03:05:06.9Z"),
        ),
        (RequireV2, "confirm", json!("no"), json!("never")),
    ] {
        let [one, other] = [one, other]
            .map(|value| judge(kind, &with(kind, member, value).to_string()).expect("it is good"));
        assert_eq!(
            (one.canonical(), one.digest()),
            (other.canonical(), other.digest()),
            "{member}"
        );
    }
    let identity = r#"{"identity":"0x1d"}"#;
    let [execute, cancel] =
        [RecoveryExecute, RecoveryCancel].map(|kind| judge(kind, identity).expect("it is good"));
    assert_eq!(execute.canonical(), cancel.canonical());
    assert_ne!(execute.digest(), cancel.digest(), "the kind is part of it");
}

#[test]
fn the_canonical_form_parses_to_the_same() {
    for kind in OperationKind::ALL {
        let permit = judge(kind, &good(kind).to_string()).expect("it is good");
        let again = judge(kind, &permit.canonical()).expect("it is good again");
        assert_eq!(again.operation(), permit.operation());
        assert_eq!(again.canonical(), permit.canonical());
    }
    let attest = judge(
        OperationKind::VerificationAttest,
        &good(OperationKind::VerificationAttest).to_string(),
    );
    let canonical = attest.expect("it is good").canonical();
    assert!(
        canonical.contains(r#""expires_at":"2031-02-03T03:05:06Z""#),
        "{canonical}"
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        kind in prop::sample::select(&OperationKind::ALL),
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = policy().inspect(Endpoint::Operation(kind), &body, NOW);
    }

    #[test]
    fn no_damage_to_a_body_makes_it_panic(
        kind in prop::sample::select(&OperationKind::ALL),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut body = good(kind).to_string().into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        let inspected = policy().inspect(Endpoint::Operation(kind), &body, NOW);
        if let Ok(Inspected::Operation(permit)) = inspected
            && permit.admission().is_ok()
        {
            prop_assert!(judge(kind, &permit.canonical()).is_ok(), "what is written is permitted");
        }
    }
}
