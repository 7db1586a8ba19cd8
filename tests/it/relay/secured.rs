//! The relay over TLS: the token is checked first, and responses are the same over HTTP/2 as over
//! HTTP/1.1.

use crate::http2::essence;
use crate::support::client2::Client2;
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain;
use crate::support::relay::stage::{authorised, post, setup};
use crate::support::request::{Request, padded};
use crate::support::secure::{Pair, secured};

#[test]
fn every_refusal_is_the_same_over_both_versions() {
    let (node, folder, pair) = (Node::start(chain::honest), Folder::new(), Pair::new());
    pair.write(&folder);
    let edge = secured(setup(node.address(), &folder, &[]), "relay", &folder).start();
    let mut client = Client2::connect(edge.relay(), &pair);
    for (request, status) in [
        (Request::new("GET", "/healthz"), 200),
        (Request::new("GET", "/readyz"), 401),
        (
            Request::post("{}").with("Authorization", "Bearer of-nothing"),
            401,
        ),
        (authorised(Request::new("GET", "/rpc")), 405),
        (authorised(Request::new("GET", "/nothing")), 404),
        (post("/rpc", "{"), 400),
        (post("/rpc", padded("{", 65_537)), 413),
        (post("/register", "{}"), 400),
    ] {
        let over_1 = pair.client(edge.relay()).ask(&request);
        let over_2 = client.ask(&request);
        assert_eq!(over_2.status, status, "{request:?}: {}", over_2.text());
        assert_eq!(essence(&over_2), essence(&over_1), "{request:?}");
    }
}
