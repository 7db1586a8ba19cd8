//! Events to the backend: each change of a write arrives, in order, signed, also when the receiver
//! fails, the relay is killed, or another relay continues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use portcullis_filters::hmac;
use serde_json::Value;

use super::rollbacks::{roll_back, written};
use crate::admin::{eventually, series};
use crate::support::client::Client;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::{Act, Call, Node};
use crate::support::postgres::Database;
use crate::support::relay::chain::{error, honest, is_add, is_view, method, receipt, result};
use crate::support::relay::devnet::own_network;
use crate::support::relay::stage::{Stage, post, setup};
use crate::support::script::{send, sized};

const SENT: &str = "portcullis_relay_events_total";
const WAITING: &str = "portcullis_relay_events_waiting";
const KEY: [u8; 32] = [7; 32];
const NEXT_KEY: [u8; 24] = [9; 24];
const PATIENCE: Duration = Duration::from_secs(60);

/// A receiver that answers each event with a status, which a test changes.
struct Receiver {
    node: Node,
    status: Arc<AtomicU16>,
}

impl Receiver {
    fn start(status: u16) -> Self {
        let status = Arc::new(AtomicU16::new(status));
        let shown = Arc::clone(&status);
        let node = Node::start(move |_| {
            let status = shown.load(Ordering::Relaxed);
            // elsewhere is nothing that listens
            let location = "Location: http://127.0.0.1:1/";
            send(sized(&format!("{status} Is"), &[location], ""))
        });
        Self { node, status }
    }

    fn answer(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// The keys of a relay that sends it events.
    fn keys(&self, folder: &Folder) -> [(&'static str, String); 2] {
        let secrets = [&KEY[..], &NEXT_KEY].map(|key| BASE64_STANDARD.encode(key));
        let text = secrets.map(|secret| format!("whsec_{secret}\n")).concat();
        let secret = folder.secret("events.secret", &text);
        let url = format!("http://{}/events/?a=b", self.node.address());
        [
            ("relay.events.url", format!("{url:?}")),
            ("relay.events.secret_file", format!("{secret:?}")),
        ]
    }

    fn set(&self, setup: Setup, folder: &Folder) -> Setup {
        let keys = self.keys(folder);
        keys.iter()
            .fold(setup, |setup, (key, value)| setup.set(key, value))
    }

    /// Switches events on in a running relay.
    fn attach(&self, stage: &mut Stage) {
        stage.setup = self.set(stage.setup.clone(), &stage.folder);
        stage.edge.rewrite(&stage.setup);
        stage.edge.signal("HUP");
        stage.edge.line("the first round", is_sender);
    }

    fn events(&self) -> Vec<Event> {
        self.node.calls().iter().map(Event::of).collect()
    }

    /// Waits for this many attempts.
    fn wait(&self, count: usize) -> Vec<Event> {
        let deadline = Instant::now() + PATIENCE;
        while self.node.calls().len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.events());
            thread::sleep(Duration::from_millis(50));
        }
        self.events()
    }
}

/// An event as it arrived, signed with both keys.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    id: String,
    kind: String,
    data: Value,
}

impl Event {
    fn of(call: &Call) -> Self {
        let head = &call.head;
        assert!(head.starts_with("POST /events/?a=b HTTP/1.1\r\n"), "{head}");
        let headers: BTreeMap<_, _> = call.headers().into_iter().collect();
        assert_eq!(headers["content-type"], "application/json");
        let body = str::from_utf8(&call.body).expect("a body is text");
        let (id, time) = (&headers["webhook-id"], &headers["webhook-timestamp"]);
        let signed = format!("{id}.{time}.{body}");
        let signatures = [&KEY[..], &NEXT_KEY].map(|key| {
            let tag = hmac::sign_with(key, signed.as_bytes());
            format!("v1,{}", BASE64_STANDARD.encode(tag))
        });
        assert_eq!(headers["webhook-signature"], signatures.join(" "));
        let json = call.json();
        Self {
            id: id.clone(),
            kind: json["type"].as_str().expect("a type").to_owned(),
            data: json["data"].clone(),
        }
    }
}

/// A chain that includes each transaction at once, on which every account is verified.
fn including() -> impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static {
    let count = AtomicU64::new(0);
    move |call| match method(call).as_str() {
        _ if is_add(call) => {
            count.fetch_add(1, Ordering::Relaxed);
            error(call, 59)
        }
        "starknet_getNonce" => {
            let nonce = count.load(Ordering::Relaxed);
            result(call, &format!("\"{nonce:#x}\""))
        }
        "starknet_getTransactionReceipt" if count.load(Ordering::Relaxed) > 0 => receipt(call),
        "starknet_call" if is_view(call, "is_verified") => result(call, "[\"0x1\"]"),
        _ => honest(call),
    }
}

fn mint(edge: &Edge, card: u32) {
    let body = format!(r#"{{"recipient":"0x9","card_id":"{card}"}}"#);
    // the scripted chain shows no card, so its answer says nothing
    let _answer = Client::connect(edge.relay()).ask(&post("/mint-card", body));
}

/// A process has read the journal, and sends events from now on.
fn is_sender(line: &Value) -> bool {
    line["message"] == "this process sends the events of writes"
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

#[test]
fn a_final_write_is_announced_once() {
    let receiver = Receiver::start(204);
    let mut stage = Stage::with_script(including(), &[]);
    mint(&stage.edge, 1);
    receiver.attach(&mut stage);
    mint(&stage.edge, 2);
    let events = receiver.wait(1);
    assert_eq!(
        kinds(&events),
        ["write.succeeded"],
        "what was before is not"
    );
    let data = &events[0].data;
    let expected = [
        ("operation", "mint-card"),
        ("state", "succeeded"),
        ("signer", "0x100"),
    ];
    for (name, value) in expected {
        assert_eq!(data[name], value, "{name}");
    }
    assert!(
        data["transaction_hash"]
            .as_str()
            .is_some_and(|hash| hash.len() > 60)
    );
    eventually(&stage.edge, "it is counted", |now| {
        series(now, SENT, &["delivered"]) == 1.0 && now[WAITING] == 0.0
    });
    thread::sleep(Duration::from_secs(3));
    assert_eq!(receiver.events().len(), 1, "it is sent once");
}

#[test]
fn an_event_outlives_its_receiver_and_relay() {
    let receiver = Receiver::start(500);
    let mut stage = Stage::with_script(including(), &[]);
    receiver.attach(&mut stage);
    mint(&stage.edge, 1);
    receiver.wait(1);
    let line = stage.edge.line("a warning", |line| {
        line["message"] == "event not delivered: it is sent again"
    });
    assert_eq!(line["cause"], "status 500", "{line}");
    receiver.answer(307);
    receiver.wait(2);
    stage.edge.signal("KILL");
    stage.edge.wait();
    stage.edge = stage.setup.start();
    mint(&stage.edge, 2);
    receiver.answer(200);
    let is_delivered = |now: &BTreeMap<String, f64>| {
        series(now, SENT, &["delivered"]) >= 2.0 && now[WAITING] == 0.0
    };
    eventually(&stage.edge, "both are delivered", is_delivered);
    let events = receiver.events();
    let ids: BTreeSet<_> = events.iter().map(|event| &event.id).collect();
    assert_eq!(ids.len(), 2, "an event keeps its id");
    let mut attempts = events.iter().filter(|event| event.id == events[0].id);
    assert!(attempts.all(|event| *event == events[0]), "and its body");
    for (card, status) in [(3, 500), (4, 503)] {
        receiver.answer(status);
        mint(&stage.edge, card);
        let cause = format!("status {status}");
        stage.edge.line("each outage has a warning", |line| {
            line["level"] == "warn" && line["cause"] == *cause
        });
        receiver.answer(200);
        eventually(&stage.edge, "it is delivered", |now| now[WAITING] == 0.0);
    }
}

#[test]
fn a_late_event_is_a_condition() {
    let receiver = Receiver::start(410);
    let mut stage = Stage::with_script(including(), &[]);
    receiver.attach(&mut stage);
    mint(&stage.edge, 1);
    receiver.wait(1);
    let deadline = Instant::now() + Duration::from_secs(90);
    let shown = loop {
        let shown = stage.edge.admin_get("/readyz?verbose").text().to_owned();
        if shown.contains("events not delivered") {
            break shown;
        }
        assert!(Instant::now() < deadline, "{shown}");
        thread::sleep(Duration::from_millis(500));
    };
    assert!(shown.contains("status 410"), "{shown}");
    assert_eq!(receiver.events().len(), 1, "it is tried once an hour");
    // the operator decides that there is no receiver
    stage.setup = stage.setup.clone().set("relay.events.url", "\"\"");
    stage.edge.rewrite(&stage.setup);
    stage.edge.signal("HUP");
    eventually(&stage.edge, "nothing waits", |now| now[WAITING] == 0.0);
    stage.edge.line("its end", |line| {
        line["message"] == "events delivered again"
    });
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_rolled_back_write_announces_its_fate() {
    let network = own_network();
    let receiver = Receiver::start(204);
    let mut stage = Stage::on(&network, network.forward());
    receiver.attach(&mut stage);
    let user = network.deployed();
    let body = format!(
        r#"{{"identity":"0x31","recipient":"{}","public_key":"{}"}}"#,
        user.address,
        user.key.public_key()
    );
    let hash = written(&network, &stage.post("/faucet-drip", &body), "the first");
    receiver.wait(1);
    roll_back(&network, &hash);
    receiver.wait(2);
    let again = written(&network, &stage.post("/faucet-drip", &body), "again");
    assert_eq!(again, hash, "the same transaction");
    let events = receiver.wait(4);
    let expected = [
        "write.succeeded",
        "write.displaced",
        "write.found",
        "write.succeeded",
    ];
    assert_eq!(kinds(&events), expected, "{events:?}");
    for event in &events {
        assert_eq!(event.data["transaction_hash"], hash, "{event:?}");
    }
    assert_eq!(events[1].data["previous_state"], "succeeded");
    assert!(events[0].data["block"].is_u64(), "{events:?}");
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_relay_without_a_receiver_leaves_events_to_others() {
    let (database, folder) = (Database::new(), Folder::new());
    let receiver = Receiver::start(204);
    let node = Node::start(including());
    let without = setup(node.address(), &folder, &[]).set("store.url", &database.url());
    let with = receiver.set(without.clone(), &folder);
    let one = with.start();
    one.line("the first round", is_sender);
    let two = with.start();
    one.rewrite(&without);
    one.signal("HUP");
    two.line("it continues", is_sender);
    mint(&one, 1);
    assert_eq!(kinds(&receiver.wait(1)), ["write.succeeded"]);
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn two_relays_announce_each_write() {
    const WRITES: u32 = 12;
    let (database, folder) = (Database::new(), Folder::new());
    let receiver = Receiver::start(204);
    let node = Node::start(including());
    let setup = setup(node.address(), &folder, &[]).set("store.url", &database.url());
    let setup = receiver.set(setup, &folder);
    let mut one = setup.start();
    one.line("the first round", is_sender);
    let two = setup.start();
    for card in 0..WRITES {
        mint(if card % 2 == 0 { &one } else { &two }, card);
        if card == WRITES / 2 {
            receiver.answer(503);
        }
    }
    // its lock ends with it
    one.signal("KILL");
    one.wait();
    receiver.answer(204);
    let recorded = "SELECT count(*) FROM journal WHERE kind = 'succeeded'";
    two.line("the first round", is_sender);
    eventually(&two, "all are delivered", |now| now[WAITING] == 0.0);
    let events = receiver.events();
    let by_id: BTreeMap<_, _> = events.iter().map(|event| (&event.id, event)).collect();
    let delivered = i64::try_from(by_id.len()).expect("a few");
    assert_eq!(
        delivered,
        database.number(recorded),
        "none is lost: {events:?}"
    );
    assert!(delivered >= i64::from(WRITES / 2), "{delivered} writes");
    let repeated = events.iter().all(|event| by_id[&event.id] == event);
    assert!(repeated, "what arrives twice is the same");
}
