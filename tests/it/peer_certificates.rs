//! The certificates of the servers that the program calls: the metrics say when they expire.

use rcgen::date_time_ymd;

use crate::admin::eventually;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::script::good;
use crate::support::secure::{Pair, secured_node};

const HOST: &str = "localhost";

/// Waits until the certificate of this peer expires, and was issued, at the start of these years.
pub(crate) fn lasts(edge: &Edge, peer: &str, [issued, expires]: [i32; 2]) {
    let wanted = [("issued", issued), ("expiry", expires)].map(|(what, year)| {
        let name = format!("portcullis_peer_certificate_{what}_timestamp_seconds{{peer={peer:?}}}");
        (name, date_time_ymd(year, 1, 1).unix_timestamp() as f64)
    });
    eventually(edge, "the certificate is seen", |now| {
        wanted.iter().all(|(name, at)| now.get(name) == Some(at))
    });
}

#[test]
fn a_certificate_is_shown_even_if_it_is_refused() {
    let (node, folder) = (Node::start(good), Folder::new());
    let good = Pair::with(HOST, |_| {});
    let expired = Pair::with(HOST, |params| params.not_after = date_time_ymd(1999, 1, 1));
    let ca = folder.secret("ca.pem", &good.certificate);
    for (pair, expires, why) in [(&good, 4096, "accepted"), (&expired, 1999, "refused")] {
        let port = secured_node(node.address(), pair).port();
        let setup = Setup::before(Node::nowhere())
            .set("node.url", &format!("\"https://{HOST}:{port}/rpc\""))
            .set("node.ca_file", &format!("\"{ca}\""));
        let edge = setup.start();
        lasts(&edge, "node", [1975, expires]);
        let line = edge.line(why, |line| line["message"] == "the certificate of a server");
        assert_eq!(line["server"], format!("{HOST}:{port}"), "{why}");
        assert_eq!(
            line["expires"],
            format!("{expires}-01-01T00:00:00Z"),
            "{why}"
        );
    }
}

#[test]
fn of_several_servers_the_first_to_expire_counts() {
    let (node, folder) = (Node::start(good), Folder::new());
    let pairs = [4096, 3000, 3500].map(|year| {
        Pair::with(HOST, move |params| {
            params.not_after = date_time_ymd(year, 1, 1)
        })
    });
    let ports = pairs
        .each_ref()
        .map(|pair| secured_node(node.address(), pair).port());
    let urls = ports.map(|port| format!("\"https://{HOST}:{port}/rpc\""));
    let ca = pairs.map(|pair| pair.certificate).concat();
    let setup = Setup::before(Node::nowhere())
        .set("node.url", &format!("[{}]", urls.join(", ")))
        .set(
            "node.ca_file",
            &format!("\"{}\"", folder.secret("ca.pem", &ca)),
        );
    lasts(&setup.start(), "node", [1975, 3000]);
}

#[test]
fn a_reload_changes_which_certificates_are_seen() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::with(HOST, |_| {}));
    let port = secured_node(node.address(), &pair).port();
    let setup = || {
        Setup::before(node.address())
            .set("sidecar.base_url", "\"https://cards.example\"")
            .set("sidecar.listen", "\"127.0.0.1:0\"")
            .set("store.url", &format!("\"sqlite:{}\"", folder.file("s.db")))
            .environment("SSL_CERT_FILE", &folder.secret("ca.pem", &pair.certificate))
    };
    let edge = setup().start();
    let url = format!("\"https://{HOST}:{port}/jwks\"");
    edge.rewrite(&setup().set("sidecar.session.jwks_url", &url));
    edge.signal("HUP");
    lasts(&edge, "jwks", [1975, 4096]);
    edge.rewrite(&setup());
    edge.signal("HUP");
    eventually(&edge, "it is no peer any more", |now| {
        now.keys()
            .all(|name| !name.starts_with("portcullis_peer_certificate_"))
    });
}
