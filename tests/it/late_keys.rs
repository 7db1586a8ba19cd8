//! Keys of sessions that cannot be fetched when the service starts.

use crate::support::client::Client;
use crate::support::edge::Edge;
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain::honest;
use crate::support::request::{QUESTION, Request};
use crate::support::response::Response;
use crate::support::sidecar::stage::{self as sidecar, BASE};
use crate::support::sidecar::token::Token;

const SESSION: &str = "/functions/age-verification-session";
const USER: &str = "5b0b6f9e-0c55-4b0e-9d0a-6b8d4f1c2a77";

fn of_sidecar(edge: &Edge, request: &Request) -> Response {
    Client::connect(edge.sidecar()).ask(request)
}

#[test]
fn keys_of_sessions_that_are_away_close_nothing_else() {
    let (node, folder) = (Node::start(honest), Folder::new());
    let away = format!("\"http://{}/jwks\"", Node::nowhere());
    let keys = [
        ("gateway.listen", "\"127.0.0.1:0\""),
        ("sidecar.session.jwks_url", &away),
    ];
    let setup = sidecar::setup(&folder, &keys)
        .set("node.url", &format!("\"http://{}/rpc\"", node.address()))
        .set("sidecar.base_url", &format!("\"{BASE}\""));
    let edge = setup.start();
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "the gateway serves"
    );
    assert_eq!(
        of_sidecar(&edge, &Request::new("GET", "/robots.txt")).status,
        200
    );
    let known = of_sidecar(&edge, &Token::of(USER).on(sidecar::post(SESSION, "")));
    assert_eq!(known.status, 201, "a session that a secret signs");
    let other = Token::of(USER)
        .header("alg", "ES256".into())
        .header("kid", "1".into());
    let other = of_sidecar(&edge, &other.on(sidecar::post(SESSION, "")));
    assert_eq!(
        (other.status, &other.json()["error"]),
        (503, &"KeysUnavailable".into())
    );
}
