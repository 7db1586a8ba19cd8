//! Listeners: bound or handed in before the server runs, so that a port that is taken is an error
//! and port 0 is known, and ended by our own stop.
//!
//! TCP is accepted by Pingora. A Unix socket is accepted here: Pingora would set the mode of its
//! file, which is the service manager's when that has bound it.

use crate::config::Listen;
use crate::http::drain::Drain;
use crate::process::inherited::{Inherited, Socket};
use crate::process::watchdog::Runtimes;
use crate::telemetry::Surface;
use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::listeners::ListenerConfig;
use pingora::protocols::l4::stream::{L4BufferSettings, Stream};
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use pingora::services::listening::Service as ListeningService;
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

/// A Unix socket is for its owner and group: whoever may write to it may ask.
const SOCKET_MODE: u32 = 0o660;
/// After a connection could not be accepted, most likely because too many files are open.
const PAUSE: Duration = Duration::from_secs(1);

/// A socket that listens, whosever it is.
pub(crate) struct Bound {
    pub(crate) socket: Socket,
    /// Where, the port known.
    pub(crate) listen: Listen,
    /// Whether the service manager has it, too.
    pub(crate) is_held: bool,
}

/// The socket that was handed in for a surface, or one bound here.
///
/// # Errors
/// It can not be bound.
pub(crate) fn bind(
    surface: Surface,
    listen: &Listen,
    inherited: &mut Inherited,
) -> io::Result<Bound> {
    let (socket, is_held) = match inherited.claim(surface.name(), listen) {
        Some(claimed) => claimed,
        None => (bind_new(listen)?, false),
    };
    socket.set_nonblocking()?;
    let listen = socket.listen()?;
    let holder = if is_held { "service manager" } else { "portcullis" };
    let (name, address) = (surface.name(), listen.to_string());
    log::info!(surface = name, address = address, holder = holder; "listening");
    Ok(Bound { socket, listen, is_held })
}

fn bind_new(listen: &Listen) -> io::Result<Socket> {
    match listen {
        Listen::Tcp(address) => TcpListener::bind(address).map(Socket::Tcp),
        Listen::Unix(path) => bind_unix(path).map(Socket::Unix),
    }
}

/// Binds a Unix socket, in place of one that a dead process left behind.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// A service that accepts connections for `A`, until a stop ends that.
pub(crate) struct Listening<A> {
    name: &'static str,
    threads: Option<usize>,
    how: Option<How<A>>,
    /// Counts as a listener from now on, and not from when it runs.
    until: ShutdownWatch,
    runtimes: Arc<Runtimes>,
}

enum How<A> {
    Tcp { service: Box<ListeningService<A>>, address: String, listener: TcpListener },
    Unix { app: A, listener: UnixListener },
}

impl<A: ServerApp + Send + Sync + 'static> Listening<A> {
    /// Accepts on `socket`, with so many threads or as many as the process is given.
    pub(crate) fn on(
        socket: Socket,
        surface: Surface,
        app: A,
        threads: Option<usize>,
        drain: &Drain,
        runtimes: &Arc<Runtimes>,
    ) -> io::Result<Self> {
        let how = match socket {
            Socket::Tcp(listener) => {
                let address = listener.local_addr()?.to_string();
                let mut service = ListeningService::new(surface.name().to_owned(), app);
                // what the kernel hands over is read straight into Pingora's buffers, and an answer
                // is written straight out of its own
                let unbuffered = L4BufferSettings::unbuffered();
                service.add_listener(ListenerConfig::tcp(&address).l4_buffer(unbuffered));
                How::Tcp { service: Box::new(service), address, listener }
            }
            Socket::Unix(listener) => How::Unix { app, listener },
        };
        let runtimes = Arc::clone(runtimes);
        Ok(Self {
            name: surface.name(),
            threads,
            how: Some(how),
            until: drain.listener(),
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
        let Some(how) = self.how.take() else { return };
        let until = self.until.clone();
        let accepts = async move {
            match how {
                How::Tcp { mut service, address, listener } => {
                    if let Some(fds) = &fds {
                        fds.lock().add(address, listener.into_raw_fd());
                    }
                    service.start_service(fds, until, listeners_per_fd).await;
                }
                How::Unix { app, listener } => accept(listener, Arc::new(app), until).await,
            }
        };
        let mut accepts = pin!(accepts);
        // when it has to wait for the first time, it waits for connections
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

/// Accepts until it has to end, each connection with a task of its own.
async fn accept<A>(listener: UnixListener, app: Arc<A>, mut until: ShutdownWatch)
where
    A: ServerApp + Send + Sync + 'static,
{
    let listener = match tokio::net::UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log::error!("a Unix socket can not be listened on: {error}"),
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = until.wait_for(|ends| *ends) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let stream = Box::new(Stream::from(stream));
                tokio::spawn(ListeningService::handle_event(
                    stream,
                    Arc::clone(&app),
                    until.clone(),
                ));
            }
            Err(error) => {
                log::error!("a connection can not be accepted: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
