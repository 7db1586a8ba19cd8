//! What the page is told every second: the shapes of the JSON. Counts are totals since the start;
//! the page makes rates and quantiles of their differences.

use serde::Serialize;

/// Everything at one time.
#[derive(Debug, Serialize)]
pub(super) struct Snapshot {
    /// Milliseconds since 1970.
    pub(super) at_ms: u64,
    /// When the process began, likewise: another one means another process, which counts anew.
    pub(super) started_ms: u64,
    pub(super) version: &'static str,
    /// A stop was asked for.
    pub(super) draining: bool,
    /// Requests being answered, over all surfaces.
    pub(super) in_flight: u64,
    pub(super) memory: Memory,
    /// Warnings and errors since the start: another number means that `/errors` has another one.
    pub(super) errors: u64,
    /// Log lines that nobody read in time.
    pub(super) log_dropped: u64,
    /// Reloads asked for since the start: another number means that `/config` may have changed.
    pub(super) reloads: u64,
    /// The bounds of every latency's buckets, in seconds.
    pub(super) bounds: &'static [f64],
    pub(super) surfaces: Vec<Surface>,
    pub(super) cache: Option<Cache>,
    pub(super) node: Node,
    pub(super) relay: Option<Relay>,
    pub(super) sidecar: Option<Sidecar>,
}

/// The memory for the node's answers, in bytes.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) taken: u64,
    pub(super) size: u64,
}

/// A name and how often, from a closed set of names.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Count {
    pub(super) name: String,
    pub(super) total: u64,
}

/// How long something took, as a histogram.
#[derive(Debug, Default, Serialize)]
pub(super) struct Latency {
    pub(super) count: u64,
    /// Seconds in all.
    pub(super) sum: f64,
    /// How many took no longer than each bound.
    pub(super) below: Vec<u64>,
}

/// A surface that answers requests.
#[derive(Debug, Serialize)]
pub(super) struct Surface {
    pub(super) name: &'static str,
    /// Where it listens.
    pub(super) listen: String,
    pub(super) connections: Connections,
    /// Requests that were answered, be it with an error of the node's.
    pub(super) answered: u64,
    /// Those that the policy refused, by reason; none with zero.
    pub(super) refused: Vec<Count>,
    /// Those that passed and could not be answered, by reason; none with zero.
    pub(super) failed: Vec<Count>,
    pub(super) latency: Latency,
    /// What was asked for: methods, operations, functions.
    pub(super) calls: Vec<Count>,
    pub(super) limits: Limits,
}

/// The connections of a surface.
#[derive(Debug, Serialize)]
pub(super) struct Connections {
    pub(super) open: u64,
    /// As many may be open.
    pub(super) max: u64,
    pub(super) accepted: u64,
    pub(super) turned_away: u64,
}

/// How much one client may ask of a surface, and who asks the most.
#[derive(Debug, Serialize)]
pub(super) struct Limits {
    pub(super) per_minute: u32,
    pub(super) at_a_time: u64,
    /// Clients that the limiter remembers.
    pub(super) clients: u64,
    /// Clients that it forgot because it was full.
    pub(super) forgotten: u64,
    pub(super) busiest: Vec<Busy>,
}

/// A client that asks a lot.
#[derive(Debug, Serialize)]
pub(super) struct Busy {
    /// Its network: IPv4 /24, IPv6 /48.
    pub(super) network: String,
    /// Its requests in the last minute.
    pub(super) requests: u32,
}

/// The gateway's cache.
#[derive(Debug, Serialize)]
pub(super) struct Cache {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) capacity: u64,
    pub(super) epoch: u64,
    pub(super) settled: Option<u64>,
    pub(super) suspended: bool,
    /// Calls by how the cache took part.
    pub(super) uses: Vec<Count>,
    /// Times that it was emptied, by cause.
    pub(super) emptied: Vec<Count>,
}

/// The node.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) urls: Vec<Url>,
    /// Calls to it by outcome: `ok`, or the fault.
    pub(super) calls: Vec<Count>,
    pub(super) retries: u64,
    pub(super) latency: Latency,
}

/// One URL of the node, as a surface uses it.
#[derive(Debug, Serialize)]
pub(super) struct Url {
    pub(super) url: String,
    /// Whose connections these are.
    pub(super) surface: &'static str,
    pub(super) idle: usize,
    pub(super) busy: usize,
    /// It is left alone for a moment, because it failed.
    pub(super) broken: bool,
}

/// The relay beyond its requests.
#[derive(Debug, Serialize)]
pub(super) struct Relay {
    pub(super) proof: Option<Proof>,
    pub(super) signers: Vec<Signer>,
    pub(super) faucet: Faucet,
    /// Intents by state.
    pub(super) intents: Vec<Count>,
    /// Writes by what came of them.
    pub(super) outcomes: Vec<Count>,
}

/// The newest proof of the pins.
#[derive(Debug, Serialize)]
pub(super) struct Proof {
    pub(super) ready: bool,
    /// Milliseconds since 1970.
    pub(super) checked_ms: u64,
    /// The life of the chain.
    pub(super) epoch: Option<String>,
    pub(super) pins: Vec<Pin>,
}

/// One pin.
#[derive(Debug, Serialize)]
pub(super) struct Pin {
    pub(super) name: &'static str,
    pub(super) expected: String,
    pub(super) actual: String,
    pub(super) ok: bool,
}

/// An account that signs.
#[derive(Debug, Serialize)]
pub(super) struct Signer {
    pub(super) role: &'static str,
    pub(super) address: String,
    /// In STRK, as the last proof read it.
    pub(super) balance: Option<f64>,
    /// The last that it wrote with.
    pub(super) nonce: Option<u64>,
    /// Operations that wait for its turn.
    pub(super) waiting: usize,
}

/// The faucet's rules.
#[derive(Debug, Serialize)]
pub(super) struct Faucet {
    /// One drip, in STRK.
    pub(super) amount: f64,
    /// Seconds between two drips to one recipient.
    pub(super) cooldown: u64,
}

/// The sidecar beyond its requests.
#[derive(Debug, Serialize)]
pub(super) struct Sidecar {
    /// Dependencies as the last health check found them: 1 is well.
    pub(super) components: Vec<Count>,
    /// The age verifier's events by outcome.
    pub(super) events: Vec<Count>,
}
