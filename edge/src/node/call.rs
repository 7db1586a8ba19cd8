//! One call to the node: its request, its route, and how long it may take.

use super::{ClientRead, Route};
use portcullis_base::io::ClientShare;
use portcullis_filters::chain::{Asked, Repeat};
use tokio::time::Instant;

/// Which connection a request is sent over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionChoice {
    /// A pooled one. If it ends before an answer begins, the request is sent once more.
    Pooled,
    /// A new one: a balancer may have tied the others to a node that is behind.
    New,
    /// A new one; nothing is sent twice, not even to another URL.
    Once,
}

/// A call. One struct, so that the future that waits for its answer stays small.
pub struct Call<'a, W> {
    /// The id of the request: the number of the call at its client, 1 for a call without one.
    pub(super) id: u64,
    pub(super) write: W,
    pub(super) route: Route,
    pub(super) connection: ConnectionChoice,
    pub(super) asked: Asked,
    pub(super) traceparent: Option<&'a [u8]>,
    pub(super) share: Option<ClientShare>,
    pub(super) read: Option<ClientRead>,
    pub(super) start: Instant,
    pub(super) deadline: Instant,
}

impl<'a, W: Fn(u64, &mut Vec<u8>)> Call<'a, W> {
    /// Creates a call to the primary over a pooled connection. `write` serializes the request with
    /// the id that it receives.
    pub fn new(write: W, deadline: Instant) -> Self {
        Self {
            id: 1,
            write,
            route: Route::Primary,
            connection: ConnectionChoice::Pooled,
            asked: Asked::Call,
            traceparent: None,
            share: None,
            read: None,
            start: Instant::now(),
            deadline,
        }
    }

    /// Sends the call to a URL that the route allows.
    #[must_use]
    pub fn by(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// Sends the call over a pooled connection or over a new one.
    #[must_use]
    pub fn over(self, connection: ConnectionChoice) -> Self {
        Self { connection, ..self }
    }

    /// Counts the call as a poll of the URL that gets it.
    #[must_use]
    pub(super) fn polling(self) -> Self {
        Self {
            asked: Asked::Poll,
            ..self
        }
    }

    /// Whether the call may be sent to a second URL.
    pub(super) fn repeat(&self) -> Repeat {
        match self.connection {
            ConnectionChoice::Pooled | ConnectionChoice::New => Repeat::Safe,
            ConnectionChoice::Once => Repeat::Never,
        }
    }

    /// Sends this `traceparent` with the call; it must be well-formed.
    #[must_use]
    pub fn traced(self, traceparent: Option<&'a [u8]>) -> Self {
        Self {
            traceparent,
            ..self
        }
    }

    /// Makes the call for a client's read, which takes a slot of the URL or waits for one.
    #[must_use]
    pub fn reading(self, read: ClientRead) -> Self {
        Self {
            read: Some(read),
            ..self
        }
    }

    /// Charges a large answer to the client with this share.
    #[must_use]
    pub fn for_client(self, share: ClientShare) -> Self {
        Self {
            share: Some(share),
            ..self
        }
    }
}
