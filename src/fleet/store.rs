//! Messages to the store: Valkey or Redis, on one connection for all.
//!
//! A message times out after 20 ms, and 512 may be under way. After three in a row without an
//! answer the store is down: nothing is sent until [`Store::heartbeat`] gets an answer. Connections
//! are replaced here, because one to a peer that vanished silently would last for minutes.

use super::leadership::{Heard, Leadership, Part};
use super::messages::{Answer, Counted, Purpose, Unanswered};
use crate::config::FleetConfig;
use crate::io::clock::millis;
use crate::secrets::seal::Seal;
use crate::secrets::{self, Secret, SecretError, certificates};
use crate::telemetry::{FleetMessage, Metrics, Surface, as_gauge};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use portcullis_filters::client::ClientKey;
use portcullis_filters::hmac;
use portcullis_filters::limit::lease::{Granted, Message, Terms};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, Script, TlsCertificates};
use redis::{Cmd, FromRedisValue, ProtocolVersion, PushInfo, PushKind, RedisResult};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

/// Timeout of a message. One takes a tenth of a millisecond on one machine.
const MESSAGE: Duration = Duration::from_millis(20);
/// Messages that may be under way, so that a store that hangs holds few tasks.
const MESSAGES: usize = 512;
/// Unanswered messages in a row after which the store is down, as for a node.
const FAILURES: u32 = 3;
/// Timeout of connecting, and of a heartbeat: both within its interval.
const PATIENCE: Duration = Duration::from_millis(450);
/// An instance counts as alive this long after its last heartbeat; it sends one a second.
const ALIVE: Duration = Duration::from_secs(5);
/// Minimum length of the secret in bytes, that of the digest: RFC 2104, section 3.
const MIN_SECRET: usize = 32;

/// The purpose of the key that seals values: RFC 5869, section 3.2.
const SEALING: &[u8] = b"portcullis: values of a fleet, AES-256-GCM";

const LEASE: &str = include_str!("lease.lua");
const HEARTBEAT: &str = include_str!("heartbeat.lua");
const LOCK: &str = include_str!("lock.lua");

/// Why the store cannot be used.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The URL or the certificates are invalid, or a call to the store failed.
    #[error("{0}")]
    Store(#[from] redis::RedisError),
    /// The store did not answer in time.
    #[error("timeout")]
    Timeout,
    /// There is no connection; the next heartbeat connects.
    #[error("not connected")]
    NotConnected,
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
    password: Option<Secret>,
    /// The secret that is used, and while it is replaced the other one.
    secrets: Vec<Secret>,
    /// Root certificates in PEM.
    roots: Option<Vec<u8>>,
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
        let roots = config
            .ca_file
            .as_deref()
            .map(certificates::read_roots_text)
            .transpose();
        let roots = roots.map_err(|error| CredentialsError("fleet.ca_file", error.to_string()));
        match (password, secrets, roots) {
            (Ok(password), Ok(secrets), Ok(roots)) => Ok(Self {
                password,
                secrets,
                roots,
            }),
            (password, secrets, roots) => {
                let errors = [password.err(), secrets.err()].into_iter().flatten();
                Err(errors.map(Into::into).chain(roots.err()).collect())
            }
        }
    }
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

/// Checks that the store can be used: connects and loads the scripts. Returns how long that took.
///
/// # Errors
/// Returns why the store cannot be used.
pub async fn ping(config: &FleetConfig, credentials: &Credentials) -> Result<Duration, FleetError> {
    let started = Instant::now();
    let client = client(config, credentials)?;
    let mut connection = connect(&client, AsyncConnectionConfig::new()).await?;
    for script in [LEASE, HEARTBEAT, LOCK] {
        answered(Script::new(script).load_async(&mut connection)).await?;
    }
    Ok(started.elapsed())
}

fn client(config: &FleetConfig, credentials: &Credentials) -> Result<Client, FleetError> {
    let info = (&*config.url).into_connection_info()?;
    // with RESP3, pushes arrive on the same connection
    let mut settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3);
    if let Some(password) = &credentials.password {
        settings = settings.set_password(String::from_utf8_lossy(password.expose().trim_ascii()));
    }
    let info =
        info.set_redis_settings(settings.set_lib_name("portcullis", env!("CARGO_PKG_VERSION")));
    Ok(match &credentials.roots {
        Some(roots) => {
            let root_cert = Some(roots.clone());
            Client::build_with_tls(
                info,
                TlsCertificates {
                    client_tls: None,
                    root_cert,
                },
            )?
        }
        None => Client::open(info)?,
    })
}

async fn connect(
    client: &Client,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, FleetError> {
    // each call has a timeout of its own
    let config = config
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(MESSAGES);
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    answered(connected).await
}

/// Waits up to [`PATIENCE`] for the answer to a call other than a message.
async fn answered<T>(call: impl Future<Output = RedisResult<T>>) -> Result<T, FleetError> {
    Ok(timeout(PATIENCE, call)
        .await
        .map_err(|_| FleetError::Timeout)??)
}

/// A key by one of the fleet's secrets.
pub(super) struct Key {
    secret: Secret,
    pub(super) seal: Seal,
}

/// The key that is used, and while the secret is replaced the one that others may use.
pub(super) struct Keys {
    pub(super) used: Key,
    pub(super) other: Option<Key>,
}

impl Key {
    fn of(secret: Secret) -> Self {
        let seal = Seal::new(&hmac::sign(&secret, SEALING));
        Self { secret, seal }
    }

    fn digest(&self, text: &str) -> String {
        let digest = hmac::sign(&self.secret, text.as_bytes());
        hex::encode(&digest[..16])
    }
}

impl Keys {
    fn of(secrets: Vec<Secret>) -> Self {
        let mut keys = secrets.into_iter().map(Key::of);
        let used = keys.next().expect("a file of secrets holds one at least");
        let other = keys.next();
        Self { used, other }
    }
}

/// This instance's client of the store.
pub(super) struct Store {
    config: FleetConfig,
    /// By the files as they were when they were last usable.
    client: Mutex<Client>,
    pub(super) name: String,
    keys: ArcSwap<Keys>,
    /// The name of this instance, random at each start.
    instance: String,
    lease: Script,
    heartbeat: Script,
    lock: Script,
    connection: Mutex<Option<MultiplexedConnection>>,
    permits: Semaphore,
    /// Timeout of a message.
    pub(super) patience: Duration,
    failures: AtomicU32,
    is_down: AtomicBool,
    cause: Mutex<Option<String>>,
    /// Signalled when messages fail, so that a heartbeat follows at once.
    pub(super) tripped: Notify,
    /// Instances that are alive, as last known; 0 before the first answer.
    instances: AtomicU32,
    pub(super) leadership: Leadership,
    /// Signalled when a leader publishes something new.
    pub(super) pushed: Arc<Notify>,
    metrics: Arc<Metrics>,
}

impl Store {
    pub(super) fn new(
        config: &FleetConfig,
        credentials: Credentials,
        metrics: Arc<Metrics>,
    ) -> Result<Self, FleetError> {
        let mut instance = [0; 8];
        SystemRandom::new()
            .fill(&mut instance)
            .map_err(|_| FleetError::Random)?;
        Ok(Self {
            config: config.clone(),
            client: Mutex::new(client(config, &credentials)?),
            name: config.name.clone(),
            keys: ArcSwap::from_pointee(Keys::of(credentials.secrets)),
            instance: hex::encode(instance),
            lease: Script::new(LEASE),
            heartbeat: Script::new(HEARTBEAT),
            lock: Script::new(LOCK),
            connection: Mutex::default(),
            permits: Semaphore::new(MESSAGES),
            patience: MESSAGE,
            failures: AtomicU32::new(0),
            is_down: AtomicBool::new(true),
            cause: Mutex::default(),
            tripped: Notify::new(),
            instances: AtomicU32::new(0),
            leadership: Leadership::default(),
            pushed: Arc::default(),
            metrics,
        })
    }

    /// The key of a client's record. It holds a keyed digest, and no address.
    pub(super) fn key(&self, surface: Surface, counted: Counted, client: ClientKey) -> String {
        let digest = self.digest(&client.address().to_string());
        let counted = match counted {
            Counted::Requests => "",
            Counted::FailedTokens => "-failed-tokens",
        };
        format!("pc:{{{}:{}{counted}:{digest}}}", self.name, surface.name())
    }

    /// A keyed digest of the text: 128 bits in hexadecimal.
    pub(super) fn digest(&self, text: &str) -> String {
        self.keys.load().used.digest(text)
    }

    /// The keys by the fleet's secrets.
    pub(super) fn keys(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// The key of a shared value; it depends on the fleet's secret.
    pub(super) fn key_of(&self, name: &str, key: &Key) -> String {
        format!("pc:{}:value:{}", self.name, key.digest(name))
    }

    /// Reads the files again; an open connection keeps its password.
    pub(super) fn renew(&self) -> Result<(), Vec<CredentialsError>> {
        let credentials = Credentials::load(&self.config)?;
        let client = client(&self.config, &credentials)
            .map_err(|error| vec![CredentialsError("fleet.ca_file", error.to_string())])?;
        *self.client.lock() = client;
        self.keys.store(Arc::new(Keys::of(credentials.secrets)));
        Ok(())
    }

    /// The client by the password and the certificates as they are in their files now.
    fn renewed_client(&self) -> Client {
        let mut known = self.client.lock();
        // files that are unusable now are reported by the next reload
        if let Ok(credentials) = Credentials::load(&self.config)
            && let Ok(renewed) = client(&self.config, &credentials)
        {
            *known = renewed;
        }
        known.clone()
    }

    /// Whether nothing is sent until a heartbeat is answered.
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Why the store is down; `None` while it is up, and before the first attempt.
    pub(super) fn failure(&self) -> Option<String> {
        self.cause.lock().clone()
    }

    /// Instances that are alive, as last known; 0 before the first answer.
    pub(super) fn instances(&self) -> u32 {
        self.instances.load(Ordering::Relaxed)
    }

    /// Sends the message of a lease's holder about the client with this key.
    pub(super) async fn send(
        &self,
        key: &str,
        holder: u64,
        message: &Message,
        terms: &Terms,
        quota: u32,
        purpose: Purpose,
    ) -> Result<Answer, Unanswered> {
        let count = |outcome, took| self.metrics.fleet.message(outcome, took);
        let Ok(_permit) = self.permits.try_acquire() else {
            count(FleetMessage::Busy, None);
            return Err(Unanswered);
        };
        let connection = self.connection.lock().clone();
        let Some(mut connection) = connection else {
            count(FleetMessage::Failed, None);
            self.failed("not connected");
            return Err(Unanswered);
        };
        let want = if purpose == Purpose::Lease {
            terms.want
        } else {
            message.hold
        };
        let mut call = self.lease.key(key);
        call.arg(format!("{}:{holder}", self.instance));
        call.arg(message.number)
            .arg(message.acknowledged)
            .arg(quota);
        for time in [terms.window, terms.cell, terms.life] {
            call.arg(millis(time));
        }
        call.arg(want).arg(message.hold).arg(&message.uses);
        let started = Instant::now();
        let answer = timeout(
            self.patience,
            call.invoke_async::<[i64; 4]>(&mut connection),
        )
        .await;
        let [granted, left, retry, _] = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                count(FleetMessage::Failed, None);
                self.failed(&error.to_string());
                return Err(Unanswered);
            }
            Err(_) => {
                count(FleetMessage::Timeout, None);
                self.failed("timeout");
                return Err(Unanswered);
            }
        };
        self.failures.store(0, Ordering::Relaxed);
        let outcome = match granted {
            -1 => FleetMessage::Forgotten,
            _ if purpose == Purpose::Report => FleetMessage::Reported,
            0 => FleetMessage::Refused,
            _ => FleetMessage::Granted,
        };
        count(outcome, Some(started.elapsed()));
        if granted == -1 {
            return Ok(Answer::Forgotten);
        }
        let number = |number| u32::try_from(number).unwrap_or(0);
        let retry = Duration::from_millis(u64::try_from(retry).unwrap_or(0));
        Ok(Answer::Granted(Granted {
            granted: number(granted),
            left: number(left),
            retry,
        }))
    }

    /// Sends one command about a shared value.
    ///
    /// # Errors
    /// There is no answer. That does not mark the store as down.
    pub(super) async fn call<T: FromRedisValue>(&self, call: &Cmd) -> Result<T, FleetError> {
        let mut connection = self
            .connection
            .lock()
            .clone()
            .ok_or(FleetError::NotConnected)?;
        answered(call.query_async(&mut connection)).await
    }

    /// Takes or extends the lock `name` for `life` milliseconds; 0 releases it. Returns `false` if
    /// another instance holds it.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn lock(&self, name: &str, life: u64) -> Result<bool, FleetError> {
        let mut connection = self
            .connection
            .lock()
            .clone()
            .ok_or(FleetError::NotConnected)?;
        let mut call = self
            .lock
            .key(format!("pc:{}:hold:{}", self.name, self.digest(name)));
        call.arg(&self.instance).arg(life);
        answered(call.invoke_async(&mut connection)).await
    }

    /// Reports that this instance is alive, and its part in the watch of the chain; connects first
    /// if it has no connection. `epoch` is the newest that this instance named.
    ///
    /// # Errors
    /// The store is unavailable. The connection is dropped.
    pub(super) async fn heartbeat(&self, part: Part<'_>, epoch: u64) -> Result<Heard, FleetError> {
        let sent = Instant::now();
        let heard = self
            .send_heartbeat(part, epoch)
            .await
            .inspect_err(|error| {
                *self.connection.lock() = None;
                self.mark_down(&error.to_string());
            })?;
        self.leadership.note(part, &heard, sent);
        self.instances.store(heard.instances, Ordering::Relaxed);
        self.metrics.fleet.instances.set(as_gauge(heard.instances));
        Ok(heard)
    }

    async fn send_heartbeat(&self, part: Part<'_>, epoch: u64) -> Result<Heard, FleetError> {
        let key = format!("pc:{}:instances:{}", self.name, self.digest("instances"));
        let connection = self.connection.lock().clone();
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.connect(&key).await?,
        };
        let of_part = self.leadership.arguments(part);
        let mut call = self.heartbeat.key(&key);
        call.arg(&self.instance)
            .arg(millis(ALIVE))
            .arg(of_part.part)
            .arg(of_part.fence);
        call.arg(of_part.lease)
            .arg(epoch)
            .arg(of_part.polled)
            .arg(of_part.state)
            .arg(&key);
        let heard = answered(call.invoke_async(&mut connection)).await?;
        *self.connection.lock() = Some(connection);
        Ok(heard)
    }

    /// Connects, and subscribes to the publications of leaders.
    async fn connect(&self, channel: &str) -> Result<MultiplexedConnection, FleetError> {
        let pushed = Arc::clone(&self.pushed);
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Message {
                pushed.notify_one();
            }
            Ok::<_, FleetError>(())
        });
        let mut connection = connect(&self.renewed_client(), config).await?;
        let subscribed = timeout(PATIENCE, connection.subscribe(channel)).await;
        if let Err(error) = subscribed.map_err(|_| FleetError::Timeout)? {
            log::debug!(error:%; "fleet: no pushes: updates arrive with the next heartbeat");
        }
        Ok(connection)
    }

    /// Marks the store as up: messages are sent again.
    pub(super) fn mark_up(&self) {
        self.failures.store(0, Ordering::Relaxed);
        *self.cause.lock() = None;
        self.is_down.store(false, Ordering::Relaxed);
        self.metrics.fleet.up.set(1);
    }

    fn mark_down(&self, cause: &str) {
        *self.cause.lock() = Some(cause.to_owned());
        self.is_down.store(true, Ordering::Relaxed);
        self.metrics.fleet.up.set(0);
    }

    fn failed(&self, cause: &str) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES {
            self.mark_down(cause);
            self.tripped.notify_one();
        }
    }
}

#[cfg(test)]
impl Credentials {
    pub(super) fn of(secret: Secret) -> Self {
        Self {
            password: None,
            secrets: vec![secret],
            roots: None,
        }
    }
}

#[cfg(test)]
impl Store {
    /// Deletes a client's record.
    pub(super) async fn forget(&self, key: &str) {
        let mut connection = self.connection.lock().clone().expect("it is connected");
        let deleted = redis::cmd("DEL")
            .arg(key)
            .query_async::<u32>(&mut connection)
            .await;
        assert_eq!(deleted.expect("the store answers"), 1);
    }

    /// Drops the connection.
    pub(super) fn break_connection(&self) {
        *self.connection.lock() = None;
    }
}
