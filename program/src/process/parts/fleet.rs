//! The fleet: a heartbeat to its store, and the key of TLS sessions.

use super::{Built, Part};
use portcullis_base::config::Config;
use portcullis_base::telemetry::{Metrics, Surface, Task};
use portcullis_edge::fleet::{Credentials, Fleet, Heartbeat, TicketKeys};
use portcullis_edge::http::certificates::Certificates;
use std::sync::Arc;

/// Joins the fleet, if one is configured.
pub(super) fn join(
    config: &Config,
    credentials: Option<Credentials>,
    tls: &Certificates,
    metrics: &Arc<Metrics>,
) -> Built<Fleet> {
    let Some((config, credentials)) = config.fleet.as_ref().zip(credentials) else {
        return Ok((None, Part::default()));
    };
    let fleet = Fleet::new(config, credentials, Arc::clone(metrics))?;
    let mut part = Part::task(Task::Fleet, Heartbeat(Arc::clone(&fleet)), metrics);
    if Surface::ALL
        .into_iter()
        .any(|surface| tls.is_secured(surface))
    {
        let keys = TicketKeys {
            fleet: Arc::clone(&fleet),
            tickets: tls.tickets.clone(),
        };
        part = part.and(Part::task(Task::FleetTickets, keys, metrics));
    }
    Ok((Some(fleet), part))
}
