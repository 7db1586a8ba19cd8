//! A recovery from its first step to its last, repeats without a key, and what an attestation in
//! force is, on a real chain.

use serde_json::Value;

use crate::support::relay::chain::{CLASS, felt};
use crate::support::relay::devnet::{Network, deployed, network, own_network};
use crate::support::relay::expect::{refused, rpc_refused, submitted};
use crate::support::relay::stage::{Stage, post};
use crate::support::relay::user::{BOUNDS, ID, User, call};
use crate::support::response::Response;
use portcullis_filters::felt::Felt;
use portcullis_filters::tx::Bounds;

/// Asserts that an operation was written, and returns its answer.
fn done(answer: &Response, why: &str) -> Value {
    assert_eq!(answer.status, 200, "{why}: {}", answer.text());
    answer.json()
}

fn drip(identity: &str, user: &User) -> String {
    let (recipient, key) = (user.address, user.key.public_key());
    format!(r#"{{"identity":"{identity}","recipient":"{recipient}","public_key":"{key}"}}"#)
}

fn proposal(identity: &str, user: &User) -> String {
    let (account, key) = (user.address, user.key.public_key());
    format!(r#"{{"identity":"{identity}","new_account":"{account}","new_public_key":"{key}"}}"#)
}

fn registration(identity: &str, user: &User) -> String {
    let (account, key) = (user.address, user.key.public_key());
    format!(r#"{{"identity":"{identity}","account":"{account}","public_key":"{key}"}}"#)
}

/// Posts a body under a key that no other request has.
fn anew(stage: &Stage, path: &str, body: &str, key: &str) -> Response {
    stage.ask(&post(path, body).with("Idempotency-Key", key))
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_recovery_is_done_from_first_to_last() {
    // its time is moved, so that no other test has it
    let network = Network::make();
    let stage = Stage::on(&network, network.forward());
    let (old, new) = (network.deployed(), User::with_key("0x7e57"));
    let (identity, body) = ("0x1d", r#"{"identity":"0x1d"}"#);
    done(
        &stage.post("/register", registration(identity, &old)),
        "register",
    );
    refused(
        &stage.post("/faucet-drip", drip(identity, &new)),
        "identity_taken",
        "nothing is proposed",
    );
    let proposed = stage.post("/recovery-propose", proposal(identity, &new));
    assert!(done(&proposed, "an account without a contract")["ready_at"].is_string());

    let paid = done(
        &stage.post("/faucet-drip", drip(identity, &new)),
        "the new account is paid",
    );
    let again = stage.post("/faucet-drip", drip(identity, &new));
    assert_eq!(done(&again, "without a key"), paid, "once");
    let early = anew(&stage, "/faucet-drip", &drip(identity, &new), "drip-2");
    let error = refused(&early, "faucet_cooldown", "another drip");
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("the next is possible at 20"), "{message}");

    refused(
        &stage.post("/recovery-execute", body),
        "recovery_not_ready",
        "its delay",
    );
    network.ask("devnet_increaseTime", r#"{"time":100000}"#);
    refused(
        &stage.post("/recovery-execute", body),
        "account_not_deployed",
        "nobody could use it",
    );
    let deploy = new.deploy();
    submitted(
        &stage.post("/rpc", deploy.body()),
        deploy.hash,
        "it is deployed",
    );
    let bounds = Bounds {
        l2_gas: (80_000_000, 10_000_000_000),
        ..BOUNDS
    };
    let second = new.deploy_within(felt(CLASS), bounds);
    rpc_refused(
        &stage.post("/rpc", second.body()),
        "account_already_deployed",
        ID,
        "once more",
    );

    let executed = done(&stage.post("/recovery-execute", body), "execute");
    assert_eq!(executed["account"], new.address.to_string());
    let again = stage.post("/recovery-execute", body);
    assert_eq!(done(&again, "without a key"), executed, "once");
    refused(
        &anew(&stage, "/recovery-execute", body, "execute-2"),
        "recovery_not_pending",
        "another recovery",
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_repeated_cancellation_gets_its_outcome() {
    let network = own_network();
    let stage = Stage::on(&network, network.forward());
    let (old, new) = (network.deployed(), network.funded());
    let (identity, body) = ("0xca", r#"{"identity":"0xca"}"#);
    done(
        &stage.post("/register", registration(identity, &old)),
        "register",
    );
    refused(
        &stage.post("/recovery-cancel", body),
        "recovery_not_pending",
        "never proposed",
    );
    for round in ["the first", "the second"] {
        done(
            &stage.post("/recovery-propose", proposal(identity, &new)),
            round,
        );
        let cancelled = done(&stage.post("/recovery-cancel", body), round);
        let again = stage.post("/recovery-cancel", body);
        assert_eq!(done(&again, "without a key"), cancelled, "{round}");
    }
    refused(
        &stage.post("/recovery-execute", body),
        "recovery_not_pending",
        "cancelled by another request",
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn an_identity_is_paid_once_for_its_recoveries() {
    let network = own_network();
    let stage = Stage::on(&network, network.forward());
    let (identity, body) = ("0xa1", r#"{"identity":"0xa1"}"#);
    done(
        &stage.post("/register", registration(identity, &network.deployed())),
        "register",
    );
    for is_paid in [true, false, false] {
        let user = network.funded();
        done(
            &stage.post("/recovery-propose", proposal(identity, &user)),
            "propose",
        );
        let answer = stage.post("/faucet-drip", drip(identity, &user));
        if is_paid {
            done(&answer, "the first proposal");
        } else {
            refused(&answer, "faucet_cooldown", "another proposal");
        }
        done(&stage.post("/recovery-cancel", body), "cancel");
    }
}

/// The body of an attestation of a level.
fn attestation(account: Felt, id: &str, level: u8) -> String {
    format!(
        r#"{{"account":"{account}","attestation_id":"{id}","assurance_type":"age_over_18","assurance_level":{level},"expires_at":"2100-01-01T00:00:00Z"}}"#
    )
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn only_the_attestation_in_force_is_done_already() {
    let network = own_network();
    let stage = Stage::on(&network, network.forward());
    let user = network.deployed();
    done(
        &stage.post("/register", registration("0xa7", &user)),
        "register",
    );
    let [first, second] = ["0xa701", "0xa702"].map(|id| attestation(user.address, id, 1));
    done(&stage.post("/verification-attest", &first), "attest");
    let again = stage.post("/verification-attest", &first);
    assert_eq!(done(&again, "in force")["idempotent"], true);
    done(&stage.post("/verification-attest", &second), "renew");
    let replaced = || stage.post("/verification-attest", &first);
    refused(&replaced(), "attestation_not_in_force", "replaced");
    let revoke = format!(r#"{{"account":"{}","reason":"over"}}"#, user.address);
    done(&stage.post("/verification-revoke", revoke), "revoke");
    refused(&replaced(), "attestation_not_in_force", "still replaced");
    let revoked = stage.post("/verification-attest", &second);
    refused(&revoked, "attestation_replayed", "revoked");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_key_is_answered_after_the_policy_changed() {
    let network = own_network();
    let stage = Stage::on(&network, network.forward());
    let user = network.deployed();
    done(
        &stage.post("/register", registration("0xad", &user)),
        "register",
    );
    let body = attestation(user.address, "0xad01", 3);
    let path = "/verification-attest";
    let first = anew(&stage, path, &body, "attest-3");
    done(&first, "level 3 is listed");
    let (key, value) = ("relay.policy.assurance_levels", "[1, 2]");
    stage.edge.rewrite(&stage.setup.clone().set(key, value));
    stage.edge.signal("HUP");
    stage
        .edge
        .line(key, |line| line["key"] == *key && line["to"] == value);
    let again = anew(&stage, path, &body, "attest-3");
    assert_eq!((again.status, again.text()), (200, first.text()));
    let sent = stage.adds().len();
    refused(&stage.post(path, &body), "assurance_not_allowed", "no key");
    for time in ["a new key", "it was released"] {
        let answer = anew(&stage, path, &body, "attest-4");
        refused(&answer, "assurance_not_allowed", time);
    }
    assert_eq!(stage.adds().len(), sent, "what is refused is not sent");
    stage.edge.rewrite(&stage.setup);
    stage.edge.signal("HUP");
    stage
        .edge
        .line(key, |line| line["key"] == *key && line["from"] == value);
    let released = anew(&stage, path, &body, "attest-4");
    assert_eq!(done(&released, "its key is free")["idempotent"], true);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_nonce_ahead_of_its_account_says_so() {
    let (stage, user) = (Stage::on_devnet(), deployed());
    let args = [stage.pin("staking"), felt("0x1"), Felt::ZERO];
    let approve = call(stage.pin("token"), "approve", &args);
    let next = u64::from_str_radix(
        network()
            .ask(
                "starknet_getNonce",
                &format!(
                    r#"{{"block_id":"pre_confirmed","contract_address":"{}"}}"#,
                    user.address
                ),
            )
            .as_str()
            .and_then(|nonce| nonce.strip_prefix("0x"))
            .expect("a felt"),
        16,
    )
    .expect("a number");
    for (nonce, says) in [
        (next + 3, "ahead of the account's next one"),
        (next - 1, "the nonce is used"),
    ] {
        let signed = user.invoke(core::slice::from_ref(&approve), nonce);
        let answer = stage.post("/rpc", signed.body());
        rpc_refused(&answer, "nonce_conflict", ID, says);
        assert!(answer.text().contains(says), "{}", answer.text());
    }
}
