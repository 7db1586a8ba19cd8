//! The certificates that servers present to this process: when they expire.
//!
//! In: the servers that the configuration names and that are called over TLS. Out: metrics, and a
//! log line for each certificate that is seen first. An expired one ends what needs its server, and
//! those who renew it are often others. Each server is connected to once an hour, because
//! connections may live longer than certificates. The public directory of accounts is not: its
//! certificate is nobody's here to renew.

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::config::{
    Config, FleetServer, FleetTransport, HealthLive, Live, SidecarLive, StoreTls,
};
use portcullis_base::fetch::Server;
use portcullis_base::io::clock;
use portcullis_base::telemetry::{Metrics, Peer};
use portcullis_filters::certificate::Validity;
use portcullis_store::hosts_of;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The default of `sidecar.session.plc_url`.
const PUBLIC_DIRECTORY: &str = "https://plc.directory";
/// A start has other things to do first.
const START: Duration = Duration::from_secs(10);
/// An alert waits for an hour, too.
const INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The time until the next attempt, if a server showed no certificate.
const RETRY: Duration = Duration::from_secs(5 * 60);
/// A server that takes longer for a handshake is tried again.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Watches the certificates of servers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PeerCertificates(Arc<State>);

struct State {
    /// The configuration of the start, whose other keys are in force until a restart.
    config: Config,
    servers: Mutex<Servers>,
    changed: Notify,
    metrics: Arc<Metrics>,
}

#[async_trait]
impl BackgroundService for PeerCertificates {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.watch() => {}
        }
    }
}

impl PeerCertificates {
    pub(crate) fn new(config: &Config, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(State {
            config: config.clone(),
            servers: Mutex::new(Servers::of(config, config.live())),
            changed: Notify::new(),
            metrics,
        }))
    }

    /// Applies what a reload changes.
    pub(crate) fn change(&self, live: Live<'_>) {
        let servers = Servers::of(&self.0.config, live);
        if std::mem::replace(&mut *self.0.servers.lock(), servers.clone()) != servers {
            self.0.changed.notify_one();
        }
    }

    async fn watch(&self) {
        let mut seen = HashMap::new();
        let mut pause = START;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.0.changed.notified() => {}
            }
            let servers = self.0.servers.lock().clone();
            let is_complete = look(&servers.0, &mut seen).await;
            for peer in Peer::ALL {
                let of_peer = servers.0.iter().filter(|(of, _)| *of == peer);
                let known = of_peer.filter_map(|(_, server)| seen.get(server).copied());
                let first = known.min_by_key(|validity: &Validity| validity.not_after);
                self.0.metrics.peers.set(peer, first);
            }
            pause = if is_complete { INTERVAL } else { RETRY };
        }
    }
}

/// Looks at the certificate of each server. That of one which does not answer stays as it was.
/// Returns whether all showed one.
async fn look(servers: &[(Peer, Server)], seen: &mut HashMap<Server, Validity>) -> bool {
    seen.retain(|known, _| servers.iter().any(|(_, server)| server == known));
    let mut is_complete = true;
    for (peer, server) in servers {
        let peer = peer.name();
        let name = format!("{}:{}", server.host, server.port);
        match server.certificate(TIMEOUT).await {
            Ok(validity) => {
                if seen.insert(server.clone(), validity) != Some(validity) {
                    let second = i64::try_from(validity.not_after).unwrap_or(i64::MAX);
                    let expires = clock::rfc3339_of(second);
                    log::info!(peer, server = name, expires; "the certificate of a server");
                }
            }
            Err(cause) => {
                is_complete = false;
                log::debug!(peer, server = name, cause; "no certificate of a server");
            }
        }
    }
    is_complete
}

/// The servers that are called over TLS, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Servers(Vec<(Peer, Server)>);

impl Servers {
    /// Those of the values of a configuration.
    fn of(config: &Config, live: Live<'_>) -> Self {
        let mut all = Self::default();
        let node_ca = live.node.ca_file.as_deref();
        for url in config.node.url.iter() {
            all.add_url(Peer::Node, &url.to_string(), node_ca);
        }
        if let Some(store) = &config.store
            && store.tls == StoreTls::VerifyFull
        {
            let ca = store.ca_file.as_deref();
            for (host, port) in hosts_of(&store.url) {
                all.add(Peer::Store, Server::postgres(host, port, ca));
            }
            for (host, port) in store.read_url.iter().flat_map(|url| hosts_of(url)) {
                all.add(Peer::Replica, Server::postgres(host, port, ca));
            }
        }
        if let Some(fleet) = &config.fleet
            && fleet.url.transport == FleetTransport::Tls
        {
            let ca = fleet.ca_file.as_deref();
            for server in &fleet.url.servers {
                if let FleetServer::Tcp(host, port) = server {
                    all.add(Peer::Fleet, Server::tls(host.clone(), *port, ca));
                }
            }
        }
        if let Some(trace) = &config.trace {
            all.add_url(Peer::Trace, &trace.endpoint.to_string(), None);
        }
        if let Some(acme) = &config.acme {
            all.add_url(Peer::Acme, &acme.directory, acme.ca_file.as_deref());
        }
        if let Some(url) = live.relay.and_then(|relay| relay.events.url.as_ref()) {
            all.add_url(Peer::Events, url, None);
        }
        for (peer, url) in live.sidecar.map(of_sidecar).unwrap_or_default() {
            all.add_url(peer, url, None);
        }
        all
    }

    fn add_url(&mut self, peer: Peer, url: &str, ca_file: Option<&Path>) {
        if let Some(server) = Server::of_https(url, ca_file) {
            self.add(peer, server);
        }
    }

    fn add(&mut self, peer: Peer, server: Server) {
        let row = (peer, server);
        if !self.0.contains(&row) {
            self.0.push(row);
        }
    }
}

/// The URLs that the sidecar requests, all with the authorities of the system.
fn of_sidecar(live: &SidecarLive) -> Vec<(Peer, &String)> {
    let HealthLive {
        platform,
        card_data,
        pds,
        email,
        web_push,
        podcast_syndication,
        payments,
        ..
    } = &live.health;
    let single = [platform, pds, email, web_push, podcast_syndication];
    let named = card_data.iter().chain(payments).map(|named| &named.url);
    let health = single.into_iter().flatten().chain(named);
    let mut all: Vec<_> = health.map(|url| (Peer::Health, url)).collect();
    all.extend(live.session.jwks_url.iter().map(|url| (Peer::Jwks, url)));
    all.extend(live.podcasts.hub_url.iter().map(|url| (Peer::Hub, url)));
    if live.session.plc_url != PUBLIC_DIRECTORY {
        all.push((Peer::Directory, &live.session.plc_url));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_base::fetch::Opening;

    const CONFIG: &str = r#"
        node.url = ["https://node.test/rpc", "http://plain.test", "https://10.0.0.2:8443/rpc"]
        store.url = "postgres://me@a.test:1,b.test/cards"
        store.read_url = "postgres://me@c.test/cards"
        store.tls = "verify-full"
        fleet.url = "valkeys://d.test:2,[::1]:3"
        fleet.secret_file = "fleet.secret"
        trace.endpoint = "https://e.test:4318"
        [sidecar]
        base_url = "https://cards.example"
        session.jwks_url = "https://f.test/jwks?x=1"
        podcasts.hub_url = "https://g.test"
        health.platform = "https://h.test/a"
        health.pds = "http://plain.test"
        health.payments = ["card=https://h.test/b", "other=https://i.test:444"]
    "#;

    fn found(text: &str) -> Vec<String> {
        let config = Config::parse(text, []).expect("it is valid");
        let mut shown = Vec::new();
        for (peer, server) in Servers::of(&config, config.live()).0 {
            let opening = match server.opening {
                Opening::Tls => "",
                Opening::Postgres => " (PostgreSQL)",
            };
            let peer = peer.name();
            shown.push(format!("{peer} {} {}{opening}", server.host, server.port));
        }
        shown
    }

    #[test]
    fn each_server_with_tls_is_looked_at() {
        let expected = [
            "node node.test 443",
            "node 10.0.0.2 8443",
            "store a.test 1 (PostgreSQL)",
            "store b.test 5432 (PostgreSQL)",
            "replica c.test 5432 (PostgreSQL)",
            "fleet d.test 2",
            "fleet ::1 3",
            "trace e.test 4318",
            "health h.test 443",
            "health i.test 444",
            "jwks f.test 443",
            "hub g.test 443",
        ];
        assert_eq!(found(CONFIG), expected);
    }

    #[test]
    fn the_public_directory_is_left_alone() {
        let own = "session.plc_url = \"https://plc.test\"";
        let text = "node.url = \"http://plain.test\"\n[sidecar]\n\
                    base_url = \"https://cards.example\"\n";
        assert_eq!(found(text), Vec::<String>::new());
        assert_eq!(found(&format!("{text}{own}")), ["directory plc.test 443"]);
    }
}
