//! Two relays on one PostgreSQL: what one writes, the other neither writes nor misreports, and a
//! relay that is suspended does not hang the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::admin::{eventually, metrics, series};
use crate::support::client::Client;
use crate::support::folder::Folder;
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::postgres::Database;
use crate::support::relay::chain::{
    USER_KEY, block, error, felt, honest, is_add, is_view, method, receipt, result,
};
use crate::support::relay::expect::{refused, submitted};
use crate::support::relay::stage::{authorised, post, setup};
use crate::support::relay::user::{User, call};

use crate::support::edge::Edge;
use crate::support::request::Request;

const KEYS: [(&str, &str); 1] = [("relay.pins_max_age", "\"1m\"")];
const SETTLES: &str = "portcullis_relay_reconciles";
const MINT: &str = r#"{"recipient":"0x9","card_id":"7"}"#;
/// Long enough for an answer that does not wait.
const MOMENT: Duration = Duration::from_millis(500);

/// Two relays with one store. The node holds each transaction until `accept` is opened.
struct Pair {
    one: Edge,
    two: Edge,
    node: Node,
    reached: Latch,
    accept: Latch,
    is_accepted: Arc<AtomicBool>,
    database: Database,
    _folder: Folder,
}

impl Pair {
    fn start() -> Self {
        let (reached, accept) = (Latch::default(), Latch::default());
        let (database, folder) = (Database::new(), Folder::new());
        let is_accepted = Arc::new(AtomicBool::new(false));
        let node = Node::start(script(&reached, &accept, &is_accepted));
        let setup = setup(node.address(), &folder, &KEYS).set("store.url", &database.url());
        let [one, two] = [setup.start(), setup.start()];
        [&one, &two].into_iter().for_each(catch_up);
        Self {
            one,
            two,
            node,
            reached,
            accept,
            is_accepted,
            database,
            _folder: folder,
        }
    }

    /// Lets the node answer.
    fn accept(&self) {
        self.is_accepted.store(true, Ordering::Relaxed);
        self.accept.open();
    }

    fn adds(&self) -> usize {
        self.node.calls().iter().filter(|call| is_add(call)).count()
    }
}

/// A chain on which every account is verified, and which has each transaction once it may.
fn script(
    reached: &Latch,
    accept: &Latch,
    is_accepted: &Arc<AtomicBool>,
) -> impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static {
    let (reached, accept) = (reached.clone(), accept.clone());
    let is_accepted = Arc::clone(is_accepted);
    move |call| match method(call).as_str() {
        _ if is_add(call) => {
            let hold = [Act::Tell(reached.clone()), Act::Hold(accept.clone())];
            hold.into_iter().chain(error(call, 59)).collect()
        }
        "starknet_getTransactionReceipt" if is_accepted.load(Ordering::Relaxed) => receipt(call),
        "starknet_call" if is_view(call, "is_verified") => result(call, "[\"0x1\"]"),
        _ => honest(call),
    }
}

/// Has it settle what earlier processes left, and prove the pins.
fn catch_up(edge: &Edge) {
    let answer =
        Client::connect(edge.relay()).ask(&post("/recovery-execute", r#"{"identity":"0x1d"}"#));
    refused(&answer, "upstream_invalid", "the stub knows no recovery");
}

/// Sends a request, and returns the connection.
fn begin(edge: &Edge, request: &Request) -> Client {
    let mut client = Client::connect(edge.relay());
    assert!(client.send(request.bytes()), "it is sent");
    client
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn concurrent_equal_transactions_get_one_answer() {
    let pair = Pair::start();
    let approve = call(
        felt("0x205"),
        "approve",
        &[felt("0x201"), 5_u64.into(), 0_u64.into()],
    );
    let fine = User::with_key(USER_KEY).invoke(&[approve], 0);
    let request = post("/rpc", fine.body());
    let mut first = begin(&pair.one, &request);
    assert!(pair.reached.wait(), "the first relay sends it");
    let mut second = begin(&pair.two, &request);
    assert!(
        second.silent_for(MOMENT),
        "the second relay waits for the first"
    );
    pair.accept();
    submitted(&first.response(), fine.hash, "at the first");
    submitted(&second.response(), fine.hash, "at the second");
    assert_eq!(pair.adds(), 1, "the node got it once");
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn concurrent_equal_operations_get_one_answer() {
    for key in [None, Some("k")] {
        let pair = Pair::start();
        let request = post("/mint-card", MINT);
        let request = key
            .into_iter()
            .fold(request, |it, key| it.with("Idempotency-Key", key));
        let mut first = begin(&pair.one, &request);
        assert!(pair.reached.wait(), "the first relay sends it");
        let mut second = begin(&pair.two, &request);
        assert!(
            second.silent_for(MOMENT),
            "{key:?}: the second relay waits for the first"
        );
        pair.accept();
        let (first, second) = (first.response(), second.response());
        assert_eq!(
            [first.status, second.status],
            [200; 2],
            "{key:?}: {}",
            second.text()
        );
        let hash = |at: &crate::support::response::Response| at.json()["transaction_hash"].clone();
        assert_eq!(hash(&first), hash(&second), "{key:?}");
        assert_eq!(pair.adds(), 1, "{key:?}: the node got it once");
    }
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_relay_that_sees_another_chain_writes_nothing_and_loses_nothing() {
    let pair = Pair::start();
    let mut first = begin(&pair.one, &post("/mint-card", MINT));
    assert!(pair.reached.wait(), "the first relay sends it");

    let node = Node::start(|call| match method(call).as_str() {
        "starknet_getBlockWithTxHashes" => block(call, 9),
        _ => honest(call),
    });
    let folder = Folder::new();
    let third = setup(node.address(), &folder, &KEYS)
        .set("store.url", &pair.database.url())
        .start();
    let ready = Client::connect(third.relay()).ask(&authorised(Request::new("GET", "/readyz")));
    assert_eq!(ready.status, 503, "{}", ready.text());
    let pins = ready.json()["pins"].clone();
    let failing = pins
        .as_array()
        .expect("a list")
        .iter()
        .filter(|pin| pin["ok"] == false);
    let failing: Vec<_> = failing.map(|pin| &pin["pin"]).collect();
    assert_eq!(failing, ["shared_epoch"]);
    let answer = Client::connect(third.relay()).ask(&post("/mint-card", MINT));
    refused(
        &answer,
        "pins_unproven",
        "the relays of the store write to another chain",
    );

    pair.accept();
    let first = first.response();
    assert_eq!(
        first.status,
        200,
        "its intent is not lost: {}",
        first.text()
    );
    let repeated = Client::connect(pair.two.relay()).ask(&post("/mint-card", MINT));
    assert_eq!(
        repeated.status,
        200,
        "the others write on: {}",
        repeated.text()
    );
}

/// A chain on which every account is verified, and which counts the nonce; the first transaction
/// waits for `accept`.
fn counting(reached: &Latch, accept: &Latch) -> impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static {
    let (reached, accept, adds) = (reached.clone(), accept.clone(), AtomicUsize::new(0));
    move |call| match method(call).as_str() {
        _ if is_add(call) => {
            let is_first = adds.fetch_add(1, Ordering::Relaxed) == 0;
            let hold = [Act::Tell(reached.clone()), Act::Hold(accept.clone())];
            let hold = is_first.then_some(hold).into_iter().flatten();
            hold.chain(error(call, 59)).collect()
        }
        "starknet_getNonce" => result(call, &format!("\"{:#x}\"", adds.load(Ordering::Relaxed))),
        "starknet_getTransactionReceipt" => receipt(call),
        "starknet_call" if is_view(call, "is_verified") => result(call, "[\"0x1\"]"),
        _ => honest(call),
    }
}

fn mint(card: u32) -> Request {
    post(
        "/mint-card",
        format!(r#"{{"recipient":"0x9","card_id":"{card}"}}"#),
    )
}

/// The card that a transaction mints.
fn card(add: &Call) -> u64 {
    let calldata = add.json()["params"]["invoke_transaction"]["calldata"].clone();
    let felts: Vec<_> = calldata.as_array().expect("a list").iter().collect();
    let low = felts[felts.len() - 2].as_str().expect("a felt");
    felt(low).to_u64().expect("a small number")
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn an_account_is_held_for_a_burst_and_handed_over() {
    let (reached, accept) = (Latch::default(), Latch::default());
    let (database, folder) = (Database::new(), Folder::new());
    let node = Node::start(counting(&reached, &accept));
    let setup = setup(node.address(), &folder, &KEYS).set("store.url", &database.url());
    let one = setup.start();
    // else the second relay might wait for the account to look for open writes
    eventually(&one, "it settles for both", |now| now[SETTLES] == 1.0);
    let two = setup.start();
    catch_up(&two);
    let mut all = vec![begin(&one, &mint(1))];
    assert!(reached.wait(), "the first relay sends it");
    all.extend((2..=20).map(|card| begin(&one, &mint(card))));
    eventually(&one, "nineteen wait", |now| {
        series(now, "portcullis_relay_signer_queue", &["owner"]) == 19.0
    });
    all.push(begin(&two, &mint(1_000)));
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually(&one, "the second relay waits", |_| {
        database.number(waits) == 1
    });
    accept.open();
    for client in &mut all {
        let answer = client.response();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let adds: Vec<u64> = node
        .calls()
        .iter()
        .filter(|call| is_add(call))
        .map(card)
        .collect();
    assert_eq!(adds.len(), 21, "each once");
    let at = adds
        .iter()
        .position(|card| *card == 1_000)
        .expect("it was written");
    assert!(
        (2..=8).contains(&at),
        "after a burst of the first relay, not at its end: {adds:?}"
    );
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn one_relay_settles_for_all_and_another_takes_over() {
    let pair = Pair::start();
    eventually(&pair.one, "one of them does", |now| {
        now[SETTLES] + metrics(&pair.two)[SETTLES] == 1.0
    });
    let (settles, waits) = match metrics(&pair.one)[SETTLES] {
        1.0 => (&pair.one, &pair.two),
        _ => (&pair.two, &pair.one),
    };
    settles.signal("KILL");
    eventually(waits, "the other settles them", |now| now[SETTLES] == 1.0);
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_suspended_relay_does_not_hang_the_other() {
    let pair = Pair::start();
    let request = post("/mint-card", MINT);
    let mut first = begin(&pair.one, &request);
    assert!(pair.reached.wait(), "the first relay sends it");
    pair.one.signal("STOP");
    let bodies = (8..14).map(|card| format!(r#"{{"recipient":"0x9","card_id":"{card}"}}"#));
    let mut others: Vec<_> = bodies
        .map(|body| begin(&pair.two, &post("/mint-card", body)))
        .collect();
    for other in &mut others {
        let answer = other.response();
        let reason = answer.json()["error"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            ["in_progress", "overloaded"].contains(&reason.as_str()),
            "{}",
            answer.text()
        );
        refused(&answer, &reason, "the first relay has the account");
        assert!(answer.header("Retry-After").is_some(), "{reason}");
    }
    let body = r#"{"account":"0x9","reason":"x"}"#;
    let verifiers = Client::connect(pair.two.relay()).ask(&post("/verification-revoke", body));
    refused(
        &verifiers,
        "upstream_invalid",
        "another account is free, and its stub knows nothing",
    );
    pair.accept();
    pair.one.signal("CONT");
    let first = first.response();
    assert!([200, 504].contains(&first.status), "{}", first.text());
    let answer = Client::connect(pair.two.relay()).ask(&request);
    assert_eq!(
        answer.status,
        200,
        "the first relay has let go: {}",
        answer.text()
    );
    assert_eq!(answer.json()["ok"], true);
    assert_eq!(pair.adds(), 1, "the node got the one that was sent, once");
}
