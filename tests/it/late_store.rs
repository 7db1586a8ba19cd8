//! PostgreSQL that is away: when the service starts, and while it runs.

use std::time::{Duration, Instant};

use crate::admin::eventually;
use crate::support::away::Way;
use crate::support::client::Client;
use crate::support::edge::Edge;
use crate::support::node::Call;
use crate::support::relay::chain::{self, USER_KEY, honest, is_add};
use crate::support::relay::expect::rpc_refused;
use crate::support::relay::stage::Stage;
use crate::support::relay::user::{ID, User};
use crate::support::request::{QUESTION, Request};
use crate::support::response::Response;

/// Far less than six waits of a pool for a connection, 3 s each, on a busy machine, too.
const AT_ONCE: Duration = Duration::from_secs(6);

/// All three surfaces, with their store at the end of this way.
fn start(way: &Way) -> Stage {
    let listen = "\"127.0.0.1:0\"";
    // the node has each transaction already, so it is accepted whatever its hash
    let script = |call: &Call| {
        if is_add(call) {
            chain::error(call, 59)
        } else {
            honest(call)
        }
    };
    Stage::with_script(
        script,
        &[
            ("store.url", &way.url()),
            ("gateway.listen", listen),
            ("sidecar.listen", listen),
            ("sidecar.base_url", "\"https://portcullis.test\""),
            ("sidecar.requests_per_minute", "1000000"),
        ],
    )
}

fn sitemap(edge: &Edge) -> Response {
    Client::connect(edge.sidecar()).ask(&Request::new("GET", "/functions/seo-sitemap"))
}

fn is_refused(edge: &Edge) -> bool {
    edge.admin_get("/readyz?verbose")
        .text()
        .contains("connection refused")
}

#[test]
fn a_start_without_postgresql_serves_and_catches_up() {
    let mut way = Way::closed();
    let stage = start(&way);
    let edge = &stage.edge;
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "the gateway needs no store"
    );
    assert_eq!(sitemap(edge).status, 503, "the sidecar does");
    let fine = stage.fine(&User::with_key(USER_KEY), 0);
    rpc_refused(
        &stage.post("/rpc", fine.body()),
        "store_unavailable",
        ID,
        "so does the relay",
    );
    assert_eq!(stage.adds().len(), 0, "nothing is sent without the journal");
    edge.line("the start", |line| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("starting without the store"))
    });
    eventually(edge, "the cause is named", |_| is_refused(edge));
    let check = stage.setup.run("check");
    assert_eq!(check.status.code(), Some(1), "a check still fails");

    way.open();
    eventually(edge, "the sidecar serves", |_| sitemap(edge).status == 200);
    eventually(edge, "nothing is wrong", |_| !is_refused(edge));
    stage.assert_passes(&fine);
}

#[test]
fn a_stopped_postgresql_refuses_at_once() {
    let mut way = Way::closed();
    way.open();
    let stage = start(&way);
    let edge = &stage.edge;
    assert_eq!(sitemap(edge).status, 200);
    way.close();
    eventually(edge, "the cause is named", |_| is_refused(edge));
    edge.line("the cause in the log", |line| {
        let cause = line["cause"].as_str().unwrap_or_default();
        line["message"] == "store unreachable" && cause.ends_with(": connection refused")
    });
    let fine = stage.fine(&User::with_key(USER_KEY), 0);
    let started = Instant::now();
    for _ in 0..3 {
        assert_eq!(sitemap(edge).status, 503);
        rpc_refused(
            &stage.post("/rpc", fine.body()),
            "store_unavailable",
            ID,
            "it is away",
        );
    }
    assert!(
        started.elapsed() < AT_ONCE,
        "six refusals took {:?}",
        started.elapsed()
    );
    way.open();
    eventually(edge, "the sidecar serves", |_| sitemap(edge).status == 200);
    eventually(edge, "nothing is wrong", |_| !is_refused(edge));
    stage.assert_passes(&fine);
}
