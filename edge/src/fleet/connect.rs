//! Connections to the servers of the store.
//!
//! Replies are bounded before they are parsed. A connection lasts as long as its [`Link`].

use portcullis_base::config::{FleetConfig, FleetServer, FleetTransport, FleetUrl};
use portcullis_base::io::within;
use portcullis_base::secrets::certificates::{Remedies, refusal_with};
use portcullis_base::secrets::{self, Secret, SecretError, trust};
use portcullis_filters::replies::ReplyBounds;
use redis::aio::{AsyncStream, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo};
use redis::{FromRedisValue as _, RedisResult, Value};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

/// Messages that may be under way, so that a store that hangs holds few tasks.
pub(super) const MESSAGES: usize = 512;
/// Timeout of connecting, and of a heartbeat: both within its interval.
pub(super) const PATIENCE: Duration = Duration::from_millis(450);
/// Minimum length of the secret in bytes, that of the digest: RFC 2104, section 3.
const MIN_SECRET: usize = 32;

const REMEDIES: Remedies = Remedies {
    authority: "name its authority's certificate with fleet.ca_file",
    name: "use a name that it lists in fleet.url",
};

/// Why the store cannot be used.
#[derive(Debug, Error)]
pub enum FleetError {
    /// A call to the store failed.
    #[error("{0}")]
    Store(#[from] redis::RedisError),
    /// There is no connection to a server.
    #[error("{0}")]
    Connection(String),
    /// The store did not answer in time.
    #[error("timeout")]
    Timeout,
    /// There is no connection; the next heartbeat connects.
    #[error("not connected")]
    NotConnected,
    /// The server only copies another one.
    #[error("a replica: name its primary, or all servers with commas between them")]
    Replica,
    /// The server only watches others.
    #[error("a Sentinel: name the servers that it watches, with commas between them")]
    Sentinel,
    /// The server is of a cluster, and says nothing of it that can be understood.
    #[error("a cluster whose answer to CLUSTER SLOTS cannot be read")]
    Slots,
    /// No server of a cluster holds the key.
    #[error("no server of the cluster holds this part of the keys")]
    NoServer,
    /// No server can be used; each with its cause.
    #[error("{0}")]
    Servers(String),
    /// The kernel returned no random bytes.
    #[error("the kernel returned no random bytes")]
    Random,
    /// A shared value was not sealed with this secret.
    #[error("a value in the store is not sealed with fleet.secret_file")]
    Sealed,
}

/// An unusable file of `[fleet]`: its key, and the cause.
#[derive(Debug)]
pub struct CredentialsError(pub &'static str, pub String);

impl From<SecretError> for CredentialsError {
    fn from(error: SecretError) -> Self {
        Self(error.key(), error.to_string())
    }
}

/// The contents of the files of `[fleet]`.
#[derive(Debug)]
pub struct Credentials {
    pub(super) password: Option<Secret>,
    /// The secret that is used, and while it is replaced the other one.
    pub(super) secrets: Vec<Secret>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns every file that is unusable.
    pub fn load(config: &FleetConfig) -> Result<Self, Vec<CredentialsError>> {
        let password =
            secrets::read_optional("fleet.password_file", config.password_file.as_deref());
        let secrets = read_secrets(&config.secret_file).map_err(|e| e.of("fleet.secret_file"));
        match (password, secrets, tls(config)) {
            (Ok(password), Ok(secrets), Ok(tls)) => Ok(Self {
                password,
                secrets,
                tls,
            }),
            (password, secrets, tls) => {
                let errors = [password.err(), secrets.err()].into_iter().flatten();
                Err(errors.map(Into::into).chain(tls.err()).collect())
            }
        }
    }
}

fn tls(config: &FleetConfig) -> Result<Option<Arc<ClientConfig>>, CredentialsError> {
    if config.url.transport == FleetTransport::Plain && config.ca_file.is_none() {
        return Ok(None);
    }
    let tls = trust::client(config.ca_file.as_deref());
    let tls = tls.map_err(|error| CredentialsError("fleet.ca_file", error.to_string()))?;
    Ok(Some(Arc::new(tls)))
}

/// The secret of the file, or the one that is used and the other one on two lines.
fn read_secrets(path: &Path) -> Result<Vec<Secret>, SecretError> {
    let secret = secrets::read(path)?;
    let lines = secrets::lines(&secret);
    if lines.len() == 2 && lines.iter().all(|line| line.expose().len() >= MIN_SECRET) {
        return Ok(lines);
    }
    if secret.expose().trim_ascii().len() < MIN_SECRET {
        return Err(SecretError::not(path, "a secret of 32 bytes or more"));
    }
    // as it is, with its white space
    Ok(vec![secret])
}

/// A connection to a server, which ends with this.
pub(super) struct Link {
    connection: MultiplexedConnection,
    driver: AbortHandle,
}

impl Link {
    /// The connection, for one call.
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    /// It holds all keys.
    Single,
    /// It is one of a cluster.
    Cluster,
}

/// Connects to the servers of the store.
pub(super) struct Connector {
    pub(super) url: FleetUrl,
    settings: RedisConnectionInfo,
    tls: Option<Arc<ClientConfig>>,
    pushed: Arc<Notify>,
}

impl Connector {
    /// Creates a connector; `pushed` is signalled by what servers publish.
    pub(super) fn new(url: &FleetUrl, credentials: &Credentials, pushed: Arc<Notify>) -> Self {
        // with RESP3, pushes arrive on the same connection
        let mut settings = RedisConnectionInfo::default()
            .set_db(url.database)
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("portcullis", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &url.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &credentials.password {
            let password = String::from_utf8_lossy(password.expose().trim_ascii());
            settings = settings.set_password(password);
        }
        Self {
            url: url.clone(),
            settings,
            tls: credentials.tls.clone(),
            pushed,
        }
    }

    /// Connects to a server that can be used.
    ///
    /// # Errors
    /// Returns why there is no connection, or why the server cannot be used.
    pub(super) async fn connect(
        &self,
        server: &FleetServer,
    ) -> Result<(Link, ServerKind), FleetError> {
        let link = within(PATIENCE, pin!(self.open(server)))
            .await
            .unwrap_or(Err(FleetError::Timeout))?;
        let kind = kind(&mut link.connection()).await?;
        Ok((link, kind))
    }

    async fn open(&self, server: &FleetServer) -> Result<Link, FleetError> {
        let stream = self.stream(server).await.map_err(|error| {
            let cause = connection_cause(&error);
            FleetError::Connection(cause)
        })?;
        let pushed = Arc::clone(&self.pushed);
        // each call has a timeout of its own
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(MESSAGES)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Message {
                    pushed.notify_one();
                }
                Ok::<_, FleetError>(())
            });
        let stream = Bounded {
            stream,
            bounds: ReplyBounds::default(),
        };
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&self.settings, stream, config).await?;
        let driver = tokio::spawn(driver).abort_handle();
        Ok(Link { connection, driver })
    }

    async fn stream(&self, server: &FleetServer) -> io::Result<Stream> {
        let (host, port) = match server {
            FleetServer::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
            FleetServer::Tcp(host, port) => (host, *port),
        };
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            Some(tls) if self.url.transport == FleetTransport::Tls => {
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let connector = TlsConnector::from(Arc::clone(tls));
                Ok(Box::new(connector.connect(name, stream).await?))
            }
            _ => Ok(Box::new(stream)),
        }
    }
}

/// Waits up to [`PATIENCE`] for the answer to a call other than a message.
pub(super) async fn answered<T>(
    call: impl Future<Output = RedisResult<T>>,
) -> Result<T, FleetError> {
    Ok(tokio::time::timeout(PATIENCE, call)
        .await
        .map_err(|_| FleetError::Timeout)??)
}

/// The kind of a server that holds keys, by its own words.
async fn kind(connection: &mut MultiplexedConnection) -> Result<ServerKind, FleetError> {
    let hello = answered(redis::cmd("HELLO").arg(3).query_async::<Value>(connection)).await?;
    let words = HashMap::<String, Value>::from_redis_value(hello).unwrap_or_default();
    let word = |name: &str| {
        let value = words.get(name).cloned()?;
        String::from_redis_value(value).ok()
    };
    match (word("mode").as_deref(), word("role").as_deref()) {
        (Some("sentinel"), _) => Err(FleetError::Sentinel),
        // a replica of a cluster knows the others
        (Some("cluster"), _) => Ok(ServerKind::Cluster),
        (_, Some("replica" | "slave")) => Err(FleetError::Replica),
        _ => Ok(ServerKind::Single),
    }
}

fn connection_cause(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(error)) => {
            format!("certificate: {}", refusal_with(error, &REMEDIES))
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            "it does not speak TLS; use valkey:// or redis://".to_owned()
        }
        Some(error) => format!("TLS: {error}"),
        None => error.to_string(),
    }
}

type Stream = Box<dyn AsyncStream + Send + Unpin>;

/// A stream whose replies are bounded.
struct Bounded {
    stream: Stream,
    bounds: ReplyBounds,
}

impl AsyncRead for Bounded {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let judged = this.bounds.judge(&buf.filled()[before..]);
        Poll::Ready(judged.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)))
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
impl Credentials {
    pub(super) fn of(secret: Secret) -> Self {
        Self {
            password: None,
            secrets: vec![secret],
            tls: None,
        }
    }
}
