//! The time that work on the database may take.

use super::error::{Cause, StoreError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Timeout of one statement: far more than a healthy database needs, and less than a client's
/// timeout.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `work` within [`TIMEOUT`].
pub(super) async fn bounded<T>(
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    within(TIMEOUT, work).await
}

/// Runs `work` within a timeout of its own.
pub(super) async fn within<T, E>(
    timeout: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError>
where
    StoreError: From<E>,
{
    until(Instant::now() + timeout, work).await
}

/// Runs `work` until a deadline.
pub(super) async fn until<T, E>(
    deadline: Instant,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError>
where
    StoreError: From<E>,
{
    match timeout_at(deadline, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::Unavailable(Cause::Timeout)),
    }
}
