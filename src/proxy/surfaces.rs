//! Handles to all running surfaces, for the admin listener and for reload.

use crate::gateway::Gateway;
use crate::http::tls::Certificates;
use crate::relay::Relay;
use crate::sidecar::Sidecar;
use std::sync::Arc;

/// Each surface, unless it is switched off.
#[derive(Clone, Default)]
pub struct Surfaces {
    /// The public read path.
    pub gateway: Option<Arc<Gateway>>,
    /// The protected write path.
    pub relay: Option<Arc<Relay>>,
    /// The service endpoints.
    pub sidecar: Option<Arc<Sidecar>>,
    /// The certificates of their listeners.
    pub tls: Certificates,
}
