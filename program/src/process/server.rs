//! From a configuration to a running server: loads the files, builds every part, collects their
//! additions, and runs them under Pingora's `Server`.

use crate::admin::Listener;
use crate::process::files::{self, FileNeeds};
use crate::process::handover::Program;
use crate::process::health::Health;
use crate::process::inherited::Inherited;
use crate::process::lifecycle::{Lifecycle, ShutdownSignal};
use crate::process::loaded::{FileErrors, Loaded, StartSecrets};
use crate::process::parts::shared::Shared;
use crate::process::parts::store::StoreWorkers;
use crate::process::parts::{self, Part};
use crate::process::reload::{Reload, Reloadable};
use crate::process::signals::StopSignals;
pub use crate::process::start_error::StartError;
use crate::process::systemd::Watchdog;
use parking_lot::Mutex;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use portcullis_base::config::{Config, StoreConfig};
use portcullis_base::io::clock;
use portcullis_base::secrets::{Secret, hardening};
use portcullis_base::telemetry::{Log, Surface, Task};
use portcullis_edge::node::Node;
use portcullis_edge::proxy::Surfaces;
use portcullis_store::Awaited;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// Loads the files, and builds every part. Each binds its listener, unless that is inherited.
///
/// # Errors
/// Returns the error of the first listener that cannot be bound, or part that cannot start.
pub fn bind(config: &Config, log: Log, inherited: Inherited) -> Result<Bound, StartError> {
    let bound = build(config, log, inherited);
    hardening::wipe_stack();
    bound
}

#[inline(never)]
fn build(config: &Config, log: Log, mut inherited: Inherited) -> Result<Bound, StartError> {
    let (loaded, secrets) = load(config)?;
    let Loaded {
        identities,
        relay,
        sidecar,
        admin,
        credentials,
    } = loaded;
    let StartSecrets {
        keys,
        store_password,
        fleet,
        acme,
    } = secrets;

    // the order is that of the log lines, and decides which error is reported
    let (shared, shared_part) = Shared::new(config, log, &identities, credentials, fleet)?;
    let certificates_part = parts::certificates::build(config, acme, &shared, &mut inherited)?;
    let (gateway, gateway_part) = parts::gateway::build(config, &shared, &mut inherited)?;
    let store_workers = open_store(config, store_password.as_ref(), &inherited, &shared)?;
    let storage = store_workers.as_ref().map(|workers| &workers.storage);
    let (relay, relay_part) =
        parts::relay::build(config, relay, keys, storage, &shared, &mut inherited)?;
    let (sidecar, sidecar_part) =
        parts::sidecar::build(config, sidecar, storage, &shared, &mut inherited)?;
    let surfaces = Surfaces {
        gateway,
        relay,
        sidecar,
        tls: shared.tls.clone(),
    };
    let shown = shared_part
        .and(certificates_part)
        .and(gateway_part)
        .and(relay_part)
        .and(sidecar_part)
        .and(own_tasks(&shared, &surfaces, store_workers.as_ref()));
    let (access, admin_part) = parts::admin::build(
        config,
        admin,
        &surfaces,
        &shown.listeners,
        storage,
        &shared,
        &mut inherited,
    )?;
    let Part {
        services,
        listeners,
        sockets,
    } = shown.and(admin_part);

    files::raise_limit(file_needs(config, services.len(), &listeners))?;
    // not before the files are counted: it opens those of the store
    if let Some(sidecar) = &surfaces.sidecar {
        sidecar.check_robots();
    }
    let Shared {
        process,
        exporter,
        in_force,
        node,
        fleet,
        runtimes,
        peers,
        ..
    } = shared;
    let lifecycle = Lifecycle {
        draining: process.metrics.draining.clone(),
        drain: Arc::clone(&process.drain),
        config: config.server.clone(),
        runtimes,
        expected: listeners.len() + usize::from(store_workers.is_some()),
        listeners,
        sockets,
        reload: None,
        program: None,
        is_exclusive: config.store.as_ref().is_some_and(StoreConfig::is_for_one),
        predecessor: inherited.finish()?,
        exporter,
    };
    let mut server = Server::new_with_opt_and_conf(None, server_conf(config));
    server.add_services(services);
    let parts = Reloadable {
        surfaces,
        access,
        store: store_workers
            .as_ref()
            .map(|workers| Arc::clone(&workers.storage.store)),
        fleet,
        node,
        in_force,
        process,
        peers,
    };
    Ok(Bound {
        server,
        lifecycle,
        store_workers,
        parts,
    })
}

/// Opens the configured store, or waits for it.
fn open_store(
    config: &Config,
    password: Option<&Secret>,
    inherited: &Inherited,
    shared: &Shared,
) -> Result<Option<StoreWorkers>, StartError> {
    let Some(config) = &config.store else {
        return Ok(None);
    };
    let awaited = if inherited.is_handover() {
        Awaited::Outages
    } else {
        Awaited::AllStates
    };
    StoreWorkers::open(config, password, awaited, &shared.runtimes).map(Some)
}

/// The tasks of the process itself: they prepare the store, check for conditions, and ping the
/// watchdog.
fn own_tasks(shared: &Shared, surfaces: &Surfaces, workers: Option<&StoreWorkers>) -> Part {
    let metrics = &shared.process.metrics;
    let health = Health::new(shared, surfaces, workers.map(|workers| &workers.storage));
    let mut tasks = Part::task(Task::Health, health, metrics);
    if let Some(workers) = workers {
        tasks = tasks.and(workers.preparation(metrics));
    }
    if let Some(watchdog) = Watchdog::new(&shared.runtimes) {
        tasks = tasks.and(Part::task(Task::Watchdog, watchdog, metrics));
    }
    tasks
}

/// Loads the files, and logs warnings about suspicious values.
fn load(config: &Config) -> Result<(Loaded, StartSecrets), FileErrors> {
    let (loaded, secrets) = Loaded::load_to_start(config)?;
    let now = SystemTime::now();
    let warnings = config.warnings.iter().map(ToString::to_string);
    for warning in warnings
        .chain(loaded.identities.warnings(now))
        .chain(clock::warning(now))
    {
        log::warn!("{warning}");
    }
    Ok((loaded, secrets))
}

/// The files that the process needs.
fn file_needs(config: &Config, services: usize, listeners: &[Listener]) -> FileNeeds {
    let clients: usize = listeners
        .iter()
        .map(|listener| listener.max_connections)
        .sum();
    // the relay has connections of its own
    let has_relay = listeners
        .iter()
        .any(|listener| listener.surface == Surface::Relay);
    let node = (1 + usize::from(has_relay)) * config.node.url.iter().count();
    let node = node * config.node.max_connections;
    // one runtime for each service, and one for the lifecycle
    let own = FileNeeds::own(services as u64 + 1, config.store.as_ref());
    FileNeeds {
        own,
        clients: clients as u64,
        node: node as u64,
    }
}

fn server_conf(config: &Config) -> ServerConf {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = config.server.threads.map_or(cores, std::num::NonZero::get);
    ServerConf {
        threads,
        // one thread has nobody to steal from
        work_stealing: threads > 1,
        // our own drain has finished before Pingora stops
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    }
}

/// A bound server that does not run yet.
pub struct Bound {
    server: Server,
    lifecycle: Lifecycle,
    store_workers: Option<StoreWorkers>,
    /// Used by a reload and by the getters below.
    parts: Reloadable,
}

impl Bound {
    /// The origin of a surface, with the actual port; `None` if the surface is off.
    pub fn origin(&self, surface: Surface) -> Option<String> {
        let listener = self
            .lifecycle
            .listeners
            .iter()
            .find(|at| at.surface == surface)?;
        let is_secured = self.parts.surfaces.tls.is_secured(surface);
        Some(format!(
            "{}://{}",
            if is_secured { "https" } else { "http" },
            listener.listen
        ))
    }

    /// The node, as all parts see it.
    pub fn node(&self) -> Arc<Node> {
        Arc::clone(&self.parts.node)
    }

    /// Reloads `path` on SIGHUP; `config` was read from it.
    pub fn reload_from(&mut self, path: PathBuf, config: Config) {
        self.lifecycle.reload = Some(Reload::new(path, config, self.parts.clone()));
    }

    /// Hands over to another process of this `program` on SIGUSR2.
    pub fn hand_over_to(&mut self, program: Program) {
        self.lifecycle.program = Some(program);
    }

    /// Runs until a signal has stopped it.
    ///
    /// # Errors
    /// Fails if there is no thread for the signals.
    pub fn run(self) -> Result<(), StartError> {
        let signals = StopSignals::install().map_err(StartError::Runtime)?;
        self.run_until(signals);
        Ok(())
    }

    /// Runs until one of these signals has stopped it, including one that has already arrived.
    pub fn run_until(self, signals: StopSignals) {
        let Self {
            server,
            lifecycle,
            store_workers,
            ..
        } = self;
        let shutdown_signal = Box::new(ShutdownSignal(Mutex::new(Some((lifecycle, signals)))));
        server.run(RunArgs { shutdown_signal });
        if let Some(workers) = store_workers {
            workers.close();
        }
        log::logger().flush();
    }
}
