//! Messages to the store: Valkey or Redis, on one connection to each server for all.
//!
//! A message times out after 20 ms, and 512 may be under way. After three in a row without an
//! answer the server is down: nothing is sent about its keys until [`Store::connect`] gets an
//! answer. Connections are replaced there, because one to a peer that vanished silently would last
//! for minutes.

use super::connect::{Connector, Credentials, CredentialsError, FleetError, answered};
use super::connect::{MESSAGES, ServerKind};
use super::leadership::{Heard, Leadership, Part};
use super::messages::{Answer, Counted, Purpose, Unanswered};
use super::servers::{Server, Servers};
use super::slots::Slot;
use arc_swap::{ArcSwap, ArcSwapOption};
use futures_util::future::join_all;
use parking_lot::Mutex;
use portcullis_base::config::FleetConfig;
use portcullis_base::io::clock::millis;
use portcullis_base::secrets::Secret;
use portcullis_base::secrets::seal::Seal;
use portcullis_base::telemetry::{FleetMessage, Metrics, Surface, as_gauge};
use portcullis_filters::client::ClientKey;
use portcullis_filters::hmac;
use portcullis_filters::limit::lease::{Granted, Message, Terms};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, FromRedisValue, Script, ScriptInvocation, ServerErrorKind};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

/// Timeout of a message. One takes a tenth of a millisecond on one machine.
const MESSAGE: Duration = Duration::from_millis(20);
/// An instance counts as alive this long after its last heartbeat; it sends one a second.
const ALIVE: Duration = Duration::from_secs(5);
/// The purpose of the key that seals values: RFC 5869, section 3.2.
const SEALING: &[u8] = b"portcullis: values of a fleet, AES-256-GCM";

const LEASE: &str = include_str!("lease.lua");
const HEARTBEAT: &str = include_str!("heartbeat.lua");
const LOCK: &str = include_str!("lock.lua");
const PROBE: &str = include_str!("probe.lua");

/// Checks that the store can be used: connects to its servers, and has each run a script. Returns
/// how long that took, and the number of servers.
///
/// # Errors
/// Returns why the store cannot be used.
pub async fn ping(
    config: &FleetConfig,
    credentials: &Credentials,
) -> Result<(Duration, usize), FleetError> {
    let started = Instant::now();
    let connector = Connector::new(&config.url, credentials, Arc::default());
    let servers = Servers::find(&connector, None).await?;
    for server in &servers.all {
        let tried = try_server(&connector, &servers, server).await;
        tried.map_err(|error| match servers.kind {
            ServerKind::Single => error,
            ServerKind::Cluster => FleetError::Servers(format!("{}: {error}", server.address)),
        })?;
        for script in [LEASE, HEARTBEAT, LOCK] {
            let mut connection = server.connection()?;
            answered(Script::new(script).load_async(&mut connection)).await?;
        }
    }
    match servers.failure() {
        Some(failure) => Err(FleetError::Servers(failure)),
        None => Ok((started.elapsed(), servers.all.len())),
    }
}

/// Connects to a server unless it is connected, and runs a script on it that writes, which fails on
/// a replica and in a cluster that is down.
async fn try_server(
    connector: &Connector,
    servers: &Servers,
    server: &Server,
) -> Result<(), FleetError> {
    let mut connection = connector.link(server).await?;
    let key = servers.key_of(server).ok_or(FleetError::NoServer)?;
    let script = Script::new(PROBE);
    let call = script.key(key);
    answered(call.invoke_async::<u32>(&mut connection)).await?;
    Ok(())
}

/// Tries these servers. Returns those that answer; the others are down.
async fn try_all<'a>(
    connector: &Connector,
    servers: &Servers,
    tried: impl Iterator<Item = &'a Arc<Server>>,
) -> Vec<Arc<Server>> {
    let tried = tried.map(|server| async move {
        match try_server(connector, servers, server).await {
            Ok(()) => Some(Arc::clone(server)),
            Err(error) => {
                server.disconnect();
                server.mark_down(&error.to_string());
                None
            }
        }
    });
    join_all(tried).await.into_iter().flatten().collect()
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
    /// Connects by the newest usable content of the files.
    connector: Mutex<Arc<Connector>>,
    pub(super) name: String,
    keys: ArcSwap<Keys>,
    /// The name of this instance, random at each start.
    instance: String,
    lease: Script,
    heartbeat: Script,
    lock: Script,
    /// `None` until one was found.
    servers: ArcSwapOption<Servers>,
    /// Set when a server says that another one holds a key.
    is_stale: AtomicBool,
    permits: Semaphore,
    /// Timeout of a message.
    pub(super) patience: Duration,
    /// Why no server was found so far.
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
        let pushed = Arc::<Notify>::default();
        let connector = Connector::new(&config.url, &credentials, Arc::clone(&pushed));
        Ok(Self {
            config: config.clone(),
            connector: Mutex::new(Arc::new(connector)),
            name: config.name.clone(),
            keys: ArcSwap::from_pointee(Keys::of(credentials.secrets)),
            instance: hex::encode(instance),
            lease: Script::new(LEASE),
            heartbeat: Script::new(HEARTBEAT),
            lock: Script::new(LOCK),
            servers: ArcSwapOption::empty(),
            is_stale: AtomicBool::new(false),
            permits: Semaphore::new(MESSAGES),
            patience: MESSAGE,
            cause: Mutex::default(),
            tripped: Notify::new(),
            instances: AtomicU32::new(0),
            leadership: Leadership::default(),
            pushed,
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
        *self.connector.lock() = self.connector_with(&credentials);
        self.keys.store(Arc::new(Keys::of(credentials.secrets)));
        Ok(())
    }

    fn connector_with(&self, credentials: &Credentials) -> Arc<Connector> {
        let pushed = Arc::clone(&self.pushed);
        Arc::new(Connector::new(&self.config.url, credentials, pushed))
    }

    /// The connector by the password and the certificates as they are in their files now.
    fn renewed_connector(&self) -> Arc<Connector> {
        let mut known = self.connector.lock();
        // files that are unusable now are reported by the next reload
        if let Ok(credentials) = Credentials::load(&self.config) {
            *known = self.connector_with(&credentials);
        }
        Arc::clone(&known)
    }

    /// Whether nothing is sent about keys of this slot until their server answers a heartbeat.
    pub(super) fn is_down_for(&self, slot: Slot) -> bool {
        let servers = self.servers.load();
        let server = servers.as_ref().and_then(|servers| servers.of(slot));
        server.is_none_or(|server| server.is_down())
    }

    /// Whether one of these servers holds the keys of a slot.
    pub(super) fn is_held_by(&self, slot: Slot, servers: &[Arc<Server>]) -> bool {
        let holder = self.server_of(slot);
        holder.is_some_and(|holder| servers.iter().any(|server| Arc::ptr_eq(server, &holder)))
    }

    /// Whether heartbeats are not answered.
    pub(super) fn is_down(&self) -> bool {
        self.is_down_for(Slot::of(&self.heartbeat_key()))
    }

    /// Why the store is down, or a part of it; `None` while it is up, and before the first attempt.
    pub(super) fn failure(&self) -> Option<String> {
        match &*self.servers.load() {
            Some(servers) => servers.failure(),
            None => self.cause.lock().clone(),
        }
    }

    /// Whether some server is down, or the servers of a cluster have changed.
    pub(super) fn needs_connections(&self) -> bool {
        if self.is_stale.load(Ordering::Relaxed) {
            return true;
        }
        match &*self.servers.load() {
            Some(servers) => servers.is_partial() || servers.down().next().is_some(),
            None => true,
        }
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
        let Some(server) = self.server_of(Slot::of(key)) else {
            count(FleetMessage::Failed, None);
            self.tripped.notify_one();
            return Err(Unanswered);
        };
        let mut call = self.lease.key(key);
        call.arg(format!("{}:{holder}", self.instance))
            .arg(message.number)
            .arg(message.acknowledged)
            .arg(quota);
        for time in [terms.window, terms.cell, terms.life] {
            call.arg(millis(time));
        }
        let want = match purpose {
            Purpose::Lease => terms.want,
            Purpose::Report => message.hold,
        };
        call.arg(want).arg(message.hold).arg(&message.uses);
        let started = Instant::now();
        let [granted, left, retry, _] = match self.invoke(&server, &call).await {
            Ok(answer) => answer,
            Err(error) => {
                count(outcome_of(&error), None);
                self.failed(&server, &error);
                return Err(Unanswered);
            }
        };
        server.succeeded();
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

    /// Has a server run the script of a message.
    async fn invoke(
        &self,
        server: &Server,
        call: &ScriptInvocation<'_>,
    ) -> Result<[i64; 4], FleetError> {
        let mut connection = server.connection()?;
        let answer = timeout(self.patience, call.invoke_async(&mut connection)).await;
        Ok(answer.map_err(|_| FleetError::Timeout)??)
    }

    /// Sends one command about the value under this key.
    ///
    /// # Errors
    /// There is no answer. That does not mark a server as down.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        key: &str,
        call: &Cmd,
    ) -> Result<T, FleetError> {
        let mut connection = self.connection_of(key)?;
        let answer = answered(call.query_async(&mut connection)).await;
        answer.inspect_err(|error| self.note_move(error))
    }

    /// Takes or extends the lock `name` for `life` milliseconds; 0 releases it. Returns `false` if
    /// another instance holds it.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn lock(&self, name: &str, life: u64) -> Result<bool, FleetError> {
        let key = format!("pc:{}:hold:{}", self.name, self.digest(name));
        let mut connection = self.connection_of(&key)?;
        let mut call = self.lock.key(key);
        call.arg(&self.instance).arg(life);
        let answer = answered(call.invoke_async(&mut connection)).await;
        answer.inspect_err(|error| self.note_move(error))
    }

    fn server_of(&self, slot: Slot) -> Option<Arc<Server>> {
        self.servers.load().as_ref()?.of(slot).map(Arc::clone)
    }

    fn connection_of(&self, key: &str) -> Result<MultiplexedConnection, FleetError> {
        self.server_of(Slot::of(key))
            .ok_or(FleetError::NotConnected)?
            .connection()
    }

    fn heartbeat_key(&self) -> String {
        format!("pc:{}:instances:{}", self.name, self.digest("instances"))
    }

    /// Reports that this instance is alive, and its part in the watch of the chain. `epoch` is the
    /// newest that this instance named.
    ///
    /// # Errors
    /// The server of this key is unavailable. Its connection is dropped.
    pub(super) async fn heartbeat(&self, part: Part<'_>, epoch: u64) -> Result<Heard, FleetError> {
        let key = self.heartbeat_key();
        let server = self.server_of(Slot::of(&key));
        let server = server.ok_or(FleetError::NotConnected)?;
        let sent = Instant::now();
        let heard = self
            .send_heartbeat(&server, &key, part, epoch)
            .await
            .inspect_err(|error| {
                self.note_move(error);
                if server.is_down() && matches!(error, FleetError::NotConnected) {
                    return; // its cause says more
                }
                server.disconnect();
                server.mark_down(&error.to_string());
                self.show_health();
            })?;
        self.leadership.note(part, &heard, sent);
        self.instances.store(heard.instances, Ordering::Relaxed);
        self.metrics.fleet.instances.set(as_gauge(heard.instances));
        Ok(heard)
    }

    async fn send_heartbeat(
        &self,
        server: &Server,
        key: &str,
        part: Part<'_>,
        epoch: u64,
    ) -> Result<Heard, FleetError> {
        let mut connection = server.connection()?;
        let of_part = self.leadership.arguments(part);
        let mut call = self.heartbeat.key(key);
        call.arg(&self.instance)
            .arg(millis(ALIVE))
            .arg(of_part.part)
            .arg(of_part.fence);
        call.arg(of_part.lease)
            .arg(epoch)
            .arg(of_part.polled)
            .arg(of_part.state)
            .arg(key);
        answered(call.invoke_async(&mut connection)).await
    }

    /// Connects to the servers that are down, or finds others. Returns those that answer: down
    /// until they are marked as up.
    pub(super) async fn connect(&self) -> Vec<Arc<Server>> {
        let connector = self.renewed_connector();
        let known = self.servers.load_full();
        if let Some(known) = &known
            && !self.is_stale.load(Ordering::Relaxed)
        {
            // it may only have been slow
            let back = try_all(&connector, known, known.down()).await;
            if back.len() == known.down().count() {
                self.subscribe().await;
                return back;
            }
        }
        let found = match Servers::find(&connector, known.as_deref()).await {
            Ok(found) => Arc::new(found),
            Err(error) => {
                self.not_found(known.as_deref(), &error);
                return Vec::new();
            }
        };
        self.is_stale.store(false, Ordering::Relaxed);
        self.servers.store(Some(Arc::clone(&found)));
        let back = try_all(&connector, &found, found.down()).await;
        self.subscribe().await;
        self.show_health();
        back
    }

    /// Checks the servers of a cluster that are up and get no heartbeats: without clients of theirs
    /// nothing else would tell.
    pub(super) async fn check_others(&self) {
        let Some(servers) = self.servers.load_full() else {
            return;
        };
        let home = self.server_of(Slot::of(&self.heartbeat_key()));
        let home = home.map(|home| home.address.clone());
        let connector = Arc::clone(&self.connector.lock());
        let others = servers.all.iter();
        let others =
            others.filter(|server| !server.is_down() && home.as_ref() != Some(&server.address));
        try_all(&connector, &servers, others).await;
        self.show_health();
    }

    fn not_found(&self, known: Option<&Servers>, error: &FleetError) {
        let cause = error.to_string();
        for server in known.iter().flat_map(|known| known.down()) {
            server.mark_down(&cause);
        }
        *self.cause.lock() = Some(cause);
        self.show_health();
    }

    /// Subscribes to the publications of leaders.
    async fn subscribe(&self) {
        let channel = self.heartbeat_key();
        let Some(server) = self.server_of(Slot::of(&channel)) else {
            return;
        };
        let Ok(mut connection) = server.connection() else {
            return;
        };
        if server.is_subscribed.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Err(error) = answered(connection.subscribe(channel)).await {
            log::debug!(error:%; "fleet: no pushes: updates arrive with the next heartbeat");
        }
    }

    /// Marks a server as up: messages are sent again.
    pub(super) fn mark_up(&self, server: &Server) {
        server.mark_up();
        self.show_health();
    }

    fn show_health(&self) {
        self.metrics.fleet.up.set(match self.needs_connections() {
            true => 0,
            false => 1,
        });
    }

    /// Notes that a server has another one's keys in mind: a cluster moves them.
    fn note_move(&self, error: &FleetError) {
        if is_move(error) {
            self.is_stale.store(true, Ordering::Relaxed);
            self.tripped.notify_one();
        }
    }

    fn failed(&self, server: &Server, error: &FleetError) {
        self.note_move(error);
        // a server that says where a key is now is not down
        if !is_move(error) && server.failed(&error.to_string()) {
            self.show_health();
            self.tripped.notify_one();
        }
    }
}

fn is_move(error: &FleetError) -> bool {
    const MOVES: [ErrorKind; 2] = [
        ErrorKind::Server(ServerErrorKind::Moved),
        ErrorKind::Server(ServerErrorKind::Ask),
    ];
    matches!(error, FleetError::Store(error) if MOVES.contains(&error.kind()))
}

fn outcome_of(error: &FleetError) -> FleetMessage {
    match error {
        FleetError::Timeout => FleetMessage::Timeout,
        _ => FleetMessage::Failed,
    }
}

#[cfg(test)]
impl Store {
    /// Deletes a client's record.
    pub(super) async fn forget(&self, key: &str) {
        let deleted = self.call::<u32>(key, redis::cmd("DEL").arg(key)).await;
        assert_eq!(deleted.expect("the store answers"), 1);
    }

    /// Drops the connections.
    pub(super) fn break_connection(&self) {
        let servers = self.servers.load();
        for server in servers.iter().flat_map(|servers| &servers.all) {
            server.disconnect();
        }
    }
}
