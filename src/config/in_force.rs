//! The configuration in force: what the process started with, and what reloads read since.

use super::Values;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// The configuration that the process started with, and what was read since.
#[derive(Debug)]
pub struct InForce {
    started: Values,
    read: Mutex<LastRead>,
}

/// The last reload.
#[derive(Clone, Debug)]
pub struct LastRead {
    /// The values that were taken over, or wait for a restart: those of the last file without a
    /// mistake.
    pub values: Values,
    /// When somebody last asked for a reload.
    pub at: Option<SystemTime>,
    /// Whether the file had a mistake then, so that nothing changed.
    pub is_mistaken: bool,
    /// How often it was asked for.
    pub count: u64,
}

impl InForce {
    /// A process that starts with these values.
    pub fn new(values: &Values) -> Self {
        let read = LastRead { values: values.clone(), at: None, is_mistaken: false, count: 0 };
        Self { started: values.clone(), read: Mutex::new(read) }
    }

    /// The values that the process started with.
    pub fn started(&self) -> &Values {
        &self.started
    }

    /// What was read last.
    pub fn last_read(&self) -> LastRead {
        self.lock().clone()
    }

    /// How often a reload was asked for.
    pub fn reloads(&self) -> u64 {
        self.lock().count
    }

    /// Notes a reload: its values, or that there was a mistake.
    pub(crate) fn note(&self, values: Option<&Values>) {
        let mut read = self.lock();
        read.at = Some(SystemTime::now());
        read.count += 1;
        read.is_mistaken = values.is_none();
        if let Some(values) = values {
            read.values = values.clone();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LastRead> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
