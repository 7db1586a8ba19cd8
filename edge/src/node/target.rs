//! One URL of the node: its connection pool, its circuit breaker, its chain, and one attempt.
//!
//! Each attempt is admitted by the breaker, counted by its outcome, and explained if it fails.

use super::answer::{Payload, RESULT, error_code, verify};
use super::breaker::{Breaker, CallFailure};
use super::cause::{Cause, FailedAttempt};
use super::http1::{Connection, ExchangeError, NodeStream};
use super::record::UrlRecord;
use super::slots::{Slot, Slots};
use super::{Call, ConnectionChoice, CredentialsError, Node, NodeError, chain};
use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_base::config::{NodeConfig, NodeUrl, Scheme};
use portcullis_base::io::{DescriptorUse, MemoryPermit, monotonic};
use portcullis_filters::chain::{
    Asked, BlockIdentity, ChainIdentity, ConnectionId, FailureClass, Request,
};
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

/// Room for the digits of a length, right-aligned after optional white space (RFC 9110, section
/// 5.5), so that head and body are built in one buffer and sent in one write.
const LENGTH: usize = 8;

/// Milliseconds to wait before each retry for a descriptor.
const DESCRIPTOR_PAUSES: [u64; 4] = [5, 20, 50, 100];

/// The fields of an attempt in the debug log.
struct AttemptLine {
    /// When the attempt began; `None` unless debug lines are logged.
    start: Option<Instant>,
    connection: &'static str,
}

impl AttemptLine {
    fn begin() -> Self {
        let start = log::log_enabled!(log::Level::Debug).then(Instant::now);
        Self {
            start,
            connection: "none",
        }
    }

    fn log(
        self,
        record: &UrlRecord,
        call: &Call<'_, impl Fn(u64, &mut Vec<u8>)>,
        failed: Option<&FailedAttempt>,
    ) {
        /// The part of a request that the line shows.
        #[derive(Deserialize)]
        struct Request<'a> {
            method: &'a str,
        }
        let Some(start) = self.start else { return };
        // written again instead of stored: only debug logging pays for it
        let mut body = Vec::new();
        (call.write)(call.id, &mut body);
        let request = serde_json::from_slice::<Request<'_>>(&body);
        let method = request.map_or("", |request| request.method);
        let node = record.index;
        let url = &record.url;
        let connection = self.connection;
        let outcome = failed.map_or("ok", |failed| failed.failure.error().name());
        let cause = failed
            .map(|failed| failed.cause.to_string())
            .unwrap_or_default();
        let took = start.elapsed();
        log::debug!(node, url, method, outcome, cause, connection, took:?; "node attempt");
    }
}

/// One URL of the node, as one client uses it.
pub(super) struct Target {
    /// The state of the node, and of this URL, that all clients share.
    pub(super) node: Arc<Node>,
    pub(super) record: Arc<UrlRecord>,
    host: String,
    port: u16,
    scheme: Scheme,
    /// The request head up to the length's digits.
    head: Vec<u8>,
    pub(super) breaker: Breaker,
    idle: Mutex<VecDeque<Idle>>,
    /// Concurrent calls.
    busy: AtomicUsize,
    /// The slots of clients' reads; other calls take none.
    pub(super) slots: Slots,
    connect_timeout: Duration,
    idle_timeout: Duration,
    lifetime: Duration,
    max_idle: usize,
    max_connections: usize,
}

/// A verified answer, and the connection that it arrived over.
pub(super) struct Answered {
    pub(super) payload: Payload,
    /// When it was verified.
    pub(super) at: Instant,
    connection: Box<Connection>,
}

/// Where an answer is from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The index of the URL in the configuration.
    pub(super) url: usize,
    pub(super) connection: ConnectionId,
    /// When the answer was verified.
    pub(super) at: Instant,
}

impl Answered {
    /// The connection that the answer arrived over.
    pub(super) fn connection(&self) -> ConnectionId {
        self.connection.id
    }
}

/// A concurrent call.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

impl Target {
    /// Creates a target for each URL of the node, with connections of its own.
    pub(super) fn all(node: &Arc<Node>, config: &NodeConfig) -> Arc<[Self]> {
        let urls = node.records.iter().zip(config.url.iter());
        urls.map(|(record, url)| Self::new(node, record, url, config))
            .collect()
    }

    fn new(node: &Arc<Node>, record: &Arc<UrlRecord>, url: &NodeUrl, config: &NodeConfig) -> Self {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json\r\nAccept-Encoding: identity\r\n",
            url.path, url.authority
        );
        Self {
            node: Arc::clone(node),
            record: Arc::clone(record),
            host: url.host.clone(),
            port: url.port,
            scheme: url.scheme,
            head: head.into_bytes(),
            breaker: Breaker::default(),
            idle: Mutex::default(),
            busy: AtomicUsize::new(0),
            slots: Slots::new(config.max_connections),
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            lifetime: config.connection_lifetime,
            max_idle: config.max_idle,
            max_connections: config.max_connections,
        }
    }

    fn request(&self, call: &Call<'_, impl Fn(u64, &mut Vec<u8>)>) -> Vec<u8> {
        let mut request = Vec::with_capacity(self.head.len() + 768);
        request.extend_from_slice(&self.head);
        if let Ok(credentials) = &**self.node.credentials.load() {
            request.extend_from_slice(credentials.headers());
        }
        if let Some(traceparent) = call.traceparent {
            request.extend_from_slice(b"traceparent: ");
            request.extend_from_slice(traceparent);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"Content-Length:");
        let length_ends = request.len() + LENGTH;
        request.extend_from_slice(&[b' '; LENGTH]);
        request.extend_from_slice(b"\r\n\r\n");
        let body_starts = request.len();
        (call.write)(call.id, &mut request);
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(request.len() - body_starts);
        let digits_start = length_ends - digits.len();
        request[digits_start..length_ends].copy_from_slice(digits.as_bytes());
        request
    }

    /// Attempts a call, once it has a slot; `None` while the breaker is open.
    pub(super) async fn attempt<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &Call<'_, W>,
        permit: &mut MemoryPermit,
    ) -> Option<Result<Answered, CallFailure>> {
        let slot = match self.take_slot(call).await {
            Ok(slot) => slot,
            Err(failure) => return Some(Err(failure)),
        };
        let admitted = self.breaker.enter(Instant::now)?;
        let result = self.ask(call, permit).await;
        if let Some(slot) = slot {
            slot.end(&result);
        }
        let failure = result.as_ref().err().copied();
        // refused by the node's own limit while other calls are in flight: the node still works
        let is_full = failure == Some(CallFailure::Busy) && self.busy() > 0;
        if !is_full {
            admitted.record(failure, Instant::now);
        }
        Some(result)
    }

    /// Takes a slot for the read of a client; other calls need none.
    async fn take_slot<W>(&self, call: &Call<'_, W>) -> Result<Option<Slot<'_>>, CallFailure> {
        let Some(read) = &call.read else {
            return Ok(None);
        };
        match self.slots.take(read).await {
            Ok(slot) => Ok(Some(slot)),
            Err(error) => {
                let failed = FailedAttempt::from(error).unsent();
                let failure = failed.failure;
                self.record.count(Err(&failed));
                self.record
                    .failures()
                    .note(error, failed.cause, Instant::now());
                Err(failure)
            }
        }
    }

    /// Keeps the connection of an answer for later calls. That of an answer which is behind is
    /// closed instead: a balancer may have tied it to a node that is behind.
    pub(super) fn keep(&self, answered: Answered) -> Payload {
        self.put_idle(answered.connection, answered.at);
        answered.payload
    }

    /// Sends a call, whatever the breaker says; counts its outcome, and explains a failure.
    pub(super) async fn ask<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &Call<'_, W>,
        permit: &mut MemoryPermit,
    ) -> Result<Answered, CallFailure> {
        let mut line = AttemptLine::begin();
        let sent = Instant::now();
        let result = self.exchange(call, permit, &mut line).await;
        let verified = result.and_then(|(connection, body)| {
            // the connection is kept only now: after a wrong answer the right one may still arrive
            let payload = verify(&body, call.id)?;
            Ok(Answered {
                payload,
                at: Instant::now(),
                connection,
            })
        });
        match &verified {
            Ok(answered) => {
                let request = self.request_of(call.asked, sent);
                self.node
                    .note_answer(request, &answered.payload, answered.at);
            }
            Err(failed) => self.note_failure(call.asked, failed.class(), sent),
        }
        let outcome = verified.as_ref().map(|answered| &answered.payload);
        self.record.count(outcome);
        line.log(&self.record, call, verified.as_ref().err());
        verified.map_err(|failed| {
            self.record
                .failures()
                .note(failed.failure.error(), failed.cause, Instant::now());
            failed.failure
        })
    }

    /// Whether its answers are not valid, to any client.
    pub(super) fn fails(&self) -> bool {
        let url = self.record.index;
        self.node.read(|state| state.fault(url).is_some())
    }

    /// Records a failure of a request that was sent at `sent`, unless it says nothing about the
    /// URL.
    pub(super) fn note_failure(&self, asked: Asked, class: Option<FailureClass>, sent: Instant) {
        if class.is_some() {
            self.node
                .note_end(self.request_of(asked, sent), class, Instant::now());
        }
    }

    /// A request for this purpose that was sent at `sent`.
    pub(super) fn request_of(&self, asked: Asked, sent: Instant) -> Request {
        Request {
            url: self.record.index,
            asked,
            sent: monotonic::of(sent),
        }
    }

    /// Sends a request and reads the whole answer. Sends it once more only if a pooled connection
    /// ended, or got 408, before the first byte of an answer.
    async fn exchange<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &Call<'_, W>,
        permit: &mut MemoryPermit,
        line: &mut AttemptLine,
    ) -> Result<(Box<Connection>, Bytes), FailedAttempt> {
        let _busy = self.enter().ok_or(NodeError::Overloaded)?;
        let mut may_be_received = false;
        if call.connection == ConnectionChoice::Pooled
            && let Some(mut connection) = self.take_idle(call.start)
        {
            line.connection = "reused";
            match connection
                .exchange(self.request(call), call.deadline, permit)
                .await
            {
                Ok(body) => return Ok((connection, body)),
                // 408: the node closes an idle connection (RFC 9110, section 15.5.9)
                Err(ExchangeError::BeforeAnswer | ExchangeError::Status(408, _)) => {
                    self.node.metrics.node_retries.inc();
                }
                Err(error) => return Err(error.into()),
            }
            may_be_received = true;
        }
        line.connection = "new";
        // boxed: most calls do not connect, and their futures stay small
        let connect = Box::pin(self.connect(call.deadline, permit));
        let connect = tokio::time::timeout_at(call.deadline, connect).await;
        let connection = connect.map_err(|_| NodeError::Timeout)?;
        let mut connection = connection.map_err(|mut failed| {
            if may_be_received
                && matches!(failed.failure, CallFailure::Connect | CallFailure::Foreign)
            {
                failed.failure = CallFailure::Gone;
            }
            failed
        })?;
        let body = connection
            .exchange(self.request(call), call.deadline, permit)
            .await?;
        Ok((connection, body))
    }

    /// Opens a connection, and verifies that it leads to the served chain.
    async fn connect(
        &self,
        deadline: Instant,
        permit: &mut MemoryPermit,
    ) -> Result<Box<Connection>, FailedAttempt> {
        let check = self.node.check();
        let mut connection = self.dial().await.map_err(FailedAttempt::connect)?;
        if self.node.is_checked {
            let verdict = self.verify_chain(&mut connection, None, deadline, permit);
            let verdict = verdict.await;
            let verdict = verdict.map_err(FailedAttempt::unsent)?;
            verdict.map_err(|why| FailedAttempt {
                failure: CallFailure::Foreign,
                cause: Cause::Chain(why),
            })?;
        }
        connection.chain_check = check;
        Ok(connection)
    }

    /// Requests the identity of the chain, and compares it with the served one. Returns how they
    /// differ, for people. `head` is the newest block there, if it was polled. Replaces the
    /// connection if the node closes it.
    pub(super) async fn verify_chain(
        &self,
        connection: &mut Box<Connection>,
        head: Option<BlockIdentity>,
        deadline: Instant,
        permit: &mut MemoryPermit,
    ) -> Result<Result<(), String>, FailedAttempt> {
        let anchor = format!(
            r#"{{"block_id":{{"block_number":{}}}}}"#,
            self.node.anchor()
        );
        let calls = [
            ("starknet_chainId", "[]"),
            ("starknet_getBlockWithTxHashes", &*anchor),
        ];
        let mut results = [None, None];
        for ((method, params), result) in calls.into_iter().zip(&mut results) {
            *result = Some(
                self.ask_over(connection, method, params, deadline, permit)
                    .await?,
            );
        }
        let [id, anchor] = results;
        // a node that fails says nothing about its chain; one without the anchor may be pruned
        if let Some(Err(code)) = id
            && let Some(failed) = FailedAttempt::in_answer(code)
        {
            return Err(failed);
        }
        let [id, anchor] = [id, anchor].map(|result| result.and_then(Result::ok));
        let found = ChainIdentity::read(id.as_ref(), anchor.as_ref());
        Ok(self.node.judge_chain(self.record.index, found, head))
    }

    /// Calls a method with these parameters over `connection`, which is replaced if the node closes
    /// it. Returns the result, or the code of the error.
    pub(super) async fn ask_over(
        &self,
        connection: &mut Box<Connection>,
        method: &str,
        params: &str,
        deadline: Instant,
        permit: &mut MemoryPermit,
    ) -> Result<Result<Value, i64>, FailedAttempt> {
        let write = |id, out: &mut Vec<u8>| chain::write_request(id, method, params, out);
        let call = Call::new(write, deadline);
        let answer = connection
            .exchange(self.request(&call), deadline, permit)
            .await;
        let body = answer.map_err(|error| match error {
            ExchangeError::BeforeAnswer => FailedAttempt::connect(Cause::Fault(NodeError::Cut)),
            error => error.into(),
        })?;
        if !connection.is_reusable() {
            *connection = self.dial().await.map_err(FailedAttempt::connect)?;
        }
        let (member, text) = verify(&body, call.id)?;
        if member != RESULT {
            return Ok(Err(error_code(&(member, text))));
        }
        Ok(serde_json::from_slice(&text).map_err(|_| 0))
    }

    pub(super) async fn dial(&self) -> Result<Box<Connection>, Cause> {
        let credentials = self.node.credentials.load_full();
        let credentials = credentials.as_ref().as_ref();
        let credentials =
            credentials.map_err(|errors| Cause::Credentials(CredentialsError::join(errors)))?;
        let connect = async {
            let found = lookup_host((self.host.as_str(), self.port)).await;
            let addresses: Vec<_> = found.map_err(Cause::Resolve)?.collect();
            let stream = connect(&addresses).await?;
            // otherwise a small request may wait for an acknowledgement
            stream.set_nodelay(true).map_err(Cause::Connect)?;
            match (self.scheme, &credentials.tls) {
                (Scheme::Https, Some(tls)) => self.secure(tls, stream).await.map_err(Cause::Tls),
                _ => Ok(NodeStream::Plain(stream)),
            }
        };
        let connected = tokio::time::timeout(self.connect_timeout, connect).await;
        Ok(Box::new(Connection::new(
            connected.map_err(|_| Cause::ConnectTimeout)??,
        )))
    }

    /// Performs the TLS handshake; the node's certificate must be for the host of the URL.
    async fn secure(&self, tls: &TlsConnector, stream: TcpStream) -> io::Result<NodeStream> {
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        Ok(NodeStream::Secured(Box::new(
            tls.connect(name, stream).await?,
        )))
    }

    /// Takes the connection that was used last, unless it expired or is old, the node closed it, or
    /// its chain has to be checked again.
    fn take_idle(&self, now: Instant) -> Option<Box<Connection>> {
        let mut idle = self.idle.lock();
        while let Some(Idle {
            mut connection,
            since,
        }) = idle.pop_back()
        {
            let is_known = connection.chain_check == self.node.check();
            let is_fresh = now.duration_since(since) < self.idle_timeout
                && now.duration_since(connection.opened) < self.lifetime;
            if is_fresh && is_known && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Returns a connection to the pool, if its last exchange left it reusable.
    fn put_idle(&self, connection: Box<Connection>, since: Instant) {
        if connection.is_reusable() {
            let mut idle = self.idle.lock();
            while idle.len() >= self.max_idle
                || idle
                    .front()
                    .is_some_and(|oldest| since.duration_since(oldest.since) >= self.idle_timeout)
            {
                idle.pop_front();
            }
            idle.push_back(Idle { connection, since });
        }
    }

    pub(super) fn idle(&self) -> usize {
        self.idle.lock().len()
    }

    pub(super) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Counts a call as concurrent until the guard is dropped; `None` if there are as many as
    /// allowed.
    fn enter(&self) -> Option<Busy<'_>> {
        let entered = self
            .busy
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| {
                if busy < self.max_connections {
                    Some(busy + 1)
                } else {
                    None
                }
            });
        entered.ok()?;
        Some(Busy(&self.busy))
    }
}

/// Connects. While only reserved descriptors are left, it retries a few times: of many clients that
/// connect at once, those that are refused release theirs within milliseconds.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, Cause> {
    let mut pauses = DESCRIPTOR_PAUSES.into_iter();
    loop {
        match TcpStream::connect(addresses).await {
            Ok(stream) if !DescriptorUse::Node.is_reserved(stream.as_raw_fd()) => {
                return Ok(stream);
            }
            Ok(_) => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::MFILE) => {}
            Err(error) => return Err(Cause::Connect(error)),
        }
        let pause = pauses.next().ok_or(Cause::NoDescriptor)?;
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}
