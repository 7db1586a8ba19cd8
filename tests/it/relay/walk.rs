//! Each operation with each status that its document declares; `documents` checks every response.
//!
//! The chain's state permits every operation, and each test sets the node's response to the
//! transaction. For that reason each body names its own identities and accounts.

use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_filters::operations::{OperationKind, PHRASE};
use portcullis_filters::tx::selector;

use crate::support::check::each;
use crate::support::node::{Act, Call};
use crate::support::relay::chain::{USER_KEY, error, felt, honest, is_add, method, result};
use crate::support::relay::stage::{Stage, authorised, post};
use crate::support::relay::user::User;
use crate::support::request::{Request, padded};
use crate::support::script::{SECRET, sized};

/// Short timeouts, and proofs that are valid as long as a test runs.
const KEYS: [(&str, &str); 3] = [
    ("relay.pins_max_age", "\"1m\""),
    ("relay.receipt_timeout", "\"1s\""),
    ("relay.requests_per_minute", "10000"),
];

/// Results of the views: view, first argument (empty matches any), result.
const STATE: [(&str, &str, &str); 9] = [
    ("identity_of", "0x77", r#"["0x1"]"#),
    ("account_of", "0x9", r#"["0x88"]"#),
    ("is_verified", "", r#"["0x1"]"#),
    (
        "attestation",
        "",
        r#"["0x0","0x0","0x0","0x0","0x0","0x0"]"#,
    ),
    (
        "attestation_of",
        "",
        r#"["0xa1","0x77","0x1","0x1","0x1","0x1","0x0"]"#,
    ),
    ("usership_of", "", r#"["0x0","0x0"]"#),
    // ready long ago, to be executed; ready in 2100, can still be cancelled
    ("recovery_of", "0xe", r#"["0x66","0x1"]"#),
    ("recovery_of", "0xc", r#"["0x66","0xf4865700"]"#),
    ("recovery_of", "", r#"["0x0","0x0"]"#),
];

/// The path and a body that the permissive chain allows.
fn body(kind: OperationKind) -> String {
    let user = User::with_key(USER_KEY);
    let (address, key) = (user.address, user.key.public_key());
    match kind {
        OperationKind::Register => {
            format!(r#"{{"identity":"0x1d","account":"{address}","public_key":"{key}"}}"#)
        }
        OperationKind::VerificationAttest => r#"{"account":"0x77","attestation_id":"0xa1",
            "assurance_type":"age_over_18","assurance_level":1,
            "expires_at":"2100-01-31T12:00:00Z"}"#
            .to_owned(),
        OperationKind::VerificationRevoke => {
            r#"{"account":"0x77","reason":"withdrawn"}"#.to_owned()
        }
        OperationKind::MintCard => r#"{"recipient":"0x77","card_id":"7"}"#.to_owned(),
        OperationKind::SubmitUsership => {
            r#"{"account":"0x77","epoch":3,"units":"42","evidence":"0xe"}"#.to_owned()
        }
        OperationKind::FaucetDrip => {
            format!(r#"{{"identity":"0x1d","recipient":"{address}","public_key":"{key}"}}"#)
        }
        OperationKind::RecoveryPropose => {
            format!(r#"{{"identity":"0x9","new_account":"{address}","new_public_key":"{key}"}}"#)
        }
        OperationKind::RecoveryExecute => r#"{"identity":"0xe"}"#.to_owned(),
        OperationKind::RecoveryCancel => r#"{"identity":"0xc"}"#.to_owned(),
        OperationKind::RequireV2 => format!(r#"{{"confirm":"{PHRASE}"}}"#),
    }
}

/// A chain that permits every write. `v2` sets whether V2 is already required.
fn willing(call: &Call, v2: bool) -> Vec<Act> {
    if method(call) != "starknet_call" {
        return honest(call);
    }
    let requested = call.json();
    let request = &requested["params"]["request"];
    let view = felt(request["entry_point_selector"].as_str().unwrap());
    if !v2 && view == selector("verification_v2_required") {
        return result(call, r#"["0x0"]"#);
    }
    let first = request["calldata"][0].as_str().unwrap_or_default();
    let mut rows = STATE.iter().filter(|row| selector(row.0) == view);
    match rows.find(|row| row.1 == first || row.1.is_empty()) {
        Some((.., felts)) => result(call, felts),
        None => honest(call),
    }
}

/// A relay in front of a permissive chain that responds with `added` to a submission and with
/// `receipt` to later queries.
fn stage(
    kind: OperationKind,
    added: fn(&Call) -> Vec<Act>,
    receipt: fn(&Call) -> Vec<Act>,
) -> Stage {
    let (v2, nonce) = (kind != OperationKind::RequireV2, AtomicU64::new(0));
    let script = move |call: &Call| match method(call).as_str() {
        _ if is_add(call) => {
            nonce.fetch_add(1, Ordering::Relaxed);
            added(call)
        }
        "starknet_getNonce" => result(call, &format!("\"{:#x}\"", nonce.load(Ordering::Relaxed))),
        "starknet_getTransactionReceipt" => receipt(call),
        _ => willing(call, v2),
    };
    Stage::with_script(script, &KEYS)
}

/// The node already has the transaction.
fn known(call: &Call) -> Vec<Act> {
    error(call, 59)
}

fn in_a_block(call: &Call) -> Vec<Act> {
    crate::support::relay::chain::receipt(call)
}

/// In a block, where its execution failed.
fn reverted(call: &Call) -> Vec<Act> {
    result(
        call,
        r#"{"finality_status":"ACCEPTED_ON_L2","execution_status":"REVERTED"}"#,
    )
}

fn in_no_block(call: &Call) -> Vec<Act> {
    error(call, 29)
}

fn failure(_: &Call) -> Vec<Act> {
    vec![Act::Send(sized(
        "500 Internal Server Error",
        &["Content-Type: text/plain"],
        SECRET,
    ))]
}

/// Asserts the status of each operation whose transaction ends this way.
fn each_comes_to(status: u16, added: fn(&Call) -> Vec<Act>, receipt: fn(&Call) -> Vec<Act>) {
    each(OperationKind::ALL, |kind| {
        let stage = stage(kind, added, receipt);
        let answer = stage.post(&kind.path(), body(kind));
        assert_eq!(answer.status, status, "{kind:?}: {}", answer.text());
        assert_eq!(stage.adds().len(), 1, "{kind:?}: it was submitted");
    });
}

#[test]
fn operations_succeed_once_mined() {
    each_comes_to(200, known, in_a_block);
}

#[test]
fn operations_are_pending_until_mined() {
    each_comes_to(202, known, in_no_block);
}

#[test]
fn operations_report_that_they_reverted() {
    each_comes_to(409, known, reverted);
}

#[test]
fn a_refused_nonce_that_is_used_has_an_unknown_outcome() {
    // something in between may have delivered it twice: nothing is signed with another nonce
    each_comes_to(504, |call| error(call, 52), in_no_block);
}

#[test]
fn an_unanswered_operation_has_an_unknown_outcome() {
    each_comes_to(504, |_| vec![Act::Close], in_no_block);
}

#[test]
fn operations_report_node_and_chain_errors() {
    let [required, open] = [true, false].map(|v2| {
        let script = move |call: &Call| match method(call).as_str() {
            "starknet_getNonce" => failure(call),
            _ => willing(call, v2),
        };
        Stage::with_script(script, &KEYS)
    });
    let other_chain = Stage::with_script(
        |call| match method(call).as_str() {
            "starknet_getClassHashAt" => result(call, "\"0x666\""),
            _ => willing(call, false),
        },
        &KEYS,
    );
    each(OperationKind::ALL, |kind| {
        let stage = if kind == OperationKind::RequireV2 {
            &open
        } else {
            &required
        };
        let answer = stage.post(&kind.path(), body(kind));
        assert_eq!(answer.status, 502, "{kind:?}: {}", answer.text());
        let answer = other_chain.post(&kind.path(), body(kind));
        assert_eq!(answer.status, 503, "{kind:?}: {}", answer.text());
    });
}

/// Every path that accepts a body.
fn paths() -> impl Iterator<Item = String> {
    OperationKind::ALL
        .into_iter()
        .map(OperationKind::path)
        .chain(["/rpc".to_owned()])
}

#[test]
fn each_path_checks_head_and_size() {
    let stage = Stage::scripted_with(&[("relay.requests_per_minute", "1")]);
    let mut clients = (1_u8..).map(|last| format!("192.0.2.{last}"));
    for path in paths() {
        let whole = || post(&path, "{}");
        for (status, request) in [
            (400, whole().without("Host")),
            (401, whole().without("Authorization")),
            (413, post(&path, padded("{}", 65_537))),
            (415, whole().without("Content-Type")),
            (417, whole().with("Expect", "a-miracle")),
        ] {
            let client = clients.next().unwrap();
            let answer = stage.ask(&request.with("X-Forwarded-For", &client));
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
        let spent = clients.next().unwrap();
        let again = |_| {
            stage
                .ask(&post(&path, "[]").with("X-Forwarded-For", &spent))
                .status
        };
        assert_eq!(
            [400, 429],
            [0, 1].map(again),
            "{path}: one request a minute"
        );
    }
}

#[test]
fn each_path_has_the_same_body_timeout() {
    let stage = Stage::scripted();
    let begin = |bytes: &[u8]| {
        let mut client = stage.client();
        client.send(bytes);
        client
    };
    let probe = authorised(Request::new("GET", "/readyz"))
        .with("Content-Length", "1")
        .bytes();
    let bodies = paths().map(|path| post(&path, "{}").bytes());
    let slow = bodies.map(|bytes| begin(&bytes[..bytes.len() - 1]));
    let waiting: Vec<_> = slow.chain([begin(&probe)]).collect();
    for mut client in waiting {
        assert_eq!(client.response().status, 408);
    }
}

#[test]
fn readiness_judges_the_head_of_its_request_too() {
    let stage = Stage::scripted();
    let probe = || authorised(Request::new("GET", "/readyz"));
    assert_eq!(stage.ask(&probe().without("Host")).status, 400);
    assert_eq!(
        stage.ask(&probe().with("Content-Length", "65537")).status,
        413
    );
}
