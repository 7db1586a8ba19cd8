//! What the operator sees: log lines and metrics. `admin` serves them.
//!
//! Nothing here holds a body, a token, a key or a signature. Every label value is from a closed
//! set, so no client can add a series or forge a log line.

mod labels;
pub mod log;
pub mod metrics;
mod process;
mod recent;
mod registry;
mod relay;
mod reloads;
mod repeated;
mod requests;
mod sidecar;

pub use self::log::{HttpLine, Log, RequestLine};
pub use labels::{BySurface, CacheUse, ConnectionOutcome, Handshake, Surface};
pub use metrics::{LATENCY, LabelValues, Metrics, encode};
pub use recent::{Event, Recent};
pub use registry::{Registry, as_gauge, counts, raise};
pub use relay::{PinState, RelayMetrics};
pub use reloads::ReloadMetrics;
pub use requests::{Latency, Requests};
pub use sidecar::SidecarMetrics;
