//! Searches for operators: intents by their attributes, newest first, in pages.
//!
//! All take the same arguments: the id to continue below, the number of rows, and the transaction
//! hash, subject, state and operation to match (NULL matches all). Each uses the index of the
//! attribute in its name, which must not be NULL.

use super::{entry, intent};

/// The newest intents.
pub const SEARCH: &str = intent!(
    "id < $1 AND ($3 IS NULL OR transaction_hash = $3) AND ($4 IS NULL OR subject = $4) \
    AND ($5 IS NULL OR state = $5) AND ($6 IS NULL OR operation = $6) ORDER BY id DESC LIMIT $2"
);
/// Intents of a transaction.
pub const SEARCH_BY_HASH: &str = intent!(
    "id < $1 AND transaction_hash = $3 AND ($4 IS NULL OR subject = $4) \
    AND ($5 IS NULL OR state = $5) AND ($6 IS NULL OR operation = $6) ORDER BY id DESC LIMIT $2"
);
/// Intents about a subject.
pub const SEARCH_BY_SUBJECT: &str = intent!(
    "id < $1 AND ($3 IS NULL OR transaction_hash = $3) AND subject = $4 \
    AND ($5 IS NULL OR state = $5) AND ($6 IS NULL OR operation = $6) ORDER BY id DESC LIMIT $2"
);
/// Intents in a state.
pub const SEARCH_BY_STATE: &str = intent!(
    "id < $1 AND ($3 IS NULL OR transaction_hash = $3) AND ($4 IS NULL OR subject = $4) \
    AND state = $5 AND ($6 IS NULL OR operation = $6) ORDER BY id DESC LIMIT $2"
);
/// Intents of an operation.
pub const SEARCH_BY_OPERATION: &str = intent!(
    "id < $1 AND ($3 IS NULL OR transaction_hash = $3) AND ($4 IS NULL OR subject = $4) \
    AND ($5 IS NULL OR state = $5) AND operation = $6 ORDER BY id DESC LIMIT $2"
);
/// Refusals before an entry, newest first, of an operation or of all.
pub const REFUSALS: &str = entry!(
    "WHERE kind = 'refused' AND seq < $1 AND ($3 IS NULL OR operation = $3) \
    ORDER BY seq DESC LIMIT $2"
);
