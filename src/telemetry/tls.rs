//! TLS handshakes by surface and outcome.

use super::Surface;
use super::metrics::BySurface;
use super::registry::Registry;
use prometheus::IntCounter;

/// The outcome of a handshake.
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
    const fn name(self) -> &'static str {
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

/// Counts handshakes.
#[derive(Debug)]
pub struct TlsMetrics(BySurface<[IntCounter; Handshake::ALL.len()]>);

impl TlsMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let handshakes = registry.counters(
            "portcullis_tls_handshakes_total",
            "TLS handshakes by surface and outcome.",
            &["surface", "outcome"],
        );
        Self(Surface::ALL.map(|surface| {
            Handshake::ALL
                .map(|outcome| handshakes.with_label_values(&[surface.name(), outcome.name()]))
        }))
    }

    /// Counts a handshake.
    pub fn handshake(&self, surface: Surface, outcome: Handshake) {
        self.0[surface as usize][outcome as usize].inc();
    }
}
