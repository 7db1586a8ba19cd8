//! The key that seals the TLS sessions of all instances. The store has it for six hours; then the
//! first instance that misses it creates another one.

use super::{Fleet, FleetError};
use crate::secrets::tickets::{SharedTickets, TicketKey};
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NAME: &str = "tls: the key of session tickets";
/// Lifetime of a key, that of rustls' own keys.
const LIFE: Duration = Duration::from_secs(6 * 3_600);
/// Interval at which an instance reads the key.
const LOOK: Duration = Duration::from_secs(60);
/// Time until the next attempt, while another instance creates the key or the store is unavailable.
const RETRY: Duration = Duration::from_secs(1);
/// Time for an instance to create a key, before another one may.
const MAKING: Duration = Duration::from_secs(5);

/// The task that reads the key from the store, and creates it when it is missing.
pub struct TicketKeys {
    /// The fleet.
    pub fleet: Arc<Fleet>,
    /// Where the listeners find the key.
    pub tickets: SharedTickets,
}

#[async_trait]
impl BackgroundService for TicketKeys {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.run() => {}
        }
    }
}

impl TicketKeys {
    async fn run(&self) {
        let mut last = Instant::now();
        loop {
            let pause = match self.take().await {
                Ok(true) => {
                    last = Instant::now();
                    LOOK
                }
                // another instance is creating it
                Ok(false) => RETRY,
                Err(error) => {
                    log::debug!(error:%; "fleet: no key of session tickets");
                    RETRY
                }
            };
            if last.elapsed() > LIFE {
                // a key that is never replaced would open all sessions
                self.tickets.share(None);
            }
            sleep(pause).await;
        }
    }

    /// Reads the key or creates it; `false` if another instance is creating it.
    async fn take(&self) -> Result<bool, FleetError> {
        if self.take_stored().await? {
            return Ok(true);
        }
        if !self.fleet.lock(NAME, MAKING).await? {
            return Ok(false);
        }
        // another instance may have created it before this one had the lock
        if !self.take_stored().await? {
            let mut bytes = [0; TicketKey::LEN];
            SystemRandom::new()
                .fill(&mut bytes)
                .map_err(|_| FleetError::Random)?;
            self.fleet.set_value(NAME, &bytes, Some(LIFE)).await?;
            self.tickets.share(Some(TicketKey::new(&bytes)));
        }
        self.fleet.unlock(NAME).await?;
        Ok(true)
    }

    async fn take_stored(&self) -> Result<bool, FleetError> {
        let stored = self.fleet.value(NAME).await?;
        let bytes = stored.as_deref().and_then(|bytes| bytes.try_into().ok());
        if let Some(bytes) = bytes {
            self.tickets.share(Some(TicketKey::new(bytes)));
        }
        Ok(bytes.is_some())
    }
}
