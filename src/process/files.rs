//! The limit of open files, as each connection takes one. Beyond it, none is accepted, the
//! operator's included.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Other files: listeners, the store, the log, and what the sidecar requests.
const OTHERS: u64 = 256;

/// Raises the soft limit to the hard limit, and logs a warning if that is too low for this many
/// connections.
pub(crate) fn raise_limit(connections: u64) {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    };
    let needed = connections.saturating_add(OTHERS);
    if limit < needed {
        log::warn!(
            "at most {limit} open files, but all connections take {needed}: raise LimitNOFILE or \
             `ulimit -n`, or lower gateway.connections.max and node.max_connections"
        );
    }
}
