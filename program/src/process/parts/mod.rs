//! The parts of the program. Each is built in a file of its own, from the configuration, the files
//! that were loaded for it, and the parts that it uses; it binds its own listener.
//!
//! Out: the type that other parts use, and a [`Part`], its additions to the server. `server` builds
//! the parts in the order of their errors and log lines, and collects the additions.

pub(crate) mod admin;
pub(crate) mod certificates;
mod endpoint;
mod fleet;
pub(crate) mod gateway;
pub(crate) mod relay;
pub(crate) mod shared;
pub(crate) mod sidecar;
pub(crate) mod store;
mod task;

use crate::admin::Listener;
use crate::process::handover::ListenerFd;
use crate::process::start_error::StartError;
use pingora::services::ServiceWithDependents;
use pingora::services::background::{BackgroundService, background_service};
use portcullis_base::telemetry::{Metrics, Task};
use std::sync::Arc;
use task::Restarting;

/// The additions of a part to the server: none, if the part is off.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) services: Vec<Box<dyn ServiceWithDependents>>,
    pub(crate) listeners: Vec<Listener>,
    /// The sockets of the listeners, for a successor.
    pub(crate) sockets: Vec<ListenerFd>,
}

/// A part for others to use, `None` if it is off, and its additions.
pub(crate) type Built<T> = Result<(Option<Arc<T>>, Part), StartError>;

impl Part {
    /// A service that runs a task in the background, and again after a panic.
    pub(crate) fn task(
        name: Task,
        task: impl BackgroundService + Send + Sync + 'static,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let task = Restarting {
            name,
            task,
            metrics: Arc::clone(metrics),
        };
        Self {
            services: vec![Box::new(background_service(name.name(), task))],
            ..Self::default()
        }
    }

    /// Joins the additions of two parts.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.services.extend(other.services);
        self.listeners.extend(other.listeners);
        self.sockets.extend(other.sockets);
        self
    }
}
