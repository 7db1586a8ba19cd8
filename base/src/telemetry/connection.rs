//! Outcomes of a client's connection before its first request: the caps, the PROXY header of
//! a balancer, the TLS handshake.

use portcullis_filters::named;

named! {
    /// Whether a client connection was served.
    pub enum ConnectionOutcome {
        /// The connection was served.
        Accepted = "accepted",
        /// The connection was closed at once, because a cap was reached.
        Refused = "refused",
    }
}

named! {
    /// The outcome of a TLS handshake.
    pub enum Handshake {
        /// Completed.
        Ok = "ok",
        /// A challenge of an ACME authority was answered.
        Challenge = "challenge",
        /// The handshake missed its deadline.
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

impl Handshake {
    /// The meaning of the outcome, for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "completed",
            Self::Challenge => "an ACME challenge",
            Self::Timeout => "not completed in time",
            Self::Gone => "the client left",
            Self::NotTls => "not TLS, perhaps plain HTTP: this listener takes https only",
            Self::Incompatible => "no common version, cipher or protocol",
            Self::Refused => "the client rejects the certificate",
            Self::Broken => "the client violates the protocol",
        }
    }
}

named! {
    /// The outcome of reading a PROXY header.
    pub enum ProxyHeader {
        /// The header names the client.
        Ok = "ok",
        /// The connection is the balancer's own: mostly a health check.
        Local = "local",
        /// The peer may not send a header.
        Untrusted = "untrusted",
        /// The connection begins with something else.
        Absent = "absent",
        /// The header has version 1.
        Text = "version_1",
        /// The header violates the protocol.
        Malformed = "malformed",
        /// The client in the header has no IP address, or uses datagrams.
        Unsupported = "unsupported",
        /// The header is longer than any balancer sends.
        TooLarge = "too_large",
        /// The connection ended within the header.
        Truncated = "truncated",
        /// The header did not arrive in time.
        Timeout = "timeout",
        /// The connection ended before the header: mostly a health check.
        Gone = "gone",
    }
}

impl ProxyHeader {
    /// The meaning of the outcome and the remedy, for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok | Self::Local => "complete",
            Self::Untrusted => "the peer is not in trusted_proxies",
            Self::Absent => "the header is missing: enable it at the balancer (send-proxy-v2)",
            Self::Text => "it is version 1: configure the balancer for version 2 (send-proxy-v2)",
            Self::Malformed => "it is malformed",
            Self::Unsupported => "its client has no IP address, or uses datagrams",
            Self::TooLarge => "it is larger than 4 KiB",
            Self::Truncated => "the connection ended within it",
            Self::Timeout => "it did not arrive in time",
            Self::Gone => "the connection ended before it",
        }
    }
}
