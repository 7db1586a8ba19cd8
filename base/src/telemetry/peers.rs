//! The metrics of the certificates that servers present to this process.

use super::registry::{as_gauge, metrics};
use portcullis_filters::certificate::Validity;
use portcullis_filters::named;
use prometheus::IntGaugeVec;

named! {
    /// The role of a server that this process calls.
    pub enum Peer {
        /// A URL of the node.
        Node = "node",
        /// The store.
        Store = "store",
        /// The replica of the store.
        Replica = "replica",
        /// The fleet's store.
        Fleet = "fleet",
        /// The key set of sessions.
        Jwks = "jwks",
        /// The directory of accounts, unless it is the public one.
        Directory = "directory",
        /// The hub of podcasts.
        Hub = "hub",
        /// A dependency that is health-checked.
        Health = "health",
        /// The receiver of events.
        Events = "events",
        /// The collector of traces.
        Trace = "trace",
        /// The authority of certificates.
        Acme = "acme",
    }
}

metrics! {
    /// When certificates of servers are valid: of several servers, the one that expires first.
    pub struct PeerMetrics(registry) {
        not_after: IntGaugeVec = gauges("portcullis_peer_certificate_expiry_timestamp_seconds",
            "When the certificate of a server that is called over TLS expires, in seconds since \
             1970; of several servers, the first.", "peer", &[]);
        not_before: IntGaugeVec = gauges("portcullis_peer_certificate_issued_timestamp_seconds",
            "When that certificate began to be valid, in seconds since 1970.", "peer", &[]);
    }
}

impl PeerMetrics {
    /// Sets when the certificate of a peer is valid; `None` removes its series.
    pub fn set(&self, peer: Peer, validity: Option<Validity>) {
        let label = [peer.name()];
        let Some(validity) = validity else {
            // it had none
            let _ = self.not_after.remove_label_values(&label);
            let _ = self.not_before.remove_label_values(&label);
            return;
        };
        let Validity {
            not_before,
            not_after,
        } = validity;
        self.not_after
            .with_label_values(&label)
            .set(as_gauge(not_after));
        self.not_before
            .with_label_values(&label)
            .set(as_gauge(not_before));
    }
}
