//! Settings that the relay applies on SIGHUP: permitted writes and tokens.

use crate::support::node::{Act, Call};
use crate::support::relay::chain::{USER_KEY, honest, is_add};
use crate::support::relay::expect::rpc_refused;
use crate::support::relay::stage::Stage;
use crate::support::relay::user::{ID, User};

#[test]
fn what_may_be_written_changes_on_sighup() {
    let stage = Stage::scripted();
    let user = User::with_key(USER_KEY);
    stage.post("/rpc", stage.fine(&user, 0).body());
    assert_eq!(
        stage.adds().len(),
        1,
        "under the first policy it reaches the node"
    );
    let fine = stage.fine(&user, 1);
    for (key, value) in [("max_l2_gas", "1000000"), ("max_fee", "\"1 fri\"")] {
        let key = format!("relay.policy.{key}");
        stage.edge.rewrite(&stage.setup.clone().set(&key, value));
        stage.edge.signal("HUP");
        let line = stage
            .edge
            .line(&key, |line| line["key"] == *key && line["to"] == value);
        assert_eq!(line["effective"], "now", "{key}");
        rpc_refused(
            &stage.post("/rpc", fine.body()),
            "fee_bound_exceeded",
            ID,
            &key,
        );
    }
    assert_eq!(stage.adds().len(), 1, "what is refused does not reach it");
    stage.edge.rewrite(&stage.setup);
    stage.edge.signal("HUP");
    stage.edge.line("the way back", |line| {
        line["key"] == "relay.policy.max_fee" && line["from"] == "\"1 fri\""
    });
    stage.post("/rpc", fine.body());
    assert_eq!(
        stage.adds().len(),
        2,
        "under the first policy again, it does"
    );
}

#[test]
fn a_sent_transaction_is_answered_under_another_policy() {
    let script = |call: &Call| {
        if is_add(call) {
            vec![Act::Close]
        } else {
            honest(call)
        }
    };
    let stage = Stage::with_script(script, &[]);
    let user = User::with_key(USER_KEY);
    let sent = stage.fine(&user, 0);
    let first = stage.post("/rpc", sent.body());
    rpc_refused(&first, "outcome_unknown", ID, "it was sent");
    let fee = "relay.policy.max_fee";
    stage
        .edge
        .rewrite(&stage.setup.clone().set(fee, "\"1 fri\""));
    stage.edge.signal("HUP");
    stage.edge.line(fee, |line| line["key"] == fee);
    let again = stage.post("/rpc", sent.body());
    let stated = rpc_refused(&again, "outcome_unknown", ID, "it is known");
    assert_eq!(stated["transaction_hash"], sent.hash.to_string());
    let another = stage.fine(&user, 1);
    let refused = stage.post("/rpc", another.body());
    rpc_refused(&refused, "fee_bound_exceeded", ID, "it is not known");
    assert_eq!(stage.adds().len(), 1, "nothing else reaches the node");
}
