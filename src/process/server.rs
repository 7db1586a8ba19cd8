//! From a configuration to a running server: every listener is bound and every part wired here.

use crate::admin::{Access, Admin, AdminErrors, Listener, Operator};
use crate::config::AppliedConfig;
use crate::config::{
    self, AdminConfig, Config, ConnectionsConfig, GatewayConfig, Listen, LogClients, NodeConfig,
    RelayConfig, SidecarConfig,
};
use crate::gateway::Gateway;
use crate::http::Gate;
use crate::http::RequestIds;
use crate::http::context::ServerContext;
use crate::http::drain::Drain;
use crate::http::tls::{Identities, TlsErrors};
use crate::io::memory::MemoryPool;
use crate::node::Node;
use crate::node::chain::Chain;
use crate::process::handover::{Bequest, Program};
use crate::process::inherited::{InheritError, Inherited};
use crate::process::lifecycle::{Life, UntilStopped};
use crate::process::listen::{self, Listening};
use crate::process::reload::{Live, Reload};
use crate::process::watchdog::Runtimes;
use crate::proxy::surfaces::Surfaces;
use crate::proxy::{self, Proxy, RelayService, SidecarService, SurfaceErrors};
use crate::relay::settings::{Keys, Settings};
use crate::relay::{Parts, Relay};
use crate::secrets::hardening;
use crate::secrets::{self, SecretError};
use crate::sidecar::{self, Sidecar};
use crate::store::{Store, StoreError};
use crate::telemetry::{Log, Metrics, Surface};
use pingora::apps::ServerApp;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::services::background::background_service;
use portcullis_filters::client::TrustedProxies;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::runtime::{Handle, Runtime};

/// Threads for what outlives its request: they wait for the node and the store, and hash a little.
const KEEPERS: usize = 2;

/// Why there is no server.
#[derive(Debug)]
pub enum StartError {
    /// A listener could not be bound.
    Bind(Listen, io::Error),
    /// A socket was handed in that can not be used.
    Inherit(InheritError),
    /// The admin listener was handed a socket that others can reach, and has no token.
    Open(Listen),
    /// A secret could not be used.
    Secret(SecretError),
    /// A certificate or its key could not be used.
    Tls(TlsErrors),
    /// The store could not be opened.
    Store(StoreError),
    /// No runtime could be made for the store.
    Runtime(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bind(listen, error) => write!(f, "can not listen on {listen}: {error}"),
            Self::Inherit(error) => error.fmt(f),
            Self::Open(listen) => {
                write!(
                    f,
                    "the admin listener is at {listen}: set admin.token_file, others reach it"
                )
            }
            Self::Secret(error) => error.fmt(f),
            Self::Tls(errors) => errors.fmt(f),
            Self::Store(error) => write!(f, "can not open the store: {error}"),
            Self::Runtime(error) => write!(f, "can not start threads: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<SecretError> for StartError {
    fn from(error: SecretError) -> Self {
        Self::Secret(error)
    }
}

impl From<InheritError> for StartError {
    fn from(error: InheritError) -> Self {
        Self::Inherit(error)
    }
}

/// A bound server, not running yet.
pub struct Bound {
    server: Server,
    life: Life,
    surfaces: Surfaces,
    listeners: Vec<Listener>,
    in_force: Arc<AppliedConfig>,
    access: Option<Arc<Access>>,
    process: ServerContext,
    runtimes: Arc<Runtimes>,
    inherited: Inherited,
    /// Where what outlives its request runs, until the process ends.
    keepers: Option<Runtime>,
    /// Where the gateway listens, its port known.
    pub gateway: Option<Listen>,
    /// Where the relay listens, its port known.
    pub relay: Option<Listen>,
    /// Where the sidecar listens, its port known.
    pub sidecar: Option<Listen>,
    /// Where the admin listener is, its port known.
    pub admin: Option<Listen>,
}

/// Binds every listener that was not handed in, and wires every part.
///
/// # Errors
/// The first listener that can not be bound, or what else keeps it from starting.
pub fn bind(config: &Config, log: Log, inherited: Inherited) -> Result<Bound, StartError> {
    let identities = Identities::load(config).map_err(StartError::Tls)?;
    for warning in identities.warnings(SystemTime::now()) {
        log::warn!("{warning}");
    }
    if config.store.is_some() || !identities.are_none() {
        hardening::no_core_files();
    }
    let mut bound = Bound::new(config, log, inherited);
    let metrics = Arc::clone(&bound.process.metrics);
    let memory = MemoryPool::new(config.server.answer_memory.bytes());
    let node = Arc::new(Node::new(&config.node, Arc::clone(&memory), Arc::clone(&metrics)));
    bound.surfaces.tls.change(&identities);
    if let Some(gateway) = &config.gateway {
        bound.add_gateway(gateway, &config.node, &node, &memory)?;
    }
    let mut journal = None;
    if let Some(store) = &config.store {
        bound.life.is_alone = store.is_for_one();
        let (runtime, store) = open_store(store)?;
        let keeping = Keeping { store, runtime: runtime.handle().clone() };
        bound.runtimes.add(runtime.handle().clone());
        bound.life.expected += 1;
        bound.keepers = Some(runtime);
        if let Some(relay) = &config.relay {
            // connections of its own: writes do not queue behind reads
            let node = Node::new(&config.node, Arc::clone(&memory), Arc::clone(&metrics));
            let chain = Chain::new(node);
            journal = Some((keeping.store.journal(), keeping.runtime.clone()));
            bound.relay = Some(bound.add_relay(relay, chain, keeping.clone())?);
        }
        if let Some(sidecar) = &config.sidecar {
            bound.sidecar = Some(bound.add_sidecar(sidecar, keeping)?);
        }
    }
    if let Some(config) = &config.admin {
        bound.add_admin(config, |bound, access| Admin {
            process: bound.process.clone(),
            started: SystemTime::now(),
            surfaces: bound.surfaces.clone(),
            listeners: bound.listeners.clone(),
            node,
            memory,
            journal,
            in_force: Arc::clone(&bound.in_force),
            access,
        })?;
    }
    bound.life.predecessor = std::mem::take(&mut bound.inherited).finish()?;
    Ok(bound)
}

/// What is kept, and where work on it runs.
#[derive(Clone)]
struct Keeping {
    store: Arc<Store>,
    runtime: Handle,
}

impl Bound {
    /// Without any surface yet.
    fn new(config: &Config, log: Log, inherited: Inherited) -> Self {
        let metrics = Arc::new(Metrics::new());
        let process = ServerContext {
            request_ids: Arc::new(RequestIds::new()),
            drain: Drain::new(metrics.in_flight.clone()),
            metrics,
            log,
        };
        let runtimes = Arc::<Runtimes>::default();
        Self {
            server: Server::new_with_opt_and_conf(None, server_conf(config)),
            life: Life::new(&process, &config.server, Arc::clone(&runtimes)),
            surfaces: Surfaces::default(),
            listeners: Vec::new(),
            in_force: Arc::new(AppliedConfig::new(&config.values)),
            access: None,
            process,
            runtimes,
            inherited,
            keepers: None,
            gateway: None,
            relay: None,
            sidecar: None,
            admin: None,
        }
    }

    fn add_gateway(
        &mut self,
        config: &GatewayConfig,
        node_config: &NodeConfig,
        node: &Arc<Node>,
        memory: &Arc<MemoryPool>,
    ) -> Result<(), StartError> {
        let gateway = Arc::new(Gateway::new(config, Arc::clone(node), Arc::clone(memory)));
        let limits = config.connections.clone();
        let trusted = TrustedProxies::from(config.clients.trusted_proxies.clone());
        let service = Arc::clone(&gateway);
        self.gateway = Some(self.add_surface(&config.listen, service, limits, trusted)?);
        let watcher = gateway.watcher(config, node_config, Arc::clone(&self.process.metrics));
        self.server.add_service(background_service("cache watch", watcher));
        self.surfaces.gateway = Some(gateway);
        Ok(())
    }

    fn add_relay(
        &mut self,
        config: &RelayConfig,
        chain: Chain,
        keeping: Keeping,
    ) -> Result<Listen, StartError> {
        let settings = Settings::load(config)?;
        let keys = Keys::load(config)?;
        let Keeping { store, runtime } = keeping;
        let metrics = Arc::clone(&self.process.metrics);
        let parts = Parts { settings, keys, chain, store, metrics, runtime };
        let relay = Relay::start(config, parts);
        self.surfaces.relay = Some(Arc::clone(&relay));
        let limits = ConnectionsConfig::BACKEND;
        let trusted = TrustedProxies::from(config.clients.trusted_proxies.clone());
        let service = Arc::new(RelayService(relay));
        self.add_surface(&config.listen, service, limits, trusted)
    }

    fn add_sidecar(
        &mut self,
        config: &SidecarConfig,
        Keeping { store, runtime }: Keeping,
    ) -> Result<Listen, StartError> {
        let settings = sidecar::Settings::load(config)?;
        let metrics = Arc::clone(&self.process.metrics);
        let sidecar = Arc::new(Sidecar::new(config, settings, store, metrics, runtime));
        self.surfaces.sidecar = Some(Arc::clone(&sidecar));
        let trusted = TrustedProxies::from(config.clients.trusted_proxies.clone());
        let service = Arc::new(SidecarService(sidecar));
        self.add_surface(&config.listen, service, ConnectionsConfig::PUBLIC, trusted)
    }

    fn add_surface<S: proxy::Surface>(
        &mut self,
        listen: &Listen,
        service: Arc<S>,
        limits: ConnectionsConfig,
        trusted: TrustedProxies,
    ) -> Result<Listen, StartError> {
        let process = || self.process.clone();
        let errors = Arc::new(SurfaceErrors::new(Arc::clone(&service), process()));
        let app = Proxy::app(service, limits.clone(), process(), Arc::clone(&errors));
        let gate = Gate::new(app, S::NAME, &limits, trusted, &self.process, errors)
            .secured_by(self.surfaces.tls.clone());
        let bound = self.bind(S::NAME, listen)?;
        let listen = self.listen_on(S::NAME, bound, gate, None)?;
        let max_connections = limits.max;
        let listener = Listener { surface: S::NAME, listen: listen.clone(), max_connections };
        self.listeners.push(listener);
        Ok(listen)
    }

    fn add_admin(
        &mut self,
        config: &AdminConfig,
        admin: impl FnOnce(&Self, Arc<Access>) -> Admin,
    ) -> Result<(), StartError> {
        let surface = Surface::Admin;
        let tokens = Access::load(config)?;
        let bound = self.bind(surface, &config.listen)?;
        if tokens.is_none() && !bound.listen.is_local() {
            return Err(StartError::Open(bound.listen));
        }
        let access = Arc::new(Access::new(bound.listen.clone(), tokens));
        let app = Arc::new(Operator::new(admin(self, Arc::clone(&access))));
        let errors = Arc::new(AdminErrors(self.process.clone()));
        let trusted = TrustedProxies::default();
        let limits = ConnectionsConfig::OPERATOR;
        let gate = Gate::new(app, surface, &limits, trusted, &self.process, errors)
            .secured_by(self.surfaces.tls.clone());
        self.admin = Some(self.listen_on(surface, bound, gate, Some(1))?);
        self.access = Some(access);
        Ok(())
    }

    fn bind(&mut self, surface: Surface, listen: &Listen) -> Result<listen::Bound, StartError> {
        listen::bind(surface, listen, &mut self.inherited)
            .map_err(|error| StartError::Bind(listen.clone(), error))
    }

    fn listen_on<A: ServerApp + Send + Sync + 'static>(
        &mut self,
        surface: Surface,
        bound: listen::Bound,
        app: A,
        threads: Option<usize>,
    ) -> Result<Listen, StartError> {
        let listen::Bound { socket, listen: at, is_held } = bound;
        let failed = |error| StartError::Bind(at.clone(), error);
        let shared = socket.share().map_err(failed)?;
        self.life.sockets.push(Bequest { surface, socket: shared, is_held });
        self.life.serves.push(format!("{} {at}", surface.name()));
        self.life.expected += 1;
        let (drain, runtimes) = (&self.process.drain, &self.runtimes);
        let service = Listening::on(socket, surface, app, threads, drain, runtimes);
        self.server.add_service(service.map_err(failed)?);
        Ok(at)
    }

    /// Reloads `path` on SIGHUP; `config` is what was read from it.
    pub fn reload_from(&mut self, path: PathBuf, config: Config) {
        let live = Live {
            surfaces: self.surfaces.clone(),
            access: self.access.clone(),
            in_force: Arc::clone(&self.in_force),
            metrics: Arc::clone(&self.process.metrics),
        };
        self.life.reload = Some(Reload::new(path, config, live));
    }

    /// Hands over to another process of this `program` on SIGUSR2.
    pub fn hand_over_to(&mut self, program: Program) {
        self.life.program = Some(program);
    }

    /// Runs until a signal stops it, and returns when it has stopped.
    pub fn run(self) {
        self.server.run(RunArgs { shutdown_signal: Box::new(UntilStopped::from(self.life)) });
        log::logger().flush();
    }
}

fn open_store(config: &config::StoreConfig) -> Result<(Runtime, Arc<Store>), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(KEEPERS)
        .thread_name("keeper")
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let password = secrets::read_optional(config.password_file.as_deref())?;
    let store =
        runtime.block_on(Store::open(config, password.as_ref())).map_err(StartError::Store)?;
    Ok((runtime, Arc::new(store)))
}

fn server_conf(config: &Config) -> ServerConf {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = config.server.threads.map_or(cores, std::num::NonZero::get);
    ServerConf {
        threads,
        // with one thread there is nobody to steal from
        work_stealing: threads > 1,
        // a stop is carried out by `stop`: when Pingora gets to it, nothing is left to wait for
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
