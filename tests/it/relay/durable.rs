//! Order of durable writes: an intent is journaled as sent before its first byte, and as accepted
//! while the next operation of the account runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};
use tokio::runtime::{Builder, Runtime};

use crate::admin::eventually;
use crate::support::node::{Act, Call, Latch};
use crate::support::postgres;
use crate::support::relay::chain::{
    USER_KEY, block, error, honest, is_add, is_view, method, receipt, result,
};
use crate::support::relay::expect::refused;
use crate::support::relay::stage::{Stage, post};
use crate::support::relay::user::User;

const MINT: &str = r#"{"recipient":"0x9","card_id":"7"}"#;
const OTHER: &str = r#"{"recipient":"0x9","card_id":"8"}"#;
/// One proof is valid for the whole test: what reads the chain's first block is an operation.
const KEYS: [(&str, &str); 1] = [("relay.pins_max_age", "\"1m\"")];

/// The relay's database, read and locked past the relay.
struct Database {
    runtime: Runtime,
    connection: SqliteConnection,
}

impl Database {
    fn open(file: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let url = format!("sqlite:{file}");
        let connection = runtime.block_on(SqliteConnection::connect(&url)).unwrap();
        Self {
            runtime,
            connection,
        }
    }

    fn run(&mut self, statement: &str) {
        let statement = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
        self.runtime
            .block_on(statement.execute(&mut self.connection))
            .unwrap();
    }

    /// The only column of a query.
    fn texts(&mut self, query: &str) -> Vec<String> {
        let query = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
        self.runtime
            .block_on(query.fetch_all(&mut self.connection))
            .unwrap()
    }

    /// The journal of the newest intent.
    fn newest(&mut self) -> Vec<String> {
        let newest = "WHERE intent_id = (SELECT max(id) FROM intent)";
        self.texts(&format!("SELECT kind FROM journal {newest} ORDER BY seq"))
    }
}

fn database(stage: &Stage) -> Database {
    Database::open(&stage.folder.file("journal.db"))
}

/// A chain that includes each transaction at once; counts them.
#[derive(Clone, Default)]
struct Including(Arc<AtomicU64>);

impl Including {
    fn answer(&self, call: &Call) -> Vec<Act> {
        match method(call).as_str() {
            _ if is_add(call) => {
                self.0.fetch_add(1, Ordering::Relaxed);
                error(call, 59)
            }
            "starknet_getNonce" => result(call, &format!("\"{:#x}\"", self.count())),
            "starknet_getTransactionReceipt" if self.count() > 0 => receipt(call),
            "starknet_call" if is_view(call, "is_verified") => result(call, "[\"0x1\"]"),
            _ => honest(call),
        }
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn an_intent_is_durable_as_sent_before_its_first_byte() {
    let (chain, file) = (Including::default(), Arc::new(OnceLock::<String>::new()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (path, found) = (Arc::clone(&file), Arc::clone(&seen));
    let script = move |call: &Call| {
        if is_add(call) {
            let mut database = Database::open(path.get().expect("the relay runs"));
            let state = database.texts("SELECT state FROM intent ORDER BY id DESC LIMIT 1");
            let bound = database.texts("SELECT identity FROM faucet_binding");
            found
                .lock()
                .unwrap()
                .push((database.newest(), state, bound));
        }
        chain.answer(call)
    };
    let stage = Stage::with_script(script, &KEYS);
    file.set(stage.folder.file("journal.db")).unwrap();
    let user = User::with_key(USER_KEY);
    let (recipient, key) = (user.address, user.key.public_key());
    let drip = format!(r#"{{"identity":"0x77","recipient":"{recipient}","public_key":"{key}"}}"#);
    // this node counts one nonce for all accounts
    let fine = stage.fine(&user, 1);
    for (path, body) in [
        ("/mint-card", MINT.into()),
        ("/rpc", fine.body()),
        ("/faucet-drip", drip),
    ] {
        let answer = stage.post(path, body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    let texts = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    let sent = |bound| (texts(&["intended", "sent"]), texts(&["sent"]), texts(bound));
    assert_eq!(
        *seen.lock().unwrap(),
        [sent(&[]), sent(&[]), sent(&["0x77"])]
    );
}

/// A relay whose next operation reads the chain's first block, after its estimate, as `then` says.
fn between(chain: &Including, then: impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static) -> Stage {
    let (chain, is_estimated) = (chain.clone(), AtomicBool::new(false));
    let script = move |call: &Call| match method(call).as_str() {
        "starknet_estimateFee" => {
            is_estimated.store(true, Ordering::Relaxed);
            chain.answer(call)
        }
        "starknet_getBlockWithTxHashes" if is_estimated.load(Ordering::Relaxed) => then(call),
        _ => chain.answer(call),
    };
    let stage = Stage::with_script(script, &KEYS);
    assert_eq!(stage.ready().status, 200, "the pins are proven before");
    stage
}

#[test]
fn a_crash_between_the_commit_and_the_send_settles() {
    let (chain, latch, once) = (
        Including::default(),
        Latch::default(),
        AtomicBool::new(true),
    );
    let hold = latch.clone();
    let mut stage = between(&chain, move |call| {
        let wait = once
            .swap(false, Ordering::Relaxed)
            .then(|| Act::Hold(hold.clone()));
        wait.into_iter().chain(honest(call)).collect()
    });
    let request = post("/mint-card", MINT).with("Idempotency-Key", "k");
    let mut client = stage.client();
    assert!(client.send(request.bytes()));
    eventually(&stage.edge, "it is durable", |_| {
        database(&stage).newest() == ["intended", "sent"]
    });
    assert_eq!(chain.count(), 0, "nothing was sent yet");
    stage.edge.signal("KILL");
    stage.edge.wait();
    latch.open();
    stage.edge = stage.setup.start();
    let answer = stage.ask(&request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(chain.count(), 1, "it was sent once");
    let mut database = database(&stage);
    assert_eq!(
        database.newest(),
        ["intended", "sent", "accepted", "succeeded"]
    );
    let hashes = database.texts("SELECT transaction_hash FROM intent");
    assert_eq!(
        hashes,
        [answer.json()["transaction_hash"].as_str().unwrap()],
        "as it was signed"
    );
}

#[test]
fn what_another_chain_would_get_is_journaled_as_not_sent() {
    let chain = Including::default();
    let stage = between(&chain, |call| block(call, 9));
    let drip = |identity: u32| {
        let user = User::with_key(USER_KEY);
        let (recipient, key) = (user.address, user.key.public_key());
        let body = format!(r#""recipient":"{recipient}","public_key":"{key}""#);
        post(
            "/faucet-drip",
            format!(r#"{{"identity":"{identity:#x}",{body}}}"#),
        )
    };
    refused(
        &stage.ask(&drip(0x77)),
        "pins_unproven",
        "the chain started again",
    );
    assert_eq!(chain.count(), 0, "nothing was sent");
    let mut database = database(&stage);
    assert_eq!(database.newest(), ["intended", "sent", "rejected"]);
    assert_eq!(
        database.texts("SELECT detail FROM intent"),
        ["not sent: the chain was not confirmed"]
    );
    assert_eq!(
        database.texts("SELECT identity FROM faucet_binding"),
        [""; 0],
        "nothing is bound"
    );
    eventually(&stage.edge, "the new chain is in force", |_| {
        stage.ask(&drip(0x78)).status == 200
    });
}

#[test]
fn the_next_operation_starts_before_the_last_one_is_journaled_as_accepted() {
    let (chain, file) = (Including::default(), Arc::new(OnceLock::<String>::new()));
    let holder = Mutex::new(None::<Database>);
    let (in_turn, path, counted) = (Latch::default(), Arc::clone(&file), chain.clone());
    let (reached, both) = (in_turn.clone(), Latch::default());
    let wait = both.clone();
    let script = move |call: &Call| {
        let mut acts = chain.answer(call);
        match method(call).as_str() {
            // the second one waits for the account before the first one is sent
            "starknet_estimateFee" if chain.count() == 0 => {
                acts.insert(0, Act::Hold(wait.clone()));
                acts.insert(0, Act::Tell(reached.clone()));
            }
            // nothing can be committed any more
            _ if is_add(call) && chain.count() == 1 => {
                let mut database = Database::open(path.get().expect("the relay runs"));
                database.run("BEGIN IMMEDIATE");
                *holder.lock().unwrap() = Some(database);
            }
            "starknet_estimateFee" => {
                let mut database = holder.lock().unwrap().take().expect("it is locked");
                assert_eq!(database.newest(), ["intended", "sent"], "the first one");
                database.run("ROLLBACK");
            }
            _ => {}
        }
        acts
    };
    let stage = Stage::with_script(script, &KEYS);
    file.set(stage.folder.file("journal.db")).unwrap();
    let send = |body: &str| {
        let mut client = stage.client();
        assert!(client.send(post("/mint-card", body).bytes()));
        client
    };
    let mut first = send(MINT);
    assert!(in_turn.wait(), "the first one has the account");
    let mut second = send(OTHER);
    let waiting = "portcullis_relay_signer_queue";
    eventually(&stage.edge, "the second one waits", |metrics| {
        metrics
            .iter()
            .any(|(name, value)| name.starts_with(waiting) && *value > 0.0)
    });
    both.open();
    for client in [&mut first, &mut second] {
        let answer = client.response();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(counted.count(), 2, "both were sent");
    let states = database(&stage).texts("SELECT state FROM intent");
    assert_eq!(states, ["succeeded", "succeeded"]);
}

/// A commit that takes longer than the relay waits for it: 5 s.
const OUTLASTS: &str = "CREATE FUNCTION outlast() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    PERFORM pg_sleep(7); RETURN NULL; END $$; \
    CREATE CONSTRAINT TRIGGER outlasts AFTER INSERT ON intent \
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION outlast()";

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn an_intent_whose_commit_had_no_answer_is_sent_once() {
    let (chain, database) = (Including::default(), postgres::Database::new());
    let (script, url) = (chain.clone(), database.url());
    let stage = Stage::with_script(
        move |call| script.answer(call),
        &[KEYS[0], ("store.url", &url)],
    );
    assert_eq!(stage.ready().status, 200, "the tables are there");
    database.run(OUTLASTS);
    let error = refused(
        &stage.post("/mint-card", MINT),
        "outcome_unknown",
        "no answer",
    );
    assert!(
        error["transaction_hash"].is_string(),
        "it names what may be sent"
    );
    assert_eq!(chain.count(), 0, "nothing was sent yet");
    database.run("DROP TRIGGER outlasts ON intent");
    eventually(&stage.edge, "it was stored, and is settled", |_| {
        database.number("SELECT count(*) FROM intent WHERE state = 'succeeded'") == 1
    });
    assert_eq!(chain.count(), 1, "it was sent once");
}
