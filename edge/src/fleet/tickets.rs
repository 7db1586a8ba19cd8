//! The key that seals the TLS sessions of all instances. The store has it for six hours; then the
//! first instance that misses it creates another one. Its age counts from when it was made, by the
//! store's clock, whenever it is read.

use super::{Fleet, FleetError};
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::io::clock::millis;
use portcullis_base::secrets::tickets::{SharedTickets, TicketKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NAME: &str = "tls: the dated key of session tickets";
/// Lifetime of a key, that of rustls' own keys.
const LIFE: Duration = Duration::from_secs(6 * 3_600);
/// Interval at which an instance reads the key.
const LOOK: Duration = Duration::from_secs(60);
/// Time until the next attempt, while another instance creates the key or the store is unavailable.
const RETRY: Duration = Duration::from_secs(1);
/// How far the store's clock may be behind that of the server that held the key before.
const SKEW: Duration = Duration::from_secs(60);
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
        let mut ends = Instant::now();
        loop {
            let pause = match self.take().await {
                Ok(Some(end)) => {
                    ends = end;
                    let left = end.saturating_duration_since(Instant::now());
                    LOOK.min(left).max(RETRY)
                }
                // another instance is creating it
                Ok(None) => RETRY,
                Err(error) => {
                    log::debug!(error:%; "fleet: no key of session tickets");
                    RETRY
                }
            };
            if ends + LOOK < Instant::now() {
                // a key that is never replaced would open all sessions
                self.tickets.share(None);
            }
            sleep(pause).await;
        }
    }

    /// Reads the key or creates it, and returns its end; `None` if another instance is creating it.
    async fn take(&self) -> Result<Option<Instant>, FleetError> {
        if let Some(end) = self.take_stored().await? {
            return Ok(Some(end));
        }
        if !self.fleet.lock(NAME, MAKING).await? {
            return Ok(None);
        }
        // another instance may have created it before this one had the lock
        let mut end = self.take_stored().await?;
        if end.is_none() {
            end = Some(self.make().await?);
        }
        self.fleet.unlock(NAME).await?;
        Ok(end)
    }

    async fn make(&self) -> Result<Instant, FleetError> {
        let end = Instant::now() + LIFE;
        let mut bytes = [0; TicketKey::LEN];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| FleetError::Random)?;
        let made = self.fleet.clock(NAME).await?;
        let value = [&millis(made).to_be_bytes()[..], &bytes].concat();
        self.fleet.set_value(NAME, &value, Some(LIFE)).await?;
        self.tickets.share(Some(TicketKey::new(&bytes)));
        Ok(end)
    }

    async fn take_stored(&self) -> Result<Option<Instant>, FleetError> {
        let read = Instant::now();
        let Some(stored) = self.fleet.value(NAME).await? else {
            return Ok(None);
        };
        let now = self.fleet.clock(NAME).await?;
        let Some((key, left)) = dated(&stored, now) else {
            return Ok(None);
        };
        self.tickets.share(Some(TicketKey::new(key)));
        Ok(Some(read + left))
    }
}

/// The key of a stored value, and how long it may be used from `now` on; `None` if it is too old.
fn dated(stored: &[u8], now: Duration) -> Option<(&[u8; TicketKey::LEN], Duration)> {
    let (made, key) = stored.split_first_chunk()?;
    let made = Duration::from_millis(u64::from_be_bytes(*made));
    let age = match now.checked_sub(made) {
        Some(age) => age,
        None if made - now < SKEW => Duration::ZERO,
        None => return None,
    };
    let left = LIFE.checked_sub(age)?;
    if left < RETRY {
        return None;
    }
    Some((key.try_into().ok()?, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_key_counts_from_its_making() {
        let made = Duration::from_secs(1_800_000_000);
        let value = [&millis(made).to_be_bytes()[..], &[7; TicketKey::LEN]].concat();
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        for (now, left) in [
            (made, Some(hours(6))),
            (made + hours(5), Some(hours(1))),
            (made + hours(6), None),
            (made + hours(7), None),
            // another server's clock, and one that stepped back
            (made - RETRY, Some(hours(6))),
            (made - hours(1), None),
        ] {
            let found = dated(&value, now).map(|(key, left)| (*key, left));
            assert_eq!(
                found,
                left.map(|left| ([7; TicketKey::LEN], left)),
                "{now:?}"
            );
        }
        assert_eq!(dated(&value[8..], made), None, "without a date");
    }
}
