//! From a configuration to a running server: every listener is bound and every part wired here.

use crate::admin::{Access, Admin, Listener, Operator};
use crate::config::{
    self, AdminConfig, Config, ConnectionsConfig, GatewayConfig, Listen, LogClients, RelayConfig,
    SidecarConfig,
};
use crate::edge::{Edge, GateVoice, RelayService, RequestIds, Service as Surfaced, SidecarService};
use crate::gate::Gate;
use crate::gateway::Gateway;
use crate::hardening;
use crate::node::chain::Chain;
use crate::node::{Memory, Node};
use crate::process::Process;
use crate::relay::settings::{Keys, Settings};
use crate::relay::{Parts, Relay};
use crate::reload::{InForce, Live, Reload};
use crate::secrets::{self, SecretError};
use crate::sidecar::{self, Sidecar};
use crate::stop::{Stop, StopOnSignal};
use crate::store::{Store, StoreConfig, StoreError};
use crate::surfaces::Surfaces;
use crate::telemetry::{Log, Metrics, Surface};
use crate::tls::{Identities, TlsErrors};
use async_trait::async_trait;
use pingora_core::apps::ServerApp;
use pingora_core::listeners::ListenerConfig;
use pingora_core::protocols::l4::stream::L4BufferSettings;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{ListenFds, RunArgs, Server, ShutdownWatch};
use pingora_core::services::Service;
use pingora_core::services::background::background_service;
use pingora_core::services::listening::Service as ListeningService;
use portcullis_filters::client::TrustedProxies;
use std::fs::Permissions;
use std::io;
use std::net::TcpListener;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::runtime::{Handle, Runtime};

/// A Unix socket is for its owner and group: whoever may write to it may ask.
const SOCKET_MODE: u32 = 0o660;
/// Threads for what outlives its request: they wait for the node and the store, and hash a little.
const KEEPERS: usize = 2;

/// Why there is no server.
#[derive(Debug)]
pub enum StartError {
    /// A listener could not be bound.
    Bind(Listen, io::Error),
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

/// A bound server, not running yet.
pub struct Bound {
    server: Server,
    stop: StopOnSignal,
    surfaces: Surfaces,
    listeners: Vec<Listener>,
    in_force: Arc<InForce>,
    access: Option<Arc<Access>>,
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

/// Binds every listener and wires every part.
///
/// # Errors
/// The first listener that can not be bound, or what else keeps it from starting.
pub fn bind(config: &Config, log: Log) -> Result<Bound, StartError> {
    let identities = Identities::load(config).map_err(StartError::Tls)?;
    for warning in identities.warnings(SystemTime::now()) {
        log::warn!("{warning}");
    }
    let metrics = Arc::new(Metrics::new());
    let process = Process {
        request_ids: Arc::new(RequestIds::new()),
        stop: Stop::new(metrics.in_flight.clone()),
        metrics: Arc::clone(&metrics),
        log,
    };
    let memory = Memory::new(config.server.answer_memory.bytes());
    let node = Arc::new(Node::new(&config.node, Arc::clone(&memory), Arc::clone(&metrics)));
    let stop = Arc::clone(&process.stop);
    let mut bound = Bound {
        server: Server::new_with_opt_and_conf(None, server_conf(config)),
        stop: StopOnSignal::new(stop, metrics.draining.clone(), &config.server),
        surfaces: Surfaces::default(),
        listeners: Vec::new(),
        in_force: Arc::new(InForce::new(&config.values)),
        access: None,
        keepers: None,
        gateway: None,
        relay: None,
        sidecar: None,
        admin: None,
    };
    bound.surfaces.tls.change(&identities);
    let node_config = &config.node;
    let mut journal = None;
    if let Some(config) = &config.gateway {
        let gateway = Gateway::new(config, Arc::clone(&node), Arc::clone(&memory));
        let gateway = Arc::new(gateway);
        bound.gateway = Some(bound.add_gateway(config, Arc::clone(&gateway), &process)?);
        let watcher = gateway.watcher(config, node_config, Arc::clone(&metrics));
        bound.server.add_service(background_service("cache watch", watcher));
        bound.surfaces.gateway = Some(gateway);
    }
    if config.store.is_some() || !identities.are_none() {
        hardening::no_core_files();
    }
    if let Some(store) = &config.store {
        let (runtime, store) = open_store(store)?;
        let keeping = Keeping { store, runtime: runtime.handle().clone() };
        bound.keepers = Some(runtime);
        if let Some(relay) = &config.relay {
            // connections of its own: writes do not queue behind reads
            let node = Node::new(&config.node, Arc::clone(&memory), Arc::clone(&metrics));
            let chain = Chain::new(node);
            journal = Some((keeping.store.journal(), keeping.runtime.clone()));
            bound.relay = Some(bound.add_relay(relay, chain, keeping.clone(), &process)?);
        }
        if let Some(sidecar) = &config.sidecar {
            bound.sidecar = Some(bound.add_sidecar(sidecar, keeping, &process)?);
        }
    }
    if let Some(config) = &config.admin {
        bound.add_admin(config, |bound, access| Admin {
            process,
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
    Ok(bound)
}

/// What is kept, and where work on it runs.
#[derive(Clone)]
struct Keeping {
    store: Arc<Store>,
    runtime: Handle,
}

impl Bound {
    fn add_gateway(
        &mut self,
        config: &GatewayConfig,
        gateway: Arc<Gateway>,
        process: &Process,
    ) -> Result<Listen, StartError> {
        let limits = config.connections.clone();
        let trusted = TrustedProxies::from(config.clients.trusted_proxies.clone());
        self.add_surface(&config.listen, gateway, limits, trusted, process)
    }

    fn add_relay(
        &mut self,
        config: &RelayConfig,
        chain: Chain,
        keeping: Keeping,
        process: &Process,
    ) -> Result<Listen, StartError> {
        let settings = Settings::load(config)?;
        let keys = Keys::load(config)?;
        let Keeping { store, runtime } = keeping;
        let metrics = Arc::clone(&process.metrics);
        let parts = Parts { settings, keys, chain, store, metrics, runtime };
        let relay = Relay::start(config, parts);
        self.surfaces.relay = Some(Arc::clone(&relay));
        let limits = ConnectionsConfig::BACKEND;
        let trusted = TrustedProxies::from(config.clients.trusted_proxies.clone());
        let service = Arc::new(RelayService(relay));
        self.add_surface(&config.listen, service, limits, trusted, process)
    }

    fn add_sidecar(
        &mut self,
        config: &SidecarConfig,
        Keeping { store, runtime }: Keeping,
        process: &Process,
    ) -> Result<Listen, StartError> {
        let settings = sidecar::Settings::load(config)?;
        let metrics = Arc::clone(&process.metrics);
        let parts = sidecar::Parts { settings, store, metrics, runtime };
        let sidecar = Arc::new(Sidecar::new(config, parts));
        self.surfaces.sidecar = Some(Arc::clone(&sidecar));
        let trusted = TrustedProxies::from(config.clients.trusted_proxies.clone());
        let service = Arc::new(SidecarService(sidecar));
        self.add_surface(&config.listen, service, ConnectionsConfig::PUBLIC, trusted, process)
    }

    fn add_surface<S: Surfaced>(
        &mut self,
        listen: &Listen,
        service: Arc<S>,
        limits: ConnectionsConfig,
        trusted: TrustedProxies,
        process: &Process,
    ) -> Result<Listen, StartError> {
        let voice = GateVoice::new(S::SURFACE, Some(Arc::clone(&service)), process.clone());
        let edge = Edge::new(service, limits.clone(), process.clone());
        let gate = Gate::new(edge, S::SURFACE, &limits, trusted, process, Arc::new(voice))
            .secured_by(self.surfaces.tls.clone());
        let (service, listen) = listen_on(S::SURFACE, listen, gate)?;
        self.server.add_service(service);
        let max_connections = limits.max;
        let listener = Listener { surface: S::SURFACE, listen: listen.clone(), max_connections };
        self.listeners.push(listener);
        Ok(listen)
    }

    fn add_admin(
        &mut self,
        config: &AdminConfig,
        admin: impl FnOnce(&Self, Arc<Access>) -> Admin,
    ) -> Result<(), StartError> {
        let surface = Surface::Admin;
        let access = Access::new(config.listen.clone(), Access::load(config)?);
        let access = Arc::new(access);
        let admin = admin(self, Arc::clone(&access));
        let process = admin.process.clone();
        let voice = Arc::new(GateVoice::<Gateway>::new(surface, None, process.clone()));
        let trusted = TrustedProxies::default();
        let limits = ConnectionsConfig::OPERATOR;
        let app = Operator::new(admin);
        let gate = Gate::new(app, surface, &limits, trusted, &process, voice)
            .secured_by(self.surfaces.tls.clone());
        let (mut service, listen) = listen_on(surface, &config.listen, gate)?;
        service.inner.threads = Some(1);
        self.server.add_service(service);
        self.admin = Some(listen);
        self.access = Some(access);
        Ok(())
    }

    /// Reloads `path` on SIGHUP; `config` is what was read from it.
    pub fn reload_from(&mut self, path: PathBuf, config: Config) {
        let live = Live {
            surfaces: self.surfaces.clone(),
            access: self.access.clone(),
            in_force: Arc::clone(&self.in_force),
        };
        self.stop.reload_with(Reload::new(path, config, live));
    }

    /// Runs until a signal stops it, and returns when it has stopped.
    pub fn run(self) {
        self.server.run(RunArgs { shutdown_signal: Box::new(self.stop) });
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
    let place = StoreConfig::new(config, password.as_ref());
    let store = runtime.block_on(Store::open(&place)).map_err(StartError::Store)?;
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

fn listen_on<A: ServerApp + Send + Sync + 'static>(
    surface: Surface,
    listen: &Listen,
    app: A,
) -> Result<(Listening<A>, Listen), StartError> {
    let failed = |error| StartError::Bind(listen.clone(), error);
    let (name, fd, endpoint, listen) = match listen {
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            let name = address.to_string();
            (name.clone(), OwnedFd::from(listener), ListenerConfig::tcp(name), Listen::Tcp(address))
        }
        Listen::Unix(path) => {
            let listener = bind_unix(path).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let name = path.to_string_lossy().into_owned();
            let endpoint =
                ListenerConfig::uds(name.clone()).permissions(Permissions::from_mode(SOCKET_MODE));
            (name, OwnedFd::from(listener), endpoint, Listen::Unix(path.clone()))
        }
    };
    let mut inner = ListeningService::new(surface.name().to_owned(), app);
    // what the kernel hands over is read straight into Pingora's buffers, and an answer is written
    // straight out of its own
    inner.add_listener(endpoint.l4_buffer(L4BufferSettings::unbuffered()));
    log::info!(surface = surface.name(), address = listen.to_string(); "listening");
    Ok((Listening { inner, name, fd: Some(fd) }, listen))
}

/// Binds a Unix socket, in place of one that a dead process left behind.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

/// A service whose listener was bound before it starts, so that a port that is taken is an error
/// and port 0 is known.
struct Listening<A> {
    inner: ListeningService<A>,
    name: String,
    fd: Option<OwnedFd>,
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> Service for Listening<A> {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        if let (Some(fds), Some(fd)) = (&fds, self.fd.take()) {
            fds.lock().add(self.name.clone(), fd.into_raw_fd());
        }
        self.inner.start_service(fds, shutdown, listeners_per_fd).await;
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn threads(&self) -> Option<usize> {
        self.inner.threads
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        self.inner.listen_addresses()
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
