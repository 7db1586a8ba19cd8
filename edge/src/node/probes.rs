//! Probes whether the URLs of the node answer, however few calls there are.

use super::target::Target;
use super::{Call, CallFailure, ConnectionChoice, chain};
use futures_util::future::join_all;
use portcullis_base::io::{MemoryPermit, MemoryPool};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Probes the URLs of one client, through that client's breakers.
pub struct Probes {
    pub(super) targets: Arc<[Target]>,
    pub(super) memory: Arc<MemoryPool>,
    pub(super) timeout: Duration,
}

impl Probes {
    /// Probes each URL that fails, or whose breaker is open, at every `interval`, so that it serves
    /// again before a client's request needs it. A URL that hangs delays no other.
    pub async fn run(&self, interval: Duration) {
        let probing = self.targets.iter().map(|target| async move {
            loop {
                tokio::time::sleep(interval).await;
                if target.breaker.failure().is_some() || target.fails() {
                    self.probe_one(target).await;
                }
            }
        });
        let _endless: Vec<()> = join_all(probing).await;
    }

    async fn probe_one(&self, target: &Target) {
        if let Some(admitted) = target.breaker.enter(Instant::now) {
            let failure = self.send(target, self.timeout).await.err();
            admitted.record(failure, Instant::now);
        }
    }

    /// The URLs that answer neither a probe within `limit` nor any request meanwhile, each with the
    /// cause. They still get calls: a node that is slow only for probes is better than none.
    pub async fn silent_urls(&self, limit: Duration) -> Vec<(String, String)> {
        let probing = self.targets.iter().map(|target| async move {
            let answers = target.breaker.answers();
            let failure = self.send(target, limit).await.err()?;
            let is_ours = matches!(failure, CallFailure::After(error) if error.is_ours());
            let is_silent = !is_ours && target.breaker.answers() == answers;
            is_silent.then(|| {
                let cause = target.record.failures().cause_of(failure.error());
                (target.record.url.clone(), cause.unwrap_or_default())
            })
        });
        join_all(probing).await.into_iter().flatten().collect()
    }

    async fn send(&self, target: &Target, limit: Duration) -> Result<(), CallFailure> {
        let write = |id: u64, out: &mut Vec<u8>| {
            chain::write_request(id, "starknet_specVersion", "[]", out);
        };
        let call = Call::new(write, Instant::now() + limit).over(ConnectionChoice::New);
        let call = call.polling();
        target
            .ask(&call, &mut MemoryPermit::of(&self.memory))
            .await
            .map(drop)
    }
}
