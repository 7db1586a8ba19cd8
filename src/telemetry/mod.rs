//! What the operator sees: log lines and metrics. The listener that serves them is `admin`.
//!
//! Nothing here ever holds a body, a token, a key or a signature, and every label comes from a
//! closed set, so that no client can make a series or a line of its own.

pub mod log;
pub mod metrics;
mod process;
mod recent;
mod relay;
mod reloads;
mod requests;
mod sampled;
mod sidecar;
mod tls;

pub use self::log::{Log, RequestLine};
pub use metrics::{BySurface, CacheUse, LATENCY, Metrics, Surface};
pub use recent::{Event, Recent};
pub use relay::{PinState, RelayMetrics};
pub use reloads::ReloadMetrics;
pub use sampled::Sample;
pub use sidecar::SidecarMetrics;
pub use tls::{Handshake, TlsMetrics};
