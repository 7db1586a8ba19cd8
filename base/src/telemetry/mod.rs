//! Log lines, metrics and traces for the operator. `admin` serves them; traces are sent.
//!
//! Nothing here holds a body, a token, a key or a signature. Every label value is from a closed
//! set, so no client can add a series or forge a log line.

mod acme;
mod conditions;
mod connection;
mod draws;
mod fleet;
mod latency;
pub mod log;
pub mod metrics;
mod peers;
mod process;
mod recent;
mod record;
mod registry;
mod relay;
mod reloads;
mod repeated;
mod requests;
mod sidecar;
mod surface;
mod tasks;
mod trace;
mod webhooks;

pub use self::fleet::{FleetMessage, FleetMetrics};
pub use self::log::{HttpLine, Log, RequestLine};
pub use acme::OrderOutcome;
pub use conditions::{ActiveCondition, Condition, Conditions, Finding, Verdict};
pub use connection::{ConnectionOutcome, Handshake, ProxyHeader};
pub use latency::Latency;
pub use metrics::{CacheUse, LabelValues, Metrics, encode};
pub use peers::{Peer, PeerMetrics};
pub use recent::{Event, Recent};
pub use record::{RequestRecord, Stage};
pub use registry::{Registry, as_gauge, counts, raise};
pub use relay::{PinState, RelayMetrics, UNPLACED};
pub use reloads::ReloadMetrics;
pub use requests::{LATENCY, Requests};
pub use sidecar::SidecarMetrics;
pub use surface::{BySurface, Surface};
pub use tasks::{Task, TaskMetrics};
pub use trace::{Exporter, TraceContext, Tracer};
pub use webhooks::{RefusedWebhooks, WebhookRefusals};
