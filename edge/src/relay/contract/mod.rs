//! The driver keeps the contract of `Io`: the suite of `filters/tests/simulation/contract` before
//! `starknet-devnet` on PATH, over two faulty URLs, with SQLite and with the PostgreSQL at
//! `PORTCULLIS_TEST_POSTGRES`, which `tests/lib/postgres.sh` provides. Without these it fails.

mod database;
mod node;
#[path = "../../../../filters/tests/simulation/contract/mod.rs"]
mod suite;

use super::driver::Driver;
use super::pins::Prover;
use super::settings::{Keys, Pinned, Pins, Settings};
use super::signers;
use super::trace::Trace;
use crate::http::clients::Running;
use crate::node::chain::Chain;
use crate::node::{Credentials, Node, NodeClient, Poller};
use database::{Database, Kind};
use node::{Network, Url};
use pingora::services::background::BackgroundService as _;
use portcullis_base::config::Config;
use portcullis_base::io::MemoryPool;
use portcullis_base::telemetry::{Metrics, RequestRecord};
use portcullis_filters::bearer::Tokens;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Intent, IntentId};
use portcullis_filters::tx::{Call, selector};
use portcullis_filters::txm::io::Io as _;
use portcullis_store::Store;
use std::sync::Arc;
use std::time::Duration;
use suite::{Commit, Effect, Mode, Stage, cases, shared_cases};
use tokio::sync::watch;

/// Long enough for a receipt of a busy devnet, and short enough for a test without an answer.
const TIMEOUT: &str = "2s";

macro_rules! on_sqlite {
    ($($module:ident: $($case:ident)*;)*) => {
        $($(
            #[test]
            #[ignore = "needs starknet-devnet: run tests/run"]
            fn $case() {
                super::run(super::Kind::Sqlite, super::suite::$module::$case);
            }
        )*)*
    };
}

macro_rules! on_postgres {
    ($($module:ident: $($case:ident)*;)*) => {
        $($(
            #[test]
            #[ignore = "needs starknet-devnet and PostgreSQL: run tests/run"]
            fn $case() {
                super::run(super::Kind::Postgres, super::suite::$module::$case);
            }
        )*)*
    };
}

mod sqlite {
    super::cases!(on_sqlite);
}

mod postgres {
    super::cases!(on_postgres);
    super::shared_cases!(on_postgres);
}

/// Relays on one database, before one node.
struct RealStage {
    drivers: Vec<Arc<Driver>>,
    urls: [Url; 2],
    network: Network,
    database: Database,
    /// Ends the polls of the node.
    _shutdown: watch::Sender<bool>,
}

fn run(kind: Kind, case: impl AsyncFnOnce(&RealStage)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has threads");
    runtime.block_on(async {
        let stage = RealStage::open(kind).await;
        case(&stage).await;
        let RealStage {
            drivers, database, ..
        } = stage;
        drop(drivers);
        database.drop().await;
    });
}

impl RealStage {
    async fn open(kind: Kind) -> Self {
        let network = Network::take().await;
        let urls = [Url::of(&network).await, Url::of(&network).await];
        let database = Database::create(kind).await;
        let (shutdown, ended) = watch::channel(false);
        let mut stage = Self {
            drivers: Vec::new(),
            urls,
            network,
            database,
            _shutdown: shutdown,
        };
        for url in stage.database.urls().await {
            let driver = stage.driver(&url, &ended).await;
            stage.drivers.push(driver);
        }
        stage
    }

    /// A driver as `process` builds it.
    async fn driver(&self, store: &str, ended: &watch::Receiver<bool>) -> Arc<Driver> {
        let config = self.config(store);
        let relay = config.relay.clone().expect("the section is there");
        let metrics = Arc::new(Metrics::default());
        let credentials = Credentials::load(&config.node.live, &config.node.url);
        let node = Node::new(&config.node, credentials, Arc::clone(&metrics));
        let poller = Poller::new(&config.node, &node);
        let ended = ended.clone();
        tokio::spawn(async move { poller.start(ended).await });
        let memory = MemoryPool::new(config.server.answer_memory.bytes());
        let chain = Arc::new(Chain(NodeClient::new(&config.node, &node, memory)));
        let store = config.store.as_ref().expect("the section is there");
        let store = Store::open(store, None).await;
        let store = Arc::new(store.expect("the database is empty"));
        let [owner, verifier] = self.network.keys();
        let keys = Keys {
            owner,
            verifier,
            faucet: None,
        };
        let pins = Arc::new(Pins::new(&relay, &keys));
        let running = Settings::new(&relay.live, Tokens::none(), Pinned::new(&relay.pins));
        let running = Arc::new(Running::new(running, &relay.clients));
        let signers = signers::new(&pins, keys, &store);
        let prover = Prover::new(
            Arc::clone(&pins),
            Arc::clone(&chain),
            Arc::clone(&running),
            Some(Arc::clone(&store)),
            Arc::clone(&metrics),
        );
        let pins = pins.for_writes();
        Arc::new(Driver::new(
            pins, &chain, store, &prover, signers, &running, &metrics,
        ))
    }

    fn config(&self, store: &str) -> Config {
        let [first, second] = &self.urls;
        let pins = self.network.pins();
        let text = format!(
            r#"
            node.url = ["{}", "{}"]
            node.timeout = "{TIMEOUT}"
            node.connect_timeout = "500ms"
            store.url = "{store}"
            [relay]
            token_files = "unused"
            keys.owner_file = "unused-owner"
            keys.verifier_file = "unused-verifier"
            policy.identity_verification_mode = "v2"
            policy.verification_v2_required = true
            policy.ecosystem_ready = true
            [relay.pins]
            {pins}
            "#,
            first.url(),
            second.url()
        );
        Config::parse(&text, []).unwrap_or_else(|errors| panic!("{errors}"))
    }
}

impl Stage for RealStage {
    type Io = Driver;

    fn io(&self) -> &Arc<Driver> {
        &self.drivers[0]
    }

    fn other(&self) -> Option<&Arc<Driver>> {
        self.drivers.get(1)
    }

    fn trace(&self) -> Trace {
        Trace::new(None, RequestRecord::default())
    }

    fn nobody(&self) -> Felt {
        Felt::from(0x5eed_u64)
    }

    fn effect(&self, number: u64) -> Effect {
        let token = self.io().pins().contracts.token;
        let recipient = Felt::from(0x7000 + number);
        Effect {
            call: Call {
                to: token,
                selector: selector("transfer"),
                args: vec![recipient, Felt::from(number), Felt::ZERO],
            },
            to: token,
            view: selector("balance_of"),
            args: vec![recipient],
        }
    }

    async fn woken(&self) {
        self.io().left_open.notified().await;
    }

    async fn close_block(&self) {
        self.network.ask("devnet_createBlock", "{}").await;
    }

    async fn roll_back(&self, blocks: u64) {
        let head = self.network.ask("starknet_blockNumber", "[]").await;
        let first = head.as_u64().expect("it is a number") + 1 - blocks;
        let params = format!(r#"{{"starting_block_id":{{"block_number":{first}}}}}"#);
        self.network.ask("devnet_abortBlocks", &params).await;
    }

    async fn start_over(&self) {
        // the first block's timestamp, in seconds, identifies the chain
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        self.network.ask("devnet_restart", "{}").await;
    }

    async fn set_url(&self, url: usize, mode: Mode) {
        self.urls[url].set(mode).await;
    }

    async fn stored(&self, id: IntentId) -> Option<Intent> {
        self.database.read(id).await
    }

    async fn end_sessions(&self) {
        self.database.end_sessions().await;
    }

    async fn cut_commit(&self, commit: Commit) {
        self.database.cut(commit);
    }
}
