//! The limit of open files: each connection takes one. The last descriptors are reserved for the
//! operator, so that probes are answered when no others are free.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use portcullis_base::config::StoreConfig;
use portcullis_base::io::DescriptorUse;
use std::fs;
use thiserror::Error;

/// Other files: listeners, the store, the log, and fetches of the sidecar.
const OTHERS: u64 = 256;

/// The part of [`OTHERS`] for the operator's connections, and for accepting others to refuse them.
const RESERVED: u64 = 32;

/// The minimum of files for connections: six of clients, three to the node, three of the operator.
const FEWEST: u64 = 12;

/// Files of each runtime: epoll (twice), the waker, and the receiver of signals.
const RUNTIME: u64 = 4;
/// Files of the two socket pairs that pass on signals.
const SIGNALS: u64 = 4;
/// Files of SQLite: four readers, each with the database and its log, in addition to the writer.
const SQLITE: u64 = 8;

/// The files that the process needs, by purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileNeeds {
    /// Files that the process has open without connections.
    pub(crate) own: u64,
    /// Connections of all clients, at most.
    pub(crate) clients: u64,
    /// Connections to the node, at most.
    pub(crate) node: u64,
}

impl FileNeeds {
    /// The files of the process itself once it serves: those that are open now, and those that its
    /// runtimes and its store will open.
    pub(crate) fn own(runtimes: u64, store: Option<&StoreConfig>) -> u64 {
        // without the descriptor of the listing itself
        let open = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64 - 1);
        let store = store.map_or(0, |config| match &config.read_url {
            _ if config.is_for_one() => SQLITE,
            None => config.max_connections.into(),
            Some(_) => 2 * u64::from(config.max_connections),
        });
        open + RUNTIME * runtimes + SIGNALS + store
    }
}

/// The limit of open files leaves too few for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "at most {limit} open files, but the process itself takes {own} and needs {FEWEST} more for \
     connections: raise LimitNOFILE or `ulimit -n` to at least {}",
    .own + FEWEST
)]
pub struct TooFewFiles {
    limit: u64,
    own: u64,
}

/// The first of the reserved descriptors.
#[derive(Debug, PartialEq, Eq)]
struct Reserved {
    /// The first that client connections cannot use.
    from_clients: u64,
    /// The first that connections to the node cannot use either.
    from_node: u64,
}

/// Raises the soft limit to the hard limit, reserves descriptors for the node and the operator, and
/// logs a warning if that is too low for all connections.
///
/// # Errors
/// Fails if the limit is too low for any connection.
pub(crate) fn raise_limit(needs: FileNeeds) -> Result<(), TooFewFiles> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    };
    let Reserved {
        from_clients,
        from_node,
    } = reserve(limit, needs)?;
    DescriptorUse::Client.reserve(from_clients);
    DescriptorUse::Node.reserve(from_node);
    let needed = needs
        .clients
        .saturating_add(needs.node)
        .saturating_add(OTHERS);
    if limit < needed {
        log::warn!(
            "at most {limit} open files, but all connections take {needed}: raise LimitNOFILE or \
             `ulimit -n`, or lower gateway.connections.max and node.max_connections"
        );
    }
    Ok(())
}

/// Divides the part of `limit` that the process itself leaves. Under a low limit, clients get at
/// least half of it, and the node a quarter.
fn reserve(limit: u64, needs: FileNeeds) -> Result<Reserved, TooFewFiles> {
    let own = needs.own;
    let free = limit.checked_sub(own).filter(|free| *free >= FEWEST);
    let free = free.ok_or(TooFewFiles { limit, own })?;
    let for_both = needs
        .node
        .saturating_add(OTHERS)
        .min(limit / 4)
        .min(free / 2);
    let for_operator = RESERVED.min(limit / 8).min(free / 4);
    Ok(Reserved {
        from_clients: limit - for_both,
        from_node: limit - for_operator,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_gets_a_file_or_the_process_does_not_start() {
        for (limit, own, expected) in [
            (1 << 20, 60, Ok((1_048_576 - 1_280, 1_048_576 - 32))),
            (256, 56, Ok((192, 224))),
            (128, 56, Ok((96, 112))),
            (80, 56, Ok((68, 74))),
            (80, 65, Ok((73, 77))),
            (68, 56, Ok((62, 65))),
            (67, 56, Err(())),
            (64, 56, Err(())),
            (64, 34, Ok((49, 57))),
            (20, 34, Err(())),
        ] {
            let found = reserve(
                limit,
                FileNeeds {
                    own,
                    clients: 20_000,
                    node: 1_024,
                },
            );
            let found = found.map(
                |Reserved {
                     from_clients,
                     from_node,
                 }| (from_clients, from_node),
            );
            assert_eq!(found.map_err(|_| ()), expected, "{limit}, {own}");
            if let Ok((from_clients, from_node)) = found {
                assert!(from_clients >= own + FEWEST / 2, "{limit}: clients");
                assert!(from_node >= from_clients + FEWEST / 4, "{limit}: the node");
                assert!(limit >= from_node + FEWEST / 4, "{limit}: the operator");
            }
        }
    }

    #[test]
    fn a_refusal_names_the_limit_that_suffices() {
        let needs = |own| FileNeeds {
            own,
            clients: 1,
            node: 1,
        };
        let refusal = reserve(64, needs(56))
            .expect_err("12 are needed")
            .to_string();
        assert!(refusal.ends_with("to at least 68"), "{refusal}");
        assert!(reserve(68, needs(56)).is_ok());
    }
}
