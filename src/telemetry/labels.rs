//! The values of labels that stand for a surface or an outcome: closed sets.

use portcullis_filters::named;

named! {
    /// A surface of the program.
    pub enum Surface {
        /// The public read path.
        Gateway = "gateway",
        /// The operator's listener.
        Admin = "admin",
        /// The protected write path.
        Relay = "relay",
        /// The service endpoints.
        Sidecar = "sidecar",
    }
}

/// One of each surface.
pub type BySurface<T> = [T; Surface::ALL.len()];

named! {
    /// How the cache took part in a call.
    pub enum CacheUse {
        /// Answered from the cache.
        Hit = "hit",
        /// Shared the response of an identical call in flight.
        Shared = "shared",
        /// Sent to the node.
        Miss = "miss",
        /// The cache is off, or not for this call.
        Off = "off",
    }
}

/// Whether a client connection was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOutcome {
    /// It was served.
    Accepted,
    /// It was closed at once, because a cap was reached.
    Refused,
}

named! {
    /// The outcome of a TLS handshake.
    pub enum Handshake {
        /// Completed.
        Ok = "ok",
        /// It missed its deadline.
        Timeout = "timeout",
        /// The client closed the connection.
        Gone = "gone",
        /// Not TLS: mostly plain HTTP.
        NotTls = "not_tls",
        /// No common version, cipher or protocol.
        Incompatible = "incompatible",
        /// The client rejected the certificate: mostly unknown or expired.
        Refused = "refused",
        /// The client violated the protocol.
        Broken = "broken",
    }
}
