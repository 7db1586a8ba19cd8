//! The servers of the store: one, or the primaries of a cluster. Each has a connection and a health
//! of its own, so that a server that fails takes only its part of the keys along.

use super::connect::{Connector, FleetError, Link, ServerKind, answered};
use super::slots::{self, Slot, SlotRange};
use futures_util::future::join_all;
use parking_lot::Mutex;
use portcullis_base::config::FleetServer;
use redis::Value;
use redis::aio::MultiplexedConnection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Unanswered messages in a row after which a server is down, as for a node.
const FAILURES: u32 = 3;

/// A server of the store, with its connection and state.
pub(super) struct Server {
    pub(super) address: FleetServer,
    link: Mutex<Option<Arc<Link>>>,
    failures: AtomicU32,
    is_down: AtomicBool,
    cause: Mutex<Option<String>>,
    /// Whether its connection receives what leaders publish.
    pub(super) is_subscribed: AtomicBool,
}

impl Server {
    /// A server that is down until [`Self::mark_up`].
    fn new(address: FleetServer, cause: Option<String>) -> Self {
        Self {
            address,
            link: Mutex::default(),
            failures: AtomicU32::new(0),
            is_down: AtomicBool::new(true),
            cause: Mutex::new(cause),
            is_subscribed: AtomicBool::new(false),
        }
    }

    /// The connection, for one call.
    ///
    /// # Errors
    /// The server is not connected.
    pub(super) fn connection(&self) -> Result<MultiplexedConnection, FleetError> {
        let link = self.link.lock().clone();
        link.map(|link| link.connection())
            .ok_or(FleetError::NotConnected)
    }

    fn connected(&self, link: Link) {
        self.is_subscribed.store(false, Ordering::Relaxed);
        *self.link.lock() = Some(Arc::new(link));
    }

    /// Whether it is used.
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Why it is down; `None` while it is up, and before the first attempt.
    pub(super) fn cause(&self) -> Option<String> {
        self.cause.lock().clone()
    }

    /// Notes that a message was answered.
    pub(super) fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Notes that a message was not answered. Whether the server is down because of that.
    pub(super) fn failed(&self, cause: &str) -> bool {
        let trips = self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES;
        if trips {
            self.mark_down(cause);
        }
        trips
    }

    pub(super) fn mark_down(&self, cause: &str) {
        *self.cause.lock() = Some(cause.to_owned());
        self.is_down.store(true, Ordering::Relaxed);
    }

    pub(super) fn mark_up(&self) {
        self.failures.store(0, Ordering::Relaxed);
        *self.cause.lock() = None;
        self.is_down.store(false, Ordering::Relaxed);
    }

    /// Ends the connection.
    pub(super) fn disconnect(&self) {
        *self.link.lock() = None;
    }
}

/// The servers, and the slots that each holds.
pub(super) struct Servers {
    pub(super) kind: ServerKind,
    pub(super) all: Vec<Arc<Server>>,
    ranges: Vec<SlotRange>,
}

impl Servers {
    /// The server that holds a slot.
    pub(super) fn of(&self, slot: Slot) -> Option<&Arc<Server>> {
        let range = match &*self.ranges {
            // nearly always
            [all] => all,
            ranges => ranges.iter().find(|range| range.holds(slot))?,
        };
        self.all
            .iter()
            .find(|server| server.address == range.server)
    }

    /// The servers that are down.
    pub(super) fn down(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.all.iter().filter(|server| server.is_down())
    }

    /// Whether a part of the keys has no server.
    pub(super) fn is_partial(&self) -> bool {
        !slots::are_complete(&self.ranges)
    }

    /// A key of this server, for [`Connector`] to try it with.
    pub(super) fn key_of(&self, server: &Server) -> Option<String> {
        // one in a hundred numbers is in each range that matters
        (0..100_000_u32)
            .map(|number| format!("pc:probe:{number}"))
            .find(|key| {
                self.of(Slot::of(key))
                    .is_some_and(|holder| holder.address == server.address)
            })
    }

    /// Why a part of the keys is unavailable.
    pub(super) fn failure(&self) -> Option<String> {
        let down = self
            .all
            .iter()
            .filter_map(|server| Some((server, server.cause()?)));
        let mut causes: Vec<_> = match &*self.all {
            [_] => down.map(|(_, cause)| cause).collect(),
            _ => down
                .map(|(server, cause)| format!("{}: {cause}", server.address))
                .collect(),
        };
        if self.is_partial() {
            causes.push(FleetError::NoServer.to_string());
        }
        if causes.is_empty() {
            None
        } else {
            Some(causes.join("; "))
        }
    }

    /// Finds the servers: the primary of those that are configured, or all of a cluster. Servers
    /// that are known go on.
    ///
    /// # Errors
    /// Returns why none of them can be used.
    pub(super) async fn find(
        connector: &Connector,
        known: Option<&Self>,
    ) -> Result<Self, FleetError> {
        if let Some(known) = known.filter(|known| known.kind == ServerKind::Cluster) {
            for server in known.all.iter().filter(|server| !server.is_down()) {
                let Ok(mut connection) = server.connection() else {
                    continue;
                };
                if let Ok(ranges) = ranges(&mut connection, &server.address).await {
                    return Ok(Self::of_cluster(ranges, Some(known)));
                }
            }
        }
        let mut addresses = connector.url.servers.clone();
        for server in known.iter().flat_map(|known| &known.all) {
            if !addresses.contains(&server.address) {
                addresses.push(server.address.clone());
            }
        }
        let tried = addresses
            .iter()
            .map(|address| Self::find_at(connector, address, known));
        let mut errors = Vec::new();
        for (tried, address) in join_all(tried).await.into_iter().zip(&addresses) {
            match tried {
                Ok(found) => return Ok(found),
                Err(error) => errors.push((address, error)),
            }
        }
        match errors.pop() {
            Some((_, error)) if errors.is_empty() => Err(error),
            last => {
                let all = errors.into_iter().chain(last);
                let all = all.map(|(address, error)| format!("{address}: {error}"));
                Err(FleetError::Servers(all.collect::<Vec<_>>().join("; ")))
            }
        }
    }

    async fn find_at(
        connector: &Connector,
        address: &FleetServer,
        known: Option<&Self>,
    ) -> Result<Self, FleetError> {
        let (link, kind) = connector.connect(address).await?;
        let found = match kind {
            ServerKind::Single => Self::of_ranges(
                ServerKind::Single,
                vec![SlotRange::all(address.clone())],
                known,
            ),
            ServerKind::Cluster => {
                let ranges = ranges(&mut link.connection(), address).await?;
                Self::of_cluster(ranges, known)
            }
        };
        let own = found.all.iter().find(|server| server.address == *address);
        // a server that is up keeps its connection
        if let Some(own) = own.filter(|own| own.is_down()) {
            own.connected(link);
        }
        Ok(found)
    }

    fn of_cluster(ranges: Vec<SlotRange>, known: Option<&Self>) -> Self {
        Self::of_ranges(ServerKind::Cluster, ranges, known)
    }

    fn of_ranges(kind: ServerKind, ranges: Vec<SlotRange>, known: Option<&Self>) -> Self {
        let mut all: Vec<Arc<Server>> = Vec::new();
        for SlotRange { server, .. } in &ranges {
            if all.iter().any(|one| one.address == *server) {
                continue;
            }
            let known_one = known
                .iter()
                .flat_map(|known| &known.all)
                .find(|one| one.address == *server);
            all.push(match known_one {
                Some(one) => Arc::clone(one),
                // not the first attempt, so that there is a cause
                None => {
                    let cause = known.map(|_| FleetError::NotConnected.to_string());
                    Arc::new(Server::new(server.clone(), cause))
                }
            });
        }
        Self { kind, all, ranges }
    }
}

impl Connector {
    /// Connects to a server that is down, unless it is connected.
    ///
    /// # Errors
    /// Returns why there is no connection.
    pub(super) async fn link(&self, server: &Server) -> Result<MultiplexedConnection, FleetError> {
        if let Ok(connection) = server.connection() {
            return Ok(connection);
        }
        let (link, _) = self.connect(&server.address).await?;
        let connection = link.connection();
        server.connected(link);
        Ok(connection)
    }
}

async fn ranges(
    connection: &mut MultiplexedConnection,
    asked: &FleetServer,
) -> Result<Vec<SlotRange>, FleetError> {
    let call = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
    let answer = answered(call.query_async::<Value>(connection)).await?;
    slots::parse(answer, asked)
        .filter(|ranges| !ranges.is_empty())
        .ok_or(FleetError::Slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_a_server_are_a_failure() {
        let address = FleetServer::Tcp("a.test".to_owned(), 1);
        for (last, expected) in [(16_383, None), (16_382, Some(FleetError::NoServer))] {
            let primary = Value::Array(vec![Value::Nil, Value::Int(1)]);
            let row = Value::Array(vec![Value::Int(0), Value::Int(last), primary]);
            let ranges = slots::parse(Value::Array(vec![row]), &address).expect("a range");
            let servers = Servers::of_cluster(ranges, None);
            servers.all[0].mark_up();
            let expected = expected.map(|error| error.to_string());
            assert_eq!(servers.failure(), expected, "up to {last}");
        }
    }
}
