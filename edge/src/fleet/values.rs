//! Values that the instances share, sealed: the store sees neither certificates nor their keys.
//!
//! A value is sealed with a key that is derived from the fleet's secret, and bound to its name, so
//! that it cannot replace another value.

use super::{Fleet, FleetError};
use portcullis_base::io::clock::millis;
use std::time::Duration;

impl Fleet {
    /// Returns the value that the instances share under this name, also by the other secret.
    ///
    /// # Errors
    /// The store does not answer, or the value is not sealed with this fleet's secret.
    pub async fn value(&self, name: &str) -> Result<Option<Vec<u8>>, FleetError> {
        let keys = self.store.keys();
        for key in [Some(&keys.used), keys.other.as_ref()]
            .into_iter()
            .flatten()
        {
            let stored = self.store.key_of(name, key);
            let call = redis::cmd("GET").arg(&stored).to_owned();
            let sealed: Option<Vec<u8>> = self.store.call(&stored, &call).await?;
            if let Some(sealed) = sealed {
                let opened = key.seal.open(name.as_bytes(), &sealed);
                return opened.map(Some).ok_or(FleetError::Sealed);
            }
        }
        Ok(None)
    }

    /// Sets the value that the instances share under this name; it expires after `life`, if that
    /// is set.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn set_value(
        &self,
        name: &str,
        value: &[u8],
        life: Option<Duration>,
    ) -> Result<(), FleetError> {
        let mut call = redis::cmd("SET");
        let keys = self.store.keys();
        let sealed = keys
            .used
            .seal
            .seal(name.as_bytes(), value)
            .ok_or(FleetError::Random)?;
        let key = self.store.key_of(name, &keys.used);
        call.arg(&key).arg(sealed);
        if let Some(life) = life {
            call.arg("PX").arg(millis(life));
        }
        self.store.call(&key, &call).await
    }

    /// Removes the value that is shared under this name.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn remove_value(&self, name: &str) -> Result<(), FleetError> {
        let key = self.store.key_of(name, &self.store.keys().used);
        self.store.call(&key, redis::cmd("DEL").arg(&key)).await
    }

    /// The clock of the server that holds the value of this name, since 1970.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn clock(&self, name: &str) -> Result<Duration, FleetError> {
        let key = self.store.key_of(name, &self.store.keys().used);
        let (seconds, micros) = self.store.call(&key, &redis::cmd("TIME")).await?;
        Ok(Duration::from_secs(seconds) + Duration::from_micros(micros))
    }

    /// Takes or extends the lock `name` for `life` from now on; `false` if another instance holds
    /// it.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn lock(&self, name: &str, life: Duration) -> Result<bool, FleetError> {
        self.store.lock(name, millis(life)).await
    }

    /// Releases the lock `name`.
    ///
    /// # Errors
    /// The store does not answer. The lock expires.
    pub async fn unlock(&self, name: &str) -> Result<(), FleetError> {
        self.store.lock(name, 0).await.map(drop)
    }
}
