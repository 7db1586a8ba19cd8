//! The statements of the events that the backend is sent.

/// The state of the same intent in the entry before, in a statement about `journal`.
macro_rules! previous {
    () => {
        "(SELECT former.kind FROM journal AS former WHERE former.intent_id = journal.intent_id \
         AND former.seq < journal.seq ORDER BY former.seq DESC LIMIT 1) AS previous"
    };
}

/// Begins to read the journal at its end, unless it was read before.
pub const EVENT_CURSOR_BEGIN: &str = "INSERT INTO event_cursor (id, seq) \
    SELECT 1, seq FROM chain_head WHERE one = 1 ON CONFLICT (id) DO NOTHING";
/// The last entry that was read.
pub const EVENT_CURSOR: &str = "SELECT seq FROM event_cursor";
/// Moves the cursor to `$2`, if it is at `$1`.
pub const EVENT_CURSOR_MOVE: &str = "UPDATE event_cursor SET seq = $2 WHERE seq = $1";
/// The entries after `$1`, each with the state of its intent before.
pub const EVENT_ENTRIES: &str = concat!(
    "SELECT seq, kind, intent_id, ",
    previous!(),
    " FROM journal WHERE seq > $1 ORDER BY seq LIMIT $2"
);
/// Keeps an event.
pub const EVENT_ADD: &str = "INSERT INTO event_waiting (seq, intent_id, due_us, failed) \
    VALUES ($1, $2, $3, 0) ON CONFLICT (seq) DO NOTHING";
/// The events that are due up to `$1`, or after `$2`, and wait for no earlier one of their intent,
/// those that wait longest first.
pub const EVENTS_DUE: &str = concat!(
    "SELECT journal.seq, journal.intent_id, journal.at_us, journal.kind, journal.detail, \
     journal.hash, waiting.failed, waiting.first_us, intent.operation, intent.subject, \
     intent.signer, intent.nonce, intent.transaction_hash, ",
    previous!(),
    " FROM event_waiting AS waiting JOIN journal ON journal.seq = waiting.seq \
     JOIN intent ON intent.id = waiting.intent_id \
     WHERE (waiting.due_us <= $1 OR waiting.due_us > $2) \
     AND NOT EXISTS (SELECT 1 FROM event_waiting AS earlier \
     WHERE earlier.intent_id = waiting.intent_id AND earlier.seq < waiting.seq) \
     ORDER BY waiting.due_us, waiting.seq LIMIT $3"
);
/// An event is sent again later.
pub const EVENT_LATER: &str =
    "UPDATE event_waiting SET failed = $2, first_us = $3, due_us = $4 WHERE seq = $1";
/// An event is delivered, or given up.
pub const EVENT_END: &str = "DELETE FROM event_waiting WHERE seq = $1";
/// Every event is due at `$1`, or before.
pub const EVENTS_HASTEN: &str = "UPDATE event_waiting SET due_us = $1 WHERE due_us > $1";
/// The number of events that wait, the date of the oldest one, and that of the oldest entry that
/// was not read yet.
pub const EVENT_BACKLOG: &str = "SELECT (SELECT count(*) FROM event_waiting) AS waiting, \
    (SELECT at_us FROM journal WHERE seq = (SELECT min(seq) FROM event_waiting)) AS waiting_us, \
    (SELECT at_us FROM journal WHERE seq > (SELECT seq FROM event_cursor) \
    ORDER BY seq LIMIT 1) AS unread_us";
