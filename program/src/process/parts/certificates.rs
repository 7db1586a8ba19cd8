//! The certificates that are ordered by ACME: their renewal, and the listener for the authority's
//! challenges.

use super::Part;
use super::endpoint::Endpoint;
use super::shared::Shared;
use crate::process::inherited::Inherited;
use crate::process::start_error::StartError;
use portcullis_acme::{ChallengeServer, Renewal};
use portcullis_base::config::{Config, ConnectionsConfig};
use portcullis_base::fetch::Roots;
use portcullis_base::telemetry::{Surface, Task};
use portcullis_edge::http::{NoTrust, TextErrors};
use std::sync::Arc;

/// Renews the certificates and listens for challenges, if there is a `[tls.acme]`.
pub(crate) fn build(
    config: &Config,
    roots: Option<Roots>,
    shared: &Shared,
    inherited: &mut Inherited,
) -> Result<Part, StartError> {
    let Some((config, roots)) = config.acme.as_ref().zip(roots) else {
        return Ok(Part::default());
    };
    let metrics = Arc::clone(&shared.process.metrics);
    let renewal = Renewal::new(
        config,
        roots,
        shared.tls.clone(),
        metrics,
        shared.fleet.clone(),
    );
    let part = Part::task(Task::Acme, renewal, &shared.process.metrics);
    let Some(listen) = &config.http_address else {
        return Ok(part);
    };
    let surface = Surface::Acme;
    let endpoint = Endpoint::bind(surface, listen, ConnectionsConfig::CHALLENGES, inherited)?;
    let process = || shared.process.clone();
    let app = Arc::new(ChallengeServer::new(config, process(), shared.tls.clone()));
    let errors = Arc::new(TextErrors {
        process: process(),
        surface,
        guard: |reply| reply,
    });
    let gate = endpoint.gate(app, Arc::new(NoTrust), errors, shared);
    Ok(part.and(endpoint.accept(gate, Some(1), shared)?))
}
