//! What is wrong is reported once, where an operator looks: log, probe, metrics.

use serde_json::Value;

use crate::admin::metrics;
use crate::support::client::PATIENCE;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::good;
use std::time::Instant;

/// Reads until the log has a line of this condition with this message.
fn event(edge: &Edge, condition: &str, message: &str) -> Value {
    let is_it = |line: &Value| line["condition"] == condition && line["message"] == message;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        edge.ask(&Request::post(QUESTION));
        let found =
            edge.lines().iter().find_map(|line| serde_json::from_str(line).ok().filter(is_it));
        if let Some(line) = found {
            return line;
        }
    }
    panic!("no event {condition}: {message}");
}

fn verbose(edge: &Edge) -> (u16, String) {
    let response = edge.admin_get("/readyz?verbose");
    (response.status, response.text().to_owned())
}

#[test]
fn a_node_outage_is_an_event() {
    let node = Node::start(good);
    let address = node.address();
    let edge = Edge::with(&node, &[("gateway.cache.enabled", "false")]);
    assert_eq!(verbose(&edge), (200, "ok\nverdict: ok\n".into()));
    drop(node);
    let down = event(&edge, "node_url", "node URL failed");
    assert_eq!(down["level"], "error", "it is the only one");
    assert_eq!(down["subject"], format!("http://{address}/rpc"));
    assert_eq!(down["cause"], "connection refused");
    let (status, text) = verbose(&edge);
    assert_eq!(status, 200, "the process takes requests");
    assert!(text.contains("verdict: failing") && text.contains(&address.to_string()), "{text}");
    let shown = metrics(&edge);
    assert_eq!(shown[r#"portcullis_condition{condition="node_url"}"#], 1.0);
    assert_eq!(shown[r#"portcullis_condition_failing{condition="node_url"}"#], 1.0);
    let began = r#"portcullis_condition_changes_total{change="began",condition="node_url"}"#;
    assert_eq!(shown[began], 1.0, "it is one event, however many requests fail");
    assert_eq!(shown[r#"portcullis_condition{condition="store"}"#], 0.0);

    let _back = Node::start_at(address, good);
    let up = event(&edge, "node_url", "node URL works again");
    assert_eq!(up["level"], "info");
    assert!(up["lasted"].as_str().is_some_and(|time| time.contains('s')), "{up}");
    assert_eq!(verbose(&edge), (200, "ok\nverdict: ok\n".into()));
}

#[test]
fn readiness_includes_the_node_on_demand() {
    let setup = Setup::before(Node::nowhere()).set("admin.ready_needs_node", "true");
    let edge = setup.start();
    event(&edge, "node_url", "node URL failed");
    let response = edge.admin_get("/readyz");
    assert_eq!(response.status, 503);
    assert_eq!(response.text(), "no URL of the node answers\n");
    assert_eq!(edge.admin_get("/livez").status, 200, "the process lives");
}

#[test]
fn details_of_readiness_need_the_token() {
    let folder = Folder::new();
    let file = format!("\"{}\"", folder.secret("operator.token", &"t".repeat(40)));
    let edge = Setup::before(Node::nowhere()).set("admin.token_file", &file).start();
    assert_eq!(edge.admin_get("/readyz?verbose").status, 401);
    assert_eq!(edge.admin_get("/readyz").status, 200);
    assert_eq!(edge.admin_get("/readyz?other").status, 404);
}
