//! Listeners. They are bound or inherited before the server runs, so that a port in use is an error
//! of the start and port 0 is resolved. Our own drain closes them.
//!
//! Pingora accepts on TCP. Unix sockets are accepted here, because Pingora would change the mode of
//! a file that the service manager may have created.

use crate::process::inherited::{BoundSocket, Inherited, Socket};
use crate::process::port_owner::PortOwner;
use crate::process::systemd::Runtimes;
use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::listeners::ListenerConfig;
use pingora::protocols::l4::stream::{L4BufferSettings, Stream};
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use pingora::services::listening::Service as ListeningService;
use portcullis_base::config::{self, Listen};
use portcullis_base::telemetry::Surface;
use portcullis_edge::http::context::Drain;
use std::fs::Permissions;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;

/// The mode of a Unix socket: for its owner and group.
const SOCKET_MODE: u32 = 0o660;
/// The remedy for privileged ports in a service that does not run as root.
const PRIVILEGE: &str = "a socket unit (portcullis.socket), or CAP_NET_BIND_SERVICE";
/// Pause after a failed accept, which most likely means that too many files are open.
const PAUSE: Duration = Duration::from_secs(1);

/// The inherited socket of a surface, or a new one.
///
/// # Errors
/// Fails if the socket cannot be bound.
pub fn bind(
    surface: Surface,
    listen: &Listen,
    inherited: &mut Inherited,
) -> io::Result<BoundSocket> {
    let bound = match inherited.claim(surface.name(), listen) {
        Some(inherited) => inherited,
        None => BoundSocket::new(bind_new(listen)?)?,
    };
    bound.socket.set_nonblocking()?;
    let holder = if bound.is_held {
        "service manager"
    } else {
        "portcullis"
    };
    let (name, address) = (surface.name(), bound.listen.to_string());
    log::info!(surface = name, address = address, holder = holder; "listening");
    Ok(bound)
}

/// Checks that a new socket could listen there now: binds one and closes it.
///
/// # Errors
/// Fails if the socket cannot be bound.
pub fn check(listen: &Listen) -> io::Result<()> {
    let bound = bind_new(listen)?;
    if let (Listen::Unix(path), Socket::Unix(_)) = (listen, &bound) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Why a surface cannot listen on the address of this key, and what to do.
pub fn refusal(key: &str, listen: &Listen, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied && listen.is_privileged() {
        return format!("cannot listen on {listen}: {error}; ports below 1024 need {PRIVILEGE}");
    }
    if error.kind() != io::ErrorKind::AddrInUse {
        return format!("cannot listen on {listen}: {error}");
    }
    let owner = PortOwner::of(listen).map_or_else(String::new, |owner| format!(" by {owner}"));
    let variable = config::variable(key);
    format!("{listen} is in use{owner}; set {key} or {variable} to another address")
}

fn bind_new(listen: &Listen) -> io::Result<Socket> {
    match listen {
        Listen::Tcp(address) => TcpListener::bind(address).map(Socket::Tcp),
        Listen::Unix(path) => bind_unix(path).map(Socket::Unix),
    }
}

/// Binds a Unix socket, replacing the file that a dead process left behind.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// A service that accepts connections for `A` until the drain closes its listener.
pub(crate) struct Listening<A> {
    name: &'static str,
    threads: Option<usize>,
    acceptor: Option<Acceptor<A>>,
    /// Created with the listener, so that the drain also waits for one that is not running yet.
    shutdown: ShutdownWatch,
    runtimes: Arc<Runtimes>,
}

enum Acceptor<A> {
    Tcp {
        service: Box<ListeningService<A>>,
        address: String,
        listener: TcpListener,
    },
    Unix {
        app: A,
        listener: UnixListener,
    },
}

impl<A: ServerApp + Send + Sync + 'static> Listening<A> {
    /// Accepts on `socket`, with this number of threads or the default of the process.
    pub(crate) fn on(
        socket: Socket,
        surface: Surface,
        app: A,
        threads: Option<usize>,
        drain: &Drain,
        runtimes: &Arc<Runtimes>,
    ) -> io::Result<Self> {
        let acceptor = match socket {
            Socket::Tcp(listener) => {
                let address = listener.local_addr()?.to_string();
                let mut service = ListeningService::new(surface.name().to_owned(), app);
                // the kernel reads into Pingora's own buffers, and writes from them
                let unbuffered = L4BufferSettings::unbuffered();
                service.add_listener(ListenerConfig::tcp(&address).l4_buffer(unbuffered));
                Acceptor::Tcp {
                    service: Box::new(service),
                    address,
                    listener,
                }
            }
            Socket::Unix(listener) => Acceptor::Unix { app, listener },
        };
        let runtimes = Arc::clone(runtimes);
        let shutdown = drain.listener(surface);
        Ok(Self {
            name: surface.name(),
            threads,
            acceptor: Some(acceptor),
            shutdown,
            runtimes,
        })
    }
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> Service for Listening<A> {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        _: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        let shutdown = self.shutdown.clone();
        let accepts = async move {
            match acceptor {
                Acceptor::Tcp {
                    mut service,
                    address,
                    listener,
                } => {
                    if let Some(fds) = &fds {
                        fds.lock().add(address, listener.into_raw_fd());
                    }
                    service.start_service(fds, shutdown, listeners_per_fd).await;
                }
                Acceptor::Unix { app, listener } => accept(listener, Arc::new(app), shutdown).await,
            }
        };
        let mut accepts = pin!(accepts);
        // once the future is pending, it waits for connections
        let first = poll_fn(|cx| Poll::Ready(accepts.as_mut().poll(cx))).await;
        self.runtimes.add(Handle::current());
        if first.is_pending() {
            accepts.await;
        }
    }

    fn name(&self) -> &str {
        self.name
    }

    fn threads(&self) -> Option<usize> {
        self.threads
    }
}

/// Accepts until shutdown, with a task for each connection.
async fn accept<A>(listener: UnixListener, app: Arc<A>, mut shutdown: ShutdownWatch)
where
    A: ServerApp + Send + Sync + 'static,
{
    let listener = match tokio::net::UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log::error!("cannot listen on a Unix socket: {error}"),
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shutdown.wait_for(|ends| *ends) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let stream = Box::new(Stream::from(stream));
                tokio::spawn(ListeningService::handle_event(
                    stream,
                    Arc::clone(&app),
                    shutdown.clone(),
                ));
            }
            Err(error) => {
                log::error!("cannot accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
