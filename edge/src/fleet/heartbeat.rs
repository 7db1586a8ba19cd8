//! Reports once a second that this instance is alive, over a connection that it keeps open, and
//! ends an outage: admissions without the store are reported before the store is used again.

use super::Fleet;
use super::leadership::Part;
use super::servers::Server;
use async_trait::async_trait;
use futures_util::future::join_all;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// How often this instance reports to the store that it is alive, or tries again.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long an answered heartbeat is recent: an interval, and the delay of the watch of the chain.
const RECENT: Duration = Duration::from_millis(1_400);
/// The pause before an outage is looked at, so that a server that names a wrong one costs little.
const PAUSE: Duration = Duration::from_millis(20);
/// How long reports may delay the end of an outage: enough for tens of thousands. A client that is
/// not reported in time is reported with its next request.
const REPORTING: Duration = Duration::from_millis(900);

/// The task that sends the heartbeats of this instance.
pub struct Heartbeat(pub Arc<Fleet>);

#[async_trait]
impl BackgroundService for Heartbeat {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.run() => {}
        }
    }
}

impl Heartbeat {
    async fn run(&self) {
        let store = &self.0.store;
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = store.tripped.notified() => sleep(PAUSE).await,
            }
            self.send().await;
        }
    }

    pub(super) async fn send(&self) {
        let store = &self.0.store;
        let mut back = Vec::new();
        if store.needs_connections() {
            back = store.connect().await;
        }
        // a heartbeat for the watch of the chain counts as well
        let is_recent = store
            .leadership
            .last_heard()
            .is_some_and(|ago| ago < RECENT);
        if !back.is_empty() || !is_recent {
            // an error marks its server as down
            let _heard = store.heartbeat(Part::Member, 0).await;
        }
        store.check_others().await;
        back.retain(|server| server.connection().is_ok());
        if back.is_empty() {
            return;
        }
        self.report(&back).await;
        for server in &back {
            store.mark_up(server);
        }
    }

    /// Reports what was admitted without these servers.
    async fn report(&self, back: &[Arc<Server>]) {
        let limits = self.0.limits.lock().clone();
        let back = back.to_vec();
        // a task of its own, because a message must not be cancelled
        let reports = tokio::spawn(async move {
            join_all(limits.iter().map(|limit| limit.report(&back))).await;
        });
        if timeout(REPORTING, reports).await.is_err() {
            log::warn!("fleet: reports of admissions during the outage take longer than usual");
        }
    }
}
