//! Closed-loop clients: each sends a request, waits for the whole response, checks it, and repeats.
//!
//! They share one thread. Before a run each connection has received correct responses, so that the
//! steady state is measured: connected, pooled, cached.

use crate::connection::{Message, Stream, content_length};
use crate::process::Process;
use crate::scenario::{Case, Expected};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

/// Timeout for cacheable responses to be cached.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval between polls.
const LOOK: Duration = Duration::from_millis(20);
/// The deadline of each response.
const DEADLINE: Duration = Duration::from_secs(10);

/// Client addresses: each run uses its own, so that no rate limit has counted it yet.
#[derive(Debug)]
pub(crate) struct Clients(u16);

impl Clients {
    pub(crate) fn new() -> Self {
        Self(0)
    }

    pub(crate) fn next(&mut self) -> Ipv4Addr {
        self.0 += 1;
        let [high, low] = self.0.to_be_bytes();
        Ipv4Addr::new(127, 7, high, low)
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) requests: u64,
    pub(crate) time: Duration,
    /// CPU time of the process under load.
    pub(crate) cpu: Duration,
    /// The latency of each request in microseconds, sorted.
    pub(crate) latencies: Vec<u32>,
    /// Responses with `X-Cache: shared`.
    pub(crate) shared: u64,
    pub(crate) wrong: u64,
    pub(crate) first_wrong: Option<String>,
}

/// The next request number, which is also the request's id; unique in the process.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Applies a case's load to a process for this duration.
pub(crate) fn run(case: &'static Case, from: Ipv4Addr, of: &Process, time: Duration) -> Measured {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .expect("a runtime can be made")
        .block_on(load(case, from, of, time))
}

async fn load(case: &'static Case, from: Ipv4Addr, of: &Process, time: Duration) -> Measured {
    let mut clients = Vec::new();
    for _ in 0..case.connections {
        match Client::ready(case, from, of).await {
            Ok(client) => clients.push(client),
            Err(why) => {
                return Measured {
                    wrong: 1,
                    first_wrong: Some(why),
                    ..Measured::default()
                };
            }
        }
    }
    let before = of.cpu();
    let start = Instant::now();
    let end = start + time;
    let mut running: JoinSet<Measured> = clients
        .into_iter()
        .map(|client| client.ask_until(end))
        .collect();
    let mut all = Measured::default();
    while let Some(one) = running.join_next().await {
        all.add(one.expect("no client panics"));
    }
    all.time = start.elapsed();
    all.cpu = of.cpu().saturating_sub(before);
    all.latencies.sort_unstable();
    all
}

impl Measured {
    fn add(&mut self, one: Self) {
        self.requests += one.requests;
        self.latencies.extend(one.latencies);
        self.shared += one.shared;
        self.wrong += one.wrong;
        self.first_wrong = self.first_wrong.take().or(one.first_wrong);
    }
}

/// One connection and its requests.
pub(crate) struct Client {
    stream: Stream,
    case: &'static Case,
    is_bare: bool,
    request: Vec<u8>,
}

/// A correct response.
struct Right {
    is_shared: bool,
}

impl Client {
    /// A client that has received two correct responses in a row: one request in ten may be of
    /// another kind.
    pub(crate) async fn ready(
        case: &'static Case,
        from: Ipv4Addr,
        of: &Process,
    ) -> Result<Self, String> {
        let stream = connect(from, of.address)
            .await
            .map_err(|error| error.to_string())?;
        let mut client = Self {
            stream,
            case,
            is_bare: of.is_bare,
            request: Vec::new(),
        };
        let end = Instant::now() + PATIENCE;
        let mut in_a_row = 0;
        while in_a_row < 2 {
            match client.ask().await {
                Ok(_) => in_a_row += 1,
                Err(why) if Instant::now() > end => return Err(format!("never right: {why}")),
                Err(_) => {
                    in_a_row = 0;
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
        Ok(client)
    }

    async fn ask_until(mut self, end: Instant) -> Measured {
        let mut measured = Measured::default();
        loop {
            let begun = Instant::now();
            if begun >= end {
                return measured;
            }
            let answer = self.ask().await;
            let took = begun.elapsed().as_micros();
            measured.requests += 1;
            measured
                .latencies
                .push(u32::try_from(took).unwrap_or(u32::MAX));
            match answer {
                Ok(Right { is_shared }) => measured.shared += u64::from(is_shared),
                Err(why) => {
                    measured.wrong += 1;
                    measured.first_wrong.get_or_insert(why);
                    // the connection's state is unknown from here on
                    return measured;
                }
            }
        }
    }

    async fn ask(&mut self) -> Result<Right, String> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (method, params) = self.case.call(number);
        let expected = match self.is_bare {
            true => self.case.expected_bare(),
            false => self.case.expected(number),
        };
        write_request(&mut self.request, number, method, &params);
        let exchange = async {
            self.stream.tcp.write_all(&self.request).await.ok()?;
            self.stream.message(is_response).await
        };
        let answer = tokio::time::timeout(DEADLINE, exchange)
            .await
            .ok()
            .flatten();
        let answer = answer.ok_or_else(|| format!("no answer to {method}"))?;
        let verdict = judge(&answer, number, &expected);
        let length = answer.whole.len();
        self.stream.consume(length);
        verdict
    }
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<Stream> {
    let socket = TcpSocket::new_v4()?;
    // bind the port at connect time: otherwise a few thousand runs exhaust the ports
    socket.set_reuseaddr(true)?;
    socket.bind((from, 0).into())?;
    Stream::over(socket.connect(to).await?)
}

fn write_request(out: &mut Vec<u8>, id: u64, method: &str, params: &str) {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    let head = "POST /rpc HTTP/1.1\r\nhost: gateway.test\r\ncontent-type: application/json\r\n";
    out.clear();
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(format!("content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
}

/// The lengths of a response's head and body, once the head is complete.
fn is_response(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = response.parse(bytes) else {
        return None;
    };
    Some((head, content_length(response.headers)))
}

fn judge(answer: &Message<'_>, id: u64, expected: &Expected) -> Result<Right, String> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let _whole = response
        .parse(answer.whole)
        .map_err(|error| error.to_string())?;
    let status = response.code.unwrap_or_default();
    let cache = response
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("x-cache"));
    let cache = cache.map(|field| field.value).unwrap_or_default();
    let is_as_told = match expected.cache {
        [] => cache.is_empty(),
        any => any.iter().any(|one| one.as_bytes() == cache),
    };
    let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
    let is_ours = !expected.has_id || answer.body.starts_with(start.as_bytes());
    let is_whole = answer.body.len() >= expected.length && answer.body.ends_with(b"}");
    if status == expected.status && is_as_told && is_ours && is_whole {
        return Ok(Right {
            is_shared: cache == b"shared",
        });
    }
    let cache = String::from_utf8_lossy(cache);
    let shown = &answer.body[..answer.body.len().min(200)];
    let shown = String::from_utf8_lossy(shown);
    Err(format!(
        "status {status}, X-Cache {cache:?}, {} bytes: {shown}",
        answer.body.len()
    ))
}
