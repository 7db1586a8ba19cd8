//! From a configuration to a running server: binds every listener and connects every part.

use crate::acme::{ChallengeServer, Renewal};
use crate::admin::{self, Access, Admin, History, Listener, Operator, Seen};
use crate::config::AppliedConfig;
use crate::config::{
    self, AdminConfig, ClientsConfig, Config, ConnectionsConfig, GatewayConfig, Listen, LogClients,
    NodeConfig, SidecarConfig,
};
use crate::fetch::Roots;
use crate::fleet::{self, Fleet, Heartbeat, TicketKeys};
use crate::gateway::{EpochCause, Gateway};
use crate::http::context::{Drain, ServerContext, UPLOAD_MEMORY};
use crate::http::tls::Identities;
use crate::http::{Gate, RequestIds, TextErrors};
use crate::io::MemoryPool;
use crate::io::clock;
use crate::node::chain::Chain;
use crate::node::{ChainGuard, Node, NodeClient, NodeError};
use crate::process::files::{self, FileNeeds};
use crate::process::handover::{ListenerFd, Program};
use crate::process::health::Health;
use crate::process::inherited::{BoundSocket, Inherited};
use crate::process::lifecycle::{Lifecycle, ShutdownSignal};
use crate::process::listen::{self, Listening};
use crate::process::loaded::Loaded;
use crate::process::reload::Reload;
use crate::process::signals::StopSignals;
pub use crate::process::start_error::StartError;
use crate::proxy::{self, Proxy, SurfaceErrors, Surfaces};
use crate::relay::settings::{Keys, Settings};
use crate::relay::{Parts, Relay};
use crate::secrets::Secret;
use crate::secrets::hardening;
use crate::sidecar::{self, Sidecar};
use crate::store::{IntentState, Store};
use crate::telemetry::{Exporter, LabelValues, Log, Metrics, Surface, Tracer};
use parking_lot::Mutex;
use pingora::apps::ServerApp;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::services::ServiceWithDependents;
use pingora::services::background::background_service;
use portcullis_filters::bearer::Tokens;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::{Handle, Runtime};

/// Threads for work that outlives its request: it waits for the node and the store, and hashes a
/// little.
const STORE_WORKERS: usize = 2;
/// How long their threads may take to end: a hung disk or name server holds them.
const LAST_WORK: Duration = Duration::from_secs(1);

/// 3 s for the end of the store's statements, and for SQLite to move its log into its file: an end
/// without that loses nothing.
const STORE_CLOSING: Duration = Duration::from_secs(3);

/// A bound server that does not run yet.
pub struct Bound {
    server: Server,
    surfaces: Surfaces,
    in_force: Arc<AppliedConfig>,
    access: Option<Arc<Access>>,
    node: Option<Arc<Node>>,
    process: ServerContext,
    inherited: Inherited,
    /// The store, and what runs work that outlives its request until the process ends.
    store_workers: Option<(Arc<Store>, Runtime)>,
    lifecycle: Lifecycle,
    /// How many services Pingora runs.
    services: u64,
    /// The signals that stop it, if their handlers were installed before it runs.
    signals: Option<StopSignals>,
}

/// Binds every listener that is not inherited, and connects every part.
///
/// # Errors
/// The first listener that cannot be bound, or another part that cannot start.
pub fn bind(config: &Config, log: Log, inherited: Inherited) -> Result<Bound, StartError> {
    let bound = connect_parts(config, log, inherited);
    hardening::wipe_stack();
    bound
}

#[inline(never)]
fn connect_parts(config: &Config, log: Log, inherited: Inherited) -> Result<Bound, StartError> {
    let (loaded, secrets) = Loaded::load_to_start(config)?;
    let Loaded { identities, relay, sidecar, admin, credentials } = loaded;
    let now = SystemTime::now();
    let warnings = config.warnings.iter().map(ToString::to_string);
    for warning in warnings.chain(identities.warnings(now)).chain(clock::warning(now)) {
        log::warn!("{warning}");
    }
    let mut bound = Bound::new(config, log, inherited);
    let metrics = Arc::clone(&bound.process.metrics);
    let memory = MemoryPool::new(config.server.answer_memory.bytes());
    let node = Node::new(&config.node, Ok(credentials), metrics);
    bound.node = Some(Arc::clone(&node));
    if let Some(guard) = ChainGuard::new(&config.node, &node) {
        bound.add_service(background_service("chain guard", guard));
    }
    let fleet = bound.join_fleet(config, &identities, secrets.fleet)?;
    bound.add_certificates(config, &identities, secrets.acme, fleet.clone())?;
    bound.surfaces.trusted.change(config);
    let client = NodeClient::new(&config.node, &node, Arc::clone(&memory));
    let (status, probes) = (client.status(), client.probes());
    if let Some(gateway) = &config.gateway {
        bound.add_gateway(gateway, &config.node, client, &memory, fleet.clone())?;
    }
    let (mut journal, mut storage_of) = (None, None);
    if let Some(store) = &config.store {
        let storage = bound.open_store(store, secrets.store_password.as_ref())?;
        storage_of = Some(storage.clone());
        if let Some((settings, keys)) = relay.zip(secrets.keys) {
            // its own connections, so that writes do not queue behind reads
            let client = NodeClient::new(&config.node, &node, Arc::clone(&memory));
            journal = Some((storage.store.journal(), storage.runtime.clone()));
            bound.add_relay(settings, keys, Chain(client), storage.clone())?;
        }
        if let Some((config, settings)) = config.sidecar.as_ref().zip(sidecar) {
            bound.add_sidecar(config, settings, storage)?;
        }
    }
    let is_in_fleet = fleet.is_some();
    bound.share_limits(fleet.as_ref());
    let health = Health {
        node: status.clone(),
        probes,
        surfaces: bound.surfaces.clone(),
        fleet,
        storage: storage_of,
        metrics: Arc::clone(&bound.process.metrics),
        in_force: Arc::clone(&bound.in_force),
        silent: Mutex::default(),
    };
    bound.add_service(background_service("health", health));
    if let Some((config, tokens)) = config.admin.as_ref().zip(admin) {
        bound.add_admin(config, tokens, |bound, access| Admin {
            process: bound.process.clone(),
            started: SystemTime::now(),
            surfaces: bound.surfaces.clone(),
            listeners: bound.lifecycle.listeners.clone(),
            node: status,
            memory,
            journal,
            in_force: Arc::clone(&bound.in_force),
            access,
            history: History::default(),
            seen: Seen::default(),
            ready_needs_node: config.ready_needs_node,
            is_in_fleet,
        })?;
    }
    files::raise_limit(bound.file_needs(config))?;
    bound.lifecycle.predecessor = std::mem::take(&mut bound.inherited).finish()?;
    Ok(bound)
}

/// The store, and the runtime for work on it.
#[derive(Clone)]
pub(super) struct Storage {
    pub(super) store: Arc<Store>,
    pub(super) runtime: Handle,
}

impl Bound {
    fn new(config: &Config, log: Log, inherited: Inherited) -> Self {
        let metrics = Arc::new(Metrics::new(&LabelValues {
            node_errors: &NodeError::ALL.map(NodeError::name),
            cache_causes: &EpochCause::ALL.map(EpochCause::name),
            intent_states: &IntentState::ALL.map(IntentState::name),
        }));
        let process = ServerContext {
            request_ids: Arc::new(RequestIds::new()),
            drain: Drain::new(metrics.in_flight.clone()),
            log,
            uploads: MemoryPool::new(UPLOAD_MEMORY),
            waiting: Arc::default(),
            tracer: config.trace.clone().map(|config| Tracer::new(config, Arc::clone(&metrics))),
            metrics,
        };
        let mut server = Server::new_with_opt_and_conf(None, server_conf(config));
        let exporter = process.tracer.clone().map(Exporter::new);
        for exporter in exporter.iter().cloned() {
            server.add_service(background_service("trace", exporter));
        }
        let exporter_count = exporter.iter().len() as u64;
        Self {
            server,
            surfaces: Surfaces::default(),
            in_force: Arc::new(AppliedConfig::new(&config.values)),
            access: None,
            node: None,
            inherited,
            store_workers: None,
            lifecycle: Lifecycle {
                drain: Arc::clone(&process.drain),
                draining: process.metrics.draining.clone(),
                config: config.server.clone(),
                runtimes: Arc::default(),
                expected: 0,
                listeners: Vec::new(),
                sockets: Vec::new(),
                reload: None,
                program: None,
                is_exclusive: false,
                predecessor: None,
                exporter,
            },
            services: exporter_count,
            signals: None,
            process,
        }
    }

    fn open_store(
        &mut self,
        config: &config::StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Storage, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(STORE_WORKERS)
            .thread_name("store-worker")
            .enable_all()
            .build()
            .map_err(StartError::Runtime)?;
        let store = runtime
            .block_on(Store::open_or_wait(config, password))
            .map_err(|error| StartError::Store(config.url.clone(), error))?;
        let handle = runtime.handle().clone();
        self.lifecycle.is_exclusive = config.is_for_one();
        self.lifecycle.runtimes.add(handle.clone());
        self.lifecycle.expected += 1;
        self.store_workers = Some((Arc::clone(&store), runtime));
        Ok(Storage { store, runtime: handle })
    }

    /// Joins the other instances, if there is a `[fleet]`.
    fn join_fleet(
        &mut self,
        config: &Config,
        identities: &Identities,
        credentials: Option<fleet::Credentials>,
    ) -> Result<Option<Arc<Fleet>>, StartError> {
        let Some((config, credentials)) = config.fleet.as_ref().zip(credentials) else {
            return Ok(None);
        };
        let fleet = Fleet::new(config, credentials, Arc::clone(&self.process.metrics))?;
        self.add_service(background_service("fleet", Heartbeat(Arc::clone(&fleet))));
        if !identities.are_none() {
            let tickets = self.surfaces.tls.tickets.clone();
            let keys = TicketKeys { fleet: Arc::clone(&fleet), tickets };
            self.add_service(background_service("fleet tickets", keys));
        }
        Ok(Some(fleet))
    }

    /// Shares the limits of every surface with the other instances.
    fn share_limits(&self, fleet: Option<&Arc<Fleet>>) {
        let Some(fleet) = fleet else { return };
        for (surface, clients) in self.surfaces.clients() {
            clients.into_iter().for_each(|clients| clients.share(fleet, surface));
        }
    }

    fn add_gateway(
        &mut self,
        config: &GatewayConfig,
        node_config: &NodeConfig,
        node: NodeClient,
        memory: &Arc<MemoryPool>,
        fleet: Option<Arc<Fleet>>,
    ) -> Result<(), StartError> {
        let gateway = Arc::new(Gateway::new(config, node, Arc::clone(memory)));
        let limits = config.connections.clone();
        self.add_surface(&config.listen, Arc::clone(&gateway), limits, &config.clients)?;
        let watcher =
            gateway.watcher(config, node_config, Arc::clone(&self.process.metrics), fleet);
        self.add_service(background_service("cache watch", watcher));
        self.surfaces.gateway = Some(gateway);
        Ok(())
    }

    fn add_relay(
        &mut self,
        settings: Settings,
        keys: Keys,
        chain: Chain,
        Storage { store, runtime }: Storage,
    ) -> Result<(), StartError> {
        let metrics = Arc::clone(&self.process.metrics);
        let config = &settings.config.clone();
        let relay = Relay::start(config, Parts { settings, keys, chain, store, metrics, runtime });
        self.surfaces.relay = Some(Arc::clone(&relay));
        self.add_surface(&config.listen, relay, ConnectionsConfig::BACKEND, &config.clients)
    }

    fn add_sidecar(
        &mut self,
        config: &SidecarConfig,
        settings: sidecar::Settings,
        Storage { store, runtime }: Storage,
    ) -> Result<(), StartError> {
        let metrics = Arc::clone(&self.process.metrics);
        let sidecar = Arc::new(Sidecar::new(config, settings, store, metrics, runtime));
        self.surfaces.sidecar = Some(Arc::clone(&sidecar));
        self.add_surface(&config.listen, sidecar, ConnectionsConfig::PUBLIC, &config.clients)
    }

    fn add_surface<S: proxy::Surface>(
        &mut self,
        listen: &Listen,
        service: Arc<S>,
        limits: ConnectionsConfig,
        clients: &ClientsConfig,
    ) -> Result<(), StartError> {
        let trusted = self.surfaces.trusted.clone();
        let process = || self.process.clone();
        let errors = Arc::new(SurfaceErrors::new(Arc::clone(&service), process()));
        let app =
            Proxy::app(service, limits.clone(), process(), trusted.clone(), Arc::clone(&errors));
        let gate = Gate::new(app, S::NAME, &limits, trusted, &self.process, errors)
            .secured_by(self.surfaces.tls.clone());
        let gate = if clients.proxy_protocol { gate.behind_balancer() } else { gate };
        let socket = self.bind(S::NAME, listen, limits.max)?;
        self.listen_on(S::NAME, socket, gate, None)
    }

    fn add_admin(
        &mut self,
        config: &AdminConfig,
        tokens: Option<Tokens>,
        parts: impl FnOnce(&Self, Arc<Access>) -> Admin,
    ) -> Result<(), StartError> {
        let surface = Surface::Admin;
        let limits = ConnectionsConfig::OPERATOR;
        let bound = self.bind(surface, &config.listen, limits.max)?;
        if tokens.is_none() && !bound.listen.is_local() {
            return Err(StartError::Open(bound.listen));
        }
        let access = Arc::new(Access::new(bound.listen.clone(), tokens));
        let app = Arc::new(Operator::new(parts(self, Arc::clone(&access))));
        self.add_service(background_service("history", app.sampler()));
        let errors = Arc::new(admin::errors(self.process.clone()));
        let trusted = self.surfaces.trusted.clone();
        let gate = Gate::new(app, surface, &limits, trusted, &self.process, errors)
            .secured_by(self.surfaces.tls.clone());
        self.access = Some(access);
        self.listen_on(surface, bound, gate, Some(1))
    }

    /// Presents the certificates, renews those that are ordered, and listens for challenges.
    fn add_certificates(
        &mut self,
        config: &Config,
        identities: &Identities,
        roots: Option<Roots>,
        fleet: Option<Arc<Fleet>>,
    ) -> Result<(), StartError> {
        let _changed = self.surfaces.tls.change(identities);
        let Some((config, roots)) = config.acme.as_ref().zip(roots) else { return Ok(()) };
        let (tls, metrics) = (self.surfaces.tls.clone(), Arc::clone(&self.process.metrics));
        let renewal = Renewal::new(config, roots, tls, metrics, fleet);
        self.add_service(background_service("acme", renewal));
        let Some(listen) = &config.http_address else { return Ok(()) };
        let (surface, limits) = (Surface::Acme, ConnectionsConfig::CHALLENGES);
        let bound = self.bind(surface, listen, limits.max)?;
        let process = || self.process.clone();
        let app = ChallengeServer::new(config, process(), self.surfaces.tls.clone());
        let errors = Arc::new(TextErrors { process: process(), surface, guard: |reply| reply });
        let trusted = self.surfaces.trusted.clone();
        let gate = Gate::new(Arc::new(app), surface, &limits, trusted, &self.process, errors);
        self.listen_on(surface, bound, gate, Some(1))
    }

    fn bind(
        &mut self,
        surface: Surface,
        listen: &Listen,
        max_connections: usize,
    ) -> Result<BoundSocket, StartError> {
        let failed = |error| StartError::Bind(surface, listen.clone(), error);
        let bound = listen::bind(surface, listen, &mut self.inherited).map_err(failed)?;
        let fd = bound.socket.as_fd().try_clone_to_owned().map_err(failed)?;
        self.lifecycle.sockets.push(ListenerFd { surface, fd, is_held: bound.is_held });
        let listen = bound.listen.clone();
        self.lifecycle.listeners.push(Listener { surface, listen, max_connections });
        Ok(bound)
    }

    fn listen_on<A: ServerApp + Send + Sync + 'static>(
        &mut self,
        surface: Surface,
        bound: BoundSocket,
        app: A,
        threads: Option<usize>,
    ) -> Result<(), StartError> {
        let Lifecycle { drain, runtimes, expected, .. } = &mut self.lifecycle;
        *expected += 1;
        let service = Listening::on(bound.socket, surface, app, threads, drain, runtimes);
        let failed = |error| StartError::Bind(surface, bound.listen, error);
        self.add_service(service.map_err(failed)?);
        Ok(())
    }

    fn add_service(&mut self, service: impl ServiceWithDependents + 'static) {
        self.services += 1;
        self.server.add_service(service);
    }

    /// The files that the process needs.
    fn file_needs(&self, config: &Config) -> FileNeeds {
        let clients = self.lifecycle.listeners.iter().map(|listener| listener.max_connections);
        // the relay has connections of its own
        let users = 1 + usize::from(self.surfaces.relay.is_some());
        let node = users * config.node.url.iter().count() * config.node.max_connections;
        // each service has a runtime, and the lifecycle
        let own = FileNeeds::own(self.services + 1, config.store.as_ref());
        FileNeeds { own, clients: clients.sum::<usize>() as u64, node: node as u64 }
    }

    /// The origin of a surface, with the actual port; `None` if the surface is off.
    pub fn origin(&self, surface: Surface) -> Option<String> {
        let listener = self.lifecycle.listeners.iter().find(|at| at.surface == surface)?;
        let is_secured = self.surfaces.tls.is_secured(surface);
        Some(format!("{}://{}", if is_secured { "https" } else { "http" }, listener.listen))
    }

    /// Reloads `path` on SIGHUP; `config` was read from it.
    pub fn reload_from(&mut self, path: PathBuf, config: Config) {
        self.lifecycle.reload = Some(Reload {
            path,
            current: Mutex::new(config),
            surfaces: self.surfaces.clone(),
            access: self.access.clone(),
            node: self.node.clone(),
            in_force: Arc::clone(&self.in_force),
            metrics: Arc::clone(&self.process.metrics),
        });
    }

    /// Hands over to another process of this `program` on SIGUSR2.
    pub fn hand_over_to(&mut self, program: Program) {
        self.lifecycle.program = Some(program);
    }

    /// Stops on signals whose handlers are installed already, including those that arrived before
    /// `run`.
    pub(crate) fn stop_on(&mut self, signals: StopSignals) {
        self.signals = Some(signals);
    }

    /// The node, which all of its clients share.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.node.clone()
    }

    /// Runs until a signal has stopped it.
    ///
    /// # Errors
    /// There is no thread for the signals.
    pub fn run(self) -> Result<(), StartError> {
        let Self { server, lifecycle, signals, store_workers, .. } = self;
        let signals = signals.map_or_else(StopSignals::install, Ok).map_err(StartError::Runtime)?;
        let shutdown_signal = Box::new(ShutdownSignal(Mutex::new(Some((lifecycle, signals)))));
        server.run(RunArgs { shutdown_signal });
        if let Some((store, runtime)) = store_workers {
            // what runs too long ends with the process
            let _in_time = runtime.block_on(async {
                tokio::time::timeout(STORE_CLOSING, store.close_connections()).await
            });
            runtime.shutdown_timeout(LAST_WORK);
        }
        log::logger().flush();
        Ok(())
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

impl From<LogClients> for portcullis_filters::client::Shown {
    fn from(clients: LogClients) -> Self {
        match clients {
            LogClients::Full => Self::Full,
            LogClients::Truncated => Self::Truncated,
        }
    }
}
