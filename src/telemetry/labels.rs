//! The values of labels that stand for a surface or an outcome: closed sets.

/// A surface of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// The public read path.
    Gateway,
    /// The operator's listener.
    Admin,
    /// The protected write path.
    Relay,
    /// The service endpoints.
    Sidecar,
}

impl Surface {
    /// Every surface, in the order of the variants.
    pub const ALL: [Self; 4] = [Self::Gateway, Self::Admin, Self::Relay, Self::Sidecar];

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Admin => "admin",
            Self::Relay => "relay",
            Self::Sidecar => "sidecar",
        }
    }
}

/// One of each surface.
pub type BySurface<T> = [T; Surface::ALL.len()];

/// How the cache took part in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// Answered from the cache.
    Hit,
    /// Shared the response of an identical call in flight.
    Shared,
    /// Sent to the node.
    Miss,
    /// The cache is off, or not for this call.
    Off,
}

impl CacheUse {
    /// Every use, in the order of the variants.
    pub const ALL: [Self; 4] = [Self::Hit, Self::Shared, Self::Miss, Self::Off];

    /// The name in metrics and in `X-Cache`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Shared => "shared",
            Self::Miss => "miss",
            Self::Off => "off",
        }
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

/// The outcome of a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Completed.
    Ok,
    /// It missed its deadline.
    Timeout,
    /// The client closed the connection.
    Gone,
    /// Not TLS: mostly plain HTTP.
    NotTls,
    /// No common version, cipher or protocol.
    Incompatible,
    /// The client rejected the certificate: mostly unknown or expired.
    Refused,
    /// The client violated the protocol.
    Broken,
}

impl Handshake {
    /// Every outcome, in the order of the variants.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::Timeout,
        Self::Gone,
        Self::NotTls,
        Self::Incompatible,
        Self::Refused,
        Self::Broken,
    ];

    /// The name in metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Timeout => "timeout",
            Self::Gone => "gone",
            Self::NotTls => "not_tls",
            Self::Incompatible => "incompatible",
            Self::Refused => "refused",
            Self::Broken => "broken",
        }
    }
}
