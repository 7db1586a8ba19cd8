//! Handshakes and certificates.

use super::Surface;
use super::metrics::{BySurface, Maker};
use prometheus::{IntCounter, IntGaugeVec};

/// What came of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Done.
    Ok,
    /// It took too long.
    Timeout,
    /// The client left meanwhile.
    Gone,
    /// What came is not TLS: HTTP in the clear, mostly.
    NotTls,
    /// No version, cipher or protocol in common.
    Incompatible,
    /// The client does not take what is presented: an unknown or ended certificate, mostly.
    Refused,
    /// The client breaks the protocol.
    Broken,
}

impl Handshake {
    /// Every one, in the order of the variants.
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

/// The metrics of TLS.
#[derive(Debug)]
pub struct TlsMetrics {
    handshakes: BySurface<[IntCounter; Handshake::ALL.len()]>,
    not_after: IntGaugeVec,
}

impl TlsMetrics {
    pub(super) fn new(make: &Maker) -> Self {
        let handshakes = make.counters(
            "portcullis_tls_handshakes_total",
            "TLS handshakes by what came of them.",
            &["surface", "outcome"],
        );
        Self {
            handshakes: Surface::ALL.map(|surface| {
                Handshake::ALL
                    .map(|outcome| handshakes.with_label_values(&[surface.name(), outcome.name()]))
            }),
            not_after: make.gauges(
                "portcullis_tls_certificate_not_after_seconds",
                "When the certificate in force ends, in seconds since 1970.",
                "surface",
            ),
        }
    }

    /// Counts a handshake.
    pub fn handshake(&self, surface: Surface, outcome: Handshake) {
        self.handshakes[surface as usize][outcome as usize].inc();
    }

    /// Shows when each surface's certificate ends; nothing for one that has none.
    pub(super) fn set(&self, not_after: BySurface<Option<u64>>) {
        for (surface, seconds) in Surface::ALL.into_iter().zip(not_after) {
            match seconds {
                Some(seconds) => {
                    let gauge = self.not_after.with_label_values(&[surface.name()]);
                    gauge.set(i64::try_from(seconds).unwrap_or(i64::MAX));
                }
                // it may never have been there
                None => drop(self.not_after.remove_label_values(&[surface.name()])),
            }
        }
    }
}
