//! Events for the backend: what becomes of a write after its response.
//!
//! In: the entries of the journal in their order, and the receiver's answers. Out: the events, when
//! each is sent, and whether it is sent again. Events are derived from the journal alone: a cursor
//! is the last entry that was read, and a row keeps each event until it is delivered or given up.
//! Cursor and rows change together, so a crash loses none; an event whose delivery was not recorded
//! is sent twice, with the same id. An event waits for earlier ones of its write, for no others.
//!
//! Reading order: `kind.rs` (which entry is an event), `body.rs`, `attempts.rs` (when an event is
//! sent), `round.rs` (the flow, over one `Outbox`), `backlog.rs` (when that is a problem).

mod attempts;
mod backlog;
mod body;
mod kind;
mod round;
#[cfg(test)]
mod tests;

pub use attempts::{Attempts, DueTimes, GIVEN_UP_AFTER_US, Settled};
pub use backlog::{Backlog, Failures, Trouble};
pub use body::Event;
pub use kind::EventKind;
pub use round::{BATCH, Entry, Moved, NewEvent, Outbox, PAGE, Settlement, Waiting, round};

use crate::named::named;

named! {
    /// The result of sending an event once.
    pub enum EventOutcome {
        /// The receiver has it.
        Delivered = "delivered",
        /// It is sent again later.
        Failed = "failed",
        /// It is not sent again.
        GivenUp = "given_up",
    }
}
