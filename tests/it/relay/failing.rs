//! A first URL of the node that fails: writes go on by the second one, and what was sent to one URL
//! is sent to no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::rollbacks::written;
use crate::support::check::each;
use crate::support::node::{Act, Call, Node};
use crate::support::relay::chain::{self, USER_KEY, honest, is_add};
use crate::support::relay::devnet::own_network;
use crate::support::relay::expect::rpc_refused;
use crate::support::relay::stage::{Stage, post};
use crate::support::relay::user::User;
use crate::support::script::{http, json as answer, send, sized};

type Fault = (&'static str, fn(&Call) -> Vec<Act>);

const FAULTS: [Fault; 6] = [
    ("502", |_| send(sized("502 Bad Gateway", &[], "no"))),
    ("401", |_| send(sized("401 Unauthorized", &[], "no"))),
    ("301", |_| {
        send(http("301 Moved", &["Location: /", "Content-Length: 0"], ""))
    }),
    ("HTML", |_| send(answer("<html>hello</html>"))),
    ("closed", |_| vec![Act::Close]),
    ("internal", |call| chain::error(call, -32_603)),
];

/// Starts the relay again, with this node behind its own.
fn with_second(mut stage: Stage, second: &Node) -> Stage {
    let urls = [stage.node.address(), second.address()].map(|at| format!("http://{at}/rpc"));
    stage.edge.signal("KILL");
    stage.edge.wait();
    stage.setup = stage.setup.set("node.url", &json!(urls).to_string());
    stage.edge = stage.setup.start();
    stage
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn writes_go_on_while_the_first_url_fails() {
    let network = own_network();
    let fault = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&fault);
    let second = Node::start(network.forward());
    let stage = Stage::on(&network, move |call| {
        FAULTS[current.load(Ordering::SeqCst)].1(call)
    });
    let stage = with_second(stage, &second);
    for (at, (what, _)) in FAULTS.iter().enumerate() {
        fault.store(at, Ordering::SeqCst);
        let user = network.funded();
        let (address, key) = (user.address, user.key.public_key());
        let body = format!(
            r#"{{"identity":"{:#x}","recipient":"{address}","public_key":"{key}"}}"#,
            0x500 + at
        );
        written(&network, &stage.ask(&post("/faucet-drip", body)), what);
        assert_eq!(stage.ready().status, 200, "{what}");
    }
}

#[test]
fn what_was_sent_to_one_url_is_sent_to_no_other() {
    each(FAULTS, |(what, fault)| {
        let second = Node::start(honest);
        let stage = Stage::with_script(
            move |call| {
                if is_add(call) {
                    fault(call)
                } else {
                    honest(call)
                }
            },
            &[("relay.pins_max_age", "\"1m\"")],
        );
        let stage = with_second(stage, &second);
        let fine = stage.fine(&User::with_key(USER_KEY), 0);
        let response = stage.post("/rpc", fine.body());
        rpc_refused(&response, "outcome_unknown", "7", what);
        let others = second.calls().into_iter().filter(is_add).count();
        assert_eq!((stage.adds().len(), others), (1, 0), "{what}");
    });
}
