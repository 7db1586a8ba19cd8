//! Every statement, once for both databases: SQLite takes `$1`, too.
//!
//! A condition on states repeats the one of its partial index word for word, which is what SQLite
//! needs to use it. Public, so that a test can ask for the plans. Here: what the relay keeps;
//! `search` has what an operator looks for, `content` and `age` what the service endpoints keep.

mod age;
mod content;
mod search;

pub use age::*;
pub use content::*;
pub use search::*;

/// Locks the chain until the transaction ends, and reads where it ends.
pub const CHAIN_LOCK: &str = "UPDATE chain_head SET seq = seq RETURNING seq, hash";
/// Where the chain ends.
pub const CHAIN_HEAD: &str = "SELECT seq, hash FROM chain_head";
/// Moves the end of the chain.
pub const CHAIN_MOVE: &str = "UPDATE chain_head SET seq = $1, hash = $2";

/// Appends an entry.
pub const ENTRY_ADD: &str = "INSERT INTO journal \
    (seq, at_us, kind, intent_id, operation, detail, prev_hash, hash) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
/// Entries from one on.
pub const ENTRIES: &str = "SELECT seq, at_us, kind, intent_id, operation, detail, prev_hash, hash \
    FROM journal WHERE seq >= $1 ORDER BY seq LIMIT $2";
/// The newest entries, newest first.
pub const ENTRIES_NEWEST: &str = "SELECT \
    seq, at_us, kind, intent_id, operation, detail, prev_hash, hash \
    FROM journal ORDER BY seq DESC LIMIT $1";
/// The entries of one intent.
pub const ENTRIES_OF: &str = "SELECT \
    seq, at_us, kind, intent_id, operation, detail, prev_hash, hash \
    FROM journal WHERE intent_id = $1 ORDER BY seq";

/// All columns of an intent, with the rest of the statement.
macro_rules! intent {
    ($rest:literal) => {
        concat!(
            "SELECT id, epoch, operation, digest, subject, request, signer, nonce, ",
            "transaction_hash, transaction_json, state, detail, created_us, updated_us ",
            "FROM intent WHERE ",
            $rest
        )
    };
}
use intent;

/// Adds an intent, unless it breaks a unique rule.
pub const INTENT_ADD: &str = "INSERT INTO intent \
    (id, epoch, operation, digest, subject, request, signer, nonce, transaction_hash, \
    transaction_json, state, created_us, updated_us) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'intended', $11, $11) \
    ON CONFLICT DO NOTHING";
/// How far an intent is, and of which operation.
pub const INTENT_STATE: &str = "SELECT state, operation FROM intent WHERE id = $1";
/// Moves an intent.
pub const INTENT_MOVE: &str =
    "UPDATE intent SET state = $2, detail = $3, updated_us = $4 WHERE id = $1";
/// An intent.
pub const INTENT: &str = intent!("id = $1");
/// The intent of a transaction that was not refused or lost.
pub const INTENT_BY_HASH: &str =
    intent!("epoch = $1 AND transaction_hash = $2 AND state NOT IN ('rejected', 'lost')");
/// The unresolved intent of a request.
pub const INTENT_BY_DIGEST: &str =
    intent!("epoch = $1 AND digest = $2 AND state IN ('intended', 'sent', 'accepted')");
/// Whether a nonce is taken.
pub const INTENT_BY_NONCE: &str = "SELECT id FROM intent WHERE epoch = $1 AND signer = $2 \
    AND nonce = $3 AND state NOT IN ('rejected', 'lost')";
/// What is unresolved of an epoch.
pub const UNRESOLVED: &str =
    intent!("epoch = $1 AND state IN ('intended', 'sent', 'accepted') ORDER BY id");
/// What is unresolved of an epoch and a signer.
pub const UNRESOLVED_OF_SIGNER: &str =
    intent!("epoch = $1 AND signer = $2 AND state IN ('intended', 'sent', 'accepted') ORDER BY id");
/// What is unresolved of all epochs but one.
pub const UNRESOLVED_ELSEWHERE: &str =
    intent!("epoch <> $1 AND state IN ('intended', 'sent', 'accepted') ORDER BY id");
/// When an operation was last intended for a subject, as far as it is not undone.
pub const LAST_OF: &str = "SELECT created_us FROM intent \
    WHERE epoch = $1 AND operation = $2 AND subject = $3 \
    AND state NOT IN ('rejected', 'lost', 'reverted') ORDER BY created_us DESC LIMIT 1";
/// How many intents are in each state.
pub const COUNT_BY_STATE: &str = "SELECT state, intents FROM intent_count WHERE intents <> 0";

/// Binds an identity and a recipient, unless one of them is bound.
pub const BIND: &str = "INSERT INTO faucet_binding (epoch, identity, recipient, bound_us) \
    VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
/// To whom an identity is bound.
pub const BOUND_TO: &str =
    "SELECT recipient FROM faucet_binding WHERE epoch = $1 AND identity = $2";

/// To whom a recipient is bound.
pub const BOUND_FROM: &str =
    "SELECT identity FROM faucet_binding WHERE epoch = $1 AND recipient = $2";
/// Takes a binding back that led to nothing.
pub const UNBIND: &str = "DELETE FROM faucet_binding WHERE epoch = $1 AND recipient = $3 \
    AND NOT EXISTS (SELECT 1 FROM intent WHERE intent.epoch = $1 AND operation = $2 \
    AND subject = $3 AND state NOT IN ('rejected', 'lost', 'reverted'))";

/// Claims a key, or takes over an equal claim that was abandoned before `$5`.
pub const KEY_CLAIM: &str = "INSERT INTO idempotency (key, operation, digest, created_us) \
    VALUES ($1, $2, $3, $4) ON CONFLICT (key) DO UPDATE SET created_us = excluded.created_us \
    WHERE idempotency.intent_id IS NULL AND idempotency.status IS NULL \
    AND idempotency.created_us < $5 AND idempotency.operation = excluded.operation \
    AND idempotency.digest = excluded.digest";
/// A claimed key.
pub const KEY: &str = "SELECT operation, digest, intent_id, status, body, created_us \
    FROM idempotency WHERE key = $1";
/// Links an open key to its intent: to another one after one that came to nothing.
pub const KEY_LINK: &str = "UPDATE idempotency SET intent_id = $2 \
    WHERE key = $1 AND status IS NULL AND (intent_id IS NULL OR intent_id = $2 OR EXISTS \
    (SELECT 1 FROM intent WHERE id = idempotency.intent_id AND state IN ('rejected', 'lost')))";
/// Keeps the answer of a key, once.
pub const KEY_ANSWER: &str =
    "UPDATE idempotency SET status = $2, body = $3 WHERE key = $1 AND status IS NULL";
/// Gives a claim back, unless something came of it.
pub const KEY_RELEASE: &str = "DELETE FROM idempotency \
    WHERE key = $1 AND created_us = $2 AND intent_id IS NULL AND status IS NULL";
/// Forgets old keys: answered, or with nothing to answer from.
pub const KEY_PRUNE: &str = "DELETE FROM idempotency \
    WHERE created_us < $1 AND (status IS NOT NULL OR intent_id IS NULL)";

/// PostgreSQL only: waits for the lock of a signer, until the session's `lock_timeout`.
pub const SIGNER_LOCK: &str = "SELECT pg_advisory_lock($1)";
/// PostgreSQL only: gives the lock of a signer back.
pub const SIGNER_UNLOCK: &str = "SELECT pg_advisory_unlock($1)";
/// PostgreSQL only: how long the session waits for a lock.
pub const SIGNER_WAIT: &str = "SELECT set_config('lock_timeout', $1, false)";
/// PostgreSQL only: waits until no other transaction has the lock of this name. Two numbers are
/// apart from the one of a signer.
pub const NAME_LOCK: &str = "SELECT pg_advisory_xact_lock(1, hashtext($1))";
/// The version of the tables.
pub const VERSION: &str = "SELECT max(version) AS version FROM _sqlx_migrations";

/// Forgets age events that were received long ago, so many at most.
pub const AGE_EVENTS_FORGET: &str = "DELETE FROM age_event WHERE event_id IN \
    (SELECT event_id FROM age_event WHERE received_us < $1 ORDER BY received_us LIMIT $2)";
/// Forgets age sessions to which nothing ever came, so many at most. What was waited for is asked
/// again outside: PostgreSQL looks at nothing else of a row that another transaction just changed.
pub const AGE_SESSIONS_FORGET: &str = "DELETE FROM age_session \
    WHERE last_occurred_us IS NULL AND expires_us < $1 AND subject_ref IN \
    (SELECT subject_ref FROM age_session WHERE last_occurred_us IS NULL AND expires_us < $1 \
    ORDER BY expires_us LIMIT $2)";
/// Forgets old feed items, so many at most.
pub const FEED_ITEMS_FORGET: &str = "DELETE FROM feed_item WHERE (feed, post_uri) IN \
    (SELECT feed, post_uri FROM feed_item WHERE sort_us < $1 LIMIT $2)";
/// The viewer of the suggestion that is so many further on.
pub const SUGGESTION_VIEWER: &str =
    "SELECT viewer_did FROM suggestion WHERE viewer_did > $1 ORDER BY viewer_did LIMIT 1 OFFSET $2";
/// Forgets old snapshots of a range of viewers, but for the newest of each.
pub const SUGGESTIONS_FORGET: &str = "DELETE FROM suggestion \
    WHERE viewer_did > $1 AND viewer_did <= $2 AND built_us < $3 AND snapshot_id < \
    (SELECT max(n.snapshot_id) FROM suggestion n WHERE n.viewer_did = suggestion.viewer_did)";
