//! A Starknet node that misbehaves on command.
//!
//! In: a script, called once for each request, that returns the bytes and faults on the wire as
//! [`Act`]s. Out: what reached the node, byte for byte ([`Node::calls`]) and over how many
//! connections. It never decides anything itself, and it never sleeps except where the script
//! drips. `script` builds the responses.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::client::PATIENCE;

/// One request as the node received it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The number of its connection, from 1.
    pub(crate) connection: usize,
    /// Its number on its connection, from 1.
    pub(crate) turn: usize,
    /// Its number since the node started, from 1.
    pub(crate) number: usize,
    /// The head, with its empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Call {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the edge sends JSON to the node")
    }

    /// The id to respond with, as it is written in the request.
    pub(crate) fn id(&self) -> String {
        self.json()["id"].to_string()
    }

    /// The header lines, names in lower case.
    pub(crate) fn headers(&self) -> Vec<(String, String)> {
        let lines = self.head.split("\r\n").skip(1);
        let pairs = lines.filter_map(|line| line.split_once(':'));
        pairs
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect()
    }
}

/// One step of the node's response to a request.
pub(crate) enum Act {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes one at a time with a pause before each.
    Drip(Vec<u8>, Duration),
    /// Sends these bytes over and over until the peer closes the connection.
    Flood(Vec<u8>),
    /// Waits until the test opens the latch.
    Hold(Latch),
    /// Opens the latch, to notify the test that this step is reached.
    Tell(Latch),
    /// Sends nothing more until the peer closes the connection.
    Hang,
    /// Closes the connection.
    Close,
    /// Resets the connection (TCP RST).
    Reset,
}

/// Maps each request to the node's steps.
pub(crate) type Script = dyn Fn(&Call) -> Vec<Act> + Send + Sync;

/// A gate that is closed until it is opened, once.
#[derive(Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    /// Releases every waiter, now and later.
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Waits until it is open; returns false on timeout.
    pub(crate) fn wait(&self) -> bool {
        let guard = self.0.0.lock().unwrap();
        let (open, _) = self
            .0
            .1
            .wait_timeout_while(guard, PATIENCE, |open| !*open)
            .unwrap();
        *open
    }
}

#[derive(Default)]
struct Seen {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    connections: usize,
    open: usize,
    calls: Vec<Call>,
    strange: Vec<String>,
    stopping: bool,
}

/// A loopback IP that no other test has: the program in front of a node that is gone must not reach
/// the node of another test, which got its port.
fn unique_ip() -> Ipv4Addr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let [.., process] = std::process::id().to_be_bytes();
    let [high, low] = next.to_be_bytes();
    Ipv4Addr::new(127, 64 | process & 63, high, low)
}

/// A running node; its port closes on drop.
pub(crate) struct Node {
    address: SocketAddr,
    seen: Arc<Seen>,
}

impl Node {
    /// A node at an address of its own.
    pub(crate) fn start(script: impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start_at(SocketAddr::from((unique_ip(), 0)), script)
    }

    /// A node at this address.
    pub(crate) fn start_at(
        address: SocketAddr,
        script: impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("all of 127/8 is ours");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let seen = Arc::new(Seen::default());
        let (shared, script) = (Arc::clone(&seen), Arc::new(script));
        std::thread::spawn(move || accept(&listener, &shared, &script));
        Self { address, seen }
    }

    /// An address that nothing on this machine listens on.
    pub(crate) fn nowhere() -> SocketAddr {
        let listener = TcpListener::bind((unique_ip(), 0)).expect("all of 127/8 is ours");
        listener
            .local_addr()
            .expect("a bound socket has an address")
    }

    /// The listen address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request so far, in order of arrival.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let state = self.seen.state.lock().unwrap();
        assert!(
            state.strange.is_empty(),
            "the node got what is no request: {:?}",
            state.strange
        );
        state.calls.clone()
    }

    /// The number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.seen.state.lock().unwrap().connections
    }

    /// Waits until this many requests have arrived in total.
    pub(crate) fn wait_for_calls(&self, count: usize) {
        self.wait(&format!("{count} requests at the node"), |state| {
            state.calls.len() >= count
        });
    }

    /// Waits until no connection to the node is open.
    pub(crate) fn wait_for_no_connection(&self) {
        self.wait("the edge hangs up on the node", |state| state.open == 0);
    }

    fn wait(&self, what: &str, done: impl Fn(&State) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.seen.state.lock().unwrap();
        while !done(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "waited in vain for: {what} ({} came)",
                state.calls.len()
            );
            state = self.seen.changed.wait_timeout(state, left).unwrap().0;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Ok(mut state) = self.seen.state.lock() {
            state.stopping = true;
        }
        let _wakes_the_accept_loop = TcpStream::connect(self.address);
    }
}

fn accept<S: Fn(&Call) -> Vec<Act> + Send + Sync + 'static>(
    listener: &TcpListener,
    seen: &Arc<Seen>,
    script: &Arc<S>,
) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        let connection = {
            let mut state = seen.state.lock().unwrap();
            if state.stopping {
                return;
            }
            state.connections += 1;
            state.open += 1;
            state.connections
        };
        let (seen, script) = (Arc::clone(seen), Arc::clone(script));
        std::thread::spawn(move || {
            serve(stream, connection, &seen, &*script);
            seen.state.lock().unwrap().open -= 1;
            seen.changed.notify_all();
        });
    }
}

/// Serves one peer until it disconnects or the script ends the connection.
fn serve(mut stream: TcpStream, connection: usize, seen: &Seen, script: &Script) {
    stream.set_nodelay(true).expect("the socket is open");
    for turn in 1.. {
        let (head, body) = match read_but_the_last_byte(&mut stream) {
            Ok(Some(read)) => read,
            Ok(None) => return,
            Err(strange) => {
                seen.state.lock().unwrap().strange.push(strange);
                return;
            }
        };
        let call = {
            let mut state = seen.state.lock().unwrap();
            let number = state.calls.len() + 1;
            let call = Call {
                connection,
                turn,
                number,
                head,
                body,
            };
            state.calls.push(call.clone());
            seen.changed.notify_all();
            call
        };
        if !play(&mut stream, script(&call)) {
            return;
        }
    }
}

/// True if the connection can take another request.
fn play(stream: &mut TcpStream, acts: Vec<Act>) -> bool {
    // Linux sends a reset if bytes are unread at the close, so the last byte stays unread.
    if acts.iter().any(|act| matches!(act, Act::Reset)) {
        let mut all_before = acts
            .into_iter()
            .take_while(|act| !matches!(act, Act::Reset));
        let _the_peer_may_leave_first = all_before.all(|act| step(stream, act));
        return false;
    }
    stream.read_exact(&mut [0]).is_ok() && acts.into_iter().all(|act| step(stream, act))
}

fn step(stream: &mut TcpStream, act: Act) -> bool {
    match act {
        Act::Send(bytes) => stream.write_all(&bytes).is_ok(),
        Act::Drip(bytes, pause) => bytes.iter().all(|byte| {
            std::thread::sleep(pause);
            stream.write_all(&[*byte]).is_ok()
        }),
        Act::Flood(bytes) => {
            while stream.write_all(&bytes).is_ok() {}
            false
        }
        Act::Hold(latch) => latch.wait(),
        Act::Tell(latch) => {
            latch.open();
            true
        }
        Act::Hang => {
            let _until_the_peer_leaves = std::io::copy(stream, &mut std::io::sink());
            false
        }
        Act::Close | Act::Reset => false,
    }
}

/// Reads one request, but leaves its last byte in the socket (see [`play`]).
fn read_but_the_last_byte(stream: &mut TcpStream) -> Result<Option<(String, Vec<u8>)>, String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read_exact(&mut byte) {
            Ok(()) => head.push(byte[0]),
            Err(_) if head.is_empty() => return Ok(None),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(format!("half a head: {}", String::from_utf8_lossy(&head)));
            }
            Err(_) => return Ok(None),
        }
    }
    let head = String::from_utf8(head).map_err(|_| "a head that is not UTF-8".to_owned())?;
    let lengths: Vec<&str> = head
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map(|(_, value)| value.trim())
        .collect();
    let [length] = lengths.as_slice() else {
        return Err(format!("not one length: {head}"));
    };
    let length: usize = length
        .parse()
        .map_err(|_| format!("a bad length: {head}"))?;
    if length == 0 {
        return Err(format!("a request without a body: {head}"));
    }
    let mut body = vec![0; length];
    let (last, all_before) = body.split_last_mut().expect("checked just above");
    if stream.read_exact(all_before).is_err() {
        return Ok(None);
    }
    let mut peeked = [0];
    match stream.peek(&mut peeked) {
        Ok(1) => *last = peeked[0],
        _ => return Ok(None),
    }
    Ok(Some((head, body)))
}
