//! Background tasks: each of them panics once, and is started again.

use portcullis_base::telemetry::Task;

use crate::admin::eventually;
use crate::support::away::Way;
use crate::support::client::Client;
use crate::support::edge::Setup;
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain::honest;
use crate::support::relay::stage;
use crate::support::request::Request;
use crate::support::secure::NAME;

/// Everything that has a task, with parts that are away: no task depends on their answers.
fn everything(folder: &Folder, way: &Way, node: &Node) -> Setup {
    let secret = folder.secret("fleet.secret", "fleet-0123456789abcdef0123456789abcdef");
    let node = node.address();
    let keys = [
        ("gateway.listen", "\"127.0.0.1:0\"".to_owned()),
        ("gateway.cache.enabled", "true".to_owned()),
        ("gateway.tls.domains", format!("[{NAME:?}]")),
        ("tls.acme.terms_accepted", "true".to_owned()),
        (
            "tls.acme.directory",
            "\"https://127.0.0.1:1/dir\"".to_owned(),
        ),
        (
            "tls.acme.folder",
            format!("\"{}\"", folder.path().display()),
        ),
        ("sidecar.listen", "\"127.0.0.1:0\"".to_owned()),
        ("sidecar.base_url", "\"https://portcullis.test\"".to_owned()),
        ("fleet.url", "\"redis://127.0.0.1:1\"".to_owned()),
        ("fleet.secret_file", format!("{secret:?}")),
        ("trace.endpoint", "\"http://127.0.0.1:1\"".to_owned()),
        ("node.max_block_age", "\"5m\"".to_owned()),
        ("store.url", way.url()),
    ];
    let setup = stage::setup(node, folder, &[]).environment("WATCHDOG_USEC", "10000000");
    keys.iter()
        .fold(setup, |setup, (key, value)| setup.set(key, value))
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn each_background_task_survives_a_panic() {
    let (mut way, folder) = (Way::closed(), Folder::new());
    let node = Node::start(honest);
    let edge = everything(&folder, &way, &node)
        .environment("PORTCULLIS_TEST_PANICS", "1")
        .start();
    let failures = "portcullis_task_failures_total{";
    eventually(&edge, "each task has panicked", |now| {
        let tasks = now.iter().filter(|(name, _)| name.starts_with(failures));
        let panicked = tasks.filter(|(_, panics)| **panics == 1.0);
        panicked.count() == Task::ALL.len()
    });
    let shown = edge.admin_get("/readyz?verbose").text().to_owned();
    assert!(
        shown.contains("background task failed (reconciliation)"),
        "{shown}"
    );

    way.open();
    eventually(
        &edge,
        "the store is prepared, and the relay's intents are settled",
        |now| now["portcullis_relay_reconciles"] == 1.0,
    );
    let sitemap = Request::new("GET", "/functions/seo-sitemap");
    let served = Client::connect(edge.sidecar()).ask(&sitemap);
    assert_eq!(served.status, 200, "{}", served.text());
    edge.line("the log goes on", |line| {
        line["path"] == "/functions/seo-sitemap"
    });
}
