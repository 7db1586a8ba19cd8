//! Access to the operator's page: by the name of the host, by the page that sends the request, and
//! by the token.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::operator::{ask, local};
use crate::support::client::PATIENCE;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::Request;
use crate::support::script::good;

const TOKEN: &str = "token-of-the-operator-0123456789abc";
const OTHER: &str = "another-token-0123456789abcdef01234";
/// Every path of the page.
const PATHS: [&str; 5] = ["/", "/page.js", "/page.css", "/config", "/errors"];

fn with(path: &str, value: &str) -> Request {
    Request::new("GET", path).with("Authorization", value)
}

fn basic(pair: &str) -> String {
    format!("Basic {}", STANDARD.encode(pair))
}

#[test]
fn a_foreign_host_is_refused_the_page() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let named = |path, host| Request::new("GET", path).without("Host").with("Host", host);
    for path in PATHS
        .into_iter()
        .chain(["/events", "/journal", "/journal/entries?intent=1"])
    {
        for host in [
            "evil.example",
            "evil.example:8083",
            "localhost.evil.example",
            "10.1.2.3",
        ] {
            let refused = ask(&edge, &named(path, host));
            assert_eq!(refused.status, 421, "{path} as {host}");
            assert!(
                !refused.text().contains(host),
                "{path}: nothing is repeated"
            );
        }
        let other = ask(&edge, &local(path).with("Sec-Fetch-Site", "cross-site"));
        assert_eq!(other.status, 403, "{path} for another page");
    }
    for path in PATHS {
        for host in ["localhost", "127.0.0.1:9", "[::1]:8083"] {
            assert_eq!(
                ask(&edge, &named(path, host)).status,
                200,
                "{path} as {host}"
            );
        }
    }
    // a page whose name leads to this machine could read them
    assert_eq!(
        ask(&edge, &named("/metrics", "evil.example")).status,
        421,
        "metrics"
    );
    assert_eq!(
        ask(&edge, &named("/metrics", "localhost:9")).status,
        200,
        "metrics"
    );
    for path in ["/livez", "/readyz"] {
        let answer = ask(&edge, &named(path, "portcullis.internal:8083"));
        assert_eq!(
            answer.status, 200,
            "{path}: a balancer has names of its own"
        );
    }
}

#[test]
fn without_a_token_the_host_names_this_machine() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let named = |host| {
        Request::new("GET", "/config")
            .without("Host")
            .with("Host", host)
    };
    for (host, status) in [
        ("127.0.0.1", 200),
        ("127.0.0.1:8083", 200),
        ("127.9.9.9:1", 200),
        ("[::1]:8083", 200),
        ("[::1]", 200),
        ("[::ffff:127.0.0.1]:80", 200),
        ("localhost", 200),
        ("LocalHost:9000", 200),
        ("localhost.", 421),
        ("localhost.evil.example", 421),
        ("evil.example", 421),
        ("evil.example:8083", 421),
        ("127.0.0.1.evil.example", 421),
        ("10.0.0.1", 421),
        ("0.0.0.0:8083", 421),
        ("2130706433", 421),
        ("", 421),
        (":8083", 421),
        ("localhost:80a", 421),
    ] {
        assert_eq!(ask(&edge, &named(host)).status, status, "{host:?}");
    }
    assert_eq!(
        ask(&edge, &named("localhost").with("Host", "localhost")).status,
        400,
        "two hosts"
    );
    let none = named("localhost")
        .without("Host")
        .line("GET /config HTTP/1.0");
    assert_eq!(ask(&edge, &none).status, 421, "no host");
}

#[test]
fn no_name_leads_to_a_unix_socket() {
    let (node, folder) = (Node::start(good), Folder::new());
    let path = folder.file("admin.sock");
    let listen = format!("\"unix:{path}\"");
    let _edge = Setup::before(node.address())
        .set("admin.listen", &listen)
        .start();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = Request::new("GET", "/config")
        .without("Host")
        .with("Host", "evil.example");
    stream.write_all(&request.bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn a_page_elsewhere_is_refused_whatever_its_name() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for (site, status) in [
        ("same-origin", 200),
        ("none", 200),
        ("same-site", 403),
        ("cross-site", 403),
    ] {
        let request = local("/config").with("Sec-Fetch-Site", site);
        assert_eq!(ask(&edge, &request).status, status, "{site}");
    }
    for (mode, dest, status) in [
        ("navigate", "document", 200),
        ("navigate", "iframe", 403),
        ("no-cors", "script", 403),
        ("no-cors", "document", 403),
    ] {
        let request = local("/config").with("Sec-Fetch-Site", "cross-site");
        let request = request
            .with("Sec-Fetch-Mode", mode)
            .with("Sec-Fetch-Dest", dest);
        let answer = ask(&edge, &request);
        assert_eq!(answer.status, status, "{mode} {dest}: a link is followed");
    }
}

#[test]
fn a_token_opens_as_bearer_and_as_password() {
    let (node, folder) = (Node::start(good), Folder::new());
    let file = format!("\"{}\"", folder.secret("operator.token", TOKEN));
    let edge = Setup::before(node.address())
        .set("admin.token_file", &file)
        .start();
    for (value, status) in [
        (format!("Bearer {TOKEN}"), 200),
        (basic(&format!("operator:{TOKEN}")), 200),
        (basic(&format!(":{TOKEN}")), 200),
        (basic(&format!("a:b:{TOKEN}")), 401),
        (basic(TOKEN), 401),
        (basic(&format!("{TOKEN}:")), 401),
        (basic(&format!("operator:{TOKEN}x")), 401),
        (format!("Basic {TOKEN}"), 401),
        ("Basic ".to_owned(), 401),
        (TOKEN.to_owned(), 401),
    ] {
        assert_eq!(
            ask(&edge, &with("/config", &value)).status,
            status,
            "{value}"
        );
    }
    assert_eq!(ask(&edge, &local("/config")).status, 401, "none");
    let bearer = format!("Bearer {TOKEN}");
    let twice = with("/config", &bearer).with("Authorization", &bearer);
    assert_eq!(ask(&edge, &twice).status, 401, "two");
}

#[test]
fn a_reachable_listener_never_loses_its_token() {
    let (node, folder) = (Node::start(good), Folder::new());
    let file = format!("\"{}\"", folder.secret("operator.token", TOKEN));
    for (listen, status) in [("0.0.0.0:0", 401), ("127.0.0.1:0", 200)] {
        let setup = Setup::before(node.address()).set("admin.listen", &format!("\"{listen}\""));
        let edge = setup.set("admin.token_file", &file).start();
        // another address waits for a restart
        edge.rewrite(&Setup::before(node.address()).set("log.level", "\"debug\""));
        edge.signal("HUP");
        edge.line("the reload", |line| line["key"] == "log.level");
        edge.signal("HUP");
        let nothing = "configuration reloaded: nothing changed";
        edge.line("that it is complete", |line| line["message"] == nothing);
        assert_eq!(ask(&edge, &local("/config")).status, status, "{listen}");
    }
}

#[test]
fn a_public_listener_needs_its_token() {
    let (node, folder) = (Node::start(good), Folder::new());
    let file = folder.secret("operator.token", TOKEN);
    let open = Setup::before(node.address()).set("admin.listen", "\"0.0.0.0:0\"");
    let refused = open.run("check");
    assert_eq!(
        refused.status.code(),
        Some(1),
        "without a token it is for this machine"
    );
    let edge = open.set("admin.token_file", &format!("\"{file}\"")).start();
    for path in PATHS.into_iter().chain(["/metrics"]) {
        for request in [
            Request::new("GET", path),
            with(path, &format!("Bearer {OTHER}")),
        ] {
            let closed = ask(&edge, &request);
            assert_eq!(closed.status, 401, "{path}");
            let requested: Vec<_> = closed
                .headers
                .iter()
                .filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"))
                .map(|(_, value)| value.as_str())
                .collect();
            assert!(requested.contains(&"Bearer"), "{path}: {requested:?}");
            assert!(
                requested.iter().any(|one| one.starts_with("Basic realm=")),
                "{path}: {requested:?}"
            );
        }
        for value in [
            format!("Bearer {TOKEN}"),
            basic(&format!("operator:{TOKEN}")),
        ] {
            assert_eq!(
                ask(&edge, &with(path, &value)).status,
                200,
                "{path} with {value}"
            );
        }
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(
            ask(&edge, &Request::new("GET", path)).status,
            200,
            "{path} tells nothing"
        );
    }
    folder.secret("operator.token", OTHER);
    edge.signal("HUP");
    edge.line("the reload", |line| {
        line["key"] == "admin.token_file" && line["effective"] == "now"
    });
    assert_eq!(
        ask(&edge, &with("/", &format!("Bearer {TOKEN}"))).status,
        401,
        "the old one"
    );
    let config = ask(&edge, &with("/config", &format!("Bearer {OTHER}")));
    assert_eq!(config.status, 200, "the new one");
    for line in edge.lines() {
        assert!(
            !line.contains(TOKEN) && !line.contains(OTHER),
            "a token is in the log: {line}"
        );
    }
}
