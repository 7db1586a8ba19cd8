//! The listeners of the parts: a socket, a gate in front of an app, and a service that accepts.

use super::Part;
use super::shared::Shared;
use crate::admin::Listener;
use crate::process::handover::ListenerFd;
use crate::process::inherited::{Inherited, Socket};
use crate::process::listen::{self, Listening};
use crate::process::start_error::StartError;
use pingora::apps::ServerApp;
use portcullis_base::config::{ClientsConfig, ConnectionsConfig, Listen};
use portcullis_base::telemetry::Surface;
use portcullis_edge::http::{ErrorResponder, Gate, Trust};
use portcullis_edge::proxy::{self, Proxy, SurfaceErrors};
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// A bound listener that does not accept yet.
pub(super) struct Endpoint {
    pub(super) listener: Listener,
    limits: ConnectionsConfig,
    socket: Socket,
    fd: ListenerFd,
}

impl Endpoint {
    /// Binds the listener of a surface, unless its socket is inherited.
    pub(super) fn bind(
        surface: Surface,
        listen: &Listen,
        limits: ConnectionsConfig,
        inherited: &mut Inherited,
    ) -> Result<Self, StartError> {
        let failed = |error| StartError::Bind(surface, listen.clone(), error);
        let bound = listen::bind(surface, listen, inherited).map_err(failed)?;
        let fd = bound.socket.as_fd().try_clone_to_owned().map_err(failed)?;
        let fd = ListenerFd {
            surface,
            fd,
            is_held: bound.is_held,
        };
        let listener = Listener {
            surface,
            listen: bound.listen,
            max_connections: limits.max,
        };
        Ok(Self {
            listener,
            limits,
            socket: bound.socket,
            fd,
        })
    }

    /// A gate in front of `app`, without TLS.
    pub(super) fn gate<A>(
        &self,
        app: Arc<A>,
        trusted: Arc<dyn Trust>,
        errors: Arc<dyn ErrorResponder>,
        shared: &Shared,
    ) -> Gate<A> {
        Gate::new(
            app,
            self.listener.surface,
            &self.limits,
            trusted,
            &shared.process,
            errors,
        )
    }

    /// Accepts connections for `app`, with this number of threads or the default of the process.
    pub(super) fn accept<A: ServerApp + Send + Sync + 'static>(
        self,
        app: A,
        threads: Option<usize>,
        shared: &Shared,
    ) -> Result<Part, StartError> {
        let Self {
            listener,
            socket,
            fd,
            ..
        } = self;
        let (surface, drain) = (listener.surface, &shared.process.drain);
        let service = Listening::on(socket, surface, app, threads, drain, &shared.runtimes)
            .map_err(|error| StartError::Bind(surface, listener.listen.clone(), error))?;
        Ok(Part {
            services: vec![Box::new(service)],
            listeners: vec![listener],
            sockets: vec![fd],
        })
    }
}

/// Listens for the clients of a surface.
pub(super) fn serve<S: proxy::Surface>(
    surface: Arc<S>,
    listen: &Listen,
    limits: ConnectionsConfig,
    clients: &ClientsConfig,
    shared: &Shared,
    inherited: &mut Inherited,
) -> Result<Part, StartError> {
    if let Some(fleet) = &shared.fleet {
        surface.running().clients().share(fleet, S::NAME);
    }
    let endpoint = Endpoint::bind(S::NAME, listen, limits.clone(), inherited)?;
    let process = || shared.process.clone();
    let errors: Arc<dyn ErrorResponder> =
        Arc::new(SurfaceErrors::new(Arc::clone(&surface), process()));
    let trusted: Arc<dyn Trust> = Arc::clone(&surface) as _;
    let app = Proxy::app(surface, limits, process(), Arc::clone(&errors));
    let gate = endpoint
        .gate(app, trusted, errors, shared)
        .secured_by(shared.tls.clone());
    let gate = if clients.proxy_protocol {
        shared.process.metrics.proxy_headers.begin(S::NAME);
        gate.behind_balancer()
    } else {
        gate
    };
    endpoint.accept(gate, None, shared)
}
