//! Why an attempt at a URL of the node failed, in the words that the operator reads.

use std::net::TcpStream;

use portcullis_base::config::{Config, NodeConfig};
use portcullis_base::io::MemoryPool;
use portcullis_edge::node::{
    Call as NodeCall, ConnectionChoice, Credentials, MAX_ANSWER, Node as SharedNode, NodeClient,
    NodeError,
};
use tokio::time::Instant;

use crate::support::node::{Act, Call, Node};
use crate::support::script::{good, json, send, sized};

const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"starknet_chainId"}"#;

fn client(config: &NodeConfig) -> NodeClient {
    let node = SharedNode::new(
        config,
        Credentials::load(&config.live, &config.url),
        Default::default(),
    );
    NodeClient::new(config, &node, MemoryPool::new(4 * MAX_ANSWER))
}

/// Makes a call by a new connection.
async fn ask(client: &NodeClient) -> Result<(), NodeError> {
    let write = |_, out: &mut Vec<u8>| out.extend_from_slice(REQUEST.as_bytes());
    let call = NodeCall::new(write, Instant::now() + client.timeout());
    client
        .fetch(call.over(ConnectionChoice::New))
        .await
        .map(drop)
}

/// Sends one request to this URL, and returns why it failed.
async fn cause_at(url: &str) -> Option<String> {
    let text = format!(
        "[node]\nurl = \"{url}\"\ntimeout = \"200ms\"\n[gateway]\nlisten = \"127.0.0.1:0\"\n"
    );
    let config = Config::parse(&text, []).expect("a configuration").node;
    let client = client(&config);
    let _failed = ask(&client).await;
    client.status().failure_cause(0)
}

#[tokio::test]
async fn each_kind_of_failure_keeps_its_cause() {
    let stub = Node::start(|_| send(sized("500 Broken", &[], "")));
    let text = format!("[node]\nurl = \"http://{}/rpc\"\n[admin]\n", stub.address());
    let config = Config::parse(&text, []).expect("a configuration").node;
    let client = client(&config);
    let status = client.status();
    assert_eq!(ask(&client).await.err(), Some(NodeError::Status));
    let address = stub.address();
    drop(stub);
    while TcpStream::connect(address).is_ok() {}
    while status.urls().iter().all(|url| url.failure.is_none()) {
        assert_eq!(ask(&client).await.err(), Some(NodeError::Unreachable));
    }
    let mut failures = status.failures();
    failures.sort_by_key(|failure| failure.at);
    let causes: Vec<_> = failures
        .iter()
        .map(|one| (&*one.cause, one.stops_calls))
        .collect();
    assert_eq!(
        causes,
        [
            ("500 Internal Server Error", false),
            ("connection refused", true)
        ]
    );
    let cause = status.urls().into_iter().find_map(|url| url.cause);
    assert_eq!(
        cause.as_deref(),
        Some("connection refused"),
        "why it gets no calls"
    );
}

#[tokio::test]
async fn each_failure_names_its_cause() {
    type Script = fn(&Call) -> Vec<Act>;
    let scripts: [(Script, Option<&str>); 10] = [
        (good, None),
        (
            |_| send(sized("405 Method Not Allowed", &[], "")),
            Some("405 Method Not Allowed"),
        ),
        (
            |_| send(sized("401 What", &[], "")),
            Some("401 Unauthorized"),
        ),
        (
            |_| send(sized("308 Moved", &["Location: /"], "")),
            Some("308 Permanent Redirect"),
        ),
        (
            |_| send(sized("408 Late", &[], "")),
            Some("408 Request Timeout"),
        ),
        (
            |_| send(sized("599 Odd", &[], "")),
            Some("599 (unknown status)"),
        ),
        (
            |_| vec![Act::Close],
            Some("the connection ended before the answer"),
        ),
        (|_| vec![Act::Hang], Some("no answer in time")),
        (
            |_| send(json("{}")),
            Some("the answer is not one complete JSON-RPC 2.0 response"),
        ),
        (
            |_| send(sized("200 OK", &["Content-Length: 4194305"], "")),
            Some("the answer is not one complete JSON-RPC 2.0 response"),
        ),
    ];
    for (script, cause) in scripts {
        let node = Node::start(script);
        let found = cause_at(&format!("http://{}/rpc", node.address())).await;
        assert_eq!(found.as_deref(), cause);
    }
    let found = cause_at(&format!("http://{}/rpc", Node::nowhere())).await;
    assert_eq!(found.as_deref(), Some("connection refused"));
    let found = cause_at("http://no-such-host.invalid/rpc")
        .await
        .expect("it has no address");
    let is_known = found.starts_with("cannot resolve the host name: ");
    // a resolver that does not answer is as good
    assert!(is_known || found == "no answer in time", "{found}");
    assert!(!found.contains("os error"), "{found}");
}
