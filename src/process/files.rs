//! The limit of open files, as each connection takes one. The last ones are for the operator, whose
//! probes are answered when there are no others.

use crate::io::DescriptorUse;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Other files: listeners, the store, the log, and what the sidecar requests.
const OTHERS: u64 = 256;

/// Of these, for the operator's connections and for accepting and refusing all others.
const RESERVED: u64 = 32;

/// Raises the soft limit to the hard limit, reserves descriptors for the node and the operator, and
/// logs a warning if that is too low for this many connections of clients and to the node.
pub(crate) fn raise_limit(clients: u64, node: u64) {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    };
    DescriptorUse::Client.reserve(limit - node.saturating_add(OTHERS).min(limit / 4));
    DescriptorUse::Node.reserve(limit - RESERVED.min(limit / 8));
    let needed = clients.saturating_add(node).saturating_add(OTHERS);
    if limit < needed {
        log::warn!(
            "at most {limit} open files, but all connections take {needed}: raise LimitNOFILE or \
             `ulimit -n`, or lower gateway.connections.max and node.max_connections"
        );
    }
}
